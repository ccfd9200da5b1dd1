/* What the texts of data files take of memory in the plan. */
#include "plan/plan.h"
#include "test.h"

/* Bytes of the texts of train and val files, either of which may be NULL. */
static double texts(const char *train, const char *val)
{
    const char *files[] = { train, val };
    ares_train_config c = { 0 };
    c.data.train_files = (ares_texts){ &files[0], train != NULL };
    c.data.val_files = (ares_texts){ &files[1], val != NULL };
    return plan_texts(&c);
}

TEST(texts_are_those_of_training_and_validation)
{
    const char *few = test_file("few.jsonl"), *many = test_file("many.jsonl");
    static const char row[] = "{\"prompt\": \"1 + 1 = ?\", \"answer\": \"2\"}\n";
    ares_str text = { 0 };
    for (int i = 0; i < 10; i++) ares_str_add_z(&text, row);
    CHECK_OK(ares_file_write(few, text.data, text.len));
    for (int i = 0; i < 20; i++) ares_str_add_z(&text, row);
    CHECK_OK(ares_file_write(many, text.data, text.len));
    double one = texts(few, NULL), three = texts(many, NULL);
    CHECK(one > 10 * sizeof row);
    CHECK_NEAR(three, 3 * one, 1e-9 * three);
    CHECK_NEAR(texts(NULL, many), three, 0);
    CHECK_NEAR(texts(few, many), one + three, 1e-9 * three);
    CHECK_NEAR(texts(many, few), one + three, 1e-9 * three);
    ares_str_fini(&text);
}
