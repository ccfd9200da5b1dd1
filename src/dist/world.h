/* What the files of this room share: the world, and the few operations that use MPI. */
#ifndef ARES_DIST_WORLD_H
#define ARES_DIST_WORLD_H

#include "ares/dist.h"

struct ares_world {
    int rank, size, local_rank, local_size, threads;
    char *buffer; /* of the collectives; kept, because gradients are summed in every step */
    size_t buffer_bytes;
};

char *dist_buffer(ares_world *w, size_t bytes);

/* transport.c, with and without MPI. Sizes are in bytes, each block below 2^31. */
int dist_transport_size(void);          /* ranks that a launcher announced; 1 without one */
int dist_transport_open(ares_world *w); /* fills rank, size, local_rank, local_size, threads */
void dist_transport_close(void);
void dist_transport_abort(int exit_code) __attribute__((noreturn));
int dist_broadcast(void *data, size_t bytes, int root);
/* mine may be NULL: it already lies in its place in `all` */
int dist_gather_equal(const void *mine, void *all, size_t bytes_each);
int dist_gather_sized(const void *mine, void *all, const int *bytes, const int *starts, int rank);
int dist_exchange(const void *to_each, void *from_each, size_t bytes_each);

#endif
