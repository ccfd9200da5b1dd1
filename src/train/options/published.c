/*
 * Options of EasyR1 and of ARES for which this program has no choice, and the checks that those
 * trainers make at start (docs/design.md#options-of-published-configurations). A value that asks
 * for something the program cannot do, and whose absence would matter, is refused; other values
 * without effect are reported once.
 */
#include <stdio.h>
#include <string.h>

#include "published.h"
#include "roles/mini_batches.h"
#include "run/sizes.h"

ARES_OPTION_TABLE(published_options, ares_published_config, ARES_PUBLISHED_OPTIONS);

void published_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_options(cfg, "", published_options, &out->published);
}

int ares_train_named_ranks(const ares_train_config *c)
{
    const ares_published_config *p = &c->published;
    if (p->n_gpus_per_node == ARES_NULL_I64) return 1;
    int64_t nodes = p->nnodes == ARES_NULL_I64 ? 1 : p->nnodes;
    return nodes > 4096 || p->n_gpus_per_node > 4096
               ? 4096
               : (int)ARES_MIN(4096, nodes * p->n_gpus_per_node);
}

/* On the first rank: another trainer's option is set and has no effect. */
static void report_ignored(const char *path, const char *instead)
{
    ares_log(ARES_LOG_INFO, "config: %s -> (ignored: %s)", path, instead);
}

static void check_launch(ares_config *cfg, const ares_published_config *p, int world)
{
    int64_t nodes = p->nnodes == ARES_NULL_I64 ? 1 : p->nnodes;
    if (p->n_gpus_per_node != ARES_NULL_I64 &&
        (nodes > world || p->n_gpus_per_node > world || nodes * p->n_gpus_per_node != world))
        ares_config_fault(
            cfg, "trainer.n_gpus_per_node",
            "with trainer.nnodes = %lld that makes another number of ranks than the %d started; "
            "start them with --ranks %lld or mpirun, or leave both options out",
            (long long)nodes, world,
            (long long)ARES_MIN(p->n_gpus_per_node, 4096) * ARES_MIN(nodes, 4096));
    if (p->n_gpus_per_node == ARES_NULL_I64 && p->nnodes != ARES_NULL_I64 && world % p->nnodes)
        ares_config_fault(cfg, "trainer.nnodes",
                          "the %d ranks started do not spread evenly over as many machines; leave "
                          "it out, or start a multiple",
                          world);
}

/* The options that actor and critic have in common. */
typedef struct side {
    const char *name, *optimizer, *dtype, *reduce;
    bool used; /* false: no critic */
    int64_t ulysses, micro_update, micro_experience, lora;
    mini_batch_size mini_batch;
} side;

#define PATH(s, key) path_of((char[96]){ 0 }, (s)->name, key)
static const char *path_of(char *out, const char *name, const char *key)
{
    snprintf(out, 96, "worker.%s.%s", name, key);
    return out;
}

static bool ends_with(ares_view text, const char *end)
{
    size_t n = strlen(end);
    return text.len >= n && memcmp(text.data + text.len - n, end, n) == 0;
}

/*
 * What published scripts change of a model: its longest sequence, and dropouts, which they switch
 * off and which are never on here.
 */
static void check_override(ares_config *cfg, const ares_json *map)
{
    static const char path[] = "worker.actor.model.override_config";
    for (int64_t i = 0; i < map->count; i++) {
        ares_view key = map->members[i].key;
        const ares_json *value = map->members[i].value;
        bool number = value->type == ARES_JSON_INT || value->type == ARES_JSON_FLOAT;
        if (ares_view_is(key, PUBLISHED_POSITIONS) && value->type == ARES_JSON_INT &&
            value->integer >= 1 && value->integer <= INT32_MAX)
            continue;
        if ((ends_with(key, "dropout") || ends_with(key, "pdrop")) && number &&
            value->number == 0) {
            report_ignored(path, "nothing is dropped out here");
            continue;
        }
        ares_config_fault(cfg, path,
                          "%.*s: a model is what its config.json says, but for a whole number "
                          "as " PUBLISHED_POSITIONS
                          " and dropouts of 0; change a copy of that file, "
                          "and leave this out",
                          (int)key.len, key.data);
    }
}

static const char long_rows[] =
    "a sequence is never shared by ranks; set 1, and for long rows "
    "worker.actor.model.enable_gradient_checkpointing=true and worker.actor.share_prompts=false: "
    "ares-train plan prints the longest row that fits";

static void check_side(ares_config *cfg, const ares_train_config *c, const side *s, int world)
{
    int64_t batch = c->data.rollout_batch_size, n = c->rollout.n;
    if (strcmp(s->optimizer, "adamw_bf16") == 0 && (!s->dtype || strcmp(s->dtype, "bf16") != 0))
        ares_config_fault(
            cfg, PATH(s, "optim.strategy"),
            "keeps weights in bf16; set worker.%s.fsdp.torch_dtype=bf16, or take adamw", s->name);
    if (s->reduce && strcmp(s->reduce, "fp32") != 0)
        ares_config_fault(cfg, PATH(s, "fsdp.mp_reduce_dtype"),
                          "gradients are added in double and rounded once to fp32, so that no "
                          "result depends on how ranks share them; set fp32, or leave it out");
    if (s->ulysses > 1) ares_config_fault(cfg, PATH(s, "ulysses_size"), "%s", long_rows);
    if (s->lora > 0)
        ares_config_fault(cfg, PATH(s, "model.lora.rank"),
                          "all weights are trained, there are no adapters; set 0");
    if (!s->used) return;
    if (s->micro_experience != ARES_NULL_I64 && batch * n % s->micro_experience)
        ares_config_fault(cfg, PATH(s, "micro_batch_size_per_device_for_experience"),
                          "the %lld samples of a batch (data.rollout_batch_size x "
                          "worker.rollout.n) are no multiple of it",
                          (long long)(batch * n));
    if (s->micro_update != ARES_NULL_I64) {
        int64_t samples = s->mini_batch.rows ? 1 : n; /* of what a mini-batch counts */
        train_sizes z = train_sizes_of(batch * n / samples, s->mini_batch.count, samples, world, 1,
                                       s->micro_update);
        if (z.per_device == 0 || z.per_device % s->micro_update)
            ares_config_fault(cfg, PATH(s, "micro_batch_size_per_device_for_update"),
                              "the %lld samples a rank has of an optimizer step (global_batch_size"
                              "%s over %d ranks) are no multiple of it",
                              (long long)z.per_device,
                              s->mini_batch.rows ? "" : " x worker.rollout.n", world);
    }
    bool by_micro =
        strcmp(c->loss.loss_norm, "micro") == 0 || strcmp(c->loss.early_stop_scope, "micro") == 0;
    bool counted = by_micro && strcmp(s->name, "actor") == 0;
    if (!counted && (s->micro_update != ARES_NULL_I64 || s->micro_experience != ARES_NULL_I64))
        report_ignored(
            PATH(s, "micro_batch_size_per_device_for_*"),
            "micro-batches are cut by max_token_len_per_device; no result depends on it");
}

static void check_prefill(ares_config *cfg, const ares_train_config *c)
{
    const ares_json *chunked = c->published.chunked_prefill;
    int64_t whole = c->data.max_prompt_length + c->data.max_response_length,
            forward = c->rollout.max_num_batched_tokens;
    if (chunked->type == ARES_JSON_BOOL && !chunked->boolean && forward != ARES_NULL_I64 &&
        forward < whole)
        ares_config_fault(cfg, "worker.rollout.max_num_batched_tokens",
                          "data.max_prompt_length + data.max_response_length = %lld do not fit; "
                          "raise it, or leave enable_chunked_prefill out",
                          (long long)whole);
}

static void report_loggers(const ares_train_config *c)
{
    for (int64_t i = 0; i < c->trainer.logger.count; i++) {
        const char *name = c->trainer.logger.items[i];
        if (strcmp(name, "wandb") == 0 || strcmp(name, "mlflow") == 0 ||
            strcmp(name, "swanlab") == 0)
            ares_log(ARES_LOG_INFO,
                     "config: trainer.logger: %s -> tensorboard (no service is written to; it "
                     "imports the run directory's event files, or metrics.jsonl)",
                     name);
    }
}

void published_check(ares_config *cfg, const ares_train_config *c, int world)
{
    const ares_published_config *p = &c->published;
    const ares_adv *adv = ares_adv_find(c->algorithm.adv_estimator);
    const side actor = { .name = "actor",
                         .optimizer = c->optim.strategy,
                         .dtype = c->actor.dtype,
                         .reduce = p->actor_reduce,
                         .used = true,
                         .ulysses = p->actor_ulysses,
                         .micro_update = c->actor.micro_batch_size,
                         .micro_experience = p->actor_micro_experience,
                         .mini_batch = mini_batch_size_of_actor(c),
                         .lora = p->actor_lora };
    const side critic = { .name = "critic",
                          .optimizer = c->critic_optim.strategy,
                          .dtype = c->critic.dtype,
                          .reduce = p->critic_reduce,
                          .used = adv && (adv->needs & ARES_NEEDS_VALUES),
                          .ulysses = p->critic_ulysses,
                          .micro_update = p->critic_micro_update,
                          .micro_experience = p->critic_micro_experience,
                          .mini_batch = mini_batch_size_of_critic(c),
                          .lora = p->critic_lora };
    if (!p->hybrid_engine)
        ares_config_fault(
            cfg, "worker.hybrid_engine",
            "actor and rollout always share their weights; set true, or leave it out");
    check_launch(cfg, p, world);
    check_side(cfg, c, &actor, world);
    check_side(cfg, c, &critic, world);
    check_override(cfg, p->actor_override);
    if (p->ref_ulysses > 1) ares_config_fault(cfg, "worker.ref.ulysses_size", "%s", long_rows);
    check_prefill(cfg, c);
    report_loggers(c);
}
