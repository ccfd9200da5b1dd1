/*
 * The loop of the verbs that answer a line of JSON with a line of JSON.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verb.h"

int verb_each_line(const char *verb, const char *input, verb_line_fn *each, void *ctx)
{
    FILE *file = strcmp(input, "-") == 0 ? stdin : fopen(input, "rb");
    if (!file) return ares_fail(ARES_EIO, "%s: %s: %s", verb, input, strerror(errno));
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    char *line = NULL, name[64];
    size_t cap = 0;
    int64_t lines = 0, bad = 0;
    bool written = true;
    for (ssize_t n; written && (n = getline(&line, &cap, file)) >= 0;) {
        if (n > 0 && line[n - 1] == '\n') n--;
        const ares_json *json;
        ares_arena_reset(&arena);
        ares_str_clear(&out);
        snprintf(name, sizeof name, "line %lld", (long long)++lines);
        int rc = ares_json_parse(&arena, (ares_view){ line, (size_t)n }, name, &json);
        if (rc == ARES_OK) rc = each(ctx, json, &out);
        if (rc != ARES_OK) {
            bad++;
            ares_str_clear(&out);
            ares_str_add_z(&out, "{\"error\":");
            ares_json_write_string(&out, ares_view_of(ares_error_message()));
            ares_str_add_char(&out, '}');
        }
        ares_str_add_char(&out, '\n');
        written = fwrite(out.data, 1, out.len, stdout) == out.len;
    }
    bool read = !ferror(file);
    written = fflush(stdout) == 0 && written;
    free(line);
    ares_arena_fini(&arena);
    ares_str_fini(&out);
    if (file != stdin) fclose(file);
    if (!written) return ares_fail(ARES_EIO, "%s: stdout: %s", verb, strerror(errno));
    if (!read) return ares_fail(ARES_EIO, "%s: %s: %s", verb, input, strerror(errno));
    if (bad)
        return ares_fail(ARES_EFORMAT,
                         "%s: %s: %lld of %lld lines are bad (each has its error in its place)",
                         verb, input, (long long)bad, (long long)lines);
    return ARES_OK;
}
