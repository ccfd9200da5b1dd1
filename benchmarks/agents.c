/*
 * Agents as JSON lines like those of peers/agents.py.
 *
 *   bench_agents turns model=DIR [tag=FrozenLake] [groups=8] [size=16] [turns=5] [new=100]
 *                      [threads=0] [repeat=3]
 *   bench_agents steps [tag=FrozenLake] [places=64] [repeat=3]
 *
 * turns: episodes of groups x size environments as a training step plays them, from their resets to
 * their trajectories; answers have up to `new` tokens, of which the tag's own prompt asks for 100
 * at most. prefill_per_new: what the engine prefilled after the first turns, over the prompt tokens
 * there that were neither in the turn before nor sampled in it. steps: steps of environments that
 * are reset beforehand, one action after the other, and resets.
 */
#include <stdio.h>
#include <string.h>

#include "agents/agents.h"
#include "collect/collect.h"
#include "options.h"

typedef struct options {
    const char *model, *tag;
    int64_t groups, size, turns, new, threads, repeat, places;
} options;

static int set(options *o, const char *word)
{
    const bench_option known[] = {
        { "model", .text = &o->model },
        { "tag", .text = &o->tag },
        { "groups", .number = &o->groups, .least = 1 },
        { "size", .number = &o->size, .least = 1 },
        { "turns", .number = &o->turns, .least = 1 },
        { "new", .number = &o->new, .least = 1 },
        { "threads", .number = &o->threads },
        { "repeat", .number = &o->repeat, .least = 1 },
        { "places", .number = &o->places, .least = 1 },
    };
    return bench_set("bench_agents", known, ARES_COUNT(known), word);
}

/* The measurements of `repeat` runs, and the best of them. */
typedef struct values {
    double v[64], best;
    int n;
} values;

static void keep(values *all, double v)
{
    if (all->n == ARES_COUNT(all->v)) return;
    all->best = ARES_MAX(all->best, v);
    all->v[all->n++] = v;
}

static void emit(const options *o, const char *measure, const char *unit, const values *all,
                 const char *more)
{
    printf("{\"measure\":\"%s\",\"side\":\"ares\",\"tag\":\"%s\",\"value\":%.6g,\"unit\":\"%s\","
           "\"all\":[",
           measure, o->tag, all->best, unit);
    for (int i = 0; i < all->n; i++) printf("%s%.6g", i ? "," : "", all->v[i]);
    printf("],\"peak_gib\":%.3f%s}\n", (double)ares_peak_memory_bytes() / 1073741824.0, more);
    fflush(stdout);
}

/* ---------------- turns */
typedef struct opened {
    ares_config *cfg;
    ares_train_config c;
    ares_world *world;
    ares_trainer t;
} opened;

static int open_trainer(const options *o, opened *x)
{
    char words[5][600];
    snprintf(words[0], sizeof *words, "worker.actor.model.model_path=%s", o->model);
    snprintf(words[1], sizeof *words, "env.train={tags: %s, groups: %lld, group_size: %lld}",
             o->tag, (long long)o->groups, (long long)o->size);
    snprintf(words[2], sizeof *words, "env.max_turns=%lld", (long long)o->turns);
    snprintf(words[3], sizeof *words, "data.max_response_length=%lld", (long long)o->new);
    snprintf(words[4], sizeof *words, "trainer.threads=%lld", (long long)o->threads);
    const char *argv[] = { words[0],
                           words[1],
                           words[2],
                           words[3],
                           o->threads ? words[4] : "trainer.threads=null",
                           "env.token_exact=true",
                           "algorithm.adv_estimator=grpo",
                           "algorithm.disable_kl=true",
                           "worker.actor.global_batch_size=1",
                           "trainer.max_steps=1000",
                           "worker.rollout.max_model_len=3600" };
    x->cfg = ares_config_new();
    ares_train_config_declare(x->cfg, &x->c);
    ares_config_read_args(x->cfg, ARES_COUNT(argv), argv);
    ares_config_resolve(x->cfg);
    ARES_TRY(ares_train_config_check(x->cfg, &x->c, 1));
    ARES_TRY(ares_world_open(&x->world));
    return trainer_open(&x->t, x->cfg, &x->c, x->world, NULL);
}

static void close_trainer(opened *x)
{
    if (x->world) trainer_close(&x->t);
    else ares_batch_fini(&x->t.batch);
    ares_world_close(x->world);
    ares_config_free(x->cfg);
}

/* Sums over episodes. */
typedef struct counts {
    int64_t episodes, turns, written, read; /* read: prompt tokens of all turns */
    int64_t fresh;                          /* of these after the first turn, those that are new */
} counts;

static int count_episode(const ares_trajectory *y, ares_arena *arena, counts *n)
{
    const ares_json *turns;
    int64_t before = 0;
    ARES_TRY(ares_json_parse(arena, y->turns, "turns", &turns));
    n->episodes++;
    for (int64_t i = 0; i < turns->count; i++) {
        int64_t prompt = ares_json_get(&turns->items[i], "prompt_tokens")->integer,
                written = ares_json_get(&turns->items[i], "n_tokens")->integer;
        n->turns++;
        n->written += written;
        n->read += prompt;
        if (i) n->fresh += prompt - before;
        before = prompt + written;
    }
    return ARES_OK;
}

/* A step's episodes, of so many turns at most; *prefilled by the engine. */
static int in_flight_turns(opened *x, const options *o, int64_t turns, counts *n,
                           int64_t *prefilled, double *seconds)
{
    prompt_draw d;
    ares_rollout_stats stats;
    ares_arena *arena = &x->t.batch.arena;
    x->c.agents.max_turns = turns;
    ares_batch_clear(&x->t.batch);
    *n = (counts){ 0 };
    double t = ares_now_s();
    ARES_TRY(draw_prompts(&x->t, arena, o->groups, &d));
    ARES_TRY(draw_answer(&x->t, arena, &d, NULL));
    *seconds = ares_now_s() - t;
    ares_rollout_get_stats(x->t.rollout, &stats);
    *prefilled = stats.prefill_tokens;
    for (int64_t g = 0; g < d.count; g++)
        for (int32_t i = 0; i < d.groups[g].n; i++)
            ARES_TRY(count_episode(&d.groups[g].items[i], arena, n));
    return ARES_OK;
}

static int measure_turns(const options *o, opened *x)
{
    values all = { .n = 0 };
    counts n;
    int64_t first, prefilled = 0;
    double t, turns = 0, written = 0, read = 0;
    char more[400];
    if (!o->model) return ares_fail(ARES_EUSE, "bench_agents: turns: model=DIR is missing");
    ARES_TRY(open_trainer(o, x));
    ARES_TRY(in_flight_turns(x, o, 1, &n, &first, &t)); /* it warms up, too */
    for (int64_t k = 0; k < o->repeat; k++) {
        ARES_TRY(in_flight_turns(x, o, o->turns, &n, &prefilled, &t));
        keep(&all, (double)n.turns / t);
        turns += (double)n.turns;
        written += (double)n.written;
        read += (double)n.read;
    }
    snprintf(more, sizeof more,
             ",\"model\":\"%s\",\"environments\":%lld,\"turns_per_episode\":%.4g,"
             "\"tokens_per_turn\":%.4g,\"prompt_tokens_per_turn\":%.5g,\"prefill_per_new\":%.4g,"
             "\"threads\":%d,\"isa\":\"%s\"",
             o->model, (long long)n.episodes, (double)n.turns / (double)n.episodes, written / turns,
             read / turns, (double)(prefilled - first) / (double)ARES_MAX(n.fresh, 1),
             ares_pool_threads(x->t.run.device.pool), x->t.run.device.k->name);
    emit(o, "turns", "turns/s", &all, more);
    return ARES_OK;
}

static int turns(const options *o)
{
    opened x = { .cfg = NULL };
    ares_batch_init(&x.t.batch);
    int rc = measure_turns(o, &x);
    close_trainer(&x);
    return rc;
}

/* ---------------- steps */
static int reset_all(ares_env *places, const options *o, uint64_t *seed)
{
    for (int64_t i = 0; i < o->places; i++)
        ARES_TRY(ares_env_reset(&places[i], &(ares_env_start){ (*seed)++, i }));
    return ARES_OK;
}

enum { ACTIONS = 1024 };

/* Steps of the type alone, one action after the other, until every episode is over. */
static int step_all(ares_env *places, const options *o, const ares_env_action *actions,
                    int64_t *steps)
{
    const ares_env_type *type = places[0].definition->type;
    bool *over = ares_calloc((size_t)o->places, sizeof *over);
    ares_env_outcome out = { 0 };
    for (int64_t left = o->places; left;) {
        left = 0;
        for (int64_t i = 0; i < o->places; i++) {
            if (over[i]) continue;
            out.n_info = 0;
            ARES_TRY(type->step(places[i].state, actions[(*steps)++ % ACTIONS], &out));
            over[i] = out.done;
            left++;
        }
    }
    ares_free(over);
    return ARES_OK;
}

/* The same as turns of one action each, which is found by its name. */
static int act_all(ares_env *places, const options *o, const ares_env_action *actions,
                   int64_t *steps)
{
    for (int64_t left = o->places; left;) {
        left = 0;
        for (int64_t i = 0; i < o->places; i++) {
            ares_env_turn did;
            if (ares_env_over(&places[i])) continue;
            ARES_TRY(ares_env_act(&places[i], &actions[(*steps)++ % ACTIONS].text, 1, 0, &did));
            left++;
        }
    }
    return ARES_OK;
}

typedef struct stop_clock {
    values rates;
    int64_t n;
    double s;
} stop_clock;

static void stop(stop_clock *c, double begin, int64_t n)
{
    c->s += ares_now_s() - begin;
    c->n += n;
}

static int measure_steps(const options *o, ares_env *places)
{
    static const char *const names[] = { "resets", "steps", "turns of an action" };
    stop_clock clocks[3] = { { .n = 0 } };
    const ares_env_type *type = places[0].definition->type;
    ares_env_action actions[ACTIONS];
    uint64_t seed = 10000;
    for (int i = 0; i < ACTIONS; i++) {
        int id = (int)ares_rng_below(ares_rng_root(1, ARES_RNG_TEST), (uint64_t)i,
                                     (uint64_t)type->n_actions);
        actions[i] = (ares_env_action){ id, ares_view_of(type->action_names[id]) };
    }
    for (int64_t k = 0; k <= o->repeat; k++) {
        for (int c = 0; c < 3; c++) clocks[c].s = 0, clocks[c].n = 0;
        for (double end = ares_now_s() + 0.5; ares_now_s() < end;) {
            int64_t steps = 0, acts = 0;
            double t = ares_now_s();
            ARES_TRY(reset_all(places, o, &seed));
            stop(&clocks[0], t, o->places);
            t = ares_now_s();
            ARES_TRY(step_all(places, o, actions, &steps));
            stop(&clocks[1], t, steps);
            seed -= (uint64_t)o->places;
            ARES_TRY(reset_all(places, o, &seed));
            t = ares_now_s();
            ARES_TRY(act_all(places, o, actions, &acts));
            stop(&clocks[2], t, acts);
        }
        for (int c = 0; c < 3 && k; c++) /* the first round does not count */
            keep(&clocks[c].rates, (double)clocks[c].n / clocks[c].s);
    }
    for (int c = 0; c < 3; c++)
        emit(o, names[c], c ? "steps/s" : "resets/s", &clocks[c].rates, ",\"threads\":1");
    return ARES_OK;
}

static int steps(const options *o)
{
    ares_env_definition d;
    ares_str word = { 0 };
    ares_config *cfg = ares_config_new();
    ares_env *places = ares_calloc((size_t)o->places, sizeof *places);
    ares_env_declare(cfg);
    ares_str_addf(&word, "env.definitions.%s.max_actions=1000000000", o->tag);
    ares_config_override(cfg, word.data);
    ares_config_resolve(cfg);
    ARES_TRY(ares_env_define(cfg, o->tag, &d));
    ARES_TRY(ares_config_finish(cfg));
    if (!d.type->action_names)
        return ares_fail(ARES_EUSE, "bench_agents: tag = '%s': its type has no list of actions",
                         o->tag);
    ARES_TRY(ares_env_definition_open(&d));
    for (int64_t i = 0; i < o->places; i++) ARES_TRY(ares_env_init(&places[i], &d));
    ARES_TRY(measure_steps(o, places));
    for (int64_t i = 0; i < o->places; i++) ares_env_fini(&places[i]);
    ares_env_definition_close(&d);
    ares_config_free(cfg);
    ares_str_fini(&word);
    ares_free(places);
    return ARES_OK;
}

int main(int argc, char **argv)
{
    options o = { .tag = "FrozenLake",
                  .groups = 8,
                  .size = 16,
                  .turns = 5,
                  .new = 100,
                  .repeat = 3,
                  .places = 64 };
    int rc = argc < 2 ? ares_fail(ARES_EUSE, "usage: bench_agents turns|steps [key=value ...]")
                      : ARES_OK;
    for (int i = 2; i < argc && rc == ARES_OK; i++) rc = set(&o, argv[i]);
    if (rc == ARES_OK) {
        if (strcmp(argv[1], "turns") == 0) rc = turns(&o);
        else if (strcmp(argv[1], "steps") == 0) rc = steps(&o);
        else
            rc = ares_fail(ARES_EUSE, "bench_agents: '%s': unknown (choices: turns, steps)",
                           argv[1]);
    }
    if (rc != ARES_OK) fprintf(stderr, "%s\n", ares_error_message());
    return rc == ARES_OK ? 0 : 1;
}
