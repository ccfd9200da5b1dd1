/*
 * What the AEPO control reads off a batch: windows of entropy of the policy's own tokens, each
 * row's percentile and HWE tokens, and the rows pooled by prompt.
 */
#include <math.h>

#include "aepo.h"

void aepo_tokens_alloc(const ares_batch *b, ares_arena *arena, aepo_tokens *x)
{
    int64_t longest = 0;
    for (int64_t r = 0; r < b->rows; r++)
        longest = ARES_MAX(longest, b->row_start[r + 1] - b->row_start[r]);
    size_t n = (size_t)longest + 1;
    *x = (aepo_tokens){ .h = ares_arena_alloc(arena, n * sizeof(double)),
                        .window = ares_arena_alloc(arena, n * sizeof(double)),
                        .candidates = ares_arena_alloc(arena, n),
                        .mask = ares_arena_alloc(arena, n),
                        .at = ares_arena_alloc(arena, n * sizeof(int64_t)) };
}

void aepo_tokens_read(const ares_batch *b, int64_t row, aepo_tokens *x)
{
    const float *h = b->entropies_1 ? b->entropies_1 : b->entropies;
    x->n = 0;
    for (int64_t i = b->row_start[row]; i < b->row_start[row + 1]; i++) {
        if (!b->response_mask[i]) continue;
        x->h[x->n] = (double)h[i];
        x->candidates[x->n] = b->hwe_candidates ? b->hwe_candidates[i] : 1;
        x->at[x->n++] = i;
    }
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
            return ares_fail(ARES_ENUMERIC,
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

void aepo_measure(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local)
{
    aepo_tokens x;
    aepo_tokens_alloc(b, arena, &x);
    int64_t w = s->options->rollout.window_size;
    for (int64_t r = 0; r < b->rows; r++) {
        aepo_tokens_read(b, r, &x);
        local[r] = (control_sample){ .index = b->samples[r].index,
                                     .difficulty = b->samples[r].difficulty,
                                     .length = (int32_t)x.n,
                                     .accuracy = b->samples[r].accuracy,
                                     .threshold = entropy_sample_threshold(
                                         x.h, x.n, w, s->options->algorithm.entropy_percentile) };
    }
}

void aepo_mark(const aepo *s, const ares_batch *b, ares_arena *arena, control_sample *local,
               uint8_t *column, float *window_column, double *soft_cost)
{
    aepo_tokens x;
    aepo_tokens_alloc(b, arena, &x);
    for (int64_t r = 0; r < b->rows; r++) {
        aepo_tokens_read(b, r, &x);
        int64_t windows = entropy_windows(x.h, x.n, s->options->rollout.window_size, x.window);
        hwe_marked hwe = hwe_mark(x.window, windows, x.n, s->tau, x.candidates, x.mask);
        local[r].hwe = (int32_t)hwe.count;
        local[r].invalid = (int32_t)hwe.invalid;
        if (soft_cost) soft_cost[r] = hwe.soft_cost;
        for (int64_t t = 0; t < x.n && column; t++) column[x.at[t]] = x.mask[t];
        for (int64_t t = 0; t < x.n && window_column; t++)
            window_column[x.at[t]] = t < windows ? (float)x.window[t] : -1;
    }
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
