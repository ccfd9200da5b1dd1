/*
 * ares-train tokenize: text to token ids.
 */
#include "ares/text.h"
#include "verb.h"

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
    ares_json_begin(out, '{');
    verb_write_ids(ares_json_key(out, "ids"), j->ids.ids, j->ids.n);
    if (j->ids.want_offsets) {
        ares_json_begin(ares_json_key(out, "offsets"), '[');
        for (int64_t i = 0; i < j->ids.n; i++)
            verb_write_range(out, j->ids.offsets[i][0], j->ids.offsets[i][1]);
        ares_json_end(out, ']');
    }
    ares_json_end(out, '}');
    return ARES_OK;
}

int ares_verb_tokenize(int argc, char **argv)
{
    const char *model = NULL, *input = "-";
    bool helped, no_special_tokens = false;
    job j = { 0 };
    const verb_option options[] = {
        VERB_OPTION(TEXT, model, "--model", "DIR", "a model directory, or a tokenizer.json",
                    .required = true),
        VERB_OPTION(TEXT, input, "--input", "FILE",
                    "lines of JSON strings; - (the default) is stdin"),
        VERB_OPTION(FLAG, j.ids.want_offsets, "--offsets", NULL,
                    "also \"offsets\":[[a,b],..]: the code points of the string that each token "
                    "covers"),
        VERB_OPTION(FLAG, no_special_tokens, "--no-special-tokens", NULL,
                    "without the bos and eos that the tokenizer puts around a text"),
    };
    const verb_command command = {
        .name = "tokenize",
        .usage = "--model DIR [--input FILE] [--offsets] [--no-special-tokens]",
        .about = "Reads a JSON string per line, writes {\"ids\":[..]} per line.",
        .example = "echo '\"What is 7 + 5?\"' | ares-train tokenize --model "
                   "models/SmolLM2-135M-Instruct --offsets",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(verb_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    j.special_tokens = !no_special_tokens;
    ARES_TRY(ares_tokenizer_load(model, &j.tokenizer));
    int rc = verb_each_line("tokenize", input, tokenize_line, &j);
    ares_ids_fini(&j.ids);
    ares_tokenizer_free(j.tokenizer);
    return rc;
}
