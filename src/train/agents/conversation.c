/*
 * The conversation of an episode as the model sees it. In order: its messages and prompts; the
 * rows of tokens and masks that it is trained on; the thoughts in it, for the measure of
 * collapse.
 */
#include "agents.h"

#include <stdio.h>
#include <string.h>

/*
 * Messages and prompts of a conversation. Messages alternate: system, user, assistant, user ... A
 * prompt is either the text of all messages, encoded as a whole, or, with token_exact, the ids that
 * were sampled with the template's text between them.
 */

/* ---------------- messages */
/* The user's message with a digest of earlier turns, in RAGEN's layout. */
static void add_single(const conversation *c, int32_t start, int32_t turn, ares_view message,
                       ares_str *out)
{
    char head[32];
    int n = snprintf(head, sizeof head, "\nTurn %d:\n", turn + 1); /* the message begins with it */
    if (start < turn)
        ares_str_addf(out,
                      "Summary: %d step(s) completed so far. Showing the last %d turn(s) with "
                      "state/action/reward details. Recent turns:\n---\n",
                      turn, turn - start);
    for (int32_t t = start; t < turn; t++) {
        ares_str_addf(out, "Turn %d State:\n", t + 1);
        ares_str_add_view(out, c->turns[t].state);
        ares_str_addf(out, "\nTurn %d Action: ", t + 1);
        ares_str_add_view(out, c->turns[t].text);
        ares_str_addf(out, "\nTurn %d Reward: ", t + 1);
        ares_env_reward_write(out, c->turns[t].reward);
        ares_str_add_z(out, "\n---\n");
    }
    ares_str_addf(out, start < turn ? "\nCurrent Turn (Turn %d):\n" : "(Turn %d):\n", turn + 1);
    ares_str_add(out, message.data + n, message.len - (size_t)n);
}

void conversation_user(const conversation *c, int32_t start, int32_t turn, bool silent,
                       ares_str *out)
{
    const conversation_turn *t = &c->turns[turn];
    ares_view message = silent ? t->silent : t->message;
    if (c->style->context == CONTEXT_SINGLE) {
        add_single(c, start, turn, message, out);
        return;
    }
    /* the reward of a turn that has left the context is not shown */
    if (turn > start) ares_env_reward_message(c->turns[turn - 1].reward, out);
    ares_str_add_view(out, message);
}

static void add_message(ares_str *json, const char *role, ares_view content)
{
    ares_json_begin(json, '{');
    ares_json_write_string(ares_json_key(json, "role"), ares_view_of(role));
    ares_json_write_string(ares_json_key(json, "content"), content);
    ares_json_end(json, '}');
}

/* Turns [start, turn] as a text. */
typedef struct shown {
    int32_t start, turn;
    bool silent;   /* without warnings */
    bool answered; /* ends with the turn's answer; false: ready for it */
    bool marked;   /* CONVERSATION_MARK in place of the answers */
} shown;

static int render(const conversation *c, const shown *s, ares_arena *arena, ares_str *out)
{
    /* an answer begins with the first tag, which is written for the model */
    const ares_view mark = c->style->format.think ? ARES_VIEW("<think>" CONVERSATION_MARK)
                                                  : ARES_VIEW("<answer>" CONVERSATION_MARK);
    ares_str json = { 0 }, user = { 0 };
    const ares_json *variables;
    bool digest = c->style->context == CONTEXT_SINGLE;
    ares_json_begin(&json, '{');
    ares_json_begin(ares_json_key(&json, "messages"), '[');
    add_message(&json, "system", c->system);
    for (int32_t t = digest ? s->turn : s->start; t <= s->turn; t++) {
        ares_str_clear(&user);
        conversation_user(c, s->start, t, s->silent, &user);
        add_message(&json, "user", ares_str_view(&user));
        if (t < s->turn || s->answered)
            add_message(&json, "assistant", s->marked ? mark : c->turns[t].text);
    }
    ares_json_end(&json, ']');
    ares_json_write_bool(ares_json_key(&json, "add_generation_prompt"), !s->answered);
    ares_json_end(&json, '}');
    int rc = ares_json_parse(arena, ares_str_view(&json), "conversation", &variables);
    if (rc == ARES_OK) rc = ares_chat_render(c->style->chat, variables, NULL, out);
    ares_str_fini(&json);
    ares_str_fini(&user);
    return rc;
}

int conversation_training_text(const conversation *c, int32_t turn, ares_arena *arena,
                               ares_str *out)
{
    const conversation_style *s = c->style;
    int32_t start = s->context == CONTEXT_FULL ? c->first : c->turns[turn].shown_from;
    const shown what = {
        .start = start, .turn = turn, .silent = !s->warn_in_training, .answered = true
    };
    return render(c, &what, arena, out);
}

/* ---------------- prompts */
/* Of a text, or of a part of one after the tokens that are there. */
static int add_ids(const conversation *c, ares_view text, ares_ids *out)
{
    return ares_tokenizer_encode_rest(c->style->tokenizer, text, out);
}

static int rewrites(void)
{
    return ares_fail(ARES_EUNSUPPORTED,
                     "env: env.token_exact: the chat template does not keep earlier turns as they "
                     "were, so that sampled tokens cannot stay; set it to false");
}

/*
 * Divides a prompt's text at its marks into the pieces around the answers. While no turn leaves the
 * context, the pieces of the previous prompt must come back unchanged, or the answers would be
 * trained after other text than they were sampled after.
 */
static int keep_pieces(conversation *c, const shown *s, ares_view text, ares_arena *arena)
{
    const ares_view mark = ARES_VIEW(CONVERSATION_MARK);
    int32_t n = 0, answers = c->style->context == CONTEXT_SINGLE ? 0 : s->turn - s->start;
    ares_view *pieces = ares_arena_alloc(arena, (text.len / mark.len + 1) * sizeof *pieces);
    size_t from = 0;
    for (int64_t at; (at = ares_view_find(text, mark, from)) >= 0; from = (size_t)at + mark.len)
        pieces[n++] = (ares_view){ text.data + from, (size_t)at - from };
    pieces[n++] = (ares_view){ text.data + from, text.len - from };
    if (n != answers + 1) return rewrites();
    bool grown = c->style->context == CONTEXT_FULL && c->n_pieces == n - 1 && s->turn > 0 &&
                 c->turns[s->turn - 1].shown_from == s->start;
    for (int32_t i = 0; grown && i < c->n_pieces; i++)
        if (!ares_view_eq(c->pieces[i], pieces[i])) return rewrites();
    c->pieces = pieces;
    c->n_pieces = n;
    return ARES_OK;
}

static int exact_prompt(conversation *c, const shown *s, ares_view text, ares_arena *arena,
                        ares_ids *out)
{
    ARES_TRY(keep_pieces(c, s, text, arena));
    ARES_TRY(add_ids(c, c->pieces[0], out));
    for (int32_t i = 1; i < c->n_pieces; i++) {
        int32_t t = s->start + i - 1;
        c->at[t] = (int32_t)out->n;
        for (int32_t k = 0; k < c->turns[t].n; k++) ares_ids_add(out, c->turns[t].ids[k], 0, 0);
        int64_t from = out->n;
        ARES_TRY(add_ids(c, c->pieces[i], out));
        /* an end token that the model wrote itself is not written again */
        if (from > 0 && out->n > from && out->ids[from] == out->ids[from - 1]) {
            memmove(out->ids + from, out->ids + from + 1,
                    (size_t)(out->n - from - 1) * sizeof *out->ids);
            out->n--;
        }
    }
    c->at[s->turn] = (int32_t)out->n;
    return ARES_OK;
}

static int prompt_text(const conversation *c, const shown *s, ares_arena *arena, ares_str *out)
{
    ARES_TRY(render(c, s, arena, out));
    ares_str_add_z(out, c->style->format.think ? "<think>" : "<answer>");
    return ARES_OK;
}

int conversation_prompt_text(const conversation *c, int32_t start, ares_arena *arena, ares_str *out)
{
    return prompt_text(c, &(shown){ .start = start, .turn = c->n - 1 }, arena, out);
}

static int prompt_from(conversation *c, int32_t start, ares_arena *arena, ares_ids *out)
{
    ares_str text = { 0 };
    const shown s = { .start = start, .turn = c->n - 1, .marked = c->style->token_exact };
    ares_ids_clear(out);
    int rc = prompt_text(c, &s, arena, &text);
    ares_view whole = { NULL, text.len };
    if (rc == ARES_OK) whole.data = ares_arena_copy(arena, text.data, text.len);
    ares_str_fini(&text);
    ARES_TRY(rc);
    return s.marked ? exact_prompt(c, &s, whole, arena, out) : add_ids(c, whole, out);
}

int conversation_prompt(conversation *c, ares_arena *arena, ares_ids *out)
{
    const conversation_style *s = c->style;
    int32_t last = c->n - 1, start = c->first;
    conversation_turn *t = &c->turns[last];
    if (s->context != CONTEXT_FULL)
        start = s->window < 0 ? 0 : (int32_t)ARES_MAX(0, last + 1 - s->window);
    ARES_TRY(prompt_from(c, start, arena, out));
    if (out->n >= s->limit && start < last) {
        /* tried first: whether the present turn fits alone; one that does not is then encoded
         * twice, not once for each turn that leaves the context */
        ARES_TRY(prompt_from(c, last, arena, out));
        if (out->n >= s->limit) start = last;
        else do
                ARES_TRY(prompt_from(c, ++start, arena, out));
            while (out->n >= s->limit);
    }
    if (s->context == CONTEXT_FULL) c->first = start;
    t->shown_from = start;
    t->prompt_len = (int32_t)out->n;
    t->prompt = (const int32_t *)(const void *)ares_arena_copy(arena, (const char *)out->ids,
                                                               (size_t)out->n * sizeof *out->ids);
    return ARES_OK;
}

void conversation_drop_turn(conversation *c)
{
    if (c->n == 1) {
        c->turns[0].prompt_len = c->at[0] = (int32_t)c->style->limit;
        return;
    }
    c->n--;
    c->first = c->turns[c->n - 1].shown_from; /* as before the prompt that did not fit */
}

/* The rows of tokens and masks that a conversation is trained on. */

/*
 * Which tokens of a text that was encoded as a whole are trained, and which end a turn: mask, ends
 * [n]. RAGEN's rule for a whole episode counts the tokens that begin a message: the assistant's
 * messages are the third, the fifth and so on, and are trained from the token after their beginning
 * to the token that begins the next message. The row of a single turn is trained from the beginning
 * of its last message on.
 */
static void conversation_mask(const conversation_style *s, const int32_t *ids, int64_t n,
                              uint8_t *mask, uint8_t *ends)
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

/*
 * Leaves mask 1 only on the tokens that the model writes and on the special token that ends them. A
 * token that holds bytes of the header and of the answer counts as the model's.
 */
static void leave_template_out(const conversation *c, const int32_t *ids, int64_t n, uint8_t *mask,
                               uint8_t *ends)
{
    const ares_tokenizer *tok = c->style->tokenizer;
    const conversation_turn *t = &c->turns[0];
    /* bytes between the token that begins an answer's message and the answer: as in any turn */
    size_t header = 0;
    for (int32_t at = t->prompt_len; at > 0 && t->prompt[at - 1] != c->style->start_id; at--)
        header += ares_tokenizer_token_bytes(tok, t->prompt[at - 1]).len;
    for (int64_t i = 0, next; i < n; i = next) { /* i: a message begins, or the text */
        size_t seen = 0;
        for (next = i + 1; next < n && ids[next] != c->style->start_id;) next++;
        mask[i] = 0;
        if (next == i + 1 || !mask[i + 1]) continue; /* no message of the model */
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

/* A row of ids [n], whose first prompt_len are the prompt; no token counts as sampled yet. */
static void begin_row(const conversation *c, const int32_t *ids, int32_t n, int32_t prompt_len,
                      ares_arena *arena, ares_trajectory_row *x)
{
    ares_trajectory_row_init(x, ids, prompt_len, n - prompt_len, arena);
    size_t size = (size_t)x->n_tokens + 1;
    x->turn_ends = ares_arena_calloc(arena, size, sizeof *x->turn_ends);
    if (c->style->turn_scores)
        x->turn_scores = ares_arena_calloc(arena, size, sizeof *x->turn_scores);
    if (n > prompt_len)
        memcpy(x->responses, ids + prompt_len, (size_t)(n - prompt_len) * sizeof *ids);
    for (int32_t i = 0; i < x->n_tokens; i++) x->weight_versions[i] = ARES_NOT_SAMPLED;
}

/*
 * Puts the scores of turns [start, turn] where these end. The score of a turn without an end goes
 * to the next end, or to the last one.
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

/* The row of sampled ids that ends with a turn: its own, or with CONTEXT_FULL the episode's. */
static void exact_row(const conversation *c, int32_t turn, ares_arena *arena,
                      ares_trajectory_row *x)
{
    const conversation_turn *last = &c->turns[turn];
    bool whole = c->style->context == CONTEXT_FULL;
    int32_t first = whole ? c->first : turn, prompt_len = whole ? c->at[first] : last->prompt_len,
            n = last->prompt_len + last->n;
    int32_t *ids = ares_arena_alloc(arena, ((size_t)n + 1) * sizeof *ids);
    memcpy(ids, last->prompt, (size_t)last->prompt_len * sizeof *ids);
    if (last->n) memcpy(ids + last->prompt_len, last->ids, (size_t)last->n * sizeof *ids);
    begin_row(c, ids, n, prompt_len, arena, x);
    for (int32_t k = first; k <= turn; k++) { /* sampled ids in their places of the row */
        const conversation_turn *t = &c->turns[k];
        int32_t at = whole ? c->at[k] - prompt_len : 0;
        size_t size = (size_t)t->n;
        if (!size) continue;
        memset(x->response_mask + at, 1, size);
        memcpy(x->entropies + at, t->entropies, size * sizeof *x->entropies);
        memcpy(x->entropies_1 + at, t->entropies_1, size * sizeof *x->entropies_1);
        x->turn_ends[at + t->n - 1] = 1;
        /* log-probs of a turn that was sampled in another context do not hold in this one */
        if (whole && t->shown_from != first) continue;
        memcpy(x->rollout_log_probs + at, t->log_probs, size * sizeof *x->rollout_log_probs);
        for (int32_t i = 0; i < t->n; i++) x->weight_versions[at + i] = t->weight_version;
    }
    put_scores(c, first, turn, x);
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

/*
 * The row that ends with a turn, from its text. It has no tokens where the prompt of the first turn
 * fills the context, so that nothing was sampled.
 */
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
        if (c->style->token_exact) exact_row(c, turn, arena, &y->rows[r]);
        else ARES_TRY(text_row(c, turn, arena, &y->rows[r]));
    }
    return ARES_OK;
}

/* The thoughts of a conversation, as they were sampled, and the prompts before them. */

int32_t conversation_thought_length(const ares_tokenizer *tokenizer, const int32_t *ids,
                                    int32_t n_ids)
{
    ares_str text = { 0 };
    int32_t n = 0;
    size_t read = 0;
    for (int32_t i = 0; i < n_ids; i++) /* special tokens are no part of an answer's text */
        if (!ares_tokenizer_is_special(tokenizer, ids[i]))
            ares_str_add_view(&text, ares_tokenizer_token_bytes(tokenizer, ids[i]));
    int64_t end = ares_view_find(ares_str_view(&text), ARES_VIEW("</think>"), 0);
    bool thought = end > 0 && ares_view_trim((ares_view){ text.data, (size_t)end }).len > 0;
    for (; thought && n < n_ids; n++) {
        if (!ares_tokenizer_is_special(tokenizer, ids[n]))
            read += ares_tokenizer_token_bytes(tokenizer, ids[n]).len;
        if (read > (size_t)end) break;
    }
    ares_str_fini(&text);
    return n;
}

void conversation_thoughts(const conversation *c, ares_arena *arena, ares_trajectory *y)
{
    ares_thought *thoughts = ares_arena_calloc(arena, (size_t)c->n + 1, sizeof *thoughts);
    for (int32_t i = 0; i < c->n; i++) {
        const conversation_turn *t = &c->turns[i];
        thoughts[i] =
            (ares_thought){ .prompt = t->prompt,
                            .prompt_len = t->prompt_len,
                            .ids = t->ids,
                            .n = conversation_thought_length(c->style->tokenizer, t->ids, t->n) };
    }
    y->thoughts = thoughts;
    y->n_thoughts = c->n;
}
