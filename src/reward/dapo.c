/*
 * DAPO's scorer of AIME answers: the text after the last "Answer:" of the last 300 characters,
 * normalised, equals the ground truth character by character; with strict_box, the last box of the
 * last 100 characters does, as it is. The score is 1 or -1
 * (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */
#include "details.h"
#include "easyr1.h"
#include "math/answers.h"

#define DAPO_OPTIONS(X)                                                             \
    X(flag, integer_labels, "integer_labels", "false", "",                          \
      "compare integers by value: leading zeros and a final .0 make no difference") \
    X(flag, strict_box, "strict_box", "false", "",                                  \
      "judge the last \\boxed{} of the last 100 characters, as it is, in place of Answer:")
ARES_OPTION_STRUCT(dapo_options, DAPO_OPTIONS);
static ARES_OPTION_TABLE(dapo_table, dapo_options, DAPO_OPTIONS);

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* An integer with an optional ".0": *digits has no leading zeros, and zero has no sign. */
static bool read_integer(ares_view t, bool *negative, ares_view *digits)
{
    size_t i = t.len && (t.data[0] == '-' || t.data[0] == '+'), from, end;
    *negative = i && t.data[0] == '-';
    for (from = i; i < t.len && digit(t.data[i]);) i++;
    end = i;
    if (i < t.len && t.data[i] == '.')
        for (i++; i < t.len && t.data[i] == '0';) i++;
    if (end == from || i != t.len) return false;
    while (from < end && t.data[from] == '0') from++;
    *digits = (ares_view){ t.data + from, end - from };
    *negative &= end > from;
    return true;
}

static bool same_integer(ares_view a, ares_view b)
{
    bool negative_a, negative_b;
    ares_view x, y;
    return read_integer(a, &negative_a, &x) && read_integer(b, &negative_b, &y) &&
           negative_a == negative_b && ares_view_eq(x, y);
}

static int dapo(const ares_verify_in *in, ares_verify_out *out)
{
    const dapo_options *o = in->options;
    bool box = o && o->strict_box, fits = in->ground_truth.len <= MATH_MAX_BYTES, same;
    ARES_TRY(grade_need_truth(in, "dapo"));
    ares_arena arena = { 0 };
    ares_view answer = box ? math_last_boxed_strict(in->response) : math_dapo_answer(in->response),
              pred = answer, truth = in->ground_truth;
    if (!box) {
        pred = answer.data ? math_dapo_normal(answer, &arena) : ARES_VIEW("[INVALID]");
        truth = fits ? math_dapo_normal(truth, &arena) : (ares_view){ NULL, 0 };
    }
    same = fits && pred.data &&
           (ares_view_eq(pred, truth) || (o && o->integer_labels && same_integer(pred, truth)));
    out->score = same ? 1 : -1;
    out->accuracy = same;
    out->no_answer = !answer.data;
    out->exhausted = !fits;
    grade_add_value(out, "reward/accuracy_normalized", easyr1_normalized(out->score));
    ares_json_write_bool(ares_json_key(&out->details, "acc"), same);
    grade_detail(out, "pred", pred);
    grade_answer_details(out, answer, same ? "text" : "no");
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_dapo = {
    .name = "dapo",
    .doc = "the text after the last \"Answer:\" is the ground truth: 1 or -1",
    .options = dapo_table,
    .options_size = sizeof(dapo_options),
    .verify = dapo,
    .right = 1,
    .wrong = -1,
};
