/*
 * Whole runs of ranks with a card each: what NCCL moves and what goes over the host's memory give
 * the same checkpoint, byte for byte, however the ranks share a model. On the emulator of cards
 * NCCL is libnccl_fake.so (tests/gpu/emulate/nccl.cpp), whose operations run as late as they may,
 * in an order drawn by a seed; with several cards it is NCCL itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/kernels.h"
#include "e2e.h"

#define WHOLE "worker.actor.fsdp.fsdp_size=1 "
#define ALL                                                                               \
    "worker.actor.fsdp.enable_full_shard=true worker.critic.fsdp.enable_full_shard=true " \
    "worker.ref.fsdp.enable_full_shard=true "
/* several micro-batches, as many on each rank as its rows make */
#define CUT "worker.actor.share_prompts=false worker.actor.max_token_len_per_device=150 "
#define HOST                                                                                \
    "worker.actor.offload.offload_params=true worker.actor.offload.offload_optimizer=true " \
    "worker.ref.offload.offload_params=true worker.critic.offload.offload_params=true "
#define PPO                                                                               \
    "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 algorithm.disable_kl=false " \
    "algorithm.use_kl_loss=true worker.critic.fsdp.torch_dtype=fp32 "
#define BF16                                                               \
    "worker.actor.fsdp.torch_dtype=bf16 worker.ref.fsdp.torch_dtype=bf16 " \
    "worker.actor.optim.strategy=adamw_bf16 "

#define LONGER                                                                                \
    "trainer.max_steps=8 trainer.save_freq=1 data.max_response_length=8 trainer.device=cuda " \
    "trainer.threads=1 trainer.comm_timeout_s=6 worker.actor.fsdp.torch_dtype=fp32 " ALL

static bool emulated(void)
{
    const char *library = getenv("ARES_CUDA_LIB");
    return library && *library;
}

/* Whether n ranks can have a card each. */
static bool have_cards(int n)
{
    char count[24];
    ares_device d = { 0 };
    const char *required = getenv("ARES_REQUIRE_CUDA");
    if (!e2e_has_mpi()) {
        test_skip("built without MPI, or no mpirun here");
        return false;
    }
    if (!ares_cuda_expected() && !(required && *required)) {
        test_skip("no CUDA device on this machine");
        return false;
    }
    snprintf(count, sizeof count, "%d", n);
    if (emulated()) setenv("ARES_EMULATE_CARDS", count, 1);
    if (emulated()) setenv("ARES_NCCL_LIB", ARES_BINARY_DIR "/libnccl_fake.so", 1);
    snprintf(count, sizeof count, "cuda:%d", n - 1);
    int rc = ares_device_open(count, 1, &d);
    if (rc == ARES_OK) ares_device_close(&d);
    else test_skip(ares_error_message());
    return rc == ARES_OK;
}

static int start(ares_str *out, const char *run, int ranks, const char *more)
{
    return e2e_program(out,
                       "--ranks %d --config '%s' trainer.max_steps=2 data.max_response_length=8 "
                       "trainer.run_dir='%s' trainer.device=cuda trainer.threads=1 "
                       "worker.actor.fsdp.torch_dtype=fp32 %s",
                       ranks, e2e_train_words(run), test_file(run), more);
}

static bool train(const char *run, int ranks, int seed, const char *transport, const char *more)
{
    ares_str out = { 0 };
    char words[1000];
    snprintf(words, sizeof words, "%s trainer.comm_transport=%s", more, transport);
    test_emulated_order(seed);
    int rc = start(&out, run, ranks, words);
    test_emulated_order(0);
    bool well = CHECK_MSG(rc == 0, "%s: %s", run, out.data ? out.data : "");
    if (well)
        CHECK_CONTAINS(out.data, strcmp(transport, "staged") == 0 ? "exchange over host memory"
                                                                  : "exchange by NCCL");
    ares_str_fini(&out);
    return well;
}

static void same_checkpoint(const char *a, const char *b)
{
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "cd '%s/checkpoints/step_000002' && find . -name '*.safetensors' | while "
                        "read f; do cmp $f '%s/checkpoints/step_000002/'$f || exit 1; done && "
                        "find . -name '*.safetensors' | wc -l",
                        test_file(a), test_file(b));
    CHECK_MSG(rc == 0, "%s", out.data);
    CHECK(atoi(out.data) >= 2);
    ares_str_fini(&out);
}

static void same_by_both(int ranks, const char *what, const char *words)
{
    char staged[40], nccl[40];
    snprintf(staged, sizeof staged, "%s_staged", what);
    snprintf(nccl, sizeof nccl, "%s_nccl", what);
    if (train(staged, ranks, 1, "staged", words) && train(nccl, ranks, 2, "auto", words))
        same_checkpoint(staged, nccl);
}

TEST_GPU(what_goes_by_nccl_trains_the_bits_of_what_goes_over_the_host)
{
    if (!have_cards(2)) return;
    same_by_both(2, "whole", WHOLE CUT);
    same_by_both(2, "states", CUT);
    same_by_both(2, "all", ALL CUT);
    same_by_both(2, "host", ALL HOST CUT);
    same_checkpoint("whole_nccl", "states_nccl");
    same_checkpoint("whole_nccl", "all_nccl");
    same_checkpoint("whole_nccl", "host_nccl");
}

TEST_GPU(a_critic_and_a_reference_in_parts_train_the_same_by_nccl)
{
    if (!have_cards(2)) return;
    same_by_both(2, "ppo", ALL PPO);
    same_by_both(2, "host", ALL HOST PPO);
    same_checkpoint("ppo_nccl", "host_nccl");
}

TEST_GPU(bf16_weights_and_states_train_the_same_by_nccl)
{
    if (!have_cards(2)) return;
    same_by_both(2, "all", ALL CUT BF16);
    if (train("states", 2, 3, "auto", CUT BF16)) same_checkpoint("all_nccl", "states");
}

TEST_GPU(four_ranks_train_the_same_by_nccl)
{
    if (have_cards(4)) same_by_both(4, "four", ALL);
}

/* What cannot be allocated on one card ends all ranks before a collective, not in it. */
TEST_GPU(a_rank_whose_card_is_too_small_ends_all_with_one_message)
{
    /* the group, weights, slots of regions, states, scratch, activations do not fit */
    static const char *const card[] = { "1:60000000", "1:67700000", "1:68500000",
                                        "1:69500000", "1:71500000", "1:74000000" };
    if (!emulated()) SKIP("the cards of a machine are of one size");
    for (int i = 0; i < ARES_COUNT(card) && have_cards(2); i++) {
        ares_str out = { 0 };
        setenv("ARES_EMULATE_MEMORY", card[i], 1);
        CHECK(start(&out, card[i], 2,
                    ALL "worker.rollout.cache_tokens=4096 trainer.comm_timeout_s=60") != 0);
        const char *error = strstr(out.data, "error: rank 1: ");
        CHECK_MSG(error && !strstr(error + 1, "error: "), "%s: %s", card[i], out.data);
        CHECK(!strstr(out.data, "comm_timeout_s"));
        ares_str_fini(&out);
    }
    unsetenv("ARES_EMULATE_MEMORY");
}

/* The default takes a share of a card's memory; of the same card for all that use it. */
TEST_GPU(ranks_that_share_a_card_share_its_memory_for_the_cache)
{
    if (!have_cards(2)) return;
    if (!emulated()) SKIP("a card's memory says nothing about one of its processes");
    static const char words[] = "worker.rollout.gpu_memory_utilization=0.01 trainer.max_steps=1 "
                                "worker.rollout.max_num_seqs=1024 data.max_prompt_length=1000 ";
    char on_one[300];
    snprintf(on_one, sizeof on_one, "%s trainer.device=cuda:0", words);
    if (!train("own", 2, 1, "staged", words) || !train("shared", 2, 1, "staged", on_one)) return;
    double own = e2e_metric("own", 1, "perf/max_memory_allocated_gb"),
           shared = e2e_metric("shared", 1, "perf/max_memory_allocated_gb");
    const double blas = 1.0 / 32; /* GiB: the workspace of cuBLAS, which no run allocates */
    CHECK_NEAR(own, 0.01 * 16 - blas, 0.01);
    CHECK_NEAR(shared, 0.01 * 16 / 2, 0.015); /* half, and half of what was there before */
}

/* Sends a signal to rank 1 after the second step; what is printed goes to out. */
static int struck(ares_str *out, const char *run, const char *signal)
{
    return test_shell(
        out,
        "cd '%s'; config='%s'; run='%s'\n"
        "'%s' --ranks 2 --config $config " LONGER "trainer.run_dir=$run & pid=$!\n"
        "while kill -0 $pid 2>/dev/null && [ \"$(cat $run/metrics.jsonl 2>/dev/null | wc -l)\" "
        "-lt 2 ]; do sleep 0.01; done; sleep 0.1\n"
        "for p in $(grep -lzx OMPI_COMM_WORLD_RANK=1 /proc/[0-9]*/environ 2>/dev/null); do\n"
        "  p=${p%%/environ}; grep -qaF $config $p/cmdline && kill -%s ${p#/proc/}\n"
        "done\n"
        "wait $pid",
        test_source("."), e2e_train_words(run), test_file(run), test_program(), signal);
}

TEST_GPU(a_run_that_was_struck_in_nccl_goes_on_bit_for_bit)
{
    static const char *const signals[] = { "KILL", "STOP" };
    if (!have_cards(2)) return;
    if (!emulated()) SKIP("products of a card need not be those of another time");
    CHECK_EQ(e2e_program(NULL, "--ranks 2 --config '%s' " LONGER "trainer.run_dir='%s'",
                         e2e_train_words("whole"), test_file("whole")),
             0);
    for (int i = 0; i < ARES_COUNT(signals); i++) {
        ares_str out = { 0 };
        CHECK(struck(&out, signals[i], signals[i]) != 0);
        CHECK_CONTAINS(out.data, "exchange by NCCL");
        CHECK_CONTAINS(out.data, "dist: rank 1 ");
        ares_str_clear(&out);
        int rc = e2e_program(&out, "--ranks 2 --config '%s' " LONGER "trainer.run_dir='%s'",
                             e2e_train_words(signals[i]), test_file(signals[i]));
        CHECK_MSG(rc == 0, "%s", out.data);
        CHECK_CONTAINS(out.data, "going on from ");
        e2e_same_runs("whole", signals[i], 8);
        ares_str_fini(&out);
    }
}
