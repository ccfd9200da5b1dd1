/* Where a response ends. The case's response is padded: tokens after its end token do not count. */
#include "golden.h"

#include "ares/model.h"

GOLDEN(aepo, response_mask)
{
    int64_t n, n_eos;
    const double *ids = golden_flat(g, golden_in(g, "ids"), &n),
                 *eos = golden_flat(g, golden_in(g, "eos"), &n_eos);
    double *mask = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *mask);
    ares_model_config c = { .n_eos = (int32_t)n_eos };
    for (int64_t i = 0; i < n_eos && i < ARES_MAX_EOS; i++) c.eos[i] = (int32_t)eos[i];
    bool ended = false;
    for (int64_t t = 0; t < n && !ended; t++) {
        mask[t] = 1;
        ended = ares_model_ends(&c, (int32_t)ids[t]);
    }
    golden_numbers(g, "mask", mask, n, g->expected);
}
