/*
 * libFuzzer entry for templates: any text may be a template, over a context with every kind of
 * value. Checks, besides that nothing crashes or hangs: a failure has a message and does not change
 * the output; rendering twice gives the same text, which is UTF-8.
 */
#include <string.h>
#include <time.h>

#include "../../src/text/jinja/jinja.h"
#include "ares/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\" "
    "\\u00e9\\u65e5 \\n\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
    "\"arguments\":{\"a\":[1,2.5,true,null]}}}]}],"
    "\"tools\":[{\"name\":\"t\"}],\"x\":5,\"f\":2.5,\"s\":\"Hello "
    "World\",\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":\"x\"},\"t\":true,\"n\":null,"
    "\"big\":123456789012345678901234567890,\"add_generation_prompt\":true}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ares_arena arena = { 0 };
    const ares_json *context;
    ARES_ASSERT(ares_json_parse(&arena, ARES_VIEW(context_text), "context", &context) == ARES_OK);
    ares_template_limits limits = { .steps = 100000,
                                    .memory_bytes = (size_t)16 << 20,
                                    .output_bytes = (size_t)1 << 20 };
    struct tm now = { .tm_year = 124, .tm_mday = 1 };
    ares_template *t;
    ares_str once = { 0 }, twice = { 0 };
    ares_text_spans spans = { 0 };
    template_dialect dialect = size && data[0] == '\t' ? TEMPLATE_PLAIN : TEMPLATE_CHAT;
    int rc = template_parse("fuzz", (ares_view){ (const char *)data, size }, dialect, &t);
    if (rc == ARES_OK) {
        rc = ares_template_render(t, context, &now, &limits, &once, NULL);
        if (rc == ARES_OK) {
            int again = ares_template_render(t, context, &now, &limits, &twice, &spans);
            ARES_ASSERT(again == ARES_OK || again == ARES_EUNSUPPORTED);
            if (again == ARES_OK)
                ARES_ASSERT(ares_view_eq(ares_str_view(&once), ares_str_view(&twice)));
            for (int64_t i = 0; i < spans.n; i++)
                ARES_ASSERT(spans.items[i].byte_start <= spans.items[i].byte_end &&
                            spans.items[i].byte_end <= (int64_t)once.len);
            ares_template *text;
            ARES_ASSERT(template_parse("text", ares_str_view(&once), dialect, &text) == ARES_OK ||
                        !strstr(ares_error_message(), "not UTF-8"));
            ares_template_free(text);
        } else {
            ARES_ASSERT(once.len == 0);
        }
        ares_template_free(t);
    }
    ARES_ASSERT(rc == ARES_OK || ares_error_message()[0]);
    ares_str_fini(&once);
    ares_str_fini(&twice);
    ares_text_spans_fini(&spans);
    ares_arena_fini(&arena);
    return 0;
}
