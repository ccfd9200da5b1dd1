/*
 * The table of algo's CUDA functions, with their memory and timing, and those that walk rows:
 * advantages and entropy windows.
 */
#include "twin.cuh"

#include <math.h>

/* The table of algo's twins, their memory, and the clock around their kernels. */

static cudaEvent_t begun, ended; /* of the process, because a rank has one card */
static bool timed;

twin_memory twin_open(ares_device *d, size_t bytes, int arrays)
{
    cuda_context *c = cuda_enter(d);
    size_t whole = bytes + (size_t)(arrays + 1) * 256;
    char *p = (char *)cuda_scratch(c, CUDA_TWIN, whole);
    return { d, p ? c : NULL, p, p + (p ? whole : 0) };
}

void *twin_bytes(twin_memory *m, size_t bytes)
{
    if (!m->c) return NULL;
    char *p = m->at;
    m->at += (bytes + 255) / 256 * 256;
    ARES_ASSERT(m->at <= m->end);
    return p;
}

void twin_begin(twin_memory *m)
{
    if (!m->c) return;
    if (!begun) {
        cuda_check(m->c, cudaEventCreate(&begun), "event");
        cuda_check(m->c, cudaEventCreate(&ended), "event");
    }
    timed = false;
    if (!m->c->failed) cuda_check(m->c, cudaEventRecord(begun, m->c->stream), "event");
}
void twin_end(twin_memory *m)
{
    if (m->c && !m->c->failed)
        timed = cuda_check(m->c, cudaEventRecord(ended, m->c->stream), "event");
}
int twin_close(twin_memory *m)
{
    return m->d->k->sync(m->d);
}

static double kernel_s(ares_device *d)
{
    float ms = 0;
    cuda_context *c = cuda_enter(d);
    if (!timed || c->failed || !cuda_check(c, cudaEventElapsedTime(&ms, begun, ended), "event"))
        return (double)NAN;
    return (double)ms * 1e-3;
}

static void clock_begin(ares_device *d)
{
    twin_memory none = { d, cuda_enter(d), NULL, NULL };
    twin_begin(&none);
}
static void clock_end(ares_device *d)
{
    twin_memory none = { d, cuda_enter(d), NULL, NULL };
    twin_end(&none);
}

static const algo_twins table = {
    .loss = cuda_algo_loss,
    .value = cuda_algo_value,
    .kl = cuda_algo_kl,
    .rollout_weights = cuda_algo_rollout_weights,
    .gae = cuda_algo_gae,
    .windows = cuda_algo_windows,
    .kernel_s = kernel_s,
    .clock_begin = clock_begin,
    .clock_end = clock_end,
};

extern "C" {
const algo_twins *ares_cuda_algo_twins(void);
}
const algo_twins *ares_cuda_algo_twins(void)
{
    return &table;
}

/*
 * Twins that walk rows: advantages from the last token to the first, windows of entropy with each
 * row's percentile. Everything is computed in f64 and in the CPU's order of operations, except the
 * mean that pads a row's list of windows, which is added in a block's tree.
 */

/* ------------------------------------------------------------------ advantages: a warp per row */

typedef struct gae_job {
    int64_t rows;
    const int64_t *start;
    const float *rewards, *values;
    const uint8_t *mask, *ends; /* ends NULL: over tokens only */
    double gamma, lam, high;
    double *advantages, *returns;
} gae_job;

/*
 * 32 tokens at a time: lane i reads the i-th, then every lane walks over all of them and keeps the
 * results of its own.
 */
static __global__ void __launch_bounds__(TWIN_THREADS) gae_rows(gae_job j)
{
    int lane = (int)threadIdx.x % 32;
    int64_t warps = (int64_t)gridDim.x * TWIN_WARPS;
    for (int64_t row = (int64_t)blockIdx.x * TWIN_WARPS + threadIdx.x / 32; row < j.rows;
         row += warps) {
        int64_t from = j.start[row], to = j.start[row + 1];
        double next_value = 0, carried = 0, next_turn = 0, turn = 0; /* of tokens, and of turns */
        for (int64_t base = from + (to - from + 31) / 32 * 32 - 32; base >= from; base -= 32) {
            int64_t t = base + lane;
            bool here = t < to;
            int seen = here && j.mask[t] != 0, end = here && j.ends && j.ends[t] != 0;
            double reward = here ? (double)j.rewards[t] : 0, value = here ? (double)j.values[t] : 0,
                   advantage = 0, returned = 0;
            for (int i = 31; i >= 0; i--) {
                double r = __shfl_sync(TWIN_ALL, reward, i), v = __shfl_sync(TWIN_ALL, value, i);
                int known = __shfl_sync(TWIN_ALL, seen | end << 1, i);
                if (!(known & 1)) continue;
                /* the reward becomes the turn's value with all later turns */
                if (known & 2) {
                    turn = r + j.high * next_turn - v + j.high * j.lam * turn;
                    next_turn = v;
                    r = turn + v;
                    next_value = carried = 0; /* nothing of a later turn is carried into this one */
                }
                carried = r + j.gamma * next_value - v + j.gamma * j.lam * carried;
                next_value = v;
                if (i == lane) {
                    advantage = carried;
                    returned = carried + v;
                }
            }
            if (!here) continue;
            j.advantages[t] = advantage;
            j.returns[t] = returned;
        }
    }
}

int cuda_algo_gae(ares_device *d, const twin_gae_args *t)
{
    int64_t rows = t->of.rows, n = rows ? t->of.row_start[rows] : 0;
    if (n == 0) return ARES_OK;
    twin_memory m = twin_open(d,
                              (size_t)n * (2 * sizeof(float) + 2 + 2 * sizeof(double)) +
                                  (size_t)(rows + 1) * sizeof(int64_t),
                              7);
    gae_job j = {};
    j.rows = rows;
    j.start = twin_up(&m, t->of.row_start, rows + 1);
    j.rewards = twin_up(&m, t->rewards, n);
    j.values = twin_up(&m, t->values, n);
    j.mask = twin_up(&m, t->mask, n);
    j.ends = twin_up(&m, t->turn_ends, n);
    j.gamma = t->gamma, j.lam = t->lam, j.high = t->high_level_gamma;
    j.advantages = twin_take<double>(&m, n);
    j.returns = twin_take<double>(&m, n);
    if (!m.c) return twin_close(&m);
    twin_begin(&m);
    cuda_launch(m.c, "algo: gae", gae_rows, twin_blocks((rows + TWIN_WARPS - 1) / TWIN_WARPS),
                TWIN_THREADS, 0, j);
    twin_end(&m);
    int rc = twin_close(&m);
    if (rc != ARES_OK) return rc;
    twin_down(&m, t->advantages, j.advantages, n);
    twin_down(&m, t->returns, j.returns, n);
    return twin_close(&m);
}

/* ------------------------------------------------------------------ windows: a block per row */

enum { DIRECT = 32 }; /* longer windows are made of two sums, as on the CPU (entropy.c) */

typedef struct window_job {
    int64_t rows, w;
    const int64_t *start;
    const float *h;
    double q, tau;
    const uint8_t *candidates;
    double *window, *behind, *ahead; /* the last two: [n] each where w is long */
    double *threshold;
    uint8_t *mask;
    hwe_marked *hwe;
} window_job;

static __device__ void short_windows(const float *h, int64_t windows, int64_t w, double *window)
{
    for (int64_t t = threadIdx.x; t < windows; t += TWIN_THREADS) {
        double sum = (double)h[t + 1];
        for (int64_t k = 2; k <= w; k++) sum += (double)h[t + k];
        window[t] = sum / (double)w;
    }
}

/* van Herk's cuts, a thread per cut (entropy.c). */
static __device__ void long_windows(const float *h, int64_t n, int64_t windows, int64_t w,
                                    double *behind, double *ahead, double *window)
{
    for (int64_t cut = (int64_t)threadIdx.x * w; windows && cut < n;
         cut += (int64_t)TWIN_THREADS * w) {
        int64_t end = cut + w < n ? cut + w : n;
        behind[cut] = (double)h[cut];
        for (int64_t i = cut + 1; i < end; i++) behind[i] = behind[i - 1] + (double)h[i];
        ahead[end - 1] = (double)h[end - 1];
        for (int64_t i = end - 2; i >= cut; i--) ahead[i] = (double)h[i] + ahead[i + 1];
    }
    __syncthreads();
    for (int64_t t = threadIdx.x; t < windows; t += TWIN_THREADS)
        window[t] = (t % w == w - 1 ? ahead[t + 1] : ahead[t + 1] + behind[t + w]) / (double)w;
}

/* The list whose percentile is wanted: n values, those from `windows` on all equal to pad. */
typedef struct padded {
    const double *window;
    int64_t windows, n;
    double pad;
} padded;
static __device__ double padded_at(const padded &x, int64_t i)
{
    return i < x.windows ? x.window[i] : x.pad;
}

static __device__ unsigned long long ordered(double x) /* ascending as the doubles; -0 as 0 */
{
    unsigned long long u = (unsigned long long)__double_as_longlong(x + 0.0);
    return u >> 63 ? ~u : u | 1ull << 63;
}
static __device__ double of_ordered(unsigned long long u)
{
    return __longlong_as_double((long long)(u >> 63 ? u & ~(1ull << 63) : ~u));
}

/*
 * The exact k-th smallest: a histogram of the byte after the prefix that the smallest and the
 * largest share selects the values with one byte there; the next byte is looked at among these, and
 * so on until one value or no byte is left. Lanes of the same byte add once.
 */
static __device__ double select_kth(const padded &x, int64_t k)
{
    __shared__ unsigned bins[256];
    __shared__ unsigned long long found, least, most;
    __syncthreads();
    if (threadIdx.x == 0) least = ~0ull, most = 0;
    __syncthreads();
    unsigned long long low = ~0ull, high = 0;
    for (int64_t i = threadIdx.x; i < x.n; i += TWIN_THREADS) {
        unsigned long long u = ordered(padded_at(x, i));
        low = u < low ? u : low;
        high = u > high ? u : high;
    }
    atomicMin(&least, low);
    atomicMax(&most, high);
    __syncthreads();
    low = least, high = most;
    if (low == high) return of_ordered(low);
    /* leading bits that all values share: fewer than 64 */
    int known = __clzll((long long)(low ^ high));
    int shift = 64 - known;
    unsigned long long prefix = known ? low >> shift : 0;
    while (shift > 0) {
        int bits = shift < 8 ? shift : 8, below = shift - bits;
        bins[threadIdx.x] = 0; /* 256 threads, 256 bins */
        __syncthreads();
        for (int64_t base = 0; base < x.n; base += TWIN_THREADS) {
            int64_t i = base + threadIdx.x;
            unsigned long long u = i < x.n ? ordered(padded_at(x, i)) : 0;
            bool in = i < x.n && (shift == 64 || u >> shift == prefix);
            unsigned digit = in ? (unsigned)(u >> below) & ((1u << bits) - 1) : 256;
            unsigned same = __match_any_sync(TWIN_ALL, digit);
            if (in && (same & ((1u << (threadIdx.x % 32)) - 1)) == 0)
                atomicAdd(&bins[digit], (unsigned)__popc(same));
        }
        __syncthreads();
        unsigned digit = 0, here;
        /* every thread walks the same bins */
        while ((here = bins[digit]) <= (unsigned long long)k) {
            k -= here;
            digit++;
        }
        __syncthreads(); /* before they are zeroed again */
        prefix = prefix << bits | digit;
        shift = below;
        if (here == 1) break;
    }
    for (int64_t i = threadIdx.x; i < x.n; i += TWIN_THREADS) {
        unsigned long long u = ordered(padded_at(x, i));
        if (u >> shift == prefix) atomicExch(&found, u); /* one value, once or more */
    }
    __syncthreads();
    return of_ordered(found);
}

static __device__ double percentile(const padded &x, double q)
{
    if (x.n == 0) return 0;
    double rank = (double)(x.n - 1) * (q / 100), whole = floor(rank);
    whole = whole<0 ? 0 : whole>(double)(x.n - 1) ? (double)(x.n - 1) : whole;
    int64_t k = (int64_t)whole;
    double part = rank - (double)k, low = select_kth(x, k);
    if (part <= 0 || k + 1 >= x.n) return low;
    double up_to = 0, next = INFINITY;
    for (int64_t i = threadIdx.x; i < x.n; i += TWIN_THREADS) {
        double v = padded_at(x, i);
        up_to += v <= low;
        next = v > low && v < next ? v : next;
    }
    up_to = twin_block_sum(up_to);
    next = -twin_block_max(-next);
    if (up_to > (double)(k + 1)) next = low; /* the value occurs more than once */
    return low + (next - low) * part;
}

static __device__ void mark(const window_job &j, int64_t row, int64_t from, int64_t n,
                            int64_t windows, const double *window)
{
    double count = 0, invalid = 0, cost = 0;
    for (int64_t t = threadIdx.x; t < n; t += TWIN_THREADS) {
        bool candidate = t < windows && (!j.candidates || j.candidates[from + t]),
             high = candidate && window[t] >= j.tau;
        count += high;
        invalid += candidate && !high;
        if (high) cost += window[t] - j.tau;
        if (j.mask) j.mask[from + t] = high;
    }
    if (!j.hwe) return;
    count = twin_block_sum(count);
    invalid = twin_block_sum(invalid);
    cost = twin_block_sum(cost);
    if (threadIdx.x) return;
    j.hwe[row].count = (int64_t)count;
    j.hwe[row].invalid = (int64_t)invalid;
    j.hwe[row].soft_cost = cost;
}

static __global__ void __launch_bounds__(TWIN_THREADS, TWIN_HELD) window_rows(window_job j)
{
    for (int64_t row = blockIdx.x; row < j.rows; row += gridDim.x) {
        int64_t from = j.start[row], n = j.start[row + 1] - from, windows = n > j.w ? n - j.w : 0;
        const float *h = j.h + from;
        double *window = j.window + from;
        __syncthreads(); /* every thread has read what the row before left in shared memory */
        if (j.w <= DIRECT) short_windows(h, windows, j.w, window);
        else long_windows(h, n, windows, j.w, j.behind + from, j.ahead + from, window);
        for (int64_t t = windows + threadIdx.x; t < n; t += TWIN_THREADS) window[t] = 0;
        __syncthreads();
        if (j.threshold) {
            double sum = 0;
            for (int64_t t = threadIdx.x; t < windows; t += TWIN_THREADS) sum += window[t];
            sum = twin_block_sum(sum);
            padded x = { window, windows, n,
                         windows ? sum / (double)windows
                         : n     ? (double)h[0]
                                 : 0 };
            double value = percentile(x, j.q);
            if (threadIdx.x == 0) j.threshold[row] = value;
        }
        if (j.mask || j.hwe) mark(j, row, from, n, windows, window);
    }
}

int cuda_algo_windows(ares_device *d, const twin_windows_args *t)
{
    int64_t rows = t->of.rows, n = rows ? t->of.row_start[rows] : 0;
    bool is_long = t->w > DIRECT;
    ARES_ASSERT(t->w > 0);
    if (rows == 0) return ARES_OK;
    twin_memory m =
        twin_open(d,
                  (size_t)n * (sizeof(float) + 2 + (is_long ? 3 : 1) * sizeof(double)) +
                      (size_t)(rows + 1) * (sizeof(int64_t) + sizeof(double) + sizeof(hwe_marked)),
                  9);
    window_job j = {};
    j.rows = rows, j.w = t->w, j.q = t->q, j.tau = t->tau;
    j.start = twin_up(&m, t->of.row_start, rows + 1);
    j.h = twin_up(&m, t->entropy, n);
    j.candidates = twin_up(&m, t->candidates, n);
    j.window = twin_take<double>(&m, n);
    if (is_long) j.behind = twin_take<double>(&m, n), j.ahead = twin_take<double>(&m, n);
    if (t->threshold) j.threshold = twin_take<double>(&m, rows);
    if (t->mask) j.mask = twin_take<uint8_t>(&m, n);
    if (t->hwe) j.hwe = twin_take<hwe_marked>(&m, rows);
    if (!m.c) return twin_close(&m);
    twin_begin(&m);
    cuda_launch(m.c, "algo: window entropy", window_rows, (unsigned)(rows < 65535 ? rows : 65535),
                TWIN_THREADS, 0, j);
    twin_end(&m);
    int rc = twin_close(&m);
    if (rc != ARES_OK) return rc;
    twin_down(&m, t->window, j.window, n);
    twin_down(&m, t->threshold, j.threshold, rows);
    twin_down(&m, t->mask, j.mask, n);
    twin_down(&m, t->hwe, j.hwe, rows);
    return twin_close(&m);
}
