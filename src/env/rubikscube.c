/*
 * `rubikscube`: the 2 x 2 x 2 cube (docs/environments.md#rubiks-cube). 24 stickers, four per face
 * in reading order; faces U L F R B D. A turn moves three cycles of four stickers.
 */

#include "ares/core.h"
#include "internal.h"

#define RUBIKSCUBE_OPTIONS(X)                                                               \
    X(i64, scramble_depth, "scramble_depth", "5", "[0,1000]", "turns from the solved cube") \
    X(i64, max_steps, "max_steps", "20", "[1,)", "steps after which the episode ends")
ARES_OPTION_STRUCT(rubikscube_options, RUBIKSCUBE_OPTIONS);
static ARES_OPTION_TABLE(rubikscube_table, rubikscube_options, RUBIKSCUBE_OPTIONS);

enum { STICKERS = 24, FACES = 6 };
static const char *const actions[] = { "U", "U'", "D", "D'", "L", "L'",
                                       "R", "R'", "F", "F'", "B", "B'" };

/* By turn: the sticker at [0] goes to [1], and so on round each cycle. */
static const uint8_t cycles[6][3][4] = {
    { { 0, 1, 3, 2 }, { 8, 4, 16, 12 }, { 9, 5, 17, 13 } },       /* U */
    { { 20, 21, 23, 22 }, { 10, 14, 18, 6 }, { 11, 15, 19, 7 } }, /* D */
    { { 4, 5, 7, 6 }, { 0, 8, 20, 19 }, { 2, 10, 22, 17 } },      /* L */
    { { 12, 13, 15, 14 }, { 1, 18, 21, 9 }, { 3, 16, 23, 11 } },  /* R */
    { { 8, 9, 11, 10 }, { 2, 12, 21, 7 }, { 3, 14, 20, 5 } },     /* F */
    { { 16, 17, 19, 18 }, { 0, 6, 22, 13 }, { 1, 4, 23, 15 } },   /* B */
};

typedef struct cube {
    const rubikscube_options *o;
    uint8_t sticker[STICKERS]; /* its colour, the number of the face it belongs to */
    int64_t steps;
    bool solved, over;
} cube;

/* The odd actions turn back: three turns are one the other way round. */
static void turn(cube *c, int action)
{
    for (int times = action % 2 ? 3 : 1; times; times--) {
        for (int k = 0; k < 3; k++) {
            const uint8_t *cycle = cycles[action / 2][k];
            uint8_t last = c->sticker[cycle[3]];
            for (int i = 3; i; i--) c->sticker[cycle[i]] = c->sticker[cycle[i - 1]];
            c->sticker[cycle[0]] = last;
        }
    }
}

static int open_cube(const void *options, const void *shared, void **env)
{
    (void)shared;
    cube *c = *env = ares_calloc(1, sizeof *c);
    c->o = options;
    return ARES_OK;
}

/* Scrambles the solved cube; turns may undo each other, so it can be nearer than scramble_depth. */
static int reset(void *env, const ares_env_start *start)
{
    cube *c = env;
    ares_pcg64 stream;
    *c = (cube){ .o = c->o };
    for (int i = 0; i < STICKERS; i++) c->sticker[i] = (uint8_t)(i / 4);
    ares_pcg64_seed(&stream, start->seed);
    for (int64_t i = 0; i < c->o->scramble_depth; i++)
        turn(c, (int)ares_pcg64_below(&stream, ARES_COUNT(actions)));
    return ARES_OK;
}

/* Pays 1 for the solved cube and nothing before. */
static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    cube *c = env;
    turn(c, action.id);
    c->steps++;
    c->solved = true; /* every sticker has the colour of the first one of its face */
    for (int i = 0; i < STICKERS; i++)
        c->solved = c->solved && c->sticker[i] == c->sticker[i - i % 4];
    c->over = c->solved || c->steps >= c->o->max_steps;
    out->reward.value = c->solved;
    out->done = c->over;
    out->success = c->solved;
    env_tell(out, "action_is_effective", 1);
    env_tell(out, "action_is_valid", 1);
    return ARES_OK;
}

/* Faces in the order U L F R B D, each two rows of two letters. */
static void render(const void *env, ares_str *out)
{
    static const char *const faces[FACES] = { "Up (U):    ", "Left (L):  ", "Front (F): ",
                                              "Right (R): ", "Back (B):  ", "Down (D):  " };
    static const char colours[] = "WOGRBY";
    const cube *c = env;
    ares_str_addf(out, "=== Rubik's Cube 2x2 State ===\nStep: %lld/%lld\n", (long long)c->steps,
                  (long long)c->o->max_steps);
    for (int f = 0; f < FACES; f++) {
        const uint8_t *s = &c->sticker[4 * f];
        ares_str_addf(out, "\n%s[%c, %c]\n [%c, %c]", faces[f], colours[s[0]], colours[s[1]],
                      colours[s[2]], colours[s[3]]);
    }
    if (c->over) {
        ares_str_addf(
            out, "\n\n=== Game Over: %s ===", c->solved ? "Cube Solved!" : "Max steps reached.");
        return;
    }
    ares_str_add_z(out, "\n\nAvailable Actions:\n");
    for (int i = 0; i < ARES_COUNT(actions); i++)
        ares_str_addf(out, "%s%s", i ? ", " : "", actions[i]);
    ares_str_add_z(out, "\n\nWhat is your next move?");
}

const ares_env_type ares_env_type_rubikscube = {
    .name = "rubikscube",
    .doc = "turn the faces of a 2 x 2 x 2 cube until each has one colour",
    .options = rubikscube_table,
    .options_size = sizeof(rubikscube_options),
    .action_names = actions,
    .n_actions = ARES_COUNT(actions),
    .open = open_cube,
    .close = ares_free,
    .reset = reset,
    .step = step,
    .render = render,
};
