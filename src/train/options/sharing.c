/* What ranks share of a model that they train together (docs/ranks.md#sharing). */
#include "sharing.h"

#include "vapor/vapor.h"

static bool is_true(const ares_json *flag)
{
    return flag->type == ARES_JSON_BOOL && flag->boolean;
}

static void check(ares_config *cfg, const char *full_shard_path, const ares_json *full_shard,
                  const char *size_path, int64_t size, int world)
{
    if (is_true(full_shard) && world > 1)
        ares_log(ARES_LOG_INFO,
                 "config: %s -> ranks share optimizer states; weights stay whole on every rank",
                 full_shard_path);
    if (size > 1 && size != world)
        ares_config_fault(cfg, size_path,
                          "all %d ranks share, or none: set -1, or 1 to share nothing", world);
}

/* VAPOR asks the reference on some ranks only, and a gather needs all. */
static const char *why_not_reference(const ares_train_config *c)
{
    if (c->ref.offload_params) return "worker.ref.offload.offload_params keeps it in host memory";
    return vapor_wanted(c) ? "vapor asks it on some ranks only" : NULL;
}

void sharing_check(ares_config *cfg, const ares_train_config *c, int world)
{
    check(cfg, "worker.actor.fsdp.enable_full_shard", c->actor.full_shard,
          "worker.actor.fsdp.fsdp_size", c->actor.fsdp_size, world);
    check(cfg, "worker.critic.fsdp.enable_full_shard", c->critic.full_shard,
          "worker.critic.fsdp.fsdp_size", c->critic.fsdp_size, world);
    const char *why = why_not_reference(c);
    if (is_true(c->ref.full_shard) && world > 1 && why)
        ares_log(ARES_LOG_INFO,
                 "config: worker.ref.fsdp.enable_full_shard -> the reference stays whole on every "
                 "rank: %s",
                 why);
}

ares_model_share sharing_of(int64_t fsdp_size, ares_group *group)
{
    bool shares = group && ares_group_size(group) > 1 && fsdp_size != 1;
    return (ares_model_share){ .group = group,
                               .how = shares ? ARES_SHARE_STATES : ARES_SHARE_NONE };
}

ares_model_share sharing_of_reference(const ares_train_config *c, ares_group *group)
{
    bool shares =
        is_true(c->ref.full_shard) && group && ares_group_size(group) > 1 && !why_not_reference(c);
    return (ares_model_share){ .group = shares ? group : NULL,
                               .how = shares ? ARES_SHARE_ALL : ARES_SHARE_NONE,
                               .weights_on_host = c->ref.offload_params };
}
