/*
 * What the AEPO control reads off a batch: windows of entropy of the policy's own tokens, each
 * row's percentile and HWE tokens, and the rows pooled by prompt.
 */
#include <math.h>

#include "aepo.h"
#include "twin.h"

/*
 * The policy's own tokens, row by row, without what stands between its turns: their entropies,
 * which of them are candidates, and where each is in the batch.
 */
typedef struct own_tokens {
    twin_rows of;
    float *h;
    uint8_t *candidates;
    int64_t *at;
} own_tokens;

static own_tokens read_tokens(const ares_batch *b, ares_arena *arena)
{
    const float *h = b->entropies_1 ? b->entropies_1 : b->entropies;
    size_t most = (size_t)b->tokens + 1;
    int64_t n = 0, *start = ares_arena_alloc(arena, (size_t)(b->rows + 1) * sizeof *start);
    own_tokens x = { .of = { b->rows, start },
                     .h = ares_arena_alloc(arena, most * sizeof *x.h),
                     .candidates = ares_arena_alloc(arena, most),
                     .at = ares_arena_alloc(arena, most * sizeof *x.at) };
    for (int64_t r = 0; r < b->rows; r++) {
        start[r] = n;
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            if (!b->response_mask[i]) continue;
            x.h[n] = h[i];
            x.candidates[n] = b->hwe_candidates ? b->hwe_candidates[i] : 1;
            x.at[n++] = i;
        }
    }
    start[b->rows] = n;
    return x;
}

/*
 * The windows of all rows, some at a time, so that a card's scratch is bounded. t: what is wanted
 * of them, with q and tau
 */
static int windows_on(const aepo *s, const own_tokens *x, twin_windows_args t)
{
    enum { TOKENS = 1 << 20 };
    ares_device *d = s->env.device;
    const algo_twins *twins = d ? twin_table_of(d) : NULL;
    const int64_t *start = x->of.row_start;
    int64_t rows = x->of.rows, *own = ares_malloc((size_t)(rows + 1) * sizeof *own);
    int rc = ARES_OK;
    for (int64_t row = 0, end; row < rows && rc == ARES_OK; row = end) {
        for (end = row; end < rows && (end == row || start[end + 1] - start[row] <= TOKENS);) end++;
        for (int64_t r = row; r <= end; r++) own[r - row] = start[r] - start[row];
        twin_windows_args part = { .of = { end - row, own },
                                   .entropy = x->h + start[row],
                                   .w = s->options->rollout.window_size,
                                   .q = t.q,
                                   .tau = t.tau,
                                   .candidates = x->candidates + start[row],
                                   .window = t.window ? t.window + start[row] : NULL,
                                   .threshold = t.threshold ? t.threshold + row : NULL,
                                   .mask = t.mask ? t.mask + start[row] : NULL,
                                   .hwe = t.hwe ? t.hwe + row : NULL };
        rc = twin_windows(twins, d, &part);
    }
    ares_free(own);
    return rc;
}

int aepo_check_batch(const ares_batch *b, bool need_accuracy)
{
    ARES_TRY(ARES_NEED(b, AEPO_WHO, entropies));
    ARES_TRY(ARES_NEED(b, AEPO_WHO, response_mask));
    const float *h = b->entropies_1 ? b->entropies_1 : b->entropies;
    for (int64_t r = 0; r < b->rows; r++) {
        if (!b->samples[r].row || !b->samples[r].row->gid)
            return ares_fail(ARES_ESTATE, "%s: row %lld has no global_id", AEPO_WHO, (long long)r);
        if (need_accuracy && ares_batch_row_counts(b, r) && !isfinite(b->samples[r].accuracy))
            return ares_fail(ARES_ECONFIG,
                             "%s: row %lld has the accuracy %g: no reward judges whether the "
                             "answer is right; add one to worker.reward that does",
                             AEPO_WHO, (long long)r, (double)b->samples[r].accuracy);
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++)
            if (b->response_mask[i] && !isfinite(h[i]))
                return ares_fail(ARES_ENUMERIC, "%s: entropies of row %lld, token %lld: %g",
                                 AEPO_WHO, (long long)r, (long long)(i - b->row_start[r]),
                                 (double)h[i]);
    }
    return ARES_OK;
}

int aepo_measure(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local)
{
    own_tokens x = read_tokens(b, arena);
    double *threshold = ares_arena_alloc(arena, (size_t)(b->rows + 1) * sizeof *threshold);
    ARES_TRY(windows_on(s, &x,
                        (twin_windows_args){ .q = s->options->algorithm.entropy_percentile,
                                             .threshold = threshold }));
    for (int64_t r = 0; r < b->rows; r++)
        local[r] = (control_sample){ .index = b->samples[r].index,
                                     .difficulty = b->samples[r].difficulty,
                                     .length = (int32_t)(x.of.row_start[r + 1] - x.of.row_start[r]),
                                     .accuracy = b->samples[r].accuracy,
                                     .threshold = threshold[r] };
    return ARES_OK;
}

int aepo_mark(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local,
              uint8_t *column, float *window_column, double *soft_cost)
{
    own_tokens x = read_tokens(b, arena);
    int64_t n = x.of.row_start[b->rows], w = s->options->rollout.window_size;
    size_t most = (size_t)n + 1;
    hwe_marked *hwe = ares_arena_alloc(arena, (size_t)(b->rows + 1) * sizeof *hwe);
    twin_windows_args t = { .of = x.of,
                            .entropy = x.h,
                            .w = w,
                            .tau = s->tau,
                            .candidates = x.candidates,
                            .window = window_column ? ares_arena_alloc(arena, most * sizeof(double))
                                                    : NULL,
                            .mask = column ? ares_arena_alloc(arena, most) : NULL,
                            .hwe = hwe };
    ARES_TRY(windows_on(s, &x, t));
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t from = x.of.row_start[r], to = x.of.row_start[r + 1];
        local[r].hwe = (int32_t)hwe[r].count;
        local[r].invalid = (int32_t)hwe[r].invalid;
        if (soft_cost) soft_cost[r] = hwe[r].soft_cost;
        for (int64_t i = from; i < to && column; i++) column[x.at[i]] = t.mask[i];
        for (int64_t i = from; i < to && window_column; i++)
            window_column[x.at[i]] = i < to - w ? (float)t.window[i] : -1;
    }
    return ARES_OK;
}

aepo_prompt *aepo_pool_prompts(const control_gathered *all, ares_arena *arena, int64_t *n,
                               int64_t **place)
{
    ares_map *index = ares_map_new();
    aepo_prompt *prompts = ares_arena_calloc(arena, (size_t)all->n_groups + 1, sizeof *prompts);
    *place = ares_arena_alloc(arena, (size_t)(all->n_groups + 1) * sizeof **place);
    *n = 0;
    for (int64_t g = 0; g < all->n_groups; g++) {
        const control_group *group = &all->groups[g];
        int64_t at;
        if (!ares_map_get(index, group->gid, &at)) {
            at = (*n)++;
            ares_map_put(index, group->gid, at);
            prompts[at].gid = group->gid;
        }
        (*place)[g] = at;
        aepo_prompt *p = &prompts[at];
        p->samples += group->count;
        for (int64_t i = group->first; i < group->first + group->count; i++) {
            p->accuracy += (double)all->samples[i].accuracy;
            p->hwe += all->samples[i].hwe;
            p->length += all->samples[i].length;
        }
    }
    ares_map_free(index);
    return prompts;
}
