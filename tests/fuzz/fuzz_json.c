/*
 * libFuzzer entry for the JSON reader and writer. Checks, besides that nothing crashes: a document
 * that was read, written and read again is written as the same text.
 */
#include "ares/core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ares_arena arena = { 0 };
    ares_str once = { 0 }, twice = { 0 };
    const ares_json *value;
    if (ares_json_parse(&arena, (ares_view){ (const char *)data, size }, "fuzz", &value) ==
        ARES_OK) {
        ares_json_write(&once, value);
        ARES_ASSERT(ares_json_parse(&arena, ares_str_view(&once), "again", &value) == ARES_OK);
        ares_json_write(&twice, value);
        ARES_ASSERT(ares_view_eq(ares_str_view(&once), ares_str_view(&twice)));
    } else {
        ARES_ASSERT(value == NULL && ares_error_message()[0]);
    }
    ares_str_fini(&once);
    ares_str_fini(&twice);
    ares_arena_fini(&arena);
    return 0;
}
