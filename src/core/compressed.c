/*
 * gzip by zlib and zstd by libzstd, behind a FILE, so that readers do not know of them. Both are
 * optional parts of the build. Files of several members or frames are read to their end. A file
 * that ends within one, or that has other bytes than zeros after the last, is a failure.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/core_file.h"
#include "ares/io.h"
#include "compressed.h"

#ifdef ARES_HAVE_COMPRESSED
#include <zlib.h>
#include <zstd.h>

/* A small file can hold an endless line, and a line lies in memory whole. */
#define MAX_LINE ((int64_t)1 << 30)

typedef struct packed {
    FILE *file;
    z_stream gzip; /* or, where context is not NULL: */
    ZSTD_DCtx *context;
    char *in_data; /* [in_cap], of which in_size bytes hold input, read up to in_pos */
    size_t in_cap, in_size, in_pos;
    size_t state; /* 0: at the end of a member or frame */
    bool full;    /* the last call filled its output, so the decoder may hold more */
    int64_t line; /* bytes since the last newline */
    const char **why;
} packed;

int64_t ares_deflated_bytes(ares_view text)
{
    uLongf size = compressBound(text.len);
    Bytef *out = ares_malloc(size + 1);
    int rc = compress2(out, &size, (const Bytef *)text.data, text.len, Z_BEST_COMPRESSION);
    ares_free(out);
    ARES_ASSERT(rc == Z_OK);
    return (int64_t)size;
}

/* Reads more input where all of it is used up; false at the end of the file or after a failure. */
static bool more_input(packed *p)
{
    if (p->in_pos < p->in_size) return true;
    p->in_size = fread(p->in_data, 1, p->in_cap, p->file);
    p->in_pos = 0;
    return p->in_size > 0;
}

/* Between two members: zeros, with which some tools fill a file up, are passed over. */
static bool next_member(packed *p)
{
    while (more_input(p))
        if (p->in_data[p->in_pos]) return true;
        else p->in_pos++;
    return false;
}

/* What zlib's message means for a file whose first bytes are gzip's. */
static const char *gzip_fault(const char *message)
{
    if (strstr(message, "header check"))
        return "damaged: bytes that are not gzip follow its gzip data";
    return strstr(message, "check") ? "damaged: its gzip check sum does not match"
                                    : "damaged gzip data";
}

static ssize_t read_gzip(packed *p, char *data, size_t size)
{
    z_stream *z = &p->gzip;
    size_t most = ARES_MIN(size, (size_t)1 << 30);
    if (!size) return 0;
    for (;;) {
        bool more = p->state ? p->full || more_input(p) : next_member(p);
        if (ferror(p->file)) return -1;
        if (!more) {
            if (p->state) *p->why = "the file ends early, within its gzip stream";
            return p->state ? -1 : 0;
        }
        z->next_in = (Bytef *)p->in_data + p->in_pos;
        z->avail_in = (uInt)(p->in_size - p->in_pos);
        z->next_out = (Bytef *)data;
        z->avail_out = (uInt)most;
        p->state = 1;
        int code = inflate(z, Z_NO_FLUSH);
        p->in_pos = p->in_size - z->avail_in;
        p->full = z->avail_out == 0;
        if (code == Z_STREAM_END) {
            p->state = 0;
            code = inflateReset(z);
        }
        if (code != Z_OK && code != Z_BUF_ERROR) {
            *p->why = gzip_fault(z->msg ? z->msg : "");
            return -1;
        }
        if (z->avail_out < most) return (ssize_t)(most - z->avail_out);
    }
}

static ssize_t read_zstd(packed *p, char *data, size_t size)
{
    for (;;) {
        if (!p->full && !more_input(p)) {
            if (ferror(p->file)) return -1;
            if (p->state) *p->why = "the file ends early, within a zstd frame";
            return p->state ? -1 : 0;
        }
        ZSTD_inBuffer in = { p->in_data, p->in_size, p->in_pos };
        ZSTD_outBuffer out = { data, size, 0 };
        p->state = ZSTD_decompressStream(p->context, &out, &in);
        p->in_pos = in.pos;
        if (ZSTD_isError(p->state)) {
            *p->why = ZSTD_getErrorName(p->state);
            return -1;
        }
        p->full = out.pos == out.size;
        if (out.pos) return (ssize_t)out.pos;
    }
}

static ssize_t packed_read(void *cookie, char *data, size_t size)
{
    packed *p = cookie;
    if (*p->why) return -1;
    ssize_t n = p->context ? read_zstd(p, data, size) : read_gzip(p, data, size);
    const char *newline = n > 0 ? memrchr(data, '\n', (size_t)n) : NULL;
    if (n > 0) p->line = newline ? data + n - newline - 1 : p->line + n;
    if (p->line <= MAX_LINE) return n;
    *p->why = "a line unpacks to more than 1 GiB";
    return -1;
}

static int packed_close(void *cookie)
{
    packed *p = cookie;
    if (p->context) ZSTD_freeDCtx(p->context);
    else (void)inflateEnd(&p->gzip);
    fclose(p->file);
    ares_free(p->in_data);
    ares_free(p);
    return 0;
}

static FILE *unpack(FILE *file, bool is_gzip, const char **why)
{
    packed *p = ares_calloc(1, sizeof *p);
    p->why = why;
    p->file = file;
    p->in_cap = ZSTD_DStreamInSize();
    p->in_data = ares_calloc(1, p->in_cap);
    bool ready = is_gzip ? inflateInit2(&p->gzip, MAX_WBITS + 16) == Z_OK /* gzip's header */
                         : (p->context = ZSTD_createDCtx()) != NULL;
    FILE *out = NULL;
    if (ready)
        out = fopencookie(p, "rb",
                          (cookie_io_functions_t){ .read = packed_read, .close = packed_close });
    if (!out) packed_close(p);
    return out;
}
#else
int64_t ares_deflated_bytes(ares_view text)
{
    (void)text;
    return -1;
}
#endif

int compressed_open(const char *path, bool input, FILE **out, const char **why)
{
    unsigned char magic[4] = { 0 };
    struct stat about;
    int fd = input ? ares_input_open(path, why) : ares_file_open(path, why);
    if (*why) return ares_fail(ARES_EIO, "io: %s: %s", path, *why);
    FILE *f = *out = fdopen(fd, "rb");
    /* a pipe cannot be looked into */
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || pread(fd, magic, 4, 0) < 2)
        return ARES_OK;
    bool is_gzip = !memcmp(magic, "\x1f\x8b", 2),
         is_zstd = !memcmp(magic, "\x28\xb5\x2f\xfd", 4) ||
                   (magic[0] >> 4 == 5 && !memcmp(magic + 1, "\x2a\x4d\x18", 3));
    if (!is_gzip && !is_zstd) return ARES_OK;
#ifdef ARES_HAVE_COMPRESSED
    if ((*out = unpack(f, is_gzip, why))) return ARES_OK;
    return ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
#else
    fclose(f);
    *out = NULL;
    return ares_fail(ARES_EUNSUPPORTED,
                     "io: %s: compressed with %s, which this build does not read; install "
                     "zlib1g-dev and libzstd-dev and build again, or unpack the file first",
                     path, is_gzip ? "gzip" : "zstd");
#endif
}
