/*
 * Tinker's samples in the server's engine: they decode beside the answers of OpenAI's clients. A
 * draw is one `asample`; it ends when all of its samples have.
 */
#include <math.h>
#include <string.h>

#include "server.h"

/* One sample, as its tokens come. */
typedef struct draw_sequence {
    int32_t n, cap;
    int32_t *tokens, *topk; /* topk [cap][topk_sampled] */
    float *log_probs, *topk_log_prob;
    bool length;
} draw_sequence;

struct serve_draw {
    serve_draw *next;
    ares_server *server;
    const ares_adapter *adapter;
    const tinker_sample *what;
    void (*done)(void *own, int rc, const tinker_sampled *result);
    void *own;
    bool cancelled, broken;
    /* its log-probs are not those that the engine records: all logits of a token are looked at */
    bool looks;
    int32_t next_sample, ended, cached;
    draw_sequence *sequences; /* [what->n] */
    double *distribution;     /* [vocab], of the token that is looked at */
    float *prompt_log_probs;  /* [prompt_len] and so on, as in tinker_sampled */
    int32_t *topk_prompt_tokens;
    float *topk_prompt_log_probs, *target_log_probs;
    int32_t *targets; /* [prompt_len - 1][width]: the prompt's own, then those asked for */
    int32_t width;
};

static void reserve(const serve_draw *d, draw_sequence *s, int32_t n)
{
    if (n <= s->cap) return;
    s->cap = ARES_MAX(n, s->cap * 2 + 32);
    size_t cap = (size_t)s->cap, k = cap * (size_t)d->what->topk_sampled;
    s->tokens = ares_realloc(s->tokens, cap * sizeof *s->tokens);
    s->log_probs = ares_realloc(s->log_probs, cap * sizeof *s->log_probs);
    s->topk = ares_realloc(s->topk, k * sizeof *s->topk);
    s->topk_log_prob = ares_realloc(s->topk_log_prob, k * sizeof *s->topk_log_prob);
}

/*
 * ares_request.look: a token in the distribution that it was drawn from, or the likeliest tokens of
 * a row of the prompt.
 */
static void look(void *ctx, int32_t index, int32_t at, int32_t token, const float *logits)
{
    serve_draw *d = ctx;
    const tinker_sample *w = d->what;
    int32_t vocab = d->server->model->cfg.vocab;
    if (index < 0) {
        if (w->last_n > 0 && at + 1 < w->prompt_len - w->last_n) return;
        tinker_distribution(logits, vocab, 1, -1, 1, -1, d->distribution);
        int64_t row = (int64_t)(at + 1) * w->topk_prompt;
        tinker_top(d->distribution, vocab, w->topk_prompt, d->topk_prompt_tokens + row,
                   d->topk_prompt_log_probs + row);
        return;
    }
    if (!d->looks) return;
    draw_sequence *s = &d->sequences[index];
    reserve(d, s, at + 1);
    tinker_distribution(logits, vocab, w->temperature, w->top_k, w->top_p, token, d->distribution);
    s->log_probs[at] = (float)d->distribution[token];
    tinker_top(d->distribution, vocab, w->topk_sampled, s->topk + (int64_t)at * w->topk_sampled,
               s->topk_log_prob + (int64_t)at * w->topk_sampled);
}

/* Room for what is asked of the prompt, and the targets as the engine wants them. */
static void open_prompt(serve_draw *d)
{
    const tinker_sample *w = d->what;
    size_t length = (size_t)w->prompt_len, top = length * (size_t)w->topk_prompt, rows = length - 1;
    d->width = w->prompt_log_probs + w->n_targets;
    d->prompt_log_probs = ares_malloc(length * sizeof *d->prompt_log_probs);
    for (size_t i = 0; i < length; i++) d->prompt_log_probs[i] = NAN;
    d->topk_prompt_tokens = ares_malloc(top * sizeof *d->topk_prompt_tokens);
    d->topk_prompt_log_probs = ares_malloc(top * sizeof *d->topk_prompt_log_probs);
    for (size_t i = 0; i < top; i++) {
        d->topk_prompt_tokens[i] = TINKER_NO_TOKEN;
        d->topk_prompt_log_probs[i] = TINKER_NO_LOG_PROB;
    }
    d->target_log_probs = ares_calloc(rows * (size_t)w->n_targets + 1, sizeof *d->target_log_probs);
    d->targets = ares_malloc((rows * (size_t)d->width + 1) * sizeof *d->targets);
    for (size_t t = 0; t < rows; t++) {
        int32_t *row = d->targets + t * (size_t)d->width;
        if (w->prompt_log_probs) *row++ = w->prompt[t + 1];
        if (w->n_targets)
            memcpy(row, w->targets + t * (size_t)w->n_targets, (size_t)w->n_targets * sizeof *row);
    }
}

int serve_draw_begin(void *ctx, const ares_adapter *adapter, const tinker_sample *what,
                     void (*done)(void *own, int rc, const tinker_sampled *result), void *own)
{
    ares_server *s = ctx;
    serve_draw *d = ares_calloc(1, sizeof *d);
    bool cuts = what->temperature != 0 && (what->top_k > 0 || what->top_p < 1);
    *d = (serve_draw){ .server = s,
                       .adapter = adapter,
                       .what = what,
                       .done = done,
                       .own = own,
                       .looks = cuts || what->topk_sampled > 0 };
    d->sequences = ares_calloc((size_t)what->n, sizeof *d->sequences);
    d->distribution = ares_malloc((size_t)s->model->cfg.vocab * sizeof *d->distribution);
    open_prompt(d);
    serve_draw **at = &s->draws;
    while (*at) at = &(*at)->next;
    *at = d;
    return ARES_OK;
}

void serve_draw_cancel(void *ctx, void *own)
{
    const ares_server *s = ctx;
    for (serve_draw *d = s->draws; d; d = d->next)
        if (d->own == own) d->cancelled = true;
}

static bool waits(const serve_draw *d)
{
    return !d->cancelled && !d->broken && d->next_sample < d->what->n;
}

serve_draw *serve_draw_next(const ares_server *s)
{
    serve_draw *d = s->draws;
    while (d && !waits(d)) d = d->next;
    return d;
}

/* Asks the engine for the next samples, at most `room`; returns how many. */
int32_t serve_draw_ask(serve_draw *d, int32_t room, int64_t *id, int64_t *number, int *rc)
{
    const tinker_sample *w = d->what;
    int32_t n = ARES_MIN(w->n - d->next_sample, room);
    bool first = d->next_sample == 0;
    *number = d->next_sample;
    ares_request r = {
        .prompt = w->prompt,
        .prompt_len = w->prompt_len,
        .n = n,
        .first_index = d->next_sample,
        .sampling = { .temperature = (float)w->temperature,
                      .top_p = (float)w->top_p,
                      .top_k = w->top_k,
                      .max_new_tokens = w->max_tokens,
                      .ignore_eos = !w->stops,
                      .n_stop_ids = w->n_stop_ids,
                      .stop_ids = w->stop_ids,
                      .n_stop_strings = w->n_stop_strings,
                      .stop_strings = w->stop_strings },
        .key = ares_rng_sub(ares_rng_sub(ares_rng_root(w->seed, ARES_RNG_SAMPLE), 0, 0), 0, 0),
        .adapter = d->adapter,
    };
    bool tops = first && w->topk_prompt > 0;
    if (d->looks || tops) {
        r.look = look;
        r.look_ctx = d;
    }
    if (first && w->prompt_len > 1 && (d->width || tops)) {
        int32_t from = w->last_n > 0 ? ARES_MAX(w->prompt_len - w->last_n - 1, 0) : 0;
        r.scores = (ares_prompt_scores_wanted){ .from = w->n_targets ? 0 : from,
                                                .width = d->width,
                                                .targets = d->targets,
                                                .logits = tops };
    }
    *rc = ares_rollout_add(d->server->rollout, &r, id);
    if (*rc != ARES_OK) return 0;
    d->next_sample += n;
    return n;
}

/* A sample has ended; `id` is that of its request. */
void serve_draw_take(serve_draw *d, int64_t id, const ares_completion *c)
{
    const tinker_sample *w = d->what;
    draw_sequence *s = &d->sequences[c->index];
    reserve(d, s, c->n_tokens);
    s->n = c->n_tokens;
    s->length = c->finish == ARES_FINISH_LENGTH;
    memcpy(s->tokens, c->ids, (size_t)c->n_tokens * sizeof *s->tokens);
    if (!d->looks) memcpy(s->log_probs, c->log_probs, (size_t)c->n_tokens * sizeof *s->log_probs);
    d->ended++;
    d->broken |= c->finish == ARES_FINISH_BROKEN;
    if (c->index > 0) return;
    d->cached = c->cached_tokens;
    ares_prompt_scores scores;
    ares_rollout_prompt_scores(d->server->rollout, id, &scores);
    int32_t last = w->last_n > 0 ? ARES_MAX(w->prompt_len - w->last_n, 1) : 1;
    for (int32_t t = 0; scores.width && t < scores.rows; t++) {
        const float *row = scores.log_probs + (int64_t)t * scores.width;
        if (w->prompt_log_probs) {
            if (t + 1 >= last) d->prompt_log_probs[t + 1] = *row;
            row++;
        }
        if (w->n_targets)
            memcpy(d->target_log_probs + (int64_t)t * w->n_targets, row,
                   (size_t)w->n_targets * sizeof *row);
    }
}

/* Tells whoever asked, and frees the draw. rc: a failure whose message is this thread's */
static void tell(serve_draw *d, int rc)
{
    const tinker_sample *w = d->what;
    tinker_sequence *sequences = ares_calloc((size_t)w->n, sizeof *sequences);
    for (int32_t i = 0; i < w->n; i++) {
        const draw_sequence *s = &d->sequences[i];
        sequences[i] = (tinker_sequence){ .n = s->n,
                                          .tokens = s->tokens,
                                          .log_probs = s->log_probs,
                                          .topk = s->topk,
                                          .topk_log_probs = s->topk_log_prob,
                                          .length = s->length };
    }
    const tinker_sampled result = { .sequences = sequences,
                                    .prompt_log_probs =
                                        w->prompt_log_probs ? d->prompt_log_probs : NULL,
                                    .topk_prompt = d->topk_prompt_tokens,
                                    .topk_prompt_log_probs = d->topk_prompt_log_probs,
                                    .target_log_probs = d->target_log_probs,
                                    .cache_hit_tokens = d->cached };
    d->done(d->own, rc, rc == ARES_OK ? &result : NULL);
    for (int32_t i = 0; i < w->n; i++) {
        ares_free(d->sequences[i].tokens);
        ares_free(d->sequences[i].topk);
        ares_free(d->sequences[i].log_probs);
        ares_free(d->sequences[i].topk_log_prob);
    }
    ares_free(sequences);
    ares_free(d->sequences);
    ares_free(d->distribution);
    ares_free(d->prompt_log_probs);
    ares_free(d->topk_prompt_tokens);
    ares_free(d->topk_prompt_log_probs);
    ares_free(d->target_log_probs);
    ares_free(d->targets);
    ares_free(d);
}

void serve_draw_fail(serve_draw *d, int rc)
{
    serve_draw **at = &d->server->draws;
    while (*at != d) at = &(*at)->next;
    *at = d->next;
    tell(d, rc);
}

/* Cuts what a cancelled draw still decodes. */
static void cut(ares_server *s, const serve_draw *d)
{
    for (int i = 0; i < s->n_runs; i++) {
        const serve_run *r = &s->runs[i];
        for (int32_t k = 0; r->draw == d && k < r->n; k++) {
            ares_completion now;
            int32_t index = (int32_t)r->first + k;
            ares_rollout_look(s->rollout, r->id, index, &now);
            ares_rollout_cut(s->rollout, r->id, index, now.n_tokens);
        }
    }
}

void serve_draws_end(ares_server *s)
{
    for (serve_draw *d = s->draws, *next; d; d = next) {
        next = d->next;
        if (d->cancelled && d->ended < d->next_sample) cut(s, d);
        if (waits(d) || d->ended < d->next_sample) continue;
        int rc = ARES_OK;
        if (d->cancelled) rc = ares_fail(ARES_EINTERRUPTED, "cancelled");
        else if (d->broken)
            rc = ares_fail(ARES_ENUMERIC, "the model's logits are not finite: its weights, or its "
                                          "adapter's, hold NaN or infinity");
        serve_draw_fail(d, rc);
    }
}
