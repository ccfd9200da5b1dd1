/*
 * Opening files for reading, done here alone, so that nothing waits for a pipe that nobody writes
 * to (src/core/file.c).
 */
#ifndef ARES_CORE_FILE_H
#define ARES_CORE_FILE_H

#include "ares/core.h"

/*
 * Opens a regular file. A pipe, device or folder in its place is a failure at once. -1: *why says
 * the reason; otherwise *why is NULL.
 */
int ares_file_open(const char *path, const char **why);
/* Adds the bytes of such a file to a hash (ares_fnv1a), a piece at a time. */
int ares_file_hash(const char *path, uint64_t *h);
/*
 * Opens what a command line names as input: pipes (/dev/stdin, <(command) of a shell) and
 * terminals are opened, too, and waited for.
 */
int ares_input_open(const char *path, const char **why);
/* Reads such an input to its end; path "-" is stdin. */
int ares_input_read(const char *path, ares_str *out);

#endif
