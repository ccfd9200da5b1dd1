/*
 * exactness.json: what a run promises about its numbers and what was compared (docs/exactness.md).
 * First the counts, which a checkpoint keeps, then the file.
 */
#include "agents/agents.h"
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const reason_names[EXACT_REASONS] = {
#define NAME(name, text) #name,
    EXACTNESS_REASONS(NAME)
#undef NAME
};

void exactness_add(exactness *sum, const exactness *of_update, int64_t step, int64_t tokens)
{
    int64_t seen = of_update->compared;
    sum->steps++;
    sum->compared += of_update->compared;
    for (int k = 0; k < EXACT_REASONS; k++) {
        sum->not_compared[k] += of_update->not_compared[k];
        seen += of_update->not_compared[k];
    }
    sum->not_compared[EXACT_no_forward] += tokens - seen; /* the step made no update */
    sum->max_abs = fmax(sum->max_abs, of_update->max_abs);
    if (sum->step || !of_update->row) return;
    sum->step = step;
    sum->row = of_update->row;
    sum->token = of_update->token;
}

/* The members that state.json and exactness.json have in common. */
static void write_counts(const exactness *x, ares_str *o)
{
    ares_json_write_i64(ares_json_key(o, "steps"), x->steps);
    ares_json_write_i64(ares_json_key(o, "tokens_compared"), x->compared);
    ares_json_begin(ares_json_key(o, "tokens_not_compared"), '{');
    for (int k = 0; k < EXACT_REASONS; k++)
        if (x->not_compared[k])
            ares_json_write_i64(ares_json_key(o, reason_names[k]), x->not_compared[k]);
    ares_json_end(o, '}');
    ares_json_write_double(ares_json_key(o, "rollout_train_max_abs"), x->max_abs);
    ares_json_key(o, "first_difference");
    if (!x->step) {
        ares_json_write_null(o);
        return;
    }
    ares_json_begin(o, '{');
    ares_json_write_i64(ares_json_key(o, "step"), x->step);
    ares_json_write_i64(ares_json_key(o, "row"), x->row);
    ares_json_write_i64(ares_json_key(o, "token"), x->token);
    ares_json_end(o, '}');
}

void exactness_save(const exactness *x, ares_str *json)
{
    ares_json_begin(json, '{');
    write_counts(x, json);
    ares_json_end(json, '}');
}

void exactness_load(exactness *x, const ares_json *saved)
{
    *x = (exactness){ 0 };
    if (!saved || saved->type != ARES_JSON_OBJECT) return; /* of an older program: it counts anew */
    const ares_json *not = ares_json_get(saved, "tokens_not_compared"),
                    *first = ares_json_get(saved, "first_difference");
    (void)ares_json_get_i64(saved, "steps", 0, &x->steps);
    (void)ares_json_get_i64(saved, "tokens_compared", 0, &x->compared);
    for (int k = 0; k < EXACT_REASONS && not&&not->type == ARES_JSON_OBJECT; k++)
        (void)ares_json_get_i64(not, reason_names[k], 0, &x->not_compared[k]);
    (void)ares_json_get_double(saved, "rollout_train_max_abs", 0, &x->max_abs);
    if (!first || first->type != ARES_JSON_OBJECT) return;
    (void)ares_json_get_i64(first, "step", 0, &x->step);
    (void)ares_json_get_i64(first, "row", 0, &x->row);
    (void)ares_json_get_i64(first, "token", 0, &x->token);
}

int exactness_reasons(const ares_trainer *t, ares_str *list)
{
    int n = 0;
    ares_json_begin(list, '[');
    if (strcmp(t->run.cfg->trainer.rollout_log, "none") == 0) {
        ares_json_write_string(
            list, ARES_VIEW("trainer.rollout_log is none: no step's answers are written"));
        n++;
    }
    if (ares_reward_users(t->reward)) {
        ares_json_write_string(list,
                               ARES_VIEW("a reward is a program of the user's, which may judge the "
                                         "same answer otherwise"));
        n++;
    }
    const ares_agent_side_config *tags = &t->run.cfg->agents_train;
    for (int64_t k = 0; t->agents && k < tags->tags.count; k++) {
        const ares_env_definition *d = &t->agents->train.definitions[k];
        ares_str text = { 0 };
        if (!d->type->waits && !d->type->starts_program && !d->type->program) continue;
        ares_str_addf(&text,
                      "the environment %s is a program or server of the user's, which may answer "
                      "the same actions otherwise",
                      d->tag);
        ares_json_write_string(list, ares_str_view(&text));
        ares_str_fini(&text);
        n++;
    }
    if (t->run.forced.len) {
        ares_json_write_string(list, ARES_VIEW("the run went on with other options (--force), with "
                                               "which earlier steps were not made"));
        n++;
    }
    ares_json_end(list, ']');
    return n;
}

int exactness_forced(ares_trainer *t, const char *changed)
{
    training *r = &t->run;
    ares_str path = { 0 }, text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *old = NULL;
    if (ares_file_exists(ares_path_join(&path, r->run_dir.data, "exactness.json")) &&
        ares_file_read(path.data, &text) == ARES_OK &&
        ares_json_parse(&arena, ares_view_trim(ares_str_view(&text)), path.data, &old) == ARES_OK)
        old = ares_json_get(old, "forced");
    else old = NULL;
    ares_error_clear();
    bool some = old && old->type == ARES_JSON_ARRAY && old->count;
    ares_str_clear(&r->forced);
    if (some || *changed) {
        ares_json_begin(&r->forced, '[');
        for (int64_t i = 0; some && i < old->count; i++)
            ares_json_write(&r->forced, &old->items[i]);
        if (*changed) {
            ares_json_begin(&r->forced, '{');
            ares_json_write_i64(ares_json_key(&r->forced, "after_step"), r->step);
            ares_json_write_string(ares_json_key(&r->forced, "changed"), ares_view_of(changed));
            ares_json_end(&r->forced, '}');
        }
        ares_json_end(&r->forced, ']');
    }
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_arena_fini(&arena);
    return *changed ? exactness_write(t) : ARES_OK;
}

static void write_hex(ares_str *o, const char *key, uint64_t x)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)x);
    ares_json_write_string(ares_json_key(o, key), ares_view_of(text));
}

/* The program and the machine: what the bits may depend on, and what they must not. */
static void write_machine(const ares_trainer *t, ares_str *o)
{
    const training *r = &t->run;
    const ares_train_config *c = r->cfg;
    const char *name = r->device.k->name, *isa = strncmp(name, "cpu ", 4) == 0 ? name + 4 : name;
    ares_str text = { 0 };
    ares_json_write_string(ares_json_key(o, "version"), ARES_VIEW(ARES_VERSION));
    ares_json_begin(ares_json_key(o, "build"), '{');
    ares_json_write_string(ares_json_key(o, "compiler"), ARES_VIEW(ARES_BUILD_COMPILER));
    ares_json_write_string(ares_json_key(o, "flags"), ARES_VIEW(ARES_BUILD_FLAGS));
    ares_json_end(o, '}');
    ares_json_write_string(ares_json_key(o, "kernels"), ares_view_of(c->trainer.kernels));
    ares_json_write_string(ares_json_key(o, "isa"), ares_view_of(isa));
    (void)ares_file_line("/proc/cpuinfo", "model name", &text);
    ares_json_write_string(ares_json_key(o, "processor"), ares_str_view(&text));
    ares_json_write_i64(ares_json_key(o, "threads"), ares_pool_threads(r->device.pool));
    ares_json_write_i64(ares_json_key(o, "ranks"), ares_world_size(r->world));
    ares_str_clear(&text);
    ares_str_addf(&text, "products %s, weights %s, activations %s",
                  training_type(c->actor.arithmetic) == ARES_BF16 ? "bf16" : "f32",
                  training_storage(c) == ARES_BF16 ? "bf16" : "f32",
                  r->device.k->act == ARES_BF16 ? "bf16" : "f32");
    ares_json_write_string(ares_json_key(o, "arithmetic"), ares_str_view(&text));
    ares_str_fini(&text);
}

int exactness_write(const ares_trainer *t)
{
    const training *r = &t->run;
    ares_str o = { 0 }, text = { 0 }, path = { 0 }, reasons = { 0 };
    unsigned char digest[32];
    ares_sha256 sum;
    int rc = ares_file_read(ares_path_join(&path, r->run_dir.data, "config.yaml"), &text);
    ares_sha256_init(&sum);
    ares_sha256_add(&sum, text.data, text.len);
    ares_sha256_end(&sum, digest);
    ares_json_begin(&o, '{');
    ares_json_write_i64(ares_json_key(&o, "schema"), 1);
    write_machine(t, &o);
    ares_json_begin(ares_json_key(&o, "model"), '{');
    ares_json_write_string(ares_json_key(&o, "path"), ares_str_view(&r->model_dir));
    write_hex(&o, "fingerprint", r->model_weights);
    ares_json_write_string(ares_json_key(&o, "architecture"),
                           ares_view_of(r->model->cfg.model_type));
    ares_json_end(&o, '}');
    if (ares_source_count(&r->source))
        ares_json_write_string(ares_json_key(&o, "training_data"),
                               ares_view_of(train_origin_of(r).data));
    ares_str_clear(&text);
    for (int i = 0; i < 32; i++) ares_str_addf(&text, "%02x", digest[i]);
    ares_json_write_string(ares_json_key(&o, "config_sha256"), ares_str_view(&text));
    write_counts(&r->exact, &o);
    if (r->forced.len) ares_json_splice(ares_json_key(&o, "forced"), ares_str_view(&r->forced));
    int n = exactness_reasons(t, &reasons);
    ares_json_write_bool(ares_json_key(&o, "replayable"), n == 0);
    if (n) ares_json_splice(ares_json_key(&o, "reasons"), ares_str_view(&reasons));
    ares_json_end(&o, '}');
    ares_str_clear(&text);
    ares_json_indent(&text, ares_str_view(&o), 2);
    ares_str_add_char(&text, '\n');
    if (rc == ARES_OK)
        rc = ares_file_write_atomic(ares_path_join(&path, r->run_dir.data, "exactness.json"),
                                    text.data, text.len);
    ares_str_fini(&o);
    ares_str_fini(&text);
    ares_str_fini(&path);
    ares_str_fini(&reasons);
    return rc;
}
