/*
 * run.json: which program made a run, where, with which command, and when
 * (docs/runs.md#run-directory). Written when the run begins or goes on and when it ends; a run that
 * was killed has no end in it.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "commit.h" /* made by the build */
#include "run.h"

static const char *const name = "run.json";

/* Now, in ISO 8601 and UTC. */
static void write_time(ares_str *out)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    ares_json_write_string(out, ares_view_of(text));
}

static void write_text(ares_str *out, const char *key, const char *text) /* empty: null */
{
    ares_json_key(out, key);
    if (text && *text) ares_json_write_string(out, ares_view_of(text));
    else ares_json_write_null(out);
}

/*
 * The words of this process's command. A process under --ranks has the user's words less that
 * option, which is put back, so that the list is a command that makes the run again.
 */
static void write_command(ares_str *out, int ranks)
{
    ares_str words = { 0 };
    char number[16];
    if (ares_file_read("/proc/self/cmdline", &words) != ARES_OK) ares_error_clear();
    ares_json_begin(ares_json_key(out, "command"), '[');
    for (size_t at = 0; at < words.len; at += strlen(words.data + at) + 1)
        ares_json_write_string(out, ares_view_of(words.data + at));
    if (ranks > 1) {
        (void)snprintf(number, sizeof number, "%d", ranks);
        ares_json_write_string(out, ARES_VIEW("--ranks"));
        ares_json_write_string(out, ares_view_of(number));
    }
    ares_json_end(out, ']');
    ares_str_fini(&words);
}

/* The machine, and what the run uses of it. */
static void write_machine(const training *t, ares_str *out)
{
    char text[4096];
    ares_str cpu = { 0 };
    const char *table = t->device.k->name, *card = ares_device_card(&t->device);
    int ranks = ares_world_size(t->world);
    write_text(out, "cwd", getcwd(text, sizeof text));
    text[sizeof text - 1] = 0;
    write_text(out, "host", gethostname(text, sizeof text - 1) == 0 ? text : NULL);
    (void)ares_file_line("/proc/cpuinfo", "model name", &cpu);
    write_text(out, "cpu", cpu.data);
    ares_str_fini(&cpu);
    /* "cpu avx512": our own kernels, and their instruction set */
    write_text(out, "isa", strncmp(table, "cpu ", 4) == 0 ? table + 4 : NULL);
    ares_json_write_i64(ares_json_key(out, "threads"), ares_pool_threads(t->device.pool));
    ares_json_write_i64(ares_json_key(out, "ranks"), ranks);
    write_text(out, "device", card ? card : "cpu");
}

/* The file as an earlier process has left it; NULL: there is none, or none that can be read. */
static const ares_json *read_record(const char *path, ares_arena *arena)
{
    ares_str text = { 0 };
    const ares_json *old = NULL;
    if (!ares_file_exists(path) || ares_file_read(path, &text) != ARES_OK ||
        ares_json_parse(arena, ares_view_trim(ares_str_view(&text)), path, &old) != ARES_OK)
        old = NULL;
    ares_error_clear();
    ares_str_fini(&text);
    return old && old->type == ARES_JSON_OBJECT ? old : NULL;
}

int record_begin(const training *t, bool goes_on)
{
    ares_arena arena = { 0 };
    ares_str out = { 0 }, path = { 0 };
    ares_path_join(&path, t->run_dir.data, name);
    const ares_json *old = goes_on ? read_record(path.data, &arena) : NULL,
                    *started = ares_json_get(old, "started"),
                    *resumed = ares_json_get(old, "resumed");
    ares_json_begin(&out, '{');
    ares_json_write_string(ares_json_key(&out, "version"), ARES_VIEW(ARES_VERSION));
    write_text(&out, "commit", ARES_COMMIT);
    write_command(&out, ares_world_size(t->world));
    write_machine(t, &out);
    ares_json_begin(ares_json_key(&out, "model"), '{');
    write_text(&out, "path", t->model_dir.data);
    write_text(&out, "architecture", t->model->cfg.model_type);
    ares_json_write_i64(ares_json_key(&out, "parameters"), ares_params_count(&t->model->params));
    ares_json_end(&out, '}');
    ares_json_key(&out, "started");
    if (started) ares_json_write(&out, started);
    else if (goes_on) ares_json_write_null(&out); /* by a program that wrote no such file */
    else write_time(&out);
    write_text(&out, "ended", NULL);
    write_text(&out, "stopped", NULL);
    ares_json_begin(ares_json_key(&out, "resumed"), '[');
    for (int64_t i = 0; resumed && resumed->type == ARES_JSON_ARRAY && i < resumed->count; i++)
        ares_json_write(&out, &resumed->items[i]);
    if (goes_on) {
        ares_json_begin(&out, '{');
        ares_json_write_i64(ares_json_key(&out, "step"), t->step);
        write_time(ares_json_key(&out, "time"));
        ares_json_end(&out, '}');
    }
    ares_json_end(&out, ']');
    ares_json_write_i64(ares_json_key(&out, "seed"), t->cfg->rollout.seed);
    ares_json_end(&out, '}');
    ares_str_add_char(&out, '\n');
    int rc = ares_file_write_atomic(path.data, out.data, out.len);
    ares_str_fini(&out);
    ares_str_fini(&path);
    ares_arena_fini(&arena);
    return rc;
}

void record_end(const char *run_dir, const char *stopped)
{
    ares_arena arena = { 0 };
    ares_str out = { 0 }, path = { 0 };
    char *why = stopped ? ares_strdup(stopped) : NULL; /* it may be the text of an error */
    const ares_json *old = read_record(ares_path_join(&path, run_dir, name), &arena);
    ares_json_begin(&out, '{');
    for (int64_t i = 0; old && i < old->count; i++) {
        ares_view key = old->members[i].key;
        if (ares_view_is(key, "ended")) write_time(ares_json_key(&out, "ended"));
        else if (ares_view_is(key, "stopped")) write_text(&out, "stopped", why);
        else ares_json_write(ares_json_key_view(&out, key), old->members[i].value);
    }
    ares_json_end(&out, '}');
    ares_str_add_char(&out, '\n');
    if (old && ares_file_write_atomic(path.data, out.data, out.len) != ARES_OK)
        ares_log(ARES_LOG_WARN, "run: its end is not in run.json: %s", ares_error_message());
    ares_free(why);
    ares_str_fini(&out);
    ares_str_fini(&path);
    ares_arena_fini(&arena);
}
