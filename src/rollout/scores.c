/*
 * Scores of prompts: log-probs of given tokens after each position of a request's prompt, the
 * likeliest tokens there, and ranks. They are computed while the prompt is prefilled, from the same
 * hidden states, by the kernels that score and sample answers; so they are `score`'s in every bit.
 */
#include <string.h>

#include "internal.h"

/* Memory for what the request wants. */
void rollout_scores_open(request *q)
{
    const ares_prompt_scores_wanted *w = &q->scores;
    size_t rows = (size_t)q->prompt_len - 1;
    if (w->width) {
        size_t n = rows * (size_t)w->width;
        if (w->targets)
            q->scores.targets = (const int32_t *)ares_arena_copy(q->arena, (const char *)w->targets,
                                                                 n * sizeof *w->targets);
        q->score_log_probs = ares_arena_calloc(q->arena, n + 1, sizeof *q->score_log_probs);
        if (w->ranks) q->score_ranks = ares_arena_calloc(q->arena, n + 1, sizeof *q->score_ranks);
    }
    if (w->n_likely) {
        size_t n = rows * (size_t)w->n_likely;
        q->score_likely_tokens = ares_arena_calloc(q->arena, n + 1, sizeof(int32_t));
        q->score_likely_log_probs = ares_arena_calloc(q->arena, n + 1, sizeof(float));
    }
}

bool rollout_scores_wanted(const request *q)
{
    return q->scores.width || q->scores.n_likely || q->scores.logits;
}

/*
 * The plan's last rows are tokens [from, to) of the prompt: their hidden states are scored. All
 * rows come once for the first target, which is also when the likeliest are listed, then again for
 * each further one.
 */
void rollout_scores_plan(ares_rollout *r, request *q, int32_t from, int32_t to)
{
    plan *p = r->plan;
    int32_t first = p->rows - (to - from), end = ARES_MIN(to, q->prompt_len - 1);
    for (int32_t k = 0; k < ARES_MAX(q->scores.width, 1); k++)
        for (int32_t t = ARES_MAX(from, q->scores.from); t < end; t++) {
            if (p->n_scores == p->scores_cap) {
                p->scores_cap = p->scores_cap * 2 + 64;
                p->scores = ares_realloc(p->scores, (size_t)p->scores_cap * sizeof *p->scores);
            }
            p->scores[p->n_scores++] = (score_row){ q, first + t - from, t, k };
        }
}

static int32_t target_of(const score_row *s)
{
    const request *q = s->request;
    if (!q->scores.width) return 0; /* only the likeliest are wanted */
    return q->scores.targets ? q->scores.targets[(int64_t)s->at * q->scores.width + s->k]
                             : q->prompt[s->at + 1];
}

enum { LOGIT_ROWS = 32 };

/* Logits of n rows of hidden states, at most LOGIT_ROWS: [n][vocab] */
static void make_logits(ares_rollout *r, const float *x, int32_t n, const ares_head_adapter *head,
                        float *logits)
{
    ares_device *d = r->model->device;
    int32_t vocab = r->model->cfg.vocab;
    ares_linear_args l = { .m = n,
                           .x = x,
                           .ldx = r->model->cfg.hidden,
                           .w = ares_model_head(r->model),
                           .y = logits,
                           .ldy = vocab };
    d->k->linear(d, &l, 1);
    if (!head) return;
    l.x = head->u;
    l.ldx = head->b->k;
    l.w = head->b;
    l.residual = logits;
    l.ldr = vocab;
    d->k->linear(d, &l, 1);
}

void rollout_scores_look(ares_rollout *r, const plan *p, int32_t i)
{
    const sequence *s = p->out_seq[i];
    const request *q = s->request;
    const ares_rollout_watch *w = r->options.watch;
    bool watched = w && w->wants(w->ctx, s->key, q->response_len + s->n);
    if ((!q->look && !watched) || s->state == SEQ_FINISHED) return;
    float *logits = ares_malloc((size_t)r->model->cfg.vocab * sizeof *logits);
    const float *x = (const float *)r->hidden + (int64_t)i * r->model->cfg.hidden;
    ares_head_adapter head;
    bool adapted = ares_model_adapt_head(r->workspace, q->adapter, x, 1, &head);
    make_logits(r, x, 1, adapted ? &head : NULL, logits);
    if (q->look) q->look(q->look_ctx, s->index, s->n, p->token[i], logits);
    if (watched)
        w->show(w->ctx, &(ares_watched){ .prompt = q->prompt,
                                         .ids = s->ids,
                                         .prompt_len = q->prompt_len,
                                         .n = s->n,
                                         .row_media = q->row_media,
                                         .token = p->token[i],
                                         .logits = logits });
    ares_free(logits);
}

/* Ranks of the targets, and logits for who looks. ranks NULL: not wanted */
static void rank_and_show(ares_rollout *r, const score_row *s, const ares_head_args *a,
                          int32_t *ranks)
{
    const request *q = s->request;
    float *logits = ares_malloc((size_t)LOGIT_ROWS * (size_t)a->vocab * sizeof *logits);
    for (int32_t i = 0; i < a->rows; i += LOGIT_ROWS) {
        int32_t n = ARES_MIN(LOGIT_ROWS, a->rows - i);
        ares_head_adapter head = { 0 };
        if (a->adapter) {
            head = *a->adapter;
            head.u = (const float *)head.u + (int64_t)i * head.b->k;
        }
        make_logits(r, (const float *)a->x + (int64_t)i * a->ldx, n, a->adapter ? &head : NULL,
                    logits);
        for (int32_t j = 0; j < n; j++) {
            const float *z = logits + (int64_t)j * a->vocab;
            int32_t target = a->target[i + j], above = 1;
            if (q->scores.logits && s->k == 0) q->look(q->look_ctx, -1, s[i + j].at, -1, z);
            for (int32_t v = 0; ranks && v < a->vocab; v++)
                above += z[v] > z[target] || (z[v] == z[target] && v < target);
            if (ranks) ranks[i + j] = above;
        }
    }
    ares_free(logits);
}

/* The likeliest tokens of rows that come for the first time. */
static void list_likely(ares_rollout *r, const score_row *s, const ares_head_args *a)
{
    ares_device *d = r->model->device;
    request *q = s->request;
    int32_t most = q->scores.n_likely;
    size_t n = (size_t)a->rows;
    float *floats = ares_calloc(3 * n + 1, sizeof *floats);
    int32_t *tokens = ares_malloc((n + 1) * sizeof *tokens);
    ares_sample_args b = { .rows = a->rows,
                           .vocab = a->vocab,
                           .x = a->x,
                           .ldx = a->ldx,
                           .w = a->w,
                           .adapter = a->adapter,
                           .temperature = floats, /* 0: greedy */
                           .token = tokens,
                           .log_prob = floats + n,
                           .entropy = floats + 2 * n,
                           .n_likely = most,
                           .likely_token = q->score_likely_tokens + (int64_t)s->at * most,
                           .likely_log_prob = q->score_likely_log_probs + (int64_t)s->at * most };
    d->k->sample(d, &b);
    ares_free(floats);
    ares_free(tokens);
}

/* Rows [first, end) of the plan's scores, all of one request and target. x: their hidden states */
static void score(ares_rollout *r, const plan *p, int32_t first, int32_t end, const float *x)
{
    ares_device *d = r->model->device;
    const score_row *s = &p->scores[first];
    request *q = s->request;
    int32_t n = end - first, width = q->scores.width;
    float *stats = ares_malloc((size_t)n * 3 * sizeof *stats);
    int32_t *ints = ares_malloc((size_t)n * 2 * sizeof *ints), *target = ints, *ranks = ints + n;
    for (int32_t i = 0; i < n; i++) target[i] = ARES_MAX(target_of(&s[i]), 0);
    ares_head_adapter head;
    ares_head_args a = { .rows = n,
                         .vocab = r->model->cfg.vocab,
                         .x = x,
                         .ldx = r->model->cfg.hidden,
                         .w = ares_model_head(r->model),
                         .inv_temperature = 1,
                         .target = target,
                         .log_prob = stats,
                         .entropy = stats + n,
                         .lse = stats + 2 * n };
    if (ares_model_adapt_head(r->workspace, q->adapter, x, n, &head)) a.adapter = &head;
    if (width) d->k->head(d, &a);
    if (q->score_ranks || (q->scores.logits && s->k == 0))
        rank_and_show(r, s, &a, q->score_ranks ? ranks : NULL);
    if (q->scores.n_likely && s->k == 0) list_likely(r, s, &a);
    for (int32_t i = 0; i < n && width; i++) {
        int64_t at = (int64_t)s[i].at * width + s[i].k;
        if (target_of(&s[i]) < 0) continue;
        q->score_log_probs[at] = stats[i];
        if (q->score_ranks) q->score_ranks[at] = ranks[i];
    }
    ares_free(stats);
    ares_free(ints);
}

void rollout_scores_compute(ares_rollout *r, const plan *p, const void *hidden)
{
    const float *x = (const float *)hidden + (int64_t)p->n_out * r->model->cfg.hidden;
    for (int32_t i = 0, end; i < p->n_scores; i = end) {
        const score_row *s = &p->scores[i];
        for (end = i + 1;
             end < p->n_scores && p->scores[end].request == s->request && p->scores[end].k == s->k;)
            end++;
        score(r, p, i, end, x + (int64_t)i * r->model->cfg.hidden);
    }
}
