/*
 * The rollout engine: it takes requests, runs forwards, draws tokens and hands out finished
 * samples. In order: its memory; requests; ranks that decode as one engine; steps. scheduler.c
 * chooses the rows of each step.
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ares/algo.h"

/*
 * Ranks whose models are slices of one (docs/ranks.md#tensor-parallelism) decode as one engine:
 * before each step they exchange the requests that came since the last one, and from there on every
 * rank has the same requests in the same order. So they make the same plans, and draw the same
 * tokens. Each hands out the samples that it was asked for.
 */

/* What each rank says first; bytes: of its requests, or of its message. */
typedef struct word {
    int64_t bytes;
    int32_t rc, done;
} word;

struct rollout_peers {
    ares_group *group;
    ares_str requests; /* since the last step */
    int64_t taken;     /* own requests before those */
    word mine;
    int failed;
    bool all_done, parted;
};

/* ------------------------------------------------------------------ memory */

/* lent: bytes that training's phase takes in any case, which the cache may fill */
static int64_t default_cache_tokens(const ares_rollout_options *o, int32_t max_len,
                                    size_t block_bytes, size_t lent)
{
    int64_t most = INT32_MAX / ARES_KV_BLOCK,
            there = ARES_MIN((int64_t)(lent / block_bytes) - 1, most), /* one more is rollout's */
        wanted = ARES_MAX((int64_t)o->max_num_seqs * (blocks_for(max_len) + 1), there);
    int64_t affordable = o->cache_bytes ? o->cache_bytes : (int64_t)6 << 30;
    return ARES_MAX(ARES_MIN(wanted, affordable / (int64_t)block_bytes), blocks_for(max_len) + 2) *
           ARES_KV_BLOCK;
}

static void plan_init(const ares_rollout *r, plan *p)
{
    size_t n = (size_t)r->max_rows, stride = (size_t)r->stride;
    p->ids = ares_malloc(n * sizeof *p->ids);
    p->positions = ares_malloc(n * sizeof *p->positions);
    p->slots = ares_malloc(n * sizeof *p->slots);
    p->from = ares_malloc(n * sizeof *p->from);
    p->start = ares_malloc((n + 1) * sizeof *p->start);
    p->prefix_len = ares_malloc(n * sizeof *p->prefix_len);
    p->table = ares_malloc(n * stride * sizeof *p->table);
    p->state_from = ares_malloc(n * sizeof *p->state_from);
    p->state_to = ares_malloc(n * sizeof *p->state_to);
    p->adapted = ares_malloc(n * sizeof *p->adapted);
    if (!rollout_sees(r)) return;
    p->positions_h = ares_malloc(n * sizeof *p->positions_h);
    p->positions_w = ares_malloc(n * sizeof *p->positions_w);
    p->feature_rows = ares_malloc(n * sizeof *p->feature_rows);
    p->features = ares_malloc(n * (size_t)r->model->cfg.hidden * sizeof *p->features);
}

static void plan_fini(plan *p)
{
    void *all[] = { p->ids,        p->positions, p->slots,       p->from,        p->start,
                    p->prefix_len, p->table,     p->positions_h, p->positions_w, p->feature_rows,
                    p->features,   p->adapted,   p->state_from,  p->state_to };
    for (int i = 0; i < ARES_COUNT(all); i++) ares_free(all[i]);
    ares_free(p->scores);
#define FREE(type, name, width) ares_free(p->name);
    PLAN_OUT_COLUMNS(FREE)
#undef FREE
}

static void take_cache(ares_rollout *r)
{
    r->cache =
        ares_phase_take(r->model->device, ARES_PHASE_ROLLOUT, &r->cache_memory, r->cache_bytes);
}

/*
 * A slice's weights are taken first, then the cache, as in every later phase, so that both stay
 * where they are. Training's and rollout's phase share memory, as large as the larger one needs.
 */
static int open_cache(ares_rollout *r)
{
    size_t rollout =
               ares_phase_size(ares_model_slice_wants(r->model)) + ares_phase_size(r->cache_bytes),
           bytes = ARES_MAX(rollout, r->options.training_bytes);
    if (r->options.lends_cache) ARES_TRY(ares_phases_open(r->model->device, bytes));
    ARES_TRY(ares_model_slice_take(r->model));
    take_cache(r);
    if (r->cache) return ARES_OK;
    return ares_device_full(r->model->device, "rollout", "kv cache", r->cache_bytes, false,
                            "lower worker.rollout.cache_tokens");
}

int ares_rollout_new(ares_model *m, const ares_tokenizer *tokenizer,
                     const ares_rollout_options *opt, ares_rollout **out)
{
    const ares_model_config *c = &m->cfg;
    if (opt->entropy_top_k < 0 || opt->entropy_top_k > ARES_LIKELY_MAX)
        return ares_fail(ARES_ECONFIG,
                         "rollout: entropy_top_k = %d: must lie in [0, %d]; 0 is the exact entropy",
                         opt->entropy_top_k, ARES_LIKELY_MAX);
    ares_rollout *r = ares_calloc(1, sizeof *r);
    r->options = *opt;
    r->until = INT64_MAX;
    r->n_likely = ARES_MAX(ARES_MAX(opt->entropy_top_k, opt->most_likely), opt->n_likely);
    ARES_ASSERT(opt->n_likely <= ARES_LIKELY_MAX && !(opt->serves && m->tp));
    r->model = m;
    if (m->tp) r->head_parts = ares_model_head_parts(m);
    r->tokenizer = tokenizer;
    r->max_seqs = ARES_MAX(opt->max_num_seqs, 1);
    r->max_rows =
        ARES_MAX(opt->max_num_batched_tokens, r->max_seqs); /* one row per sample at least */
    r->max_len = opt->max_model_len ? opt->max_model_len : c->max_position;
    r->stride = blocks_for(r->max_len);
    ares_dtype cached = m->arithmetic == ARES_BF16 ? ARES_BF16 : m->device->k->act;
    r->block_bytes =
        (size_t)c->kv_heads * 2 * ARES_KV_BLOCK * (size_t)c->head_dim * ares_dtype_bytes(cached);
    /* a model of delta nets alone has a block of its own count all the same */
    size_t block_bytes = r->block_bytes * (size_t)ARES_MAX(ares_model_config_caches(c), 1);
    int64_t tokens = opt->cache_tokens;
    size_t weights = ares_phase_size(ares_model_slice_wants(m)),
           lent = opt->lends_cache && opt->training_bytes > weights ? opt->training_bytes - weights
                                                                    : 0;
    if (!tokens) tokens = default_cache_tokens(opt, r->max_len, block_bytes, lent);
    int64_t total = tokens / ARES_KV_BLOCK;
    int rc = ares_workspace_new(m, ARES_KEEP_NOTHING, &r->workspace);
    if (rc == ARES_OK) (void)ares_workspace_adapt(r->workspace, opt->adapter_rank);
    if (rc == ARES_OK && (total < 2 || total > INT32_MAX / ARES_KV_BLOCK))
        rc =
            ares_fail(ARES_ELIMIT,
                      "rollout: kv cache: %lld tokens are %s; a block holds %d tokens and %.2f MiB",
                      (long long)tokens, total < 2 ? "too few" : "too many", ARES_KV_BLOCK,
                      (double)block_bytes / 1048576.0);
    /* where steps are padded (pipelined.c), the padding writes to one more block */
    int64_t blocks = total + (m->device->k->advance != NULL);
    r->layer_bytes = blocks * (int64_t)r->block_bytes;
    r->cache_bytes = block_bytes * (size_t)blocks;
    if (rc == ARES_OK && !opt->cache_tokens && opt->cache_bytes &&
        (int64_t)block_bytes * total > opt->cache_bytes)
        rc =
            ares_fail(ARES_ELIMIT,
                      "rollout: kv cache: one sample of %d tokens needs %.2f GiB, and %.2f GiB are "
                      "left for it; raise worker.rollout.gpu_memory_utilization, or shorten "
                      "prompts and responses",
                      r->max_len, (double)r->cache_bytes / 1073741824.0,
                      (double)opt->cache_bytes / 1073741824.0);
    if (rc == ARES_OK) {
        rollout_blocks_init(&r->blocks, (int32_t)total);
        rc = open_cache(r);
    }
    /* libtorch's bits depend on the number of rows, and a card's steps are launched ahead */
    r->drafts_tokens = opt->drafts_tokens && m->device->k->layout == ARES_PANEL32;
    if (rc == ARES_OK && c->net.v_heads) {
        int32_t most = opt->state_snapshots ? opt->state_snapshots : r->max_seqs;
        if (opt->no_prefix_cache) most = 0;
        rc = rollout_states_init(&r->states, m, &r->blocks,
                                 r->max_seqs + opt->held_seqs + rollout_most_drafts(r) + 2,
                                 ARES_MAX(most, 0));
    }
    if (rc == ARES_OK)
        rc = ares_workspace_reserve(r->workspace, r->max_rows, rollout_most_out(r), 1, false);
    if (rc != ARES_OK) {
        ares_rollout_free(r);
        return rc;
    }
    r->stats.total_blocks = total;
    r->running = ares_malloc((size_t)r->max_seqs * sizeof *r->running);
    r->copies = ares_malloc((size_t)r->max_seqs * sizeof *r->copies);
    for (int i = 0; i < ARES_COUNT(r->plans); i++) plan_init(r, &r->plans[i]);
    r->plan = r->plans;
    if (m->tp) {
        r->peers = ares_calloc(1, sizeof *r->peers);
        r->peers->group = m->tp;
    }
    rc = rollout_ahead_new(r, &r->ahead);
    if (rc != ARES_OK) {
        ares_rollout_free(r);
        return rc;
    }
    *out = r;
    return ARES_OK;
}

/* The texts of its samples, and in an engine that serves all else. */
static void free_request(request *q)
{
    for (int32_t i = 0; i < q->n; i++) ares_str_fini(&q->samples[i].tail);
    if (q->arena != &q->memory) return;
    ares_arena_fini(&q->memory);
    ares_free(q);
}

static void free_requests(request *q)
{
    for (request *next; q; q = next) {
        next = q->next;
        free_request(q);
    }
}

/* All requests and samples. */
static void forget(ares_rollout *r)
{
    free_requests(r->first);
    free_requests(r->dropped);
    r->first = r->last = r->dropped = NULL;
    r->n_requests = r->n_added = r->unfinished = r->held = r->n_finished = r->next_finished = 0;
    r->n_running = 0;
    memset(r->drafts, 0, sizeof r->drafts); /* what a step does depends on no step before it */
    r->flying = NULL;
    r->until = INT64_MAX;
}

void ares_rollout_clear(ares_rollout *r)
{
    forget(r);
    rollout_blocks_reset(&r->blocks);
    rollout_states_reset(&r->states);
    take_cache(r); /* which training may have had */
    if (r->peers) {
        rollout_peers *p = r->peers;
        ares_str_clear(&p->requests);
        *p = (rollout_peers){ .group = p->group, .requests = p->requests };
    }
    ares_arena_reset(&r->arena);
    int64_t total = r->stats.total_blocks, refused = r->stats.refused_graphs;
    r->stats = (ares_rollout_stats){ .total_blocks = total, .refused_graphs = refused };
}

void ares_rollout_free(ares_rollout *r)
{
    if (!r) return;
    ares_device *d = r->model->device;
    forget(r);
    rollout_ahead_free(r, r->ahead);
    if (r->peers) ares_str_fini(&r->peers->requests);
    ares_free(r->peers);
    ares_phase_give_back(d, &r->cache_memory);
    if (r->options.lends_cache) ares_phases_close(d);
    rollout_blocks_fini(&r->blocks);
    rollout_states_fini(&r->states);
    ares_workspace_free(r->workspace);
    for (int i = 0; i < ARES_COUNT(r->plans); i++) plan_fini(&r->plans[i]);
    ares_free(r->running);
    ares_free(r->copies);
    ares_free(r->finished);
    ares_arena_fini(&r->arena);
    ares_free(r);
}

/* ------------------------------------------------------------------ requests */
static int check_media(const ares_rollout *r, const ares_request *q)
{
    ARES_ASSERT(q->row_media->n <= q->prompt_len);
    if (!rollout_sees(r))
        return ares_fail(
            ARES_EUNSUPPORTED,
            r->model->cfg.wrapped
                ? "rollout: the prompt has images or videos, and the tower of qwen3_5 is not built"
                : "rollout: the prompt has images or videos, and the model reads text alone");
    if (r->peers)
        return ares_fail(ARES_EUNSUPPORTED,
                         "rollout: ranks that decode as one take text alone, and the prompt has "
                         "images or videos; set worker.rollout.tensor_parallel_size=1");
    int32_t limit =
                ARES_MIN(q->sampling.max_new_tokens - q->response_len, r->max_len - q->prompt_len),
            last = q->prompt_len + q->row_media->delta;
    for (int32_t i = 0; i < q->row_media->n; i++) last = ARES_MAX(last, q->row_media->t[i]);
    /* a card has a table of angles */
    if (!r->ahead || last + limit <= r->max_len) return ARES_OK;
    return ares_fail(
        ARES_ELIMIT,
        "rollout: a video of the prompt and the answer take positions up to %d, beyond "
        "max_model_len = %d; raise worker.rollout.max_model_len",
        last + limit, r->max_len);
}

static int check_request(const ares_rollout *r, const ares_request *q)
{
    const ares_sampling *s = &q->sampling;
    int32_t prompt_len = q->prompt_len, left = s->max_new_tokens - q->response_len;
    if (prompt_len < 1)
        return ares_fail(ARES_EFORMAT,
                         "rollout: the prompt is empty; a model needs one token to start from");
    if (q->n < 1 || s->max_new_tokens < 1)
        return ares_fail(ARES_ECONFIG,
                         "rollout: n = %d, max_new_tokens = %d: both must be 1 or more", q->n,
                         s->max_new_tokens);
    if (q->response_len < 0 || q->response_len >= prompt_len || left < 1)
        return ares_fail(ARES_ECONFIG,
                         "rollout: response_len = %d: must lie in [0, prompt_len = %d) and below "
                         "max_new_tokens = %d",
                         q->response_len, prompt_len, s->max_new_tokens);
    if (!(s->temperature >= 0) || !isfinite(s->temperature))
        return ares_fail(ARES_ECONFIG, "rollout: temperature = %g: must be 0 (greedy) or more",
                         (double)s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return ares_fail(ARES_ECONFIG, "rollout: top_p = %g: must lie in (0, 1]", (double)s->top_p);
    if (s->n_stop_strings && !r->tokenizer)
        return ares_fail(ARES_ECONFIG, "rollout: stop strings need a tokenizer");
    if (prompt_len >= r->max_len)
        return ares_fail(
            ARES_ELIMIT,
            "rollout: prompt of %d tokens leaves no room for an answer in max_model_len = %d",
            prompt_len, r->max_len);
    if (q->row_media) ARES_TRY(check_media(r, q));
    /* a sample alone needs its own blocks and, while it starts, the prompt's partial one */
    int32_t longest = ARES_MIN(r->max_len, prompt_len + left), need = blocks_for(longest) + 1;
    if (need > r->blocks.total)
        return ares_fail(ARES_ELIMIT,
                         "rollout: kv cache of %d blocks of %d tokens cannot hold one sample of up "
                         "to %d; raise worker.rollout.cache_tokens to %d",
                         r->blocks.total, ARES_KV_BLOCK, longest, need * ARES_KV_BLOCK);
    ARES_ASSERT(!r->peers || !q->adapter || q->adapter == r->options.adapter);
    ARES_ASSERT(q->n_likely <= r->options.n_likely && q->scores.n_likely <= ARES_LIKELY_MAX);
    bool scores = q->scores.width || q->scores.n_likely || q->scores.logits || q->look;
    ARES_ASSERT(!scores ||
                (!r->peers && q->scores.from >= 0 && (q->scores.targets || q->scores.width <= 1) &&
                 (!q->scores.logits || q->look)));
    if (scores && r->ahead)
        return ares_fail(ARES_EUNSUPPORTED, "rollout: log-probs of prompts are computed on the CPU "
                                            "alone; ask for none, or set --device cpu");
    return ares_model_check_ids(r->model, q->prompt, prompt_len, q->row_media);
}

/* Of block_list; serial numbers of blocks stay below it. */
static uint64_t root_of(const ares_adapter *a)
{
    if (!a) return 0;
    ARES_ASSERT(a->id >> 31 == 0 && a->version >> 32 == 0);
    return (uint64_t)1 << 63 | a->id << 32 | a->version;
}

/* Queues a request that was checked. own: as in request. */
static void queue_request(ares_rollout *r, const ares_request *asked, int64_t own)
{
    const ares_sampling *s = &asked->sampling;
    int32_t prompt_len = asked->prompt_len, n = asked->n, begun = asked->response_len,
            limit = ARES_MIN(s->max_new_tokens - begun, r->max_len - prompt_len);
    request *q =
        r->options.serves ? ares_malloc(sizeof *q) : ares_arena_alloc(&r->arena, sizeof *q);
    *q = (request){ .id = r->n_requests++,
                    .own = own,
                    .prompt_len = prompt_len,
                    .response_len = begun,
                    .n = n,
                    .first_index = asked->first_index,
                    .waiting = n,
                    .slot = -1,
                    .start = asked->start,
                    .sampling = *s,
                    .row_media = asked->row_media,
                    .seen = asked->seen,
                    .adapter = asked->adapter,
                    .n_likely = asked->n_likely,
                    .scores = asked->scores,
                    .look = asked->look,
                    .look_ctx = asked->look_ctx };
    ares_arena *a = q->arena = r->options.serves ? &q->memory : &r->arena;
    uint64_t root = root_of(asked->adapter);
    if (asked->adapter && ares_workspace_adapt(r->workspace, asked->adapter->rank) && r->ahead)
        rollout_ahead_forget(r);
    q->prompt = (const int32_t *)ares_arena_copy(a, (const char *)asked->prompt,
                                                 (size_t)prompt_len * sizeof *q->prompt);
    q->content = q->prompt;
    if (q->row_media) {
        /*
         * What a block of the prompt is found by: its ids, and in place of a picture's what it
         * shows. With all before it, that says what the tokens are and where they stand.
         */
        size_t bytes = (size_t)prompt_len * sizeof *q->content;
        int32_t *content = ares_arena_alloc(a, bytes);
        q->content = memcpy(content, q->prompt, bytes);
        for (int32_t k = 0; k < q->row_media->n_places; k++) {
            const ares_place *x = &q->row_media->places[k];
            for (int32_t t = x->first; t < x->first + x->n; t++)
                content[t] = -1 - q->seen[k].number;
        }
    }
    q->sampling.stop_ids = (const int32_t *)ares_arena_copy(
        a, (const char *)s->stop_ids, (size_t)s->n_stop_ids * sizeof *s->stop_ids);
    const char **stops = ares_arena_alloc(a, (size_t)s->n_stop_strings * sizeof *stops + 1);
    for (int32_t i = 0; i < s->n_stop_strings; i++)
        stops[i] = ares_arena_copy(a, s->stop_strings[i], strlen(s->stop_strings[i]));
    q->sampling.stop_strings = stops;
    q->blocks.block = ares_arena_alloc(a, (size_t)blocks_for(prompt_len) * sizeof(int32_t));
    q->blocks.root = q->blocks.kept = root;
    q->samples = ares_arena_calloc(a, (size_t)n, sizeof *q->samples);
    for (int32_t i = 0; i < n; i++) {
        sequence *x = &q->samples[i];
        int32_t index = q->first_index + i;
        *x = (sequence){ .request = q,
                         .index = index,
                         .state = SEQ_NEW,
                         .slot = -1,
                         .ahead = -1,
                         .limit = limit,
                         .key = ares_rng_sub(asked->key, (uint64_t)index, asked->turn) };
        x->blocks.block =
            ares_arena_alloc(a, (size_t)blocks_for(prompt_len + limit) * sizeof(int32_t));
        x->blocks.root = x->blocks.kept = root;
        if (!s->n_stop_strings) continue;
        ares_decoder_init(&x->decoder, r->tokenizer, false);
        /* a stop string ends the sample with the token that completes it */
        x->decoder.eager = true;
        for (int32_t t = prompt_len - begun; t < prompt_len; t++)
            ares_decoder_add(&x->decoder, q->prompt[t], &x->tail);
    }
    if (rollout_scores_wanted(q)) rollout_scores_open(q);
    if (r->last) r->last->next = q;
    else r->first = q;
    r->last = q;
    r->unfinished += n;
    if (r->until <= q->start) r->held += n;
}

/* ------------------------------------------------------------------ requests as bytes */
/* Pieces begin on multiples of 8 bytes. */
static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static void put(ares_str *out, const void *data, size_t bytes)
{
    static const char zeros[8];
    if (bytes) ares_str_add(out, data, bytes);
    ares_str_add(out, zeros, padded(bytes) - bytes);
}

/* The next piece of so many bytes, where it lies. */
static const void *take(ares_view *in, size_t bytes)
{
    const char *at = in->data;
    ARES_ASSERT(padded(bytes) <= in->len);
    in->data += padded(bytes);
    in->len -= padded(bytes);
    return at;
}

/* Queues all requests in the bytes of one rank. own: this rank's */
static void take_requests(ares_rollout *r, ares_view in, bool own)
{
    while (in.len) {
        ares_request q;
        memcpy(&q, take(&in, sizeof q), sizeof q);
        ares_sampling *s = &q.sampling;
        q.prompt = take(&in, (size_t)q.prompt_len * sizeof *q.prompt);
        s->stop_ids = take(&in, (size_t)s->n_stop_ids * sizeof *s->stop_ids);
        const char **stops =
            ares_arena_alloc(&r->arena, (size_t)s->n_stop_strings * sizeof *stops + 1);
        for (int32_t i = 0; i < s->n_stop_strings; i++) stops[i] = take(&in, strlen(in.data) + 1);
        s->stop_strings = stops;
        if (q.adapter) q.adapter = r->options.adapter; /* this rank's rows of it */
        queue_request(r, &q, own ? r->peers->taken++ : -1);
    }
}

/* ------------------------------------------------------------------ meeting */
/* all [ranks][*most]: what each rank has to say, of the length in its word. */
static int exchange(rollout_peers *p, word *words, ares_str *all, size_t *most)
{
    int ranks = ares_group_size(p->group);
    const char *message = ares_error_message();
    ares_view mine = p->mine.rc != ARES_OK ? ares_view_of(message) : ares_str_view(&p->requests);
    p->mine.bytes = (int64_t)mine.len;
    ares_group_gather(p->group, &p->mine, words, sizeof *words);
    ARES_TRY(ares_group_sync(p->group));
    *most = 0;
    for (int i = 0; i < ranks; i++) *most = ARES_MAX(*most, padded((size_t)words[i].bytes));
    if (!*most) return ARES_OK;
    ares_str sent = { 0 };
    ares_str_add_view(&sent, mine);
    /* a gather has equal pieces: shorter ones are filled up */
    while (sent.len < *most) ares_str_add_char(&sent, 0);
    while (all->len < *most * (size_t)ranks) ares_str_add_char(all, 0);
    ares_group_gather(p->group, sent.data, all->data, *most);
    ares_str_fini(&sent);
    return ares_group_sync(p->group);
}

/* What the ranks have said, from rank 0 up: a failure, or requests. */
static int hear(ares_rollout *r, const word *words, const char *all, size_t most)
{
    rollout_peers *p = r->peers;
    int ranks = ares_group_size(p->group);
    for (int i = 0; i < ranks; i++)
        if (words[i].rc != ARES_OK) {
            ares_view said = { all + (size_t)i * most, (size_t)words[i].bytes };
            return ares_fail(words[i].rc, "%.*s", (int)said.len, said.data);
        }
    p->all_done = true;
    for (int i = 0; i < ranks; i++) {
        p->all_done = p->all_done && words[i].done;
        if (words[i].bytes)
            take_requests(r, (ares_view){ all + (size_t)i * most, (size_t)words[i].bytes },
                          i == ares_group_rank(p->group));
    }
    return ARES_OK;
}

/* Before a step: every rank takes the requests of all, in rank order, or fails as one of them. */
static int meet(ares_rollout *r)
{
    rollout_peers *p = r->peers;
    ares_str all = { 0 };
    size_t most;
    ARES_ASSERT(!p->parted && p->failed == ARES_OK);
    word *words = ares_calloc((size_t)ares_group_size(p->group), sizeof *words);
    int rc = exchange(p, words, &all, &most);
    if (rc == ARES_OK) rc = hear(r, words, all.data, most);
    ares_str_clear(&p->requests);
    ares_str_fini(&all);
    ares_free(words);
    p->failed = rc;
    return rc;
}

int ares_rollout_add(ares_rollout *r, const ares_request *asked, int64_t *id)
{
    ARES_TRY(check_request(r, asked));
    if (id) *id = r->n_added;
    r->n_added++;
    if (!r->peers) {
        queue_request(r, asked, r->n_added - 1);
        return ARES_OK;
    }
    /* it is kept until all ranks meet */
    ares_str *to = &r->peers->requests;
    const ares_sampling *s = &asked->sampling;
    put(to, asked, sizeof *asked);
    put(to, asked->prompt, (size_t)asked->prompt_len * sizeof *asked->prompt);
    put(to, s->stop_ids, (size_t)s->n_stop_ids * sizeof *s->stop_ids);
    for (int32_t i = 0; i < s->n_stop_strings; i++)
        put(to, s->stop_strings[i], strlen(s->stop_strings[i]) + 1);
    return ARES_OK;
}

/* ------------------------------------------------------------------ steps */
/* A copy of n numbers of 4 bytes, with memory for cap of them. */
static void *grown(ares_arena *a, const void *column, int32_t n, int32_t cap)
{
    void *fresh = ares_arena_alloc(a, (size_t)cap * 4);
    if (n) memcpy(fresh, column, (size_t)n * 4);
    return fresh;
}

/* Whether the sample ends with this token; with stop strings, adds it to the sample's text. */
static bool stops(ares_rollout *r, sequence *s, int32_t token)
{
    const ares_sampling *g = &s->request->sampling;
    if (!g->ignore_eos && ares_model_ends(&r->model->cfg, token)) return true;
    for (int32_t i = 0; i < g->n_stop_ids; i++)
        if (token == g->stop_ids[i]) return true;
    if (!g->n_stop_strings) return false;
    size_t before = s->tail.len;
    ares_decoder_add(&s->decoder, token, &s->tail);
    for (int32_t i = 0; i < g->n_stop_strings; i++) {
        ares_view stop = ares_view_of(g->stop_strings[i]);
        /* a new match must end in the new text */
        size_t from = before + 1 > stop.len ? before + 1 - stop.len : 0;
        if (ares_view_find(ares_str_view(&s->tail), stop, from) >= 0) return true;
    }
    return false;
}

/* The sample has ended: its blocks are given back, and it waits to be handed out. */
static void finish(ares_rollout *r, sequence *s, ares_finish how)
{
    request *q = s->request;
    s->finish = how;
    if (s->state == SEQ_RUNNING || s->state == SEQ_PARKED) {
        if (!r->options.no_prefix_cache) rollout_keep_part(r, s);
        rollout_release_sequence(r, s);
    } else {
        q->waiting--;
    }
    q->parked -= s->state == SEQ_PARKED;
    s->state = SEQ_FINISHED;
    r->unfinished--;
    rollout_release_prompt(r, q);
    if (r->n_finished == r->finished_cap) {
        r->finished_cap = r->finished_cap * 2 + 64;
        r->finished = ares_realloc(r->finished, (size_t)r->finished_cap * sizeof *r->finished);
    }
    r->finished[r->n_finished++] = s;
}

/*
 * The entropy of entropy_top_k (ares_rollout_options) for the i-th token drawn. That token is one
 * more candidate where it is not among the likely ones.
 */
static float entropy_of_likely(const ares_rollout *r, const plan *p, int32_t i, float log_prob)
{
    const int32_t *token = p->likely_token + (int64_t)i * r->n_likely;
    const float *likely = p->likely_log_prob + (int64_t)i * r->n_likely;
    double candidates[ARES_LIKELY_MAX + 1];
    int64_t n = 0;
    bool drawn = false;
    for (int32_t k = 0; k < r->options.entropy_top_k && token[k] >= 0; k++) {
        drawn |= token[k] == p->token[i];
        candidates[n++] = (double)likely[k];
    }
    if (!drawn) candidates[n++] = (double)log_prob;
    return (float)ares_entropy_top_k(candidates, n, true);
}

/* Adds token i of the plan to its sample, which may end with it. */
static void record_token(ares_rollout *r, const plan *p, int32_t i)
{
    sequence *s = p->out_seq[i];
    const ares_rollout_options *o = &r->options;
    struct {
#define COLUMN(type, name, recorded, text) type name;
        ARES_ROLLOUT_COLUMNS(COLUMN)
#undef COLUMN
    } one = { .ids = p->token[i],
              .log_probs = p->log_prob[i],
              .entropies = p->entropy[i],
              .log_probs_1 = p->want_1 ? p->log_prob_1[i] : p->log_prob[i],
              .entropies_1 = p->want_1 ? p->entropy_1[i] : p->entropy[i] };
    if (o->entropy_top_k) one.entropies_1 = entropy_of_likely(r, p, i, one.log_probs_1);
    if (o->most_likely) one.most_likely = p->likely_token[(int64_t)i * r->n_likely];
    s->under_way--;
    if (s->state == SEQ_FINISHED) return; /* it ended with the token before */
    if (r->options.serves && !(isfinite(one.log_probs) && isfinite(one.entropies))) {
        finish(r, s, ARES_FINISH_BROKEN);
        return;
    }
    ares_arena *a = s->request->arena;
    int32_t likely = s->request->n_likely;
    if (s->n >= s->cap) { /* columns double: a sample is copied a constant number of times */
        int32_t cap = ARES_MIN(s->cap ? s->cap * 2 : 64, s->limit);
#define GROW(type, name, recorded, text)                                  \
    _Static_assert(sizeof(type) == 4, "a column's numbers have 4 bytes"); \
    if (recorded) s->name = grown(a, s->name, s->n, cap);
        ARES_ROLLOUT_COLUMNS(GROW)
#undef GROW
        if (likely) {
            s->likely_tokens = grown(a, s->likely_tokens, s->n * likely, cap * likely);
            s->likely_log_probs = grown(a, s->likely_log_probs, s->n * likely, cap * likely);
        }
        s->cap = cap;
    }
#define STORE(type, name, recorded, text) \
    if (recorded) s->name[s->n] = one.name;
    ARES_ROLLOUT_COLUMNS(STORE)
#undef STORE
    for (int32_t k = 0; k < likely; k++) {
        s->likely_tokens[s->n * likely + k] = p->likely_token[(int64_t)i * r->n_likely + k];
        s->likely_log_probs[s->n * likely + k] = p->likely_log_prob[(int64_t)i * r->n_likely + k];
    }
    s->n++;
    if (s->state == SEQ_NEW) s->state = SEQ_WAITING;
    s->request->sampled = true;
    r->stats.decoded_tokens++;
    if (stops(r, s, p->token[i])) finish(r, s, ARES_FINISH_STOP);
    else if (s->n == s->limit) finish(r, s, s->cut ? ARES_FINISH_CUT : ARES_FINISH_LENGTH);
    else r->held += sequence_held(r, s);
}

/* Reads token i of the plan, the next of its sample. */
static int read_token(ares_rollout *r, const plan *p, int32_t i)
{
    if (r->hidden) rollout_scores_look(r, p, i);
    /* a log-prob that is not finite comes from such weights: say so instead of sampling on */
    if (!r->options.serves && !(isfinite(p->log_prob[i]) && isfinite(p->entropy[i])))
        return ares_fail(ARES_ENUMERIC,
                         "rollout: request %lld, sample %d, token %d: log-prob %g, entropy %g; "
                         "the weights hold NaN or infinity",
                         (long long)p->out_seq[i]->request->id, p->out_seq[i]->index,
                         p->out_seq[i]->n, (double)p->log_prob[i], (double)p->entropy[i]);
    record_token(r, p, i);
    return ARES_OK;
}

/* A request by the number that ares_rollout_add gave. */
static request *request_of(const ares_rollout *r, int64_t id)
{
    request *q = r->first;
    while (q && q->own != id) q = q->next;
    ARES_ASSERT(q);
    return q;
}

/* A sample of it, by its index. */
static sequence *sample_of(request *q, int32_t index)
{
    ARES_ASSERT(index >= q->first_index && index - q->first_index < q->n);
    return &q->samples[index - q->first_index];
}

bool ares_rollout_cut(ares_rollout *r, int64_t id, int32_t index, int32_t n)
{
    if (r->peers) { /* own requests that are kept are queued here alone: no step may follow */
        r->peers->parted = true;
        take_requests(r, ares_str_view(&r->peers->requests), true);
        ares_str_clear(&r->peers->requests);
    }
    ARES_ASSERT(n >= 0);
    sequence *s = sample_of(request_of(r, id), index);
    if (s->state == SEQ_FINISHED) return false;
    if (n >= s->limit) return true; /* it ends there or before in any case */
    s->limit = n;
    s->cut = true;
    if (s->n < n) return true;
    r->held -= sequence_held(r, s);
    s->cached = ARES_MIN(s->cached, s->request->prompt_len + s->n); /* those of known tokens */
    s->n = n;
    finish(r, s, ARES_FINISH_CUT);
    return true;
}

int ares_rollout_finish(ares_rollout *r, int rc)
{
    rollout_peers *p = r->peers;
    int64_t active;
    if (!p) return rc;
    if (p->failed != ARES_OK) return p->failed;
    p->mine.rc = rc;
    p->mine.done = 1;
    do rc = ares_rollout_step(r, &active);
    while (rc == ARES_OK && !p->all_done);
    return rc;
}

void ares_rollout_hold(ares_rollout *r, int64_t until)
{
    r->until = until;
    r->held = 0;
    for (const request *q = r->first; q; q = q->next)
        for (int32_t i = 0; i < q->n; i++)
            r->held += q->samples[i].state != SEQ_FINISHED && sequence_held(r, &q->samples[i]);
}

/* The order of ares_rollout_next within a step. */
static int by_length(const void *a, const void *b)
{
    const sequence *x = *(sequence *const *)a, *y = *(sequence *const *)b;
    if (x->n != y->n) return ARES_CMP(x->n, y->n);
    if (x->request->id != y->request->id) return ARES_CMP(x->request->id, y->request->id);
    return ARES_CMP(x->index, y->index);
}

ares_packed rollout_packed(const ares_rollout *r)
{
    return (ares_packed){ .cache = r->cache,
                          .cache_layer_bytes = r->layer_bytes,
                          .seg = { .table_stride = r->stride } };
}

/* No answer shows an image or a video: their ids are places of the prompt alone. */
ares_sample_args rollout_sampler(const ares_rollout *r)
{
    const ares_vision_config *v = &r->model->cfg.vision;
    return (ares_sample_args){ .n_barred = rollout_sees(r) ? 2 : 0,
                               .barred = { v->image_token, v->video_token },
                               .vocab = r->model->cfg.vocab,
                               .ldx = r->model->cfg.hidden,
                               .w = ares_model_head(r->model),
                               .parts = r->model->tp ? &r->head_parts : NULL,
                               .n_likely = r->n_likely };
}

/* The arguments of rows [first, first + n). */
static ares_sample_args rows_of(const ares_rollout *r, const ares_sample_args *a, int32_t first,
                                int32_t n)
{
    ares_sample_args b = *a;
    int64_t likely = (int64_t)first * a->n_likely;
    size_t row = (size_t)a->ldx * ares_dtype_bytes(r->model->device->k->act);
    b.rows = n;
    b.x = (const char *)a->x + (size_t)first * row;
    if (a->top_p) b.top_p += first;
    if (a->top_k) b.top_k += first;
    if (a->key) b.key += first;
    b.temperature += first;
    b.token += first;
    b.log_prob += first;
    b.entropy += first;
    if (a->log_prob_1) {
        b.log_prob_1 += first;
        b.entropy_1 += first;
    }
    if (a->n_likely) {
        b.likely_token += likely;
        b.likely_log_prob += likely;
    }
    return b;
}

void rollout_sample(ares_rollout *r, const plan *p, const ares_sample_args *a)
{
    ares_device *d = r->model->device;
    int32_t begun = 0; /* rows before it are drawn; those of runs without a part in the head wait */
    for (int32_t i = 0, end; i < p->n_out; i = end) {
        const ares_adapter *of = p->out_seq[i]->request->adapter;
        ares_head_adapter head;
        for (end = i + 1; end < p->n_out && p->out_seq[end]->request->adapter == of;) end++;
        ares_sample_args b = rows_of(r, a, i, (end == p->n_out ? a->rows : end) - i);
        if (!ares_model_adapt_head(r->workspace, of, b.x, b.rows, &head)) continue;
        b.adapter = &head;
        if (i > begun) {
            ares_sample_args before = rows_of(r, a, begun, i - begun);
            d->k->sample(d, &before);
        }
        d->k->sample(d, &b);
        begun = i + b.rows;
    }
    if (begun == a->rows) return;
    ares_sample_args rest = rows_of(r, a, begun, a->rows - begun);
    d->k->sample(d, &rest);
}

/* The plan's forward; *hidden [n_out + n_scores][hidden]. */
static int forward(ares_rollout *r, plan *p, void **hidden)
{
    ares_packed packed = rollout_packed(r);
    rollout_plan_reserve(r, p, p->n_out + p->n_scores);
    for (int32_t i = 0; i < p->n_scores; i++) p->out_rows[p->n_out + i] = p->scores[i].row;
    packed.rows = packed.seg.rows = p->rows;
    packed.ids = p->ids;
    packed.positions = p->positions;
    packed.positions_h = p->positions_h;
    packed.positions_w = p->positions_w;
    packed.n_features = p->n_features;
    packed.feature_rows = p->feature_rows;
    packed.features = p->features;
    packed.slots = p->slots;
    packed.n_out = p->n_out + p->n_scores;
    packed.out_rows = p->out_rows;
    packed.seg.n = p->n_seg;
    packed.seg.start = p->start;
    packed.seg.prefix_len = p->prefix_len;
    packed.seg.block_table = p->table;
    if (r->states.cfg) {
        packed.states = (float *const *)r->states.states;
        packed.windows = (float *const *)r->states.window;
        packed.state_from = p->state_from;
        packed.state_to = p->state_to;
    }
    packed.adapted = p->adapted;
    packed.n_adapted = p->n_adapted;
    return ares_model_forward(r->model, r->workspace, &packed, hidden);
}

/* Draws the next token of every sample of the plan's out_seq. */
static int draw(ares_rollout *r, const plan *p, const void *hidden)
{
    ares_device *d = r->model->device;
    ares_sample_args a = rollout_sampler(r);
    if (!p->n_out) return ARES_OK;
    a.rows = p->n_out;
    a.x = hidden;
    a.temperature = p->temperature;
    a.top_p = p->top_p;
    a.top_k = p->top_k;
    a.key = p->key;
    a.token = p->token;
    a.log_prob = p->log_prob;
    a.entropy = p->entropy;
    if (p->want_1) {
        a.log_prob_1 = p->log_prob_1;
        a.entropy_1 = p->entropy_1;
    }
    if (!r->options.entropy_top_k && !r->options.most_likely && !p->want_likely) a.n_likely = 0;
    a.likely_token = p->likely_token;
    a.likely_log_prob = p->likely_log_prob;
    rollout_sample(r, p, &a);
    return d->k->sync(d);
}

/* Forward and tokens of the next plan, which may be empty where others are under way. */
static int launch(ares_rollout *r)
{
    rollout_schedule(r);
    plan *p = r->plan;
    if (!p->rows) return ARES_OK;
    if (r->ahead) ARES_TRY(rollout_ahead_launch(r, p));
    else {
        void *hidden;
        ARES_TRY(forward(r, p, &hidden));
        rollout_scores_compute(r, p, hidden);
        ARES_TRY(draw(r, p, hidden));
        r->hidden = hidden;
        if (r->model->tp) ARES_TRY(ares_group_sync(r->model->tp)); /* of what the step gathered */
    }
    rollout_keep_blocks(r);
    r->flying = r->plan; /* it must stay until its tokens are read */
    r->plan = &r->plans[r->plan == r->plans];
    return ARES_OK;
}
int ares_rollout_step(ares_rollout *r, int64_t *active)
{
    *active = 0;
    if (r->peers) ARES_TRY(meet(r));
    *active = r->unfinished - r->held;
    if (!*active) return ARES_OK;
    ARES_ASSERT(ares_phase_holds(r->model->device, &r->cache_memory));
    if (!r->flying) ARES_TRY(launch(r));
    plan *p = r->flying;
    ARES_ASSERT(p);
    if (r->ahead) ARES_TRY(launch(r));
    if (r->flying == p) r->flying = NULL;
    if (r->ahead) ARES_TRY(rollout_ahead_collect(r, p));
    int64_t before = r->stats.decoded_tokens, done = r->n_finished;
    for (int32_t i = 0; i < p->n_out; i++) {
        sequence *s = p->out_seq[i];
        int32_t right = 0;
        ARES_TRY(read_token(r, p, i));
        if (p->out_draft[i] < 0) continue;
        while (p->out_draft[i] == p->token[i] && s->state != SEQ_FINISHED) {
            s->cached++;
            right++;
            ARES_TRY(read_token(r, p, ++i));
        }
        bool wrong = p->out_draft[i] >= 0 && p->out_draft[i] != p->token[i];
        for (; p->out_draft[i] >= 0; i++) s->under_way--; /* drawn after what was not */
        rollout_draft_read(r, s, right, wrong);
    }
    if (r->n_finished > done)
        qsort(r->finished + done, (size_t)(r->n_finished - done), sizeof *r->finished, by_length);
    if (r->held) rollout_park(r);
    r->stats.steps++;
    ares_work_done(ARES_WORK_SAMPLED, r->stats.decoded_tokens - before);
    *active = r->unfinished - r->held;
    if (!*active) r->flying = NULL; /* it holds only rows of samples that have ended */
    if (!r->flying) {
        free_requests(r->dropped);
        r->dropped = NULL;
    }
    return ARES_OK;
}

static ares_completion completion_of(const sequence *s)
{
    const request *q = s->request;
    ares_completion c = { .request = q->own,
                          .index = s->index,
                          .n_tokens = s->n,
                          .finish = s->finish,
                          .cached_tokens = q->reused,
                          .n_likely = q->n_likely,
                          .likely_tokens = s->likely_tokens,
                          .likely_log_probs = s->likely_log_probs };
#define HAND_OUT(type, name, recorded, text) c.name = s->name;
    ARES_ROLLOUT_COLUMNS(HAND_OUT)
#undef HAND_OUT
    return c;
}

bool ares_rollout_next(ares_rollout *r, ares_completion *out)
{
    const sequence *s;
    do {
        if (r->next_finished == r->n_finished) return false;
        s = r->finished[r->next_finished++];
    } while (s->request->own < 0); /* another rank hands it out */
    *out = completion_of(s);
    s->request->handed_out++;
    /* a server goes on for ever: the list begins again when all of it is handed out */
    if (r->options.serves && r->next_finished == r->n_finished)
        r->next_finished = r->n_finished = 0;
    return true;
}

void ares_rollout_look(const ares_rollout *r, int64_t id, int32_t index, ares_completion *out)
{
    *out = completion_of(sample_of(request_of(r, id), index));
}

void ares_rollout_prompt_scores(const ares_rollout *r, int64_t id, ares_prompt_scores *out)
{
    const request *q = request_of(r, id);
    *out = (ares_prompt_scores){ .rows = q->prompt_len - 1,
                                 .width = q->scores.width,
                                 .n_likely = q->scores.n_likely,
                                 .log_probs = q->score_log_probs,
                                 .ranks = q->score_ranks,
                                 .likely_tokens = q->score_likely_tokens,
                                 .likely_log_probs = q->score_likely_log_probs };
}

void ares_rollout_drop(ares_rollout *r, int64_t id)
{
    request *q = request_of(r, id), **at = &r->first, *last = NULL;
    ARES_ASSERT(r->options.serves && q->handed_out == q->n);
    for (; *at != q; at = &(*at)->next) last = *at;
    *at = q->next;
    if (r->last == q) r->last = last;
    q->next = NULL;
    if (!r->flying) {
        free_request(q);
        return;
    }
    q->next = r->dropped; /* a step under way may name its samples */
    r->dropped = q;
}

void ares_rollout_get_stats(const ares_rollout *r, ares_rollout_stats *out)
{
    *out = r->stats;
    out->used_blocks = r->blocks.total - rollout_blocks_available(&r->blocks);
}

size_t ares_rollout_cache_bytes(const ares_rollout *r)
{
    return r->cache_bytes;
}

size_t ares_rollout_state_bytes(const ares_rollout *r, int32_t *room)
{
    *room = r->states.cap;
    return r->states.cfg ? rollout_states_each(&r->states) : 0;
}

bool ares_rollout_drafts(const ares_rollout *r)
{
    return r->drafts_tokens;
}
