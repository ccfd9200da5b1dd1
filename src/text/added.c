/*
 * Added tokens in a text: a trie over bytes, whose root is a table and whose other nodes are linked
 * lists of children. lstrip, rstrip and single_word are checked in the library's order: a match
 * that single_word refuses still hides tokens that begin inside it, and white space that one token
 * has taken is not given to the next.
 */
#include <string.h>

#include "split.h"

typedef struct node {
    int32_t child, sibling; /* indices of nodes; 0: none */
    int32_t token;          /* index in tokens + 1; 0: no token ends here */
    unsigned char byte;
} node;
struct added_set {
    node *nodes;
    int32_t n, cap;
    int32_t root[256];
    added_token *tokens;
    int32_t token_count, token_cap;
    int only_first; /* the one byte that every token begins with, or -1 */
};

added_set *added_set_new(void)
{
    added_set *set = ares_calloc(1, sizeof *set);
    set->n = 1; /* node 0 means none */
    set->only_first = -1;
    return set;
}

void added_set_free(added_set *set)
{
    if (!set) return;
    ares_free(set->nodes);
    ares_free(set->tokens);
    ares_free(set);
}

static int32_t new_node(added_set *set, unsigned char byte)
{
    if (set->n >= set->cap) {
        set->cap = set->cap ? set->cap * 2 : 256;
        set->nodes = ares_realloc(set->nodes, (size_t)set->cap * sizeof(node));
    }
    set->nodes[set->n] = (node){ .byte = byte };
    return set->n++;
}

static int32_t child_of(const added_set *set, int32_t parent, unsigned char byte)
{
    int32_t at = set->nodes[parent].child;
    while (at && set->nodes[at].byte != byte) at = set->nodes[at].sibling;
    return at;
}

void added_set_put(added_set *set, ares_view text, const added_token *token)
{
    ARES_ASSERT(text.len > 0);
    const unsigned char *bytes = (const unsigned char *)text.data;
    if (!set->root[bytes[0]]) set->root[bytes[0]] = new_node(set, bytes[0]);
    int32_t at = set->root[bytes[0]];
    for (size_t i = 1; i < text.len; i++) {
        int32_t next = child_of(set, at, bytes[i]);
        if (!next) {
            next = new_node(set, bytes[i]);
            set->nodes[next].sibling = set->nodes[at].child;
            set->nodes[at].child = next;
        }
        at = next;
    }
    if (set->nodes[at].token) return;
    if (set->token_count == set->token_cap) {
        set->token_cap = set->token_cap ? set->token_cap * 2 : 64;
        set->tokens = ares_realloc(set->tokens, (size_t)set->token_cap * sizeof(added_token));
    }
    set->tokens[set->token_count++] = *token;
    set->nodes[at].token = set->token_count;
    set->only_first = set->token_count == 1 || set->only_first == bytes[0] ? bytes[0] : -1;
}

/* The leftmost token at or after `from`, of several there the longest; NULL: there is none. */
static const added_token *find(const added_set *set, const unsigned char *text, size_t len,
                               size_t from, size_t *start, size_t *end)
{
    for (size_t i = from; i < len; i++) {
        if (set->only_first >= 0) {
            const unsigned char *hit = memchr(text + i, set->only_first, len - i);
            if (!hit) return NULL;
            i = (size_t)(hit - text);
        }
        int32_t at = set->root[text[i]], best = 0;
        for (size_t k = i + 1; at; k++) {
            if (set->nodes[at].token) best = set->nodes[at].token, *end = k;
            at = k < len ? child_of(set, at, text[k]) : 0;
        }
        if (best) {
            *start = i;
            return &set->tokens[best - 1];
        }
    }
    return NULL;
}

static uint32_t char_before(const unsigned char *text, size_t at)
{
    const unsigned char *p = text + at - 1;
    while (!unicode_is_start(*p)) p--;
    return unicode_next(&p);
}

static uint32_t char_at(const unsigned char *text, size_t at)
{
    const unsigned char *p = text + at;
    return unicode_next(&p);
}

/* Bytes of a character in UTF-8. */
static size_t width_of(uint32_t c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static void add_part(const piece *p, size_t from, size_t to, int32_t id, pieces *out)
{
    if (to > from)
        pieces_add(out, (piece){ p->at + from, to - from, p->places ? p->places + from : NULL, id,
                                 p->in_source, 0 });
}

void added_split(const added_set *set, bool split_special, const piece *p, pieces *out)
{
    size_t done = 0, from = 0, start, end;
    const added_token *token;
    while (set->token_count && (token = find(set, p->at, p->len, from, &start, &end))) {
        from = end;
        if (split_special && token->special) continue;
        if (token->single_word && ((start > 0 && unicode_is_word(char_before(p->at, start))) ||
                                   (end < p->len && unicode_is_word(char_at(p->at, end)))))
            continue;
        if (token->lstrip) {
            while (start > 0 && unicode_is_space(char_before(p->at, start)))
                start -= width_of(char_before(p->at, start));
            start = ARES_MAX(start, done);
        }
        if (token->rstrip)
            while (end < p->len && unicode_is_space(char_at(p->at, end)))
                end += width_of(char_at(p->at, end));
        add_part(p, done, start, -1, out);
        add_part(p, start, end, token->id, out);
        done = end;
    }
    add_part(p, done, p->len, -1, out);
}
