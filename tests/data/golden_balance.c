/* Shares of unequal lengths. A case lists the indices of each part; we give the part of an index.
 */
#include "golden.h"

#include "../../src/data/internal.h"
#include "ares/data.h"

static int64_t *whole(golden *g, const char *key, int64_t *n)
{
    const double *x = golden_flat(g, golden_in(g, key), n);
    int64_t *i = ares_arena_alloc(g->arena, (size_t)(*n + 1) * sizeof *i);
    for (int64_t k = 0; k < *n; k++) i[k] = (int64_t)x[k];
    return i;
}

static void check_parts(golden *g, const int64_t *length, int64_t n, const int64_t *part, int64_t k,
                        const ares_json *parts, const ares_json *sums)
{
    double *x = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *x),
           *sum = ares_arena_calloc(g->arena, (size_t)k + 1, sizeof *sum);
    for (int64_t j = 0; j < k && j < parts->count; j++) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++) {
            if (part[i] != j) continue;
            x[count++] = (double)i;
            sum[j] += (double)length[i];
        }
        golden_numbers(g, "part", x, count, &parts->items[j]);
    }
    golden_numbers(g, "sums", sum, k, sums);
}

GOLDEN(aepo, karmarkar_karp)
{
    int64_t n, k = (int64_t)golden_number(g, "k");
    const int64_t *length = whole(g, "lens", &n);
    int64_t *part = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *part);
    if (golden_ok(g, ares_balance_parts(length, n, k, golden_number(g, "equal_size") != 0, part)))
        check_parts(g, length, n, part, k, golden_want(g, "partitions"), golden_want(g, "sums"));
}

GOLDEN(aepo, seqlen_unbalance_metrics)
{
    int64_t n;
    const int64_t *length = whole(g, "lens", &n);
    const ares_json *parts = golden_in(g, "partitions");
    int64_t *part = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *part);
    for (int64_t j = 0; j < parts->count; j++)
        for (int64_t i = 0; i < parts->items[j].count; i++)
            part[parts->items[j].items[i].integer] = j;
    ares_metrics *m = ares_metrics_new();
    ares_balance_report(length, n, parts->count, part, golden_z(g, "prefix"), m);
    for (int64_t i = 0; i < g->expected->count; i++) {
        const ares_json_member *want = &g->expected->members[i];
        const char *name = ares_arena_copy(g->arena, want->key.data, want->key.len);
        double value;
        if (ares_metrics_get(m, name, &value)) golden_near(g, name, value, want->value);
        else golden_fail(g, "no metric %s", name);
    }
    ares_metrics_free(m);
}

/* The golden's order is that of one card. */
GOLDEN(agentic, balance_batch_order)
{
    int64_t n;
    const int64_t *length = whole(g, "seqlens", &n);
    int64_t *order = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *order);
    double *x = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *x);
    if (golden_number(g, "world_size") != 1)
        golden_fail(g, "an order of %g cards", golden_number(g, "world_size"));
    ares_balance_order(length, n, order);
    for (int64_t i = 0; i < n; i++) x[i] = (double)order[i];
    golden_numbers(g, "order", x, n, g->expected);
}

GOLDEN(aepo, dynamic_micro_batches)
{
    int64_t n, k;
    const int64_t *length = whole(g, "lens", &n);
    int64_t *part = ares_arena_alloc(g->arena, (size_t)(n + 1) * sizeof *part);
    if (golden_ok(g, balance_micro_batches(length, n, (int64_t)golden_number(g, "max_token_len"), 1,
                                           &k, part)))
        check_parts(g, length, n, part, k, golden_want(g, "micro_batches"),
                    golden_want(g, "tokens"));
}
