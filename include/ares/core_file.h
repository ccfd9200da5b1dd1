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

/*
 * Warnings and errors of the log are also appended to this file from now on, with the time (log.c);
 * the first of them makes it. NULL: no longer.
 */
void ares_log_keep(const char *path);
/* A line for that file alone, where there is one. */
void ares_log_note(const char *line);

#endif
