/*
 * How many groups to ask for, and what to do when filters leave too few. Decisions only: the caller
 * draws the groups.
 */
#include "ares/algo_filter.h"

#include <string.h>

/* ---------------------------------------------------------------- over-sampling */
int ares_oversampling_init(ares_oversampling *s, int64_t target, int64_t batch, int64_t max_fetches)
{
    *s = (ares_oversampling){ .target = target, .batch = batch, .max_fetches = max_fetches };
    if (target < 1 || batch < target)
        return ares_fail(ARES_ECONFIG,
                         "filter: over_sampling_batch_size = %lld: a fetch must fill the batch of "
                         "%lld groups; set it to that or more",
                         (long long)batch, (long long)target);
    return ARES_OK;
}

bool ares_oversampling_done(const ares_oversampling *s)
{
    return s->kept >= s->target;
}

/* Nothing is fetched while the groups under way may still fill the batch. */
int ares_oversampling_fetch(ares_oversampling *s, int64_t *groups)
{
    *groups = 0;
    if (ares_oversampling_done(s) || s->submitted - s->dropped >= s->target) return ARES_OK;
    if (s->max_fetches > 0 && s->fetches == s->max_fetches)
        return ares_fail(ARES_ELIMIT,
                         "filter: max_fetches_per_rollout = %lld: %lld groups were fetched, %lld "
                         "dropped, and %lld of %lld are kept; raise it, or widen the filter",
                         (long long)s->max_fetches, (long long)s->submitted, (long long)s->dropped,
                         (long long)s->kept, (long long)s->target);
    s->fetches++;
    /* a fetch always asks for over_sampling_batch_size groups */
    s->submitted += *groups = s->batch;
    return ARES_OK;
}

bool ares_oversampling_finish(ares_oversampling *s, bool keep)
{
    ARES_ASSERT(s->finished < s->submitted);
    s->finished++;
    s->dropped += !keep;
    if (!keep || ares_oversampling_done(s)) return false;
    s->kept++;
    return true;
}

/* ---------------------------------------------------------------- DAPO's rounds */
int64_t ares_resampling_draw(const ares_resampling *s)
{
    int64_t missing = s->target - s->kept;
    /* below 0: no limit */
    bool exhausted = s->max_resample >= 0 && s->rounds > s->max_resample;
    return missing <= 0 || exhausted ? 0 : s->batch > 0 ? s->batch : missing;
}

/* Every group drawn is kept, surplus or dropped. */
int64_t ares_resampling_dropped(const ares_resampling *s)
{
    return s->drawn - s->kept - s->surplus;
}

void ares_resampling_add(ares_resampling *s, const bool *informative, int64_t n, int64_t *kept_ids,
                         int64_t *dropped_ids)
{
    int64_t dropped = ares_resampling_dropped(s);
    for (int64_t i = 0; i < n; i++) {
        int64_t id = s->drawn + i;
        if (!informative[i]) dropped_ids[dropped++] = id;
        else if (s->kept < s->target) kept_ids[s->kept++] = id;
        /* informative, but the batch is full */
        else s->surplus++;
    }
    s->drawn += n;
    s->rounds++;
}

int ares_resampling_finish(const ares_resampling *s, const char *on_exhausted,
                           const int64_t *kept_ids, const int64_t *dropped_ids, int64_t *batch,
                           int64_t *count, int64_t *masked, const char **outcome)
{
    int64_t missing = s->target - s->kept, dropped = ares_resampling_dropped(s);
    memcpy(batch, kept_ids, (size_t)s->kept * sizeof *batch);
    *count = *masked = s->kept;
    *outcome = "full";
    if (missing <= 0) return ARES_OK;
    if (strcmp(on_exhausted, "error") == 0)
        return ares_fail(ARES_ELIMIT,
                         "filter: %lld draws gave %lld prompts, of which %lld stay, and a batch "
                         "takes %lld; widen the filter, choose other prompts, raise "
                         "trainer.max_try_make_batch or algorithm.max_resample (now %lld; below 0: "
                         "no limit), or set algorithm.on_exhausted to fill_masked or smaller_batch",
                         (long long)s->rounds, (long long)s->drawn, (long long)s->kept,
                         (long long)s->target, (long long)s->max_resample);
    if (strcmp(on_exhausted, "smaller_batch") == 0) {
        *outcome = "smaller_batch";
        return ARES_OK;
    }
    if (strcmp(on_exhausted, "fill_masked") != 0)
        return ares_fail(
            ARES_ECONFIG,
            "filter: on_exhausted = '%s': unknown (choices: fill_masked, smaller_batch, error)",
            on_exhausted);
    /* groups that were dropped stand in, masked: the batch keeps its size, and they train nothing
     */
    *outcome = "filled";
    for (int64_t i = 0; i < missing && i < dropped; i++) batch[(*count)++] = dropped_ids[i];
    return ARES_OK;
}

/* ---------------------------------------------------------------- whole batches */
int64_t ares_batch_adjust_divisor(int64_t env_groups, int64_t mini_batch, int64_t other)
{
    const int64_t numbers[] = { mini_batch, other };
    int64_t out = env_groups; /* the least common multiple so far */
    for (int i = 0; i < ARES_COUNT(numbers); i++) {
        int64_t x = out, y = numbers[i];
        for (int64_t rest; y; y = rest) { /* Euclid's algorithm */
            rest = x % y;
            x = y;
        }
        out = out / x * numbers[i];
    }
    return out;
}

int64_t ares_batch_adjust_target(bool copy, int64_t rows, int64_t divisor)
{
    /* 10 rows by 4: 12 with copies, 8 without */
    return (rows + (copy ? divisor - 1 : 0)) / divisor * divisor;
}
