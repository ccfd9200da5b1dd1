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
/* The texts of ids [0, n); data NULL: the id is not defined. */
typedef struct token_table {
    const ares_view *text;
    int64_t n;
} token_table;
typedef struct same_tokens {
    int64_t readable;    /* ids below which both heads have a logit: the smaller head's rows */
    int64_t only_one;    /* ids that only one of the two tables defines */
    const char *refused; /* NULL: the teacher fits; "token" or "vocabulary" */
    int32_t id;          /* of the refusal: the first id of two texts; the student's largest id */
} same_tokens;
/* student_vocab, teacher_vocab: rows of the heads. */
void same_tokens_compare(const token_table *student, const token_table *teacher,
                         int64_t student_vocab, int64_t teacher_vocab, same_tokens *out);
/*
 * Whether the teacher at `path` (a model, checkpoint or run directory), with `vocab` rows of its
 * head, reads the student's ids as the student means them. Warns of ids that only one has, and of a
 * directory without a tokenizer. *readable: as in same_tokens.
 */
int teacher_check_tokens(const ares_tokenizer *student, int64_t student_vocab, const char *path,
                         int64_t vocab, int64_t *readable);
/* What a teacher can read: ids below `readable`, sequences of so many tokens. */
typedef struct teacher_limits {
    int64_t readable, positions;
} teacher_limits;
/*
 * Checks the teacher that the options name against the student, by its config.json and tokenizer
 * alone; a teacher of the policy's own weights has the student's limits.
 */
int teacher_check(const ares_distillation_config *c, const ares_tokenizer *tokenizer,
                  const ares_model_config *student, teacher_limits *out);

/* ---------------- texts */
/* The names of each template, in the order of its values. */
enum { TEACHER_NAMES = 3 };
typedef struct teacher_template {
    const char *option, *names[TEACHER_NAMES];
} teacher_template;
typedef enum {
    TEACHER_ROW,      /* prompt, privileged_context */
    TEACHER_REPROMPT, /* prompt, solution, feedback */
    TEACHER_SOLUTION, /* successful_previous_attempt */
    TEACHER_FEEDBACK, /* feedback_raw */
    TEACHER_TEMPLATES
} teacher_template_kind;
extern const teacher_template teacher_templates[TEACHER_TEMPLATES];
/* The text of a template, from the options. */
const char *teacher_template_text(const ares_distillation_config *c, teacher_template_kind k);
/*
 * Appends the template with its {names} replaced in one pass; {{ and }} are braces. false: it has
 * another {word}, *unknown. values NULL: looks only.
 */
bool teacher_fill(const char *text, teacher_template_kind k, const ares_view *values, ares_str *out,
                  ares_view *unknown);
/*
 * The privileged context of a row, appended to out; false: it is absent, null or white space alone.
 */
bool teacher_context(const ares_json *row, const char *key, ares_str *out);
/*
 * The text of the user's message that a prompt ends with; of a string, the string. Fails where the
 * last message is not the user's.
 */
int teacher_prompt_text(const ares_json *prompt, ares_str *out);
/* The prompt with this text in place of that one; parts that are no text stay before it. */
const ares_json *teacher_prompt_with(const ares_json *prompt, ares_view text, ares_arena *arena);

/* An answer of a group, as SDPO looks at it. */
typedef struct teacher_answer {
    float score;
    bool usable;        /* it is trained on; over-long and failed answers are not */
    ares_view feedback; /* of its judge; or empty */
    /* written by teacher_choose */
    int32_t solution_from;            /* the answer of the group that is shown; -1: none */
    bool successful, available, told; /* available, told: feedback is there; is shown */
} teacher_answer;
void teacher_choose(const ares_distillation_config *c, teacher_answer *answers, int64_t n);
/* The text of a demonstration, appended: without its thoughts where the options say so. */
void teacher_demonstration(const ares_distillation_config *c, ares_view response, ares_str *out);
/* The teacher's last message, appended, from a text or NULL of both. */
void teacher_reprompt(const ares_distillation_config *c, ares_view prompt,
                      const ares_view *demonstration, const ares_view *feedback, ares_str *out);

/* ---------------- of a run */
typedef struct teacher_texts teacher_texts;
typedef struct teacher_texts_options {
    const ares_train_config *cfg; /* these four are borrowed */
    const ares_tokenizer *tokenizer;
    const ares_prompt_encoder *encoder;
    ares_pool *pool;
    teacher_limits limits; /* of teacher_check */
} teacher_texts_options;
teacher_texts *teacher_texts_new(const teacher_texts_options *o);
void teacher_texts_free(teacher_texts *t); /* NULL is fine */
/*
 * Fails where a prompt that gets a context has no last message of the user, naming the row; and,
 * where these are all rows of a run, if none has the context that the options ask for.
 */
int teacher_texts_check_rows(const ares_distillation_config *c, const ares_data_config *data,
                             const ares_source *rows, bool all);
/*
 * Sets in each ares_sample, before stage score, which may add to the scores, and before the pass of
 * the teacher:
 *   distilled           1: the row has a teacher
 *   teacher_prompt      [teacher_prompt_len] ids that the teacher reads before the row's response,
 *                       with teacher_row_media; NULL: the student's prompt
 *   teacher_text        the text of it, for rollouts/; empty without a context
 * They live until the next call. Metrics: distillation/overlong_frac, unreadable_frac,
 * reprompt_sample_fraction, and with context group success_group_fraction, success_sample_fraction,
 * feedback_available_fraction, feedback_used_fraction. A collective.
 */
int teacher_texts_fill(teacher_texts *t, ares_world *world, ares_batch *b, ares_metrics *m);
#endif
