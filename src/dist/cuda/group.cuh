/* A rank's side of a group on a card: what group.cu and nccl.cu share. */
#ifndef ARES_DIST_CUDA_GROUP_CUH
#define ARES_DIST_CUDA_GROUP_CUH

#include "device.cuh"

#include "ares/dist_twin.h"

/*
 * Ticket t is event t % EVENTS. A later ticket takes it again; who then joins the earlier one waits
 * for the later, which is behind it in the same stream.
 */
enum { EVENTS = 64 };

typedef struct group_context {
    cudaStream_t stream;
    cudaEvent_t launched[EVENTS]; /* what the device had when the call began */
    cudaEvent_t done[EVENTS];
    ares_ticket tickets, finished; /* made, and seen to be done */
    bool calling;                  /* between begin and end */
    /* of NCCL; NULL: the group is not connected */
    struct ncclComm *comm;
    cuda_beside beside;
} group_context;

static inline group_context *group_of(const ares_dist_side *s)
{
    return (group_context *)s->context;
}

/* nccl.cu */
void group_card(ares_device *d, uint8_t uuid[16]);
int group_find(int *version);
int group_id(uint8_t id[128]);
int group_connect(ares_dist_side *s, const uint8_t id[128]);
void group_disconnect(ares_dist_side *s);
int group_gather(ares_dist_side *s, const void *mine, void *all, size_t bytes);
int group_exchange(ares_dist_side *s, const void *to_each, size_t apart, void *from_each,
                   size_t bytes);
void group_abort(ares_dist_side *s);

#endif
