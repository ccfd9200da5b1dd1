/* Options of adapters as PEFT's keys, and the layers that they choose. */
#include "adapter.h"
#include "ares/config.h"
#include "ares/io.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The options in `text`, YAML; they live as long as the configuration. */
static ares_config *options_of(const char *text, ares_lora_options *o)
{
    ares_config *cfg = ares_config_new();
    ares_config_add_options(cfg, "lora", ares_lora_option_table, o);
    ares_config_load_text(cfg, "a.yaml", ares_view_of(text));
    ares_config_resolve(cfg);
    CHECK_OK(ares_config_finish(cfg));
    return cfg;
}

TEST(options_of_adapters_are_written_in_the_keys_of_peft)
{
    static const struct {
        const char *options, *config;
    } cases[] = {
        { "lora: {rank: 8}",
          "{\"r\":8,\"lora_alpha\":64.0,\"use_rslora\":false,\"target_modules\":\"all-linear\","
          "\"rank_pattern\":{},\"alpha_pattern\":{}}" },
        { "lora: {rank: 8, alpha: 4.5, use_rslora: true, target_modules: [q_proj, v_proj], "
          "exclude_modules: [lm_head], rank_pattern: {'^x.q_proj': 4, q_proj: 2}, alpha_pattern: "
          "{v_proj: 3}, layers_to_transform: [1, 0], layers_pattern: h}",
          "{\"r\":8,\"lora_alpha\":4.5,\"use_rslora\":true,\"target_modules\":[\"q_proj\","
          "\"v_proj\"],\"exclude_modules\":[\"lm_head\"],\"rank_pattern\":{\"^x.q_proj\":4,"
          "\"q_proj\":2},\"alpha_pattern\":{\"v_proj\":3},\"layers_to_transform\":[1,0],"
          "\"layers_pattern\":\"h\"}" },
        /* plain names in a text are a list; an expression stays one, whatever it holds */
        { "lora: {rank: 1, target_modules: 'q_proj, 1.mlp.up_proj,v_proj', exclude_modules: "
          "lm_head}",
          "{\"r\":1,\"lora_alpha\":64.0,\"use_rslora\":false,\"target_modules\":[\"q_proj\","
          "\"1.mlp.up_proj\",\"v_proj\"],\"exclude_modules\":[\"lm_head\"],\"rank_pattern\":{},"
          "\"alpha_pattern\":{}}" },
        { "lora: {rank: 1, target_modules: '.*\\.[12]{1,2}\\..*', exclude_modules: 'a,b|c'}",
          "{\"r\":1,\"lora_alpha\":64.0,\"use_rslora\":false,\"target_modules\":"
          "\".*\\\\.[12]{1,2}\\\\..*\",\"exclude_modules\":\"a,b|c\",\"rank_pattern\":{},"
          "\"alpha_pattern\":{}}" },
        { "lora: {rank: 1, target_modules: [All-Linear]}",
          "{\"r\":1,\"lora_alpha\":64.0,\"use_rslora\":false,\"target_modules\":\"All-Linear\","
          "\"rank_pattern\":{},\"alpha_pattern\":{}}" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_arena arena = { 0 };
        ares_lora_options o;
        ares_str text = { 0 };
        ares_config *cfg = options_of(cases[i].options, &o);
        ares_json_write(&text, lora_peft_config(&o, &arena));
        CHECK_STR(text.data, cases[i].config);
        ares_str_fini(&text);
        ares_config_free(cfg);
        ares_arena_fini(&arena);
    }
}

TEST(layers_that_options_choose_are_checked_against_the_model)
{
    static const struct {
        const char *options, *fault;
    } cases[] = {
        { "lora: {rank: 8}", NULL },
        { "lora: {rank: 8, target_modules: 'q_proj,lm_head'}", NULL },
        { "lora: {rank: 1000}", NULL }, /* a warning */
        { "lora: {rank: 8, target_modules: q_porj}",
          "m: target_modules select no linear layer; did "
          "you mean 'q_proj'?" },
        { "lora: {rank: 8, target_modules: [mlp]}", "m: target_modules: 'mlp' is no linear layer" },
        { "lora: {rank: 8, target_modules: [proj]}", /* an end, but of no part after a dot */
          "m: target_modules select no linear layer" },
        { "lora: {rank: 8, rank_pattern: {q_proj: 0}}",
          "m: rank_pattern: a rank is a whole number" },
        { "lora: {rank: 8, layers_to_transform: [0]}", "m: layers_to_transform does not go with" },
        { "lora: {rank: 65537}", "m: r: a rank is a whole number from 1 to 65536" },
        { "lora: {rank: 8, rank_pattern: {'(': 3}}", "m: rank_pattern: the expression" },
        { "lora: {rank: 8, exclude_modules: '('}", "m: exclude_modules: the expression" },
        { "lora: {rank: 8, target_modules: '('}", "m: target_modules: the expression" },
        { "lora: {rank: 8, target_modules: [q_proj], layers_to_transform: 0, layers_pattern: "
          "blocks}",
          "m: layers_pattern: no layer" },
        { "lora: {rank: 8, target_modules: [q_proj], layers_to_transform: 9}",
          "m: layers_to_transform: target_modules select nothing in these blocks" },
        { "lora: {rank: 8, target_modules: [lm_head], layers_to_transform: 0}",
          "m: layers_to_transform: target_modules select nothing in these blocks" },
        { "lora: {rank: 8, target_modules: [q_proj], exclude_modules: '.*q_proj'}",
          "m: exclude_modules: leaves none of the 2 layers" },
        { "lora: {rank: 8, alpha: 1e40}", "m: lora_alpha: 1e+40 is too large" },
        { "lora: {rank: 8, alpha: 1e300}", "m: lora_alpha: 1e+300 is too large" },
        { "lora: {rank: 8, alpha: 1e-46}", "m: lora_alpha: 1e-46 is too small" },
        { "lora: {rank: 8, alpha_pattern: {q_proj: 1e40}}", "m: alpha_pattern: 1e+40 is too" },
        { "lora: {rank: 8, alpha_pattern: {q_proj: 1e-46}}", "m: alpha_pattern: 1e-46 is too" },
        { "lora: {rank: 8, alpha_pattern: {q_proj: 0}}",
          "m: alpha_pattern: that of 'q_proj' must" },
        { "lora: {rank: 8, alpha_pattern: {q_proj: -1.5}}", "m: alpha_pattern: that of 'q_proj'" },
    };
    /* seen to fail: the alphas, with the quotient taken as it is */
    ares_model_config base;
    REQUIRE_OK(ares_model_config_load(test_source("tests/golden/lora/base_qwen2_gqa"), &base));
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_lora_options o;
        ares_config *cfg = options_of(cases[i].options, &o);
        int rc = ares_lora_check(&base, &o, &(ares_lora_side){ 0 }, "m");
        CHECK_MSG((rc != ARES_OK) == (cases[i].fault != NULL), "%s: %s", cases[i].options,
                  rc == ARES_OK ? "no fault" : ares_error_message());
        if (cases[i].fault) CHECK_CONTAINS(ares_error_message(), cases[i].fault);
        ares_error_clear();
        ares_config_free(cfg);
    }
}

/* Of the model that has a tower, what keeps the tower out is of use. */
TEST(what_takes_no_layer_is_told_once)
{
    /* seen to fail: with target_modules alone looked at, and told where the adapter is made, too */
    static const struct {
        const char *options, *told; /* NULL: nothing */
        bool sees;
    } cases[] = {
        { "lora: {rank: 2}", NULL, false },
        { "lora: {rank: 2, target_modules: [q_proj, zzz]}", "target_modules: 'zzz' matches",
          false },
        { "lora: {rank: 2, rank_pattern: {zzz: 3}}", "rank_pattern: 'zzz' decides", false },
        { "lora: {rank: 2, alpha_pattern: {zzz: 3, q_proj: 2}}", "alpha_pattern: 'zzz'", false },
        { "lora: {rank: 2, exclude_modules: zzz}", "exclude_modules: 'zzz' matches", false },
        { "lora: {rank: 2, exclude_modules: [zzz, q_proj]}", "exclude_modules: 'zzz'", false },
        { "lora: {rank: 2, exclude_modules: all-linear}", "exclude_modules: 'all-linear'", false },
        { "lora: {rank: 2, exclude_modules: '.*visual.*'}", "exclude_modules: '.*visual", false },
        { "lora: {rank: 2, exclude_modules: '.*visual.*'}", NULL, true },
        { "lora: {rank: 2, target_modules: [q_proj], layers_to_transform: [0, 99]}",
          "layers_to_transform: target_modules select nothing in block 99", false },
    };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_lora_options o;
        ares_config *cfg = options_of(cases[i].options, &o);
        ares_model *m = NULL;
        ares_adapter *a = NULL;
        ares_str log = { 0 };
        char dir[600], name[16];
        snprintf(name, sizeof name, "log%d", i);
        snprintf(dir, sizeof dir, "%s/%s", test_source("tests/golden/models"),
                 cases[i].sees ? "qwen2_vl_flat" : "qwen2_tied");
        REQUIRE_OK(ares_model_load(dir, &d, &(ares_model_options){ 0 }, &m));
        ares_log_set(ARES_LOG_WARN, 0);
        ares_log_keep(test_file(name));
        CHECK_OK(ares_lora_check(&m->cfg, &o, &(ares_lora_side){ 0 }, "m"));
        CHECK_OK(ares_adapter_new(m, dir, &(ares_adapter_options){ .lora = &o }, &a));
        ares_log_keep(NULL);
        if (ares_file_exists(test_file(name))) CHECK_OK(ares_file_read(test_file(name), &log));
        const char *at = log.len ? strstr(log.data, "warning: m: ") : NULL;
        CHECK_MSG((at != NULL) == (cases[i].told != NULL), "%s: %s", cases[i].options,
                  log.len ? log.data : "silent");
        if (at && cases[i].told) CHECK_CONTAINS(log.data, cases[i].told);
        CHECK(!at || !strstr(at + 1, "warning: "));
        ares_str_fini(&log);
        ares_adapter_free(a);
        ares_model_free(m);
        ares_config_free(cfg);
    }
    ares_device_close(&d);
}

TEST(an_adapter_of_a_file_has_layers_and_a_scale_that_is_a_number)
{
    /* seen to fail: with the quotient taken as it is; 0 and less are a file's to say */
    static const struct {
        const char *config, *fault;
    } cases[] = {
        { "{\"lora_alpha\": 1e40}", "m: lora_alpha: 1e+40 is too large" },
        { "{\"alpha_pattern\": {\"q_proj\": -1e300}}", "m: alpha_pattern: -1e+300 is too large" },
        { "{\"target_modules\": \"q_proj\"}",
          "m: target_modules select no linear layer; a text must match the whole name: write "
          "'.*q_proj' or a list" },
        { "{\"lora_alpha\": 0}", NULL },
        { "{\"lora_alpha\": 1e-46}", NULL },
        { "{\"lora_alpha\": -2}", NULL },
    };
    ares_model_config base;
    REQUIRE_OK(ares_model_config_load(test_source("tests/golden/lora/base_qwen2_gqa"), &base));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_arena arena = { 0 };
        const ares_json *config;
        lora_config lora;
        REQUIRE_OK(ares_json_parse(&arena, ares_view_of(cases[i].config), "m", &config));
        int rc = lora_select(&base, false, false, config, "m", &arena, &lora);
        CHECK_EQ(rc != ARES_OK, cases[i].fault != NULL);
        if (cases[i].fault) CHECK_CONTAINS(ares_error_message(), cases[i].fault);
        ares_error_clear();
        ares_arena_fini(&arena);
    }
}

TEST(an_adapter_beside_a_tower_is_merged_as_it_was_written)
{
    /* seen to fail: with kinds that the tower has, too: its layers have no adapter */
    static const char *const models[] = { "qwen2_5_vl_flat", "qwen2_vl_flat" }, *const target[] = {
        "model.language_model.layers.0.mlp.gate_proj", "\"gate_proj\""
    };
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    for (int i = 0; i < ARES_COUNT(models); i++) {
        ares_lora_options o;
        ares_config *cfg = options_of("lora: {rank: 2}", &o);
        ares_model *m = NULL;
        ares_adapter *a = NULL;
        ares_merge_report report;
        ares_str text = { 0 };
        char dir[600], to[600], name[64];
        snprintf(dir, sizeof dir, "%s/%s", test_source("tests/golden/models"), models[i]);
        snprintf(to, sizeof to, "%s", test_file(models[i]));
        REQUIRE_OK(ares_model_load(dir, &d, &(ares_model_options){ 0 }, &m));
        REQUIRE_OK(ares_adapter_new(m, dir, &(ares_adapter_options){ .lora = &o }, &a));
        CHECK_OK(ares_adapter_save(a, to, NULL, NULL));
        snprintf(name, sizeof name, "%s/adapter_config.json", models[i]);
        CHECK_OK(ares_file_read(test_file(name), &text));
        CHECK_CONTAINS(text.data, target[i]);
        snprintf(name, sizeof name, "merged%d", i);
        CHECK_OK(ares_adapter_merge(dir, to, test_file(name), NULL, &report));
        CHECK_EQ(report.modules, 7 * m->cfg.layers);
        ares_str_fini(&text);
        ares_adapter_free(a);
        ares_model_free(m);
        ares_config_free(cfg);
    }
    ares_device_close(&d);
}

/* Numbers for B, of which a new adapter has none; every third row stays 0. */
static void fill(ares_adapter *a, double size)
{
    for (int k = 0; k < a->n_modules; k++) {
        ares_param *b = a->module[k].b;
        if (!b) continue;
        int64_t n = (int64_t)b->weight.n * b->weight.k;
        float *rows = ares_malloc((size_t)n * sizeof *rows);
        for (int64_t i = 0; i < n; i++)
            rows[i] = i / b->weight.k % 3 == 0
                          ? 0
                          : (float)(size * ares_rng_normal(ares_rng_root(3, ARES_RNG_TEST),
                                                           (uint64_t)(k * 100000 + i)));
        CHECK_OK(model_put(&a->params, &b->weight, rows, ARES_F32));
        ares_free(rows);
    }
}

/* |s B A| over all layers, entry by entry. */
static double dense_norm(const ares_adapter *a)
{
    double sum = 0;
    for (int k = 0; k < a->n_modules; k++) {
        const ares_adapter_module *x = &a->module[k];
        if (!x->a) continue;
        int32_t in = x->a->weight.k, out = x->b->weight.n, r = x->rank;
        float *A = ares_malloc(sizeof *A * (size_t)(r * in)),
              *B = ares_malloc(sizeof *B * (size_t)(r * out));
        CHECK_OK(model_get(&a->params, &x->a->weight, A, ARES_F32));
        CHECK_OK(model_get(&a->params, &x->b->weight, B, ARES_F32));
        for (int32_t o = 0; o < out; o++)
            for (int32_t i = 0; i < in; i++) {
                double entry = 0;
                for (int32_t j = 0; j < r; j++)
                    entry += (double)B[o * r + j] * (double)A[j * in + i];
                sum += pow((double)x->scale * entry, 2);
            }
        ares_free(A);
        ares_free(B);
    }
    return sqrt(sum);
}

/* Layers of two ranks and two alphas, in all four pairs; of all blocks and of one. */
TEST(an_adapter_of_several_ranks_and_alphas_is_read_as_it_was_saved)
{
    /* seen to fail: with the alphas of layers of the usual rank left out, with alphas as whole
     * numbers, with kinds for layers of one block, and a norm by the usual scale */
    static const struct {
        const char *options;
        bool rslora;
        double alpha, own_alpha;
        int modules, rank, own_rank;
    } cases[] = {
        { "lora: {rank: 4, alpha: 6, rank_pattern: {'0.mlp.down_proj': 2, v_proj: 2}, "
          "alpha_pattern: {'.*.1.self_attn.v_proj': 2.5, 'layers.1.mlp.up_proj': 2.5}}",
          false, 6, 2.5, 14, 4, 2 },
        { "lora: {rank: 4, alpha: 0.5, use_rslora: true, target_modules: [q_proj, v_proj, "
          "up_proj], "
          "layers_to_transform: [1], rank_pattern: {v_proj: 1}, alpha_pattern: {up_proj: 3, "
          "v_proj: 3}}",
          true, 0.5, 3, 3, 4, 1 },
    };
    const char *dir = test_source("tests/golden/lora/base_qwen2_gqa");
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_lora_options o;
        ares_config *cfg = options_of(cases[i].options, &o);
        ares_model *m = NULL;
        ares_adapter *a = NULL, *b = NULL;
        char name[32];
        double norm, again;
        int modules = 0, seen[2][2] = { 0 };
        snprintf(name, sizeof name, "saved%d", i);
        REQUIRE_OK(ares_model_load(dir, &d, &(ares_model_options){ 0 }, &m));
        REQUIRE_OK(ares_adapter_new(m, dir, &(ares_adapter_options){ .lora = &o }, &a));
        fill(a, 0.1);
        CHECK_OK(ares_adapter_norm(a, &norm));
        CHECK_NEAR(norm, dense_norm(a), 1e-9 * norm);
        CHECK_OK(ares_adapter_save(a, test_file(name), NULL, NULL));
        REQUIRE_OK(ares_adapter_load(m, dir, test_file(name), &b));
        for (int k = 0; k < a->n_modules; k++) {
            const ares_adapter_module *x = &a->module[k], *y = &b->module[k];
            CHECK((x->a != NULL) == (y->a != NULL));
            if (!x->a || !y->a) continue;
            modules++;
            CHECK_EQ(y->rank, x->rank);
            CHECK(y->alpha == x->alpha && y->scale == x->scale);
            CHECK(x->scale ==
                  (float)(x->alpha / (cases[i].rslora ? sqrt((double)x->rank) : (double)x->rank)));
            bool own_rank = x->rank == cases[i].own_rank, own = x->alpha == cases[i].own_alpha;
            CHECK(own_rank || x->rank == cases[i].rank);
            CHECK(own || x->alpha == cases[i].alpha);
            seen[own_rank][own]++;
        }
        CHECK_EQ(modules, cases[i].modules);
        CHECK(seen[0][0] && seen[0][1] && seen[1][1] && (seen[1][0] || i));
        CHECK_EQ(b->params.weights_bytes, a->params.weights_bytes);
        CHECK_MEM(b->params.weights, a->params.weights, a->params.weights_bytes);
        CHECK_OK(ares_adapter_norm(b, &again));
        CHECK(again == norm);
        ares_adapter_free(b);
        ares_adapter_free(a);
        ares_model_free(m);
        ares_config_free(cfg);
    }
    ares_device_close(&d);
}

TEST(an_adapter_goes_on_only_with_the_ranks_and_scales_that_all_its_layers_have)
{
    /* seen to fail: with the first layer alone compared */
    static const struct {
        const char *options, *fault;
    } cases[] = {
        { "lora: {rank: 4, alpha: 6}", NULL },
        { "lora: {rank: 4, alpha: 6, rank_pattern: {down_proj: 4}}", NULL }, /* the same */
        { "lora: {rank: 4, alpha: 6, alpha_pattern: {'1.mlp.down_proj': 7}}", "scaled by 1.5 at" },
        { "lora: {rank: 4, alpha: 6, rank_pattern: {'1.mlp.down_proj': 3}}", "of rank 4 at" },
        { "lora: {rank: 4, alpha: 6, exclude_modules: [1.mlp.down_proj]}", "beside 14 layers" },
        { "lora: {rank: 4, alpha: 6, target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, "
          "up_proj, 0.mlp.down_proj, lm_head]}",
          "asks for 14, or for others" },
    };
    const char *dir = test_source("tests/golden/lora/base_qwen2_gqa");
    ares_device d;
    ares_model *m = NULL;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    REQUIRE_OK(ares_model_load(dir, &d, &(ares_model_options){ 0 }, &m));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_lora_options o;
        ares_config *cfg = options_of(cases[i].options, &o);
        ares_adapter *a = NULL;
        int rc = ares_adapter_new(
            m, dir, &(ares_adapter_options){ .lora = &o, .checkpoint = i ? test_file("a") : NULL },
            &a);
        if (i == 0) CHECK_OK(ares_adapter_save(a, test_file("a"), NULL, NULL));
        CHECK_EQ(rc, cases[i].fault ? ARES_ESTATE : ARES_OK);
        if (cases[i].fault) CHECK_CONTAINS(ares_error_message(), cases[i].fault);
        ares_error_clear();
        ares_adapter_free(a);
        ares_config_free(cfg);
    }
    ares_model_free(m);
    ares_device_close(&d);
}

/* A copy of a base in two files of tensors with their index, and files that are no weights. */
static void make_base(const char *dir, const char *from)
{
    static const char *const more[] = { "generation_config.json", "tokenizer_config.json",
                                        "my_config.json" };
    ares_str text = { 0 }, path = { 0 }, index = { 0 };
    ares_safetensors *s;
    ares_safetensors_writer *w[2];
    REQUIRE_OK(ares_dir_make(dir));
    REQUIRE_OK(ares_file_read(ares_path_join(&path, from, "config.json"), &text));
    REQUIRE_OK(ares_file_write(ares_path_join(&path, dir, "config.json"), text.data, text.len));
    for (int i = 0; i < ARES_COUNT(more); i++)
        REQUIRE_OK(ares_file_write(ares_path_join(&path, dir, more[i]), "{}\n", 3));
    REQUIRE_OK(ares_safetensors_open(from, &s));
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(ares_safetensors_create(
            ares_path_join(&path, dir, i ? "model-2.safetensors" : "model-1.safetensors"), &w[i]));
    ares_json_begin(&index, '{');
    ares_json_begin(ares_json_key(&index, "weight_map"), '{');
    int64_t n = ares_safetensors_count(s);
    for (int write = 0; write < 2; write++)
        for (int64_t i = 0; i < n; i++) {
            const ares_tensor_info *t = ares_safetensors_at(s, i);
            int file = 2 * i >= n;
            if (write) CHECK_OK(ares_safetensors_write(w[file], t->data, (size_t)t->bytes));
            if (write) continue;
            ares_safetensors_declare(w[file], t->name, t->dtype, t->rank, t->shape);
            ares_json_write_string(
                ares_json_key(&index, t->name),
                ares_view_of(file ? "model-2.safetensors" : "model-1.safetensors"));
        }
    ares_json_end(&index, '}');
    ares_json_end(&index, '}');
    for (int i = 0; i < 2; i++) CHECK_OK(ares_safetensors_finish(w[i]));
    CHECK_OK(ares_file_write(ares_path_join(&path, dir, "model.safetensors.index.json"), index.data,
                             index.len));
    ares_safetensors_close(s);
    ares_str_fini(&text);
    ares_str_fini(&path);
    ares_str_fini(&index);
}

static void widen(const ares_tensor_info *t, float *out)
{
    ares_matrix to = { .dtype = ARES_F32, .layout = ARES_ROWS, .n = 1, .k = (int32_t)t->count };
    to.data = out;
    ares_matrix_pack(&to, t->data, t->dtype);
}

TEST(merging_tells_what_the_files_that_it_writes_have_and_copies_all_that_is_no_weight)
{
    /* seen to fail: with the largest change before rounding, with sizes by the base's types, and
     * without generation_config.json, whose name ends in another file's */
    static const char *const types[] = { "fp32", "bf16" };
    ares_device d;
    ares_lora_options o;
    ares_config *cfg =
        options_of("lora: {rank: 2, alpha: 3, target_modules: [q_proj, lm_head]}", &o);
    ares_model *m = NULL;
    ares_adapter *a = NULL;
    char base[400], adapter[400], out[400];
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    snprintf(base, sizeof base, "%s", test_file("base"));
    snprintf(adapter, sizeof adapter, "%s", test_file("adapter"));
    make_base(base, test_source("tests/golden/lora/base_qwen2_gqa"));
    REQUIRE_OK(ares_model_load(base, &d, &(ares_model_options){ 0 }, &m));
    REQUIRE_OK(ares_adapter_new(m, base, &(ares_adapter_options){ .lora = &o }, &a));
    fill(a, 0.02);
    CHECK_OK(ares_adapter_save(a, adapter, NULL, NULL));
    for (int i = 0; i < ARES_COUNT(types); i++) {
        ares_merge_report report;
        ares_safetensors *before, *after;
        ares_str path = { 0 }, text = { 0 };
        ares_arena arena = { 0 };
        const ares_json *index;
        int64_t bytes = 0, moved = 0, numbers = 0;
        double largest = 0;
        snprintf(out, sizeof out, "%s", test_file(types[i]));
        REQUIRE_OK(ares_adapter_merge(base, adapter, out, types[i], &report));
        REQUIRE_OK(ares_safetensors_open(base, &before));
        REQUIRE_OK(ares_safetensors_open(out, &after));
        for (int64_t k = 0; k < ares_safetensors_count(after); k++) {
            const ares_tensor_info *y = ares_safetensors_at(after, k),
                                   *x = ares_safetensors_find(before, y->name);
            bytes += y->bytes;
            bool head = strcmp(y->name, "lm_head.weight") == 0; /* of a tied base */
            if (head) x = ares_safetensors_find(before, "model.embed_tokens.weight");
            if (!head && !strstr(y->name, "q_proj.weight")) continue;
            float *was = ares_malloc((size_t)x->count * 2 * sizeof *was), *is = was + x->count;
            widen(x, was);
            widen(y, is);
            numbers += x->count;
            for (int64_t j = 0; j < x->count; j++) {
                moved += was[j] != is[j];
                largest = fmax(largest, fabs((double)is[j] - (double)was[j]));
            }
            ares_free(was);
        }
        CHECK_EQ(report.modules, m->cfg.layers + 1);
        CHECK_EQ(report.numbers, numbers);
        CHECK_EQ(report.moved, moved);
        CHECK(report.largest == largest && largest > 0);
        CHECK(i || moved < numbers); /* all of fp32 are rounded to bf16 */
        REQUIRE_OK(
            ares_file_read(ares_path_join(&path, out, "model.safetensors.index.json"), &text));
        REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&text), "index", &index));
        CHECK_EQ(ares_json_get(ares_json_get(index, "metadata"), "total_size")->integer, bytes);
        CHECK_EQ(ares_json_get(index, "weight_map")->count, ares_safetensors_count(after));
        CHECK(ares_file_exists(ares_path_join(&path, out, "generation_config.json")));
        CHECK(ares_file_exists(ares_path_join(&path, out, "tokenizer_config.json")));
        CHECK(ares_file_exists(ares_path_join(&path, out, "my_config.json")));
        ares_safetensors_close(before);
        ares_safetensors_close(after);
        ares_str_fini(&path);
        ares_str_fini(&text);
        ares_arena_fini(&arena);
    }
    ares_adapter_free(a);
    ares_model_free(m);
    ares_config_free(cfg);
    ares_device_close(&d);
}

TEST(a_checkpoint_of_an_adapter_has_a_tokenizer_of_its_own_in_either_form)
{
    /* seen to fail: with tokenizer.json alone looked for */
    static const char *const files[] = { "", "tokenizer.json", "vocab.json" };
    ares_str dir = { 0 }, text = { 0 };
    char base[600], point[600], path[800];
    snprintf(base, sizeof base, "%s", test_source("tests/golden/lora/base_qwen2_gqa"));
    ares_str_addf(&text, "{\"base_model_name_or_path\": \"%s\"}", base);
    for (int i = 0; i < ARES_COUNT(files); i++) {
        char name[16];
        snprintf(name, sizeof name, "point%d", i);
        snprintf(point, sizeof point, "%s", test_file(name));
        snprintf(path, sizeof path, "%s/adapter", point);
        REQUIRE_OK(ares_dir_make(path));
        snprintf(path, sizeof path, "%s/adapter/adapter_config.json", point);
        REQUIRE_OK(ares_file_write(path, text.data, text.len));
        snprintf(path, sizeof path, "%s/adapter/%s", point, files[i]);
        if (i) REQUIRE_OK(ares_file_write(path, "{}", 2));
        CHECK_OK(ares_model_find_tokenizer(point, &dir));
        snprintf(path, sizeof path, "%s/adapter", point);
        CHECK_STR(dir.data, i ? path : base);
    }
    ares_str_fini(&dir);
    ares_str_fini(&text);
}
