/*
 * Word tokens as NLTK 3.8's word_tokenize makes them. The reference rewrites each sentence by the
 * substitutions of NLTKWordTokenizer and splits the result at white space; numbers in comments
 * count the substitutions in their order there, from 1. Except for the one of the last period, no
 * substitution looks further than one character of white space, so a sentence is taken in chunks
 * between white space: a chunk of ASCII without quotation marks is cut where it stands, any other
 * is rewritten.
 */
#include <string.h>

#include "words.h"

typedef struct work {
    ares_str text, spare;
    uint64_t ascii[2]; /* a bit for each ASCII character that the chunk has */
    bool wide;         /* it has other characters */
} work;

/* Whether the chunk has any of these ASCII characters. */
static bool holds(const work *w, const char *any)
{
    for (; *any; any++)
        if (w->ascii[*any >> 6] >> (*any & 63) & 1) return true;
    return false;
}

/*
 * A pass reads text and writes spare, which has room for four bytes per byte: no substitution
 * writes more.
 */
static char *begin(work *w)
{
    ares_str_reserve(&w->spare, 4 * w->text.len + 16);
    return w->spare.data;
}

/* Ends a pass that wrote up to `at`: spare is the text now, and the old text is the next spare. */
static void finish(work *w, char *at)
{
    ares_str done = w->spare;
    done.len = (size_t)(at - done.data);
    w->spare = w->text;
    w->text = done;
}

static char *put(char *at, const char *p, size_t n)
{
    memcpy(at, p, n);
    return at + n;
}

/* Writes the piece with a blank on both sides; returns the new end. */
static char *pad(char *at, const char *p, size_t n)
{
    *at++ = ' ';
    at = put(at, p, n);
    *at++ = ' ';
    return at;
}

/* Puts blanks around each of these characters. */
static void pad_each(work *w, const char *set)
{
    if (!holds(w, set)) return;
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    for (; p < end; p++) {
        if (*p && strchr(set, *p)) at = pad(at, p, 1);
        else *at++ = *p;
    }
    finish(w, at);
}

/* Puts blanks around each run of at least `least` of c, or around each pair of them. */
static void pad_runs(work *w, char c, size_t least, bool pairs)
{
    char name[2] = { c, 0 };
    if (!holds(w, name)) return;
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    while (p < end) {
        size_t n = 0;
        while (p + n < end && p[n] == c && !(pairs && n == 2)) n++;
        if (n && n >= least) at = pad(at, p, n);
        else at = put(at, p, n ? n : (n = 1));
        p += n;
    }
    finish(w, at);
}

/* Bytes of an opening (« “ ‘ „) or closing (» ” ’) quotation mark at p; 0: none. */
static size_t wide_quote(const char *p, const char *end, bool closing)
{
    const unsigned char *u = (const unsigned char *)p;
    if (end - p >= 2 && u[0] == 0xc2) return u[1] == (closing ? 0xbb : 0xab) ? 2 : 0;
    if (end - p < 3 || u[0] != 0xe2 || u[1] != 0x80) return 0;
    if (closing) return u[2] == 0x9d || u[2] == 0x99 ? 3 : 0;
    return u[2] == 0x9c || u[2] == 0x98 || u[2] == 0x9e ? 3 : 0;
}

/* 1, 18: blanks around quotation marks beyond ASCII. */
static void pad_wide_quotes(work *w, bool closing)
{
    if (!w->wide) return;
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    while (p < end) {
        size_t n = wide_quote(p, end, closing);
        if (n) at = pad(at, p, n);
        else *at++ = *p, n = 1;
        p += n;
    }
    finish(w, at);
}

/* 2 to 4: quotation marks that open. */
static void open_quotes(work *w, bool at_start)
{
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    if (at_start && p < end && *p == '"') {
        at = put(at, "``", 2);
        finish(w, put(at, p + 1, w->text.len - 1));
        w->ascii['`' >> 6] |= 1ull << ('`' & 63);
    }
    pad_runs(w, '`', 2, true); /* 3 */
    p = w->text.data;
    end = p + w->text.len;
    at = begin(w);
    while (p < end) {
        *at++ = *p;
        if (!*p || !strchr(" ([{<", *p)) {
            p++;
            continue;
        }
        size_t n = end - p >= 2 && p[1] == '"'                    ? 1
                   : end - p >= 3 && p[1] == '\'' && p[2] == '\'' ? 2
                                                                  : 0;
        if (n) at = put(at, " `` ", 4);
        p += 1 + n;
    }
    finish(w, at);
}

/* 5: an apostrophe before a single word character, as in 'a but not in 's. */
static void split_apostrophes(work *w)
{
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    while (p < end) {
        *at++ = *p;
        if (*p++ != '\'' || p == end) continue;
        const char *q = p, *r;
        uint32_t c = ifeval_next(&q, end);
        r = q;
        /* long s folds to s */
        if (!ifeval_is_word(c) || (c < 0x80 && memchr("mtsdnMTSDN", (int)c, 10)) || c == 0x17f)
            continue;
        if (q < end && ifeval_is_word(ifeval_next(&r, end))) continue;
        *at++ = ' ';
        at = put(at, p, (size_t)(q - p));
        p = q;
    }
    finish(w, at);
}

/*
 * The period that ends v: not after another period, and followed only by closing characters and
 * white space. *stop: the end of the closing characters.
 */
static const char *last_period(ares_view v, bool first, const char **stop)
{
    const char *p = v.data + v.len;
    ares_view rest = ifeval_trim_right(v);
    *stop = p = rest.data + rest.len;
    for (; p > v.data && p[-1] != '.'; p--) {
        if (memchr("])}>\"'", p[-1], 6) || (first && p[-1] == ' ')) continue;
        size_t wide = !first                                               ? 0
                      : p - v.data >= 2 && wide_quote(p - 2, p, true) == 2 ? 2
                      : p - v.data >= 3 && wide_quote(p - 3, p, true) == 3 ? 3
                                                                           : 0;
        if (wide == 0) return NULL;
        p -= wide - 1;
    }
    return p - v.data < 2 || p[-2] == '.' ? NULL : p - 1;
}

/* 6, 11: the last period and the closing characters after it. */
static void split_period(work *w, bool first)
{
    ares_view v = ares_str_view(&w->text);
    const char *stop, *end = v.data + v.len, *dot = last_period(v, first, &stop);
    if (!dot) return;
    if (first) /* blanks that were trimmed count as closing characters */
        while (stop < end && *stop == ' ') stop++;
    char *at = put(begin(w), v.data, (size_t)(dot - v.data));
    at = put(at, " .", 2);
    if (first) *at++ = ' ';
    at = put(at, dot + 1, (size_t)(stop - dot - 1));
    *at++ = ' ';
    finish(w, at);
}

/* 7, 8: colons and commas, except before a digit: "a,b" -> "a , b", and "1,234" stays. */
static void split_commas(work *w)
{
    if (!holds(w, ":,")) return;
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    while (p < end) {
        if (*p != ':' && *p != ',') {
            *at++ = *p++;
            continue;
        }
        const char *q = p + 1;
        if (q < end && ifeval_is_digit(ifeval_next(&q, end))) {
            *at++ = *p++;
            continue;
        }
        at = pad(at, p, 1);
        /*
         * the next character belongs to the match, and is matched again only at the end of the text
         */
        if (p + 1 < end) {
            bool last = q == end && (p[1] == ':' || p[1] == ',');
            at = last ? pad(at, p + 1, 1) : put(at, p + 1, (size_t)(q - p - 1));
        }
        p = q;
    }
    finish(w, at);
}

/* 13: an apostrophe that closes, not after another one, and before a blank: "dogs' " -> "dogs ' ".
 */
static void split_closing_apostrophes(work *w)
{
    const char *p = w->text.data, *end = p + w->text.len, *free_from = p;
    char *at = begin(w);
    for (; p < end; p++) {
        if (*p == '\'' && p > free_from && p[-1] != '\'' && p + 1 < end && p[1] == ' ') {
            *at++ = ' ';
            free_from = p + 2;
        }
        *at++ = *p;
    }
    finish(w, at);
}

/* 18, without the closing marks beyond ASCII: pairs of apostrophes, then double quotes. */
static void close_quotes(work *w)
{
    pad_runs(w, '\'', 2, true);
    if (!holds(w, "\"")) return;
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    for (; p < end; p++) {
        if (*p == '"') at = put(at, " '' ", 4);
        else *at++ = *p;
    }
    finish(w, at);
}

/* 19: 's 'm 'd ' before a blank, then 'll 're 've n't: "don't " -> "do n't ". */
static void split_clitics(work *w)
{
    const char *start = w->text.data, *p = start, *end = p + w->text.len;
    char *at = begin(w);
    for (; p < end; p++) {
        if (*p == '\'' && p > start && p[-1] != '\'' && p[-1] != ' ' &&
            ((end - p >= 2 && p[1] == ' ') ||
             (end - p >= 3 && p[1] && strchr("sSmMdD", p[1]) && p[2] == ' ')))
            *at++ = ' ';
        *at++ = *p;
    }
    finish(w, at);
    start = p = w->text.data;
    end = p + w->text.len;
    at = begin(w);
    for (; p < end; p++) {
        if ((*p == '\'' || *p == 'n' || *p == 'N') && p > start && p[-1] != '\'' && p[-1] != ' ') {
            static const char clitics[8][5] = { "'ll ", "'LL ", "'re ", "'RE ",
                                                "'ve ", "'VE ", "n't ", "N'T " };
            for (int i = 0; i < 8; i++)
                if (end - p >= 4 && memcmp(p, clitics[i], 4) == 0) *at++ = ' ';
        }
        *at++ = *p;
    }
    finish(w, at);
}

/* Whether the word stands at p in any case. */
static bool is_near(const char *p, const char *end, const char *word, size_t n)
{
    return (size_t)(end - p) >= n && strncasecmp(p, word, n) == 0;
}

/* \b after a word character. */
static bool ends_word(const char *p, const char *end)
{
    return p == end || !ifeval_is_word(ifeval_next(&p, end));
}

/*
 * 20: words that are two tokens, as can|not. Length of the first token of such a word at p, where a
 * word begins; 0: none. *whole: length of the word.
 */
static size_t two_words(const char *p, const char *end, size_t *whole)
{
    static const struct {
        char text[8];
        uint8_t whole, first;
    } words[] = { { "cannot", 6, 3 }, { "d'ye", 4, 1 },  { "gimme", 5, 3 },  { "gonna", 5, 3 },
                  { "gotta", 5, 3 },  { "lemme", 5, 3 }, { "more'n", 6, 4 }, { "wanna", 5, 3 } };
    for (int i = 0; i < ARES_COUNT(words); i++) {
        if (!is_near(p, end, words[i].text, words[i].whole) || !ends_word(p + words[i].whole, end))
            continue;
        const char *behind = p + (*whole = words[i].whole);
        if (words[i].text[0] == 'w' && behind < end && !ifeval_is_space(ifeval_next(&behind, end)))
            continue;
        return words[i].first;
    }
    return 0;
}

/* 17, 20: a blank in front, then words of two tokens wherever a word begins. */
static void split_contractions(work *w)
{
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    bool inside = false; /* a word */
    *at++ = ' ';         /* 17 */
    while (p < end) {
        unsigned char c = (unsigned char)*p;
        size_t whole, first;
        if (!inside && c < 0x80 && (ifeval_ascii_kinds[c] & IFEVAL_LETTER) &&
            memchr("cdglmw", c | 32, 6) && (first = two_words(p, end, &whole))) {
            at = pad(at, p, first);
            at = put(at, p + first, whole - first);
            *at++ = ' ';
            p += whole;
            continue;
        }
        const char *q = p;
        inside = ifeval_is_word(ifeval_next(&q, end));
        do *at++ = *p++;
        while (p < q);
    }
    finish(w, at);
}

/* 't|is, and 't|was after it: the blank that the first leaves counts for the second. */
static void split_tis(work *w, const char *word, size_t n)
{
    const char *p = w->text.data, *end = p + w->text.len;
    char *at = begin(w);
    while (p < end) {
        if (*p != ' ' || !is_near(p, end, word, n) || !ends_word(p + n, end)) {
            *at++ = *p++;
            continue;
        }
        at = pad(at, p + 1, 2);
        at = put(at, p + 3, n - 3);
        *at++ = ' ';
        p += n;
    }
    finish(w, at);
}

/* place of a chunk: it starts its sentence, it ends it */
enum { STARTS = 1, ENDS = 2 };

/* ------------------------------------------------------------------ chunks */
typedef struct output {
    ares_view *items;
    int64_t n, cap;
    ares_arena *arena;
    work w;
} output;

static void push(output *o, const char *p, const char *end)
{
    if (p == end) return;
    if (o->n == o->cap) {
        o->cap = o->cap ? 2 * o->cap : 256;
        o->items = ares_realloc(o->items, (size_t)o->cap * sizeof *o->items);
    }
    o->items[o->n++] = (ares_view){ p, (size_t)(end - p) };
}

enum {
    ALONE = 1, /* a token of its own */
    HARD = 2,  /* a quotation mark or a character beyond ASCII: its chunk is rewritten */
    WORD = 4,
    LEADS = 8,  /* a letter that a word of two tokens may begin with */
    JOINS = 16, /* a token or not, depending on its neighbours */
    PLAIN = 32  /* part of whatever stands around it */
};
static const uint8_t kinds[256] = {
    [0 ... ' '] = PLAIN,
    ['+'] = PLAIN,
    ['/'] = PLAIN,
    ['='] = PLAIN,
    ['\\'] = PLAIN,
    ['^'] = PLAIN,
    ['|'] = PLAIN,
    ['~' ... 0x7f] = PLAIN,
    ['!'] = ALONE,
    ['"'] = HARD,
    ['#' ... '&'] = ALONE,
    ['\''] = HARD,
    ['(' ... '*'] = ALONE,
    [','] = JOINS,
    ['-' ... '.'] = JOINS,
    ['0' ... '9'] = WORD,
    [':'] = JOINS,
    [';' ... '<'] = ALONE,
    ['>' ... '@'] = ALONE,
    ['A' ... 'B'] = WORD,
    ['C' ... 'D'] = WORD | LEADS,
    ['E' ... 'F'] = WORD,
    ['G'] = WORD | LEADS,
    ['H' ... 'K'] = WORD,
    ['L' ... 'M'] = WORD | LEADS,
    ['N' ... 'V'] = WORD,
    ['W'] = WORD | LEADS,
    ['X' ... 'Z'] = WORD,
    ['['] = ALONE,
    [']'] = ALONE,
    ['_'] = WORD,
    ['`'] = HARD,
    ['a' ... 'b'] = WORD,
    ['c' ... 'd'] = WORD | LEADS,
    ['e' ... 'f'] = WORD,
    ['g'] = WORD | LEADS,
    ['h' ... 'k'] = WORD,
    ['l' ... 'm'] = WORD | LEADS,
    ['n' ... 'v'] = WORD,
    ['w'] = WORD | LEADS,
    ['x' ... 'z'] = WORD,
    ['{'] = ALONE,
    ['}'] = ALONE,
    [0x80 ... 0xff] = HARD,
};
static uint8_t kind_of(char c)
{
    return kinds[(unsigned char)c];
}

/* Bytes of a mark at p that is a token of its own; 0: none. */
static size_t mark_at(const char *p, const char *end, const char *dot)
{
    uint8_t kind = kind_of(*p);
    if (kind & ALONE) return 1;
    if (!(kind & JOINS)) return 0;
    if (*p == ':' || *p == ',') return p + 1 == end || !(p[1] >= '0' && p[1] <= '9');
    size_t n = 1;
    while (p + n < end && p[n] == *p && !(*p == '-' && n == 2)) n++;
    return n >= 2 ? n : p == dot;
}

/* A chunk of ASCII without quotation marks; `dot` is the period that ends the sentence, or NULL. */
static void cut(output *o, const char *p, const char *end, const char *dot)
{
    const char *from = p, *start = p;
    while (p < end) {
        size_t mark = mark_at(p, end, dot), first = 0, whole = 0;
        if (!mark && (kind_of(*p) & LEADS) && (p == start || !(kind_of(p[-1]) & WORD))) {
            /* where a mark follows wanna, the reference has already put a blank before it */
            const char *stop = end - p > 5 && mark_at(p + 5, end, dot) ? p + 5 : end;
            first = two_words(p, stop, &whole);
        }
        if (mark) {
            bool comma = *p == ':' || *p == ',';
            push(o, from, p);
            push(o, p, p + mark);
            p = from = p + mark;
            /* 7: the next character belongs to the match */
            if (comma && p < end && (*p == ':' || *p == ',')) p++;
        } else if (first) {
            push(o, from, p);
            push(o, p, p + first);
            push(o, p + first, p + whole);
            p = from = p + whole;
        } else {
            p++;
        }
    }
    push(o, from, end);
}

/* Any chunk, or several; their tokens live in the arena. */
static void cut_rewritten(output *o, ares_view chunk, int place)
{
    work *w = &o->w;
    /* rewrites the chunk, given with the white space on both sides */
    ares_str_clear(&w->text);
    ares_str_add_view(&w->text, chunk);
    /* what the chunk has: a pass without its characters is skipped */
    w->ascii[0] = w->ascii[1] = 0;
    w->wide = false;
    for (size_t i = 0; i < chunk.len; i++) {
        unsigned char c = (unsigned char)chunk.data[i];
        if (c < 0x80) w->ascii[c >> 6] |= 1ull << (c & 63);
        else w->wide = true;
    }
    bool apostrophe = holds(w, "'"), quote = holds(w, "\"`");
    pad_wide_quotes(w, false);
    pad_runs(w, '`', 1, false);
    if (quote || apostrophe) open_quotes(w, place & STARTS);
    if (apostrophe) split_apostrophes(w);
    if (place & ENDS) split_period(w, true);
    split_commas(w);
    pad_runs(w, '.', 2, false);
    pad_each(w, ";@#$%&");
    if (place & ENDS) split_period(w, false);
    pad_each(w, "?!");
    if (apostrophe) split_closing_apostrophes(w);
    pad_each(w, "*][(){}<>");
    pad_runs(w, '-', 2, true);
    /* 17: a blank at both ends; the one in front matters only to the last rule */
    ares_str_add_char(&w->text, ' ');
    pad_wide_quotes(w, true);
    if (quote || apostrophe) close_quotes(w);
    if (apostrophe) split_clitics(w);
    split_contractions(w);
    if (apostrophe && holds(w, "tT")) {
        split_tis(w, " 'tis", 5);
        split_tis(w, " 'twas", 6);
    }
    const char *p = ares_arena_copy(o->arena, w->text.data, w->text.len), *end = p + w->text.len,
               *start = NULL;
    while (p < end) {
        const char *at = p;
        bool space = ifeval_is_space(ifeval_next(&p, end));
        if (!space && !start) start = at;
        if (!space || !start) continue;
        push(o, start, at);
        start = NULL;
    }
    if (start) push(o, start, end);
}

/* Cuts at white space; most chunks are cut where they stand, the rest is rewritten first. */
static void cut_sentence(output *o, ares_view sentence)
{
    const char *start = sentence.data, *p = start, *end = p + sentence.len, *before = p, *stop;
    const char *dot = last_period(sentence, true, &stop);
    while (p < end) {
        const char *chunk = p, *q = p;
        uint8_t all = 0;
        for (; p < end; p = q) { /* up to the white space after the chunk */
            q = p + 1;
            if ((unsigned char)*p < 0x80 ? ifeval_is_space((unsigned char)*p)
                                         : (q = p, ifeval_is_space(ifeval_next(&q, end))))
                break;
            all |= kind_of(*p);
        }
        if (p == chunk) {
            before = p;
            p = q;
            continue;
        }
        /* the closing characters of the sentence may be several chunks; they go in one piece */
        const char *hard = dot && dot < p ? chunk : end;
        while (hard < end && !(kind_of(*hard) & HARD)) hard++;
        if (hard < end) {
            cut_rewritten(o, (ares_view){ before, (size_t)(end - before) },
                          (chunk == start ? STARTS : 0) | ENDS);
            return;
        }
        if (!(all & ~(WORD | LEADS)) && !(kind_of(*chunk) & LEADS)) push(o, chunk, p);
        else if (all & HARD)
            cut_rewritten(o, (ares_view){ before, (size_t)(q - before) },
                          (chunk == start ? STARTS : 0) | (p == end ? ENDS : 0));
        else cut(o, chunk, p, dot);
    }
}

ifeval_list ifeval_tokens(ares_view text, ares_arena *arena)
{
    output o = { .arena = arena };
    ares_arena scratch = { 0 };
    ifeval_list sentences = ifeval_sentences(text, &scratch);
    for (int64_t i = 0; i < sentences.n; i++) cut_sentence(&o, sentences.items[i]);
    ares_arena_fini(&scratch);
    ares_str_fini(&o.w.text);
    ares_str_fini(&o.w.spare);
    ifeval_list list = { ares_arena_alloc(arena, (size_t)ARES_MAX(o.n, 1) * sizeof(ares_view)),
                         o.n };
    if (o.n) memcpy(list.items, o.items, (size_t)o.n * sizeof(ares_view));
    ares_free(o.items);
    return list;
}
