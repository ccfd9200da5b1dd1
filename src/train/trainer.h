/* Everything a training step works with. (trainer.c, step.c) */
#ifndef ARES_TRAIN_TRAINER_H
#define ARES_TRAIN_TRAINER_H

#include "ares/reward.h"
#include "ares/rollout.h"
#include "roles/actor.h"
#include "roles/critic.h"
#include "roles/reference.h"
#include "run/eval_sets.h"
#include "run/training.h"

typedef struct ares_trainer {
    training run; /* first: a run's training is its trainer */
    actor actor;
    reference *ref;                  /* NULL where no KL asks for it */
    critic *critic;                  /* NULL where the estimator needs no values */
    const struct answerer *answerer; /* who answers prompts (collect/answerer.h) */
    ares_rollout *rollout;
    ares_group *tp;        /* the ranks that roll out as one; NULL: each by itself */
    ares_model *slice;     /* what the engine runs then; NULL: the policy itself */
    int64_t slice_version; /* the updates that its weights have seen; -1: none are there yet */
    struct vapor *vapor;   /* NULL: the loss knows no stored answers (vapor/vapor.h) */
    struct agents *agents; /* NULL: the run answers prompts of a data set (agents/agents.h) */
    ares_reward *reward;
    const ares_adv *adv;
    /* [vocab] 1: a trigger word (triggers.c); NULL: every token may count */
    uint8_t *triggers;
    ares_batch batch;
    ares_sampling val_sampling;
    int64_t val_n;       /* answers per prompt of a validation */
    int64_t val_longest; /* as validation_longest says */
    eval_sets evals;
} ares_trainer;

/* The algorithm: one training step. */
int ares_train_step(ares_trainer *t, ares_metrics *m);
/*
 * Opens everything that a checked configuration names. cfg is for the options that tables bind
 * themselves. weights: where the policy's come from when a run goes on; NULL:
 * worker.actor.model.model_path. After a failure, too, the trainer is to be closed.
 */
int trainer_open(ares_trainer *t, ares_config *cfg, const ares_train_config *c, ares_world *world,
                 const char *weights);
void trainer_close(ares_trainer *t);
/* Parts of it that --check does, too: with no part open yet. */
void trainer_init(ares_trainer *t, const ares_train_config *c, ares_world *world);
/*
 * Checks that rows can be judged, and encodes their prompts (encoder NULL: it does not). trained:
 * they are not for validation.
 */
int trainer_take_rows(const ares_trainer *t, ares_dataset *d, const ares_prompt_encoder *encoder,
                      bool trained);
/* Refuses by name what rows with images or videos cannot go together with. */
int trainer_check_sight(const ares_trainer *t);
/* Empties the engine, whose next samples are the policy's as it is now. */
int trainer_renew_rollout(ares_trainer *t);
/* Whether training compares with the model it began from. */
bool trainer_needs_reference(const ares_train_config *c);
/*
 * Parts of trainer_open, in the order in which it calls them; weights: as there. The rollout comes
 * after everything that stays on the device, which is what its cache leaves free, and on a card
 * takes the memory in which training takes turns with it.
 */
int trainer_open_critic(ares_trainer *t, const char *weights);
int trainer_open_reference(ares_trainer *t, const char *weights);
int trainer_open_rollout(ares_trainer *t, int ranks);
/* worker.rollout.max_num_batched_tokens where it is null. */
enum { BATCHED_TOKENS = 2048 };
/* Tokens of prompt and response together at most. */
int64_t trainer_longest(const ares_trainer *t);
/* Binds worker.rollout.val_override_config; faults go to cfg. (run/validate.c) */
void validation_sampling(ares_config *cfg, const ares_train_config *c, ares_sampling *out,
                         int64_t *n);
/* Tokens of an answer at most where a validation or evaluation is due; 0: none ever is. */
int64_t validation_longest(const ares_train_config *c, const ares_sampling *validation,
                           const eval_sets *evals);
/* samples: JSON lines of what was answered; may be NULL. (run/validate.c) */
int trainer_validate(ares_trainer *t, ares_metrics *m, ares_str *samples);
/* The pass over all training rows, where a control asks for it. (run/bootstrap.c) */
int trainer_bootstrap(ares_trainer *t, ares_metrics *m);
#endif
