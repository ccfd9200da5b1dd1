/* Names -> scalars. */
#include <string.h>

#include "ares/core.h"

struct ares_metrics {
    ares_map *names; /* name -> index; a cleared set of metrics begins with an empty map */
    double *values;
    int64_t cap;
};

ares_metrics *ares_metrics_new(void)
{
    ares_metrics *m = ares_calloc(1, sizeof *m);
    m->names = ares_map_new();
    return m;
}

void ares_metrics_free(ares_metrics *m)
{
    if (!m) return;
    ares_map_free(m->names);
    ares_free(m->values);
    ares_free(m);
}

void ares_metrics_clear(ares_metrics *m)
{
    ares_map_free(m->names);
    m->names = ares_map_new();
}

/*
 * A name as it is kept: without white space, which a reward's name or a value of the user's data
 * may bring along, and which tools that read the names do not expect. `changed` holds the name
 * where it had to be changed.
 */
static ares_view clean(const char *name, ares_str *changed)
{
    static const char blanks[] = " \t\n\v\f\r";
    if (!name[strcspn(name, blanks)]) return ares_view_of(name);
    ares_str_add_z(changed, name);
    for (size_t i = 0; i < changed->len; i++)
        if (strchr(blanks, changed->data[i])) changed->data[i] = '_';
    return ares_str_view(changed);
}

static double *entry(ares_metrics *m, const char *name)
{
    int64_t index = ares_map_count(m->names);
    ares_str changed = { 0 };
    ares_view key = clean(name, &changed);
    bool known = ares_map_get(m->names, key, &index);
    if (!known) ares_map_put(m->names, key, index);
    ares_str_fini(&changed);
    if (known) return &m->values[index];
    if (index == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 64;
        m->values = ares_realloc(m->values, (size_t)m->cap * sizeof *m->values);
    }
    m->values[index] = 0;
    return &m->values[index];
}

void ares_metrics_set(ares_metrics *m, const char *name, double value)
{
    *entry(m, name) = value;
}

void ares_metrics_add(ares_metrics *m, const char *name, double value)
{
    *entry(m, name) += value;
}

bool ares_metrics_get(const ares_metrics *m, const char *name, double *value)
{
    int64_t index;
    ares_str changed = { 0 };
    bool known = ares_map_get(m->names, clean(name, &changed), &index);
    ares_str_fini(&changed);
    if (!known) return false;
    *value = ares_metrics_value(m, (int)index);
    return true;
}

int ares_metrics_count(const ares_metrics *m)
{
    return (int)ares_map_count(m->names);
}

const char *ares_metrics_name(const ares_metrics *m, int i)
{
    return ares_map_key(m->names, i).data;
}

double ares_metrics_value(const ares_metrics *m, int i)
{
    ARES_ASSERT(i >= 0 && i < ares_metrics_count(m));
    return m->values[i];
}
