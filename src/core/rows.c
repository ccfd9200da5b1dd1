/*
 * Rows of data files, one after the other, as JSON text. In order: compressed files, Arrow's
 * arrays, Parquet, JSON lines.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/io.h"

/*
 * gzip by zlib and zstd by libzstd, behind a FILE, so that readers do not know of them. Both are
 * optional parts of the build. Files of several members or frames are read to their end. A file
 * that ends within one, or that has other bytes than zeros after the last, is a failure.
 */

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
    size_t state;     /* 0: at the end of a member or frame */
    bool full;        /* the last call filled its output, so the decoder may hold more */
    int64_t line;     /* bytes since the last newline */
    const char **why; /* where the opener wants the reason of a failed read */
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

/* Up to size bytes; 0 at the end of the last member, -1 after a failure, whose reason is *why. */
static ssize_t read_gzip(packed *p, char *data, size_t size)
{
    z_stream *z = &p->gzip;
    size_t most = ARES_MIN(size, (size_t)1 << 30);
    if (!size) return 0;
    for (;;) {
        /* between two members: passes over zeros, with which some tools fill a file up */
        while (!p->state && more_input(p) && !p->in_data[p->in_pos]) p->in_pos++;
        bool more = (p->state && p->full) || more_input(p);
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
            /* the first bytes were gzip's, so another header is no other format but damage */
            const char *message = z->msg ? z->msg : "";
            *p->why = strstr(message, "header check")
                          ? "damaged: bytes that are not gzip follow its gzip data"
                      : strstr(message, "check") ? "damaged: its gzip check sum does not match"
                                                 : "damaged gzip data";
            return -1;
        }
        if (z->avail_out < most) return (ssize_t)(most - z->avail_out);
    }
}

/* The same for zstd. */
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

/* The read of a FILE over compressed bytes. */
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

/* The close of that FILE. */
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

#else
int64_t ares_deflated_bytes(ares_view text)
{
    (void)text;
    return -1;
}
#endif

static bool begins_gzip(const unsigned char *magic)
{
    return !memcmp(magic, "\x1f\x8b", 2);
}
static bool begins_zstd(const unsigned char *magic)
{
    return !memcmp(magic, "\x28\xb5\x2f\xfd", 4) ||
           (magic[0] >> 4 == 5 && !memcmp(magic + 1, "\x2a\x4d\x18", 3));
}

/*
 * Opens path, with `input` as ares_input_open does. The first bytes and not the name tell gzip and
 * zstd from a plain file; fclose closes everything. After a failed read *why is the reason, or NULL
 * where errno says it.
 */
static int compressed_open(const char *path, bool input, FILE **out, const char **why)
{
    unsigned char magic[4] = { 0 };
    struct stat about;
    int fd = input ? ares_input_open(path, why) : ares_file_open(path, why);
    if (*why) return ares_fail(ARES_EIO, "io: %s: %s", path, *why);
    FILE *f = *out = fdopen(fd, "rb");
    /* a pipe cannot be looked into */
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || pread(fd, magic, 4, 0) < 2)
        return ARES_OK;
    bool is_gzip = begins_gzip(magic), is_zstd = begins_zstd(magic);
    if (!is_gzip && !is_zstd) return ARES_OK;
#ifdef ARES_HAVE_COMPRESSED
    /* a FILE of the plain bytes, which owns the packed one */
    packed *p = ares_calloc(1, sizeof *p);
    p->why = why;
    p->file = f;
    p->in_cap = ZSTD_DStreamInSize();
    p->in_data = ares_calloc(1, p->in_cap);
    bool ready = is_gzip ? inflateInit2(&p->gzip, MAX_WBITS + 16) == Z_OK /* gzip's header */
                         : (p->context = ZSTD_createDCtx()) != NULL;
    *out = NULL;
    if (ready)
        *out = fopencookie(p, "rb",
                           (cookie_io_functions_t){ .read = packed_read, .close = packed_close });
    if (*out) return ARES_OK;
    packed_close(p);
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

/*
 * Rows of Arrow arrays as JSON. A struct keeps only the fields that are not null, because Parquet
 * gives every row all of them: a row is then what it was as JSON lines. A map is a list of
 * {key, value}; dates and times are ISO 8601 text; integers are written digit by digit; bytes that
 * are no text are base64, and so are those of {bytes, path}, the hub's form of pictures.
 */

enum { MAX_DEPTH = 64 }; /* lists and structs within each other: put_value recurses */

typedef struct walk {
    ares_str *out;
    const char *place, *column; /* for messages: the file and row, the column of the row */
    bool not_finite;            /* a number of the row had to become null */
    bool medium;                /* the value is the bytes of a picture or a sound */
    int depth;                  /* of the value; 0: a column of the row */
    ares_map *left_out;         /* names of columns that were warned about */
} walk;

/* Bit i of a validity bitmap or of an array of booleans. */
static bool bit(const void *bits, int64_t i)
{
    return ((const uint8_t *)bits)[i >> 3] >> (i & 7) & 1;
}

/* A value that JSON has no form for: its column is left out (put_struct). */
static int refused(const walk *w, const char *why, const char *format)
{
    return ares_fail(ARES_EUNSUPPORTED,
                     "io: %s: column '%s': %s (Arrow's type '%s'); rows are read without it: write "
                     "it as text where it is needed",
                     w->place, w->column, why, format);
}

/* Element i of an integer array, by the format's letter. */
static bool integer(char format, const void *data, int64_t i, int64_t *x)
{
    switch (format) {
    case 'c': *x = ((const int8_t *)data)[i]; return true;
    case 'C': *x = ((const uint8_t *)data)[i]; return true;
    case 's': *x = ((const int16_t *)data)[i]; return true;
    case 'S': *x = ((const uint16_t *)data)[i]; return true;
    case 'i': *x = ((const int32_t *)data)[i]; return true;
    case 'I': *x = ((const uint32_t *)data)[i]; return true;
    case 'l': *x = ((const int64_t *)data)[i]; return true;
    default: return false;
    }
}

/* The same for an array of half (e), single (f) or double precision (g). */
static bool real(char format, const void *data, int64_t i, double *x)
{
    switch (format) {
    case 'e': { /* bits of IEEE's half precision: sign 1, exponent 5, mantissa 10 */
        int h = ((const uint16_t *)data)[i], e = h >> 10 & 31, m = h & 1023;
        *x = e == 31 ? (m ? NAN : INFINITY) : ldexp(e ? m + 1024 : m, (e ? e : 1) - 25);
        if (h >> 15) *x = -*x;
        return true;
    }
    case 'f': *x = (double)((const float *)data)[i]; return true;
    case 'g': *x = ((const double *)data)[i]; return true;
    default: return false;
    }
}

/* Bounds of element i of a string or list, whose offsets have 4 bytes, or 8 for capital letters. */
static void bounds_of(bool large, const void *offsets, int64_t i, int64_t *from, int64_t *to)
{
    const int32_t *small = offsets;
    const int64_t *big = offsets;
    *from = large ? big[i] : small[i];
    *to = large ? big[i + 1] : small[i + 1];
}

/* Rounds down: times before 1970 are negative, and -1 / 86400 is day -1, not 0. */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* The proleptic Gregorian calendar, from days since 1970 (Hinnant, days_from_civil). */
static void add_date(ares_str *s, int64_t days)
{
    days += 719468; /* since 0000-03-01 */
    int64_t era = floor_div(days, 146097), doe = days - era * 146097,
            yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365,
            doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153,
            day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9,
            year = yoe + era * 400 + (month <= 2);
    ares_str_addf(s, "%04" PRId64 "-%02" PRId64 "-%02" PRId64, year, month, day);
}

/*
 * format: "tdD" (days), or "ts", unit, ":", zone; a time with a zone counts in UTC.
 * Day 19723 becomes "2024-01-01", and 1500 of "tsm:UTC" becomes "1970-01-01T00:00:01.500Z".
 */
static int put_time(walk *w, const char *f, const void *data, int64_t at)
{
    static const char units[] = "smun";
    ares_str s = { 0 };
    const char *unit = f[1] == 's' && f[2] ? strchr(units, f[2]) : NULL;
    if (!strcmp(f, "tdD")) add_date(&s, ((const int32_t *)data)[at]);
    else if (unit) {
        int digits = (int)(unit - units) * 3; /* of a second: s 0, m 3, u 6, n 9 */
        int64_t per = 1, x = ((const int64_t *)data)[at];
        for (int i = 0; i < digits; i++) per *= 10;
        int64_t second = floor_div(x, per), day = floor_div(second, 86400),
                t = second - day * 86400;
        add_date(&s, day);
        ares_str_addf(&s, "T%02d:%02d:%02d", (int)(t / 3600), (int)(t / 60 % 60), (int)(t % 60));
        if (digits) ares_str_addf(&s, ".%0*" PRId64, digits, x - second * per);
        if (f[3] == ':' && f[4]) ares_str_add_z(&s, "Z");
    } else return refused(w, "times of this kind are not read", f);
    ares_json_write_string(w->out, ares_str_view(&s));
    ares_str_fini(&s);
    return ARES_OK;
}

/* Buffer 0 is the bitmap of valid elements; without one all are valid. Type "n" has only nulls. */
static bool is_null(const struct ArrowSchema *schema, const struct ArrowArray *a, int64_t at)
{
    return !strcmp(schema->format, "n") ||
           (a->null_count != 0 && a->n_buffers > 0 && a->buffers[0] && !bit(a->buffers[0], at));
}

static int put_value(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                     int64_t i);

/* at: the row, with the struct's own offset; put_value adds the offset of a child. */
static int put_struct(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                      int64_t at)
{
    bool has_path = false; /* a member "path" beside "bytes": the hub's form of a picture */
    for (int64_t k = 0; k < schema->n_children; k++)
        has_path = has_path || !strcmp(schema->children[k]->name, "path");
    ares_json_begin(w->out, '{');
    for (int64_t k = 0; k < schema->n_children; k++) {
        const struct ArrowSchema *field = schema->children[k];
        int depth = w->depth;
        size_t before = w->out->len;
        if (!depth) w->column = field->name;
        if (is_null(field, a->children[k], a->children[k]->offset + at)) continue;
        ares_json_key(w->out, field->name);
        w->depth++;
        w->medium = has_path && !strcmp(field->name, "bytes");
        int rc = put_value(w, field, a->children[k], at);
        w->medium = false;
        w->depth = depth;
        if (rc == ARES_OK) continue;
        if (depth) return rc; /* the column of the row decides: it is left out whole */
        if (!ares_map_get(w->left_out, ares_view_of(field->name), NULL))
            ares_warn("%s", ares_error_message());
        ares_map_put(w->left_out, ares_view_of(field->name), 1);
        ares_error_clear();
        w->out->len = before; /* takes back what the column has written */
        w->out->data[before] = 0;
    }
    ares_json_end(w->out, '}');
    return ARES_OK;
}

/*
 * d:PRECISION,SCALE: an integer of 16 bytes whose last SCALE digits follow the point; 1250 of d:9,2
 * becomes 12.50.
 */
static int put_decimal(walk *w, const char *format, const void *data, int64_t at)
{
    char digits[48];
    int n = ARES_COUNT(digits), scale = 0, bits = 128;
    __extension__ typedef unsigned __int128 u128;
    u128 x;
    (void)sscanf(format, "d:%*d,%d,%d", &scale, &bits);
    if (bits != 128 || scale < 0 || scale > 38)
        return refused(w, "decimals of this kind are not read", format);
    memcpy(&x, (const char *)data + at * 16, sizeof x);
    bool negative = x >> 127; /* two's complement; the digits come from the last to the first */
    if (negative) x = -x;
    for (int i = 0; i <= scale || x; i++, x /= 10) {
        if (i == scale && scale) digits[--n] = '.';
        digits[--n] = (char)('0' + (int)(x % 10));
    }
    if (negative) digits[--n] = '-';
    ares_json_splice(w->out, (ares_view){ digits + n, (size_t)(ARES_COUNT(digits) - n) });
    return ARES_OK;
}

/* u, U: text; z, Z, w:N: bytes; vu, vz: views of them. */
static int put_text(walk *w, const char *format, const struct ArrowArray *a, int64_t at)
{
    int64_t from = 0, to = 0;
    ares_view text;
    bool bytes = *format != 'u' && *format != 'U' && strcmp(format, "vu") != 0;
    if (*format == 'v') { /* short ones stand in the view itself, others in a buffer after it */
        struct {
            int32_t length, prefix, buffer, offset;
        } v;
        const char *p = (const char *)a->buffers[1] + at * (int64_t)sizeof v;
        memcpy(&v, p, sizeof v);
        text =
            (ares_view){ v.length <= 12 ? p + 4 : (const char *)a->buffers[2 + v.buffer] + v.offset,
                         (size_t)v.length };
    } else if (*format == 'w') {
        to = strtoll(format + 2, NULL, 10);
        text = (ares_view){ (const char *)a->buffers[1] + at * to, (size_t)to };
    } else {
        bounds_of(*format == 'U' || *format == 'Z', a->buffers[1], at, &from, &to);
        text =
            (ares_view){ to > from ? (const char *)a->buffers[2] + from : "", (size_t)(to - from) };
    }
    bool is_text = ares_view_is_utf8(text);
    if (bytes && (w->medium || !is_text)) { /* as base64 */
        static const char digits[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        ares_str coded = { 0 };
        for (size_t i = 0; i < text.len; i += 3) {
            size_t n = ARES_MIN(text.len - i, 3);
            uint32_t x = 0;
            for (size_t k = 0; k < 3; k++) x = x << 8 | (k < n ? (uint8_t)text.data[i + k] : 0);
            for (size_t k = 0; k < 4; k++)
                ares_str_add_char(&coded, k <= n ? digits[x >> (18 - 6 * k) & 63] : '=');
        }
        ares_json_write_string(w->out, ares_str_view(&coded));
        ares_str_fini(&coded);
    } else if (is_text) ares_json_write_string(w->out, text);
    else return refused(w, "holds a string that is not UTF-8", format);
    return ARES_OK;
}

/* Appends element i as JSON. Formats: arrow.apache.org/docs/format/CDataInterface.html. */
static int put_value(walk *w, const struct ArrowSchema *schema, const struct ArrowArray *a,
                     int64_t i)
{
    const char *f = schema->format;
    int64_t at = a->offset + i, x;
    double v;
    if (w->depth > MAX_DEPTH) return refused(w, "nested deeper than 64 levels", f);
    if (is_null(schema, a, at)) {
        ares_json_write_null(w->out);
        return ARES_OK;
    }
    const void *data = a->n_buffers > 1 ? a->buffers[1] : NULL;
    if (schema->dictionary) { /* the array holds indices into the dictionary */
        int64_t entry;
        if (!integer(*f, a->buffers[1], at, &entry) || entry < 0 || entry >= a->dictionary->length)
            return refused(w, "a dictionary's index is out of its range", f);
        return put_value(w, schema->dictionary, a->dictionary, entry);
    }
    if (!strcmp(f, "+s")) return put_struct(w, schema, a, at);
    if (*f == '+' && f[1] && strchr("lLmw", f[1])) {
        /* +l and +L: lists; +m: maps; +w:N: lists of N values */
        int64_t from, to;
        if (schema->format[1] == 'w') {
            int64_t size = strtoll(schema->format + 3, NULL, 10);
            from = at * size;
            to = from + size;
        } else bounds_of(schema->format[1] == 'L', a->buffers[1], at, &from, &to);
        ares_json_begin(w->out, '[');
        w->depth++;
        for (int64_t k = from; k < to; k++)
            ARES_TRY(put_value(w, schema->children[0], a->children[0], k));
        w->depth--;
        ares_json_end(w->out, ']');
        return ARES_OK;
    }
    if (*f == 't') return put_time(w, f, data, at);
    if (*f == 'd') return put_decimal(w, f, data, at);
    if (*f == 'w' || !strcmp(f, "vu") || !strcmp(f, "vz")) return put_text(w, f, a, at);
    if (strlen(f) != 1) return refused(w, "values of this kind are not read", f);
    if (strchr("uUzZ", *f)) return put_text(w, f, a, at);
    if (*f == 'b') ares_json_write_bool(w->out, bit(data, at));
    else if (*f == 'L') {
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%" PRIu64, ((const uint64_t *)data)[at]);
        ares_json_splice(w->out, (ares_view){ digits, (size_t)n });
    } else if (integer(*f, data, at, &x)) ares_json_write_i64(w->out, x);
    else if (real(*f, data, at, &v)) {
        w->not_finite |= !isfinite(v);
        ares_json_write_double(w->out, v); /* null where it is not finite */
    } else return refused(w, "values of this kind are not read", f);
    return ARES_OK;
}

/*
 * Parquet by Arrow's C++, which only libares_parquet.so knows. It is opened when the first Parquet
 * file is: the program starts, and builds, without it. Batches are small, so a file of gigabytes
 * takes tens of megabytes.
 */

enum { BATCH_ROWS = 256 }; /* rows that Arrow holds at a time */

typedef struct parquet {
    char *path;
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray batch;
    int64_t at, row; /* of the next row in the batch; number of the last one in the file, from 1 */
    bool warned, ended; /* warned: of numbers that became null; ended: no batch is left */
    ares_map *left_out; /* columns that cannot be read, by name */
} parquet;

/* ares_parquet_stream of parquet_arrow.cpp: 0, or -1 and the reason in `error` */
typedef int stream_fn(const char *path, int batch_rows, struct ArrowArrayStream *out, char *error,
                      size_t error_size);

/* Whether a file is one: its first bytes are PAR1, or its name ends in .parquet. */
static bool parquet_is(const char *path)
{
    /* JSON, gzip and zstd keep their meaning under a wrong name */
    static const char *const others[] = { "{", "[", "\x1f\x8b", "\x28\xb5\x2f\xfd" };
    char first[9] = "";
    const char *why;
    bool named = ares_ends_with(path, ".parquet"), other = false;
    int fd = ares_file_open(path, &why);
    if (fd < 0) return named;
    ssize_t there = pread(fd, first, sizeof first - 1, 0);
    close(fd);
    for (int i = 0; i < ARES_COUNT(others); i++)
        other = other || !strncmp(first, others[i], strlen(others[i]));
    return (there >= 4 && !memcmp(first, "PAR1", 4)) || (named && !other);
}

static void parquet_close(parquet *p);

/* Opens a file and reads its schema; rows come from parquet_next. */
static int parquet_open(const char *path, parquet **out)
{
    static stream_fn *stream; /* of the library, which is opened for the first file */
    char why[512] = "", of_library[4200];
    const char *no_file;
    int fd = ares_file_open(path, &no_file); /* Arrow would wait for a pipe */
    if (no_file) return ares_fail(ARES_EIO, "io: %s: %s", path, no_file);
    close(fd);
    if (!stream) {
        ares_path_of_program("ARES_PARQUET_LIB", "libares_parquet.so", of_library,
                             sizeof of_library);
        if (access(of_library, R_OK) != 0)
            return ares_fail(ARES_EUNSUPPORTED,
                             "io: %s: this build does not read Parquet (no %s); run "
                             "scripts/setup.sh --parquet and build again, or convert the file to "
                             "JSON lines",
                             path, of_library);
        /* stays open: Arrow has static state */
        void *library = dlopen(of_library, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return ares_fail(ARES_EUNSUPPORTED,
                             "io: %s: Parquet: %s; run scripts/setup.sh --parquet and build again",
                             path, dlerror());
        *(void **)&stream = dlsym(library, "ares_parquet_stream");
        if (!stream)
            return ares_fail(ARES_EUNSUPPORTED, "io: %s: %s is of another version; build it again",
                             path, of_library);
    }
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

/*
 * 1 and the text of the next row in *row, a JSON object; 0: the end; negative: a failure that names
 * file and row. Fields that are null are left out, and so is a column with a value that JSON has no
 * form for; put_struct warns of that once per column.
 */
static int parquet_next(parquet *p, ares_str *row)
{
    char place[4200];
    ares_str_clear(row);
    while (!p->ended && (!p->batch.release || p->at == p->batch.length)) { /* the next batch */
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
    if (p->ended) return 0;
    snprintf(place, sizeof place, "%s:%lld", p->path, (long long)++p->row);
    walk w = { .out = row, .place = place, .left_out = p->left_out };
    int rc = put_struct(&w, &p->schema, &p->batch, p->batch.offset + p->at++);
    ARES_ASSERT(rc == ARES_OK); /* a column that fails is left out of the row */
    if (w.not_finite && !p->warned)
        ares_warn("io: %s: numbers that are not finite are read as null, from this row on", place);
    p->warned |= w.not_finite;
    return 1;
}

static void parquet_close(parquet *p)
{
    if (!p) return;
    if (p->batch.release) p->batch.release(&p->batch);
    if (p->schema.release) p->schema.release(&p->schema);
    if (p->stream.release) p->stream.release(&p->stream);
    ares_map_free(p->left_out);
    ares_free(p->path);
    ares_free(p);
}

/* JSON lines. Only \n ends a line: U+2028 and \r belong to the row. */

struct ares_jsonl {
    parquet *parquet; /* the rows come from there, as text */
    ares_str text;
    FILE *file;
    const char *why; /* a compressed file could not be read */
    char *path;
    char *line; /* getline's, [cap]; without its newline after next_line */
    size_t cap;
    ssize_t len;
    int64_t number;   /* of the last line, from 1; of the last row in Parquet */
    ares_arena arena; /* of the row that was read last */
};

/* Parquet is told by parquet_is, compressed files by their first bytes; stdin is read as it is. */
static int open_lines(const char *path, bool input, ares_jsonl **out)
{
    ares_jsonl *r = ares_calloc(1, sizeof *r);
    bool is_stdin = input && strcmp(path, "-") == 0;
    int rc = ARES_OK;
    r->file = stdin;
    if (!is_stdin && parquet_is(path)) rc = parquet_open(path, &r->parquet);
    else if (!is_stdin) rc = compressed_open(path, input, &r->file, &r->why);
    if (rc != ARES_OK) {
        ares_free(r);
        return rc;
    }
    r->path = ares_strdup(is_stdin ? "stdin" : path);
    *out = r;
    return ARES_OK;
}

bool ares_jsonl_packed(const char *path)
{
    unsigned char magic[4] = { 0 };
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return false;
    const char *why = NULL;
    int fd = ares_file_open(path, &why);
    ssize_t n = why ? 0 : pread(fd, magic, sizeof magic, 0);
    if (!why) close(fd);
    return parquet_is(path) || (n == sizeof magic && (begins_gzip(magic) || begins_zstd(magic)));
}

int ares_jsonl_open(const char *path, ares_jsonl **out)
{
    return open_lines(path, false, out);
}

int ares_jsonl_open_input(const char *path, ares_jsonl **out)
{
    return open_lines(path, true, out);
}

/* Reads the next line that is not blank into r->line, without its newline: 1, or 0 at the end. */
static int next_line(ares_jsonl *r)
{
    for (;;) {
        errno = 0;
        r->len = getline(&r->line, &r->cap, r->file);
        if (ferror(r->file)) /* also where getline gives a part of a line */
            return ares_fail(ARES_EIO, "io: %s: after line %lld: %s", r->path, (long long)r->number,
                             r->why ? r->why : strerror(errno ? errno : EIO));
        if (r->len < 0) return 0;
        r->number++;
        if (r->len && r->line[r->len - 1] == '\n') r->line[--r->len] = 0;
        /* the byte order mark that some editors put before the first line */
        if (r->number == 1 && r->len >= 3 && memcmp(r->line, "\xef\xbb\xbf", 3) == 0) {
            r->len -= 3;
            memmove(r->line, r->line + 3, (size_t)r->len + 1);
        }
        if (strspn(r->line, " \t\r") < (size_t)r->len) return 1;
    }
}

/* ---------------- files that are something else */
#define READ "rows are read from JSON lines (also *.gz, *.zst), JSON lists (*.json) and Parquet"

/* Formats that are told by their first bytes, and what to do; a path follows where it is typed. */
static const struct {
    const char *begins, *what, *how;
    bool typed; /* the path follows `how` */
} formats[] = {
    { "PAR1", "Parquet that is packed once more", "unpack it: Parquet is compressed itself",
      false },
#define CONVERT(open)                                                          \
    "convert it: python3 -c 'import pyarrow as p, pyarrow.parquet as q, sys; " \
    "q.write_table(p.ipc." open "(p.memory_map(sys.argv[1])).read_all(), \"rows.parquet\")'"
    { "ARROW1", "Arrow", CONVERT("open_file"), true },
    { "\xff\xff\xff\xff", "Arrow", CONVERT("open_stream"), true },
#undef CONVERT
    { "PK\3\4", "a zip archive, as a spreadsheet is", "unpack it, or save it as one of these",
      false },
    { "BZh", "packed by bzip2", "unpack it: bunzip2 -k", true },
    { "\xfd\x37zXZ", "packed by xz", "unpack it: unxz -k", true },
    { "<!DOCTYPE", "a page of HTML", "download the file itself", false },
    { "<html", "a page of HTML", "download the file itself", false },
    { "SQLite format 3", "a database of SQLite", "write its rows as one of these", false },
    { "Obj\1", "Avro", "write its rows as one of these", false },
    { "ORC", "ORC", "write its rows as one of these", false },
};

int ares_jsonl_next(ares_jsonl *r, const ares_json **row, int64_t *line_number)
{
    int rc = r->parquet ? parquet_next(r->parquet, &r->text) : next_line(r);
    if (r->parquet && rc > 0) r->number++;
    if (line_number) *line_number = r->number;
    if (rc <= 0) return rc;
    ares_arena_reset(&r->arena);
    rc = ares_json_parse_line(&r->arena, ares_jsonl_line(r), r->path, r->number, row);
    if (r->number == 1 && !r->parquet && rc != ARES_OK) {
        /* the first line is no JSON: says what the file is, if that can be told */
        ares_view line = ares_jsonl_line(r);
        bool csv = ares_ends_with(r->path, ".csv"), tsv = ares_ends_with(r->path, ".tsv");
        for (int i = 0; i < ARES_COUNT(formats); i++) {
            bool typed = formats[i].typed;
            if (ares_view_starts(line, ares_view_of(formats[i].begins)))
                return ares_fail(ARES_EFORMAT, "io: %s: this is %s, and " READ "; %s%s%s%s",
                                 r->path, formats[i].what, formats[i].how, typed ? " '" : "",
                                 typed ? r->path : "", typed ? "'" : "");
        }
        if (csv || tsv)
            return ares_fail(
                ARES_EFORMAT,
                "io: %s: %s is not read; " READ "; convert it: python3 -c 'import csv, "
                "json, sys; [print(json.dumps(r)) for r in csv.DictReader(open("
                "sys.argv[1], newline=\"\")%s)]' '%s' > rows.jsonl",
                r->path, csv ? "CSV" : "TSV", csv ? "" : ", delimiter=\"\\t\"", r->path);
        /* it begins as an object, so the parser's own message says more */
        if (line.len && line.data[0] == '{') return ares_fail_in(rc, "io");
        if (line.len && line.data[0] == '[')
            return ares_fail_in(rc,
                                "io: a list of rows is read from a file whose name ends in .json, "
                                "and a line of JSON lines is an object");
        return ares_fail_in(rc, "io: " READ);
    }
    return rc == ARES_OK ? 1 : ares_fail_in(rc, "io");
}

ares_view ares_jsonl_line(const ares_jsonl *r)
{
    if (r->parquet) return ares_str_view(&r->text);
    return (ares_view){ r->line, r->len > 0 ? (size_t)r->len : 0 };
}

void ares_jsonl_close(ares_jsonl *r)
{
    if (!r) return;
    parquet_close(r->parquet);
    ares_str_fini(&r->text);
    if (r->file != stdin) fclose(r->file);
    ares_free(r->path);
    free(r->line); /* getline's */
    ares_arena_fini(&r->arena);
    ares_free(r);
}

/* Rows that are appended to a file; the struct is opaque in internal.h. */
struct jsonl_writer {
    int fd;
    char *path;
    ares_str buffer;
};

/* Cuts the file to its first keep_rows whole lines (< 0: to all of them), and appends to them. */
int jsonl_create(const char *path, int64_t keep_rows, jsonl_writer **out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
    char block[1 << 16];
    off_t at = 0, keep = 0; /* bytes read; bytes of the lines to keep */
    ssize_t n = 0;
    for (int64_t rows = keep_rows; rows != 0 && (n = pread(fd, block, sizeof block, at)) > 0;
         at += n)
        for (ssize_t i = 0; i < n && rows != 0; i++) {
            if (block[i] != '\n') continue;
            keep = at + i + 1;
            if (rows > 0) rows--;
        }
    if (n < 0 || ftruncate(fd, keep) != 0 || lseek(fd, keep, SEEK_SET) < 0) {
        int rc = ares_fail(ARES_EIO, "io: %s: %s", path, strerror(errno));
        close(fd);
        return rc;
    }
    int rc = ares_path_sync(path); /* the file may be new */
    if (rc != ARES_OK) {
        close(fd);
        return rc;
    }
    jsonl_writer *w = ares_calloc(1, sizeof *w);
    w->fd = fd;
    w->path = ares_strdup(path);
    *out = w;
    return ARES_OK;
}

/* The line and its end in one call of write, so that a kill leaves no two lines mixed. */
int jsonl_write(jsonl_writer *w, const char *line, size_t len)
{
    ares_str_clear(&w->buffer);
    ares_str_add(&w->buffer, line, len);
    ares_str_add_char(&w->buffer, '\n');
    return io_write_all(w->fd, w->path, w->buffer.data, w->buffer.len, -1);
}

int jsonl_sync(jsonl_writer *w)
{
    return fsync(w->fd) == 0 ? ARES_OK
                             : ares_fail(ARES_EIO, "io: %s: fsync: %s", w->path, strerror(errno));
}

int jsonl_finish(jsonl_writer *w)
{
    if (!w) return ARES_OK;
    int rc =
        close(w->fd) == 0 ? ARES_OK : ares_fail(ARES_EIO, "io: %s: %s", w->path, strerror(errno));
    ares_free(w->path);
    ares_str_fini(&w->buffer);
    ares_free(w);
    return rc;
}
