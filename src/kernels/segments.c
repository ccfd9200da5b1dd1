/* What the host knows of the segments of a packed batch. */
#include "ares/kernels.h"

static int32_t prefix_of(const ares_segments *seg, int32_t s)
{
    return seg->host_prefix_len ? seg->host_prefix_len[s] : 0;
}

void ares_segments_measure(ares_segments *seg)
{
    seg->host_start = seg->start;
    seg->host_prefix_len = seg->prefix_len;
    seg->host_prefix_row = seg->prefix_row;
    seg->rows = seg->start[seg->n];
    seg->max_rows = seg->max_keys = seg->keys = 0;
    for (int32_t s = 0; s < seg->n; s++) {
        int32_t rows = seg->start[s + 1] - seg->start[s], keys = prefix_of(seg, s) + rows;
        seg->max_rows = ARES_MAX(seg->max_rows, rows);
        seg->max_keys = ARES_MAX(seg->max_keys, keys);
        seg->keys += keys;
    }
}

void ares_segments_list_keys(const ares_segments *seg, int32_t *key_start, int32_t *key_row)
{
    int32_t at = 0;
    for (int32_t s = 0; s < seg->n; s++) {
        key_start[s] = at;
        for (int32_t p = 0; p < prefix_of(seg, s); p++) key_row[at++] = seg->host_prefix_row[s] + p;
        for (int32_t r = seg->host_start[s]; r < seg->host_start[s + 1]; r++) key_row[at++] = r;
    }
    key_start[seg->n] = at;
}
