/* What the controls share: an option, the gathering of all ranks' samples, reading a state. */
#ifndef ARES_ALGO_CONTROL_CONTROL_H
#define ARES_ALGO_CONTROL_CONTROL_H

#include "ares/algo_control.h"

/*
 * An option that more than one control reads. An option may be declared several times only with the
 * same type, default and constraint, so the words stand here once.
 */
#define CONTROL_KL_TYPES "fixed|adaptive|token_adaptive"
#define CONTROL_KL_TYPE(X)                                                            \
    X(choice, kl_type, "kl_type", "fixed", CONTROL_KL_TYPES,                          \
      "KL in the reward: fixed keeps kl_coef, adaptive adapts it towards kl_target; " \
      "token_adaptive "                                                               \
      "keeps it and sets kl_bucket_controller to dual_ascent")

/*
 * The groups and samples of a step from all ranks. Groups are in the order of draw numbers and
 * samples in that of their index, whichever rank had them, so that sums over them have the same
 * bits on any number of ranks.
 */
typedef struct control_sample {
    int32_t index, difficulty, hwe, invalid, length;
    float accuracy;
    bool left_out; /* not gathered */
    double threshold, kl;
} control_sample;
/* samples [first, first + count) */
typedef struct control_group {
    int64_t draw;
    ares_view gid;
    int64_t first, count;
} control_group;
typedef struct control_gathered {
    ares_arena arena;
    control_group *groups;
    control_sample *samples;
    int64_t n_groups, n_samples;
} control_gathered;
/*
 * local [b->rows]: one entry per row of this rank. Rows that do not count (ares_batch_row_counts)
 * are left out, and so are groups without any other row. Release with control_gathered_fini, also
 * after a failure.
 */
int control_gather(ares_world *world, const ares_batch *b, const control_sample *local,
                   control_gathered *out);
void control_gathered_fini(control_gathered *g);

/*
 * kl [b->rows], written: the mean KL of each row to the reference, from the column kl, or where it
 * is NULL by the estimator from old_log_probs and ref_log_probs.
 */
int control_row_kl(const ares_batch *b, const ares_algorithm_config *algorithm, const char *who,
                   double *kl);

/* Reading a state: failures name the member. */
int control_member(const ares_json *o, const char *who, const char *key, const ares_json **out);
int control_number(const ares_json *o, const char *who, const char *key, double *out);
int control_integer(const ares_json *o, const char *who, const char *key, int64_t *out);
#endif
