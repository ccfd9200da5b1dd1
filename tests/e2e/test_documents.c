/*
 * The documents are right: configs/base.yaml lists every option, and the commands in README.md run.
 */
#include "e2e.h"

#include <stdio.h>

TEST(base_yaml_is_what_help_config_prints)
{
    CHECK_EQ(test_shell(NULL, "'%s' --help-config | cmp - '%s'", test_program(),
                        test_source("configs/base.yaml")),
             0);
}

TEST(base_yaml_is_a_valid_configuration_but_for_what_is_required)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "--config configs/base.yaml --check worker.actor.model.model_path=x "
                               "data.train_files=x worker.rollout.n=2"),
             0);
    CHECK_CONTAINS(out.data, "good");
    ares_str_fini(&out);
}

TEST(the_examples_configurations_are_valid)
{
    static const char *const words[] = {
        "--config examples/quickstart/config.yaml",
        "--config examples/dapo/config.yaml",
        "--config experiments/DAPO/config.yaml",
        "--config experiments/DAPO/config.yaml --config experiments/DAPO/tiny.yaml",
        "--config experiments/VAPOR/config.yaml",
        "--config examples/tiny/rl.yaml",
        "--config examples/agent/config.yaml",
        "sft --config examples/sft/config.yaml",
        "sft --config examples/sft/config.yaml --config examples/tiny/sft.yaml",
        "--config examples/quickstart/config.yaml --config examples/reward_command/config.yaml"
    };
    for (int i = 0; i < ARES_COUNT(words); i++) {
        ares_str out = { 0 };
        int rc = e2e_program(&out, "%s --check", words[i]);
        CHECK_MSG(rc == 0, "%s: %s", words[i], out.data);
        ares_str_fini(&out);
    }
}

/* A preset passes --check only on a machine where it can run. */
TEST(the_published_run_says_what_it_needs_and_is_refused_where_that_is_not)
{
    ares_str out = { 0 };
    int rc = e2e_program(&out, "--check --config experiments/AEPO/qwen2_5_7b.yaml");
    CHECK_CONTAINS(out.data, "a process holds at least 19.0 GB");
    if (!ares_file_exists("/dev/nvidiactl")) {
        CHECK_EQ(rc, 2);
        CHECK_CONTAINS(out.data, "no CUDA device on this machine");
    }
    ares_str_clear(&out);
    /* it can be printed on any machine */
    CHECK_EQ(e2e_program(&out, "--print-config --config experiments/AEPO/qwen2_5_7b.yaml"), 0);
    CHECK_EQ(e2e_program(&out, "--print-config --config experiments/DAPO/qwen2_5_7b.yaml"), 0);
    ares_str_clear(&out);
    CHECK(e2e_program(&out, "--check --config experiments/DAPO/qwen2_5_7b.yaml") != 0 ||
          ares_file_exists("/dev/nvidiactl"));
    CHECK_CONTAINS(out.data, "a process holds at least 57.1 GB");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "head -n 3 '%s'", test_source("experiments/AEPO/config.yaml")), 0);
    CHECK_CONTAINS(out.data, "recipe for SmolLM2");
    CHECK_CONTAINS(out.data, "qwen2_5_7b.yaml");
    ares_str_fini(&out);
}

/*
 * The shell blocks of README.md, in order, in a folder that looks like the repository.
 * build/ares-train there is the real program with a model of 40,000 parameters, for one step of two
 * prompts. CI runs the two scripts that take minutes; here they only have to know their options.
 */
TEST_SLOW(the_commands_of_the_readme_run)
{
    ares_str readme = { 0 }, script = { 0 }, out = { 0 };
    REQUIRE_OK(ares_file_read(test_source("README.md"), &readme));
    ares_str_addf(
        &script,
        "set -eu\ncd '%s'\nmkdir build scripts models runs\nln -s '%s/examples' '%s/configs' .\nln "
        "-s '%s' models/SmolLM2-135M-Instruct\n"
        "cat > build/ares-train <<'WRAPPER'\n#!/bin/sh\nsteps=trainer.max_steps=1\n"
        "case \"$*\" in *max_steps=*) steps=trainer.max_steps=2 ;; esac\ncase \"$*\" in\n"
        "*--check*|*--help*|play*) ;;\n*guess.yaml*) set -- \"$@\" trainer.max_steps=1 ;;\n"
        "*sft*--config*) set -- \"$@\" worker.actor.model.model_path=models/SmolLM2-135M-Instruct "
        "trainer.max_steps=1 sft.batch_size=2 'data.val_files=[]' trainer.val_freq=-1 ;;\n"
        "*--config*) set -- \"$@\" worker.actor.model.model_path=models/SmolLM2-135M-Instruct "
        "$steps data.rollout_batch_size=2 worker.actor.global_batch_size=2"
        " worker.rollout.n=2 data.max_prompt_length=200 data.max_response_length=4 ;;\nesac\nexec "
        "'%s' \"$@\"\nWRAPPER\nchmod +x build/ares-train\n",
        test_dir(), test_source("."), test_source("."), e2e_model(), test_program());
    ares_str_addf(&script,
                  "for s in quickstart test; do printf '#!/bin/sh\\nexec \"%s/scripts/%%s.sh\" "
                  "\"$@\" --help\\n' $s > scripts/$s.sh; chmod +x scripts/$s.sh; done\n",
                  test_source("."));
    ares_str_add_z(&script, "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                            "OMPI_MCA_rmaps_base_oversubscribe=1\nset -x\n");
    int blocks = 0;
    for (const char *at = readme.data; (at = strstr(at, "\n```sh\n")); blocks++) {
        const char *begin = at + 7, *end = strstr(begin, "\n```");
        if (!CHECK(end != NULL)) break;
        ares_str_add(&script, begin, (size_t)(end - begin) + 1);
        at = end;
    }
    CHECK(blocks >= 5);
    const char *path = e2e_write("readme.sh", script.data);
    int rc = test_shell(&out, "sh '%s'", path);
    CHECK_MSG(rc == 0, "exit code %d\n%s", rc, out.len > 900 ? out.data + out.len - 900 : out.data);
    ares_str_fini(&readme);
    ares_str_fini(&script);
    ares_str_fini(&out);
}
