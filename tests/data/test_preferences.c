/* Rows of preferences that hold their prompt in their answers, as TRL writes them. */
#include "../../src/data/internal.h"
#include "ares/data.h"
#include "test.h"

#include <stdio.h>

TEST(a_row_of_preferences_without_a_prompt_has_what_stands_before_its_answers)
{
#define USER "{\"role\":\"user\",\"content\":\"q\"}"
#define SYSTEM "{\"role\":\"system\",\"content\":\"s\"}"
#define GOOD "{\"role\":\"assistant\",\"content\":\"good\"}"
#define BAD "{\"role\":\"assistant\",\"content\":\"bad\"}"
    static const struct {
        const char *row, *prompt; /* NULL: the row is refused, for it has none */
    } cases[] = {
        { "{\"chosen\":[" USER "," GOOD "],\"rejected\":[" USER "," BAD "]}", "[" USER "]" },
        { "{\"chosen\":[" SYSTEM "," USER "," GOOD "],\"rejected\":[" SYSTEM "," USER "," BAD "]}",
          "[" SYSTEM "," USER "]" },
        /* a prompt of its own stays, a null one too */
        { "{\"p\":\"own\",\"chosen\":[" USER "," GOOD "],\"rejected\":[" USER "," BAD "]}",
          "\"own\"" },
        { "{\"p\":null,\"chosen\":[" USER "," GOOD "],\"rejected\":[" USER "," BAD "]}", NULL },
        /* and nothing is made of half a pair, of texts, or of answers alone */
        { "{\"chosen\":[" USER "," GOOD "]}", NULL },
        { "{\"rejected\":[" USER "," BAD "]}", NULL },
        { "{\"chosen\":\"good\",\"rejected\":[" USER "," BAD "]}", NULL },
        { "{\"chosen\":[" USER "," GOOD "],\"rejected\":\"bad\"}", NULL },
        { "{\"chosen\":[" GOOD "],\"rejected\":[" USER "," BAD "]}", NULL },
        { "{\"chosen\":[" USER "," GOOD "],\"rejected\":[" BAD "]}", NULL },
    };
    static const ares_data_config cfg = { .prompt_key = "p", .answer_key = "a" };
    const char *path = test_file("rows.jsonl");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_dataset *d = NULL;
        ares_str text = { 0 };
        CHECK_OK(ares_file_write(path, cases[i].row, strlen(cases[i].row)));
        int rc = dataset_load(&(ares_texts){ &path, 1 }, &cfg, false, &d);
        if (!cases[i].prompt) CHECK_MSG(rc == ARES_EFORMAT, "%s is read", cases[i].row);
        else if (CHECK_OK(rc)) {
            const ares_json *row = ares_dataset_row(d, 0)->json;
            ares_json_write(&text, ares_json_get(row, "p"));
            CHECK_STR(text.data, cases[i].prompt);
            CHECK_EQ(ares_json_get(row, "chosen")->count, i == 1 ? 3 : 2); /* as it was */
        }
        ares_dataset_free(d);
        ares_str_fini(&text);
    }
    /* where the keys of rows are not checked, none is made */
    ares_dataset *d = NULL;
    CHECK_OK(ares_file_write(path, cases[0].row, strlen(cases[0].row)));
    REQUIRE_OK(dataset_load(&(ares_texts){ &path, 1 }, NULL, false, &d));
    CHECK(!ares_json_get(ares_dataset_row(d, 0)->json, "p"));
    ares_dataset_free(d);
}
