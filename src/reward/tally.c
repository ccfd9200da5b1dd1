/* Names travel with their sums, because ranks may have different names: a row's rm_type decides. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct sums {
    double sum, count;
    tally_kind kind; /* as it was when the name first came */
} sums;

struct tally {
    ares_map *names; /* -> index into sums, in the order in which they first came */
    sums *sums;
    int64_t cap;
};

tally *tally_new(void)
{
    tally *t = ares_calloc(1, sizeof *t);
    t->names = ares_map_new();
    return t;
}

void tally_free(tally *t)
{
    if (!t) return;
    ares_map_free(t->names);
    ares_free(t->sums);
    ares_free(t);
}

/* Adds s to the sums of that name, which start at zero. */
static void add(tally *t, ares_view name, const sums *s)
{
    int64_t i = ares_map_count(t->names);
    if (!ares_map_get(t->names, name, &i)) {
        if (i == t->cap) {
            t->cap = t->cap * 2 + 32;
            t->sums = ares_realloc(t->sums, (size_t)t->cap * sizeof *t->sums);
        }
        ares_map_put(t->names, name, i);
        t->sums[i] = (sums){ 0, 0, s->kind };
    }
    t->sums[i].sum += s->sum;
    t->sums[i].count += s->count;
}

void tally_add(tally *t, tally_kind kind, double sum, double count, const char *format, ...)
{
    char name[200]; /* a longer one is cut: names are of entries and verifiers, and short */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    add(t, ares_view_of(name), &(sums){ sum, count, kind });
}

int tally_report(tally *t, ares_world *w, const char *prefix, ares_metrics *m)
{
    ares_str mine = { 0 }, all = { 0 }; /* per name: sums, length of the name, name */
    tally *merged = tally_new();
    for (int64_t i = 0; i < ares_map_count(t->names); i++) {
        ares_view name = ares_map_key(t->names, i);
        ares_str_add(&mine, (const char *)&t->sums[i], sizeof t->sums[i]);
        ares_str_add(&mine, (const char *)&name.len, sizeof name.len);
        ares_str_add_view(&mine, name);
    }
    /* every rank gets the bytes of all ranks in rank order, so all sums are the same bits */
    int rc = ares_world_gather_all(w, mine.data ? mine.data : "", mine.len, &all, NULL);
    for (size_t at = 0; rc == ARES_OK && at < all.len;) {
        sums s;
        size_t length;
        memcpy(&s, all.data + at, sizeof s);
        memcpy(&length, all.data + at + sizeof s, sizeof length);
        at += sizeof s + sizeof length;
        add(merged, (ares_view){ all.data + at, length }, &s);
        at += length;
    }
    for (int64_t i = 0; i < ares_map_count(merged->names); i++) {
        char name[240];
        ares_view key = ares_map_key(merged->names, i);
        const sums *s = &merged->sums[i];
        snprintf(name, sizeof name, "%s%.*s", prefix, (int)key.len, key.data);
        if (s->kind == TALLY_MEAN && s->count == 0) continue; /* a mean of nothing is no metric */
        ares_metrics_set(m, name,
                         s->kind == TALLY_MEAN    ? s->sum / s->count
                         : s->kind == TALLY_TOTAL ? s->sum
                                                  : s->sum == 0);
    }
    tally_free(merged);
    /* the next report starts from nothing; the memory of the sums is kept */
    ares_map_free(t->names);
    t->names = ares_map_new();
    ares_str_fini(&mine);
    ares_str_fini(&all);
    return rc;
}
