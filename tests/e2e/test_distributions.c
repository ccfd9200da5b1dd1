/* The distributions that TensorBoard shows for a run are those of the tokens that it sampled. */
#include "e2e.h"
#include "events.h"

#include <math.h>
#include <stdio.h>

enum { BINS = 60, STEPS = 3 };
static const double NATS = 12; /* where the last bin ends; the edges grow with the square */

static double edge_of(int i)
{
    return NATS * i * i / (BINS * BINS);
}

static int bin_of(double x)
{
    int i = 0;
    while (i < BINS - 1 && x >= edge_of(i + 1)) i++;
    return i;
}

/*
 * The distribution with this name at this step: its moments (least, most, number, sum, sum of
 * squares) and its bins. False where there is none.
 */
static bool distribution(const ares_str *file, const char *name, int step, double moments[5],
                         double count[BINS])
{
    ares_view e = { 0 };
    field f = { 0 }, g = { 0 }, of = { 0 };
    for (int i = 1; event(file, i, &e); i++) {
        if (!get(e, 2, 0, &f) || (int)f.value != step || !get(e, 5, 0, &f) ||
            !get(f.bytes, 1, 0, &f))
            continue;
        if (!get(f.bytes, 1, 0, &g) || !ares_view_is(g.bytes, name) || !get(f.bytes, 5, 0, &of))
            continue;
        for (int k = 0; k < 5; k++) {
            if (!CHECK(get(of.bytes, k + 1, 0, &g))) return false;
            moments[k] = as_double(&g);
        }
        if (!CHECK(get(of.bytes, 6, 0, &f) && get(of.bytes, 7, 0, &g))) return false;
        if (!CHECK_EQ(f.bytes.len, BINS * 8) || !CHECK_EQ(g.bytes.len, BINS * 8)) return false;
        memcpy(count, g.bytes.data, BINS * 8);
        for (int b = 0; b < BINS; b++) {
            double limit;
            memcpy(&limit, f.bytes.data + b * 8, 8);
            CHECK_NEAR(limit, edge_of(b + 1), 1e-12);
        }
        return true;
    }
    return false;
}

/* Checks that the moments follow from the bins: each token counts as the middle of its bin. */
static void check_moments(const double moments[5], const double count[BINS])
{
    double n = 0, sum = 0, squares = 0;
    int first = -1, last = 0;
    for (int b = 0; b < BINS; b++) {
        double middle = (edge_of(b) + edge_of(b + 1)) / 2;
        if (count[b] > 0) last = b;
        if (count[b] > 0 && first < 0) first = b;
        n += count[b];
        sum += count[b] * middle;
        squares += count[b] * middle * middle;
    }
    CHECK_NEAR(moments[0], edge_of(first), 1e-12);
    CHECK_NEAR(moments[1], edge_of(last + 1), 1e-12);
    CHECK_NEAR(moments[2], n, 0);
    CHECK_NEAR(moments[3], sum, 1e-9);
    CHECK_NEAR(moments[4], squares, 1e-9);
}

/*
 * Checks both distributions of a step. rollouts/ has entropies with three digits, so one beside an
 * edge may lie in either bin. Gives the number of tokens in the first bin.
 */
static double check_step(const ares_str *events, int step)
{
    ares_arena arena = { 0 };
    double moments[5], count[BINS], sure[BINS] = { 0 }, maybe[BINS] = { 0 }, windows = 0;
    char name[64];
    int64_t n;
    snprintf(name, sizeof name, "rollouts/step_%06d.jsonl", step);
    const ares_json **rows = e2e_rows(&arena, "run", name, &n);
    for (int64_t r = 0; r < n; r++) {
        const ares_json *entropies = ares_json_get(rows[r], "entropies");
        for (int64_t i = 0; i < entropies->count; i++) {
            double x = entropies->items[i].number;
            int low = bin_of(0.994 * x), high = bin_of(1.006 * x);
            sure[low] += low == high;
            maybe[low]++;
            maybe[high] += low != high;
        }
        windows += fmax((double)entropies->count - 2, 0); /* the last tokens have no whole window */
    }
    ares_arena_fini(&arena);
    if (!CHECK(distribution(events, "rollout/entropy_distribution", step, moments, count)))
        return 0;
    check_moments(moments, count);
    for (int b = 0; b < BINS; b++)
        CHECK_MSG(count[b] >= sure[b] && count[b] <= maybe[b],
                  "step %d, bin %d: %g tokens of %g to %g", step, b, count[b], sure[b], maybe[b]);
    double tokens = moments[2], in_first = count[0];
    CHECK_NEAR(tokens, 16 * e2e_metric("run", step, "response_length/mean"), 1e-4);
    if (!CHECK(distribution(events, "rollout/window_entropy_distribution", step, moments, count)))
        return 0;
    check_moments(moments, count);
    CHECK_NEAR(moments[2], windows, 0);
    return in_first;
}

/* The learning rate is so high that the policy is sure of nearly every token after two steps. */
TEST(tensorboard_shows_how_the_entropies_of_all_sampled_tokens_are_distributed)
{
    ares_str events = { 0 };
    double sure = 0;
    REQUIRE(
        e2e_program(
            NULL,
            "--config '%s' trainer.max_steps=%d trainer.logger=[tensorboard] algorithm.aepo=true "
            "worker.rollout.window_size=2 worker.reward.accuracy=random "
            "'worker.reward.rewards=[{name: random}]' worker.actor.optim.lr=2 "
            "worker.rollout.temperature=1.25", /* entropies are those at 1 */
            e2e_train_words("run"), STEPS) == 0);
    if (!CHECK(events_of(test_file("run"), 0, &events))) return;
    for (int step = 1; step <= STEPS; step++) sure += check_step(&events, step);
    CHECK(sure > 0);
    ares_str_fini(&events);
}
