/*
 * gzip by zlib and zstd by libzstd, behind a FILE, so that readers do not know of them. Both are
 * optional parts of the build. Files of several members or frames are read to their end, and a file
 * that ends within one is a failure.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/io.h"
#include "compressed.h"

#ifdef ARES_HAVE_COMPRESSED
#include <zlib.h>
#include <zstd.h>

/* A small file can hold an endless line, and a line lies in memory whole. */
#define MAX_LINE ((int64_t)1 << 30)

typedef struct packed {
    gzFile gzip; /* or: */
    FILE *zstd;
    ZSTD_DCtx *context;
    ZSTD_inBuffer in;
    char *in_data;
    size_t in_cap, state; /* 0: at the end of a frame */
    bool full;            /* the last call filled its output, so the decoder may hold more */
    int64_t line;         /* bytes since the last newline */
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

static ssize_t read_gzip(packed *p, char *data, size_t size)
{
    int code, n = gzread(p->gzip, data, (unsigned)(size < 1 << 20 ? size : 1 << 20));
    if (n > 0) return n;
    const char *text = gzerror(p->gzip, &code);
    if (code == Z_ERRNO) return -1;
    if (code == Z_BUF_ERROR) *p->why = "the file ends early, within its gzip stream";
    else if (code != Z_OK && code != Z_STREAM_END)
        *p->why = strstr(text, "check") ? "damaged: its gzip check sum does not match"
                                        : "damaged gzip data";
    return *p->why ? -1 : n;
}

static ssize_t read_zstd(packed *p, char *data, size_t size)
{
    for (;;) {
        if (p->in.pos == p->in.size && !p->full) {
            p->in = (ZSTD_inBuffer){ p->in_data, fread(p->in_data, 1, p->in_cap, p->zstd), 0 };
            if (ferror(p->zstd)) return -1;
            if (!p->in.size && p->state) *p->why = "the file ends early, within a zstd frame";
            if (!p->in.size) return p->state ? -1 : 0;
        }
        ZSTD_outBuffer out = { data, size, 0 };
        p->state = ZSTD_decompressStream(p->context, &out, &p->in);
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
    ssize_t n = p->gzip ? read_gzip(p, data, size) : read_zstd(p, data, size);
    const char *newline = n > 0 ? memrchr(data, '\n', (size_t)n) : NULL;
    if (n > 0) p->line = newline ? data + n - newline - 1 : p->line + n;
    if (p->line <= MAX_LINE) return n;
    *p->why = "a line unpacks to more than 1 GiB";
    return -1;
}

static int packed_close(void *cookie)
{
    packed *p = cookie;
    if (p->gzip) (void)gzclose_r(p->gzip);
    if (p->zstd) fclose(p->zstd);
    ZSTD_freeDCtx(p->context);
    ares_free(p->in_data);
    ares_free(p);
    return 0;
}

static FILE *unpack(FILE *file, bool is_gzip, const char **why)
{
    packed *p = ares_calloc(1, sizeof *p);
    p->why = why;
    if (is_gzip) {
        int fd = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0); /* gzclose closes its own */
        fclose(file);
        if (fd >= 0 && !(p->gzip = gzdopen(fd, "rb"))) close(fd);
    } else {
        p->zstd = file;
        p->context = ZSTD_createDCtx();
        p->in_cap = ZSTD_DStreamInSize();
        p->in_data = ares_calloc(1, p->in_cap);
    }
    FILE *out = NULL;
    if (p->gzip || p->context)
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

int compressed_open(const char *path, FILE **out, const char **why)
{
    unsigned char magic[4] = { 0 };
    struct stat about;
    *why = NULL;
    FILE *f = *out = fopen(path, "rbe");
    if (!f) return ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
    /* a pipe cannot be looked into */
    if (fstat(fileno(f), &about) != 0 || !S_ISREG(about.st_mode) ||
        pread(fileno(f), magic, 4, 0) < 2)
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
