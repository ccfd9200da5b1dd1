/* Sections and maps are walked, also those of a list of maps; everything else is compared whole. */
#include "differ.h"

#include <stdio.h>

enum { MOST_SHOWN = 200 };

static bool same(const ares_json *a, const ares_json *b)
{
    if (a->type != b->type) return false;
    if (a->type == ARES_JSON_BOOL) return a->boolean == b->boolean;
    if (a->type == ARES_JSON_INT && !a->big && !b->big) return a->integer == b->integer;
    if (a->type == ARES_JSON_INT || a->type == ARES_JSON_FLOAT) return a->number == b->number;
    if (a->type == ARES_JSON_STRING) return ares_view_eq(a->text, b->text);
    if (a->count != b->count) return false;
    for (int64_t i = 0; a->type == ARES_JSON_ARRAY && i < a->count; i++)
        if (!same(&a->items[i], &b->items[i])) return false;
    for (int64_t i = 0; a->type == ARES_JSON_OBJECT && i < a->count; i++) {
        const ares_json *other = ares_json_find(b, a->members[i].key);
        if (!other || !same(a->members[i].value, other)) return false;
    }
    return true;
}

/* As JSON, without the end of a long one; NULL: a map has no such member. */
static void add_value(ares_str *out, const ares_json *v)
{
    size_t start = out->len, end = start + MOST_SHOWN;
    if (!v) {
        ares_str_add_z(out, "not set");
        return;
    }
    ares_json_write(out, v);
    if (out->len <= end) return;
    while (end > start && ((unsigned char)out->data[end] & 0xC0) == 0x80) end--;
    out->len = end;
    ares_str_add_z(out, "...");
}

static void describe(differing *x, const ares_json *a, const ares_json *b, const char *path)
{
    if (x->n++ == DIFFER_MOST) ares_str_add_z(x->text, "; ...");
    if (x->n > DIFFER_MOST) return;
    ares_str_addf(x->text, "%s%s: ", x->text->len ? "; " : "", path);
    add_value(x->text, a);
    ares_str_add_z(x->text, x->between);
    add_value(x->text, b);
}

static void member(differing *x, const ares_json *a, const ares_json *b, const char *path,
                   ares_view key)
{
    ares_str inner = { 0 };
    if (*path) ares_str_addf(&inner, "%s.", path);
    ares_str_add_view(&inner, key);
    differ(x, a, b, inner.data);
    ares_str_fini(&inner);
}

/* Lists of as many maps, such as worker.reward.rewards. */
static bool lists_of_maps(const ares_json *a, const ares_json *b)
{
    if (a->type != ARES_JSON_ARRAY || b->type != ARES_JSON_ARRAY || a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->items[i].type != ARES_JSON_OBJECT || b->items[i].type != ARES_JSON_OBJECT)
            return false;
    return true;
}

void differ(differing *x, const ares_json *a, const ares_json *b, const char *path)
{
    if (a && b && a->type == ARES_JSON_OBJECT && b->type == ARES_JSON_OBJECT) {
        for (int64_t i = 0; i < b->count; i++)
            member(x, ares_json_find(a, b->members[i].key), b->members[i].value, path,
                   b->members[i].key);
        for (int64_t i = 0; i < a->count; i++) /* what b has not */
            if (!ares_json_find(b, a->members[i].key))
                member(x, a->members[i].value, NULL, path, a->members[i].key);
    } else if (a && b && lists_of_maps(a, b)) {
        for (int64_t i = 0; i < a->count; i++) {
            char key[24];
            snprintf(key, sizeof key, "%lld", (long long)i);
            member(x, &a->items[i], &b->items[i], path, ares_view_of(key));
        }
    } else if (!x->may(x->cfg, path) && !(a && b && same(a, b))) describe(x, a, b, path);
}
