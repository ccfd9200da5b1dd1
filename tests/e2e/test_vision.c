/*
 * Runs over pictures give the same bits however the work is divided: threads, micro-batches, caches
 * and stores, instruction sets, and parts of a run.
 */
#include "vision_runs.h"

#include <math.h>
#include <stdio.h>

#define TRAINED "worker.actor.model.freeze_vision_tower=false "
static const char *const towers[] = { "", TRAINED };

/* A small cache: samples are preempted and their prompts computed again. */
#define SMALL_CACHE "worker.rollout.cache_tokens=208 "

#define STEPS "trainer.max_steps=2 trainer.threads=1 data.max_response_length=60 "

static void check_exact(const char *run, int steps)
{
    for (int step = 1; step <= steps; step++)
        CHECK_NEAR(e2e_metric(run, step, "exact/rollout_train_max_abs"), 0, 0);
    CHECK(e2e_metric(run, 1, "actor/grad_norm") > 0);
}

static const struct {
    const char *name, *isa, *words;
} ways[] = {
    { "threads", "", "trainer.threads=2" },
    { "micro", "", "worker.actor.max_token_len_per_device=70" },
    { "cache", "", SMALL_CACHE },
    { "prefix", "", "worker.rollout.enable_prefix_caching=false" },
    { "chunks", "", "worker.rollout.max_num_batched_tokens=16 worker.rollout.max_num_seqs=3" },
    { "store", "", "data.vision_cache_gb=0" },
    { "budget", "", "data.vision_cache_gb=1e-5" },
    { "again", "", "worker.actor.model.enable_gradient_checkpointing=true" },
    { "avx2", "avx2", "" },
    { "plain", "plain", "" },
};

static void same_every_way(const char *tower)
{
    if (!vision_trains("first", STEPS "%s", tower)) return;
    check_exact("first", 2);
    for (int i = 0; i < ARES_COUNT(ways); i++) {
        const char *isa = ways[i].isa;
        if (strcmp(isa, "avx2") == 0 && !test_has_isa(isa)) continue;
        ares_str out = { 0 };
        int rc = test_shell(&out, "cd '%s' && %s%s '%s' --config '%s' " STEPS "%s%s 2>&1",
                            test_source("."), *isa ? "ARES_ISA=" : "", isa, test_program(),
                            vision_words(ways[i].name), tower, ways[i].words);
        if (CHECK_MSG(rc == 0, "%s: %s", ways[i].name, out.data))
            e2e_same_runs("first", ways[i].name, 2);
        ares_str_fini(&out);
    }
    CHECK(e2e_metric("cache", 1, "rollout/preemptions") +
              e2e_metric("cache", 2, "rollout/preemptions") >
          0);
}

TEST_SLOW(runs_over_pictures_have_the_same_bits_however_the_work_is_divided)
{
    same_every_way("");
}
TEST_SLOW(runs_with_a_trained_tower_have_the_same_bits_however_the_work_is_divided)
{
    same_every_way(TRAINED);
}

/* Three epochs of two steps; the features of later ones come from the store, or from none. */
#define EPOCHS "trainer.max_steps=6 trainer.threads=1 "

static void goes_on_from_any_step(const char *tower)
{
    if (!vision_trains("run", EPOCHS "trainer.save_freq=1 %s", tower)) return;
    for (int step = 1; step < 6; step += 2) {
        if (!e2e_go_back("run", "whole", step)) return;
        vision_trains("run", EPOCHS "trainer.save_freq=1 data.vision_cache_gb=0 %s", tower);
        e2e_same_runs("whole", "run", 6);
    }
    CHECK_EQ(e2e_stop("killed", "KILL", 3, "--config '%s' " EPOCHS "trainer.save_freq=2 %s",
                      vision_words("killed"), tower),
             137);
    vision_trains("killed", EPOCHS "trainer.save_freq=2 %s", tower);
    e2e_same_runs("whole", "killed", 6);
}

TEST(a_run_over_pictures_goes_on_bit_for_bit_from_any_step)
{
    goes_on_from_any_step("");
}
TEST(a_run_that_trains_the_tower_goes_on_bit_for_bit_from_any_step)
{
    goes_on_from_any_step(TRAINED);
}

TEST(a_supervised_run_over_pictures_goes_on_bit_for_bit)
{
    for (int t = 0; t < ARES_COUNT(towers); t++) {
        char run[32], whole[32], words[300];
        const char *rows = e2e_write(
            "answers.jsonl",
            "{\"prompt\":\"<image>How many?\",\"images\":[\"a.png\"],\"response\":\"one\"}\n"
            "{\"prompt\":\"<image>What?\",\"images\":[\"d.png\"],\"response\":\"a square\"}\n"
            "{\"prompt\":\"<image> or <image>?\",\"images\":[\"b.png\",\"c.png\"],"
            "\"response\":\"the first\"}\n"
            "{\"prompt\":\"Why?\",\"response\":\"because\"}\n"
            "{\"prompt\":\"<image>How many?\",\"images\":[\"e.png\"],\"response\":\"two\"}\n");
        snprintf(run, sizeof run, "run_%d", t);
        snprintf(whole, sizeof whole, "whole_%d", t);
        vision_rows();
        snprintf(words, sizeof words,
                 "sft --config '%s' trainer.max_steps=6 trainer.threads=1 trainer.save_freq=1 %s",
                 vision_sft_words(run, rows), towers[t]);
        CHECK_EQ(e2e_program(NULL, "%s", words), 0);
        if (!e2e_go_back(run, whole, 3)) return;
        CHECK_EQ(e2e_program(NULL,
                             "%s worker.actor.max_token_len_per_device=64 trainer.threads=2 "
                             "data.vision_cache_gb=0",
                             words),
                 0);
        e2e_same_runs(whole, run, 6);
    }
}

/* ---------------------------------------------------------------- ranks */
static void trains_on_two(const char *run, const char *words)
{
    vision_trains(run, "--ranks 2 trainer.max_steps=2 trainer.threads=1 trainer.save_freq=2 %s",
                  words);
}

/*
 * Ranks have different pictures, and in step 1 one of them has three, the other two. What they
 * share changes no bit, and their answers are those of one rank.
 */
TEST_MPI(ranks_over_pictures_answer_as_one_and_share_without_a_change)
{
    E2E_NEEDS_MPI();
    static const struct {
        const char *name, *words;
    } shares[] = { { "states", "" },
                   { "none", "worker.actor.fsdp.fsdp_size=1 " },
                   { "all", "worker.actor.fsdp.enable_full_shard=true " },
                   { "host", "worker.actor.offload.offload_params=true " },
                   { "parts", "worker.actor.fsdp.enable_full_shard=true "
                              "worker.actor.offload.offload_params=true " },
                   { "cut", "worker.actor.fsdp.enable_full_shard=true "
                            "worker.actor.max_token_len_per_device=70 data.vision_cache_gb=0 " } };
    for (int t = 0; t < ARES_COUNT(towers); t++) {
        char one[32], first[32];
        snprintf(one, sizeof one, "one_%d", t);
        snprintf(first, sizeof first, "states_%d", t);
        vision_trains(one, "trainer.max_steps=2 trainer.threads=1 trainer.save_freq=2 %s",
                      towers[t]);
        for (int i = 0; i < ARES_COUNT(shares); i++) {
            char run[16], words[300];
            snprintf(run, sizeof run, "%s_%d", shares[i].name, t);
            snprintf(words, sizeof words, "%s%s", towers[t], shares[i].words);
            trains_on_two(run, words);
            check_exact(run, 2);
            if (i) e2e_same_runs(first, run, 2);
        }
        CHECK(e2e_same_rollouts(one, first, 1));
        CHECK_NEAR(e2e_metric(first, 1, "data/image_tokens"),
                   e2e_metric(one, 1, "data/image_tokens"), 0);
        double norm = e2e_metric(one, 1, "actor/grad_norm");
        CHECK_NEAR(e2e_metric(first, 1, "actor/grad_norm"), norm, 1e-6 * norm);
    }
}
