/*
 * Byte-pair encoding of one word. Merges lie in one open-addressing table keyed by the pair of ids.
 * In short words the least rank is searched linearly; in long words, where that would be quadratic,
 * a heap over a linked list finds it. Both take the least rank, of equal ones the leftmost.
 *
 * Words recur, so their tokens are cached in a table: a slot is filled once, by compare and swap,
 * and never changed or freed before the model is, so threads share it without a lock.
 */
#include "tokenizer.h"

#include <stdatomic.h>
#include <string.h>

#include "unicode.h"

enum { SHORT_WORD = 64, CACHE_SLOTS = 1 << 16, CACHE_PROBES = 8, CACHE_WORD_MOST = 64 };
#define NO_RANK UINT32_MAX
#define NO_PAIR UINT64_MAX

typedef struct slot {
    uint64_t pair; /* NO_PAIR: free */
    uint32_t rank; /* place among the merges: the least is applied first */
    int32_t id;    /* of the merged token */
} slot;
typedef struct cached {
    uint32_t hash;
    uint16_t len, n;
    int32_t ids[]; /* [n], then the bytes of the word */
} cached;

struct bpe {
    bpe_config config;
    slot *slots;
    uint64_t mask; /* slots - 1; there are at least twice as many slots as merges */
    int shift;     /* a hash's upper bits choose the slot */
    _Atomic(cached *) *cache;
};

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of the pair, or the free one where it would be. */
static slot *find(const bpe *m, uint64_t pair)
{
    for (uint64_t at = (pair * 0x9e3779b97f4a7c15u) >> m->shift;; at = (at + 1) & m->mask)
        if (m->slots[at].pair == pair || m->slots[at].pair == NO_PAIR) return &m->slots[at];
}

static uint32_t rank_of(const bpe *m, int32_t left, int32_t right)
{
    return find(m, pair_of(left, right))->rank; /* a free slot says NO_RANK */
}

/* config->merges in order of rank; a later merge of the same pair replaces the earlier one. */
bpe *bpe_new(const bpe_config *config)
{
    bpe *m = ares_calloc(1, sizeof *m);
    m->config = *config;
    int bits = 4;
    /* at most half of the slots are taken, so that searches are short */
    while ((int64_t)1 << bits < config->merge_count * 2) bits++;
    m->mask = ((uint64_t)1 << bits) - 1;
    m->shift = 64 - bits;
    m->slots = ares_malloc(((size_t)m->mask + 1) * sizeof(slot));
    for (uint64_t i = 0; i <= m->mask; i++) m->slots[i] = (slot){ NO_PAIR, NO_RANK, -1 };
    for (int64_t i = 0; i < config->merge_count; i++) {
        const bpe_merge *merge = &config->merges[i];
        uint64_t pair = pair_of(merge->left, merge->right);
        *find(m, pair) = (slot){ pair, (uint32_t)i, merge->id };
    }
    m->config.merges = NULL; /* borrowed for this call only */
    m->cache = ares_calloc(CACHE_SLOTS, sizeof *m->cache);
    return m;
}

void bpe_free(bpe *m)
{
    if (!m) return;
    for (int i = 0; i < CACHE_SLOTS; i++) ares_free(atomic_load(&m->cache[i]));
    ares_free((void *)m->cache);
    ares_free(m->slots);
    ares_free(m);
}

void bpe_scratch_fini(bpe_scratch *s)
{
    ares_free(s->symbols);
    ares_free(s->heap);
    *s = (bpe_scratch){ 0 };
}

/* ---- the two ways to merge; both return the number of symbols left, at the front of the array */
static size_t merge_short(const bpe *m, bpe_symbol *symbols, size_t n)
{
    for (;;) {
        uint32_t least = NO_RANK;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            if (symbols[i].rank < least) least = symbols[i].rank, at = i;
        if (least == NO_RANK) return n;
        bpe_symbol *left = &symbols[at], *right = left + 1;
        left->id = find(m, pair_of(left->id, right->id))->id;
        left->len += right->len;
        left->mapped_len += right->mapped_len;
        /* the array stays dense */
        memmove(right, right + 1, (n - at - 2) * sizeof *right);
        n--;
        /* after the move, `right` is the symbol behind the merged one */
        left->rank = at + 1 < n ? rank_of(m, left->id, right->id) : NO_RANK;
        if (at > 0) left[-1].rank = rank_of(m, left[-1].id, left->id);
    }
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
        left->id = find(m, pair_of(left->id, right->id))->id;
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

/* Eight bytes at a time, with a multiplier of MurmurHash3. */
static uint32_t hash_of(const unsigned char *word, size_t len)
{
    uint64_t h = len * 0x9e3779b97f4a7c15u;
    for (; len >= 8; word += 8, len -= 8) {
        uint64_t x;
        memcpy(&x, word, 8);
        h = (h ^ x) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t x = 0;
    for (size_t i = 0; i < len; i++) x |= (uint64_t)word[i] << (8 * i);
    h = (h ^ x) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32);
}

/*
 * Where all probes are taken the word is not cached. Another thread may have filled a slot since.
 */
static void cache_put(const bpe *m, uint32_t hash, const unsigned char *word, size_t len,
                      const int32_t *ids, size_t n)
{
    cached *c = NULL;
    for (uint32_t i = 0; i < CACHE_PROBES; i++) {
        _Atomic(cached *) *place = &m->cache[(hash + i) & (CACHE_SLOTS - 1)];
        if (atomic_load_explicit(place, memory_order_relaxed)) continue;
        if (!c) {
            c = ares_malloc(sizeof *c + n * sizeof *ids + len);
            *c = (cached){ .hash = hash, .len = (uint16_t)len, .n = (uint16_t)n };
            memcpy(c->ids, ids, n * sizeof *ids);
            memcpy(c->ids + n, word, len);
        }
        cached *none = NULL;
        if (atomic_compare_exchange_strong_explicit(place, &none, c, memory_order_release,
                                                    memory_order_relaxed))
            return;
    }
    ares_free(c);
}

/* The ids of a word. They stay valid until the next call with this scratch. */
bpe_word bpe_encode(const bpe *m, bpe_scratch *s, const unsigned char *word, size_t len)
{
    uint32_t hash = 0;
    if (len <= CACHE_WORD_MOST) {
        hash = hash_of(word, len);
        /* a free slot ends the search: slots are filled in the order of the probes, never freed */
        for (uint32_t i = 0; i < CACHE_PROBES; i++) {
            const cached *c = atomic_load_explicit(&m->cache[(hash + i) & (CACHE_SLOTS - 1)],
                                                   memory_order_acquire);
            if (!c) break;
            if (c->hash == hash && c->len == len && memcmp(c->ids + c->n, word, len) == 0)
                return (bpe_word){ c->ids, NULL, c->n };
        }
    }
    ARES_ASSERT(len < UINT32_MAX);
    if (s->cap < len + 1) {
        s->cap = len * 2 + 256;
        s->symbols = ares_realloc(s->symbols, s->cap * (sizeof *s->symbols + sizeof(int32_t)));
    }
    bpe_symbol *symbols = s->symbols;
    /* the ids lie after the symbols, in one allocation */
    int32_t *ids = (int32_t *)(void *)(symbols + s->cap);
    bool plain = true;
    size_t n;
    int64_t whole;
    /* ignore_merges: a word that is a token is taken whole */
    if (m->config.whole_words &&
        ares_map_get(m->config.whole_words, (ares_view){ (const char *)word, len }, &whole)) {
        ids[0] = (int32_t)whole;
        n = 1;
    } else {
        /* the bytes as symbols, with the rank of each pair; plain: every byte has a token */
        n = 0;
        bool in_unk = false;
        plain = true;
        for (size_t i = 0; i < len; i++) {
            uint32_t mapped = unicode_of_byte[word[i]] < 0x80 ? 1 : 2;
            int32_t id = m->config.byte_id[word[i]];
            bool unknown = id < 0;
            /* without an unknown token the byte is left out */
            if (unknown) {
                plain = false;
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
        for (size_t i = 0; i < n; i++)
            symbols[i].rank = i + 1 < n ? rank_of(m, symbols[i].id, symbols[i + 1].id) : NO_RANK;

        n = n <= SHORT_WORD ? merge_short(m, symbols, n) : merge_long(m, s, n);
        for (size_t i = 0; i < n; i++) ids[i] = symbols[i].id;
    }
    /* the cache has no lengths of symbols, which a word with missing bytes needs */
    if (plain && len <= CACHE_WORD_MOST) cache_put(m, hash, word, len, ids, n);
    return (bpe_word){ ids, plain ? NULL : symbols, (int64_t)n };
}
