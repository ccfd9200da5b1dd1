/*
 * A conversation with an environment: from its turns to the tokens that the model reads, and to
 * the rows that it is trained on (docs/environments.md#conversations). (conversation.c,
 * conversation.c)
 */
#ifndef ARES_TRAIN_AGENTS_CONVERSATION_H
#define ARES_TRAIN_AGENTS_CONVERSATION_H

#include "ares/data.h"
#include "ares/env.h"
#include "ares/text.h"

/*
 * Stands for an answer where only the template's text around it is wanted. No text of a
 * conversation may hold it, as if it were a special token.
 */
#define CONVERSATION_MARK \
    "\x02"                \
    "ANSWER"              \
    "\x03"

/* Which turns a prompt shows, and what is a row of the batch (env.context_window_mode). */
typedef enum {
    CONTEXT_FULL,    /* all turns; an episode is a row */
    CONTEXT_LIMITED, /* the last turns; a turn is a row */
    CONTEXT_SINGLE   /* the last turns as a digest within the user's message; a turn is a row */
} conversation_context;

/* What all conversations of a run have in common. */
typedef struct conversation_style {
    ares_env_format format;
    double format_penalty; /* for an answer with an unknown action, or with none */
    const ares_chat *chat;
    const ares_tokenizer *tokenizer;
    conversation_context context;
    int64_t window; /* turns that a prompt shows, the present one included; -1: all */
    int64_t limit;  /* tokens of a prompt and its answer */
    /* keep the sampled ids, and put the template's text around them; false: the text is written
     * anew and encoded as a whole */
    bool token_exact;
    bool warn_in_training; /* the line about an answer without action is part of the row, too */
    bool mask_prompts;     /* false: all but the system message is trained */
    bool mask_template;    /* the template's tokens around an answer are trained, too */
    bool turn_scores;      /* a turn's reward stands where it ends; false: the sum at the end */
    int32_t start_id;      /* the token that begins a message of the template; -1: there is none */
} conversation_style;

typedef struct conversation_turn {
    ares_view message, silent; /* what the user says; silent: without the warning */
    ares_view state;
    ares_env_reward reward;         /* of the turn; the next message begins with it */
    const int32_t *prompt;          /* [prompt_len] that the answer was sampled from */
    int32_t prompt_len, shown_from; /* the first turn that the prompt shows */
    /* what the model wrote */
    int32_t n;
    const int32_t *ids;                               /* [n] */
    const float *log_probs, *entropies, *entropies_1; /* [n] */
    int32_t weight_version;
    ares_view text; /* as the conversation keeps it */
} conversation_turn;

/* Everything is in the caller's arena. */
typedef struct conversation {
    const conversation_style *style;
    ares_view system;
    conversation_turn *turns; /* [max_turns] */
    int32_t n;                /* turns so far, the present one included */
    int32_t first;            /* turns that have left the context */
    /* token_exact: where each turn's ids begin in the latest prompt, [max_turns + 1] */
    int32_t *at;
    ares_view *pieces; /* [n_pieces] the template's text around the answers there */
    int32_t n_pieces;
} conversation;

/*
 * The text of the present turn's prompt, showing the turns from `start` on. It ends with the first
 * tag, which is written for the model.
 */
int conversation_prompt_text(const conversation *c, int32_t start, ares_arena *arena,
                             ares_str *out);
/*
 * The prompt of the present turn, in the arena. While it leaves no token for an answer, the oldest
 * turn leaves the context; the present one always stays. ARES_EUNSUPPORTED: token_exact, and the
 * chat template writes earlier turns differently once there are later ones.
 */
int conversation_prompt(conversation *c, ares_arena *arena, ares_ids *out);
/*
 * The present turn's prompt leaves no token for an answer: the conversation becomes that of the
 * turns before. The first turn stays, with as much of its prompt as the context holds, because an
 * episode has a row; that row has no tokens to train.
 */
void conversation_drop_turn(conversation *c);
/*
 * The text of a row of the batch that is encoded as a whole: of the episode's present turn and all
 * that it shows, or of that turn's own row. Ends with the answer, without what would follow.
 */
int conversation_training_text(const conversation *c, int32_t turn, ares_arena *arena,
                               ares_str *out);
/* The user's message of a turn that shows the turns from `start` on. */
void conversation_user(const conversation *c, int32_t start, int32_t turn, bool silent,
                       ares_str *out);
/*
 * What the conversation is trained on, in the arena: y->rows, with their columns. The scores of
 * turns are marks of the rows where the style asks for them.
 */
int conversation_rows(const conversation *c, ares_arena *arena, ares_trajectory *y);
/*
 * The thought of each turn, as y->thoughts in the arena: the sampled tokens before the one with
 * which the tag </think> begins. Without the tag, or with white space before it only, it is empty.
 */
void conversation_thoughts(const conversation *c, ares_arena *arena, ares_trajectory *y);
/* The row of the present turn whose text was encoded as a whole, ids [n], in the arena. */
void conversation_text_row(const conversation *c, int32_t turn, const int32_t *ids, int32_t n,
                           ares_arena *arena, ares_trajectory_row *x);

#endif
