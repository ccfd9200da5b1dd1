/*
 * Models with gated delta nets (docs/model.md#gated-delta-nets): what config.json means, what is
 * refused, what files keep, and gradients that no cut of a batch changes. Numbers against
 * transformers are in test_golden_models.c.
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "test.h"

static const char *golden(const char *variant)
{
    static char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", test_source("tests/golden/models"), variant);
    return path;
}

/* A config.json of these members. */
static int read_of(const char *type, const char *members, ares_model_config *c)
{
    ares_str text = { 0 };
    ares_str_addf(&text, "{\"model_type\": \"%s\"%s}", type, members);
    CHECK_OK(ares_file_write(test_file("config.json"), text.data, text.len));
    ares_str_fini(&text);
    return ares_model_config_load(test_dir(), c);
}

TEST(absent_keys_of_delta_nets_mean_what_they_mean_in_transformers)
{
    ares_model_config c, again;
    REQUIRE_OK(read_of("qwen3_5_text", "", &c));
    CHECK(c.net.k_heads == 16 && c.net.v_heads == 32 && c.net.k_dim == 128 && c.net.v_dim == 128);
    CHECK(c.net.kernel == 4 && c.head_dim == 256 && c.turned == 64 && !c.tied && !c.wrapped);
    CHECK(c.attention_gate && c.norm_plus_one && c.qk_norm == ARES_QK_NORM_HEADS);
    CHECK(c.vocab == 248320 && c.hidden == 4096 && c.intermediate == 12288 && c.layers == 32);
    for (int32_t i = 0; i < c.layers; i++) CHECK_EQ(c.layer[i], i % 4 == 3 ? 0 : ARES_LAYER_NET);
    CHECK_EQ(ares_model_config_caches(&c), 8);

    /* keys of the inner level, and a tie that the outer one decides */
    REQUIRE_OK(read_of("qwen3_5",
                       ", \"tie_word_embeddings\": true, \"vision_config\": {\"depth\": 3},"
                       "\"text_config\": {\"hidden_size\": 64, \"full_attention_interval\": 2, "
                       "\"num_hidden_layers\": 3, \"dtype\": \"bfloat16\", "
                       "\"partial_rotary_factor\": 0.5, \"mrope_section\": [1, 1, 1]}",
                       &c));
    CHECK(c.wrapped && c.tied && c.hidden == 64 && c.turned == 128 && c.file_dtype == ARES_BF16);
    CHECK(c.layer[0] && !c.layer[1] && c.layer[2] && !c.vision.depth);

    /* what is written from nothing says the same */
    REQUIRE_OK(read_of("qwen3_5_text",
                       ", \"num_hidden_layers\": 3, \"layer_types\": [\"full_attention\", "
                       "\"linear_attention\", \"full_attention\"], \"linear_conv_kernel_dim\": 3, "
                       "\"linear_num_value_heads\": 48, \"rope_parameters\": {\"rope_type\": "
                       "\"default\", \"rope_theta\": 123.5, \"partial_rotary_factor\": 0.5}",
                       &c));
    REQUIRE_OK(model_config_save(&c, test_dir()));
    REQUIRE_OK(ares_model_config_load(test_dir(), &again));
    CHECK_MEM(&again.net, &c.net, sizeof c.net);
    CHECK_MEM(again.layer, c.layer, 3);
    CHECK(again.turned == 128 && again.rope.theta == 123.5 && again.attention_gate);
}

TEST(what_is_not_built_of_delta_nets_is_refused_by_name)
{
    static const struct {
        const char *type, *members, *part;
        int rc;
    } cases[] = {
        { "qwen3_5_text", ", \"attn_output_gate\": false", "'attn_output_gate'",
          ARES_EUNSUPPORTED },
        { "qwen3_5_text", ", \"mamba_ssm_dtype\": \"bfloat16\"", "'mamba_ssm_dtype'",
          ARES_EUNSUPPORTED },
        { "qwen3_5_text", ", \"linear_num_value_heads\": 24",
          "linear_num_value_heads = 24 is not a multiple of linear_num_key_heads = 16",
          ARES_EFORMAT },
        { "qwen3_5_text", ", \"linear_conv_kernel_dim\": 17", "'linear_conv_kernel_dim' = 17",
          ARES_EFORMAT },
        { "qwen3_5_text", ", \"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]",
          "choices: full_attention, linear_attention", ARES_EUNSUPPORTED },
        { "qwen3_5_text", ", \"layer_types\": [\"full_attention\"]", "has 1 entries for 32 layers",
          ARES_EFORMAT },
        { "qwen3_5_text", ", \"head_dim\": 10", "turns 2 of", ARES_OK },
        { "qwen3_5_text", ", \"head_dim\": 6", "turns 1 of a head's 6 numbers", ARES_EFORMAT },
        { "qwen3_5_moe", "", "qwen3_5_moe", ARES_EUNSUPPORTED },
        { "qwen3_next", "", "qwen3_next", ARES_EUNSUPPORTED },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_model_config c;
        int rc = read_of(cases[i].type, cases[i].members, &c);
        if (cases[i].rc == ARES_OK) CHECK_OK(rc);
        else CHECK_FAIL(rc, cases[i].rc, cases[i].part);
    }

    ares_device d;
    ares_model *m;
    ares_model_options opt = { .storage = ARES_F32 };
    if (ares_device_open_table("cpu", "aten", ARES_BF16, 1, &d) == ARES_OK) {
        CHECK_FAIL(ares_model_load(golden("qwen3_5_types"), &d, &opt, &m), ARES_EUNSUPPORTED,
                   "trainer.kernels=native");
        ares_device_close(&d);
    }
    ares_device_open_counting("cuda", "native", ARES_BF16, 1e9, &d);
    CHECK_FAIL(ares_model_load(golden("qwen3_5_types"), &d, &opt, &m), ARES_EUNSUPPORTED,
               "trainer.device=cpu");
    ares_device_close(&d);
}

/* Seen to fail: with A_log written in the type of the matrices, and without the tower's tensors. */
TEST(a_saved_model_has_every_tensor_of_the_one_it_was_read_from_byte_for_byte)
{
    static const char *const variants[] = { "qwen3_5_wrapped", "qwen3_5_types",
                                            "qwen3_5_interval" };
    for (int i = 0; i < ARES_COUNT(variants); i++) {
        ares_device d;
        ares_model *m;
        ares_model_config c;
        ares_safetensors *before, *after;
        ares_str path = { 0 }, config[2] = { { 0 }, { 0 } };
        REQUIRE_OK(ares_model_config_load(golden(variants[i]), &c));
        ares_model_options opt = { .storage = c.file_dtype };
        REQUIRE_OK(ares_device_open("cpu", 1, &d));
        REQUIRE_OK(ares_model_load(golden(variants[i]), &d, &opt, &m));
        REQUIRE_OK(ares_model_save(m, test_file(variants[i]), NULL, NULL));
        ares_model_free(m);
        ares_device_close(&d);
        REQUIRE_OK(ares_safetensors_open(golden(variants[i]), &before));
        REQUIRE_OK(ares_safetensors_open(test_file(variants[i]), &after));
        CHECK_EQ(ares_safetensors_count(after), ares_safetensors_count(before));
        for (int64_t k = 0; k < ares_safetensors_count(before); k++) {
            const ares_tensor_info *x = ares_safetensors_at(before, k),
                                   *y = ares_safetensors_find(after, x->name);
            if (!CHECK_MSG(y != NULL, "%s: %s is gone", variants[i], x->name)) continue;
            CHECK_STR(y->dtype_name, x->dtype_name);
            CHECK_EQ(y->rank, x->rank);
            CHECK_MEM(y->shape, x->shape, sizeof x->shape[0] * (size_t)x->rank);
            CHECK_EQ(y->bytes, x->bytes);
            CHECK_MEM(y->data, x->data, (size_t)x->bytes);
        }
        ares_safetensors_close(before);
        ares_safetensors_close(after);
        CHECK_OK(
            ares_file_read(ares_path_join(&path, golden(variants[i]), "config.json"), &config[0]));
        CHECK_OK(ares_file_read(ares_path_join(&path, test_file(variants[i]), "config.json"),
                                &config[1]));
        CHECK_STR(config[1].data, config[0].data);
        ares_str_fini(&path), ares_str_fini(&config[0]), ares_str_fini(&config[1]);
    }
}

/*
 * Gradients of three sequences, in one pass or in one each. dead: no derivative reaches the first
 * one, nor the end of the last; skip: such rows are left out.
 */
static void gradients(ares_model *m, ares_keep keep, bool apart, bool dead, bool skip, float **out,
                      int64_t *count)
{
    enum { ROWS = 3, LONG = 70 };
    static const int32_t lengths[ROWS] = { LONG, 3, 67 };
    int32_t ids[ROWS * LONG], positions[ROWS * LONG], start[ROWS + 1] = { 0 };
    ares_device *d = m->device;
    ares_workspace *w;
    ares_packed p[ROWS];
    int32_t starts[ROWS][ROWS + 1];
    void *hidden[ROWS];
    const void *d_hidden[ROWS];
    int32_t out_rows[ROWS * LONG];
    for (int s = 0; s < ROWS; s++) {
        start[s + 1] = start[s] + lengths[s];
        for (int32_t t = 0; t < lengths[s]; t++) {
            ids[start[s] + t] = (7 * t + 31 * s) % 250;
            positions[start[s] + t] = t;
        }
    }
    int32_t rows = start[ROWS], width = m->cfg.hidden;
    float *by = ares_malloc((size_t)(rows * width) * sizeof *by);
    ares_rng_key key = ares_rng_root(3, ARES_RNG_TEST);
    for (int32_t i = 0; i < rows * width; i++) by[i] = (float)ares_rng_normal(key, (uint64_t)i);
    for (int32_t i = 0; i < rows * width && dead; i++)
        if (i / width < start[1] || i / width >= start[ROWS] - 1) by[i] = 0;
    int n = apart ? ROWS : 1;
    for (int k = 0; k < n; k++) {
        int32_t first = apart ? start[k] : 0, segments = apart ? 1 : ROWS,
                has = apart ? lengths[k] : rows;
        for (int s = 0; s <= segments; s++) starts[k][s] = start[k + s] - first;
        for (int32_t r = 0; r < has; r++) out_rows[first + r] = r;
        p[k] = (ares_packed){ .rows = has,
                              .ids = ids + first,
                              .positions = positions + first,
                              .seg = { .n = segments, .rows = has, .start = starts[k] },
                              .n_out = has,
                              .out_rows = out_rows + first };
        d_hidden[k] = by + (int64_t)first * width;
    }
    CHECK_OK(ares_workspace_new(m, keep, &w));
    ares_workspace_skip_zero(w, skip);
    CHECK_OK(ares_params_zero_grad(&m->params));
    CHECK_OK(ares_model_forward_round(m, w, p, n, true, hidden));
    CHECK_OK(ares_model_backward_round(m, w, p, n, d_hidden));
    CHECK_OK(d->k->sync(d));
    *count = 0;
    for (int i = 0; i < m->params.n_regions; i++) *count += m->params.regions[i].elements;
    *out = ares_malloc((size_t)*count * sizeof **out);
    int64_t at = 0;
    for (int i = 0; i < m->params.n_regions; i++) {
        size_t bytes = (size_t)m->params.regions[i].elements * sizeof(float);
        memcpy(*out + at, m->params.regions[i].grad, bytes);
        at += m->params.regions[i].elements;
    }
    ares_workspace_free(w);
    ares_free(by);
}

TEST(no_cut_of_a_batch_no_recomputing_and_no_thread_changes_a_bit_of_a_gradient)
{
    static const struct {
        ares_keep keep;
        bool apart;
        int threads;
    } ways[] = { { ARES_KEEP_ALL, false, 1 },
                 { ARES_KEEP_INPUTS, false, 2 },
                 { ARES_KEEP_ALL, true, 5 },
                 { ARES_KEEP_INPUTS, true, 1 } };
    float *want = NULL;
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        ares_device d;
        ares_model *m;
        float *got;
        int64_t n;
        ares_model_options opt = { .storage = ARES_F32, .trainable = true };
        REQUIRE_OK(ares_device_open("cpu", ways[i].threads, &d));
        REQUIRE_OK(ares_model_load(golden("qwen3_5_interval"), &d, &opt, &m));
        gradients(m, ways[i].keep, ways[i].apart, false, false, &got, &n);
        if (want) CHECK_MEM(got, want, (size_t)n * sizeof *got);
        if (want) ares_free(got);
        else want = got;
        ares_model_free(m);
        ares_device_close(&d);
    }
    ares_free(want);
}

/* The rows that are left move to others' places, and the states that they go back from do not. */
TEST(rows_without_a_derivative_are_left_out_and_change_no_bit)
{
    /* seen to fail: with states looked for where the rows have moved to */
    float *want = NULL;
    ares_device d;
    ares_model *m;
    ares_model_options opt = { .storage = ARES_F32, .trainable = true };
    REQUIRE_OK(ares_device_open("cpu", 2, &d));
    REQUIRE_OK(ares_model_load(golden("qwen3_5_interval"), &d, &opt, &m));
    for (int way = 0; way < 4; way++) {
        float *got;
        int64_t n;
        gradients(m, way == 2 ? ARES_KEEP_INPUTS : ARES_KEEP_ALL, way == 3, true, way > 0, &got,
                  &n);
        if (want) CHECK_MEM(got, want, (size_t)n * sizeof *got);
        if (want) ares_free(got);
        else want = got;
    }
    ares_free(want);
    ares_model_free(m);
    ares_device_close(&d);
}
