/*
 * Whether a step that may draw without end still gets anywhere. Prompts come back in every epoch,
 * and their answers differ: only as many prompts as the source has rows, from which no group is
 * kept, say that filters keep none, and enough draws that it was no chance.
 */
#include "collect/progress.h"

#include <string.h>

enum { IDLE_DRAWS = 20 }; /* the default of trainer.max_try_make_batch */

void progress_count(rounds *r, bool kept, int64_t prompts)
{
    r->idle_draws = kept ? 0 : r->idle_draws + 1;
    r->idle_prompts = kept ? 0 : r->idle_prompts + prompts;
}

/* "all_zero_a: 2, reward_cap_b: 5"; empty where no filter has given a reason */
static void add_reasons(const ares_metrics *m, ares_str *out)
{
    static const char drop[] = "rollout/dynamic_filter/drop_";
    const char *before = "";
    for (int i = 0; i < ares_metrics_count(m); i++) {
        const char *name = ares_metrics_name(m, i);
        if (strncmp(name, drop, strlen(drop)) != 0) continue;
        ares_str_addf(out, "%s%s: %.0f", before, name + strlen(drop), ares_metrics_value(m, i));
        before = ", ";
    }
}

int progress_add_drops(const ares_metrics *m, int rc)
{
    ares_str message = { 0 }, reasons = { 0 };
    add_reasons(m, &reasons);
    if (reasons.len) {
        ares_str_addf(&message, "%s (dropped: %s)", ares_error_message(), reasons.data);
        rc = ares_fail(rc, "%s", message.data);
    }
    ares_str_fini(&message);
    ares_str_fini(&reasons);
    return rc;
}

int progress_check(const ares_trainer *t, const rounds *r, const ares_metrics *m,
                   const char *remedy)
{
    const ares_source *source = &t->run.source;
    if (r->idle_draws < IDLE_DRAWS ||
        r->idle_prompts < ares_source_count(source) - ares_source_skipped(source))
        return ARES_OK;
    return progress_add_drops(
        m, ares_fail(ARES_ELIMIT,
                     "filter: the last %lld draws gave %lld prompts, no fewer than there are, and "
                     "no group of them is kept, while a batch takes %lld and has %lld; widen the "
                     "filter, choose other prompts, or %s",
                     (long long)r->idle_draws, (long long)r->idle_prompts,
                     (long long)r->draws.target, (long long)r->draws.kept, remedy));
}
