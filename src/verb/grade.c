/* ares-train grade: a verifier on lines of {response, ground_truth, ...}. */
#include <math.h>
#include <string.h>

#include "ares/reward.h"
#include "verb.h"

static const char help[] =
    "usage: ares-train grade --verifier NAME [--input FILE] [option=value ...]\n"
    "\n"
    "Reads {\"response\":\"..\",\"ground_truth\":..} a line (\"finished\":false for an answer cut by length), writes {\"score\":x, ..}.\n"
    "option=value sets the verifier's own options (pattern=.. of format).\n"
    "\n"
    "example:\n"
    "  echo '{\"response\":\"7 + 5 = 12\",\"ground_truth\":\"12\"}' | ares-train grade --verifier number\n";

typedef struct job { const ares_verifier *verifier; ares_config *config; void *options; } job; /* config owns the texts of options */

/* Strings as they are, anything else as JSON: as data rows are read. */
static ares_view text_of(const ares_json *line, const char *key, ares_str *storage)
{
    const ares_json *v = ares_json_get(line, key);
    ares_str_clear(storage);
    if (!v || v->type == ARES_JSON_NULL) return (ares_view){ "", 0 };
    if (v->type == ARES_JSON_STRING) return v->text;
    ares_json_write(storage, v);
    return ares_str_view(storage);
}

static int grade_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    ares_str response = { 0 }, truth = { 0 }, prompt = { 0 };
    bool finished = true;
    if (!ares_json_get(line, "response")) return ares_fail(ARES_EFORMAT, "grade: the line has no 'response'");
    ARES_TRY(ares_json_get_bool(line, "finished", true, &finished));
    ares_verify_in in = { .response = text_of(line, "response", &response), .ground_truth = text_of(line, "ground_truth", &truth), .prompt = text_of(line, "prompt", &prompt),
                          .stopped = finished, .row = line, .options = j->options };
    ares_verify_out result = { .accuracy = NAN };
    int rc = j->verifier->verify(&in, &result);
    if (rc == ARES_OK) {
        ares_str_add_z(out, "{\"score\":");
        ares_json_write_double(out, result.score);
        if (result.details.len) ares_str_add_char(out, ',');
        ares_str_add_view(out, ares_str_view(&result.details));
        ares_str_add_char(out, '}');
    }
    ares_str_fini(&result.details);
    ares_str_fini(&response);
    ares_str_fini(&truth);
    ares_str_fini(&prompt);
    return rc;
}

static int read_own_options(job *j, const char *const *extra)
{
    ares_config *cfg = j->config = ares_config_new();
    j->options = ares_calloc(1, j->verifier->options_size + 1);
    if (j->verifier->options) ares_config_add_options(cfg, "", j->verifier->options, j->options);
    for (; *extra; extra++) ares_config_override(cfg, *extra);
    ares_config_resolve(cfg);
    ARES_TRY(ares_config_finish(cfg));
    return j->verifier->check ? j->verifier->check(j->options) : ARES_OK;
}

int ares_verb_grade(int argc, char **argv)
{
    const char *name = NULL, *input = "-", **extra = ares_calloc((size_t)argc + 1, sizeof *extra);
    bool helped;
    job j = { 0 };
    const verb_option options[] = { { "--verifier", VERB_TEXT, &name }, { "--input", VERB_TEXT, &input } };
    int rc = verb_read_options("grade", help, argc, argv, options, ARES_COUNT(options), extra, &helped);
    if (rc == ARES_OK && !helped) {
        if (!name) rc = ares_fail(ARES_EUSE, "grade: --verifier is missing (see ares-train grade --help)");
        else j.verifier = ares_verifier_find(name);
        if (rc == ARES_OK && !j.verifier) rc = ARES_EUSE;
        if (rc == ARES_OK) rc = read_own_options(&j, extra);
        if (rc == ARES_OK) rc = verb_each_line("grade", input, grade_line, &j);
    }
    ares_free(extra);
    ares_free(j.options);
    ares_config_free(j.config);
    return rc;
}
