/* slime's measure of repetition (slime/utils/metric_utils.py: has_repetition). */
#include "report/repetition.h"

#include "ares/io.h"

enum { CHARACTERS = 10000, RATIO = 10 };

bool repetition_known(void)
{
    return ares_deflated_bytes(ARES_VIEW("")) >= 0;
}

/* The last characters of a UTF-8 text; all of it where there are no more. */
static ares_view last_characters(ares_view text, int64_t n)
{
    size_t at = text.len;
    while (at && n) n -= ((uint8_t)text.data[--at] & 0xC0) != 0x80; /* not within a character */
    return (ares_view){ text.data + at, text.len - at };
}

bool repetition_in(ares_view text)
{
    ares_view last = last_characters(text, CHARACTERS);
    if (last.len == text.len) return false;
    return (int64_t)last.len > RATIO * ares_deflated_bytes(last);
}
