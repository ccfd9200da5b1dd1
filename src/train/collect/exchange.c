/*
 * From the groups that a rank has answered to the rows that it trains on: which rank gets which
 * groups, so that work is even; sending the groups there; and bringing the number of rows to
 * whole mini-batches.
 */
#include "collect.h"
#include "plan/plan.h"
#include "roles.h"

#include <string.h>

#include "ares/algo_filter.h"
#include "ares/data.h"

/*
 * A mini-batch ends when its slowest rank does, so work is divided evenly within each chunk. The
 * largest part of a chunk goes to the rank with the least work so far, so that passes over the
 * whole batch end together as well.
 */

/*
 * Parts come in descending order of their work; each goes to the rank that had the least work so
 * far, the first of several. part: from the number of a part to the rank; had: brought up to date.
 */
static void assign_parts(const int64_t *work, int64_t n, int64_t ranks, int64_t *had, int64_t *part)
{
    int64_t *of = ares_malloc((size_t)ranks * sizeof *of);
    bool *taken = ares_calloc((size_t)ranks, sizeof *taken);
    for (int64_t j = 0; j < ranks; j++) {
        int64_t least = -1;
        for (int64_t r = 0; r < ranks; r++)
            if (!taken[r] && (least < 0 || had[r] < had[least])) least = r;
        taken[least] = true;
        of[j] = least;
    }
    for (int64_t i = 0; i < n; i++) {
        part[i] = of[part[i]];
        had[part[i]] += work[i];
    }
    ares_free(taken);
    ares_free(of);
}

int balance_groups(const int64_t *work, int64_t count, int64_t chunk, int64_t ranks, bool balance,
                   int64_t *rank)
{
    int64_t *had = ares_calloc((size_t)ranks, sizeof *had);
    int rc = ARES_OK;
    for (int64_t i = 0; i < count; i++) rank[i] = i % ranks;
    for (int64_t at = 0; balance && at < count && rc == ARES_OK; at += chunk) {
        int64_t n = ARES_MIN(chunk, count - at);
        rc = ares_balance_parts(work + at, n, ranks, false, rank + at);
        if (rc == ARES_OK) assign_parts(work + at, n, ranks, had, rank + at);
    }
    ares_free(had);
    return rc;
}

/*
 * Ranks answer their share of every draw; then each mini-batch's groups go to the ranks anew, so
 * that work is even. Which groups make a mini-batch depends on their places in the batch alone, and
 * so on no rank count.
 */

/* Stands before the bytes of a group, so that ranks can skip groups that are not theirs. */
typedef struct wire_group {
    int64_t place, bytes;
} wire_group;

static void write_group(const ares_group *g, ares_str *out)
{
    wire_group head = { .place = g->place };
    size_t at = out->len;
    ares_str_add(out, (const char *)&head, sizeof head);
    ares_group_write(g, out);
    head.bytes = (int64_t)(out->len - at - sizeof head); /* known only now */
    memcpy(out->data + at, &head, sizeof head);
}

/* Adds this rank's groups, out of all that ranks have given away. */
static int read_groups(const ares_trainer *t, ares_view in, const int64_t *rank, step_groups *c)
{
    wire_group head;
    int64_t row;
    while (in.len) {
        memcpy(&head, in.data, sizeof head);
        ares_view bytes = { in.data + sizeof head, (size_t)head.bytes };
        in.data = bytes.data + bytes.len;
        in.len -= sizeof head + bytes.len;
        if (rank[head.place] != ares_world_rank(t->run.world)) continue;
        ares_group *g = step_groups_add(c);
        ARES_TRY(ares_group_read(&bytes, c->arena, g, &row));
        ares_group_set_row(g, ares_source_row(&t->run.source, row));
    }
    return ARES_OK;
}

/* The work of a group's forward pass as the update packs it: a shared prompt counts once. */
static int64_t work_of(const ares_trainer *t, const ares_group *g)
{
    int64_t tokens = 0, squares = 0;
    const int32_t *shared = NULL;
    for (int32_t i = 0; i < g->n; i++) {
        const ares_trajectory *y = &g->items[i];
        for (int32_t r = 0; r < y->n_rows && ares_trajectory_kept(g, y); r++) {
            const ares_trajectory_row *x = &y->rows[r];
            int64_t prompt = x->prompt_len;
            /* the last token is not fed */
            int64_t length = prompt + ARES_MAX(x->n_tokens - 1, 0);
            bool again = t->run.cfg->actor.share_prompts && x->prompt == shared;
            tokens += again ? length - prompt : length;
            squares += length * length - (again ? prompt * prompt : 0);
            shared = x->prompt;
        }
    }
    return train_work(&t->run.model->cfg, tokens, squares);
}

/*
 * Groups are divided among ranks chunk by chunk: the greatest size that divides the mini-batches of
 * the actor and of the critic. Mini-batches of rows may leave no such size that gives every rank a
 * group; then as many groups as there are ranks.
 */
static int64_t chunk_of(const ares_trainer *t)
{
    const ares_train_config *cfg = t->run.cfg;
    const mini_batch_size sizes[] = { mini_batch_size_of_actor(cfg),
                                      mini_batch_size_of_critic(cfg) };
    int64_t ranks = ares_world_size(t->run.world), n = cfg->rollout.n, chunk = 0;
    for (int i = 0; i < (t->critic ? 2 : 1); i++) {
        /* groups of a mini-batch; 1 where it may end inside a group of n answers */
        int64_t groups = !sizes[i].rows            ? sizes[i].count
                         : sizes[i].count % n == 0 ? sizes[i].count / n
                                                   : 1;
        for (int64_t rest; groups; groups = rest) { /* Euclid's algorithm; of 0 and x it is x */
            rest = chunk % groups;
            chunk = groups;
        }
    }
    return chunk % ranks ? ranks : chunk;
}

typedef struct wire_place {
    int64_t place, rank, work;
} wire_place;

/*
 * The rank that trains on the group at each of `count` places, the same on every rank. *moves: some
 * group was answered by another rank.
 */
static int choose_ranks(ares_trainer *t, const step_groups *c, int64_t count, int64_t *rank,
                        bool *moves)
{
    wire_place *mine = ares_arena_alloc(c->arena, ((size_t)c->count + 1) * sizeof *mine);
    int64_t *work = ares_arena_calloc(c->arena, (size_t)count + 1, sizeof *work);
    ares_str all = { 0 };
    for (int64_t g = 0; g < c->count; g++)
        mine[g] = (wire_place){ c->items[g].place, ares_world_rank(t->run.world),
                                work_of(t, &c->items[g]) };
    int rc = ares_world_gather_all(t->run.world, mine, (size_t)c->count * sizeof *mine, &all, NULL);
    const wire_place *places = (const wire_place *)(const void *)all.data;
    for (int64_t i = 0; i < count && rc == ARES_OK; i++) work[places[i].place] = places[i].work;
    if (rc == ARES_OK)
        rc = balance_groups(work, count, chunk_of(t), ares_world_size(t->run.world),
                            t->run.cfg->trainer.balance_batch, rank);
    *moves = false;
    for (int64_t i = 0; i < count && rc == ARES_OK; i++)
        *moves = *moves || rank[places[i].place] != places[i].rank;
    ares_str_fini(&all);
    return rc;
}

int exchange_groups(ares_trainer *t, step_groups *c, int64_t count)
{
    int64_t me = ares_world_rank(t->run.world), kept = 0;
    int64_t *rank = ares_arena_alloc(c->arena, ((size_t)count + 1) * sizeof *rank);
    bool moves;
    ares_str out = { 0 }, all = { 0 };
    ARES_TRY(choose_ranks(t, c, count, rank, &moves));
    if (!moves) return ARES_OK;
    for (int64_t g = 0; g < c->count; g++) {
        ares_group group = c->items[g];
        if (rank[group.place] == me) c->items[kept++] = group;
        else write_group(&group, &out);
    }
    c->count = kept;
    int rc = ares_world_gather_all(t->run.world, out.data, out.len, &all, NULL);
    if (rc == ARES_OK) rc = read_groups(t, ares_str_view(&all), rank, c);
    ares_str_fini(&out);
    ares_str_fini(&all);
    return ares_world_share_error(t->run.world, rc);
}

/*
 * Rows are numbered over all ranks as for mini-batches, and the choice is one of numbers, so that
 * every rank makes the same one and no rank count changes it. A copy stands directly after its row,
 * on the same rank and in the same group: nothing is sent, and places still ascend.
 */

/*
 * Answers of a group; all = false: only those with a row that counts. The rows of an episode, which
 * are adjacent, are one answer.
 */
static int64_t answers_of(const ares_batch *b, int64_t group, bool all)
{
    int64_t n = 0, episode = 0;
    for (int64_t r = b->group_start[group]; r < b->group_start[group + 1]; r++) {
        if (!all && !ares_batch_row_counts(b, r)) continue;
        n += !episode || b->samples[r].episode != episode;
        episode = b->samples[r].episode;
    }
    return n;
}

/*
 * Takes out of the batch the rows that train nothing. compares: the estimator compares answers: the
 * rows of an answer go too where no other answer of its group is left. *total: rows that are left,
 * of all ranks.
 */
static int drop_idle(bool compares, ares_world *world, ares_batch *b, int64_t *total)
{
    int64_t n = 0, *order = ares_arena_alloc(&b->arena, ((size_t)b->rows + 1) * sizeof *order);
    for (int64_t g = 0; g < b->groups; g++) {
        if (compares && answers_of(b, g, false) < ARES_MIN(2, answers_of(b, g, true))) continue;
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++)
            if (ares_batch_row_counts(b, r)) order[n++] = r;
    }
    *total = n;
    ARES_TRY(ares_world_sum_i64(world, total, 1));
    /* a step in which nothing is trained keeps its rows */
    if (*total) ares_batch_take(b, order, n);
    return ARES_OK;
}

/* The batch of total rows over all ranks becomes one of target rows, chosen at random. */
static int take_rows(const ares_train_config *cfg, ares_world *world, int64_t step, ares_batch *b,
                     int64_t total, int64_t target)
{
    ares_rng_key key = ares_rng_sub(ares_rng_root((uint64_t)cfg->rollout.seed, ARES_RNG_ADJUST),
                                    (uint64_t)step, 0);
    int64_t change = target > total ? target - total : total - target;
    /* times: of each row in the new batch; ids: of rows that are copied or left out */
    int64_t *times = ares_arena_alloc(&b->arena, ((size_t)total + 1) * sizeof *times),
            *ids = ares_arena_alloc(&b->arena, (size_t)(ARES_MAX(total, target) + 1) * sizeof *ids),
            *first = ares_arena_alloc(&b->arena, ((size_t)b->groups + 1) * sizeof *first), n = 0,
            numbered;
    ARES_TRY(mini_batches_number_rows(b, world, first, &numbered));
    ARES_ASSERT(numbered == total);
    for (int64_t i = 0; i < total; i++) {
        ids[i] = i;
        times[i] = 1;
    }
    if (change <= total) ares_rng_shuffle(key, ids, total); /* each row once at most */
    else
        for (int64_t i = 0; i < change; i++)
            ids[i] = (int64_t)ares_rng_below(key, (uint64_t)i, (uint64_t)total);
    for (int64_t i = 0; i < change; i++) times[ids[i]] += target > total ? 1 : -1;
    int64_t *order =
        ares_arena_alloc(&b->arena, (size_t)(ARES_MAX(total, target) + 1) * sizeof *order);
    for (int64_t g = 0; g < b->groups; g++)
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++)
            for (int64_t k = times[first[g] + r - b->group_start[g]]; k > 0; k--) order[n++] = r;
    ares_batch_take(b, order, n);
    return ARES_OK;
}

int adjust_batch(const ares_train_config *cfg, const ares_adv *adv, ares_world *world, int64_t step,
                 ares_batch *b, ares_metrics *m)
{
    mini_batch_size size = mini_batch_size_of_actor(cfg);
    const char *mode = cfg->filter.batch_adjust;
    int64_t total, rows;
    if (strcmp(mode, "none") == 0) return ARES_OK;
    ARES_TRY(drop_idle(adv->needs & ARES_NEEDS_GROUPS, world, b, &total));
    /* the rows of a mini-batch, as the actor and the critic have them */
    int64_t divisor = ares_batch_adjust_divisor(cfg->data.rollout_batch_size, size.count,
                                                mini_batch_size_of_critic(cfg).count);
    rows = ares_batch_adjust_target(strcmp(mode, "copy") == 0, total, divisor);
    /* fewer rows than a mini-batch, to be deleted: they stay, masked, and train nothing */
    if (total && !rows) memset(b->response_mask, 0, (size_t)b->tokens);
    else if (rows != total) ARES_TRY(take_rows(cfg, world, step, b, total, rows));
    ares_metrics_set(m, "train/batch_size", (double)rows);
    ares_metrics_set(m, "train/num_mini_batches", (double)((rows + size.count - 1) / size.count));
    return ARES_OK;
}
