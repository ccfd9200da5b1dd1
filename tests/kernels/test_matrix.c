#include "host.h"
#include "kernels_test.h"

static double f16_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 0 ? ldexp(m, -24) : e == 31 ? (m ? NAN : INFINITY) : ldexp(1024 + m, e - 25);
    return h & 0x8000 ? -v : v;
}

TEST(every_short_float_widens_exactly_and_narrows_back)
{
    int wrong = 0;
    for (uint32_t h = 0; h < 65536; h++) {
        double want = f16_value((uint16_t)h);
        float got = kernels_f16_to_f32((uint16_t)h), b = kernels_bf16_to_f32((uint16_t)h);
        wrong += isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want);
        wrong += isnan(want) ? !isnan(kernels_f16_to_f32(kernels_f32_to_f16(got)))
                             : kernels_f32_to_f16(got) != h;
        wrong += isnan(b) ? !isnan(kernels_bf16_to_f32(kernels_f32_to_bf16(b)))
                          : kernels_f32_to_bf16(b) != h;
    }
    CHECK_EQ(wrong, 0);
}

/* between neighbours lo and lo + 1: x goes to the nearer, a tie to the even one */
static uint16_t nearest(double x, uint16_t lo, double lo_value, double hi_value)
{
    double down = x - lo_value, up = hi_value - x;
    if (down != up) return down < up ? lo : (uint16_t)(lo + 1);
    return lo % 2 ? (uint16_t)(lo + 1) : lo;
}

TEST(narrowing_rounds_to_nearest_even)
{
    int wrong = 0;
    for (uint16_t h = 0; h < 0x7bff; h++)
        for (int part = 0; part <= 8; part++) {
            double lo = f16_value(h), hi = f16_value((uint16_t)(h + 1));
            float x = (float)(lo + (hi - lo) * part / 8);
            uint16_t want = nearest(x, h, lo, hi);
            wrong += kernels_f32_to_f16(x) != want;
            wrong += kernels_f32_to_f16(-x) != (want | 0x8000);
        }
    for (uint16_t h = 0; h < 0x7f7f; h++)
        for (int part = 0; part <= 8; part++) {
            double lo = kernels_bf16_to_f32(h), hi = kernels_bf16_to_f32((uint16_t)(h + 1));
            float x = (float)(lo + (hi - lo) * part / 8);
            wrong += kernels_f32_to_bf16(x) != nearest(x, h, lo, hi);
        }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(kernels_f32_to_f16(65519.0f), 0x7bff);
    CHECK_EQ(kernels_f32_to_f16(65520.0f), 0x7c00);
    CHECK_EQ(kernels_f32_to_f16(0x1p-26f), 0);
    CHECK_EQ(kernels_f32_to_bf16(3.4e38f), 0x7f80);
}

TEST(packing_puts_every_number_in_its_place_and_unpacking_returns_it)
{
    static const int shapes[][2] = { { 1, 1 }, { 31, 5 }, { 32, 64 }, { 33, 65 }, { 100, 130 } };
    for (int s = 0; s < ARES_COUNT(shapes); s++)
        for (int dtype = ARES_F32; dtype <= ARES_F16; dtype++)
            for (int file = ARES_F32; file <= ARES_F16; file++)
                for (int layout = ARES_ROWS; layout <= ARES_PANEL32_PAIRS; layout++) {
                    int n = shapes[s][0], k = shapes[s][1];
                    int64_t elements = ares_matrix_elements((ares_layout)layout, n, k);
                    ares_matrix f = { normals(1, (int64_t)n * k, 1), ARES_F32, ARES_ROWS, n, k };
                    void *disk = ares_calloc((size_t)(n * k), 4),
                         *back = ares_calloc((size_t)(n * k), 4);
                    ares_matrix w = { filled(elements, 9), (ares_dtype)dtype, (ares_layout)layout,
                                      n, k };
                    ares_matrix_unpack(&f, disk, (ares_dtype)file);
                    ares_matrix_pack(&w, disk, (ares_dtype)file);
                    ares_matrix_unpack(&w, back, (ares_dtype)file);
                    if (dtype == file || dtype == ARES_F32)
                        CHECK_MEM(back, disk, (size_t)(n * k) * ares_dtype_bytes((ares_dtype)file));
                    if (layout != ARES_ROWS && dtype == ARES_F32 && file == ARES_F32) {
                        int wrong = 0;
                        /* the odd inputs of a pair come first */
                        int64_t wide = layout == ARES_PANEL32 ? 1 : 2, in = (k + wide - 1) / wide;
                        for (int64_t at = 0; at < elements; at++) {
                            int64_t row = at / (32 * in * wide) * 32 + at / wide % 32,
                                    col = at / (32 * wide) % in * wide + wide - 1 - at % wide;
                            wrong += ((float *)w.data)[at] !=
                                     (row < n && col < k ? ((float *)f.data)[row * k + col] : 0.0f);
                            if (row < n && col < k)
                                wrong += ares_matrix_at((ares_layout)layout, k, row, col) != at;
                        }
                        CHECK_EQ(wrong, 0);
                    }
                    ares_free(f.data), ares_free(disk), ares_free(back), ares_free(w.data);
                }
}

TEST(a_device_that_is_not_there_is_named)
{
    ares_device d;
    CHECK_FAIL(ares_device_open("gpu", 1, &d), ARES_ECONFIG, "device = 'gpu': unknown");
    CHECK_FAIL(ares_device_open("cuda:x", 1, &d), ARES_ECONFIG, "device = 'cuda:x'");
    setenv("ARES_ISA", "avx3", 1);
    CHECK_FAIL(ares_device_open("cpu", 1, &d), ARES_ECONFIG, "ARES_ISA = 'avx3'");
    setenv("ARES_ISA", "plain", 1);
    if (CHECK_OK(ares_device_open("cpu", 1, &d))) {
        CHECK_STR(d.k->name, "cpu plain");
        ares_device_close(&d);
    }
    unsetenv("ARES_ISA");
    if (!ares_file_exists("/dev/nvidiactl"))
        CHECK_FAIL(ares_device_open("cuda", 1, &d), ARES_EDEVICE, "no CUDA device");
}
