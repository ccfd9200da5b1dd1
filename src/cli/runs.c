/* metrics.jsonl and DONE of a run directory. */
#include "runs.h"

#include <string.h>

/* The reason in DONE; a file without one, or an older one, has none. */
static const char *why_stopped(ares_arena *arena, const char *path)
{
    ares_str text = { 0 };
    const ares_json *done, *why = NULL;
    if (ares_file_read(path, &text) == ARES_OK) {
        const char *copy = ares_arena_copy(arena, text.data ? text.data : "", text.len);
        if (ares_json_parse(arena, ares_view_trim((ares_view){ copy, text.len }), path, &done) ==
            ARES_OK)
            why = ares_json_get(done, "stopped");
    }
    ares_str_fini(&text);
    return why && why->type == ARES_JSON_STRING ? why->text.data : NULL;
}

int runs_read(ares_arena *arena, const char *verb, const char *dir, runs_run *out)
{
    ares_str path = { 0 }, text = { 0 };
    *out = (runs_run){ .dir = dir };
    int rc = ARES_OK;
    if (!ares_file_exists(ares_path_join(&path, dir, "metrics.jsonl")))
        rc = ares_fail(ARES_EUSE, "%s: '%s': no metrics.jsonl there; name run directories", verb,
                       dir);
    else rc = ares_file_read(path.data, &text);
    if (rc == ARES_OK) {
        const char *at = ares_arena_copy(arena, text.data, text.len), *end = at + text.len,
                   *line_end;
        int64_t lines = 0;
        for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
        out->rows = ares_arena_alloc(arena, (size_t)(lines + 1) * sizeof *out->rows);
        /* a last line without an end is being written by a run that is not finished */
        for (; rc == ARES_OK && (line_end = memchr(at, '\n', (size_t)(end - at)));
             at = line_end + 1) {
            int64_t step = 0;
            rc = ares_json_parse(arena, (ares_view){ at, (size_t)(line_end - at) }, path.data,
                                 &out->rows[out->n]);
            if (rc == ARES_OK) rc = ares_json_get_i64(out->rows[out->n], "step", 0, &step);
            out->last_step = ARES_MAX(out->last_step, step);
            out->n++;
        }
    }
    out->done = ares_file_exists(ares_path_join(&path, dir, "DONE"));
    if (out->done) out->stopped = why_stopped(arena, path.data);
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

runs_series runs_series_of(ares_arena *arena, const runs_run *r, const char *metric)
{
    size_t bytes = (size_t)(r->n + 1) * sizeof(double);
    runs_series p = { .step = ares_arena_alloc(arena, bytes),
                      .value = ares_arena_alloc(arena, bytes) };
    for (int64_t i = 0; i < r->n; i++) {
        const ares_json *v = ares_json_get(r->rows[i], metric),
                        *step = ares_json_get(r->rows[i], "step");
        if (!v || !step || (v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT)) continue;
        if (!p.n || p.step[p.n - 1] != step->number) p.n++;
        p.step[p.n - 1] = step->number;
        p.value[p.n - 1] = v->number;
    }
    return p;
}

int runs_unknown_metric(ares_arena *arena, const char *metric, const runs_run *const *runs, int n)
{
    ares_map *names = ares_map_new();
    for (int i = 0; i < n; i++)
        for (int64_t row = 0; row < runs[i]->n; row++)
            for (int64_t k = 0; k < runs[i]->rows[row]->count; k++)
                ares_map_put(names, runs[i]->rows[row]->members[k].key, 0);
    int count = (int)ares_map_count(names);
    const char **all = ares_arena_alloc(arena, (size_t)(count + 1) * sizeof *all);
    for (int i = 0; i < count; i++) {
        ares_view name = ares_map_key(names, i);
        all[i] = ares_arena_copy(arena, name.data, name.len);
    }
    ares_map_free(names);
    const char *like = ares_nearest(metric, all, count);
    return ares_fail(ARES_EUSE,
                     "compare: --metric = '%s': no run has it in its metrics.jsonl%s%s%s", metric,
                     like ? "; did you mean '" : "; its keys are the names there", like ? like : "",
                     like ? "'?" : "");
}

void runs_smooth(runs_series *p, int64_t window)
{
    for (int64_t i = p->n; i-- > 0;) {
        int64_t first = ARES_MAX(0, i - window + 1);
        double sum = 0;
        for (int64_t k = first; k <= i; k++) sum += p->value[k];
        p->value[i] = sum / (double)(i - first + 1);
    }
}

const char *runs_unit_of(const char *metric)
{
    static const struct {
        const char *part, *unit;
    } units[] = {
        { "timing_s/", "s" },
        { "response_length", "tokens" },
        { "num_tokens", "tokens" },
        { "generated_tokens", "tokens" },
        { "hwe_num", "tokens per answer" },
        { "aepo/target", "tokens per answer" },
        { "aepo/tau", "nats" },
        { "aepo/kl/", "nats per token" },
        { "success", "share of episodes" },
        { "accuracy", "share of answers right" },
        { "acc_mean", "share of answers right" },
        { "_frac", "share" },
        { "actor/entropy", "nats" },
        { "kl_loss", "nats per token" },
        { "mi_estimate", "nats" },
        { "entropy_est", "nats" },
        { "kept_ratio", "share" },
        { "memory", "GiB" },
    };
    for (int i = 0; i < ARES_COUNT(units); i++)
        if (strstr(metric, units[i].part)) return units[i].unit;
    return NULL;
}
