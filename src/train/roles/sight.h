/*
 * Images and videos in the passes of a learner: what its tower makes of them, and the way back
 * through a tower that is trained. (sight.c)
 */
#ifndef ARES_TRAIN_ROLES_SIGHT_H
#define ARES_TRAIN_ROLES_SIGHT_H

#include "roles/learner.h"

/*
 * Features of what stands in the passes, in the learner's arena. keep: for a backward. A trained
 * tower makes those of an update anew, so that exact/vision_max_abs compares two computations.
 */
int sight_show(learner *l, ares_packed *packed, int n, bool keep);
/* Before a backward: memory for the derivatives by features, where the tower is trained. */
void sight_wants(learner *l, ares_packed *packed, int n);
/* After it: these derivatives go back through the tower, pass by pass. */
int sight_backward(learner *l, const ares_packed *packed, int n);
/*
 * Metrics of a step's images and videos: data/image_tokens, timing_s/vision and, of a trained
 * tower, exact/vision_max_abs. Nothing for a model that reads text alone. other: whose seconds
 * count, too, or NULL. A collective.
 */
int sight_report(learner *l, learner *other, const ares_batch *b, ares_metrics *m);
#endif
