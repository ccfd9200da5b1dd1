/*
 * From rows to the ids of prompts. First rows that are left out because of their images or
 * videos, then the encoder, last stored answers to prompts.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Rows that are left out because of their images or videos. */

int ares_prompt_try_media(const ares_prompt_encoder *e, const ares_row_media *row_media)
{
    for (int32_t i = 0; row_media && e->cfg->filter_unreadable_media && i < row_media->n_places;
         i++) {
        uint8_t *pixels = NULL;
        uint64_t key;
        ARES_TRY(
            ares_medium_read(row_media->places[i].medium, &e->row_media->processor, &pixels, &key));
        ares_free(pixels);
    }
    return ARES_OK;
}

int ares_prompt_leave_out(const ares_prompt_encoder *e, const ares_row *row, int rc,
                          const char *message, ares_unseen *n)
{
    enum { SHOWN = 5 }; /* unreadable rows that are named in the log; the rest is counted */
    /* an image of a side of 200 times the other is dropped as prompts that are too long are */
    if (rc == ARES_ELIMIT && e->cfg->filter_overlong_prompts) return n->thin++, ARES_OK;
    if (!e->cfg->filter_unreadable_media)
        return ares_fail(rc, "data: %s:%lld: %s", row->file, (long long)row->line, message);
    if (n->unreadable++ < SHOWN)
        ares_warn("data: %s:%lld: dropped: %s", row->file, (long long)row->line, message);
    return ARES_OK;
}

/* One line each, after the first few rows were named one by one. */
void ares_unseen_tell(const ares_unseen *n, int64_t rows)
{
    if (n->thin)
        ares_info("data: %lld of %lld rows dropped: a side of an image is too long for the other",
                  (long long)n->thin, (long long)rows);
    if (n->unreadable)
        ares_warn("data: %lld of %lld rows dropped: their images or videos cannot be read",
                  (long long)n->unreadable, (long long)rows);
}

/*
 * Row -> prompt ids: format prompt, system prompt, chat template, tokens. The text of a chat
 * template is encoded without adding special tokens, because the template writes them itself.
 */

int ares_prompt_encoder_new(const ares_prompt_options *o, ares_prompt_encoder **out)
{
    *out = NULL;
    const ares_data_config *cfg = o->cfg;
    ares_prompt_encoder *e = ares_calloc(1, sizeof *e);
    e->cfg = cfg;
    e->tokenizer = o->tokenizer;
    e->row_media = o->row_media;
    e->limit_images = o->limit_images;
    int rc = ARES_OK;
    const ares_json *kwargs = cfg->chat_template_kwargs;
    bool more = kwargs && kwargs->type == ARES_JSON_OBJECT && kwargs->count;
    if (cfg->system_prompt && !cfg->apply_chat_template)
        rc = ares_fail(ARES_ECONFIG,
                       "data: data.system_prompt: a system message needs a chat template; set "
                       "data.apply_chat_template=true, or use data.format_prompt");
    else if (more && !cfg->apply_chat_template)
        rc = ares_fail(ARES_ECONFIG, "data: data.chat_template_kwargs: there is no chat template "
                                     "to read them; set data.apply_chat_template=true, or leave "
                                     "them out");
    if (rc == ARES_OK && cfg->format_prompt)
        rc = ares_format_prompt_load(cfg->format_prompt, &e->format);
    if (rc == ARES_OK && cfg->apply_chat_template) {
        if (cfg->override_chat_template) {
            ares_str source = { 0 };
            rc = ares_file_read(cfg->override_chat_template, &source);
            if (rc == ARES_OK)
                rc = ares_chat_new(cfg->override_chat_template, ares_str_view(&source),
                                   ares_tokenizer_config(e->tokenizer), &e->chat);
            ares_str_fini(&source);
        } else { /* the model's own */
            rc = ares_chat_load(o->model_dir, NULL, &e->chat);
            if (rc != ARES_OK) ares_fail_in(rc, "data.apply_chat_template");
        }
    }
    for (int64_t i = 0; e->chat && more && i < kwargs->count; i++)
        /* Jinja itself is silent about variables that nothing reads: a typo would go unseen */
        if (!ares_chat_reads(e->chat, kwargs->members[i].key))
            ares_warn("data: data.chat_template_kwargs: the chat template reads no '%.*s'; it has "
                      "no effect",
                      (int)ARES_MIN(kwargs->members[i].key.len, 60), kwargs->members[i].key.data);
    if (e->chat && more) ares_chat_set_variables(e->chat, kwargs);
    if (rc != ARES_OK) {
        ares_prompt_encoder_free(e);
        return rc;
    }
    *out = e;
    return ARES_OK;
}

void ares_prompt_encoder_free(ares_prompt_encoder *e)
{
    if (!e) return;
    ares_template_free(e->format);
    ares_chat_free(e->chat);
    ares_free(e);
}

const ares_chat *ares_prompt_encoder_chat(const ares_prompt_encoder *e)
{
    return e->chat;
}

/* data.format_prompt applied to a string prompt; the text itself where there is none. */
int ares_prompt_format(const ares_prompt_encoder *e, ares_view text, ares_str *out)
{
    if (e->format) return ares_format_prompt_render(e->format, text, out);
    ares_str_add_view(out, text);
    return ARES_OK;
}

const ares_json *ares_prompt_variables(const ares_json *row, const ares_json *messages,
                                       ares_view ready, ares_arena *arena)
{
    static const ares_json yes = { .type = ARES_JSON_BOOL, .boolean = true };
    static const char *const own[] = { "messages", "add_generation_prompt",
                                       "continue_final_message" };
    ares_json *out = ares_arena_calloc(arena, 1, sizeof *out);
    ares_json_member *m = ares_arena_alloc(arena, (size_t)(row->count + 2) * sizeof *m);
    out->type = ARES_JSON_OBJECT;
    out->members = m;
    m[out->count++] = (ares_json_member){ ARES_VIEW("messages"), messages };
    if (ready.data) m[out->count++] = (ares_json_member){ ready, &yes };
    /* the row's own keys (tools, documents ..) are variables of the template, too */
    for (int64_t i = 0; i < row->count; i++) {
        bool kept = true;
        for (int k = 0; k < ARES_COUNT(own); k++)
            kept = kept && !ares_view_is(row->members[i].key, own[k]);
        if (kept) m[out->count++] = row->members[i];
    }
    return out;
}

int ares_prompt_conversation(const ares_prompt_encoder *e, const ares_json *row,
                             const ares_json *prompt, const ares_view *answer, ares_arena *arena,
                             const ares_json **variables)
{
    bool given = prompt->type == ARES_JSON_ARRAY;
    ares_json *messages = ares_arena_calloc(arena, 1, sizeof *messages);
    *messages =
        (ares_json){ .type = ARES_JSON_ARRAY,
                     .items = ares_arena_calloc(arena, (size_t)(given ? prompt->count : 2) + 1,
                                                sizeof *messages) };
    /* a list is taken as it is; a string becomes a message of the user */
    if (given) {
        memcpy((ares_json *)messages->items, prompt->items, (size_t)prompt->count * sizeof *prompt);
        messages->count = prompt->count;
    } else {
        ares_str content = { 0 };
        int rc = ares_prompt_format(e, prompt->text, &content);
        ares_view kept = { ares_arena_copy(arena, content.data ? content.data : "", content.len),
                           content.len };
        ares_str_fini(&content);
        ARES_TRY(rc);
        if (e->cfg->system_prompt)
            row_add_message(messages, "system", ares_view_of(e->cfg->system_prompt), arena);
        row_add_message(messages, "user", kept, arena);
    }
    /* where the last message is the assistant's, the answer continues it */
    ares_view ready = ares_chat_prompt_variable(messages);
    if (answer && ares_view_is(ready, "continue_final_message")) {
        /* the answer after the text of the last message */
        ares_view added = *answer;
        ares_json *message = (ares_json *)&messages->items[messages->count - 1],
                  *joined = ares_arena_calloc(arena, 1, sizeof *joined);
        const ares_json *content = ares_json_get(message, "content");
        if (!content || content->type != ARES_JSON_STRING)
            return ares_fail(ARES_EFORMAT,
                             "the last message of '%s' is the assistant's and has no text that the "
                             "response could continue; end the prompt with a message of the user",
                             e->cfg->prompt_key);
        size_t before = content->text.len;
        char *text = ares_arena_alloc(arena, before + added.len + 1);
        if (before) memcpy(text, content->text.data, before);
        if (added.len) memcpy(text + before, added.data, added.len);
        text[before + added.len] = 0;
        *joined = (ares_json){ .type = ARES_JSON_STRING, .text = { text, before + added.len } };
        /* members may be shared with the row, which other answers read: they are copied */
        ares_json_member *members =
            ares_arena_alloc(arena, (size_t)message->count * sizeof *members);
        for (int64_t i = 0; i < message->count; i++) {
            members[i] = message->members[i];
            if (ares_view_is(members[i].key, "content")) members[i].value = joined;
        }
        message->members = members;
    } else if (answer) row_add_message(messages, "assistant", *answer, arena);
    *variables =
        ares_prompt_variables(row, messages, answer ? (ares_view){ NULL, 0 } : ready, arena);
    return ARES_OK;
}
/* Rows are encoded in parallel; each writes its result or its error to its own slot. */
typedef struct slot {
    ares_str text;
    ares_ids ids;
    const ares_row_media *row_media;
    bool unseen; /* rc says what is wrong with its images or videos */
    int rc;
    char *message;
} slot;
typedef struct encode_job {
    const ares_prompt_encoder *e;
    const ares_dataset *d;
    ares_arena *arenas; /* of the threads */
    slot *slots;
} encode_job;
/* Media stay in the arena of the worker, which lives as long as the data set. */
static int encode(const encode_job *j, int64_t i, int worker, ares_arena *arena, slot *s)
{
    const ares_prompt_encoder *e = j->e;
    const ares_row *row = &j->d->rows[i];
    const ares_json *prompt = ares_row_at(row->json, e->cfg->prompt_key), *variables;
    bool list = prompt->type == ARES_JSON_ARRAY;
    ares_prompt_media media;
    if (!e->chat && list)
        return ares_fail(
            ARES_ECONFIG,
            "a list of messages needs a chat template; set data.apply_chat_template=true");
    ARES_TRY(ares_prompt_media_of(e->cfg, row->json, list ? prompt : NULL, arena, &media));
    ARES_TRY(ares_prompt_check_media(e, &media));
    if (e->chat) {
        ARES_TRY(ares_prompt_conversation(e, row->json, prompt, NULL, arena, &variables));
        variables = ares_prompt_place_media(variables, &media, arena);
        ARES_TRY(ares_chat_render(e->chat, variables, NULL, &s->text));
    } else ARES_TRY(ares_prompt_format(e, prompt->text, &s->text));
    ARES_TRY(
        ares_tokenizer_encode(e->tokenizer, ares_str_view(&s->text), e->chat == NULL, &s->ids));
    int rc = ares_prompt_see(e, &media, &j->arenas[worker], &s->ids, &s->row_media);
    if (rc == ARES_OK) rc = ares_prompt_try_media(e, s->row_media);
    /* faults of media alone may be forgiven (data.filter_unreadable_media) */
    s->unseen = rc != ARES_OK;
    ARES_TRY(rc);
    return s->ids.n ? ARES_OK : ares_fail(ARES_EFORMAT, "the prompt gives no tokens");
}

static void encode_row(void *ctx, int64_t i, int worker)
{
    encode_job *j = ctx;
    slot *s = &j->slots[i];
    ares_arena arena = { 0 };
    s->rc = encode(j, i, worker, &arena, s);
    if (s->rc != ARES_OK) s->message = ares_strdup(ares_error_message());
    ares_arena_fini(&arena);
}

/* Keeps the rows whose prompts fit, in their order, and tells how many were dropped and why. */
static int collect(ares_dataset *d, const ares_prompt_encoder *e, slot *slots, int64_t *dropped)
{
    const ares_data_config *cfg = e->cfg;
    int64_t kept = 0, longest = 0, turned = 0;
    ares_unseen left_out = { 0 };
    /* in the order of rows, so that the first fault is the same for any number of threads */
    *dropped = 0;
    for (int64_t i = 0; i < d->count; i++) {
        ares_row *row = &d->rows[i];
        slot *s = &slots[i];
        if (s->rc != ARES_OK) {
            if (!s->unseen)
                return ares_fail(s->rc, "data: %s:%lld: %s", row->file, (long long)row->line,
                                 s->message);
            ARES_TRY(ares_prompt_leave_out(e, row, s->rc, s->message, &left_out));
            continue;
        }
        longest = ARES_MAX(longest, s->ids.n);
        if (s->ids.n > cfg->max_prompt_length) {
            if (!cfg->filter_overlong_prompts)
                return ares_fail(
                    ARES_ELIMIT,
                    "data: %s:%lld: prompt of %lld tokens exceeds data.max_prompt_length = %lld; "
                    "raise it, or set data.filter_overlong_prompts=true",
                    row->file, (long long)row->line, (long long)s->ids.n,
                    (long long)cfg->max_prompt_length);
            (*dropped)++;
            continue;
        }
        row->prompt = (const int32_t *)ares_arena_copy(&d->arena, (const char *)s->ids.ids,
                                                       (size_t)s->ids.n * sizeof(int32_t));
        row->prompt_len = (int32_t)s->ids.n;
        row->row_media = s->row_media;
        turned += s->row_media ? s->row_media->turned : 0;
        row->prompt_text =
            (ares_view){ ares_arena_copy(&d->arena, s->text.data ? s->text.data : "", s->text.len),
                         s->text.len };
        d->rows[kept] = *row; /* kept rows move up */
        d->rows[kept].id = kept;
        kept++;
    }
    ares_unseen_tell(&left_out, d->count);
    if (turned)
        ares_warn("data: %lld images have EXIF data that ask for a turn; they are read as stored",
                  (long long)turned);
    /* no prompt was measured: each row went for its media */
    if (kept == 0 && !longest)
        return ares_fail(ARES_EFORMAT,
                         "data: %s: no row is left of %lld, because of their images "
                         "or videos",
                         d->rows[0].file, (long long)d->count);
    if (kept == 0)
        return ares_fail(ARES_ELIMIT,
                         "data: %s: all %lld prompts are longer than data.max_prompt_length = %lld "
                         "(the longest has %lld tokens); raise it",
                         d->rows[0].file, (long long)d->count, (long long)cfg->max_prompt_length,
                         (long long)longest);
    if (*dropped)
        ares_info("data: %lld of %lld prompts dropped: longer than data.max_prompt_length = %lld "
                  "(the longest has %lld tokens)",
                  (long long)*dropped, (long long)d->count, (long long)cfg->max_prompt_length,
                  (long long)longest);
    d->count = kept;
    return ARES_OK;
}
void ares_prompt_tell_unread(const ares_prompt_encoder *e, const ares_dataset *d,
                             const char *messages_key)
{
    /* keys that people put beside messages and expect the model to see */
    static const char *const offered[] = { "tools", "documents", "system" };
    int64_t of_messages = 0;
    for (int k = 0; k < ARES_COUNT(offered); k++) {
        int64_t rows = 0;
        for (int64_t i = 0; i < d->count; i++)
            rows += is_there(ares_json_get(d->rows[i].json, offered[k]));
        if (rows && (!e->chat || !ares_chat_reads(e->chat, ares_view_of(offered[k]))))
            ares_warn("data: %s: %lld of %lld rows have '%s', and %s does not read them: the model "
                      "does not see them",
                      d->rows[0].file, (long long)rows, (long long)d->count, offered[k],
                      e->chat ? "the chat template" : "a prompt without a chat template");
    }
    const struct {
        const char *name, *key;
    } seen[] = { { "image", e->cfg->image_key }, { "video", e->cfg->video_key } };
    for (int k = 0; k < ARES_COUNT(seen); k++) {
        int64_t rows = 0;
        if (!seen[k].key || strcmp(seen[k].key, seen[k].name) == 0) continue;
        for (int64_t i = 0; i < d->count; i++)
            rows += is_there(ares_json_get(d->rows[i].json, seen[k].name));
        if (rows)
            ares_warn("data: %s: %lld of %lld rows have '%s', which is not read: %ss are read from "
                      "'%s' (data.%s_key)",
                      d->rows[0].file, (long long)rows, (long long)d->count, seen[k].name,
                      seen[k].name, seen[k].key, seen[k].name);
    }
    for (int64_t i = 0; i < d->count; i++) {
        const ares_json *row = d->rows[i].json, *prompt = ares_row_at(row, e->cfg->prompt_key);
        of_messages += (messages_key && is_there(ares_row_at(row, messages_key))) ||
                       (prompt && prompt->type == ARES_JSON_ARRAY);
    }
    const char *const paths[] = { e->format ? "data.format_prompt" : NULL,
                                  e->cfg->system_prompt ? "data.system_prompt" : NULL };
    for (int k = 0; k < ARES_COUNT(paths) && of_messages; k++)
        if (paths[k])
            ares_warn("data: %s: %s: %lld of %lld rows are lists of messages, which are taken as "
                      "they are; it has %s effect",
                      d->rows[0].file, paths[k], (long long)of_messages, (long long)d->count,
                      of_messages == d->count ? "no" : "there no");
}

int ares_dataset_encode(ares_dataset *d, const ares_prompt_encoder *e, ares_pool *pool,
                        int64_t *dropped)
{
    int64_t n = d->count;
    ares_prompt_tell_unread(e, d, NULL);
    slot *slots = ares_calloc((size_t)n + 1, sizeof *slots);
    encode_job job = { e, d, ares_dataset_arenas(d, pool), slots };
    ares_pool_run(pool, n, encode_row, &job);
    int rc = collect(d, e, slots, dropped);
    /* also after a failure: other rows may have been encoded */
    for (int64_t i = 0; i < n; i++) {
        ares_str_fini(&slots[i].text);
        ares_ids_fini(&slots[i].ids);
        ares_free(slots[i].message);
    }
    ares_free(slots);
    return rc;
}

/*
 * Stored answers as tokens, with the span that is compared. An answer is encoded together with its
 * prompt; where the two merge into one token, that token belongs to the prompt. Offsets come from
 * the bytes of the tokens, never from a text that is encoded again.
 */

/* A list of messages, or one alone, as a list of {role, content}; anything else as it is. */
static int messages_of(const ares_json **v, const char *key, ares_arena *arena)
{
    if ((*v)->type != ARES_JSON_OBJECT && (*v)->type != ARES_JSON_ARRAY) return ARES_OK;
    /* {"role": .., "content": ..} -> a list of that one message */
    const ares_json one = { .type = ARES_JSON_ARRAY, .items = *v, .count = 1 };
    const ares_json *list = (*v)->type == ARES_JSON_OBJECT ? &one : *v;
    return ares_row_messages(list, key, arena, v);
}

/* "4" -> "4"; [.., {"role": "assistant", "content": "4"}] -> "4" */
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
    /* a row with one of the two compares nothing, and is counted as absent */
    *there = is_there(won) && is_there(lost);
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

/* Whether both messages have equal values, or none, under the key. */
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

/* Whether the message is of this role and holds this text alone. */
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
    /* n: messages before the answer */
    int64_t n = list->count - 1, i = 0;
    if (list->type != ARES_JSON_ARRAY || n < 1) return ARES_OK;
    bool same; /* i: the first message that differs */
    if (prompt->type == ARES_JSON_ARRAY) {
        while (i < n && i < prompt->count &&
               same_member(&list->items[i], &prompt->items[i], "role") &&
               same_member(&list->items[i], &prompt->items[i], "content"))
            i++;
        same = i == n && n == prompt->count;
    } else {
        /* the prompt is a string: a user's message, with or without data.system_prompt before it */
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

/* Each row writes to its own slot alone; what is counted over rows is counted afterwards. */
typedef struct pair_slot {
    ares_ids ids[2];          /* prompt and answer; n 0: none */
    ares_stored_answer at[2]; /* without ids */
    bool there, no_room, shortened, merged;
    int rc;
    char *message;
} pair_slot;
typedef struct pair_encode_job {
    const ares_source *rows;
    const ares_prompt_encoder *e;
    const ares_pair_options *o;
    pair_slot *slots;
} pair_encode_job;

/* Encodes the prompt with the answer, cuts it at max_length, and finds what is compared. */
static int encode_answer(const pair_encode_job *j, const ares_row *row, ares_view answer, int which,
                         pair_slot *s)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    ares_ids *ids = &s->ids[which];
    ares_stored_answer *a = &s->at[which];
    ares_prompt_media media = { 0 };
    const ares_row_media *row_media; /* not kept: the row's own says the same of the prompt */
    const ares_json *prompt = ares_row_at(row->json, j->e->cfg->prompt_key), *variables = NULL,
                    *messages = prompt->type == ARES_JSON_ARRAY ? prompt : NULL;
    int rc = ARES_OK;
    if (!j->e->chat) { /* without a template the answer follows the prompt's text at once */
        ares_str_add_view(&text, row->prompt_text);
        ares_str_add_view(&text, answer);
    } else {
        rc = ares_prompt_media_of(j->e->cfg, row->json, messages, &arena, &media);
        if (rc == ARES_OK)
            rc = ares_prompt_conversation(j->e, row->json, prompt, &answer, &arena, &variables);
        if (rc == ARES_OK)
            rc = ares_chat_render(j->e->chat, ares_prompt_place_media(variables, &media, &arena),
                                  NULL, &text);
    }
    if (rc == ARES_OK)
        rc = ares_tokenizer_encode(j->e->tokenizer, ares_str_view(&text), !j->e->chat, ids);
    if (rc == ARES_OK) rc = ares_prompt_see(j->e, &media, &arena, ids, &row_media);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    if (rc != ARES_OK) return rc;
    /* a chat template writes the end itself; plain text needs it, as sampled answers have it */
    int32_t eos = j->o->eos;
    if (ids->n && !j->e->chat && eos >= 0 && ids->ids[ids->n - 1] != eos) {
        ids->ids = ares_realloc(ids->ids, (size_t)(ids->n + 1) * sizeof *ids->ids);
        ids->ids[ids->n++] = eos;
        ids->cap = ids->n;
    }
    /* the prompt's ids change where its end and the answer's beginning become one token */
    s->merged |= ids->n < row->prompt_len ||
                 memcmp(ids->ids, row->prompt, (size_t)row->prompt_len * sizeof *ids->ids) != 0;
    /* cut at the end, as a sampled answer is */
    s->shortened |= ids->n > j->o->max_length;
    ids->n = ARES_MIN(ids->n, j->o->max_length);
    a->prompt_len = row->prompt_len;
    a->n = (int32_t)ARES_MAX(0, ids->n - row->prompt_len);
    s->no_room |= a->n == 0;
    if (!a->n) return ARES_OK;
    ares_str of_answer = { 0 }; /* its text by the bytes of its tokens, as cut above */
    int64_t(*offsets)[2] = ares_calloc((size_t)a->n + 1, sizeof *offsets), first, end;
    /* the span between the tags, in tokens of the answer; without tags there is none */
    ares_span_offsets(j->e->tokenizer, ids->ids + a->prompt_len, a->n, &of_answer, offsets);
    if (ares_span_find(ares_str_view(&of_answer), (const int64_t(*)[2])offsets, a->n,
                       j->o->start_tag, j->o->end_tag, &first, &end)) {
        a->span = (int32_t)first;
        a->span_end = (int32_t)end;
    }
    ares_free(offsets);
    ares_str_fini(&of_answer);
    return ARES_OK;
}

static void encode_pair(void *ctx, int64_t i, int worker)
{
    (void)worker;
    pair_encode_job *j = ctx;
    pair_slot *s = &j->slots[i];
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
/* Counts a row, and keeps its pair where both answers are of use. */
static void keep(ares_pairs *out, int64_t i, const pair_slot *s, bool without_span)
{
    ares_stored_answer *into[2] = { &out->pair[i].chosen, &out->pair[i].rejected };
    ares_pair_counts *c = &out->counts;
    /* counts are of rows, also where both answers have the same fault */
    c->absent += !s->there;
    c->shortened += s->shortened;
    c->merged += s->merged;
    if (!s->there) return;
    c->without_room += s->no_room;
    /* where the end of both is cut, or a chat template trims them, nothing may be left to compare
     */
    bool equal = !s->no_room && s->ids[0].n == s->ids[1].n &&
                 memcmp(s->ids[0].ids, s->ids[1].ids, (size_t)s->ids[0].n * sizeof(int32_t)) == 0;
    /* VAPOR compares only what lies between the tags, so both answers need them */
    bool spans = s->at[0].span_end > s->at[0].span && s->at[1].span_end > s->at[1].span;
    c->equal += equal;
    c->without_span += !s->no_room && !equal && !spans;
    if (s->no_room || equal || !(spans || without_span)) return;
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
    pair_slot *slots = ares_calloc((size_t)n + 1, sizeof *slots);
    ares_pool_run(pool, n, encode_pair, &(pair_encode_job){ rows, e, o, slots });
    for (int64_t i = 0; i < n; i++) {
        const ares_row *row = ares_source_row(rows, i);
        if (slots[i].rc != ARES_OK && rc == ARES_OK)
            rc = ares_fail(slots[i].rc, "data: %s:%lld: %s", row->file, (long long)row->line,
                           slots[i].message);
        /* the first row that fails, in their order, is the one that is reported */
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
