/*
 * The loop around steps, for every kind of run. First validation alone, then the loop (validate,
 * log, save, stop), last reinforcement learning as a kind of run, which gives the loop its
 * functions.
 */
#include "run.h"
#include "plan/plan.h"
#include "report/report.h"
#include "trainer.h"

#include <stdio.h>
#include <string.h>

#include "ares/core.h"

/*
 * Validation alone: prints a table of metrics. Nothing is written but the output that is asked for;
 * a run directory stays as it is.
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

/*
 * The checkpoint that the weights are part of: the one that was found, or the folder around the
 * configured model where that is a checkpoint. Empty: none.
 */
static void checkpoint_of(const training *t, const rundir *dir, ares_str *out)
{
    ares_str file = { 0 };
    if (dir->checkpoint.len) ares_str_add_view(out, ares_str_view(&dir->checkpoint));
    else if (ares_file_exists(ares_path_join(&file, t->model_dir.data, "../state.json")))
        ares_path_join(out, t->model_dir.data, "..");
    ares_str_fini(&file);
}

static int validate_checkpoint(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
                               ares_world *world, const rundir *dir, const char *output)
{
    training *t = NULL;
    ares_str path = { 0 };
    if (dir->checkpoint.len) ares_path_join(&path, dir->checkpoint.data, "model");
    int rc = kind->open(cfg, c, world, path.data, &t);
    ares_str_clear(&path);
    if (rc == ARES_OK) checkpoint_of(t, dir, &path);
    if (rc == ARES_OK && path.len) rc = state_look(t, path.data);
    if (rc == ARES_OK)
        ares_log(ARES_LOG_INFO, "validating %s", path.len ? path.data : t->model_dir.data);
    if (rc == ARES_OK) rc = report(kind, t, output);
    kind->close(t);
    ares_str_fini(&path);
    return rc;
}

static ares_progress *train_progress(const ares_train_config *c, const ares_world *world);

/*
 * Validation alone, of what trainer.load_checkpoint_path names, else, with `own`, of the run
 * directory's latest checkpoint, else of the model. output (may be NULL): a file to write every
 * answer to.
 */
static int train_validate_only(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
                               ares_world *world, bool own, const char *output)
{
    rundir dir = { .lock = -1 };
    ares_progress *progress = train_progress(c, world);
    int rc = same_files(cfg, c, world);
    if (rc == ARES_OK) rc = rundir_look(&dir, c, own, world);
    if (rc == ARES_OK) rc = validate_checkpoint(kind, cfg, c, world, &dir, output);
    ares_progress_free(progress);
    rundir_close(&dir);
    return rc;
}

/* A run around its steps: validate, log, save, stop, go on. */

typedef struct run {
    const run_kind *kind;
    ares_config *config;
    training *training;
    rundir dir;
    ares_tracker *tracker;   /* rank 0 only */
    ares_progress *progress; /* NULL: no console */
    ares_metrics *metrics;
    int64_t saved;   /* the last step that a run can go on from; -1: none */
    double saved_at; /* when the last save for that began, by rank 0's clock */
    int64_t begun;   /* the step that this process began with */
    bool told_videos;
    /* a checkpoint that is written while the run goes on (trainer.save_async) */
    bool writing, writing_goes_on; /* there is one; a run can go on from it */
    state_save written;
} run;

static bool lead(const run *r)
{
    return ares_world_rank(r->training->world) == 0;
}

/* The first answers of a validation, as TensorBoard shows text. */
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

/* " (all rewards equal in 7 of 8 groups)": why a step has no gradient to show. */
static void add_equal_groups(const ares_metrics *m, ares_str *out)
{
    double equal, mixed, grad = 0;
    (void)ares_metrics_get(m, "actor/grad_norm", &grad);
    if (grad >= 0.005 || !ares_metrics_get(m, "rollout/equal_groups", &equal) ||
        !ares_metrics_get(m, "rollout/mixed_groups_frac", &mixed))
        return;
    ares_str_addf(out, " (all rewards equal in %.0f of %.0f groups)", equal, equal / (1 - mixed));
}

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
        double v;
        if (!ares_metrics_get(r->metrics, shown[i].name, &v)) continue;
        ares_str_addf(out, "%s%s ", out->len ? "  " : "", shown[i].label);
        char number[32];
        snprintf(number, sizeof number, shown[i].format, v);
        ares_str_add_z(out, number);
        if (strcmp(shown[i].label, "grad") == 0) add_equal_groups(r->metrics, out);
    }
}

static int log_step(run *r)
{
    if (!lead(r)) return ARES_OK;
    ares_str line = { 0 };
    one_line(r, &line);
    if (r->progress && r->training->step > 0)
        ares_progress_step(r->progress, r->training->step, line.data);
    else if (r->progress && line.len) ares_say("before training: %s\n", line.data);
    ares_str_fini(&line);
    ARES_TRY(ares_tracker_log(r->tracker, r->training->step, r->metrics));
    return r->kind->log_histograms ? r->kind->log_histograms(r->training, r->tracker) : ARES_OK;
}

static bool has_video(const ares_row_media *s)
{
    for (int32_t i = 0; s && i < s->n_places; i++)
        if (s->places[i].medium->video) return true;
    return false;
}

/* Once, with the first checkpoint of a run whose rows have videos (docs/vision.md#positions). */
static void warn_of_videos(run *r)
{
    const training *t = r->training;
    int64_t n = t->features ? ares_source_count(&t->source) : 0, i = 0;
    if (r->told_videos || r->dir.own || !lead(r)) return;
    r->told_videos = true;
    while (i < n && !has_video(ares_source_row(&t->source, i)->row_media)) i++;
    if (i == n) return;
    ares_log(ARES_LOG_WARN,
             "run: the model is trained with videos, which versions of transformers give other "
             "positions: 4.5x and 5.3 to 5.17 to the frames of Qwen2.5-VL where pairs of them are "
             "no whole seconds apart, 5.3 to 5.17 to the text after a video with more steps of "
             "time than rows and columns; vLLM gives those of this run (docs/vision.md, "
             "Positions)");
}

/* go_on: a run can go on from this checkpoint. */
static int commit(run *r, state_save *s, bool go_on)
{
    int64_t step = s->step;
    ARES_TRY(state_commit(r->training, s));
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

/* Before a failed step's state is saved; the failure of an earlier save does not hide the step's.
 */
static void settle_after_failure(run *r)
{
    if (settle(r) != ARES_OK)
        ares_log(ARES_LOG_WARN, "run: the last checkpoint could not be written: %s",
                 ares_error_message());
}

/*
 * After a failed step. What the step began with is saved where its update has not begun and no
 * checkpoint holds it yet. The failure that is reported stays the step's own. A collective, unless
 * ranks can no longer communicate (ARES_EDIST).
 */
static int rescue(run *r, int rc)
{
    training *t = r->training;
    state_save s;
    long long step = (long long)t->step + 1;
    char *why = ares_strdup(ares_error_message());
    if (rc != ARES_EDIST) settle_after_failure(r);
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
    else if (state_save_begun(t, &s) == ARES_OK)
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
 * Ends the run for a signal, with what its last step left: a step that was under way is dropped,
 * and the same command makes it again. A collective.
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
    /* the epoch that the step begins in: afterwards it is that of the next prompt */
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
 * What is saved after a step. Rank 0's clock may decide for all ranks: no result depends on when a
 * checkpoint is saved.
 */
typedef struct due {
    bool regular, rolling;
    bool beside;  /* the run goes on while it is written */
    bool written; /* all ranks have written their parts of the checkpoint before */
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
    if (c->save_model_only && none && !ares_is_null_f64(c->save_minutes))
        state = state || d->regular; /* no checkpoint without one to go on from */
    d->rolling = state && !end && (!d->regular || c->save_model_only);
    d->written = !asked[2];
    d->beside = c->save_async && !end && !asked[0] && !t->unjudged && !t->policy->optim.failing &&
                !(t->critic && t->critic->optim.failing);
    return ARES_OK;
}

/* After the row of metrics: the checkpoint gets its name, now or when it is written. */
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

/* Ends a run that has left out several updates in a row, because something was not finite. */
static int check_updates(const run *r)
{
    const training *t = r->training;
    bool critic = !t->policy->optim.failing;
    if (critic && !(t->critic && t->critic->optim.failing)) return ARES_OK;
    return ares_fail(
        ARES_ENUMERIC,
        "%s: step %lld: %d updates in a row were left out, since their losses or gradients hold "
        "NaN or infinity; the state is saved in %s/checkpoints. Look at the rewards and answers of "
        "the "
        "last steps (rollouts/), lower worker.%s.optim.lr (--force goes on with other options), "
        "or begin from an earlier checkpoint with trainer.load_checkpoint_path",
        critic ? "critic" : "actor", (long long)t->step, OPTIM_SKIPS_IN_A_ROW, r->dir.path.data,
        critic ? "critic" : "actor");
}

/* Validates where it is due, and says in the metrics whether a control ends the run. */
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
    if (r->progress) ares_progress_begin(r->progress, t->step, t->total_steps);
    while (!is_over(t)) {
        ares_metrics_clear(r->metrics);
        ARES_TRY(step(r));
        ARES_TRY(after_step(r));
        ARES_TRY(end_step(r));
        ARES_TRY(check_updates(r));
        if (t->unjudged)
            return ares_fail(ARES_ECHILD,
                             "validation: step %lld: nothing could be judged, as the warnings say; "
                             "the state is saved in %s/checkpoints",
                             (long long)t->step, r->dir.path.data);
    }
    return settle(r);
}

/*
 * What the console shows from now on; NULL on other ranks, and where trainer.logger has no console.
 */
static ares_progress *train_progress(const ares_train_config *c, const ares_world *world)
{
    bool console = false;
    for (int64_t i = 0; i < c->trainer.logger.count; i++)
        console = console || strcmp(c->trainer.logger.items[i], "console") == 0;
    ares_work_begin("opening");
    return console && ares_world_rank(world) == 0 ? ares_progress_new("step", c->trainer.progress)
                                                  : NULL;
}

static int open_tracker(run *r, const ares_train_config *c)
{
    if (!lead(r)) return ARES_OK;
    bool tensorboard = false;
    for (int64_t i = 0; i < c->trainer.logger.count; i++) {
        const char *name = c->trainer.logger.items[i];
        /* the services read its files */
        tensorboard = tensorboard || (strcmp(name, "console") != 0 && strcmp(name, "file") != 0);
    }
    return ares_tracker_open(r->dir.path.data, r->training->step + r->dir.own, tensorboard,
                             &r->tracker); /* a step that is saved has its row */
}

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
    return open_tracker(r, c);
}

static int begin(run *r)
{
    ares_metrics_clear(r->metrics);
    ares_signal_expect(ARES_SIGNAL_DROPS);
    ARES_TRY(r->kind->begin(r->training, r->metrics));
    ares_signal_expect(ARES_SIGNAL_WAITS);
    return ares_metrics_count(r->metrics) ? log_step(r) : ARES_OK;
}

/*
 * Shows the user what a run that goes on has reached. This validation is no part of the run: its
 * rows of metrics and its best checkpoint stay those of a run that never stopped.
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
    if (rc == ARES_OK && r->progress && line.len)
        ares_say("before going on from step %lld: %s\n", (long long)t->step, line.data);
    ares_str_fini(&line);
    return rc;
}

/* Before the first step of this process, unless these weights have been validated already. */
static int validate_first(run *r)
{
    const training *t = r->training;
    if (!t->validates || !t->cfg->trainer.val_before_train || t->validated_step == t->step)
        return ARES_OK;
    ares_metrics_clear(r->metrics);
    if (r->dir.own) return validate_again(r);
    ARES_TRY(validate(r));
    return log_step(r);
}

static int run_all(run *r)
{
    ARES_TRY(validate_first(r));
    ares_signal_expect(ARES_SIGNAL_WAITS);
    if (r->training->step == 0 && r->kind->begin) ARES_TRY(begin(r));
    r->saved_at = ares_now_s();
    ARES_TRY(train(r));
    ares_progress_free(r->progress);
    r->progress = NULL;
    if (!lead(r)) return ARES_OK;
    ARES_TRY(run_summary(r->dir.path.data));
    const char *stopped = controls_stop(r->training->controls);
    if (stopped)
        printf("stopped in step %lld of %lld: %s\n", (long long)r->training->step,
               (long long)r->training->total_steps, stopped);
    return rundir_finish(&r->dir, r->config, r->training->cfg,
                         &(rundir_end){ .step = r->training->step, .stopped = stopped });
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
    r.progress = train_progress(c, world);
    int rc = ares_world_share_error(world, prepare(&r, cfg, c, world));
    if (rc == ARES_OK) rc = run_all(&r);
    if (r.writing) state_abandon(&r.written);
    if (r.tracker) {
        int closed = ares_tracker_close(r.tracker);
        if (rc == ARES_OK) rc = closed;
    }
    if (rc != ARES_OK) ares_log_note(ares_error_message());
    ares_log_keep(NULL);
    ares_progress_free(r.progress);
    ares_metrics_free(r.metrics);
    if (r.training) kind->close(r.training);
    rundir_close(&r.dir);
    return rc;
}

/* Reinforcement learning as a kind of run, and its validation alone. */

static ares_trainer *trainer_of(training *t)
{
    return (ares_trainer *)(void *)t; /* which it is the first member of */
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
    return ares_train_step(trainer_of(t), m);
}

static int validate_rl(training *t, ares_metrics *m, ares_str *samples)
{
    return trainer_validate(trainer_of(t), m, samples);
}

static int write_rollouts(training *t, ares_tracker *tracker)
{
    ARES_TRY(report_rollouts(trainer_of(t)));
    return report_histograms(trainer_of(t), tracker);
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
