/* A schema file is read and checked once, so that judging meets only schemas it understands. */
#include "bounded_regex.h"
#include "schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CHAIN = 256 }; /* of schemas that judge one value through $ref, anyOf ... */

typedef enum {
    ANY,
    AT_ROOT,
    FLAG,
    COUNT,
    NUMBER,
    STEP,
    TYPES,
    NAMES,
    LIST,
    PATTERN,
    REF,
    SCHEMA,
    SCHEMAS,
    SCHEMA_MAP
} kind;

#define NAME(name, kind, function) name,
#define KIND(name, kind, function) kind,
static const char *const names[] = { SCHEMA_KEYWORDS(NAME) };
static const kind kinds[] = { SCHEMA_KEYWORDS(KIND) };

typedef struct checker {
    const char *path;
    const ares_json *root;
    ares_map *seen; /* address of a schema -> OPEN or DONE, by follow */
} checker;
enum { OPEN, DONE };

static int check_schema(checker *c, const ares_json *schema, const schema_place *at);

void schema_add_pointer(ares_str *out, const schema_place *at)
{
    if (!at) return;
    schema_add_pointer(out, at->up);
    ares_str_add_char(out, '/');
    if (!at->key.data) ares_str_addf(out, "%lld", (long long)at->index);
    for (size_t i = 0; i < at->key.len; i++) {
        if (at->key.data[i] == '~') ares_str_add_z(out, "~0");
        else if (at->key.data[i] == '/') ares_str_add_z(out, "~1");
        else ares_str_add_char(out, at->key.data[i]);
    }
}

static ARES_PRINTF(3, 4) int bad(const checker *c, const schema_place *at, const char *format, ...)
{
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    ares_str place = { 0 };
    ares_str_add_char(&place, '#');
    schema_add_pointer(&place, at);
    int rc =
        ares_fail(ARES_ECONFIG, "reward: json: schema = '%s': %s: %s", c->path, place.data, what);
    ares_str_fini(&place);
    return rc;
}

const ares_json *schema_find_ref(const ares_json *root, ares_view ref)
{
    const ares_json *defs = ares_json_get(root, "$defs");
    ares_view start = ARES_VIEW("#/$defs/");
    if (ares_view_is(ref, "#")) return root;
    if (!ares_view_starts(ref, start) || !defs) return NULL;
    for (int64_t i = 0; i < defs->count && defs->type == ARES_JSON_OBJECT; i++) {
        ares_str pointer = { 0 };
        schema_add_pointer(&pointer, &(schema_place){ .key = defs->members[i].key });
        ares_view name = { ref.data + start.len - 1, ref.len - start.len + 1 };
        bool same = ares_view_eq(ares_str_view(&pointer), name);
        ares_str_fini(&pointer);
        if (same) return defs->members[i].value;
    }
    return NULL;
}

/*
 * Follows the schemas that judge the same value as this one. Where they come back to it, judging
 * would never end; a circle through properties or items goes deeper into the value, and ends.
 */
static int follow(checker *c, const ares_json *schema, const schema_place *at, int depth)
{
    static const char *const lists[] = { "allOf", "anyOf", "oneOf" };
    ares_view address = { (const char *)&schema, sizeof schema };
    int64_t state;
    if (!schema || schema->type != ARES_JSON_OBJECT) return ARES_OK;
    if (ares_map_get(c->seen, address, &state))
        return state == DONE ? ARES_OK : bad(c, at, "$ref leads in a circle");
    if (depth == MAX_CHAIN) return bad(c, at, "more than %d schemas lead to one another", depth);
    ares_map_put(c->seen, address, OPEN);
    const ares_json *ref = ares_json_get(schema, "$ref");
    if (ref && ref->type == ARES_JSON_STRING)
        ARES_TRY(follow(c, schema_find_ref(c->root, ref->text), at, depth + 1));
    ARES_TRY(follow(c, ares_json_get(schema, "not"), at, depth + 1));
    for (int k = 0; k < ARES_COUNT(lists); k++) {
        const ares_json *list = ares_json_get(schema, lists[k]);
        for (int64_t i = 0; list && list->type == ARES_JSON_ARRAY && i < list->count; i++)
            ARES_TRY(follow(c, &list->items[i], at, depth + 1));
    }
    ares_map_put(c->seen, address, DONE);
    return ARES_OK;
}

static int check_types(checker *c, const ares_json *v, const schema_place *at)
{
    static const char *const types[] = { "null",   "boolean", "integer", "number",
                                         "string", "array",   "object" };
    bool list = v->type == ARES_JSON_ARRAY;
    if (list && v->count == 0) return bad(c, at, "must name a type");
    for (int64_t i = 0; i < (list ? v->count : 1); i++) {
        const ares_json *name = list ? &v->items[i] : v;
        bool known = false;
        for (int k = 0; k < ARES_COUNT(types) && name->type == ARES_JSON_STRING; k++)
            known = known || ares_view_is(name->text, types[k]);
        if (!known)
            return bad(c, at,
                       "no such type (choices: null, boolean, integer, number, string, array, "
                       "object, or a list of them)");
    }
    return ARES_OK;
}

static int check_step(checker *c, const ares_json *v, const schema_place *at)
{
    int64_t exponent;
    if (!schema_is_number(v) || !(v->number > 0)) return bad(c, at, "must be a number above 0");
    ares_str digits = schema_digits(v, &exponent);
    bool few = digits.len <= SCHEMA_STEP_DIGITS;
    ares_str_fini(&digits);
    return few ? ARES_OK : bad(c, at, "must have at most %d digits", SCHEMA_STEP_DIGITS);
}

static int check_pattern(checker *c, const ares_json *v, const schema_place *at)
{
    if (v->type != ARES_JSON_STRING || memchr(v->text.data, 0, v->text.len))
        return bad(c, at, "must be a string without NUL");
    if (bounded_regex_check("json", v->text.data) == ARES_OK) return ARES_OK;
    ares_str why = { 0 };
    ares_str_add_z(&why, ares_error_message());
    int rc = bad(c, at, "%s", why.data);
    ares_str_fini(&why);
    return rc;
}

static int check_names(checker *c, const ares_json *v, const schema_place *at)
{
    bool fine = v->type == ARES_JSON_ARRAY;
    for (int64_t i = 0; fine && i < v->count; i++) fine = v->items[i].type == ARES_JSON_STRING;
    return fine ? ARES_OK : bad(c, at, "must be a list of strings");
}

static int check_ref(checker *c, const ares_json *v, const schema_place *at)
{
    if (v->type == ARES_JSON_STRING && schema_find_ref(c->root, v->text)) return ARES_OK;
    return bad(c, at, "leads nowhere; give '#', or '#/$defs/NAME' with NAME in the root's $defs");
}

static int check_schemas(checker *c, const ares_json *v, const schema_place *at)
{
    if (v->type != ARES_JSON_ARRAY || v->count == 0)
        return bad(c, at, "must be a list of at least one schema");
    for (int64_t i = 0; i < v->count; i++)
        ARES_TRY(check_schema(c, &v->items[i], &(schema_place){ .up = at, .index = i }));
    return ARES_OK;
}

static int check_schema_map(checker *c, const ares_json *v, const schema_place *at)
{
    if (v->type != ARES_JSON_OBJECT) return bad(c, at, "must be an object of schemas");
    for (int64_t i = 0; i < v->count; i++) {
        schema_place member = { .up = at, .key = v->members[i].key };
        ARES_TRY(check_schema(c, v->members[i].value, &member));
    }
    return ARES_OK;
}

static int check_keyword(checker *c, kind k, const ares_json *v, const schema_place *at)
{
    switch (k) {
    case ANY: return ARES_OK;
    case AT_ROOT: return at->up ? bad(c, at, "is only known at the root") : ARES_OK;
    case FLAG: return v->type == ARES_JSON_BOOL ? ARES_OK : bad(c, at, "must be true or false");
    case COUNT:
        if (schema_is_number(v) && !v->big && v->number >= 0 && v->number < 0x1p53 &&
            v->number == (double)v->integer)
            return ARES_OK;
        return bad(c, at, "must be an integer of at least 0");
    case NUMBER: return schema_is_number(v) ? ARES_OK : bad(c, at, "must be a number");
    case STEP: return check_step(c, v, at);
    case TYPES: return check_types(c, v, at);
    case NAMES: return check_names(c, v, at);
    case LIST: return v->type == ARES_JSON_ARRAY ? ARES_OK : bad(c, at, "must be a list of values");
    case PATTERN: return check_pattern(c, v, at);
    case REF: return check_ref(c, v, at);
    case SCHEMA: return check_schema(c, v, at);
    case SCHEMAS: return check_schemas(c, v, at);
    case SCHEMA_MAP: return check_schema_map(c, v, at);
    }
    return ARES_OK;
}

static int check_schema(checker *c, const ares_json *schema, const schema_place *at)
{
    if (schema->type == ARES_JSON_BOOL) return ARES_OK;
    if (schema->type != ARES_JSON_OBJECT)
        return bad(c, at, "a schema must be an object, true or false");
    for (int64_t i = 0; i < schema->count; i++) {
        const ares_json_member *member = &schema->members[i];
        schema_place own = { .up = at, .key = member->key };
        int k = 0;
        while (k < ARES_COUNT(names) && !ares_view_is(member->key, names[k])) k++;
        if (k == ARES_COUNT(names))
            return bad(c, &own, "no keyword that this program knows (docs/rewards.md#json)");
        ARES_TRY(check_keyword(c, kinds[k], member->value, &own));
    }
    return follow(c, schema, at, 0);
}

int schema_load(ares_arena *arena, const char *path, const ares_json **out)
{
    ares_str text = { 0 };
    checker c = { .path = path };
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(arena, ares_str_view(&text), path, &c.root);
    ares_str_fini(&text);
    if (rc != ARES_OK) return ares_fail_in(rc, "reward: json: schema");
    c.seen = ares_map_new();
    rc = check_schema(&c, c.root, NULL);
    ares_map_free(c.seen);
    if (rc == ARES_OK) *out = c.root;
    return rc;
}
