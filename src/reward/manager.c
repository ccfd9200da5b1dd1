/* Opens and closes the reward manager; which accuracy counts, and the one limit of length. */
#include "manager.h"

#include <stdio.h>
#include <string.h>

ARES_OPTION_TABLE(ares_reward_options, ares_reward_config, ARES_REWARD_OPTIONS);

/* Several options can set the limit of length; two that differ are a fault. */
static void find_limit(ares_config *cfg, ares_reward *r)
{
    char path[64], first[64] = "worker.reward.max_length";
    int64_t limit;
    double penalty;
    r->max_length = r->cfg.max_length;
    for (int i = 0; i < r->n; i++) {
        if (!r->entries[i].judge || !ares_judge_limit(r->entries[i].judge, &limit, &penalty))
            continue;
        if (r->cfg.reward_function)
            snprintf(path, sizeof path, "worker.reward.reward_function_kwargs");
        else snprintf(path, sizeof path, "worker.reward.rewards.%d", i);
        if (r->max_length == ARES_NULL_I64) memcpy(first, path, sizeof first);
        else if (r->max_length != limit)
            ares_config_fault(cfg, path,
                              "ends at %lld tokens, and %s at %lld; there is one limit of length, "
                              "so give both the same",
                              (long long)limit, first, (long long)r->max_length);
        if (r->max_length == ARES_NULL_I64) r->max_length = limit;
    }
}

static void open_accuracy(ares_config *cfg, ares_reward *r)
{
    r->accuracy_entry = -1;
    if (!r->cfg.accuracy) return;
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->entries[i].name, r->cfg.accuracy) == 0) r->accuracy_entry = i;
    if (r->accuracy_entry >= 0) return;
    if (reward_open_judge(cfg, "worker.reward.accuracy", r->cfg.accuracy, &r->accuracy_judge) ==
        ARES_OK)
        ares_judge_use_defaults(r->accuracy_judge);
}

int ares_reward_open(ares_config *cfg, const ares_reward_config *rc, ares_pool *pool,
                     ares_reward **out)
{
    *out = NULL;
    ares_reward *r = ares_calloc(1, sizeof *r);
    r->cfg = *rc;
    r->pool = pool;
    r->discards = strcmp(rc->on_failure, "discard") == 0;
    r->tally = tally_new();
    int before = ares_config_fault_count(cfg);
    reward_open_entries(cfg, r);
    if (ares_config_fault_count(cfg) == before) open_accuracy(cfg, r);
    if (ares_config_fault_count(cfg) == before) find_limit(cfg, r);
    int failed = ares_config_finish(cfg);
    if (ares_config_fault_count(cfg) > before) {
        ares_reward_close(r);
        return failed;
    }
    *out = r;
    return ARES_OK;
}

ares_reward *ares_reward_open_none(void)
{
    ares_reward *r = ares_calloc(1, sizeof *r);
    r->tally = tally_new();
    r->max_length = ARES_NULL_I64;
    return r;
}

void ares_reward_close(ares_reward *r)
{
    if (!r) return;
    ares_pool_drain(r->pool); /* a run that ends early may leave responses in the pool */
    for (int64_t k = 0; k < r->n_jobs; k++) reward_job_free(r->jobs[k]);
    for (int i = 0; i < r->n; i++) reward_entry_fini(&r->entries[i]);
    ares_judge_free(r->accuracy_judge);
    ares_free(r->entries);
    ares_free(r->jobs);
    tally_free(r->tally);
    ares_free(r->last_failure);
    ares_str_fini(&r->line);
    ares_free(r);
}

bool ares_reward_users(const ares_reward *r)
{
    return r->users;
}

const char *ares_reward_last_failure(const ares_reward *r)
{
    return r->last_failure;
}

int ares_reward_count(const ares_reward *r)
{
    return r->n;
}

const char *ares_reward_name(const ares_reward *r, int i)
{
    return r->entries[i].name;
}

int64_t ares_reward_max_length(const ares_reward *r)
{
    return r->max_length;
}

bool ares_reward_calls_python(const ares_reward *r)
{
    return r->calls_python;
}

bool ares_reward_judges(const ares_reward *r)
{
    bool judges = r->accuracy_entry >= 0 || r->accuracy_judge;
    for (int i = 0; i < r->n; i++)
        judges = judges || r->entries[i].child || ares_judge_judges(r->entries[i].judge);
    return judges;
}

bool ares_reward_worth(const ares_reward *r, double *right, double *wrong, double *penalty)
{
    bool judged = false;
    *right = *wrong = *penalty = 0;
    for (int i = 0; i < r->n; i++) {
        const reward_entry *e = &r->entries[i];
        double scores[2], most;
        int64_t limit;
        if (e->child) return false;
        if (ares_judge_limit(e->judge, &limit, &most)) *penalty += e->o.weight * most;
        if (!ares_judge_worth(e->judge, &scores[true], &scores[false])) continue;
        judged = true;
        *right += e->o.weight * reward_score(&r->cfg, true, scores[true]);
        *wrong += e->o.weight * reward_score(&r->cfg, false, scores[false]);
    }
    return judged;
}
