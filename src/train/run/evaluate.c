/*
 * Validation alone: prints a table of metrics. Nothing is written but the output that is asked for;
 * a run directory stays as it is.
 */
#include "run.h"
#include "rundir.h"
#include "same_start.h"
#include "state.h"

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
    return ares_world_agree(t->world, rc);
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

static int validate(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
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

int train_validate_only(const run_kind *kind, ares_config *cfg, const ares_train_config *c,
                        ares_world *world, bool own, const char *output)
{
    rundir dir = { .lock = -1 };
    ares_progress *progress = train_progress(c, world);
    int rc = same_files(cfg, c, world);
    if (rc == ARES_OK) rc = rundir_look(&dir, c, own, world);
    if (rc == ARES_OK) rc = validate(kind, cfg, c, world, &dir, output);
    ares_progress_free(progress);
    rundir_close(&dir);
    return rc;
}
