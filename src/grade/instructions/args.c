/*
 * Arguments of an instruction. Where one is missing or negative, the reference draws a random
 * number; here it is a fault.
 */
#include <math.h>

#include "check_tools.h"

static bool fault(if_args *a, const char *key)
{
    if (!a->fault) a->fault = key;
    return false;
}

bool if_arg_number(if_args *a, const char *key, double *out)
{
    const ares_json *v = ares_json_get(a->kwargs, key);
    if (!v || (v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT) || !(v->number >= 0) ||
        isinf(v->number))
        return fault(a, key);
    *out = v->number;
    return true;
}

bool if_arg_whole(if_args *a, const char *key, int64_t *out)
{
    double x = 0;
    if (!if_arg_number(a, key, &x)) return false;
    if (x != floor(x) || x > 1e15) return fault(a, key);
    *out = (int64_t)x;
    return true;
}

bool if_arg_text(if_args *a, const char *key, ares_view *out)
{
    const ares_json *v = ares_json_get(a->kwargs, key);
    if (!v || v->type != ARES_JSON_STRING) return fault(a, key);
    *out = v->text;
    return if_spend(a, (int64_t)v->text.len);
}

bool if_arg_filled(if_args *a, const char *key, ares_view *out)
{
    return if_arg_text(a, key, out) && (out->len || fault(a, key));
}

bool if_arg_texts(if_args *a, const char *key, const ares_json **out)
{
    const ares_json *v = ares_json_get(a->kwargs, key);
    if (!v || v->type != ARES_JSON_ARRAY || v->count == 0) return fault(a, key);
    for (int64_t i = 0; i < v->count; i++)
        if (v->items[i].type != ARES_JSON_STRING) return fault(a, key);
    *out = v;
    return true;
}

bool if_arg_relation(if_args *a, const char *relation_key, const char *number_key, double count,
                     bool *holds)
{
    ares_view relation = { 0 };
    double n = 0;
    if (!if_arg_number(a, number_key, &n) || !if_arg_text(a, relation_key, &relation)) return false;
    bool less = ares_view_is(relation, "less than");
    if (!less && !ares_view_is(relation, "at least")) return fault(a, relation_key);
    *holds = less ? count < n : count >= n;
    return true;
}
