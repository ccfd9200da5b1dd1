/*
 * data: rows of a data set, their prompts as tokens, the batch that carries a training step, and
 * packing. Where a run's prompts come from: data_source.h.
 */
#ifndef ARES_DATA_H
#define ARES_DATA_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/io.h"
#include "ares/kernels.h"
#include "ares/media.h"
#include "ares/text.h"

/* ---------------- options: data.* (docs/design.md#option-names, docs/data.md#options) */
#define ARES_DATA_OPTIONS(X)                                                                       \
    X(texts, train_files, "train_files", "[]", "",                                                 \
      "training rows: files of JSON lines or of one JSON list, or folders of such files, read in " \
      "the order given")                                                                           \
    X(texts, val_files, "val_files", "[]", "",                                                     \
      "validation rows: files or folders, as in data.train_files")                                 \
    X(text, prompt_key, "prompt_key", "prompt", "nonempty",                                        \
      "key of a row's prompt, or a path as in conversations[0].value: a string, or a list of "     \
      "messages; where the last message is the assistant's, the response continues it")            \
    X(text, answer_key, "answer_key", "answer", "nonempty",                                        \
      "key of a row's ground truth, or a path as in extra_info.answer; where the default finds "   \
      "none, it is reward_model.ground_truth, as verl's rows have it")                             \
    X(text, metadata_key, "metadata_key", "metadata", "nonempty",                                  \
      "key of a row's metadata, a map in which verifiers look for rm_type and their own keys")     \
    X(text, image_key, "image_key", "images", "nonempty",                                          \
      "key of a row's images: a list of paths, of bytes in base64, or of {bytes, path} "           \
      "(docs/vision.md#rows)")                                                                     \
    X(text, video_key, "video_key", "videos", "nonempty",                                          \
      "key of a row's videos: a list of paths, or of lists of frames (docs/vision.md#rows)")       \
    X(text, image_dir, "image_dir", "null", "",                                                    \
      "folder in which relative paths of images and videos begin; null: the working directory")    \
    X(f64, video_fps, "video_fps", "2.0", "(0,1000]", "frames per second taken from a video")      \
    X(i64, min_pixels, "min_pixels", "262144", "?[1,)",                                            \
      "images of fewer pixels are enlarged; null: no limit but the processor's of the model")      \
    X(i64, max_pixels, "max_pixels", "4194304", "?[1,)",                                           \
      "images of more pixels are shrunk; null: no limit but the processor's of the model")         \
    X(f64, vision_cache_gb, "vision_cache_gb", "2.0", "[0,)",                                      \
      "host memory for what a frozen vision tower makes of images and videos, kept over steps; "   \
      "changes speed, no result",                                                                  \
      ARES_NO_RESULT)                                                                              \
    X(text, system_prompt, "system_prompt", "null", "",                                            \
      "system message put before prompts that are strings")                                        \
    X(text, format_prompt, "format_prompt", "null", "",                                            \
      "file of a Jinja template ({{ content | trim }} ...) applied to prompts that are strings")   \
    X(text, override_chat_template, "override_chat_template", "null", "",                          \
      "file of a chat template that replaces the model's own")                                     \
    X(tree, chat_template_kwargs, "chat_template_kwargs", "{}", "map",                             \
      "variables of the chat template for every row that has none of its own, as in "              \
      "{enable_thinking: false}")                                                                  \
    X(flag, apply_chat_template, "apply_chat_template", "true", "",                                \
      "render prompts with the chat template; false: the model reads the prompt's text as it is")  \
    X(i64, max_prompt_length, "max_prompt_length", "512", "[1,)",                                  \
      "most tokens of a prompt; data.filter_overlong_prompts says what happens to longer ones")    \
    X(i64, max_response_length, "max_response_length", "512", "[1,)",                              \
      "most tokens sampled per response")                                                          \
    X(i64, rollout_batch_size, "rollout_batch_size", "512", "[1,)", "prompts per training step")   \
    X(i64, mini_rollout_batch_size, "mini_rollout_batch_size", "null", "[0,)",                     \
      "prompts drawn at once while the batch of a step is filled; null: "                          \
      "data.rollout_batch_size; 0: as many as the batch still lacks")                              \
    X(i64, val_batch_size, "val_batch_size", "-1", "-1|[1,)",                                      \
      "prompts validated at once; -1: all", ARES_NO_RESULT)                                        \
    X(text, val_group_key, "val_group_key", "null", "",                                            \
      "key of validation rows whose values split the results: val/<key>=<value>/...")              \
    X(flag, shuffle, "shuffle", "true", "",                                                        \
      "draw the rows in a new order each epoch, made from data.seed and the epoch's number")       \
    X(i64, seed, "seed", "1", "[0,)", "seed of the order in which rows are drawn")                 \
    X(flag, filter_overlong_prompts, "filter_overlong_prompts", "true", "",                        \
      "drop rows whose prompt is longer than data.max_prompt_length, and count them; false: such " \
      "a row is an error")                                                                         \
    X(flag, filter_unreadable_media, "filter_unreadable_media", "false", "",                       \
      "drop rows whose images or videos cannot be read or do not fit their places in the prompt, " \
      "and count them: each is decoded once when the run starts; false: such a row is an error")
ARES_OPTION_STRUCT(ares_data_config, ARES_DATA_OPTIONS);
ares_option_table ares_data_options;

/* ---------------- data set (dataset.c): rows in memory, read once, checked with file and line */
typedef struct ares_row {
    const ares_json *json; /* the whole row, with all its keys */
    const char *file;
    int64_t line;          /* for messages */
    int64_t id;            /* index in the data set */
    int32_t part;          /* number of the file or folder that it was read from */
    const int32_t *prompt; /* [prompt_len] token ids; set by ares_dataset_encode */
    int32_t prompt_len;
    const ares_row_media *row_media; /* images and videos of the prompt; NULL: it is text alone */
    ares_view prompt_text;           /* the text that was encoded */
    /* a string as it is; a number, list or object as JSON; empty when the key is absent */
    ares_view ground_truth;
    bool structured; /* ground_truth is a list or an object, which few verifiers read */
    /* ares_row_file.source where that is given, else the row's "data_source", else the file's name
     */
    const char *data_source;
    /*
     * The row's "global_id", a string or a number as it is written; else "example-%06d" of its
     * index before any row is dropped.
     */
    const char *gid;
    bool gid_given; /* the row has a "global_id" */
} ares_row;
typedef struct ares_dataset ares_dataset;
typedef struct ares_row_file {
    const char *path;   /* a file or folder; "@[a:b]" at its end: its rows a to b - 1, from 0 */
    const char *source; /* the data_source of its rows; NULL: their own */
    /* an object whose members replace those of each row's "metadata"; borrowed for the life of the
     * data set; NULL: none */
    const ares_json *metadata;
    int64_t limit; /* rows to read at most; 0: all of them */
    /* keys, ended by a NULL: the first of them that a row has may be in another program's form
     * (ares_row_adopt), and the last of them is the key of a prompt; borrowed; NULL: the options'
     * prompt_key */
    const char *const *keys;
} ares_row_file;
/*
 * Reads the rows of files [n]; each file must give at least one row. need_answer: a row without
 * answer_key is an error, unless it names instructions to follow.
 */
int ares_dataset_load_files(const ares_row_file *files, int64_t n, const ares_data_config *cfg,
                            bool need_answer, ares_dataset **out);
/*
 * The value at a path of keys and places in lists, as in "extra_info.answer" or "turns[0].value"; a
 * negative place counts from the end of the list. A key that is spelled like the whole path comes
 * first. NULL: there is no value.
 */
const ares_json *ares_row_at(const ares_json *row, const char *path);
/*
 * Fails with "row has WHAT (keys: a, b.c); set OPTION". The keys inside the row's objects are
 * written as paths, so that each can be given to an option.
 */
int ares_row_lacks(const ares_json *row, const char *what, const char *option);
/*
 * A list of messages with ShareGPT's {from, value} turned to {role, content}, in the arena. Fails
 * where a message has no role, or the list is empty. key: where the list stands, for errors
 */
int ares_row_messages(const ares_json *list, const char *key, ares_arena *arena,
                      const ares_json **out);
/*
 * Turns what the row has under the key to our form (row.c): ShareGPT's messages; and, where
 * `prompt` says that the key is that of prompts, Alpaca's instruction, input and history, if the
 * key is "instruction" or the row has nothing under it. `system` beside either becomes the first
 * message. *out: a new row without the keys that went into the value, or the row itself (most
 * rows).
 */
int ares_row_adopt(const ares_json *row, const char *key, bool prompt, ares_arena *arena,
                   const ares_json **out);
/* Whether the row has Alpaca's instruction, with an output or a pair of stored answers. */
bool ares_row_is_alpaca(const ares_json *row);
/* Reads rows that may be any JSON objects: their keys are not checked. keys: as in ares_row_file */
int ares_dataset_load_rows(const ares_texts *files, const char *const *keys, ares_dataset **out);
/*
 * A hash of the contents and names of the files of a path; names count because a folder's rows come
 * in their order. A slice has the hash of its whole file.
 */
int ares_rows_fingerprint(const char *path, uint64_t *out);
void ares_dataset_free(ares_dataset *d);
/* One arena per thread of the pool, whose memory lives as long as the data set. */
ares_arena *ares_dataset_arenas(ares_dataset *d, const ares_pool *pool);
int64_t ares_dataset_count(const ares_dataset *d);
const ares_row *ares_dataset_row(const ares_dataset *d, int64_t i);
/* Drops rows i where keep[i] is false. Ids are given anew; pointers to rows are void. */
void ares_dataset_keep(ares_dataset *d, const bool *keep);

/* ---------------- prompts (prompt.c): format prompt, system prompt, chat template, tokens */
typedef struct ares_prompt_encoder ares_prompt_encoder;
typedef struct ares_prompt_options {
    const ares_data_config *cfg; /* these three are borrowed for the encoder's life */
    const ares_tokenizer *tokenizer;
    const ares_media_rules *row_media; /* NULL: the model reads text alone */
    int64_t limit_images;              /* most images of a row; 0: any number */
    const char *model_dir;             /* its chat template is used */
} ares_prompt_options;
int ares_prompt_encoder_new(const ares_prompt_options *o, ares_prompt_encoder **out);
void ares_prompt_encoder_free(ares_prompt_encoder *e);
/* NULL: prompts are plain text. */
const ares_chat *ares_prompt_encoder_chat(const ares_prompt_encoder *e);
/* Appends the text as data.format_prompt renders it, or as it is without that option. */
int ares_prompt_format(const ares_prompt_encoder *e, ares_view text, ares_str *out);
/*
 * The variables of a chat template: all keys of the row, with these messages in place of its own.
 * `ready` names the variable that is set to true, add_generation_prompt or continue_final_message
 * (a NULL view: neither). In the arena.
 */
const ares_json *ares_prompt_variables(const ares_json *row, const ares_json *messages,
                                       ares_view ready, ares_arena *arena);
/*
 * The same for a row's prompt (a string, or a list of messages) and the assistant's answer to it.
 * Where the prompt's last message is the assistant's, the answer continues it. With answer NULL the
 * rendered text is ready for an answer: it ends with the generation prompt, or with the open last
 * message.
 */
int ares_prompt_conversation(const ares_prompt_encoder *e, const ares_json *row,
                             const ares_json *prompt, const ares_view *answer, ares_arena *arena,
                             const ares_json **variables);
/*
 * Warns, with numbers of rows, of what has no effect: tools and documents that the chat template
 * does not read; images and videos under another key than the option's; a format prompt and a
 * system prompt where prompts are messages. messages_key: where rows may have a conversation in
 * place of a prompt; NULL: nowhere.
 */
void ares_prompt_tell_unread(const ares_prompt_encoder *e, const ares_dataset *d,
                             const char *messages_key);
/*
 * The images and videos of a row (row_media.c; docs/vision.md#prompts): lists of entries for
 * media_open, under the row's keys or in parts of its messages (NULL: there are none). In the
 * arena.
 */
typedef struct ares_prompt_media {
    const ares_json *images, *videos; /* NULL: none */
    /* a part of a message that names no image or video while the row lists none either; NULL */
    const ares_json *bare;
    /* "image" or "video" where the row has that key, and nothing under `key`, which is read; NULL
     */
    const char *unread, *key;
} ares_prompt_media;
int ares_prompt_media_of(const ares_data_config *cfg, const ares_json *row,
                         const ares_json *messages, ares_arena *arena, ares_prompt_media *out);
/*
 * Fails where the row has images or videos and the model reads text alone, because its template
 * might drop them in silence; and where a part of a message stands for one that is not given.
 */
int ares_prompt_check_media(const ares_prompt_encoder *e, const ares_prompt_media *m);
/* The variables with <image> and <video> in the messages' strings turned to parts of messages. */
const ares_json *ares_prompt_place_media(const ares_json *variables, const ares_prompt_media *m,
                                         ares_arena *arena);
/*
 * Reads the headers of images and videos, and repeats the token that stands for each of them as
 * often as it needs. *row_media: in the arena, which must live as long; NULL: there are none, and
 * the ids stay as they are.
 */
int ares_prompt_see(const ares_prompt_encoder *e, const ares_prompt_media *m, ares_arena *arena,
                    ares_ids *ids, const ares_row_media **row_media);
/*
 * Rows that are left out because of their images or videos (prompt.c), where the options say so.
 * thin: one side is too long for the other; unreadable: they cannot be read, or do not fit their
 * places in the prompt.
 */
typedef struct ares_unseen {
    int64_t thin, unreadable;
} ares_unseen;
/*
 * Decodes a row's media once where data.filter_unreadable_media is set, so that unreadable ones
 * fail here and not in a training step. row_media: may be NULL
 */
int ares_prompt_try_media(const ares_prompt_encoder *e, const ares_row_media *row_media);
/*
 * Counts a row whose media failed with rc and message; where the options leave no such row out,
 * fails with the row's file and line.
 */
int ares_prompt_leave_out(const ares_prompt_encoder *e, const ares_row *row, int rc,
                          const char *message, ares_unseen *n);
void ares_unseen_tell(const ares_unseen *n, int64_t rows);
/*
 * Renders and encodes the prompt of every row on the pool. Rows over max_prompt_length are dropped
 * (*dropped counts them, the log gives the longest) or, without filter_overlong_prompts, an error.
 * A set left without rows is an error.
 */
int ares_dataset_encode(ares_dataset *d, const ares_prompt_encoder *e, ares_pool *pool,
                        int64_t *dropped);

/* ---------------- batch (batch.c): plain host arrays, ragged, no padding anywhere */
/*
 * What every row of a batch knows of its group and of its answer: X(type, name, text). ares_group
 * and ares_trajectory have the same fields.
 */
#define ARES_GROUP_FIELDS(X)                                                             \
    X(int64_t, draw, "number in the run of the prompt drawn")                            \
    X(int64_t, step, "in which the prompt was first answered: part of the sampling key") \
    X(int64_t, attempt, "how often it had been answered before in that step: likewise")  \
    X(int64_t, local, "number of the prompt among the fresh ones of its data set")       \
    X(int64_t, source_step, "of the curriculum, when the prompt was drawn last")         \
    X(double, source_weight, "of its data set at that step")                             \
    X(int64_t, place, "among the groups drawn in the step, then in the batch")           \
    X(float, baseline, "score of the greedy answer to the prompt (remax)")               \
    X(uint8_t, masked, "1: it only fills the batch: its mask is 0")                      \
    X(uint8_t, drops_discarded, "1: discarded answers have no row")
#define ARES_TRAJECTORY_FIELDS(X)                                                               \
    X(int32_t, index, "its number among the answers to the prompt")                             \
    X(uint8_t, stopped, "1: by a stop token or string, or by its environment; 0: by length")    \
    X(uint8_t, cut, "1: not finished; a later answer goes on from its tokens")                  \
    X(int32_t, turn_count, "turns of a conversation; 0: it is none")                            \
    X(int32_t, turns_cut, "those of them whose answers were ended by length")                   \
    X(int32_t, span, "first token of the part that is judged (docs/vapor.md#spans)")            \
    X(int32_t, span_end, "the token after its last one; not above span: there is no such part") \
    X(uint8_t, span_lost, "1: both of its tags are there, but no token lies between them")      \
    X(uint8_t, discarded,                                                                       \
      "1: no part of losses and metrics (docs/dapo.md#answers-beyond-the-limit)")               \
    X(uint8_t, failed,                                                                          \
      "1: nothing could judge it, or its environment failed (docs/rewards.md#failures)")        \
    X(uint8_t, stored, "1: it stands in the data: nobody sampled or judged it")                 \
    X(float, score, "of the reward manager, or of the environment")                             \
    X(float, unshaped, "the score without any penalty of length")                               \
    X(float, accuracy, "1: right, 0: wrong; NaN where nothing judges it")

#define ARES_FIELD_(type, name, text) type name;
typedef struct ares_sample {
    ARES_GROUP_FIELDS(ARES_FIELD_)
    ARES_TRAJECTORY_FIELDS(ARES_FIELD_)
#undef ARES_FIELD_
    /* rows of a group with the same number are turns of one episode; 0: a row is an episode */
    int64_t episode;
    int32_t turn; /* the row's number within the episode */
    const ares_row *row;
    const int32_t *prompt; /* [prompt_len] */
    int32_t prompt_len;
    const ares_row_media
        *row_media; /* of prompt and response together; NULL: they are text alone */
    /* of its ares_trajectory */
    ares_view response, turns, details, feedback, question;
    const float *reward_parts; /* one per configured reward, unweighted */
    int32_t difficulty;        /* ares_difficulty of the prompt; 0: no control classifies it */
    /* high-window-entropy tokens, and how many there should be (docs/aepo.md#hwe-tokens) */
    int32_t hwe_count;
    float hwe_target, entropy_alpha; /* entropy_alpha: weight of the entropy score */
    /* distillation, set by stage teacher: whether the row has a teacher, and what that reads before
     * the response (docs/distillation.md). teacher_prompt NULL: the student's prompt */
    uint8_t distilled;
    float distillation; /* mean of its tokens' divergence; of no meaning where none was taught */
    int32_t teacher_prompt_len;
    const int32_t *teacher_prompt;           /* [teacher_prompt_len] */
    const ares_row_media *teacher_row_media; /* of teacher_prompt and response together */
    ares_view teacher_text;                  /* of teacher_prompt */
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
 * missing column) expands these lists. Trajectories carry what was sampled: what is recorded for
 * every row (RECORDED), and what only some runs mark (MARKED).
 */
enum { ARES_NOT_SAMPLED = -1 };
#define ARES_BATCH_RECORDED(X)                                                                 \
    X(i32, responses, "gen", "ids after the prompt, tool and environment text included")       \
    X(u8, response_mask, "gen", "1 where the policy wrote the token")                          \
    X(f32, rollout_log_probs, "gen",                                                           \
      "as sampled, at the rollout temperature; where the token was not sampled as it stands, " \
      "stage old puts the policy's: a ratio of 1")                                             \
    X(f32, entropies, "gen", "exact, full vocabulary, at the rollout temperature")             \
    X(f32, entropies_1, "gen", "at temperature 1, as worker.rollout.entropy_mode says")        \
    X(i32, weight_versions, "gen",                                                             \
      "optimizer steps before the token was sampled; ARES_NOT_SAMPLED: the token was not "     \
      "sampled as it stands; absent: of no token is it known")
#define ARES_BATCH_MARKED(X)                                                       \
    X(u8, turn_ends, "gen",                                                        \
      "1 on the last token of each turn of the policy; absent: a row is one turn") \
    X(f32, turn_scores, "gen",                                                     \
      "where a turn ends, its score; absent: the last token has the row's")        \
    X(u8, hwe_candidates, "gen",                                                   \
      "1 where the token may count as a high-entropy one; absent: every token may (AEPO)")
#define ARES_BATCH_SAMPLED(X) ARES_BATCH_RECORDED(X) ARES_BATCH_MARKED(X)
#define ARES_BATCH_LIST(X)                                                                       \
    ARES_BATCH_SAMPLED(X)                                                                        \
    X(u8, hwe, "observe", "1 where the window after the token reaches the threshold (AEPO)")     \
    X(f32, window_entropies, "observe",                                                          \
      "mean entropy of the window after the token; -1 where there is none (AEPO)")               \
    X(f32, kl_weight, "observe", "factor of the KL term; absent: 1")                             \
    X(f32, token_level_scores, "score", "of the reward manager")                                 \
    X(f32, old_log_probs, "old", "under the policy before this step, at the loss temperature")   \
    X(f32, sum_pi_squared, "sum_pi_squared",                                                     \
      "sum over the vocabulary of the squared probabilities behind old_log_probs")               \
    X(f32, ref_log_probs, "ref", "under the reference model, at the loss temperature")           \
    X(f32, teacher_log_probs, "teacher", "under the teacher, at the loss temperature")           \
    X(f32, values, "values", "of the critic: the state before the token")                        \
    X(f32, token_level_rewards, "shape", "scores, less the KL where it is part of the reward")   \
    X(f32, rollout_is_weights, "correct", "factors of the loss by rollout_is; absent: 1")        \
    X(u8, kept_mask, "correct",                                                                  \
      "response_mask less what rollout_rs rejects; absent: nothing is. From adv to the update "  \
      "the two have changed places")                                                             \
    X(f32, advantages, "adv", "0 where the mask is 0")                                           \
    X(f32, returns, "adv", "0 where the mask is 0")                                              \
    X(u8, distilled, "distill", "1 where the teacher teaches (docs/distillation.md)")            \
    X(f32, kl, "update_actor",                                                                   \
      "to the reference as kl_penalty estimates it, unweighted, of the update's last pass over " \
      "the token; where KL is part of the reward, stage shape writes it instead")                \
    X(f32, ratio, "update_actor",                                                                \
      "that the loss's clip looks at, of the update's last pass over the token; 0: none")        \
    X(u8, clipped, "update_actor", "1 where that clip took the token in the same pass")
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
    double advantage_scale; /* factor of the advantages, set by filters; 1 without */
    bool empty;             /* filters have kept no group: all are masked, and nothing is trained */
    /* groups from this ares_sample.place on are masked: they are there so that every rank has one;
     * 0: there are none */
    int64_t filled_from;
    double kl_coef; /* weight of the KL term in this step: the option's, or a control's */
    /* [n_row_kl] KL of rows in the actor's updates, which every rank numbers alike from 0
     * (ares_kl_record_rows) */
    ares_row_kl *row_kl;
    int64_t n_row_kl, updates;
    int64_t row_cap, group_cap;
    ares_arena arena; /* lives for the step: columns, texts, prompts, reward parts */
} ares_batch;
void ares_batch_init(ares_batch *b);
void ares_batch_fini(ares_batch *b);
void ares_batch_clear(ares_batch *b); /* forgets rows and the arena; keeps memory */
/*
 * Whether a row counts: one of its tokens has mask 1, or it has no tokens (an empty answer). A
 * discarded answer, whose mask is 0 everywhere, counts nowhere.
 */
bool ares_batch_row_counts(const ares_batch *b, int64_t row);
/* Rows added from now on belong to a new group. */
void ares_batch_begin_group(ares_batch *b);
/* Before any column is put; returns the row's first token. */
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
 * The token that a row's score belongs to: the last of mask 1, or the last of all where no token
 * has mask 1; -1: the row has no tokens.
 */
int64_t ares_batch_last_token(const ares_batch *b, int64_t row);
/*
 * Makes the batch consist of rows order[0 .. n) of the present one, with their samples and every
 * column. A row may be named several times, or not at all. Rows named one after the other that were
 * of one group are a group again. Samples keep ares_sample.place, by which mini-batches of rows
 * number them. Before an update has put row_kl.
 */
void ares_batch_take(ares_batch *b, const int64_t *order, int64_t n);
/*
 * The same into an empty batch, from rows of another one. Its scalars (advantage_scale, kl_coef ..)
 * are copied, too, but not row_kl and updates. Prompts and texts stay where they are.
 */
void ares_batch_copy(const ares_batch *from, const int64_t *order, int64_t n, ares_batch *out);

/* ---------------- packing (pack.c): rows -> packed tokens (docs/update.md#micro-batches)
 * A micro-batch is a run of consecutive rows. Without share each row is a segment of its own,
 * prompt and response. With share each different prompt of a group is one segment, and the rows of
 * the group see it as their prefix; such a group is never split, and shares with no other group of
 * its micro-batch. Prompts are compared by content. The last response token is not fed, because no
 * token after it is predicted.
 */
/* Feature rows [at, at + n) of packed tokens show features [from, from + n) of a medium. */
typedef struct ares_shown {
    const ares_medium *medium;
    int32_t at, from, n;
} ares_shown;
typedef struct ares_packed {
    int32_t rows;             /* fed tokens */
    const int32_t *ids;       /* [rows] */
    const int32_t *positions; /* [rows] */
    /* [rows] the other two axes of a vision model, by row and by column of the picture; NULL: all
     * three axes have `positions` */
    const int32_t *positions_h, *positions_w;
    /*
     * feature_rows [n_features], ascending: rows that have features [n_features][hidden], f32, in
     * place of their embeddings. d_features: the derivatives by them, which a backward writes as
     * activations in host memory; NULL: not wanted
     */
    int32_t n_features;
    const int32_t *feature_rows;
    const float *features;
    void *d_features;
    /* which media the features are of, in the order of feature_rows (ares_features_show) */
    int32_t n_shown;
    const ares_shown *shown;
    ares_segments seg; /* host arrays */
    /*
     * [seg.n] length of the whole sequence, the token that is not fed included; NULL: the number of
     * fed tokens. Only dynamic rope reads it.
     */
    const int32_t *length;
    const int32_t *slots; /* [rows], paged only: where store_kv puts each row */
    void *cache;          /* paged: activations; layers lie cache_layer_bytes apart; NULL: packed */
    int64_t cache_layer_bytes;
    /*
     * paged, of a model with delta nets: per layer, states and windows as in ares_delta_args and
     * ares_conv_args, NULL where it has attention; and the slots of each segment. NULL: packed
     */
    float *const *states, *const *windows;
    const int32_t *state_from, *state_to; /* [seg.n] */
    /* [n_out] rows whose hidden states the head reads; a row may be named more than once */
    int32_t n_out;
    const int32_t *out_rows;
    /* adapters by runs of rows, in order (ares/model.h); n_adapted 0: no row has any */
    const struct ares_adapted *adapted;
    int32_t n_adapted;
} ares_packed;

typedef struct ares_micro_batch {
    int64_t row, end; /* rows [row, end) of the batch */
    int64_t tokens;   /* fed */
    int64_t out;      /* head rows: response tokens */
} ares_micro_batch;
/*
 * Cuts rows [row, end) into micro-batches of at most max_tokens fed tokens each (a single row or
 * shared group may exceed it), written to out [end - row]; returns their number. A row without a
 * response token of mask 1 is not fed (response_mask NULL: every token has mask 1).
 */
int64_t ares_pack_plan(const ares_batch *b, int64_t row, int64_t end, int64_t max_tokens,
                       bool share, ares_micro_batch *out);
/*
 * Rows that go through a model together and need not be neighbours: runs of consecutive rows, in
 * batch order. For passes in which no row's result depends on the rows beside it (log-probs,
 * values). With share a run whose first row has the prompt of the first row of the run before it
 * is not fed that prompt again.
 */
typedef struct ares_micro_set {
    int64_t n;
    const ares_micro_batch *runs; /* [n] */
    int64_t tokens, out;          /* sums over the runs */
} ares_micro_set;
/*
 * Divides rows [row, end) into sets with nearly equal numbers of tokens (EasyR1's dynamic
 * micro-batches), at most max_tokens each, which only a single row or shared group may exceed.
 * Each 512 units (shared groups, or rows) are balanced separately and make no more sets than
 * ares_pack_plan would make micro-batches. In the arena: *out [*n].
 */
int ares_pack_sets(const ares_batch *b, int64_t row, int64_t end, int64_t max_tokens, bool share,
                   ares_arena *arena, ares_micro_set **out, int64_t *n);
/*
 * Copies x, one number per head row of the set, to the tokens of the batch that the head rows stand
 * for; column[0] is the batch's token `first`. Tokens of rows that are not fed become 0.
 */
void ares_pack_scatter(const ares_batch *b, const ares_micro_set *m, const float *x, int64_t first,
                       float *column);
/*
 * Packs the rows of a set, run after run. The head rows of a run m predict the tokens from
 * row_start[m->row] of the batch on, one after the other, so n_out is the number of response
 * tokens; targets [n_out] are the ids of those tokens. In the arena.
 */
void ares_pack_build(const ares_batch *b, const ares_micro_set *m, bool share, ares_arena *arena,
                     ares_packed *out, const int32_t **targets);

/*
 * ---------------- balance (pack.c): equal shares of unequal lengths. The results depend on the
 * arrays alone: every comparison is a total order, so any correct implementation gives the same
 * parts.
 */

/*
 * Largest differencing (Karmarkar and Karp, 1982, for k parts;
 * docs/design.md#balance-between-ranks): part [n] receives the part of each item, 0 .. k - 1, of
 * which part 0 has the largest sum. equal_size: n / k items in each part. Where groups must stay
 * whole, the items are groups and the weights their totals. ARES_EFORMAT for n < k, a negative
 * weight, or equal_size where k does not divide n.
 */
int ares_balance_parts(const int64_t *weight, int64_t n, int64_t k, bool equal_size, int64_t *part);
/*
 * verl's order of the rows of one card (docs/update.md#the-order-of-rows): rows sorted by length
 * (equal ones stay in order), of that list numbers 0, 2, 4 .. and then the odd ones backwards. So
 * lengths rise to the middle and fall after it, and neighbours are alike. verl sorts by the work
 * 24576 length + length^2 of a row, which gives the same order. order [n]: receives which item
 * stands at each position.
 */
void ares_balance_order(const int64_t *length, int64_t n, int64_t *order);
/*
 * Metrics <prefix>/min, max and minmax_diff: sums of length over k runs of consecutive items as
 * they came, of n / k items each (or one more or less where k does not divide n).
 * <prefix>/balanced_min and balanced_max: the same over the parts. <prefix>/mean: the mean of
 * either.
 */
void ares_balance_report(const int64_t *length, int64_t n, int64_t k, const int64_t *part,
                         const char *prefix, ares_metrics *m);

/*
 * ---------------- trajectories (batch.c): what a sampler hands to a training step. An answer of
 * one turn is a trajectory of one row; an episode of several turns may be one row or a row per turn
 * (docs/design.md#trajectories).
 *
 * Fields stand in the lists above. Filling a batch, sending between ranks and saving loop over
 * them, so a new field is a line there.
 */

/*
 * One stretch of tokens that the policy read and wrote. Its columns, [n_tokens] each, are those of
 * the batch that stage gen makes. A column of ARES_BATCH_MARKED may be NULL, but then in all rows
 * of a step: the batch lacks it.
 */
typedef struct ares_trajectory_row {
    const int32_t *prompt; /* [prompt_len] */
    int32_t prompt_len, n_tokens;
#define ARES_FIELD_(type, name, stage, doc) ares_column_##type *name;
    ARES_BATCH_SAMPLED(ARES_FIELD_)
#undef ARES_FIELD_
} ares_trajectory_row;

/* A prompt up to a thought, and the thought; ids that live as long as the trajectory. */
typedef struct ares_thought {
    const int32_t *prompt, *ids; /* [prompt_len], [n] */
    int32_t prompt_len, n;
} ares_thought;

#define ARES_FIELD_(type, name, text) type name;
typedef struct ares_trajectory {
    ARES_TRAJECTORY_FIELDS(ARES_FIELD_)
    int32_t n_rows, n_parts;
    ares_trajectory_row *rows; /* [n_rows], at least one */
    float *parts;              /* [n_parts] the scores of the single rewards */
    ares_view response;        /* decoded: what is judged and shown */
    ares_view turns;           /* JSON list of what each turn was; empty: there is one turn */
    ares_view details;         /* JSON object of what its rewards told; empty: nothing */
    ares_view feedback;        /* what a reward or an environment said of it in words; or empty */
    ares_view question;        /* the user's first message of an episode in one row; or empty */
    ares_view vote;            /* the answer as majorities count it; NULL: nothing tells it */
    /* [n_thoughts] of the turns, for measurements; never sent. NULL: row 0 is the only turn, and
     * all of it a thought */
    int32_t n_thoughts;
    const ares_thought *thoughts;
} ares_trajectory;

/* A prompt with all its answers. */
typedef struct ares_group {
    ARES_GROUP_FIELDS(ARES_FIELD_)
    const ares_row *row;
    int32_t n;
    ares_trajectory *items; /* [n] */
} ares_group;
#undef ARES_FIELD_

/* Makes a row in the arena: columns of ARES_BATCH_RECORDED are zeros, those of MARKED absent. */
void ares_trajectory_row_init(ares_trajectory_row *row, const int32_t *prompt, int32_t prompt_len,
                              int32_t n_tokens, ares_arena *arena);
/* Tokens of all rows, those of environments included. */
int64_t ares_trajectory_tokens(const ares_trajectory *y);
/* Whether its rows are part of the batch that the group becomes. */
bool ares_trajectory_kept(const ares_group *g, const ares_trajectory *y);
/* Adds the groups to an empty batch, in their order, and fills the columns of stage gen. */
void ares_batch_fill(ares_batch *b, const ares_group *groups, int64_t count);

/* Appends a group as bytes, the same on every machine of one byte order. */
void ares_group_write(const ares_group *g, ares_str *out);
/*
 * Takes the next group from `in`, into the arena. *row: the id of its data row, from which the
 * caller sets g->row and, with ares_group_set_row, prompts that are the row's own. ARES_EFORMAT:
 * the bytes are not those of a group.
 */
int ares_group_read(ares_view *in, ares_arena *arena, ares_group *g, int64_t *row);
void ares_group_set_row(ares_group *g, const ares_row *row);
#endif
