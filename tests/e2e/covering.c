/*
 * A greedy search, as in AETG (Cohen et al., IEEE TSE 23(7), 1997): each combination starts from a
 * pair that no combination has yet, and each further factor takes the level that gives most new
 * pairs. Several such combinations are made, and the best of them is kept.
 */
#include "covering.h"

#include "ares/core.h"

#include <string.h>

enum { CANDIDATES = 20, TRIES = 200 };

typedef struct search {
    covering *c;
    bool pairs, done[COVERING_FACTORS][COVERING_LEVELS][COVERING_FACTORS][COVERING_LEVELS];
    ares_rng_key key;
    uint64_t drawn;
} search;

static int below(search *s, int n)
{
    return (int)(ares_rng_uniform(s->key, s->drawn++) * n) % n;
}

static bool fits(const search *s, const int *row, int f, int level)
{
    for (int g = 0; g < s->c->factors; g++)
        if (row[g] >= 0 && g != f && s->c->excluded(f, level, g, row[g])) return false;
    return true;
}

static bool has_hiding(const search *s, const int *row)
{
    for (int f = 0; f < s->c->factors; f++)
        if (row[f] >= 0 && s->c->hides_others(f, row[f])) return true;
    return false;
}

static int count_new(const search *s, const int *row, int f, int level)
{
    bool hiding = has_hiding(s, row);
    int n = !hiding && !s->done[f][level][f][level];
    for (int g = 0; g < s->c->factors && s->pairs; g++)
        if (row[g] >= 0 && g != f && (!hiding || s->c->hides_others(g, row[g])))
            n += !s->done[f][level][g][row[g]];
    return n;
}

/*
 * Chooses a level for each factor that has -1, never one that hides pairs. Gives the number of new
 * pairs, or -1 where some factor has no level that fits.
 */
static int fill(search *s, int *row)
{
    int order[COVERING_FACTORS], gain = 0;
    for (int i = 0; i < s->c->factors; i++) {
        int at = below(s, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < s->c->factors; i++) {
        int f = order[i], best = -1, most = -1, same = 0;
        if (row[f] >= 0) continue;
        for (int l = 0; l < s->c->levels[f]; l++) {
            if (s->c->hides_others(f, l) || !fits(s, row, f, l)) continue;
            int n = count_new(s, row, f, l);
            same = n > most ? 1 : same + (n == most);
            if (n > most || (n == most && below(s, same) == 0)) best = l;
            if (n > most) most = n;
        }
        if (best < 0) return -1;
        row[f] = best;
        gain += most;
    }
    return gain;
}

static void record(search *s, const int *row)
{
    covering *c = s->c;
    bool hiding = has_hiding(s, row);
    for (int f = 0; f < c->factors; f++)
        for (int g = 0; g < c->factors; g++)
            if (!hiding || c->hides_others(f, row[f]) || c->hides_others(g, row[g]))
                s->done[f][row[f]][g][row[g]] = true;
    memcpy(c->row[c->rows++], row, sizeof c->row[0]);
}

/* Adds the best of several combinations that contain this pair. */
static bool add_best(search *s, int f, int level, int g, int other)
{
    int best[COVERING_FACTORS], most = -1;
    for (int i = 0, good = 0; i < TRIES && good < CANDIDATES; i++) {
        int row[COVERING_FACTORS];
        memset(row, -1, sizeof row);
        row[f] = level;
        row[g] = other;
        int gain = fill(s, row);
        good += gain >= 0;
        if (gain > most) {
            most = gain;
            memcpy(best, row, sizeof best);
        }
    }
    if (most >= 0) record(s, best);
    return most >= 0;
}

bool covering_make(covering *c, bool pairs, uint64_t seed)
{
    static search s;
    s = (search){ .c = c, .pairs = pairs, .key = ares_rng_root(seed, ARES_RNG_TEST) };
    c->rows = 0;
    for (int f = 0; f < c->factors; f++)
        for (int g = f; g < (pairs ? c->factors : f + 1); g++)
            for (int l = 0; l < c->levels[f]; l++)
                for (int m = 0; m < c->levels[g]; m++) {
                    if (f == g && m != l) continue;
                    if (s.done[f][l][g][m] || c->excluded(f, l, g, m)) continue;
                    if (c->rows + 1 < COVERING_ROWS && add_best(&s, f, l, g, m)) continue;
                    memset(c->row[c->rows], -1, sizeof c->row[0]);
                    c->row[c->rows][f] = l;
                    c->row[c->rows][g] = m;
                    return false;
                }
    return true;
}
