/*
 * The streams of CPython and numpy. Their sources decide every detail here: Modules/_randommodule.c
 * and Lib/random.py; numpy/random's mt19937.c, distributions.c, pcg64.h and bit_generator.pyx.
 */
#include "ares/core.h"

/* ---------------- MT19937 */
/* init_genrand of mt19937ar.c */
static void seed_with_word(ares_mt19937 *s, uint32_t seed)
{
    s->word[0] = seed;
    for (uint32_t i = 1; i < ARES_MT19937_WORDS; i++)
        s->word[i] = 1812433253u * (s->word[i - 1] ^ (s->word[i - 1] >> 30)) + i;
    s->next = ARES_MT19937_WORDS;
}

/* One step of the recurrence, from the upper bit of a word and the rest of the next. */
static uint32_t twisted(uint32_t high, uint32_t low, uint32_t far)
{
    uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return far ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
}

static uint32_t next_word(ares_mt19937 *s)
{
    if (s->next == ARES_MT19937_WORDS) { /* all words are used: makes the next ones */
        enum { N = ARES_MT19937_WORDS, M = 397 };
        uint32_t *mt = s->word;
        for (int k = 0; k < N - M; k++) mt[k] = twisted(mt[k], mt[k + 1], mt[k + M]);
        for (int k = N - M; k < N - 1; k++) mt[k] = twisted(mt[k], mt[k + 1], mt[k + M - N]);
        mt[N - 1] = twisted(mt[N - 1], mt[0], mt[M - 1]);
        s->next = 0;
    }
    uint32_t y = s->word[s->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* ---------------- CPython */
void ares_py_seed(ares_mt19937 *s, uint64_t seed)
{
    /* init_by_array of mt19937ar.c with the words of the seed, the lower one first */
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t n = key[1] ? 2 : 1;
    uint32_t *mt = s->word, i = 1, j = 0;
    seed_with_word(s, 19650218u);
    for (uint32_t k = ARES_MT19937_WORDS; k; k--) { /* as many turns as words: n is smaller */
        mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1664525u)) + key[j] + j;
        if (++i == ARES_MT19937_WORDS) {
            mt[0] = mt[ARES_MT19937_WORDS - 1];
            i = 1;
        }
        if (++j == n) j = 0;
    }
    for (uint32_t k = ARES_MT19937_WORDS - 1; k; k--) {
        mt[i] = (mt[i] ^ ((mt[i - 1] ^ (mt[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == ARES_MT19937_WORDS) {
            mt[0] = mt[ARES_MT19937_WORDS - 1];
            i = 1;
        }
    }
    mt[0] = 0x80000000u;
}

/* random(): 27 and 26 bits of two words. */
double ares_py_random(ares_mt19937 *s)
{
    uint32_t a = next_word(s) >> 5, b = next_word(s) >> 6; /* 53 bits */
    return ((double)a * 67108864.0 + (double)b) / 9007199254740992.0;
}

/* getrandbits(bits): the upper bits of a word; of two words the second is the high one. */
uint64_t ares_py_bits(ares_mt19937 *s, int bits)
{
    ARES_ASSERT(bits >= 1 && bits <= 64);
    if (bits <= 32) return next_word(s) >> (32 - bits);
    uint64_t low = next_word(s);
    return low | (uint64_t)(next_word(s) >> (64 - bits)) << 32;
}

/* _randbelow(n): draws of as many bits as n has, until one is below n. */
uint64_t ares_py_below(ares_mt19937 *s, uint64_t n)
{
    ARES_ASSERT(n >= 1);
    int bits = 64 - __builtin_clzll(n); /* of n, not of n - 1: n = 1 draws too */
    uint64_t x;
    do x = ares_py_bits(s, bits);
    while (x >= n);
    return x;
}

/* randint: both ends are included. */
int64_t ares_py_randint(ares_mt19937 *s, int64_t least, int64_t most)
{
    return least + (int64_t)ares_py_below(s, (uint64_t)(most - least) + 1);
}

/* random.shuffle. */
void ares_py_shuffle(ares_mt19937 *s, int64_t *items, int64_t n)
{
    for (int64_t i = n - 1; i >= 1; i--) {
        uint64_t j = ares_py_below(s, (uint64_t)i + 1);
        int64_t kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}

/* ---------------- numpy, legacy */
void ares_np_seed(ares_mt19937 *s, uint32_t seed)
{
    seed_with_word(s, seed);
}

/* RandomState.randint(n), by numpy's masked rejection. */
uint32_t ares_np_below(ares_mt19937 *s, uint32_t n)
{
    ARES_ASSERT(n >= 1);
    uint32_t most = n - 1, mask, x;
    if (!most) return 0; /* no draw */
    mask = UINT32_MAX >> __builtin_clz(most);
    do x = next_word(s) & mask;
    while (x > most);
    return x;
}

/* ---------------- SeedSequence */
/* hashmix and mix of bit_generator.pyx */
static uint32_t hashed(uint32_t value, uint32_t *constant)
{
    value ^= *constant;
    *constant *= 0x931e8875u;
    value *= *constant;
    return value ^ (value >> 16);
}

static uint32_t mixed(uint32_t x, uint32_t y)
{
    uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ (r >> 16);
}

/* Mixes any number of words into a pool of four. */
void ares_seed_sequence_pool(const uint32_t *entropy, int n, uint32_t pool[4])
{
    uint32_t constant = 0x43b0d7e5u;
    for (int i = 0; i < 4; i++) pool[i] = hashed(i < n ? entropy[i] : 0, &constant);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (to != from) pool[to] = mixed(pool[to], hashed(pool[from], &constant));
    for (int from = 4; from < n; from++)
        for (int to = 0; to < 4; to++) pool[to] = mixed(pool[to], hashed(entropy[from], &constant));
}

/* generate_state: n words of 64 bits from the pool. */
void ares_seed_sequence_state(const uint32_t pool[4], uint64_t *state, int n)
{
    uint32_t constant = 0x8b51f9ddu, word[2];
    for (int i = 0; i < n; i++) {
        for (int half = 0; half < 2; half++) {
            uint32_t v = pool[(2 * i + half) % 4] ^ constant;
            constant *= 0x58f38dedu;
            v *= constant;
            word[half] = v ^ (v >> 16);
        }
        state[i] = word[0] | (uint64_t)word[1] << 32;
    }
}

/* ---------------- PCG64 */
/* The 128-bit linear congruential step. */
static void advance(ares_pcg64 *s)
{
    static const ares_u128 multiplier =
        (ares_u128)2549297995355413924u << 64 | 4865540595714422341u;
    s->state = s->state * multiplier + s->increment;
}

/* pcg64_set_seed: the state from words 0 and 1, the increment from 2 and 3. */
static void seed_with_entropy(ares_pcg64 *s, const uint32_t *entropy, int n)
{
    uint32_t pool[4];
    uint64_t w[4];
    ares_seed_sequence_pool(entropy, n, pool);
    ares_seed_sequence_state(pool, w, 4);
    *s = (ares_pcg64){ .increment = ((ares_u128)w[2] << 64 | w[3]) << 1 | 1 };
    advance(s);
    s->state += (ares_u128)w[0] << 64 | w[1];
    advance(s);
}

/* The 32-bit words of an integer, the lowest first, at least one; returns how many. */
static int add_words(uint32_t *words, uint64_t x)
{
    words[0] = (uint32_t)x;
    if (!(x >> 32)) return 1;
    words[1] = (uint32_t)(x >> 32);
    return 2;
}

void ares_pcg64_seed(ares_pcg64 *s, uint64_t seed)
{
    uint32_t words[2];
    seed_with_entropy(s, words, add_words(words, seed));
}

void ares_pcg64_seed_pair(ares_pcg64 *s, uint64_t a, uint64_t b)
{
    uint32_t words[4];
    int n = add_words(words, a);
    seed_with_entropy(s, words, n + add_words(words + n, b));
}

/* XSL-RR: the halves are xored and rotated by the upper 6 bits. */
static uint64_t next_u64(ares_pcg64 *s)
{
    advance(s);
    uint64_t x = (uint64_t)(s->state >> 64) ^ (uint64_t)s->state;
    unsigned turn = (unsigned)(s->state >> 122);
    return x >> turn | x << (-turn & 63);
}

/* Half of a draw at a time, the lower one first. */
static uint32_t next_u32(ares_pcg64 *s)
{
    if (s->has_half) {
        s->has_half = 0;
        return s->half;
    }
    uint64_t x = next_u64(s);
    s->half = (uint32_t)(x >> 32);
    s->has_half = 1;
    return (uint32_t)x;
}

/* Generator.random: the upper 53 bits over 2^53. */
double ares_pcg64_random(ares_pcg64 *s)
{
    return (double)(next_u64(s) >> 11) * 0x1p-53;
}

/* Generator.integers(n) for n of 32 bits. */
uint32_t ares_pcg64_below(ares_pcg64 *s, uint32_t n)
{
    ARES_ASSERT(n >= 1);
    if (n == 1) return 0;                   /* no draw */
    uint64_t m = (uint64_t)next_u32(s) * n; /* Lemire 2019 */
    uint32_t refused = -n % n;
    while ((uint32_t)m < refused) m = (uint64_t)next_u32(s) * n;
    return (uint32_t)(m >> 32);
}
