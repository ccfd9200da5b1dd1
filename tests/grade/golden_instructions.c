/* ifeval_rewards.json: verdicts and scores of instructions; curriculum.json: those of
 * format_verify. */
#include "golden.h"

#include "../../src/reward/ifeval/ifeval.h"

GOLDEN(if_rewards, if_check)
{
    ares_view id = golden_string(g, "instruction_id"), text = golden_string(g, "response");
    const ares_json *kwargs = ifeval_coerce_kwargs(golden_in(g, "kwargs"), 1, g->arena)->items;
    const ares_json *loose = ares_json_get(g->root, "expected_loose");
    ares_arena scratch = { 0 };
    ifeval_budget budget = { .steps = IFEVAL_STEPS };
    golden_equal(g, "strict", ifeval_check(id, kwargs, text, &budget, &scratch), g->expected);
    if (loose)
        golden_equal(g, "loose", ifeval_check_loose(id, kwargs, text, &budget, &scratch), loose);
    ares_arena_fini(&scratch);
}

static void flags(golden *g, const char *key, const bool *got, int64_t n)
{
    const ares_json *want = golden_want(g, key);
    if (want->count != n)
        golden_fail(g, "%s: %lld verdicts, not %lld", key, (long long)n, (long long)want->count);
    for (int64_t i = 0; i < n && i < want->count; i++)
        golden_equal(g, key, got[i], &want->items[i]);
}

GOLDEN(if_rewards, if_reward)
{
    static const char *const modes[] = {
#define NAME(name) #name,
        IFEVAL_MODE_LIST(NAME)
    };
    ifeval_verdict v;
    ifeval_judge(golden_in(g, "instruction_id_list"), golden_in(g, "kwargs"),
                 golden_string(g, "response"), g->arena, &v);
    flags(g, "strict_list", v.strict, v.n);
    flags(g, "loose_list", v.loose, v.n);
    for (int i = 0; i < IFEVAL_MODE_COUNT; i++)
        golden_near(g, modes[i], ifeval_score(&v, (ifeval_mode)i), golden_want(g, modes[i]));
}

GOLDEN(if_rewards, ifbench_coerce_kwargs)
{
    ares_str got = { 0 }, want = { 0 };
    ares_json_write(&got, ifeval_coerce_kwargs(golden_in(g, "kwargs"),
                                               (int64_t)golden_number(g, "n"), g->arena));
    ares_json_write(&want, g->expected);
    const ares_json text = { .type = ARES_JSON_STRING, .text = ares_str_view(&want) };
    golden_text(g, "kwargs", ares_str_view(&got), &text);
    ares_str_fini(&got);
    ares_str_fini(&want);
}

GOLDEN(curriculum, format_verify_fraction)
{
    golden_near(
        g, "score",
        ifeval_fraction((int64_t)golden_number(g, "satisfied"), (int64_t)golden_number(g, "total")),
        g->expected);
}

GOLDEN(curriculum, strip_think)
{
    golden_text(g, "text", ifeval_strip_think(golden_string(g, "text")), g->expected);
}
