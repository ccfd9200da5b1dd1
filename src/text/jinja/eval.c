/*
 * The evaluator of templates. In order: arguments of builtins; values from JSON; the walk over the
 * tree, with attributes, calls, expressions and statements; a whole render.
 */
#include "jinja.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/*
 * By the spec "a b|c d" a call with (1, 2, d=4) becomes [1, 2, MISSING, 4], and one with (1, c=3)
 * is an error, because b is missing.
 */
void jinja_bind(jinja_run *r, const char *name, const char *spec, jinja_args *a)
{
    if (!spec || *spec == '*') return;
    bool keywords = *spec != '/';
    if (!keywords) spec++;
    ares_view names[8]; /* no builtin has more parameters */
    int n = 0, required = -1;
    for (const char *s = spec; *s;) {
        /* all names before it */
        if (*s == '|') required = n;
        if (*s == ' ' || *s == '|') {
            s++;
            continue;
        }
        size_t len = strcspn(s, " |");
        names[n++] = (ares_view){ s, len };
        s += len;
    }
    /* no "|": all are required */
    if (required < 0) required = n;
    if (a->n > n)
        JINJA_FAIL(r, "%s() takes at most %d arguments (%lld given)", name, n, (long long)a->n);
    jinja_value *pos = jinja_alloc(r, sizeof *pos * 8);
    for (int i = 0; i < 8; i++) pos[i] = i < a->n ? a->pos[i] : (jinja_value){ .kind = JV_MISSING };
    for (int64_t k = 0; k < a->n_kw; k++) {
        int i = 0;
        while (i < n && !ares_view_eq(names[i], a->kw[k].name)) i++;
        /* not a parameter, or one that may only be given by position */
        if (!keywords || i == n)
            JINJA_FAIL(r, "%s() got an unexpected keyword argument '%.*s'", name,
                       jinja_shown(a->kw[k].name), a->kw[k].name.data);
        if (pos[i].kind != JV_MISSING)
            JINJA_FAIL(r, "%s() got multiple values for argument '%.*s'", name,
                       jinja_shown(names[i]), names[i].data);
        pos[i] = a->kw[k].value;
    }
    for (int i = 0; i < required; i++)
        if (pos[i].kind == JV_MISSING)
            JINJA_FAIL(r, "%s() missing required argument '%.*s'", name, jinja_shown(names[i]),
                       names[i].data);
    *a = (jinja_args){ .pos = pos, .n = n };
}

/* Texts are borrowed: the JSON outlives the render. */
static jinja_value jinja_from_json(jinja_run *r, const ares_json *j)
{
    jinja_enter(r);
    jinja_value v = jinja_none();
    switch (j->type) {
    case ARES_JSON_NULL: break;
    case ARES_JSON_BOOL: v = jinja_bool(j->boolean); break;
    case ARES_JSON_INT:
        if (j->big) {
            v = jinja_str_view(r, j->text.data, j->text.len);
            /* beyond 64 bits: its digits are its value */
            v.kind = JV_BIG;
        } else {
            v = jinja_int(j->integer);
        }
        break;
    case ARES_JSON_FLOAT: v = jinja_float(j->number); break;
    case ARES_JSON_STRING:
        v = jinja_str_view(r, j->text.data ? j->text.data : "", j->text.len);
        break;
    case ARES_JSON_ARRAY:
        v = jinja_list_new(r, j->count, JV_LIST);
        for (int64_t i = 0; i < j->count; i++) v.u.l->items[i] = jinja_from_json(r, &j->items[i]);
        break;
    case ARES_JSON_OBJECT:
        v = (jinja_value){ .kind = JV_DICT, .u.d = jinja_dict_new(r) };
        for (int64_t i = 0; i < j->count; i++)
            jinja_dict_put(r, v.u.d,
                           jinja_str_view(r, j->members[i].key.data ? j->members[i].key.data : "",
                                          j->members[i].key.len),
                           jinja_from_json(r, j->members[i].value));
        break;
    }
    r->depth--;
    return v;
}

/*
 * Rendering walks the tree: statements write to r->out, expressions give values. A function (the
 * template, a macro, the filter of a loop, a recursive loop) runs in an activation whose slots
 * scope.c has assigned.
 */

/* How the statements after this one go on: in order, or with what the loop around them does. */
typedef enum { GO, BREAK, CONTINUE } flow;
static flow run_all(jinja_run *r, jinja_act *act, const jinja_nodes *list);

/* Why a value is undefined, formatted in the memory of the render. */
static const char *hint(jinja_run *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static const char *hint(jinja_run *r, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* vsnprintf gives the length that it would have had */
    size_t len = (size_t)ARES_MIN(n, (int)sizeof text - 1);
    char *copy = jinja_alloc(r, len + 1);
    return memcpy(copy, text, len + 1);
}

/* ------------------------------------------------------------------ scopes */
static jinja_act *act_new(jinja_run *r, const jinja_func *f, jinja_act *up)
{
    jinja_act *act = jinja_alloc(r, sizeof *act + (size_t)f->n_slots * sizeof act->slots[0]);
    act->up = up;
    for (int32_t i = 0; i < f->n_slots; i++) act->slots[i].kind = JV_MISSING;
    r->steps += f->n_slots / 8; /* clearing slots takes time too */
    return act;
}

/* The variable at `at` in the activation `up` functions outward. */
static jinja_value *slot(jinja_act *act, int32_t up, int32_t at)
{
    while (up-- > 0) act = act->up;
    return &act->slots[at];
}

/*
 * Sets the slots of a scope. Slots that the scope declares (JLOAD_PARAM) are set by what opens it.
 */
static void enter_frame(jinja_run *r, jinja_act *act, const jinja_frame *f)
{
    for (int32_t i = 0; i < f->n; i++) {
        const jinja_load *l = &f->loads[i];
        if (l->how == JLOAD_RESOLVE) { /* from the context, else a global function */
            const jinja_value *v = jinja_dict_find_name(r, r->context, l->name);
            /* a variable wins over a function of its name */
            const jinja_builtin *fn = v ? NULL : jinja_find_global(l->name, r->t->dialect);
            /* a variable hides the function of its name */
            act->slots[l->slot] = v    ? *v
                                  : fn ? (jinja_value){ .kind = JV_FUNC, .u.fn = fn }
                                       : (jinja_value){ .kind = JV_MISSING };
        } else if (l->how == JLOAD_ALIAS) act->slots[l->slot] = *slot(act, l->up, l->from);
        else if (l->how == JLOAD_UNDEFINED) act->slots[l->slot].kind = JV_MISSING;
    }
}

/* A name that a scope set is unknown after it. */
static void leave_frame(jinja_act *act, const jinja_frame *f)
{
    for (int32_t i = 0; i < f->n; i++) act->slots[f->loads[i].slot].kind = JV_MISSING;
}

/* target: a name, an attribute of a namespace, or a tuple of targets. */
static void assign(jinja_run *r, jinja_act *act, const jinja_node *target, jinja_value v)
{
    jinja_value *place = target->kind == JN_TUPLE ? NULL : slot(act, target->up, target->slot);
    if (target->kind == JN_NAME) {
        *place = v;
    } else if (target->kind == JN_NSREF) {
        /* only the set statement checks first that it is a namespace */
        if (place->kind == JV_DICT) JINJA_UNSUPPORTED(r, "a set block that changes a dict");
        if (place->kind != JV_NAMESPACE)
            JINJA_FAIL(r, "cannot assign attribute on non-namespace object");
        jinja_dict_put(r, place->u.d, jinja_str_view(r, target->attr.data, target->attr.len), v);
    } else {
        if (!jinja_is_iterable(v))
            JINJA_FAIL(r, "cannot unpack non-iterable %s object", jinja_type_name(v));
        jinja_iter *it = jinja_iterate(r, v);
        int32_t n = target->items.n;
        /* all items are read before the first is assigned, as in Python */
        jinja_value *items = jinja_alloc(r, (size_t)n * sizeof *items + 1), extra;
        for (int32_t i = 0; i < n; i++)
            if (!it->next(r, it, &items[i]))
                JINJA_FAIL(r, "not enough values to unpack (expected %d, got %d)", n, i);
        /* a, b = (1, 2, 3) */
        if (it->next(r, it, &extra)) JINJA_FAIL(r, "too many values to unpack (expected %d)", n);
        /* targets may be tuples in turn: a, (b, c) */
        for (int32_t i = 0; i < n; i++) assign(r, act, target->items.items[i], items[i]);
    }
}

/* The value of a target as an expression, of a tuple the tuple of its values. */
static jinja_value read_target(jinja_run *r, jinja_act *act, const jinja_node *target)
{
    if (target->kind == JN_NAME) return *slot(act, target->up, target->slot);
    jinja_value v = jinja_list_new(r, target->items.n, JV_TUPLE);
    for (int32_t i = 0; i < target->items.n; i++)
        v.u.l->items[i] = read_target(r, act, target->items.items[i]);
    return v;
}

/* jinja2 checks the targets of a set before it evaluates the value. */
static void check_namespaces(jinja_run *r, jinja_act *act, const jinja_node *target)
{
    if (target->kind == JN_NSREF && slot(act, target->up, target->slot)->kind != JV_NAMESPACE)
        JINJA_FAIL(r, "cannot assign attribute on non-namespace object");
    for (int32_t i = 0; target->kind == JN_TUPLE && i < target->items.n; i++)
        check_namespaces(r, act, target->items.items[i]);
}

/* ------------------------------------------------------------------ attributes and items */
/* An undefined value: in jinja2 not the lookup is an error, but most uses of its result. */
static jinja_value no_attribute(jinja_run *r, jinja_value obj, ares_view name)
{
    if (obj.kind == JV_NONE)
        return jinja_undefined(
            hint(r, "'None' has no attribute '%.*s'", jinja_shown(name), name.data));
    return jinja_undefined(hint(r, "'%s object' has no attribute '%.*s'", jinja_type_name(obj),
                                jinja_shown(name), name.data));
}

/* Reads the next item into l->after, unless it is there. False: the current one is the last. */
static bool jinja_loop_peek(jinja_run *r, jinja_loop *l)
{
    if (l->after.kind != JV_MISSING) return true;
    if (l->it->next(r, l->it, &l->after)) return true;
    l->after.kind = JV_MISSING;
    return false;
}

/* The attributes of the variable `loop` inside a for; false: it has none of this name. */
static bool loop_attribute(jinja_run *r, jinja_loop *l, ares_view name, jinja_value *out)
{
    if (ares_view_is(name, "index")) *out = jinja_int(l->index0 + 1);
    else if (ares_view_is(name, "index0")) *out = jinja_int(l->index0);
    else if (ares_view_is(name, "first")) *out = jinja_bool(l->index0 == 0);
    else if (ares_view_is(name, "last")) *out = jinja_bool(!jinja_loop_peek(r, l));
    else if (ares_view_is(name, "length")) *out = jinja_int(jinja_loop_length(r, l));
    else if (ares_view_is(name, "revindex")) *out = jinja_int(jinja_loop_length(r, l) - l->index0);
    else if (ares_view_is(name, "revindex0"))
        *out = jinja_int(jinja_loop_length(r, l) - l->index0 - 1);
    else if (ares_view_is(name, "depth")) *out = jinja_int(l->depth0 + 1);
    else if (ares_view_is(name, "depth0")) *out = jinja_int(l->depth0);
    else if (ares_view_is(name, "previtem"))
        *out = l->index0 == 0 ? jinja_undefined("there is no previous item") : l->before;
    else if (ares_view_is(name, "nextitem"))
        *out = jinja_loop_peek(r, l) ? l->after : jinja_undefined("there is no next item");
    else return false;
    return true;
}

/* What Python's getattr finds, as far as the sandbox allows it. */
static bool attribute(jinja_run *r, jinja_value obj, ares_view name, jinja_value *out)
{
    bool known = false;
    /* the sandbox hides private names */
    if (name.len && name.data[0] == '_') return false;
    switch (obj.kind) {
    case JV_NAMESPACE: {
        /* the attributes of a namespace are what the template set */
        jinja_value *v = jinja_dict_find_name(r, obj.u.d, name);
        if (v) *out = *v;
        return v != NULL;
    }
    case JV_LOOP:
        if (loop_attribute(r, obj.u.loop, name, out)) return true;
        break;
    case JV_RANGE:
        /* its fields; its methods are found below */
        known = true;
        if (ares_view_is(name, "start")) *out = jinja_int(obj.u.r->start);
        else if (ares_view_is(name, "stop")) *out = jinja_int(obj.u.r->stop);
        else if (ares_view_is(name, "step")) *out = jinja_int(obj.u.r->step);
        else known = false;
        if (known) return true;
        break;
    case JV_MACRO:
        if (ares_view_is(name, "name") && obj.u.macro->node->kind == JN_MACRO)
            return *out =
                       jinja_str_view(r, obj.u.macro->node->name.data, obj.u.macro->node->name.len),
                   true;
        break;
    default: break;
    }
    *out = jinja_method_of(r, obj, name, &known);
    return known;
}

/* a.b: an attribute, else an item of that name. */
static jinja_value getattr(jinja_run *r, jinja_value obj, ares_view name)
{
    jinja_value v;
    if (obj.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", obj.u.hint);
    if (attribute(r, obj, name, &v)) return v;
    if (obj.kind == JV_DICT) {
        jinja_value *found = jinja_dict_find_name(r, obj.u.d, name);
        /* a key such as __class__: Python finds the attribute first, which the sandbox forbids */
        if (found && name.len > 4 && memcmp(name.data, "__", 2) == 0)
            JINJA_UNSUPPORTED(r, "a key that is an attribute of Python's dict");
        if (found) return *found;
    }
    return no_attribute(r, obj, name);
}

/* Whether Python could use it as a key; other keys are not looked up, which would be an error. */
static bool is_hashable(jinja_value v)
{
    if (v.kind == JV_TUPLE)
        for (int64_t i = 0; i < v.u.l->n; i++)
            if (!is_hashable(v.u.l->items[i])) return false;
    return v.kind != JV_LIST && v.kind != JV_DICT && v.kind != JV_VIEW;
}

/* a[b]: an item, else, where b is a text, an attribute of that name. */
jinja_value jinja_getitem(jinja_run *r, jinja_value obj, jinja_value key)
{
    int64_t i;
    jinja_value v;
    if (obj.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", obj.u.hint);
    if (obj.kind == JV_DICT && is_hashable(key)) {
        jinja_value *found = jinja_dict_find(r, obj.u.d, key);
        if (found) return *found;
    } else if ((obj.kind == JV_LIST || obj.kind == JV_TUPLE || obj.kind == JV_STR ||
                obj.kind == JV_RANGE) &&
               jinja_as_index(key, &i)) {
        int64_t n = jinja_len(r, obj);
        /* a[-1] is the last one */
        if (i < 0) i += n;
        if (i >= 0 && i < n) {
            if (obj.kind == JV_STR) {
                size_t at = jinja_char_offset(r, obj, i);
                const char *c = obj.u.s->data + at;
                uint32_t cp;
                v = jinja_str_view(r, c, (size_t)jinja_decode(c, obj.u.s->len - at, &cp));
                v.flag = obj.flag;
                return v;
            }
            return obj.kind == JV_RANGE ? jinja_range_at(obj.u.r, i) : obj.u.l->items[i];
        }
    } else if (obj.kind == JV_FUNC && obj.u.fn->repr) {
        JINJA_UNSUPPORTED(r, "subscripts of a class");
    }
    if (key.kind == JV_STR) {
        if (attribute(r, obj, jinja_text(key), &v)) return v;
        return no_attribute(r, obj, jinja_text(key));
    }
    jinja_buf b = { 0 };
    if (jinja_is_number(key)) jinja_add_repr(r, &b, key);
    return jinja_undefined(hint(r, "%s object has no element %.*s", jinja_type_name(obj),
                                (int)ARES_MIN(b.len, 80), b.data ? b.data : ""));
}

/* ------------------------------------------------------------------ calls */

/* Calls a builtin: its arguments are put in order first. */
jinja_value jinja_apply(jinja_run *r, const jinja_builtin *f, jinja_value self, jinja_args *args)
{
    jinja_bind(r, f->name, f->spec, args);
    args->how = f->how;
    return f->fn(r, self, args);
}

/* Takes a keyword argument out of the list. False: it was not given. */
static bool take_kwarg(jinja_args *a, ares_view name, jinja_value *out)
{
    for (int64_t i = 0; i < a->n_kw; i++) {
        if (!ares_view_eq(a->kw[i].name, name)) continue;
        *out = a->kw[i].value;
        memmove(a->kw + i, a->kw + i + 1, (size_t)(--a->n_kw - i) * sizeof *a->kw);
        return true;
    }
    return false;
}

static jinja_value jinja_eval(jinja_run *r, jinja_act *act, const jinja_node *n);

/*
 * Writes what the macro writes. Parameters that are not given get their defaults in order, so that
 * a default may name the parameters before it.
 */
static void run_macro(jinja_run *r, const jinja_node *n, jinja_act *up, jinja_args *a)
{
    jinja_act *act = act_new(r, n->func, up);
    enter_frame(r, act, &n->frame);
    /* the arguments, in the order of jinja2: declared ones, the caller, kwargs, varargs */
    int64_t count = n->items.n, given = ARES_MIN(a->n, count);
    bool found_caller = false;
    const char *name =
        n->kind == JN_MACRO ? hint(r, "'%.*s'", jinja_shown(n->name), n->name.data) : "None";
    for (int64_t i = 0; i < given; i++) act->slots[n->items.items[i]->slot] = a->pos[i];
    for (int64_t i = given; i < count; i++) {
        jinja_value v = { .kind = JV_MISSING };
        take_kwarg(a, n->items.items[i]->name, &v);
        found_caller |= ares_view_is(n->items.items[i]->name, "caller");
        act->slots[n->items.items[i]->slot] = v;
    }
    if (given == count)
        for (int64_t i = 0; i < count; i++)
            found_caller |= ares_view_is(n->items.items[i]->name, "caller");
    /* op: the body reads `caller`, which a call block passes as a keyword */
    if (n->op && !found_caller) {
        /* not given, or none: reading it is an error, asking whether it is defined is not */
        jinja_value caller = jinja_none();
        take_kwarg(a, ARES_VIEW("caller"), &caller);
        if (caller.kind == JV_NONE) caller = jinja_undefined("No caller defined");
        if (n->caller_slot >= 0) act->slots[n->caller_slot] = caller;
    }
    /* the body reads `kwargs`, so further keywords are allowed */
    if (n->kwargs_slot >= 0) {
        jinja_dict *d = jinja_dict_new(r);
        for (int64_t i = 0; i < a->n_kw; i++)
            jinja_dict_put(r, d, jinja_str_view(r, a->kw[i].name.data, a->kw[i].name.len),
                           a->kw[i].value);
        act->slots[n->kwargs_slot] = (jinja_value){ .kind = JV_DICT, .u.d = d };
    } else if (a->n_kw) {
        JINJA_FAIL(r, "macro %s takes no keyword argument '%.*s'", name, jinja_shown(a->kw[0].name),
                   a->kw[0].name.data);
    }
    if (n->varargs_slot >= 0) {
        jinja_value rest = jinja_list_new(r, ARES_MAX(a->n - count, 0), JV_TUPLE);
        for (int64_t i = count; i < a->n; i++) rest.u.l->items[i - count] = a->pos[i];
        act->slots[n->varargs_slot] = rest;
    } else if (a->n > count) {
        JINJA_FAIL(r, "macro %s takes not more than %lld argument(s)", name, (long long)count);
    }
    for (int32_t i = 0; i < n->items.n; i++) {
        const jinja_node *param = n->items.items[i];
        if (act->slots[param->slot].kind != JV_MISSING) continue;
        /* defaults belong to the last parameters */
        int32_t k = i - (n->items.n - n->more.n);
        /* evaluated inside the macro: it may name earlier parameters */
        if (k >= 0) act->slots[param->slot] = jinja_eval(r, act, n->more.items[k]);
        else
            act->slots[param->slot] =
                jinja_undefined(hint(r, "parameter '%.*s' was not provided",
                                     jinja_shown(param->name), param->name.data));
    }
    run_all(r, act, &n->body);
}

/* From now on text is written to b. Returns the buffer before, which the caller puts back. */
static jinja_buf *capture(jinja_run *r, jinja_buf *b)
{
    jinja_buf *outer = r->out;
    *b = (jinja_buf){ 0 };
    r->out = b;
    return outer;
}

static flow run_for(jinja_run *r, jinja_act *act, const jinja_node *n, jinja_value over,
                    int64_t depth);

/* A recursive loop is a function of its list: its text is a value. */
static jinja_value run_recursive(jinja_run *r, jinja_act *up, const jinja_node *n, jinja_value over,
                                 int64_t depth)
{
    jinja_buf b, *outer = capture(r, &b);
    run_for(r, act_new(r, n->func, up), n, over, depth);
    r->out = outer;
    return jinja_str_buf(r, &b);
}

/*
 * The arguments of a call: positional, keywords, *list, **dict. extra is one more keyword (the
 * caller of a call block).
 */
static jinja_args arguments(jinja_run *r, jinja_act *act, const jinja_node *n,
                            const jinja_kwarg *extra)
{
    jinja_args a = { .n = n->items.n };
    jinja_value rest = { 0 }, dict = { 0 };
    a.pos = jinja_alloc(r, (size_t)a.n * sizeof *a.pos + 1);
    for (int32_t i = 0; i < n->items.n; i++) a.pos[i] = jinja_eval(r, act, n->items.items[i]);
    a.kw = jinja_alloc(r, (size_t)(n->more.n + 1) * sizeof *a.kw);
    for (int32_t i = 0; i < n->more.n; i++)
        a.kw[a.n_kw++] = (jinja_kwarg){ n->keywords[i], jinja_eval(r, act, n->more.items[i]) };
    /* f(*list): after the positional ones */
    if (n->dyn_args) {
        rest = jinja_eval(r, act, n->dyn_args);
        if (!jinja_is_iterable(rest))
            JINJA_FAIL(r, "the argument after * must be an iterable, not %s",
                       jinja_type_name(rest));
        rest = jinja_to_list(r, rest);
        jinja_value *pos = jinja_alloc(r, (size_t)(a.n + rest.u.l->n) * sizeof *pos + 1);
        memcpy(pos, a.pos, (size_t)a.n * sizeof *pos);
        memcpy(pos + a.n, rest.u.l->items, (size_t)rest.u.l->n * sizeof *pos);
        a.pos = pos, a.n += rest.u.l->n;
    }
    /* f(**dict): no keyword may be given twice */
    if (n->dyn_kwargs) {
        dict = jinja_eval(r, act, n->dyn_kwargs);
        if (dict.kind != JV_DICT)
            JINJA_FAIL(r, "the argument after ** must be a mapping, not %s", jinja_type_name(dict));
        if (dict.u.d->n > 1000) jinja_fail(r, ARES_ELIMIT, "more than 1000 keyword arguments");
        jinja_kwarg *kw = jinja_alloc(r, (size_t)(a.n_kw + dict.u.d->n + 1) * sizeof *kw);
        memcpy(kw, a.kw, (size_t)a.n_kw * sizeof *kw);
        a.kw = kw;
        int64_t written = a.n_kw;
        for (int64_t i = 0; i < dict.u.d->n; i++) {
            jinja_value key = dict.u.d->items[i].key;
            if (key.kind != JV_STR) JINJA_FAIL(r, "keywords must be strings");
            for (int64_t k = 0; k < written; k++)
                if (ares_view_eq(a.kw[k].name, jinja_text(key)))
                    JINJA_FAIL(r, "got multiple values for keyword argument");
            a.kw[a.n_kw++] = (jinja_kwarg){ jinja_text(key), dict.u.d->items[i].value };
        }
    }
    if (extra) {
        for (int64_t k = 0; k < a.n_kw; k++)
            if (ares_view_eq(a.kw[k].name, extra->name))
                /* a call block passes it, so the call may not */
                JINJA_FAIL(r, "keyword argument repeated: caller");
        a.kw[a.n_kw++] = *extra;
    }
    return a;
}

/* ------------------------------------------------------------------ expressions */
static jinja_value eval_filter(jinja_run *r, jinja_act *act, const jinja_node *n, jinja_value self)
{
    if (!n->builtin)
        JINJA_FAIL(r, "No %s named '%.*s' found.", n->kind == JN_FILTER ? "filter" : "test",
                   jinja_shown(n->name), n->name.data);
    jinja_args a = arguments(r, act, n, NULL);
    return jinja_apply(r, n->builtin, self, &a);
}

/* a < b < c: b is evaluated once, and c not at all where a < b is false. */
static jinja_value eval_compare(jinja_run *r, jinja_act *act, const jinja_node *n)
{
    jinja_value left = jinja_eval(r, act, n->a);
    for (int32_t i = 0; i < n->items.n; i++) {
        const jinja_node *o = n->items.items[i];
        jinja_value right = jinja_eval(r, act, o->a);
        r->at = o;
        /* the rest is not evaluated */
        if (!jinja_compare(r, (jinja_op)o->op, left, right)) return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

/* extra: the caller of a call block, or NULL. */
static jinja_value eval_call(jinja_run *r, jinja_act *act, const jinja_node *n,
                             const jinja_kwarg *extra)
{
    jinja_value f = jinja_eval(r, act, n->a);
    jinja_args a = arguments(r, act, n, extra);
    /* a builtin, a method, a macro, or the loop of a recursive for */
    jinja_value v = jinja_none();
    jinja_enter(r);
    switch (f.kind) {
    case JV_UNDEFINED: JINJA_FAIL(r, "%s", f.u.hint);
    case JV_FUNC: v = jinja_apply(r, f.u.fn, jinja_none(), &a); break;
    case JV_METHOD: v = jinja_apply(r, f.u.method->entry, f.u.method->self, &a); break;
    case JV_MACRO: {
        jinja_buf b, *outer = capture(r, &b);
        run_macro(r, f.u.macro->node, f.u.macro->act, &a);
        r->out = outer;
        v = jinja_str_buf(r, &b);
        break;
    }
    case JV_LOOP:
        /* loop(list) runs the body of the loop again, one level deeper */
        jinja_bind(r, "loop", "iterable", &a);
        if (!f.u.loop->node)
            JINJA_FAIL(r, "The loop must have the 'recursive' marker to be called recursively.");
        v = run_recursive(r, f.u.loop->act, f.u.loop->node, a.pos[0], f.u.loop->depth0 + 1);
        break;
    default: JINJA_FAIL(r, "'%s' object is not callable", jinja_type_name(f));
    }
    r->depth--;
    return v;
}

/* The value of a node, by its kind. Operands are evaluated from left to right. */
static jinja_value eval(jinja_run *r, jinja_act *act, const jinja_node *n)
{
    jinja_value v;
    int64_t i;
    switch (n->kind) {
    case JN_CONST: return n->value;
    case JN_NAME:
        /* scope.c has found the place of every name */
        v = *slot(act, n->up, n->slot);
        if (v.kind != JV_MISSING) return v;
        /* an error only where it is used */
        return jinja_undefined(hint(r, "'%.*s' is undefined", jinja_shown(n->name), n->name.data));
    case JN_TUPLE:
    case JN_LIST:
        v = jinja_list_new(r, n->items.n, n->kind == JN_LIST ? JV_LIST : JV_TUPLE);
        for (i = 0; i < n->items.n; i++) v.u.l->items[i] = jinja_eval(r, act, n->items.items[i]);
        return v;
    case JN_DICT:
        v = (jinja_value){ .kind = JV_DICT, .u.d = jinja_dict_new(r) };
        for (i = 0; i < n->items.n; i += 2) {
            jinja_value key = jinja_eval(r, act, n->items.items[i]);
            jinja_dict_put(r, v.u.d, key, jinja_eval(r, act, n->items.items[i + 1]));
        }
        return v;
    case JN_COND:
        if (jinja_truth(r, jinja_eval(r, act, n->a))) return jinja_eval(r, act, n->b);
        if (n->c) return jinja_eval(r, act, n->c);
        return jinja_undefined(
            "the inline if-expression evaluated to false and no else section was defined.");
    /* Python gives the operand that decides, not a bool */
    case JN_OR:
        v = jinja_eval(r, act, n->a);
        return jinja_truth(r, v) ? v : jinja_eval(r, act, n->b);
    case JN_AND:
        v = jinja_eval(r, act, n->a);
        return jinja_truth(r, v) ? jinja_eval(r, act, n->b) : v;
    case JN_NOT: return jinja_bool(!jinja_truth(r, jinja_eval(r, act, n->a)));
    case JN_COMPARE: return eval_compare(r, act, n);
    case JN_BINARY:
        v = jinja_eval(r, act, n->a);
        return jinja_binary(r, (jinja_op)n->op, v, jinja_eval(r, act, n->b));
    case JN_CONCAT: { /* all parts are evaluated before the first becomes text */
        jinja_value *parts = jinja_alloc(r, (size_t)n->items.n * sizeof *parts);
        for (i = 0; i < n->items.n; i++) parts[i] = jinja_eval(r, act, n->items.items[i]);
        jinja_buf b = { 0 };
        for (i = 0; i < n->items.n; i++) jinja_add_str(r, &b, parts[i]);
        return jinja_str_buf(r, &b);
    }
    case JN_NEG: return jinja_negate(r, jinja_eval(r, act, n->a));
    case JN_POS:
        v = jinja_eval(r, act, n->a);
        if (v.kind == JV_UNDEFINED) JINJA_FAIL(r, "%s", v.u.hint);
        if (!jinja_is_number(v))
            JINJA_FAIL(r, "bad operand type for unary +: '%s'", jinja_type_name(v));
        return jinja_as_index(v, &i) ? jinja_int(i) : v; /* +True is 1 */
    case JN_GETATTR: return getattr(r, jinja_eval(r, act, n->a), n->name);
    case JN_GETITEM: {
        /* a[b] and a[b:c:d] */
        jinja_value obj = jinja_eval(r, act, n->a);
        const jinja_node *s = n->b;
        if (s->kind != JN_SLICE) return jinja_getitem(r, obj, jinja_eval(r, act, s));
        jinja_value part[3];
        const jinja_node *from[3] = { s->a, s->b, s->c };
        /* a bound left out is None */
        for (int k = 0; k < 3; k++) part[k] = from[k] ? jinja_eval(r, act, from[k]) : jinja_none();
        return jinja_slice(r, obj, part[0], part[1], part[2]);
    }
    case JN_CALL: return eval_call(r, act, n, NULL);
    case JN_FILTER:
    case JN_TEST: return eval_filter(r, act, n, jinja_eval(r, act, n->a));
    default: JINJA_UNSUPPORTED(r, "this expression");
    }
}

static jinja_value jinja_eval(jinja_run *r, jinja_act *act, const jinja_node *n)
{
    const jinja_node *outer = r->at;
    jinja_enter(r);
    r->at = n;
    jinja_value v = eval(r, act, n);
    r->at = outer;
    r->depth--;
    return v;
}

/* ------------------------------------------------------------------ statements */
typedef struct filtered {
    const jinja_node *node;
    jinja_act *act;
    jinja_iter *from;
} filtered;

/*
 * {% for x in list if test %}: the test runs just before its item, because it may read what the
 * body writes to a namespace.
 */
static bool next_filtered(jinja_run *r, jinja_iter *it, jinja_value *out)
{
    filtered *f = it->extra;
    if (!f->from) {
        /* at the first item, as a generator begins */
        f->from = jinja_iterate(r, it->over);
        enter_frame(r, f->act, &f->node->test_frame);
    }
    for (jinja_value v; f->from->next(r, f->from, &v);) {
        assign(r, f->act, f->node->d, v);
        if (!jinja_truth(r, jinja_eval(r, f->act, f->node->c))) continue;
        *out = read_target(r, f->act, f->node->d);
        return true;
    }
    return false;
}

static flow run_for(jinja_run *r, jinja_act *act, const jinja_node *n, jinja_value over,
                    int64_t depth)
{
    if (n->c) {
        filtered *f = jinja_alloc(r, sizeof *f);
        *f = (filtered){ .node = n, .act = act_new(r, n->test_func, n->flag ? act->up : act) };
        /* the filtered list is lazy, and the test a function of its own as in jinja2 */
        over = jinja_iter_new(r, next_filtered, over, f);
    }
    jinja_loop *l = jinja_alloc(r, sizeof *l);
    /* length -1: not known yet */
    *l = (jinja_loop){
        .over = over, .it = jinja_iterate(r, over), .index0 = -1, .length = -1, .depth0 = depth
    };
    /* recursive: the loop variable can be called */
    if (n->flag) l->node = n, l->act = act->up;
    /* no iteration has run to its end: the else block is due */
    bool nothing = true;
    for (;;) {
        /* an item that nextitem or last has read already */
        jinja_value v = l->after;
        if (v.kind != JV_MISSING) l->after.kind = JV_MISSING;
        else if (!l->it->next(r, l->it, &v)) break;
        l->index0++;
        l->before = l->current, l->current = v;
        if (n->loop_slot >= 0)
            act->slots[n->loop_slot] = (jinja_value){ .kind = JV_LOOP, .u.loop = l };
        assign(r, act, n->a, v);
        enter_frame(r, act, &n->frame);
        flow how = run_all(r, act, &n->body);
        if (how == BREAK) break;
        /* as jinja2 does: an iteration cut short does not count for else */
        if (how == GO) nothing = false;
    }
    leave_frame(act, &n->frame);
    if (!nothing || !n->orelse.n) return GO;
    enter_frame(r, act, &n->else_frame);
    flow how = run_all(r, act, &n->orelse);
    leave_frame(act, &n->else_frame);
    return how; /* break and continue there act on the enclosing loop */
}

/* Applies the filters of a set or filter block, outermost last. */
static jinja_value filter_captured(jinja_run *r, jinja_act *act, const jinja_node *n,
                                   jinja_value text)
{
    if (n->a) text = filter_captured(r, act, n->a, text);
    const jinja_node *outer = r->at;
    r->at = n;
    text = eval_filter(r, act, n, text);
    r->at = outer;
    return text;
}

/* A macro keeps the activation it was defined in, whose variables its body may read. */
static jinja_value macro_value(jinja_run *r, const jinja_node *n, jinja_act *act)
{
    jinja_macro *m = jinja_alloc(r, sizeof *m);
    *m = (jinja_macro){ n, act };
    return (jinja_value){ .kind = JV_MACRO, .u.macro = m };
}

/*
 * The block runs as a macro without parameters. Its span gets its place in characters when the
 * render has ended.
 */
static void run_generation(jinja_run *r, jinja_act *act, const jinja_node *n)
{
    /* without spans the block is plain text */
    bool track = r->spans != NULL;
    if (track && (r->out != r->top || r->in_generation))
        JINJA_UNSUPPORTED(r, "the place of a generation block inside a macro, set block, recursive "
                             "loop or other generation block");
    int64_t start = (int64_t)r->out->len;
    jinja_args none = { 0 };
    /* no block lies inside another */
    r->in_generation = true;
    run_macro(r, n, act, &none);
    if (!track) return;
    r->in_generation = false;
    ares_text_spans *s = r->spans;
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 8;
        s->items = ares_realloc(s->items, (size_t)s->cap * sizeof *s->items);
    }
    s->items[s->n++] = (ares_text_span){ .byte_start = start, .byte_end = (int64_t)r->out->len };
}

/* Runs one statement, by its kind. */
static flow run(jinja_run *r, jinja_act *act, const jinja_node *n)
{
    switch (n->kind) {
    case JN_OUTPUT:
        /* text between tags */
        if (n->value.kind == JV_STR) jinja_add_str(r, r->out, n->value);
        for (int32_t i = 0; i < n->items.n; i++) {
            jinja_value v = jinja_eval(r, act, n->items.items[i]);
            r->at = n->items.items[i];
            jinja_add_str(r, r->out, v);
        }
        return GO;
    case JN_IF:
        if (jinja_truth(r, jinja_eval(r, act, n->a))) return run_all(r, act, &n->body);
        for (int32_t i = 0; i < n->items.n; i++) /* the elifs */
            if (jinja_truth(r, jinja_eval(r, act, n->items.items[i]->a)))
                return run_all(r, act, &n->items.items[i]->body);
        return run_all(r, act, &n->orelse);
    case JN_SET:
        /* before the value, whose evaluation may fail in another way */
        check_namespaces(r, act, n->a);
        assign(r, act, n->a, jinja_eval(r, act, n->b));
        return GO;
    case JN_FOR: {
        jinja_value over = jinja_eval(r, act, n->b);
        if (!n->flag) return run_for(r, act, n, over, 0);
        jinja_add_str(r, r->out, run_recursive(r, act, n, over, 0));
        return GO;
    }
    case JN_MACRO: *slot(act, n->a->up, n->a->slot) = macro_value(r, n, act); return GO;
    case JN_CALLBLOCK: {
        jinja_kwarg caller = { ARES_VIEW("caller"), macro_value(r, n, act) };
        r->at = n->a;
        jinja_add_str(r, r->out, eval_call(r, act, n->a, &caller));
        return GO;
    }
    case JN_SETBLOCK:
    case JN_FILTERBLOCK: {
        /* of a set block a target gets the text; that of a filter block is written, filtered */
        enter_frame(r, act, &n->frame);
        jinja_buf b, *outer = capture(r, &b);
        flow how = run_all(r, act, &n->body);
        r->out = outer;
        if (how != GO) return how; /* a break leaves the block too, without its text */
        jinja_value text = jinja_str_buf(r, &b);
        /* set blocks keep it in b, since a has their target */
        const jinja_node *filter = n->kind == JN_SETBLOCK ? n->b : n->a;
        if (filter) text = filter_captured(r, act, filter, text);
        if (n->kind == JN_SETBLOCK) assign(r, act, n->a, text);
        else jinja_add_str(r, r->out, text);
        leave_frame(act, &n->frame);
        return GO;
    }
    case JN_WITH: {
        enter_frame(r, act, &n->frame);
        for (int32_t i = 0; i < n->items.n; i++)
            assign(r, act, n->items.items[i], jinja_eval(r, act, n->more.items[i]));
        flow how = run_all(r, act, &n->body);
        leave_frame(act, &n->frame);
        return how;
    }
    case JN_GENERATION: run_generation(r, act, n); return GO;
    case JN_BREAK: return BREAK;
    case JN_CONTINUE: return CONTINUE;
    default: JINJA_UNSUPPORTED(r, "this statement");
    }
}

static flow run_all(jinja_run *r, jinja_act *act, const jinja_nodes *list)
{
    const jinja_node *outer = r->at;
    flow how = GO;
    jinja_enter(r);
    for (int32_t i = 0; i < list->n && how == GO; i++) {
        r->at = list->items[i];
        /* the limit bounds empty loops too */
        if (++r->steps > r->step_limit) jinja_work(r, 0);
        how = run(r, act, list->items[i]);
    }
    r->depth--;
    r->at = outer;
    return how;
}

/* ------------------------------------------------------------------ a render */
void jinja_shift_spans(ares_text_spans *spans, int64_t first, const ares_str *before)
{
    int64_t bytes = (int64_t)before->len, chars = jinja_count_chars(before->data, before->len);
    for (int64_t k = first; k < spans->n; k++) {
        spans->items[k].byte_start += bytes, spans->items[k].byte_end += bytes;
        spans->items[k].char_start += chars, spans->items[k].char_end += chars;
    }
}

/* What setjmp guards; jinja_fail comes back here. */
static int guarded(jinja_run *r, const ares_json *context)
{
    if (setjmp(r->fail)) return r->code;
    r->context = context ? jinja_from_json(r, context).u.d : jinja_dict_new(r);
    /* the template itself is the outermost function */
    jinja_act *act = act_new(r, &r->t->func, NULL);
    enter_frame(r, act, &r->t->frame);
    run_all(r, act, &r->t->body);
    return ARES_OK;
}

int ares_template_render(const ares_template *t, const ares_json *context, const struct tm *now,
                         const ares_template_limits *limits, ares_str *out, ares_text_spans *spans)
{
    if (context && context->type != ARES_JSON_OBJECT)
        return ares_fail(ARES_EFORMAT, "template: %s: the variables are not a JSON object",
                         t->name);
    jinja_run *r = ares_calloc(1, sizeof *r);
    jinja_buf top = { 0 };
    /* spans before it belong to other texts */
    int64_t first = spans ? spans->n : 0;
    *r = (jinja_run){ .t = t,
                      /* bytes and steps that no published template comes near */
                      .memory_limit = (size_t)512 << 20,
                      .output_limit = (size_t)64 << 20,
                      .step_limit = 50000000,
                      .now = now,
                      .out = &top,
                      .top = &top,
                      .spans = spans };
    if (limits && limits->steps) r->step_limit = limits->steps;
    if (limits && limits->memory_bytes) r->memory_limit = limits->memory_bytes;
    if (limits && limits->output_bytes) r->output_limit = limits->output_bytes;
    int code = guarded(r, context);
    if (code == ARES_OK) {
        const char *text = top.data ? top.data : "";
        if (spans) {
            /* from bytes to characters, in one pass over the text: spans stand in order */
            int64_t byte = 0, chars = 0;
            for (int64_t k = first; k < spans->n; k++) {
                ares_text_span *s = &spans->items[k];
                /* the characters between the spans */
                chars += jinja_count_chars(text + byte, (size_t)(s->byte_start - byte));
                s->char_start = chars;
                byte = s->byte_end;
                chars += jinja_count_chars(text + s->byte_start, (size_t)(byte - s->byte_start));
                s->char_end = chars;
            }
            /* out may hold text before this one */
            jinja_shift_spans(spans, first, out);
        }
        ares_str_add(out, text, top.len);
    } else if (spans) {
        /* spans of a failed render are no spans */
        spans->n = first;
    }
    ares_arena_fini(&r->arena);
    ares_free(r);
    return code;
}

void ares_text_spans_fini(ares_text_spans *s)
{
    ares_free(s->items);
    *s = (ares_text_spans){ 0 };
}

void ares_text_spans_clear(ares_text_spans *s)
{
    s->n = 0;
}
