/* Environments, answers and messages of agentic.json. */
#include "golden.h"

#include <stdio.h>
#include <string.h>

#include "../../src/env/internal.h"
#include "ares/env.h"

/* ---------------- a definition of a case */
typedef struct place {
    ares_config *cfg;
    ares_env_definition d;
    ares_env env;
} place;

/* Of a tag, with `words` as further options, between blanks. False: the case has failed. */
static bool place_open(golden *g, place *p, const char *tag, const char *words)
{
    char copy[512], *save = NULL;
    *p = (place){ .cfg = ares_config_new() };
    snprintf(copy, sizeof copy, "%s", words);
    ares_env_declare(p->cfg);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        ares_config_override(p->cfg, ares_arena_printf(g->arena, "env.definitions.%s.%s", tag, w));
    ares_config_resolve(p->cfg);
    return golden_ok(g, ares_env_define(p->cfg, tag, &p->d)) &&
           golden_ok(g, ares_config_finish(p->cfg)) &&
           golden_ok(g, ares_env_definition_open(&p->d)) &&
           golden_ok(g, ares_env_init(&p->env, &p->d));
}

static void place_close(place *p)
{
    ares_env_fini(&p->env);
    ares_env_definition_close(&p->d);
    ares_config_free(p->cfg);
}

static void check_render(golden *g, const place *p, const ares_json *want)
{
    ares_str text = { 0 };
    ares_env_render(&p->env, &text);
    golden_text(g, "render", ares_str_view(&text), want);
    ares_str_fini(&text);
}

static uint8_t *cells_of(golden *g, const ares_json *rows)
{
    int64_t n;
    const double *x = golden_flat(g, rows, &n);
    uint8_t *cells = ares_arena_alloc(g->arena, (size_t)n);
    for (int64_t i = 0; i < n; i++) cells[i] = (uint8_t)x[i];
    return cells;
}

static void check_cells(golden *g, const char *what, const uint8_t *got, const ares_json *want)
{
    int64_t n;
    golden_flat(g, want, &n);
    double *x = ares_arena_alloc(g->arena, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = got[i];
    golden_numbers(g, what, x, n, want);
}

/* ---------------- Sokoban */
static sokoban_size size_of(golden *g)
{
    const ares_json *dim = golden_in(g, "dim");
    return (sokoban_size){ (int)dim->items[0].integer, (int)dim->items[1].integer,
                           (int)golden_number(g, "num_boxes"),
                           (int)golden_number(g, "search_depth") };
}

static void check_room(golden *g, const sokoban_size *z, const sokoban_room *room)
{
    static const char *const formats[] = { "grid", "grid_coord" };
    check_cells(g, "room_fixed", room->fixed, golden_want(g, "room_fixed"));
    check_cells(g, "room_state", room->state, golden_want(g, "room_state"));
    for (int i = 0; i < ARES_COUNT(formats); i++) {
        place p;
        const char *key = ares_arena_printf(g->arena, "render_%s", formats[i]);
        const ares_json *want = ares_json_get(g->expected, key);
        if (!want) continue;
        const char *words =
            ares_arena_printf(g->arena,
                              "options.dim_x=%d options.dim_y=%d options.num_boxes=%d "
                              "options.observation_format=%s",
                              z->rows, z->cols, z->boxes, formats[i]);
        if (place_open(g, &p, "sokoban", words)) {
            sokoban_enter(p.env.state, room->fixed, room->state);
            check_render(g, &p, want);
        }
        place_close(&p);
    }
}

GOLDEN(agentic, sokoban_generate_room)
{
    sokoban_size z = size_of(g);
    sokoban_room room;
    if (!sokoban_room_make((uint64_t)golden_number(g, "seed"), &z, &room)) {
        golden_fail(g, "no room");
        return;
    }
    golden_equal(g, "tries", room.tries, golden_want(g, "tries_used"));
    golden_equal(g, "displacement", room.displacement, golden_want(g, "displacement"));
    if (ares_json_get(g->expected, "states_explored"))
        golden_equal(g, "explored", room.explored, golden_want(g, "states_explored"));
    check_room(g, &z, &room);
}

GOLDEN(agentic, sokoban_generate_room_with_fallback)
{
    sokoban_size z = size_of(g);
    sokoban_room room;
    const ares_json *chain = golden_want(g, "seed_chain");
    uint64_t seed = (uint64_t)golden_number(g, "seed"), last = seed;
    golden_equal(g, "first", (long long)seed, &chain->items[0]);
    for (int64_t i = 1; i < chain->count; i++)
        golden_equal(g, "next", (long long)(last = sokoban_next_seed(last)), &chain->items[i]);
    if (!golden_ok(g, sokoban_room_find(&seed, &z, &room))) return;
    golden_equal(g, "found", (long long)seed, &chain->items[chain->count - 1]);
    check_room(g, &z, &room);
}

GOLDEN(agentic, sokoban_generate_room_failures)
{
    static const char *const ranges[] = { "train_seeds", "val_seeds" };
    sokoban_size z = size_of(g);
    sokoban_room room;
    double failing[64];
    int64_t n = 0;
    for (int r = 0; r < ARES_COUNT(ranges); r++) {
        const ares_json *ends = golden_in(g, ranges[r]);
        for (int64_t seed = ends->items[0].integer; seed <= ends->items[1].integer; seed++)
            if (!sokoban_room_make((uint64_t)seed, &z, &room) && n < ARES_COUNT(failing))
                failing[n++] = (double)seed;
    }
    golden_numbers(g, "failing", failing, n, golden_want(g, "failing_seeds"));
}

static double told(const ares_env_outcome *o, const char *name)
{
    for (int i = 0; i < o->n_info; i++)
        if (strcmp(o->info[i].name, name) == 0) return o->info[i].value;
    return -1;
}

/* One action by its id in the case, from 1 on. */
static ares_env_outcome act(golden *g, place *p, int64_t id)
{
    ares_env_outcome o = { 0 };
    golden_ok(g, p->d.type->step(p->env.state, (ares_env_action){ .id = (int)id - 1 }, &o));
    return o;
}

static void check_outcome(golden *g, const ares_env_outcome *o, const ares_json *want)
{
    golden_near(g, "reward", o->reward.value, ares_json_get(want, "reward"));
    golden_equal(g, "done", o->done, ares_json_get(want, "done"));
    const ares_json *effective = ares_json_get(want, "action_is_effective"),
                    *success = ares_json_get(want, "success");
    if (effective) golden_equal(g, "effective", (int)told(o, "action_is_effective"), effective);
    if (success) golden_equal(g, "success", o->success, success);
}

GOLDEN(agentic, sokoban_step)
{
    static const char *const formats[] = { "grid", "coord" };
    const ares_json *fixed = golden_in(g, "room_fixed");
    for (int k = 0; k < ARES_COUNT(formats); k++) {
        place p;
        const char *words = ares_arena_printf(
            g->arena,
            "options.dim_x=%d options.dim_y=%d options.num_boxes=%d options.max_steps=%d "
            "options.observation_format=%s",
            (int)fixed->count, (int)fixed->items[0].count, (int)golden_number(g, "num_boxes"),
            (int)golden_number(g, "max_steps"), formats[k]);
        if (!place_open(g, &p, "sokoban", words)) continue;
        sokoban_enter(p.env.state, cells_of(g, fixed), cells_of(g, golden_in(g, "room_state")));
        for (int64_t i = 0; i < g->expected->count; i++) {
            const ares_json *want = &g->expected->items[i];
            ares_env_outcome o = act(g, &p, ares_json_get(want, "action")->integer);
            check_outcome(g, &o, want);
            check_cells(g, "state", sokoban_state(p.env.state), ares_json_get(want, "room_state"));
            const char *key = ares_arena_printf(g->arena, "render_%s", formats[k]);
            if (ares_json_get(want, key)) check_render(g, &p, ares_json_get(want, key));
        }
        place_close(&p);
    }
}

/* ---------------- FrozenLake */
static frozen_lake_map map_of(const ares_json *rows)
{
    frozen_lake_map m = { .size = (int)rows->count };
    for (int i = 0; i < m.size * m.size; i++) {
        m.cell[i] = rows->items[i / m.size].text.data[i % m.size];
        if (m.cell[i] == 'S') m.start = i;
    }
    return m;
}

static void check_map(golden *g, const frozen_lake_map *m, const ares_json *rows)
{
    for (int r = 0; r < m->size; r++)
        golden_text(g, "row", (ares_view){ m->cell + r * m->size, (size_t)m->size },
                    &rows->items[r]);
}

static void check_position(golden *g, const place *p, const ares_json *want)
{
    int cell = frozen_lake_player(p->env.state), size = frozen_lake_map_of(p->env.state)->size;
    golden_equal(g, "row", cell / size, &want->items[0]);
    golden_equal(g, "column", cell % size, &want->items[1]);
}

GOLDEN(agentic, frozenlake_generate_map)
{
    place p;
    const char *words = ares_arena_printf(g->arena, "options.size=%d options.p=%.17g",
                                          (int)golden_number(g, "size"), golden_number(g, "p"));
    if (place_open(g, &p, "CoordFrozenLake", words) &&
        golden_ok(g, ares_env_reset(&p.env, &(ares_env_start){
                                                .seed = (uint64_t)golden_number(g, "seed") }))) {
        const frozen_lake_map *m = frozen_lake_map_of(p.env.state);
        check_map(g, m, golden_want(g, "desc"));
        golden_equal(g, "boards", m->boards, golden_want(g, "boards_drawn"));
        check_position(g, &p, golden_want(g, "start"));
        if (ares_json_get(g->expected, "render_grid_coord"))
            check_render(g, &p, golden_want(g, "render_grid_coord"));
    }
    place_close(&p);
}

static const char *rate_words(golden *g)
{
    return ares_arena_printf(g->arena, "options.success_rate=%.17g",
                             golden_number(g, "success_rate"));
}

GOLDEN(agentic, frozenlake_transition_distribution)
{
    place p;
    frozen_lake_map m = map_of(golden_in(g, "desc"));
    if (place_open(g, &p, "frozen_lake", rate_words(g))) {
        frozen_lake_enter(p.env.state, &m);
        for (int64_t i = 0; i < g->expected->count; i++) {
            const ares_json_member *from = &g->expected->members[i];
            int row, col, action, n;
            if (sscanf(from->key.data, "%d,%d|%d", &row, &col, &action) != 3) continue;
            frozen_lake_outcome way[3];
            n = frozen_lake_outcomes(p.env.state, row * m.size + col, action - 1, way);
            for (int64_t k = 0; k < from->value->count; k++) {
                const ares_json_member *to = &from->value->members[k];
                double sum = 0, reward = 0;
                int there = -1;
                if (sscanf(to->key.data, "%d,%d", &row, &col) == 2) there = row * m.size + col;
                for (int j = 0; j < n; j++) {
                    if (way[j].cell != there) continue;
                    sum += way[j].probability;
                    reward = way[j].reward;
                }
                golden_near(g, from->key.data, sum, &to->value->items[0]);
                golden_near(g, "reward", reward, &to->value->items[1]);
                golden_equal(g, "done", m.cell[there] == 'G' || m.cell[there] == 'H',
                             &to->value->items[2]);
            }
        }
    }
    place_close(&p);
}

GOLDEN(agentic, frozenlake_step)
{
    place p;
    int64_t n;
    frozen_lake_map m = map_of(golden_in(g, "desc"));
    const double *u = golden_flat(g, golden_in(g, "uniform_draws"), &n);
    if (place_open(g, &p, "frozen_lake", rate_words(g))) {
        frozen_lake_enter(p.env.state, &m);
        for (int64_t i = 0; i < g->expected->count && i < n; i++) {
            const ares_json *want = &g->expected->items[i];
            ares_env_outcome o = { 0 };
            int action = (int)ares_json_get(want, "action")->integer - 1;
            frozen_lake_move(p.env.state, action, u[i], &o);
            check_outcome(g, &o, want);
            check_position(g, &p, ares_json_get(want, "pos"));
            check_render(g, &p, ares_json_get(want, "render_grid"));
        }
        if (g->expected->count > n) golden_fail(g, "more steps than draws");
    }
    place_close(&p);
}

GOLDEN(agentic, frozenlake_seeded_rollout)
{
    place p;
    ares_env_start start = { .seed = (uint64_t)golden_number(g, "seed"), .id = 5 };
    const ares_json *steps = golden_want(g, "steps");
    if (place_open(g, &p, "frozen_lake", rate_words(g)) &&
        golden_ok(g, ares_env_reset(&p.env, &start))) {
        check_map(g, frozen_lake_map_of(p.env.state), golden_want(g, "desc"));
        for (int64_t i = 0; i < steps->count; i++) {
            const ares_json *want = &steps->items[i];
            ares_env_outcome o = act(g, &p, ares_json_get(want, "action")->integer);
            check_outcome(g, &o, want);
            check_position(g, &p, ares_json_get(want, "pos"));
        }
    }
    place_close(&p);
}

/* ---------------- the small ones */
GOLDEN(agentic, bandit_env)
{
    place p;
    if (!place_open(g, &p, "Bandit", "")) return;
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json *want = &g->expected->items[i];
        ares_env_start start = { .seed = (uint64_t)golden_number(g, "seed"),
                                 .id = ares_json_get(want, "instance_counter")->integer };
        ares_view risky = ares_json_get(want, "high_risk_arm")->text;
        ares_env_turn turn;
        int n;
        if (!golden_ok(g, ares_env_reset(&p.env, &start))) break;
        const char *const *arms = ares_env_actions(&p.env, &n);
        golden_text(g, "arm1", ares_view_of(arms[0]), ares_json_get(want, "arm1"));
        golden_text(g, "arm2", ares_view_of(arms[1]), ares_json_get(want, "arm2"));
        if (!golden_ok(g, ares_env_act(&p.env, &risky, 1, -0.1, &turn))) break;
        if (!turn.outcome.success) golden_fail(g, "the risky arm is no success");
        golden_near(g, "reward", turn.outcome.reward.value,
                    ares_json_get(want, "reward_if_high_risk_arm_pulled"));
    }
    place_close(&p);
}

GOLDEN(agentic, countdown_score)
{
    static const double score[] = { 0, 0.1, 1 };
    for (int64_t i = 0; i < g->inputs->count; i++) {
        const ares_json *in = &g->inputs->items[i], *nums = ares_json_get(in, "nums");
        countdown_problem p = { .n = (int)nums->count,
                                .target = ares_json_get(in, "target")->number };
        for (int k = 0; k < p.n; k++) p.number[k] = nums->items[k].integer;
        ares_view answer = ares_json_get(in, "answer")->text;
        golden_near(g, answer.data, score[countdown_judge(answer, &p)], &g->expected->items[i]);
    }
}

/* ---------------- answers and turns */
GOLDEN(agentic, parse_response)
{
    for (int64_t i = 0; i < g->inputs->count; i++) {
        const ares_json *in = &g->inputs->items[i], *want = &g->expected->items[i];
        const ares_json *actions = ares_json_get(want, "actions");
        ares_env_format f = ares_env_format_default();
        ares_env_answer a;
        f.think = ares_json_get(in, "enable_think")->boolean;
        f.separator = ares_json_get(in, "action_sep")->text.data;
        f.max_actions_per_turn = ares_json_get(in, "max_actions_per_turn")->integer;
        ares_env_answer_parse(&f, ares_json_get(in, "generated_text")->text, g->arena, &a);
        golden_text(g, "raw", a.raw, ares_json_get(want, "llm_raw_response"));
        golden_text(g, "text", a.text, ares_json_get(want, "llm_response"));
        if (a.n_actions != actions->count) golden_fail(g, "%d actions", a.n_actions);
        for (int k = 0; k < a.n_actions && k < actions->count; k++)
            golden_text(g, "action", a.actions[k], &actions->items[k]);
    }
}

GOLDEN(agentic, map_actions)
{
    for (int64_t i = 0; i < g->inputs->count; i++) {
        const ares_json *in = &g->inputs->items[i], *want = &g->expected->items[i];
        const ares_json *lookup = ares_json_get(in, "action_lookup"),
                        *list = ares_json_get(in, "actions"),
                        *ids = ares_json_get(want, "valid_action_ids");
        place p;
        ares_env_turn turn;
        ares_view actions[8];
        int n_names;
        double known[8];
        for (int64_t k = 0; k < list->count; k++) actions[k] = list->items[k].text;
        /* the environment whose actions these are */
        bool lake = ares_view_is(lookup->members[0].value->text, "Left");
        if (!place_open(g, &p, lake ? "frozen_lake" : "SimpleSokoban", "") ||
            !golden_ok(g, ares_env_reset(&p.env, &(ares_env_start){ .seed = 10007 })))
            return;
        const char *const *names = ares_env_actions(&p.env, &n_names);
        int n = 0;
        for (int64_t k = 0; k < list->count; k++) {
            int id = ares_env_find_action(names, n_names, actions[k]);
            if (id >= 0) known[n++] = id + 1;
        }
        golden_numbers(g, "valid_action_ids", known, n, ids);
        double penalty = ares_json_get(in, "format_penalty")->number;
        if (golden_ok(g, ares_env_act(&p.env, actions, (int)list->count, penalty, &turn))) {
            golden_near(g, "penalty", turn.penalty, ares_json_get(want, "penalty"));
            golden_equal(g, "invalid", told(&turn.outcome, "manager_invalid_action") == 1,
                         ares_json_get(want, "manager_invalid_action"));
        }
        place_close(&p);
    }
}

GOLDEN(agentic, format_reward)
{
    const ares_json *values = golden_in(g, "values");
    for (int64_t i = 0; i < values->count; i++) {
        const ares_json *v = &values->items[i];
        ares_str text = { 0 };
        ares_env_reward_write(&text, (ares_env_reward){ v->number, v->type == ARES_JSON_INT });
        golden_text(g, "reward", ares_str_view(&text), &g->expected->items[i]);
        ares_str_fini(&text);
    }
}

GOLDEN(agentic, build_system_content)
{
    place p;
    ares_str text = { 0 };
    ares_env_format f = ares_env_format_default();
    f.separator = golden_z(g, "action_sep");
    const char *words = ares_arena_printf(g->arena, "max_actions=%d",
                                          (int)golden_number(g, "max_actions_per_traj"));
    if (place_open(g, &p, golden_z(g, "env_tag"), words)) {
        ares_env_system_message(&p.env, &f, &text);
        golden_text(g, "system", ares_str_view(&text), g->expected);
    }
    ares_str_fini(&text);
    place_close(&p);
}

/* ---------------- seeds and rewards */
GOLDEN(agentic, env_seed_schedule)
{
    uint64_t base = (uint64_t)golden_number(g, "train_base");
    int64_t groups = (int64_t)golden_number(g, "env_groups"),
            val_groups = (int64_t)golden_number(g, "val_groups");
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *want = &g->expected->members[i];
        double seeds[64];
        int round, n = 0;
        if (sscanf(want->key.data, "rollout_%d", &round) == 1) {
            for (; n < groups; n++) seeds[n] = (double)ares_env_seed(base, round, groups, n);
        } else {
            base = (uint64_t)golden_number(g, "val_base");
            seeds[n++] = (double)ares_env_seed(base, 0, val_groups, 0);
            seeds[n++] = (double)ares_env_seed(base, 0, val_groups, val_groups - 1);
        }
        golden_numbers(g, want->key.data, seeds, n, want->value);
    }
}

GOLDEN(agentic, normalize_episode_rewards)
{
    int64_t n, methods;
    const double *raw = golden_flat(g, golden_in(g, "raw_episode_reward"), &n),
                 *penalty = golden_flat(g, golden_in(g, "format_penalty_sum"), &n),
                 *ids = golden_flat(g, golden_in(g, "group_ids"), &n);
    const char *const *names = ares_env_normalisations(&(int){ 0 });
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *want = &g->expected->members[i];
        const char *method = strchr(want->key.data, '/') + 1;
        bool by_state = ares_view_starts(want->key, ARES_VIEW("state/"));
        double x[64];
        int64_t group[64];
        int m = 0;
        methods = 4;
        while (m < methods && strcmp(names[m], method) != 0) m++;
        for (int64_t k = 0; k < n; k++) {
            x[k] = raw[k] + penalty[k];
            group[k] = by_state ? (int64_t)ids[k] : 0;
        }
        ares_env_normalise(m, x, group, n);
        golden_numbers(g, want->key.data, x, n, want->value);
    }
}
