/*
 * tests/gpu/run.sh and benchmarks/gpu/run.sh as they go on: small programs stand where those of a
 * build would, so that what a script does with a result is seen without a card.
 */
#include <stdlib.h>

#include "ares/core.h"
#include "test.h"

/* A build folder with tests that pass, and one, `fails`, that does while a file says so. */
static void make_build(void)
{
    CHECK_EQ(
        test_shell(
            NULL,
            "cd '%s' && mkdir -p build && : >build/lib_emulated.so && for p in kernels algo; do "
            "cat >build/test_$p <<'END'\n"
            "#!/bin/sh\n"
            "case \"$*\" in\n"
            "*--list*) printf 'card_first [gpu]\\npasses [gpu]\\nfails_bf16 [gpu]\\n' ;;\n"
            "*fails*) echo \"FAIL $*\"; ! [ -e \"$(dirname \"$0\")/broken\" ] ;;\n"
            "*) echo \"ran $*\" ;;\n"
            "esac\n"
            "END\n"
            "done; chmod +x build/test_*; touch build/broken",
            test_file(".")),
        0);
}

static int script(ares_str *out, const char *words)
{
    ares_str_clear(out);
    return test_shell(out,
                      "cd '%s' && ARES_CUDA_LIB='%s/build/lib_emulated.so' BUILT=1 "
                      "ARES_GPU_OUT='%s/out' tests/gpu/run.sh --build '%s/build' %s 2>&1",
                      test_source("."), test_file("."), test_file("."), test_file("."), words);
}

TEST(parts_of_a_cards_tests_go_on_where_they_stopped)
{
    ares_str out = { 0 };
    make_build();
    CHECK_EQ(script(&out, "--jobs 2 own"), 1);
    CHECK_CONTAINS(out.data, "test_kernels.fails_bf16.own");
    CHECK_CONTAINS(out.data, "FAIL (exit 1)");
    CHECK_CONTAINS(out.data, "FAIL --label gpu fails_bf16"); /* what its log says */
    CHECK_CONTAINS(out.data, "gpu: 2 steps passed, 1 failed");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && grep -q 'ran --label gpu passes' "
                        "out/test_kernels.passes.own.log",
                        test_file(".")),
             0);
    /* what was ok is not done again, what failed is */
    CHECK_EQ(test_shell(NULL, "rm '%s/build/broken'", test_file(".")), 0);
    CHECK_EQ(script(&out, "own"), 0);
    CHECK_CONTAINS(out.data, "test_kernels.passes.own: ok before");
    CHECK(!strstr(out.data, "fails_bf16.own: ok before"));
    CHECK_CONTAINS(out.data, "gpu: 3 steps passed, 0 failed");
    /* results that lie elsewhere are found by ARES_GPU_BEFORE */
    CHECK_EQ(test_shell(NULL, "cd '%s' && mv out before && rm -r build/gpu", test_file(".")), 0);
    setenv("ARES_GPU_BEFORE", test_file("before"), 1);
    CHECK_EQ(script(&out, "own"), 0);
    CHECK_CONTAINS(out.data, "test_kernels.fails_bf16.own: ok before");
    unsetenv("ARES_GPU_BEFORE");
    CHECK_EQ(test_shell(NULL, "cd '%s' && rm -r out build/gpu", test_file(".")), 0);
    CHECK_EQ(script(&out, "own"), 0);
    CHECK(!strstr(out.data, "ok before"));
    /* another library: all of them again */
    CHECK_EQ(test_shell(NULL, "echo new >'%s/build/lib_emulated.so'", test_file(".")), 0);
    CHECK_EQ(script(&out, "own"), 0);
    CHECK(!strstr(out.data, "ok before"));
    ares_str_fini(&out);
}

TEST(a_part_that_does_not_exist_is_told_with_the_choices)
{
    ares_str out = { 0 };
    make_build();
    CHECK_EQ(script(&out, "onw"), 2);
    CHECK_STR(out.data,
              "run.sh: 'onw': no such part (parts: build own aten rooms runs nccl sanitize; "
              "options: --build DIR, --jobs N)\n");
    CHECK_EQ(script(&out, "--jobs 0 own"), 2);
    CHECK_CONTAINS(out.data, "--jobs '0'");
    CHECK_EQ(script(&out, "own --build"), 2);
    CHECK_CONTAINS(out.data, "--build: takes a value");
    CHECK_EQ(test_shell(NULL, "[ -e '%s/out' ]", test_file(".")), 1); /* and nothing was done */
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "cd '%s' && benchmarks/gpu/run.sh cards 2>&1", test_source(".")), 2);
    CHECK_CONTAINS(out.data, "'cards': no such part (parts: card decode update grpo");
    ares_str_fini(&out);
}

/* cuBLAS's kernels are not ours to check, and neither libtorch is loaded nor memory misused. */
TEST(sanitizers_come_last_and_watch_our_own_kernels)
{
    ares_str out = { 0 };
    make_build();
    setenv("DRY", "1", 1);
    CHECK_EQ(script(&out, "rooms sanitize"), 0);
    CHECK_EQ(script(&out, ""), 0);
    unsetenv("DRY");
    const char *first = strstr(out.data, "memcheck.kernels.passes");
    if (CHECK_MSG(first, "%s", out.data)) {
        CHECK(!strstr(first, "nccl."));
        CHECK(!strstr(first, "card_first"));
        CHECK_CONTAINS(first, "--kernel-name-exclude regex=cublas");
        CHECK_CONTAINS(first, "synccheck.algo.fails_bf16");
    }
    CHECK_EQ(test_shell(NULL, "[ -e '%s/out' ]", test_file(".")), 1);
    ares_str_fini(&out);
}
