/*
 * The CUDA and the aten table against the CPU's, whose own tests compare it with f64: the same
 * numbers through both, weights in the layout of each. Tolerances are relative to the largest entry
 * of the array; f32 sums in two orders differ by far less, and a wrong index, sign or factor by far
 * more. Without a card the tests of CUDA skip, unless ARES_REQUIRE_CUDA is set.
 */
#include "ares/at.h"
#include "host.h"
#include "kernels_test.h"
#include "torch/scarce.h"

#include <dlfcn.h>
#include <unistd.h>

typedef enum { CUDA, ATEN, ATEN_BF16 } table;
enum { HELD = 64 };
typedef struct pair {
    ares_device cpu, other;
    struct {
        void *p;
        size_t bytes;
    } held[HELD];
    int n_held;
} pair;

/* False after a SKIP, or after a failure where a card is required. */
static bool have_card(void)
{
    ares_device d;
    int rc = ares_device_open("cuda", 0, &d);
    const char *required = getenv("ARES_REQUIRE_CUDA");
    if (rc != ARES_OK && !(required && *required)) {
        test_skip(ares_error_message());
        return false;
    }
    ares_device_close(&d);
    return CHECK_OK(rc);
}
static bool pair_open(pair *p, table which)
{
    memset(p, 0, sizeof *p);
    ares_dtype act = which == ATEN_BF16 ? ARES_BF16 : ARES_F32;
    return CHECK_OK(which == CUDA ? ares_device_open("cuda", 0, &p->other)
                                  : ares_device_open_table("cpu", "aten", act, 1, &p->other)) &&
           CHECK_OK(ares_device_open("cpu", which == CUDA ? 0 : 1, &p->cpu));
}
static void pair_close(pair *p)
{
    CHECK_OK(p->other.k->sync(&p->other));
    for (int i = 0; i < p->n_held; i++)
        p->other.k->release(&p->other, p->held[i].p, p->held[i].bytes);
    ares_device_close(&p->other);
    ares_device_close(&p->cpu);
}
/* A copy on the other device, freed with the pair; zeros when host is NULL. */
static void *up(pair *p, const void *host, size_t bytes)
{
    void *device = p->other.k->alloc(&p->other, bytes);
    ARES_ASSERT(device && p->n_held < HELD);
    if (host) p->other.k->copy_in(&p->other, device, host, bytes);
    p->held[p->n_held].p = device;
    p->held[p->n_held++].bytes = bytes;
    return device;
}
static float *up_floats(pair *p, const float *host, int64_t n)
{
    return up(p, host, (size_t)n * sizeof(float));
}
static float *down(pair *p, const void *device, int64_t n)
{
    float *host = filled(n, NAN);
    p->other.k->copy_out(&p->other, host, device, (size_t)n * sizeof(float));
    return host;
}

/* |got - want| <= tolerance * the largest |want|, everywhere. */
static bool agree(const char *what, const float *got, const float *want, int64_t n,
                  double tolerance)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * most))
            return CHECK_MSG(
                false, "%s[%lld] = %.9g, the CPU has %.9g (largest %.3g, tolerance %.1g of it)",
                what, (long long)i, got[i], want[i], most, tolerance);
    return true;
}
static void agree_device(pair *p, const char *what, const void *device, const float *want,
                         int64_t n, double tolerance)
{
    float *got = down(p, device, n);
    agree(what, got, want, n, tolerance);
    ares_free(got);
}

/*
 * Activations, of the other device's type. Where that is bf16 the host's numbers are rounded to it
 * first, so that both sides compute from the same; a result then differs by its own rounding and by
 * that of a few steps before it, which the bound below holds with room, and a wrong index, sign or
 * factor does not.
 */
static const double OF_BF16 = 1.0 / 64;
static bool is_bf16(const pair *p)
{
    return p->other.k->act == ARES_BF16;
}
static void *up_acts(pair *p, float *host, int64_t n)
{
    if (!is_bf16(p)) return up_floats(p, host, n);
    uint16_t *half = ares_malloc((size_t)n * sizeof *half);
    for (int64_t i = 0; i < n; i++)
        host[i] = kernels_bf16_to_f32(half[i] = kernels_f32_to_bf16(host[i]));
    void *device = up(p, half, (size_t)n * sizeof *half);
    ares_free(half);
    return device;
}
static float *down_acts(pair *p, const void *device, int64_t n)
{
    if (!is_bf16(p)) return down(p, device, n);
    uint16_t *half = ares_malloc((size_t)n * sizeof *half);
    float *host = ares_malloc((size_t)n * sizeof *host);
    p->other.k->copy_out(&p->other, half, device, (size_t)n * sizeof *half);
    for (int64_t i = 0; i < n; i++) host[i] = kernels_bf16_to_f32(half[i]);
    ares_free(half);
    return host;
}
static void agree_acts(pair *p, const char *what, const void *device, const float *want, int64_t n,
                       double tolerance)
{
    float *got = down_acts(p, device, n);
    agree(what, got, want, n, is_bf16(p) ? OF_BF16 : tolerance);
    ares_free(got);
}
/* Element n of an array of activations. */
static void *acts_at(const pair *p, const void *device, int64_t n)
{
    return (char *)device + n * (int64_t)ares_dtype_bytes(p->other.k->act);
}
/* The same weight for both: panels on the CPU, rows on the other device. */
typedef struct weights {
    ares_matrix cpu, other;
} weights;
static weights weights_new(pair *p, const float *rows, ares_dtype dtype, int32_t n, int32_t k)
{
    weights w = { { NULL, dtype, ARES_PANEL32, n, k }, { NULL, dtype, ARES_ROWS, n, k } };
    w.cpu.data =
        ares_calloc((size_t)ares_matrix_elements(ARES_PANEL32, n, k), ares_dtype_bytes(dtype));
    if (rows) ares_matrix_pack(&w.cpu, rows, ARES_F32);
    size_t bytes = (size_t)n * (size_t)k * ares_dtype_bytes(dtype);
    ares_matrix host = w.other;
    host.data = ares_calloc(1, bytes);
    if (rows) ares_matrix_pack(&host, rows, ARES_F32);
    w.other.data = up(p, host.data, bytes);
    ares_free(host.data);
    return w;
}
static void weights_agree(pair *p, const char *what, const weights *w, double tolerance)
{
    int64_t n = (int64_t)w->cpu.n * w->cpu.k;
    float *want = filled(n, NAN);
    ares_matrix_unpack(&w->cpu, want, ARES_F32);
    agree_device(p, what, w->other.data, want, n, tolerance);
    ares_free(want);
}

/* The same cases for every table. */
#define ON_ALL(sentence, cases)       \
    TEST_GPU(cuda_##sentence)         \
    {                                 \
        if (have_card()) cases(CUDA); \
    }                                 \
    TEST(aten_##sentence)             \
    {                                 \
        cases(ATEN);                  \
    }                                 \
    TEST(aten_in_bf16_##sentence)     \
    {                                 \
        cases(ATEN_BF16);             \
    }

/*
 * No entry is missing but brought, which is so where bring and store return when they are done,
 * those of experts, all of them, in the CUDA table, and those of delta nets there and in libtorch's
 * of bf16; those from rope_store on are there together or not at all, and rope_store takes the
 * place of store_kv.
 */
static void check_complete(const ares_kernels *k)
{
    void *const *entry = (void *const *)(const void *)k;
    const size_t first = offsetof(ares_kernels, alloc) / sizeof *entry,
                 decoding = offsetof(ares_kernels, rope_store) / sizeof *entry,
                 store = offsetof(ares_kernels, store_kv) / sizeof *entry,
                 brought = offsetof(ares_kernels, brought) / sizeof *entry,
                 route = offsetof(ares_kernels, route) / sizeof *entry,
                 routed = offsetof(ares_kernels, combine_backward) / sizeof *entry,
                 net = offsetof(ares_kernels, conv) / sizeof *entry,
                 nets = offsetof(ares_kernels, delta_backward) / sizeof *entry;
    for (size_t i = route; i <= routed; i++)
        CHECK_MSG(!entry[i] == (strncmp(k->name, "cuda", 4) == 0), "%s: entry %zu", k->name, i);
    for (size_t i = net; i <= nets; i++)
        CHECK_MSG(!entry[i] == (strncmp(k->name, "cuda", 4) == 0 ||
                                (k->layout == ARES_ROWS && k->act == ARES_BF16)),
                  "%s: entry %zu", k->name, i);
    for (size_t i = first; i < decoding; i++)
        if (i != brought && (i < route || i > routed) && (i < net || i > nets))
            CHECK_MSG(!entry[i] == (i == store && entry[decoding]), "%s: entry %zu", k->name, i);
    for (size_t i = decoding; i < sizeof *k / sizeof *entry; i++)
        CHECK_MSG(!entry[i] == !entry[decoding], "%s: entry %zu", k->name, i);
}

/* Arithmetic of its own: only memory is the native table's. */
static void check_own(const ares_kernels *k, const ares_kernels *native)
{
    void *const *entry = (void *const *)(const void *)k, *const *other = (void *const *)native;
    for (size_t i = offsetof(ares_kernels, linear) / sizeof *entry;
         i < offsetof(ares_kernels, rope_store) / sizeof *entry; i++)
        CHECK_MSG(entry[i] != other[i], "%s: entry %zu is the native one", k->name, i);
}

TEST(the_aten_table_is_complete_and_its_own)
{
    ares_device d, native;
    REQUIRE_OK(ares_device_open("cpu", 1, &native));
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ares_dtype act = bf16 ? ARES_BF16 : ARES_F32;
        REQUIRE_OK(ares_device_open_table("cpu", "aten", act, 1, &d));
        CHECK_STR(d.k->name, bf16 ? "aten cpu bf16" : "aten cpu");
        CHECK_EQ(d.k->layout, ARES_ROWS);
        CHECK_EQ(d.k->act, act);
        CHECK_EQ(d.index, -1);
        check_complete(d.k);
        check_own(d.k, native.k);
        ares_device_close(&d);
        CHECK(!d.k);
    }
    ares_device_close(&native);
    REQUIRE_OK(ares_device_open_table("cpu", "native", ARES_F32, 1, &d));
    CHECK_EQ(d.k->layout, ARES_PANEL32);
    ares_device_close(&d);
    CHECK_FAIL(ares_device_open_table("cpu", "atem", ARES_F32, 1, &d), ARES_ECONFIG,
               "did you mean 'aten'");
    CHECK_FAIL(ares_device_open_table("cuda", "aten", ARES_F32, 1, &d), ARES_EUNSUPPORTED,
               "not on 'cuda'");
    setenv("ARES_TORCH_LIB", "/nowhere/libares_torch.so", 1);
    CHECK_FAIL(ares_device_open_table("cpu", "aten", ARES_F32, 1, &d), ARES_EDEVICE,
               "use kernels=native");
    unsetenv("ARES_TORCH_LIB");
    CHECK(!d.k);
}

TEST(an_aten_device_counts_its_memory_and_reports_its_first_failure_once)
{
    ares_device d;
    float x[6] = { 1, 2, 3, 4, 5, 6 }, y[6] = { 0 };
    const int32_t ids[2] = { 1, 7 };
    const ares_matrix e = { x, ARES_F32, ARES_ROWS, 3, 2 };
    REQUIRE_OK(ares_device_open_table("cpu", "aten", ARES_F32, 1, &d));
    void *p = d.k->alloc(&d, 1000);
    CHECK_EQ(d.allocated, 1000);
    d.k->release(&d, p, 1000);
    CHECK_EQ(d.allocated, 0);
    CHECK_EQ(d.most_allocated, 1000);
    d.k->embedding(&d, &e, ids, 2, y, 2, 0); /* there is no row 7 */
    d.k->add(&d, y, x, 6);                   /* not done after a failure */
    for (int i = 0; i < 6; i++) CHECK_NEAR(y[i], 0, 0);
    double squares = -1;
    d.k->square_sums(&d, x, 6, &squares);
    CHECK_NEAR(squares, -1, 0);
    CHECK_FAIL(d.k->sync(&d), ARES_EDEVICE, "kernels: aten: torch: embedding: at_index_select");
    CHECK_OK(d.k->sync(&d));
    d.k->add(&d, y, x, 6);
    CHECK_NEAR(y[5], 6, 0);
    CHECK_OK(d.k->sync(&d));
    ares_device_close(&d);
}

/* ------------------------------------------------------------------ with or without a card */

int ares_aten_check(void);

/*
 * The check that decides whether a card takes its products and attention from libtorch. Its
 * library registers its kernels when it is loaded, with or without a card.
 */
TEST(libtorchs_cuda_library_has_a_kernel_for_all_that_a_card_takes)
{
    if (at_cuda_open() != ARES_OK && strstr(ares_error_message(), "does not load"))
        SKIP(ares_error_message());
    const char *const made_up[] = { "aten::mm.out", "aten::no_such_thing" };
    CHECK_STR(at_cuda_lacks(made_up, 2), made_up[1]);
    CHECK_OK(ares_aten_check());
}

int ares_aten_take(ares_device *d, void (**trim)(void));

TEST(a_device_stays_as_it_was_where_libtorch_sees_no_card)
{
    if (access("/dev/nvidiactl", F_OK) == 0) SKIP("there is a CUDA device");
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    const ares_kernels *own = d.k;
    void (*trim)(void);
    CHECK_FAIL(ares_aten_take(&d, &trim), ARES_EDEVICE, "torch: device = 'cuda': ");
    CHECK(d.k == own && !d.aten);
    ares_device_close(&d);
}

TEST(a_machine_without_a_card_says_so_in_one_line)
{
    ares_device d;
    if (access("/dev/nvidiactl", F_OK) == 0) SKIP("there is a CUDA device");
    CHECK_FAIL(ares_device_open("cuda", 0, &d), ARES_EDEVICE,
               "kernels: device = 'cuda': no CUDA device on this machine; use device=cpu");
    CHECK_FAIL(ares_device_open("cuda:3", 0, &d), ARES_EDEVICE, "cuda:3");
    CHECK_FAIL(ares_device_open("cuda:x", 0, &d), ARES_ECONFIG, "not a number");
    ares_device_close(&d);
}

TEST(the_cuda_library_loads_and_finds_no_device)
{
    int (*open)(ares_device *, int, char *, size_t);
    const ares_kernels *(*table)(ares_dtype);
    char message[256] = "";
    ares_device d = { .index = 0 };
    if (access("/dev/nvidiactl", F_OK) == 0) SKIP("there is a CUDA device");
    if (access(ARES_BINARY_DIR "/libares_cuda.so", R_OK) != 0) SKIP("built without CUDA");
    void *library = dlopen(ARES_BINARY_DIR "/libares_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) SKIP(dlerror()); /* CUDA's own libraries are not on this machine */
    *(void **)&open = dlsym(library, "ares_cuda_open");
    *(void **)&table = dlsym(library, "ares_cuda_kernels");
    REQUIRE(open && table && dlsym(library, "ares_cuda_close"));
    CHECK_EQ(open(&d, 0, message, sizeof message), ARES_EDEVICE);
    CHECK_CONTAINS(message, "no CUDA device");
    CHECK(!d.scratch);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const ares_kernels *k = table(bf16 ? ARES_BF16 : ARES_F32);
        CHECK_STR(k->name, bf16 ? "cuda bf16" : "cuda");
        CHECK_EQ(k->act, bf16 ? ARES_BF16 : ARES_F32);
        CHECK_EQ(k->layout, ARES_ROWS);
        check_complete(k);
    }
}

/* ------------------------------------------------------------------ memory */

TEST_GPU(cuda_memory_is_zeroed_copied_and_a_failure_is_reported_once)
{
    if (!have_card()) return;
    pair p;
    if (!pair_open(&p, CUDA)) return;
    const ares_kernels *k = p.other.k;
    float *host = normals(1, 1000, 1.0), zero[1000] = { 0 };
    float *a = up(&p, NULL, 4000), *b = up(&p, host, 4000);
    agree_device(&p, "fresh", a, zero, 1000, 0);
    k->copy(&p.other, a, b, 4000);
    agree_device(&p, "copy", a, host, 1000, 0);
    k->zero(&p.other, b, 4000);
    agree_device(&p, "zero", b, zero, 1000, 0);
    CHECK_OK(k->sync(&p.other));
    CHECK(k->alloc(&p.other, (size_t)1 << 50) == NULL);
    CHECK_OK(k->sync(&p.other));
    k->copy_in(&p.other, NULL, host, 4000);
    k->zero(&p.other, a, 4000); /* not done after a failure */
    CHECK_FAIL(k->sync(&p.other), ARES_EDEVICE, "copy in");
    agree_device(&p, "after a failure", a, host, 1000, 0);
    ares_free(host);
    pair_close(&p);
}

/* ------------------------------------------------------------------ products */

static void linear_case(table which, ares_dtype dtype, int32_t m, int32_t n, int32_t k)
{
    pair p;
    if (!pair_open(&p, which)) return;
    int64_t ldx = k + 3, ldy = n + 5;
    float *x = normals(1, m * ldx, 1.0), *rows = normals(2, (int64_t)n * k, 0.1),
          *bias = normals(3, n, 1.0), *old = normals(4, m * ldy, 1.0),
          *dy = normals(5, m * ldy, 1.0), *old_dx = normals(6, m * ldx, 1.0),
          *old_dw = normals(7, (int64_t)n * k, 1.0);
    weights w = weights_new(&p, rows, dtype, n, k);
    void *x_up = up_acts(&p, x, m * ldx), *bias_up = up_acts(&p, bias, n),
         *dy_up = up_acts(&p, dy, m * ldy), *other_up = up_acts(&p, old, m * ldy);
    /* plain; bias; bias and another's residual; bias and its own; scaled, without and with bias */
    for (int kind = 0; kind < 6; kind++) {
        float *y = ares_malloc((size_t)(m * ldy) * sizeof *y);
        memcpy(y, old, (size_t)(m * ldy) * sizeof *y);
        void *y_up = up_acts(&p, old, m * ldy);
        ares_linear_args a = { .m = m,
                               .x = x,
                               .ldx = ldx,
                               .w = &w.cpu,
                               .bias = kind % 4 ? bias : NULL,
                               .scale = kind < 4 ? 0 : -1.7f,
                               .residual = kind == 2   ? old
                                           : kind == 3 ? y
                                                       : NULL,
                               .ldr = ldy,
                               .y = y,
                               .ldy = ldy };
        ares_linear_args b = { .m = m,
                               .x = x_up,
                               .ldx = ldx,
                               .w = &w.other,
                               .bias = kind % 4 ? bias_up : NULL,
                               .scale = a.scale,
                               .residual = kind == 2   ? other_up
                                           : kind == 3 ? y_up
                                                       : NULL,
                               .ldr = ldy,
                               .y = y_up,
                               .ldy = ldy };
        p.cpu.k->linear(&p.cpu, &a, 1);
        p.other.k->linear(&p.other, &b, 1);
        agree_acts(&p, "y", y_up, y, m * ldy, 1e-5);
        ares_free(y);
    }
    for (int kind = 0; kind < 3; kind++) { /* dx = , dx += , dx = scaled */
        bool accumulate = kind == 1;
        weights dw = weights_new(&p, old_dw, ARES_F32, n, k);
        float *dx = ares_malloc((size_t)(m * ldx) * sizeof *dx),
              *db = ares_malloc((size_t)n * sizeof *db);
        memcpy(dx, old_dx, (size_t)(m * ldx) * sizeof *dx);
        memcpy(db, bias, (size_t)n * sizeof *db);
        void *dx_up = up_acts(&p, dx, m * ldx);
        float *db_up = up_floats(&p, db, n);
        ares_linear_backward_args a = { .m = m,
                                        .dy = dy,
                                        .lddy = ldy,
                                        .w = &w.cpu,
                                        .dx = dx,
                                        .lddx = ldx,
                                        .accumulate = accumulate,
                                        .scale = kind == 2 ? 0.6f : 0,
                                        .x = x,
                                        .ldx = ldx,
                                        .dw = &dw.cpu,
                                        .dbias = db };
        ares_linear_backward_args b = { .m = m,
                                        .dy = dy_up,
                                        .lddy = ldy,
                                        .w = &w.other,
                                        .dx = dx_up,
                                        .lddx = ldx,
                                        .accumulate = accumulate,
                                        .scale = a.scale,
                                        .x = x_up,
                                        .ldx = ldx,
                                        .dw = &dw.other,
                                        .dbias = db_up };
        p.cpu.k->linear_backward(&p.cpu, &a, 1);
        p.other.k->linear_backward(&p.other, &b, 1);
        agree_acts(&p, "dx", dx_up, dx, m * ldx, 1e-5);
        agree_device(&p, "dbias", db_up, db, n, 1e-5);
        weights_agree(&p, "dw", &dw, 1e-5);
        ares_free(dx), ares_free(db), ares_free(dw.cpu.data);
    }
    float *all[] = { x, rows, bias, old, dy, old_dx, old_dw, w.cpu.data };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    pair_close(&p);
}
static void linear_cases(table which)
{
    linear_case(which, ARES_F32, 1, 7, 5);
    linear_case(which, ARES_F32, 70, 96, 64);
    linear_case(which, ARES_F32, 9, 1, 33);
    linear_case(which, ARES_BF16, 33, 65, 48);
    linear_case(which, ARES_F32, 1100, 40, 9);
}
ON_ALL(linear_and_its_gradients_agree_with_the_cpu, linear_cases)

/* q, k and v side by side: weights in one block, biases in another, results in rows of all. */
static void adjacent_cases(table which)
{
    pair p;
    if (!pair_open(&p, which)) return;
    enum { M = 19, K = 40, PARTS = 3 };
    static const int32_t of[PARTS] = { 64, 32, 32 };
    enum { N = 128 };
    float *x = normals(1, M * K, 1.0), *rows = normals(2, N * K, 0.1), *bias = normals(3, N, 1.0);
    void *x_up = up_acts(&p, x, M * K), *bias_up = up_acts(&p, bias, N);
    for (int biased = 0; biased < 2; biased++) {
        weights w = weights_new(&p, rows, p.other.k->act, N, K);
        float *y = filled(M * N, NAN);
        void *y_up = up_acts(&p, y, M * N);
        ares_matrix part[PARTS];
        ares_linear_args a[PARTS];
        for (int i = 0, at = 0; i < PARTS; at += of[i++]) {
            part[i] = (ares_matrix){ (char *)w.other.data +
                                         (size_t)(at * K) * ares_dtype_bytes(w.other.dtype),
                                     w.other.dtype, ARES_ROWS, of[i], K };
            a[i] = (ares_linear_args){ .m = M,
                                       .x = x_up,
                                       .ldx = K,
                                       .w = &part[i],
                                       .bias = biased ? acts_at(&p, bias_up, at) : NULL,
                                       .y = acts_at(&p, y_up, at),
                                       .ldy = N };
        }
        p.other.k->linear(&p.other, a, PARTS);
        p.cpu.k->linear(&p.cpu,
                        &(ares_linear_args){ .m = M,
                                             .x = x,
                                             .ldx = K,
                                             .w = &w.cpu,
                                             .bias = biased ? bias : NULL,
                                             .y = y,
                                             .ldy = N },
                        1);
        agree_acts(&p, "y", y_up, y, M * N, 1e-5);
        ares_free(y), ares_free(w.cpu.data);
    }
    ares_free(x), ares_free(rows), ares_free(bias);
    pair_close(&p);
}
ON_ALL(adjacent_products_agree_with_one_of_the_cpu, adjacent_cases)

static void embedding_cases(table which)
{
    pair p;
    if (!pair_open(&p, which)) return;
    enum { VOCAB = 50, K = 300, N = 700 };
    float *e = normals(1, VOCAB * K, 1.0), *dy = normals(2, N * K, 1.0), *y = filled(N * K, NAN),
          *old = normals(3, VOCAB * K, 1.0);
    int32_t ids[N];
    /* one often, one never */
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)(i % 3 ? ares_rng_below(ares_rng_root(4, ARES_RNG_TEST), (uint64_t)i,
                                                  VOCAB - 1)
                                 : 7);
    int32_t *ids_up = up(&p, ids, sizeof ids);
    void *y_up = up_acts(&p, y, N * K), *dy_up = up_acts(&p, dy, N * K);
    for (int i = 0; i < 4; i++) { /* f32 and bf16, as it is and scaled */
        float scale = i < 2 ? 0 : 5.0596f;
        weights w = weights_new(&p, e, i % 2 ? ARES_BF16 : ARES_F32, VOCAB, K);
        p.cpu.k->embedding(&p.cpu, &w.cpu, ids, N, y, K, scale);
        p.other.k->embedding(&p.other, &w.other, ids_up, N, y_up, K, scale);
        agree_acts(&p, "y", y_up, y, N * K, 0);
        ares_free(w.cpu.data);
    }
    for (int scaled = 0; scaled < 2; scaled++) {
        float scale = scaled ? 5.0596f : 0;
        weights de = weights_new(&p, old, ARES_F32, VOCAB, K);
        p.cpu.k->embedding_backward(&p.cpu, &de.cpu, ids, N, dy, K, scale);
        p.other.k->embedding_backward(&p.other, &de.other, ids_up, N, dy_up, K, scale);
        weights_agree(&p, "de", &de, 0);
        ares_free(de.cpu.data);
    }
    ares_free(e), ares_free(dy), ares_free(y), ares_free(old);
    pair_close(&p);
}
ON_ALL(embedding_and_its_gradient_have_the_bits_of_the_cpu, embedding_cases)

/* Byte i of block b in layer l. */
static uint8_t byte_of(int64_t l, int64_t b, int64_t i)
{
    return (uint8_t)((uint64_t)(l * 7919 + b * 131 + i) * 2654435761u >> 9);
}

/* More pairs than a launch of the card takes, of blocks all over the cache, and none. */
static void copy_blocks_cases(table which)
{
    enum { LAYERS = 3, BLOCKS = 1300, BYTES = 64 + 16, GAP = 32, PAIRS = 601 };
    const int64_t layer = BLOCKS * BYTES + GAP, all = LAYERS * layer;
    pair p;
    if (!pair_open(&p, which)) return;
    uint8_t *bytes = ares_malloc((size_t)all);
    int32_t *block = ares_malloc(2 * PAIRS * sizeof *block), from[BLOCKS];
    for (int32_t b = 0; b < BLOCKS; b++) from[b] = b;
    /* from a few blocks, each often, to every second one */
    for (int32_t i = 0; i < PAIRS; i++) {
        block[2 * i] = i % 40 * 30 + 1;
        block[2 * i + 1] = 2 * i;
        from[2 * i] = block[2 * i];
    }
    for (int64_t i = 0; i < all; i++) bytes[i] = byte_of(i / layer, i % layer / BYTES, i % BYTES);
    ares_copy_blocks_args a = { .cache = up(&p, bytes, (size_t)all),
                                .layers = LAYERS,
                                .layer_bytes = layer,
                                .block_bytes = BYTES,
                                .n = PAIRS,
                                .block = block };
    p.other.k->copy_blocks(&p.other, &a);
    memset(block, 0xee, 2 * PAIRS * sizeof *block);
    a.n = 0;
    p.other.k->copy_blocks(&p.other, &a);
    p.other.k->copy_out(&p.other, bytes, a.cache, (size_t)all);
    int64_t wrong = 0;
    for (int64_t i = 0; i < all; i++) {
        int64_t b = i % layer / BYTES;
        wrong += bytes[i] != byte_of(i / layer, b < BLOCKS ? from[b] : b, i % BYTES);
    }
    CHECK_EQ(wrong, 0);
    ares_free(bytes), ares_free(block);
    pair_close(&p);
}
ON_ALL(copies_blocks_in_all_layers, copy_blocks_cases)

/* ------------------------------------------------------------------ rows */

/* What both norms take and give: the CPU's arrays, and their copies. */
typedef struct norm {
    pair p;
    int32_t rows, k;
    int64_t ld;
    struct {
        float *x, *y, *dy, *dx, *w, *rstd, *dw;
    } cpu;
    struct {
        void *x, *y, *dy, *dx;
        float *w, *rstd, *dw;
    } other;
} norm;

static bool norm_open(norm *n, table which, const int32_t shape[2], float middle)
{
    if (!pair_open(&n->p, which)) return false;
    int32_t rows = n->rows = shape[0], k = n->k = shape[1];
    int64_t all = rows * (n->ld = k + 2);
    n->cpu.x = normals(1, all, 2.0), n->cpu.w = normals(2, k, 1.0);
    n->cpu.dy = normals(3, all, 1.0), n->cpu.y = filled(all, 0), n->cpu.rstd = filled(rows, NAN);
    n->cpu.dx = normals(4, all, 1.0), n->cpu.dw = normals(5, k, 1.0);
    for (int64_t i = 0; i < all; i++) n->cpu.x[i] += middle;
    n->other.x = up_acts(&n->p, n->cpu.x, all), n->other.y = up_acts(&n->p, n->cpu.y, all);
    n->other.dy = up_acts(&n->p, n->cpu.dy, all), n->other.dx = up_acts(&n->p, n->cpu.dx, all);
    n->other.w = up_floats(&n->p, n->cpu.w, k), n->other.dw = up_floats(&n->p, n->cpu.dw, k);
    n->other.rstd = up_floats(&n->p, n->cpu.rstd, rows);
    return true;
}
static void norm_agrees(norm *n, double of_y, double of_dx, double of_dw)
{
    int64_t all = n->rows * n->ld;
    agree_acts(&n->p, "y", n->other.y, n->cpu.y, all, of_y);
    agree_device(&n->p, "rstd", n->other.rstd, n->cpu.rstd, n->rows, of_y);
    agree_acts(&n->p, "dx", n->other.dx, n->cpu.dx, all, of_dx);
    agree_device(&n->p, "dw", n->other.dw, n->cpu.dw, n->k, of_dw);
}
static void norm_close(norm *n)
{
    float *all[] = { n->cpu.x, n->cpu.y, n->cpu.dy, n->cpu.dx, n->cpu.w, n->cpu.rstd, n->cpu.dw };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    pair_close(&n->p);
}

static void rms_norm_cases(table which)
{
    static const int32_t shapes[][2] = { { 1, 1 },     { 5, 33 },    { 70, 128 },
                                         { 67, 1000 }, { 1300, 70 }, { 16900, 2 } };
    /* with w; with 1 + w, added to rows beside; added to y itself */
    for (int s = 0; s < 3 * ARES_COUNT(shapes); s++) {
        norm n;
        if (!norm_open(&n, which, shapes[s / 3], 0)) return;
        float *beside = normals(9, n.rows * n.ld, 3.0);
        void *beside_up = up_acts(&n.p, beside, n.rows * n.ld);
        ares_rms_norm_args a = { .rows = n.rows,
                                 .k = n.k,
                                 .x = n.cpu.x,
                                 .ldx = n.ld,
                                 .w = n.cpu.w,
                                 .plus_one = s % 3 == 1,
                                 .eps = 1e-5f,
                                 .y = n.cpu.y,
                                 .ldy = n.ld,
                                 .residual = s % 3 == 1 ? beside
                                             : s % 3    ? n.cpu.y
                                                        : NULL,
                                 .ldr = n.ld,
                                 .rstd = n.cpu.rstd,
                                 .dy = n.cpu.dy,
                                 .lddy = n.ld,
                                 .dx = n.cpu.dx,
                                 .lddx = n.ld,
                                 .dw = n.cpu.dw },
                           b = a;
        b.x = n.other.x, b.w = n.other.w, b.y = n.other.y, b.rstd = n.other.rstd;
        b.dy = n.other.dy, b.dx = n.other.dx, b.dw = n.other.dw;
        b.residual = s % 3 == 1 ? beside_up : s % 3 ? n.other.y : NULL;
        n.p.cpu.k->rms_norm(&n.p.cpu, &a);
        n.p.other.k->rms_norm(&n.p.other, &b);
        n.p.cpu.k->rms_norm_backward(&n.p.cpu, &a);
        n.p.other.k->rms_norm_backward(&n.p.other, &b);
        /* of a row of one number only the rounding errors are left, times rstd */
        norm_agrees(&n, 1e-6, n.k == 1 ? 4e-6 : 1e-6, n.rows > 1000 ? 2e-5 : 2e-6);
        ares_free(beside);
        norm_close(&n);
    }
}
ON_ALL(rms_norm_and_its_gradients_agree_with_the_cpu, rms_norm_cases)

static void layer_norm_cases(table which)
{
    static const int32_t shapes[][2] = {
        { 1, 2 }, { 5, 33 }, { 70, 128 }, { 67, 1280 }, { 1300, 70 }
    };
    for (int s = 0; s < ARES_COUNT(shapes); s++) {
        norm n;
        if (!norm_open(&n, which, shapes[s], 3)) return;
        float *mean = filled(n.rows, NAN), *bias = normals(6, n.k, 1.0), *db = normals(7, n.k, 1.0);
        ares_layer_norm_args a = { .rows = n.rows,
                                   .k = n.k,
                                   .x = n.cpu.x,
                                   .ldx = n.ld,
                                   .w = n.cpu.w,
                                   .bias = bias,
                                   .eps = 1e-6f,
                                   .y = n.cpu.y,
                                   .ldy = n.ld,
                                   .mean = mean,
                                   .rstd = n.cpu.rstd,
                                   .dy = n.cpu.dy,
                                   .lddy = n.ld,
                                   .dx = n.cpu.dx,
                                   .lddx = n.ld,
                                   .dw = n.cpu.dw,
                                   .dbias = db },
                             b = a;
        b.x = n.other.x, b.w = n.other.w, b.y = n.other.y, b.rstd = n.other.rstd;
        b.dy = n.other.dy, b.dx = n.other.dx, b.dw = n.other.dw;
        b.bias = up_floats(&n.p, bias, n.k), b.dbias = up_floats(&n.p, db, n.k);
        b.mean = up_floats(&n.p, mean, n.rows);
        n.p.cpu.k->layer_norm(&n.p.cpu, &a);
        n.p.other.k->layer_norm(&n.p.other, &b);
        n.p.cpu.k->layer_norm_backward(&n.p.cpu, &a);
        n.p.other.k->layer_norm_backward(&n.p.other, &b);
        /* of a row of two numbers only rounding errors are left, times rstd */
        norm_agrees(&n, 2e-6, n.k == 2 ? 1e-5 : 2e-6, 4e-6);
        agree_device(&n.p, "mean", b.mean, mean, n.rows, 1e-6);
        agree_device(&n.p, "dbias", b.dbias, db, n.k, 2e-6);
        /* the weight or the bias may rest */
        float *alone[] = { normals(5, n.k, 1.0), normals(7, n.k, 1.0) };
        a.dw = alone[0], b.dw = up_floats(&n.p, alone[0], n.k);
        a.dbias = b.dbias = NULL;
        n.p.cpu.k->layer_norm_backward(&n.p.cpu, &a);
        n.p.other.k->layer_norm_backward(&n.p.other, &b);
        agree_device(&n.p, "dw alone", b.dw, n.cpu.dw, n.k, 4e-6);
        a.dbias = alone[1], b.dbias = up_floats(&n.p, alone[1], n.k);
        a.dw = b.dw = NULL;
        n.p.cpu.k->layer_norm_backward(&n.p.cpu, &a);
        n.p.other.k->layer_norm_backward(&n.p.other, &b);
        agree_device(&n.p, "dbias alone", b.dbias, db, n.k, 2e-6);
        CHECK_MEM(alone[0], n.cpu.dw, (size_t)n.k * sizeof **alone);
        CHECK_MEM(alone[1], db, (size_t)n.k * sizeof **alone);
        ares_free(alone[0]), ares_free(alone[1]);
        ares_free(mean), ares_free(bias), ares_free(db);
        norm_close(&n);
    }
}
ON_ALL(layer_norm_and_its_gradients_agree_with_the_cpu, layer_norm_cases)

static void activation_cases(table which)
{
    enum { N = 5003 };
    pair p;
    if (!pair_open(&p, which)) return;
    for (int f = ARES_SILU; f <= ARES_QUICK_GELU; f++) {
        float *x = normals(1, N, 3.0), *dy = normals(2, N, 1.0), *y = filled(N, 0),
              *dx = filled(N, 0);
        x[0] = 0, x[1] = 60, x[2] = -60;
        ares_activation_args a = { .f = (ares_activation)f,
                                   .n = N,
                                   .x = x,
                                   .y = y,
                                   .dy = dy,
                                   .dx = dx },
                             b = a;
        void *x_up = up_acts(&p, x, N), *dy_up = up_acts(&p, dy, N);
        b.x = x_up, b.dy = dy_up;
        b.y = up_acts(&p, y, N), b.dx = dy_up; /* in place */
        p.cpu.k->activation(&p.cpu, &a);
        p.other.k->activation(&p.other, &b);
        agree_acts(&p, "y", b.y, y, N, 1e-6);
        p.cpu.k->activation_backward(&p.cpu, &a);
        p.other.k->activation_backward(&p.other, &b);
        agree_acts(&p, "dx", dy_up, dx, N, 1e-6);
        b.y = x_up;
        p.other.k->activation(&p.other, &b);
        agree_acts(&p, "y in place", x_up, y, N, 1e-6);
        float *all[] = { x, dy, y, dx };
        for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    }
    pair_close(&p);
}
ON_ALL(activations_and_their_gradients_agree_with_the_cpu, activation_cases)

static void rope_cases(table which)
{
    pair p;
    if (!pair_open(&p, which)) return;
    enum { ROWS = 37, HEADS = 3 };
    for (int dim = 32; dim <= 34; dim += 2) { /* rows of whole 16 bytes, and others */
        int64_t ld = HEADS * dim + dim % 4 / 2, n = ROWS * ld;
        float *x = normals(1, n, 1.0), *angles = normals(2, ROWS * dim, 1.0),
              *angles_up = up_floats(&p, angles, ROWS * dim);
        void *x_up = up_acts(&p, x, n);
        p.other.k->rope(&p.other, ROWS, HEADS, dim, 0, x_up, ld, NULL, false);
        agree_acts(&p, "without angles", x_up, x, n, 0);
        for (int inverse = 0; inverse < 2; inverse++) {
            p.cpu.k->rope(&p.cpu, ROWS, HEADS, dim, 0, x, ld, angles, inverse);
            p.other.k->rope(&p.other, ROWS, HEADS, dim, 0, x_up, ld, angles_up, inverse);
            agree_acts(&p, inverse ? "rope back" : "rope", x_up, x, n, 1e-6);
        }
        ares_free(x), ares_free(angles);
    }
    pair_close(&p);
}
ON_ALL(rope_agrees_with_the_cpu, rope_cases)

static void gate_mul_cases(table which)
{
    pair p;
    if (!pair_open(&p, which)) return;
    enum { ROWS = 37, WIDTH = 100, MOST = WIDTH + 4, N = ROWS * MOST };
    for (int i = 0; i <= 2 * ARES_QUICK_GELU + 1; i++) {
        int f = i / 2;
        int64_t ld = MOST - i % 2; /* rows of whole 16 bytes, and others */
        float *gate = normals(3, N, 3.0), *up_ = normals(4, N, 1.0), *dy = normals(5, N, 1.0),
              *y = filled(N, 0);
        void *gate_up = up_acts(&p, gate, N), *up_up = up_acts(&p, up_, N),
             *dy_up = up_acts(&p, dy, N), *y_up = up_acts(&p, y, N);
        ares_gate_mul_args a = { .f = (ares_activation)f,
                                 .rows = ROWS,
                                 .k = WIDTH,
                                 .gate = gate,
                                 .up = up_,
                                 .ldgu = ld,
                                 .y = y,
                                 .ldy = ld,
                                 .dy = dy,
                                 .lddy = ld,
                                 .d_gate = gate, /* in place */
                                 .d_up = up_,
                                 .lddgu = ld },
                           b = a;
        b.gate = b.d_gate = gate_up, b.up = b.d_up = up_up, b.y = y_up, b.dy = dy_up;
        p.cpu.k->gate_mul(&p.cpu, &a);
        p.other.k->gate_mul(&p.other, &b);
        agree_acts(&p, "y", y_up, y, N, 1e-6);
        p.other.k->zero(&p.other, y_up, N * ares_dtype_bytes(p.other.k->act));
        memset(y, 0, N * sizeof(float));
        p.cpu.k->gate_mul_backward(&p.cpu, &a);
        p.other.k->gate_mul_backward(&p.other, &b);
        agree_acts(&p, "d_gate", gate_up, gate, N, 1e-6);
        agree_acts(&p, "d_up", up_up, up_, N, 1e-6);
        agree_acts(&p, "y again", y_up, y, N, 1e-6);
        float *all[] = { gate, up_, dy, y };
        for (int j = 0; j < ARES_COUNT(all); j++) ares_free(all[j]);
    }
    pair_close(&p);
}
ON_ALL(gate_mul_and_its_gradients_agree_with_the_cpu, gate_mul_cases)

/* Ties in every second row; a weight near others differs by roundings alone, an expert never. */
static void experts_cases(table which)
{
    enum { ROWS = 61, EXPERTS = 23, USED = 5, WIDTH = 50, SLOTS = ROWS * USED };
    pair p;
    for (int norm = 0; norm < 2; norm++) {
        if (!pair_open(&p, which)) return;
        float *logits = normals(1, ROWS * EXPERTS, 1.5), *out = normals(2, SLOTS * WIDTH, 1),
              *beside = normals(3, ROWS * WIDTH, 1), *dy = normals(4, ROWS * WIDTH, 1),
              weight[SLOTS], c[SLOTS], entropy[ROWS], *dl = filled(ROWS * EXPERTS, NAN),
              *y = filled(ROWS * WIDTH, NAN), *d_out = filled(SLOTS * WIDTH, NAN);
        int32_t expert[2][SLOTS], first[2][EXPERTS + 1], row_of[2][SLOTS], slot_of[2][SLOTS];
        for (int i = 1; i < ROWS * EXPERTS; i++)
            if (i / EXPERTS % 2 && i % 3 && i % EXPERTS) logits[i] = logits[i - 1];
        ares_route_args a = { .rows = ROWS,
                              .experts = EXPERTS,
                              .used = USED,
                              .norm = norm,
                              .ldl = EXPERTS,
                              .expert = expert[0],
                              .weight = weight,
                              .first = first[0],
                              .row_of = row_of[0],
                              .slot_of = slot_of[0],
                              .entropy = entropy,
                              .c = c,
                              .dl = dl,
                              .lddl = EXPERTS },
                        b = a;
        b.logits = up_acts(&p, logits, ROWS * EXPERTS), b.dl = up_acts(&p, dl, ROWS * EXPERTS);
        a.logits = logits;
        b.expert = up(&p, NULL, sizeof expert[0]), b.first = up(&p, NULL, sizeof first[0]);
        b.row_of = up(&p, NULL, sizeof row_of[0]), b.slot_of = up(&p, NULL, sizeof slot_of[0]);
        b.weight = up(&p, NULL, sizeof weight), b.entropy = up(&p, NULL, sizeof entropy);
        p.cpu.k->route(&p.cpu, &a);
        p.other.k->route(&p.other, &b);
        p.other.k->copy_out(&p.other, expert[1], b.expert, sizeof expert[1]);
        p.other.k->copy_out(&p.other, first[1], b.first, sizeof first[1]);
        p.other.k->copy_out(&p.other, row_of[1], b.row_of, sizeof row_of[1]);
        p.other.k->copy_out(&p.other, slot_of[1], b.slot_of, sizeof slot_of[1]);
        CHECK_MEM(expert[1], expert[0], sizeof expert[0]);
        CHECK_MEM(first[1], first[0], sizeof first[0]);
        CHECK_MEM(row_of[1], row_of[0], sizeof row_of[0]);
        CHECK_MEM(slot_of[1], slot_of[0], sizeof slot_of[0]);
        agree_device(&p, "weight", b.weight, weight, SLOTS, 1e-6);
        agree_device(&p, "entropy", b.entropy, entropy, ROWS, 1e-6);
        ares_combine_args sum = { .rows = ROWS,
                                  .used = USED,
                                  .width = WIDTH,
                                  .slot_of = slot_of[0],
                                  .weight = weight,
                                  .out = out,
                                  .ldo = WIDTH,
                                  .residual = beside,
                                  .ldr = WIDTH,
                                  .y = y,
                                  .ldy = WIDTH,
                                  .dy = dy,
                                  .lddy = WIDTH,
                                  .c = c,
                                  .d_out = d_out,
                                  .lddo = WIDTH },
                          on = sum;
        on.slot_of = b.slot_of, on.weight = b.weight, on.out = up_acts(&p, out, SLOTS * WIDTH);
        on.residual = up_acts(&p, beside, ROWS * WIDTH), on.y = up_acts(&p, y, ROWS * WIDTH);
        on.dy = up_acts(&p, dy, ROWS * WIDTH), on.d_out = up_acts(&p, d_out, SLOTS * WIDTH);
        on.c = up(&p, NULL, sizeof c), b.c = on.c;
        p.cpu.k->combine(&p.cpu, &sum);
        p.other.k->combine(&p.other, &on);
        agree_acts(&p, "y", on.y, y, ROWS * WIDTH, 1e-6);
        p.cpu.k->combine_backward(&p.cpu, &sum);
        p.other.k->combine_backward(&p.other, &on);
        agree_device(&p, "c", on.c, c, SLOTS, 2e-6);
        agree_acts(&p, "d_out", on.d_out, d_out, SLOTS * WIDTH, 1e-6);
        p.cpu.k->route_backward(&p.cpu, &a);
        p.other.k->route_backward(&p.other, &b);
        agree_acts(&p, "dl", b.dl, dl, ROWS * EXPERTS, 4e-6);
        sum.weight = on.weight = NULL, sum.residual = on.residual = NULL;
        p.cpu.k->combine(&p.cpu, &sum);
        p.other.k->combine(&p.other, &on);
        agree_acts(&p, "sum", on.y, y, ROWS * WIDTH, 1e-6);
        float *all[] = { logits, out, beside, dy, dl, y, d_out };
        for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
        pair_close(&p);
    }
}
TEST(aten_experts_and_their_gradients_agree_with_the_cpu)
{
    experts_cases(ATEN);
}
TEST(aten_in_bf16_experts_and_their_gradients_agree_with_the_cpu)
{
    experts_cases(ATEN_BF16);
}

/* ------------------------------------------------------------------ attention */

enum { SEGMENTS_MAX = 8 };
typedef struct shape {
    int segments, rows[SEGMENTS_MAX], prefix_of[SEGMENTS_MAX], heads, kv_heads, dim;
    bool causal;
    int window;
    float scale; /* 0: head_dim^-0.5 */
} shape;
static const shape shapes[] = {
    { 1, { 1 }, { -1 }, 1, 1, 2, true, 0, 0 },
    { 3, { 5, 33, 70 }, { -1, -1, -1 }, 4, 2, 16, true, 0, 0 },
    { 2, { 64, 32 }, { -1, -1 }, 2, 2, 128, true, 0, 0 },
    { 2, { 130, 31 }, { -1, -1 }, 9, 3, 64, true, 0, 0 },
    { 4, { 37, 20, 1, 61 }, { -1, 0, 0, 0 }, 6, 2, 32, true, 0, 0.09f },
    { 6, { 32, 9, 8, 70, 3, 40 }, { -1, 0, 0, -1, 3, 3 }, 3, 1, 24, true, 0, 0 },
    { 2, { 50, 90 }, { -1, -1 }, 4, 4, 80, true, 40, 0.31f },
    { 2, { 40, 67 }, { -1, -1 }, 2, 1, 18, false, 0, 0 },
    /* windows and frames of vision towers */
    { 6, { 64, 32, 16, 8, 4, 100 }, { -1, -1, -1, -1, -1, -1 }, 4, 4, 80, false, 0, 0 },
    { 5, { 64, 4, 16, 36, 8 }, { -1, -1, -1, -1, -1 }, 2, 2, 12, false, 0, 0 },
    { 3, { 11, 3, 40 }, { -1, 0, 0 }, 20, 1, 6, true, 17, 0 },
    { 1, { 45 }, { -1 }, 2, 1, 256, true, 0, 0 },
    /* from the cache: rows that decode, with sequences of different lengths */
    { 7, { 37, 1, 20, 1, 1, 1, 1 }, { -1, 0, -1, 2, 0, 0, 2 }, 6, 2, 10, true, 0, 0 },
    { 7, { 37, 1, 20, 1, 1, 1, 1 }, { -1, 0, -1, 2, 0, 0, 2 }, 3, 1, 16, true, 25, 0.5f },
    /* one key of the prefix in its second tile */
    { 3, { 33, 5, 9 }, { -1, 0, 0 }, 2, 1, 16, true, 0, 0 },
};

/* [rows][columns] to [columns][rows] */
static void turn(float *x, int64_t rows, int64_t columns)
{
    float *old = ares_malloc((size_t)(rows * columns) * sizeof *old);
    memcpy(old, x, (size_t)(rows * columns) * sizeof *old);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) x[c * rows + r] = old[r * columns + c];
    ares_free(old);
}

static void attention_case(table which, const shape *s)
{
    pair p;
    if (!pair_open(&p, which)) return;
    int32_t start[SEGMENTS_MAX + 1] = { 0 }, prefix_len[SEGMENTS_MAX], prefix_row[SEGMENTS_MAX];
    for (int i = 0; i < s->segments; i++) {
        int of = s->prefix_of[i];
        start[i + 1] = start[i] + s->rows[i];
        prefix_len[i] = of < 0 ? 0 : s->rows[of];
        prefix_row[i] = of < 0 ? 0 : start[of];
    }
    int64_t rows = start[s->segments], wide = rows * s->heads * s->dim,
            narrow = rows * s->kv_heads * s->dim;
    float *q = normals(1, wide, 1.0), *k = normals(2, narrow, 1.0), *v = normals(3, narrow, 1.0),
          *d_out = normals(4, wide, 1.0), *out = filled(wide, NAN),
          *lse = filled(rows * s->heads, NAN), *dq = filled(wide, NAN), *dk = filled(narrow, NAN),
          *dv = filled(narrow, NAN);
    ares_attention_args a = { .seg = { .n = s->segments,
                                       .rows = (int32_t)rows,
                                       .start = start,
                                       .prefix_len = prefix_len,
                                       .prefix_row = prefix_row },
                              .n_heads = s->heads,
                              .n_kv_heads = s->kv_heads,
                              .head_dim = s->dim,
                              .scale = s->scale != 0 ? s->scale : 1.0f / sqrtf((float)s->dim),
                              .causal = s->causal,
                              .window = s->window,
                              .q = q,
                              .ldq = s->heads * s->dim,
                              .k = k,
                              .v = v,
                              .ldkv = s->kv_heads * s->dim,
                              .out = out,
                              .ldo = s->heads * s->dim,
                              .lse = lse,
                              .d_out = d_out,
                              .dq = dq,
                              .lddq = s->heads * s->dim,
                              .dk = dk,
                              .dv = dv,
                              .lddkv = s->kv_heads * s->dim };
    ares_segments_measure(&a.seg);
    int32_t key_start[SEGMENTS_MAX + 1],
        *key_row = ares_calloc((size_t)a.seg.keys, sizeof *key_row);
    ares_segments_list_keys(&a.seg, key_start, key_row);
    ares_attention_args b = a;
    b.seg.key_start = up(&p, key_start, sizeof key_start);
    b.seg.key_row = up(&p, key_row, (size_t)a.seg.keys * sizeof *key_row);
    b.seg.start = up(&p, start, sizeof start);
    b.seg.prefix_len = up(&p, prefix_len, sizeof prefix_len);
    b.seg.prefix_row = up(&p, prefix_row, sizeof prefix_row);
    b.q = up_acts(&p, q, wide), b.k = up_acts(&p, k, narrow), b.v = up_acts(&p, v, narrow),
    b.d_out = up_acts(&p, d_out, wide);
    b.out = up_acts(&p, out, wide), b.lse = up_floats(&p, lse, rows * s->heads),
    b.dq = up_acts(&p, dq, wide), b.dk = up_acts(&p, dk, narrow), b.dv = up_acts(&p, dv, narrow);
    p.cpu.k->attention(&p.cpu, &a);
    p.other.k->attention(&p.other, &b);
    agree_acts(&p, "out", b.out, out, wide, 2e-6);
    /* libtorch's attention of bf16 takes an exp of 20 bits */
    if (which != CUDA) turn(lse, rows, s->heads); /* the order is the table's own */
    agree_device(&p, "lse", b.lse, lse, rows * s->heads, is_bf16(&p) ? 5e-5 : 2e-6);
    if (which != CUDA) turn(lse, s->heads, rows);
    p.cpu.k->attention_backward(&p.cpu, &a);
    p.other.k->attention_backward(&p.other, &b);
    agree_acts(&p, "dq", b.dq, dq, wide, 1e-5);
    agree_acts(&p, "dk", b.dk, dk, narrow, 1e-5);
    agree_acts(&p, "dv", b.dv, dv, narrow, 1e-5);

    /*
     * the same from a paged cache, whole sequences in scattered blocks: a copy of the prefix, then
     * the segment's rows
     */
    enum { BLOCKS = 64, STRIDE = 8 };
    int32_t table[SEGMENTS_MAX * STRIDE], next = 0, own_slots[512];
    size_t cache_bytes = (size_t)(BLOCKS * s->kv_heads * 2 * ARES_KV_BLOCK * s->dim) *
                         ares_dtype_bytes(p.other.k->act);
    void *cache = up(&p, NULL, cache_bytes), *paged = up_acts(&p, out, wide);
    float *first = down_acts(&p, b.out, wide), *second;
    for (int i = 0; i < s->segments; i++) {
        for (int c = 0; c * ARES_KV_BLOCK < prefix_len[i] + s->rows[i]; c++)
            table[i * STRIDE + c] = (next++ * 37 + 5) % BLOCKS;
        for (int from = 0; from < 2; from++) { /* the prefix's rows, then its own */
            int count = from ? s->rows[i] : prefix_len[i], base = from ? prefix_len[i] : 0,
                at = from ? start[i] : prefix_row[i];
            for (int r = 0; r < count; r++)
                own_slots[r] = table[i * STRIDE + (base + r) / ARES_KV_BLOCK] * ARES_KV_BLOCK +
                               (base + r) % ARES_KV_BLOCK;
            if (!count) continue;
            int32_t *slots = up(&p, own_slots, (size_t)count * sizeof *slots);
            store_keys(&p.other, count, s->kv_heads, s->dim, acts_at(&p, b.k, at * b.ldkv),
                       acts_at(&p, b.v, at * b.ldkv), b.ldkv, slots, cache);
        }
    }
    ARES_ASSERT(next <= BLOCKS);
    b.cache = cache;
    b.seg.block_table = up(&p, table, sizeof table);
    b.seg.table_stride = STRIDE;
    b.k = b.v = NULL;
    b.lse = NULL;
    b.out = paged;
    p.other.k->attention(&p.other, &b);
    second = down_acts(&p, paged, wide);
    /* libtorch's tiles follow the rows' layout; a card sums a row alone in chunks of keys */
    agree("paged", second, first, wide, is_bf16(&p) ? OF_BF16 : 2e-6);
    float *all[] = { q, k, v, d_out, out, lse, dq, dk, dv, first, second };
    ares_free(key_row);
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    pair_close(&p);
}
static void attention_cases(table which)
{
    for (int i = 0; i < ARES_COUNT(shapes); i++) attention_case(which, &shapes[i]);
}
ON_ALL(attention_and_its_gradients_agree_with_the_cpu_packed_and_paged, attention_cases)

/* ------------------------------------------------------------------ without memory */

/* What a card takes from libtorch is this code, whichever allocation is refused. */
static void scarce_cases(table which)
{
    static const int prefixes = 5, windows = 8; /* of shapes */
    for (int what = 0; what < 3; what++) {
        bool refused = true;
        int place;
        for (place = 0; refused; place += 1 + place / 8) {
            scarce(place, 1);
            if (what == 0) {
                linear_case(which, ARES_F32, 9, 7, 33);
                linear_case(which, ARES_BF16, 9, 7, 33);
                adjacent_cases(which);
            } else attention_case(which, &shapes[what == 1 ? prefixes : windows]);
            refused = scarce_end() > 0;
        }
        CHECK_MSG(place > 5, "only %d allocations", place);
    }
}
TEST(aten_computes_once_more_what_lacked_memory)
{
    scarce_cases(ATEN);
}
TEST(aten_in_bf16_computes_once_more_what_lacked_memory)
{
    scarce_cases(ATEN_BF16);
}

static int waits;
static int count_wait(ares_device *d)
{
    (void)d;
    return ++waits == 3 ? ares_fail(ARES_EDEVICE, "kernels: a kernel before it failed") : ARES_OK;
}

void ares_aten_open(ares_device *d, ares_dtype act);
void ares_aten_close(ares_device *d);

/* What was released is freed at a wait of the table under libtorch's. */
TEST(an_entry_that_lacks_memory_waits_and_fails_with_the_numbers)
{
    ares_device d;
    REQUIRE_OK(ares_device_open("cpu", 1, &d));
    ares_kernels under = *d.k;
    under.sync = count_wait;
    d.k = &under;
    ares_aten_open(&d, ARES_BF16);
    uint16_t x[4] = { 0x3f80, 0x4000, 0x3f80, 0x4000 }, y[4];
    float dw[4] = { 5, 6, 7, 8 };
    ares_matrix w = { x, ARES_BF16, ARES_ROWS, 2, 2 }, of_w = { dw, ARES_F32, ARES_ROWS, 2, 2 };
    ares_linear_backward_args a = {
        .m = 2, .dy = x, .lddy = 2, .w = &w, .dx = y, .lddx = 2, .x = x, .ldx = 2, .dw = &of_w
    };
    waits = 0;
    scarce(0, 1);
    d.k->linear_backward(&d, &a, 1);
    CHECK_EQ(scarce_end(), 1);
    CHECK_EQ(waits, 1);
    const float once[4] = { 7, 10, 11, 16 };
    agree("dw", dw, once, 4, 0);
    waits = 0;
    scarce(0, INT64_MAX);
    d.k->linear_backward(&d, &a, 1);
    d.k->linear_backward(&d, &a, 1); /* does nothing until sync */
    CHECK_EQ(scarce_end(), 2);
    CHECK_FAIL(
        d.k->sync(&d), ARES_ELIMIT,
        "kernels: aten: torch: linear_backward: at_addmm_out: CUDA out of memory. Tried "
        "to allocate 16 bytes. GPU 0 has a total capacity of 139.80 GiB of which 3.00 MiB is "
        "free (f32 [2, 2], bf16 [2, 2], bf16 [2, 2]); lower worker.rollout.gpu_memory_utilization "
        "or "
        "the tokens of a micro-batch");
    agree("dw", dw, once, 4, 0);
    waits = 2; /* the wait finds another failure, which is the first */
    scarce(0, 1);
    d.k->linear_backward(&d, &a, 1);
    CHECK_EQ(scarce_end(), 1);
    CHECK_FAIL(d.k->sync(&d), ARES_EDEVICE, "kernels: a kernel before it failed");
    CHECK_OK(d.k->sync(&d));
    ares_aten_close(&d);
    ares_device_close(&d);
}

/* ------------------------------------------------------------------ vocabulary */

/* The coefficients of a loss, on the device that asks for them. */
typedef struct some_loss_of {
    ares_device *d;
    const float *c; /* [2][all] */
    int32_t all, seen;
} some_loss_of;
static void some_loss(void *ctx, int32_t row, int32_t n, const float *log_prob,
                      const float *entropy, float *c_log_prob, float *c_entropy)
{
    some_loss_of *of = ctx;
    (void)log_prob, (void)entropy;
    of->d->k->copy(of->d, c_log_prob, of->c + row, (size_t)n * sizeof(float));
    of->d->k->copy(of->d, c_entropy, of->c + of->all + row, (size_t)n * sizeof(float));
    of->seen += n;
}

static bool large_with_teacher; /* of head_case: which rounds a large one has */
/* Whether the table's head has a divergence from a teacher. */
static bool teaches(table which)
{
    return which != CUDA;
}
static void head_case(table which, ares_dtype dtype, int32_t rows, int32_t vocab, int32_t k)
{
    pair p;
    if (!pair_open(&p, which)) return;
    float *x = normals(1, (int64_t)rows * k, 1.0), *w_rows = normals(2, (int64_t)vocab * k, 0.3),
          *want = filled(rows * 3, NAN), *c = filled(rows * 2, 0),
          *dx = filled((int64_t)rows * k, NAN);
    int32_t *target = ares_malloc((size_t)rows * sizeof *target);
    for (int32_t r = 0; r < rows; r++)
        target[r] = r == 0 ? vocab - 1
                           : (int32_t)ares_rng_below(ares_rng_root(3, ARES_RNG_TEST), (uint64_t)r,
                                                     (uint64_t)vocab);
    for (int32_t r = 0; r < rows; r++) {
        c[r] = 0.1f + 0.01f * (float)(r % 7);
        c[rows + r] = -0.05f;
    }
    weights w = weights_new(&p, w_rows, dtype, vocab, k);
    void *x_up = up_acts(&p, x, (int64_t)rows * k), *dx_up = up_acts(&p, dx, (int64_t)rows * k);
    float *of_kl = normals(4, 3 * rows, 1.0), *ref_rows = normals(5, (int64_t)vocab * k, 0.3);
    void *ref_up = up_acts(&p, x, (int64_t)rows * k),
         *target_up = up(&p, target, (size_t)rows * sizeof *target);
    float *got = up_floats(&p, want, 3 * rows), *c_up = up_floats(&p, c, 2 * rows),
          *of_kl_up = up_floats(&p, of_kl, 3 * rows);
    weights ref = weights_new(&p, ref_rows, dtype, vocab, k);
    enum { RANK = 3 };
    float *u = normals(6, (int64_t)rows * RANK, 1.0), *du = filled((int64_t)rows * RANK, NAN),
          *b_rows = normals(7, (int64_t)vocab * RANK, 0.3);
    void *u_up = up_acts(&p, u, (int64_t)rows * RANK),
         *du_up = up_acts(&p, du, (int64_t)rows * RANK);
    ares_dtype of_b = is_bf16(&p) ? ARES_BF16 : ARES_F32;
    weights lora = weights_new(&p, b_rows, of_b, vocab, RANK);
    /* of a teacher that lacks the last ids */
    ares_divergence_row *rows_of[2] = { ares_calloc((size_t)rows, sizeof **rows_of),
                                        ares_calloc((size_t)rows, sizeof **rows_of) };
    ares_divergence_args by[2];
    float *of_teacher = filled(rows, 0.7f);
    /*
     * in two steps, fused, with a reference, with a teacher, with one and fused; then the same with
     * an adapter; then other betas
     */
    enum { TWO_STEPS, FUSED, REFERENCE, TEACHER, TEACHER_FUSED, WAYS };
    static const float betas[] = { 0.3f, 0.0f, 1.0f };
    for (int round = 0; round < 3 * WAYS; round++) {
        int way = round % WAYS;
        bool fused = way == FUSED || way == TEACHER_FUSED, taught = way >= TEACHER;
        if ((taught && !teaches(which)) || (!taught && round >= 2 * WAYS)) continue;
        bool large = (int64_t)rows * vocab > 1000000; /* and slow: its teacher is a test apart */
        if (large && (taught != large_with_teacher || (taught && round != TEACHER_FUSED))) continue;
        weights db = weights_new(&p, NULL, ARES_F32, vocab, RANK);
        weights dw = weights_new(&p, NULL, ARES_F32, vocab, k);
        ares_head_args a = { .rows = rows,
                             .vocab = vocab,
                             .x = x,
                             .ldx = k,
                             .w = &w.cpu,
                             .inv_temperature = 1.25f,
                             .target = target,
                             .log_prob = want,
                             .entropy = want + rows,
                             .lse = want + 2 * rows,
                             .c_log_prob = c,
                             .c_entropy = c + rows,
                             .dx = dx,
                             .lddx = k,
                             .dw = &dw.cpu };
        ares_head_args b = a;
        b.x = x_up, b.w = &w.other, b.log_prob = got, b.entropy = got + rows,
        b.lse = got + 2 * rows, b.dx = dx_up, b.dw = &dw.other;
        b.target = target_up, b.c_log_prob = c_up, b.c_entropy = c_up + rows;
        const ares_head_adapter l = { &lora.cpu, u, 0.8f, du, &db.cpu },
                                m = { &lora.other, u_up, 0.8f, du_up, &db.other };
        bool adapted = round >= WAYS && round < 2 * WAYS;
        if (adapted) a.adapter = &l, b.adapter = &m;
        if (adapted && way >= REFERENCE) a.ref_adapter = &l, b.ref_adapter = &m;
        some_loss_of of = { &p.cpu, c, rows, 0 }, of_other = { &p.other, c_up, rows, 0 };
        if (way >= REFERENCE) {
            a.ref_x = x, a.ld_ref = k, a.ref_w = &ref.cpu, a.kl = of_kl, a.ref_lse = of_kl + rows,
            a.c_kl = of_kl + 2 * rows;
            b.ref_x = ref_up, b.ld_ref = k, b.ref_w = &ref.other, b.kl = of_kl_up,
            b.ref_lse = of_kl_up + rows, b.c_kl = of_kl_up + 2 * rows;
        }
        for (int i = 0; i < 2 && taught; i++)
            by[i] = (ares_divergence_args){ .beta = betas[round / WAYS],
                                            .inv_temperature = 0.8f,
                                            .vocab = ARES_MAX(1, vocab - 5),
                                            .row = rows_of[i],
                                            .c = of_teacher };
        if (taught) a.divergence = &by[0], b.divergence = &by[1];
        if (fused) {
            p.cpu.k->head_fused(&p.cpu, &a, some_loss, &of);
            p.other.k->head_fused(&p.other, &b, some_loss, &of_other);
            CHECK_EQ(of.seen, rows);
            CHECK_EQ(of_other.seen, rows);
        } else {
            p.cpu.k->head(&p.cpu, &a);
            p.other.k->head(&p.other, &b);
            p.cpu.k->head_backward(&p.cpu, &a);
            p.other.k->head_backward(&p.other, &b);
        }
        CHECK_OK(p.other.k->sync(&p.other));
        agree_device(&p, "log_prob", got, want, rows, 2e-6);
        agree_device(&p, "entropy", got + rows, want + rows, rows, 5e-6);
        agree_device(&p, "lse", got + 2 * rows, want + 2 * rows, rows, 2e-6);
        for (int32_t r = 0; r < rows && taught; r++) {
            const ares_divergence_row *own = &rows_of[0][r], *other = &rows_of[1][r];
            /* sums of log-probs, which are as large as the entropy */
            double entropy = (double)own->ref_entropy,
                   close = (is_bf16(&p) || dtype == ARES_BF16 ? 2e-2 : 5e-6) * fmax(1, entropy);
            CHECK_NEAR((double)other->value, (double)own->value, close);
            CHECK_NEAR((double)other->reverse_kl, (double)own->reverse_kl, close);
            CHECK_NEAR((double)other->forward_kl, (double)own->forward_kl, close);
            CHECK_NEAR((double)other->ref_entropy, entropy, close);
        }
        if (way == REFERENCE) {
            agree_device(&p, "kl", of_kl_up, of_kl, rows, 5e-6);
            agree_device(&p, "ref_lse", of_kl_up + rows, of_kl + rows, rows, 2e-6);
        }
        agree_acts(&p, "dx", dx_up, dx, (int64_t)rows * k, 1e-5);
        weights_agree(&p, "dw", &dw, 1e-5);
        if (a.adapter) {
            agree_acts(&p, "du", du_up, du, (int64_t)rows * RANK, 1e-5);
            weights_agree(&p, "db", &db, 1e-5);
        }
        ares_free(dw.cpu.data), ares_free(db.cpu.data);
    }
    void *all[] = { x,          w_rows,     want,         c, dx, target, w.cpu.data,
                    of_kl,      ref_rows,   ref.cpu.data, u, du, b_rows, lora.cpu.data,
                    rows_of[0], rows_of[1], of_teacher };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    pair_close(&p);
}
static void head_cases(table which)
{
    head_case(which, ARES_F32, 1, 3, 4);
    head_case(which, ARES_F32, 40, 1000, 32);
    head_case(which, ARES_BF16, 13, 2111, 24);
}
ON_ALL(head_and_its_gradients_agree_with_the_cpu, head_cases)

TEST(a_teacher_that_is_the_student_diverges_by_exactly_0_through_libtorch)
{
    enum { ROWS = 9, VOCAB = 301, K = 24 };
    pair p;
    if (!pair_open(&p, ATEN)) return;
    float *x = normals(1, ROWS * K, 1.0), *w_rows = normals(2, VOCAB * K, 0.3),
          *stats = filled(ROWS * 3, NAN), *zeros = filled(ROWS, 0), *ones = filled(ROWS, 1),
          *dx = filled(ROWS * K, NAN);
    int32_t target[ROWS] = { 0 };
    weights w = weights_new(&p, w_rows, ARES_F32, VOCAB, K);
    static const float betas[] = { 0, 0.3f, 1 };
    for (int i = 0; i < ARES_COUNT(betas); i++) {
        ares_divergence_row row[ROWS];
        const ares_divergence_args by = { betas[i], 1.25f, VOCAB, row, ones };
        const ares_head_args a = { .rows = ROWS,
                                   .vocab = VOCAB,
                                   .x = x,
                                   .ldx = K,
                                   .w = &w.other,
                                   .inv_temperature = 1.25f,
                                   .target = target,
                                   .log_prob = stats,
                                   .entropy = stats + ROWS,
                                   .lse = stats + 2 * ROWS,
                                   .c_log_prob = zeros,
                                   .c_entropy = zeros,
                                   .dx = dx,
                                   .lddx = K,
                                   .ref_x = x,
                                   .ld_ref = K,
                                   .ref_w = &w.other,
                                   .divergence = &by };
        p.other.k->head(&p.other, &a);
        p.other.k->head_backward(&p.other, &a);
        CHECK_OK(p.other.k->sync(&p.other));
        for (int r = 0; r < ROWS; r++) {
            CHECK(row[r].value == 0 && row[r].reverse_kl == 0 && row[r].forward_kl == 0);
            CHECK(row[r].agrees == 1 && row[r].ref_entropy > 0);
        }
        for (int e = 0; e < ROWS * K; e++) CHECK(dx[e] == 0);
    }
    void *all[] = { x, w_rows, stats, zeros, ones, dx, w.cpu.data };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    pair_close(&p);
}

/* The first chunk of logits has 64 of the 66 rows. */
TEST(aten_head_and_its_gradients_agree_with_the_cpu_beyond_the_first_chunk_of_logits)
{
    head_case(ATEN, ARES_F32, 66, 1 << 18, 4);
}
TEST(aten_head_with_a_teacher_agrees_with_the_cpu_beyond_the_first_chunk_of_logits)
{
    large_with_teacher = true;
    head_case(ATEN, ARES_F32, 66, 1 << 18, 4);
    large_with_teacher = false;
}

/* x and W are small multiples of 1/4, so logits are exact on both sides and many are equal. */
static float *quarters(uint64_t seed, int64_t n, int most)
{
    float *x = ares_malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float)ares_rng_below(ares_rng_root(seed, ARES_RNG_TEST), (uint64_t)i,
                                      (uint64_t)(2 * most + 1)) -
                (float)most) /
               4;
    return x;
}
/* A call whose arrays with a number per row lie in host memory: they go there, and back. */
static void sample_there(pair *p, const ares_sample_args *host)
{
    const struct {
        size_t offset, each;
        bool out;
    } arrays[] = {
#define IN(name) { offsetof(ares_sample_args, name), sizeof *host->name, false }
#define OUT(name, width) { offsetof(ares_sample_args, name), 4 * (size_t)(width), true }
        IN(temperature),
        IN(top_p),
        IN(top_k),
        IN(key),
        OUT(token, 1),
        OUT(log_prob, 1),
        OUT(entropy, 1),
        OUT(log_prob_1, 1),
        OUT(entropy_1, 1),
        OUT(likely_token, host->n_likely),
        OUT(likely_log_prob, host->n_likely),
#undef IN
#undef OUT
    };
    ares_device *d = &p->other;
    ares_sample_args a = *host;
    void *there[ARES_COUNT(arrays)];
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < ARES_COUNT(arrays); i++) {
            void *own = *(void *const *)(const void *)((const char *)host + arrays[i].offset);
            size_t bytes = own ? (size_t)a.rows * arrays[i].each : 0;
            if (run && bytes && arrays[i].out) d->k->copy_out(d, own, there[i], bytes);
            if (run) d->k->release(d, there[i], bytes);
            else {
                there[i] = bytes ? d->k->alloc(d, bytes) : NULL;
                if (bytes && !arrays[i].out) d->k->copy_in(d, there[i], own, bytes);
                memcpy((char *)&a + arrays[i].offset, &there[i], sizeof there[i]);
            }
        }
        if (!run) d->k->sample(d, &a);
    }
}
/* Rows that are drawn in every way: temperature, top-p, top-k, greedy, and all of them mixed. */
enum { DRAWS = 80 };
typedef struct draws {
    float temperature[DRAWS], top_p[DRAWS];
    int32_t top_k[DRAWS];
    ares_rng_key key[DRAWS];
} draws;
static void draws_set(draws *w, int32_t vocab)
{
    for (int r = 0; r < DRAWS; r++) {
        w->temperature[r] = (float[]){ 1.0f, 0.7f, 1.5f, 0.0f }[r % 4];
        w->top_p[r] = (float[]){ 1.0f, 0.9f, 0.3f, 0.01f, 0.999f }[r / 4 % 5];
        w->top_k[r] = (int32_t[]){ 0, 1, 20, vocab - 1 }[r / 20 % 4];
        w->key[r] = ares_rng_sub(ares_rng_root(9, ARES_RNG_SAMPLE), (uint64_t)r, 0);
    }
}
static void sample_cases(table which)
{
    static const int32_t vocabs[] = { 5, 1001, 17000 }; /* 17000: three chunks on a card */
    for (int v = 0; v < ARES_COUNT(vocabs); v++) {
        pair p;
        if (!pair_open(&p, which)) return;
        enum { K = 16 };
        int32_t vocab = vocabs[v];
        float *x = quarters(1, DRAWS * K, 4), *w_rows = quarters(2, (int64_t)vocab * K, 4);
        weights w = weights_new(&p, w_rows, ARES_F32, vocab, K);
        float stat[2][4][DRAWS];
        int32_t token[2][DRAWS];
        draws ways;
        draws_set(&ways, vocab);
        ares_sample_args a = { .rows = DRAWS,
                               .vocab = vocab,
                               .x = x,
                               .ldx = K,
                               .w = &w.cpu,
                               .temperature = ways.temperature,
                               .top_p = ways.top_p,
                               .top_k = ways.top_k,
                               .key = ways.key,
                               .token = token[0],
                               .log_prob = stat[0][0],
                               .entropy = stat[0][1],
                               .log_prob_1 = stat[0][2],
                               .entropy_1 = stat[0][3] };
        ares_sample_args b = a;
        b.x = up_acts(&p, x, DRAWS * K), b.w = &w.other, b.token = token[1],
        b.log_prob = stat[1][0], b.entropy = stat[1][1], b.log_prob_1 = stat[1][2],
        b.entropy_1 = stat[1][3];
        p.cpu.k->sample(&p.cpu, &a);
        sample_there(&p, &b);
        CHECK_OK(p.other.k->sync(&p.other));
        for (int r = 0; r < DRAWS; r++)
            CHECK_MSG(
                token[0][r] == token[1][r],
                "vocab %d, row %d (temperature %g, top_p %g, top_k %d): token %d, the CPU took %d",
                vocab, r, ways.temperature[r], ways.top_p[r], ways.top_k[r], token[1][r],
                token[0][r]);
        for (int i = 0; i < 4; i++) agree("statistics", stat[1][i], stat[0][i], DRAWS, 2e-6);
        static int32_t likely[2][DRAWS * ARES_LIKELY_MAX];
        static float log_prob[2][DRAWS * ARES_LIKELY_MAX];
        for (int i = 0; i < 3; i++) {
            int32_t n = (int32_t[]){ 1, 10, ARES_LIKELY_MAX }[i];
            a.n_likely = b.n_likely = n;
            a.likely_token = likely[0], b.likely_token = likely[1], a.likely_log_prob = log_prob[0],
            b.likely_log_prob = log_prob[1];
            p.cpu.k->sample(&p.cpu, &a);
            sample_there(&p, &b);
            CHECK_OK(p.other.k->sync(&p.other));
            CHECK_MEM(token[1], token[0], sizeof token[0]);
            CHECK_MEM(likely[1], likely[0], (size_t)(DRAWS * n) * sizeof(int32_t));
            for (int r = 0; r < DRAWS; r++)
                agree("likely log-probs", log_prob[1] + r * n, log_prob[0] + r * n,
                      ARES_MIN(n, vocab), 2e-6);
        }
        /* from the logits themselves: exact sums, so every bit is the same */
        float *logits = ares_malloc(DRAWS * (size_t)vocab * sizeof *logits);
        for (int r = 0; r < DRAWS; r++)
            for (int32_t t = 0; t < vocab; t++) {
                float z = 0;
                for (int i = 0; i < K; i++) z += x[r * K + i] * w_rows[t * K + i];
                logits[(int64_t)r * vocab + t] = z;
            }
        ares_sample_args c = b;
        float computed[4][DRAWS];
        memcpy(computed, stat[1], sizeof computed);
        c.x = NULL, c.w = NULL, c.logits = up_floats(&p, logits, (int64_t)DRAWS * vocab);
        sample_there(&p, &c);
        CHECK_OK(p.other.k->sync(&p.other));
        CHECK_MEM(token[1], token[0], sizeof token[0]);
        CHECK_MEM(stat[1], computed, sizeof computed);
        a.n_likely = b.n_likely = 0;
        a.top_p = NULL, a.top_k = NULL, a.log_prob_1 = a.entropy_1 = NULL;
        b.top_p = NULL, b.top_k = NULL, b.log_prob_1 = b.entropy_1 = NULL;
        p.cpu.k->sample(&p.cpu, &a);
        sample_there(&p, &b);
        CHECK_MEM(token[1], token[0], sizeof token[0]);
        ares_free(x), ares_free(w_rows), ares_free(w.cpu.data), ares_free(logits);
        pair_close(&p);
    }
}
ON_ALL(samples_the_tokens_of_the_cpu, sample_cases)

/* Sums are exact, so that every bit is the same. The first chunk has 64 of the 80 rows. */
TEST(aten_samples_rows_of_the_second_chunk_of_logits_as_those_of_the_first)
{
    enum { K = 4, VOCAB = 1 << 18, LIKELY = 3 };
    pair p;
    if (!pair_open(&p, ATEN)) return;
    float *x = quarters(1, DRAWS * K, 4), *w_rows = quarters(2, (int64_t)VOCAB * K, 4);
    weights w = weights_new(&p, w_rows, ARES_F32, VOCAB, K);
    float stat[2][4][DRAWS], log_prob[2][DRAWS * LIKELY];
    int32_t token[2][DRAWS], likely[2][DRAWS * LIKELY];
    draws ways;
    draws_set(&ways, VOCAB);
    for (int i = 0; i < 2; i++) {
        const ares_sample_args a = { .rows = DRAWS,
                                     .vocab = VOCAB,
                                     .x = i ? up_acts(&p, x, DRAWS * K) : x,
                                     .ldx = K,
                                     .w = i ? &w.other : &w.cpu,
                                     .temperature = ways.temperature,
                                     .top_p = ways.top_p,
                                     .top_k = ways.top_k,
                                     .key = ways.key,
                                     .token = token[i],
                                     .log_prob = stat[i][0],
                                     .entropy = stat[i][1],
                                     .log_prob_1 = stat[i][2],
                                     .entropy_1 = stat[i][3],
                                     .n_likely = LIKELY,
                                     .likely_token = likely[i],
                                     .likely_log_prob = log_prob[i] };
        memset(stat[i], 0x55, sizeof stat[i]); /* what is not written */
        if (i) sample_there(&p, &a);
        else p.cpu.k->sample(&p.cpu, &a);
    }
    CHECK_OK(p.other.k->sync(&p.other));
    CHECK_MEM(token[1], token[0], sizeof token[0]);
    CHECK_MEM(likely[1], likely[0], sizeof likely[0]);
    for (int i = 0; i < 4; i++) CHECK_MEM(stat[1][i], stat[0][i], sizeof stat[0][i]);
    CHECK_MEM(log_prob[1], log_prob[0], sizeof log_prob[0]);
    ares_free(x), ares_free(w_rows), ares_free(w.cpu.data);
    pair_close(&p);
}

/* One call on each device, with the same logits and no products. */
typedef struct drawn {
    int32_t token[2][DRAWS], likely[2][DRAWS * 10];
    float stat[2][4][DRAWS], log_prob[2][DRAWS * 10];
} drawn;
static void draw_both(pair *p, const draws *ways, const float *z, int32_t vocab, int32_t n_barred,
                      const int32_t barred[2], int32_t n_likely, drawn *out)
{
    float *there = p->other.k->alloc(&p->other, (size_t)DRAWS * (size_t)vocab * sizeof *z);
    p->other.k->copy_in(&p->other, there, z, (size_t)DRAWS * (size_t)vocab * sizeof *z);
    for (int i = 0; i < 2; i++) {
        ares_sample_args a = { .rows = DRAWS,
                               .vocab = vocab,
                               .logits = i ? there : z,
                               .temperature = ways->temperature,
                               .top_p = ways->top_p,
                               .top_k = ways->top_k,
                               .key = ways->key,
                               .n_barred = n_barred,
                               .barred = { barred[0], barred[1] },
                               .token = out->token[i],
                               .log_prob = out->stat[i][0],
                               .entropy = out->stat[i][1],
                               .log_prob_1 = out->stat[i][2],
                               .entropy_1 = out->stat[i][3],
                               .n_likely = n_likely,
                               .likely_token = out->likely[i],
                               .likely_log_prob = out->log_prob[i] };
        if (i) sample_there(p, &a);
        else p->cpu.k->sample(&p->cpu, &a);
    }
    CHECK_OK(p->other.k->sync(&p->other));
    p->other.k->release(&p->other, there, (size_t)DRAWS * (size_t)vocab * sizeof *z);
}

/*
 * Rows whose own token is barred among those whose is not. At last the barred two hold nearly all
 * of every row, so that the most likely of the others lie far below what top-p and top-k keep of
 * all. Seen to fail on a card with the threshold of top-p that holds where none is barred, with
 * that of top-k for k tokens instead of k + 2, with the barred's mass counted, and where one of the
 * two is not looked at.
 */
static void barred_cases(table which)
{
    static const int32_t vocabs[] = { 5, 1001, 17000 };
    static const struct {
        int32_t n, row[2]; /* whose tokens are barred: of plain and greedy rows, and of cut ones */
    } cases[] = { { 0, { 0, 0 } },  { 2, { 0, 3 } },   { 1, { 13, 0 } },
                  { 2, { 21, 9 } }, { 2, { 45, 46 } }, { 2, { 0, 1 } } };
    static drawn free_, got;
    for (int v = 0; v < ARES_COUNT(vocabs); v++) {
        pair p;
        if (!pair_open(&p, which)) return;
        int32_t vocab = vocabs[v];
        float *z = quarters(3, (int64_t)DRAWS * vocab, 24);
        draws ways;
        draws_set(&ways, vocab);
        for (int i = 0; i < ARES_COUNT(cases); i++) {
            bool last = i == ARES_COUNT(cases) - 1;
            drawn *to = i ? &got : &free_;
            int32_t barred[2] = { free_.token[0][cases[i].row[0]],
                                  free_.token[0][cases[i].row[1]] };
            if (last) barred[0] = 3, barred[1] = vocab - 1;
            for (int r = 0; last && r < DRAWS; r++)
                for (int k = 0; k < 2; k++) z[(int64_t)r * vocab + barred[k]] = 20;
            draw_both(&p, &ways, z, vocab, cases[i].n, barred, last ? 1 : 10, to);
            for (int r = 0; r < DRAWS; r++) {
                int32_t token = to->token[1][r];
                CHECK_MSG(token == to->token[0][r],
                          "vocab %d, case %d, row %d: token %d, the CPU took %d", vocab, i, r,
                          token, to->token[0][r]);
                for (int k = 0; k < cases[i].n; k++) CHECK(token != barred[k]);
            }
            CHECK_MEM(to->likely[1], to->likely[0], sizeof to->likely[0]);
            for (int k = 0; k < 4; k++)
                agree("statistics", to->stat[1][k], to->stat[0][k], DRAWS, 2e-6);
            if (last) continue;
            CHECK_MEM(to->likely[1], free_.likely[1], sizeof to->likely[1]);
            CHECK_MEM(to->stat[1][1], free_.stat[1][1], sizeof to->stat[1][1]);
        }
        ares_free(z);
        pair_close(&p);
    }
}
ON_ALL(draws_no_barred_id_and_otherwise_as_the_cpu, barred_cases)

/* ------------------------------------------------------------------ whole arrays */

/* Both get the same number of rows, so that the product of logits is the same call. */
TEST_GPU(cuda_sampler_and_head_have_the_same_bits_at_300_temperatures)
{
    enum { ROWS = 8, K = 16, VOCAB = 1001 };
    pair p;
    float temperature[ROWS], sampled[2][ROWS], headed[2][ROWS];
    int32_t token[ROWS];
    ares_rng_key key[ROWS];
    if (!have_card() || !pair_open(&p, CUDA)) return;
    float *x = normals(1, ROWS * K, 1.0), *rows = normals(2, VOCAB * K, 0.5),
          *up_x = up_floats(&p, x, ROWS * K), *stats = up(&p, NULL, 3 * ROWS * sizeof *stats);
    int32_t *target = up(&p, NULL, sizeof token);
    weights w = weights_new(&p, rows, ARES_F32, VOCAB, K);
    for (int r = 0; r < ROWS; r++)
        key[r] = ares_rng_sub(ares_rng_root(9, ARES_RNG_SAMPLE), (uint64_t)r, 0);
    for (int t = 1; t <= 300; t++) {
        for (int r = 0; r < ROWS; r++) temperature[r] = (float)(t / 100.0);
        sample_there(&p, &(ares_sample_args){ .rows = ROWS,
                                              .vocab = VOCAB,
                                              .x = up_x,
                                              .ldx = K,
                                              .w = &w.other,
                                              .temperature = temperature,
                                              .key = key,
                                              .token = token,
                                              .log_prob = sampled[0],
                                              .entropy = sampled[1] });
        p.other.k->copy_in(&p.other, target, token, sizeof token);
        p.other.k->head(&p.other,
                        &(ares_head_args){ .rows = ROWS,
                                           .vocab = VOCAB,
                                           .x = up_x,
                                           .ldx = K,
                                           .w = &w.other,
                                           .inv_temperature = ares_inv_temperature(temperature[0]),
                                           .target = target,
                                           .log_prob = stats,
                                           .entropy = stats + ROWS,
                                           .lse = stats + 2 * ROWS });
        p.other.k->copy_out(&p.other, headed, stats, sizeof headed);
        CHECK_OK(p.other.k->sync(&p.other));
        CHECK_MEM(headed[0], sampled[0], sizeof headed[0]);
        CHECK_MEM(headed[1], sampled[1], sizeof headed[1]);
    }
    ares_free(w.cpu.data);
    ares_free(rows);
    ares_free(x);
    pair_close(&p);
}

/* Arrays of bf16, compared as f32. */
static void agree_short(pair *p, const char *what, const void *device, const uint16_t *want,
                        int64_t n, double tolerance)
{
    uint16_t *got = ares_malloc((size_t)n * sizeof *got);
    float *wide = filled(n, 0), *wanted = filled(n, 0);
    p->other.k->copy_out(&p->other, got, device, (size_t)n * sizeof *got);
    for (int64_t i = 0; i < n; i++) {
        wide[i] = kernels_bf16_to_f32(got[i]);
        wanted[i] = kernels_bf16_to_f32(want[i]);
    }
    agree(what, wide, wanted, n, tolerance);
    ares_free(got), ares_free(wide), ares_free(wanted);
}

static void adamw_cases(table which)
{
    pair p;
    if (!pair_open(&p, which)) return;
    enum { N = 200001 };
    float *w = normals(1, N, 1.0), *g = normals(2, N, 1.0), *m = normals(3, N, 0.1),
          *v = normals(4, N, 0.1), *plain = normals(5, N, 1.0);
    uint16_t *half = ares_calloc(N, 2), *half_got = ares_calloc(N, 2);
    for (int i = 0; i < N; i++) v[i] *= v[i];
    float *w_up = up_floats(&p, w, N), *g_up = up_floats(&p, g, N), *m_up = up_floats(&p, m, N),
          *v_up = up_floats(&p, v, N), *plain_up = up_floats(&p, plain, N);
    uint16_t *half_up = up(&p, half, N * 2);
    for (int64_t step = 1; step < 4; step++) {
        ares_adamw_args a = adamw_of(N, plain, g, m, v, step);
        ares_adamw_args b = a;
        b.w = plain_up, b.grad = g_up, b.m = m_up, b.v = v_up;
        p.cpu.k->adamw(&p.cpu, &a);
        p.other.k->adamw(&p.other, &b);
        a.w = half, a.dtype = ARES_BF16, a.master = w;
        b.w = half_up, b.dtype = ARES_BF16, b.master = w_up;
        p.cpu.k->adamw(&p.cpu, &a);
        p.other.k->adamw(&p.other, &b);
    }
    agree_device(&p, "w", plain_up, plain, N, 1e-6);
    agree_device(&p, "master", w_up, w, N, 1e-6);
    agree_device(&p, "m", m_up, m, N, 1e-6);
    agree_device(&p, "v", v_up, v, N, 1e-6);
    float *master = down(&p, w_up, N);
    p.other.k->copy_out(&p.other, half_got, half_up, N * 2);
    for (int i = 0; i < N; i++) half[i] = kernels_f32_to_bf16(master[i]);
    CHECK_MEM(half_got, half, N * 2);

    /* every operation is rounded to bf16: where f32 differs by an ulp, by an ulp of bf16 */
    uint16_t *short_m = ares_calloc(3 * N, 2), *short_v = short_m + N, *short_c = short_v + N;
    for (int i = 0; i < N; i++)
        short_m[i] = kernels_f32_to_bf16(m[i]), short_v[i] = kernels_f32_to_bf16(v[i]);
    p.other.k->copy_in(&p.other, half_up, half, N * 2);
    uint16_t *m_short = up(&p, short_m, N * 2), *v_short = up(&p, short_v, N * 2),
             *c_short = up(&p, short_c, N * 2);
    for (int64_t step = 4; step < 6; step++) {
        ares_adamw_args a = adamw_kahan_of(N, half, short_c, g, short_m, short_v, step);
        a.weight_decay = 20; /* less is lost as a weight is rounded */
        ares_adamw_args b = a;
        b.w = half_up, b.master = c_short, b.grad = g_up, b.m = m_short, b.v = v_short;
        p.cpu.k->adamw(&p.cpu, &a);
        p.other.k->adamw(&p.other, &b);
    }
    agree_short(&p, "m of kahan", m_short, short_m, N, 0x1p-8);
    agree_short(&p, "v of kahan", v_short, short_v, N, 0x1p-8);
    agree_short(&p, "c of kahan", c_short, short_c, N, 0x1p-7);
    p.other.k->copy_out(&p.other, half_got, half_up, N * 2);
    int64_t off = 0;
    for (int i = 0; i < N; i++) off += half_got[i] != half[i];
    CHECK_MSG(off < N / 1000, "%lld of %d weights", (long long)off, N);

    enum { CHUNKS = (N + ARES_SUM_CHUNK - 1) / ARES_SUM_CHUNK };
    double want[CHUNKS], got[CHUNKS], *sums_up = up(&p, NULL, sizeof got);
    p.cpu.k->square_sums(&p.cpu, g, N, want);
    p.other.k->square_sums(&p.other, g_up, N, sums_up);
    p.other.k->square_sums(&p.other, g_up, 0, sums_up); /* writes nothing */
    p.other.k->copy_out(&p.other, got, sums_up, sizeof got);
    for (int c = 0; c < CHUNKS; c++) CHECK_NEAR(got[c], want[c], 1e-12 * want[c]);
    p.cpu.k->add(&p.cpu, plain, g, N), p.other.k->add(&p.other, plain_up, g_up, N);
    agree_device(&p, "add", plain_up, plain, N, 1e-6);
    g[N - 1] = NAN;
    p.other.k->copy_in(&p.other, g_up, g, N * sizeof(float));
    p.other.k->square_sums(&p.other, g_up, N, sums_up);
    p.other.k->copy_out(&p.other, got, sums_up, sizeof got);
    CHECK(isnan(got[CHUNKS - 1]) && isfinite(got[0]));
    float *all[] = { w, g, m, v, plain, master };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    ares_free(half), ares_free(half_got), ares_free(short_m);
    pair_close(&p);
}
ON_ALL(adamw_and_sums_agree_with_the_cpu, adamw_cases)

/* libtorch takes 16 chunks at a time. */
TEST(aten_sums_squares_of_more_chunks_than_it_takes_at_once)
{
    enum { CHUNKS = 18, N = 17 * ARES_SUM_CHUNK + 5 };
    pair p;
    if (!pair_open(&p, ATEN)) return;
    float *x = normals(7, N, 1.0);
    double want[CHUNKS], got[CHUNKS] = { 0 };
    p.cpu.k->square_sums(&p.cpu, x, N, want);
    p.other.k->square_sums(&p.other, x, N, got);
    for (int c = 0; c < CHUNKS; c++) CHECK_NEAR(got[c], want[c], 1e-12 * want[c]);
    ares_free(x);
    pair_close(&p);
}
