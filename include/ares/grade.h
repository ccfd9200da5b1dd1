/*
 * grade: text -> score. Verifiers judge one response by its ground truth and see no batch.
 */
#ifndef ARES_GRADE_H
#define ARES_GRADE_H

#include "ares/config.h"
#include "ares/core.h"

/* ---------------- verifiers: response and ground truth -> a score and details
 * Pure and bounded by counted work, so that a score depends on the texts alone; called from several
 * threads.
 */
typedef struct ares_verify_in {
    ares_view response, ground_truth, prompt;
    bool stopped;            /* false: cut by length */
    const int32_t *ids;      /* [response_tokens] of the response, or NULL */
    int64_t response_tokens; /* end-of-sequence token included; -1: not known */
    const ares_json *row;    /* the data row, or the line given to `grade`; may be NULL */
    const void *options;     /* of this entry, as opened */
} ares_verify_in;
typedef struct ares_verify_value {
    char name[48];
    double sum, count;
} ares_verify_value;
typedef struct ares_verify_out {
    double score;    /* usually 0 or 1 */
    double accuracy; /* NaN: this verifier says nothing about correctness */
    double plain;    /* the score without its penalty of length; NaN: it has none */
    /* members of a JSON object behind "score": `"extracted":"42"`; may stay empty */
    ares_str details;
    /* nothing was found that could be an answer: counts in reward/extract_fail_rate */
    bool no_answer;
    /* the work budget ended before a verdict: counts in reward/exhausted */
    bool exhausted;
    const char *judged_by; /* of a dispatcher: the verifier it chose, as metrics call it */
    int n_values;
    /* parts with a metric of their own, through ares_verify_add_value */
    ares_verify_value values[16];
} ares_verify_out;
/*
 * A part of the result: metric `name` ("reward/format", "if/keywords/rate") becomes sum / count
 * over all responses of a step.
 */
void ares_verify_add_value(ares_verify_out *out, const char *name, double sum, double count);
typedef struct ares_verifier {
    const char *name, *doc;
    ares_option_table *options; /* of its own, beside name and weight; NULL: none */
    size_t options_size;
    int (*check)(const void *options); /* once, at start; NULL: nothing to check */
    /* fails as ares_judge_run says */
    int (*verify)(const ares_verify_in *in, ares_verify_out *out);
    /* tokens beyond which an answer is too long; NULL: it penalises no length */
    int64_t (*limit)(const void *options);
    /*
     * Of a verifier that opens others: once its options are bound (faults go to cfg, path is that
     * of its options), and at the end; NULL: nothing to do.
     */
    void (*open)(void *options, ares_config *cfg, const char *path);
    void (*close)(void *options);
} ares_verifier;
const ares_verifier *ares_verifier_find(const char *name);
const char *const *ares_verifier_names(int *n);

/* ---------------- judge.c: a verifier with its options
 * name: of the table, or with the prefix "boxed_": the response is then the content of its last
 * \boxed{}, or empty. Fill the options (ares_config_bind, or ares_config_add_options before
 * resolve), then check them once; running changes nothing.
 */
typedef struct ares_judge ares_judge;
int ares_judge_new(const char *name, ares_judge **out);
void ares_judge_free(ares_judge *j);
const char *ares_judge_name(const ares_judge *j);
ares_option_table *ares_judge_options(ares_judge *j, void **into); /* NULL: it has none */
/* path of its options, for faults */
void ares_judge_check(ares_judge *j, ares_config *cfg, const char *path);
/*
 * in->options is ignored. Ground truth that cannot be used is ARES_EFORMAT: the caller scores it by
 * its policy. A row that asks for what is not there (an unknown verifier, instructions that cannot
 * be checked) is ARES_ECONFIG: no response to it has a score, and a run stops when it reads the row
 * (ares_reward_check_rows).
 */
int ares_judge_run(const ares_judge *j, const ares_verify_in *in, ares_verify_out *out);
/* Options that nobody set take their defaults; one that has no default fails every response. */
void ares_judge_use_defaults(ares_judge *j);
/* Whether it penalises length; *limit: the tokens beyond which an answer is too long for it. */
bool ares_judge_limit(const ares_judge *j, int64_t *limit);

/* Options of `length`, which worker.reward.safe_length and its neighbours fill. */
#define ARES_LENGTH_OPTIONS(X)                                                      \
    X(i64, safe_length, "safe_length", "16384", "[0,)", "tokens without a penalty") \
    X(i64, max_length, "max_length", "20480", "[1,)", "tokens of the full penalty") \
    X(f64, len_reward_penalty, "len_reward_penalty", "0.1", "[0,)",                 \
      "the full penalty; 0 switches it off")
ARES_OPTION_STRUCT(ares_length_options, ARES_LENGTH_OPTIONS);
#endif
