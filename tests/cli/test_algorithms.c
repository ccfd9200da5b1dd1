/* docs/algorithms.md is what --help-algorithms prints, and every option it names exists. */
#include "test.h"

#include <stdio.h>

#include "../../src/algo/filter/filter.h"
#include "ares/algo_control.h"
#include "ares/train.h"

static void tables(ares_str *out)
{
    *out = (ares_str){ 0 };
    ares_algo_tables(out);
}

TEST(the_page_of_algorithms_is_what_the_program_prints)
{
    ares_str printed = { 0 }, page = { 0 };
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    CHECK_EQ(test_shell(&printed, "'%s' --help-algorithms", test_program()), 0);
    REQUIRE_OK(ares_file_read(test_source("docs/algorithms.md"), &page));
    CHECK_CONTAINS(printed.data, "`algorithm.adv_estimator=grpo`");
    /* docs/algorithms.md: paste the output of `ares-train --help-algorithms` */
    CHECK_CONTAINS(page.data, printed.data);
    ares_str_fini(&printed);
    ares_str_fini(&page);
}

/* Faults of a configuration with this override and nothing else. */
static int64_t faults(const char *override)
{
    ares_train_config *c = ares_calloc(1, sizeof *c);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, c);
    if (override) ares_config_override(cfg, override);
    ares_config_resolve(cfg);
    int64_t n = ares_config_fault_count(cfg);
    ares_config_free(cfg);
    ares_free(c);
    return n;
}

TEST(every_option_of_the_page_of_algorithms_exists)
{
    ares_str text;
    int seen = 0;
    int64_t without = faults(NULL);
    CHECK(faults("algorithm.adv_estimator=grop") > without);
    tables(&text);
    /* the last cell of each row */
    for (char *at = text.data, *end; (at = strstr(at, "| `")); at = end) {
        at += 3;
        end = strstr(at, "` |");
        if (!end) break;
        *end++ = 0;
        if (strchr(at, ' ') || !strchr(at, '=') || strchr(at, '|')) continue;
        CHECK_MSG(faults(at) == without, "%s: is refused", at);
        seen++;
    }
    CHECK_MSG(seen > 50, "%d options", seen);
    ares_str_fini(&text);
}

static void check_choices(const char *text, ares_option_table *table, const char *prefix,
                          const char *path)
{
    int n;
    const ares_option *options = table(&n);
    for (int i = 0; i < n; i++) {
        if (strcmp(options[i].path, path) != 0) continue;
        for (const char *c = options[i].constraint; c;
             c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL) {
            char word[96];
            size_t len = strcspn(c, "|=");
            if (len == 4 && strncmp(c, "none", 4) == 0) continue;
            snprintf(word, sizeof word, "`%s.%s=%.*s`", prefix, path, (int)len, c);
            CHECK_CONTAINS(text, word);
        }
        return;
    }
    CHECK_MSG(false, "%s: no such option", path);
}

TEST(the_page_of_algorithms_names_every_choice)
{
    ares_str text;
    tables(&text);
    check_choices(text.data, ares_loss_options, "worker.actor", "loss_avg_mode");
    check_choices(text.data, ares_loss_options, "worker.actor", "loss_norm");
    check_choices(text.data, ares_loss_options, "worker.actor", "rollout_is");
    check_choices(text.data, ares_loss_options, "worker.actor", "rollout_is_mode");
    CHECK(strstr(text.data, "| `` |") == NULL);
    ares_str_fini(&text);
}

static bool filter_wanted(const ares_filter *filter, const char *override)
{
    ares_filter_config f = { 0 };
    ares_config *cfg = ares_config_new();
    ares_config_add_options(cfg, "", ares_filter_options, &f);
    if (override) ares_config_override(cfg, override);
    ares_config_resolve(cfg);
    CHECK_EQ(ares_config_fault_count(cfg), 0);
    bool wanted = filter->wanted(&f);
    ares_config_free(cfg);
    return wanted;
}

TEST(what_switches_a_filter_on_does_so)
{
    int n;
    const ares_filter *const *list = ares_filter_list(&n);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(!filter_wanted(list[i], NULL), "%s: is wanted by the defaults", list[i]->name);
        CHECK_MSG(filter_wanted(list[i], list[i]->option), "%s: its option does not ask for it",
                  list[i]->name);
    }
}

static bool control_wanted(const ares_control *control, const char *override)
{
    ares_algorithm_config algorithm = { 0 };
    void *options = ares_calloc(1, control->options_size);
    ares_config *cfg = ares_config_new();
    ares_config_add_options(cfg, "algorithm", ares_algorithm_options, &algorithm);
    for (const ares_control_section *s = control->sections;
         s < control->sections + ARES_CONTROL_SECTIONS && s->options; s++)
        ares_config_add_options(cfg, s->section, s->options, (char *)options + s->offset);
    if (override) ares_config_override(cfg, override);
    ares_config_resolve(cfg);
    CHECK_EQ(ares_config_fault_count(cfg), 0);
    bool wanted = control->wanted(options, &(ares_control_env){ .algorithm = &algorithm });
    ares_config_free(cfg);
    ares_free(options);
    return wanted;
}

TEST(what_switches_a_control_on_does_so)
{
    int n;
    const ares_control *const *list = ares_control_list(&n);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(!control_wanted(list[i], NULL), "%s: is wanted by the defaults", list[i]->name);
        CHECK_MSG(control_wanted(list[i], list[i]->option), "%s: its option does not ask for it",
                  list[i]->name);
    }
}
