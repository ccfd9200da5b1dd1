/*
 * env: environments that an agent acts in, and what a conversation with one says
 * (docs/environments.md).
 *
 *     type         what an environment is made of: an entry of the table (sokoban, frozen_lake ...)
 *     definition   a type with its options and its texts; the name of one is a tag (CoordSokoban)
 *     environment  one place to act in; many of a definition live side by side
 *
 * An environment knows no model and no batch. Results do not depend on the order in which
 * environments are reset or stepped. Different environments may be used on different threads at
 * once.
 */
#ifndef ARES_ENV_H
#define ARES_ENV_H

#include "ares/config.h"
#include "ares/core.h"

/* ---------------- rewards as prompts print them
 * A reward keeps whether it is an integer, because prompts print 0 and 0.0 differently, as Python
 * does.
 */
typedef struct ares_env_reward {
    double value;
    bool integer;
} ares_env_reward;
/* 0, -0.1, 10.8, 1.0: the shortest text that reads back as the same double */
void ares_env_reward_write(ares_str *out, ares_env_reward reward);

/* ---------------- types (env.c): what a file of src/env provides
 * A new type is a file that ends in an entry, and a word in the list of env.c.
 */
typedef struct ares_env_start {
    uint64_t seed; /* the same seed gives the same episode; a group shares it */
    int64_t id;    /* number of the environment within the step, for what a group must not share */
} ares_env_start;

typedef struct ares_env_action {
    int id;         /* place of the action among the environment's, from 0; -1: any text is one */
    ares_view text; /* as the environment spells it, or the text itself */
} ares_env_action;

/* A number about a step. The name lives as long as the environment. */
typedef struct ares_env_info {
    const char *name;
    double value; /* yes and no are 1 and 0 */
} ares_env_info;
enum { ARES_ENV_INFO = 16 };
/* The number that ares_env_act, not the type, tells of a turn without a known action. */
#define ARES_ENV_INVALID "manager_invalid_action"

typedef struct ares_env_outcome {
    ares_env_reward reward;
    bool done; /* the episode is over; no step may follow */
    bool success;
    bool refused; /* the text is no action: nothing was done, and it counts as an unknown name */
    int n_info;   /* numbers in `info`: action_is_effective, action_is_valid, and the type's own */
    int dropped;  /* numbers that did not fit in `info`, or whose name suits no metric */
    ares_env_info info[ARES_ENV_INFO];
} ares_env_outcome;

/*
 * A program that plays by itself: it asks the run's endpoint for answers of the policy, and says at
 * the end of an episode how it went (docs/serve.md#agents).
 */
typedef struct ares_env_program {
    char *const *argv;              /* the program and its words, then NULL */
    int64_t processes, per_process; /* alive at once; episodes that one plays at once */
    double timeout_s;       /* of an episode's own time, while none of its requests is open */
    double start_timeout_s; /* added for the first episode of a process */
    int64_t max_requests;   /* of an episode */
    int64_t memory_bytes;   /* of address space; 0: no limit */
    const ares_view *tasks; /* [n_tasks] JSON texts; an episode gets (seed mod n_tasks) */
    int64_t n_tasks;
} ares_env_program;

typedef struct ares_env_type {
    const char *name, *doc;
    ares_option_table *options; /* NULL: none */
    size_t options_size;
    /* The actions that every environment of the type has; NULL: see `actions`. */
    const char *const *action_names;
    int n_actions;
    /* Appends "symbol: meaning" per symbol of a state, joined by ", "; NULL: needs no words. */
    void (*vocabulary)(const void *options, ares_str *out);
    /* Relations between options: faults go to cfg; path is where they stand. NULL: none. */
    void (*check)(const void *options, ares_config *cfg, const char *path);
    /* What all environments of a definition share, read only (data); NULL: nothing. */
    int (*load)(const void *options, void **shared);
    void (*unload)(void *shared);
    /*
     * The program that plays episodes of this type by itself: these then have no state to show, and
     * no function below is there. NULL: the trainer writes the conversation.
     */
    const ares_env_program *(*program)(const void *shared);
    /* Makes and frees an environment; options and shared outlive it. */
    int (*open)(const void *options, const void *shared, void **env);
    void (*close)(void *env);
    int (*reset)(void *env, const ares_env_start *start);
    int (*step)(void *env, ares_env_action action, ares_env_outcome *out);
    /* Appends the text of the present state. */
    void (*render)(const void *env, ares_str *out);
    /*
     * The actions of this episode, for types whose action_names are NULL: valid until the next
     * reset. NULL, or none given: every text is an action.
     */
    const char *const *(*actions)(const void *env, int *n);
    /*
     * A reset or step may wait for a user's program or server, as long as its time-outs allow. The
     * caller then calls ares_env_reset and ares_env_act on threads of its own, so that one
     * environment does not hold up the others; one environment is used by one thread at a time.
     */
    bool waits;
    bool starts_program; /* the program runs on this machine: a reset starts it */
    /*
     * After a reset or step: why the episode has failed, or NULL. *replayable: false where a clock
     * decided what happened; *unasked: as in ares_env. NULL: the type's episodes cannot fail.
     */
    const char *(*failure)(const void *env, bool *replayable, int64_t *unasked);
    /* After a reset: whether the episode is over before its first step. NULL: it never is. */
    bool (*over)(const void *env);
    /* File descriptors that n environments hold until they are closed; NULL: none. */
    int64_t (*descriptors)(const void *options, int64_t n);
} ares_env_type;

/* ---------------- definitions (env.c), built-in tags (env.c)
 * Definitions are options: env.definitions.<Tag>.*. The built-in ones stand there before the first
 * file is read, so a file may change one of their options, or add tags of its own.
 */
#define ARES_ENV_DEFINITION_OPTIONS(X)                                                         \
    X(text, type, "type", "???", "nonempty", "type of the environment (docs/environments.md)") \
    X(text, instruction, "instruction", "", "", "what the system message says of the task")    \
    X(i64, max_actions, "max_actions", "10", "[1,)",                                           \
      "actions that an episode may execute; after these it ends as a failure")                 \
    X(i64, max_tokens, "max_tokens", "100", "[1,)",                                            \
      "length of a response that the prompt asks for; it cuts nothing")                        \
    X(text, privileged_context, "privileged_context", "null", "nonempty",                      \
      "what the teacher of a distillation is told and the policy is not "                      \
      "(distillation.context=row, docs/distillation.md)")                                      \
    X(tree, options, "options", "{}", "map", "options of the type")
ARES_OPTION_STRUCT(ares_env_definition_options, ARES_ENV_DEFINITION_OPTIONS);

#define ARES_ENV_OPTIONS(X)                                                                    \
    X(tree, definitions, "definitions", "{}", "map",                                           \
      "environments by tag: {type, instruction, max_actions, max_tokens, privileged_context, " \
      "options}; of a built-in "                                                               \
      "tag only what is to be different")
ARES_OPTION_STRUCT(ares_env_options, ARES_ENV_OPTIONS);

typedef struct ares_env_definition {
    const char *tag;
    const ares_env_type *type;
    ares_env_definition_options texts; /* owned by the configuration, like tag and options */
    void *options, *shared;
} ares_env_definition;

/* Declares env.* and the built-in tags; before the first file or override is read. */
void ares_env_declare(ares_config *cfg);
/* Declares env.definitions alone; ares_env_preset adds the built-in tags that are used. */
void ares_env_declare_options(ares_config *cfg);
/*
 * For ares_config_translate_with: gives a built-in tag, or a type under its own name, its
 * definition, where no layer gives the same option another value. Other tags are left alone.
 */
void ares_env_preset(ares_config *cfg, const char *tag);
/*
 * After ares_config_resolve: faults for definitions that are neither of a built-in tag nor have a
 * type, whether their tags are used or not: a misspelt tag changes nothing.
 */
void ares_env_check_definitions(ares_config *cfg);
/*
 * After ares_config_resolve: reads the definition of a tag. Faults go to cfg; an unknown tag is
 * ARES_ECONFIG with the nearest name.
 */
int ares_env_define(ares_config *cfg, const char *tag, ares_env_definition *d);
/* After ares_config_finish has found no fault: loads what the environments share. */
int ares_env_definition_open(ares_env_definition *d);
void ares_env_definition_close(ares_env_definition *d);
/* The built-in tags (docs/environments.md#tags), then every type under its own name. */
const char *const *ares_env_tag_names(int *n);

/* ---------------- environments and their episodes (env.c) */
typedef struct ares_env {
    const ares_env_definition *definition; /* borrowed */
    void *state;
    /* the episode */
    int64_t turns, num_actions; /* num_actions: executed */
    bool terminated, truncated; /* neither: it goes on; terminated alone: it is won */
    bool no_valid_action;       /* of the last turn; the next prompt says so */
    ares_env_reward reward;     /* sum over the turns */
    double penalty;             /* sum of the format penalties; not part of reward */
    /*
     * Why the user's program or server failed the episode (it died, was late, or its answer made no
     * sense); NULL: it did not. The episode is then over and not won; the environment can be
     * reset. The text lives until the next reset.
     */
    const char *failure;
    bool replayable; /* false: a clock decided what happened, so a second run may differ */
    int64_t unasked; /* lines that the program wrote unasked: who reads them is a matter of time */
} ares_env;

/* Opens an environment. Fails where a server or the system has no place for a further one. */
int ares_env_init(ares_env *e, const ares_env_definition *d);
void ares_env_fini(ares_env *e);
/* Begins an episode. Where the user's program fails, ARES_OK comes back: see e->failure. */
int ares_env_reset(ares_env *e, const ares_env_start *start);
/* Appends the text of the state. */
void ares_env_render(const ares_env *e, ares_str *out);
/* The names of the episode's actions; NULL and 0: every text is an action. */
const char *const *ares_env_actions(const ares_env *e, int *n);
/* How many actions the episode may still execute. */
int64_t ares_env_actions_left(const ares_env *e);
static inline bool ares_env_over(const ares_env *e)
{
    return e->terminated || e->truncated;
}
/* Success as metrics count it: the environment ended the episode and calls it won. */
static inline bool ares_env_won(const ares_env *e)
{
    return e->terminated && !e->truncated;
}

/* What a turn did. */
typedef struct ares_env_turn {
    ares_env_outcome outcome; /* reward: sum of the steps; info: of later steps over earlier ones,
                                 and manager_invalid_action */
    int64_t executed;
    double penalty; /* format_penalty where an action was unknown or none was known, else 0 */
} ares_env_turn;
/*
 * Executes the actions of one answer, in order, until the episode or its budget of actions ends.
 * Names are compared without regard to ASCII case; unknown ones are left out and cost the penalty
 * once; those that the budget cuts cost nothing.
 */
int ares_env_act(ares_env *e, const ares_view *actions, int n, double format_penalty,
                 ares_env_turn *out);
/* The action's place among the names, whatever its ASCII case; -1: unknown. */
int ares_env_find_action(const char *const *names, int n, ares_view action);
/* The seed of a group: training counts on from round to round, validation stays at round 0. */
uint64_t ares_env_seed(uint64_t base, int64_t round, int64_t groups, int64_t group);

/* ---------------- answers (message.c) */
typedef struct ares_env_format {
    bool think;                   /* answers begin with <think>..</think> */
    const char *separator;        /* between actions: "||" */
    int64_t max_actions_per_turn; /* further ones are left out */
    const char *const *specials;  /* [n_specials] tokens of the chat template that no text may */
    int n_specials;               /* hold: none of them is left in an answer's text */
} ares_env_format;
/* think, "||", 2 actions, the specials of ChatML: <|im_start|> and <|im_end|> */
ares_env_format ares_env_format_default(void);

typedef struct ares_env_answer {
    ares_view raw;  /* the forced first tag, then what the model wrote */
    ares_view text; /* as the conversation keeps it: normalised, or raw without specials */
    bool matched;   /* the tags are all there */
    int n_actions;
    ares_view *actions; /* [n_actions] trimmed */
} ares_env_answer;
/*
 * Finds the actions in what the model wrote after the forced tag (<think>, or <answer> when
 * thinking is off). Everything lives in the arena. Time and memory are linear in the text.
 */
void ares_env_answer_parse(const ares_env_format *f, ares_view generated, ares_arena *arena,
                           ares_env_answer *out);

/* The text without special tokens; a changed copy lies in the arena. */
ares_view ares_env_without_specials(const ares_env_format *f, ares_view text, ares_arena *arena);

/* ---------------- messages (message.c): the contents, without roles or template */
/* The system message, with the actions of the episode where the user's program chooses them. */
void ares_env_system_message(const ares_env *e, const ares_env_format *f, ares_str *out);
/* "Reward:\n-0.1\n", which begins the user's message after a turn. */
void ares_env_reward_message(ares_env_reward reward, ares_str *out);
/* The state of the next turn, how many actions are left, and the form of an answer. */
void ares_env_turn_message(const ares_env *e, const ares_env_format *f, ares_str *out);

/* ---------------- rewards of episodes (env.c)
 * x [n]: reward plus penalty of each episode, normalised in place. group [n]: number of the group
 * within which an episode is normalised. The standard deviation divides by n-1. Nothing changes
 * where every episode is its own group.
 */
enum { ARES_ENV_IDENTITY, ARES_ENV_MEAN, ARES_ENV_MEAN_STD, ARES_ENV_ASYM_CLIP };
/* Names of the methods, by their number: identity, mean, mean_std, asym_clip. */
const char *const *ares_env_normalisations(int *n);
void ares_env_normalise(int method, double *x, const int64_t *group, int64_t n);

#endif
