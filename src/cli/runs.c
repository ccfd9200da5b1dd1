/*
 * ares-train runs: the runs below some folders, a line each. Of each metrics.jsonl the first and
 * the last 64 KiB are read, so that a thousand runs take a second: what is said of a longer one is
 * said of its first and last steps, and marked with ~.
 */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "ares/look.h"

enum { DEPTH = 4, ENDS = 64 << 10 }; /* folders below one that is named; bytes of each end */

typedef struct line {
    const char *dir, *why; /* why: it cannot be read; NULL: it was */
    bool whole;            /* the file is no longer than its two ends */
    ares_look_state state;
    const char *stopped;
    int64_t step, planned;
    double reward, accuracy, minutes; /* NAN: not known */
    double best, best_step;
    const char *best_metric;
    int count[ARES_LOOK_LEVELS];
    int64_t when; /* seconds since 1970 of the last row */
} line;

typedef struct job {
    ares_arena arena; /* names of folders */
    line *lines;
    ares_arena *texts; /* [n] what each line keeps */
    int64_t n, room;
} job;

/* ---------------- finding */

/* Adds the run directories at and below dir. Links are not followed, and a run has no run inside.
 */
static void find(job *j, const char *dir, int depth)
{
    static const char *const of_a_run[] = { "checkpoints", "rollouts", "validation" };
    ares_str path = { 0 };
    struct stat st;
    if (lstat(ares_path_join(&path, dir, "metrics.jsonl"), &st) == 0 && !S_ISDIR(st.st_mode)) {
        if (j->n == j->room)
            j->lines =
                ares_realloc(j->lines, (size_t)(j->room = 2 * j->room + 64) * sizeof *j->lines);
        j->lines[j->n++] = (line){ .dir = ares_arena_printf(&j->arena, "%s", dir),
                                   .whole = st.st_size <= 2 * ENDS,
                                   .when = st.st_mtime };
    }
    DIR *d = depth < DEPTH ? opendir(dir) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        bool own = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        for (int i = 0; i < ARES_COUNT(of_a_run); i++)
            own = own || strcmp(e->d_name, of_a_run[i]) == 0;
        if (own || (e->d_type != DT_DIR && e->d_type != DT_UNKNOWN)) continue;
        ares_path_join(&path, dir, e->d_name);
        if (lstat(path.data, &st) == 0 && S_ISDIR(st.st_mode)) find(j, path.data, depth + 1);
    }
    if (d) closedir(d);
    ares_str_fini(&path);
}

/* ---------------- reading */

/* The best value of a validation, and its step. */
static void find_best(const ares_look *l, line *r)
{
    static const struct {
        const char *metric;
        bool low; /* the lowest is the best */
    } of[] = { { "val/accuracy", false }, { "val/reward_score", false }, { "val/loss", true } };
    r->best = r->best_step = NAN;
    for (int k = 0; k < ARES_COUNT(of) && isnan(r->best); k++) {
        const double *v = ares_look_values(l, of[k].metric);
        for (int64_t i = 0; v && i < l->rows; i++) {
            if (isnan(v[i]) || (!isnan(r->best) && (of[k].low ? v[i] >= r->best : v[i] <= r->best)))
                continue;
            r->best = v[i];
            r->best_step = l->step[i];
            r->best_metric = of[k].metric;
        }
    }
}

/* Minutes of all steps: the sum of their times, or steps times their mean where some are not read.
 */
static double minutes_of(const ares_look *l)
{
    const double *v = ares_look_values(l, "timing_s/step");
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; v && i < l->rows; i++) {
        if (isnan(v[i])) continue;
        sum += v[i];
        n++;
    }
    return n ? sum / (double)n * (double)l->last_step / 60 : (double)NAN;
}

static void read_one(void *ctx, int64_t i, int worker)
{
    job *j = ctx;
    line *r = &j->lines[i];
    ares_arena *arena = &j->texts[i], scratch = { 0 };
    ares_look l;
    ares_look_verdicts v = { 0 };
    (void)worker;
    if (ares_look_read(&scratch, r->dir, ENDS, &l) != ARES_OK) {
        r->why = ares_arena_printf(arena, "%s", ares_error_message());
        ares_error_clear();
        ares_arena_fini(&scratch);
        return;
    }
    ares_look_judge(&scratch, &l, NULL, &v);
    r->state = l.state;
    r->stopped = l.stopped ? ares_arena_printf(arena, "%s", l.stopped) : NULL;
    r->step = l.last_step;
    r->planned = l.planned;
    r->reward = ares_look_last(&l, "reward/overall");
    if (isnan(r->reward)) r->reward = ares_look_last(&l, "critic/score/mean");
    r->accuracy = ares_look_last(&l, "reward/accuracy");
    r->minutes = minutes_of(&l);
    find_best(&l, r);
    memcpy(r->count, v.count, sizeof r->count);
    ares_arena_fini(&scratch);
}

/* ---------------- order */

static const char *const sort_keys[] = { "when",     "name", "state",   "step",     "reward",
                                         "accuracy", "best", "minutes", "verdicts", NULL };
static const char *sorted_by;

/* The larger first, NAN last. */
static int falling(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return ARES_CMP(b, a);
}

static int by_key(const void *a_, const void *b_)
{
    const line *a = a_, *b = b_;
    int order = 0;
    if (strcmp(sorted_by, "when") == 0) order = ARES_CMP(b->when, a->when);
    if (strcmp(sorted_by, "state") == 0) order = ARES_CMP(a->state, b->state);
    if (strcmp(sorted_by, "step") == 0) order = ARES_CMP(b->step, a->step);
    if (strcmp(sorted_by, "reward") == 0) order = falling(a->reward, b->reward);
    if (strcmp(sorted_by, "accuracy") == 0) order = falling(a->accuracy, b->accuracy);
    if (strcmp(sorted_by, "best") == 0) order = falling(a->best, b->best);
    if (strcmp(sorted_by, "minutes") == 0) order = falling(a->minutes, b->minutes);
    if (strcmp(sorted_by, "verdicts") == 0)
        for (int k = ARES_VERDICT_BAD; k <= ARES_VERDICT_WARN && !order; k++)
            order = ARES_CMP(b->count[k], a->count[k]);
    return order ? order : strcmp(a->dir, b->dir);
}

/* ---------------- as a table, and as JSON */

enum { COLUMNS = 9 };
typedef ares_str cells[COLUMNS];

static void add_number(ares_str *out, const char *before, double x)
{
    if (isnan(x)) ares_str_add_z(out, "-");
    else ares_str_addf(out, "%s%.4g", before, x);
}

static void fill(const line *r, cells c)
{
    char when[32];
    time_t at = (time_t)r->when;
    struct tm parts;
    const char *about = r->whole ? "" : "~";
    cli_add_line(&c[0], ares_view_of(r->dir));
    localtime_r(&at, &parts);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", &parts);
    ares_str_add_z(&c[8], when);
    if (r->why) {
        ares_str_add_z(&c[1], "unreadable");
        for (int i = 2; i < 8; i++) ares_str_add_z(&c[i], "-");
        return;
    }
    ares_str_add_z(&c[1], ares_look_state_name(r->state));
    ares_str_addf(&c[2], "%lld", (long long)r->step);
    if (r->planned > 0) ares_str_addf(&c[2], "/%lld", (long long)r->planned);
    add_number(&c[3], "", r->reward);
    add_number(&c[4], "", r->accuracy);
    add_number(&c[5], about, r->best);
    if (!isnan(r->best)) ares_str_addf(&c[5], " @%.0f", r->best_step);
    if (isnan(r->minutes)) ares_str_add_z(&c[6], "-");
    else ares_str_addf(&c[6], "%s%.1f", about, r->minutes);
    ares_str_add_z(&c[7], about);
    if (r->count[ARES_VERDICT_BAD]) ares_str_addf(&c[7], "%d bad ", r->count[ARES_VERDICT_BAD]);
    if (r->count[ARES_VERDICT_WARN]) ares_str_addf(&c[7], "%d warn ", r->count[ARES_VERDICT_WARN]);
    ares_str_addf(&c[7], "%d good", r->count[ARES_VERDICT_GOOD]);
}

/* Characters, each of which takes a column in most terminals. */
static int width_of(const ares_str *s)
{
    int n = 0;
    for (size_t i = 0; i < s->len; i++) n += ((unsigned char)s->data[i] & 0xC0) != 0x80;
    return n;
}

static void add_table(const job *j, ares_str *out)
{
    static const char *const names[COLUMNS] = { "run",    "state",    "step",
                                                "reward", "accuracy", "best val",
                                                "min",    "verdicts", "last row" };
    cells *all = ares_calloc((size_t)j->n + 1, sizeof *all);
    int width[COLUMNS] = { 0 };
    for (int k = 0; k < COLUMNS; k++) ares_str_add_z(&all[0][k], names[k]);
    for (int64_t i = 0; i < j->n; i++) fill(&j->lines[i], all[i + 1]);
    for (int64_t i = 0; i <= j->n; i++)
        for (int k = 0; k < COLUMNS; k++) width[k] = ARES_MAX(width[k], width_of(&all[i][k]));
    for (int64_t i = 0; i <= j->n; i++)
        for (int k = 0; k < COLUMNS; k++) {
            ares_str_add_view(out, ares_str_view(&all[i][k]));
            if (k < COLUMNS - 1) ares_str_addf(out, "%*s", width[k] - width_of(&all[i][k]) + 2, "");
            else ares_str_add_char(out, '\n');
            ares_str_fini(&all[i][k]);
        }
    ares_free(all);
}

static void add_json(const job *j, ares_str *out)
{
    char when[32];
    ares_json_begin(out, '[');
    for (int64_t i = 0; i < j->n; i++) {
        const line *r = &j->lines[i];
        time_t at = (time_t)r->when;
        struct tm parts;
        gmtime_r(&at, &parts);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
        ares_json_begin(out, '{');
        ares_json_write_string(ares_json_key(out, "dir"), ares_view_of(r->dir));
        ares_json_write_string(ares_json_key(out, "last_row"), ares_view_of(when));
        if (r->why) {
            ares_json_write_string(ares_json_key(out, "error"), ares_view_of(r->why));
            ares_json_end(out, '}');
            continue;
        }
        ares_json_write_string(ares_json_key(out, "state"),
                               ares_view_of(ares_look_state_name(r->state)));
        ares_json_key(out, "stopped");
        if (r->stopped) ares_json_write_string(out, ares_view_of(r->stopped));
        else ares_json_write_null(out);
        ares_json_write_i64(ares_json_key(out, "step"), r->step);
        ares_json_key(out, "planned");
        if (r->planned >= 0) ares_json_write_i64(out, r->planned);
        else ares_json_write_null(out);
        ares_json_write_double(ares_json_key(out, "reward"), r->reward);
        ares_json_write_double(ares_json_key(out, "accuracy"), r->accuracy);
        ares_json_write_double(ares_json_key(out, "best"), r->best);
        ares_json_key(out, "best_metric");
        if (r->best_metric) ares_json_write_string(out, ares_view_of(r->best_metric));
        else ares_json_write_null(out);
        ares_json_key(out, "best_step");
        if (isnan(r->best_step)) ares_json_write_null(out);
        else ares_json_write_i64(out, (int64_t)r->best_step);
        ares_json_write_double(ares_json_key(out, "minutes"), r->minutes);
        ares_json_begin(ares_json_key(out, "verdicts"), '{');
        for (int k = 0; k < ARES_LOOK_LEVELS; k++)
            ares_json_write_i64(ares_json_key(out, ares_look_level_names[k]), r->count[k]);
        ares_json_end(out, '}');
        /* false: these are of the first and the last steps alone */
        ares_json_write_bool(ares_json_key(out, "whole"), r->whole);
        ares_json_end(out, '}');
    }
    ares_json_end(out, ']');
    ares_str_add_char(out, '\n');
}

int ares_cli_runs(int argc, char **argv)
{
    job j = { 0 };
    const char *key = "when";
    bool helped, json = false;
    const cli_option options[] = {
        CLI_OPTION(FLAG, json, "--json", NULL, "print a JSON list instead of a table"),
        CLI_OPTION(TEXT, key, "--sort", "KEY",
                   "when (the newest first), name, state, step, reward, accuracy, best, minutes or "
                   "verdicts (the worst first)",
                   .choices = sort_keys),
    };
    const cli_command command = {
        .name = "runs",
        .usage = "[DIR ...] [--sort KEY] [--json]",
        .about = "Lists the run directories at and below each DIR (default: runs), four folders "
                 "deep: state, step of all, last reward and accuracy, best validation and its "
                 "step, minutes of its steps, verdicts. Of a long run it reads the first and the "
                 "last steps, and marks with ~ what follows from these alone. ares-train watch "
                 "shows a run as it goes, show its answers, compare several side by side.",
        .example = "ares-train runs\n"
                   "ares-train runs experiments runs --sort best",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    static char *const below_here[] = { "runs" };
    char *const *dirs = argc > 1 ? argv + 1 : below_here;
    int n = argc > 1 ? argc - 1 : 1, rc = ARES_OK;
    for (int i = 0; i < n && rc == ARES_OK; i++) {
        size_t len = strlen(dirs[i]); /* without a / at its end, which joining would double */
        while (len > 1 && dirs[i][len - 1] == '/') len--;
        if (ares_dir_exists(dirs[i])) find(&j, ares_arena_copy(&j.arena, dirs[i], len), 0);
        else
            rc = ares_fail(ARES_EUSE, "runs: '%s': %s; name a folder with runs below it", dirs[i],
                           errno == ENOENT || !errno ? "no such folder here" : strerror(errno));
    }
    if (rc == ARES_OK) {
        ares_str out = { 0 };
        ares_pool *pool = j.n > 8 ? ares_pool_new(0) : NULL;
        j.texts = ares_calloc((size_t)j.n + 1, sizeof *j.texts);
        ares_log_set(ARES_LOG_ERROR, 0); /* a configuration's own warnings are of no use here */
        ares_pool_run(pool, j.n, read_one, &j);
        ares_pool_free(pool);
        sorted_by = key;
        if (j.n) qsort(j.lines, (size_t)j.n, sizeof *j.lines, by_key);
        if (json) add_json(&j, &out);
        else if (j.n) add_table(&j, &out);
        else ares_str_add_z(&out, "no run directory there: none has a metrics.jsonl\n");
        rc = cli_print("runs", &out);
        for (int64_t i = 0; i < j.n; i++) ares_arena_fini(&j.texts[i]);
        ares_str_fini(&out);
    }
    ares_free(j.texts);
    ares_free(j.lines);
    ares_arena_fini(&j.arena);
    return rc;
}
