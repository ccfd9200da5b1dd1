/*
 * RAGEN's configurations, read as they are (tests/train/ragen), mean what the presets and the
 * sweeps of this program mean.
 */
#include <stdio.h>
#include <string.h>

#include "ares/env.h"
#include "ares/train.h"
#include "faults.h"
#include "test.h"

extern const ares_config_alias train_aliases[];
extern const int train_alias_count;

typedef struct reading {
    ares_config *cfg;
    ares_train_config c;
} reading;

/* Files of the source tree and overrides, each list separated by blanks. */
static void read_all(reading *r, const char *files, const char *overrides)
{
    char *list = ares_strdup(files), *rest = list;
    ares_log_set(ARES_LOG_ERROR, 0);
    r->cfg = ares_config_new();
    ares_train_config_declare(r->cfg, &r->c);
    for (char *one; (one = strsep(&rest, " "));)
        if (*one) ares_config_load_file(r->cfg, test_source(one));
    ares_free(list);
    list = rest = ares_strdup(overrides);
    for (char *one; (one = strsep(&rest, " "));)
        if (*one) ares_config_override(r->cfg, one);
    ares_free(list);
    ares_config_resolve(r->cfg);
    (void)ares_train_config_check(r->cfg, &r->c, 1);
}

/* ---------------- the same run */
#define BASE "tests/train/ragen/base.yaml tests/train/ragen/"

/*
 * Options that no number of these runs depends on, though others might: counts for losses by
 * micro-batch, the launch, a tag's groups, which are all groups, and names.
 */
static bool without_effect(const char *path, bool kl)
{
    static const char *const paths[] = {
        "worker.actor.micro_batch_size_per_device_for_update",
        "worker.critic.model.model_path",  /* null: the actor's */
        "worker.critic.global_batch_size", /* null: the actor's */
        "trainer.n_gpus_per_node",
        "env.train.n_groups",
        "env.val.n_groups",
        "trainer.project_name",
        "trainer.experiment_name",
        "worker.actor.model.freeze_vision_tower", /* the models see no images */
        "trainer.total_epochs",                   /* of rows; trainer.max_steps ends the runs */
    };
    for (int i = 0; i < ARES_COUNT(paths); i++)
        if (strcmp(path, paths[i]) == 0) return true;
    return !kl &&
           (strcmp(path, "algorithm.kl_coef") == 0 || strcmp(path, "algorithm.kl_penalty") == 0);
}

static const ares_json *only_item(const ares_json *x)
{
    return x && x->type == ARES_JSON_ARRAY && x->count == 1 ? &x->items[0] : x;
}

/* How many values differ below the path; each is a failed check. */
static int differences(const reading *a, const char *path, const ares_json *x, const ares_json *y,
                       bool kl)
{
    int n = 0;
    char inner[256];
    ares_str s = { 0 }, t = { 0 };
    if (without_effect(path, kl) || ares_config_no_result(a->cfg, path)) return 0;
    if (x && y && x->type == ARES_JSON_OBJECT && y->type == ARES_JSON_OBJECT) {
        for (int64_t i = 0; i < x->count; i++) {
            const char *key = x->members[i].key.data;
            snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
            n += differences(a, inner, x->members[i].value, ares_json_get(y, key), kl);
        }
        for (int64_t i = 0; i < y->count; i++) { /* what is here alone */
            const char *key = y->members[i].key.data;
            snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
            if (!ares_json_find(x, y->members[i].key))
                n += differences(a, inner, NULL, y->members[i].value, kl);
        }
        return n;
    }
    x = only_item(x);
    y = only_item(y);
    ares_json_write(&s, x ? x : &(ares_json){ 0 });
    ares_json_write(&t, y ? y : &(ares_json){ 0 });
    bool numbers = x && y && (x->type == ARES_JSON_INT || x->type == ARES_JSON_FLOAT) &&
                   (y->type == ARES_JSON_INT || y->type == ARES_JSON_FLOAT);
    bool same = numbers ? x->number == y->number : strcmp(s.data, t.data) == 0;
    CHECK_MSG(same, "%s: %s there, %s here", path, s.data, t.data);
    ares_str_fini(&s);
    ares_str_fini(&t);
    return !same;
}

static void check_same(const char *their_files, const char *theirs, const char *our_file,
                       const char *ours, bool kl)
{
    reading a, b;
    read_all(&a, their_files, theirs);
    read_all(&b, our_file, ours);
    CHECK_STR(faults_text(a.cfg), "");
    CHECK_STR(faults_text(b.cfg), "");
    const ares_json *x = ares_config_get(a.cfg, ""), *y = ares_config_get(b.cfg, "");
    REQUIRE(x && y && x->count > 5);
    CHECK_EQ(differences(&a, "", x, y, kl), 0);
    CHECK_EQ(a.c.actor.global_batch_size, 32);
    CHECK_STR(a.c.actor.mini_batch_unit, "rows");
    ares_config_free(a.cfg);
    ares_config_free(b.cfg);
}

TEST(the_presets_are_the_published_files)
{
    static const char *const names[] = { "_2_sokoban", "_3_frozen_lake" };
    for (int i = 0; i < ARES_COUNT(names); i++) {
        char theirs[100], ours[100];
        snprintf(theirs, sizeof theirs, "%s%s.yaml", BASE, names[i]);
        snprintf(ours, sizeof ours, "configs/presets/%s.yaml", names[i]);
        check_same(theirs, "model_path=m", ours, "worker.actor.model.model_path=m", true);
    }
}

/* What the published scripts pass, and what configs/sweeps sets for the same runs. */
#define SOKOBAN_WORDS                                                                         \
    " model_path=m trainer.project_name=p trainer.experiment_name=e "                         \
    "trainer.total_training_steps=400 trainer.save_freq=-1 trainer.default_local_dir=d "      \
    "trainer.logger=[console,wandb] trainer.val_before_train=True trainer.n_gpus_per_node=1 " \
    "system.CUDA_VISIBLE_DEVICES=\"0\" algorithm.adv_estimator=gae "                          \
    "actor_rollout_ref.actor.filter_loss_scaling=none "                                       \
    "actor_rollout_ref.actor.ppo_mini_batch_size=32 critic.ppo_mini_batch_size=32 "           \
    "ppo_mini_batch_size=32 actor_rollout_ref.rollout.rollout_filter_strategy=top_p "         \
    "actor_rollout_ref.rollout.rollout_filter_type=largest "                                  \
    "actor_rollout_ref.rollout.rollout_filter_metric=reward_variance "                        \
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.5 es_manager.train.env_groups=8 "     \
    "es_manager.train.group_size=16 es_manager.train.env_configs.n_groups=[8] "               \
    "es_manager.val.env_groups=512 es_manager.val.group_size=1 "                              \
    "es_manager.val.env_configs.n_groups=[512] "
#define OUR_SOKOBAN_WORDS                                                                      \
    " worker.actor.model.model_path=m trainer.project_name=p trainer.experiment_name=e "       \
    "trainer.max_steps=400 trainer.save_freq=-1 trainer.run_dir=d "                            \
    "trainer.logger=[console,wandb] trainer.val_before_train=true "                            \
    "algorithm.adv_estimator=gae algorithm.use_kl_in_reward=false "                            \
    "worker.actor.filter_loss_scaling=none worker.actor.mini_batch_unit=rows "                 \
    "worker.actor.global_batch_size=32 worker.critic.global_batch_size=32 "                    \
    "worker.rollout.rollout_filter_strategy=top_p worker.rollout.rollout_filter_type=largest " \
    "worker.rollout.rollout_filter_metric=reward_variance "                                    \
    "worker.rollout.gpu_memory_utilization=0.5 env.train.groups=8 env.train.group_size=16 "    \
    "env.val.groups=512 env.val.group_size=1 "

TEST(the_published_sokoban_sweeps_are_ours)
{
    static const struct {
        const char *theirs, *ours;
        bool kl;
    } runs[] = {
        { "actor_rollout_ref.actor.use_kl_loss=False actor_rollout_ref.actor.kl_loss_coef=0 "
          "actor_rollout_ref.actor.entropy_coeff=0.003 "
          "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True "
          "actor_rollout_ref.rollout.rollout_filter_value=1 "
          "actor_rollout_ref.rollout.rollout_filter_include_zero=True",
          "algorithm.use_kl_loss=false algorithm.kl_coef=0 worker.actor.entropy_coeff=0.003 "
          "worker.rollout.rollout_filter_value=1 worker.rollout.rollout_filter_include_zero=True",
          false },
        { "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.01 "
          "actor_rollout_ref.actor.entropy_coeff=0 "
          "actor_rollout_ref.rollout.rollout_filter_value=1 "
          "actor_rollout_ref.rollout.rollout_filter_include_zero=True",
          "algorithm.use_kl_loss=true algorithm.kl_penalty=kl algorithm.kl_coef=0.01 "
          "worker.actor.entropy_coeff=0 "
          "worker.rollout.rollout_filter_value=1 worker.rollout.rollout_filter_include_zero=True",
          true },
        { "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 "
          "actor_rollout_ref.actor.entropy_coeff=0.001 "
          "actor_rollout_ref.rollout.rollout_filter_value=0.9 "
          "actor_rollout_ref.rollout.rollout_filter_include_zero=False",
          "algorithm.use_kl_loss=true algorithm.kl_penalty=kl algorithm.kl_coef=0.001 "
          "worker.actor.entropy_coeff=0.001 "
          "worker.rollout.rollout_filter_value=0.9 "
          "worker.rollout.rollout_filter_include_zero=False",
          true },
    };
    char theirs[3000], ours[3000];
    for (int i = 0; i < ARES_COUNT(runs); i++) {
        snprintf(theirs, sizeof theirs, "%s%s", SOKOBAN_WORDS, runs[i].theirs);
        snprintf(ours, sizeof ours, "%s%s", OUR_SOKOBAN_WORDS, runs[i].ours);
        check_same(BASE "_2_sokoban.yaml", theirs, "configs/presets/_2_sokoban.yaml", ours,
                   runs[i].kl);
    }
}

TEST(the_published_frozen_lake_sweep_is_ours)
{
    check_same(
        BASE "_3_frozen_lake.yaml",
        "model_path=m trainer.project_name=p trainer.experiment_name=e "
        "trainer.total_training_steps=400 trainer.save_freq=-1 trainer.default_local_dir=d "
        "trainer.logger=[console,wandb] trainer.val_before_train=True "
        "system.CUDA_VISIBLE_DEVICES=\"0,1\" algorithm.adv_estimator=gae "
        "actor_rollout_ref.actor.loss_agg_mode=token-mean "
        "actor_rollout_ref.actor.use_kl_loss=False "
        "actor_rollout_ref.actor.kl_loss_type=low-var-kl "
        "actor_rollout_ref.actor.kl_loss_coef=0.001 actor_rollout_ref.actor.entropy_coeff=0.001 "
        "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True "
        "actor_rollout_ref.actor.filter_loss_scaling=none "
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.3 "
        "actor_rollout_ref.rollout.rollout_filter_strategy=top_p "
        "actor_rollout_ref.rollout.rollout_filter_value=0.9 "
        "custom_envs.CoordFrozenLake.env_config.success_rate=0.98 "
        "actor_rollout_ref.actor.checkpoint.save_contents=[model] "
        "critic.checkpoint.save_contents=[model]",
        "configs/presets/_3_frozen_lake.yaml",
        "worker.actor.model.model_path=m trainer.project_name=p trainer.experiment_name=e "
        "trainer.max_steps=400 trainer.save_freq=-1 trainer.run_dir=d "
        "trainer.logger=[console,wandb] trainer.val_before_train=true "
        "algorithm.adv_estimator=gae algorithm.use_kl_loss=false "
        "algorithm.use_kl_in_reward=false algorithm.kl_penalty=low_var_kl "
        "algorithm.kl_coef=0.001 worker.actor.loss_avg_mode=token-mean "
        "worker.actor.entropy_coeff=0.001 worker.actor.filter_loss_scaling=none "
        "worker.rollout.gpu_memory_utilization=0.3 "
        "worker.rollout.rollout_filter_strategy=top_p worker.rollout.rollout_filter_value=0.9 "
        "env.definitions.CoordFrozenLake.options.success_rate=0.98 trainer.save_model_only=true",
        false);
    reading r;
    read_all(&r, BASE "_3_frozen_lake.yaml",
             "actor_rollout_ref.actor.checkpoint.save_contents=[model]");
    CHECK(r.c.trainer.save_model_only);
    ares_config_free(r.cfg);
}

/* ---------------- single words */
TEST(a_mini_batch_of_ragen_is_of_episodes)
{
    static const struct {
        const char *words, *actor, *critic;
    } cases[] = {
        { "ppo_mini_batch_size=8", "rows", NULL },
        { "actor_rollout_ref.actor.ppo_mini_batch_size=8", "prompts", NULL }, /* verl's */
        { "es_manager.train.env_configs.tags=[Bandit] worker.actor.global_batch_size=64", "rows",
          NULL },
        { "es_manager.train.env_configs.tags=[Bandit] worker.actor.mini_batch_unit=prompts",
          "prompts", NULL },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        reading r;
        read_all(&r, "", cases[i].words);
        CHECK_STR(r.c.actor.mini_batch_unit, cases[i].actor);
        CHECK(!r.c.critic.mini_batch_unit);
        ares_config_free(r.cfg);
    }
}

TEST(environments_of_ragen_are_definitions)
{
    static const char yaml[] =
        "custom_envs:\n"
        "  Mine:\n"
        "    env_type: sokoban\n"
        "    max_actions_per_traj: 7\n"
        "    env_instruction: |\n"
        "      Push.\n"
        "    max_tokens: 90\n"
        "    parallel_friendly: false\n"
        "    max_workers: 32\n"
        "    env_config: # a subset of SokobanConfig\n"
        "      dim_x: 7\n"
        "      render_mode: text\n"
        "      grid_lookup: {0: \"W\", 1: \".\", 2: \"G\", 3: \"C\", 4: \"B\", 5: \"A\", 6: "
        "\"@\"}\n"
        "      grid_vocab: {\"W\": \"wall\"}\n"
        "  Countdown: {env_type: countdown, max_actions_per_traj: 3, env_config: null}\n"
        "  WebShop: {env_type: webshop, env_config: {dataset: small}}\n"
        "es_manager: {train: {env_groups: 8, env_configs: {tags: [Mine, Countdown]}},\n"
        "             val: {env_groups: 8, env_configs: {tags: [Countdown]}}}\n";
    reading r;
    ares_env_definition d;
    ares_str text = { 0 };
    r.cfg = ares_config_new();
    ares_train_config_declare(r.cfg, &r.c);
    ares_config_load_text(r.cfg, "envs.yaml", ares_view_of(yaml));
    ares_config_override(r.cfg, "model_path=m");
    ares_config_override(r.cfg, "ppo_mini_batch_size=8");
    ares_config_override(r.cfg, "trainer.max_steps=1");
    ares_config_override(r.cfg, "worker.rollout.max_model_len=4000");
    ares_config_override(r.cfg, "trainer.val_freq=1"); /* RAGEN's runs end without success */
    ares_config_resolve(r.cfg);
    (void)ares_train_config_check(r.cfg, &r.c, 1);
    CHECK_STR(faults_text(r.cfg), "");
    REQUIRE_OK(ares_env_define(r.cfg, "Mine", &d));
    CHECK_EQ(d.texts.max_actions, 7);
    CHECK_EQ(d.texts.max_tokens, 90);
    CHECK_STR(d.texts.instruction, "Push.\n");
    d.type->vocabulary(d.options, &text);
    CHECK_STR(text.data, "W: wall, .: empty, G: target, C: box on target, B: box, A: player, @: "
                         "player on target");
    CHECK_EQ(ares_config_get(r.cfg, "env.definitions.Mine.options.dim_x")->integer, 7);
    REQUIRE_OK(ares_env_define(r.cfg, "Countdown", &d));
    CHECK_STR(d.type->name, "countdown");
    CHECK_EQ(d.texts.max_actions, 3); /* of the file, whatever the built-in tag has */
    ares_str_fini(&text);
    ares_config_free(r.cfg);
}

TEST(words_of_ragen_that_are_none_or_ask_for_what_is_not_there_are_named)
{
    static const struct {
        const char *line, *says;
    } cases[] = {
        { "agent_proxy: {max_turnss: 5}",
          "config: a.yaml:1: agent_proxy.max_turnss: no such option; did you mean "
          "'env.max_turns'?" },
        { "es_manager: {train: {env_group: 8}}",
          "config: a.yaml:1: es_manager.train.env_group: no such option (options there: tags, "
          "groups, n_groups, group_size, seed)" },
        { "es_manager: {val: {env_configs: {tag: [Bandit]}}}",
          "config: a.yaml:1: es_manager.val.env_configs.tag: no such option; did you mean "
          "'env.val.tags'?" },
        { "critic: {optim: {lrr: 1}}",
          "config: a.yaml:1: critic.optim.lrr: no such option; did you mean "
          "'worker.critic.optim.lr'?" },
        { "es_manager: {train: {env_configs: {tags: [CoordSokobann]}}}",
          "did you mean 'CoordSokoban'?" },
        { "es_manager: {train: {env_configs: {tags: [Bandit]}}}\n"
          "custom_envs: {Bandit: {env_config: {splits: test}}}",
          "config: a.yaml:2: env.definitions.Bandit.options.splits: no such option; did you mean "
          "'env.definitions.Bandit.options.split'?" },
        { "custom_envs: {Bandit: {env_typ: bandit}}\n"
          "es_manager: {train: {env_configs: {tags: [Bandit]}}}",
          "config: a.yaml:1: env.definitions.Bandit.env_typ: no such option (options there: type, "
          "instruction, max_actions, max_tokens, privileged_context, options)" },
        { "trainer: {validation_steps: 2}",
          "config: a.yaml:1: trainer.validation_steps = 2: not accepted: set env.val.groups to so "
          "many times as much" },
        { "lora: {rank: 16, dropout: 0.1}", "lora.dropout = 0.1: not accepted: the sampler has no "
                                            "dropout" },
        { "actor_rollout_ref: {rollout: {rollout_filter_type: median}}",
          "rollout_filter_type = 'median'" },
        { "data: {max_response_length: None2}", "data.max_response_length = 'None2'" },
        { "custom_envs: {CoordSokobn: {env_config: {dim_x: 5}}}",
          "(written custom_envs.CoordSokobn.env_config.dim_x): no such tag; did you mean "
          "'CoordSokoban'? (one of your own needs a type)" },
        { "env: {definitions: {Mine: {max_actions: 3}, CoordSokoban: {max_actions: 3}, Other: "
          "{type: sokoban}}}",
          "env.definitions.Mine = {max_actions: 3}: no such tag (one of your own needs a type)" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        reading r;
        ares_log_set(ARES_LOG_ERROR, 0);
        r.cfg = ares_config_new();
        ares_train_config_declare(r.cfg, &r.c);
        ares_config_load_text(r.cfg, "a.yaml", ares_view_of(cases[i].line));
        ares_config_override(r.cfg, "model_path=m");
        ares_config_resolve(r.cfg);
        (void)ares_train_config_check(r.cfg, &r.c, 1);
        CHECK_MSG(faults_with(r.cfg, cases[i].says) == 1, "%s: not said: %s", cases[i].line,
                  cases[i].says);
        ares_config_free(r.cfg);
    }
}

/* RAGEN refuses a share of the groups that is less than one mini-batch. */
TEST(a_filter_that_leaves_less_than_a_mini_batch_to_copy_is_refused)
{
    static const char *const shares[] = { "0.24", "0.25" };
    for (int i = 0; i < ARES_COUNT(shares); i++) {
        reading r;
        ares_log_set(ARES_LOG_ERROR, 0);
        r.cfg = ares_config_new();
        ares_train_config_declare(r.cfg, &r.c);
        ares_config_load_file(r.cfg, test_source("configs/presets/_2_sokoban.yaml"));
        ares_config_override(r.cfg, "model_path=m");
        ares_str word = { 0 };
        ares_str_addf(&word, "worker.rollout.rollout_filter_value=%s", shares[i]);
        ares_config_override(r.cfg, word.data);
        ares_config_resolve(r.cfg);
        (void)ares_train_config_check(r.cfg, &r.c, 1);
        CHECK_EQ(faults_with(r.cfg, "worker.rollout.rollout_filter_value = 0.24: that share of the "
                                    "step's 128 rows is less than a mini-batch, whose rows would "
                                    "be copies; set 0.25 or more"),
                 i == 0);
        ares_str_fini(&word);
        ares_config_free(r.cfg);
    }
}

/* ---------------- the table of docs/environments.md */
/* The first `...` of *rest, which then goes on after it; false: there is none. */
static bool next_span(ares_view *rest, ares_view *span)
{
    int64_t open = ares_view_find(*rest, ARES_VIEW("`"), 0),
            close = open < 0 ? -1 : ares_view_find(*rest, ARES_VIEW("`"), (size_t)open + 1);
    if (close < 0) return false;
    *span = (ares_view){ rest->data + open + 1, (size_t)(close - open) - 1 };
    *rest = (ares_view){ rest->data + close + 1, rest->len - (size_t)close - 1 };
    return true;
}

/* The row of a name, which may have one value: "trainer.validation_steps=1". */
static int find_alias(ares_view name)
{
    char text[160];
    for (int i = 0; i < train_alias_count; i++) {
        const ares_config_alias *a = &train_aliases[i];
        snprintf(text, sizeof text, "%s%s", a->from, a->when && *a->when == '=' ? a->when : "");
        if (ares_view_is(name, text)) return i;
    }
    return -1;
}

static void check_cell(ares_view cell, const ares_config_alias *a)
{
    ares_str want = { 0 };
    if (a->to && *a->to) ares_str_addf(&want, "`%s`", a->to);
    else ares_str_addf(&want, "%s: %s", a->to ? "ignored" : "refused", a->note);
    CHECK_MSG(ares_view_is(ares_view_trim(cell), want.data), "%s: %.*s, not %s", a->from,
              (int)cell.len, cell.data, want.data);
    ares_str_fini(&want);
}

TEST(the_names_of_ragen_in_the_documents_are_those_of_the_list_of_aliases)
{
    static const char *const ends[] = { "defaults", "custom_envs.?.env_config.grid_vocab" };
    ares_str text = { 0 };
    REQUIRE_OK(ares_file_read(test_source("docs/environments.md"), &text));
    char *line = strstr(text.data, "\n## Names of RAGEN\n"),
         *end = line ? strstr(line + 1, "\n## ") : NULL;
    REQUIRE(line && end);
    *end = 0;
    bool *told = ares_calloc((size_t)train_alias_count, sizeof *told);
    for (char *one; (one = strsep(&line, "\n"));) {
        char *middle = strstr(one, " | ");
        if (strncmp(one, "| `", 3) != 0 || !middle) continue;
        ares_view names = { one, (size_t)(middle - one) }, name,
                  cell = { middle + 3, strlen(middle + 3) - 2 };
        while (next_span(&names, &name)) {
            int i = find_alias(name);
            CHECK_MSG(i >= 0, "no such alias: %.*s", (int)name.len, name.data);
            if (i < 0) continue;
            told[i] = true;
            check_cell(cell, &train_aliases[i]);
        }
    }
    int first = find_alias(ares_view_of(ends[0])), last = find_alias(ares_view_of(ends[1]));
    REQUIRE(first >= 0 && last > first + 50);
    for (int i = first; i <= last; i++) /* of several rows for a name the first is told */
        CHECK_MSG(told[i] || train_aliases[i - 1].when, "not in the documents: %s",
                  train_aliases[i].from);
    ares_free(told);
    ares_str_fini(&text);
}
