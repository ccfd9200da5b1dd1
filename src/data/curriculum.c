/* The options of a curriculum: names, weights and caps of its data sets (docs/curriculum.md). */
#include <math.h>
#include <string.h>

#include "dataset.h"
#include "mixture.h"

ARES_OPTION_TABLE(ares_curriculum_options, ares_curriculum_config, ARES_CURRICULUM_OPTIONS);

enum { NAME_BYTES = 80 };
enum { STEPS_CHECKED = 10000 }; /* values of schedules that are tried before a run begins */

static bool is_asked_for(const ares_curriculum_config *o)
{
    return o->names.count || o->weights->type != ARES_JSON_NULL ||
           o->reward_caps->type != ARES_JSON_NULL;
}

static const char *const *read_names(ares_config *cfg, const ares_curriculum_config *o,
                                     const ares_texts *files)
{
    if (o->names.count) return o->names.items;
    const char **names = ares_config_alloc(cfg, (size_t)files->count * sizeof *names);
    for (int64_t i = 0; i < files->count; i++) {
        ares_view name = path_name(files->items[i]);
        char *copy = ares_config_alloc(cfg, name.len + 1);
        memcpy(copy, name.data, name.len);
        names[i] = copy;
    }
    return names;
}

static void check_names(ares_config *cfg, const ares_curriculum *c)
{
    static const char option[] = "curriculum.names";
    for (int64_t i = 0; i < c->n; i++) {
        const char *name = c->names[i];
        if (!*name || strlen(name) > NAME_BYTES || strpbrk(name, "/ \t\r\n"))
            ares_config_fault(cfg, option,
                              "'%s': the name of a data set is part of names of metrics; use 1 to "
                              "%d characters, neither '/' nor blanks",
                              name, NAME_BYTES);
        for (int64_t k = 0; k < i; k++)
            if (strcmp(name, c->names[k]) == 0)
                ares_config_fault(cfg, option,
                                  "'%s' is the name of two data sets; give each its own", name);
    }
}

static const ares_scheduled *const *read_weights(ares_config *cfg, const ares_texts *files)
{
    static const char path[] = "curriculum.weights";
    int64_t n;
    const ares_scheduled *const *items =
        ares_config_schedules(cfg, path, ARES_SCHEDULE_WEIGHT, "curriculum.schedules", &n);
    if (!items || n == files->count) return items;
    ares_config_fault(cfg, path, "has %lld entries, and data.train_files %lld; give one for each",
                      (long long)n, (long long)files->count);
    return NULL;
}

/* slime switches the caps off where their number does not fit; here that has to be asked for. */
static const ares_scheduled *const *read_caps(ares_config *cfg, const ares_texts *files, bool force,
                                              bool *left_out)
{
    static const char path[] = "curriculum.reward_caps";
    int64_t n;
    const ares_scheduled *const *caps =
        ares_config_schedules(cfg, path, ARES_SCHEDULE_CAP, "curriculum.schedules", &n);
    if (!caps || n == files->count) return caps;
    *left_out = force;
    if (!force)
        ares_config_fault(cfg, path,
                          "has %lld entries, and data.train_files %lld; give one for each, null "
                          "where there is no cap, or pass --force to train without caps",
                          (long long)n, (long long)files->count);
    return NULL;
}

/* A weight is a number; all that is wrong with the weights of a step, in one message. */
static int check_weights(const ares_curriculum *c, int64_t step)
{
    double sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        double w;
        ARES_TRY(curriculum_weight(c, i, step, &w));
        sum += fmax(w, 0);
    }
    if (sum > 0 && isfinite(sum)) return ARES_OK;
    if (sum > 0)
        return ares_fail(ARES_ECONFIG,
                         "at step %lld the weights add up to infinity; make them smaller",
                         (long long)step);
    return ares_fail(ARES_ECONFIG,
                     "at step %lld no data set has a weight above 0; let one be positive",
                     (long long)step);
}

static int check_caps(const ares_curriculum *c, int64_t step)
{
    double cap;
    for (int64_t i = 0; i < c->n; i++) {
        ARES_TRY(ares_scheduled_at(c->caps[i], step, &cap));
        if (cap < 0)
            return ares_fail(ARES_ECONFIG,
                             "'%s': the cap is %g at step %lld; caps are 0 or more, null is none",
                             c->names[i], cap, (long long)step);
    }
    return ARES_OK;
}

static void check_steps(ares_config *cfg, const ares_curriculum *c, int64_t steps)
{
    bool weights = c->weights, caps = c->caps;
    for (int64_t step = 0; step < ARES_MIN(ARES_MAX(steps, 1), STEPS_CHECKED); step++) {
        if (weights && check_weights(c, step) != ARES_OK) {
            ares_config_fault(cfg, "curriculum.weights", "%s", ares_error_message());
            weights = false;
        }
        if (caps && check_caps(c, step) != ARES_OK) {
            ares_config_fault(cfg, "curriculum.reward_caps", "%s", ares_error_message());
            caps = false;
        }
    }
}

void ares_curriculum_read(ares_config *cfg, const ares_curriculum_config *o,
                          const ares_texts *files, int64_t steps, bool force, ares_curriculum *out)
{
    *out = (ares_curriculum){ .by_rollout = strcmp(o->step_unit, "rollout") == 0 };
    ares_config_check_schedules(cfg, "curriculum.schedules");
    if (!is_asked_for(o)) return;
    out->n = files->count;
    if (o->names.count && o->names.count != files->count) {
        ares_config_fault(cfg, "curriculum.names",
                          "has %lld entries, and data.train_files %lld; give one for each",
                          (long long)o->names.count, (long long)files->count);
        out->n = 0;
        return;
    }
    out->names = read_names(cfg, o, files);
    out->weights = read_weights(cfg, files);
    out->caps = read_caps(cfg, files, force, &out->caps_left_out);
    check_names(cfg, out);
    check_steps(cfg, out, steps);
}

int curriculum_weight(const ares_curriculum *c, int64_t part, int64_t step, double *weight)
{
    *weight = 1;
    if (!c->weights) return ARES_OK;
    int rc = ares_scheduled_at(c->weights[part], step, weight);
    if (rc != ARES_OK) return ares_fail_in(rc, "weight of '%s'", c->names[part]);
    if (isfinite(*weight)) return ARES_OK;
    return ares_fail(ARES_ECONFIG, "weight of '%s': %s: is not finite at step %lld", c->names[part],
                     ares_scheduled_text(c->weights[part]), (long long)step);
}

int ares_curriculum_caps(const ares_curriculum *c, int64_t step, double *caps)
{
    for (int64_t i = 0; i < c->n; i++) {
        caps[i] = NAN;
        int rc = c->caps ? ares_scheduled_at(c->caps[i], step, &caps[i]) : ARES_OK;
        if (rc != ARES_OK)
            return ares_fail_in(rc, "data: curriculum: reward cap of '%s'", c->names[i]);
        if (caps[i] < 0)
            return ares_fail(ARES_ECONFIG,
                             "data: curriculum: reward cap of '%s': %s: is %g at step %lld; caps "
                             "are 0 or more",
                             c->names[i], ares_scheduled_text(c->caps[i]), caps[i],
                             (long long)step);
    }
    return ARES_OK;
}
