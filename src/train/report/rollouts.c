/* The answers of a step in a file, for readers and scripts: rollouts/step_<n>.jsonl. */
#include "agents/agents.h"
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/data.h"
#include "ares/io.h"

/* Runs of 1 in mask [n], as [first, count]: of tokens, or with at [n + 1] in its unit. */
static void write_runs(ares_str *out, const char *key, const uint8_t *mask, int64_t n,
                       const int64_t *at)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && mask[end] == mask[i];) end++;
        if (!mask[i]) continue;
        ares_json_begin(out, '[');
        ares_json_write_i64(out, at ? at[i] : i);
        ares_json_write_i64(out, at ? at[end] - at[i] : end - i);
        ares_json_end(out, ']');
    }
    ares_json_end(out, ']');
}

/* Runs of equal numbers in x [n], as [value, count], from the first token on. */
static void write_levels(ares_str *out, const char *key, const float *x, int64_t n, int digits)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && x[end] == x[i];) end++;
        ares_json_begin(out, '[');
        ares_json_write_rounded(out, (double)x[i], digits);
        ares_json_write_i64(out, end - i);
        ares_json_end(out, ']');
    }
    ares_json_end(out, ']');
}

static void write_ids(ares_str *out, const char *key, const int32_t *ids, int64_t n)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_i64(out, ids[i]);
    ares_json_end(out, ']');
}

/* Numbers x [n], null where known is 0. */
static void write_numbers(ares_str *out, const char *key, const float *x, const uint8_t *known,
                          int64_t n, int digits)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0; i < n; i++)
        if (known[i]) ares_json_write_rounded(out, (double)x[i], digits);
        else ares_json_write_null(out);
    ares_json_end(out, ']');
}

/*
 * The text of each token, special tokens by name. A character that several tokens make stands at
 * the last of them; together the pieces are the decoded response.
 */
static void write_pieces(const ares_tokenizer *t, const int32_t *ids, int64_t n, ares_str *out)
{
    ares_decoder decoder;
    ares_str piece = { 0 };
    ares_decoder_init(&decoder, t, false);
    ares_json_begin(ares_json_key(out, "pieces"), '[');
    for (int64_t i = 0; i < n; i++) {
        ares_str_clear(&piece);
        ares_decoder_add(&decoder, ids[i], &piece);
        /* a character that the response does not end */
        if (i + 1 == n) ares_decoder_finish(&decoder, &piece);
        ares_json_write_string(out, ares_str_view(&piece));
    }
    ares_json_end(out, ']');
    ares_str_fini(&piece);
}

/* The mask by which a row was trained, also where rollout correction has rejected tokens of it. */
static const uint8_t *trained_mask(const ares_batch *b)
{
    return b->kept_mask ? b->kept_mask : b->response_mask;
}

/* Whether a program plays the row's episode by itself: its details stand among the row's keys. */
static bool is_played(const ares_sample *s)
{
    return s->turns.len &&
           ((const agents_row *)(const void *)s->row)->definition->type->program != NULL;
}

bool report_has_entropies(const ares_trainer *t, const ares_sample *s)
{
    return !s->turns.len || is_played(s) || t->run.cfg->agents.token_exact;
}

/*
 * Columns by token of the row (docs/runs.md#columns-of-tokens): null stands where the policy did
 * not write the token, and in what an update computes where it did not train it. prompt: write its
 * ids, too.
 */
static void write_tokens(const ares_trainer *t, int64_t row, bool prompt, ares_str *out)
{
    enum { DIGITS = 4 };
    const ares_batch *b = &t->batch;
    const ares_sample *s = &b->samples[row];
    int64_t first = b->row_start[row], n = b->row_start[row + 1] - first;
    const uint8_t *trained = trained_mask(b) + first;
    uint8_t *wrote = ares_calloc((size_t)n + 1, 2), *used = wrote + n; /* used: by an update */
    bool all = true, equal = true, updated = false, clipped = false;
    for (int64_t i = 0; i < n; i++) {
        /* a discarded answer has no mask, yet its tokens were sampled */
        wrote[i] = b->response_mask[first + i] || !b->weight_versions ||
                   b->weight_versions[first + i] != ARES_NOT_SAMPLED;
        used[i] = trained[i] && (!b->ratio || b->ratio[first + i] > 0);
        updated = updated || used[i];
        all = all && trained[i];
        clipped = clipped || (b->clipped && b->clipped[first + i]);
        equal = equal &&
                (!trained[i] || !b->advantages || b->advantages[first + i] == b->advantages[first]);
    }
    if (prompt) write_ids(out, "prompt_ids", s->prompt, s->prompt_len);
    write_ids(out, "token_ids", b->responses + first, n);
    write_pieces(t->run.tokenizer, b->responses + first, n, out);
    if (report_has_entropies(t, s))
        write_numbers(out, "entropies", b->entropies_1 + first, wrote, n, 3);
    if (b->old_log_probs)
        write_numbers(out, "logprobs", b->old_log_probs + first, wrote, n, DIGITS);
    if (b->ref_log_probs)
        write_numbers(out, "ref_logprobs", b->ref_log_probs + first, wrote, n, DIGITS);
    if (b->kl && updated) write_numbers(out, "kl", b->kl + first, used, n, DIGITS);
    if (b->ratio && updated && t->actor.ratios)
        write_numbers(out, "ratio", b->ratio + first, used, n, DIGITS);
    if (clipped) write_runs(out, "clipped", b->clipped + first, n, NULL);
    if (!equal) write_levels(out, "advantages", b->advantages + first, n, DIGITS);
    if (b->values) write_numbers(out, "values", b->values + first, trained, n, DIGITS);
    if (!all && !s->turns.len) write_runs(out, "trained", trained, n, NULL); /* episodes have it */
    if (b->hwe) write_runs(out, "hwe", b->hwe + first, n, NULL);
    if (b->hwe && b->kl_weight) write_levels(out, "kl_weight", b->kl_weight + first, n, 6);
    ares_free(wrote);
}

static int64_t characters(ares_view text)
{
    int64_t n = 0;
    for (size_t i = 0; i < text.len; i++) n += ((unsigned char)text.data[i] & 0xc0) != 0x80;
    return n;
}

/* Which parts of a row's response were trained, and where the turns in it end. */
static void write_trained(const ares_trainer *t, int64_t row, ares_view text, ares_str *out)
{
    const ares_batch *b = &t->batch;
    const uint8_t *trained = trained_mask(b);
    int64_t first = b->row_start[row], n = b->row_start[row + 1] - first;
    /*
     * at[i]: characters of the text after i tokens; a character that several tokens make belongs
     * to the last of them
     */
    int64_t *at = ares_malloc(((size_t)n + 1) * sizeof *at);
    ares_decoder decoder;
    ares_str part = { 0 };
    at[0] = 0;
    ares_decoder_init(&decoder, t->run.tokenizer, false);
    for (int64_t i = 0; i < n; i++) {
        ares_str_clear(&part);
        ares_decoder_add(&decoder, b->responses[first + i], &part);
        at[i + 1] = at[i] + characters(ares_str_view(&part));
    }
    ares_decoder_finish(&decoder, &part);
    at[n] = characters(text); /* a last character that is incomplete counts, too */
    ares_str_fini(&part);
    write_runs(out, "trained", trained + first, n, NULL);
    write_runs(out, "trained_text", trained + first, n, at);
    ares_json_begin(ares_json_key(out, "turn_ends"), '[');
    for (int64_t i = 0; i < n && b->turn_ends; i++)
        if (b->turn_ends[first + i]) ares_json_write_i64(out, at[i + 1]);
    ares_json_end(out, ']');
    ares_free(at);
}

/* What is known of an episode whose conversation a program wrote. */
static void write_played(const ares_sample *s, ares_str *out)
{
    ares_arena arena = { 0 };
    const ares_json *details;
    int rc = ares_json_parse(&arena, s->details, "details", &details);
    ARES_ASSERT(rc == ARES_OK); /* players.c wrote it */
    for (int64_t i = 0; i < details->count; i++)
        ares_json_write(ares_json_key_view(out, details->members[i].key),
                        details->members[i].value);
    ares_arena_fini(&arena);
}

/* An episode, or a turn of one: its seed, the prompt as the model read it, turns, trained parts. */
static void write_episode(const ares_trainer *t, int64_t row, ares_str *out)
{
    const ares_batch *b = &t->batch;
    const ares_sample *s = &b->samples[row];
    const agents_row *of = (const agents_row *)(const void *)s->row;
    int64_t first = b->row_start[row], n = b->row_start[row + 1] - first;
    ares_str text = { 0 };
    ares_json_write_i64(ares_json_key(out, "seed"), (int64_t)agents_seed(of, s->draw));
    ares_json_write_i64(ares_json_key(out, "id"), of->first_id + s->index);
    if (s->episode) ares_json_write_i64(ares_json_key(out, "turn"), s->turn);
    ares_json_write_bool(ares_json_key(out, "token_exact"),
                         is_played(s) || t->run.cfg->agents.token_exact);
    if (ares_tokenizer_decode(t->run.tokenizer, s->prompt, s->prompt_len, false, &text) == ARES_OK)
        ares_json_write_string(ares_json_key(out, "prompt"), ares_str_view(&text));
    ares_str_clear(&text);
    if (ares_tokenizer_decode(t->run.tokenizer, b->responses + first, n, false, &text) == ARES_OK)
        ares_json_write_string(ares_json_key(out, "response"), ares_str_view(&text));
    ares_json_splice(ares_json_key(out, "turns"), s->turns);
    write_trained(t, row, ares_str_view(&text), out);
    if (is_played(s)) write_played(s, out);
    ares_str_fini(&text);
}

/*
 * All bits of what was sampled: the first 16 hexadecimal digits of the SHA-256 of each token's id,
 * log-prob and the two entropies, 4 bytes each (docs/exactness.md#digests).
 */
static void write_digest(const ares_batch *b, int64_t row, ares_str *out)
{
    const void *const columns[] = { b->responses, b->rollout_log_probs, b->entropies,
                                    b->entropies_1 };
    unsigned char sum[32];
    char text[17];
    ares_sha256 s;
    ares_sha256_init(&s);
    for (int64_t i = b->row_start[row]; i < b->row_start[row + 1]; i++)
        for (int k = 0; k < ARES_COUNT(columns); k++)
            if (columns[k]) ares_sha256_add(&s, (const char *)columns[k] + 4 * i, 4);
    ares_sha256_end(&s, sum);
    for (int i = 0; i < 8; i++) snprintf(text + 2 * i, 3, "%02x", sum[i]);
    ares_json_write_string(ares_json_key(out, "digest"), ares_view_of(text));
}

/*
 * A line of rollouts/step_<n>.jsonl without its end; "score" is null where the answer could not be
 * judged.
 */
static void write_row(const ares_trainer *t, int64_t row, ares_str *out)
{
    static const char *const difficulties[ARES_DIFFICULTIES] = { "", "easy", "medium", "hard" };
    const ares_batch *b = &t->batch;
    const ares_sample *s = &b->samples[row];
    int64_t tokens = b->row_start[row + 1] - b->row_start[row], rejected = 0;
    bool unscored = s->failed && answer_discards_failures(t);
    double reward = 0;
    ares_json_begin(out, '{');
    ares_json_write_i64(ares_json_key(out, "step"), t->run.step);
    ares_json_write_i64(ares_json_key(out, "draw"), s->draw);
    ares_json_write_i64(ares_json_key(out, "sample"), s->index);
    ares_json_write_i64(ares_json_key(out, "row"), s->row->id);
    ares_json_write_string(ares_json_key(out, "data_source"), ares_view_of(s->row->data_source));
    if (s->turns.len) write_episode(t, row, out);
    else {
        ares_json_write_string(ares_json_key(out, "prompt"), s->row->prompt_text);
        ares_json_write_string(ares_json_key(out, "response"), s->response);
    }
    if (s->teacher_text.len) /* what the student has not seen stays out of its prompt */
        ares_json_write_string(ares_json_key(out, "teacher_prompt"), s->teacher_text);
    if (t->run.cfg->distillation.enabled)
        ares_json_write_bool(ares_json_key(out, "distilled"), s->distilled);
    if (t->run.cfg->distillation.enabled && s->distilled)
        ares_json_write_float(ares_json_key(out, "distillation"), s->distillation);
    ares_json_write_string(ares_json_key(out, "ground_truth"), s->row->ground_truth);
    ares_json_write_float(ares_json_key(out, "score"), unscored ? NAN : s->score);
    ares_json_begin(ares_json_key(out, "rewards"), '{');
    for (int k = 0; k < ares_reward_count(t->reward); k++)
        ares_json_write_float(ares_json_key(out, ares_reward_name(t->reward, k)),
                              s->reward_parts[k]);
    ares_json_end(out, '}');
    if (s->failed) ares_json_write_bool(ares_json_key(out, "failed"), true);
    if (s->details.len && !is_played(s))
        ares_json_splice(ares_json_key(out, "details"), s->details);
    ares_json_write_float(ares_json_key(out, "accuracy"), s->accuracy);
    if (b->token_level_rewards && ares_batch_row_counts(b, row)) {
        for (int64_t i = b->row_start[row]; i < b->row_start[row + 1]; i++)
            if (b->response_mask[i]) reward += (double)b->token_level_rewards[i];
        ares_json_write_float(ares_json_key(out, "reward"), (float)reward);
    }
    ares_json_write_float(ares_json_key(out, "advantage"),
                          tokens && b->advantages ? b->advantages[b->row_start[row]] : 0);
    ares_json_write_i64(ares_json_key(out, "n_tokens"), tokens);
    ares_json_write_bool(ares_json_key(out, "finished"), s->stopped);
    write_digest(b, row, out);
    if (!ares_batch_row_counts(b, row)) ares_json_write_bool(ares_json_key(out, "discarded"), true);
    for (int64_t i = b->row_start[row]; i < b->row_start[row + 1] && b->kept_mask; i++)
        rejected += b->response_mask[i] && !b->kept_mask[i];
    if (rejected) ares_json_write_i64(ares_json_key(out, "rejected_tokens"), rejected);
    if (s->difficulty)
        ares_json_write_string(ares_json_key(out, "difficulty"),
                               ares_view_of(difficulties[s->difficulty]));
}

/*
 * Which groups get columns of tokens: those with the widest spread of advantages first, as many as
 * trainer.rollout_log_tokens holds over all ranks.
 */

typedef struct candidate {
    int64_t spread, place; /* they order groups; spread: bits of the negative of a float */
    int64_t tokens, rank, group;
} candidate;

/* The largest advantage of a trained token of the group less the smallest. */
static float spread_of(const ares_batch *b, int64_t group)
{
    const uint8_t *trained = trained_mask(b);
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = b->row_start[b->group_start[group]];
         b->advantages && i < b->row_start[b->group_start[group + 1]]; i++) {
        if (!trained[i]) continue;
        low = fminf(low, b->advantages[i]);
        high = fmaxf(high, b->advantages[i]);
    }
    return low < high ? high - low : 0;
}

/* chosen [groups of this rank], zeroed by the caller. A collective. */
static int choose_groups(const ares_trainer *t, uint8_t *chosen)
{
    const ares_batch *b = &t->batch;
    int64_t left = t->run.cfg->trainer.rollout_log_tokens;
    int rank = ares_world_rank(t->run.world);
    ares_str all = { 0 };
    candidate *mine = ares_malloc(((size_t)b->groups + 1) * sizeof *mine);
    for (int64_t g = 0; g < b->groups; g++) {
        float spread = spread_of(b, g);
        int32_t bits; /* of a float that is not negative, they order as the floats do */
        memcpy(&bits, &spread, sizeof bits);
        mine[g] = (candidate){ .spread = -(int64_t)bits,
                               .place = b->samples[b->group_start[g]].place,
                               .tokens = b->row_start[b->group_start[g + 1]] -
                                         b->row_start[b->group_start[g]],
                               .rank = rank,
                               .group = g };
    }
    int rc =
        ares_world_gather_all(t->run.world, mine, (size_t)b->groups * sizeof *mine, &all, NULL);
    ares_free(mine);
    candidate *x = (candidate *)(void *)all.data;
    int64_t n = (int64_t)(all.len / sizeof *x);
    if (rc == ARES_OK && n) ares_sort_records(x, n, sizeof *x);
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        if (left >= 0 && i > 0 && x[i].tokens > left) continue; /* a shorter one may fit */
        if (left >= 0) left = ARES_MAX(left - x[i].tokens, 0);
        if (x[i].rank == rank) chosen[x[i].group] = 1;
    }
    ares_str_fini(&all);
    return rc;
}

int report_rows(const ares_trainer *t, ares_str *all)
{
    const ares_batch *b = &t->batch;
    ares_str rows = { 0 }, *out = &rows;
    uint8_t *chosen = ares_calloc((size_t)b->groups + 1, 1);
    int rc = ARES_OK;
    if (strcmp(t->run.cfg->trainer.rollout_log, "tokens") == 0) rc = choose_groups(t, chosen);
    for (int64_t g = 0; g < b->groups && rc == ARES_OK; g++) {
        const ares_sample *shown = NULL; /* whose prompt's ids stand above */
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++) {
            const ares_sample *s = &b->samples[r];
            write_row(t, r, out);
            if (chosen[g]) {
                bool same = shown && shown->prompt_len == s->prompt_len &&
                            memcmp(shown->prompt, s->prompt,
                                   (size_t)s->prompt_len * sizeof *s->prompt) == 0;
                write_tokens(t, r, !same || is_played(s), out);
                shown = s;
            }
            ares_json_end(out, '}');
            ares_str_add_char(out, '\n');
        }
    }
    ares_free(chosen);
    if (rc == ARES_OK) rc = ares_world_gather_all(t->run.world, rows.data, rows.len, all, NULL);
    ares_str_fini(&rows);
    return rc;
}

int report_rollouts(ares_trainer *t, bool last)
{
    const ares_trainer_config *c = &t->run.cfg->trainer;
    int64_t step = t->run.step;
    last = last || step >= t->run.total_steps;
    if (strcmp(c->rollout_log, "none") == 0 || t->rollouts_step == step) return ARES_OK;
    if (!last && step != 1 && step % c->rollout_log_freq != 0) return ARES_OK;
    t->rollouts_step = step;
    ares_str all = { 0 }, path = { 0 };
    int rc = report_rows(t, &all);
    if (rc == ARES_OK && ares_world_rank(t->run.world) == 0) {
        rc = ares_dir_make(ares_path_join(&path, t->run.run_dir.data, "rollouts"));
        char name[64];
        snprintf(name, sizeof name, "rollouts/step_%06lld.jsonl", (long long)t->run.step);
        if (rc == ARES_OK)
            rc = ares_file_write(ares_path_join(&path, t->run.run_dir.data, name), all.data,
                                 all.len);
    }
    ares_str_fini(&all);
    ares_str_fini(&path);
    return ares_world_share_error(t->run.world, rc);
}
