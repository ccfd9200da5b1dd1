/*
 * Arguments of an instruction, and the steps that it may take. Where an argument is missing or
 * negative, the reference draws a random number; here it is a fault.
 */
#include <math.h>

#include "check_tools.h"

static const ares_json nothing = { .type = ARES_JSON_OBJECT };

static ares_json without_nulls(const ares_json *v, ares_arena *arena)
{
    if (!v || v->type != ARES_JSON_OBJECT) return nothing;
    ares_json_member *kept = ares_arena_alloc(arena, ((size_t)v->count + 1) * sizeof *kept);
    ares_json out = { .type = ARES_JSON_OBJECT, .members = kept };
    for (int64_t i = 0; i < v->count; i++)
        if (v->members[i].value->type != ARES_JSON_NULL) kept[out.count++] = v->members[i];
    return out;
}

const ares_json *if_coerce_kwargs(const ares_json *kwargs, int64_t n, ares_arena *arena)
{
    bool list = kwargs && kwargs->type == ARES_JSON_ARRAY;
    int64_t have = list ? ARES_MIN(kwargs->count, n) : ARES_MIN(n, 1);
    ares_json *items = ares_arena_alloc(arena, ((size_t)n + 1) * sizeof *items),
              *out = ares_arena_calloc(arena, 1, sizeof *out);
    for (int64_t i = 0; i < n; i++)
        items[i] = i < have ? without_nulls(list ? &kwargs->items[i] : kwargs, arena)
                   : have   ? items[have - 1]
                            : nothing;
    *out = (ares_json){ .type = ARES_JSON_ARRAY, .count = n, .items = items };
    return out;
}

bool if_take(if_budget *b, int64_t steps)
{
    if (b->steps < steps) b->exhausted = true;
    else b->steps -= steps;
    return !b->exhausted;
}

bool if_spend(if_args *a, int64_t steps)
{
    return if_take(a->budget, steps);
}

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
