/*
 * Runs on libtorch's kernels (trainer.kernels=aten) beside the same runs on our own, and that only
 * they load libtorch.
 */
#include <math.h>
#include <stdio.h>

#include "e2e.h"

#define AEPO                                                                                \
    "'worker.reward.rewards=[{name: random}, {name: aepo}]' worker.reward.accuracy=random " \
    "algorithm.aepo=true worker.rollout.window_size=2 algorithm.disable_kl=false "          \
    "algorithm.use_kl_loss=true worker.actor.dynamic_kl_loss=true "
#define PPO                                                                                       \
    "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 worker.critic.optim.weight_decay=0 " \
    "algorithm.disable_kl=false algorithm.use_kl_loss=true algorithm.kl_penalty=full "            \
    "worker.actor.entropy_coeff=0.01 "

static bool trains(const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' trainer.max_steps=3 trainer.logger=[file] %s",
                         e2e_train_words(run), words);
    bool well = CHECK_MSG(rc == 0, "%s: %s", words, out.data ? out.data : "");
    ares_str_fini(&out);
    return well;
}

/* The differences that depend on the order of summation themselves. */
static bool of_rounding(ares_view key)
{
    return e2e_of_speed(key) || ares_view_starts(key, ARES_VIEW("exact/"));
}

/*
 * Every metric of both runs, within the tolerance times its size, at least times 1. Gives how many
 * were compared.
 */
static int64_t near_metrics(const char *run, const char *other, double tolerance)
{
    ares_arena arena = { 0 };
    int64_t n, m, compared = 0;
    const ares_json **x = e2e_rows(&arena, run, "metrics.jsonl", &n),
                    **y = e2e_rows(&arena, other, "metrics.jsonl", &m);
    CHECK_EQ(n, m);
    for (int64_t i = 0; i < ARES_MIN(n, m); i++)
        for (int64_t k = 0; k < x[i]->count; k++) {
            ares_view key = x[i]->members[k].key;
            if (of_rounding(key)) continue;
            const ares_json *mine = x[i]->members[k].value, *v = ares_json_find(y[i], key);
            if (!CHECK_MSG(v, "row %lld: %.*s is in %s alone", (long long)i, (int)key.len, key.data,
                           run))
                continue;
            double size = fmax(1, fabs(v->number));
            CHECK_MSG(fabs(mine->number - v->number) <= tolerance * size,
                      "row %lld: %.*s is %.9g in %s, %.9g in %s", (long long)i, (int)key.len,
                      key.data, mine->number, run, v->number, other);
            compared++;
        }
    ares_arena_fini(&arena);
    return compared;
}

static void beside_native(const char *words, double tolerance)
{
    char aten[1000];
    snprintf(aten, sizeof aten, "trainer.kernels=aten %s", words);
    if (!trains("native", words) || !trains("aten", aten)) return;
    int64_t compared = near_metrics("aten", "native", tolerance);
    CHECK_MSG(compared > 100, "%lld metrics compared", (long long)compared);
    for (int step = 1; step <= 3; step++) {
        const char *exact = "exact/rollout_train_max_abs";
        double mine = e2e_metric("aten", step, exact);
        CHECK_NEAR(e2e_metric("native", step, exact), 0, 0);
        /* reported as it is: not the zero of one order of summation, and no more than rounding */
        CHECK_MSG(mine > 0 && mine < 5e-6, "step %d: %.3g", step, mine);
    }
}

TEST(aepo_on_libtorchs_kernels_has_the_metrics_of_our_own)
{
    beside_native(AEPO, 1e-5);
}

TEST(ppo_with_a_critic_on_libtorchs_kernels_has_the_metrics_of_our_own)
{
    beside_native(PPO, 1e-5);
}

/*
 * Activations in bf16, as a card has them. Where libtorch sums in another order for another number
 * of rows, an activation rounds to the other of two neighbours, 2^-8 apart, and logits follow: so
 * far rollout and training differ here, and no further. Tokens are drawn from other logits than the
 * native run's, whose activations are f32, so that only their likelihood can be compared.
 */
static void in_bf16(const char *words)
{
    char native[1000], aten[1100];
    snprintf(native, sizeof native,
             "worker.actor.fsdp.torch_dtype=bf16 worker.ref.fsdp.torch_dtype=bf16 "
             "worker.critic.fsdp.torch_dtype=bf16 %s",
             words);
    snprintf(aten, sizeof aten, "trainer.kernels=aten %s", native);
    if (!trains("native", native) || !trains("aten", aten)) return;
    for (int step = 1; step <= 3; step++) {
        double off = e2e_metric("aten", step, "exact/rollout_train_max_abs"),
               entropy = e2e_metric("aten", step, "actor/entropy"),
               norm = e2e_metric("aten", step, "actor/grad_norm");
        CHECK_MSG(off > 1e-5 && off < 0.01, "step %d: rollout and training differ by %.3g", step,
                  off);
        CHECK_NEAR(entropy, e2e_metric("native", step, "actor/entropy"), 1e-4 * entropy);
        CHECK_MSG(norm > 0 && isfinite(norm), "step %d: gradient norm %g", step, norm);
    }
}

TEST(aepo_in_bf16_on_libtorchs_kernels_trains_as_near_as_bf16_is)
{
    in_bf16(AEPO "worker.actor.optim.strategy=adamw_bf16");
}

TEST(ppo_with_a_critic_in_bf16_on_libtorchs_kernels_trains_as_near_as_bf16_is)
{
    in_bf16(PPO);
}

/* Whether libtorch is among the files that the loader opens for the program, linked or later. */
static bool loads_libtorch(const char *words, int expected)
{
    ares_str out = { 0 };
    int rc = test_shell(&out,
                        "cd '%s' && rm -f loaded.* && LD_DEBUG=files LD_DEBUG_OUTPUT=loaded "
                        "'%s' %s >/dev/null 2>&1; echo exit $?; cat loaded.*",
                        test_dir(), test_program(), words);
    char exit_line[32];
    snprintf(exit_line, sizeof exit_line, "exit %d", expected);
    CHECK_EQ(rc, 0);
    CHECK_CONTAINS(out.data, exit_line);
    CHECK_CONTAINS(out.data, "libc.so"); /* the loader has written its list */
    bool found = strstr(out.data, "libtorch_cpu.so") || strstr(out.data, "libares_torch.so");
    ares_str_fini(&out);
    return found;
}

TEST(only_a_run_on_libtorchs_kernels_loads_libtorch)
{
    char words[1000];
    CHECK(!loads_libtorch("--help", 0));
    CHECK(!loads_libtorch("--help-config trainer", 0));
    snprintf(words, sizeof words, "train --config '%s' trainer.max_steps=1",
             e2e_train_words("native"));
    CHECK(!loads_libtorch(words, 0));
    snprintf(words, sizeof words, "train --config '%s' trainer.max_steps=1 trainer.kernels=aten",
             e2e_train_words("aten"));
    CHECK(loads_libtorch(words, 0));
}

TEST(models_stored_in_f32_beside_an_actor_that_computes_in_bf16_are_refused)
{
    ares_str out = { 0 };
    const char *words = "trainer.kernels=aten worker.actor.fsdp.torch_dtype=bf16 "
                        "algorithm.adv_estimator=gae algorithm.disable_kl=false "
                        "algorithm.use_kl_loss=true";
    CHECK_EQ(e2e_program(&out,
                         "--check --config '%s' %s worker.ref.fsdp.torch_dtype=fp32 "
                         "worker.critic.fsdp.torch_dtype=fp32",
                         e2e_train_words("run"), words),
             2);
    CHECK_CONTAINS(out.data, "worker.ref.fsdp.torch_dtype = ");
    CHECK_CONTAINS(out.data, "worker.critic.fsdp.torch_dtype = ");
    CHECK_CONTAINS(out.data, "its products take one type; set bf16 here too");
    /* what is left open follows */
    CHECK_EQ(e2e_program(NULL, "--check --config '%s' %s", e2e_train_words("run"), words), 0);
    ares_str_fini(&out);
}

TEST(kernels_that_cannot_be_had_are_refused_by_name)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.kernels=aten trainer.device=cuda",
                         e2e_train_words("cuda")),
             2);
    CHECK_CONTAINS(out.data, "trainer.kernels");
    CHECK_CONTAINS(out.data, "aten computes on the CPU, not on trainer.device=cuda; set native");
    ares_str_clear(&out);
    CHECK_EQ(e2e_program(&out, "--config '%s' trainer.kernels=torch", e2e_train_words("other")), 2);
    CHECK_CONTAINS(out.data, "native");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out,
                        "ARES_TORCH_LIB=/nowhere.so '%s' train --config '%s' "
                        "trainer.kernels=aten",
                        test_program(), e2e_train_words("nowhere")),
             1);
    CHECK_CONTAINS(out.data, "/nowhere.so");
    CHECK_CONTAINS(out.data, "use kernels=native");
    ares_str_fini(&out);
}
