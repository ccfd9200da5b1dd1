/*
 * Lists of the words and pieces of a text, and words found in it. A list is counted first, so that
 * it takes only the memory it needs.
 */

#include "text_parts.h"

static if_list list_new(int64_t n, ares_arena *arena)
{
    return (if_list){ ares_arena_alloc(arena, (size_t)ARES_MAX(n, 1) * sizeof(ares_view)), 0 };
}

/*
 * The runs of characters of a kind, or of characters not of it, into items unless that is NULL;
 * returns how many.
 */
static int64_t runs(ares_view v, int kind, bool of_kind, ares_view *items)
{
    int64_t n = 0;
    const char *start = NULL, *end = v.data + v.len;
    for (const char *p = v.data; p < end;) {
        const char *at = p;
        bool belongs = if_is(if_next(&p, end), kind) == of_kind;
        if (belongs && !start) start = at;
        if (belongs || !start) continue;
        if (items) items[n] = (ares_view){ start, (size_t)(at - start) };
        start = NULL;
        n++;
    }
    if (start && items) items[n] = (ares_view){ start, (size_t)(end - start) };
    return n + (start != NULL);
}

if_list if_words(ares_view v, ares_arena *arena)
{
    if_list list = list_new(runs(v, IF_SPACE, false, NULL), arena);
    list.n = runs(v, IF_SPACE, false, list.items);
    return list;
}

int64_t if_count_words(ares_view v)
{
    return runs(v, IF_WORD, true, NULL);
}

static int64_t split(ares_view v, ares_view separator, ares_view *items)
{
    size_t from = 0;
    for (int64_t n = 0;; n++) {
        int64_t at = ares_view_find(v, separator, from);
        size_t to = at < 0 ? v.len : (size_t)at;
        if (items) items[n] = (ares_view){ v.data + from, to - from };
        if (at < 0) return n + 1;
        from = to + separator.len;
    }
}

if_list if_split(ares_view v, ares_view separator, ares_arena *arena)
{
    ARES_ASSERT(separator.len > 0);
    if_list list = list_new(split(v, separator, NULL), arena);
    list.n = split(v, separator, list.items);
    return list;
}

bool if_boundary(ares_view v, size_t at)
{
    ARES_ASSERT(at <= v.len);
    bool before = at > 0 && if_is_word(if_last((ares_view){ v.data, at }));
    bool behind = at < v.len && if_is_word(if_first((ares_view){ v.data + at, v.len - at }));
    return before != behind;
}

bool if_has_word(ares_view v, ares_view word)
{
    if (word.len == 0) return if_count_words(v) > 0;
    for (size_t from = 0;;) {
        int64_t at = ares_view_find(v, word, from);
        if (at < 0) return false;
        if (if_boundary(v, (size_t)at) && if_boundary(v, (size_t)at + word.len)) return true;
        from = (size_t)at + 1;
    }
}

int64_t if_count(ares_view v, ares_view part)
{
    return part.len ? split(v, part, NULL) - 1 : 0;
}
