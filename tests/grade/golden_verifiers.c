/* Format, F1, multiple choice, penalties of length, the published reward functions, dispatch. */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../../src/reward/verifier.h"

/* The score of a verifier with its defaults and these overrides. */
static double score(golden *g, const char *name, const ares_verify_in *in, const char *const *words)
{
    ares_judge *j;
    void *options;
    ares_config *cfg = ares_config_new();
    ares_verify_out out = { .accuracy = NAN };
    if (!golden_ok(g, ares_judge_new(name, &j))) return NAN;
    ares_option_table *table = ares_judge_options(j, &options);
    if (table) ares_config_add_options(cfg, "", table, options);
    for (; words && *words; words++) ares_config_override(cfg, *words);
    ares_config_resolve(cfg);
    ares_judge_check(j, cfg, "");
    golden_ok(g, ares_config_finish(cfg));
    golden_ok(g, ares_judge_run(j, in, &out));
    ares_str_fini(&out.details);
    ares_judge_free(j);
    ares_config_free(cfg);
    return out.score;
}

static void check_text(golden *g, const char *verifier)
{
    ares_verify_in in = { .response = golden_string(g, "text"), .stopped = true };
    golden_near(g, "score", score(g, verifier, &in, NULL), g->expected);
}

GOLDEN(math_equal, format_think)
{
    check_text(g, "format_think");
}
GOLDEN(math_equal, format_think_boxed)
{
    check_text(g, "format_think_boxed");
}

GOLDEN(math_equal, reward_f1)
{
    ares_verify_in in = { .response = golden_string(g, "prediction"),
                          .ground_truth = golden_string(g, "truth") };
    golden_near(g, "score", score(g, "f1", &in, NULL), g->expected);
}

GOLDEN(math_equal, reward_gpqa)
{
    const ares_json *label = golden_in(g, "label"), *metadata = golden_in(g, "metadata");
    ares_json_member member = { ARES_VIEW("metadata"), metadata };
    ares_json row = { .type = ARES_JSON_OBJECT, .count = 1, .members = &member };
    ares_verify_in in = { .response = golden_string(g, "response"),
                          .ground_truth = label->text,
                          .row = &row };
    golden_near(g, "score", score(g, "gpqa", &in, NULL), g->expected);
}

/* ---------------------------------------------------------------- length */
/* "name=<the input>" of a case. */
static const char *word(golden *g, const char *option, const char *input)
{
    return ares_arena_printf(g->arena, "%s=%.17g", option, golden_number(g, input));
}

GOLDEN(dapo, length_reward)
{
    ares_verify_in in = { .response_tokens = (int64_t)golden_number(g, "length") };
    const char *words[] = { word(g, "safe_length", "safe_length"),
                            word(g, "max_length", "max_length"), "len_reward_penalty=1", NULL };
    golden_near(g, "score", score(g, "length", &in, words), g->expected);
}

GOLDEN(dapo, shaped_reward)
{
    ares_verify_in in = { .response_tokens = (int64_t)golden_number(g, "length") };
    const char *words[] = { word(g, "safe_length", "safe_length"),
                            word(g, "max_length", "max_length"),
                            word(g, "len_reward_penalty", "len_reward_penalty"), NULL };
    golden_near(g, "score", golden_number(g, "base_reward") + score(g, "length", &in, words),
                g->expected);
}

GOLDEN(dapo, soft_overlong_punishment)
{
    ares_verify_in in = { .response_tokens = (int64_t)golden_number(g, "length") };
    const char *words[] = { word(g, "max_response_length", "max_resp_len"),
                            word(g, "overlong_buffer_length", "buffer_len"), NULL };
    golden_near(g, "score", score(g, "overlong", &in, words), g->expected);
}

GOLDEN(dapo, overlong_buffer_penalty)
{
    ares_verify_in in = { .response_tokens = (int64_t)golden_number(g, "length") };
    const char *words[] = { word(g, "max_response_length", "max_resp_len"),
                            word(g, "overlong_buffer_length", "buffer_len"),
                            word(g, "overlong_penalty_factor", "penalty_factor"), "clamp=false",
                            NULL };
    golden_near(g, "score", score(g, "overlong", &in, words), g->expected);
}

GOLDEN(dapo, forms_agree)
{
    ares_verify_in in = { .response_tokens = (int64_t)golden_number(g, "length") };
    const char *buffer =
        ares_arena_printf(g->arena, "overlong_buffer_length=%.17g",
                          golden_number(g, "max_length") - golden_number(g, "safe_length"));
    const char *length[] = { word(g, "safe_length", "safe_length"),
                             word(g, "max_length", "max_length"),
                             word(g, "len_reward_penalty", "len_reward_penalty"), NULL };
    const char *overlong[] = { word(g, "max_response_length", "max_length"), buffer,
                               word(g, "overlong_penalty_factor", "len_reward_penalty"), NULL };
    golden_near(g, "length_form", score(g, "length", &in, length), golden_want(g, "length_form"));
    golden_near(g, "buffer_form", score(g, "overlong", &in, overlong),
                golden_want(g, "buffer_form"));
}

GOLDEN(aepo, soft_overlong)
{
    double penalty = length_overlong((int64_t)golden_number(g, "response_length"),
                                     (int64_t)golden_number(g, "max_response_length"),
                                     (int64_t)golden_number(g, "overlong_buffer_length"));
    golden_near(g, "score", penalty, g->expected);
}

/* ---------------------------------------------------------------- published reward functions */
GOLDEN(aepo, math_overall)
{
    golden_near(g, "overall",
                easyr1_math(golden_number(g, "accuracy"), golden_number(g, "format"),
                            golden_number(g, "format_weight")),
                g->expected);
}

GOLDEN(aepo, dapo_overall)
{
    double accuracy = golden_number(g, "accuracy");
    golden_near(g, "overall",
                easyr1_dapo(accuracy, golden_number(g, "overlong"), golden_number(g, "factor")),
                golden_want(g, "overall"));
    golden_near(g, "accuracy_normalized", easyr1_normalized(accuracy),
                golden_want(g, "accuracy_normalized"));
}

/* ---------------------------------------------------------------- dispatch */
GOLDEN(curriculum, rm_type_resolve)
{
    static const char
        boxed[] = "boxed_",
        said[] = " (after replacing the response by its last boxed content or the empty string)";
    const ares_json *metadata = golden_in(g, "metadata"), *fallback = golden_in(g, "rm_type");
    ares_json_member member = { ARES_VIEW("metadata"), metadata };
    ares_json row = { .type = ARES_JSON_OBJECT, .count = 1, .members = &member };
    ares_view type = auto_rm_type(
        &row, NULL, fallback->type == ARES_JSON_STRING ? golden_z(g, "rm_type") : NULL);
    if (ares_view_starts(type, ARES_VIEW("boxed_")))
        type = ares_view_of(ares_arena_printf(g->arena, "%.*s%s", (int)(type.len - strlen(boxed)),
                                              type.data + strlen(boxed), said));
    if (g->expected->type == ARES_JSON_STRING) golden_text(g, "verifier", type, g->expected);
    else golden_equal(g, "resolved", type.len > 0, &(ares_json){ .type = ARES_JSON_BOOL });
}
