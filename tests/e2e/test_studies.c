/*
 * The studies of experiments/: the configuration of each variant of a sweep differs from all others
 * in something that changes the run. A stand-in for the program writes down the configuration of
 * each run, in a folder that looks like the repository. The tables of RESULTS.md follow from the
 * data that is kept (experiments/results.py).
 */
#include "e2e.h"

#include <stdio.h>

/* Options that say where a run is stored, what it writes and how fast it is. */
#define UNMOVING                                                                                \
    "project_name|experiment_name|run_dir|threads|logger|val_freq|val_before_train|val_"        \
    "generations_to_log|save_freq|save_limit|max_num_seqs|max_num_batched_tokens|cache_tokens|" \
    "max_token_len_per_device|enable_gradient_checkpointing"

static void make_tree(void)
{
    ares_str text = { 0 };
    CHECK_EQ(
        test_shell(
            NULL,
            "cd '%s' && mkdir -p resolved scripts models/tiny && ln -s '%s/experiments' . && "
            "printf '#!/bin/sh\\n' > scripts/fetch_smollm2.sh && chmod +x scripts/fetch_smollm2.sh",
            test_dir(), test_source(".")),
        0);
    ares_str_addf(&text,
                  "#!/bin/bash\n"
                  "program='%s'\n"
                  "[[ $* == *--print-config* || $* == *--check* ]] && exec $program \"$@\"\n"
                  "[[ $1 == --config ]] || exit 0 # compare, sft, init\n"
                  "for word; do [[ $word != trainer.run_dir=* ]] || dir=${word#*=}; done\n"
                  "$program \"$@\" --print-config | grep -vE '^ *(" UNMOVING
                  "):' > resolved/${dir//\\//_}\n",
                  test_program());
    e2e_write("stand_in", text.data);
    CHECK_EQ(test_shell(NULL, "chmod +x '%s'", test_file("stand_in")), 0);
    ares_str_fini(&text);
}

/* Checks the number of runs of a study, and that no two have the same configuration. */
static void check_study(const char *script, const char *words, int variants)
{
    ares_str out = { 0 };
    CHECK_EQ(test_shell(NULL, "rm -f '%s'/resolved/*", test_dir()), 0);
    int rc = test_shell(&out, "cd '%s' && ARES_TRAIN=./stand_in bash '%s' --seeds '1 2' %s 2>&1",
                        test_dir(), script, words);
    CHECK_MSG(rc == 0, "%s %s: exit code %d\n%s", script, words, rc, out.data);
    ares_str_clear(&out);
    CHECK_EQ(
        test_shell(&out, "cd '%s/resolved' && ls | wc -l && wc -l * | awk '$1 < 100'", test_dir()),
        0);
    CHECK_EQ(atoi(out.data), 2 * variants);
    CHECK_MSG(out.len < 5, "%s: not resolved: %s", script, out.data);
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "cd '%s/resolved' && md5sum * | sort | uniq -D -w 32", test_dir()),
             0);
    CHECK_MSG(out.len == 0, "%s %s: the same configuration:\n%s", script, words, out.data);
    ares_str_fini(&out);
}

static int variants_of(const char *script)
{
    ares_str out = { 0 };
    int n = 0;
    CHECK_EQ(
        test_shell(&out, "cd '%s' && ARES_TRAIN=./stand_in bash '%s' --check", test_dir(), script),
        0);
    char *end = strstr(out.data, " variants, no two the same"), *at = end; /* behind warnings */
    while (at && at > out.data && at[-1] != ':') at--;
    CHECK_MSG(at && sscanf(at, "%d variants", &n) == 1 && n > 1, "%s", out.data);
    ares_str_fini(&out);
    return n;
}

TEST_SLOW(no_two_variants_of_a_study_are_configured_the_same)
{
    ares_str scripts = { 0 };
    int n = 0;
    make_tree();
    CHECK_EQ(
        test_shell(&scripts, "cd '%s' && grep -l '^run_study ' experiments/*/*.sh", test_dir()), 0);
    for (char *script = strtok(scripts.data, "\n"); script; script = strtok(NULL, "\n"), n++) {
        int variants = variants_of(script);
        check_study(script, "", variants);
        check_study(script, "--tiny", variants);
        /* options given to every run must leave the variants different */
        check_study(script, "--tiny trainer.max_steps=8", variants);
    }
    CHECK(n >= 3);
    ares_str_fini(&scripts);
}

TEST(a_study_refuses_two_variants_that_are_configured_the_same)
{
    ares_str out = { 0 };
    make_tree();
    const char *study =
        e2e_write("study.sh", "source experiments/AEPO/study.sh\nread_words \"$@\"\n"
                              "variant whole\n"
                              "variant 'other window' worker.rollout.window_size=8\n"
                              "variant 'as it is' worker.rollout.window_size=4 trainer.val_freq=2 "
                              "trainer.experiment_name=other trainer.threads=1\n"
                              "run_study twice 'two of a kind'\n");
    CHECK_EQ(test_shell(&out, "cd '%s' && ARES_TRAIN=./stand_in bash '%s' --tiny 2>&1", test_dir(),
                        study),
             2);
    CHECK_CONTAINS(out.data, "'as it is' is configured as 'whole' is");
    /* refused before any run started */
    CHECK_EQ(test_shell(NULL, "test -z \"$(ls '%s/resolved')\"", test_dir()), 0);
    ares_str_fini(&out);
}

/* Runs the checks of a copy of the studies after a change by sed; says what they say. */
static void check_changed(const char *file, const char *change, const char *said)
{
    ares_str out = { 0 };
    REQUIRE(test_shell(&out,
                       "cd '%s' && rm -rf copy && mkdir copy && cd '%s' && cd experiments && "
                       "tar cf - results.py */tables.py */RESULTS.md */results/data.json | "
                       "tar xf - -C '%s/copy' && cd '%s/copy' && cp %s before && sed -i '%s' %s && "
                       "! cmp -s before %s",
                       test_dir(), test_source("."), test_dir(), test_dir(), file, change, file,
                       file) == 0);
    CHECK_EQ(test_shell(&out, "cd '%s/copy' && python3 results.py", test_dir()), 1);
    CHECK_MSG(strstr(out.data, said), "%s %s: %s", file, change, out.data);
    ares_str_fini(&out);
}

TEST_SLOW(what_a_study_reports_follows_from_the_data_that_it_keeps)
{
    if (test_shell(NULL, "python3 -c pass") != 0) SKIP("no python3 here");
    ares_str out = { 0 };
    int rc = test_shell(&out, "python3 '%s'", test_source("experiments/results.py"));
    CHECK_MSG(rc == 0, "%s", out.data);
    ares_str_fini(&out);
    /* the page of VAPOR, experiments/VAPOR/RESULTS.md */
    static const char page[] = "VAPOR/"
                               "RESULTS.md";
    check_changed(page, "/table: methods/,/^$/s/0\\.\\([1-8]\\)/0.9\\1/", "table 'methods' says");
    check_changed(page, "1s/$/ 9.999/", "9.999 is in no table");
    check_changed(page, "s/table: course/table: curse/", "'curse': no such");
    check_changed(page, "/table: course/d", "a table that no data stand for");
    check_changed("VAPOR/results/data.json", "s/\"last\": \\[2560, /\"last\": [2560, 9/",
                  "and the data give");
}
