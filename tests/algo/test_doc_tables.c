/* The tables of docs/algorithms.md. */
#include "ares/algo.h"
#include "test.h"

TEST(the_tables_of_algorithms_are_those_of_their_page)
{
    ares_str tables = { 0 }, page = { 0 };
    ares_algo_tables(&tables);
    REQUIRE_OK(ares_file_read(test_source("docs/algorithms.md"), &page));
    CHECK_CONTAINS(page.data, tables.data); /* paste the output of `ares-train --help-algorithms` */
    ares_str_fini(&tables);
    ares_str_fini(&page);
}
