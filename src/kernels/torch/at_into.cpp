// Operations that write into memory which is already there, and attention with its own backward.
#include "torch.hpp"

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
at_tensor at_add_(at_tensor a, at_tensor b)
{
    AT_INTO(a, AT_OPERANDS(a, b), a->t.add_(b->t));
}
at_tensor at_sub_(at_tensor a, at_tensor b)
{
    AT_INTO(a, AT_OPERANDS(a, b), a->t.sub_(b->t));
}
at_tensor at_mul_(at_tensor a, at_tensor b)
{
    AT_INTO(a, AT_OPERANDS(a, b), a->t.mul_(b->t));
}
at_tensor at_mul_s_(at_tensor a, double b)
{
    AT_INTO(a, AT_OPERANDS(a), a->t.mul_(b));
}
at_tensor at_mul_out(at_tensor out, at_tensor a, at_tensor b)
{
    AT_INTO(out, AT_OPERANDS(a, b), fits(out, at::infer_size(a->t.sizes(), b->t.sizes()));
            at::mul_out(out->t, a->t, b->t));
}
at_tensor at_exp_out(at_tensor out, at_tensor t)
{
    AT_INTO(out, AT_OPERANDS(t), fits(out, t->t.sizes()); at::exp_out(out->t, t->t));
}

// ---------------------------------------------------------------- products
// A product, or with self its sum. libtorch has those of one type, and on a card bf16 ones into
// f32; the others are computed in f32, from copies.
static void product(const at::Tensor &out, const at::Tensor *self, const at::Tensor &a,
                    const at::Tensor &b)
{
    at::ScalarType type = out.scalar_type();
    at::Tensor to = out;
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
at_tensor at_mm_out(at_tensor out, at_tensor a, at_tensor b)
{
    AT_INTO(out, AT_OPERANDS(a, b), fits(out, { a->t.size(0), b->t.size(1) });
            product(out->t, nullptr, a->t, b->t));
}
at_tensor at_addmm_out(at_tensor out, at_tensor self, at_tensor a, at_tensor b)
{
    AT_INTO(out, AT_OPERANDS(self, a, b), fits(out, { a->t.size(0), b->t.size(1) });
            product(out->t, &self->t, a->t, b->t));
}

at_tensor at_sum_dim_out(at_tensor out, at_tensor t, int dim)
{
    AT_INTO(out, AT_OPERANDS(t), fits(out, t->t.select(dim, 0).sizes());
            at::sum_out(out->t, t->t, at::IntArrayRef((int64_t)dim), false, out->t.scalar_type()));
}

// ---------------------------------------------------------------- neural network
at_tensor at_log_softmax_out(at_tensor out, at_tensor t, int dim)
{
    AT_INTO(out, AT_OPERANDS(t), fits(out, t->t.sizes());
            at::_log_softmax_out(out->t, t->t, dim, false));
}
at_tensor at_silu_backward_out(at_tensor out, at_tensor gradient, at_tensor x)
{
    AT_INTO(out, AT_OPERANDS(gradient, x), fits(out, x->t.sizes());
            at::silu_backward_out(out->t, gradient->t, x->t));
}
at_tensor at_gelu_backward_out(at_tensor out, at_tensor gradient, at_tensor x)
{
    AT_INTO(out, AT_OPERANDS(gradient, x), fits(out, x->t.sizes());
            at::gelu_backward_out(out->t, gradient->t, x->t));
}
at_tensor at_index_add_(at_tensor t, int dim, at_tensor index, at_tensor source)
{
    AT_INTO(t, AT_OPERANDS(t, index, source), t->t.index_add_(dim, index->t, source->t));
}
at_tensor at_index_copy_(at_tensor t, int dim, at_tensor index, at_tensor source)
{
    AT_INTO(t, AT_OPERANDS(t, index, source), t->t.index_copy_(dim, index->t, source->t));
}
at_tensor at_scatter_add_(at_tensor t, int dim, at_tensor index, at_tensor source)
{
    AT_INTO(t, AT_OPERANDS(t, index, source), t->t.scatter_add_(dim, index->t, source->t));
}

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

static std::vector<sequence> sequences(const at_varlen *p)
{
    const int32_t *q = p->q_start->t.const_data_ptr<int32_t>(),
                  *k = p->k_start->t.const_data_ptr<int32_t>();
    std::vector<sequence> list;
    for (int64_t i = 0; i + 1 < p->q_start->t.numel(); i++)
        if (q[i + 1] > q[i] && k[i + 1] > k[i])
            list.push_back({ q[i], q[i + 1] - q[i], k[i], k[i + 1] - k[i] });
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
