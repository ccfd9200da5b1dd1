/*
 * A value against a schema. Keywords are applied in the order of the schema file; what `anyOf`,
 * `oneOf` and `not` try is a trial, whose failures are not reported.
 */
#include "bounded_regex.h"
#include "schema.h"

#include <math.h>

/* a pattern may cost a thousand steps before its own limit ends it */
enum { STEPS = 1000000, PATTERN_STEPS = 1000, MAX_DEPTH = 2048 };

typedef struct matcher {
    const ares_json *root;
    int64_t steps; /* left; below 0: exhausted */
    int depth, trials;
    schema_verdict *verdict;
} matcher;

/* A keyword at work: the schema it stands in, its own value, and the value it judges. */
typedef struct visit {
    matcher *m;
    const ares_json *schema, *own, *value;
    const schema_place *at;
} visit;

static bool apply(matcher *m, const ares_json *schema, const ares_json *value,
                  const schema_place *at, const char *via);

static void report(matcher *m, const schema_place *at, const char *keyword)
{
    if (m->trials || m->verdict->keyword || m->steps < 0) return;
    m->verdict->keyword = keyword;
    schema_add_pointer(&m->verdict->at, at);
}

static bool try(const visit *v, const ares_json *schema)
{
    v->m->trials++;
    bool fits = apply(v->m, schema, v->value, v->at, "");
    v->m->trials--;
    return fits;
}

/* ---------------------------------------------------------------- values of any type */
static bool annotation(const visit *v)
{
    (void)v;
    return true;
}

static bool has_type(const ares_json *value, ares_view name)
{
    switch (value->type) {
    case ARES_JSON_NULL: return ares_view_is(name, "null");
    case ARES_JSON_BOOL: return ares_view_is(name, "boolean");
    case ARES_JSON_STRING: return ares_view_is(name, "string");
    case ARES_JSON_ARRAY: return ares_view_is(name, "array");
    case ARES_JSON_OBJECT: return ares_view_is(name, "object");
    case ARES_JSON_INT:
    case ARES_JSON_FLOAT: break;
    }
    bool whole = value->type == ARES_JSON_INT || value->number == trunc(value->number);
    return ares_view_is(name, "number") || (whole && ares_view_is(name, "integer"));
}

static bool type(const visit *v)
{
    if (v->own->type == ARES_JSON_STRING) return has_type(v->value, v->own->text);
    for (int64_t i = 0; i < v->own->count; i++)
        if (has_type(v->value, v->own->items[i].text)) return true;
    return false;
}

static bool constant(const visit *v)
{
    return schema_equal(v->value, v->own, &v->m->steps);
}

static bool enumerated(const visit *v)
{
    for (int64_t i = 0; i < v->own->count; i++)
        if (schema_equal(v->value, &v->own->items[i], &v->m->steps)) return true;
    return false;
}

/* ---------------------------------------------------------------- objects */
static bool properties(const visit *v)
{
    if (v->value->type != ARES_JSON_OBJECT) return true;
    for (int64_t i = 0; i < v->value->count && v->m->steps >= 0; i++) {
        const ares_json_member *member = &v->value->members[i];
        const ares_json *schema = ares_json_find(v->own, member->key);
        schema_place at = { .up = v->at, .key = member->key };
        v->m->steps -= v->own->count;
        if (schema && !apply(v->m, schema, member->value, &at, "properties")) return false;
    }
    return true;
}

static bool additional(const visit *v)
{
    const ares_json *known = ares_json_get(v->schema, "properties");
    if (v->value->type != ARES_JSON_OBJECT) return true;
    for (int64_t i = 0; i < v->value->count && v->m->steps >= 0; i++) {
        const ares_json_member *member = &v->value->members[i];
        schema_place at = { .up = v->at, .key = member->key };
        v->m->steps -= known ? known->count : 1;
        if (ares_json_find(known, member->key)) continue;
        if (!apply(v->m, v->own, member->value, &at, "additionalProperties")) return false;
    }
    return true;
}

static bool required(const visit *v)
{
    if (v->value->type != ARES_JSON_OBJECT) return true;
    for (int64_t i = 0; i < v->own->count; i++) {
        v->m->steps -= v->value->count;
        if (v->m->steps < 0 || !ares_json_find(v->value, v->own->items[i].text)) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- arrays */
static bool item(const visit *v, int64_t i, const ares_json *schema, const char *via)
{
    schema_place at = { .up = v->at, .index = i };
    return apply(v->m, schema, &v->value->items[i], &at, via);
}

static bool prefix_items(const visit *v)
{
    if (v->value->type != ARES_JSON_ARRAY) return true;
    for (int64_t i = 0; i < v->value->count && i < v->own->count; i++)
        if (!item(v, i, &v->own->items[i], "prefixItems")) return false;
    return true;
}

static bool items(const visit *v)
{
    const ares_json *prefix = ares_json_get(v->schema, "prefixItems");
    if (v->value->type != ARES_JSON_ARRAY) return true;
    for (int64_t i = prefix ? prefix->count : 0; i < v->value->count; i++)
        if (!item(v, i, v->own, "items")) return false;
    return true;
}

static bool min_items(const visit *v)
{
    return v->value->type != ARES_JSON_ARRAY || v->value->count >= v->own->integer;
}

static bool max_items(const visit *v)
{
    return v->value->type != ARES_JSON_ARRAY || v->value->count <= v->own->integer;
}

static bool unique_items(const visit *v)
{
    if (v->value->type != ARES_JSON_ARRAY || !v->own->boolean) return true;
    for (int64_t i = 1; i < v->value->count; i++)
        for (int64_t k = 0; k < i && v->m->steps >= 0; k++)
            if (schema_equal(&v->value->items[i], &v->value->items[k], &v->m->steps)) return false;
    return true;
}

/* ---------------------------------------------------------------- numbers */
/* Compares the value with the keyword's number; 0 for a value that is no number. */
static int beside(const visit *v)
{
    v->m->steps -= (int64_t)(v->value->text.len / 16);
    return schema_compare(v->value, v->own);
}

static bool minimum(const visit *v)
{
    return !schema_is_number(v->value) || beside(v) >= 0;
}

static bool maximum(const visit *v)
{
    return !schema_is_number(v->value) || beside(v) <= 0;
}

static bool exclusive_min(const visit *v)
{
    return !schema_is_number(v->value) || beside(v) > 0;
}

static bool exclusive_max(const visit *v)
{
    return !schema_is_number(v->value) || beside(v) < 0;
}

static bool multiple(const visit *v)
{
    if (!schema_is_number(v->value)) return true;
    v->m->steps -= (int64_t)v->value->text.len;
    return v->m->steps >= 0 && schema_is_multiple(v->value, v->own);
}

/* ---------------------------------------------------------------- strings */
/* Code points; the reader lets only valid UTF-8 in. */
static int64_t length(const visit *v)
{
    int64_t n = 0;
    for (size_t i = 0; i < v->value->text.len; i++)
        n += ((unsigned char)v->value->text.data[i] & 0xc0) != 0x80;
    v->m->steps -= n / 16;
    return n;
}

static bool min_length(const visit *v)
{
    return v->value->type != ARES_JSON_STRING || length(v) >= v->own->integer;
}

static bool max_length(const visit *v)
{
    return v->value->type != ARES_JSON_STRING || length(v) <= v->own->integer;
}

static bool pattern(const visit *v)
{
    if (v->value->type != ARES_JSON_STRING) return true;
    v->m->steps -= PATTERN_STEPS + (int64_t)v->value->text.len;
    if (v->m->steps < 0) return false;
    int found = bounded_regex_match(v->own->text.data, false, v->value->text);
    if (found < 0) v->m->steps = -1;
    return found == 1;
}

/* ---------------------------------------------------------------- schemas within schemas */
static bool all_of(const visit *v)
{
    for (int64_t i = 0; i < v->own->count; i++)
        if (!apply(v->m, &v->own->items[i], v->value, v->at, "allOf")) return false;
    return true;
}

static bool any_of(const visit *v)
{
    for (int64_t i = 0; i < v->own->count; i++)
        if (try(v, &v->own->items[i])) return true;
    return false;
}

static bool one_of(const visit *v)
{
    int fitting = 0;
    for (int64_t i = 0; i < v->own->count && fitting < 2; i++) fitting += try(v, &v->own->items[i]);
    return fitting == 1;
}

static bool negated(const visit *v)
{
    return !try(v, v->own);
}

static bool reference(const visit *v)
{
    const ares_json *defs = ares_json_get(v->m->root, "$defs");
    v->m->steps -= defs ? defs->count : 0;
    return apply(v->m, schema_find_ref(v->m->root, v->own->text), v->value, v->at, "$ref");
}

/* ---------------------------------------------------------------- one schema */
#define ENTRY(name, kind, function) { name, function },
static const struct {
    const char *name;
    bool (*fits)(const visit *v);
} keywords[] = { SCHEMA_KEYWORDS(ENTRY) };

/* via: the keyword that led to this schema, reported where the schema is `false` */
static bool apply(matcher *m, const ares_json *schema, const ares_json *value,
                  const schema_place *at, const char *via)
{
    if (schema->type == ARES_JSON_BOOL) {
        if (!schema->boolean) report(m, at, via);
        return schema->boolean;
    }
    if (--m->steps < 0) return false;
    if (m->depth == MAX_DEPTH) {
        m->steps = -1;
        return false;
    }
    m->depth++;
    bool fits = true;
    for (int64_t i = 0; fits && i < schema->count; i++) {
        int k = 0;
        while (!ares_view_is(schema->members[i].key, keywords[k].name)) k++;
        visit v = { m, schema, schema->members[i].value, value, at };
        fits = --m->steps >= 0 && keywords[k].fits(&v);
        if (!fits) report(m, at, keywords[k].name);
    }
    m->depth--;
    return fits;
}

void schema_judge(const ares_json *schema, const ares_json *value, schema_verdict *verdict)
{
    matcher m = { .root = schema, .steps = STEPS, .verdict = verdict };
    bool fits = apply(&m, schema, value, NULL, "false");
    verdict->exhausted = m.steps < 0;
    verdict->fits = fits && !verdict->exhausted;
}
