/*
 * A step of a run, made again. First which steps can be: there must be rollouts and the state that
 * the step began with, which is the starting model or a kept checkpoint. Then the run's options,
 * and the step itself, by the functions of the run. Nothing is written into the run directory, and
 * a run that goes on in it is not disturbed: its files appear whole (checkpoints, config.yaml) or
 * are read up to the last whole line.
 */
#include "replay.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- which steps */

enum { MOST_STEPS = 1 << 20 };

/* Adds the numbers of names <prefix><digits><suffix> in a folder. */
static void find_numbers(const char *folder, const char *prefix, const char *suffix, int64_t *out,
                         int64_t *n)
{
    DIR *d = opendir(folder);
    int64_t number;
    for (struct dirent *e; d && (e = readdir(d)) && *n < MOST_STEPS;) {
        size_t before = strlen(prefix);
        const char *digits = e->d_name + before;
        if (strncmp(e->d_name, prefix, before) != 0) continue;
        size_t length = strspn(digits, "0123456789");
        if (strcmp(digits + length, suffix) == 0 &&
            ares_parse_i64((ares_view){ digits, length }, &number))
            out[(*n)++] = number;
    }
    if (d) closedir(d);
    ares_sort_i64(out, *n);
}

/* "1 to 4, 7" */
static void add_ranges(ares_str *out, const int64_t *steps, int64_t n)
{
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && steps[end] <= steps[end - 1] + 1;) end++;
        ares_str_addf(out, "%s%lld", i ? ", " : "", (long long)steps[i]);
        if (steps[end - 1] > steps[i]) ares_str_addf(out, " to %lld", (long long)steps[end - 1]);
    }
    if (!n) ares_str_add_z(out, "none");
}

static bool has(const int64_t *steps, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        if (steps[i] == step) return true;
    return false;
}

/* The checkpoint that a run directory keeps of a step; false: none, or it is a torn one. */
static bool kept(const char *dir, int64_t step, ares_str *path)
{
    static const char *const kinds[] = { "step", "rolling" };
    ares_str state = { 0 };
    bool there = false;
    for (int i = 0; i < ARES_COUNT(kinds) && !there; i++) {
        ares_str_clear(path);
        ares_str_addf(path, "%s/checkpoints/%s_%06lld", dir, kinds[i], (long long)step);
        there = ares_file_exists(ares_path_join(&state, path->data, "state.json"));
    }
    if (!there) ares_str_clear(path);
    ares_str_fini(&state);
    return there;
}

/* A whole number of a JSON file, which need not be there. */
static int64_t number_in(const char *path, const char *key, int64_t absent)
{
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    int64_t x = absent;
    if (!ares_file_exists(path) || ares_file_read(path, &text) != ARES_OK ||
        ares_json_parse(&arena, ares_str_view(&text), path, &o) != ARES_OK ||
        ares_json_get_i64(o, key, absent, &x) != ARES_OK)
        x = absent;
    ares_error_clear();
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return x;
}

/*
 * Finds the step to replay. first: the step that the run began with, from r->checkpoint where that
 * is set; -1: that state is gone
 */
static int choose_step(replay *r, int64_t asked, int64_t first)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, with = { 0 }, can = { 0 }, of = { 0 };
    int64_t *steps = ares_arena_alloc(&arena, MOST_STEPS * sizeof *steps), n = 0, n_can = 0,
            *both = ares_arena_alloc(&arena, MOST_STEPS * sizeof *both);
    find_numbers(ares_path_join(&path, r->dir.data, "rollouts"), "step_", ".jsonl", steps, &n);
    for (int64_t i = 0; i < n; i++)
        if (steps[i] == first || kept(r->dir.data, steps[i] - 1, &of)) both[n_can++] = steps[i];
    int rc = ARES_OK;
    r->step = asked >= 0 ? asked : n_can ? both[n_can - 1] : -1;
    add_ranges(&can, both, n_can);
    add_ranges(&with, steps, n);
    if (!n)
        rc = ares_fail(ARES_EUSE,
                       "verify: %s: there are no rollouts to compare with; a run writes them after "
                       "each step, unless trainer.rollout_log is none",
                       r->dir.data);
    else if (!n_can)
        rc = ares_fail(ARES_EUSE,
                       "verify: %s: nothing can be compared: there are rollouts of the steps %s, "
                       "and the state before none of them (trainer.save_freq keeps more)",
                       r->dir.data, with.data);
    else if (!has(both, n_can, r->step))
        rc = ares_fail(ARES_EUSE, "verify: --step = %lld: %s; the steps that can be compared: %s",
                       (long long)r->step,
                       has(steps, n, r->step) ? "the state that it began with is not kept "
                                                "(trainer.save_freq keeps more)"
                                              : "the run has no rollouts of it",
                       can.data);
    else if (r->step != first) (void)kept(r->dir.data, r->step - 1, &r->checkpoint);
    ares_str_fini(&path), ares_str_fini(&with), ares_str_fini(&can), ares_str_fini(&of);
    ares_arena_fini(&arena);
    return rc;
}

/* ---------------------------------------------------------------- the run's options */

/* Options of files and of the device: another place of the same thing must give the same bits. */
static const char *const places[] = {
    "worker.actor.model.model_path",
    "worker.actor.model.tokenizer_path",
    "worker.actor.model.lora.adapter_path",
    "worker.critic.model.model_path",
    "worker.critic.model.lora.adapter_path",
    "worker.ref.model.model_path",
    "worker.rollout.trigger_tokens_file",
    "data.train_files",
    "data.val_files",
    "data.image_dir",
    "data.format_prompt",
    "data.override_chat_template",
    "trainer.device",
    "trainer.kernels",
};

/* An override may change no result. */
static int check_word(ares_config *cfg, const char *word)
{
    const char *equals = strchr(word, '=');
    ares_str key = { 0 };
    ares_str_add(&key, word, equals ? (size_t)(equals - word) : strlen(word));
    bool good = equals && key.len && ares_config_no_result(cfg, key.data);
    for (int i = 0; i < ARES_COUNT(places) && equals; i++)
        good = good || strcmp(key.data, places[i]) == 0;
    int rc = ARES_OK;
    if (!good)
        rc = ares_fail(ARES_EUSE,
                       "verify: '%s': a step is made again with the run's own options; only those "
                       "that change no result may be given, such as trainer.threads=1, and paths "
                       "of models and data (worker.actor.model.model_path=DIR)",
                       word);
    ares_str_fini(&key);
    return rc;
}

/*
 * Reads config.yaml, in which the run has left its resolved options. Ranks that roll out as one
 * change no result: on a number of ranks that they do not divide, each decodes by itself.
 */
static int read_options(replay *r, const ares_verify_options *o, ares_world *world)
{
    ares_str path = { 0 }, word = { 0 }, text = { 0 };
    int ranks = ares_world_size(world);
    int rc = ares_file_read(ares_path_join(&path, r->dir.data, "config.yaml"), &text);
    if (rc == ARES_OK && text.len &&
        (strncmp(text.data, "sft:", 4) == 0 || strstr(text.data, "\nsft:")))
        rc = ares_fail(ARES_EUSE,
                       "verify: %s is a supervised run (ares-train sft): nothing is sampled in it, "
                       "and so there is nothing to compare",
                       r->dir.data);
    ares_str_addf(&word, "trainer.run_dir=%s", r->dir.data); /* it may have been moved */
    for (bool alone = false; rc == ARES_OK; alone = true) {
        ares_config_free(r->cfg);
        r->cfg = ares_config_new();
        memset(&r->c, 0, sizeof r->c);
        ares_train_config_declare(r->cfg, &r->c);
        for (int i = 0; i < o->n_words && rc == ARES_OK; i++) rc = check_word(r->cfg, o->words[i]);
        if (rc != ARES_OK) break;
        ares_config_load_text(r->cfg, path.data, ares_str_view(&text));
        for (int i = 0; i < o->n_words; i++) ares_config_override(r->cfg, o->words[i]);
        ares_config_override(r->cfg, word.data);
        if (alone) ares_config_override(r->cfg, "worker.rollout.tensor_parallel_size=1");
        ares_config_resolve(r->cfg);
        int64_t together = r->c.rollout.tensor_parallel_size;
        if (alone || together == ARES_NULL_I64 || together < 2 || ranks % (int)together == 0) break;
    }
    if (rc == ARES_OK) rc = ares_train_config_check(r->cfg, &r->c, ranks);
    ares_str_fini(&path), ares_str_fini(&word), ares_str_fini(&text);
    return rc;
}

/* Paths in the options begin where the run was started, if that folder is here. */
static int go_there(const replay *r)
{
    int rc = ARES_OK;
    ares_str path = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    ares_view cwd = { 0 };
    if (ares_file_exists(ares_path_join(&path, r->dir.data, "run.json")) &&
        ares_file_read(path.data, &text) == ARES_OK &&
        ares_json_parse(&arena, ares_str_view(&text), path.data, &o) == ARES_OK)
        (void)ares_json_get_string(o, "cwd", "", &cwd);
    ares_error_clear();
    ares_str_clear(&path);
    ares_str_add_view(&path, cwd);
    if (cwd.len && ares_dir_exists(path.data) && chdir(path.data) != 0)
        rc = ares_fail(ARES_EIO, "%s: the run was started there, and it cannot be entered",
                       path.data);
    ares_str_fini(&path), ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

/* ---------------------------------------------------------------- tokens that are looked at */

/*
 * The tokens with the smallest of these numbers are kept. They follow from the sampling key alone,
 * so the same tokens are looked at whatever the order of decoding.
 */
static bool wants(void *ctx, ares_rng_key sample, int64_t place)
{
    replay *r = ctx;
    if (!r->looking || !r->max_looks) return false;
    r->priority = ares_rng_u64(ares_rng_sub(sample, (uint64_t)place, 0), 0);
    uint64_t most = 0;
    for (int64_t i = 0; i < r->n_looks; i++) most = ARES_MAX(most, r->looks[i].priority);
    return r->n_looks < r->max_looks || r->priority < most;
}

static void show(void *ctx, const ares_watched *x)
{
    replay *r = ctx;
    replay_look *to = &r->looks[r->n_looks];
    size_t bytes = (size_t)r->vocab * sizeof *to->logits;
    if (r->n_looks == r->max_looks) {
        to = r->looks;
        for (int64_t i = 1; i < r->n_looks; i++)
            if (r->looks[i].priority > to->priority) to = &r->looks[i];
    } else r->n_looks++;
    int32_t n = x->prompt_len + x->n;
    to->context = ares_realloc(to->context, (size_t)(n + 1) * sizeof *to->context);
    to->logits = ares_realloc(to->logits, bytes);
    memcpy(to->context, x->prompt, (size_t)x->prompt_len * sizeof *x->prompt);
    if (x->n) memcpy(to->context + x->prompt_len, x->ids, (size_t)x->n * sizeof *x->ids);
    memcpy(to->logits, x->logits, bytes);
    to->n = n;
    to->token = x->token;
    to->row_media = x->row_media;
    to->priority = r->priority;
}

/* ---------------------------------------------------------------- the step */

/* The step that the run began with, and, of a run that began with a checkpoint, that checkpoint. */
static int first_step(replay *r, ares_world *world, int64_t *first)
{
    *first = 1;
    if (!r->c.trainer.load_checkpoint) return ARES_OK;
    rundir named = { .lock = -1 };
    ares_str state = { 0 };
    int rc = rundir_look(&named, &r->c, false, world);
    *first = -1;
    if (rc == ARES_OK) {
        int64_t step =
            number_in(ares_path_join(&state, named.checkpoint.data, "state.json"), "step", -2);
        *first = step + 1;
        ares_str_add_view(&r->checkpoint, ares_str_view(&named.checkpoint));
    } else ares_error_clear(); /* it is gone: later steps may be there */
    ares_str_fini(&state);
    rundir_close(&named);
    return ARES_OK;
}

/* All ranks learn what rank 0 has chosen: a run that goes on may have another latest step now. */
static int share_choice(replay *r, ares_world *world)
{
    int64_t x[2] = { r->step, (int64_t)r->checkpoint.len };
    ARES_TRY(ares_world_broadcast(world, x, sizeof x, 0));
    r->step = x[0];
    ares_str_reserve(&r->checkpoint, (size_t)x[1] + 1);
    r->checkpoint.len = (size_t)x[1];
    r->checkpoint.data[x[1]] = 0;
    return x[1] ? ares_world_broadcast(world, r->checkpoint.data, (size_t)x[1], 0) : ARES_OK;
}

int replay_open(replay *r, const ares_verify_options *o, ares_world *world)
{
    int64_t first, ranks = ares_world_size(world), rank = ares_world_rank(world);
    ares_str path = { 0 };
    char *whole = realpath(o->run_dir, NULL);
    int rc = ARES_OK;
    *r = (replay){ .metrics = ares_metrics_new() };
    ares_str_add_z(&r->dir, whole ? whole : o->run_dir);
    free(whole);
    if (!ares_dir_exists(r->dir.data))
        rc = ares_fail(ARES_EUSE, "verify: %s: no such directory; name that of a run", o->run_dir);
    else if (!ares_file_exists(ares_path_join(&path, r->dir.data, "config.yaml")))
        rc = ares_fail(ARES_EUSE,
                       "verify: %s: no config.yaml there: this is not the directory of a run, or "
                       "its models were never opened; 'ares-train runs' lists runs",
                       o->run_dir);
    if (rc == ARES_OK) rc = go_there(r);
    if (rc == ARES_OK)
        r->ranks = number_in(ares_path_join(&path, r->dir.data, "exactness.json"), "ranks", 0);
    ares_str_fini(&path);
    if (rc == ARES_OK) rc = read_options(r, o, world);
    ARES_TRY(ares_world_share_error(world, rc));
    ARES_TRY(first_step(r, world, &first));
    if (rank == 0) rc = choose_step(r, o->step, first);
    ARES_TRY(ares_world_share_error(world, rc));
    ARES_TRY(share_choice(r, world));
    ares_str_addf(&r->file, "%s/rollouts/step_%06lld.jsonl", r->dir.data, (long long)r->step);

    r->max_looks = o->rows / ranks + (rank < o->rows % ranks);
    r->looks = ares_calloc((size_t)r->max_looks + 1, sizeof *r->looks);
    r->watch = (ares_rollout_watch){ wants, show, r };
    ares_str weights = { 0 };
    if (r->checkpoint.len) ares_path_join(&weights, r->checkpoint.data, "model");
    r->opened = true;
    rc = trainer_open_replay(&r->trainer, r->cfg, &r->c, world, weights.data, &r->watch);
    ares_str_fini(&weights);
    ARES_TRY(rc);
    ares_str_add_view(&r->trainer.run.run_dir, ares_str_view(&r->dir));
    r->vocab = r->trainer.run.model->cfg.vocab;
    const ares_device *d = &r->trainer.run.device;
    if (d->index >= 0 || d->k->act != ARES_F32) r->max_looks = 0; /* it shows no logits */
    return ARES_OK;
}

/* exactness.json names the starting model and the rows; a checkpoint's state.json does, too. */
static int check_origin(const replay *r)
{
    static const struct {
        const char *key, *of;
    } prints[] = { { "model", "model (worker.actor.model.model_path) is another one" },
                   { "training_data", "training rows (data.train_files) are others" } };
    const training *t = &r->trainer.run;
    train_origin own = train_origin_of(t);
    const char *const now[] = { own.model, own.data };
    ares_str path = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *o;
    int rc = ARES_OK;
    if (ares_file_exists(ares_path_join(&path, r->dir.data, "exactness.json")) &&
        ares_file_read(path.data, &text) == ARES_OK &&
        ares_json_parse(&arena, ares_str_view(&text), path.data, &o) == ARES_OK)
        for (int i = 0; i < ARES_COUNT(prints) && rc == ARES_OK; i++) {
            const ares_json *x = ares_json_get(o, prints[i].key);
            if (x && i == 0) x = ares_json_get(x, "fingerprint");
            if (!x || x->type != ARES_JSON_STRING || ares_view_is(x->text, now[i])) continue;
            rc = ares_fail(ARES_ESTATE,
                           "%s: the %s now than when the run began, by its fingerprint; restore "
                           "the files, or name where they are",
                           path.data, prints[i].of);
        }
    if (rc == ARES_OK) ares_error_clear();
    ares_str_fini(&path), ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

int replay_load(replay *r)
{
    training *t = &r->trainer.run;
    ares_str states = { 0 };
    int rc = ARES_OK;
    if (r->checkpoint.len && training_storage(&r->c) == ARES_BF16 && !t->adapter &&
        !ares_file_exists(ares_path_join(&states, r->checkpoint.data, "optimizer.safetensors")))
        rc = ares_fail(ARES_EUSE,
                       "verify: step %lld: %s is a model alone (trainer.save_model_only), and of a "
                       "run in bf16 only optimizer.safetensors has all bits of the vectors; verify "
                       "the first step (--step 1), or a run that keeps whole checkpoints",
                       (long long)r->step, r->checkpoint.data);
    ares_str_fini(&states);
    ARES_TRY(rc);
    if (!r->checkpoint.len) ARES_TRY(ares_world_share_error(t->world, check_origin(r)));
    else ARES_TRY(state_resume(t, r->checkpoint.data));
    if (t->step + 1 != r->step)
        return ares_fail(ARES_ESTATE, "%s is of step %lld, by its state.json", r->checkpoint.data,
                         (long long)t->step);
    return ARES_OK;
}

bool replay_whole(const replay *r)
{
    static const char *const files[] = { "state.json", "source.json" };
    ares_str path = { 0 };
    bool whole = true, bf16 = training_storage(&r->c) == ARES_BF16;
    for (int i = 0; i < ARES_COUNT(files) && r->checkpoint.len; i++)
        whole = whole && ares_file_exists(ares_path_join(&path, r->checkpoint.data, files[i]));
    if (whole && r->trainer.run.controls && r->checkpoint.len)
        whole = ares_file_exists(ares_path_join(&path, r->checkpoint.data, "controls.json"));
    if (whole && bf16 && r->checkpoint.len) /* or it is a model alone (trainer.save_model_only) */
        whole =
            ares_file_exists(ares_path_join(&path, r->checkpoint.data, "optimizer.safetensors"));
    ares_str_fini(&path);
    return whole;
}

int replay_step(replay *r)
{
    ares_trainer *t = &r->trainer;
    int rc = ares_config_at_step(r->cfg, t->run.step);
    ARES_TRY(ares_world_share_error(t->run.world, rc));
    if (t->run.step == 0) ARES_TRY(trainer_bootstrap(t, r->metrics));
    ares_source_begin_step(&t->run.source, t->run.step);
    r->looking = true;
    rc = ares_world_share_error(t->run.world, ares_train_step(t, r->metrics));
    r->looking = false;
    t->run.step++;
    return rc;
}

void replay_close(replay *r)
{
    if (r->opened) trainer_close(&r->trainer);
    for (int64_t i = 0; i < r->n_looks; i++) {
        ares_free(r->looks[i].context);
        ares_free(r->looks[i].logits);
    }
    ares_free(r->looks);
    ares_metrics_free(r->metrics);
    ares_config_free(r->cfg);
    ares_str_fini(&r->dir), ares_str_fini(&r->checkpoint), ares_str_fini(&r->file);
}
