/*
 * Trigger words: with worker.rollout.trigger_tokens_file only positions at which the model was
 * about to say one of them may count as high-entropy tokens (docs/aepo.md#trigger-words; the 174
 * words of the published run are examples/trigger_words.json). Words and tokens are compared by
 * their normalised text. Each token is decoded by itself, so a word of two tokens never matches.
 */
#include "collect/triggers.h"

#include "ares/algo_entropy.h"

/* The words of the file, normalised, each once; value 1: some token spells the word (set later). */
static int read_words(const char *path, ares_map **out)
{
    ares_str text = { 0 }, word = { 0 };
    ares_arena arena = { 0 };
    ares_map *words = ares_map_new();
    const ares_json *list = NULL;
    int rc = ares_file_read(path, &text);
    if (rc == ARES_OK) rc = ares_json_parse(&arena, ares_str_view(&text), path, &list);
    if (rc == ARES_OK && list->type != ARES_JSON_ARRAY)
        rc = ares_fail(
            ARES_EFORMAT,
            "%s: holds no list; write a JSON array of words, such as [\"wait\", \"but\"]", path);
    else if (rc == ARES_OK && !list->count)
        rc = ares_fail(ARES_EFORMAT,
                       "%s: the list is empty; name a word, or set the option to null and every "
                       "token may count",
                       path);
    for (int64_t i = 0; rc == ARES_OK && i < list->count; i++) {
        if (list->items[i].type != ARES_JSON_STRING)
            rc = ares_fail(ARES_EFORMAT, "%s: entry %lld is no string; write a JSON array of words",
                           path, (long long)i + 1);
        else ares_trigger_normalize(list->items[i].text, &word);
        if (rc == ARES_OK && !word.len)
            rc = ares_fail(ARES_EFORMAT, "%s: entry %lld is empty; remove it", path,
                           (long long)i + 1);
        if (rc == ARES_OK) ares_map_put(words, ares_str_view(&word), 0);
    }
    ares_arena_fini(&arena);
    ares_str_fini(&word);
    ares_str_fini(&text);
    if (rc == ARES_OK) *out = words;
    else ares_map_free(words);
    return rc;
}

void triggers_check(ares_config *cfg, const ares_rollout_config *r)
{
    ares_map *words;
    if (!r->trigger_tokens_file) return;
    if (read_words(r->trigger_tokens_file, &words) == ARES_OK) ares_map_free(words);
    else ares_config_fault(cfg, "worker.rollout.trigger_tokens_file", "%s", ares_error_message());
}

/* Warns of words that no single token spells; fails where that is all of them. */
static int report(const ares_trainer *t, const char *path, const ares_map *words)
{
    ares_str some = { 0 };
    int64_t total = ares_map_count(words), missing = 0;
    for (int64_t i = 0; i < total; i++) {
        if (ares_map_value(words, i)) continue;
        if (missing++ >= 5) continue;
        ares_str_add_z(&some, some.len ? ", " : "");
        ares_str_add_view(&some, ares_map_key(words, i));
    }
    if (missing && missing < total && ares_world_rank(t->run.world) == 0)
        ares_warn("rollout: worker.rollout.trigger_tokens_file = '%s': %lld of %lld words are no "
                  "single token of this model and never count (%s%s)",
                  path, (long long)missing, (long long)total, some.data,
                  missing > 5 ? ", ..." : "");
    ares_str_fini(&some);
    if (missing < total) return ARES_OK;
    return ares_fail(
        ARES_ECONFIG,
        "rollout: worker.rollout.trigger_tokens_file = '%s': none of its %lld words is a single "
        "token of this model, so that nothing would ever count; name others, or set it to null",
        path, (long long)total);
}

int triggers_load(ares_trainer *t)
{
    const char *path = t->run.cfg->rollout.trigger_tokens_file;
    /* a padded embedding has ids that are no tokens */
    int64_t vocab = t->run.model->cfg.vocab,
            known = ARES_MIN(vocab, ares_tokenizer_vocab_size(t->run.tokenizer));
    ares_map *words;
    if (!path) return ARES_OK;
    ARES_TRY(read_words(path, &words));
    ares_str text = { 0 }, word = { 0 };
    t->triggers = ares_calloc((size_t)vocab, sizeof *t->triggers);
    int rc = ARES_OK;
    for (int32_t id = 0; rc == ARES_OK && id < known; id++) {
        ares_str_clear(&text);
        rc = ares_tokenizer_decode(t->run.tokenizer, &id, 1, false, &text);
        ares_trigger_normalize(ares_str_view(&text), &word);
        if (rc == ARES_OK && word.len && ares_map_get(words, ares_str_view(&word), NULL)) {
            t->triggers[id] = 1;
            ares_map_put(words, ares_str_view(&word), 1);
        }
    }
    if (rc == ARES_OK) rc = report(t, path, words);
    ares_str_fini(&word);
    ares_str_fini(&text);
    ares_map_free(words);
    return rc;
}

uint8_t *triggers_mark(const ares_trainer *t, const ares_completion *c, size_t before,
                       ares_arena *arena)
{
    if (!t->triggers) return NULL;
    /* recorded where trigger_match asks for it */
    const int32_t *ids = c->most_likely ? c->most_likely : c->ids;
    uint8_t *marks = ares_arena_alloc(arena, before + (size_t)c->n_tokens + 1);
    for (int32_t i = 0; i < c->n_tokens; i++) marks[before + (size_t)i] = t->triggers[ids[i]];
    return marks;
}
