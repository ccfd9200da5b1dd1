/* What ranks share of a model that they train together (docs/ranks.md#sharing). */
#include "sharing.h"

#include <stdio.h>

#include "vapor/vapor.h"

static bool is_true(const ares_json *flag)
{
    return flag->type == ARES_JSON_BOOL && flag->boolean;
}

int sharing_size(int64_t fsdp_size, int ranks)
{
    bool all = fsdp_size == ARES_NULL_I64 || fsdp_size == -1 || fsdp_size >= ranks;
    return all ? ranks : (int)fsdp_size;
}

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
    const int64_t asked[] = { c->actor.fsdp_size, c->critic.fsdp_size, c->ref.fsdp_size };
    *g = (sharing_groups){ 0 };
    ARES_TRY(ares_group_open(world, d, ranks, 1, &g->all));
    for (int i = 0; i < ARES_COUNT(asked); i++) {
        int size = sharing_size(asked[i], ranks);
        if (size == 1 || size == ranks || cut_of(g, size)) continue;
        sharing_cut *cut = &g->cut[g->n];
        ARES_TRY(ares_group_open(world, d, size, 1, &cut->group));
        g->n++;
        ARES_TRY(ares_group_open(world, d, ranks / size, size, &cut->replicas));
    }
    return ARES_OK;
}

void sharing_close(sharing_groups *g)
{
    for (int i = 0; i < g->n; i++) {
        ares_group_close(g->cut[i].replicas);
        ares_group_close(g->cut[i].group);
    }
    ares_group_close(g->all);
}

int64_t sharing_bytes(const sharing_groups *g)
{
    int64_t bytes = ares_group_bytes(g->all) + (g->tp ? ares_group_bytes(g->tp) : 0);
    for (int i = 0; i < g->n; i++)
        bytes += ares_group_bytes(g->cut[i].group) + ares_group_bytes(g->cut[i].replicas);
    return bytes;
}

/* Where nothing is shared, gradients are summed over all ranks, too. */
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
    if (share.how != ARES_SHARE_ALL) share = (ares_model_share){ 0 };
    share.weights_on_host = c->ref.offload_params;
    return share;
}
