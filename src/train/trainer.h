/* Everything a training step works with. (trainer.c) */
#ifndef ARES_TRAIN_TRAINER_H
#define ARES_TRAIN_TRAINER_H

#include "ares/data.h"
#include "ares/reward.h"
#include "ares/rollout.h"
#include "roles/actor.h"
#include "roles/critic.h"
#include "roles/reference.h"

/* The open ones of ares_control_list, in its order. (controls.c) */
typedef struct ares_controls ares_controls;

/* What a step moves before its update, as it was when the step began (state.c). */
typedef struct ares_step_begin {
    int64_t drawn, rows_skipped, updates, critic_updates, skipped, critic_skipped;
    ares_str controls;
} ares_step_begin;

typedef struct ares_trainer {
    const ares_train_config *cfg;
    ares_world *world;
    ares_device device;
    ares_tokenizer *tokenizer;
    ares_prompt_encoder *encoder;
    ares_dataset *train, *val;
    ares_loader loader;
    ares_model *model;
    ares_actor actor;
    ares_reference *ref; /* NULL where no KL asks for it */
    ares_critic *critic; /* NULL where the estimator needs no values */
    ares_controls *controls;
    ares_rollout *rollout;
    ares_reward *reward;
    const ares_adv *adv;
    /* [vocab] 1: a trigger word (triggers.c); NULL: every token may count */
    uint8_t *triggers;
    ares_batch batch;
    ares_sampling val_sampling;
    int64_t val_n;             /* of validation */
    int64_t step, total_steps; /* steps done */
    /* of a regular checkpoint, by validation; the higher the better; step -1: none yet */
    double best_score;
    int64_t best_step;
    /* of the latest validation; step -1: none yet */
    double validated_score;
    int64_t validated_step;
    ares_step_begin begun;
    ares_str run_dir;
    /*
     * worker.actor.model.model_path, found: where tokenizer files come from, and the weights a run
     * began with
     */
    ares_str model_dir;
    uint64_t model_weights; /* their fingerprint */
    struct ares_sft *sft;   /* rows of a supervised run (sft.c); NULL otherwise */
} ares_trainer;
int ares_train_step(ares_trainer *t, ares_metrics *m);
/* Opens everything a checked configuration names; cfg is for what tables bind themselves. */
/* weights: where the policy's come from when a run goes on; NULL: worker.actor.model.model_path. */
int ares_trainer_open(ares_trainer *t, ares_config *cfg, const ares_train_config *c,
                      ares_world *world, const char *weights);
void ares_trainer_close(ares_trainer *t);
/* Binds worker.rollout.val_override_config; faults go to cfg. (validate.c) */
void validation_sampling(ares_config *cfg, const ares_train_config *c, ares_sampling *out,
                         int64_t *n);
/* (validate.c) samples: JSON lines of what was answered; may be NULL */
int ares_trainer_validate(ares_trainer *t, ares_metrics *m, ares_str *samples);
/* (bootstrap.c) the pass over all training rows, where a control asks for it */
int ares_trainer_bootstrap(ares_trainer *t, ares_metrics *m);
#endif
