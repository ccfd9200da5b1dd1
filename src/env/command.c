/*
 * `command`: an environment in a program of the user's own, in any language
 * (docs/environments.md#a-program-of-your-own).
 *
 *     {"reset":{"seed":7}}          {"observation":"..","actions":["left","right"]}
 *     {"step":{"action":"left"}}    {"observation":"..","reward":0,"done":false,"info":{}}
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foreign.h"
#include "process.h"

#define COMMAND_OPTIONS(X)                                                                         \
    X(texts, command, "command", "???", "nonempty#1+",                                             \
      "the program and its words; it reads JSON lines from stdin and answers on stdout")           \
    X(i64, seats, "environments_per_process", "1", "[1,4096]",                                     \
      "environments that one process serves at once; above 1, each line holds an id, and answers " \
      "may come in any order")                                                                     \
    X(f64, timeout_s, "timeout_s", "10", "(0,1e6]",                                                \
      "seconds for one answer; a process that is late is killed, and its episodes have failed")    \
    X(f64, start_timeout_s, "start_timeout_s", "60", "(0,1e6]",                                    \
      "seconds for the first answer of a process, its start included")                             \
    X(i64, memory_mb, "memory_mb", "4096", "[16,1000000000]", "MiB of address space of a process") \
    X(flag, number, "send_number", "false", "",                                                    \
      "a reset also tells the environment's number within its step, which the members of a group " \
      "do not share")
ARES_OPTION_STRUCT(command_options, COMMAND_OPTIONS);
static ARES_OPTION_TABLE(command_table, command_options, COMMAND_OPTIONS);

typedef struct command {
    const command_options *o;
    seat *seat;
    foreign f;
    ares_str line;
    ares_arena arena; /* of one answer */
} command;

/* ---------------- opening */
/* Whether there is such a program, as execvp looks for it. */
static bool can_run(const char *program)
{
    ares_str path = { 0 };
    const char *folders = getenv("PATH"), *end;
    bool found = strchr(program, '/') ? access(program, X_OK) == 0 : false;
    for (; folders && *folders && !found; folders = *end ? end + 1 : end) {
        end = strchrnul(folders, ':');
        ares_str_clear(&path);
        ares_str_addf(&path, "%.*s/%s", (int)(end - folders), folders, program);
        found = access(path.data, X_OK) == 0;
    }
    ares_str_fini(&path);
    return found;
}

static void check(const void *options, ares_config *cfg, const char *path)
{
    const command_options *o = options;
    char where[300];
    if (can_run(o->command.items[0])) return;
    snprintf(where, sizeof where, "%s.command", path);
    ares_config_fault(cfg, where, "there is no program '%s' that can be run", o->command.items[0]);
}

static int load(const void *options, void **shared)
{
    const command_options *o = options;
    *shared = processes_new(&(process_options){ .argv = o->command.items,
                                                .words = o->command.count,
                                                .seats = o->seats,
                                                .timeout_s = o->timeout_s,
                                                .start_timeout_s = o->start_timeout_s,
                                                .memory_bytes = o->memory_mb << 20,
                                                .answer_bytes = FOREIGN_ANSWER_BYTES });
    return ARES_OK;
}

static void unload(void *shared)
{
    processes_free(shared);
}

static int open_command(const void *options, const void *shared, void **env)
{
    seat *s = seat_new((processes *)shared); /* it has a lock of its own */
    if (!s) return ARES_EIO;
    command *c = *env = ares_calloc(1, sizeof *c);
    c->o = options;
    c->seat = s;
    return ARES_OK;
}

static int64_t descriptors(const void *options, int64_t n)
{
    return processes_descriptors(((const command_options *)options)->seats, n);
}

static void close_command(void *env)
{
    command *c = env;
    seat_free(c->seat);
    foreign_fini(&c->f);
    ares_str_fini(&c->line);
    ares_arena_fini(&c->arena);
    ares_free(c);
}

/* ---------------- questions and answers */
static void begin_line(command *c, const char *what)
{
    ares_str_clear(&c->line);
    ares_json_begin(&c->line, '{');
    if (seat_id(c->seat) >= 0) ares_json_write_i64(ares_json_key(&c->line, "id"), seat_id(c->seat));
    ares_json_begin(ares_json_key(&c->line, what), '{');
}

/* An answer that is JSON, but not what was asked for. */
static void fail_with_answer(command *c, ares_view line, const char *expected)
{
    char quote[160];
    foreign_fail(&c->f, false, "the program answered '%s'; expected %s", foreign_quote(line, quote),
                 expected);
    seat_give_up(c->seat);
}

/* The answer as an object; NULL: the episode has failed. */
static const ares_json *ask(command *c, bool begins, reply *r)
{
    const ares_json *v;
    char quote[160];
    ares_json_end(&c->line, '}');
    ares_json_end(&c->line, '}');
    seat_ask(c->seat, ares_str_view(&c->line), begins, r);
    c->f.unasked += r->unasked;
    if (r->unasked) c->f.replayable = false;
    if (r->failed) {
        foreign_fail(&c->f, r->by_clock, "%s", r->why);
        c->f.replayable = c->f.replayable && r->replayable;
        return NULL;
    }
    ares_arena_reset(&c->arena);
    if (ares_json_parse(&c->arena, r->line, "answer", &v) != ARES_OK) {
        ares_error_clear();
        fail_with_answer(c, r->line,
                         foreign_is_not_finite(r->line) ? "JSON, which has no NaN and no Infinity"
                                                        : "a line of JSON");
        return NULL;
    }
    const ares_json *said = ares_json_get(v, "error");
    if (said && said->type == ARES_JSON_STRING) {
        foreign_fail(&c->f, false, "the program says: %s", foreign_quote(said->text, quote));
        seat_give_up(c->seat);
        return NULL;
    }
    return v;
}

static bool read_state(command *c, const ares_json *v)
{
    const ares_json *text = ares_json_get(v, "observation");
    if (!text || text->type != ARES_JSON_STRING) return false;
    ares_str_clear(&c->f.state);
    ares_str_add_view(&c->f.state, text->text);
    return true;
}

static int reset(void *env, const ares_env_start *start)
{
    command *c = env;
    char seed[24];
    reply r;
    foreign_begin(&c->f);
    begin_line(c, "reset");
    int n = snprintf(seed, sizeof seed, "%llu", (unsigned long long)start->seed);
    ares_json_splice(ares_json_key(&c->line, "seed"), (ares_view){ seed, (size_t)n });
    if (c->o->number) ares_json_write_i64(ares_json_key(&c->line, "number"), start->id);
    const ares_json *v = ask(c, true, &r), *actions = ares_json_get(v, "actions");
    if (!v) return ARES_OK;
    if (!read_state(c, v) ||
        (actions && actions->type != ARES_JSON_NULL && !foreign_read_actions(&c->f, actions)))
        fail_with_answer(c, r.line, "{\"observation\": text, \"actions\": [text, ..]}");
    const ares_json *done = ares_json_get(v, "done");
    c->f.over = done && done->type == ARES_JSON_BOOL && done->boolean;
    return ARES_OK;
}

static int step(void *env, ares_env_action action, ares_env_outcome *out)
{
    command *c = env;
    reply r;
    begin_line(c, "step");
    ares_json_write_string(ares_json_key(&c->line, "action"), action.text);
    const ares_json *v = ask(c, false, &r);
    if (!v) return ARES_OK;
    const ares_json *done = ares_json_get(v, "done"), *info = ares_json_get(v, "info");
    if (!foreign_read_reward(ares_json_get(v, "reward"), &out->reward) || !done ||
        done->type != ARES_JSON_BOOL ||
        (info && info->type != ARES_JSON_OBJECT && info->type != ARES_JSON_NULL) ||
        !read_state(c, v)) {
        fail_with_answer(c, r.line,
                         "{\"observation\": text, \"reward\": number up to 1e30, "
                         "\"done\": true or false, ..}");
        return ARES_OK;
    }
    out->done = done->boolean;
    out->success = out->done && out->reward.value > 0;
    if (info && !foreign_tell(&c->f, info, out))
        fail_with_answer(c, r.line, "\"success\": true or false in info");
    return ARES_OK;
}

static void render(const void *env, ares_str *out)
{
    ares_str_add_view(out, ares_str_view(&((const command *)env)->f.state));
}

static const char *const *actions_of(const void *env, int *n)
{
    const command *c = env;
    *n = c->f.n_actions;
    return *n ? c->f.actions : NULL;
}

static bool is_over(const void *env)
{
    return ((const command *)env)->f.over;
}

static const char *failure(const void *env, bool *replayable, int64_t *unasked)
{
    return foreign_failure(&((const command *)env)->f, replayable, unasked);
}

const ares_env_type ares_env_type_command = {
    .name = "command",
    .doc = "a program of the user's own, which answers JSON lines",
    .options = command_table,
    .options_size = sizeof(command_options),
    .check = check,
    .load = load,
    .unload = unload,
    .open = open_command,
    .close = close_command,
    .reset = reset,
    .step = step,
    .render = render,
    .actions = actions_of,
    .waits = true,
    .starts_program = true,
    .failure = failure,
    .over = is_over,
    .descriptors = descriptors,
};
