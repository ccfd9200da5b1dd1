/* Decodes and resizes, one frame after the other: no more than one is held at its first size. */
#include <string.h>

#include "source.h"

/* ---------------- XXH64 (Yann Collet's xxHash), which reads 8 bytes at a time */
#define P1 11400714785074694791u
#define P2 14029467366897019727u
#define P3 1609587929392839161u
#define P4 9650029242287828579u
#define P5 2870177450012600261u

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}
static uint64_t word(const uint8_t *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}
static uint64_t round_of(uint64_t acc, uint64_t x)
{
    return rotate(acc + x * P2, 31) * P1;
}

uint64_t media_hash(const uint8_t *data, size_t n, uint64_t seed)
{
    uint64_t lane[4] = { seed + P1 + P2, seed + P2, seed, seed - P1 }, h = seed + P5;
    const uint8_t *end = data + n;
    if (n >= 32) {
        for (; end - data >= 32; data += 32)
            for (int i = 0; i < 4; i++) lane[i] = round_of(lane[i], word(data + 8 * i));
        h = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ round_of(0, lane[i])) * P1 + P4;
    }
    h += n;
    for (; end - data >= 8; data += 8) h = rotate(h ^ round_of(0, word(data)), 27) * P1 + P4;
    if (end - data >= 4) {
        uint32_t x;
        memcpy(&x, data, sizeof x);
        h = rotate(h ^ x * P1, 23) * P2 + P3;
        data += 4;
    }
    for (; data < end; data++) h = rotate(h ^ *data * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

/* ---------------- one frame */
typedef struct reading {
    const media_source *s;
    media_size to;
    uint8_t *spare; /* a frame of the size between both resizes; NULL: there is no first */
    uint8_t *out;
} reading;

/* Both resizes of frame i. */
static void take_frame(void *ctx, int32_t i, const uint8_t *rgb)
{
    const reading *r = ctx;
    if (r->spare) media_resample(r->s->filter, rgb, r->s->size, r->spare, r->s->sized);
    media_resample(MEDIA_TORCH_U8, r->spare ? r->spare : rgb, r->s->sized,
                   r->out + (size_t)i * (size_t)r->to.w * (size_t)r->to.h * 3, r->to);
}

static int decode(const media_entry *e, media_size want, uint8_t *rgb)
{
    media_input in;
    media_header header;
    ARES_TRY(media_entry_open(e, MEDIA_MOST_FILE, &in));
    int rc = media_header_read(&in, &header);
    if (rc == ARES_OK && (header.size.w != want.w || header.size.h != want.h)) rc = media_changed();
    if (rc == ARES_OK) rc = media_input_load(&in);
    if (rc == ARES_OK) rc = media_decode(&in, &header, e->place, rgb);
    media_input_close(&in);
    return rc;
}

static uint8_t *room(media_size s, int32_t frames)
{
    return ares_malloc((size_t)s.w * (size_t)s.h * 3 * (size_t)frames);
}

static int read_frames(const ares_medium *m, reading *r, uint8_t *rgb)
{
    const media_source *s = m->source;
    if (s->file) {
        int rc = media_video_read(s->entries, &s->chosen, s->size, rgb, take_frame, r);
        return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", s->entries->place);
    }
    for (int32_t i = 0; i < m->frames; i++) {
        int rc = decode(&s->entries[i], s->size, rgb);
        if (rc != ARES_OK) return ares_fail_in(rc, "%s", s->entries[i].place);
        take_frame(r, i, rgb);
    }
    return ARES_OK;
}

int ares_medium_read(const ares_medium *m, const ares_processor *p, uint8_t **pixels, uint64_t *key)
{
    const media_source *s = m->source;
    media_size to = { m->grid.w * p->patch, m->grid.h * p->patch };
    bool first = s->size.w != s->sized.w || s->size.h != s->sized.h;
    uint8_t *rgb = room(s->size, 1);
    reading r = { s, to, first ? room(s->sized, 1) : NULL, room(to, m->frames) };
    int rc = read_frames(m, &r, rgb);
    ares_free(rgb);
    ares_free(r.spare);
    *pixels = r.out;
    if (rc == ARES_OK) {
        uint64_t sizes[] = { m->video, (uint64_t)m->frames, (uint64_t)to.w, (uint64_t)to.h };
        *key = media_hash(r.out, (size_t)m->frames * (size_t)to.w * (size_t)to.h * 3,
                          media_hash((const uint8_t *)sizes, sizeof sizes, 0));
    } else {
        ares_free(r.out);
        *pixels = NULL;
    }
    return rc;
}
