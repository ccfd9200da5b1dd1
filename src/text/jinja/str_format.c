/* str.format: fields of a text, filled from arguments, their attributes and items. */
#include "jinja.h"

/* next -1: none taken */
typedef struct fields {
    jinja_args *args;
    jinja_dict *named;
    int64_t next;
    bool manual;
} fields;

static jinja_value field_value(jinja_run *r, fields *q, ares_view name)
{
    size_t end = 0;
    while (end < name.len && name.data[end] != '.' && name.data[end] != '[') end++;
    ares_view first = { name.data, end };
    int64_t at = -1;
    bool number = first.len > 0;
    for (size_t i = 0; i < first.len; i++)
        number = number && first.data[i] >= '0' && first.data[i] <= '9';
    if (first.len == 0) {
        if (q->manual)
            JINJA_FAIL(
                r, "cannot switch from manual field specification to automatic field numbering");
        at = ++q->next;
    } else if (number) {
        if (q->next >= 0)
            JINJA_FAIL(
                r, "cannot switch from automatic field numbering to manual field specification");
        q->manual = true;
        if (!ares_parse_i64(first, &at)) JINJA_FAIL(r, "Too many decimal digits in format string");
    }
    jinja_value v;
    if (at >= 0) {
        if (q->named || at >= q->args->n)
            JINJA_FAIL(r, "Replacement index %lld out of range for positional args tuple",
                       (long long)at);
        v = q->args->pos[at];
    } else {
        jinja_value *found = q->named ? jinja_dict_find_name(r, q->named, first) : NULL;
        for (int64_t i = 0; !q->named && i < q->args->n_kw; i++)
            if (ares_view_eq(q->args->kw[i].name, first)) found = &q->args->kw[i].value;
        if (!found)
            JINJA_FAIL(r, "the format has no argument '%.*s'", (int)ARES_MIN(first.len, 80),
                       first.data);
        v = *found;
    }
    for (size_t i = end; i < name.len;) {
        bool dot = name.data[i++] == '.';
        size_t from = i;
        while (i < name.len &&
               (dot ? name.data[i] != '.' && name.data[i] != '[' : name.data[i] != ']'))
            i++;
        ares_view part = { name.data + from, i - from };
        if (part.len == 0) JINJA_FAIL(r, "Empty attribute in format string");
        if (dot) {
            v = jinja_getattr(r, v, part);
            continue;
        }
        if (i >= name.len) JINJA_FAIL(r, "Missing ']' in format string");
        if (++i < name.len && name.data[i] != '.' && name.data[i] != '[')
            JINJA_FAIL(r, "Only '.' or '[' may follow ']' in format field specifier");
        int64_t index;
        bool digits = part.data[0] != '+' && part.data[0] != '-' && ares_parse_i64(part, &index);
        v = jinja_getitem(r, v, digits ? jinja_int(index) : jinja_str_view(r, part.data, part.len));
    }
    return v;
}

static void add_format(jinja_run *r, jinja_buf *b, ares_view s, fields *q, int depth)
{
    if (depth > 1) JINJA_FAIL(r, "Max string recursion exceeded");
    for (size_t i = 0; i < s.len;) {
        size_t from = i;
        while (i < s.len && s.data[i] != '{' && s.data[i] != '}') i++;
        jinja_add(r, b, s.data + from, i - from);
        if (i >= s.len) break;
        if (i + 1 < s.len && s.data[i + 1] == s.data[i]) {
            jinja_add(r, b, s.data + i, 1);
            i += 2;
            continue;
        }
        if (s.data[i] == '}') JINJA_FAIL(r, "Single '}' encountered in format string");
        from = ++i;
        int nest = 1, brackets = 0;
        size_t name_end = SIZE_MAX;
        for (; i < s.len; i++) {
            char c = s.data[i];
            if (name_end == SIZE_MAX && c == '[') brackets = 1;
            if (name_end == SIZE_MAX && c == ']') brackets = 0;
            if (name_end == SIZE_MAX && !brackets && (c == '!' || c == ':')) name_end = i;
            nest += c == '{' ? 1 : c == '}' ? -1 : 0;
            if (nest == 0) break;
            if (name_end == SIZE_MAX && c == '{') JINJA_FAIL(r, "unexpected '{' in field name");
        }
        if (nest) JINJA_FAIL(r, "expected '}' before end of string");
        if (name_end == SIZE_MAX) name_end = i;
        jinja_value v = field_value(r, q, (ares_view){ s.data + from, name_end - from });
        size_t at = name_end;
        if (at < i && s.data[at] == '!') {
            char c = at + 1 < i ? s.data[at + 1] : 0;
            if (at + 2 < i && s.data[at + 2] != ':')
                JINJA_FAIL(r, "expected ':' after conversion specifier");
            jinja_buf text = { 0 };
            if (c == 'r') jinja_add_repr(r, &text, v);
            else if (c == 's') jinja_add_str(r, &text, v);
            else if (c == 'a') JINJA_UNSUPPORTED(r, "'!a' in a format");
            else JINJA_FAIL(r, "Unknown conversion specifier");
            v = jinja_str_buf(r, &text);
            at += 2;
        }
        jinja_buf inner = { 0 };
        if (at < i) add_format(r, &inner, (ares_view){ s.data + at + 1, i - at - 1 }, q, depth + 1);
        jinja_add_formatted(r, b, v, (ares_view){ inner.data, inner.len });
        i++;
    }
}

jinja_value jinja_str_format(jinja_run *r, jinja_value format, jinja_args *args, jinja_dict *named)
{
    if (format.flag) JINJA_UNSUPPORTED(r, "format on text marked safe");
    jinja_buf b = { 0 };
    fields q = { .args = args, .named = named, .next = -1 };
    add_format(r, &b, jinja_text(format), &q, 0);
    return jinja_str_buf(r, &b);
}
