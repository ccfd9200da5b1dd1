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
    ares_str_add_z(out, ",\"entropies\":[");
    for (int64_t i = 0; i < n; i++)
        ares_str_addf(out, "%s%.3g", i ? "," : "", (double)b->entropies_1[first + i]);
    ares_str_add_z(out, "],\"hwe\":[");
    for (int64_t i = 0, end, runs = 0; i < n; i = end) {
        for (end = i + 1; end < n && b->hwe[first + end] == b->hwe[first + i];) end++;
        if (b->hwe[first + i])
            ares_str_addf(out, "%s[%lld,%lld]", runs++ ? "," : "", (long long)i,
                          (long long)(end - i));
    }
    ares_str_add_char(out, ']');
    if (!b->kl_weight) return;
    ares_str_add_z(out, ",\"kl_weight\":[");
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && b->kl_weight[first + end] == b->kl_weight[first + i];) end++;
        ares_str_addf(out, "%s[%.6g,%lld]", i ? "," : "", (double)b->kl_weight[first + i],
                      (long long)(end - i));
    }
    ares_str_add_char(out, ']');
}

int report_rollouts(const ares_trainer *t)
{
    const ares_batch *b = &t->batch;
    static const char *const difficulties[ARES_DIFFICULTIES] = { "", "easy", "medium", "hard" };
    ares_str rows = { 0 }, all = { 0 }, path = { 0 };
    for (int64_t i = 0; i < b->rows; i++) {
        const ares_sample *s = &b->samples[i];
        int64_t tokens = b->row_start[i + 1] - b->row_start[i];
        ares_str_addf(&rows,
                      "{\"step\":%lld,\"draw\":%lld,\"sample\":%d,\"row\":%lld,\"data_source\":",
                      (long long)t->run.step, (long long)s->draw, s->index, (long long)s->row->id);
        ares_json_write_string(&rows, ares_view_of(s->row->data_source));
        ares_str_add_z(&rows, ",\"prompt\":");
        ares_json_write_string(&rows, s->row->prompt_text);
        ares_str_add_z(&rows, ",\"response\":");
        ares_json_write_string(&rows, s->response);
        ares_str_add_z(&rows, ",\"ground_truth\":");
        ares_json_write_string(&rows, s->row->ground_truth);
        ares_str_add_z(&rows, ",\"score\":");
        ares_json_write_float(&rows, s->score);
        ares_str_add_z(&rows, ",\"rewards\":{");
        for (int k = 0; k < ares_reward_count(t->reward); k++) {
            if (k) ares_str_add_char(&rows, ',');
            ares_json_write_string(&rows, ares_view_of(ares_reward_name(t->reward, k)));
            ares_str_add_char(&rows, ':');
            ares_json_write_float(&rows, s->reward_parts[k]);
        }
        ares_str_add_z(&rows, "},\"accuracy\":");
        ares_json_write_float(&rows, s->accuracy);
        ares_str_add_z(&rows, ",\"advantage\":");
        ares_json_write_float(&rows, tokens ? b->advantages[b->row_start[i]] : 0);
        ares_str_addf(&rows, ",\"n_tokens\":%lld,\"finished\":%s", (long long)tokens,
                      s->stopped ? "true" : "false");
        if (s->difficulty)
            ares_str_addf(&rows, ",\"difficulty\":\"%s\"", difficulties[s->difficulty]);
        if (b->hwe) write_tokens(b, i, &rows);
        ares_str_add_z(&rows, "}\n");
    }
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
