/*
 * Private to reward: what verifiers share, and the list of them. Verifiers see one response, no
 * batch.
 */
#ifndef ARES_REWARD_VERIFIER_H
#define ARES_REWARD_VERIFIER_H

#include "ares/core.h"
#include "ares/grade.h"

/* A verifier with its options, and the prefix "boxed_". */
struct ares_judge {
    const ares_verifier *verifier;
    void *options; /* the verifier's own */
    bool boxed;
    char *name;
    char *unusable;        /* why it cannot judge: an option without a default is missing */
    ares_config *defaults; /* owns the texts of options that took their defaults */
};

/* Whether the judge gives an accuracy, to some rows at least. */
bool judge_judges(const ares_judge *j);
bool judge_reads_truth(const ares_judge *j); /* a row without a ground truth is of no use */

/* How a row names its verifier. */

/*
 * The name that a row is judged by: metadata.rm_type or rm_type, trimmed; else what `sources` (a
 * map, may be NULL) says of its data_source; else fallback (may be NULL); else the verifier known
 * for that data_source, or the data_source itself. Empty when there is none of them
 * (docs/rewards.md#several-kinds-of-rows-in-one-run).
 */
ares_view auto_rm_type(const ares_json *row, const ares_json *sources, const char *fallback);

/*
 * Regular expressions (PCRE2, UTF-8, `.` matches newlines too) with a bounded amount of matching
 * work.
 */

/* who: the verifier, for the message */
int bounded_regex_check(const char *who, const char *pattern);
/*
 * 1: matches; 0: does not; -1: the work limit was reached. whole: the expression must match the
 * whole text, else some part of it. The expression has passed bounded_regex_check.
 */
int bounded_regex_match(const char *pattern, bool whole, ares_view text);

/*
 * What verifiers share: the members they write into a result's details, their own metrics, and the
 * inputs without which they cannot judge.
 */

/* Appends a string member to out->details; null where data is NULL. */
void grade_detail(ares_verify_out *out, const char *key, ares_view value);
/*
 * Adds a value to a metric: `name` ("reward/format", "if/keywords/rate") becomes the mean of the
 * values that all responses of a step have added.
 */
void grade_add_value(ares_verify_out *out, const char *name, double value);
/* Fails when the number of the response's tokens is not known. */
int grade_need_length(const ares_verify_in *in, const char *verifier);

/*
 * What the reward functions published with EasyR1 and its fork ARES compute
 * (examples/reward_function/{math,dapo,r1v}.py there; docs/rewards.md#published-reward-functions).
 */

/* (1 - format_weight) x accuracy + format_weight x format */
double easyr1_math(double accuracy, double format, double format_weight);
/* accuracy: 1 or -1; overlong: a length_overlong */
double easyr1_dapo(double accuracy, double overlong, double overlong_penalty_factor);
double easyr1_normalized(double accuracy); /* 1 or -1 -> 1 or 0 */
/*
 * Removes all white space directly before and after each '<', '>' and '/'
 * (docs/rewards.md#cleaning-and-format).
 */
void easyr1_clean(ares_view response, ares_str *out);
/* <think> .. </think> .. \boxed{ .. } .. from the first character on: 1 or 0 */
double easyr1_think_boxed(ares_view response);
/* <think> .. </think> <answer> .. </answer> and nothing else: 1 or 0 */
double easyr1_r1v_format(ares_view response);
/*
 * The trimmed content of the last \boxed{}; "None" when there is none or it never closes, as the
 * original says (docs/rewards.md#mathruler).
 */
ares_view easyr1_boxed(ares_view response);

/*
 * Content of the last \boxed{...}, untrimmed, up to the brace that closes it, where escaped braces
 * count like others. data NULL: there is none, or the last one never closes, even if an earlier one
 * does. Of a box in a box the inner one counts (docs/rewards.md#mathruler).
 */
enum {
    BOX_LOOSE = 1,       /* \fbox{} is a box, too, and blanks may stand before the brace */
    BOX_BRACE_NEEDED = 2 /* a last \boxed without a brace means that there is no answer */
};
ares_view verifier_last_boxed(ares_view text, int flags);

/* What opens judges: the reward manager, `auto`, and the table of verifiers. */

/* Gives all options their defaults. Without a default for one of them, ares_judge_run fails. */
void judge_use_defaults(ares_judge *j);
/*
 * Whether it penalises length; *limit: the tokens beyond which a response is too long; *penalty:
 * the full penalty, 0 or more.
 */
bool judge_limit(const ares_judge *j, int64_t *limit, double *penalty);
/* A judge of v, plain or of the content of the last \boxed{}. ares_judge_free. */
ares_judge *judge_of(const ares_verifier *v, bool boxed);

/* Penalties of length, in [-1, 0] (docs/dapo.md#penalty-of-length). */

/* 0 up to safe_length, then falling evenly to -1 at max_length and beyond. */
double length_reward(int64_t length, int64_t safe_length, int64_t max_length);
/*
 * The same, with the length of the ramp in place of safe_length: EasyR1's soft overlong punishment.
 */
double length_overlong(int64_t length, int64_t max_response_length, int64_t buffer_length);

/* All verifiers but `auto`, which opens these. To add one: a file in this folder, a word here. */

/* clang-format off */
#define VERIFY_LIST(X) \
    X(exact) X(number) X(boxed) X(math) X(deepscaler) X(dapo) X(gsm8k) X(math_hendrycks) \
    X(math_verify) X(format) X(regex) X(json) X(format_think) X(format_think_boxed) X(gpqa) \
    X(multiple_choice) X(f1) X(ifbench) X(ifeval) X(format_verify) X(math_format) X(aepo) X(r1v) \
    X(dapo_overlong) X(length) X(overlong) X(repetition) X(random) X(none)
/* clang-format on */

#define VERIFY_DECLARE(name) extern const ares_verifier ares_verifier_##name;
#define VERIFY_ENTRY(name) &ares_verifier_##name,
VERIFY_LIST(VERIFY_DECLARE)
#endif
