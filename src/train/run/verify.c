/*
 * ares-train verify: a step of a run is made again (replay.c) and compared, first with what the run
 * has written of it, row by row and key by key, then decoding with the training forward. The page
 * is docs/exactness.md.
 */
#include "agents/agents.h"
#include "replay.h"
#include "report/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What the keys of a row say. Of a run whose rewards or environments are the user's programs, what
 * these decide is compared and told, but is no difference of the run.
 */
typedef enum { PROMPT, ANSWER, IDS, LOG_PROBS, ENTROPIES, DIGEST, SCORES, KINDS, IGNORED } kind;
static const char *const kind_names[KINDS] = { "prompts",
                                               "answers",
                                               "token ids",
                                               "log-probabilities",
                                               "entropies",
                                               "all bits of the answers' tokens",
                                               "scores, advantages, masks" };
static const struct {
    const char *key;
    kind kind;
} keys[] = {
    { "step", IGNORED }, /* these four say which row it is */
    { "draw", IGNORED },        { "sample", IGNORED },     { "turn", IGNORED },
    { "data_source", IGNORED }, /* may be the path of the file */
    { "kl", IGNORED },          /* these three are the update's */
    { "ratio", IGNORED },       { "clipped", IGNORED },    { "prompt", PROMPT },
    { "prompt_ids", PROMPT },   { "row", PROMPT },         { "ground_truth", PROMPT },
    { "seed", PROMPT },         { "id", PROMPT },          { "response", ANSWER },
    { "turns", ANSWER },        { "turn_ends", ANSWER },   { "n_tokens", ANSWER },
    { "finished", ANSWER },     { "token_exact", ANSWER }, { "token_ids", IDS },
    { "pieces", IDS },          { "logprobs", LOG_PROBS }, { "entropies", ENTROPIES },
    { "digest", DIGEST },
};

static kind kind_of(ares_view key)
{
    for (int i = 0; i < ARES_COUNT(keys); i++)
        if (ares_view_is(key, keys[i].key)) return keys[i].kind;
    return SCORES;
}

/* Columns that a run leaves out of rows beyond trainer.rollout_log_tokens. */
static bool of_tokens(ares_view key)
{
    kind k = kind_of(key);
    static const char *const more[] = { "prompt_ids", "ref_logprobs", "advantages", "values",
                                        "hwe",        "kl_weight",    "trained" };
    for (int i = 0; i < ARES_COUNT(more); i++)
        if (ares_view_is(key, more[i])) return true;
    return k == IDS || k == LOG_PROBS || k == ENTROPIES;
}

typedef struct row {
    const ares_json *json;
    int64_t name[4]; /* draw, sample, turn (-1: none) and, of copies, which one */
    int64_t line;    /* of the file */
    bool met;        /* the other side has it */
} row;

typedef struct rows {
    row *items;
    int64_t n;
    bool torn; /* the last line has no end */
} rows;

typedef struct verification {
    replay r;
    ares_arena arena;
    rows file, again;
    int64_t compared[KINDS], tokens[KINDS], equal[KINDS]; /* compared, equal: rows */
    int64_t extra, missing, fillers; /* rows that one side lacks; of these, what fills the batch */
    int64_t turned;                  /* episodes whose environment answered otherwise */
    int64_t beside[3]; /* decoding and training: tokens, of them with other bits, rows of logits */
    double beside_abs, logits_abs;
    int64_t logits_differ;
    bool users, user_scores; /* a program of the user's takes part; it makes scores */
    bool exact;              /* the kernels promise the same bits in decoding and training */
    ares_str first;          /* the first difference, in words; empty: none */
} verification;

/* ---------------------------------------------------------------- rows */

static int64_t integer(const ares_json *o, const char *key)
{
    const ares_json *x = ares_json_get(o, key);
    return x && x->type == ARES_JSON_INT ? x->integer : -1;
}

static int by_name(const void *a, const void *b)
{
    const row *x = a, *y = b;
    for (int i = 0; i < ARES_COUNT(x->name); i++)
        if (x->name[i] != y->name[i]) return ARES_CMP(x->name[i], y->name[i]);
    return 0;
}

/* Parses lines; a last line without an end is left out: the run may have died in it. */
static int read_rows(ares_arena *arena, ares_view text, const char *path, rows *out)
{
    const char *at = text.data, *end = at + text.len, *stop;
    int64_t lines = 0, line = 0;
    for (size_t i = 0; i < text.len; i++) lines += text.data[i] == '\n';
    out->items = ares_arena_calloc(arena, (size_t)lines + 1, sizeof *out->items);
    for (; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1) {
        row *x = &out->items[out->n];
        ARES_TRY(ares_json_parse_line(arena, (ares_view){ at, (size_t)(stop - at) }, path, ++line,
                                      &x->json));
        if (x->json->type != ARES_JSON_OBJECT)
            return ares_fail(ARES_EFORMAT, "%s:%lld: no object: this is no row of a rollout", path,
                             (long long)line);
        x->line = line;
        const char *const names[] = { "draw", "sample", "turn" };
        for (int i = 0; i < ARES_COUNT(names); i++) x->name[i] = integer(x->json, names[i]);
        out->n++;
    }
    out->torn = at < end;
    /* copies of a row (algorithm.batch_adjust_mode) are counted, so that each has a name */
    qsort(out->items, (size_t)out->n, sizeof *out->items, by_name);
    for (int64_t i = 1; i < out->n; i++) {
        row *x = &out->items[i];
        const row *before = x - 1;
        if (memcmp(x->name, before->name, 3 * sizeof *x->name) == 0)
            x->name[3] = before->name[3] + 1;
    }
    return ARES_OK;
}

static bool is_number(const ares_json *x)
{
    return x->type == ARES_JSON_INT || x->type == ARES_JSON_FLOAT;
}

/*
 * Whether two values are the same. near: numbers within the rounding of sums over other ranks. at:
 * where two lists of the same key begin to differ; -1: they are none
 */
static bool same(const ares_json *a, const ares_json *b, bool near, int64_t *at)
{
    int64_t inner;
    *at = -1;
    if (is_number(a) && is_number(b)) {
        double x = a->number, y = b->number;
        return memcmp(&x, &y, sizeof x) == 0 || x == y ||
               (near && fabs(x - y) <= 1e-5 * fmax(fabs(x), fabs(y)));
    }
    if (a->type != b->type) return false;
    switch (a->type) {
    case ARES_JSON_STRING: return ares_view_eq(a->text, b->text);
    case ARES_JSON_BOOL: return a->boolean == b->boolean;
    case ARES_JSON_ARRAY:
        for (*at = 0; *at < ARES_MIN(a->count, b->count); ++*at)
            if (!same(&a->items[*at], &b->items[*at], near, &inner)) return false;
        return a->count == b->count;
    case ARES_JSON_OBJECT:
        for (int64_t i = 0; i < a->count; i++) {
            const ares_json *other = ares_json_find(b, a->members[i].key);
            if (!other || !same(a->members[i].value, other, near, &inner)) return false;
        }
        return a->count == b->count;
    default: return true;
    }
}

/* A value, or of a list what stands at a place, short enough for a line. */
static void add_value(ares_str *out, const ares_json *x, int64_t at)
{
    enum { MOST = 100 };
    ares_str text = { 0 };
    if (x->type == ARES_JSON_ARRAY && at >= 0) x = at < x->count ? &x->items[at] : NULL;
    if (x) ares_json_write(&text, x);
    else ares_str_add_z(&text, "nothing");
    size_t n = ARES_MIN(text.len, (size_t)MOST);
    while (n < text.len && n && ((unsigned char)text.data[n] & 0xc0) == 0x80) n--;
    ares_str_add(out, text.data, n);
    if (n < text.len) ares_str_add_z(out, "..");
    ares_str_fini(&text);
}

/* Two texts from a little before the character at which they part. */
static void add_texts(ares_str *out, ares_view a, ares_view b)
{
    size_t at = 0;
    while (at < a.len && at < b.len && a.data[at] == b.data[at]) at++;
    at = at > 20 ? at - 20 : 0;
    while (at && ((unsigned char)a.data[at] & 0xc0) == 0x80) at--;
    ares_json x = { .type = ARES_JSON_STRING, .text = { a.data + at, a.len - at } },
              y = { .type = ARES_JSON_STRING, .text = { b.data + at, b.len - at } };
    ares_str_addf(out, "%sthe run wrote ", at ? "from there on " : "");
    add_value(out, &x, -1);
    ares_str_add_z(out, ", again it is ");
    add_value(out, &y, -1);
}

/* "row 3 (draw 17, sample 2, turn 1)" */
static void add_row(ares_str *out, const row *x)
{
    int64_t turn = integer(x->json, "turn");
    ares_str_addf(out, "row %lld (draw %lld, sample %lld", (long long)x->line,
                  (long long)integer(x->json, "draw"), (long long)integer(x->json, "sample"));
    if (turn >= 0) ares_str_addf(out, ", turn %lld", (long long)turn);
    ares_str_add_z(out, ")");
}

static void tell_difference(verification *v, const row *x, ares_view key, int64_t at,
                            const ares_json *a, const ares_json *b)
{
    if (v->first.len) return;
    add_row(&v->first, x);
    ares_str_addf(&v->first, ": %.*s", (int)key.len, key.data);
    if (at >= 0) ares_str_addf(&v->first, " of token %lld", (long long)at);
    ares_str_add_z(&v->first, ": ");
    if (kind_of(key) == DIGEST)
        ares_str_add_z(&v->first, "bits of ids, log-probabilities or entropies differ that the "
                                  "digits of the file do not show: ");
    if (a->type == ARES_JSON_STRING && b->type == ARES_JSON_STRING && kind_of(key) != DIGEST) {
        add_texts(&v->first, a->text, b->text);
        return;
    }
    ares_str_add_z(&v->first, "the run wrote ");
    add_value(&v->first, a, at);
    ares_str_add_z(&v->first, ", again it is ");
    add_value(&v->first, b, at);
}

/* ---------------------------------------------------------------- environments of the user's */

static bool is_users(const ares_env_type *t)
{
    return t->waits || t->starts_program || t->program;
}

/* Whether a program of the user's writes a part of the row's conversation. */
static bool users_environment(const verification *v, const ares_json *row)
{
    const ares_trainer *t = &v->r.trainer;
    const ares_json *source = ares_json_get(row, "data_source");
    if (!t->agents || !source || source->type != ARES_JSON_STRING) return false;
    for (int64_t k = 0; k < v->r.c.agents_train.tags.count; k++) {
        const ares_env_definition *d = &t->agents->train.definitions[k];
        if (ares_view_is(source->text, d->tag)) return is_users(d->type);
    }
    return false;
}

static bool same_member(const ares_json *a, const ares_json *b, const char *key)
{
    int64_t at;
    const ares_json *x = ares_json_get(a, key), *y = ares_json_get(b, key);
    return !x || !y ? x == y : same(x, y, false, &at);
}

/* Whether token `at` of a row is one that the policy wrote and was trained on. */
static bool trained_at(const ares_json *row, int64_t at)
{
    const ares_json *runs = ares_json_get(row, "trained");
    for (int64_t i = 0; runs && runs->type == ARES_JSON_ARRAY && i < runs->count; i++) {
        const ares_json *run = &runs->items[i];
        if (run->type != ARES_JSON_ARRAY || run->count != 2) continue;
        if (at >= run->items[0].integer && at < run->items[0].integer + run->items[1].integer)
            return true;
    }
    return false;
}

/*
 * Whether the program answered otherwise before the policy did: then what follows had to differ.
 * Turn by turn: what the policy read is what it wrote before, and what the environment said.
 */
static bool turned(const ares_json *a, const ares_json *b)
{
    const ares_json *x = ares_json_get(a, "turns"), *y = ares_json_get(b, "turns"),
                    *ids = ares_json_get(a, "token_ids"), *others = ares_json_get(b, "token_ids");
    int64_t at;
    if (!x || !y || x->type != ARES_JSON_ARRAY || y->type != ARES_JSON_ARRAY) return false;
    bool played = x->count && ares_json_get(&x->items[0], "k"); /* the program wrote the prompts */
    if (played) {
        if (!same_member(a, b, "prompt_ids")) return true;
        if (!ids || !others || same(ids, others, false, &at)) return !same(x, y, false, &at);
        return !trained_at(a, at);
    }
    for (int64_t i = 0; i < ARES_MIN(x->count, y->count); i++) {
        if (!same_member(&x->items[i], &y->items[i], "state")) return true;
        if (!same_member(&x->items[i], &y->items[i], "response")) return false;
        if (!same(&x->items[i], &y->items[i], false, &at)) return true; /* its reward or end */
    }
    return x->count != y->count;
}

/* ---------------------------------------------------------------- comparing */

static void compare_key(verification *v, const row *x, ares_view key, const ares_json *a,
                        const ares_json *b, bool *equal)
{
    int64_t at;
    kind k = kind_of(key);
    bool near = k == SCORES && v->r.ranks != ares_world_size(v->r.trainer.run.world);
    if (same(a, b, near, &at)) return;
    *equal = false;
    if (k != SCORES || !v->users) tell_difference(v, x, key, of_tokens(key) ? at : -1, a, b);
}

/* A row of the file with the same row made again. */
static void compare_row(verification *v, const row *x, const row *y)
{
    /* every version of the program has written these */
    static const char *const always[] = { "prompt",   "response",  "ground_truth", "score",
                                          "accuracy", "advantage", "n_tokens",     "finished" };
    static const ares_json nothing = { .type = ARES_JSON_NULL };
    const ares_json *a = x->json, *b = y->json;
    if (users_environment(v, a) && turned(a, b)) {
        v->turned++;
        return;
    }
    for (int k = 0; k < KINDS; k++) {
        bool there = false, equal = true;
        for (int64_t i = 0; i < a->count; i++) {
            ares_view key = a->members[i].key;
            const ares_json *value = a->members[i].value, *other = ares_json_find(b, key);
            if ((int)kind_of(key) != k) continue;
            if (!other && of_tokens(key)) continue; /* scores choose which rows have them */
            there = true;
            compare_key(v, x, key, value, other ? other : &nothing, &equal);
            if (k == IDS && !ares_view_is(key, "token_ids")) continue;
            if (value->type == ARES_JSON_ARRAY && of_tokens(key)) v->tokens[k] += value->count;
        }
        for (int i = 0; i < ARES_COUNT(always); i++) {
            ares_view key = ares_view_of(always[i]);
            const ares_json *other = ares_json_find(b, key);
            if ((int)kind_of(key) == k && other && !ares_json_find(a, key))
                compare_key(v, x, key, &(ares_json){ .type = ARES_JSON_OBJECT }, other, &equal);
        }
        if (k == DIGEST && there) v->tokens[k] += ARES_MAX(0, integer(a, "n_tokens"));
        v->compared[k] += there;
        v->equal[k] += there && equal;
    }
}

/* A row that only one side has. */
static void alone(verification *v, const row *x, bool in_file)
{
    const ares_json *discarded = ares_json_get(x->json, "discarded");
    if (v->r.ranks != ares_world_size(v->r.trainer.run.world) && discarded &&
        discarded->type == ARES_JSON_BOOL && discarded->boolean) {
        v->fillers++; /* masked groups fill the batch up to a multiple of the ranks */
        return;
    }
    v->missing += !in_file;
    v->extra += in_file;
    if (v->first.len || v->users) return;
    add_row(&v->first, x);
    ares_str_add_z(&v->first, in_file ? ": the run wrote it, and again there is none"
                                      : ": again it is there, and the run wrote none");
    if (!in_file && v->file.torn) ares_str_add_z(&v->first, "; the file ends within a line");
}

static int by_line(const void *a, const void *b)
{
    return ARES_CMP(((const row *)a)->line, ((const row *)b)->line);
}

static void compare_rows(verification *v)
{
    row *pair, key;
    v->users = ares_reward_users(v->r.trainer.reward);
    v->user_scores = v->users;
    for (int64_t i = 0; i < v->file.n; i++)
        v->users = v->users || users_environment(v, v->file.items[i].json);
    qsort(v->file.items, (size_t)v->file.n, sizeof *v->file.items, by_line);
    for (int64_t i = 0; i < v->file.n; i++) {
        memcpy(key.name, v->file.items[i].name, sizeof key.name);
        pair = bsearch(&key, v->again.items, (size_t)v->again.n, sizeof key, by_name);
        if (!pair) alone(v, &v->file.items[i], true);
        else {
            pair->met = true;
            compare_row(v, &v->file.items[i], pair);
        }
    }
    for (int64_t i = 0; i < v->again.n; i++)
        if (!v->again.items[i].met) alone(v, &v->again.items[i], false);
}

/* ---------------------------------------------------------------- decoding and training */

/* Log-probs and entropies of every sampled token by the trainer's forward. A collective. */
static int compare_log_probs(verification *v)
{
    ares_trainer *t = &v->r.trainer;
    const ares_batch *b = &t->batch;
    const learner_scoring how = learner_scoring_of(&v->r.c);
    if (!b->rollout_log_probs || v->r.c.rollout.temperature <= 0) return ARES_OK;
    float *log_probs = ares_calloc((size_t)b->tokens * 2 + 1, sizeof *log_probs),
          *entropies = log_probs + b->tokens;
    int64_t counts[2] = { 0 };
    double off = 0;
    int rc = learner_log_probs(&t->actor.learner, &how, b, 0, b->rows, log_probs, entropies);
    for (int64_t r = 0; r < b->rows && rc == ARES_OK; r++) {
        if (!ares_batch_row_counts(b, r)) continue; /* it is not fed */
        for (int64_t i = b->row_start[r]; i < b->row_start[r + 1]; i++) {
            if (!actor_current(&t->actor, b, i)) continue;
            const float pairs[2][2] = { { log_probs[i], b->rollout_log_probs[i] },
                                        { entropies[i], b->entropies[i] } };
            bool equal = true;
            for (int k = 0; k < 2; k++) {
                equal = equal && memcmp(&pairs[k][0], &pairs[k][1], sizeof(float)) == 0;
                off = fmax(off, fabs((double)pairs[k][0] - (double)pairs[k][1]));
            }
            counts[0]++;
            counts[1] += !equal;
        }
    }
    ares_free(log_probs);
    ARES_TRY(ares_world_share_error(t->run.world, rc));
    ARES_TRY(ares_world_sum_i64(t->run.world, counts, 2));
    ARES_TRY(ares_world_max_f64(t->run.world, &off, 1));
    v->beside[0] = counts[0];
    v->beside[1] = counts[1];
    v->beside_abs = off;
    if (!counts[1] || !v->exact || v->first.len) return ARES_OK;
    ares_str_addf(&v->first,
                  "decoding and the training forward give %lld of %lld tokens other "
                  "log-probabilities or entropies, by up to %.3g",
                  (long long)counts[1], (long long)counts[0], off);
    return ARES_OK;
}

/* The logits of the only token of row r of b, by the forward that an update makes. */
static int train_logits(learner *l, const ares_batch *b, int64_t r, float *logits)
{
    ares_device *d = l->model->device;
    learner_pass pass;
    ares_arena arena = { 0 };
    const ares_micro_batch m = {
        .row = r, .end = r + 1, .tokens = b->samples[r].prompt_len, .out = 1
    };
    int rc = learner_forward_round(l, b, learner_sets_of(&m, 1, &arena), 1, true, true, &pass);
    ares_arena_fini(&arena);
    ARES_TRY(rc);
    learner_hold_head(l);
    ares_head_args h = learner_head(l, &pass, 1);
    ares_linear_args a = { .m = 1, .x = h.x, .ldx = h.ldx, .w = h.w, .y = logits, .ldy = h.vocab };
    d->k->linear(d, &a, 1);
    if (h.adapter) {
        a.x = h.adapter->u;
        a.ldx = h.adapter->b->k;
        a.w = h.adapter->b;
        a.residual = logits;
        a.ldr = h.vocab;
        d->k->linear(d, &a, 1);
    }
    learner_drop_head(l);
    return learner_sync(l);
}

/* Of tokens spread over the step: all logits, while decoding and in the training forward. */
static int compare_logits(verification *v)
{
    replay *r = &v->r;
    learner *l = &r->trainer.actor.learner;
    ares_world *world = r->trainer.run.world;
    size_t bytes = (size_t)r->vocab * sizeof(float);
    ares_batch b;
    int rc = ARES_OK;
    int64_t counts[2] = { 0 };
    double off = 0;
    if (learner_by_region(l, NULL)) r->n_looks = ares_world_size(world) > 1 ? 0 : r->n_looks;
    ares_batch_init(&b);
    for (int64_t i = 0; i < r->n_looks; i++) {
        const replay_look *x = &r->looks[i];
        ares_batch_begin_group(&b);
        ares_batch_add_row(
            &b,
            &(ares_sample){ .prompt = x->context, .prompt_len = x->n, .row_media = x->row_media },
            1);
    }
    if (b.rows) ARES_PUT(&b, responses);
    for (int64_t i = 0; i < b.rows; i++) b.responses[i] = r->looks[i].token;
    float *logits = ares_malloc(bytes);
    for (int64_t i = 0; i < b.rows && rc == ARES_OK; i++) {
        rc = train_logits(l, &b, i, logits);
        counts[0]++;
        if (rc != ARES_OK || memcmp(logits, r->looks[i].logits, bytes) == 0) continue;
        counts[1]++;
        for (int32_t k = 0; k < r->vocab; k++)
            off = fmax(off, fabs((double)logits[k] - (double)r->looks[i].logits[k]));
    }
    ares_free(logits);
    ares_batch_fini(&b);
    ARES_TRY(ares_world_share_error(world, rc));
    ARES_TRY(ares_world_sum_i64(world, counts, 2));
    ARES_TRY(ares_world_max_f64(world, &off, 1));
    v->beside[2] = counts[0];
    v->logits_differ = counts[1];
    v->logits_abs = off;
    if (!counts[1] || !v->exact || v->first.len) return ARES_OK;
    ares_str_addf(&v->first,
                  "decoding and the training forward give %lld of %lld tokens other logits, by up "
                  "to %.3g",
                  (long long)counts[1], (long long)counts[0], off);
    return ARES_OK;
}

/* ---------------------------------------------------------------- the table */

static void add_line(ares_str *out, const char *name, const char *format, ...) ARES_PRINTF(3, 4);
static void add_line(ares_str *out, const char *name, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ares_str_addf(out, "  %-34s %s\n", name, text);
}

static void write_table(const verification *v, ares_str *out)
{
    const replay *r = &v->r;
    const training *t = &r->trainer.run;
    int ranks = ares_world_size(t->world);
    ares_str_addf(out, "step %lld of %s, again from %s\n(%s, %d thread%s, %d rank%s",
                  (long long)r->step, r->dir.data,
                  r->checkpoint.len ? r->checkpoint.data : t->model_dir.data, t->device.k->name,
                  ares_pool_threads(t->device.pool),
                  ares_pool_threads(t->device.pool) == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
    if (r->ranks && r->ranks != ranks)
        ares_str_addf(out, "; the run had %lld", (long long)r->ranks);
    ares_str_add_z(out, ")\n\nwith what the run wrote\n");
    for (int k = 0; k < KINDS; k++) {
        char tokens[48] = "";
        if (!v->compared[k]) {
            if (k < SCORES) add_line(out, kind_names[k], "not written");
            continue;
        }
        if (v->tokens[k])
            (void)snprintf(tokens, sizeof tokens, ", %lld tokens", (long long)v->tokens[k]);
        add_line(out, kind_names[k], "%lld of %lld rows equal%s%s", (long long)v->equal[k],
                 (long long)v->compared[k], tokens,
                 k == SCORES && v->users ? " (the user's programs decide them)" : "");
    }
    if (v->turned)
        add_line(out, "not compared", "%lld rows whose environment answered otherwise",
                 (long long)v->turned);
    if (v->extra + v->missing)
        add_line(out, "not compared",
                 "%lld rows that only the run has, %lld that only the replay has",
                 (long long)v->extra, (long long)v->missing);
    if (v->fillers)
        add_line(out, "not compared", "%lld masked rows that fill a batch of %lld ranks",
                 (long long)v->fillers, (long long)ARES_MAX(r->ranks, ranks));
    if (v->file.torn) add_line(out, "not compared", "the last line of the file, which has no end");
    ares_str_add_z(out, "\ndecoding with the training forward\n");
    if (v->beside[0])
        add_line(out, "log-probabilities, entropies",
                 "%lld of %lld tokens equal, largest difference %.3g",
                 (long long)(v->beside[0] - v->beside[1]), (long long)v->beside[0], v->beside_abs);
    else add_line(out, "log-probabilities, entropies", "no token of the step has any to compare");
    if (v->beside[2])
        add_line(out, "logits", "%lld of %lld rows of %d equal, largest difference %.3g",
                 (long long)(v->beside[2] - v->logits_differ), (long long)v->beside[2], r->vocab,
                 v->logits_abs);
    else
        add_line(out, "logits", "%s",
                 r->max_looks ? "no token was drawn by a rank alone" : "not shown by this device");
    ares_str_add_char(out, '\n');
    if (v->users)
        ares_str_add_z(out, "Rewards or environments of this run are the user's programs, which "
                            "need not answer alike\ntwice: what was sampled is compared, what they "
                            "decide is only told.\n");
    if (!v->exact)
        ares_str_add_z(out, "These kernels agree in decoding and training within the error of the "
                            "type: the difference\nis told, and is none of the run.\n");
}

/* ---------------------------------------------------------------- in order */

/* A failure before anything was compared, which is no difference. */
static int nothing(int rc)
{
    if (rc == ARES_OK || rc == ARES_EINTERRUPTED || rc == ARES_EUSE) return rc;
    return ares_fail_in(ARES_EUSE, "verify: nothing was compared");
}

static int compare(verification *v, ares_str *out)
{
    ares_trainer *t = &v->r.trainer;
    bool lead = ares_world_rank(t->run.world) == 0;
    ares_str text = { 0 }, again = { 0 };
    int rc = lead ? ares_file_read(v->r.file.data, &text) : ARES_OK;
    rc = nothing(ares_world_share_error(t->run.world, rc));
    if (rc == ARES_OK) rc = nothing(report_rows(t, &again));
    if (rc == ARES_OK && lead) {
        rc = read_rows(&v->arena, ares_str_view(&again), "the replay", &v->again);
        /* a line that is no row was changed, or is damaged: the run has written none such */
        if (rc == ARES_OK)
            rc = read_rows(&v->arena, ares_str_view(&text), v->r.file.data, &v->file);
        if (rc == ARES_OK) compare_rows(v);
        else rc = ares_fail_in(ARES_ESTATE, "verify: step %lld: different", (long long)v->r.step);
    }
    rc = ares_world_share_error(t->run.world, rc);
    if (rc == ARES_OK) rc = nothing(compare_log_probs(v));
    if (rc == ARES_OK) rc = nothing(compare_logits(v));
    if (rc == ARES_OK && lead) write_table(v, out);
    if (rc == ARES_OK && lead && v->first.len)
        rc = ares_fail(ARES_ESTATE, "verify: step %lld: different: %s", (long long)v->r.step,
                       v->first.data);
    ares_str_fini(&text);
    ares_str_fini(&again);
    return ares_world_share_error(t->run.world, rc);
}

int ares_verify_run(const ares_verify_options *o, ares_world *world, ares_str *out)
{
    verification *v = ares_calloc(1, sizeof *v);
    int rc = nothing(replay_open(&v->r, o, world));
    if (rc == ARES_OK) {
        rc = replay_load(&v->r);
        /* what is there and is not what the run had is a difference; what cannot be read is none */
        if ((rc == ARES_ESTATE || rc == ARES_EFORMAT) && replay_whole(&v->r))
            rc = ares_fail_in(ARES_ESTATE, "verify: step %lld: different", (long long)v->r.step);
        else rc = nothing(rc);
    }
    const training *t = &v->r.trainer.run;
    if (rc == ARES_OK) {
        v->exact = t->device.index < 0 && strcmp(v->r.c.trainer.kernels, "native") == 0;
        rc = nothing(replay_step(&v->r));
    }
    if (rc == ARES_OK) rc = compare(v, out);
    replay_close(&v->r);
    ares_str_fini(&v->first);
    ares_arena_fini(&v->arena);
    ares_free(v);
    return rc;
}
