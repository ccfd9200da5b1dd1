/*
 * algo: controls, which keep state and learn from each step (src/algo/control;
 * docs/aepo.md#difficulty-targets-and-alphas, docs/aepo.md#kl-by-token-and-difficulty).
 */
#ifndef ARES_ALGO_CONTROL_H
#define ARES_ALGO_CONTROL_H

#include "ares/algo.h"

/* ---------------- controls (control/control.c)
 * A control is opened where its options ask for it, sees every batch after its groups are complete
 * and again after the update, and is part of every checkpoint. It reads its input from the batch
 * and writes its decisions there: samples' difficulty, hwe_count, hwe_target and entropy_alpha, the
 * columns hwe and kl_weight, kl_coef. Its state is the same on every rank: what the ranks know is
 * gathered through world and added in the order of draw numbers, so that the number of ranks
 * changes no bit. Every function but save and those that only ask is a collective. To add one: a
 * file in control/ and a word in control/control.c.
 */
typedef struct ares_control_env {
    ares_world *world; /* may be NULL: one rank */
    const ares_algorithm_config *algorithm;
    /* a reward reads samples' hwe_count, hwe_target, entropy_alpha, difficulty */
    bool entropy_reward;
    /*
     * only for `check`: the run validates during training; answers may have an accuracy; the loss
     * has a KL of its own
     */
    bool validates, judges, own_kl;
    /* ids of the training rows (ares_source_gids); a loaded state may name no others. NULL: any */
    const ares_map *gids;
} ares_control_env;
typedef struct ares_control_section {
    const char *section; /* the options' path: "algorithm" */
    ares_option_table *options;
    size_t offset; /* of this section's struct in the control's options */
} ares_control_section;
enum { ARES_CONTROL_SECTIONS = 4, ARES_CONTROL_NEEDS_GIDS = 1 };
typedef struct ares_control {
    const char *name, *doc, *formula, *paper;
    const char *option; /* the setting that asks for it, as users write it */
    const char *reads;  /* as ares_adv.reads */
    /* ARES_CONTROL_NEEDS_GIDS: it tells prompts apart by gid, so every row needs one */
    unsigned needs;
    ares_control_section sections[ARES_CONTROL_SECTIONS]; /* the rest have options NULL */
    size_t options_size; /* of the whole struct, zeroed before its sections are bound */
    bool (*wanted)(const void *options, const ares_control_env *env);
    /*
     * Called where the control is wanted, before a run opens anything: reports options that make no
     * sense. env has no world and no gids yet. NULL: there is nothing to check.
     */
    void (*check)(ares_config *cfg, const void *options, const ares_control_env *env);
    /* options and env's pointers outlive the state */
    int (*open)(const void *options, const ares_control_env *env, void **state);
    void (*save)(const void *state, ares_str *json); /* one JSON object */
    /* what save wrote; a message names the member that does not fit */
    int (*load)(void *state, const ares_json *json);
    void (*close)(void *state);
    /* The rest may be NULL. */
    /* after the groups are complete, before log-probs and rewards */
    int (*observe)(void *state, ares_batch *b, ares_metrics *m);
    int (*adapt)(void *state, const ares_batch *b, ares_metrics *m); /* after the update */
    /* every batch of groups made for the step, with accuracies, before any group is filtered out */
    int (*generated)(void *state, const ares_batch *b);
    /*
     * Reason to end the run, as a word, or NULL. Called after observe and when a run is resumed; a
     * step with a reason makes no update. The reason must follow from the saved state, so that a
     * resumed run stops too.
     */
    const char *(*stop)(const void *state);
    /*
     * Filters may compare shaped scores before observe has run for this step: writes samples'
     * difficulty, hwe_count, hwe_target and entropy_alpha from the last step's state and each
     * group's own accuracy. Does not change the state.
     */
    int (*provisional)(const void *state, ares_batch *b);
    /* the i-th prompt that is left out from the next epoch on; false: no more */
    bool (*dropped)(const void *state, int64_t i, ares_view *gid);
    /*
     * Validation: b holds all of the rank's validation rows. Writes what observe writes. The state
     * changes only where it has no first value yet.
     */
    int (*validate)(void *state, ares_batch *b, ares_metrics *m);
    /*
     * Called after a validation during training, with its metrics, which are the same on every
     * rank. Not called after the validation before the first step, nor after that of a resumed
     * run's start.
     */
    int (*validated)(void *state, const ares_metrics *m);
    /*
     * A pass over all training rows before the first step, in their order. bootstrap returns the
     * prompts per batch, or 0 when no pass is asked for or it is complete; *done: prompts that it
     * has had, which the state keeps so that an interrupted pass goes on. Then bootstrap_add for
     * every batch, and bootstrap_finish.
     */
    int64_t (*bootstrap)(const void *state, int64_t *done);
    int (*bootstrap_add)(void *state, ares_batch *b, ares_metrics *m);
    int (*bootstrap_finish)(void *state, ares_metrics *m);
} ares_control;
const ares_control *const *ares_control_list(int *n);

/* ---------------- KL (control/aepo_kl.c) */
/*
 * After an optimizer step of the actor: appends the mean KL of every row of [row, end) that counts
 * and that the step trained on to b->row_kl, and increments b->updates. kl [b->tokens]; NULL: no KL
 * is known. passed [b->rows]: which rows the step trained on; NULL: all.
 */
void ares_kl_record_rows(ares_batch *b, int64_t row, int64_t end, const float *kl,
                         const bool *passed);
/*
 * KL as part of the reward: token_level_rewards, which the caller has allocated, = scores - coef x
 * kl_weight x kl where the mask is 1, else the scores. Reads b->kl and, if it is not NULL,
 * b->kl_weight. Adds to sums[0] the mean KL, without weights, of each row that counts, to sums[1]
 * the number of these rows.
 */
void ares_kl_in_reward(ares_batch *b, double coef, double sums[2]);
#endif
