/* `--check` starts the user's programs once, so that a misspelt one is known before a run. */
#include <string.h>

#include "agents/agents.h"

static int try_reward(ares_config *cfg, const ares_train_config *c)
{
    const ares_texts *files = c->data.train_files.count ? &c->data.train_files : &c->data.val_files;
    ares_reward *reward;
    ares_dataset *d;
    ARES_TRY(ares_reward_open(cfg, &c->reward, NULL, &reward));
    int rc = ARES_OK;
    if (files->count && ares_reward_users(reward)) {
        ares_str first = { 0 }; /* of its rows only the first is read */
        const char *path = files->items[0], *slice = strstr(path, "@[");
        ares_str_addf(&first, "%.*s@[0:1]", slice ? (int)(slice - path) : (int)strlen(path), path);
        const ares_row_file file = { .path = first.data };
        rc = ares_dataset_load_files(&file, 1, &c->data, ares_reward_reads_truth(reward), &d);
        ares_str_fini(&first);
        if (rc == ARES_OK) {
            rc = ares_reward_try(reward, ares_dataset_row(d, 0));
            ares_dataset_free(d);
        }
    }
    ares_reward_close(reward);
    return rc;
}

static int try_environments(ares_config *cfg, const ares_agent_side_config *side)
{
    for (int64_t k = 0; k < side->tags.count; k++) {
        ares_env_definition d;
        ares_env e;
        ARES_TRY(ares_env_define(cfg, side->tags.items[k], &d));
        if (!d.type->starts_program) continue;
        ARES_TRY(ares_env_definition_open(&d));
        int rc = ares_env_init(&e, &d);
        if (rc == ARES_OK) {
            rc = ares_env_reset(&e, &(ares_env_start){ .seed = (uint64_t)side->seed });
            if (rc == ARES_OK && e.failure)
                rc = ares_fail(ARES_ECHILD, "env: %s: %s", d.tag, e.failure);
            ares_env_fini(&e);
        }
        ares_env_definition_close(&d);
        if (rc != ARES_OK) return rc;
    }
    return ARES_OK;
}

int ares_train_try_programs(ares_config *cfg, const ares_train_config *c)
{
    if (!agents_wanted(c)) return try_reward(cfg, c);
    ARES_TRY(try_environments(cfg, &c->agents_train));
    return try_environments(cfg, &c->agents_val);
}
