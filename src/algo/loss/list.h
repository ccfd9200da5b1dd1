/*
 * The policy losses, in the order of worker.actor.loss_type's choices. To add one: NAME.c in this
 * folder, with its formula and its entry, and a word here (docs/algorithms.md).
 */
#ifndef ARES_ALGO_LOSS_LIST_H
#define ARES_ALGO_LOSS_LIST_H

/* clang-format off */
#define LOSS_LIST(X) \
    X(default) X(dapo) X(gspo) X(gspo_token) X(cispo) X(gmpo) X(sapo) X(clip_cov) X(kl_cov) \
    X(gpg) X(dppo_tv) X(dppo_kl) X(vapor)
/* clang-format on */
#endif
