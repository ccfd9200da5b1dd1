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
/* Fails where one of the messages under `key` has no role, or the list is empty. */
int row_check_messages(const ares_json *messages, const char *key);
/* given: the row as it was before its prompt was adopted, whose answer is looked at */
int row_check(const ares_data_config *cfg, const char *file, int64_t line, const ares_json *row,
              const ares_json *given, bool need_answer);

/* ---------------- path.c: what a path of rows stands for */
/*
 * The rows that a path names: "rows.jsonl@[5:10]" are rows 5 to 9, either bound may be left out.
 * *length: of the path without them. A path that does not end so names all rows.
 */
typedef struct path_rows {
    int64_t first, end;
    bool has_first, has_end;
} path_rows;
path_rows path_slice(const char *path, size_t *length);
/* The name of a data set: its path without folders, slice, .gz or .zst, and last extension. */
ares_view path_name(const char *path);
bool path_ends(const char *path, const char *end);
/* Calls f for each file of a path without a slice, in order. */
typedef int path_file(void *ctx, const char *file);
int path_each(const char *path, path_file *f, void *ctx);
#endif
