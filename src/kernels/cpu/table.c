/* The function table of one instruction set; device.c chooses among them. */
#include "isa.h"

#define NAME_TEXT(x) #x
#define NAME_OF(isa) "cpu " NAME_TEXT(isa)

const ares_kernels ARES_K(kernels_table) = {
    .name = NAME_OF(ARES_ISA),
    .layout = ARES_PANEL32,
    .act = ARES_F32,
    .rows_move = true,
    .alloc = kernels_host_alloc,
    .release = kernels_host_release,
    /* device and host memory are the same, so one function serves every copy */
    .copy_in = kernels_host_copy,
    .alloc_host = kernels_host_alloc,
    .release_host = kernels_host_release,
    .bring = kernels_host_copy,
    .store = kernels_host_copy,
    .copy_out = kernels_host_copy,
    .copy = kernels_host_copy,
    .copy_blocks = kernels_host_copy_blocks,
    .zero = kernels_host_zero,
    .convert = kernels_host_convert,
    .sync = kernels_host_sync,
    .linear = ARES_K(linear),
    .linear_backward = ARES_K(linear_backward),
    .embedding = ARES_K(embedding),
    .embedding_backward = ARES_K(embedding_backward),
    .rms_norm = ARES_K(rms_norm),
    .rms_norm_backward = ARES_K(rms_norm_backward),
    .layer_norm = ARES_K(layer_norm),
    .layer_norm_backward = ARES_K(layer_norm_backward),
    .activation = ARES_K(activation),
    .activation_backward = ARES_K(activation_backward),
    .rope = ARES_K(rope),
    .gate_mul = ARES_K(gate_mul),
    .gate_mul_backward = ARES_K(gate_mul_backward),
    .store_kv = ARES_K(store_kv),
    .attention = ARES_K(attention),
    .attention_backward = ARES_K(attention_backward),
    .head = ARES_K(head),
    .head_backward = ARES_K(head_backward),
    .head_fused = ARES_K(head_fused),
    .sample = ARES_K(sample),
    .adamw = ARES_K(adamw),
    .square_sums = ARES_K(square_sums),
    .add = ARES_K(add),
};
