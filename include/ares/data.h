/*
 * data: rows of a data set, the batch that carries a step, and packing.
 */
#ifndef ARES_DATA_H
#define ARES_DATA_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/io.h"
#include "ares/kernels.h"
#include "ares/template.h"
#include "ares/text.h"

/* ---------------- options: data.* (aepo.md 7.2) */
#define ARES_DATA_OPTIONS(X)                                                                      \
    X(texts, train_files, "train_files", "[]", "",                                                \
      "training rows: files of JSON lines, JSON lists, or folders of them, read in turn")         \
    X(texts, val_files, "val_files", "[]", "", "validation rows, likewise")                       \
    X(text, prompt_key, "prompt_key", "prompt", "nonempty",                                       \
      "key of the prompt: a string, or messages; a last one of the assistant is continued")       \
    X(text, answer_key, "answer_key", "answer", "nonempty", "key of the ground truth")            \
    X(text, image_key, "image_key", "images", "nonempty",                                         \
      "key of a row's images; rows that have some are refused: models read text so far")          \
    X(text, video_key, "video_key", "videos", "nonempty", "key of a row's videos; likewise")      \
    X(text, system_prompt, "system_prompt", "null", "",                                           \
      "system message put before string prompts")                                                 \
    X(text, format_prompt, "format_prompt", "null", "",                                           \
      "template file ({{ content | trim }} ...) that string prompts go through")                  \
    X(text, override_chat_template, "override_chat_template", "null", "",                         \
      "template file used instead of the model's own")                                            \
    X(flag, apply_chat_template, "apply_chat_template", "true", "",                               \
      "false: the prompt's text goes to the model as it is")                                      \
    X(i64, max_prompt_length, "max_prompt_length", "512", "[1,)",                                 \
      "tokens; longer rows are dropped, or an error")                                             \
    X(i64, max_response_length, "max_response_length", "512", "[1,)", "tokens sampled at most")   \
    X(i64, rollout_batch_size, "rollout_batch_size", "512", "[1,)", "prompts of a training step") \
    X(i64, mini_rollout_batch_size, "mini_rollout_batch_size", "null", "[0,)",                    \
      "prompts drawn at once; null: rollout_batch_size; 0: as many as the batch still lacks")     \
    X(i64, val_batch_size, "val_batch_size", "-1", "-1|[1,)",                                     \
      "prompts validated at once; -1 is all", ARES_NO_RESULT)                                     \
    X(text, val_group_key, "val_group_key", "null", "",                                           \
      "key of validation rows by which results are split: val/<key>=<value>/...")                 \
    X(flag, shuffle, "shuffle", "true", "", "a new order each epoch, by seed and epoch")          \
    X(i64, seed, "seed", "1", "[0,)", "of the order of rows")                                     \
    X(flag, filter_overlong_prompts, "filter_overlong_prompts", "true", "",                       \
      "drop rows over max_prompt_length, counted; false: an error")
ARES_OPTION_STRUCT(ares_data_config, ARES_DATA_OPTIONS);
ares_option_table ares_data_options;

/* ---------------- data set (dataset.c): rows in memory, read once, checked with file:line */
typedef struct ares_row {
    const ares_json *json; /* the whole row: other keys travel along */
    const char *file;
    int64_t line; /* for messages */
    int64_t id;   /* index in the data set */
    const int32_t *prompt;
    int32_t prompt_len;    /* encoded; filled by ares_prompt_encode */
    ares_view prompt_text; /* what was encoded */
    /* strings as they are; numbers, lists and objects as JSON; empty when the key is absent */
    ares_view ground_truth;
    const char *data_source; /* "data_source", else the file's name */
    /*
     * "global_id", a string or a number as it is written; else "example-%06d" of the index before
     * any row is dropped
     */
    const char *gid;
    bool gid_given; /* the row says it */
} ares_row;
typedef struct ares_dataset ares_dataset;
/*
 * need_answer: a row without answer_key is an error, unless it names instructions to follow. An
 * empty data set is an error.
 */
int ares_dataset_load(const ares_texts *files, const ares_data_config *cfg, bool need_answer,
                      ares_dataset **out);
/* any JSON objects: their keys are the caller's business */
int ares_dataset_load_rows(const ares_texts *files, ares_dataset **out);
void ares_dataset_free(ares_dataset *d);
int64_t ares_dataset_count(const ares_dataset *d);
const ares_row *ares_dataset_row(const ares_dataset *d, int64_t i);
/*
 * gid -> row. Two rows of the same gid are an error that names both lines: what remembers prompts
 * would mix them up.
 */
int ares_dataset_gids(const ares_dataset *d, ares_map **out);
/*
 * Renders (format prompt, system prompt, chat template) and encodes every row on the pool, then
 * drops the overlong (counted in *dropped, logged with the longest) or fails. A set left empty is
 * an error. (prompt.c)
 */
typedef struct ares_prompt_encoder ares_prompt_encoder;
int ares_prompt_encoder_new(const ares_data_config *cfg, const char *model_dir,
                            const ares_tokenizer *tok, ares_prompt_encoder **out);
void ares_prompt_encoder_free(ares_prompt_encoder *e);
/* NULL: prompts are plain text */
const ares_chat *ares_prompt_encoder_chat(const ares_prompt_encoder *e);
/* through the format prompt, where there is one */
int ares_prompt_format(const ares_prompt_encoder *e, ares_view text, ares_str *out);
/* A template's variables for a row's prompt (a string, or a list of messages), followed by an
 * assistant's answer, which goes on with the last message where that is the assistant's. Where
 * answer is NULL the text is ready for one: it ends with the generation prompt, or stays open
 * there. In the arena. */
int ares_prompt_conversation(const ares_prompt_encoder *e, const ares_json *prompt,
                             const ares_view *answer, ares_arena *arena,
                             const ares_json **variables);
int ares_dataset_encode(ares_dataset *d, const ares_prompt_encoder *e, ares_pool *pool,
                        int64_t *dropped);

/* ---------------- loader (loader.c): the order of rows. State: prompts drawn, rows skipped and
 * since when. */
typedef struct ares_loader {
    int64_t rows, batch; /* of the data set; prompts of one call */
    bool shuffle;
    uint64_t seed;
    int64_t drawn; /* prompts drawn so far in the run */
    /* [rows]: the last epoch the row is part of; ARES_LOADER_KEPT: of all */
    int64_t *skipped;
    int64_t n_skipped;
    int64_t *order;
    int64_t order_epoch;
} ares_loader;
#define ARES_LOADER_KEPT INT64_MAX
/* fewer rows than a batch: an error */
int ares_loader_init(ares_loader *l, int64_t rows, int64_t batch, bool shuffle, uint64_t seed);
void ares_loader_fini(ares_loader *l);
/*
 * The next batch: row ids [batch]; *first_draw is the draw number of the first. Epochs follow each
 * other; a short rest is left out.
 */
int ares_loader_next(ares_loader *l, int64_t *row_ids, int64_t *first_draw);
int64_t ares_loader_epoch(const ares_loader *l);
/* from the next epoch on; never undone */
void ares_loader_skip(ares_loader *l, int64_t row);
/* of a saved state: skipped[row] = epoch */
void ares_loader_restore(ares_loader *l, int64_t row, int64_t epoch);

/* ---------------- batch (batch.c): plain host arrays, ragged, no padding anywhere */
typedef struct ares_sample {
    int64_t draw;  /* number of the prompt drawn in the run: the group's uid */
    int32_t index; /* 0 .. n-1 in its group */
    /*
     * rows of a group with the same number are turns of one episode; 0: the row is one by itself
     */
    int64_t episode;
    const ares_row *row;
    const int32_t *prompt;
    int32_t prompt_len;
    ares_view response;     /* decoded */
    bool stopped;           /* by a stop token or string, not by length */
    bool token_exact;       /* the tokens are the ones sampled, untouched */
    int64_t weight_version; /* optimizer steps before it was sampled */
    /* of the reward manager; accuracy is NaN where no reward gives one */
    float score, accuracy;
    const float *reward_parts; /* one per configured reward, unweighted */
    float baseline;            /* score of the greedy answer to the same prompt (remax) */
    /* ares_difficulty of the prompt, as a control sees it; 0: none does */
    int32_t difficulty;
    /* high-window-entropy tokens, and what their number should be (AEPO) */
    int32_t hwe_count;
    float hwe_target, entropy_alpha; /* entropy_alpha: weight of the entropy score */
} ares_sample;
typedef enum {
    ARES_DIFFICULTY_NONE,
    ARES_EASY,
    ARES_MEDIUM,
    ARES_HARD,
    ARES_DIFFICULTIES
} ares_difficulty;
/* "none", "easy", "medium", "hard" */
extern const char *const ares_difficulty_names[ARES_DIFFICULTIES];

/*
 * The columns: element type, name, the stage of ares_train_step that writes it, what it holds.
 * Whatever concerns all columns (the fields below, clearing, selecting groups, the error for a
 * missing column) expands this list.
 */
#define ARES_BATCH_LIST(X)                                                                       \
    X(i32, responses, "gen", "ids after the prompt, tool and environment text included")         \
    X(u8, response_mask, "gen", "1 where the policy wrote the token")                            \
    X(f32, rollout_log_probs, "gen", "as sampled, at the rollout temperature")                   \
    X(f32, entropies, "gen", "exact, full vocabulary, at the rollout temperature")               \
    X(f32, entropies_1, "gen", "at temperature 1, as worker.rollout.entropy_mode says")          \
    X(u8, turn_ends, "gen",                                                                      \
      "1 on the last token of each turn of the policy; absent: a row is one turn")               \
    X(u8, hwe_candidates, "gen",                                                                 \
      "1 where the token may count as a high-entropy one; absent: every token may (AEPO)")       \
    X(u8, hwe, "observe", "1 where the window after the token reaches the threshold (AEPO)")     \
    X(f32, window_entropies, "observe",                                                          \
      "mean entropy of the window after the token; -1 where there is none (AEPO)")               \
    X(f32, kl_weight, "observe", "factor of the KL term; absent: 1")                             \
    X(f32, token_level_scores, "score", "of the reward manager")                                 \
    X(f32, old_log_probs, "old", "under the policy before this step, at the loss temperature")   \
    X(f32, ref_log_probs, "ref", "under the reference model, at the loss temperature")           \
    X(f32, values, "values", "of the critic: the state before the token")                        \
    X(f32, token_level_rewards, "shape", "scores, less the KL where it is part of the reward")   \
    X(f32, advantages, "adv", "0 where the mask is 0")                                           \
    X(f32, returns, "adv", "0 where the mask is 0")                                              \
    X(f32, kl, "update_actor",                                                                   \
      "to the reference as kl_penalty estimates it, unweighted, of the update's last pass over " \
      "the token; where KL is part of the reward, stage shape writes it instead")
typedef int32_t ares_column_i32;
typedef uint8_t ares_column_u8;
typedef float ares_column_f32;

/* KL of a row as an optimizer step of the actor saw it: mean over its tokens, unweighted. */
typedef struct ares_row_kl {
    int64_t row, update;
    double kl;
} ares_row_kl;

typedef struct ares_batch {
    int64_t rows, groups, tokens;
    /* [rows + 1]: row r owns [row_start[r], row_start[r+1]) of every column */
    int64_t *row_start;
    int64_t *group_start; /* [groups + 1]: rows of a group are adjacent */
    ares_sample *samples; /* [rows] */
    /* the columns, [tokens] each; NULL until put */
#define ARES_BATCH_FIELD_(type, name, owner, doc) ares_column_##type *name;
    ARES_BATCH_LIST(ARES_BATCH_FIELD_)
#undef ARES_BATCH_FIELD_
    double advantage_scale; /* what filters take off the advantages; 1 without */
    /* weight of the KL term in this step: the option's, or a control's */
    double kl_coef;
    /*
     * of the actor's optimizer steps on the batch, numbered from 0 alike on every rank
     * (ares_kl_see)
     */
    ares_row_kl *row_kl;
    int64_t n_row_kl, updates;
    int64_t row_cap, group_cap;
    ares_arena arena; /* the step's: texts, prompts, parts */
} ares_batch;
void ares_batch_init(ares_batch *b);
void ares_batch_fini(ares_batch *b);
void ares_batch_clear(ares_batch *b); /* forgets rows and the arena; keeps memory */
/*
 * Whether a row counts: one of its tokens has mask 1, or it has none (an empty answer). A discarded
 * answer, all of mask 0, counts nowhere.
 */
bool ares_batch_row_counts(const ares_batch *b, int64_t row);
void ares_batch_begin_group(ares_batch *b); /* rows added next belong to a new group */
/* before any column is put; gives the row's first token */
int64_t ares_batch_add_row(ares_batch *b, const ares_sample *s, int64_t n_tokens);
/*
 * ARES_PUT(b, column): the column's storage, zeroed. The stage that owns the column calls it once;
 * a second call aborts.
 */
#define ARES_PUT(b, name) ((b)->name = ares_batch_put((b), (b)->name, sizeof *(b)->name, #name))
void *ares_batch_put(ares_batch *b, const void *present, size_t size, const char *name);
/*
 * ARES_NEED(b, stage, column): ARES_ESTATE where the column has not been put, with the owner that
 * ARES_BATCH_LIST names: "update_critic: needs column 'values', which stage 'values' makes".
 */
#define ARES_NEED(b, stage, name) ares_batch_need((stage), #name, (b)->name)
int ares_batch_need(const char *stage, const char *column, const void *present);
/*
 * The token that a row's score belongs to: the last of mask 1, the last of all where the mask shows
 * none; -1: the row has no token.
 */
int64_t ares_batch_last_token(const ares_batch *b, int64_t row);
/* Keeps the groups whose flag is set, in order; all columns follow. */
void ares_batch_select_groups(ares_batch *b, const bool *keep);

/* ---------------- packing (pack.c): rows -> packed tokens
 * A micro-batch is a run of consecutive rows. share: the prompt of a group is one segment and its
 * samples see it as their prefix, so a group is never split; each different prompt of a group is a
 * segment of its own. Otherwise each row is prompt + response. The last response token is not fed:
 * nothing follows it.
 */
typedef struct ares_packed {
    int32_t rows;             /* tokens */
    const int32_t *ids;       /* [rows] */
    const int32_t *positions; /* [rows]; M-RoPE will take three axes */
    ares_segments seg;        /* host arrays */
    /*
     * [seg.n] of the whole sequence, the token that is not fed included; NULL: what is fed. Matters
     * to dynamic rope only
     */
    const int32_t *length;
    const int32_t *slots; /* [rows], paged only: where store_kv puts each row */
    float *cache;         /* paged: [layers][cache_layer_floats]; NULL: packed */
    int64_t cache_layer_floats;
    /* rows whose hidden states the head wants; a row may be named more than once */
    int32_t n_out;
    const int32_t *out_rows; /* [n_out] */
} ares_packed;

/* batch rows [row, end); fed tokens; head rows */
typedef struct ares_micro_batch {
    int64_t row, end;
    int64_t tokens, out;
} ares_micro_batch;
/*
 * Cuts rows [row, end) into micro-batches of at most max_tokens fed tokens each (a single row or
 * shared group may exceed it), written to out [end - row]; returns their number.
 */
int64_t ares_pack_plan(const ares_batch *b, int64_t row, int64_t end, int64_t max_tokens,
                       bool share, ares_micro_batch *out);
/*
 * Rows that go through a model together and need not be neighbours: runs of consecutive rows, in
 * batch order. For passes in which no row's result depends on the rows beside it (log-probs,
 * values).
 */
typedef struct ares_micro_set {
    int64_t n;
    const ares_micro_batch *runs;
    int64_t tokens, out; /* sums over the runs */
} ares_micro_set;
/*
 * Rows [row, end) as sets of even numbers of tokens (EasyR1's dynamic micro-batches), bounded as
 * ares_pack_plan bounds its cuts. Every 512 units (shared groups, or rows) are balanced by
 * themselves and make no more sets than cuts. In the arena: *out [*n].
 */
int ares_pack_sets(const ares_batch *b, int64_t row, int64_t end, int64_t max_tokens, bool share,
                   ares_arena *arena, ares_micro_set **out, int64_t *n);
/*
 * Copies numbers of a set's head rows to where their tokens stand; column is about batch tokens
 * from `first` on.
 */
void ares_pack_scatter(const ares_batch *b, const ares_micro_set *m, const float *x, int64_t first,
                       float *column);
/*
 * n_out = response tokens of the rows, in batch order: head row i is about token row_start[m->row]
 * + i; targets [n_out] are these tokens.
 */
void ares_pack_build(const ares_batch *b, const ares_micro_batch *m, bool share, ares_arena *arena,
                     ares_packed *out, const int32_t **targets);
/* The same of a set: head rows follow its runs. */
void ares_pack_build_set(const ares_batch *b, const ares_micro_set *m, bool share,
                         ares_arena *arena, ares_packed *out, const int32_t **targets);
#endif
