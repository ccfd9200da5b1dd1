/*
 * `frozen_lake`: walk over ice to the goal. Transitions are Gymnasium's with `success_rate`; maps,
 * with start and goal anywhere, are RAGEN's (docs/environments.md#frozenlake).
 */
#include "internal.h"

#include "ares/core.h"

#define FROZEN_LAKE_OPTIONS(X)                                                                     \
    X(i64, size, "size", "4", "[2,32]", "rows and columns")                                        \
    X(f64, p, "p", "0.9", "[0,1]", "probability that a cell is frozen and no hole")                \
    X(flag, is_slippery, "is_slippery", "true", "", "false: every move goes where it is meant")    \
    X(f64, success_rate, "success_rate", "0.8", "[0,1]",                                           \
      "probability that a move goes where it is meant; else it turns left or right, either alike") \
    X(flag, shared_noise, "shared_noise", "true", "",                                              \
      "step k slips alike in every environment with the same seed, so in a whole group; false: "   \
      "each environment of a step slips by itself")                                                \
    X(choice, format, "observation_format", "grid", BOARD_FORMATS, BOARD_FORMAT_DOC)
ARES_OPTION_STRUCT(frozen_lake_options, FROZEN_LAKE_OPTIONS);
static ARES_OPTION_TABLE(frozen_lake_table, frozen_lake_options, FROZEN_LAKE_OPTIONS);

enum { BOARDS = 10000 }; /* drawn for one map at most */
/* in the order of Gymnasium, on which the slips depend */
enum { LEFT, DOWN, RIGHT, UP };
static const char *const actions[] = { "Left", "Down", "Right", "Up" };

typedef struct frozen_lake {
    const frozen_lake_options *o;
    frozen_lake_map map;
    ares_pcg64 noise; /* of slips, a draw per step */
    int player;       /* cell */
} frozen_lake;

/* The cell beside a cell; at the border, the cell itself. */
static int moved(int size, int cell, int direction)
{
    /* no branches: directions are random, so that a processor would mispredict them */
    int row = cell / size + (direction == DOWN) - (direction == UP),
        col = cell % size + (direction == RIGHT) - (direction == LEFT);
    row = ARES_MAX(0, ARES_MIN(row, size - 1));
    col = ARES_MAX(0, ARES_MIN(col, size - 1));
    return row * size + col;
}

/* ---------------- maps */
/* Whether the goal can be reached from the start: a search in breadth. */
static bool has_way(const frozen_lake_map *m)
{
    int queue[FROZEN_LAKE_CELLS], n = 0;
    bool seen[FROZEN_LAKE_CELLS] = { false };
    queue[n++] = m->start;
    seen[m->start] = true;
    for (int i = 0; i < n; i++) {
        if (m->cell[queue[i]] == 'G') return true;
        for (int d = LEFT; d <= UP; d++) {
            int there = moved(m->size, queue[i], d);
            if (seen[there] || m->cell[there] == 'H') continue;
            seen[there] = true;
            queue[n++] = there;
        }
    }
    return false;
}

/* A map of the seed's stream; ARES_ELIMIT when no board of it has a way. */
static int frozen_lake_map_make(uint64_t seed, int size, double p, frozen_lake_map *m)
{
    ares_pcg64 s;
    double frozen = p / (p + (1 - p)); /* as numpy's choice divides its cumulative sum */
    uint32_t n = (uint32_t)size;
    ares_pcg64_seed(&s, seed);
    m->size = size;
    for (m->boards = 1; m->boards <= BOARDS; m->boards++) {
        for (int i = 0; i < size * size; i++)
            m->cell[i] = ares_pcg64_random(&s) < frozen ? 'F' : 'H';
        uint32_t row = ares_pcg64_below(&s, n), col = ares_pcg64_below(&s, n);
        m->start = (int)(row * n + col);
        row = ares_pcg64_below(&s, n);
        col = ares_pcg64_below(&s, n);
        int goal = (int)(row * n + col);
        if (goal == m->start) continue;
        m->cell[m->start] = 'S';
        m->cell[goal] = 'G';
        if (has_way(m)) return ARES_OK;
    }
    return ares_fail(ARES_ELIMIT,
                     "env: frozen_lake: seed %llu: none of %d boards of size %d has a way to the "
                     "goal; raise p (now %g)",
                     (unsigned long long)seed, BOARDS, size, p);
}

/* ---------------- episodes */
static int open_lake(const void *options, const void *shared, void **env)
{
    (void)shared;
    frozen_lake *f = *env = ares_calloc(1, sizeof *f);
    f->o = options;
    return ARES_OK;
}

/* Begins on the given map; `reset` and tests use it. */
void frozen_lake_enter(void *env, const frozen_lake_map *map)
{
    frozen_lake *f = env;
    if (map != &f->map) f->map = *map;
    f->player = map->start;
}

const frozen_lake_map *frozen_lake_map_of(const void *env)
{
    return &((const frozen_lake *)env)->map;
}

int frozen_lake_player(const void *env)
{
    return ((const frozen_lake *)env)->player;
}

/* The map is of the seed; so is the noise, unless each environment has its own. */
static int reset(void *env, const ares_env_start *start)
{
    frozen_lake *f = env;
    ARES_TRY(frozen_lake_map_make(start->seed, (int)f->o->size, f->o->p, &f->map));
    frozen_lake_enter(f, &f->map);
    if (f->o->shared_noise) ares_pcg64_seed(&f->noise, start->seed);
    else ares_pcg64_seed_pair(&f->noise, start->seed, (uint64_t)start->id);
    ares_pcg64_random(&f->noise); /* Gymnasium draws the start from its only cell */
    return ARES_OK;
}

/* Goal and hole end the episode. */
static bool is_end(char cell)
{
    return cell == 'G' || cell == 'H';
}

/* Whether an action leads to one cell alone. */
static bool is_certain(const frozen_lake *f, int cell)
{
    return is_end(f->map.cell[cell]) || !f->o->is_slippery;
}

/* Of the i-th outcome of an action: 0 and 2 slip to the sides, 1 goes where it is meant. */
static double probability(const frozen_lake *f, bool certain, int i)
{
    double s = f->o->success_rate;
    return certain ? 1 : i == 1 ? s : (1 - s) / 2;
}

/* The i-th cell that an action may lead to. */
static int leads_to(const frozen_lake *f, int cell, int action, bool certain, int i)
{
    if (is_end(f->map.cell[cell])) return cell;
    return moved(f->map.size, cell, certain ? action : (action + 3 + i) % 4);
}

/* All cells that an action may lead to, with probability and reward: for solvers. */
int frozen_lake_outcomes(const void *env, int cell, int action, frozen_lake_outcome out[3])
{
    const frozen_lake *f = env;
    bool certain = is_certain(f, cell);
    for (int i = 0; i < 3; i++) {
        int there = leads_to(f, cell, action, certain, i);
        out[i] = (frozen_lake_outcome){ probability(f, certain, i), there,
                                        there != cell && f->map.cell[there] == 'G' };
    }
    return certain ? 1 : 3;
}

/* Takes the action with the draw u of [0, 1). */
void frozen_lake_move(void *env, int action, double u, ares_env_outcome *out)
{
    frozen_lake *f = env;
    int before = f->player;
    double aside = probability(f, false, 0), sum = aside + probability(f, false, 1);
    int taken = (aside <= u) + (sum <= u) + (sum + aside <= u);
    if (taken == 3) taken = 0; /* rounding left the sum at or below u */
    f->player = leads_to(f, before, action, is_certain(f, before), taken);
    bool won = f->map.cell[f->player] == 'G';
    out->success = won;
    out->done = is_end(f->map.cell[f->player]);
    out->reward = (ares_env_reward){ won && f->player != before, true };
    env_tell(out, "action_is_effective", f->player != before);
    env_tell(out, "action_is_valid", 1);
}

/* One draw of the noise a step, also where the ice is not slippery. */
static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    frozen_lake_move(env, action.id, ares_pcg64_random(&((frozen_lake *)env)->noise), out);
    return ARES_OK;
}

/* ---------------- text */
static void add_vocabulary(const void *options, ares_str *out)
{
    (void)options;
    ares_str_add_z(out, "P: player, _: empty, O: hole, G: goal, X: player in hole, "
                        "√: player on goal");
}

/* One symbol a cell, a line per row; the start looks like any empty cell. */
static void add_grid(const void *env, ares_str *out)
{
    const frozen_lake *f = env;
    for (int i = 0; i < f->map.size * f->map.size; i++) {
        bool here = i == f->player;
        char cell = f->map.cell[i];
        if (i && i % f->map.size == 0) ares_str_add_char(out, '\n');
        if (cell == 'H') ares_str_add_z(out, here ? "X" : "O");
        else if (cell == 'G') ares_str_add_z(out, here ? "√" : "G");
        else ares_str_add_z(out, here ? "P" : "_");
    }
}

static void add_coordinates(const void *env, ares_str *out)
{
    const frozen_lake *f = env;
    char under = f->map.cell[f->player];
    int size = f->map.size, n = size * size;
    board_add_size(out, size, size);
    board_add_cells(out, "Start", f->map.cell, n, size, 'S');
    board_add_cells(out, "Goal", f->map.cell, n, size, 'G');
    ares_str_addf(out, "\n%s: (%d, %d)",
                  under == 'G'   ? "Player on goal"
                  : under == 'H' ? "Player in hole"
                                 : "Player",
                  f->player / size, f->player % size);
    board_add_cells(out, "Holes", f->map.cell, n, size, 'H');
}

static void render(const void *env, ares_str *out)
{
    const frozen_lake *f = env;
    board_render(f->o->format, env, add_grid, add_coordinates, out);
}

const ares_env_type ares_env_type_frozen_lake = {
    .name = "frozen_lake",
    .doc = "walk over slippery ice to the goal, past holes",
    .options = frozen_lake_table,
    .options_size = sizeof(frozen_lake_options),
    .action_names = actions,
    .n_actions = ARES_COUNT(actions),
    .vocabulary = add_vocabulary,
    .open = open_lake,
    .close = ares_free,
    .reset = reset,
    .step = step,
    .render = render,
};
