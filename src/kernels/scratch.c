/* What the CPU's kernels take beside a device's memory. */
#include "scratch.h"

size_t ares_kernels_scratch_bytes(const ares_scratch_args *a)
{
    int64_t chunks = ((int64_t)a->vocab + ARES_VOCAB_CHUNK - 1) / ARES_VOCAB_CHUNK,
            group = a->n_kv_heads ? a->n_heads / a->n_kv_heads : 0,
            sampled = ARES_MIN(a->sampled, SAMPLED_ROWS),
            filtered = a->filters ? ARES_MIN(sampled, scratch_filtered(a->vocab)) : 0;
    size_t shared = 0, own = 0;
    if (a->rows > 0 && chunks) {
        size_t back = !a->trained ? 0
                      : a->fused  ? scratch_head_fused(a->rows, chunks)
                                  : scratch_head_backward(a->rows, chunks);
        shared = ARES_MAX(scratch_head(a->rows, chunks, a->ref), back);
        own = scratch_vocab_task(ARES_MIN(a->rows, VOCAB_ROWS), a->ref);
    }
    if (sampled > 0) {
        size_t lists = (size_t)(a->n_likely ? a->threads * sampled : 0);
        shared = ARES_MAX(shared, scratch_sample(sampled, chunks, filtered, a->vocab) +
                                      scratch_likely((int64_t)lists, a->n_likely));
        own = ARES_MAX(own, scratch_vocab_task(ARES_MIN(sampled, VOCAB_ROWS), false));
        if (a->filters) own = ARES_MAX(own, (size_t)a->vocab * sizeof(candidate));
    }
    shared = ARES_MAX(shared, scratch_attention(a->blocks, a->n_kv_heads, a->head_dim));
    if (a->trained) {
        own = ARES_MAX(own, scratch_panel(a->widest));
        own = ARES_MAX(own, scratch_attention_back(group, a->longest, a->head_dim));
    }
    return shared + (size_t)a->threads * own;
}
