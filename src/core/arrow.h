/*
 * Arrow's C data and stream interfaces (arrow.apache.org/docs/format/CDataInterface.html): three
 * plain structs of fixed layout, declared here so that the program builds without Arrow.
 */
#ifndef ARES_IO_ARROW_H
#define ARES_IO_ARROW_H

#include "ares/core.h"

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/*
 * Adds row i of a batch to out as a JSON object; fields that are null are left out, and columns
 * with a value that JSON has no form for, of which it warns unless left_out has the column's name,
 * where it puts it. place: the file and row, for messages. *not_finite: set where a number had to
 * become null.
 */
void arrow_row(ares_str *out, const struct ArrowSchema *schema, const struct ArrowArray *batch,
               int64_t i, const char *place, bool *not_finite, ares_map *left_out);
#endif
