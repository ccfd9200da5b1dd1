/* Every answer of a step in a file, for readers and scripts. */
#include <stdio.h>

#include "report.h"

/*
 * What a control computed for the tokens of a row: entropies to three digits, runs of HWE tokens as
 * [first, count], and the weights of the KL term as runs [weight, count] from the first token on.
 */
static void write_tokens(const ares_batch *b, int64_t row, ares_str *out)
{
    int64_t first = b->row_start[row], n = b->row_start[row + 1] - first;
    ares_json_begin(ares_json_key(out, "entropies"), '[');
    for (int64_t i = 0; i < n; i++)
        ares_json_write_rounded(out, (double)b->entropies_1[first + i], 3);
    ares_json_end(out, ']');
    ares_json_begin(ares_json_key(out, "hwe"), '[');
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && b->hwe[first + end] == b->hwe[first + i];) end++;
        if (!b->hwe[first + i]) continue;
        ares_json_begin(out, '[');
        ares_json_write_i64(out, i);
        ares_json_write_i64(out, end - i);
        ares_json_end(out, ']');
    }
    ares_json_end(out, ']');
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

/* The prompt as it was read, its turns, and which tokens are trained as runs [first, count]. */
static void write_episode(const ares_trainer *t, int64_t row, ares_str *out)
{
    const ares_batch *b = &t->batch;
    const ares_sample *s = &b->samples[row];
    int64_t first = b->row_start[row], n = b->row_start[row + 1] - first;
    ares_str text = { 0 };
    if (ares_tokenizer_decode(t->run.tokenizer, s->prompt, s->prompt_len, false, &text) == ARES_OK)
        ares_json_write_string(ares_json_key(out, "prompt"), ares_str_view(&text));
    ares_str_clear(&text);
    if (ares_tokenizer_decode(t->run.tokenizer, b->responses + first, n, false, &text) == ARES_OK)
        ares_json_write_string(ares_json_key(out, "response"), ares_str_view(&text));
    ares_str_fini(&text);
    ares_json_splice(ares_json_key(out, "turns"), s->turns);
    ares_json_begin(ares_json_key(out, "trained"), '[');
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && b->response_mask[first + end] == b->response_mask[first + i];)
            end++;
        if (!b->response_mask[first + i]) continue;
        ares_json_begin(out, '[');
        ares_json_write_i64(out, i);
        ares_json_write_i64(out, end - i);
        ares_json_end(out, ']');
    }
    ares_json_end(out, ']');
}

static void write_row(const ares_trainer *t, int64_t row, ares_str *out)
{
    static const char *const difficulties[ARES_DIFFICULTIES] = { "", "easy", "medium", "hard" };
    const ares_batch *b = &t->batch;
    const ares_sample *s = &b->samples[row];
    int64_t tokens = b->row_start[row + 1] - b->row_start[row];
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
    ares_json_write_float(ares_json_key(out, "score"), s->score);
    ares_json_begin(ares_json_key(out, "rewards"), '{');
    for (int k = 0; k < ares_reward_count(t->reward); k++)
        ares_json_write_float(ares_json_key(out, ares_reward_name(t->reward, k)),
                              s->reward_parts[k]);
    ares_json_end(out, '}');
    ares_json_write_float(ares_json_key(out, "accuracy"), s->accuracy);
    ares_json_write_float(ares_json_key(out, "advantage"),
                          tokens && b->advantages ? b->advantages[b->row_start[row]] : 0);
    ares_json_write_i64(ares_json_key(out, "n_tokens"), tokens);
    ares_json_write_bool(ares_json_key(out, "finished"), s->stopped);
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
    return ares_world_agree(t->run.world, rc);
}
