/*
 * report.html: one file with the data of its runs as JSON, the one script that draws them, and the
 * style. The script's hash stands in the page's policy, so that a text of a run that became markup
 * could still run nothing; script and style come from page.js and page.css at build time.
 */
#include "look.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/train.h"
#include "page_css.h"
#include "page_js.h"

enum { MOST_STEPS = 2000, MOST_MAP = 60000, NUMBER_BYTES = 9 };
static const double DEFAULT_MB = 20;

/* A run of the page. */
typedef struct run {
    ares_look l;
    ares_look_paired p;
    ares_look_verdicts v;
    look_rollouts r;
} run;

/* ---------------------------------------------------------------- escapes */

/* Characters that are no text: controls, direction marks, zero widths, separators of lines. */
static bool is_obeyed(uint32_t c)
{
    return c == '<' || c < ' ' || (c >= 0x7f && c <= 0x9f) || c == 0x61c ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x2069) || c == 0xfeff;
}

void look_escape(ares_str *out, ares_view json)
{
    const char *end = json.data + json.len, *plain = json.data;
    for (const char *at = json.data; at < end;) {
        uint32_t c;
        int n = ares_utf8_next(at, end, &c);
        if (n > 0 && !is_obeyed(c)) {
            at += n;
            continue;
        }
        ares_str_add(out, plain, (size_t)(at - plain));
        if (n > 0) ares_str_addf(out, "\\u%04x", c);
        else ares_str_add_z(out, "\xef\xbf\xbd");
        plain = at += n > 0 ? n : -n;
    }
    ares_str_add(out, plain, (size_t)(end - plain));
}

/* ---------------------------------------------------------------- parts of a run */

static void text(ares_str *out, const char *key, const char *value)
{
    ares_json_key(out, key);
    if (value) ares_json_write_string(out, ares_view_of(value));
    else ares_json_write_null(out);
}

static void number(ares_str *out, const char *key, double value)
{
    ares_json_write_rounded(ares_json_key(out, key), value, 6);
}

/* A text option; NULL: it has none. */
static const char *option_text(const ares_look *l, const char *path)
{
    const ares_json *v = look_option(l, path);
    if (v && v->type == ARES_JSON_ARRAY && v->count) v = &v->items[0];
    return v && v->type == ARES_JSON_STRING ? v->text.data : NULL;
}

static double sum_of(const ares_look *l, const char *metric)
{
    const double *v = ares_look_values(l, metric);
    double sum = 0;
    for (int64_t i = 0; v && i < l->rows; i++)
        if (!isnan(v[i])) sum += v[i];
    return sum;
}

/* What kind of training it was: the loss's preset, else the estimator; "sft". */
static const char *algorithm_of(const ares_look *l)
{
    if (look_option(l, "sft")) return "sft";
    if (look_option_true(l, "worker.actor.dynamic_kl_loss")) return "aepo";
    const char *name = option_text(l, "algorithm.name");
    return name ? name : option_text(l, "algorithm.adv_estimator");
}

static void write_facts(const run *x, ares_str *out)
{
    const ares_look *l = &x->l;
    const char *project = option_text(l, "trainer.project_name"),
               *name = option_text(l, "trainer.experiment_name"), *dir = l->dir;
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') len--;
    size_t base = len;
    while (base && dir[base - 1] != '/') base--;
    text(out, "project", project);
    ares_json_key(out, "name");
    if (name && strcmp(name, "default") != 0) ares_json_write_string(out, ares_view_of(name));
    else ares_json_write_string(out, (ares_view){ dir + base, len - base });
    ares_json_write_string(ares_json_key(out, "dir"), (ares_view){ dir, len });
    text(out, "state", ares_look_state_name(l->state));
    text(out, "stopped", l->stopped);
    text(out, "model", option_text(l, "worker.actor.model.model_path"));
    text(out, "data", option_text(l, "data.train_files"));
    text(out, "algorithm", algorithm_of(l));
    number(out, "steps", (double)l->last_step);
    number(out, "planned", l->planned > 0 ? (double)l->planned : NAN);
    number(out, "n", look_option_number(l, "worker.rollout.n", NAN));
    number(out, "prompts", look_option_number(l, "data.rollout_batch_size", NAN));
    number(out, "window", look_option_number(l, "worker.rollout.window_size", NAN));
    number(out, "max_len", look_option_number(l, "data.max_response_length", NAN));
    number(out, "tokens", sum_of(l, "perf/total_num_tokens"));
    number(out, "seconds",
           sum_of(l, "timing_s/step") + sum_of(l, "timing_s/validation") +
               sum_of(l, "timing_s/save_checkpoint"));
    bool one = false;
    for (int i = 0; i < x->v.n; i++)
        one = one || (strcmp(x->v.each[i].id, "step_size") == 0 &&
                      strcmp(x->v.each[i].title, "Strictly on policy") == 0);
    ares_json_write_bool(ares_json_key(out, "on_policy"), one);
    ares_str path = { 0 }; /* whether there is a model to talk to */
    ares_str_addf(&path, "%s/checkpoints/latest", l->dir);
    ares_json_write_bool(ares_json_key(out, "model_kept"), ares_file_exists(path.data));
    ares_str_fini(&path);
    const char *log = option_text(l, "trainer.rollout_log");
    text(out, "rollout_log", log);
    ares_json_key(out, "run");
    if (l->run) ares_json_write(out, l->run);
    else ares_json_write_null(out);
    ares_json_begin(ares_json_key(out, "notes"), '[');
    for (int64_t i = 0; i < l->n_notes; i++) ares_json_write_string(out, ares_view_of(l->notes[i]));
    ares_json_end(out, ']');
}

static void write_verdicts(const run *x, ares_str *out)
{
    ares_json_begin(ares_json_key(out, "head"), '[');
    ares_json_write_string(out, ares_view_of(ares_look_level_names[x->v.level]));
    ares_json_write_string(out, ares_view_of(x->v.headline));
    ares_json_end(out, ']');
    if (x->p.n) {
        ares_json_begin(ares_json_key(out, "paired"), '{');
        number(out, "n", (double)x->p.n);
        number(out, "before", x->p.accuracy[0]);
        number(out, "after", x->p.accuracy[1]);
        number(out, "mean", x->p.mean);
        number(out, "half", x->p.half_width);
        ares_json_end(out, '}');
    }
    ares_json_begin(ares_json_key(out, "verdicts"), '[');
    for (int i = 0; i < x->v.n; i++) {
        const ares_look_verdict *v = &x->v.each[i];
        ares_json_begin(out, '{');
        text(out, "id", v->id);
        text(out, "level", ares_look_level_names[v->level]);
        text(out, "title", v->title);
        text(out, "why", v->why);
        text(out, "metric", v->metric);
        text(out, "rule", v->rule);
        ares_json_end(out, '}');
    }
    ares_json_end(out, ']');
}

/* Whether row i is drawn where every k-th is: the first and the last always. */
static bool is_drawn(const ares_look *l, int64_t i, int64_t k)
{
    return i % k == 0 || i + 1 == l->rows;
}

static void write_series(const run *x, int64_t k, ares_str *out)
{
    const ares_look *l = &x->l;
    const struct {
        const char *name;
        double (*band)[2];
    } bands[] = { { "critic/score/mean", x->r.score }, { "response_length/mean", x->r.length } };
    number(out, "thin", (double)k);
    ares_json_begin(ares_json_key(out, "series"), '{');
    for (int64_t s = -1; s < l->n_series; s++) {
        ares_json_key_view(out, s < 0 ? ares_view_of("step") : l->series[s].name);
        ares_json_begin(out, '[');
        for (int64_t i = 0; i < l->rows; i++)
            if (is_drawn(l, i, k))
                ares_json_write_rounded(out, s < 0 ? l->step[i] : l->series[s].value[i],
                                        s < 0 ? 15 : 6);
        ares_json_end(out, ']');
    }
    ares_json_end(out, '}');
    ares_json_begin(ares_json_key(out, "bands"), '{');
    for (int b = 0; b < ARES_COUNT(bands) && x->r.n; b++) {
        ares_json_begin(ares_json_key(out, bands[b].name), '[');
        for (int64_t i = 0; i < l->rows; i++) {
            if (!is_drawn(l, i, k)) continue;
            if (isnan(bands[b].band[i][0])) {
                ares_json_write_null(out);
                continue;
            }
            ares_json_begin(out, '[');
            ares_json_write_rounded(out, bands[b].band[i][0], 6);
            ares_json_write_rounded(out, bands[b].band[i][1], 6);
            ares_json_end(out, ']');
        }
        ares_json_end(out, ']');
    }
    ares_json_end(out, '}');
}

/* Every group of the run as [step, row, accuracy, shown]; of very many, those of every k-th step.
 */
static void write_map(const run *x, ares_str *out)
{
    int64_t k = x->r.n / MOST_MAP + 1, steps = 0, before = -1;
    number(out, "groups_all", (double)x->r.n);
    ares_json_begin(ares_json_key(out, "map"), '[');
    for (int64_t i = 0; i < x->r.n; i++) {
        const look_group *g = &x->r.groups[i];
        steps += g->step != before;
        before = g->step;
        if (!g->shown && (steps - 1) % k != 0) continue;
        ares_json_begin(out, '[');
        ares_json_write_i64(out, g->step);
        ares_json_write_i64(out, g->row);
        ares_json_write_rounded(out, (double)g->accuracy, 4);
        ares_json_write_i64(out, g->shown);
        ares_json_end(out, ']');
    }
    ares_json_end(out, ']');
}

/* Whether a map says nothing: what the resolved file makes of an option that is not set. */
static bool says_nothing(const ares_json *v)
{
    bool nothing = v->type == ARES_JSON_NULL || v->type == ARES_JSON_OBJECT;
    for (int64_t i = 0; v->type == ARES_JSON_OBJECT && i < v->count; i++)
        nothing = nothing && says_nothing(v->members[i].value);
    return nothing;
}

/* The options of `now` as [path, value, default, whether they differ]; sections are walked. */
static void write_options(const ares_json *now, const ares_config *defaults, const char *path,
                          ares_str *out)
{
    ares_str name = { 0 }, a = { 0 }, b = { 0 };
    for (int64_t i = 0; i < now->count; i++) {
        const ares_json *v = now->members[i].value;
        ares_str_clear(&name);
        if (*path) ares_str_addf(&name, "%s.", path);
        ares_str_add_view(&name, now->members[i].key);
        const ares_json *old = ares_config_get(defaults, name.data);
        if (v->type == ARES_JSON_OBJECT && v->count && old && old->type == ARES_JSON_OBJECT &&
            old->count) {
            write_options(v, defaults, name.data, out);
            continue;
        }
        ares_str_clear(&a);
        ares_str_clear(&b);
        ares_json_write(&a, v);
        if (old) ares_json_write(&b, old);
        ares_json_begin(out, '[');
        ares_json_write_string(out, ares_str_view(&name));
        ares_json_write(out, v);
        if (old) ares_json_write(out, old);
        else ares_json_write_null(out);
        ares_json_write_i64(out, !ares_view_eq(ares_str_view(&a), ares_str_view(&b)) &&
                                     !(old && says_nothing(v) && says_nothing(old)));
        ares_json_end(out, ']');
    }
    ares_str_fini(&name);
    ares_str_fini(&a);
    ares_str_fini(&b);
}

static void write_config(const run *x, ares_str *out)
{
    ares_json_begin(ares_json_key(out, "config"), '[');
    if (x->l.config) {
        ares_train_config unused;
        ares_config *defaults = ares_config_new();
        memset(&unused, 0, sizeof unused);
        ares_train_config_declare(defaults, &unused);
        if (look_option(&x->l, "sft")) ares_sft_declare(defaults, &unused);
        ares_config_resolve(defaults);
        write_options(x->l.config, defaults, "", out);
        ares_config_free(defaults);
    }
    ares_json_end(out, ']');
}

/* ---------------------------------------------------------------- the file */

static int read_run(ares_arena *arena, const char *dir, const ares_report_options *o, bool answers,
                    run *x)
{
    ARES_TRY(ares_look_read(arena, dir, 0, &x->l));
    if (o && o->state) {
        x->l.state = *o->state;
        x->l.stopped = o->stopped;
        if (x->l.state == ARES_LOOK_FINISHED) x->l.planned = x->l.last_step;
    }
    if (answers) look_rollouts_scan(arena, &x->l, &x->r);
    x->p = look_validation(dir);
    ares_look_judge(arena, &x->l, &x->p, &x->v);
    return ARES_OK;
}

/*
 * All but the groups of a run, escaped; `groups` goes between. k: every k-th step has its numbers,
 * so that they take two fifths of the run's room at most.
 */
static void write_run(run *x, int64_t room, ares_str *groups, ares_str *out)
{
    ares_str json = { 0 };
    int64_t wide = (x->l.n_series + 3) * NUMBER_BYTES,
            most = ARES_MAX(20, ARES_MIN(MOST_STEPS, room * 2 / 5 / ARES_MAX(wide, 1))),
            k = ARES_MAX(1, (x->l.rows + most - 1) / ARES_MAX(most, 1));
    ares_json_begin(&json, '{');
    write_facts(x, &json);
    write_verdicts(x, &json);
    write_series(x, k, &json);
    write_config(x, &json);
    if (groups) write_map(x, &json);
    ares_json_key(&json, "val");
    look_escape(out, ares_str_view(&json));
    look_validation_write(&x->l, out);
    ares_str_add_z(out, ",\"groups\":");
    if (groups && groups->len) ares_str_add_view(out, ares_str_view(groups));
    else ares_str_add_z(out, "[]");
    ares_str_add_char(out, '}');
    ares_str_fini(&json);
}

static void add_hash(ares_str *out)
{
    ares_sha256 s;
    unsigned char digest[32];
    ares_sha256_init(&s);
    ares_sha256_add(&s, page_js, sizeof page_js);
    ares_sha256_end(&s, digest);
    look_add_base64(out, digest, sizeof digest);
}

/* The page up to its data: head, style. */
static void write_head(const run *x, int n, ares_str *out)
{
    const char *name = option_text(&x->l, "trainer.experiment_name");
    ares_str_add_z(out, "<!doctype html>\n<html lang=\"en\" data-theme=\"light\"><head><meta "
                        "charset=\"utf-8\"><meta name=\"viewport\" "
                        "content=\"width=device-width, initial-scale=1\">\n"
                        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
                        "'none'; script-src 'sha256-");
    add_hash(out);
    ares_str_add_z(out, "'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
                        "form-action 'none'\"><meta name=\"referrer\" content=\"no-referrer\">\n"
                        "<title>");
    if (n > 1) ares_str_addf(out, "%d runs", n);
    /* a name of plain letters; the script sets the others as text */
    else if (name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-. ") == strlen(name))
        ares_str_add_z(out, name);
    else ares_str_add_z(out, "a run");
    ares_str_add_z(out, " – ares-train report</title>\n<link rel=\"icon\" href=\"data:,\"><style>");
    ares_str_add(out, (const char *)page_css, sizeof page_css);
    ares_str_add_z(out,
                   "</style></head>\n<body><a class=\"skip\" href=\"#main\">Skip to the report</a>"
                   "<header></header><main id=\"main\" tabindex=\"-1\"><noscript><p "
                   "class=\"note\">This report draws itself with the script inside this file; "
                   "nothing is fetched. Allow scripts for local files to read it.</p></noscript>"
                   "</main>\n<script type=\"application/json\" id=\"data\">");
}

/*
 * The page's text. Sizes: head, script and what every run has first; of what is left of the budget
 * the groups of each run get an equal part.
 */
static void write_page(ares_arena *arena, run *runs, int n, double budget, ares_str *out)
{
    ares_str head = { 0 }, *groups = ares_calloc((size_t)n, sizeof *groups);
    look_pieces p = { .width = 2 };
    write_head(&runs[0], n, &head);
    int64_t left = (int64_t)(budget - (double)head.len - (double)sizeof page_js - 4096),
            each = left / n;
    for (bool again = true; again;) {
        p = (look_pieces){ .known = ares_map_new(), .width = p.width };
        ares_str_clear(out);
        ares_str_add_view(out, ares_str_view(&head));
        ares_str_addf(out, "{\"v\":2,\"version\":\"%s\",\"budget\":%.0f,\"runs\":[", ARES_VERSION,
                      budget);
        for (int i = 0; i < n; i++) {
            /* the rest of the run, written once to know its size: the map marks what is shown */
            ares_str rest = { 0 };
            write_run(&runs[i], each, NULL, &rest);
            int64_t map = ARES_MIN(runs[i].r.n, MOST_MAP) * 24,
                    room = ARES_MIN(each * 17 / 20, each - (int64_t)rest.len - map);
            for (int64_t g = 0; g < runs[i].r.n; g++) runs[i].r.groups[g].shown = false;
            ares_str_clear(&groups[i]);
            look_rollouts_write(arena, &runs[i].l, &runs[i].r, room, &p, &groups[i]);
            ares_str_fini(&rest);
        }
        again = p.full && p.width == 2;
        if (again) p.width = 3;
        else {
            for (int i = 0; i < n; i++) {
                if (i) ares_str_add_char(out, ',');
                if (p.unequal && i == 0)
                    look_note(
                        arena, &runs[0].l,
                        "rollouts: %lld answer%s columns of unequal length, which are left out",
                        (long long)p.unequal, p.unequal == 1 ? " has" : "s have");
                write_run(&runs[i], each, &groups[i], out);
                ares_str_fini(&groups[i]);
            }
            ares_str_addf(out, "],\"pw\":%d,\"pieces\":[", p.width);
            look_escape(out, ares_str_view(&p.json));
            ares_str_add_z(out, "]}</script>\n<script>");
            ares_str_add(out, (const char *)page_js, sizeof page_js);
            ares_str_add_z(out, "</script></body></html>\n");
        }
        ares_map_free(p.known);
        ares_str_fini(&p.json);
    }
    ares_free(groups);
    ares_str_fini(&head);
}

int ares_report_write(const char *const *dirs, int n, const ares_report_options *o, ares_str *path)
{
    ares_arena arena = { 0 };
    ares_str page = { 0 };
    run *runs = ares_calloc((size_t)n, sizeof *runs);
    double budget = 1e6 * (o->budget_mb > 0 ? o->budget_mb : DEFAULT_MB);
    int rc = ARES_OK;
    for (int i = 0; i < n && rc == ARES_OK; i++) rc = read_run(&arena, dirs[i], o, true, &runs[i]);
    for (int i = 0; rc == ARES_OK && i < runs[0].v.n; i++) {
        const ares_look_verdict *v = &runs[0].v.each[i];
        if (o->bad) *o->bad = runs[0].v.count[ARES_VERDICT_BAD];
        if (o->lines)
            ares_str_addf(o->lines, "%-5s %s: %s\n", ares_look_level_names[v->level], v->title,
                          v->why);
        if (o->told) o->told(o->ctx, v);
    }
    if (rc == ARES_OK && path) {
        write_page(&arena, runs, n, budget, &page);
        if (o->out) {
            ares_str_clear(path);
            ares_str_add_z(path, o->out);
        } else ares_path_join(path, dirs[0], "report.html");
        rc = ares_file_write_atomic(path->data, page.data, page.len);
    }
    for (int i = 0; i < n; i++) look_rollouts_fini(&runs[i].r);
    ares_free(runs);
    ares_str_fini(&page);
    ares_arena_fini(&arena);
    return rc;
}

int ares_report_json(const char *const *dirs, int n, ares_str *out)
{
    int rc = ARES_OK;
    for (int i = 0; i < n && rc == ARES_OK; i++) {
        ares_arena arena = { 0 };
        run x = { 0 };
        rc = read_run(&arena, dirs[i], NULL, true, &x);
        if (rc == ARES_OK) {
            ares_json_begin(out, '{');
            text(out, "run", dirs[i]);
            text(out, "state", ares_look_state_name(x.l.state));
            ares_json_write_i64(ares_json_key(out, "step"), x.l.last_step);
            number(out, "planned", x.l.planned > 0 ? (double)x.l.planned : NAN);
            text(out, "level", ares_look_level_names[x.v.level]);
            text(out, "headline", x.v.headline);
            write_verdicts(&x, out);
            ares_json_begin(ares_json_key(out, "notes"), '[');
            for (int64_t k = 0; k < x.l.n_notes; k++)
                ares_json_write_string(out, ares_view_of(x.l.notes[k]));
            ares_json_end(out, ']');
            ares_json_end(out, '}');
            ares_str_add_char(out, '\n');
        }
        look_rollouts_fini(&x.r);
        ares_arena_fini(&arena);
    }
    return rc;
}
