/*
 * Parquet by Arrow's C++, which only libares_parquet.so knows. It is opened when the first Parquet
 * file is: the program starts, and builds, without it. Batches are small, so a file of gigabytes
 * takes tens of megabytes.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ares/core_file.h"
#include "arrow.h"
#include "parquet.h"

enum { BATCH_ROWS = 256 };

struct parquet {
    char *path;
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    int64_t at, row; /* in the batch, in the file from 1 */
    bool warned, ended;
    ares_map *left_out; /* columns that cannot be read, by name */
};

typedef int stream_fn(const char *path, int batch_rows, struct ArrowArrayStream *out, char *error,
                      size_t error_size);

bool parquet_is(const char *path)
{
    static const char *const others[] = { "{", "[", "\x1f\x8b", "\x28\xb5\x2f\xfd" };
    char first[9] = "";
    const char *why;
    size_t n = strlen(path);
    bool named = n > 8 && !strcmp(path + n - 8, ".parquet"), other = false;
    int fd = ares_file_open(path, &why);
    if (fd < 0) return named;
    ssize_t there = pread(fd, first, sizeof first - 1, 0);
    close(fd);
    for (int i = 0; i < ARES_COUNT(others); i++)
        other = other || !strncmp(first, others[i], strlen(others[i]));
    return (there >= 4 && !memcmp(first, "PAR1", 4)) || (named && !other);
}

static int find_stream(const char *file, stream_fn **out)
{
    static stream_fn *found;
    char path[4200];
    if ((*out = found)) return ARES_OK;
    ares_path_of_program("ARES_PARQUET_LIB", "libares_parquet.so", path, sizeof path);
    if (access(path, R_OK) != 0)
        return ares_fail(ARES_EUNSUPPORTED,
                         "io: %s: this build does not read Parquet (no %s); run scripts/setup.sh "
                         "--parquet and build again, or convert the file to JSON lines",
                         file, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays open: Arrow has static state */
    if (!library)
        return ares_fail(ARES_EUNSUPPORTED,
                         "io: %s: Parquet: %s; run scripts/setup.sh --parquet and build again",
                         file, dlerror());
    *(void **)&found = dlsym(library, "ares_parquet_stream");
    if ((*out = found)) return ARES_OK;
    return ares_fail(ARES_EUNSUPPORTED, "io: %s: %s is of another version; build it again", file,
                     path);
}

int parquet_open(const char *path, parquet **out)
{
    char why[512] = "";
    stream_fn *stream;
    const char *no_file;
    int fd = ares_file_open(path, &no_file); /* Arrow would wait for a pipe */
    if (no_file) return ares_fail(ARES_EIO, "io: %s: %s", path, no_file);
    close(fd);
    ARES_TRY(find_stream(path, &stream));
    parquet *p = ares_calloc(1, sizeof *p);
    p->path = ares_strdup(path);
    p->left_out = ares_map_new();
    int rc = ARES_OK;
    if (stream(path, BATCH_ROWS, &p->stream, why, sizeof why) != 0)
        rc = ares_fail(ARES_EFORMAT, "io: %s: not a Parquet file that can be read: %s", path, why);
    else if (p->stream.get_schema(&p->stream, &p->schema) != 0)
        rc = ares_fail(ARES_EFORMAT, "io: %s: Parquet: %s", path,
                       p->stream.get_last_error(&p->stream));
    if (rc != ARES_OK) parquet_close(p);
    else *out = p;
    return rc;
}

/* Makes p->at a row of p->batch: 1, or 0 at the end. */
static int fill(parquet *p)
{
    while (!p->ended && (!p->batch.release || p->at == p->batch.length)) {
        if (p->batch.release) p->batch.release(&p->batch);
        p->batch.release = NULL;
        p->at = 0;
        if (p->stream.get_next(&p->stream, &p->batch) != 0) {
            p->batch.release = NULL;
            p->ended = true;
            const char *why = p->stream.get_last_error(&p->stream);
            return ares_fail(ARES_EIO, "io: %s: damaged from row %lld or soon after it on: %s",
                             p->path, (long long)p->row + 1, why ? why : "unknown");
        }
        p->ended = !p->batch.release;
    }
    return !p->ended;
}

int parquet_next(parquet *p, ares_str *row)
{
    char place[4200];
    bool not_finite = false;
    ares_str_clear(row);
    int rc = fill(p);
    if (rc <= 0) return rc;
    snprintf(place, sizeof place, "%s:%lld", p->path, (long long)++p->row);
    arrow_row(row, &p->schema, &p->batch, p->at++, place, &not_finite, p->left_out);
    if (not_finite && !p->warned)
        ares_warn("io: %s: numbers that are not finite are read as null, from this row on", place);
    p->warned |= not_finite;
    return 1;
}

void parquet_close(parquet *p)
{
    if (!p) return;
    if (p->batch.release) p->batch.release(&p->batch);
    if (p->schema.release) p->schema.release(&p->schema);
    if (p->stream.release) p->stream.release(&p->stream);
    ares_map_free(p->left_out);
    ares_free(p->path);
    ares_free(p);
}
