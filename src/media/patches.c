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

void ares_medium_patches(const ares_medium *m, const ares_processor *p, const uint8_t *pixels,
                         float *patches)
{
    float table[3][256];
    fill_table(p, table);
    int32_t side = p->patch, merge = p->merge;
    int64_t area = (int64_t)side * side, row = (int64_t)m->grid.w * side * 3,
            frame = row * m->grid.h * side, plane = p->temporal * area;
    for (int32_t t = 0; t < m->grid.t; t++)
        for (int32_t by = 0; by < m->grid.h; by += merge)
            for (int32_t bx = 0; bx < m->grid.w; bx += merge)
                for (int32_t y = by; y < by + merge; y++)
                    for (int32_t x = bx; x < bx + merge; x++, patches += 3 * plane)
                        for (int32_t k = 0; k < p->temporal; k++) {
                            int32_t f = ARES_MIN(t * p->temporal + k, m->frames - 1);
                            int32_t before = t * p->temporal + k - 1;
                            if (k > 0 &&
                                before >= m->frames - 1) { /* the frame of the time before */
                                for (int c = 0; c < 3; c++)
                                    memcpy(patches + c * plane + k * area,
                                           patches + c * plane + (k - 1) * area,
                                           (size_t)area * sizeof *patches);
                                continue;
                            }
                            const uint8_t *at =
                                pixels + f * frame + ((int64_t)y * row + (int64_t)x * 3) * side;
                            write_patch(table, at, row, side, patches + k * area, plane);
                        }
}
