/*
 * How generation_config.json asks to sample. Its end tokens are followed (hf_config.c); the rest is
 * not: a run samples as its options say, and whoever copies them from a model card must know that
 * the file adds nothing.
 */
#include <math.h>

#include "ares/core_file.h"
#include "ares/model.h"

/* Words that change what is sampled, and the value with which they do not; NaN: none but null. */
static const struct {
    const char *word;
    double neutral;
} words[] = {
    { "temperature", 1 },
    { "top_p", 1 },
    { "top_k", 0 },
    { "min_p", 0 },
    { "typical_p", 1 },
    { "epsilon_cutoff", 0 },
    { "eta_cutoff", 0 },
    { "repetition_penalty", 1 },
    { "encoder_repetition_penalty", 1 },
    { "no_repeat_ngram_size", 0 },
    { "encoder_no_repeat_ngram_size", 0 },
    { "penalty_alpha", 0 },
    { "guidance_scale", 1 },
    { "num_beams", 1 },
    { "diversity_penalty", 0 },
    { "min_length", 0 },
    { "min_new_tokens", 0 },
    { "exponential_decay_length_penalty", NAN },
    { "bad_words_ids", NAN },
    { "force_words_ids", NAN },
    { "suppress_tokens", NAN },
    { "begin_suppress_tokens", NAN },
    { "forced_bos_token_id", NAN },
    { "forced_eos_token_id", NAN },
    { "sequence_bias", NAN },
    { "stop_strings", NAN },
    { "watermarking_config", NAN },
};

static bool asks_for_something(const ares_json *v, double neutral)
{
    if (!v || v->type == ARES_JSON_NULL) return false;
    if (v->type == ARES_JSON_ARRAY || v->type == ARES_JSON_OBJECT) return v->count > 0;
    bool number = v->type == ARES_JSON_INT || v->type == ARES_JSON_FLOAT;
    return !number || v->number != neutral;
}

static void add(const ares_json *v, const char *word, const ares_sampling_word *own, ares_str *out)
{
    enum { SHOWN = 40 };
    ares_str text = { 0 };
    ares_json_write(&text, v);
    ares_str_addf(out, "%s%s = %.*s%s (", out->len ? ", " : "", word,
                  (int)ARES_MIN(text.len, SHOWN), text.data, text.len > SHOWN ? ".." : "");
    if (own) ares_str_addf(out, "%s = %g)", own->option, own->value);
    else ares_str_add_z(out, "nothing here does that)");
    ares_str_fini(&text);
}

int ares_model_tell_sampling(const char *dir, const ares_sampling_word *own, int n)
{
    ares_arena arena = { 0 };
    ares_str path = { 0 }, text = { 0 }, told = { 0 };
    const ares_json *root;
    int rc = ARES_OK;
    if (ares_file_exists(ares_path_join(&path, dir, "generation_config.json"))) {
        rc = ares_file_read(path.data, &text);
        if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path.data, &root);
        for (int i = 0; rc == ARES_OK && i < ARES_COUNT(words); i++) {
            const ares_json *v = ares_json_get(root, words[i].word);
            const ares_sampling_word *as = NULL;
            for (int k = 0; k < n; k++)
                if (ares_view_eq(ares_view_of(own[k].word), ares_view_of(words[i].word)))
                    as = &own[k];
            if (!asks_for_something(v, words[i].neutral)) continue;
            if (!as || v->type == ARES_JSON_STRING || v->number != as->value)
                add(v, words[i].word, as, &told);
        }
        if (told.len) ares_info("model: %s: not followed: %s", path.data, told.data);
    }
    ares_str_fini(&told);
    ares_str_fini(&text);
    ares_str_fini(&path);
    ares_arena_fini(&arena);
    return rc;
}
