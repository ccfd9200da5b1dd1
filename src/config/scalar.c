/* What a scalar means: the core schema of YAML 1.2, with Python's True, False and None. */
#include "tree.h"

#include <math.h>
#include <string.h>

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0) return true;
    return false;
}

bool config_is_yes_no(const char *text)
{
    static const char *const words[] = { "yes", "Yes", "YES", "no",  "No",  "NO", "on",
                                         "On",  "ON",  "off", "Off", "OFF", NULL };
    return is_one_of(text, words);
}

bool config_is_required(const config_node *node)
{
    return node->kind == CONFIG_SCALAR && !node->quoted && strcmp(node->text, "???") == 0;
}

/* 0x1F and 0o17; `big` for numbers beyond 64 bits. */
static bool read_based(const char *digits, unsigned base, config_value *value)
{
    if (!*digits) return false;
    uint64_t sum = 0;
    double number = 0;
    for (const char *p = digits; *p; p++) {
        unsigned c = (unsigned char)*p;
        unsigned digit = c - '0' < 10 ? c - '0' : (c | 32) - 'a' < 6 ? (c | 32) - 'a' + 10 : 99;
        if (digit >= base) return false;
        number = number * base + digit;
        if (sum > (uint64_t)INT64_MAX / base) value->big = true;
        sum = sum * base + digit;
    }
    if (sum > (uint64_t)INT64_MAX) value->big = true;
    value->type = CONFIG_INT;
    value->integer = value->big ? INT64_MAX : (int64_t)sum;
    value->number = number;
    return true;
}

static bool read_number(const char *text, config_value *value)
{
    static const char *const infinities[] = { ".inf", ".Inf", ".INF", NULL }, *const nans[] = {
        ".nan", ".NaN", ".NAN", NULL
    };
    const char *unsigned_part = text + (*text == '-' || *text == '+');
    if (is_one_of(text, nans) || is_one_of(unsigned_part, infinities)) {
        value->type = CONFIG_FLOAT;
        value->number = is_one_of(text, nans) ? (double)NAN
                        : *text == '-'        ? -(double)INFINITY
                                              : (double)INFINITY;
        return true;
    }
    if (text[0] == '0' && text[1] == 'x') return read_based(text + 2, 16, value);
    if (text[0] == '0' && text[1] == 'o') return read_based(text + 2, 8, value);
    if (!ares_parse_double(ares_view_of(text), &value->number)) return false;
    value->type = strpbrk(text, ".eE") ? CONFIG_FLOAT : CONFIG_INT;
    if (value->type == CONFIG_INT && !ares_parse_i64(ares_view_of(text), &value->integer)) {
        value->big = true;
        value->integer = *text == '-' ? INT64_MIN : INT64_MAX;
    }
    return true;
}

config_value config_value_read(const char *text, bool quoted)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL", "None", NULL };
    static const char *const trues[] = { "true", "True", "TRUE", NULL }, *const falses[] = {
        "false", "False", "FALSE", NULL
    };
    config_value value = { .type = CONFIG_STRING };
    if (quoted) return value;
    if (is_one_of(text, nulls)) value.type = CONFIG_NULL;
    else if (is_one_of(text, trues) || is_one_of(text, falses)) {
        value.type = CONFIG_BOOL;
        value.boolean = is_one_of(text, trues);
    } else if (!read_number(text, &value)) value = (config_value){ .type = CONFIG_STRING };
    return value;
}

config_value config_value_of(const config_node *node)
{
    if (node->kind != CONFIG_SCALAR) return (config_value){ .type = CONFIG_STRING };
    return config_value_read(node->text, node->quoted);
}

bool config_same_value(const config_node *a, const config_node *b)
{
    if (a->kind != CONFIG_SCALAR || b->kind != CONFIG_SCALAR) return false;
    config_value x = config_value_of(a), y = config_value_of(b);
    bool numbers = (x.type == CONFIG_INT || x.type == CONFIG_FLOAT) &&
                   (y.type == CONFIG_INT || y.type == CONFIG_FLOAT);
    if (x.type == CONFIG_BOOL && y.type == CONFIG_BOOL) return x.boolean == y.boolean;
    return numbers ? x.number == y.number : strcmp(a->text, b->text) == 0;
}
