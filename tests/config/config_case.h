/* Options, aliases and helpers that the tests of the configuration share. */
#ifndef CONFIG_CASE_H
#define CONFIG_CASE_H

#include "ares/config.h"
#include "test.h"

#define CASE_OPTIONS(X)                                                                   \
    X(text, model, "worker.model_path", "???", "nonempty", "the model")                   \
    X(i64, n, "worker.rollout.n", "1", "[1,)", "samples per prompt")                      \
    X(i64, top_k, "worker.rollout.top_k", "-1", "-1|[1,)", "tokens kept")                 \
    X(i64, max_len, "worker.rollout.max_len", "null", "[1,)", "tokens")                   \
    X(f64, temperature, "worker.rollout.temperature", "1.0", "[0,)", "0 is greedy")       \
    X(f64, top_p, "worker.rollout.top_p", "1.0", "(0,1]", "of the nucleus")               \
    X(f64, score, "worker.score", "null", "?", "of an unfinished answer")                 \
    X(f64s, betas, "worker.optim.betas", "[0.9, 0.999]", "[0,1)#2", "of AdamW")           \
    X(i64s, stops, "worker.stops", "[]", "[0,)", "token ids")                             \
    X(flag, shuffle, "data.shuffle", "true", "", "a new order")                           \
    X(texts, files, "data.files", "[]", "nonempty", "of rows")                            \
    X(text, prompt, "data.prompt", "null", "", "template")                                \
    X(choice, mode, "algorithm.mode", "token-mean", "token-mean=token|seq-mean=seq|none", \
      "how to average")                                                                   \
    X(choice, estimator, "algorithm.estimator", "grpo", "", "of advantages")              \
    X(text, name, "trainer.name", "demo", "", "of the run")                               \
    X(text, dir, "trainer.dir", "runs/${.name}", "", "of the run")                        \
    X(tree, kwargs, "env.kwargs", "{depth: 1}", "map", "of the environment")              \
    X(tree, rewards, "env.rewards", "[{name: exact}]", "list", "entries of a table")      \
    X(tree, lr, "worker.optim.lr", "1e-6", "number|text", "a constant or an expression in step")
ARES_OPTION_STRUCT(case_options, CASE_OPTIONS);
static ares_option_table case_table;
static ARES_OPTION_TABLE(case_table, case_options, CASE_OPTIONS);

static const char *const case_estimators[] = { "gae", "grpo", "rloo" };
static const ares_config_alias case_aliases[] = {
    { "actor_rollout_ref.rollout.*", "worker.rollout.*", NULL, NULL },
    { "actor_rollout_ref.rollout.response_length", "worker.rollout.max_len", NULL, NULL },
    { "actor_rollout_ref.model.path", "worker.model_path", NULL, NULL },
    { "actor_rollout_ref.fsdp.*", "", NULL, "weights are replicated" },
    { "num_generations", "algorithm.group_size", NULL, NULL },
    { "algorithm.group_size", "worker.rollout.n", NULL, NULL },
    { "beta", "worker.score", "algorithm.estimator=grpo",
      "it has two meanings; write worker.score" },
    { "beta", "worker.rollout.temperature", "algorithm.estimator=rloo", NULL },
    { "both", "worker.rollout.n&worker.rollout.max_len", NULL, NULL },
    { "fp16", NULL, NULL, "set the dtype" },
};

static inline ares_config *case_new(case_options *o)
{
    ares_log_set(ARES_LOG_ERROR, 0);
    ares_config *cfg = ares_config_new();
    ares_config_add_options(cfg, NULL, case_table, o);
    ares_config_add_choices(cfg, "algorithm.estimator", case_estimators,
                            ARES_COUNT(case_estimators));
    ares_config_add_aliases(cfg, case_aliases, ARES_COUNT(case_aliases));
    return cfg;
}

/* The words of `overrides` are separated by bars. */
static inline ares_config *case_read(case_options *o, const char *yaml, const char *overrides)
{
    ares_config *cfg = case_new(o);
    if (yaml) ares_config_load_text(cfg, "a.yaml", ares_view_of(yaml));
    char *words = ares_strdup(overrides ? overrides : ""), *rest = words;
    for (char *word; (word = strsep(&rest, "|"));)
        if (*word) ares_config_override(cfg, word);
    ares_free(words);
    ares_config_resolve(cfg);
    return cfg;
}

/* A configuration that must have exactly these faults, a line each. */
#define CHECK_FAULTS(yaml, overrides, faults)                          \
    do {                                                               \
        case_options o_;                                               \
        ares_config *cfg_ = case_read(&o_, yaml, overrides);           \
        int rc_ = ares_config_finish(cfg_);                            \
        CHECK_EQ(rc_, *(faults) ? ARES_ECONFIG : ARES_OK);             \
        CHECK_STR(rc_ == ARES_OK ? "" : ares_error_message(), faults); \
        ares_config_free(cfg_);                                        \
    } while (0)

#define MODEL "worker.model_path=m"

#endif
