/* Parts of --check that runs by rewards and supervised ones have in common. (check_files.c) */
#ifndef ARES_TRAIN_RUN_CHECK_FILES_H
#define ARES_TRAIN_RUN_CHECK_FILES_H

#include "run/training.h"

/*
 * Model and tokenizer, without a weight, and whether a checkpoint that is named fits them. Without
 * such a model on this machine t->model stays NULL.
 */
int check_open_model(training *t);
/* The first rows of a file; *d is NULL where it is not on this machine. */
int check_open_rows(const ares_row_file *file, const ares_data_config *data, bool need_answer,
                    ares_dataset **d);
/*
 * rc, with the pending error, unless it says that all of the first rows are left out by their
 * lengths: where that is how the run treats them (drops), others may be shorter.
 */
int check_lengths(int rc, bool drops);
#endif
