/*
 * The largest passes that a run may make: of rows of full length, in micro-batches and rounds as
 * large as the options let them be. A run on a card takes memory for them before it begins, and
 * ares-train plan counts it. (largest.c)
 */
#ifndef ARES_TRAIN_RUN_LARGEST_H
#define ARES_TRAIN_RUN_LARGEST_H

#include "trainer.h"

/* Of a pass that can be asked about at all. */
enum { LARGEST_TOKENS = 1 << 28 };

/* The largest micro-batch: groups of full length, or rows where prompts are not shared. */
typedef struct largest_micro {
    int64_t prompt, response;      /* of a row of full length */
    int64_t group;                 /* tokens fed for what is never cut: a group, or a row */
    int64_t groups, per_optimizer; /* such units in the micro-batch; of a rank, in a mini-batch */
    int64_t tokens, out;           /* of the micro-batch: fed, and rows of the head */
} largest_micro;
/* longest: tokens of a row at most; reinforcement false: supervised training */
void largest_micro_of(const ares_train_config *c, int ranks, bool reinforcement, int64_t longest,
                      largest_micro *out);
/* Of VAPOR's stored answers; tokens 0: there are none. */
void largest_pairs_of(const ares_train_config *c, int ranks, largest_micro *out);
/* Micro-batches of a rank in an update. */
int64_t largest_in_update(const largest_micro *m);

/* n micro-batches that go through a model together, of so many tokens and rows of the head each. */
typedef struct largest_pass {
    int64_t tokens, out, n;
    int64_t filled; /* in place of n where shorter groups fill a round to its last token */
    int64_t rounds; /* such passes over a batch, of stored answers over a mini-batch */
} largest_pass;
/* What a role makes of them. */
typedef struct largest_passes {
    /* forward alone; n 0: none. rounds 0: of some groups of a batch, not of each */
    largest_pass scored;
    largest_pass trained; /* of its update, forward and back; rounds: of a mini-batch */
} largest_passes;
void largest_of_actor(const ares_trainer *t, const largest_micro *m, largest_passes *out);
/* The actor's over stored answers: log-probs of all of a mini-batch, gradients round by round. */
void largest_of_pairs(const ares_trainer *t, const largest_micro *pairs, largest_passes *out);
void largest_of_critic(const ares_trainer *t, const largest_micro *m, largest_passes *out);
void largest_of_reference(const ares_trainer *t, const largest_micro *m, const largest_micro *pairs,
                          largest_pass *own, largest_pass *of_pairs);

/* Tokens of the largest image, of a prompt with room for so many. */
int largest_image(const ares_trainer *t, int64_t room, int64_t *tokens);
int32_t largest_patches(const ares_model *m, int64_t tokens);

/*
 * Tells the buffers of all roles how large they will be, so that each takes its memory of
 * training's phase once, and whole. *bytes: of all of them
 */
int largest_announce(ares_trainer *t, int ranks, size_t *bytes);
/* The buffers grow as passes come, as if nothing had been announced. */
void largest_forget(ares_trainer *t);
#endif
