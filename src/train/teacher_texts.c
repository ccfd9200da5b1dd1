/*
 * What the teacher of a distillation reads. First whether two tokenizers give ids the same meaning,
 * then templates and the texts that fill them, then the prompts of a batch. A teacher's prompt is
 * made from the row's prompt and encoded as that was; the student's response follows it id for id.
 * It is never cut: a prompt that is too long leaves its row without a teacher.
 */
#include "teacher_texts.h"

#include <stdio.h>
#include <string.h>

#define D "distillation."

/* ---------------- tokens */

void same_tokens_compare(const token_table *student, const token_table *teacher,
                         int64_t student_vocab, int64_t teacher_vocab, same_tokens *out)
{
    *out = (same_tokens){ .readable = ARES_MIN(student_vocab, teacher_vocab), .id = -1 };
    int64_t largest = -1;
    for (int64_t i = 0; i < ARES_MAX(student->n, teacher->n); i++) {
        ares_view own = i < student->n ? student->text[i] : (ares_view){ 0 },
                  other = i < teacher->n ? teacher->text[i] : (ares_view){ 0 };
        if (own.data) largest = i;
        out->only_one += (own.data != NULL) != (other.data != NULL);
        if (!own.data || !other.data || ares_view_eq(own, other)) continue;
        out->refused = "token";
        out->id = (int32_t)i;
        return;
    }
    if (largest < out->readable) return;
    out->refused = "vocabulary";
    out->id = (int32_t)largest;
}

static token_table table_of(const ares_tokenizer *t, ares_arena *arena)
{
    int64_t n = ares_tokenizer_vocab_size(t);
    ares_view *text = ares_arena_calloc(arena, (size_t)n + 1, sizeof *text);
    for (int64_t i = 0; i < n; i++) text[i] = ares_tokenizer_token_bytes(t, (int32_t)i);
    return (token_table){ text, n };
}

int teacher_check_tokens(const ares_tokenizer *student, int64_t student_vocab, const char *path,
                         int64_t vocab, int64_t *readable)
{
    static const char option[] = D "teacher_model.model_path";
    ares_str dir = { 0 }, probe = { 0 };
    ares_arena arena = { 0 };
    ares_tokenizer *other = NULL;
    same_tokens same;
    int rc = ares_model_find_tokenizer(path, &dir);
    bool there =
        rc == ARES_OK && (ares_file_exists(ares_path_join(&probe, dir.data, "tokenizer.json")) ||
                          ares_file_exists(ares_path_join(&probe, dir.data, "vocab.json")));
    if (there) rc = ares_tokenizer_load(dir.data, &other);
    if (rc == ARES_OK) {
        const token_table own = table_of(student, &arena),
                          its = other ? table_of(other, &arena) : own;
        same_tokens_compare(&own, &its, student_vocab, vocab, &same);
        *readable = same.readable;
        if (same.refused && strcmp(same.refused, "token") == 0)
            rc = ares_fail(ARES_ECONFIG,
                           "train: %s = '%s': token %d is '%.*s' to the student and '%.*s' to the "
                           "teacher, which reads the student's ids; name a teacher that has the "
                           "student's tokens",
                           option, path, same.id, (int)ARES_MIN(own.text[same.id].len, 60),
                           own.text[same.id].data, (int)ARES_MIN(its.text[same.id].len, 60),
                           its.text[same.id].data);
        else if (same.refused)
            rc = ares_fail(ARES_ECONFIG,
                           "train: %s = '%s': the teacher has no logit for id %d of the student's "
                           "tokenizer: its head has %lld rows; name a teacher with more",
                           option, path, same.id, (long long)vocab);
        else if (same.only_one)
            ares_warn("train: %s: %lld token ids are defined by only one of student and teacher",
                      option, (long long)same.only_one);
    }
    if (rc == ARES_OK && !there)
        ares_warn("train: %s = '%s': has no tokenizer; its tokens are taken to be the student's",
                  option, path);
    ares_tokenizer_free(other);
    ares_arena_fini(&arena);
    ares_str_fini(&dir);
    ares_str_fini(&probe);
    return rc;
}

/* Whether a teacher sees pictures where and as the student does; a student of text sees none. */
static bool same_vision(const ares_model_config *student, const ares_model_config *teacher)
{
    const ares_vision_config *x = &student->vision, *y = &teacher->vision;
    return !x->depth ||
           (strcmp(student->model_type, teacher->model_type) == 0 && x->depth == y->depth &&
            x->width == y->width && x->heads == y->heads && x->intermediate == y->intermediate &&
            x->channels == y->channels && x->patch == y->patch && x->merge == y->merge &&
            x->temporal == y->temporal && x->window == y->window &&
            x->full_blocks == y->full_blocks && x->image_token == y->image_token &&
            x->video_token == y->video_token && x->vision_start == y->vision_start &&
            x->vision_end == y->vision_end && x->tokens_per_second - y->tokens_per_second == 0);
}

int teacher_check(const ares_distillation_config *c, const ares_tokenizer *tokenizer,
                  const ares_model_config *student, teacher_limits *out)
{
    ares_str dir = { 0 };
    ares_model_config m;
    *out = (teacher_limits){ student->vocab, student->max_position };
    if (!c->teacher_path) return ARES_OK;
    int rc = ares_model_find(c->teacher_path, &dir);
    if (rc == ARES_OK) rc = ares_model_config_load(dir.data, &m);
    if (rc != ARES_OK) rc = ares_fail_in(rc, D "teacher_model.model_path");
    else if (!same_vision(student, &m))
        rc = ares_fail(ARES_ECONFIG,
                       "train: " D "teacher_model.model_path = '%s': reads pictures in another way "
                       "than the student; name a teacher with the same vision_config",
                       c->teacher_path);
    else {
        out->positions = m.max_position;
        rc = teacher_check_tokens(tokenizer, student->vocab, c->teacher_path, m.vocab,
                                  &out->readable);
    }
    ares_str_fini(&dir);
    return rc;
}

/* ---------------- templates */

const teacher_template teacher_templates[TEACHER_TEMPLATES] = {
    [TEACHER_ROW] = { D "teacher_prompt_template", { "prompt", "privileged_context" } },
    [TEACHER_REPROMPT] = { D "reprompt_template", { "prompt", "solution", "feedback" } },
    [TEACHER_SOLUTION] = { D "solution_template", { "successful_previous_attempt" } },
    [TEACHER_FEEDBACK] = { D "feedback_template", { "feedback_raw" } },
};

const char *teacher_template_text(const ares_distillation_config *c, teacher_template_kind k)
{
    return k == TEACHER_ROW        ? c->prompt_template
           : k == TEACHER_REPROMPT ? c->reprompt_template
           : k == TEACHER_SOLUTION ? c->solution_template
                                   : c->feedback_template;
}

/* Bytes of the word that begins at s, which no digit begins. */
static size_t word_at(const char *s)
{
    size_t n = 0;
    while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_' ||
           (n && s[n] >= '0' && s[n] <= '9'))
        n++;
    return n;
}

bool teacher_fill(const char *text, teacher_template_kind k, const ares_view *values, ares_str *out,
                  ares_view *unknown)
{
    const char *const *names = teacher_templates[k].names;
    for (const char *p = text; *p;) {
        size_t n = *p == '{' ? word_at(p + 1) : 0;
        if (p[0] == p[1] && (*p == '{' || *p == '}')) { /* as in Python's format */
            if (values) ares_str_add(out, p, 1);
            p += 2;
        } else if (n && p[n + 1] == '}') {
            ares_view word = { p + 1, n };
            int i = 0;
            while (i < TEACHER_NAMES && names[i] && !ares_view_is(word, names[i])) i++;
            if (i == TEACHER_NAMES || !names[i]) {
                *unknown = word;
                return false;
            }
            if (values) ares_str_add_view(out, values[i]);
            p += n + 2;
        } else {
            if (values) ares_str_add(out, p, 1);
            p++;
        }
    }
    return true;
}

/* Templates are checked with the options, so that nothing is unknown any more. */
static void fill(const ares_distillation_config *c, teacher_template_kind k,
                 const ares_view *values, ares_str *out)
{
    ares_view unknown;
    bool known = teacher_fill(teacher_template_text(c, k), k, values, out, &unknown);
    ARES_ASSERT(known);
}

/* ---------------- texts of rows */

static const ares_json *text_of_part(const ares_json *part)
{
    const ares_json *type = ares_json_get(part, "type"), *text = ares_json_get(part, "text");
    bool other = type && (type->type != ARES_JSON_STRING || !ares_view_is(type->text, "text"));
    return !other && text && text->type == ARES_JSON_STRING ? text : NULL;
}

/* The text of a message's content: a string, or its parts of text one after the other. */
static void add_content(const ares_json *content, ares_str *out)
{
    if (content && content->type == ARES_JSON_STRING) ares_str_add_view(out, content->text);
    for (int64_t i = 0; content && content->type == ARES_JSON_ARRAY && i < content->count; i++) {
        const ares_json *text = text_of_part(&content->items[i]);
        if (text) ares_str_add_view(out, text->text);
    }
}

bool teacher_context(const ares_json *row, const char *key, ares_str *out)
{
    const ares_json *v = ares_row_at(row, key);
    size_t before = out->len;
    if (!v || v->type == ARES_JSON_NULL) return false;
    bool messages = v->type == ARES_JSON_ARRAY && v->count > 0;
    for (int64_t i = 0; messages && i < v->count; i++)
        messages = ares_json_get(&v->items[i], "role") && ares_json_get(&v->items[i], "content");
    if (v->type == ARES_JSON_STRING) ares_str_add_view(out, v->text);
    else if (!messages) ares_json_write(out, v);
    for (int64_t i = 0; messages && i < v->count; i++) {
        if (i) ares_str_add_z(out, "\n");
        add_content(ares_json_get(&v->items[i], "content"), out);
    }
    return ares_view_trim((ares_view){ out->data + before, out->len - before }).len > 0;
}

int teacher_prompt_text(const ares_json *prompt, ares_str *out)
{
    if (prompt->type == ARES_JSON_STRING) {
        ares_str_add_view(out, prompt->text);
        return ARES_OK;
    }
    const ares_json *last =
        prompt->type == ARES_JSON_ARRAY && prompt->count ? &prompt->items[prompt->count - 1] : NULL;
    const ares_json *role = last ? ares_json_get(last, "role") : NULL;
    if (!role || role->type != ARES_JSON_STRING || !ares_view_is(role->text, "user"))
        return ares_fail(ARES_EFORMAT, "the prompt's last message is not the user's; end it with "
                                       "one, or set distillation.context to none");
    add_content(ares_json_get(last, "content"), out);
    return ARES_OK;
}

static const ares_json *string_in(ares_arena *arena, ares_view text)
{
    ares_json *s = ares_arena_calloc(arena, 1, sizeof *s);
    *s = (ares_json){ .type = ARES_JSON_STRING,
                      .text = { ares_arena_copy(arena, text.data ? text.data : "", text.len),
                                text.len } };
    return s;
}

/* An object's members with another value under the key. */
static ares_json_member *members_with(const ares_json *object, const char *key, const ares_json *v,
                                      ares_arena *arena)
{
    ares_json_member *m = ares_arena_alloc(arena, (size_t)object->count * sizeof *m);
    for (int64_t i = 0; i < object->count; i++) {
        m[i] = object->members[i];
        if (ares_view_is(m[i].key, key)) m[i].value = v;
    }
    return m;
}

const ares_json *teacher_prompt_with(const ares_json *prompt, ares_view text, ares_arena *arena)
{
    const ares_json *content = string_in(arena, text);
    if (prompt->type == ARES_JSON_STRING) return content;
    ares_json *list = ares_arena_calloc(arena, 1, sizeof *list),
              *items = ares_arena_alloc(arena, (size_t)prompt->count * sizeof *items),
              *last = &items[prompt->count - 1];
    memcpy(items, prompt->items, (size_t)prompt->count * sizeof *items);
    *list = (ares_json){ .type = ARES_JSON_ARRAY, .count = prompt->count, .items = items };
    const ares_json *old = ares_json_get(last, "content");
    if (old && old->type == ARES_JSON_ARRAY) {
        ares_json *parts = ares_arena_alloc(arena, (size_t)(old->count + 1) * sizeof *parts);
        ares_json_member *m = ares_arena_calloc(arena, 2, sizeof *m);
        int64_t n = 0;
        for (int64_t i = 0; i < old->count; i++)
            if (!text_of_part(&old->items[i])) parts[n++] = old->items[i];
        m[0] = (ares_json_member){ ARES_VIEW("type"), string_in(arena, ARES_VIEW("text")) };
        m[1] = (ares_json_member){ ARES_VIEW("text"), content };
        parts[n++] = (ares_json){ .type = ARES_JSON_OBJECT, .count = 2, .members = m };
        ares_json *whole = ares_arena_calloc(arena, 1, sizeof *whole);
        *whole = (ares_json){ .type = ARES_JSON_ARRAY, .count = n, .items = parts };
        content = whole;
    }
    last->members = members_with(last, "content", content, arena);
    return list;
}

/* ---------------- texts of groups (SDPO, arXiv 2601.20802) */

void teacher_choose(const ares_distillation_config *c, teacher_answer *answers, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        teacher_answer *a = &answers[i];
        /* f32 as scores are: 0.7 is not above the score 0.7 */
        a->successful = a->usable && a->score >= (float)c->success_threshold;
    }
    for (int64_t i = 0; i < n; i++) {
        teacher_answer *a = &answers[i];
        a->solution_from = -1;
        for (int64_t j = 0; j < n && c->use_successful && a->solution_from < 0; j++)
            if (answers[j].successful && !(c->skip_own && j == i)) a->solution_from = (int32_t)j;
        a->available = ares_view_trim(a->feedback).len > 0;
        a->told =
            c->include_feedback && a->available && !(c->feedback_alone && a->solution_from >= 0);
    }
}

void teacher_demonstration(const ares_distillation_config *c, ares_view response, ares_str *out)
{
    const ares_view begin = ARES_VIEW("<think>"), end = ARES_VIEW("</think>");
    ares_str left = { 0 };
    size_t at = 0;
    if (!c->remove_thinking) {
        ares_str_add_view(out, response);
        return;
    }
    for (;;) { /* each shortest <think>..</think>; one that is never closed stays */
        int64_t from = ares_view_find(response, begin, at),
                to = from < 0 ? -1 : ares_view_find(response, end, (size_t)from + begin.len);
        size_t stop = to < 0 ? response.len : (size_t)from;
        ares_str_add(&left, response.data + at, stop - at);
        if (to < 0) break;
        at = (size_t)to + end.len;
    }
    ares_str_add_view(out, ares_view_trim(ares_str_view(&left)));
    ares_str_fini(&left);
}

void teacher_reprompt(const ares_distillation_config *c, ares_view prompt,
                      const ares_view *demonstration, const ares_view *feedback, ares_str *out)
{
    ares_str solution = { 0 }, told = { 0 };
    if (demonstration) fill(c, TEACHER_SOLUTION, demonstration, &solution);
    if (feedback) fill(c, TEACHER_FEEDBACK, feedback, &told);
    const ares_view values[] = { prompt, ares_str_view(&solution), ares_str_view(&told) };
    fill(c, TEACHER_REPROMPT, values, out);
    ares_str_fini(&solution);
    ares_str_fini(&told);
}

/* ---------------- of a run */

/* The teacher's prompt of a row, on the thread that makes it. */
typedef struct slot {
    ares_str text;
    ares_ids ids;
    const ares_row_media *row_media;
    int64_t same_as; /* an earlier row with the same prompt; -1: its own */
    bool made, overlong;
} slot;

struct teacher_texts {
    teacher_texts_options o;
    ares_arena *arenas; /* [threads of the pool]: media of the prompts, until the next batch */
    int threads;
};

teacher_texts *teacher_texts_new(const teacher_texts_options *o)
{
    teacher_texts *t = ares_calloc(1, sizeof *t);
    t->o = *o;
    t->threads = ares_pool_threads(o->pool);
    t->arenas = ares_calloc((size_t)t->threads, sizeof *t->arenas);
    return t;
}

void teacher_texts_free(teacher_texts *t)
{
    if (!t) return;
    for (int i = 0; i < t->threads; i++) ares_arena_fini(&t->arenas[i]);
    ares_free(t->arenas);
    ares_free(t);
}

int teacher_texts_check_rows(const ares_distillation_config *c, const ares_data_config *data,
                             const ares_source *rows, bool all)
{
    bool by_row = strcmp(c->context, "row") == 0;
    int64_t n = ares_source_count(rows), with = 0;
    ares_str text = { 0 };
    int rc = ARES_OK;
    if (strcmp(c->context, "none") == 0) return ARES_OK;
    bool episodes = n && !ares_source_row(rows, 0)->prompt; /* whose prompts the games make */
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        const ares_row *row = ares_source_row(rows, i);
        ares_str_clear(&text);
        bool there = teacher_context(row->json, c->context_key, &text);
        with += there;
        if ((by_row && !there) || episodes) continue; /* no prompt of its own is rebuilt */
        rc = teacher_prompt_text(ares_row_at(row->json, data->prompt_key), &text);
        if (rc != ARES_OK) rc = ares_fail_in(rc, "data: %s:%lld", row->file, (long long)row->line);
    }
    ares_str_fini(&text);
    if (rc == ARES_OK && all && by_row && n && !with) {
        const ares_row *first = ares_source_row(rows, 0);
        rc = ares_row_lacks(first->json, "no such key", D "privileged_context_key");
        return ares_fail_in(rc, "data: %s:%lld: no row has '%s'", first->file,
                            (long long)first->line, c->context_key);
    }
    if (rc == ARES_OK && all && by_row && with < n)
        ares_info("train: %lld of %lld rows have a '%s'; the others have no teacher",
                  (long long)with, (long long)n, c->context_key);
    return rc;
}

/*
 * Puts the row's own pictures in the places of the ones that were opened for this prompt: features
 * are kept by a picture's address, and these go with the batch.
 */
static int take_pictures(const ares_row *row, ares_arena *kept, slot *s)
{
    if (!s->row_media) return ARES_OK;
    int32_t n = s->row_media->n_places;
    if (!row->row_media || row->row_media->n_places != n)
        return ares_fail(ARES_EFORMAT, "it has other pictures than the student's prompt");
    ares_row_media *media = ares_arena_alloc(kept, sizeof *media);
    ares_place *places = ares_arena_alloc(kept, ((size_t)n + 1) * sizeof *places);
    *media = *s->row_media;
    for (int32_t i = 0; i < n; i++) {
        places[i] = media->places[i];
        places[i].medium = row->row_media->places[i].medium;
    }
    media->places = places;
    s->row_media = media;
    return ARES_OK;
}

/* Encodes a prompt as the student's was, ready for an answer. */
static int encode(const teacher_texts *t, const ares_row *row, const ares_json *prompt,
                  ares_view text, ares_arena *arena, ares_arena *kept, slot *s)
{
    const ares_prompt_encoder *e = t->o.encoder;
    const ares_data_config *data = &t->o.cfg->data;
    bool list = prompt->type == ARES_JSON_ARRAY, chat = ares_prompt_encoder_chat(e) != NULL;
    const ares_json *messages, *variables;
    ares_prompt_media media;
    ARES_TRY(ares_prompt_media_of(data, row->json, list ? prompt : NULL, arena, &media));
    if (list) messages = teacher_prompt_with(prompt, text, arena);
    else { /* the user's message of a string, beside data.system_prompt; it is not formatted again
            */
        ares_str json = { 0 };
        ares_json_begin(&json, '[');
        for (int user = data->system_prompt == NULL; user < 2; user++) {
            ares_json_begin(&json, '{');
            ares_json_write_string(ares_json_key(&json, "role"),
                                   ares_view_of(user ? "user" : "system"));
            ares_json_write_string(ares_json_key(&json, "content"),
                                   user ? text : ares_view_of(data->system_prompt));
            ares_json_end(&json, '}');
        }
        ares_json_end(&json, ']');
        int rc = ares_json_parse(arena, ares_str_view(&json), "messages", &messages);
        ares_str_fini(&json);
        ARES_TRY(rc);
    }
    if (chat) {
        ARES_TRY(ares_prompt_conversation(e, row->json, messages, NULL, arena, &variables));
        variables = ares_prompt_place_media(variables, &media, arena);
        ARES_TRY(ares_chat_render(ares_prompt_encoder_chat(e), variables, NULL, &s->text));
    } else ares_str_add_view(&s->text, text);
    ARES_TRY(ares_tokenizer_encode(t->o.tokenizer, ares_str_view(&s->text), !chat, &s->ids));
    ARES_TRY(ares_prompt_see(e, &media, kept, &s->ids, &s->row_media));
    return take_pictures(row, kept, s);
}

/*
 * The prompt of an episode with another text of its first message. The text is that which the
 * student's prompt decodes to, so that nothing else of it changes.
 */
static int encode_episode(const teacher_texts *t, const ares_sample *of, ares_view filled, slot *s)
{
    ares_str prompt = { 0 };
    ares_view question = of->question;
    int64_t at = -1;
    int rc = ares_tokenizer_decode(t->o.tokenizer, of->prompt, of->prompt_len, false, &prompt);
    for (int trims = 0; rc == ARES_OK && trims < 2 && at < 0; trims++) {
        if (trims) question = ares_view_trim(question); /* as some chat templates do */
        /* the last: the system's message may tell of it, too */
        for (int64_t next = 0; question.len; at = next++)
            if ((next = ares_view_find(ares_str_view(&prompt), question, (size_t)next)) < 0) break;
    }
    if (rc == ARES_OK && at < 0)
        rc = ares_fail(ARES_EUNSUPPORTED,
                       "the chat template writes the first message of an episode in another way "
                       "than the environment; set distillation.context to none");
    if (rc == ARES_OK) {
        size_t end = (size_t)at + question.len;
        ares_str_add(&s->text, prompt.data, (size_t)at);
        ares_str_add_view(&s->text, filled);
        ares_str_add(&s->text, prompt.data + end, prompt.len - end);
        rc = ares_tokenizer_encode(t->o.tokenizer, ares_str_view(&s->text), false, &s->ids);
    }
    ares_str_fini(&prompt);
    return rc;
}

/* Makes the text and the ids of one answer's prompt; filled: the text of the user's message. */
static int make(const teacher_texts *t, const ares_sample *of, ares_view filled, ares_arena *arena,
                ares_arena *kept, slot *s)
{
    const ares_row *row = of->row;
    int rc = of->question.len ? encode_episode(t, of, filled, s)
                              : encode(t, row, ares_row_at(row->json, t->o.cfg->data.prompt_key),
                                       filled, arena, kept, s);
    s->made = rc == ARES_OK;
    s->overlong = s->made && s->ids.n > t->o.cfg->distillation.max_reprompt_len;
    if (rc == ARES_OK) return rc;
    return ares_fail_in(rc, "data: %s:%lld: the teacher's prompt", row->file, (long long)row->line);
}

/* The text of the user's message that is rebuilt, as the student reads it. */
static int prompt_text(const teacher_texts *t, const ares_sample *of, ares_str *out)
{
    const ares_row *row = of->row;
    ares_str_clear(out);
    if (of->question.len) {
        ares_str_add_view(out, of->question);
        return ARES_OK;
    }
    const ares_json *prompt = ares_row_at(row->json, t->o.cfg->data.prompt_key);
    if (prompt->type == ARES_JSON_STRING)
        return ares_prompt_format(t->o.encoder, prompt->text, out);
    return teacher_prompt_text(prompt, out);
}

/* What a thread finds out about a group. */
typedef struct group_made {
    int rc;
    char *message;
    int64_t successful, shown, available, told; /* the first: whether any answer is */
} group_made;
typedef struct job {
    teacher_texts *t;
    ares_batch *b;
    slot *slots;      /* [rows] */
    group_made *made; /* [groups] */
} job;

/* Whether two answers of a group have the same prompt; episodes may have begun differently. */
static bool same_prompt(const ares_sample *x, const ares_sample *y)
{
    return x->prompt_len == y->prompt_len &&
           memcmp(x->prompt, y->prompt, (size_t)x->prompt_len * sizeof *x->prompt) == 0;
}

/* context row: every answer to a prompt has the same one. */
static int make_by_row(job *j, int64_t from, int64_t to, ares_arena *arena, ares_arena *kept)
{
    const ares_distillation_config *c = &j->t->o.cfg->distillation;
    const ares_sample *s = j->b->samples;
    ares_str prompt = { 0 }, context = { 0 }, filled = { 0 };
    int rc = ARES_OK;
    bool there = teacher_context(s[from].row->json, c->context_key, &context);
    for (int64_t r = from, made = -1; r < to && there && rc == ARES_OK; r++) {
        if (!ares_batch_row_counts(j->b, r)) continue;
        if (made >= 0 && same_prompt(&s[made], &s[r])) {
            j->slots[r].same_as = made;
            continue;
        }
        made = r;
        rc = prompt_text(j->t, &s[r], &prompt);
        const ares_view values[] = { ares_str_view(&prompt), ares_str_view(&context) };
        if (rc == ARES_OK) {
            ares_str_clear(&filled);
            fill(c, TEACHER_ROW, values, &filled);
            rc = make(j->t, &s[r], ares_str_view(&filled), arena, kept, &j->slots[r]);
        }
    }
    ares_str_fini(&prompt);
    ares_str_fini(&context);
    ares_str_fini(&filled);
    return rc;
}

/* context group: the answers [from, to) of one prompt. */
static int make_by_group(job *j, int64_t from, int64_t to, ares_arena *arena, ares_arena *kept,
                         group_made *made)
{
    const ares_distillation_config *c = &j->t->o.cfg->distillation;
    const ares_batch *b = j->b;
    const ares_row *row = b->samples[from].row;
    ares_str prompt = { 0 }, context = { 0 }, text = { 0 }, filled = { 0 };
    teacher_answer *answers = ares_arena_calloc(arena, (size_t)(to - from), sizeof *answers);
    bool of_row = teacher_context(row->json, c->context_key, &context);
    int rc = ARES_OK;
    for (int64_t r = from; r < to; r++) {
        const ares_sample *s = &b->samples[r];
        answers[r - from] = (teacher_answer){ .score = s->score,
                                              .usable = ares_batch_row_counts(b, r) && !s->masked &&
                                                        !s->discarded && !s->failed,
                                              .feedback = s->feedback.len ? s->feedback
                                                          : of_row        ? ares_str_view(&context)
                                                                          : (ares_view){ 0 } };
    }
    teacher_choose(c, answers, to - from);
    for (int64_t r = from; r < to && rc == ARES_OK; r++) {
        teacher_answer *a = &answers[r - from];
        ares_view demonstration;
        if (!ares_batch_row_counts(b, r)) continue;
        made->successful |= a->successful;
        made->shown += a->solution_from >= 0;
        made->available += a->available;
        made->told += a->told;
        if (a->solution_from < 0 && !a->told) continue;
        ares_str_clear(&filled);
        ares_str_clear(&text);
        rc = prompt_text(j->t, &b->samples[r], &prompt);
        if (rc == ARES_OK && a->solution_from >= 0) { /* its tokens, without special ones */
            int64_t k = from + a->solution_from;
            ares_str whole = { 0 };
            rc = ares_tokenizer_decode(j->t->o.tokenizer, b->responses + b->row_start[k],
                                       b->row_start[k + 1] - b->row_start[k], true, &whole);
            teacher_demonstration(c, ares_str_view(&whole), &text);
            ares_str_fini(&whole);
        }
        demonstration = ares_str_view(&text);
        teacher_reprompt(c, ares_str_view(&prompt), a->solution_from >= 0 ? &demonstration : NULL,
                         a->told ? &a->feedback : NULL, &filled);
        /* an earlier answer that is shown the same: their prompts are shared */
        for (int64_t k = from; k < r && !a->told && j->slots[r].same_as < 0; k++)
            if (j->slots[k].made && !answers[k - from].told &&
                answers[k - from].solution_from == a->solution_from &&
                same_prompt(&b->samples[k], &b->samples[r]))
                j->slots[r].same_as = k;
        if (rc == ARES_OK && j->slots[r].same_as < 0)
            rc = make(j->t, &b->samples[r], ares_str_view(&filled), arena, kept, &j->slots[r]);
    }
    ares_str_fini(&prompt);
    ares_str_fini(&context);
    ares_str_fini(&text);
    ares_str_fini(&filled);
    return rc;
}

static void make_group(void *ctx, int64_t g, int worker)
{
    job *j = ctx;
    int64_t from = j->b->group_start[g], to = j->b->group_start[g + 1];
    group_made *made = &j->made[g];
    ares_arena arena = { 0 }, *kept = &j->t->arenas[worker];
    bool by_row = strcmp(j->t->o.cfg->distillation.context, "row") == 0;
    for (int64_t r = from; r < to; r++) j->slots[r].same_as = -1;
    if (to > from)
        made->rc = by_row ? make_by_row(j, from, to, &arena, kept)
                          : make_by_group(j, from, to, &arena, kept, made);
    if (made->rc != ARES_OK) made->message = ares_strdup(ares_error_message());
    ares_arena_fini(&arena);
}

static bool below(const int32_t *ids, int64_t n, int64_t limit)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= limit) return false;
    return true;
}

/* Counts over the rows of all ranks that count (ares_batch_row_counts), then shares of them. */
#define COUNTS(X) \
    X(rows)       \
    X(groups) X(overlong) X(unreadable) X(taught) X(successful) X(shown) X(available) X(told)
typedef struct counts {
#define COUNT_FIELD(name) int64_t name;
    COUNTS(COUNT_FIELD)
#undef COUNT_FIELD
} counts;

/* Gives each row its prompt, unless it is too long or the teacher cannot read it. */
static void put_rows(const teacher_texts *t, ares_batch *b, const slot *slots, counts *n)
{
    for (int64_t r = 0; r < b->rows; r++) {
        ares_sample *s = &b->samples[r];
        int64_t first = b->row_start[r], tokens = b->row_start[r + 1] - first;
        bool overlong = false, counted = ares_batch_row_counts(b, r);
        s->distilled = counted;
        n->rows += counted;
        s->teacher_prompt = NULL;
        s->teacher_prompt_len = 0;
        s->teacher_row_media = NULL;
        s->teacher_text = (ares_view){ 0 };
        if (slots) {
            int64_t from = slots[r].same_as >= 0 ? slots[r].same_as : r;
            const slot *x = &slots[from];
            s->distilled = x->made;
            if (x->made && from == r) {
                s->teacher_prompt = (const int32_t *)(const void *)ares_arena_copy(
                    &b->arena, (const char *)x->ids.ids, (size_t)x->ids.n * sizeof(int32_t));
                s->teacher_prompt_len = (int32_t)x->ids.n;
                s->teacher_row_media = x->row_media;
                s->teacher_text =
                    (ares_view){ ares_arena_copy(&b->arena, x->text.data ? x->text.data : "",
                                                 x->text.len),
                                 x->text.len };
            } else if (x->made) {
                const ares_sample *other = &b->samples[from];
                s->teacher_prompt = other->teacher_prompt;
                s->teacher_prompt_len = other->teacher_prompt_len;
                s->teacher_row_media = other->teacher_row_media;
                s->teacher_text = other->teacher_text;
            }
            overlong = x->overlong;
        }
        const int32_t *prompt = s->teacher_prompt ? s->teacher_prompt : s->prompt;
        int64_t length = s->teacher_prompt ? s->teacher_prompt_len : s->prompt_len;
        overlong = s->distilled && (overlong || length + tokens > t->o.limits.positions);
        bool unreadable = s->distilled && !overlong &&
                          !(below(prompt, length, t->o.limits.readable) &&
                            below(b->responses + first, tokens, t->o.limits.readable));
        s->distilled = s->distilled && !overlong && !unreadable;
        n->overlong += overlong;
        n->unreadable += unreadable;
        n->taught += s->distilled;
    }
    for (int64_t g = 0; g < b->groups; g++) {
        bool counted = false; /* a group that only fills the batch is none */
        for (int64_t r = b->group_start[g]; r < b->group_start[g + 1]; r++)
            counted |= ares_batch_row_counts(b, r);
        n->groups += counted;
    }
}

int teacher_texts_fill(teacher_texts *t, ares_world *world, ares_batch *b, ares_metrics *m)
{
    const char *context = t->o.cfg->distillation.context;
    counts n = { 0 };
    int rc = ares_batch_need("teacher", "responses", b->responses);
    if (rc == ARES_OK && strcmp(context, "none") == 0) put_rows(t, b, NULL, &n);
    else if (rc == ARES_OK) {
        for (int i = 0; i < t->threads; i++) ares_arena_reset(&t->arenas[i]);
        job j = { t, b, ares_calloc((size_t)b->rows + 1, sizeof *j.slots),
                  ares_calloc((size_t)b->groups + 1, sizeof *j.made) };
        ares_pool_run(t->o.pool, b->groups, make_group, &j);
        for (int64_t g = 0; g < b->groups; g++) { /* in order: the first fault is always the same */
            const group_made *x = &j.made[g];
            if (x->rc != ARES_OK && rc == ARES_OK) rc = ares_fail(x->rc, "%s", x->message);
            n.successful += x->successful;
            n.shown += x->shown;
            n.available += x->available;
            n.told += x->told;
            ares_free(x->message);
        }
        if (rc == ARES_OK) put_rows(t, b, j.slots, &n);
        for (int64_t r = 0; r < b->rows; r++) {
            ares_str_fini(&j.slots[r].text);
            ares_ids_fini(&j.slots[r].ids);
        }
        ares_free(j.slots);
        ares_free(j.made);
    }
    ARES_TRY(ares_world_share_error(world, rc));
    ARES_TRY(ares_world_sum_i64(world, (int64_t *)&n, sizeof n / sizeof(int64_t)));
    double rows = (double)ARES_MAX(n.rows, 1), groups = (double)ARES_MAX(n.groups, 1);
    ares_metrics_set(m, "distillation/overlong_frac", (double)n.overlong / rows);
    ares_metrics_set(m, "distillation/unreadable_frac", (double)n.unreadable / rows);
    ares_metrics_set(m, "distillation/reprompt_sample_fraction", (double)n.taught / rows);
    if (strcmp(context, "group") != 0) return ARES_OK;
    ares_metrics_set(m, "distillation/success_group_fraction", (double)n.successful / groups);
    ares_metrics_set(m, "distillation/success_sample_fraction", (double)n.shown / rows);
    ares_metrics_set(m, "distillation/feedback_available_fraction", (double)n.available / rows);
    ares_metrics_set(m, "distillation/feedback_used_fraction", (double)n.told / rows);
    return ARES_OK;
}
