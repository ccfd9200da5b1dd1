/*
 * Whether a run fits its machine, told before it starts. In order: which options would make it
 * fit; printing a plan as a table or as JSON; the lower bound on memory that every start checks;
 * the command `ares-train plan` and the plan of --check.
 */
#include "plan.h"
#include "learner.h"
#include "run/run.h"
#include "trainer.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * Which options would make a run fit: remedies, which change options, are tried one after the other
 * until the run fits, and each one that was not needed is taken back.
 */

enum { WORD = 240 };

/* Changes options, and adds them to word as a user would write them; false: nothing to change. */
typedef bool remedy_fn(ares_train_config *c, const plan *p, char *word);

/* Adds an option to the words of a remedy, which may set several together. */
ARES_PRINTF(2, 3) static void say(char *word, const char *format, ...)
{
    va_list args;
    size_t n = strlen(word);
    n += (size_t)snprintf(word + n, WORD - n, "%s", n ? " with " : "");
    va_start(args, format);
    n += (size_t)vsnprintf(word + n, WORD - n, format, args);
    va_end(args);
    ARES_ASSERT(n < WORD);
}

static bool has_critic(const plan *p)
{
    return p->bytes[PLAN_CRITIC][0] > 0;
}
static bool has_reference(const plan *p)
{
    return p->bytes[PLAN_REFERENCE][0] > 0;
}
static int64_t row_tokens(const plan *p)
{
    return p->micro.prompt + p->micro.response;
}

/* ---------------- remedies that change no result and cost little time */
static bool more_of_the_card(ares_train_config *c, const plan *p, char *word)
{
    if (!p->no_cache || c->rollout.gpu_memory_utilization >= 0.9) return false;
    c->rollout.gpu_memory_utilization = 0.9;
    say(word, "worker.rollout.gpu_memory_utilization=0.9");
    return true;
}
/* On a CPU: a card's memory holds no copy of a checkpoint, and no stored features. */
static bool save_at_once(ares_train_config *c, const plan *p, char *word)
{
    if (p->card || p->copied == 0) return false;
    c->trainer.save_async = false;
    say(word, "trainer.save_async=false");
    return true;
}
static bool store_no_features(ares_train_config *c, const plan *p, char *word)
{
    if (p->card || p->pictures.stored == 0) return false;
    c->data.vision_cache_gb = 0;
    say(word, "data.vision_cache_gb=0");
    return true;
}
/* To as many groups, or rows, as fit; where none does, to one, and later remedies may help. */
static bool shorter_micro_batch(ares_train_config *c, const plan *p, char *word)
{
    int64_t group = p->micro.group, fits = ARES_MAX(1, p->most_micro / group) * group;
    if (c->actor.max_token_len <= fits) fits = group;
    if (c->actor.max_token_len <= fits) return false;
    c->actor.max_token_len = fits;
    say(word, "worker.actor.max_token_len_per_device=%lld", (long long)fits);
    return true;
}
static bool keep_inputs(ares_train_config *c, const plan *p, char *word)
{
    (void)p;
    if (c->actor.gradient_checkpointing) return false;
    c->actor.gradient_checkpointing = true;
    say(word, "worker.actor.model.enable_gradient_checkpointing=true");
    return true;
}
/* The critic's micro-batches have their own options. */
static bool critic_single_groups(ares_train_config *c, const plan *p, char *word)
{
    int64_t group = p->micro.prompt + c->rollout.n * (p->micro.response - 1);
    if (!has_critic(p) || !c->critic.share_prompts || c->critic.max_token_len <= group)
        return false;
    c->critic.max_token_len = group;
    say(word, "worker.critic.max_token_len_per_device=%lld", (long long)group);
    return true;
}
static bool critic_inputs(ares_train_config *c, const plan *p, char *word)
{
    if (!has_critic(p) || c->critic.gradient_checkpointing) return false;
    c->critic.gradient_checkpointing = true;
    say(word, "worker.critic.model.enable_gradient_checkpointing=true");
    return true;
}
static bool small_cache(ares_train_config *c, const plan *p, char *word)
{
    if (!p->no_cache && p->cache_tokens <= (double)p->cache_tokens_least) return false;
    c->rollout.cache_tokens = p->cache_tokens_least;
    say(word, "worker.rollout.cache_tokens=%lld", (long long)c->rollout.cache_tokens);
    return true;
}
/* The engine feeds long prompts piece by piece, unless chunked prefill is switched off. */
static bool short_passes(ares_train_config *c, const plan *p, char *word)
{
    const ares_json *chunked = c->published.chunked_prefill;
    bool whole = chunked->type == ARES_JSON_BOOL && !chunked->boolean;
    int64_t now = c->rollout.max_num_batched_tokens == ARES_NULL_I64
                      ? BATCHED_TOKENS
                      : c->rollout.max_num_batched_tokens,
            least = ARES_MAX(c->rollout.max_num_seqs, whole ? row_tokens(p) : 256);
    if (!p->answered || now <= least) return false;
    c->rollout.max_num_batched_tokens = least;
    say(word, "worker.rollout.max_num_batched_tokens=%lld", (long long)least);
    return true;
}
/* Of a model with delta nets; conversations are then computed from their start in each turn. */
static bool no_snapshots(ares_train_config *c, const plan *p, char *word)
{
    if (p->bytes[PLAN_NETS][PLAN_ROLLOUT] == 0 || c->rollout.state_snapshots == 0) return false;
    c->rollout.state_snapshots = 0;
    say(word, "worker.rollout.state_snapshots=0");
    return true;
}
static bool single_rows(ares_train_config *c, const plan *p, char *word)
{
    if (!p->answered || !c->actor.share_prompts || c->rollout.n == 1) return false;
    c->actor.share_prompts = false;
    c->actor.max_token_len = row_tokens(p);
    say(word, "worker.actor.share_prompts=false");
    say(word, "worker.actor.max_token_len_per_device=%lld", (long long)c->actor.max_token_len);
    return true;
}
static bool critic_single_rows(ares_train_config *c, const plan *p, char *word)
{
    int64_t row = row_tokens(p);
    if (!has_critic(p)) return false;
    if (c->critic.max_token_len <= row && (!c->critic.share_prompts || c->rollout.n == 1))
        return false;
    c->critic.share_prompts = false;
    c->critic.max_token_len = row;
    say(word, "worker.critic.share_prompts=false");
    say(word, "worker.critic.max_token_len_per_device=%lld", (long long)row);
    return true;
}

/* ---------------- remedies by which ranks hold parts, and send more */
static const ares_json shared = { .type = ARES_JSON_BOOL, .boolean = true };

/* Parts are spread over all ranks rather than some of them, or one. */
static bool widen(int64_t *fsdp_size, const char *option, const plan *p, char *word)
{
    if (sharing_size(*fsdp_size, p->ranks) == p->ranks) return false;
    *fsdp_size = -1;
    say(word, "%s.fsdp_size=-1", option);
    return true;
}
static bool share_states(ares_train_config *c, const plan *p, char *word)
{
    bool actor = widen(&c->actor.fsdp_size, "worker.actor.fsdp", p, word),
         critic = has_critic(p) && widen(&c->critic.fsdp_size, "worker.critic.fsdp", p, word);
    return actor || critic;
}
/* Weights in parts; false: they are already, or there is one rank */
static bool share_all(const ares_json **full_shard, int64_t *fsdp_size, const char *option,
                      const plan *p, char *word)
{
    bool full = (*full_shard)->type == ARES_JSON_BOOL && (*full_shard)->boolean;
    if (p->ranks == 1) return false;
    if (full) return widen(fsdp_size, option, p, word);
    *full_shard = &shared;
    say(word, "%s.enable_full_shard=true", option);
    if (sharing_size(*fsdp_size, p->ranks) == 1) (void)widen(fsdp_size, option, p, word);
    return true;
}
static bool share_reference(ares_train_config *c, const plan *p, char *word)
{
    return has_reference(p) &&
           share_all(&c->ref.full_shard, &c->ref.fsdp_size, "worker.ref.fsdp", p, word);
}
static bool share_critic(ares_train_config *c, const plan *p, char *word)
{
    return has_critic(p) &&
           share_all(&c->critic.full_shard, &c->critic.fsdp_size, "worker.critic.fsdp", p, word);
}
/* With VAPOR's stored answers, which must then be a round of their own. */
static bool share_actor(ares_train_config *c, const plan *p, char *word)
{
    if (!share_all(&c->actor.full_shard, &c->actor.fsdp_size, "worker.actor.fsdp", p, word))
        return false;
    if (!p->pairs.tokens || c->actor.round_tokens != ARES_NULL_I64) return true;
    c->actor.round_tokens = ARES_MAX(p->micro.tokens, p->pairs.tokens);
    say(word, "worker.actor.round_tokens=%lld", (long long)c->actor.round_tokens);
    return true;
}
/* Where weights come block by block, the inputs of all micro-batches of a round are kept. */
static bool rounds(ares_train_config *c, const plan *p, char *word)
{
    bool by_block = p->how == ARES_SHARE_ALL || c->actor.offload_params ||
                    c->ref.offload_params; /* beside the actor, with an exact KL */
    int64_t most = ARES_MAX(p->micro.tokens, p->pairs.tokens);
    if (!by_block || (c->actor.round_tokens != ARES_NULL_I64 && c->actor.round_tokens <= most))
        return false;
    if (p->micro.per_optimizer <= p->micro.groups && !p->pairs.tokens) return false;
    c->actor.round_tokens = most;
    say(word, "worker.actor.round_tokens=%lld", (long long)c->actor.round_tokens);
    return true;
}
static bool critic_rounds(ares_train_config *c, const plan *p, char *word)
{
    bool in_parts = p->ranks > 1 && c->critic.full_shard->type == ARES_JSON_BOOL &&
                    c->critic.full_shard->boolean;
    if (!has_critic(p) || !(in_parts || c->critic.offload_params)) return false;
    if (c->critic.round_tokens != ARES_NULL_I64 &&
        c->critic.round_tokens <= c->critic.max_token_len)
        return false;
    c->critic.round_tokens = c->critic.max_token_len;
    say(word, "worker.critic.round_tokens=%lld", (long long)c->critic.round_tokens);
    return true;
}
/* The CPU's native kernels can divide rollout's weights and its cache among ranks. */
static bool decode_as_one(ares_train_config *c, const plan *p, char *word)
{
    const ares_model_config *m = &p->model;
    int parts = p->ranks;
    bool now =
        c->rollout.tensor_parallel_size != ARES_NULL_I64 && c->rollout.tensor_parallel_size > 1;
    if (!p->answered || p->card || now || strcmp(c->trainer.kernels, "aten") == 0) return false;
    while (p->ranks % parts || m->heads % parts || m->kv_heads % parts || m->intermediate % parts ||
           m->hidden % parts)
        parts--;
    if (parts == 1) return false;
    c->rollout.tensor_parallel_size = parts;
    say(word, "worker.rollout.tensor_parallel_size=%d", parts);
    return true;
}

/* ---------------- remedies that move a card's memory to the host */
static bool reference_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || !has_reference(p) || c->ref.offload_params) return false;
    c->ref.offload_params = true;
    say(word, "worker.ref.offload.offload_params=true");
    return true;
}
static bool critic_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || !has_critic(p) || c->critic.offload_params) return false;
    c->critic.offload_params = true;
    say(word, "worker.critic.offload.offload_params=true");
    return true;
}
static bool actor_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || c->actor.offload_params) return false;
    c->actor.offload_params = true;
    say(word, "worker.actor.offload.offload_params=true");
    return true;
}
static bool states_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || c->actor.offload_optimizer) return false;
    c->actor.offload_optimizer = true;
    say(word, "worker.actor.offload.offload_optimizer=true");
    return true;
}
static bool critic_states_on_host(ares_train_config *c, const plan *p, char *word)
{
    if (!p->card || !has_critic(p) || c->critic.offload_optimizer) return false;
    c->critic.offload_optimizer = true;
    say(word, "worker.critic.offload.offload_optimizer=true");
    return true;
}

/* ---------------- remedies that store numbers in 16 bits */
static bool in_bf16(const char *dtype)
{
    return dtype && strcmp(dtype, "bf16") == 0;
}
/*
 * Whether the device computes in the type that the actor is stored in; all models must then be
 * stored so, because products take one type.
 */
static bool computes_as_stored(const ares_train_config *c, const plan *p)
{
    return p->card || strcmp(c->trainer.kernels, "aten") == 0;
}
/* name: the option's, of which arithmetic and dtype are values */
static bool to_bf16(const char **dtype, const char **arithmetic, bool computes, const char *name,
                    char *word)
{
    if (in_bf16(*dtype)) return false;
    *dtype = "bf16";
    if (computes) *arithmetic = "bf16"; /* as the type of the weights is */
    say(word, "worker.%s.fsdp.torch_dtype=bf16", name);
    return true;
}
static bool actor_to_bf16(ares_train_config *c, const plan *p, char *word)
{
    return to_bf16(&c->actor.dtype, &c->actor.arithmetic, computes_as_stored(c, p), "actor", word);
}
static bool critic_to_bf16(ares_train_config *c, const plan *p, char *word)
{
    return to_bf16(&c->critic.dtype, &c->critic.arithmetic, computes_as_stored(c, p), "critic",
                   word);
}
static bool reference_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    return has_reference(p) &&
           to_bf16(&c->ref.dtype, &c->ref.arithmetic, computes_as_stored(c, p), "ref", word);
}
/* All models; the optimizer's master weights stay f32. */
static bool all_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    if (!actor_to_bf16(c, p, word)) return false;
    if (!computes_as_stored(c, p)) return true;
    if (has_critic(p)) (void)critic_to_bf16(c, p, word);
    (void)reference_in_bf16(c, p, word);
    return true;
}
/* Where arithmetic stays f32, as with the CPU's kernels, bf16 would add masters and save nothing.
 */
static bool weights_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    return computes_as_stored(c, p) && all_in_bf16(c, p, word);
}
static bool states_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    if (strcmp(c->optim.strategy, "adamw_bf16") == 0) return false;
    (void)all_in_bf16(c, p, word);
    c->optim.strategy = "adamw_bf16";
    say(word, "worker.actor.optim.strategy=adamw_bf16");
    return true;
}
static bool critic_states_in_bf16(ares_train_config *c, const plan *p, char *word)
{
    if (!has_critic(p) || strcmp(c->critic_optim.strategy, "adamw_bf16") == 0) return false;
    if (computes_as_stored(c, p) && !in_bf16(c->critic.dtype)) return false;
    (void)critic_to_bf16(c, p, word);
    c->critic_optim.strategy = "adamw_bf16";
    say(word, "worker.critic.optim.strategy=adamw_bf16");
    return true;
}

/* ---------------- remedies that cost much time, or data */
/* Rollout is slow when so few answers share a pass. */
static bool few_at_once(ares_train_config *c, const plan *p, char *word)
{
    enum { FEW = 8 };
    const ares_json *chunked = c->published.chunked_prefill;
    if (!p->answered || c->rollout.max_num_seqs <= FEW || chunked->type == ARES_JSON_BOOL)
        return false;
    c->rollout.max_num_seqs = FEW;
    c->rollout.max_num_batched_tokens = 8 * FEW;
    say(word, "worker.rollout.max_num_seqs=%d", FEW);
    say(word, "worker.rollout.max_num_batched_tokens=%d", 8 * FEW);
    return true;
}
/* VAPOR's stored answers at most as long as the rollout's; longer ones lose their end. */
static bool shorter_pairs(ares_train_config *c, const plan *p, char *word)
{
    int64_t longest = row_tokens(p);
    if (!p->pairs.tokens || c->vapor.max_pair_length <= longest) return false;
    c->vapor.max_pair_length = longest;
    say(word, "vapor.max_pair_length=%lld", (long long)longest);
    return true;
}

/*
 * In order of cost, where each one costs more than all before it together: first what changes no
 * result and costs little time, then what ranks send and what goes to the host, then weights that
 * are rounded while their masters are f32; then weights that come from the host in each pass; last
 * what takes much time, cuts data or rounds what is learnt.
 */
static remedy_fn *const remedies[] = {
    more_of_the_card,
    save_at_once,
    store_no_features,
    share_states,
    shorter_micro_batch,
    keep_inputs,
    critic_single_groups,
    critic_inputs,
    small_cache,
    short_passes,
    no_snapshots,
    single_rows,
    critic_single_rows,
    share_reference,
    share_critic,
    share_actor,
    decode_as_one,
    rounds,
    critic_rounds,

    reference_on_host,
    states_on_host,
    critic_states_on_host,
    reference_in_bf16,
    weights_in_bf16,

    critic_on_host,
    actor_on_host,
    rounds, /* once more: what is on the host now comes block by block */
    critic_rounds,
    few_at_once,
    shorter_pairs,
    rounds, /* once more: stored answers are shorter */
    critic_states_in_bf16,
    states_in_bf16,
};
enum { REMEDIES = ARES_COUNT(remedies) };

/* Options, and the plan of a run with them. */
typedef struct state {
    ares_train_config options;
    plan needs;
} state;

/* Applies a remedy to s; false: it changes nothing, or the options exclude each other. */
static bool apply(remedy_fn *remedy, const plan_where *where, state *s, char *word)
{
    state changed = *s;
    *word = 0;
    bool good = remedy(&changed.options, &s->needs, word) &&
                plan_measure(&changed.options, where, &changed.needs) == ARES_OK;
    ares_error_clear();
    if (good) *s = changed;
    else *word = 0;
    return good;
}

/* Applies the chosen remedies from `first` on to s; whether the run then fits. */
static bool fits_with(const bool *chosen, int first, const plan_where *where, state *s,
                      char words[][WORD])
{
    for (int i = first; i < REMEDIES; i++) {
        *words[i] = 0;
        if (chosen[i]) (void)apply(remedies[i], where, s, words[i]);
    }
    return plan_fits(&s->needs, where);
}

/*
 * A cache of one sample would be slow: it is made as large as the other owners leave room for, but
 * not larger than it was, or than the samples need that are decoded at once.
 */
static void enlarge_cache(const plan_where *where, const plan *was, state *s, char *word)
{
    const plan *p = &s->needs;
    double all = (double)(p->cache_tokens_least * s->options.rollout.max_num_seqs),
           most = was->no_cache ? all : was->cache_tokens,
           of_token = p->bytes[PLAN_CACHE][PLAN_ROLLOUT] / p->cache_tokens,
           room = where->memory - p->total[PLAN_ROLLOUT] + p->bytes[PLAN_SPARE][PLAN_ROLLOUT],
           tokens = ARES_MIN(p->cache_tokens + 0.99 * room / of_token, most);
    state larger = *s;
    larger.options.rollout.cache_tokens = (int64_t)tokens / ARES_KV_BLOCK * ARES_KV_BLOCK;
    if (plan_measure(&larger.options, where, &larger.needs) == ARES_OK &&
        plan_fits(&larger.needs, where)) {
        *word = 0;
        say(word, "worker.rollout.cache_tokens=%lld",
            (long long)larger.options.rollout.cache_tokens);
    }
    ares_error_clear();
}

/* Adds to out the options that make the run fit, or nothing where none do. */
static void list_remedies(const ares_train_config *c, const plan_where *where, const plan *p,
                          ares_str *out)
{
    bool chosen[REMEDIES] = { 0 }, fits = false;
    char words[REMEDIES][WORD] = { 0 };
    /* before[i]: after all remedies before the i-th */
    state *before = ares_calloc(REMEDIES + 1, sizeof *before), *with = ares_malloc(sizeof *with);
    int last = 0;
    before[0] = (state){ *c, *p };
    for (; last < REMEDIES && !fits; last++) {
        before[last + 1] = before[last];
        chosen[last] = apply(remedies[last], where, &before[last + 1], words[last]);
        fits = plan_fits(&before[last + 1].needs, where);
    }
    /*
     * The last one is needed, because the run did not fit with all before it. The others are taken
     * back where the run fits without them, the ones that cost most first.
     */
    for (int i = last - 1; i >= 0 && fits; i--) {
        if (!chosen[i]) continue;
        chosen[i] = false;
        *with = before[i];
        chosen[i] = !fits_with(chosen, i, where, with, words);
    }
    *with = before[0];
    if (fits) (void)fits_with(chosen, 0, where, with, words);
    for (int i = 0; i < REMEDIES && fits; i++) {
        if (remedies[i] == small_cache && *words[i]) enlarge_cache(where, p, with, words[i]);
        if (*words[i]) ares_str_addf(out, "%s%s", out->len ? ", " : "", words[i]);
    }
    ares_free(before);
    ares_free(with);
}

static void add_amount(ares_str *out, const char *before, double bytes, const char *after)
{
    bool large = bytes >= 1e9;
    ares_str_addf(out, "%s%.1f %s%s", before, bytes / (large ? 1e9 : 1e6), large ? "GB" : "MB",
                  after);
}

/* "a process needs 7.1 GB where rows have full length (weights 1.0, ...)" */
static void plan_describe(const plan *p, ares_str *out)
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

/* Describes a run that does not fit, and the options with which it would. */
static void plan_refusal(const ares_train_config *c, const plan_where *where, const plan *p,
                         ares_str *out)
{
    ares_str remedies_found = { 0 };
    plan_describe(p, out);
    add_amount(out, "; there are ", where->memory, " for it");
    if (p->no_cache)
        ares_str_add_z(out,
                       ", and worker.rollout.gpu_memory_utilization leaves none for a kv cache");
    ares_str_add_z(out, "; ");
    list_remedies(c, where, p, &remedies_found);
    if (remedies_found.len) ares_str_addf(out, "it fits with %s", remedies_found.data);
    else ares_str_add_z(out, "no option makes it fit: take a smaller model, or more memory");
    ares_str_fini(&remedies_found);
}

/* A plan as a table, and as JSON. */

static double gb(double bytes)
{
    return bytes / 1e9;
}

static void plan_print(const plan *p, const plan_where *where, ares_str *out)
{
    const peak_micro *m = &p->micro;
    ares_str_addf(out, "%.4g million parameters", p->parameters / 1e6);
    if (p->model.experts) /* which decide the speed of a single answer; many touch all experts */
        ares_str_addf(out, " (%.4g million active per token)",
                      (double)ares_model_config_active(&p->model) / 1e6);
    ares_str_addf(out, ", %d rank%s, %.1f GB for each\n\n", where->ranks,
                  where->ranks == 1 ? "" : "s", gb(where->memory));
    ares_str_addf(out, "%-36s %12s %12s\n", "GB per rank", "rollout", "training");
    for (int i = 0; i < PLAN_OWNERS_N; i++)
        if (p->bytes[i][PLAN_ROLLOUT] != 0 || p->bytes[i][PLAN_TRAINING] != 0)
            ares_str_addf(out, "%-36s %12.4f %12.4f\n", plan_owner_names[i],
                          gb(p->bytes[i][PLAN_ROLLOUT]), gb(p->bytes[i][PLAN_TRAINING]));
    ares_str_addf(out, "%-36s %12.4f %12.4f\n", "sum", gb(p->total[PLAN_ROLLOUT]),
                  gb(p->total[PLAN_TRAINING]));
    ares_str_addf(out, "%-36s %25.4f\n\n", "must be there", gb(plan_needs(p)));
    if (p->card && p->copied > 0)
        ares_str_addf(out, "host memory: %.4f GB for the copy of a checkpoint\n", gb(p->copied));
    if (p->cache_tokens > 0) ares_str_addf(out, "kv cache: %.0f tokens\n", p->cache_tokens);
    if (!m->tokens) return;
    ares_str_addf(out,
                  "largest micro-batch: %lld tokens; %lld fit\n"
                  "longest row: %lld tokens; %lld fit\n",
                  (long long)m->tokens, (long long)p->most_micro,
                  (long long)(m->prompt + m->response), (long long)p->most_row);
    if (p->pictures.tokens)
        ares_str_addf(
            out,
            "largest image: %lld tokens; a step has up to %lld, with %.4f GB of pixels and %.4f "
            "of features on the host; %.4f more may stay over steps\n",
            (long long)p->pictures.tokens, (long long)p->pictures.step, gb(p->pictures.pixels),
            gb(p->pictures.features), gb(p->pictures.stored));
    if (plan_longest_video(p) > 0)
        ares_str_addf(out,
                      "a video that fills a prompt: %lld tokens, for which the tower takes %.4f GB "
                      "more\n",
                      (long long)p->pictures.room, gb(plan_longest_video(p)));
    if (where->ranks == 1) return;
    ares_str_addf(out, "a training step of %lld optimizer steps sends %.3f GB per rank\n",
                  (long long)p->updates, gb(p->sent));
}

static void write_number(ares_str *out, const char *key, double x)
{
    ares_json_write_double(ares_json_key(out, key), x);
}

static void write_bytes(const plan *p, int phase, ares_str *out)
{
    ares_json_begin(out, '{');
    for (int i = 0; i < PLAN_OWNERS_N; i++)
        write_number(out, plan_owner_names[i], p->bytes[i][phase]);
    write_number(out, "sum", p->total[phase]);
    ares_json_end(out, '}');
}

static void plan_write_json(const plan *p, const plan_where *where, ares_str *out)
{
    ares_json_begin(out, '{');
    write_number(out, "parameters", p->parameters);
    if (p->model.experts)
        write_number(out, "active_parameters", (double)ares_model_config_active(&p->model));
    write_number(out, "ranks", where->ranks);
    write_number(out, "memory_bytes", where->memory);
    write_bytes(p, PLAN_ROLLOUT, ares_json_key(out, "rollout_bytes"));
    write_bytes(p, PLAN_TRAINING, ares_json_key(out, "training_bytes"));
    write_number(out, "needed_bytes", plan_needs(p));
    write_number(out, "allocated_bytes", p->allocated);
    write_number(out, "checkpoint_copy_bytes", p->copied);
    write_number(out, "checkpoint_bytes", p->checkpoint);
    write_number(out, "model_checkpoint_bytes", p->checkpoint_model);
    write_number(out, "cache_tokens", p->cache_tokens);
    write_number(out, "micro_batch_tokens", (double)p->micro.tokens);
    write_number(out, "micro_batch_tokens_that_fit", (double)p->most_micro);
    write_number(out, "row_tokens", (double)(p->micro.prompt + p->micro.response));
    write_number(out, "row_tokens_that_fit", (double)p->most_row);
    ares_json_begin(ares_json_key(out, "pictures"), '{');
    write_number(out, "tokens_of_the_largest", (double)p->pictures.tokens);
    write_number(out, "tokens_of_a_step", (double)p->pictures.step);
    write_number(out, "bytes_more_of_the_longest_video", plan_longest_video(p));
    write_number(out, "host_bytes_of_pixels", p->pictures.pixels);
    write_number(out, "host_bytes_of_features", p->pictures.features);
    write_number(out, "host_bytes_over_steps", p->pictures.stored);
    ares_json_end(out, '}');
    write_number(out, "optimizer_steps", (double)p->updates);
    write_number(out, "sent_bytes_per_training_step", p->sent);
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
}

/*
 * Whether a run can fit where it would run, from the options and config.json alone: no weight is
 * read, no device opened. Only what a process holds in any case is counted: its part of weights,
 * gradients, optimizer states, the reference and the critic. Adapters, activations and the
 * rollout's cache need more, so what is refused here could never have run.
 */

/* Parameters of a model, and of these the trained ones. */
typedef struct counts {
    double all, trained;
} counts;

/*
 * Of the model at path, by its config.json; where there is none, as many as the user has told (NaN:
 * nothing), of which an unknown part is trained if some are left out. A damaged config.json fails
 * when the model is loaded, and so does what opt->trained gets wrong.
 */
static counts parameters_at(const char *path, double told, const ares_model_options *opt)
{
    ares_str dir = { 0 };
    ares_model_config m;
    counts n = { .all = ares_is_null_f64(told) ? 0 : told };
    int64_t trained;
    if (!opt->trained.items) n.trained = n.all;
    if (path && ares_model_find(path, &dir) == ARES_OK &&
        ares_model_config_load(dir.data, &m) == ARES_OK) {
        n.all = n.trained = (double)ares_model_config_count(&m);
        if (opt->trained.items)
            n.trained =
                ares_model_config_trained(&m, opt, &trained) == ARES_OK ? (double)trained : 0;
    }
    ares_error_clear();
    ares_str_fini(&dir);
    return n;
}

/* Where a rank keeps a model. */
typedef struct places {
    const ares_json *full_shard;              /* true: ranks share weights and gradients */
    int64_t fsdp_size;                        /* ranks that share */
    bool weights_elsewhere, states_elsewhere; /* on the host, beside a card */
} places;

/*
 * Bytes of a model in a rank's memory. Trained weights have a gradient and two moments in fp32, and
 * an fp32 master where they are stored in bf16; with adamw_bf16 these three have 16 bits
 * (model/region.c). optim NULL: not trained
 */
static double bytes_of(counts n, const char *dtype, const ares_optim_config *optim, int ranks,
                       places at)
{
    bool bf16 = dtype && strcmp(dtype, "bf16") == 0,
         all = at.full_shard->type == ARES_JSON_BOOL && at.full_shard->boolean;
    double part = 1.0 / sharing_size(at.fsdp_size, ranks), shared_part = all ? part : 1,
           weight = bf16 ? 2 : 4, states = 8, weights = at.weights_elsewhere ? 0 : shared_part;
    if (optim && bf16) states = strcmp(optim->strategy, "adamw_bf16") == 0 ? 6 : 12;
    double held = n.all * weight * weights;
    if (optim) held += n.trained * (4 * shared_part + states * (at.states_elsewhere ? 0 : part));
    return held;
}

/* Bytes that a process holds at least. */
typedef struct needs {
    double parameters; /* a count */
    double actor, reference, critic, teacher, all;
} needs;

/* reinforcement: with a reference and a critic, as the options say */
static needs needs_of(const ares_train_config *c, int ranks, bool reinforcement)
{
    bool trained = !c->trainer.val_only, roles = trained && reinforcement,
         card = strncmp(c->trainer.device, "cuda", 4) == 0,
         adapted = trained && ares_lora_wanted(&c->actor_lora), /* the model itself is frozen */
        critic_adapted = ares_lora_wanted(&c->critic_lora),
         critic_elsewhere =
             c->critic.model_path && strcmp(c->critic.model_path, c->actor.model_path) != 0;
    const ares_model_options of_actor = { .freeze_vision = c->actor.freeze_vision,
                                          .trained = c->actor.trainable },
                             of_critic = { .value_head = true, .trained = c->critic.trainable };
    counts actor = parameters_at(c->actor.model_path, c->actor.parameters, &of_actor),
           critic = c->critic.model_path
                        ? parameters_at(c->critic.model_path, (double)NAN, &of_critic)
                        : parameters_at(c->actor.model_path, c->actor.parameters, &of_critic);
    needs n = { .parameters = actor.all };
    n.actor =
        bytes_of(actor, c->actor.dtype, trained && !adapted ? &c->optim : NULL, ranks,
                 (places){ c->actor.full_shard, c->actor.fsdp_size, card && c->actor.offload_params,
                           card && c->actor.offload_optimizer });
    if (roles && trainer_needs_reference(c) && (!adapted || c->ref.model_path))
        n.reference = bytes_of(
            actor, c->ref.dtype, NULL, ranks,
            (places){ c->ref.full_shard, c->ref.fsdp_size, card && c->ref.offload_params, false });
    if (roles && trainer_needs_critic(c) && !(adapted && critic_adapted && !critic_elsewhere))
        n.critic = bytes_of(
            critic, c->critic.dtype, critic_adapted ? NULL : &c->critic_optim, ranks,
            (places){ c->critic.full_shard, c->critic.fsdp_size, card && c->critic.offload_params,
                      card && c->critic.offload_optimizer });
    const ares_distillation_config *d = &c->distillation;
    bool shared = strcmp(d->kind, "live") == 0 || /* the policy's, or the reference's weights */
                  (strcmp(d->kind, "base") == 0 && (adapted || n.reference > 0));
    if (roles && teacher_wanted(c) && (d->teacher_path || !shared))
        n.teacher = bytes_of(
            d->teacher_path ? parameters_at(d->teacher_path, (double)NAN, &of_actor) : actor,
            d->dtype ? d->dtype : "bf16", NULL, ranks,
            (places){ d->full_shard, d->fsdp_size, card && d->offload_params, false });
    n.all = n.actor + n.reference + n.critic + n.teacher;
    return n;
}

int train_cards(const char *folder, double *least_bytes)
{
    DIR *cards = opendir(folder);
    ares_str path = { 0 }, text = { 0 };
    int n = 0;
    *least_bytes = INFINITY;
    for (struct dirent *card; cards && (card = readdir(cards));) {
        if (*card->d_name == '.') continue;
        ares_path_join(&path, folder, card->d_name);
        ares_str_add_z(&path, "/information");
        n++;
        double bytes =
            ares_file_read(path.data, &text) == ARES_OK ? train_card_bytes(text.data) : INFINITY;
        *least_bytes = ARES_MIN(*least_bytes, bytes);
    }
    bool known = cards != NULL;
    if (cards) closedir(cards);
    ares_error_clear();
    ares_str_fini(&path);
    ares_str_fini(&text);
    return known ? n : -1;
}

void train_check_cards(ares_config *cfg, const char *device, int local_ranks, double bytes,
                       const char *words, int cards, double least, const char *remedy)
{
    bool own = strcmp(device, "cuda") == 0; /* cuda:1 is one card for all */
    if (cards == 0)
        ares_config_fault(
            cfg, "trainer.device",
            "no CUDA device on this machine; %s; use trainer.device=cpu, or a machine with cards",
            words);
    else if (own && cards > 0 && local_ranks > cards)
        ares_config_fault(cfg, "trainer.device",
                          "%d processes take a card each, and this machine has %d; start no more "
                          "than it has (--ranks)",
                          local_ranks, cards);
    if (cards > 0 && bytes * (own ? 1 : local_ranks) > least)
        ares_config_fault(cfg, "worker.actor.model.model_path",
                          "%s; a card of this machine has %.1f GB; %s", words, least / 1e9, remedy);
}

void ares_train_memory_check(ares_config *cfg, const ares_train_config *c, int ranks,
                             int local_ranks, bool reinforcement, ares_str *words)
{
    /* an option is missing, which is a fault already */
    if (!c->actor.model_path || !c->trainer.device || !c->algorithm.adv_estimator) return;
    needs n = needs_of(c, ranks, reinforcement);
    const char *remedy = reinforcement ? "see which options 'ares-train plan' proposes, take a "
                                         "smaller model, or a machine with more"
                                       : "take a smaller model, or a machine with more";
    bool cuda = strncmp(c->trainer.device, "cuda", 4) == 0;
    if (n.all > 0) {
        bool billions = n.parameters >= 1e9;
        ares_str_addf(
            words, "a process holds at least %.1f GB (%s of %.2f %s parameters: %.1f", n.all / 1e9,
            c->trainer.val_only || ares_lora_wanted(&c->actor_lora)
                ? "weights"
                : "weights, gradients and optimizer states",
            n.parameters / (billions ? 1e9 : 1e6), billions ? "billion" : "million", n.actor / 1e9);
        if (n.reference > 0) ares_str_addf(words, "; the reference: %.1f", n.reference / 1e9);
        if (n.critic > 0) ares_str_addf(words, "; the critic: %.1f", n.critic / 1e9);
        if (n.teacher > 0) ares_str_addf(words, "; the teacher: %.1f", n.teacher / 1e9);
        ares_str_add_char(words, ')');
    } else
        ares_str_addf(words,
                      "what it needs is not known: no model at '%s', and "
                      "worker.actor.model.parameters is not set",
                      c->actor.model_path);
    if (cuda) {
        double least = INFINITY;
        int cards = ares_cuda_expected() ? train_cards("/proc/driver/nvidia/gpus", &least) : 0;
        train_check_cards(cfg, c->trainer.device, local_ranks, n.all, words->data, cards, least,
                          remedy);
    } else if (n.all * local_ranks > ares_memory_bytes())
        ares_config_fault(cfg, "worker.actor.model.model_path",
                          "%s; this machine has %.1f GB for %d; %s", words->data,
                          ares_memory_bytes() / 1e9, local_ranks, remedy);
}

/* A plan for this machine, or for the one that is described: ares-train plan, and --check. */

/* Bytes of this machine for a rank: a card's, or a share of one card or of the machine's memory. */
static double memory_here(const ares_train_config *c, int local_ranks)
{
    double least = INFINITY;
    if (strncmp(c->trainer.device, "cuda", 4) != 0) return ares_memory_bytes() / local_ranks;
    if (ares_cuda_expected()) (void)train_cards("/proc/driver/nvidia/gpus", &least);
    return strcmp(c->trainer.device, "cuda") == 0 ? least : least / local_ranks;
}

static int threads_here(const ares_train_config *c, int local_ranks)
{
    bool given = c->trainer.threads != ARES_NULL_I64 && c->trainer.threads > 0;
    return given ? (int)c->trainer.threads : ARES_MAX(1, ares_cpu_count() / local_ranks);
}

/* Tokens of the longest answer of a validation; the options of evaluations are read from cfg. */
static int64_t longest_validated(ares_config *cfg, const ares_train_config *c)
{
    ares_sampling sampling;
    eval_sets evals = { 0 };
    int64_t n;
    validation_sampling(cfg, c, &sampling, &n);
    eval_sets_read(cfg, c, &evals);
    return validation_longest(c, &sampling, &evals);
}

/*
 * Tokens of a micro-batch, and samples at once, beyond which a card gains little: its products are
 * of full size by then, and larger steps of decoding have no graphs.
 */
enum { CARD_TOKENS = 16384, CARD_SEQS = 512 };

/*
 * On a card: sizes that no option gives become the largest that fit, of those and their halves; the
 * options' own defaults where none of them does. A tenth of the memory is left to what no plan
 * counts: libtorch's cache, and its kernels' scratch.
 */
static void fit_card(ares_config *cfg, plan_where where, ares_train_config *c)
{
    const ares_train_config given = *c;
    bool actor = !ares_config_given(cfg, "worker.actor.max_token_len_per_device"),
         critic = !ares_config_given(cfg, "worker.critic.max_token_len_per_device"),
         seqs = !ares_config_given(cfg, "worker.rollout.max_num_seqs"), fits = false;
    if (strncmp(c->trainer.device, "cuda", 4) != 0 || !(actor || critic || seqs)) return;
    if (!isfinite(where.memory)) return; /* a card that does not tell */
    where.memory *= 0.9;
    for (int64_t n = CARD_TOKENS; n >= given.actor.max_token_len && !fits; n /= 2) {
        plan p;
        if (actor) c->actor.max_token_len = n;
        if (critic) c->critic.max_token_len = n;
        if (seqs)
            c->rollout.max_num_seqs =
                ARES_MAX(CARD_SEQS * n / CARD_TOKENS, given.rollout.max_num_seqs);
        fits = plan_measure(c, &where, &p) == ARES_OK && plan_fits(&p, &where);
        ares_error_clear();
    }
    if (fits) return;
    c->actor.max_token_len = given.actor.max_token_len;
    c->critic.max_token_len = given.critic.max_token_len;
    c->rollout.max_num_seqs = given.rollout.max_num_seqs;
}

int ares_train_plan(ares_config *cfg, const ares_train_config *options, const ares_plan_options *o,
                    ares_str *out)
{
    plan p;
    ares_train_config own = *options, *c = &own; /* as the run will be */
    plan_where where = { .ranks = o->ranks,
                         .threads = threads_here(c, o->local_ranks),
                         .texts = plan_texts(c),
                         .memory = o->memory > 0 ? o->memory : memory_here(c, o->local_ranks),
                         .reinforcement = !o->supervised,
                         .val_longest = o->supervised ? 0 : longest_validated(cfg, c) };
    if (!isfinite(where.memory))
        return ares_fail(ARES_EUSE, "plan: no card tells its memory here; say it with --memory");
    fit_card(cfg, where, c);
    ARES_TRY(plan_measure(c, &where, &p));
    (o->json ? plan_write_json : plan_print)(&p, &where, out);
    if (plan_fits(&p, &where)) return ARES_OK;
    ares_str words = { 0 };
    plan_refusal(c, &where, &p, &words);
    int rc = ares_fail(ARES_ELIMIT, "plan: %s", words.data);
    ares_str_fini(&words);
    return rc;
}

int ares_train_plan_check(ares_config *cfg, const ares_train_config *options, int ranks,
                          int local_ranks, bool reinforcement, bool starts, ares_str *words)
{
    plan p;
    ares_train_config own = *options, *c = &own; /* as the run will be */
    plan_where where = { .ranks = ranks,
                         .threads = threads_here(c, local_ranks),
                         .texts = plan_texts(c),
                         .memory = memory_here(c, local_ranks),
                         .reinforcement = reinforcement,
                         .val_longest = reinforcement ? longest_validated(cfg, c) : 0 };
    fit_card(cfg, where, c);
    if (plan_measure(c, &where, &p) != ARES_OK) { /* no model is there; opening it says why */
        ares_error_clear();
        return ARES_OK;
    }
    ares_str_clear(words);
    plan_describe(&p, words);
    if (plan_fits(&p, &where)) return ARES_OK;
    ares_str_clear(words);
    plan_refusal(c, &where, &p, words);
    if (!starts || p.card) return ares_fail(ARES_ELIMIT, "config: %s", words->data);
    ares_log(ARES_LOG_WARN, "config: %s", words->data);
    return ARES_OK;
}

int plan_fit_card(const training *t, ares_config *cfg, bool reinforcement, ares_train_config *c)
{
    const ares_device *d = &t->device;
    if (d->index < 0 || d->counting) return ARES_OK;
    const plan_where where = { .ranks = ares_world_size(t->world),
                               .threads = 1,
                               .memory =
                                   ares_device_total_bytes(d) / ares_group_on_card(t->groups.all),
                               .reinforcement = reinforcement,
                               .val_longest = reinforcement ? longest_validated(cfg, c) : 0 };
    fit_card(cfg, where, c);
    int64_t *sizes[] = { &c->actor.max_token_len, &c->critic.max_token_len,
                         &c->rollout.max_num_seqs },
            found[ARES_COUNT(sizes)];
    for (int i = 0; i < ARES_COUNT(sizes); i++) found[i] = -*sizes[i];
    ARES_TRY(ares_world_max_i64(t->world, found, ARES_COUNT(found))); /* of the smallest card */
    for (int i = 0; i < ARES_COUNT(sizes); i++) *sizes[i] = -found[i];
    bool bf16 = training_storage(c) == ARES_BF16;
    char samples[64] = "";
    if (reinforcement)
        snprintf(samples, sizeof samples, ", up to %lld samples at once",
                 (long long)c->rollout.max_num_seqs);
    ares_info("train: %s: %s, %lld tokens per micro-batch%s%s%s%s%s",
              ares_device_card(d) ? ares_device_card(d) : "card",
              bf16 ? "bf16, the optimizer's copy in fp32" : "fp32",
              (long long)c->actor.max_token_len, samples,
              bf16 ? "" : "; faster: worker.actor.fsdp.torch_dtype=bf16, for tensor cores",
              c->actor.max_token_len < CARD_TOKENS / 4
                  ? "; faster: more of worker.actor.max_token_len_per_device"
                  : "",
              c->actor.gradient_checkpointing
                  ? "; faster: worker.actor.model.enable_gradient_checkpointing=false, if it fits"
                  : "",
              c->actor.offload_params || c->actor.offload_optimizer
                  ? "; faster: worker.actor.offload.* false, if it fits"
                  : "");
    return ARES_OK;
}
