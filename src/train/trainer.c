/* Wiring: from a checked configuration to everything a step needs, and back. */
#include <string.h>

#include "agents/agents.h"
#include "collect/triggers.h"
#include "controls.h"
#include "options/oversampling.h"
#include "run/largest.h"
#include "run/sizes.h"
#include "vapor/vapor.h"

int trainer_take_rows(const ares_trainer *t, ares_dataset *d, const ares_prompt_encoder *encoder,
                      bool trained)
{
    const ares_train_config *c = t->run.cfg;
    int64_t dropped;
    bool filtered =
        trained && !c->trainer.val_only && (ares_filter_needs(&c->filter) & ARES_FILTER_ACCURACY);
    ARES_TRY(ares_reward_check_rows(t->reward, d, filtered));
    return encoder ? ares_dataset_encode(d, encoder, t->run.device.pool, &dropped) : ARES_OK;
}

/* Rows with their prompts encoded, drawn in this order; names (may be NULL): of the files. */
static int open_source(ares_trainer *t, const ares_texts *files, const char *const *names,
                       const ares_order *order, ares_source *out)
{
    ares_dataset *d;
    ares_row_file *list = ares_calloc((size_t)files->count + 1, sizeof *list);
    for (int64_t i = 0; i < files->count; i++)
        list[i] = (ares_row_file){ .path = files->items[i], .source = names ? names[i] : NULL };
    int rc = ares_dataset_load_files(list, files->count, &t->run.cfg->data,
                                     ares_reward_reads_truth(t->reward), &d);
    ares_free(list);
    if (rc == ARES_OK)
        rc = trainer_take_rows(t, d, t->run.encoder, files == &t->run.cfg->data.train_files);
    if (rc == ARES_OK)
        rc = names ? ares_source_of_mixture(d, &t->run.curriculum, order, out)
                   : ares_source_of_dataset(d, order, out);
    if (rc != ARES_OK) ares_dataset_free(d);
    return rc;
}

/* Environments instead of data sets. */
static int open_environments(ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    if (c->agents_val.tags.count) ARES_TRY(agents_source(&t->agents->val, &t->run.val));
    if (c->trainer.val_only) return ARES_OK;
    t->run.total_steps = c->trainer.max_steps;
    return agents_source(&t->agents->train, &t->run.source);
}

/* Whether a row has images or videos. */
static const ares_row *first_seen(const ares_source *s)
{
    for (int64_t i = 0; i < ares_source_count(s); i++)
        if (ares_source_row(s, i)->sight) return ares_source_row(s, i);
    return NULL;
}

int trainer_check_sight(const ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    const ares_row *row = first_seen(&t->run.source);
    const ares_adv *adv = row ? ares_adv_find(c->algorithm.adv_estimator) : NULL;
    if (!row) row = first_seen(&t->run.val);
    for (int64_t i = 0; i < t->evals.n && !row; i++) row = first_seen(&t->evals.items[i].source);
    if (!row) return ARES_OK;
    if (adv && adv->needs & ARES_NEEDS_VALUES)
        return ares_fail(ARES_ECONFIG,
                         "data: %s:%lld: the row has images or videos, and algorithm.adv_estimator "
                         "= '%s' needs a critic, which reads text alone; choose an estimator "
                         "without one, such as grpo",
                         row->file, (long long)row->line, adv->name);
    if (c->rollout.tensor_parallel_size > 1)
        return ares_fail(
            ARES_ECONFIG,
            "data: %s:%lld: the row has images or videos, and "
            "worker.rollout.tensor_parallel_size = %lld: ranks that decode as one take "
            "text alone; set it to 1",
            row->file, (long long)row->line, (long long)c->rollout.tensor_parallel_size);
    return ARES_OK;
}

static int open_data(ares_trainer *t, ares_config *cfg)
{
    const ares_train_config *c = t->run.cfg;
    ARES_TRY(training_open_encoder(&t->run, &c->data, &t->run.encoder));
    if (t->agents) return open_environments(t);
    if (!c->trainer.val_only) {
        int64_t drawn = oversampling_wanted(c) ? 1
                        : c->data.mini_rollout_batch_size == ARES_NULL_I64
                            ? c->data.rollout_batch_size
                            : c->data.mini_rollout_batch_size;
        const ares_order order = { .draw = ARES_MAX(drawn, 1), /* 0, of any size: one by one */
                                   .option = c->data.mini_rollout_batch_size == ARES_NULL_I64
                                                 ? NULL
                                                 : "data.mini_rollout_batch_size",
                                   .shuffle = c->data.shuffle,
                                   .seed = (uint64_t)c->data.seed };
        ares_curriculum_read(cfg, &c->curriculum, &c->data.train_files, 1, c->trainer.force,
                             &t->run.curriculum);
        ARES_TRY(
            open_source(t, &c->data.train_files, t->run.curriculum.names, &order, &t->run.source));
        t->run.source.answers = c->rollout.n;
        t->run.total_steps = train_total_steps(
            ares_source_count(&t->run.source), t->run.curriculum.n ? 1 : order.draw,
            c->data.rollout_batch_size, c->trainer.total_epochs, c->trainer.max_steps);
        if (t->run.curriculum.n && c->trainer.max_steps == ARES_NULL_I64) {
            t->run.epoch_steps = t->run.total_steps / c->trainer.total_epochs;
            /* the steps of its schedules are known only now */
            ares_curriculum_read(cfg, &c->curriculum, &c->data.train_files, t->run.total_steps,
                                 c->trainer.force, &t->run.curriculum);
        }
        if (!t->run.total_steps && c->trainer.max_steps == ARES_NULL_I64)
            return ares_fail(ARES_ECONFIG,
                             "data: the %lld rows of data.train_files make no batch of %lld in an "
                             "epoch; lower data.rollout_batch_size, or set trainer.max_steps",
                             (long long)ares_source_count(&t->run.source),
                             (long long)c->data.rollout_batch_size);
    }
    eval_sets_read(cfg, c, &t->evals);
    ARES_TRY(eval_sets_open(t));
    if (c->data.val_files.count)
        ARES_TRY(open_source(t, &c->data.val_files, NULL, &(ares_order){ .draw = 1 }, &t->run.val));
    return trainer_check_sight(t);
}

/* Tokens of prompt and response together at most; each turn has what is read and an answer. */
int64_t trainer_longest(const ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    int64_t answer = ARES_MAX(c->data.max_response_length, t->val_longest);
    int64_t len = c->rollout.max_model_len == ARES_NULL_I64
                      ? agents_turns_shown(c) * (c->data.max_prompt_length + answer)
                      : c->rollout.max_model_len;
    return ARES_MIN(len, t->run.model->cfg.max_position);
}

/*
 * What the cache may take of a card, beside all that stays there: weights, gradients, optimizer
 * states, other models; and beside rollout's own weights. Ranks that share a card share what is
 * left equally: the driver's figures are those of all of them, once all have opened their parts.
 * 0 on the CPU.
 */
static int cache_budget(const ares_trainer *t, int64_t *bytes)
{
    const ares_device *d = &t->run.device;
    double slice = t->slice ? (double)ares_model_slice_wants(t->slice) : 0,
           total = ares_device_total_bytes(d), ranks = ares_group_on_card(t->run.groups.all),
           used = ares_device_memory_bytes(d) + ranks * slice,
           share = t->run.cfg->rollout.gpu_memory_utilization,
           left = (share * total - used) / ranks;
    bool given = t->run.cfg->rollout.cache_tokens != ARES_NULL_I64;
    *bytes = given || total == 0 ? 0 : (int64_t)left;
    if (total == 0 || left > 0 || given) return ARES_OK;
    return ares_fail(ARES_ELIMIT,
                     "rollout: kv cache: %.2f GiB of the card's %.2f are in use before it, more "
                     "than worker.rollout.gpu_memory_utilization = %g allows; raise it, or set "
                     "worker.rollout.cache_tokens",
                     used / 1073741824.0, total / 1073741824.0, share);
}

/*
 * What training's largest micro-batches take of a card, all answers being of full length. 0, with a
 * warning, where the card has less left for them: such micro-batches may never come.
 */
static int announce_training(ares_trainer *t, int ranks, size_t *bytes)
{
    const ares_device *d = &t->run.device;
    double total = ares_device_total_bytes(d),
           /* what kernels and libtorch take later: plan's assumption, less on a small card */
        later = ARES_MIN(4e9, total / 20),
           left = (total - ares_device_memory_bytes(d)) / ares_group_on_card(t->run.groups.all) -
                  later;
    ARES_TRY(largest_announce(t, ranks, bytes));
    int64_t over = total > 0 && (double)*bytes > left;
    ARES_TRY(ares_world_max_i64(t->run.world, &over, 1));
    if (!over) return ARES_OK;
    largest_forget(t);
    if (ares_world_rank(t->run.world) == 0 && !d->counting)
        ares_warn(
            "train: micro-batches of answers of full length would take %.2f GiB of the card, "
            "and %.2f are left: should they come, the run ends; shorten data.max_*_length, or "
            "see what ares-train plan proposes",
            (double)*bytes / 1073741824.0, left / 1073741824.0);
    *bytes = 0;
    return ARES_OK;
}

/* After everything that stays on the device, which is what the cache leaves free. */
int trainer_open_rollout(ares_trainer *t, int ranks)
{
    const ares_train_config *c = t->run.cfg;
    bool lends = t->run.device.index >= 0;
    size_t training = 0;
    int64_t budget, most = trainer_longest(t),
                    asked = c->data.max_prompt_length + t->val_sampling.max_new_tokens;
    if (ares_source_count(&t->run.val) && asked > most && ares_world_rank(t->run.world) == 0)
        ares_log(ARES_LOG_WARN,
                 "config: worker.rollout.val_override_config: max_new_tokens = %d: the longest "
                 "prompts leave less: prompt and answer have at most %lld tokens together",
                 t->val_sampling.max_new_tokens, (long long)most);
    if (!t->slice && (t->tp || ares_model_by_region(t->run.model)))
        ARES_TRY(ares_model_slice(t->run.model, t->tp, &t->slice));
    ARES_TRY(ares_world_agree(t->run.world, ARES_OK)); /* all have opened what stays */
    ARES_TRY(ares_world_agree(t->run.world, cache_budget(t, &budget)));
    if (lends) ARES_TRY(announce_training(t, ranks, &training));
    ares_rollout_options o = {
        .cache_tokens = c->rollout.cache_tokens == ARES_NULL_I64 ? 0 : c->rollout.cache_tokens,
        .cache_bytes = budget,
        .lends_cache = lends,
        .training_bytes = training,
        .max_num_seqs = (int32_t)c->rollout.max_num_seqs,
        .max_num_batched_tokens = c->rollout.max_num_batched_tokens == ARES_NULL_I64
                                      ? BATCHED_TOKENS
                                      : (int32_t)c->rollout.max_num_batched_tokens,
        .max_model_len = (int32_t)most,
        .entropy_top_k = strcmp(c->rollout.entropy_mode, "topk_tail") == 0
                             ? (int32_t)c->rollout.entropy_topk
                             : 0,
        .most_likely = t->triggers && strcmp(c->rollout.trigger_match, "argmax") == 0,
        .no_prefix_cache = !c->rollout.enable_prefix_caching
    };
    t->slice_version = -1;
    return ares_rollout_new(t->slice ? t->slice : t->run.model, t->run.tokenizer, &o, &t->rollout);
}

int trainer_renew_rollout(ares_trainer *t)
{
    int64_t version = t->actor.learner.optim.updates;
    if (t->slice) ARES_TRY(ares_model_slice_take(t->slice)); /* training may have had its memory */
    ares_rollout_clear(t->rollout);
    if (t->run.features) {
        ares_features_at(t->run.features, version);
        ares_features_trim(t->run.features);
    }
    if (t->ref && t->ref->features) ares_features_trim(t->ref->features);
    if (!t->slice || (t->slice->filled && t->slice_version == version)) return ARES_OK;
    ARES_TRY(ares_model_slice_fill(t->slice, t->run.model));
    t->slice_version = version;
    return ARES_OK;
}

/* weights: the policy's in a checkpoint; the critic's lie beside them. */
int trainer_open_critic(ares_trainer *t, const char *weights)
{
    ares_str path = { 0 };
    if (weights) ares_path_join(&path, weights, "../critic");
    t->critic = ares_calloc(1, sizeof *t->critic);
    t->run.critic = &t->critic->learner;
    int rc = critic_open(t->critic, t->run.cfg, &t->run.device, t->run.world, &t->run.groups,
                         t->run.total_steps, path.data);
    ares_str_fini(&path);
    return rc;
}

bool trainer_needs_reference(const ares_train_config *c)
{
    return ares_kl_acts(&c->algorithm) != ARES_KL_NOWHERE || vapor_wanted(c);
}

/* A frozen tower is the policy's and the reference's alike: what it makes of an image is made once.
 */
static int let_reference_see(ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    if (t->run.features && ares_features_trained(t->run.features))
        ARES_TRY(ares_features_new(t->ref->learner.model, &t->run.sight.processor,
                                   (size_t)(c->data.vision_cache_gb * 1e9), &t->ref->features));
    t->ref->learner.features = t->ref->features ? t->ref->features : t->run.features;
    return ARES_OK;
}

/* weights: the policy's in a checkpoint; a reference that has moved lies beside them. */
int trainer_open_reference(ares_trainer *t, const char *weights)
{
    const ares_train_config *c = t->run.cfg;
    bool moves = vapor_wanted(c) && c->vapor.sync_ref_model;
    ares_str path = { 0 };
    bool moved = weights && ares_dir_exists(ares_path_join(&path, weights, "../reference"));
    if (weights && moves && !moved) {
        int rc =
            ares_fail(ARES_ESTATE,
                      "run: %s: no such directory: in the run of this checkpoint the reference "
                      "did not move; set vapor.sync_ref_model=false",
                      path.data);
        ares_str_fini(&path);
        return rc;
    }
    if (moved && !moves && ares_world_rank(t->run.world) == 0)
        ares_warn("run: %s: in the run of this checkpoint the reference had moved there; this run "
                  "compares the policy with worker.actor.model.model_path = '%s' instead%s",
                  path.data, c->actor.model_path,
                  vapor_wanted(c) ? "; set vapor.sync_ref_model=true to go on with that one" : "");
    t->ref = ares_calloc(1, sizeof *t->ref);
    t->actor.ref = t->ref;
    int rc = reference_open(t->ref, c, &t->run.device, t->run.world, &t->run.groups,
                            moves ? path.data : NULL);
    if (moves) t->run.moved_reference = t->ref->learner.model;
    if (rc == ARES_OK) rc = let_reference_see(t);
    ares_str_fini(&path);
    return rc;
}

/* Who trains, and who it is compared with. */
static int open_roles(ares_trainer *t, const char *weights)
{
    const ares_train_config *c = t->run.cfg;
    if (c->trainer.val_only)
        return controls_open(t, &t->run.controls); /* a shaped score is shaped as in training */
    t->adv = ares_adv_find(c->algorithm.adv_estimator);
    if (!t->adv) return ARES_ECONFIG;
    if (ares_adv_sees_turns(t->adv, &c->algorithm) && t->answerer == &answer_engine)
        ares_log(ARES_LOG_WARN,
                 "config: %s: has no effect: answers of this run are single turns, for which it "
                 "is gae",
                 c->algorithm.bi_level_gae ? "algorithm.bi_level_gae" : "algorithm.adv_estimator");
    ARES_TRY(
        actor_open(&t->actor, c, t->run.model, t->run.features, t->run.world, t->run.total_steps));
    ARES_TRY(controls_open(t, &t->run.controls));
    if (t->adv->needs & ARES_NEEDS_VALUES) ARES_TRY(trainer_open_critic(t, weights));
    if (vapor_wanted(c)) ARES_TRY(vapor_open(t, &t->vapor));
    t->run.vapor = t->vapor;
    return trainer_needs_reference(c) ? trainer_open_reference(t, weights) : ARES_OK;
}

static int open_parts(ares_trainer *t, ares_config *cfg, const char *weights)
{
    const ares_train_config *c = t->run.cfg;
    if (agents_wanted(c)) {
        t->answerer = &answer_agents;
        t->reward = ares_reward_open_none();
        ARES_TRY(agents_define(cfg, c, &t->agents));
    } else ARES_TRY(ares_reward_open(cfg, &c->reward, t->run.device.pool, &t->reward));
    t->run.best_by_accuracy = ares_reward_shapes(t->reward);
    ARES_TRY(training_open_model(&t->run, weights));
    const ares_sampling_word sampled[] = {
        { "temperature", "worker.rollout.temperature", c->rollout.temperature },
        { "top_p", "worker.rollout.top_p", c->rollout.top_p },
        { "top_k", "worker.rollout.top_k", (double)c->rollout.top_k },
    };
    if (ares_world_rank(t->run.world) == 0)
        ARES_TRY(ares_model_tell_sampling(t->run.model_dir.data, sampled, ARES_COUNT(sampled)));
    ARES_TRY(open_data(t, cfg));
    t->run.validates = ares_source_count(&t->run.val) || t->evals.n;
    ARES_TRY(triggers_load(t));
    validation_sampling(cfg, c, &t->val_sampling, &t->val_n);
    t->val_longest = validation_longest(c, &t->val_sampling, &t->evals);
    ARES_TRY(ares_config_finish(cfg));
    if (t->agents) {
        t->val_n = c->agents_val.group_size;
        ARES_TRY(agents_open(t->agents, t->run.encoder, t->run.tokenizer, trainer_longest(t),
                             ares_group_size(t->run.groups.all)));
    }
    ARES_TRY(open_roles(t, weights));
    return trainer_open_rollout(t, ares_group_size(t->run.groups.all));
}

void trainer_init(ares_trainer *t, const ares_train_config *c, ares_world *world)
{
    *t = (ares_trainer){ .answerer = &answer_engine };
    training_init(&t->run, c, world);
    t->run.policy = &t->actor.learner;
    ares_batch_init(&t->batch);
}

/* After the device and its groups. */
static int open_on_device(ares_trainer *t, ares_config *cfg, const char *weights)
{
    int64_t tp = t->run.cfg->rollout.tensor_parallel_size;
    if (tp > 1) ARES_TRY(ares_group_open(t->run.world, &t->run.device, (int)tp, 1, &t->tp));
    t->run.groups.tp = t->tp;
    return ares_world_agree(t->run.world, open_parts(t, cfg, weights));
}

int trainer_open(ares_trainer *t, ares_config *cfg, const ares_train_config *c, ares_world *world,
                 const char *weights)
{
    trainer_init(t, c, world);
    ARES_TRY(ares_world_agree(world, training_open_device(&t->run)));
    return open_on_device(t, cfg, weights);
}

/* On a counting device no weight is read, and nothing is computed. */
int ares_train_rehearse(ares_config *cfg, const ares_train_config *c, int ranks)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    trainer_init(t, c, NULL);
    int rc = training_open_counting(&t->run, ranks);
    if (rc == ARES_OK) rc = open_on_device(t, cfg, NULL);
    trainer_close(t);
    ares_free(t);
    return rc;
}

void trainer_close(ares_trainer *t)
{
    ares_features_free(t->run.features); /* its decoders read the rows of all data sets below */
    t->run.features = NULL;
    ares_rollout_free(t->rollout);
    ares_model_free(t->slice);
    ares_group_close(t->tp);
    agents_close(t->agents);
    ares_free(t->triggers);
    actor_close(&t->actor);
    controls_close(t->run.controls);
    if (t->critic) critic_close(t->critic);
    ares_free(t->critic);
    if (t->ref) reference_close(t->ref);
    ares_free(t->ref);
    vapor_close(t->vapor);
    eval_sets_close(&t->evals);
    ares_reward_close(t->reward);
    ares_batch_fini(&t->batch);
    training_close(&t->run);
}
