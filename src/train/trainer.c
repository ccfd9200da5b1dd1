/*
 * Opens what a run needs, from a checked configuration, and closes it again. First the groups of
 * ranks that share a model; then what every kind of run has (device, model, positions, storage);
 * last what reinforcement learning has besides: rows or environments, rollout engine, critic,
 * reference.
 */
#include "trainer.h"
#include "agents/agents.h"
#include "ares/algo_control.h"
#include "collect/collect.h"
#include "learner.h"
#include "options/options.h"
#include "plan/plan.h"
#include "run/run.h"
#include "vapor.h"

#include <stdio.h>
#include <string.h>

/* What ranks share of a model that they train together (docs/ranks.md#sharing). */

static bool is_true(const ares_json *flag)
{
    return flag->type == ARES_JSON_BOOL && flag->boolean;
}

int sharing_size(int64_t fsdp_size, int ranks)
{
    /* more than all: verl's files are written for more cards than there may be */
    bool all = fsdp_size == ARES_NULL_I64 || fsdp_size == -1 || fsdp_size >= ranks;
    return all ? ranks : (int)fsdp_size;
}

/* fsdp_size and enable_full_shard of one model. why_not (may be NULL): why weights stay whole */
static void check(ares_config *cfg, const char *section, const ares_json *full_shard,
                  const char *why_not, int64_t fsdp_size, int world)
{
    char path[64];
    if (fsdp_size == 1) why_not = "fsdp_size = 1 shares nothing";
    if (is_true(full_shard) && world > 1 && why_not)
        ares_log(ARES_LOG_INFO,
                 "config: %s.enable_full_shard -> weights stay whole on every rank: %s", section,
                 why_not);
    if (fsdp_size > world && world > 1)
        ares_log(ARES_LOG_INFO, "config: %s.fsdp_size = %lld -> %d, all ranks", section,
                 (long long)fsdp_size, world);
    if (world % sharing_size(fsdp_size, world) == 0) return;
    snprintf(path, sizeof path, "%s.fsdp_size", section);
    ares_config_fault(cfg, path,
                      "does not divide the number of ranks, %d: set a divisor, -1 for all ranks, "
                      "or 1 to share nothing",
                      world);
}

/* VAPOR's second batch is a round of its own, which whole gradients would add to one chain. */
static const char *why_not_actor(const ares_train_config *c)
{
    if (vapor_wanted(c) && c->actor.round_tokens == ARES_NULL_I64)
        return "vapor's stored answers are a round of their own; set worker.actor.round_tokens";
    return NULL;
}

void sharing_check(ares_config *cfg, const ares_train_config *c, int world)
{
    check(cfg, "worker.actor.fsdp", c->actor.full_shard, why_not_actor(c), c->actor.fsdp_size,
          world);
    check(cfg, "worker.critic.fsdp", c->critic.full_shard, NULL, c->critic.fsdp_size, world);
    check(cfg, "worker.ref.fsdp", c->ref.full_shard, NULL, c->ref.fsdp_size, world);
    if (c->distillation.enabled)
        check(cfg, "distillation.teacher_model.fsdp", c->distillation.full_shard, NULL,
              c->distillation.fsdp_size, world);
}

/* The groups of a size between 1 and all ranks; NULL: none are open. */
static const sharing_cut *cut_of(const sharing_groups *g, int size)
{
    for (int i = 0; i < g->n; i++)
        if (ares_group_size(g->cut[i].group) == size) return &g->cut[i];
    return NULL;
}

int sharing_open(sharing_groups *g, const ares_train_config *c, ares_world *world, ares_device *d,
                 int ranks)
{
    const int64_t asked[] = { c->actor.fsdp_size, c->critic.fsdp_size, c->ref.fsdp_size,
                              c->distillation.enabled ? c->distillation.fsdp_size : 1 };
    *g = (sharing_groups){ 0 };
    ARES_TRY(ares_group_open(world, d, ranks, 1, &g->all));
    for (int i = 0; i < ARES_COUNT(asked); i++) {
        int size = sharing_size(asked[i], ranks);
        if (size == 1 || size == ranks || cut_of(g, size)) continue;
        sharing_cut *cut = &g->cut[g->n];
        ARES_TRY(ares_group_open(world, d, size, 1, &cut->group));
        g->n++; /* from here on training_close closes it */
        ARES_TRY(ares_group_open(world, d, ranks / size, size, &cut->replicas));
    }
    return ARES_OK;
}

int64_t sharing_bytes(const sharing_groups *g)
{
    int64_t bytes = ares_group_bytes(g->all) + (g->tp ? ares_group_bytes(g->tp) : 0);
    for (int i = 0; i < g->n; i++)
        bytes += ares_group_bytes(g->cut[i].group) + ares_group_bytes(g->cut[i].replicas);
    return bytes;
}

/* How a model is shared. Where nothing is, gradients are still summed over all ranks. */
static ares_model_share share_of(const ares_json *full_shard, const char *why_not,
                                 int64_t fsdp_size, const sharing_groups *g)
{
    ares_model_share share = { .group = g ? g->all : NULL };
    int ranks = ares_group_size(share.group), size = sharing_size(fsdp_size, ranks);
    if (ranks == 1 || size == 1) return share;
    share.how = is_true(full_shard) && !why_not ? ARES_SHARE_ALL : ARES_SHARE_STATES;
    if (size == ranks) return share;
    const sharing_cut *cut = cut_of(g, size);
    share.group = cut->group;
    share.replicas = cut->replicas;
    return share;
}

ares_model_share sharing_of_actor(const ares_train_config *c, const sharing_groups *g)
{
    ares_model_share share = share_of(c->actor.full_shard, why_not_actor(c), c->actor.fsdp_size, g);
    share.by_round = c->actor.round_tokens != ARES_NULL_I64;
    share.weights_on_host = c->actor.offload_params;
    share.states_on_host = c->actor.offload_optimizer;
    return share;
}

ares_model_share sharing_of_base(ares_model_share share)
{
    /* a frozen model has neither gradients nor states: only its weights can be shared */
    bool host = share.weights_on_host;
    if (share.how != ARES_SHARE_ALL) share = (ares_model_share){ 0 };
    share.weights_on_host = host;
    share.by_round = share.states_on_host = false;
    return share;
}

ares_model_share sharing_of_adapter(ares_model_share share)
{
    if (share.how == ARES_SHARE_ALL) share.how = ARES_SHARE_STATES;
    share.weights_on_host = share.by_round = false; /* its gradient is small, and is summed once */
    return share;
}

ares_model_share sharing_of_critic(const ares_train_config *c, const sharing_groups *g)
{
    ares_model_share share = share_of(c->critic.full_shard, NULL, c->critic.fsdp_size, g);
    share.by_round = c->critic.round_tokens != ARES_NULL_I64;
    share.weights_on_host = c->critic.offload_params;
    share.states_on_host = c->critic.offload_optimizer;
    return share;
}

ares_model_share sharing_of_reference(const ares_train_config *c, const sharing_groups *g)
{
    ares_model_share share = share_of(c->ref.full_shard, NULL, c->ref.fsdp_size, g);
    share.weights_on_host = c->ref.offload_params;
    return sharing_of_base(share);
}

ares_model_share sharing_of_teacher(const ares_train_config *c, const sharing_groups *g)
{
    const ares_distillation_config *d = &c->distillation;
    ares_model_share share = share_of(d->full_shard, NULL, d->fsdp_size, g);
    share.weights_on_host = d->offload_params;
    return sharing_of_base(share);
}

/* Opening and closing what every kind of run has. */

void training_init(training *t, const ares_train_config *cfg, ares_world *world)
{
    *t = (training){
        .cfg = cfg, .world = world, .best_score = -1, .best_step = -1, .validated_step = -1
    };
}

ares_dtype training_type(const char *word)
{
    return word && strcmp(word, "bf16") == 0 ? ARES_BF16 : ARES_F32;
}

ares_dtype training_storage(const ares_train_config *c)
{
    return training_type(c->actor.dtype);
}

/* Of an adapter's tensors and configuration. path NULL, or gone, which opening it tells: 0 */
static int adapter_fingerprint(const char *path, uint64_t *out)
{
    ares_str dir = { 0 }, file = { 0 };
    uint64_t h = 0;
    bool there = path && ares_adapter_find(path, &dir) == ARES_OK;
    int rc = ARES_OK;
    if (there) rc = ares_model_fingerprint(dir.data, &h);
    if (there && rc == ARES_OK)
        rc = ares_file_hash(ares_path_join(&file, dir.data, "adapter_config.json"), &h);
    if (!there) ares_error_clear();
    *out = h;
    ares_str_fini(&dir);
    ares_str_fini(&file);
    return rc;
}

/* Of the weights of a model, checkpoint or run; of a run of an adapter, of the adapter alone. */
static int fingerprint_at(const char *path, uint64_t *out)
{
    ares_str dir = { 0 };
    int rc =
        ares_model_adapted(path) ? adapter_fingerprint(path, out) : ares_model_find(path, &dir);
    if (rc == ARES_OK && dir.len) rc = ares_model_fingerprint(dir.data, out);
    ares_str_fini(&dir);
    return rc;
}

int training_open_device(training *t)
{
    const ares_trainer_config *c = &t->cfg->trainer;
    /* activations have the type of the actor's weights; the CPU's native table keeps f32 */
    ares_dtype act = training_storage(t->cfg);
    int threads = c->threads == ARES_NULL_I64 ? ares_world_threads(t->world) : (int)c->threads;
    char card[32];
    /* a process per card */
    snprintf(card, sizeof card, "cuda:%d", ares_world_local_rank(t->world));
    int rc = ares_device_open_table(strcmp(c->device, "cuda") == 0 ? card : c->device, c->kernels,
                                    act, threads, &t->device);
    if (rc == ARES_OK) rc = ares_model_find(t->cfg->actor.model_path, &t->model_dir);
    if (rc == ARES_OK) rc = ares_model_fingerprint(t->model_dir.data, &t->model_weights);
    if (rc == ARES_OK) rc = adapter_fingerprint(t->cfg->actor_lora.adapter_path, &t->first_adapter);
    if (rc == ARES_OK && teacher_wanted(t->cfg) && t->cfg->distillation.teacher_path)
        rc = fingerprint_at(t->cfg->distillation.teacher_path, &t->teacher_weights);
    ARES_TRY(ares_world_share_error(t->world, rc));
    return sharing_open(&t->groups, t->cfg, t->world, &t->device, ares_world_size(t->world));
}

int training_open_counting(training *t, int ranks)
{
    const ares_train_config *c = t->cfg;
    ares_device_open_counting(c->trainer.device, c->trainer.kernels, training_storage(c), 0,
                              &t->device);
    ARES_TRY(ares_model_find(c->actor.model_path, &t->model_dir));
    return sharing_open(&t->groups, c, NULL, &t->device, ranks);
}

/*
 * worker.actor.model.override_config, in which presets_check has left max_position_embeddings
 * alone to act. Rotations follow positions however many there are, unless they are scaled by it.
 */
int training_set_positions(ares_model_config *m, const ares_json *override)
{
    int64_t positions;
    ARES_TRY(ares_json_get_i64(override, PUBLISHED_POSITIONS, m->max_position, &positions));
    if (positions != m->max_position && m->rope.kind != ARES_ROPE_DEFAULT)
        return ares_fail(ARES_ECONFIG,
                         "config: worker.actor.model.override_config: " PUBLISHED_POSITIONS
                         " = %lld: this model's rope scaling depends on it (now %d); change a "
                         "copy of its config.json",
                         (long long)positions, m->max_position);
    m->max_position = (int32_t)positions;
    return ARES_OK;
}

/* What lies beside a checkpoint's model/, which need not be there itself. */
static const char *beside(ares_str *path, const char *weights, const char *name)
{
    const char *slash = strrchr(weights, '/');
    ares_str_clear(path);
    ares_str_add(path, weights, slash ? (size_t)(slash - weights) + 1 : 0);
    ares_str_add_z(path, name);
    return path->data;
}

/* Whether a checkpoint has an adapter or a whole model must be what the run has. */
static int check_kind(const char *weights, bool lora)
{
    ares_str path = { 0 };
    bool whole = ares_dir_exists(beside(&path, weights, "model")),
         has = ares_dir_exists(beside(&path, weights, "adapter"));
    int rc = ARES_OK;
    if (lora && !has && !whole)
        rc = ares_fail(ARES_EFORMAT, "train: %s: no such directory: the checkpoint is damaged",
                       path.data);
    else if (has && !lora)
        rc = ares_fail(ARES_ESTATE,
                       "train: %s: the run of this checkpoint trains an adapter, and "
                       "worker.actor.model.lora.rank is 0; give it another "
                       "trainer.experiment_name, and merge the adapter first (ares-train merge) to "
                       "go on with all weights",
                       path.data);
    else if (lora && !has)
        rc = ares_fail(ARES_ESTATE,
                       "train: %s: the run of this checkpoint trains all weights, and "
                       "worker.actor.model.lora asks for an adapter; give it another "
                       "trainer.experiment_name, with the checkpoint as "
                       "worker.actor.model.model_path",
                       weights);
    ares_str_fini(&path);
    return rc;
}

/* The adapter that the options ask for, or that of a checkpoint. */
static int open_adapter(training *t, const char *weights)
{
    const ares_train_config *c = t->cfg;
    const ares_model_share share = sharing_of_adapter(sharing_of_actor(c, &t->groups));
    ares_str path = { 0 }, start = { 0 };
    ares_lora_options lora = c->actor_lora;
    lora.adapter_path = rundir_starting_adapter(c, &c->actor_lora, "adapter", &start);
    int rc = ares_adapter_new(
        t->model, t->model_dir.data,
        &(ares_adapter_options){ .lora = &lora,
                                 .checkpoint = weights ? beside(&path, weights, "adapter") : NULL,
                                 .seed = (uint64_t)c->rollout.seed,
                                 .trainable = !c->trainer.val_only,
                                 /* nothing is trained of a tower whose answers are validated */
                                 .tower = !c->actor.freeze_vision || c->trainer.val_only,
                                 .share = &share },
        &t->adapter);
    ares_str_fini(&path);
    ares_str_fini(&start);
    if (rc == ARES_OK && t->model->cfg.vision.depth && !c->actor.freeze_vision &&
        !t->adapter->tower && !c->trainer.val_only && !t->device.counting &&
        ares_world_rank(t->world) == 0)
        ares_log(ARES_LOG_INFO,
                 "config: worker.actor.model.freeze_vision_tower = false: no layer of the tower "
                 "has an adapter, so it stays as it is");
    return rc;
}

int training_open_weights(training *t, const char *weights)
{
    const ares_train_config *c = t->cfg;
    bool lora = ares_lora_wanted(&c->actor_lora);
    const ares_model_share share =
        lora ? sharing_of_base(sharing_of_actor(c, &t->groups)) : sharing_of_actor(c, &t->groups);
    ares_model_options opt = { .storage = training_storage(c),
                               .arithmetic = training_type(c->actor.arithmetic),
                               .trainable = !c->trainer.val_only && !lora,
                               .freeze_vision = c->actor.freeze_vision,
                               .share = &share };
    if (opt.trainable) opt.trained = c->actor.trainable;
    if (weights) ARES_TRY(check_kind(weights, lora));
    ARES_TRY(ares_model_load(weights && !lora ? weights : c->actor.model_path, &t->device, &opt,
                             &t->model));
    ARES_TRY(training_set_positions(&t->model->cfg, c->published.actor_override));
    return lora ? open_adapter(t, weights) : ARES_OK;
}

int training_open_model(training *t, const char *weights)
{
    const ares_train_config *c = t->cfg;
    ARES_TRY(training_open_weights(t, weights));
    if (c->actor.tokenizer_path) ares_str_add_z(&t->tokenizer_dir, c->actor.tokenizer_path);
    else ARES_TRY(ares_model_find_tokenizer(c->actor.model_path, &t->tokenizer_dir));
    ARES_TRY(ares_tokenizer_load(t->tokenizer_dir.data, &t->tokenizer));
    int32_t last = (int32_t)ares_tokenizer_vocab_size(t->tokenizer) - 1;
    if (last >= t->model->cfg.vocab) { /* such an id would read past the embedding */
        bool named = ares_tokenizer_is_special(t->tokenizer, last);
        ares_view token = ares_tokenizer_token_bytes(t->tokenizer, last);
        return ares_fail(ARES_EFORMAT,
                         "model: %s: the tokenizer has ids up to %d, the embedding %d rows; they "
                         "do not belong together%s%.*s%s",
                         t->model_dir.data, last, t->model->cfg.vocab, named ? ", or take '" : "",
                         named ? (int)ARES_MIN(token.len, 60) : 0, token.data,
                         named ? "' out of the files that name it" : "");
    }
    ARES_TRY(ares_model_add_eos(
        &t->model->cfg, ares_tokenizer_role_id(t->tokenizer, ARES_TOKEN_EOS), t->model_dir.data));
    if (c->actor.eos_token) {
        ares_ids ids = { 0 };
        int rc = ares_tokenizer_encode(t->tokenizer, ares_view_of(c->actor.eos_token), false, &ids);
        if (rc == ARES_OK && ids.n != 1)
            rc = ares_fail(ARES_ECONFIG,
                           "config: worker.actor.model.eos_token = '%s': is no token of %s, which "
                           "reads %lld there; name one of its added tokens",
                           c->actor.eos_token, t->tokenizer_dir.data, (long long)ids.n);
        if (rc == ARES_OK) rc = ares_model_add_eos(&t->model->cfg, ids.ids[0], NULL);
        ares_ids_fini(&ids);
        ARES_TRY(rc);
    }
    if (!t->model->cfg.vision.depth) return ARES_OK;
    ARES_TRY(ares_media_rules_load(&t->model->cfg, t->model_dir.data, &t->row_media));
    return ares_features_new(t->model, t->adapter, &t->row_media.processor,
                             (size_t)(c->data.vision_cache_gb * 1e9), &t->features);
}

int training_open_encoder(training *t, const ares_data_config *data, ares_prompt_encoder **out)
{
    const ares_train_config *c = t->cfg;
    return ares_prompt_encoder_new(
        &(ares_prompt_options){ .cfg = data,
                                .tokenizer = t->tokenizer,
                                .row_media = t->features ? &t->row_media : NULL,
                                .limit_images = c->rollout.limit_images,
                                .model_dir = t->tokenizer_dir.data },
        out);
}

void step_begin_fini(step_begin *b)
{
    ares_str_fini(&b->controls);
    ares_source_snapshot_fini(&b->source);
}

void training_close(training *t)
{
    ares_features_free(t->features);
    ares_adapter_free(t->adapter);
    ares_model_free(t->model);
    ares_source_close(&t->source);
    ares_source_close(&t->val);
    ares_prompt_encoder_free(t->encoder);
    ares_tokenizer_free(t->tokenizer);
    step_begin_fini(&t->begun);
    ares_str_fini(&t->run_dir);
    ares_str_fini(&t->forced);
    ares_str_fini(&t->model_dir);
    ares_str_fini(&t->tokenizer_dir);
    for (int i = 0; i < t->groups.n; i++) {
        ares_group_close(t->groups.cut[i].replicas);
        ares_group_close(t->groups.cut[i].group);
    }
    ares_group_close(t->groups.all);
    ares_device_close(&t->device);
}

/* Wiring: from a checked configuration to everything a step needs, and back. */

bool trainer_judges(const ares_train_config *c)
{
    const ares_distillation_config *d = &c->distillation;
    int n;
    bool reads = !teacher_wanted(c) || d->use_task_rewards || strcmp(d->context, "group") == 0 ||
                 ares_filter_needs(&c->filter);
    (void)ares_control_list(&n);
    for (int i = 0; i < n && !reads; i++) reads = controls_wants(c, NULL, i);
    return reads;
}

int trainer_take_rows(const ares_trainer *t, ares_dataset *d, const ares_prompt_encoder *encoder,
                      bool trained)
{
    const ares_train_config *c = t->run.cfg;
    int64_t dropped;
    bool filtered =
        trained && !c->trainer.val_only && (ares_filter_needs(&c->filter) & ARES_FILTER_ACCURACY);
    if (!trained || c->trainer.val_only || trainer_judges(c))
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
    bool judged = files != &t->run.cfg->data.train_files || trainer_judges(t->run.cfg);
    int rc = ares_dataset_load_files(list, files->count, &t->run.cfg->data,
                                     judged && ares_reward_reads_truth(t->reward), &d);
    ares_free(list);
    if (rc == ARES_OK)
        rc = trainer_take_rows(t, d, t->run.encoder, files == &t->run.cfg->data.train_files);
    if (rc == ARES_OK)
        rc = names ? ares_source_of_mixture(d, &t->run.curriculum, order, out)
                   : ares_source_of_dataset(d, order, out);
    if (rc != ARES_OK) ares_dataset_free(d); /* otherwise the source owns it */
    return rc;
}

/* The first row with images or videos; NULL: none has. */
static const ares_row *first_seen(const ares_source *s)
{
    for (int64_t i = 0; i < ares_source_count(s); i++)
        if (ares_source_row(s, i)->row_media) return ares_source_row(s, i);
    return NULL;
}

int trainer_check_media(const ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    const ares_row *row = first_seen(&t->run.source);
    bool trained = row != NULL;
    if (!row) row = first_seen(&t->run.val);
    for (int64_t i = 0; i < t->evals.n && !row; i++) row = first_seen(&t->evals.items[i].source);
    if (!row) return ARES_OK;
    if (trained && trainer_needs_critic(c))
        return ares_fail(ARES_ECONFIG,
                         "data: %s:%lld: the row has images or videos, and algorithm.adv_estimator "
                         "= '%s' needs a critic, which reads text alone; choose an estimator "
                         "without one, such as grpo",
                         row->file, (long long)row->line, c->algorithm.adv_estimator);
    if (c->rollout.tensor_parallel_size > 1)
        return ares_fail(
            ARES_ECONFIG,
            "data: %s:%lld: the row has images or videos, and "
            "worker.rollout.tensor_parallel_size = %lld: ranks that decode as one take "
            "text alone; set it to 1",
            row->file, (long long)row->line, (long long)c->rollout.tensor_parallel_size);
    return ARES_OK;
}

/* Encoder, sources of training and validation, and how many steps the run will have. */
static int open_data(ares_trainer *t, ares_config *cfg)
{
    const ares_train_config *c = t->run.cfg;
    ARES_TRY(training_open_encoder(&t->run, &c->data, &t->run.encoder));
    if (t->agents) { /* environments instead of data sets */
        if (c->agents_val.tags.count) ARES_TRY(agents_source(&t->agents->val, &t->run.val));
        if (c->trainer.val_only) return ARES_OK;
        t->run.total_steps = c->trainer.max_steps;
        return agents_source(&t->agents->train, &t->run.source);
    }
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
    return trainer_check_media(t);
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
    ARES_TRY(peak_reserve(t, ranks, bytes));
    int64_t over = total > 0 && (double)*bytes > left;
    ARES_TRY(ares_world_max_i64(t->run.world, &over, 1));
    if (!over) return ARES_OK;
    peak_unreserve(t);
    if (ares_world_rank(t->run.world) == 0 && !d->counting)
        ares_warn(
            "train: micro-batches of answers of full length would take %.2f GiB of the card, "
            "and %.2f are left: should they come, the run ends; shorten data.max_*_length, or "
            "see what ares-train plan proposes",
            (double)*bytes / 1073741824.0, left / 1073741824.0);
    *bytes = 0;
    return ARES_OK;
}

/* Answers of a training step that a rank's engine has at a time. */
static int64_t answers_together(const ares_train_config *c, int ranks)
{
    int64_t prompts = c->data.rollout_batch_size, over = c->oversampling.batch;
    if (over != ARES_NULL_I64) prompts = ARES_MAX(prompts, over);
    return (prompts * c->rollout.n + ranks - 1) / ranks;
}

int64_t trainer_running(const ares_trainer *t, int ranks)
{
    const ares_train_config *c = t->run.cfg;
    if (agents_wanted(c) || t->val_longest) return c->rollout.max_num_seqs;
    return ARES_MIN(answers_together(c, ranks), c->rollout.max_num_seqs);
}

/* After everything that stays on the device, which is what the cache leaves free. */
int trainer_open_rollout(ares_trainer *t, int ranks)
{
    const ares_train_config *c = t->run.cfg;
    bool lends = t->run.device.index >= 0;
    size_t training = 0;
    int64_t budget, held = answers_together(c, ranks) - c->rollout.max_num_seqs,
                    snapshots = c->rollout.state_snapshots, most = trainer_longest(t),
                    asked = c->data.max_prompt_length + t->val_sampling.max_new_tokens;
    if (ares_source_count(&t->run.val) && asked > most && ares_world_rank(t->run.world) == 0)
        ares_log(ARES_LOG_WARN,
                 "config: worker.rollout.val_override_config: max_new_tokens = %d: the longest "
                 "prompts leave less: prompt and answer have at most %lld tokens together",
                 t->val_sampling.max_new_tokens, (long long)most);
    if (!t->slice && (t->tp || ares_params_by_region(&t->run.model->params)))
        ARES_TRY(ares_model_slice(t->run.model, t->tp, &t->slice));
    if (t->run.adapter && t->tp && !t->slice_adapter)
        ARES_TRY(ares_adapter_slice(t->run.adapter, t->slice, &t->slice_adapter));
    ARES_TRY(ares_world_share_error(t->run.world, ARES_OK)); /* all have opened what stays */
    ARES_TRY(ares_world_share_error(t->run.world, cache_budget(t, &budget)));
    if (lends) ARES_TRY(announce_training(t, ranks, &training));
    if (snapshots == ARES_NULL_I64) snapshots = trainer_running(t, ranks);
    ares_rollout_options o = {
        .cache_tokens = c->rollout.cache_tokens == ARES_NULL_I64 ? 0 : c->rollout.cache_tokens,
        .cache_bytes = budget,
        .lends_cache = lends,
        .training_bytes = training,
        .max_num_seqs = (int32_t)c->rollout.max_num_seqs,
        .held_seqs = oversampling_wanted(c) ? (int32_t)ARES_MAX(0, held) : 0,
        .max_num_batched_tokens = c->rollout.max_num_batched_tokens == ARES_NULL_I64
                                      ? BATCHED_TOKENS
                                      : (int32_t)c->rollout.max_num_batched_tokens,
        .max_model_len = (int32_t)most,
        .entropy_top_k = strcmp(c->rollout.entropy_mode, "topk_tail") == 0
                             ? (int32_t)c->rollout.entropy_topk
                             : 0,
        .most_likely = t->triggers && strcmp(c->rollout.trigger_match, "argmax") == 0,
        .adapter_rank = t->run.adapter ? t->run.adapter->rank : 0,
        .adapter = trainer_adapter(t),
        .drafts_tokens = strcmp(c->rollout.speculation, "auto") == 0,
        .no_prefix_cache = !c->rollout.enable_prefix_caching,
        .state_snapshots = snapshots ? (int32_t)snapshots : -1,
        .watch = t->slice ? NULL : t->watch
    };
    t->slice_version = -1;
    return ares_rollout_new(t->slice ? t->slice : t->run.model, t->run.tokenizer, &o, &t->rollout);
}

const ares_adapter *trainer_adapter(const ares_trainer *t)
{
    return t->slice_adapter ? t->slice_adapter : t->run.adapter;
}

int trainer_renew_rollout(ares_trainer *t)
{
    /* of the model */
    int64_t version = t->run.adapter ? 0 : learner_version(&t->actor.learner);
    if (t->slice) ARES_TRY(ares_model_slice_take(t->slice)); /* training may have had its memory */
    ares_rollout_clear(t->rollout);
    if (t->run.features) {
        ares_features_at(t->run.features, learner_version(&t->actor.learner));
        ares_features_trim(t->run.features);
    }
    if (t->ref && t->ref->features) ares_features_trim(t->ref->features);
    if (t->slice_adapter)
        ARES_TRY(ares_adapter_slice_fill(t->slice_adapter, t->run.adapter, t->slice));
    if (!t->slice || (t->slice->filled && t->slice_version == version)) return ARES_OK;
    ARES_TRY(ares_model_slice_fill(t->slice, t->run.model));
    t->slice_version = version;
    return ARES_OK;
}

/* weights: the policy's in a checkpoint; the critic's lie beside them. */
int trainer_open_critic(ares_trainer *t, const char *weights)
{
    ares_str path = { 0 };
    if (weights) beside(&path, weights, "critic");
    t->critic = ares_calloc(1, sizeof *t->critic);
    t->run.critic = &t->critic->learner;
    int rc = critic_open(t->critic, &t->run, path.data);
    ares_str_fini(&path);
    return rc;
}

bool trainer_needs_critic(const ares_train_config *c)
{
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    return adv && (adv->needs & ARES_NEEDS_VALUES) && !teacher_alone(c);
}

bool trainer_needs_reference(const ares_train_config *c)
{
    return ares_kl_acts(&c->algorithm) != ARES_KL_NOWHERE || vapor_wanted(c);
}

/* A reference of another model reads the pictures as they are cut for the policy. */
static int same_patches(const training *t, const ares_vision_config *v)
{
    const ares_vision_config *own = &t->model->cfg.vision;
    if (own->patch == v->patch && own->merge == v->merge && own->temporal == v->temporal &&
        own->channels == v->channels)
        return ARES_OK;
    return ares_fail(ARES_ECONFIG,
                     "config: worker.ref.model.model_path = '%s': its tower reads patches of %d "
                     "pixels, %d x %d of them a token, and the policy's %d, %d x %d; name a model "
                     "that reads pictures alike",
                     t->cfg->ref.model_path, v->patch, v->merge, v->merge, own->patch, own->merge,
                     own->merge);
}

/* weights: the policy's in a checkpoint; a reference that has moved lies beside them. */
int trainer_open_reference(ares_trainer *t, const char *weights)
{
    const ares_train_config *c = t->run.cfg;
    bool moves = vapor_wanted(c) && c->vapor.sync_ref_model;
    ares_str path = { 0 };
    bool moved = weights && ares_dir_exists(beside(&path, weights, "reference"));
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
    int rc = reference_open(t->ref, &t->run, moves ? path.data : NULL, moves);
    if (moves) t->run.moved_reference = t->ref->learner.model;
    /* a frozen tower is the policy's and the reference's alike: images go through it only once */
    bool own = t->run.features && reference_sees(&t->run);
    ares_model *m = t->ref->learner.model;
    if (rc == ARES_OK && own && m->cfg.vision.depth) rc = same_patches(&t->run, &m->cfg.vision);
    if (rc == ARES_OK && own && m->cfg.vision.depth)
        rc = ares_features_new(m, t->ref->learner.adapter, &t->run.row_media.processor,
                               (size_t)(c->data.vision_cache_gb * 1e9), &t->ref->features);
    if (rc == ARES_OK) t->ref->learner.features = own ? t->ref->features : t->run.features;
    ares_str_fini(&path);
    return rc;
}

/* weights: the policy's in a checkpoint; an average's lie beside them. */
int trainer_open_teacher(ares_trainer *t, const char *weights)
{
    const ares_distillation_config *c = &t->run.cfg->distillation;
    ares_str path = { 0 };
    bool moves = !c->teacher_path && strcmp(c->kind, "ema") == 0;
    if (weights && moves && !ares_dir_exists(beside(&path, weights, "teacher"))) {
        int rc = ares_fail(ARES_ESTATE,
                           "run: %s: no such directory: in the run of this checkpoint no average "
                           "was the teacher; set distillation.teacher_model.kind=base, or give "
                           "the run another trainer.experiment_name",
                           path.data);
        ares_str_fini(&path);
        return rc;
    }
    t->teacher = ares_calloc(1, sizeof *t->teacher);
    t->actor.teacher = t->teacher;
    int rc = teacher_open(t->teacher, &t->run, t->ref, moves ? path.data : NULL);
    ares_str_fini(&path);
    return rc;
}

/* Opens policy, controls, critic, reference and teacher. */
static int open_roles(ares_trainer *t, const char *weights)
{
    const ares_train_config *c = t->run.cfg;
    if (c->trainer.val_only)
        return controls_open(t, &t->run.controls); /* a shaped score is shaped as in training */
    t->adv = ares_adv_find(c->algorithm.adv_estimator);
    if (!t->adv) return ARES_ECONFIG;
    if (ares_adv_sees_turns(t->adv, &c->algorithm) && t->generator == &generate_single_turn)
        ares_log(ARES_LOG_WARN,
                 "config: %s: has no effect: answers of this run are single turns, for which it "
                 "is gae",
                 c->algorithm.bi_level_gae ? "algorithm.bi_level_gae" : "algorithm.adv_estimator");
    ARES_TRY(actor_open(&t->actor, c, t->run.model, t->run.adapter, t->run.features, t->run.world,
                        t->run.total_steps));
    ARES_TRY(controls_open(t, &t->run.controls));
    if (trainer_needs_critic(c)) ARES_TRY(trainer_open_critic(t, weights));
    if (vapor_wanted(c)) ARES_TRY(vapor_open(t, &t->vapor));
    t->run.vapor = t->vapor;
    if (trainer_needs_reference(c)) ARES_TRY(trainer_open_reference(t, weights));
    return teacher_wanted(c) ? trainer_open_teacher(t, weights) : ARES_OK;
}

/*
 * All parts after the device, each after those that it reads: rewards, model and tokenizer, data,
 * then what trains, and last the rollout, which takes the memory that is left.
 */
static int open_parts(ares_trainer *t, ares_config *cfg, const char *weights)
{
    const ares_train_config *c = t->run.cfg;
    if (agents_wanted(c)) {
        t->generator = &generate_episodes;
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
    if (ares_world_rank(t->run.world) == 0) /* the model's own sampling may differ: say so once */
        ARES_TRY(ares_model_tell_sampling(t->run.model_dir.data, sampled, ARES_COUNT(sampled)));
    ARES_TRY(open_data(t, cfg));
    t->run.validates = ares_source_count(&t->run.val) || t->evals.n;
    ARES_TRY(triggers_load(t));
    validation_sampling(cfg, c, &t->val_sampling, &t->val_n);
    t->val_longest = validation_longest(c, &t->val_sampling, &t->evals);
    ARES_TRY(ares_config_finish(cfg)); /* faults of options that were bound since the check */
    if (t->agents) {
        t->val_n = c->agents_val.group_size;
        ARES_TRY(agents_open(t->agents, t->run.encoder, t->run.tokenizer, trainer_longest(t),
                             ares_group_size(t->run.groups.all)));
    }
    ARES_TRY(open_roles(t, weights));
    ARES_TRY(trainer_open_rollout(t, ares_group_size(t->run.groups.all)));
    return t->agents ? agents_serve(t) : ARES_OK;
}

void trainer_init(ares_trainer *t, const ares_train_config *c, ares_world *world)
{
    *t = (ares_trainer){ .generator = &generate_single_turn };
    training_init(&t->run, c, world);
    t->run.policy = &t->actor.learner;
    ares_batch_init(&t->batch);
}

/* After the device and its groups. */
static int open_on_device(ares_trainer *t, ares_config *cfg, const char *weights)
{
    int64_t tp = t->run.cfg->rollout.tensor_parallel_size;
    /* the options are the run's own, and schedules change them, too */
    ares_train_config *c = (ares_train_config *)(uintptr_t)t->run.cfg;
    ARES_TRY(ares_world_share_error(t->run.world, plan_fit_card(&t->run, cfg, true, c)));
    if (tp > 1) ARES_TRY(ares_group_open(t->run.world, &t->run.device, (int)tp, 1, &t->tp));
    t->run.groups.tp = t->tp;
    return ares_world_share_error(t->run.world, open_parts(t, cfg, weights));
}

int trainer_open(ares_trainer *t, ares_config *cfg, const ares_train_config *c, ares_world *world,
                 const char *weights)
{
    trainer_init(t, c, world);
    ARES_TRY(ares_world_share_error(world, training_open_device(&t->run)));
    return open_on_device(t, cfg, weights);
}

int trainer_open_replay(ares_trainer *t, ares_config *cfg, const ares_train_config *c,
                        ares_world *world, const char *weights, const ares_rollout_watch *watch)
{
    trainer_init(t, c, world);
    t->run.replays = true;
    t->watch = watch;
    ARES_TRY(ares_world_share_error(world, training_open_device(&t->run)));
    return open_on_device(t, cfg, weights);
}

/* On a counting device no weight is read and nothing is computed, but everything is opened. */
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

/* Parts that never were open are zero or NULL, which every close takes. */
void trainer_close(ares_trainer *t)
{
    ares_features_free(t->run.features); /* its decoders read the rows of all data sets below */
    t->run.features = NULL;
    ares_rollout_free(t->rollout);
    ares_adapter_free(t->slice_adapter);
    ares_model_free(t->slice);
    ares_group_close(t->tp);
    agents_close(t->agents);
    ares_free(t->triggers);
    actor_close(&t->actor);
    controls_close(t->run.controls);
    if (t->critic) critic_close(t->critic);
    ares_free(t->critic);
    if (t->teacher) teacher_close(t->teacher);
    ares_free(t->teacher);
    if (t->ref) reference_close(t->ref);
    ares_free(t->ref);
    vapor_close(t->vapor);
    eval_sets_close(&t->evals);
    ares_reward_close(t->reward);
    ares_batch_fini(&t->batch);
    training_close(&t->run);
}
