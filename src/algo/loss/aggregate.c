/* How token losses become one number: the table of modes, and the weight of each token. */
#include "plain.h"

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

static double of_token(const ares_agg_counts *c, double n)
{
    (void)n;
    return 1 / c->tokens;
}
static double of_row_mean(const ares_agg_counts *c, double n)
{
    return 1 / (c->rows * n);
}
static double of_row_sum(const ares_agg_counts *c, double n)
{
    (void)n;
    return 1 / c->rows;
}
static double of_width(const ares_agg_counts *c, double n)
{
    (void)n;
    return 1 / c->max_len; /* verl: the sum over all tokens by the width of the response */
}

static const agg_mode table[] = {
    { "token-mean", "every token weighs the same", "1 / N", "arXiv 2503.14476, 3.3", of_token },
    { "seq-mean-token-mean", "every row weighs the same", "1 / (B n)", "arXiv 2402.03300",
      of_row_mean },
    { "seq-mean-token-sum", "the sum over a row, the mean over rows", "1 / B", "verl", of_row_sum },
    { "seq-mean-token-sum-norm", "the sum over all tokens by the longest possible response",
      "1 / loss_scale_factor", "arXiv 2503.20783", of_width },
};

const agg_mode *agg_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}

int ares_agg_weights(const char *mode, const ares_batch *b, int64_t row, int64_t end,
                     const ares_agg_counts *global, float *weight)
{
    const agg_mode *agg = NULL;
    for (int i = 0; i < ARES_COUNT(table); i++)
        if (strcmp(mode, table[i].name) == 0) agg = &table[i];
    if (!agg) return ares_fail(ARES_ECONFIG, "loss: loss_avg_mode = '%s': unknown", mode);
    if (agg->weight == of_width && !(global->max_len > 0))
        return ares_fail(ARES_ECONFIG,
                         "loss: loss_avg_mode = '%s': needs the longest possible response", mode);
    int64_t first = b->row_start[row];
    for (int64_t r = row; r < end; r++) {
        double n = row_tokens(b, r), w = n > 0 ? agg->weight(global, n) : 0;
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++)
            weight[t - first] = b->response_mask[t] ? (float)w : 0;
    }
    return ARES_OK;
}

int ares_agg_weights_micro(const char *mode, const ares_batch *b, const ares_micro_batch *micro,
                           int64_t n, int64_t total, double max_len, float *weight)
{
    for (int64_t i = 0; i < n; i++) {
        ares_agg_counts counts = { .max_len = max_len };
        int64_t first = b->row_start[micro[i].row], tokens = b->row_start[micro[i].end] - first;
        float *w = weight + (first - b->row_start[micro[0].row]);
        ares_agg_count(b, micro[i].row, micro[i].end, &counts);
        ARES_TRY(ares_agg_weights(mode, b, micro[i].row, micro[i].end, &counts, w));
        for (int64_t t = 0; t < tokens; t++) w[t] = (float)((double)w[t] / (double)total);
    }
    return ARES_OK;
}
