#include "kernels_test.h"

TEST(rope_turns_pairs_half_a_head_apart_back_again_and_without_angles_not_at_all)
{
    static const int dims[] = { 2, 6, 32, 64, 80, 128 };
    for (int s = 0; s < ARES_COUNT(dims); s++) {
        int rows = 33, heads = 3, hd = dims[s], half = hd / 2, ld = heads * hd + 2;
        size_t bytes = (size_t)rows * (size_t)ld * 4;
        float *start = normals(1, (int64_t)rows * ld, 1),
              *angle = normals(2, (int64_t)rows * half, 3), *first = NULL;
        float *table = filled((int64_t)rows * hd, 0), *x = filled((int64_t)rows * ld, 0);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < half; i++) {
                table[r * hd + i] = cosf(angle[r * half + i]);
                table[r * hd + half + i] = sinf(angle[r * half + i]);
            }
        for (int n = 0; n < ISAS; n++) {
            ares_device d;
            if (!device_of(isas[n], 2, &d)) continue;
            memcpy(x, start, bytes);
            d.k->rope(&d, rows, heads, hd, 0, x, ld, NULL, false);
            CHECK_MEM(x, start, bytes);
            d.k->rope(&d, rows, heads, hd, 0, x, ld, table, false);
            if (!first) {
                first = filled((int64_t)rows * ld, 0);
                memcpy(first, x, bytes);
                for (int r = 0; r < rows; r++)
                    for (int c = 0; c < ld; c++) {
                        int h = c / hd, i = c % hd;
                        const float *head = start + r * ld + h * hd;
                        double want = start[r * ld + c], size = 0;
                        if (h < heads) {
                            double co = table[r * hd + i % half],
                                   si = table[r * hd + half + i % half];
                            want = i < half ? head[i] * co - head[i + half] * si
                                            : head[i] * co + head[i - half] * si;
                            size = fabs((double)head[i]) + fabs((double)head[(i + half) % hd]);
                        }
                        CHECK_NEAR(x[r * ld + c], want, 2 * 0x1p-24 * size);
                    }
            }
            CHECK_MEM(x, first, bytes);
            d.k->rope(&d, rows, heads, hd, 0, x, ld, table, true);
            for (int i = 0; i < rows * ld; i++)
                if (!CHECK_NEAR(x[i], start[i], 1e-5)) break;
            ares_device_close(&d);
        }
        ares_free(start), ares_free(angle), ares_free(first), ares_free(table), ares_free(x);
    }
}
