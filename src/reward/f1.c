/*
 * F1 of the words of response and ground truth, normalised as for SQuAD (Rajpurkar et al., arXiv
 * 1606.05250; docs/rewards.md#f1-of-words).
 */
#include "ares/grade.h"
#include "ifeval/text_parts.h"

/* The words in lower case, without ASCII punctuation and articles. */
static if_list normalise(ares_view text, ares_arena *arena)
{
    ares_view t = if_delete_punct(if_lower(text, arena), arena);
    char *bytes = ares_arena_copy(arena, t.data, t.len);
    const char *p = bytes, *end = bytes + t.len;
    while (p < end) {
        const char *word = p, *next = p;
        while (next < end && if_is_word(if_next(&next, end))) p = next;
        ares_view v = { word, (size_t)(p - word) };
        if (ares_view_is(v, "a") || ares_view_is(v, "an") || ares_view_is(v, "the"))
            for (size_t i = 0; i < v.len; i++) bytes[word - bytes + (int64_t)i] = ' ';
        if (p == word) p = next; /* no word begins here */
    }
    return if_words((ares_view){ bytes, t.len }, arena);
}

static bool is_verdict(if_list l)
{
    return l.n == 1 && (ares_view_is(l.items[0], "yes") || ares_view_is(l.items[0], "no") ||
                        ares_view_is(l.items[0], "noanswer"));
}

static double f1_of(if_list have, if_list want)
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

static int f1(const ares_verify_in *in, ares_verify_out *out)
{
    ares_arena arena = { 0 };
    out->score = 0;
    if (!ares_view_trim(in->ground_truth).len)
        return ares_fail(ARES_EFORMAT, "reward: f1: the ground truth is empty");
    out->exhausted = in->response.len > IF_TEXT_MAX || in->ground_truth.len > IF_TEXT_MAX;
    if (out->exhausted) return ARES_OK;
    if_list have = normalise(in->response, &arena);
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
