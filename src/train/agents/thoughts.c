/* What the model read before each of its thoughts, and the thoughts, as they were sampled. */
#include "agents/conversation.h"

/* Tokens of the turn before the tag that closes the thought; 0: there is no tag, or no thought. */
static int32_t thought_length(const ares_tokenizer *tokenizer, const conversation_turn *t)
{
    ares_str text = { 0 };
    int32_t n = 0;
    size_t read = 0;
    for (int32_t i = 0; i < t->n; i++) /* special tokens are no part of an answer's text */
        if (!ares_tokenizer_is_special(tokenizer, t->ids[i]))
            ares_str_add_view(&text, ares_tokenizer_token_bytes(tokenizer, t->ids[i]));
    int64_t end = ares_view_find(ares_str_view(&text), ARES_VIEW("</think>"), 0);
    bool thought = end > 0 && ares_view_trim((ares_view){ text.data, (size_t)end }).len > 0;
    for (; thought && n < t->n; n++) {
        if (!ares_tokenizer_is_special(tokenizer, t->ids[n]))
            read += ares_tokenizer_token_bytes(tokenizer, t->ids[n]).len;
        if (read > (size_t)end) break;
    }
    ares_str_fini(&text);
    return n;
}

void conversation_thoughts(const conversation *c, ares_arena *arena, ares_trajectory *y)
{
    ares_thought *thoughts = ares_arena_calloc(arena, (size_t)c->n + 1, sizeof *thoughts);
    for (int32_t i = 0; i < c->n; i++) {
        const conversation_turn *t = &c->turns[i];
        thoughts[i] = (ares_thought){ .prompt = t->prompt,
                                      .prompt_len = t->prompt_len,
                                      .ids = t->ids,
                                      .n = thought_length(c->style->tokenizer, t) };
    }
    y->thoughts = thoughts;
    y->n_thoughts = c->n;
}
