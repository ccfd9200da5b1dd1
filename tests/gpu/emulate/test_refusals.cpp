/*
 * What the emulator refuses or shows: each mistake that a card would answer with wrong numbers, or
 * with nothing, is planted here once. A mistake that ends the program is made in a process of its
 * own, whose last words are read.
 */
#include "emulate.h"

#include <cublasLt.h>
#include <launch.cuh>

#include <signal.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include "test.h"
}

/* ------------------------------------------------------------------ a process that ends */

/* What `mistake` writes to stderr until its process ends; "no refusal" where it came through. */
static std::string last_words(void (*mistake)(void))
{
    int ends[2];
    std::string said;
    if (!CHECK(pipe(ends) == 0)) return said;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit no_core = {};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL); /* not the test runner's */
        signal(SIGSEGV, SIG_DFL);
        dup2(ends[1], 2);
        mistake();
        _exit(0);
    }
    close(ends[1]);
    char buffer[512];
    ssize_t got;
    while ((got = read(ends[0], buffer, sizeof buffer)) > 0) said.append(buffer, (size_t)got);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? said : "no refusal: " + said;
}
static void refuses(void (*mistake)(void), const char *a, const char *b)
{
    std::string said = last_words(mistake);
    CHECK(said.find("no refusal") == std::string::npos);
    CHECK_CONTAINS(said.c_str(), a);
    CHECK_CONTAINS(said.c_str(), b);
}

static float *device_floats(int n)
{
    float *p = NULL;
    if (cudaMalloc(&p, (size_t)n * sizeof *p) != cudaSuccess) abort();
    return p;
}
static cudaStream_t new_stream(void)
{
    cudaStream_t s;
    if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) != cudaSuccess) abort();
    return s;
}
static void wait_all(void)
{
    cudaDeviceSynchronize();
}

/* ------------------------------------------------------------------ device memory */

static void put(float *p, int i, float v)
{
    p[i] = v;
}
static void run_put(float *p, int i, float v, cudaStream_t s)
{
    cuda_start("put", put, dim3(1), dim3(1), 0, s, p, i, v);
}
/* Two allocations of whole pages, one after the other: between them lies a page of nobody. */
static void writes_beyond(void)
{
    float *p = device_floats(1024);
    device_floats(1024);
    run_put(p, 1024, 1, NULL);
    wait_all();
}
static void writes_before(void)
{
    device_floats(1024);
    run_put(device_floats(1024), -1, 1, NULL);
    wait_all();
}
static void writes_after_free(void)
{
    device_floats(64); /* lies before it */
    float *p = device_floats(64);
    cudaFree(p);
    run_put(p, 0, 1, NULL);
    wait_all();
}
static void host_writes(void)
{
    *(volatile float *)device_floats(64) = 1;
}

TEST(a_kernel_that_leaves_its_memory_is_refused_by_name)
{
    refuses(writes_beyond, "put: block 0,0,0: thread 0,0,0 touches ",
            "0 bytes beyond 4096 bytes of device memory");
    refuses(writes_before, "put: block 0,0,0: thread 0,0,0 touches ",
            "bytes beyond 4096 bytes of device memory");
}
TEST(a_kernel_that_writes_freed_memory_is_refused_by_name)
{
    refuses(writes_after_free, "put: block 0,0,0: thread 0,0,0 touches ", "freed memory");
}
TEST(host_code_that_writes_device_memory_is_refused)
{
    refuses(host_writes, "the host touches ", "byte 0 of 256 of device memory");
}
TEST(copies_of_freed_or_foreign_memory_and_a_second_free_are_refused)
{
    float *p = device_floats(64), x[65] = {};
    CHECK_EQ(cudaMemcpyAsync(p, x, 65 * sizeof *x, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpyAsync(x, x, sizeof *x, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpyAsync(p, p, sizeof *x, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaFree(p), cudaSuccess);
    CHECK_EQ(cudaMemcpyAsync(x, p, sizeof *x, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemsetAsync(p, 0, sizeof *x), cudaErrorInvalidValue);
    CHECK_EQ(cudaFree(p), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaSuccess); /* once */
}
TEST(new_memory_holds_no_number)
{
    float *p = device_floats(64), x[64] = {};
    CHECK_EQ(cudaMemcpyAsync(x, p, sizeof x, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < 64; i++) CHECK(x[i] != x[i]);
    cudaFree(p);
}

/* ------------------------------------------------------------------ arguments of kernels */

typedef struct list_of_rows {
    int n;
    const float *rows;
} list_of_rows;
static void put_first(const list_of_rows list, float *to)
{
    *to = list.rows[0];
}
static float host_number = 1;
/* A card would fault or read nonsense; the emulator's kernel would read the number. */
static void hands_over_host_memory(void)
{
    run_put(&host_number, 0, 1, NULL);
}
static void hands_over_host_memory_in_a_struct(void)
{
    cuda_start("first", put_first, dim3(1), dim3(1), 0, (cudaStream_t) nullptr,
               list_of_rows{ 1, &host_number }, device_floats(1));
}
static void hands_over_pinned_memory(void)
{
    float *pinned = NULL;
    cudaMallocHost(&pinned, 256);
    run_put(pinned, 0, 1, NULL);
}
TEST(an_address_of_the_host_in_a_kernels_arguments_is_refused)
{
    refuses(hands_over_host_memory, "put: argument 0 (of 8 bytes, at byte 0) is 0x",
            "an address of the host");
    refuses(hands_over_host_memory_in_a_struct, "first: argument 0 (of 16 bytes, at byte 8) is 0x",
            "an address of the host");
    refuses(hands_over_pinned_memory, "put: argument 0 (of 8 bytes, at byte 0) is 0x",
            "an address of the host");
}
TEST(numbers_that_are_no_addresses_pass_as_arguments)
{
    float *p = device_floats(64), x[2] = {};
    /* beyond its end, as a row that is not read may begin; and large numbers side by side */
    run_put(p + 4096, -4096, 2, NULL);
    const list_of_rows none = { 0x7fffffff, NULL };
    cuda_start(
        "count",
        +[](list_of_rows list, uint64_t a, double b, float *to) {
            *to = (float)list.n + (float)a + (float)b;
        },
        dim3(1), dim3(1), 0, (cudaStream_t)NULL, none, (uint64_t)1 << 46, 1e300, p + 1);
    CHECK_EQ(cudaMemcpyAsync(x, p, sizeof x, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK_NEAR(x[0], 2, 0);
    cudaFree(p);
}

/* ------------------------------------------------------------------ foreign rounding */

static void exponentials(const float *x, float *e, float *l)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    e[i] = expf(x[i]);
    l[i] = logf(x[i]);
}
static int32_t bits_of(float x)
{
    int32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
/* How many of 512 results differ from the C library's; -1 where one does by more than an ulp. */
static int moved_results(bool foreign)
{
    enum { N = 256 };
    float x[N], e[N], l[N], *p = device_floats(3 * N);
    int moved = 0;
    emulate_foreign = foreign;
    for (int i = 0; i < N; i++) x[i] = (float)i * 0.0625f;
    cudaMemcpyAsync(p, x, sizeof x, cudaMemcpyHostToDevice);
    cuda_start("exponentials", exponentials, dim3(1), dim3(N), 0, (cudaStream_t)NULL,
               (const float *)p, p + N, p + 2 * N);
    cudaMemcpyAsync(e, p + N, sizeof e, cudaMemcpyDeviceToHost);
    cudaMemcpyAsync(l, p + 2 * N, sizeof l, cudaMemcpyDeviceToHost);
    cudaFree(p);
    emulate_foreign = false;
#undef expf
#undef logf
    for (int i = 0; i < N; i++) {
        int32_t of_e = bits_of(e[i]) - bits_of(expf(x[i])),
                of_l = bits_of(l[i]) - bits_of(logf(x[i]));
        if (abs(of_e) > 1 || abs(of_l) > 1) return -1;
        moved += (of_e != 0) + (of_l != 0);
    }
    CHECK_NEAR(e[0], 1, 0);
    CHECK_NEAR(l[16], 0, 0); /* log(1) */
    CHECK(l[0] < -1e30f);    /* log(0) */
    return moved;
}
TEST(foreign_rounding_moves_exp_and_log_by_an_ulp)
{
    CHECK_EQ(moved_results(false), 0);
    int moved = moved_results(true);
    CHECK_MSG(moved > 100 && moved < 412, "%d of 512 moved", moved);
}

/* What a product by cuBLASLt may get wrong. */
enum mistake { NO_MISTAKE, SUMS_IN_BF16, OTHER_SHAPE, ASKEW, NO_WORKSPACE };
/* y [2][3] = x [2][K] Wt, in bf16 or f32. */
static cublasStatus_t products(cudaDataType type, mistake m, float *y)
{
    enum { K = 1000 };
    static float x[5 * K]; /* x, then W: in bf16 whatever bits these are */
    const size_t each = type == CUDA_R_32F ? 4 : 2;
    float one = 1, none = 0, *p = device_floats(5 * K + 64);
    char *from = (char *)p, *to = from + 5 * K * sizeof *p;
    for (int i = 0; i < 2 * K; i++) x[i] = (float)(i * 7919 % 1009) / 1009.0f - 0.4f;
    for (int i = 0; i < 3 * K; i++) x[2 * K + i] = (float)(i * 104729 % 997) / 997.0f - 0.6f;
    cudaMemcpyAsync(p, x, sizeof x, cudaMemcpyHostToDevice);
    cublasLtHandle_t blas;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, c, small;
    cublasLtMatmulPreference_t wanted;
    cublasLtMatmulHeuristicResult_t found;
    cublasOperation_t turned = CUBLAS_OP_T;
    uint32_t sums =
        m == SUMS_IN_BF16 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t bytes = 1 << 20;
    int n = 0;
    void *workspace = device_floats(1 << 18);
    cublasLtCreate(&blas);
    cublasLtMatmulDescCreate(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned);
    cublasLtMatrixLayoutCreate(&a, type, K, 3, K);
    cublasLtMatrixLayoutCreate(&b, type, K, 2, K);
    cublasLtMatrixLayoutCreate(&small, type, K, 1, K);
    cublasLtMatrixLayoutCreate(&c, type, 3, 2, 3);
    cublasLtMatmulPreferenceCreate(&wanted);
    cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums,
                                         sizeof sums);
    cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                         sizeof bytes);
    for (int i = 0; i < 4 && m != ASKEW; i++) {
        uint32_t at = (uint32_t)each;
        cublasLtMatmulPreferenceSetAttribute(wanted, (cublasLtMatmulPreferenceAttributes_t)(i + 5),
                                             &at, sizeof at);
    }
    cublasStatus_t rc =
        cublasLtMatmulAlgoGetHeuristic(blas, how, a, b, c, c, wanted, 1, &found, &n);
    if (m == OTHER_SHAPE) b = small;
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmul(blas, how, &one, from + 2 * K * each, a, from, b, &none, to, c, to, c,
                            &found.algo, workspace, m == NO_WORKSPACE ? 0 : bytes, NULL);
    cudaMemcpyAsync(y, to, 6 * each, cudaMemcpyDeviceToHost);
    cublasLtDestroy(blas);
    cudaFree(p);
    cudaFree(workspace);
    return rc;
}
TEST(products_that_cublaslt_would_spoil_in_silence_are_refused)
{
    float y[6];
    CHECK_EQ(products(CUDA_R_16BF, NO_MISTAKE, y), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(products(CUDA_R_16BF, SUMS_IN_BF16, y), CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_EQ(products(CUDA_R_32F, SUMS_IN_BF16, y), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(products(CUDA_R_32F, OTHER_SHAPE, y), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_EQ(products(CUDA_R_32F, ASKEW, y), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_EQ(products(CUDA_R_32F, NO_WORKSPACE, y), CUBLAS_STATUS_INVALID_VALUE);
}
TEST(foreign_rounding_adds_products_in_another_order)
{
    float y[6], z[6];
    int moved = 0;
    CHECK_EQ(products(CUDA_R_32F, NO_MISTAKE, y), CUBLAS_STATUS_SUCCESS);
    emulate_foreign = true;
    CHECK_EQ(products(CUDA_R_32F, NO_MISTAKE, z), CUBLAS_STATUS_SUCCESS);
    emulate_foreign = false;
    for (int i = 0; i < 6; i++) {
        CHECK_NEAR(z[i], y[i], 1e-3);
        moved += y[i] != z[i];
    }
    CHECK_MSG(moved >= 3, "%d of 6 sums moved", moved);
}

/* ------------------------------------------------------------------ capture */

static float *some, pageable[64];
static cudaError_t allocates(cudaStream_t)
{
    void *p;
    return cudaMalloc(&p, 256);
}
static cudaError_t frees(cudaStream_t)
{
    return cudaFree(some);
}
static cudaError_t allocates_pinned(cudaStream_t)
{
    void *p;
    return cudaMallocHost(&p, 256);
}
static cudaError_t waits_for_all(cudaStream_t)
{
    return cudaDeviceSynchronize();
}
static cudaError_t copies_pageable(cudaStream_t s)
{
    return cudaMemcpyAsync(some, pageable, 256, cudaMemcpyHostToDevice, s);
}

/* Each loses what was recorded, as on a card; a capture without it gives a graph. */
TEST(calls_that_a_capture_forbids_fail_and_lose_it)
{
    cudaError_t (*const forbidden[])(cudaStream_t) = { allocates,        frees,
                                                       allocates_pinned, waits_for_all,
                                                       copies_pageable,  cudaStreamSynchronize,
                                                       cudaStreamQuery,  NULL };
    cudaStream_t s = new_stream();
    some = device_floats(64);
    for (int i = 0; i < (int)(sizeof forbidden / sizeof *forbidden); i++) {
        cudaGraph_t graph;
        CHECK_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        run_put(some, 0, 1, s);
        if (!forbidden[i]) {
            CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
            CHECK(graph != NULL);
            cudaGraphDestroy(graph);
            continue;
        }
        CHECK_MSG(forbidden[i](s) == cudaErrorStreamCaptureUnsupported, "call %d is allowed", i);
        CHECK_MSG(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated && !graph,
                  "call %d leaves the capture whole", i);
    }
    CHECK_EQ(cudaMemsetAsync(some, 0, 256, s), cudaSuccess);
    cudaStreamDestroy(s);
    cudaFree(some);
}

/* ------------------------------------------------------------------ streams */

/*
 * Of 64 times, in how many a stream reads p before another one writes it. Any way the emulator
 * draws its order (ARES_EMULATE_SEED) has both orders among so many.
 */
static int too_early(bool event)
{
    int early = 0;
    float *p = device_floats(64), *q = device_floats(64);
    cudaStream_t writer = new_stream(), reader = new_stream();
    cudaEvent_t written;
    cudaEventCreate(&written);
    for (int i = 0; i < 64; i++) {
        float x = 0;
        run_put(p, 0, 0, NULL);
        wait_all();
        run_put(p, 0, 1, writer);
        if (event) cudaEventRecord(written, writer), cudaStreamWaitEvent(reader, written);
        cudaMemcpyAsync(q, p, sizeof *p, cudaMemcpyDeviceToDevice, reader);
        wait_all();
        cudaMemcpyAsync(&x, q, sizeof x, cudaMemcpyDeviceToHost);
        early += x != 1;
    }
    cudaEventDestroy(written);
    cudaStreamDestroy(writer);
    cudaStreamDestroy(reader);
    cudaFree(p);
    cudaFree(q);
    return early;
}
TEST(a_missing_event_between_two_streams_shows)
{
    int early = too_early(false);
    CHECK_MSG(early > 0 && early < 64, "%d of 64 reads came before the write", early);
    CHECK_EQ(too_early(true), 0);
}

static float copied_of(float *host, cudaStream_t s)
{
    float *p = device_floats(64), x = 0;
    *host = 1;
    cudaMemcpyAsync(p, host, sizeof *host, cudaMemcpyHostToDevice, s);
    *host = 2;
    cudaMemcpyAsync(&x, p, sizeof x, cudaMemcpyDeviceToHost, s);
    cudaFree(p);
    return x;
}
TEST(pinned_memory_that_is_reused_before_its_copy_ran_shows)
{
    float *pinned = NULL, plain;
    cudaStream_t s = new_stream();
    REQUIRE(cudaMallocHost(&pinned, 256) == cudaSuccess);
    CHECK_NEAR(copied_of(pinned, s), 2, 0); /* the later value: a card may copy either */
    CHECK_NEAR(copied_of(&plain, s), 1, 0); /* the call has read it */
    cudaFreeHost(pinned);
    cudaStreamDestroy(s);
}

/* ------------------------------------------------------------------ threads of a block */

/* Lanes 0 and 1 wait at the barrier of the block and the others at one of their warp, for ever. */
static void part_waits(float *)
{
    if (threadIdx.x < 2) __syncthreads();
    else __syncwarp();
}
static void different_masks(float *)
{
    __syncwarp(threadIdx.x < 16 ? 0xffffffffu : 0xffff0001u);
}
static void foreign_mask(float *)
{
    __syncwarp(0xfffffffeu);
}
static void start_part_waits(void)
{
    cuda_start("part", part_waits, dim3(1), dim3(32), 0, (cudaStream_t)NULL, (float *)NULL);
    wait_all();
}
static void start_different_masks(void)
{
    cuda_start("masks", different_masks, dim3(1), dim3(32), 0, (cudaStream_t)NULL, (float *)NULL);
    wait_all();
}
static void start_foreign_mask(void)
{
    cuda_start("foreign", foreign_mask, dim3(1), dim3(32), 0, (cudaStream_t)NULL, (float *)NULL);
    wait_all();
}
TEST(a_barrier_that_some_threads_never_reach_is_refused)
{
    refuses(start_part_waits, "part: block 0,0,0",
            "2 threads wait at a barrier of the block and 30 at one of their warp");
}
TEST(lanes_that_wait_with_other_masks_are_refused)
{
    refuses(start_different_masks, "masks: block 0,0,0", "have other masks");
    refuses(start_foreign_mask, "foreign: block 0,0,0", "its lane is not in the mask");
}

static void reverse(float *out, bool waits)
{
    __shared__ float shared[64];
    shared[threadIdx.x] = (float)threadIdx.x;
    if (waits) __syncthreads();
    out[threadIdx.x] = shared[63 - threadIdx.x];
}
static int wrong_of_reverse(bool waits)
{
    float *p = device_floats(64), x[64];
    int wrong = 0;
    cuda_start("reverse", reverse, dim3(1), dim3(64), 0, (cudaStream_t)NULL, p, waits);
    cudaMemcpyAsync(x, p, sizeof x, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; i++) wrong += x[i] != (float)(63 - i);
    cudaFree(p);
    return wrong;
}
TEST(a_missing_barrier_shows)
{
    CHECK(wrong_of_reverse(false) > 0);
    CHECK_EQ(wrong_of_reverse(true), 0);
}

/* out = in turned around, through copies that run beside the threads; `left` groups unwaited. */
template <int LEFT> static void copy_through(const float *in, float *out)
{
    CUDA_SHARED(float, held);
    unsigned at = threadIdx.x * 4, n = blockDim.x * 4;
    cuda_copy_begin(held + at, in + at, true);
    cuda_copy_group();
    cuda_copy_begin(held + n + at, in + at, false);
    cuda_copy_group();
    cuda_copy_wait<LEFT>();
    __syncthreads();
    for (unsigned i = 0; i < 4; i++) out[at + i] = held[n - 1 - at - i] + held[n + at + i];
    cuda_copy_wait<0>();
}
static void never_waits(const float *in)
{
    CUDA_SHARED(float, held);
    cuda_copy_begin(held, in, true);
    cuda_copy_group();
}
static void copies_askew(const float *in)
{
    CUDA_SHARED(float, held);
    cuda_copy_begin(held + 1, in, true);
}
template <int LEFT> static int wrong_of_copies(void)
{
    float *p = device_floats(64), *q = device_floats(64), x[64];
    int wrong = 0;
    for (int i = 0; i < 64; i++) x[i] = (float)i;
    cudaMemcpyAsync(p, x, sizeof x, cudaMemcpyHostToDevice);
    cuda_start("through", copy_through<LEFT>, dim3(1), dim3(16), 512, (cudaStream_t)NULL,
               (const float *)p, q);
    cudaMemcpyAsync(x, q, sizeof x, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; i++) wrong += x[i] != (float)(63 - i);
    cudaFree(p);
    cudaFree(q);
    return wrong;
}
static void start_never_waits(void)
{
    cuda_start("unwaited", never_waits, dim3(1), dim3(1), 64, (cudaStream_t)NULL,
               (const float *)device_floats(64));
    wait_all();
}
static void start_copies_askew(void)
{
    cuda_start("askew", copies_askew, dim3(1), dim3(1), 64, (cudaStream_t)NULL,
               (const float *)device_floats(64));
    wait_all();
}
TEST(a_copy_beside_a_thread_that_is_read_before_its_wait_shows)
{
    CHECK_EQ(wrong_of_copies<0>(), 0);
    CHECK_EQ(wrong_of_copies<1>(), 64); /* the zeros of the second group are not there */
    CHECK_EQ(wrong_of_copies<2>(), 64);
}
TEST(a_copy_beside_a_thread_that_is_askew_or_never_waited_for_is_refused)
{
    refuses(start_never_waits, "unwaited: block 0,0,0", "copies of thread 0 are under way");
    refuses(start_copies_askew, "askew: block 0,0,0", "not 16 aligned bytes");
}

/* d of a warp: row i, column j of a [16][16] b [16][8], whose numbers are small integers. */
static void multiply_tiles(float *out)
{
    CUDA_SHARED(uint16_t, held); /* a, then b */
    unsigned lane = threadIdx.x;
    for (unsigned i = lane; i < 256; i += 32)
        held[i] = (uint16_t)(__float_as_uint((float)(i / 16) - (float)(i % 16) / 2) >> 16);
    for (unsigned i = lane; i < 128; i += 32)
        held[256 + i] = (uint16_t)(__float_as_uint((float)(i / 8 % 5) + (float)(i % 8)) >> 16);
    __syncwarp();
    uint32_t a[4], b[4];
    float d[4] = { 1, 1, 1, 1 };
    cuda_load_tiles<false>(a, held + lane % 16 * 16 + lane / 16 * 8);
    cuda_load_tiles<true>(b, held + 256 + lane % 16 * 8);
    cuda_mma(d, a, b[0], b[1]);
    for (unsigned i = 0; i < 4; i++) out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}
TEST(tiles_are_multiplied_as_the_ptx_isa_lays_them_out)
{
    float *p = device_floats(128), x[128];
    for (int foreign = 0; foreign < 2; foreign++) {
        emulate_foreign = foreign;
        cuda_start("tiles", multiply_tiles, dim3(1), dim3(32), 768, (cudaStream_t)NULL, p);
        cudaMemcpyAsync(x, p, sizeof x, cudaMemcpyDeviceToHost);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                float sum = 1;
                for (int k = 0; k < 16; k++)
                    sum += ((float)i - (float)k / 2) * ((float)(k % 5) + (float)j);
                CHECK_NEAR(x[i * 8 + j], sum, 0);
            }
    }
    emulate_foreign = false;
    cudaFree(p);
}

TEST(a_launch_that_no_card_takes_is_refused)
{
    float *p = device_floats(64);
    const struct {
        unsigned blocks, threads;
        size_t shared;
    } refused[] = { { 1, 1025, 0 }, { 0, 1, 0 }, { 1, 0, 0 }, { 1, 1, 48 * 1024 + 1 } };
    for (const auto &r : refused) {
        cuda_start("put", put, dim3(r.blocks), dim3(r.threads), r.shared, (cudaStream_t)NULL, p, 0,
                   1.0f);
        CHECK_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    }
    CHECK_EQ(cudaFuncSetAttribute(put, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024),
             cudaSuccess);
    cuda_start("put", put, dim3(1), dim3(1), (size_t)64 * 1024, (cudaStream_t)NULL, p, 0, 1.0f);
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
    cudaFree(p);
}

/* ------------------------------------------------------------------ several cards and processes */

TEST(an_operation_that_needs_other_processes_holds_up_its_stream_alone)
{
    cudaStream_t a = new_stream(), b = new_stream();
    float *p = device_floats(2), x[2];
    int attempts = 0;
    bool others_came = false;
    emulate_push_attempt(a, [&] { return ++attempts > 3 && others_came; });
    run_put(p, 0, 1, a);
    run_put(p, 1, 2, b);
    CHECK_EQ(cudaStreamSynchronize(b), cudaSuccess);
    CHECK_EQ(cudaStreamQuery(b), cudaSuccess);
    for (int i = 0; i < 50; i++) CHECK_EQ(cudaStreamQuery(a), cudaErrorNotReady);
    CHECK(!emulate_advance(a));
    others_came = true;
    CHECK_EQ(cudaStreamSynchronize(a), cudaSuccess);
    CHECK(attempts > 4);
    cudaMemcpyAsync(x, p, sizeof x, cudaMemcpyDeviceToHost);
    CHECK_EQ(x[0], 1);
    CHECK_EQ(x[1], 2);
    cudaFree(p);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
}

static void use_two_cards(void)
{
    setenv("ARES_EMULATE_CARDS", "2", 1);
    cudaSetDevice(0);
    device_floats(1);
    cudaSetDevice(1);
}
TEST(a_process_uses_one_of_several_cards)
{
    int n = 0;
    cudaDeviceProp first, second;
    CHECK_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
    setenv("ARES_EMULATE_CARDS", "2", 1);
    CHECK_EQ(cudaGetDeviceCount(&n), cudaSuccess);
    CHECK_EQ(n, 2);
    cudaGetDeviceProperties(&first, 0);
    cudaGetDeviceProperties(&second, 1);
    CHECK(memcmp(&first.uuid, &second.uuid, sizeof first.uuid) != 0);
    unsetenv("ARES_EMULATE_CARDS");
    refuses(use_two_cards, "a process with memory on card 0", "turns to card 1");
}
