/* The methods of Python's str. */
#include <string.h>

#include "jinja.h"

#define SELF_TEXT jinja_text(self)
#define ARG(i) (a->pos[i])
#define GIVEN(i) (a->pos[i].kind != JV_MISSING)
#define METHOD(name) static jinja_value name(jinja_run *r, jinja_value self, jinja_args *a)

static jinja_value text_of(jinja_run *r, jinja_value self, jinja_buf *b)
{
    jinja_value v = jinja_str_buf(r, b);
    v.flag = self.flag;
    return v;
}

static ares_view str_arg(jinja_run *r, jinja_value v, const char *method)
{
    if (v.kind != JV_STR)
        JINJA_FAIL(r, "%s() needs a str argument, not %s", method, jinja_type_name(v));
    return jinja_text(v);
}

/* Python escapes the arguments of methods of text marked safe; here such a call is an error. */
static void refuse_markup(jinja_run *r, jinja_value self)
{
    if (self.flag) JINJA_UNSUPPORTED(r, "this method on text marked safe");
}

static size_t step(ares_view s, size_t i, uint32_t *cp)
{
    return (size_t)jinja_decode(s.data + i, s.len - i, cp);
}

/* ------------------------------------------------------------------ case */
typedef enum { UPPER, LOWER, TITLE, CAPITALIZE, SWAP } casing;

/*
 * The final sigma: a cased letter precedes it and none follows it, where case-ignorable characters
 * in between do not count.
 */
static bool final_sigma(ares_view s, size_t at, size_t after)
{
    uint32_t cp = 0;
    size_t i = at;
    bool before = false;
    while (i > 0) {
        do i--;
        while (i > 0 && ((unsigned char)s.data[i] & 0xC0) == 0x80);
        step(s, i, &cp);
        if (jinja_is_case_ignorable(cp)) continue;
        before = jinja_is_lower(cp) || jinja_is_upper(cp) || jinja_is_title(cp);
        break;
    }
    if (!before) return false;
    for (i = after; i < s.len;) {
        i += step(s, i, &cp);
        if (jinja_is_case_ignorable(cp)) continue;
        return !(jinja_is_lower(cp) || jinja_is_upper(cp) || jinja_is_title(cp));
    }
    return true;
}

static jinja_value recase(jinja_run *r, jinja_value self, casing how)
{
    ares_view s = SELF_TEXT;
    jinja_buf b = { 0 };
    bool cased = false, first = true;
    for (size_t i = 0; i < s.len; first = false) {
        uint32_t cp, out[3];
        size_t at = i;
        i += step(s, i, &cp);
        bool up = how == UPPER || (how == SWAP && jinja_is_lower(cp));
        bool title = (how == TITLE && !cased) || (how == CAPITALIZE && first);
        bool keep = how == SWAP && !jinja_is_lower(cp) && !jinja_is_upper(cp);
        int n = 1;
        out[0] = cp;
        if (up) n = jinja_upper(cp, out);
        else if (title) n = jinja_title(cp, out);
        else if (!keep) {
            n = jinja_lower(cp, out);
            if (cp == 0x3A3 && final_sigma(s, at, i)) out[0] = 0x3C2;
        }
        for (int k = 0; k < n; k++) jinja_add_cp(r, &b, out[k]);
        cased = jinja_is_lower(cp) || jinja_is_upper(cp) || jinja_is_title(cp);
    }
    jinja_work(r, s.len * 8);
    return text_of(r, self, &b);
}

METHOD(str_upper)
{
    (void)a;
    return recase(r, self, UPPER);
}
METHOD(str_lower)
{
    (void)a;
    return recase(r, self, LOWER);
}
METHOD(str_title)
{
    (void)a;
    return recase(r, self, TITLE);
}
METHOD(str_capitalize)
{
    (void)a;
    return recase(r, self, CAPITALIZE);
}
METHOD(str_swapcase)
{
    (void)a;
    return recase(r, self, SWAP);
}

METHOD(str_casefold)
{
    (void)a;
    ares_view s = SELF_TEXT;
    jinja_buf b = { 0 };
    for (size_t i = 0; i < s.len;) {
        uint32_t cp, out[4];
        i += step(s, i, &cp);
        int n = jinja_fold(cp, out);
        for (int k = 0; k < n; k++) jinja_add_cp(r, &b, out[k]);
    }
    jinja_work(r, s.len * 8);
    return text_of(r, self, &b);
}

/* ------------------------------------------------------------------ stripping and padding */
static bool strips(ares_view set, bool space, ares_view s, size_t at)
{
    uint32_t cp, other;
    step(s, at, &cp);
    if (space) return jinja_is_space(cp);
    for (size_t i = 0; i < set.len;) {
        i += step(set, i, &other);
        if (other == cp) return true;
    }
    return false;
}

enum { LEFT = 1, RIGHT = 2 };

static jinja_value strip(jinja_run *r, jinja_value self, jinja_value chars, int sides)
{
    bool space = chars.kind == JV_MISSING || chars.kind == JV_NONE;
    ares_view s = SELF_TEXT, set = space ? (ares_view){ "", 0 } : str_arg(r, chars, "strip");
    if (!space) refuse_markup(r, self);
    size_t a = 0, b = s.len;
    uint32_t cp;
    while ((sides & LEFT) && a < b && strips(set, space, s, a))
        a += step(s, a, &cp), jinja_work(r, set.len + 64);
    while ((sides & RIGHT) && b > a) {
        size_t i = b - 1;
        while (i > a && ((unsigned char)s.data[i] & 0xC0) == 0x80) i--;
        if (!strips(set, space, s, i)) break;
        b = i;
        jinja_work(r, set.len + 64);
    }
    jinja_value v = jinja_str_view(r, s.data + a, b - a);
    v.flag = self.flag;
    return v;
}

METHOD(str_strip)
{
    return strip(r, self, ARG(0), LEFT | RIGHT);
}
METHOD(str_lstrip)
{
    return strip(r, self, ARG(0), LEFT);
}
METHOD(str_rstrip)
{
    return strip(r, self, ARG(0), RIGHT);
}

static jinja_value justify(jinja_run *r, jinja_value self, jinja_args *a, char align)
{
    int64_t width = jinja_int_arg(r, ARG(0), 0), n = jinja_chars(r, self), pad = width - n;
    ares_view fill = GIVEN(1) ? str_arg(r, ARG(1), "center") : ARES_VIEW(" ");
    if (GIVEN(1)) refuse_markup(r, self);
    if (GIVEN(1) && jinja_chars(r, ARG(1)) != 1)
        JINJA_FAIL(r, "The fill character must be exactly one character long");
    if (pad <= 0) return self;
    int64_t left = align == '>' ? pad : align == '<' ? 0 : pad / 2 + (pad & width & 1);
    jinja_buf b = { 0 };
    jinja_add_repeat(r, &b, fill.data, fill.len, left);
    jinja_add(r, &b, self.u.s->data, self.u.s->len);
    jinja_add_repeat(r, &b, fill.data, fill.len, pad - left);
    return text_of(r, self, &b);
}

METHOD(str_center)
{
    return justify(r, self, a, '^');
}
METHOD(str_ljust)
{
    return justify(r, self, a, '<');
}
METHOD(str_rjust)
{
    return justify(r, self, a, '>');
}

METHOD(str_zfill)
{
    int64_t pad = jinja_int_arg(r, ARG(0), 0) - jinja_chars(r, self);
    ares_view s = SELF_TEXT;
    bool sign = s.len && (s.data[0] == '-' || s.data[0] == '+');
    jinja_buf b = { 0 };
    if (sign) jinja_add(r, &b, s.data, 1);
    jinja_add_repeat(r, &b, "0", 1, pad);
    jinja_add(r, &b, s.data + sign, s.len - sign);
    return text_of(r, self, &b);
}

METHOD(str_expandtabs)
{
    int64_t size = jinja_int_arg(r, ARG(0), 8), column = 0;
    ares_view s = SELF_TEXT;
    jinja_buf b = { 0 };
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        size_t k = step(s, i, &cp);
        if (cp == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            jinja_add_repeat(r, &b, " ", 1, n);
            column += n;
        } else {
            jinja_add(r, &b, s.data + i, k);
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
        i += k;
    }
    return text_of(r, self, &b);
}

/* ---------------- searching: positions count characters */
typedef struct range_of {
    ares_view part;
    int64_t first;
    bool valid;
} range_of;

static range_of bounds(jinja_run *r, jinja_value self, jinja_value start, jinja_value stop)
{
    int64_t n = jinja_chars(r, self), lo = 0, hi = n;
    jinja_value *given[2] = { &start, &stop };
    for (int k = 0; k < 2; k++) {
        if (given[k]->kind == JV_MISSING || given[k]->kind == JV_NONE) continue;
        int64_t i;
        if (!jinja_as_index(*given[k], &i))
            JINJA_FAIL(r, "slice indices must be integers or None or have an __index__ method");
        if (i < 0) i = ARES_MAX(i + n, 0);
        if (k == 0) lo = i;
        else hi = ARES_MIN(i, n);
    }
    if (lo > hi) return (range_of){ .first = lo };
    size_t a = jinja_char_offset(r, self, lo), b = jinja_char_offset(r, self, hi);
    return (range_of){ { self.u.s->data + a, b - a }, lo, true };
}

static int64_t rfind(ares_view s, ares_view what)
{
    for (size_t i = s.len >= what.len ? s.len - what.len + 1 : 0; i-- > 0;)
        if (memcmp(s.data + i, what.data, what.len) == 0) return (int64_t)i;
    return -1;
}

static int64_t find(jinja_run *r, jinja_value self, jinja_args *a, bool last, const char *method)
{
    ares_view what = str_arg(r, ARG(0), method);
    refuse_markup(r, self);
    range_of q = bounds(r, self, ARG(1), ARG(2));
    if (!q.valid) return -1;
    jinja_work(r, last ? q.part.len * (1 + ARES_MIN(what.len, 64)) : q.part.len);
    int64_t at = last ? rfind(q.part, what) : ares_view_find(q.part, what, 0);
    if (at < 0) return -1;
    int64_t chars = 0;
    for (int64_t i = 0; i < at; i++) chars += ((unsigned char)q.part.data[i] & 0xC0) != 0x80;
    return q.first + chars;
}

METHOD(str_find)
{
    return jinja_int(find(r, self, a, false, "find"));
}
METHOD(str_rfind)
{
    return jinja_int(find(r, self, a, true, "rfind"));
}

static jinja_value index_of(jinja_run *r, int64_t at)
{
    if (at < 0) JINJA_FAIL(r, "substring not found");
    return jinja_int(at);
}

METHOD(str_index)
{
    return index_of(r, find(r, self, a, false, "index"));
}
METHOD(str_rindex)
{
    return index_of(r, find(r, self, a, true, "rindex"));
}

METHOD(str_count)
{
    ares_view what = str_arg(r, ARG(0), "count");
    refuse_markup(r, self);
    range_of q = bounds(r, self, ARG(1), ARG(2));
    if (!q.valid) return jinja_int(0);
    jinja_work(r, q.part.len);
    int64_t n = 0;
    if (what.len == 0) {
        for (size_t i = 0; i < q.part.len; i++) n += ((unsigned char)q.part.data[i] & 0xC0) != 0x80;
        return jinja_int(n + 1);
    }
    for (int64_t at = 0; (at = ares_view_find(q.part, what, (size_t)at)) >= 0;
         at += (int64_t)what.len)
        n++;
    return jinja_int(n);
}

static bool ends(range_of q, ares_view what, bool tail)
{
    if (!q.valid || q.part.len < what.len) return false;
    return what.len == 0 ||
           memcmp(q.part.data + (tail ? q.part.len - what.len : 0), what.data, what.len) == 0;
}

static jinja_value starts_or_ends(jinja_run *r, jinja_value self, jinja_args *a, bool tail)
{
    range_of q = bounds(r, self, ARG(1), ARG(2));
    const char *method = tail ? "endswith" : "startswith";
    refuse_markup(r, self);
    if (ARG(0).kind != JV_TUPLE) return jinja_bool(ends(q, str_arg(r, ARG(0), method), tail));
    for (int64_t i = 0; i < ARG(0).u.l->n; i++)
        if (ends(q, str_arg(r, ARG(0).u.l->items[i], method), tail)) return jinja_bool(true);
    return jinja_bool(false);
}

METHOD(str_startswith)
{
    return starts_or_ends(r, self, a, false);
}
METHOD(str_endswith)
{
    return starts_or_ends(r, self, a, true);
}

METHOD(str_removeprefix)
{
    ares_view what = str_arg(r, ARG(0), "removeprefix"), s = SELF_TEXT;
    refuse_markup(r, self);
    return ares_view_starts(s, what) ? jinja_str_view(r, s.data + what.len, s.len - what.len)
                                     : self;
}

METHOD(str_removesuffix)
{
    ares_view what = str_arg(r, ARG(0), "removesuffix"), s = SELF_TEXT;
    refuse_markup(r, self);
    bool has = what.len && s.len >= what.len &&
               memcmp(s.data + s.len - what.len, what.data, what.len) == 0;
    return has ? jinja_str_view(r, s.data, s.len - what.len) : self;
}

METHOD(str_replace)
{
    ares_view s = SELF_TEXT, old = str_arg(r, ARG(0), "replace"),
              with = str_arg(r, ARG(1), "replace");
    int64_t left = jinja_int_arg(r, ARG(2), -1);
    refuse_markup(r, self);
    jinja_buf b = { 0 };
    size_t i = 0;
    jinja_work(r, s.len);
    if (left < 0) left = INT64_MAX;
    if (old.len == 0) {
        uint32_t cp;
        while (left-- > 0) {
            jinja_add(r, &b, with.data, with.len);
            if (i >= s.len) break;
            size_t k = step(s, i, &cp);
            jinja_add(r, &b, s.data + i, k);
            i += k;
        }
    } else {
        for (int64_t at; left-- > 0 && (at = ares_view_find(s, old, i)) >= 0;
             i = (size_t)at + old.len) {
            jinja_add(r, &b, s.data + i, (size_t)at - i);
            jinja_add(r, &b, with.data, with.len);
        }
    }
    if (i < s.len) jinja_add(r, &b, s.data + i, s.len - i);
    return jinja_str_buf(r, &b);
}

/* ------------------------------------------------------------------ splitting and joining */
typedef struct parts {
    jinja_value *items;
    int64_t n, cap;
} parts;

static void add_part(jinja_run *r, parts *p, const char *data, size_t len)
{
    if (p->n == p->cap) {
        jinja_value *items =
            jinja_alloc(r, (size_t)(p->cap = p->cap ? 2 * p->cap : 8) * sizeof *items);
        if (p->n) memcpy(items, p->items, (size_t)p->n * sizeof *items);
        p->items = items;
    }
    p->items[p->n++] = jinja_str_view(r, data, len);
    jinja_work(r, 64);
}

static jinja_value part_list(jinja_run *r, parts *p, jinja_kind kind, bool reversed)
{
    jinja_value v = jinja_list_new(r, p->n, kind);
    for (int64_t i = 0; i < p->n; i++) v.u.l->items[i] = p->items[reversed ? p->n - 1 - i : i];
    return v;
}

static bool space_before(ares_view s, size_t end, size_t *at)
{
    uint32_t cp;
    size_t i = end - 1;
    while (i > 0 && ((unsigned char)s.data[i] & 0xC0) == 0x80) i--;
    step(s, i, &cp);
    *at = i;
    return jinja_is_space(cp);
}

static void split_space(jinja_run *r, ares_view s, int64_t left, parts *p)
{
    uint32_t cp;
    for (size_t i = 0;;) {
        while (i < s.len) {
            size_t k = step(s, i, &cp);
            if (!jinja_is_space(cp)) break;
            i += k;
        }
        if (i >= s.len) return;
        size_t from = i;
        if (left-- == 0) {
            size_t end = s.len, at;
            while (end > from && space_before(s, end, &at)) end = at;
            add_part(r, p, s.data + from, end - from);
            return;
        }
        while (i < s.len) {
            size_t k = step(s, i, &cp);
            if (jinja_is_space(cp)) break;
            i += k;
        }
        add_part(r, p, s.data + from, i - from);
    }
}

static void rsplit_space(jinja_run *r, ares_view s, int64_t left, parts *p)
{
    uint32_t cp;
    size_t at;
    for (size_t end = s.len;;) {
        while (end > 0 && space_before(s, end, &at)) end = at;
        if (end == 0) return;
        size_t to = end;
        if (left-- == 0) {
            size_t from = 0;
            while (from < to) {
                size_t k = step(s, from, &cp);
                if (!jinja_is_space(cp)) break;
                from += k;
            }
            add_part(r, p, s.data + from, to - from);
            return;
        }
        while (end > 0 && !space_before(s, end, &at)) end = at;
        add_part(r, p, s.data + end, to - end);
    }
}

static jinja_value split(jinja_run *r, jinja_value self, jinja_args *a, bool right)
{
    ares_view s = SELF_TEXT;
    refuse_markup(r, self);
    int64_t left = jinja_int_arg(r, ARG(1), -1);
    if (left < 0) left = INT64_MAX;
    parts p = { 0 };
    jinja_work(r, s.len);
    if (!GIVEN(0) || ARG(0).kind == JV_NONE) {
        if (right) rsplit_space(r, s, left, &p);
        else split_space(r, s, left, &p);
        return part_list(r, &p, JV_LIST, right);
    }
    ares_view by = str_arg(r, ARG(0), "split");
    if (by.len == 0) JINJA_FAIL(r, "empty separator");
    if (!right) {
        size_t i = 0;
        for (int64_t at; left-- > 0 && (at = ares_view_find(s, by, i)) >= 0;
             i = (size_t)at + by.len)
            add_part(r, &p, s.data + i, (size_t)at - i);
        add_part(r, &p, s.data + i, s.len - i);
        return part_list(r, &p, JV_LIST, false);
    }
    size_t end = s.len;
    jinja_work(r, s.len * ARES_MIN(by.len, 64));
    for (int64_t at; left-- > 0 && (at = rfind((ares_view){ s.data, end }, by)) >= 0;
         end = (size_t)at)
        add_part(r, &p, s.data + at + by.len, end - (size_t)at - by.len);
    add_part(r, &p, s.data, end);
    return part_list(r, &p, JV_LIST, true);
}

METHOD(str_split)
{
    return split(r, self, a, false);
}
METHOD(str_rsplit)
{
    return split(r, self, a, true);
}

METHOD(str_splitlines)
{
    ares_view s = SELF_TEXT;
    bool keep = GIVEN(0) && jinja_truth(r, ARG(0));
    refuse_markup(r, self);
    parts p = { 0 };
    for (size_t i = 0; i < s.len;) {
        size_t from = i, k = 0;
        uint32_t cp = 0;
        while (i < s.len && (k = step(s, i, &cp), !jinja_is_line_end(cp))) i += k;
        size_t end = i;
        if (i < s.len) i += k + (cp == '\r' && i + 1 < s.len && s.data[i + 1] == '\n');
        add_part(r, &p, s.data + from, (keep ? i : end) - from);
    }
    jinja_work(r, s.len);
    return part_list(r, &p, JV_LIST, false);
}

static jinja_value partition(jinja_run *r, jinja_value self, jinja_args *a, bool right)
{
    ares_view s = SELF_TEXT, by = str_arg(r, ARG(0), "partition");
    refuse_markup(r, self);
    if (by.len == 0) JINJA_FAIL(r, "empty separator");
    jinja_work(r, right ? s.len * ARES_MIN(by.len, 64) : s.len);
    int64_t at = right ? rfind(s, by) : ares_view_find(s, by, 0);
    parts p = { 0 };
    if (at < 0 && right)
        add_part(r, &p, "", 0), add_part(r, &p, "", 0), add_part(r, &p, s.data, s.len);
    else if (at < 0) add_part(r, &p, s.data, s.len), add_part(r, &p, "", 0), add_part(r, &p, "", 0);
    else {
        size_t i = (size_t)at;
        add_part(r, &p, s.data, i), add_part(r, &p, by.data, by.len),
            add_part(r, &p, s.data + i + by.len, s.len - i - by.len);
    }
    return part_list(r, &p, JV_TUPLE, false);
}

METHOD(str_partition)
{
    return partition(r, self, a, false);
}
METHOD(str_rpartition)
{
    return partition(r, self, a, true);
}

METHOD(str_join)
{
    refuse_markup(r, self);
    if (!jinja_is_iterable(ARG(0))) JINJA_FAIL(r, "can only join an iterable");
    jinja_iter *it = jinja_iterate(r, ARG(0));
    jinja_buf b = { 0 };
    bool first = true;
    for (jinja_value v; it->next(r, it, &v); first = false) {
        if (v.kind != JV_STR)
            JINJA_FAIL(r, "sequence item: expected str instance, %s found", jinja_type_name(v));
        if (!first) jinja_add(r, &b, self.u.s->data, self.u.s->len);
        jinja_add(r, &b, v.u.s->data, v.u.s->len);
    }
    return jinja_str_buf(r, &b);
}

METHOD(str_format)
{
    return jinja_str_format(r, self, a, NULL);
}

METHOD(str_format_map)
{
    jinja_args none = { 0 };
    if (ARG(0).kind != JV_DICT) JINJA_UNSUPPORTED(r, "format_map of anything but a dict");
    return jinja_str_format(r, self, &none, ARG(0).u.d);
}

/* ---------------- questions about every character */
static jinja_value every(jinja_run *r, jinja_value self, bool (*is)(uint32_t), bool empty)
{
    ares_view s = SELF_TEXT;
    jinja_work(r, s.len * 8);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        i += step(s, i, &cp);
        if (!is(cp)) return jinja_bool(false);
    }
    return jinja_bool(s.len > 0 || empty);
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}
METHOD(str_isalpha)
{
    (void)a;
    return every(r, self, jinja_is_alpha, false);
}
METHOD(str_isalnum)
{
    (void)a;
    return every(r, self, jinja_is_alnum, false);
}
METHOD(str_isdigit)
{
    (void)a;
    return every(r, self, jinja_is_digit, false);
}
METHOD(str_isdecimal)
{
    (void)a;
    return every(r, self, jinja_is_decimal, false);
}
METHOD(str_isnumeric)
{
    (void)a;
    return every(r, self, jinja_is_numeric, false);
}
METHOD(str_isspace)
{
    (void)a;
    return every(r, self, jinja_is_space, false);
}
METHOD(str_isprintable)
{
    (void)a;
    return every(r, self, jinja_is_printable, true);
}
METHOD(str_isascii)
{
    (void)a;
    return every(r, self, is_ascii, true);
}
METHOD(str_isidentifier)
{
    (void)a, (void)r;
    return jinja_bool(jinja_is_identifier(SELF_TEXT));
}

static jinja_value all_cased(jinja_run *r, jinja_value self, bool lower)
{
    ares_view s = SELF_TEXT;
    bool any = false;
    jinja_work(r, s.len * 8);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        i += step(s, i, &cp);
        if (jinja_is_title(cp) || (lower ? jinja_is_upper(cp) : jinja_is_lower(cp)))
            return jinja_bool(false);
        any |= lower ? jinja_is_lower(cp) : jinja_is_upper(cp);
    }
    return jinja_bool(any);
}

METHOD(str_islower)
{
    (void)a;
    return all_cased(r, self, true);
}
METHOD(str_isupper)
{
    (void)a;
    return all_cased(r, self, false);
}

METHOD(str_istitle)
{
    (void)a;
    ares_view s = SELF_TEXT;
    bool any = false, cased = false;
    jinja_work(r, s.len * 8);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        i += step(s, i, &cp);
        bool up = jinja_is_upper(cp) || jinja_is_title(cp), low = jinja_is_lower(cp);
        if ((up && cased) || (low && !cased)) return jinja_bool(false);
        cased = up || low;
        any |= cased;
    }
    return jinja_bool(any);
}

/* ------------------------------------------------------------------ the table */
const jinja_method_entry jinja_str_methods[] = {
    { "capitalize", str_capitalize, "/" },
    { "casefold", str_casefold, "/" },
    { "center", str_center, "/width|fill" },
    { "count", str_count, "/sub|start end" },
    { "encode", NULL, NULL },
    { "endswith", str_endswith, "/suffix|start end" },
    { "expandtabs", str_expandtabs, "|tabsize" },
    { "find", str_find, "/sub|start end" },
    { "format", str_format, "*" },
    { "format_map", str_format_map, "/mapping" },
    { "index", str_index, "/sub|start end" },
    { "isalnum", str_isalnum, "/" },
    { "isalpha", str_isalpha, "/" },
    { "isascii", str_isascii, "/" },
    { "isdecimal", str_isdecimal, "/" },
    { "isdigit", str_isdigit, "/" },
    { "isidentifier", str_isidentifier, "/" },
    { "islower", str_islower, "/" },
    { "isnumeric", str_isnumeric, "/" },
    { "isprintable", str_isprintable, "/" },
    { "isspace", str_isspace, "/" },
    { "istitle", str_istitle, "/" },
    { "isupper", str_isupper, "/" },
    { "join", str_join, "/iterable" },
    { "ljust", str_ljust, "/width|fill" },
    { "lower", str_lower, "/" },
    { "lstrip", str_lstrip, "/|chars" },
    { "maketrans", NULL, NULL },
    { "partition", str_partition, "/sep" },
    { "removeprefix", str_removeprefix, "/prefix" },
    { "removesuffix", str_removesuffix, "/suffix" },
    { "replace", str_replace, "/old new|count" },
    { "rfind", str_rfind, "/sub|start end" },
    { "rindex", str_rindex, "/sub|start end" },
    { "rjust", str_rjust, "/width|fill" },
    { "rpartition", str_rpartition, "/sep" },
    { "rsplit", str_rsplit, "|sep maxsplit" },
    { "rstrip", str_rstrip, "/|chars" },
    { "split", str_split, "|sep maxsplit" },
    { "splitlines", str_splitlines, "|keepends" },
    { "startswith", str_startswith, "/prefix|start end" },
    { "strip", str_strip, "/|chars" },
    { "swapcase", str_swapcase, "/" },
    { "title", str_title, "/" },
    { "translate", NULL, NULL },
    { "upper", str_upper, "/" },
    { "zfill", str_zfill, "/width" },
    { NULL, NULL, NULL },
};

jinja_value jinja_str_call(jinja_run *r, const char *method, jinja_value self, jinja_value *pos,
                           int64_t n)
{
    for (const jinja_method_entry *e = jinja_str_methods; e->name; e++) {
        if (strcmp(e->name, method) != 0) continue;
        jinja_args a = { .pos = pos, .n = n };
        jinja_bind(r, e->name, e->spec, &a);
        return e->fn(r, self, &a);
    }
    ares_abort(__FILE__, __LINE__, method);
}
