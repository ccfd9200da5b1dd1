/* A tiny model learns from examples what an answer looks like; nothing else could score. */
#include "agent_runs.h"

#include <stdio.h>

#include "e2e.h"

/* The beginning of a conversation on the ice, with two answers. */
static void add_example(ares_str *out, const char *board, bool think, const char *first,
                        const char *second)
{
    static const char system[] =
        "You're a helpful assistant. You act on ice.\\nThe meaning of each symbol in the state "
        "is:\\nP: player, _: empty, O: hole, G: goal, X: player in hole, \u221a: player on goal\\n"
        "Your available actions are:\\nLeft, Down, Right, Up\\nYou can make up to 10 actions, "
        "separated by the action separator \\\" || \\\"\\n";
    char rule[256], thought[2][40] = { "", "" };
    snprintf(
        rule, sizeof rule,
        "Always output: %s<answer> [your answer] </answer> with no extra text. Strictly follow "
        "this format. Max response length: 100 words (tokens).\\n",
        think ? "<think> [Your thoughts] </think> " : "");
    for (int i = 0; think && i < 2; i++)
        snprintf(thought[i], sizeof *thought, "<think>%.1s%.2s</think>", i ? second : first, board);
    ares_str_addf(out,
                  "{\"messages\":[{\"role\":\"system\",\"content\":\"%s\"},"
                  "{\"role\":\"user\",\"content\":\"\\nTurn 1:\\nState:\\n%s\\nYou have 10 actions "
                  "left. %s\"},{\"role\":\"assistant\",\"content\":\"%s<answer>%s</answer>\"},"
                  "{\"role\":\"user\",\"content\":\"Reward:\\n0\\n\\nTurn 2:\\nState:\\n%s\\nYou "
                  "have 9 actions left. %s\"},{\"role\":\"assistant\",\"content\":\"%s<answer>%s"
                  "</answer>\"}]}\n",
                  system, board, rule, thought[0], first, board, rule, thought[1], second);
}

static void learn(const char *run, bool think)
{
    static const char *const actions[] = { "Left", "Down", "Right", "Up" };
    static const char *const pairs[] = { "Left || Up", "Down", "Right || Down", "Up" };
    static const char *const boards[] = { "_G__\\n____\\n_OO_\\n____P", "____\\n____\\n____\\nGP__",
                                          "__O_\\n____\\nPG__\\n____",
                                          "____\\n_P__\\n____\\n_G__" };
    ares_str rows = { 0 };
    for (int i = 0; i < 64; i++)
        add_example(&rows, boards[i / 16], think, actions[i % 4], pairs[i / 4 % 4]);
    const char *path = e2e_write("agent_examples.jsonl", rows.data);
    ares_str_fini(&rows);
    e2e_learn(run, path,
              "sft.batch_size=4 sft.max_length=1200 "
              "worker.actor.max_token_len_per_device=8192");
}
static void learn_acting(const char *run)
{
    learn(run, false);
}
static void learn_thinking(const char *run)
{
    learn(run, true);
}

const char *agent_model(void)
{
    return e2e_learned("agent_model", learn_acting);
}

const char *agent_thinking(void)
{
    return e2e_learned("agent_thinking", learn_thinking);
}

const char *agent_words_of(const char *model, const char *run)
{
    char text[2000], file[64];
    snprintf(text, sizeof text,
             "env:\n"
             "  train: {tags: FrozenLake, groups: 4, group_size: 4}\n"
             "  definitions: {FrozenLake: {instruction: You act on ice., options: {is_slippery: "
             "false}}}\n"
             "  max_turns: 3\n"
             "  enable_think: false\n"
             "  token_exact: true\n"
             "algorithm: {adv_estimator: gae, disable_kl: true}\n"
             "data: {max_response_length: 24}\n"
             "worker:\n"
             "  rollout: {max_model_len: 2000}\n"
             "  actor: {model: {model_path: '%s'}, mini_batch_unit: rows, global_batch_size: 8, "
             "optim: {lr: 1.0e-3}}\n"
             "  critic: {optim: {lr: 1.0e-3}}\n"
             "trainer: {max_steps: 3, logger: [console], run_dir: '%s'}\n",
             model, test_file(run));
    snprintf(file, sizeof file, "agents_%s.yaml", run);
    return e2e_write(file, text);
}
const char *agent_words(const char *run)
{
    return agent_words_of(agent_model(), run);
}
