/*
 * Episodes of a draw. All environments go side by side through the continuous batch: an episode's
 * next turn is queued when its environment has answered, whoever else is still sampling. Those that
 * wait for somebody else's program are asked on threads, one each. What is written depends on seeds
 * and weights alone, not on the order in which the model or the environments answer.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agents/agents.h"
#include "agents/episode.h"
#include "agents/waiting.h"

typedef struct play {
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
    int64_t *resets;  /* of each group, how many it waits for */
    int64_t *queued;  /* by the engine's number: the first episode that the request is for */
    int64_t n_queued, queued_capacity;
    ares_ids ids; /* scratch */
} play;

/* ---------------- requests */
/* One request for episodes [e, e + n), whose prompts are the same. */
static int queue(play *p, int64_t e, int32_t n)
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

/* ---------------- what environments are asked */
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

/* On a thread of its own; `hear` goes on with it. */
static void ask(play *p, int64_t e, int (*what)(void *x))
{
    p->calls[e] = (wait_call){ .ask = what, .x = &p->episodes[e] };
    waiting_ask(&p->waiting, &p->calls[e]);
}

/* The turn's answer; *asked: the environment is asked on a thread. */
static int take(play *p, int64_t e, const ares_completion *c, bool *asked)
{
    episode *x = &p->episodes[e];
    ARES_TRY(episode_read(x, c, (int32_t)p->t->actor.learner.optim.updates, p->arena));
    *asked = waits(x);
    if (*asked) {
        ask(p, e, act_on_thread);
        return ARES_OK;
    }
    ARES_TRY(episode_act(x));
    episode_note(x, p->arena);
    return ARES_OK;
}

static int finish(play *p, int64_t e)
{
    episode *x = &p->episodes[e];
    p->active--;
    ares_work_done(ARES_WORK_EPISODES, 1);
    ARES_TRY(episode_end(x, p->t, p->arena, &p->out[x->prompt].items[x->item]));
    x->place->used = false;
    return ARES_OK;
}

/* The next turn is queued, or the episode is over. */
static int go_on(play *p, int64_t e)
{
    episode *x = &p->episodes[e];
    if (episode_over(x, p->t->run.cfg)) return finish(p, e);
    ARES_TRY(episode_begin_turn(x, p->arena, &p->ids));
    return x->full ? finish(p, e) : queue(p, e, 1);
}

static int answered(play *p, int64_t e, const ares_completion *c)
{
    bool asked;
    ARES_TRY(take(p, e, c, &asked));
    return asked ? ARES_OK : go_on(p, e);
}

/*
 * The environments of a group have begun: first turns with the same prompt, as those of a group
 * mostly are, share a request.
 */
static int begin_group(play *p, int64_t first)
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

/* Goes on with those whose environments have answered; waits for one where nobody samples. */
static int hear(play *p, bool sampling)
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
static int open_group(play *p, int64_t prompt)
{
    const answer_prompt *from = &p->job->prompts[prompt];
    const agents_row *row = (const agents_row *)(const void *)from->row;
    ares_group *g = &p->out[prompt];
    if (from->begun)
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
        p->n++; /* places of these are given back */
        episode_begin(x, p->t, from->draw, p->arena);
        if (waits(x)) {
            p->resets[prompt]++;
            ask(p, p->n - 1, reset_on_thread);
        } else ARES_TRY(episode_reset(x));
    }
    return ARES_OK;
}

static int open_groups(play *p)
{
    const int64_t groups = p->job->n_prompts, n = groups * p->job->n;
    p->episodes = ares_arena_calloc(p->arena, (size_t)n + 1, sizeof *p->episodes);
    p->calls = ares_arena_calloc(p->arena, (size_t)n + 1, sizeof *p->calls);
    p->resets = ares_arena_calloc(p->arena, (size_t)groups + 1, sizeof *p->resets);
    p->active = n;
    for (int64_t g = 0; g < groups; g++) ARES_TRY(open_group(p, g));
    for (int64_t g = 0; g < groups; g++)
        if (p->resets[g] == 0) ARES_TRY(begin_group(p, g * p->job->n));
    return ARES_OK;
}

static int run(play *p)
{
    ares_completion c;
    int64_t active = 0; /* also samples of other ranks that decode with this one */
    ARES_TRY(open_groups(p));
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
    return ares_signal_poll(); /* which may have ended the last episodes */
}

/* Warns of the first failed episodes, and keeps the latest for the error that may follow. */
static void tell_failures(play *p)
{
    int64_t told = 0;
    for (int64_t e = 0; e < p->n; e++) {
        const episode *x = &p->episodes[e];
        char *last = p->a->last_failure;
        if (!x->failed) continue;
        (void)snprintf(last, sizeof p->a->last_failure, "%s: %s", x->row->definition->tag,
                       x->place->env.failure);
        if (told++ < 3)
            ares_warn("env: %s; the episode %s", last,
                      answer_discards_failures(p->t) ? "is discarded"
                      : ares_is_null_f64(p->t->run.cfg->agents.failure_score)
                          ? "is scored as it was until then"
                          : "has env.failure_score");
    }
}

/* Whether any episode of the group was won; of one whose episodes have all failed nobody knows. */
static void count_group(play *p, const ares_group *g)
{
    char name[128];
    double any = NAN;
    for (int32_t i = 0; i < g->n; i++) any = fmax(any, (double)g->items[i].accuracy);
    if (isnan(any)) return;
    snprintf(name, sizeof name, "%s/pass@%d", g->row->data_source, g->n);
    measures_add(&p->a->measures, name, NULL, any);
}

static int answer(ares_trainer *t, const answer_job *job, ares_arena *arena, ares_group *out)
{
    play p = { .t = t, .a = t->agents, .job = job, .arena = arena, .out = out };
    waiting_init(&p.waiting);
    int rc = trainer_renew_rollout(t);
    if (rc == ARES_OK) rc = ares_rollout_finish(t->rollout, run(&p));
    waiting_fini(&p.waiting);
    /* in this order, whichever ended first: sums keep their bits */
    bool counts = rc == ARES_OK && !job->baseline;
    for (int64_t e = 0; e < p.n && counts; e++)
        episode_count(&p.episodes[e], answer_discards_failures(t), &p.a->measures);
    if (counts) tell_failures(&p);
    for (int64_t g = 0; g < job->n_prompts && counts; g++) count_group(&p, &out[g]);
    for (int64_t e = 0; e < p.n; e++) {
        p.episodes[e].place->used = false;
        ares_str_fini(&p.episodes[e].turns); /* of those that have not ended */
    }
    ares_free(p.queued);
    ares_ids_fini(&p.ids);
    return rc;
}

/* ---------------- over all ranks */
typedef struct scored {
    int64_t group; /* what it is normalised among */
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

/* A failed episode has no part in what the others are compared with. */
static bool is_unscored(const ares_trainer *t, const ares_trajectory *y)
{
    return y->failed && answer_discards_failures(t);
}

/* The scores that are trained on; filters go on seeing those that the environments gave. */
static int normalise(ares_trainer *t, int method, ares_group *groups, int64_t count,
                     ares_arena *arena)
{
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

static int normalise_draw(ares_trainer *t, ares_group *groups, int64_t count, ares_arena *arena)
{
    int n, method = 0;
    const char *const *methods = ares_env_normalisations(&n);
    while (strcmp(methods[method], t->run.cfg->agents.normalization) != 0) method++;
    if (method == ARES_ENV_IDENTITY) return ARES_OK;
    return normalise(t, method, groups, count, arena);
}

/* Tells once per run that observations did not fit, and that turns were removed for them. */
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

const answerer answer_agents = { "environments", answer, normalise_draw, report };
