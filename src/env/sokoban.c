/* Sokoban: first how rooms are made, then the environment. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/core.h"

/*
 * A room is carved by a random walk, filled by numpy's legacy stream, and unsolved by a search that
 * pulls boxes away from their targets. The order of every draw and of the search is that of
 * gym-sokoban (room_utils.py), so that a seed gives its room.
 *
 * The search explores raw grids there. Here the key of a state is the player's cell and the boxes'
 * cells, each with whether it was ever pulled (the grid shows such a box as code 3), which tells
 * the same states apart.
 */

/* At most: tries of a seed, states of a search, seeds of a chain, states of a chain. */
enum { TRIES = 4, EXPLORED = 300000, SEEDS = 100, WORK = 4 * EXPLORED };
enum { KEY_WORDS = (1 + SOKOBAN_BOXES + 3) / 4 }; /* 16 bits for the player and for each box */

/* Whether the player or a box may move there. */
static bool is_free(int code)
{
    return code == SOKOBAN_FLOOR || code == SOKOBAN_TARGET;
}

/* The cell above, below, left or right of a cell; 0 to 3. */
int sokoban_beside(int cols, int cell, int direction)
{
    const int step[] = { -cols, cols, -1, 1 };
    return cell + step[direction];
}

/* ---------------- the floor */

/* Lists the cells of floor in reading order; returns how many. */
static int floor_cells(const uint8_t *room, int cells, int *list)
{
    int n = 0;
    for (int i = 0; i < cells; i++)
        if (room[i] == SOKOBAN_FLOOR) list[n++] = i;
    return n;
}

/* ---------------- states seen: open addressing, keys of `words` words, word 0 never 0 */
typedef struct seen {
    uint64_t *keys;
    int words;
    int64_t count, capacity; /* a power of two */
} seen;

static uint64_t *slot_of(const seen *s, const uint64_t *key)
{
    uint64_t h = 0;
    for (int i = 0; i < s->words; i++) { /* the mixer of splitmix64 per word */
        h = ((h ^ key[i]) + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
        h = (h ^ h >> 27) * 0x94d049bb133111ebu;
        h ^= h >> 31;
    }
    for (uint64_t at = h;; at++) {
        uint64_t *slot = s->keys + (at & (uint64_t)(s->capacity - 1)) * (uint64_t)s->words;
        if (!slot[0] || memcmp(slot, key, (size_t)s->words * sizeof *key) == 0) return slot;
    }
}

/* Adds a state; false: it was there already. */
static bool see(seen *s, const uint64_t *key)
{
    if (3 * s->count >= 2 * s->capacity) { /* two thirds full: twice as many slots */
        seen wider = { .words = s->words, .count = s->count, .capacity = s->capacity * 2 };
        wider.keys = ares_calloc((size_t)(wider.capacity * s->words), sizeof *wider.keys);
        for (int64_t i = 0; i < s->capacity; i++) {
            const uint64_t *old = s->keys + i * s->words;
            if (old[0]) memcpy(slot_of(&wider, old), old, (size_t)s->words * sizeof *old);
        }
        ares_free(s->keys);
        *s = wider;
    }
    uint64_t *slot = slot_of(s, key);
    if (slot[0]) return false;
    memcpy(slot, key, (size_t)s->words * sizeof *key);
    s->count++;
    return true;
}

/* ---------------- the search backwards */
typedef struct frame {      /* how a state was reached, and where its own search stands */
    int16_t player, behind; /* the player's cell before; the cell a box was pulled from, -1: none */
    int16_t swaps, last;    /* changes of the box that is pulled; that box, -1: none yet */
    uint8_t code, pulled;   /* of the box before it was pulled */
    int8_t direction;       /* to try next */
} frame;

/* The search's present state, kept up to date by moves and their undoing. */
typedef struct search {
    const sokoban_size *size;
    const uint8_t *fixed;
    uint8_t state[SOKOBAN_CELLS];
    int player, box[SOKOBAN_BOXES], target[SOKOBAN_BOXES];
    uint8_t pulled[SOKOBAN_BOXES];
    int away; /* sum of the boxes' distances to their targets */
    seen explored;
    uint8_t *best; /* [rows x cols] */
    int best_score, best_displacement;
} search;

/* Rows plus columns between a box and its target. */
static int distance(const search *s, int b)
{
    int cols = s->size->cols;
    return abs(s->box[b] / cols - s->target[b] / cols) +
           abs(s->box[b] % cols - s->target[b] % cols);
}

/* Moves a box and keeps the sum of distances up to date. */
static void put_box(search *s, int b, int cell, uint8_t pulled)
{
    s->away -= distance(s, b);
    s->box[b] = cell;
    s->pulled[b] = pulled;
    s->away += distance(s, b);
}

/*
 * Visits the present state, `level` moves after the first one; false: the search goes no further
 * from here.
 */
static bool visit(search *s, int level, int swaps)
{
    uint64_t key[KEY_WORDS];
    if (level + 1 >= s->size->search_depth || s->explored.count >= EXPLORED) return false;
    uint16_t part[KEY_WORDS * 4] = { (uint16_t)(s->player + 1) };
    for (int b = 0; b < s->size->boxes; b++) { /* sorted: a grid does not tell boxes apart */
        uint16_t box = (uint16_t)((s->box[b] << 1 | s->pulled[b]) + 1);
        int at = 1 + b;
        for (; at > 1 && part[at - 1] > box; at--) part[at] = part[at - 1];
        part[at] = box;
    }
    memcpy(key, part, sizeof part);
    if (!see(&s->explored, key)) return false;
    int score = swaps * s->away;
    for (int b = 0; b < s->size->boxes && score > s->best_score; b++)
        if (s->state[s->target[b]] != SOKOBAN_TARGET) score = 0; /* every target must be free */
    if (score > s->best_score) {
        s->best_score = score;
        s->best_displacement = s->away;
        memcpy(s->best, s->state, (size_t)(s->size->rows * s->size->cols));
    }
    return true;
}

/* Moves the player, and the box behind it along; false: there is no way. */
static bool pull(search *s, int direction, const frame *from, frame *to)
{
    int cols = s->size->cols, there = sokoban_beside(cols, s->player, direction),
        behind = 2 * s->player - there, code = s->state[there];
    if (!is_free(code)) return false;
    *to = (frame){ (int16_t)s->player, -1, from->swaps, from->last, 0, 0, 0 };
    s->state[s->player] = s->fixed[s->player];
    s->state[there] = SOKOBAN_PLAYER;
    code = s->state[behind];
    if (code == SOKOBAN_BOX || code == SOKOBAN_BOX_ON_TARGET) {
        int16_t b = 0;
        while (s->box[b] != behind) b++;
        *to = (frame){ .player = (int16_t)s->player,
                       .behind = (int16_t)behind,
                       .swaps = (int16_t)(from->swaps + (from->last != b)),
                       .last = b,
                       .code = (uint8_t)code,
                       .pulled = s->pulled[b] };
        s->state[s->player] = SOKOBAN_BOX_ON_TARGET; /* code 3 marks a pulled box, on any cell */
        s->state[behind] = s->fixed[behind];
        put_box(s, b, s->player, 1);
    }
    s->player = there;
    return true;
}

/* Takes back the move that `f` describes. */
static void undo(search *s, const frame *f)
{
    s->state[s->player] = s->fixed[s->player];
    s->player = f->player;
    s->state[s->player] = SOKOBAN_PLAYER;
    if (f->behind < 0) return;
    s->state[f->behind] = f->code;
    put_box(s, f->last, f->behind, f->pulled);
}

/* Begins with every box on its target and leaves in room->state the best state of the search. */
static void unsolve(const sokoban_size *z, sokoban_room *room)
{
    int cells = z->rows * z->cols, n = 0;
    search s = { .size = z, .fixed = room->fixed, .best = room->state, .best_score = -1 };
    s.explored = (seen){ .words = (1 + z->boxes + 3) / 4, .capacity = 512 };
    s.explored.keys = ares_calloc((size_t)(s.explored.capacity * s.explored.words), 8);
    memcpy(s.state, room->state, (size_t)cells);
    for (int i = 0; i < cells; i++) {
        if (s.state[i] == SOKOBAN_PLAYER) s.player = i;
        if (s.state[i] != SOKOBAN_TARGET) continue;
        s.state[i] = SOKOBAN_BOX;
        s.box[n] = s.target[n] = i;
        n++;
    }
    /* depth first over the states within reach; stack[level]: how the present state was reached */
    frame *stack = ares_malloc((size_t)z->search_depth * sizeof *stack);
    int level = 0;
    stack[0] = (frame){ .last = -1 };
    if (!visit(&s, 0, 0)) level = -1;
    while (level >= 0) {
        frame *f = &stack[level];
        if (f->direction == 4) { /* all four are tried */
            if (level) undo(&s, f);
            level--;
        } else if (pull(&s, f->direction++, f, f + 1)) {
            if (visit(&s, level + 1, f[1].swaps)) level++;
            else undo(&s, f + 1);
        }
    }
    ares_free(stack);
    for (int i = 0; i < cells; i++)
        if (room->state[i] == SOKOBAN_BOX_ON_TARGET) room->state[i] = SOKOBAN_BOX;
    room->displacement = s.best_displacement;
    room->explored = s.explored.count;
    room->work += s.explored.count;
    ares_free(s.explored.keys);
}

/* ---------------- the player walks off */
/* Sometimes moves the player up to three cells away, never back to a cell of this walk. */
static void walk_off(const sokoban_size *z, ares_mt19937 *py, sokoban_room *room)
{
    int been[4], player = 0;
    if (ares_py_random(py) > (room->displacement == 1 ? 0.8 : 0.5)) return;
    while (room->state[player] != SOKOBAN_PLAYER) player++;
    been[0] = player;
    for (int steps = 1;; steps++) {
        int way[4], n = 0;
        for (int d = 0; d < 4; d++) {
            int there = sokoban_beside(z->cols, player, d);
            bool free = is_free(room->state[there]);
            for (int k = 0; k < steps; k++) free = free && been[k] != there;
            if (free) way[n++] = there;
        }
        if (!n) return;
        int there = way[ares_py_below(py, (uint64_t)n)];
        room->state[player] = room->fixed[player];
        room->state[there] = SOKOBAN_PLAYER;
        been[steps] = player = there;
        if (steps == 3 || ares_py_random(py) > 0.5) return;
    }
}

/* A room of the seed; false: TRIES rooms could not be unsolved, or there is too little floor. */
bool sokoban_room_make(uint64_t seed, const sokoban_size *z, sokoban_room *room)
{
    ares_mt19937 py, np;
    size_t cells = (size_t)(z->rows * z->cols);
    ares_py_seed(&py, seed);
    ares_np_seed(&np, (uint32_t)(seed ^ seed >> 32)); /* numpy takes 32 bits */
    room->displacement = 0;
    room->work = 0;
    for (room->tries = 0; room->displacement == 0; room->tries++) {
        if (room->tries == TRIES) return false;
        /* floor in walls: a random walk inside the rim stamps a mask of 3 x 3 at each step */
        static const char masks[5][10] = { "000111000", "010010010", "000110010", "000110110",
                                           "000011010" };
        static const int direction[4][2] = { { 1, 0 }, { 0, 1 }, { -1, 0 }, { 0, -1 } };
        memset(room->state, SOKOBAN_WALL, (size_t)(z->rows * z->cols));
        uint64_t d = ares_py_below(&py, 4);
        int row = (int)ares_py_randint(&py, 1, z->rows - 1);
        int col = (int)ares_py_randint(&py, 1, z->cols - 1);
        for (int step = 17 * (z->rows + z->cols) / 10; step; step--) { /* 1.7 (rows + cols) */
            if (ares_py_random(&py) < 0.35) d = ares_py_below(&py, 4);
            row = ARES_MIN(ARES_MAX(row + direction[d][0], 1), z->rows - 2);
            col = ARES_MIN(ARES_MAX(col + direction[d][1], 1), z->cols - 2);
            const char *mask = masks[ares_py_below(&py, 5)];
            for (int i = 0; i < 9; i++) {
                int r = row - 1 + i / 3, c = col - 1 + i % 3;
                bool rim = r == 0 || c == 0 || r == z->rows - 1 || c == z->cols - 1;
                if (mask[i] == '1' && !rim) room->state[r * z->cols + c] = SOKOBAN_FLOOR;
            }
        }
        /* the player and the targets, each on any cell of floor alike */
        int list[SOKOBAN_CELLS], n = floor_cells(room->state, (int)cells, list);
        if (n <= z->boxes + 1) return false; /* too little floor */
        room->state[list[ares_np_below(&np, (uint32_t)n)]] = SOKOBAN_PLAYER;
        for (int b = 0; b < z->boxes; b++) {
            n = floor_cells(room->state, (int)cells, list);
            room->state[list[ares_np_below(&np, (uint32_t)n)]] = SOKOBAN_TARGET;
        }
        memcpy(room->fixed, room->state, cells);
        *(uint8_t *)memchr(room->fixed, SOKOBAN_PLAYER, cells) = SOKOBAN_FLOOR;
        unsolve(z, room);
    }
    walk_off(z, &py, room);
    return true;
}

/* RAGEN takes Python's hash, which differs between processes; FNV-1a is the same everywhere. */
uint64_t sokoban_next_seed(uint64_t seed)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    uint64_t h = ares_fnv1a(ARES_FNV1A, text, (size_t)n);
    return (h ^ h >> 32) & 0xffffffffu;
}

int sokoban_room_find(uint64_t *seed, const sokoban_size *z, sokoban_room *room)
{
    uint64_t first = *seed;
    int seeds = 0;
    for (int64_t work = 0; seeds < SEEDS && work < WORK; seeds++) {
        if (sokoban_room_make(*seed, z, room)) return ARES_OK;
        work += room->work;
        *seed = sokoban_next_seed(*seed);
    }
    return ares_fail(ARES_ELIMIT,
                     "env: sokoban: seed %llu and %d seeds after it give no room of %d x %d with "
                     "%d boxes and search_depth %d; set fewer boxes, or another size or "
                     "search_depth",
                     (unsigned long long)first, seeds - 1, z->rows, z->cols, z->boxes,
                     z->search_depth);
}

/*
 * `sokoban`: push every box onto a target. Steps and scores are gym-sokoban's with the four
 * push-or-move actions that RAGEN keeps (docs/environments.md#sokoban).
 */

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

/* The floor within the rim must hold boxes and player. */
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

/* Begins in the given room; `reset` and tests use it. */
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

static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    sokoban *s = env;
    uint8_t *state = s->room.state;
    int there = sokoban_beside(s->size.cols, s->player, action.id), beyond = 2 * there - s->player;
    bool box = state[there] == SOKOBAN_BOX || state[there] == SOKOBAN_BOX_ON_TARGET;
    bool moved = is_free(box ? state[beyond] : state[there]);
    if (moved && box)
        state[beyond] =
            s->room.fixed[beyond] == SOKOBAN_TARGET ? SOKOBAN_BOX_ON_TARGET : SOKOBAN_BOX;
    if (moved) {
        state[s->player] = s->room.fixed[s->player];
        state[there] = SOKOBAN_PLAYER;
        s->player = there;
    }
    int64_t left = s->room.fixed[s->player] == SOKOBAN_TARGET; /* the player may stand on one */
    for (int i = 0; i < s->size.rows * s->size.cols; i++)
        left += s->room.state[i] == SOKOBAN_TARGET;
    int64_t on_target = s->size.boxes - left;
    double reward = -0.1; /* per step; 1 per box on or off a target, 10 for the solved room */
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
/* One symbol a cell, a line per row. */
static void add_grid(const void *env, ares_str *out)
{
    const sokoban *s = env;
    for (int i = 0; i < s->size.rows * s->size.cols; i++) {
        bool on_target = s->room.state[i] == SOKOBAN_PLAYER && s->room.fixed[i] == SOKOBAN_TARGET;
        if (i && i % s->size.cols == 0) ares_str_add_char(out, '\n');
        ares_str_add_z(out, s->o->symbols.items[on_target ? SOKOBAN_CODES : s->room.state[i]]);
    }
}

static void add_coordinates(const void *env, ares_str *out)
{
    const sokoban *s = env;
    int cols = s->size.cols, n = s->size.rows * cols;
    bool on_target = s->room.fixed[s->player] == SOKOBAN_TARGET;
    board_add_size(out, s->size.rows, cols);
    board_add_cells(out, "Targets", s->room.fixed, n, cols, SOKOBAN_TARGET);
    board_add_cells(out, "Boxes", s->room.state, n, cols, SOKOBAN_BOX);
    board_add_cells(out, "Boxes on target", s->room.state, n, cols, SOKOBAN_BOX_ON_TARGET);
    board_add_cells(out, on_target ? "Player on target" : "Player", s->room.state, n, cols,
                    SOKOBAN_PLAYER);
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
