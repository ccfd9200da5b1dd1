/*
 * How prompts become scored answers. In order: what all answerers share; answers that continue in
 * a later step; trigger words, which mark tokens for AEPO; the queue of requests to the rollout
 * engine; scoring while others still decode; last the answerer for one prompt and one turn. The
 * answerer of environments is in agents/agents.c.
 */
#include "collect.h"
#include "sft.h"
#include "vapor.h"

#include <math.h>
#include <string.h>

#include "ares/algo.h"
#include "ares/algo_filter.h"

/* What every answerer shares: sampling options, discarded answers, passes over a source. */

void answer_sampling(const ares_train_config *c, ares_sampling *out)
{
    const ares_rollout_config *r = &c->rollout;
    *out = (ares_sampling){ .temperature = (float)r->temperature,
                            .top_p = (float)r->top_p,
                            .top_k = (int32_t)r->top_k,
                            .max_new_tokens = (int32_t)c->data.max_response_length,
                            .ignore_eos = r->ignore_eos,
                            .n_stop_strings = (int32_t)r->stop.count,
                            .stop_strings = r->stop.items };
}

bool answer_discards_failures(const ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    return strcmp(t->agents ? c->agents.on_failure : c->reward.on_failure, "discard") == 0;
}

void answer_discard(const ares_trainer *t, ares_group *groups, int64_t count)
{
    int64_t limit = ares_reward_max_length(t->reward);
    bool failures = answer_discards_failures(t);
    for (int64_t g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].n; i++) {
            ares_trajectory *y = &groups[g].items[i];
            y->discarded = ares_answer_discarded(&t->run.cfg->filter, ares_trajectory_tokens(y),
                                                 limit, y->stopped) ||
                           (y->failed && failures);
        }
}

answer_prompt answer_prompt_of(const ares_source *s, const ares_drawn *d)
{
    return (answer_prompt){ .row = ares_source_row(s, d->id),
                            .draw = d->draw,
                            .partial = d->partial,
                            .local = d->local,
                            .source_step = d->step,
                            .source_weight = d->weight };
}

void answer_expect(const ares_trainer *t, int64_t prompts, int64_t n)
{
    ares_work_expect(t->agents ? ARES_WORK_EPISODES : ARES_WORK_ANSWERS, prompts * n);
}

int64_t answer_share(const ares_trainer *t, int64_t count)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world);
    return (count + ranks - 1 - rank) / ranks;
}

int answer_rows(ares_trainer *t, const answer_pass *p, int64_t at, int64_t end, ares_arena *arena,
                ares_group **out, int64_t *count)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world), k = 0;
    answer_prompt *prompts = ares_arena_alloc(arena, (size_t)(end - at + 1) * sizeof *prompts);
    for (int64_t i = at; i < end; i++)
        if (i % ranks == rank)
            prompts[k++] = (answer_prompt){ .row = ares_source_row(p->source, i), .draw = i };
    ares_rng_key root = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE);
    const answer_job job = { .n_prompts = k,
                             .n = (int32_t)p->n,
                             .prompts = prompts,
                             .sampling = p->sampling,
                             .votes = p->key != ANSWER_BOOTSTRAP && p->n > 1,
                             /* from the top down: steps count from 0, so no key repeats */
                             .key = ares_rng_sub(root, UINT64_MAX - (uint64_t)p->key, 0) };
    *out = ares_arena_calloc(arena, (size_t)k + 1, sizeof **out);
    *count = k;
    return t->generator->answer(t, &job, arena, *out);
}

int32_t partial_budget(int32_t max_response_length, int32_t had)
{
    return ARES_MAX(max_response_length - had, 0);
}

void partial_mask(uint8_t *mask, int32_t had, int32_t n, bool mask_offpolicy)
{
    if (mask_offpolicy && had) memset(mask, 0, (size_t)had);
    memset(mask + had, 1, (size_t)n);
}

/*
 * Trigger words: with worker.rollout.trigger_tokens_file only positions at which the model was
 * about to say one of them may count as high-entropy tokens (docs/aepo.md#trigger-words; the 174
 * words of the published run are examples/trigger_words.json). Words and tokens are compared by
 * their normalised text. Each token is decoded by itself, so a word of two tokens never matches.
 */

/* The words of the file, normalised, each once; value 1: some token spells the word (set later). */
static int read_words(const char *path, ares_map **out)
{
    ares_str text = { 0 }, word = { 0 };
    ares_arena arena = { 0 };
    ares_map *words = ares_map_new();
    const ares_json *list = NULL;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path, &list);
    if (rc == ARES_OK && list->type != ARES_JSON_ARRAY)
        rc = ares_fail(
            ARES_EFORMAT,
            "%s: holds no list; write a JSON array of words, such as [\"wait\", \"but\"]", path);
    else if (rc == ARES_OK && !list->count)
        rc = ares_fail(ARES_EFORMAT,
                       "%s: the list is empty; name a word, or set the option to null and every "
                       "token may count",
                       path);
    for (int64_t i = 0; rc == ARES_OK && i < list->count; i++) {
        if (list->items[i].type != ARES_JSON_STRING)
            rc = ares_fail(ARES_EFORMAT, "%s: entry %lld is no string; write a JSON array of words",
                           path, (long long)i + 1);
        else ares_trigger_normalize(list->items[i].text, &word);
        if (rc == ARES_OK && !word.len)
            rc = ares_fail(ARES_EFORMAT, "%s: entry %lld is empty; remove it", path,
                           (long long)i + 1);
        if (rc == ARES_OK) ares_map_put(words, ares_str_view(&word), 0);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&word);
    ares_str_fini(&text);
    if (rc == ARES_OK) *out = words;
    else ares_map_free(words);
    return rc;
}

void triggers_check(ares_config *cfg, const ares_rollout_config *r)
{
    ares_map *words;
    if (!r->trigger_tokens_file) return;
    if (read_words(r->trigger_tokens_file, &words) == ARES_OK) ares_map_free(words);
    else ares_config_fault(cfg, "worker.rollout.trigger_tokens_file", "%s", ares_error_message());
}

/* Warns of words that no single token spells; fails where no word has such a token. */
static int report(const ares_trainer *t, const char *path, const ares_map *words)
{
    ares_str some = { 0 };
    int64_t total = ares_map_count(words), missing = 0;
    for (int64_t i = 0; i < total; i++) {
        if (ares_map_value(words, i)) continue;
        if (missing++ >= 5) continue;
        ares_str_add_z(&some, some.len ? ", " : "");
        ares_str_add_view(&some, ares_map_key(words, i));
    }
    if (missing && missing < total && ares_world_rank(t->run.world) == 0)
        ares_warn("rollout: worker.rollout.trigger_tokens_file = '%s': %lld of %lld words are no "
                  "single token of this model and never count (%s%s)",
                  path, (long long)missing, (long long)total, some.data,
                  missing > 5 ? ", ..." : "");
    ares_str_fini(&some);
    if (missing < total) return ARES_OK;
    return ares_fail(
        ARES_ECONFIG,
        "rollout: worker.rollout.trigger_tokens_file = '%s': none of its %lld words is a single "
        "token of this model, so that nothing would ever count; name others, or set it to null",
        path, (long long)total);
}

int triggers_load(ares_trainer *t)
{
    const char *path = t->run.cfg->rollout.trigger_tokens_file;
    /* a padded embedding has ids that are no tokens */
    int64_t vocab = t->run.model->cfg.vocab,
            known = ARES_MIN(vocab, ares_tokenizer_vocab_size(t->run.tokenizer));
    ares_map *words;
    if (!path) return ARES_OK;
    ARES_TRY(read_words(path, &words));
    ares_str text = { 0 }, word = { 0 };
    t->triggers = ares_calloc((size_t)vocab, sizeof *t->triggers);
    int rc = ARES_OK;
    for (int32_t id = 0; rc == ARES_OK && id < known; id++) {
        ares_str_clear(&text);
        rc = ares_tokenizer_decode(t->run.tokenizer, &id, 1, false, &text);
        ares_trigger_normalize(ares_str_view(&text), &word);
        if (rc == ARES_OK && word.len && ares_map_get(words, ares_str_view(&word), NULL)) {
            t->triggers[id] = 1;
            ares_map_put(words, ares_str_view(&word), 1);
        }
    }
    if (rc == ARES_OK) rc = report(t, path, words);
    ares_str_fini(&word);
    ares_str_fini(&text);
    ares_map_free(words);
    return rc;
}

/*
 * Requests to the engine. An answer that was begun in an earlier step continues: its tokens are
 * the beginning of the response, and sampling keys and positions are those that it would have had
 * without the break (docs/design.md#trajectories).
 */

int engine_queue_open(engine_queue *q, ares_trainer *t, const ares_sampling *sampling,
                      ares_rng_key key, ares_arena *arena)
{
    *q = (engine_queue){ .t = t, .sampling = *sampling, .key = key, .arena = arena };
    if (!q->sampling.n_stop_ids) { /* else they are an evaluation's own */
        const ares_rollout_config *c = &t->run.cfg->rollout;
        int32_t n = (int32_t)c->stop_token_ids.count;
        int32_t *ids = ares_arena_alloc(arena, (size_t)(n + 1) * sizeof *ids);
        for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)c->stop_token_ids.items[i];
        q->sampling.n_stop_ids = n;
        q->sampling.stop_ids = ids;
    }
    return trainer_renew_rollout(t);
}

/* Appends to an array that grows in the arena. */
static void append(ares_arena *arena, queued what, queued **items, int64_t *n, int64_t *capacity)
{
    if (*n == *capacity) {
        *capacity = *capacity * 2 + 64;
        *items = arena_grown(arena, *items, *n, *capacity, sizeof **items);
    }
    (*items)[(*n)++] = what;
}

/* Queues a request. Errors name the row, whose images may be what cannot be read. */
static int add_request(engine_queue *q, ares_request *r, queued what)
{
    const ares_row *row = what.group->row;
    const ares_row_media *media = row->row_media;
    int rc = ARES_OK;
    if (media) { /* what stands in the places of the row's images and videos */
        ares_seen *seen = ares_arena_alloc(q->arena, (size_t)(media->n_places + 1) * sizeof *seen);
        for (int32_t i = 0; i < media->n_places && rc == ARES_OK; i++)
            rc = ares_features_get(q->t->run.features, media->places[i].medium, &seen[i]);
        r->row_media = media;
        r->seen = seen;
    }
    if (rc == ARES_OK) rc = ares_rollout_add(q->t->rollout, r, NULL);
    if (rc != ARES_OK) return ares_fail_in(rc, "%s:%lld", row->file, (long long)row->line);
    append(q->arena, what, &q->items, &q->n, &q->capacity);
    return ARES_OK;
}

/*
 * A request for all answers of a group. The sampling key names step, draw and attempt, never a
 * place in the queue or a rank: so answers depend on no order.
 */
static ares_request request_of(const engine_queue *q, const ares_group *g, int64_t start)
{
    ares_rng_key of_draw = ares_rng_sub(q->key, (uint64_t)g->step, (uint64_t)g->draw);
    return (ares_request){ .prompt = g->row->prompt,
                           .prompt_len = g->row->prompt_len,
                           .n = g->n,
                           .start = start,
                           .sampling = q->sampling,
                           .adapter = trainer_adapter(q->t),
                           .key = ares_rng_sub(of_draw, (uint64_t)g->attempt, 0) };
}

/* Asks for the rest of a cut answer: its tokens are the beginning of the response. */
static int add_rest(engine_queue *q, queued what, int64_t start)
{
    const ares_trajectory_row *x = &what.partial->rows[0];
    ares_request r = request_of(q, what.group, start);
    size_t prompt = (size_t)x->prompt_len * sizeof *x->prompt,
           response = (size_t)x->n_tokens * sizeof *x->responses;
    if (partial_budget(q->sampling.max_new_tokens, x->n_tokens) == 0) {
        append(q->arena, what, &q->full, &q->n_full, &q->full_capacity);
        return ARES_OK;
    }
    char *ids = ares_arena_alloc(q->arena, prompt + response + 1);
    memcpy(ids, x->prompt, prompt);
    memcpy(ids + prompt, x->responses, response);
    r.prompt = (const int32_t *)(const void *)ids;
    r.prompt_len = x->prompt_len + x->n_tokens;
    r.response_len = x->n_tokens;
    r.n = 1;
    r.first_index = what.partial->index;
    return add_request(q, &r, what);
}

int engine_queue_add(engine_queue *q, const answer_prompt *p, int32_t n, int64_t attempt,
                     int64_t start, ares_group *g)
{
    const ares_group *partial = p->partial;
    *g = (ares_group){ .draw = p->draw,
                       .local = p->local,
                       .source_step = p->source_step,
                       .source_weight = p->source_weight,
                       .step = partial ? partial->step : q->t->run.step,
                       .attempt = partial ? partial->attempt : attempt,
                       .row = p->row,
                       .n = partial ? partial->n : n };
    g->items = ares_arena_calloc(q->arena, (size_t)g->n + 1, sizeof *g->items);
    if (!partial) {
        ares_request r = request_of(q, g, start);
        return add_request(q, &r, (queued){ .group = g });
    }
    for (int32_t i = 0; i < g->n; i++) {
        g->items[i] = partial->items[i];
        if (!g->items[i].cut) continue; /* it ended in an earlier step */
        ARES_TRY(
            add_rest(q, (queued){ .group = g, .partial = &partial->items[i], .item = i }, start));
    }
    return ARES_OK;
}

/* What the engine records, and the column that it becomes. */
#define ENGINE_COLUMNS(X)           \
    X(ids, responses)               \
    X(log_probs, rollout_log_probs) \
    X(entropies, entropies)         \
    X(entropies_1, entropies_1)

/* Makes an answer of its earlier tokens and those that the engine holds until its next clear. */
static void take_answer(const engine_queue *q, const ares_completion *c, const ares_row *row,
                        const ares_trajectory *partial, ares_trajectory *y)
{
    const ares_trainer *t = q->t;
    const ares_trajectory_row *old = partial ? &partial->rows[0] : NULL;
    size_t n = (size_t)c->n_tokens, had = old ? (size_t)old->n_tokens : 0;
    ares_trajectory_row *x = ares_arena_alloc(q->arena, sizeof *x);
    ares_trajectory_row_init(x, row->prompt, row->prompt_len, (int32_t)(had + n), q->arena);
    x->hwe_candidates = NULL;
    if (t->triggers) {
        /* recorded where trigger_match asks for it */
        const int32_t *ids = c->most_likely ? c->most_likely : c->ids;
        x->hwe_candidates = ares_arena_alloc(q->arena, had + n + 1);
        for (size_t i = 0; i < n; i++) x->hwe_candidates[had + i] = t->triggers[ids[i]];
    }
#define BEFORE(type, name, stage, doc) \
    if (had && x->name) memcpy(x->name, old->name, had * sizeof *x->name);
    ARES_BATCH_SAMPLED(BEFORE)
#undef BEFORE
    partial_mask(x->response_mask, (int32_t)had, (int32_t)n,
                 t->run.cfg->oversampling.mask_offpolicy);
#define TAKE(from, into) \
    if (n) memcpy(x->into + had, c->from, n * sizeof *c->from);
    ENGINE_COLUMNS(TAKE)
#undef TAKE
    for (size_t i = 0; i < n; i++)
        x->weight_versions[had + i] = (int32_t)t->actor.learner.optim.updates;
    *y = (ares_trajectory){ .index = c->index,
                            .stopped = c->finish == ARES_FINISH_STOP,
                            .cut = c->finish == ARES_FINISH_CUT,
                            .n_rows = 1,
                            .rows = x };
}

ares_trajectory *engine_queue_next(engine_queue *q, ares_group **of)
{
    ares_completion c = { .finish = ARES_FINISH_LENGTH };
    queued what;
    if (q->n_full) {
        what = q->full[--q->n_full];
        c.index = what.partial->index;
    } else if (ares_rollout_next(q->t->rollout, &c)) what = q->items[c.request];
    else return NULL;
    ares_trajectory *y = &what.group->items[what.partial ? what.item : c.index];
    take_answer(q, &c, what.group->row, what.partial, y);
    *of = what.group;
    return y;
}

/* Finished answers are judged while others still decode; scoring_wait writes their scores. */

typedef struct judged {
    ares_reward_item item;
    ares_trajectory *trajectory;
    struct judged *next;
} judged;

void scoring_open(scoring *s, const ares_trainer *t, ares_arena *arena)
{
    *s = (scoring){ .reward = t->reward,
                    .tokenizer = t->run.tokenizer,
                    .skip_special_tokens = t->run.cfg->reward.skip_special_tokens,
                    .span = vapor_wanted(t->run.cfg) ? &t->run.cfg->vapor : NULL,
                    .arena = arena };
}

int scoring_submit(scoring *s, const ares_row *row, ares_trajectory *y)
{
    const ares_trajectory_row *answer = &y->rows[0];
    ares_str_clear(&s->text);
    ARES_TRY(ares_tokenizer_decode(s->tokenizer, answer->responses, answer->n_tokens,
                                   s->skip_special_tokens, &s->text));
    y->response =
        (ares_view){ ares_arena_copy(s->arena, s->text.data ? s->text.data : "", s->text.len),
                     s->text.len };
    y->n_parts = ares_reward_count(s->reward);
    y->parts = ares_arena_calloc(s->arena, (size_t)y->n_parts + 1, sizeof *y->parts);
    ares_view text = y->response;
    if (s->unjudged) {
        y->accuracy = NAN;
        return ARES_OK;
    }
    if (s->span && !vapor_span(s->span, s->tokenizer, y, s->arena, &text))
        return ARES_OK; /* nothing to judge: the score stays 0, the answer is wrong */
    /* in the arena: the reward manager reads it while the engine goes on */
    judged *x = ares_arena_calloc(s->arena, 1, sizeof *x);
    *x = (judged){ .item = { .in = { .response = text,
                                     .ground_truth = row->ground_truth,
                                     .structured = row->structured,
                                     .prompt = row->prompt_text,
                                     .stopped = y->stopped,
                                     .row = row->json,
                                     .ids = answer->responses,
                                     .response_tokens = answer->n_tokens },
                             .parts = y->parts,
                             .arena = s->arena,
                             .asks_answer = s->votes },
                   .trajectory = y,
                   .next = s->first };
    s->first = x;
    ares_reward_submit(s->reward, &x->item);
    return ARES_OK;
}

void scoring_wait(scoring *s, ares_metrics *m)
{
    double started = ares_now_s();
    ares_reward_wait(s->reward);
    if (m) ares_metrics_add(m, "timing_s/reward", ares_now_s() - started);
    for (const judged *x = s->first; x; x = x->next) {
        x->trajectory->score = x->item.score;
        x->trajectory->unshaped = x->item.unshaped;
        x->trajectory->accuracy = x->item.accuracy;
        x->trajectory->details = x->item.details;
        x->trajectory->feedback = x->item.feedback;
        x->trajectory->vote = x->item.answer;
        x->trajectory->failed = x->item.failed;
    }
    s->first = NULL;
}

void scoring_close(scoring *s, ares_metrics *m)
{
    scoring_wait(s, m);
    ares_str_fini(&s->text);
}

/*
 * Stored answers of a distillation (docs/distillation.md#the-loss). Whether a prompt is
 * answered or its stored answer is learnt depends on its draw alone, not on ranks or threads.
 */

static bool draws_stored(const ares_train_config *c, int64_t draw)
{
    double lmbda = c->distillation.lmbda;
    ares_rng_key key = ares_rng_root((uint64_t)c->data.seed, ARES_RNG_STORED);
    return teacher_wanted(c) && lmbda < 1 && ares_rng_uniform(key, (uint64_t)draw) >= lmbda;
}

/* The group of a stored answer: one row, which nobody sampled and nobody judges. */
static int take_stored(const ares_trainer *t, const answer_prompt *p, ares_arena *arena,
                       ares_group *g)
{
    ares_train_config c = *t->run.cfg; /* rows are read as sft reads them */
    c.sft.response_key = c.distillation.response_key;
    c.sft.messages_key = "";
    const sft_encoder e = { &c, t->run.encoder, t->run.tokenizer, &t->run.model->cfg };
    sft_row row;
    ARES_TRY(sft_row_encode(&e, p->row, arena, &row));
    int32_t n = (int32_t)ARES_MIN((int64_t)(row.n - row.prompt), c.data.max_response_length);
    ares_trajectory_row *x = ares_arena_alloc(arena, sizeof *x);
    ares_trajectory *y = ares_arena_calloc(arena, 1, sizeof *y);
    ares_trajectory_row_init(x, p->row->prompt, p->row->prompt_len, n, arena);
    for (int32_t i = 0; i < n; i++) {
        x->responses[i] = row.ids[row.prompt + i];
        x->response_mask[i] = row.trained[row.prompt + i];
        x->weight_versions[i] = ARES_NOT_SAMPLED;
    }
    ares_str text = { 0 };
    int rc = ares_tokenizer_decode(t->run.tokenizer, x->responses, n, c.reward.skip_special_tokens,
                                   &text);
    int32_t parts = ares_reward_count(t->reward);
    *y = (ares_trajectory){
        .stored = 1,
        .stopped = n == row.n - row.prompt,
        .accuracy = NAN,
        .n_rows = 1,
        .rows = x,
        .n_parts = parts,
        .parts = ares_arena_calloc(arena, (size_t)parts + 1, sizeof *y->parts),
        .response = { ares_arena_copy(arena, text.data ? text.data : "", text.len), text.len }
    };
    ares_str_fini(&text);
    *g = (ares_group){ .draw = p->draw,
                       .local = p->local,
                       .source_step = p->source_step,
                       .source_weight = p->source_weight,
                       .step = t->run.step,
                       .row = p->row,
                       .n = 1,
                       .items = y };
    return rc;
}

/* One prompt, n answers of one turn: the engine samples them, the reward manager judges them. */

/* One step of the engine; what has ended goes to the rewards. */
static int step(engine_queue *q, scoring *scores, int64_t *active)
{
    ares_trajectory *y;
    ares_group *g;
    ARES_TRY(ares_signal_poll());
    ARES_TRY(ares_rollout_step(q->t->rollout, active));
    while ((y = engine_queue_next(q, &g))) {
        ares_work_done(ARES_WORK_ANSWERS, 1);
        ARES_TRY(scoring_submit(scores, g->row, y));
    }
    return ARES_OK;
}

/*
 * Queues requests in the order of the prompts. The pool decodes all images from the beginning on;
 * while a prompt waits for its images, the prompts before it are answered.
 */
static int ask(engine_queue *q, const answer_job *job, scoring *scores, ares_group *out)
{
    ares_features *f = q->t->run.features;
    for (int64_t p = 0; f && p < job->n_prompts; p++)
        if (job->prompts[p].row->row_media) ares_features_ahead(f, job->prompts[p].row->row_media);
    for (int64_t p = 0, active = 0; p < job->n_prompts; p++) {
        const ares_row_media *s = job->prompts[p].row->row_media;
        if (job->trains && draws_stored(q->t->run.cfg, job->prompts[p].draw)) {
            ARES_TRY(take_stored(q->t, &job->prompts[p], q->arena, &out[p]));
            continue;
        }
        while (s && active && !ares_features_ready(f, s)) ARES_TRY(step(q, scores, &active));
        ARES_TRY(engine_queue_add(q, &job->prompts[p], job->n, job->attempt, 0, &out[p]));
        active = 1;
    }
    return ARES_OK;
}

/* The answer of generate_single_turn (generator.answer). */
static int answer(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    engine_queue q;
    scoring scores;
    int64_t active = 1;
    ARES_TRY(engine_queue_open(&q, t, job->sampling, job->key, arena));
    scoring_open(&scores, t, arena);
    scores.votes = job->votes;
    scores.unjudged = job->trains && !trainer_judges(t->run.cfg);
    int rc = ask(&q, job, &scores, out);
    while (active && rc == ARES_OK) rc = step(&q, &scores, &active);
    rc = ares_rollout_finish(t->rollout, rc); /* others of its group may still decode */
    scoring_close(&scores, job->metrics);
    return rc == ARES_OK ? ares_signal_poll() : rc;
}

const generator generate_single_turn = { .answer = answer };
