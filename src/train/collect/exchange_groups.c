/*
 * Ranks answer their share of every draw; then each mini-batch's groups go to the ranks anew, so
 * that work is even. Which groups make a mini-batch depends on their places in the batch alone, and
 * so on no rank count.
 */
#include "collect/exchange_groups.h"

#include <string.h>

#include "collect/balance_groups.h"
#include "roles/mini_batches.h"
#include "run/sizes.h"

/* Before the bytes of a group, so that ranks pass over what is not theirs. */
typedef struct wire_group {
    int64_t place, bytes;
} wire_group;

static void write_group(const ares_group *g, ares_str *out)
{
    wire_group head = { .place = g->place };
    size_t at = out->len;
    ares_str_add(out, (const char *)&head, sizeof head);
    ares_group_write(g, out);
    head.bytes = (int64_t)(out->len - at - sizeof head);
    memcpy(out->data + at, &head, sizeof head);
}

/* Takes this rank's groups from those that all ranks have given away. */
static int read_groups(const ares_trainer *t, ares_view in, const int64_t *rank, collection *c)
{
    wire_group head;
    int64_t row;
    while (in.len) {
        memcpy(&head, in.data, sizeof head);
        ares_view bytes = { in.data + sizeof head, (size_t)head.bytes };
        in.data = bytes.data + bytes.len;
        in.len -= sizeof head + bytes.len;
        if (rank[head.place] != ares_world_rank(t->run.world)) continue;
        ares_group *g = collection_add(c);
        ARES_TRY(ares_group_read(&bytes, c->arena, g, &row));
        ares_group_set_row(g, ares_source_row(&t->run.source, row));
    }
    return ARES_OK;
}

/* The work of a group's forward pass, as the update packs it: a prompt shared by rows counts once.
 */
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

/* Groups of a mini-batch; 1 where one may end inside a group. */
static int64_t groups_of(mini_batch_size size, int64_t n)
{
    return !size.rows ? size.count : size.count % n == 0 ? size.count / n : 1;
}

/*
 * Groups are divided among ranks chunk by chunk: the greatest size that divides the mini-batches of
 * the actor and of the critic. Mini-batches of rows may leave no such size that gives every rank a
 * group; then as many groups as there are ranks.
 */
static int64_t chunk_of(const ares_trainer *t)
{
    const ares_train_config *cfg = t->run.cfg;
    int64_t ranks = ares_world_size(t->run.world),
            a = groups_of(mini_batch_size_of_actor(cfg), cfg->rollout.n), b = a;
    if (t->critic) b = groups_of(mini_batch_size_of_critic(cfg), cfg->rollout.n);
    for (int64_t rest; b; b = rest) {
        rest = a % b;
        a = b;
    }
    return a % ranks ? ranks : a;
}

typedef struct wire_place {
    int64_t place, rank, work;
} wire_place;

/*
 * The rank that trains on the group at each of `count` places, the same on every rank. *moves: some
 * group was answered by another rank.
 */
static int choose_ranks(ares_trainer *t, const collection *c, int64_t count, int64_t *rank,
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

int exchange_groups(ares_trainer *t, collection *c, int64_t count)
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
    return ares_world_agree(t->run.world, rc);
}
