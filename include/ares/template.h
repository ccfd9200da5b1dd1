/*
 * chat: Jinja templates, as jinja2 3.1 renders them with the settings of transformers, byte for
 * byte. What a template asks for beyond the subset is an error with line and column, never another
 * text.
 *
 * Errors read "template: <template>:<line>:<column>: ..." (column in code points, from 1): ARES_EFORMAT
 * for a template that is malformed, raises or fails as it would in jinja2, ARES_EUNSUPPORTED for
 * what jinja2 could do and we do not, ARES_ELIMIT when a bound of ares_template_limits is hit.
 */
#ifndef ARES_TEMPLATE_H
#define ARES_TEMPLATE_H

#include "ares/core.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tm;

/* ---------------- templates (jinja_*.c)
 * CHAT is transformers' environment for chat templates: trim_blocks, lstrip_blocks, {% break %}, {%
 * continue %}, {% generation %}, tojson as plain json.dumps, raise_exception, strftime_now. PLAIN
 * is jinja2.Template without options, as EasyR1 reads its format prompts.
 */
typedef enum { ARES_TEMPLATE_CHAT, ARES_TEMPLATE_PLAIN } ares_template_dialect;
/* immutable; may be rendered by several threads at once */
typedef struct ares_template ares_template;

int ares_template_parse(const char *name, ares_view source, ares_template_dialect dialect,
                        ares_template **out);
void ares_template_free(ares_template *t);
/* a {% generation %} block stands in it */
bool ares_template_has_generation(const ares_template *t);

/*
 * Zero means the default. One step is about one node of the template evaluated, or 64 bytes of text
 * looked at.
 */
typedef struct ares_template_limits {
    int64_t steps;       /* 50 million */
    size_t memory_bytes; /* 512 MiB, everything a render allocates */
    size_t output_bytes; /* 64 MiB */
} ares_template_limits;

/* Half-open, in bytes and in code points of the rendered text. */
typedef struct ares_text_span {
    int64_t byte_start, byte_end, char_start, char_end;
} ares_text_span;
/* {0} is empty */
typedef struct ares_text_spans {
    ares_text_span *items;
    int64_t n, cap;
} ares_text_spans;
void ares_text_spans_fini(ares_text_spans *s);
void ares_text_spans_clear(ares_text_spans *s);

/*
 * Appends the text to out; context is a JSON object (NULL: empty). now is what strftime_now sees,
 * NULL for the local time. spans (may be NULL) receives the {% generation %} blocks in order; then
 * a block inside a macro, a set block or another generation block is ARES_EUNSUPPORTED, because its
 * place in the text is not known. On failure out is as it was.
 */
int ares_template_render(const ares_template *t, const ares_json *context, const struct tm *now,
                         const ares_template_limits *limits, ares_str *out, ares_text_spans *spans);

/*
 * EasyR1's format prompt: a file, stripped of white space around it, PLAIN; then render it with
 * {"content": ...}.
 */
int ares_format_prompt_load(const char *path, ares_template **out);
int ares_format_prompt_render(const ares_template *t, ares_view content, ares_str *out);

/* ------------------------------------------------------------------ chat (chat.c) */
typedef struct ares_chat ares_chat; /* a template and the special tokens it may name; immutable */

/*
 * Of a model directory: chat_template.jinja, or the key chat_template of tokenizer_config.json, a
 * string or a list of {name, template}; `name` chooses one (NULL: "default"). Special tokens come
 * from tokenizer_config.json, then special_tokens_map.json. `path` may be a .jinja file too.
 */
int ares_chat_load(const char *path, const char *name, ares_chat **out);
/*
 * The same from memory; tokenizer_config (borrowed for the call, may be NULL) gives the special
 * tokens.
 */
int ares_chat_new(const char *name, ares_view source, const ares_json *tokenizer_config,
                  ares_chat **out);
void ares_chat_free(ares_chat *c);

/*
 * Appends the text of a conversation. variables is a JSON object: "messages" and whatever else the
 * template reads ("tools", "documents", "add_generation_prompt", "enable_thinking" ...). As in
 * transformers, absent tools and documents are none, absent add_generation_prompt is false, and a
 * variable wins over a special token of the same name.
 *
 * "continue_final_message": true ends the text with the last message's content, whatever the
 * template writes after it; blanks at the content's end go where the template trims them. A string
 * in place of true names another key of the message ("reasoning_content"). Together with
 * add_generation_prompt, or where the template does not write that content, it is an error.
 */
int ares_chat_render(const ares_chat *c, const ares_json *variables, const struct tm *now,
                     ares_str *out);
/* The variable that readies a text for an answer, as in TRL: continue_final_message where the last
 * message is the assistant's, else add_generation_prompt. */
ares_view ares_chat_prompt_variable(const ares_json *messages);

/*
 * Appends the text and, to spans, what of it the assistant wrote, for training on it. Of {%
 * generation %} blocks where the template has them. Otherwise assistant message i is the difference
 * of messages[:i] with the generation prompt and messages[:i+1] without it; both must begin the
 * whole text, else ARES_EUNSUPPORTED names the message (templates that rewrite earlier turns, such
 * as those that drop old reasoning, cannot be split so).
 */
int ares_chat_assistant_spans(const ares_chat *c, const ares_json *variables, const struct tm *now,
                              ares_str *out, ares_text_spans *spans);

#ifdef __cplusplus
}
#endif
#endif
