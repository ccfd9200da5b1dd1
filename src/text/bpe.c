/*
 * Byte-pair encoding of one word. Merges lie in one open-addressing table keyed by the pair of ids;
 * those of two bytes, which every word begins with, in a table of their own. In short words the
 * least rank is searched among all; in long words, where that would be quadratic, a heap over a
 * linked list finds it. Both take the least rank, of equal ones the leftmost.
 *
 * Words recur, so each scratch keeps the tokens of the words that it met last. Its slots hold the
 * word itself and are overwritten by newer ones, so what a cache holds changes the speed alone.
 */
#include "tokenizer.h"

#include <string.h>

#include "unicode.h"

enum {
    SHORT_WORD = 128,  /* symbols; indices have 8 bits */
    ID_BITS = 21,      /* of a slot: left, right, then the rank */
    RANK_BITS = 22,
    SMALL_BITS = 14,   /* the cache has 2^14 slots for small words, */
    LARGE_BITS = 13,   /* and 2^13 for larger ones */
    SMALL_BYTES = 15,
    SMALL_IDS = 4,
    LARGE_BYTES = 38,
    LARGE_IDS = 5
};
#define NO_RANK UINT32_MAX
#define FREE_SLOT UINT64_MAX /* no pair: ids end below the largest of 21 bits */

struct bpe {
    bpe_config config;
    uint64_t *slots;
    uint64_t mask;  /* slots - 1; at most three in five are taken */
    int shift;      /* a hash's upper bits choose the slot */
    int32_t *ids;   /* [merge_count]: of the token that the merge of a rank makes */
    uint32_t *bytes; /* [256 * 256]: rank of the merge of two bytes, or NO_RANK */
    bool plain;     /* every byte has a token */
};

/* A word of up to 15 bytes: they, zeros, then in the last byte its length and above it n. */
typedef struct small_word {
    uint64_t word[2];
    int32_t ids[SMALL_IDS];
} small_word;
typedef struct large_word {
    uint32_t hash;
    uint8_t len, n; /* len 0: free */
    unsigned char word[LARGE_BYTES];
    int32_t ids[LARGE_IDS];
} large_word;
typedef struct bpe_cache {
    small_word small[1 << SMALL_BITS]; /* pairs of slots, of which the first is the newer one */
    large_word large[1 << LARGE_BITS];
} bpe_cache;

/* The rank of the merge of two tokens. */
static inline uint32_t rank_of(const bpe *m, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << ID_BITS | (uint32_t)right;
    for (uint64_t at = (pair * 0x9e3779b97f4a7c15u) >> m->shift;; at = (at + 1) & m->mask) {
        uint64_t slot = m->slots[at];
        if (slot >> RANK_BITS == pair) return (uint32_t)(slot & ((1u << RANK_BITS) - 1));
        if (slot == FREE_SLOT) return NO_RANK;
    }
}

/* config->merges in order of rank; a later merge of the same pair replaces the earlier one. */
bpe *bpe_new(const bpe_config *config)
{
    bpe *m = ares_calloc(1, sizeof *m);
    m->config = *config;
    ARES_ASSERT(config->merge_count <= MERGES_MOST);
    int bits = 4;
    while (((int64_t)3 << bits) / 5 < config->merge_count) bits++;
    m->mask = ((uint64_t)1 << bits) - 1;
    m->shift = 64 - bits;
    m->slots = ares_malloc(((size_t)m->mask + 1) * sizeof *m->slots);
    memset(m->slots, 0xff, ((size_t)m->mask + 1) * sizeof *m->slots);
    m->ids = ares_malloc(((size_t)config->merge_count + 1) * sizeof *m->ids);
    for (int64_t i = 0; i < config->merge_count; i++) {
        const bpe_merge *merge = &config->merges[i];
        uint64_t pair = (uint64_t)(uint32_t)merge->left << ID_BITS | (uint32_t)merge->right;
        uint64_t at = (pair * 0x9e3779b97f4a7c15u) >> m->shift;
        while (m->slots[at] != FREE_SLOT && m->slots[at] >> RANK_BITS != pair)
            at = (at + 1) & m->mask;
        m->slots[at] = pair << RANK_BITS | (uint64_t)i;
        m->ids[i] = merge->id;
    }
    m->config.merges = NULL; /* borrowed for this call only */
    m->bytes = ares_malloc(256 * 256 * sizeof *m->bytes);
    memset(m->bytes, 0xff, 256 * 256 * sizeof *m->bytes);
    m->plain = true;
    int32_t end = 0; /* of the ids of bytes */
    for (int byte = 0; byte < 256; byte++) {
        m->plain &= config->byte_id[byte] >= 0;
        end = ARES_MAX(end, config->byte_id[byte] + 1);
    }
    int16_t *byte_of = ares_malloc(((size_t)end + 1) * sizeof *byte_of);
    memset(byte_of, 0xff, ((size_t)end + 1) * sizeof *byte_of);
    for (int byte = 0; byte < 256; byte++)
        if (config->byte_id[byte] >= 0) byte_of[config->byte_id[byte]] = (int16_t)byte;
    for (int64_t i = 0; i < config->merge_count; i++) {
        const bpe_merge *merge = &config->merges[i];
        if (merge->left >= end || merge->right >= end) continue;
        int left = byte_of[merge->left], right = byte_of[merge->right];
        if (left >= 0 && right >= 0) m->bytes[left << 8 | right] = (uint32_t)i;
    }
    ares_free(byte_of);
    return m;
}

void bpe_free(bpe *m)
{
    if (!m) return;
    ares_free(m->slots);
    ares_free(m->ids);
    ares_free(m->bytes);
    ares_free(m);
}

void bpe_scratch_fini(bpe_scratch *s)
{
    ares_free(s->symbols);
    ares_free(s->heap);
    ares_pages_free(s->cache, sizeof *s->cache);
    *s = (bpe_scratch){ 0 };
}

/* ---- the two ways to merge; both return the number of symbols left, at the front of the array */

/*
 * Up to SHORT_WORD bytes, which all have tokens. A key is a rank above a place, so that the least
 * key is the leftmost of the least rank; symbols keep their places, and merged ones have no key.
 */
static size_t merge_short(const bpe *m, const unsigned char *word, size_t len, int32_t *ids)
{
    enum { NO_KEY = INT32_MAX };
    int32_t keys[SHORT_WORD];
    uint8_t next[SHORT_WORD], prev[SHORT_WORD];
#define KEY(rank, at) ((rank) == NO_RANK ? NO_KEY : (int32_t)((rank) << 8 | (uint32_t)(at)))
    /* whole vectors of keys: those after the word are none */
    size_t width = (len + 7) & ~(size_t)7;
    for (size_t i = 0; i < len; i++) {
        ids[i] = m->config.byte_id[word[i]];
        uint32_t rank = i + 1 < len ? m->bytes[word[i] << 8 | word[i + 1]] : NO_RANK;
        keys[i] = KEY(rank, i);
        next[i] = (uint8_t)(i + 1);
        prev[i] = (uint8_t)(i - 1);
    }
    for (size_t i = len; i < width; i++) keys[i] = NO_KEY;
    for (;;) {
        int32_t least = NO_KEY;
        for (size_t i = 0; i < width; i++) least = keys[i] < least ? keys[i] : least;
        if (least == NO_KEY) break;
        size_t at = (size_t)(least & 0xff), right = next[at], after = next[right];
        ids[at] = m->ids[least >> 8];
        next[at] = (uint8_t)after;
        keys[right] = NO_KEY;
        ids[right] = -1;
        uint32_t rank = NO_RANK;
        if (after < len) {
            prev[after] = (uint8_t)at;
            rank = rank_of(m, ids[at], ids[after]);
        }
        keys[at] = KEY(rank, at);
        if (at > 0) {
            size_t before = prev[at];
            rank = rank_of(m, ids[before], ids[at]);
            keys[before] = KEY(rank, before);
        }
    }
#undef KEY
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        if (ids[i] >= 0) ids[n++] = ids[i];
    return n;
}

/* A key is a rank, and below it in the low half the place of its left symbol. */
static void heap_push(bpe_scratch *s, size_t *n, uint64_t key)
{
    if (*n == s->heap_cap) {
        s->heap_cap = s->heap_cap ? s->heap_cap * 2 : 1024;
        s->heap = ares_realloc(s->heap, s->heap_cap * sizeof *s->heap);
    }
    size_t at = (*n)++;
    for (; at > 0 && s->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = key;
}

/* Takes the least key. */
static uint64_t heap_pop(bpe_scratch *s, size_t *n)
{
    uint64_t top = s->heap[0], last = s->heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return top;
}

static size_t merge_long(const bpe *m, bpe_scratch *s, size_t n)
{
    bpe_symbol *symbols = s->symbols;
    size_t pending = 0;
    for (size_t i = 0; i < n; i++) {
        symbols[i].rank =
            i + 1 < n ? rank_of(m, symbols[i].id, symbols[i + 1].id) : NO_RANK;
        /* a linked list, since merged symbols leave gaps */
        symbols[i].prev = (uint32_t)i - 1;
        symbols[i].next = (uint32_t)i + 1;
        if (symbols[i].rank != NO_RANK) heap_push(s, &pending, (uint64_t)symbols[i].rank << 32 | i);
    }
    while (pending) {
        uint64_t top = heap_pop(s, &pending);
        size_t at = (uint32_t)top;
        bpe_symbol *left = &symbols[at];
        /* one of its symbols has been merged since it was pushed */
        if (left->len == 0 || left->rank != (uint32_t)(top >> 32)) continue;
        bpe_symbol *right = &symbols[left->next];
        left->id = m->ids[left->rank];
        left->len += right->len;
        left->mapped_len += right->mapped_len;
        left->next = right->next;
        right->len = 0;
        /* until the pair with its new neighbour is known */
        left->rank = NO_RANK;
        if (left->next < n) {
            symbols[left->next].prev = (uint32_t)at;
            left->rank = rank_of(m, left->id, symbols[left->next].id);
            if (left->rank != NO_RANK) heap_push(s, &pending, (uint64_t)left->rank << 32 | at);
        }
        if (at > 0) {
            bpe_symbol *before = &symbols[left->prev];
            before->rank = rank_of(m, before->id, left->id);
            if (before->rank != NO_RANK)
                heap_push(s, &pending, (uint64_t)before->rank << 32 | left->prev);
        }
    }
    /* close the gaps */
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (symbols[i].len) symbols[kept++] = symbols[i];
    return kept;
}

/* ---- a word */
/* A word that the cache does not have. */
static bpe_word merge_word(const bpe *m, bpe_scratch *s, const unsigned char *word, size_t len)
{
    ARES_ASSERT(len < UINT32_MAX);
    if (s->cap < len + SMALL_IDS) {
        s->cap = len * 2 + 256;
        s->symbols = ares_realloc(s->symbols, s->cap * (sizeof *s->symbols + sizeof(int32_t)));
    }
    bpe_symbol *symbols = s->symbols;
    /* the ids lie after the symbols, in one allocation */
    int32_t *ids = (int32_t *)(void *)(symbols + s->cap);
    int64_t whole;
    /* ignore_merges: a word that is a token is taken whole */
    if (m->config.whole_words &&
        ares_map_get(m->config.whole_words, (ares_view){ (const char *)word, len }, &whole)) {
        ids[0] = (int32_t)whole;
        return (bpe_word){ ids, NULL, 1 };
    }
    bool plain = m->plain;
    if (!plain) {
        plain = true;
        for (size_t i = 0; i < len; i++) plain &= m->config.byte_id[word[i]] >= 0;
    }
    if (plain && len <= SHORT_WORD)
        return (bpe_word){ ids, NULL, (int64_t)merge_short(m, word, len, ids) };
    size_t n = 0;
    bool in_unk = false;
    for (size_t i = 0; i < len; i++) {
        uint32_t mapped = unicode_of_byte[word[i]] < 0x80 ? 1 : 2;
        int32_t id = m->config.byte_id[word[i]];
        bool unknown = id < 0;
        /* without an unknown token the byte is left out */
        if (unknown) {
            if ((id = m->config.unk_id) < 0) continue;
            if (in_unk && m->config.fuse_unk) {
                symbols[n - 1].len++;
                symbols[n - 1].mapped_len += mapped;
                continue;
            }
        }
        symbols[n++] = (bpe_symbol){ .id = id, .len = 1, .mapped_len = mapped };
        in_unk = unknown;
    }
    n = merge_long(m, s, n);
    for (size_t i = 0; i < n; i++) ids[i] = symbols[i].id;
    return (bpe_word){ ids, plain ? NULL : symbols, (int64_t)n };
}

static bpe_word large_encode(const bpe *m, bpe_scratch *s, const unsigned char *word, size_t len)
{
    if (len > LARGE_BYTES) return merge_word(m, s, word, len);
    /* eight bytes at a time, the last eight perhaps twice: the word is longer than a small one */
    uint64_t h = len, x;
    for (size_t i = 0; i < len; i += 8) {
        memcpy(&x, word + ARES_MIN(i, len - 8), 8);
        h = (h ^ x) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    large_word *w = &s->cache->large[h & ((1u << LARGE_BITS) - 1)];
    uint32_t hash = (uint32_t)(h >> 13);
    if (w->hash == hash && w->len == len && memcmp(w->word, word, len) == 0)
        return (bpe_word){ w->ids, NULL, w->n };
    bpe_word out = merge_word(m, s, word, len);
    /* the cache has no lengths of symbols, which a word with missing bytes needs */
    if (out.symbols || out.n > LARGE_IDS) return out;
    *w = (large_word){ .hash = hash, .len = (uint8_t)len, .n = (uint8_t)out.n };
    memcpy(w->word, word, len);
    memcpy(w->ids, out.ids, (size_t)out.n * sizeof *out.ids);
    return out;
}

bpe_word bpe_encode(const bpe *m, bpe_scratch *s, const unsigned char *word, size_t len,
                    const unsigned char *limit)
{
    if (!s->cache) s->cache = ares_pages_new(sizeof *s->cache);
    if (len > SMALL_BYTES) return large_encode(m, s, word, len);
    uint64_t key[2] = { 0, 0 };
    if (limit - word >= 16) {
        static const uint64_t ones = UINT64_MAX;
        memcpy(key, word, 16);
        /* len is 1 to 15: a shift by 64 would be undefined */
        if (len <= 8) key[0] &= ones >> (64 - 8 * len), key[1] = 0;
        else key[1] &= ones >> (128 - 8 * len);
    } else {
        memcpy(key, word, len);
    }
    key[1] |= (uint64_t)len << 56;
    uint64_t h = key[0] * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29 ^ key[1]) * 0xff51afd7ed558ccdu;
    small_word *w = &s->cache->small[(h >> (64 - SMALL_BITS)) & ~(uint64_t)1];
    for (int i = 0; i < 2; i++)
        /* n, in the upper half of the last byte, is not part of the key */
        if (w[i].word[0] == key[0] && (w[i].word[1] ^ key[1]) << 4 == 0)
            return (bpe_word){ w[i].ids, NULL, (int64_t)(w[i].word[1] >> 60) };
    bpe_word out = merge_word(m, s, word, len);
    if (out.symbols || out.n > SMALL_IDS) return out;
    w[1] = w[0];
    w[0] = (small_word){ { key[0], key[1] | (uint64_t)out.n << 60 }, { 0 } };
    memcpy(w[0].ids, out.ids, (size_t)out.n * sizeof *out.ids);
    return out;
}
