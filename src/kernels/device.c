/*
 * Devices by name. First the device that only counts memory, then opening a CPU or CUDA device,
 * last the two phases (rollout and training) that take turns in one allocation.
 */
#include "host.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "ares/kernels.h"

/*
 * A device that only counts: what opens on it allocates as on the device it stands for, so that the
 * memory of a run is known before there is any (docs/ranks.md#what-a-run-needs). Addresses are
 * reserved and hold nothing: reading or writing one by mistake faults at once.
 */

/* Host memory: not counted beside a card, and all the memory of a CPU device (then by `reserve`).
 */
static void *reserve_host(ares_device *d, size_t bytes)
{
    (void)d;
    void *p = mmap(NULL, ARES_MAX(bytes, 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static void release_host(ares_device *d, void *p, size_t bytes)
{
    (void)d;
    if (p) munmap(p, ARES_MAX(bytes, 1));
}

static void *reserve(ares_device *d, size_t bytes)
{
    void *p = reserve_host(d, bytes);
    if (p) kernels_count(d, bytes, 0);
    return p;
}
static void release(ares_device *d, void *p, size_t bytes)
{
    if (p) kernels_count(d, 0, bytes);
    release_host(d, p, bytes);
}

/* Nothing is copied or converted: code that prepares a run calls these without a need to know. */
static void copy_in(ares_device *d, void *device, const void *host, size_t bytes)
{
    (void)d, (void)device, (void)host, (void)bytes;
}
static void copy_out(ares_device *d, void *host, const void *device, size_t bytes)
{
    (void)d, (void)host, (void)device, (void)bytes;
}
static void convert(ares_device *d, void *to, ares_dtype to_type, const void *from,
                    ares_dtype from_type, int64_t n)
{
    (void)d, (void)to, (void)to_type, (void)from, (void)from_type, (void)n;
}
static void count_zero(ares_device *d, void *p, size_t bytes)
{
    (void)d, (void)p, (void)bytes;
}
static int count_sync(ares_device *d)
{
    (void)d;
    return ARES_OK;
}
/* Never called. The engine keeps buffers for steps launched ahead where a table has this entry. */
static void advance(ares_device *d, const ares_advance_args *a)
{
    (void)d, (void)a;
}

static const ares_kernels *of_this_cpu(void);

void ares_device_open_counting(const char *name, const char *table, ares_dtype act,
                               double total_bytes, ares_device *out)
{
    /* layouts and types are those of the table that the run will have: they decide the sizes */
    bool card = strncmp(name, "cuda", 4) == 0, aten = strcmp(table, "aten") == 0;
    ares_kernels *k = ares_calloc(1, sizeof *k);
    *k = (ares_kernels){ .name = "counting",
                         .layout = card || aten ? ARES_ROWS : ARES_PANEL32,
                         .act = card || aten ? act : ARES_F32,
                         .pair_words = card || aten ? 0 : of_this_cpu()->pair_words,
                         .alloc = reserve,
                         .release = release,
                         .copy_in = copy_in,
                         .alloc_host = card ? reserve_host : reserve,
                         .release_host = card ? release_host : release,
                         .bring = copy_in,
                         .store = copy_out,
                         .copy_out = copy_out,
                         .convert = convert,
                         .zero = count_zero,
                         .sync = count_sync,
                         .advance = card ? advance : NULL };
    *out = (ares_device){ .k = k, .scratch = k, .index = card ? 0 : -1, .counting = true };
    out->total_bytes = total_bytes;
}

/*
 * Opening a device by its name: the CPU with the best instruction set of the machine, or a CUDA
 * device. The tables of CUDA and of libtorch live in shared objects that are opened only when one
 * is asked for.
 */

extern const ares_kernels kernels_table_plain;
#if defined __x86_64__
extern const ares_kernels kernels_table_avx2, kernels_table_avx512, kernels_table_avx512bf16;
#elif defined __aarch64__
extern const ares_kernels kernels_table_neon;
#endif

/* ------------------------------------------------------------------ instruction sets */

const ares_kernels *kernels_cpu(const char *isa)
{
#if defined __x86_64__
    __builtin_cpu_init();
    unsigned info[4] = { 0 }; /* registers a to d of cpuid 1: clang 14 knows no name "f16c" */
    __get_cpuid(1, info, info + 1, info + 2, info + 3);
    /* avx2 stands for what its table uses, FMA and conversions of f16 included */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                (info[2] & bit_F16C) != 0;
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512cd");
    if (strcmp(isa, "avx512bf16") == 0)
        return avx512 && __builtin_cpu_supports("avx512bf16") ? &kernels_table_avx512bf16 : NULL;
    if (strcmp(isa, "avx512") == 0) return avx512 ? &kernels_table_avx512 : NULL;
    if (strcmp(isa, "avx2") == 0) return avx2 ? &kernels_table_avx2 : NULL;
#elif defined __aarch64__
    if (strcmp(isa, "neon") == 0) return &kernels_table_neon; /* every processor has it */
#endif
    return strcmp(isa, "plain") == 0 ? &kernels_table_plain : NULL;
}

/* ------------------------------------------------------------------ libtorch */

typedef void aten_close_fn(ares_device *d);
static aten_close_fn *close_aten; /* of the library, once it is open */

/* A function of libares_torch.so, which is opened for it; NULL: why is in `message`. */
static void *of_torch(const char *name, char *message, size_t size)
{
    char path[4200];
    ares_path_of_program("ARES_TORCH_LIB", "libares_torch.so", path, sizeof path);
    /* never closed: libtorch does not support that */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(message, size, "%s", dlerror());
        return NULL;
    }
    void *found = dlsym(library, name);
    /* kept beside the table, so that closing needs no second look into the library */
    *(void **)&close_aten = dlsym(library, "ares_aten_close");
    if (found && close_aten) return found;
    snprintf(message, size, "%s is of another version; build it again", path);
    return NULL;
}

/*
 * What an open CUDA device takes from libtorch: attention of a run in bf16, which without tensor
 * cores would be many times slower, so that doing without has to be asked for: ARES_TORCH_LIB=none.
 * In f32 the device's own library has all that is needed. libtorch knows no emulated card
 * (tests/gpu/emulate), unless a test names it.
 */
static int take_from_torch(ares_device *d)
{
    int (*take)(ares_device *, void (**trim)(void));
    void (*trim)(void), (*trim_by)(ares_device *, void (*)(void));
    char message[4400];
    const char *named = getenv("ARES_TORCH_LIB");
    bool is_named = named && *named;
    if (d->k->act != ARES_BF16) return ARES_OK;
    if (is_named ? strcmp(named, "none") == 0 : ares_device_symbol(d, "ares_cuda_emulated") != NULL)
        return ARES_OK;
    *(void **)&take = of_torch("ares_aten_take", message, sizeof message);
    if (take && take(d, &trim) == ARES_OK) {
        *(void **)&trim_by = ares_device_symbol(d, "ares_cuda_trim_by");
        if (trim_by) trim_by(d, trim);
        return ARES_OK;
    }
    if (take) snprintf(message, sizeof message, "%s", ares_error_message());
    ares_error_clear();
    return ares_fail(ARES_EDEVICE,
                     "kernels: device = 'cuda:%d': no libtorch for a run in bf16: %s; "
                     "scripts/setup.sh fetches one for cards and a build finds it, or "
                     "ARES_TORCH_LIB=none computes with our own kernels, whose attention is many "
                     "times slower",
                     d->index, message);
}

/* ------------------------------------------------------------------ CUDA */

typedef void cuda_close_fn(ares_device *d);
static cuda_close_fn *close_cuda; /* of the library, once it is open */
static void *cuda_library;

/* Whether the machine has a card's driver, or a test names a library that stands for one. */
bool ares_cuda_expected(void)
{
    const char *given = getenv("ARES_CUDA_LIB");
    return (given && *given) || access("/dev/nvidiactl", F_OK) == 0;
}

/* Opens libares_cuda.so, and in it the device of this index. */
static int open_cuda(const char *name, int index, ares_dtype act, int threads, ares_device *out)
{
    typedef const ares_kernels *table_fn(ares_dtype act);
    typedef const struct ares_card_losses *losses_fn(void);
    typedef int open_fn(ares_device * d, int index, char *message, size_t size);
    /* asked first, because the library itself says only that a driver is missing */
    if (!ares_cuda_expected())
        return ares_fail(ARES_EDEVICE,
                         "kernels: device = '%s': no CUDA device on this machine; use device=cpu",
                         name);
    char path[4200];
    ares_path_of_program("ARES_CUDA_LIB", "libares_cuda.so", path, sizeof path);
    if (access(path, R_OK) != 0)
        return ares_fail(
            ARES_EDEVICE,
            "kernels: device = '%s': no %s; build with -DARES_CUDA=ON or use device=cpu", name,
            path);
    /* never closed: the driver's threads may outlive the device */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ares_fail(ARES_EDEVICE, "kernels: device = '%s': %s; use device=cpu", name,
                         dlerror());
    table_fn *table;
    open_fn *open;
    losses_fn *losses;
    *(void **)&table = dlsym(library, "ares_cuda_kernels");
    *(void **)&losses = dlsym(library, "ares_cuda_losses");
    *(void **)&open = dlsym(library, "ares_cuda_open");
    *(void **)&close_cuda = dlsym(library, "ares_cuda_close");
    if (!table || !losses || !open || !close_cuda)
        return ares_fail(ARES_EDEVICE,
                         "kernels: device = '%s': %s is of another version; build it again", name,
                         path);
    cuda_library = library;
    char message[512] = "";
    *out = (ares_device){ .k = table(act), .losses = losses(), .index = index };
    /* for deterministic products of libtorch's cuBLAS; set before there are threads that read it */
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
    if (open(out, index, message, sizeof message) == ARES_OK) {
        /* at least 2: the caller mostly waits for the card, and the host's work needs a thread */
        out->pool = ares_pool_new(ARES_MAX(threads > 0 ? threads : ares_cpu_count(), 2));
        int rc = take_from_torch(out);
        if (rc != ARES_OK) ares_device_close(out);
        return rc;
    }
    *out = (ares_device){ .index = -1 };
    return ares_fail(ARES_EDEVICE, "kernels: device = '%s': %s; use device=cpu", name, message);
}

void *ares_device_symbol(const ares_device *d, const char *name)
{
    return d->k && d->index >= 0 && cuda_library ? dlsym(cuda_library, name) : NULL;
}

const char *ares_device_card(const ares_device *d)
{
    const char *(*card)(int index);
    *(void **)&card = ares_device_symbol(d, "ares_cuda_card");
    return card ? card(d->index) : NULL;
}

/* A number of bytes that libares_cuda.so tells; 0 on the CPU. */
static double memory_figure(const ares_device *d, const char *symbol)
{
    double (*figure)(int index);
    *(void **)&figure = ares_device_symbol(d, symbol);
    return figure ? figure(d->index) : 0;
}
double ares_device_memory_bytes(const ares_device *d)
{
    if (d->counting) return d->index < 0 ? 0 : (double)d->allocated;
    return memory_figure(d, "ares_cuda_memory_bytes");
}
double ares_device_total_bytes(const ares_device *d)
{
    if (d->counting) return d->index < 0 ? 0 : d->total_bytes;
    return memory_figure(d, "ares_cuda_total_bytes");
}

/* Small amounts are written in bytes. */
static void size_of(size_t bytes, char text[static 32])
{
    double gib = (double)bytes / 1073741824.0;
    if (gib < 0.01) snprintf(text, 32, "%zu bytes", bytes);
    else snprintf(text, 32, "%.2f GiB", gib);
}

int ares_device_full(const ares_device *d, const char *room, const char *what, size_t bytes,
                     bool in_host, const char *remedy)
{
    char asked[32], held[32];
    size_of(bytes, asked);
    size_of(d->allocated, held);
    return ares_fail(ARES_ELIMIT, "%s: %s of %s do not fit %s beside %s of this process; %s", room,
                     asked, what, in_host ? "in page-locked host memory" : "on the device", held,
                     remedy ? remedy
                            : "'ares-train plan' says what a run needs, and which options need "
                              "less");
}

/* ------------------------------------------------------------------ devices */

/*
 * Whether vdpbf16ps is faster here than two FMAs, whose bits are the same: AMD's processors do as
 * many of either, Intel's without AMX half as many. Some 50 us on one thread.
 */
static bool dot_is_faster(const ares_kernels *dot, const ares_kernels *fma)
{
    enum { M = 14, N = 32, K = 1024 };
    ares_device d = { .index = -1 };
    kernels_scratch_new(&d);
    float *x = ares_calloc(M * K + M * N, sizeof *x);
    ares_matrix w = { ares_calloc(N * K, 2), ARES_BF16, ARES_PANEL32_PAIRS, N, K };
    double best[2] = { INFINITY, INFINITY };
    for (int i = 0; i < 6; i++) {
        double start = ares_now_s();
        (i % 2 ? dot : fma)
            ->linear(
                &d,
                &(ares_linear_args){ .m = M, .x = x, .ldx = K, .w = &w, .y = x + M * K, .ldy = N },
                1);
        best[i % 2] = ARES_MIN(best[i % 2], ares_now_s() - start);
    }
    ares_free(x);
    ares_free(w.data);
    kernels_scratch_free(&d);
    return best[1] < best[0];
}

static const char *const SETS[] = { "avx512bf16", "avx512", "avx2", "neon",
                                    "plain" }; /* the best first */

/* The table of this machine's CPU: the best, or the one that ARES_ISA asks for. */
static const ares_kernels *of_this_cpu(void)
{
    const char *wanted = getenv("ARES_ISA");
    const ares_kernels *k = wanted && *wanted ? kernels_cpu(wanted) : NULL;
    for (int i = 0; !k; i++) { /* every machine has the last */
        k = kernels_cpu(SETS[i]);
        if (i == 0 && k && !dot_is_faster(k, kernels_cpu("avx512"))) k = NULL;
    }
    return k;
}

/* A device with our own table, by its name. */
static int open_native(const char *name, ares_dtype act, int threads, ares_device *out)
{
    const char *wanted = getenv("ARES_ISA");
    int64_t index = 0;
    int i;
    *out = (ares_device){ .index = -1 };
    if (strcmp(name, "cuda") == 0) return open_cuda(name, 0, act, threads, out);
    if (strncmp(name, "cuda:", 5) == 0) {
        if (!ares_parse_i64(ares_view_of(name + 5), &index) || index < 0 || index > 255)
            return ares_fail(
                ARES_ECONFIG,
                "kernels: device = '%s': not a number after 'cuda:'; write cuda:0, cuda:1 ...",
                name);
        return open_cuda(name, (int)index, act, threads, out);
    }
    if (strcmp(name, "cpu") != 0)
        return ares_fail(ARES_ECONFIG,
                         "kernels: device = '%s': unknown (choices: cpu, cuda, cuda:N)", name);
    if (wanted && *wanted) {
        ARES_TRY(
            ares_lookup(ARES_ECONFIG, "kernels: ARES_ISA", wanted, SETS, ARES_COUNT(SETS), &i));
        if (!kernels_cpu(wanted))
            return ares_fail(ARES_EDEVICE,
                             "kernels: ARES_ISA = '%s': this machine lacks it; leave ARES_ISA "
                             "unset to take the best it has",
                             wanted);
    }
    out->k = of_this_cpu();
    out->pool = ares_pool_new(threads);
    kernels_scratch_new(out);
    return ARES_OK;
}

int ares_device_open(const char *name, int threads, ares_device *out)
{
    return ares_device_open_table(name, "native", ARES_F32, threads, out);
}

int ares_device_open_table(const char *name, const char *table, ares_dtype act, int threads,
                           ares_device *out)
{
    static const char *const names[] = { "native", "aten" };
    int which;
    *out = (ares_device){ .index = -1 };
    ARES_TRY(
        ares_lookup(ARES_ECONFIG, "kernels: kernels", table, names, ARES_COUNT(names), &which));
    if (which == 0) {
        ARES_TRY(open_native(name, act, threads, out));
        times_open(out);
        return ARES_OK;
    }
    if (strcmp(name, "cpu") != 0)
        return ares_fail(ARES_EUNSUPPORTED,
                         "kernels: kernels = 'aten': it computes on the CPU, not on '%s'; use "
                         "device=cpu or kernels=native",
                         name);
    ARES_TRY(open_native(name, ARES_F32, threads, out));
    void (*open)(ares_device *, ares_dtype);
    char message[4400];
    *(void **)&open = of_torch("ares_aten_open", message, sizeof message);
    if (!open) {
        ares_device_close(out);
        return ares_fail(ARES_EDEVICE, "kernels: kernels = 'aten': %s; use kernels=native",
                         message);
    }
    open(out, act);
    times_open(out);
    return ARES_OK;
}

void ares_device_close(ares_device *d)
{
    if (!d || !d->k) return;
    times_close(d);
    if (d->aten) close_aten(d);
    if (d->counting) ares_free(d->scratch);
    else if (d->index < 0) kernels_scratch_free(d);
    else close_cuda(d);
    ares_pool_free(d->pool);
    *d = (ares_device){ .index = -1 };
}

/* Two phases take turns in one allocation of a device. */

enum { ALIGN = 256 };

struct ares_phases {
    char *memory;
    size_t bytes;
    size_t used;                /* in the current phase */
    size_t zeroed_to, dirty_to; /* training has written [zeroed_to, dirty_to) since it was zeroed */
    ares_phase now;
    int64_t turn; /* phases begun */
};

int ares_phases_open(ares_device *d, size_t bytes)
{
    ARES_ASSERT(!d->phases);
    struct ares_phases *p = ares_calloc(1, sizeof *p);
    *p = (struct ares_phases){ .memory = d->k->alloc(d, bytes), .bytes = bytes };
    if (!p->memory) {
        ares_free(p);
        return ares_device_full(d, "kernels", "memory for rollout and training", bytes, false,
                                NULL);
    }
    d->phases = p;
    return ARES_OK;
}

void ares_phases_close(ares_device *d)
{
    if (!d->phases) return;
    d->k->release(d, d->phases->memory, d->phases->bytes);
    ares_free(d->phases);
    d->phases = NULL;
}

size_t ares_phase_size(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t ares_phases_bytes(const ares_device *d)
{
    return d->phases ? d->phases->bytes : 0;
}

bool ares_phase_holds(const ares_device *d, const ares_held *h)
{
    return h->data && (h->turn == 0 || (d->phases && h->turn == d->phases->turn));
}

void ares_phase_give_back(ares_device *d, ares_held *h)
{
    struct ares_phases *p = d->phases;
    if (h->turn == 0) d->k->release(d, h->data, h->bytes);
    else if (ares_phase_holds(d, h) && (char *)h->data + h->bytes == p->memory + p->used)
        p->used -= h->bytes; /* what was taken last */
    *h = (ares_held){ 0 };
}

void *ares_phase_take(ares_device *d, ares_phase phase, ares_held *h, size_t bytes)
{
    struct ares_phases *p = d->phases;
    if (ares_phase_holds(d, h) && h->bytes >= bytes) return h->data;
    ares_phase_give_back(d, h);
    bytes = ares_phase_size(bytes);
    if (p && bytes <= p->bytes - (p->turn && p->now == phase ? p->used : 0)) {
        if (!p->turn || p->now != phase) { /* the phase begins */
            p->now = phase;
            p->used = 0;
            p->turn++;
        }
        *h = (ares_held){ p->memory + p->used, bytes, p->turn };
        p->used += bytes;
        if (phase == ARES_PHASE_TRAIN) { /* will write what it takes */
            if (p->zeroed_to >= p->dirty_to) p->dirty_to = 0;
            p->zeroed_to = 0;
            p->dirty_to = ARES_MAX(p->dirty_to, p->used);
        } else { /* rollout gets zeros; what it does not take stays dirty */
            size_t first = ARES_MAX(p->used - bytes, p->zeroed_to),
                   end = ARES_MIN(p->used, p->dirty_to);
            if (first < end) d->k->zero(d, p->memory + first, end - first);
            p->zeroed_to = ARES_MAX(p->zeroed_to, p->used);
        }
        return h->data;
    }
    h->data = d->k->alloc(d, bytes);
    h->bytes = h->data ? bytes : 0;
    return h->data;
}
