/*
 * `random`: 0 or 1 by chance, a control that no training can learn from. The outcome is a function
 * of the texts and the seed alone.
 */
#include <string.h>

#include "ares/grade.h"

#define RANDOM_OPTIONS(X)                                   \
    X(i64, seed, "seed", "1", "[0,)", "seed of the scores") \
    X(f64, p, "p", "0.5", "[0,1]", "probability of a 1")
ARES_OPTION_STRUCT(random_options, RANDOM_OPTIONS);
static ARES_OPTION_TABLE(random_table, random_options, RANDOM_OPTIONS);

static ares_rng_key absorb(ares_rng_key key, ares_view t)
{
    uint64_t block[2];
    for (size_t at = 0; at < t.len; at += sizeof block) {
        memset(block, 0, sizeof block);
        memcpy(block, t.data + at, ARES_MIN(t.len - at, sizeof block));
        key = ares_rng_sub(key, block[0], block[1]);
    }
    return ares_rng_sub(key, t.len, 0); /* the length keeps ("a", "") and ("", "a") apart */
}

static int draw(const ares_verify_in *in, ares_verify_out *out)
{
    const random_options *o = in->options;
    ares_rng_key key =
        absorb(absorb(ares_rng_root((uint64_t)o->seed, ARES_RNG_USER), in->prompt), in->response);
    out->score = ares_rng_uniform(key, 0) < o->p;
    return ARES_OK;
}

const ares_verifier ares_verifier_random = {
    .name = "random",
    .doc = "0 or 1 by chance, the same for the same prompt and response",
    .options = random_table,
    .options_size = sizeof(random_options),
    .verify = draw,
    .any_truth = true,
};
