/*
 * The letter of a multiple choice that a response means, by slime's rules
 * (docs/rewards.md#letters-of-a-multiple-choice): "answer is B" and similar phrases, else the last
 * capital that stands alone; without a letter, whether the text of the right choice occurs in the
 * response.
 */
#include <string.h>

#include "ifeval/ifeval.h"
#include "verifier.h"

#define GPQA_OPTIONS(X)                                 \
    X(text, letters, "letters", "ABCDEFGH", "nonempty", \
      "letters that an answer may have, for rows without choices")
ARES_OPTION_STRUCT(gpqa_options, GPQA_OPTIONS);
static ARES_OPTION_TABLE(gpqa_table, gpqa_options, GPQA_OPTIONS);

enum { MOST = 26 };

/* The question of a row. */
typedef struct question {
    char letters[MOST + 1];
    int n;
    ares_view choices[MOST];
    int n_choices;
    int right; /* index of the right letter; -1: not known */
} question;

/* ASCII only, as all letters of choices are. */
static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
}
static bool letter(char c)
{
    return upper(c) >= 'A' && upper(c) <= 'Z';
}

/* ---------------------------------------------------------------- the question */
/* The member of the row's metadata, or else of the row itself. */
static const ares_json *of_row(const ares_json *row, const char *key)
{
    const ares_json *v = ares_json_get(ares_json_get(row, "metadata"), key);
    return v ? v : ares_json_get(row, key);
}

/* Choices may be numbers, whose text is as the row spells it. */
static ares_view text_of(const ares_json *v)
{
    return v->type == ARES_JSON_STRING || v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT
               ? v->text
               : (ares_view){ "", 0 };
}

/* Index of a letter in either case; -1: it is no letter of the question. */
static int index_of(const question *q, char c)
{
    const char *at = c ? strchr(q->letters, upper(c)) : NULL;
    return at ? (int)(at - q->letters) : -1;
}

/* ---------------------------------------------------------------- the letter */
static size_t skip_spaces(ares_view t, size_t i)
{
    return t.len - ifeval_trim_left((ares_view){ t.data + i, t.len - i }).len;
}

/* The index after the word that stands at i in any case; 0 if it does not stand there. */
static size_t after_word(ares_view t, size_t i, const char *word)
{
    for (; *word; word++, i++)
        if (i >= t.len || upper(t.data[i]) != upper(*word)) return 0;
    return i;
}

/* The letter at i as a capital; 0: none stands there. */
static char letter_at(ares_view t, size_t i)
{
    return i < t.len && letter(t.data[i]) ? upper(t.data[i]) : 0;
}

/* The first "answer [is|:] LETTER"; with final, "final answer ...". */
static char find_announced(ares_view t, bool final)
{
    static const char *const words[] = { "answer", "option", "choice" };
    for (size_t i = 0; i < t.len; i++) {
        size_t at = final ? after_word(t, i, "final") : i;
        if (final && !at) continue;
        if (final) at = skip_spaces(t, at);
        for (int k = 0; k < (final ? 2 : 3); k++) { /* "final choice" is no phrase of slime's */
            size_t after = after_word(t, at, words[k]);
            if (!after) continue;
            size_t next = skip_spaces(t, after), is = after_word(t, next, "is");
            if (!is) is = after_word(t, next, ":");
            char c = is ? letter_at(t, skip_spaces(t, is)) : 0;
            if (!c) c = letter_at(t, next);
            if (c) return c;
        }
    }
    return 0;
}

/* The first "LETTER is [the] correct". */
static char find_correct(ares_view t)
{
    for (size_t i = 0; i < t.len; i++) {
        if (!letter(t.data[i])) continue;
        size_t at = after_word(t, skip_spaces(t, i + 1), "is");
        if (!at) continue;
        at = skip_spaces(t, at);
        size_t article = after_word(t, at, "the");
        if (after_word(t, at, "correct") ||
            (article && after_word(t, skip_spaces(t, article), "correct")))
            return upper(t.data[i]);
    }
    return 0;
}

/* Index of the letter that the response means; -1: none. */
static int find_letter(const question *q, ares_view t)
{
    const char found[] = { find_announced(t, false), find_correct(t), find_announced(t, true) };
    for (int k = 0; k < ARES_COUNT(found); k++)
        if (index_of(q, found[k]) >= 0) return index_of(q, found[k]);
    for (size_t i = t.len; i-- > 0;) /* the last capital that stands alone */
        if (t.data[i] >= 'A' && t.data[i] <= 'Z' && index_of(q, t.data[i]) >= 0 &&
            ifeval_boundary(t, i) && ifeval_boundary(t, i + 1))
            return index_of(q, t.data[i]);
    return -1;
}

/* ---------------------------------------------------------------- the text */
/* ASCII letters and digits in lower case, with one blank for everything between them. */
static ares_view plain(ares_view t, ares_arena *arena)
{
    char *out = ares_arena_alloc(arena, t.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < t.len; i++) {
        char c = t.data[i] >= 'A' && t.data[i] <= 'Z' ? (char)(t.data[i] + 32) : t.data[i];
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) out[n++] = c;
        else if (n && out[n - 1] != ' ') out[n++] = ' ';
    }
    while (n && out[n - 1] == ' ') n--;
    return (ares_view){ out, n };
}

/* A target of one character does not count: it would be found in any word. */
static bool contains(ares_view response, ares_view target, ares_arena *arena)
{
    target = plain(target, arena);
    return target.len > 1 && ares_view_find(response, target, 0) >= 0;
}

/* By letter where the response has one and the right one is known, else by text. */
static int gpqa(const ares_verify_in *in, ares_verify_out *out)
{
    const gpqa_options *o = in->options;
    ares_view label = ifeval_trim(in->ground_truth), t = in->response;
    question q = { 0 };
    out->score = out->accuracy = 0;
    /*
     * Reads choices, letters and the right one. otherwise: the letters of a row that has neither
     * letters nor choices. label: a letter, the text of a choice, or an index from 0.
     */
    const char *otherwise = o ? o->letters : "ABCDEFGH";
    const ares_json *choices = of_row(in->row, "choices"),
                    *valid = of_row(in->row, "valid_letters"),
                    *given = of_row(in->row, "correct_letter");
    int64_t index;
    if (choices && (choices->type == ARES_JSON_ARRAY || choices->type == ARES_JSON_OBJECT))
        for (int64_t i = 0; i < choices->count && i < MOST; i++)
            q.choices[q.n_choices++] = text_of(
                choices->type == ARES_JSON_ARRAY ? &choices->items[i] : choices->members[i].value);
    if (valid && valid->type == ARES_JSON_ARRAY && valid->count)
        for (int64_t i = 0; i < valid->count && q.n < MOST; i++) {
            ares_view v = text_of(&valid->items[i]);
            if (v.len == 1 && letter(v.data[0])) q.letters[q.n++] = upper(v.data[0]);
        }
    /* choices without letters of their own are A, B, C .. */
    for (int i = 0; !q.n && i < q.n_choices; i++) q.letters[i] = (char)('A' + i);
    if (!q.n) q.n = q.n_choices;
    for (; !q.n_choices && !q.letters[q.n] && q.n < MOST && letter(*otherwise); otherwise++)
        q.letters[q.n++] = upper(*otherwise);
    q.right = -1;
    if (given && given->type == ARES_JSON_STRING && ifeval_trim(given->text).len == 1)
        q.right = index_of(&q, ifeval_trim(given->text).data[0]);
    if (q.right < 0 && label.len == 1) q.right = index_of(&q, label.data[0]);
    for (int i = 0; q.right < 0 && i < q.n_choices; i++)
        if (ares_view_eq(ifeval_trim(q.choices[i]), label)) q.right = i;
    if (q.right < 0 && ares_parse_i64(label, &index) && index >= 0 && index < q.n)
        q.right = (int)index;
    if (!label.len && q.right < 0)
        return ares_fail(ARES_EFORMAT, "reward: gpqa: the ground truth is empty");
    out->exhausted = t.len > IFEVAL_TEXT_MAX;
    if (out->exhausted) return ARES_OK;
    t = ifeval_strip_think(t);
    int meant = find_letter(&q, t);
    if (meant >= 0) grade_detail(out, "extracted", (ares_view){ &q.letters[meant], 1 });
    if (meant >= 0 && q.right >= 0) {
        out->score = out->accuracy = meant == q.right;
        return ARES_OK;
    }
    ares_arena arena = { 0 };
    ares_view response = plain(t, &arena);
    bool found =
        (q.right >= 0 && q.right < q.n_choices && contains(response, q.choices[q.right], &arena)) ||
        contains(response, label, &arena);
    ares_arena_fini(&arena);
    out->no_answer = meant < 0 && !found;
    out->score = out->accuracy = found;
    return ARES_OK;
}

const ares_verifier ares_verifier_gpqa = {
    .name = "gpqa",
    .doc = "the letter of the right choice, or its text; letters from the row's choices (slime)",
    .options = gpqa_table,
    .options_size = sizeof(gpqa_options),
    .verify = gpqa,
    .right = 1,
};
const ares_verifier ares_verifier_multiple_choice = {
    .name = "multiple_choice",
    .doc = "another name of gpqa",
    .options = gpqa_table,
    .options_size = sizeof(gpqa_options),
    .verify = gpqa,
    .right = 1,
};
