/*
 * The update of an optimizer step as a list of computations and transfers that wait for each other,
 * played through: how long the link makes the computation wait (docs/ranks.md#what-a-run-needs).
 */
#ifndef ARES_TRAIN_PLAN_REPLAY_H
#define ARES_TRAIN_PLAN_REPLAY_H

#include "ares/model.h"

typedef struct replay_args {
    const ares_model_config *model;
    /*
     * the model's regions, padding included: the embedding, each block, the head where it is not
     * tied; NULL: as large as in files
     */
    const ares_region *regions;
    ares_dtype storage; /* of the weights */
    int ranks;          /* that share the model, */
    int replicas;       /* and those that have the same part of it; 0: 1 */
    int rounds;         /* of a mini-batch; 0: 1 */
    ares_sharing how;
    bool early; /* states: a sum leaves once its region's last backward is done, else after all */
    double tokens, length; /* fed per rank in a mini-batch; of a sequence */
    int micro_batches;
    bool recompute; /* blocks forward once more before they go back; always with shared weights */
    double flops, link; /* per second: operations of a rank, bytes it sends */
} replay_args;
typedef struct replay {
    double sent;                 /* bytes by a rank, which receives as many */
    double compute, link, total; /* seconds: busy, and from the first to the last */
    double exposed;              /* total - compute */
} replay;
void plan_replay(const replay_args *a, replay *out);
#endif
