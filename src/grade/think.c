/*
 * The shape of a response with its reasoning in <think> tags: 1 or 0, nothing about correctness.
 * (rewards.md 10.1)
 */
#include "boxes.h"

static ares_view behind(ares_view t, size_t at)
{
    return (ares_view){ t.data + at, t.len - at };
}

/* TRL: starts with <think>, which never comes again, and </think> follows. */
static int think(const ares_verify_in *in, ares_verify_out *out)
{
    ares_view t = in->response, open = ARES_VIEW("<think>");
    out->score = ares_view_starts(t, open) && ares_view_find(t, open, 1) < 0 &&
                 ares_view_find(t, ARES_VIEW("</think>"), open.len) >= 0;
    return ARES_OK;
}

/* EasyR1: <think> .. </think> .. \boxed{ .. } .. from the first character on. */
double verify_think_boxed(ares_view t)
{
    static const ares_view marks[] = { { "</think>", 8 }, { "\\boxed{", 7 }, { "}", 1 } };
    if (!ares_view_starts(t, ARES_VIEW("<think>"))) return 0;
    t = behind(t, 7);
    for (int i = 0; i < ARES_COUNT(marks); i++) {
        int64_t at = ares_view_find(t, marks[i], 0);
        if (at < 0) return 0;
        t = behind(t, (size_t)at + marks[i].len);
    }
    return 1;
}

static int think_boxed(const ares_verify_in *in, ares_verify_out *out)
{
    out->score = verify_think_boxed(in->response);
    return ARES_OK;
}

const ares_verifier ares_verifier_format_think = {
    "format_think",
    "the response is <think>..</think>.., with one <think> (TRL)",
    NULL,
    0,
    NULL,
    think,
    NULL
};
const ares_verifier ares_verifier_format_think_boxed = {
    "format_think_boxed",
    "the response is <think>..</think>..\\boxed{..}.. (EasyR1)",
    NULL,
    0,
    NULL,
    think_boxed,
    NULL
};
