/*
 * libFuzzer entry for the instruction checks. A line of digits (the check) and a line of JSON (its
 * kwargs; a default with every argument when the line is empty), then the text. Checks, besides
 * that nothing crashes: the same text gets the same verdict twice, a text that passes strictly
 * passes loosely, and the work stays within the limit for the text's length.
 */
#include <string.h>

#include "../../src/reward/ifeval/ifeval.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char all_kwargs[] =
    "{\"keywords\":[\"a\",\"the\"],\"forbidden_words\":[\"b\"],\"keyword\":\"a\",\"frequency\":2,"
    "\"relation\":\"at least\",\"letter\":\"e\",\"let_frequency\":1,\"let_relation\":\"less "
    "than\",\"language\":\"en\","
    "\"num_sentences\":2,\"num_paragraphs\":2,\"num_words\":3,\"nth_paragraph\":2,\"first_word\":"
    "\"a\",\"num_placeholders\":1,\"postscript_marker\":\"P.S.\",\"num_bullets\":1,\"num_"
    "highlights\":1,"
    "\"section_spliter\":\"S\",\"num_sections\":1,\"prompt_to_repeat\":\"a b "
    "\xc3\xa9\",\"end_phrase\":\"a\",\"capital_frequency\":1,\"capital_relation\":\"at "
    "least\",\"min_words\":1,\"max_words\":9,\"N\":2,"
    "\"percentage\":50,\"small_n\":1,\"reference_text\":\"abc\",\"options\":\"a/"
    "b\",\"word\":\"a\",\"sep\":\"-\",\"keyword1\":\"a\",\"keyword2\":\"b\",\"keyword3\":\"c\","
    "\"keyword4\":\"d\",\"keyword5\":\"e\","
    "\"n\":1,\"m\":2,\"n_start\":1,\"n_end\":3}";

static ares_view line(ares_view *rest)
{
    const char *end = rest->len ? memchr(rest->data, '\n', rest->len) : NULL;
    ares_view v = { rest->data, end ? (size_t)(end - rest->data) : rest->len };
    *rest = ifeval_from(*rest, v.len + (end != NULL));
    return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ares_view text = { (const char *)data, size }, number = line(&text), arguments = line(&text);
    ares_arena arena = { 0 }, scratch = { 0 };
    const ares_json *kwargs = NULL;
    int check = 0;
    ares_log_set(ARES_LOG_ERROR, 0);
    for (size_t i = 0; i < number.len && i < 4; i++)
        check = check * 10 + (unsigned char)number.data[i] % 10;
    ares_view id = ares_view_of(ifeval_check_id(check % ifeval_check_count()));
    if (!arguments.len) arguments = ares_view_of(all_kwargs);
    if (ares_json_parse(&arena, arguments, "kwargs", &kwargs) != ARES_OK) kwargs = NULL;

    ifeval_budget budget = { .steps = IFEVAL_STEPS };
    bool strict = ifeval_check(id, kwargs, text, &budget, &scratch);
    int64_t allowed = 64 + 8 * (int64_t)text.len + 128 * (int64_t)arguments.len +
                      (int64_t)arguments.len * (int64_t)text.len;
    ARES_ASSERT(IFEVAL_STEPS - budget.steps <= allowed || budget.exhausted);
    if (!budget.exhausted) {
        ifeval_budget again = { .steps = IFEVAL_STEPS }, loose = { .steps = IFEVAL_STEPS };
        ARES_ASSERT(ifeval_check(id, kwargs, text, &again, &scratch) == strict &&
                    again.steps == budget.steps);
        ARES_ASSERT(ifeval_check_loose(id, kwargs, text, &loose, &scratch) || !strict);
    }
    ifeval_is_json(text);
    ares_arena_fini(&scratch);
    ares_arena_fini(&arena);
    return 0;
}
