/* The exact KL to a reference's head against plain sums in f64, on every instruction set. */
#include <math.h>

#include "kernels_test.h"
#include "test.h"

/* Three chunks, the last one short; a reference of another width, with more rows than the
 * vocabulary. */
enum { ROWS = 5, K = 24, KR = 16, VOCAB = 1100, VOCAB_R = VOCAB + 40 };

typedef struct heads {
    float x[ROWS * K], xr[ROWS * KR], w[VOCAB * K], wr[VOCAB_R * KR];
    float log_prob[ROWS], entropy[ROWS], lse[ROWS], kl[ROWS], ref_lse[ROWS], c_log_prob[ROWS],
        c_entropy[ROWS], c_kl[ROWS], dx[ROWS * K];
    int32_t target[ROWS];
    double z[ROWS][VOCAB], zr[ROWS][VOCAB];
} heads;

static double uniform(uint64_t i)
{
    return ares_rng_uniform(ares_rng_root(11, ARES_RNG_TEST), i) - 0.5;
}

static void fill(heads *h, double temperature)
{
    for (int i = 0; i < ROWS * K; i++) h->x[i] = (float)uniform((uint64_t)i) * 4;
    for (int i = 0; i < VOCAB * K; i++) h->w[i] = (float)uniform(10000 + (uint64_t)i);
    for (int i = 0; i < ROWS * KR; i++) h->xr[i] = (float)uniform(100000 + (uint64_t)i) * 4;
    for (int i = 0; i < VOCAB_R * KR; i++) h->wr[i] = (float)uniform(200000 + (uint64_t)i);
    for (int r = 0; r < ROWS; r++) {
        h->target[r] = (r * 397 + 5) % VOCAB;
        h->c_log_prob[r] = (float)uniform(300000 + (uint64_t)r);
        h->c_entropy[r] = (float)uniform(400000 + (uint64_t)r);
        h->c_kl[r] = (float)uniform(500000 + (uint64_t)r);
        for (int v = 0; v < VOCAB; v++) {
            double z = 0, zr = 0;
            for (int k = 0; k < K; k++) z += (double)h->x[r * K + k] * (double)h->w[v * K + k];
            for (int k = 0; k < KR; k++)
                zr += (double)h->xr[r * KR + k] * (double)h->wr[v * KR + k];
            h->z[r][v] = z / temperature;
            h->zr[r][v] = zr / temperature;
        }
    }
}

static double lse_of(const double *z)
{
    double max = -INFINITY, sum = 0;
    for (int v = 0; v < VOCAB; v++) max = fmax(max, z[v]);
    for (int v = 0; v < VOCAB; v++) sum += exp(z[v] - max);
    return max + log(sum);
}

static void check_isa(const char *isa, double temperature)
{
    static heads h;
    ares_device d;
    if (!device_of(isa, 2, &d)) return;
    const ares_kernels *k = d.k;
    fill(&h, temperature);
    size_t bytes = sizeof(float) * (size_t)ares_matrix_elements(ARES_PANEL32, VOCAB, K),
           bytes_r = sizeof(float) * (size_t)ares_matrix_elements(ARES_PANEL32, VOCAB_R, KR);
    ares_matrix w = { k->alloc(&d, bytes), ARES_F32, ARES_PANEL32, VOCAB, K },
                wr = { k->alloc(&d, bytes_r), ARES_F32, ARES_PANEL32, VOCAB_R, KR },
                dw = { k->alloc(&d, bytes), ARES_F32, ARES_PANEL32, VOCAB, K };
    ares_matrix_pack(&w, h.w, ARES_F32);
    ares_matrix_pack(&wr, h.wr, ARES_F32);
    ares_head_args a = { .rows = ROWS,
                         .vocab = VOCAB,
                         .x = h.x,
                         .ldx = K,
                         .w = &w,
                         .inv_temperature = ares_inv_temperature((float)temperature),
                         .target = h.target,
                         .log_prob = h.log_prob,
                         .entropy = h.entropy,
                         .lse = h.lse,
                         .c_log_prob = h.c_log_prob,
                         .c_entropy = h.c_entropy,
                         .dx = h.dx,
                         .lddx = K,
                         .dw = &dw };
    float log_prob[ROWS], entropy[ROWS], lse[ROWS];
    k->head(&d, &a);
    memcpy(log_prob, h.log_prob, sizeof log_prob), memcpy(entropy, h.entropy, sizeof entropy),
        memcpy(lse, h.lse, sizeof lse);
    a.ref_x = h.xr, a.ld_ref = KR, a.ref_w = &wr, a.kl = h.kl, a.ref_lse = h.ref_lse,
    a.c_kl = h.c_kl;
    k->head(&d, &a);
    CHECK_MEM(h.log_prob, log_prob, sizeof log_prob); /* the reference does not change them */
    CHECK_MEM(h.entropy, entropy, sizeof entropy);
    CHECK_MEM(h.lse, lse, sizeof lse);
    k->head_backward(&d, &a);
    CHECK_OK(k->sync(&d));
    float *gradient = ares_calloc((size_t)VOCAB * K, sizeof *gradient);
    ares_matrix_unpack(&dw, gradient, ARES_F32);
    double *want_dw = ares_calloc((size_t)VOCAB * K, sizeof *want_dw);
    for (int r = 0; r < ROWS; r++) {
        double lse_p = lse_of(h.z[r]), lse_q = lse_of(h.zr[r]), kl = 0, want_dx[K] = { 0 },
               plain = 0;
        for (int v = 0; v < VOCAB; v++) {
            double lp = h.z[r][v] - lse_p;
            kl += exp(lp) * (lp - (h.zr[r][v] - lse_q));
            plain -= exp(lp) * lp;
        }
        CHECK_NEAR(h.kl[r], kl, 2e-6 * (1 + kl));
        CHECK_NEAR(h.ref_lse[r], lse_q, 2e-6 * (1 + fabs(lse_q)));
        for (int v = 0; v < VOCAB; v++) {
            double lp = h.z[r][v] - lse_p, lq = h.zr[r][v] - lse_q;
            double dz =
                -exp(lp) * ((double)h.c_log_prob[r] + (double)h.c_entropy[r] * (lp + plain)) +
                (double)h.c_kl[r] * exp(lp) * (lp - lq - kl);
            if (v == h.target[r]) dz += (double)h.c_log_prob[r];
            for (int i = 0; i < K; i++) {
                want_dx[i] += dz / temperature * (double)h.w[v * K + i];
                want_dw[v * K + i] += dz / temperature * (double)h.x[r * K + i];
            }
        }
        for (int i = 0; i < K; i++) CHECK_NEAR(h.dx[r * K + i], want_dx[i], 2e-6);
    }
    double off = 0;
    for (int i = 0; i < VOCAB * K; i++) off = fmax(off, fabs((double)gradient[i] - want_dw[i]));
    CHECK_MSG(off < 2e-6, "%s: dw is off by %g", isa, off);
    a.ref_x = h.x, a.ld_ref = K, a.ref_w = &w; /* the KL to itself is 0 */
    k->head(&d, &a);
    for (int r = 0; r < ROWS; r++) CHECK_NEAR(h.kl[r], 0, 1e-6);
    ares_free(gradient), ares_free(want_dw);
    k->release(&d, w.data, bytes), k->release(&d, wr.data, bytes_r), k->release(&d, dw.data, bytes);
    ares_device_close(&d);
}

TEST(the_exact_kl_and_its_derivative_are_those_of_plain_sums)
{
    for (int i = 0; i < ISAS; i++) {
        check_isa(isas[i], 1);
        check_isa(isas[i], 0.7);
    }
}

/* Memory for the work of a device grows with the first call that needs it, whichever that is. */
TEST(the_exact_kl_of_many_rows_may_be_the_first_work_of_a_device)
{
    enum { MANY = 300, WIDTH = 8, WORDS = 600 };
    static float x[MANY * WIDTH], words[WORDS * WIDTH], with[3][MANY], without[3][MANY], kl[MANY],
        ref_lse[MANY];
    static int32_t target[MANY];
    for (int i = 0; i < MANY * WIDTH; i++) x[i] = (float)uniform((uint64_t)i) * 4;
    for (int i = 0; i < WORDS * WIDTH; i++) words[i] = (float)uniform(50000 + (uint64_t)i);
    for (int exact = 0; exact < 2; exact++) {
        ares_device d;
        if (!CHECK_OK(ares_device_open("cpu", 1, &d))) return;
        size_t bytes = sizeof(float) * (size_t)ares_matrix_elements(ARES_PANEL32, WORDS, WIDTH);
        ares_matrix w = { d.k->alloc(&d, bytes), ARES_F32, ARES_PANEL32, WORDS, WIDTH };
        float(*out)[MANY] = exact ? with : without;
        ares_matrix_pack(&w, words, ARES_F32);
        ares_head_args a = { .rows = MANY,
                             .vocab = WORDS,
                             .x = x,
                             .ldx = WIDTH,
                             .w = &w,
                             .inv_temperature = 1,
                             .target = target,
                             .log_prob = out[0],
                             .entropy = out[1],
                             .lse = out[2] };
        if (exact) a.ref_x = x, a.ld_ref = WIDTH, a.ref_w = &w, a.kl = kl, a.ref_lse = ref_lse;
        d.k->head(&d, &a);
        CHECK_OK(d.k->sync(&d));
        d.k->release(&d, w.data, bytes);
        ares_device_close(&d);
    }
    CHECK_MEM(with, without, sizeof with);
    for (int r = 0; r < MANY; r++) CHECK_NEAR(kl[r], 0, 1e-6);
}
