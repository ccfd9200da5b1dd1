/* From a pair of tags in a text to the range of tokens from one to the other. */
#include "ares/text.h"
#include "tokenizer.h"

bool ares_span_find(ares_view text, const int64_t (*offsets)[2], int64_t n, ares_view start_tag,
                    ares_view end_tag, int64_t *first, int64_t *end)
{
    int64_t from = ares_view_find(text, start_tag, 0);
    if (from < 0) return false;
    int64_t to = ares_view_find(text, end_tag, (size_t)from + start_tag.len);
    if (to < 0) return false;
    to += (int64_t)end_tag.len;
    int64_t begin = -1, last = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t x = offsets[i][0], y = offsets[i][1];
        if (y == 0) continue;
        if (begin < 0 && x >= from) begin = i;
        if (begin >= 0 && y <= to) last = i;
        if (x > to) break;
    }
    if (begin < 0 || last < begin) return false;
    *first = begin;
    *end = last + 1;
    return true;
}

void ares_span_offsets(const ares_tokenizer *t, const int32_t *ids, int64_t n, ares_str *text,
                       int64_t (*offsets)[2])
{
    for (int64_t i = 0; i < n; i++) {
        bool special = ares_tokenizer_is_special(t, ids[i]);
        offsets[i][0] = special ? 0 : (int64_t)text->len;
        if (!special) ares_str_add_view(text, ares_tokenizer_token_bytes(t, ids[i]));
        offsets[i][1] = special ? 0 : (int64_t)text->len;
    }
}
