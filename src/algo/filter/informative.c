/*
 * DAPO's dynamic sampling (arXiv 2503.14476, section 3.2): a group is informative when it has
 * both right and wrong answers, judged before rewards are shaped for length and without discarded
 * answers. With metric: score, when its scores differ.
 */
#include <stdio.h>
#include <string.h>

#include "filter.h"

/* algorithm.filter_groups.metric: acc, or score. */
static bool by_accuracy(const ares_filter_config *cfg)
{
    return strcmp(cfg->informative_by, "acc") == 0;
}
static bool wanted(const ares_filter_config *cfg)
{
    return cfg->informative;
}
static unsigned needs(const ares_filter_config *cfg)
{
    return by_accuracy(cfg) ? ARES_FILTER_ACCURACY : ARES_FILTER_SCORE;
}

static int informative(const ares_filter_config *cfg, const ares_groups *g, ares_verdict *v)
{
    for (int64_t i = 0; i < g->groups; i++) {
        int64_t first = g->group_start[i], n = g->group_start[i + 1] - first;
        const uint8_t *valid = g->valid ? g->valid + first : NULL;
        bool keep = by_accuracy(cfg) ? group_informative(g->accuracy + first, valid, n)
                                     : group_spread(g->score + first, valid, n, 1e-6);
        if (!v[i].keep || keep) continue;
        /* the reason is a part of a metric's name */
        const char *why = "equal_scores";
        if (by_accuracy(cfg)) { /* all answers that count are alike: the first one says how */
            int64_t r = 0;
            while (r < n && valid && !valid[r]) r++;
            why = r == n                         ? "all_discarded"
                  : g->accuracy[first + r] > 0.5 ? "all_correct"
                                                 : "all_wrong";
        }
        v[i].keep = false;
        (void)snprintf(v[i].reason, sizeof v[i].reason, "%s", why);
    }
    return ARES_OK;
}

static void check(ares_config *cfg, const ares_filter_config *f, const ares_filter_run *run)
{
    if (!f->informative) return;
    if (run->n < 2)
        ares_config_fault(
            cfg, "algorithm.filter_groups.enable",
            "one answer is never both right and wrong; set worker.rollout.n to 2 or more");
    if (by_accuracy(f) && !run->judges)
        ares_config_fault(cfg, "algorithm.filter_groups.metric",
                          "no reward says whether an answer is right; name one that does in "
                          "worker.reward.accuracy, or set score");
}

const ares_filter ares_filter_informative = { "informative",
                                              "right and wrong answers in the group",
                                              "0 < right < answers",
                                              "arXiv 2503.14476, 3.2",
                                              "algorithm.filter_groups.enable=true",
                                              wanted,
                                              needs,
                                              informative,
                                              check,
                                              "algorithm.filter_groups.metric" };
