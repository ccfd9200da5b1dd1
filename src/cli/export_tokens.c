/*
 * ares-train export-tokens: the columns of tokens in rollouts/ as files that tools for prime-rl's
 * token exports read (docs/runs.md#export-of-tokens).
 */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const verb = "export-tokens";

/* Columns of prompt and response, [prompt + n] each, in the order in which they are written. */
#define TOKEN_COLUMNS(X)  \
    X(advantages)         \
    X(inference_logprobs) \
    X(trainer_logprobs)   \
    X(entropy) X(mismatch_kl) X(log_importance_ratio) X(importance_ratio) X(prob_delta)
typedef struct token_columns {
#define COLUMN(name) double *name;
    TOKEN_COLUMNS(COLUMN)
#undef COLUMN
    bool *loss_mask, *clipped, *high, *low;
    double *kl_weight; /* NULL: no control has set one */
} token_columns;

/* A list of the row with one entry per token; NULL: there is none, or one of another length. */
static const ares_json *column_of(const ares_json *row, const char *key, int64_t n)
{
    const ares_json *x = ares_json_get(row, key);
    return x && x->type == ARES_JSON_ARRAY && x->count == n ? x : NULL;
}

static double number_of(const ares_json *x) /* null is NaN */
{
    return x->type == ARES_JSON_INT || x->type == ARES_JSON_FLOAT ? x->number : NAN;
}

/* Spreads runs [value, count] over x [n]; false: there are none that cover it. */
static bool spread_levels(const ares_json *row, const char *key, double *x, int64_t n)
{
    const ares_json *runs = ares_json_get(row, key);
    int64_t at = 0;
    if (!runs || runs->type != ARES_JSON_ARRAY) return false;
    for (int64_t i = 0; i < runs->count; i++) {
        const ares_json *run = &runs->items[i];
        if (run->type != ARES_JSON_ARRAY || run->count != 2 ||
            run->items[1].type != ARES_JSON_INT || run->items[1].integer < 0 ||
            run->items[1].integer > n - at)
            return false;
        for (int64_t end = at + run->items[1].integer; at < end;) x[at++] = number_of(run->items);
    }
    return at == n;
}

/* Marks runs [first, count] in x [n]; false where they do not lie within it. */
static bool spread_marks(const ares_json *runs, bool *x, int64_t n)
{
    if (runs->type != ARES_JSON_ARRAY) return false;
    for (int64_t i = 0; i < runs->count; i++) {
        const ares_json *run = &runs->items[i];
        if (run->type != ARES_JSON_ARRAY || run->count != 2) return false;
        const ares_json *first = &run->items[0], *count = &run->items[1];
        if (first->type != ARES_JSON_INT || count->type != ARES_JSON_INT || first->integer < 0 ||
            count->integer < 0 || first->integer > n || count->integer > n - first->integer)
            return false;
        memset(x + first->integer, 1, (size_t)count->integer * sizeof *x);
    }
    return true;
}

/*
 * Fills the columns of a row whose response begins at token `prompt`; false where the row lacks a
 * column that an export needs, or one does not fit. What is not known of a token that was not
 * trained is what stands on the prompt: 0, and the ratio 1.
 */
static bool fill(const ares_json *row, int64_t prompt, int64_t n, token_columns *c,
                 ares_arena *arena)
{
    size_t all = (size_t)(prompt + n) + 1;
    const ares_json *logprobs = column_of(row, "logprobs", n),
                    *entropies = column_of(row, "entropies", n),
                    *ratios = column_of(row, "ratio", n), *trained = ares_json_get(row, "trained"),
                    *clipped = ares_json_get(row, "clipped"),
                    *advantage = ares_json_get(row, "advantage");
#define NEW(name) c->name = ares_arena_calloc(arena, all, sizeof *c->name);
    TOKEN_COLUMNS(NEW)
    NEW(loss_mask)
    NEW(clipped)
    NEW(high)
    NEW(low)
    NEW(kl_weight)
#undef NEW
    if (!logprobs || (ares_json_get(row, "ratio") && !ratios) || !advantage ||
        (ares_json_get(row, "entropies") && !entropies))
        return false;
    bool *mask = c->loss_mask + prompt;
    if (trained && !spread_marks(trained, mask, n)) return false;
    if (!trained) memset(mask, !ares_json_get(row, "discarded"), (size_t)n * sizeof *mask);
    if (clipped && !spread_marks(clipped, c->clipped + prompt, n)) return false;
    if (ares_json_get(row, "advantages")) {
        if (!spread_levels(row, "advantages", c->advantages + prompt, n)) return false;
    } else
        for (int64_t i = 0; i < n; i++)
            c->advantages[prompt + i] = mask[i] ? number_of(advantage) : 0;
    if (!ares_json_get(row, "kl_weight")) c->kl_weight = NULL;
    else if (!spread_levels(row, "kl_weight", c->kl_weight + prompt, n)) return false;
    for (int64_t t = 0; t < prompt; t++) c->importance_ratio[t] = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = prompt + i;
        /* of a text that was encoded anew nobody knows entropies: null where it was trained */
        double log_prob = number_of(&logprobs->items[i]),
               entropy = entropies ? number_of(&entropies->items[i]) : NAN,
               ratio = ratios ? number_of(&ratios->items[i]) : 1;
        if (!mask[i]) {
            log_prob = isnan(log_prob) ? 0 : log_prob;
            entropy = isnan(entropy) ? 0 : entropy;
            ratio = isnan(ratio) ? 1 : ratio;
        }
        c->inference_logprobs[t] = log_prob;
        c->log_importance_ratio[t] = log(ratio);
        c->trainer_logprobs[t] = log_prob + log(ratio);
        c->entropy[t] = entropy;
        c->importance_ratio[t] = ratio;
        c->mismatch_kl[t] = ratio - log(ratio) - 1;
        c->prob_delta[t] = exp(log_prob + log(ratio)) - exp(log_prob);
        c->high[t] = c->clipped[t] && c->advantages[t] > 0;
        c->low[t] = c->clipped[t] && c->advantages[t] < 0;
    }
    return true;
}

static void write_doubles(ares_str *out, const char *key, const double *x, int64_t n)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_double(out, x[i]);
    ares_json_end(out, ']');
}

static void write_marks(ares_str *out, const char *key, const bool *x, int64_t n)
{
    ares_json_begin(ares_json_key(out, key), '[');
    for (int64_t i = 0; i < n; i++) ares_json_write_bool(out, x[i]);
    ares_json_end(out, ']');
}

/* A step while its rows are read. */
typedef struct exported {
    int64_t step, rows, left_out;
    ares_ids prompt; /* of the last row that had one */
    double draw;     /* and the prompt drawn that it belongs to */
    ares_str out;
} exported;

/* Appends the line of a row; false: the row has no columns of tokens, or some that do not fit. */
static bool export_row(exported *e, const ares_json *row, ares_arena *arena)
{
    const ares_json *ids = ares_json_get(row, "token_ids"), *draw = ares_json_get(row, "draw"),
                    *source = ares_json_get(row, "tag");
    token_columns c;
    ares_str *out = &e->out;
    if (!ids || ids->type != ARES_JSON_ARRAY || !draw || draw->type != ARES_JSON_INT) return false;
    if (ares_json_get(row, "prompt_ids")) {
        ares_ids_clear(&e->prompt);
        if (cli_read_ids(verb, row, "prompt_ids", &e->prompt) != ARES_OK) return false;
        e->draw = draw->number;
    } else if (e->draw != draw->number) return false; /* its group's first row is not there */
    int64_t prompt = e->prompt.n, n = ids->count;
    ares_ids response = { 0 };
    bool good = cli_read_ids(verb, row, "token_ids", &response) == ARES_OK &&
                fill(row, prompt, n, &c, arena);
    if (!good) {
        ares_ids_fini(&response);
        return false;
    }
    if (!source || source->type != ARES_JSON_STRING) source = ares_json_get(row, "data_source");
    ares_json_begin(out, '{');
    ares_json_write_i64(ares_json_key(out, "schema_version"), 1);
    ares_json_write_i64(ares_json_key(out, "step"), e->step);
    ares_json_write_i64(ares_json_key(out, "rank"), 0);
    ares_json_write_i64(ares_json_key(out, "micro_step"), 0);
    ares_json_write_i64(ares_json_key(out, "micro_sequence_idx"), e->rows);
    ares_json_write_i64(ares_json_key(out, "export_sequence_idx"), e->rows);
    ares_json_write_string(ares_json_key(out, "env_name"),
                           source && source->type == ARES_JSON_STRING ? source->text
                                                                      : ARES_VIEW(""));
    ares_json_begin(ares_json_key(out, "token_ids"), '[');
    for (int64_t i = 0; i < prompt; i++) ares_json_write_i64(out, e->prompt.ids[i]);
    for (int64_t i = 0; i < n; i++) ares_json_write_i64(out, response.ids[i]);
    ares_json_end(out, ']');
    ares_json_begin(ares_json_key(out, "position_ids"), '[');
    for (int64_t i = 0; i < prompt + n; i++) ares_json_write_i64(out, i);
    ares_json_end(out, ']');
    write_marks(out, "loss_mask", c.loss_mask, prompt + n);
#define WRITE(name) write_doubles(out, #name, c.name, prompt + n);
    TOKEN_COLUMNS(WRITE)
#undef WRITE
    write_marks(out, "is_masked", c.clipped, prompt + n);
    write_marks(out, "is_masked_high", c.high, prompt + n);
    write_marks(out, "is_masked_low", c.low, prompt + n);
    ares_json_begin(ares_json_key(out, "rl_weights"), '[');
    for (int64_t i = 0; i < prompt + n; i++) ares_json_write_i64(out, c.loss_mask[i]);
    ares_json_end(out, ']');
    ares_json_write_null(ares_json_key(out, "ce_weights"));
    if (c.kl_weight) write_doubles(out, "ref_kl_weights", c.kl_weight, prompt + n);
    else ares_json_write_null(ares_json_key(out, "ref_kl_weights"));
    ares_json_end(out, '}');
    ares_str_add_char(out, '\n');
    e->rows++;
    ares_ids_fini(&response);
    return true;
}

/* Reads a step's rows: what is whole and has columns is in e->out. */
static int read_step(const char *dir, exported *e)
{
    ares_str path = { 0 }, text = { 0 };
    ares_str_addf(&path, "%s/rollouts/step_%06lld.jsonl", dir, (long long)e->step);
    int rc = ares_file_read(path.data, &text);
    if (rc != ARES_OK) ares_fail_in(rc, "%s", verb);
    const char *at = text.data, *end = rc == ARES_OK ? at + text.len : at, *line_end;
    for (int64_t line = 1; at < end && (line_end = memchr(at, '\n', (size_t)(end - at))); line++) {
        ares_arena arena = { 0 };
        const ares_json *row;
        ares_view view = { at, (size_t)(line_end - at) };
        at = line_end + 1;
        rc = ares_json_parse_line(&arena, view, path.data, line, &row);
        if (rc == ARES_OK) e->left_out += !export_row(e, row, &arena);
        else ares_fail_in(rc, "%s", verb);
        ares_arena_fini(&arena);
        if (rc != ARES_OK) break;
    }
    if (rc == ARES_OK && at < end) /* the run is writing it, or was killed */
        ares_warn("%s: %s: its last line is half written and was left out", verb, path.data);
    ares_str_fini(&path);
    ares_str_fini(&text);
    return rc;
}

/* Writes a step's folder; STABLE comes last and says that the folder is whole. */
static int write_step(const char *dir, const exported *e)
{
    char name[64];
    ares_str path = { 0 };
    (void)snprintf(name, sizeof name, "token_exports/step_%lld", (long long)e->step);
    int rc = ares_dir_make(ares_path_join(&path, dir, name));
    (void)snprintf(name, sizeof name, "token_exports/step_%lld/STABLE", (long long)e->step);
    (void)remove(ares_path_join(&path, dir, name));
    (void)snprintf(name, sizeof name, "token_exports/step_%lld/rank_0.jsonl", (long long)e->step);
    if (rc == ARES_OK)
        rc = ares_file_write_atomic(ares_path_join(&path, dir, name), e->out.data, e->out.len);
    (void)snprintf(name, sizeof name, "token_exports/step_%lld/STABLE", (long long)e->step);
    if (rc == ARES_OK) rc = ares_file_write_atomic(ares_path_join(&path, dir, name), "", 0);
    ares_str_fini(&path);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "%s", verb);
}

static int export_run(const char *run, const char *dir, int64_t step, bool force)
{
    ares_arena arena = { 0 };
    int64_t *steps, n, rows = 0, left_out = 0, written = 0;
    int rc = rollouts_steps(&arena, verb, run, "rollouts", &steps, &n);
    bool found = step < 0;
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) found = found || steps[i] == step;
    if (rc == ARES_OK && !found)
        rc = ares_fail(
            ARES_EUSE, "%s: --step = %lld: '%s' has no such step; it has %lld, from %lld to %lld",
            verb, (long long)step, run, (long long)n, (long long)steps[0], (long long)steps[n - 1]);
    ares_str there = { 0 };
    for (int64_t i = 0; i < n && rc == ARES_OK && !force; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "token_exports/step_%lld", (long long)steps[i]);
        if ((step < 0 || step == steps[i]) && ares_dir_exists(ares_path_join(&there, dir, name)))
            rc = ares_fail(ARES_EUSE,
                           "%s: --out = '%s': %s is there; name another directory, or add --force",
                           verb, dir, name);
    }
    ares_str_fini(&there);
    for (int64_t i = 0; i < n && rc == ARES_OK; i++) {
        exported e = { .step = steps[i], .draw = NAN };
        if (step >= 0 && steps[i] != step) continue;
        rc = read_step(run, &e);
        if (rc == ARES_OK && e.rows) {
            rc = write_step(dir, &e);
            written++;
        }
        rows += e.rows;
        left_out += e.left_out;
        ares_ids_fini(&e.prompt);
        ares_str_fini(&e.out);
    }
    ares_arena_fini(&arena);
    ARES_TRY(rc);
    if (!rows)
        return ares_fail(ARES_EUSE,
                         "%s: '%s': no row has columns of tokens; make the run with "
                         "trainer.rollout_log: tokens",
                         verb, run);
    ares_str line = { 0 };
    ares_str_addf(&line, "%s/token_exports: %lld rows of %lld steps", dir, (long long)rows,
                  (long long)written);
    if (left_out)
        ares_str_addf(&line,
                      "; %lld rows without columns of tokens are left out "
                      "(trainer.rollout_log_tokens)",
                      (long long)left_out);
    ares_str_add_char(&line, '\n');
    rc = cli_print(verb, &line);
    ares_str_fini(&line);
    return rc;
}

int ares_cli_export_tokens(int argc, char **argv)
{
    const char *dir = NULL;
    int64_t step = -1;
    bool force = false, helped;
    const cli_option options[] = {
        CLI_OPTION(TEXT, dir, "--out", "DIR", "gets token_exports/step_<N>/rank_0.jsonl",
                   .required = true),
        CLI_OPTION(I64, step, "--step", "N", "only this step; without it all that are there",
                   .least = 0, .most = INT64_MAX),
        CLI_OPTION(FLAG, force, "--force", NULL, "replace steps that are there"),
    };
    const cli_command command = {
        .name = "export-tokens",
        .usage = "RUN_DIR --out DIR [--step N] [--force]",
        .about = "Writes what a run has logged of its tokens (trainer.rollout_log: tokens) as "
                 "prime-rl writes its token exports: a JSON object per row, with columns over "
                 "prompt and response, and an empty file STABLE when a step is whole "
                 "(docs/runs.md). Rows without columns of tokens are left out and counted.",
        .example = "ares-train export-tokens runs/quickstart/aepo --out exports --step 3",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_WORDS,
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    if (argc != 2)
        return ares_fail(ARES_EUSE, "%s: %s (see ares-train %s --help)", verb,
                         argc < 2 ? "no run directory is named"
                                  : "more than one word is given; name one run directory",
                         verb);
    return export_run(argv[1], dir, step, force);
}
