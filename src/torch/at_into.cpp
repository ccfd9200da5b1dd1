// Operations that write into memory which is already there, and attention with its own backward.
#include "torch.hpp"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sum.h>

#include <tuple>
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
static std::optional<at::Tensor> checked(const at::Tensor &q, const at::Tensor &k,
                                         const at::Tensor &v, at_tensor mask, bool causal)
{
    TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4,
                "takes q, k and v of four dimensions");
    TORCH_CHECK(q.size(2) > 0 && k.size(2) > 0, "takes at least one query and one key");
    TORCH_CHECK(q.stride(3) == 1 && k.stride(3) == 1 && v.stride(3) == 1,
                "takes q, k and v whose last dimension is dense");
    TORCH_CHECK(!(mask && causal), "takes a mask or causal, not both");
    if (!mask) return {};
    return mask->t;
}

at_tensor at_attend(at_tensor q, at_tensor k, at_tensor v, at_tensor mask, bool causal,
                    double scale, at_tensor *lse)
{
    const at_tensor in[] = { q, k, v, mask };
    *lse = nullptr;
    if (!ares_torch::ready(__func__, in, mask ? 4 : 3)) return nullptr;
    try {
        auto m = checked(q->t, k->t, v->t, mask, causal);
        auto [out, denominator] = at::_scaled_dot_product_flash_attention_for_cpu(
            q->t, k->t, v->t, 0.0, causal, m, scale);
        *lse = ares_torch::adopt(denominator);
        return ares_torch::adopt(out);
    } catch (...) {
        ares_torch::failed(__func__, in, mask ? 4 : 3);
        return nullptr;
    }
}

int at_attend_backward(at_tensor d_out, at_tensor q, at_tensor k, at_tensor v, at_tensor out,
                       at_tensor lse, at_tensor mask, bool causal, double scale,
                       at_tensor gradient[3])
{
    const at_tensor in[] = { d_out, q, k, v, out, lse, mask };
    for (int i = 0; i < 3; i++) gradient[i] = nullptr;
    if (!ares_torch::ready(__func__, in, mask ? 7 : 6)) return ares_torch::code();
    try {
        auto m = checked(q->t, k->t, v->t, mask, causal);
        auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            d_out->t, q->t, k->t, v->t, out->t, lse->t, 0.0, causal, m, scale);
        gradient[0] = ares_torch::adopt(dq);
        gradient[1] = ares_torch::adopt(dk);
        gradient[2] = ares_torch::adopt(dv);
        return ARES_OK;
    } catch (...) {
        return ares_torch::failed(__func__, in, mask ? 7 : 6);
    }
}
