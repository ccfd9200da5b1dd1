/*
 * Values that change with the step. Each shape of the table gives the factor at a progress from 0
 * (end of the warm-up) to 1 (total_steps and later). Warm-up and cosine are those of verl and
 * EasyR1: the first step of a warm-up has factor 0, and without a warm-up the first step has the
 * full value. exp and cos are those of internal.h, because a learning rate affects every weight.
 */
#include "ares/core.h"
#include "internal.h"

#include <math.h>

/* A shape and what it needs of its options. */
typedef struct shape {
    const char *name;
    bool needs_total;
    double least_ratio, most_ratio; /* of min_ratio */
    double (*at)(const ares_schedule *s, double progress);
} shape;

static double constant(const ares_schedule *s, double progress)
{
    (void)s, (void)progress;
    return 1;
}

/* From 1 down to min_ratio in a straight line. */
static double linear(const ares_schedule *s, double progress)
{
    return 1 - (1 - s->min_ratio) * progress;
}

/* `cycles` waves between 1 and min_ratio; 0.5 is the usual half wave down. */
static double cosine(const ares_schedule *s, double progress)
{
    double wave = core_cos_pi(2 * s->cycles * progress);
    return fmax(s->min_ratio, 0.5 * (1 - s->min_ratio) * wave + 0.5 * (1 + s->min_ratio));
}

/* min_ratio to the power of the progress: the same factor for each step. */
static double exponential(const ares_schedule *s, double progress)
{
    return core_exp(progress * core_log(s->min_ratio));
}

/* Steps down: `cycles` levels of equal length, the first 1, the last min_ratio. */
static double level(const ares_schedule *s, double progress)
{
    double levels = floor(s->cycles), step = fmin(floor(progress * levels), levels - 1);
    return 1 - (1 - s->min_ratio) * step / (levels - 1);
}

/* name, needs_total, bounds of min_ratio, function */
static const shape shapes[] = {
    { "constant", false, -INFINITY, INFINITY, constant },
    { "linear", true, 0, 1e6, linear },
    { "cosine", true, 0, 1, cosine },
    { "exponential", true, 1e-12, 1e6, exponential },
    { "level", true, 0, 1e6, level },
};

/* NULL is a name, too, so that a forgotten one is reported. */
static int find(const char *name, int *index)
{
    const char *names[ARES_COUNT(shapes)];
    for (int i = 0; i < ARES_COUNT(shapes); i++) names[i] = shapes[i].name;
    return ares_lookup(ARES_ECONFIG, "schedule: name", name ? name : "", names, ARES_COUNT(shapes),
                       index);
}

int ares_schedule_check(const ares_schedule *s)
{
    int index;
    ARES_TRY(find(s->name, &index));
    const shape *shape = &shapes[index];
    if (!isfinite(s->base))
        return ares_fail(ARES_ECONFIG, "schedule: base = %g: must be finite", s->base);
    if (!(s->warmup_steps >= 0 && isfinite(s->warmup_steps)))
        return ares_fail(ARES_ECONFIG, "schedule: warmup_steps = %g: must be 0 or more",
                         s->warmup_steps);
    if (!shape->needs_total) return ARES_OK;
    if (!(s->total_steps > 0 && isfinite(s->total_steps)))
        return ares_fail(ARES_ECONFIG, "schedule: total_steps = %g: '%s' needs to know its end",
                         s->total_steps, s->name);
    if (s->warmup_steps >= s->total_steps)
        return ares_fail(ARES_ECONFIG,
                         "schedule: warmup_steps = %g: must be shorter than the whole run of %g "
                         "steps, which would never reach the full value",
                         s->warmup_steps, s->total_steps);
    if (!(s->min_ratio >= shape->least_ratio && s->min_ratio <= shape->most_ratio))
        return ares_fail(ARES_ECONFIG, "schedule: min_ratio = %g: '%s' takes %g to %g",
                         s->min_ratio, s->name, shape->least_ratio, shape->most_ratio);
    if (shape->at == cosine && !(s->cycles > 0 && isfinite(s->cycles)))
        return ares_fail(ARES_ECONFIG,
                         "schedule: cycles = %g: must be above 0 (0.5 is one half wave)",
                         s->cycles);
    if (shape->at == level && !(s->cycles >= 2 && s->cycles <= 1e6))
        return ares_fail(ARES_ECONFIG,
                         "schedule: cycles = %g: 'level' takes the number of levels, 2 or more",
                         s->cycles);
    return ARES_OK;
}

double ares_schedule_at(const ares_schedule *s, int64_t step)
{
    int index;
    ARES_ASSERT(find(s->name, &index) == ARES_OK);
    /* warm-up from 0 in a straight line, then the shape over what is left */
    double at = (double)step;
    if (at < s->warmup_steps) return s->base * (at / s->warmup_steps);
    double span = s->total_steps - s->warmup_steps;
    double progress = fmin((at - s->warmup_steps) / fmax(1, span), 1);
    return s->base * shapes[index].at(s, progress);
}
