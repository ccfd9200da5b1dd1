/* The function tables of a CUDA device, by the type of activations, which the program asks for by
 * name (kernels/device.c). */
#include "device.cuh"

static const ares_kernels table = {
    .name = "cuda",
    .layout = ARES_ROWS,
    .act = ARES_F32,
    .lists_keys = false,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .copy_in = cuda_copy_in,
    .alloc_host = cuda_alloc_host,
    .release_host = cuda_release_host,
    .bring = cuda_bring,
    .brought = cuda_brought,
    .store = cuda_store,
    .copy_out = cuda_copy_out,
    .copy = cuda_copy,
    .copy_blocks = cuda_copy_blocks,
    .zero = cuda_zero,
    .convert = cuda_convert,
    .sync = cuda_sync,
    .linear = cuda_linear,
    .linear_backward = cuda_linear_backward,
    .embedding = cuda_embedding,
    .embedding_backward = cuda_embedding_backward,
    .rms_norm = cuda_rms_norm,
    .rms_norm_backward = cuda_rms_norm_backward,
    .layer_norm = cuda_layer_norm,
    .layer_norm_backward = cuda_layer_norm_backward,
    .activation = cuda_activation,
    .activation_backward = cuda_activation_backward,
    .rope = cuda_rope,
    .silu_mul = cuda_silu_mul,
    .silu_mul_backward = cuda_silu_mul_backward,
    .store_kv = NULL, /* rope_store does it */
    .attention = cuda_attention,
    .attention_backward = cuda_attention_backward,
    .head = cuda_head,
    .head_backward = cuda_head_backward,
    .head_fused = cuda_head_fused,
    .sample = cuda_sample,
    .adamw = cuda_adamw,
    .square_sums = cuda_square_sums,
    .add = cuda_add,
    .rope_store = cuda_rope_store,
    .advance = cuda_advance,
    .gather_kv = cuda_gather_kv,
    .sum_keys = cuda_sum_keys,
    .fetch = cuda_fetch,
    .fetched = cuda_fetched,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_refusal = cuda_graph_refusal,
    .graph_launch = cuda_graph_launch,
    .graph_free = cuda_graph_free,
};

extern "C" {
const ares_kernels *ares_cuda_kernels(ares_dtype act);
}

/* The same functions: each reads the type from its device (cuda_context). */
static ares_kernels with_bf16(ares_kernels k)
{
    k.name = "cuda bf16";
    k.act = ARES_BF16;
    return k;
}

const ares_kernels *ares_cuda_kernels(ares_dtype act)
{
    static const ares_kernels of_bf16 = with_bf16(table);
    return act == ARES_BF16 ? &of_bf16 : &table;
}
