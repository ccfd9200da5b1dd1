/* What a conversation with an environment says; wording and blanks are RAGEN's. */
#include "ares/env.h"

void ares_env_system_message(const ares_env *e, const ares_env_format *f, ares_str *out)
{
    const ares_env_definition *d = e->definition;
    int n;
    ares_str_addf(out, "You're a helpful assistant. %s", d->texts.instruction);
    if (d->type->vocabulary) {
        ares_str_add_z(out, "\nThe meaning of each symbol in the state is:\n");
        d->type->vocabulary(d->options, out);
    }
    /* where a type of ours has actions of each episode, its states name them */
    if (!d->type->action_names && !d->type->waits) return;
    const char *const *names = ares_env_actions(e, &n);
    if (names) ares_str_add_z(out, "\nYour available actions are:\n");
    for (int i = 0; names && i < n; i++) ares_str_addf(out, "%s%s", i ? ", " : "", names[i]);
    ares_str_addf(out,
                  "\nYou can make up to %lld actions, separated by the action separator \" %s \"\n",
                  (long long)d->texts.max_actions, f->separator);
}

void ares_env_reward_message(ares_env_reward reward, ares_str *out)
{
    ares_str_add_z(out, "Reward:\n");
    ares_env_reward_write(out, reward);
    ares_str_add_char(out, '\n');
}

void ares_env_turn_message(const ares_env *e, const ares_env_format *f, ares_str *out)
{
    ares_str_addf(out, "\nTurn %lld:\nState:\n", (long long)e->turns + 1);
    ares_env_render(e, out);
    ares_str_add_char(out, '\n');
    if (e->no_valid_action)
        ares_str_add_z(out, "No valid action provided previously. Environment state remains the "
                            "same. Please try again.\n");
    ares_str_addf(
        out,
        "You have %lld actions left. Always output: %s<answer> [your answer] </answer> "
        "with no extra text. Strictly follow this format. Max response length: %lld words "
        "(tokens).\n",
        (long long)ares_env_actions_left(e), f->think ? "<think> [Your thoughts] </think> " : "",
        (long long)e->definition->texts.max_tokens);
}
