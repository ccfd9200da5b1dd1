/*
 * JSON Schema, draft 2020-12, the part that describes plain data. A keyword outside the list is
 * refused when the schema is loaded, so a schema never demands less than it says.
 */
#ifndef ARES_GRADE_JSON_SCHEMA_H
#define ARES_GRADE_JSON_SCHEMA_H

#include "ares/core.h"

/* keyword; what its value must be (check.c); the function that applies it (fits.c) */
#define SCHEMA_KEYWORDS(X)                        \
    X("type", TYPES, type)                        \
    X("enum", LIST, enumerated)                   \
    X("const", ANY, constant)                     \
    X("properties", SCHEMA_MAP, properties)       \
    X("required", NAMES, required)                \
    X("additionalProperties", SCHEMA, additional) \
    X("items", SCHEMA, items)                     \
    X("prefixItems", SCHEMAS, prefix_items)       \
    X("minItems", COUNT, min_items)               \
    X("maxItems", COUNT, max_items)               \
    X("uniqueItems", FLAG, unique_items)          \
    X("minimum", NUMBER, minimum)                 \
    X("maximum", NUMBER, maximum)                 \
    X("exclusiveMinimum", NUMBER, exclusive_min)  \
    X("exclusiveMaximum", NUMBER, exclusive_max)  \
    X("multipleOf", STEP, multiple)               \
    X("minLength", COUNT, min_length)             \
    X("maxLength", COUNT, max_length)             \
    X("pattern", PATTERN, pattern)                \
    X("anyOf", SCHEMAS, any_of)                   \
    X("allOf", SCHEMAS, all_of)                   \
    X("oneOf", SCHEMAS, one_of)                   \
    X("not", SCHEMA, negated)                     \
    X("$ref", REF, reference)                     \
    X("$defs", SCHEMA_MAP, annotation)            \
    X("$id", AT_ROOT, annotation)                 \
    X("$schema", AT_ROOT, annotation)             \
    X("$comment", ANY, annotation)                \
    X("title", ANY, annotation)                   \
    X("description", ANY, annotation)             \
    X("default", ANY, annotation)                 \
    X("examples", ANY, annotation)                \
    X("format", ANY, annotation)

/* A place in a document, as the steps from its root; NULL is the root. */
typedef struct schema_place {
    const struct schema_place *up;
    ares_view key; /* data NULL: index counts */
    int64_t index;
} schema_place;
/* Appends the place as a JSON pointer (RFC 6901). */
void schema_add_pointer(ares_str *out, const schema_place *at);

/*
 * Reads a schema file into the arena. A failure (ARES_ECONFIG, ARES_EIO ...) names the file and the
 * place in it.
 */
int schema_load(ares_arena *arena, const char *path, const ares_json **out);
/* What "#" or "#/$defs/name" stands for; NULL: nothing */
const ares_json *schema_find_ref(const ares_json *root, ares_view ref);

typedef struct schema_verdict {
    bool fits, exhausted;
    ares_str at;         /* JSON pointer of the first value that does not fit */
    const char *keyword; /* and the keyword it breaks; NULL: it fits, or exhausted */
} schema_verdict;
/* The schema has been loaded by schema_load. verdict begins as {0}; its text is the caller's. */
void schema_judge(const ares_json *schema, const ares_json *value, schema_verdict *verdict);

/* Numbers by value, exactly: 1 and 1.0 are equal. < 0, 0, > 0. */
int schema_compare(const ares_json *a, const ares_json *b);
/*
 * The decimal digits of a number without zeros at either end, and the power of ten of the last one.
 * 0 has no digits.
 */
ares_str schema_digits(const ares_json *number, int64_t *exponent);
enum { SCHEMA_STEP_DIGITS = 9 }; /* of multipleOf: products then fit 64 bits */
/* step: at most SCHEMA_STEP_DIGITS digits */
bool schema_is_multiple(const ares_json *number, const ares_json *step);
/* Values of any type; takes the work off *steps, and ends early when none are left. */
bool schema_equal(const ares_json *a, const ares_json *b, int64_t *steps);
static inline bool schema_is_number(const ares_json *v)
{
    return v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT;
}
#endif
