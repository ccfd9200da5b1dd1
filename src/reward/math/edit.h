/*
 * Small edits of texts, character by character. Every function returns a view of its argument or of
 * the arena.
 */
#ifndef ARES_GRADE_MATH_EDIT_H
#define ARES_GRADE_MATH_EDIT_H

#include "answers.h"

static inline bool edit_digit(char c)
{
    return c >= '0' && c <= '9';
}
static inline bool edit_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static inline ares_view edit_from(ares_view t, size_t i)
{
    return (ares_view){ t.data + i, t.len - i };
}
static inline ares_view edit_cut(ares_view t, size_t from, size_t to)
{
    return (ares_view){ t.data + from, to - from };
}
/* Whether the literal stands at i. */
bool edit_at(ares_view t, size_t i, const char *literal);
/* Bytes of the character at i: a well-formed UTF-8 sequence, else 1. */
size_t edit_char(ares_view t, size_t i);
/* Bytes of the Unicode white space character at i; 0 when there is none. */
size_t edit_space(ares_view t, size_t i);
/* Whether a letter of any alphabet stands at i. */
bool edit_alpha(ares_view t, size_t i);
ares_view edit_trim(ares_view t); /* Unicode white space */
/* The last n characters. */
ares_view edit_tail(ares_view t, size_t n);
/* Replaces every occurrence, left to right; replacements are not searched again. */
ares_view edit_replace(ares_view t, const char *from, const char *to, ares_arena *arena);
ares_view edit_delete(ares_view t, const char *literal, ares_arena *arena);
ares_view edit_join(ares_view a, ares_view b, ares_view c, ares_arena *arena);
ares_view edit_lower(ares_view t, ares_arena *arena);
int64_t edit_count(ares_view t, const char *literal);     /* non-overlapping */
int64_t edit_find_last(ares_view t, const char *literal); /* -1 when absent */
/*
 * The index after the brace that closes the one at i (escaped braces count too); 0 when none does.
 */
size_t edit_closing_brace(ares_view t, size_t i);
/* The inner text of a t that is \text{...} in one line, else t. */
ares_view edit_unwrap_text(ares_view t);

/* An output that grows in the arena. */
typedef struct edit_out {
    char *data;
    size_t len, cap;
    ares_arena *arena;
} edit_out;
void edit_add(edit_out *o, ares_view t);
void edit_add_z(edit_out *o, const char *z);
static inline ares_view edit_view(const edit_out *o)
{
    return (ares_view){ o->data ? o->data : "", o->len };
}
#endif
