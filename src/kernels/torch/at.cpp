

// Handles and scopes of the shim. A thread's scopes form a stack. A handle knows its place in its
// scope, so that taking one out costs nothing. A closed scope leaves its failure to the enclosing
// scope, which reports it as the cause when an operand is NULL because of it.
#include "torch.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

struct at_scope {
    const char *name;
    at_scope *outer;
    std::vector<at_tensor> tensors; // nullptr where one was taken out
    int code = ARES_OK;
    std::string message, inner; // first failure of this scope; failure of the last inner scope
    std::optional<c10::InferenceMode> no_grad;
    std::optional<c10::StreamGuard> stream;
    bool (*give_back)(void *ctx) = nullptr; // asked for memory of the device
    void *ctx = nullptr;
};

namespace
{

thread_local at_scope *innermost = nullptr;
std::atomic<int64_t> live{ 0 };
std::once_flag started;

// Handles are counted, so that tests see a leak.
void destroy(at_tensor t)
{
    delete t;
    live.fetch_sub(1, std::memory_order_relaxed);
}

void enter(at_tensor t, at_scope *s)
{
    t->scope = s;
    t->place = s->tensors.size();
    s->tensors.push_back(t);
}

// Of libtorch's message only the first line; the rest is for its developers.
std::string first_line(const char *text)
{
    std::string line(text, strcspn(text, "\n"));
    while (!line.empty() && (line.back() == ' ' || line.back() == '.')) line.pop_back();
    return line;
}

// The names of at.h, which messages use; libtorch's own for a type that at.h lacks.
const char *type_name(at::ScalarType type)
{
    static const char *const names[] = { "f32", "f64", "bf16", "f16", "i32", "i64", "u8", "bool" };
    for (int i = AT_F32; i <= AT_BOOL; i++)
        if (ares_torch::type_of((at_dtype)i) == type) return names[i];
    return c10::toString(type);
}

// How much was asked for, and how much there is; what follows is advice for programs in Python.
std::string figures(std::string line)
{
    static const char last[] = " is free";
    size_t at = line.find(last);
    return at == std::string::npos ? line : line.substr(0, at + strlen(last));
}

// " (f32 [2, 4], f32 [2, 3])", for the end of a message.
std::string shapes(const at_tensor *in, size_t n)
{
    std::string text;
    for (size_t i = 0; i < n; i++) {
        if (!in[i]) continue;
        text += text.empty() ? " (" : ", ";
        text += type_name(in[i]->t.scalar_type());
        text += " [";
        for (int64_t d = 0; d < in[i]->t.dim(); d++)
            text += (d ? ", " : "") + std::to_string(in[i]->t.size(d));
        text += "]";
    }
    return text.empty() ? text : text + ")";
}

// Keeps the first failure of the innermost scope; returns its code.
int fail(const char *op, int code, const std::string &what)
{
    at_scope *s = innermost;
    if (s->code == ARES_OK) {
        s->code = code;
        s->message = std::string(s->name) + ": " + op + ": " + what;
    }
    return s->code;
}

// For functions that read from a tensor: the value of f, or `absent` after a failure.
template <class T, class F> T look(const char *name, at_tensor t, T absent, F f) noexcept
{
    if (t && !innermost) return f(t->t); // an owned tensor, outside any scope
    if (!ares_torch::ready(name, &t, 1)) return absent;
    try {
        return f(t->t);
    } catch (...) {
        ares_torch::failed(name, &t, 1);
        return absent;
    }
}

} // namespace

namespace ares_torch
{

at_tensor adopt(at::Tensor t)
{
    at_tensor handle = new at_tensor_data{ std::move(t), nullptr, 0 };
    live.fetch_add(1, std::memory_order_relaxed);
    enter(handle, innermost);
    return handle;
}

// Of the innermost scope, for operations that return a code and no tensor.
int code()
{
    return innermost->code;
}

// Whether the device has released memory that it could do without: then it is worth another try.
bool gave_back()
{
    return innermost->give_back && innermost->give_back(innermost->ctx);
}

// After a failed operation the next ones do nothing, so the message is that of the cause.
bool ready(const char *op, const at_tensor *in, size_t n)
{
    ARES_ASSERT(innermost && "an operation of libtorch inside a scope");
    if (innermost->code != ARES_OK) return false;
    for (size_t i = 0; i < n; i++) {
        if (in[i]) continue;
        std::string what = "operand " + std::to_string(i + 1) + " is NULL";
        if (!innermost->inner.empty()) what += " after " + innermost->inner;
        fail(op, ARES_EDEVICE, what);
        return false;
    }
    return true;
}

// Called in a catch block: turns what was thrown into the scope's failure.
int failed(const char *op, const at_tensor *in, size_t n)
{
    try {
        throw;
    } catch (const c10::OutOfMemoryError &e) {
        return fail(op, ARES_ELIMIT,
                    figures(first_line(e.what_without_backtrace())) + shapes(in, n));
    } catch (const c10::NotImplementedError &e) {
        return fail(op, ARES_EUNSUPPORTED, first_line(e.what_without_backtrace()) + shapes(in, n));
    } catch (const c10::Error &e) {
        return fail(op, ARES_EDEVICE, first_line(e.what_without_backtrace()) + shapes(in, n));
    } catch (const std::exception &e) {
        return fail(op, ARES_EDEVICE, first_line(e.what()) + shapes(in, n));
    } catch (...) {
        return fail(op, ARES_EDEVICE, "unknown exception" + shapes(in, n));
    }
}

at::ScalarType type_of(at_dtype dtype)
{
    switch (dtype) {
    case AT_F32: return at::kFloat;
    case AT_F64: return at::kDouble;
    case AT_BF16: return at::kBFloat16;
    case AT_F16: return at::kHalf;
    case AT_I32: return at::kInt;
    case AT_I64: return at::kLong;
    case AT_U8: return at::kByte;
    case AT_BOOL: return at::kBool;
    }
    ARES_ASSERT(false && "a dtype of at.h");
    return at::kFloat;
}

at_dtype dtype_of(at::ScalarType type)
{
    for (int i = AT_F32; i <= AT_BOOL; i++)
        if (type_of((at_dtype)i) == type) return (at_dtype)i;
    // e.g. a complex number, or one of 8 bits, from an operator called by name
    TORCH_CHECK(false, "dtype ", type, " is none of at.h's");
}

} // namespace ares_torch

using ares_torch::type_of;

// ---------------------------------------------------------------- scopes

at_scope *at_scope_open(const char *name)
{
    // the program has its own threads, and a sum over other threads would have other bits
    std::call_once(started, [] {
        at::set_num_threads(1);
        at::set_num_interop_threads(1);
    });
    at_scope *s = new at_scope;
    s->name = name;
    s->outer = innermost;
    return innermost = s;
}

at_scope *at_scope_open_no_grad(const char *name)
{
    at_scope *s = at_scope_open(name);
    s->no_grad.emplace();
    return s;
}

// An external stream's id is its pointer.
at_scope *at_scope_open_stream(const char *name, int device, void *stream)
{
    at_scope *s = at_scope_open_no_grad(name);
    try {
        s->stream.emplace(c10::Stream(c10::Stream::UNSAFE,
                                      c10::Device(c10::kCUDA, (c10::DeviceIndex)device),
                                      (c10::StreamId)(intptr_t)stream));
    } catch (...) {
        ares_torch::failed("stream", nullptr, 0);
    }
    return s;
}

void at_scope_retry(at_scope *s, bool (*give_back)(void *ctx), void *ctx)
{
    s->give_back = give_back;
    s->ctx = ctx;
}

// Closes the innermost scope and leaves its failure to the scope around it.
static void pop()
{
    at_scope *s = innermost;
    innermost = s->outer;
    for (at_tensor t : s->tensors)
        if (t) destroy(t);
    if (s->code != ARES_OK && innermost) innermost->inner = s->message;
    delete s;
}

int at_scope_close(at_scope *s, at_tensor *out)
{
    // scopes inside of s that were left open, by an early return, are closed with it
    bool open = false;
    for (at_scope *i = innermost; i; i = i->outer) open = open || i == s;
    ARES_ASSERT(open && "at_scope_close on the thread that opened the scope, once");
    at_tensor keep = out && s->code == ARES_OK ? *out : nullptr;
    if (out && !keep) *out = nullptr;
    if (keep && !keep->scope) keep = nullptr; // owned: stays where it is
    ARES_ASSERT(
        (!keep || s->outer) &&
        "a scope hands its tensor to the scope around it; at_own takes one out of the last");
    int rc = s->code;
    if (rc != ARES_OK) ares_fail(rc, "torch: %s", s->message.c_str());
    bool hand_out = false; // made here, or in an inner scope that is still open
    for (at_scope *i = innermost; keep && i != s->outer; i = i->outer)
        hand_out = hand_out || i == keep->scope;
    // out of its scope's list, which is about to be freed, into the outer one's
    if (hand_out) {
        keep->scope->tensors[keep->place] = nullptr;
        enter(keep, s->outer);
    }
    while (innermost != s) pop();
    pop();
    return rc;
}

bool at_scope_failed(void)
{
    return innermost && innermost->code != ARES_OK;
}

at_tensor at_own(at_tensor t)
{
    if (!ares_torch::ready("at_own", &t, 1)) return nullptr;
    if (t->scope) t->scope->tensors[t->place] = nullptr;
    t->scope = nullptr;
    return t;
}

void at_free(at_tensor t)
{
    if (!t) return;
    ARES_ASSERT(!t->scope && "at_free of a tensor that its scope will free");
    destroy(t);
}

int64_t at_live_count(void)
{
    return live.load(std::memory_order_relaxed);
}

// ---------------------------------------------------------------- process

const char *at_version(void)
{
    return TORCH_VERSION;
}

void at_manual_seed(uint64_t seed)
{
    at::manual_seed(seed);
}

// Nothing may ask libtorch about CUDA before its library is open: it would remember that there is
// none.
int at_cuda_open(void)
{
    // callers may be on different threads
    static std::mutex mutex;
    static void *library = nullptr;
    std::lock_guard<std::mutex> lock(mutex);
    if (!library) {
        // The full path, beside libtorch's CPU library: the program's rpath is ignored when a
        // sanitizer intercepts dlopen.
        Dl_info cpu;
        std::string path = "libtorch_cuda.so";
        if (dladdr((void *)&at::set_num_threads, &cpu) && strchr(cpu.dli_fname, '/'))
            path = std::string(cpu.dli_fname, strrchr(cpu.dli_fname, '/') + 1) + path;
        library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (!library)
            return ares_fail(
                ARES_EDEVICE,
                "torch: device = 'cuda': libtorch's CUDA library does not load (%s); use device "
                "cpu, or run scripts/setup.sh on a machine with a GPU",
                dlerror());
    }
    try {
        if (at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() > 0) {
            // Deterministic products also need cuBLAS to keep its workspace at one size: the
            // environment says so before threads exist (src/kernels/device.c). Splitting a product
            // over k stays allowed, with sums in f32: without it libtorch refuses bf16 products by
            // cuBLAS.
            at::Context &c = at::globalContext();
            c.setFloat32MatmulPrecision("highest");
            c.setAllowTF32CuBLAS(false);
            c.setAllowTF32CuDNN(false);
            c.setAllowBF16ReductionCuBLAS(false, true);
            c.setAllowFP16ReductionCuBLAS(false, true);
            c.setDeterministicAlgorithms(true, false);
            c.setDeterministicFillUninitializedMemory(false);
            // its allocator too, which at_view's tensors do not wake
            at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
            return ARES_OK;
        }
        return ares_fail(ARES_EDEVICE,
                         "torch: device = 'cuda': no CUDA device on this machine; use device cpu");
    } catch (const std::exception &e) {
        return ares_fail(ARES_EDEVICE, "torch: device = 'cuda': %s; use device cpu",
                         first_line(e.what()).c_str());
    }
}

// "aten::mm.out" -> operator "aten::mm", overload "out"; the first without a kernel for CUDA.
const char *at_cuda_lacks(const char *const *operators, int n)
{
    for (int i = 0; i < n; i++) {
        const char *dot = strchr(operators[i], '.');
        std::string name = dot ? std::string(operators[i], dot) : operators[i];
        auto handle = c10::Dispatcher::singleton().findSchema({ name, dot ? dot + 1 : "" });
        if (!handle || !handle->hasKernelForDispatchKey(c10::DispatchKey::CUDA))
            return operators[i];
    }
    return nullptr;
}

// Gives what libtorch's allocator keeps for later back to the card.
void at_cuda_trim(void)
{
    try {
        at::getDeviceAllocator(at::kCUDA)->emptyCache();
    } catch (...) { // the allocation that follows fails, and says so
    }
}

// ---------------------------------------------------------------- making, copying, looking

AT_DEFINE(at_from_blob, (void *data, at_dtype dtype, const int64_t *sizes, int n), (),
          at::from_blob(data, at::IntArrayRef(sizes, (size_t)n), type_of(dtype)))
at_tensor at_view(const void *data, at_dtype dtype, int device, const int64_t *sizes,
                  const int64_t *strides, int n)
{
    at::IntArrayRef shape(sizes, (size_t)n), steps(strides, (size_t)n);
    // named, or libtorch would ask the driver whose memory it is
    at::Device where =
        device < 0 ? at::Device(at::kCPU) : at::Device(at::kCUDA, (c10::DeviceIndex)device);
    AT_OP(AT_OPERANDS(), at::for_blob(const_cast<void *>(data), shape)
                             .strides(steps)
                             .options(at::TensorOptions().dtype(type_of(dtype)).device(where))
                             .target_device(where)
                             .make_tensor());
}
AT_DEFINE(at_zeros, (at_dtype dtype, const int64_t *sizes, int n), (),
          at::zeros(at::IntArrayRef(sizes, (size_t)n), type_of(dtype)))
AT_DEFINE(at_zeros_beside, (at_tensor like, at_dtype dtype, const int64_t *sizes, int n), (like),
          at::zeros(at::IntArrayRef(sizes, (size_t)n), like->t.options().dtype(type_of(dtype))))
AT_DEFINE(at_empty_beside, (at_tensor like, at_dtype dtype, const int64_t *sizes, int n), (like),
          at::empty(at::IntArrayRef(sizes, (size_t)n), like->t.options().dtype(type_of(dtype))))
AT_DEFINE(at_full, (double value, at_dtype dtype, const int64_t *sizes, int n), (),
          at::full(at::IntArrayRef(sizes, (size_t)n), value, type_of(dtype)))
AT_DEFINE(at_arange, (int64_t end, at_dtype dtype), (), at::arange(end, type_of(dtype)))
AT_DEFINE(at_randn, (at_dtype dtype, const int64_t *sizes, int n), (),
          at::randn(at::IntArrayRef(sizes, (size_t)n), type_of(dtype)))
AT_DEFINE(at_clone, (at_tensor t), (t), t->t.clone())
AT_DEFINE(at_detach, (at_tensor t), (t), t->t.detach())
AT_DEFINE(at_to, (at_tensor t, at_dtype dtype), (t), t->t.to(type_of(dtype)))
AT_DEFINE(at_to_device, (at_tensor t, const char *device), (t), t->t.to(at::Device(device)))

AT_DEFINE_INTO(at_copy_, (at_tensor to, at_tensor from), to, (to, from), to->t.copy_(from->t))

int at_read(at_tensor t, at_dtype dtype, void *out)
{
    if (!ares_torch::ready(__func__, &t, 1)) return innermost->code;
    try {
        // one copy that also converts and makes rows dense
        at::Tensor host = t->t.detach().to(at::kCPU, type_of(dtype)).contiguous();
        memcpy(out, host.const_data_ptr(), host.nbytes());
        return ARES_OK;
    } catch (...) {
        return ares_torch::failed(__func__, &t, 1);
    }
}

// A function that reads from a tensor, in a line: type, name, parameters, value after a failure,
// value.
#define LOOK(type, name, parameters, absent, value)                      \
    type name parameters                                                 \
    {                                                                    \
        return look(__func__, t, (type)absent,                           \
                    [&](const at::Tensor &x) { return (type)(value); }); \
    }
LOOK(double, at_item, (at_tensor t), NAN, x.item().toDouble())
LOOK(void *, at_data, (at_tensor t), nullptr, x.data_ptr())
LOOK(int, at_ndim, (at_tensor t), 0, (int)x.dim())
LOOK(int64_t, at_size, (at_tensor t, int dim), 0, x.size(dim))
LOOK(int64_t, at_numel, (at_tensor t), 0, x.numel())
LOOK(bool, at_is_contiguous, (at_tensor t), false, x.is_contiguous())
LOOK(at_dtype, at_dtype_of, (at_tensor t), AT_F32, ares_torch::dtype_of(x.scalar_type()))

// Automatic differentiation, the oracle of the hand-written backward passes.

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

at_tensor at_requires_grad_(at_tensor t, bool on)
{
    if (!ares_torch::ready(__func__, &t, 1)) return nullptr;
    try {
        t->t.requires_grad_(on);
        return t;
    } catch (...) {
        ares_torch::failed(__func__, &t, 1);
        return nullptr;
    }
}

int at_grad(at_tensor output, at_tensor grad_output, const at_tensor *inputs, int n, bool keep,
            at_tensor *grads)
{
    for (int i = 0; i < n; i++) grads[i] = nullptr;
    std::vector<at_tensor> operands{ output };
    if (grad_output) operands.push_back(grad_output);
    operands.insert(operands.end(), inputs, inputs + n);
    if (!ares_torch::ready(__func__, operands.data(), operands.size())) return ares_torch::code();
    try {
        torch::autograd::variable_list seeds, by;
        if (grad_output) seeds.push_back(grad_output->t);
        for (int i = 0; i < n; i++) by.push_back(inputs[i]->t);
        // inputs that the output does not depend on have the gradient 0
        auto found = torch::autograd::grad({ output->t }, by, seeds, keep, /*create_graph=*/false,
                                           /*allow_unused=*/true);
        for (int i = 0; i < n; i++)
            grads[i] = ares_torch::adopt(
                found[(size_t)i].defined() ? found[(size_t)i] : at::zeros_like(by[(size_t)i]));
        return ARES_OK;
    } catch (...) {
        return ares_torch::failed(__func__, operands.data(), operands.size());
    }
}

bool at_set_grad_enabled(bool on)
{
    bool was = c10::GradMode::is_enabled();
    c10::GradMode::set_enabled(on);
    return was;
}
