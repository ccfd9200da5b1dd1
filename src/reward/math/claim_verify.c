/*
 * Math-Verify's verdict on a response: its first claim that can be parsed against the gold
 * answer's; equal texts are equal too. A gold answer without LaTeX signs around it is one answer as
 * a whole, as data sets write them.
 */

#include "claim.h"

enum { MOST = 12 };

/*
 * The first candidate that parses, with its text in *text and *raw; without one NULL, with the text
 * of the first candidate.
 */
static claim_node *first_claim(claim_book *b, ares_view from, bool whole, ares_view *text,
                               ares_view *raw)
{
    claim_candidate list[MOST] = { { from, false } };
    int n = 1;
    bool signs = ares_view_find(from, ARES_VIEW("$"), 0) >= 0 ||
                 ares_view_find(from, ARES_VIEW("\\boxed"), 0) >= 0 ||
                 ares_view_find(from, ARES_VIEW("\\["), 0) >= 0 ||
                 ares_view_find(from, ARES_VIEW("\\("), 0) >= 0;
    if (!whole || signs) n = claim_candidates(from, list, MOST, b->arena, b->budget);
    *text = *raw = (ares_view){ "", 0 };
    for (int i = 0; i < n; i++) {
        ares_view t = claim_normalize(list[i].text, b->arena, b->budget);
        if (i == 0) *text = t, *raw = list[i].text;
        claim_node *node = claim_parse(b, t, list[i].percent);
        if (!node) continue;
        *text = t;
        *raw = list[i].text;
        return node;
    }
    return NULL;
}

bool claim_verify(ares_view gold, ares_view response, math_budget *budget, ares_arena *arena,
                  ares_view *extracted, const char **decided_by)
{
    claim_book book = { .arena = arena, .budget = budget };
    ares_view gold_text, given_text, raw, unused;
    const claim_node *truth = first_claim(&book, gold, true, &gold_text, &unused),
                     *given = first_claim(&book, response, false, &given_text, &raw);
    bool same = false;
    *decided_by = "no";
    *extracted = raw.len ? raw : (ares_view){ NULL, 0 };
    if (given_text.len == 0) {
        *decided_by = "none";
    } else if (ares_view_eq(gold_text, given_text)) {
        same = true;
        *decided_by = "text";
    } else if (truth && given && claim_same(&book, truth, given)) {
        same = true;
        *decided_by = "value";
    }
    claim_book_fini(&book);
    return same && !budget->exhausted;
}
