/*
 * Methods of the values other than str (jinja_str.c), and the global functions. A method that
 * Python has and we do not is an error; one that the sandbox forbids is undefined, as in jinja2.
 */
#include <math.h>
#include <string.h>

#include "jinja.h"

#define ARG(i) (a->pos[i])
#define GIVEN(i) (a->pos[i].kind != JV_MISSING)
#define METHOD(name) static jinja_value name(jinja_run *r, jinja_value self, jinja_args *a)

/* ---------------- lists, dicts, loops, cyclers */
METHOD(list_count)
{
    int64_t n = 0;
    for (int64_t i = 0; i < self.u.l->n; i++) n += jinja_equal(r, self.u.l->items[i], ARG(0));
    return jinja_int(n);
}

METHOD(list_index)
{
    int64_t n = self.u.l->n, from = jinja_int_arg(r, ARG(1), 0), to = jinja_int_arg(r, ARG(2), n);
    if (from < 0) from = ARES_MAX(from + n, 0);
    if (to < 0) to += n;
    for (int64_t i = from; i < ARES_MIN(to, n); i++)
        if (jinja_equal(r, self.u.l->items[i], ARG(0))) return jinja_int(i);
    JINJA_FAIL(r, "the value is not in the %s", jinja_type_name(self));
}

METHOD(float_is_integer)
{
    (void)a, (void)r;
    return jinja_bool(isfinite(self.u.f) && self.u.f == floor(self.u.f));
}
METHOD(list_copy)
{
    (void)a;
    return jinja_to_list(r, self);
}

METHOD(dict_get)
{
    jinja_value *v = jinja_dict_find(r, self.u.d, ARG(0));
    return v ? *v : GIVEN(1) ? ARG(1) : jinja_none();
}

static jinja_value view(jinja_value self, char what)
{
    return (jinja_value){ .kind = JV_VIEW, .flag = (uint8_t)what, .u.d = self.u.d };
}
METHOD(dict_keys)
{
    (void)a, (void)r;
    return view(self, 'k');
}
METHOD(dict_values)
{
    (void)a, (void)r;
    return view(self, 'v');
}
METHOD(dict_items)
{
    (void)a, (void)r;
    return view(self, 'i');
}

METHOD(dict_copy)
{
    (void)a;
    jinja_dict *d = jinja_dict_new(r);
    for (int64_t i = 0; i < self.u.d->n; i++)
        jinja_dict_put(r, d, self.u.d->items[i].key, self.u.d->items[i].value);
    return (jinja_value){ .kind = JV_DICT, .u.d = d };
}

METHOD(loop_cycle)
{
    if (a->n_kw) JINJA_FAIL(r, "cycle() got an unexpected keyword argument");
    if (a->n == 0) JINJA_FAIL(r, "no items for cycling given");
    return a->pos[self.u.loop->index0 % a->n];
}

METHOD(loop_changed)
{
    if (a->n_kw) JINJA_FAIL(r, "changed() got an unexpected keyword argument");
    jinja_value now = jinja_list_new(r, a->n, JV_TUPLE);
    if (a->n) memcpy(now.u.l->items, a->pos, (size_t)a->n * sizeof now);
    if (self.u.loop->changed.kind != JV_MISSING && jinja_equal(r, self.u.loop->changed, now))
        return jinja_bool(false);
    self.u.loop->changed = now;
    return jinja_bool(true);
}

METHOD(cycler_next)
{
    (void)r, (void)a;
    jinja_cycler *c = self.u.cycler;
    jinja_value v = c->items.items[c->at];
    c->at = (c->at + 1) % c->items.n;
    return v;
}

METHOD(cycler_reset)
{
    (void)r, (void)a;
    self.u.cycler->at = 0;
    return jinja_none();
}

/* ------------------------------------------------------------------ the tables */
static const jinja_method_entry list_methods[] = {
    { "count", list_count, "/value" },
    { "index", list_index, "/value|start stop" },
    { "copy", list_copy, "/" },
    { NULL, NULL, NULL },
};
static const jinja_method_entry tuple_methods[] = {
    { "count", list_count, "/value" },
    { "index", list_index, "/value|start stop" },
    { NULL, NULL, NULL },
};
static const jinja_method_entry dict_methods[] = {
    { "get", dict_get, "/key|default" },
    { "keys", dict_keys, "/" },
    { "values", dict_values, "/" },
    { "items", dict_items, "/" },
    { "copy", dict_copy, "/" },
    { "fromkeys", NULL, NULL },
    { NULL, NULL, NULL },
};
static const jinja_method_entry loop_methods[] = { { "cycle", loop_cycle, "*" },
                                                   { "changed", loop_changed, "*" },
                                                   { NULL, NULL, NULL } };
static const jinja_method_entry cycler_methods[] = {
    { "next", cycler_next, "" }, { "reset", cycler_reset, "" }, { "items", NULL, NULL },
    { "pos", NULL, NULL },       { NULL, NULL, NULL },
};
#define REFUSED(word) { word, NULL, NULL }
static const jinja_method_entry number_methods[] = {
    REFUSED("real"),       REFUSED("imag"),
    REFUSED("numerator"),  REFUSED("denominator"),
    REFUSED("conjugate"),  REFUSED("bit_length"),
    REFUSED("bit_count"),  REFUSED("to_bytes"),
    REFUSED("from_bytes"), REFUSED("as_integer_ratio"),
    { NULL, NULL, NULL },
};
static const jinja_method_entry float_methods[] = {
    REFUSED("real"),
    REFUSED("imag"),
    REFUSED("conjugate"),
    { "is_integer", float_is_integer, "/" },
    REFUSED("hex"),
    REFUSED("fromhex"),
    REFUSED("as_integer_ratio"),
    { NULL, NULL, NULL },
};
static const jinja_method_entry range_methods[] = { REFUSED("count"),
                                                    REFUSED("index"),
                                                    { NULL, NULL, NULL } };
static const jinja_method_entry view_methods[] = { REFUSED("isdisjoint"),
                                                   REFUSED("mapping"),
                                                   { NULL, NULL, NULL } };
static const jinja_method_entry iter_methods[] = {
    REFUSED("send"),         REFUSED("throw"),        REFUSED("close"),     REFUSED("gi_running"),
    REFUSED("gi_yieldfrom"), REFUSED("gi_suspended"), { NULL, NULL, NULL },
};
static const jinja_method_entry macro_methods[] = {
    REFUSED("name"),          REFUSED("arguments"), REFUSED("catch_kwargs"),
    REFUSED("catch_varargs"), REFUSED("caller"),    REFUSED("explicit_caller"),
    { NULL, NULL, NULL },
};
static const jinja_method_entry joiner_methods[] = { REFUSED("sep"),
                                                     REFUSED("used"),
                                                     { NULL, NULL, NULL } };
static const jinja_method_entry no_methods[] = { { NULL, NULL, NULL } };

static const jinja_method_entry *methods_of(jinja_value obj)
{
    switch (obj.kind) {
    case JV_STR: return jinja_str_methods;
    case JV_LIST: return list_methods;
    case JV_TUPLE: return tuple_methods;
    case JV_DICT: return dict_methods;
    case JV_LOOP: return loop_methods;
    case JV_CYCLER: return cycler_methods;
    case JV_BOOL:
    case JV_INT:
    case JV_BIG: return number_methods;
    case JV_FLOAT: return float_methods;
    case JV_RANGE: return range_methods;
    case JV_VIEW: return view_methods;
    case JV_ITER: return iter_methods;
    case JV_MACRO: return macro_methods;
    case JV_JOINER: return joiner_methods;
    default: return no_methods;
    }
}

jinja_value jinja_method_of(jinja_run *r, jinja_value obj, ares_view name, bool *known)
{
    static const char *const forbidden_list[] = { "append", "clear", "pop",    "reverse",
                                                  "insert", "sort",  "extend", "remove" };
    static const char *const forbidden_dict[] = { "clear", "pop", "popitem", "setdefault",
                                                  "update" };
    *known = true;
    /* the plain dialect has no sandbox: these would change the object */
    bool plain = r->t->dialect == TEMPLATE_PLAIN;
    for (int i = 0; plain && i < ARES_COUNT(forbidden_list); i++)
        if (obj.kind == JV_LIST && ares_view_is(name, forbidden_list[i]))
            JINJA_UNSUPPORTED(r, "'%s' of a list is not supported", forbidden_list[i]);
    for (int i = 0; plain && i < ARES_COUNT(forbidden_dict); i++)
        if (obj.kind == JV_DICT && ares_view_is(name, forbidden_dict[i]))
            JINJA_UNSUPPORTED(r, "'%s' of a dict is not supported", forbidden_dict[i]);
    for (int i = 0; obj.kind == JV_LIST && i < ARES_COUNT(forbidden_list); i++)
        if (ares_view_is(name, forbidden_list[i]))
            return jinja_undefined("access to this attribute of 'list' object is unsafe.");
    for (int i = 0; obj.kind == JV_DICT && i < ARES_COUNT(forbidden_dict); i++)
        if (ares_view_is(name, forbidden_dict[i]))
            return jinja_undefined("access to this attribute of 'dict' object is unsafe.");
    if (obj.kind == JV_FUNC && obj.u.fn->repr) JINJA_UNSUPPORTED(r, "attributes of a class");
    if (obj.kind == JV_STR && obj.flag &&
        (ares_view_is(name, "striptags") || ares_view_is(name, "unescape") ||
         ares_view_is(name, "escape")))
        JINJA_UNSUPPORTED(r, "this method of text marked safe");
    for (const jinja_method_entry *e = methods_of(obj); e->name; e++) {
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
    if (v[2] == 0) JINJA_FAIL(r, "range() arg 3 must not be zero");
    jinja_range *g = jinja_alloc(r, sizeof *g);
    *g = (jinja_range){ v[0], v[1], v[2], 0 };
    __int128 width = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1],
             by = v[2] > 0 ? v[2] : -(__int128)v[2];
    __int128 n = width > 0 ? (width - 1) / by + 1 : 0;
    if (n > JINJA_MAX_RANGE)
        JINJA_FAIL(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                   JINJA_MAX_RANGE);
    g->n = (int64_t)n;
    return (jinja_value){ .kind = JV_RANGE, .u.r = g };
}

static jinja_dict *dict_of(jinja_run *r, jinja_args *a, const char *name)
{
    jinja_dict *d = jinja_dict_new(r);
    if (a->n > 1) JINJA_FAIL(r, "%s expected at most 1 argument, got %lld", name, (long long)a->n);
    if (a->n && a->pos[0].kind == JV_DICT) {
        for (int64_t i = 0; i < a->pos[0].u.d->n; i++)
            jinja_dict_put(r, d, a->pos[0].u.d->items[i].key, a->pos[0].u.d->items[i].value);
    } else if (a->n) {
        if (a->pos[0].kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", a->pos[0].u.hint);
        jinja_iter *it = jinja_iterate(r, a->pos[0]);
        for (jinja_value v; it->next(r, it, &v);) {
            jinja_value pair = jinja_to_list(r, v);
            if (pair.u.l->n != 2)
                JINJA_FAIL(r, "dictionary update sequence element has length %lld; 2 is required",
                           (long long)pair.u.l->n);
            jinja_dict_put(r, d, pair.u.l->items[0], pair.u.l->items[1]);
        }
    }
    for (int64_t i = 0; i < a->n_kw; i++)
        jinja_dict_put(r, d, jinja_str_view(r, a->kw[i].name.data, a->kw[i].name.len),
                       a->kw[i].value);
    return d;
}

METHOD(global_dict)
{
    (void)self;
    return (jinja_value){ .kind = JV_DICT, .u.d = dict_of(r, a, "dict") };
}
METHOD(global_namespace)
{
    (void)self;
    return (jinja_value){ .kind = JV_NAMESPACE, .u.d = dict_of(r, a, "dict") };
}

METHOD(global_cycler)
{
    (void)self;
    if (a->n_kw) JINJA_FAIL(r, "cycler() got an unexpected keyword argument");
    if (a->n == 0) JINJA_FAIL(r, "at least one item has to be provided");
    jinja_cycler *c = jinja_alloc(r, sizeof *c);
    *c = (jinja_cycler){ .items = { a->pos, a->n } };
    return (jinja_value){ .kind = JV_CYCLER, .u.cycler = c };
}

METHOD(global_joiner)
{
    (void)self;
    jinja_joiner *j = jinja_alloc(r, sizeof *j);
    *j = (jinja_joiner){ GIVEN(0) ? ARG(0) : jinja_str_view(r, ", ", 2), false };
    return (jinja_value){ .kind = JV_JOINER, .u.joiner = j };
}

METHOD(global_raise)
{
    (void)self;
    jinja_value text = jinja_to_str(r, ARG(0));
    JINJA_FAIL(r, "%.*s", (int)ARES_MIN(text.u.s->len, 1800), text.u.s->data);
}

METHOD(global_strftime)
{
    (void)self;
    return jinja_strftime(r, ARG(0));
}
METHOD(global_lipsum)
{
    (void)self, (void)a;
    JINJA_UNSUPPORTED(r, "lipsum gives random text");
}

const jinja_builtin *jinja_find_global(ares_view name, template_dialect dialect)
{
    static const jinja_builtin common[] = {
        { "range", global_range, "*", NULL },
        { "dict", global_dict, "*", "<class 'dict'>" },
        { "lipsum", global_lipsum, "*", NULL },
        { "cycler", global_cycler, "*", "<class 'jinja2.utils.Cycler'>" },
        { "joiner", global_joiner, "|sep", "<class 'jinja2.utils.Joiner'>" },
        { "namespace", global_namespace, "*", "<class 'jinja2.utils.Namespace'>" },
    };
    static const jinja_builtin chat[] = {
        { "raise_exception", global_raise, "message", NULL },
        { "strftime_now", global_strftime, "format", NULL },
    };
    for (int i = 0; i < ARES_COUNT(common); i++)
        if (ares_view_is(name, common[i].name)) return &common[i];
    for (int i = 0; dialect == TEMPLATE_CHAT && i < ARES_COUNT(chat); i++)
        if (ares_view_is(name, chat[i].name)) return &chat[i];
    return NULL;
}
