/*
 * grade: text -> score. A verifier judges one response by its ground truth; it sees no batch
 * (docs/rewards.md).
 */
#ifndef ARES_GRADE_H
#define ARES_GRADE_H

#include "ares/config.h"
#include "ares/core.h"

/*
 * Verifiers: a response and its ground truth -> a score and details. They are pure, and a budget
 * of steps, not of time, bounds their work, so a score depends on the texts alone. Several threads
 * call them at once.
 */
typedef struct ares_verify_in {
    ares_view response, ground_truth, prompt;
    bool structured;         /* the ground truth is the JSON of a list or an object */
    bool stopped;            /* false: the response was cut by length */
    const int32_t *ids;      /* [response_tokens] of the response; NULL: not known */
    int64_t response_tokens; /* end-of-sequence token included; -1: not known */
    const ares_json *row;    /* the data row, or the line given to `grade`; may be NULL */
    const void *options;     /* the verifier's own, as opened */
} ares_verify_in;

/* One response's part of the metric `name`, which is sum / count, both added over a step. */
typedef struct ares_verify_value {
    char name[48];
    double sum, count;
} ares_verify_value;

typedef struct ares_verify_out {
    double score;    /* usually 0 or 1 */
    double accuracy; /* NaN: this verifier does not judge right and wrong */
    double plain;    /* the score without its penalty of length; NaN: it has no penalty */
    /* members of a JSON object, as in `"extracted":"42"`, written after "score"; may be empty */
    ares_str details;
    bool no_answer;        /* found nothing that could be an answer: reward/extract_fail_rate */
    bool exhausted;        /* the work budget ended before a verdict: reward/exhausted */
    const char *judged_by; /* written by `auto`: the verifier it chose, as metrics call it */
    int n_values;
    ares_verify_value values[16];
} ares_verify_out;

typedef struct ares_verifier {
    const char *name, *doc;
    ares_option_table *options; /* its own, beside an entry's name and weight; NULL: none */
    size_t options_size;
    int (*check)(const void *options); /* once, when opened; NULL: any options will do */
    /* fails as ares_judge_run does */
    int (*verify)(const ares_verify_in *in, ares_verify_out *out);
    /*
     * Tokens beyond which a response is too long, and the full penalty, 0 or more; NULL: it does
     * not penalise length.
     */
    int64_t (*limit)(const void *options, double *penalty);
    /* scores of right and wrong answers, penalties apart; equal: it does not judge, or they vary */
    double right, wrong;
    bool judges; /* it gives an accuracy although right and wrong are equal here */
    /* whether these options let a list of texts be several right answers; NULL: never */
    bool (*several)(const void *options);
    bool any_truth; /* it can read a ground truth that is a list or an object, or reads none */
    /*
     * Of a verifier that opens others: once its options are bound (faults go to cfg; path is where
     * its options stand), and when it is freed; NULL: nothing to do.
     */
    void (*open)(void *options, ares_config *cfg, const char *path);
    void (*close)(void *options);
} ares_verifier;
const ares_verifier *ares_verifier_find(const char *name); /* NULL and an error: unknown */
const char *const *ares_verifier_names(int *n);

/*
 * Judges: a verifier with its options. `name` is a verifier's, or one with the prefix
 * ARES_BOXED_PREFIX: then the response that is judged is the content of the response's last
 * \boxed{}, or empty. Fill the options (ares_config_bind, or ares_config_add_options before the
 * configuration is resolved), check them once, then run it from any thread: running changes
 * nothing.
 */
#define ARES_BOXED_PREFIX "boxed_"
typedef struct ares_judge ares_judge;
int ares_judge_new(const char *name, ares_judge **out);
void ares_judge_free(ares_judge *j);
ares_option_table *ares_judge_options(ares_judge *j, void **into); /* NULL: it has none */
/* Faults go to cfg; path is where its options stand. */
void ares_judge_check(ares_judge *j, ares_config *cfg, const char *path);
/*
 * Ignores in->options. ARES_EFORMAT: the ground truth cannot be used, and the caller decides the
 * score. ARES_ECONFIG: the row asks for what does not exist (an unknown verifier, instructions that
 * cannot be checked), so no response to it has a score; ares_reward_check_rows finds such rows
 * before a run starts.
 */
int ares_judge_run(const ares_judge *j, const ares_verify_in *in, ares_verify_out *out);

/* Options of `length`, which worker.reward.safe_length, max_length and len_reward_penalty fill. */
#define ARES_LENGTH_OPTIONS(X)                                                                 \
    X(i64, safe_length, "safe_length", "16384", "[0,)", "tokens without a penalty")            \
    X(i64, max_length, "max_length", "20480", "[1,)", "tokens from which the penalty is full") \
    X(f64, len_reward_penalty, "len_reward_penalty", "0.1", "[0,)",                            \
      "the full penalty; 0 switches it off")
ARES_OPTION_STRUCT(ares_length_options, ARES_LENGTH_OPTIONS);
#endif
