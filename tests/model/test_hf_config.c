/* config.json: what is read from it, and that a saved one has the same content. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "ares/model.h"
#include "internal.h"
#include "test.h"

/* config.json of a golden model with `from` replaced by `to`, read. */
static int read_with(const char *variant, const char *from, const char *to, ares_model_config *c)
{
    char path[300];
    ares_str text = { 0 }, out = { 0 };
    (void)snprintf(path, sizeof path, "tests/golden/models/%s/config.json", variant);
    CHECK_OK(ares_file_read(test_source(path), &text));
    const char *at = strstr(text.data, from);
    if (CHECK_MSG(at, "no %s in %s", from, path)) {
        ares_str_add(&out, text.data, (size_t)(at - text.data));
        ares_str_add_z(&out, to);
        ares_str_add_z(&out, at + strlen(from));
        CHECK_OK(ares_file_write(test_file("config.json"), out.data, out.len));
    }
    ares_str_fini(&text);
    ares_str_fini(&out);
    return ares_model_config_load(test_dir(), c);
}

/*
 * The same with the first `key` of the file given another value; where the file lacks it, it is
 * added to the innermost part that it may stand in.
 */
static int read_set(const char *variant, const char *key, const char *value, ares_model_config *c)
{
    static const char *const places[] = { "\"vision_config\": {", "\"rope_parameters\": {",
                                          "\"rope_scaling\": {", "{" };
    char path[300], from[100], to[300];
    ares_str text = { 0 };
    (void)snprintf(path, sizeof path, "tests/golden/models/%s/config.json", variant);
    (void)snprintf(from, sizeof from, "\"%s\":", key);
    (void)snprintf(to, sizeof to, "\"%s\": %s, \"was_%s\":", key, value, key);
    CHECK_OK(ares_file_read(test_source(path), &text));
    for (int i = 0; i < ARES_COUNT(places) && !strstr(text.data, from); i++)
        if (strstr(text.data, places[i])) {
            (void)snprintf(from, sizeof from, "%s", places[i]);
            (void)snprintf(to, sizeof to, "%s \"%s\": %s,", places[i], key, value);
        }
    ares_str_fini(&text);
    return read_with(variant, from, to, c);
}

/* The first layer with a window; 0 where there is none at all. */
static int32_t first_that_slides(const ares_model_config *c)
{
    int32_t i = 0;
    while (c->window && i < c->layers && !(c->layer[i] & ARES_LAYER_WINDOW)) i++;
    return i;
}

static void same_config(const ares_model_config *a, const ares_model_config *b)
{
    CHECK_STR(a->model_type, b->model_type);
    CHECK_EQ(a->vocab, b->vocab);
    CHECK_EQ(a->hidden, b->hidden);
    CHECK_EQ(a->layers, b->layers);
    CHECK_EQ(a->heads, b->heads);
    CHECK_EQ(a->kv_heads, b->kv_heads);
    CHECK_EQ(a->head_dim, b->head_dim);
    CHECK_EQ(a->intermediate, b->intermediate);
    CHECK_EQ(a->max_position, b->max_position);
    CHECK_NEAR(a->rms_norm_eps, b->rms_norm_eps, 0);
    CHECK_NEAR(a->initializer_range, b->initializer_range, 0);
    CHECK_EQ(a->tied, b->tied);
    CHECK_EQ(a->qkv_bias, b->qkv_bias);
    CHECK_EQ(a->o_bias, b->o_bias);
    CHECK_EQ(a->mlp_bias, b->mlp_bias);
    CHECK_EQ(a->qk_norm, b->qk_norm);
    CHECK_EQ(a->window, b->window);
    CHECK_NEAR(a->attention_scale, b->attention_scale, 1e-7);
    CHECK_NEAR(a->embed_scale, b->embed_scale, 0);
    CHECK(a->norm_plus_one == b->norm_plus_one && a->mlp_activation == b->mlp_activation);
    CHECK(a->norm_names == b->norm_names && a->no_value_head == b->no_value_head);
    for (int32_t i = 0; i < b->layers; i++)
        CHECK_MSG(a->layer[i] == b->layer[i], "layer %d: %d, not %d", i, a->layer[i], b->layer[i]);
    CHECK_EQ(a->file_dtype, b->file_dtype);
    CHECK_EQ(a->bos, b->bos);
    CHECK_EQ(a->pad, b->pad);
    CHECK_EQ(a->n_eos, b->n_eos);
    for (int i = 0; i < b->n_eos; i++) CHECK_EQ(a->eos[i], b->eos[i]);
    CHECK_NEAR(a->rope_local.theta, b->rope_local.theta, 0);
    CHECK_EQ(a->rope_local.kind, b->rope_local.kind);
    const ares_rope_config *r = &a->rope, *s = &b->rope;
    CHECK_EQ(r->kind, s->kind);
    CHECK_NEAR(r->theta, s->theta, 0);
    CHECK_NEAR(r->factor, s->factor, 0);
    CHECK_NEAR(r->attention_factor, s->attention_factor, 0);
    CHECK_NEAR(r->low_freq_factor, s->low_freq_factor, 0);
    CHECK_NEAR(r->high_freq_factor, s->high_freq_factor, 0);
    CHECK_NEAR(r->beta_fast, s->beta_fast, 0);
    CHECK_NEAR(r->beta_slow, s->beta_slow, 0);
    CHECK_NEAR(r->mscale, s->mscale, 0);
    CHECK_NEAR(r->mscale_all_dim, s->mscale_all_dim, 0);
    CHECK_EQ(r->original_max_position, s->original_max_position);
    CHECK_EQ(r->truncate, s->truncate);
}

TEST(a_saved_config_says_what_the_loaded_one_said)
{
    static const struct {
        const char *variant, *from, *to;
    } cases[] = {
        { "qwen2_tied", "{", "{ \"eos_token_id\": 7, \"bos_token_id\": 5, \"pad_token_id\": 6," },
        { "qwen2_bf16", "{", "{ \"eos_token_id\": [3, 9, 4]," },
        { "llama_f16", "{", "{ \"initializer_range\": 0.03, \"eos_token_id\": [8]," },
        { "llama_biases", "{", "{ \"pad_token_id\": 0, \"bos_token_id\": 0," },
        { "qwen2_window", "\"sliding_window\": 8", "\"sliding_window\": 17" },
        { "qwen3_yarn", "\"factor\": 4.0", "\"factor\": 3.0" },
        { "qwen3_yarn", "\"attention_factor\": 1.25", "\"mscale\": 0.5, \"mscale_all_dim\": 0.25" },
        { "llama_llama3", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 2.0" },
        { "llama_llama3", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 6.0" },
        { "llama_linear", "{", "{" },
        { "llama_dynamic", "{", "{" },
        { "llama_yarn", "{", "{" },
        { "mistral_window", "{", "{" },
        { "mistral_null", "{", "{" },
        { "smollm3_nope", "{", "{" },
        { "olmo2_gqa", "{", "{" },
        { "olmo3_yarn", "{", "{" },
        { "gemma3_default", "{", "{" },
        { "gemma3_pattern", "\"rope_theta\": 1000000.0", "\"rope_theta\": 77" },
        { "gemma3_types", "\"sliding_window\": 7", "\"sliding_window\": null" },
        { "smollm3_default", "{",
          "{ \"no_rope_layers\": [0, 1, 0, 0, 1], \"use_sliding_window\": true, "
          "\"sliding_window\": 5," },
        { "qwen2_window", "\"max_window_layers\": 1",
          "\"layer_types\": [\"sliding_attention\", \"full_attention\"]" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_model_config c, again;
        REQUIRE_OK(read_with(cases[i].variant, cases[i].from, cases[i].to, &c));
        REQUIRE_OK(model_config_save(&c, test_dir()));
        REQUIRE_OK(ares_model_config_load(test_dir(), &again));
        same_config(&again, &c);
    }
}

TEST(a_size_of_nothing_is_refused_by_name)
{
    static const char *const keys[] = {
        "vocab_size",          "hidden_size",         "intermediate_size",      "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings"
    };
    for (int i = 0; i < ARES_COUNT(keys); i++)
        for (int value = 0; value >= -1; value--) {
            ares_model_config c;
            char from[64], to[100], part[64];
            (void)snprintf(from, sizeof from, "\"%s\":", keys[i]);
            (void)snprintf(to, sizeof to, "\"%s\": %d, \"was_%s\":", keys[i], value, keys[i]);
            (void)snprintf(part, sizeof part, "'%s' = %d is out of range", keys[i], value);
            CHECK_FAIL(read_with("qwen2_tied", from, to, &c), ARES_EFORMAT, part);
        }
}

/* Each number at and beyond both ends of its range, and the name of its file in the message. */
TEST(each_number_has_its_range)
{
    static const struct {
        const char *variant, *key, *low, *least, *most, *high;
    } cases[] = {
        { "qwen2_tied", "rms_norm_eps", "-1", "1e-12", "1", "1.5" },
        { "qwen2_tied", "rms_norm_eps", "0", "1e-6", "1e-5", "1e300" },
        { "qwen2_tied", "rope_theta", "0", "1.001", "1e15", "1e16" },
        { "qwen2_tied", "rope_theta", "-10000", "2", "3", "1e308" },
        { "qwen2_tied", "initializer_range", "-0.1", "0", "10", "10.5" },
        { "qwen2_tied", "vocab_size", "0", "1", "16777216", "16777217" },
        { "qwen2_tied", "hidden_size", "-5", "64", "262144", "262145" },
        { "qwen2_tied", "intermediate_size", "0", "1", "4194304", "4194305" },
        { "qwen2_tied", "num_hidden_layers", "0", "1", "4096", "4097" },
        { "qwen2_tied", "max_position_embeddings", "0", "1", "16777216", "16777217" },
        { "qwen2_window", "sliding_window", "0", "1", "2147483647", "2147483648" },
        { "qwen2_tied", "bos_token_id", "-2", "-1", "2147483647", "2147483648" },
        { "qwen2_tied", "pad_token_id", "-2", "-1", "2147483647", "2147483648" },
        { "llama_linear", "factor", "0", "0.001", "1000000", "1000001" },
        { "llama_llama3", "low_freq_factor", "0", "0.001", "1", "1000001" },
        { "llama_llama3", "high_freq_factor", "0", "4", "1000000", "1000001" },
        { "qwen3_yarn", "attention_factor", "-1", "0.001", "1000", "1001" },
        { "qwen3_yarn", "beta_fast", "0", "0.001", "1000000", "1000001" },
        { "qwen3_yarn", "beta_slow", "-1", "0.001", "1000000", "1000001" },
        { "qwen3_yarn", "mscale", "-0.5", "0", "1000", "1001" },
        { "qwen3_yarn", "mscale_all_dim", "-0.5", "0", "1000", "1001" },
        { "qwen2_vl_flat", "depth", "0", "1", "64", "65" },
        { "qwen2_vl_flat", "mlp_ratio", "0", "0.25", "64", "65" },
        { "qwen2_vl_flat", "patch_size", "0", "1", "1024", "1025" },
        { "qwen2_vl_flat", "spatial_merge_size", "0", "1", "64", "65" },
        { "qwen2_vl_flat", "temporal_patch_size", "-2", "1", "64", "65" },
        { "qwen2_5_vl_mid", "tokens_per_second", "0", "0.001", "10000", "10001" },
        { "qwen2_5_vl_mid", "window_size", "0", "64", "65536", "65537" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *values[] = { cases[i].low, cases[i].least, cases[i].most, cases[i].high };
        for (int k = 0; k < 4; k++) {
            ares_model_config c;
            char part[200];
            int rc = read_set(cases[i].variant, cases[i].key, values[k], &c);
            (void)snprintf(part, sizeof part, "model: %s: ", test_file("config.json"));
            if (k == 1 || k == 2)
                CHECK_MSG(rc == ARES_OK, "%s %s = %s: %s", cases[i].variant, cases[i].key,
                          values[k], ares_error_message());
            else if (CHECK_MSG(rc == ARES_EFORMAT, "%s %s = %s is read", cases[i].variant,
                               cases[i].key, values[k])) {
                CHECK_CONTAINS(ares_error_message(), part);
                (void)snprintf(part, sizeof part, "'%s' = ", cases[i].key);
                CHECK_CONTAINS(ares_error_message(), part);
                CHECK_CONTAINS(ares_error_message(), "is out of range; expected");
            }
        }
    }
}

TEST(factors_of_frequencies_that_leave_no_room_are_refused)
{
    ares_model_config c;
    CHECK_FAIL(read_set("llama_llama3", "high_freq_factor", "1", &c), ARES_EFORMAT,
               "'high_freq_factor' = 1 is not above 'low_freq_factor' = 1");
    CHECK_FAIL(read_set("llama_linear", "factor", "null", &c), ARES_EFORMAT,
               "rope type 'linear' needs a 'factor'");
    CHECK_FAIL(read_set("qwen2_vl_flat", "num_attention_heads", "48", &c), ARES_EFORMAT,
               "head_dim = 1 is not 2, 4, 6");
}

/* A config.json of a model type and these members alone. */
static int read_bare(const char *type, const char *members, ares_model_config *c)
{
    ares_str text = { 0 };
    ares_str_addf(&text, "{\"model_type\": \"%s\"%s}", type, members);
    CHECK_OK(ares_file_write(test_file("config.json"), text.data, text.len));
    ares_str_fini(&text);
    return ares_model_config_load(test_dir(), c);
}

/* As in the configuration classes of transformers 5: Qwen2Config, Qwen3Config, LlamaConfig ... */
TEST(a_key_that_is_absent_means_what_it_means_in_transformers)
{
    static const struct {
        const char *type;
        int32_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, max_position,
            window_from, bos, eos, pad;
        float eps;
        double theta;
    } cases[] = {
        { "qwen2", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 28, -1, -1, -1, 1e-6f, 1e4 },
        { "qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 28, -1, -1, -1, 1e-6f, 1e4 },
        { "llama", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 0, 1, 2, -1, 1e-6f, 1e4 },
        { "qwen2_vl", 152064, 8192, 29568, 80, 64, 8, 128, 32768, 80, -1, -1, -1, 1e-5f, 1e6 },
        { "qwen2_5_vl", 152064, 8192, 29568, 80, 64, 8, 128, 32768, 80, -1, -1, -1, 1e-5f, 1e6 },
        { "mistral", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 0, 1, 2, -1, 1e-6f, 1e4 },
        { "smollm3", 128256, 2048, 11008, 36, 16, 4, 128, 32768, 0, 128000, 128001, 128004, 1e-6f,
          2e6 },
        { "olmo2", 50304, 4096, 11008, 32, 32, 32, 128, 2048, 0, -1, 50279, 1, 1e-5f, 1e4 },
        { "olmo3", 50304, 4096, 11008, 32, 32, 32, 128, 2048, 0, -1, 50279, 1, 1e-5f, 5e5 },
        { "gemma3_text", 262208, 2304, 9216, 26, 8, 4, 256, 131072, 0, 2, 1, 0, 1e-6f, 1e6 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *type = cases[i].type;
        bool vision = cases[i].layers == 80, qwen3 = strcmp(type, "qwen3") == 0;
        const char *tower =
            vision ? ", \"vision_config\": {\"hidden_size\": 8192, \"out_hidden_size\": 8192}" : "";
        char members[300];
        ares_model_config c;
        if (!CHECK_OK(read_bare(type, tower, &c))) continue;
        CHECK_EQ(c.vocab, cases[i].vocab);
        CHECK_EQ(c.hidden, cases[i].hidden);
        CHECK_EQ(c.intermediate, cases[i].intermediate);
        CHECK_EQ(c.layers, cases[i].layers);
        CHECK_EQ(c.heads, cases[i].heads);
        CHECK_EQ(c.kv_heads, cases[i].kv_heads);
        CHECK_EQ(c.head_dim, cases[i].head_dim);
        CHECK_EQ(c.max_position, cases[i].max_position);
        CHECK_EQ(c.bos, cases[i].bos);
        CHECK_EQ(c.n_eos ? c.eos[0] : -1, cases[i].eos);
        CHECK_EQ(c.pad, cases[i].pad);
        CHECK_NEAR(c.rms_norm_eps, cases[i].eps, 0);
        CHECK_NEAR(c.rope.theta, cases[i].theta, 0);
        CHECK_NEAR(c.initializer_range, 0.02, 0);
        bool gemma = strcmp(type, "gemma3_text") == 0, olmo = strncmp(type, "olmo", 4) == 0,
             slides = gemma || strcmp(type, "olmo3") == 0 || strcmp(type, "mistral") == 0;
        CHECK(!c.o_bias && !c.mlp_bias);
        CHECK_EQ(c.qk_norm, olmo             ? ARES_QK_NORM_ROW
                            : qwen3 || gemma ? ARES_QK_NORM_HEADS
                                             : ARES_QK_NORM_NONE);
        CHECK_EQ(c.tied, gemma || strcmp(type, "smollm3") == 0);
        CHECK_EQ(c.window, slides ? 4096 : 0);
        CHECK_EQ(c.qkv_bias, strncmp(type, "qwen2", 5) == 0);
        CHECK_EQ(c.rope.kind, ARES_ROPE_DEFAULT);
        CHECK_EQ(c.file_dtype, ARES_F32);
        (void)snprintf(members, sizeof members, ", \"use_sliding_window\": true%s", tower);
        REQUIRE_OK(read_bare(type, members, &c));
        CHECK_EQ(c.window, cases[i].window_from || slides ? 4096 : 0);
        CHECK_EQ(first_that_slides(&c), cases[i].window_from);
    }
}

TEST(a_key_that_is_absent_beside_others_means_what_it_means_in_transformers)
{
    static const struct {
        const char *type, *members;
        int32_t heads, kv_heads, head_dim, window_from;
    } cases[] = {
        { "qwen2", ", \"num_attention_heads\": 64", 64, 32, 64, 0 },
        { "qwen2", ", \"num_attention_heads\": 64, \"num_key_value_heads\": null", 64, 64, 64, 0 },
        { "qwen2", ", \"num_key_value_heads\": 4", 32, 4, 128, 0 },
        { "qwen3", ", \"hidden_size\": 2048", 32, 32, 128, 0 },
        { "llama", ", \"hidden_size\": 2048, \"num_attention_heads\": 16", 16, 16, 128, 0 },
        { "qwen2_vl", ", \"num_attention_heads\": 32, \"use_sliding_window\": true", 32, 8, 256,
          80 },
        { "qwen2_5_vl",
          ", \"text_config\": {\"num_attention_heads\": 128, \"use_sliding_window\": true}", 128, 8,
          64, 80 },
    };
    ares_model_config c;
    char members[300];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        (void)snprintf(
            members, sizeof members, "%s%s", cases[i].members,
            strchr(cases[i].type, '_')
                ? ", \"vision_config\": {\"hidden_size\": 8192, \"out_hidden_size\": 8192}"
                : "");
        if (!CHECK_OK(read_bare(cases[i].type, members, &c))) continue;
        CHECK_EQ(c.heads, cases[i].heads);
        CHECK_EQ(c.kv_heads, cases[i].kv_heads);
        CHECK_EQ(c.head_dim, cases[i].head_dim);
        CHECK_EQ(first_that_slides(&c), cases[i].window_from);
    }
    /* what stands at the top holds for a scaling that does not say it */
    REQUIRE_OK(read_bare("llama",
                         ", \"rope_theta\": 5000, \"original_max_position_embeddings\": 512, "
                         "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}",
                         &c));
    CHECK_NEAR(c.rope.theta, 5000, 0);
    CHECK_EQ(c.rope.original_max_position, 512);
    REQUIRE_OK(read_bare("llama",
                         ", \"rope_theta\": 5000, \"rope_parameters\": {\"rope_theta\": 7000, "
                         "\"rope_type\": \"linear\", \"factor\": 2}",
                         &c));
    CHECK_NEAR(c.rope.theta, 7000, 0);
    CHECK_EQ(c.rope.original_max_position, 2048);
    REQUIRE_OK(read_bare("llama", ", \"torch_dtype\": \"bfloat16\"", &c));
    CHECK_EQ(c.file_dtype, ARES_BF16);
    REQUIRE_OK(read_bare("llama", ", \"torch_dtype\": \"bfloat16\", \"dtype\": \"float16\"", &c));
    CHECK_EQ(c.file_dtype, ARES_F16);
}

TEST(types_and_end_tokens_that_cannot_be_are_refused)
{
    static const struct {
        const char *members, *message;
    } cases[] = {
        { ", \"torch_dtype\": \"int8\"", "torch_dtype = 'int8': no type of weights that is read" },
        { ", \"dtype\": \"float8_e4m3fn\"", "dtype = 'float8_e4m3fn': no type of weights" },
        { ", \"dtype\": 16", "'dtype'" },
        { ", \"eos_token_id\": 99999999", "eos_token_id = 99999999 is no token: vocab_size = " },
        { ", \"eos_token_id\": [1, 99999999]", "eos_token_id = 99999999 is no token" },
        { ", \"eos_token_id\": -1", "'eos_token_id' is not an id or a list of ids" },
        { ", \"eos_token_id\": \"</s>\"", "'eos_token_id' is not an id or a list of ids" },
        { ", \"eos_token_id\": 2.5", "'eos_token_id' is not an id or a list of ids" },
    };
    ares_model_config c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK(read_bare("llama", cases[i].members, &c) != ARES_OK);
        CHECK_CONTAINS(ares_error_message(), cases[i].message);
    }
    REQUIRE_OK(read_bare("llama", ", \"torch_dtype\": \"torch.bfloat16\", \"dtype\": null", &c));
    CHECK_EQ(c.file_dtype, ARES_BF16);
    CHECK(c.says_dtype);
    REQUIRE_OK(read_bare("llama", "", &c));
    CHECK(!c.says_dtype);
}

TEST(ids_that_end_a_sequence_are_those_of_the_file)
{
    ares_model_config c;
    REQUIRE_OK(read_with("qwen2_tied", "{", "{ \"eos_token_id\": [3, 9, 3],", &c));
    CHECK_EQ(c.n_eos, 2);
    CHECK(ares_model_ends(&c, 3) && ares_model_ends(&c, 9) && !ares_model_ends(&c, 4));
}

/* What generation_config.json adds to config.json, with each key in both, in one, and in none. */
TEST(ids_of_a_generation_config_stand_beside_those_of_the_config)
{
    static const struct {
        const char *type, *members, *generation; /* NULL: no such file */
        int32_t bos, pad, n_eos, eos[3];
    } cases[] = {
        { "qwen2", "", NULL, -1, -1, 0, { 0 } },
        { "qwen2", "", "{}", -1, -1, 0, { 0 } },
        { "qwen2", "", "{\"eos_token_id\": 7, \"pad_token_id\": 8}", -1, 8, 1, { 7 } },
        { "qwen2", ", \"eos_token_id\": 5, \"pad_token_id\": 6", "{}", -1, 6, 1, { 5 } },
        { "qwen2",
          ", \"eos_token_id\": 5, \"pad_token_id\": 6",
          "{\"eos_token_id\": null, \"pad_token_id\": null}",
          -1,
          6,
          1,
          { 5 } },
        { "qwen2",
          ", \"eos_token_id\": 5, \"pad_token_id\": 6",
          "{\"eos_token_id\": [9, 5, 7], \"pad_token_id\": 8}",
          -1,
          6,
          3,
          { 5, 9, 7 } },
        { "qwen2",
          ", \"eos_token_id\": null, \"pad_token_id\": null",
          "{\"eos_token_id\": [9], \"pad_token_id\": 0}",
          -1,
          0,
          1,
          { 9 } },
        { "qwen2", ", \"eos_token_id\": [5, 6]", "{\"eos_token_id\": []}", -1, -1, 2, { 5, 6 } },
        /* the class has an id of its own for files that say none */
        { "llama", "", "{}", 1, -1, 1, { 2 } },
        { "llama", "", "{\"eos_token_id\": 7, \"bos_token_id\": 9}", 1, -1, 1, { 7 } },
        { "llama",
          ", \"eos_token_id\": 5, \"bos_token_id\": 4",
          "{\"pad_token_id\": 3}",
          4,
          3,
          1,
          { 5 } },
    };
    ares_model_config c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const char *text = cases[i].generation, *path = test_file("generation_config.json");
        (void)unlink(path);
        if (text) REQUIRE_OK(ares_file_write(path, text, strlen(text)));
        if (!CHECK_OK(read_bare(cases[i].type, cases[i].members, &c))) continue;
        CHECK_MSG(c.n_eos == cases[i].n_eos && c.bos == cases[i].bos && c.pad == cases[i].pad,
                  "case %d: %d stop ids, bos %d, pad %d", i, c.n_eos, c.bos, c.pad);
        for (int k = 0; k < cases[i].n_eos && k < c.n_eos; k++) CHECK_EQ(c.eos[k], cases[i].eos[k]);
    }
    static const char wrong[] = "{\"eos_token_id\": \"</s>\"}";
    REQUIRE_OK(ares_file_write(test_file("generation_config.json"), wrong, sizeof wrong - 1));
    CHECK_FAIL(read_bare("qwen2", "", &c), ARES_EFORMAT, "generation_config.json: 'eos_token_id'");
}

TEST(layers_slide_as_the_list_says)
{
    static const char from[] = "\"max_window_layers\": 1";
    static const struct {
        const char *types;
        int32_t first;
    } cases[] = {
        { "\"full_attention\", \"sliding_attention\"", 1 },
        { "\"sliding_attention\", \"sliding_attention\"", 0 },
        { "\"full_attention\", \"full_attention\"", 2 },
    };
    char to[200];
    ares_model_config c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        (void)snprintf(to, sizeof to, "%s, \"layer_types\": [%s]", from, cases[i].types);
        REQUIRE_OK(read_with("qwen2_window", from, to, &c));
        CHECK_EQ(c.layers, 2);
        CHECK_EQ(c.window, 8);
        CHECK_EQ(first_that_slides(&c), cases[i].first);
    }
    (void)snprintf(to, sizeof to,
                   "%s, \"layer_types\": [\"sliding_attention\", \"full_attention\"]", from);
    REQUIRE_OK(read_with("qwen2_window", from, to, &c));
    CHECK(c.layer[0] == ARES_LAYER_WINDOW && c.layer[1] == 0);
    (void)snprintf(to, sizeof to,
                   "%s, \"layer_types\": [\"sliding_attention\", \"linear_attention\"]", from);
    CHECK_FAIL(read_with("qwen2_window", from, to, &c), ARES_EUNSUPPORTED,
               "entry 1 is 'linear_attention'");
    (void)snprintf(to, sizeof to, "%s, \"layer_types\": [\"full_attention\"]", from);
    CHECK_FAIL(read_with("qwen2_window", from, to, &c), ARES_EFORMAT,
               "'layer_types' has 1 entries for 2 layers");
    REQUIRE_OK(read_with("qwen2_window", from, "\"max_window_layers\": 0", &c));
    CHECK_EQ(first_that_slides(&c), 0);
    CHECK_FAIL(read_with("qwen2_window", from, "\"max_window_layers\": -1", &c), ARES_EFORMAT,
               "'max_window_layers' = -1 is out of range");
}

/* A letter per layer: '.', w: it has the window, n: no rope, l: the rope of its own; W, L: both */
TEST(layers_have_the_windows_and_ropes_that_transformers_gives_them)
{
    static const struct {
        const char *type, *members;
        int32_t window;
        const char *kinds;
    } cases[] = {
        { "mistral", "", 4096, "wwww" },
        { "mistral", ", \"sliding_window\": null", 0, "...." },
        { "mistral", ", \"sliding_window\": 7, \"use_sliding_window\": false", 7, "wwww" },
        { "smollm3", "", 0, "...n" },
        { "smollm3", ", \"no_rope_layer_interval\": 3", 0, "..n." },
        { "smollm3", ", \"no_rope_layers\": null", 0, "...n" },
        { "smollm3", ", \"no_rope_layers\": [0, 1, 1, 0, 1]", 0, "n..n" },
        { "smollm3", ", \"use_sliding_window\": true", 0, "...n" },
        { "smollm3", ", \"use_sliding_window\": true, \"sliding_window\": 9", 9, "...W" },
        { "smollm3", ", \"sliding_window\": 9", 0, "...n" },
        { "smollm3",
          ", \"use_sliding_window\": true, \"sliding_window\": 9, \"layer_types\": "
          "[\"sliding_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]",
          9, "w..n" },
        { "qwen3", ", \"use_sliding_window\": true, \"max_window_layers\": 3", 4096, "...w" },
        { "olmo2", ", \"sliding_window\": 7, \"use_sliding_window\": true", 0, "...." },
        { "olmo3", "", 4096, "LLL." },
        { "olmo3", ", \"sliding_window\": null", 0, "lll." },
        { "olmo3", ", \"sliding_window_pattern\": 2", 4096, "LLL." },
        { "gemma3_text", "", 4096, "LLLL" },
        { "gemma3_text", ", \"sliding_window_pattern\": 2", 4096, "L.L." },
        { "gemma3_text",
          ", \"sliding_window_pattern\": 2, \"sliding_window\": 3, \"layer_types\": "
          "[\"full_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]",
          3, "..L." },
    };
    static const char letters[] = ".wnWlL";
    ares_model_config c;
    char members[300];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char kinds[5] = { 0 };
        (void)snprintf(members, sizeof members, ", \"num_hidden_layers\": 4%s", cases[i].members);
        if (!CHECK_OK(read_bare(cases[i].type, members, &c))) continue;
        for (int k = 0; k < 4; k++) kinds[k] = letters[c.layer[k]];
        CHECK_EQ(c.window, cases[i].window);
        CHECK_MSG(strcmp(kinds, cases[i].kinds) == 0, "%s%s: %s, not %s", cases[i].type,
                  cases[i].members, kinds, cases[i].kinds);
    }
    CHECK_FAIL(read_bare("olmo3", ", \"num_hidden_layers\": 1, \"layer_types\": [\"mamba\"]", &c),
               ARES_EUNSUPPORTED, "'layer_types': entry 0 is 'mamba'");
    CHECK_FAIL(read_bare("gemma3_text", ", \"layer_types\": [\"full_attention\"]", &c),
               ARES_EFORMAT, "'layer_types' has 1 entries for 26 layers");
    CHECK_FAIL(read_bare("smollm3", ", \"no_rope_layers\": [1, 0]", &c), ARES_EFORMAT,
               "'no_rope_layers' has 2 entries for 36 layers");
    CHECK_FAIL(read_bare("smollm3", ", \"num_hidden_layers\": 1, \"no_rope_layers\": [\"x\"]", &c),
               ARES_EFORMAT, "'no_rope_layers' is not a list of 0 and 1");
    CHECK_FAIL(read_bare("smollm3", ", \"no_rope_layers\": 3", &c), ARES_EFORMAT,
               "'no_rope_layers' is not a list");
}

TEST(layers_that_slide_have_the_rope_that_transformers_gives_them)
{
    static const struct {
        const char *type, *members;
        double full, local;
        ares_rope_kind kind, local_kind;
    } cases[] = {
        { "gemma3_text", "", 1e6, 1e4, ARES_ROPE_DEFAULT, ARES_ROPE_DEFAULT },
        { "gemma3_text",
          ", \"rope_theta\": 5000, \"rope_local_base_freq\": 70, \"rope_scaling\": {\"rope_type\": "
          "\"linear\", \"factor\": 8}",
          5000, 70, ARES_ROPE_LINEAR, ARES_ROPE_DEFAULT },
        { "gemma3_text",
          ", \"rope_parameters\": {\"full_attention\": null, \"sliding_attention\": "
          "{\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 30}}",
          1e6, 30, ARES_ROPE_DEFAULT, ARES_ROPE_LINEAR },
        { "olmo3", "", 5e5, 5e5, ARES_ROPE_DEFAULT, ARES_ROPE_DEFAULT },
        { "olmo3", ", \"rope_theta\": 300", 300, 5e5, ARES_ROPE_DEFAULT, ARES_ROPE_DEFAULT },
        { "olmo3",
          ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 90, \"rope_type\": "
          "\"yarn\", \"factor\": 8}}",
          90, 5e5, ARES_ROPE_YARN, ARES_ROPE_DEFAULT },
    };
    ares_model_config c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        if (!CHECK_OK(read_bare(cases[i].type, cases[i].members, &c))) continue;
        CHECK_NEAR(c.rope.theta, cases[i].full, 0);
        CHECK_NEAR(c.rope_local.theta, cases[i].local, 0);
        CHECK_EQ(c.rope.kind, cases[i].kind);
        CHECK_EQ(c.rope_local.kind, cases[i].local_kind);
    }
    CHECK_FAIL(read_bare("gemma3_text", ", \"rope_parameters\": {\"rope_theta\": 5}", &c),
               ARES_EUNSUPPORTED,
               "'rope_parameters' has 'rope_theta': a gemma3_text has an object");
    CHECK_FAIL(read_bare("olmo3",
                         ", \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 5}}, "
                         "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}",
                         &c),
               ARES_EUNSUPPORTED, "rope_scaling stands beside rope_parameters");
    CHECK_FAIL(read_bare("olmo3",
                         ", \"rope_parameters\": {\"sliding_attention\": "
                         "{\"partial_rotary_factor\": 0.5}}",
                         &c),
               ARES_EUNSUPPORTED, "partial_rotary_factor");
}

TEST(what_an_architecture_has_and_is_not_built_is_refused_by_its_key)
{
    static const struct {
        const char *type, *members, *part;
    } cases[] = {
        { "gemma3_text", "\"hidden_activation\": \"gelu\"",
          "hidden_activation = 'gelu' is not supported (choices: gelu_pytorch_tanh)" },
        { "gemma3_text", "\"attn_logit_softcapping\": 50.0", "'attn_logit_softcapping' is set" },
        { "gemma3_text", "\"final_logit_softcapping\": 30.0", "'final_logit_softcapping' is set" },
        { "gemma3_text", "\"use_bidirectional_attention\": true",
          "'use_bidirectional_attention' is set" },
        { "olmo2", "\"hidden_act\": \"gelu\"", "hidden_act = 'gelu'" },
        { "gemma3", "\"text_config\": {}", "a directory of model_type gemma3_text" },
        { "gemma2", "\"hidden_size\": 8", "model_type = 'gemma2': this architecture is not built" },
        { "mistral3", "\"hidden_size\": 8", "this architecture is not built" },
    };
    ares_model_config c;
    char members[200];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        (void)snprintf(members, sizeof members, ", %s", cases[i].members);
        CHECK_FAIL(read_bare(cases[i].type, members, &c), ARES_EUNSUPPORTED, cases[i].part);
    }
    /* what means nothing here, and what says no */
    CHECK_OK(read_bare("gemma3_text",
                       ", \"hidden_act\": \"gelu\", \"use_bidirectional_attention\": false, "
                       "\"final_logit_softcapping\": null",
                       &c));
    CHECK_OK(read_bare("llama", ", \"final_logit_softcapping\": 30.0", &c));
    CHECK_NEAR(c.attention_scale, 0, 0);
    CHECK_OK(read_bare("gemma3_text", ", \"query_pre_attn_scalar\": 64, \"hidden_size\": 640", &c));
    CHECK_NEAR(c.attention_scale, 0.125, 0);
    CHECK_NEAR(c.embed_scale, sqrtf(640), 0);
    CHECK_EQ(c.head_dim, 256);
}

TEST(the_length_that_a_rope_was_made_for_has_its_bounds)
{
    static const struct {
        const char *value;
        int32_t want;
    } cases[] = {
        { "1", 1 }, { "2147483647", INT32_MAX }, { "0", 128 }, { "2147483648", -1 }, { "-1", -1 }
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_model_config c;
        char to[100];
        (void)snprintf(to, sizeof to, "\"original_max_position_embeddings\": %s", cases[i].value);
        int rc = read_with("llama_llama3", "\"original_max_position_embeddings\": 16", to, &c);
        if (cases[i].want < 0)
            CHECK_FAIL(rc, ARES_EFORMAT, "'original_max_position_embeddings' = ");
        else if (CHECK_OK(rc)) CHECK_EQ(c.rope.original_max_position, cases[i].want);
    }
}

TEST(a_vision_model_is_read_from_all_layouts)
{
    static const struct {
        const char *variant;
        int32_t width, heads, intermediate, patch, image, section;
        double theta, eps;
        bool tied;
        uint64_t full;
    } cases[] = {
        { "qwen2_vl_flat", 24, 2, 72, 14, 294, 2, 1e6, 1e-6, false, 0 },
        { "qwen2_vl_nested", 16, 2, 64, 10, 290, 4, 1e5, 1e-5, true, 0 },
        { "qwen2_5_vl_flat", 24, 2, 44, 14, 291, 2, 1e6, 1e-6, true, 10 },
        { "qwen2_5_vl_mid", 24, 3, 40, 8, 292, 1, 1e4, 1e-6, false, 8 },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_model_config c;
        REQUIRE_OK(read_with(cases[i].variant, "{", "{", &c));
        CHECK_EQ(c.vision.width, cases[i].width);
        CHECK_EQ(c.vision.heads, cases[i].heads);
        CHECK_EQ(c.vision.intermediate, cases[i].intermediate);
        CHECK_EQ(c.vision.patch, cases[i].patch);
        CHECK_EQ(c.vision.image_token, cases[i].image);
        CHECK_EQ(c.vision.full_blocks, cases[i].full);
        CHECK_EQ(c.vision.channels, 3);
        CHECK_EQ(c.rope.section[0], cases[i].section);
        CHECK_EQ((c.rope.section[0] + c.rope.section[1] + c.rope.section[2]) * 2, c.head_dim);
        CHECK_NEAR(c.rope.theta, cases[i].theta, 0);
        CHECK_NEAR(c.rms_norm_eps, (float)cases[i].eps, 0);
        CHECK_EQ(c.tied, cases[i].tied);
        CHECK_EQ(c.file_dtype, ARES_F32);
    }
}

TEST(a_key_that_is_absent_from_a_vision_config_has_its_published_value)
{
    ares_model_config c;
    REQUIRE_OK(
        read_with("qwen2_5_vl_mid", "\"fullatt_block_indexes\"", "\"was_block_indexes\"", &c));
    CHECK_EQ(c.vision.full_blocks, 1u << 7 | 1u << 15 | 1u << 23 | 1u << 31);
    REQUIRE_OK(read_with("qwen2_5_vl_mid", "\"window_size\"", "\"was_size\"", &c));
    CHECK_EQ(c.vision.window, 112);
    CHECK_EQ(c.vision.full_blocks, 8);
    CHECK_NEAR(c.vision.tokens_per_second, 4, 0); /* these files do not name it */
}

/* The same files with one thing changed. */
TEST(a_vision_config_that_does_not_fit_is_refused_by_name)
{
    static const struct {
        const char *variant, *from, *to, *part;
    } cases[] = {
        { "qwen2_vl_flat", "\"vision_config\": {", "\"vision_config\": 3, \"was\": {",
          "'vision_config' is not an object" },
        { "qwen2_vl_flat", "\"hidden_size\": 48,\n    \"in_chans\"",
          "\"hidden_size\": 40,\n    \"in_chans\"", "features have 40 numbers" },
        { "qwen2_vl_flat", "\"num_heads\": 2", "\"num_heads\": 4", "multiple of 4" },
        { "qwen2_vl_flat", "\"depth\": 3", "\"depth\": 65",
          "'depth' = 65 is out of range; expected 1 to 64" },
        { "qwen2_vl_flat", "\"mlp_ratio\": 3", "\"hidden_act\": \"relu\"", "choices: quick_gelu" },
        { "qwen2_vl_flat", "\"mlp_ratio\": 3", "\"mlp_ratio\": -1", "'mlp_ratio'" },
        { "qwen2_vl_flat", "\"image_token_id\": 294", "\"image_token_id\": 291", "both 291" },
        { "qwen2_vl_flat", "\"image_token_id\": 294", "\"was_id\": 294",
          "'image_token_id' = 151655 lies outside" },
        { "qwen2_vl_flat", "\"mrope_section\": [\n      2", "\"mrope_section\": [\n      1",
          "'mrope_section'" },
        { "qwen2_5_vl_mid", "\"fullatt_block_indexes\": [", "\"fullatt_block_indexes\": [-1, ",
          "'fullatt_block_indexes'" },
        { "qwen2_5_vl_mid", "\"window_size\": 64", "\"window_size\": 15", "window_size = 15" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_model_config c;
        int rc = read_with(cases[i].variant, cases[i].from, cases[i].to, &c);
        CHECK_MSG(rc != ARES_OK && strstr(ares_error_message(), cases[i].part), "case %d: %s", i,
                  rc == ARES_OK ? "it is read" : ares_error_message());
    }
}

/* convert_rope_params_to_dict of transformers 5: rope_scaling, where it says anything, is all. */
TEST(of_two_dialects_of_rope_the_older_replaces_the_newer)
{
    static const struct {
        const char *members;
        ares_rope_kind kind;
        double theta;
        int32_t original;
    } cases[] = {
#define YARN                                                      \
    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, " \
    "\"original_max_position_embeddings\": 512}"
#define NEWER ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 7000}"
        { ", " YARN, ARES_ROPE_YARN, 10000, 512 },
        { NEWER ", " YARN, ARES_ROPE_YARN, 10000, 512 },
        { NEWER ", \"rope_theta\": 5000, " YARN, ARES_ROPE_YARN, 5000, 512 },
        { NEWER ", \"rope_scaling\": {}", ARES_ROPE_DEFAULT, 7000, 2048 },
        { NEWER ", \"rope_scaling\": null", ARES_ROPE_DEFAULT, 7000, 2048 },
        { NEWER ", \"rope_theta\": 5000", ARES_ROPE_DEFAULT, 7000, 2048 },
        { ", \"original_max_position_embeddings\": 1024, " YARN, ARES_ROPE_YARN, 10000, 1024 },
    };
    ares_model_config c;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        if (!CHECK_OK(read_bare("llama", cases[i].members, &c))) continue;
        CHECK_EQ(c.rope.kind, cases[i].kind);
        CHECK_NEAR(c.rope.theta, cases[i].theta, 0);
        CHECK_EQ(c.rope.original_max_position, cases[i].original);
    }
    CHECK_FAIL(read_bare("llama", ", \"partial_rotary_factor\": 0.5", &c), ARES_EUNSUPPORTED,
               "partial_rotary_factor");
    CHECK_FAIL(
        read_bare("qwen2",
                  ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}", &c),
        ARES_EUNSUPPORTED, "'full_attention'");
}

TEST(null_is_not_a_key_that_is_missing)
{
    static const struct {
        const char *type, *key;
    } refused[] = {
        { "qwen2", "vocab_size" }, { "llama", "rms_norm_eps" },
        { "qwen2", "hidden_act" }, { "qwen2", "max_window_layers" },
        { "qwen3", "head_dim" },   { "llama", "attention_bias" },
        { "qwen3", "rope_theta" }, { "llama", "tie_word_embeddings" },
    };
    char members[100];
    ares_model_config c;
    for (int i = 0; i < ARES_COUNT(refused); i++) {
        (void)snprintf(members, sizeof members, ", \"%s\": null", refused[i].key);
        CHECK_FAIL(read_bare(refused[i].type, members, &c), ARES_EFORMAT, refused[i].key);
    }
    REQUIRE_OK(read_bare("llama", "", &c)); /* missing: 1 and 2 */
    CHECK(c.bos == 1 && c.n_eos == 1 && c.eos[0] == 2);
    REQUIRE_OK(read_bare("llama", ", \"bos_token_id\": null, \"eos_token_id\": null", &c));
    CHECK(c.bos == -1 && c.n_eos == 0);
    REQUIRE_OK(read_bare("llama", ", \"head_dim\": null", &c));
    CHECK_EQ(c.head_dim, 128);
    REQUIRE_OK(read_bare("qwen2", ", \"use_sliding_window\": true, \"sliding_window\": null", &c));
    CHECK_EQ(c.window, 0);
}

TEST(the_tokenizers_end_token_is_the_first_of_all)
{
    ares_model_config c;
    REQUIRE_OK(read_bare("llama", ", \"eos_token_id\": [5, 6, 7]", &c));
    CHECK_OK(ares_model_add_eos(&c, -1, "m"));
    CHECK_OK(ares_model_add_eos(&c, c.vocab, "m")); /* beyond the head: never sampled */
    CHECK(c.n_eos == 3 && c.eos[0] == 5);
    CHECK_OK(ares_model_add_eos(&c, 7, "m"));
    CHECK(c.n_eos == 3 && c.eos[0] == 7 && c.eos[1] == 5 && c.eos[2] == 6);
    CHECK_OK(ares_model_add_eos(&c, 9, "m"));
    CHECK(c.n_eos == 4 && c.eos[0] == 9 && c.eos[1] == 7 && ares_model_ends(&c, 6));
    for (int i = 20; c.n_eos < ARES_MAX_EOS; i++) CHECK_OK(ares_model_add_eos(&c, i, "m"));
    CHECK_FAIL(ares_model_add_eos(&c, 99, "m"), ARES_ELIMIT, "model: m");
}
