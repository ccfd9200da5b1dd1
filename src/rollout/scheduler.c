/* What the engine computes next: first the blocks of the paged cache, then the choice of rows. */
#include "internal.h"

#include <string.h>

/*
 * The blocks of the paged cache: a stack of free ones, a count of users per block, and the index by
 * which blocks are found again.
 */

void rollout_blocks_init(rollout_blocks *b, int32_t total)
{
    size_t n = (size_t)total;
    *b = (rollout_blocks){ .total = total, .buckets = 64 };
    while (b->buckets < total) b->buckets *= 2;
    b->free_list = ares_malloc(n * sizeof *b->free_list);
    b->refs = ares_malloc(n * sizeof *b->refs);
    b->serial = ares_malloc(n * sizeof *b->serial);
    b->parent = ares_malloc(n * sizeof *b->parent);
    b->ids = ares_malloc(n * ARES_KV_BLOCK * sizeof *b->ids);
    b->filled = ares_malloc(n * sizeof *b->filled);
    b->bucket = ares_malloc((size_t)b->buckets * sizeof *b->bucket);
    b->next = ares_malloc(n * sizeof *b->next);
    b->older = ares_malloc(n * sizeof *b->older);
    b->newer = ares_malloc(n * sizeof *b->newer);
    rollout_blocks_reset(b);
}

void rollout_blocks_fini(rollout_blocks *b)
{
    void *all[] = { b->free_list, b->refs,   b->serial, b->parent, b->ids,
                    b->filled,    b->bucket, b->next,   b->older,  b->newer };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
}

void rollout_blocks_reset(rollout_blocks *b)
{
    b->n_free = b->total;
    b->n_idle = 0;
    b->oldest = b->newest = -1;
    for (int32_t i = 0; i < b->total; i++) {
        b->free_list[i] = b->total - 1 - i;
        b->refs[i] = 0;
        b->serial[i] = 0;
    }
    for (int32_t i = 0; i < b->buckets; i++) b->bucket[i] = -1;
}

int32_t rollout_blocks_available(const rollout_blocks *b)
{
    return b->n_free + b->n_idle;
}

/* ---------------------------------------------------------------- idle blocks, oldest first */
static void leave_idle(rollout_blocks *b, int32_t block)
{
    int32_t older = b->older[block], newer = b->newer[block];
    *(older >= 0 ? &b->newer[older] : &b->oldest) = newer;
    *(newer >= 0 ? &b->older[newer] : &b->newest) = older;
    b->n_idle--;
}
/* ---------------------------------------------------------------- the index */
/* Where a block of n tokens is listed; one that is not full is looked for by its parent alone. */
static int32_t *bucket_of(const rollout_blocks *b, uint64_t parent, const int32_t *ids, int32_t n)
{
    uint64_t h = (parent ^ 0xCBF29CE484222325ULL) * 0x9E3779B97F4A7C15ULL;
    for (int i = 0; n == ARES_KV_BLOCK && i < n; i++)
        h = (h ^ (uint32_t)ids[i]) * 0x9E3779B97F4A7C15ULL;
    return &b->bucket[(h >> 32) & (uint64_t)(b->buckets - 1)];
}

static const int32_t *ids_of(const rollout_blocks *b, int32_t block)
{
    return b->ids + (int64_t)block * ARES_KV_BLOCK;
}

static bool holds(const rollout_blocks *b, int32_t block, uint64_t parent, const int32_t *ids)
{
    return b->parent[block] == parent &&
           memcmp(ids_of(b, block), ids, (size_t)b->filled[block] * sizeof *ids) == 0;
}

int32_t rollout_block_find(const rollout_blocks *b, uint64_t parent, const int32_t *ids)
{
    int32_t i = *bucket_of(b, parent, ids, ARES_KV_BLOCK);
    while (i >= 0 && (b->filled[i] < ARES_KV_BLOCK || !holds(b, i, parent, ids))) i = b->next[i];
    return i;
}

uint64_t rollout_block_keep(rollout_blocks *b, int32_t block, uint64_t parent, const int32_t *ids,
                            int32_t n)
{
    int32_t found = n == ARES_KV_BLOCK ? rollout_block_find(b, parent, ids) : -1;
    if (found >= 0) return b->serial[found];
    int32_t *first = bucket_of(b, parent, ids, n);
    memcpy(b->ids + (int64_t)block * ARES_KV_BLOCK, ids, (size_t)n * sizeof *ids);
    b->parent[block] = parent;
    b->filled[block] = n;
    b->next[block] = *first;
    *first = block;
    return b->serial[block] = ++b->last_serial;
}

/* Takes a block out of the index. */
static void forget(rollout_blocks *b, int32_t block)
{
    int32_t *at = bucket_of(b, b->parent[block], ids_of(b, block), b->filled[block]);
    while (*at != block) at = &b->next[*at];
    *at = b->next[block];
    b->serial[block] = 0;
}

int32_t rollout_block_take_part(rollout_blocks *b, uint64_t parent, const int32_t *ids, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = *bucket_of(b, parent, NULL, 0); i >= 0; i = b->next[i])
        if (b->filled[i] <= ARES_MIN(n, ARES_KV_BLOCK - 1) && holds(b, i, parent, ids) &&
            (best < 0 || b->filled[i] > b->filled[best]))
            best = i;
    if (best < 0) return -1;
    ARES_ASSERT(b->refs[best] == 0);
    leave_idle(b, best);
    forget(b, best);
    b->refs[best] = 1;
    return best;
}

/* ---------------------------------------------------------------- users */
int32_t rollout_block_take(rollout_blocks *b)
{
    int32_t block = b->oldest;
    if (b->n_free) {
        block = b->free_list[--b->n_free];
    } else if (block >= 0) {
        leave_idle(b, block);
        forget(b, block);
    } else {
        return -1;
    }
    b->refs[block] = 1;
    return block;
}

void rollout_block_ref(rollout_blocks *b, int32_t block)
{
    ARES_ASSERT(b->refs[block] > 0 || b->serial[block]);
    if (b->refs[block]++ == 0) leave_idle(b, block);
}

void rollout_block_drop(rollout_blocks *b, int32_t block)
{
    ARES_ASSERT(b->refs[block] > 0);
    if (--b->refs[block]) return;
    if (!b->serial[block]) {
        b->free_list[b->n_free++] = block;
        return;
    }
    b->older[block] = b->newest;
    b->newer[block] = -1;
    *(b->newest >= 0 ? &b->newer[b->newest] : &b->oldest) = block;
    b->newest = block;
    b->n_idle++;
}

/*
 * Which rows the next forward holds. Running samples come first, with one row each, or more after a
 * preemption, whose tokens are computed again. The rest of the row budget prefills prompts in order
 * of arrival. A prompt begins with the blocks that the cache holds already, the last of which may
 * be the partial one of a finished sample; but its last token at least is computed, for its hidden
 * state is needed. A sample starts by sharing the whole blocks of its prompt and copying the last,
 * partial one; those of all samples that start in a step are copied at once.
 *
 * Where steps are planned ahead (pipelined.c), the tokens of the step before are not known yet. A
 * sample that ends with one of them has a row too many in this step, whose token is dropped.
 *
 * When blocks run out, prompts that only wait lose theirs first, then samples that the clock of
 * ares_rollout_hold has parked; then the sample admitted last goes back to waiting. The oldest
 * sample always advances, because ares_rollout_add checked that it fits alone. None of this changes
 * a result.
 */

/* From the end, so that of these blocks those with the longest prefixes are given away first. */
static void drop_all(ares_rollout *r, block_list *l)
{
    while (l->n) rollout_block_drop(&r->blocks, l->block[--l->n]);
    l->n_kept = 0;
    l->kept = l->root;
}

/* Tokens of a prompt (s NULL) or a sample from position `at` on. */
static void tokens_from(const request *q, const sequence *s, int32_t at, int32_t n, int32_t *ids)
{
    for (int32_t i = 0; i < n; i++, at++)
        ids[i] = at < q->prompt_len ? q->content[at] : s->ids[at - q->prompt_len];
}

/* The full blocks among `cached` tokens of a prompt (s NULL) or a sample, as far as ids are known.
 */
static void keep(ares_rollout *r, const request *q, const sequence *s, block_list *l,
                 int32_t cached)
{
    if (s) cached = ARES_MIN(cached, q->prompt_len + s->n);
    if (s && s->slot >= 0) cached = ARES_MIN(cached, s->stated);
    for (; (l->n_kept + 1) * ARES_KV_BLOCK <= cached; l->n_kept++) {
        int32_t ids[ARES_KV_BLOCK];
        tokens_from(q, s, l->n_kept * ARES_KV_BLOCK, ARES_KV_BLOCK, ids);
        l->kept = rollout_block_keep(&r->blocks, l->block[l->n_kept], l->kept, ids, ARES_KV_BLOCK);
    }
}

/* The longest of the kept blocks that are not full and have a snapshot, whose tokens begin ids [n].
 */
static int32_t find_part(const ares_rollout *r, uint64_t parent, const int32_t *ids, int32_t n)
{
    const rollout_blocks *b = &r->blocks;
    int32_t best = -1;
    for (int32_t i = *bucket_of(b, parent, NULL, 0); i >= 0; i = b->next[i])
        if (b->filled[i] <= ARES_MIN(n, ARES_KV_BLOCK - 1) && holds(b, i, parent, ids) &&
            (best < 0 || b->filled[i] > b->filled[best]) &&
            rollout_snapshot_find(&r->states, b->serial[i]))
            best = i;
    return best;
}

/*
 * Keeps what a prompt (s NULL) or a sample has computed of its last block, and the state there as a
 * snapshot. slot: of the state after `cached` tokens; NULL: the model has none. Gives the block's
 * serial number
 */
static uint64_t keep_end(ares_rollout *r, const request *q, const sequence *s, block_list *l,
                         int32_t cached, int32_t *slot)
{
    rollout_blocks *b = &r->blocks;
    keep(r, q, s, l, cached); /* a step may have filled one */
    int32_t ids[ARES_KV_BLOCK], at = l->n_kept * ARES_KV_BLOCK, n = cached - at, block = -1;
    if (n > 0) {
        tokens_from(q, s, at, n, ids);
        block = slot ? find_part(r, l->kept, ids, n) : -1;
        if (block < 0 || b->filled[block] < n) {
            block = l->block[l->n_kept];
            rollout_block_keep(b, block, l->kept, ids, n);
        }
    } else if (slot) {
        block = l->block[l->n_kept - 1];
        /* an equal one was in the index before */
        for (int32_t i = 0; b->serial[block] != l->kept && i < b->total; i++)
            if (b->serial[i] == l->kept) block = i;
    }
    if (!slot || !b->serial[block]) return 0;
    rollout_snapshot_keep(&r->states, block, slot);
    return b->serial[block];
}

void rollout_keep_part(ares_rollout *r, sequence *s)
{
    if (!r->states.cfg) {
        (void)keep_end(r, s->request, s, &s->blocks, s->cached, NULL);
        return;
    }
    if (s->ahead >= 0 && s->cached == s->stated + 1 + s->n_draft) { /* all of it was right */
        rollout_state_drop(&r->states, &s->slot);
        s->slot = s->ahead;
        s->ahead = -1;
        s->stated = s->cached;
    }
    /* the state of what was cut back has seen tokens that are gone */
    if (s->stated > s->cached || !r->states.most) return;
    rollout_snapshot *of_prompt = rollout_snapshot_find(&r->states, s->request->end);
    /* a conversation goes on from its answer: the prompt's is the first to go */
    if (of_prompt && s->request->n == 1) of_prompt->used = 0;
    (void)keep_end(r, s->request, s, &s->blocks, s->stated, &s->slot);
}

void rollout_release_sequence(ares_rollout *r, sequence *s)
{
    drop_all(r, &s->blocks);
    rollout_state_drop(&r->states, &s->slot);
    rollout_state_drop(&r->states, &s->ahead);
    s->cached = s->stated = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < r->n_running; i++)
        if (r->running[i] != s) r->running[kept++] = r->running[i];
    r->n_running = kept;
}

void rollout_release_prompt(ares_rollout *r, request *q)
{
    if (q->waiting) return;
    if (q->slot >= 0 && q->cached && r->states.most)
        q->end = keep_end(r, q, NULL, &q->blocks, q->cached, &q->slot);
    drop_all(r, &q->blocks);
    rollout_state_drop(&r->states, &q->slot);
    q->cached = 0;
}

/* A sample loses its blocks and goes back to waiting. */
static void evict(ares_rollout *r, sequence *s)
{
    s->request->parked -= s->state == SEQ_PARKED;
    rollout_release_sequence(r, s);
    s->state = SEQ_WAITING;
    s->request->waiting++;
    r->stats.preemptions++;
}

/*
 * Takes at least one block from the last waiting prompt other than `filling`, or else from the last
 * parked sample, or else from the one admitted last; false where that sample is `self` or none
 * runs.
 */
static bool free_a_block(ares_rollout *r, const sequence *self, const request *filling)
{
    request *victim = NULL, *parked = NULL;
    for (request *q = r->first; q; q = q->next) {
        if (q->blocks.n && q != filling) victim = q;
        if (q->parked) parked = q;
    }
    if (victim) {
        drop_all(r, &victim->blocks);
        rollout_state_drop(&r->states, &victim->slot);
        victim->cached = 0;
        return true;
    }
    for (int32_t i = parked ? parked->n - 1 : -1; i >= 0; i--)
        if (parked->samples[i].state == SEQ_PARKED) {
            evict(r, &parked->samples[i]);
            return true;
        }
    if (r->n_running == 0) return false;
    sequence *last = r->running[r->n_running - 1];
    if (last == self) return false;
    evict(r, last);
    return true;
}

/* Grows l to hold `tokens`; with force it takes blocks from others where none is free. */
static bool grow(ares_rollout *r, block_list *l, int32_t tokens, const sequence *self,
                 const request *filling, bool force)
{
    while (l->n < blocks_for(tokens)) {
        int32_t block = rollout_block_take(&r->blocks);
        if (block >= 0) l->block[l->n++] = block;
        else if (!force || !free_a_block(r, self, filling)) return false;
    }
    return true;
}

/* Adds a segment with a row per token [from, to) of a sample, or of the prompt (s NULL). */
static void add_rows(ares_rollout *r, const request *q, const sequence *s, const block_list *blocks,
                     int32_t from, int32_t to)
{
    plan *p = r->plan;
    p->start[p->n_seg] = p->rows;
    p->prefix_len[p->n_seg] = from;
    int32_t slot = s ? s->slot : q->slot; /* of the state after `from` tokens */
    p->state_from[p->n_seg] = from ? slot : -1;
    p->state_to[p->n_seg] = s && s->ahead >= 0 ? s->ahead : slot;
    for (int32_t i = 0; i < blocks->n; i++)
        p->table[(int64_t)p->n_seg * r->stride + i] = blocks->block[i];
    size_t width = (size_t)r->model->cfg.hidden;
    for (int32_t k = 0; q->row_media && k < q->row_media->n_places; k++) {
        const ares_place *x = &q->row_media->places[k];
        for (int32_t t = ARES_MAX(x->first, from); t < ARES_MIN(x->first + x->n, to); t++) {
            memcpy(p->features + (size_t)p->n_features * width,
                   q->seen[k].features + (size_t)(t - x->first) * width,
                   width * sizeof *p->features);
            p->feature_rows[p->n_features++] = p->rows + t - from;
        }
    }
    int32_t known = q->prompt_len + (s ? s->n : 0);
    for (int32_t t = from; t < to; t++) {
        bool drafted = t >= known && s->n_draft > 0;
        p->from[p->rows] = t < known || drafted ? -1 : s->out;
        p->ids[p->rows] = drafted             ? s->draft[t - known]
                          : t >= known        ? 0
                          : t < q->prompt_len ? q->prompt[t]
                                              : s->ids[t - q->prompt_len];
        int32_t axes[3];
        ares_media_position(q->row_media, t, &axes[0], &axes[1], &axes[2]);
        p->positions[p->rows] = axes[0];
        if (p->positions_h) p->positions_h[p->rows] = axes[1];
        if (p->positions_w) p->positions_w[p->rows] = axes[2];
        p->slots[p->rows++] = blocks->block[t / ARES_KV_BLOCK] * ARES_KV_BLOCK + t % ARES_KV_BLOCK;
    }
    p->start[++p->n_seg] = p->rows;
    if (p->n_adapted && p->adapted[p->n_adapted - 1].adapter == q->adapter) p->n_adapted--;
    p->adapted[p->n_adapted++] = (ares_adapted){ q->adapter, p->rows };
}

void rollout_plan_reserve(ares_rollout *r, plan *p, int32_t n)
{
    if (n <= p->out_cap) return;
    p->out_cap = ARES_MAX(n, p->out_cap * 2 + 64);
#define GROW(type, name, width) \
    if (width)                  \
        p->name = ares_realloc(p->name, (size_t)p->out_cap * (size_t)(width) * sizeof *p->name);
    PLAN_OUT_COLUMNS(GROW)
#undef GROW
}

/* The sample's next token is drawn from this row of the forward. draft: as in the plan */
static void add_out(ares_rollout *r, int32_t row, sequence *s, int32_t draft)
{
    plan *p = r->plan;
    rollout_plan_reserve(r, p, p->n_out + 1);
    const ares_sampling *g = &s->request->sampling;
    p->out_rows[p->n_out] = row;
    p->out_seq[p->n_out] = s;
    p->out_draft[p->n_out] = draft;
    p->temperature[p->n_out] = g->temperature;
    p->top_p[p->n_out] = g->top_p;
    p->top_k[p->n_out] = g->top_k;
    p->key[p->n_out] =
        ares_rng_sub(s->key, (uint64_t)(s->request->response_len + s->n + s->under_way), 0);
    if (g->temperature != 0 && g->temperature != 1) p->want_1 = true;
    if (s->request->n_likely) p->want_likely = true;
    s->under_way++;
    s->out = p->n_out++;
}

/*
 * Drafts for the first n running samples, in rows that nothing else needs: half of the budget is
 * left to prompts, and no block is taken from anybody.
 */
static void plan_drafts(ares_rollout *r, int32_t n, int32_t rows)
{
    for (int32_t i = 0; i < n && rows < r->max_rows / 2; i++) {
        sequence *s = r->running[i];
        if (s->to != sequence_len(s)) continue; /* 0, or it has lost its cache */
        /* a draft that is wrong leaves a state as far behind as it was */
        if (r->states.cfg && s->to != s->cached + 1) continue;
        rollout_draft(r, s, n, r->max_rows / 2 - rows);
        while (s->n_draft && !grow(r, &s->blocks, s->to + s->n_draft, s, NULL, false)) s->n_draft--;
        if (s->n_draft) rollout_state_take(&r->states, &s->ahead);
        rows += s->n_draft;
    }
}

/*
 * Adds the rows of running samples: one each, or after a preemption all that are missing, as far as
 * the budget goes, and those of drafts. Samples take blocks in the order in which they were
 * admitted; their rows lie adapter by adapter, so that a pass multiplies each adapter once.
 */
static void plan_running(ares_rollout *r)
{
    int32_t rows = r->plan->rows, n = 0;
    for (; n < r->n_running; n++) {
        sequence *s = r->running[n];
        s->to = 0;
        if (sequence_full(r, s)) continue;
        int32_t to = ARES_MIN(sequence_len(s), s->cached + r->max_rows - rows);
        if (to <= s->cached) break;
        if (!grow(r, &s->blocks, to, s, NULL, true)) {
            evict(r, s); /* it is itself the last one admitted */
            break;
        }
        rows += to - s->cached;
        s->to = to;
        r->stats.peak_seqs = ARES_MAX(r->stats.peak_seqs, n + 1);
    }
    if (r->drafts_tokens) plan_drafts(r, n, rows);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = i; k < n && r->running[i]->to; k++) {
            sequence *s = r->running[k];
            if (!s->to || s->request->adapter != r->running[i]->request->adapter) continue;
            add_rows(r, s->request, s, &s->blocks, s->cached, s->to + s->n_draft);
            s->cached = s->to; /* drafted tokens count when they have been drawn */
            if (!s->n_draft) s->stated = s->to;
            if (s->to == sequence_len(s)) {
                int32_t row = r->plan->rows - 1 - s->n_draft;
                for (int32_t j = 0; j <= s->n_draft; j++)
                    add_out(r, row + j, s, j < s->n_draft ? s->draft[j] : -1);
            }
            if (k > i) s->to = 0; /* of i once its adapter's are there */
        }
}

/* Makes the copies of partial blocks, all at once. */
static void copy_now(ares_rollout *r)
{
    ares_device *d = r->model->device;
    ares_copy_blocks_args a = { .cache = r->cache,
                                .layers = ares_model_config_caches(&r->model->cfg),
                                .layer_bytes = r->layer_bytes,
                                .block_bytes = r->block_bytes,
                                .n = r->n_copies,
                                .block = r->copies[0] };
    if (a.n) d->k->copy_blocks(d, &a);
    while (r->n_copies) rollout_block_drop(&r->blocks, r->copies[--r->n_copies][0]);
}

/* Whether so many blocks can be taken; makes copies where those are held by copies alone. */
static bool available(ares_rollout *r, int32_t n)
{
    if (rollout_blocks_available(&r->blocks) < n) copy_now(r);
    return rollout_blocks_available(&r->blocks) >= n;
}

/*
 * Starts a waiting sample: it shares the prompt's whole blocks and copies the partial one. One more
 * block per running sample must stay free, unless none runs. False when it has to wait.
 */
static bool start(ares_rollout *r, sequence *s)
{
    request *q = s->request;
    int32_t whole = q->prompt_len / ARES_KV_BLOCK, length = sequence_len(s),
            own = blocks_for(length) - whole;
    if (r->n_running == r->max_seqs) return false;
    if (!available(r, own + r->n_running)) {
        if (r->n_running) return false;
        while (!available(r, own))
            if (!free_a_block(r, s, q)) return false;
    }
    for (int32_t i = 0; i < whole; i++) {
        rollout_block_ref(&r->blocks, q->blocks.block[i]);
        s->blocks.block[s->blocks.n++] = q->blocks.block[i];
    }
    s->blocks.n_kept = q->blocks.n_kept;
    s->blocks.kept = q->blocks.kept;
    grow(r, &s->blocks, length, s, q, false);
    if (q->prompt_len % ARES_KV_BLOCK) {
        /* the prompt's last block is held until it is copied: the prompt may be released, and
         * nobody may write there first */
        int32_t *copy = r->copies[r->n_copies++];
        copy[0] = q->blocks.block[whole];
        copy[1] = s->blocks.block[whole];
        rollout_block_ref(&r->blocks, copy[0]);
    }
    s->cached = s->stated = q->prompt_len;
    if (q->waiting == 1 && !r->states.most) { /* nobody else needs the prompt's */
        s->slot = q->slot;
        q->slot = -1;
    } else {
        rollout_state_take(&r->states, &s->slot);
        if (s->slot >= 0) rollout_state_copy(&r->states, s->slot, q->slot);
    }
    s->state = SEQ_RUNNING;
    r->running[r->n_running++] = s;
    q->waiting--;
    return true;
}

/* Starts the waiting samples whose prompt is in the cache; false when one still has to wait. */
static bool start_waiting(ares_rollout *r)
{
    for (request *q = r->first; q; q = q->next) {
        if (!q->waiting || q->cached < q->prompt_len || !q->sampled) continue;
        for (int32_t i = 0; i < q->n && q->waiting; i++)
            if (q->samples[i].state == SEQ_WAITING && !sequence_held(r, &q->samples[i]) &&
                !sequence_full(r, &q->samples[i]) && !start(r, &q->samples[i]))
                return false;
        rollout_release_prompt(r, q);
    }
    return true;
}

/* Parked samples that the clock holds no longer take places again, as far as there are any. */
static void unpark(ares_rollout *r)
{
    for (request *q = r->first; q; q = q->next)
        for (int32_t i = 0; i < q->n && q->parked && r->n_running < r->max_seqs; i++) {
            sequence *s = &q->samples[i];
            if (s->state != SEQ_PARKED || sequence_held(r, s)) continue;
            s->state = SEQ_RUNNING;
            r->running[r->n_running++] = s;
            q->parked--;
        }
}

void rollout_park(ares_rollout *r)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < r->n_running; i++) {
        sequence *s = r->running[i];
        if (sequence_held(r, s)) {
            s->state = SEQ_PARKED;
            s->request->parked++;
        } else r->running[kept++] = s;
    }
    r->n_running = kept;
}

/* Whether a sample of the prompt waits for it, and is not held. */
static bool wanted(const ares_rollout *r, const request *q)
{
    for (int32_t i = 0; i < q->n && q->waiting; i++) {
        const sequence *s = &q->samples[i];
        if ((s->state == SEQ_NEW || s->state == SEQ_WAITING) && !sequence_held(r, s)) return true;
    }
    return false;
}

/*
 * Of a model with delta nets: the prompt begins with the longest prefix that has blocks and a
 * snapshot. What ends inside a block is copied, so that others find it, too.
 */
static void find_state(ares_rollout *r, request *q)
{
    rollout_blocks *b = &r->blocks;
    block_list *l = &q->blocks;
    uint64_t parent = l->root;
    int32_t n = 0, block = -1, most = (q->prompt_len - 1) / ARES_KV_BLOCK;
    rollout_state_take(&r->states, &q->slot); /* first: it may cost a snapshot */
    for (; n < most; n++, parent = b->serial[block]) {
        block = rollout_block_find(b, parent, q->content + n * ARES_KV_BLOCK);
        if (block < 0) break;
        l->block[n] = block;
    }
    for (;; n--) {
        int32_t at = n * ARES_KV_BLOCK, copy = -1;
        parent = n ? b->serial[l->block[n - 1]] : l->root;
        int32_t part = find_part(r, parent, q->content + at, q->prompt_len - 1 - at);
        rollout_snapshot *s = n ? rollout_snapshot_find(&r->states, parent) : NULL;
        if (!n && part < 0) break;
        if (part < 0 && !s) continue;
        for (int32_t i = 0; i < n; i++) rollout_block_ref(b, l->block[i]);
        if (part >= 0) {
            rollout_block_ref(b, part);
            copy = rollout_block_take(b);
            if (copy >= 0) s = rollout_snapshot_find(&r->states, b->serial[part]);
        }
        if (copy >= 0) {
            ares_copy_blocks_args a = { .cache = r->cache,
                                        .layers = ares_model_config_caches(&r->model->cfg),
                                        .layer_bytes = r->layer_bytes,
                                        .block_bytes = r->block_bytes,
                                        .n = 1,
                                        .block = (const int32_t[]){ part, copy } };
            r->model->device->k->copy_blocks(r->model->device, &a);
            q->cached = b->filled[part];
            l->block[n] = copy;
        }
        if (part >= 0) rollout_block_drop(b, part);
        if (s) {
            q->cached += at;
            l->n = n + (copy >= 0);
            l->n_kept = n;
            l->kept = parent;
            s->used = ++r->states.now;
            rollout_state_copy(&r->states, q->slot, s->slot);
            r->stats.reused_tokens += q->cached;
            return;
        }
        for (int32_t i = n; i-- > 0;) rollout_block_drop(b, l->block[i]);
        if (!n) break;
    }
    rollout_state_drop(&r->states, &q->slot);
}

/* The prompt begins with the blocks that it finds in the cache; its last token is left to compute.
 */
static void find_prefix(ares_rollout *r, request *q)
{
    block_list *l = &q->blocks;
    if (r->states.cfg) {
        if (!r->options.no_prefix_cache && r->states.most) find_state(r, q);
        return;
    }
    while (!r->options.no_prefix_cache && (l->n + 1) * ARES_KV_BLOCK < q->prompt_len) {
        int32_t block = rollout_block_find(&r->blocks, l->kept, q->content + l->n * ARES_KV_BLOCK);
        if (block < 0) break;
        rollout_block_ref(&r->blocks, block);
        l->block[l->n++] = block;
        l->n_kept++;
        l->kept = r->blocks.serial[block];
        q->cached += ARES_KV_BLOCK;
        r->stats.reused_tokens += ARES_KV_BLOCK;
    }
    int32_t block = r->options.no_prefix_cache
                        ? -1
                        : rollout_block_take_part(&r->blocks, l->kept, q->content + q->cached,
                                                  q->prompt_len - 1 - q->cached);
    if (block < 0) return;
    l->block[l->n++] = block;
    q->cached += r->blocks.filled[block];
    r->stats.reused_tokens += r->blocks.filled[block];
}

/* Prefills prompts in order of arrival with the rest of the row budget. */
static void plan_prompts(ares_rollout *r)
{
    int32_t claimed = 0; /* places of samples whose prompts have states */
    for (request *q = r->first; q && r->plan->rows < r->max_rows; q = q->next) {
        if (!wanted(r, q)) continue;
        /* states are large: no more prompts have one than samples could start */
        if (r->states.cfg && q->slot < 0 && claimed && claimed >= r->max_seqs - r->n_running)
            return;
        claimed += q->waiting;
        if (q->cached == q->prompt_len) continue;
        bool begins = q->cached == 0 && !q->sampled;
        /* what is found in the cache has no hidden states to score */
        if (q->cached == 0 && (q->sampled || !rollout_scores_wanted(q))) find_prefix(r, q);
        if (begins) q->reused = q->cached;
        int32_t to = ARES_MIN(q->prompt_len, q->cached + r->max_rows - r->plan->rows);
        int32_t need = blocks_for(to) - q->blocks.n;
        bool alone = r->n_running == 0 && r->plan->rows == 0 && !r->flying;
        if (!alone && rollout_blocks_available(&r->blocks) < need + r->n_running + 1) return;
        if (!grow(r, &q->blocks, to, NULL, q, alone)) return;
        rollout_state_take(&r->states, &q->slot);
        add_rows(r, q, NULL, &q->blocks, q->cached, to);
        if (!q->sampled && rollout_scores_wanted(q)) rollout_scores_plan(r, q, q->cached, to);
        q->cached = to;
        r->stats.prefill_tokens += to - r->plan->prefix_len[r->plan->n_seg - 1];
        if (to < q->prompt_len) return;
        if (q->sampled) continue; /* it had lost its blocks: its samples only need them again */
        for (int32_t i = 0; i < q->n; i++)
            if (q->samples[i].state == SEQ_NEW && !q->samples[i].under_way)
                add_out(r, r->plan->rows - 1, &q->samples[i], -1);
    }
}

void rollout_schedule(ares_rollout *r)
{
    plan *p = r->plan;
    p->rows = p->n_seg = p->n_out = p->n_features = p->n_adapted = 0;
    p->start[0] = 0;
    p->want_1 = p->want_likely = false;
    p->n_scores = 0;
    unpark(r);
    bool all_started = start_waiting(r);
    copy_now(r); /* before anybody else takes blocks */
    plan_running(r);
    /* prefill only where the prompt's samples can start soon */
    if (all_started || r->n_running == 0) plan_prompts(r);
    r->stats.peak_blocks =
        ARES_MAX(r->stats.peak_blocks, r->blocks.total - rollout_blocks_available(&r->blocks));
}

void rollout_keep_blocks(ares_rollout *r)
{
    if (r->options.no_prefix_cache) return;
    for (request *q = r->first; q; q = q->next)
        if (q->blocks.n) keep(r, q, NULL, &q->blocks, q->cached);
    for (int32_t i = 0; i < r->n_running; i++) {
        sequence *s = r->running[i];
        keep(r, s->request, s, &s->blocks, s->cached);
    }
}
