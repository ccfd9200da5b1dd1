/*
 * Private to train. A run: what every kind has (training), evaluation over several data sets,
 * what a step of reinforcement learning works with (ares_trainer), and the controls of a run.
 */
#ifndef ARES_TRAIN_TRAINER_H
#define ARES_TRAIN_TRAINER_H

#include "ares/data_source.h"
#include "ares/reward.h"
#include "ares/rollout.h"
#include "ares/train.h"
#include "learner.h"
#include "roles.h"

/*
 * What every kind of run has, by rewards or supervised. The loop, the run directory and checkpoints
 * know a run by this struct and its run_kind alone. (trainer.c)
 */

typedef struct controls controls;
struct vapor;

/*
 * The state that a step changes before its update: a copy taken when the step began, or of the
 * present state. (run/checkpoint.c)
 */
typedef struct step_begin {
    int64_t rows_skipped, updates, critic_updates, skipped, critic_skipped;
    ares_str controls; /* their state as a checkpoint holds it; on rank 0 alone */
    ares_source_snapshot source;
} step_begin;
void step_begin_fini(step_begin *b);

typedef struct training {
    const ares_train_config *cfg;
    ares_world *world;
    ares_device device;
    sharing_groups groups; /* of ranks that train its models together */
    ares_tokenizer *tokenizer;
    ares_prompt_encoder *encoder;
    ares_curriculum curriculum; /* n 0: the source is one data set, or environments */
    ares_source source;         /* of training prompts; closed where the run only validates */
    ares_source val;            /* closed: none */
    bool validates;             /* there are rows to validate on, here or in an evaluation */
    ares_model *model;
    ares_adapter *adapter;      /* what is trained beside it; NULL: the model itself is */
    ares_media_rules row_media; /* of a vision model */
    ares_features *features;    /* made by the policy's vision tower; NULL: it reads text alone */
    learner *policy;            /* of the model; without an optimizer in a validation alone */
    learner *critic;            /* NULL: none */
    controls *controls;         /* NULL: none; their state is part of a checkpoint */
    const ares_model *moved_reference; /* part of a checkpoint; NULL: none, or it never moves */
    const ares_model *moved_teacher;   /* likewise */
    struct vapor *vapor; /* NULL: none; what its reference has said is part of a checkpoint */
    /* validations are compared by accuracy: a shaper would change what the score means */
    bool best_by_accuracy;
    int64_t step, total_steps; /* steps done */
    /* steps of an epoch of a curriculum, at whose end it is also validated and saved; 0: none */
    int64_t epoch_steps;
    /* highest validation score of a regular checkpoint, and its step; step -1: none yet */
    double best_score;
    int64_t best_step;
    /* score and step of the latest validation; step -1: none yet */
    double validated_score;
    int64_t validated_step;
    bool unjudged; /* the first validation could judge nothing: the run ends, saved */
    step_begin begun;
    exactness exact; /* of all steps (run/exactness.c) */
    ares_str forced; /* of exactness.json: a JSON list, or empty; on rank 0 */
    /* ares-train verify: steps learn nothing, and nothing is written into the run directory */
    bool replays;
    ares_str run_dir;
    bool same_files; /* all ranks see the run directory of rank 0 */
    /* worker.actor.model.model_path, found: the run began with its weights and tokenizer */
    ares_str model_dir, tokenizer_dir; /* the second: or a tokenizer.json */
    uint64_t model_weights;            /* fingerprint of these weights */
    uint64_t first_adapter;            /* and of worker.actor.model.lora.adapter_path; 0: null */
    uint64_t teacher_weights; /* and of distillation.teacher_model.model_path; 0: no such teacher */
} training;

void training_init(training *t, const ares_train_config *cfg, ares_world *world);
/* Of an option that says fp32 or bf16. */
ares_dtype training_type(const char *word);
/* The type in which the actor's weights are stored. */
ares_dtype training_storage(const ares_train_config *c);
/* Sets the model's longest sequence where worker.actor.model.override_config gives one. */
int training_set_positions(ares_model_config *m, const ares_json *override);
/* Parts of opening: device, groups, model_dir and its fingerprint. A collective. */
int training_open_device(training *t);
/*
 * Instead of training_open_device: a device on which a model has no weights, to find out whether a
 * run would open.
 */
int training_open_counting(training *t, int ranks);
/*
 * Model and adapter. weights: a checkpoint's model/, beside which its adapter/ lies; NULL:
 * worker.actor.model.model_path
 */
int training_open_weights(training *t, const char *weights);
/* The same, and the tokenizer, which must belong to the model. */
int training_open_model(training *t, const char *weights);
/* After the model. data: options of the run, or of another data set, such as an evaluation's. */
int training_open_encoder(training *t, const ares_data_config *data, ares_prompt_encoder **out);
/* Closes all but policy, critic and controls, which the kind of run closes. */
void training_close(training *t);

/*
 * Evaluation over several data sets, each with its own sampling and verifier
 * (docs/curriculum.md#evaluation). It takes place where a validation does.
 */

typedef struct eval_set {
    const char *name, *path;
    ares_data_config data;     /* with the keys of its rows */
    const ares_json *metadata; /* added to that of its rows; NULL: none */
    ares_sampling sampling;
    int64_t n; /* answers to each prompt */
    ares_prompt_encoder *encoder;
    ares_source source;
} eval_set;
typedef struct eval_sets {
    eval_set *items; /* in the memory of the configuration */
    int64_t n;
} eval_sets;

/*
 * Reads eval.*; faults go to cfg. A value that a data set does not give comes from eval.defaults,
 * then from worker.rollout.val_override_config, then from training. After resolve.
 */
void eval_sets_read(ares_config *cfg, const ares_train_config *c, eval_sets *out);
/* Tokens of the longest answer that any of the sets allows; 0: there is no set. */
int64_t eval_sets_longest(const eval_sets *e);
struct ares_trainer;
int eval_sets_open(struct ares_trainer *t);
void eval_sets_close(eval_sets *e);

/* Everything a training step works with. (trainer.c, step.c) */

typedef struct ares_trainer {
    training run; /* first: a run's training is its trainer */
    actor actor;
    reference *ref;                    /* NULL where no KL asks for it */
    teacher *teacher;                  /* NULL where nothing is distilled */
    critic *critic;                    /* NULL where the estimator needs no values */
    const struct generator *generator; /* who answers prompts (collect/collect.h) */
    ares_rollout *rollout;
    ares_group *tp;              /* the ranks that roll out as one; NULL: each by itself */
    ares_model *slice;           /* what the engine runs then; NULL: the policy itself */
    ares_adapter *slice_adapter; /* beside the slice of ranks that roll out as one; else NULL */
    int64_t slice_version; /* the updates that its weights have seen; -1: none are there yet */
    struct vapor *vapor;   /* NULL: the loss knows no stored answers (vapor.h) */
    struct agents *agents; /* NULL: the run answers prompts of a data set (agents/agents.h) */
    ares_reward *reward;
    const ares_adv *adv;
    /* [vocab] 1: a trigger word (collect/answer.c); NULL: every token may count */
    uint8_t *triggers;
    ares_batch batch;
    int64_t rollouts_step; /* the last one that rollouts/ has a file of, by this process */
    const ares_rollout_watch *watch; /* of the engine, before it opens; NULL: nobody looks */
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
/* The same for ares-train verify: its steps learn nothing, and `watch` looks on as they decode. */
int trainer_open_replay(ares_trainer *t, ares_config *cfg, const ares_train_config *c,
                        ares_world *world, const char *weights, const ares_rollout_watch *watch);
void trainer_close(ares_trainer *t);
/* A trainer of which no part is open. --check calls this and the parts that it needs. */
void trainer_init(ares_trainer *t, const ares_train_config *c, ares_world *world);
/*
 * Checks that rows can be judged, and encodes their prompts (encoder NULL: it does not). trained:
 * they are not for validation.
 */
int trainer_take_rows(const ares_trainer *t, ares_dataset *d, const ares_prompt_encoder *encoder,
                      bool trained);
/* Fails where rows have images or videos, and an option of the run cannot go together with them. */
int trainer_check_media(const ares_trainer *t);
/* What the engine's requests name: NULL where all weights are trained. */
const ares_adapter *trainer_adapter(const ares_trainer *t);
/* Empties the engine; its next samples are of the policy as it is now. */
int trainer_renew_rollout(ares_trainer *t);
/*
 * Whether answers of training are judged: not where a teacher alone teaches, and nothing else reads
 * scores (docs/distillation.md).
 */
bool trainer_judges(const ares_train_config *c);
/* Whether the estimator reads values, and takes part in what is learnt. */
bool trainer_needs_critic(const ares_train_config *c);
/* Whether training compares with the model it began from. */
bool trainer_needs_reference(const ares_train_config *c);
/*
 * Parts of trainer_open, in the order in which it calls them; weights: as there. The rollout comes
 * after everything that stays on the device, which is what its cache leaves free, and on a card
 * takes the memory in which training takes turns with it.
 */
int trainer_open_critic(ares_trainer *t, const char *weights);
int trainer_open_reference(ares_trainer *t, const char *weights);
int trainer_open_teacher(ares_trainer *t, const char *weights); /* after the reference */
int trainer_open_rollout(ares_trainer *t, int ranks);
/* Samples that a rank decodes at a time, at most. */
int64_t trainer_running(const ares_trainer *t, int ranks);
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
/* The pass over all training rows, where a control asks for it. (run/validate.c) */
int trainer_bootstrap(ares_trainer *t, ares_metrics *m);

/*
 * The controls of a run: those of ares_control_list that its options ask for, in its order. A NULL
 * controls has none. (controls.c)
 */

/* Declares the options of all controls. */
void controls_declare(ares_config *cfg, ares_train_config *out);
/*
 * Reports what makes no sense of the options of the controls that they ask for. reward: NULL where
 * none can be opened, or environments score their episodes.
 */
void controls_check(ares_config *cfg, const ares_train_config *c, const ares_reward *reward);
/* Whether the options ask for control i of ares_control_list. */
bool controls_wants(const ares_train_config *c, const ares_reward *reward, int i);
/* Opens the controls that the options ask for. Data, reward and world of t must be open. */
int controls_open(const ares_trainer *t, controls **out);
void controls_close(controls *c);
int controls_observe(controls *c, ares_batch *b, ares_metrics *m);
/* After the update. Prompts that a control does not want to see again are taken out of the source.
 */
int controls_adapt(controls *c, const ares_batch *b, ares_source *s, ares_metrics *m);
/* Why the run is to end, as the first control says that wants it; NULL: it goes on. */
const char *controls_stop(const controls *c);
/* Shows every group that is answered, the dropped ones included. */
int controls_generated(controls *c, const ares_group *groups, int64_t count);
/* Writes what shaping a score reads, where a filter needs shaped scores before the step's end. */
int controls_provisional(const controls *c, ares_batch *b);
int controls_validate(controls *c, ares_batch *b, ares_metrics *m);
/* After a validation of training, with its metrics. */
int controls_validated(controls *c, const ares_metrics *m);
/*
 * The pass over all training rows: prompts per batch; 0 where no control asks for it or it is
 * complete. *done: prompts answered so far.
 */
int64_t controls_bootstrap(const controls *c, int64_t *done);
int controls_bootstrap_add(controls *c, ares_batch *b, ares_metrics *m);
int controls_bootstrap_finish(controls *c, ares_metrics *m);
void controls_save(const controls *c, ares_str *json); /* {"<name>": state, ..} */
int controls_load(controls *c, const ares_json *json, const char *path);
/*
 * For a validation alone: loads a state of any data set and model. A control that it lacks stays as
 * it was opened.
 */
int controls_look(controls *c, const ares_json *json, const char *path);
#endif
