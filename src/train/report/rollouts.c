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

/*
 * Values that a control computed for the tokens of a row: entropies to three digits, runs of HWE
 * tokens as [first, count], and the weights of the KL term as runs [weight, count] from the first
 * token on.
 */
static void write_tokens(const ares_batch *b, int64_t row, ares_str *out)
{
    int64_t first = b->row_start[row], n = b->row_start[row + 1] - first;
    ares_json_begin(ares_json_key(out, "entropies"), '[');
    for (int64_t i = 0; i < n; i++)
        ares_json_write_rounded(out, (double)b->entropies_1[first + i], 3);
    ares_json_end(out, ']');
    write_runs(out, "hwe", b->hwe + first, n, NULL);
    if (!b->kl_weight) return;
    ares_json_begin(ares_json_key(out, "kl_weight"), '[');
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && b->kl_weight[first + end] == b->kl_weight[first + i];) end++;
        ares_json_begin(out, '[');
        ares_json_write_rounded(out, (double)b->kl_weight[first + i], 6);
        ares_json_write_i64(out, end - i);
        ares_json_end(out, ']');
    }
    ares_json_end(out, ']');
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
    const uint8_t *trained = b->kept_mask ? b->kept_mask : b->response_mask;
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

static void write_ids(ares_str *out, const char *key, const int32_t *ids, int64_t n)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_i64(out, ids[i]);
    ares_json_end(out, ']');
}

/* Whether a program plays the row's episode by itself: its details stand among the row's keys. */
static bool is_played(const ares_sample *s)
{
    return s->turns.len &&
           ((const agents_row *)(const void *)s->row)->definition->type->program != NULL;
}

/* The ids of a row whose conversation a program wrote, and what is known of its episode. */
static void write_played(const ares_batch *b, int64_t row, ares_str *out)
{
    const ares_sample *s = &b->samples[row];
    ares_arena arena = { 0 };
    const ares_json *details;
    write_ids(out, "prompt_ids", s->prompt, s->prompt_len);
    write_ids(out, "token_ids", b->responses + b->row_start[row],
              b->row_start[row + 1] - b->row_start[row]);
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
    if (is_played(s)) write_played(b, row, out);
    ares_str_fini(&text);
}

/* A line of rollouts/step_<n>.jsonl; "score" is null where the answer could not be judged. */
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
    if (!ares_batch_row_counts(b, row)) ares_json_write_bool(ares_json_key(out, "discarded"), true);
    for (int64_t i = b->row_start[row]; i < b->row_start[row + 1] && b->kept_mask; i++)
        rejected += b->response_mask[i] && !b->kept_mask[i];
    if (rejected) ares_json_write_i64(ares_json_key(out, "rejected_tokens"), rejected);
    if (s->difficulty)
        ares_json_write_string(ares_json_key(out, "difficulty"),
                               ares_view_of(difficulties[s->difficulty]));
    if (b->hwe) write_tokens(b, row, out);
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
}

int report_rollouts(const ares_trainer *t)
{
    ares_str rows = { 0 }, all = { 0 }, path = { 0 };
    for (int64_t i = 0; i < t->batch.rows; i++) write_row(t, i, &rows);
    int rc = ares_world_gather_all(t->run.world, rows.data, rows.len, &all, NULL);
    if (rc == ARES_OK && ares_world_rank(t->run.world) == 0) {
        rc = ares_dir_make(ares_path_join(&path, t->run.run_dir.data, "rollouts"));
        char name[64];
        snprintf(name, sizeof name, "rollouts/step_%06lld.jsonl", (long long)t->run.step);
        if (rc == ARES_OK)
            rc = ares_file_write(ares_path_join(&path, t->run.run_dir.data, name), all.data,
                                 all.len);
    }
    ares_str_fini(&rows);
    ares_str_fini(&all);
    ares_str_fini(&path);
    return ares_world_share_error(t->run.world, rc);
}
