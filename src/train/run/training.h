/*
 * What every kind of run has, by rewards or supervised. The loop, the run directory and checkpoints
 * know a run by this struct and its run_kind alone. (training.c)
 */
#ifndef ARES_TRAIN_RUN_TRAINING_H
#define ARES_TRAIN_RUN_TRAINING_H

#include "ares/data_source.h"
#include "options/sharing.h"
#include "roles/learner.h"

typedef struct controls controls;
struct vapor;

/* What a step changes before its update: as it was when the step began, or as it is. (state.c) */
typedef struct step_begin {
    int64_t rows_skipped, updates, critic_updates, skipped, critic_skipped;
    ares_str controls; /* as they are saved; on rank 0 */
    ares_source_snapshot source;
} step_begin;
void step_begin_fini(step_begin *b);

typedef struct training {
    const ares_train_config *cfg;
    ares_world *world;
    ares_device device;
    sharing_groups groups; /* of the ranks, which train its models together */
    ares_tokenizer *tokenizer;
    ares_prompt_encoder *encoder;
    ares_curriculum curriculum; /* of the source; n 0: it is one data set, or environments */
    ares_source source;         /* of training prompts; closed where the run only validates */
    ares_source val;            /* closed: none */
    bool validates;             /* there are rows to validate on, here or in an evaluation */
    ares_model *model;
    ares_sight_rules sight;  /* of a vision model */
    ares_features *features; /* that the policy's tower makes; NULL: it reads text alone */
    learner *policy;         /* of the model; where it is only validated, without an optimizer */
    learner *critic;         /* NULL: none */
    controls *controls;      /* NULL: none; their state is part of a checkpoint */
    const ares_model *moved_reference; /* part of a checkpoint; NULL: none, or it never moves */
    struct vapor *vapor; /* NULL: none; what its reference has said is part of a checkpoint */
    /* validations are compared by accuracy: a shaper would change what the score means */
    bool best_by_accuracy;
    int64_t step, total_steps; /* steps done */
    /* of an epoch, at whose end a curriculum is validated and saved, too; 0: epochs end nothing */
    int64_t epoch_steps;
    /* of a regular checkpoint, by validation; the higher the better; step -1: none yet */
    double best_score;
    int64_t best_step;
    /* of the latest validation; step -1: none yet */
    double validated_score;
    int64_t validated_step;
    bool unjudged; /* the first validation could judge nothing: the run ends, saved */
    step_begin begun;
    ares_str run_dir;
    bool same_files; /* all ranks see the run directory of rank 0 */
    /*
     * worker.actor.model.model_path, found: where tokenizer files come from, and the weights that a
     * run began with
     */
    ares_str model_dir;
    uint64_t model_weights; /* their fingerprint */
} training;

void training_init(training *t, const ares_train_config *cfg, ares_world *world);
/* Of the actor's weights. */
ares_dtype training_storage(const ares_train_config *c);
/* The longest sequence of a model, where worker.actor.model.override_config says another. */
int training_set_positions(ares_model_config *m, const ares_json *override);
/* Parts of opening: device, groups, model_dir and its fingerprint. A collective. */
int training_open_device(training *t);
/* In its place: a device on which a model has no weights, to look at what a run would open. */
int training_open_counting(training *t, int ranks);
/*
 * Model and tokenizer, which must belong together. weights: a checkpoint's model/; NULL:
 * worker.actor.model.model_path
 */
int training_open_model(training *t, const char *weights);
/* After the model: of options data, whose file may be another's than the run's. */
int training_open_encoder(training *t, const ares_data_config *data, ares_prompt_encoder **out);
/* All but policy, critic and controls, which belong to the kind of run. */
void training_close(training *t);
#endif
