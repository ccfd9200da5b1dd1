/*
 * UTF-8, properties and normal forms of characters as in the `tokenizers` library (Unicode 16),
 * also where the system's utf8proc has an older version (14 or later).
 */
#ifndef ARES_TEXT_UNICODE_H
#define ARES_TEXT_UNICODE_H

#include "ares/core.h"

typedef struct unicode_range {
    uint32_t first, last;
    const char *name;
} unicode_range;
/*
 * The code points assigned after Unicode 14: [n] ranges with the name of their category ("Lo"), or
 * by_script with that of their script ("Han"); sorted by code point within a name.
 */
const unicode_range *unicode_new_ranges(bool by_script, int *n);

/*
 * The byte alphabet of GPT-2: every byte as a printable character. -1 for a character outside it.
 */
extern const uint16_t unicode_of_byte[256];
int unicode_byte_of(uint32_t c);

/* The character at *p in valid UTF-8; moves *p past it. */
static inline uint32_t unicode_next(const unsigned char **p)
{
    const char *s = (const char *)*p;
    uint32_t c;
    *p += ares_utf8_next(s, s + 4, &c);
    return c;
}

static inline bool unicode_is_start(unsigned char byte)
{
    return (byte & 0xc0) != 0x80;
}

int unicode_put(uint32_t c, unsigned char *out); /* UTF-8 of c into out [4]; its length */
/* Number of bytes of valid UTF-8 that `text` begins with. */
size_t unicode_valid(const unsigned char *text, size_t len);
/*
 * The length of the valid character at text (len >= 1), or minus the length of the broken piece
 * there, as ares_utf8_next says. *open: more bytes could complete the piece.
 */
int unicode_piece(const unsigned char *text, size_t len, bool *open);
/* Appends text with every broken piece replaced. */
void unicode_repair(ares_str *out, const unsigned char *text, size_t len);

bool unicode_is_space(uint32_t c);   /* White_Space */
bool unicode_is_numeric(uint32_t c); /* Nd, Nl, No */
bool unicode_is_word(uint32_t c);    /* Alphabetic, M, Nd, Pc, Join_Control: \w of UTS 18 */

typedef enum { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } unicode_form;
/*
 * A character of the normalised text. change: 0 where it stands for the next character of the
 * source, -n where it stands for that and the n after it, 1 where it stands for none and shares the
 * place of the character before.
 */
typedef struct unicode_change {
    uint32_t c;
    int32_t change;
} unicode_change;
typedef struct unicode_changes {
    unicode_change *items;
    int64_t n, cap;
} unicode_changes;

/* True only where the text is in this form; false proves nothing. */
bool unicode_is_normal(unicode_form form, const unsigned char *text, size_t len);
/* Sets `out` to the text in this form, with the origin of each character. */
void unicode_normalize(unicode_form form, const unsigned char *text, size_t len,
                       unicode_changes *out);

#endif
