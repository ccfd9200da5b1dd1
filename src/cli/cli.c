/*
 * What the commands share: reading a command line with its --help, and the loop over lines of
 * JSON.
 */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ares/core.h"
#include "ares/io.h"

/*
 * Command lines of the verbs: one parser and one --help for all tables.
 */

enum { HELP_COLUMNS = 100, MAX_OPTIONS = 64 }; /* width of --help; options of a command at most */

const char *const cli_dtypes[] = { "fp32", "bf16", NULL };
const char *const cli_speculations[] = { "none", "auto", NULL };
const char *const cli_devices[2] = { "cpu", "cuda" };

int cli_types_of(const char *verb, const cli_types *t, const char *device, ares_model_options *out)
{
    bool card = strncmp(device, "cuda", 4) == 0,
         multiplies = t->arithmetic && strcmp(t->arithmetic, "bf16") == 0,
         stores = t->dtype        ? strcmp(t->dtype, "bf16") == 0
                  : t->arithmetic ? multiplies
                                  : card; /* as a run on one (docs/cards.md) */
    if (multiplies && !stores)
        return ares_fail(ARES_EUSE,
                         "%s: --dtype = 'fp32': --arithmetic bf16 multiplies weights in bf16; give "
                         "--dtype bf16, or leave it out",
                         verb);
    if (card && stores && t->arithmetic && !multiplies)
        return ares_fail(ARES_EUSE,
                         "%s: --arithmetic = 'fp32': a card's products have the type of the "
                         "weights, and --dtype is bf16; leave one of both out",
                         verb);
    *out = (ares_model_options){ .storage = stores ? ARES_BF16 : ARES_F32,
                                 .arithmetic = multiplies ? ARES_BF16 : ARES_F32 };
    return ARES_OK;
}

const char *const *cli_verbs(int *n)
{
#define NAME(name, on_ranks, doc) #name,
    static char words[][32] = { CLI_LIST(NAME) };
#undef NAME
    static const char *list[ARES_COUNT(words)];
    *n = ARES_COUNT(words);
    for (int i = 0; i < *n; i++) {
        for (char *c = words[i]; *c; c++)
            if (*c == '_') *c = '-';
        list[i] = words[i];
    }
    return list;
}

/* ---------------- values */
/* Checks a value by the option's type, range and choices, and stores it in *o->into. */
static int read_value(const char *verb, const cli_option *o, const char *value)
{
    int64_t x;
    if (o->type == CLI_I64) {
        if (!ares_parse_i64(ares_view_of(value), &x))
            return ares_fail(ARES_EUSE, "%s: %s = '%s': not a whole number", verb, o->name, value);
        bool bounded = o->least || o->most; /* an option without bounds has 0 and 0 */
        if (!bounded || (x >= o->least && x <= o->most)) {
            *(int64_t *)o->into = x;
            return ARES_OK;
        }
        if (o->most == INT64_MAX)
            return ares_fail(ARES_EUSE, "%s: %s = %lld: out of range; set %lld or more", verb,
                             o->name, (long long)x, (long long)o->least);
        return ares_fail(ARES_EUSE, "%s: %s = %lld: out of range; set %lld to %lld", verb, o->name,
                         (long long)x, (long long)o->least, (long long)o->most);
    }
    if (o->type == CLI_F64)
        return ares_parse_double(ares_view_of(value), o->into)
                   ? ARES_OK
                   : ares_fail(ARES_EUSE, "%s: %s = '%s': not a number", verb, o->name, value);
    if (o->type == CLI_EACH) {
        cli_list *list = o->into;
        if (list->n == CLI_MAX_EACH)
            return ares_fail(ARES_EUSE, "%s: %s stands more than %d times", verb, o->name,
                             CLI_MAX_EACH);
        list->values[list->n++] = value;
        return ARES_OK;
    }
    /* choices end with NULL */
    int n = 0;
    while (o->type == CLI_TEXT && o->choices && o->choices[n]) n++;
    if (n) {
        char subject[96];
        snprintf(subject, sizeof subject, "%s: %s", verb, o->name);
        ARES_TRY(ares_lookup(ARES_EUSE, subject, value, o->choices, n, &(int){ 0 }));
    }
    *(const char **)o->into = value;
    return ARES_OK;
}

/* ---------------- words */
/* Whether the word is this option, alone or as `--name=value`. */
static bool names(const char *word, const cli_option *o)
{
    size_t length = strlen(o->name);
    return strncmp(word, o->name, length) == 0 && (!word[length] || word[length] == '=');
}

/* Reads the option that the word argv[i] names; *taken: 2 where its value is the next word. */
static int read_option(const char *verb, const cli_option *o, int argc, char **argv, int i,
                       int *taken)
{
    const char *equals = strchr(argv[i], '='), *next = i + 1 < argc ? argv[i + 1] : NULL;
    *taken = 1;
    if (o->type == CLI_FLAG) {
        if (equals) return ares_fail(ARES_EUSE, "%s: %s takes no value", verb, o->name);
        *(bool *)o->into = true;
        return ARES_OK;
    }
    if (equals) return read_value(verb, o, equals + 1);
    if (o->type == CLI_OPTIONAL && (!next || *next == '-' || strchr(next, '=')))
        return read_value(verb, o, "");
    if (!next)
        return ares_fail(ARES_EUSE, "%s: %s needs a value (see ares-train %s --help)", verb,
                         o->name, verb);
    *taken = 2;
    return read_value(verb, o, next);
}

/* The option whose name resembles the word; NULL: none does. */
static const char *nearest_option(const cli_command *c, const char *word)
{
    const char *list[MAX_OPTIONS];
    char name[128];
    int n = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    ARES_ASSERT(c->n_options <= MAX_OPTIONS);
    for (int i = 0; i < c->n_options; i++)
        if (c->options[i].name[0] == '-') list[n++] = c->options[i].name;
    return ares_nearest(name, list, n);
}

/* "train: '--chek': no such option; did you mean '--check'? (..)" */
static int unknown_option(const cli_command *c, const char *word)
{
    const char *near = nearest_option(c, word);
    return ares_fail(ARES_EUSE, "%s: '%s': no such option%s%s%s (see ares-train %s --help)",
                     c->name, word, near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "", c->name);
}

/* For verbs that pass words on: fails only where the word resembles one of their options. */
int cli_check_typo(const cli_command *c, const char *word)
{
    for (int i = 0; i < c->n_options; i++)
        if (names(word, &c->options[i])) return ARES_OK;
    return nearest_option(c, word) ? unknown_option(c, word) : ARES_OK;
}

/* ---------------- --help */
/*
 * Appends text, breaking lines at HELP_COLUMNS; the cursor is at column `at`, and further lines
 * begin at column `indent`.
 */
static void add_wrapped(ares_str *out, const char *text, int at, int indent)
{
    /* the blank before the next word, none at the beginning of a line */
    const char *gap = "";
    while (*text) {
        int length = (int)strcspn(text, " \n"), wanted = at + (int)strlen(gap) + length;
        if (*text == '\n' || (*gap && wanted > HELP_COLUMNS)) {
            ares_str_addf(out, "\n%*s", indent, "");
            at = indent;
            gap = "";
        }
        if (length) {
            ares_str_add_z(out, gap);
            ares_str_add(out, text, (size_t)length);
            at += (int)strlen(gap) + length;
            gap = " ";
        }
        text += length ? length : 1;
    }
}

/* Columns of "--name VALUE". */
static int title_columns(const cli_option *o)
{
    return (int)(strlen(o->name) + (o->value ? 1 + strlen(o->value) : 0));
}

/* Usage, description, a line or more per option, example. */
static void add_help(ares_str *out, const cli_command *c)
{
    /* the forms of the command line: the first after "usage:", the others below it */
    const char *before = "usage:";
    for (const char *form = c->usage, *end; form; form = *end ? end + 1 : NULL) {
        end = strchr(form, '\n');
        if (!end) end = form + strlen(form);
        ares_str_addf(out, "%s ares-train %s %.*s\n", before, c->name, (int)(end - form), form);
        before = "      ";
    }
    ares_str_add_char(out, '\n');
    add_wrapped(out, c->about, 0, 0);
    ares_str_add_z(out, "\n\n");
    /* of the longest title; texts begin two columns after it */
    int width = 0;
    for (int i = 0; i < c->n_options; i++) width = ARES_MAX(width, title_columns(&c->options[i]));
    for (int i = 0; i < c->n_options; i++) {
        const cli_option *o = &c->options[i];
        ares_str doc = { 0 };
        ares_str_add_z(&doc, o->doc);
        /* the variable still holds the default; 0, "" and stdin say nothing */
        const char *text = o->type == CLI_TEXT ? *(const char **)o->into : NULL;
        if (text && *text && strcmp(text, "-") != 0) ares_str_addf(&doc, " (default %s)", text);
        if (o->type == CLI_I64 && *(int64_t *)o->into)
            ares_str_addf(&doc, " (default %lld)", (long long)*(int64_t *)o->into);
        if (o->type == CLI_F64 && *(double *)o->into != 0)
            ares_str_addf(&doc, " (default %g)", *(double *)o->into);
        ares_str_addf(out, "  %s%s%s%*s", o->name, o->value ? " " : "", o->value ? o->value : "",
                      width - title_columns(o) + 2, "");
        add_wrapped(out, doc.data, width + 4, width + 4);
        ares_str_add_char(out, '\n');
        ares_str_fini(&doc);
    }
    if (c->more) ares_str_addf(out, "\n%s", c->more);
    ares_str_add_z(out, "\nexample:\n");
    ares_str_add_z(out, "  ");
    for (const char *at = c->example; *at; at++) {
        ares_str_add_char(out, *at);
        if (*at == '\n') ares_str_add_z(out, "  ");
    }
    ares_str_add_char(out, '\n');
}

/* Control characters become \x1b or \u009b: what a model wrote must not steer the terminal. */
void cli_add_safe(ares_str *out, ares_view text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i],
                      next = i + 1 < text.len ? (unsigned char)text.data[i + 1] : 0;
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) ares_str_addf(out, "\\x%02x", c);
        else if (c == 0xc2 && next >= 0x80 && next < 0xa0) { /* U+0080 to U+009f in UTF-8 */
            ares_str_addf(out, "\\u%04x", next);
            i++;
        } else ares_str_add_char(out, (char)c);
    }
}

void cli_add_line(ares_str *out, ares_view text)
{
    for (size_t i = 0, end; i < text.len; i = end + 1) {
        for (end = i; end < text.len && text.data[end] != '\n' && text.data[end] != '\t';) end++;
        cli_add_safe(out, (ares_view){ text.data + i, end - i });
        if (end < text.len) ares_str_add_char(out, ' ');
    }
}

/* Fails where not all of it arrives: a pipe may be closed, a disk full. */
int cli_print(const char *verb, const ares_str *text)
{
    return fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0
               ? ARES_OK
               : ares_fail(ARES_EIO, "%s: stdout cannot be written", verb);
}

/* ---------------- reading */
/* Takes one option out of the words; the others stay for the verb. */
int cli_take(const char *verb, const cli_option *option, int *argc, char **argv)
{
    /* words that stay move to the front */
    int left = 0, taken;
    for (int i = 0; i < *argc; i += taken) {
        taken = 1;
        if (!names(argv[i], option)) argv[left++] = argv[i];
        else ARES_TRY(read_option(verb, option, *argc, argv, i, &taken));
    }
    argv[ *argc = left] = NULL;
    return ARES_OK;
}

/* Who asks for the tables of all verbs; NULL: the verb was called by its user. */
static cli_see *seen_by;
static void *seen_with;

int cli_each_command(cli_see *see, void *ctx)
{
    static int (*const verbs[])(int, char **) = {
#define VERB(name, on_ranks, doc) ares_cli_##name,
        CLI_LIST(VERB)
#undef VERB
    };
    static const char *const names[] = {
#define NAME(name, on_ranks, doc) #name,
        CLI_LIST(NAME)
#undef NAME
    };
    int rc = ARES_OK;
    seen_by = see;
    seen_with = ctx;
    for (int i = 0; i < ARES_COUNT(verbs) && rc == ARES_OK; i++)
        rc = verbs[i](1, (char *[]){ (char *)names[i], NULL });
    seen_by = NULL;
    return rc;
}

/* Takes the command's options out of argv; other words stay where the command allows them. */
int cli_read(const cli_command *c, int *argc, char **argv, bool *helped)
{
    int left = 1, taken;
    *helped = seen_by != NULL;
    if (seen_by) {
        seen_by(seen_with, c);
        return ARES_OK;
    }
    for (int i = 1; i < *argc && !*helped; i += taken) {
        const cli_option *o = NULL;
        for (int k = 0; k < c->n_options && !o; k++)
            if (c->options[k].type != CLI_PASSED && names(argv[i], &c->options[k]))
                o = &c->options[k];
        /* a word that is no option: an override, a free word, or a mistake */
        bool dashed = strncmp(argv[i], "--", 2) == 0;
        taken = 1;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) *helped = true;
        else if (o && o->once && *(const char **)o->into)
            return ares_fail(ARES_EUSE, "%s: %s is given twice; leave one of them out", c->name,
                             o->name);
        else if (o) ARES_TRY(read_option(c->name, o, *argc, argv, i, &taken));
        else if (c->words == CLI_OVERRIDES || (c->words == CLI_WORDS && !dashed))
            argv[left++] = argv[i];
        else return unknown_option(c, argv[i]);
    }
    /* --help wins over what is missing */
    if (!*helped) {
        argv[ *argc = left] = NULL;
        for (int i = 0; i < c->n_options; i++) {
            const cli_option *o = &c->options[i];
            const char *value = o->required ? *(const char **)o->into : NULL;
            if (o->required && !(value && *value))
                return ares_fail(ARES_EUSE, "%s: %s is missing (see ares-train %s --help)", c->name,
                                 o->name, c->name);
        }
        return ARES_OK;
    }
    ares_str text = { 0 };
    add_help(&text, c);
    int rc = cli_print(c->name, &text);
    ares_str_fini(&text);
    return rc;
}

/*
 * The loop of the verbs that answer a line of JSON with a line of JSON.
 */

int cli_bad_lines(const char *verb, const char *input, int64_t bad, int64_t lines, int64_t first)
{
    return ares_fail(ARES_EFORMAT,
                     "%s: %s: %lld of %lld lines are bad, the first is line %lld (each has its "
                     "error in its place)",
                     verb, input, (long long)bad, (long long)lines, (long long)first);
}

/* What the loop reads: lines of a file as they stand, or rows of a packed one. */
typedef struct line_source {
    ares_jsonl *rows; /* NULL: file */
    FILE *file;
    char *line; /* getline's, [cap] */
    size_t cap;
    int64_t number; /* of the line, or row, that was read last */
    ares_arena arena;
    bool failed; /* of a file: errno says why. Of rows: the error is set, and there is no next */
} line_source;

/* 1: there is a line, and *rc says whether it is JSON; 0: the end, or it has failed. */
static int next_line(line_source *s, const ares_json **json, int *rc)
{
    char name[64];
    if (s->rows) {
        int64_t before = s->number;
        *rc = ares_jsonl_next(s->rows, json, &s->number);
        s->failed = *rc < 0 && (*rc != ARES_EFORMAT || s->number == before);
        return *rc != 0 && !s->failed;
    }
    ssize_t n = getline(&s->line, &s->cap, s->file); /* -1 for the end and for a failure */
    s->failed = n < 0 && ferror(s->file);
    if (n < 0) return 0;
    if (n > 0 && s->line[n - 1] == '\n') n--;
    ares_arena_reset(&s->arena);
    (void)snprintf(name, sizeof name, "line %lld", (long long)++s->number);
    *rc = ares_json_parse(&s->arena, (ares_view){ s->line, (size_t)n }, name, json);
    return 1;
}

/* A bad line gets {"error": ".."} in its place, so that line n of the output answers line n. */
int cli_each_line(const char *verb, const char *input, cli_line_fn *each, void *ctx)
{
    const char *why = NULL;
    bool is_stdin = strcmp(input, "-") == 0, written = true;
    line_source s = { .file = stdin };
    ares_str out = { 0 };
    int64_t bad = 0, first_bad = 0;
    const ares_json *json;
    if (!is_stdin && ares_jsonl_packed(input)) ARES_TRY(ares_jsonl_open_input(input, &s.rows));
    else if (!is_stdin) {
        int fd = ares_input_open(input, &why);
        if (why) return ares_fail(ARES_EIO, "%s: %s: %s", verb, input, why);
        s.file = fdopen(fd, "rb");
    }
    for (int rc; written && next_line(&s, &json, &rc);) {
        ares_str_clear(&out);
        if (rc >= 0) rc = each(ctx, json, &out);
        if (rc < 0) {
            if (!bad++) first_bad = s.number;
            ares_str_clear(&out);
            cli_write_error(&out, ares_error_message());
        }
        ares_str_add_char(&out, '\n');
        written = fwrite(out.data, 1, out.len, stdout) == out.len;
    }
    int error = errno; /* of a file that cannot be read to its end */
    written = fflush(stdout) == 0 && written;
    int rc = ARES_OK;
    if (!written) rc = ares_fail(ARES_EIO, "%s: stdout: %s", verb, strerror(errno));
    else if (s.failed && s.rows) rc = ares_fail_in(ARES_EIO, "%s", verb);
    else if (s.failed) rc = ares_fail(ARES_EIO, "%s: %s: %s", verb, input, strerror(error));
    else if (bad) rc = cli_bad_lines(verb, input, bad, s.number, first_bad);
    ares_jsonl_close(s.rows);
    free(s.line);
    ares_arena_fini(&s.arena);
    ares_str_fini(&out);
    if (s.file != stdin) fclose(s.file);
    return rc;
}

int cli_read_ids(const char *verb, const ares_json *line, const char *key, ares_ids *out)
{
    const ares_json *list = ares_json_get(line, key);
    if (!list || list->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "%s: no list '%s'", verb, key);
    ares_ids_clear(out);
    for (int64_t i = 0; i < list->count; i++) {
        const ares_json *id = &list->items[i];
        if (id->type != ARES_JSON_INT || id->integer < 0 || id->integer > INT32_MAX)
            return ares_fail(ARES_EFORMAT, "%s: %s[%lld]: not a token id", verb, key, (long long)i);
        ares_ids_add(out, (int32_t)id->integer, 0, 0);
    }
    return ARES_OK;
}

const char *cli_text_of(const ares_json *o, const char *key)
{
    const ares_json *v = ares_json_get(o, key);
    return v && v->type == ARES_JSON_STRING ? v->text.data : NULL;
}

void cli_write_error(ares_str *out, const char *message)
{
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "error"), ares_view_of(message));
    ares_json_end(out, '}');
}

/* NaN and the infinities become null. */
void cli_write_floats(ares_str *out, const float *x, int64_t n)
{
    ares_json_begin(out, '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_float(out, x[i]);
    ares_json_end(out, ']');
}

void cli_write_ids(ares_str *out, const int32_t *ids, int64_t n)
{
    ares_json_begin(out, '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_i64(out, ids[i]);
    ares_json_end(out, ']');
}
