/* How much the ranks of a divided head tell each other; cpu/sample.c sends it. */
#include "cpu/sampled.h"
#include "ares/kernels.h"

size_t ares_sample_sent_bytes(int32_t vocab, int32_t parts, int32_t n_likely, bool filtered)
{
    size_t tokens = (size_t)ares_vocab_part_first(vocab, parts, 1),
           chunks = (tokens + ARES_VOCAB_CHUNK - 1) / ARES_VOCAB_CHUNK;
    return chunks * sizeof(chunk_result) + (size_t)n_likely * sizeof(likely) +
           (filtered ? chunks * ARES_VOCAB_CHUNK * sizeof(float) : 0);
}
