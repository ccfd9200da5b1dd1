/*
 * Drafts: tokens that a sample may draw next, computed in the forward that draws the one before
 * them. They are copied from where the sample's last tokens stood before: in its prompt, in its own
 * answer, or in another answer to the same prompt. Each position is drawn with its own key from its
 * own hidden state, as ever. While what is drawn is what was drafted, the row after it is the row
 * that the next step would have computed, in every bit; the first token that differs is the right
 * one, and the rows after it are forgotten. So drafts change how many steps a sample takes and
 * nothing that is recorded of it.
 *
 * How many tokens are drafted is decided by counts. A row more costs a share of a forward
 * (row_cost); with B samples in the forward a token is worth 1/B of all of it. A draft whose tokens
 * are right with probability p each is worth its i-th row where p^i is above the one by the other.
 * Of each class of match the request and the engine count how often such tokens were right.
 *
 * Delta nets have a state after the last row alone. A forward with a draft writes it to another
 * slot, so that where a token is wrong the sample goes on from the state that it had, and the next
 * forward has the right ones' rows once more.
 */
#include <string.h>

#include "internal.h"

enum {
    LEAST_MATCH = 3,      /* fewer equal tokens say little */
    LONG_MATCH = 8,       /* from here on the sample copies, and will go on */
    MOST_MATCH = 24,      /* longer ones are equal */
    CANDIDATES = 256,     /* places that are compared at most */
    REQUEST_COUNTS = 64,  /* tokens after which counts of a request are halved */
    ENGINE_COUNTS = 1024, /* and those of the engine */
    PRIOR = 4,            /* tokens for which the engine's counts stand in a request's */
    PROBE_EVERY = 32      /* matches of a class that does not pay: one of so many is tried */
};

/* Weights that a processor keeps in its own cache cost little to read again. */
static const size_t CACHED_BYTES = (size_t)16 << 20;

/* Of a row more in a forward, in forwards of one row; measured: docs/performance.md#speculation */
static double row_cost(const ares_rollout *r)
{
    double cost = r->model->params.weights_bytes > CACHED_BYTES ? 1.0 / 8 : 1.0 / 4;
    return r->model->cfg.net.v_heads ? 1.5 * cost : cost; /* many a row comes twice */
}

int32_t rollout_most_drafts(const ares_rollout *r)
{
    return r->drafts_tokens ? ARES_MIN(r->max_seqs, (int32_t)(1 / row_cost(r))) : 0;
}

int32_t rollout_most_out(const ares_rollout *r)
{
    return ARES_MAX(r->max_seqs, rollout_most_drafts(r) * (1 + ROLLOUT_DRAFT));
}

/* ------------------------------------------------------------------ where it was seen before */
static int32_t token_at(const request *q, const sequence *s, int32_t at)
{
    return at < q->prompt_len ? q->prompt[at] : s->ids[at - q->prompt_len];
}

/* The last place of a token before place n of ids; -1: there is none. */
static int32_t last_place(const int32_t *ids, int32_t n, int32_t token)
{
    enum { PIECE = 32 };
    while (n >= PIECE) {
        int32_t found = 0;
        for (int32_t k = 0; k < PIECE; k++) found |= ids[n - PIECE + k] == token;
        if (found) break;
        n -= PIECE;
    }
    while (n > 0 && ids[n - 1] != token) n--;
    return n - 1;
}

/* The longest match so far: `length` tokens that end before place `next` of what `of` reads. */
typedef struct match {
    const sequence *of;
    int32_t next, length, left; /* left: places that may still be compared */
} match;

/* Looks for the end of sample s in places [from, to) of x: its prompt (from 0) or its answer. */
static void look_in(const sequence *s, const sequence *x, int32_t from, int32_t to, match *best)
{
    const request *q = s->request;
    int32_t len = q->prompt_len + s->n, last = token_at(q, s, len - 1);
    const int32_t *ids = from ? x->ids : q->prompt;
    for (int32_t at = to - from; best->left > 0 && best->length < MOST_MATCH; best->left--) {
        at = last_place(ids, at, last);
        if (at < 0) return;
        int32_t most = ARES_MIN(ARES_MIN(MOST_MATCH, len), from + at + 1), n = 1;
        while (n < most && token_at(q, x, from + at - n) == token_at(q, s, len - 1 - n)) n++;
        if (n <= best->length) continue;
        best->length = n;
        best->of = x;
        best->next = from + at + 1;
    }
}

/* Its own answer comes first, then the prompt, then the others in turn; longer matches win. */
static match find(const sequence *s)
{
    const request *q = s->request;
    match best = { .length = LEAST_MATCH - 1, .left = CANDIDATES };
    look_in(s, s, q->prompt_len, q->prompt_len + s->n - 1, &best);
    look_in(s, s, 0, q->prompt_len, &best);
    for (int32_t i = 0; i < q->n; i++) {
        const sequence *x = &q->samples[i];
        /* what comes after its last token is not known */
        if (x != s && x->n > 1) look_in(s, x, q->prompt_len, q->prompt_len + x->n - 1, &best);
    }
    return best;
}

/* ------------------------------------------------------------------ how many */
static int class_of(const match *m)
{
    return m->length >= LONG_MATCH ? 2 : m->length > LEAST_MATCH;
}

static void count(draft_counts *c, int32_t right, int32_t tried, int32_t most)
{
    c->right += (double)right;
    c->tried += (double)tried;
    if (c->tried < most) return;
    c->right /= 2;
    c->tried /= 2;
}

/* How probable a token of such a draft is, as far as is known. */
static double chance(const ares_rollout *r, const request *q, int class)
{
    const draft_counts *all = &r->drafts[class], *own = &q->drafts[class];
    double before = (all->right + 1) / (all->tried + 3); /* a third where nothing is known */
    return (own->right + PRIOR * before) / (own->tried + PRIOR);
}

/* Whether the sample ends with this token in any case, or can never draw it. */
static bool ends_draft(const ares_rollout *r, const request *q, int32_t token)
{
    const ares_sampling *g = &q->sampling;
    const ares_vision_config *v = &r->model->cfg.vision;
    if (rollout_sees(r) && (token == v->image_token || token == v->video_token)) return true;
    if (!g->ignore_eos && ares_model_ends(&r->model->cfg, token)) return true;
    for (int32_t i = 0; i < g->n_stop_ids; i++)
        if (token == g->stop_ids[i]) return true;
    return false;
}

void rollout_draft(ares_rollout *r, sequence *s, int32_t running, int32_t room)
{
    request *q = s->request;
    double cost = running * row_cost(r), least = cost / (1 + cost), p = 1;
    int64_t left = ARES_MIN(s->limit, r->until - q->start) - s->n - 1;
    s->n_draft = 0;
    room = (int32_t)ARES_MIN(ARES_MIN(left, room), ROLLOUT_DRAFT);
    if (cost > 1 || room < 1) return;
    match m = find(s);
    if (m.length < LEAST_MATCH) return;
    int class = class_of(&m);
    draft_counts *c = &q->drafts[class];
    double each = chance(r, q, class);
    if (each < least) {
        if (++c->passed < PROBE_EVERY) return;
        c->passed = 0;
        room = 1;
    }
    int32_t end = q->prompt_len + m.of->n;
    for (int32_t n = 0, at = m.next; n < room && (at < end || m.of == s); n++, at++) {
        p *= each;
        /* beyond its own end it repeats what came since the match */
        int32_t token = at < end ? token_at(q, m.of, at) : s->draft[at - end];
        if ((n && p < least) || ends_draft(r, q, token)) break;
        s->draft[s->n_draft++] = token;
    }
    s->draft_class = class;
}

void rollout_draft_read(ares_rollout *r, sequence *s, int32_t right, bool wrong)
{
    int32_t tried = right + wrong;
    count(&s->request->drafts[s->draft_class], right, tried, REQUEST_COUNTS);
    count(&r->drafts[s->draft_class], right, tried, ENGINE_COUNTS);
    r->stats.drafted_tokens += s->n_draft;
    r->stats.accepted_tokens += right;
    if (s->ahead >= 0 && right == s->n_draft) {
        rollout_state_drop(&r->states, &s->slot);
        s->slot = s->ahead;
        s->ahead = -1;
        s->stated = s->cached;
    }
    rollout_state_drop(&r->states, &s->ahead);
    if (s->slot >= 0) s->cached = s->stated;
    s->n_draft = 0;
    /* rows of what was not drawn may have blocks of their own */
    while (s->state == SEQ_RUNNING && s->blocks.n > blocks_for(s->cached))
        rollout_block_drop(&r->blocks, s->blocks.block[--s->blocks.n]);
}
