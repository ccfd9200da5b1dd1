/* What ranks share of a model that they train together (docs/ranks.md#sharing). */
#include "sharing.h"

static void check(ares_config *cfg, const char *full_shard_path, const ares_json *full_shard,
                  const char *size_path, int64_t size, int world)
{
    bool all = full_shard->type == ARES_JSON_BOOL && full_shard->boolean;
    if (all && world > 1)
        ares_log(ARES_LOG_INFO,
                 "config: %s -> ranks share optimizer states; weights stay whole on every rank",
                 full_shard_path);
    if (size > 1 && size != world)
        ares_config_fault(cfg, size_path,
                          "all %d ranks share, or none: set -1, or 1 to share nothing", world);
}

void sharing_check(ares_config *cfg, const ares_train_config *c, int world)
{
    check(cfg, "worker.actor.fsdp.enable_full_shard", c->actor.full_shard,
          "worker.actor.fsdp.fsdp_size", c->actor.fsdp_size, world);
    check(cfg, "worker.critic.fsdp.enable_full_shard", c->critic.full_shard,
          "worker.critic.fsdp.fsdp_size", c->critic.fsdp_size, world);
}

ares_model_share sharing_of(int64_t fsdp_size, ares_group *group)
{
    bool shares = group && ares_group_size(group) > 1 && fsdp_size != 1;
    return (ares_model_share){ .group = group,
                               .how = shares ? ARES_SHARE_STATES : ARES_SHARE_NONE };
}
