/* A node as YAML in one line, which reads back as the same node. */
#include "tree.h"

#include <string.h>

static bool is_plain(const char *text)
{
    static const char first[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.$";
    static const char others[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.$+-@";
    return *text && strchr(first, *text) && text[strspn(text, others)] == 0;
}

/* In double quotes as in JSON, with escapes for all characters that libyaml does not read. */
static void add_quoted(ares_str *out, const char *text)
{
    ares_str_add_char(out, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        unsigned code = 0;
        if (*p == '"' || *p == '\\') ares_str_addf(out, "\\%c", *p);
        else if (*p == '\n') ares_str_add_z(out, "\\n");
        else if (*p == '\t') ares_str_add_z(out, "\\t");
        else if (*p < 32 || *p == 127) ares_str_addf(out, "\\u%04x", *p);
        else if (*p == 0xC2 && p[1] < 0xA0)
            ares_str_addf(out, "\\u%04x", *++p); /* C1; NEL among them would break the line */
        else if (p[0] == 0xE2 && p[1] == 0x80 && (p[2] == 0xA8 || p[2] == 0xA9))
            code = p[2] == 0xA8 ? 0x2028 : 0x2029;
        else if (p[0] == 0xEF && p[1] == 0xBB && p[2] == 0xBF) code = 0xFEFF;
        else if (p[0] == 0xEF && p[1] == 0xBF && p[2] >= 0xBE)
            code = p[2] == 0xBE ? 0xFFFE : 0xFFFF;
        else ares_str_add_char(out, (char)*p);
        if (code) {
            ares_str_addf(out, "\\u%04x", code);
            p += 2;
        }
    }
    ares_str_add_char(out, '"');
}

/* A literal ${ gets a backslash, and each backslash before it is doubled. */
static void add_literal(ares_str *out, const char *text)
{
    for (const char *p = text; *p;) {
        size_t n = strspn(p, "\\");
        bool dollar = p[n] == '$' && p[n + 1] == '{';
        for (size_t i = 0; i < (dollar ? 2 * n + 1 : n); i++) ares_str_add_char(out, '\\');
        p += n;
        if (*p) ares_str_add_char(out, *p++);
    }
}

static void emit_scalar(ares_str *out, const config_node *node, bool raw)
{
    config_value v = config_value_of(node);
    if (config_is_required(node)) ares_str_add_z(out, "???");
    else if (v.type == CONFIG_NULL) ares_str_add_z(out, "null");
    else if (v.type == CONFIG_BOOL) ares_str_add_z(out, v.boolean ? "true" : "false");
    else if (v.type != CONFIG_STRING) ares_str_add_z(out, node->text);
    else {
        ares_str text = { 0 };
        ares_str_add_z(&text, "");
        if (raw) ares_str_add_z(&text, node->text);
        else add_literal(&text, node->text);
        if (is_plain(text.data) && config_value_read(text.data, false).type == CONFIG_STRING &&
            !config_is_yes_no(text.data))
            ares_str_add_z(out, text.data);
        else add_quoted(out, text.data);
        ares_str_fini(&text);
    }
}

void config_emit_key(ares_str *out, const char *key)
{
    if (is_plain(key)) ares_str_add_z(out, key);
    else add_quoted(out, key);
}

void config_emit_flow(ares_str *out, const config_node *node, bool raw)
{
    if (node->kind == CONFIG_SCALAR) {
        emit_scalar(out, node, raw);
        return;
    }
    bool map = node->kind == CONFIG_MAP;
    ares_str_add_char(out, map ? '{' : '[');
    for (const config_node *child = node->first; child; child = child->next) {
        if (child != node->first) ares_str_add_z(out, ", ");
        if (map) {
            config_emit_key(out, child->key);
            ares_str_add_z(out, ": ");
        }
        config_emit_flow(out, child, raw);
    }
    ares_str_add_char(out, map ? '}' : ']');
}

void config_node_show(const config_node *node, ares_str *out)
{
    enum { SHOWN = 72 };
    size_t start = out->len;
    config_value value = config_value_of(node);
    bool text = node->kind == CONFIG_SCALAR && value.type == CONFIG_STRING;
    if (text) {
        ares_str_add_char(out, '\'');
        for (const char *p = node->text; *p && out->len - start < 2 * SHOWN; p++) {
            if ((unsigned char)*p < 32) ares_str_add_char(out, ' ');
            else ares_str_add_char(out, *p);
        }
    } else config_emit_flow(out, node, true);
    if (out->len - start > SHOWN) {
        size_t end = start + SHOWN;
        while (end > start && ((unsigned char)out->data[end] & 0xC0) == 0x80) end--;
        out->len = end;
        out->data[end] = 0;
        ares_str_add_z(out, "...");
    }
    if (text) ares_str_add_char(out, '\'');
}
