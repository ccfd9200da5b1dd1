/*
 * ares-train tokenize: text to token ids.
 */
#include <stdio.h>
#include <string.h>

#include "ares/text.h"
#include "verb.h"

static const char help[] =
    "usage: ares-train tokenize --model DIR [--input FILE] [--offsets] [--no-special-tokens]\n"
    "\n"
    "Reads a JSON string a line, writes {\"ids\":[..]} a line.\n"
    "\n"
    "  --model DIR          a model directory, or a tokenizer.json\n"
    "  --input FILE         lines of JSON strings; - (the default) is stdin\n"
    "  --offsets            also \"offsets\":[[a,b],..]: the code points of the string that each "
    "token covers\n"
    "  --no-special-tokens  without the bos and eos that the tokenizer puts around a text\n"
    "\n"
    "example:\n"
    "  echo '\"What is 7 + 5?\"' | ares-train tokenize --model models/SmolLM2-135M-Instruct "
    "--offsets\n";

typedef struct job {
    ares_tokenizer *tokenizer;
    ares_ids ids;
    bool special_tokens;
} job;

static int tokenize_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    if (line->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT, "tokenize: not a JSON string");
    ares_ids_clear(&j->ids);
    ARES_TRY(ares_tokenizer_encode(j->tokenizer, line->text, j->special_tokens, &j->ids));
    ares_str_add_z(out, "{\"ids\":[");
    for (int64_t i = 0; i < j->ids.n; i++) ares_str_addf(out, i ? ",%d" : "%d", j->ids.ids[i]);
    ares_str_add_char(out, ']');
    if (j->ids.want_offsets) {
        ares_str_add_z(out, ",\"offsets\":[");
        for (int64_t i = 0; i < j->ids.n; i++)
            ares_str_addf(out, i ? ",[%lld,%lld]" : "[%lld,%lld]", (long long)j->ids.offsets[i][0],
                          (long long)j->ids.offsets[i][1]);
        ares_str_add_char(out, ']');
    }
    ares_str_add_char(out, '}');
    return ARES_OK;
}

int ares_verb_tokenize(int argc, char **argv)
{
    const char *model = NULL, *input = "-";
    job j = { .special_tokens = true };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return fputs(help, stdout) < 0 ? ares_fail(ARES_EIO, "tokenize: stdout") : ARES_OK;
        else if (strcmp(argv[i], "--offsets") == 0) j.ids.want_offsets = true;
        else if (strcmp(argv[i], "--no-special-tokens") == 0) j.special_tokens = false;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) model = argv[++i];
        else if (strcmp(argv[i], "--input") == 0 && i + 1 < argc) input = argv[++i];
        else
            return ares_fail(
                ARES_EUSE,
                "tokenize: '%s': unknown, or without its value; see ares-train tokenize --help",
                argv[i]);
    }
    if (!model)
        return ares_fail(ARES_EUSE, "tokenize: --model is missing; see ares-train tokenize --help");
    ARES_TRY(ares_tokenizer_load(model, &j.tokenizer));
    int rc = verb_each_line("tokenize", input, tokenize_line, &j);
    ares_ids_fini(&j.ids);
    ares_tokenizer_free(j.tokenizer);
    return rc;
}
