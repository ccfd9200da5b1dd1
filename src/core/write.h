/* What the writers of this room share. */
#ifndef ARES_IO_WRITE_H
#define ARES_IO_WRITE_H

#include <stddef.h>
#include <stdint.h>

/* Writes all bytes to fd, however many calls it takes; a failure names path. */
int io_write_all(int fd, const char *path, const void *data, size_t bytes);
/* The same from byte `at` of the file on. */
int io_write_all_at(int fd, const char *path, const void *data, size_t bytes, uint64_t at);

#endif
