/*
 * `game_2048`: slide and merge tiles (docs/environments.md#2048). The tiles come from the seed's
 * default_rng, as in RAGEN.
 */
#include <string.h>

#include "ares/core.h"
#include "internal.h"

#define GAME_2048_OPTIONS(X)                                                                    \
    X(i64, size, "size", "4", "[2,8]", "rows and columns")                                      \
    X(f64, two_prob, "two_prob", "0.9", "[0,1]", "probability that a new tile is a 2 and no 4") \
    X(flag, log_reward, "use_log_reward", "true", "",                                           \
      "a move pays 0.1 log2(1 + the tiles it made); false: the tiles it made, -0.1 for no move")
ARES_OPTION_STRUCT(game_2048_options, GAME_2048_OPTIONS);
static ARES_OPTION_TABLE(game_2048_table, game_2048_options, GAME_2048_OPTIONS);

enum { SIDE = 8 }; /* rows and columns at most */
enum { UP, RIGHT, DOWN, LEFT };
static const char *const actions[] = { "Up", "Right", "Down", "Left" };

typedef struct game {
    const game_2048_options *o;
    ares_pcg64 stream; /* of new tiles */
    int size;
    int64_t cell[SIDE * SIDE], score; /* [size x size], 0: empty; sum of all tiles made */
} game;

/* Puts a 2 or a 4 on an empty cell. */
static void add_tile(game *s)
{
    int empty[SIDE * SIDE], n = 0;
    for (int i = 0; i < s->size * s->size; i++)
        if (!s->cell[i]) empty[n++] = i;
    if (!n) return;
    int at = empty[ares_pcg64_below(&s->stream, (uint32_t)n)];
    s->cell[at] = ares_pcg64_random(&s->stream) < s->o->two_prob ? 2 : 4;
}

/* Slides the cells; returns the sum of the tiles made, -1 when nothing moves. */
static int64_t slide(int64_t *cell, int size, int direction)
{
    int64_t made = 0;
    bool moved = false, back = direction == DOWN || direction == RIGHT;
    bool columns = direction == UP || direction == DOWN;
    for (int line = 0; line < size; line++) {
        int64_t out[SIDE] = { 0 }, *at[SIDE];
        int n = 0;
        bool open = false; /* the last tile may still merge */
        /* the cells of the line from the side that tiles slide to */
        for (int i = 0; i < size; i++) {
            int k = back ? size - 1 - i : i;
            at[i] = &cell[columns ? k * size + line : line * size + k];
            if (!*at[i]) continue;
            if (open && out[n - 1] == *at[i]) {
                made += out[n - 1] *= 2;
                open = false;
            } else {
                out[n++] = *at[i];
                open = true;
            }
        }
        for (int i = 0; i < size; i++) {
            moved = moved || *at[i] != out[i];
            *at[i] = out[i];
        }
    }
    return moved ? made : -1;
}

/* Whether a move would change the board. */
static bool can_slide(const game *s, int direction)
{
    int64_t copy[SIDE * SIDE];
    memcpy(copy, s->cell, sizeof copy);
    return slide(copy, s->size, direction) >= 0;
}

/* Gives the same bits on every machine: a squaring per binary digit of the logarithm. x >= 1. */
static double log2_of(uint64_t x)
{
    enum { DIGITS = 58 }; /* with the 6 of the whole part: 64 */
    int whole = 63 - __builtin_clzll(x);
    uint64_t m = x << (63 - whole), digits = (uint64_t)whole; /* m / 2^63 in [1, 2) */
    for (int i = 0; i < DIGITS; i++) {
        ares_u128 square = (ares_u128)m * m; /* over 2^126, in [1, 4) */
        bool two = (square >> 127) != 0;
        digits = digits << 1 | two;
        m = (uint64_t)(square >> (two ? 64 : 63));
    }
    return (double)digits * 0x1p-58;
}

static int open_game(const void *options, const void *shared, void **env)
{
    (void)shared;
    game *s = *env = ares_calloc(1, sizeof *s);
    s->o = options;
    s->size = (int)s->o->size;
    return ARES_OK;
}

/* An empty board with two tiles. */
static int reset(void *env, const ares_env_start *start)
{
    game *s = env;
    memset(s->cell, 0, sizeof s->cell);
    s->score = 0;
    ares_pcg64_seed(&s->stream, start->seed);
    add_tile(s);
    add_tile(s);
    return ARES_OK;
}

/* A new tile comes only after a move that changed the board. */
static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    game *s = env;
    int64_t made = slide(s->cell, s->size, action.id), most = 0;
    double raw = made < 0 ? -0.1 : (double)made;
    bool moved = made >= 0;
    if (moved) {
        add_tile(s);
        s->score += made;
        out->done = true;
        for (int d = UP; d <= LEFT; d++) out->done = out->done && !can_slide(s, d);
    }
    for (int i = 0; i < s->size * s->size; i++) most = ARES_MAX(most, s->cell[i]);
    out->success = out->done && most >= 2048;
    out->reward.value = raw;
    if (s->o->log_reward) out->reward.value = made > 0 ? log2_of((uint64_t)made + 1) * 0.1 : 0;
    env_tell(out, "action_is_effective", moved);
    env_tell(out, "action_is_valid", moved);
    env_tell(out, "raw_reward", raw);
    env_tell(out, "score", (double)s->score);
    if (out->done) env_tell(out, "max_tile", (double)most);
    return ARES_OK;
}

/* Wording and numbers of the actions are RAGEN's. */
static void render(const void *env, ares_str *out)
{
    const game *s = env;
    const char *gap = "";
    ares_str_add_z(out, "Current 2048 Grid:\n");
    for (int r = 0; r < s->size; r++) {
        ares_str_addf(out, "Row %d: [", r + 1);
        for (int c = 0; c < s->size; c++)
            ares_str_addf(out, "%s%lld", c ? ", " : "", (long long)s->cell[r * s->size + c]);
        ares_str_add_z(out, "]\n");
    }
    ares_str_add_z(out, "\nValid Actions: ");
    for (int d = UP; d <= LEFT; d++) {
        if (!can_slide(s, d)) continue;
        ares_str_addf(out, "%s%d(%s)", gap, d, actions[d]);
        gap = ", ";
    }
    ares_str_addf(out,
                  "%s.\nGoal: Merge same numbers to reach 2048.\nCurrent Score: %lld\nWhat is your "
                  "next move?",
                  *gap ? "" : "None", (long long)s->score);
}

const ares_env_type ares_env_type_game_2048 = {
    .name = "game_2048",
    .doc = "slide and merge tiles up to 2048",
    .options = game_2048_table,
    .options_size = sizeof(game_2048_options),
    .action_names = actions,
    .n_actions = ARES_COUNT(actions),
    .open = open_game,
    .close = ares_free,
    .reset = reset,
    .step = step,
    .render = render,
};
