/*
 * The random streams of CPython's `random` and of numpy, number for number, for data and
 * environments that were defined with them. Everything new uses ares_rng_* of core.h.
 *
 *   py      random.seed(n), random(), getrandbits, randint, choice, shuffle     (MT19937)
 *   np      numpy.random.seed(n), randint: the legacy generator                 (MT19937)
 *   pcg64   numpy.random.default_rng(n), as gymnasium uses it                   (PCG64)
 *
 * MT19937: Matsumoto and Nishimura 1998. PCG64: O'Neill 2014 (XSL-RR 128/64). A stream is plain
 * memory: a copy goes on from the same place.
 */
#ifndef ARES_CORE_STREAMS_H
#define ARES_CORE_STREAMS_H

#include <stdint.h>

enum { ARES_MT19937_WORDS = 624 };
typedef struct ares_mt19937 {
    uint32_t word[ARES_MT19937_WORDS];
    int next; /* the word that comes next; ARES_MT19937_WORDS: none is left */
} ares_mt19937;

/* ---------------- CPython's random */
void ares_py_seed(ares_mt19937 *s, uint64_t seed);
double ares_py_random(ares_mt19937 *s);              /* [0, 1), 53 bits */
uint64_t ares_py_bits(ares_mt19937 *s, int bits);    /* getrandbits, 1 to 64 */
uint64_t ares_py_below(ares_mt19937 *s, uint64_t n); /* [0, n), n >= 1: the index of choice */
int64_t ares_py_randint(ares_mt19937 *s, int64_t least, int64_t most); /* ends included */
void ares_py_shuffle(ares_mt19937 *s, int64_t *items, int64_t n);

/* ---------------- numpy's legacy generator */
void ares_np_seed(ares_mt19937 *s, uint32_t seed);
uint32_t ares_np_below(ares_mt19937 *s, uint32_t n); /* randint(n), n >= 1 */

/* ---------------- numpy's default_rng */
__extension__ typedef unsigned __int128 ares_u128;
typedef struct ares_pcg64 {
    ares_u128 state, increment;
    uint32_t half; /* the high half of a draw whose low half integers() gave; */
    int has_half;  /* 1: it comes next. Doubles do not touch it */
} ares_pcg64;
/* SeedSequence: 32-bit words of entropy -> its pool, and n words of state made of the pool */
void ares_seed_sequence_pool(const uint32_t *entropy, int n, uint32_t pool[4]);
void ares_seed_sequence_state(const uint32_t pool[4], uint64_t *state, int n);
void ares_pcg64_seed(ares_pcg64 *s, uint64_t seed);
/* default_rng([a, b]) */
void ares_pcg64_seed_pair(ares_pcg64 *s, uint64_t a, uint64_t b);
double ares_pcg64_random(ares_pcg64 *s);              /* [0, 1), 53 bits */
uint32_t ares_pcg64_below(ares_pcg64 *s, uint32_t n); /* integers(n), n >= 1 */

#endif
