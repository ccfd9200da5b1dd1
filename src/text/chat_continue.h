/*
 * continue_final_message, as transformers 5.17 does it: a mark is put after the final message's
 * content before rendering, and the rendered text is cut at the mark.
 */
#ifndef ARES_TEMPLATE_CHAT_CONTINUE_H
#define ARES_TEMPLATE_CHAT_CONTINUE_H

#include "ares/core.h"

/*
 * Which key of the final message the variables ask to continue: "content" for true, or the key that
 * they name; data NULL where they ask for none. With add_generation_prompt it is an error.
 */
int chat_continue_key(const ares_json *variables, ares_view *key);
/* *marked: the messages with the mark after the text of the final one; *content: that text. */
int chat_continue_mark(const ares_json *messages, ares_view key, ares_arena *arena,
                       const ares_json **marked, ares_view *content);
/* Cuts the text at the mark, and the white space before it where the template trims the content. */
int chat_continue_cut(ares_str *text, ares_view content);
#endif
