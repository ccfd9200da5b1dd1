/*
 * From prompts to samples, scores and the first columns of the batch. Finished samples are judged
 * while others are still decoded.
 */
#include "generate.h"
#include "triggers.h"

#include <math.h>
#include <string.h>

#include "ares/algo_filter.h"

void generate_sampling(const ares_train_config *c, ares_sampling *out)
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

int generate_samples(ares_trainer *t, const generate_job *job, ares_arena *arena,
                     generate_sample **out)
{
    int64_t total = job->n_prompts * job->n;
    generate_sample *all = ares_arena_calloc(arena, (size_t)total + 1, sizeof *all);
    int parts = ares_reward_count(t->reward);
    int32_t *stop_ids = ares_arena_alloc(
        arena, (size_t)(t->run.cfg->rollout.stop_token_ids.count + 1) * sizeof *stop_ids);
    ares_sampling sampling = *job->sampling;
    sampling.n_stop_ids = (int32_t)t->run.cfg->rollout.stop_token_ids.count;
    for (int32_t i = 0; i < sampling.n_stop_ids; i++)
        stop_ids[i] = (int32_t)t->run.cfg->rollout.stop_token_ids.items[i];
    sampling.stop_ids = stop_ids;

    ares_rollout_clear(t->rollout);
    for (int64_t p = 0; p < job->n_prompts; p++) {
        const ares_row *row = job->rows[p];
        ares_rng_key key =
            ares_rng_sub(ares_rng_sub(job->key, (uint64_t)t->run.step, (uint64_t)job->draws[p]),
                         job->attempt, 0);
        int rc = ares_rollout_add(t->rollout,
                                  &(ares_request){ .prompt = row->prompt,
                                                   .prompt_len = row->prompt_len,
                                                   .n = (int32_t)job->n,
                                                   .sampling = sampling,
                                                   .key = key },
                                  NULL);
        if (rc != ARES_OK) return ares_fail_in(rc, "%s:%lld", row->file, (long long)row->line);
    }
    ares_str text = { 0 };
    int64_t active = 1;
    int rc = ARES_OK;
    while (active && rc == ARES_OK) {
        rc = ares_rollout_step(t->rollout, &active);
        ares_completion c;
        while (rc == ARES_OK && ares_rollout_next(t->rollout, &c)) {
            const ares_row *row = job->rows[c.request];
            generate_sample *s = &all[c.request * job->n + c.index];
            s->completion = c;
            s->hwe_candidates = triggers_mark(t, &c, arena);
            ares_str_clear(&text);
            rc = ares_tokenizer_decode(t->run.tokenizer, c.ids, c.n_tokens,
                                       t->run.cfg->reward.skip_special_tokens, &text);
            s->item = (ares_reward_item){
                .in = { .response = { ares_arena_copy(arena, text.data ? text.data : "", text.len),
                                      text.len },
                        .ground_truth = row->ground_truth,
                        .prompt = row->prompt_text,
                        .stopped = c.finish == ARES_FINISH_STOP,
                        .row = row->json,
                        .ids = (const int32_t *)ares_arena_copy(arena, (const char *)c.ids,
                                                                (size_t)c.n_tokens * sizeof *c.ids),
                        .response_tokens = c.n_tokens },
                .parts = ares_arena_calloc(arena, (size_t)parts + 1, sizeof(float))
            };
            ares_reward_submit(t->reward, &s->item);
        }
    }
    ares_str_fini(&text);
    double waited = ares_now_s();
    ares_reward_wait(t->reward); /* after a failure, too: judging reads the arena */
    if (job->metrics) ares_metrics_add(job->metrics, "timing_s/reward", ares_now_s() - waited);
    *out = all;
    return rc;
}

static void *copy(ares_arena *arena, const void *data, size_t bytes)
{
    return ares_arena_copy(arena, data, bytes);
}

void generate_keep(generate_sample *s, int64_t n, ares_arena *arena)
{
    for (int64_t i = 0; i < n; i++) {
        ares_completion *c = &s[i].completion;
        size_t bytes = (size_t)c->n_tokens * 4;
        bool same = c->entropies_1 == c->entropies;
        c->ids = copy(arena, c->ids, bytes);
        c->log_probs = copy(arena, c->log_probs, bytes);
        c->entropies = copy(arena, c->entropies, bytes);
        c->entropies_1 = same ? c->entropies : copy(arena, c->entropies_1, bytes);
        c->log_probs_1 = NULL;
        c->most_likely = NULL;
    }
}

int generate_rows(ares_trainer *t, const generate_pass *p, int64_t at, int64_t end,
                  ares_arena *arena, generate_group **out, int64_t *count)
{
    int64_t ranks = ares_world_size(t->run.world), rank = ares_world_rank(t->run.world), k = 0;
    const ares_row **rows = ares_arena_alloc(arena, (size_t)(end - at + 1) * sizeof *rows);
    int64_t *draws = ares_arena_alloc(arena, (size_t)(end - at + 1) * sizeof *draws);
    for (int64_t i = at; i < end; i++) {
        if (i % ranks != rank) continue;
        rows[k] = ares_dataset_row(p->data, i);
        draws[k++] = i;
    }
    ares_rng_key root = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_SAMPLE);
    generate_job job = { .n_prompts = k,
                         .n = p->n,
                         .rows = rows,
                         .draws = draws,
                         .sampling = p->sampling,
                         .key = ares_rng_sub(root, UINT64_MAX - (uint64_t)p->key, 0) };
    generate_sample *samples;
    ARES_TRY(generate_samples(t, &job, arena, &samples));
    generate_keep(samples, k * p->n, arena);
    generate_group *groups = ares_arena_calloc(arena, (size_t)k + 1, sizeof *groups);
    for (int64_t g = 0; g < k; g++)
        groups[g] =
            (generate_group){ .draw = draws[g], .row = rows[g], .samples = samples + g * p->n };
    *out = groups;
    *count = k;
    return ARES_OK;
}

void generate_discard(const ares_trainer *t, generate_sample *s, int64_t n)
{
    int64_t limit = ares_reward_max_length(t->reward);
    for (int64_t i = 0; i < n; i++)
        s[i].discarded = ares_answer_discarded(&t->run.cfg->filter, s[i].completion.n_tokens, limit,
                                               s[i].item.in.stopped);
}

void generate_fill(ares_batch *b, const generate_group *groups, int64_t count, int64_t n,
                   int64_t version)
{
    for (int64_t g = 0; g < count; g++) {
        const generate_group *p = &groups[g];
        ares_batch_begin_group(b);
        for (int64_t i = 0; i < n; i++) {
            const generate_sample *s = &p->samples[i];
            if (p->thinned && s->discarded) continue;
            ares_sample row = { .draw = p->draw,
                                .index = (int32_t)i,
                                .row = p->row,
                                .prompt = p->row->prompt,
                                .prompt_len = p->row->prompt_len,
                                .response = s->item.in.response,
                                .stopped = s->item.in.stopped,
                                .token_exact = true,
                                .weight_version = version,
                                .score = s->item.score,
                                .accuracy = s->item.accuracy,
                                .reward_parts = s->item.parts,
                                .baseline = p->baseline };
            ares_batch_add_row(b, &row, s->completion.n_tokens);
        }
    }
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    ARES_PUT(b, rollout_log_probs);
    ARES_PUT(b, entropies);
    ARES_PUT(b, entropies_1);
    bool marked = b->rows && groups[0].samples[0].hwe_candidates;
    if (marked) ARES_PUT(b, hwe_candidates);
    for (int64_t i = 0, r = 0; i < count * n; i++) {
        const generate_group *p = &groups[i / n];
        const generate_sample *s = &p->samples[i % n];
        const ares_completion *k = &s->completion;
        if (p->thinned && s->discarded) continue;
        size_t at = (size_t)b->row_start[r++], length = (size_t)k->n_tokens;
        memcpy(b->responses + at, k->ids, length * sizeof *k->ids);
        memcpy(b->rollout_log_probs + at, k->log_probs, length * sizeof *k->log_probs);
        memcpy(b->entropies + at, k->entropies, length * sizeof *k->entropies);
        memcpy(b->entropies_1 + at, k->entropies_1, length * sizeof *k->entropies_1);
        memset(b->response_mask + at, !s->discarded && !p->masked, length);
        if (marked) memcpy(b->hwe_candidates + at, s->hwe_candidates, length);
    }
}
