/* Jinja's tests: what a template may write after "is". */
#include "jinja.h"

#define ARG(i) (a->pos[i])
#define TEST(name) static jinja_value name(jinja_run *r, jinja_value self, jinja_args *a)

#define KIND(name, cond)         \
    TEST(name)                   \
    {                            \
        (void)r, (void)a;        \
        return jinja_bool(cond); \
    }
KIND(test_defined, self.kind != JV_UNDEFINED)
KIND(test_undefined, self.kind == JV_UNDEFINED)
KIND(test_none, self.kind == JV_NONE)
KIND(test_boolean, self.kind == JV_BOOL)
KIND(test_true, self.kind == JV_BOOL && self.u.b)
KIND(test_false, self.kind == JV_BOOL && !self.u.b)
KIND(test_integer, self.kind == JV_INT || self.kind == JV_BIG)
KIND(test_float, self.kind == JV_FLOAT)
KIND(test_number, jinja_is_number(self))
KIND(test_string, self.kind == JV_STR)
KIND(test_mapping, self.kind == JV_DICT)
KIND(test_iterable, jinja_is_iterable(self))
KIND(test_callable, jinja_is_callable(self))
KIND(test_escaped, self.kind == JV_STR && self.flag)
KIND(test_sequence, self.kind == JV_STR || self.kind == JV_LIST || self.kind == JV_TUPLE ||
                        self.kind == JV_DICT || self.kind == JV_RANGE || self.kind == JV_UNDEFINED)
TEST(test_odd)
{
    (void)a;
    return jinja_bool(jinja_equal(r, jinja_binary(r, JOP_MOD, self, jinja_int(2)), jinja_int(1)));
}
TEST(test_even)
{
    (void)a;
    return jinja_bool(jinja_equal(r, jinja_binary(r, JOP_MOD, self, jinja_int(2)), jinja_int(0)));
}
TEST(test_divisibleby)
{
    return jinja_bool(jinja_equal(r, jinja_binary(r, JOP_MOD, self, ARG(0)), jinja_int(0)));
}
TEST(test_lower)
{
    (void)a;
    return jinja_str_call(r, "islower", jinja_plain(r, self), NULL, 0);
}
TEST(test_upper)
{
    (void)a;
    return jinja_str_call(r, "isupper", jinja_plain(r, self), NULL, 0);
}
TEST(test_in)
{
    return jinja_bool(jinja_contains(r, self, ARG(0)));
}
TEST(test_eq)
{
    return jinja_bool(jinja_compare(r, JOP_EQ, self, ARG(0)));
}
TEST(test_ne)
{
    return jinja_bool(jinja_compare(r, JOP_NE, self, ARG(0)));
}
TEST(test_gt)
{
    return jinja_bool(jinja_compare(r, JOP_GT, self, ARG(0)));
}
TEST(test_ge)
{
    return jinja_bool(jinja_compare(r, JOP_GE, self, ARG(0)));
}
TEST(test_lt)
{
    return jinja_bool(jinja_compare(r, JOP_LT, self, ARG(0)));
}
TEST(test_le)
{
    return jinja_bool(jinja_compare(r, JOP_LE, self, ARG(0)));
}
static void want_hashable(jinja_run *r, jinja_value v)
{
    jinja_dict_find(r, jinja_dict_new(r), v);
}
TEST(test_filter)
{
    (void)a;
    want_hashable(r, self);
    return jinja_bool(self.kind == JV_STR && jinja_find_filter(jinja_text(self), r->t->dialect));
}
TEST(test_test)
{
    (void)a;
    want_hashable(r, self);
    return jinja_bool(self.kind == JV_STR && jinja_find_test(jinja_text(self)));
}

/*
 * Identity. In Python equal numbers or strings may or may not be one object; where the result would
 * depend on it, it is an error.
 */
TEST(test_sameas)
{
    jinja_value b = ARG(0);
    if (self.kind != b.kind) return jinja_bool(false);
    switch (self.kind) {
    case JV_NONE: return jinja_bool(true);
    case JV_BOOL: return jinja_bool(self.u.b == b.u.b);
    case JV_INT:
        if (self.u.i != b.u.i) return jinja_bool(false);
        if (self.u.i >= -5 && self.u.i <= 256) return jinja_bool(true);
        break;
    case JV_STR:
    case JV_FLOAT:
    case JV_BIG:
        if (!jinja_equal(r, self, b)) return jinja_bool(false);
        if (self.kind == JV_STR && self.u.s == b.u.s) return jinja_bool(true);
        break;
    case JV_METHOD:
    case JV_UNDEFINED:
    case JV_TUPLE:
    case JV_RANGE: break;
    default: return jinja_bool(self.u.l == b.u.l);
    }
    JINJA_UNSUPPORTED(r, "sameas of two equal values of type %s", jinja_type_name(self));
}

static const jinja_builtin tests[] = {
    { "odd", test_odd, "", NULL },
    { "even", test_even, "", NULL },
    { "divisibleby", test_divisibleby, "num", NULL },
    { "defined", test_defined, "", NULL },
    { "undefined", test_undefined, "", NULL },
    { "filter", test_filter, "", NULL },
    { "test", test_test, "", NULL },
    { "none", test_none, "", NULL },
    { "boolean", test_boolean, "", NULL },
    { "false", test_false, "", NULL },
    { "true", test_true, "", NULL },
    { "integer", test_integer, "", NULL },
    { "float", test_float, "", NULL },
    { "lower", test_lower, "", NULL },
    { "upper", test_upper, "", NULL },
    { "string", test_string, "", NULL },
    { "mapping", test_mapping, "", NULL },
    { "number", test_number, "", NULL },
    { "sequence", test_sequence, "", NULL },
    { "iterable", test_iterable, "", NULL },
    { "callable", test_callable, "/", NULL },
    { "sameas", test_sameas, "other", NULL },
    { "escaped", test_escaped, "", NULL },
    { "in", test_in, "seq", NULL },
    { "==", test_eq, "/b", NULL },
    { "eq", test_eq, "/b", NULL },
    { "equalto", test_eq, "/b", NULL },
    { "!=", test_ne, "/b", NULL },
    { "ne", test_ne, "/b", NULL },
    { ">", test_gt, "/b", NULL },
    { "gt", test_gt, "/b", NULL },
    { "greaterthan", test_gt, "/b", NULL },
    { "ge", test_ge, "/b", NULL },
    { ">=", test_ge, "/b", NULL },
    { "<", test_lt, "/b", NULL },
    { "lt", test_lt, "/b", NULL },
    { "lessthan", test_lt, "/b", NULL },
    { "<=", test_le, "/b", NULL },
    { "le", test_le, "/b", NULL },
};

const jinja_builtin *jinja_find_test(ares_view name)
{
    for (int i = 0; i < ARES_COUNT(tests); i++)
        if (ares_view_is(name, tests[i].name)) return &tests[i];
    return NULL;
}
