/* Environments and their episodes: what happens around a type's own steps. */
#include "types.h"

#include <string.h>
#include <strings.h>

/* ---------------- rewards */
static ares_env_reward sum(ares_env_reward a, ares_env_reward b)
{
    return (ares_env_reward){ a.value + b.value, a.integer && b.integer };
}

void ares_env_reward_write(ares_str *out, ares_env_reward reward)
{
    if (reward.integer) ares_str_addf(out, "%.0f", reward.value);
    else ares_str_add_double(out, reward.value);
}

void env_tell_again(ares_env_outcome *o, const char *name, double value)
{
    int i = 0;
    while (i < o->n_info && o->info[i].name != name && strcmp(o->info[i].name, name) != 0) i++;
    if (i < o->n_info) o->info[i].value = value;
    else env_tell(o, name, value);
}

/* ---------------- environments */
int ares_env_init(ares_env *e, const ares_env_definition *d)
{
    *e = (ares_env){ .definition = d };
    return d->type->open(d->options, d->shared, &e->state);
}

void ares_env_fini(ares_env *e)
{
    if (e->state) e->definition->type->close(e->state);
    *e = (ares_env){ 0 };
}

/* Whether somebody else's program has failed the episode. */
static bool has_failed(ares_env *e)
{
    const ares_env_type *type = e->definition->type;
    e->failure = type->failure ? type->failure(e->state, &e->replayable, &e->unasked) : NULL;
    return e->failure != NULL;
}

int ares_env_reset(ares_env *e, const ares_env_start *start)
{
    *e = (ares_env){
        .definition = e->definition, .state = e->state, .reward.integer = true, .replayable = true
    };
    ARES_TRY(e->definition->type->reset(e->state, start));
    const ares_env_type *type = e->definition->type;
    e->terminated = e->truncated = has_failed(e) || (type->over && type->over(e->state));
    return ARES_OK;
}

void ares_env_render(const ares_env *e, ares_str *out)
{
    e->definition->type->render(e->state, out);
}

const char *const *ares_env_actions(const ares_env *e, int *n)
{
    const ares_env_type *type = e->definition->type;
    *n = type->n_actions;
    if (type->action_names) return type->action_names;
    return type->actions && e->state ? type->actions(e->state, n) : NULL;
}

int64_t ares_env_actions_left(const ares_env *e)
{
    return e->definition->texts.max_actions - e->num_actions;
}

uint64_t ares_env_seed(uint64_t base, int64_t round, int64_t groups, int64_t group)
{
    return base + (uint64_t)(round * groups + group);
}

/* ---------------- a turn */
int ares_env_find_action(const char *const *names, int n, ares_view action)
{
    for (int i = 0; i < n; i++)
        if (strlen(names[i]) == action.len && strncasecmp(names[i], action.data, action.len) == 0)
            return i;
    return -1;
}

/* Zeroing `info`, too, would take longer than a step; n_info says what is there. */
static void clear(ares_env_outcome *o, bool integer)
{
    o->reward = (ares_env_reward){ 0, integer };
    o->done = o->success = o->refused = false;
    o->n_info = o->dropped = 0;
}

/* One step; the turn's outcome takes it in. *known: whether the text was an action. */
static int take(ares_env *e, ares_env_action action, ares_env_turn *turn, bool *known)
{
    ares_env_outcome step, *whole = &turn->outcome;
    clear(&step, false);
    ARES_TRY(e->definition->type->step(e->state, action, &step));
    *known = !step.refused;
    if (step.refused) return ARES_OK;
    if (has_failed(e)) {
        clear(&step, true);
        step.done = true;
    }
    e->num_actions++;
    turn->executed++;
    whole->reward = sum(whole->reward, step.reward);
    whole->done = step.done;
    whole->success = step.success;
    for (int i = 0; i < step.n_info; i++)
        env_tell_again(whole, step.info[i].name, step.info[i].value);
    whole->dropped += step.dropped;
    return ARES_OK;
}

int ares_env_act(ares_env *e, const ares_view *actions, int n, double format_penalty,
                 ares_env_turn *turn)
{
    int n_names, known = 0;
    const char *const *names = ares_env_actions(e, &n_names);
    ARES_ASSERT(!ares_env_over(e));
    clear(&turn->outcome, true);
    turn->executed = 0;
    turn->penalty = 0;
    for (int i = 0; i < n; i++) {
        int id = names ? ares_env_find_action(names, n_names, actions[i]) : -1;
        bool is_action = !names || id >= 0;
        if (is_action && !turn->outcome.done && ares_env_actions_left(e) > 0) {
            ares_view text = names ? ares_view_of(names[id]) : actions[i];
            ARES_TRY(take(e, (ares_env_action){ id, text }, turn, &is_action));
        }
        known += is_action;
    }
    if (known < n || !known) turn->penalty = format_penalty;
    e->no_valid_action = !known;
    if (!known) env_tell_again(&turn->outcome, ARES_ENV_INVALID, 1);
    e->turns++;
    e->reward = sum(e->reward, turn->outcome.reward);
    e->penalty += turn->penalty;
    if (turn->outcome.done) {
        e->terminated = true;
        e->truncated = !turn->outcome.success;
    } else if (ares_env_actions_left(e) <= 0) e->terminated = e->truncated = true;
    return ARES_OK;
}
