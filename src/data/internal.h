/*
 * Private to data: micro-batches of even work, rows and paths of a data set, the order of rows,
 * mixtures, the encoder of prompts, and ids of prompts with pictures.
 */
#ifndef ARES_DATA_INTERNAL_H
#define ARES_DATA_INTERNAL_H

#include "ares/data.h"
#include "ares/data_source.h"
#include "ares/media.h"
#include "ares/text.h"

/*
 * Micro-batches of about max_tokens (EasyR1; docs/update.md#micro-batches): *k = min(n, ceil(total
 * / max_tokens)) parts, or `least` if that is more (the number that another rank needs); a part may
 * exceed max_tokens. part [n]; part 0 has the largest sum of squared lengths.
 */
int balance_micro_batches(const int64_t *length, int64_t n, int64_t max_tokens, int64_t least,
                          int64_t *k, int64_t *part);

struct ares_dataset {
    ares_arena arena;
    ares_row *rows;
    int64_t count, cap;
    ares_arena *of_worker; /* [n_workers] one per thread of the pool: what it makes of rows */
    int n_workers;
};

/* ares_dataset_load_files of paths alone, with the keys that cfg names. */
int dataset_load(const ares_texts *files, const ares_data_config *cfg, bool need_answer,
                 ares_dataset **out);

/* JSON's null counts as nothing. */
static inline bool is_there(const ares_json *v)
{
    return v && v->type != ARES_JSON_NULL;
}

/* Whether a saved state has a count there, from 0 to the limit. */
static inline bool is_count(const ares_json *v, int64_t limit)
{
    return v && v->type == ARES_JSON_INT && !v->big && v->integer >= 0 && v->integer <= limit;
}

/* ---------------- row.c */
/* The row's ground truth; NULL: it has none. JSON's null counts as none. */
const ares_json *row_answer(const ares_data_config *cfg, const ares_json *row);
/* Where verl's rows have their answer, which is read unless data.answer_key is set. */
#define ROW_VERL_ANSWER "reward_model.ground_truth"
/*
 * Fails where a row lacks its prompt or its answer. given: the row as it was before ares_row_adopt,
 * in which the answer is looked for
 */
int row_check(const ares_data_config *cfg, const char *file, int64_t line, const ares_json *row,
              const ares_json *given, bool need_answer);
/* Appends {role, content} to a list, which has room for it. */
void row_add_message(ares_json *list, const char *role, ares_view content, ares_arena *arena);

/* ---------------- dataset.c: what a path of rows stands for */
/*
 * The rows that a path names: "rows.jsonl@[5:10]" are rows 5 to 9; either bound may be left out. A
 * path without such an end names all rows. *length: of the path without that end
 */
typedef struct path_rows {
    int64_t first, end;
    bool has_first, has_end;
} path_rows;
path_rows path_slice(const char *path, size_t *length);
/* The name of a data set: its path without folders, slice, .gz or .zst, and last extension. */
ares_view path_name(const char *path);

/*
 * The order in which rows of a data set are drawn (source.c). Its state is the number of prompts
 * drawn, and per skipped row the last epoch that the row is part of
 * (docs/data.md#order-and-epochs).
 */
typedef struct loader {
    int64_t rows;  /* of the data set */
    int64_t batch; /* prompts per call of loader_next */
    bool shuffle;
    uint64_t seed;
    const char *option; /* name of the option that batch comes from, for messages */
    int64_t drawn;      /* prompts drawn so far in the run */
    /* [rows]: the last epoch that the row is part of; LOADER_KEPT: part of every epoch */
    int64_t *skipped;
    int64_t n_skipped;
    int64_t *order; /* of the rows in epoch order_epoch; -1: none made yet */
    int64_t order_epoch;
} loader;
#define LOADER_KEPT INT64_MAX
/* Fewer rows than a batch are an error. */
int loader_init(loader *l, int64_t rows, const ares_order *order);
void loader_fini(loader *l);
/*
 * The next batch: row ids [batch]; *first_draw is the draw number of the first. Rows at the end of
 * an epoch that fill no whole batch are left out.
 */
int loader_next(loader *l, int64_t *row_ids, int64_t *first_draw);
/* The epoch of the next batch. */
int64_t loader_epoch(const loader *l);
/* Leaves the row out from the next epoch on; never undone. */
void loader_skip(loader *l, int64_t row);
/* Of a saved state: epoch is the last one that the row is part of. */
void loader_restore(loader *l, int64_t row, int64_t epoch);

/* What both kinds of sources have in their saved states (source.c). */

/* A whole number of a saved state; any other value, or none, means that the state is damaged. */
int source_load_count(const ares_json *json, const char *key, int64_t *out);
/*
 * Writes "skipped_rows": pairs [row, the last epoch that it is part of], of the rows that are not
 * LOADER_KEPT. skipped [rows]
 */
void source_save_skipped(ares_str *json, const int64_t *skipped, int64_t rows);

/* Weighted mixtures of data sets (mixture.c). */

/*
 * n prompts divided by weights [parts]: each part but the last gets its share rounded half to even,
 * the last the rest; what rounding gives too much is taken back from the last parts. Weights below
 * 0 count as 0. ARES_ECONFIG where none is above 0.
 */
int mixture_distribute(const double *weights, int parts, int64_t n, int64_t *counts);
/* The order of n rows in an epoch: slime's, a shuffle by CPython's random.Random(seed + epoch). */
void mixture_order(uint64_t seed, int64_t epoch, int64_t *order, int64_t n);

/* Stored answers (prompt.c); external, because a test compares it with VAPOR's own code. */

/* The texts of a row's stored answers; *there: it has both. Errors lack the row's place. */
int data_pair_texts(const ares_json *row, const ares_pair_options *o, ares_arena *arena,
                    ares_view *chosen, ares_view *rejected, bool *there);

/* The encoder of prompts, which also encodes stored answers to them. (prompt.c) */

struct ares_prompt_encoder {
    const ares_data_config *cfg;
    const ares_tokenizer *tokenizer;
    const ares_media_rules *row_media; /* NULL: the model reads text alone */
    int64_t limit_images;              /* of a row; 0: any number */
    ares_template *format;
    ares_chat *chat;
};

/* Ids of prompts with images and videos. (row_media.c) */

/*
 * Repeats the one token that a chat template writes for each picture or video as often as the
 * medium has tokens; the offsets of the repeated ones are those of the one. Ids that have the full
 * number of tokens already are taken as they are. Any other number is an error that names both
 * numbers.
 */
int media_expand(const ares_media_rules *r, const ares_media *media, const int32_t *ids, int64_t n,
                 const int64_t (*offsets)[2], ares_ids *out);
/*
 * The places and positions of expanded ids (docs/vision.md#positions; Wang et al., arXiv
 * 2409.12191, section 2.1). In the arena; media is borrowed.
 */
int row_media_of(const ares_media_rules *r, const ares_media *media, const int32_t *ids, int32_t n,
                 ares_arena *arena, ares_row_media *out);
#endif
