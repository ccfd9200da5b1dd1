/*
 * What a run holds, sends and waits for, before it starts (docs/ranks.md#what-a-run-needs): the
 * parts of a run are opened as a run opens them, on a device that only counts.
 */
#ifndef ARES_TRAIN_PLAN_PLAN_H
#define ARES_TRAIN_PLAN_PLAN_H

#include "plan/replay.h"
#include "run/largest.h"

#include "ares/train.h"

/* Who holds memory: X(name, text). */
#define PLAN_OWNERS(X)                          \
    X(WEIGHTS, "weights")                       \
    X(GRADIENTS, "gradients")                   \
    X(STATES, "optimizer states")               \
    X(REFERENCE, "reference")                   \
    X(CRITIC, "critic")                         \
    X(CACHE, "kv cache")                        \
    X(SPARE, "kept for training")               \
    X(BUFFERS, "rollout buffers")               \
    X(ACTIVATIONS, "kept activations")          \
    X(SCRATCH, "head scratch")                  \
    X(PASSES, "passes of reference and critic") \
    X(COPY, "copy of a checkpoint")             \
    X(WRITING, "writing of a checkpoint")       \
    X(TOWER, "passes of vision tower")          \
    X(PICTURES, "pictures and features")        \
    X(KERNELS, "scratch of kernels")            \
    X(SUMS, "sums over ranks")                  \
    X(ROWS, "rows of a step")                   \
    X(TEXTS, "tokenizer and data (estimated)")  \
    X(BASE, "program and libraries (assumed)")
typedef enum plan_owner {
#define PLAN_OWNER(name, text) PLAN_##name,
    PLAN_OWNERS(PLAN_OWNER)
#undef PLAN_OWNER
        PLAN_OWNERS_N
} plan_owner;

enum { PLAN_ROLLOUT, PLAN_TRAINING, PLAN_PHASES };

typedef struct plan_where {
    int ranks, threads;  /* threads: of one rank on the CPU */
    double memory;       /* bytes of one rank */
    double texts;        /* bytes of tokenizer and data in the host's memory */
    double flops, link;  /* per second, for the replay; 0: as plan_speed says */
    bool reinforcement;  /* false: supervised training */
    int64_t val_longest; /* tokens of an answer of a validation at most; 0: there is none */
} plan_where;

/* Images, where the model sees them: as many as prompts of full length have room for. */
typedef struct plan_pictures {
    int64_t tokens; /* of the largest image */
    int64_t room;   /* of a prompt: a video may fill it */
    int64_t step;   /* of a step, or of the rows of a validation that are answered together */
    double values;  /* bytes of the host for a token whose picture the tower reads */
    double pixels, features, stored; /* bytes of the host: of a step; what may stay over steps */
} plan_pictures;

typedef struct plan {
    ares_model_config model;
    double parameters;
    int ranks;
    ares_sharing how; /* what ranks share of the actor */
    bool card;
    double bytes[PLAN_OWNERS_N][PLAN_PHASES], total[PLAN_PHASES];
    double allocated; /* of the device at most, without BASE: perf/max_memory_allocated_gb */
    double lent[PLAN_OWNERS_N]; /* of the bytes in training: in rollout's memory */
    double copied;              /* of a checkpoint, in host memory, while it is written */
    double shared;              /* that rollout and training take turns in */
    double slice;               /* of rollout's own weights: bytes that training has not taken */
    double cache_tokens;
    int64_t cache_tokens_least; /* of one sample of full length */
    bool no_cache; /* gpu_memory_utilization leaves none; it is counted as cache_tokens_least */
    largest_micro micro;
    largest_micro pairs; /* of VAPOR's stored answers; tokens 0: there are none */
    plan_pictures pictures;
    /* with the memory given: the tokens of the largest micro-batch, and of the longest row */
    int64_t most_micro, most_row;
    double flops, link;                  /* per second, what the replay is computed with */
    replay update;                       /* of an optimizer step */
    int64_t answered;                    /* rows of a rank in a training step; 0: none */
    int64_t updates;                     /* optimizer steps of a training step */
    int64_t actor_rounds, critic_rounds; /* of each; critic_rounds 0: there is none */
    int64_t pair_rounds;                 /* of stored answers; 0: there are none */
    double sent;                         /* bytes by a rank in a training step */
} plan;

extern const char *const plan_owner_names[PLAN_OWNERS_N];
/*
 * A vision model's images (pictures.c): what a forward pass of the tower takes beside the rollout's
 * cache, and the host's memory. Once the models are open and the micro-batch is known.
 */
int plan_count_pictures(ares_trainer *t, const plan_where *where, plan *p);
/* Bytes that a video takes which fills a prompt, more than the largest image; not in the table. */
double plan_longest_video(const plan *p);
/* Memory of training's phase for the way back through a trained tower; its bytes, 0 without one. */
int plan_count_tower_backward(ares_trainer *t, const plan *p, double *bytes);
/* Of the CPU: what the process has beside what the device hands out. (host.c) */
void plan_count_host(ares_trainer *t, const plan_where *where, plan *p);
/* Bytes that tokenizer and rows will take, from the sizes of their files. */
double plan_texts(const ares_train_config *c);
/* What is assumed of a device: operations per second of a rank, and bytes it sends. */
void plan_speed(bool card, double *flops, double *link);
/* Fails where a model's config.json cannot be read. (measure.c) */
int plan_measure(const ares_train_config *c, const plan_where *where, plan *out);
/* Bytes that a rank sends in a training step; its last fields are not read. (sent.c) */
double plan_sent(const ares_trainer *t, const plan *p);
/* What must be there for the run. */
double plan_needs(const plan *p);
bool plan_fits(const plan *p, const plan_where *where);
/* "a process needs 7.1 GB where rows have full length (weights 1.0, ...)" */
void plan_describe(const plan *p, ares_str *out);
/* The same of a run that does not fit, with the options with which it would. (fit.c) */
void plan_refusal(const ares_train_config *c, const plan_where *where, const plan *p,
                  ares_str *out);
/* A table for people; JSON. (print.c) */
void plan_print(const plan *p, const plan_where *where, ares_str *out);
void plan_write_json(const plan *p, const plan_where *where, ares_str *out);

#endif
