/* Labels of values, and templates with variables. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "sweep.h"

/* ---------------------------------------------------------------- variables */
void sweep_variables_init(sweep_variables *v, ares_arena *arena)
{
    *v = (sweep_variables){ .arena = arena, .index = ares_map_new() };
}

void sweep_variables_fini(sweep_variables *v)
{
    ares_map_free(v->index);
    ares_free(v->values);
}

void sweep_set(sweep_variables *v, const char *name, const char *value)
{
    int64_t at;
    if (!ares_map_get(v->index, ares_view_of(name), &at)) {
        if (v->n == v->cap) {
            v->cap = v->cap ? 2 * v->cap : 16;
            v->values = ares_realloc(v->values, (size_t)v->cap * sizeof *v->values);
        }
        at = v->n++;
        ares_map_put(v->index, ares_view_of(name), at);
    }
    v->values[at] = value;
}

static const char *get(const sweep_variables *v, ares_view name)
{
    int64_t at;
    return ares_map_get(v->index, name, &at) ? v->values[at] : NULL;
}

const char *sweep_get(const sweep_variables *v, const char *name)
{
    return get(v, ares_view_of(name));
}

/* ---------------------------------------------------------------- values */
void sweep_label(const char *value, const char *dot, ares_str *out)
{
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '.') ares_str_add_z(out, dot);
        else if (c < 128 && (isalnum(c) || strchr("_-+", c)))
            ares_str_add_char(out, (char)tolower(c));
        else ares_str_add_char(out, '_');
    }
}

bool sweep_same_value(const char *a, const char *b)
{
    double x, y;
    if (strcasecmp(a, b) == 0) return true;
    return ares_parse_double(ares_view_of(a), &x) && ares_parse_double(ares_view_of(b), &y) &&
           x == y;
}

static void base(const char *value, ares_str *out)
{
    size_t end = strlen(value);
    while (end && value[end - 1] == '/') end--;
    size_t begin = end;
    while (begin && value[begin - 1] != '/') begin--;
    ares_str_add(out, value + begin, end - begin);
}

/* ---------------------------------------------------------------- templates */
static size_t word_length(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '.') n++;
    return n;
}

/* "{name}" or "{name|form}" at the brace; 0: something else stands there. */
static size_t read_variable(const char *at, ares_view *name, ares_view *form)
{
    *name = (ares_view){ at + 1, word_length(at + 1) };
    const char *p = at + 1 + name->len;
    *form = (ares_view){ p, 0 };
    if (*p == '|') {
        *form = (ares_view){ p + 1, word_length(p + 1) };
        p += 1 + form->len;
    }
    return name->len && *p == '}' ? (size_t)(p + 1 - at) : 0;
}

static int no_variable(const sweep_variables *v, const char *what, ares_view name)
{
    ares_str list = { 0 };
    for (int64_t i = 0; i < ares_map_count(v->index); i++) {
        ares_view key = ares_map_key(v->index, i);
        ares_str_addf(&list, "%s%.*s", i ? ", " : "", (int)key.len, key.data);
    }
    int rc = ares_fail(ARES_ECONFIG, "sweep: %s: {%.*s}: no such variable (choices: %s)", what,
                       (int)name.len, name.data, list.len ? list.data : "none");
    ares_str_fini(&list);
    return rc;
}

static int add_variable(const sweep_variables *v, const char *what, ares_view name, ares_view form,
                        ares_str *out)
{
    const char *value = get(v, name);
    if (!value) return no_variable(v, what, name);
    if (!form.len) ares_str_add_z(out, value);
    else if (ares_view_is(form, "label")) sweep_label(value, "", out);
    else if (ares_view_is(form, "label_p")) sweep_label(value, "p", out);
    else if (ares_view_is(form, "base")) base(value, out);
    else
        return ares_fail(ARES_ECONFIG,
                         "sweep: %s: {%.*s|%.*s}: no such form (choices: label, label_p, base)",
                         what, (int)name.len, name.data, (int)form.len, form.data);
    return ARES_OK;
}

int sweep_expand(const sweep_variables *v, const char *what, const char *text, const char **out)
{
    ares_str all = { 0 };
    int rc = ARES_OK;
    while (*text && rc == ARES_OK) {
        ares_view name, form;
        size_t length = *text == '{' ? read_variable(text, &name, &form) : 0;
        if (length) rc = add_variable(v, what, name, form, &all);
        else ares_str_add_char(&all, *text);
        text += length ? length : 1;
    }
    *out = ares_arena_copy(v->arena, all.data ? all.data : "", all.len);
    ares_str_fini(&all);
    return rc;
}
