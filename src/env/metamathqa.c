/*
 * `metamathqa`: a question of a file, with several attempts (docs/environments.md#metamathqa).
 */
#include <ctype.h>

#include "ares/core.h"
#include "internal.h"

#define METAMATHQA_OPTIONS(X)                \
    X(text, path, "path", "???", "nonempty", \
      "JSON lines of {\"query\": \"..\", \"response\": \".. The answer is: ..\"}")
ARES_OPTION_STRUCT(metamathqa_options, METAMATHQA_OPTIONS);
static ARES_OPTION_TABLE(metamathqa_table, metamathqa_options, METAMATHQA_OPTIONS);

/* A question and the answer that is right; both point into the file's arena. */
typedef struct question {
    ares_view text, answer;
} question;

/* The questions of the file, which all environments share. */
typedef struct questions {
    ares_arena arena;
    question *items;
    int64_t n, capacity;
} questions;

/* A question, and of its response what follows the mark: the answer. */
static int add_row(void *ctx, const ares_json *row)
{
    const ares_view mark = ARES_VIEW("The answer is: ");
    questions *all = ctx;
    ares_view query, response;
    ARES_TRY(ares_json_get_string(row, "query", "", &query));
    ARES_TRY(ares_json_get_string(row, "response", "", &response));
    if (!query.len || !response.len)
        return ares_fail(ARES_EFORMAT, "the row has no 'query' or no 'response'");
    int64_t at = ares_view_find(response, mark, 0);
    if (at < 0) return ares_fail(ARES_EFORMAT, "'response' has no 'The answer is: '");
    if (all->n == all->capacity) {
        all->capacity = all->capacity * 2 + 64;
        all->items = ares_realloc(all->items, (size_t)all->capacity * sizeof *all->items);
    }
    /* views of the row, which the arena of the file keeps */
    size_t begin = (size_t)at + mark.len;
    all->items[all->n++] = (question){ query, { response.data + begin, response.len - begin } };
    return ARES_OK;
}

static void unload(void *shared)
{
    questions *all = shared;
    if (!all) return;
    ares_arena_fini(&all->arena);
    ares_free(all->items);
    ares_free(all);
}

static int load(const void *options, void **shared)
{
    const metamathqa_options *o = options;
    questions *all = *shared = ares_calloc(1, sizeof *all);
    ARES_TRY(env_rows_read(o->path, 0, &all->arena, add_row, all));
    return all->n ? ARES_OK : ares_fail(ARES_EFORMAT, "env: %s: no rows", o->path);
}

typedef struct metamathqa {
    const questions *all;
    const question *now;
    int attempts;
    bool right;
} metamathqa;

static int open_questions(const void *options, const void *shared, void **env)
{
    (void)options;
    metamathqa *m = *env = ares_calloc(1, sizeof *m);
    m->all = shared;
    return ARES_OK;
}

/* The seed draws a question. */
static int reset(void *env, const ares_env_start *start)
{
    metamathqa *m = env;
    ares_mt19937 py;
    ares_py_seed(&py, start->seed);
    m->now = &m->all->items[ares_py_below(&py, (uint64_t)m->all->n)];
    m->attempts = 0;
    m->right = false;
    return ARES_OK;
}

/* The next byte that is no white space, in lower case; -1: none is left. */
static int next_byte(ares_view *v)
{
    while (v->len && isspace((unsigned char)*v->data)) v->data++, v->len--;
    if (!v->len) return -1;
    v->len--;
    return tolower((unsigned char)*v->data++);
}

/* The episode goes on until the answer is right or no action is left. */
static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    metamathqa *m = env;
    /* "x = 2" and "X=2" are the same answer */
    ares_view given = action.text, gold = m->now->answer;
    bool empty = !ares_view_trim(given).len;
    int a, b;
    do { /* compared without white space and case */
        a = next_byte(&given);
        b = next_byte(&gold);
    } while (a == b && a >= 0);
    m->right = a == b && !empty; /* both have ended: a and b are -1 */
    double reward = m->right;    /* 1, halved for each attempt before this one */
    for (int i = 0; i < m->attempts && reward > 0; i++) reward /= 2;
    m->attempts++;
    out->reward.value = reward;
    out->done = out->success = m->right;
    env_tell(out, "action_is_valid", !empty);
    return ARES_OK;
}

/* The question, then only whether the last answer was right. */
static void render(const void *env, ares_str *out)
{
    const metamathqa *m = env;
    if (!m->attempts) ares_str_add_view(out, m->now->text);
    else ares_str_add_z(out, m->right ? "Correct!" : "Incorrect. Please think again.");
}

const ares_env_type ares_env_type_metamathqa = {
    .name = "metamathqa",
    .doc = "a question of a file; a right answer pays half as much per attempt before it",
    .options = metamathqa_table,
    .options_size = sizeof(metamathqa_options),
    .load = load,
    .unload = unload,
    .open = open_questions,
    .close = ares_free,
    .reset = reset,
    .step = step,
    .render = render,
};
