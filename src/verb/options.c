/* Command lines of the small verbs. */
#include <stdio.h>
#include <string.h>

#include "verb.h"

static int set(const char *verb, const verb_option *o, const char *value)
{
    if (o->type == VERB_TEXT) *(const char **)o->into = value;
    else if (o->type == VERB_I64) {
        if (!ares_parse_i64(ares_view_of(value), o->into))
            return ares_fail(ARES_EUSE, "%s: %s = '%s': not a whole number", verb, o->name, value);
    } else if (!ares_parse_double(ares_view_of(value), o->into))
        return ares_fail(ARES_EUSE, "%s: %s = '%s': not a number", verb, o->name, value);
    return ARES_OK;
}

static int unknown(const char *verb, const char *word, const verb_option *options, int n)
{
    const char *names[64];
    for (int i = 0; i < n && i < 64; i++) names[i] = options[i].name;
    const char *near = ares_nearest(word, names, ARES_MIN(n, 64));
    if (near)
        return ares_fail(ARES_EUSE,
                         "%s: '%s': no such option; did you mean '%s'? (see ares-train %s --help)",
                         verb, word, near, verb);
    return ares_fail(ARES_EUSE, "%s: '%s': no such option (see ares-train %s --help)", verb, word,
                     verb);
}

int verb_read_options(const char *verb, const char *help, int argc, char **argv,
                      const verb_option *options, int n, const char **extra, bool *helped)
{
    int n_extra = 0;
    *helped = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *equals = strchr(word, '=');
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            *helped = true;
            return fputs(help, stdout) < 0
                       ? ares_fail(ARES_EIO, "%s: stdout cannot be written", verb)
                       : ARES_OK;
        }
        size_t length = equals ? (size_t)(equals - word) : strlen(word);
        const verb_option *o = NULL;
        for (int k = 0; k < n; k++)
            if (strlen(options[k].name) == length && strncmp(options[k].name, word, length) == 0)
                o = &options[k];
        if (!o && extra && strncmp(word, "--", 2) != 0) {
            extra[n_extra++] = word;
            continue;
        }
        if (!o) return unknown(verb, word, options, n);
        if (o->type == VERB_FLAG) {
            if (equals) return ares_fail(ARES_EUSE, "%s: %s takes no value", verb, o->name);
            *(bool *)o->into = true;
        } else if (equals) ARES_TRY(set(verb, o, equals + 1));
        else if (i + 1 < argc) ARES_TRY(set(verb, o, argv[++i]));
        else
            return ares_fail(ARES_EUSE, "%s: %s needs a value (see ares-train %s --help)", verb,
                             o->name, verb);
    }
    if (extra) extra[n_extra] = NULL;
    return ARES_OK;
}

void verb_write_floats(ares_str *out, const float *x, int64_t n)
{
    ares_str_add_char(out, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i) ares_str_add_char(out, ',');
        ares_json_write_float(out, x[i]);
    }
    ares_str_add_char(out, ']');
}

void verb_write_ids(ares_str *out, const int32_t *ids, int64_t n)
{
    ares_str_add_char(out, '[');
    for (int64_t i = 0; i < n; i++) ares_str_addf(out, i ? ",%d" : "%d", ids[i]);
    ares_str_add_char(out, ']');
}
