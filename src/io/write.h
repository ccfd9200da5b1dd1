/* What the writers of this room share. */
#ifndef ARES_IO_WRITE_H
#define ARES_IO_WRITE_H

#include <stddef.h>

/* Writes all bytes to fd, however many calls it takes; a failure names path. */
int io_write_all(int fd, const char *path, const void *data, size_t bytes);

#endif
