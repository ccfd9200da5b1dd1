/* Adapters as PEFT selects, reads and merges them; lora_open has this program's own rules. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter.h"
#include "golden.h"
#include "internal.h"

static const char *path_of(golden *g, const char *key)
{
    return ares_arena_printf(g->arena, "%s/%s", g->folder, golden_z(g, key));
}

static bool base_of(golden *g, const char **dir, ares_model_config *c)
{
    *dir = path_of(g, "model");
    return golden_ok(g, ares_model_config_load(*dir, c));
}

static int by_name(const void *a, const void *b)
{
    const lora_module *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Whether a failure is expected, or was one: the names that its message holds. */
static bool failed_as_expected(golden *g, int rc)
{
    const ares_json *names = ares_json_get(g->expected, "error_names");
    bool expected = names || ares_json_get(g->expected, "error");
    if (!expected) return !golden_ok(g, rc);
    if (rc == ARES_OK) golden_fail(g, "no error");
    for (int64_t i = 0; names && i < names->count; i++, g->checks++)
        if (!strstr(ares_error_message(), names->items[i].text.data))
            golden_fail(g, "'%s' does not name %s", ares_error_message(),
                        names->items[i].text.data);
    g->checks++;
    return true;
}

GOLDEN(lora, lora_targets)
{
    const char *dir;
    ares_model_config c;
    lora_config lora;
    if (!base_of(g, &dir, &c)) return;
    int rc = lora_select(&c, true, true, golden_in(g, "config"), "adapter", g->arena, &lora);
    if (failed_as_expected(g, rc)) return;
    lora_module *got = ares_arena_calloc(g->arena, (size_t)lora.n, sizeof *got);
    memcpy(got, lora.modules, (size_t)lora.n * sizeof *got);
    qsort(got, (size_t)lora.n, sizeof *got, by_name);
    const ares_json *want = golden_want(g, "modules");
    golden_in_single(g);
    if (want->count != lora.n)
        golden_fail(g, "%d modules, not %lld", lora.n, (long long)want->count);
    for (int32_t i = 0; i < lora.n && i < want->count; i++) {
        const ares_json *x = &want->items[i];
        golden_text(g, "name", ares_view_of(got[i].name), &x->items[0]);
        golden_equal(g, "rank", got[i].rank, &x->items[1]);
        golden_near(g, "scale", (double)got[i].scale, &x->items[2]);
    }
}

/* The name as the case's `rename` changes it. */
static const char *renamed(golden *g, const char *name)
{
    const ares_json *rename = ares_json_get(g->inputs, "rename");
    for (int64_t i = 0; rename && i < rename->count; i++) {
        const char *old = ares_arena_copy(g->arena, rename->members[i].key.data,
                                          rename->members[i].key.len),
                   *at = strstr(name, old);
        if (!at) continue;
        name = ares_arena_printf(g->arena, "%.*s%s%s", (int)(at - name), name,
                                 rename->members[i].value->text.data, at + strlen(old));
    }
    return name;
}

static bool is_dropped(golden *g, const char *name)
{
    const ares_json *drop = ares_json_get(g->inputs, "drop");
    for (int64_t i = 0; drop && i < drop->count; i++)
        if (ares_view_is(drop->items[i].text, name)) return true;
    return false;
}

static void declare(ares_safetensors_writer *w, const char *name, const ares_json *shape,
                    int64_t *count)
{
    int64_t sizes[8];
    *count = 1;
    for (int64_t k = 0; k < shape->count; k++) *count *= sizes[k] = shape->items[k].integer;
    ares_safetensors_declare(w, name, ARES_F32, (int)shape->count, sizes);
}

/* A copy of the adapter with the case's changes, in `to`. */
static bool write_changed(golden *g, const char *from, const char *to)
{
    const ares_json *changed = ares_json_get(g->inputs, "config"), *config,
                    *without = ares_json_get(g->inputs, "config_without"),
                    *add = ares_json_get(g->inputs, "add"),
                    *reshape = ares_json_get(g->inputs, "reshape");
    ares_str path = { 0 }, text = { 0 }, out = { 0 };
    ares_safetensors *s;
    ares_safetensors_writer *w;
    if (!golden_ok(g, ares_file_read(ares_path_join(&path, from, "adapter_config.json"), &text)) ||
        !golden_ok(g, ares_json_parse(g->arena, ares_str_view(&text), "config", &config)))
        return false;
    ares_json_begin(&out, '{');
    for (int64_t i = 0; i < config->count; i++) {
        bool gone = changed && ares_json_find(changed, config->members[i].key);
        for (int64_t k = 0; without && k < without->count; k++)
            gone |= ares_view_eq(without->items[k].text, config->members[i].key);
        if (!gone)
            ares_json_write(ares_json_key_view(&out, config->members[i].key),
                            config->members[i].value);
    }
    for (int64_t i = 0; changed && i < changed->count; i++)
        ares_json_write(ares_json_key_view(&out, changed->members[i].key),
                        changed->members[i].value);
    ares_json_end(&out, '}');
    golden_ok(g,
              ares_file_write(ares_path_join(&path, to, "adapter_config.json"), out.data, out.len));
    golden_ok(g,
              ares_safetensors_open(ares_path_join(&path, from, "adapter_model.safetensors"), &s));
    golden_ok(g,
              ares_safetensors_create(ares_path_join(&path, to, "adapter_model.safetensors"), &w));
    int64_t n = ares_safetensors_count(s), count;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i++) {
            const ares_tensor_info *t = ares_safetensors_at(s, i);
            const ares_json *shape = ares_json_get(reshape, t->name);
            if (is_dropped(g, t->name)) continue;
            if (!pass && shape) declare(w, renamed(g, t->name), shape, &count);
            else if (!pass)
                ares_safetensors_declare(w, renamed(g, t->name), t->dtype, t->rank, t->shape);
            else {
                int64_t bytes = t->bytes;
                for (int64_t k = 0; shape && k < shape->count; k++)
                    bytes = k ? bytes * shape->items[k].integer : 4 * shape->items[k].integer;
                golden_ok(g, ares_safetensors_write(w, t->data, (size_t)bytes));
            }
        }
        for (int64_t i = 0; add && i < add->count; i++) {
            const char *name =
                ares_arena_copy(g->arena, add->members[i].key.data, add->members[i].key.len);
            count = 1;
            for (int64_t k = 0; k < add->members[i].value->count; k++)
                count *= add->members[i].value->items[k].integer;
            float *zeros = ares_arena_calloc(g->arena, (size_t)count, sizeof *zeros);
            if (!pass) declare(w, name, add->members[i].value, &count);
            else golden_ok(g, ares_safetensors_write(w, zeros, (size_t)count * sizeof *zeros));
        }
    }
    golden_ok(g, ares_safetensors_finish(w));
    ares_safetensors_close(s);
    ares_str_fini(&path);
    ares_str_fini(&text);
    ares_str_fini(&out);
    return !g->failed;
}

GOLDEN(lora, lora_open)
{
    char folder[] = "/tmp/ares_golden_XXXXXX";
    const char *dir;
    ares_model_config c;
    peft_adapter peft;
    ares_str log = { 0 }, path = { 0 };
    if (!base_of(g, &dir, &c) || !mkdtemp(folder)) return;
    if (write_changed(g, path_of(g, "adapter"), folder)) {
        ares_log_keep(ares_path_join(&path, folder, "log.txt"));
        int rc = peft_open(folder, dir, &c, true, g->arena, &peft);
        ares_log_keep(NULL);
        const ares_json *names = ares_json_get(g->expected, "warning_names");
        if (ares_file_exists(path.data)) golden_ok(g, ares_file_read(path.data, &log));
        if (!failed_as_expected(g, rc)) {
            golden_equal(g, "opens", rc == ARES_OK, golden_want(g, "opens"));
            if (!names && log.len) golden_fail(g, "a warning: %s", log.data);
        }
        for (int64_t i = 0; names && i < names->count; i++)
            if (!log.data || !strstr(log.data, names->items[i].text.data))
                golden_fail(g, "no warning names %s", names->items[i].text.data);
    }
    (void)ares_dir_remove(folder);
    ares_str_fini(&log);
    ares_str_fini(&path);
}

GOLDEN(lora, lora_merge)
{
    char folder[] = "/tmp/ares_golden_XXXXXX";
    ares_merge_report report;
    ares_safetensors *got = NULL, *want = NULL, *base = NULL;
    const char *dir = path_of(g, "model");
    if (!mkdtemp(folder)) return;
    const char *out = ares_arena_printf(g->arena, "%s/merged", folder);
    if (golden_ok(g, ares_adapter_merge(dir, path_of(g, "adapter"), out, "fp32", &report)) &&
        golden_ok(g, ares_safetensors_open(out, &got)) &&
        golden_ok(g, ares_safetensors_open(dir, &base)) &&
        golden_ok(g, ares_safetensors_open(ares_arena_printf(g->arena, "%s/%s", g->folder,
                                                             golden_want(g, "weights")->text.data),
                                           &want))) {
        double within = ares_json_get(g->root, "tolerance")->number;
        for (int64_t i = 0; i < ares_safetensors_count(want); i++) {
            const ares_tensor_info *t = ares_safetensors_at(want, i),
                                   *own = ares_safetensors_find(got, t->name);
            if (!own || own->count != t->count || own->dtype != ARES_F32) {
                golden_fail(g, "no tensor %s of its size", t->name);
                continue;
            }
            for (int64_t k = 0; k < t->count; k++) {
                float x, y;
                memcpy(&x, (const char *)own->data + 4 * k, 4);
                memcpy(&y, (const char *)t->data + 4 * k, 4);
                if (!(fabs((double)x - (double)y) <= within)) {
                    golden_fail(g, "%s[%lld] is %.9g, not %.9g", t->name, (long long)k, (double)x,
                                (double)y);
                    break;
                }
            }
            g->checks++;
        }
        for (int64_t i = 0; i < ares_safetensors_count(base); i++) { /* others: unchanged */
            const ares_tensor_info *t = ares_safetensors_at(base, i),
                                   *own = ares_safetensors_find(got, t->name);
            if (!own) golden_fail(g, "no tensor %s", t->name);
            else if (!ares_safetensors_find(want, t->name) && t->dtype == ARES_F32 &&
                     memcmp(t->data, own->data, (size_t)t->bytes) != 0)
                golden_fail(g, "%s has changed", t->name);
        }
    }
    if (got) ares_safetensors_close(got);
    if (want) ares_safetensors_close(want);
    if (base) ares_safetensors_close(base);
    (void)ares_dir_remove(folder);
}
