/*
 * libFuzzer entry for tokenizer.json. A file that loads must also encode a text with a bit of
 * everything, and the text after the first NUL of the input; offsets must be in range, and decoding
 * token by token must give the same as decoding at once.
 */
#include <string.h>

#include "../../src/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const ares_tokenizer *t, ares_view text)
{
    ares_ids ids = { .want_offsets = true }, plain = { 0 };
    ares_str whole = { 0 }, pieces = { 0 };
    ares_decoder d;
    if (ares_tokenizer_encode(t, text, true, &ids) != ARES_OK) return;
    ARES_ASSERT(ares_tokenizer_encode(t, text, true, &plain) == ARES_OK && plain.n == ids.n);
    ARES_ASSERT(ids.n == 0 || memcmp(plain.ids, ids.ids, (size_t)ids.n * sizeof(int32_t)) == 0);
    ares_decoder_init(&d, t, false);
    for (int64_t i = 0; i < ids.n; i++) {
        ARES_ASSERT(ids.offsets[i][0] >= 0 && ids.offsets[i][1] <= (int64_t)text.len);
        ARES_ASSERT(ids.ids[i] >= 0 && ids.ids[i] < ares_tokenizer_vocab_size(t));
        ares_decoder_add(&d, ids.ids[i], &pieces);
    }
    ares_decoder_finish(&d, &pieces);
    ARES_ASSERT(ares_tokenizer_decode(t, ids.ids, ids.n, false, &whole) == ARES_OK);
    ARES_ASSERT(ares_view_eq(ares_str_view(&whole), ares_str_view(&pieces)));
    /* what a text gets that goes on after others */
    size_t half = text.len / 2;
    ares_ids_clear(&plain);
    if (ares_tokenizer_encode(t, (ares_view){ text.data, half }, false, &plain) == ARES_OK &&
        ares_tokenizer_encode_rest(t, (ares_view){ text.data + half, text.len - half }, &plain) ==
            ARES_OK)
        for (int64_t i = 0; i < plain.n; i++)
            ARES_ASSERT(plain.ids[i] >= 0 && plain.ids[i] < ares_tokenizer_vocab_size(t));
    ares_ids_fini(&ids);
    ares_ids_fini(&plain);
    ares_str_fini(&whole);
    ares_str_fini(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    ares_view json = { (const char *)data, nul ? (size_t)(nul - data) : size }, rest = { NULL, 0 };
    ares_tokenizer *t;
    if (nul) rest = (ares_view){ (const char *)nul + 1, size - json.len - 1 };
    ares_log_set(ARES_LOG_ERROR, 0);
    if (tokenizer_parse("fuzz", json, &t) != ARES_OK) {
        ARES_ASSERT(!t && ares_error_message()[0]);
        return 0;
    }
    round_trip(t, ARES_VIEW("ab abab  12 e\xcc\x81\xcc\x96 \xea\xb0\x80\xe1\x86\xa8 a b\n\xff<a> "
                            "it's \xf0\x9f\x98\x80 "));
    if (rest.len) round_trip(t, rest);
    ares_tokenizer_free(t);
    return 0;
}
