/*
 * Training in environments. In order: opening and closing; the source that makes groups of
 * environments; threads for calls to other programs; the answerer, which plays all episodes of a
 * draw side by side.
 */
#include "agents.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ares/core.h"

/* Definitions, style and environments of a run: opening and closing. */

bool agents_wanted(const ares_train_config *c)
{
    return c->agents_train.tags.count || c->agents_val.tags.count;
}

/* ---------------- definitions */
static int define(ares_config *cfg, const ares_agent_side_config *c, const char *path,
                  agents_side *s)
{
    int64_t n = c->tags.count;
    *s = (agents_side){ .cfg = c, .path = path };
    s->definitions = ares_calloc((size_t)n + 1, sizeof *s->definitions);
    s->groups = ares_calloc((size_t)n + 1, sizeof *s->groups);
    for (int64_t k = 0; k < n; k++) {
        s->groups[k] = c->n_groups.count == n ? c->n_groups.items[k] : c->groups / n;
        ARES_TRY(ares_env_define(cfg, c->tags.items[k], &s->definitions[k]));
    }
    return ARES_OK;
}

int agents_define(ares_config *cfg, const ares_train_config *c, agents **out)
{
    agents *a = *out = ares_calloc(1, sizeof *a);
    a->cfg = c;
    ARES_TRY(define(cfg, &c->agents_train, "env.train", &a->train));
    return define(cfg, &c->agents_val, "env.val", &a->val);
}

/* Whether a tag's type has a program that plays by itself; program false: whether one has none. */
static bool has_type(const agents *a, bool program)
{
    const agents_side *sides[] = { &a->train, &a->val };
    for (int i = 0; i < ARES_COUNT(sides); i++)
        for (int64_t k = 0; k < sides[i]->cfg->tags.count; k++)
            if ((sides[i]->definitions[k].type->program != NULL) == program) return true;
    return false;
}

static int open_side(agents_side *s)
{
    for (int64_t k = 0; k < s->cfg->tags.count; k++)
        ARES_TRY(ares_env_definition_open(&s->definitions[k]));
    return ARES_OK;
}

static void close_side(agents_side *s)
{
    for (int64_t k = 0; s->definitions && k < s->cfg->tags.count; k++)
        ares_env_definition_close(&s->definitions[k]);
    ares_free(s->definitions);
    ares_free(s->groups);
}

/* ---------------- style */
/*
 * Special tokens: no text of a conversation may hold one, and with token_exact a turn ends with the
 * first one that is sampled, so that no answer can begin a message of another role. Nor may a text
 * hold the mark that stands for answers.
 */
static void open_specials(agents *a, const ares_tokenizer *tok)
{
    const ares_i64s *more = &a->cfg->rollout.stop_token_ids;
    int64_t vocab = ares_tokenizer_vocab_size(tok), n = 0;
    for (int64_t id = 0; id < vocab; id++) n += ares_tokenizer_is_special(tok, (int32_t)id);
    a->specials = ares_calloc((size_t)n + 2, sizeof *a->specials); /* the mark, and a NULL */
    a->stop_ids = ares_calloc((size_t)(n + more->count) + 1, sizeof *a->stop_ids);
    n = 0;
    for (int64_t id = 0; id < vocab; id++) {
        if (!ares_tokenizer_is_special(tok, (int32_t)id)) continue;
        ares_view text = ares_tokenizer_token_bytes(tok, (int32_t)id);
        if (!text.len) continue;
        char *copy = ares_calloc(text.len + 1, 1);
        memcpy(copy, text.data, text.len);
        if (strcmp(copy, "<|im_start|>") == 0) a->style.start_id = (int32_t)id;
        a->stop_ids[n] = (int32_t)id;
        a->specials[n++] = copy;
    }
    a->specials[n] = ares_strdup(CONVERSATION_MARK);
    a->style.format.specials = a->specials;
    a->style.format.n_specials = (int)n + 1;
    /* else the text is written anew, and an answer ends with the model's own end tokens alone */
    if (!a->style.token_exact) n = 0;
    for (int64_t i = 0; i < more->count; i++) a->stop_ids[n++] = (int32_t)more->items[i];
    a->stops = (ares_sampling){ .n_stop_ids = (int32_t)n, .stop_ids = a->stop_ids };
}

static int open_style(agents *a, const ares_prompt_encoder *encoder, const ares_tokenizer *tok,
                      int64_t limit)
{
    const ares_agents_config *c = &a->cfg->agents;
    a->style = (conversation_style){
        .format = { .think = c->enable_think,
                    .separator = c->action_separator,
                    .max_actions_per_turn = c->max_actions_per_turn },
        .format_penalty = c->format_penalty,
        .chat = ares_prompt_encoder_chat(encoder),
        .tokenizer = tok,
        .context = strcmp(c->context_window_mode, "full") == 0          ? CONTEXT_FULL
                   : strcmp(c->context_window_mode, "single_turn") == 0 ? CONTEXT_SINGLE
                                                                        : CONTEXT_LIMITED,
        .window = c->max_context_window,
        .limit = limit,
        .token_exact = c->token_exact,
        .warn_in_training = c->train_text_include_warning,
        .mask_prompts = c->enable_response_mask,
        .mask_template = c->mask_template_tokens,
        .turn_scores = c->use_turn_scores,
        .start_id = -1,
    };
    open_specials(a, tok);
    if (a->style.token_exact || a->style.start_id >= 0 || !has_type(a, false)) return ARES_OK;
    return ares_fail(ARES_ECONFIG,
                     "env: env.token_exact = false: the masks of rewritten text are made from the "
                     "token <|im_start|>, which the tokenizer does not have; set it to true");
}

/* File descriptors of a side's environments that are open at once, on one of `ranks`. */
static int64_t descriptors_of(const agents_side *s, int64_t draw, int64_t ranks)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < s->cfg->tags.count; k++) {
        const ares_env_definition *d = &s->definitions[k];
        int64_t rounds = (draw + s->cfg->groups - 1) / s->cfg->groups, all = s->groups[k] * rounds,
                /* a rank takes every ranks-th group; a draw may begin within a tag */
            share = ranks == 1 ? all : ARES_MIN(all, all / ranks + 2);
        if (d->type->descriptors)
            sum += d->type->descriptors(d->options, share * s->cfg->group_size);
    }
    return sum;
}

/* Programs and sessions stay open until the run ends, so their descriptors are reserved first. */
static int reserve_descriptors(const agents *a, int64_t ranks)
{
    const ares_data_config *c = &a->cfg->data;
    int64_t needed, limit,
        draw = ARES_MAX(a->train.cfg->groups,
                        ARES_MAX(c->rollout_batch_size, c->mini_rollout_batch_size)),
        n = descriptors_of(&a->train, draw, ranks) +
            descriptors_of(&a->val, a->val.cfg->groups, ranks);
    if (n == 0 || ares_descriptors_reserve(n, &needed, &limit)) return ARES_OK;
    return ares_fail(ARES_EIO,
                     "env: the environments hold %lld file descriptors at once, so that a process "
                     "needs %lld, and may have %lld; raise the limit (ulimit -n %lld), lower "
                     "env.train.groups or env.val.groups, or let a process serve more of them "
                     "(environments_per_process)",
                     (long long)n, (long long)needed, (long long)limit, (long long)needed);
}

int agents_open(agents *a, const ares_prompt_encoder *encoder, const ares_tokenizer *tokenizer,
                int64_t limit, int64_t ranks)
{
    const char *context = a->cfg->distillation.context;
    if (teacher_wanted(a->cfg) && strcmp(context, "none") != 0 && has_type(a, true))
        return ares_fail(ARES_ECONFIG,
                         "env: distillation.context = '%s': a program that plays by itself writes "
                         "its own conversations, of which no message is known to be the first; set "
                         "none",
                         context);
    ARES_TRY(open_style(a, encoder, tokenizer, limit));
    ARES_TRY(reserve_descriptors(a, ranks));
    ARES_TRY(open_side(&a->train));
    ARES_TRY(open_side(&a->val));
    if (!a->style.token_exact && has_type(a, false))
        ares_log(ARES_LOG_WARN,
                 "env: env.token_exact = false: answers are written anew and encoded again, as the "
                 "published code does, so what is trained is not exactly what was sampled");
    return ARES_OK;
}

/* ---------------- environments */
/* Takes an environment of the definition that no episode uses, or makes one. */
static int agents_take_place(agents *a, const ares_env_definition *d, agents_place **out)
{
    for (int64_t i = 0; i < a->n_places; i++) {
        agents_place *p = a->places[i];
        if (p->used || p->env.definition != d) continue;
        p->used = true;
        *out = p;
        return ARES_OK;
    }
    a->places = ares_realloc(a->places, (size_t)(a->n_places + 1) * sizeof *a->places);
    agents_place *p = a->places[a->n_places++] = ares_calloc(1, sizeof *p);
    p->used = true;
    *out = p;
    return ares_env_init(&p->env, d);
}

void agents_close(agents *a)
{
    if (!a) return;
    players_close(a->players);
    for (int64_t i = 0; i < a->n_places; i++) {
        ares_env_fini(&a->places[i]->env);
        ares_free(a->places[i]);
    }
    ares_free(a->places);
    close_side(&a->train);
    close_side(&a->val);
    for (int i = 0; a->specials && a->specials[i]; i++)
        ares_free((void *)(uintptr_t)a->specials[i]);
    ares_free(a->specials);
    ares_free(a->stop_ids);
    measures_fini(&a->measures);
    ares_free(a);
}

/*
 * Groups of environments as a source of prompts. A draw is a group; its number gives the group's
 * seed, so that a resumed run meets the same rooms as an uninterrupted one. The source never ends,
 * and no prompt returns.
 */

typedef struct env_source {
    agents_row *rows; /* [n] the groups of a round */
    int64_t n, drawn;
    ares_arena arena;
} env_source;

static int64_t prompts_per_draw(const void *state)
{
    (void)state;
    return 1;
}

static int next(void *state, int64_t n, ares_drawn *out)
{
    env_source *s = state;
    for (int64_t i = 0; i < n; i++, s->drawn++)
        out[i] = (ares_drawn){ .draw = s->drawn, .id = s->drawn % s->n };
    return ARES_OK;
}

static const ares_row *row(const void *state, int64_t id)
{
    return &((const env_source *)state)->rows[id].row;
}

static int64_t count(const void *state)
{
    return ((const env_source *)state)->n;
}

static int64_t none(const void *state)
{
    (void)state;
    return 0;
}

static void skip(void *state, int64_t id)
{
    (void)state;
    (void)id;
    ARES_ASSERT(false && "a row of an endless source is skipped"); /* ares_source_gids refuses it */
}

static void save(const void *state, ares_str *json)
{
    ares_json_write_i64(ares_json_key(json, "groups_drawn"), ((const env_source *)state)->drawn);
}

static int load(void *state, const ares_json *json, bool other_rows)
{
    const ares_json *drawn = ares_json_get(json, "groups_drawn");
    (void)other_rows;
    if (!drawn || drawn->type != ARES_JSON_INT || drawn->big || drawn->integer < 0)
        return ares_fail(ARES_EFORMAT, "no count 'groups_drawn'; the checkpoint is damaged");
    ((env_source *)state)->drawn = drawn->integer;
    return ARES_OK;
}

static void close_source(void *state)
{
    ares_free(((env_source *)state)->rows);
    ares_arena_fini(&((env_source *)state)->arena);
    ares_free(state);
}

static const ares_source_kind kind = { .name = "environments",
                                       .endless = true,
                                       .draw = prompts_per_draw,
                                       .next = next,
                                       .row = row,
                                       .count = count,
                                       .epoch = none,
                                       .epoch_draws = none,
                                       .skip = skip,
                                       .skipped = none,
                                       .save = save,
                                       .load = load,
                                       .close = close_source };

uint64_t agents_seed(const agents_row *row, int64_t draw)
{
    return ares_env_seed(row->seed, draw / row->groups, row->groups, draw % row->groups);
}

int agents_source(const agents_side *side, ares_source *out)
{
    env_source *s = ares_calloc(1, sizeof *s);
    s->rows = ares_calloc((size_t)side->cfg->groups + 1, sizeof *s->rows);
    for (int64_t k = 0; k < side->cfg->tags.count; k++)
        for (int64_t i = 0; i < side->groups[k]; i++) {
            const ares_env_definition *d = &side->definitions[k];
            ares_json *known = ares_arena_calloc(&s->arena, 1, sizeof *known);
            known->type = ARES_JSON_OBJECT;
            if (d->texts.privileged_context) { /* of which a teacher is told, as of a data row */
                ares_json *value = ares_arena_calloc(&s->arena, 1, sizeof *value);
                ares_json_member *member = ares_arena_calloc(&s->arena, 1, sizeof *member);
                *value = (ares_json){ .type = ARES_JSON_STRING,
                                      .text = ares_view_of(d->texts.privileged_context) };
                *member = (ares_json_member){ ARES_VIEW("privileged_context"), value };
                known->members = member;
                known->count = 1;
            }
            s->rows[s->n] = (agents_row){ .row = { .file = d->tag,
                                                   .line = i + 1,
                                                   .id = s->n,
                                                   .json = known,
                                                   .prompt_text = ares_view_of(d->tag),
                                                   .data_source = d->tag },
                                          .definition = d,
                                          .seed = (uint64_t)side->cfg->seed,
                                          .groups = side->cfg->groups,
                                          .first_id = s->n * side->cfg->group_size,
                                          .split = side->path + strlen("env.") };
            s->n++;
        }
    *out = (ares_source){ .kind = &kind, .state = s };
    return ARES_OK;
}

/*
 * Calls to other programs, side by side: each on a thread of its own, which mostly sleeps. To start
 * one takes microseconds, and the call takes at least as long.
 */

typedef struct waiting waiting;

typedef struct wait_call {
    int (*ask)(void *x);
    void *x;
    int rc; /* what ask returned */
    char message[512];
    waiting *of;
    pthread_t thread;
    bool threaded; /* false: no thread could be started, so ask was called at once */
    struct wait_call *next;
} wait_call;

struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t returned;
    wait_call *done; /* a list of calls that have returned */
    int64_t running; /* calls that waiting_next has not returned yet */
};

static void *call(void *x)
{
    wait_call *c = x;
    waiting *w = c->of;
    c->rc = c->ask(c->x);
    /* copied: error messages belong to a thread */
    if (c->rc != ARES_OK) snprintf(c->message, sizeof c->message, "%s", ares_error_message());
    pthread_mutex_lock(&w->lock);
    c->next = w->done;
    w->done = c;
    pthread_cond_signal(&w->returned);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/*
 * A call that has returned, in no special order; NULL: none has. block: waits for one, so that NULL
 * means that none is running
 */
static wait_call *waiting_next(waiting *w, bool block)
{
    pthread_mutex_lock(&w->lock);
    while (block && w->running && !w->done) pthread_cond_wait(&w->returned, &w->lock);
    wait_call *c = w->done;
    if (c) w->done = c->next;
    pthread_mutex_unlock(&w->lock);
    if (!c) return NULL;
    w->running--;
    if (c->threaded) pthread_join(c->thread, NULL);
    return c;
}

/*
 * Episodes of a draw. All environments go side by side through the continuous batch: an episode's
 * next turn is queued when its environment has answered, while others are still being sampled.
 * Environments that wait for another program are asked on threads, one each. The results depend on
 * seeds and weights alone, not on the order in which the model or the environments answer.
 */

typedef struct agent_play {
    ares_trainer *t;
    agents *a;
    const answer_job *job;
    ares_arena *arena;
    ares_group *out;
    episode *episodes; /* in the order of groups and their members */
    int64_t n, active;
    int64_t sampling; /* episodes whose turns are queued */
    waiting waiting;  /* for environments that are asked on threads */
    wait_call *calls; /* [n] */
    int64_t *resets;  /* per group: resets that it still waits for */
    int64_t *queued;  /* by the engine's number: the first episode that the request is for */
    int64_t n_queued, queued_capacity;
    ares_ids ids; /* scratch */
} agent_play;

/* ---------------- requests */
/* One request for episodes [e, e + n), whose prompts are the same. */
static int queue(agent_play *p, int64_t e, int32_t n)
{
    const episode *x = &p->episodes[e];
    const ares_group *g = &p->out[x->prompt];
    const conversation_turn *turn = &x->talk.turns[x->talk.n - 1];
    ares_rng_key of_draw = ares_rng_sub(p->job->key, (uint64_t)g->step, (uint64_t)g->draw);
    ares_request q = { .prompt = turn->prompt,
                       .prompt_len = turn->prompt_len,
                       .n = n,
                       .first_index = x->item,
                       .turn = (uint64_t)x->talk.n - 1,
                       .sampling = *p->job->sampling,
                       .adapter = trainer_adapter(p->t),
                       .key = ares_rng_sub(of_draw, (uint64_t)g->attempt, 0) };
    q.sampling.n_stop_ids = p->a->stops.n_stop_ids;
    q.sampling.stop_ids = p->a->stops.stop_ids;
    q.sampling.max_new_tokens =
        (int32_t)ARES_MIN(q.sampling.max_new_tokens, p->a->style.limit - turn->prompt_len);
    if (p->n_queued == p->queued_capacity) {
        p->queued_capacity = p->queued_capacity * 2 + 256;
        p->queued = ares_realloc(p->queued, (size_t)p->queued_capacity * sizeof *p->queued);
    }
    int rc = ares_rollout_add(p->t->rollout, &q, NULL);
    if (rc != ARES_OK) return ares_fail_in(rc, "env: %s", x->row->definition->tag);
    p->queued[p->n_queued++] = e;
    p->sampling += n;
    return ARES_OK;
}

/* ---------------- calls of environments */
static int reset_on_thread(void *x)
{
    return episode_reset(x);
}

static int act_on_thread(void *x)
{
    return episode_act(x);
}

static bool waits(const episode *x)
{
    return x->row->definition->type->waits;
}

/* Calls what(x) on a thread of its own; `hear` goes on with the episode after it. */
static void ask(agent_play *p, int64_t e, int (*what)(void *x))
{
    wait_call *c = &p->calls[e];
    sigset_t every, before;
    *c = (wait_call){ .ask = what, .x = &p->episodes[e], .of = &p->waiting };
    p->waiting.running++;
    sigfillset(&every); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    c->threaded = pthread_create(&c->thread, NULL, call, c) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!c->threaded) call(c); /* the system has no more threads: one after the other */
}

static int finish(agent_play *p, int64_t e)
{
    episode *x = &p->episodes[e];
    p->active--;
    ares_work_done(ARES_WORK_EPISODES, 1);
    ARES_TRY(episode_end(x, p->t, p->arena, &p->out[x->prompt].items[x->item]));
    x->place->used = false;
    return ARES_OK;
}

/* The next turn is queued, or the episode is over. */
static int go_on(agent_play *p, int64_t e)
{
    episode *x = &p->episodes[e];
    if (episode_over(x, p->t->run.cfg)) return finish(p, e);
    ARES_TRY(episode_begin_turn(x, p->arena, &p->ids));
    return x->full ? finish(p, e) : queue(p, e, 1);
}

/* The model has answered a turn: the environment acts on it. */
static int answered(agent_play *p, int64_t e, const ares_completion *c)
{
    episode *x = &p->episodes[e];
    ARES_TRY(episode_read(x, c, (int32_t)p->t->actor.learner.optim.updates, p->arena));
    if (waits(x)) {
        ask(p, e, act_on_thread);
        return ARES_OK;
    }
    ARES_TRY(episode_act(x));
    episode_note(x, p->arena);
    return go_on(p, e);
}

/*
 * The environments of a group have begun: first turns with the same prompt, as those of a group
 * mostly are, share a request.
 */
static int begin_group(agent_play *p, int64_t first)
{
    const int64_t after = first + p->job->n;
    for (int64_t e = first; e < after; e++)
        ARES_TRY(episode_begin_turn(&p->episodes[e], p->arena, &p->ids));
    for (int64_t e = first, end; e < after; e = end) {
        const conversation_turn *turn = &p->episodes[e].talk.turns[0];
        end = e + 1;
        if (p->episodes[e].full) {
            ARES_TRY(finish(p, e));
            continue;
        }
        for (; end < after; end++) {
            const conversation_turn *other = &p->episodes[end].talk.turns[0];
            if (other->prompt_len != turn->prompt_len ||
                memcmp(other->prompt, turn->prompt,
                       (size_t)turn->prompt_len * sizeof *turn->prompt) != 0)
                break;
        }
        ARES_TRY(queue(p, e, (int32_t)(end - e)));
    }
    return ARES_OK;
}

/*
 * Goes on with episodes whose environments have answered; waits for one where no turn is being
 * sampled.
 */
static int hear(agent_play *p, bool sampling)
{
    wait_call *c;
    while ((c = waiting_next(&p->waiting, !sampling && p->sampling == 0))) {
        episode *x = c->x;
        int64_t e = x - p->episodes, first = e - x->item;
        if (c->rc != ARES_OK) return ares_fail(c->rc, "%s", c->message);
        if (c->ask == act_on_thread) {
            episode_note(x, p->arena);
            ARES_TRY(go_on(p, e));
        } else if (--p->resets[x->prompt] == 0) ARES_TRY(begin_group(p, first));
    }
    return ARES_OK;
}

/* ---------------- a draw */
static int open_group(agent_play *p, int64_t prompt)
{
    const answer_prompt *from = &p->job->prompts[prompt];
    const agents_row *row = (const agents_row *)(const void *)from->row;
    ares_group *g = &p->out[prompt];
    if (from->partial)
        return ares_fail(ARES_EUNSUPPORTED, "env: episodes that were cut cannot go on");
    *g = (ares_group){ .draw = from->draw,
                       .local = from->local,
                       .source_step = from->source_step,
                       .source_weight = from->source_weight,
                       .step = p->t->run.step,
                       .attempt = p->job->attempt,
                       .row = from->row,
                       .n = p->job->n };
    g->items = ares_arena_calloc(p->arena, (size_t)g->n + 1, sizeof *g->items);
    for (int32_t i = 0; i < g->n; i++) {
        episode *x = &p->episodes[p->n];
        *x = (episode){ .prompt = prompt, .item = i, .row = row };
        ARES_TRY(agents_take_place(p->a, row->definition, &x->place));
        p->n++; /* from now on the place is given back after a failure, too */
        episode_begin(x, p->t, from->draw, p->arena);
        if (waits(x)) {
            p->resets[prompt]++;
            ask(p, p->n - 1, reset_on_thread);
        } else ARES_TRY(episode_reset(x));
    }
    return ARES_OK;
}

static int run(agent_play *p)
{
    const int64_t groups = p->job->n_prompts, n = groups * p->job->n;
    ares_completion c;
    int64_t active = 0; /* samples in the engine, those of ranks that decode with this one too */
    p->episodes = ares_arena_calloc(p->arena, (size_t)n + 1, sizeof *p->episodes);
    p->calls = ares_arena_calloc(p->arena, (size_t)n + 1, sizeof *p->calls);
    p->resets = ares_arena_calloc(p->arena, (size_t)groups + 1, sizeof *p->resets);
    p->active = n;
    for (int64_t g = 0; g < groups; g++) ARES_TRY(open_group(p, g));
    for (int64_t g = 0; g < groups; g++)
        if (p->resets[g] == 0) ARES_TRY(begin_group(p, g * p->job->n));
    while (p->active > 0) {
        ARES_TRY(ares_signal_poll());
        ARES_TRY(hear(p, active > 0));
        if (p->sampling == 0 && active == 0) continue;
        ARES_TRY(ares_rollout_step(p->t->rollout, &active));
        while (ares_rollout_next(p->t->rollout, &c)) {
            const episode *first = &p->episodes[p->queued[c.request]];
            p->sampling--;
            ARES_TRY(answered(p, p->queued[c.request] + c.index - first->item, &c));
        }
    }
    return ares_signal_poll(); /* a signal may have ended the last episodes */
}

void agents_tell_failure(const ares_trainer *t, const char *tag, const char *why, int64_t *told)
{
    char *last = t->agents->last_failure;
    (void)snprintf(last, sizeof t->agents->last_failure, "%s: %s", tag, why);
    if ((*told)++ < 3)
        ares_warn("env: %s; the episode %s", last,
                  answer_discards_failures(t) ? "is discarded"
                  : ares_is_null_f64(t->run.cfg->agents.failure_score)
                      ? "is scored as it was until then"
                      : "has env.failure_score");
}

/* Plays episodes whose conversations we write. */
static int converse(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    agent_play p = { .t = t, .a = t->agents, .job = job, .arena = arena, .out = out };
    pthread_mutex_init(&p.waiting.lock, NULL);
    pthread_cond_init(&p.waiting.returned, NULL);
    int rc = ares_rollout_finish(t->rollout, run(&p));
    while (waiting_next(&p.waiting, true)) {} /* after a failure calls may still be running */
    pthread_cond_destroy(&p.waiting.returned);
    pthread_mutex_destroy(&p.waiting.lock);
    /* in this order, whichever episode ended first, so that sums are equal bit for bit */
    bool counts = rc == ARES_OK && !job->baseline;
    for (int64_t e = 0; e < p.n && counts; e++)
        episode_count(&p.episodes[e], answer_discards_failures(t), &p.a->measures);
    for (int64_t e = 0, told = 0; e < p.n && counts; e++)
        if (p.episodes[e].failed)
            agents_tell_failure(t, p.episodes[e].row->definition->tag,
                                p.episodes[e].place->env.failure, &told);
    for (int64_t e = 0; e < p.n; e++) {
        p.episodes[e].place->used = false;
        ares_str_fini(&p.episodes[e].turns); /* episodes that have ended freed theirs */
    }
    ares_free(p.queued);
    ares_ids_fini(&p.ids);
    return rc;
}

static const ares_env_type *type_of(const answer_prompt *p)
{
    return ((const agents_row *)(const void *)p->row)->definition->type;
}

/* The prompts whose types have a program, or those that have none, as a job of their own. */
static int answer_some(ares_trainer *t, const answer_job *job, bool program, ares_arena *arena,
                       ares_group *out)
{
    answer_job some = *job;
    int64_t n = 0;
    answer_prompt *prompts =
        ares_arena_alloc(arena, (size_t)(job->n_prompts + 1) * sizeof *prompts);
    for (int64_t g = 0; g < job->n_prompts; g++)
        if ((type_of(&job->prompts[g])->program != NULL) == program) prompts[n++] = job->prompts[g];
    ares_group *groups = ares_arena_calloc(arena, (size_t)n + 1, sizeof *groups);
    some.prompts = prompts;
    some.n_prompts = n;
    if (program && n) ARES_TRY(players_answer(t->agents->players, &some, arena, groups));
    else if (!program) ARES_TRY(converse(t, &some, arena, groups));
    n = 0;
    for (int64_t g = 0; g < job->n_prompts; g++)
        if ((type_of(&job->prompts[g])->program != NULL) == program) out[g] = groups[n++];
    return ARES_OK;
}

/* First the episodes whose conversations we write, then those that programs play by themselves. */
static int answer(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    ARES_TRY(trainer_renew_rollout(t));
    ARES_TRY(answer_some(t, job, false, arena, out));
    ARES_TRY(answer_some(t, job, true, arena, out));
    for (int64_t g = 0; g < job->n_prompts && !job->baseline; g++) {
        char name[128];
        double any = NAN; /* 1: an episode was won; NaN: all have failed, which tells nothing */
        for (int32_t i = 0; i < out[g].n; i++) any = fmax(any, (double)out[g].items[i].accuracy);
        snprintf(name, sizeof name, "%s/pass@%d", out[g].row->data_source, out[g].n);
        if (!isnan(any)) measures_add(&t->agents->measures, name, NULL, any);
    }
    return ARES_OK;
}

int agents_serve(ares_trainer *t)
{
    return has_type(t->agents, true) && !t->run.device.counting
               ? players_open(t, &t->agents->players)
               : ARES_OK;
}

/* ---------------- over all ranks */
typedef struct scored {
    int64_t group; /* scores of a group are normalised together */
    double score;
} scored;

static int64_t group_of(const ares_train_config *c, const ares_group *g)
{
    const char *by = c->agents.normalization_grouping;
    if (strcmp(by, "batch") == 0) return 0;
    if (strcmp(by, "state") == 0) return g->draw;
    const char *tag = ((const agents_row *)(const void *)g->row)->definition->tag;
    return (int64_t)ares_fnv1a(ARES_FNV1A, tag, strlen(tag));
}

/* A failed episode that is discarded does not count among the scores of its group. */
static bool is_unscored(const ares_trainer *t, const ares_trajectory *y)
{
    return y->failed && answer_discards_failures(t);
}

/*
 * Normalises the scores that are trained on; filters still see the scores that the environments
 * gave (`unshaped`). A collective.
 */
static int normalise_draw(ares_trainer *t, ares_group *groups, int64_t count, ares_arena *arena)
{
    int known, method = 0;
    const char *const *methods = ares_env_normalisations(&known);
    while (strcmp(methods[method], t->run.cfg->agents.normalization) != 0) method++;
    if (method == ARES_ENV_IDENTITY) return ARES_OK;

    ares_str mine = { 0 }, all = { 0 };
    size_t *starts =
        ares_arena_alloc(arena, ((size_t)ares_world_size(t->run.world) + 1) * sizeof *starts);
    for (int64_t g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].n; i++) {
            const scored s = { group_of(t->run.cfg, &groups[g]),
                               (double)groups[g].items[i].unshaped };
            if (is_unscored(t, &groups[g].items[i])) continue;
            ares_str_add(&mine, (const char *)&s, sizeof s);
        }
    int rc = ares_world_gather_all(t->run.world, mine.data, mine.len, &all, starts);
    if (rc == ARES_OK) {
        int64_t n = (int64_t)(all.len / sizeof(scored));
        double *x = ares_arena_alloc(arena, ((size_t)n + 1) * sizeof *x);
        int64_t *of = ares_arena_alloc(arena, ((size_t)n + 1) * sizeof *of),
                k = (int64_t)(starts[ares_world_rank(t->run.world)] / sizeof(scored));
        for (int64_t i = 0; i < n; i++) {
            scored s;
            memcpy(&s, all.data + (size_t)i * sizeof s, sizeof s);
            x[i] = s.score;
            of[i] = s.group;
        }
        ares_env_normalise(method, x, of, n);
        for (int64_t g = 0; g < count; g++)
            for (int32_t i = 0; i < groups[g].n; i++)
                if (!is_unscored(t, &groups[g].items[i])) groups[g].items[i].score = (float)x[k++];
    }
    ares_str_fini(&mine);
    ares_str_fini(&all);
    return rc;
}

/* Warns once per run that an observation did not fit, or that turns were removed to make room. */
static void warn_of_room(ares_trainer *t, const agents_side *s, const char *prefix,
                         const ares_metrics *m)
{
    const struct {
        const char *metric, *what;
        bool *warned;
    } kinds[] = { { "context_full",
                    "an observation left no room for an answer in the %lld tokens of a "
                    "conversation, which ended %.3g of the episodes (%s)",
                    &t->agents->warned_full },
                  { "turns_left",
                    "conversations were longer than %lld tokens, so that %.3g turns of an episode "
                    "were removed from what the model sees and is trained on (%s)",
                    &t->agents->warned_left } };
    for (int i = 0; i < ARES_COUNT(kinds); i++)
        for (int64_t k = 0; k < s->cfg->tags.count && !*kinds[i].warned; k++) {
            char name[192], what[300];
            double value;
            snprintf(name, sizeof name, "%s%s/%s", prefix, s->definitions[k].tag, kinds[i].metric);
            if (!ares_metrics_get(m, name, &value) || value == 0) continue;
            *kinds[i].warned = true;
            snprintf(what, sizeof what, kinds[i].what, (long long)t->agents->style.limit, value,
                     name);
            if (ares_world_rank(t->run.world) == 0)
                ares_warn("env: %s: %s; raise worker.rollout.max_model_len, or let the environment "
                          "show less",
                          s->definitions[k].tag, what);
        }
}

static int report(ares_trainer *t, const char *prefix, ares_metrics *m)
{
    ARES_TRY(measures_report(&t->agents->measures, t->run.world, prefix, m));
    warn_of_room(t, &t->agents->train, prefix, m);
    warn_of_room(t, &t->agents->val, prefix, m);
    return ARES_OK;
}

const generator generate_episodes = { answer, normalise_draw, report };
