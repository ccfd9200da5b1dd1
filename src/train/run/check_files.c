/*
 * `--check` reads what a run reads before its first step, by the run's own functions: its model and
 * tokenizer without the weights, the first rows of each file, the checkpoint that it begins with.
 */
#include "run/check_files.h"

#include "agents/agents.h"
#include "ares/core_file.h"
#include "run/rundir.h"
#include "run/state.h"
#include "vapor/vapor.h"

enum { FIRST_ROWS = 100 };

/* What may lie on the machine that a configuration is for. */
static int not_here(const char *missed)
{
    ares_warn("%s; %s", ares_error_message(), missed);
    ares_error_clear();
    return ARES_OK;
}

int check_open_model(training *t)
{
    ares_str checkpoint = { 0 };
    int rc = rundir_named(t->cfg, &checkpoint);
    if (rc == ARES_OK) rc = training_open_counting(t, 1);
    if (rc == ARES_EIO && !ares_file_exists(t->cfg->actor.model_path))
        rc = not_here("rows are checked without their tokens");
    else if (rc == ARES_OK) rc = training_open_model(t, NULL);
    if (rc == ARES_OK && t->model && checkpoint.len) rc = state_fits(t, checkpoint.data);
    ares_str_fini(&checkpoint);
    return rc;
}

int check_open_rows(const ares_row_file *file, const ares_data_config *data, bool need_answer,
                    ares_dataset **d)
{
    ares_row_file first = *file;
    first.limit = FIRST_ROWS;
    int rc = ares_dataset_load_files(&first, 1, data, need_answer, d);
    return rc == ARES_EIO ? not_here("none of its rows was checked") : rc;
}

int check_lengths(int rc, bool drops)
{
    return rc == ARES_ELIMIT && drops ? not_here("these are its first rows alone") : rc;
}

/* Stored answers, as the run encodes them. */
static int check_pairs(ares_trainer *t)
{
    int rc = vapor_wanted(t->run.cfg) ? vapor_open(t, &t->vapor) : ARES_OK;
    vapor_close(t->vapor);
    t->vapor = NULL;
    return rc;
}

static int check_file(ares_trainer *t, const ares_row_file *file, const ares_data_config *data,
                      bool trained)
{
    ares_prompt_encoder *e = NULL;
    ares_dataset *d;
    ares_source *into = trained ? &t->run.source : &t->run.val;
    ARES_TRY(check_open_rows(file, data, ares_reward_reads_truth(t->reward), &d));
    if (!d) return ARES_OK;
    int rc = t->run.model ? training_open_encoder(&t->run, data, &e) : ARES_OK;
    if (rc == ARES_OK) rc = trainer_take_rows(t, d, e, trained);
    if (rc == ARES_OK && e) rc = ares_source_of_dataset(d, &(ares_order){ .draw = 1 }, into);
    if (rc != ARES_OK || !e) ares_dataset_free(d);
    t->run.encoder = e;
    if (rc == ARES_OK && e) rc = trainer_check_sight(t);
    if (rc == ARES_OK && e && trained) rc = check_pairs(t);
    ares_source_close(into);
    t->run.encoder = NULL;
    ares_prompt_encoder_free(e);
    return check_lengths(rc, data->filter_overlong_prompts);
}

/* Of reinforcement learning on rows. */
static int check_files(ares_trainer *t, ares_config *cfg)
{
    const ares_train_config *c = t->run.cfg;
    const ares_data_config *data = &c->data;
    eval_sets evals = { 0 };
    eval_sets_read(cfg, c, &evals);
    ARES_TRY(ares_reward_open(cfg, &c->reward, NULL, &t->reward));
    for (int64_t i = 0; !c->trainer.val_only && i < data->train_files.count; i++)
        ARES_TRY(check_file(t, &(ares_row_file){ .path = data->train_files.items[i] }, data, true));
    for (int64_t i = 0; i < data->val_files.count; i++)
        ARES_TRY(check_file(t, &(ares_row_file){ .path = data->val_files.items[i] }, data, false));
    for (int64_t i = 0; i < evals.n; i++) {
        const eval_set *e = &evals.items[i];
        int rc = check_file(
            t, &(ares_row_file){ .path = e->path, .source = e->name, .metadata = e->metadata },
            &e->data, false);
        if (rc != ARES_OK) return ares_fail_in(rc, "eval.datasets: '%s'", e->name);
    }
    return ARES_OK;
}

int ares_train_check_files(ares_config *cfg, const ares_train_config *c)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    trainer_init(t, c, NULL);
    int rc = check_open_model(&t->run);
    if (rc == ARES_OK && !agents_wanted(c)) rc = check_files(t, cfg);
    trainer_close(t);
    ares_free(t);
    return rc;
}
