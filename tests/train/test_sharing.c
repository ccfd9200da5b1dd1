/*
 * What ranks share of their models changes no bit: two or three steps of four algorithms, and of
 * one that trains a part of actor and critic, with everything on every rank, with the optimizer's
 * states shared, with all weights shared, and with either of these in host memory, with one
 * micro-batch on a rank and with several, whose number differs from rank to rank; the same where of
 * four ranks two share. In the first of these ways groups of equal rewards go backward, in the
 * others they do not. Seen to fail where a block's gradient was not added over ranks, and where
 * that of a pair was not added to that of the other.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"
#include "trainer.h"

enum { WORDS = 8 };

static const char *const algorithms[][WORDS] = {
    { "algorithm.disable_kl=true" }, /* grpo */
    { "algorithm.disable_kl=true", "algorithm.adv_estimator=gae", "worker.critic.optim.lr=1e-3" },
    { "algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.1",
      "worker.actor.loss_type=clip_cov", "worker.actor.clip_cov_ratio=0.2",
      "worker.actor.clip_cov_lb=-5" },
    { "algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.1",
      "algorithm.kl_penalty=full" },
    { "algorithm.disable_kl=true", "algorithm.adv_estimator=gae", "worker.critic.optim.lr=1e-3",
      "worker.actor.model.trainable=[k_proj, layers.1.mlp, input_layernorm]",
      "worker.critic.model.trainable=[score, layers.1.self_attn]" },
    { "algorithm.disable_kl=false", "algorithm.use_kl_loss=true", "algorithm.kl_coef=0.1",
      "algorithm.adv_estimator=gae", "worker.critic.optim.lr=1e-3",
      "worker.actor.arithmetic=bf16" },
};
enum { PART = 4, IN_BF16 }; /* of the weights is trained; products of all models */

/* What is tried: how ranks share, and tokens of a micro-batch. */
enum { WAY_WORDS = 16 };
typedef struct way {
    const char *words[WAY_WORDS];
    ares_sharing how; /* of actor and critic */
    bool host;
    bool one_round; /* the gradients of the first step are near those of the others, and no more */
} way;
#define WHOLE_BATCHES \
    "worker.actor.max_token_len_per_device=4096", "worker.critic.max_token_len_per_device=4096"
#define MICRO_BATCHES \
    "worker.actor.max_token_len_per_device=40", "worker.critic.max_token_len_per_device=40"
#define SIZES(actor, critic) \
    "worker.actor.fsdp.fsdp_size=" actor, "worker.critic.fsdp.fsdp_size=" critic
#define SIZE(n) SIZES(n, n)
#define IN_PARTS                                                                             \
    "worker.actor.fsdp.enable_full_shard=true", "worker.critic.fsdp.enable_full_shard=true", \
        "worker.ref.fsdp.enable_full_shard=true", "worker.critic.offload.offload_optimizer=true"
#define ON_HOST                                                                                  \
    "worker.actor.offload.offload_params=true", "worker.critic.offload.offload_params=true",     \
        "worker.ref.offload.offload_params=true", "worker.actor.offload.offload_optimizer=true", \
        "worker.critic.offload.offload_optimizer=true"

/* what leaving rows without derivatives out must not change: half of the groups have no reward */
#define COMPUTED "worker.actor.skip_zero_gradients=false"

#define ROUNDS "worker.actor.round_tokens=80", "worker.critic.round_tokens=80"

/*
 * Of the ways that are compared, the first is what the others must be. size, critic: ranks that
 * share the actor and the reference, and the critic, where any do; 0: all.
 */
typedef struct ways {
    int n, size, critic, steps;
    way way[6];
} ways;
static const ways of_all = {
    .n = 5,
    .steps = 3,
    .way = { { .words = { SIZE("1"), WHOLE_BATCHES, COMPUTED }, .how = ARES_SHARE_NONE },
             { .words = { SIZE("-1"), WHOLE_BATCHES }, .how = ARES_SHARE_STATES },
             { .words = { IN_PARTS, MICRO_BATCHES }, .how = ARES_SHARE_ALL },
             { .words = { IN_PARTS, ON_HOST, MICRO_BATCHES }, .how = ARES_SHARE_ALL, .host = true },
             { .words = { ON_HOST, MICRO_BATCHES }, .how = ARES_SHARE_STATES, .host = true } }
};
static const ways in_pairs = {
    .n = 4,
    .size = 2,
    .critic = 2,
    .steps = 2,
    .way = { { .words = { SIZE("2"), WHOLE_BATCHES, COMPUTED }, .how = ARES_SHARE_STATES },
             { .words = { SIZE("2"), "worker.ref.fsdp.fsdp_size=2", IN_PARTS, ON_HOST,
                          MICRO_BATCHES },
               .how = ARES_SHARE_ALL,
               .host = true },
             { .words = { SIZE("2"), "worker.ref.fsdp.fsdp_size=2", IN_PARTS, MICRO_BATCHES },
               .how = ARES_SHARE_ALL },
             { .words = { SIZE("2"), ON_HOST, MICRO_BATCHES },
               .how = ARES_SHARE_STATES,
               .host = true } }
};
/* Two sizes that differ: the actor in pairs, and the critic by all, and the other way round. */
static const ways critic_of_all = {
    .n = 2,
    .size = 2,
    .steps = 2,
    .way = { { .words = { SIZES("2", "-1"), WHOLE_BATCHES, COMPUTED }, .how = ARES_SHARE_STATES },
             { .words = { SIZES("2", "-1"), IN_PARTS, MICRO_BATCHES }, .how = ARES_SHARE_ALL } }
};
static const ways critic_in_pairs = {
    .n = 2,
    .critic = 2,
    .steps = 2,
    .way = { { .words = { SIZES("-1", "2"), WHOLE_BATCHES, COMPUTED }, .how = ARES_SHARE_STATES },
             { .words = { SIZES("-1", "2"), IN_PARTS, MICRO_BATCHES }, .how = ARES_SHARE_ALL } }
};
static const ways in_rounds = {
    .n = 6,
    .steps = 2,
    .way = { { .words = { SIZE("1"), WHOLE_BATCHES, ROUNDS, COMPUTED }, .how = ARES_SHARE_NONE },
             { .words = { SIZE("8"), MICRO_BATCHES, ROUNDS }, .how = ARES_SHARE_STATES },
             { .words = { IN_PARTS, MICRO_BATCHES, ROUNDS }, .how = ARES_SHARE_ALL },
             { .words = { IN_PARTS, ON_HOST, MICRO_BATCHES, ROUNDS },
               .how = ARES_SHARE_ALL,
               .host = true },
             { .words = { ON_HOST, MICRO_BATCHES, ROUNDS },
               .how = ARES_SHARE_STATES,
               .host = true },
             { .words = { SIZE("-1"), WHOLE_BATCHES },
               .how = ARES_SHARE_STATES,
               .one_round = true } }
};
static const ways of_one = {
    .n = 4,
    .size = 1,
    .critic = 1,
    .steps = 3,
    .way = { { .words = { WHOLE_BATCHES, COMPUTED }, .how = ARES_SHARE_NONE },
             { .words = { MICRO_BATCHES }, .how = ARES_SHARE_NONE },
             { .words = { ON_HOST, MICRO_BATCHES }, .how = ARES_SHARE_NONE, .host = true },
             { .words = { ON_HOST, MICRO_BATCHES, ROUNDS }, .how = ARES_SHARE_NONE, .host = true } }
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

static bool open_way(opened *o, ares_world *w, const char *const *algorithm, const way *how)
{
    char model[700], rows[700], batch[3][64];
    int ranks = ares_world_size(w), prompts = (ranks > 2 ? 2 : 3) * ranks; /* of a mini-batch */
    snprintf(model, sizeof model, "worker.actor.model.model_path=%s", model_dir());
    snprintf(rows, sizeof rows, "data.train_files=%s",
             test_source("examples/data/sums/train.jsonl"));
    snprintf(batch[0], sizeof batch[0], "data.rollout_batch_size=%d", 2 * prompts);
    snprintf(batch[1], sizeof batch[1], "worker.actor.global_batch_size=%d", prompts);
    snprintf(batch[2], sizeof batch[2], "worker.critic.global_batch_size=%d", prompts);
    const char *words[13 + WORDS + WAY_WORDS] = { model,
                                                  rows,
                                                  "trainer.run_dir=unused",
                                                  "trainer.threads=1",
                                                  batch[0],
                                                  batch[1],
                                                  batch[2],
                                                  "worker.rollout.n=2",
                                                  "worker.actor.optim.lr=1e-3",
                                                  "data.max_response_length=24",
                                                  "worker.rollout.stop=[a, b, c, d, e, f, g, h]",
                                                  "worker.reward.rewards=[{name: random}]",
                                                  "worker.reward.accuracy=random" };
    int n = 13;
    for (int i = 0; i < WORDS && algorithm[i]; i++) words[n++] = algorithm[i];
    for (int i = 0; i < WAY_WORDS && how->words[i]; i++) words[n++] = how->words[i];
    memset(o, 0, sizeof *o);
    o->options = ares_config_new();
    ares_train_config_declare(o->options, &o->c);
    ares_config_read_args(o->options, n, words);
    ares_config_resolve(o->options);
    return CHECK_OK(ares_train_config_check(o->options, &o->c, ares_world_size(w))) &&
           CHECK_OK(trainer_open(&o->t, o->options, &o->c, w, NULL));
}

/* Weights of every region of a model, and states of the elements from `first` on. */
typedef struct arrays {
    size_t bytes, first;
    uint8_t *weights, *m, *v;
} arrays;

static void *copy_of(const void *from, size_t bytes)
{
    return memcpy(ares_malloc(bytes), from, bytes);
}

static arrays *remember(const ares_model *m)
{
    arrays *all = ares_calloc((size_t)m->params.n_regions, sizeof *all);
    for (int i = 0; i < m->params.n_regions; i++) {
        const ares_region *r = &m->params.regions[i];
        size_t bytes = (size_t)r->elements * ares_dtype_bytes(r->dtype),
               own = (size_t)r->own * sizeof(float);
        all[i] = (arrays){ bytes, (size_t)r->own_first * sizeof(float), copy_of(r->weights, bytes),
                           copy_of(r->m, own), copy_of(r->v, own) };
    }
    return all;
}

static void compare(const ares_model *m, const arrays *want, const char *what)
{
    for (int i = 0; i < m->params.n_regions; i++) {
        const ares_region *r = &m->params.regions[i];
        size_t first = (size_t)r->own_first * sizeof(float), own = (size_t)r->own * sizeof(float),
               at = first - want[i].first, each = ares_dtype_bytes(r->dtype),
               place = (size_t)r->own_first * each;
        const void *whole = r->host && !r->in_parts ? r->host : r->weights,
                   *part = r->host ? r->host : r->own_weights;
        if (whole)
            CHECK_MSG(memcmp(whole, want[i].weights, want[i].bytes) == 0, "weights of %s: %s", what,
                      r->name);
        if (!r->host || r->in_parts)
            CHECK_MSG(memcmp(part, want[i].weights + place, (size_t)r->own * each) == 0,
                      "own weights of %s: %s", what, r->name);
        CHECK_MSG(memcmp(r->m, want[i].m + at, own) == 0, "m of %s: %s", what, r->name);
        CHECK_MSG(memcmp(r->v, want[i].v + at, own) == 0, "v of %s: %s", what, r->name);
    }
}

static void forget(arrays *all, const ares_model *m)
{
    for (int i = 0; all && i < m->params.n_regions; i++) {
        ares_free(all[i].weights);
        ares_free(all[i].m);
        ares_free(all[i].v);
    }
    ares_free(all);
}

/* norms: of the gradients of actor and critic in the first step */
static bool take_steps(opened *o, ares_world *w, int steps, const char *what, double norms[2])
{
    bool apart = ares_world_size(w) == 1;
    norms[0] = norms[1] = 0;
    for (int s = 0; s < steps; s++) {
        ares_metrics *m = ares_metrics_new();
        int rc = ares_train_step(&o->t, m);
        if (s == 0) ares_metrics_get(m, "actor/grad_norm", &norms[0]);
        if (s == 0) ares_metrics_get(m, "critic/grad_norm", &norms[1]);
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
static void check_parts(const ares_model *m, int parts, ares_sharing how, bool host)
{
    CHECK_EQ((int64_t)m->params.share.how, (int64_t)how);
    for (int i = 0; i < m->params.n_regions; i++) {
        const ares_region *r = &m->params.regions[i];
        CHECK((r->weights == NULL) == ((host || how == ARES_SHARE_ALL) && r->decay));
        CHECK((r->host != NULL) == (host && r->decay));
        CHECK_EQ(r->own, how != ARES_SHARE_NONE && r->decay ? r->elements / parts : r->elements);
    }
}

/* Whether the weights are those that were remembered; a rank that has parts alone is not asked. */
static bool same_weights(const ares_model *m, const arrays *want)
{
    bool same = true;
    for (int i = 0; i < m->params.n_regions; i++)
        same = same && memcmp(m->params.regions[i].weights, want[i].weights, want[i].bytes) == 0;
    return same;
}

/* The same sums, added in another order. */
static void check_near(const double *have, const double *want, const char *what)
{
    for (int i = 0; i < 2; i++)
        CHECK_MSG(fabs(have[i] - want[i]) <= 1e-6 * want[i], "%s: norm %.9g, and %.9g in rounds",
                  what, have[i], want[i]);
}

static void try_algorithm(ares_world *w, const char *const *algorithm, const ways *tried)
{
    arrays *actor = NULL, *critic = NULL;
    double norms[2], first[2];
    for (int i = 0; i < tried->n; i++) {
        opened o;
        char what[300];
        const way *how = &tried->way[i];
        snprintf(what, sizeof what, "%s %s %s", algorithm[0], algorithm[1] ? algorithm[1] : "",
                 how->words[0]);
        bool well = open_way(&o, w, algorithm, how) && take_steps(&o, w, tried->steps, what, norms);
        ares_model *m = o.t.run.model, *c = o.t.critic ? o.t.critic->learner.model : NULL;
        int all = ares_world_size(w), parts = tried->size ? tried->size : all,
            of_critic = tried->critic ? tried->critic : all;
        ares_sharing of_ref = how->how == ARES_SHARE_ALL ? how->how : ARES_SHARE_NONE;
        if (well) check_parts(m, parts, how->how, how->host);
        if (well && c) check_parts(c, of_critic, how->how, how->host);
        if (well && o.t.ref) check_parts(o.t.ref->learner.model, parts, of_ref, how->host);
        if (well && !i) {
            actor = remember(m);
            critic = c ? remember(c) : NULL;
            memcpy(first, norms, sizeof first);
        } else if (well && how->one_round) {
            CHECK_MSG(!same_weights(m, actor), "%s: there was one round", what);
            if (c) CHECK_MSG(!same_weights(c, critic), "%s: the critic had one round", what);
            check_near(norms, first, what);
        } else if (well) {
            compare(m, actor, what);
            if (c) compare(c, critic, what);
        }
        if (i == tried->n - 1) {
            forget(actor, m);
            forget(critic, c);
        }
        trainer_close(&o.t);
        ares_config_free(o.options);
        if (!well) return;
    }
}

static void same_bits(int ranks, const ways *tried, int first, int end, const char *name)
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
    if (ranks > 1 && !test_as_ranks(ranks, name)) return;
    ares_world *w = NULL;
    if (ranks > 1) REQUIRE_OK(ares_world_open(&w));
    for (int a = first; a < end; a++) try_algorithm(w, algorithms[a], tried);
    ares_world_close(w);
}

TEST_LABELLED(what_two_ranks_share_changes_no_bit, "mpi,slow")
{
    same_bits(2, &of_all, 0, PART, "what_two_ranks_share_changes_no_bit");
}

TEST_MPI(products_in_bf16_keep_their_bits_whatever_two_ranks_share)
{
    same_bits(2, &of_all, IN_BF16, IN_BF16 + 1,
              "products_in_bf16_keep_their_bits_whatever_two_ranks_share");
}

TEST_LABELLED(what_four_ranks_share_changes_no_bit, "mpi,slow")
{
    same_bits(4, &of_all, 0, IN_BF16, "what_four_ranks_share_changes_no_bit");
}

TEST_LABELLED(what_pairs_of_four_ranks_share_changes_no_bit, "mpi,slow")
{
    same_bits(4, &in_pairs, 1, 4, "what_pairs_of_four_ranks_share_changes_no_bit");
}

TEST_MPI(all_ranks_may_share_a_critic_where_pairs_share_the_actor)
{
    same_bits(4, &critic_of_all, 1, 2, "all_ranks_may_share_a_critic_where_pairs_share_the_actor");
}

TEST_MPI(pairs_of_ranks_may_share_a_critic_where_all_share_the_actor)
{
    same_bits(4, &critic_in_pairs, 1, 2,
              "pairs_of_ranks_may_share_a_critic_where_all_share_the_actor");
}

/* A mini-batch is several rounds, and their number differs from rank to rank. */
TEST_LABELLED(rounds_of_two_ranks_have_the_same_bits_whatever_is_shared, "mpi,slow")
{
    same_bits(2, &in_rounds, 1, 3, "rounds_of_two_ranks_have_the_same_bits_whatever_is_shared");
}

TEST_MPI(ranks_that_train_a_part_share_it_and_the_rest_with_the_same_bits)
{
    const char *name = "ranks_that_train_a_part_share_it_and_the_rest_with_the_same_bits";
    same_bits(2, &of_all, PART, PART + 1, name);
}

TEST_LABELLED(pairs_of_ranks_that_train_a_part_have_the_same_bits, "mpi,slow")
{
    same_bits(4, &in_pairs, PART, PART + 1, "pairs_of_ranks_that_train_a_part_have_the_same_bits");
}

TEST_MPI(rounds_of_ranks_that_train_a_part_have_the_same_bits)
{
    same_bits(2, &in_rounds, PART, PART + 1,
              "rounds_of_ranks_that_train_a_part_have_the_same_bits");
}

TEST(where_the_weights_of_a_rank_alone_lie_changes_no_bit)
{
    same_bits(1, &of_one, 0, ARES_COUNT(algorithms), NULL);
}
