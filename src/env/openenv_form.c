/* Addresses, and JSON Schemas of actions as pydantic writes them. */
#include "openenv_form.h"

#include <stdio.h>
#include <string.h>

#include "foreign.h"

/* ---------------- addresses */
static const char *read_port(ares_view text, int *port)
{
    int64_t n;
    if (!ares_parse_i64(text, &n) || n < 1 || n > 65535) return "its port is no number";
    *port = (int)n;
    return NULL;
}

const char *openenv_read_url(const char *url, openenv_address *out)
{
    static const char *const schemes[] = { "ws://", "http://" };
    const char *at = strstr(url, "://") ? NULL : url;
    for (int i = 0; i < ARES_COUNT(schemes); i++)
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0) at = url + strlen(schemes[i]);
    if (!at)
        return "only ws:// and http:// are spoken; for a server behind TLS open a tunnel to it";
    size_t host = strcspn(at, ":/?#"), rest = host + strcspn(at + host, "/?#"),
           path = strlen(at + rest);
    *out = (openenv_address){ .port = 80 };
    if (!host || host >= sizeof out->host || memchr(at, '@', host + path))
        return "expected ws://host:port/path";
    memcpy(out->host, at, host);
    if (at[host] == ':') {
        const char *wrong = read_port((ares_view){ at + host + 1, rest - host - 1 }, &out->port);
        if (wrong) return wrong;
    }
    if (path >= sizeof out->base - 16 || strpbrk(at + rest, "?# "))
        return "expected ws://host:port/path";
    while (path && at[rest + path - 1] == '/') path--;
    if (path >= 3 && memcmp(at + rest + path - 3, "/ws", 3) == 0) path -= 3;
    memcpy(out->base, at + rest, path);
    return NULL;
}

/* ---------------- schemas */
void openenv_form_fini(openenv_form *f)
{
    ares_arena_fini(&f->arena);
    *f = (openenv_form){ 0 };
}

/* {"$ref": "#/$defs/Move"}, also as the only item of allOf, stands for what it names. */
static const ares_json *follow(const ares_json *schema, const ares_json *property)
{
    const ares_json *all = ares_json_get(property, "allOf");
    if (all && all->type == ARES_JSON_ARRAY && all->count == 1) property = &all->items[0];
    const ares_json *ref = ares_json_get(property, "$ref");
    static const char defs[] = "#/$defs/";
    if (!ref || ref->type != ARES_JSON_STRING || !ares_view_starts(ref->text, ares_view_of(defs)))
        return property;
    ares_view name = { ref->text.data + strlen(defs), ref->text.len - strlen(defs) };
    const ares_json *found = ares_json_find(ares_json_get(schema, "$defs"), name);
    return found ? found : property;
}

static void read_type(openenv_form *f, const ares_json *property)
{
    static const struct {
        const char *name;
        ares_json_type type;
    } types[] = { { "string", ARES_JSON_STRING }, { "integer", ARES_JSON_INT },
                  { "number", ARES_JSON_FLOAT },  { "boolean", ARES_JSON_BOOL },
                  { "array", ARES_JSON_ARRAY },   { "object", ARES_JSON_OBJECT } };
    const ares_json *type = ares_json_get(property, "type");
    f->type = ARES_JSON_STRING;
    for (int i = 0; i < ARES_COUNT(types); i++)
        if (type && type->type == ARES_JSON_STRING && ares_view_is(type->text, types[i].name)) {
            f->type = types[i].type;
        }
}

/* The values of an enum are the names of the actions. */
static void read_names(openenv_form *f, const ares_json *property)
{
    const ares_json *values = ares_json_get(property, "enum");
    if (!values || values->type != ARES_JSON_ARRAY || !values->count) return;
    f->names = ares_arena_calloc(&f->arena, (size_t)values->count, sizeof *f->names);
    for (int64_t i = 0; i < values->count; i++) {
        const ares_json *v = &values->items[i];
        ares_str text = { 0 };
        if (v->type == ARES_JSON_STRING) ares_str_add_view(&text, v->text);
        else ares_json_write(&text, v);
        f->names[i] = ares_arena_copy(&f->arena, text.data ? text.data : "", text.len);
        ares_str_fini(&text);
    }
    f->n_names = (int)values->count;
}

/* "move, speed" */
static void list_fields(const ares_json *properties, ares_str *out)
{
    char quote[160];
    for (int64_t i = 0; properties && i < properties->count && out->len < 1000; i++)
        if (!ares_view_is(properties->members[i].key, "metadata"))
            ares_str_addf(out, "%s%s", out->len ? ", " : "",
                          foreign_quote(properties->members[i].key, quote));
}

/* The fields that the user has to fill: those required, else all. Their number; *name: the last. */
static int find_field(const ares_json *schema, const ares_json *constants, ares_view *name)
{
    const ares_json *required = ares_json_get(schema, "required"),
                    *properties = ares_json_get(schema, "properties");
    int n = 0;
    for (int64_t i = 0; required && required->type == ARES_JSON_ARRAY && i < required->count; i++) {
        ares_view key = required->items[i].text;
        if (required->items[i].type != ARES_JSON_STRING || ares_json_find(constants, key)) continue;
        *name = key;
        n++;
    }
    if (n) return n;
    for (int64_t i = 0; properties && i < properties->count; i++) {
        ares_view key = properties->members[i].key;
        if (ares_view_is(key, "metadata") || ares_json_find(constants, key)) continue;
        *name = key;
        n++;
    }
    return n;
}

static int no_field(const ares_json *properties, const char *what)
{
    ares_str fields = { 0 };
    list_fields(properties, &fields);
    int rc = ares_fail(ARES_ECONFIG,
                       "%s (fields of the server's actions: %s); name one in action_field and "
                       "give the others in action, or set action_field to '*'",
                       what, fields.len ? fields.data : "none");
    ares_str_fini(&fields);
    return rc;
}

int openenv_form_read(openenv_form *f, const ares_json *schema, const char *field,
                      const ares_json *constants)
{
    const ares_json *properties = ares_json_get(schema, "properties");
    ares_view name = ares_view_of(field);
    *f = (openenv_form){ .type = ARES_JSON_OBJECT };
    if (field && strcmp(field, "*") == 0) return ARES_OK;
    if (properties && properties->type != ARES_JSON_OBJECT) properties = NULL;
    if (!field && find_field(schema, constants, &name) != 1)
        return no_field(properties, "it is not clear where an answer goes");
    const ares_json *property = ares_json_find(properties, name);
    if (!property && properties) {
        char what[160];
        snprintf(what, sizeof what, "action_field = '%.100s': no such field", name.data);
        return no_field(properties, what);
    }
    f->field = ares_arena_copy(&f->arena, name.data, name.len);
    property = follow(schema, property);
    read_type(f, property);
    read_names(f, property);
    return ARES_OK;
}

/* ---------------- actions */
static void write_members(const ares_json *object, ares_str *out)
{
    for (int64_t i = 0; object->type == ARES_JSON_OBJECT && i < object->count; i++)
        ares_json_write(ares_json_key_view(out, object->members[i].key), object->members[i].value);
}

/* The text as JSON of the field's type; false: it is none. */
static bool write_json(const openenv_form *f, ares_view text, ares_str *out)
{
    ares_arena arena = { 0 };
    const ares_json *v;
    bool good = ares_json_parse(&arena, text, "action", &v) == ARES_OK;
    if (!good) ares_error_clear();
    good = good && (v->type == f->type || (f->type == ARES_JSON_FLOAT && v->type == ARES_JSON_INT));
    if (good && f->field) ares_json_write(ares_json_key(out, f->field), v);
    else if (good) write_members(v, out);
    ares_arena_fini(&arena);
    return good;
}

bool openenv_form_write(const openenv_form *f, const ares_json *constants, ares_view text,
                        ares_str *out)
{
    bool good = true;
    ares_json_begin(out, '{');
    write_members(constants, out);
    if (f->type != ARES_JSON_STRING) good = write_json(f, text, out);
    else ares_json_write_string(ares_json_key(out, f->field), text);
    ares_json_end(out, '}');
    return good;
}
