/*
 * algo: from log-probs to a loss and its derivatives: aggregation, KL estimators, policy losses,
 * the critic's loss, VAPOR.
 */
#ifndef ARES_ALGO_LOSS_H
#define ARES_ALGO_LOSS_H

#include "ares/algo.h"
#include "ares/kernels.h"

/* ---------------- aggregation (loss/loss.c; docs/update.md#averaging)
 * Every mode is a weight per token: loss = sum over tokens of weight x token loss. With N tokens of
 * mask 1 and B rows that have any, a token in a row of n such tokens has the weight
 *
 *     token-mean 1 / N      seq-mean-token-sum 1 / B      seq-mean-token-mean 1 / (B n)
 *                           seq-mean-token-sum-norm 1 / max_len
 *
 * N and B are counted in the whole mini-batch over all ranks, so that the size of micro-batches
 * changes no bit of a gradient, and the number of ranks only rounding. With loss_norm micro they
 * are counted in each micro-batch and the weights divided by micro-batches x ranks, which is what
 * verl and RLinf do without their global scale.
 */
typedef struct ares_agg_counts {
    double tokens, rows; /* tokens of mask 1, rows with at least one */
    double max_len;      /* divisor of seq-mean-token-sum-norm */
} ares_agg_counts;
void ares_agg_count(const ares_batch *b, int64_t row, int64_t end, ares_agg_counts *out); /* adds */
/*
 * weight, written: one per token of rows [row, end), from row_start[row] on; 0 where the mask is 0,
 * and everywhere when there is no token at all.
 */
int ares_agg_weights(const char *mode, const ares_batch *b, int64_t row, int64_t end,
                     const ares_agg_counts *global, float *weight);
/*
 * loss_norm micro: the same for n micro-batches of consecutive rows, each counted by itself, with
 * weights divided by `total`, the micro-batches of all ranks; weight begins at the first token of
 * the first micro-batch.
 */
int ares_agg_weights_micro(const char *mode, const ares_batch *b, const ares_micro_batch *micro,
                           int64_t n, int64_t total, double max_len, float *weight);

/* ---------------- KL estimators (loss/kl.c; formulas: loss/formula.h), x = log pi - log ref */
#define ARES_KL_FORMULAS(X) X(k1) X(abs) X(k2) X(k3)
#define ARES_KL_FORMULA_ENUM(name) ARES_KL_##name,
typedef enum { ARES_KL_FORMULAS(ARES_KL_FORMULA_ENUM) ARES_KL_exact } ares_kl_formula;
typedef struct ares_kl {
    const char *name, *words; /* words: the name and its aliases, "name=alias=alias" */
    const char *doc, *formula, *paper;
    /* NULL: the exact sum over the vocabulary, from the logits of both models */
    double (*value)(double x);
    double (*derivative)(double x); /* of the value by log pi; of k2 in the forms named with a + */
    /* both at once, and whether a clamp of the value acts: the same bits, with one exponential */
    double (*both)(double x, double *derivative, bool *clamped);
    /* what value and derivative compute, for device code, which cannot call them */
    ares_kl_formula value_formula, derivative_formula;
} ares_kl;
/* by name or alias (k1, k2, k3, low-var-kl, k3+ ...); NULL and a message with the choices */
const ares_kl *ares_kl_find(const char *name);
/* the choices of the option, "name=alias=alias" each */
const char *const *ares_kl_names(int *n);
/* ---------------- policy losses (loss/NAME.c)
 * A loss works on plain arrays over the tokens of some rows and never sees a model. It adds
 * d loss / d log_prob to its output and what it saw to its sums. Tokens of mask 0 count nowhere and
 * may hold anything. Where the mask is 1, a log-prob, advantage or weight that is not finite is an
 * error that names the place, and so is a mask that is neither 0 nor 1: a finite input never gives
 * a NaN.
 */
/*
 * Bins of log pi - log old: bin i counts [-2 + i / 16, -2 + (i + 1) / 16); the first and the last
 * also count what lies beyond them.
 */
enum { ARES_LOSS_BINS = 64 };
/*
 * Sums over tokens of mask 1, one double each; plain: not weighted. One pass of a loss adds to all.
 */
/* clang-format off */
#define ARES_LOSS_SUMS(X)                                                                    \
    /* weighted by the aggregation, without coefficients; kl by kl_weight too */                  \
    X(loss) X(kl) X(entropy)                                                                      \
    /* the same, plain */                                                                         \
    X(kl_plain) X(entropy_plain)                                                                  \
    /* counts: tokens with a KL, with a KL that its estimator clamped, with an entropy */         \
    X(kl_tokens) X(kl_clamped) X(entropy_tokens)                                                  \
    X(tokens) X(clip_high) X(clip_low) /* counts */                                               \
    /* plain: estimators of KL(old || pi), with log-ratios clamped to +-20 */                     \
    X(neg_log_ratio) X(k2) X(k3)                                                                  \
    /* plain: the loss's ratio, the ratio clamped to the clip's bounds, |ratio - 1|, |loss| */    \
    X(ratio) X(ratio_clipped) X(ratio_off) X(loss_abs)                                            \
    X(saturated) /* count: tokens whose log-ratio lies beyond the clamp */                        \
    /* plain, in rows whose accuracy is known (right: above 1/2) */                               \
    X(entropy_right) X(tokens_right) X(entropy_wrong) X(tokens_wrong)
/* clang-format on */
#define ARES_SUM_MEMBER(name) double name;
typedef struct ares_loss_sums {
    ARES_LOSS_SUMS(ARES_SUM_MEMBER)
    double ratio_min, ratio_max;
    double bins[ARES_LOSS_BINS]; /* counts */
} ares_loss_sums;
/*
 * The sums of a loss on a card, in the card's memory. Every launch adds to them, and none waits.
 * The caller copies them there as ares_card_sums_init made them, and back to the host when a
 * mini-batch is done. (src/algo/loss/on_device.c)
 */
typedef struct ares_card_sums {
    double sum[32];
    uint64_t bins[ARES_LOSS_BINS];
    /* the first token of the batch that could not be computed with; UINT64_MAX: none */
    uint64_t fault;
    uint64_t blocks; /* thread blocks of the current launch that have ended */
} ares_card_sums;
void ares_card_sums_init(ares_card_sums *s);
/* Adds a card's sums to the sums of a loss. */
void ares_card_sums_add(const ares_card_sums *s, ares_loss_sums *to);
/* What a loss on a card reads besides the arrays of its arguments; also in the card's memory. */
typedef struct ares_loss_card {
    const int64_t *row_start; /* as ares_loss_args.row_start */
    const uint8_t *right;     /* by row of the batch: ares_loss_right; NULL: unknown */
    ares_card_sums *sums;
} ares_loss_card;
/* Whether a row's answer is right: 1 right, 0 wrong, 2 unknown. */
static inline uint8_t ares_loss_right(const ares_sample *s)
{
    float accuracy = s->accuracy;
    return accuracy != accuracy ? 2 : accuracy > 0.5f;
}
typedef struct ares_loss_args {
    const ares_loss_config *cfg;
    int64_t n;
    const float *log_prob, *old_log_prob, *advantage, *weight; /* [n] */
    const float *rollout_weight;                               /* [n], of rollout_is; NULL: 1 */
    const uint8_t *mask;                                       /* [n] */
    const float *entropy;                                      /* [n]; NULL: not computed */
    float *d_log_prob;                                         /* [n], added to */
    float *d_entropy;     /* [n], added to; NULL when no term needs it */
    ares_loss_sums *sums; /* added to */
    /*
     * Which tokens these are: tokens [first, first + n) of a batch, within its rows [row, end),
     * whose tokens begin at row_start[]. row_start NULL: all n tokens are one row. Losses that are
     * not ARES_LOSS_LOCAL need all tokens of rows [row, end) and no others.
     */
    int64_t row, end, first;
    const int64_t *row_start;
    const ares_sample *samples; /* by row of the batch; NULL: their accuracy is unknown */
    /* for ARES_LOSS_BATCH, whose statistics include all ranks; NULL: one rank */
    ares_world *world;
    ares_rng_key key; /* for random choices: of (seed, step); the loss adds the other coordinates */
    uint64_t update;  /* number of the pass over these rows */
    /* [n], what choose has marked; read by compute of a loss with choose */
    const uint8_t *chosen;
    /*
     * [n], written where the mask is 1: the ratio that the loss's clip looks at, the row's in a
     * loss of rows; 1 where a clip has made the token's gradient 0 or bounds its factor, and the
     * advantage is not 0. NULL, both: not wanted.
     */
    float *ratio;
    uint8_t *clipped;
    const ares_loss_card *card; /* NULL on the CPU */
} ares_loss_args;
enum {
    /* a token's derivative needs that token only, so the head's forward and backward may fuse */
    ARES_LOSS_LOCAL = 1,
    ARES_LOSS_ROWS = 2,  /* whole rows */
    ARES_LOSS_BATCH = 4, /* the whole mini-batch, on all ranks at once (a collective) */
    ARES_LOSS_PAIRS = 8  /* log-probs of stored answers as well: ares_vapor_loss */
};
enum {
    /* reads clip_ratio_low and high as bounds of a ratio, and clip_ratio_dual where it is set */
    ARES_LOSS_CLIPS = 1,
    ARES_LOSS_CLIPS_DUAL = 2 /* clip_ratio_dual null is 3, not "no bound" */
};
typedef struct ares_loss {
    const char *name, *words; /* words: the name and its aliases, "name=alias=alias" */
    /* formula: of a token; r = exp(log pi - log old), A its advantage, sg: no gradient */
    const char *doc, *formula, *paper;
    unsigned flags; /* one of ARES_LOSS_LOCAL, _ROWS, _BATCH, _PAIRS */
    unsigned clips; /* ARES_LOSS_CLIPS, _CLIPS_DUAL; 0: clip_ratio_dual is not read */
    int (*compute)(const ares_loss_args *a);
    /*
     * For ARES_LOSS_BATCH, else NULL: checks the input, marks in chosen [n] (zeroed by the caller)
     * the tokens that the loss treats apart, and tells whether any rank has a token. A collective.
     */
    int (*choose)(const ares_loss_args *a, uint8_t *chosen, bool *any);
    const char *reads; /* as ares_adv.reads; "vapor.*": all of a section */
} ares_loss;
/* by name or alias (ppo, actor, geo_mean ...); NULL and a message with the choices */
const ares_loss *ares_loss_find(const char *name);
/* the choices of the option, "name=alias=alias" each */
const char *const *ares_loss_names(int *n);
void ares_loss_sums_init(ares_loss_sums *s);
int ares_loss_sums_reduce(ares_loss_sums *s, ares_world *w); /* over all ranks */
/* The whole loss: loss + kl_coef x kl - entropy_coeff x entropy. */
double ares_loss_total(const ares_loss_sums *s, double entropy_coeff, double kl_coef);
/* lower edge of bin i, 0 <= i <= ARES_LOSS_BINS */
double ares_loss_bin_edge(int i);
/*
 * The metrics that are means over tokens, and need these sums alone: actor/entropy, actor/kl,
 * actor/pg_clipfrac_higher, actor/ratio_mean, actor/ppo_kl, actor/entropy_correct ... None where no
 * token was seen.
 */
void ares_loss_metrics(const ares_loss_sums *s, ares_metrics *m);

/*
 * The KL term of a loss. An estimator computes it from ref_log_prob. The exact KL, which the head
 * has computed, is read from full, and the loss's derivative by it is added to d_full.
 */
typedef struct ares_kl_args {
    const ares_kl *kl;
    double coef;
    const float *ref_log_prob; /* [n]; NULL: no term (unless full) */
    const float *weight;       /* [n], kl_weight; NULL: 1 */
    float *out; /* [n], written: the unweighted KL of each token of mask 1; NULL: not wanted */
    const float *full; /* [n] */
    float *d_full;     /* [n], added to */
} ares_kl_args;

/*
 * DAPO's early stop (docs/dapo.md#early-stop): whether the mean over ranks of their mean ratios
 * exceeds the threshold (NaN: never). A NaN among the ratios counts as exceeding it. average, which
 * may be NULL, receives the mean.
 */
bool ares_early_stop(const double *ratio, int ranks, double threshold, double *average);
/* Adds the ratios of the tokens of mask 1 to *sum and their number to *count, for early stop. */
void ares_ratio_sum(const ares_loss_args *a, double *sum, double *count);

/*
 * The critic's loss over some tokens (loss/loss.c; docs/update.md#critic). Its sums: the weighted
 * loss; counts of all tokens and of those whose clipped error is the larger; the plain sum of
 * values.
 */
#define ARES_VALUE_SUMS(X) X(loss) X(tokens) X(clip) X(value)
typedef struct ares_value_sums {
    ARES_VALUE_SUMS(ARES_SUM_MEMBER)
} ares_value_sums;
typedef struct ares_value_args {
    int64_t n;
    const float *value, *old_value, *target, *weight; /* [n]; target: the returns */
    const uint8_t *mask;
    double cliprange_value; /* infinity: no clip */
    float *d_value;         /* [n], added to: weight x derivative */
    ares_value_sums *sums;  /* added to */
    /* for messages, as in ares_loss_args */
    int64_t first;
    const int64_t *row_start;
    int64_t row, end;
    ares_card_sums *card; /* on a card, instead of sums; NULL on the CPU */
} ares_value_args;
void ares_card_value_sums_add(const ares_card_sums *s, ares_value_sums *to);

/*
 * VAPOR (loss/vapor.c; docs/vapor.md): completions of several prompts, each with a stored pair
 * of answers. Spans are token ranges [span, span_end). Where span_end <= span no span was found:
 * the ratio is 1 and the reward counts as 0. A span with a NaN or an infinity has the ratio 1.
 * Masked tokens (written under older weights, before a partial answer was continued) count in no
 * sum.
 */
#define ARES_VAPOR_OPTIONS(X)                                                                      \
    X(f64, beta, "beta", "0.1", "[0,)",                                                            \
      "weight of the preference between a row's stored answers, as in DPO; 0: none")               \
    X(f64, epsilon_low, "epsilon_low", "0.2", "[0,1)", "ratios are clipped below 1 - epsilon_low") \
    X(f64, epsilon_high, "epsilon_high", "0.2", "[0,)",                                            \
      "ratios are clipped above 1 + epsilon_high")                                                 \
    X(f64, kl_coef, "kl_coef", "0.04", "[0,)",                                                     \
      "weight of the KL to the reference model, over all tokens of the responses")                 \
    X(choice, kl_penalty, "kl_penalty_type", "low_var_kl", "",                                     \
      "how that KL is estimated (estimators: docs/algorithms.md)")                                 \
    X(choice, ratio_reduction, "ratio_reduction", "sum", "sum|mean",                               \
      "log-ratio of a span: the sum over its tokens, or their mean")                               \
    X(f64, log_ratio_clamp, "log_ratio_clamp", "20.0", "(0,)",                                     \
      "bound of a response's log-ratio; beyond it nothing is learnt from the response")            \
    X(flag, preference_detach, "preference_detach", "false", "",                                   \
      "let the stored answers weigh the ratio, but pass no gradient of it to their tokens")        \
    X(f64, dpo_coef, "dpo_coef", "0.0", "[0,)",                                                    \
      "weight of a DPO loss of the stored answers beside the ratio (arXiv 2305.18290); 0: none")   \
    X(f64, dpo_beta, "dpo_beta", "0.1", "(0,)",                                                    \
      "dpo_coef: beta of the DPO loss, the factor of its log-ratios")                              \
    X(choice, failure_ratio, "failure_ratio", "neutral", "neutral|full",                           \
      "a response without a verifiable span: ratio 1, or the ratio of the whole response")         \
    X(texts, verifiable_term_split, "verifiable_term_split",                                       \
      "[\"<REASONING>\", \"</REASONING>\"]", "nonempty#2",                                         \
      "tags around the part of a response that is judged")                                         \
    X(texts, preference_term_split, "preference_term_split", "[\"<RESPONSE>\", \"</RESPONSE>\"]",  \
      "nonempty#2", "tags around the part of the stored answers that is compared")                 \
    X(text, chosen_key, "chosen_key", "chosen", "nonempty", "key of a row's preferred answer")     \
    X(text, rejected_key, "rejected_key", "rejected", "nonempty",                                  \
      "key of a row's answer that is not preferred")                                               \
    X(i64, max_pair_length, "max_pair_length", "1024", "[1,)",                                     \
      "tokens of prompt and stored answer at most; longer answers lose their end")                 \
    X(flag, sync_ref_model, "sync_ref_model", "true", "",                                          \
      "move the reference model towards the policy every ref_model_sync_steps steps; false: "      \
      "pairs "                                                                                     \
      "may be unlearnt (docs/vapor.md)")                                                           \
    X(i64, ref_model_sync_steps, "ref_model_sync_steps", "10", "[1,)",                             \
      "sync_ref_model: steps from one move to the next")                                           \
    X(f64, ref_model_mixup_alpha, "ref_model_mixup_alpha", "0.6", "[0,1]",                         \
      "sync_ref_model: share of the policy in the moved reference model")
ARES_OPTION_STRUCT(ares_vapor_config, ARES_VAPOR_OPTIONS);
ares_option_table ares_vapor_options;
typedef struct ares_vapor_text {
    int64_t n, span, span_end;
    const float *log_prob, *ref_log_prob; /* [n] */
    float *d_log_prob;                    /* [n], added to; may be NULL */
    const uint8_t *mask;                  /* [n]; NULL: every token counts */
} ares_vapor_text;
typedef struct ares_vapor_completion_args {
    ares_vapor_text text;
    double reward;
    double reward_used, advantage, log_ratio, ratio, objective; /* written */
} ares_vapor_completion_args;
typedef struct ares_vapor_prompt {
    int64_t n;
    ares_vapor_completion_args *completions;
    ares_vapor_text chosen, rejected; /* n 0: the row has none */
    double margin, term;              /* written: D, exp(beta D); NaN and 1 without a usable pair */
    bool usable;                      /* written: both spans are there and finite */
} ares_vapor_prompt;
typedef struct ares_vapor_sums {
    /* counts; sums over completions and tokens */
    double prompts, completions, tokens, objective, kl;
    double reward, extracted, usable, margin, preferred, term, ratio, ratio_max, clip_low,
        clip_high, saturated, nonfinite, u_abs, equal_groups;
    double reward_square, span_tokens, log_ratio, log_ratio_max; /* the last: of |log-ratio| */
    double lost; /* completions with tags but no token between them; the caller counts them */
    double chosen, rejected; /* log-ratios of the usable pairs' answers */
    double u;                /* beta sum u of the usable pairs: below 0 a pair is unlearnt */
    /* DPO loss: number of pairs; sums of losses and of differences; pairs with a difference > 0 */
    double dpo_pairs, dpo, dpo_margin, dpo_preferred;
} ares_vapor_sums;
/*
 * totals: the numbers of completions, of their unmasked tokens and of pairs in the mini-batch over
 * all ranks, by which the surrogate, the KL and the DPO loss are divided (NULL: those of these
 * prompts). A prompt without completions is left out with its pair. sums is added to.
 */
int ares_vapor_loss(const ares_vapor_config *cfg, const ares_kl *kl, ares_vapor_prompt *prompts,
                    int64_t n, const double totals[3], ares_vapor_sums *sums);
/* Whether a prompt counts among the pairs of totals. */
bool ares_vapor_has_pair(const ares_vapor_prompt *p);
void ares_vapor_sums_init(ares_vapor_sums *s);
void ares_vapor_sums_add(ares_vapor_sums *s, const ares_vapor_sums *more);
int ares_vapor_sums_reduce(ares_vapor_sums *s, ares_world *w); /* over all ranks */
/* The metrics vapor/...; those of preferences only where a pair was usable. */
void ares_vapor_metrics(const ares_vapor_config *cfg, const ares_vapor_sums *s, ares_metrics *m);

/*
 * Checks of options against each other. complain is called for each fault: severity 'e' is an
 * error, 'w' a warning. (loss/loss.c)
 */
typedef void ares_algo_complain(void *ctx, char severity, const char *option, const char *message);
void ares_loss_check(const ares_loss_config *cfg, ares_algo_complain *complain, void *ctx);
void ares_vapor_check(const ares_vapor_config *cfg, int64_t num_generations,
                      ares_algo_complain *complain, void *ctx);

/*
 * The losses on a device, a CUDA device or the CPU, with the same messages
 * (src/algo/loss/on_device.c). They run inside a micro-batch. Their arrays with one number per
 * token lie in the device's memory, as those of the kernels do; on the CPU that is host memory. On
 * a card a call launches and returns: sums are added to ares_card_sums, which the caller copies to
 * the host when it wants them. Only these show a fault, after which the derivatives must not be
 * used.
 */

/*
 * loss->compute, then the KL and entropy terms: + coef x weight x kl and - entropy_coeff x entropy.
 * k NULL: no KL.
 */
int ares_loss_compute(ares_device *d, const ares_loss *loss, const ares_loss_args *a,
                      const ares_kl_args *k);
/* Only the KL and entropy terms, for tokens whose loss is computed elsewhere. */
int ares_loss_terms(ares_device *d, const ares_loss_args *a, const ares_kl_args *k);
/*
 * Returns the error of a loss that met a fault on a card, by computing it once more on the CPU,
 * which names the place. host: arguments with copies of the arrays in host memory. Not a
 * collective. loss NULL: the fault is one of ares_loss_terms.
 */
int ares_loss_fault(const ares_loss *loss, const ares_loss_args *host, const ares_kl_args *k);
int ares_value_loss_on(ares_device *d, const ares_value_args *a);
int ares_value_fault(const ares_value_args *host);

/* ---------------- columns, on the host */

/*
 * Rollout correction: what is done about a sampler whose log-probs are not the trainer's
 * (loss/correction.c; docs/dapo.md#when-the-sampler-is-not-the-trainer).
 */
/* Whether an option of it is set: rollout_is, rollout_rs or rollout_token_veto_threshold. */
bool ares_rollout_corrects(const ares_loss_config *cfg);
/*
 * Stage correct: with rollout_is it writes column rollout_is_weights, and with rollout_rs or a veto
 * column kept_mask, whose place it then exchanges with that of response_mask: what is rejected is
 * not trained on. Sets the metrics rollout_corr/... A collective.
 */
int ares_rollout_correct(const ares_loss_config *cfg, ares_world *world, ares_batch *b,
                         ares_metrics *m);
/* Puts response_mask and kept_mask back in their places; nothing where there is no kept_mask. */
void ares_rollout_restore(ares_batch *b);
/*
 * Writes column kl: the estimate from old_log_probs and ref_log_probs, 0 where the mask is 0. Not
 * for the exact KL.
 */
int ares_kl_column(const ares_kl *kl, ares_batch *b);
#endif
