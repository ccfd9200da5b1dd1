/* The encoder of prompts, which also encodes stored answers to them. (prompt.c) */
#ifndef ARES_DATA_PROMPT_H
#define ARES_DATA_PROMPT_H

#include "ares/data.h"

struct ares_prompt_encoder {
    const ares_data_config *cfg;
    const ares_tokenizer *tokenizer;
    const ares_sight_rules *sight; /* NULL: the model reads text alone */
    int64_t limit_images;          /* of a row; 0: any number */
    ares_template *format;
    ares_chat *chat;
};
#endif
