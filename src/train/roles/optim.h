/*
 * AdamW over a model's parameters, its schedule, and updates that are left out because a loss or a
 * gradient is not finite. (optim.c)
 */
#ifndef ARES_TRAIN_ROLES_OPTIM_H
#define ARES_TRAIN_ROLES_OPTIM_H

#include "ares/train.h"

typedef struct optim {
    const ares_optim_config *cfg;
    ares_schedule schedule;
    int64_t updates; /* optimizer steps taken: AdamW's bias correction counts them */
    int64_t skipped; /* left out since the last one that was taken */
    bool failing;    /* OPTIM_SKIPS_IN_A_ROW were left out: the run is to end */
} optim;
enum { OPTIM_SKIPS_IN_A_ROW = 3 };

int optim_init(optim *o, const ares_optim_config *cfg, int64_t total_steps);
/* Allocates the moments of every parameter as worker.*.optim.strategy keeps them. */
int optim_alloc_states(const optim *o, ares_model *m);
double optim_lr(const optim *o, int64_t step); /* of training step 0, 1, ... */
/* Sums gradients over ranks. *norm: of all of them, which may be no finite number. */
int optim_norm(ares_model *m, double *norm);
/*
 * Sums gradients over ranks, clips them to max_grad_norm and updates the weights in place.
 * *grad_norm is the norm before clipping. Where it is NaN or infinite the update is left out, on
 * every rank: weights, moments and their count stay, *grad_norm is NaN, and a warning that begins
 * with `what` names the parameter.
 */
int optim_step(optim *o, ares_model *m, ares_world *world, double lr, double max_grad_norm,
               const char *what, double *grad_norm);
/*
 * Counts an update that was left out. The reason is the last failure, which is printed as a warning
 * and cleared.
 */
void optim_skip(optim *o, const ares_world *world, const char *what);
#endif
