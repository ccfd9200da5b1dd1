/*
 * What --check does besides checking options: it reads the model's files, the first rows and the
 * checkpoint, and starts the user's programs once.
 */
#include "agents/agents.h"
#include "run.h"
#include "vapor.h"

#include <string.h>

#include "ares/core.h"

/*
 * `--check` reads what a run reads before its first step, by the run's own functions: its model and
 * tokenizer without the weights, the first rows of each file, the checkpoint that it begins with.
 */

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

/* `--check` starts the user's programs once, so that a misspelt one is known before a run. */

static int try_reward(ares_config *cfg, const ares_train_config *c)
{
    const ares_texts *files = c->data.train_files.count ? &c->data.train_files : &c->data.val_files;
    ares_reward *reward;
    ares_dataset *d;
    ARES_TRY(ares_reward_open(cfg, &c->reward, NULL, &reward));
    int rc = ARES_OK;
    if (files->count && ares_reward_users(reward)) {
        ares_str first = { 0 }; /* of its rows only the first is read */
        const char *path = files->items[0], *slice = strstr(path, "@[");
        ares_str_addf(&first, "%.*s@[0:1]", slice ? (int)(slice - path) : (int)strlen(path), path);
        const ares_row_file file = { .path = first.data };
        rc = ares_dataset_load_files(&file, 1, &c->data, ares_reward_reads_truth(reward), &d);
        ares_str_fini(&first);
        if (rc == ARES_OK) {
            rc = ares_reward_try(reward, ares_dataset_row(d, 0));
            ares_dataset_free(d);
        }
    }
    ares_reward_close(reward);
    return rc;
}

static int try_environments(ares_config *cfg, const ares_agent_side_config *side)
{
    for (int64_t k = 0; k < side->tags.count; k++) {
        ares_env_definition d;
        ares_env e;
        ARES_TRY(ares_env_define(cfg, side->tags.items[k], &d));
        if (!d.type->starts_program) continue;
        ARES_TRY(ares_env_definition_open(&d));
        int rc = ares_env_init(&e, &d);
        if (rc == ARES_OK) {
            rc = ares_env_reset(&e, &(ares_env_start){ .seed = (uint64_t)side->seed });
            if (rc == ARES_OK && e.failure)
                rc = ares_fail(ARES_ECHILD, "env: %s: %s", d.tag, e.failure);
            ares_env_fini(&e);
        }
        ares_env_definition_close(&d);
        if (rc != ARES_OK) return rc;
    }
    return ARES_OK;
}

int ares_train_try_programs(ares_config *cfg, const ares_train_config *c)
{
    if (!agents_wanted(c)) return try_reward(cfg, c);
    ARES_TRY(try_environments(cfg, &c->agents_train));
    return try_environments(cfg, &c->agents_val);
}
