/*
 * The AEPO control's dropping of prompts that have become too easy. Every group that was generated
 * is looked at, also those that filters drop. Before the first threshold there is no target, so
 * nothing is dropped.
 */

#include "aepo.h"

static void forget_generated(aepo *s)
{
    ares_batch_clear(&s->made);
    s->generated = false;
}

int aepo_generated(void *state, const ares_batch *b)
{
    aepo *s = state;
    if (!s->options->algorithm.drop_easy_prompts) return ARES_OK;
    ARES_TRY(ares_world_agree(s->env.world, aepo_check_batch(b, true)));
    if (!s->tau_known) return ARES_OK;
    s->generated = true;
    ares_arena arena = { 0 };
    control_sample *local = ares_arena_calloc(&arena, (size_t)b->rows + 1, sizeof *local);
    int rc = ares_world_agree(s->env.world, aepo_mark(s, b, &arena, local, NULL, NULL, NULL));
    if (rc != ARES_OK) {
        ares_arena_fini(&arena);
        return rc;
    }
    for (int64_t g = 0; g < b->groups; g++) {
        ares_batch_begin_group(&s->made);
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) {
            const ares_sample *from = &b->samples[r];
            if (!ares_batch_row_counts(b, r)) continue;
            ares_batch_add_row(&s->made,
                               &(ares_sample){ .draw = from->draw,
                                               .index = from->index,
                                               .row = from->row,
                                               .accuracy = from->accuracy,
                                               .hwe_count = local[r].hwe },
                               0);
        }
    }
    ares_arena_fini(&arena);
    return ARES_OK;
}

int aepo_drop_easy(aepo *s, const control_gathered *batch, ares_arena *arena)
{
    if (!s->options->algorithm.drop_easy_prompts) return ARES_OK;
    control_gathered made = { 0 };
    if (s->generated) {
        control_sample *local = ares_arena_calloc(arena, (size_t)s->made.rows + 1, sizeof *local);
        for (int64_t r = 0; r < s->made.rows; r++) {
            const ares_sample *x = &s->made.samples[r];
            local[r] =
                (control_sample){ .index = x->index, .accuracy = x->accuracy, .hwe = x->hwe_count };
        }
        ARES_TRY(control_gather(s->env.world, &s->made, local, &made));
    }
    if (s->aims.target_known[ARES_EASY]) {
        int64_t n, *place;
        aepo_prompt *prompts = aepo_pool_prompts(s->generated ? &made : batch, arena, &n, &place);
        aepo_buckets buckets;
        bool *drop = ares_arena_calloc(arena, (size_t)n + 1, sizeof *drop);
        aepo_bucket(prompts, n, &buckets);
        aepo_too_easy(prompts, n, (double)s->aims.target[ARES_EASY],
                      s->options->algorithm.drop_easy_ratio, drop);
        for (int64_t i = 0; i < n; i++)
            if (drop[i] && !ares_map_get(s->skip, prompts[i].gid, NULL))
                ares_map_put(s->skip, prompts[i].gid, ares_map_count(s->skip));
    }
    control_gathered_fini(&made);
    forget_generated(s);
    return ARES_OK;
}

bool aepo_dropped(const void *state, int64_t i, ares_view *gid)
{
    const aepo *s = state;
    if (i >= ares_map_count(s->skip)) return false;
    *gid = ares_map_key(s->skip, i);
    return true;
}
