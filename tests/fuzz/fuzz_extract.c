/*
 * libFuzzer entry for the code that finds an answer in a response: every extraction, and the
 * verifiers that compare texts. Checks, besides that nothing crashes: an extracted answer is a part
 * of the text and its braces balance; the normal form of a plain number is its own normal form.
 */
#include <math.h>
#include <string.h>

#include "../../src/reward/math/math.h"
#include "../../src/reward/verifier.h"
#include "ares/grade.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(ares_view text, ares_view part)
{
    ARES_ASSERT(!part.data ||
                (part.data >= text.data && part.data + part.len <= text.data + text.len));
}

static void run(const char *verifier, ares_view response, ares_view truth)
{
    const ares_verifier *v = ares_verifier_find(verifier);
    ares_verify_in in = {
        .response = response, .ground_truth = truth, .stopped = true, .response_tokens = -1
    };
    ares_verify_out out = { .accuracy = NAN };
    ares_arena arena = { 0 };
    ares_str object = { 0 };
    const ares_json *details;
    ARES_ASSERT(v && v->verify(&in, &out) == ARES_OK);
    ARES_ASSERT(out.accuracy == 0 || out.accuracy == 1);
    ares_str_addf(&object, "{%s}", out.details.data ? out.details.data : "");
    ARES_ASSERT(ares_json_parse(&arena, ares_str_view(&object), "details", &details) == ARES_OK);
    ares_str_fini(&object);
    ares_str_fini(&out.details);
    ares_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const verifiers[] = { "math", "deepscaler", "dapo", "gsm8k",
                                             "math_hendrycks" };
    const char *text = size ? (const char *)data : "";
    /* label NUL response; without NUL one text for both */
    const char *split = size ? memchr(text, 0, size) : NULL;
    ares_view all = { text, size },
              truth = split ? (ares_view){ text, (size_t)(split - text) } : all;
    ares_view response = split ? (ares_view){ split + 1, size - truth.len - 1 } : all;
    ares_arena arena = { 0 };
    for (int flags = 0; flags < 4; flags++) inside(response, verifier_last_boxed(response, flags));
    inside(response, math_after_think(response));
    inside(response, math_gsm8k_flexible(response));
    inside(response, math_dapo_answer(response));
    ares_view number = math_gsm8k_strict(response, &arena),
              plain = math_strip_thousands(response, &arena);
    for (size_t i = 0; i < number.len; i++) ARES_ASSERT(number.data[i] != ',');
    ARES_ASSERT(ares_view_eq(plain, math_strip_thousands(plain, &arena)));
    for (int i = 0; i < ARES_COUNT(verifiers); i++) run(verifiers[i], response, truth);
    ares_arena_fini(&arena);
    return 0;
}
