/* A checkpoint is read again: by a run that goes on, or for a validation alone. */
#include <stdlib.h>

#include "controls.h"
#include "origin.h"
#include "state.h"
#include "vapor/vapor.h"

/* The text of a file, parsed; both lie in the arena. */
static int read_json(const char *path, ares_arena *arena, const ares_json **out)
{
    ares_str text = { 0 };
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) {
        const char *copy = ares_arena_copy(arena, text.data ? text.data : "", text.len);
        rc = ares_json_parse(arena, (ares_view){ copy, text.len }, path, out);
        if (rc != ARES_OK) ares_fail_in(rc, "train: the checkpoint is damaged");
    }
    ares_str_fini(&text);
    return rc;
}

typedef int load_controls(controls *c, const ares_json *json, const char *path);
static int read_controls(training *t, const char *path, load_controls *load)
{
    ares_arena arena = { 0 };
    const ares_json *json;
    int rc = read_json(path, &arena, &json);
    if (rc == ARES_OK) rc = load(t->controls, json, path);
    ares_arena_fini(&arena);
    return rc;
}

static bool is_number(const ares_json *v)
{
    return v && (v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT);
}

/* A number of state.json, or a failure that names it. */
static int get(const ares_json *o, const char *path, const char *key, double *out)
{
    const ares_json *v = ares_json_get(o, key);
    if (!is_number(v))
        return ares_fail(ARES_EFORMAT, "train: %s: no number '%s'; the checkpoint is damaged", path,
                         key);
    *out = v->number;
    return ARES_OK;
}

static bool differs(const ares_json *o, const char *key, const char *own)
{
    const ares_json *saved = ares_json_get(o, key);
    return saved && saved->type == ARES_JSON_STRING && !ares_view_is(saved->text, own);
}

/*
 * weights: the fingerprint of the configured model, which must be the one that the run began with;
 * NULL: it may be another.
 */
static int check_model(const training *t, const ares_json *o, const char *path, const char *weights,
                       const char *force)
{
    bool other_weights = weights && differs(o, "model_weights", weights);
    const ares_json *saved = ares_json_get(o, "model");
    ares_model_config configured;
    ares_str name = { 0 };
    ARES_TRY(ares_model_config_load(t->model_dir.data, &configured));
    origin_describe_model(&configured, &name);
    int rc = ARES_OK;
    if (differs(o, "model", name.data) && force)
        rc = ares_fail(ARES_ESTATE,
                       "train: %s: the state is of another model (%s) than "
                       "worker.actor.model.model_path = '%s' (%s); restore the option, or %s",
                       path, saved->text.data, t->cfg->actor.model_path, name.data, force);
    else if (other_weights && force)
        rc = ares_fail(ARES_ESTATE,
                       "train: %s: the run began with other weights than are in "
                       "worker.actor.model.model_path = '%s' now (%s); restore them, or %s",
                       path, t->cfg->actor.model_path, t->model_dir.data, force);
    else if (differs(o, "model", name.data) || other_weights)
        ares_log(ARES_LOG_WARN, "train: %s: the state is of another model", path);
    ares_str_fini(&name);
    return rc;
}

static const char *force_of(const training *t)
{
    return t->cfg->trainer.force ? NULL : "pass --force to go on nevertheless";
}

/*
 * A strategy can only read its own states, so --force does not help here. Older states do not name
 * the critic's strategy.
 */
static int check_strategy(const ares_json *o, const char *path, const char *key, const char *role,
                          const ares_optim_config *cfg)
{
    if (!differs(o, key, cfg->strategy)) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "train: %s: the states are those of worker.%s.optim.strategy = '%s', not of "
                     "'%s'; set it back",
                     path, role, ares_json_get(o, key)->text.data, cfg->strategy);
}

/* The state must be of these rows and of the configured model, unless --force is given. */
static int check_origin(const training *t, const ares_json *o, const char *path)
{
    const char *force = force_of(t);
    train_origin own = train_origin_of(t);
    bool other_data = ares_source_count(&t->source) && differs(o, "training_data", own.data);
    if (force && other_data)
        return ares_fail(ARES_ESTATE,
                         "train: %s: the state is of another data set than data.train_files (its "
                         "rows differ in id, prompt, images or answer); restore the files, or %s",
                         path, force);
    if (other_data) ares_log(ARES_LOG_WARN, "train: %s: the state is of another data set", path);
    ARES_TRY(check_strategy(o, path, "optimizer", "actor", &t->cfg->optim));
    if (t->critic)
        ARES_TRY(check_strategy(o, path, "critic_optimizer", "critic", &t->cfg->critic_optim));
    return check_model(t, o, path, own.model, force);
}

/* A number that older states do not have. */
static double get_or(const ares_json *o, const char *key, double otherwise)
{
    const ares_json *v = ares_json_get(o, key);
    return is_number(v) ? v->number : otherwise;
}

static int check_version(const ares_json *o, const char *path, double *version)
{
    ARES_TRY(get(o, path, "version", version));
    if (*version != STATE_VERSION && *version != STATE_WITHOUT_SOURCE)
        return ares_fail(ARES_EUNSUPPORTED,
                         "train: %s: version %g of the state; this program reads %d and %d", path,
                         *version, STATE_WITHOUT_SOURCE, STATE_VERSION);
    return ARES_OK;
}

/*
 * A part of a checkpoint that is not there: saved by a run that had no such part, or lost. The
 * run's own checkpoint wins over trainer.load_checkpoint_path, so the way out is a new run.
 */
static int is_there(const char *checkpoint, const char *path, const char *why)
{
    if (ares_file_exists(path)) return ARES_OK;
    return ares_fail(ARES_ESTATE,
                     "train: %s: no such file; %s; begin a new run (trainer.experiment_name) from "
                     "another checkpoint (trainer.load_checkpoint_path), or from the weights of "
                     "this one (worker.actor.model.model_path=%s)",
                     path, why, checkpoint);
}

/* path: written; of the states */
static int states_are_there(const char *checkpoint, ares_str *path)
{
    return is_there(checkpoint, ares_path_join(path, checkpoint, "optimizer.safetensors"),
                    "the checkpoint is a model without optimizer states (trainer.save_model_only), "
                    "or damaged");
}

/* Older checkpoints hold the source's state in state.json. */
static int load_source(training *t, const char *checkpoint, bool in_state)
{
    ares_str path = { 0 };
    ares_arena arena = { 0 };
    const ares_json *json;
    ares_path_join(&path, checkpoint, in_state ? "state.json" : "source.json");
    int rc = is_there(checkpoint, path.data, "the checkpoint is damaged");
    if (rc == ARES_OK) rc = read_json(path.data, &arena, &json);
    if (rc == ARES_OK) {
        rc = ares_source_load(&t->source, json, t->cfg->trainer.force);
        if (rc != ARES_OK) ares_fail_in(rc, "train: %s", path.data);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    return rc;
}

/* 0: the state is of a program that made no such sum. */
static uint64_t sum_of(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING ? strtoull(v->text.data, NULL, 16) : 0;
}

/* A learning rate that is another one because the run is longer or shorter than it was. */
static void tell_of_length(const training *t, const char *role, const learner *l, double total)
{
    optim then;
    int64_t length = (int64_t)total, step = l->step, end = ARES_MAX(length, t->total_steps);
    if (ares_world_rank(t->world) != 0 || length < 1 || length == t->total_steps ||
        optim_init(&then, l->optim.cfg, length) != ARES_OK)
        return;
    while (step < end && optim_lr(&l->optim, step) == optim_lr(&then, step)) step++;
    if (step == end) return;
    ares_log(ARES_LOG_WARN,
             "train: the run has %lld steps, and had %lld when the checkpoint was saved: the "
             "learning rate of worker.%s (%s, with its warm-up) goes on with %g instead of %g%s",
             (long long)t->total_steps, (long long)length, role, l->optim.cfg->scheduler,
             optim_lr(&l->optim, step), optim_lr(&then, step),
             step > l->step ? ", some steps from here" : "");
}

static int apply(training *t, const ares_json *o, const char *checkpoint, const char *path,
                 state_sums *sums)
{
    *sums = (state_sums){ { sum_of(o, "weights_sum"), sum_of(o, "states_sum") },
                          { sum_of(o, "critic_weights_sum"), sum_of(o, "critic_states_sum") } };
    double version = 0, step = 0, updates = 0, best_score = 0, best_step = 0;
    ARES_TRY(check_version(o, path, &version));
    ARES_TRY(get(o, path, "step", &step));
    ARES_TRY(get(o, path, "optimizer_steps", &updates));
    ARES_TRY(get(o, path, "best_score", &best_score));
    ARES_TRY(get(o, path, "best_step", &best_step));
    ARES_TRY(load_source(t, checkpoint, version == STATE_WITHOUT_SOURCE));
    ARES_TRY(check_origin(t, o, path));
    double critic_updates = 0;
    if (t->critic) {
        ARES_TRY(get(o, path, "critic_optimizer_steps", &critic_updates));
        t->critic->optim.updates = (int64_t)critic_updates;
        t->critic->optim.skipped = (int64_t)get_or(o, "critic_skipped_updates", 0);
        t->critic->step = (int64_t)step;
    }
    t->step = (int64_t)step;
    /* the actor's schedule begins with its first update */
    t->policy->step = ARES_MAX(0, t->step - t->cfg->trainer.critic_warmup);
    t->policy->optim.updates = (int64_t)updates;
    t->policy->optim.skipped = (int64_t)get_or(o, "skipped_updates", 0);
    t->best_score = best_score;
    t->best_step = (int64_t)best_step;
    t->validated_score = get_or(o, "validated_score", 0);
    t->validated_step = (int64_t)get_or(o, "validated_step", -1);
    double total = get_or(o, "total_steps", 0);
    tell_of_length(t, "actor", t->policy, total);
    if (t->critic) tell_of_length(t, "critic", t->critic, total);
    return ARES_OK;
}

typedef int apply_state(training *t, const ares_json *o, const char *checkpoint, const char *path,
                        state_sums *sums);
static int read_state(training *t, const char *checkpoint, apply_state *apply_to, state_sums *sums)
{
    ares_str path = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    int rc = read_json(ares_path_join(&path, checkpoint, "state.json"), &arena, &o);
    if (rc == ARES_OK) rc = apply_to(t, o, checkpoint, path.data, sums);
    ares_arena_fini(&arena);
    ares_str_fini(&path);
    return rc;
}

/* A collective: what was loaded must be what was saved. */
static int check_sum(const training *t, const ares_model *m, const model_sums *saved,
                     const char *checkpoint, const char *weights, const char *states)
{
    model_sums own;
    ARES_TRY(ares_model_sum(m, t->world, &own.weights, &own.states));
    const char *damaged = saved->weights && own.weights != saved->weights ? weights
                          : saved->states && own.states != saved->states  ? states
                                                                          : NULL;
    if (damaged && !t->cfg->trainer.force)
        return ares_fail(ARES_EFORMAT,
                         "train: %s: %s does not hold the numbers that were saved, by the sum in "
                         "state.json: it is damaged or was changed; name another checkpoint "
                         "(trainer.load_checkpoint_path), or pass --force to go on nevertheless",
                         checkpoint, damaged);
    if (damaged && ares_world_rank(t->world) == 0)
        ares_log(ARES_LOG_WARN, "train: %s: %s does not hold the numbers that were saved",
                 checkpoint, damaged);
    return ARES_OK;
}

int state_resume(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    state_sums sums;
    int rc = ARES_OK;
    rc = states_are_there(checkpoint, &path);
    if (rc == ARES_OK) rc = ares_model_optimizer_load(t->model, path.data);
    if (rc == ARES_OK && t->critic) {
        rc = is_there(checkpoint, ares_path_join(&path, checkpoint, "critic_optimizer.safetensors"),
                      "the checkpoint is of a run without a critic, or damaged");
        if (rc == ARES_OK) rc = ares_model_optimizer_load(t->critic->model, path.data);
    }
    if (rc == ARES_OK && t->vapor)
        rc = vapor_load(t->vapor, ares_path_join(&path, checkpoint, "stored_answers.safetensors"));
    if (rc == ARES_OK && t->controls)
        rc = is_there(checkpoint, ares_path_join(&path, checkpoint, "controls.json"),
                      "the checkpoint is of a run without the controls of this one, or damaged");
    if (rc == ARES_OK && t->controls) rc = read_controls(t, path.data, controls_load);
    if (rc == ARES_OK) rc = read_state(t, checkpoint, apply, &sums);
    ares_str_fini(&path);
    ARES_TRY(ares_world_agree(t->world, rc));
    ARES_TRY(check_sum(t, t->model, &sums.model, checkpoint, "model/", "optimizer.safetensors"));
    if (!t->critic) return ARES_OK;
    return check_sum(t, t->critic->model, &sums.critic, checkpoint, "critic/",
                     "critic_optimizer.safetensors");
}

/* ------------------------------------------------------------------ before a run */
static int apply_fit(training *t, const ares_json *o, const char *checkpoint, const char *path,
                     state_sums *unused)
{
    (void)checkpoint, (void)unused;
    double version = 0;
    ARES_TRY(check_version(o, path, &version));
    if (!t->cfg->trainer.val_only)
        ARES_TRY(check_strategy(o, path, "optimizer", "actor", &t->cfg->optim));
    return check_model(t, o, path, NULL, force_of(t));
}

int state_fits(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    int rc = t->cfg->trainer.val_only ? ARES_OK : states_are_there(checkpoint, &path);
    if (rc == ARES_OK) rc = read_state(t, checkpoint, apply_fit, NULL);
    ares_str_fini(&path);
    return rc;
}

/* ------------------------------------------------------------------ validation alone */
static int apply_look(training *t, const ares_json *o, const char *checkpoint, const char *path,
                      state_sums *unused)
{
    (void)checkpoint, (void)unused;
    double version = 0, step = 0;
    ARES_TRY(check_version(o, path, &version));
    ARES_TRY(get(o, path, "step", &step));
    ARES_TRY(check_model(t, o, path, NULL, force_of(t)));
    t->step =
        (int64_t)step; /* part of the samples' keys: the answers are those that training got here */
    return ARES_OK;
}

int state_look(training *t, const char *checkpoint)
{
    ares_str path = { 0 };
    int rc = read_state(t, checkpoint, apply_look, NULL);
    if (rc == ARES_OK && t->controls &&
        ares_file_exists(ares_path_join(&path, checkpoint, "controls.json")))
        rc = read_controls(t, path.data, controls_look);
    ares_str_fini(&path);
    return ares_world_agree(t->world, rc);
}
