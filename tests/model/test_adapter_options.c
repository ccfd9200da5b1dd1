/* Options of adapters as PEFT's keys, and the layers that they choose. */
#include "adapter.h"
#include "ares/config.h"
#include "test.h"

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
