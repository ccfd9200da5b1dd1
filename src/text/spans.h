/* What the spans of VAPOR's tests share with spans.c. */
#ifndef ARES_TEXT_SPANS_H
#define ARES_TEXT_SPANS_H

#include "ares/text.h"

/* Appends a token's bytes to text, and tells where they are; a special token has none: [0, 0). */
void text_span_offset(ares_view bytes, bool special, ares_str *text, int64_t offset[2]);
#endif
