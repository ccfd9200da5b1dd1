/* How token losses become one number: a weight for each token, from counts over the whole mini-batch and all ranks. */
#include "ares/algo.h"

#include <string.h>

static double row_tokens(const ares_batch *b, int64_t r)
{
    double n = 0;
    for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) n += b->response_mask[t];
    return n;
}

void ares_agg_count(const ares_batch *b, int64_t row, int64_t end, ares_agg_counts *out)
{
    for (int64_t r = row; r < end; r++) {
        double n = row_tokens(b, r);
        out->tokens += n;
        out->rows += n > 0;
    }
}

int ares_agg_weights(const char *mode, const ares_batch *b, int64_t row, int64_t end, const ares_agg_counts *global, float *weight)
{
    bool token_mean = strcmp(mode, "token-mean") == 0, seq_mean = strcmp(mode, "seq-mean-token-mean") == 0;
    bool seq_sum = strcmp(mode, "seq-mean-token-sum") == 0, seq_norm = strcmp(mode, "seq-mean-token-sum-norm") == 0;
    if (!token_mean && !seq_mean && !seq_sum && !seq_norm) return ares_fail(ARES_ECONFIG, "loss: loss_avg_mode = '%s': unknown", mode);
    if (global->tokens == 0 || global->rows == 0)
        return ares_fail(ARES_ENUMERIC, "loss: rows %lld to %lld: no token of the mini-batch was written by the policy", (long long)row, (long long)end - 1);
    if (seq_norm && !(global->max_len > 0)) return ares_fail(ARES_ECONFIG, "loss: loss_avg_mode = '%s': needs the longest possible response", mode);
    int64_t first = b->row_start[row];
    for (int64_t r = row; r < end; r++) {
        double n = row_tokens(b, r), w = 0;
        if (token_mean) w = 1 / global->tokens;
        if (seq_mean && n > 0) w = 1 / (global->rows * n);
        if (seq_sum) w = 1 / global->rows;
        if (seq_norm) w = 1 / global->max_len; /* verl: the sum over all tokens by the width of the response */
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) weight[t - first] = b->response_mask[t] ? (float)w : 0;
    }
    return ARES_OK;
}
