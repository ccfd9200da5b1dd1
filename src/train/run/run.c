/*
 * The loop around steps, for every kind of run. First validation alone, then the loop (validate,
 * log, save, stop), last the functions that reinforcement learning gives to the loop.
 */
#include "run.h"
#include "plan/plan.h"
#include "report/report.h"
#include "trainer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ares/core.h"
#include "look/look.h"

/* The console's line of progress, which tells what the ranks of rank 0's machine count. */
typedef struct console {
    ares_progress *progress; /* NULL on ranks but 0, and where trainer.logger has no console */
    void *counts;            /* NULL: not shared */
    size_t bytes;
} console;

/* Maps memory that the ranks of rank 0's machine share, by a file that has no name afterwards. */
static int share_counts(console *x, ares_world *world)
{
    int ranks = ares_world_size(world), rank = ares_world_rank(world), fd = -1;
    char path[] = "/dev/shm/ares-work-XXXXXX";
    int64_t seen;
    if (ranks < 2) return ARES_OK;
    x->bytes = ares_work_bytes(ranks);
    if (rank == 0) {
        fd = mkstemp(path);
        if (fd < 0) path[0] = 0;
        else if (ftruncate(fd, (off_t)x->bytes) != 0) close(fd), fd = -1;
    }
    ARES_TRY(ares_world_broadcast(world, path, sizeof path, 0));
    if (rank != 0 && path[0]) fd = open(path, O_RDWR | O_CLOEXEC);
    void *counts =
        fd < 0 ? MAP_FAILED : mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (counts != MAP_FAILED) x->counts = counts;
    seen = x->counts != NULL;
    ARES_TRY(ares_world_sum_i64(world, &seen, 1));
    if (rank == 0 && path[0]) unlink(path);
    ares_work_share(x->counts, ranks, rank, (int)seen);
    return ARES_OK;
}

static int console_open(console *x, const ares_train_config *c, ares_world *world)
{
    bool wanted = false;
    for (int64_t i = 0; i < c->trainer.logger.count; i++)
        wanted = wanted || strcmp(c->trainer.logger.items[i], "console") == 0;
    *x = (console){ 0 };
    if (wanted && strcmp(c->trainer.progress, "none") != 0) ARES_TRY(share_counts(x, world));
    ares_work_begin("opening");
    if (wanted && ares_world_rank(world) == 0)
        x->progress = ares_progress_new("step", c->trainer.progress);
    return ARES_OK;
}

/* The line ends; counting goes on. */
static void console_end_line(console *x)
{
    ares_progress_free(x->progress);
    x->progress = NULL;
}

static void console_close(console *x)
{
    console_end_line(x);
    ares_work_share(NULL, 1, 0, 1);
    if (x->counts) munmap(x->counts, x->bytes);
}

/*
 * Validation alone: prints a table of metrics. Only the output that is asked for is written; a run
 * directory stays as it is.
 */

static int report(const run_kind *kind, training *t, const char *output)
{
    ares_metrics *m = ares_metrics_new();
    ares_str mine = { 0 }, all = { 0 };
    ares_work_begin("validation");
    int rc = kind->validate(t, m, &mine);
    if (rc == ARES_OK) rc = ares_world_gather_all(t->world, mine.data, mine.len, &all, NULL);
    bool lead = ares_world_rank(t->world) == 0;
    for (int i = 0; rc == ARES_OK && lead && i < ares_metrics_count(m); i++)
        ares_say("%-44s%10.4f\n", ares_metrics_name(m, i), ares_metrics_value(m, i));
    if (rc == ARES_OK && lead && output)
        rc = ares_file_write_atomic(output, all.data ? all.data : "", all.len);
    ares_str_fini(&mine);
    ares_str_fini(&all);
    ares_metrics_free(m);
    return ares_world_share_error(t->world, rc);
}

static int validate_checkpoint(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
                               ares_world *world, const rundir *dir, const char *output)
{
    training *t = NULL;
    ares_str path = { 0 }, file = { 0 };
    if (dir->checkpoint.len) ares_path_join(&path, dir->checkpoint.data, "model");
    int rc = kind->open(cfg, c, world, path.data, &t);
    /*
     * path: the checkpoint that the weights are part of: the one that was found, or the folder
     * around the configured model where that is a checkpoint; empty: none
     */
    ares_str_clear(&path);
    if (dir->checkpoint.len) ares_str_add_view(&path, ares_str_view(&dir->checkpoint));
    else if (rc == ARES_OK &&
             ares_file_exists(ares_path_join(&file, t->model_dir.data, "../state.json")))
        ares_path_join(&path, t->model_dir.data, "..");
    ares_str_fini(&file);
    if (rc == ARES_OK && path.len) rc = state_look(t, path.data);
    if (rc == ARES_OK)
        ares_log(ARES_LOG_INFO, "validating %s", path.len ? path.data : t->model_dir.data);
    if (rc == ARES_OK) rc = report(kind, t, output);
    kind->close(t);
    ares_str_fini(&path);
    return rc;
}

/*
 * Validates the checkpoint that trainer.load_checkpoint_path names, else, with `own`, the run
 * directory's latest, else the model. output (may be NULL): a file to write every answer to
 */
static int train_validate_only(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
                               ares_world *world, bool own, const char *output)
{
    rundir dir = { .lock = -1 };
    console line;
    int rc = console_open(&line, c, world);
    if (rc == ARES_OK) rc = same_files(cfg, c, world);
    if (rc == ARES_OK) rc = rundir_look(&dir, c, own, world);
    if (rc == ARES_OK) rc = validate_checkpoint(kind, cfg, c, world, &dir, output);
    console_close(&line);
    rundir_close(&dir);
    return rc;
}

/* A run around its steps: validate, log, save, stop, go on. */

typedef struct run {
    const run_kind *kind;
    ares_config *config;
    training *training;
    rundir dir;
    ares_tracker *tracker; /* rank 0 only */
    console console;
    ares_metrics *metrics;
    int64_t judged_at; /* the next step whose verdicts trackers are told */
    int64_t saved;     /* step of the last checkpoint that a run can go on from; -1: none */
    double saved_at;   /* when that save began, by rank 0's clock */
    int64_t begun;     /* the step that this process began with */
    bool told_videos;
    bool recorded; /* run.json says that the run has begun, and is to say that it has ended */
    /* `written` is being written while the run goes on (trainer.save_async) */
    bool writing;
    bool writing_goes_on; /* a run can go on from it: it holds more than a model */
    state_save written;
} run;

static bool lead(const run *r)
{
    return ares_world_rank(r->training->world) == 0;
}

/* The first answers of a validation, as text for TensorBoard. rows: one JSON object per line */
static int log_answers(run *r, const ares_str *rows)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    int64_t n = r->training->cfg->trainer.val_generations, at = 0;
    int rc = ARES_OK;
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        const ares_json *row;
        int64_t end = ares_view_find(ares_str_view(rows), ARES_VIEW("\n"), (size_t)at);
        if (end < 0) break;
        rc = ares_json_parse(&arena, (ares_view){ rows->data + at, (size_t)(end - at) },
                             "validation", &row);
        at = end + 1;
        static const char *const keys[] = { "question", "response", "ground_truth" };
        ares_str_clear(&text);
        for (int k = 0; k < ARES_COUNT(keys) && rc == ARES_OK; k++) {
            const ares_json *v = ares_json_get(row, keys[k]);
            ares_str_addf(&text, "**%s**\n\n", keys[k]);
            if (v && v->type == ARES_JSON_STRING) ares_str_add_view(&text, v->text);
            ares_str_add_z(&text, "\n\n");
        }
        char tag[64];
        snprintf(tag, sizeof tag, "val/sample_%lld", (long long)i);
        if (rc == ARES_OK && r->tracker)
            rc = ares_tracker_text(r->tracker, r->training->step, tag, ares_str_view(&text));
    }
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

static int validate(run *r)
{
    training *t = r->training;
    ares_str mine = { 0 }, all = { 0 }, path = { 0 };
    double started = ares_now_s();
    ares_work_begin("validation");
    int rc = r->kind->validate(t, r->metrics, &mine);
    if (rc == ARES_OK) rc = ares_world_gather_all(t->world, mine.data, mine.len, &all, NULL);
    if (rc == ARES_OK && lead(r) && all.len) {
        char name[64];
        snprintf(name, sizeof name, "validation/step_%06lld.jsonl", (long long)t->step);
        rc = ares_dir_make(ares_path_join(&path, r->dir.path.data, "validation"));
        if (rc == ARES_OK)
            rc = ares_file_write(ares_path_join(&path, r->dir.path.data, name), all.data, all.len);
        if (rc == ARES_OK) rc = log_answers(r, &all);
    }
    if (rc == ARES_OK) state_validated(t, r->metrics);
    ares_metrics_set(r->metrics, "timing_s/validation", ares_now_s() - started);
    ares_str_fini(&mine);
    ares_str_fini(&all);
    ares_str_fini(&path);
    return ares_world_share_error(t->world, rc);
}

/* The metrics of a step that the console shows. */
static void one_line(const run *r, ares_str *out)
{
    static const struct {
        const char *name, *label, *format;
    } shown[] = {
        { "reward/overall", "reward", "%.3f" },
        { "reward/accuracy", "acc", "%.3f" },
        { "response_length/mean", "len", "%.1f" },
        { "actor/entropy", "entropy", "%.3f" },
        { "actor/grad_norm", "grad", "%.2f" },
        { "actor/kl", "kl", "%.4f" },
        { "actor/lr", "lr", "%.2e" },
        { "val/accuracy", "val acc", "%.3f" },
        { "val/reward_score", "val reward", "%.3f" },
        { "train/loss", "loss", "%.4f" },
        { "val/loss", "val loss", "%.4f" },
    };
    for (int i = 0; i < ARES_COUNT(shown); i++) {
        double v, equal, mixed;
        if (!ares_metrics_get(r->metrics, shown[i].name, &v)) continue;
        ares_str_addf(out, "%s%s ", out->len ? "  " : "", shown[i].label);
        char number[32];
        snprintf(number, sizeof number, shown[i].format, v);
        ares_str_add_z(out, number);
        /* why a step has no gradient: " (all rewards equal in 7 of 8 groups)" */
        if (strcmp(shown[i].label, "grad") == 0 && !(v >= 0.005) &&
            ares_metrics_get(r->metrics, "rollout/equal_groups", &equal) &&
            ares_metrics_get(r->metrics, "rollout/mixed_groups_frac", &mixed))
            ares_str_addf(out, " (all rewards equal in %.0f of %.0f groups)", equal,
                          equal / (1 - mixed));
    }
}

/* Tells trackers a verdict that is not good. */
static void tell_verdict(void *ctx, const ares_look_verdict *v)
{
    const run *r = ctx;
    if (v->level != ARES_VERDICT_BAD && v->level != ARES_VERDICT_WARN) return;
    ares_tracker_tell(r->tracker, r->training->step,
                      &(ares_tracker_alert){ .rule = v->id,
                                             .title = v->title,
                                             .text = v->why,
                                             .bad = v->level == ARES_VERDICT_BAD });
}

/*
 * Tells trackers the verdicts of a run under way. All of metrics.jsonl is read, so the more steps
 * there are, the rarer: a step pays for a twentieth of them. At the end look_back tells them.
 */
static void tell_verdicts(run *r)
{
    int64_t step = r->training->step;
    ares_arena arena = { 0 };
    ares_look look;
    ares_look_verdicts v;
    if (!ares_tracker_shows_alerts(r->tracker) || step < r->judged_at) return;
    r->judged_at = step + ARES_MAX(10, step / 20);
    if (ares_look_read(&arena, r->dir.path.data, 0, &look) == ARES_OK) {
        ares_look_paired paired = look_validation(r->dir.path.data);
        ares_look_judge(&arena, &look, &paired, &v);
        for (int i = 0; i < v.n; i++) tell_verdict(r, &v.each[i]);
    }
    ares_error_clear();
    ares_arena_fini(&arena);
}

static int log_step(run *r)
{
    if (!lead(r)) return ARES_OK;
    ares_str line = { 0 };
    one_line(r, &line);
    if (r->console.progress && r->training->step > 0)
        ares_progress_step(r->console.progress, r->training->step, line.data);
    else if (r->console.progress && line.len) ares_say("before training: %s\n", line.data);
    ares_str_fini(&line);
    ARES_TRY(ares_tracker_log(r->tracker, r->training->step, r->metrics));
    tell_verdicts(r);
    return r->kind->log_histograms ? r->kind->log_histograms(r->training, r->tracker) : ARES_OK;
}

/* Once, with the first checkpoint of a run whose rows have videos (docs/vision.md#positions). */
static void warn_of_videos(run *r)
{
    const training *t = r->training;
    int64_t n = t->features ? ares_source_count(&t->source) : 0;
    bool video = false;
    if (r->told_videos || r->dir.own || !lead(r)) return;
    r->told_videos = true;
    for (int64_t i = 0; i < n && !video; i++) {
        const ares_row_media *s = ares_source_row(&t->source, i)->row_media;
        for (int32_t k = 0; s && k < s->n_places; k++) video = video || s->places[k].medium->video;
    }
    if (!video) return;
    ares_log(ARES_LOG_WARN,
             "run: the model is trained with videos, which versions of transformers give other "
             "positions: 4.5x and 5.3 to 5.17 to the frames of Qwen2.5-VL where pairs of them are "
             "no whole seconds apart, 5.3 to 5.17 to the text after a video with more steps of "
             "time than rows and columns; vLLM gives those of this run (docs/vision.md, "
             "Positions)");
}

/* What was compared so far. A collective. */
static int write_exactness(run *r)
{
    int rc = ARES_OK;
    if (lead(r) && r->kind->write_exactness) rc = r->kind->write_exactness(r->training);
    return ares_world_share_error(r->training->world, rc);
}

/* go_on: a run can go on from this checkpoint. */
static int commit(run *r, state_save *s, bool go_on)
{
    int64_t step = s->step;
    ARES_TRY(state_commit(r->training, s));
    ARES_TRY(write_exactness(r));
    warn_of_videos(r);
    if (go_on) r->saved = step;
    return ARES_OK;
}

/* Waits for the checkpoint that is being written, if any, and makes it the latest. A collective. */
static int settle(run *r)
{
    if (!r->writing) return ARES_OK;
    r->writing = false;
    return commit(r, &r->written, r->writing_goes_on);
}

/*
 * After a failed step: saves the state that the step began with, where its update has not begun and
 * no checkpoint holds it yet. The failure that is reported stays the step's own, also where a save
 * fails. A collective, unless ranks can no longer communicate (ARES_EDIST).
 */
static int rescue(run *r, int rc)
{
    training *t = r->training;
    state_save s;
    long long step = (long long)t->step + 1;
    char *why = ares_strdup(ares_error_message());
    if (rc != ARES_EDIST && settle(r) != ARES_OK)
        ares_log(ARES_LOG_WARN, "run: the last checkpoint could not be written: %s",
                 ares_error_message());
    const char *from = r->saved < 0 ? "begins anew: there is no checkpoint yet"
                                    : "goes on from the last checkpoint";
    if (rc == ARES_EDIST) ares_log(ARES_LOG_INFO, "run: the same command %s", from);
    else if (!state_unmoved(t))
        ares_log(ARES_LOG_INFO,
                 "run: step %lld failed after its update had begun; the same command %s", step,
                 from);
    else if (r->saved == t->step)
        ares_log(
            ARES_LOG_INFO,
            "run: step %lld failed before its update; the last checkpoint holds what it began with",
            step);
    else if (state_save_begun(t, &s) == ARES_OK && write_exactness(r) == ARES_OK)
        ares_log(ARES_LOG_INFO,
                 "run: step %lld failed before its update; what it began with is saved in "
                 "%s/checkpoints/%s, and the same command goes on from there",
                 step, r->dir.path.data, s.name);
    else
        ares_log(ARES_LOG_WARN, "run: what step %lld began with could not be saved: %s", step,
                 ares_error_message());
    ares_fail(rc, "%s", why);
    ares_free(why);
    return rc;
}

/*
 * Ends the run for a signal, with the state after its last whole step: a step that was under way is
 * dropped, and the same command makes it again. A collective.
 */
static int stop(run *r)
{
    training *t = r->training;
    int signal, rc = ARES_OK;
    state_save s;
    ARES_TRY(ares_world_signal(t->world, &signal));
    ARES_TRY(settle(r));
    if (r->saved != t->step && t->step != r->begun) {
        if (r->tracker) rc = ares_tracker_sync(r->tracker);
        ARES_TRY(ares_world_share_error(t->world, rc));
        ARES_TRY(state_save_begun(t, &s));
        ARES_TRY(write_exactness(r));
    }
    return ares_fail(ARES_EINTERRUPTED,
                     "run: stopped by signal %d after step %lld of %lld; the same command goes on "
                     "from there",
                     signal, (long long)t->step, (long long)t->total_steps);
}

static int step(run *r)
{
    training *t = r->training;
    double started = ares_now_s(), tokens = 0;
    /* epoch: the one that the step begins in; after the step it is the next prompt's */
    int64_t sent = sharing_bytes(&t->groups), epoch = ares_source_epoch(&t->source);
    state_begin_step(t);
    ares_signal_expect(ARES_SIGNAL_DROPS); /* until the first step of an optimizer */
    int rc = ares_world_share_error(t->world, ares_signal_poll());
    if (rc == ARES_OK) rc = ares_config_at_step(r->config, t->step);
    if (rc == ARES_OK) rc = r->kind->step(t, r->metrics);
    ares_signal_expect(ARES_SIGNAL_WAITS);
    if (rc != ARES_OK) ares_fail_in(rc, "step %lld", (long long)t->step + 1);
    rc = ares_world_share_error(t->world, rc);
    if (rc == ARES_EINTERRUPTED) return stop(r);
    if (rc != ARES_OK) return rescue(r, rc);
    t->step++;
    double write_started = ares_now_s();
    if (r->kind->write_rollouts) {
        ARES_TRY(r->kind->write_rollouts(t, r->tracker));
        ares_metrics_set(r->metrics, "timing_s/rollout_log", ares_now_s() - write_started);
    }
    double seconds = ares_now_s() - started;
    ares_metrics_set(r->metrics, "timing_s/step", seconds);
    ares_metrics_set(r->metrics, "perf/time_per_step", seconds);
    ares_metrics_get(r->metrics, "perf/total_num_tokens", &tokens);
    ares_metrics_set(r->metrics, "perf/throughput", tokens / seconds / ares_world_size(t->world));
    if (ares_world_size(t->world) > 1)
        ares_metrics_set(r->metrics, "dist/gb", (double)(sharing_bytes(&t->groups) - sent) / 1e9);
    ARES_TRY(report_memory(t, r->metrics));
    ares_metrics_set(r->metrics, "epoch/id", (double)epoch);
    ares_metrics_set(r->metrics, "epoch/iter_num", (double)ares_source_epoch_draws(&t->source));
    return ARES_OK;
}

/* The last step is done, or a control ends the run. */
static bool is_over(const training *t)
{
    return t->step >= t->total_steps || controls_stop(t->controls);
}

/*
 * Which checkpoints are saved after a step. Rank 0's clock may decide for all ranks: no result
 * depends on when a checkpoint is saved.
 */
typedef struct due {
    bool regular, rolling;
    bool beside;  /* the run goes on while it is written */
    bool written; /* all ranks have written their parts of the previous checkpoint */
} due;
static int what_is_due(run *r, due *d)
{
    const training *t = r->training;
    const ares_trainer_config *c = &t->cfg->trainer;
    bool end = is_over(t), late = !ares_is_null_f64(c->save_minutes) &&
                                  ares_now_s() - r->saved_at >= 60 * c->save_minutes;
    int64_t asked[3] = { ares_signal_pending() != 0, lead(r) && late,
                         r->writing && !state_is_written(&r->written) };
    ARES_TRY(ares_world_max_i64(t->world, asked, ARES_COUNT(asked)));
    bool state = asked[0] || asked[1] || t->unjudged || t->policy->optim.failing ||
                 (t->critic && t->critic->optim.failing);
    d->regular = end || train_is_due(t->step, t->total_steps, c->save_freq, t->epoch_steps);
    bool none = r->saved < 0 && !(r->writing && r->writing_goes_on);
    /* the first checkpoint of a model alone comes with one that a run can go on from */
    if (c->save_model_only && none && !ares_is_null_f64(c->save_minutes))
        state = state || d->regular;
    d->rolling = state && !end && (!d->regular || c->save_model_only);
    d->written = !asked[2];
    d->beside = c->save_async && !end && !asked[0] && !t->unjudged && !t->policy->optim.failing &&
                !(t->critic && t->critic->optim.failing);
    return ARES_OK;
}

/* After the row of metrics: gives the checkpoint its name, now or once it is written. */
static int end_save(run *r, state_save *s, const due *d)
{
    bool go_on = !d->regular || !r->training->cfg->trainer.save_model_only;
    if (go_on) r->saved_at = ares_now_s();
    if (!s->behind) return commit(r, s, go_on);
    r->written = *s;
    r->writing = true;
    r->writing_goes_on = go_on;
    return ARES_OK;
}

/*
 * Writes the step's row of metrics, then gives the checkpoint its name: after a checkpoint no step
 * is repeated, and no row is written again. The checkpoint's files are written before the row, so
 * that the row holds the time they took; or they are copied then, and written while the run goes
 * on.
 */
static int end_step(run *r)
{
    training *t = r->training;
    due d;
    state_save s = { 0 };
    ARES_TRY(what_is_due(r, &d));
    double started = ares_now_s();
    if (d.written || d.regular || d.rolling) ARES_TRY(settle(r));
    if (d.regular || d.rolling) {
        ares_work_begin("save_checkpoint");
        ARES_TRY(state_write(t, d.regular ? STATE_REGULAR : STATE_ROLLING, d.beside, &s));
        ares_metrics_set(r->metrics, "timing_s/save_checkpoint", ares_now_s() - started);
    }
    int rc = log_step(r);
    if (rc == ARES_OK && r->tracker && (d.regular || d.rolling)) rc = ares_tracker_sync(r->tracker);
    if (rc != ARES_OK) {
        state_abandon(&s);
        return rc;
    }
    if (d.regular || d.rolling) ARES_TRY(end_save(r, &s, &d));
    if (!d.regular || !d.rolling) return ARES_OK;
    ARES_TRY(settle(r));
    d.regular = false;
    ARES_TRY(state_write(t, STATE_ROLLING, d.beside, &s)); /* the other one holds a model alone */
    return end_save(r, &s, &d);
}

/* Validates where that is due, and puts into the metrics whether a control ends the run. */
static int after_step(run *r)
{
    training *t = r->training;
    int64_t freq = t->cfg->trainer.val_freq;
    if (t->validates && freq != 0 &&
        (controls_stop(t->controls) ||
         train_is_due(t->step, t->total_steps, freq, t->epoch_steps))) {
        ARES_TRY(validate(r));
        ARES_TRY(controls_validated(t->controls, r->metrics));
    }
    const char *reason = controls_stop(t->controls);
    if (!reason) return ARES_OK;
    if (r->kind->end_rollouts) ARES_TRY(r->kind->end_rollouts(t));
    char name[64];
    snprintf(name, sizeof name, "early_stopped/%s", reason);
    ares_metrics_set(r->metrics, name, 1);
    ares_metrics_set(r->metrics, "train/early_stopped", 1);
    return ARES_OK;
}

/* Steps until done, or until a signal asks to stop; then the checkpoint holds everything. */
static int train(run *r)
{
    training *t = r->training;
    r->begun = t->step;
    if (r->console.progress) ares_progress_begin(r->console.progress, t->step, t->total_steps);
    while (!is_over(t)) {
        ares_metrics_clear(r->metrics);
        ARES_TRY(step(r));
        ARES_TRY(after_step(r));
        ARES_TRY(end_step(r));
        const char *failing = t->policy->optim.failing                ? "actor"
                              : t->critic && t->critic->optim.failing ? "critic"
                                                                      : NULL;
        if (failing)
            return ares_fail(
                ARES_ENUMERIC,
                "%s: step %lld: %d updates in a row were left out, since their losses or gradients "
                "hold NaN or infinity; the state is saved in %s/checkpoints. Look at the rewards "
                "and answers of the last steps (rollouts/), lower worker.%s.optim.lr (--force goes "
                "on with other options), or begin from an earlier checkpoint with "
                "trainer.load_checkpoint_path",
                failing, (long long)t->step, OPTIM_SKIPS_IN_A_ROW, r->dir.path.data, failing);
        if (t->unjudged)
            return ares_fail(ARES_ECHILD,
                             "validation: step %lld: nothing could be judged, as the warnings say; "
                             "the state is saved in %s/checkpoints",
                             (long long)t->step, r->dir.path.data);
    }
    return settle(r);
}

/* Opens the run's directory, log, models, checkpoint and tracker. */
static int prepare(run *r, ares_config *cfg, const ares_train_config *c, ares_world *world)
{
    ARES_TRY(same_files(cfg, c, world));
    ARES_TRY(rundir_open(&r->dir, cfg, c, r->kind->declare, world));
    ares_str weights = { 0 }, log = { 0 };
    if (ares_world_rank(world) == 0 || r->dir.same_files)
        ares_log_keep(ares_path_join(&log, r->dir.path.data, "log.txt"));
    ares_str_fini(&log);
    if (r->dir.checkpoint.len) ares_path_join(&weights, r->dir.checkpoint.data, "model");
    int rc = r->kind->open(cfg, c, world, weights.data, &r->training);
    ares_str_fini(&weights);
    ARES_TRY(rc);
    training *t = r->training;
    ares_str_add_view(&t->run_dir, ares_str_view(&r->dir.path));
    t->same_files = r->dir.same_files;
    if (r->dir.checkpoint.len) {
        ARES_TRY(state_resume(t, r->dir.checkpoint.data));
        r->saved = t->step;
        if (lead(r))
            ares_say("going on from %s, step %lld of %lld\n", r->dir.checkpoint.data,
                     (long long)t->step, (long long)t->total_steps);
    }
    ARES_TRY(rundir_claim(&r->dir, cfg, world));
    if (!lead(r)) return ARES_OK;
    ARES_TRY(record_begin(t, r->dir.own));
    r->recorded = true;
    if (r->dir.own && r->kind->forced)
        ARES_TRY(r->kind->forced(t, r->dir.forced.len ? r->dir.forced.data : ""));
    return ares_tracker_open(&(ares_tracker_run){ .dir = r->dir.path.data,
                                                  /* a step that is saved has its row */
                                                  .from_step = t->step + r->dir.own,
                                                  .loggers = c->trainer.logger.items,
                                                  .n_loggers = c->trainer.logger.count,
                                                  .project = c->trainer.project_name,
                                                  .name = c->trainer.experiment_name,
                                                  .options = ares_config_get(cfg, "") },
                             &r->tracker);
}

/*
 * Shows the user the score of a run that goes on. This validation is no part of the run: its rows
 * of metrics and its best checkpoint stay those of a run that never stopped.
 */
static int validate_again(run *r)
{
    training *t = r->training;
    int64_t step = t->validated_step;
    double score = t->validated_score;
    ares_str line = { 0 };
    int rc = validate(r);
    t->validated_step = step;
    t->validated_score = score;
    one_line(r, &line);
    if (rc == ARES_OK && r->console.progress && line.len)
        ares_say("before going on from step %lld: %s\n", (long long)t->step, line.data);
    ares_str_fini(&line);
    return rc;
}

/*
 * The run's verdicts, a line each, of which the bad ones are also told on the terminal and those
 * that are not good to trackers, and its report. A report that cannot be written is no failure of
 * the run.
 */
static void look_back(run *r, const char *stopped, ares_str *verdicts)
{
    ares_look_state state = stopped ? ARES_LOOK_STOPPED : ARES_LOOK_FINISHED;
    ares_str path = { 0 };
    const char *dir = r->dir.path.data;
    const ares_report_options o = {
        .state = &state,
        .stopped = stopped,
        .lines = verdicts,
        .told = ares_tracker_shows_alerts(r->tracker) ? tell_verdict : NULL,
        .ctx = r,
    };
    int rc = ares_report_write(&dir, 1, &o, r->training->cfg->trainer.report ? &path : NULL);
    if (rc != ARES_OK)
        ares_log(ARES_LOG_WARN, "run: no report of it: %s; ares-train report %s makes it",
                 ares_error_message(), dir);
    ares_error_clear();
    for (const char *at = verdicts->data, *end; at && *at; at = end + 1) {
        end = strchrnul(at, '\n');
        if (strncmp(at, "bad ", 4) == 0)
            ares_log(ARES_LOG_WARN, "run: %.*s", (int)(end - at - 6), at + 6);
        if (!*end) break;
    }
    ares_str_fini(&path);
}

static int run_all(run *r)
{
    training *t = r->training;
    /* before the first step of this process, unless these weights have been validated already */
    if (t->validates && t->cfg->trainer.val_before_train && t->validated_step != t->step) {
        ares_metrics_clear(r->metrics);
        ARES_TRY(r->dir.own ? validate_again(r) : validate(r));
        if (!r->dir.own) ARES_TRY(log_step(r));
    }
    ares_signal_expect(ARES_SIGNAL_WAITS);
    if (t->step == 0 && r->kind->begin) {
        ares_metrics_clear(r->metrics);
        ares_signal_expect(ARES_SIGNAL_DROPS);
        ARES_TRY(r->kind->begin(t, r->metrics));
        ares_signal_expect(ARES_SIGNAL_WAITS);
        if (ares_metrics_count(r->metrics)) ARES_TRY(log_step(r));
    }
    r->saved_at = ares_now_s();
    ARES_TRY(train(r));
    console_end_line(&r->console);
    if (!lead(r)) return ARES_OK;
    const char *stopped = controls_stop(t->controls);
    record_end(r->dir.path.data, stopped);
    ares_str verdicts = { 0 };
    look_back(r, stopped, &verdicts);
    int rc = run_summary(r->dir.path.data, verdicts.data);
    ares_str_fini(&verdicts);
    ARES_TRY(rc);
    if (stopped)
        printf("stopped in step %lld of %lld: %s\n", (long long)t->step, (long long)t->total_steps,
               stopped);
    return rundir_finish(&r->dir, r->config, t->cfg,
                         &(rundir_end){ .step = t->step, .stopped = stopped });
}

int train_run(const run_kind *kind, ares_config *cfg, const ares_train_config *c, ares_world *world)
{
    if (c->trainer.val_only) return train_validate_only(kind, cfg, c, world, true, NULL);
    run r = { .kind = kind,
              .config = cfg,
              .dir = { .lock = -1 },
              .metrics = ares_metrics_new(),
              .saved = -1 };
    ares_signal_install(ARES_SIGNAL_ENDS);
    int rc = console_open(&r.console, c, world);
    if (rc == ARES_OK) rc = ares_world_share_error(world, prepare(&r, cfg, c, world));
    if (rc == ARES_OK) rc = run_all(&r);
    if (r.writing) state_abandon(&r.written);
    if (r.tracker) {
        int closed = ares_tracker_close(r.tracker, rc == ARES_OK);
        if (rc == ARES_OK) rc = closed;
    }
    if (rc != ARES_OK) {
        ares_log_note(ares_error_message());
        char *why = ares_strdup(ares_error_message());
        if (r.recorded) record_end(r.dir.path.data, why);
        ares_fail(rc, "%s", why);
        ares_free(why);
    }
    ares_log_keep(NULL);
    console_close(&r.console);
    ares_metrics_free(r.metrics);
    if (r.training) kind->close(r.training);
    rundir_close(&r.dir);
    return rc;
}

/* Reinforcement learning as a kind of run, and its validation alone. */

static ares_trainer *trainer_of(training *t)
{
    return (ares_trainer *)(void *)t; /* t is the trainer's first member */
}

static int open_trainer(ares_config *cfg, const ares_train_config *c, ares_world *world,
                        const char *weights, training **out)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    *out = &t->run;
    return trainer_open(t, cfg, c, world, weights);
}

static void close_trainer(training *t)
{
    trainer_close(trainer_of(t));
    ares_free(trainer_of(t));
}

static int begin_rl(training *t, ares_metrics *m)
{
    return trainer_bootstrap(trainer_of(t), m);
}

static int rl_step(training *t, ares_metrics *m)
{
    if (trainer_of(t)->ref && !trainer_of(t)->vapor &&
        ares_kl_acts(&t->cfg->algorithm) == ARES_KL_NOWHERE)
        return ares_fail(ARES_ECONFIG,
                         "config: algorithm.kl_coef: its schedule gives 0 at step %lld, and 0 "
                         "switches the KL off; let it stay above 0",
                         (long long)t->step);
    ares_source_begin_step(&t->source, t->step);
    actor *a = &trainer_of(t)->actor;
    a->exact = (exactness){ 0 };
    ARES_TRY(ares_train_step(trainer_of(t), m));
    int64_t tokens = trainer_of(t)->batch.tokens;
    ARES_TRY(ares_world_sum_i64(t->world, &tokens, 1));
    exactness_add(&t->exact, &a->exact, t->step + 1, tokens);
    return ARES_OK;
}

static int write_exactness_rl(const training *t)
{
    return exactness_write((const ares_trainer *)(const void *)t);
}

static int forced_rl(training *t, const char *changed)
{
    return exactness_forced(trainer_of(t), changed);
}

static int validate_rl(training *t, ares_metrics *m, ares_str *samples)
{
    return trainer_validate(trainer_of(t), m, samples);
}

static int write_rollouts(training *t, ares_tracker *tracker)
{
    ARES_TRY(report_rollouts(trainer_of(t), controls_stop(t->controls)));
    return report_histograms(trainer_of(t), tracker);
}

static int end_rollouts(training *t)
{
    return report_rollouts(trainer_of(t), true);
}

static int log_histograms(training *t, ares_tracker *tracker)
{
    const ares_loss_sums *sums = &trainer_of(t)->actor.sums; /* empty before the first update */
    double edge[ARES_LOSS_BINS + 1];
    for (int i = 0; i <= ARES_LOSS_BINS; i++) edge[i] = ares_loss_bin_edge(i);
    return ares_tracker_bins(tracker, t->step, "actor/log_ratio", edge, sums->bins, ARES_LOSS_BINS);
}

static const run_kind rl_kind = { .declare = ares_train_config_declare,
                                  .open = open_trainer,
                                  .close = close_trainer,
                                  .begin = begin_rl,
                                  .step = rl_step,
                                  .validate = validate_rl,
                                  .write_rollouts = write_rollouts,
                                  .end_rollouts = end_rollouts,
                                  .write_exactness = write_exactness_rl,
                                  .forced = forced_rl,
                                  .log_histograms = log_histograms };

int ares_train_run(ares_config *cfg, const ares_train_config *c, ares_world *world)
{
    return train_run(&rl_kind, cfg, c, world);
}

int ares_eval_run(ares_config *cfg, const ares_train_config *c, ares_world *world,
                  const char *output)
{
    return train_validate_only(&rl_kind, cfg, c, world, false, output);
}
