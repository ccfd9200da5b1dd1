/*
 * A checkpoint says nothing of the ranks that wrote it, nor of what they shared: what four ranks
 * saved that have their own parts alone, others read and write again, and every file has the same
 * bytes. No step is taken in between, so nothing is compared that adds in another order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/run.h"
#include "test.h"
#include "trainer.h"

#define OF_PARTS                                                                             \
    "worker.actor.fsdp.enable_full_shard=true", "worker.critic.fsdp.enable_full_shard=true", \
        "worker.ref.fsdp.enable_full_shard=true"

enum { SHARED_WORDS = 3 };
static const struct way {
    const char *name;
    int ranks;
    ares_sharing how;
    const char *words[SHARED_WORDS];
} ways[] = {
    { "one", 1, ARES_SHARE_NONE, { "" } },
    { "two", 2, ARES_SHARE_STATES, { "" } },
    { "three", 3, ARES_SHARE_ALL, { OF_PARTS } },
    { "four", 4, ARES_SHARE_ALL, { OF_PARTS } },
};

/* A bit of one number that the last rank alone holds, and the file that it is saved in. */
static const struct planted {
    const char *name, *file;
    bool critic, state;
} planted[] = {
    { "weight", "model/model.safetensors", false, false },
    { "state", "optimizer.safetensors", false, true },
    { "critic_weight", "critic/model.safetensors", true, false },
    { "critic_state", "critic_optimizer.safetensors", true, true },
};

#define SAVED "saved/checkpoints/step_000001"

/* The parent's folder; what is in it. The text is valid until the next call but one. */
static const char *in_folder(const char *name)
{
    static char paths[2][700];
    static int last;
    last = !last;
    snprintf(paths[last], sizeof paths[last], "%s/%s", getenv("ARES_TEST_FOLDER"), name);
    return paths[last];
}

/*
 * Policy, critic and reference, and a coefficient that is adapted: its state is saved, too. A block
 * has 442,368 weights, of which each of three or four ranks gets some.
 */
enum { OPTIONS = 15 };
static void options_of(char out[OPTIONS][800])
{
    static const char *const same[] = { "trainer.threads=1",
                                        "trainer.max_steps=1",
                                        "data.rollout_batch_size=12",
                                        "worker.actor.global_batch_size=12",
                                        "worker.critic.global_batch_size=12",
                                        "worker.rollout.n=2",
                                        "data.max_response_length=8",
                                        "worker.actor.optim.lr=1e-3",
                                        "worker.critic.optim.lr=1e-3",
                                        "algorithm.adv_estimator=gae",
                                        "algorithm.use_kl_loss=false",
                                        "algorithm.kl_type=adaptive" };
    for (int i = 0; i < ARES_COUNT(same); i++) snprintf(out[i], sizeof *out, "%s", same[i]);
    snprintf(out[12], sizeof *out, "worker.actor.model.model_path=%s", in_folder("model"));
    snprintf(out[13], sizeof *out, "data.train_files=%s",
             test_source("examples/data/sums/train.jsonl"));
    snprintf(out[14], sizeof *out, "worker.reward.rewards=[{name: random}]");
}

static void plant(ares_model *m, bool state)
{
    int largest = 0;
    for (int i = 1; i < m->params.n_regions; i++)
        if (m->params.regions[i].elements > m->params.regions[largest].elements) largest = i;
    const ares_region *r = &m->params.regions[largest];
    float *number = state ? r->m : r->own_weights;
    CHECK(*number != 0);
    *(uint8_t *)number ^= 1;
}

static void write_again(training *t, const char *name)
{
    state_save s;
    ares_str_clear(&t->run_dir);
    ares_str_add_z(&t->run_dir, in_folder(name));
    if (CHECK_OK(state_write(t, STATE_REGULAR, false, &s))) CHECK_OK(state_commit(t, &s));
}

static void check_sharing(const ares_trainer *t, ares_sharing how)
{
    CHECK_EQ((int64_t)t->run.model->params.share.how, (int64_t)how);
    CHECK_EQ((int64_t)t->critic->learner.model->params.share.how, (int64_t)how);
}

/* One of the ranks that read what was saved, and write it again. */
static void as_rank(const struct way *how)
{
    char text[OPTIONS][800];
    const char *words[OPTIONS + SHARED_WORDS];
    int n = 0;
    ares_world *w;
    ares_train_config c;
    ares_trainer t;
    options_of(text);
    while (n < OPTIONS) words[n] = text[n], n++;
    for (int i = 0; i < SHARED_WORDS && how->words[i] && *how->words[i]; i++)
        words[n++] = how->words[i];
    ares_config *options = ares_config_new();
    ares_train_config_declare(options, &c);
    ares_config_read_args(options, n, words);
    ares_config_resolve(options);
    REQUIRE_OK(ares_world_open(&w));
    REQUIRE_OK(ares_train_config_check(options, &c, ares_world_size(w)));
    REQUIRE_OK(trainer_open(&t, options, &c, w, in_folder(SAVED "/model")));
    t.run.same_files = true;
    check_sharing(&t, how->how);
    if (CHECK_OK(state_resume(&t.run, in_folder(SAVED)))) write_again(&t.run, how->name);
    bool last = ares_world_rank(w) == how->ranks - 1;
    for (int i = 0; i < ARES_COUNT(planted) && how->ranks == 4; i++) {
        ares_model *m = planted[i].critic ? t.critic->learner.model : t.run.model;
        if (last) plant(m, planted[i].state);
        write_again(&t.run, planted[i].name);
        if (last) plant(m, planted[i].state);
    }
    trainer_close(&t);
    ares_config_free(options);
    ares_world_close(w);
}

static void save_by_four(void)
{
    char text[OPTIONS][800];
    ares_str line = { 0 }, out = { 0 };
    CHECK_EQ(test_shell(&out,
                        "'%s' init --arch qwen2 --hidden 128 --layers 1 --intermediate 1024 "
                        "--seed 3 --out '%s'",
                        test_program(), in_folder("model")),
             0);
    options_of(text);
    for (int i = 0; i < OPTIONS; i++) ares_str_addf(&line, " '%s'", text[i]);
    for (int i = 0; i < SHARED_WORDS; i++)
        ares_str_addf(&line, " %s", ways[ARES_COUNT(ways) - 1].words[i]);
    CHECK_MSG(test_shell(&out, "'%s' --ranks 4 trainer.run_dir='%s' %s 2>&1", test_program(),
                         in_folder("saved"), line.data) == 0,
              "%s", out.data);
    ares_str_fini(&line);
    ares_str_fini(&out);
}

/* What diff says of what was saved and what was written again. */
static void compare(const char *again, ares_str *out)
{
    ares_str_clear(out);
    (void)test_shell(out, "cd '%s' && diff -rq " SAVED " '%s/checkpoints/step_000001'", test_dir(),
                     again);
}

TEST_MPI(what_four_ranks_saved_in_parts_is_written_again_byte_for_byte_by_any_others)
{
    static const char name[] =
        "what_four_ranks_saved_in_parts_is_written_again_byte_for_byte_by_any_others";
    if (test_in_mpi()) {
        as_rank(&ways[atoi(getenv("ARES_TEST_WAY"))]);
        return;
    }
    ares_str out = { 0 };
    setenv("ARES_TEST_FOLDER", test_dir(), 1);
    save_by_four();
    CHECK_EQ(test_shell(&out,
                        "cd '%s' && for f in controls.json source.json state.json "
                        "model/model.safetensors critic/model.safetensors optimizer.safetensors "
                        "critic_optimizer.safetensors; do test -s $f || exit 1; done",
                        in_folder(SAVED)),
             0);
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        char way[32];
        snprintf(way, sizeof way, "%d", i);
        setenv("ARES_TEST_WAY", way, 1);
        test_as_ranks(ways[i].ranks, name);
        compare(ways[i].name, &out);
        CHECK_MSG(!out.len, "%s: %s", ways[i].name, out.data);
    }
    for (int i = 0; i < ARES_COUNT(planted); i++) {
        ares_str want = { 0 };
        ares_str_addf(&want,
                      "Files " SAVED "/%s and %s/checkpoints/step_000001/%s differ\n"
                      "Files " SAVED "/state.json and %s/checkpoints/step_000001/state.json "
                      "differ\n",
                      planted[i].file, planted[i].name, planted[i].file, planted[i].name);
        compare(planted[i].name, &out);
        CHECK_STR(ares_str_view(&out).data, want.data);
        ares_str_fini(&want);
    }
    ares_str_fini(&out);
}
