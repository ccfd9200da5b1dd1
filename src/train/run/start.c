/*
 * Checks before the first step. First that every rank was started with the same program, options,
 * models, files and checkpoint as rank 0; then the files that `--check` reads and the user's
 * programs that it starts.
 */
#include "agents/agents.h"
#include "run.h"
#include "teacher_texts.h"
#include "trainer.h"
#include "vapor.h"

#include <stdio.h>
#include <string.h>

#include "ares/core.h"
#include "ares/io.h"

/*
 * The comparison of two configurations. Sections and maps are walked, also those of a list of maps;
 * everything else is compared whole.
 */

enum { MOST_SHOWN = 200 };

/* Whether two values are equal, members of maps in any order. */
static bool same(const ares_json *a, const ares_json *b)
{
    if (a->type != b->type) return false;
    if (a->type == ARES_JSON_BOOL) return a->boolean == b->boolean;
    if (a->type == ARES_JSON_INT && !a->big && !b->big) return a->integer == b->integer;
    if (a->type == ARES_JSON_INT || a->type == ARES_JSON_FLOAT) return a->number == b->number;
    if (a->type == ARES_JSON_STRING) return ares_view_eq(a->text, b->text);
    if (a->count != b->count) return false;
    for (int64_t i = 0; a->type == ARES_JSON_ARRAY && i < a->count; i++)
        if (!same(&a->items[i], &b->items[i])) return false;
    for (int64_t i = 0; a->type == ARES_JSON_OBJECT && i < a->count; i++) {
        const ares_json *other = ares_json_find(b, a->members[i].key);
        if (!other || !same(a->members[i].value, other)) return false;
    }
    return true;
}

/* Adds a value as JSON, without the end of a long one. v NULL: a map has no such member */
static void add_value(ares_str *out, const ares_json *v)
{
    size_t start = out->len, end = start + MOST_SHOWN;
    if (!v) {
        ares_str_add_z(out, "not set");
        return;
    }
    ares_json_write(out, v);
    if (out->len <= end) return;
    while (end > start && ((unsigned char)out->data[end] & 0xC0) == 0x80) end--;
    out->len = end;
    ares_str_add_z(out, "...");
}

enum { DIFFER_MOST = 5 }; /* options, or files, that a message names */

/* Compares a member of two maps; a or b NULL: that one has none. */
static void member(differing *x, const ares_json *a, const ares_json *b, const char *path,
                   ares_view key)
{
    ares_str inner = { 0 };
    if (*path) ares_str_addf(&inner, "%s.", path);
    ares_str_add_view(&inner, key);
    differ(x, a, b, inner.data);
    ares_str_fini(&inner);
}

/* Whether both are lists of equally many maps, such as worker.reward.rewards. */
static bool lists_of_maps(const ares_json *a, const ares_json *b)
{
    if (a->type != ARES_JSON_ARRAY || b->type != ARES_JSON_ARRAY || a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->items[i].type != ARES_JSON_OBJECT || b->items[i].type != ARES_JSON_OBJECT)
            return false;
    return true;
}

void differ(differing *x, const ares_json *a, const ares_json *b, const char *path)
{
    if (a && b && a->type == ARES_JSON_OBJECT && b->type == ARES_JSON_OBJECT) {
        for (int64_t i = 0; i < b->count; i++)
            member(x, ares_json_find(a, b->members[i].key), b->members[i].value, path,
                   b->members[i].key);
        for (int64_t i = 0; i < a->count; i++) /* members that b does not have */
            if (!ares_json_find(b, a->members[i].key))
                member(x, a->members[i].value, NULL, path, a->members[i].key);
    } else if (a && b && lists_of_maps(a, b)) {
        for (int64_t i = 0; i < a->count; i++) {
            char key[24];
            snprintf(key, sizeof key, "%lld", (long long)i);
            member(x, &a->items[i], &b->items[i], path, ares_view_of(key));
        }
    } else if (!x->may(x->cfg, path) && !(a && b && same(a, b))) {
        if (x->n++ == DIFFER_MOST) ares_str_add_z(x->text, "; ...");
        if (x->n > DIFFER_MOST) return;
        ares_str_addf(x->text, "%s%s: ", x->text->len ? "; " : "", path);
        add_value(x->text, a);
        ares_str_add_z(x->text, x->between);
        add_value(x->text, b);
    }
}

/*
 * Nothing else would notice a rank that was started with another learning rate, data set or model:
 * it would train on, and the sum of both gradients would be used. So each rank compares itself with
 * rank 0: the program's own file, the command and all options before anything depends on them, then
 * the models and files that the options name, then the checkpoint that the run goes on from. Models
 * may lie in other folders; files of rows may not, because their paths name rows without a
 * "data_source".
 */

/* Sends the text of rank 0 to all ranks, which parse it; a collective. */
static int from_rank_0(ares_world *world, ares_view mine, ares_arena *arena, const ares_json **out)
{
    int64_t bytes = (int64_t)mine.len;
    ARES_TRY(ares_world_broadcast(world, &bytes, sizeof bytes, 0));
    char *text = ares_arena_alloc(arena, (size_t)bytes + 1);
    if (ares_world_rank(world) == 0) memcpy(text, mine.data, mine.len);
    text[bytes] = 0;
    ARES_TRY(ares_world_broadcast(world, text, (size_t)bytes, 0));
    return ares_json_parse(arena, (ares_view){ text, (size_t)bytes }, "rank 0", out);
}

/* ---------------------------------------------------------------- options */
static bool may_differ(const ares_config *cfg, const char *path)
{
    static const char *const names[] = { "worker.actor.model.model_path",
                                         "worker.actor.model.tokenizer_path",
                                         "worker.critic.model.model_path", "trainer.threads" };
    (void)cfg;
    for (int i = 0; i < ARES_COUNT(names); i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

/* A hash of the contents of a file or folder, in 16 digits; else why there is none. */
typedef char fingerprint[24];
static void write_fingerprint(fingerprint out, int rc, uint64_t h)
{
    if (rc == ARES_OK) snprintf(out, sizeof(fingerprint), "%016llx", (unsigned long long)h);
    else snprintf(out, sizeof(fingerprint), "cannot be read");
}

static void fingerprint_of(const char *path, fingerprint out)
{
    uint64_t h = ARES_FNV1A;
    int rc = ares_file_exists(path) ? ares_file_hash(path, &h) : ARES_EIO;
    write_fingerprint(out, rc, h);
}

/* Fails with a list of what this rank and rank 0 were started with differently. */
static int compare_start(const ares_config *cfg, const ares_json *mine, const ares_json *lead)
{
    ares_str text = { 0 };
    differing x = { .cfg = cfg, .may = may_differ, .between = ", rank 0 has ", .text = &text };
    differ(&x, ares_json_get(mine, "program"), ares_json_get(lead, "program"),
           "fingerprint of the program");
    differ(&x, ares_json_get(mine, "command"), ares_json_get(lead, "command"), "command");
    differ(&x, ares_json_get(mine, "options"), ares_json_get(lead, "options"), "");
    int rc = x.n ? ares_fail(ARES_ECONFIG,
                             "run: not started as rank 0 was (%s); start all ranks with one "
                             "program, command and configuration "
                             "(docs/ranks.md#what-ranks-must-share)",
                             text.data)
                 : ARES_OK;
    ares_str_fini(&text);
    return rc;
}

int ares_train_same_start(const ares_config *cfg, const char *command, ares_world *world)
{
    if (ares_world_size(world) < 2) return ARES_OK;
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *mine, *lead;
    fingerprint program;
    fingerprint_of("/proc/self/exe", program);
    ares_json_begin(&text, '{');
    ares_json_write_string(ares_json_key(&text, "program"), ares_view_of(program));
    ares_json_write_string(ares_json_key(&text, "command"), ares_view_of(command));
    ares_json_write(ares_json_key(&text, "options"), ares_config_get(cfg, ""));
    ares_json_end(&text, '}');
    int rc = ares_json_parse(&arena, ares_str_view(&text), "this rank", &mine);
    if (rc == ARES_OK) rc = from_rank_0(world, ares_str_view(&text), &arena, &lead);
    if (rc == ARES_OK) rc = compare_start(cfg, mine, lead);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return ares_world_share_error(world, rc);
}

/* ---------------------------------------------------------------- files
 * They are noted in a JSON object: for each file an array of its path and fingerprint, under the
 * option that names it.
 */
static void note(ares_str *out, const char *option, const char *path, const char *print)
{
    ares_json_begin(ares_json_key(out, option), '[');
    ares_json_write_string(out, ares_view_of(path));
    ares_json_write_string(out, ares_view_of(print));
    ares_json_end(out, ']');
}

static void note_file(ares_str *out, const char *option, const char *path)
{
    fingerprint print;
    if (!path) return;
    fingerprint_of(path, print);
    note(out, option, path, print);
}

/* A file of rows, or a folder of such files. name: tells it from the option's other ones */
static void note_rows(ares_str *out, const char *option, const char *name, const char *path)
{
    fingerprint print;
    ares_str key = { 0 };
    uint64_t h = 0;
    int rc = ares_rows_fingerprint(path, &h);
    write_fingerprint(print, rc, h);
    ares_str_addf(&key, "%s.%s", option, name);
    note(out, key.data, path, print);
    ares_str_fini(&key);
}

static void note_list(ares_str *out, const char *option, const ares_texts *paths)
{
    char name[24];
    for (int64_t i = 0; i < paths->count; i++) {
        snprintf(name, sizeof name, "%lld", (long long)i);
        note_rows(out, option, name, paths->items[i]);
    }
}

static void note_weights(ares_str *out, const char *option, const char *dir)
{
    fingerprint print;
    uint64_t h = 0;
    int rc = ares_model_fingerprint(dir, &h);
    write_fingerprint(print, rc, h);
    note(out, option, dir, print);
}

/* The files that are read of a model's directory beside its weights and config.json. */
static void note_tokenizer_files(ares_str *out, const char *option, const char *dir)
{
    ares_str path = { 0 }, name = { 0 };
    for (const char *const *file = state_tokenizer_files; *file; file++) {
        ares_str_clear(&name);
        ares_str_addf(&name, "%s/%s", option, *file);
        note_file(out, name.data, ares_path_join(&path, dir, *file));
    }
    ares_str_fini(&path);
    ares_str_fini(&name);
}

/* A model: its weights, config.json and tokenizer files. path: as in the option; NULL: not set */
static void note_model(ares_str *out, const char *option, const char *path)
{
    ares_str dir = { 0 }, file = { 0 }, name = { 0 };
    if (!path) return;
    if (ares_model_find(path, &dir) != ARES_OK) ares_str_add_z(&dir, path);
    note_weights(out, option, dir.data);
    ares_str_addf(&name, "%s/config.json", option);
    note_file(out, name.data, ares_path_join(&file, dir.data, "config.json"));
    note_tokenizer_files(out, option, dir.data);
    ares_str_fini(&dir);
    ares_str_fini(&file);
    ares_str_fini(&name);
}

/* path: as in the option; NULL: not set */
static void note_adapter(ares_str *out, const char *option, const char *path)
{
    ares_str dir = { 0 };
    if (!path) return;
    if (ares_adapter_find(path, &dir) == ARES_OK) note_weights(out, option, dir.data);
    else ares_error_clear(); /* told where it is opened */
    ares_str_fini(&dir);
}

static void note_files(ares_config *cfg, const ares_train_config *c, ares_str *out)
{
    static const char tokenizer[] = "worker.actor.model.tokenizer_path"; /* a folder or a file */
    const ares_data_config *d = &c->data;
    eval_sets sets;
    note_model(out, "worker.actor.model.model_path", c->actor.model_path);
    if (c->actor.tokenizer_path && ares_dir_exists(c->actor.tokenizer_path))
        note_tokenizer_files(out, tokenizer, c->actor.tokenizer_path);
    else note_file(out, tokenizer, c->actor.tokenizer_path);
    note_model(out, "worker.critic.model.model_path", c->critic.model_path);
    note_model(out, "worker.ref.model.model_path", c->ref.model_path);
    note_adapter(out, "worker.actor.model.lora.adapter_path", c->actor_lora.adapter_path);
    note_adapter(out, "worker.critic.model.lora.adapter_path", c->critic_lora.adapter_path);
    note_file(out, "data.format_prompt", d->format_prompt);
    note_file(out, "data.override_chat_template", d->override_chat_template);
    note_file(out, "worker.rollout.trigger_tokens_file", c->rollout.trigger_tokens_file);
    if (!c->trainer.val_only) note_list(out, "data.train_files", &d->train_files);
    note_list(out, "data.val_files", &d->val_files);
    eval_sets_read(cfg, c, &sets);
    for (int64_t i = 0; i < sets.n; i++)
        note_rows(out, "eval.datasets", sets.items[i].name, sets.items[i].path);
}

/* of NULL: the option is not set on that rank */
static void add_note(ares_str *out, const ares_json *of)
{
    if (of) ares_str_addf(out, "%s (%s)", of->items[0].text.data, of->items[1].text.data);
    else ares_str_add_z(out, "none");
}

/* Counts and describes a file that differs. */
static void compare_file(ares_view option, const ares_json *a, const ares_json *b, int *n,
                         ares_str *text)
{
    if ((a && b && ares_view_eq(a->items[1].text, b->items[1].text)) || (*n)++ >= DIFFER_MOST)
        return;
    if (text->len) ares_str_add_z(text, "; ");
    ares_str_add_view(text, option);
    ares_str_add_z(text, ": ");
    add_note(text, a);
    ares_str_add_z(text, ", rank 0 has ");
    add_note(text, b);
}

/* Fails with a list of files that differ, or that only one of both has. */
static int compare_files(const ares_json *mine, const ares_json *lead)
{
    ares_str text = { 0 };
    int n = 0;
    for (int64_t i = 0; i < mine->count; i++) {
        ares_view option = mine->members[i].key;
        compare_file(option, mine->members[i].value, ares_json_find(lead, option), &n, &text);
    }
    for (int64_t i = 0; i < lead->count; i++) {
        ares_view option = lead->members[i].key;
        if (!ares_json_find(mine, option))
            compare_file(option, NULL, lead->members[i].value, &n, &text);
    }
    int rc = n ? ares_fail(ARES_ECONFIG,
                           "run: other contents than on rank 0, by their fingerprints (%s%s); give "
                           "all ranks the same files (docs/ranks.md#what-ranks-must-share)",
                           text.data, n > DIFFER_MOST ? "; ..." : "")
               : ARES_OK;
    ares_str_fini(&text);
    return rc;
}

/* Compares notes with rank 0's. text: this rank's, without the last brace; freed here */
static int same_notes(ares_world *world, ares_str *text)
{
    ares_arena arena = { 0 };
    const ares_json *mine, *lead;
    ares_json_end(text, '}');
    int rc = ares_json_parse(&arena, ares_str_view(text), "this rank", &mine);
    if (rc == ARES_OK) rc = from_rank_0(world, ares_str_view(text), &arena, &lead);
    if (rc == ARES_OK) rc = compare_files(mine, lead);
    ares_arena_fini(&arena);
    ares_str_fini(text);
    return ares_world_share_error(world, rc);
}

int same_files(ares_config *cfg, const ares_train_config *c, ares_world *world)
{
    if (ares_world_size(world) < 2) return ARES_OK;
    ares_str text = { 0 };
    ares_json_begin(&text, '{');
    note_files(cfg, c, &text);
    return same_notes(world, &text);
}

int same_checkpoint(const char *dir, ares_world *world)
{
    static const struct {
        const char *what, *name;
    } files[] = { { "state of the checkpoint", "state.json" },
                  { "data of the checkpoint", "source.json" },
                  { "controls of the checkpoint", "controls.json" } };
    if (ares_world_size(world) < 2) return ARES_OK;
    ares_str text = { 0 }, path = { 0 };
    ares_json_begin(&text, '{');
    for (int i = 0; i < ARES_COUNT(files); i++)
        note_file(&text, files[i].what, ares_path_join(&path, dir, files[i].name));
    static const char *const weights[] = { "model", "adapter" }; /* it has one of them */
    for (int i = 0; i < ARES_COUNT(weights); i++)
        if (ares_dir_exists(ares_path_join(&path, dir, weights[i])))
            note_weights(&text, "weights of the checkpoint", path.data);
    ares_str_fini(&path);
    return same_notes(world, &text);
}

/*
 * What `--check` does besides checking options. It reads what a run reads before its first step, by
 * the run's own functions: its model and tokenizer without the weights, the first rows of each
 * file, the checkpoint that it begins with. Then it starts the user's programs once.
 */

enum { FIRST_ROWS = 100 };

/* A file is missing that may be on the machine that the configuration is for: a warning. */
static int not_here(const char *missed)
{
    ares_warn("%s; %s", ares_error_message(), missed);
    ares_error_clear();
    return ARES_OK;
}

int check_open_model(training *t)
{
    ares_str checkpoint = { 0 };
    int rc = rundir_named(t->cfg, &checkpoint);
    if (rc == ARES_OK) rc = training_open_counting(t, 1);
    if (rc == ARES_EIO && !ares_file_exists(t->cfg->actor.model_path))
        rc = not_here("rows are checked without their tokens");
    else if (rc == ARES_OK) rc = training_open_model(t, NULL);
    if (rc == ARES_OK && t->model && checkpoint.len) rc = state_fits(t, checkpoint.data);
    ares_str_fini(&checkpoint);
    return rc;
}

int check_open_rows(const ares_row_file *file, const ares_data_config *data, bool need_answer,
                    ares_dataset **d)
{
    ares_row_file first = *file;
    first.limit = FIRST_ROWS;
    int rc = ares_dataset_load_files(&first, 1, data, need_answer, d);
    return rc == ARES_EIO ? not_here("none of its rows was checked") : rc;
}

int check_lengths(int rc, bool drops)
{
    return rc == ARES_ELIMIT && drops ? not_here("these are its first rows alone") : rc;
}

/* Takes the first rows of a file into a source as a run does, and closes it. */
static int check_file(ares_trainer *t, const ares_row_file *file, const ares_data_config *data,
                      bool trained)
{
    ares_prompt_encoder *e = NULL;
    ares_dataset *d;
    ares_source *into = trained ? &t->run.source : &t->run.val;
    bool judged = !trained || trainer_judges(t->run.cfg);
    ARES_TRY(check_open_rows(file, data, judged && ares_reward_reads_truth(t->reward), &d));
    if (!d) return ARES_OK;
    int rc = t->run.model ? training_open_encoder(&t->run, data, &e) : ARES_OK;
    if (rc == ARES_OK) rc = trainer_take_rows(t, d, e, trained);
    if (rc == ARES_OK && e) rc = ares_source_of_dataset(d, &(ares_order){ .draw = 1 }, into);
    if (rc != ARES_OK || !e) ares_dataset_free(d);
    t->run.encoder = e;
    if (rc == ARES_OK && e) rc = trainer_check_media(t);
    if (rc == ARES_OK && e && trained && teacher_wanted(t->run.cfg))
        rc = teacher_check_rows(t->run.cfg, into,
                                t->run.cfg->data.train_files.count == 1 &&
                                    ares_source_count(into) < FIRST_ROWS);
    if (rc == ARES_OK && e && trained && vapor_wanted(t->run.cfg)) {
        rc = vapor_open(t, &t->vapor); /* encodes stored answers as the run does */
        vapor_close(t->vapor);
        t->vapor = NULL;
    }
    ares_source_close(into);
    t->run.encoder = NULL;
    ares_prompt_encoder_free(e);
    return check_lengths(rc, data->filter_overlong_prompts);
}

/* All files of reinforcement learning on rows. */
static int check_files(ares_trainer *t, ares_config *cfg)
{
    const ares_train_config *c = t->run.cfg;
    const ares_data_config *data = &c->data;
    eval_sets evals = { 0 };
    eval_sets_read(cfg, c, &evals);
    ARES_TRY(ares_reward_open(cfg, &c->reward, NULL, &t->reward));
    for (int64_t i = 0; !c->trainer.val_only && i < data->train_files.count; i++)
        ARES_TRY(check_file(t, &(ares_row_file){ .path = data->train_files.items[i] }, data, true));
    for (int64_t i = 0; i < data->val_files.count; i++)
        ARES_TRY(check_file(t, &(ares_row_file){ .path = data->val_files.items[i] }, data, false));
    for (int64_t i = 0; i < evals.n; i++) {
        const eval_set *e = &evals.items[i];
        int rc = check_file(
            t, &(ares_row_file){ .path = e->path, .source = e->name, .metadata = e->metadata },
            &e->data, false);
        if (rc != ARES_OK) return ares_fail_in(rc, "eval.datasets: '%s'", e->name);
    }
    return ARES_OK;
}

int ares_train_check_files(ares_config *cfg, const ares_train_config *c)
{
    ares_trainer *t = ares_calloc(1, sizeof *t);
    trainer_init(t, c, NULL);
    int rc = check_open_model(&t->run);
    teacher_limits limits;
    if (rc == ARES_OK && t->run.model && c->distillation.enabled && !c->trainer.val_only)
        rc = teacher_check(&c->distillation, t->run.tokenizer, &t->run.model->cfg, &limits);
    if (rc == ARES_OK && !agents_wanted(c)) rc = check_files(t, cfg);
    trainer_close(t);
    ares_free(t);
    return rc;
}

void ares_train_check_trackers(ares_config *cfg, const ares_train_config *c)
{
    for (int64_t i = 0; !c->trainer.val_only && i < c->trainer.logger.count; i++)
        if (ares_tracker_check(c->trainer.logger.items[i], c->trainer.project_name) != ARES_OK)
            ares_config_fault(cfg, "trainer.logger", "%s", ares_error_message());
    ares_error_clear();
}

/* Starts a reward's programs once, so that a misspelt one is known before a run. */
static int try_reward(ares_config *cfg, const ares_train_config *c)
{
    const ares_texts *files = c->data.train_files.count ? &c->data.train_files : &c->data.val_files;
    ares_reward *reward;
    ares_dataset *d;
    ARES_TRY(ares_reward_open(cfg, &c->reward, NULL, &reward));
    int rc = ARES_OK;
    if (files->count && ares_reward_users(reward)) {
        ares_str first = { 0 }; /* the file, of which only the first row is read */
        const char *path = files->items[0], *slice = strstr(path, "@[");
        ares_str_addf(&first, "%.*s@[0:1]", slice ? (int)(slice - path) : (int)strlen(path), path);
        const ares_row_file file = { .path = first.data };
        rc = ares_dataset_load_files(&file, 1, &c->data, ares_reward_reads_truth(reward), &d);
        ares_str_fini(&first);
        if (rc == ARES_OK) {
            rc = ares_reward_try(reward, ares_dataset_row(d, 0));
            ares_dataset_free(d);
        }
    }
    ares_reward_close(reward);
    return rc;
}

/* Starts an environment of each tag whose type is a program, and resets it once. */
static int try_environments(ares_config *cfg, const ares_agent_side_config *side)
{
    for (int64_t k = 0; k < side->tags.count; k++) {
        ares_env_definition d;
        ares_env e;
        ARES_TRY(ares_env_define(cfg, side->tags.items[k], &d));
        if (!d.type->starts_program) continue;
        ARES_TRY(ares_env_definition_open(&d));
        int rc = ares_env_init(&e, &d);
        if (rc == ARES_OK) {
            rc = ares_env_reset(&e, &(ares_env_start){ .seed = (uint64_t)side->seed });
            if (rc == ARES_OK && e.failure)
                rc = ares_fail(ARES_ECHILD, "env: %s: %s", d.tag, e.failure);
            ares_env_fini(&e);
        }
        ares_env_definition_close(&d);
        if (rc != ARES_OK) return rc;
    }
    return ARES_OK;
}

int ares_train_try_programs(ares_config *cfg, const ares_train_config *c)
{
    if (!agents_wanted(c)) return try_reward(cfg, c);
    ARES_TRY(try_environments(cfg, &c->agents_train));
    return try_environments(cfg, &c->agents_val);
}
