/*
 * Supervised fine-tuning as a kind of run. First the data: from rows to tokens with the mask of
 * the loss. Then the run: its options, its checks, the batch, a step, validation.
 */
#include "sft.h"
#include "learner.h"
#include "options/options.h"
#include "plan/plan.h"
#include "run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/train.h"

/*
 * From rows to tokens and the mask of the loss. The prompt's tokens are those that sampling would
 * start from: where the tokenizer would join the end of the prompt and the beginning of the answer
 * in one token, the two are encoded separately.
 */

typedef struct slot {
    ares_ids ids;
    const ares_row_media *row_media;
    uint8_t *trained;
    bool no_end, unseen; /* unseen: rc is of its images or videos */
    int rc;
    char *message;
} slot;
typedef struct encode_job {
    const sft_encoder *e;
    const ares_dataset *d;
    ares_arena *arenas; /* of the threads */
    slot *slots;
} encode_job;

/* ------------------------------------------------------------------ conversations */
/*
 * Whether a message is learnt from: a 0 says no, under the names of OpenAI, slime, Axolotl and
 * others.
 */
static int weight_of(const ares_json *messages, int64_t i, bool *learnt, bool *said)
{
    static const char *const keys[] = { "weight",    "loss",  "step_loss_mask",
                                        "loss_mask", "train", "training" };
    *learnt = true;
    *said = false;
    for (int k = 0; k < ARES_COUNT(keys); k++) {
        const ares_json *v = ares_json_get(&messages->items[i], keys[k]);
        if (!v || v->type == ARES_JSON_NULL) continue;
        bool number = v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT;
        if (v->type != ARES_JSON_BOOL && !(number && (v->number == 0 || v->number == 1)))
            return ares_fail(ARES_EFORMAT,
                             "message %lld: '%s' is neither 0 nor 1: an answer is learnt from or "
                             "it is not",
                             (long long)i, keys[k]);
        *said = true;
        *learnt = *learnt && (number ? v->number != 0 : v->boolean);
    }
    return ARES_OK;
}

/*
 * Leaves the spans of answers that are learnt from: not those of messages before `first`, nor those
 * that say so themselves. Spans are in the order of the assistant's messages.
 */
static int choose_spans(const ares_json *messages, int64_t first, ares_text_spans *spans)
{
    int64_t answers = 0, kept = 0;
    bool all = true;
    for (int64_t i = 0; i < messages->count; i++) {
        const ares_json *role = ares_json_get(&messages->items[i], "role");
        bool learnt, said;
        ARES_TRY(weight_of(messages, i, &learnt, &said));
        if (!role || role->type != ARES_JSON_STRING || !ares_view_is(role->text, "assistant")) {
            if (said && learnt)
                return ares_fail(ARES_EUNSUPPORTED,
                                 "message %lld is to be learnt from and is not of the assistant: "
                                 "only the assistant's are; take its weight out, or set it to 0",
                                 (long long)i);
            continue;
        }
        learnt = learnt && i >= first;
        all = all && learnt;
        if (learnt && answers < spans->n) spans->items[kept++] = spans->items[answers];
        answers++;
    }
    if (!spans->n)
        return ares_fail(ARES_EFORMAT, "no message of the assistant; there is nothing to train on");
    if (all) return ARES_OK;
    if (spans->n != answers)
        return ares_fail(ARES_EUNSUPPORTED,
                         "some of its %lld answers are not learnt from, and the chat template "
                         "marks %lld: it must mark each of them",
                         (long long)answers, (long long)spans->n);
    spans->n = kept;
    return kept ? ARES_OK : ares_fail(ARES_EFORMAT, "no answer is learnt from: all have weight 0");
}

/* Encodes a text whose answers begin at `first`, which no token may cross. */
static int encode_text(const sft_encoder *e, ares_view text, const ares_text_span *first,
                       ares_ids *ids)
{
    bool crossed = false;
    ares_ids_clear(ids);
    ARES_TRY(ares_tokenizer_encode(e->tokenizer, text, false, ids));
    for (int64_t i = 0; i < ids->n; i++)
        crossed = crossed || (ids->offsets[i][0] < first->char_start &&
                              ids->offsets[i][1] > first->char_start);
    if (!crossed) return ARES_OK;
    size_t cut = (size_t)first->byte_start;
    ares_ids_clear(ids);
    ARES_TRY(ares_tokenizer_encode(e->tokenizer, (ares_view){ text.data, cut }, false, ids));
    int64_t before = ids->n;
    ARES_TRY(ares_tokenizer_encode_rest(e->tokenizer,
                                        (ares_view){ text.data + cut, text.len - cut }, ids));
    for (int64_t i = before; i < ids->n; i++) {
        ids->offsets[i][0] += first->char_start;
        ids->offsets[i][1] += first->char_start;
    }
    return ARES_OK;
}

/*
 * Marks the tokens that begin in the span, up to its last end token: what a template writes after
 * that token (a line break) is never sampled. An end token directly after the span belongs to the
 * answer, too: a generation block of the template may close before it.
 */
static void mark_span(const sft_encoder *e, const ares_text_span *span, slot *s)
{
    int64_t first = -1, last = -1, end = -1;
    for (int64_t i = 0; i < s->ids.n; i++) {
        if (s->ids.offsets[i][0] < span->char_start || s->ids.offsets[i][0] >= span->char_end)
            continue;
        if (first < 0) first = i;
        last = i;
        if (ares_model_ends(e->model, s->ids.ids[i])) end = i;
    }
    if (first < 0) return;
    if (end < 0 && last + 1 < s->ids.n && ares_model_ends(e->model, s->ids.ids[last + 1]))
        end = last + 1;
    if (end < 0) s->no_end = true;
    memset(s->trained + first, 1, (size_t)((end < 0 ? last : end) - first + 1));
}

/* What the ids show, in an arena that lives as long as the rows. */
static int see(const sft_encoder *e, const ares_prompt_media *media, ares_arena *arena, slot *s)
{
    int rc = ares_prompt_see(e->prompts, media, arena, &s->ids, &s->row_media);
    if (rc == ARES_OK) rc = ares_prompt_try_media(e->prompts, s->row_media);
    s->unseen = rc != ARES_OK;
    return rc;
}

/* first: the message from which on answers are trained; arena: of what lives as long as the rows */
static int encode_chat(const sft_encoder *e, const ares_json *variables, int64_t first,
                       const ares_prompt_media *media, ares_arena *arena, slot *s)
{
    ares_str text = { 0 };
    ares_text_spans spans = { 0 };
    int rc = ares_chat_assistant_spans(ares_prompt_encoder_chat(e->prompts), variables, NULL, &text,
                                       &spans);
    if (rc == ARES_OK) rc = choose_spans(ares_json_get(variables, "messages"), first, &spans);
    s->ids.want_offsets = true;
    if (rc == ARES_OK) rc = encode_text(e, ares_str_view(&text), &spans.items[0], &s->ids);
    if (rc == ARES_OK) rc = see(e, media, arena, s);
    if (rc == ARES_OK) {
        s->trained = ares_calloc((size_t)s->ids.n + 1, 1);
        for (int64_t i = 0; i < spans.n; i++) mark_span(e, &spans.items[i], s);
        for (int32_t i = 0; s->row_media && i < s->row_media->n_places;
             i++) /* nobody writes an image */
            memset(s->trained + s->row_media->places[i].first, 0,
                   (size_t)s->row_media->places[i].n);
    }
    ares_str_fini(&text);
    ares_text_spans_fini(&spans);
    return rc;
}

/* ------------------------------------------------------------------ plain text */
/* A row without chat template: prompt, response, end-of-sequence token. */
static int encode_plain(const sft_encoder *e, ares_view prompt, ares_view response,
                        ares_arena *kept, slot *s)
{
    ares_str text = { 0 };
    if (!e->model->n_eos)
        return ares_fail(
            ARES_ECONFIG,
            "neither tokenizer nor model names an end-of-sequence token for the responses");
    int rc = ares_prompt_format(e->prompts, prompt, &text);
    if (rc == ARES_OK)
        rc = ares_tokenizer_encode(e->tokenizer, ares_str_view(&text), true, &s->ids);
    ares_str_fini(&text);
    int64_t before = s->ids.n;
    if (rc == ARES_OK) rc = ares_tokenizer_encode(e->tokenizer, response, false, &s->ids);
    if (rc != ARES_OK) return rc;
    ares_ids_add(&s->ids, e->model->eos[0], 0, 0);
    /* places of images in a text that has none are refused */
    ARES_TRY(see(e, &(ares_prompt_media){ 0 }, kept, s));
    s->trained = ares_calloc((size_t)s->ids.n, 1);
    memset(s->trained + before, 1, (size_t)(s->ids.n - before));
    return ARES_OK;
}

/* A prompt, and messages that answer it; *first: the first of these. */
static int with_completion(const sft_encoder *e, const ares_json *row, const ares_json *prompt,
                           const ares_json *completion, ares_arena *arena,
                           const ares_json **variables, int64_t *first)
{
    ARES_TRY(ares_row_messages(completion, e->cfg->sft.response_key, arena, &completion));
    ARES_TRY(ares_prompt_conversation(e->prompts, row, prompt, NULL, arena, variables));
    const ares_json *before = ares_json_get(*variables, "messages");
    ares_json *all = ares_arena_calloc(arena, 1, sizeof *all),
              *items = ares_arena_calloc(arena, (size_t)(before->count + completion->count),
                                         sizeof *items);
    memcpy(items, before->items, (size_t)before->count * sizeof *items);
    memcpy(items + before->count, completion->items, (size_t)completion->count * sizeof *items);
    *all = (ares_json){ .type = ARES_JSON_ARRAY,
                        .items = items,
                        .count = before->count + completion->count };
    *variables = ares_prompt_variables(row, all, (ares_view){ NULL, 0 }, arena);
    *first = before->count;
    return ARES_OK;
}

/* JSON's null counts as none. */
static const ares_json *value_at(const ares_json *row, const char *key)
{
    const ares_json *v = ares_row_at(row, key);
    return v && v->type != ARES_JSON_NULL ? v : NULL;
}

void sft_row_keys(const ares_train_config *c, const char *keys[static 3])
{
    keys[0] = c->sft.messages_key;
    keys[1] = c->data.prompt_key;
    keys[2] = NULL;
}

/*
 * A row in one of its forms: messages; prompt and response, each a text or messages; Alpaca's.
 * arena: scratch; kept: of what lives as long as the rows
 */
static int encode(const sft_encoder *e, const ares_json *row, ares_arena *arena, ares_arena *kept,
                  slot *s)
{
    const ares_train_config *c = e->cfg;
    const ares_json *messages = value_at(row, c->sft.messages_key),
                    *prompt = value_at(row, c->data.prompt_key),
                    *response = value_at(row, c->sft.response_key);
    const ares_json *variables;
    ares_prompt_media media;
    int64_t first = 0;
    bool chat = ares_prompt_encoder_chat(e->prompts) != NULL;
    if (!response && ares_row_is_alpaca(row)) response = value_at(row, "output");
    if (!messages && (!prompt || !response)) {
        ares_str what = { 0 };
        ares_str_addf(&what, "neither '%s' nor '%s' and '%s'", c->sft.messages_key,
                      c->data.prompt_key, c->sft.response_key);
        int rc = ares_row_lacks(row, what.data,
                                "sft.messages_key, or data.prompt_key and sft.response_key");
        ares_str_fini(&what);
        return rc;
    }
    if (!chat && (messages || prompt->type == ARES_JSON_ARRAY || response->type == ARES_JSON_ARRAY))
        return ares_fail(ARES_ECONFIG,
                         "a list of messages needs a chat template; set "
                         "data.apply_chat_template=true, or data.override_chat_template");
    if (messages) ARES_TRY(ares_row_messages(messages, c->sft.messages_key, arena, &messages));
    else if (prompt->type == ARES_JSON_ARRAY)
        ARES_TRY(ares_row_messages(prompt, c->data.prompt_key, arena, &prompt));
    ARES_TRY(ares_prompt_media_of(&c->data, row, messages ? messages : prompt, arena, &media));
    ARES_TRY(ares_prompt_check_media(e->prompts, &media));
    if (messages) variables = ares_prompt_variables(row, messages, (ares_view){ NULL, 0 }, arena);
    else {
        if (prompt->type != ARES_JSON_STRING && prompt->type != ARES_JSON_ARRAY)
            return ares_fail(ARES_EFORMAT, "'%s' is neither a string nor a list of messages",
                             c->data.prompt_key);
        if (response->type != ARES_JSON_STRING && response->type != ARES_JSON_ARRAY)
            return ares_fail(ARES_EFORMAT, "'%s' is neither a string nor a list of messages",
                             c->sft.response_key);
        if (!chat && (media.images || media.videos))
            return ares_fail(ARES_ECONFIG, "images and videos need a chat template; set "
                                           "data.apply_chat_template=true");
        if (!chat) return encode_plain(e, prompt->text, response->text, kept, s);
        if (response->type == ARES_JSON_ARRAY)
            ARES_TRY(with_completion(e, row, prompt, response, arena, &variables, &first));
        else
            ARES_TRY(ares_prompt_conversation(e->prompts, row, prompt, &response->text, arena,
                                              &variables));
    }
    variables = ares_prompt_place_media(variables, &media, arena);
    return encode_chat(e, variables, first, &media, kept, s);
}

static void encode_row(void *ctx, int64_t i, int worker)
{
    encode_job *j = ctx;
    slot *s = &j->slots[i];
    ares_arena arena = { 0 };
    s->rc = encode(j->e, ares_dataset_row(j->d, i)->json, &arena, &j->arenas[worker], s);
    if (s->rc != ARES_OK) s->message = ares_strdup(ares_error_message());
    ares_arena_fini(&arena);
}

/* ------------------------------------------------------------------ rows */
/*
 * The prompt ends before the first trained token, the row after the last one. The first token of a
 * row is never trained: there is none to predict it from. false: no token is left to train.
 */
static bool measure(const slot *s, int64_t limit, sft_row *row)
{
    int64_t first = 1, n = ARES_MIN(s->ids.n, limit);
    while (first < n && !s->trained[first]) first++;
    while (n > first && !s->trained[n - 1]) n--;
    row->prompt = (int32_t)first;
    row->n = (int32_t)n;
    return first < n;
}

int sft_row_encode(const sft_encoder *e, const ares_row *row, ares_arena *arena, sft_row *out)
{
    slot s = { 0 };
    ares_arena scratch = { 0 };
    *out = (sft_row){ .row = row };
    int rc = encode(e, row->json, &scratch, arena, &s);
    if (rc == ARES_OK && !measure(&s, s.ids.n, out))
        rc = ares_fail(ARES_EFORMAT, "its answer is empty: there is nothing to learn");
    if (rc == ARES_OK) {
        size_t n = (size_t)out->n;
        out->ids = (const int32_t *)(const void *)ares_arena_copy(arena, (const char *)s.ids.ids,
                                                                  n * sizeof *out->ids);
        out->trained = (const uint8_t *)ares_arena_copy(arena, (const char *)s.trained, n);
        out->row_media = s.row_media;
    }
    ares_ids_fini(&s.ids);
    ares_free(s.trained);
    ares_arena_fini(&scratch);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "data: %s:%lld", row->file, (long long)row->line);
}

/* Whether part of an image or video lies behind so many tokens. */
static bool sees_behind(const ares_row_media *row_media, int64_t tokens)
{
    const ares_place *last =
        row_media && row_media->n_places ? &row_media->places[row_media->n_places - 1] : NULL;
    return last && last->first + last->n > tokens;
}

/*
 * From slots to the rows of out: leaves out what cannot be seen, drops or cuts what is too long,
 * and tells how many. keep [rows]: written: whether a row of d is in out
 */
static int collect(const ares_dataset *d, const sft_encoder *e, slot *slots, sft_rows *out,
                   bool *keep)
{
    int64_t limit = ARES_MIN(e->cfg->sft.max_length, e->model->max_position),
            rows = ares_dataset_count(d), longest = 0, no_end = 0;
    const char *name = limit < e->cfg->sft.max_length ? "the model's positions" : "sft.max_length",
               *how = e->cfg->sft.truncation;
    ares_unseen left_out = { 0 };
    for (int64_t i = 0; i < rows; i++) {
        slot *s = &slots[i];
        sft_row *row = &out->items[out->count];
        *row = (sft_row){ .row = ares_dataset_row(d, i) };
        if (s->rc != ARES_OK && s->unseen) {
            ARES_TRY(ares_prompt_leave_out(e->prompts, row->row, s->rc, s->message, &left_out));
            continue;
        }
        if (s->rc != ARES_OK)
            return ares_fail(s->rc, "data: %s:%lld: %s", row->row->file, (long long)row->row->line,
                             s->message);
        if (!measure(s, INT32_MAX, row))
            return ares_fail(ARES_EFORMAT, "data: %s:%lld: no token to train on", row->row->file,
                             (long long)row->row->line);
        longest = ARES_MAX(longest, row->n);
        if (row->n > limit) {
            if (strcmp(how, "error") == 0)
                return ares_fail(ARES_ELIMIT,
                                 "data: %s:%lld: row of %d tokens exceeds %s = %lld; raise it, or "
                                 "set sft.truncation to drop or cut",
                                 row->row->file, (long long)row->row->line, row->n, name,
                                 (long long)limit);
            if (strcmp(how, "cut") == 0 && sees_behind(s->row_media, limit))
                return ares_fail(ARES_ELIMIT,
                                 "data: %s:%lld: row of %d tokens exceeds %s = %lld, and an image "
                                 "or video stands where it would be cut; raise it, or set "
                                 "sft.truncation to drop",
                                 row->row->file, (long long)row->row->line, row->n, name,
                                 (long long)limit);
            if (strcmp(how, "drop") == 0 || !measure(s, limit, row)) {
                out->dropped++;
                continue;
            }
            out->cut++;
        }
        no_end += s->no_end;
        row->row_media = s->row_media;
        row->ids = (const int32_t *)ares_arena_copy(&out->arena, (const char *)s->ids.ids,
                                                    (size_t)row->n * sizeof(int32_t));
        row->trained =
            (const uint8_t *)ares_arena_copy(&out->arena, (const char *)s->trained, (size_t)row->n);
        out->count++;
        keep[i] = true;
    }
    ares_unseen_tell(&left_out, rows);
    if (!out->count && !longest)
        return ares_fail(ARES_EFORMAT,
                         "data: no row is left of %lld, because of their images or videos",
                         (long long)rows);
    if (!out->count)
        return ares_fail(
            ARES_ELIMIT,
            "data: all %lld rows are longer than %s = %lld (the longest has %lld tokens); raise it",
            (long long)rows, name, (long long)limit, (long long)longest);
    if (out->dropped)
        ares_info(
            "data: %lld of %lld rows dropped: longer than %s = %lld (the longest has %lld tokens)",
            (long long)out->dropped, (long long)rows, name, (long long)limit, (long long)longest);
    if (out->cut)
        ares_info("data: %lld of %lld rows cut to %s = %lld (the longest has %lld tokens)",
                  (long long)out->cut, (long long)rows, name, (long long)limit, (long long)longest);
    if (no_end)
        ares_warn("data: in %lld of %lld rows the template ends an answer without an "
                  "end-of-sequence token of the model; sampling will not stop there",
                  (long long)no_end, (long long)rows);
    return ARES_OK;
}

/* Rows that say what is learnt in two ways. */
static void tell_both(const ares_dataset *d, const ares_train_config *c)
{
    int64_t prompts = 0, both = 0, n = ares_dataset_count(d);
    for (int64_t i = 0; i < n; i++) {
        const ares_json *row = ares_dataset_row(d, i)->json;
        bool prompt =
            value_at(row, c->sft.messages_key) != NULL && value_at(row, c->data.prompt_key);
        prompts += prompt;
        both += prompt && value_at(row, c->sft.response_key);
    }
    if (both)
        ares_warn("data: %s: %lld of %lld rows have '%s' as well as '%s' and '%s': the first is "
                  "learnt from; for the others set sft.messages_key to another name",
                  ares_dataset_row(d, 0)->file, (long long)both, (long long)n, c->sft.messages_key,
                  c->data.prompt_key, c->sft.response_key);
    else if (prompts)
        ares_info("data: %s: %lld of %lld rows have '%s' beside '%s', which is not read",
                  ares_dataset_row(d, 0)->file, (long long)prompts, (long long)n,
                  c->data.prompt_key, c->sft.messages_key);
}

int sft_rows_encode(ares_dataset *d, const sft_encoder *e, ares_pool *pool, sft_rows *out)
{
    int64_t n = ares_dataset_count(d);
    slot *slots = ares_calloc((size_t)n + 1, sizeof *slots);
    bool *keep = ares_calloc((size_t)n + 1, sizeof *keep);
    encode_job job = { e, d, ares_dataset_arenas(d, pool), slots };
    *out = (sft_rows){ .items = ares_calloc((size_t)n + 1, sizeof *out->items) };
    ares_prompt_tell_unread(e->prompts, d, e->cfg->sft.messages_key);
    tell_both(d, e->cfg);
    ares_pool_run(pool, n, encode_row, &job);
    int rc = collect(d, e, slots, out, keep);
    if (rc == ARES_OK) ares_dataset_keep(d, keep);
    for (int64_t i = 0; i < out->count && rc == ARES_OK; i++)
        out->items[i].row = ares_dataset_row(d, i);
    for (int64_t i = 0; i < n; i++) {
        ares_ids_fini(&slots[i].ids);
        ares_free(slots[i].trained);
        ares_free(slots[i].message);
    }
    ares_free(slots);
    ares_free(keep);
    return rc;
}

void sft_rows_fini(sft_rows *r)
{
    ares_free(r->items);
    ares_arena_fini(&r->arena);
    *r = (sft_rows){ 0 };
}

/*
 * Supervised fine-tuning: a learner without rollouts. A row of the batch is a prompt and an answer
 * as in reinforcement learning, so that packing, head and optimizer are the same. Ranks take rows
 * in turn, and the loss divides by the trained tokens of all ranks, so that neither micro-batches
 * nor the rank count change the weight of a token.
 */

ARES_OPTION_TABLE(sft_options, ares_sft_config, ARES_SFT_OPTIONS);

typedef struct sft_trainer {
    training run;          /* first: a run's training is its trainer */
    ares_train_config cfg; /* the run's options, with temperature 1 and no shared prompts */
    learner policy;
    sft_rows train, val;
    ares_batch batch;
} sft_trainer;

/* TRL's words; beside rewards max_length is another thing. */
static const ares_config_alias sft_aliases[] = {
    { "max_length", "sft.max_length", NULL, NULL },
    { "max_seq_length", "sft.max_length", NULL, NULL },
};

void ares_sft_declare(ares_config *cfg, ares_train_config *out)
{
    ares_config_add_aliases(cfg, sft_aliases, ARES_COUNT(sft_aliases));
    ares_config_add_options(cfg, "sft", sft_options, &out->sft);
}

int ares_sft_check(ares_config *cfg, const ares_train_config *c, int world)
{
    if (!c->trainer.val_only && !c->data.train_files.count)
        ares_config_fault(cfg, "data.train_files",
                          "no training rows; name a JSONL file, or set trainer.val_only=true");
    if ((c->trainer.val_only || c->trainer.val_freq > 0) && !c->data.val_files.count)
        ares_config_fault(cfg, "data.val_files",
                          "validation is asked for and has no rows; name a JSONL file%s",
                          c->trainer.val_only ? "" : ", or set trainer.val_freq=-1");
    if (c->curriculum.names.count || c->curriculum.weights->type != ARES_JSON_NULL)
        ares_config_fault(cfg,
                          c->curriculum.names.count ? "curriculum.names" : "curriculum.weights",
                          "supervised runs read data.train_files as one data set; leave it out");
    if (c->eval.datasets->count)
        ares_config_fault(cfg, "eval.datasets",
                          "supervised runs validate on data.val_files alone; leave it out");
    if (c->sft.batch_size % world)
        ares_config_fault(cfg, "sft.batch_size",
                          "rows are dealt out to %d ranks; set a multiple of %d", world, world);
    pixels_check(cfg, &c->data);
    device_check(cfg, &c->trainer);
    sharing_check(cfg, c, world);
    adapters_check(cfg, c, false);
    trainable_check(cfg, c);
    types_check(cfg, c, false);
    return ares_config_finish(cfg);
}

/* ------------------------------------------------------------------ setting up */
/* Loads and encodes the rows of files, and makes them a source. */
static int open_rows(sft_trainer *t, const ares_texts *files, const ares_order *order,
                     ares_source *source, sft_rows *rows)
{
    const sft_encoder e = { &t->cfg, t->run.encoder, t->run.tokenizer, &t->run.model->cfg };
    ares_dataset *d;
    const char *keys[3];
    sft_row_keys(&t->cfg, keys);
    ARES_TRY(ares_dataset_load_rows(files, keys, &d));
    int rc = sft_rows_encode(d, &e, t->run.device.pool, rows);
    if (rc == ARES_OK && rows->count < order->draw)
        rc =
            ares_fail(ARES_ECONFIG,
                      "data: %lld rows are fewer than sft.batch_size = %lld; lower it, or add rows",
                      (long long)rows->count, (long long)order->draw);
    if (rc == ARES_OK) rc = ares_source_of_dataset(d, order, source);
    if (rc != ARES_OK) ares_dataset_free(d);
    return rc;
}

/* Without a chat template in options or tokenizer, rows are plain text. */
static int open_encoder(sft_trainer *t)
{
    ares_data_config *data = &t->cfg.data;
    if (!data->override_chat_template && !ares_tokenizer_chat_template(t->run.tokenizer, NULL).data)
        data->apply_chat_template = false;
    return training_open_encoder(&t->run, data, &t->run.encoder);
}

/* optim: of the configuration itself, not of its copy, since a schedule changes it. */
static int open_parts(sft_trainer *t, ares_config *cfg, const ares_optim_config *optim,
                      const char *weights)
{
    ares_train_config *c = &t->cfg;
    ARES_TRY(training_open_device(&t->run));
    ARES_TRY(plan_fit_card(&t->run, cfg, false, c));
    ARES_TRY(training_open_model(&t->run, weights));
    ARES_TRY(open_encoder(t));
    if (!c->trainer.val_only) {
        const ares_order order = { .draw = c->sft.batch_size,
                                   .shuffle = c->data.shuffle,
                                   .seed = (uint64_t)c->data.seed,
                                   .option = "sft.batch_size" };
        ARES_TRY(open_rows(t, &c->data.train_files, &order, &t->run.source, &t->train));
        t->run.total_steps = c->trainer.max_steps == ARES_NULL_I64
                                 ? ares_source_epoch_draws(&t->run.source) * c->trainer.total_epochs
                                 : c->trainer.max_steps;
    }
    if (c->data.val_files.count)
        ARES_TRY(
            open_rows(t, &c->data.val_files, &(ares_order){ .draw = 1 }, &t->run.val, &t->val));
    t->run.validates = ares_source_count(&t->run.val);
    return learner_open(
        &t->policy, t->run.model,
        &(learner_options){ .role = "actor",
                            .world = t->run.world,
                            .adapter = t->run.adapter,
                            .features = t->run.features,
                            .optim = c->trainer.val_only ? NULL : optim,
                            .total_steps = t->run.total_steps,
                            .gradient_checkpointing = c->actor.gradient_checkpointing,
                            .skip_zero = c->actor.skip_zero_gradients,
                            .round_tokens = c->actor.round_tokens });
}

/* Temperature 1: the loss is of the model's own distribution, whatever the options say. */
static sft_trainer *sft_new(const ares_train_config *c, ares_world *world)
{
    sft_trainer *t = ares_calloc(1, sizeof *t);
    t->cfg = *c;
    t->cfg.rollout.temperature = 1;
    t->cfg.actor.share_prompts = false; /* every row has a prompt of its own */
    training_init(&t->run, &t->cfg, world);
    t->run.policy = &t->policy;
    ares_batch_init(&t->batch);
    return t;
}

static int open_sft(ares_config *cfg, const ares_train_config *c, ares_world *world,
                    const char *weights, training **out)
{
    sft_trainer *t = sft_new(c, world);
    *out = &t->run;
    return ares_world_share_error(world, open_parts(t, cfg, &c->optim, weights));
}

static sft_trainer *trainer_of(training *t)
{
    return (sft_trainer *)(void *)t; /* training is its first member */
}

static void close_sft(training *run)
{
    sft_trainer *t = trainer_of(run);
    learner_close(&t->policy);
    sft_rows_fini(&t->train);
    sft_rows_fini(&t->val);
    ares_batch_fini(&t->batch);
    training_close(run);
    ares_free(t);
}

/* ------------------------------------------------------------------ --check */
/* The first rows of a file; they are encoded where model and tokenizer are on this machine. */
static int check_rows(const sft_trainer *t, const char *path)
{
    ares_dataset *d;
    const char *keys[3];
    sft_row_keys(&t->cfg, keys);
    ARES_TRY(check_open_rows(&(ares_row_file){ .path = path, .keys = keys }, NULL, false, &d));
    if (d && t->run.model) {
        sft_rows rows;
        sft_encoder e = { &t->cfg, t->run.encoder, t->run.tokenizer, &t->run.model->cfg };
        int rc = sft_rows_encode(d, &e, t->run.device.pool, &rows);
        sft_rows_fini(&rows);
        ares_dataset_free(d);
        return check_lengths(rc, strcmp(t->cfg.sft.truncation, "error") != 0);
    }
    ares_dataset_free(d);
    return ARES_OK;
}

int ares_sft_check_files(ares_config *cfg, const ares_train_config *c)
{
    (void)cfg;
    sft_trainer *t = sft_new(c, NULL);
    const ares_texts *lists[] = { c->trainer.val_only ? NULL : &c->data.train_files,
                                  &c->data.val_files };
    int rc = check_open_model(&t->run);
    if (rc == ARES_OK && t->run.model) rc = open_encoder(t);
    for (int k = 0; k < ARES_COUNT(lists); k++)
        for (int64_t i = 0; lists[k] && i < lists[k]->count && rc == ARES_OK; i++)
            rc = check_rows(t, lists[k]->items[i]);
    close_sft(&t->run);
    return rc;
}

/* ------------------------------------------------------------------ batches */
/* Adds rows [n] to an empty batch, each as a group of its own. */
static void fill(ares_batch *b, const sft_row *const *rows, int64_t n)
{
    for (int64_t r = 0; r < n; r++) {
        ares_sample s = { .draw = rows[r]->row->id,
                          .row = rows[r]->row,
                          .prompt = rows[r]->ids,
                          .prompt_len = rows[r]->prompt,
                          .row_media = rows[r]->row_media };
        ares_batch_begin_group(b);
        ares_batch_add_row(b, &s, rows[r]->n - rows[r]->prompt);
    }
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    for (int64_t r = 0; r < n; r++) {
        size_t tokens = (size_t)(rows[r]->n - rows[r]->prompt);
        memcpy(b->responses + b->row_start[r], rows[r]->ids + rows[r]->prompt,
               tokens * sizeof *b->responses);
        memcpy(b->response_mask + b->row_start[r], rows[r]->trained + rows[r]->prompt, tokens);
    }
}

/* ------------------------------------------------------------------ the step */
/*
 * The rounds of the step's rows: one micro-batch after the other, or all together. d_log_prob: of
 * the batch's tokens; loss: is added to
 */
static int all_rounds(sft_trainer *t, const float *d_log_prob, double *loss)
{
    ares_batch *b = &t->batch;
    learner *l = &t->policy;
    const learner_scoring scoring = { .temperature = 1 };
    learner_rounds rounds;
    ares_micro_batch *plan = ares_arena_alloc(&b->arena, (size_t)(b->rows + 1) * sizeof *plan);
    ARES_TRY(learner_cut_rounds(l, b, 0, b->rows, false, &b->arena, &rounds));
    for (int64_t r = 0; r < rounds.n; r++) {
        int64_t i = 0, n = ares_pack_plan(b, rounds.round[r].row, rounds.round[r].end,
                                          t->cfg.actor.max_token_len, false, plan);
        int rc;
        ares_work_expect(ARES_WORK_MICRO_BATCHES, n);
        do { /* once where there is no row, too: all ranks make the same passes */
            int64_t k = learner_micro_batches_per_round(l, NULL, n - i);
            const ares_micro_batch *m = plan + i;
            rc = learner_add_gradients(l, &scoring, b, m, k, d_log_prob, loss);
            if (rc == ARES_OK && !isfinite(*loss)) {
                const ares_row *row = b->samples[m->row].row;
                rc = ares_fail(ARES_ENUMERIC,
                               "loss is %g in a micro-batch of %lld rows that begins with "
                               "%s:%lld; lower the learning rate, or look at these rows",
                               *loss, (long long)(m[k - 1].end - m->row), row->file,
                               (long long)row->line);
            }
            i += k;
        } while (i < n && rc == ARES_OK);
        ARES_TRY(learner_end_round(l, rc));
    }
    return ARES_OK;
}

typedef struct step_sums {
    double loss;            /* mean of -log p over the trained tokens */
    double trained, tokens; /* trained tokens, all tokens with those of the prompts */
    bool finite;            /* the loss is, on every rank; else the last failure says where not */
} step_sums;

/* Gradients of the mean loss over all trained tokens of the step; sums over all ranks. */
static int backward(sft_trainer *t, step_sums *out)
{
    ares_batch *b = &t->batch;
    learner *l = &t->policy;
    ares_agg_counts counts = { 0 };
    ares_agg_count(b, 0, b->rows, &counts);
    double sums[3] = { counts.tokens, counts.rows, (double)b->tokens };
    for (int64_t r = 0; r < b->rows; r++) sums[2] += b->samples[r].prompt_len;
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 3));
    counts = (ares_agg_counts){ .tokens = sums[0], .rows = sums[1] };
    if (sums[0] == 0)
        return ares_fail(ARES_ESTATE, "sft: step %lld: no token of its rows is trained",
                         (long long)l->step + 1);
    float *weight = ares_arena_calloc(&b->arena, (size_t)b->tokens + 1, sizeof *weight);
    ARES_TRY(ares_agg_weights("token-mean", b, 0, b->rows, &counts, weight));
    for (int64_t t = 0; t < b->tokens; t++) weight[t] = -weight[t]; /* of the loss by log-probs */

    double loss = 0;
    ARES_TRY(learner_zero_grad(l, NULL));
    int rc = ares_world_share_error(t->run.world, all_rounds(t, weight, &loss));
    *out = (step_sums){
        .loss = loss, .trained = sums[0], .tokens = sums[2], .finite = rc != ARES_ENUMERIC
    };
    if (!out->finite) return ARES_OK;
    return rc == ARES_OK ? ares_world_sum_f64(t->run.world, &out->loss, 1) : rc;
}

static int step_sft(training *run, ares_metrics *m)
{
    sft_trainer *t = trainer_of(run);
    learner *l = &t->policy;
    ares_batch *b = &t->batch;
    int64_t size = t->cfg.sft.batch_size, ranks = ares_world_size(t->run.world), n = 0;
    char what[64];
    step_sums sums;
    double norm = NAN, lr = learner_lr(l), started = ares_now_s();
    ares_work_begin("update");
    ares_batch_clear(b);
    ares_drawn *drawn = ares_arena_alloc(&b->arena, (size_t)size * sizeof *drawn);
    const sft_row **rows = ares_arena_alloc(&b->arena, (size_t)size * sizeof *rows);
    ARES_TRY(ares_source_next(&t->run.source, size, &b->arena, drawn));
    for (int64_t i = ares_world_rank(t->run.world); i < size; i += ranks) /* this rank's rows */
        rows[n++] = &t->train.items[drawn[i].id];
    fill(b, rows, n);
    ares_metrics_set(m, "timing_s/data", ares_now_s() - started);
    started = ares_now_s();
    snprintf(what, sizeof what, "sft: step %lld", (long long)l->step + 1);
    ARES_TRY(backward(t, &sums));
    ARES_TRY(learner_step(l, sums.finite ? ARES_OK : ARES_ENUMERIC, t->cfg.actor.max_grad_norm,
                          what, &norm));
    l->step++;
    ares_metrics_set(m, "timing_s/update_actor", ares_now_s() - started);
    if (sums.finite) ares_metrics_set(m, "train/loss", sums.loss);
    ares_metrics_set(m, "train/tokens", sums.trained);
    ares_metrics_set(m, "actor/skipped_updates", isnan(norm));
    if (!isnan(norm)) ares_metrics_set(m, "actor/grad_norm", norm);
    ares_metrics_set(m, "actor/lr", lr);
    ARES_TRY(learner_report_backward(&t->policy, m));
    ARES_TRY(learner_report_routing(&t->policy, m));
    ares_metrics_set(m, "perf/total_num_tokens", sums.tokens);
    if (l->features) ares_features_trim(l->features);
    return media_report(l, NULL, b, m);
}

/* ------------------------------------------------------------------ validation */
enum { VALIDATED_AT_ONCE = 64 };

/*
 * The next VALIDATED_AT_ONCE of rows first, first + stride, ...: adds the sum of -log p over their
 * trained tokens to sums[0], the number of these to sums[1].
 */
static int score(sft_trainer *t, int64_t first, int64_t stride, double sums[2])
{
    ares_batch *b = &t->batch;
    const sft_row *rows[VALIDATED_AT_ONCE];
    int64_t n = 0;
    ares_batch_clear(b);
    for (int64_t i = first; i < t->val.count && n < VALIDATED_AT_ONCE; i += stride)
        rows[n++] = &t->val.items[i];
    fill(b, rows, n);
    float *log_probs = ares_arena_alloc(&b->arena, (size_t)(b->tokens + 1) * sizeof *log_probs);
    const learner_scoring scoring = learner_scoring_of(&t->cfg);
    ARES_TRY(learner_log_probs(&t->policy, &scoring, b, 0, b->rows, log_probs, NULL));
    ares_work_done(ARES_WORK_ROWS, b->rows);
    if (t->policy.features) ares_features_trim(t->policy.features);
    for (int64_t i = 0; i < b->tokens; i++) {
        if (!b->response_mask[i]) continue;
        sums[0] -= (double)log_probs[i];
        sums[1]++;
    }
    return ARES_OK;
}

static int validate_sft(training *run, ares_metrics *m, ares_str *samples)
{
    (void)samples;
    sft_trainer *t = trainer_of(run);
    int64_t ranks = ares_world_size(t->run.world), stride = ranks * VALIDATED_AT_ONCE;
    double sums[2] = { 0 };
    int rc = ARES_OK;
    ares_work_expect(ARES_WORK_ROWS,
                     (t->val.count + ranks - 1 - ares_world_rank(t->run.world)) / ranks);
    for (int64_t at = 0; at < t->val.count && rc == ARES_OK; at += stride) /* as often everywhere */
        rc = score(t, at + ares_world_rank(t->run.world), ranks, sums);
    ARES_TRY(ares_world_share_error(t->run.world, rc));
    ARES_TRY(ares_world_sum_f64(t->run.world, sums, 2));
    double loss = sums[0] / sums[1];
    if (!isfinite(loss))
        return ares_fail(ARES_ENUMERIC, "sft: step %lld: the validation loss is %g",
                         (long long)t->run.step, loss);
    ares_metrics_set(m, "val/loss", loss);
    ares_metrics_set(m, "val/perplexity", exp(loss));
    return ARES_OK;
}

static void declare_all(ares_config *cfg, ares_train_config *out)
{
    ares_train_config_declare(cfg, out);
    ares_sft_declare(cfg, out);
}

int ares_sft_run(ares_config *cfg, const ares_train_config *c, ares_world *world)
{
    static const run_kind kind = { .declare = declare_all,
                                   .open = open_sft,
                                   .close = close_sft,
                                   .step = step_sft,
                                   .validate = validate_sft };
    return train_run(&kind, cfg, c, world);
}
