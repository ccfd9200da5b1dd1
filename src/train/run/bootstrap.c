/*
 * The pass over all training rows that a control may ask for before the first step (data.bootstrap,
 * docs/aepo.md#bootstrap-pass): every prompt is answered and judged as in training. After each
 * batch the controls' state is written to <run>/bootstrap.json, so that an interrupted pass goes on
 * where it stopped, and a complete one is not repeated: until a checkpoint holds its conclusions,
 * they are drawn from this file again.
 */
#include "collect/answerer.h"
#include "controls.h"

static int save(const ares_trainer *t, const char *path)
{
    ares_str json = { 0 };
    int rc = ARES_OK;
    if (ares_world_rank(t->run.world) == 0) {
        controls_save(t->run.controls, &json);
        ares_str_add_char(&json, '\n');
        /* whole or not at all, whenever the run is killed */
        rc = ares_file_write_atomic(path, json.data, json.len);
    }
    ares_str_fini(&json);
    return ares_world_agree(t->run.world, rc);
}

static int load(ares_trainer *t, const char *path)
{
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *json;
    int rc = ares_file_exists(path) ? ares_file_read(path, &text) : ARES_OK;
    if (rc == ARES_OK && text.len) rc = ares_json_parse(&arena, ares_str_view(&text), path, &json);
    if (rc == ARES_OK && text.len) rc = controls_load(t->run.controls, json, path);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    return ares_world_agree(t->run.world, rc);
}

/* Rows [at, end) of the source, this rank's share: answered and shown to the controls. */
static int answer(ares_trainer *t, int64_t at, int64_t end, ares_metrics *m)
{
    int64_t n = t->run.cfg->rollout.n, count;
    ares_batch *b = &t->batch;
    ares_sampling sampling;
    ares_group *groups;
    answer_sampling(t->run.cfg, &sampling);
    const answer_pass pass = {
        .source = &t->run.source, .sampling = &sampling, .n = n, .key = ANSWER_BOOTSTRAP
    };
    ares_batch_clear(b);
    ARES_TRY(
        ares_world_agree(t->run.world, answer_rows(t, &pass, at, end, &b->arena, &groups, &count)));
    answer_discard(t, groups, count);
    ares_batch_fill(b, groups, count);
    return controls_bootstrap_add(t->run.controls, b, m);
}

/* Clears what rewards have counted during the pass: it is no metric of the first step. */
static int forget_rewards(ares_trainer *t)
{
    ares_metrics *unused = ares_metrics_new();
    int rc = ares_reward_report(t->reward, t->run.world, "", unused);
    ares_metrics_free(unused);
    return rc;
}

int trainer_bootstrap(ares_trainer *t, ares_metrics *m)
{
    int64_t done = 0, total = ares_source_count(&t->run.source);
    if (!controls_bootstrap(t->run.controls, &done)) return ARES_OK;
    ares_str path = { 0 };
    ares_path_join(&path, t->run.run_dir.data, "bootstrap.json");
    int rc = load(t, path.data);
    (void)controls_bootstrap(t->run.controls, &done);
    ares_work_begin("bootstrap");
    answer_expect(t, answer_share(t, total - done), t->run.cfg->rollout.n);
    for (int64_t size; rc == ARES_OK && (size = controls_bootstrap(t->run.controls, &done)) > 0;) {
        int signal = 0;
        if (done >= total) {
            rc = ares_world_agree(t->run.world, controls_bootstrap_finish(t->run.controls, m));
            continue;
        }
        int64_t end = ARES_MIN(total, done + size);
        int answered = ares_world_agree(t->run.world, answer(t, done, end, m));
        if (answered == ARES_EINTERRUPTED) end = done; /* what is saved is without this batch */
        else rc = answered == ARES_OK ? save(t, path.data) : answered;
        if (rc == ARES_OK) rc = ares_world_signal(t->run.world, &signal);
        if (rc == ARES_OK && signal)
            rc = ares_fail(ARES_EINTERRUPTED,
                           "run: stopped by signal %d in the bootstrap pass, after %lld of %lld "
                           "prompts; the same command goes on from there",
                           signal, (long long)end, (long long)total);
        if (rc == ARES_OK && ares_world_rank(t->run.world) == 0)
            ares_say("bootstrap: %lld of %lld prompts\n", (long long)end, (long long)total);
    }
    ares_str_fini(&path);
    ares_batch_clear(&t->batch);
    return rc == ARES_OK ? forget_rewards(t) : rc;
}
