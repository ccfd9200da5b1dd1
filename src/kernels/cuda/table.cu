/* The function table of a CUDA device, which the program asks for by name (kernels/device.c). */
#include "device.cuh"

static const ares_kernels table = {
    .name = "cuda",
    .layout = ARES_ROWS,
    .act = ARES_F32,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .convert = cuda_convert,
    .sync = cuda_sync,
    .linear = cuda_linear,
    .linear_backward = cuda_linear_backward,
    .embedding = cuda_embedding,
    .embedding_backward = cuda_embedding_backward,
    .rms_norm = cuda_rms_norm,
    .rms_norm_backward = cuda_rms_norm_backward,
    .rope = cuda_rope,
    .silu_mul = cuda_silu_mul,
    .silu_mul_backward = cuda_silu_mul_backward,
    .store_kv = cuda_store_kv,
    .attention = cuda_attention,
    .attention_backward = cuda_attention_backward,
    .head = cuda_head,
    .head_backward = cuda_head_backward,
    .head_fused = cuda_head_fused,
    .sample = cuda_sample,
    .adamw = cuda_adamw,
    .square_sums = cuda_square_sums,
    .add = cuda_add,
};

extern "C" {
const ares_kernels *ares_cuda_kernels(void);
}

const ares_kernels *ares_cuda_kernels(void)
{
    return &table;
}
