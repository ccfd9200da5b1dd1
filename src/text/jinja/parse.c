/*
 * The parser of templates, from tokens to a syntax tree. In order: how errors name their place in
 * the source; expressions; statements; a whole template.
 */
#include "jinja.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Line and column, in characters, of a byte of the source, both from 1. */
static void jinja_position(const ares_template *t, uint32_t pos, int64_t *line, int64_t *column)
{
    *line = 1, *column = 1;
    for (uint32_t i = 0; i < pos && i < t->source.len; i++) {
        if (t->source.data[i] == '\n') ++*line, *column = 1;
        else if (((unsigned char)t->source.data[i] & 0xC0) != 0x80) ++*column;
    }
}

/* Fails the parse with the place in the source, and leaves by longjmp to template_parse. */
void jinja_syntax_fail(jinja_parser *p, int code, uint32_t pos, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    int64_t line, column;
    jinja_position(p->t, pos, &line, &column);
    p->code = ares_fail(code, "template: %s:%lld:%lld: %s", p->t->name, (long long)line,
                        (long long)column, message);
    longjmp(p->fail, 1);
}

/* The same while a template is run: the place is that of the node being evaluated. */
void jinja_fail(jinja_run *r, int code, const char *format, ...)
{
    char message[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    /* before the first node, as while the variables are converted */
    if (!r->at) {
        r->code = ares_fail(code, "template: %s: %s", r->t->name, message);
    } else {
        int64_t line, column;
        jinja_position(r->t, r->at->pos, &line, &column);
        r->code = ares_fail(code, "template: %s:%lld:%lld: %s", r->t->name, (long long)line,
                            (long long)column, message);
    }
    longjmp(r->fail, 1);
}

/*
 * Tokens to a syntax tree: jinja2's recursive descent, rule for rule, since its precedence has
 * surprises (~ binds tighter than +, -2 ** 2 is 4, a test takes the next name as its argument).
 * Statements that need other templates, and autoescape, are refused by name.
 */

#define FAIL(p, pos, ...) jinja_syntax_fail(p, ARES_EFORMAT, pos, __VA_ARGS__)

/* The next token, the one after it, and the next one taken. EOF, the last, is never passed. */
static jinja_token *now(jinja_parser *p)
{
    return &p->tokens[p->at];
}
static jinja_token *look(jinja_parser *p)
{
    return &p->tokens[ARES_MIN(p->at + 1, p->n_tokens - 1)];
}
static jinja_token *take(jinja_parser *p)
{
    jinja_token *t = now(p);
    if (p->at + 1 < p->n_tokens) p->at++;
    return t;
}

/* Whether the next token has this type; is_word: whether it is this name. */
static bool is(jinja_parser *p, jinja_token_type type)
{
    return now(p)->type == type;
}
static bool token_is(const jinja_token *t, const char *word)
{
    return t->type == JT_NAME && ares_view_is(t->text, word);
}
static bool is_word(jinja_parser *p, const char *word)
{
    return token_is(now(p), word);
}
/* Take the next token if it is this word, or of this type. */
static bool skip_word(jinja_parser *p, const char *word)
{
    return is_word(p, word) ? take(p), true : false;
}
static bool skip(jinja_parser *p, jinja_token_type type)
{
    return is(p, type) ? take(p), true : false;
}

/* Fails on the next token, with the message of jinja2. */
static void unexpected(jinja_parser *p, const char *wanted)
{
    jinja_token *t = now(p);
    if (t->type == JT_EOF) FAIL(p, t->pos, "unexpected end of template, expected '%s'", wanted);
    const char *word = jinja_token_word(t->type);
    if (t->type == JT_NAME)
        FAIL(p, t->pos, "expected token '%s', got '%.*s'", wanted, (int)ARES_MIN(t->text.len, 80),
             t->text.data);
    FAIL(p, t->pos, "expected token '%s', got '%s'", wanted, word);
}

/* Takes the next token, which must have this type. */
static jinja_token *expect(jinja_parser *p, jinja_token_type type)
{
    if (!is(p, type)) unexpected(p, jinja_token_word(type));
    return take(p);
}

/* One level deeper, or an error, so that the recursion ends; leave the level with p->nest--. */
static void descend(jinja_parser *p)
{
    if (++p->nest > JINJA_NEST)
        jinja_syntax_fail(p, ARES_ELIMIT, now(p)->pos, "more than %d levels inside each other",
                          JINJA_NEST);
}

/* A node of this kind; pos: its place in the source, for errors. */
static jinja_node *node(jinja_parser *p, jinja_node_kind kind, uint32_t pos)
{
    jinja_node *n = ares_arena_calloc(p->arena, 1, sizeof *n);
    n->kind = (uint8_t)kind;
    n->pos = pos;
    /* -1: the template never reads them (scope.c sets those that it does) */
    n->loop_slot = n->caller_slot = n->kwargs_slot = n->varargs_slot = -1;
    return n;
}

/* Appends to a list in the arena; an outgrown array stays there. */
static void push(jinja_parser *p, jinja_nodes *list, jinja_node *n)
{
    if (list->n == list->cap) {
        int32_t cap = list->cap ? 2 * list->cap : 4;
        jinja_node **items = ares_arena_alloc(p->arena, (size_t)cap * sizeof *items);
        if (list->n) memcpy(items, list->items, (size_t)list->n * sizeof *items);
        list->items = items, list->cap = cap;
    }
    list->items[list->n++] = n;
}

/* A text that lives as long as the template. */
static jinja_value text_value(jinja_parser *p, ares_view text)
{
    jinja_string *s = ares_arena_alloc(p->arena, sizeof *s);
    *s = (jinja_string){ text.data, text.len, jinja_count_chars(text.data, text.len) };
    return (jinja_value){ .kind = JV_STR, .u.s = s };
}

static jinja_node *parse_expression(jinja_parser *p);
static jinja_node *parse_or(jinja_parser *p);
static jinja_node *parse_unary(jinja_parser *p, bool with_filter);
static jinja_node *parse_primary(jinja_parser *p, bool with_namespace);
static jinja_node *parse_postfix(jinja_parser *p, jinja_node *n);
static void parse_body(jinja_parser *p, jinja_nodes *body, const char *const *ends,
                       jinja_node *opener);

/* ------------------------------------------------------------------ expressions */

typedef enum {
    TUPLE_FULL,
    TUPLE_NO_COND,     /* no "a if b": the list of a for may have an "if" after it */
    TUPLE_PARENTHESES, /* may be empty */
    TUPLE_TARGET,      /* of an assignment: names */
    TUPLE_TARGET_NS    /* names, and attributes of a namespace */
} tuple_form;

/* Expressions joined by commas: a tuple, or one expression alone. */
static jinja_node *parse_tuple(jinja_parser *p, tuple_form form, const char *end_word)
{
    uint32_t pos = now(p)->pos;
    jinja_nodes items = { 0 };
    /* a comma makes a tuple, also of one item: (1,) */
    bool tuple = false;
    for (;;) {
        if (items.n) expect(p, JT_COMMA);
        /* end_word: what follows the target or the list of a for */
        if (is(p, JT_VARIABLE_END) || is(p, JT_BLOCK_END) || is(p, JT_RPAREN) ||
            (end_word && is_word(p, end_word)))
            break;
        push(p, &items,
             form >= TUPLE_TARGET    ? parse_primary(p, form == TUPLE_TARGET_NS)
             : form == TUPLE_NO_COND ? parse_or(p)
                                     : parse_expression(p));
        if (!is(p, JT_COMMA)) break;
        tuple = true;
    }
    if (!tuple) {
        if (items.n) return items.items[0];
        /* only () may be empty */
        if (form != TUPLE_PARENTHESES) {
            jinja_token *t = now(p);
            if (t->type == JT_NAME)
                FAIL(p, t->pos, "Expected an expression, got '%.*s'",
                     (int)ARES_MIN(t->text.len, 80), t->text.data);
            FAIL(p, t->pos, "Expected an expression, got '%s'", jinja_token_word(t->type));
        }
    }
    jinja_node *n = node(p, JN_TUPLE, pos);
    n->items = items;
    return n;
}

/* a if b else c, which may lack its else. */
static jinja_node *parse_expression(jinja_parser *p)
{
    descend(p);
    uint32_t pos = now(p)->pos;
    jinja_node *value = parse_or(p);
    while (skip_word(p, "if")) {
        jinja_node *n = node(p, JN_COND, pos);
        /* b if a else c */
        n->b = value;
        n->a = parse_or(p);
        if (skip_word(p, "else")) n->c = parse_expression(p);
        value = n;
        pos = now(p)->pos;
    }
    p->nest--;
    return value;
}

/* A node with two operands. */
static jinja_node *pair(jinja_parser *p, jinja_node_kind kind, int op, uint32_t pos, jinja_node *a,
                        jinja_node *b)
{
    jinja_node *n = node(p, kind, pos);
    n->op = (uint8_t)op;
    n->a = a, n->b = b;
    return n;
}

/* Groups from the left, where Python groups from the right: 2 ** 3 ** 2 is 64 in jinja2. */
static jinja_node *parse_pow(jinja_parser *p)
{
    jinja_node *left = parse_unary(p, true);
    while (is(p, JT_POW)) {
        uint32_t pos = take(p)->pos;
        /* each operand with its sign: -2 ** 2 is (-2) ** 2 in jinja2 */
        left = pair(p, JN_BINARY, JOP_POW, pos, left, parse_unary(p, true));
    }
    return left;
}

/* * / // and %, from the left. */
static jinja_node *parse_product(jinja_parser *p)
{
    jinja_node *left = parse_pow(p);
    for (;;) {
        jinja_op op;
        switch (now(p)->type) {
        case JT_MUL: op = JOP_MUL; break;
        case JT_DIV: op = JOP_DIV; break;
        case JT_FLOORDIV: op = JOP_FLOORDIV; break;
        case JT_MOD: op = JOP_MOD; break;
        default: return left;
        }
        uint32_t pos = take(p)->pos;
        left = pair(p, JN_BINARY, op, pos, left, parse_pow(p));
    }
}

/* a ~ b ~ c is one node with all operands, because they are joined in one text. */
static jinja_node *parse_concat(jinja_parser *p)
{
    uint32_t pos = now(p)->pos;
    jinja_node *first = parse_product(p);
    /* no ~: the operand stays what it is */
    if (!is(p, JT_TILDE)) return first;
    jinja_node *n = node(p, JN_CONCAT, pos);
    push(p, &n->items, first);
    while (skip(p, JT_TILDE)) push(p, &n->items, parse_product(p));
    return n;
}

/* + and -, from the left: below ~, unlike in other languages. */
static jinja_node *parse_sum(jinja_parser *p)
{
    jinja_node *left = parse_concat(p);
    while (is(p, JT_ADD) || is(p, JT_SUB)) {
        jinja_token *t = take(p);
        left = pair(p, JN_BINARY, t->type == JT_ADD ? JOP_ADD : JOP_SUB, t->pos, left,
                    parse_concat(p));
    }
    return left;
}

/* A chain a < b < c is one node: the first operand in a, then an OPERAND per comparison. */
static jinja_node *parse_compare(jinja_parser *p)
{
    uint32_t pos = now(p)->pos;
    jinja_node *first = parse_sum(p), *n = NULL;
    for (;;) {
        jinja_token *t = now(p);
        int op = t->type == JT_EQ                                ? JOP_EQ
                 : t->type == JT_NE                              ? JOP_NE
                 : t->type == JT_LT                              ? JOP_LT
                 : t->type == JT_LE                              ? JOP_LE
                 : t->type == JT_GT                              ? JOP_GT
                 : t->type == JT_GE                              ? JOP_GE
                 : token_is(t, "in")                             ? JOP_IN
                 : token_is(t, "not") && token_is(look(p), "in") ? JOP_NOTIN
                                                                 : -1;
        if (op < 0) return n ? n : first;
        take(p);
        /* it is two words, "not" and "in" */
        if (op == JOP_NOTIN) take(p);
        if (!n) {
            n = node(p, JN_COMPARE, pos);
            n->a = first;
        }
        push(p, &n->items, pair(p, JN_OPERAND, op, t->pos, parse_sum(p), NULL));
    }
}

/* "not" binds weaker than a comparison: not a == b is not (a == b). */
static jinja_node *parse_not(jinja_parser *p)
{
    if (!is_word(p, "not")) return parse_compare(p);
    uint32_t pos = take(p)->pos;
    descend(p);
    jinja_node *n = pair(p, JN_NOT, 0, pos, parse_not(p), NULL);
    p->nest--;
    return n;
}

static jinja_node *parse_and(jinja_parser *p)
{
    jinja_node *left = parse_not(p);
    while (is_word(p, "and")) {
        uint32_t pos = take(p)->pos;
        left = pair(p, JN_AND, 0, pos, left, parse_not(p));
    }
    return left;
}

static jinja_node *parse_or(jinja_parser *p)
{
    jinja_node *left = parse_and(p);
    while (is_word(p, "or")) {
        uint32_t pos = take(p)->pos;
        left = pair(p, JN_OR, 0, pos, left, parse_and(p));
    }
    return left;
}

/* The arguments of a call, filter or test: positional, keywords, *list, **dict, in this order. */
static void parse_arguments(jinja_parser *p, jinja_node *n)
{
    /* errors of the list name its opening bracket */
    uint32_t pos = expect(p, JT_LPAREN)->pos;
    int32_t cap = 0;
    /* an argument was read: a comma or the end must follow */
    bool comma = false;
#define ENSURE(cond) \
    if (!(cond)) FAIL(p, pos, "invalid syntax for function call expression")
    while (!is(p, JT_RPAREN)) {
        if (comma) {
            expect(p, JT_COMMA);
            /* a comma before the end is allowed */
            if (is(p, JT_RPAREN)) break;
        }
        if (is(p, JT_MUL)) {
            ENSURE(!n->dyn_args && !n->dyn_kwargs);
            take(p);
            /* *list */
            n->dyn_args = parse_expression(p);
        } else if (is(p, JT_POW)) {
            ENSURE(!n->dyn_kwargs);
            take(p);
            /* **dict */
            n->dyn_kwargs = parse_expression(p);
            /* key=value: a name alone may begin an expression, so the token after it decides */
        } else if (is(p, JT_NAME) && look(p)->type == JT_ASSIGN) {
            ENSURE(!n->dyn_kwargs);
            jinja_token *key = take(p);
            take(p);
            for (int32_t i = 0; i < n->more.n; i++)
                if (ares_view_eq(n->keywords[i], key->text))
                    FAIL(p, key->pos, "keyword argument repeated: %.*s",
                         (int)ARES_MIN(key->text.len, 80), key->text.data);
            /* each is compared with all before it */
            if (n->more.n >= 64)
                jinja_syntax_fail(p, ARES_ELIMIT, key->pos, "more than 64 keyword arguments");
            if (n->more.n == cap) {
                ares_view *keywords = ares_arena_alloc(p->arena, (size_t)(cap = cap ? 2 * cap : 4) *
                                                                     sizeof *keywords);
                if (n->more.n) memcpy(keywords, n->keywords, (size_t)n->more.n * sizeof *keywords);
                n->keywords = keywords;
            }
            n->keywords[n->more.n] = key->text;
            push(p, &n->more, parse_expression(p));
        } else {
            ENSURE(!n->dyn_args && !n->dyn_kwargs && !n->more.n);
            push(p, &n->items, parse_expression(p));
        }
        comma = true;
    }
#undef ENSURE
    expect(p, JT_RPAREN);
}

/* The rest of a filter's or test's dotted name: in "a.b.c" the names after the first, joined. */
static ares_view dotted_name(jinja_parser *p)
{
    jinja_token *first = expect(p, JT_NAME);
    ares_view name = first->text;
    while (skip(p, JT_DOT)) {
        /* the parts need not stand together in the source: "a . b" */
        ares_view more = expect(p, JT_NAME)->text;
        name.data = ares_arena_printf(p->arena, "%.*s.%.*s", (int)name.len, name.data,
                                      (int)more.len, more.data);
        name.len += 1 + more.len;
        if (name.len > 1000) jinja_syntax_fail(p, ARES_ELIMIT, first->pos, "name too long");
    }
    return name;
}

/*
 * Filters after an expression; inline_first: the first stands without its |, as in a filter block.
 */
static jinja_node *parse_filters(jinja_parser *p, jinja_node *over, bool inline_first)
{
    while (inline_first || is(p, JT_PIPE)) {
        /* the | */
        if (!inline_first) take(p);
        inline_first = false;
        jinja_node *n = node(p, JN_FILTER, now(p)->pos);
        n->a = over;
        n->name = dotted_name(p);
        if (is(p, JT_LPAREN)) parse_arguments(p, n);
        over = n;
    }
    return over;
}

/* One subscript between brackets: an expression or a slice. */
static jinja_node *parse_subscribed(jinja_parser *p)
{
    jinja_token *t = now(p);
    /* NULL for [:b]: a bound that is left out */
    jinja_node *start = NULL;
    if (!is(p, JT_COLON)) {
        start = parse_expression(p);
        if (!is(p, JT_COLON)) return start;
    }
    take(p);
    jinja_node *n = node(p, JN_SLICE, t->pos);
    n->a = start;
    if (!is(p, JT_COLON) && !is(p, JT_RBRACKET) && !is(p, JT_COMMA)) n->b = parse_expression(p);
    /* the step */
    if (skip(p, JT_COLON) && !is(p, JT_RBRACKET) && !is(p, JT_COMMA)) n->c = parse_expression(p);
    return n;
}

/* Integers beyond 64 bits keep their digits. */
static jinja_node *number(jinja_parser *p, jinja_token *t)
{
    jinja_node *n = node(p, JN_CONST, t->pos);
    const char *s = t->text.data;
    if (t->type == JT_FLOAT) {
        double x;
        /* strtod for what is out of range: 1e999 is inf in Python */
        if (!ares_parse_double(t->text, &x)) x = strtod(s, NULL);
        n->value = (jinja_value){ .kind = JV_FLOAT, .u.f = x };
        return n;
    }
    /* the lexer has checked the digits: "0x1F" -> 31, "0b101" -> 5 */
    int base = t->text.len < 2 || s[0] != '0' ? 10
               : (s[1] | 32) == 'b'           ? 2
               : (s[1] | 32) == 'o'           ? 8
               : (s[1] | 32) == 'x'           ? 16
                                              : 10;
    int64_t v = 0;
    bool big = false;
    for (size_t i = base == 10 ? 0 : 2; i < t->text.len && !big; i++) {
        int d = s[i] <= '9' ? s[i] - '0' : (s[i] | 32) - 'a' + 10;
        big = __builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, d, &v);
    }
    if (big && base != 10)
        jinja_syntax_fail(p, ARES_EUNSUPPORTED, t->pos,
                          "an integer beyond 64 bits that is not decimal");
    if (big && t->text.len > 4300)
        FAIL(p, t->pos, "Exceeds the limit (4300 digits) for integer string conversion");
    if (big) {
        n->value = text_value(p, t->text);
        n->value.kind = JV_BIG;
    } else {
        n->value = (jinja_value){ .kind = JV_INT, .u.i = v };
    }
    return n;
}

/* a.b, a.0 and a[b]. */
static jinja_node *parse_subscript(jinja_parser *p, jinja_node *over)
{
    jinja_token *t = take(p);
    if (t->type == JT_DOT) {
        /* a.0 is a[0], as in Django templates */
        jinja_token *attr = take(p);
        if (attr->type == JT_NAME) {
            jinja_node *n = pair(p, JN_GETATTR, 0, t->pos, over, NULL);
            n->name = attr->text;
            return n;
        }
        /* a."b" is no attribute */
        if (attr->type != JT_INT) FAIL(p, attr->pos, "expected name or number");
        return pair(p, JN_GETITEM, 0, t->pos, over, number(p, attr));
    }
    jinja_nodes items = { 0 };
    while (!is(p, JT_RBRACKET)) {
        if (items.n) expect(p, JT_COMMA);
        push(p, &items, parse_subscribed(p));
    }
    expect(p, JT_RBRACKET);
    /* a[b]; a[b, c] has a tuple as its key */
    if (items.n == 1) return pair(p, JN_GETITEM, 0, t->pos, over, items.items[0]);
    jinja_node *tuple = node(p, JN_TUPLE, t->pos);
    /* a[1, 2]: one key */
    tuple->items = items;
    for (int32_t i = 0; i < items.n; i++)
        if (items.items[i]->kind == JN_SLICE)
            jinja_syntax_fail(p, ARES_EUNSUPPORTED, t->pos, "a slice among several subscripts");
    return pair(p, JN_GETITEM, 0, t->pos, over, tuple);
}

/* f(...): the function in a, its arguments in items, more and keywords. */
static jinja_node *parse_call(jinja_parser *p, jinja_node *over)
{
    jinja_node *n = node(p, JN_CALL, now(p)->pos);
    n->a = over;
    parse_arguments(p, n);
    return n;
}

static jinja_node *parse_postfix(jinja_parser *p, jinja_node *n)
{
    for (;;) {
        if (is(p, JT_DOT) || is(p, JT_LBRACKET)) n = parse_subscript(p, n);
        else if (is(p, JT_LPAREN)) n = parse_call(p, n);
        else return n;
    }
}

/* A sign binds tighter than **, and a filter after it applies to the signed value. */
static jinja_node *parse_unary(jinja_parser *p, bool with_filter)
{
    jinja_node *n;
    if (is(p, JT_SUB) || is(p, JT_ADD)) {
        jinja_token *t = take(p);
        descend(p);
        n = pair(p, t->type == JT_SUB ? JN_NEG : JN_POS, 0, t->pos, parse_unary(p, false), NULL);
        p->nest--;
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix(p, n);
    /* after these a call may follow again, but no subscript */
    while (with_filter) {
        if (is(p, JT_PIPE)) n = parse_filters(p, n, false);
        else if (is_word(p, "is")) {
            /* "is name", "is not name", with arguments in brackets or one argument without */
            uint32_t pos = take(p)->pos;
            /* x is not defined */
            bool negated = skip_word(p, "not");
            jinja_node *test = node(p, JN_TEST, pos);
            test->a = n;
            test->name = dotted_name(p);
            jinja_token *t = now(p);
            if (t->type == JT_LPAREN) {
                parse_arguments(p, test);
            } else if ((t->type == JT_NAME || t->type == JT_STRING || t->type == JT_INT ||
                        t->type == JT_FLOAT || t->type == JT_LBRACKET || t->type == JT_LBRACE) &&
                       !token_is(t, "else") && !token_is(t, "or") && !token_is(t, "and")) {
                /* a is b is c */
                if (token_is(t, "is")) FAIL(p, t->pos, "You cannot chain multiple tests with is");
                descend(p);
                push(p, &test->items, parse_postfix(p, parse_primary(p, false)));
                p->nest--;
            }
            n = negated ? pair(p, JN_NOT, 0, pos, test, NULL) : test;
        } else if (is(p, JT_LPAREN)) n = parse_call(p, n);
        else break;
    }
    return n;
}

/* A list, or a dict as key, value, key, value ... */
static jinja_node *parse_bracketed(jinja_parser *p, jinja_node_kind kind, jinja_token_type close)
{
    jinja_node *n = node(p, kind, take(p)->pos);
    while (!is(p, close)) {
        if (n->items.n) expect(p, JT_COMMA);
        /* a comma before the bracket is allowed */
        if (is(p, close)) break;
        push(p, &n->items, parse_expression(p));
        /* a dict has a value after each key */
        if (kind == JN_LIST) continue;
        expect(p, JT_COLON);
        push(p, &n->items, parse_expression(p));
    }
    expect(p, close);
    return n;
}

/* A name as an expression, one of the constants, or ns.attr where it may be set. */
static jinja_node *parse_name(jinja_parser *p, bool with_namespace)
{
    jinja_token *t = take(p);
    jinja_node *n = node(p, JN_CONST, t->pos);
    if (token_is(t, "true") || token_is(t, "True") || token_is(t, "false") ||
        token_is(t, "False")) {
        /* true and True alike, as in jinja2 */
        n->value = (jinja_value){ .kind = JV_BOOL, .u.b = (t->text.data[0] | 32) == 't' };
    } else if (token_is(t, "none") || token_is(t, "None")) {
        n->value = (jinja_value){ .kind = JV_NONE };
    } else if (with_namespace && skip(p, JT_DOT)) {
        /* ns.attr, of a set statement only */
        n->kind = JN_NSREF;
        n->name = t->text;
        n->attr = expect(p, JT_NAME)->text;
    } else {
        n->kind = JN_NAME;
        n->name = t->text;
    }
    return n;
}

static jinja_node *parse_primary(jinja_parser *p, bool with_namespace)
{
    jinja_token *t = now(p);
    switch (t->type) {
    case JT_NAME: return parse_name(p, with_namespace);
    case JT_STRING: {
        jinja_node *n = node(p, JN_CONST, t->pos);
        ares_view text = take(p)->text;
        while (is(p, JT_STRING)) { /* 'a' 'b' is 'ab' */
            /* first the length of all, then one copy */
            size_t from = (size_t)p->at, len = text.len;
            for (int64_t i = p->at; p->tokens[i].type == JT_STRING; i++)
                len += p->tokens[i].text.len;
            char *joined = ares_arena_alloc(p->arena, len + 1);
            memcpy(joined, text.data, text.len);
            size_t k = text.len;
            for (; p->tokens[from].type == JT_STRING; from++, take(p)) {
                memcpy(joined + k, p->tokens[from].text.data, p->tokens[from].text.len);
                k += p->tokens[from].text.len;
            }
            text = (ares_view){ joined, k };
        }
        n->value = text_value(p, text);
        return n;
    }
    case JT_INT:
    case JT_FLOAT: return number(p, take(p));
    /* brackets around one expression, or a tuple */
    case JT_LPAREN: {
        take(p);
        descend(p);
        jinja_node *n = parse_tuple(p, TUPLE_PARENTHESES, NULL);
        p->nest--;
        expect(p, JT_RPAREN);
        return n;
    }
    case JT_LBRACKET: return parse_bracketed(p, JN_LIST, JT_RBRACKET);
    case JT_LBRACE: return parse_bracketed(p, JN_DICT, JT_RBRACE);
    /* no expression begins with this token */
    default: FAIL(p, t->pos, "unexpected '%s'", jinja_token_word(t->type));
    }
}

/* ------------------------------------------------------------------ statements */
/* Marks the names as assigned, which scope.c needs to know. */
static void check_target(jinja_parser *p, jinja_node *n)
{
    if (n->kind == JN_NAME) {
        n->flag = true;
    } else if (n->kind == JN_TUPLE) {
        for (int32_t i = 0; i < n->items.n; i++) check_target(p, n->items.items[i]);
        /* {% set f(x) = 1 %} */
    } else if (n->kind != JN_NSREF) {
        FAIL(p, n->pos, "can't assign to this expression");
    }
}

/* What a set, with or for assigns to: a name, ns.attr, or a tuple of them. */
static jinja_node *parse_target(jinja_parser *p, tuple_form form, const char *end_word)
{
    jinja_node *n = parse_tuple(p, form, end_word);
    check_target(p, n);
    return n;
}

/* One name that is assigned: of a macro or a parameter. Constants cannot be. */
static jinja_node *parse_target_name(jinja_parser *p)
{
    jinja_token *t = expect(p, JT_NAME);
    /* the words that parse_name reads as values */
    static const char *const constants[] = { "true", "false", "none", "True", "False", "None" };
    for (int i = 0; i < ARES_COUNT(constants); i++)
        if (ares_view_is(t->text, constants[i])) FAIL(p, t->pos, "can't assign to 'name'");
    jinja_node *n = node(p, JN_NAME, t->pos);
    n->name = t->text;
    n->flag = true;
    return n;
}

/*
 * The parameters of a macro or call block, in n->items; defaults in n->more, for the last of them.
 */
static void parse_signature(jinja_parser *p, jinja_node *n)
{
    expect(p, JT_LPAREN);
    while (!is(p, JT_RPAREN)) {
        if (n->items.n) expect(p, JT_COMMA);
        jinja_node *param = parse_target_name(p);
        for (int32_t i = 0; i < n->items.n; i++)
            if (ares_view_eq(n->items.items[i]->name, param->name))
                FAIL(p, param->pos, "a parameter is named twice");
        /* no published template comes near */
        if (n->items.n >= 255)
            jinja_syntax_fail(p, ARES_ELIMIT, param->pos, "more than 255 parameters");
        if (skip(p, JT_ASSIGN)) push(p, &n->more, parse_expression(p));
        /* as in Python */
        else if (n->more.n) FAIL(p, now(p)->pos, "non-default argument follows default argument");
        push(p, &n->items, param);
    }
    expect(p, JT_RPAREN);
}

static jinja_node *parse_for(jinja_parser *p, jinja_node *n)
{
    /* for a in b if c recursive */
    n->a = parse_target(p, TUPLE_TARGET, "in");
    if (!skip_word(p, "in")) unexpected(p, "in");
    n->b = parse_tuple(p, TUPLE_NO_COND, "recursive");
    if (skip_word(p, "if")) n->c = parse_expression(p);
    n->flag = skip_word(p, "recursive");
    parse_body(p, &n->body, (const char *const[]){ "endfor", "else", NULL }, n);
    if (skip_word(p, "else")) parse_body(p, &n->orelse, (const char *const[]){ "endfor", NULL }, n);
    take(p);
    return n;
}

/* The elifs are nodes in n->items. */
static jinja_node *parse_if(jinja_parser *p, jinja_node *n)
{
    jinja_node *branch = n;
    for (;;) {
        branch->a = parse_tuple(p, TUPLE_NO_COND, NULL);
        parse_body(p, &branch->body, (const char *const[]){ "elif", "else", "endif", NULL }, n);
        jinja_token *t = take(p);
        /* the branch hangs on the first if, whose end tag closes all */
        if (token_is(t, "elif")) {
            branch = node(p, JN_IF, now(p)->pos);
            push(p, &n->items, branch);
            continue;
        }
        if (token_is(t, "else")) {
            parse_body(p, &n->orelse, (const char *const[]){ "endif", NULL }, n);
            take(p);
        }
        return n;
    }
}

/* The statement of a block tag, from its first word to before the "%}" that ends it. */
static jinja_node *parse_statement(jinja_parser *p)
{
    jinja_token *t = now(p);
    if (t->type != JT_NAME) FAIL(p, t->pos, "tag name expected");
    jinja_node *n = node(p, JN_OUTPUT, t->pos);
    take(p);
    /* transformers adds statements that plain jinja2 lacks */
    bool chat = p->t->dialect == TEMPLATE_CHAT;
    if (token_is(t, "for")) return n->kind = JN_FOR, parse_for(p, n);
    if (token_is(t, "if")) return n->kind = JN_IF, parse_if(p, n);
    if (token_is(t, "set")) {
        n->a = parse_target(p, TUPLE_TARGET_NS, NULL);
        if (skip(p, JT_ASSIGN)) {
            n->kind = JN_SET;
            n->b = parse_tuple(p, TUPLE_FULL, NULL);
            return n;
        }
        /* {% set x %} text {% endset %}: the text is the value */
        n->kind = JN_SETBLOCK;
        n->b = parse_filters(p, NULL, false);
        parse_body(p, &n->body, (const char *const[]){ "endset", NULL }, n);
        return take(p), n;
    }
    if (token_is(t, "with")) {
        n->kind = JN_WITH;
        while (!is(p, JT_BLOCK_END)) {
            if (n->items.n) expect(p, JT_COMMA);
            push(p, &n->items, parse_target(p, TUPLE_TARGET, NULL));
            expect(p, JT_ASSIGN);
            push(p, &n->more, parse_expression(p));
        }
        parse_body(p, &n->body, (const char *const[]){ "endwith", NULL }, n);
        return take(p), n;
    }
    if (token_is(t, "macro")) {
        n->kind = JN_MACRO;
        n->a = parse_target_name(p);
        /* the name is a variable too, in a */
        n->name = n->a->name;
        parse_signature(p, n);
        parse_body(p, &n->body, (const char *const[]){ "endmacro", NULL }, n);
        return take(p), n;
    }
    if (token_is(t, "call")) {
        n->kind = JN_CALLBLOCK;
        /* the parameters of the caller */
        if (is(p, JT_LPAREN)) parse_signature(p, n);
        n->a = parse_expression(p);
        /* {% call(args) f(x) %}: the block is what f gets as `caller` */
        if (n->a->kind != JN_CALL) FAIL(p, t->pos, "expected call");
        parse_body(p, &n->body, (const char *const[]){ "endcall", NULL }, n);
        return take(p), n;
    }
    if (token_is(t, "filter")) {
        n->kind = JN_FILTERBLOCK;
        n->a = parse_filters(p, NULL, true);
        parse_body(p, &n->body, (const char *const[]){ "endfilter", NULL }, n);
        return take(p), n;
    }
    if (token_is(t, "print")) {
        while (!is(p, JT_BLOCK_END)) {
            if (n->items.n) expect(p, JT_COMMA);
            push(p, &n->items, parse_expression(p));
        }
        return n;
    }
    /* jinja2 has them as the extension loopcontrols */
    if (chat && (token_is(t, "break") || token_is(t, "continue")))
        return n->kind = token_is(t, "break") ? JN_BREAK : JN_CONTINUE, n;
    if (chat && token_is(t, "generation")) {
        n->kind = JN_GENERATION;
        /* such a template tells itself what the assistant wrote */
        p->t->generation = true;
        parse_body(p, &n->body, (const char *const[]){ "endgeneration", NULL }, n);
        return take(p), n;
    }
    /* those of jinja2 that need other templates, and autoescape */
    static const char *const refused[] = { "block",  "extends", "include",
                                           "import", "from",    "autoescape" };
    for (int i = 0; i < ARES_COUNT(refused); i++)
        if (token_is(t, refused[i]))
            jinja_syntax_fail(p, ARES_EUNSUPPORTED, t->pos, "the statement '%s' is not supported",
                              refused[i]);
    FAIL(p, t->pos, "Encountered unknown tag '%.*s'", (int)ARES_MIN(t->text.len, 80), t->text.data);
}

/*
 * Statements and text up to a block tag that begins with one of the words `ends`, or up to the end.
 */
static void parse_until(jinja_parser *p, jinja_nodes *body, const char *const *ends)
{
    while (!is(p, JT_EOF)) {
        jinja_token *t = take(p);
        if (t->type == JT_DATA) {
            jinja_node *n = node(p, JN_OUTPUT, t->pos);
            n->value = text_value(p, t->text);
            push(p, body, n);
        } else if (t->type == JT_VARIABLE_BEGIN) {
            jinja_node *n = node(p, JN_OUTPUT, t->pos);
            push(p, &n->items, parse_tuple(p, TUPLE_FULL, NULL));
            push(p, body, n);
            expect(p, JT_VARIABLE_END);
        } else {
            int k = 0;
            /* NULL: the whole template, which no word ends */
            while (ends && ends[k] && !is_word(p, ends[k])) k++;
            /* the word is left for the caller, which knows what it opened */
            if (ends && ends[k]) return;
            push(p, body, parse_statement(p));
            expect(p, JT_BLOCK_END);
        }
    }
}

/* The text up to one of the ending words, which is left as the next token. */
static void parse_body(jinja_parser *p, jinja_nodes *body, const char *const *ends,
                       jinja_node *opener)
{
    descend(p);
    /* "{% if x: %}" is allowed in jinja2 */
    skip(p, JT_COLON);
    expect(p, JT_BLOCK_END);
    parse_until(p, body, ends);
    if (is(p, JT_EOF)) {
        int64_t line, column;
        /* the place of the opening tag, since the end says nothing */
        jinja_position(p->t, opener->pos, &line, &column);
        FAIL(p, now(p)->pos, "Unexpected end of template; the block opened at %lld:%lld needs '%s'",
             (long long)line, (long long)column, ends[0]);
    }
    p->nest--;
}

int template_parse(const char *name, ares_view source, template_dialect dialect,
                   ares_template **out)
{
    *out = NULL;
    /* places in the source are kept as uint32 */
    if (source.len > (size_t)16 << 20)
        return ares_fail(ARES_ELIMIT, "template: %s: a template of %zu bytes; at most 16 MiB", name,
                         source.len);
    /* checked once, so that all later decoding is of valid text */
    if (!ares_view_is_utf8(source))
        return ares_fail(ARES_EFORMAT, "template: %s: the template is not UTF-8", name);
    ares_template *t = ares_calloc(1, sizeof *t);
    /* of the file, for errors */
    t->name = ares_strdup(name);
    t->dialect = dialect;
    /* CRLF and CR are newlines, and one at the very end is dropped: it only gets shorter */
    char *text = ares_arena_alloc(&t->arena, source.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        char c = source.data[i];
        if (c == '\r') {
            if (i + 1 < source.len && source.data[i + 1] == '\n') i++;
            c = '\n';
        }
        text[n++] = c;
    }
    if (n && text[n - 1] == '\n') n--;
    text[n] = 0;
    t->source = (ares_view){ text, n };
    jinja_parser *p = ares_arena_calloc(&t->arena, 1, sizeof *p);
    p->t = t;
    p->arena = &t->arena;
    /* jinja_syntax_fail comes back here */
    if (setjmp(p->fail)) {
        int code = p->code;
        ares_template_free(t);
        return code;
    }
    jinja_lex(p);
    parse_until(p, &t->body, NULL);
    /* all names get their places, or the template is refused */
    jinja_resolve(p);
    *out = t;
    return ARES_OK;
}

int ares_template_new(const char *name, ares_view source, ares_template **out)
{
    return template_parse(name, source, TEMPLATE_PLAIN, out);
}

void ares_template_free(ares_template *t)
{
    if (!t) return;
    ares_arena_fini(&t->arena);
    ares_free(t->name);
    ares_free(t);
}
