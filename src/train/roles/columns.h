/*
 * Arrays of the host that the device computes with, such as the columns of a batch. Where the
 * device's memory is the host's, the device uses the arrays themselves and nothing is copied; on a
 * card each gets a place in a block of the card's memory. (columns.c)
 */
#ifndef ARES_TRAIN_ROLES_COLUMNS_H
#define ARES_TRAIN_ROLES_COLUMNS_H

#include "ares/kernels.h"

typedef struct columns {
    ares_device *device;
    char *block; /* of a card; grows on demand and is kept */
    size_t bytes, used;
    char *staged,
        *host_staged; /* what columns_out brings, in one piece: on the card, on the host */
    size_t staged_bytes;
} columns;

/* Whether the device's memory is the host's. */
static inline bool columns_shared(const columns *c)
{
    return c->device->index < 0;
}
/*
 * Room for arrays of so many bytes together, `arrays` of them; the places given before are lost.
 * role: of the learner, for the message.
 */
int columns_open(columns *c, ares_device *d, const char *role, size_t bytes, int arrays);
void columns_close(columns *c); /* a zeroed one, too */
/* The device's address of an array of the host, whose contents are not copied yet. NULL for NULL */
void *columns_place(columns *c, void *host, size_t bytes);
/* Copies an array, or a part of it, to its place. The host's memory may be reused on return. */
void columns_in(const columns *c, void *device, const void *host, size_t bytes);
/* Copies arrays to the host, all in one wait. NULL: none. Call sync before reading them. */
typedef struct column_part {
    void *host;
    const void *device;
    size_t bytes;
} column_part;
void columns_out(columns *c, const column_part *part, int n);
/*
 * After a kernel that wrote them, before code of the room algo reads them: a failure of the kernel
 * where that code runs on the host. A card's runs after the kernel, and does not wait.
 */
int columns_ready(const columns *c);
#endif
