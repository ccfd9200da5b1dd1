/*
 * A prompt's value of an answer is its accuracy, or its score where not all of its answers have
 * one, as verl takes `acc` before the reward. best@k, worst@k and maj@k are the expected values
 * that verl's 1000 draws with replacement estimate, so that they cost no noise and need no seed,
 * and the deviations of such draws; pass@k draws without replacement.
 */
#include "run/several.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "collect/answerer.h"

enum { MOST_VOTES_K = 64 }; /* majorities of more draws take too long to count */

/* The i-th k; 0: there is none. */
static int64_t k_of(int64_t n, int i)
{
    int64_t k = (int64_t)1 << i, before = k / 2;
    return k < n ? k : before < n ? n : 0;
}

/* The number of the vote among those of the answers before. */
static int32_t number_of(ares_view vote, const ares_view *votes, int64_t n)
{
    int32_t i = 0;
    while (i < n && !ares_view_eq(votes[i], vote)) i++;
    return i;
}

static void add(several *x, const double *values, const int32_t *votes, int64_t n, int64_t right,
                int64_t of)
{
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY, std = 0;
    double *negated = ares_malloc((size_t)n * sizeof *negated);
    for (int64_t i = 0; i < n; i++) {
        sum += values[i];
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
        negated[i] = -values[i];
    }
    double mean = least == most ? least : sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    x->prompts++;
    x->mean += sum / (double)n;
    x->std += sqrt(squares / (double)n);
    x->voted += votes != NULL;
    for (int i = 0; i < SEVERAL_KS && k_of(of, i); i++) {
        int64_t k = k_of(of, i);
        several_at_k *at = &x->at[i];
        at->best += ares_best_at_k(values, n, k, &std);
        at->best_std += std;
        at->worst -= ares_best_at_k(negated, n, k, &std);
        at->worst_std += std;
        if (votes && k <= MOST_VOTES_K) {
            at->maj += least == most ? least : ares_maj_at_k(values, votes, n, k, &std);
            at->maj_std += least == most ? 0 : std;
        }
        if (right < 0 || n < k) continue;
        at->pass += ares_pass_at_k(n, right, k);
        at->passed++;
    }
    ares_free(negated);
}

void several_add(several *x, const ares_trainer *t, const ares_group *g)
{
    if (g->n < 2) return;
    size_t count = (size_t)g->n;
    double *values = ares_malloc(count * sizeof *values);
    int32_t *votes = ares_malloc(count * sizeof *votes);
    ares_view *texts = ares_malloc(count * sizeof *texts);
    int64_t n = 0, right = 0;
    bool judged = true, voted = true;
    for (int32_t i = 0; i < g->n; i++)
        judged = judged && (g->items[i].failed || !isnan(g->items[i].accuracy));
    for (int32_t i = 0; i < g->n; i++) {
        const ares_trajectory *y = &g->items[i];
        if (y->failed && answer_discards_failures(t)) continue;
        double accuracy = y->failed ? 0 : (double)y->accuracy;
        values[n] = judged ? accuracy : (double)y->score;
        right += accuracy == 1;
        voted = voted && y->vote.data;
        texts[n] = y->vote;
        votes[n] = voted ? number_of(y->vote, texts, n) : 0;
        n++;
    }
    if (n) add(x, values, voted ? votes : NULL, n, judged ? right : -1, g->n);
    ares_free(values);
    ares_free(votes);
    ares_free(texts);
}

static void put(ares_metrics *m, const char *prefix, const char *name, int64_t k, const char *what,
                double sum, double count)
{
    char key[240];
    (void)snprintf(key, sizeof key, "%s%s@%lld%s", prefix, name, (long long)k, what);
    if (count > 0) ares_metrics_set(m, key, sum / count);
}

int several_put(const several *own, ares_world *world, int64_t n, const char *prefix,
                ares_metrics *m)
{
    several x = *own;
    if (n < 2) return ARES_OK;
    ARES_TRY(ares_world_sum_f64(world, (double *)(void *)&x, sizeof x / sizeof(double)));
    put(m, prefix, "mean", n, "", x.mean, x.prompts);
    put(m, prefix, "std", n, "", x.std, x.prompts);
    for (int i = 0; i < SEVERAL_KS && k_of(n, i); i++) {
        int64_t k = k_of(n, i);
        const several_at_k *at = &x.at[i];
        double voted = k <= MOST_VOTES_K ? x.voted : 0;
        put(m, prefix, "pass", k, "", at->pass, at->passed);
        put(m, prefix, "best", k, "/mean", at->best, x.prompts);
        put(m, prefix, "best", k, "/std", at->best_std, x.prompts);
        put(m, prefix, "worst", k, "/mean", at->worst, x.prompts);
        put(m, prefix, "worst", k, "/std", at->worst_std, x.prompts);
        put(m, prefix, "maj", k, "/mean", at->maj, voted);
        put(m, prefix, "maj", k, "/std", at->maj_std, voted);
    }
    return ARES_OK;
}
