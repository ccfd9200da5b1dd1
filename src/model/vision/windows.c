/* Where patches stand in a picture, and in which order attention sees them. */
#include "vision/tower.h"

void tower_angles(int32_t dim, int32_t n, float *cosine, float *sine)
{
    int32_t quarter = dim / 4;
    for (int32_t j = 0; j < quarter; j++) {
        float inverse = 1.0f / (float)ares_f64_pow(10000.0, (double)(2 * j) / (double)(dim / 2));
        for (int32_t at = 0; at < n; at++) {
            double angle = (double)((float)at * inverse);
            cosine[at * quarter + j] = (float)ares_f64_cos(angle);
            sine[at * quarter + j] = (float)ares_f64_sin(angle);
        }
    }
}

void tower_places(const ares_vision_config *v, ares_grid grid, int32_t *y, int32_t *x)
{
    int64_t n = 0;
    for (int32_t t = 0; t < grid.t; t++)
        for (int32_t by = 0; by < grid.h; by += v->merge)
            for (int32_t bx = 0; bx < grid.w; bx += v->merge)
                for (int32_t i = 0; i < v->merge * v->merge; i++, n++) {
                    y[n] = by + i / v->merge;
                    x[n] = bx + i % v->merge;
                }
}

int32_t tower_windows(const ares_vision_config *v, ares_grid grid, int32_t *order, int32_t *start)
{
    int32_t high = grid.h / v->merge, wide = grid.w / v->merge, n = 0, windows = 0;
    int32_t side = v->window ? v->window / v->merge / v->patch : ARES_MAX(high, wide);
    for (int32_t t = 0; t < grid.t; t++)
        for (int32_t wy = 0; wy < high; wy += side)
            for (int32_t wx = 0; wx < wide; wx += side) {
                start[windows++] = n;
                for (int32_t y = wy; y < ARES_MIN(wy + side, high); y++)
                    for (int32_t x = wx; x < ARES_MIN(wx + side, wide); x++)
                        order[n++] = (t * high + y) * wide + x;
            }
    start[windows] = n;
    return windows;
}
