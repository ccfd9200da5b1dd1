/* The streams of CPython and numpy. */
#include "golden.h"

#include <stdio.h>
#include <string.h>

#include "ares/core.h"

static uint64_t seed_of(golden *g, const char *key)
{
    return (uint64_t)golden_number(g, key);
}

GOLDEN(agentic, cpython_random)
{
    const ares_json *calls = golden_in(g, "calls");
    ares_mt19937 s;
    double got[64];
    ares_py_seed(&s, seed_of(g, "seed"));
    for (int64_t i = 0; i < calls->count && i < ARES_COUNT(got); i++) {
        long long a, b;
        const char *call = calls->items[i].text.data;
        if (strcmp(call, "random()") == 0) got[i] = ares_py_random(&s);
        else if (sscanf(call, "randint(%lld,%lld)", &a, &b) == 2)
            got[i] = (double)ares_py_randint(&s, a, b);
        else if (sscanf(call, "choice_index(n=%lld)", &a) == 1)
            got[i] = (double)ares_py_below(&s, (uint64_t)a);
        else golden_unknown(g);
    }
    golden_numbers(g, "draws", got, calls->count, g->expected);
}

GOLDEN(agentic, numpy_legacy_randint)
{
    int64_t count;
    double *n = golden_flat(g, golden_in(g, "n"), &count);
    ares_mt19937 s;
    ares_np_seed(&s, (uint32_t)seed_of(g, "seed"));
    for (int64_t i = 0; i < count; i++) n[i] = ares_np_below(&s, (uint32_t)n[i]);
    golden_numbers(g, "draws", n, count, g->expected);
}

static void check_u64(golden *g, const char *what, uint64_t got, const ares_json *want)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)got);
    golden_text(g, what, ares_view_of(text), want);
}

GOLDEN(agentic, numpy_seedsequence)
{
    uint32_t pool[4], entropy = (uint32_t)golden_number(g, "entropy");
    uint64_t state[4];
    const ares_json *want = golden_want(g, "state_u64x4_as_decimal_strings"),
                    *seeded = golden_want(g, "pcg64_after_seeding_as_decimal_strings");
    ares_pcg64 s;
    ares_seed_sequence_pool(&entropy, 1, pool);
    ares_seed_sequence_state(pool, state, 4);
    ares_pcg64_seed(&s, entropy);
    for (int i = 0; i < 4; i++) {
        golden_equal(g, "pool", pool[i], &golden_want(g, "pool_u32")->items[i]);
        check_u64(g, "state", state[i], &want->items[i]);
    }
    check_u64(g, "state_hi", (uint64_t)(s.state >> 64), ares_json_get(seeded, "state_hi"));
    check_u64(g, "state_lo", (uint64_t)s.state, ares_json_get(seeded, "state_lo"));
    check_u64(g, "inc_hi", (uint64_t)(s.increment >> 64), ares_json_get(seeded, "inc_hi"));
    check_u64(g, "inc_lo", (uint64_t)s.increment, ares_json_get(seeded, "inc_lo"));
}

static void check_pcg64(golden *g, const ares_json *ops, int64_t count, uint32_t n)
{
    ares_pcg64 s;
    double got[64];
    ares_pcg64_seed(&s, seed_of(g, "seed"));
    for (int64_t i = 0; i < count && i < ARES_COUNT(got); i++) {
        uint32_t below = n;
        if (ops && sscanf(ops->items[i].text.data, "integers(%u)", &below) != 1) below = 0;
        got[i] = below ? ares_pcg64_below(&s, below) : ares_pcg64_random(&s);
    }
    golden_numbers(g, "draws", got, count, g->expected);
}

GOLDEN(agentic, numpy_pcg64_random)
{
    check_pcg64(g, NULL, (int64_t)golden_number(g, "count"), 0);
}

GOLDEN(agentic, numpy_pcg64_integers)
{
    check_pcg64(g, NULL, (int64_t)golden_number(g, "count"), (uint32_t)golden_number(g, "n"));
}

GOLDEN(agentic, numpy_pcg64_mixed)
{
    const ares_json *ops = golden_in(g, "ops");
    check_pcg64(g, ops, ops->count, 0);
}
