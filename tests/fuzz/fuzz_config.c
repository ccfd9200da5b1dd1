/*
 * libFuzzer entry for the configuration: YAML, then a line "%%", then an override per line. Checks,
 * besides that nothing crashes: faults are reported; a configuration without faults is printed and
 * reads back as the same configuration.
 *
 * Built and run by hand:
 *
 *   cmake --preset fuzz && cmake --build build-fuzz --target fuzz_config
 *   build-fuzz/fuzz_config tests/fuzz/corpus/config
 */
#include "ares/config.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_OPTIONS(X)                                                            \
    X(text, name, "trainer.name", "demo", "", "a text")                            \
    X(text, path, "trainer.path", "runs/${trainer.name}", "?nonempty",             \
      "a text with a default made of another")                                     \
    X(texts, logger, "trainer.logger", "[console, file]", "", "a list")            \
    X(i64, n, "worker.rollout.n", "1", "[1,)", "an integer")                       \
    X(i64, steps, "worker.rollout.steps", "null", "-1|[1,)", "an integer or null") \
    X(f64, lr, "worker.optim.lr", "1e-6", "[0,1)", "a number")                     \
    X(f64s, betas, "worker.optim.betas", "[0.9, 0.999]", "[0,1)#2", "two numbers") \
    X(i64s, ids, "worker.ids", "[]", "", "integers")                               \
    X(flag, shuffle, "data.shuffle", "true", "", "a flag")                         \
    X(choice, kind, "data.kind", "a", "?a=alpha|b|none", "a choice")               \
    X(tree, kwargs, "env.kwargs", "{}", "map", "an open map")                      \
    X(tree, rewards, "env.rewards", "[]", "list", "entries of a table")            \
    X(tree, any, "env.any", "null", "", "anything")
ARES_OPTION_STRUCT(fuzz_options, FUZZ_OPTIONS);
static ares_option_table fuzz_table;
static ARES_OPTION_TABLE(fuzz_table, fuzz_options, FUZZ_OPTIONS);

#define FUZZ_REWARD(X)                                        \
    X(text, name, "name", "???", "nonempty", "of the reward") \
    X(f64, weight, "weight", "1", "", "of the reward")        \
    X(i64, deep, "a.b", "${worker.rollout.n}", "", "an option in a section")
ARES_OPTION_STRUCT(fuzz_reward, FUZZ_REWARD);
static ares_option_table fuzz_reward_table;
static ARES_OPTION_TABLE(fuzz_reward_table, fuzz_reward, FUZZ_REWARD);

static const ares_config_alias fuzz_aliases[] = {
    { "old.rollout.*", "worker.rollout.*", NULL, NULL },
    { "old.rollout.num", "worker.rollout.n", NULL, NULL },
    { "old.loop.*", "old.loop.*", NULL, NULL },
    { "old.gone.*", "", NULL, "no such engine" },
    { "both", "worker.rollout.n&worker.rollout.steps", NULL, NULL },
    { "old.bad", NULL, NULL, "write env.any" },
    { "beta", "worker.optim.lr", "data.kind=b", "only with kind b" },
};

static ares_config *fuzz_config_new(fuzz_options *o)
{
    ares_config *cfg = ares_config_new();
    ares_config_add_options(cfg, "", fuzz_table, o);
    ares_config_add_aliases(cfg, fuzz_aliases, ARES_COUNT(fuzz_aliases));
    return cfg;
}

static int fuzz_finish(ares_config *cfg, const fuzz_options *o)
{
    ares_config_resolve(cfg);
    for (int64_t i = 0; i < o->rewards->count && i < 4; i++) {
        char path[64];
        fuzz_reward reward;
        snprintf(path, sizeof path, "env.rewards.%d", (int)i);
        ares_config_bind(cfg, path, fuzz_reward_table, &reward);
    }
    int rc = ares_config_finish(cfg);
    ARES_ASSERT((rc == ARES_OK) == (ares_config_fault_count(cfg) == 0));
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_view all = { (const char *)data, size };
    int64_t cut = ares_view_find(all, ARES_VIEW("%%\n"), 0);
    size_t yaml = cut < 0 ? size : (size_t)cut;
    fuzz_options o, again;
    ares_config *cfg = fuzz_config_new(&o);
    ares_config_load_text(cfg, "a.yaml", (ares_view){ all.data, yaml });
    for (size_t at = yaml + 3; cut >= 0 && at < size;) {
        int64_t end = ares_view_find(all, ARES_VIEW("\n"), at);
        size_t stop = end < 0 ? size : (size_t)end;
        char *word = ares_calloc(stop - at + 1, 1);
        memcpy(word, all.data + at, stop - at);
        if (*word) ares_config_override(cfg, word);
        ares_free(word);
        at = stop + 1;
    }
    if (fuzz_finish(cfg, &o) == ARES_OK) {
        ares_str once = { 0 }, twice = { 0 };
        ares_config_print(cfg, &once);
        ares_config *copy = fuzz_config_new(&again);
        ares_config_load_text(copy, "printed.yaml", ares_str_view(&once));
        if (fuzz_finish(copy, &again) != ARES_OK) {
            fprintf(stderr, "%s\n%s", ares_error_message(), once.data);
            ARES_ASSERT(false && "the print reads back");
        }
        ares_config_print(copy, &twice);
        ARES_ASSERT(ares_view_eq(ares_str_view(&once), ares_str_view(&twice)));
        ares_config_free(copy);
        ares_str_fini(&once);
        ares_str_fini(&twice);
    } else ARES_ASSERT(ares_error_message()[0]);
    ares_config_free(cfg);
    return 0;
}
