/*
 * The verifier `json`: the response is one JSON text. The reader is core's: strict, with its limits
 * of depth and of numbers.
 */
#include "verifier.h"

#define JSON_OPTIONS(X)                    \
    X(flag, fenced, "fenced", "false", "", \
      "judge the content of the last closed code fence of json; a response without one fails")
typedef struct json_options {
    JSON_OPTIONS(ARES_OPTION_FIELD_)
} json_options;
static ARES_OPTION_TABLE(json_table, json_options, JSON_OPTIONS);

/* The content of the last closed ```json fence; data NULL: there is none. */
static ares_view last_fence(ares_view text)
{
    ares_view found = { NULL, 0 };
    bool open = false, json = false;
    size_t start = 0;
    for (size_t from = 0; from < text.len;) {
        int64_t newline = ares_view_find(text, ARES_VIEW("\n"), from);
        size_t end = newline < 0 ? text.len : (size_t)newline;
        ares_view line = ares_view_trim((ares_view){ text.data + from, end - from });
        if (open && ares_view_is(line, "```")) { /* of any language; only JSON is kept */
            if (json) found = (ares_view){ text.data + start, from - start };
            open = false;
        } else if (!open && ares_view_starts(line, ARES_VIEW("```"))) {
            open = true;
            json = ares_view_is(line, "```json") || ares_view_is(line, "```JSON");
            start = ARES_MIN(end + 1, text.len);
        }
        from = end + 1;
    }
    return found;
}

/* Right when the response, or its fence, is read as JSON. */
static int json(const ares_verify_in *in, ares_verify_out *out)
{
    const json_options *o = in->options;
    ares_view text = o->fenced ? last_fence(in->response) : in->response;
    out->score = out->accuracy = 0;
    out->no_answer = !text.data; /* only with `fenced`: a response always has a text */
    if (!text.data) {
        grade_detail(out, "reason", ARES_VIEW("there is no ```json fence"));
        return ARES_OK;
    }
    ares_arena arena = { 0 };
    const ares_json *value;
    if (ares_json_parse(&arena, ares_view_trim(text), "response", &value) != ARES_OK) {
        out->no_answer = true;
        grade_detail(out, "reason", ares_view_of(ares_error_message()));
        ares_error_clear();
    } else {
        out->score = out->accuracy = 1;
    }
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_json = {
    .name = "json",
    .doc = "the response is one JSON text",
    .options = json_table,
    .options_size = sizeof(json_options),
    .verify = json,
    .right = 1,
    .any_truth = true,
};
