/*
 * ares-golden FILE.json ... [--only FUNCTION] [--allow-unknown FILE]
 *
 * Runs the cases of each file through the adapter of (file's base name, function). Three layouts: a
 * list under `cases`; one case for each key that holds an object with `function`; or, where the
 * first key holds a list of objects, a list of cases for each function, whose members are inputs
 * and expected at once. A file with none of them (a table) has no cases. Tolerances: `tolerance` t,
 * or `tol` t: |x - y| <= t max(1, |y|); `rel_tol`, `abs_tol`; otherwise the header's
 * default_tolerance; otherwise 1e-6. A case without an adapter, or of a variant that the product
 * does not have, is unknown; --allow-unknown names a file whose lines, `function` or
 * `file/function`, may be unknown.
 */
#include "golden.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 8 }; /* numbers that differ, of one array */

static golden_adapter *adapters;
static long long passed, failed, unknown, refused;

void golden_register(golden_adapter *a)
{
    a->next = adapters;
    adapters = a;
}

/* ---------------------------------------------------------------- inputs */

static const ares_json null_value = { .type = ARES_JSON_NULL };

static const ares_json *member(golden *g, const char *where, const ares_json *object,
                               const char *key)
{
    const ares_json *v = ares_json_get(object, key);
    if (v) return v;
    golden_fail(g, "the case has no %s.%s", where, key);
    return &null_value;
}

const ares_json *golden_in(golden *g, const char *key)
{
    return member(g, "inputs", g->inputs, key);
}
const ares_json *golden_want(golden *g, const char *key)
{
    return member(g, "expected", g->expected, key);
}

double golden_value(const ares_json *v)
{
    switch (v->type) {
    case ARES_JSON_BOOL: return v->boolean;
    case ARES_JSON_INT:
    case ARES_JSON_FLOAT: return v->number;
    case ARES_JSON_STRING:
        if (ares_view_is(v->text, "inf")) return INFINITY;
        if (ares_view_is(v->text, "-inf")) return -INFINITY;
        return NAN;
    default: return NAN;
    }
}

double golden_number(golden *g, const char *key)
{
    return golden_value(golden_in(g, key));
}

double golden_number_or(golden *g, const char *key, double absent)
{
    const ares_json *v = ares_json_get(g->inputs, key);
    return v && v->type != ARES_JSON_NULL ? golden_value(v) : absent;
}

ares_view golden_string(golden *g, const char *key)
{
    const ares_json *v = golden_in(g, key);
    if (v->type == ARES_JSON_STRING) return v->text;
    golden_fail(g, "inputs.%s is no string", key);
    return ARES_VIEW("");
}

const char *golden_z(golden *g, const char *key)
{
    ares_view v = golden_string(g, key);
    return ares_arena_copy(g->arena, v.data, v.len);
}

static int64_t count_flat(const ares_json *v)
{
    if (v->type != ARES_JSON_ARRAY) return 1;
    int64_t n = 0;
    for (int64_t i = 0; i < v->count; i++) n += count_flat(&v->items[i]);
    return n;
}
static void flatten(const ares_json *v, double **at)
{
    if (v->type != ARES_JSON_ARRAY) *(*at)++ = golden_value(v);
    else
        for (int64_t i = 0; i < v->count; i++) flatten(&v->items[i], at);
}

double *golden_flat(golden *g, const ares_json *v, int64_t *n)
{
    *n = v->type == ARES_JSON_NULL ? 0 : count_flat(v);
    double *list = ares_arena_alloc(g->arena, (size_t)(*n + 1) * sizeof *list), *at = list;
    if (*n) flatten(v, &at);
    return list;
}

/* ---------------------------------------------------------------- results */

bool golden_fail(golden *g, const char *format, ...)
{
    g->failed = true;
    printf("FAIL %s/%s %s: ", g->file, g->function, g->name);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    return false;
}

void golden_unknown(golden *g)
{
    g->unknown = true;
}

void golden_in_single(golden *g)
{
    g->absolute = fmax(g->absolute, g->single_absolute);
    g->relative = fmax(g->relative, g->single);
}

static bool equal(const golden *g, double got, double want)
{
    if (isnan(want) || isinf(want)) return (isnan(got) && isnan(want)) || got == want;
    return fabs(got - want) <= fmax(g->absolute, g->relative * fabs(want));
}

bool golden_near(golden *g, const char *what, double got, const ares_json *want)
{
    g->checks++;
    if (want->type == ARES_JSON_NULL && isnan(got)) return true;
    if (want->type == ARES_JSON_NULL || want->type == ARES_JSON_ARRAY ||
        want->type == ARES_JSON_OBJECT)
        return golden_fail(g, "%s is %.12g, expected no number", what, got);
    double w = golden_value(want);
    return equal(g, got, w) ||
           golden_fail(g, "%s is %.12g, expected %.12g (off by %.3g)", what, got, w, fabs(got - w));
}

bool golden_numbers(golden *g, const char *what, const double *got, int64_t n,
                    const ares_json *want)
{
    int64_t wanted, wrong = 0;
    const double *w = golden_flat(g, want, &wanted);
    g->checks++;
    if (n != wanted)
        return golden_fail(g, "%s has %lld numbers, expected %lld", what, (long long)n,
                           (long long)wanted);
    for (int64_t i = 0; i < n; i++)
        if (!equal(g, got[i], w[i]) && wrong++ < SHOWN)
            golden_fail(g, "%s[%lld] is %.12g, expected %.12g (off by %.3g)", what, (long long)i,
                        got[i], w[i], fabs(got[i] - w[i]));
    return wrong == 0;
}

bool golden_equal(golden *g, const char *what, long long got, const ares_json *want)
{
    g->checks++;
    if (want->type != ARES_JSON_INT && want->type != ARES_JSON_BOOL &&
        !(want->type == ARES_JSON_FLOAT && want->number == floor(want->number)))
        return golden_fail(g, "%s is %lld, expected no whole number", what, got);
    double w = golden_value(want);
    return (double)got == w || golden_fail(g, "%s is %lld, expected %.0f", what, got, w);
}

bool golden_text(golden *g, const char *what, ares_view got, const ares_json *want)
{
    g->checks++;
    bool none = want->type == ARES_JSON_NULL;
    if (!none && want->type != ARES_JSON_STRING)
        return golden_fail(g, "%s: expected no text", what);
    if (none ? !got.data : got.data && ares_view_eq(got, want->text)) return true;
    return golden_fail(g, "%s is %s\"%.*s\", expected %s\"%.*s\"", what, got.data ? "" : "null ",
                       (int)got.len, got.data ? got.data : "", none ? "null " : "",
                       none ? 0 : (int)want->text.len, none ? "" : want->text.data);
}

bool golden_ok(golden *g, int rc)
{
    return rc == ARES_OK || golden_fail(g, "the product failed: %s", ares_error_message());
}

/* ---------------------------------------------------------------- running */

static const golden_adapter *find(const char *file, const char *function)
{
    for (const golden_adapter *a = adapters; a; a = a->next)
        if (strcmp(a->file, file) == 0 && strcmp(a->function, function) == 0) return a;
    return NULL;
}

static double optional(const ares_json *o, const char *key, double absent)
{
    const ares_json *v = o ? ares_json_get(o, key) : NULL;
    return v && v->type != ARES_JSON_NULL ? golden_value(v) : absent;
}

static void set_tolerance(golden *g, const ares_json *header)
{
    const ares_json *defaults = header ? ares_json_get(header, "default_tolerance") : NULL;
    double own = optional(g->root, "tolerance", optional(g->root, "tol", NAN)),
           t = isnan(own) ? optional(defaults, "float64_implementation", 1e-6) : own;
    g->absolute = optional(g->root, "abs_tol", t);
    g->relative = optional(g->root, "rel_tol", t);
    g->single = optional(defaults, "float32_implementation_relative", isnan(own) ? 1e-4 : 1e-5);
    g->single_absolute = optional(defaults, "float32_absolute_floor", isnan(own) ? 1e-6 : 1e-5);
}

static bool allowed(const ares_map *allow, const golden *g)
{
    if (!allow) return false;
    char place[256];
    snprintf(place, sizeof place, "%s/%s", g->file, g->function);
    return ares_map_get(allow, ares_view_of(place), NULL) ||
           ares_map_get(allow, ares_view_of(g->function), NULL);
}

/* of: the function of a case that does not name it; NULL: it does. */
static void run_case(const char *folder, const char *file, const char *name, const ares_json *root,
                     const char *of, const ares_json *header, const char *only,
                     const ares_map *allow, ares_map *told)
{
    ares_view function = of ? ares_view_of(of) : ares_json_get(root, "function")->text;
    ares_arena arena = { 0 };
    golden g = { .file = file,
                 .folder = folder,
                 .name = name,
                 .root = root,
                 .arena = &arena,
                 .function = ares_arena_copy(&arena, function.data, function.len),
                 .inputs = of ? root : ares_json_get(root, "inputs"),
                 .expected = of ? root : ares_json_get(root, "expected") };
    if (only && strcmp(only, g.function) != 0) goto done;
    set_tolerance(&g, header);
    const golden_adapter *a = find(file, g.function);
    ares_error_clear();
    if (!a) g.unknown = true;
    else if (!g.inputs || !g.expected) golden_fail(&g, "a case needs inputs and expected");
    else a->run(&g);
    if (!g.failed && !g.unknown && g.checks == 0) golden_fail(&g, "the adapter checked nothing");
    if (g.failed) failed++;
    else if (g.unknown) {
        unknown++;
        bool listed = allowed(allow, &g);
        refused += !listed;
        char *place = ares_arena_printf(&arena, "%s/%s", file, g.function);
        if (!listed && !ares_map_get(told, ares_view_of(place), NULL))
            printf("UNKNOWN %s%s%s\n", place, a ? ": a variant of " : "", a ? name : "");
        if (!listed) ares_map_put(told, ares_view_of(place), 1);
    } else passed++;
done:
    ares_arena_fini(&arena);
}

static bool is_case(const ares_json *v)
{
    const ares_json *f = ares_json_get(v, "function");
    return f && f->type == ARES_JSON_STRING;
}

static bool is_list_of_cases(const ares_json *v)
{
    return v->type == ARES_JSON_ARRAY && v->count && v->items[0].type == ARES_JSON_OBJECT;
}

static int run_file(const char *path, const char *only, const ares_map *allow, ares_map *told)
{
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *document;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path, &document);
    if (rc == ARES_OK) {
        const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
                   *end = strstr(base, ".json");
        char *folder =
            base > path ? ares_arena_copy(&arena, path, (size_t)(base - path)) : (char[]){ "./" };
        char *file = ares_arena_copy(&arena, base, end ? (size_t)(end - base) : strlen(base));
        const ares_json *list = ares_json_get(document, "cases"),
                        *header = ares_json_get(document, "_header");
        for (int64_t i = 0; list && i < list->count; i++) {
            bool keyed = list->type == ARES_JSON_OBJECT;
            const ares_json *v = keyed ? list->members[i].value : &list->items[i];
            const ares_json *name = ares_json_get(v, "name");
            ares_view key = keyed                                    ? list->members[i].key
                            : name && name->type == ARES_JSON_STRING ? name->text
                                                                     : (ares_view){ NULL, 0 };
            if (is_case(v))
                run_case(folder, file,
                         key.data ? key.data : ares_arena_printf(&arena, "case %lld", (long long)i),
                         v, NULL, header, only, allow, told);
        }
        bool lists = !list && document->type == ARES_JSON_OBJECT && document->count &&
                     is_list_of_cases(document->members[0].value);
        for (int64_t i = 0; lists && i < document->count; i++) {
            const ares_json_member *m = &document->members[i];
            for (int64_t k = 0; is_list_of_cases(m->value) && k < m->value->count; k++) {
                const ares_json *name = ares_json_get(&m->value->items[k], "name");
                run_case(folder, file,
                         name && name->type == ARES_JSON_STRING
                             ? name->text.data
                             : ares_arena_printf(&arena, "case %lld", (long long)k),
                         &m->value->items[k], ares_arena_copy(&arena, m->key.data, m->key.len),
                         header, only, allow, told);
            }
        }
        for (int64_t i = 0; !list && document->type == ARES_JSON_OBJECT && i < document->count;
             i++) {
            ares_view key = document->members[i].key;
            if (is_case(document->members[i].value))
                run_case(folder, file, ares_arena_copy(&arena, key.data, key.len),
                         document->members[i].value, NULL, header, only, allow, told);
        }
    }
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

/* Lines of `function` or `file/function`; # begins a comment. */
static int read_allowed(const char *path, ares_map *allow)
{
    ares_str text = { 0 };
    int rc = ares_file_read(path, &text);
    for (size_t at = 0; rc == ARES_OK && at < text.len;) {
        size_t line = strcspn(text.data + at, "\n");
        ares_view word =
            ares_view_trim((ares_view){ text.data + at, strcspn(text.data + at, "#\n") });
        if (word.len) ares_map_put(allow, word, 1);
        at += line + 1;
    }
    ares_str_fini(&text);
    return rc;
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: ares-golden FILE.json ... [--only FUNCTION] [--allow-unknown FILE]\n";
    const char *only = NULL;
    ares_map *allow = ares_map_new(), *told = ares_map_new();
    int rc = ARES_OK, files = 0;
    for (int i = 1; i < argc && rc == ARES_OK; i++) {
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
        else if (strcmp(argv[i], "--allow-unknown") == 0 && i + 1 < argc)
            rc = read_allowed(argv[++i], allow);
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("%s", usage);
            return 0;
        } else if (argv[i][0] == '-')
            rc = ares_fail(ARES_EUSE, "golden: '%s': no such option, or it lacks its value",
                           argv[i]);
        else argv[1 + files++] = argv[i]; /* never overwrites an argument still to be read */
    }
    if (rc == ARES_OK && files == 0) rc = ares_fail(ARES_EUSE, "golden: no file named");
    for (int i = 0; i < files && rc == ARES_OK; i++) rc = run_file(argv[1 + i], only, allow, told);
    ares_map_free(allow);
    ares_map_free(told);
    if (rc != ARES_OK) {
        fprintf(stderr, "%s\n%s", ares_error_message(), rc == ARES_EUSE ? usage : "");
        return ares_error_exit_code(rc);
    }
    printf("%lld passed, %lld failed, %lld unknown\n", passed, failed, unknown);
    return failed || refused ? 1 : 0;
}
