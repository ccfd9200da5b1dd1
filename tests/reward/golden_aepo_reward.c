/* The entropy score of AEPO. */
#include "golden.h"

#include "../../src/reward/internal.h"

GOLDEN(aepo, huber_penalty)
{
    golden_near(g, "penalty", entropy_huber(golden_number(g, "x"), golden_number(g, "kappa")),
                g->expected);
}

GOLDEN(aepo, sigmoid_saturate)
{
    golden_near(g, "sigmoid", entropy_sigmoid(golden_number(g, "x"), golden_number(g, "temp")),
                g->expected);
}

GOLDEN(aepo, margin_from_target)
{
    golden_near(g, "margin",
                entropy_margin(golden_number(g, "target"), golden_number(g, "frac"),
                               golden_number(g, "min_margin")),
                g->expected);
}

GOLDEN(aepo, aepo_entropy_reward)
{
    ares_difficulty d = ARES_DIFFICULTY_NONE;
    for (int i = ARES_EASY; i < ARES_DIFFICULTIES; i++)
        if (ares_view_is(golden_string(g, "difficulty"), ares_difficulty_names[i]))
            d = (ares_difficulty)i;
    entropy_score_parts s =
        entropy_score(d, golden_number(g, "accuracy"), golden_number(g, "n_hwe"),
                      golden_number(g, "target"), golden_number(g, "alpha"));
    golden_near(g, "delta", s.delta, golden_want(g, "delta"));
    golden_near(g, "margin", s.margin, golden_want(g, "margin"));
    golden_near(g, "cap", s.cap, golden_want(g, "cap"));
    golden_near(g, "entropy_score", s.entropy_score, golden_want(g, "entropy_score"));
    golden_near(g, "overall", s.overall, golden_want(g, "overall"));
}
