/*
 * What the model reads of a conversation. Messages alternate: system, user, assistant, user ... A
 * prompt is either the text of all messages, encoded as a whole, or, with token_exact, the ids that
 * were sampled with the template's text between them.
 */
#include "agents/conversation.h"

#include <stdio.h>
#include <string.h>

/* The mark after the first tag, which is written for the model. */
static ares_view marked_answer(const conversation_style *s)
{
    return s->format.think ? ARES_VIEW("<think>" CONVERSATION_MARK)
                           : ARES_VIEW("<answer>" CONVERSATION_MARK);
}

/* ---------------- messages */
/* A turn of a digest. */
static void add_digest(const conversation_turn *t, int32_t number, ares_str *out)
{
    ares_str_addf(out, "Turn %d State:\n", number);
    ares_str_add_view(out, t->state);
    ares_str_addf(out, "\nTurn %d Action: ", number);
    ares_str_add_view(out, t->text);
    ares_str_addf(out, "\nTurn %d Reward: ", number);
    ares_env_reward_write(out, t->reward);
    ares_str_add_z(out, "\n---\n");
}

/* The layout of a digest is RAGEN's. */
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
    for (int32_t t = start; t < turn; t++) add_digest(&c->turns[t], t + 1, out);
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
    /* of a turn that has left the context no reward is told */
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
            add_message(&json, "assistant", s->marked ? marked_answer(c->style) : c->turns[t].text);
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
static int add_ids(const conversation *c, ares_view text, ares_ids *out)
{
    return ares_tokenizer_encode(c->style->tokenizer, text, false, out);
}

/* The text between two answers. An end token that the model wrote itself is not written again. */
static int add_piece(const conversation *c, ares_view text, ares_ids *out)
{
    int64_t from = out->n;
    ARES_TRY(add_ids(c, text, out));
    if (from == 0 || out->n == from || out->ids[from] != out->ids[from - 1]) return ARES_OK;
    memmove(out->ids + from, out->ids + from + 1, (size_t)(out->n - from - 1) * sizeof *out->ids);
    out->n--;
    return ARES_OK;
}

/* Divides the text at its marks: *n pieces, in the arena. */
static ares_view *divide(ares_view text, ares_arena *arena, int32_t *n)
{
    const ares_view mark = ARES_VIEW(CONVERSATION_MARK);
    ares_view *pieces = ares_arena_alloc(arena, (text.len / mark.len + 1) * sizeof *pieces);
    size_t from = 0;
    *n = 0;
    for (int64_t at; (at = ares_view_find(text, mark, from)) >= 0; from = (size_t)at + mark.len)
        pieces[(*n)++] = (ares_view){ text.data + from, (size_t)at - from };
    pieces[(*n)++] = (ares_view){ text.data + from, text.len - from };
    return pieces;
}

static int rewrites(void)
{
    return ares_fail(ARES_EUNSUPPORTED,
                     "env: env.token_exact: the chat template does not keep earlier turns as they "
                     "were, so that sampled tokens cannot stay; set it to false");
}

/*
 * The pieces around the answers that a prompt shows. While no turn leaves the context, those of the
 * prompt before must be among them, or the model would not have sampled what it is trained on.
 */
static int keep_pieces(conversation *c, const shown *s, ares_view text, ares_arena *arena)
{
    int32_t n, answers = c->style->context == CONTEXT_SINGLE ? 0 : s->turn - s->start;
    ares_view *pieces = divide(text, arena, &n);
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
        ARES_TRY(add_piece(c, c->pieces[i], out));
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
        /* first whether the present turn fits alone: an observation that does not is read twice,
         * and not once per turn that leaves */
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
    c->first = c->turns[c->n - 1].shown_from; /* what was tried since has moved no other turn */
}
