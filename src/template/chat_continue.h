/*
 * continue_final_message, as transformers 5.17 does it: a mark is written after the final message's
 * content, and what the template writes from the mark on is cut.
 */
#ifndef ARES_TEMPLATE_CHAT_CONTINUE_H
#define ARES_TEMPLATE_CHAT_CONTINUE_H

#include "ares/core.h"

/*
 * The key of the final message that the variables ask to continue: "content" for true, or the key
 * that they name; data NULL where they ask for none. With add_generation_prompt it is an error.
 */
int chat_continue_key(const ares_json *variables, ares_view *key);
/* The messages with the mark after the final one's text; *content: that text. In the arena. */
int chat_continue_mark(const ares_json *messages, ares_view key, ares_arena *arena,
                       const ares_json **marked, ares_view *content);
/* Cuts the text at the mark, and the blanks before it where the template trims the content. */
int chat_continue_cut(ares_str *text, ares_view content);
#endif
