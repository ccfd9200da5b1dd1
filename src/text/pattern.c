/*
 * From Oniguruma's Ruby syntax to PCRE2. The differences that matter for split patterns:
 *   \s          White_Space; PCRE2 adds U+180E
 *   \h          a hexadecimal digit; PCRE2: horizontal space
 *   \v          one character, U+000B; PCRE2: any vertical space
 *   \p{..}      knows Unicode 16; for an older PCRE2 the newer code points are added as ranges.
 *               Scripts are those of Script, where PCRE2 takes Script_Extensions
 *   [a[b]&&c]   nested classes and intersections: refused
 *   {n}? {n}+ {,n} ^ $ \b \w (?i)   mean other things: refused
 *   (?i:..)     folds to several characters (ss and U+00DF): refused where that could match
 */
#include "tokenizer.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "unicode.h"

/* White_Space as the members of a class, and all other characters. */
#define SPACE_RANGES                                                                            \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{" \
    "205f}\\x{3000}"
#define NON_SPACE_RANGES                                                                         \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{" \
    "200b}-\\x{2027}"                                                                            \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

typedef struct translation {
    const char *where; /* "file: key", for errors */
    ares_view source;
    size_t at; /* the byte of source being read */
    ares_str *out;
    int depth;          /* groups open */
    int caseless_depth; /* depth of the open (?i:..); 0: none is open */
} translation;

static int refuse(const translation *t, size_t at, const char *what)
{
    return ares_fail(ARES_EUNSUPPORTED, "text: %s = '%.*s': at byte %zu: %s", t->where,
                     (int)ARES_MIN(t->source.len, 200), t->source.data, at, what);
}

/* The byte `ahead` of the current one; -1: the end. */
static int peek(const translation *t, size_t ahead)
{
    return t->at + ahead < t->source.len ? (unsigned char)t->source.data[t->at + ahead] : -1;
}

/* Writes the property that begins at t->at, \p{..}, as a class or as the members of one. */
static int property(translation *t, bool in_class)
{
    static const char *const categories[] = { "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc",
                                              "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
                                              "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So",
                                              "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Co" };
    size_t begin = t->at;
    /* \P{..} and \p{^..} are negated; \P{^..} is not */
    bool negated = peek(t, 1) == 'P';
    if (peek(t, 2) != '{') return refuse(t, begin, "a property is written \\p{..}");
    int64_t close = ares_view_find(t->source, ARES_VIEW("}"), begin);
    if (close < 0) return refuse(t, begin, "\\p{ without }");
    ares_view name = { t->source.data + begin + 3, (size_t)close - begin - 3 };
    if (name.len && name.data[0] == '^') negated = !negated, name.data++, name.len--;
    int n;
    bool script = ares_view_is(name, "Han") || ares_view_is(name, "Hiragana") ||
                  ares_view_is(name, "Katakana") || ares_view_is(name, "Hangul");
    bool known = script;
    for (int i = 0; !known && i < ARES_COUNT(categories); i++)
        known = ares_view_is(name, categories[i]);
    if (!known)
        return refuse(t, begin,
                      "this property is not supported (choices: categories of one or two letters, "
                      "Han, Hiragana, Katakana, Hangul)");
    if (negated && in_class)
        return refuse(t, begin, "a negated property inside [..] is not supported");
    /* code points that this PCRE2 may not know yet */
    const unicode_range *extra = unicode_new_ranges(script, &n);
    if (!in_class) ares_str_add_z(t->out, negated ? "[^" : "[");
    ares_str_addf(t->out, script ? "\\p{sc:%.*s}" : "\\p{%.*s}", (int)name.len, name.data);
    for (int i = 0; i < n; i++) {
        /* \p{L} takes all of Lu, Ll ...: their names begin with L */
        bool same = script ? ares_view_is(name, extra[i].name)
                           : strncmp(extra[i].name, name.data, name.len) == 0;
        if (same) ares_str_addf(t->out, "\\x{%x}-\\x{%x}", extra[i].first, extra[i].last);
    }
    if (!in_class) ares_str_add_char(t->out, ']');
    t->at = (size_t)close + 1;
    return ARES_OK;
}

/* Its value, or -1. */
static int hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* \xHH, \x{H..}, \uHHHH */
static int code_point(translation *t)
{
    size_t begin = t->at;
    bool braces = peek(t, 1) == 'x' && peek(t, 2) == '{';
    int most = peek(t, 1) == 'u' ? 4 : braces ? 8 : 2, n = 0;
    uint32_t value = 0;
    t->at += braces ? 3 : 2;
    for (; n < most && hex_digit(peek(t, 0)) >= 0; n++, t->at++)
        value = value << 4 | (uint32_t)hex_digit(peek(t, 0));
    if (n == 0 || (peek(t, 0) == '}') != braces) {
        if (n == 0 || braces) return refuse(t, begin, "a code point in hexadecimal is missing");
    }
    /* over the } */
    if (braces) t->at++;
    if (most == 4 && n < 4) return refuse(t, begin, "\\u takes four hexadecimal digits");
    if (most == 2 && value >= 0x80)
        return refuse(t, begin, "\\x above 7f is a raw byte there; write \\x{..}");
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return refuse(t, begin, "no such code point");
    ares_str_addf(t->out, "\\x{%x}", value);
    return ARES_OK;
}

/* A backslash and what follows it. text: the PCRE2 spelling; NULL: it has none. */
static int escape(translation *t, bool in_class)
{
    size_t begin = t->at;
    int c = peek(t, 1);
    const char *text = NULL;
    switch (c) {
    case -1: return refuse(t, begin, "a lone backslash at the end");
    case 'p':
    case 'P': return property(t, in_class);
    case 'x':
    case 'u': return code_point(t);
    case 's': text = in_class ? SPACE_RANGES : "[" SPACE_RANGES "]"; break;
    case 'S': text = in_class ? NON_SPACE_RANGES : "[^" SPACE_RANGES "]"; break;
    case 'h': text = in_class ? "0-9a-fA-F" : "[0-9a-fA-F]"; break;
    case 'H': text = in_class ? NULL : "[^0-9a-fA-F]"; break;
    case 'v': text = "\\x0b"; break;
    case 't': text = "\\t"; break;
    case 'n': text = "\\n"; break;
    case 'r': text = "\\r"; break;
    case 'f': text = "\\f"; break;
    case 'a': text = "\\x07"; break;
    case 'e': text = "\\x1b"; break;
    case 'A':
    case 'z': text = in_class ? NULL : c == 'A' ? "\\A" : "\\z"; break;
    case 'd': { /* is \p{Nd} */
        translation nd = { t->where, ARES_VIEW("\\p{Nd}"), 0, t->out, 0, 0 };
        ARES_TRY(property(&nd, in_class));
        text = "";
        break;
    }
    /* [^\p{Nd}] */
    case 'D': {
        if (in_class) break;
        translation nd = { t->where, ARES_VIEW("\\P{Nd}"), 0, t->out, 0, 0 };
        ARES_TRY(property(&nd, false));
        text = "";
        break;
    }
    default:
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80)
            break;
        ares_str_add(t->out, t->source.data + begin, 2); /* escaped punctuation is itself in both */
        text = "";
    }
    if (!text)
        return refuse(t, begin,
                      "this escape is not supported, because PCRE2 reads it in another way");
    ares_str_add_z(t->out, text);
    t->at += 2;
    return ARES_OK;
}

/*
 * [..] with escapes and ranges. Characters that only one of the engines gives a meaning are
 * refused.
 */
static int bracket_class(translation *t)
{
    size_t begin = t->at;
    ares_str_add_char(t->out, '[');
    t->at++;
    if (peek(t, 0) == '^') ares_str_add_char(t->out, '^'), t->at++;
    if (peek(t, 0) == ']') return refuse(t, t->at, "] at the start of a class; write \\]");
    for (bool first = true;; first = false) {
        int c = peek(t, 0);
        if (c < 0) return refuse(t, begin, "[ without ]");
        if (c == ']') break;
        if (c == '[') return refuse(t, t->at, "a class inside a class is not supported");
        if (c == '&' && peek(t, 1) == '&')
            return refuse(t, t->at, "an intersection of classes is not supported");
        if (c == '\\') {
            /* an escape that stands for several characters */
            bool set = strchr("pPsShHdD", peek(t, 1)) && peek(t, 1) > 0;
            ARES_TRY(escape(t, true));
            /* "\s-x" is a range for neither engine, but they disagree on what it is instead */
            if (set && peek(t, 0) == '-' && peek(t, 1) != ']')
                return refuse(t, t->at, "- after a set in a class; write \\-");
            continue;
        }
        if (c == '-' && !first && peek(t, 1) != ']' && peek(t, 1) == '\\' && peek(t, 2) > 0 &&
            strchr("pPsShHdD", peek(t, 2)))
            return refuse(t, t->at, "- before a set in a class; write \\-");
        ares_str_add_char(t->out, (char)c);
        t->at++;
    }
    ares_str_add_char(t->out, ']');
    t->at++;
    return ARES_OK;
}

/* The opening of a group; its end is an ordinary character to pattern_translate. */
static int group_open(translation *t)
{
    static const char *const kinds[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:" };
    size_t begin = t->at;
    t->depth++;
    if (peek(t, 1) != '?') {
        ares_str_add_z(t->out, "(?:"); /* captures have no use here */
        t->at++;
        return ARES_OK;
    }
    /* these mean the same in both syntaxes */
    for (int i = 0; i < ARES_COUNT(kinds); i++) {
        ares_view rest = { t->source.data + t->at, t->source.len - t->at };
        if (!ares_view_starts(rest, ares_view_of(kinds[i]))) continue;
        /* "(?i:"; one inside another changes nothing */
        if (i == 6 && t->caseless_depth == 0) t->caseless_depth = t->depth;
        ares_str_add_z(t->out, kinds[i]);
        t->at += strlen(kinds[i]);
        return ARES_OK;
    }
    return refuse(t, begin,
                  "this group is not supported (choices: (?: (?= (?! (?<= (?<! (?> (?i:)");
}

/* Appends the pattern in PCRE2's syntax. */
static int pattern_translate(const char *where, ares_view source, ares_str *out)
{
    translation t = { where, source, 0, out, 0, 0 };
    while (t.at < source.len) {
        int c = peek(&t, 0);
        if (c == '\\') {
            if (t.caseless_depth && peek(&t, 1) > 0 && strchr("pPxu", peek(&t, 1)))
                return refuse(&t, t.at,
                              "properties and code points inside (?i:..) are not supported");
            ARES_TRY(escape(&t, false));
        } else if (c == '[') {
            if (t.caseless_depth)
                return refuse(&t, t.at, "classes inside (?i:..) are not supported");
            ARES_TRY(bracket_class(&t));
        } else if (c == '(') {
            ARES_TRY(group_open(&t));
        } else if (c == '{') {
            /* {n}, {n,} or {n,m}, and a ? after the last two; others Oniguruma reads in its way */
            size_t begin = t.at, end = begin + 1;
            bool comma = false, low = false;
            for (; end < t.source.len && t.source.data[end] != '}'; end++) {
                char digit = t.source.data[end];
                if (digit == ',' && !comma) comma = true;
                else if (digit >= '0' && digit <= '9') low |= !comma;
                else return refuse(&t, begin, "{ that begins no repeat count; write \\{");
            }
            if (end == t.source.len || !low)
                return refuse(&t, begin, "{ that begins no repeat count; write \\{, or {0,n}");
            t.at = end + 1;
            int next = peek(&t, 0);
            if (next == '+' || (next == '?' && !comma))
                return refuse(&t, begin, "a repeat count followed by + or ? is not supported");
            ares_str_add(t.out, t.source.data + begin, t.at - begin);
        } else if (c == '^' || c == '$') {
            return refuse(&t, t.at, "line anchors are not supported; write \\A or \\z");
        } else if (c == 0) {
            return refuse(&t, t.at, "a NUL is not supported");
        } else {
            if (c == ')') {
                if (t.depth == 0) return refuse(&t, t.at, ") without (");
                /* the group that closes is the (?i:..) */
                if (t.depth-- == t.caseless_depth) t.caseless_depth = 0;
            } else if (t.caseless_depth) {
                /*
                 * Inside (?i:..) only letters that fold to one character each: in Oniguruma ss, ff,
                 * fi, fl and st match U+00DF, U+FB00 ... too.
                 */
                if (c >= 0x80)
                    return refuse(&t, t.at,
                                  "characters beyond ASCII inside (?i:..) are not supported");
                /* in lower case: this letter and the next */
                int a = c | 0x20, b = peek(&t, 1) > 0 ? peek(&t, 1) | 0x20 : 0;
                if ((a == 's' && (b == 's' || b == 't')) ||
                    (a == 'f' && (b == 'f' || b == 'i' || b == 'l')))
                    return refuse(&t, t.at,
                                  "these letters fold to one ligature inside (?i:..), which is not "
                                  "supported");
            }
            ares_str_add_char(out, (char)c);
            t.at++;
        }
    }
    return ARES_OK;
}

/* ---- running */
struct pattern {
    pcre2_code *code;
    bool jit;
};
struct pattern_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* of compiled code; NULL: the small one of PCRE2 */
    size_t stack_bytes;
};
enum { STACK_LEAST = 64 << 10, STACK_MOST = 256 << 20 };

/* Compiles the pattern. where: "file: key", for errors. */
int pattern_new(const char *where, ares_view source, bool literal, pattern **out)
{
    ares_str text = { 0 };
    int rc = ARES_OK, error = 0;
    if (literal) ares_str_add_view(&text, source);
    else rc = pattern_translate(where, source, &text);
    pcre2_code *code = NULL;
    if (rc == ARES_OK) {
        size_t at = 0;
        pcre2_compile_context *context = pcre2_compile_context_create(NULL);
        ARES_ASSERT(context);
        /* "." is all but LF, as in Ruby */
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        uint32_t options =
            PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
        code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len, options, &error,
                             &at, context);
        pcre2_compile_context_free(context);
        if (!code) {
            PCRE2_UCHAR message[200] = "";
            pcre2_get_error_message(error, message, sizeof message);
            rc = ares_fail(ARES_EFORMAT, "text: %s = '%.*s': %s", where,
                           (int)ARES_MIN(source.len, 200), source.data, (const char *)message);
        }
    }
    ares_str_fini(&text);
    ARES_TRY(rc);
    pattern *p = ares_calloc(1, sizeof *p);
    p->code = code;
    /* without compiled code the pattern is interpreted, which gives the same matches */
    p->jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    *out = p;
    return ARES_OK;
}

void pattern_free(pattern *p)
{
    if (!p) return;
    pcre2_code_free(p->code);
    ares_free(p);
}

pattern_scratch *pattern_scratch_new(void)
{
    pattern_scratch *s = ares_calloc(1, sizeof *s);
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    ARES_ASSERT(s->data && s->context);
    pcre2_set_match_limit(s->context, 1u << 30);
    return s;
}

void pattern_scratch_free(pattern_scratch *s)
{
    if (!s) return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    ares_free(s);
}

/* One match from byte `from` on. Where the stack is too small for it, a larger one is tried. */
static int match(const pattern *p, pattern_scratch *s, const unsigned char *text, size_t len,
                 size_t from)
{
    for (;;) {
        int rc =
            p->jit
                ? pcre2_jit_match(p->code, text, len, from, PCRE2_NO_UTF_CHECK, s->data, s->context)
                : pcre2_match(p->code, text, len, from, PCRE2_NO_UTF_CHECK, s->data, s->context);
        if (rc != PCRE2_ERROR_JIT_STACKLIMIT || s->stack_bytes >= STACK_MOST) return rc;
        s->stack_bytes = s->stack_bytes ? s->stack_bytes * 8 : 1 << 20;
        pcre2_jit_stack_free(s->stack);
        s->stack = pcre2_jit_stack_create(STACK_LEAST, s->stack_bytes, NULL);
        ARES_ASSERT(s->stack);
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    }
}

/* The next match, in order, in *it: 1, or 0 after the last. Empty matches count too. */
int pattern_next(const pattern *p, pattern_scratch *s, const unsigned char *text, size_t len,
                 pattern_match *it)
{
    while (it->from <= len) {
        int rc = match(p, s, text, len, it->from);
        if (rc == PCRE2_ERROR_NOMATCH) return 0;
        if (rc < 0) {
            PCRE2_UCHAR message[200] = "";
            pcre2_get_error_message(rc, message, sizeof message);
            return ares_fail(ARES_ELIMIT, "text: split pattern: on a text of %zu bytes: %s", len,
                             (const char *)message);
        }
        const size_t *range = pcre2_get_ovector_pointer(s->data);
        /* an empty match right after a match: search on from the next character */
        if (range[0] == range[1] && it->any && range[1] == it->end) {
            for (it->from++; it->from < len && !unicode_is_start(text[it->from]); it->from++) {}
            continue;
        }
        it->start = range[0];
        it->end = it->from = range[1];
        it->any = true;
        return 1;
    }
    return 0;
}
