/*
 * at: libtorch behind a C header. The oracle of tests, and what the aten table of kernels
 * (kernels/aten) computes with. It lies in libares_torch.so, which the program opens only when a
 * run asks for that table (trainer.kernels) or computes on a card.
 *
 *   at_scope *s = at_scope_open("my_loss");
 *   at_tensor ratio = at_exp(at_sub(log_prob, old));
 *   at_tensor loss = at_neg(at_mean(at_mul(ratio, advantage)));
 *   ARES_TRY(at_scope_close(s, &loss));
 *
 * Every tensor belongs to the innermost scope of the thread that made it. Closing the scope frees
 * them all except `out`, which passes to the enclosing scope. After an operation has failed, the
 * next ones of its scope do nothing and give NULL, so one check at the close is enough. It names
 * the first operation that failed, with the shapes, in one line:
 *
 *   torch: my_loss: at_sub: The size of tensor a (4) must match the size of tensor b (3) at
 *       non-singleton dimension 1 (f32 [2, 4], f32 [2, 3])
 *
 * Codes: ARES_EUNSUPPORTED, ARES_ELIMIT (device memory), otherwise ARES_EDEVICE. No exception
 * crosses this header. An operation whose name ends in _ or _out writes into its first operand and
 * returns it. libtorch computes on the calling thread only.
 */
#ifndef ARES_AT_H
#define ARES_AT_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct at_tensor_data *at_tensor;
typedef struct at_scope at_scope;
typedef enum { AT_F32, AT_F64, AT_BF16, AT_F16, AT_I32, AT_I64, AT_U8, AT_BOOL } at_dtype;

/* Sizes, strides and lists of dimensions: at_reshape(x, AT_DIMS(2, -1)). */
#define AT_DIMS(...) \
    (const int64_t[]){ __VA_ARGS__ }, ARES_COUNT(((const int64_t[]){ __VA_ARGS__ }))
#define AT_SCALAR NULL, 0

/* ---------------- scopes and lifetime (torch/at.cpp) */
at_scope *at_scope_open(const char *name); /* name must outlive the scope */
/*
 * As at_scope_open; until the scope is closed, operations of this thread keep nothing for autograd,
 * which makes them cheaper (c10::InferenceMode). Tensors made in it cannot enter a graph later.
 */
at_scope *at_scope_open_no_grad(const char *name);
/*
 * The same on a CUDA device, whose operations go to this stream (a cudaStream_t) until the scope is
 * closed. Needs at_cuda_open.
 */
at_scope *at_scope_open_stream(const char *name, int device, void *stream);
/*
 * out may be NULL; after a failure *out is NULL. Scopes that were opened inside this one and are
 * still open are closed too. A tensor taken out with at_own stays out.
 */
int at_scope_close(at_scope *s, at_tensor *out);
/*
 * Where an operation of the scope finds too little memory on the device, give_back(ctx) is called
 * to free some; if it returns true, the operation is done once more. That adds nothing twice,
 * because libtorch takes all memory that it needs before it writes to existing tensors. at_call,
 * at_grad and functions that read a tensor are not repeated.
 */
void at_scope_retry(at_scope *s, bool (*give_back)(void *ctx), void *ctx);
/* whether an operation of the innermost scope has failed, for loops that may stop early */
bool at_scope_failed(void);
/* takes t out of its scope, for a struct; release with at_free */
at_tensor at_own(at_tensor t);
void at_free(at_tensor t);   /* of an owned tensor; NULL is fine */
int64_t at_live_count(void); /* tensor handles of this process, in scopes and owned */

/* ------------------------------------------------------------------ process */
const char *at_version(void);       /* "2.11.0" */
void at_manual_seed(uint64_t seed); /* of libtorch's own generators */
/*
 * Loads libtorch's CUDA libraries and looks for a device; a failure says what is missing. Then sets
 * what libtorch may do on it: no TF32, no sums in 16 bits, the same bits in a repeated run. On a
 * machine without a card it loads what there is and fails.
 */
int at_cuda_open(void);
/*
 * The first of these operators ("aten::mm.out") that has no kernel for CUDA devices; NULL: all have
 * one. Before at_cuda_open no operator has one.
 */
const char *at_cuda_lacks(const char *const *operators, int n);
/* Gives back to the driver the memory of devices that libtorch keeps for later. */
void at_cuda_trim(void);

/* ---------------- making, copying, looking (torch/at.cpp) */
/* Borrows contiguous host memory, which must live as long as the tensor and its views. */
at_tensor at_from_blob(void *data, at_dtype dtype, const int64_t *sizes, int n);
/*
 * The same with strides, in elements. device: the index of the CUDA device whose memory it is, or
 * -1 for host memory.
 */
at_tensor at_view(const void *data, at_dtype dtype, int device, const int64_t *sizes,
                  const int64_t *strides, int n);
at_tensor at_zeros(at_dtype dtype, const int64_t *sizes, int n);
/* where `like` lies */
at_tensor at_zeros_beside(at_tensor like, at_dtype dtype, const int64_t *sizes, int n);
at_tensor at_empty_beside(at_tensor like, at_dtype dtype, const int64_t *sizes, int n);
at_tensor at_full(double value, at_dtype dtype, const int64_t *sizes, int n);
at_tensor at_arange(int64_t end, at_dtype dtype);
at_tensor at_randn(at_dtype dtype, const int64_t *sizes, int n);
at_tensor at_clone(at_tensor t);
at_tensor at_detach(at_tensor t); /* the same memory, outside the graph */
at_tensor at_copy_(at_tensor to, at_tensor from);
at_tensor at_to(at_tensor t, at_dtype dtype);
/* "cpu", "cuda", "cuda:1"; cuda needs at_cuda_open */
at_tensor at_to_device(at_tensor t, const char *device);
/*
 * Converts the elements to dtype and copies them, in row-major order, to host memory for at_numel
 * elements. A failure counts as one of the scope.
 */
int at_read(at_tensor t, at_dtype dtype, void *out);
double at_item(at_tensor t); /* of one element; NaN after a failure */
void *at_data(at_tensor t);  /* NULL after a failure; the next four give 0 then */
int at_ndim(at_tensor t);
int64_t at_size(at_tensor t, int dim); /* negative dims count from the end */
int64_t at_numel(at_tensor t);
bool at_is_contiguous(at_tensor t);
at_dtype at_dtype_of(at_tensor t); /* AT_F32 after a failure */

/* ------------------------------------------------------------------ views (torch/at_ops.cpp) */
at_tensor at_reshape(at_tensor t, const int64_t *sizes, int n);
at_tensor at_expand(at_tensor t, const int64_t *sizes, int n);
at_tensor at_permute(at_tensor t, const int64_t *dims, int n);
at_tensor at_transpose(at_tensor t, int a, int b);
at_tensor at_unsqueeze(at_tensor t, int dim);
at_tensor at_squeeze(at_tensor t, int dim);
at_tensor at_select(at_tensor t, int dim, int64_t index);
at_tensor at_narrow(at_tensor t, int dim, int64_t start, int64_t length);
at_tensor at_cat(const at_tensor *t, int n, int dim);

/* ------------------------------------------------------------------ elementwise, broadcasting */
at_tensor at_add(at_tensor a, at_tensor b);
at_tensor at_sub(at_tensor a, at_tensor b);
at_tensor at_mul(at_tensor a, at_tensor b);
at_tensor at_div(at_tensor a, at_tensor b);
at_tensor at_minimum(at_tensor a, at_tensor b);
at_tensor at_maximum(at_tensor a, at_tensor b);
at_tensor at_lt(at_tensor a, at_tensor b); /* AT_BOOL */
at_tensor at_where(at_tensor condition, at_tensor a, at_tensor b);
at_tensor at_add_s(at_tensor a, double b);
at_tensor at_mul_s(at_tensor a, double b);
at_tensor at_pow_s(at_tensor a, double exponent);
at_tensor at_clamp(at_tensor t, double low, double high);
at_tensor at_neg(at_tensor t);
at_tensor at_abs(at_tensor t);
at_tensor at_exp(at_tensor t);
at_tensor at_log(at_tensor t);
at_tensor at_sqrt(at_tensor t);
at_tensor at_rsqrt(at_tensor t);
at_tensor at_sigmoid(at_tensor t);
at_tensor at_silu(at_tensor t);
at_tensor at_gelu(at_tensor t); /* x Phi(x), not its approximation by tanh */
at_tensor at_masked_fill(at_tensor t, at_tensor mask, double value);
at_tensor at_add_(at_tensor a, at_tensor b);
at_tensor at_sub_(at_tensor a, at_tensor b);
at_tensor at_mul_(at_tensor a, at_tensor b);
at_tensor at_mul_s_(at_tensor a, double b);
/* out = a b, out = exp(t): out has the shape of the result and may be an operand. */
at_tensor at_mul_out(at_tensor out, at_tensor a, at_tensor b);
at_tensor at_exp_out(at_tensor out, at_tensor t);

/* ------------------------------------------------------------------ reductions */
at_tensor at_sum(at_tensor t); /* of all elements, a scalar */
at_tensor at_mean(at_tensor t);
at_tensor at_sum_dim(at_tensor t, int dim, bool keep);
at_tensor at_sum_dim_out(at_tensor out, at_tensor t, int dim); /* in the type of out */
at_tensor at_mean_dim(at_tensor t, int dim, bool keep);
at_tensor at_max_dim(at_tensor t, int dim, bool keep);
at_tensor at_argmax(at_tensor t, int dim);

/* ---------------- linear algebra, neural network */
at_tensor at_matmul(at_tensor a, at_tensor b);
/*
 * out = a b, and out = self + a b: matrices; self may be out, or a row that is added to each. Each
 * may be f32 or bf16; the sums are f32, rounded once into out.
 */
at_tensor at_mm_out(at_tensor out, at_tensor a, at_tensor b);
at_tensor at_addmm_out(at_tensor out, at_tensor self, at_tensor a, at_tensor b);
/* x Wt + bias; bias may be NULL */
at_tensor at_linear(at_tensor x, at_tensor weight, at_tensor bias);
at_tensor at_embedding(at_tensor weight, at_tensor ids);
at_tensor at_rms_norm(at_tensor x, at_tensor weight, double eps); /* over the last dim */
at_tensor at_softmax(at_tensor t, int dim);
at_tensor at_log_softmax(at_tensor t, int dim);
at_tensor at_log_softmax_out(at_tensor out, at_tensor t, int dim); /* out may be t */
/* d silu(x) / dx times gradient, and of gelu; out may be an operand */
at_tensor at_silu_backward_out(at_tensor out, at_tensor gradient, at_tensor x);
at_tensor at_gelu_backward_out(at_tensor out, at_tensor gradient, at_tensor x);
at_tensor at_gather(at_tensor t, int dim, at_tensor index);
at_tensor at_index_select(at_tensor t, int dim, at_tensor index);
at_tensor at_index_add(at_tensor t, int dim, at_tensor index, at_tensor source);
at_tensor at_index_add_(at_tensor t, int dim, at_tensor index, at_tensor source);
at_tensor at_index_copy_(at_tensor t, int dim, at_tensor index, at_tensor source); /* AT_I64 */
at_tensor at_scatter_add_(at_tensor t, int dim, at_tensor index, at_tensor source);
/*
 * Attention. q [..., H, M, D], k and v [..., Hk, N, D], where Hk divides H. mask broadcasts to
 * [..., H, M, N]; a boolean mask is true where a key is seen, another is added to the scores; NULL:
 * none.
 */
at_tensor at_sdpa(at_tensor q, at_tensor k, at_tensor v, at_tensor mask, bool causal, double scale);
/*
 * The same on the CPU with the log of the softmax's denominator: q [B, H, M, D], k and v
 * [B, Hk, N, D], the last dimension dense, M and N at least 1. mask [M, N] or [B, 1, 1, N] is added
 * to the scores; NULL: none. lse [B, H, M].
 */
at_tensor at_attend(at_tensor q, at_tensor k, at_tensor v, at_tensor mask, double scale,
                    at_tensor *lse);
/*
 * Attention of packed sequences: q [T, H, D], k and v [Tk, Hk, D], where Hk divides H, the last
 * dimension dense. Sequence s owns rows [q_start[s], q_start[s+1]) of q and [k_start[s],
 * k_start[s+1]) of k and v (AT_I32 [n + 1] where q lies), no more than most_q and most_k, and has
 * at least as many keys as rows, or none: then its rows of out are 0. causal counts from the last
 * key; a window > 0 lets a query see that many keys, its own included. out is dense, lse [H, T].
 * The backward writes the gradients of q, k and v. On a CUDA device it is FlashAttention-2, for
 * bf16 and f16 and for D a multiple of 8 and at most 256.
 */
typedef struct at_varlen {
    at_tensor q_start, k_start;
    int64_t most_q, most_k;
    bool causal;
    int64_t window;
    double scale;
} at_varlen;
at_tensor at_attend_varlen(at_tensor q, at_tensor k, at_tensor v, const at_varlen *p,
                           at_tensor *lse);
int at_attend_varlen_backward(at_tensor d_out, at_tensor q, at_tensor k, at_tensor v, at_tensor out,
                              at_tensor lse, const at_varlen *p, at_tensor gradient[3]);

/* ------------------------------------------------------------------ autograd (torch/at.cpp) */
at_tensor at_requires_grad_(at_tensor t, bool on); /* of a leaf: a value to differentiate by */
/*
 * Writes d output / d inputs[i] to grads[i]. grad_output is NULL for a scalar output. An input that
 * the output does not depend on gets zeros. keep: the graph stays for another call.
 */
int at_grad(at_tensor output, at_tensor grad_output, const at_tensor *inputs, int n, bool keep,
            at_tensor *grads);
bool at_set_grad_enabled(bool on); /* for this thread; returns the value before */

/* ---------------- any other operator (torch/at_ops.cpp)
 *   at_value in[] = { AT_T(x), AT_INT(2), AT_FLAG(true) }, out;
 *   at_call("aten::cumsum", "", in, 3, &out, 1);
 * Arguments in the order of the operator's schema; those left out at the end have its defaults.
 * Tensors among the out values belong to the scope. An operator that writes into its TENSORS
 * arguments has no out values: n_out 0.
 */
typedef enum {
    AT_V_NONE,
    AT_V_TENSOR,
    AT_V_TENSORS,
    AT_V_INT,
    AT_V_DOUBLE,
    AT_V_BOOL,
    AT_V_INTS,
    AT_V_STRING
} at_value_kind;
typedef struct at_value {
    at_value_kind kind;
    int n; /* TENSORS, INTS */
    union {
        at_tensor tensor;
        const at_tensor *tensors; /* arguments only */
        int64_t integer;
        double number;
        bool flag;
        const int64_t *ints; /* arguments only */
        const char *string;  /* arguments only */
    } as;
} at_value;
#define AT_NONE ((at_value){ .kind = AT_V_NONE })
#define AT_T(t) ((at_value){ .kind = AT_V_TENSOR, .as.tensor = (t) })
#define AT_TS(t, count) ((at_value){ .kind = AT_V_TENSORS, .n = (count), .as.tensors = (t) })
#define AT_INT(x) ((at_value){ .kind = AT_V_INT, .as.integer = (x) })
#define AT_DOUBLE(x) ((at_value){ .kind = AT_V_DOUBLE, .as.number = (x) })
#define AT_FLAG(x) ((at_value){ .kind = AT_V_BOOL, .as.flag = (x) })
#define AT_INTS(list, count) ((at_value){ .kind = AT_V_INTS, .n = (count), .as.ints = (list) })
#define AT_STRING(s) ((at_value){ .kind = AT_V_STRING, .as.string = (s) })
int at_call(const char *name, const char *overload, const at_value *in, int n, at_value *out,
            int n_out);

#ifdef __cplusplus
}
#endif
#endif
