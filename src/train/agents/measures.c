/* Ranks may meet different names: each sends what it has, and all merge in the order of ranks. */
#include "agents/measures.h"

#include <string.h>

static measure *entry(measures *t, const char *name, const char *per)
{
    int64_t i;
    if (!t->index) t->index = ares_map_new();
    if (ares_map_get(t->index, ares_view_of(name), &i)) return &t->items[i];
    ares_map_put(t->index, ares_view_of(name), t->n);
    t->items = ares_realloc(t->items, (size_t)(t->n + 1) * sizeof *t->items);
    t->items[t->n] = (measure){ .name = ares_strdup(name), .per = per ? ares_strdup(per) : NULL };
    return &t->items[t->n++];
}

static void add(measures *t, const char *name, const char *per, double sum, double count)
{
    measure *e = entry(t, name, per);
    e->sum += sum;
    e->count += count;
}

void measures_add(measures *t, const char *name, const char *per, double value)
{
    add(t, name, per, value, 1);
}

/* name, per and a number end with a NUL each; numbers are sent as their bytes. */
static void write(const measures *t, ares_str *out)
{
    for (int64_t i = 0; i < t->n; i++) {
        const measure *e = &t->items[i];
        const double numbers[2] = { e->sum, e->count };
        ares_str_add(out, e->name, strlen(e->name) + 1);
        ares_str_add(out, e->per ? e->per : "", e->per ? strlen(e->per) + 1 : 1);
        ares_str_add(out, (const char *)numbers, sizeof numbers);
    }
}

static void merge(measures *t, ares_view bytes)
{
    for (size_t at = 0; at < bytes.len;) {
        double numbers[2];
        const char *name = bytes.data + at, *per = name + strlen(name) + 1;
        at += strlen(name) + strlen(per) + 2;
        memcpy(numbers, bytes.data + at, sizeof numbers);
        at += sizeof numbers;
        add(t, name, *per ? per : NULL, numbers[0], numbers[1]);
    }
}

static void put(measures *t, const char *prefix, ares_metrics *m)
{
    ares_str key = { 0 };
    for (int64_t i = 0; i < t->n; i++) {
        const measure *e = &t->items[i];
        double count = e->per ? entry(t, e->per, NULL)->count : e->count;
        e = &t->items[i]; /* another entry may have moved it */
        ares_str_clear(&key);
        ares_str_addf(&key, "%s%s", prefix, e->name);
        if (count > 0) ares_metrics_set(m, key.data, e->sum / count);
    }
    ares_str_fini(&key);
}

int measures_report(measures *t, ares_world *w, const char *prefix, ares_metrics *m)
{
    ares_str mine = { 0 }, all = { 0 };
    measures whole = { 0 };
    write(t, &mine);
    int rc = ares_world_gather_all(w, mine.data, mine.len, &all, NULL);
    if (rc == ARES_OK) {
        merge(&whole, ares_str_view(&all));
        put(&whole, prefix, m);
    }
    measures_fini(&whole);
    measures_fini(t);
    ares_str_fini(&mine);
    ares_str_fini(&all);
    return rc;
}

void measures_fini(measures *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        ares_free(t->items[i].name);
        ares_free(t->items[i].per);
    }
    ares_free(t->items);
    ares_map_free(t->index);
    *t = (measures){ 0 };
}
