/*
 * libFuzzer entry for the math judges: truth NUL answer. Checks, besides that nothing crashes or
 * hangs: an answer equal to the truth is right in every mode, and the same call twice gives the
 * same verdict and takes the same work.
 */
#include <string.h>

#include "../../src/reward/math/math.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool judged(ares_view given, ares_view truth, math_mode mode, int64_t *steps)
{
    ares_arena arena = { 0 };
    math_budget budget = { .steps = MATH_STEPS };
    const char *by;
    bool same = math_equal(given, truth, mode, &budget, &arena, &by);
    ARES_ASSERT(same == (strcmp(by, "no") != 0));
    ARES_ASSERT(!(same && budget.exhausted && budget.steps > 0));
    *steps = budget.steps;
    ares_arena_fini(&arena);
    return same;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size ? (const char *)data : "";
    const char *split = size ? memchr(text, 0, size) : NULL;
    ares_view truth = { text, split ? (size_t)(split - text) : size },
              given = split ? (ares_view){ split + 1, size - truth.len - 1 } : truth;
    for (int mode = MATH_TARGET; mode <= MATH_REFERENCE; mode++) {
        int64_t once, twice;
        bool same = judged(given, truth, (math_mode)mode, &once);
        ARES_ASSERT(same == judged(given, truth, (math_mode)mode, &twice) && once == twice);
        if (ares_view_eq(given, truth) && truth.len <= MATH_MAX_BYTES) ARES_ASSERT(same);
        ares_arena arena = { 0 };
        math_budget budget = { .steps = MATH_STEPS };
        int64_t n;
        if (given.len <= MATH_MAX_BYTES)
            math_elements(math_normalize(given, (math_mode)mode, &budget, &arena), (math_mode)mode,
                          &arena, &n);
        ares_arena_fini(&arena);
    }
    return 0;
}
