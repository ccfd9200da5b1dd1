/*
 * The verifier `json`. First JSON Schema, in three parts (values and how they compare, reading a
 * schema file, a value against a schema), then the verifier that uses it.
 */
#include "verifier.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Values as JSON Schema compares them: numbers by value and exactly, objects without order. */

static int sign_of(double x)
{
    return (x > 0) - (x < 0);
}

/* An integer of 64 bits against a finite double. */
static int compare_mixed(int64_t a, double b)
{
    if (fabs(b) >= 0x1p63) return -sign_of(b);
    int64_t whole = (int64_t)b;
    return a != whole ? ARES_CMP(a, whole) : -sign_of(b - (double)whole);
}

/* Integers as digits, without leading zeros; at least one is beyond 64 bits. */
static int compare_digits(ares_view a, ares_view b)
{
    bool minus_a = a.data[0] == '-', minus_b = b.data[0] == '-';
    if (minus_a != minus_b) return minus_a ? -1 : 1;
    int larger = a.len != b.len ? (a.len > b.len ? 1 : -1) : 0;
    for (size_t i = 0; !larger && i < a.len; i++) larger = a.data[i] - b.data[i];
    return minus_a ? -larger : larger;
}

/* A double beyond 64 bits is an integer, and has these digits. */
static ares_view integer_text(const ares_json *v, char *buffer, size_t size)
{
    if (v->type == ARES_JSON_INT) return v->text;
    return (ares_view){ buffer, (size_t)snprintf(buffer, size, "%.0f", v->number) };
}

/* Numbers by value, exactly: 1 and 1.0 are equal. < 0, 0, > 0. */
static int schema_compare(const ares_json *a, const ares_json *b)
{
    char digits_a[400], digits_b[400];
    bool int_a = a->type == ARES_JSON_INT, int_b = b->type == ARES_JSON_INT;
    if (!int_a && !int_b) return ARES_CMP(a->number, b->number);
    if ((int_a && a->big) || (int_b && b->big)) {
        if (!int_a && fabs(a->number) < 0x1p63) return b->integer < 0 ? 1 : -1;
        if (!int_b && fabs(b->number) < 0x1p63) return a->integer < 0 ? -1 : 1;
        return compare_digits(integer_text(a, digits_a, sizeof digits_a),
                              integer_text(b, digits_b, sizeof digits_b));
    }
    if (int_a && int_b) return ARES_CMP(a->integer, b->integer);
    return int_a ? compare_mixed(a->integer, b->number) : -compare_mixed(b->integer, a->number);
}

/*
 * The decimal digits of a number without zeros at either end, and the power of ten of the last one.
 * 0 has no digits.
 */
static ares_str schema_digits(const ares_json *number, int64_t *exponent)
{
    enum { FAR = 1000000000 }; /* further than any double: the rest of the exponent is cut */
    ares_str digits = { 0 };
    ares_view t = number->text;
    bool fraction = false;
    size_t i = 0;
    *exponent = 0;
    for (; i < t.len && t.data[i] != 'e' && t.data[i] != 'E'; i++) {
        char c = t.data[i];
        if (c == '.') fraction = true;
        if (c < '0' || c > '9') continue;
        if (digits.len || c != '0') ares_str_add_char(&digits, c);
        if (fraction) --*exponent;
    }
    bool minus = i + 1 < t.len && t.data[i + 1] == '-';
    int64_t power = 0;
    for (i++; i < t.len; i++)
        if (t.data[i] >= '0' && t.data[i] <= '9' && power < FAR)
            power = power * 10 + t.data[i] - '0';
    *exponent += minus ? -power : power;
    while (digits.len && digits.data[digits.len - 1] == '0') {
        digits.data[--digits.len] = 0;
        ++*exponent;
    }
    return digits;
}

enum { SCHEMA_STEP_DIGITS = 9 }; /* of multipleOf: products then fit 64 bits */

/*
 * n 10^f / (m 10^e) is whole, with neither n nor m divisible by ten: never where f < e, else where
 * m divides n 10^(f - e).
 */
static bool schema_is_multiple(const ares_json *number, const ares_json *step)
{
    int64_t f, e;
    ares_str n = schema_digits(number, &f), m_digits = schema_digits(step, &e);
    uint64_t m = 0, rest = 0;
    for (size_t i = 0; i < m_digits.len; i++) m = m * 10 + (uint64_t)(m_digits.data[i] - '0');
    ARES_ASSERT(m > 0 && m_digits.len <= SCHEMA_STEP_DIGITS);
    for (size_t i = 0; i < n.len; i++) rest = (rest * 10 + (uint64_t)(n.data[i] - '0')) % m;
    bool multiple = n.len == 0 || f >= e;
    if (n.len && f >= e) {
        uint64_t ten = 10 % m;
        for (uint64_t k = (uint64_t)(f - e); k; k >>= 1) {
            if (k & 1) rest = rest * ten % m;
            ten = ten * ten % m;
        }
        multiple = rest == 0;
    }
    ares_str_fini(&n);
    ares_str_fini(&m_digits);
    return multiple;
}

/* Values of any type; takes the work off *steps, and ends early when none are left. */
static bool schema_equal(const ares_json *a, const ares_json *b, int64_t *steps)
{
    if (--*steps < 0) return false;
    if (schema_is_number(a) && schema_is_number(b)) {
        *steps -= (int64_t)((a->text.len + b->text.len) / 16);
        return schema_compare(a, b) == 0;
    }
    if (a->type != b->type || a->count != b->count) return false;
    switch (a->type) {
    case ARES_JSON_BOOL: return a->boolean == b->boolean;
    case ARES_JSON_STRING:
        *steps -= (int64_t)(a->text.len / 16);
        return ares_view_eq(a->text, b->text);
    case ARES_JSON_ARRAY:
        for (int64_t i = 0; i < a->count; i++)
            if (!schema_equal(&a->items[i], &b->items[i], steps)) return false;
        return true;
    case ARES_JSON_OBJECT:
        for (int64_t i = 0; i < a->count; i++) {
            const ares_json *other = ares_json_find(b, a->members[i].key);
            *steps -= b->count;
            if (!other || !schema_equal(a->members[i].value, other, steps)) return false;
        }
        return true;
    case ARES_JSON_NULL:
    case ARES_JSON_INT:
    case ARES_JSON_FLOAT: break;
    }
    return true;
}

/* A schema file is read and checked once, so that judging meets only schemas it understands. */

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

/* A place in a document, as the steps from its root; NULL is the root. */
typedef struct schema_place {
    const struct schema_place *up;
    ares_view key; /* data NULL: index counts */
    int64_t index;
} schema_place;

static int check_schema(checker *c, const ares_json *schema, const schema_place *at);

/* Appends the place as a JSON pointer (RFC 6901). */
static void schema_add_pointer(ares_str *out, const schema_place *at)
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

/* What "#" or "#/$defs/name" stands for; NULL: nothing */
static const ares_json *schema_find_ref(const ares_json *root, ares_view ref)
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

/*
 * Reads a schema file into the arena. A failure (ARES_ECONFIG, ARES_EIO ...) names the file and the
 * place in it.
 */
static int schema_load(ares_arena *arena, const char *path, const ares_json **out)
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

/*
 * A value against a schema. Keywords are applied in the order of the schema file; what `anyOf`,
 * `oneOf` and `not` try is a trial, whose failures are not reported.
 */

/* a pattern may cost a thousand steps before its own limit ends it */
enum { STEPS = 1000000, PATTERN_STEPS = 1000, MAX_DEPTH = 2048 };

typedef struct schema_verdict {
    bool fits, exhausted;
    ares_str at;         /* JSON pointer of the first value that does not fit */
    const char *keyword; /* and the keyword it breaks; NULL: it fits, or exhausted */
} schema_verdict;

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

/* The schema has been loaded by schema_load. verdict begins as {0}; its text is the caller's. */
static void schema_judge(const ares_json *schema, const ares_json *value, schema_verdict *verdict)
{
    matcher m = { .root = schema, .steps = STEPS, .verdict = verdict };
    bool fits = apply(&m, schema, value, NULL, "false");
    verdict->exhausted = m.steps < 0;
    verdict->fits = fits && !verdict->exhausted;
}

/*
 * The response is one JSON text, and fits a JSON Schema where the options name one. The reader is
 * core's: strict, with its limits of depth and of numbers.
 */

#define JSON_OPTIONS(X)                                                                           \
    X(text, schema, "schema", "null", "nonempty", "file of a JSON Schema that the text must fit") \
    X(flag, fenced, "fenced", "false", "",                                                        \
      "judge the content of the last closed code fence of json; a response without one fails")
typedef struct json_options {
    JSON_OPTIONS(ARES_OPTION_FIELD_)
    ares_arena arena;
    const ares_json *loaded; /* NULL: none */
} json_options;
static ARES_OPTION_TABLE(json_table, json_options, JSON_OPTIONS);

static void load(void *options, ares_config *cfg, const char *path)
{
    json_options *o = options;
    if (!o->schema || schema_load(&o->arena, o->schema, &o->loaded) == ARES_OK) return;
    ares_config_fault(cfg, path, "%s", ares_error_message());
}

static void unload(void *options)
{
    ares_arena_fini(&((json_options *)options)->arena);
}

/* The content of the last closed ```json fence; data NULL: there is none. */
static ares_view last_fence(ares_view text)
{
    ares_view found = { NULL, 0 };
    bool open = false, json = false;
    size_t start = 0;
    for (size_t from = 0; from < text.len;) {
        int64_t newline = ares_view_find(text, ARES_VIEW("\n"), from);
        size_t end = newline < 0 ? text.len : (size_t)newline;
        ares_view line = ares_view_trim((ares_view){ text.data + from, end - from });
        if (open && ares_view_is(line, "```")) {
            if (json) found = (ares_view){ text.data + start, from - start };
            open = false;
        } else if (!open && ares_view_starts(line, ARES_VIEW("```"))) {
            open = true;
            json = ares_view_is(line, "```json") || ares_view_is(line, "```JSON");
            start = ARES_MIN(end + 1, text.len);
        }
        from = end + 1;
    }
    return found;
}

/* Whether the value fits; the details say where it does not. */
static bool fits(const ares_json *schema, const ares_json *value, ares_verify_out *out)
{
    schema_verdict verdict = { 0 };
    schema_judge(schema, value, &verdict);
    if (verdict.exhausted) {
        out->exhausted = true;
        grade_detail(out, "reason", ARES_VIEW("the work limit of the schema was reached"));
    } else if (!verdict.fits) {
        grade_detail(out, "reason", ARES_VIEW("the value does not fit the schema"));
        grade_detail(out, "at", verdict.at.data ? ares_str_view(&verdict.at) : ARES_VIEW(""));
        grade_detail(out, "keyword", ares_view_of(verdict.keyword));
    }
    ares_str_fini(&verdict.at);
    return verdict.fits;
}

static int json(const ares_verify_in *in, ares_verify_out *out)
{
    const json_options *o = in->options;
    ares_view text = o->fenced ? last_fence(in->response) : in->response;
    out->score = out->accuracy = 0;
    out->no_answer = !text.data;
    if (!text.data) {
        grade_detail(out, "reason", ARES_VIEW("there is no ```json fence"));
        return ARES_OK;
    }
    ares_arena arena = { 0 };
    const ares_json *value;
    if (ares_json_parse(&arena, ares_view_trim(text), "response", &value) != ARES_OK) {
        out->no_answer = true;
        grade_detail(out, "reason", ares_view_of(ares_error_message()));
        ares_error_clear();
    } else {
        out->score = out->accuracy = !o->loaded || fits(o->loaded, value, out);
    }
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_json = {
    .name = "json",
    .doc = "the response is one JSON text, and fits a JSON Schema",
    .options = json_table,
    .options_size = sizeof(json_options),
    .verify = json,
    .right = 1,
    .open = load,
    .close = unload,
    .any_truth = true,
};
