/*
 * A tiny model with delta nets (docs/model.md#gated-delta-nets) in everything that asks the engine
 * for answers: snapshots of its states change how much is computed, and no result.
 */
#include <stdio.h>
#include <string.h>

#include "agent_runs.h"
#include "e2e.h"

static const char *hybrid_model(void)
{
    const char *dir = test_file("hybrid");
    if (!ares_dir_exists(dir))
        CHECK_EQ(e2e_program(NULL,
                             "init --arch qwen3_5_text --layers 4 --hidden 32 --heads 4 "
                             "--kv-heads 2 --vocab 288 --initializer-range 0.2 --seed 5 --out '%s'",
                             dir),
                 0);
    return dir;
}

static int program(ares_str *out, const char *config, const char *words)
{
    return e2e_program(out,
                       "--config '%s' worker.actor.model.model_path='%s' "
                       "worker.actor.share_prompts=false worker.actor.optim.lr=1e-2 "
                       "trainer.max_steps=2 trainer.save_freq=1 %s",
                       config, hybrid_model(), words);
}

static void train(const char *config, const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = program(&out, config, words);
    CHECK_MSG(rc == 0, "%s: %s", words, out.data ? out.data : "");
    ares_str_fini(&out);
    for (int step = 1; step <= 2; step++)
        CHECK_EQ(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0);
}

#define NO_SNAPSHOTS "worker.rollout.state_snapshots=0 worker.rollout.speculation=none "
#define FEW                                                           \
    "worker.rollout.state_snapshots=1 worker.rollout.max_num_seqs=3 " \
    "worker.rollout.max_num_batched_tokens=20 trainer.threads=1 "

/* In single turns; what is drawn too many, and what goes on in the next step; a second rank. */
TEST(a_run_with_delta_nets_is_the_same_with_and_without_snapshots)
{
    static const char *const kinds[] = {
        "", "algorithm.disable_kl=false algorithm.use_kl_loss=true algorithm.kl_coef=0.1 ",
        ("curriculum.over_sampling_batch_size=6 curriculum.partial_rollout=true "
         "data.max_response_length=40 "),
        "curriculum.over_sampling_batch_size=6 algorithm.dynamic_sampling_filter=nonzero_std "
    };
    static const char *const ways[] = { NO_SNAPSHOTS, FEW,
                                        "worker.rollout.enable_prefix_caching=false " };
    char a[32], b[32], words[600];
    for (int k = 0; k < ARES_COUNT(kinds); k++) {
        snprintf(a, sizeof a, "kind%d", k);
        train(e2e_train_words(a), a, kinds[k]);
        for (int w = k ? 1 : 0; w < (k ? 2 : ARES_COUNT(ways)); w++) {
            snprintf(b, sizeof b, "kind%d_%d", k, w);
            snprintf(words, sizeof words, "%s%s", kinds[k], ways[w]);
            train(e2e_train_words(b), b, words);
            CHECK(e2e_same_runs(a, b, 2));
        }
    }
    if (e2e_go_back("kind2", "whole", 1)) { /* where answers had begun */
        train(e2e_train_words("kind2"), "kind2", kinds[2]);
        e2e_same_runs("kind2", "whole", 2);
    }
    if (!e2e_has_mpi()) return;
    train(e2e_train_words("ranks"), "ranks", "trainer.threads=1 --ranks 2");
    CHECK(e2e_same_rollouts("kind0", "ranks", 1));
}

/*
 * Three turns on the ice: each is a prompt that holds the turns before it, of which a pass of 64
 * tokens computes what is new.
 */
TEST(episodes_with_delta_nets_go_on_from_their_last_turn)
{
    static const char *const ways[] = { "", NO_SNAPSHOTS, FEW };
    char run[32];
    double passes[ARES_COUNT(ways)];
    for (int w = 0; w < ARES_COUNT(ways); w++) {
        char words[500];
        snprintf(run, sizeof run, "ice%d", w);
        snprintf(words, sizeof words,
                 "algorithm.adv_estimator=grpo env.train.groups=2 "
                 "worker.rollout.max_num_batched_tokens=64 %s",
                 ways[w]);
        train(agent_words_of(hybrid_model(), run), run, words);
        passes[w] = e2e_metric(run, 1, "rollout/forward_passes");
        if (w) CHECK(e2e_same_runs("ice0", run, 2));
    }
    CHECK_MSG(passes[0] < 0.8 * passes[1], "%g passes with, %g without", passes[0], passes[1]);
}

/* Of the table of `plan`, in bytes; a state has three layers of 4 heads 8 x 8 and their window. */
static double planned(const char *words)
{
    static const char key[] = "\"states of delta nets\":";
    ares_str out = { 0 };
    char plan[600];
    snprintf(plan, sizeof plan, "%s", e2e_train_words("planned"));
    CHECK_EQ(e2e_program(&out,
                         "plan --json --config '%s' worker.actor.model.model_path='%s' "
                         "worker.actor.share_prompts=false %s",
                         plan, hybrid_model(), words),
             0);
    const char *at = out.data ? strstr(out.data, key) : NULL;
    double bytes = CHECK(at) ? strtod(at + sizeof key - 1, NULL) : 0;
    ares_str_fini(&out);
    return bytes;
}

TEST(a_plan_counts_states_that_run_and_snapshots)
{
    double none = planned("worker.rollout.state_snapshots=0"),
           one = planned("worker.rollout.state_snapshots=1") - none;
    CHECK(one > 3 * 4 * 8 * 8 * 4);
    CHECK_NEAR(planned("worker.rollout.state_snapshots=40") - none, 40 * one, 1);
    /* null: as many as running samples, here 16, or less where fewer are decoded */
    CHECK_NEAR(planned("") - none, 16 * one, 1);
    CHECK_NEAR(planned("worker.rollout.max_num_seqs=5") -
                   planned("worker.rollout.max_num_seqs=5 worker.rollout.state_snapshots=0"),
               5 * one, 1);
    CHECK(none >= 16 * one && none <= 24 * one);
    CHECK_EQ(planned("worker.rollout.enable_prefix_caching=false"), none);
}

static void warned(const char *words, const char *says)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--check --config '%s' %s", e2e_train_words("warned"), words), 0);
    CHECK_CONTAINS(out.data, says);
    ares_str_fini(&out);
}

TEST(snapshots_that_nothing_keeps_are_named)
{
    char words[600];
    warned("worker.rollout.state_snapshots=3",
           "worker.rollout.state_snapshots = 3: has no effect: a qwen2 has no delta nets");
    snprintf(words, sizeof words,
             "worker.rollout.state_snapshots=3 worker.rollout.enable_prefix_caching=false "
             "worker.actor.share_prompts=false worker.actor.model.model_path='%s'",
             hybrid_model());
    warned(words, "has no effect with worker.rollout.enable_prefix_caching: false");
}
