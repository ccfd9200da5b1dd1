/* The rows of supervised fine-tuning as tokens. (sft.c) */
#ifndef ARES_TRAIN_SFT_H
#define ARES_TRAIN_SFT_H

#include "ares/train.h"

/*
 * The tokens of a row. The first `prompt` of them are the prompt; of the rest, the loss is over
 * those with trained = 1, among them the last one.
 */
typedef struct sft_row {
    const int32_t *ids;
    const uint8_t *trained; /* [n] */
    const ares_row_media *row_media;
    int32_t n, prompt; /* 0 < prompt < n */
    const ares_row *row;
} sft_row;
typedef struct sft_rows {
    sft_row *items;
    int64_t count, dropped, cut; /* dropped, cut: rows that were longer than the limit */
    ares_arena arena;
} sft_rows;

typedef struct sft_encoder {
    const ares_train_config *cfg;
    const ares_prompt_encoder *prompts;
    const ares_tokenizer *tokenizer;
    const ares_model_config *model;
} sft_encoder;

/* The keys, up to a NULL, of which the first that a row has may be in another program's form. */
void sft_row_keys(const ares_train_config *c, const char *keys[static 3]);
/*
 * Encodes every row, on the pool. Conversations go through the chat template, and what the
 * assistant wrote is trained; without a template a row is its prompt, its response and the
 * end-of-sequence token. Rows that are dropped leave the data set, too: items[i] is of its row i.
 * Errors name file and line.
 */
int sft_rows_encode(ares_dataset *d, const sft_encoder *e, ares_pool *pool, sft_rows *out);
void sft_rows_fini(sft_rows *r);
/* The same of one row, uncut, in the arena. */
int sft_row_encode(const sft_encoder *e, const ares_row *row, ares_arena *arena, sft_row *out);
#endif
