/*
 * How token losses become one number: a weight for each token, from counts over the whole
 * mini-batch and all ranks.
 */
#include "ares/algo_loss.h"

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

int ares_agg_weights(const char *mode, const ares_batch *b, int64_t row, int64_t end,
                     const ares_agg_counts *global, float *weight)
{
    bool token_mean = strcmp(mode, "token-mean") == 0,
         seq_mean = strcmp(mode, "seq-mean-token-mean") == 0;
    bool seq_sum = strcmp(mode, "seq-mean-token-sum") == 0,
         seq_norm = strcmp(mode, "seq-mean-token-sum-norm") == 0;
    if (!token_mean && !seq_mean && !seq_sum && !seq_norm)
        return ares_fail(ARES_ECONFIG, "loss: loss_avg_mode = '%s': unknown", mode);
    if (seq_norm && !(global->max_len > 0))
        return ares_fail(ARES_ECONFIG,
                         "loss: loss_avg_mode = '%s': needs the longest possible response", mode);
    int64_t first = b->row_start[row];
    for (int64_t r = row; r < end; r++) {
        double n = row_tokens(b, r), w = 0;
        if (n == 0) w = 0;
        else if (token_mean) w = 1 / global->tokens;
        else if (seq_mean) w = 1 / (global->rows * n);
        else if (seq_sum) w = 1 / global->rows;
        else
            w = 1 /
                global->max_len; /* verl: the sum over all tokens by the width of the response */
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            weight[t - first] = b->response_mask[t] ? (float)w : 0;
    }
    return ARES_OK;
}

int ares_agg_weights_micro(const char *mode, const ares_batch *b, const ares_micro_batch *micro,
                           int64_t n, int ranks, double max_len, float *weight)
{
    for (int64_t i = 0; i < n; i++) {
        ares_agg_counts counts = { .max_len = max_len };
        int64_t first = b->row_start[micro[i].row], tokens = b->row_start[micro[i].end] - first;
        float *w = weight + (first - b->row_start[micro[0].row]);
        ares_agg_count(b, micro[i].row, micro[i].end, &counts);
        ARES_TRY(ares_agg_weights(mode, b, micro[i].row, micro[i].end, &counts, w));
        for (int64_t t = 0; t < tokens; t++) w[t] = (float)((double)w[t] / (double)(n * ranks));
    }
    return ARES_OK;
}
