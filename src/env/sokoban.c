/*
 * `sokoban`: push every box onto a target. Steps and scores are gym-sokoban's with the four
 * push-or-move actions that RAGEN keeps (docs/environments.md#sokoban).
 */
#include "sokoban.h"

#include <stdio.h>
#include <string.h>

#include "board.h"
#include "types.h"

#define SOKOBAN_OPTIONS(X)                                                              \
    X(i64, rows, "dim_x", "6", "[3,32]", "rows of the room, walls included")            \
    X(i64, cols, "dim_y", "6", "[3,32]", "columns of the room, walls included")         \
    X(i64, boxes, "num_boxes", "3", "[1,15]", "boxes, and targets")                     \
    X(i64, max_steps, "max_steps", "100", "[1,)", "steps after which the episode ends") \
    X(i64, search_depth, "search_depth", "300", "[2,10000]",                            \
      "moves at most from the solved room to the room that is played")                  \
    X(choice, format, "observation_format", "grid", BOARD_FORMATS, BOARD_FORMAT_DOC)    \
    X(texts, symbols, "symbols", "['#', '_', 'O', '√', 'X', 'P', 'S']", "#7",           \
      "wall, floor, target, box on target, box, player, player on target as the map shows them")
ARES_OPTION_STRUCT(sokoban_options, SOKOBAN_OPTIONS);
static ARES_OPTION_TABLE(sokoban_table, sokoban_options, SOKOBAN_OPTIONS);

static const char *const meanings[] = { "wall", "empty",  "target",          "box on target",
                                        "box",  "player", "player on target" };
static const char *const actions[] = { "Up", "Down", "Left", "Right" };

typedef struct sokoban {
    const sokoban_options *o;
    sokoban_size size;
    sokoban_room room;
    int player;               /* cell */
    int64_t steps, on_target; /* boxes on targets after the last step */
} sokoban;

static void check(const void *options, ares_config *cfg, const char *path)
{
    const sokoban_options *o = options;
    char where[256];
    if (o->boxes + 1 < (o->rows - 2) * (o->cols - 2)) return;
    snprintf(where, sizeof where, "%s%snum_boxes", path, *path ? "." : "");
    ares_config_fault(cfg, where, "a room of %lld x %lld has no space for them and the player",
                      (long long)o->rows, (long long)o->cols);
}

static void add_vocabulary(const void *options, ares_str *out)
{
    const sokoban_options *o = options;
    for (int i = 0; i < ARES_COUNT(meanings); i++)
        ares_str_addf(out, "%s%s: %s", i ? ", " : "", o->symbols.items[i], meanings[i]);
}

static int open_room(const void *options, const void *shared, void **env)
{
    (void)shared;
    sokoban *s = *env = ares_calloc(1, sizeof *s);
    s->o = options;
    s->size = (sokoban_size){ (int)s->o->rows, (int)s->o->cols, (int)s->o->boxes,
                              (int)s->o->search_depth };
    return ARES_OK;
}

void sokoban_enter(void *env, const uint8_t *fixed, const uint8_t *state)
{
    sokoban *s = env;
    size_t cells = (size_t)(s->size.rows * s->size.cols);
    memmove(s->room.fixed, fixed, cells);
    memmove(s->room.state, state, cells);
    const uint8_t *player = memchr(s->room.state, SOKOBAN_PLAYER, cells);
    ARES_ASSERT(player);
    s->player = (int)(player - s->room.state);
    s->steps = s->on_target = 0;
}

const uint8_t *sokoban_state(const void *env)
{
    return ((const sokoban *)env)->room.state;
}

static int reset(void *env, const ares_env_start *start)
{
    sokoban *s = env;
    uint64_t seed = start->seed;
    ARES_TRY(sokoban_room_find(&seed, &s->size, &s->room));
    sokoban_enter(s, s->room.fixed, s->room.state);
    return ARES_OK;
}

static bool is_free(int code)
{
    return code == SOKOBAN_FLOOR || code == SOKOBAN_TARGET;
}

/* Pushes or moves; false: nothing does. */
static bool act(sokoban *s, int direction)
{
    uint8_t *state = s->room.state;
    int there = sokoban_beside(s->size.cols, s->player, direction), code = state[there];
    if (code == SOKOBAN_BOX || code == SOKOBAN_BOX_ON_TARGET) {
        int beyond = 2 * there - s->player;
        if (!is_free(state[beyond])) return false;
        state[beyond] =
            s->room.fixed[beyond] == SOKOBAN_TARGET ? SOKOBAN_BOX_ON_TARGET : SOKOBAN_BOX;
    } else if (!is_free(code)) return false;
    state[s->player] = s->room.fixed[s->player];
    state[there] = SOKOBAN_PLAYER;
    s->player = there;
    return true;
}

/* Targets without a box. One that the player stands on counts. */
static int64_t uncovered(const sokoban *s)
{
    int64_t n = s->room.fixed[s->player] == SOKOBAN_TARGET;
    for (int i = 0; i < s->size.rows * s->size.cols; i++) n += s->room.state[i] == SOKOBAN_TARGET;
    return n;
}

static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    sokoban *s = env;
    bool moved = act(s, action.id);
    int64_t left = uncovered(s), on_target = s->size.boxes - left;
    double reward = -0.1;
    if (on_target > s->on_target) reward += 1;
    else if (on_target < s->on_target) reward -= 1;
    if (!left) reward += 10;
    s->on_target = on_target;
    s->steps++;
    out->reward.value = reward;
    out->done = !left || s->steps >= s->o->max_steps;
    out->success = !left;
    env_tell(out, "action_is_effective", moved);
    env_tell(out, "action_is_valid", 1);
    return ARES_OK;
}

/* ---------------- text */
static void add_grid(const void *env, ares_str *out)
{
    const sokoban *s = env;
    for (int i = 0; i < s->size.rows * s->size.cols; i++) {
        bool on_target = s->room.state[i] == SOKOBAN_PLAYER && s->room.fixed[i] == SOKOBAN_TARGET;
        if (i && i % s->size.cols == 0) ares_str_add_char(out, '\n');
        ares_str_add_z(out, s->o->symbols.items[on_target ? SOKOBAN_CODES : s->room.state[i]]);
    }
}

/* Cells of a grid with this code, in reading order. */
static void add_cells(const sokoban *s, const uint8_t *grid, int code, const char *label,
                      ares_str *out)
{
    int list[SOKOBAN_CELLS], n = 0;
    for (int i = 0; i < s->size.rows * s->size.cols; i++)
        if (grid[i] == code) list[n++] = i;
    board_add_cells(out, label, list, n, s->size.cols);
}

static void add_coordinates(const void *env, ares_str *out)
{
    const sokoban *s = env;
    board_add_size(out, s->size.rows, s->size.cols);
    add_cells(s, s->room.fixed, SOKOBAN_TARGET, "Targets", out);
    add_cells(s, s->room.state, SOKOBAN_BOX, "Boxes", out);
    add_cells(s, s->room.state, SOKOBAN_BOX_ON_TARGET, "Boxes on target", out);
    bool on_target = s->room.fixed[s->player] == SOKOBAN_TARGET;
    board_add_cells(out, on_target ? "Player on target" : "Player", &s->player, 1, s->size.cols);
}

static void render(const void *env, ares_str *out)
{
    const sokoban *s = env;
    board_render(s->o->format, env, add_grid, add_coordinates, out);
}

const ares_env_type ares_env_type_sokoban = {
    .name = "sokoban",
    .doc = "push every box of a room onto a target",
    .options = sokoban_table,
    .options_size = sizeof(sokoban_options),
    .action_names = actions,
    .n_actions = ARES_COUNT(actions),
    .vocabulary = add_vocabulary,
    .check = check,
    .open = open_room,
    .close = ares_free,
    .reset = reset,
    .step = step,
    .render = render,
};
