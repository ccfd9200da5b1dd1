/* Small scanners, and sets of words, that several families of checks use. */
#include <string.h>

#include "check_tools.h"

bool if_has(ares_view text, const char *part)
{
    return ares_view_find(text, ares_view_of(part), 0) >= 0;
}

bool if_ends(ares_view text, ares_view end)
{
    return text.len >= end.len && ares_view_eq(if_from(text, text.len - end.len), end);
}

ares_view if_from(ares_view v, size_t at)
{
    return (ares_view){ v.data + at, v.len - at };
}

ares_view if_replace(ares_view text, ares_view part, ares_view by, ares_arena *arena)
{
    int64_t n = if_count(text, part);
    char *out = ares_arena_alloc(arena, text.len - (size_t)n * part.len + (size_t)n * by.len + 1),
         *w = out;
    size_t from = 0;
    for (int64_t at; n > 0 && (at = ares_view_find(text, part, from)) >= 0;
         from = (size_t)at + part.len) {
        w = mempcpy(w, text.data + from, (size_t)at - from);
        w = mempcpy(w, by.data, by.len);
    }
    if (text.len > from) w = mempcpy(w, text.data + from, text.len - from);
    *w = 0;
    return (ares_view){ out, (size_t)(w - out) };
}

ares_view if_skip_one_space(ares_view v)
{
    const char *p = v.data, *end = v.data + v.len;
    return p < end && if_is_space(if_next(&p, end)) ? (ares_view){ p, (size_t)(end - p) } : v;
}

static ares_view next_run(ares_view *v, bool (*belongs)(uint32_t c))
{
    const char *p = v->data, *end = v->data + v->len, *from = NULL, *at = p;
    while (p < end) {
        at = p;
        bool in = belongs(if_next(&p, end));
        if (in && !from) from = at;
        if (!in && from) break;
        at = p;
    }
    *v = (ares_view){ at, (size_t)(end - at) };
    return from ? (ares_view){ from, (size_t)(at - from) } : (ares_view){ NULL, 0 };
}

ares_view if_next_digits(ares_view *v)
{
    return next_run(v, if_is_digit);
}
ares_view if_next_run(ares_view *v)
{
    return next_run(v, if_is_word);
}

static bool is_no_space(uint32_t c)
{
    return !if_is_space(c);
}

ares_view if_first_word(ares_view v)
{
    return next_run(&v, is_no_space);
}

ares_view if_last_word(ares_view v)
{
    ares_view last = { NULL, 0 };
    for (ares_view word; (word = next_run(&v, is_no_space)).data;) last = word;
    return last;
}

/* ---------------------------------------------------------------- sets */
static uint64_t hash_of(ares_view v)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ v.len;
    for (size_t i = 0; i < v.len; i++)
        h = (h ^ (unsigned char)v.data[i]) * 0xff51afd7ed558ccdu, h ^= h >> 32;
    return h;
}

uint32_t *if_group(if_list list, ares_arena *arena)
{
    size_t slots = 16;
    while (slots < (size_t)list.n * 2) slots *= 2;
    uint32_t *first = ares_arena_alloc(arena, ((size_t)list.n + 1) * sizeof *first),
             *slot = ares_arena_calloc(arena, slots, sizeof *slot);
    for (int64_t i = 0; i < list.n; i++) {
        size_t at = hash_of(list.items[i]) & (slots - 1);
        while (slot[at] && !ares_view_eq(list.items[slot[at] - 1], list.items[i]))
            at = (at + 1) & (slots - 1);
        if (!slot[at]) slot[at] = (uint32_t)i + 1;
        first[i] = slot[at] - 1;
    }
    return first;
}

int64_t if_distinct(if_list list, int64_t *most, ares_arena *arena)
{
    uint32_t *first = if_group(list, arena),
             *times = ares_arena_calloc(arena, (size_t)list.n + 1, sizeof *times);
    int64_t distinct = 0, top = 0;
    for (int64_t i = 0; i < list.n; i++) {
        distinct += first[i] == i;
        times[first[i]]++;
        top = ARES_MAX(top, times[first[i]]);
    }
    if (most) *most = top;
    return distinct;
}
