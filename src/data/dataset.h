#ifndef ARES_DATA_DATASET_H
#define ARES_DATA_DATASET_H

#include "ares/data.h"

struct ares_dataset {
    ares_arena arena;
    ares_row *rows;
    int64_t count, cap;
    ares_arena *of_worker; /* [n_workers] what threads of the pool make of the rows */
    int n_workers;
};

int dataset_load(const ares_texts *files, const ares_data_config *cfg, bool need_answer,
                 ares_dataset **out);

/* ---------------- row.c */
/* NULL: the row has no answer; JSON's null counts as none. */
const ares_json *row_answer(const ares_data_config *cfg, const ares_json *row);
/* Where verl's rows have their answer, which is read unless data.answer_key is set. */
#define ROW_VERL_ANSWER "reward_model.ground_truth"
int row_check(const ares_data_config *cfg, const char *file, int64_t line, const ares_json *row,
              bool need_answer);

/* ---------------- slice.c */
/*
 * The rows that a path names: "rows.jsonl@[5:10]" are rows 5 to 9, either bound may be left out.
 * *length: of the path without them. A path that does not end so names all rows.
 */
typedef struct row_slice {
    int64_t first, end;
    bool has_first, has_end;
} row_slice;
row_slice slice_of(const char *path, size_t *length);
/* The name of a data set: its path without folders, slice, .gz or .zst, and last extension. */
ares_view slice_name(const char *path);
#endif
