/*
 * What the checks know of English and of languages: sentences as NLTK finds them, the language of
 * a text, syllables and verbs.
 */
#include "ifeval.h"

#include <string.h>
#include <utf8proc.h>

/*
 * Sentences as NLTK 3.8 finds them with its English Punkt model (Kiss and Strunk, Unsupervised
 * Multilingual Sentence Boundary Detection, 2006). A mark may end a sentence where punctuation, or
 * white space and another word, follow; the text around it, its context, is cut into tokens and
 * judged. Contexts do not overlap, so the work is linear.
 */

/* masks of values in ifeval_orthography */
enum { SEEN_UPPER = 2 + 4 + 8, SEEN_LOWER = 16 + 32 + 64, MID_UPPER = 4, START_LOWER = 16 };
enum { TYPE_MAX = 64 }; /* longer than any word of the tables: a longer type is stored as empty */

typedef struct token {
    ares_view text;
    char type[TYPE_MAX]; /* lower case, "##number##" for numbers */
    size_t type_len;     /* 0: too long to be in a table */
    bool breaks, abbreviation, ellipsis, number;
} token;

static bool is_mark(char c)
{
    return c == '.' || c == '?' || c == '!';
}

/*
 * ENDS: the character ends a word, and makes a mark before it a candidate; NO_WORD: it begins no
 * word.
 */
enum { ENDS = 1, NO_WORD = 2 };
static const uint8_t roles[128] = {
    ['"'] = ENDS | NO_WORD, ['('] = ENDS | NO_WORD, [')'] = ENDS | NO_WORD, ['*'] = ENDS | NO_WORD,
    [':'] = ENDS | NO_WORD, [';'] = ENDS | NO_WORD, ['@'] = ENDS | NO_WORD, ['['] = ENDS | NO_WORD,
    [']'] = ENDS | NO_WORD, ['{'] = ENDS | NO_WORD, ['}'] = ENDS | NO_WORD, ['!'] = ENDS,
    ['?'] = ENDS,           ['\''] = ENDS,          ['#'] = NO_WORD,        ['&'] = NO_WORD,
    [','] = NO_WORD,        ['-'] = NO_WORD,        ['`'] = NO_WORD,
};
static bool has_role(char c, uint8_t role)
{
    return !(c & 0x80) && (roles[(unsigned char)c] & role);
}
/* ------------------------------------------------------------------ tokens of a context */
/* Bytes of "--", "..", ". . ." or a longer one at p; 0: none. */
static size_t multi_mark(const char *p, const char *end)
{
    const char *q = p;
    if (end - p < 2 || (*p != '-' && *p != '.')) return 0;
    if (p[1] == *p) {
        while (q < end && *q == *p) q++;
        return (size_t)(q - p);
    }
    if (*p != '.') return 0;
    int pairs = 0;
    const char *stop = NULL;
    while (q < end && *q == '.') { /* (dot, white space) twice or more, then a dot */
        if (pairs >= 2) stop = q + 1;
        if (++q == end || !ifeval_is_space(ifeval_next(&q, end))) break;
        pairs++;
    }
    return stop ? (size_t)(stop - p) : 0;
}

/* Whether a word that reaches up to p ends there. */
static bool word_ends_at(const char *p, const char *end)
{
    if (p == end || has_role(*p, ENDS)) return true;
    if (!(*p & 0x80) && (ifeval_ascii_kinds[(unsigned char)*p] & IFEVAL_WORD)) return false;
    const char *q = p;
    return ifeval_is_space(ifeval_next(&q, end)) || multi_mark(p, end) > 0;
}

/* Writes v in lower case; returns the length, 0 when it does not fit. */
static size_t lower_into(char out[TYPE_MAX], ares_view v)
{
    size_t n = 0;
    for (const char *p = v.data, *end = p + v.len; p < end;) {
        if (n + 4 > TYPE_MAX) return 0;
        if (!(*p & 0x80))
            out[n++] = (char)(*p + (ifeval_is_upper((unsigned char)*p) ? 32 : 0)), p++;
        else n += ifeval_put(ifeval_to_lower(ifeval_next(&p, end)), out + n);
    }
    return n;
}

/* -?[.,]?\d[\d,.-]*, a final dot included */
static bool is_number(ares_view v)
{
    const char *p = v.data, *end = p + v.len;
    if (p < end && *p == '-') p++;
    if (p < end && (*p == '.' || *p == ',')) p++;
    if (p == end || !ifeval_is_digit(ifeval_next(&p, end))) return false;
    while (p < end)
        if (*p == ',' || *p == '.' || *p == '-') p++;
        else if (!ifeval_is_digit(ifeval_next(&p, end))) return false;
    return true;
}

/* Whether a word, given without its dot, or the part after its last dash is an abbreviation. */
static bool is_abbreviation(ares_view v)
{
    char type[TYPE_MAX];
    size_t n = lower_into(type, v);
    if (n && ifeval_set_find(&ifeval_abbreviations, type, n)) return true;
    const char *dash = memrchr(v.data, '-', v.len);
    if (!dash) return false;
    n = lower_into(type, (ares_view){ dash + 1, (size_t)(v.data + v.len - dash - 1) });
    return n && ifeval_set_find(&ifeval_abbreviations, type, n);
}

/* The type without its final dot. */
static ares_view bare_type(const token *t)
{
    size_t n = t->type_len;
    if (n > 1 && t->type[n - 1] == '.') n--;
    return (ares_view){ t->type, n };
}

/* The type by which a token after another is looked up. */
static ares_view next_type(const token *t)
{
    return t->breaks ? bare_type(t) : (ares_view){ t->type, t->type_len };
}

/* How Punkt's training texts spelled the token's type; 0: it is not known. */
static uint32_t orthography(const token *t)
{
    ares_view type = next_type(t);
    const ifeval_entry *e = ifeval_set_find(&ifeval_orthography, type.data, type.len);
    return e ? e->value : 0;
}

enum { NO, YES, UNKNOWN };
/* Whether the token's spelling says that it starts a sentence (Kiss and Strunk, section 4.1.1). */
static int starts_sentence(const token *t)
{
    uint32_t c = ifeval_first(t->text), seen = orthography(t);
    if (t->text.len == 1 && c && strchr(";:,.!?", (int)c)) return NO;
    if (ifeval_is_upper(c) && (seen & SEEN_LOWER) && !(seen & MID_UPPER)) return YES;
    if (ifeval_is_lower(c) && ((seen & SEEN_UPPER) || !(seen & START_LOWER))) return NO;
    return UNKNOWN;
}

/* Second pass: what the next token tells. */
static void judge(token *t, const token *next)
{
    if (t->text.data[t->text.len - 1] != '.') return;
    const char *p = t->text.data, *end = p + t->text.len;
    uint32_t first = ifeval_next(&p, end);
    /* a letter and a dot, as in J. Smith */
    bool initial = end - p == 1 && *p == '.' && ifeval_is_word(first) && !ifeval_is_digit(first),
         upper = ifeval_is_upper(ifeval_first(next->text));
    ares_view own = bare_type(t), type = next_type(next);
    if (own.len && type.len) {
        char pair[2 * TYPE_MAX]; /* words that occur side by side, with a blank between them */
        memcpy(pair, own.data, own.len);
        pair[own.len] = ' ';
        memcpy(pair + own.len + 1, type.data, type.len);
        if (ifeval_set_find(&ifeval_collocations, pair, own.len + 1 + type.len)) {
            t->breaks = false;
            return;
        }
    }
    if ((t->abbreviation || t->ellipsis) && !initial &&
        (starts_sentence(next) == YES ||
         (upper && ifeval_set_find(&ifeval_starters, type.data, type.len)))) {
        t->breaks = true;
        return;
    }
    if (!initial && !t->number) return;
    int starts = starts_sentence(next);
    if (starts == NO ||
        (starts == UNKNOWN && initial && upper && !(orthography(next) & SEEN_LOWER)))
        t->breaks = false;
}

/* Whether a sentence ends before the last token. */
static bool contains_break(ares_view context)
{
    token tokens[2], *last = NULL, *t = tokens;
    const char *p = context.data, *end = p + context.len;
    while (p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p)); /* no token crosses lines */
        if (!line_end) line_end = end;
        while (p < line_end) {
            const char *q = p;
            if (ifeval_is_space(ifeval_next(&q, line_end))) {
                p = q;
                continue;
            }
            const char *start = p, *stop = start; /* of the token: no white space stands here */
            size_t multi = multi_mark(start, line_end);
            if (multi) {
                stop += multi;
            } else {
                ifeval_next(&stop, line_end);
                /*
                 * as short as the reference's lazy match: up to the first end of a word, or to a
                 * comma before one
                 */
                if (!has_role(*start, NO_WORD))
                    while (!word_ends_at(stop, line_end) &&
                           !(*stop == ',' && word_ends_at(stop + 1, line_end)))
                        ifeval_next(&stop, line_end);
            }
            p = stop;
            /* first pass: what the token alone tells */
            ares_view text = (ares_view){ start, (size_t)(stop - start) };
            char mark = text.data[text.len - 1];
            t->text = text;
            t->breaks = t->abbreviation = t->ellipsis = false;
            t->number = is_number(text);
            if (t->number) t->type_len = strlen(strcpy(t->type, "##number##"));
            else t->type_len = lower_into(t->type, text);
            if (text.len == 1 && is_mark(mark)) {
                t->breaks = true;
            } else if (mark == '.') {
                if (text.data[text.len - 2] == '.') t->ellipsis = true;
                else if (is_abbreviation((ares_view){ text.data, text.len - 1 }))
                    t->abbreviation = true;
                else t->breaks = true;
            }
            if (last) {
                judge(last, t);
                if (last->breaks) return true;
            }
            last = t;
            t = t == tokens ? tokens + 1 : tokens;
        }
        p = line_end + (line_end < end);
    }
    return false;
}

/* ------------------------------------------------------------------ sentences */
typedef struct candidate {
    const char *start, *mark; /* its word, and the mark after it; NULL: none yet */
    const char *next, *stop;  /* where the next sentence would begin, and the end of the context */
} candidate;

typedef struct output {
    ares_view *items;
    int64_t n, cap;
    const char *from; /* where the open sentence begins */
    /* the last sentence found, which may still get closing characters from the next */
    ares_view held;
    bool holds;
    size_t taken; /* bytes of the held sentence that belong to the sentence before it */
} output;

static void push(output *o, ares_view v)
{
    if (o->n == o->cap) {
        o->cap = o->cap ? 2 * o->cap : 64;
        o->items = ares_realloc(o->items, (size_t)o->cap * sizeof *o->items);
    }
    o->items[o->n++] = v;
}

/*
 * Bytes of closing characters at the start of v, when white space, "--" or the end of the text
 * follows; *taken: with that white space.
 */
static size_t closers(ares_view v, size_t *taken)
{
    const char *p = v.data, *end = p + v.len;
    while (p < end && *p != 0 && strchr("\"')]}", *p)) p++;
    size_t n = (size_t)(p - v.data);
    const char *space = p;
    while (p < end) {
        const char *q = p;
        if (!ifeval_is_space(ifeval_next(&q, end))) break;
        p = q;
    }
    if (n == 0 || (p == space && p < end && !(end - p >= 2 && p[0] == '-' && p[1] == '-')))
        return 0;
    *taken = (size_t)(p - v.data);
    return n;
}

/*
 * Holds v back; the sentence held before is complete but for closing characters at the start of v.
 */
static void hold(output *o, ares_view v)
{
    if (o->holds) {
        ares_view s = { o->held.data + o->taken, o->held.len - o->taken };
        size_t n = closers(v, &o->taken);
        if (n) {
            push(o, (ares_view){ s.data, (size_t)(v.data + n - s.data) });
        } else {
            o->taken = 0;
            if (s.len) push(o, s);
        }
    }
    o->held = v;
    o->holds = true;
}

/* Ends a sentence at the candidate's mark where its context says so. */
static void examine(output *o, const candidate *c)
{
    if (!c->mark || !contains_break((ares_view){ c->start, (size_t)(c->stop - c->start) })) return;
    hold(o, (ares_view){ o->from, (size_t)(c->mark + 1 - o->from) });
    o->from = c->next;
}

/*
 * Whether the mark at p is a candidate: directly before punctuation, or before white space and
 * another word.
 */
static bool find_context(const char *p, const char *end, candidate *c)
{
    const char *q = p + 1;
    if (q == end) return false;
    if (has_role(*q, ENDS)) {
        c->next = q;
        c->stop = q + 1;
        return true;
    }
    const char *run = q;
    for (; q < end; run = q)
        if (!ifeval_is_space(ifeval_next(&q, end))) break;
    if (run == p + 1 || run == end) return false;
    c->next = run;
    for (; run < end; run = q) {
        q = run;
        if (ifeval_is_space(ifeval_next(&q, end))) break;
    }
    c->stop = run;
    return true;
}

ifeval_list ifeval_sentences(ares_view text, ares_arena *arena)
{
    ares_view trimmed = ifeval_trim_right(text);
    const char *end = text.data + text.len;
    output o = { .from = text.data };
    candidate last = { .start = text.data };
    const char *stop = text.data; /* the mark of the last candidate */
    for (const char *p = text.data; p < end; p++) {
        candidate c = { .mark = p };
        if (!is_mark(*p) || !find_context(p, end, &c)) continue;
        const char *space = p; /* the last ASCII white space after the last mark */
        while (space > stop + 1 && !(space[-1] == ' ' || (space[-1] >= '\t' && space[-1] <= '\r')))
            space--;
        c.start = space > stop + 1 ? space : last.start;
        if (stop <= c.start) examine(&o, &last);
        last = c;
        stop = p;
    }
    examine(&o, &last);
    const char *tail = trimmed.data + trimmed.len;
    hold(&o, (ares_view){ o.from, tail > o.from ? (size_t)(tail - o.from) : 0 });
    if (o.held.len > o.taken) push(&o, (ares_view){ o.held.data + o.taken, o.held.len - o.taken });
    ifeval_list list = { ares_arena_alloc(arena, (size_t)ARES_MAX(o.n, 1) * sizeof(ares_view)),
                         o.n };
    if (o.n) memcpy(list.items, o.items, (size_t)o.n * sizeof(ares_view));
    ares_free(o.items);
    return list;
}

/*
 * The language of a text: by the script of most of its letters, and where several languages share
 * the script, by whose frequent words and own letters occur most (ties: the first of the list). The
 * reference's langdetect is an n-gram classifier with random seeds; the two agree on plain texts,
 * not on short or mixed ones.
 */

enum {
    HANGUL = IFEVAL_LANGUAGE_SCRIPTS,
    KANA,
    HAN,
    THAI,
    BENGALI,
    TAMIL,
    TELUGU,
    KANNADA,
    MALAYALAM,
    GUJARATI,
    GURMUKHI,
    HEBREW,
    GREEK,
    SCRIPTS
};
static const char *const only_language[SCRIPTS] = {
    [HANGUL] = "ko",   [KANA] = "ja",   [HAN] = "zh",     [THAI] = "th",      [BENGALI] = "bn",
    [TAMIL] = "ta",    [TELUGU] = "te", [KANNADA] = "kn", [MALAYALAM] = "ml", [GUJARATI] = "gu",
    [GURMUKHI] = "pa", [HEBREW] = "he", [GREEK] = "el"
};

static const struct {
    uint32_t first, last;
    int script;
} blocks[] = {
    /* by code point */
    { 0x41, 0x24f, IFEVAL_LATIN },
    { 0x250, 0x2af, IFEVAL_LATIN },
    { 0x370, 0x3ff, GREEK },
    { 0x400, 0x52f, IFEVAL_CYRILLIC },
    { 0x590, 0x5ff, HEBREW },
    { 0x600, 0x6ff, IFEVAL_ARABIC },
    { 0x750, 0x77f, IFEVAL_ARABIC },
    { 0x8a0, 0x8ff, IFEVAL_ARABIC },
    { 0x900, 0x97f, IFEVAL_DEVANAGARI },
    { 0x980, 0x9ff, BENGALI },
    { 0xa00, 0xa7f, GURMUKHI },
    { 0xa80, 0xaff, GUJARATI },
    { 0xb80, 0xbff, TAMIL },
    { 0xc00, 0xc7f, TELUGU },
    { 0xc80, 0xcff, KANNADA },
    { 0xd00, 0xd7f, MALAYALAM },
    { 0xe00, 0xe7f, THAI },
    { 0x1100, 0x11ff, HANGUL },
    { 0x1e00, 0x1eff, IFEVAL_LATIN },
    { 0x1f00, 0x1fff, GREEK },
    { 0x3040, 0x30ff, KANA },
    { 0x3130, 0x318f, HANGUL },
    { 0x3400, 0x4dbf, HAN },
    { 0x4e00, 0x9fff, HAN },
    { 0xa960, 0xa97f, HANGUL },
    { 0xac00, 0xd7ff, HANGUL },
    { 0xf900, 0xfaff, HAN },
    { 0xfb1d, 0xfb4f, HEBREW },
    { 0xfb50, 0xfdff, IFEVAL_ARABIC },
    { 0xfe70, 0xfeff, IFEVAL_ARABIC },
    { 0xff21, 0xff5a, IFEVAL_LATIN },
    { 0xff66, 0xff9d, KANA },
    { 0x20000, 0x323af, HAN },
};

/* One point for each language of the mask. */
static void count(int64_t *scores, uint32_t languages)
{
    for (; languages; languages &= languages - 1) scores[__builtin_ctz(languages)]++;
}

const char *ifeval_language(ares_view text)
{
    enum { LONGEST = 48 };
    int64_t letters[SCRIPTS] = { 0 }, scores[32] = { 0 };
    char word[LONGEST];
    size_t len = 0;
    for (const char *p = text.data, *end = p + text.len;;) {
        uint32_t c = p < end ? ifeval_to_lower(ifeval_next(&p, end)) : 0;
        if (c >= 'a' && c <= 'z') { /* the most frequent case */
            if (len < LONGEST) word[len] = (char)c;
            len++;
            letters[IFEVAL_LATIN]++;
            continue;
        }
        bool letter = ifeval_is_letter(c), mark = false;
        if (!letter && c >= 0x300 && c < IFEVAL_BROKEN) { /* Indian scripts spell with marks */
            utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
            mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC;
        }
        if (letter || mark) {
            char bytes[4];
            size_t n = ifeval_put(c, bytes);
            if (len + n <= LONGEST) memcpy(word + len, bytes, n);
            len += n;                               /* longer than LONGEST: in no list */
            int low = 0, high = ARES_COUNT(blocks); /* the block that ends at c or after it */
            while (low < high) {
                int middle = (low + high) / 2;
                if (c > blocks[middle].last) low = middle + 1;
                else high = middle;
            }
            if (letter && low < ARES_COUNT(blocks) && c >= blocks[low].first)
                letters[blocks[low].script]++;
            const ifeval_entry *e = ifeval_set_find(&ifeval_language_letters, bytes, n);
            if (e) count(scores, e->value);
            continue;
        }
        const ifeval_entry *e =
            len <= LONGEST ? ifeval_set_find(&ifeval_language_words, word, len) : NULL;
        if (e) count(scores, e->value);
        len = 0;
        if (c == 0 && p == end) break;
    }
    if (letters[KANA] * 20 >= letters[HAN] + letters[KANA])
        letters[KANA] += letters[HAN], letters[HAN] = 0;
    int script = 0;
    for (int s = 1; s < SCRIPTS; s++)
        if (letters[s] > letters[script]) script = s;
    if (letters[script] == 0) return NULL;
    if (script >= IFEVAL_LANGUAGE_SCRIPTS) return only_language[script];
    uint32_t best = ifeval_script_languages[script].first,
             last = best + ifeval_script_languages[script].count;
    for (uint32_t i = best + 1; i < last; i++)
        if (scores[i] > scores[best]) best = i;
    return ifeval_language_codes[best];
}

/*
 * Syllables by SyllaPy's rules (runs of vowels, and a list of exceptions), and whether a text
 * begins with a verb.
 */

enum { SHORT = 32 }; /* bytes: no word of the tables is longer */

/* Writes an ASCII word in lower case; returns its length, 0 when it is too long or not ASCII. */
static size_t small(char out[SHORT], ares_view v)
{
    if (v.len > SHORT) return 0;
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] & 0x80) return 0;
        out[i] = (char)ifeval_to_lower((unsigned char)v.data[i]);
    }
    return v.len;
}

static bool is_vowel(char c)
{
    return c != 0 && strchr("aeiouyAEIOUY", c) != NULL;
}

int ifeval_syllables(ares_view word)
{
    int sum = 0;
    const char *line = NULL; /* the rest of a compound ends with its line */
    for (;;) {               /* one turn per part of a compound: first-rest */
        word = ifeval_trim(word);
        while (word.len && ifeval_is_punct((unsigned char)word.data[0])) word.data++, word.len--;
        while (word.len && ifeval_is_punct((unsigned char)word.data[word.len - 1])) word.len--;
        if (word.len == 0) return 0;
        if (sum == 0)
            for (const char *p = word.data, *end = p + word.len; p < end;)
                if (ifeval_is_digit(ifeval_next(&p, end))) return 0;
        char key[SHORT];
        const ifeval_entry *e = ifeval_set_find(&ifeval_syllable_counts, key, small(key, word));
        if (e) return sum + (int)e->value;
        const char *dash = memchr(word.data, '-', word.len);
        /* the word ends in no punctuation, so dash[1] is part of it */
        if (!dash || dash[1] == '\n') {
            /* in no table: the runs of vowels; a final e is silent except in -le after a consonant
             */
            int64_t n = 0;
            for (size_t i = 0; i < word.len; i++)
                n += is_vowel(word.data[i]) && (i == 0 || !is_vowel(word.data[i - 1]));
            if ((word.data[word.len - 1] | 32) == 'e') {
                n--;
                n += word.len > 2 && (word.data[word.len - 2] | 32) == 'l' &&
                     !is_vowel(word.data[word.len - 3]);
            }
            return sum + (int)ARES_MAX(n, 1);
        }
        int first = ifeval_syllables((ares_view){ word.data, (size_t)(dash - word.data) });
        if (first == 0) return 0;
        sum += first;
        ares_view rest = { dash + 1, (size_t)(word.data + word.len - dash - 1) };
        if (!line && (line = memchr(rest.data, '\n', rest.len)))
            rest.len = (size_t)(line - rest.data);
        if (!line) line = rest.data + rest.len;
        word = rest;
    }
}

bool ifeval_is_verb(ares_view text)
{
    char word[SHORT];
    size_t n = small(word, ifeval_next_run(&text));
    if (ifeval_table_has(IFEVAL_VERBS, (ares_view){ word, n })) return true;
    return n >= 5 && memcmp(word + n - 3, "ing", 3) == 0 &&
           !ifeval_set_find(&ifeval_not_verbs, word, n);
}
