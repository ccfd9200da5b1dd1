/* An environment of a tag with further options, for tests. */
#ifndef TESTS_ENV_PLACE_H
#define TESTS_ENV_PLACE_H

#include <stdio.h>
#include <string.h>

#include "ares/env.h"
#include "test.h"

typedef struct place {
    ares_config *cfg;
    ares_env_definition d;
    ares_env env;
} place;

/* yaml: a layer above the built-in tags; words: "options.size=8 max_actions=3", of the tag */
static inline int place_define(place *p, const char *yaml, const char *tag, const char *words)
{
    char copy[1024], *save = NULL;
    *p = (place){ .cfg = ares_config_new() };
    ares_env_declare(p->cfg);
    if (yaml) ares_config_load_text(p->cfg, "my.yaml", ares_view_of(yaml));
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        ares_str path = { 0 };
        ares_str_addf(&path, "env.definitions.%s.%s", tag, w);
        ares_config_override(p->cfg, path.data);
        ares_str_fini(&path);
    }
    ares_config_resolve(p->cfg);
    ARES_TRY(ares_env_define(p->cfg, tag, &p->d));
    return ares_config_finish(p->cfg);
}

static inline int place_open(place *p, const char *tag, const char *words)
{
    ARES_TRY(place_define(p, NULL, tag, words));
    ARES_TRY(ares_env_definition_open(&p->d));
    return ares_env_init(&p->env, &p->d);
}

static inline void place_close(place *p)
{
    if (p->env.definition) ares_env_fini(&p->env);
    ares_env_definition_close(&p->d);
    ares_config_free(p->cfg);
}

static inline int place_reset(place *p, uint64_t seed, int64_t id)
{
    return ares_env_reset(&p->env, &(ares_env_start){ seed, id });
}

/* One turn of actions, "Up || Left" or a text. */
static inline int place_act(place *p, const char *actions, ares_env_turn *turn)
{
    ares_arena arena = { 0 };
    ares_env_format f = ares_env_format_default();
    ares_env_answer a;
    ares_str text = { 0 };
    f.think = false;
    f.max_actions_per_turn = 1000;
    ares_str_addf(&text, "%s</answer>", actions);
    ares_env_answer_parse(&f, ares_str_view(&text), &arena, &a);
    int rc = ares_env_act(&p->env, a.actions, a.n_actions, -0.1, turn);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    return rc;
}

static inline double place_told(const ares_env_turn *turn, const char *name)
{
    for (int i = 0; i < turn->outcome.n_info; i++)
        if (strcmp(turn->outcome.info[i].name, name) == 0) return turn->outcome.info[i].value;
    return -1;
}

/* whether the text of the state is this */
static inline void place_shows(const place *p, const char *want)
{
    ares_str text = { 0 };
    ares_env_render(&p->env, &text);
    CHECK_STR(text.data ? text.data : "", want);
    ares_str_fini(&text);
}

/* that the episode has failed, and says why */
static inline void place_failed(const place *p, const char *why, bool replayable)
{
    if (!CHECK_MSG(p->env.failure != NULL, "no failure: %s", why)) return;
    CHECK_CONTAINS(p->env.failure, why);
    CHECK_EQ(p->env.replayable, replayable);
    CHECK(p->env.terminated && p->env.truncated && !ares_env_won(&p->env));
}

static inline void place_add_turn(place *p, const char *action, ares_str *out)
{
    ares_env_format f = ares_env_format_default();
    ares_env_turn t;
    if (ares_env_over(&p->env)) return;
    ares_env_turn_message(&p->env, &f, out);
    CHECK_OK(place_act(p, action, &t));
    ares_env_reward_message(t.outcome.reward, out);
    ares_str_addf(out, "%d %d %g %g %g\n", p->env.terminated, p->env.truncated, t.penalty,
                  place_told(&t, "action_is_effective"), place_told(&t, "action_is_valid"));
}

/*
 * Plays 40 episodes on a built-in FrozenLake of ten actions and on an environment of others with
 * the same rules: the same texts, rewards and ends, and some of them won.
 */
static inline void place_plays_alike(place *built_in, place *other)
{
    static const char *const ways[] = { "Left", "down", "Right || Right", "Up", "Jump", "" };
    int won = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        ares_str want = { 0 }, got = { 0 };
        uint64_t s = seed < 20 ? 10000 + seed : seed << 40;
        REQUIRE_OK(place_reset(built_in, s, 0));
        REQUIRE_OK(place_reset(other, s, 0));
        CHECK_MSG(!other->env.failure, "%s", other->env.failure);
        for (uint64_t i = 0; i < 12; i++) {
            const char *way = ways[(seed * 7 + i * i + i / 3) % ARES_COUNT(ways)];
            place_add_turn(built_in, way, &want);
            place_add_turn(other, way, &got);
        }
        CHECK_STR(got.data, want.data);
        CHECK_NEAR(other->env.reward.value, built_in->env.reward.value, 0);
        CHECK(other->env.replayable);
        won += ares_env_won(&other->env);
        ares_str_fini(&want);
        ares_str_fini(&got);
    }
    CHECK(won > 0);
}

#endif
