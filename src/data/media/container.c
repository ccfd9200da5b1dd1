/*
 * Whether the file of a video ends early. FFmpeg takes the frames that are there and says nothing;
 * but MP4, Matroska and AVI say at their outermost level how long their parts are.
 */
#include <string.h>

#include "source.h"

static int ends_early(int64_t said, int64_t size)
{
    return ares_fail(ARES_EFORMAT, "it ends early: a part of it ends at byte %lld of %lld",
                     (long long)said, (long long)size);
}

static uint64_t big(const uint8_t *at, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++) x = x << 8 | at[i];
    return x;
}

/* Boxes: size (0: to the end, 1: in 8 bytes behind the name), name. */
static int check_boxes(const media_input *in)
{
    uint8_t head[16];
    int64_t at = 0;
    while (at < in->size) {
        size_t n = media_input_at(in, at, head, sizeof head);
        if (n < 8) return ends_early(at + 8, in->size);
        uint64_t bytes = big(head, 4), least = 8;
        if (bytes == 0) return ARES_OK;
        if (bytes == 1) bytes = n == 16 ? big(head + 8, 8) : 0, least = 16;
        if (bytes < least || bytes > INT64_MAX / 2)
            return ares_fail(ARES_EFORMAT, "a part of it at byte %lld has no size", (long long)at);
        if ((int64_t)bytes > in->size - at) return ends_early(at + (int64_t)bytes, in->size);
        at += (int64_t)bytes;
    }
    return ARES_OK;
}

/* Elements of EBML at the top: the header and the segment, each with a size of 1 to 8 bytes. */
static int check_elements(const media_input *in)
{
    int64_t at = 0;
    for (int i = 0; i < 2; i++) {
        uint8_t head[12] = { 0 };
        if (media_input_at(in, at, head, sizeof head) < 5) return ends_early(at + 5, in->size);
        int n = 1;
        while (n < 8 && !(head[4] & 0x80 >> (n - 1))) n++;
        uint64_t all = ((uint64_t)1 << 7 * n) - 1, bytes = big(head + 4, n) & all;
        if (bytes == all) return ARES_OK; /* written without a size */
        at += 4 + n;
        if ((int64_t)bytes > in->size - at) return ends_early(at + (int64_t)bytes, in->size);
        at += (int64_t)bytes;
    }
    return ARES_OK;
}

/* RIFF: a list after the other, where there is more than one */
static int check_lists(const media_input *in)
{
    uint8_t head[8];
    int64_t at = 0;
    while (media_input_at(in, at, head, 8) == 8 && memcmp(head, "RIFF", 4) == 0) {
        int64_t bytes = (int64_t)head[7] << 24 | head[6] << 16 | head[5] << 8 | head[4];
        if (bytes > in->size - at - 8) return ends_early(at + 8 + bytes, in->size);
        at += 8 + bytes + (bytes & 1);
    }
    return ARES_OK;
}

int media_container_check(const media_input *in)
{
    uint8_t head[12] = { 0 };
    size_t n = media_input_at(in, 0, head, sizeof head);
    if (n == 12 && memcmp(head + 4, "ftyp", 4) == 0) return check_boxes(in);
    if (n == 12 && memcmp(head, "\x1a\x45\xdf\xa3", 4) == 0) return check_elements(in);
    if (n == 12 && memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "AVI ", 4) == 0)
        return check_lists(in);
    return ARES_OK;
}
