/*
 * Byte-pair encoding of one word, which begins as bytes or, of a SentencePiece-style model, as
 * characters. Merges lie in one open-addressing table keyed by the pair of ids; those of two bytes
 * in a table of their own. In short words the least rank is searched among all;
 * in long words, where that would be quadratic, a heap over a linked list finds it. Both take the
 * least rank, of equal ones the leftmost. Short words begin with whole characters where the merges
 * show that this changes nothing (find_chars).
 *
 * A word of a SentencePiece-style model is all text between two added tokens. It is cut where no
 * token of the vocabulary holds the two characters side by side: no merge can cross that place, so
 * the parts merge as the whole would, and are words that recur (bpe_cut).
 *
 * Words recur, so each scratch keeps the tokens of the words that it met last. Its slots hold the
 * word itself and are overwritten by newer ones, so what a cache holds changes the speed alone.
 */
#include "tokenizer.h"

#include <string.h>

#include "unicode.h"

enum {
    SHORT_WORD = 128, /* symbols; indices have 8 bits */
    ID_BITS = 21,     /* of a slot: left, right, then the rank */
    RANK_BITS = 22,
    SMALL_BITS = 16, /* the cache has 2^16 slots for small words, */
    LARGE_BITS = 15, /* and 2^15 for larger ones */
    SMALL_BYTES = 15,
    SMALL_IDS = 4,
    LARGE_BYTES = 50,
    LARGE_IDS = 10,
    CHARS = 0x10000, /* characters of up to three bytes */
    CODE_POINTS = 0x110000,
    PAIR_BITS = 22 /* of the table of pairs of characters */
};
#define NO_RANK UINT32_MAX
#define FREE_SLOT UINT64_MAX /* no pair: ids end below the largest of 21 bits */

struct bpe {
    bpe_config config;
    uint64_t *slots;
    uint64_t mask;    /* slots - 1; at most three in five are taken */
    int shift;        /* a hash's upper bits choose the slot */
    uint64_t *filter; /* a bit per hash: 0 where no pair has it. An eighth of the slots' size */
    int32_t *ids;     /* [merge_count]: of the token that the merge of a rank makes */
    int32_t *chars;   /* [CHARS, of_chars: CODE_POINTS]: token of a character, plus 1; 0: none */
    uint32_t *bytes;  /* [256 * 256]: rank of the merge of two bytes, or NO_RANK; of_chars: NULL */
    uint64_t *pairs;  /* a bit per hash of two characters: 0 where no token has them; or NULL */
    bool plain;       /* every byte has a token, and words begin as bytes */
    bool of_chars;    /* words begin as characters */
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
    small_word *small; /* pairs of slots, of which the first is the newer one */
    large_word *large;
} bpe_cache;

#define HASH 0x9e3779b97f4a7c15u /* 2^64 over the golden ratio */

static inline uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << ID_BITS | (uint32_t)right;
}

/* The rank of the merge of two tokens. */
static inline uint32_t rank_of(const bpe *m, int32_t left, int32_t right)
{
    uint64_t pair = pair_of(left, right), h = pair * HASH;
    uint64_t bit = h >> (m->shift - 3);
    if (!(m->filter[bit / 64] >> bit % 64 & 1)) return NO_RANK;
    for (uint64_t at = h >> m->shift;; at = (at + 1) & m->mask) {
        uint64_t slot = m->slots[at];
        if (slot >> RANK_BITS == pair) return (uint32_t)(slot & ((1u << RANK_BITS) - 1));
        if (slot == FREE_SLOT) return NO_RANK;
    }
}

/* The number of bytes of a character of two or three, by its first one; 0: of another one. */
static inline size_t char_bytes(unsigned char lead)
{
    return lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : 0;
}

/*
 * Which characters may be merged before all else, where no ASCII stands beside them. In valid UTF-8
 * a merge of a part of a character with bytes outside it has a last part of it on its left and a
 * first byte on its right, or a first part of it on its right and a continuation byte before it;
 * `across` is the least rank of these. A character whose own merges all have lower ranks is whole
 * before such a merge can come, and if the merges of the whole character rank above its own, none
 * comes earlier than it would have.
 */
static void find_chars(bpe *m)
{
    typedef struct seen {
        uint32_t used;   /* least rank of the merges that the token is part of */
        uint32_t across; /* of those that join it, a part of a character, with another one */
        unsigned char first, last; /* byte */
        uint8_t len;               /* in bytes; 255: that or more; 0: not made yet */
        bool rest;                 /* continuation bytes alone */
    } seen;
    const bpe_config *config = &m->config;
    int32_t end = 0;
    for (int byte = 0; byte < 256; byte++) end = ARES_MAX(end, config->byte_id[byte] + 1);
    for (int64_t i = 0; i < config->merge_count; i++) {
        const bpe_merge *merge = &config->merges[i];
        end = ARES_MAX(end, ARES_MAX(merge->id, ARES_MAX(merge->left, merge->right)) + 1);
    }
    seen *tokens = ares_calloc((size_t)end + 1, sizeof *tokens);
    for (int byte = 0; byte < 256; byte++)
        tokens[config->byte_id[byte]] = (seen){
            NO_RANK, NO_RANK, (unsigned char)byte, (unsigned char)byte, 1, (byte & 0xc0) == 0x80
        };
    for (int64_t i = 0; i < config->merge_count; i++) {
        const bpe_merge *merge = &config->merges[i];
        seen *left = &tokens[merge->left], *right = &tokens[merge->right];
        uint32_t rank = (uint32_t)i;
        /* a token that no earlier merge makes: nothing is known of its bytes */
        if (left->len == 0 || right->len == 0) goto done;
        left->used = ARES_MIN(left->used, rank);
        right->used = ARES_MIN(right->used, rank);
        if (left->rest && right->first >= 0xc0) left->across = ARES_MIN(left->across, rank);
        if ((left->last & 0xc0) == 0x80 && right->len < char_bytes(right->first))
            right->across = ARES_MIN(right->across, rank);
        seen *made = &tokens[merge->id];
        if (made->len == 0)
            *made = (seen){ NO_RANK,
                            NO_RANK,
                            left->first,
                            right->last,
                            (uint8_t)ARES_MIN(left->len + right->len, 255),
                            left->rest && right->rest };
    }
    m->chars = ares_calloc(CHARS, sizeof *m->chars);
    for (uint32_t c = 0x80; c < CHARS; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        unsigned char bytes[4];
        int n = unicode_put(c, bytes);
        const int32_t *id_of = config->byte_id;
        uint32_t first = m->bytes[bytes[0] << 8 | bytes[1]], last = NO_RANK, most = first;
        uint32_t across =
            ARES_MIN(tokens[id_of[bytes[0]]].across, tokens[id_of[bytes[n - 1]]].across);
        int32_t id = -1;
        if (n == 3) {
            last = m->bytes[bytes[1] << 8 | bytes[2]];
            uint32_t least = ARES_MIN(first, last);
            if (least == NO_RANK) continue;
            int32_t part = m->ids[least];
            uint32_t rank = first < last ? rank_of(m, part, id_of[bytes[2]])
                                         : rank_of(m, id_of[bytes[0]], part);
            if (rank != NO_RANK) id = m->ids[rank];
            most = ARES_MAX(least, rank);
            across = ARES_MIN(across, tokens[part].across);
        } else if (first != NO_RANK) {
            id = m->ids[first];
        }
        if (id >= 0 && most < across && most < tokens[id].used) m->chars[c] = id + 1;
    }
done:
    ares_free(tokens);
}

/* The bit of a pair of characters in the table of pairs. */
static inline uint64_t pair_bit(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << 32 | right) * HASH >> (64 - PAIR_BITS);
}

/*
 * The tokens of characters, and the pairs of characters that tokens hold. A merge makes a token
 * whose text is that of both joined, so that a merge across two characters makes one that holds
 * them. That is not so of bytes that stand for a character; where one of them merges, or where a
 * character may be missing, words are not cut.
 */
static void find_pairs(bpe *m)
{
    const bpe_config *config = &m->config;
    int32_t end = 0;
    bool cuts = !config->whole_words;
    m->chars = ares_calloc(CODE_POINTS, sizeof *m->chars);
    for (int byte = 0; byte < 256; byte++) {
        end = ARES_MAX(end, config->byte_id[byte] + 1);
        cuts &= config->byte_id[byte] >= 0;
    }
    bool *is_byte = ares_calloc((size_t)end + 1, sizeof *is_byte);
    for (int byte = 0; byte < 256; byte++)
        if (config->byte_id[byte] >= 0) is_byte[config->byte_id[byte]] = true;
    for (int64_t i = 0; i < config->merge_count; i++) {
        const bpe_merge *merge = &config->merges[i];
        cuts &= !(merge->left < end && is_byte[merge->left]) &&
                !(merge->right < end && is_byte[merge->right]);
    }
    ares_free(is_byte);
    if (cuts) m->pairs = ares_calloc(((size_t)1 << PAIR_BITS) / 64, sizeof *m->pairs);
    for (int64_t i = 0; i < ares_map_count(config->characters); i++) {
        ares_view text = ares_map_key(config->characters, i);
        const unsigned char *p = (const unsigned char *)text.data, *stop = p + text.len;
        if (p == stop) continue;
        uint32_t left = unicode_next(&p), right;
        if (p == stop) m->chars[left] = (int32_t)ares_map_value(config->characters, i) + 1;
        for (; cuts && p < stop; left = right) {
            right = unicode_next(&p);
            uint64_t bit = pair_bit(left, right);
            m->pairs[bit / 64] |= (uint64_t)1 << bit % 64;
        }
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
    m->filter = ares_calloc(((size_t)m->mask + 1) / 8, sizeof *m->filter);
    m->ids = ares_malloc(((size_t)config->merge_count + 1) * sizeof *m->ids);
    for (int64_t i = 0; i < config->merge_count; i++) {
        const bpe_merge *merge = &config->merges[i];
        uint64_t pair = pair_of(merge->left, merge->right);
        uint64_t at = (pair * HASH) >> m->shift, bit = (pair * HASH) >> (m->shift - 3);
        m->filter[bit / 64] |= (uint64_t)1 << bit % 64;
        while (m->slots[at] != FREE_SLOT && m->slots[at] >> RANK_BITS != pair)
            at = (at + 1) & m->mask;
        m->slots[at] = pair << RANK_BITS | (uint64_t)i;
        m->ids[i] = merge->id;
    }
    if (config->characters) {
        m->of_chars = true;
        find_pairs(m);
        goto done;
    }
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
    if (m->plain) find_chars(m);
done:
    m->config.merges = NULL; /* borrowed for this call only */
    m->config.characters = NULL;
    return m;
}

void bpe_free(bpe *m)
{
    if (!m) return;
    ares_free(m->slots);
    ares_free(m->filter);
    ares_free(m->ids);
    ares_free(m->chars);
    ares_free(m->bytes);
    ares_free(m->pairs);
    ares_free(m);
}

void bpe_scratch_fini(bpe_scratch *s)
{
    ares_free(s->symbols);
    ares_free(s->heap);
    if (s->cache) {
        ares_pages_free(s->cache->small, sizeof(small_word) << SMALL_BITS);
        ares_pages_free(s->cache->large, sizeof(large_word) << LARGE_BITS);
    }
    ares_free(s->cache);
    *s = (bpe_scratch){ 0 };
}

/* ---- the two ways to merge; both return the number of symbols left, at the front of the array */

/*
 * The tokens of the bytes of a character that has no token; 0 where one of them has none either.
 */
static size_t fall_back(const bpe *m, const unsigned char *bytes, size_t width, int32_t *ids)
{
    for (size_t k = 0; k < width; k++)
        if ((ids[k] = m->config.byte_id[bytes[k]]) < 0) return 0;
    return width;
}

/*
 * The symbols that a short word begins with: characters, or bytes where that might matter. starts
 * [n] receives the byte of a symbol that is one byte, or -1. Returns n; 0: more than SHORT_WORD, or
 * something unknown.
 */
static size_t begin_short(const bpe *m, const unsigned char *word, size_t len, int32_t *ids,
                          int16_t *bytes)
{
    size_t n = 0;
    if (m->of_chars) {
        for (const unsigned char *p = word, *end = word + len; p < end;) {
            const unsigned char *from = p;
            int32_t id = m->chars[unicode_next(&p)] - 1;
            size_t width = id >= 0 ? 1 : (size_t)(p - from);
            if (n + width > SHORT_WORD) return 0;
            if (id >= 0) ids[n] = id;
            else if (!fall_back(m, from, width, ids + n)) return 0; /* unknown */
            for (size_t k = 0; k < width; k++) bytes[n++] = -1;
        }
        return n;
    }
    for (size_t i = 0, width; m->chars && i < len; i += width) {
        unsigned char lead = word[i];
        width = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : char_bytes(lead);
        bool whole = width > 0 && len - i >= width;
        for (size_t k = 1; k < width && whole; k++) whole = (word[i + k] & 0xc0) == 0x80;
        /* not UTF-8, as when a pattern cuts the byte alphabet */
        if (!whole) {
            n = 0;
            break;
        }
        if (n + width > SHORT_WORD) return 0;
        bool alone = (i > 0 && word[i - 1] < 0x80) || (i + width < len && word[i + width] < 0x80);
        int32_t id =
            alone        ? 0
            : width == 2 ? m->chars[(lead & 0x1f) << 6 | (word[i + 1] & 0x3f)]
            : width == 3
                ? m->chars[(lead & 0x0f) << 12 | (word[i + 1] & 0x3f) << 6 | (word[i + 2] & 0x3f)]
                : 0;
        if (id) {
            bytes[n] = -1;
            ids[n++] = id - 1;
            continue;
        }
        for (size_t k = 0; k < width; k++, n++)
            ids[n] = m->config.byte_id[word[i + k]], bytes[n] = word[i + k];
    }
    if (n || len > SHORT_WORD) return n;
    for (; n < len; n++) ids[n] = m->config.byte_id[word[n]], bytes[n] = word[n];
    return n;
}

/*
 * A word all of which has tokens. A key is a rank above a place, so that the least key is the
 * leftmost of the least rank; symbols keep their places, and merged ones have no key. Returns the
 * number of ids; 0: the word is too long, or begins with something unknown.
 */
static size_t merge_short(const bpe *m, const unsigned char *word, size_t n, int32_t *ids)
{
    enum { NO_KEY = INT32_MAX };
    int32_t keys[SHORT_WORD];
    int16_t bytes[SHORT_WORD];
    uint8_t next[SHORT_WORD], prev[SHORT_WORD];
#define KEY(rank, at) ((rank) == NO_RANK ? NO_KEY : (int32_t)((rank) << 8 | (uint32_t)(at)))
    size_t len = begin_short(m, word, n, ids, bytes);
    /* whole vectors of keys: those after the word are none */
    size_t width = (len + 7) & ~(size_t)7;
    for (size_t i = 0; i < len; i++) {
        uint32_t rank = NO_RANK;
        if (i + 1 < len)
            rank = bytes[i] >= 0 && bytes[i + 1] >= 0 ? m->bytes[bytes[i] << 8 | bytes[i + 1]]
                                                      : rank_of(m, ids[i], ids[i + 1]);
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
    n = 0;
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
        symbols[i].rank = i + 1 < n ? rank_of(m, symbols[i].id, symbols[i + 1].id) : NO_RANK;
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

/*
 * The symbols that any word begins with, where words begin as characters: a character that has no
 * token begins as its bytes, or as the unknown token. Symbols are at most as many as bytes. Order
 * follows the library, which keeps an unknown token until the next known character: bytes of other
 * characters go before it.
 */
static size_t begin_chars(const bpe *m, bpe_symbol *symbols, const unsigned char *word, size_t len)
{
    size_t n = 0;
    bpe_symbol unknown = { .id = m->config.unk_id };
    for (const unsigned char *p = word, *end = word + len; p < end;) {
        const unsigned char *from = p;
        int32_t id = m->chars[unicode_next(&p)] - 1, bytes[4];
        size_t width = (size_t)(p - from);
        if (id < 0 && fall_back(m, from, width, bytes)) {
            for (size_t k = 0; k < width; k++) symbols[n++] = (bpe_symbol){ bytes[k], .len = 1 };
            continue;
        }
        /* without an unknown token the character is left out */
        if (id < 0 && m->config.unk_id < 0) continue;
        if (unknown.len && (id >= 0 || !m->config.fuse_unk)) {
            symbols[n++] = unknown;
            unknown.len = 0;
        }
        if (id < 0) unknown.len += (uint32_t)width;
        else symbols[n++] = (bpe_symbol){ id, .len = (uint32_t)width };
    }
    if (unknown.len) symbols[n++] = unknown;
    return n;
}

const unsigned char *bpe_cut(const bpe *m, const unsigned char *p, const unsigned char *end)
{
    if (!m->pairs) return end;
    for (uint32_t left = unicode_next(&p), right; p < end; left = right) {
        const unsigned char *at = p;
        right = unicode_next(&p);
        uint64_t bit = pair_bit(left, right);
        if (!(m->pairs[bit / 64] >> bit % 64 & 1)) return at;
    }
    return end;
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
    if (m->of_chars) {
        size_t n = !s->lengths && len <= 4 * SHORT_WORD ? merge_short(m, word, len, ids) : 0;
        if (n) return (bpe_word){ ids, NULL, (int64_t)n };
        n = merge_long(m, s, begin_chars(m, symbols, word, len));
        for (size_t i = 0; i < n; i++) ids[i] = symbols[i].id;
        return (bpe_word){ ids, s->lengths ? symbols : NULL, (int64_t)n };
    }
    if (!plain) {
        plain = true;
        for (size_t i = 0; i < len; i++) plain &= m->config.byte_id[word[i]] >= 0;
    }
    /* three bytes make a symbol at most */
    size_t n = plain && len <= 3 * SHORT_WORD ? merge_short(m, word, len, ids) : 0;
    if (n) return (bpe_word){ ids, NULL, (int64_t)n };
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

void bpe_ask(bpe_scratch *s, const unsigned char *word, size_t len, const unsigned char *limit,
             bpe_query *q)
{
    if (!s->cache) {
        /* zeroed pages that a few words do not touch cost nothing */
        s->cache = ares_malloc(sizeof *s->cache);
        s->cache->small = ares_pages_new(sizeof(small_word) << SMALL_BITS);
        s->cache->large = ares_pages_new(sizeof(large_word) << LARGE_BITS);
    }
    *q = (bpe_query){ .word = word, .len = len };
    if (len > LARGE_BYTES) return;
    if (len > SMALL_BYTES) {
        /* eight bytes at a time, the last eight perhaps twice */
        uint64_t h = len, x;
        for (size_t i = 0; i < len; i += 8) {
            memcpy(&x, word + ARES_MIN(i, len - 8), 8);
            h = (h ^ x) * 0xff51afd7ed558ccdu;
            h ^= h >> 32;
        }
        q->key[0] = h;
        large_word *w = &s->cache->large[h & ((1u << LARGE_BITS) - 1)];
        __builtin_prefetch(w);
        __builtin_prefetch(w->ids);
        q->slot = w;
        return;
    }
    uint64_t key[2] = { 0, 0 };
    if (limit - word >= 16) {
        memcpy(key, word, 16);
        /* len is 1 to 15: a shift by 64 would be undefined */
        if (len <= 8) key[0] &= UINT64_MAX >> (64 - 8 * len), key[1] = 0;
        else key[1] &= UINT64_MAX >> (128 - 8 * len);
    } else {
        memcpy(key, word, len);
    }
    key[1] |= (uint64_t)len << 56;
    uint64_t h = key[0] * HASH;
    h = (h ^ h >> 29 ^ key[1]) * 0xff51afd7ed558ccdu;
    q->key[0] = key[0], q->key[1] = key[1];
    q->slot = &s->cache->small[(h >> (64 - SMALL_BITS)) & ~(uint64_t)1];
    __builtin_prefetch(q->slot);
}

bpe_word bpe_answer(const bpe *m, bpe_scratch *s, const bpe_query *q)
{
    /* the cache has no lengths of symbols */
    if (s->lengths) return merge_word(m, s, q->word, q->len);
    if (q->len <= SMALL_BYTES) {
        small_word *w = q->slot;
        for (int i = 0; i < 2; i++)
            /* n, in the upper half of the last byte, is not part of the key */
            if (w[i].word[0] == q->key[0] && (w[i].word[1] ^ q->key[1]) << 4 == 0)
                return (bpe_word){ w[i].ids, NULL, (int64_t)(w[i].word[1] >> 60) };
        bpe_word out = merge_word(m, s, q->word, q->len);
        /* a word with missing bytes needs the lengths of its symbols */
        if (out.symbols || out.n > SMALL_IDS) return out;
        w[1] = w[0];
        w[0] = (small_word){ { q->key[0], q->key[1] | (uint64_t)out.n << 60 }, { 0 } };
        memcpy(w[0].ids, out.ids, (size_t)out.n * sizeof *out.ids);
        return out;
    }
    if (q->len > LARGE_BYTES) return merge_word(m, s, q->word, q->len);
    large_word *w = q->slot;
    uint32_t hash = (uint32_t)(q->key[0] >> LARGE_BITS);
    if (w->hash == hash && w->len == q->len && memcmp(w->word, q->word, q->len) == 0)
        return (bpe_word){ w->ids, NULL, w->n };
    bpe_word out = merge_word(m, s, q->word, q->len);
    if (out.symbols || out.n > LARGE_IDS) return out;
    *w = (large_word){ .hash = hash, .len = (uint8_t)q->len, .n = (uint8_t)out.n };
    memcpy(w->word, q->word, q->len);
    memcpy(w->ids, out.ids, (size_t)out.n * sizeof *out.ids);
    return out;
}
