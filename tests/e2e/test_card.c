/*
 * Whole runs on a card (or the emulator of tests/gpu/emulate) beside the same runs on the CPU: the
 * first step answers with the same tokens, and every metric agrees.
 */
#include <math.h>
#include <stdio.h>

#include "e2e.h"

static bool trains(const char *run, const char *words)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--config '%s' trainer.max_steps=2 trainer.logger=[file] %s",
                         e2e_train_words(run), words);
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

/* Every metric of both runs, within the tolerance times its size, at least times 1. */
static void near_metrics(double tolerance)
{
    ares_arena arena = { 0 };
    int64_t n, m, compared = 0;
    const ares_json **x = e2e_rows(&arena, "card", "metrics.jsonl", &n),
                    **y = e2e_rows(&arena, "cpu", "metrics.jsonl", &m);
    CHECK_EQ(n, m);
    for (int64_t i = 0; i < ARES_MIN(n, m); i++)
        for (int64_t k = 0; k < y[i]->count; k++) {
            ares_view key = y[i]->members[k].key;
            if (e2e_of_speed(key) || ares_view_starts(key, ARES_VIEW("exact/"))) continue;
            const ares_json *mine = ares_json_find(x[i], key), *v = y[i]->members[k].value;
            if (!CHECK_MSG(mine, "row %lld: %.*s is missing on the card", (long long)i,
                           (int)key.len, key.data))
                continue;
            CHECK_MSG(fabs(mine->number - v->number) <= tolerance * fmax(1, fabs(v->number)),
                      "row %lld: %.*s is %.9g on the card, %.9g on the CPU", (long long)i,
                      (int)key.len, key.data, mine->number, v->number);
            compared++;
        }
    CHECK_MSG(compared > 50, "%lld metrics compared", (long long)compared);
    ares_arena_fini(&arena);
}

static void beside_the_cpu(const char *words, double tolerance)
{
    char card[2000];
    snprintf(card, sizeof card, "trainer.device=cuda %s", words);
    if (!trains("cpu", words) || !trains("card", card)) return;
    same_responses();
    near_metrics(tolerance);
}

TEST_GPU(grpo_trains_on_a_card_as_on_the_cpu)
{
    beside_the_cpu("", 1e-5);
}

TEST_GPU(ppo_with_a_critic_trains_on_a_card_as_on_the_cpu)
{
    beside_the_cpu(
        "algorithm.adv_estimator=gae worker.critic.optim.lr=1e-3 "
        "worker.critic.optim.weight_decay=0 algorithm.disable_kl=false algorithm.use_kl_loss=true "
        "worker.actor.entropy_coeff=0.01 ",
        1e-5);
}
