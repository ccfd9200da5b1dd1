/* A plan for this machine, or for the one that is described: ares-train plan, and --check. */
#include <math.h>
#include <string.h>

#include "plan/plan.h"
#include "run/run.h"
#include "trainer.h"

/* Of this machine, for a rank: a card, or a share of its memory or of the one card for all. */
static double memory_here(const ares_train_config *c, int local_ranks)
{
    double least = INFINITY;
    if (strncmp(c->trainer.device, "cuda", 4) != 0) return ares_memory_bytes() / local_ranks;
    if (ares_cuda_expected()) (void)train_cards("/proc/driver/nvidia/gpus", &least);
    return strcmp(c->trainer.device, "cuda") == 0 ? least : least / local_ranks;
}

static int threads_here(const ares_train_config *c, int local_ranks)
{
    bool given = c->trainer.threads != ARES_NULL_I64 && c->trainer.threads > 0;
    return given ? (int)c->trainer.threads : ARES_MAX(1, ares_cpu_count() / local_ranks);
}

/* Tables of the options bind themselves to the configuration. */
static int64_t longest_validated(ares_config *cfg, const ares_train_config *c)
{
    ares_sampling sampling;
    eval_sets evals = { 0 };
    int64_t n;
    validation_sampling(cfg, c, &sampling, &n);
    eval_sets_read(cfg, c, &evals);
    return validation_longest(c, &sampling, &evals);
}

int ares_train_plan(ares_config *cfg, const ares_train_config *c, const ares_plan_options *o,
                    ares_str *out)
{
    plan p;
    plan_where where = { .ranks = o->ranks,
                         .threads = threads_here(c, o->local_ranks),
                         .texts = plan_texts(c),
                         .memory = o->memory > 0 ? o->memory : memory_here(c, o->local_ranks),
                         .flops = o->flops,
                         .link = o->link,
                         .reinforcement = true,
                         .val_longest = longest_validated(cfg, c) };
    if (!isfinite(where.memory))
        return ares_fail(ARES_EUSE, "plan: no card tells its memory here; say it with --memory");
    ARES_TRY(plan_measure(c, &where, &p));
    (o->json ? plan_write_json : plan_print)(&p, &where, out);
    if (plan_fits(&p, &where)) return ARES_OK;
    ares_str words = { 0 };
    plan_refusal(c, &where, &p, &words);
    int rc = ares_fail(ARES_ELIMIT, "plan: %s", words.data);
    ares_str_fini(&words);
    return rc;
}

int ares_train_plan_check(ares_config *cfg, const ares_train_config *c, int ranks, int local_ranks,
                          bool reinforcement, bool starts, ares_str *words)
{
    plan p;
    plan_where where = { .ranks = ranks,
                         .threads = threads_here(c, local_ranks),
                         .texts = plan_texts(c),
                         .memory = memory_here(c, local_ranks),
                         .reinforcement = reinforcement,
                         .val_longest = reinforcement ? longest_validated(cfg, c) : 0 };
    if (plan_measure(c, &where, &p) != ARES_OK) { /* no model is there; opening it says why */
        ares_error_clear();
        return ARES_OK;
    }
    ares_str_clear(words);
    plan_describe(&p, words);
    if (plan_fits(&p, &where)) return ARES_OK;
    ares_str_clear(words);
    plan_refusal(c, &where, &p, words);
    if (!starts || p.card) return ares_fail(ARES_ELIMIT, "config: %s", words->data);
    ares_log(ARES_LOG_WARN, "config: %s", words->data);
    return ARES_OK;
}
