/* Runs over pictures: a model that sees, files of pictures, rows and configurations. */
#ifndef TESTS_VISION_RUNS_H
#define TESTS_VISION_RUNS_H

#include "e2e.h"

/* A Qwen2.5-VL with random weights and 190,816 parameters, made in this test's folder. */
const char *vision_model(void);

/* A PNG file of noise in this test's folder; seed: which noise. Gives its path. */
const char *vision_noise(const char *name, int w, int h, uint32_t seed);

/*
 * Eight rows at pictures.jsonl, by the names of files in this test's folder: pictures of several
 * sizes; row 2 has two, of which the first is row 0's; row 4 is text alone; row 6 has the ids of
 * row 1 and another picture; row 7 has row 1's picture and another question.
 */
const char *vision_rows(void);

/*
 * The arguments of a training run (the path of a configuration file) of that model on these rows:
 * two steps of 4 prompts x 4 answers of 12 tokens, with a reward that varies.
 */
const char *vision_words(const char *run);
/* The same of a supervised run. rows: its file */
const char *vision_sft_words(const char *run, const char *rows);

/* Trains with vision_words and more words, and checks the exit status. */
bool vision_trains(const char *run, const char *format, ...) ARES_PRINTF(2, 3);
/* Checks that such a run is refused or ends with this exit status, and says this. */
void vision_refused(int status, const char *says, const char *format, ...) ARES_PRINTF(3, 4);

/* Numbers of a checkpoint's tensors that differ from another's: of those of the name's part. */
int64_t vision_changed(const char *a, const char *b, const char *part, int64_t *tensors);
#endif
