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

static dims_ref dims_of(const int64_t *list, int n)
{
    return dims_ref(list, (size_t)n);
}

static std::vector<at::Tensor> tensors_of(const at_tensor *t, int n)
{
    std::vector<at::Tensor> list;
    for (int i = 0; i < n; i++) list.push_back(t[i]->t);
    return list;
}

// ---------------------------------------------------------------- views
at_tensor at_reshape(at_tensor t, const int64_t *sizes, int n)
{
    AT_OP(AT_OPERANDS(t), t->t.reshape(dims_of(sizes, n)));
}
at_tensor at_expand(at_tensor t, const int64_t *sizes, int n)
{
    AT_OP(AT_OPERANDS(t), t->t.expand(dims_of(sizes, n)));
}
at_tensor at_permute(at_tensor t, const int64_t *dims, int n)
{
    AT_OP(AT_OPERANDS(t), t->t.permute(dims_of(dims, n)));
}
at_tensor at_transpose(at_tensor t, int a, int b)
{
    AT_OP(AT_OPERANDS(t), t->t.transpose(a, b));
}
at_tensor at_unsqueeze(at_tensor t, int dim)
{
    AT_OP(AT_OPERANDS(t), t->t.unsqueeze(dim));
}
at_tensor at_squeeze(at_tensor t, int dim)
{
    AT_OP(AT_OPERANDS(t), t->t.squeeze(dim));
}
at_tensor at_select(at_tensor t, int dim, int64_t index)
{
    AT_OP(AT_OPERANDS(t), t->t.select(dim, index));
}
at_tensor at_narrow(at_tensor t, int dim, int64_t start, int64_t length)
{
    AT_OP(AT_OPERANDS(t), t->t.narrow(dim, start, length));
}

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
at_tensor at_add(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), a->t.add(b->t));
}
at_tensor at_sub(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), a->t.sub(b->t));
}
at_tensor at_mul(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), a->t.mul(b->t));
}
at_tensor at_div(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), a->t.div(b->t));
}
at_tensor at_minimum(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), at::minimum(a->t, b->t));
}
at_tensor at_maximum(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), at::maximum(a->t, b->t));
}
at_tensor at_lt(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), a->t.lt(b->t));
}
at_tensor at_where(at_tensor condition, at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(condition, a, b), at::where(condition->t, a->t, b->t));
}
at_tensor at_add_s(at_tensor a, double b)
{
    AT_OP(AT_OPERANDS(a), a->t.add(b));
}
at_tensor at_mul_s(at_tensor a, double b)
{
    AT_OP(AT_OPERANDS(a), a->t.mul(b));
}
at_tensor at_pow_s(at_tensor a, double exponent)
{
    AT_OP(AT_OPERANDS(a), a->t.pow(exponent));
}
at_tensor at_clamp(at_tensor t, double low, double high)
{
    AT_OP(AT_OPERANDS(t), t->t.clamp(low, high));
}
at_tensor at_neg(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.neg());
}
at_tensor at_abs(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.abs());
}
at_tensor at_exp(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.exp());
}
at_tensor at_log(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.log());
}
at_tensor at_sqrt(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.sqrt());
}
at_tensor at_rsqrt(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.rsqrt());
}
at_tensor at_sigmoid(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.sigmoid());
}
at_tensor at_silu(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), at::silu(t->t));
}
at_tensor at_gelu(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), at::gelu(t->t));
}
at_tensor at_masked_fill(at_tensor t, at_tensor mask, double value)
{
    AT_OP(AT_OPERANDS(t, mask), t->t.masked_fill(mask->t, value));
}

// ---------------------------------------------------------------- reductions
at_tensor at_sum(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.sum());
}
at_tensor at_mean(at_tensor t)
{
    AT_OP(AT_OPERANDS(t), t->t.mean());
}
at_tensor at_sum_dim(at_tensor t, int dim, bool keep)
{
    AT_OP(AT_OPERANDS(t), t->t.sum(dims_ref((int64_t)dim), keep));
}
at_tensor at_mean_dim(at_tensor t, int dim, bool keep)
{
    AT_OP(AT_OPERANDS(t), t->t.mean(dims_ref((int64_t)dim), keep));
}
at_tensor at_max_dim(at_tensor t, int dim, bool keep)
{
    AT_OP(AT_OPERANDS(t), t->t.amax(dims_ref((int64_t)dim), keep));
}
at_tensor at_argmax(at_tensor t, int dim)
{
    AT_OP(AT_OPERANDS(t), t->t.argmax(dim));
}

// ---------------------------------------------------------------- linear algebra, neural network
at_tensor at_matmul(at_tensor a, at_tensor b)
{
    AT_OP(AT_OPERANDS(a, b), at::matmul(a->t, b->t));
}

at_tensor at_linear(at_tensor x, at_tensor weight, at_tensor bias)
{
    if (!bias) AT_OP(AT_OPERANDS(x, weight), at::linear(x->t, weight->t));
    AT_OP(AT_OPERANDS(x, weight, bias), at::linear(x->t, weight->t, bias->t));
}

at_tensor at_embedding(at_tensor weight, at_tensor ids)
{
    AT_OP(AT_OPERANDS(weight, ids), at::embedding(weight->t, ids->t));
}
at_tensor at_rms_norm(at_tensor x, at_tensor weight, double eps)
{
    AT_OP(AT_OPERANDS(x, weight), at::rms_norm(x->t, { x->t.size(-1) }, weight->t, eps));
}
at_tensor at_softmax(at_tensor t, int dim)
{
    AT_OP(AT_OPERANDS(t), at::softmax(t->t, dim));
}
at_tensor at_log_softmax(at_tensor t, int dim)
{
    AT_OP(AT_OPERANDS(t), at::log_softmax(t->t, dim));
}
at_tensor at_gather(at_tensor t, int dim, at_tensor index)
{
    AT_OP(AT_OPERANDS(t, index), t->t.gather(dim, index->t));
}
at_tensor at_index_select(at_tensor t, int dim, at_tensor index)
{
    AT_OP(AT_OPERANDS(t, index), t->t.index_select(dim, index->t));
}
at_tensor at_index_add(at_tensor t, int dim, at_tensor index, at_tensor source)
{
    AT_OP(AT_OPERANDS(t, index, source), t->t.index_add(dim, index->t, source->t));
}

at_tensor at_sdpa(at_tensor q, at_tensor k, at_tensor v, at_tensor mask, bool causal, double scale)
{
    auto attend = [&](const std::optional<at::Tensor> &m) {
        bool grouped = q->t.dim() >= 3 && k->t.dim() >= 3 && q->t.size(-3) != k->t.size(-3);
        return at::scaled_dot_product_attention(q->t, k->t, v->t, m, 0.0, causal, scale, grouped);
    };
    if (!mask) AT_OP(AT_OPERANDS(q, k, v), attend({}));
    AT_OP(AT_OPERANDS(q, k, v, mask), attend(mask->t));
}

// ---------------------------------------------------------------- any other operator

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
