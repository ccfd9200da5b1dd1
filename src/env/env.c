/*
 * Environments in general. In order: an episode around a type's own steps; the table of types;
 * definitions from options; RAGEN's built-in tags; normalised rewards; boards as text; files of
 * data.
 */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ares/core.h"
#include "ares/env.h"

/* ---------------- rewards */
/* The sum is an integer only where both are, as in Python. */
static ares_env_reward sum(ares_env_reward a, ares_env_reward b)
{
    return (ares_env_reward){ a.value + b.value, a.integer && b.integer };
}

void ares_env_reward_write(ares_str *out, ares_env_reward reward)
{
    if (reward.integer) ares_str_addf(out, "%.0f", reward.value);
    else ares_str_add_double(out, reward.value);
}

/* Sets the value of a metric that may have been told: the last one counts. */
void env_tell_again(ares_env_outcome *o, const char *name, double value)
{
    /* names are mostly the same pointers: compared first */
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
    if (e->state) e->definition->type->close(e->state); /* NULL: it could not be opened */
    *e = (ares_env){ 0 };
}

/* Whether a user's program or server has failed the episode. */
static bool has_failed(ares_env *e)
{
    const ares_env_type *type = e->definition->type;
    e->failure = type->failure ? type->failure(e->state, &e->replayable, &e->unasked) : NULL;
    return e->failure != NULL;
}

int ares_env_reset(ares_env *e, const ares_env_start *start)
{
    /* a sum that begins as the integer 0 stays one while all rewards are integers */
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

/* A type's own names, else those of the episode; NULL: any text is an action. */
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

/* A seed per group: all environments of a group play the same episode. */
uint64_t ares_env_seed(uint64_t base, int64_t round, int64_t groups, int64_t group)
{
    return base + (uint64_t)(round * groups + group);
}

/* ---------------- a turn */
/* Case does not count, as in RAGEN; -1: no action has this name. */
int ares_env_find_action(const char *const *names, int n, ares_view action)
{
    for (int i = 0; i < n; i++)
        if (strlen(names[i]) == action.len && strncasecmp(names[i], action.data, action.len) == 0)
            return i;
    return -1;
}

/* Leaves `info` as it is: zeroing it would take longer than a step, and n_info says what counts. */
static void clear(ares_env_outcome *o, bool integer)
{
    o->reward = (ares_env_reward){ 0, integer };
    o->done = o->success = o->refused = false;
    o->n_info = o->dropped = 0;
}

/* Takes one step and adds its outcome to the turn's. *known: whether the text was an action. */
static int take(ares_env *e, ares_env_action action, ares_env_turn *turn, bool *known)
{
    ares_env_outcome step, *whole = &turn->outcome;
    clear(&step, false);
    ARES_TRY(e->definition->type->step(e->state, action, &step));
    *known = !step.refused;
    if (step.refused) return ARES_OK;
    if (has_failed(e)) { /* what a failed step says does not count: it only ends the episode */
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

/* Takes the actions of one answer in order, until the episode ends or none is left. */
int ares_env_act(ares_env *e, const ares_view *actions, int n, double format_penalty,
                 ares_env_turn *turn)
{
    /* known: words that were actions, though not all may have been taken */
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
    /* one penalty per turn, however many words were no actions */
    if (known < n || !known) turn->penalty = format_penalty;
    e->no_valid_action = !known;
    if (!known) env_tell_again(&turn->outcome, ARES_ENV_INVALID, 1);
    e->turns++;
    e->reward = sum(e->reward, turn->outcome.reward);
    e->penalty += turn->penalty;
    /* an end without success counts as truncated */
    if (turn->outcome.done) {
        e->terminated = true;
        e->truncated = !turn->outcome.success;
    } else if (ares_env_actions_left(e) <= 0) e->terminated = e->truncated = true;
    return ARES_OK;
}

/* The table of environment types. A new type is a file in this folder and a word here. */

#define TYPE_LIST(X) \
    X(sokoban)       \
    X(frozen_lake)   \
    X(bandit) X(countdown) X(metamathqa) X(game_2048) X(rubikscube) X(command) X(openenv) X(agent)

#define DECLARE(name) extern const ares_env_type ares_env_type_##name;
#define ENTRY(name) &ares_env_type_##name,
#define NAME(name) #name,
TYPE_LIST(DECLARE)
static const ares_env_type *const types[] = { TYPE_LIST(ENTRY) };
static const char *const type_names[] = { TYPE_LIST(NAME) };
enum { TYPES = ARES_COUNT(types) };

/* Definitions of environments: options under env.definitions.<Tag>. */

static ARES_OPTION_TABLE(env_table, ares_env_options, ARES_ENV_OPTIONS);
static ARES_OPTION_TABLE(definition_table, ares_env_definition_options,
                         ARES_ENV_DEFINITION_OPTIONS);

enum { TAGS = 64, PATH = 256 }; /* built-in tags and types at most; bytes of an option's path */

/* The built-in tags, then the types, each a tag with its defaults. */
const char *const *ares_env_tag_names(int *n)
{
    static const char *names[TAGS];
    ARES_ASSERT(env_tag_count + TYPES <= TAGS);
    for (int i = 0; i < env_tag_count; i++) names[i] = env_tags[i].name;
    for (int i = 0; i < TYPES; i++) names[env_tag_count + i] = type_names[i];
    *n = env_tag_count + TYPES;
    return names;
}

/* "key": "value" in an object. */
static void write_string(ares_str *out, const char *key, const char *value)
{
    ares_json_write_string(ares_json_key(out, key), ares_view_of(value));
}

void ares_env_declare_options(ares_config *cfg)
{
    ares_config_add_options(cfg, "env", env_table, NULL);
}

/* Gives an option of a tag its built-in value, unless a file or the command line has set it. */
static void preset(ares_config *cfg, const char *tag, const char *key, const char *value)
{
    ares_str path = { 0 };
    ares_str_addf(&path, "env.definitions.%s.%s", tag, key);
    bool set = ares_config_is_set(cfg, path.data);
    ares_str_addf(&path, "=%s", value);
    if (!set) ares_config_override(cfg, path.data);
    ares_str_fini(&path);
}

/* Gives a tag of the files the options of the built-in tag or type of its name. */
void ares_env_preset(ares_config *cfg, const char *tag)
{
    char number[32];
    for (int i = 0; i < env_tag_count; i++) {
        const env_tag *t = &env_tags[i];
        if (strcmp(t->name, tag) != 0) continue;
        preset(cfg, tag, "type", t->type);
        ares_str text = { 0 };
        ares_json_write_string(&text, ares_view_of(t->instruction)); /* blanks at its end count */
        preset(cfg, tag, "instruction", text.data);
        ares_str_fini(&text);
        snprintf(number, sizeof number, "%lld", (long long)t->max_actions);
        preset(cfg, tag, "max_actions", number);
        snprintf(number, sizeof number, "%lld", (long long)t->max_tokens);
        preset(cfg, tag, "max_tokens", number);
        ares_arena arena = { 0 };
        const ares_json *options; /* of the type: a JSON object in the table of tags */
        int rc = ares_json_parse(&arena, ares_view_of(t->options), t->name, &options);
        ARES_ASSERT(rc == ARES_OK); /* our own text */
        for (int64_t k = 0; k < options->count; k++) {
            ares_str key = { 0 }, value = { 0 };
            const ares_json *v = options->members[k].value;
            ares_str_addf(&key, "options.%s", options->members[k].key.data);
            if (v->type == ARES_JSON_STRING) ares_str_add_view(&value, v->text);
            else ares_json_write(&value, v);
            preset(cfg, tag, key.data, value.data);
            ares_str_fini(&key);
            ares_str_fini(&value);
        }
        ares_arena_fini(&arena);
        return;
    }
    for (int i = 0; i < TYPES; i++)
        if (strcmp(type_names[i], tag) == 0) preset(cfg, tag, "type", tag);
}

/* The built-in tags as a first layer, and each type under its own name with its defaults. */
void ares_env_declare(ares_config *cfg)
{
    ares_str text = { 0 };
    ares_config_add_options(cfg, "env", env_table, NULL);
    ares_json_begin(&text, '{');
    ares_json_begin(ares_json_key(&text, "env"), '{');
    ares_json_begin(ares_json_key(&text, "definitions"), '{');
    for (int i = 0; i < env_tag_count; i++) {
        const env_tag *t = &env_tags[i];
        ares_json_begin(ares_json_key(&text, t->name), '{');
        write_string(&text, "type", t->type);
        write_string(&text, "instruction", t->instruction);
        ares_json_write_i64(ares_json_key(&text, "max_actions"), t->max_actions);
        ares_json_write_i64(ares_json_key(&text, "max_tokens"), t->max_tokens);
        ares_json_splice(ares_json_key(&text, "options"), ares_view_of(t->options));
        ares_json_end(&text, '}');
    }
    for (int i = 0; i < TYPES; i++) {
        ares_json_begin(ares_json_key(&text, type_names[i]), '{');
        write_string(&text, "type", type_names[i]);
        ares_json_end(&text, '}');
    }
    for (int i = 0; i < 3; i++) ares_json_end(&text, '}');
    ares_config_load_text(cfg, "the built-in tags", ares_str_view(&text));
    ares_str_fini(&text);
}

/* A tag of the files must be built in or have a type. */
void ares_env_check_definitions(ares_config *cfg)
{
    const ares_json *all = ares_config_get(cfg, "env.definitions");
    int built_in;
    const char *const *known = ares_env_tag_names(&built_in);
    /* every definition that files and words set */
    for (int64_t i = 0; all && i < all->count; i++) {
        const char *tag = all->members[i].key.data;
        ares_str path = { 0 };
        bool is_known = false;
        for (int k = 0; k < built_in; k++) is_known = is_known || strcmp(known[k], tag) == 0;
        if (is_known || ares_json_get(all->members[i].value, "type")) continue;
        const char *near = ares_nearest(tag, known, built_in);
        ares_str_addf(&path, "env.definitions.%s", tag);
        ares_config_fault(cfg, path.data, "no such tag%s%s%s (one of your own needs a type)",
                          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        ares_str_fini(&path);
    }
}

/* Reads a tag's options. Faults of the files are collected in cfg; the result is still ARES_OK. */
int ares_env_define(ares_config *cfg, const char *tag, ares_env_definition *d)
{
    /* the option's path: env.definitions.<Tag> */
    char path[PATH], options[PATH + 8];
    *d = (ares_env_definition){ 0 };
    /* a dot would end the tag within an option's path */
    if (strlen(tag) > PATH - 32 || strchr(tag, '.'))
        return ares_fail(ARES_ECONFIG, "env: tag = '%.64s': too long, or with a dot in it", tag);
    const ares_json *all = ares_config_get(cfg, "env.definitions");
    if (!ares_json_get(all, tag)) { /* choices: the built-in tags, then those of the files */
        const char *choices[2 * TAGS];
        int n = 0, built_in;
        const char *const *known = ares_env_tag_names(&built_in);
        for (int i = 0; i < built_in; i++)
            if (!ares_json_get(all, known[i])) choices[n++] = known[i];
        for (int64_t i = 0; all && i < all->count && n < ARES_COUNT(choices); i++)
            choices[n++] = all->members[i].key.data;
        ARES_TRY(ares_lookup(ARES_ECONFIG, "env: tag", tag, choices, n, &(int){ 0 }));
    }
    snprintf(path, sizeof path, "env.definitions.%s", tag);
    d->tag = strcpy(ares_config_alloc(cfg, strlen(tag)), tag);
    int faults = ares_config_fault_count(cfg); /* others' faults are not this tag's */
    ares_config_bind(cfg, path, definition_table, &d->texts);
    if (ares_config_fault_count(cfg) > faults) return ARES_OK;
    int type;
    if (ares_lookup(ARES_ECONFIG, NULL, d->texts.type, type_names, TYPES, &type) != ARES_OK) {
        snprintf(options, sizeof options, "%s.type", path);
        ares_config_fault(cfg, options, "%s", ares_error_message());
        return ARES_OK;
    }
    d->type = types[type];
    snprintf(options, sizeof options, "%s.options", path);
    d->options = ares_config_alloc(cfg, d->type->options_size);
    /* the type's own options are a section of the tag */
    if (d->type->options) ares_config_bind(cfg, options, d->type->options, d->options);
    if (d->type->check && ares_config_fault_count(cfg) == faults)
        d->type->check(d->options, cfg, options);
    return ARES_OK;
}

/* What all environments of the definition share, such as a file's problems or processes. */
int ares_env_definition_open(ares_env_definition *d)
{
    return d->type->load ? d->type->load(d->options, &d->shared) : ARES_OK;
}

void ares_env_definition_close(ares_env_definition *d)
{
    if (d->type && d->type->unload) d->type->unload(d->shared);
    *d = (ares_env_definition){ 0 };
}

/*
 * The tags of RAGEN's config/envs.yaml whose types are built in. The instructions are data: their
 * wording, blanks at line ends and "(5, 5)" on a map of 4 x 4 are RAGEN's.
 */

#define SOKOBAN_INSTRUCTION                                                                       \
    "You are solving the Sokoban puzzle. \nYou are the player and you need to push all boxes to " \
    "targets. \nWhen you are right next to a box, you can push it by moving in the same "         \
    "direction. \nYou cannot push a box through a wall, and you cannot pull a box. \nThe answer " \
    "should be a sequence of actions, like <answer>Right || Right || Up</answer>\n"

/* tag, type, instruction, max_actions, max_tokens, options of the type */
const env_tag env_tags[] = {
    { "SimpleSokoban", "sokoban", SOKOBAN_INSTRUCTION, 10, 100,
      "{\"dim_x\":6,\"dim_y\":6,\"num_boxes\":1,\"max_steps\":100}" },
    { "LargerSokoban", "sokoban", SOKOBAN_INSTRUCTION, 10, 100,
      "{\"dim_x\":8,\"dim_y\":8,\"num_boxes\":2,\"max_steps\":100,\"search_depth\":10}" },
    { "SokobanDifferentGridVocab", "sokoban", SOKOBAN_INSTRUCTION, 10, 100,
      "{\"dim_x\":6,\"dim_y\":6,\"num_boxes\":1,\"max_steps\":100,\"search_depth\":30,"
      "\"symbols\":[\"W\",\".\",\"G\",\"C\",\"B\",\"A\",\"@\"]}" },
    { "CoordSokoban", "sokoban",
      "You are solving the Sokoban puzzle. You are the player and you need to push all boxes to "
      "targets.\nYou are provided with a symbol grid and the zero-indexed coordinates of the "
      "player, each box, and each target. \nCoordinates range from the top-left corner (0, 0) to "
      "the bottom-right corner (5, 5). \nWhen you are exactly next to a box, you can push it by "
      "moving in the same direction. \nYou cannot push a box through a wall, and you cannot pull a "
      "box.\nThe answer should be a sequence of actions, like <answer>Right || Right || "
      "Up</answer>.\n",
      10, 120,
      "{\"dim_x\":6,\"dim_y\":6,\"num_boxes\":1,\"max_steps\":100,"
      "\"observation_format\":\"grid_coord\"}" },
    { "FrozenLake", "frozen_lake",
      "You are solving the FrozenLake puzzle. Forbid the whole and go to the target. You may move "
      "to the unintended direction due to the slippery ice. Example answer format: <think>To "
      "forbid the hole and go to the target, I should go left then go up.</think><answer>Left || "
      "Up</answer>",
      10, 100, "{\"success_rate\":0.8}" },
    { "CoordFrozenLake", "frozen_lake",
      "You are solving the FrozenLake puzzle. The observation includes both a symbol grid and "
      "zero-indexed coordinates for the start, goal, player, and any holes.\nCoordinates range "
      "from the top-left corner (0, 0) to the bottom-right corner (5, 5).\nBeware that the ice is "
      "slippery, so the agent might slide and end up in an unintended tile.\nRespond with a "
      "sequence of actions such as <answer>Left || Up || Up</answer>.\n",
      10, 120, "{\"observation_format\":\"grid_coord\",\"success_rate\":0.8}" },
    { "Countdown", "countdown",
      "You are solving the Countdown puzzle. You should use the num list to create an equation "
      "that equals the target. Example answer format: <think> To find an equation using [3, 5, 2] "
      "to get 4. Let's check 2 + 5 = 7, 7 - 3 = 4. So the answer is 2 + 5 - 3 = 4. "
      "</think><answer>2 + 5 - 3</answer>",
      1, 100, "{}" },
    { "Bandit", "bandit", "", 1, 100, "{\"split\":\"train\"}" },
    { "BanditTest", "bandit", "", 1, 100, "{\"split\":\"test\"}" },
    { "MetamathQA", "metamathqa", "You are solving Math problems. ", 1, 100, "{}" },
};
const int env_tag_count = ARES_COUNT(env_tags);

/* Rewards of episodes within groups, as RAGEN's context manager normalises them. */

/* in the order of ARES_ENV_IDENTITY and the rest */
static const char *const methods[] = { "identity", "mean", "mean_std", "asym_clip" };

const char *const *ares_env_normalisations(int *n)
{
    *n = ARES_COUNT(methods);
    return methods;
}

void ares_env_normalise(int method, double *x, const int64_t *group, int64_t n)
{
    if (method == ARES_ENV_IDENTITY || n == 0) return;
    ares_map *sizes = ares_map_new(); /* rows of each group; the key is the group's number */
    for (int64_t i = 0; i < n; i++) {
        int64_t size = 0;
        ares_view key = { (const char *)&group[i], sizeof group[i] };
        ares_map_get(sizes, key, &size);
        ares_map_put(sizes, key, size + 1);
    }
    /* member: places in x of the group's rows */
    int64_t groups = ares_map_count(sizes), *member = ares_malloc((size_t)n * sizeof *member);
    for (int64_t g = 0; groups < n && g < groups; g++) { /* none where each row is a group */
        int64_t count = 0, size = ares_map_value(sizes, g);
        ares_view key = ares_map_key(sizes, g);
        for (int64_t i = 0; i < n && count < size; i++)
            if (memcmp(&group[i], key.data, sizeof group[i]) == 0) member[count++] = i;
        /* the standard deviation divides by n - 1 */
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < count; i++) mean += x[member[i]];
        mean /= (double)count;
        for (int64_t i = 0; i < count; i++)
            squares += (x[member[i]] - mean) * (x[member[i]] - mean);
        double std = count > 1 ? sqrt(squares / (double)(count - 1)) : 0;
        for (int64_t i = 0; i < count; i++) { /* the epsilon and the bounds -1 and 3 are RAGEN's */
            double *v = &x[member[i]];
            *v -= mean;
            if (method == ARES_ENV_MEAN) continue;
            *v = std > 1e-6 ? *v / (std + 1e-6) : 0;
            if (method == ARES_ENV_ASYM_CLIP) *v = fmin(fmax(*v, -1), 3);
        }
    }
    ares_free(member);
    ares_map_free(sizes);
}

/* "grid", "coord" or "grid_coord". */
void board_render(const char *format, const void *env, board_part *grid, board_part *coordinates,
                  ares_str *out)
{
    bool both = strcmp(format, "grid_coord") == 0; /* under headings, as RAGEN writes them */
    if (both) ares_str_add_z(out, "Coordinates: \n");
    if (both || strcmp(format, "coord") == 0) coordinates(env, out);
    if (both) ares_str_add_z(out, "\nGrid Map: \n");
    if (both || strcmp(format, "grid") == 0) grid(env, out);
}

void board_add_size(ares_str *out, int rows, int cols)
{
    ares_str_addf(out, "Board size: %d rows x %d cols (zero-indexed).", rows, cols);
}

void board_add_cells(ares_str *out, const char *label, const void *board, int n, int cols, int code)
{
    const uint8_t *cell = board;
    int found = 0;
    for (int i = 0; i < n; i++) {
        if (cell[i] != code) continue;
        if (!found) ares_str_addf(out, "\n%s: ", label);
        ares_str_addf(out, "%s(%d, %d)", found++ ? ", " : "", i / cols, i % cols);
    }
}

/* Calls `each` with every row of a file of JSON lines, `most` of them at most (0: all). */
int env_rows_read(const char *path, int64_t most, ares_arena *arena,
                  int (*each)(void *ctx, const ares_json *row), void *ctx)
{
    ares_str text = { 0 };
    int rc = ares_file_read(path, &text);
    ares_view rest = ares_str_view(&text);
    int64_t rows = 0;
    for (int64_t line = 1; rc == ARES_OK && rest.len && (!most || rows < most); line++) {
        int64_t end = ares_view_find(rest, ARES_VIEW("\n"), 0);
        ares_view one = { rest.data, end < 0 ? rest.len : (size_t)end };
        size_t taken = one.len + (end >= 0);
        rest = (ares_view){ rest.data + taken, rest.len - taken };
        if (!ares_view_trim(one).len) continue; /* an empty line is no row */
        const ares_json *row;
        rc = ares_json_parse_line(arena, one, path, line, &row);
        if (rc != ARES_OK) break;
        rc = each(ctx, row);
        if (rc != ARES_OK) ares_fail_in(rc, "env: %s:%lld", path, (long long)line);
        rows++;
    }
    ares_str_fini(&text);
    return rc;
}
