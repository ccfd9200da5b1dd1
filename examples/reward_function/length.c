/*
 * A reward of your own in C: 1 for an answer of at most 200 bytes, falling to 0 at 1000. Compile it
 * in one line:
 *
 *     cc -O2 -fPIC -shared -o length.so length.c
 *
 * and name it in the configuration (config.yaml beside this file shows it with a verifier):
 *
 *     worker.reward.rewards: [{function: "examples/reward_function/length.so:length_reward", name:
 *         length, weight: 0.1}]
 *
 * The function is called for one response at a time, in a process of its own, so that a crash costs
 * that response's score and nothing else. Texts are UTF-8 and end with NUL. row_json is the data
 * row as one line of JSON ("null" when there is none). The score must be a finite number; NaN says
 * "I cannot tell" and counts as a failure. What it prints goes to stderr.
 */
#include <string.h>

double length_reward(const char *response, const char *ground_truth, const char *row_json)
{
    double n = (double)strlen(response);
    (void)ground_truth;
    (void)row_json;
    if (n <= 200) return 1;
    return n >= 1000 ? 0 : (1000 - n) / 800;
}
