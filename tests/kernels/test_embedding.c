#include "kernels_test.h"

TEST(embedding_reads_rows_of_every_layout_and_dtype)
{
    int n = 70, k = 37, rows = 50, ld = k + 2;
    float *table = normals(1, (int64_t)n * k, 1), *kept = filled((int64_t)n * k, 0),
          *y = filled((int64_t)rows * ld, 0);
    int32_t ids[50];
    for (int i = 0; i < rows; i++) ids[i] = (i * 31) % n;
    for (int layout = ARES_ROWS; layout <= ARES_PANEL32_PAIRS; layout++)
        for (int dtype = ARES_F32; dtype <= ARES_BF16; dtype++)
            for (int i = 0; i < 2 * ISAS; i++) {
                float scale = i < ISAS ? 0 : 5.0596f;
                ares_device d;
                if (!device_of(isas[i % ISAS], 2, &d)) continue;
                ares_matrix e = { ares_calloc(
                                      (size_t)ares_matrix_elements((ares_layout)layout, n, k), 4),
                                  (ares_dtype)dtype, (ares_layout)layout, n, k };
                ares_matrix_pack(&e, table, ARES_F32);
                ares_matrix_unpack(&e, kept, ARES_F32);
                for (int at = 0; scale != 0 && at < n * k; at++) kept[at] *= scale;
                memset(y, 0, (size_t)(rows * ld) * 4);
                d.k->embedding(&d, &e, ids, rows, y, ld, scale);
                for (int r = 0; r < rows; r++) {
                    CHECK_MEM(y + r * ld, kept + ids[r] * k, (size_t)k * 4);
                    CHECK(y[r * ld + k] == 0);
                }
                ares_free(e.data);
                ares_device_close(&d);
            }
    ares_free(table), ares_free(kept), ares_free(y);
}

TEST(embedding_backward_adds_repeated_ids_in_row_order_whatever_the_cut)
{
    int n = 40, k = 90, rows = 200;
    float *start = normals(2, (int64_t)n * k, 1), *want = filled((int64_t)n * k, 0),
          *got = filled((int64_t)n * k, 0);
    float *dy = normals(3, (int64_t)rows * k, 1);
    int32_t ids[200];
    for (int i = 0; i < rows; i++) ids[i] = i * i % 13; /* many repeats */
    for (int layout = 2 * ARES_ROWS; layout <= 2 * ARES_PANEL32_PAIRS + 1; layout++) {
        float scale = layout % 2 ? 5.0596f : 0;
        memcpy(want, start, (size_t)(n * k) * 4);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < k; i++)
                want[ids[r] * k + i] += scale != 0 ? scale * dy[r * k + i] : dy[r * k + i];
        for (int i = 0; i < ISAS; i++)
            for (int pieces = 1; pieces <= 2; pieces++) {
                ares_device d;
                if (!device_of(isas[i], pieces, &d)) continue;
                ares_matrix e = {
                    ares_calloc((size_t)ares_matrix_elements((ares_layout)(layout / 2), n, k), 4),
                    ARES_F32, (ares_layout)(layout / 2), n, k
                };
                ares_matrix_pack(&e, start, ARES_F32);
                for (int p = 0; p < pieces; p++) {
                    int from = p * rows / pieces, count = (p + 1) * rows / pieces - from;
                    d.k->embedding_backward(&d, &e, ids + from, count, dy + from * k, k, scale);
                }
                ares_matrix_unpack(&e, got, ARES_F32);
                CHECK_MEM(got, want, (size_t)(n * k) * 4);
                ares_free(e.data);
                ares_device_close(&d);
            }
    }
    ares_free(start), ares_free(want), ares_free(got), ares_free(dy);
}
