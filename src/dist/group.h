/* A group, for the two ways in which its bytes travel: group.c (CPU) and staged.c (cards). */
#ifndef ARES_DIST_GROUP_H
#define ARES_DIST_GROUP_H

#include "ares/dist_twin.h"
#include "world.h"

struct ares_group {
    ares_world *world;
    ares_device *device;
    dist_comm *comm; /* NULL: one rank */
    int size, rank;
    int64_t bytes;
    int failure; /* the first since the last sync, and its message */
    ares_str message;
    const ares_dist_twins *twins; /* of several ranks with cards, or NULL */
    ares_dist_side side;
};

/* Opens this rank's side on a card, and allocates all that a call needs. */
int staged_open(ares_group *g);
void staged_close(ares_group *g);
/* As the functions of dist.h. */
ares_ticket staged_gather(ares_group *g, const void *mine, void *all, size_t bytes);
ares_ticket staged_gather_columns(ares_group *g, const void *mine, void *all, int64_t rows,
                                  size_t bytes);
ares_ticket staged_sum_scatter(ares_group *g, const float *all, float *mine, int64_t n, bool add);
ares_ticket staged_sum(ares_group *g, float *x, int64_t n);

#endif
