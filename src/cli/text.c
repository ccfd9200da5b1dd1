/* The commands between text and tokens: tokenize, detokenize, render. */
#include "cli.h"

#include "ares/data.h"
#include "ares/text.h"

/*
 * ares-train tokenize: text to token ids.
 */

/* What all lines are tokenized with. */
typedef struct tokenize_job {
    ares_tokenizer *tokenizer;
    ares_ids ids;
    bool special_tokens; /* bos and eos, where the tokenizer adds them */
} tokenize_job;

/* [begin, end] */
static void write_range(ares_str *out, int64_t begin, int64_t end)
{
    ares_json_begin(out, '[');
    ares_json_write_i64(out, begin);
    ares_json_write_i64(out, end);
    ares_json_end(out, ']');
}

/* "text" gives {"ids":[..]}, with {"offsets":[[a,b],..]} where asked. */
static int tokenize_line(void *ctx, const ares_json *line, ares_str *out)
{
    tokenize_job *j = ctx;
    if (line->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT, "tokenize: not a JSON string");
    ares_ids_clear(&j->ids);
    ARES_TRY(ares_tokenizer_encode(j->tokenizer, line->text, j->special_tokens, &j->ids));
    ares_json_begin(out, '{');
    cli_write_ids(ares_json_key(out, "ids"), j->ids.ids, j->ids.n);
    /* [begin, end) in code points */
    if (j->ids.want_offsets) {
        ares_json_begin(ares_json_key(out, "offsets"), '[');
        for (int64_t i = 0; i < j->ids.n; i++)
            write_range(out, j->ids.offsets[i][0], j->ids.offsets[i][1]);
        ares_json_end(out, ']');
    }
    ares_json_end(out, '}');
    return ARES_OK;
}

int ares_cli_tokenize(int argc, char **argv)
{
    const char *model = NULL, *input = "-";
    bool helped, no_special_tokens = false;
    tokenize_job j = { 0 };
    const cli_option options[] = {
        CLI_OPTION(TEXT, model, "--model", "DIR", "a model directory, or a tokenizer.json",
                   .required = true),
        CLI_OPTION(TEXT, input, "--input", "FILE",
                   "lines of JSON strings; - (the default) is stdin"),
        CLI_OPTION(FLAG, j.ids.want_offsets, "--offsets", NULL,
                   "also \"offsets\":[[a,b],..]: the code points of the string that each token "
                   "covers"),
        CLI_OPTION(FLAG, no_special_tokens, "--no-special-tokens", NULL,
                   "without the bos and eos that the tokenizer puts around a text"),
    };
    const cli_command command = {
        .name = "tokenize",
        .usage = "--model DIR [--input FILE] [--offsets] [--no-special-tokens]",
        .about = "Reads a JSON string per line, writes {\"ids\":[..]} per line.",
        .example = "echo '\"What is 7 + 5?\"' | ares-train tokenize --model "
                   "models/SmolLM2-135M-Instruct --offsets",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    /* the option says what is left out */
    j.special_tokens = !no_special_tokens;
    ARES_TRY(ares_tokenizer_load(model, &j.tokenizer));
    int rc = cli_each_line("tokenize", input, tokenize_line, &j);
    ares_ids_fini(&j.ids);
    ares_tokenizer_free(j.tokenizer);
    return rc;
}

/*
 * ares-train detokenize: token ids to text.
 */

/* What all lines are decoded with. */
typedef struct detokenize_job {
    ares_tokenizer *tokenizer;
    ares_ids ids;
    ares_str text;
} detokenize_job;

/* {"ids":[..]} gives {"text":".."}. */
static int detokenize_line(void *ctx, const ares_json *line, ares_str *out)
{
    detokenize_job *j = ctx;
    bool skip;
    ARES_TRY(cli_read_ids("detokenize", line, "ids", &j->ids));
    ARES_TRY(ares_json_get_bool(line, "skip_special_tokens", false, &skip));
    ares_str_clear(&j->text);
    ARES_TRY(ares_tokenizer_decode(j->tokenizer, j->ids.ids, j->ids.n, skip, &j->text));
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "text"), ares_str_view(&j->text));
    ares_json_end(out, '}');
    return ARES_OK;
}

int ares_cli_detokenize(int argc, char **argv)
{
    const char *model = NULL, *input = "-";
    bool helped;
    const cli_option options[] = {
        CLI_OPTION(TEXT, model, "--model", "DIR", "a model directory, or a tokenizer.json",
                   .required = true),
        CLI_INPUT(input),
    };
    const cli_command command = {
        .name = "detokenize",
        .usage = "--model DIR [--input FILE]",
        .about = "Reads {\"ids\":[..], \"skip_special_tokens\":bool} per line, writes "
                 "{\"text\":\"..\"} per line.\nskip_special_tokens is false unless given.",
        .example = "echo '{\"ids\":[1,2,3]}' | ares-train detokenize --model "
                   "models/SmolLM2-135M-Instruct",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    detokenize_job j = { 0 };
    ARES_TRY(ares_tokenizer_load(model, &j.tokenizer));
    int rc = cli_each_line("detokenize", input, detokenize_line, &j);
    ares_ids_fini(&j.ids);
    ares_str_fini(&j.text);
    ares_tokenizer_free(j.tokenizer);
    return rc;
}

/*
 * ares-train render: conversations to text through a model's chat template, or questions through a
 * format prompt.
 */

/* What all lines are rendered with; one of chat and prompt. */
typedef struct render_job {
    ares_chat *chat;
    ares_template *prompt;
    bool want_spans; /* --spans */
    ares_text_spans spans;
    ares_str text;
    ares_arena arena; /* of one line */
} render_job;

/* {"messages":[..]} gives {"text":".."}; of a format prompt {"content":".."}. */
static int render_line(void *ctx, const ares_json *line, ares_str *out)
{
    render_job *j = ctx;
    if (j->chat) { /* parts in place of strings, where images and videos stand in a message */
        static const ares_data_config keys = { .image_key = "images", .video_key = "videos" };
        ares_prompt_media media;
        ares_arena_reset(&j->arena);
        ARES_TRY(ares_row_adopt(line, "messages", false, &j->arena, &line));
        ARES_TRY(
            ares_prompt_media_of(&keys, line, ares_json_get(line, "messages"), &j->arena, &media));
        line = ares_prompt_place_media(line, &media, &j->arena);
    }
    ares_str_clear(&j->text);
    ares_text_spans_clear(&j->spans);
    if (j->prompt) ARES_TRY(ares_template_render(j->prompt, line, NULL, NULL, &j->text, NULL));
    else if (j->want_spans)
        ARES_TRY(ares_chat_assistant_spans(j->chat, line, NULL, &j->text, &j->spans));
    else ARES_TRY(ares_chat_render(j->chat, line, NULL, &j->text));
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "text"), ares_str_view(&j->text));
    /* what the assistant wrote, [begin, end) in code points */
    if (j->want_spans) {
        ares_json_begin(ares_json_key(out, "assistant_spans"), '[');
        for (int64_t i = 0; i < j->spans.n; i++)
            write_range(out, j->spans.items[i].char_start, j->spans.items[i].char_end);
        ares_json_end(out, ']');
    }
    ares_json_end(out, '}');
    return ARES_OK;
}

int ares_cli_render(int argc, char **argv)
{
    const char *model = NULL, *prompt = NULL, *name = NULL, *input = "-";
    bool helped;
    render_job j = { 0 };
    const cli_option options[] = {
        CLI_OPTION(TEXT, model, "--model", "DIR",
                   "a model directory, or a chat template's .jinja file"),
        CLI_OPTION(TEXT, prompt, "--template", "FILE",
                   "a format prompt, such as data.format_prompt names"),
        CLI_INPUT(input),
        CLI_OPTION(TEXT, name, "--template-name", "NAME",
                   "which of the chat templates of a model that has several (tool_use ..)"),
        CLI_OPTION(FLAG, j.want_spans, "--spans", NULL,
                   "also \"assistant_spans\":[[a,b],..]: the code points of the text that the "
                   "assistant wrote"),
    };
    const cli_command command = {
        .name = "render",
        .usage = "--model DIR [--input FILE] [--template-name NAME] [--spans]\n"
                 "--template FILE.jinja [--input FILE]",
        .about = "With --model: reads {\"messages\":[..], \"add_generation_prompt\":true, "
                 "\"tools\":[..], other template variables} per line. "
                 "\"continue_final_message\":true in place of add_generation_prompt ends the text "
                 "with the last message's content.\n"
                 "With --template (a format prompt): reads {\"content\":\"..\", other template "
                 "variables} per line.\nWrites {\"text\":\"..\"} per line.",
        .example = "echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],"
                   "\"add_generation_prompt\":true}' |\n"
                   "    ares-train render --model models/SmolLM2-135M-Instruct",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    if (!model == !prompt)
        return ares_fail(
            ARES_EUSE,
            "render: give --model or --template, one of the two (see ares-train render --help)");
    if (prompt && (name || j.want_spans))
        return ares_fail(ARES_EUSE, "render: --template-name and --spans go with --model");
    /* a format prompt has one question, a chat template a conversation */
    if (prompt) ARES_TRY(ares_format_prompt_load(prompt, &j.prompt));
    else ARES_TRY(ares_chat_load(model, name, &j.chat));
    int rc = cli_each_line("render", input, render_line, &j);
    ares_chat_free(j.chat);
    ares_template_free(j.prompt);
    ares_text_spans_fini(&j.spans);
    ares_str_fini(&j.text);
    ares_arena_fini(&j.arena);
    return rc;
}
