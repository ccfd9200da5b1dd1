/*
 * DAPO from answers to advantages: lengths, shaped rewards, discarded answers, informative groups,
 * normalised advantages (docs/dapo.md).
 */
#include "golden.h"

#include <math.h>

#include "../../src/algo/filter/filter.h"
#include "ares/algo.h"
#include "ares/algo_filter.h"
#include "ares/reward.h"

GOLDEN(dapo, over_max_length)
{
    ares_filter_config cfg = { .over_length_action = golden_z(g, "action") };
    golden_equal(g, "discarded",
                 ares_answer_discarded(&cfg, (int64_t)golden_number(g, "length"),
                                       (int64_t)golden_number(g, "max_length"), true),
                 golden_want(g, "discarded"));
}

static double option(golden *g, const char *key, double absent)
{
    const ares_json *v = ares_json_get(golden_in(g, "config"), key);
    return v ? golden_value(v) : absent;
}

/* The verifier `length` with the case's options. */
static ares_judge *open_length(golden *g, ares_config *cfg)
{
    static const char *const keys[] = { "safe_length", "max_length", "len_reward_penalty" };
    static const double defaults[] = { 16384, 20480, 0.1 };
    ares_judge *j;
    void *options;
    if (!golden_ok(g, ares_judge_new("length", &j))) return NULL;
    ares_option_table *table = ares_judge_options(j, &options);
    ares_config_add_options(cfg, "", table, options);
    for (int i = 0; i < ARES_COUNT(keys); i++)
        ares_config_override(
            cfg, ares_arena_printf(g->arena, "%s=%.17g", keys[i], option(g, keys[i], defaults[i])));
    ares_config_resolve(cfg);
    golden_ok(g, ares_config_finish(cfg));
    return j;
}

static double penalty(golden *g, const ares_judge *j, int64_t length)
{
    ares_verify_out out = { .accuracy = NAN };
    golden_ok(g, ares_judge_run(j, &(ares_verify_in){ .response_tokens = length }, &out));
    ares_str_fini(&out.details);
    return out.score;
}

typedef struct chain {
    ares_batch b;
    double *rewards, *correct; /* [rows] */
    uint8_t *valid;            /* [rows] */
    bool *informative;         /* [groups] */
} chain;

/*
 * Groups as the trainer fills a batch with them: rows that are discarded or not informative have
 * mask 0.
 */
static void fill(golden *g, chain *c, const ares_judge *j)
{
    const ares_json *groups = golden_in(g, "groups");
    const ares_json *said = ares_json_get(golden_in(g, "config"), "over_length_action");
    const char *action = said ? said->text.data : "mask";
    ares_filter_config cfg = { .over_length_action = action };
    int64_t n, rows = 0;
    ares_batch_init(&c->b);
    for (int64_t i = 0; i < groups->count; i++)
        rows += ares_json_get(&groups->items[i], "correct")->count;
    c->rewards = ares_arena_alloc(g->arena, (size_t)(rows + 1) * sizeof *c->rewards);
    c->correct = ares_arena_alloc(g->arena, (size_t)(rows + 1) * sizeof *c->correct);
    c->valid = ares_arena_alloc(g->arena, (size_t)rows + 1);
    c->informative = ares_arena_alloc(g->arena, (size_t)groups->count + 1);
    for (int64_t i = 0; i < groups->count; i++) {
        const double *correct = golden_flat(g, ares_json_get(&groups->items[i], "correct"), &n),
                     *length = golden_flat(g, ares_json_get(&groups->items[i], "lengths"), &n);
        int64_t first = c->b.rows;
        ares_batch_begin_group(&c->b);
        for (int64_t k = 0; k < n; k++) {
            int64_t tokens = (int64_t)length[k], r = c->b.rows;
            ares_batch_add_row(&c->b, &(ares_sample){ .draw = i, .index = (int32_t)k }, tokens);
            c->correct[r] = correct[k];
            c->rewards[r] = (correct[k] > 0.5 ? 1 : -1) + penalty(g, j, tokens);
            c->valid[r] =
                !ares_answer_discarded(&cfg, tokens, (int64_t)option(g, "max_length", 20480), true);
        }
        c->informative[i] = group_informative(c->correct + first, c->valid + first, n);
    }
    ARES_PUT(&c->b, response_mask);
    ARES_PUT(&c->b, token_level_rewards);
    for (int64_t i = 0; i < c->b.groups; i++)
        for (int64_t r = c->b.group_start[i]; r < c->b.group_start[i + 1]; r++) {
            c->b.token_level_rewards[c->b.row_start[r + 1] - 1] = (float)c->rewards[r];
            for (int64_t t = c->b.row_start[r]; t < c->b.row_start[r + 1]; t++)
                c->b.response_mask[t] = c->informative[i] && c->valid[r];
        }
}

/* The advantages of a group's rows, by their first tokens. */
static void check_group(golden *g, const chain *c, int64_t group, const char *key,
                        const ares_json *want)
{
    int64_t first = c->b.group_start[group], n = c->b.group_start[group + 1] - first;
    double *got = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *got);
    for (int64_t i = 0; i < n; i++) got[i] = (double)c->b.advantages[c->b.row_start[first + i]];
    if (ares_json_get(want, key)) golden_numbers(g, key, got, n, ares_json_get(want, key));
}

static void check_chain(golden *g, const ares_judge *j, bool normalize)
{
    const ares_json *groups = golden_want(g, "groups");
    ares_algorithm_config cfg = {
        .norm_adv_by_std_in_grpo = true, .gamma = 1, .lam = 1, .normalize_advantages = normalize
    };
    chain c;
    int64_t tokens = 0;
    fill(g, &c, j);
    golden_ok(g, ares_adv_find("grpo")->compute(&cfg, NULL, &c.b));
    for (int64_t t = 0; t < c.b.tokens; t++) tokens += c.b.response_mask[t];
    golden_equal(g, "valid_tokens", tokens, golden_want(g, "valid_tokens"));
    for (int64_t i = 0; i < groups->count; i++) {
        const ares_json *want = &groups->items[i];
        int64_t first = c.b.group_start[i], n = c.b.group_start[i + 1] - first;
        double *valid = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *valid);
        for (int64_t k = 0; k < n; k++) valid[k] = c.valid[first + k];
        golden_numbers(g, "rewards", c.rewards + first, n, ares_json_get(want, "rewards"));
        golden_numbers(g, "valid", valid, n, ares_json_get(want, "valid"));
        golden_equal(g, "informative", c.informative[i], ares_json_get(want, "informative"));
        check_group(g, &c, i, normalize ? "normalized_advantages" : "advantages", want);
    }
    ares_batch_fini(&c.b);
}

GOLDEN(dapo, dapo_rewards_to_advantages)
{
    ares_config *cfg = ares_config_new();
    ares_judge *j = open_length(g, cfg);
    golden_in_single(g);
    if (j) {
        check_chain(g, j, false);
        if (option(g, "normalize_advantages", 1) != 0) check_chain(g, j, true);
    }
    ares_judge_free(j);
    ares_config_free(cfg);
}
