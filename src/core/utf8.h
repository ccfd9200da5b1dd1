/* One step through UTF-8, strict: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
#ifndef ARES_CORE_UTF8_H
#define ARES_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/*
 * True and the length, 1 to 4, of the character at p (p < end). Or false and the length of the
 * invalid piece that one U+FFFD replaces: the longest start of a valid character, as in the Unicode
 * standard (section 3.9) and in Python.
 */
static inline bool core_utf8_step(const char *p, const char *end, size_t *len)
{
    const unsigned char *s = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    *len = 1;
    if (s[0] < 0x80) return true;
    if (s[0] < 0xC2 || s[0] > 0xF4) return false;
    size_t need = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    for (; *len < need; ++*len, low = 0x80, high = 0xBF)
        if (*len >= left || s[*len] < low || s[*len] > high) return false;
    return true;
}

#endif
