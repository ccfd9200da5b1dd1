/* Runs in environments: a model that writes actions, and their configuration. */
#ifndef TESTS_AGENT_RUNS_H
#define TESTS_AGENT_RUNS_H

/*
 * The model of e2e_model, trained for a second to write <answer>Left</answer> and the like, so that
 * episodes differ; made in this test's folder.
 */
const char *agent_model(void);
/* Another such model, which writes <think>L</think><answer>Left</answer>. */
const char *agent_thinking(void);
/*
 * The arguments of a run of that model on ice that does not slip: 4 groups of 4 episodes of up to 3
 * turns, PPO with a critic and sampled tokens. run: its name in this test's folder.
 */
const char *agent_words(const char *run);
/* The same for another model, without making that one. */
const char *agent_words_of(const char *model, const char *run);

#endif
