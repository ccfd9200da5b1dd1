/*
 * What ranks share of their models changes no bit: three steps of four algorithms, with everything
 * on every rank, with the optimizer's states shared, with all weights shared, and with shared
 * states and weights in host memory, with one
 * micro-batch on a rank and with several, whose number differs from rank to rank. Seen to fail
 * where a block's gradient was not added over ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "trainer.h"

enum { STEPS = 3, WORDS = 8 };

static const char *const algorithms[][WORDS] = {
    { "algorithm.disable_kl=true" }, /* grpo */
    { "algorithm.disable_kl=true", "algorithm.adv_estimator=gae", "worker.critic.optim.lr=1e-3" },
    { "algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.1",
      "worker.actor.loss_type=clip_cov", "worker.actor.clip_cov_ratio=0.2",
      "worker.actor.clip_cov_lb=-5" },
    { "algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.1",
      "algorithm.kl_penalty=full" },
};

/*
 * What is tried: how ranks share, and tokens of a micro-batch. The first is what others must be;
 * the place of a way is what is shared of actor and critic; the last shares states.
 */
static const char *const ways[][7] = {
    { "worker.actor.fsdp.fsdp_size=1", "worker.critic.fsdp.fsdp_size=1",
      "worker.actor.max_token_len_per_device=4096", "worker.critic.max_token_len_per_device=4096" },
    { "worker.actor.fsdp.fsdp_size=-1", "worker.critic.fsdp.fsdp_size=-1",
      "worker.actor.max_token_len_per_device=4096", "worker.critic.max_token_len_per_device=4096" },
    { "worker.actor.fsdp.enable_full_shard=true", "worker.critic.fsdp.enable_full_shard=true",
      "worker.actor.max_token_len_per_device=64", "worker.critic.max_token_len_per_device=64",
      "worker.ref.fsdp.enable_full_shard=true", "worker.critic.offload.offload_optimizer=true" },
    { "worker.actor.offload.offload_params=true", "worker.critic.offload.offload_params=true",
      "worker.actor.max_token_len_per_device=64", "worker.critic.max_token_len_per_device=64",
      "worker.ref.offload.offload_params=true", "worker.actor.offload.offload_optimizer=true",
      "worker.critic.offload.offload_optimizer=true" },
};

/* The folder of the model is the parent's. */
static const char *model_dir(void)
{
    return getenv("ARES_TEST_MODEL");
}

typedef struct opened {
    ares_config *options;
    ares_train_config c;
    ares_trainer t;
} opened;

static bool open_way(opened *o, ares_world *w, const char *const *algorithm, const char *const *way)
{
    char model[700], rows[700];
    snprintf(model, sizeof model, "worker.actor.model.model_path=%s", model_dir());
    snprintf(rows, sizeof rows, "data.train_files=%s",
             test_source("examples/data/sums/train.jsonl"));
    const char *words[16 + WORDS + 7] = { model,
                                          rows,
                                          "trainer.run_dir=unused",
                                          "trainer.threads=1",
                                          "data.rollout_batch_size=8",
                                          "worker.actor.global_batch_size=4",
                                          "worker.critic.global_batch_size=4",
                                          "worker.rollout.n=2",
                                          "worker.actor.optim.lr=1e-3",
                                          "data.max_response_length=24",
                                          "worker.rollout.stop=[a, b, c, d, e, f, g, h]",
                                          "worker.reward.rewards=[{name: random}]",
                                          "worker.reward.accuracy=random" };
    int n = 13;
    for (int i = 0; i < WORDS && algorithm[i]; i++) words[n++] = algorithm[i];
    for (int i = 0; i < ARES_COUNT(ways[0]) && way[i]; i++) words[n++] = way[i];
    memset(o, 0, sizeof *o);
    o->options = ares_config_new();
    ares_train_config_declare(o->options, &o->c);
    ares_config_read_args(o->options, n, words);
    ares_config_resolve(o->options);
    return CHECK_OK(ares_train_config_check(o->options, &o->c, ares_world_size(w))) &&
           CHECK_OK(trainer_open(&o->t, o->options, &o->c, w, NULL));
}

/* Weights, and states of the elements from r->own_first on, of every region of a model. */
typedef struct arrays {
    size_t bytes;
    uint8_t *weights, *m, *v;
} arrays;

static void *copy_of(const void *from, size_t bytes)
{
    return memcpy(ares_malloc(bytes), from, bytes);
}

static arrays *remember(const ares_model *m)
{
    arrays *all = ares_calloc((size_t)m->n_regions, sizeof *all);
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        size_t bytes = (size_t)r->elements * sizeof(float);
        all[i] = (arrays){ bytes, copy_of(r->weights, bytes), copy_of(r->m, bytes),
                           copy_of(r->v, bytes) };
    }
    return all;
}

static void compare(const ares_model *m, const arrays *want, const char *what)
{
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        size_t first = (size_t)r->own_first * sizeof(float), own = (size_t)r->own * sizeof(float);
        const void *whole = r->host ? r->host : r->weights;
        if (whole)
            CHECK_MSG(memcmp(whole, want[i].weights, want[i].bytes) == 0, "weights of %s: %s", what,
                      r->name);
        if (!r->host)
            CHECK_MSG(memcmp(r->own_weights, want[i].weights + first, own) == 0,
                      "own weights of %s: %s", what, r->name);
        CHECK_MSG(memcmp(r->m, want[i].m + first, own) == 0, "m of %s: %s", what, r->name);
        CHECK_MSG(memcmp(r->v, want[i].v + first, own) == 0, "v of %s: %s", what, r->name);
    }
}

static void forget(arrays *all, const ares_model *m)
{
    for (int i = 0; all && i < m->n_regions; i++) {
        ares_free(all[i].weights);
        ares_free(all[i].m);
        ares_free(all[i].v);
    }
    ares_free(all);
}

static bool take_steps(opened *o, ares_world *w, const char *what)
{
    bool apart = false;
    for (int s = 0; s < STEPS; s++) {
        ares_metrics *m = ares_metrics_new();
        int rc = ares_train_step(&o->t, m);
        ares_metrics_free(m);
        if (!CHECK_OK(rc)) return false;
        o->t.run.step++;
        int64_t tokens[2] = { o->t.batch.tokens, -o->t.batch.tokens };
        CHECK_OK(ares_world_max_i64(w, tokens, 2));
        apart |= tokens[0] != -tokens[1];
    }
    return CHECK_MSG(apart, "%s: the ranks never differed in what they had", what);
}

/*
 * Between passes a rank that shares weights has its part of every matrix alone, and none on the
 * device where they lie on the host.
 */
static void check_parts(const ares_model *m, int ranks, ares_sharing how, bool host)
{
    CHECK_EQ((int64_t)m->share.how, (int64_t)how);
    for (int i = 0; i < m->n_regions; i++) {
        const ares_region *r = &m->regions[i];
        CHECK((r->weights == NULL) == ((host || how == ARES_SHARE_ALL) && r->decay));
        CHECK((r->host != NULL) == (host && r->decay));
        CHECK_EQ(r->own, how != ARES_SHARE_NONE && r->decay ? r->elements / ranks : r->elements);
    }
}

static void try_algorithm(ares_world *w, const char *const *algorithm)
{
    arrays *actor = NULL, *critic = NULL;
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        opened o;
        char what[300];
        snprintf(what, sizeof what, "%s %s %s", algorithm[0], algorithm[1] ? algorithm[1] : "",
                 ways[i][0]);
        bool well = open_way(&o, w, algorithm, ways[i]) && take_steps(&o, w, what);
        ares_model *m = o.t.run.model, *c = o.t.critic ? o.t.critic->learner.model : NULL;
        int ranks = ares_world_size(w);
        bool host = i == ARES_COUNT(ways) - 1;
        ares_sharing how = host ? ARES_SHARE_STATES : (ares_sharing)i,
                     of_ref = how == ARES_SHARE_ALL ? how : ARES_SHARE_NONE;
        if (well) check_parts(m, ranks, how, host);
        if (well && c) check_parts(c, ranks, how, host);
        if (well && o.t.ref) check_parts(o.t.ref->learner.model, ranks, of_ref, host);
        if (well && !i) {
            actor = remember(m);
            critic = c ? remember(c) : NULL;
        } else if (well) {
            compare(m, actor, what);
            if (c) compare(c, critic, what);
        }
        if (i == ARES_COUNT(ways) - 1) {
            forget(actor, m);
            forget(critic, c);
        }
        trainer_close(&o.t);
        ares_config_free(o.options);
        if (!well) return;
    }
}

static void same_bits(int ranks, int first, int end, const char *name)
{
    if (!test_in_mpi()) {
        ares_str out = { 0 };
        const char *dir = test_file("model");
        CHECK_EQ(test_shell(&out,
                            "'%s' init --arch qwen2 --hidden 128 --layers 2 --intermediate 512 "
                            "--seed 3 --out '%s'",
                            test_program(), dir),
                 0);
        setenv("ARES_TEST_MODEL", dir, 1);
        ares_str_fini(&out);
    }
    if (!test_as_ranks(ranks, name)) return;
    ares_world *w = NULL;
    REQUIRE_OK(ares_world_open(&w));
    for (int a = first; a < end; a++) try_algorithm(w, algorithms[a]);
    ares_world_close(w);
}

TEST_MPI(what_two_ranks_share_changes_no_bit)
{
    same_bits(2, 0, ARES_COUNT(algorithms), "what_two_ranks_share_changes_no_bit");
}

TEST_MPI(what_four_ranks_share_changes_no_bit)
{
    same_bits(4, 1, 2, "what_four_ranks_share_changes_no_bit");
}
