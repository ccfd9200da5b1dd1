/*
 * A loss of pairs in the update (VAPOR, docs/vapor.md#order-of-work). It depends on log-probs
 * through sums over spans only, so that its derivatives are there once responses and stored answers
 * have gone forward; each micro-batch goes backward with them. The host computes it, once a
 * mini-batch, from log-probs that it has waited for.
 */
#include <string.h>

#include "roles/update.h"

int pair_log_probs(update *u, int64_t row, int64_t end)
{
    const actor_second *s = u->second;
    int64_t first, last;
    if (!s) return ARES_OK;
    second_rows(s, row, end, &first, &last);
    int64_t token = s->batch->row_start[first], tokens = s->batch->row_start[last] - token;
    learner_scoring scoring = learner_scoring_of(u->actor->cfg);
    scoring.temperature = s->temperature;
    memset(s->d_log_prob + token, 0, (size_t)tokens * sizeof *s->d_log_prob);
    return learner_log_probs(&u->actor->learner, &scoring, s->batch, first, last,
                             s->log_prob + token, NULL);
}

static ares_vapor_text text_of(const ares_batch *b, int64_t row, const float *log_prob,
                               const float *ref_log_prob, float *d_log_prob)
{
    int64_t t = b->row_start[row];
    return (ares_vapor_text){ .n = b->row_start[row + 1] - t,
                              .span = b->samples[row].span,
                              .span_end = b->samples[row].span_end,
                              .mask = b->response_mask ? b->response_mask + t : NULL,
                              .log_prob = log_prob + t,
                              .ref_log_prob = ref_log_prob + t,
                              .d_log_prob = d_log_prob + t };
}

/*
 * Tokens of mask 1. A discarded response, or one that only fills the batch, has none; one that went
 * on under newer weights may have some.
 */
static int64_t learns(const ares_batch *b, int64_t row)
{
    int64_t n = 0;
    for (int64_t t = b->row_start[row]; t < b->row_start[row + 1]; t++) n += b->response_mask[t];
    return n;
}

/* The group of rows [row, end) as a prompt; the stored pair is added by add_pairs. */
static ares_vapor_prompt prompt_of(const update *u, int64_t row, int64_t end, double totals[3])
{
    ares_batch *b = u->batch;
    ares_vapor_prompt p = { .completions = ares_arena_calloc(&b->arena, (size_t)(end - row),
                                                             sizeof *p.completions) };
    for (int64_t r = row; r < end; r++) {
        int64_t tokens = learns(b, r);
        if (!tokens) continue;
        ares_vapor_completion_args *c = &p.completions[p.n++];
        c->text = text_of(b, r, u->host.log_prob, b->ref_log_probs, u->host.c_log_prob);
        c->reward = (double)b->samples[r].score;
        totals[0] += 1;
        totals[1] += (double)tokens;
    }
    return p;
}

static void add_pairs(const update *u, const int64_t *group_row, ares_vapor_prompt *prompts,
                      int64_t n)
{
    const actor_second *s = u->second;
    for (int64_t g = 0, i = 0; s && g < s->batch->groups; g++) {
        while (i < n && group_row[i] < s->row[g]) i++;
        if (i == n || group_row[i] != s->row[g]) continue;
        int64_t row = s->batch->group_start[g];
        prompts[i].chosen = text_of(s->batch, row, s->log_prob, s->ref_log_prob, s->d_log_prob);
        prompts[i].rejected =
            text_of(s->batch, row + 1, s->log_prob, s->ref_log_prob, s->d_log_prob);
    }
}

int pair_loss(update *u, int64_t row, int64_t end)
{
    const actor *a = u->actor;
    const ares_vapor_config *cfg = &a->cfg->vapor;
    ares_batch *b = u->batch;
    float *derivatives = u->host.c_log_prob + b->row_start[row];
    size_t bytes = (size_t)(b->row_start[end] - b->row_start[row]) * sizeof *derivatives;
    double totals[3] = { 0 };
    int64_t n = 0;
    memset(derivatives, 0, bytes);
    ares_vapor_prompt *prompts =
        ares_arena_alloc(&b->arena, (size_t)(end - row + 1) * sizeof *prompts);
    int64_t *group_row = ares_arena_alloc(&b->arena, (size_t)(end - row + 1) * sizeof *group_row);
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t first = b->group_start[g];
        if (first < row || first >= end) continue;
        group_row[n] = first;
        prompts[n++] = prompt_of(u, first, b->group_start[g + 1], totals);
    }
    add_pairs(u, group_row, prompts, n);
    for (int64_t i = 0; i < n; i++) totals[2] += ares_vapor_has_pair(&prompts[i]);
    ARES_TRY(ares_world_sum_f64(a->learner.world, totals, 3));
    ares_vapor_sums sums;
    ares_vapor_sums_init(&sums);
    ARES_TRY(ares_vapor_loss(cfg, ares_kl_find(cfg->kl_penalty), prompts, n, totals, &sums));
    if (totals[0] > 0) u->sums.loss -= sums.objective / totals[0];
    if (totals[2] > 0) u->sums.loss += cfg->dpo_coef * sums.dpo / totals[2];
    if (totals[1] > 0) u->sums.kl += sums.kl / totals[1];
    for (int64_t r = row; r < end; r++) sums.lost += b->samples[r].span_lost && learns(b, r) > 0;
    ares_vapor_sums_add(&u->pairs, &sums);
    columns_in(&a->learner.columns, u->col.c_log_prob + b->row_start[row], derivatives, bytes);
    return ARES_OK;
}
