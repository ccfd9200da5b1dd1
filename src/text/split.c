/*
 * Pieces and the steps that cut them. A piece is a range of the given text until a step changes its
 * bytes (a normal form that differs, a prefixed space); from then on it has its own bytes and,
 * where offsets are wanted, the place of each in the given text.
 */
#include "split.h"

#include <string.h>

void pieces_add(pieces *p, piece x)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 256;
        p->items = ares_realloc(p->items, (size_t)p->cap * sizeof(piece));
    }
    p->items[p->n++] = x;
}

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
    if (to < (size_t)s->counted) s->counted = s->starts = 0;
    int64_t starts = s->starts;
    for (size_t i = (size_t)s->counted; i < to; i++) starts += unicode_is_start(s->source[i]);
    s->counted = (int64_t)to;
    return s->starts = starts;
}

void piece_place(text_scratch *s, const piece *p, size_t from, size_t to, int64_t place[2])
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

/* Gives every byte of the piece its place in the source. */
static void materialize_places(text_scratch *s, piece *p)
{
    if (!s->want_offsets || p->places) return;
    p->places = ares_arena_alloc(&s->arena, p->len * sizeof *p->places);
    int64_t at = starts_before(s, (size_t)(p->at - s->source)) - 1;
    for (size_t i = 0; i < p->len; i++) {
        at += unicode_is_start(p->at[i]);
        p->places[i][0] = at, p->places[i][1] = at + 1;
    }
}

/*
 * The places of the new bytes follow the library: a character that stands for a source character
 * has the place of the next source character not used yet; one that stands for none has the place
 * of the byte before it.
 */
void split_normalize(unicode_form form, text_scratch *s, piece *p)
{
    if (unicode_is_normal(form, p->at, p->len)) return;
    materialize_places(s, p);
    unicode_changes *changes = &s->changes;
    unicode_normalize(form, p->at, p->len, changes);
    unsigned char *bytes = ares_arena_alloc(&s->arena, (size_t)changes->n * 4 + 1);
    int64_t(*places)[2] =
        s->want_offsets ? ares_arena_alloc(&s->arena, ((size_t)changes->n * 4 + 1) * sizeof *places)
                        : NULL;
    size_t len = 0, used = 0;
    for (int64_t i = 0; i < changes->n; i++) {
        int n = unicode_put(changes->items[i].c, bytes + len);
        int32_t change = changes->items[i].change;
        if (places) {
            size_t from = change > 0 && used > 0 ? used - 1 : used;
            for (int k = 0; k < n; k++) {
                bool nowhere = (change > 0 && used == 0) || from >= p->len;
                places[len + (size_t)k][0] = nowhere ? 0 : p->places[from][0];
                places[len + (size_t)k][1] = nowhere ? 0 : p->places[from][1];
            }
        }
        for (int32_t take = change > 0 ? 0 : 1 - change; take > 0 && used < p->len; take--)
            for (used++; used < p->len && !unicode_is_start(p->at[used]); used++) {}
        len += (size_t)n;
    }
    *p = (piece){ bytes, len, places, p->id, false, 0 };
}

static void prefix_space(text_scratch *s, piece *p)
{
    if (p->at[0] == ' ') return;
    materialize_places(s, p);
    unsigned char *bytes = ares_arena_alloc(&s->arena, p->len + 1);
    bytes[0] = ' ';
    memcpy(bytes + 1, p->at, p->len);
    int64_t(*places)[2] = NULL;
    if (s->want_offsets) {
        places = ares_arena_alloc(&s->arena, (p->len + 1) * sizeof *places);
        memcpy(places[0], p->places[0], sizeof places[0]);
        memcpy(places + 1, p->places, p->len * sizeof *places);
    }
    *p = (piece){ bytes, p->len + 1, places, p->id, false, 0 };
}

static void map_to_alphabet(text_scratch *s, piece *p)
{
    materialize_places(s, p);
    unsigned char *bytes = ares_arena_alloc(&s->arena, p->len * 2);
    int64_t(*places)[2] =
        s->want_offsets ? ares_arena_alloc(&s->arena, p->len * 2 * sizeof *places) : NULL;
    size_t len = 0;
    for (size_t i = 0; i < p->len; i++) {
        int n = unicode_put(unicode_of_byte[p->at[i]], bytes + len);
        for (int k = 0; places && k < n; k++)
            memcpy(places[len + (size_t)k], p->places[i], sizeof places[0]);
        len += (size_t)n;
    }
    *p = (piece){ bytes, len, places, p->id, false, 0 };
}

void split_unmap(text_scratch *s, piece *p)
{
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

/* ---- cutting */
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

/* Divides the whole piece, in order, into parts that match and the parts between them. */
static int find_cuts(const split_step *step, text_scratch *s, const piece *p)
{
    size_t done = 0;
    s->cuts.n = 0;
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
            uint32_t c = unicode_next(&q);
            if (!(step->kind == STEP_NUMERIC ? unicode_is_numeric(c) : unicode_is_space(c)))
                continue;
            if (from > done) cut(s, done, from, false);
            done = (size_t)(q - p->at);
            cut(s, from, done, true);
        }
    }
    if (done < p->len) cut(s, done, p->len, step->invert);
    return ARES_OK;
}

static void emit(text_scratch *s, const piece *p, size_t from, size_t to)
{
    if (to > from)
        pieces_add(&s->b, (piece){ p->at + from, to - from, p->places ? p->places + from : NULL, -1,
                                   p->in_source, 0 });
}

static int cut_piece(const split_step *step, text_scratch *s, const piece *p)
{
    ARES_TRY(find_cuts(step, s, p));
    size_t(*cuts)[2] = s->cuts.items;
    const bool *hit = s->cuts.hit;
    int64_t n = s->cuts.n;
    switch (step->behavior) {
    case SPLIT_ISOLATED:
    case SPLIT_REMOVED:
        for (int64_t i = 0; i < n; i++)
            if (!hit[i] || step->behavior == SPLIT_ISOLATED) emit(s, p, cuts[i][0], cuts[i][1]);
        return ARES_OK;
    case SPLIT_CONTIGUOUS: /* runs of matches, runs of the rest */
        for (int64_t i = 0, k; i < n; i = k) {
            for (k = i + 1; k < n && hit[k] == hit[i]; k++) {}
            emit(s, p, cuts[i][0], cuts[k - 1][1]);
        }
        return ARES_OK;
    /* a match joins the part before it, unless that is a match too */
    case SPLIT_MERGED_WITH_PREVIOUS:
        for (int64_t i = 0, k; i < n; i = k) {
            k = i + 1;
            if (!hit[i] && k < n && hit[k]) k++;
            emit(s, p, cuts[i][0], cuts[k - 1][1]);
        }
        return ARES_OK;
    case SPLIT_MERGED_WITH_NEXT: /* the last of a run of matches joins the part after it */
        for (int64_t i = 0, k; i < n; i = k) {
            k = i + 1;
            if (hit[i] && k < n && !hit[k]) k++;
            emit(s, p, cuts[i][0], cuts[k - 1][1]);
        }
        return ARES_OK;
    }
    return ARES_OK;
}

int split_run(const split_step *step, text_scratch *s)
{
    s->b.n = 0;
    for (int64_t i = 0; i < s->a.n; i++) {
        piece *p = &s->a.items[i];
        if (p->id >= 0) {
            pieces_add(&s->b, *p);
        } else if (step->kind == STEP_PREFIX_SPACE || step->kind == STEP_BYTE_ALPHABET) {
            if (step->kind == STEP_PREFIX_SPACE) prefix_space(s, p);
            else map_to_alphabet(s, p);
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
