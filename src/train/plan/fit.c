/*
 * What would make a run fit: options are changed one after the other until it does, and each that
 * was not needed is taken back.
 */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

enum { WORD = 160 };

/* Changes the options where they are not so already, and says how; false: nothing to change. */
typedef bool remedy_fn(ares_train_config *c, const plan *p, char *word);

/* Of a CPU: a card's memory has none of it. */
static bool store_no_features(ares_train_config *c, const plan *p, char *word)
{
    if (p->card || p->pictures.stored == 0) return false;
    c->data.vision_cache_gb = 0;
    snprintf(word, WORD, "data.vision_cache_gb=0");
    return true;
}
static bool keep_inputs(ares_train_config *c, const plan *p, char *word)
{
    (void)p;
    if (c->actor.gradient_checkpointing) return false;
    c->actor.gradient_checkpointing = true;
    snprintf(word, WORD, "worker.actor.model.enable_gradient_checkpointing=true");
    return true;
}
/* To as many groups, or rows, as fit; to one where none would, for what comes after it to help. */
static bool shorter_micro_batch(ares_train_config *c, const plan *p, char *word)
{
    int64_t group = p->micro.group, fits = ARES_MAX(1, p->most_micro / group) * group;
    if (c->actor.max_token_len <= fits) fits = group;
    if (c->actor.max_token_len <= fits) return false;
    c->actor.max_token_len = fits;
    snprintf(word, WORD, "worker.actor.max_token_len_per_device=%lld", (long long)fits);
    return true;
}
static bool single_rows(ares_train_config *c, const plan *p, char *word)
{
    if (!c->actor.share_prompts || c->rollout.n == 1) return false;
    c->actor.share_prompts = false;
    c->actor.max_token_len = p->micro.prompt + p->micro.response;
    snprintf(word, WORD,
             "worker.actor.share_prompts=false with worker.actor.max_token_len_per_device=%lld",
             (long long)c->actor.max_token_len);
    return true;
}
/* The critic cuts as the policy does, by options of its own. */
static bool critic_single_rows(ares_train_config *c, const plan *p, char *word)
{
    int64_t row = p->micro.prompt + p->micro.response;
    if (p->bytes[PLAN_CRITIC][0] == 0) return false;
    if (c->critic.max_token_len <= row && (!c->critic.share_prompts || c->rollout.n == 1))
        return false;
    c->critic.share_prompts = false;
    c->critic.max_token_len = row;
    snprintf(word, WORD,
             "worker.critic.share_prompts=false with worker.critic.max_token_len_per_device=%lld",
             (long long)row);
    return true;
}
static bool critic_inputs(ares_train_config *c, const plan *p, char *word)
{
    if (p->bytes[PLAN_CRITIC][0] == 0 || c->critic.gradient_checkpointing) return false;
    c->critic.gradient_checkpointing = true;
    snprintf(word, WORD, "worker.critic.model.enable_gradient_checkpointing=true");
    return true;
}
static bool small_cache(ares_train_config *c, const plan *p, char *word)
{
    double tokens = p->cache_least / p->bytes[PLAN_CACHE][PLAN_ROLLOUT] * p->cache_tokens;
    if (p->bytes[PLAN_CACHE][PLAN_ROLLOUT] <= p->cache_least) return false;
    c->rollout.cache_tokens = (int64_t)tokens / ARES_KV_BLOCK * ARES_KV_BLOCK;
    snprintf(word, WORD, "worker.rollout.cache_tokens=%lld", (long long)c->rollout.cache_tokens);
    return true;
}
static bool more_of_the_card(ares_train_config *c, const plan *p, char *word)
{
    if (!p->no_cache || c->rollout.gpu_memory_utilization >= 0.9) return false;
    c->rollout.gpu_memory_utilization = 0.9;
    snprintf(word, WORD, "worker.rollout.gpu_memory_utilization=0.9");
    return true;
}
/* Of a card, as all that goes to the host's memory: the CPU has no other. */
static bool reference_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || p->bytes[PLAN_REFERENCE][0] == 0 || c->ref.offload_params) return false;
    c->ref.offload_params = true;
    snprintf(word, WORD, "worker.ref.offload.offload_params=true");
    return true;
}
static bool critic_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || p->bytes[PLAN_CRITIC][0] == 0 || c->critic.offload_params) return false;
    c->critic.offload_params = true;
    snprintf(word, WORD, "worker.critic.offload.offload_params=true");
    return true;
}
static bool actor_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || c->actor.offload_params) return false;
    c->actor.offload_params = true;
    snprintf(word, WORD, "worker.actor.offload.offload_params=true");
    return true;
}
/* Where weights come block by block, the inputs of all micro-batches of a round are kept. */
static bool rounds(ares_train_config *c, const plan *p, char *word)
{
    bool by_block = p->how == ARES_SHARE_ALL || c->actor.offload_params ||
                    c->ref.offload_params; /* which goes along with an exact KL */
    if (!by_block || c->actor.round_tokens != ARES_NULL_I64) return false;
    if (p->micro.per_optimizer <= p->micro.groups) return false;
    c->actor.round_tokens = p->micro.tokens;
    snprintf(word, WORD, "worker.actor.round_tokens=%lld", (long long)c->actor.round_tokens);
    return true;
}
static bool states_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || c->actor.offload_optimizer) return false;
    c->actor.offload_optimizer = true;
    snprintf(word, WORD, "worker.actor.offload.offload_optimizer=true");
    return true;
}
static bool critic_states_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || p->bytes[PLAN_CRITIC][0] == 0 || c->critic.offload_optimizer) return false;
    c->critic.offload_optimizer = true;
    snprintf(word, WORD, "worker.critic.offload.offload_optimizer=true");
    return true;
}
static bool in_bf16(const char *dtype)
{
    return dtype && strcmp(dtype, "bf16") == 0;
}
static bool reference_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    if (p->bytes[PLAN_REFERENCE][0] == 0 || !c->ref.dtype || in_bf16(c->ref.dtype)) return false;
    c->ref.dtype = "bf16";
    snprintf(word, WORD, "worker.ref.fsdp.torch_dtype=bf16");
    return true;
}
/* Of all models, since a device computes in one type; masters stay f32, on the host if need be. */
static bool weights_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    bool critic = p->bytes[PLAN_CRITIC][0] > 0 && !in_bf16(c->critic.dtype),
         reference = p->bytes[PLAN_REFERENCE][0] > 0 && c->ref.dtype && !in_bf16(c->ref.dtype);
    if (in_bf16(c->actor.dtype)) return false;
    c->actor.dtype = "bf16";
    if (critic) c->critic.dtype = "bf16";
    if (reference) c->ref.dtype = "bf16";
    snprintf(word, WORD, "worker.actor.fsdp.torch_dtype=bf16%s%s",
             critic ? " with worker.critic.fsdp.torch_dtype=bf16" : "",
             reference ? " with worker.ref.fsdp.torch_dtype=bf16" : "");
    return true;
}
/* Of weights in bf16 alone. */
static bool states_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    (void)p;
    if (!in_bf16(c->actor.dtype) || strcmp(c->optim.strategy, "adamw_bf16") == 0) return false;
    c->optim.strategy = "adamw_bf16";
    snprintf(word, WORD, "worker.actor.optim.strategy=adamw_bf16");
    return true;
}
static bool critic_states_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    if (p->bytes[PLAN_CRITIC][0] == 0 || !in_bf16(c->critic.dtype)) return false;
    if (strcmp(c->critic_optim.strategy, "adamw_bf16") == 0) return false;
    c->critic_optim.strategy = "adamw_bf16";
    snprintf(word, WORD, "worker.critic.optim.strategy=adamw_bf16");
    return true;
}

/* VAPOR's stored answers as long as the rollout's; those that are longer lose their end. */
static bool shorter_pairs(ares_train_config *c, const plan *p, char *word)
{
    int64_t longest = p->micro.prompt + p->micro.response;
    if (!p->pairs.tokens || c->vapor.max_pair_length <= longest) return false;
    c->vapor.max_pair_length = longest;
    snprintf(word, WORD, "vapor.max_pair_length=%lld", (long long)longest);
    return true;
}

/*
 * By cost, each above all before it together: what changes no result and costs little time, then
 * weights that are rounded, over f32 masters; then weights that come from the host in each pass;
 * last what cuts data or rounds what is learnt.
 */
static remedy_fn *const remedies[] = { more_of_the_card, store_no_features,     shorter_micro_batch,
                                       keep_inputs,      critic_inputs,         small_cache,
                                       single_rows,      critic_single_rows,    reference_on_host,
                                       states_on_host,   critic_states_on_host, reference_in_bf16,
                                       weights_in_bf16,

                                       critic_on_host,   actor_on_host,         rounds,
                                       shorter_pairs,    critic_states_in_bf16, states_in_bf16 };

/* The words of the chosen remedies, "" where they change nothing; whether the run fits then. */
static bool fits_with(const ares_train_config *c, const plan_where *where, const bool *chosen,
                      char words[][WORD])
{
    ares_train_config changed = *c;
    plan p;
    bool fits = plan_measure(c, where, &p) == ARES_OK;
    for (int i = 0; i < ARES_COUNT(remedies); i++) *words[i] = 0;
    for (int i = 0; i < ARES_COUNT(remedies) && fits; i++)
        if (chosen[i] && remedies[i](&changed, &p, words[i]))
            fits = plan_measure(&changed, where, &p) == ARES_OK;
    fits = fits && plan_fits(&p, where);
    ares_error_clear();
    return fits;
}

static void list_remedies(const ares_train_config *c, const plan_where *where, ares_str *out)
{
    bool chosen[ARES_COUNT(remedies)] = { 0 }, fits = false;
    char words[ARES_COUNT(remedies)][WORD];
    for (int i = 0; i < ARES_COUNT(remedies) && !fits; i++) {
        chosen[i] = true;
        fits = fits_with(c, where, chosen, words);
    }
    if (!fits) return;
    /* the dearest is needed: without it none before fit; of the others the dear go first */
    for (int i = ARES_COUNT(remedies) - 1; i >= 0; i--) {
        if (!chosen[i]) continue;
        chosen[i] = false;
        chosen[i] = !fits_with(c, where, chosen, words);
    }
    (void)fits_with(c, where, chosen, words);
    for (int i = 0; i < ARES_COUNT(remedies); i++)
        if (*words[i]) ares_str_addf(out, "%s%s", out->len ? ", " : "", words[i]);
}

static void add_amount(ares_str *out, const char *before, double bytes, const char *after)
{
    bool large = bytes >= 1e9;
    ares_str_addf(out, "%s%.1f %s%s", before, bytes / (large ? 1e9 : 1e6), large ? "GB" : "MB",
                  after);
}

void plan_describe(const plan *p, ares_str *out)
{
    double needs = plan_needs(p);
    add_amount(out, "a process needs ", needs, " where rows have full length (");
    ares_str_addf(out, "%.3g million parameters", p->parameters / 1e6);
    for (int i = 0; i < PLAN_OWNERS_N; i++) {
        double bytes = ARES_MAX(p->bytes[i][PLAN_ROLLOUT], p->bytes[i][PLAN_TRAINING]);
        if (bytes < 0.01 * needs) continue;
        ares_str_addf(out, "; %s", plan_owner_names[i]);
        add_amount(out, " ", bytes, "");
    }
    ares_str_add_char(out, ')');
}

void plan_refusal(const ares_train_config *c, const plan_where *where, const plan *p, ares_str *out)
{
    ares_str remedies_found = { 0 };
    plan_describe(p, out);
    add_amount(out, "; there are ", where->memory, " for it");
    if (p->no_cache)
        ares_str_add_z(out,
                       ", and worker.rollout.gpu_memory_utilization leaves none for a kv cache");
    ares_str_add_z(out, "; ");
    list_remedies(c, where, &remedies_found);
    if (remedies_found.len) ares_str_addf(out, "it fits with %s", remedies_found.data);
    else ares_str_add_z(out, "no option makes it fit: take a smaller model, or more memory");
    ares_str_fini(&remedies_found);
}
