/* What shapers add to the scores of a batch, and how often that reverses right and wrong. */
#include <math.h>

#include "manager.h"
#include "shaper.h"

static const reward_shaper *shaper_of(const reward_entry *e)
{
    return e->judge ? reward_shaper_find(ares_judge_name(e->judge)) : NULL;
}

bool ares_reward_shapes(const ares_reward *r)
{
    bool any = false;
    for (int i = 0; i < r->n; i++) any = any || shaper_of(&r->entries[i]);
    return any;
}

double ares_reward_shaping(const ares_reward *r, const ares_sample *s)
{
    double added = 0;
    for (int e = 0; e < r->n; e++) {
        const reward_shaper *shaper = shaper_of(&r->entries[e]);
        if (shaper) added += r->entries[e].o.weight * shaper->shape(s);
    }
    return added;
}

/* Right answers that shaping has put below the best other answer of their group. */
static void count_inverted(ares_reward *r, const ares_batch *b)
{
    double inverted = 0, right = 0;
    for (int64_t g = 0; g < b->groups; g++) {
        float best_other = -INFINITY;
        for (int64_t i = b->group_start[g]; i < b->group_start[g + 1]; i++)
            if (ares_batch_row_counts(b, i) && b->samples[i].accuracy < 1)
                best_other = fmaxf(best_other, b->samples[i].score);
        for (int64_t i = b->group_start[g]; i < b->group_start[g + 1]; i++) {
            if (!ares_batch_row_counts(b, i)) continue;
            right += b->samples[i].accuracy == 1;
            inverted += b->samples[i].accuracy == 1 && b->samples[i].score < best_other;
        }
    }
    tally_add(r->tally, TALLY_MEAN, inverted, right, "reward/inverted_frac");
}

void ares_reward_shape(ares_reward *r, ares_batch *b)
{
    if (!ares_reward_shapes(r)) return;
    for (int e = 0; e < r->n; e++) {
        const reward_shaper *shaper = shaper_of(&r->entries[e]);
        double sum = 0, count = 0;
        for (int64_t i = 0; i < b->rows && shaper; i++) {
            if (!ares_batch_row_counts(b, i)) continue;
            double added = shaper->shape(&b->samples[i]);
            b->samples[i].score += (float)(r->entries[e].o.weight * added);
            sum += added;
            count++;
        }
        if (shaper) tally_add(r->tally, TALLY_MEAN, sum, count, "%s", shaper->metric);
    }
    count_inverted(r, b);
}
