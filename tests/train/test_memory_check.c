/*
 * Whether a run fits where it would run, told before a weight is read: numbers by hand, limits that
 * no machine has.
 */
#include <math.h>
#include <stdio.h>

#include "ares/train.h"
#include "faults.h"
#include "plan/plan.h"
#include "run/run.h"
#include "test.h"

/*
 * Faults of a configuration whose actor has so many parameters and no model on this machine; what a
 * process holds goes to words.
 */
static int faults_of_some(const char *parameters, const char *const *more, int n, int ranks,
                          int local_ranks, bool reinforcement, ares_str *words, ares_str *told)
{
    ares_train_config c;
    char count[64];
    const char *args[16] = { "worker.actor.model.model_path=no/such/model", "data.train_files=x",
                             "worker.rollout.n=2", count };
    snprintf(count, sizeof count, "worker.actor.model.parameters=%s", parameters);
    for (int i = 0; i < n; i++) args[4 + i] = more[i];
    memset(&c, 0, sizeof c);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, 4 + n, args);
    ares_config_resolve(cfg);
    CHECK_EQ(ares_config_fault_count(cfg), 0);
    ares_str_clear(words);
    ares_str_clear(told);
    ares_train_memory_check(cfg, &c, ranks, local_ranks, reinforcement, words);
    int found = ares_config_fault_count(cfg);
    ares_str_add_z(told, faults_text(cfg));
    ares_config_free(cfg);
    return found;
}

/* Where all ranks are on this machine. */
static int faults(const char *parameters, const char *const *more, int n, int ranks,
                  bool reinforcement, ares_str *words, ares_str *told)
{
    return faults_of_some(parameters, more, n, ranks, ranks, reinforcement, words, told);
}

#define WITH(...) \
    (const char *const[]){ __VA_ARGS__ }, ARES_COUNT(((const char *const[]){ __VA_ARGS__ }))

TEST(what_a_process_holds_is_weights_gradients_states_reference_and_critic)
{
    ares_str words = { 0 }, told = { 0 };
    const char *kl = "algorithm.kl_coef=0.1", *bf16 = "worker.actor.fsdp.torch_dtype=bf16",
               *ref_bf16 = "worker.ref.fsdp.torch_dtype=bf16", *off = "algorithm.disable_kl=true";
    CHECK_EQ(faults("1e7", WITH(off), 1, true, &words, &told), 0);
    /* 16 bytes each */
    CHECK_STR(words.data, "a process holds at least 0.2 GB (weights, gradients and optimizer "
                          "states of 10.00 million parameters: 0.2)");
    faults("1e12", WITH(off), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 16000.0 GB");
    faults("1e12", WITH(bf16, off), 1, true, &words, &told); /* and a master in fp32 */
    CHECK_CONTAINS(words.data, "at least 18000.0 GB");
    const char *kahan = "worker.actor.optim.strategy=adamw_bf16"; /* both moments and the sum: 6 */
    faults("1e12", WITH(bf16, off, kahan), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 12000.0 GB");
    faults("1e12", WITH(bf16, kl, ref_bf16), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 20000.0 GB (weights, gradients and optimizer states of "
                               "1000.00 billion parameters: 18000.0; the reference: 2000.0)");
    faults("1e12", WITH(kl, "worker.actor.arithmetic=bf16", "algorithm.adv_estimator=gae"), 1, true,
           &words, &told); /* stores all of them so */
    CHECK_CONTAINS(words.data, "at least 38000.0 GB (weights, gradients and optimizer states of "
                               "1000.00 billion parameters: 18000.0; the reference: 2000.0; the "
                               "critic: 18000.0)");
    faults("1e12", WITH(kl, "algorithm.adv_estimator=gae"), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 36000.0 GB");
    CHECK_CONTAINS(words.data, "the reference: 4000.0; the critic: 16000.0");
    faults("1e12", WITH(kl), 1, false, &words, &told); /* supervised training has no reference */
    CHECK_CONTAINS(words.data, "at least 16000.0 GB");
    faults("1e12", WITH(kl, "trainer.val_only=true"), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 4000.0 GB (weights of");
    /* beside adapters the model is frozen, and the reference and the critic's base as well */
    const char *rank = "worker.actor.model.lora.rank=8", *gae = "algorithm.adv_estimator=gae",
               *critic_rank = "worker.critic.model.lora.rank=8";
    faults("1e12", WITH(kl, gae, rank, critic_rank), 1, true, &words, &told);
    CHECK_STR(words.data, "a process holds at least 4000.0 GB (weights of 1000.00 billion "
                          "parameters: 4000.0)");
    faults("1e12", WITH(kl, gae, rank), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 20000.0 GB (weights of 1000.00 billion parameters: 4000.0"
                               "; the critic: 16000.0)");
    faults("1e12", WITH(kl, rank, "worker.ref.model.model_path=no/such"), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 8000.0 GB");
    ares_str_fini(&words);
    ares_str_fini(&told);
}

TEST(a_run_that_cannot_fit_into_this_machines_memory_is_refused_with_the_numbers)
{
    ares_str words = { 0 }, told = { 0 };
    char most[64];
    CHECK_EQ(faults("1e12", WITH("algorithm.disable_kl=true"), 1, true, &words, &told), 1);
    CHECK_CONTAINS(
        told.data,
        "worker.actor.model.model_path = 'no/such/model': a process holds at least 16000.0 GB");
    CHECK_CONTAINS(told.data, "GB for 1; see which options 'ares-train plan' proposes, take a "
                              "smaller model, or a machine with more");
    snprintf(most, sizeof most, "%.0f", ares_memory_bytes() / 16 * 0.6);
    CHECK_EQ(faults(most, WITH("algorithm.disable_kl=true"), 1, true, &words, &told), 0);
    /* two share the states: 12 bytes each; or each holds all */
    CHECK_EQ(faults(most, WITH("algorithm.disable_kl=true"), 2, true, &words, &told), 0);
    CHECK_EQ(faults(most, WITH("algorithm.disable_kl=true", "worker.actor.fsdp.fsdp_size=1"), 2,
                    true, &words, &told),
             1);
    CHECK_CONTAINS(told.data, "GB for 2");
    /* all of it is not too much; 16 bytes are a parameter's */
    for (int more = 0; more < 2; more++) {
        snprintf(most, sizeof most, "%.17g", ares_memory_bytes() / 16 + more);
        CHECK_EQ(faults(most, WITH("algorithm.disable_kl=true"), 1, true, &words, &told), more);
    }
    CHECK_EQ(faults("null", WITH("algorithm.disable_kl=true"), 1, true, &words, &told), 0);
    CHECK_CONTAINS(words.data,
                   "no model at 'no/such/model', and worker.actor.model.parameters is not set");
    ares_str_fini(&words);
    ares_str_fini(&told);
}

/* As configs/presets/qwen2_5_3b_80gb.yaml has a card leave it to the host, and 8 ranks share. */
TEST(what_ranks_share_or_the_host_holds_is_not_counted)
{
#define ON_CARD "trainer.device=cuda", "worker.actor.fsdp.torch_dtype=bf16"
    ares_str words = { 0 }, told = { 0 };
    const char *off = "algorithm.disable_kl=true", *gae = "algorithm.adv_estimator=gae",
               *critic = "worker.critic.fsdp.torch_dtype=bf16";
    faults("1e12", WITH(ON_CARD, off, gae, critic), 1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 36000.0 GB");
    faults("1e12",
           WITH(ON_CARD, off, gae, critic, "worker.actor.offload.offload_optimizer=true",
                "worker.critic.offload.offload_optimizer=true"),
           1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 12000.0 GB");
    faults("1e12",
           WITH(ON_CARD, off, gae, critic, "worker.actor.offload.offload_params=true",
                "worker.critic.offload.offload_params=true"),
           1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 32000.0 GB");
    /* the CPU has no other memory */
    faults("1e12",
           WITH(off, "worker.actor.offload.offload_params=true",
                "worker.actor.offload.offload_optimizer=true"),
           1, true, &words, &told);
    CHECK_CONTAINS(words.data, "at least 16000.0 GB");
    const char *kl = "algorithm.kl_coef=0.1";
    faults("1e12", WITH(ON_CARD, kl), 8, true, &words, &told); /* states: 12 / 8 */
    CHECK_CONTAINS(words.data, "(weights, gradients and optimizer states of 1000.00 billion "
                               "parameters: 7500.0; the reference: 2000.0)");
    faults("1e12",
           WITH(ON_CARD, kl, "worker.actor.fsdp.enable_full_shard=true",
                "worker.actor.fsdp.fsdp_size=4", "worker.ref.fsdp.enable_full_shard=true"),
           8, true, &words, &told);
    CHECK_CONTAINS(words.data, "parameters: 4500.0; the reference: 250.0)");
    /* 8 share, of which 2 are on this machine */
    CHECK_EQ(faults_of_some("1e12", WITH(off), 8, 2, true, &words, &told), 1);
    CHECK_CONTAINS(words.data, "at least 9000.0 GB");
    CHECK_CONTAINS(told.data, "GB for 2; see which options 'ares-train plan' proposes");
    CHECK_EQ(faults("1e12", WITH(off), 1, false, &words, &told), 1); /* it has no plan to see */
    CHECK_CONTAINS(told.data, "GB for 1; take a smaller model, or a machine with more");
    ares_str_fini(&words);
    ares_str_fini(&told);
}

TEST(a_model_that_is_there_is_counted_by_its_config_json)
{
    ares_str words = { 0 }, told = { 0 };
    char path[600];
    snprintf(path, sizeof path, "worker.actor.model.model_path=%s",
             test_source("tests/golden/models/qwen2_tied"));
    /* what the option says counts where no model is */
    CHECK_EQ(faults("1e12", WITH("algorithm.disable_kl=true", path), 1, true, &words, &told), 0);
    CHECK_CONTAINS(words.data, "million parameters");
    /* a critic of its own model is as large as that one */
    snprintf(path, sizeof path, "worker.critic.model.model_path=%s",
             test_source("tests/golden/models/qwen2_tied"));
    faults("1e12", WITH("algorithm.disable_kl=true", "algorithm.adv_estimator=gae", path), 1, true,
           &words, &told);
    CHECK_CONTAINS(words.data, "at least 16000.0 GB");
    CHECK_CONTAINS(words.data, "; the critic: 0.0)");
    ares_str_fini(&words);
    ares_str_fini(&told);
}

static void card(const char *name, const char *text)
{
    char dir[100];
    snprintf(dir, sizeof dir, "gpus/%s", name);
    CHECK_OK(ares_dir_make(test_file(dir)));
    snprintf(dir, sizeof dir, "gpus/%s/information", name);
    CHECK_OK(ares_file_write(test_file(dir), text, strlen(text)));
}

TEST(cards_are_counted_by_the_drivers_files)
{
    double least;
    CHECK_EQ(train_cards(test_file("gpus"), &least), -1);
    card("0000:01:00.0", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 100\n");
    CHECK_EQ(train_cards(test_file("gpus"), &least), 1);
    CHECK_NEAR(least, 141e9, 0);
    card("0000:02:00.0", "Model: \t\t NVIDIA A100-SXM4-80GB\n");
    card("0000:03:00.0", "Model: \t\t a card of the future\n");
    CHECK_EQ(train_cards(test_file("gpus"), &least), 3);
    CHECK_NEAR(least, 80e9, 0);
    CHECK(isinf(train_card_bytes("a card of the future")));
}

static int card_faults(const char *device, int local_ranks, int cards, double least, ares_str *told)
{
    ares_train_config c;
    memset(&c, 0, sizeof c);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, &c);
    ares_str_clear(told);
    train_check_cards(cfg, device, local_ranks, 152.3e9, "a process holds 152.3 GB", cards, least,
                      "take another");
    int n = ares_config_fault_count(cfg);
    ares_config_resolve(cfg);
    ares_str_add_z(told, faults_text(cfg));
    ares_config_free(cfg);
    return n;
}

TEST(each_process_takes_a_card_that_holds_all_of_it)
{
    ares_str told = { 0 };
    CHECK_EQ(card_faults("cuda", 8, 1, 141e9, &told), 2);
    CHECK_CONTAINS(told.data, "8 processes take a card each, and this machine has 1");
    CHECK_CONTAINS(told.data, "a process holds 152.3 GB; a card of this machine has 141.0 GB; "
                              "take another");
    CHECK_EQ(card_faults("cuda", 8, 8, 141e9, &told), 1);
    CHECK_EQ(card_faults("cuda", 8, 8, 180e9, &told), 0);
    CHECK_EQ(card_faults("cuda:1", 2, 8, 180e9, &told), 1); /* both on one */
    CHECK_EQ(card_faults("cuda", 1, 0, (double)INFINITY, &told), 1);
    CHECK_CONTAINS(told.data, "no CUDA device on this machine");
    CHECK_EQ(card_faults("cuda", 8, 8, (double)INFINITY, &told), 0); /* a card that is not known */
    CHECK_EQ(card_faults("cuda", 8, -1, (double)INFINITY, &told), 0);
    ares_str_fini(&told);
}
