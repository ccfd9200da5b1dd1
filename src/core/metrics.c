/*
 * Names -> scalars. An entry is a weighted sum and the sum of weights; a value that was set or
 * added has weight 1.
 */
#include <string.h>

#include "ares/core.h"

typedef struct scalar {
    double sum, weight;
} scalar;

struct ares_metrics {
    ares_map *names; /* name -> index; a cleared set of metrics begins with an empty map */
    scalar *values;
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
 * may bring along, and which tools that read the names would stumble over. room holds the name
 * where it had to be changed.
 */
static ares_view clean(const char *name, ares_str *room)
{
    static const char blanks[] = " \t\n\v\f\r";
    if (!name[strcspn(name, blanks)]) return ares_view_of(name);
    ares_str_add_z(room, name);
    for (size_t i = 0; i < room->len; i++)
        if (strchr(blanks, room->data[i])) room->data[i] = '_';
    return ares_str_view(room);
}

static scalar *entry(ares_metrics *m, const char *name)
{
    int64_t index = ares_map_count(m->names);
    ares_str room = { 0 };
    ares_view key = clean(name, &room);
    bool known = ares_map_get(m->names, key, &index);
    if (!known) ares_map_put(m->names, key, index);
    ares_str_fini(&room);
    if (known) return &m->values[index];
    if (index == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 64;
        m->values = ares_realloc(m->values, (size_t)m->cap * sizeof *m->values);
    }
    m->values[index] = (scalar){ 0, 0 };
    return &m->values[index];
}

void ares_metrics_set(ares_metrics *m, const char *name, double value)
{
    *entry(m, name) = (scalar){ value, 1 };
}

void ares_metrics_add(ares_metrics *m, const char *name, double value)
{
    scalar *e = entry(m, name);
    *e = (scalar){ e->sum + value, 1 };
}

void ares_metrics_mean(ares_metrics *m, const char *name, double value, double weight)
{
    if (weight == 0) return;
    scalar *e = entry(m, name);
    e->sum += value * weight;
    e->weight += weight;
}

bool ares_metrics_get(const ares_metrics *m, const char *name, double *value)
{
    int64_t index;
    ares_str room = { 0 };
    bool known = ares_map_get(m->names, clean(name, &room), &index);
    ares_str_fini(&room);
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
    return m->values[i].sum / m->values[i].weight;
}
