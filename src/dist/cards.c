/*
 * How the bytes of groups travel between cards. Every rank tells which card it has and whether it
 * has NCCL; all see what all have told and come to the same choice.
 */
#include "group.h"

#include <stdio.h>
#include <string.h>

typedef struct told {
    uint8_t card[16];
    int version;
    char lacks[240]; /* why this rank has no NCCL; "": it has */
} told;

static void tell(ares_device *d, const ares_dist_twins *twins, told *t)
{
    *t = (told){ .version = -1 };
    twins->card(d, t->card);
    if (twins->find(&t->version) == ARES_OK) return;
    snprintf(t->lacks, sizeof t->lacks, "%s", ares_error_message());
    ares_error_clear();
}

/* Two ranks on one card, as NCCL allows it only where its own options say so. */
static bool find_shared(const told *t, int n, ares_str *why)
{
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (memcmp(t[a].card, t[b].card, sizeof t->card) == 0) {
                ares_str_addf(why, "ranks %d and %d share a card", a, b);
                return true;
            }
    return false;
}
static bool find_lack(const told *t, int n, ares_str *why)
{
    for (int r = 0; r < n; r++) {
        if (*t[r].lacks) ares_str_addf(why, "rank %d has no NCCL: %s", r, t[r].lacks);
        else if (t[r].version != t[0].version)
            ares_str_addf(why, "rank %d has another NCCL (%d) than rank 0 (%d)", r, t[r].version,
                          t[0].version);
        else continue;
        return true;
    }
    return false;
}

/* NULL: what was asked for is not to be had. */
static const dist_way *choose(dist_transport wanted, const told *t, int n, ares_str *why)
{
    if (wanted == DIST_STAGED) ares_str_add_z(why, "trainer.comm_transport = staged");
    else if (wanted == DIST_NCCL) {
        if (find_lack(t, n, why)) return NULL;
        ares_str_add_z(why, "trainer.comm_transport = nccl");
    } else if (!find_shared(t, n, why) && !find_lack(t, n, why))
        ares_str_add_z(why, "each has a card of its own");
    else return &dist_staged;
    return wanted == DIST_STAGED ? &dist_staged : &dist_nccl;
}

static int count_same(const told *t, int n, const told *mine)
{
    int same = 0;
    for (int r = 0; r < n; r++) same += memcmp(t[r].card, mine->card, sizeof mine->card) == 0;
    return same;
}

static void say(const dist_way *way, const told *t, int size, const char *why)
{
    if (way == &dist_nccl)
        ares_info("dist: groups of %d ranks exchange by NCCL %d.%d.%d: %s", size,
                  t->version / 10000, t->version / 100 % 100, t->version % 100, why);
    else ares_info("dist: groups of %d ranks exchange over host memory: %s", size, why);
}

int dist_way_choose(ares_group *g)
{
    told mine;
    ares_world *w = g->world;
    ares_str all = { 0 }, why = { 0 };
    tell(g->device, g->twins, &mine);
    int rc = ares_world_gather_all(w, &mine, sizeof mine, &all, NULL);
    if (rc == ARES_OK) {
        const told *t = (const told *)(const void *)all.data;
        g->on_card = count_same(t, w->size, &mine);
        g->way = choose(w->transport, t, w->size, &why);
        if (g->way) say(g->way, t, g->size, why.data);
        else
            rc =
                ares_fail(ARES_EUNSUPPORTED, "dist: trainer.comm_transport = 'nccl': %s", why.data);
    }
    ares_str_fini(&all);
    ares_str_fini(&why);
    return rc;
}
