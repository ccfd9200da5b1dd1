/*
 * Private to train: what the teacher of a distillation reads in place of the student's prompts, and
 * whether it can read the student's tokens at all (docs/distillation.md). (teacher_texts.c)
 */
#ifndef ARES_TRAIN_TEACHER_TEXTS_H
#define ARES_TRAIN_TEACHER_TEXTS_H

#include "ares/algo_distill.h"
#include "ares/data_source.h"
#include "ares/train.h"

/* ---------------- tokens */
/* What ids mean: their texts by id. text of an id that is not defined has data NULL. */
typedef struct token_table {
    int64_t n; /* ids are below */
    ares_view (*text)(const void *ctx, int32_t id);
    const void *ctx;
} token_table;
token_table token_table_of(const ares_tokenizer *t);
typedef struct same_tokens {
    int64_t
        readable; /* ids below which both heads have a logit: the smaller of both vocabularies */
    int64_t only_one;    /* ids that only one of the two tables defines */
    const char *refused; /* NULL: the teacher fits; "token" or "vocabulary" */
    int32_t id;          /* of the refusal: the first id of two texts; the student's largest id */
} same_tokens;
/* student_vocab, teacher_vocab: rows of the heads. */
void same_tokens_compare(const token_table *student, const token_table *teacher,
                         int64_t student_vocab, int64_t teacher_vocab, same_tokens *out);
/*
 * Of the teacher in directory `dir`, with `vocab` rows of its head: fails, naming
 * distillation.teacher_model.model_path, where ids differ; warns of ids that only one has, and of a
 * directory without a tokenizer. *readable: as in same_tokens.
 */
int teacher_check_tokens(const ares_tokenizer *student, int64_t student_vocab, const char *dir,
                         int64_t vocab, int64_t *readable);

/* ---------------- texts */
/*
 * Appends a template with its {names} replaced in one pass; {{ and }} are braces. values [n] belong
 * to names [n]. ARES_ECONFIG with the names where the template has another {word}. values NULL:
 * only checks the template, out may be NULL.
 */
int teacher_fill(const char *option, const char *text, const char *const *names,
                 const ares_view *values, int n, ares_str *out);
/*
 * The privileged context of a row; *there: false where it is absent, null or white space alone.
 */
void teacher_context(const ares_json *row, const char *key, ares_str *out, bool *there);

typedef struct teacher_texts teacher_texts;
typedef struct teacher_texts_options {
    const ares_train_config *cfg; /* these four are borrowed */
    const ares_tokenizer *tokenizer;
    const ares_prompt_encoder *encoder;
    ares_pool *pool;
    int64_t readable;  /* ids of prompt and answer must be below; of teacher_check_tokens */
    int64_t positions; /* of the teacher: tokens of prompt and answer at most */
} teacher_texts_options;
int teacher_texts_open(const teacher_texts_options *o, teacher_texts **out);
void teacher_texts_close(teacher_texts *t); /* NULL is fine */
/*
 * Fails where the options ask for the context of rows and no row of the data has one:
 * "no row has 'solution'".
 */
int teacher_texts_check_rows(const ares_train_config *c, const ares_source *rows);
/*
 * Sets in each ares_sample, once scores are known (column token_level_scores is put) and before the
 * pass of the teacher:
 *   distilled           1: the row has a teacher
 *   teacher_prompt      [teacher_prompt_len] ids that the teacher reads before the row's response,
 *                       with teacher_row_media; NULL: the student's prompt
 *   teacher_text        the text of it, for rollouts/; empty without a context
 * and distillation/overlong_frac, unreadable_frac, reprompt_sample_fraction, and with context group
 * success_group_fraction, success_sample_fraction, feedback_available_fraction and
 * feedback_used_fraction. Rows of stored answers (lmbda) are rows like others. A collective.
 */
int teacher_texts_fill(teacher_texts *t, ares_world *world, ares_batch *b, ares_metrics *m);
#endif
