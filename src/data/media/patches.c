/*
 * Bytes to the numbers that a tower reads. A byte has one value per channel, so that a table of 3 x
 * 256 holds all of them, computed in f32 as transformers does: the mean and the deviation times the
 * factor's inverse first, then one subtraction and one division.
 */
#include <string.h>

#include "ares/media.h"

static void fill_table(const ares_processor *p, float table[3][256])
{
    float scale = p->rescale ? (float)(1 / p->rescale_factor) : 1;
    for (int c = 0; c < 3; c++) {
        float m = p->mean[c] * scale, d = p->std[c] * scale;
        for (int b = 0; b < 256; b++)
            table[c][b] = p->normalize ? ((float)b - m) / d
                          : p->rescale ? (float)b * (float)p->rescale_factor
                                       : (float)b;
    }
}

int32_t ares_medium_tokens(const ares_medium *m, int32_t merge)
{
    return m->grid.t * m->grid.h * m->grid.w / (merge * merge);
}

/* One time of one patch: three planes, `plane` floats apart. at: its upper left pixel. */
static void write_patch(const float table[3][256], const uint8_t *at, int64_t row, int32_t side,
                        float *out, int64_t plane)
{
    for (int c = 0; c < 3; c++, out += plane)
        for (int32_t y = 0; y < side; y++) {
            const uint8_t *pixel = at + y * row + c;
            float *to = out + (int64_t)y * side;
            for (int32_t x = 0; x < side; x++) to[x] = table[c][pixel[3 * x]];
        }
}

/* One row: the times of a patch whose upper left pixel lies `at` bytes into each frame. */
static void write_row(const ares_medium *m, const ares_processor *p, const float table[3][256],
                      const uint8_t *pixels, int32_t t, int64_t at, float *out)
{
    int64_t area = (int64_t)p->patch * p->patch, plane = p->temporal * area,
            row = (int64_t)m->grid.w * p->patch * 3, frame = row * m->grid.h * p->patch;
    for (int32_t k = 0; k < p->temporal; k++, out += area) {
        int32_t f = t * p->temporal + k;
        if (k == 0 || f < m->frames)
            write_patch(table, pixels + ARES_MIN(f, m->frames - 1) * frame + at, row, p->patch, out,
                        plane);
        else /* no frame is left: the one of the time before */
            for (int c = 0; c < 3; c++)
                memcpy(out + c * plane, out + c * plane - area, (size_t)area * sizeof *out);
    }
}

void ares_medium_patches(const ares_medium *m, const ares_processor *p, const uint8_t *pixels,
                         int32_t first, int32_t n, float *patches)
{
    float table[3][256];
    fill_table(p, table);
    int32_t merge = p->merge, each = merge * merge, wide = m->grid.w / merge,
            frame = m->grid.h * m->grid.w;
    int64_t pixel = (int64_t)p->patch * 3, row = pixel * m->grid.w * p->patch,
            width = 3 * (int64_t)p->temporal * p->patch * p->patch;
    for (int32_t i = first; i < first + n; i++, patches += width) {
        int32_t block = i % frame / each, in = i % each, y = block / wide * merge + in / merge,
                x = block % wide * merge + in % merge;
        write_row(m, p, table, pixels, i / frame, y * row + x * pixel, patches);
    }
}
