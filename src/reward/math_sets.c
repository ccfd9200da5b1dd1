/*
 * Verifiers that score as published code does for its data sets: deepscaler and math, gsm8k,
 * math_hendrycks, math_verify, dapo. Their rules of comparison are in math/.
 */
#include "math/math.h"
#include "verifier.h"

#include <string.h>

/*
 * Appends "extracted" (cut at MATH_MAX_BYTES, beyond which nothing is an answer) and "decided_by".
 */
static void answer_details(ares_verify_out *out, ares_view extracted, const char *decided_by)
{
    while (extracted.len > MATH_MAX_BYTES) {
        extracted.len = MATH_MAX_BYTES;
        /* back to where a character begins */
        while (extracted.len && ((unsigned char)extracted.data[extracted.len] & 0xc0) == 0x80)
            extracted.len--;
    }
    grade_detail(out, "extracted", extracted);
    grade_detail(out, "decided_by", ares_view_of(decided_by));
}

/* Fails when the row has no ground truth at all; an empty one makes every answer wrong. */
static int need_truth(const ares_verify_in *in, const char *who)
{
    if (in->ground_truth.data) return ARES_OK;
    return ares_fail(ARES_EFORMAT, "reward: %s: the row has no ground truth", who);
}

/*
 * slime's deepscaler judge: the last \boxed{} of the response, or of the text after its </think>,
 * against the ground truth, whose own box counts when it has one
 * (docs/rewards.md#the-deepscaler-judge). `math` is the same without </think>.
 */

#define MODE_DOC                                                                                \
    "target: exact by our rules; reference: with the defects of the original code, to compare " \
    "scores with it"
#define DEEPSCALER_OPTIONS(X)                                       \
    X(choice, mode, "mode", "target", "target|reference", MODE_DOC) \
    X(flag, require_think, "require_think", "true", "",             \
      "judge only the text after </think> (or ###Response); without one of them the score is 0")
ARES_OPTION_STRUCT(deepscaler_options, DEEPSCALER_OPTIONS);
static ARES_OPTION_TABLE(deepscaler_table, deepscaler_options, DEEPSCALER_OPTIONS);

#define MATH_OPTIONS(X)                                                                     \
    X(choice, mode, "mode", "target", "target|reference", MODE_DOC)                         \
    X(flag, any_of, "any_of", "false", "",                                                  \
      "a ground truth that is a list of texts has several answers, of which one is enough " \
      "(RLinf)")
ARES_OPTION_STRUCT(math_options, MATH_OPTIONS);
static ARES_OPTION_TABLE(math_table, math_options, MATH_OPTIONS);

/* Judges the last box of the text. text.data NULL: the response has no text to judge. */
static int judge(const char *mode, ares_view text, ares_view truth, ares_verify_out *out)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    const char *by = "no";
    ares_view answer = text.data ? verifier_last_boxed(text, BOX_BRACE_NEEDED) : text;
    if (ares_view_find(truth, ARES_VIEW("\\boxed"), 0) >= 0)
        truth = verifier_last_boxed(truth, BOX_BRACE_NEEDED);
    bool reference = mode && strcmp(mode, "reference") == 0;
    bool same =
        answer.data && truth.len &&
        math_equal(answer, truth, reference ? MATH_REFERENCE : MATH_TARGET, &budget, &arena, &by);
    out->score = out->accuracy = same;
    out->no_answer = !answer.data;
    out->exhausted = budget.exhausted;
    answer_details(out, answer, by);
    ares_arena_fini(&arena);
    return ARES_OK;
}

static int deepscaler(const ares_verify_in *in, ares_verify_out *out)
{
    const deepscaler_options *o = in->options;
    bool behind = !o || o->require_think;
    ARES_TRY(need_truth(in, "deepscaler"));
    return judge(o ? o->mode : NULL, behind ? math_after_think(in->response) : in->response,
                 in->ground_truth, out);
}

static bool several_answers(const void *options)
{
    const math_options *o = options;
    return o->any_of;
}

/* With any_of, a list of texts: the first answer that is the response's. */
static int math(const ares_verify_in *in, ares_verify_out *out)
{
    const math_options *o = in->options;
    const char *mode = o ? o->mode : NULL;
    ARES_TRY(need_truth(in, "math"));
    if (!in->structured) return judge(mode, in->response, in->ground_truth, out);
    ares_arena arena = { 0 };
    const ares_json *list;
    int rc = ares_json_parse(&arena, in->ground_truth, "math: the ground truth", &list);
    bool texts = rc == ARES_OK && list->type == ARES_JSON_ARRAY && list->count > 0;
    for (int64_t i = 0; texts && i < list->count; i++)
        texts = list->items[i].type == ARES_JSON_STRING;
    if (rc == ARES_OK && !texts)
        rc = ares_fail(ARES_EFORMAT,
                       "reward: math: the ground truth %.*s is no list of texts, one of which is "
                       "the answer",
                       (int)ARES_MIN(in->ground_truth.len, 60), in->ground_truth.data);
    for (int64_t i = 0; rc == ARES_OK && i < list->count && out->score == 0; i++) {
        ares_str_clear(&out->details);
        rc = judge(mode, in->response, list->items[i].text, out);
    }
    ares_arena_fini(&arena);
    return rc;
}

const ares_verifier ares_verifier_deepscaler = {
    .name = "deepscaler",
    .doc = "the last \\boxed{} after </think> is the ground truth, as mathematics (slime)",
    .options = deepscaler_table,
    .options_size = sizeof(deepscaler_options),
    .verify = deepscaler,
    .right = 1,
};
const ares_verifier ares_verifier_math = {
    .name = "math",
    .doc = "the last \\boxed{} is the ground truth, as mathematics",
    .options = math_table,
    .options_size = sizeof(math_options),
    .verify = math,
    .several = several_answers,
    .right = 1,
};

/*
 * GSM8K as verl scores it: the number after the last "#### " of the last 300 characters (or the
 * last number there) equals the label character by character
 * (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */

#define GSM8K_OPTIONS(X)                                                                      \
    X(choice, method, "method", "strict", "strict|flexible",                                  \
      "strict: the number after \"#### \", without commas; flexible: the last number, as it " \
      "stands")
ARES_OPTION_STRUCT(gsm8k_options, GSM8K_OPTIONS);
static ARES_OPTION_TABLE(gsm8k_table, gsm8k_options, GSM8K_OPTIONS);

/* strict: the answer without its commas; flexible: as it stands. */
static int gsm8k(const ares_verify_in *in, ares_verify_out *out)
{
    const gsm8k_options *o = in->options;
    ARES_TRY(need_truth(in, "gsm8k"));
    ares_arena arena = { 0 };
    bool flexible = o && o->method && strcmp(o->method, "flexible") == 0;
    ares_view truth = in->ground_truth, answer = flexible ? math_gsm8k_flexible(in->response)
                                                          : math_gsm8k_strict(in->response, &arena);
    /* the answer as it stands in the data set, solution included */
    if (ares_view_find(truth, ARES_VIEW("#### "), 0) >= 0) {
        ares_view label = math_gsm8k_strict(truth, &arena);
        if (label.data) truth = label;
    }
    bool same = answer.data && ares_view_eq(answer, truth);
    out->score = out->accuracy = same;
    out->no_answer = !answer.data;
    answer_details(out, answer, same ? "text" : "no");
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_gsm8k = {
    .name = "gsm8k",
    .doc = "the number after \"#### \" is the ground truth (verl)",
    .options = gsm8k_table,
    .options_size = sizeof(gsm8k_options),
    .verify = gsm8k,
    .right = 1,
};

/*
 * The MATH data set as verl scores it: the last box and the ground truth are the same text after
 * the data set's own normalisation (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */

/* A text above MATH_MAX_BYTES is no answer and counts as exhausted. */
static int math_hendrycks(const ares_verify_in *in, ares_verify_out *out)
{
    ARES_TRY(need_truth(in, "math_hendrycks"));
    ares_arena arena = { 0 };
    ares_view answer;
    /* as verl reads it, the text after the last "\boxed " up to a "$" comes before any box */
    int64_t spaced = edit_find_last(in->response, "\\boxed ");
    if (spaced < 0) answer = verifier_last_boxed(in->response, BOX_BRACE_NEEDED);
    else {
        answer = edit_from(in->response, (size_t)spaced + 7);
        const char *dollar = answer.len ? memchr(answer.data, '$', answer.len) : NULL;
        if (dollar) answer.len = (size_t)(dollar - answer.data);
    }
    bool fits = answer.len <= MATH_MAX_BYTES && in->ground_truth.len <= MATH_MAX_BYTES;
    bool same = answer.data && fits && math_same_hendrycks(answer, in->ground_truth, &arena);
    out->score = out->accuracy = same;
    out->no_answer = !answer.data;
    out->exhausted = !fits;
    answer_details(out, answer, same ? "text" : "no");
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_math_hendrycks = {
    .name = "math_hendrycks",
    .doc = "the last \\boxed{} is the ground truth in the MATH data set's normal form (verl)",
    .verify = math_hendrycks,
    .right = 1,
};

/*
 * Math-Verify's judgement: sets in any order, unsimplified values, percentages, intervals
 * (docs/rewards.md#math-verify).
 */

static int math_verify_entry(const ares_verify_in *in, ares_verify_out *out)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    ares_view extracted;
    const char *by;
    ARES_TRY(need_truth(in, "math_verify"));
    bool same = claim_verify(in->ground_truth, in->response, &budget, &arena, &extracted, &by);
    out->score = out->accuracy = same;
    out->no_answer = !extracted.data;
    out->exhausted = budget.exhausted;
    answer_details(out, extracted, by);
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_math_verify = {
    .name = "math_verify",
    .doc = "the answer is the ground truth by Math-Verify's rules (boxes first, then LaTeX, then "
           "numbers)",
    .verify = math_verify_entry,
    .right = 1,
};

/*
 * DAPO's scorer of AIME answers: the text after the last "Answer:" of the last 300 characters,
 * normalised, equals the ground truth character by character; with strict_box, the last box of the
 * last 100 characters does, as it is. The score is 1 or -1
 * (docs/rewards.md#dapo-gsm8k-and-the-math-data-set).
 */

#define DAPO_OPTIONS(X)                                                             \
    X(flag, integer_labels, "integer_labels", "false", "",                          \
      "compare integers by value: leading zeros and a final .0 make no difference") \
    X(flag, strict_box, "strict_box", "false", "",                                  \
      "judge the last \\boxed{} of the last 100 characters, as it is, in place of Answer:")
ARES_OPTION_STRUCT(dapo_options, DAPO_OPTIONS);
static ARES_OPTION_TABLE(dapo_table, dapo_options, DAPO_OPTIONS);

/* An integer with an optional ".0": *digits has no leading zeros, and zero has no sign. */
static bool read_integer(ares_view t, bool *negative, ares_view *digits)
{
    size_t i = t.len && (t.data[0] == '-' || t.data[0] == '+'), from, end;
    *negative = i && t.data[0] == '-';
    for (from = i; i < t.len && ares_is_digit(t.data[i]);) i++;
    end = i;
    if (i < t.len && t.data[i] == '.')
        for (i++; i < t.len && t.data[i] == '0';) i++;
    if (end == from || i != t.len) return false;
    while (from < end && t.data[from] == '0') from++;
    *digits = (ares_view){ t.data + from, end - from };
    *negative &= end > from;
    return true;
}

/* In the details, acc and pred are as in the original; extracted is the text as it stands. */
static int dapo(const ares_verify_in *in, ares_verify_out *out)
{
    const dapo_options *o = in->options;
    bool box = o && o->strict_box, fits = in->ground_truth.len <= MATH_MAX_BYTES, same;
    ARES_TRY(need_truth(in, "dapo"));
    ares_arena arena = { 0 };
    ares_view answer = box ? verifier_last_boxed(edit_tail(in->response, 100), 0)
                           : math_dapo_answer(in->response),
              pred = answer, truth = in->ground_truth;
    if (!box) {
        pred = answer.data ? math_dapo_normal(answer, &arena) : ARES_VIEW("[INVALID]");
        truth = fits ? math_dapo_normal(truth, &arena) : (ares_view){ NULL, 0 };
    }
    same = fits && pred.data && ares_view_eq(pred, truth);
    if (fits && pred.data && o && o->integer_labels && !same) {
        bool negative[2];
        ares_view digits[2];
        same = read_integer(pred, &negative[0], &digits[0]) &&
               read_integer(truth, &negative[1], &digits[1]) && negative[0] == negative[1] &&
               ares_view_eq(digits[0], digits[1]);
    }
    out->score = same ? 1 : -1;
    out->accuracy = same;
    out->no_answer = !answer.data;
    out->exhausted = !fits;
    grade_add_value(out, "reward/accuracy_normalized", easyr1_normalized(out->score));
    ares_json_write_bool(ares_json_key(&out->details, "acc"), same);
    grade_detail(out, "pred", pred);
    answer_details(out, answer, same ? "text" : "no");
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
