/*
 * The most fp32 arithmetic this machine's cores can do: chains of fused multiply-adds in registers,
 * on every thread at once, with each vector width the processor has. The shares of the limit in
 * benchmarks/results divide by the best of these lines.
 */
#ifndef ARES_BENCHMARKS_LIMIT_H
#define ARES_BENCHMARKS_LIMIT_H

#if defined __x86_64__
#include <immintrin.h>
#elif defined __aarch64__
#include <arm_neon.h>
#endif
#include <stdio.h>
#include <time.h>

#include "ares/core.h"

/*
 * Twelve chains hide a latency of four cycles on two ports, and fit with their factors into the
 * registers of AVX2; aarch64 has up to four ports, and twice the registers.
 */
#ifdef __aarch64__
enum { CHAINS = 24, TURNS = 1 << 21 };
#else
enum { CHAINS = 12, TURNS = 1 << 21 };
#endif

#define FMA_LOOP(name, isa, vector, lanes, set1, fma)                \
    enum { lanes_##name = lanes };                                   \
    __attribute__((target(isa))) static float run_##name(void)       \
    {                                                                \
        vector c[CHAINS], x = set1(0.999999f), y = set1(1e-7f);      \
        for (int i = 0; i < CHAINS; i++) c[i] = set1((float)i);      \
        for (int t = 0; t < TURNS; t++)                              \
            for (int i = 0; i < CHAINS; i++) c[i] = fma(c[i], x, y); \
        float sum = 0;                                               \
        for (int i = 0; i < CHAINS; i++) sum += c[i][0];             \
        return sum;                                                  \
    }
#if defined __x86_64__
FMA_LOOP(avx2, "avx2,fma", __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps)
FMA_LOOP(avx512, "avx512f", __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps)
#elif defined __aarch64__
#define NEON_FMA(c, x, y) vfmaq_f32(y, c, x)
FMA_LOOP(neon, "+simd", float32x4_t, 4, vdupq_n_f32, NEON_FMA)
#endif

/*
 * Seconds: by the wall, or of a single thread's work those of its CPU, which a busy machine does
 * not lengthen by its other work.
 */
static double bench_seconds(const ares_pool *pool)
{
    struct timespec t;
    if (ares_pool_threads(pool) > 1) return ares_now_s();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct job {
    float (*run)(void);
    float *sums;
} job;

static void task(void *ctx, int64_t i, int worker)
{
    const job *j = ctx;
    (void)worker;
    j->sums[i] = j->run(); /* stored, so that the compiler keeps every run */
}

/* Every thread gets one task of the same length at the same time. */
static void limit_of(ares_pool *pool, const char *isa, float (*run)(void), int lanes,
                     int64_t repeat)
{
    int threads = ares_pool_threads(pool);
    job j = { run, ares_calloc((size_t)threads, sizeof(float)) };
    double work = 2.0 * lanes * CHAINS * TURNS * threads * 1e-9, best = 0;
    printf("{\"measure\":\"fma\",\"side\":\"limit\",\"isa\":\"%s\",\"threads\":%d,\"unit\":\"GFLOP/"
           "s\",\"all\":[",
           isa, threads);
    for (int64_t k = 0; k <= repeat; k++) {
        double t = bench_seconds(pool);
        ares_pool_run(pool, threads, task, &j);
        t = bench_seconds(pool) - t;
        if (!k) continue; /* the first run wakes the threads and raises the clocks */
        printf("%s%.6g", k > 1 ? "," : "", work / t);
        best = ARES_MAX(best, work / t);
    }
    printf("],\"value\":%.6g}\n", best);
    fflush(stdout);
    ares_free(j.sums);
}

/* A line for each vector width that the processor has. */
static void bench_limit(ares_pool *pool, int64_t repeat)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        limit_of(pool, "avx2", run_avx2, lanes_avx2, repeat);
    if (__builtin_cpu_supports("avx512f"))
        limit_of(pool, "avx512", run_avx512, lanes_avx512, repeat);
#elif defined __aarch64__
    limit_of(pool, "neon", run_neon, lanes_neon, repeat);
#endif
}

#endif
