/*
 * Controls: methods with a memory, such as AEPO's buckets or an adaptive KL. A run opens those that
 * its options ask for, and calls them in the order of their table at fixed moments of a step. Their
 * states are saved as one JSON object with a key per control.
 */
#include "trainer.h"

#include <stdio.h>
#include <string.h>

#include "ares/algo_control.h"
#include "run/run.h"
#include "vapor.h"

typedef struct open_control {
    const ares_control *control;
    void *state;
} open_control;
struct controls {
    ares_control_env env; /* what controls may read of the run */
    ares_map *gids;       /* from a prompt's id to its row; NULL: no control asks for it */
    train_origin origin;  /* part of the saved state: which data and model it belongs to */
    bool force;           /* load states of another origin, too */
    open_control *items;
    int n;
};

void controls_declare(ares_config *cfg, ares_train_config *out)
{
    int n;
    const ares_control *const *list = ares_control_list(&n);
    ARES_ASSERT(n <= ARES_COUNT(out->controls));
    for (int i = 0; i < n; i++) {
        /* each control has a struct of options of its own, which only it can read */
        out->controls[i] = ares_config_alloc(cfg, list[i]->options_size);
        for (int s = 0; s < ARES_CONTROL_SECTIONS && list[i]->sections[s].options; s++)
            ares_config_add_options(cfg, list[i]->sections[s].section, list[i]->sections[s].options,
                                    (char *)out->controls[i] + list[i]->sections[s].offset);
    }
}

/* What checks know of a run; reward may be NULL. */
static ares_control_env env_of_options(const ares_train_config *c, const ares_reward *reward)
{
    const ares_trainer_config *t = &c->trainer;
    return (ares_control_env){ .algorithm = &c->algorithm,
                               .entropy_reward = reward && ares_reward_shapes(reward),
                               .validates = t->val_only ||
                                            (t->val_freq > 0 &&
                                             (c->data.val_files.count || c->agents_val.tags.count)),
                               .judges = t->val_only || !reward || ares_reward_judges(reward),
                               .own_kl = vapor_wanted(c) };
}

bool controls_wants(const ares_train_config *c, const ares_reward *reward, int i)
{
    int n;
    const ares_control_env env = env_of_options(c, reward);
    return ares_control_list(&n)[i]->wanted(c->controls[i], &env);
}

void controls_check(ares_config *cfg, const ares_train_config *c, const ares_reward *reward)
{
    int n;
    const ares_control *const *list = ares_control_list(&n);
    const ares_trainer_config *t = &c->trainer;
    const ares_control_env env = env_of_options(c, reward);
    for (int i = 0; i < n; i++) {
        if (!list[i]->wanted(c->controls[i], &env)) continue;
        if ((list[i]->needs & ARES_CONTROL_NEEDS_GIDS) && c->agents_train.tags.count &&
            !t->val_only)
            ares_config_fault(cfg, "env.train.tags",
                              "in environments no prompt returns, and %s (%s) has nothing to "
                              "remember; leave its options out",
                              list[i]->name, list[i]->option);
        if (list[i]->check) list[i]->check(cfg, c->controls[i], &env);
    }
}

int controls_open(const ares_trainer *t, controls **out)
{
    const ares_train_config *cfg = t->run.cfg;
    const ares_source *source = &t->run.source;
    int n;
    const ares_control *const *list = ares_control_list(&n);
    controls *c = *out = ares_calloc(1, sizeof *c);
    c->env = (ares_control_env){ .world = t->run.world,
                                 .algorithm = &cfg->algorithm,
                                 .entropy_reward = ares_reward_shapes(t->reward) };
    c->force = cfg->trainer.force;
    c->origin = train_origin_of(&t->run);
    c->items = ares_calloc((size_t)n + 1, sizeof *c->items);
    for (int i = 0; i < n; i++) {
        if (!list[i]->wanted(cfg->controls[i], &c->env)) continue;
        if ((list[i]->needs & ARES_CONTROL_NEEDS_GIDS) && ares_source_count(source) && !c->gids)
            ARES_TRY(ares_source_gids(source, &c->gids));
        /* forced: the state may be of other prompts, so that it is not checked against these */
        c->env.gids = c->force ? NULL : c->gids;
        ARES_TRY(list[i]->open(cfg->controls[i], &c->env, &c->items[c->n].state));
        c->items[c->n++].control = list[i];
    }
    return ARES_OK;
}

void controls_close(controls *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) c->items[i].control->close(c->items[i].state);
    ares_free(c->items);
    ares_map_free(c->gids);
    ares_free(c);
}

/* Loops over the open controls; none where c is NULL. */
#define EACH(c, k)                                                                           \
    for (const open_control *k = (c) ? (c)->items : NULL, *end_##k = k + ((c) ? (c)->n : 0); \
         k < end_##k; k++)

/*
 * The moments, in the order of a step: generated (each draw), provisional (shaped scores for
 * filters), observe (the batch), stop, adapt (after the update).
 */

int controls_observe(controls *c, ares_batch *b, ares_metrics *m)
{
    EACH(c, k)
    if (k->control->observe) ARES_TRY(k->control->observe(k->state, b, m));
    return ARES_OK;
}

int controls_adapt(controls *c, const ares_batch *b, ares_source *s, ares_metrics *m)
{
    ares_view gid;
    int64_t row;
    EACH(c, k)
    if (k->control->adapt) ARES_TRY(k->control->adapt(k->state, b, m));
    EACH(c, k) /* prompts that it does not want to see again */
    for (int64_t d = 0; k->control->dropped && k->control->dropped(k->state, d, &gid); d++)
        if (ares_map_get(c->gids, gid, &row)) ares_source_skip(s, row);
    return ARES_OK;
}

const char *controls_stop(const controls *c)
{
    const char *reason = NULL;
    EACH(c, k)
    if (k->control->stop && !reason) reason = k->control->stop(k->state);
    return reason;
}

int controls_generated(controls *c, const ares_group *groups, int64_t count)
{
    ares_batch b; /* filled for the first control that looks */
    bool filled = false;
    int rc = ARES_OK;
    EACH(c, k)
    {
        if (!k->control->generated || rc != ARES_OK) continue;
        if (!filled) {
            ares_batch_init(&b);
            ares_batch_fill(&b, groups, count);
            filled = true;
        }
        rc = k->control->generated(k->state, &b);
    }
    if (filled) ares_batch_fini(&b);
    return rc;
}

int controls_provisional(const controls *c, ares_batch *b)
{
    EACH(c, k)
    if (k->control->provisional) ARES_TRY(k->control->provisional(k->state, b));
    return ARES_OK;
}

int controls_validate(controls *c, ares_batch *b, ares_metrics *m)
{
    EACH(c, k)
    if (k->control->validate) ARES_TRY(k->control->validate(k->state, b, m));
    return ARES_OK;
}

int controls_validated(controls *c, const ares_metrics *m)
{
    EACH(c, k)
    if (k->control->validated) ARES_TRY(k->control->validated(k->state, m));
    return ARES_OK;
}

int64_t controls_bootstrap(const controls *c, int64_t *done)
{
    EACH(c, k)
    {
        int64_t size = k->control->bootstrap ? k->control->bootstrap(k->state, done) : 0;
        if (size) return size; /* one pass serves all controls that ask for it */
    }
    return 0;
}

int controls_bootstrap_add(controls *c, ares_batch *b, ares_metrics *m)
{
    EACH(c, k)
    if (k->control->bootstrap_add) ARES_TRY(k->control->bootstrap_add(k->state, b, m));
    return ARES_OK;
}

int controls_bootstrap_finish(controls *c, ares_metrics *m)
{
    EACH(c, k)
    if (k->control->bootstrap_finish) ARES_TRY(k->control->bootstrap_finish(k->state, m));
    return ARES_OK;
}

void controls_save(const controls *c, ares_str *json)
{
    ares_json_begin(json, '{');
    if (c) {
        ares_json_write_string(ares_json_key(json, "training_data"), ares_view_of(c->origin.data));
        ares_json_write_string(ares_json_key(json, "model_weights"), ares_view_of(c->origin.model));
    }
    for (int i = 0; c && i < c->n; i++)
        c->items[i].control->save(c->items[i].state,
                                  ares_json_key(json, c->items[i].control->name));
    ares_json_end(json, '}');
}

static bool differs(const ares_json *json, const char *key, const char *own)
{
    const ares_json *saved = ares_json_get(json, key);
    return saved && saved->type == ARES_JSON_STRING && !ares_view_is(saved->text, own);
}

/* Refuses a state that another run's data or model has left, unless it is forced. */
static int check_origin(const controls *c, const ares_json *json, const char *path)
{
    static const char remedy[] =
        "restore the files, pass --force to go on nevertheless, or remove the file";
    if (!c || !c->n || c->force) return ARES_OK;
    if (differs(json, "training_data", c->origin.data))
        return ares_fail(ARES_ESTATE,
                         "train: %s: the state is of another data set than data.train_files; %s",
                         path, remedy);
    if (differs(json, "model_weights", c->origin.model))
        return ares_fail(
            ARES_ESTATE,
            "train: %s: the state is of another model than worker.actor.model.model_path; %s", path,
            remedy);
    return ARES_OK;
}

int controls_load(controls *c, const ares_json *json, const char *path)
{
    ARES_TRY(check_origin(c, json, path));
    for (int i = 0; c && i < c->n; i++) {
        const char *name = c->items[i].control->name;
        const ares_json *state = ares_json_get(json, name);
        if (!state)
            return ares_fail(ARES_EFORMAT,
                             "train: %s: no state of '%s'; the run that wrote it did not use it; "
                             "begin a new run from its weights: worker.actor.model.model_path=%.*s",
                             path, name, (int)(strrchr(path, '/') - path), path);
        int rc = c->items[i].control->load(c->items[i].state, state);
        if (rc != ARES_OK) return ares_fail_in(rc, "train: %s", path);
    }
    return ARES_OK;
}

/* As controls_load, but lenient: a validation may use other controls than the run that saved. */
int controls_look(controls *c, const ares_json *json, const char *path)
{
    for (int i = 0; c && i < c->n; i++) {
        const char *name = c->items[i].control->name;
        const ares_json *state = ares_json_get(json, name);
        if (!state)
            ares_log(
                ARES_LOG_WARN,
                "train: %s: no state of '%s'; the run that wrote it did not use it; scores are "
                "judged as before a first step",
                path, name);
        else if (c->items[i].control->load(c->items[i].state, state) != ARES_OK)
            return ares_fail_in(ARES_EFORMAT, "train: %s", path);
    }
    return ARES_OK;
}
