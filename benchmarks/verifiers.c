/*
 * Answers judged per second on one thread, a JSON line per suite and verifier.
 *
 *   bench_verifiers [--suite NAME] [--rows FILE.jsonl] [--repeat N]
 *       without --suite: all suites
 *   bench_verifiers --suite NAME --dump > FILE.jsonl
 *       writes the rows of the suite, for benchmarks/peers/verifiers.py
 *
 * A row is a line as `ares-train grade` reads it. To add a suite: a function that writes its rows,
 * and a line in `suites`. A suite whose rows come from a file (rows NULL) is skipped without
 * --rows.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/grade.h"

typedef struct suite {
    const char *name;
    void (*rows)(ares_str *out);
    const char *verifiers[4]; /* each judges all rows */
} suite;

static void add_row(ares_str *out, const char *response, const char *truth)
{
    ares_str_add_z(out, "{\"response\":");
    ares_json_write_string(out, ares_view_of(response));
    ares_str_add_z(out, ",\"ground_truth\":");
    ares_json_write_string(out, ares_view_of(truth));
    ares_str_add_z(out, "}\n");
}

/*
 * Grade-school arithmetic in prose; the answer boxed, in the spellings models use; one in four is
 * wrong.
 */
static void gsm8k_rows(ares_str *out)
{
    static const char *const spellings[] = { "\\boxed{%ld}", "\\boxed{%ld.00}", "\\boxed{\\$%ld}",
                                             "\\boxed{%ld \\text{ dollars}}",
                                             "\\boxed{%ld \\text{ hours}}" };
    for (long i = 0; i < 1000; i++) {
        long a = 3 + i * 7 % 89, b = 2 + i * 5 % 31, answer = a * b + i,
             said = i % 4 == 3 ? answer + 1 : answer;
        char box[80], response[600], truth[32];
        snprintf(box, sizeof box, spellings[i % ARES_COUNT(spellings)], said);
        snprintf(response, sizeof response,
                 "Each of the %ld boxes holds %ld pens, which makes %ld x %ld = %ld pens. There "
                 "are %ld more on the table, so in all\n"
                 "%ld + %ld = %ld pens.\n\nThe answer is %s.",
                 a, b, a, b, a * b, i, a * b, i, said, box);
        snprintf(truth, sizeof truth, "%ld", answer);
        add_row(out, response, truth);
    }
}

/*
 * Answers of competition problems: fractions, roots, polynomials, intervals, matrices, right and
 * wrong.
 */
static void math_rows(ares_str *out)
{
    static const struct {
        const char *given, *truth;
    } forms[] = {
        { "\\frac{%ld}{%ld}", "\\frac{%ld}{%ld}" },
        { "\\dfrac{%ld}{%ld}", "%ld/%ld" },
        { "%ld\\sqrt{%ld}", "%ld\\sqrt{%ld}" },
        { "\\sqrt{%ld}+%ld", "%2$ld+\\sqrt{%1$ld}" },
        { "%ldx+%ld", "%2$ld+%1$ldx" },
        { "(x+%ld)(x-%ld)", "x^2+%1$ldx-%2$ldx-%1$ld\\cdot%2$ld" },
        { "\\frac{x+%ld}{%ld}", "\\frac{%ld+x}{%ld}" },
        { "(%ld,%ld)", "\\left(%ld, %ld\\right)" },
        { "[%ld,\\infty)", "[%ld, \\infty)" },
        { "\\{%ld,%ld\\}", "\\{%2$ld,%1$ld\\}" },
        { "\\frac{%ld\\pi}{%ld}", "\\frac{%ld}{%ld}\\pi" },
        { "\\begin{pmatrix}%ld\\\\%ld\\end{pmatrix}",
          "\\begin{pmatrix} %ld \\\\ %ld \\end{pmatrix}" },
        { "%ld%%", "%ld\\%%" },
        { "%ld^\\circ", "%ld" },
        { "x=%ld", "%ld" },
        { "\\frac{1}{\\sqrt{%ld}+%ld}", "\\frac{\\sqrt{%1$ld}-%2$ld}{%1$ld-%2$ld^2}" },
        { "%ld.5", "\\frac{2\\cdot %ld+1}{2}" },
        { "2^{%ld}", "2^{%ld}" },
        { "\\frac{%ld}{%ld}", "\\frac{%2$ld}{%1$ld}" },
        { "x^2+%ldx", "x(x+%ld)" },
    };
    for (long i = 0; i < 1000; i++) {
        long a = 2 + i * 7 % 97, b = 3 + i * 11 % 53;
        char given[200], response[600], truth[200];
        int k = (int)(i % ARES_COUNT(forms));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(given, sizeof given, forms[k].given, i % 5 == 4 ? a + 1 : a, b);
        snprintf(truth, sizeof truth, forms[k].truth, a, b);
#pragma GCC diagnostic pop
        snprintf(response, sizeof response,
                 "First rewrite the condition and collect the terms with $x$ on one side. "
                 "Substituting back shows that nothing is\n"
                 "lost on the way, so the only value left is the one we found. Therefore, the "
                 "answer is $\\boxed{%s}$.",
                 given);
        add_row(out, response, truth);
    }
}

static const suite suites[] = {
    { "gsm8k", gsm8k_rows, { "math", "math_verify" } },
    { "math", math_rows, { "math", "math_verify" } },
    { "if", NULL, { "ifbench" } },
};

typedef struct row {
    ares_verify_in in;
} row;

static int read_rows(ares_arena *arena, ares_view text, row **rows, int64_t *n)
{
    int64_t lines = 0;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    *rows = ares_arena_calloc(arena, (size_t)lines + 1, sizeof **rows);
    *n = 0;
    for (size_t at = 0; at < text.len;) {
        int64_t end = ares_view_find(text, ARES_VIEW("\n"), at);
        size_t stop = end < 0 ? text.len : (size_t)end;
        const ares_json *o;
        ares_verify_in *in = &(*rows)[(*n)++].in;
        ARES_TRY(ares_json_parse(arena, (ares_view){ text.data + at, stop - at }, "rows", &o));
        ARES_TRY(ares_json_get_string(o, "response", "", &in->response));
        ARES_TRY(ares_json_get_string(o, "prompt", "", &in->prompt));
        if (ares_json_get(o, "ground_truth"))
            ARES_TRY(ares_json_get_string(o, "ground_truth", "", &in->ground_truth));
        in->row = o;
        in->stopped = true;
        at = stop + 1;
    }
    return ARES_OK;
}

static int run(const suite *s, const char *verifier, const row *rows, int64_t n, int repeat)
{
    const ares_verifier *v = ares_verifier_find(verifier);
    if (!v) return ARES_ECONFIG;
    ares_str all = { 0 };
    double best = 0;
    int64_t right = 0;
    for (int pass = 0; pass <= repeat; pass++) { /* the first does not count */
        int64_t done = 0;
        double begin = ares_now_s(), seconds = 0;
        right = 0;
        while (seconds < 0.2) { /* whole passes over the rows, until it is long enough to measure */
            for (int64_t i = 0; i < n; i++) {
                ares_verify_out out = { .accuracy = NAN };
                ARES_TRY(v->verify(&rows[i].in, &out));
                right += done < n && out.score > 0.5;
                ares_str_fini(&out.details);
                done++;
            }
            seconds = ares_now_s() - begin;
        }
        double rate = (double)done / seconds;
        if (pass == 0) continue;
        best = ARES_MAX(best, rate);
        ares_str_addf(&all, "%s%.6g", all.len ? ", " : "", rate);
    }
    printf("{\"measure\": \"verify\", \"side\": \"ares\", \"suite\": \"%s\", \"verifier\": \"%s\", "
           "\"value\": %.6g, \"unit\": \"answers/s\", \"all\": [%s], \"rows\": %lld, \"right\": "
           "%lld, \"threads\": 1}\n",
           s->name, verifier, best, all.data, (long long)n, (long long)right);
    fflush(stdout);
    ares_str_fini(&all);
    return ARES_OK;
}

static int run_suite(const suite *s, const char *path, bool dump, int repeat)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    row *rows = NULL;
    int64_t n = 0;
    int rc = ARES_OK;
    if (path) rc = ares_file_read(path, &text);
    else if (s->rows) s->rows(&text);
    if (rc == ARES_OK && dump) fwrite(text.data ? text.data : "", 1, text.len, stdout);
    if (rc == ARES_OK && !dump && text.len) rc = read_rows(&arena, ares_str_view(&text), &rows, &n);
    for (int k = 0; rc == ARES_OK && !dump && n && k < ARES_COUNT(s->verifiers) && s->verifiers[k];
         k++)
        rc = run(s, s->verifiers[k], rows, n, repeat);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return rc;
}

int main(int argc, char **argv)
{
    const char *name = NULL, *path = NULL;
    bool dump = false, known = false;
    int repeat = 5, rc = ARES_OK;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dump") == 0) dump = true;
        else if (strcmp(argv[i], "--suite") == 0 && i + 1 < argc) name = argv[++i];
        else if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc) path = argv[++i];
        else if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc) repeat = atoi(argv[++i]);
        else
            return fprintf(stderr, "usage: bench_verifiers [--suite gsm8k|math|if] [--rows "
                                   "FILE.jsonl] [--repeat N] [--dump]\n"),
                   2;
    }
    for (int k = 0; k < ARES_COUNT(suites) && rc == ARES_OK; k++) {
        if (name && strcmp(name, suites[k].name) != 0) continue;
        known = true;
        rc = run_suite(&suites[k], path, dump, repeat);
    }
    if (!known)
        return fprintf(stderr, "bench_verifiers: no suite '%s' (choices: gsm8k, math, if)\n", name),
               2;
    if (rc != ARES_OK) fprintf(stderr, "%s\n", ares_error_message());
    return rc == ARES_OK ? 0 : 1;
}
