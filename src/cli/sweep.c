/* ares-train sweep: what the command line says, and the order of things. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ares/dist.h"
#include "ares/io.h"
#include "figure3.h"
#include "sweep/sweep.h"
#include "verb.h"

typedef struct options {
    sweep_words words;
    bool force, dry_run;
} options;

static int count(const sweep *s, sweep_state state)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) n += s->runs[i].state == state;
    return n;
}

/* The runs that failed, as the failure of the whole. */
static int tell_failures(const sweep *s, int failed)
{
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

/* The figure of what is there. The runs are worth more than it: it does not fail the sweep. */
static void draw(const sweep *s)
{
    if (figure3_has_metrics(s->dir) &&
        figure3_draw(&(figure3_options){ .dir = s->dir, .smooth = 5 }) != ARES_OK)
        ares_log(ARES_LOG_WARN, "sweep: no figure: %s", ares_error_message());
}

static int finish(sweep *s, int signal)
{
    int done = count(s, SWEEP_DONE), failed = count(s, SWEEP_FAILED);
    printf("%d runs: %d finished, %d failed, %d to go\n", s->n, done, failed, s->n - done - failed);
    draw(s);
    if (signal) { /* main makes the exit code from the signal that is noted */
        ares_signal_install(ARES_SIGNAL_WAITS);
        raise(signal);
        return ares_fail(ARES_EINTERRUPTED, "sweep: stopped by signal %d; the same command goes on",
                         signal);
    }
    return failed ? tell_failures(s, failed) : ARES_OK;
}

static int work(sweep *s)
{
    int signal = 0;
    ARES_TRY(sweep_clear(s));
    ARES_TRY(sweep_read_manifest(s));
    ARES_TRY(sweep_repair(s));
    ARES_TRY(sweep_write_manifest(s));
    ARES_TRY(sweep_work(s, &signal));
    return finish(s, signal);
}

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
 * Prints the runs also where their configurations are wrong, and then what is wrong. Models and
 * data may be another machine's.
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

/* Words that resemble an option of this verb and are none. */
static int check_words(const verb_command *command, const sweep_words *w)
{
    for (int i = 0; i < w->n; i++)
        if (strncmp(w->words[i], "--", 2) == 0 && !strchr(w->words[i], '.'))
            ARES_TRY(verb_check_typo(command, w->words[i]));
    return ARES_OK;
}

static int sweep_verb(const verb_command *command, const options *o)
{
    sweep s = { .force = o->force };
    ARES_TRY(check_words(command, &o->words));
    int rc = sweep_read(&s, &o->words);
    if (rc == ARES_OK) rc = o->dry_run ? dry_run(&s) : run(&s);
    sweep_fini(&s);
    return rc;
}

static int run_command(verb_command *command, options *o, int argc, char **argv)
{
    bool helped;
    ares_str more = { 0 };
    sweep_describe(&more);
    command->more = more.data;
    int rc = verb_read(command, &argc, argv, &helped);
    o->words.n = argc - 1;
    o->words.words = (const char *const *)argv + 1;
    if (rc == ARES_OK && !helped) rc = sweep_verb(command, o);
    ares_str_fini(&more);
    return rc;
}

int ares_verb_sweep(int argc, char **argv)
{
    static const char *const orders[] = { "seeds", "values", NULL };
    options o = { 0 };
    sweep_words *w = &o.words;
    const verb_option list[] = {
        VERB_OPTION(TEXT, w->file, "--sweep", "FILE", "what is swept, as YAML (see below)"),
        { .name = "--over",
          .type = VERB_PASSED,
          .value = "NAME=A,B,..",
          .doc = "values of a parameter of the file, or of an option; several give all "
                 "combinations, the first varies slowest" },
        VERB_OPTION(TEXT, w->seeds, "--seeds", "1,2,..", "a run of every combination with each"),
        { .name = "--let",
          .type = VERB_PASSED,
          .value = "NAME=TEXT",
          .doc = "another text for a variable of the file" },
        { .name = "--config",
          .type = VERB_PASSED,
          .value = "FILE",
          .doc = "configuration of every run, after those of the file" },
        { .name = "key=value", .type = VERB_PASSED, .doc = "overrides of every run" },
        VERB_OPTION(TEXT, w->name, "--name", "NAME", "name of the sweep"),
        VERB_OPTION(TEXT, w->dir, "--dir", "DIR",
                    "folder of the sweep; unless set what the file says, or runs/NAME"),
        VERB_OPTION(TEXT, w->order, "--order", "seeds|values",
                    "all values with the first seed first, or all seeds of the first value",
                    .choices = orders),
        VERB_OPTION(I64, w->jobs, "--jobs", "N", "runs at the same time on the CPU", .least = 1,
                    .most = 4096),
        VERB_OPTION(TEXT, w->gpus, "--gpus", "0,1,..",
                    "cards; each run takes the next --ranks of them. Unless set all"),
        VERB_OPTION(I64, w->ranks, "--ranks", "N", "processes, and cards, of a run", .least = 1,
                    .most = 4096),
        VERB_OPTION(TEXT, w->cooldown, "--cooldown", "SECONDS", "between two runs of one worker"),
        VERB_OPTION(FLAG, o.force, "--force", NULL,
                    "begin finished and changed runs anew; what is there is moved aside"),
        VERB_OPTION(FLAG, o.dry_run, "--dry-run", NULL,
                    "print names, commands and order, check the configurations, and stop"),
    };
    verb_command command = {
        .name = "sweep",
        .usage = "[--sweep FILE] [--over NAME=A,B,..] [--seeds 1,2,..] [key=value ...]",
        .about = "Trains a run for every value of some options, with the same seeds, some at a "
                 "time, and draws the figure of all. A finished run is skipped, one that was "
                 "stopped goes on, one that fails does not stop the others. Ctrl-C lets the runs "
                 "save; the same command goes on.",
        .example = "ares-train sweep --config examples/quickstart/config.yaml --name lr --over "
                   "worker.actor.optim.lr=1e-6,1e-5 --seeds 1,2 --jobs 2\n"
                   "ares-train sweep --sweep configs/sweeps/sokoban_entropy.yaml --dry-run",
        .options = list,
        .n_options = ARES_COUNT(list),
        .words = VERB_OVERRIDES,
    };
    return run_command(&command, &o, argc, argv);
}
