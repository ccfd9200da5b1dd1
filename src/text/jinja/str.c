/*
 * Methods of values in templates. In order: methods of lists, dicts and the like; the global
 * functions; methods of str.
 */
#include "jinja.h"

#include <math.h>
#include <string.h>

#define ARG(i) (a->pos[i])
#define GIVEN(i) (a->pos[i].kind != JV_MISSING)
#define METHOD(name) static jinja_value name(jinja_run *r, jinja_value self, jinja_args *a)

/*
 * Methods of the values other than str, and the global functions. A method that Python has and we
 * do not is an error; one that the sandbox forbids is undefined, as in jinja2.
 */

/* ---------------- lists, dicts, loops */
METHOD(list_count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < self.u.l->n; i++) n += jinja_equal(r, self.u.l->items[i], ARG(0));
    return jinja_int(n);
}

/* list.index(value, start, stop): negative bounds count from the end. */
METHOD(list_index)
{
    int64_t n = self.u.l->n, from = jinja_int_arg(r, ARG(1), 0), to = jinja_int_arg(r, ARG(2), n);
    /* a bound before the start is the start */
    if (from < 0) from = ARES_MAX(from + n, 0);
    if (to < 0) to += n;
    for (int64_t i = from; i < ARES_MIN(to, n); i++)
        if (jinja_equal(r, self.u.l->items[i], ARG(0))) return jinja_int(i);
    JINJA_FAIL(r, "the value is not in the %s", jinja_type_name(self));
}

METHOD(list_copy)
{
    (void)a;
    return jinja_to_list(r, self);
}

/* dict.get(key, default): None without a default. */
METHOD(dict_get)
{
    jinja_value *v = jinja_dict_find(r, self.u.d, ARG(0));
    return v ? *v : GIVEN(1) ? ARG(1) : jinja_none();
}

/* keys, values and items of a dict, by a->how = 'k', 'v' or 'i': views, which copy nothing. */
METHOD(dict_view)
{
    (void)r;
    return (jinja_value){ .kind = JV_VIEW, .flag = (uint8_t)a->how, .u.d = self.u.d };
}

/* A shallow copy, as in Python: the values are shared. */
METHOD(dict_copy)
{
    (void)a;
    jinja_dict *d = jinja_dict_new(r);
    for (int64_t i = 0; i < self.u.d->n; i++)
        jinja_dict_put(r, d, self.u.d->items[i].key, self.u.d->items[i].value);
    return (jinja_value){ .kind = JV_DICT, .u.d = d };
}

/* loop.cycle(a, b ...): one of them per round, in turn. */
METHOD(loop_cycle)
{
    if (a->n_kw) JINJA_FAIL(r, "cycle() got an unexpected keyword argument");
    if (a->n == 0) JINJA_FAIL(r, "no items for cycling given");
    return a->pos[self.u.loop->index0 % a->n];
}

/* loop.changed(a ...): whether the arguments differ from those of the last call. */
METHOD(loop_changed)
{
    if (a->n_kw) JINJA_FAIL(r, "changed() got an unexpected keyword argument");
    jinja_value now = jinja_list_new(r, a->n, JV_TUPLE);
    if (a->n) memcpy(now.u.l->items, a->pos, (size_t)a->n * sizeof now);
    /* MISSING: the first call, which always counts as a change */
    if (self.u.loop->changed.kind != JV_MISSING && jinja_equal(r, self.u.loop->changed, now))
        return jinja_bool(false);
    self.u.loop->changed = now;
    return jinja_bool(true);
}

/* ------------------------------------------------------------------ the tables */
static const jinja_builtin list_methods[] = {
    { "count", list_count, .spec = "/value" },
    { "index", list_index, .spec = "/value|start stop" },
    { "copy", list_copy, .spec = "/" },
    { .name = NULL },
};
static const jinja_builtin tuple_methods[] = {
    { "count", list_count, .spec = "/value" },
    { "index", list_index, .spec = "/value|start stop" },
    { .name = NULL },
};
static const jinja_builtin dict_methods[] = {
    { "get", dict_get, .spec = "/key|default" },
    { "keys", dict_view, "/", .how = 'k' },
    { "values", dict_view, "/", .how = 'v' },
    { "items", dict_view, "/", .how = 'i' },
    { "copy", dict_copy, .spec = "/" },
    { .name = "fromkeys" }, /* of the class: refused */
    { .name = NULL },
};
static const jinja_builtin loop_methods[] = { { "cycle", loop_cycle, .spec = "*" },
                                              { "changed", loop_changed, .spec = "*" },
                                              { .name = NULL } };
/* a method of Python without a function here */
#define REFUSED(word) { .name = word }
static const jinja_builtin number_methods[] = {
    REFUSED("real"),       REFUSED("imag"),
    REFUSED("numerator"),  REFUSED("denominator"),
    REFUSED("conjugate"),  REFUSED("bit_length"),
    REFUSED("bit_count"),  REFUSED("to_bytes"),
    REFUSED("from_bytes"), REFUSED("as_integer_ratio"),
    { .name = NULL },
};
static const jinja_builtin float_methods[] = {
    REFUSED("real"), REFUSED("imag"),    REFUSED("conjugate"),        REFUSED("is_integer"),
    REFUSED("hex"),  REFUSED("fromhex"), REFUSED("as_integer_ratio"), { .name = NULL },
};
static const jinja_builtin range_methods[] = { REFUSED("count"),
                                               REFUSED("index"),
                                               { .name = NULL } };
static const jinja_builtin view_methods[] = { REFUSED("isdisjoint"),
                                              REFUSED("mapping"),
                                              { .name = NULL } };
static const jinja_builtin iter_methods[] = {
    REFUSED("send"),         REFUSED("throw"),        REFUSED("close"), REFUSED("gi_running"),
    REFUSED("gi_yieldfrom"), REFUSED("gi_suspended"), { .name = NULL },
};
static const jinja_builtin macro_methods[] = {
    REFUSED("name"),          REFUSED("arguments"), REFUSED("catch_kwargs"),
    REFUSED("catch_varargs"), REFUSED("caller"),    REFUSED("explicit_caller"),
    { .name = NULL },
};
static const jinja_builtin no_methods[] = { { .name = NULL } };

/* The table of the methods of a value, by its type. */
static const jinja_builtin *methods_of(jinja_value obj)
{
    switch (obj.kind) {
    case JV_STR: return jinja_str_methods;
    case JV_LIST: return list_methods;
    case JV_TUPLE: return tuple_methods;
    case JV_DICT: return dict_methods;
    case JV_LOOP: return loop_methods;
    case JV_BOOL:
    case JV_INT:
    case JV_BIG: return number_methods;
    case JV_FLOAT: return float_methods;
    case JV_RANGE: return range_methods;
    case JV_VIEW: return view_methods;
    case JV_ITER: return iter_methods;
    case JV_MACRO: return macro_methods;
    default: return no_methods;
    }
}

/* obj.name as a method that is bound to obj, to be called later. */
jinja_value jinja_method_of(jinja_run *r, jinja_value obj, ares_view name, bool *known)
{
    static const char *const forbidden_list[] = { "append", "clear", "pop",    "reverse",
                                                  "insert", "sort",  "extend", "remove" };
    static const char *const forbidden_dict[] = { "clear", "pop", "popitem", "setdefault",
                                                  "update" };
    *known = true;
    /* the plain dialect has no sandbox: these would change the object */
    bool plain = r->t->dialect == TEMPLATE_PLAIN;
    /* forbidden ones are undefined rather than an error, until they are used */
    for (int i = 0; obj.kind == JV_LIST && i < ARES_COUNT(forbidden_list); i++) {
        if (!ares_view_is(name, forbidden_list[i])) continue;
        if (plain) JINJA_UNSUPPORTED(r, "'%s' of a list is not supported", forbidden_list[i]);
        return jinja_undefined("access to this attribute of 'list' object is unsafe.");
    }
    for (int i = 0; obj.kind == JV_DICT && i < ARES_COUNT(forbidden_dict); i++) {
        if (!ares_view_is(name, forbidden_dict[i])) continue;
        if (plain) JINJA_UNSUPPORTED(r, "'%s' of a dict is not supported", forbidden_dict[i]);
        return jinja_undefined("access to this attribute of 'dict' object is unsafe.");
    }
    if (obj.kind == JV_FUNC && obj.u.fn->repr) JINJA_UNSUPPORTED(r, "attributes of a class");
    if (obj.kind == JV_STR && obj.flag &&
        (ares_view_is(name, "striptags") || ares_view_is(name, "unescape") ||
         ares_view_is(name, "escape")))
        JINJA_UNSUPPORTED(r, "this method of text marked safe");
    for (const jinja_builtin *e = methods_of(obj); e->name; e++) {
        if (!ares_view_is(name, e->name)) continue;
        if (!e->fn)
            JINJA_UNSUPPORTED(r, "'%s' of %s is not supported", e->name, jinja_type_name(obj));
        jinja_method *m = jinja_alloc(r, sizeof *m);
        *m = (jinja_method){ obj, e };
        return (jinja_value){ .kind = JV_METHOD, .u.method = m };
    }
    *known = false;
    return jinja_none();
}

/* ------------------------------------------------------------------ globals */
/* In 128 bits, because the width of a range of int64 may have 65. */
METHOD(global_range)
{
    (void)self;
    int64_t v[3] = { 0, 0, 1 };
    if (a->n_kw) JINJA_FAIL(r, "range() takes no keyword arguments");
    if (a->n < 1 || a->n > 3)
        JINJA_FAIL(r, "range expected 1 to 3 arguments, got %lld", (long long)a->n);
    for (int64_t i = 0; i < a->n; i++) {
        if (a->pos[i].kind == JV_BIG) JINJA_UNSUPPORTED(r, "a range beyond 64-bit integers");
        v[a->n == 1 ? 1 : i] = jinja_int_arg(r, a->pos[i], 0);
    }
    /* start, stop, step; range(n) gives the stop alone */
    if (v[2] == 0) JINJA_FAIL(r, "range() arg 3 must not be zero");
    jinja_range *g = jinja_alloc(r, sizeof *g);
    *g = (jinja_range){ v[0], v[1], v[2], 0 };
    /* the distance in the direction of the step */
    __int128 width = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1],
             by = v[2] > 0 ? v[2] : -(__int128)v[2];
    __int128 n = width > 0 ? (width - 1) / by + 1 : 0;
    if (n > JINJA_MAX_RANGE)
        JINJA_FAIL(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                   JINJA_MAX_RANGE);
    g->n = (int64_t)n;
    return (jinja_value){ .kind = JV_RANGE, .u.r = g };
}

/*
 * dict(...) and namespace(...): a dict or pairs, then the keywords. a->how is the kind of the
 * result, JV_DICT or JV_NAMESPACE.
 */
METHOD(global_dict)
{
    (void)self;
    jinja_dict *d = jinja_dict_new(r);
    /* jinja2 passes the arguments of namespace() to dict(), which the message therefore names */
    if (a->n > 1) JINJA_FAIL(r, "dict expected at most 1 argument, got %lld", (long long)a->n);
    if (a->n && a->pos[0].kind == JV_DICT) {
        for (int64_t i = 0; i < a->pos[0].u.d->n; i++)
            jinja_dict_put(r, d, a->pos[0].u.d->items[i].key, a->pos[0].u.d->items[i].value);
    } else if (a->n) {
        if (a->pos[0].kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", a->pos[0].u.hint);
        jinja_iter *it = jinja_iterate(r, a->pos[0]);
        for (jinja_value v; it->next(r, it, &v);) {
            jinja_value pair = jinja_to_list(r, v);
            /* dict([("a", 1), ("b", 2)]) */
            if (pair.u.l->n != 2)
                JINJA_FAIL(r, "dictionary update sequence element has length %lld; 2 is required",
                           (long long)pair.u.l->n);
            jinja_dict_put(r, d, pair.u.l->items[0], pair.u.l->items[1]);
        }
    }
    for (int64_t i = 0; i < a->n_kw; i++)
        jinja_dict_put(r, d, jinja_str_view(r, a->kw[i].name.data, a->kw[i].name.len),
                       a->kw[i].value);
    return (jinja_value){ .kind = (uint8_t)a->how, .u.d = d };
}

METHOD(global_raise)
{
    (void)self;
    /* the message of the template, with which its authors refuse a conversation */
    jinja_value text = jinja_to_str(r, ARG(0));
    JINJA_FAIL(r, "%.*s", (int)ARES_MIN(text.u.s->len, 1800), text.u.s->data);
}

/* The functions that a template may call by name, unless a variable hides them. */
const jinja_builtin *jinja_find_global(ares_view name, template_dialect dialect)
{
    static const jinja_builtin common[] = {
        { "range", global_range, .spec = "*" },
        { "dict", global_dict, "*", JV_DICT, "<class 'dict'>" },
        { "namespace", global_dict, "*", JV_NAMESPACE, "<class 'jinja2.utils.Namespace'>" },
    };
    /* transformers adds these to jinja2 */
    static const jinja_builtin chat[] = {
        { "raise_exception", global_raise, .spec = "message" },
        { "strftime_now", jinja_strftime, .spec = "format" },
    };
    for (int i = 0; i < ARES_COUNT(common); i++)
        if (ares_view_is(name, common[i].name)) return &common[i];
    for (int i = 0; dialect == TEMPLATE_CHAT && i < ARES_COUNT(chat); i++)
        if (ares_view_is(name, chat[i].name)) return &chat[i];
    return NULL;
}

/* The methods of Python's str. */

#define SELF_TEXT jinja_text(self)

/* An argument that must be a text. */
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

/* Decodes the character at i; returns its length in bytes. */
static size_t step(ares_view s, size_t i, uint32_t *cp)
{
    return (size_t)jinja_decode(s.data + i, s.len - i, cp);
}

/* ------------------------------------------------------------------ case */
typedef enum { UPPER, LOWER, TITLE, CAPITALIZE } casing;

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
        before = jinja_is_cased(cp);
        break;
    }
    /* a sigma at the start of a word */
    if (!before) return false;
    for (i = after; i < s.len;) {
        i += step(s, i, &cp);
        if (jinja_is_case_ignorable(cp)) continue;
        return !jinja_is_cased(cp);
    }
    return true;
}

/*
 * Bytes become at most three code points each; TITLE begins a word after every character without
 * case.
 */
METHOD(str_recase)
{
    casing how = (casing)a->how;
    ares_view s = SELF_TEXT;
    jinja_buf b = { 0 };
    bool cased = false, first = true;
    for (size_t i = 0; i < s.len; first = false) {
        uint32_t cp, out[3];
        size_t at = i;
        i += step(s, i, &cp);
        bool title = (how == TITLE && !cased) || (how == CAPITALIZE && first);
        jinja_case to = how == UPPER ? JINJA_UPPER : title ? JINJA_TITLE : JINJA_LOWER;
        int n = jinja_map_case(to, cp, out); /* one code point may become three */
        /* U+03A3 becomes U+03C2 at the end of a word, else U+03C3 */
        if (to == JINJA_LOWER && cp == 0x3A3 && final_sigma(s, at, i)) out[0] = 0x3C2;
        for (int k = 0; k < n; k++) jinja_add_cp(r, &b, out[k]);
        cased = jinja_is_cased(cp);
    }
    jinja_work(r, s.len * 8);
    jinja_value v = jinja_str_buf(r, &b);
    v.flag = self.flag;
    return v;
}

/* ------------------------------------------------------------------ stripping and padding */
/* Whether the character at `at` is stripped: white space, or one of set. */
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

/* strip, lstrip and rstrip, by a->how: "  a ".strip() -> "a", "xxa".lstrip("x") -> "a". */
METHOD(str_strip)
{
    jinja_value chars = ARG(0);
    int sides = a->how;
    bool space = chars.kind == JV_MISSING || chars.kind == JV_NONE;
    ares_view s = SELF_TEXT, set = space ? (ares_view){ "", 0 } : str_arg(r, chars, "strip");
    if (!space) refuse_markup(r, self);
    size_t from = 0, to = s.len;
    uint32_t cp;
    while ((sides & LEFT) && from < to && strips(set, space, s, from))
        from += step(s, from, &cp), jinja_work(r, set.len + 64);
    while ((sides & RIGHT) && to > from) {
        size_t i = to - 1;
        while (i > from && ((unsigned char)s.data[i] & 0xC0) == 0x80) i--;
        /* i: the first byte of the last character */
        if (!strips(set, space, s, i)) break;
        to = i;
        jinja_work(r, set.len + 64);
    }
    jinja_value v = jinja_str_view(r, s.data + from, to - from);
    v.flag = self.flag;
    return v;
}

/* ---------------- searching: positions count characters */
typedef struct range_of {
    ares_view part; /* the text between the bounds */
    int64_t first;  /* character at which it begins */
    bool valid; /* false: the bounds are in the wrong order, and nothing is found, not even "" */
} range_of;

/* The part of the text that the optional arguments start and stop choose. */
static range_of bounds(jinja_run *r, jinja_value self, jinja_value start, jinja_value stop)
{
    int64_t n = jinja_chars(r, self), lo = 0, hi = n;
    jinja_value *given[2] = { &start, &stop };
    for (int k = 0; k < 2; k++) {
        if (given[k]->kind == JV_MISSING || given[k]->kind == JV_NONE) continue;
        int64_t i;
        if (!jinja_as_index(*given[k], &i))
            JINJA_FAIL(r, "slice indices must be integers or None or have an __index__ method");
        /* from the end */
        if (i < 0) i = ARES_MAX(i + n, 0);
        if (k == 0) lo = i;
        else hi = ARES_MIN(i, n);
    }
    /* "abc".find("", 3, 2) is -1 */
    if (lo > hi) return (range_of){ .first = lo };
    size_t a = jinja_char_offset(r, self, lo), b = jinja_char_offset(r, self, hi);
    return (range_of){ { self.u.s->data + a, b - a }, lo, true };
}

enum { FIND, RFIND, INDEX };

/*
 * The character at which the text of the first argument is found, by rfind the last such; where it
 * is not found -1, or an error by index.
 */
METHOD(str_find)
{
    static const char *const methods[] = { "find", "rfind", "index" };
    bool last = a->how == RFIND;
    int64_t at = -1;
    ares_view what = str_arg(r, ARG(0), methods[a->how]);
    refuse_markup(r, self);
    range_of q = bounds(r, self, ARG(1), ARG(2));
    if (q.valid) {
        jinja_work(r, last ? q.part.len * (1 + ARES_MIN(what.len, 64)) : q.part.len);
        if (!last) at = ares_view_find(q.part, what, 0);
        else if (q.part.len >= what.len)
            for (at = (int64_t)(q.part.len - what.len);
                 at >= 0 && memcmp(q.part.data + at, what.data, what.len) != 0;)
                at--;
    }
    if (at < 0 && a->how == INDEX) JINJA_FAIL(r, "substring not found");
    return jinja_int(at < 0 ? -1 : q.first + jinja_count_chars(q.part.data, (size_t)at));
}

/* How often the text occurs, without overlap; "" is between all characters. */
METHOD(str_count)
{
    ares_view what = str_arg(r, ARG(0), "count");
    refuse_markup(r, self);
    range_of q = bounds(r, self, ARG(1), ARG(2));
    if (!q.valid) return jinja_int(0);
    jinja_work(r, q.part.len);
    int64_t n = 0;
    /* "" is before each character and at the end */
    if (what.len == 0) return jinja_int(jinja_count_chars(q.part.data, q.part.len) + 1);
    for (int64_t at = 0; (at = ares_view_find(q.part, what, (size_t)at)) >= 0;
         at += (int64_t)what.len)
        n++;
    return jinja_int(n);
}

/* Whether the part begins with the text, or with tail ends with it. */
static bool ends(range_of q, ares_view what, bool tail)
{
    if (!q.valid || q.part.len < what.len) return false;
    return what.len == 0 ||
           memcmp(q.part.data + (tail ? q.part.len - what.len : 0), what.data, what.len) == 0;
}

/*
 * startswith, and with a->how set endswith. The argument may be a tuple, of which one text is
 * enough.
 */
METHOD(str_startswith)
{
    bool tail = a->how;
    range_of q = bounds(r, self, ARG(1), ARG(2));
    const char *method = tail ? "endswith" : "startswith";
    refuse_markup(r, self);
    if (ARG(0).kind != JV_TUPLE) return jinja_bool(ends(q, str_arg(r, ARG(0), method), tail));
    for (int64_t i = 0; i < ARG(0).u.l->n; i++) /* any of them */
        if (ends(q, str_arg(r, ARG(0).u.l->items[i], method), tail)) return jinja_bool(true);
    return jinja_bool(false);
}

/* "abc".removeprefix("a") -> "bc"; without the prefix the text itself. */
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

/* str.replace(old, new, count): from the left, at most count times where it is given. */
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
    if (old.len == 0) { /* between all characters */
        uint32_t cp;
        while (left-- > 0) {
            jinja_add(r, &b, with.data, with.len);
            /* also after the last character */
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

/* The finished list, of exactly its length. */
static jinja_value part_list(jinja_run *r, const parts *p)
{
    jinja_value v = jinja_list_new(r, p->n, JV_LIST);
    if (p->n) memcpy(v.u.l->items, p->items, (size_t)p->n * sizeof v);
    return v;
}

/* Splits at runs of white space, at most `left` times; then the rest is one part. */
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
        /* the rest keeps its white space, as Python's: "b c " of " a b c " after one split */
        if (left-- == 0) {
            add_part(r, p, s.data + from, s.len - from);
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

/* "a,b".split(",") -> ["a", "b"]; without a separator at runs of white space. */
METHOD(str_split)
{
    ares_view s = SELF_TEXT;
    refuse_markup(r, self);
    int64_t left = jinja_int_arg(r, ARG(1), -1);
    if (left < 0) left = INT64_MAX;
    parts p = { 0 };
    jinja_work(r, s.len);
    if (!GIVEN(0) || ARG(0).kind == JV_NONE) {
        split_space(r, s, left, &p);
        return part_list(r, &p);
    }
    ares_view by = str_arg(r, ARG(0), "split");
    /* as Python says */
    if (by.len == 0) JINJA_FAIL(r, "empty separator");
    size_t i = 0;
    for (int64_t at; left-- > 0 && (at = ares_view_find(s, by, i)) >= 0; i = (size_t)at + by.len)
        add_part(r, &p, s.data + i, (size_t)at - i);
    add_part(r, &p, s.data + i, s.len - i);
    return part_list(r, &p);
}

/* "a\r\nb\n".splitlines() -> ["a", "b"]; keepends keeps the line ends. */
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
        /* CR and LF together are one end of a line */
        if (i < s.len) i += k + (cp == '\r' && i + 1 < s.len && s.data[i + 1] == '\n');
        add_part(r, &p, s.data + from, (keep ? i : end) - from);
    }
    jinja_work(r, s.len);
    return part_list(r, &p);
}

/* ", ".join(texts): other items than texts are an error, as in Python. */
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

/* ------------------------------------------------------------------ the table */
const jinja_builtin jinja_str_methods[] = {
    { "capitalize", str_recase, "/", .how = CAPITALIZE },
    { "count", str_count, .spec = "/sub|start end" },
    { "endswith", str_startswith, "/suffix|start end", .how = true },
    { "find", str_find, "/sub|start end", .how = FIND },
    { "index", str_find, "/sub|start end", .how = INDEX },
    { "join", str_join, .spec = "/iterable" },
    { "lower", str_recase, "/", .how = LOWER },
    { "lstrip", str_strip, "/|chars", .how = LEFT },
    { "removeprefix", str_removeprefix, .spec = "/prefix" },
    { "removesuffix", str_removesuffix, .spec = "/suffix" },
    { "replace", str_replace, .spec = "/old new|count" },
    { "rfind", str_find, "/sub|start end", .how = RFIND },
    { "rstrip", str_strip, "/|chars", .how = RIGHT },
    { "split", str_split, .spec = "|sep maxsplit" },
    { "splitlines", str_splitlines, .spec = "|keepends" },
    { "startswith", str_startswith, .spec = "/prefix|start end" },
    { "strip", str_strip, "/|chars", .how = LEFT | RIGHT },
    { "title", str_recase, "/", .how = TITLE },
    { "upper", str_recase, "/", .how = UPPER },
    /* what Python has beside these: no published template calls it */
    REFUSED("casefold"),
    REFUSED("center"),
    REFUSED("encode"),
    REFUSED("expandtabs"),
    REFUSED("format"),
    REFUSED("format_map"),
    REFUSED("isalnum"),
    REFUSED("isalpha"),
    REFUSED("isascii"),
    REFUSED("isdecimal"),
    REFUSED("isdigit"),
    REFUSED("isidentifier"),
    REFUSED("islower"),
    REFUSED("isnumeric"),
    REFUSED("isprintable"),
    REFUSED("isspace"),
    REFUSED("istitle"),
    REFUSED("isupper"),
    REFUSED("ljust"),
    REFUSED("maketrans"),
    REFUSED("partition"),
    REFUSED("rindex"),
    REFUSED("rjust"),
    REFUSED("rpartition"),
    REFUSED("rsplit"),
    REFUSED("swapcase"),
    REFUSED("translate"),
    REFUSED("zfill"),
    { .name = NULL },
};

/* A method that is not in the table is a mistake of ours. */
jinja_value jinja_str_call(jinja_run *r, const char *method, jinja_value self, jinja_value *pos,
                           int64_t n)
{
    for (const jinja_builtin *e = jinja_str_methods; e->name; e++) {
        if (strcmp(e->name, method) != 0) continue;
        jinja_args a = { .pos = pos, .n = n };
        return jinja_apply(r, e, self, &a);
    }
    ares_abort(__FILE__, __LINE__, method);
}
