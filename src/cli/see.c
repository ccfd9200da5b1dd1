/* From a line of JSON to the ids and pictures that a model reads, as for rows of a data set. */
#include "see.h"

#include <string.h>

enum { KEPT_BYTES = 1 << 28 }; /* of features, from line to line */

int verb_see_open(verb_see *s, const verb_see_options *o, const char *dir, ares_model *m)
{
    *s = (verb_see){ .dir = dir,
                     .cfg = { .prompt_key = "prompt",
                              .image_key = "images",
                              .video_key = "videos",
                              .image_dir = o->image_dir,
                              .min_pixels = o->min_pixels ? o->min_pixels : ARES_NULL_I64,
                              .max_pixels = o->max_pixels ? o->max_pixels : ARES_NULL_I64,
                              .video_fps = o->video_fps } };
    if (!(o->video_fps > 0))
        return ares_fail(ARES_EUSE, "--video-fps = %g: must be above 0", o->video_fps);
    if (o->min_pixels && o->max_pixels && o->min_pixels > o->max_pixels)
        return ares_fail(ARES_EUSE, "--min-pixels = %lld exceeds --max-pixels = %lld",
                         (long long)o->min_pixels, (long long)o->max_pixels);
    bool sees = m->cfg.vision.depth > 0;
    if (ares_tokenizer_load(dir, &s->tokenizer) != ARES_OK) {
        s->tokenizer = NULL;
        s->tokenizer_error = ares_strdup(ares_error_message());
        ares_error_clear();
    } else
        ARES_TRY(
            ares_model_add_eos(&m->cfg, ares_tokenizer_role_id(s->tokenizer, ARES_TOKEN_EOS), dir));
    if (sees) {
        ARES_TRY(ares_sight_rules_load(&m->cfg, dir, &s->rules));
        ARES_TRY(ares_features_new(m, &s->rules.processor, KEPT_BYTES, &s->features));
    }
    return ares_prompt_encoder_new(&(ares_prompt_options){ .cfg = &s->cfg,
                                                           .tokenizer = s->tokenizer,
                                                           .sight = sees ? &s->rules : NULL },
                                   &s->encoder);
}

void verb_see_close(verb_see *s)
{
    ares_features_free(s->features);
    ares_prompt_encoder_free(s->encoder);
    ares_chat_free(s->chat);
    ares_tokenizer_free(s->tokenizer);
    ares_free(s->tokenizer_error);
    ares_arena_fini(&s->arena);
}

/* A prompt as messages: one message of the user. */
static const ares_json *user_message(ares_arena *a, ares_view text)
{
    ares_json *v = ares_arena_calloc(a, 4, sizeof *v), *list = v, *message = v + 1;
    ares_json_member *m = ares_arena_calloc(a, 2, sizeof *m);
    v[2] = (ares_json){ .type = ARES_JSON_STRING, .text = ARES_VIEW("user") };
    v[3] = (ares_json){ .type = ARES_JSON_STRING, .text = text };
    m[0] = (ares_json_member){ ARES_VIEW("role"), &v[2] };
    m[1] = (ares_json_member){ ARES_VIEW("content"), &v[3] };
    *message = (ares_json){ .type = ARES_JSON_OBJECT, .members = m, .count = 2 };
    *list = (ares_json){ .type = ARES_JSON_ARRAY, .items = message, .count = 1 };
    return list;
}

/*
 * The line's template variables, and add_generation_prompt or continue_final_message as for the
 * prompt of a data set, unless the line has one of them.
 */
static const ares_json *with_generation_prompt(ares_arena *a, const ares_json *line)
{
    static const ares_json yes = { .type = ARES_JSON_BOOL, .boolean = true };
    const ares_json *open = ares_json_get(line, "continue_final_message");
    bool closed =
        open && (open->type == ARES_JSON_NULL || (open->type == ARES_JSON_BOOL && !open->boolean));
    if (ares_json_get(line, "add_generation_prompt") || (open && !closed)) return line;
    ares_view ready = closed ? ARES_VIEW("add_generation_prompt")
                             : ares_chat_prompt_variable(ares_json_get(line, "messages"));
    ares_json_member *members = ares_arena_alloc(a, (size_t)(line->count + 1) * sizeof *members);
    memcpy(members, line->members, (size_t)line->count * sizeof *members);
    members[line->count] = (ares_json_member){ ready, &yes };
    ares_json *out = ares_arena_calloc(a, 1, sizeof *out);
    *out = (ares_json){ .type = ARES_JSON_OBJECT, .count = line->count + 1, .members = members };
    return out;
}

static int need_tokenizer(const verb_see *s)
{
    return s->tokenizer
               ? ARES_OK
               : ares_fail(ARES_EFORMAT, "a text needs a tokenizer: %s", s->tokenizer_error);
}

/* A conversation's ids. line: has the images; variables: of the template */
static int encode_chat(verb_see *s, const ares_json *line, const ares_json *variables,
                       ares_ids *ids, const ares_sight **sight)
{
    ares_prompt_media media;
    ares_str text = { 0 };
    if (!s->chat) ARES_TRY(ares_chat_load(s->dir, NULL, &s->chat));
    ARES_TRY(ares_prompt_media_of(&s->cfg, line, ares_json_get(variables, "messages"), &s->arena,
                                  &media));
    ARES_TRY(ares_prompt_check_media(s->encoder, &media));
    variables =
        ares_prompt_place_media(with_generation_prompt(&s->arena, variables), &media, &s->arena);
    int rc = ares_chat_render(s->chat, variables, NULL, &text);
    if (rc == ARES_OK) rc = ares_tokenizer_encode(s->tokenizer, ares_str_view(&text), false, ids);
    if (rc == ARES_OK) rc = ares_prompt_see(s->encoder, &media, &s->arena, ids, sight);
    ares_str_fini(&text);
    return rc;
}

int verb_see_text(verb_see *s, const ares_json *line, ares_view text, ares_ids *ids,
                  const ares_sight **sight)
{
    ares_prompt_media media;
    ARES_TRY(need_tokenizer(s));
    ARES_TRY(ares_prompt_media_of(&s->cfg, line, NULL, &s->arena, &media));
    ARES_TRY(ares_tokenizer_encode(s->tokenizer, text, true, ids));
    return ares_prompt_see(s->encoder, &media, &s->arena, ids, sight);
}

int verb_see_encode(verb_see *s, const char *verb, const ares_json *line, bool raw, ares_ids *ids,
                    const ares_sight **sight)
{
    ARES_TRY(ares_row_adopt(line, "messages", false, &s->arena, &line));
    const ares_json *given = ares_json_get(line, "input_ids"),
                    *messages = ares_json_get(line, "messages"),
                    *prompt = ares_json_get(line, "prompt");
    ares_ids_clear(ids);
    if (given && given->type == ARES_JSON_ARRAY) {
        ares_prompt_media media;
        ARES_TRY(ares_prompt_media_of(&s->cfg, line, NULL, &s->arena, &media));
        ARES_TRY(verb_read_ids(verb, line, "input_ids", ids));
        return ares_prompt_see(s->encoder, &media, &s->arena, ids, sight);
    }
    ARES_TRY(need_tokenizer(s));
    if (messages && messages->type == ARES_JSON_ARRAY)
        return encode_chat(s, line, line, ids, sight);
    if (!prompt || prompt->type != ARES_JSON_STRING)
        return ares_fail(ARES_EFORMAT,
                         "%s: a line needs 'prompt' (a string), 'messages' or 'input_ids' (lists)",
                         verb);
    if (raw || !ares_tokenizer_chat_template(s->tokenizer, NULL).data)
        return verb_see_text(s, line, prompt->text, ids, sight);
    const ares_json *one = user_message(&s->arena, prompt->text);
    return encode_chat(
        s, line, ares_prompt_variables(line, one, ARES_VIEW("add_generation_prompt"), &s->arena),
        ids, sight);
}
