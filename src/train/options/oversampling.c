/* What over-sampling is asked for with, and what it cannot go with (docs/curriculum.md). */
#include "oversampling.h"

#include <string.h>

#include "agents/agents.h"

ARES_OPTION_TABLE(oversampling_options, ares_oversampling_config, ARES_OVERSAMPLING_OPTIONS);

#define OVER "curriculum.over_sampling_batch_size"
#define PARTIAL "curriculum.partial_rollout"

void oversampling_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "curriculum", oversampling_options, &out->oversampling);
}

bool oversampling_wanted(const ares_train_config *c)
{
    return c->oversampling.batch != ARES_NULL_I64 || c->oversampling.partial;
}

/* A batch is filled by fetches until it is full: what says how rounds of draws end says nothing. */
static void check_rounds(ares_config *cfg, const ares_train_config *c, const char *by)
{
    const ares_filter_config *f = &c->filter;
    ares_filter_config of_draws, of_batch;
    ares_filter_stages(f, &of_draws, &of_batch);
    if (c->data.mini_rollout_batch_size != ARES_NULL_I64)
        ares_config_fault(cfg, "data.mini_rollout_batch_size",
                          "with %s a draw is %s prompts; set null", by, OVER);
    if (f->max_resample != ARES_NULL_I64)
        ares_config_fault(cfg, "algorithm.max_resample",
                          "with %s, curriculum.max_fetches_per_rollout says how often prompts are "
                          "drawn; set null",
                          by);
    if (strcmp(f->resample_mode, "same_prompt") == 0)
        ares_config_fault(cfg, "algorithm.dynamic_sampling.mode",
                          "with %s a dropped group is replaced by one of another prompt; set "
                          "new_prompts",
                          by);
    if (f->on_exhausted && strcmp(f->on_exhausted, "error") != 0 && !ares_filter_needs(&of_batch))
        ares_config_fault(cfg, "algorithm.on_exhausted",
                          "with %s prompts are drawn until the batch is full, or the run ends; set "
                          "error",
                          by);
}

void oversampling_check(ares_config *cfg, const ares_train_config *c)
{
    const ares_oversampling_config *o = &c->oversampling;
    const char *by = o->batch != ARES_NULL_I64 ? OVER : PARTIAL;
    if (c->trainer.val_only) return;
    if (!oversampling_wanted(c)) return;
    if (agents_wanted(c)) {
        ares_config_fault(cfg, by,
                          "an episode with an environment cannot be cut and go on later; leave it "
                          "out");
        return;
    }
    if (o->batch != ARES_NULL_I64 && o->batch < c->data.rollout_batch_size)
        ares_config_fault(cfg, OVER,
                          "a fetch must fill the batch: data.rollout_batch_size is %lld; set that "
                          "or more",
                          (long long)c->data.rollout_batch_size);
    if (o->batch != ARES_NULL_I64 && o->batch > INT32_MAX / c->rollout.n)
        ares_config_fault(cfg, OVER,
                          "a fetch would have more than 2147483647 responses (worker.rollout.n = "
                          "%lld); 2 or 3 times data.rollout_batch_size is usual",
                          (long long)c->rollout.n);
    check_rounds(cfg, c, by);
    if (c->actor.recompute_log_probs && strcmp(o->old_log_probs, "stored") == 0)
        ares_config_fault(cfg, "curriculum.partial.old_log_probs",
                          "worker.actor.recompute_log_probs computes all of them; set recompute, "
                          "or the other to false");
}
