/*
 * Streams as queues. Operations run when somebody waits, and only then: those of one stream in
 * order, those of several in an order that the events allow, drawn by ARES_EMULATE_SEED. So a
 * missing event or wait gives other bits with some seed, and a host buffer that is reused too early
 * gives other bits with every seed. As on a card, pageable host memory is read by the call that
 * copies from it, and a copy to it waits; pinned memory is read and written when the copy runs.
 */
#include "emulate.h"

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <string.h>
#include <string>
#include <unistd.h>
#include <vector>

struct CUevent_st {
    uint64_t recorded, done;                  /* how often; done <= recorded */
    cudaStream_t stream;                      /* of the last record */
    bool in_graph;                            /* the last record was captured */
    std::chrono::steady_clock::time_point at; /* when it was last done */
};
/* Runs a function, or notes a record of an event, or waits for one, or needs other processes. */
typedef struct operation {
    std::function<void()> run;
    cudaEvent_t record, await;
    uint64_t version;
    std::function<bool()> attempt; /* true: done */
} operation;
struct CUgraph_st {
    std::vector<operation> operations;
};
struct CUgraphExec_st {
    std::vector<operation> operations;
};
struct CUstream_st {
    std::deque<operation> queue;
    cudaGraph_t graph; /* that is being captured, or NULL */
    cudaStreamCaptureMode mode;
    bool lost; /* what was captured is invalid */
};

static std::recursive_mutex mutex;
static int locked; /* how often, by the thread that holds it */
static std::vector<cudaStream_t> streams;
static cudaError_t last_error;
static std::map<const void *, int> shared_of;
/* never freed: they are written after the destructors */
static auto &counts = *new std::map<std::pair<std::string, std::string>, int64_t>;

emulate_lock::emulate_lock()
{
    mutex.lock();
    locked++;
}
emulate_lock::~emulate_lock()
{
    locked--;
    mutex.unlock();
}
/* Other processes, and the thread that works for them (nccl.cpp), get on. */
static void rest(void)
{
    int held = locked;
    locked = 0;
    for (int i = 0; i < held; i++) mutex.unlock();
    usleep(200);
    for (int i = 0; i < held; i++) mutex.lock();
    locked = held;
}

/*
 * ARES_EMULATE_ROUNDING=foreign: sums of products in another order and with other steps
 * (cublas.cpp, mma.h), exp and log with an error in the last bit (cuda_kernel.h). What holds in
 * this mode, too, does not depend on the emulator computing as the CPU does.
 */
static bool asks_foreign(void)
{
    const char *said = getenv("ARES_EMULATE_ROUNDING");
    if (!said || !*said) return false;
    if (strcmp(said, "foreign"))
        emulate_end("ARES_EMULATE_ROUNDING = '%s': unknown (choices: foreign, or unset)", said);
    return true;
}
bool emulate_foreign = asks_foreign();

uint64_t emulate_seed(void)
{
    static const char *given = getenv("ARES_EMULATE_SEED");
    static const uint64_t seed = given ? strtoull(given, NULL, 10) : 0;
    return seed;
}
unsigned emulate_draw(unsigned n)
{
    static uint64_t state = emulate_seed();
    uint64_t z = state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (unsigned)((z ^ z >> 31) % n);
}

cudaError_t emulate_error(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}
cudaError_t cudaGetLastError(void)
{
    emulate_lock lock;
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnmatched: return "capture was not initiated in this stream";
    case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
    }
    return "unknown error";
}

/* ------------------------------------------------------------------ counters */

extern "C" {
int64_t ares_emulate_count(const char *kind, const char *operation);
}

/* operation: a text that stays, as launches name theirs */
int64_t *emulate_counter(const char *kind, const char *operation)
{
    static const char *kind_of, *operation_of; /* a kernel asks for the same one many times */
    static int64_t *last;
    if (kind != kind_of || operation != operation_of)
        last = &counts[{ kind_of = kind, operation_of = operation }];
    return last;
}
void emulate_count(const char *kind, const char *operation, int64_t n)
{
    counts[{ kind, operation }] += n;
}
/*
 * How often so far: "launch" (kernels and products), "capture" (the same, recorded), "graph",
 * "wait", "copy in", "copy out", "copy", "zero", and the bytes of these with " bytes" behind;
 * "brought bytes" are those that kernels copy to shared memory beside their threads.
 * operation: a launch's name; NULL for all.
 */
int64_t ares_emulate_count(const char *kind, const char *operation)
{
    emulate_lock lock;
    int64_t sum = 0;
    for (const auto &c : counts)
        if (c.first.first == kind && (!operation || c.first.second == operation)) sum += c.second;
    return sum;
}
/* ARES_EMULATE_COUNTS=FILE: all of them at the end of the program. */
__attribute__((destructor)) static void write_counts(void)
{
    const char *path = getenv("ARES_EMULATE_COUNTS");
    FILE *f = path && *path ? fopen(path, "w") : NULL;
    if (!f) return;
    for (const auto &c : counts)
        fprintf(f, "%s\t%s\t%lld\n", c.first.first.c_str(), c.first.second.c_str(),
                (long long)c.second);
    fclose(f);
}

/* ------------------------------------------------------------------ running what is queued */

static CUstream_st *of(cudaStream_t stream)
{
    static CUstream_st legacy;
    static bool known;
    if (!known) streams.push_back(&legacy), known = true;
    return stream ? stream : &legacy;
}
static bool can_run(const CUstream_st *s)
{
    const operation *head = s->queue.empty() ? NULL : &s->queue.front();
    return head && (!head->await || head->await->done >= head->version);
}
/* False: other processes are not that far. An attempt opens the memory itself when it needs it. */
static bool run_head(CUstream_st *s)
{
    if (s->queue.front().attempt && !s->queue.front().attempt()) return false;
    operation o = std::move(s->queue.front());
    s->queue.pop_front();
    if (o.record && o.version > o.record->done) {
        o.record->done = o.version;
        o.record->at = std::chrono::steady_clock::now();
    }
    if (!o.run) return true;
    emulate_memory_open();
    o.run();
    emulate_memory_close();
    return true;
}
/* The stream that must run for s to go on. */
static CUstream_st *needed_by(CUstream_st *s)
{
    for (size_t hops = 0; hops <= streams.size(); hops++) {
        if (can_run(s)) return s;
        if (s->queue.empty()) break;
        s = of(s->queue.front().await->stream);
    }
    emulate_end("streams wait for each other, or for an event that is never recorded");
}
/* How a wait goes on: only with what it needs, or with everything else first, or as is drawn. */
enum { NEEDED, OTHERS, DRAWN, WAYS };
static CUstream_st *choose(CUstream_st *target, unsigned how)
{
    std::vector<CUstream_st *> others;
    for (CUstream_st *s : streams)
        if (s != target && can_run(s)) others.push_back(s);
    if (how == NEEDED || others.empty()) return needed_by(target);
    if (how == OTHERS || !can_run(target) || emulate_draw(2))
        return others[emulate_draw((unsigned)others.size())];
    return target;
}
static bool advance(CUstream_st *target, unsigned how)
{
    return run_head(choose(target, how)) || run_head(needed_by(target));
}
/* Runs operations until the target has none left before `until`, or none at all. */
template <typename F> static void run_until(CUstream_st *target, F reached)
{
    unsigned how = emulate_draw(WAYS);
    if (reached()) return;
    emulate_memory_open();
    while (!reached())
        if (!advance(target, how)) rest();
    emulate_memory_close();
}
/* One operation, or none: who asks again and again gets there. */
static void run_one(CUstream_st *target)
{
    if (!target->queue.empty() && emulate_draw(2)) advance(target, emulate_draw(WAYS));
}
bool emulate_advance(cudaStream_t stream)
{
    CUstream_st *s = of(stream);
    return !s->queue.empty() && advance(s, emulate_draw(WAYS));
}
static void finish(CUstream_st *s)
{
    if (s->queue.empty()) return;
    emulate_count("wait", "", 1);
    run_until(s, [&] { return s->queue.empty(); });
}
void emulate_finish_all(void)
{
    bool any = false;
    for (CUstream_st *s : streams) any = any || !s->queue.empty();
    if (any) emulate_count("wait", "", 1);
    for (CUstream_st *s : streams) run_until(s, [&] { return s->queue.empty(); });
}

/* ------------------------------------------------------------------ capture */

static bool capturing(const CUstream_st *s)
{
    return s->graph || s->lost;
}
static cudaError_t lose(CUstream_st *s)
{
    s->lost = true;
    return emulate_error(cudaErrorStreamCaptureUnsupported);
}
bool emulate_allowed(void)
{
    bool allowed = true;
    for (CUstream_st *s : streams)
        if (s->graph && s->mode != cudaStreamCaptureModeRelaxed) {
            lose(s);
            allowed = false;
        }
    return allowed;
}
static cudaError_t push(cudaStream_t stream, operation o)
{
    CUstream_st *s = of(stream);
    if (s->lost) return emulate_error(cudaErrorStreamCaptureInvalidated);
    if (s->graph) s->graph->operations.push_back(std::move(o));
    else s->queue.push_back(std::move(o));
    return cudaSuccess;
}
cudaError_t emulate_push(cudaStream_t stream, std::function<void()> run)
{
    return push(stream, { std::move(run), NULL, NULL, 0, NULL });
}
cudaError_t emulate_push_attempt(cudaStream_t stream, std::function<bool()> attempt)
{
    if (capturing(of(stream))) return lose(of(stream));
    return push(stream, { NULL, NULL, NULL, 0, std::move(attempt) });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    emulate_lock lock;
    CUstream_st *s = of(stream);
    if (!stream) return emulate_error(cudaErrorStreamCaptureUnsupported);
    if (capturing(s)) return emulate_error(cudaErrorIllegalState);
    s->graph = new CUgraph_st;
    s->mode = mode;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    emulate_lock lock;
    CUstream_st *s = of(stream);
    *graph = NULL;
    if (!capturing(s)) return emulate_error(cudaErrorStreamCaptureUnmatched);
    cudaGraph_t made = s->graph;
    bool lost = s->lost;
    s->graph = NULL;
    s->lost = false;
    if (lost) {
        delete made;
        return emulate_error(cudaErrorStreamCaptureInvalidated);
    }
    *graph = made;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    emulate_lock lock;
    CUstream_st *s = of(stream);
    *status = s->lost    ? cudaStreamCaptureStatusInvalidated
              : s->graph ? cudaStreamCaptureStatusActive
                         : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    emulate_lock lock;
    *exec = NULL;
    if (!graph) return emulate_error(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{ graph->operations };
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    emulate_lock lock;
    if (!exec) return emulate_error(cudaErrorInvalidValue);
    if (capturing(of(stream))) return lose(of(stream));
    emulate_count("graph", "", 1);
    for (const operation &o : exec->operations) push(stream, o);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec; /* launches that are queued have their own copies */
    return cudaSuccess;
}

/* ------------------------------------------------------------------ kernels */

cudaError_t emulate_allow_shared(const void *kernel, int bytes)
{
    emulate_lock lock;
    if (bytes < 0 || bytes > 227 * 1024) return emulate_error(cudaErrorInvalidValue);
    shared_of[kernel] = bytes;
    return cudaSuccess;
}

void emulate_launch(const char *operation, const void *kernel, dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, std::function<void()> thread)
{
    emulate_lock lock;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    auto allowed = shared_of.find(kernel);
    size_t most = allowed == shared_of.end() ? 48 * 1024 : (size_t)allowed->second;
    if (threads == 0 || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z ||
        grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535 ||
        shared > (most < 48 * 1024 ? 48 * 1024 : most)) {
        emulate_error(cudaErrorInvalidConfiguration);
        return;
    }
    emulate_count(of(stream)->graph ? "capture" : "launch", operation, 1);
    emulate_push(stream, [=]() { emulate_grid(operation, grid, block, shared, thread); });
}

/* ------------------------------------------------------------------ copies */

static bool device_side(cudaMemcpyKind kind, bool to)
{
    return kind == cudaMemcpyDeviceToDevice ||
           kind == (to ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    emulate_lock lock;
    CUstream_st *s = of(stream);
    if (!width || !height) return cudaSuccess;
    if (height > 1 && (to_pitch < width || from_pitch < width))
        return emulate_error(cudaErrorInvalidValue);
    size_t to_bytes = (height - 1) * to_pitch + width,
           from_bytes = (height - 1) * from_pitch + width;
    if (kind == cudaMemcpyDefault)
        kind = emulate_near_device(to, 1) ? emulate_near_device(from, 1) ? cudaMemcpyDeviceToDevice
                                                                         : cudaMemcpyHostToDevice
                                          : cudaMemcpyDeviceToHost;
    bool good = (device_side(kind, true) ? emulate_on_device(to, to_bytes)
                                         : to && !emulate_near_device(to, to_bytes)) &&
                (device_side(kind, false) ? emulate_on_device(from, from_bytes)
                                          : from && !emulate_near_device(from, from_bytes));
    if (!good || kind == cudaMemcpyHostToHost) return emulate_error(cudaErrorInvalidValue);
    const char *name = kind == cudaMemcpyHostToDevice   ? "copy in"
                       : kind == cudaMemcpyDeviceToHost ? "copy out"
                                                        : "copy";
    auto copy = [=](const void *source, size_t pitch) {
        for (size_t r = 0; r < height; r++)
            memcpy((char *)to + r * to_pitch, (const char *)source + r * pitch, width);
    };
    bool host_in = kind == cudaMemcpyHostToDevice && !emulate_pinned(from, from_bytes);
    bool host_out = kind == cudaMemcpyDeviceToHost && !emulate_pinned(to, to_bytes);
    /* a replay would read memory that may be gone, and cannot wait */
    if ((host_in || host_out) && capturing(s)) return lose(s);
    if (!capturing(s)) {
        emulate_count(name, "", 1);
        emulate_count((std::string(name) + " bytes").c_str(), "", (int64_t)(width * height));
    }
    if (host_in) {
        std::vector<char> read(width * height);
        for (size_t r = 0; r < height; r++)
            memcpy(&read[r * width], (const char *)from + r * from_pitch, width);
        return emulate_push(stream, [=]() { copy(read.data(), width); });
    }
    cudaError_t error = emulate_push(stream, [=]() { copy(from, from_pitch); });
    if (host_out) finish(s);
    return error;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    emulate_lock lock;
    if (!bytes) return cudaSuccess;
    if (!emulate_on_device(p, bytes)) return emulate_error(cudaErrorInvalidValue);
    if (!capturing(of(stream))) emulate_count("zero", "", 1);
    return emulate_push(stream, [=]() { memset(p, value, bytes); });
}

/* ------------------------------------------------------------------ streams and events */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    emulate_lock lock;
    of(NULL);
    *stream = new CUstream_st();
    streams.push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    emulate_lock lock;
    finish(stream);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emulate_lock lock;
    if (capturing(of(stream))) return lose(of(stream));
    finish(of(stream));
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    emulate_lock lock;
    if (!emulate_allowed()) return emulate_error(cudaErrorStreamCaptureUnsupported);
    emulate_finish_all();
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    emulate_lock lock;
    CUstream_st *s = of(stream);
    if (capturing(s)) return lose(s);
    run_one(s);
    return s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new CUevent_st();
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    emulate_lock lock;
    if (event->in_graph) return emulate_error(cudaErrorStreamCaptureUnsupported);
    uint64_t version = event->recorded;
    if (event->done >= version) return cudaSuccess;
    emulate_count("wait", "", 1);
    run_until(of(event->stream), [&] { return event->done >= version; });
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    emulate_lock lock;
    if (event->done < event->recorded)
        run_until(of(event->stream), [&] { return event->done >= event->recorded; });
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    emulate_lock lock;
    event->in_graph = capturing(of(stream));
    if (event->in_graph) return cudaSuccess; /* it can only order what one stream orders */
    event->stream = stream;
    return push(stream, { NULL, event, NULL, ++event->recorded, NULL });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    emulate_lock lock;
    if (event->in_graph && capturing(of(stream))) return cudaSuccess;
    /* to record several streams in one graph is CUDA's, not the emulator's */
    if (event->in_graph || capturing(of(stream))) return lose(of(stream));
    return push(stream, { NULL, NULL, event, event->recorded, NULL });
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    emulate_lock lock;
    if (!emulate_allowed()) return emulate_error(cudaErrorStreamCaptureUnsupported);
    if (event->done < event->recorded) run_one(of(event->stream));
    return event->done >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    emulate_lock lock;
    if (!from->recorded || !to->recorded) return emulate_error(cudaErrorInvalidResourceHandle);
    if (from->done < from->recorded || to->done < to->recorded) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count(); /* of this machine */
    return cudaSuccess;
}
