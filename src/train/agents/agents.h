/*
 * Private to train: training in environments. Conversations, sums for named metrics, the answerer
 * and its source, and episodes.
 */
#ifndef ARES_TRAIN_AGENTS_AGENTS_H
#define ARES_TRAIN_AGENTS_AGENTS_H

#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"
#include "ares/env.h"
#include "ares/io.h"
#include "ares/text.h"
#include "collect/collect.h"

/*
 * A conversation with an environment: from its turns to the tokens that the model reads, and to
 * the rows that it is trained on (docs/environments.md#conversations). (conversation.c)
 */

/*
 * Stands in place of an answer when the template's text around answers is wanted. Like special
 * tokens, it is removed from all texts of a conversation.
 */
#define CONVERSATION_MARK \
    "\x02"                \
    "ANSWER"              \
    "\x03"

/* Which turns a prompt shows, and what a row of the batch holds (env.context_window_mode). */
typedef enum {
    CONTEXT_FULL,    /* all turns; an episode is a row */
    CONTEXT_LIMITED, /* the last turns; a turn is a row */
    CONTEXT_SINGLE   /* the last turns as a digest within the user's message; a turn is a row */
} conversation_context;

/* Options that all conversations of a run share. */
typedef struct conversation_style {
    ares_env_format format;
    double format_penalty; /* for an answer with an unknown action, or with none */
    const ares_chat *chat;
    const ares_tokenizer *tokenizer;
    conversation_context context;
    int64_t window; /* turns that a prompt shows, the present one included; -1: all */
    int64_t limit;  /* tokens of a prompt and its answer */
    /* true: sampled ids are kept, with the template's ids around them; false: the text is written
     * anew and encoded as a whole */
    bool token_exact;
    bool warn_in_training; /* rows, too, hold the warning after an answer without an action */
    bool mask_prompts;     /* false: all but the system message is trained */
    bool mask_template;    /* true: the template's tokens around an answer are trained, too */
    bool turn_scores;      /* each turn's end gets its reward; false: the last one gets the sum */
    int32_t start_id;      /* the token that begins a message of the template; -1: there is none */
} conversation_style;

typedef struct conversation_turn {
    ares_view message, silent; /* the user's message; silent: without the warning */
    ares_view state;
    ares_env_reward reward;         /* of this turn; the next turn's message begins with it */
    const int32_t *prompt;          /* [prompt_len] ids that the answer was sampled after */
    int32_t prompt_len, shown_from; /* the first turn that the prompt shows */
    /* the model's answer */
    int32_t n;
    const int32_t *ids;                               /* [n] */
    const float *log_probs, *entropies, *entropies_1; /* [n] */
    int32_t weight_version;
    ares_view text; /* of the answer, as later prompts show it */
} conversation_turn;

/* All memory is in the caller's arena. */
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
 * The text of the present turn's prompt, showing the turns from `start` on. It ends with <think> or
 * <answer>, the tag with which the model's answer begins.
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
 * Removes the present turn, whose prompt leaves no token for an answer. A first turn stays, with as
 * much of its prompt as the context holds, because each episode has a row; that row has no tokens
 * to train.
 */
void conversation_drop_turn(conversation *c);
/*
 * The text of a row of the batch that is encoded as a whole, up to the answer of a turn and the
 * template's text that ends it; it shows the turns that the turn's prompt shows.
 */
int conversation_training_text(const conversation *c, int32_t turn, ares_arena *arena,
                               ares_str *out);
/* The user's message of a turn that shows the turns from `start` on. */
void conversation_user(const conversation *c, int32_t start, int32_t turn, bool silent,
                       ares_str *out);
/*
 * The rows that the conversation is trained on, in the arena: y->rows, with their columns, and with
 * scores of turns where the style asks for them.
 */
int conversation_rows(const conversation *c, ares_arena *arena, ares_trajectory *y);
/*
 * The thought of each turn, as y->thoughts in the arena: the sampled tokens before the one with
 * which the tag </think> begins. Without the tag, or with white space before it only, it is empty.
 */
void conversation_thoughts(const conversation *c, ares_arena *arena, ares_trajectory *y);
/* Tokens of an answer before the tag that closes its thought; 0: there is no tag, or no thought. */
int32_t conversation_thought_length(const ares_tokenizer *tokenizer, const int32_t *ids, int32_t n);
/* The row that ends with a turn, from its text encoded as a whole: ids [n]; in the arena. */
void conversation_text_row(const conversation *c, int32_t turn, const int32_t *ids, int32_t n,
                           ares_arena *arena, ares_trajectory_row *x);

/* Sums for metrics whose names environments choose. (episode.c) */

typedef struct measure {
    char *name, *per; /* per: the entry whose count divides the sum; NULL: this one */
    double sum, count;
} measure;
typedef struct measures {
    measure *items;
    int64_t n;
    ares_map *index; /* by name */
} measures;

void measures_add(measures *t, const char *name, const char *per, double value);
/* Adds "tag/key", a mean over the episodes that "tag/per" counts, and "tag/non-zero/key". */
void measures_count(measures *t, const char *tag, const char *per, const char *key, double value);
/* A collective: puts the means over all ranks, under prefix and name, and clears the sums. */
int measures_report(measures *t, ares_world *w, const char *prefix, ares_metrics *m);
void measures_fini(measures *t);

/*
 * Training in environments: the environments of a run, and the answerer that lets the policy act in
 * them (docs/environments.md#training). (agents.c)
 */

/* The environments of training, or those of validation. */
typedef struct agents_side {
    const ares_agent_side_config *cfg;
    const char *path;                 /* "env.train" */
    ares_env_definition *definitions; /* [cfg->tags.count] */
    int64_t *groups;                  /* [cfg->tags.count] groups of each tag */
} agents_side;

/* An environment, which episodes use one after the other. */
typedef struct agents_place {
    ares_env env;
    bool used;
} agents_place;

typedef struct players players; /* programs that play by themselves (players.c) */

typedef struct agents {
    const ares_train_config *cfg;
    agents_side train, val;
    conversation_style style;
    const char **specials; /* texts of the tokenizer's special tokens */
    ares_sampling stops;   /* only its stop ids */
    int32_t *stop_ids;
    agents_place **places; /* [n_places] */
    int64_t n_places;
    players *players;              /* NULL: no tag is of such a program */
    measures measures;             /* of the episodes since the last report */
    char last_failure[600];        /* of an episode, with its tag; "": there was none */
    bool warned_full, warned_left; /* a context was full; turns were removed from one */
} agents;

/* A group of environments as a row of a source; the row is its first member. */
typedef struct agents_row {
    ares_row row;
    const ares_env_definition *definition;
    uint64_t seed;     /* of the first group of round 0 */
    int64_t groups;    /* of a round */
    int64_t first_id;  /* number of its first environment within the step */
    const char *split; /* "train" or "val" */
} agents_row;

extern const generator generate_episodes;

/* Whether tags of environments are named, for training or for validation. */
bool agents_wanted(const ares_train_config *c);
/* Most turns that a prompt and its answer hold; 1 without environments. (options/options.c) */
int64_t agents_turns_shown(const ares_train_config *c);
/* Reads the definitions; before ares_config_finish. */
int agents_define(ares_config *cfg, const ares_train_config *c, agents **out);
/*
 * Loads programs and data that environments share; after ares_config_finish. limit: tokens of
 * prompt and answer; ranks: processes among which the environments are divided.
 */
int agents_open(agents *a, const ares_prompt_encoder *encoder, const ares_tokenizer *tokenizer,
                int64_t limit, int64_t ranks);
void agents_close(agents *a); /* NULL is fine */
/* After the rollout: opens the endpoint, where programs play by themselves. */
int agents_serve(ares_trainer *t);
/* Warns of the first failed episodes of a draw, and keeps the latest for an error to come. */
void agents_tell_failure(const ares_trainer *t, const char *tag, const char *why, int64_t *told);
/* Seed of the environments of a group; draw: the group's number. */
uint64_t agents_seed(const agents_row *row, int64_t draw);
/* Groups of environments as a source that never ends. (agents.c) */
int agents_source(const agents_side *side, ares_source *out);

/* An episode: an environment, and the conversation with it. (episode.c) */

enum { EPISODE_INFO = 32 };

typedef struct episode {
    int64_t prompt; /* number of its group in the job */
    int32_t item;   /* its number within the group */
    const agents_row *row;
    agents_place *place; /* its environment, while the episode goes on */
    ares_env_start start;
    conversation talk;
    ares_env_answer answer;           /* the latest, in the arena */
    ares_env_turn did;                /* the environment's reaction to it */
    ares_str turns;                   /* JSON, as rollouts show it; freed when it ends */
    ares_env_info info[EPISODE_INFO]; /* sums over the turns; names in the arena */
    int n_info;
    int64_t dropped;      /* numbers of the environment that found no place */
    int32_t cut, invalid; /* turns ended by their length; turns without a known action */
    bool full;            /* a prompt left no token for an answer, which ended the episode */
    /* of the finished episode */
    bool won, failed, replayable;
    int64_t num_actions, unasked, trained, rows; /* trained: tokens with mask 1 */
} episode;

/* Prepares an episode; its environment's seed follows from the draw's number. */
void episode_begin(episode *x, ares_trainer *t, int64_t draw, ares_arena *arena);
/* Resets the environment. May wait, and may be called on any thread (ares_env_type.waits). */
int episode_reset(episode *x);
bool episode_over(const episode *x, const ares_train_config *c);
/*
 * The next turn: what the environment shows, and the prompt. Where that leaves no token for an
 * answer, the episode is over (x->full) without this turn. ids is scratch.
 */
int episode_begin_turn(episode *x, ares_arena *arena, ares_ids *ids);
/* Reads the model's answer. version: of the weights that it was sampled with */
int episode_read(episode *x, const ares_completion *c, int32_t version, ares_arena *arena);
/* The environment acts on the answer. May wait, and may be called on any thread. */
int episode_act(episode *x);
/* Ends the turn: adds the environment's reaction to the episode. */
void episode_note(episode *x, ares_arena *arena);
/* The finished episode as a trajectory. */
int episode_end(episode *x, ares_trainer *t, ares_arena *arena, ares_trajectory *y);
/* Adds its numbers to metrics. discards: of a failed episode only the failure counts */
void episode_count(const episode *x, bool discards, measures *m);

/*
 * Programs that play by themselves: they ask the run's endpoint, and what it sampled for them
 * becomes trajectories (docs/serve.md#agents). (players.c)
 */
int players_open(ares_trainer *t, players **out);
void players_close(players *p); /* NULL is fine */
/* As generator.answer, for groups of tags whose types have a program. */
int players_answer(players *p, const answer_job *job, ares_arena *arena, ares_group *out);
#endif
