/*
 * Ranks whose models are slices of one (docs/ranks.md#tensor-parallelism) decode as one engine:
 * before each step they exchange the requests that came since the last one, and from there on every
 * rank has the same requests in the same order. So they make the same plans, and draw the same
 * tokens. Each hands out the samples that it was asked for.
 */
#include "internal.h"

#include <string.h>

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

rollout_peers *rollout_peers_new(ares_group *g)
{
    rollout_peers *p = ares_calloc(1, sizeof *p);
    p->group = g;
    return p;
}

void rollout_peers_free(rollout_peers *p)
{
    if (!p) return;
    ares_str_fini(&p->requests);
    ares_free(p);
}

void rollout_peers_clear(rollout_peers *p)
{
    ares_str_clear(&p->requests);
    p->taken = 0;
    p->mine = (word){ 0 };
    p->failed = ARES_OK;
    p->all_done = p->parted = false;
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

static const void *take(ares_view *in, size_t bytes)
{
    const char *at = in->data;
    ARES_ASSERT(padded(bytes) <= in->len);
    in->data += padded(bytes);
    in->len -= padded(bytes);
    return at;
}

void rollout_peers_add(rollout_peers *p, const ares_request *asked)
{
    const ares_sampling *s = &asked->sampling;
    put(&p->requests, asked, sizeof *asked);
    put(&p->requests, asked->prompt, (size_t)asked->prompt_len * sizeof *asked->prompt);
    put(&p->requests, s->stop_ids, (size_t)s->n_stop_ids * sizeof *s->stop_ids);
    for (int32_t i = 0; i < s->n_stop_strings; i++)
        put(&p->requests, s->stop_strings[i], strlen(s->stop_strings[i]) + 1);
}

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
        rollout_take_request(r, &q, own ? r->peers->taken++ : -1);
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

int rollout_peers_meet(ares_rollout *r)
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

void rollout_peers_part(ares_rollout *r)
{
    rollout_peers *p = r->peers;
    p->parted = true;
    take_requests(r, ares_str_view(&p->requests), true);
    ares_str_clear(&p->requests);
}

int rollout_peers_finish(ares_rollout *r, int rc)
{
    rollout_peers *p = r->peers;
    int64_t active;
    if (p->failed != ARES_OK) return p->failed;
    p->mine.rc = rc;
    p->mine.done = 1;
    do rc = ares_rollout_step(r, &active);
    while (rc == ARES_OK && !p->all_done);
    return rc;
}
