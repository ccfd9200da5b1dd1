/*
 * Stored answers learn in the same optimizer step as the responses to their prompt. Their tokens
 * never change, so the reference sees each of them once; log-probs are at temperature 1, as in DPO.
 */
#include "vapor/vapor.h"

#include <string.h>

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

/* A reference that moves is read from the checkpoint that holds what it said. */
static uint64_t hash_of_reference(const ares_trainer *t)
{
    const char *dtype = t->run.cfg->ref.dtype ? t->run.cfg->ref.dtype : "";
    uint64_t h = ares_fnv1a(ARES_FNV1A, &t->run.model_weights, sizeof t->run.model_weights);
    bool moves = t->run.cfg->vapor.sync_ref_model;
    return ares_fnv1a(ares_fnv1a(h, dtype, strlen(dtype) + 1), &moves, sizeof moves);
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
    v->reference = hash_of_reference(t);
    say_counts(c, &v->pairs.counts, v->pairs.n);
    return ARES_OK;
}

void vapor_close(vapor *v)
{
    if (!v) return;
    vapor_forget(v);
    ares_free(v->ref);
    ares_free(v->fresh);
    ares_pairs_fini(&v->pairs);
    ares_batch_fini(&v->batch);
    ares_free(v);
}

static void add_answer(ares_batch *b, const ares_stored_answer *a, int32_t index,
                       const ares_sample *of)
{
    ares_batch_add_row(b,
                       &(ares_sample){ .draw = of->draw,
                                       .index = index,
                                       .row = of->row,
                                       .prompt = a->ids,
                                       .prompt_len = a->prompt_len,
                                       .sight = of->row->sight,
                                       .span = a->span,
                                       .span_end = a->span_end },
                       a->n);
}

static void put_ids(ares_batch *b, int64_t row, const ares_stored_answer *a)
{
    memcpy(b->responses + b->row_start[row], a->ids + a->prompt_len, (size_t)a->n * sizeof *a->ids);
}

/* What the reference has said of a group of the second batch; NULL: nothing yet. */
static const float *kept(const vapor *v, int64_t group)
{
    return v->ref[v->batch.samples[v->batch.group_start[group]].row->id];
}

/*
 * Log-probs of the answers that the reference has not seen yet. All ranks ask, or none, since they
 * may hold its weights in parts.
 */
static int ask_reference(vapor *v, reference *ref, float *out)
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
    if (!most) return ARES_OK;
    scoring.temperature = v->second.temperature;
    return learner_log_probs_of(&ref->learner, &scoring, b, runs, n, out);
}

static int reference_log_probs_of(vapor *v, reference *ref, float *out)
{
    const ares_batch *b = &v->batch;
    ARES_TRY(ask_reference(v, ref, out));
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t row = b->group_start[g], from = b->row_start[row];
        size_t bytes = (size_t)(b->row_start[b->group_start[g + 1]] - from) * sizeof *out;
        if (kept(v, g)) memcpy(out + from, kept(v, g), bytes);
        else vapor_keep(v, b->samples[row].row->id, out + from);
    }
    return ARES_OK;
}

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
        add_answer(s, &p->chosen, 0, of);
        add_answer(s, &p->rejected, 1, of);
    }
    ARES_PUT(s, responses);
    for (int64_t g = 0; g < s->groups; g++) {
        const ares_pair *p = &v->pairs.pair[s->samples[s->group_start[g]].row->id];
        put_ids(s, s->group_start[g], &p->chosen);
        put_ids(s, s->group_start[g] + 1, &p->rejected);
    }
    float **const columns[] = { &v->second.log_prob, &v->second.d_log_prob };
    for (int i = 0; i < ARES_COUNT(columns); i++)
        *columns[i] = ares_arena_calloc(&s->arena, (size_t)s->tokens + 1, sizeof(float));
    float *of_ref = ares_arena_calloc(&s->arena, (size_t)s->tokens + 1, sizeof *of_ref);
    v->second.ref_log_prob = of_ref;
    return reference_log_probs_of(v, ref, of_ref);
}

int vapor_pairs(vapor *v, reference *ref, ares_world *world, ares_batch *b, ares_metrics *m)
{
    v->n_fresh = 0;
    ARES_TRY(ares_world_agree(world, make_pairs(v, ref, b)));
    ARES_TRY(vapor_share(v, world));
    if (v->ref) ares_metrics_set(m, "vapor/ref_new_pairs", (double)v->n_fresh);
    return ARES_OK;
}

int vapor_sync(vapor *v, reference *ref, const learner *policy, int64_t step)
{
    const ares_vapor_config *c = &v->cfg->vapor;
    if (!c->sync_ref_model || step % c->ref_model_sync_steps) return ARES_OK;
    vapor_forget(v);
    if (ref->features) ares_features_forget(ref->features);
    return ares_model_mix(ref->learner.model, policy->model, c->ref_model_mixup_alpha);
}

const actor_second *vapor_second(const vapor *v)
{
    return v && v->ref && v->pairs.counts.pairs ? &v->second : NULL;
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
