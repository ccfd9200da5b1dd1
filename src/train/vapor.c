/*
 * VAPOR in the trainer: stored answers that are trained on in the same optimizer step as the
 * responses. In order: the reference's log-probs of stored answers, kept over steps and in
 * checkpoints; opening, and the pairs of a step; the stored answers as a second batch of an
 * update; the loss of pairs.
 */
#include "vapor.h"
#include "roles.h"

#include <stdio.h>
#include <string.h>

/*
 * What the reference said of stored answers. It is asked once per pair, because its weights and
 * these tokens do not change; every rank knows what any rank was told, and a checkpoint holds it
 * (stored_answers.safetensors, a tensor per pair). The name of a tensor is the row and a hash of
 * everything that its numbers follow from, so that those of other answers or another reference are
 * not found again.
 */

static int64_t tokens_of(const vapor *v, int64_t row)
{
    return v->pairs.pair[row].chosen.n + v->pairs.pair[row].rejected.n;
}

/* Keeps the log-probs of a row's two answers, and notes the row for vapor_cache_share. */
static void vapor_cache_fill(vapor *v, int64_t row, const float *log_probs)
{
    size_t bytes = (size_t)tokens_of(v, row) * sizeof *log_probs;
    if (v->ref[row]) return; /* this rank's own, or two ranks have asked for it */
    v->ref[row] = ares_malloc(bytes);
    memcpy(v->ref[row], log_probs, bytes);
    v->fresh[v->n_fresh++] = row;
}

/* Forgets all: the reference has moved, or the run ends. */
static void vapor_cache_clear(vapor *v)
{
    for (int64_t i = 0; i < v->pairs.n && v->ref; i++) {
        ares_free(v->ref[i]);
        v->ref[i] = NULL;
    }
}

/* Tells all ranks what this rank was told in the step. A collective. */
static int vapor_cache_share(vapor *v, ares_world *w)
{
    ares_str mine = { 0 }, all = { 0 };
    if (ares_world_size(w) == 1) return ARES_OK;
    for (int64_t i = 0; i < v->n_fresh; i++) {
        int64_t row = v->fresh[i];
        ares_str_add(&mine, (const char *)&row, sizeof row);
        ares_str_add(&mine, (const char *)v->ref[row],
                     (size_t)tokens_of(v, row) * sizeof *v->ref[row]);
    }
    int rc = ares_world_gather_all(w, mine.data, mine.len, &all, NULL);
    for (size_t at = 0; rc == ARES_OK && at < all.len;) {
        int64_t row; /* then its log-probs, then the next row; in bytes, which are not aligned */
        memcpy(&row, all.data + at, sizeof row);
        size_t bytes = (size_t)tokens_of(v, row) * sizeof(float);
        float *x = ares_malloc(bytes);
        memcpy(x, all.data + at + sizeof row, bytes);
        vapor_cache_fill(v, row, x);
        ares_free(x);
        at += sizeof row + bytes;
    }
    ares_str_fini(&mine);
    ares_str_fini(&all);
    return rc;
}

/* ---------------------------------------------------------------- in a checkpoint */
enum { NAME = 40 };

/* The row, and a hash of the reference and the two answers. */
static void name_of(const vapor *v, int64_t row, char name[static NAME])
{
    const ares_stored_answer *answers[] = { &v->pairs.pair[row].chosen,
                                            &v->pairs.pair[row].rejected };
    uint64_t h = ares_fnv1a(ARES_FNV1A, &v->reference, sizeof v->reference);
    for (int i = 0; i < ARES_COUNT(answers); i++) {
        const ares_stored_answer *a = answers[i];
        int32_t sizes[] = { a->prompt_len, a->n };
        h = ares_fnv1a(h, sizes, sizeof sizes);
        h = ares_fnv1a(h, a->ids, (size_t)(a->prompt_len + a->n) * sizeof *a->ids);
    }
    snprintf(name, NAME, "%lld.%016llx", (long long)row, (unsigned long long)h);
}

int vapor_save(const vapor *v, const char *path)
{
    ares_safetensors_writer *w;
    char name[NAME];
    int rc = ARES_OK;
    ARES_TRY(ares_safetensors_create(path, &w));
    for (int64_t i = 0; i < v->pairs.n && v->ref; i++) {
        if (!v->ref[i]) continue;
        name_of(v, i, name);
        ares_safetensors_declare(w, name, ARES_F32, 1, (int64_t[]){ tokens_of(v, i) });
    }
    for (int64_t i = 0; i < v->pairs.n && v->ref && rc == ARES_OK; i++)
        if (v->ref[i])
            rc = ares_safetensors_write(w, v->ref[i], (size_t)tokens_of(v, i) * sizeof(float));
    int finished = ares_safetensors_finish(w);
    return rc != ARES_OK ? rc : finished;
}

int vapor_load(vapor *v, const char *path)
{
    ares_safetensors *s;
    char name[NAME];
    if (!v->ref || !ares_file_exists(path)) return ARES_OK; /* older checkpoints do not have it */
    ARES_TRY(ares_safetensors_open(path, &s));
    for (int64_t i = 0; i < v->pairs.n; i++) {
        if (!v->pairs.pair[i].chosen.n) continue;
        name_of(v, i, name);
        const ares_tensor_info *t = ares_safetensors_find(s, name);
        if (!t || !t->is_float || t->dtype != ARES_F32 || t->count != tokens_of(v, i)) continue;
        v->ref[i] = ares_malloc((size_t)t->bytes);
        memcpy(v->ref[i], t->data, (size_t)t->bytes);
    }
    ares_safetensors_close(s);
    return ARES_OK;
}

/*
 * Stored answers learn in the same optimizer step as the responses to their prompt. Their tokens
 * never change, so the reference sees each of them once; log-probs are at temperature 1, as in DPO.
 */

bool vapor_wanted(const ares_train_config *c)
{
    const ares_loss *loss = ares_loss_find(c->loss.loss_type);
    return loss && (loss->flags & ARES_LOSS_PAIRS);
}

static void say_counts(const ares_vapor_config *cfg, const ares_pair_counts *c, int64_t rows)
{
    ares_info("vapor: %lld of %lld rows have a pair of answers", (long long)c->pairs,
              (long long)rows);
    if (cfg->dpo_coef != 0 && cfg->beta != 0 && c->without_span)
        ares_log(ARES_LOG_WARN,
                 "vapor: %lld pairs are learnt from by vapor.dpo_coef alone: the tags of "
                 "vapor.preference_term_split are not in both answers",
                 (long long)c->without_span);
    if (c->equal)
        ares_log(ARES_LOG_WARN,
                 "vapor: %lld pairs count as missing: both answers are the same tokens, after they "
                 "were cut by vapor.max_pair_length or trimmed by the chat template",
                 (long long)c->equal);
    if (cfg->dpo_coef != 0 && !c->pairs)
        ares_log(ARES_LOG_WARN,
                 "vapor: vapor.dpo_coef has no effect: no row has a pair of answers");
    int64_t without_span = cfg->dpo_coef != 0 ? 0 : c->without_span;
    if (without_span + c->without_room)
        ares_log(ARES_LOG_WARN,
                 "vapor: %lld pairs count as missing: the tags of vapor.preference_term_split are "
                 "not in both answers (%lld), or the prompt fills vapor.max_pair_length (%lld)",
                 (long long)(without_span + c->without_room), (long long)without_span,
                 (long long)c->without_room);
    if (c->shortened)
        ares_log(ARES_LOG_WARN,
                 "vapor: answers of %lld rows are cut: longer than vapor.max_pair_length with "
                 "their prompt",
                 (long long)c->shortened);
    if (c->merged)
        ares_log(ARES_LOG_WARN,
                 "vapor: in %lld rows the end of the prompt and the start of an answer are one "
                 "token, which counts as the prompt's",
                 (long long)c->merged);
}

int vapor_open(ares_trainer *t, vapor **out)
{
    const ares_vapor_config *c = &t->run.cfg->vapor;
    vapor *v = *out = ares_calloc(1, sizeof *v);
    v->cfg = t->run.cfg;
    ares_batch_init(&v->batch);
    if (c->beta == 0 && c->dpo_coef == 0) return ARES_OK; /* no pair weighs anything */
    const ares_pair_options o = { .chosen_key = c->chosen_key,
                                  .rejected_key = c->rejected_key,
                                  .start_tag = ares_view_of(c->preference_term_split.items[0]),
                                  .end_tag = ares_view_of(c->preference_term_split.items[1]),
                                  .max_length = c->max_pair_length,
                                  .without_span = c->dpo_coef != 0,
                                  .eos = t->run.model->cfg.n_eos ? t->run.model->cfg.eos[0] : -1 };
    ARES_TRY(ares_pairs_encode(&t->run.source, t->run.encoder, &o, t->run.device.pool, &v->pairs));
    v->ref = ares_calloc((size_t)v->pairs.n + 1, sizeof *v->ref);
    v->fresh = ares_calloc((size_t)v->pairs.n + 1, sizeof *v->fresh);
    /* a reference that moves is read from the checkpoint that holds what it said */
    const char *dtype = t->run.cfg->ref.dtype ? t->run.cfg->ref.dtype : "";
    bool moves = c->sync_ref_model;
    uint64_t h = ares_fnv1a(ARES_FNV1A, &t->run.model_weights, sizeof t->run.model_weights);
    v->reference = ares_fnv1a(ares_fnv1a(h, dtype, strlen(dtype) + 1), &moves, sizeof moves);
    if (training_type(t->run.cfg->ref.arithmetic) == ARES_BF16)
        v->reference = ares_fnv1a(v->reference, "bf16", 4);
    say_counts(c, &v->pairs.counts, v->pairs.n);
    return ARES_OK;
}

void vapor_close(vapor *v)
{
    if (!v) return;
    vapor_cache_clear(v);
    ares_free(v->ref);
    ares_free(v->fresh);
    ares_pairs_fini(&v->pairs);
    ares_batch_fini(&v->batch);
    ares_free(v);
}

/* What the reference has said of a group of the second batch; NULL: nothing yet. */
static const float *kept(const vapor *v, int64_t group)
{
    return v->ref[v->batch.samples[v->batch.group_start[group]].row->id];
}

/*
 * The reference's log-probs of a step's answers: it is asked for those that it has not seen yet.
 * All ranks ask, or none, since they may hold its weights in parts.
 */
static int reference_log_probs_of(vapor *v, reference *ref, float *out)
{
    ares_batch *b = &v->batch;
    learner_scoring scoring = learner_scoring_of(v->cfg);
    learner_rows *runs = ares_arena_alloc(&b->arena, (size_t)(b->groups + 1) * sizeof *runs);
    int64_t n = 0, most;
    for (int64_t g = 0, end; g < b->groups; g = end + 1) { /* neighbours go together */
        for (end = g; end < b->groups && !kept(v, end);) end++;
        if (end > g) runs[n++] = (learner_rows){ b->group_start[g], b->group_start[end] };
    }
    most = n;
    ARES_TRY(ares_world_max_i64(ref->learner.world, &most, 1));
    scoring.temperature = v->second.temperature;
    if (most) ARES_TRY(learner_log_probs_of(&ref->learner, &scoring, b, runs, n, out));
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t row = b->group_start[g], from = b->row_start[row];
        size_t bytes = (size_t)(b->row_start[b->group_start[g + 1]] - from) * sizeof *out;
        if (kept(v, g)) memcpy(out + from, kept(v, g), bytes);
        else vapor_cache_fill(v, b->samples[row].row->id, out + from);
    }
    return ARES_OK;
}

/* The second batch of a step: a group of a chosen and a rejected answer to each prompt that has
 * them.
 */
static int make_pairs(vapor *v, reference *ref, ares_batch *b)
{
    ares_batch *s = &v->batch;
    int64_t *row = ares_arena_alloc(&b->arena, (size_t)(b->groups + 1) * sizeof *row);
    b->kl_coef = v->cfg->vapor.kl_coef;
    ares_batch_clear(s);
    v->second = (actor_second){ .batch = s, .row = row, .temperature = 1 };
    for (int64_t g = 0; g < b->groups && v->pairs.n; g++) {
        const ares_sample *of = &b->samples[b->group_start[g]];
        const ares_pair *p = &v->pairs.pair[of->row->id];
        if (!p->chosen.n) continue;
        row[s->groups] = b->group_start[g];
        ares_batch_begin_group(s);
        const ares_stored_answer *const answers[] = { &p->chosen, &p->rejected };
        for (int32_t i = 0; i < ARES_COUNT(answers); i++)
            ares_batch_add_row(s,
                               &(ares_sample){ .draw = of->draw,
                                               .index = i,
                                               .row = of->row,
                                               .prompt = answers[i]->ids,
                                               .prompt_len = answers[i]->prompt_len,
                                               .row_media = of->row->row_media,
                                               .span = answers[i]->span,
                                               .span_end = answers[i]->span_end },
                               answers[i]->n);
    }
    ARES_PUT(s, responses);
    for (int64_t r = 0; r < s->rows; r++) /* a stored answer follows its prompt */
        memcpy(s->responses + s->row_start[r], s->samples[r].prompt + s->samples[r].prompt_len,
               (size_t)(s->row_start[r + 1] - s->row_start[r]) * sizeof *s->responses);
    float **const columns[] = { &v->second.log_prob, &v->second.d_log_prob };
    for (int i = 0; i < ARES_COUNT(columns); i++)
        *columns[i] = ares_arena_calloc(&s->arena, (size_t)s->tokens + 1, sizeof(float));
    float *of_ref = ares_arena_calloc(&s->arena, (size_t)s->tokens + 1, sizeof *of_ref);
    v->second.ref_log_prob = of_ref;
    return reference_log_probs_of(v, ref, of_ref);
}

int vapor_pairs(vapor *v, reference *ref, ares_world *world, ares_batch *b,
                const actor_second **second, ares_metrics *m)
{
    v->n_fresh = 0;
    *second = v->ref && v->pairs.counts.pairs ? &v->second : NULL;
    ARES_TRY(ares_world_share_error(world, make_pairs(v, ref, b)));
    ARES_TRY(vapor_cache_share(v, world));
    if (v->ref) ares_metrics_set(m, "vapor/ref_new_pairs", (double)v->n_fresh);
    return ARES_OK;
}

int vapor_sync(vapor *v, reference *ref, const learner *policy, int64_t step)
{
    const ares_vapor_config *c = &v->cfg->vapor;
    if (!c->sync_ref_model || step % c->ref_model_sync_steps) return ARES_OK;
    vapor_cache_clear(v);
    if (ref->features) ares_features_forget(ref->features);
    return ares_model_interpolate(ref->learner.model, policy->model, c->ref_model_mixup_alpha);
}

bool vapor_span(const ares_vapor_config *cfg, const ares_tokenizer *t, ares_trajectory *y,
                ares_arena *arena, ares_view *inner)
{
    const ares_trajectory_row *x = &y->rows[0];
    ares_view start = ares_view_of(cfg->verifiable_term_split.items[0]),
              stop = ares_view_of(cfg->verifiable_term_split.items[1]);
    int64_t(*offsets)[2] = ares_calloc((size_t)x->n_tokens + 1, sizeof *offsets), first, end;
    ares_str text = { 0 };
    ares_span_offsets(t, x->responses, x->n_tokens, &text, offsets);
    bool there = ares_span_text(ares_str_view(&text), start, stop, inner),
         found = there && ares_span_find(ares_str_view(&text), (const int64_t(*)[2])offsets,
                                         x->n_tokens, start, stop, &first, &end);
    y->span_lost = there && !found;
    if (found) {
        y->span = (int32_t)first;
        y->span_end = (int32_t)end;
        *inner = (ares_view){ ares_arena_copy(arena, inner->data, inner->len), inner->len };
    }
    ares_free(offsets);
    ares_str_fini(&text);
    return found;
}

/*
 * The second batch of an update: rows whose log-probs the loss also depends on, with derivatives
 * that the caller gives (docs/update.md#a-second-batch). Micro-batches and packing are the batch's.
 */

/* The second batch's rows [*first, *last) that go with rows [row, end); none: *first == *last. */
static void second_rows(const actor_second *s, int64_t row, int64_t end, int64_t *first,
                        int64_t *last)
{
    const ares_batch *b = s->batch;
    int64_t group = 0, group_end;
    for (int64_t g = 1; g < b->groups; g++) ARES_ASSERT(s->row[g] >= s->row[g - 1]);
    while (group < b->groups && s->row[group] < row) group++;
    for (group_end = group; group_end < b->groups && s->row[group_end] < end;) group_end++;
    *first = b->group_start[group];
    *last = b->group_start[group_end];
}

/* Rows [first, last) of the second batch, without micro-batches that nothing depends on. */
static int add_rows(actor *a, const actor_second *s, const learner_scoring *scoring, int64_t first,
                    int64_t last)
{
    const ares_batch *b = s->batch;
    ares_arena arena = { 0 };
    ares_micro_batch *plan = ares_arena_alloc(&arena, (size_t)(last - first + 1) * sizeof *plan);
    int64_t n = ares_pack_plan(b, first, last, scoring->max_token_len, scoring->share_prompts,
                               plan),
            kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *x = s->d_log_prob + b->row_start[plan[i].row];
        bool matters = false;
        for (int64_t k = 0; k < plan[i].out; k++) matters = matters || x[k] != 0;
        if (matters) plan[kept++] = plan[i];
    }
    int rc = learner_add_gradients(&a->learner, scoring, b, plan, kept, s->d_log_prob, NULL);
    ares_arena_fini(&arena);
    return rc;
}

int second_add_gradients(actor *a, const actor_second *s, int64_t row, int64_t end)
{
    learner_scoring scoring = learner_scoring_of(a->cfg);
    scoring.temperature = s->temperature;
    int64_t first, last;
    second_rows(s, row, end, &first, &last);
    ares_arena arena = { 0 };
    learner_rounds rounds;
    int rc = learner_cut_rounds(&a->learner, s->batch, first, last, scoring.share_prompts, &arena,
                                &rounds);
    for (int64_t i = 0; rc == ARES_OK && i < rounds.n; i++)
        rc = learner_end_round(&a->learner,
                               add_rows(a, s, &scoring, rounds.round[i].row, rounds.round[i].end));
    ares_arena_fini(&arena);
    return rc;
}

/*
 * A loss of pairs in the update (VAPOR, docs/vapor.md#order-of-work). It depends on log-probs
 * through sums over spans only, so that its derivatives are there once responses and stored answers
 * have gone forward; each micro-batch goes backward with them. The host computes it, once a
 * mini-batch, from log-probs that it has waited for.
 */

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

/* A row of a batch as the loss reads it; the columns are the batch's. */
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

/* The group of rows [row, end) as a prompt; the stored pair is added by pair_loss. */
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

int pair_loss(update *u, int64_t row, int64_t end)
{
    const actor *a = u->actor;
    const actor_second *s = u->second;
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
    for (int64_t g = 0, i = 0; s && g < s->batch->groups; g++) { /* both ascend by row */
        while (i < n && group_row[i] < s->row[g]) i++;
        if (i == n || group_row[i] != s->row[g]) continue;
        int64_t r = s->batch->group_start[g];
        prompts[i].chosen = text_of(s->batch, r, s->log_prob, s->ref_log_prob, s->d_log_prob);
        prompts[i].rejected = text_of(s->batch, r + 1, s->log_prob, s->ref_log_prob, s->d_log_prob);
    }
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
    dc_upload(&a->learner.columns, u->col.c_log_prob + b->row_start[row], derivatives, bytes);
    return ARES_OK;
}
