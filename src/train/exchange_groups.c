/*
 * Ranks answer their share of every draw; then each mini-batch's groups go to the ranks anew, so
 * that work is even. Which groups make a mini-batch depends on their places in the batch alone, and
 * so on no rank count.
 */
#include "exchange_groups.h"

#include <string.h>

#include "balance_groups.h"

/*
 * A group as bytes: this header, then for each answer a wire_sample with its arrays and text.
 * bytes: of all of it
 */
typedef struct wire_group {
    int64_t draw, row, place, bytes;
    float baseline;
    bool masked, thinned;
} wire_group;
typedef struct wire_sample {
    int64_t text; /* bytes of the response */
    int32_t n_tokens, finish;
    float score, accuracy;
    bool stopped, failed, marked, discarded;
} wire_sample;

static void put(ares_str *out, const void *data, size_t bytes)
{
    ares_str_add(out, data, bytes);
}

static void write_group(const generate_group *g, int64_t n, int parts, ares_str *out)
{
    wire_group head = { g->draw, g->row->id, g->place, 0, g->baseline, g->masked, g->thinned };
    size_t at = out->len;
    put(out, &head, sizeof head);
    for (int64_t i = 0; i < n; i++) {
        const generate_sample *s = &g->samples[i];
        const ares_completion *c = &s->completion;
        wire_sample w = { (int64_t)s->item.in.response.len,
                          c->n_tokens,
                          (int32_t)c->finish,
                          s->item.score,
                          s->item.accuracy,
                          s->item.in.stopped,
                          s->item.failed,
                          s->hwe_candidates != NULL,
                          s->discarded };
        size_t bytes = (size_t)c->n_tokens * 4;
        put(out, &w, sizeof w);
        put(out, c->ids, bytes);
        put(out, c->log_probs, bytes);
        put(out, c->entropies, bytes);
        put(out, c->entropies_1, bytes);
        if (w.marked) put(out, s->hwe_candidates, (size_t)c->n_tokens);
        put(out, s->item.parts, (size_t)parts * sizeof(float));
        put(out, s->item.in.response.data, s->item.in.response.len);
    }
    head.bytes = (int64_t)(out->len - at);
    memcpy(out->data + at, &head, sizeof head);
}

static const void *take(const char **at, size_t bytes, ares_arena *arena)
{
    const void *taken = ares_arena_copy(arena, *at, bytes);
    *at += bytes;
    return taken;
}

static void read_group(const ares_trainer *t, const char *at, int64_t n, int parts,
                       ares_arena *arena, generate_group *g)
{
    wire_group head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    *g = (generate_group){ .draw = head.draw,
                           .row = ares_dataset_row(t->run.train, head.row),
                           .baseline = head.baseline,
                           .place = head.place,
                           .masked = head.masked,
                           .thinned = head.thinned,
                           .samples = ares_arena_calloc(arena, (size_t)n, sizeof *g->samples) };
    for (int64_t i = 0; i < n; i++) {
        wire_sample w;
        memcpy(&w, at, sizeof w);
        at += sizeof w;
        size_t bytes = (size_t)w.n_tokens * 4;
        generate_sample *s = &g->samples[i];
        s->discarded = w.discarded;
        s->completion = (ares_completion){ .index = (int32_t)i,
                                           .n_tokens = w.n_tokens,
                                           .finish = (ares_finish)w.finish };
        s->completion.ids = take(&at, bytes, arena);
        s->completion.log_probs = take(&at, bytes, arena);
        s->completion.entropies = take(&at, bytes, arena);
        s->completion.entropies_1 = take(&at, bytes, arena);
        if (w.marked) {
            s->hwe_candidates = (uint8_t *)ares_arena_copy(arena, at, (size_t)w.n_tokens);
            at += w.n_tokens;
        }
        s->item =
            (ares_reward_item){ .score = w.score, .accuracy = w.accuracy, .failed = w.failed };
        s->item.parts = (float *)(void *)ares_arena_copy(arena, at, (size_t)parts * sizeof(float));
        at += (size_t)parts * sizeof(float);
        s->item.in = (ares_verify_in){ .ground_truth = g->row->ground_truth,
                                       .prompt = g->row->prompt_text,
                                       .stopped = w.stopped,
                                       .row = g->row->json };
        s->item.in.response = (ares_view){ take(&at, (size_t)w.text, arena), (size_t)w.text };
    }
}

/* The work of a group's forward pass, as the update packs it. */
static int64_t work_of(const ares_trainer *t, const generate_group *g)
{
    int64_t prompt = g->row->prompt_len, shared = t->run.cfg->actor.share_prompts ? prompt : 0;
    int64_t tokens = shared, squares = shared * shared;
    for (int64_t i = 0; i < t->run.cfg->rollout.n; i++) {
        if (g->thinned && g->samples[i].discarded) continue;
        /* the last token is not fed */
        int64_t length = prompt + ARES_MAX(g->samples[i].completion.n_tokens - 1, 0);
        tokens += length - shared;
        squares += length * length - shared * shared;
    }
    return ares_train_work(&t->run.model->cfg, tokens, squares);
}

/*
 * Groups are divided among ranks chunk by chunk: the greatest size that divides the mini-batches of
 * the actor and of the critic.
 */
static int64_t chunk_of(const ares_trainer *t)
{
    int64_t a = t->run.cfg->actor.global_batch_size,
            b = t->critic ? t->run.cfg->critic.global_batch_size : a;
    if (b == ARES_NULL_I64) b = a;
    for (int64_t rest; b; b = rest) {
        rest = a % b;
        a = b;
    }
    return a;
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
    int64_t n = t->run.cfg->rollout.n, me = ares_world_rank(t->run.world), kept = 0;
    int64_t *rank = ares_arena_alloc(c->arena, ((size_t)count + 1) * sizeof *rank);
    int parts = ares_reward_count(t->reward);
    bool moves;
    ares_str out = { 0 }, all = { 0 };
    ARES_TRY(choose_ranks(t, c, count, rank, &moves));
    if (!moves) return ARES_OK;
    for (int64_t g = 0; g < c->count; g++) {
        generate_group group = c->items[g];
        if (rank[group.place] == me) c->items[kept++] = group;
        else write_group(&group, n, parts, &out);
    }
    c->count = kept;
    int rc = ares_world_gather_all(t->run.world, out.data, out.len, &all, NULL);
    ares_str_fini(&out);
    for (const char *at = all.data, *end = at + (rc == ARES_OK ? all.len : 0); at < end;) {
        wire_group head;
        memcpy(&head, at, sizeof head);
        if (rank[head.place] == me) read_group(t, at, n, parts, c->arena, collection_add(c));
        at += head.bytes;
    }
    ares_str_fini(&all);
    return rc;
}
