/* The encoder of prompts, which also encodes stored answers to them. (prompt.c) */
#ifndef ARES_DATA_PROMPT_H
#define ARES_DATA_PROMPT_H

#include "ares/data.h"

struct ares_prompt_encoder {
    const ares_data_config *cfg;
    const ares_tokenizer *tokenizer;
    ares_template *format;
    ares_chat *chat;
};
#endif
