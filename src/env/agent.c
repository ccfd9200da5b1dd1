/*
 * `agent`: the player is a program of the user's own, which asks the run's endpoint for answers as
 * it would ask OpenAI's (docs/serve.md#agents). There is no state here: what the program is run
 * with, and the tasks of its episodes. train/agents/players.c runs it.
 */
#include <stdio.h>

#include "internal.h"

#define AGENT_OPTIONS(X)                                                                          \
    X(texts, command, "command", "???", "nonempty#1+",                                            \
      "the program and its words; it talks to the endpoint in OPENAI_BASE_URL and writes a line " \
      "with the reward")                                                                          \
    X(text, tasks, "tasks", "null", "nonempty",                                                   \
      "a file of JSON lines; an episode gets the row (seed mod rows) as its task")                \
    X(i64, processes, "processes", "16", "[1,4096]", "processes that are alive at once")          \
    X(i64, per_process, "episodes_per_process", "1", "[1,4096]",                                  \
      "episodes that a process plays at once; above 1, each line holds an id")                    \
    X(f64, timeout_s, "timeout_s", "120", "(0,1e6]",                                              \
      "seconds of an episode's own time, which stands while one of its requests is being "        \
      "answered; an episode that is late has failed, and its process is killed")                  \
    X(f64, start_timeout_s, "start_timeout_s", "60", "[0,1e6]",                                   \
      "seconds that the first episode of a process gets beside timeout_s")                        \
    X(i64, max_requests, "max_requests", "64", "[1,1000000]", "requests of an episode at most")   \
    X(i64, memory_mb, "memory_mb", "0", "0|[16,1000000000]",                                      \
      "MiB of address space of a process; 0: no limit")
ARES_OPTION_STRUCT(agent_options, AGENT_OPTIONS);
static ARES_OPTION_TABLE(agent_table, agent_options, AGENT_OPTIONS);

/* What all episodes of a definition share. */
typedef struct agent {
    ares_env_program program;
    ares_arena arena; /* of argv and tasks */
    ares_view *tasks;
    int64_t n_tasks, cap;
} agent;

static int add_task(void *ctx, const ares_json *row)
{
    agent *a = ctx;
    ares_str text = { 0 };
    if (a->n_tasks == a->cap) {
        a->cap = a->cap * 2 + 64;
        a->tasks = ares_realloc(a->tasks, (size_t)a->cap * sizeof *a->tasks);
    }
    ares_json_write(&text, row);
    a->tasks[a->n_tasks++] =
        (ares_view){ ares_arena_copy(&a->arena, text.data, text.len), text.len };
    ares_str_fini(&text);
    return ARES_OK;
}

static void unload(void *shared)
{
    agent *a = shared;
    if (!a) return;
    ares_arena_fini(&a->arena);
    ares_free(a->tasks);
    ares_free(a);
}

static int load(const void *options, void **shared)
{
    const agent_options *o = options;
    agent *a = *shared = ares_calloc(1, sizeof *a);
    char **argv = ares_arena_calloc(&a->arena, (size_t)o->command.count + 1, sizeof *argv);
    for (int64_t i = 0; i < o->command.count; i++)
        argv[i] = ares_arena_printf(&a->arena, "%s", o->command.items[i]);
    if (o->tasks) {
        ares_arena rows = { 0 };
        int rc = env_rows_read(o->tasks, 0, &rows, add_task, a);
        ares_arena_fini(&rows);
        ARES_TRY(rc);
        if (!a->n_tasks)
            return ares_fail(ARES_EFORMAT,
                             "env: tasks = '%s': it holds no row; write a line of "
                             "JSON for each task, or leave it out",
                             o->tasks);
    }
    a->program = (ares_env_program){ .argv = argv,
                                     .processes = o->processes,
                                     .per_process = o->per_process,
                                     .timeout_s = o->timeout_s,
                                     .start_timeout_s = o->start_timeout_s,
                                     .max_requests = o->max_requests,
                                     .memory_bytes = o->memory_mb << 20,
                                     .tasks = a->tasks,
                                     .n_tasks = a->n_tasks };
    return ARES_OK;
}

/* Program and tasks, before anything starts. */
static void check(const void *options, ares_config *cfg, const char *path)
{
    const agent_options *o = options;
    void *shared = NULL;
    char where[300];
    foreign_check_program(o->command.items[0], cfg, path);
    if (!o->tasks) return;
    snprintf(where, sizeof where, "%s.tasks", path);
    if (load(o, &shared) != ARES_OK) ares_config_fault(cfg, where, "%s", ares_error_message());
    ares_error_clear();
    unload(shared);
}

static const ares_env_program *program(const void *shared)
{
    return &((const agent *)shared)->program;
}

/* Three pipes to a process, and some connections from it. */
static int64_t descriptors(const void *options, int64_t n)
{
    const agent_options *o = options;
    int64_t wanted = (n + o->per_process - 1) / o->per_process;
    return ARES_MIN(wanted, o->processes) * 3 + ARES_MIN(n, o->processes * o->per_process) * 4;
}

const ares_env_type ares_env_type_agent = {
    .name = "agent",
    .doc = "a program of the user's own that plays by itself, against the run's endpoint",
    .options = agent_table,
    .options_size = sizeof(agent_options),
    .check = check,
    .load = load,
    .unload = unload,
    .program = program,
    .waits = true,
    .descriptors = descriptors,
};
