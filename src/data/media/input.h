/* The bytes of a picture or video: in memory, or of a regular file, read where they are needed. */
#ifndef ARES_MEDIA_INPUT_H
#define ARES_MEDIA_INPUT_H

#include "ares/core.h"

typedef struct media_input {
    const uint8_t *data; /* NULL: of fd */
    uint8_t *owned;      /* data, to be freed */
    int64_t size;
    int fd; /* -1: none */
} media_input;

/*
 * Opens a regular file of at most `most` bytes; never waits, as a pipe would make it. Errors lack
 * the name.
 */
int media_input_file(const char *path, int64_t most, media_input *out);
/* The bytes that a text in base64 stands for; white space in it is passed over. */
int media_input_base64(ares_view text, int64_t most, media_input *out);
void media_input_close(media_input *in);
/* Copies up to n bytes from an offset on; how many there were. */
size_t media_input_at(const media_input *in, int64_t offset, void *to, size_t n);
/* Reads all of it: afterwards in->data holds in->size bytes. */
int media_input_load(media_input *in);
#endif
