/*
 * The table of combinations: factors, their levels, and the pairs that are refused or have no
 * effect.
 */
#ifndef TESTS_LEVELS_H
#define TESTS_LEVELS_H

#include "ares/core.h"
#include "covering.h"

/* Properties of levels, to which the rules refer. */
#define LEARNS_LITTLE (UINT64_C(1) << 36) /* almost nothing is learnt, whatever else is set */
#define COMPARES (UINT64_C(1) << 0)       /* an estimator that compares the answers of a group */
#define NO_CRITIC (UINT64_C(1) << 1)
#define BASELINE (UINT64_C(1) << 2)
#define NOT_GRPO (UINT64_C(1) << 3)
#define NOT_GAE (UINT64_C(1) << 4)
#define NOT_DISCOUNTED (UINT64_C(1) << 5)
#define OF_MINI_BATCH (UINT64_C(1) << 6) /* of a loss */
#define NEVER (UINT64_C(1) << 7)         /* refused with everything */
#define ONE_ANSWER (UINT64_C(1) << 8)
#define BY_ACCURACY (UINT64_C(1) << 9) /* of filters */
#define INFORMATIVE (UINT64_C(1) << 10)
#define NONZERO (UINT64_C(1) << 11)
#define BY_DEVIATION (UINT64_C(1) << 12)
#define RANKS_DRAWS (UINT64_C(1) << 13)
#define FILTERS (UINT64_C(1) << 14) /* any */
#define SHAPED (UINT64_C(1) << 15)  /* of controls */
#define DYNAMIC_KL (UINT64_C(1) << 16)
#define ADAPTIVE_KL (UINT64_C(1) << 17)
#define NO_KL (UINT64_C(1) << 18)
#define ZERO_KL (UINT64_C(1) << 19)
#define LOSS_KL (UINT64_C(1) << 20) /* in the loss */
#define OF_GRPO (UINT64_C(1) << 21) /* of options of estimators */
#define GAMMA (UINT64_C(1) << 22)
#define LAM (UINT64_C(1) << 23)
#define TURNS (UINT64_C(1) << 24)
#define CORRECTS (UINT64_C(1) << 25) /* corrects the difference between rollout and trainer */
#define CORRECTS_TOO (UINT64_C(1) << 26)
#define STOPS_MICRO (UINT64_C(1) << 27)
#define SAME_PROMPT (UINT64_C(1) << 28)
#define FILLS (UINT64_C(1) << 29)
#define WARMS_UP (UINT64_C(1) << 30)
#define MASKS (UINT64_C(1) << 31) /* masks answers that did not finish */
#define DROPS (UINT64_C(1) << 32)
#define MINI (UINT64_C(1) << 33) /* several mini-batches */
#define ENTROPY (UINT64_C(1) << 35)
#define OVERSAMPLES (UINT64_C(1) << 37)
#define STORED (UINT64_C(1) << 38) /* earlier old log-probs stand */
#define RECOMPUTES (UINT64_C(1) << 39)
#define ALL_MASKED (UINT64_C(1) << 40)
#define BY_RANK (UINT64_C(1) << 34) /* depends on how micro-batches or ranks divide a batch */

#define PAIRS (UINT64_C(1) << 41)        /* a loss of stored answers */
#define NO_PAIRS (UINT64_C(1) << 42)     /* what such a loss refuses */
#define COUNTS_EMPTY (UINT64_C(1) << 44) /* a control that counts steps without a group */
#define EXACT_KL (UINT64_C(1) << 43)     /* from the logits of both models */
#define LORA (UINT64_C(1) << 45)
/* of teachers and what they teach by */
#define TAUGHT (UINT64_C(1) << 46)
#define AVERAGE (UINT64_C(1) << 47)
#define BY_GROUP (UINT64_C(1) << 48)
#define UNTAUGHT (UINT64_C(1) << 49)
#define TEACHES (UINT64_C(1) << 50)
#define ALONE (UINT64_C(1) << 51) /* without rewards, so without a critic */

typedef struct level {
    const char *name, *words;
    uint64_t tags;
} level;
typedef struct factor {
    const char *name;
    int n;
    level levels[COVERING_LEVELS];
} factor;

enum {
    ESTIMATOR,
    LOSS,
    FILTER,
    CONTROL,
    KL_PLACE,
    KL_ESTIMATOR,
    ANSWERS,
    MASKED,
    EPOCHS,
    MINI_BATCHES,
    ADVANTAGES,
    COUNTS,
    CORRECTION,
    EXHAUSTED,
    CRITIC,
    ADAPTERS,
    TEACHER,
    DISTILLATION,
    OTHER,
    FACTORS
};

typedef struct rule {
    uint64_t a, b;
    const char *said; /* part of the message */
} rule;

typedef struct refused_level {
    int factor;
    const char *name, *said;
} refused_level;

/* Two verifiers, and those of `more`. */
#define REWARD(more)                                                                               \
    "'worker.reward.rewards=[{name: random}, {name: format, pattern: \".*[0-9].*\", weight: 0.5, " \
    "finished: false}" more "]' "

extern factor factors[FACTORS];                              /* filled by levels_build */
extern const rule levels_refused[], levels_without_effect[]; /* ended by one without a message */
extern const refused_level levels_refused_alone[]; /* levels that are refused with every other */

/* Fills `factors` anew: the levels written by hand, then those of the program's own lists. */
void levels_build(void);
/* The rule that a pair of tags meets, in either order; NULL where there is none. */
const rule *levels_rule(const rule *rules, uint64_t a, uint64_t b);
/* The tables of docs/testing.md. */
void levels_print(ares_str *out);
#endif
