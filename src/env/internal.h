/*
 * Private to env. In order: what the built-in environments share or show to tests, the built-in
 * tags, numbers about a step, and what environments in users' programs and on servers share.
 */
#ifndef ARES_ENV_INTERNAL_H
#define ARES_ENV_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "ares/core.h"
#include "ares/env.h"

/* Boards as text: what Sokoban and FrozenLake print alike. */

#define BOARD_FORMATS "grid|coord|grid_coord"
#define BOARD_FORMAT_DOC "the state as a map, as coordinates, or as both"

typedef void board_part(const void *env, ares_str *out);
/* The state in a format: the map, the coordinates, or both under headings. */
void board_render(const char *format, const void *env, board_part *grid, board_part *coordinates,
                  ares_str *out);
/* "Board size: 6 rows x 6 cols (zero-indexed)." */
void board_add_size(ares_str *out, int rows, int cols);
/*
 * Appends a new line "label: (r, c), (r, c)" of the cells that hold `code`, in reading order;
 * nothing where none does. board: [n] row by row.
 */
void board_add_cells(ares_str *out, const char *label, const void *board, int n, int cols,
                     int code);

/* Countdown's judgement of an answer. */

enum { COUNTDOWN_NUMBERS = 10 };
typedef struct countdown_problem {
    int n;
    int64_t number[COUNTDOWN_NUMBERS];
    double target;
} countdown_problem;

typedef enum { COUNTDOWN_WRONG_NUMBERS, COUNTDOWN_WRONG_VALUE, COUNTDOWN_RIGHT } countdown_verdict;
countdown_verdict countdown_judge(ares_view answer, const countdown_problem *p);

/* FrozenLake from a given map on, for reset and for tests. */

enum { FROZEN_LAKE_SIDE = 32, FROZEN_LAKE_CELLS = FROZEN_LAKE_SIDE * FROZEN_LAKE_SIDE };

typedef struct frozen_lake_map {
    int size, start;
    char cell[FROZEN_LAKE_CELLS]; /* [size x size] F frozen, H hole, S start, G goal */
    int boards;                   /* how many were drawn until one had a way from S to G */
} frozen_lake_map;

/*
 * Where an action leads from a cell, in the order in which a draw chooses; returns how many: 1
 * or 3. Goal and holes lead nowhere else.
 */
typedef struct frozen_lake_outcome {
    double probability;
    int cell;
    bool reward; /* the goal is reached */
} frozen_lake_outcome;
int frozen_lake_outcomes(const void *env, int cell, int action, frozen_lake_outcome out[3]);

/* Begins an episode on the map (copied), as reset does. */
void frozen_lake_enter(void *env, const frozen_lake_map *map);
/* A step whose outcome is chosen by u in [0, 1). */
void frozen_lake_move(void *env, int action, double u, ares_env_outcome *out);
const frozen_lake_map *frozen_lake_map_of(const void *env);
int frozen_lake_player(const void *env); /* cell */

/* Data of environments: files of JSON lines. */

/*
 * Calls each with every line, until it fails or `most` lines are read (0: all). The lines live in
 * the arena. Empty lines are skipped. A failure names file and line.
 */
int env_rows_read(const char *path, int64_t most, ares_arena *arena,
                  int (*each)(void *ctx, const ares_json *row), void *ctx);

/* Rooms of Sokoban, as gym-sokoban and RAGEN make them (docs/environments.md#sokoban). */

enum { SOKOBAN_SIDE = 32, SOKOBAN_CELLS = SOKOBAN_SIDE * SOKOBAN_SIDE, SOKOBAN_BOXES = 15 };
/* codes of cells */
enum {
    SOKOBAN_WALL,
    SOKOBAN_FLOOR,
    SOKOBAN_TARGET,
    SOKOBAN_BOX_ON_TARGET,
    SOKOBAN_BOX,
    SOKOBAN_PLAYER,
    SOKOBAN_CODES
};

typedef struct sokoban_size {
    int rows, cols, boxes, search_depth;
} sokoban_size;

typedef struct sokoban_room {
    uint8_t fixed[SOKOBAN_CELLS]; /* [rows x cols] walls, floor, targets */
    uint8_t state[SOKOBAN_CELLS]; /* [rows x cols] the same with boxes and player */
    int tries, displacement;      /* distance of the boxes to their targets in the last try */
    int64_t explored, work;       /* states that the last try's search saw; that all tries saw */
} sokoban_room;

/* The cell beside a cell; direction: 0 up, 1 down, 2 left, 3 right. */
int sokoban_beside(int cols, int cell, int direction);
/* Makes the room of a seed; false: this seed gives none. */
bool sokoban_room_make(uint64_t seed, const sokoban_size *size, sokoban_room *room);
/* The seed to try after one that gives no room. */
uint64_t sokoban_next_seed(uint64_t seed);
/*
 * Tries *seed and the seeds after it; *seed becomes the one that gave the room. ARES_ELIMIT: none
 * did, within a bound on the work.
 */
int sokoban_room_find(uint64_t *seed, const sokoban_size *size, sokoban_room *room);

/* Sokoban from a given room on, for reset and for tests. */

/* Begins an episode in the room of fixed and state [rows x cols], copied; it has one player. */
void sokoban_enter(void *env, const uint8_t *fixed, const uint8_t *state);
/* The cells of the present state [rows x cols]. */
const uint8_t *sokoban_state(const void *env);

/* The built-in tags. */

typedef struct env_tag {
    const char *name, *type, *instruction;
    int max_actions, max_tokens;
    const char *options; /* a JSON object */
} env_tag;
extern const env_tag env_tags[];
extern const int env_tag_count;

/* The table of types, and what types share (env.c). */

/* Adds a number about the step, which has none of this name yet; one too many is only counted. */
static inline void env_tell(ares_env_outcome *o, const char *name, double value)
{
    if (o->n_info < ARES_ENV_INFO) o->info[o->n_info++] = (ares_env_info){ name, value };
    else o->dropped++;
}
/* Replaces the number of this name, or adds it. (env.c) */
void env_tell_again(ares_env_outcome *o, const char *name, double value);

/*
 * What environments in users' programs and on servers have in common (command.c): the state that
 * the program told, and why an episode failed. Nothing that the program says is trusted.
 */

enum {
    FOREIGN_ANSWER_BYTES = 1 << 20, /* of an answer at most; a longer one fails the episode */
    FOREIGN_NAMES = 64,             /* different numbers that an environment may tell in its life */
    FOREIGN_NAME_BYTES = 64
};

typedef struct foreign {
    ares_str state; /* text of the present state */
    const char **actions;
    int n_actions; /* 0: any text is an action */
    char *names[FOREIGN_NAMES];
    int n_names;
    bool failed, replayable;
    bool over;       /* the episode was over with its reset */
    int64_t unasked; /* lines that came unasked in the episode, or before it */
    char why[600];   /* it failed */
} foreign;

void foreign_fini(foreign *f);
/* A new episode: it has no state yet, and has not failed. */
void foreign_begin(foreign *f);
void foreign_fail(foreign *f, bool by_clock, const char *format, ...) ARES_PRINTF(3, 4);
/* Entries of ares_env_type, for an environment that begins with its `foreign`. */
void foreign_render(const void *env, ares_str *out);
bool foreign_over(const void *env);
const char *foreign_failure(const void *env, bool *replayable, int64_t *unasked);

/*
 * Tells the numbers and booleans of an object as numbers about the step; `success` also decides
 * out->success. false: `success` is neither. Names must be printable ASCII without blanks.
 */
bool foreign_tell(foreign *f, const ares_json *object, ares_env_outcome *out);
/* Reads a reward; false: it is no number, or beyond +-1e30. 1 is an integer, 1.0 is none. */
bool foreign_read_reward(const ares_json *value, ares_env_reward *out);
/* The beginning of a text for a message: printable ASCII, "?" for other bytes. Returns out. */
const char *foreign_quote(ares_view text, char out[160]);
/* A fault of <path>.command where there is no such program, before anything starts. */
void foreign_check_program(const char *program, ares_config *cfg, const char *path);

/*
 * A program that answers lines with lines, for one environment or for several at once (command.c).
 * With several, each line holds an "id", and answers may come in any order; the environments may be
 * used on different threads.
 */

typedef struct processes processes; /* all processes of one definition */
typedef struct seat seat;           /* an environment's place in one of them */

typedef struct reply {
    ares_view line; /* lives until the seat's next question */
    bool failed;    /* there is no line, and the process no longer runs */
    bool by_clock;
    bool
        replayable; /* a second run would fail alike: no clock and no other seat had a part in it */
    int64_t unasked; /* lines that nobody had asked for, found when this question was asked */
    char why[500];
} reply;

/*
 * WebSocket connections to one server (sockets.c), served by a thread of their own: servers drop a
 * connection that leaves their pings unanswered, and a run may be busy for minutes. Callers on any
 * thread ask one question per connection at a time and wait for its answer.
 */

typedef struct sockets sockets;       /* all connections to a server */
typedef struct connection connection; /* one of them, open or not */

/* Whether this build has libwebsockets; without it sockets_new fails and says so. */
bool sockets_offered(void);
/* answer_bytes: a longer message closes its connection. */
int sockets_new(const char *host, int port, size_t answer_bytes, sockets **out);
void sockets_free(sockets *all); /* after its connections; NULL is fine */

connection *connection_new(sockets *all);
void connection_free(connection *c); /* NULL is fine */
bool connection_is_open(connection *c);
void connection_close(connection *c);

typedef struct socket_reply {
    ares_view text; /* lives until the connection's next question */
    bool failed;    /* there is no answer, and the connection is closed */
    bool by_clock;  /* because it was late */
    int status;     /* HTTP status of a document */
    char why[200];  /* "gave no answer within 2 s" */
} socket_reply;
/* Opens the connection and asks its first question. It must be closed. */
void connection_open(connection *c, const char *path, ares_view question, double timeout_s,
                     socket_reply *r);
/* A connection that was closed since the last question fails with the reason. */
void connection_ask(connection *c, ares_view question, double timeout_s, socket_reply *r);
/* Fetches a document by HTTP GET. The connection must be closed, and is closed afterwards. */
void connection_get(connection *c, const char *path, double timeout_s, socket_reply *r);

/* How a server is reached, and how a text becomes one of its actions (openenv.c). */

typedef struct openenv_address {
    char host[256];
    int port;
    char base[512]; /* of paths: "", "/lake" */
} openenv_address;
/*
 * Reads ws://host:port/path, http:// or no scheme alike; a "/ws" at its end is left out. Returns
 * NULL, or what is wrong.
 */
const char *openenv_read_url(const char *url, openenv_address *out);

/* How the text of an action becomes the JSON that the server reads. */
typedef struct openenv_form {
    const char *field;   /* NULL: the text is the whole action, a JSON object */
    ares_json_type type; /* of its value; STRING takes any text */
    const char **names;  /* [n_names] its values, as texts; 0: not listed */
    int n_names;
    ares_arena arena;
} openenv_form;
void openenv_form_fini(openenv_form *f);
/*
 * Reads the server's schema of actions. field: the user's choice; "*": the text is a whole action;
 * NULL: the only field that an action must have beside those of `constants`. ARES_ECONFIG names
 * the fields to choose from.
 */
int openenv_form_read(openenv_form *f, const ares_json *schema, const char *field,
                      const ares_json *constants);
/* Appends the action as {..}; false: the text is no such action. */
bool openenv_form_write(const openenv_form *f, const ares_json *constants, ares_view text,
                        ares_str *out);
#endif
