/*
 * From the merged tree to C structs: what a scalar means, what each type of option accepts, and
 * then ares_config_resolve, which runs the steps from merged layers to structs and reports
 * faults.
 */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what a scalar means: the core schema of YAML 1.2, with Python's True, False and None */

/* words: ends with NULL. */
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

/* "???" stands for a value that the user must give (OmegaConf). */
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
        /* 99: no digit of any base */
        unsigned digit = c - '0' < 10 ? c - '0' : (c | 32) - 'a' < 6 ? (c | 32) - 'a' + 10 : 99;
        if (digit >= base) return false;
        number = number * base + digit;
        /* the next digit may overflow; number keeps the value, rounded */
        if (sum > (uint64_t)INT64_MAX / base) value->big = true;
        sum = sum * base + digit;
    }
    if (sum > (uint64_t)INT64_MAX) value->big = true;
    value->type = CONFIG_INT;
    /* the nearest integer; `big` tells that it is not the number */
    value->integer = value->big ? INT64_MAX : (int64_t)sum;
    value->number = number;
    return true;
}

/* An unquoted number: decimal, based, infinite or NaN. */
static bool number_of_word(const char *text, config_value *value)
{
    static const char *const infinities[] = { ".inf", ".Inf", ".INF", NULL }, *const nans[] = {
        ".nan", ".NaN", ".NAN", NULL
    };
    /* "-.inf" is a number, "-.nan" is a text */
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
    /* 1e3 is a float, although whole */
    value->type = strpbrk(text, ".eE") ? CONFIG_FLOAT : CONFIG_INT;
    if (value->type == CONFIG_INT && !ares_parse_i64(ares_view_of(text), &value->integer)) {
        value->big = true;
        value->integer = *text == '-' ? INT64_MIN : INT64_MAX;
    }
    return true;
}

/* "0x1F" -> int 31, "1e3" -> float 1000, "yes" -> string, "~" -> null; quoted: always a string. */
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
    } else if (!number_of_word(text, &value)) value = (config_value){ .type = CONFIG_STRING };
    return value;
}

config_value config_value_of(const config_node *node)
{
    if (node->kind != CONFIG_SCALAR) return (config_value){ .type = CONFIG_STRING };
    return config_value_read(node->text, node->quoted);
}

/* Numbers and flags are compared by value, so 1 is 1.0; all else by its text. */
bool config_same_value(const config_node *a, const config_node *b)
{
    if (a->kind != CONFIG_SCALAR || b->kind != CONFIG_SCALAR) return false;
    config_value x = config_value_of(a), y = config_value_of(b);
    bool numbers = (x.type == CONFIG_INT || x.type == CONFIG_FLOAT) &&
                   (y.type == CONFIG_INT || y.type == CONFIG_FLOAT);
    if (x.type == CONFIG_BOOL && y.type == CONFIG_BOOL) return x.boolean == y.boolean;
    return numbers ? x.number == y.number : strcmp(a->text, b->text) == 0;
}

/* ---------------------------------------------------------------- constraints: ?body#least */

typedef struct constraint {
    bool null;
    ares_view body;
    int64_t least, most; /* items of a list */
} constraint;

/* Takes a constraint apart; false when it is not well formed. */
static bool split(const char *text, constraint *c)
{
    *c = (constraint){ .null = *text == '?', .least = 0, .most = INT64_MAX };
    if (*text == '?') text++;
    c->body = ares_view_of(text);
    int64_t hash = ares_view_find(c->body, ARES_VIEW("#"), 0);
    if (hash < 0) return true;
    ares_view count = { c->body.data + hash + 1, c->body.len - (size_t)hash - 1 };
    c->body.len = (size_t)hash;
    bool more = count.len && count.data[count.len - 1] == '+';
    /* "#2+": at least 2 items; "#2": exactly 2 */
    count.len -= more;
    if (!ares_parse_i64(count, &c->least)) return false;
    if (!more) c->most = c->least;
    return true;
}

/* The next word, up to `separator` or the end; false when none is left. */
static bool next_word(ares_view *rest, char separator, ares_view *word)
{
    if (!rest->data) return false;
    const char *end = memchr(rest->data, separator, rest->len);
    size_t len = end ? (size_t)(end - rest->data) : rest->len;
    *word = (ares_view){ rest->data, len };
    *rest = end ? (ares_view){ end + 1, rest->len - len - 1 } : (ares_view){ NULL, 0 };
    return true;
}

/* Whether x is in a range, "[0,1)" or "(0,)", or is the number "-1". False: not well formed. */
static bool in_range(ares_view range, double x, bool *inside)
{
    double low = -(double)INFINITY, high = (double)INFINITY;
    char first = range.len ? range.data[0] : 0, last = range.len ? range.data[range.len - 1] : 0;
    /* a single number */
    if (first != '[' && first != '(') {
        if (!ares_parse_double(range, &low)) return false;
        *inside = x == low;
        return true;
    }
    const char *comma = memchr(range.data, ',', range.len);
    /* a range has both its ends: "[0,)" has no upper one */
    if (!comma || (last != ']' && last != ')')) return false;
    ares_view a = ares_view_trim((ares_view){ range.data + 1, (size_t)(comma - range.data - 1) });
    ares_view b =
        ares_view_trim((ares_view){ comma + 1, (size_t)(range.data + range.len - comma - 2) });
    if ((a.len && !ares_parse_double(a, &low)) || (b.len && !ares_parse_double(b, &high)))
        return false;
    *inside = (first == '[' ? x >= low : x > low) && (last == ']' ? x <= high : x < high);
    return true;
}

/* Whether x is in one of the ranges that | joins. False: not well formed. */
static bool number_fits(ares_view body, double x, bool *fits)
{
    *fits = body.len == 0;
    if (*fits) return true;
    for (ares_view range; next_word(&body, '|', &range);) {
        bool inside;
        if (!in_range(range, x, &inside)) return false;
        *fits = *fits || inside;
    }
    return true;
}

/* "-1|[1,)" becomes "-1 or in [1,)", "map|list" becomes "map or list" */
void config_show_constraint(ares_view body, ares_str *out)
{
    bool first = true;
    for (ares_view word; next_word(&body, '|', &word); first = false) {
        bool range = word.len && (word.data[0] == '[' || word.data[0] == '(');
        ares_str_addf(out, "%s%s%.*s", first ? "" : " or ", range ? "in " : "", (int)word.len,
                      word.data);
    }
}

/* what a constraint may say of an option that takes a tree */
static const char *const tree_words[] = { "map", "list", "text", "number", "flag" };

/* Whether a constraint of an option table is well formed; a mistake there is one of ours. */
bool config_constraint_ok(ares_option_type type, const char *text)
{
    constraint c;
    bool fits,
        list = type == ARES_OPTION_texts || type == ARES_OPTION_i64s || type == ARES_OPTION_f64s;
    if (!split(text, &c) || (!list && strchr(text, '#'))) return false;
    switch (type) {
    case ARES_OPTION_flag: return !c.null && c.body.len == 0;
    case ARES_OPTION_i64:
    case ARES_OPTION_f64:
    case ARES_OPTION_i64s:
    /* 0 stands for any number: only the form counts */
    case ARES_OPTION_f64s: return number_fits(c.body, 0, &fits);
    case ARES_OPTION_text: return c.body.len == 0 || ares_view_is(c.body, "nonempty");
    case ARES_OPTION_choice:
    case ARES_OPTION_texts: return true;
    case ARES_OPTION_tree:
        for (ares_view word; c.body.len && next_word(&c.body, '|', &word);) {
            bool known = false;
            for (int i = 0; i < ARES_COUNT(tree_words); i++)
                known = known || ares_view_is(word, tree_words[i]);
            if (!known) return false;
        }
        return true;
    default: return false;
    }
}

/* ---------------------------------------------------------------- values */

/*
 * What a value is read for. The read_ functions below write the field and return true, or note a
 * fault and return false.
 */
typedef struct target {
    ares_config *cfg;
    const config_option *option;
    constraint c;
    const char *path; /* of the value being read, which may be an item of a list */
    bool quiet;       /* no fault is noted: only the result counts */
} target;

/* The constraint in words, for a message. */
static const char *meaning(const target *t)
{
    ares_str text = { 0 };
    config_show_constraint(t->c.body, &text);
    /* the message outlives the buffer */
    const char *copy = ares_arena_copy(&t->cfg->arena, text.data ? text.data : "", text.len);
    ares_str_fini(&text);
    return copy;
}

/* Notes that the value does not fit, and returns from the reading function. */
#define REFUSE(t, node, ...)                                                         \
    do {                                                                             \
        if (!(t)->quiet) config_value_fault((t)->cfg, node, (t)->path, __VA_ARGS__); \
        return false;                                                                \
    } while (0)

/* Writes both: *i has meaning where whole. */
static bool read_number(const target *t, const config_node *node, bool whole, int64_t *i, double *d)
{
    config_value v = config_value_of(node);
    const char *what = whole ? "an integer" : "a number";
    if (node->kind != CONFIG_SCALAR)
        REFUSE(t, node, "must be %s, not a %s", what, node->kind == CONFIG_MAP ? "map" : "list");
    /* "0.5" in quotes, or from an interpolation, counts as a number */
    if (v.type == CONFIG_STRING) {
        config_value plain = config_value_read(node->text, false);
        if (plain.type == CONFIG_INT || plain.type == CONFIG_FLOAT) v = plain;
    }
    if (v.type != CONFIG_INT && v.type != CONFIG_FLOAT) REFUSE(t, node, "must be %s", what);
    /* .inf and .nan are numbers of YAML that no option takes */
    if (!isfinite(v.number)) REFUSE(t, node, "must be finite");
    if (whole && v.type == CONFIG_FLOAT) {
        if (v.number != trunc(v.number)) REFUSE(t, node, "must be an integer");
        /* 1e6 is an integer; up to 9e15 every integer is a double */
        v.big = fabs(v.number) > 9e15;
        v.integer = v.big ? 0 : (int64_t)v.number;
    }
    if (whole && (v.big || v.integer == ARES_NULL_I64)) REFUSE(t, node, "too large for an integer");
    bool fits;
    ARES_ASSERT(number_fits(t->c.body, v.number, &fits));
    if (!fits) REFUSE(t, node, "must be %s", meaning(t));
    *i = v.integer;
    *d = v.number;
    return true;
}

/* Writes the values of all schedules at this step into their fields. */
int ares_config_at_step(ares_config *cfg, int64_t step)
{
    for (int64_t i = 0; i < cfg->schedules.count; i++) {
        const config_schedule *s = &cfg->schedules.items[i];
        target t = { .cfg = cfg };
        double value;
        bool fits;
        ARES_ASSERT(split(s->constraint, &t.c));
        int rc = scheduled_at(&s->value, step, &value);
        if (rc != ARES_OK) return ares_fail_in(rc, "config: %s = %s", s->path, s->value.text);
        ARES_ASSERT(number_fits(t.c.body, value, &fits));
        if (!fits)
            return ares_fail(ARES_ECONFIG, "config: %s = %s: is %g at step %lld; must be %s",
                             s->path, s->value.text, value, (long long)step, meaning(&t));
        *s->field = value;
    }
    return ARES_OK;
}

/* Whether the option has a value that changes with the step. */
bool ares_config_scheduled(const ares_config *cfg, const char *path)
{
    for (int64_t i = 0; i < cfg->schedules.count; i++)
        if (strcmp(cfg->schedules.items[i].path, path) == 0) return true;
    return false;
}

/* true or false, also in quotes. "yes" is refused with the word that was meant. */
static bool read_flag(const target *t, const config_node *node, bool *out)
{
    config_value v = config_value_of(node);
    if (v.type == CONFIG_STRING && node->kind == CONFIG_SCALAR) {
        config_value plain = config_value_read(node->text, false);
        if (plain.type == CONFIG_BOOL) v = plain;
    }
    /* a number is no flag: 1 is refused */
    if (v.type == CONFIG_BOOL) return *out = v.boolean, true;
    if (node->kind == CONFIG_SCALAR && config_is_yes_no(node->text))
        REFUSE(t, node, "a text in YAML 1.2; write %s",
               /* "yes" and "on" by their second letter; "no" and "off" are the others */
               (node->text[1] | 32) == 'e' || (node->text[1] == 'n' || node->text[1] == 'N')
                   ? "true"
                   : "false");
    REFUSE(t, node, "must be true or false");
}

/*
 * Gives the canonical spelling, which is the first name of a group "a=b=c", in the arena, and
 * writes it into the tree, so that what is printed has one spelling.
 */
static bool read_choice(const target *t, config_node *node, const char **out)
{
    enum { MAX_CHOICES = 128 };
    const char *names[MAX_CHOICES];
    int count = 0;
    ares_str list = { 0 };
    ares_view body = t->c.body, group, word;
    if (node->kind != CONFIG_SCALAR) REFUSE(t, node, "must be one word");
    config_value v = config_value_of(node);
    /* a choice may be named "true" */
    const char *flag = v.type != CONFIG_BOOL ? node->text /* TRUE is true */
                       : v.boolean           ? "true"
                                             : "false";
    if (body.len == 0) return *out = node->text, true;
    while (next_word(&body, '|', &group)) {
        const char *canonical = NULL;
        while (next_word(&group, '=', &word) && count < MAX_CHOICES) {
            const char *name = names[count++] =
                ares_arena_copy(&t->cfg->arena, word.data, word.len);
            if (!canonical) ares_str_addf(&list, "%s%s", list.len ? ", " : "", name);
            if (!canonical) canonical = name;
            if (strcmp(name, node->text) != 0 && strcmp(name, flag) != 0) continue;
            ares_str_fini(&list);
            /* the printed configuration has the first spelling of the group */
            node->text = *out = canonical;
            node->quoted = true;
            return true;
        }
    }
    /* no choice fits: name the one that was probably meant */
    const char *near = ares_nearest(node->text, names, count);
    if (!t->quiet)
        config_value_fault(t->cfg, node, t->path, "unknown;%s%s%s (choices: %s)",
                           near ? " did you mean '" : "", near ? near : " choose one of these",
                           near ? "'?" : "", list.data);
    ares_str_fini(&list);
    return false;
}

/* Any scalar is a text: 1.50 stays "1.50". */
static bool read_text(const target *t, config_node *node, const char **out)
{
    if (node->kind != CONFIG_SCALAR)
        REFUSE(t, node, "must be a text, not a %s", node->kind == CONFIG_MAP ? "map" : "list");
    if (ares_view_is(t->c.body, "nonempty") && !*node->text) REFUSE(t, node, "must not be empty");
    *out = node->text;
    return true;
}

/* Always true, for use in a condition: the text may be meant. */
static bool warn_of_yes_no(const target *t, const config_node *node)
{
    if (t->quiet || !node->layer || node->kind != CONFIG_SCALAR || node->quoted ||
        !config_is_yes_no(node->text))
        return true;
    char line[24] = "";
    if (node->line) snprintf(line, sizeof line, ":%d", node->line);
    config_note(t->cfg, ARES_LOG_WARN,
                "%s%s: %s = %s: stays a text in YAML 1.2; write true or false, or quote it",
                node->line ? node->source : "command line", line, t->path, node->text);
    return true;
}

/* Writes item `index` of a list whose items have the type that the option's type says. */
static bool read_item(const target *t, ares_option_type type, config_node *node, void *items,
                      int64_t index)
{
    int64_t i;
    double d;
    bool choices = t->c.body.len && !ares_view_is(t->c.body, "nonempty");
    if (node->kind == CONFIG_SCALAR && config_value_of(node).type == CONFIG_NULL)
        REFUSE(t, node, "may not be null");
    switch (type) {
    case ARES_OPTION_texts:
        if (choices) return read_choice(t, node, (const char **)items + index);
        return warn_of_yes_no(t, node) && read_text(t, node, (const char **)items + index);
    case ARES_OPTION_i64s: return read_number(t, node, true, (int64_t *)items + index, &d);
    default: return read_number(t, node, false, &i, (double *)items + index);
    }
}

/* A list, or one scalar as a list of one item. */
static bool read_list(const target *t, ares_option_type type, config_node *node, void *field)
{
    /* so that one assignment below serves all three */
    _Static_assert(sizeof(ares_texts) == sizeof(ares_i64s) &&
                       sizeof(ares_texts) == sizeof(ares_f64s),
                   "one shape of list");
    if (node->kind == CONFIG_MAP) {
        /* {0: a, 1: b}, a table as Python's configurations spell it, is the list [a, b] */
        const config_node *child = node->first;
        int64_t n = 0;
        for (char number[24]; child; child = child->next, n++) {
            snprintf(number, sizeof number, "%lld", (long long)n);
            if (strcmp(child->key, number) != 0) break;
        }
        if (child || n == 0) REFUSE(t, node, "must be a list, not a map");
    }
    int64_t count = node->kind == CONFIG_SCALAR ? 1 : node->count;
    if (count < t->c.least || count > t->c.most)
        REFUSE(t, node, "must have %s%lld item%s", t->c.most > t->c.least ? "at least " : "",
               (long long)t->c.least, t->c.least == 1 ? "" : "s");
    void *items = ares_arena_calloc(&t->cfg->arena, (size_t)count + 1, 8); /* pointers or numbers */
    bool ok = true;
    config_node *item = node->kind == CONFIG_SCALAR ? node : node->first;
    for (int64_t i = 0; i < count; i++, item = item->next) {
        /* faults name the item: data.files.3 */
        target one = *t;
        one.path = ares_arena_printf(&t->cfg->arena, "%s.%lld", t->path, (long long)i);
        if (node->kind == CONFIG_SCALAR) one.path = t->path;
        ok = read_item(&one, type, item, items, i) && ok;
    }
    /* a fault in one item leaves the whole list as it was */
    if (ok) *(ares_texts *)field = (ares_texts){ items, count };
    return ok;
}

/* Looks inside a tree for values still required, and for texts that look like flags. */
static bool check_inside(const target *t, const config_node *node)
{
    bool ok = true;
    warn_of_yes_no(t, node);
    if (config_is_required(node)) REFUSE(t, node, "required, and not set");
    for (const config_node *child = node->first; child; child = child->next) {
        target inner = *t;
        ares_str path = { 0 };
        config_node_path(child, &path);
        inner.path = ares_arena_copy(&t->cfg->arena, path.data ? path.data : "", path.len);
        ares_str_fini(&path);
        ok = check_inside(&inner, child) && ok;
    }
    return ok;
}

/* Any value whose kind the constraint allows, as JSON. */
static bool read_tree(const target *t, const config_node *node, const ares_json **out)
{
    config_scalar type = config_value_of(node).type;
    /* the words of tree_words */
    const char *kind = node->kind == CONFIG_MAP    ? "map"
                       : node->kind == CONFIG_LIST ? "list"
                       : type == CONFIG_BOOL       ? "flag"
                       : type == CONFIG_STRING     ? "text"
                                                   : "number";
    bool fits = t->c.body.len == 0;
    for (ares_view rest = t->c.body, word; !fits && next_word(&rest, '|', &word);)
        fits = ares_view_is(word, kind);
    if (!fits) REFUSE(t, node, "must be a %s", meaning(t));
    if (!check_inside(t, node)) return false;
    ARES_ASSERT(node->json);
    *out = node->json;
    return true;
}

/* What a field holds for null. */
static void write_null(ares_option_type type, void *field)
{
    static const ares_json null = { .type = ARES_JSON_NULL };
    switch (type) {
    case ARES_OPTION_flag: *(bool *)field = false; break;
    /* each type has a value that stands for null */
    case ARES_OPTION_i64: *(int64_t *)field = ARES_NULL_I64; break;
    case ARES_OPTION_f64: *(double *)field = (double)NAN; break;
    case ARES_OPTION_text:
    case ARES_OPTION_choice: *(const char **)field = NULL; break;
    case ARES_OPTION_tree: *(const ares_json **)field = &null; break;
    default: *(ares_texts *)field = (ares_texts){ NULL, 0 }; break;
    }
}

/* field: where to write; on a fault it may hold anything. */
static bool read_option(ares_config *cfg, const config_option *o, config_node *node, void *field,
                        bool quiet)
{
    target t = { .cfg = cfg, .option = o, .path = o->path, .quiet = quiet };
    ARES_ASSERT(split(o->constraint, &t.c));
    ares_option_type type = o->option->type;
    /* null is allowed by "?" or by being the default */
    bool null = node->kind == CONFIG_SCALAR && config_value_of(node).type == CONFIG_NULL;
    if (null && type == ARES_OPTION_choice) { /* None may be one of the choices */
        target quietly = t;
        quietly.quiet = true;
        if (t.c.body.len && read_choice(&quietly, node, field)) return true;
    }
    if (null) {
        if (!t.c.null && config_value_read(o->option->text, false).type != CONFIG_NULL)
            REFUSE(&t, node, "may not be null");
        write_null(type, field);
        return true;
    }
    int64_t i;
    double d;
    switch (type) {
    case ARES_OPTION_flag: return read_flag(&t, node, field);
    case ARES_OPTION_i64: return read_number(&t, node, true, field, &d);
    case ARES_OPTION_f64: {
        /* a text that is no number is a schedule, where the option takes one */
        bool may_be = (o->option->flags & ARES_SCHEDULED) && node->kind == CONFIG_SCALAR;
        config_scalar is = may_be ? config_value_read(node->text, false).type : CONFIG_FLOAT;
        if (is != CONFIG_INT && is != CONFIG_FLOAT) {
            /* the value at step 0 is checked; ares_config_at_step checks the others as they come */
            ares_json text = { .type = ARES_JSON_STRING, .text = ares_view_of(node->text) };
            config_schedule s = { .path = t.option->path,
                                  .constraint = t.option->constraint,
                                  .field = field };
            double first;
            bool fits;
            if (scheduled_parse(&t.cfg->arena, &text, ARES_SCHEDULE_WEIGHT, &s.value) != ARES_OK ||
                scheduled_at(&s.value, 0, &first) != ARES_OK)
                REFUSE(&t, node, "%s", ares_error_message());
            ARES_ASSERT(number_fits(t.c.body, first, &fits));
            if (!fits) REFUSE(&t, node, "is %g at step 0; must be %s", first, meaning(&t));
            *(double *)field = first;
            /* into NULL: the option is only checked, so nothing has to be kept up */
            if (t.option->into) CONFIG_PUSH(&t.cfg->schedules, s);
            return true;
        }
        return read_number(&t, node, false, &i, field);
    }
    case ARES_OPTION_text: return warn_of_yes_no(&t, node) && read_text(&t, node, field);
    case ARES_OPTION_choice: return read_choice(&t, node, field);
    case ARES_OPTION_tree: return read_tree(&t, node, field);
    default: return read_list(&t, type, node, field);
    }
}

/* A field of any type, for options that are read only to check them. */
typedef union any_field {
    bool flag;
    int64_t i64;
    double f64;
    const char *text;
    ares_texts list;
    const ares_json *tree;
} any_field;

/* Whether null means something to the option, as a choice may be named None. */
bool config_takes_null(ares_config *cfg, const config_option *o, config_node *null)
{
    any_field scratch;
    return read_option(cfg, o, null, &scratch, true);
}

/*
 * Writes the option's field, and notes a fault where the value does not fit. where: the place of
 * the fault when the value is only a default inside a map that the user wrote.
 */
static void config_bind_option(ares_config *cfg, const config_option *o, config_node *node,
                               const config_node *where)
{
    any_field scratch;
    /* into NULL: the option is checked, and the value thrown away */
    void *field = o->into ? (char *)o->into + o->option->offset : (void *)&scratch;
    write_null(o->option->type, field);
    /* whether the field has the value of the user */
    bool bound = false;
    if (config_is_required(node)) {
        /* faults of a default have the place of the map that lacks it */
        config_node at = { .layer = where ? where->layer : 0,
                           .line = where ? where->line : 0,
                           .source = where ? where->source : NULL,
                           .text = "???" };
        if (!o->again && !(cfg->unread && !node->layer))
            config_value_fault(cfg, &at, o->path,
                               "required, and not set (%s); set it in a file or as %s=...",
                               o->option->doc, o->path);
    } else if (node->state != CONFIG_BROKEN) bound = read_option(cfg, o, node, field, o->again);
    /* a tree has JSON null after a fault */
    if (bound || o->option->type == ARES_OPTION_tree) return;
    /* after a fault the field gets the default, for the checks that follow */
    const char *error;
    config_node *fallback = config_yaml_value(cfg, o->option->type, o->option->text, &error);
    if (fallback && !config_is_required(fallback) && !strstr(o->option->text, "${"))
        read_option(cfg, o, fallback, field, true);
}

/* ---- from merged layers to filled structs, and the report */

/* From merged layers to filled structs. Faults are noted; ares_config_finish reports them. */
void ares_config_resolve(ares_config *cfg)
{
    config_apply_defaults(cfg);
    config_apply_pending(cfg);
    for (int i = 0; i < cfg->n_words; i++) cfg->words[i](cfg);
    config_tell_defaults(cfg);
    for (config_node *node = cfg->root->first; node; node = node->next)
        if (strncmp(node->key, "x-", 2) != 0) config_interpolate(cfg, node);
    config_build_json(cfg);
    for (int i = 0; i < cfg->options.count; i++) {
        const config_option *o = &cfg->options.items[i];
        config_node *node = config_walk(cfg->root, o->path);
        if (node) config_bind_option(cfg, o, node, node);
    }
    cfg->resolved = true;
}

/* Reads the options of a table below a path, which only other options make known. */
void ares_config_bind(ares_config *cfg, const char *path, ares_option_table *table, void *into)
{
    ARES_ASSERT(cfg->resolved);
    int n;
    const ares_option *options = table(&n);
    path = ares_arena_printf(&cfg->arena, "%s", path);
    config_node *map = config_walk(cfg->root, path), *where = map;
    /* null stands for an empty map */
    bool wrong = map && map->kind != CONFIG_MAP && config_value_of(map).type != CONFIG_NULL;
    if (wrong && map->state != CONFIG_BROKEN)
        config_value_fault(cfg, map, path, "must be a map of options");
    /* the options get their defaults, so that the struct is filled */
    if (!map || map->kind != CONFIG_MAP) {
        map = config_node_new(cfg, CONFIG_MAP);
        if (!map) return;
        map->parent = cfg->root;
    } else CONFIG_PUSH(&cfg->bound, (config_bound){ path, table });
    for (int i = 0; i < n; i++) {
        const ares_option *o = &options[i];
        ARES_ASSERT(config_constraint_ok(o->type, o->constraint));
        config_node *node = config_walk(map, o->path);
        if (!node) {
            config_add_default(cfg, map, o);
            node = config_walk(map, o->path);
            if (node) config_interpolate(cfg, node);
        }
    }
    config_build_json(cfg);
    for (int i = 0; i < n; i++) {
        config_option o = { &options[i], config_path_join(cfg, path, options[i].path),
                            options[i].constraint, into, wrong };
        config_node *node = config_walk(map, options[i].path);
        if (node) config_bind_option(cfg, &o, node, node->layer ? node : where);
    }
}

/* Whether a table bound to path has the option `key`, or *section: options that begin with it. */
static bool bound_knows(const ares_config *cfg, const char *path, const char *key, bool *section)
{
    size_t len = strlen(key);
    *section = false;
    for (int i = 0; i < cfg->bound.count; i++) {
        if (strcmp(cfg->bound.items[i].path, path) != 0) continue;
        int n;
        const ares_option *options = cfg->bound.items[i].table(&n);
        for (int k = 0; k < n; k++) {
            if (strcmp(options[k].path, key) == 0) return true;
            /* the key is a section of it */
            if (strncmp(options[k].path, key, len) == 0 && options[k].path[len] == '.')
                *section = true;
        }
    }
    return *section;
}

/* Every key below a bound path is an option of a table, or a section of options. */
static void check_bound(ares_config *cfg, const char *path, const config_node *map,
                        const char *prefix)
{
    for (const config_node *child = map->first; child; child = child->next) {
        const char *key = config_path_join(cfg, prefix, child->key);
        bool section;
        if (!bound_knows(cfg, path, key, &section)) {
            /* no table bound to path has the key: a hint at those that are there, or the first */
            const char *names[64] = { NULL };
            int count = 0, n;
            for (int i = 0; i < cfg->bound.count; i++) {
                if (strcmp(cfg->bound.items[i].path, path) != 0) continue;
                const ares_option *options = cfg->bound.items[i].table(&n);
                for (int k = 0; k < n && count < ARES_COUNT(names); k++)
                    names[count++] = options[k].path;
            }
            ares_str hint = { 0 };
            const char *near = ares_nearest(key, names, count);
            if (near) ares_str_addf(&hint, "; did you mean '%s.%s'?", path, near);
            else {
                ares_str_add_z(&hint, " (options there: ");
                for (int i = 0; i < count; i++)
                    ares_str_addf(&hint, "%s%s", i ? ", " : "", names[i]);
                ares_str_add_char(&hint, ')');
            }
            config_note_fault(cfg, child, "%s.%s: no such option%s", path, key, hint.data);
            ares_str_fini(&hint);
        } else if (section && child->kind == CONFIG_MAP) check_bound(cfg, path, child, key);
        else if (section && config_value_of(child).type != CONFIG_NULL)
            config_note_fault(cfg, child, "%s.%s: a section of options, not a value", path, key);
    }
}

int ares_config_finish(ares_config *cfg)
{
    ARES_ASSERT(cfg->resolved);
    for (int i = 0; i < cfg->bound.count; i++) {
        const char *path = cfg->bound.items[i].path;
        bool first = true;
        for (int k = 0; k < i; k++) first = first && strcmp(cfg->bound.items[k].path, path) != 0;
        const config_node *map = config_walk(cfg->root, path);
        /* several tables may share a path: it is checked once, against all */
        if (first && map && map->kind == CONFIG_MAP) check_bound(cfg, path, map, "");
    }
    /* the report may be asked for again */
    cfg->bound.count = 0;
    /* all faults together, as one error */
    return config_report(cfg);
}
