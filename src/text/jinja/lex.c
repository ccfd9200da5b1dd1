/*
 * Template source to tokens: jinja2's lexer and its rules for white space. The end of a tag is
 * searched only outside brackets; "-" strips all white space on its side; trim_blocks drops one
 * newline after a block or comment; lstrip_blocks drops blanks between the start of a line and a
 * block or comment.
 */
#include <stdio.h>
#include <string.h>

#include "jinja.h"

typedef struct lexer {
    jinja_parser *p;
    const char *s;
    size_t n, at;
    bool trim;       /* trim_blocks and lstrip_blocks, which the chat dialect sets */
    bool line_start; /* the text before `at` ends a line, or there is none */
    int64_t cap;
} lexer;

/* Longer ones first, because the first that fits is taken. */
static const struct {
    const char *text;
    uint8_t type;
} operators[] = {
    { "//", JT_FLOORDIV }, { "**", JT_POW },      { "==", JT_EQ },    { "!=", JT_NE },
    { ">=", JT_GE },       { "<=", JT_LE },       { "+", JT_ADD },    { "-", JT_SUB },
    { "/", JT_DIV },       { "*", JT_MUL },       { "%", JT_MOD },    { "~", JT_TILDE },
    { "[", JT_LBRACKET },  { "]", JT_RBRACKET },  { "(", JT_LPAREN }, { ")", JT_RPAREN },
    { "{", JT_LBRACE },    { "}", JT_RBRACE },    { ">", JT_GT },     { "<", JT_LT },
    { "=", JT_ASSIGN },    { ".", JT_DOT },       { ":", JT_COLON },  { "|", JT_PIPE },
    { ",", JT_COMMA },     { ";", JT_SEMICOLON },
};

/* A token as jinja2's messages name it. */
const char *jinja_token_word(jinja_token_type type)
{
    switch (type) {
    case JT_EOF: return "end of template";
    case JT_DATA: return "template data / text";
    case JT_VARIABLE_BEGIN: return "begin of print statement";
    case JT_VARIABLE_END: return "end of print statement";
    case JT_BLOCK_BEGIN: return "begin of statement block";
    case JT_BLOCK_END: return "end of statement block";
    case JT_NAME: return "name";
    case JT_STRING: return "string";
    case JT_INT: return "integer";
    case JT_FLOAT: return "float";
    default:
        for (int i = 0; i < ARES_COUNT(operators); i++)
            if (operators[i].type == type) return operators[i].text;
        return "?";
    }
}

/* Appends a token; pos is its place in the source, for errors. */
static void emit(lexer *x, jinja_token_type type, size_t pos, const char *data, size_t len)
{
    jinja_parser *p = x->p;
    if (p->n_tokens == x->cap) {
        int64_t cap = x->cap ? 2 * x->cap : 256;
        jinja_token *t = ares_arena_alloc(p->arena, (size_t)cap * sizeof *t);
        /* the arena keeps the old array until the template is freed */
        if (x->cap) memcpy(t, p->tokens, (size_t)p->n_tokens * sizeof *t);
        p->tokens = t, x->cap = cap;
    }
    p->tokens[p->n_tokens++] = (jinja_token){ (uint8_t)type, (uint32_t)pos, { data, len } };
}

/* Whether the source has this word at i. */
static bool at_text(const lexer *x, size_t i, const char *word)
{
    size_t n = strlen(word);
    return i + n <= x->n && memcmp(x->s + i, word, n) == 0;
}

/* The place after the white space at i. */
static size_t skip_space(const lexer *x, size_t i)
{
    uint32_t cp;
    while (i < x->n) {
        int k = jinja_decode(x->s + i, x->n - i, &cp);
        if (!jinja_is_space(cp)) break;
        i += (size_t)k;
    }
    return i;
}

/* The text before a tag, stripped as the tag's sign and lstrip_blocks ask. */
static void emit_data(lexer *x, size_t from, size_t to, char sign, bool lstrip)
{
    size_t n = to - from;
    const char *s = x->s + from;
    if (sign == '-') {
        n = jinja_strip_right(s, n);
    } else if (sign != '+' && lstrip && x->trim) {
        size_t line = n;
        /* back to the start of the line that the tag is in */
        while (line && s[line - 1] != '\n') line--;
        if ((line > 0 || x->line_start) && skip_space(x, from + line) >= to) n = line;
    }
    if (n) emit(x, JT_DATA, from, s, n);
}

/* Goes on after the end of a tag. */
static void finish(lexer *x, size_t end)
{
    x->line_start = end > 0 && x->s[end - 1] == '\n';
    x->at = end;
}

/*
 * Length of the end of a tag at i, or 0: "%}", "-%}" and the white space after it and, except for
 * "}}", also "+%}" and the newline that trim_blocks drops. close is "%}", "#}" or "}}".
 */
static size_t tag_end(const lexer *x, size_t i, const char *close)
{
    bool block = close[0] != '}';
    if (block && i < x->n && x->s[i] == '+' && at_text(x, i + 1, close)) return 3;
    if (i < x->n && x->s[i] == '-' && at_text(x, i + 1, close)) return skip_space(x, i + 3) - i;
    if (!at_text(x, i, close)) return 0;
    return block && x->trim && i + 2 < x->n && x->s[i + 2] == '\n' ? 3 : 2;
}

/* The - or + after the opening of a tag, or 0; returns the place after it. */
static size_t sign_at(const lexer *x, size_t i, char *sign)
{
    *sign = i < x->n && (x->s[i] == '-' || x->s[i] == '+') ? x->s[i] : 0;
    return i + (*sign != 0);
}

/* "{%- raw -%}" at i: where its text begins, or 0. */
static size_t raw_begin(const lexer *x, size_t i)
{
    char sign;
    size_t j = skip_space(x, sign_at(x, i + 2, &sign));
    if (!at_text(x, j, "raw")) return 0;
    j = skip_space(x, j + 3);
    if (at_text(x, j, "-%}")) return skip_space(x, j + 3);
    return at_text(x, j, "%}") ? j + 2 : 0;
}

/* Emits the text up to {% endraw %} as data. begin: of the raw tag, for errors. */
static void lex_raw(lexer *x, size_t begin)
{
    for (size_t i = x->at; i < x->n; i++) {
        const char *hit = memchr(x->s + i, '{', x->n - i);
        if (!hit) break;
        i = (size_t)(hit - x->s);
        /* only {% endraw %} ends it: {{ and {# are text here */
        if (!at_text(x, i, "{%")) continue;
        char sign;
        size_t j = skip_space(x, sign_at(x, i + 2, &sign));
        if (!at_text(x, j, "endraw")) continue;
        j = skip_space(x, j + 6);
        size_t end = tag_end(x, j, "%}");
        if (!end) continue;
        emit_data(x, x->at, i, sign, true);
        finish(x, j + end);
        return;
    }
    if (x->at == x->n)
        return; /* as in jinja2: after a raw tag at the very end no end tag is missing */
    jinja_syntax_fail(x->p, ARES_EFORMAT, (uint32_t)begin, "Missing end of raw directive");
}

/* Skips a comment. begin: of its tag, for errors. */
static void lex_comment(lexer *x, size_t begin)
{
    for (size_t i = x->at; i < x->n; i++) {
        size_t end = tag_end(x, i, "#}");
        if (!end) continue;
        finish(x, i + end);
        return;
    }
    if (x->at == x->n) return;
    jinja_syntax_fail(x->p, ARES_EFORMAT, (uint32_t)begin, "Missing end of comment tag");
}

static bool is_digit(const lexer *x, size_t i)
{
    return i < x->n && x->s[i] >= '0' && x->s[i] <= '9';
}

/* (\d+_)*\d+ from i; i when there is none. */
static size_t digits(const lexer *x, size_t i)
{
    size_t end = i;
    while (is_digit(x, i)) {
        while (is_digit(x, i)) i++;
        end = i;
        if (i < x->n && x->s[i] == '_') i++;
    }
    return end;
}

/*
 * The end of a float that begins at i, or i. After a dot there is none: in a.0.1 the numbers are
 * indices.
 */
static size_t float_end(const lexer *x, size_t i)
{
    if (i && x->s[i - 1] == '.') return i;
    size_t whole = digits(x, i), end = whole, exponent;
    if (whole == i) return i;
    /* 1. is no float: at least one digit stands after the dot */
    if (end < x->n && x->s[end] == '.' && is_digit(x, end + 1)) end = digits(x, end + 1);
    if (end < x->n && (x->s[end] | 32) == 'e') {
        exponent = end + 1;
        if (exponent < x->n && (x->s[exponent] == '+' || x->s[exponent] == '-')) exponent++;
        if (is_digit(x, exponent)) return digits(x, exponent);
    }
    /* digits alone are an integer */
    return end > whole ? end : i;
}

/* 0 to 15 for a hexadecimal digit, 99 for anything else. */
static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* The end of (_?digit)* from i. */
static size_t run_of_digits(const lexer *x, size_t i, int base)
{
    for (;;) {
        size_t j = i < x->n && x->s[i] == '_' ? i + 1 : i;
        if (j >= x->n || digit_value(x->s[j]) >= base) return i;
        i = j + 1;
    }
}

/*
 * The end of an integer that begins at i, or i. As in Python, a number that begins with 0 has a
 * base or only zeros.
 */
static size_t int_end(const lexer *x, size_t i)
{
    if (!is_digit(x, i)) return i;
    if (x->s[i] != '0') return run_of_digits(x, i + 1, 10);
    char mark = i + 1 < x->n ? (char)(x->s[i + 1] | 32) : 0;
    int base = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 0;
    if (base) {
        size_t end = run_of_digits(x, i + 2, base);
        if (end > i + 2) return end;
    }
    return run_of_digits(x, i + 1, 1); /* base 1: zeros */
}

/* Python's names may have any letters; no template needs more than ASCII's. */
static size_t name_end(const lexer *x, size_t i)
{
    size_t start = i;
    while (i < x->n && (((x->s[i] | 32) >= 'a' && (x->s[i] | 32) <= 'z') || x->s[i] == '_' ||
                        (i > start && is_digit(x, i))))
        i++;
    return i;
}

/* The value of the `want` digits of an escape; `what` names the escape in errors. */
static uint32_t hex_digits(lexer *x, size_t pos, const char *s, size_t n, size_t want,
                           const char *what)
{
    uint32_t v = 0;
    for (size_t i = 0; i < want; i++) {
        if (i >= n || digit_value(s[i]) > 15)
            jinja_syntax_fail(x->p, ARES_EFORMAT, (uint32_t)pos, "truncated %s escape", what);
        v = v << 4 | (uint32_t)digit_value(s[i]);
    }
    return v;
}

/* Writes the code point of an escape as UTF-8; returns its length. */
static size_t escape_cp(lexer *x, size_t pos, char *out, uint32_t cp)
{
    if (cp > 0x10FFFF)
        jinja_syntax_fail(x->p, ARES_EFORMAT, (uint32_t)pos, "illegal Unicode character");
    if (cp >= 0xD800 && cp < 0xE000)
        jinja_syntax_fail(x->p, ARES_EUNSUPPORTED, (uint32_t)pos,
                          "a surrogate in a string has no UTF-8 form");
    return (size_t)jinja_encode(cp, out);
}

/*
 * Python's "unicode-escape", applied to the text after its non-ASCII characters were written as
 * escapes: a backslash before such a character therefore leaves the letters of that escape in the
 * string. Unknown escapes keep their backslash.
 */
static ares_view unescape(lexer *x, size_t pos, const char *s, size_t n)
{
    /* nothing to do: the text of the source is used */
    if (!memchr(s, '\\', n)) return (ares_view){ s, n };
    /* a backslash and one character become at most ten */
    char *out = ares_arena_alloc(x->p->arena, 5 * n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\') {
            out[k++] = s[i++];
            continue;
        }
        i++;
        char c = s[i];
        static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
        const char *simple = memchr(from, c, sizeof from - 1);
        if (simple) {
            out[k++] = to[simple - from];
            i++;
            continue;
        }
        /* a backslash at the end of a line joins it with the next */
        if (c == '\n') {
            i++;
            continue;
        }
        /* octal, of one to three digits: "\101" is "A" */
        if (c >= '0' && c <= '7') {
            uint32_t v = 0;
            for (int d = 0; d < 3 && i < n && s[i] >= '0' && s[i] <= '7'; d++)
                v = v * 8 + (uint32_t)(s[i++] - '0');
            k += escape_cp(x, pos, out + k, v);
            continue;
        }
        if (c == 'x' || c == 'u' || c == 'U') {
            size_t want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            const char *what = c == 'x' ? "\\xXX" : c == 'u' ? "\\uXXXX" : "\\UXXXXXXXX";
            k += escape_cp(x, pos, out + k, hex_digits(x, pos, s + i + 1, n - i - 1, want, what));
            i += 1 + want;
            continue;
        }
        if (c == 'N')
            jinja_syntax_fail(x->p, ARES_EUNSUPPORTED, (uint32_t)pos,
                              "\\N{...} in a string is not supported; write the character");
        /* an unknown escape stays as it is written */
        out[k++] = '\\';
        if ((unsigned char)c < 0x80) {
            out[k++] = c;
            i++;
            continue;
        }
        uint32_t cp;
        i += (size_t)jinja_decode(s + i, n - i, &cp);
        k += (size_t)snprintf(out + k, 12,
                              cp < 0x100     ? "x%02x"
                              : cp < 0x10000 ? "u%04x"
                                             : "U%08x",
                              cp);
    }
    return (ares_view){ out, k };
}

/* The place after the closing quote of the string at i, or i where it is missing. */
static size_t string_end(const lexer *x, size_t i)
{
    char quote = x->s[i];
    for (size_t j = i + 1; j < x->n; j++) {
        /* an escaped quote does not end the string */
        if (x->s[j] == '\\') j++;
        else if (x->s[j] == quote) return j + 1;
    }
    return i;
}

/* A number without the underscores between its digits, which strtod does not know. */
static ares_view without_underscores(lexer *x, size_t from, size_t to)
{
    char *out = ares_arena_alloc(x->p->arena, to - from + 1);
    size_t k = 0;
    for (size_t i = from; i < to; i++)
        if (x->s[i] != '_') out[k++] = x->s[i];
    out[k] = 0;
    return (ares_view){ out, k };
}

/* Tokens up to the end of a block or variable tag. Inside brackets "}}" closes two dicts. */
static void lex_tag(lexer *x, bool block)
{
    char open[JINJA_NEST]; /* brackets not closed yet */
    size_t depth = 0;
    while (x->at < x->n) {
        size_t i = x->at, end = depth ? 0 : tag_end(x, i, block ? "%}" : "}}");
        if (end) {
            emit(x, block ? JT_BLOCK_END : JT_VARIABLE_END, i, x->s + i, 2);
            finish(x, i + end);
            return;
        }
        if ((end = skip_space(x, i)) > i) {
            x->at = end;
            continue;
        }
        if ((end = float_end(x, i)) > i) {
            ares_view v = without_underscores(x, i, end);
            emit(x, JT_FLOAT, i, v.data, v.len);
        } else if ((end = int_end(x, i)) > i) {
            ares_view v = without_underscores(x, i, end);
            emit(x, JT_INT, i, v.data, v.len);
        } else if ((end = name_end(x, i)) > i) {
            ares_view name = { x->s + i, end - i };
            emit(x, JT_NAME, i, name.data, name.len);
        } else if ((x->s[i] == '\'' || x->s[i] == '"') && (end = string_end(x, i)) > i) {
            ares_view v = unescape(x, i, x->s + i + 1, end - i - 2);
            emit(x, JT_STRING, i, v.data, v.len);
        } else {
            int k = 0;
            while (k < ARES_COUNT(operators) && !at_text(x, i, operators[k].text)) k++;
            if (k == ARES_COUNT(operators)) {
                uint32_t cp;
                int len = jinja_decode(x->s + i, x->n - i, &cp);
                jinja_syntax_fail(x->p, ARES_EFORMAT, (uint32_t)i, "unexpected char '%.*s'", len,
                                  x->s + i);
            }
            char c = x->s[i];
            if ((c == '(' || c == '[' || c == '{') && depth == JINJA_NEST)
                jinja_syntax_fail(x->p, ARES_ELIMIT, (uint32_t)i,
                                  "more than %d brackets inside each other", JINJA_NEST);
            if (c == '(' || c == '[' || c == '{')
                open[depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
            if (c == ')' || c == ']' || c == '}') {
                if (!depth)
                    jinja_syntax_fail(x->p, ARES_EFORMAT, (uint32_t)i, "unexpected '%c'", c);
                if (open[--depth] != c)
                    jinja_syntax_fail(x->p, ARES_EFORMAT, (uint32_t)i,
                                      "unexpected '%c', expected '%c'", c, open[depth]);
            }
            end = i + strlen(operators[k].text);
            emit(x, operators[k].type, i, x->s + i, end - i);
        }
        x->at = end;
    }
}

/* Text up to the next tag, then the tag, until the source ends. */
void jinja_lex(jinja_parser *p)
{
    lexer x = { .p = p,
                .s = p->t->source.data,
                .n = p->t->source.len,
                .line_start = true,
                .trim = p->t->dialect == TEMPLATE_CHAT };
    while (x.at < x.n) {
        size_t i = x.at;
        for (; i < x.n; i++) {
            const char *hit = memchr(x.s + i, '{', x.n - i);
            if (!hit) {
                i = x.n;
                break;
            }
            i = (size_t)(hit - x.s);
            /* "{" alone is text */
            if (i + 1 < x.n && (x.s[i + 1] == '%' || x.s[i + 1] == '{' || x.s[i + 1] == '#')) break;
        }
        if (i >= x.n) {
            emit(&x, JT_DATA, x.at, x.s + x.at, x.n - x.at);
            break;
        }
        char kind = x.s[i + 1], sign;
        /* "{%-" strips before it, "{%+" keeps lstrip_blocks from it */
        size_t inside = sign_at(&x, i + 2, &sign), raw = kind == '%' ? raw_begin(&x, i) : 0;
        emit_data(&x, x.at, i, sign, kind != '{');
        if (raw) {
            finish(&x, raw);
            lex_raw(&x, i);
            continue;
        }
        finish(&x, inside);
        if (kind == '#') {
            lex_comment(&x, i);
            continue;
        }
        emit(&x, kind == '%' ? JT_BLOCK_BEGIN : JT_VARIABLE_BEGIN, i, x.s + i, 2);
        lex_tag(&x, kind == '%');
    }
    emit(&x, JT_EOF, x.n, x.s + x.n, 0);
}
