/* What a conversation is trained on: rows of tokens with their masks. */
#include <string.h>

#include "agents/conversation.h"

void conversation_mask(const conversation_style *s, const int32_t *ids, int64_t n, uint8_t *mask,
                       uint8_t *ends)
{
    int64_t begun = 0, last = n;
    bool whole = s->context == CONTEXT_FULL;
    memset(mask, 0, (size_t)n);
    memset(ends, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == s->start_id) last = i;
    for (int64_t i = 0; i < n; i++) { /* begun: messages that begin before token i */
        if (!whole) mask[i] = i >= last;
        else mask[i] = s->mask_prompts ? begun > 1 && begun % 2 == 1 : begun > 1;
        /* an answer ends before the message after it, or with the text */
        bool next = i + 1 == n || ids[i + 1] == s->start_id;
        ends[i] = next && (whole ? begun > 1 && begun % 2 == 1 : i >= last);
        begun += ids[i] == s->start_id;
    }
}

/* Bytes of the template between the token that begins an answer's message and the answer itself. */
static size_t header_bytes(const conversation *c)
{
    const conversation_turn *t = &c->turns[0]; /* all are alike */
    size_t n = 0;
    for (int32_t at = t->prompt_len; at > 0 && t->prompt[at - 1] != c->style->start_id; at--)
        n += ares_tokenizer_token_bytes(c->style->tokenizer, t->prompt[at - 1]).len;
    return n;
}

/*
 * Leaves mask 1 only on what the model writes and on the special token that ends it. A token that
 * holds bytes of the header and of the answer is the model's.
 */
static void leave_template_out(const conversation *c, const int32_t *ids, int64_t n, uint8_t *mask,
                               uint8_t *ends)
{
    const ares_tokenizer *tok = c->style->tokenizer;
    const size_t header = header_bytes(c);
    for (int64_t i = 0, next; i < n; i = next) { /* i: a message begins, or the text */
        size_t seen = 0;
        for (next = i + 1; next < n && ids[next] != c->style->start_id;) next++;
        mask[i] = 0;
        if (next == i + 1 || !mask[i + 1]) continue; /* not the model's */
        int64_t k = i + 1;
        for (; k < next; mask[k++] = 0)
            if ((seen += ares_tokenizer_token_bytes(tok, ids[k]).len) > header) break;
        while (k < next && !ares_tokenizer_is_special(tok, ids[k])) k++;
        if (k + 1 >= next) continue;
        memset(mask + k + 1, 0, (size_t)(next - k - 1));
        ends[k] = ends[next - 1];
        ends[next - 1] = 0;
    }
}

static void allocate_marks(const conversation *c, ares_trajectory_row *x, ares_arena *arena)
{
    size_t n = (size_t)x->n_tokens + 1;
    x->turn_ends = ares_arena_calloc(arena, n, sizeof *x->turn_ends);
    if (c->style->turn_scores) x->turn_scores = ares_arena_calloc(arena, n, sizeof *x->turn_scores);
}

/* Sampled ids of a turn, at a place of the row. exact: in the context that the row shows. */
static void put_turn(const conversation_turn *t, int32_t at, bool exact, ares_trajectory_row *x)
{
    size_t n = (size_t)t->n;
    if (!n) return;
    memset(x->response_mask + at, 1, n);
    memcpy(x->entropies + at, t->entropies, n * sizeof *x->entropies);
    memcpy(x->entropies_1 + at, t->entropies_1, n * sizeof *x->entropies_1);
    if (exact) memcpy(x->rollout_log_probs + at, t->log_probs, n * sizeof *x->rollout_log_probs);
    for (int32_t i = 0; i < t->n && exact; i++) x->weight_versions[at + i] = t->weight_version;
    x->turn_ends[at + t->n - 1] = 1;
}

/* Ids [n] whose first prompt_len are the prompt; nothing counts as sampled yet. */
static void begin_row(const conversation *c, const int32_t *ids, int32_t n, int32_t prompt_len,
                      ares_arena *arena, ares_trajectory_row *x)
{
    ares_trajectory_row_init(x, ids, prompt_len, n - prompt_len, arena);
    allocate_marks(c, x, arena);
    if (n > prompt_len)
        memcpy(x->responses, ids + prompt_len, (size_t)(n - prompt_len) * sizeof *ids);
    for (int32_t i = 0; i < x->n_tokens; i++) x->weight_versions[i] = ARES_NOT_SAMPLED;
}

/* The scores of turns [start, turn] where these end; one without an end goes to the next, or back.
 */
static void put_scores(const conversation *c, int32_t start, int32_t turn, ares_trajectory_row *x)
{
    float carried = 0;
    int32_t t = start, last = -1;
    if (!x->turn_scores) return;
    for (int32_t i = 0; i < x->n_tokens; i++) {
        if (!x->turn_ends[i] || t > turn) continue;
        while (t < turn && c->style->token_exact && !c->turns[t].n)
            carried += (float)c->turns[t++].reward.value;
        x->turn_scores[last = i] = carried + (float)c->turns[t++].reward.value;
        carried = 0;
    }
    for (; t <= turn; t++) carried += (float)c->turns[t].reward.value;
    if (last >= 0) x->turn_scores[last] += carried;
}

/* The ids that the turn was sampled from and its own, [*n], in the arena. */
static int32_t *sampled_ids(const conversation_turn *t, ares_arena *arena, int32_t *n)
{
    *n = t->prompt_len + t->n;
    int32_t *ids = ares_arena_alloc(arena, ((size_t)*n + 1) * sizeof *ids);
    memcpy(ids, t->prompt, (size_t)t->prompt_len * sizeof *ids);
    if (t->n) memcpy(ids + t->prompt_len, t->ids, (size_t)t->n * sizeof *ids);
    return ids;
}

static void exact_episode(const conversation *c, ares_arena *arena, ares_trajectory_row *x)
{
    int32_t last = c->n - 1, n, prompt_len = c->at[c->first];
    const int32_t *ids = sampled_ids(&c->turns[last], arena, &n);
    begin_row(c, ids, n, prompt_len, arena, x);
    for (int32_t t = c->first; t <= last; t++)
        put_turn(&c->turns[t], c->at[t] - prompt_len, c->turns[t].shown_from == c->first, x);
    put_scores(c, c->first, last, x);
}

static void exact_turn(const conversation *c, int32_t turn, ares_arena *arena,
                       ares_trajectory_row *x)
{
    const conversation_turn *t = &c->turns[turn];
    int32_t n;
    const int32_t *ids = sampled_ids(t, arena, &n);
    begin_row(c, ids, n, t->prompt_len, arena, x);
    put_turn(t, 0, true, x);
    put_scores(c, turn, turn, x);
}

void conversation_text_row(const conversation *c, int32_t turn, const int32_t *ids, int32_t n,
                           ares_arena *arena, ares_trajectory_row *x)
{
    int32_t prompt_len = 0;
    uint8_t *mask = ares_arena_alloc(arena, (size_t)n + 1),
            *ends = ares_arena_alloc(arena, (size_t)n + 1);
    const char *copy = ares_arena_copy(arena, (const char *)ids, (size_t)n * sizeof *ids);
    conversation_mask(c->style, ids, n, mask, ends);
    if (!c->style->mask_template) leave_template_out(c, ids, n, mask, ends);
    while (prompt_len < n && !mask[prompt_len]) prompt_len++;
    begin_row(c, (const int32_t *)(const void *)copy, n, prompt_len, arena, x);
    memcpy(x->response_mask, mask + prompt_len, (size_t)x->n_tokens);
    memcpy(x->turn_ends, ends + prompt_len, (size_t)x->n_tokens);
    put_scores(c, c->style->context == CONTEXT_FULL ? c->first : turn, turn, x);
}

/* The row that ends with a turn, from its text; without tokens where nothing was sampled, since
 * the prompt of the first turn fills the context. */
static int text_row(const conversation *c, int32_t turn, ares_arena *arena, ares_trajectory_row *x)
{
    const conversation_turn *t = &c->turns[turn];
    if (t->prompt_len >= c->style->limit) {
        begin_row(c, t->prompt, t->prompt_len, t->prompt_len, arena, x);
        return ARES_OK;
    }
    ares_str text = { 0 };
    ares_ids ids = { 0 };
    int rc = conversation_training_text(c, turn, arena, &text);
    if (rc == ARES_OK)
        rc = ares_tokenizer_encode(c->style->tokenizer, ares_str_view(&text), false, &ids);
    if (rc == ARES_OK) conversation_text_row(c, turn, ids.ids, (int32_t)ids.n, arena, x);
    ares_str_fini(&text);
    ares_ids_fini(&ids);
    return rc;
}

int conversation_rows(const conversation *c, ares_arena *arena, ares_trajectory *y)
{
    bool whole = c->style->context == CONTEXT_FULL;
    y->n_rows = whole ? 1 : c->n;
    y->rows = ares_arena_calloc(arena, (size_t)y->n_rows, sizeof *y->rows);
    for (int32_t r = 0; r < y->n_rows; r++) {
        int32_t turn = whole ? c->n - 1 : r;
        if (!c->style->token_exact) ARES_TRY(text_row(c, turn, arena, &y->rows[r]));
        else if (whole) exact_episode(c, arena, &y->rows[r]);
        else exact_turn(c, turn, arena, &y->rows[r]);
    }
    return ARES_OK;
}
