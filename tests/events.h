/*
 * An event file of TensorBoard, read back: records with their checksums, and the fields of
 * protobuf.
 */
#ifndef TESTS_EVENTS_H
#define TESTS_EVENTS_H

#include "test.h"

#include <dirent.h>

/* CRC-32C with a table, independent of the writer's code */
static inline uint32_t masked_crc(const char *p, size_t n)
{
    static uint32_t table[256];
    for (uint32_t i = 0; i < 256 && !table[255]; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82f63b78u : table[i] >> 1;
    }
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) c = table[(c ^ (unsigned char)p[i]) & 255] ^ c >> 8;
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static inline uint64_t little(const char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

typedef struct field {
    int number, wire;
    uint64_t value;
    ares_view bytes;
} field;

/* The next field of a message; false at its end. */
static inline bool next_field(ares_view m, size_t *at, field *f)
{
    uint64_t v[2] = { 0, 0 };
    if (*at >= m.len) return false;
    for (int k = 0, n = 2; k < n; k++) { /* the key; then a number, or a length */
        if (k == 1 && ((v[0] & 7) == 1 || (v[0] & 7) == 5)) break;
        for (int shift = 0;; shift += 7) {
            if (!CHECK(*at < m.len && shift < 64)) return false;
            unsigned char c = (unsigned char)m.data[(*at)++];
            v[k] |= (uint64_t)(c & 127) << shift;
            if (c < 128) break;
        }
    }
    *f = (field){ .number = (int)(v[0] >> 3), .wire = (int)(v[0] & 7), .value = v[1] };
    size_t size = f->wire == 1 ? 8 : f->wire == 5 ? 4 : f->wire == 2 ? (size_t)v[1] : 0;
    if (!CHECK(size <= m.len - *at)) return false;
    f->bytes = (ares_view){ m.data + *at, size };
    if (f->wire == 1 || f->wire == 5) f->value = little(f->bytes.data, (int)size);
    *at += size;
    return true;
}

/* The nth field of that number. */
static inline bool get(ares_view m, int number, int nth, field *f)
{
    for (size_t at = 0; next_field(m, &at, f);)
        if (f->number == number && nth-- == 0) return true;
    return false;
}

static inline double as_double(const field *f)
{
    double x;
    memcpy(&x, &f->value, sizeof x);
    return x;
}

static inline double as_float(const field *f)
{
    uint32_t bits = (uint32_t)f->value;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* The nth event of a file; checks every checksum on the way. The view lies in `file`. */
static inline bool event(const ares_str *file, int nth, ares_view *out)
{
    for (size_t at = 0; at < file->len;) {
        if (!CHECK(file->len - at >= 16)) return false;
        uint64_t n = little(file->data + at, 8);
        CHECK_EQ(little(file->data + at + 8, 4), masked_crc(file->data + at, 8));
        if (!CHECK(n <= file->len - at - 16)) return false;
        *out = (ares_view){ file->data + at + 12, (size_t)n };
        CHECK_EQ(little(file->data + at + 12 + n, 4), masked_crc(out->data, out->len));
        at += 16 + n;
        if (nth-- == 0) return true;
    }
    return false;
}

/* Reads the nth event file of the run directory, in order of names. */
static inline bool events_of(const char *dir, int nth, ares_str *out)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, NULL, alphasort);
    bool found = false;
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, ".tfevents.") && nth-- == 0) {
            ares_str path = { 0 };
            found = CHECK_OK(ares_file_read(ares_path_join(&path, dir, entries[i]->d_name), out));
            ares_str_fini(&path);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return found;
}
#endif
