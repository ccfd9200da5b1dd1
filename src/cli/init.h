/* Files of a vision model that `init` makes. (init_vision.c) */
#ifndef ARES_VERB_INIT_H
#define ARES_VERB_INIT_H

#include "ares/core.h"

typedef struct init_vision {
    bool gated; /* Qwen2.5-VL's tower; otherwise Qwen2-VL's */
    int64_t depth, width, heads, patch;
} init_vision;

/* Special tokens of a vision model, whose ids config.json names. */
enum { INIT_VISION_TOKENS = 4 };
extern const char *const init_vision_tokens[INIT_VISION_TOKENS];
/* A template of ChatML whose messages have text, or parts of text, images and videos. */
extern const char init_vision_template[];

int init_vision_check(const init_vision *v, int64_t head_dim);
/* What the tower's part of config.json must know of the text part. */
typedef struct init_text {
    int64_t hidden, head_dim;
    double rope_theta;
    const char *dtype;    /* of --dtype */
    const int32_t *token; /* [INIT_VISION_TOKENS] ids */
} init_text;
/* Appends members of config.json. */
void init_vision_config(const init_vision *v, const init_text *text, ares_str *s);
/* Appends preprocessor_config.json. */
void init_vision_processor(const init_vision *v, ares_str *s);
#endif
