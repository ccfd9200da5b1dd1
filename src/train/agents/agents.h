/*
 * Training in environments: what a run has for it, and the answerer that lets the policy act
 * (docs/environments.md#training).
 */
#ifndef ARES_TRAIN_AGENTS_AGENTS_H
#define ARES_TRAIN_AGENTS_AGENTS_H

#include "agents/conversation.h"
#include "agents/measures.h"
#include "collect/answerer.h"

/* The environments of training, or those of validation. */
typedef struct agents_side {
    const ares_agent_side_config *cfg;
    const char *path;                 /* "env.train" */
    ares_env_definition *definitions; /* [cfg->tags.count] */
    int64_t *groups;                  /* [cfg->tags.count] of each tag */
} agents_side;

/* An environment that no episode uses at the moment is used again. */
typedef struct agents_place {
    ares_env env;
    bool used;
} agents_place;

typedef struct agents {
    const ares_train_config *cfg;
    agents_side train, val;
    conversation_style style;
    const char **specials; /* texts of the tokenizer's special tokens */
    ares_sampling stops;   /* only its stop ids */
    int32_t *stop_ids;
    agents_place **places; /* [n_places] */
    int64_t n_places;
    measures measures;             /* of the episodes since the last report */
    char last_failure[600];        /* of an episode, with its tag; "": there was none */
    bool warned_full, warned_left; /* that a context was full; that turns have left one */
} agents;

/* A group of environments as a row of a source; the row is its first member. */
typedef struct agents_row {
    ares_row row;
    const ares_env_definition *definition;
    uint64_t seed;    /* of the first group of round 0 */
    int64_t groups;   /* of a round */
    int64_t first_id; /* number of its first environment within the step */
} agents_row;

extern const answerer answer_agents;

/* Whether tags of environments are named, for training or for validation. */
bool agents_wanted(const ares_train_config *c);
/* Turns that a prompt and its answer hold at most; 1 where there are no environments. */
int64_t agents_turns_shown(const ares_train_config *c);
/* Gives the options that follow from env.* their values. (agents_options.c) */
void agents_declare(ares_config *cfg, ares_train_config *out);
/* Faults of env.* and of what does not go with it. */
void agents_check(ares_config *cfg, const ares_train_config *c);
/* Reads the definitions; before ares_config_finish. */
int agents_define(ares_config *cfg, const ares_train_config *c, agents **out);
/*
 * Loads what environments share; after ares_config_finish. limit: tokens of prompt and answer;
 * ranks: processes that share the environments.
 */
int agents_open(agents *a, const ares_prompt_encoder *encoder, const ares_tokenizer *tokenizer,
                int64_t limit, int64_t ranks);
void agents_close(agents *a); /* NULL is fine */
/* An environment of the definition, new or used before. */
int agents_take_place(agents *a, const ares_env_definition *d, agents_place **out);
/* Seed of the group that a draw of the row is. */
uint64_t agents_seed(const agents_row *row, int64_t draw);
/* Groups of environments as a source that never ends. (agents_source.c) */
int agents_source(const agents_side *side, ares_source *out);
#endif
