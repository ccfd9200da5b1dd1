/*
 * The loop of the verbs that answer a line of JSON with a line of JSON.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ares/core_file.h"
#include "verb.h"

int verb_bad_lines(const char *verb, const char *input, int64_t bad, int64_t lines, int64_t first)
{
    return ares_fail(ARES_EFORMAT,
                     "%s: %s: %lld of %lld lines are bad, the first is line %lld (each has its "
                     "error in its place)",
                     verb, input, (long long)bad, (long long)lines, (long long)first);
}

int verb_each_line(const char *verb, const char *input, verb_line_fn *each, void *ctx)
{
    const char *why = NULL;
    bool is_stdin = strcmp(input, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : ares_input_open(input, &why);
    if (why) return ares_fail(ARES_EIO, "%s: %s: %s", verb, input, why);
    FILE *file = is_stdin ? stdin : fdopen(fd, "rb");
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    char *line = NULL, name[64];
    size_t cap = 0;
    int64_t lines = 0, bad = 0, first_bad = 0;
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
            if (!bad++) first_bad = lines;
            ares_str_clear(&out);
            verb_write_error(&out, ares_error_message());
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
    if (bad) return verb_bad_lines(verb, input, bad, lines, first_bad);
    return ARES_OK;
}

int verb_read_ids(const char *verb, const ares_json *line, const char *key, ares_ids *out)
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

void verb_write_error(ares_str *out, const char *message)
{
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "error"), ares_view_of(message));
    ares_json_end(out, '}');
}

void verb_write_floats(ares_str *out, const float *x, int64_t n)
{
    ares_json_begin(out, '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_float(out, x[i]);
    ares_json_end(out, ']');
}

void verb_write_range(ares_str *out, int64_t begin, int64_t end)
{
    ares_json_begin(out, '[');
    ares_json_write_i64(out, begin);
    ares_json_write_i64(out, end);
    ares_json_end(out, ']');
}

void verb_write_ids(ares_str *out, const int32_t *ids, int64_t n)
{
    ares_json_begin(out, '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_i64(out, ids[i]);
    ares_json_end(out, ']');
}
