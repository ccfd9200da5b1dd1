/*
 * ares-train sweep: the check of all runs before the first starts, what is written down, then the
 * command. sweep_grid.c makes the list of runs, sweep_queue.c starts them.
 */
#include "sweep.h"
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/dist.h"
#include "ares/io.h"
#include "ares/train.h"

/*
 * Before anything starts: every configuration is whole, what it names can be opened, and no run
 * directory holds something else. The trainer checks all this again; here it fails at once, not run
 * by run over hours.
 */

/* Notes how far the run is; one whose directory holds a run of other options goes to `refused`. */
static int take_state(sweep *s, sweep_run *r, const ares_config *cfg, const ares_train_config *c,
                      ares_str *refused)
{
    ares_run_state state;
    ares_str changed = { 0 };
    int rc = ARES_OK;
    if (ares_dir_exists(r->run_dir)) {
        /* a sweep that was killed leaves its children: one of them may still train in there */
        int fd;
        rc = ares_lock_take(r->run_dir, &fd);
        if (rc != ARES_OK) return ares_fail_in(rc, "sweep: run %s", r->name);
        ares_lock_drop(fd);
    }
    rc = ares_run_inspect(cfg, c, &state, &changed);
    if (rc == ARES_OK) {
        r->begins_anew = s->force && (state == ARES_RUN_FINISHED || state == ARES_RUN_CHANGED);
        r->goes_on = state == ARES_RUN_UNFINISHED;
        if (state == ARES_RUN_FINISHED && !s->force) r->state = SWEEP_DONE;
        if (state == ARES_RUN_CHANGED && !s->force)
            ares_str_addf(refused, "\n  %s (%s)", r->run_dir,
                          changed.len ? changed.data : "its DONE has another hash");
    }
    ares_str_fini(&changed);
    return rc;
}

/* Resolves and checks the configuration of a run, and notes how far it is. */
static int check_run(sweep *s, sweep_run *r, bool open, ares_str *refused)
{
    ares_str needs = { 0 };
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    memset(&c, 0, sizeof c);
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, r->n_words, r->words);
    ares_config_resolve(cfg);
    bool one_card = c.trainer.device && strncmp(c.trainer.device, "cuda:", 5) == 0;
    if (open && !one_card)
        ares_train_memory_check(cfg, &c, (int)s->o.ranks, (int)s->o.ranks, true, &needs);
    int rc = ares_config_fault_count(cfg) ? ares_config_finish(cfg)
                                          : ares_train_config_check(cfg, &c, (int)s->o.ranks);
    if (rc != ARES_OK) ares_fail_in(rc, "sweep: run %s", r->name);
    else if (one_card)
        rc =
            ares_fail(ARES_EUSE,
                      "sweep: run %s: trainer.device = '%s': a sweep gives each run its cards; set "
                      "trainer.device=cuda, and name the cards with --gpus %s",
                      r->name, c.trainer.device, c.trainer.device + 5);
    else {
        r->on_cards = strcmp(c.trainer.device, "cuda") == 0;
        r->shares_cpus = c.trainer.threads == ARES_NULL_I64;
        rc = take_state(s, r, cfg, &c, refused);
        /*
         * Does what the run itself does before its first step. Only the first seed of a combination
         * is rehearsed: the others open the same files.
         */
        bool first = r->seed < 0 || r->seed == s->o.seeds.items[0];
        if (rc == ARES_OK && open && r->state != SWEEP_DONE && first) {
            int ranks = (int)s->o.ranks;
            ares_str_clear(&needs);
            rc = ares_train_plan_check(cfg, &c, ranks, ranks, true, true, &needs);
            if (rc == ARES_OK) rc = ares_train_rehearse(cfg, &c, ranks);
            if (rc != ARES_OK) ares_fail_in(rc, "sweep: run %s", r->name);
        }
    }
    ares_str_fini(&needs);
    ares_config_free(cfg);
    return rc;
}

/*
 * Resolves and checks the configuration of every run. Finished runs get SWEEP_DONE. Fails where a
 * directory holds a run of other options, or one that a living process is training. open: also
 * checks that unfinished runs can begin on this machine, and opens what they open but the weights.
 */
static int sweep_check_runs(sweep *s, bool open)
{
    ares_str refused = { 0 };
    int rc = ARES_OK;
    for (int i = 0; i < s->n && rc == ARES_OK; i++) {
        /* warnings of the first configuration alone: the others would repeat them */
        ares_log_set(i ? ARES_LOG_ERROR : ARES_LOG_WARN, 0);
        rc = check_run(s, &s->runs[i], open, &refused);
    }
    ares_log_set(ARES_LOG_INFO, 0);
    if (rc == ARES_OK && refused.len)
        rc = ares_fail(ARES_ESTATE,
                       "sweep: these hold runs with other options:%s\nRestore the options to go "
                       "on with them, give the sweep another --name or --dir, or pass --force to "
                       "begin them anew (what is there is moved aside)",
                       refused.data);
    ares_str_fini(&refused);
    return rc;
}

/*
 * What a sweep writes down: sweep.json (its runs, for `compare` and for the next sweep), a line for
 * each result, and the summary with the lines of all runs. Everything but the summary is replaced
 * whole; the summary grows by one write per result.
 */

static const char *const states[] = { "waiting", "running", "done", "failed", "stopped" };

const char *sweep_manifest(sweep *s)
{
    return ares_arena_printf(&s->arena, "%s/sweep.json", s->dir);
}

/* ---------------------------------------------------------------- sweep.json */
/* The runs of this command, and those of earlier ones in the same folder. */
struct sweep_record {
    const sweep_run **runs; /* [n] in the order in which they came */
    const char **names;     /* [n_names] of all parameters; first this command's, in its order */
    int n, n_names;
};

/* A member that is null where there is no text. */
static void write_text(ares_str *out, const char *key, const char *value)
{
    ares_json_key(out, key);
    if (value) ares_json_write_string(out, ares_view_of(value));
    else ares_json_write_null(out);
}

/* The run's value of a parameter; NULL: the run's command had no such parameter. */
static const char *value_of(const sweep *s, const sweep_run *r, int name)
{
    bool own = r >= s->runs && r < s->runs + s->n;
    return own && name >= s->n_parameters ? NULL : r->values[name];
}

/* Whether the runs have several values of the parameter. */
static bool varies(const sweep *s, int name)
{
    const struct sweep_record *all = s->record;
    const char *first = value_of(s, all->runs[0], name);
    for (int i = 1; i < all->n; i++) {
        const char *value = value_of(s, all->runs[i], name);
        if (!value != !first || (value && strcmp(value, first) != 0)) return true;
    }
    return false;
}

/* The working directory; "" where it cannot be told. */
static const char *this_folder(sweep *s)
{
    char path[4096];
    return getcwd(path, sizeof path) ? ares_arena_copy(&s->arena, path, strlen(path)) : "";
}

/* Replaces sweep.json whole. */
int sweep_write_manifest(sweep *s)
{
    const struct sweep_record *all = s->record;
    ares_str json = { 0 }, text = { 0 };
    ares_json_begin(&json, '{');
    write_text(&json, "sweep", s->name);
    /* paths of runs are relative to this folder */
    write_text(&json, "from", this_folder(s));
    ares_json_begin(ares_json_key(&json, "parameters"), '[');
    for (int i = 0; i < all->n_names; i++)
        if (varies(s, i)) ares_json_write_string(&json, ares_view_of(all->names[i]));
    ares_json_end(&json, ']');
    ares_json_begin(ares_json_key(&json, "runs"), '[');
    for (int i = 0; i < all->n; i++) {
        const sweep_run *r = all->runs[i];
        ares_json_begin(&json, '{');
        write_text(&json, "run", r->name);
        /*
         * what a curve of the figure is called: the values of the parameters that vary; their names
         * too where there are several
         */
        int several = 0;
        ares_str variant = { 0 };
        for (int k = 0; k < all->n_names; k++) several += varies(s, k);
        for (int k = 0; k < all->n_names; k++) {
            const char *value = value_of(s, r, k);
            if (!value || !varies(s, k)) continue;
            if (several == 1) ares_str_add_z(&variant, value);
            else
                ares_str_addf(&variant, "%s%s = %s", variant.len ? ", " : "",
                              sweep_shown_name(all->names, all->n_names, k), value);
        }
        write_text(&json, "variant", variant.len ? variant.data : s->name);
        ares_str_fini(&variant);
        ares_json_begin(ares_json_key(&json, "values"), '{');
        for (int k = 0; k < s->record->n_names; k++)
            if (value_of(s, r, k)) write_text(&json, s->record->names[k], value_of(s, r, k));
        ares_json_end(&json, '}');
        if (r->seed >= 0) ares_json_write_i64(ares_json_key(&json, "seed"), r->seed);
        else write_text(&json, "seed", NULL);
        write_text(&json, "run_dir", r->run_dir);
        write_text(&json, "log", r->log);
        write_text(&json, "state", states[r->state]);
        ares_json_write_rounded(ares_json_key(&json, "wall_s"), r->wall_s, 6);
        write_text(&json, "gpu", r->gpu);
        ares_json_end(&json, '}');
    }
    ares_json_end(&json, ']');
    ares_json_end(&json, '}');
    ares_json_indent(&text, ares_str_view(&json), 2);
    ares_str_add_char(&text, '\n');
    int rc = ares_file_write_atomic(sweep_manifest(s), text.data, text.len);
    ares_str_fini(&json);
    ares_str_fini(&text);
    return rc;
}

/* ---------------- what earlier commands wrote */
/* Takes over time and card of earlier attempts of a run. */
static void take_earlier(sweep_run *r, const ares_json *item)
{
    if (ares_json_get_double(item, "wall_s", 0, &r->wall_s) != ARES_OK) r->wall_s = 0;
    r->gpu = cli_text_of(item, "gpu");
}

/* The place of a parameter's name, which is added where it is new. */
static int name_at(struct sweep_record *all, const char *name)
{
    for (int i = 0; i < all->n_names; i++)
        if (strcmp(all->names[i], name) == 0) return i;
    all->names[all->n_names] = name;
    return all->n_names++;
}

/* Lists a run of another command, unless its directory is gone. from: what its paths start at. */
static void keep(sweep *s, const ares_json *item, const char *from, int most_names)
{
    const char *name = cli_text_of(item, "run"), *dir = cli_text_of(item, "run_dir"),
               *log = cli_text_of(item, "log"), *state = cli_text_of(item, "state");
    const ares_json *values = ares_json_get(item, "values"), *seed = ares_json_get(item, "seed");
    if (!name || !dir) return;
    if (from && *dir != '/' && strcmp(from, this_folder(s)) != 0)
        dir = ares_arena_printf(&s->arena, "%s/%s", from, dir);
    if (!ares_dir_exists(dir)) return;
    sweep_run *r = ares_arena_calloc(&s->arena, 1, sizeof *r);
    const char **texts = ares_arena_calloc(&s->arena, (size_t)most_names, sizeof *texts);
    *r = (sweep_run){ .name = name, .run_dir = dir, .log = log, .values = texts };
    r->seed = seed && seed->type == ARES_JSON_INT ? seed->integer : -1;
    for (int i = 0; state && i < ARES_COUNT(states); i++)
        if (strcmp(states[i], state) == 0) r->state = (sweep_state)i;
    for (int64_t i = 0; values && i < values->count; i++) {
        const char *key = values->members[i].key.data;
        texts[name_at(s->record, key)] = cli_text_of(values, key);
    }
    take_earlier(r, item);
    s->record->runs[s->record->n++] = r;
}

/* Lists the runs of earlier commands; a file that cannot be read loses them, with a warning. */
int sweep_read_manifest(sweep *s)
{
    const char *path = sweep_manifest(s);
    ares_str text = { 0 };
    const ares_json *all = NULL, *runs = NULL;
    bool there = ares_file_exists(path);
    int rc = there ? ares_file_read(path, &text) : ARES_OK;
    const char *copy = ares_arena_copy(&s->arena, text.data ? text.data : "", text.len);
    ares_str_fini(&text);
    if (rc != ARES_OK) return rc;
    if (there &&
        ares_json_parse(&s->arena, ares_view_trim(ares_view_of(copy)), path, &all) == ARES_OK)
        runs = ares_json_get(all, "runs");
    if (runs && runs->type != ARES_JSON_ARRAY) runs = NULL;
    if (there && !runs)
        ares_log(ARES_LOG_WARN,
                 "sweep: %s cannot be read; it is written anew, and times of earlier attempts and "
                 "runs of other commands are lost",
                 path);
    ares_error_clear();
    /* the runs of the manifest in its order, if there is one, then this command's new ones */
    const char *from = all ? cli_text_of(all, "from") : NULL;
    ares_map *own = ares_map_new();
    int64_t earlier = runs ? runs->count : 0, names = s->n_parameters + 1, at;
    struct sweep_record *record = s->record = ares_arena_calloc(&s->arena, 1, sizeof *record);
    bool *listed = ares_arena_calloc(&s->arena, (size_t)s->n + 1, sizeof *listed);
    for (int64_t i = 0; i < earlier; i++) {
        const ares_json *values = ares_json_get(&runs->items[i], "values");
        names += values ? values->count : 0;
    }
    record->runs = ares_arena_calloc(&s->arena, (size_t)(s->n + earlier + 1), sizeof(sweep_run *));
    record->names = ares_arena_calloc(&s->arena, (size_t)names, sizeof(char *));
    for (int i = 0; i < s->n_parameters; i++) name_at(record, s->parameters[i].name);
    for (int i = 0; i < s->n; i++) ares_map_put(own, ares_view_of(s->runs[i].name), i);
    for (int64_t i = 0; i < earlier; i++) {
        const char *name = cli_text_of(&runs->items[i], "run");
        if (!name || !ares_map_get(own, ares_view_of(name), &at)) {
            keep(s, &runs->items[i], from, (int)names);
            continue;
        }
        if (listed[at]) continue;
        if (!s->runs[at].begins_anew) take_earlier(&s->runs[at], &runs->items[i]);
        listed[at] = true;
        record->runs[record->n++] = &s->runs[at];
    }
    for (int i = 0; i < s->n; i++)
        if (!listed[i]) record->runs[record->n++] = &s->runs[i];
    ares_map_free(own);
    return ARES_OK;
}

/* ---------------------------------------------------------------- results */
/* The sum of one or two metrics in seconds over all steps (second: NULL or its name). */
static void add_seconds(ares_str *out, const char *name, const runs_run *r, const char *metric,
                        const char *second)
{
    ares_arena arena = { 0 };
    double sum = 0;
    int64_t n = 0;
    for (const char *m = metric; m; m = m == metric ? second : NULL) {
        runs_series p = runs_series_of(&arena, r, m);
        for (int64_t i = 0; i < p.n; i++) sum += p.value[i];
        n += p.n;
    }
    if (n) ares_str_addf(out, " | %s=%.2fs", name, sum);
    else ares_str_addf(out, " | %s=N/As", name);
    ares_arena_fini(&arena);
}

/* Appends the result of a run: "entropy=0.1 | train_time=8.00s | ... | status=success\n". */
static void describe(const sweep_run *r, ares_str *out)
{
    static const char *const step = "timing_s/step", *const validation = "timing_s/validation";
    ares_arena arena = { 0 };
    runs_run run = { 0 };
    /* a run that failed before its first step has no metrics */
    if (runs_read(&arena, "sweep", r->run_dir, &run) != ARES_OK) run = (runs_run){ 0 };
    ares_str_add_z(out, r->fields);
    add_seconds(out, "train_time", &run, step, NULL);
    add_seconds(out, "eval_time", &run, validation, NULL);
    add_seconds(out, "total_time", &run, step, validation);
    ares_str_addf(out, " | wall_time=%.0fs | gpu=%s | status=%s", r->wall_s, r->gpu ? r->gpu : "-",
                  r->state == SWEEP_DONE ? "success" : "fail");
    if (r->state == SWEEP_DONE && run.stopped) ares_str_addf(out, " | stopped=%s", run.stopped);
    ares_str_add_char(out, '\n');
    ares_arena_fini(&arena);
}

/* The folder that a file is to lie in. */
int sweep_make_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return ARES_OK;
    ares_str folder = { 0 };
    ares_str_add(&folder, path, (size_t)(slash - path));
    int rc = ares_dir_make(folder.data);
    ares_str_fini(&folder);
    return rc;
}

/* In one write, so that a sweep that is killed leaves the last line torn, and no other. */
static int append(const char *path, const ares_str *text)
{
    ARES_TRY(sweep_make_folder_of(path));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    bool written = fd >= 0 && write(fd, text->data, text->len) == (ssize_t)text->len;
    written = (fd < 0 || close(fd) == 0) && written;
    return written ? ARES_OK
                   : ares_fail(ARES_EIO, "sweep: %s: cannot be written: %s", path, strerror(errno));
}

/* Writes the result of a run to its own file, to the summary, and to the terminal. */
int sweep_record(sweep *s, const sweep_run *r)
{
    ares_str line = { 0 };
    describe(r, &line);
    int rc = sweep_make_folder_of(r->result);
    if (rc == ARES_OK) rc = ares_file_write_atomic(r->result, line.data, line.len);
    if (rc == ARES_OK && r->why) ares_str_addf(&line, "  error: %s\n", r->why);
    if (rc == ARES_OK) rc = append(s->summary, &line);
    ares_say("%s", line.data);
    fflush(stdout);
    ares_str_fini(&line);
    return rc;
}

/* ---------------------------------------------------------------- repair */

/* What a sweep left that was killed: a torn line of the summary, missing results. */
int sweep_repair(sweep *s)
{
    ares_str summary = { 0 };
    int rc = ares_file_exists(s->summary) ? ares_file_read(s->summary, &summary) : ARES_OK;
    size_t whole = summary.len; /* a last line that is not whole is cut */
    while (whole && summary.data[whole - 1] != '\n') whole--;
    if (rc == ARES_OK && whole < summary.len) {
        printf("repaired: %s ended in the middle of a line\n", s->summary);
        summary.len = whole;
        rc = ares_file_write_atomic(s->summary, summary.data, summary.len);
    }
    for (int i = 0; i < s->n && rc == ARES_OK; i++)
        if (s->runs[i].state == SWEEP_DONE) {
            /* the result of a finished run where it is missing, and its line of the summary */
            const sweep_run *r = &s->runs[i];
            ares_str line = { 0 };
            ares_view fields = ares_view_of(r->fields);
            /* kept: one line, ended, that begins with the run's fields and tells success */
            bool kept = false;
            if (ares_file_exists(r->result) && ares_file_read(r->result, &line) == ARES_OK) {
                ares_view text = ares_str_view(&line);
                kept = text.len && text.data[text.len - 1] == '\n' &&
                       ares_view_starts(text, fields) && !memchr(text.data, '\n', text.len - 1) &&
                       ares_view_find(text, ARES_VIEW(" | status=success"), fields.len) > 0;
            }
            if (!kept) {
                ares_str_clear(&line);
                describe(r, &line);
                printf("repaired: %s was missing or half-written\n", r->result);
                rc = sweep_make_folder_of(r->result);
                if (rc == ARES_OK) rc = ares_file_write_atomic(r->result, line.data, line.len);
            }
            if (rc == ARES_OK &&
                ares_view_find(ares_str_view(&summary), ares_str_view(&line), 0) < 0)
                rc = append(s->summary, &line);
            ares_str_fini(&line);
        }
    ares_str_fini(&summary);
    return rc;
}

/* ---------------------------------------------------------------- the command */
/* The options as typed. */
typedef struct options {
    sweep_words words;
    bool force, dry_run;
} options;

/* All runs from the first that is not done to the figure; the lock is held. */
static int work(sweep *s)
{
    int signal = 0, done = 0, failed = 0;
    for (int i = 0; i < s->n; i++)
        if (s->runs[i].begins_anew) {
            /* to DIR.before_1, or the first such name that is free */
            const char *dir = s->runs[i].run_dir;
            ares_str to = { 0 };
            int n = 0;
            do {
                ares_str_clear(&to);
                ares_str_addf(&to, "%s.before_%d", dir, ++n);
            } while (access(to.data, F_OK) == 0);
            int rc =
                rename(dir, to.data) == 0
                    ? ARES_OK
                    : ares_fail(ARES_EIO, "sweep: '%s' cannot be renamed to '%s'", dir, to.data);
            if (rc == ARES_OK) printf("begins anew: %s, kept as %s\n", dir, to.data);
            ares_str_fini(&to);
            ARES_TRY(rc);
        }
    ARES_TRY(sweep_read_manifest(s));
    ARES_TRY(sweep_repair(s));
    ARES_TRY(sweep_write_manifest(s));
    ARES_TRY(sweep_work(s, &signal));
    for (int i = 0; i < s->n; i++) {
        done += s->runs[i].state == SWEEP_DONE;
        failed += s->runs[i].state == SWEEP_FAILED;
    }
    printf("%d runs: %d finished, %d failed, %d to go\n", s->n, done, failed, s->n - done - failed);
    /* the runs are worth more than their figure, which does not fail the sweep */
    if (figure3_has_metrics(s->dir) &&
        figure3_draw(&(figure3_options){ .dir = s->dir, .smooth = 5 }) != ARES_OK)
        ares_log(ARES_LOG_WARN, "sweep: no figure: %s", ares_error_message());
    if (signal) { /* main makes the exit code from the signal that is noted */
        ares_signal_install(ARES_SIGNAL_WAITS);
        raise(signal);
        return ares_fail(ARES_EINTERRUPTED, "sweep: stopped by signal %d; the same command goes on",
                         signal);
    }
    if (!failed) return ARES_OK;
    ares_str text = { 0 };
    for (int i = 0; i < s->n; i++)
        if (s->runs[i].state == SWEEP_FAILED)
            ares_str_addf(&text, "\n  %s: %s (log: %s)", s->runs[i].name, s->runs[i].why,
                          s->runs[i].log);
    int rc =
        ares_fail(ARES_ECHILD, "sweep: %d of %d runs failed; the same command tries them again:%s",
                  failed, s->n, text.data);
    ares_str_fini(&text);
    return rc;
}

/* Keeps other sweeps out of the folder. */
static int take_lock(sweep *s)
{
    int rc = ares_lock_take(s->dir, &s->lock);
    return rc == ARES_ESTATE
               ? ares_fail(rc, "sweep: %s, or give this sweep another --name or --dir",
                           ares_error_message())
               : rc;
}

/* One sweep at a time in a folder, which is made once the configurations are known to be whole. */
static int run(sweep *s)
{
    if (ares_dir_exists(s->dir)) ARES_TRY(take_lock(s));
    int rc = sweep_check_runs(s, true);
    if (rc == ARES_OK) rc = ares_dir_make(s->dir);
    if (rc == ARES_OK && s->lock < 0) rc = take_lock(s);
    if (rc == ARES_OK) rc = work(s);
    ares_lock_drop(s->lock);
    return rc;
}

/*
 * --dry-run: prints the runs even where a configuration is wrong, and then fails with the fault.
 * Models and data are not opened: they may be on another machine.
 */
static int dry_run(sweep *s)
{
    int rc = sweep_check_runs(s, false);
    char *why = ares_strdup(ares_error_message());
    int printed = sweep_print(s);
    if (rc != ARES_OK) ares_fail(rc, "%s", why);
    ares_free(why);
    return rc != ARES_OK ? rc : printed;
}

/* Reads the sweep, then shows it or runs it. */
static int sweep_verb(const cli_command *command, const options *o)
{
    sweep s = { .force = o->force };
    const sweep_words *w = &o->words;
    for (int i = 0; i < w->n; i++) /* words that resemble an option of this verb and are none */
        if (strncmp(w->words[i], "--", 2) == 0 && !strchr(w->words[i], '.'))
            ARES_TRY(cli_check_typo(command, w->words[i]));
    int rc = sweep_read(&s, &o->words);
    if (rc == ARES_OK) rc = o->dry_run ? dry_run(&s) : run(&s);
    sweep_fini(&s);
    return rc;
}

int ares_cli_sweep(int argc, char **argv)
{
    static const char *const orders[] = { "seeds", "values", NULL };
    options o = { 0 };
    sweep_words *w = &o.words;
    const cli_option list[] = {
        CLI_OPTION(TEXT, w->file, "--sweep", "FILE", "what is swept, as YAML (see below)"),
        { .name = "--over",
          .type = CLI_PASSED,
          .value = "NAME=A,B,..",
          .doc = "values of a parameter of the file, or of an option; several give all "
                 "combinations, the first varies slowest" },
        CLI_OPTION(TEXT, w->seeds, "--seeds", "1,2,..", "a run of every combination with each"),
        { .name = "--let",
          .type = CLI_PASSED,
          .value = "NAME=TEXT",
          .doc = "another text for a variable of the file" },
        { .name = "--config",
          .type = CLI_PASSED,
          .value = "FILE",
          .doc = "configuration of every run, after those of the file" },
        { .name = "key=value", .type = CLI_PASSED, .doc = "overrides of every run" },
        CLI_OPTION(TEXT, w->name, "--name", "NAME", "name of the sweep"),
        CLI_OPTION(TEXT, w->dir, "--dir", "DIR",
                   "folder of the sweep; unless set what the file says, or runs/NAME"),
        CLI_OPTION(TEXT, w->order, "--order", "seeds|values",
                   "all values with the first seed first, or all seeds of the first value",
                   .choices = orders),
        CLI_OPTION(I64, w->jobs, "--jobs", "N", "runs at the same time on the CPU", .least = 1,
                   .most = 4096),
        CLI_OPTION(TEXT, w->gpus, "--gpus", "0,1,..",
                   "cards; each run takes the next --ranks of them. Unless set all"),
        CLI_OPTION(I64, w->ranks, "--ranks", "N", "processes, and cards, of a run", .least = 1,
                   .most = 4096),
        CLI_OPTION(TEXT, w->cooldown, "--cooldown", "SECONDS", "between two runs of one worker"),
        CLI_OPTION(FLAG, o.force, "--force", NULL,
                   "begin finished and changed runs anew; what is there is moved aside"),
        CLI_OPTION(FLAG, o.dry_run, "--dry-run", NULL,
                   "print names, commands and order, check the configurations, and stop"),
    };
    bool helped;
    ares_str more = { 0 };
    sweep_describe(&more);
    const cli_command command = {
        .name = "sweep",
        .usage = "[--sweep FILE] [--over NAME=A,B,..] [--seeds 1,2,..] [key=value ...]",
        .about = "Trains a run for every value of some options, with the same seeds, some at a "
                 "time, and draws the figure of all. A finished run is skipped, one that was "
                 "stopped goes on, one that fails does not stop the others. Ctrl-C lets the runs "
                 "save; the same command goes on.",
        .more = more.data,
        .example = "ares-train sweep --config examples/quickstart/config.yaml --name lr --over "
                   "worker.actor.optim.lr=1e-6,1e-5 --seeds 1,2 --jobs 2\n"
                   "ares-train sweep --sweep configs/sweeps/sokoban_entropy.yaml --dry-run",
        .options = list,
        .n_options = ARES_COUNT(list),
        .words = CLI_OVERRIDES,
    };
    int rc = cli_read(&command, &argc, argv, &helped);
    w->n = argc - 1;
    w->words = (const char *const *)argv + 1;
    if (rc == ARES_OK && !helped) rc = sweep_verb(&command, &o);
    ares_str_fini(&more);
    return rc;
}
