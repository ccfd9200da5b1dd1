/* From a pair of tags in a text to the range of tokens from one to the other. */
#include "spans.h"

bool ares_span_text(ares_view text, ares_view start_tag, ares_view end_tag, ares_view *inner)
{
    int64_t from = ares_view_find(text, start_tag, 0);
    if (from < 0) return false;
    size_t begin = (size_t)from + start_tag.len;
    int64_t to = ares_view_find(text, end_tag, begin);
    if (to < 0) return false;
    *inner = (ares_view){ text.data + begin, (size_t)to - begin };
    return true;
}

bool ares_span_find(ares_view text, const int64_t (*offsets)[2], int64_t n, ares_view start_tag,
                    ares_view end_tag, int64_t *first, int64_t *end)
{
    ares_view inner;
    if (!ares_span_text(text, start_tag, end_tag, &inner)) return false;
    int64_t from = inner.data - text.data - (int64_t)start_tag.len;
    int64_t to = inner.data - text.data + (int64_t)(inner.len + end_tag.len);
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

void text_span_offset(ares_view bytes, bool special, ares_str *text, int64_t offset[2])
{
    offset[0] = special ? 0 : (int64_t)text->len;
    if (!special) ares_str_add_view(text, bytes);
    offset[1] = special ? 0 : (int64_t)text->len;
}

void ares_span_offsets(const ares_tokenizer *t, const int32_t *ids, int64_t n, ares_str *text,
                       int64_t (*offsets)[2])
{
    for (int64_t i = 0; i < n; i++)
        text_span_offset(ares_tokenizer_token_bytes(t, ids[i]),
                         ares_tokenizer_is_special(t, ids[i]), text, offsets[i]);
}
