/*
 * ares-train detokenize: token ids to text.
 */
#include <stdio.h>
#include <string.h>

#include "ares/text.h"
#include "verb.h"

static const char help[] =
    "usage: ares-train detokenize --model DIR [--input FILE]\n"
    "\n"
    "Reads {\"ids\":[..], \"skip_special_tokens\":bool} a line, writes {\"text\":\"..\"} a line.\n"
    "skip_special_tokens is false unless given.\n"
    "\n"
    "  --model DIR   a model directory, or a tokenizer.json\n"
    "  --input FILE  lines of JSON; - (the default) is stdin\n"
    "\n"
    "example:\n"
    "  echo '{\"ids\":[1,2,3]}' | ares-train detokenize --model models/SmolLM2-135M-Instruct\n";

typedef struct job {
    ares_tokenizer *tokenizer;
    ares_ids ids;
    ares_str text;
} job;

static int detokenize_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    bool skip;
    const ares_json *ids = ares_json_get(line, "ids");
    if (!ids || ids->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "detokenize: no list 'ids'");
    ARES_TRY(ares_json_get_bool(line, "skip_special_tokens", false, &skip));
    ares_ids_clear(&j->ids);
    for (int64_t i = 0; i < ids->count; i++) {
        const ares_json *id = &ids->items[i];
        if (id->type != ARES_JSON_INT || id->big || id->integer < 0)
            return ares_fail(ARES_EFORMAT, "detokenize: ids[%lld]: not a token id", (long long)i);
        ares_ids_add(&j->ids, (int32_t)ARES_MIN(id->integer, INT32_MAX), 0, 0);
    }
    ares_str_clear(&j->text);
    ARES_TRY(ares_tokenizer_decode(j->tokenizer, j->ids.ids, j->ids.n, skip, &j->text));
    ares_str_add_z(out, "{\"text\":");
    ares_json_write_string(out, ares_str_view(&j->text));
    ares_str_add_char(out, '}');
    return ARES_OK;
}

int ares_verb_detokenize(int argc, char **argv)
{
    const char *model = NULL, *input = "-";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return fputs(help, stdout) < 0 ? ares_fail(ARES_EIO, "detokenize: stdout") : ARES_OK;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) model = argv[++i];
        else if (strcmp(argv[i], "--input") == 0 && i + 1 < argc) input = argv[++i];
        else
            return ares_fail(
                ARES_EUSE,
                "detokenize: '%s': unknown, or without its value; see ares-train detokenize --help",
                argv[i]);
    }
    if (!model)
        return ares_fail(ARES_EUSE,
                         "detokenize: --model is missing; see ares-train detokenize --help");
    job j = { 0 };
    ARES_TRY(ares_tokenizer_load(model, &j.tokenizer));
    int rc = verb_each_line("detokenize", input, detokenize_line, &j);
    ares_ids_fini(&j.ids);
    ares_str_fini(&j.text);
    ares_tokenizer_free(j.tokenizer);
    return rc;
}
