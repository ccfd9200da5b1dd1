/*
 * Private to train: memory and traffic of a run, computed before it starts; the
 * largest passes and the sizes that follow from the options, which runs use too.
 */
#ifndef ARES_TRAIN_PLAN_PLAN_H
#define ARES_TRAIN_PLAN_PLAN_H

#include "ares/model.h"
#include "ares/train.h"
#include "trainer.h"

/*
 * The largest passes that a run may make: rows of full length, in micro-batches and rounds as large
 * as the options allow. A run on a card takes memory for them before it begins, and ares-train plan
 * counts it. (measure.c)
 */

/* The largest micro-batch: groups of full length, or rows where prompts are not shared. */
typedef struct peak_micro {
    int64_t prompt, response; /* of a row of full length */
    int64_t group;            /* tokens fed for a unit that is never cut: a group, or a row */
    int64_t groups;           /* such units in the micro-batch */
    int64_t per_optimizer;    /* such units of a rank in a mini-batch */
    int64_t tokens, out;      /* of the micro-batch: tokens fed, and rows of the head */
} peak_micro;

/* n micro-batches that go through a model together; tokens, out: of each, as above. */
typedef struct peak_pass {
    int64_t tokens, out, n;
    int64_t filled; /* in place of n where shorter groups fill a round to its last token */
    int64_t rounds; /* such passes over a batch; for stored answers over a mini-batch */
} peak_pass;
/* The passes that a role (actor, critic) makes. */
typedef struct peak_passes {
    /* forward alone; n 0: none. rounds 0: only some groups of a batch are scored */
    peak_pass scored;
    peak_pass trained; /* the update's, forward and back; rounds: of a mini-batch */
} peak_passes;
void peak_of_actor(const ares_trainer *t, const peak_micro *m, peak_passes *out);
/* The actor's over stored answers: scored over a whole mini-batch, trained round by round. */
void peak_of_pairs(const ares_trainer *t, const peak_micro *pairs, peak_passes *out);
void peak_of_critic(const ares_trainer *t, const peak_micro *m, peak_passes *out);
void peak_of_reference(const ares_trainer *t, const peak_micro *m, const peak_micro *pairs,
                       peak_pass *own, peak_pass *of_pairs);

/*
 * Tells the buffers of all roles how large they will become, so that each takes its memory in one
 * piece when training's phase begins. *bytes: of all of them
 */
int peak_reserve(ares_trainer *t, int ranks, size_t *bytes);
/* Takes that back: the buffers grow as passes need them. */
void peak_unreserve(ares_trainer *t);

/*
 * The plan of a run (docs/ranks.md#what-a-run-needs): the parts of a run are opened as a run opens
 * them, on a device that only counts bytes.
 */

/* Who holds memory: X(name, text). */
#define PLAN_OWNERS(X)                          \
    X(WEIGHTS, "weights")                       \
    X(GRADIENTS, "gradients")                   \
    X(STATES, "optimizer states")               \
    X(REFERENCE, "reference")                   \
    X(TEACHER, "teacher")                       \
    X(CRITIC, "critic")                         \
    X(CACHE, "kv cache")                        \
    X(NETS, "states of delta nets")             \
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
    bool reinforcement;  /* false: supervised training */
    int64_t val_longest; /* tokens of the longest answer of a validation; 0: no validation */
} plan_where;

/* Images, for a vision model: as many as prompts of full length have room for. */
typedef struct plan_pictures {
    int64_t tokens; /* of the largest image */
    int64_t room;   /* tokens of a prompt, which a video may fill */
    int64_t step;   /* tokens of a step, or of the rows of a validation answered together */
    double values;  /* bytes on the host per token while the tower reads its picture, as f32 */
    double pixels, features; /* bytes on the host, of a step */
    double stored;           /* bytes of features on the host that may stay over steps */
} plan_pictures;

typedef struct plan {
    ares_model_config model;
    double parameters;
    int ranks;
    ares_sharing how; /* what ranks share of the actor */
    bool card;
    double bytes[PLAN_OWNERS_N][PLAN_PHASES], total[PLAN_PHASES];
    double allocated; /* of the device at most, without BASE: perf/max_memory_allocated_gb */
    double lent[PLAN_OWNERS_N]; /* part of the bytes in training that lies in rollout's memory */
    double copied;              /* of a checkpoint, in host memory, while it is written */
    double checkpoint;          /* on the disk, of all ranks, with optimizer states */
    double checkpoint_model;    /* and without them */
    double shared;              /* bytes that rollout and training take turns in */
    double slice;               /* bytes of rollout's weights that training does not use yet */
    double cache_tokens;
    int64_t cache_tokens_least; /* for one sample of full length */
    bool no_cache; /* gpu_memory_utilization leaves none; cache_tokens_least are counted */
    peak_micro micro;
    peak_micro pairs; /* of VAPOR's stored answers; tokens 0: there are none */
    plan_pictures pictures;
    /* tokens of the largest micro-batch, and of the longest row, that fit in the memory given */
    int64_t most_micro, most_row;
    int64_t answered;                    /* rows of a rank in a training step; 0: none */
    int64_t updates;                     /* optimizer steps of a training step */
    int64_t actor_rounds, critic_rounds; /* of an optimizer step; critic_rounds 0: no critic */
    int64_t pair_rounds;                 /* of stored answers; 0: there are none */
    double sent;                         /* bytes by a rank in a training step */
} plan;

extern const char *const plan_owner_names[PLAN_OWNERS_N];
/* Bytes that a video which fills a prompt takes beyond the largest image; not in the table. */
double plan_longest_video(const plan *p);
/* On the CPU: adds memory of the process that the device does not hand out. (host.c) */
void plan_count_host(ares_trainer *t, const plan_where *where, plan *p);
/* Bytes that tokenizer and rows will take, from the sizes of their files. (host.c) */
double plan_texts(const ares_train_config *c);
/* Fails where a model's config.json cannot be read. (measure.c) */
int plan_measure(const ares_train_config *c, const plan_where *where, plan *out);
/* Bytes that a rank sends in a training step, from a plan that is complete but for `sent`. */
double plan_sent(const ares_trainer *t, const plan *p);
/* Bytes that the run needs: those of its larger phase. */
double plan_needs(const plan *p);
bool plan_fits(const plan *p, const plan_where *where);

/*
 * On a card: gives micro-batches and samples at once the sizes that fit, where no option does, and
 * says what the run computes with. After the device is open; a collective. (plan.c)
 */
int plan_fit_card(const training *t, ares_config *cfg, bool reinforcement, ares_train_config *c);

/*
 * Numbers that follow from the options (measure.c;
 * docs/update.md#sizes-that-follow-from-the-options).
 */

/*
 * Steps of a run. examples: rows of the training set; drawn: prompts of one draw (ARES_NULL_I64: as
 * many as a batch). max_steps ARES_NULL_I64: as many steps as the epochs give.
 */
int64_t train_total_steps(int64_t examples, int64_t drawn, int64_t batch, int64_t epochs,
                          int64_t max_steps);
/*
 * Whether an action is due after `step` steps: it is due every `every` steps, at the end of each
 * epoch, and after the last step. every 0 or less: after the last one only. epoch: its steps; 0:
 * the ends of epochs do not count.
 */
bool train_is_due(int64_t step, int64_t total, int64_t every, int64_t epoch);
/*
 * An optimizer step's samples over all ranks, samples per rank and micro-batches per rank (0 where
 * micro is 0); updates: optimizer steps per training step.
 */
typedef struct train_sizes {
    int64_t global_samples, per_device, accumulation, updates;
} train_sizes;
train_sizes train_sizes_of(int64_t batch, int64_t mini_batch, int64_t n, int64_t world,
                           int64_t ulysses, int64_t micro);
/* Sizes of a model that its floating-point operations follow from. */
typedef struct flops_config {
    int64_t hidden, vocab, layers, heads, kv_heads;
    int64_t intermediate; /* of experts: of those that a token has together */
    int64_t head_dim;     /* 0: hidden / heads */
} flops_config;
/*
 * TFLOP/s of forward and backward over some sequences. tokens, squares: the sum of their lengths,
 * and the sum of the squares of their lengths
 */
double train_tflops(const flops_config *c, double tokens, double squares, double seconds);
/*
 * The cost of a pass over sequences, as a whole number to compare groups by. Unit: the cost of
 * attention for a pair of tokens.
 */
int64_t train_work(const ares_model_config *m, int64_t tokens, int64_t squares);
/* TFLOP/s of dense bf16 products on the card of this name; infinite where it is not known */
double train_peak_tflops(const char *card);
double train_card_bytes(const char *card); /* its memory; infinite where it is not known */
#endif
