/* What ranks share of a model that they train together (docs/ranks.md#sharing). */
#include "sharing.h"

#include "vapor/vapor.h"

static bool is_true(const ares_json *flag)
{
    return flag->type == ARES_JSON_BOOL && flag->boolean;
}

static void check(ares_config *cfg, const char *full_shard_path, const ares_json *full_shard,
                  const char *why_not, const char *size_path, int64_t size, int world)
{
    if (size == 1) why_not = "fsdp_size = 1 shares nothing";
    if (is_true(full_shard) && world > 1 && why_not)
        ares_log(ARES_LOG_INFO, "config: %s -> weights stay whole on every rank: %s",
                 full_shard_path, why_not);
    if (size > 1 && size != world)
        ares_config_fault(cfg, size_path,
                          "all %d ranks share, or none: set -1, or 1 to share nothing", world);
}

/* VAPOR's second batch is a round of its own, and so its gradients would be another sum. */
static const char *why_not_actor(const ares_train_config *c)
{
    if (vapor_wanted(c)) return "vapor trains on two batches at once";
    return c->actor.offload_params ? "worker.actor.offload.offload_params keeps them in host memory"
                                   : NULL;
}

static const char *why_not_critic(const ares_train_config *c)
{
    return c->critic.offload_params ? "worker.critic.offload.offload_params keeps them in host "
                                      "memory"
                                    : NULL;
}

static const char *why_not_reference(const ares_train_config *c)
{
    return c->ref.offload_params ? "worker.ref.offload.offload_params keeps them in host memory"
                                 : NULL;
}

void sharing_check(ares_config *cfg, const ares_train_config *c, int world)
{
    check(cfg, "worker.actor.fsdp.enable_full_shard", c->actor.full_shard, why_not_actor(c),
          "worker.actor.fsdp.fsdp_size", c->actor.fsdp_size, world);
    check(cfg, "worker.critic.fsdp.enable_full_shard", c->critic.full_shard, why_not_critic(c),
          "worker.critic.fsdp.fsdp_size", c->critic.fsdp_size, world);
    check(cfg, "worker.ref.fsdp.enable_full_shard", c->ref.full_shard, why_not_reference(c), NULL,
          -1, world);
}

static ares_model_share share_of(const ares_json *full_shard, const char *why_not, int64_t size,
                                 ares_group *group)
{
    ares_model_share share = { .group = group };
    if (!group || ares_group_size(group) == 1 || size == 1) return share;
    share.how = is_true(full_shard) && !why_not ? ARES_SHARE_ALL : ARES_SHARE_STATES;
    return share;
}

ares_model_share sharing_of_actor(const ares_train_config *c, ares_group *group)
{
    ares_model_share share =
        share_of(c->actor.full_shard, why_not_actor(c), c->actor.fsdp_size, group);
    share.weights_on_host = c->actor.offload_params;
    share.states_on_host = c->actor.offload_optimizer;
    return share;
}

ares_model_share sharing_of_critic(const ares_train_config *c, ares_group *group)
{
    ares_model_share share =
        share_of(c->critic.full_shard, why_not_critic(c), c->critic.fsdp_size, group);
    share.weights_on_host = c->critic.offload_params;
    share.states_on_host = c->critic.offload_optimizer;
    return share;
}

ares_model_share sharing_of_reference(const ares_train_config *c, ares_group *group)
{
    ares_model_share share = share_of(c->ref.full_shard, why_not_reference(c), -1, group);
    if (share.how != ARES_SHARE_ALL) share = (ares_model_share){ 0 };
    share.weights_on_host = c->ref.offload_params;
    return share;
}
