/* A group, for the ways in which its bytes travel: group.c (CPU), staged.c and nccl.c (cards). */
#ifndef ARES_DIST_GROUP_H
#define ARES_DIST_GROUP_H

#include "ares/dist_twin.h"
#include "world.h"

/* The functions of dist.h between cards; begin has counted the call. */
typedef struct dist_way {
    const char *name;
    /* this rank's side, with all that a call needs; host memory is the side's */
    int (*open)(ares_group *g);
    int (*connect)(ares_group *g); /* with the others', once all are open; NULL: by MPI */
    ares_ticket (*gather)(ares_group *g, const void *mine, void *all, size_t bytes);
    ares_ticket (*gather_columns)(ares_group *g, const void *mine, void *all, int64_t rows,
                                  size_t bytes);
    ares_ticket (*sum_scatter)(ares_group *g, const float *all, float *mine, int64_t n, bool add);
    ares_ticket (*sum)(ares_group *g, float *x, int64_t n);
} dist_way;
extern const dist_way dist_staged, dist_nccl;

enum { DIST_PLACES = 64, DIST_NCCL_ID = 128 };

struct ares_group {
    ares_world *world;
    ares_device *device;
    dist_comm *comm; /* NULL: one rank */
    int size, stride, rank;
    int64_t bytes;
    int failure; /* the first since the last sync, and its message */
    ares_str message;
    /* of several ranks with cards */
    const dist_way *way; /* NULL: the CPU's */
    const ares_dist_twins *twins;
    ares_dist_side side;
    int on_card; /* ranks of the world, this one among them, that use this rank's card */
    /* of NCCL: the tickets so far; where a rank stands whose card is at one, and before it is */
    ares_ticket tickets;
    dist_place at[DIST_PLACES], behind[DIST_PLACES];
    bool waits; /* the host waits for the card, at a ticket, and stood elsewhere before */
    ares_ticket waits_at;
    dist_wait wait;
    dist_place stood;
    ares_group *next; /* of world->groups */
};

/* Sets way, the same on every rank, says it, and counts on_card. (cards.c) */
int dist_way_choose(ares_group *g);
/* Memory of the device for `bytes` of what other ranks send. */
int dist_side_memory(ares_group *g, size_t bytes);
/* What follows a failure between two ranks: the others have begun the call, and would wait. */
void dist_must(ares_group *g, int rc);
/* Counts a call, which the card comes to later. */
void dist_nccl_issue(ares_group *g, dist_kind kind, int64_t size);
void dist_nccl_close(ares_group *g); /* before the side is closed */

#endif
