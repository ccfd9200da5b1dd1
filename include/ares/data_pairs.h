/*
 * data: stored answers of a row, one that is preferred to the other (docs/vapor.md#rows).
 */
#ifndef ARES_DATA_PAIRS_H
#define ARES_DATA_PAIRS_H

#include "ares/data_source.h"

typedef struct ares_stored_answer {
    const int32_t *ids; /* [prompt_len + n]: the prompt, then the answer */
    int32_t prompt_len, n;
    int32_t span, span_end; /* of the answer's tokens: what is compared */
} ares_stored_answer;
/* n 0: the row has no pair, or one of its answers has no span or no room */
typedef struct ares_pair {
    ares_stored_answer chosen, rejected;
} ares_pair;

typedef struct ares_pair_options {
    const char *chosen_key, *rejected_key;
    ares_view start_tag, end_tag;
    int64_t max_length; /* tokens of prompt and answer; longer answers lose their end */
    bool without_span;  /* a pair whose tags are not found is kept all the same */
    int32_t eos;        /* put after an answer that has no chat template and ends otherwise */
} ares_pair_options;
/* Rows: with a pair, by why they have none (without_span: or no preference), by what was changed.
 */
typedef struct ares_pair_counts {
    int64_t pairs, absent, without_span, without_room, shortened, merged, equal;
} ares_pair_counts;
typedef struct ares_pairs {
    ares_arena arena;
    int64_t n;
    ares_pair *pair; /* [n], by the id of the row */
    ares_pair_counts counts;
} ares_pairs;

/*
 * Renders and encodes the stored answers of all rows on the pool. An answer is a string, or a list
 * of messages whose last one is the assistant's. Anything else, an empty answer, or two equal ones
 * are an error that names the row. A row that lacks one of them has no pair.
 */
int ares_pairs_encode(const ares_source *rows, const ares_prompt_encoder *e,
                      const ares_pair_options *o, ares_pool *pool, ares_pairs *out);
void ares_pairs_fini(ares_pairs *p);
#endif
