/*
 * Stored answers as tokens, with the span that is compared. An answer is encoded together with its
 * prompt; where the two merge into one token, that token belongs to the prompt. Offsets come from
 * the bytes of the tokens, never from a text that is encoded again.
 */
#include "pairs.h"

#include <string.h>

#include "prompt.h"

/* A list of messages, or one alone, as a list of {role, content}; anything else as it is. */
static int messages_of(const ares_json **v, const char *key, ares_arena *arena)
{
    if ((*v)->type != ARES_JSON_OBJECT && (*v)->type != ARES_JSON_ARRAY) return ARES_OK;
    const ares_json one = { .type = ARES_JSON_ARRAY, .items = *v, .count = 1 };
    const ares_json *list = (*v)->type == ARES_JSON_OBJECT ? &one : *v;
    return ares_row_messages(list, key, arena, v);
}

static int text_of_answer(const ares_json *v, const char *key, ares_view *out)
{
    const ares_json *last = v->type == ARES_JSON_ARRAY && v->count ? &v->items[v->count - 1] : v;
    if (v->type == ARES_JSON_ARRAY) {
        const ares_json *role = ares_json_get(last, "role");
        if (!role || role->type != ARES_JSON_STRING || !ares_view_is(role->text, "assistant"))
            return ares_fail(ARES_EFORMAT, "the last message of '%s' is not the assistant's", key);
        last = ares_json_get(last, "content");
    }
    if (!last || last->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT, "'%s' is neither a string nor a list of messages", key);
    if (!last->text.len)
        return ares_fail(ARES_EFORMAT, "'%s' is empty; give it a text, or leave the key out", key);
    *out = last->text;
    return ARES_OK;
}

int data_pair_texts(const ares_json *row, const ares_pair_options *o, ares_arena *arena,
                    ares_view *chosen, ares_view *rejected, bool *there)
{
    const ares_json *won = ares_row_at(row, o->chosen_key),
                    *lost = ares_row_at(row, o->rejected_key);
    *there = won && lost && won->type != ARES_JSON_NULL && lost->type != ARES_JSON_NULL;
    if (!*there) return ARES_OK;
    ARES_TRY(messages_of(&won, o->chosen_key, arena));
    ARES_TRY(messages_of(&lost, o->rejected_key, arena));
    ARES_TRY(text_of_answer(won, o->chosen_key, chosen));
    ARES_TRY(text_of_answer(lost, o->rejected_key, rejected));
    if (chosen->len == rejected->len && memcmp(chosen->data, rejected->data, chosen->len) == 0)
        return ares_fail(ARES_EFORMAT,
                         "'%s' and '%s' are the same text, which compares nothing; leave both out",
                         o->chosen_key, o->rejected_key);
    return ARES_OK;
}

static bool same_member(const ares_json *a, const ares_json *b, const char *key)
{
    ares_str x = { 0 }, y = { 0 };
    const ares_json *of_a = ares_json_get(a, key), *of_b = ares_json_get(b, key);
    if (of_a) ares_json_write(&x, of_a);
    if (of_b) ares_json_write(&y, of_b);
    bool same = ares_view_eq(ares_str_view(&x), ares_str_view(&y));
    ares_str_fini(&x);
    ares_str_fini(&y);
    return same;
}

static bool says(const ares_json *message, const char *role, ares_view text)
{
    const ares_json *r = ares_json_get(message, "role"), *c = ares_json_get(message, "content");
    return r && r->type == ARES_JSON_STRING && ares_view_is(r->text, role) && c &&
           c->type == ARES_JSON_STRING && ares_view_eq(c->text, text);
}

/*
 * A stored answer that is a conversation answers what stands before its last message, as in TRL.
 * Here it must be the row's prompt, which is also answered by sampling; a list of one message says
 * nothing of it.
 */
static int check_prompt(const ares_prompt_encoder *e, const ares_json *row, const char *key,
                        ares_arena *arena)
{
    const ares_json *list = ares_row_at(row, key), *prompt = ares_row_at(row, e->cfg->prompt_key);
    const char *system = e->cfg->system_prompt;
    ARES_TRY(messages_of(&list, key, arena));
    int64_t n = list->count - 1, i = 0;
    if (list->type != ARES_JSON_ARRAY || n < 1) return ARES_OK;
    bool same;
    if (prompt->type == ARES_JSON_ARRAY) {
        while (i < n && i < prompt->count &&
               same_member(&list->items[i], &prompt->items[i], "role") &&
               same_member(&list->items[i], &prompt->items[i], "content"))
            i++;
        same = i == n && n == prompt->count;
    } else {
        if (n == 2 && system && says(&list->items[0], "system", ares_view_of(system))) i = 1;
        same = i == n - 1 && says(&list->items[i], "user", prompt->text);
    }
    if (same) return ARES_OK;
    return ares_fail(ARES_EFORMAT,
                     "'%s' is a conversation of %lld messages, and what stands before its last one "
                     "is not '%s': message %lld differs; make them the same, or leave '%s' out of "
                     "the row, which then is what stands before the answers",
                     key, (long long)list->count, e->cfg->prompt_key, (long long)i,
                     e->cfg->prompt_key);
}

/* Each row writes to its own slot; what does not belong to it is added up afterwards. */
typedef struct slot {
    ares_ids ids[2];          /* prompt and answer; n 0: none */
    ares_stored_answer at[2]; /* without ids */
    bool there, no_room, shortened, merged;
    int rc;
    char *message;
} slot;
typedef struct encode_job {
    const ares_source *rows;
    const ares_prompt_encoder *e;
    const ares_pair_options *o;
    slot *slots;
} encode_job;

static int render_answer(const encode_job *j, const ares_row *row, ares_view answer,
                         ares_arena *arena, ares_prompt_media *media, ares_str *text)
{
    const ares_json *prompt = ares_row_at(row->json, j->e->cfg->prompt_key), *variables;
    if (!j->e->chat) {
        ares_str_add_view(text, row->prompt_text);
        ares_str_add_view(text, answer);
        return ARES_OK;
    }
    ARES_TRY(ares_prompt_media_of(j->e->cfg, row->json,
                                  prompt->type == ARES_JSON_ARRAY ? prompt : NULL, arena, media));
    ARES_TRY(ares_prompt_conversation(j->e, row->json, prompt, &answer, arena, &variables));
    variables = ares_prompt_place_media(variables, media, arena);
    return ares_chat_render(j->e->chat, variables, NULL, text);
}

static void add_eos(const encode_job *j, ares_ids *ids)
{
    if (j->e->chat || j->o->eos < 0 || ids->ids[ids->n - 1] == j->o->eos) return;
    ids->ids = ares_realloc(ids->ids, (size_t)(ids->n + 1) * sizeof *ids->ids);
    ids->ids[ids->n++] = j->o->eos;
    ids->cap = ids->n;
}

static void find_span(const encode_job *j, const ares_ids *ids, ares_stored_answer *a)
{
    ares_str text = { 0 };
    int64_t(*offsets)[2] = ares_calloc((size_t)a->n + 1, sizeof *offsets), first, end;
    ares_span_offsets(j->e->tokenizer, ids->ids + a->prompt_len, a->n, &text, offsets);
    if (ares_span_find(ares_str_view(&text), (const int64_t(*)[2])offsets, a->n, j->o->start_tag,
                       j->o->end_tag, &first, &end)) {
        a->span = (int32_t)first;
        a->span_end = (int32_t)end;
    }
    ares_free(offsets);
    ares_str_fini(&text);
}

static int encode_answer(const encode_job *j, const ares_row *row, ares_view answer, int which,
                         slot *s)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    ares_ids *ids = &s->ids[which];
    ares_stored_answer *a = &s->at[which];
    ares_prompt_media media = { 0 };
    const ares_sight *sight; /* that of the row says the same of the prompt */
    int rc = render_answer(j, row, answer, &arena, &media, &text);
    if (rc == ARES_OK)
        rc = ares_tokenizer_encode(j->e->tokenizer, ares_str_view(&text), !j->e->chat, ids);
    if (rc == ARES_OK) rc = ares_prompt_see(j->e, &media, &arena, ids, &sight);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    if (rc != ARES_OK) return rc;
    if (ids->n) add_eos(j, ids);
    s->merged |= ids->n < row->prompt_len ||
                 memcmp(ids->ids, row->prompt, (size_t)row->prompt_len * sizeof *ids->ids) != 0;
    s->shortened |= ids->n > j->o->max_length;
    ids->n = ARES_MIN(ids->n, j->o->max_length);
    a->prompt_len = row->prompt_len;
    a->n = (int32_t)ARES_MAX(0, ids->n - row->prompt_len);
    s->no_room |= a->n == 0;
    if (a->n) find_span(j, ids, a);
    return ARES_OK;
}

static void encode_row(void *ctx, int64_t i, int worker)
{
    (void)worker;
    encode_job *j = ctx;
    slot *s = &j->slots[i];
    const ares_row *row = ares_source_row(j->rows, i);
    ares_view text[2];
    ares_arena arena = { 0 };
    s->rc = data_pair_texts(row->json, j->o, &arena, &text[0], &text[1], &s->there);
    if (s->there && s->rc == ARES_OK)
        s->rc = check_prompt(j->e, row->json, j->o->chosen_key, &arena);
    if (s->there && s->rc == ARES_OK)
        s->rc = check_prompt(j->e, row->json, j->o->rejected_key, &arena);
    for (int k = 0; k < 2 && s->there && s->rc == ARES_OK; k++)
        s->rc = encode_answer(j, row, text[k], k, s);
    if (s->rc != ARES_OK) s->message = ares_strdup(ares_error_message());
    ares_arena_fini(&arena);
}

static bool has_spans(const slot *s)
{
    return s->at[0].span_end > s->at[0].span && s->at[1].span_end > s->at[1].span;
}

/* Where the end of both is cut, or a chat template trims them, nothing may be left to compare. */
static bool equal_tokens(const slot *s)
{
    return s->ids[0].n == s->ids[1].n &&
           memcmp(s->ids[0].ids, s->ids[1].ids, (size_t)s->ids[0].n * sizeof *s->ids[0].ids) == 0;
}

static void keep(ares_pairs *out, int64_t i, const slot *s, bool without_span)
{
    ares_stored_answer *into[2] = { &out->pair[i].chosen, &out->pair[i].rejected };
    ares_pair_counts *c = &out->counts;
    c->absent += !s->there;
    c->shortened += s->shortened;
    c->merged += s->merged;
    if (!s->there) return;
    c->without_room += s->no_room;
    bool equal = !s->no_room && equal_tokens(s);
    c->equal += equal;
    c->without_span += !s->no_room && !equal && !has_spans(s);
    if (s->no_room || equal || !(has_spans(s) || without_span)) return;
    c->pairs++;
    for (int k = 0; k < 2; k++) {
        size_t bytes = (size_t)s->ids[k].n * sizeof(int32_t);
        *into[k] = s->at[k];
        into[k]->ids = (const int32_t *)(const void *)ares_arena_copy(
            &out->arena, (const char *)s->ids[k].ids, bytes);
    }
}

int ares_pairs_encode(const ares_source *rows, const ares_prompt_encoder *e,
                      const ares_pair_options *o, ares_pool *pool, ares_pairs *out)
{
    int64_t n = ares_source_count(rows);
    int rc = ARES_OK;
    *out = (ares_pairs){ .n = n };
    out->pair = ares_arena_calloc(&out->arena, (size_t)n + 1, sizeof *out->pair);
    slot *slots = ares_calloc((size_t)n + 1, sizeof *slots);
    ares_pool_run(pool, n, encode_row, &(encode_job){ rows, e, o, slots });
    for (int64_t i = 0; i < n; i++) {
        const ares_row *row = ares_source_row(rows, i);
        if (slots[i].rc != ARES_OK && rc == ARES_OK)
            rc = ares_fail(slots[i].rc, "data: %s:%lld: %s", row->file, (long long)row->line,
                           slots[i].message);
        if (rc == ARES_OK) keep(out, i, &slots[i], o->without_span);
        for (int k = 0; k < 2; k++) ares_ids_fini(&slots[i].ids[k]);
        ares_free(slots[i].message);
    }
    ares_free(slots);
    return rc;
}

void ares_pairs_fini(ares_pairs *p)
{
    ares_arena_fini(&p->arena);
    *p = (ares_pairs){ 0 };
}
