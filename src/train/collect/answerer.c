/* What every answerer shares: sampling options, discarded answers, passes over a source. */
#include "collect/answerer.h"

#include <string.h>

#include "ares/algo_filter.h"

void answer_sampling(const ares_train_config *c, ares_sampling *out)
{
    const ares_rollout_config *r = &c->rollout;
    *out = (ares_sampling){ .temperature = (float)r->temperature,
                            .top_p = (float)r->top_p,
                            .top_k = (int32_t)r->top_k,
                            .max_new_tokens = (int32_t)c->data.max_response_length,
                            .ignore_eos = r->ignore_eos,
                            .n_stop_strings = (int32_t)r->stop.count,
                            .stop_strings = r->stop.items };
}

bool answer_discards_failures(const ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    return strcmp(t->agents ? c->agents.on_failure : c->reward.on_failure, "discard") == 0;
}

void answer_discard(const ares_trainer *t, ares_group *groups, int64_t count)
{
    int64_t limit = ares_reward_max_length(t->reward);
    bool failures = answer_discards_failures(t);
    for (int64_t g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].n; i++) {
            ares_trajectory *y = &groups[g].items[i];
            y->discarded = ares_answer_discarded(&t->run.cfg->filter, ares_trajectory_tokens(y),
                                                 limit, y->stopped) ||
                           (y->failed && failures);
        }
}

answer_prompt answer_prompt_of(const ares_source *s, const ares_drawn *d)
{
    return (answer_prompt){ .row = ares_source_row(s, d->id),
                            .draw = d->draw,
                            .begun = d->begun,
                            .local = d->local,
                            .source_step = d->step,
                            .source_weight = d->weight };
}

void answer_expect(const ares_trainer *t, int64_t prompts, int64_t n)
{
    ares_work_expect(t->agents ? ARES_WORK_EPISODES : ARES_WORK_ANSWERS, prompts * n);
}

int64_t answer_share(const ares_trainer *t, int64_t count)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world);
    return (count + ranks - 1 - rank) / ranks;
}

int answer_rows(ares_trainer *t, const answer_pass *p, int64_t at, int64_t end, ares_arena *arena,
                ares_group **out, int64_t *count)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world), k = 0;
    answer_prompt *prompts = ares_arena_alloc(arena, (size_t)(end - at + 1) * sizeof *prompts);
    for (int64_t i = at; i < end; i++)
        if (i % ranks == rank)
            prompts[k++] = (answer_prompt){ .row = ares_source_row(p->source, i), .draw = i };
    ares_rng_key root = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE);
    const answer_job job = { .n_prompts = k,
                             .n = (int32_t)p->n,
                             .prompts = prompts,
                             .sampling = p->sampling,
                             .votes = p->key != ANSWER_BOOTSTRAP && p->n > 1,
                             .key = ares_rng_sub(root, UINT64_MAX - (uint64_t)p->key, 0) };
    *out = ares_arena_calloc(arena, (size_t)k + 1, sizeof **out);
    *count = k;
    return t->answerer->answer(t, &job, arena, *out);
}
