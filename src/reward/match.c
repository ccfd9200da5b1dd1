/*
 * Verifiers that compare texts: exact, number, boxed, f1, regex, random and none, one after the
 * other. Finding the last number or the last \boxed{} of a text stands after `exact`.
 */
#include "ifeval/words.h"
#include "verifier.h"

#include <string.h>

#include "ares/grade.h"

/* The response equals the ground truth, apart from white space around both. */

#define EXACT_OPTIONS(X) \
    X(flag, ignore_case, "ignore_case", "false", "", "ASCII letters match in either case")
ARES_OPTION_STRUCT(exact_options, EXACT_OPTIONS);
static ARES_OPTION_TABLE(exact_table, exact_options, EXACT_OPTIONS);

static unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

static int exact(const ares_verify_in *in, ares_verify_out *out)
{
    const exact_options *o = in->options;
    ares_view a = ares_view_trim(in->response), b = ares_view_trim(in->ground_truth);
    bool same = a.len == b.len;
    for (size_t i = 0; same && i < a.len; i++) {
        unsigned char x = (unsigned char)a.data[i], y = (unsigned char)b.data[i];
        same = o->ignore_case ? lower(x) == lower(y) : x == y;
    }
    out->score = out->accuracy = same;
    return ARES_OK;
}

const ares_verifier ares_verifier_exact = {
    .name = "exact",
    .doc = "the response equals the ground truth",
    .options = exact_table,
    .options_size = sizeof(exact_options),
    .verify = exact,
    .right = 1,
};

/* Exact by construction: numbers are compared as normalised text, never as floating point. */

/*
 * A decimal number in one spelling per value: sign, digits, point; without thousands separators,
 * leading zeros and trailing zeros of the fraction.
 */
typedef struct grade_number {
    char text[128];
} grade_number;

/*
 * Normalises the number that begins at s[0] (digits, separators, point) and returns the bytes read;
 * 0 when it is too long to keep.
 */
static size_t scan(const char *s, size_t n, bool negative, grade_number *out)
{
    size_t i = 0, w = 0;
    char whole[120];
    size_t digits = 0;
    /* 1,234,567: a comma before every three digits, one to three before the first */
    bool grouped = false;
    for (; i < n; i++) {
        if (ares_is_digit(s[i])) {
            /* leading zeros */
            if (digits == 0 && s[i] == '0' && i + 1 < n && ares_is_digit(s[i + 1])) continue;
            if (digits == sizeof whole) return 0;
            whole[digits++] = s[i];
        } else if (!(s[i] == ',' && i > 0 && (grouped || i <= 3) && i + 3 < n &&
                     ares_is_digit(s[i - 1]) && ares_is_digit(s[i + 1]) &&
                     ares_is_digit(s[i + 2]) && ares_is_digit(s[i + 3]) &&
                     (i + 4 >= n || !ares_is_digit(s[i + 4]))))
            break;
        else grouped = true;
    }
    size_t fraction = 0, from = i + 1;
    if (i + 1 < n && s[i] == '.' && ares_is_digit(s[i + 1])) {
        i++;
        while (i < n && ares_is_digit(s[i])) i++;
        fraction = i - from;
        while (fraction && s[from + fraction - 1] == '0') fraction--;
    }
    if (digits + fraction + 3 > sizeof out->text) return 0;
    while (digits > 1 && whole[0] == '0') memmove(whole, whole + 1, --digits);
    if (digits == 0) whole[digits++] = '0';
    bool zero = digits == 1 && whole[0] == '0' && fraction == 0;
    if (negative && !zero) out->text[w++] = '-';
    memcpy(out->text + w, whole, digits);
    w += digits;
    if (fraction) {
        out->text[w++] = '.';
        memcpy(out->text + w, s + from, fraction);
        w += fraction;
    }
    out->text[w] = 0;
    return i;
}

/*
 * Whether a number begins at i: a digit, or a point before one. The sign before it is read
 * separately.
 */
static bool starts(ares_view t, size_t i)
{
    return ares_is_digit(t.data[i]) ||
           (t.data[i] == '.' && i + 1 < t.len && ares_is_digit(t.data[i + 1]) &&
            (i == 0 || !ares_is_digit(t.data[i - 1])));
}

/*
 * A minus (ASCII or U+2212) belongs to the number unless it stands between two operands, as in
 * "7-2" or "7 - 2".
 */
static bool negative_before(ares_view t, size_t i)
{
    while (i && (t.data[i - 1] == '$')) i--;
    size_t sign;
    if (i >= 1 && t.data[i - 1] == '-') sign = i - 1;
    else if (i >= 3 && memcmp(t.data + i - 3, "\xe2\x88\x92", 3) == 0) sign = i - 3;
    else return false;
    return sign == 0 || (!ares_is_digit(t.data[sign - 1]) && t.data[sign - 1] != ')');
}

/*
 * The last number of a text ("-1,234.50" and "$7" are numbers; "3.2.1" is read as its pieces);
 * false when there is none, or it is too long.
 */
static bool grade_last_number(ares_view t, grade_number *out)
{
    bool found = false;
    grade_number candidate;
    for (size_t i = 0; i < t.len;) {
        if (!starts(t, i)) {
            i++;
            continue;
        }
        size_t used = scan(t.data + i, t.len - i, negative_before(t, i), &candidate);
        found = used > 0;
        if (found) *out = candidate;
        if (!used) /* skip the rest of the number that is too long */
            while (i < t.len && (ares_is_digit(t.data[i]) || t.data[i] == ',' || t.data[i] == '.'))
                i++;
        i += used;
    }
    return found;
}

/* The whole text as one number. */
static bool grade_whole_number(ares_view t, grade_number *out)
{
    t = ares_view_trim(t);
    bool wide = ares_view_starts(t, ARES_VIEW("\xe2\x88\x92")),
         negative = wide || (t.len && t.data[0] == '-');
    if (wide) t = (ares_view){ t.data + 3, t.len - 3 };
    else if (t.len && (t.data[0] == '-' || t.data[0] == '+'))
        t = (ares_view){ t.data + 1, t.len - 1 };
    if (t.len && t.data[0] == '$') t = (ares_view){ t.data + 1, t.len - 1 };
    return t.len && starts(t, 0) && scan(t.data, t.len, negative, out) == t.len;
}

ares_view verifier_last_boxed(ares_view t, int flags)
{
    const ares_view none = { NULL, 0 };
    bool loose = flags & BOX_LOOSE;
    for (size_t i = t.len; i-- > 0;) {
        ares_view rest = { t.data + i, t.len - i };
        size_t open = ares_view_starts(rest, ARES_VIEW("\\boxed"))           ? i + 6
                      : loose && ares_view_starts(rest, ARES_VIEW("\\fbox")) ? i + 5
                                                                             : 0;
        if (!open) continue;
        while (loose && open < t.len && t.data[open] == ' ') open++;
        if (open == t.len || t.data[open] != '{') {
            if (flags & BOX_BRACE_NEEDED) return none;
            continue;
        }
        for (size_t j = open, depth = 0; j < t.len; j++) {
            depth += t.data[j] == '{';
            if (t.data[j] == '}' && --depth == 0)
                return (ares_view){ t.data + open + 1, j - open - 1 };
        }
        return none; /* the last box counts, and it never closes */
    }
    return none;
}

/*
 * The last number of the response equals the last number of the ground truth, which for GSM8K
 * stands after "####". The response's first number would be a bad reward, because it can be copied
 * from the question.
 */

/* Compares the spellings, which are one per value. */
static int number(const ares_verify_in *in, ares_verify_out *out)
{
    grade_number want, have;
    ares_view truth = in->ground_truth;
    for (int64_t at; (at = ares_view_find(truth, ARES_VIEW("####"), 0)) >= 0;)
        truth = (ares_view){ truth.data + at + 4, truth.len - (size_t)at - 4 };
    if (!grade_last_number(truth, &want))
        return ares_fail(ARES_EFORMAT, "reward: number: ground truth '%.*s' holds no number",
                         (int)ARES_MIN(in->ground_truth.len, 60),
                         in->ground_truth.data ? in->ground_truth.data : "");
    bool found = grade_last_number(in->response, &have);
    out->no_answer = !found;
    out->score = out->accuracy = found && ares_view_is(ares_view_of(have.text), want.text);
    if (found) grade_detail(out, "extracted", ares_view_of(have.text));
    return ARES_OK;
}

const ares_verifier ares_verifier_number = {
    .name = "number",
    .doc = "the last number equals the ground truth's (GSM8K: the one after ####)",
    .verify = number,
    .right = 1,
};

/*
 * The content of the last \boxed{} equals the ground truth: as numbers where both are numbers, else
 * as text without white space.
 */

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Whether the texts are equal apart from white space anywhere. */
static bool same_text(ares_view a, ares_view b)
{
    size_t i = 0, j = 0;
    for (;;) {
        while (i < a.len && blank(a.data[i])) i++;
        while (j < b.len && blank(b.data[j])) j++;
        if (i == a.len || j == b.len) return i == a.len && j == b.len;
        if (a.data[i++] != b.data[j++]) return false;
    }
}

/* The ground truth may stand in a box itself. */
static int boxed(const ares_verify_in *in, ares_verify_out *out)
{
    ares_view answer = verifier_last_boxed(in->response, BOX_LOOSE), truth = in->ground_truth,
              inner = verifier_last_boxed(truth, BOX_LOOSE);
    grade_number a, b;
    if (inner.data) truth = inner;
    out->score = out->accuracy = 0;
    out->no_answer = !answer.data;
    if (!answer.data) return ARES_OK;
    bool same = grade_whole_number(answer, &a) && grade_whole_number(truth, &b)
                    ? ares_view_is(ares_view_of(a.text), b.text)
                    : same_text(answer, truth);
    out->score = out->accuracy = same;
    grade_detail(out, "extracted", answer);
    return ARES_OK;
}

const ares_verifier ares_verifier_boxed = {
    .name = "boxed",
    .doc = "the last \\boxed{} equals the ground truth",
    .verify = boxed,
    .right = 1,
};

/*
 * F1 of the words of response and ground truth, normalised as for SQuAD (Rajpurkar et al., arXiv
 * 1606.05250; docs/rewards.md#f1-of-words).
 */

/* The words in lower case, without ASCII punctuation and articles. */
static ifeval_list normalise(ares_view text, ares_arena *arena)
{
    ares_view t = ifeval_delete_punct(ifeval_lower(text, arena), arena);
    char *bytes = ares_arena_copy(arena, t.data, t.len);
    const char *p = bytes, *end = bytes + t.len;
    while (p < end) {
        const char *word = p, *next = p;
        while (next < end && ifeval_is_word(ifeval_next(&next, end))) p = next;
        ares_view v = { word, (size_t)(p - word) };
        if (ares_view_is(v, "a") || ares_view_is(v, "an") || ares_view_is(v, "the"))
            for (size_t i = 0; i < v.len; i++) bytes[word - bytes + (int64_t)i] = ' ';
        if (p == word) p = next; /* no word begins here */
    }
    return ifeval_words((ares_view){ bytes, t.len }, arena);
}

/* Whether the words are a closed answer, which equals only itself. */
static bool is_verdict(ifeval_list l)
{
    return l.n == 1 && (ares_view_is(l.items[0], "yes") || ares_view_is(l.items[0], "no") ||
                        ares_view_is(l.items[0], "noanswer"));
}

/* Harmonic mean of precision and recall over words, each counted as often as it occurs. */
static double f1_of(ifeval_list have, ifeval_list want)
{
    bool same = have.n == want.n;
    for (int64_t i = 0; same && i < have.n; i++) same = ares_view_eq(have.items[i], want.items[i]);
    if (!same && (is_verdict(have) || is_verdict(want))) return 0;
    ares_map *left = ares_map_new();
    int64_t n, common = 0;
    for (int64_t i = 0; i < want.n; i++)
        ares_map_put(left, want.items[i], ares_map_get(left, want.items[i], &n) ? n + 1 : 1);
    for (int64_t i = 0; i < have.n; i++) {
        if (!ares_map_get(left, have.items[i], &n) || n == 0) continue;
        ares_map_put(left, have.items[i], n - 1);
        common++;
    }
    ares_map_free(left);
    if (!common) return 0;
    double precision = (double)common / (double)have.n, recall = (double)common / (double)want.n;
    return 2 * precision * recall / (precision + recall);
}

/* Too long a text is exhausted, and scores 0. */
static int f1(const ares_verify_in *in, ares_verify_out *out)
{
    ares_arena arena = { 0 };
    out->score = 0;
    if (!ares_view_trim(in->ground_truth).len)
        return ares_fail(ARES_EFORMAT, "reward: f1: the ground truth is empty");
    out->exhausted = in->response.len > IFEVAL_TEXT_MAX || in->ground_truth.len > IFEVAL_TEXT_MAX;
    if (out->exhausted) return ARES_OK;
    ifeval_list have = normalise(in->response, &arena);
    out->no_answer = have.n == 0;
    out->score = f1_of(have, normalise(in->ground_truth, &arena));
    ares_arena_fini(&arena);
    return ARES_OK;
}

const ares_verifier ares_verifier_f1 = {
    .name = "f1",
    .doc = "F1 of the words of response and ground truth, without case, punctuation and articles",
    .verify = f1,
};

/* A regular expression is found in the response. */

#define REGEX_OPTIONS(X)                                     \
    X(text, pattern, "pattern", "???", "nonempty",           \
      "PCRE2 expression; start it with (?i) to ignore case") \
    X(flag, whole, "whole", "false", "",                     \
      "the pattern must match the whole response, not some part of it")
ARES_OPTION_STRUCT(regex_options, REGEX_OPTIONS);
static ARES_OPTION_TABLE(regex_table, regex_options, REGEX_OPTIONS);

static int check(const void *options)
{
    const regex_options *o = options;
    return o->pattern ? bounded_regex_check("regex", o->pattern) : ARES_OK;
}

static int regex(const ares_verify_in *in, ares_verify_out *out)
{
    const regex_options *o = in->options;
    int matched = bounded_regex_match(o->pattern, o->whole, in->response);
    out->score = matched == 1;
    out->exhausted = matched < 0;
    if (out->exhausted)
        grade_detail(out, "reason", ARES_VIEW("the work limit of matching was reached"));
    return ARES_OK;
}

const ares_verifier ares_verifier_regex = {
    .name = "regex",
    .doc = "a pattern is found in the response",
    .options = regex_table,
    .options_size = sizeof(regex_options),
    .check = check,
    .verify = regex,
    .any_truth = true,
};

/*
 * `random`: 0 or 1 by chance, a control that no training can learn from. The outcome is a function
 * of the texts and the seed alone.
 */

#define RANDOM_OPTIONS(X)                                   \
    X(i64, seed, "seed", "1", "[0,)", "seed of the scores") \
    X(f64, p, "p", "0.5", "[0,1]", "probability of a 1")
ARES_OPTION_STRUCT(random_options, RANDOM_OPTIONS);
static ARES_OPTION_TABLE(random_table, random_options, RANDOM_OPTIONS);

/* A key that depends on all bytes of the text, 16 at a time. */
static ares_rng_key absorb(ares_rng_key key, ares_view t)
{
    uint64_t block[2];
    for (size_t at = 0; at < t.len; at += sizeof block) {
        memset(block, 0, sizeof block);
        memcpy(block, t.data + at, ARES_MIN(t.len - at, sizeof block));
        key = ares_rng_sub(key, block[0], block[1]);
    }
    return ares_rng_sub(key, t.len, 0); /* the length keeps ("a", "") and ("", "a") apart */
}

static int draw(const ares_verify_in *in, ares_verify_out *out)
{
    const random_options *o = in->options;
    ares_rng_key key =
        absorb(absorb(ares_rng_root((uint64_t)o->seed, ARES_RNG_USER), in->prompt), in->response);
    out->score = ares_rng_uniform(key, 0) < o->p;
    return ARES_OK;
}

const ares_verifier ares_verifier_random = {
    .name = "random",
    .doc = "0 or 1 by chance, the same for the same prompt and response",
    .options = random_table,
    .options_size = sizeof(random_options),
    .verify = draw,
    .any_truth = true,
};

/* `none`: keeps the place of an entry in a list of rewards when a run switches that reward off. */

static int nothing(const ares_verify_in *in, ares_verify_out *out)
{
    (void)in;
    out->score = 0;
    return ARES_OK;
}

const ares_verifier ares_verifier_none = {
    .name = "none",
    .doc = "always 0",
    .verify = nothing,
    .any_truth = true,
};
