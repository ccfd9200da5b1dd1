/*
 * ares-train render: conversations to text through a model's chat template, or questions through a
 * format prompt.
 */
#include <stdio.h>
#include <string.h>

#include "ares/template.h"
#include "verb.h"

static const char help[] =
    "usage: ares-train render --model DIR [--input FILE] [--template-name NAME] [--spans]\n"
    "       ares-train render --template FILE.jinja [--input FILE]\n"
    "\n"
    "With --model: reads {\"messages\":[..], \"add_generation_prompt\":true, \"tools\":[..], other "
    "template variables} a line.\n"
    "\"continue_final_message\":true in place of add_generation_prompt ends the text with the "
    "last\n"
    "message's content.\n"
    "With --template (a format prompt): reads {\"content\":\"..\", other template variables} a "
    "line. Writes {\"text\":\"..\"} a line.\n"
    "\n"
    "  --model DIR           a model directory, or a chat template's .jinja file\n"
    "  --template FILE       a format prompt, as data.format_prompt names one\n"
    "  --input FILE          lines of JSON; - (the default) is stdin\n"
    "  --template-name NAME  of several chat templates of a model, this one (tool_use ..)\n"
    "  --spans               also \"assistant_spans\":[[a,b],..]: the code points of the text that "
    "the assistant wrote\n"
    "\n"
    "example:\n"
    "  echo "
    "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"add_generation_prompt\":true}' "
    "|\n"
    "      ares-train render --model models/SmolLM2-135M-Instruct\n";

typedef struct job {
    ares_chat *chat;
    ares_template *prompt;
    bool want_spans;
    ares_text_spans spans;
    ares_str text;
} job;

static int render_line(void *ctx, const ares_json *line, ares_str *out)
{
    job *j = ctx;
    ares_str_clear(&j->text);
    ares_text_spans_clear(&j->spans);
    if (j->prompt) ARES_TRY(ares_template_render(j->prompt, line, NULL, NULL, &j->text, NULL));
    else if (j->want_spans)
        ARES_TRY(ares_chat_assistant_spans(j->chat, line, NULL, &j->text, &j->spans));
    else ARES_TRY(ares_chat_render(j->chat, line, NULL, &j->text));
    ares_str_add_z(out, "{\"text\":");
    ares_json_write_string(out, ares_str_view(&j->text));
    if (j->want_spans) {
        ares_str_add_z(out, ",\"assistant_spans\":[");
        for (int64_t i = 0; i < j->spans.n; i++)
            ares_str_addf(out, i ? ",[%lld,%lld]" : "[%lld,%lld]",
                          (long long)j->spans.items[i].char_start,
                          (long long)j->spans.items[i].char_end);
        ares_str_add_char(out, ']');
    }
    ares_str_add_char(out, '}');
    return ARES_OK;
}

int ares_verb_render(int argc, char **argv)
{
    const char *model = NULL, *prompt = NULL, *name = NULL, *input = "-";
    job j = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return fputs(help, stdout) < 0 ? ares_fail(ARES_EIO, "render: stdout") : ARES_OK;
        else if (strcmp(argv[i], "--spans") == 0) j.want_spans = true;
        else if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) model = argv[++i];
        else if (strcmp(argv[i], "--template") == 0 && i + 1 < argc) prompt = argv[++i];
        else if (strcmp(argv[i], "--template-name") == 0 && i + 1 < argc) name = argv[++i];
        else if (strcmp(argv[i], "--input") == 0 && i + 1 < argc) input = argv[++i];
        else
            return ares_fail(
                ARES_EUSE,
                "render: '%s': unknown, or without its value; see ares-train render --help",
                argv[i]);
    }
    if (!model == !prompt)
        return ares_fail(
            ARES_EUSE,
            "render: give --model or --template, one of the two; see ares-train render --help");
    if (prompt && (name || j.want_spans))
        return ares_fail(ARES_EUSE, "render: --template-name and --spans go with --model");
    if (prompt) ARES_TRY(ares_format_prompt_load(prompt, &j.prompt));
    else ARES_TRY(ares_chat_load(model, name, &j.chat));
    int rc = verb_each_line("render", input, render_line, &j);
    ares_chat_free(j.chat);
    ares_template_free(j.prompt);
    ares_text_spans_fini(&j.spans);
    ares_str_fini(&j.text);
    return rc;
}
