// The operators in use, one line each, and the call of any other by name.
#include "torch.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <string>
#include <vector>

using dims_ref = at::IntArrayRef;

// A list of sizes or dimensions, not copied.
static dims_ref dims_of(const int64_t *list, int n)
{
    return dims_ref(list, (size_t)n);
}

// libtorch wants its own tensors side by side; handles are pointers to them.
static std::vector<at::Tensor> tensors_of(const at_tensor *t, int n)
{
    std::vector<at::Tensor> list;
    for (int i = 0; i < n; i++) list.push_back(t[i]->t);
    return list;
}

// AT_DEFINE(name, parameters, operands, which must not be NULL; expression): the result becomes a
// handle of the innermost scope, an exception its failure.
// ---------------------------------------------------------------- views
AT_DEFINE(at_reshape, (at_tensor t, const int64_t *sizes, int n), (t),
          t->t.reshape(dims_of(sizes, n)))
AT_DEFINE(at_expand, (at_tensor t, const int64_t *sizes, int n), (t),
          t->t.expand(dims_of(sizes, n)))
AT_DEFINE(at_permute, (at_tensor t, const int64_t *dims, int n), (t),
          t->t.permute(dims_of(dims, n)))
AT_DEFINE(at_transpose, (at_tensor t, int a, int b), (t), t->t.transpose(a, b))
AT_DEFINE(at_unsqueeze, (at_tensor t, int dim), (t), t->t.unsqueeze(dim))
AT_DEFINE(at_squeeze, (at_tensor t, int dim), (t), t->t.squeeze(dim))
AT_DEFINE(at_select, (at_tensor t, int dim, int64_t index), (t), t->t.select(dim, index))
AT_DEFINE(at_narrow, (at_tensor t, int dim, int64_t start, int64_t length), (t),
          t->t.narrow(dim, start, length))

// Written out, because AT_OP takes a fixed number of operands.
at_tensor at_cat(const at_tensor *t, int n, int dim)
{
    if (!ares_torch::ready(__func__, t, (size_t)n)) return nullptr;
    try {
        return ares_torch::adopt(
            ares_torch::attempt([&] { return at::cat(tensors_of(t, n), dim); }));
    } catch (...) {
        ares_torch::failed(__func__, t, (size_t)n);
        return nullptr;
    }
}

// ---------------------------------------------------------------- elementwise
AT_DEFINE(at_add, (at_tensor a, at_tensor b), (a, b), a->t.add(b->t))
AT_DEFINE(at_sub, (at_tensor a, at_tensor b), (a, b), a->t.sub(b->t))
AT_DEFINE(at_mul, (at_tensor a, at_tensor b), (a, b), a->t.mul(b->t))
AT_DEFINE(at_div, (at_tensor a, at_tensor b), (a, b), a->t.div(b->t))
AT_DEFINE(at_minimum, (at_tensor a, at_tensor b), (a, b), at::minimum(a->t, b->t))
AT_DEFINE(at_maximum, (at_tensor a, at_tensor b), (a, b), at::maximum(a->t, b->t))
AT_DEFINE(at_lt, (at_tensor a, at_tensor b), (a, b), a->t.lt(b->t))
AT_DEFINE(at_where, (at_tensor condition, at_tensor a, at_tensor b), (condition, a, b),
          at::where(condition->t, a->t, b->t))
AT_DEFINE(at_add_s, (at_tensor a, double b), (a), a->t.add(b))
AT_DEFINE(at_mul_s, (at_tensor a, double b), (a), a->t.mul(b))
AT_DEFINE(at_pow_s, (at_tensor a, double exponent), (a), a->t.pow(exponent))
AT_DEFINE(at_clamp, (at_tensor t, double low, double high), (t), t->t.clamp(low, high))
AT_DEFINE(at_neg, (at_tensor t), (t), t->t.neg())
AT_DEFINE(at_abs, (at_tensor t), (t), t->t.abs())
AT_DEFINE(at_exp, (at_tensor t), (t), t->t.exp())
AT_DEFINE(at_log, (at_tensor t), (t), t->t.log())
AT_DEFINE(at_sqrt, (at_tensor t), (t), t->t.sqrt())
AT_DEFINE(at_rsqrt, (at_tensor t), (t), t->t.rsqrt())
AT_DEFINE(at_sigmoid, (at_tensor t), (t), t->t.sigmoid())
AT_DEFINE(at_silu, (at_tensor t), (t), at::silu(t->t))
AT_DEFINE(at_gelu, (at_tensor t), (t), at::gelu(t->t))
AT_DEFINE(at_masked_fill, (at_tensor t, at_tensor mask, double value), (t, mask),
          t->t.masked_fill(mask->t, value))

// ---------------------------------------------------------------- reductions
AT_DEFINE(at_sum, (at_tensor t), (t), t->t.sum())
AT_DEFINE(at_mean, (at_tensor t), (t), t->t.mean())
AT_DEFINE(at_sum_dim, (at_tensor t, int dim, bool keep), (t),
          t->t.sum(dims_ref((int64_t)dim), keep))
AT_DEFINE(at_mean_dim, (at_tensor t, int dim, bool keep), (t),
          t->t.mean(dims_ref((int64_t)dim), keep))
AT_DEFINE(at_max_dim, (at_tensor t, int dim, bool keep), (t),
          t->t.amax(dims_ref((int64_t)dim), keep))
AT_DEFINE(at_argmax, (at_tensor t, int dim), (t), t->t.argmax(dim))

// ---------------------------------------------------------------- linear algebra, neural network
AT_DEFINE(at_matmul, (at_tensor a, at_tensor b), (a, b), at::matmul(a->t, b->t))

at_tensor at_linear(at_tensor x, at_tensor weight, at_tensor bias)
{
    if (!bias) AT_OP(AT_OPERANDS(x, weight), at::linear(x->t, weight->t));
    AT_OP(AT_OPERANDS(x, weight, bias), at::linear(x->t, weight->t, bias->t));
}

AT_DEFINE(at_embedding, (at_tensor weight, at_tensor ids), (weight, ids),
          at::embedding(weight->t, ids->t))
AT_DEFINE(at_rms_norm, (at_tensor x, at_tensor weight, double eps), (x, weight),
          at::rms_norm(x->t, { x->t.size(-1) }, weight->t, eps))
AT_DEFINE(at_softmax, (at_tensor t, int dim), (t), at::softmax(t->t, dim))
AT_DEFINE(at_log_softmax, (at_tensor t, int dim), (t), at::log_softmax(t->t, dim))
AT_DEFINE(at_gather, (at_tensor t, int dim, at_tensor index), (t, index),
          t->t.gather(dim, index->t))
AT_DEFINE(at_index_select, (at_tensor t, int dim, at_tensor index), (t, index),
          t->t.index_select(dim, index->t))
AT_DEFINE(at_index_add, (at_tensor t, int dim, at_tensor index, at_tensor source),
          (t, index, source), t->t.index_add(dim, index->t, source->t))

at_tensor at_sdpa(at_tensor q, at_tensor k, at_tensor v, at_tensor mask, bool causal, double scale)
{
    auto attend = [&](const std::optional<at::Tensor> &m) {
        // fewer heads of keys than of queries: each is read by a group of these
        bool grouped = q->t.dim() >= 3 && k->t.dim() >= 3 && q->t.size(-3) != k->t.size(-3);
        return at::scaled_dot_product_attention(q->t, k->t, v->t, m, 0.0, causal, scale, grouped);
    };
    if (!mask) AT_OP(AT_OPERANDS(q, k, v), attend({}));
    AT_OP(AT_OPERANDS(q, k, v, mask), attend(mask->t));
}

// ---------------------------------------------------------------- any other operator

// at_value and libtorch's own variant type, in both directions.
static c10::IValue value_in(const at_value &v)
{
    switch (v.kind) {
    case AT_V_NONE: return {};
    case AT_V_TENSOR: return v.as.tensor->t;
    case AT_V_TENSORS: return tensors_of(v.as.tensors, v.n);
    case AT_V_INT: return v.as.integer;
    case AT_V_DOUBLE: return v.as.number;
    case AT_V_BOOL: return v.as.flag;
    case AT_V_INTS: return std::vector<int64_t>(v.as.ints, v.as.ints + v.n);
    case AT_V_STRING: return std::string(v.as.string);
    }
    TORCH_CHECK(false, "an at_value of unknown kind");
}

static at_value value_out(const c10::IValue &v)
{
    at_value out = {};
    if (v.isTensor() && v.toTensor().defined()) {
        out.kind = AT_V_TENSOR;
        out.as.tensor = ares_torch::adopt(v.toTensor());
    } else if (v.isInt()) {
        out.kind = AT_V_INT;
        out.as.integer = v.toInt();
    } else if (v.isDouble()) {
        out.kind = AT_V_DOUBLE;
        out.as.number = v.toDouble();
    } else if (v.isBool()) {
        out.kind = AT_V_BOOL;
        out.as.flag = v.toBool();
    } else {
        TORCH_CHECK(v.isNone() || v.isTensor(), "gives a ", v.tagKind(),
                    ", which at_call does not carry");
    }
    return out;
}

int at_call(const char *name, const char *overload, const at_value *in, int n, at_value *out,
            int n_out)
{
    for (int i = 0; i < n_out; i++) out[i] = at_value{};
    // the tensors among the arguments, which must be there and whose shapes a message shows
    std::vector<at_tensor> operands;
    for (int i = 0; i < n; i++) {
        if (in[i].kind == AT_V_TENSOR) operands.push_back(in[i].as.tensor);
        if (in[i].kind == AT_V_TENSORS)
            operands.insert(operands.end(), in[i].as.tensors, in[i].as.tensors + in[i].n);
    }
    if (!ares_torch::ready(name, operands.data(), operands.size())) return ares_torch::code();
    try {
        auto handle = c10::Dispatcher::singleton().findSchema({ name, overload });
        TORCH_CHECK(handle, "libtorch has no operator of this name",
                    *overload ? " and overload '" : "", overload, *overload ? "'" : "");
        // too few arguments are filled up by the schema's defaults, as in Python
        const auto &arguments = handle->schema().arguments();
        TORCH_CHECK((size_t)n <= arguments.size(), "takes ", arguments.size(), " arguments, not ",
                    n);
        torch::jit::Stack stack;
        for (size_t i = 0; i < arguments.size(); i++) {
            TORCH_CHECK(i < (size_t)n || arguments[i].default_value(), "needs its argument ", i + 1,
                        ", '", arguments[i].name(), "'");
            stack.push_back(i < (size_t)n ? value_in(in[i]) : *arguments[i].default_value());
        }
        handle->callBoxed(stack);
        TORCH_CHECK((size_t)n_out <= stack.size(), "gives ", stack.size(), " values, not ", n_out);
        for (int i = 0; i < n_out; i++) out[i] = value_out(stack[(size_t)i]);
        return ARES_OK;
    } catch (...) {
        return ares_torch::failed(name, operands.data(), operands.size());
    }
}

// Operations that write into memory which is already there, and attention with its own backward.

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

// libtorch would give an `out` of another shape the result's, and write it over its memory.
static void fits(at_tensor out, at::IntArrayRef sizes)
{
    TORCH_CHECK(out->t.sizes() == sizes, "out is ", out->t.sizes(), ", the result ", sizes);
}

// ---------------------------------------------------------------- elementwise
AT_DEFINE_INTO(at_add_, (at_tensor a, at_tensor b), a, (a, b), a->t.add_(b->t))
AT_DEFINE_INTO(at_sub_, (at_tensor a, at_tensor b), a, (a, b), a->t.sub_(b->t))
AT_DEFINE_INTO(at_mul_, (at_tensor a, at_tensor b), a, (a, b), a->t.mul_(b->t))
AT_DEFINE_INTO(at_mul_s_, (at_tensor a, double b), a, (a), a->t.mul_(b))
AT_DEFINE_INTO(at_mul_out, (at_tensor out, at_tensor a, at_tensor b), out, (a, b),
               fits(out, at::infer_size(a->t.sizes(), b->t.sizes()));
               at::mul_out(out->t, a->t, b->t))
AT_DEFINE_INTO(at_exp_out, (at_tensor out, at_tensor t), out, (t), fits(out, t->t.sizes());
               at::exp_out(out->t, t->t))

// ---------------------------------------------------------------- products
// A product, or with self its sum. libtorch has those of one type, and on a card bf16 ones into
// f32; the others are computed in f32, from copies.
static void product(const at::Tensor &out, const at::Tensor *self, const at::Tensor &a,
                    const at::Tensor &b)
{
    at::ScalarType type = out.scalar_type();
    at::Tensor to = out;
    // in order of preference: as they are; bf16 into f32 on a card; all of it in f32
    bool alike = a.scalar_type() == b.scalar_type();
    if (alike && a.scalar_type() == type) {
        if (self) at::addmm_out(to, self->to(type), a, b);
        else at::mm_out(to, a, b);
    } else if (alike && type == at::kFloat && out.is_cuda()) {
        if (self) at::addmm_out(to, *self, a, b, at::kFloat);
        else at::mm_out(to, a, b, at::kFloat);
    } else {
        at::Tensor x = a.to(at::kFloat), y = b.to(at::kFloat);
        if (type != at::kFloat) to = at::empty(out.sizes(), out.options().dtype(at::kFloat));
        if (self) at::addmm_out(to, self->to(at::kFloat), x, y);
        else at::mm_out(to, x, y);
        if (type != at::kFloat) out.copy_(to);
    }
}
AT_DEFINE_INTO(at_mm_out, (at_tensor out, at_tensor a, at_tensor b), out, (a, b),
               fits(out, { a->t.size(0), b->t.size(1) });
               product(out->t, nullptr, a->t, b->t))
AT_DEFINE_INTO(at_addmm_out, (at_tensor out, at_tensor self, at_tensor a, at_tensor b), out,
               (self, a, b), fits(out, { a->t.size(0), b->t.size(1) });
               product(out->t, &self->t, a->t, b->t))

// Summed in the type of `out`, e.g. bf16 numbers in f32.
AT_DEFINE_INTO(at_sum_dim_out, (at_tensor out, at_tensor t, int dim), out, (t),
               fits(out, t->t.select(dim, 0).sizes());
               at::sum_out(out->t, t->t, at::IntArrayRef((int64_t)dim), false,
                           out->t.scalar_type()))

// ---------------------------------------------------------------- neural network
AT_DEFINE_INTO(at_log_softmax_out, (at_tensor out, at_tensor t, int dim), out, (t),
               fits(out, t->t.sizes());
               at::_log_softmax_out(out->t, t->t, dim, false))
AT_DEFINE_INTO(at_silu_backward_out, (at_tensor out, at_tensor gradient, at_tensor x), out,
               (gradient, x), fits(out, x->t.sizes());
               at::silu_backward_out(out->t, gradient->t, x->t))
AT_DEFINE_INTO(at_gelu_backward_out, (at_tensor out, at_tensor gradient, at_tensor x), out,
               (gradient, x), fits(out, x->t.sizes());
               at::gelu_backward_out(out->t, gradient->t, x->t))
AT_DEFINE_INTO(at_index_add_, (at_tensor t, int dim, at_tensor index, at_tensor source), t,
               (t, index, source), t->t.index_add_(dim, index->t, source->t))
AT_DEFINE_INTO(at_index_copy_, (at_tensor t, int dim, at_tensor index, at_tensor source), t,
               (t, index, source), t->t.index_copy_(dim, index->t, source->t))
AT_DEFINE_INTO(at_scatter_add_, (at_tensor t, int dim, at_tensor index, at_tensor source), t,
               (t, index, source), t->t.scatter_add_(dim, index->t, source->t))

// ---------------------------------------------------------------- attention
// What libtorch does not check, and would crash on or compute wrongly.
static void check(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v, int64_t dims,
                  int64_t of_rows)
{
    TORCH_CHECK(q.dim() == dims && k.dim() == dims && v.dim() == dims, "takes q, k and v of ", dims,
                " dimensions");
    TORCH_CHECK(q.size(of_rows) > 0 && k.size(of_rows) > 0, "takes at least one query and one key");
    TORCH_CHECK(q.stride(-1) == 1 && k.stride(-1) == 1 && v.stride(-1) == 1,
                "takes q, k and v whose last dimension is dense");
}

at_tensor at_attend(at_tensor q, at_tensor k, at_tensor v, at_tensor mask, double scale,
                    at_tensor *lse)
{
    const at_tensor in[] = { q, k, v, mask };
    *lse = nullptr;
    if (!ares_torch::ready(__func__, in, mask ? 4 : 3)) return nullptr;
    try {
        check(q->t, k->t, v->t, 4, 2);
        auto [out, denominator] = ares_torch::attempt([&] {
            return at::_scaled_dot_product_flash_attention_for_cpu(
                q->t, k->t, v->t, 0.0, false,
                mask ? std::optional<at::Tensor>(mask->t) : std::nullopt, scale);
        });
        *lse = ares_torch::adopt(denominator);
        return ares_torch::adopt(out);
    } catch (...) {
        ares_torch::failed(__func__, in, mask ? 4 : 3);
        return nullptr;
    }
}

// ---------------------------------------------------------------- attention of packed sequences

// Rows of q and of k that belong to one sequence with keys.
struct sequence {
    int64_t q, rows, k, keys;
};

// Sequences without rows or without keys are left out.
static std::vector<sequence> sequences(const at_varlen *p)
{
    const int32_t *q = p->q_start->t.const_data_ptr<int32_t>(),
                  *k = p->k_start->t.const_data_ptr<int32_t>();
    std::vector<sequence> list;
    for (int64_t i = 0; i + 1 < p->q_start->t.numel(); i++)
        if (q[i + 1] > q[i] && k[i + 1] > k[i])
            list.push_back({ q[i], q[i + 1] - q[i], k[i], k[i + 1] - k[i] });
    // a row's own key is the last it sees, so there are at least as many keys as rows
    for (const sequence &s : list)
        TORCH_CHECK(s.keys >= s.rows, "takes no sequence of ", s.rows, " rows and ", s.keys,
                    " keys");
    return list;
}

// libtorch's attention of the CPU takes one sequence at a time, and its causal counts from the
// first key: where rows have keys before their own, or a window, a mask says what they see.
static std::optional<at::Tensor> mask_of(const sequence &s, const at_varlen *p, bool *causal)
{
    bool windowed = p->window > 0 && p->window < s.keys;
    *causal = p->causal && !windowed && s.rows == s.keys;
    if (*causal || (!windowed && (!p->causal || s.rows == 1))) return {};
    at::Tensor mask = at::zeros({ s.rows, s.keys }, at::kFloat);
    float *m = mask.data_ptr<float>();
    for (int64_t i = 0; i < s.rows; i++)
        for (int64_t j = 0; j < s.keys; j++) {
            // the row's own key; later ones are hidden, and those before its window
            int64_t own = s.keys - s.rows + i;
            if ((p->causal && j > own) || (windowed && j <= own - p->window))
                m[i * s.keys + j] = -INFINITY;
        }
    return mask;
}

// Rows of [T, H, D] as [1, H, n, D]
static at::Tensor heads(const at::Tensor &x, int64_t first, int64_t n)
{
    return x.narrow(0, first, n).transpose(0, 1).unsqueeze(0);
}

// Rows of a sequence without keys keep 0.
static std::tuple<at::Tensor, at::Tensor> attend_on_cpu(const at::Tensor &q, const at::Tensor &k,
                                                        const at::Tensor &v, const at_varlen *p)
{
    at::Tensor out = at::zeros(q.sizes(), q.options()),
               lse = at::zeros({ q.size(1), q.size(0) }, at::kFloat);
    for (const sequence &s : sequences(p)) {
        bool causal;
        auto mask = mask_of(s, p, &causal);
        auto [part, denominator] = at::_scaled_dot_product_flash_attention_for_cpu(
            heads(q, s.q, s.rows), heads(k, s.k, s.keys), heads(v, s.k, s.keys), 0.0, causal, mask,
            p->scale);
        heads(out, s.q, s.rows).copy_(part);
        lse.narrow(1, s.q, s.rows).copy_(denominator.squeeze(0));
    }
    return { out, lse };
}

using gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

static gradients attend_back_on_cpu(const at::Tensor &d_out, const at::Tensor &q,
                                    const at::Tensor &k, const at::Tensor &v, const at::Tensor &out,
                                    const at::Tensor &lse, const at_varlen *p)
{
    // segments have rows, so every key is written; rows without keys keep dq 0
    at::Tensor dq = at::zeros(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()),
               dv = at::empty(v.sizes(), v.options());
    for (const sequence &s : sequences(p)) {
        bool causal;
        auto mask = mask_of(s, p, &causal);
        auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            heads(d_out, s.q, s.rows), heads(q, s.q, s.rows), heads(k, s.k, s.keys),
            heads(v, s.k, s.keys), heads(out, s.q, s.rows), lse.narrow(1, s.q, s.rows).unsqueeze(0),
            0.0, causal, mask, p->scale);
        heads(dq, s.q, s.rows).copy_(of_q);
        heads(dk, s.k, s.keys).copy_(of_k);
        heads(dv, s.k, s.keys).copy_(of_v);
    }
    return { dq, dk, dv };
}

// Keys that a window leaves before a row and after it.
static std::pair<std::optional<int64_t>, std::optional<int64_t>> sides(const at_varlen *p)
{
    if (p->window <= 0) return {};
    return { p->window - 1, p->causal ? std::optional<int64_t>(0) : std::nullopt };
}

static std::tuple<at::Tensor, at::Tensor> attend_on_card(const at::Tensor &q, const at::Tensor &k,
                                                         const at::Tensor &v, const at_varlen *p)
{
    auto [left, right] = sides(p);
    auto found =
        at::_flash_attention_forward(q, k, v, p->q_start->t, p->k_start->t, p->most_q, p->most_k,
                                     0.0, p->causal, false, p->scale, left, right);
    return { std::get<0>(found), std::get<1>(found) };
}

static gradients attend_back_on_card(const at::Tensor &d_out, const at::Tensor &q,
                                     const at::Tensor &k, const at::Tensor &v,
                                     const at::Tensor &out, const at::Tensor &lse,
                                     const at_varlen *p)
{
    auto [left, right] = sides(p);
    // the state of the random numbers, of which there are none without dropout
    at::Tensor none = at::empty({ 2 }, q.options().dtype(at::kUInt64));
    return at::_flash_attention_backward(d_out, q, k, v, out, lse, p->q_start->t, p->k_start->t,
                                         p->most_q, p->most_k, 0.0, p->causal, none, none, p->scale,
                                         left, right);
}

at_tensor at_attend_varlen(at_tensor q, at_tensor k, at_tensor v, const at_varlen *p,
                           at_tensor *lse)
{
    const at_tensor in[] = { q, k, v, p->q_start, p->k_start };
    *lse = nullptr;
    if (!ares_torch::ready(__func__, in, 5)) return nullptr;
    try {
        check(q->t, k->t, v->t, 3, 0);
        auto attend = q->t.is_cuda() ? attend_on_card : attend_on_cpu;
        auto [out, denominator] = ares_torch::attempt([&] { return attend(q->t, k->t, v->t, p); });
        *lse = ares_torch::adopt(denominator);
        return ares_torch::adopt(out);
    } catch (...) {
        ares_torch::failed(__func__, in, 5);
        return nullptr;
    }
}

int at_attend_varlen_backward(at_tensor d_out, at_tensor q, at_tensor k, at_tensor v, at_tensor out,
                              at_tensor lse, const at_varlen *p, at_tensor gradient[3])
{
    const at_tensor in[] = { d_out, q, k, v, out, lse, p->q_start, p->k_start };
    for (int i = 0; i < 3; i++) gradient[i] = nullptr;
    if (!ares_torch::ready(__func__, in, 8)) return ares_torch::code();
    try {
        check(q->t, k->t, v->t, 3, 0);
        auto back = q->t.is_cuda() ? attend_back_on_card : attend_back_on_cpu;
        auto [dq, dk, dv] = ares_torch::attempt(
            [&] { return back(d_out->t, q->t, k->t, v->t, out->t, lse->t, p); });
        gradient[0] = ares_torch::adopt(dq);
        gradient[1] = ares_torch::adopt(dk);
        gradient[2] = ares_torch::adopt(dv);
        return ARES_OK;
    } catch (...) {
        return ares_torch::failed(__func__, in, 8);
    }
}
