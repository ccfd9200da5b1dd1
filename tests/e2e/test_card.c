/*
 * Whole runs on a card (or the emulator of tests/gpu/emulate) beside the same runs on the CPU: the
 * first step answers with the same tokens, and every metric agrees.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/kernels.h"
#include "e2e.h"
#include "vapor_runs.h"

#define RANDOM "'worker.reward.rewards=[{name: random}]' "

/* False after a SKIP where there is no card; where one is required the run says what is missing. */
static bool have_card(void)
{
    const char *required = getenv("ARES_REQUIRE_CUDA");
    if (ares_cuda_expected() || (required && *required)) return true;
    test_skip("no CUDA device on this machine");
    return false;
}

static bool runs(const char *device, const char *words)
{
    ares_str out = { 0 };
    if (!have_card()) return false;
    int rc = e2e_program(&out,
                         "%s trainer.device=%s trainer.run_dir='%s' trainer.logger=[file] "
                         "worker.actor.fsdp.torch_dtype=fp32",
                         words, strcmp(device, "card") == 0 ? "cuda" : "cpu", test_file(device));
    bool well = CHECK_MSG(rc == 0, "%s: %s", words, out.data ? out.data : "");
    ares_str_fini(&out);
    return well;
}

/* The responses of step 1 are those of the CPU, token by token. */
static void same_responses(void)
{
    ares_str card = { 0 }, cpu = { 0 };
    e2e_values("card/rollouts/step_000001.jsonl", "response", &card);
    e2e_values("cpu/rollouts/step_000001.jsonl", "response", &cpu);
    CHECK(cpu.len > 0);
    CHECK_STR(card.data, cpu.data);
    ares_str_fini(&card);
    ares_str_fini(&cpu);
}

/* Every metric of both runs, of which there are at_least so many, within the tolerance times its
 * size, at least times 1. */
static void near_metrics(double tolerance, int64_t at_least)
{
    ares_arena arena = { 0 };
    int64_t n, m, compared = 0;
    const ares_json **x = e2e_rows(&arena, "card", "metrics.jsonl", &n),
                    **y = e2e_rows(&arena, "cpu", "metrics.jsonl", &m);
    CHECK_EQ(n, m);
    for (int64_t i = 0; i < ARES_MIN(n, m); i++)
        for (int64_t k = 0; k < y[i]->count; k++) {
            ares_view key = y[i]->members[k].key;
            /* a card decodes a step ahead, also of an answer that has ended */
            if (e2e_of_speed(key) || ares_view_starts(key, ARES_VIEW("exact/")) ||
                ares_view_eq(key, ARES_VIEW("update/active_frac")) || /* a card has none */
                ares_view_eq(key, ARES_VIEW("rollout/forward_passes")))
                continue;
            const ares_json *mine = ares_json_find(x[i], key), *v = y[i]->members[k].value;
            if (!CHECK_MSG(mine, "row %lld: %.*s is missing on the card", (long long)i,
                           (int)key.len, key.data))
                continue;
            CHECK_MSG(mine->type == v->type ||
                          (mine->type != ARES_JSON_NULL && v->type != ARES_JSON_NULL),
                      "row %lld: %.*s is finite in one of the runs only", (long long)i,
                      (int)key.len, key.data);
            CHECK_MSG(fabs(mine->number - v->number) <= tolerance * fmax(1, fabs(v->number)),
                      "row %lld: %.*s is %.9g on the card, %.9g on the CPU", (long long)i,
                      (int)key.len, key.data, mine->number, v->number);
            compared++;
        }
    CHECK_MSG(compared >= at_least, "%lld metrics compared", (long long)compared);
    ares_arena_fini(&arena);
}

/* Two steps of `words` on the CPU and on the card. */
static void trains_as_on_the_cpu(const char *words)
{
    if (!runs("cpu", words) || !runs("card", words)) return;
    same_responses();
    near_metrics(1e-5, 50);
}
static void trains_sums(const char *options)
{
    char words[3000];
    snprintf(words, sizeof words, "--config '%s' trainer.max_steps=2 data.max_response_length=8 %s",
             e2e_train_words("run"), options);
    trains_as_on_the_cpu(words);
}

TEST_GPU(grpo_trains_on_a_card_as_on_the_cpu)
{
    trains_sums("worker.rollout.top_p=0.9 worker.rollout.top_k=40");
    if (!have_card()) return;
    CHECK(e2e_metric("card", 2, "rollout/graph_steps") > 0);
    CHECK_NEAR(e2e_metric("card", 2, "rollout/refused_graphs"), 0, 0);
    CHECK(isnan(e2e_metric("cpu", 2, "rollout/graph_steps"))); /* it has no graphs */
}

TEST_GPU(ppo_with_a_critic_and_a_kl_loss_trains_on_a_card_as_on_the_cpu)
{
    trains_sums("algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 "
                "worker.critic.optim.weight_decay=0 algorithm.disable_kl=false "
                "algorithm.use_kl_loss=true worker.actor.entropy_coeff=0.01");
}

/* Their weights come from pinned memory, beside the kernels. */
TEST_GPU(reference_and_critic_in_host_memory_train_on_a_card_as_on_the_cpu)
{
    trains_sums("algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 "
                "worker.critic.optim.weight_decay=0 algorithm.disable_kl=false "
                "algorithm.use_kl_loss=true algorithm.kl_penalty=full "
                "worker.ref.offload.offload_params=true "
                "worker.critic.offload.offload_params=true");
}

/*
 * And the actor's, with its optimizer states; rollout decodes with a copy in memory that training
 * takes.
 */
TEST_GPU(an_actor_in_host_memory_trains_on_a_card_as_on_the_cpu)
{
    trains_sums("worker.actor.offload.offload_params=true "
                "worker.actor.offload.offload_optimizer=true");
}

TEST_GPU(an_exact_kl_trains_on_a_card_as_on_the_cpu)
{
    trains_sums("algorithm.disable_kl=false algorithm.use_kl_loss=true "
                "algorithm.kl_penalty=full worker.actor.ppo_epochs=2");
}

TEST_GPU(aepo_trains_on_a_card_as_on_the_cpu)
{
    trains_sums("'worker.reward.rewards=[{name: random}, {name: aepo}]' "
                "worker.reward.accuracy=random algorithm.aepo=true worker.rollout.window_size=2 "
                "algorithm.disable_kl=false algorithm.use_kl_loss=true "
                "worker.actor.dynamic_kl_loss=true");
}

TEST_GPU(dapo_with_filters_trains_on_a_card_as_on_the_cpu)
{
    trains_sums(RANDOM "algorithm.filter_groups.enable=true algorithm.filter_groups.metric=score "
                       "worker.rollout.n=2 worker.actor.clip_ratio_high=0.28 "
                       "algorithm.max_length=5");
}

TEST_GPU(clip_cov_trains_on_a_card_as_on_the_cpu)
{
    trains_sums(RANDOM "worker.actor.loss_type=clip_cov worker.actor.clip_cov_ratio=0.2 "
                       "worker.actor.clip_cov_lb=0");
}

TEST_GPU(vapor_trains_on_a_card_as_on_the_cpu)
{
    char words[3000];
    snprintf(words, sizeof words,
             "train algorithm.name=vapor vapor.verifiable_term_split='[<N>, </N>]' "
             "vapor.preference_term_split='[<S>, </S>]' data.train_files='%s' "
             "worker.actor.model.model_path='%s' data.rollout_batch_size=4 worker.rollout.n=4 "
             "data.max_prompt_length=64 data.max_response_length=20 "
             "worker.actor.global_batch_size=4 trainer.max_steps=2",
             vapor_rows(), vapor_model());
    trains_as_on_the_cpu(words);
}

TEST_GPU(sft_trains_on_a_card_as_on_the_cpu)
{
    char words[1000];
    snprintf(words, sizeof words, "sft --config '%s' trainer.max_steps=2", e2e_sft_words("run"));
    if (runs("cpu", words) && runs("card", words)) near_metrics(1e-5, 12);
}

/* A loss of rows with the exact KL, between the head's forward and its backward. */
TEST_GPU(an_exact_kl_and_a_loss_of_rows_train_on_a_card_as_on_the_cpu)
{
    trains_sums("worker.actor.loss_type=gspo algorithm.disable_kl=false "
                "algorithm.use_kl_loss=true algorithm.kl_penalty=full "
                "worker.actor.entropy_coeff=0.01 ");
}

/*
 * |log ratio| has a corner at a ratio of 1. Old log-probs that the update's own pass has computed
 * put the first epoch on it exactly, with a derivative of 0 on either device; the second lies
 * beside it.
 */
TEST_GPU(kl_cov_trains_on_a_card_as_on_the_cpu)
{
    trains_sums(RANDOM "worker.actor.loss_type=kl_cov worker.actor.kl_cov_ratio=0.2 "
                       "worker.actor.recompute_log_probs=true worker.actor.ppo_epochs=2");
}

/*
 * Conversations of two turns with FrozenLake, whose prompts of 300 tokens are slow here: one step.
 * The rewards are equal, so that the bonus for entropy alone trains.
 */
TEST_GPU(an_environment_trains_on_a_card_as_on_the_cpu)
{
    trains_sums("'~data.train_files' '~data.rollout_batch_size' '~worker.rollout.n' "
                "'~worker.reward.rewards' env.train.tags=FrozenLake env.train.groups=1 "
                "env.train.group_size=2 env.max_turns=2 env.enable_think=false "
                "env.token_exact=true 'env.definitions.FrozenLake.instruction=Ice.' "
                "data.max_prompt_length=400 worker.rollout.max_model_len=800 "
                "worker.actor.global_batch_size=1 worker.actor.entropy_coeff=0.01 "
                "trainer.max_steps=1");
}

/* The host chooses tokens and may stop; three micro-batches go forward before any goes backward. */
TEST_GPU(losses_of_a_mini_batch_train_on_a_card_as_on_the_cpu)
{
    trains_sums(RANDOM "worker.actor.loss_type=clip_cov worker.actor.clip_cov_ratio=0.2 "
                       "worker.actor.clip_cov_lb=0 worker.actor.max_token_len_per_device=200 "
                       "worker.actor.early_stop_imp_ratio=5 worker.actor.ppo_epochs=2");
}

/* Waits of the whole run, from the emulator's counts. */
static double waits(const char *file)
{
    char line[300];
    long long n, sum = 0;
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f)) { /* kind, operation (here none), count */
        const char *last = strrchr(line, '\t');
        if (strncmp(line, "wait\t", 5) == 0 && last && sscanf(last, "%lld", &n) == 1) sum += n;
    }
    if (f) (void)fclose(f);
    return (double)sum;
}

/*
 * A run whose 16 rows are one micro-batch beside one that cuts them into many: what the others cost
 * is one wait each, at the end of the backward, in the update, and none in the passes of the
 * reference.
 */
TEST_GPU(a_micro_batch_waits_for_the_card_once)
{
    static const char *const cuts[] = { "100000", "40" };
    double n[2];
    if (strcmp(getenv("ARES_CUDA_LIB") ? getenv("ARES_CUDA_LIB") : "", "") == 0) {
        test_skip("only the emulator counts waits");
        return;
    }
    for (int i = 0; i < 2; i++) {
        char run[32];
        ares_str out = { 0 };
        snprintf(run, sizeof run, "waits_%d", i);
        REQUIRE(setenv("ARES_EMULATE_COUNTS", test_file(run), 1) == 0);
        CHECK_EQ(e2e_program(&out,
                             "--config '%s' trainer.max_steps=1 trainer.device=cuda "
                             "data.max_response_length=8 trainer.run_dir='%s' "
                             "trainer.logger=[file] algorithm.disable_kl=false "
                             "algorithm.use_kl_loss=true worker.actor.share_prompts=false "
                             "worker.actor.max_token_len_per_device=%s",
                             e2e_train_words("run"), test_file(i ? "many" : "one"), cuts[i]),
                 0);
        ares_str_fini(&out);
        n[i] = waits(test_file(run));
    }
    REQUIRE(unsetenv("ARES_EMULATE_COUNTS") == 0);
    CHECK_MSG(n[0] > 0 && n[1] - n[0] <= 16, "%g waits with one micro-batch, %g with 16", n[0],
              n[1]);
}

/* The first log-prob that `score` gives to a text. type: an option, or nothing */
static double scored(const char *device, const char *type)
{
    ares_str out = { 0 };
    double first = NAN;
    int rc = test_shell(&out,
                        "echo '{\"text\":\"ab\"}' | '%s' score --model '%s' %s "
                        "--device %s --threads 1",
                        test_program(), e2e_model(), type, device);
    CHECK_MSG(rc == 0 && sscanf(out.data, "{\"log_probs\":[%lf", &first) == 1, "%s",
              out.data ? out.data : "");
    ares_str_fini(&out);
    return first;
}

/* Its activations are rounded to 8 bits: near the CPU's, and further away than rounding of f32. */
TEST_GPU(score_computes_on_a_card_in_the_type_of_the_weights)
{
    if (!have_card()) return;
    double cpu = scored("cpu", "--dtype bf16"), card = scored("cuda", "--dtype bf16");
    CHECK_NEAR(card, cpu, 0.05);
    CHECK_MSG(fabs(card - cpu) > 1e-5, "%.9g on the card, %.9g on the CPU", card, cpu);
    CHECK_NEAR(scored("cuda", ""), card, 0); /* which is a card's own choice */
    CHECK_NEAR(scored("cuda", "--dtype fp32"), scored("cpu", ""), 1e-5);
}

/*
 * Two ranks on one card: their gradients meet as on the CPU, and sharing changes no bit. The
 * emulator runs what a group has queued as late as it may, in an order drawn by a seed.
 */
static bool train_ranks(int ranks, const char *run, const char *device, const char *more)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out,
                         "--ranks %d --config '%s' trainer.max_steps=2 data.max_response_length=8 "
                         "trainer.run_dir='%s' trainer.device=%s trainer.threads=1 "
                         "worker.actor.fsdp.torch_dtype=fp32 %s",
                         ranks, e2e_train_words("run"), test_file(run), device, more);
    bool well = CHECK_MSG(rc == 0, "%s: %s", run, out.data ? out.data : "");
    ares_str_fini(&out);
    return well;
}
static void same_checkpoints(const char *run, const char *other)
{
    static const char *const files[] = { "model/model.safetensors", "optimizer.safetensors" };
    for (int i = 0; i < ARES_COUNT(files); i++)
        CHECK_EQ(test_shell(NULL,
                            "cd '%s' && cmp '%s/checkpoints/step_000002/%s' "
                            "'%s/checkpoints/step_000002/%s'",
                            test_file("."), run, files[i], other, files[i]),
                 0);
}
TEST_GPU(two_ranks_train_on_one_card_as_on_the_cpu)
{
    E2E_NEEDS_MPI();
    if (!have_card()) return;
    test_emulated_order(1);
    bool well = train_ranks(2, "cpu", "cpu", "") && train_ranks(2, "card", "cuda:0", "");
    test_emulated_order(2);
    well = well && train_ranks(2, "whole", "cuda:0", "worker.actor.fsdp.fsdp_size=1");
    test_emulated_order(0);
    if (!well) return;
    same_responses();
    near_metrics(1e-5, 50);
    same_checkpoints("card", "whole");
}

/*
 * Weights that ranks of a card have in parts, in pairs of four, and in rounds; what is queued runs
 * in another order each time. Seen to fail where a gather waited for a copy from the host that
 * never was.
 */
TEST_GPU(what_ranks_of_a_card_share_changes_no_bit)
{
    static const struct {
        int ranks;
        const char *words;
    } cases[] = { { 2, "worker.actor.round_tokens=40 data.max_response_length=4" },
                  { 4, "worker.actor.fsdp.fsdp_size=2 data.rollout_batch_size=4 "
                       "worker.actor.global_batch_size=4 data.max_response_length=4" } };
    E2E_NEEDS_MPI();
    if (!have_card()) return;
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char words[300];
        test_emulated_order(3);
        bool well = train_ranks(cases[i].ranks, i ? "pairs" : "states", "cuda:0", cases[i].words);
        test_emulated_order(4);
        snprintf(words, sizeof words, "%s worker.actor.fsdp.enable_full_shard=true",
                 cases[i].words);
        well = well && train_ranks(cases[i].ranks, i ? "pairs_all" : "all", "cuda:0", words);
        test_emulated_order(0);
        if (well) same_checkpoints(i ? "pairs" : "states", i ? "pairs_all" : "all");
    }
}

/*
 * Prompts may be as long as the model sees and have 30 tokens: micro-batches of full length would
 * take 0.05 GiB. On a card that has less the run begins, and buffers grow with what comes.
 */
TEST_GPU(a_run_whose_full_micro_batches_do_not_fit_says_so_and_trains)
{
    const char *library = getenv("ARES_CUDA_LIB");
    ares_str small = { 0 }, large = { 0 };
    if (!have_card()) return;
    if (!library || !*library) SKIP("a card's memory is what it is");
    static const char words[] = "data.max_prompt_length=4000 worker.rollout.cache_tokens=8192 "
                                "worker.actor.max_token_len_per_device=16384 trainer.max_steps=1 "
                                "trainer.device=cuda "
                                "worker.actor.model.override_config.max_position_embeddings=4012",
                      said[] = "answers of full length would take";
    setenv("ARES_EMULATE_MEMORY", "0:70000000", 1);
    CHECK_EQ(e2e_program(&small, "--config '%s' %s trainer.run_dir='%s'", e2e_train_words("small"),
                         words, test_file("small")),
             0);
    unsetenv("ARES_EMULATE_MEMORY");
    CHECK_EQ(e2e_program(&large, "--config '%s' %s trainer.run_dir='%s'", e2e_train_words("large"),
                         words, test_file("large")),
             0);
    CHECK_MSG(strstr(small.data, said), "%s", small.data);
    CHECK_MSG(!strstr(large.data, said), "%s", large.data);
    const char *metric = "perf/max_memory_allocated_gb";
    CHECK(e2e_metric("small", 1, metric) < 0.02);
    CHECK(e2e_metric("large", 1, metric) > 0.04);
    ares_str_fini(&small);
    ares_str_fini(&large);
}

/* Nothing is said but the device. */
TEST_GPU(a_card_says_what_it_takes_by_itself_and_where_its_time_goes)
{
    static const char *const said[] = { ("bf16, the optimizer's copy in fp32, 16384 tokens per "
                                         "micro-batch, up to 512 samples at once"),
                                        "kernel times, by the card's events, without graphs: ",
                                        "\n  gen  ",
                                        "\n    rope_store  ",
                                        "\n    sample  ",
                                        "\n  update_actor  ",
                                        "\n    head_fused  ",
                                        "\n    adamw  " };
    ares_str out = { 0 };
    if (!have_card()) return;
    const char *words = e2e_train_words("run");
    setenv("ARES_KERNEL_TIMES", "1", 1);
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' trainer.max_steps=1 trainer.device=cuda "
                         "data.max_response_length=4 trainer.run_dir='%s' trainer.logger=[file]",
                         words, test_file("card")),
             0);
    unsetenv("ARES_KERNEL_TIMES");
    for (int i = 0; i < ARES_COUNT(said); i++) CHECK_CONTAINS(out.data, said[i]);
    CHECK(isnan(e2e_metric("card", 1, "rollout/graph_steps"))); /* a graph has no calls */
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out,
                         "--config '%s' trainer.max_steps=1 trainer.device=cuda "
                         "data.max_response_length=4 trainer.run_dir='%s' trainer.logger=[file] "
                         "worker.actor.fsdp.torch_dtype=fp32 worker.rollout.max_num_seqs=7 "
                         "worker.actor.max_token_len_per_device=2000",
                         words, test_file("slow")),
             0);
    CHECK_CONTAINS(out.data,
                   "fp32, 2000 tokens per micro-batch, up to 7 samples at once; faster: "
                   "worker.actor.fsdp.torch_dtype=bf16, for tensor cores; faster: more of "
                   "worker.actor.max_token_len_per_device");
    CHECK(!strstr(out.data, "kernel times"));
    ares_str_fini(&out);
}
