/*
 * ares-train detokenize: token ids to text.
 */
#include "ares/text.h"
#include "verb.h"

typedef struct job {
    ares_tokenizer *tokenizer;
    ares_ids ids;
    ares_str text;
} job;

static int detokenize_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    bool skip;
    ARES_TRY(verb_read_ids("detokenize", line, "ids", &j->ids));
    ARES_TRY(ares_json_get_bool(line, "skip_special_tokens", false, &skip));
    ares_str_clear(&j->text);
    ARES_TRY(ares_tokenizer_decode(j->tokenizer, j->ids.ids, j->ids.n, skip, &j->text));
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "text"), ares_str_view(&j->text));
    ares_json_end(out, '}');
    return ARES_OK;
}

int ares_verb_detokenize(int argc, char **argv)
{
    const char *model = NULL, *input = "-";
    bool helped;
    const verb_option options[] = {
        VERB_OPTION(TEXT, model, "--model", "DIR", "a model directory, or a tokenizer.json",
                    .required = true),
        VERB_INPUT(input),
    };
    const verb_command command = {
        .name = "detokenize",
        .usage = "--model DIR [--input FILE]",
        .about = "Reads {\"ids\":[..], \"skip_special_tokens\":bool} per line, writes "
                 "{\"text\":\"..\"} per line.\nskip_special_tokens is false unless given.",
        .example = "echo '{\"ids\":[1,2,3]}' | ares-train detokenize --model "
                   "models/SmolLM2-135M-Instruct",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(verb_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    job j = { 0 };
    ARES_TRY(ares_tokenizer_load(model, &j.tokenizer));
    int rc = verb_each_line("detokenize", input, detokenize_line, &j);
    ares_ids_fini(&j.ids);
    ares_str_fini(&j.text);
    ares_tokenizer_free(j.tokenizer);
    return rc;
}
