/*
 * Encoding and decoding with a loaded tokenizer. In order: cutting a text into pieces; finding
 * added tokens; encoding, decoding and looking up; from tags in a text to spans of tokens.
 */
#include "tokenizer.h"

#include <string.h>

/*
 * Pieces and the steps that cut them. A piece is a range of the given text until a step changes its
 * bytes (a normal form that differs, a prefixed space); from then on it has its own bytes and,
 * where offsets are wanted, the place of each in the given text.
 */

static void pieces_add(pieces *p, piece x)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 256;
        p->items = ares_realloc(p->items, (size_t)p->cap * sizeof(piece));
    }
    p->items[p->n++] = x;
}

/* Appends bytes [from, to) of a piece, unless there are none. id: of an added token, or -1. */
static void add_part(const piece *p, size_t from, size_t to, int32_t id, pieces *out)
{
    if (to > from)
        pieces_add(out, (piece){ p->at + from, to - from, p->places ? p->places + from : NULL, id,
                                 p->in_source, 0 });
}

/* What one call of encode needs, kept for later calls. */
text_scratch *text_scratch_new(void)
{
    text_scratch *s = ares_calloc(1, sizeof *s);
    s->pattern = pattern_scratch_new();
    return s;
}

void text_scratch_free(text_scratch *s)
{
    if (!s) return;
    ares_arena_fini(&s->arena);
    ares_free(s->a.items);
    ares_free(s->b.items);
    ares_free(s->cuts.items);
    ares_free(s->cuts.hit);
    ares_free(s->changes.items);
    pattern_scratch_free(s->pattern);
    bpe_scratch_fini(&s->bpe);
    ares_str_fini(&s->repaired);
    ares_free(s);
}

/*
 * How many characters of the source start before byte `to`. Counts on from the last call, because
 * `to` mostly grows from call to call.
 */
static int64_t starts_before(text_scratch *s, size_t to)
{
    /* going back: count from the start */
    if (to < (size_t)s->counted) s->counted = s->starts = 0;
    int64_t starts = s->starts;
    for (size_t i = (size_t)s->counted; i < to; i++) starts += unicode_is_start(s->source[i]);
    s->counted = (int64_t)to;
    return s->starts = starts;
}

/* The code points of the source that bytes [from, to) of a piece stand for, to > from. */
static void piece_place(text_scratch *s, const piece *p, size_t from, size_t to, int64_t place[2])
{
    if (!p->in_source) {
        place[0] = p->places[from][0];
        place[1] = p->places[to - 1][1];
        return;
    }
    size_t base = (size_t)(p->at - s->source);
    place[0] = starts_before(s, base + from + 1) - 1;
    place[1] = starts_before(s, base + to);
}

/* Gives every byte of the piece its place in the source, before a step changes the bytes. */
static void materialize_places(text_scratch *s, piece *p)
{
    if (!s->want_places || p->places) return;
    p->places = ares_arena_alloc(&s->arena, p->len * sizeof *p->places);
    int64_t at = starts_before(s, (size_t)(p->at - s->source)) - 1;
    for (size_t i = 0; i < p->len; i++) {
        at += unicode_is_start(p->at[i]);
        p->places[i][0] = at, p->places[i][1] = at + 1;
    }
}

/* "▁" for a space is three times as many bytes; a file that asks for much more is hostile. */
enum { GROWTH_MOST = 16, GROWTH_FREE = 4096 };

/* Memory for the places of a changed piece of so many bytes; NULL where they are not wanted. */
static int64_t (*new_places(text_scratch *s, size_t len))[2]
{
    return s->want_places ? ares_arena_alloc(&s->arena, (len + 1) * sizeof(int64_t[2])) : NULL;
}

/* Puts a text, which is not empty, before the piece, with the place of its first character. */
static void put_before(text_scratch *s, ares_view text, piece *p)
{
    materialize_places(s, p);
    unsigned char *bytes = ares_arena_alloc(&s->arena, p->len + text.len);
    int64_t(*places)[2] = new_places(s, p->len + text.len);
    memcpy(bytes, text.data, text.len);
    memcpy(bytes + text.len, p->at, p->len);
    for (size_t i = 0; places && i < text.len; i++)
        memcpy(places[i], p->places[0], sizeof places[0]);
    if (places) memcpy(places + text.len, p->places, p->len * sizeof *places);
    *p = (piece){ bytes, p->len + text.len, places, p->id, false, 0 };
}

/* Writes `to` for every `from`, with the place of the last byte of `from`. */
static int replace(text_scratch *s, ares_view from, ares_view to, piece *p)
{
    /* twice through the text: first for the new length */
    ares_view old = { (const char *)p->at, p->len };
    size_t n = 0, len = 0, growth = to.len > from.len ? to.len - from.len : 0;
    int64_t hit = -1;
    /* an empty pattern matches nothing, as in the library */
    if (!from.len) return ARES_OK;
    for (size_t at = 0; (hit = ares_view_find(old, from, at)) >= 0; at = (size_t)hit + from.len)
        n++;
    if (!n) return ARES_OK;
    if (p->len + n * growth > GROWTH_MOST * s->source_len + GROWTH_FREE)
        return ares_fail(ARES_ELIMIT,
                         "text: normalizer: Replace of '%.*s' makes %zu bytes of a text of %zu; at "
                         "most %d times as many are supported: give it a shorter 'content'",
                         (int)ARES_MIN(from.len, 80), from.data, p->len + n * growth, s->source_len,
                         GROWTH_MOST);
    materialize_places(s, p);
    unsigned char *bytes = ares_arena_alloc(&s->arena, p->len + n * growth + 1);
    int64_t(*places)[2] = new_places(s, p->len + n * growth);
    for (size_t at = 0; at < p->len;) {
        hit = ares_view_find(old, from, at);
        size_t stop = hit < 0 ? p->len : (size_t)hit;
        memcpy(bytes + len, p->at + at, stop - at);
        if (places) memcpy(places + len, p->places + at, (stop - at) * sizeof *places);
        len += stop - at;
        at = stop;
        if (hit < 0) break;
        at += from.len;
        if (to.len) memcpy(bytes + len, to.data, to.len);
        for (size_t i = 0; places && i < to.len; i++)
            memcpy(places[len + i], p->places[at - 1], sizeof places[0]);
        len += to.len;
    }
    *p = (piece){ bytes, len, places, p->id, false, 0 };
    return ARES_OK;
}

/*
 * The places of the new bytes follow the library: a character that stands for a source character
 * has the place of the first source character not used yet; one that stands for none has the place
 * of the last byte used. `used` counts the bytes of the old piece that are used up.
 */
static void to_form(unicode_form form, text_scratch *s, piece *p)
{
    if (unicode_is_normal(form, p->at, p->len)) return;
    materialize_places(s, p);
    unicode_changes *changes = &s->changes;
    unicode_normalize(form, p->at, p->len, changes);
    /* a code point has at most 4 bytes */
    unsigned char *bytes = ares_arena_alloc(&s->arena, (size_t)changes->n * 4 + 1);
    int64_t(*places)[2] = new_places(s, (size_t)changes->n * 4);
    size_t len = 0, used = 0;
    for (int64_t i = 0; i < changes->n; i++) {
        int n = unicode_put(changes->items[i].c, bytes + len);
        int32_t change = changes->items[i].change;
        if (places) {
            /* change > 0: the character was added after the one before it */
            size_t from = change > 0 && used > 0 ? used - 1 : used;
            for (int k = 0; k < n; k++) {
                bool nowhere = (change > 0 && used == 0) || from >= p->len;
                places[len + (size_t)k][0] = nowhere ? 0 : p->places[from][0];
                places[len + (size_t)k][1] = nowhere ? 0 : p->places[from][1];
            }
        }
        /* change < 0: it stands for so many more characters of the source */
        for (int32_t take = change > 0 ? 0 : 1 - change; take > 0 && used < p->len; take--)
            for (used++; used < p->len && !unicode_is_start(p->at[used]); used++) {}
        len += (size_t)n;
    }
    *p = (piece){ bytes, len, places, p->id, false, 0 };
}

int split_normalize(const normal_step *step, text_scratch *s, piece *p)
{
    /* an earlier step may have left nothing */
    if (p->len == 0) return ARES_OK;
    if (step->kind == NORMAL_REPLACE) return replace(s, step->pattern, step->text, p);
    if (step->kind == NORMAL_FORM) to_form(step->form, s, p);
    else if (step->text.len) put_before(s, step->text, p);
    return ARES_OK;
}

/* Puts the mark before a piece that begins neither with it nor with a space. */
static void prefix(const split_step *step, text_scratch *s, piece *p)
{
    bool first = p->in_source ? p->at == s->source : p->places && p->places[0][0] == 0;
    if (first && s->after == AFTER_TEXT) return;
    first &= s->after == AFTER_NOTHING;
    if (p->at[0] == ' ' || ares_view_starts((ares_view){ (const char *)p->at, p->len }, step->mark))
        return;
    if (first || !step->first_only) put_before(s, step->mark, p);
}

/* Writes every byte as its character of the byte alphabet, one or two bytes long. */
static void map_to_alphabet(text_scratch *s, piece *p)
{
    materialize_places(s, p);
    unsigned char *bytes = ares_arena_alloc(&s->arena, p->len * 2);
    int64_t(*places)[2] = new_places(s, p->len * 2);
    size_t len = 0;
    for (size_t i = 0; i < p->len; i++) {
        int n = unicode_put(unicode_of_byte[p->at[i]], bytes + len);
        for (int k = 0; places && k < n; k++)
            memcpy(places[len + (size_t)k], p->places[i], sizeof places[0]);
        len += (size_t)n;
    }
    *p = (piece){ bytes, len, places, p->id, false, 0 };
}

/* ---- cutting */
/* Notes a range of the piece being cut. */
static void cut(text_scratch *s, size_t from, size_t to, bool hit)
{
    if (s->cuts.n == s->cuts.cap) {
        s->cuts.cap = s->cuts.cap ? s->cuts.cap * 2 : 256;
        s->cuts.items = ares_realloc(s->cuts.items, (size_t)s->cuts.cap * sizeof *s->cuts.items);
        s->cuts.hit = ares_realloc(s->cuts.hit, (size_t)s->cuts.cap * sizeof *s->cuts.hit);
    }
    s->cuts.items[s->cuts.n][0] = from;
    s->cuts.items[s->cuts.n][1] = to;
    s->cuts.hit[s->cuts.n++] = hit;
}

/* Cuts a piece by the step, and appends what stays of it to s->b. */
static int cut_piece(const split_step *step, text_scratch *s, const piece *p)
{
    /* divides the whole piece, in order, into parts that match and the parts between them */
    size_t done = 0;
    s->cuts.n = 0;
    if (step->kind == STEP_WORDS) {
        for (const unsigned char *q = p->at, *end = q + p->len; q < end;) {
            size_t from = (size_t)(q - p->at);
            q = scan_word(step->scan, q, end);
            add_part(p, from, (size_t)(q - p->at), -1, &s->b);
        }
        return ARES_OK;
    }
    if (step->kind == STEP_PATTERN) {
        pattern_match it = { 0 };
        int rc;
        while ((rc = pattern_next(step->pattern, s->pattern, p->at, p->len, &it)) > 0) {
            if (it.start > done) cut(s, done, it.start, step->invert);
            cut(s, it.start, it.end, !step->invert);
            done = it.end;
        }
        ARES_TRY(rc);
    } else {
        for (const unsigned char *q = p->at, *end = q + p->len; q < end;) {
            size_t from = (size_t)(q - p->at);
            if (step->kind == STEP_NUMERIC && *q < 0x80 && (*q < '0' || *q > '9')) {
                q++;
                continue;
            }
            uint32_t c = unicode_next(&q);
            if (!(step->kind == STEP_NUMERIC ? unicode_is_numeric(c) : unicode_is_space(c)))
                continue;
            if (from > done) cut(s, done, from, false);
            done = (size_t)(q - p->at);
            cut(s, from, done, true);
        }
    }
    if (done < p->len) cut(s, done, p->len, step->invert);
    size_t(*cuts)[2] = s->cuts.items;
    const bool *hit = s->cuts.hit;
    int64_t n = s->cuts.n;
    switch (step->behavior) {
    /* matches and the rest alternate; REMOVED drops the matches */
    case SPLIT_ISOLATED:
    case SPLIT_REMOVED:
        for (int64_t i = 0; i < n; i++)
            if (!hit[i] || step->behavior == SPLIT_ISOLATED)
                add_part(p, cuts[i][0], cuts[i][1], -1, &s->b);
        return ARES_OK;
    case SPLIT_CONTIGUOUS: /* runs of matches, runs of the rest */
        for (int64_t i = 0, k; i < n; i = k) {
            for (k = i + 1; k < n && hit[k] == hit[i]; k++) {}
            add_part(p, cuts[i][0], cuts[k - 1][1], -1, &s->b);
        }
        return ARES_OK;
    /* a match joins the part before it, unless that is a match too */
    case SPLIT_MERGED_WITH_PREVIOUS:
        for (int64_t i = 0, k; i < n; i = k) {
            k = i + 1;
            if (!hit[i] && k < n && hit[k]) k++;
            add_part(p, cuts[i][0], cuts[k - 1][1], -1, &s->b);
        }
        return ARES_OK;
    case SPLIT_MERGED_WITH_NEXT: /* the last of a run of matches joins the part after it */
        for (int64_t i = 0, k; i < n; i = k) {
            k = i + 1;
            if (hit[i] && k < n && !hit[k]) k++;
            add_part(p, cuts[i][0], cuts[k - 1][1], -1, &s->b);
        }
        return ARES_OK;
    }
    return ARES_OK;
}

/* Runs a step on every piece of s->a that is not an added token; the result is s->a again. */
static int split_run(const split_step *step, text_scratch *s)
{
    s->b.n = 0;
    for (int64_t i = 0; i < s->a.n; i++) {
        piece *p = &s->a.items[i];
        if (p->id >= 0) {
            pieces_add(&s->b, *p);
        } else if (step->kind == STEP_PREFIX || step->kind == STEP_MARK_SPACES ||
                   step->kind == STEP_BYTE_ALPHABET) {
            if (step->kind == STEP_PREFIX) prefix(step, s, p);
            else if (step->kind == STEP_BYTE_ALPHABET) map_to_alphabet(s, p);
            else ARES_TRY(replace(s, ARES_VIEW(" "), step->mark, p));
            pieces_add(&s->b, *p);
        } else {
            ARES_TRY(cut_piece(step, s, p));
        }
    }
    pieces swap = s->a;
    s->a = s->b;
    s->b = swap;
    return ARES_OK;
}

/*
 * Added tokens in a text: a trie over bytes, whose root is a table and whose other nodes are linked
 * lists of children. lstrip, rstrip and single_word are checked in the library's order: a match
 * that single_word refuses still hides tokens that begin inside it, and white space that one token
 * has taken is not given to the next.
 */

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

/* An empty set; tokens are put into it while a tokenizer is loaded. */
added_set *added_set_new(void)
{
    added_set *set = ares_calloc(1, sizeof *set);
    set->n = 1; /* node 0 means none */
    set->only_first = -1;
    return set;
}

static void added_set_free(added_set *set)
{
    if (!set) return;
    ares_free(set->nodes);
    ares_free(set->tokens);
    ares_free(set);
}

/* Returns the index of a node, since growing moves the nodes. */
static int32_t new_node(added_set *set, unsigned char byte)
{
    if (set->n >= set->cap) {
        set->cap = set->cap ? set->cap * 2 : 256;
        set->nodes = ares_realloc(set->nodes, (size_t)set->cap * sizeof(node));
    }
    set->nodes[set->n] = (node){ .byte = byte };
    return set->n++;
}

/* The child for this byte; 0: there is none. */
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
    /* the first token of a text counts */
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
        /* most sets begin with "<": memchr finds it faster than the trie */
        if (set->only_first >= 0) {
            const unsigned char *hit = memchr(text + i, set->only_first, len - i);
            if (!hit) return NULL;
            i = (size_t)(hit - text);
        }
        int32_t at = set->root[text[i]], best = 0;
        /* down the trie as far as the text goes; the last token passed is the longest */
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

/* The character that ends at byte `at`, which is above 0; *width: its bytes. */
static uint32_t char_before(const unsigned char *text, size_t at, size_t *width)
{
    const unsigned char *p = text + at - 1;
    while (!unicode_is_start(*p)) p--;
    *width = (size_t)(text + at - p);
    return unicode_next(&p);
}

/* The character that begins at byte `at`; *width: its bytes. */
static uint32_t char_at(const unsigned char *text, size_t at, size_t *width)
{
    const unsigned char *p = text + at;
    uint32_t c = unicode_next(&p);
    *width = (size_t)(p - text) - at;
    return c;
}

/*
 * Cuts the piece at the added tokens in it and appends the parts to out; split_special: not at
 * special ones.
 */
static void added_split(const added_set *set, bool split_special, const piece *p, pieces *out)
{
    size_t done = 0, from = 0, start, end, width;
    const added_token *token;
    while (set->token_count && (token = find(set, p->at, p->len, from, &start, &end))) {
        /* a match hides tokens that begin inside it, even when it is refused below */
        from = end;
        if (split_special && token->special) continue;
        if (token->single_word &&
            ((start > 0 && unicode_is_word(char_before(p->at, start, &width))) ||
             (end < p->len && unicode_is_word(char_at(p->at, end, &width)))))
            continue;
        if (token->lstrip) {
            while (start > 0 && unicode_is_space(char_before(p->at, start, &width))) start -= width;
            /* not into the token before, which took that white space */
            start = ARES_MAX(start, done);
        }
        if (token->rstrip)
            while (end < p->len && unicode_is_space(char_at(p->at, end, &width))) end += width;
        add_part(p, done, start, -1, out);
        add_part(p, start, end, token->id, out);
        done = end;
    }
    add_part(p, done, p->len, -1, out);
}

/*
 * Encoding, decoding and looking up. Encoding follows the order of the library: find added tokens
 * in the raw text; normalise the rest and find added tokens in it; cut the rest into words; words
 * to ids; post-process.
 */

/* ---- ids */
void ares_ids_fini(ares_ids *ids)
{
    ares_free(ids->ids);
    ares_free(ids->offsets);
    *ids = (ares_ids){ 0 };
}

void ares_ids_clear(ares_ids *ids)
{
    ids->n = 0;
}

/* Makes space for `more` ids, and for offsets where they are wanted. */
static void reserve(ares_ids *ids, int64_t more)
{
    int64_t need = ids->n + more;
    if (need > ids->cap) {
        ids->cap = ARES_MAX(need, ids->cap * 2 + 64);
        ids->ids = ares_realloc(ids->ids, (size_t)ids->cap * sizeof *ids->ids);
        if (ids->offsets)
            ids->offsets = ares_realloc(ids->offsets, (size_t)ids->cap * sizeof *ids->offsets);
    }
    if (ids->want_offsets && !ids->offsets && ids->cap)
        ids->offsets = ares_calloc((size_t)ids->cap, sizeof *ids->offsets);
}

/* Appends an id; start and end count characters, and are kept where offsets are wanted. */
void ares_ids_add(ares_ids *ids, int32_t id, int64_t start, int64_t end)
{
    reserve(ids, 1);
    ids->ids[ids->n] = id;
    if (ids->offsets) ids->offsets[ids->n][0] = start, ids->offsets[ids->n][1] = end;
    ids->n++;
}

enum { PIECES_KEPT = 1 << 18, /* of 48 bytes */ TEXT_KEPT = 4 << 20 };

/* ---- scratch: kept in slots of the tokenizer, taken and given back by atomic exchange */
static text_scratch *take_scratch(const ares_tokenizer *tokenizer)
{
    /* const promises the same results; the scratch may change */
    ares_tokenizer *t = (ares_tokenizer *)tokenizer;
    for (int i = 0; i < SCRATCH_KEPT; i++) {
        text_scratch *s = atomic_exchange(&t->scratch[i], NULL);
        if (s) return s;
    }
    return text_scratch_new();
}

static void give_scratch(const ares_tokenizer *tokenizer, text_scratch *s)
{
    ares_tokenizer *t = (ares_tokenizer *)tokenizer;
    /* a text of many megabytes leaves gigabytes, which a program that runs on would keep */
    bool large = s->a.cap > PIECES_KEPT || s->b.cap > PIECES_KEPT || s->source_len > TEXT_KEPT;
    for (int i = 0; i < SCRATCH_KEPT && !large; i++) {
        text_scratch *none = NULL;
        if (atomic_compare_exchange_strong(&t->scratch[i], &none, s)) return;
    }
    text_scratch_free(s);
}

/* ---- encoding */
/*
 * Whether the last step cuts words and nothing follows it: encoding then cuts and encodes a word at
 * a time, without a list of all.
 */
static bool ends_in_words(const ares_tokenizer *t)
{
    return t->step_count && t->steps[t->step_count - 1].kind == STEP_WORDS && !t->mapped;
}

/* Cuts the source into words and added tokens, in s->a; all but the last cut if ends_in_words. */
static int find_pieces(const ares_tokenizer *t, text_scratch *s)
{
    s->a.n = s->b.n = 0;
    if (s->source_len == 0) return ARES_OK;
    added_split(t->raw_set, t->split_special,
                &(piece){ s->source, s->source_len, NULL, -1, true, 0 }, &s->a);
    for (int64_t i = 0; i < s->a.n; i++) {
        piece p = s->a.items[i];
        if (p.id >= 0) {
            pieces_add(&s->b, p);
            continue;
        }
        /* added tokens are found a second time, in the normalised text */
        bool goes_on = s->after == AFTER_TEXT && p.at == s->source;
        for (int k = 0; k < t->normal_count; k++)
            if (!goes_on || t->normals[k].kind != NORMAL_PREPEND)
                ARES_TRY(split_normalize(&t->normals[k], s, &p));
        added_split(t->normalized_set, t->split_special, &p, &s->b);
    }
    pieces swap = s->a;
    s->a = s->b;
    s->b = swap;
    for (int k = 0; k < t->step_count - ends_in_words(t); k++) ARES_TRY(split_run(&t->steps[k], s));
    return ARES_OK;
}

/*
 * Offsets of a word in which bytes without a token were left out: the library counts lengths in the
 * byte alphabet, without those bytes.
 */
static void place_irregular(text_scratch *s, const piece *p, const bpe_symbol *symbol,
                            size_t *counted, int64_t place[2])
{
    size_t first = 0, last = 0, at = 0;
    for (size_t i = 0; i < p->len; i++) {
        size_t width = unicode_of_byte[p->at[i]] < 0x80 ? 1 : 2;
        if (*counted >= at && *counted < at + width) first = i;
        if (*counted + symbol->mapped_len - 1 >= at) last = i;
        at += width;
    }
    /* characters of the byte alphabet in the symbols before */
    *counted += symbol->mapped_len;
    piece_place(s, p, first, last + 1, place);
}

/* Appends the ids of a word and the places of their bytes. */
static void encode_word(const ares_tokenizer *t, text_scratch *s, const piece *p,
                        const bpe_query *query, ares_ids *out)
{
    /* its ids lie in the scratch, until the next word */
    bpe_word word = bpe_answer(t->model, &s->bpe, query);
    /* four at once are cheaper than as many as there are */
    if (out->n + word.n + 4 > out->cap) reserve(out, word.n + 4);
    memcpy(out->ids + out->n, word.ids, 4 * sizeof *word.ids);
    if (word.n > 4) memcpy(out->ids + out->n, word.ids, (size_t)word.n * sizeof *word.ids);
    if (s->want_offsets) {
        size_t at = 0;
        for (int64_t i = 0; i < word.n; i++) {
            int64_t *place = out->offsets[out->n + i];
            if (word.symbols && t->sentencepiece.on) {
                piece_place(s, p, at, at + word.symbols[i].len, place);
                at += word.symbols[i].len;
                continue;
            }
            if (word.symbols) {
                /* a word with bytes that have no token */
                place_irregular(s, p, &word.symbols[i], &at, place);
                continue;
            }
            size_t len = word.n == 1 ? p->len : t->tokens[word.ids[i]].bytes.len;
            piece_place(s, p, at, at + len, place);
            at += len;
        }
    }
    out->n += word.n;
}

/* ---- post-processing */
/*
 * values [n]: the texts of the tokens; of an added token the text it matched, with the white space
 * that lstrip and rstrip took.
 */
static void trim_offsets(const post_step *step, const ares_view *values, int64_t (*offsets)[2],
                         int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t leading = 0, trailing = 0, *place = offsets[i];
        bool begun = false;
        const unsigned char *p = (const unsigned char *)values[i].data, *end = p + values[i].len;
        while (p < end) {
            uint32_t c = unicode_next(&p);
            /* a space is white space in the byte alphabet too, where it has another character */
            bool space = c == unicode_of_byte[' '] || unicode_is_space(c);
            if (!space) begun = true, trailing = 0;
            else ++trailing;
            if (!begun) ++leading;
        }
        /* the space of add_prefix_space */
        if (leading == 1 && step->add_prefix_space && (i == 0 || place[0] == 0)) leading = 0;
        /* " the" covers "the": the offsets leave out the space */
        place[0] = ARES_MIN(place[0] + leading, place[1]);
        if (trailing > 0 && place[1] >= trailing)
            place[1] = ARES_MAX(place[1] - trailing, place[0]);
    }
}

/* Puts ids before the id at `at`, with the offsets [0, 0). */
static void insert(ares_ids *out, int64_t at, const int32_t *ids, int64_t n)
{
    reserve(out, n);
    size_t after = (size_t)(out->n - at);
    memmove(out->ids + at + n, out->ids + at, after * sizeof *out->ids);
    if (n) memcpy(out->ids + at, ids, (size_t)n * sizeof *ids);
    if (out->offsets) {
        memmove(out->offsets + at + n, out->offsets + at, after * sizeof *out->offsets);
        if (n) memset(out->offsets + at, 0, (size_t)n * sizeof *out->offsets);
    }
    out->n += n;
}

/*
 * Runs the post-processor on the ids from `first` on. values: the texts of these ids, which
 * trimming reads.
 */
static void post_process(const ares_tokenizer *t, text_scratch *s, bool add_special_tokens,
                         int64_t first, ares_ids *out)
{
    bool trims = false;
    int64_t most = out->n - first;
    for (int k = 0; k < t->post_count; k++) {
        trims |= t->post[k].trim;
        most += t->post[k].before_count + t->post[k].after_count;
    }
    ares_view *values = NULL;
    if (trims && s->want_offsets) {
        /* space for the ids that the steps below add */
        values = ares_arena_alloc(&s->arena, (size_t)ARES_MAX(most, 1) * sizeof *values);
        for (int64_t i = first; i < out->n; i++) values[i - first] = t->tokens[out->ids[i]].text;
        for (int64_t i = 0; i < s->a.n; i++) {
            const piece *p = &s->a.items[i];
            if (p->id >= 0) values[p->index - first] = (ares_view){ (const char *)p->at, p->len };
        }
    }
    for (int k = 0; k < t->post_count; k++) {
        const post_step *step = &t->post[k];
        int64_t n = out->n - first;
        if (step->trim && values) trim_offsets(step, values, out->offsets + first, n);
        if (step->trim || !add_special_tokens) continue;
        if (values) {
            memmove(values + step->before_count, values, (size_t)n * sizeof *values);
            for (int64_t i = 0; i < step->before_count; i++)
                values[i] = t->tokens[step->before[i]].text;
            for (int64_t i = 0; i < step->after_count; i++)
                values[step->before_count + n + i] = t->tokens[step->after[i]].text;
        }
        /* special tokens of the text as a whole: "<s>" before it, "</s>" after it */
        insert(out, first, step->before, step->before_count);
        insert(out, out->n, step->after, step->after_count);
    }
}

static int encode_text(const ares_tokenizer *t, ares_view text, bool add_special_tokens, int after,
                       ares_ids *out)
{
    /* an emptied list that no longer wants offsets */
    if (out->n == 0 && !out->want_offsets && out->offsets) {
        ares_free(out->offsets);
        out->offsets = NULL;
    }
    ARES_ASSERT(out->n == 0 || out->want_offsets == (out->offsets != NULL));
    text_scratch *s = take_scratch(t);
    ares_arena_reset(&s->arena);
    s->source = (const unsigned char *)text.data;
    s->source_len = text.len;
    s->counted = s->starts = 0;
    s->want_offsets = out->want_offsets;
    s->after = after;
    /* what is put before a text depends on where it is */
    s->want_places = out->want_offsets || t->keeps_places || after == AFTER_TEXT;
    s->bpe.lengths = out->want_offsets && t->sentencepiece.on;
    /* invalid bytes become U+FFFD, as when Python decodes with errors="replace" */
    if (unicode_valid(s->source, text.len) < text.len) {
        ares_str_clear(&s->repaired);
        unicode_repair(&s->repaired, s->source, text.len);
        s->source = (const unsigned char *)s->repaired.data;
        s->source_len = s->repaired.len;
    }
    int64_t first = out->n;
    reserve(out, 1);
    int rc = find_pieces(t, s);
    for (int64_t i = 0; rc == ARES_OK && i < s->a.n; i++) {
        piece *p = &s->a.items[i];
        if (p->id >= 0) {
            int64_t place[2] = { 0, 0 };
            if (s->want_offsets) piece_place(s, p, 0, p->len, place);
            /* where its id is, for the trimming of offsets */
            p->index = out->n;
            ares_ids_add(out, p->id, place[0], place[1]);
        } else {
            if (t->mapped) {
                /* rewrites a piece in the byte alphabet as the bytes that it stands for */
                unsigned char *bytes = ares_arena_alloc(&s->arena, p->len);
                size_t len = 0;
                for (const unsigned char *q = p->at, *end = q + p->len; q < end;) {
                    size_t from = (size_t)(q - p->at);
                    bytes[len] = (unsigned char)unicode_byte_of(unicode_next(&q));
                    if (p->places) memmove(p->places[len], p->places[from], sizeof p->places[0]);
                    len++;
                }
                p->at = bytes;
                p->len = len;
            }
            /* the source is known to go on after the piece */
            const unsigned char *end = p->at + p->len, *limit = p->in_source && !t->mapped
                                                                    ? s->source + s->source_len
                                                                    : end;
            scan_kind scan = ends_in_words(t) ? t->steps[t->step_count - 1].scan : SCAN_NONE;
            piece word = *p;
            for (const unsigned char *next = p->at; word.at < end;) {
                /* as many words are asked for as may be on their way from memory at once */
                bpe_query asked[16];
                int n = 0;
                for (const unsigned char *from; n < ARES_COUNT(asked) && next < end; n++) {
                    from = next;
                    next = scan                  ? scan_word(scan, from, end)
                           : t->sentencepiece.on ? bpe_cut(t->model, from, end)
                                                 : end;
                    bpe_ask(&s->bpe, from, (size_t)(next - from), limit, &asked[n]);
                }
                for (int k = 0; k < n; k++) {
                    word.at = asked[k].word;
                    word.len = asked[k].len;
                    if (p->places) word.places = p->places + (word.at - p->at);
                    encode_word(t, s, &word, &asked[k], out);
                }
                word.at = next;
            }
        }
    }
    if (rc == ARES_OK) post_process(t, s, add_special_tokens, first, out);
    /* nothing of a failed text stays */
    else out->n = first;
    give_scratch(t, s);
    return rc;
}

int ares_tokenizer_encode(const ares_tokenizer *t, ares_view text, bool add_special_tokens,
                          ares_ids *out)
{
    return encode_text(t, text, add_special_tokens, AFTER_NOTHING, out);
}

int ares_tokenizer_encode_rest(const ares_tokenizer *t, ares_view text, ares_ids *out)
{
    int32_t last = out->n ? out->ids[out->n - 1] : -1;
    /* the unknown token stands for text, though it is mostly listed as added */
    bool token = last >= 0 && last < t->token_count && t->tokens[last].added && last != t->unk_id;
    return encode_text(t, text, false,
                       !out->n ? AFTER_NOTHING
                       : token ? AFTER_TOKEN
                               : AFTER_TEXT,
                       out);
}

/* ---- decoding */
void ares_decoder_init(ares_decoder *d, const ares_tokenizer *t, bool skip_special_tokens)
{
    *d = (ares_decoder){ .tokenizer = t,
                         .skip_special_tokens = skip_special_tokens,
                         .strip = t->sentencepiece.strip_most };
}

/* Whole characters, without those that are left out where the text begins. */
static void add_stripped(ares_decoder *d, ares_view text, ares_str *out)
{
    ares_view strip = d->tokenizer->sentencepiece.strip;
    while (d->strip && ares_view_starts(text, strip)) {
        text = (ares_view){ text.data + strip.len, text.len - strip.len };
        d->strip--;
    }
    if (text.len == 0) return;
    d->strip = 0;
    ares_str_add_view(out, text);
}

/* A run of bytes is text if all of it is UTF-8; else every byte of it, valid or not, is U+FFFD. */
static void end_run(ares_decoder *d, ares_str *out)
{
    ares_view run = ares_str_view(&d->run);
    bool valid = unicode_valid((const unsigned char *)run.data, run.len) == run.len;
    if (valid) add_stripped(d, run, out);
    for (size_t i = 0; i < run.len && !valid; i++) add_stripped(d, ARES_VIEW("\xef\xbf\xbd"), out);
    ares_str_clear(&d->run);
}

void ares_decoder_add(ares_decoder *d, int32_t id, ares_str *out)
{
    const ares_tokenizer *t = d->tokenizer;
    /* an id without a token is no text, as in the library */
    if (id < 0 || id >= t->token_count || !t->tokens[id].text.data) return;
    if (d->skip_special_tokens && t->tokens[id].special) return;
    const unsigned char *bytes = (const unsigned char *)t->tokens[id].bytes.data;
    size_t len = t->tokens[id].bytes.len;
    bool open;
    if (t->sentencepiece.on && !d->eager) {
        if (t->tokens[id].is_byte) {
            ares_str_add_view(&d->run, t->tokens[id].bytes);
            return;
        }
        if (d->run.len) end_run(d, out);
        add_stripped(d, t->tokens[id].bytes, out);
        return;
    }
    /* complete the character that earlier tokens began, byte by byte */
    while (d->pending_len && len) {
        d->pending[d->pending_len++] = *bytes++;
        len--;
        int n = unicode_piece(d->pending, (size_t)d->pending_len, &open);
        if (n > 0) {
            ares_str_add(out, (const char *)d->pending, (size_t)n);
            d->pending_len = 0;
        } else if (!open) { /* the last byte broke it, and may begin another character */
            ares_str_add(out, "\xef\xbf\xbd", 3);
            d->pending_len = 0;
            bytes--, len++;
        }
    }
    for (size_t at = 0; at < len;) {
        /* valid bytes in one piece, then the character that breaks them */
        size_t good = unicode_valid(bytes + at, len - at);
        ares_str_add(out, (const char *)bytes + at, good);
        if ((at += good) == len) return;
        int n = unicode_piece(bytes + at, len - at, &open);
        /* it may go on in the next token */
        if (open) {
            memcpy(d->pending, bytes + at, len - at);
            d->pending_len = (int)(len - at);
            return;
        }
        ares_str_add(out, "\xef\xbf\xbd", 3);
        at += (size_t)-n;
    }
}

void ares_decoder_finish(ares_decoder *d, ares_str *out)
{
    if (d->run.len) end_run(d, out);
    ares_str_fini(&d->run);
    if (d->pending_len) ares_str_add(out, "\xef\xbf\xbd", 3);
    d->pending_len = 0;
}

int ares_tokenizer_decode(const ares_tokenizer *t, const int32_t *ids, int64_t n,
                          bool skip_special_tokens, ares_str *out)
{
    enum { AHEAD = 12 }; /* tokens that are on their way from memory */
    size_t from = out->len;
    if (t->sentencepiece.on) {
        ares_decoder d;
        ares_decoder_init(&d, t, skip_special_tokens);
        for (int64_t i = 0; i < n; i++) ares_decoder_add(&d, ids[i], out);
        ares_decoder_finish(&d, out);
        return ARES_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->token_count) continue;
        const spelling *token = &t->spellings[ids[i]];
        if (i + AHEAD < n && (uint32_t)ids[i + AHEAD] < (uint32_t)t->token_count)
            __builtin_prefetch(&t->spellings[ids[i + AHEAD]]);
        if (token->len == SPELLED_ELSEWHERE) {
            const token_info *other = &t->tokens[ids[i]];
            /* an id without a token is no text, as in the library */
            if (other->text.data && !(skip_special_tokens && other->special))
                ares_str_add_view(out, other->bytes);
            continue;
        }
        if (out->cap - out->len <= sizeof *token) ares_str_reserve(out, out->cap * 2 + 256);
        /* a fixed number of bytes is faster than as many as there are */
        memcpy(out->data + out->len, token, sizeof *token);
        out->len += token->len;
    }
    if (!out->data) return ARES_OK; /* no text, and nothing before it */
    out->data[out->len] = 0;
    const unsigned char *bytes = (const unsigned char *)out->data + from;
    size_t len = out->len - from, good = len ? unicode_valid(bytes, len) : 0;
    if (good < len) {
        ares_str repaired = { 0 };
        unicode_repair(&repaired, bytes + good, len - good);
        out->len = from + good;
        ares_str_add_view(out, ares_str_view(&repaired));
        ares_str_fini(&repaired);
    }
    return ARES_OK;
}

/* ---- looking up */
/* Of an id outside the vocabulary, a token without text. */
static const token_info *info(const ares_tokenizer *t, int32_t id)
{
    static const token_info none;
    return id >= 0 && id < t->token_count ? &t->tokens[id] : &none;
}

ares_view ares_tokenizer_token_bytes(const ares_tokenizer *t, int32_t id)
{
    return info(t, id)->bytes;
}
bool ares_tokenizer_is_special(const ares_tokenizer *t, int32_t id)
{
    return info(t, id)->special;
}
int64_t ares_tokenizer_vocab_size(const ares_tokenizer *t)
{
    return t->token_count;
}
int32_t ares_tokenizer_role_id(const ares_tokenizer *t, ares_token_role role)
{
    return t->role_ids[role];
}
const ares_json *ares_tokenizer_config(const ares_tokenizer *t)
{
    return t->config;
}

ares_view ares_tokenizer_chat_template(const ares_tokenizer *t, const char *name)
{
    if (!name) name = "default";
    /* a model with one template calls it default */
    bool usual = strcmp(name, "default") == 0;
    if (usual && t->chat_template.data) return t->chat_template;
    const ares_json *json = ares_json_get(t->config, "chat_template");
    if (json && json->type == ARES_JSON_STRING && usual) return json->text;
    const ares_json *text = tokenizer_template_named(json, name);
    return text ? text->text : (ares_view){ NULL, 0 };
}

void ares_tokenizer_free(ares_tokenizer *t)
{
    if (!t) return;
    for (int i = 0; i < SCRATCH_KEPT; i++) text_scratch_free(atomic_load(&t->scratch[i]));
    for (int i = 0; i < t->step_count; i++) pattern_free(t->steps[i].pattern);
    bpe_free(t->model);
    added_set_free(t->raw_set);
    added_set_free(t->normalized_set);
    ares_map_free(t->vocab);
    ares_map_free(t->added);
    ares_map_free(t->words);
    ares_free(t->added_tokens);
    ares_free(t->tokens);
    ares_free(t->spellings);
    ares_arena_fini(&t->arena);
    ares_free(t);
}

/* ---- spans: from a pair of tags in a text to the range of tokens from one to the other */
bool ares_span_text(ares_view text, ares_view start_tag, ares_view end_tag, ares_view *inner)
{
    int64_t from = ares_view_find(text, start_tag, 0);
    if (from < 0) return false;
    size_t begin = (size_t)from + start_tag.len;
    int64_t to = ares_view_find(text, end_tag, begin);
    if (to < 0) return false;
    *inner = (ares_view){ text.data + begin, (size_t)to - begin };
    return true;
}

bool ares_span_find(ares_view text, const int64_t (*offsets)[2], int64_t n, ares_view start_tag,
                    ares_view end_tag, int64_t *first, int64_t *end)
{
    ares_view inner;
    if (!ares_span_text(text, start_tag, end_tag, &inner)) return false;
    int64_t from = inner.data - text.data - (int64_t)start_tag.len;
    int64_t to = inner.data - text.data + (int64_t)(inner.len + end_tag.len);
    int64_t begin = -1, last = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t x = offsets[i][0], y = offsets[i][1];
        if (y == 0) continue; /* a special token or padding */
        if (begin < 0 && x >= from) begin = i;
        if (begin >= 0 && y <= to) last = i;
        if (x > to) break;
    }
    if (begin < 0 || last < begin) return false;
    *first = begin;
    *end = last + 1;
    return true;
}

void text_span_offset(ares_view bytes, bool special, ares_str *text, int64_t offset[2])
{
    offset[0] = special ? 0 : (int64_t)text->len;
    if (!special) ares_str_add_view(text, bytes);
    offset[1] = special ? 0 : (int64_t)text->len;
}

void ares_span_offsets(const ares_tokenizer *t, const int32_t *ids, int64_t n, ares_str *text,
                       int64_t (*offsets)[2])
{
    for (int64_t i = 0; i < n; i++)
        text_span_offset(ares_tokenizer_token_bytes(t, ids[i]),
                         ares_tokenizer_is_special(t, ids[i]), text, offsets[i]);
}
