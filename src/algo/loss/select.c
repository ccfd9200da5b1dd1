#include "select.h"

#include <string.h>

int loss_select(const uint64_t *key, int64_t n, int64_t k, ares_world *w, uint64_t *threshold)
{
    int64_t total = n;
    ARES_TRY(ares_world_sum_i64(w, &total, 1));
    *threshold = UINT64_MAX;
    if (total <= k) return ARES_OK;
    uint64_t prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        int64_t count[256] = { 0 };
        for (int64_t i = 0; i < n; i++)
            if (shift == 56 || key[i] >> (shift + 8) == prefix) count[key[i] >> shift & 255]++;
        ARES_TRY(ares_world_sum_i64(w, count, 256));
        uint64_t digit = 0;
        while (k > count[digit]) k -= count[digit++];
        prefix = prefix << 8 | digit;
    }
    *threshold = prefix;
    return ARES_OK;
}

uint64_t loss_ordered(double x)
{
    uint64_t bits;
    x += 0.0;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

uint64_t loss_lot(const ares_loss_args *a, int64_t row, int64_t position)
{
    const ares_sample *s = a->samples ? &a->samples[a->row + row] : NULL;
    ares_rng_key key = ares_rng_sub(a->key, a->update, s ? (uint64_t)s->draw : 0);
    return ares_rng_u64(ares_rng_sub(key, s ? (uint64_t)s->index : (uint64_t)row, 0),
                        (uint64_t)position);
}
