#include "test.h"

#include "ares/core.h"

TEST(a_metrics_name_has_no_white_space)
{
    ares_metrics *m = ares_metrics_new();
    double value = 0;
    ares_metrics_set(m, "val/level=two digits\t/accuracy", 1);
    ares_metrics_add(m, "val/level=two digits\t/accuracy", 2);
    ares_metrics_set(m, "reward/a b", 3);
    CHECK_EQ(ares_metrics_count(m), 2);
    CHECK_STR(ares_metrics_name(m, 0), "val/level=two_digits_/accuracy");
    CHECK_STR(ares_metrics_name(m, 1), "reward/a_b");
    CHECK(ares_metrics_get(m, "val/level=two digits\t/accuracy", &value));
    CHECK_NEAR(value, 3, 0);
    CHECK(ares_metrics_get(m, "reward/a_b", &value));
    CHECK_NEAR(value, 3, 0);
    ares_metrics_free(m);
}
