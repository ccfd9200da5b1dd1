/*
 * Private to text: the syntax tree of a template, values, and the state of one render. On an error,
 * parser and renderer leave by longjmp from the place that knows the cause; everything they
 * allocate lies in an arena, so nothing leaks.
 *
 * A file calls only files that stand before it here: unicode.c (characters), value.c, format.c
 * (values to text), str.c (methods), filters.c, eval.c. One circle belongs to the language:
 * map('upper') names a filter, and a filter reads attributes, which eval.c finds.
 */
#ifndef ARES_TEMPLATE_JINJA_H
#define ARES_TEMPLATE_JINJA_H

#include <setjmp.h>

#include "ares/text.h"

enum {
    JINJA_NEST = 160,       /* brackets and blocks nested in the source */
    JINJA_TREE_DEPTH = 400, /* depth of the syntax tree (a + b + c + ...) */
    /* nested evaluations of nodes, macros included: about jinja2's own limit */
    JINJA_RUN_DEPTH = 1500,
    JINJA_MAX_RANGE = 100000 /* items of range(), as in jinja2's sandbox */
};

/* ---------------- dialects
 * CHAT is the environment that transformers gives chat templates: trim_blocks, lstrip_blocks,
 * {% break %}, {% continue %}, {% generation %}, tojson as plain json.dumps, raise_exception,
 * strftime_now. PLAIN is jinja2.Template without options, as EasyR1 reads its format prompts.
 */
typedef enum { TEMPLATE_CHAT, TEMPLATE_PLAIN } template_dialect;

/* ---------------- values (value.c) */
typedef enum {
    JV_MISSING, /* no value: an argument not given, a slot not set; no template sees it */
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_BIG, /* an integer beyond 64 bits */
    JV_FLOAT,
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_RANGE,
    JV_VIEW, /* keys, values or items of a dict */
    JV_ITER, /* can be read once, as Python's generators */
    JV_NAMESPACE,
    JV_MACRO,
    JV_LOOP,  /* the variable `loop` */
    JV_FUNC,  /* a global function */
    JV_METHOD /* bound to its object */
} jinja_kind;

typedef struct jinja_run jinja_run;
typedef struct jinja_node jinja_node;
typedef struct jinja_string {
    const char *data;
    size_t len;
    int64_t chars; /* code points; -1: not counted yet */
} jinja_string;

typedef struct jinja_value {
    uint8_t kind;
    uint8_t flag; /* STR: 1 for Markup (text marked safe); VIEW: 'k', 'v', 'i' */
    union {
        bool b;
        int64_t i;
        double f;
        jinja_string *s; /* STR; BIG: decimal digits, with a minus sign */
        struct jinja_list *l;
        struct jinja_dict *d; /* DICT, NAMESPACE, VIEW */
        struct jinja_range *r;
        struct jinja_iter *it;
        struct jinja_macro *macro;
        struct jinja_loop *loop;
        const struct jinja_builtin *fn;
        struct jinja_method *method;
        const char *hint; /* UNDEFINED: why, for errors */
    } u;
} jinja_value;

typedef struct jinja_pair {
    jinja_value key, value;
} jinja_pair;
typedef struct jinja_list {
    jinja_value *items;
    int64_t n;
} jinja_list; /* tuples too */
typedef struct jinja_dict {
    jinja_pair *items; /* [n] in order of insertion */
    int64_t n, cap;
    int32_t *index; /* open-addressing hash table: indices of items, -1 free; NULL: a small dict */
    int64_t mask;   /* slots of the table - 1 */
} jinja_dict;
typedef struct jinja_range {
    int64_t start, stop, step, n; /* n: number of items */
} jinja_range;
typedef struct jinja_iter {
    /* false: the end */
    bool (*next)(jinja_run *r, struct jinja_iter *it, jinja_value *out);
    jinja_value over;
    int64_t i;
    void *extra;
} jinja_iter;
typedef struct jinja_method {
    jinja_value self;
    const struct jinja_builtin *entry;
} jinja_method;
/* Activation: the variables of a function being run. */
typedef struct jinja_act {
    struct jinja_act *up;
    jinja_value slots[];
} jinja_act;
typedef struct jinja_macro {
    const jinja_node *node;
    jinja_act *act; /* where it was defined */
} jinja_macro;
typedef struct jinja_loop {
    jinja_value over, current, before, after, changed; /* MISSING where there is none */
    jinja_iter *it;
    int64_t index0, length, depth0; /* length -1: not asked yet */
    const jinja_node *node;         /* of a recursive loop */
    jinja_act *act;
} jinja_loop;

typedef struct jinja_kwarg {
    ares_view name;
    jinja_value value;
} jinja_kwarg;
typedef struct jinja_args {
    jinja_value *pos;
    int64_t n;
    jinja_kwarg *kw;
    int64_t n_kw;
    int how; /* that of the builtin being called */
} jinja_args;
typedef jinja_value jinja_builtin_fn(jinja_run *r, jinja_value self, jinja_args *a);
/*
 * Functions, methods, filters and tests. spec names the parameters after self: in "a b|c d" those
 * after "|" are optional; a leading "/" forbids keywords; "*" leaves all arguments to the function.
 * Arguments arrive in a->pos in the order of spec, MISSING where not given.
 */
typedef struct jinja_builtin {
    const char *name;
    jinja_builtin_fn *fn; /* NULL: a method that Python has and we do not */
    const char *spec;
    int how;          /* tells apart the names that share one fn, which reads it as a->how */
    const char *repr; /* what Python prints for it; NULL: an address, which we refuse to print */
} jinja_builtin;
typedef struct jinja_buf {
    char *data;
    size_t len, cap;
} jinja_buf;

/* ------------------------------------------------------------------ syntax tree (parse.c) */
typedef enum {
    JN_CONST,
    JN_NAME,
    JN_NSREF,
    JN_TUPLE,
    JN_LIST,
    JN_DICT,
    JN_COND,
    JN_OR,
    JN_AND,
    JN_NOT,
    JN_COMPARE,
    JN_OPERAND,
    JN_BINARY,
    JN_CONCAT,
    JN_NEG,
    JN_POS,
    JN_GETATTR,
    JN_GETITEM,
    JN_SLICE,
    JN_CALL,
    JN_FILTER,
    JN_TEST,
    JN_OUTPUT,
    JN_FOR,
    JN_IF,
    JN_MACRO,
    JN_CALLBLOCK,
    JN_FILTERBLOCK,
    JN_WITH,
    JN_SET,
    JN_SETBLOCK,
    JN_BREAK,
    JN_CONTINUE,
    JN_GENERATION
} jinja_node_kind;
typedef enum {
    JOP_EQ,
    JOP_NE,
    JOP_LT,
    JOP_LE,
    JOP_GT,
    JOP_GE,
    JOP_IN,
    JOP_NOTIN,
    JOP_ADD,
    JOP_SUB,
    JOP_MUL,
    JOP_DIV,
    JOP_FLOORDIV,
    JOP_MOD,
    JOP_POW
} jinja_op;

typedef struct jinja_nodes {
    jinja_node **items;
    int32_t n, cap;
} jinja_nodes;
typedef struct jinja_load {
    int32_t slot;
    uint8_t how;      /* jinja_how */
    int32_t up, from; /* ALIAS: functions outward, slot there */
    ares_view name;
} jinja_load;
/* Where a slot's value comes from: set by the scope, the context, an outer slot, nowhere yet. */
typedef enum { JLOAD_PARAM, JLOAD_RESOLVE, JLOAD_ALIAS, JLOAD_UNDEFINED } jinja_how;
/* The slots that are set when a scope is entered. */
typedef struct jinja_frame {
    jinja_load *loads;
    int32_t n;
} jinja_frame;
typedef struct jinja_func {
    int32_t n_slots;
    struct jinja_func *up;
} jinja_func;

struct jinja_node {
    uint8_t kind, op;
    /* FOR: recursive; NAME: assigned; FILTER, TEST: may be unknown until run */
    bool flag;
    uint32_t pos;         /* byte in the source */
    ares_view name, attr; /* NAME, NSREF, GETATTR, FILTER, TEST, MACRO */
    jinja_node *a, *b, *c, *d;
    jinja_nodes items;   /* elements, arguments, parameters, elifs, targets */
    jinja_nodes more;    /* keyword values, defaults, with-values */
    ares_view *keywords; /* of `more`, for calls */
    jinja_node *dyn_args, *dyn_kwargs;
    jinja_nodes body, orelse;
    jinja_value value; /* CONST; OUTPUT's data */
    const jinja_builtin *builtin;
    int32_t up, slot; /* NAME, NSREF, MACRO: functions outward, slot there */
    int32_t loop_slot, caller_slot, kwargs_slot, varargs_slot; /* -1: never read */
    jinja_func *func, *test_func;
    jinja_frame frame, else_frame, test_frame;
};

struct ares_template {
    ares_arena arena;
    char *name;
    ares_view source; /* newlines normalised */
    template_dialect dialect;
    jinja_nodes body;
    jinja_func func;
    jinja_frame frame;
    bool generation; /* has a {% generation %} block */
};

typedef struct jinja_parser {
    ares_template *t;
    ares_arena *arena;
    struct jinja_token *tokens;
    int64_t n_tokens, at;
    int nest;     /* levels open now */
    int64_t work; /* names compared by scope.c, which bounds them */
    jmp_buf fail;
    int code; /* of the error, when fail is taken */
} jinja_parser;

void jinja_syntax_fail(jinja_parser *p, int code, uint32_t pos, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

/* ------------------------------------------------------------------ tokens (lex.c) */
typedef enum {
    JT_EOF,
    JT_DATA,
    JT_VARIABLE_BEGIN,
    JT_VARIABLE_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING,
    JT_INT,
    JT_FLOAT,
    JT_ADD,
    JT_SUB,
    JT_DIV,
    JT_FLOORDIV,
    JT_MUL,
    JT_MOD,
    JT_POW,
    JT_TILDE,
    JT_LBRACKET,
    JT_RBRACKET,
    JT_LPAREN,
    JT_RPAREN,
    JT_LBRACE,
    JT_RBRACE,
    JT_EQ,
    JT_NE,
    JT_GT,
    JT_GE,
    JT_LT,
    JT_LE,
    JT_ASSIGN,
    JT_DOT,
    JT_COLON,
    JT_PIPE,
    JT_COMMA,
    JT_SEMICOLON
} jinja_token_type;
typedef struct jinja_token {
    uint8_t type;
    uint32_t pos;
    ares_view text; /* of a STRING: without quotes and escapes */
} jinja_token;
void jinja_lex(jinja_parser *p);
const char *jinja_token_word(jinja_token_type type);

/* ---------------- scopes (scope.c): names -> slots, as jinja2's compiler gives them */
void jinja_resolve(jinja_parser *p);

/* ------------------------------------------------------------------ one render */
struct jinja_run {
    const ares_template *t;
    ares_arena arena;
    size_t used, memory_limit, output_limit;
    int64_t steps, step_limit;
    int depth;
    const jinja_node *at; /* the innermost node, for errors */
    jinja_dict *context;
    const struct tm *now;
    jinja_buf *out; /* where text goes now */
    jinja_buf *top; /* the render's own text */
    ares_text_spans *spans;
    bool in_generation;
    jmp_buf fail;
    int code;
};

void jinja_fail(jinja_run *r, int code, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
#define JINJA_FAIL(r, ...) jinja_fail(r, ARES_EFORMAT, __VA_ARGS__)
#define JINJA_UNSUPPORTED(r, ...) jinja_fail(r, ARES_EUNSUPPORTED, __VA_ARGS__)
void *jinja_alloc(jinja_run *r, size_t bytes) __attribute__((returns_nonnull));
void jinja_work(jinja_run *r, size_t bytes); /* counts bytes read as steps */
/* One level deeper, or an error; leave the level with r->depth--. */
void jinja_enter(jinja_run *r);

/* Append to a buffer; its text always ends with a NUL. */
void jinja_add(jinja_run *r, jinja_buf *b, const char *data, size_t len);
void jinja_add_z(jinja_run *r, jinja_buf *b, const char *z);
void jinja_add_repeat(jinja_run *r, jinja_buf *b, const char *data, size_t len, int64_t times);
void jinja_add_cp(jinja_run *r, jinja_buf *b, uint32_t cp);
void jinja_add_str(jinja_run *r, jinja_buf *b, jinja_value v);  /* str(v) */
void jinja_add_repr(jinja_run *r, jinja_buf *b, jinja_value v); /* repr(v) */
typedef struct jinja_json_style {
    bool ascii, sort;
    bool pretty;         /* a line per element */
    ares_view indent;    /* per level, where pretty */
    ares_view item, key; /* separators: after an element, after a key */
} jinja_json_style;
/* As json.dumps. level: how deep the value lies in what is printed, for the indentation. */
void jinja_add_json(jinja_run *r, jinja_buf *b, jinja_value v, const jinja_json_style *y,
                    int level);

jinja_value jinja_none(void);
jinja_value jinja_bool(bool b);
jinja_value jinja_int(int64_t i);
jinja_value jinja_float(double f);
jinja_value jinja_undefined(const char *hint);
jinja_value jinja_str_view(jinja_run *r, const char *data, size_t len); /* borrows */
jinja_value jinja_str_buf(jinja_run *r, jinja_buf *b);
jinja_value jinja_list_new(jinja_run *r, int64_t n, jinja_kind kind);
jinja_value jinja_iter_new(jinja_run *r, bool (*next)(jinja_run *, jinja_iter *, jinja_value *),
                           jinja_value over, void *extra);
jinja_value jinja_iter_of_list(jinja_run *r, jinja_value list);
jinja_dict *jinja_dict_new(jinja_run *r);
void jinja_dict_put(jinja_run *r, jinja_dict *d, jinja_value key, jinja_value value);
/* NULL when absent */
jinja_value *jinja_dict_find(jinja_run *r, const jinja_dict *d, jinja_value key);
jinja_value *jinja_dict_find_name(jinja_run *r, const jinja_dict *d, ares_view name);

ares_view jinja_text(jinja_value v);              /* STR */
int64_t jinja_chars(jinja_run *r, jinja_value v); /* code points of a STR */
size_t jinja_char_offset(jinja_run *r, jinja_value v, int64_t index);
jinja_value jinja_to_str(jinja_run *r, jinja_value v); /* str(v), Markup stays */
const char *jinja_type_name(jinja_value v);
bool jinja_truth(jinja_run *r, jinja_value v);
bool jinja_is_number(jinja_value v);              /* bool, int, float */
bool jinja_as_index(jinja_value v, int64_t *out); /* bool and int */
/* An integer argument, or `absent` where it is MISSING. */
int64_t jinja_int_arg(jinja_run *r, jinja_value v, int64_t absent);
double jinja_as_double(jinja_run *r, jinja_value v);
bool jinja_equal(jinja_run *r, jinja_value a, jinja_value b);
/* Whether a op b holds; an error for types without a common order. */
bool jinja_compare(jinja_run *r, jinja_op op, jinja_value a, jinja_value b);
bool jinja_contains(jinja_run *r, jinja_value item, jinja_value container);
int64_t jinja_len(jinja_run *r, jinja_value v);
bool jinja_is_iterable(jinja_value v);
jinja_iter *jinja_iterate(jinja_run *r, jinja_value v);
jinja_value jinja_to_list(jinja_run *r, jinja_value v); /* a new LIST */
jinja_value jinja_slice(jinja_run *r, jinja_value v, jinja_value start, jinja_value stop,
                        jinja_value step);
/* By the keys, stable; keys and items are both permuted. */
void jinja_sort(jinja_run *r, jinja_value *keys, jinja_value *items, int64_t n, bool reverse);
jinja_value jinja_binary(jinja_run *r, jinja_op op, jinja_value a, jinja_value b);
jinja_value jinja_negate(jinja_run *r, jinja_value a);
jinja_value jinja_range_at(const jinja_range *g, int64_t i);

/* ---------------- calls and conversions (eval.c, filters.c, str.c, format.c) */
/* How many bytes of a name from the template a message shows. */
static inline int jinja_shown(ares_view v)
{
    return (int)ARES_MIN(v.len, 80);
}
jinja_value jinja_getitem(jinja_run *r, jinja_value obj, jinja_value key);
jinja_value jinja_apply(jinja_run *r, const jinja_builtin *f, jinja_value self, jinja_args *args);
/* Moves spans [first, n), which count from the start of a text, behind the text `before`. */
void jinja_shift_spans(ares_text_spans *spans, int64_t first, const ares_str *before);
/* Puts the arguments in the order of spec, or fails as Python's call of `name` would. */
void jinja_bind(jinja_run *r, const char *name, const char *spec, jinja_args *args);
int64_t jinja_loop_length(jinja_run *r, jinja_loop *l);
const jinja_builtin *jinja_find_filter(ares_view name, template_dialect dialect);
const jinja_builtin *jinja_find_test(ares_view name);
const jinja_builtin *jinja_find_global(ares_view name, template_dialect dialect);
/* *known: whether the type has such a method. UNDEFINED for methods that the sandbox forbids. */
jinja_value jinja_method_of(jinja_run *r, jinja_value obj, ares_view name, bool *known);
extern const jinja_builtin jinja_str_methods[]; /* ends with a NULL name */
/* Calls a method of str, for filters that are defined by one. */
jinja_value jinja_str_call(jinja_run *r, const char *method, jinja_value self, jinja_value *pos,
                           int64_t n);
jinja_builtin_fn jinja_strftime;
jinja_value jinja_escape(jinja_run *r, jinja_value v);
jinja_value jinja_power(jinja_run *r, jinja_value a, jinja_value b);

/* ---------------- characters (unicode.c), as Python 3's str sees them */
/* The code point at s, valid UTF-8; returns its number of bytes. */
int jinja_decode(const char *s, size_t len, uint32_t *cp);
int jinja_encode(uint32_t cp, char out[4]);
/* Code points that begin in these bytes. */
int64_t jinja_count_chars(const char *data, size_t len);
bool jinja_is_space(uint32_t cp);
ares_view jinja_strip(ares_view s);                  /* as str.strip(); the text is valid UTF-8 */
size_t jinja_strip_right(const char *s, size_t len); /* the length without white space at its end */
bool jinja_is_line_end(uint32_t cp);
bool jinja_is_decimal(uint32_t cp);
bool jinja_is_cased(uint32_t cp); /* a letter of lower, upper or title case */
bool jinja_is_printable(uint32_t cp);
bool jinja_is_case_ignorable(uint32_t cp);
/*
 * Maps one code point to a case, without the rule of the final sigma; returns how many code points
 * out has.
 */
typedef enum { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE } jinja_case;
int jinja_map_case(jinja_case to, uint32_t cp, uint32_t out[3]);
/* Source to a template, NULL on failure. name stands for it in errors. (parse.c) */
int template_parse(const char *name, ares_view source, template_dialect dialect,
                   ares_template **out);
#endif
