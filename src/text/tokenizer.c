/*
 * Encoding, decoding and looking up. Encoding follows the order of the library: find added tokens
 * in the raw text; normalise the rest and find added tokens in it; cut the rest into words; words
 * to ids; post-process.
 */
#include "tokenizer.h"

#include <string.h>

/* ---- ids */
void ares_ids_fini(ares_ids *ids)
{
    ares_free(ids->ids);
    ares_free(ids->offsets);
    *ids = (ares_ids){ 0 };
}

void ares_ids_clear(ares_ids *ids)
{
    ids->n = 0;
}

static void reserve(ares_ids *ids, int64_t more)
{
    int64_t need = ids->n + more;
    if (need > ids->cap) {
        ids->cap = ARES_MAX(need, ids->cap * 2 + 64);
        ids->ids = ares_realloc(ids->ids, (size_t)ids->cap * sizeof *ids->ids);
        if (ids->offsets)
            ids->offsets = ares_realloc(ids->offsets, (size_t)ids->cap * sizeof *ids->offsets);
    }
    if (ids->want_offsets && !ids->offsets && ids->cap)
        ids->offsets = ares_calloc((size_t)ids->cap, sizeof *ids->offsets);
}

void ares_ids_add(ares_ids *ids, int32_t id, int64_t start, int64_t end)
{
    reserve(ids, 1);
    ids->ids[ids->n] = id;
    if (ids->offsets) ids->offsets[ids->n][0] = start, ids->offsets[ids->n][1] = end;
    ids->n++;
}

/* ---- scratch: kept in slots of the tokenizer, taken and given back by atomic exchange */
static text_scratch *take_scratch(const ares_tokenizer *tokenizer)
{
    /* const promises the same results; the scratch may change */
    ares_tokenizer *t = (ares_tokenizer *)tokenizer;
    for (int i = 0; i < SCRATCH_KEPT; i++) {
        text_scratch *s = atomic_exchange(&t->scratch[i], NULL);
        if (s) return s;
    }
    return text_scratch_new();
}

static void give_scratch(const ares_tokenizer *tokenizer, text_scratch *s)
{
    ares_tokenizer *t = (ares_tokenizer *)tokenizer;
    for (int i = 0; i < SCRATCH_KEPT; i++) {
        text_scratch *none = NULL;
        if (atomic_compare_exchange_strong(&t->scratch[i], &none, s)) return;
    }
    text_scratch_free(s);
}

/* ---- encoding */
static int find_pieces(const ares_tokenizer *t, text_scratch *s)
{
    s->a.n = s->b.n = 0;
    if (s->source_len == 0) return ARES_OK;
    added_split(t->raw_set, t->split_special,
                &(piece){ s->source, s->source_len, NULL, -1, true, 0 }, &s->a);
    for (int64_t i = 0; i < s->a.n; i++) {
        piece p = s->a.items[i];
        if (p.id >= 0) {
            pieces_add(&s->b, p);
            continue;
        }
        for (int k = 0; k < t->form_count; k++) split_normalize(t->forms[k], s, &p);
        added_split(t->normalized_set, t->split_special, &p, &s->b);
    }
    pieces swap = s->a;
    s->a = s->b;
    s->b = swap;
    for (int k = 0; k < t->step_count; k++) ARES_TRY(split_run(&t->steps[k], s));
    return ARES_OK;
}

/*
 * Offsets of a word in which bytes without a token were left out: the library counts lengths in the
 * byte alphabet, without those bytes.
 */
static void place_irregular(text_scratch *s, const piece *p, const bpe_symbol *symbol,
                            size_t *counted, int64_t place[2])
{
    size_t first = 0, last = 0, at = 0;
    for (size_t i = 0; i < p->len; i++) {
        size_t width = unicode_of_byte[p->at[i]] < 0x80 ? 1 : 2;
        if (*counted >= at && *counted < at + width) first = i;
        if (*counted + symbol->mapped_len - 1 >= at) last = i;
        at += width;
    }
    *counted += symbol->mapped_len;
    piece_place(s, p, first, last + 1, place);
}

static void encode_word(const ares_tokenizer *t, text_scratch *s, const piece *p, ares_ids *out)
{
    bpe_word word = bpe_encode(t->model, &s->bpe, p->at, p->len);
    reserve(out, word.n);
    memcpy(out->ids + out->n, word.ids, (size_t)word.n * sizeof *word.ids);
    if (s->want_offsets) {
        size_t at = 0;
        for (int64_t i = 0; i < word.n; i++) {
            int64_t *place = out->offsets[out->n + i];
            if (word.symbols) {
                place_irregular(s, p, &word.symbols[i], &at, place);
                continue;
            }
            size_t len = word.n == 1 ? p->len : t->tokens[word.ids[i]].bytes.len;
            piece_place(s, p, at, at + len, place);
            at += len;
        }
    }
    out->n += word.n;
}

/* ---- post-processing */
static bool is_trimmed(uint32_t c)
{
    return c == unicode_of_byte[' '] || unicode_is_space(c);
}

static void count_spaces(ares_view text, int64_t *leading, int64_t *trailing)
{
    *leading = *trailing = 0;
    bool begun = false;
    for (const unsigned char *p = (const unsigned char *)text.data, *end = p + text.len; p < end;) {
        bool space = is_trimmed(unicode_next(&p));
        if (!space) begun = true, *trailing = 0;
        else ++*trailing;
        if (!begun) ++*leading;
    }
}

/*
 * values [n]: the texts of the tokens; of an added token the text it matched, with the white space
 * that lstrip and rstrip took.
 */
static void trim_offsets(const post_step *step, const ares_view *values, int64_t (*offsets)[2],
                         int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t leading, trailing, *place = offsets[i];
        count_spaces(values[i], &leading, &trailing);
        /* the space of add_prefix_space */
        if (leading == 1 && step->add_prefix_space && (i == 0 || place[0] == 0)) leading = 0;
        place[0] = ARES_MIN(place[0] + leading, place[1]);
        if (trailing > 0 && place[1] >= trailing)
            place[1] = ARES_MAX(place[1] - trailing, place[0]);
    }
}

static void insert(ares_ids *out, int64_t at, const int32_t *ids, int64_t n)
{
    reserve(out, n);
    size_t after = (size_t)(out->n - at);
    memmove(out->ids + at + n, out->ids + at, after * sizeof *out->ids);
    if (n) memcpy(out->ids + at, ids, (size_t)n * sizeof *ids);
    if (out->offsets) {
        memmove(out->offsets + at + n, out->offsets + at, after * sizeof *out->offsets);
        if (n) memset(out->offsets + at, 0, (size_t)n * sizeof *out->offsets);
    }
    out->n += n;
}

static void post_process(const ares_tokenizer *t, text_scratch *s, bool add_special_tokens,
                         int64_t first, ares_ids *out)
{
    bool trims = false;
    int64_t most = out->n - first;
    for (int k = 0; k < t->post_count; k++) {
        trims |= t->post[k].trim;
        most += t->post[k].before_count + t->post[k].after_count;
    }
    ares_view *values = NULL;
    if (trims && s->want_offsets) {
        values = ares_arena_alloc(&s->arena, (size_t)ARES_MAX(most, 1) * sizeof *values);
        for (int64_t i = first; i < out->n; i++) values[i - first] = t->tokens[out->ids[i]].text;
        for (int64_t i = 0; i < s->a.n; i++) {
            const piece *p = &s->a.items[i];
            if (p->id >= 0) values[p->index - first] = (ares_view){ (const char *)p->at, p->len };
        }
    }
    for (int k = 0; k < t->post_count; k++) {
        const post_step *step = &t->post[k];
        int64_t n = out->n - first;
        if (step->trim && values) trim_offsets(step, values, out->offsets + first, n);
        if (step->trim || !add_special_tokens) continue;
        if (values) {
            memmove(values + step->before_count, values, (size_t)n * sizeof *values);
            for (int64_t i = 0; i < step->before_count; i++)
                values[i] = t->tokens[step->before[i]].text;
            for (int64_t i = 0; i < step->after_count; i++)
                values[step->before_count + n + i] = t->tokens[step->after[i]].text;
        }
        insert(out, first, step->before, step->before_count);
        insert(out, out->n, step->after, step->after_count);
    }
}

int ares_tokenizer_encode(const ares_tokenizer *t, ares_view text, bool add_special_tokens,
                          ares_ids *out)
{
    /* an emptied list that no longer wants offsets */
    if (out->n == 0 && !out->want_offsets && out->offsets) {
        ares_free(out->offsets);
        out->offsets = NULL;
    }
    ARES_ASSERT(out->n == 0 || out->want_offsets == (out->offsets != NULL));
    text_scratch *s = take_scratch(t);
    ares_arena_reset(&s->arena);
    s->source = (const unsigned char *)text.data;
    s->source_len = text.len;
    s->counted = s->starts = 0;
    s->want_offsets = out->want_offsets;
    if (unicode_valid(s->source, text.len) < text.len) {
        ares_str_clear(&s->repaired);
        unicode_repair(&s->repaired, s->source, text.len);
        s->source = (const unsigned char *)s->repaired.data;
        s->source_len = s->repaired.len;
    }
    int64_t first = out->n;
    reserve(out, 1);
    int rc = find_pieces(t, s);
    for (int64_t i = 0; rc == ARES_OK && i < s->a.n; i++) {
        piece *p = &s->a.items[i];
        if (p->id >= 0) {
            int64_t place[2] = { 0, 0 };
            if (s->want_offsets) piece_place(s, p, 0, p->len, place);
            p->index = out->n;
            ares_ids_add(out, p->id, place[0], place[1]);
        } else {
            if (t->mapped) split_unmap(s, p);
            encode_word(t, s, p, out);
        }
    }
    if (rc == ARES_OK) post_process(t, s, add_special_tokens, first, out);
    else out->n = first;
    give_scratch(t, s);
    return rc;
}

/* ---- decoding */
void ares_decoder_init(ares_decoder *d, const ares_tokenizer *t, bool skip_special_tokens)
{
    *d = (ares_decoder){ .tokenizer = t, .skip_special_tokens = skip_special_tokens };
}

static void add_bytes(ares_decoder *d, const unsigned char *bytes, size_t len, ares_str *out)
{
    bool open;
    /* complete the character that earlier tokens began, byte by byte */
    while (d->pending_len && len) {
        d->pending[d->pending_len++] = *bytes++;
        len--;
        int n = unicode_piece(d->pending, (size_t)d->pending_len, &open);
        if (n > 0) {
            ares_str_add(out, (const char *)d->pending, (size_t)n);
            d->pending_len = 0;
        } else if (!open) { /* the last byte broke it, and may begin another character */
            ares_str_add(out, "\xef\xbf\xbd", 3);
            d->pending_len = 0;
            bytes--, len++;
        }
    }
    for (size_t at = 0; at < len;) {
        size_t good = unicode_valid(bytes + at, len - at);
        ares_str_add(out, (const char *)bytes + at, good);
        if ((at += good) == len) return;
        int n = unicode_piece(bytes + at, len - at, &open);
        if (open) {
            memcpy(d->pending, bytes + at, len - at);
            d->pending_len = (int)(len - at);
            return;
        }
        ares_str_add(out, "\xef\xbf\xbd", 3);
        at += (size_t)-n;
    }
}

void ares_decoder_add(ares_decoder *d, int32_t id, ares_str *out)
{
    const ares_tokenizer *t = d->tokenizer;
    if (id < 0 || id >= t->token_count || !t->tokens[id].text.data) return;
    if (d->skip_special_tokens && t->tokens[id].special) return;
    add_bytes(d, (const unsigned char *)t->tokens[id].bytes.data, t->tokens[id].bytes.len, out);
}

void decoder_finish(ares_decoder *d, ares_str *out)
{
    if (d->pending_len) ares_str_add(out, "\xef\xbf\xbd", 3);
    d->pending_len = 0;
}

int ares_tokenizer_decode(const ares_tokenizer *t, const int32_t *ids, int64_t n,
                          bool skip_special_tokens, ares_str *out)
{
    ares_decoder d;
    ares_decoder_init(&d, t, skip_special_tokens);
    for (int64_t i = 0; i < n; i++) ares_decoder_add(&d, ids[i], out);
    decoder_finish(&d, out);
    return ARES_OK;
}

/* ---- looking up */
static const token_info *info(const ares_tokenizer *t, int32_t id)
{
    static const token_info none;
    return id >= 0 && id < t->token_count ? &t->tokens[id] : &none;
}

ares_view ares_tokenizer_token_bytes(const ares_tokenizer *t, int32_t id)
{
    return info(t, id)->bytes;
}
bool ares_tokenizer_is_special(const ares_tokenizer *t, int32_t id)
{
    return info(t, id)->special;
}
int64_t ares_tokenizer_vocab_size(const ares_tokenizer *t)
{
    return t->token_count;
}
int32_t ares_tokenizer_role_id(const ares_tokenizer *t, ares_token_role role)
{
    return t->role_ids[role];
}
const ares_json *ares_tokenizer_config(const ares_tokenizer *t)
{
    return t->config;
}

ares_view ares_tokenizer_chat_template(const ares_tokenizer *t, const char *name)
{
    if (!name) name = "default";
    bool usual = strcmp(name, "default") == 0;
    if (usual && t->chat_template.data) return t->chat_template;
    const ares_json *json = ares_json_get(t->config, "chat_template");
    if (json && json->type == ARES_JSON_STRING && usual) return json->text;
    for (int64_t i = 0; json && json->type == ARES_JSON_ARRAY && i < json->count; i++) {
        const ares_json *entry_name = ares_json_get(&json->items[i], "name");
        const ares_json *text = ares_json_get(&json->items[i], "template");
        if (entry_name && text && entry_name->type == ARES_JSON_STRING &&
            text->type == ARES_JSON_STRING && ares_view_is(entry_name->text, name))
            return text->text;
    }
    return (ares_view){ NULL, 0 };
}

void ares_tokenizer_free(ares_tokenizer *t)
{
    if (!t) return;
    for (int i = 0; i < SCRATCH_KEPT; i++) text_scratch_free(atomic_load(&t->scratch[i]));
    for (int i = 0; i < t->step_count; i++) pattern_free(t->steps[i].pattern);
    bpe_free(t->model);
    added_set_free(t->raw_set);
    added_set_free(t->normalized_set);
    ares_map_free(t->vocab);
    ares_map_free(t->added);
    ares_map_free(t->words);
    ares_free(t->added_tokens);
    ares_free(t->tokens);
    ares_arena_fini(&t->arena);
    ares_free(t);
}
