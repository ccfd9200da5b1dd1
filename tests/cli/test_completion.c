/*
 * ares-train completion: what the scripts offer, asked of bash's function and of fish, and typed
 * into each shell behind a terminal.
 */
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static bool has(const char *shell)
{
    return ares_file_exists(test_program()) &&
           test_shell(NULL, "command -v %s >/dev/null", shell) == 0;
}

/* The script of a shell, in a file. */
static const char *script(const char *shell)
{
    const char *path = test_file(shell);
    CHECK_EQ(test_shell(NULL, "'%s' completion %s > '%s'", test_program(), shell, path), 0);
    return path;
}

TEST(each_script_is_one_that_its_shell_reads)
{
    static const char *const shells[] = { "bash", "zsh", "fish" };
    for (int i = 0; i < ARES_COUNT(shells); i++) {
        if (!has(shells[i])) SKIP("a shell, or ares-train, is not here");
        CHECK_EQ(test_shell(NULL, "%s -n '%s'", shells[i], script(shells[i])), 0);
    }
}

/* What bash's function offers for words, of which the last is being typed. */
static void offered(ares_str *out, const char *words)
{
    ares_str_clear(out);
    CHECK_EQ(test_shell(out,
                        "cd '%s' && bash --norc -c 'source ./bash; COMP_WORDS=(ares-train %s); "
                        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ares_train; echo "
                        "\"${COMPREPLY[*]}\"'",
                        test_dir(), words),
             0);
}

TEST(bash_is_offered_what_the_tables_say)
{
    static const struct {
        const char *words, *offered;
    } cases[] = {
        { "pl", "plan play\n" },
        { "completion \"\"", "bash zsh fish\n" },
        /* keys, section by section; readline has cut the words at = */
        { "train worker.ro", "worker.rollout.\n" },
        { "worker.rollout.n", "worker.rollout.n=\n" },
        { "train --worker.rollout.n", "--worker.rollout.n=\n" },
        { "traine", "trainer.\n" },
        { "train sf", "\n" },
        { "sft sf", "sft.\n" },
        { "worker.actor.model.enable_gradient_checkpointing = \"\"", "true false\n" },
        { "worker.actor.model.enable_gradient_checkpointing =", "true false\n" },
        { "plan worker.actor.optim.strategy = adamw_", "adamw_bf16\n" },
        { "plan worker.actor.optim.strategy=adamw_", "worker.actor.optim.strategy=adamw_bf16\n" },
        { "--worker.actor.optim.strategy = adamw_", "adamw_bf16\n" },
        { "train worker.ref.fsdp.torch_dtype = \"\"", "fp32 bf16 null\n" },
        { "train trainer.max_steps = \"\"", "\n" },
        /* options of a verb, and their values */
        { "init --ar", "--arch\n" },
        { "init --arch qwen2_", "qwen2_vl qwen2_5_vl\n" },
        { "init --arch = ll", "llama\n" },
        { "init --layers \"\"", "\n" },
        { "grade --verifier math_v", "math_verify\n" },
        { "train --check worker.ro", "worker.rollout.\n" },
        { "--vers", "--version\n" },
        { "tokenize --model mod", "models\n" },
        { "train --config \"my f\"", "my file.yaml\n" },
        { "train data.train_files = my", "my file.yaml\n" },
        { "compare mod", "models\n" },
        { "tokenize mod", "\n" }, /* takes no word */
        { "no_such_verb worker.ro", "worker.rollout.\n" },
    };
    if (!has("bash")) SKIP("no bash, or ares-train is not built");
    ares_str out = { 0 };
    script("bash");
    CHECK_OK(ares_file_write(test_file("my file.yaml"), "", 0));
    CHECK_OK(ares_dir_make(test_file("models")));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        offered(&out, cases[i].words);
        CHECK_MSG(out.data && strcmp(out.data, cases[i].offered) == 0, "%s: %s, not %s",
                  cases[i].words, out.data, cases[i].offered);
    }
    ares_str_fini(&out);
}

/* Every verb that --help names, and every option of each, with the script's own table. */
TEST(bash_is_offered_every_verb_and_every_option)
{
    if (!has("bash")) SKIP("no bash, or ares-train is not built");
    ares_str help = { 0 }, out = { 0 }, options = { 0 };
    int verbs = 0, n = 0;
    script("bash");
    CHECK_EQ(test_shell(&help, "'%s' --help", test_program()), 0);
    for (char *line = strtok(help.data, "\n"); line; line = strtok(NULL, "\n")) {
        char verb[32], words[64];
        /* "  train       reinforcement ..", not the example below the list */
        if (strncmp(line, "  ", 2) != 0 || sscanf(line, "  %31[a-z-] %63s", verb, words) != 2 ||
            strcmp(verb, "ares-train") == 0)
            continue;
        verbs++;
        snprintf(words, sizeof words, "%s --", verb);
        offered(&out, words);
        ares_str_clear(&options);
        CHECK_EQ(test_shell(&options,
                            "'%s' %s --help | sed -nE 's/^  (--[a-z-]+).*/\\1/p' | tr '\\n' ' '",
                            test_program(), verb),
                 0);
        for (char *rest = options.data, *at; (at = strtok_r(rest, " ", &rest));) {
            ares_str whole = { 0 };
            ares_str_addf(&whole, "%s ", at);
            CHECK_MSG(strstr(out.data, whole.data), "%s is not offered for %s", at, verb);
            ares_str_fini(&whole);
            n++;
        }
    }
    CHECK(verbs >= 18 && n >= 100);
    ares_str_fini(&help);
    ares_str_fini(&out);
    ares_str_fini(&options);
}

TEST(every_key_of_the_configuration_is_offered)
{
    if (!has("bash")) SKIP("no bash, or ares-train is not built");
    ares_str out = { 0 }, keys = { 0 };
    /* a key of base.yaml has a value beside it; its sections stand above it, indented */
    CHECK_EQ(test_shell(&keys,
                        "awk '/^ *[a-z_0-9]+:/ { n = match($0, /[^ ]/) - 1; k = $1; sub(/:.*/, "
                        "\"\", k); at[n / 2] = k; if ($0 ~ /: ./) { p = at[0]; for (i = 1; i <= n "
                        "/ 2; i++) p = p \".\" at[i]; print p } }' '%s'",
                        test_source("configs/base.yaml")),
             0);
    int n = 0;
    CHECK_EQ(test_shell(&out,
                        "bash --norc -c 'source \"%s\"; _ares_train_keys train; echo \" ${keys[*]} "
                        "\"'",
                        script("bash")),
             0);
    for (char *key = strtok(keys.data, "\n"); key; key = strtok(NULL, "\n"), n++) {
        char word[160];
        snprintf(word, sizeof word, " %s ", key);
        CHECK_MSG(strstr(out.data, word), "%s", key);
    }
    CHECK(n > 300);
    ares_str_fini(&out);
    ares_str_fini(&keys);
}

TEST(fish_is_offered_the_same)
{
    static const struct {
        const char *line, *offered;
    } cases[] = {
        { "pl", "plan play" },
        { "completion z", "zsh" },
        { "train worker.ro", "worker.rollout." },
        { "worker.rollout.n", "worker.rollout.n=" },
        { "train --worker.rollout.n", "--worker.rollout.n=" },
        { "sft sf", "sft." },
        { "plan worker.actor.optim.strategy=adamw_", "worker.actor.optim.strategy=adamw_bf16" },
        { "init --arch qwen2_", "qwen2_vl qwen2_5_vl" },
        { "init --ar", "--arch" },
        { "train trainer.max_steps=", "" },
        { "train --config my", "my.yaml" },
        { "train data.train_files=my", "data.train_files=my.yaml" },
        { "tokenize my", "" },
    };
    if (!has("fish")) SKIP("no fish, or ares-train is not built");
    ares_str out = { 0 }, command = { 0 };
    const char *path = script("fish");
    CHECK_OK(ares_file_write(test_file("my.yaml"), "", 0));
    ares_str_addf(&command, "cd '%s' && HOME=. fish --no-config -c 'source %s;", test_dir(), path);
    for (int i = 0; i < ARES_COUNT(cases); i++)
        ares_str_addf(&command,
                      " echo (complete -C \"ares-train %s\" | string replace -r \\t.\\* \"\");",
                      cases[i].line);
    CHECK_EQ(test_shell(&out, "%s' 2>&1", command.data), 0);
    char *at = out.data;
    for (int i = 0; i < ARES_COUNT(cases) && at; i++) {
        char *end = strchr(at, '\n');
        if (!CHECK(end)) break;
        *end = 0;
        CHECK_MSG(strcmp(at, cases[i].offered) == 0, "%s: %s, not %s", cases[i].line, at,
                  cases[i].offered);
        at = end + 1;
    }
    ares_str_fini(&out);
    ares_str_fini(&command);
}

/* Reads what the terminal shows until the text is in it, at most 20 s. */
static bool shows(int terminal, ares_str *seen, const char *text)
{
    char part[4096];
    for (double end = ares_now_s() + 20; ares_now_s() < end;) {
        if (ares_view_find(ares_str_view(seen), ares_view_of(text), 0) >= 0) return true;
        struct pollfd p = { .fd = terminal, .events = POLLIN };
        if (poll(&p, 1, 100) <= 0) continue;
        ssize_t n = read(terminal, part, sizeof part);
        if (n <= 0 && errno != EINTR) break;
        if (n > 0) ares_str_add(seen, part, (size_t)n);
    }
    return false;
}

/*
 * Types lines into a shell whose ares-train prints what it was called with, and looks for that.
 * The commands of `setup` say "ready" at their end.
 */
static void type(const char *const *argv, const char *setup)
{
    static const struct {
        const char *keys, *got;
    } cases[] = {
        { "ares-train compl\tzs\t\n", "got:completion zsh:" },
        { "ares-train init --ar\tlla\t\n", "got:init --arch llama:" },
        { "ares-train worker.ro\tn\t4\n", "got:worker.rollout.n=4:" },
        { "ares-train plan worker.actor.optim.st\tadamw_\t\n",
          "got:plan worker.actor.optim.strategy=adamw_bf16:" },
        { "ares-train --config on\t\n", "got:--config one file.yaml:" },
        { "ares-train data.train_files=on\t\n", "got:data.train_files=one file.yaml:" },
    };
    const struct winsize size = { .ws_row = 24, .ws_col = 200 };
    ares_str seen = { 0 };
    int terminal;
    CHECK_OK(ares_file_write(test_file("one file.yaml"), "", 0));
    fflush(NULL);
    pid_t pid = forkpty(&terminal, NULL, NULL, &size);
    if (pid == 0) {
        setenv("HOME", test_dir(), 1);
        setenv("TERM", "xterm", 1);
        if (chdir(test_dir()) == 0) execvp(argv[0], (char *const *)argv);
        _exit(9);
    }
    if (!CHECK(pid > 0)) return;
    CHECK(write(terminal, setup, strlen(setup)) > 0);
    if (CHECK_MSG(shows(terminal, &seen, "rea-dy"), "%s", seen.data))
        for (int i = 0; i < ARES_COUNT(cases); i++) {
            ares_str_clear(&seen);
            CHECK(write(terminal, cases[i].keys, strlen(cases[i].keys)) > 0);
            CHECK_MSG(shows(terminal, &seen, cases[i].got), "%s: %s", cases[i].got, seen.data);
        }
    close(terminal);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ares_str_fini(&seen);
}

TEST(what_is_typed_into_bash_is_completed)
{
    const char *const argv[] = { "bash", "--norc", "--noprofile", "-i", NULL };
    char setup[4300];
    if (!has("bash")) SKIP("no bash, or ares-train is not built");
    snprintf(setup, sizeof setup,
             "ares-train() { echo \"got:$*:\"; }; source '%s'; bind 'set bell-style none'; echo "
             "rea''-dy\n",
             script("bash"));
    type(argv, setup);
}

TEST(what_is_typed_into_zsh_is_completed)
{
    const char *const argv[] = { "zsh", "-f", "-i", NULL };
    char setup[4300];
    if (!has("zsh")) SKIP("no zsh, or ares-train is not built");
    snprintf(setup, sizeof setup,
             "ares-train() { echo \"got:$*:\"; }; autoload -Uz compinit; compinit -u -D; source "
             "'%s'; unsetopt beep; echo rea''-dy\n",
             script("zsh"));
    type(argv, setup);
    /* as installed: a file of fpath, which is read when its command is first completed */
    CHECK_OK(ares_dir_make(test_file("functions")));
    CHECK_EQ(rename(test_file("zsh"), test_file("functions/_ares-train")), 0);
    type(argv, "ares-train() { echo \"got:$*:\"; }; fpath=($PWD/functions $fpath); autoload -Uz "
               "compinit; compinit -u -D; unsetopt beep; echo rea''-dy\n");
}

TEST(what_is_typed_into_fish_is_completed)
{
    const char *const argv[] = { "fish", "--no-config", "-i", NULL };
    char setup[4300];
    if (!has("fish")) SKIP("no fish, or ares-train is not built");
    snprintf(setup, sizeof setup,
             "function ares-train; echo \"got:$argv:\"; end; source '%s'; echo rea''-dy\n",
             script("fish"));
    type(argv, setup);
}

TEST(completion_refuses_what_is_no_shell)
{
    if (!ares_file_exists(test_program())) SKIP("ares-train is not built");
    ares_str out = { 0 };
    CHECK_EQ(test_shell(&out, "'%s' completion 2>&1", test_program()), 2);
    CHECK_CONTAINS(out.data, "name one shell: bash, zsh or fish");
    ares_str_clear(&out);
    CHECK_EQ(test_shell(&out, "'%s' completion fisch 2>&1", test_program()), 2);
    CHECK_CONTAINS(out.data, "did you mean 'fish'?");
    ares_str_fini(&out);
}
