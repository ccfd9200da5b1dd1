/* A curriculum: first its options, then the source that draws from several weighted data sets. */
#include "internal.h"

#include <math.h>
#include <string.h>

#include "ares/core.h"

/* The options of a curriculum: names, weights and caps of its data sets (docs/curriculum.md). */

ARES_OPTION_TABLE(ares_curriculum_options, ares_curriculum_config, ARES_CURRICULUM_OPTIONS);

enum { NAME_BYTES = 80 };
enum { STEPS_CHECKED = 10000 }; /* values of schedules that are tried before a run begins */
/* The weight of a part at a step; one that is not finite is an error. */
static int curriculum_weight(const ares_curriculum *c, int64_t part, int64_t step, double *weight)
{
    *weight = 1;
    if (!c->weights) return ARES_OK;
    /* a constant, or a schedule of the step */
    int rc = ares_scheduled_at(c->weights[part], step, weight);
    if (rc != ARES_OK) return ares_fail_in(rc, "weight of '%s'", c->names[part]);
    if (isfinite(*weight)) return ARES_OK;
    /* e.g. a schedule that divides by step, at step 0 */
    return ares_fail(ARES_ECONFIG, "weight of '%s': %s: is not finite at step %lld", c->names[part],
                     ares_scheduled_text(c->weights[part]), (long long)step);
}

/* A weight is a number; all that is wrong with the weights of a step, in one message. */
static int check_weights(const ares_curriculum *c, int64_t step)
{
    double sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        double w;
        ARES_TRY(curriculum_weight(c, i, step, &w));
        sum += fmax(w, 0);
    }
    if (sum > 0 && isfinite(sum)) return ARES_OK;
    if (sum > 0)
        return ares_fail(ARES_ECONFIG,
                         "at step %lld the weights add up to infinity; make them smaller",
                         (long long)step);
    return ares_fail(ARES_ECONFIG,
                     "at step %lld no data set has a weight above 0; let one be positive",
                     (long long)step);
}
/* Tries the schedules before a run begins: a weight that fails at step 9,000 fails now. */
static void check_steps(ares_config *cfg, const ares_curriculum *c, int64_t steps)
{
    bool weights = c->weights, caps = c->caps;
    for (int64_t step = 0; step < ARES_MIN(ARES_MAX(steps, 1), STEPS_CHECKED); step++) {
        if (weights && check_weights(c, step) != ARES_OK) {
            ares_config_fault(cfg, "curriculum.weights", "%s", ares_error_message());
            weights = false;
        }
        for (int64_t i = 0; i < c->n && caps; i++) {
            double cap;
            int rc = ares_scheduled_at(c->caps[i], step, &cap);
            if (rc == ARES_OK && cap < 0)
                rc = ares_fail(ARES_ECONFIG,
                               "'%s': the cap is %g at step %lld; caps are 0 or more, null is none",
                               c->names[i], cap, (long long)step);
            if (rc == ARES_OK) continue;
            ares_config_fault(cfg, "curriculum.reward_caps", "%s", ares_error_message());
            caps = false;
        }
    }
}

void ares_curriculum_read(ares_config *cfg, const ares_curriculum_config *o,
                          const ares_texts *files, int64_t steps, bool force, ares_curriculum *out)
{
    static const char schedules[] = "curriculum.schedules", weights[] = "curriculum.weights",
                      caps[] = "curriculum.reward_caps";
    int64_t n;
    *out = (ares_curriculum){ .by_rollout = strcmp(o->step_unit, "rollout") == 0 };
    ares_config_check_schedules(cfg, schedules);
    /* no option of the curriculum is set: the run draws from a plain data set */
    if (!o->names.count && o->weights->type == ARES_JSON_NULL &&
        o->reward_caps->type == ARES_JSON_NULL)
        return;
    out->n = files->count;
    if (o->names.count && o->names.count != files->count) {
        ares_config_fault(cfg, "curriculum.names",
                          "has %lld entries, and data.train_files %lld; give one for each",
                          (long long)o->names.count, (long long)files->count);
        out->n = 0;
        return;
    }
    out->names = o->names.items;
    /* without names, those of the files */
    if (!o->names.count) {
        const char **names = ares_config_alloc(cfg, (size_t)files->count * sizeof *names);
        for (int64_t i = 0; i < files->count; i++) {
            ares_view name = path_name(files->items[i]);
            char *copy = ares_config_alloc(cfg, name.len + 1);
            memcpy(copy, name.data, name.len);
            names[i] = copy;
        }
        out->names = names;
    }
    out->weights = ares_config_schedules(cfg, weights, ARES_SCHEDULE_WEIGHT, schedules, &n);
    if (out->weights && n != files->count) {
        ares_config_fault(cfg, weights,
                          "has %lld entries, and data.train_files %lld; give one for each",
                          (long long)n, (long long)files->count);
        out->weights = NULL;
    }
    out->caps = ares_config_schedules(cfg, caps, ARES_SCHEDULE_CAP, schedules, &n);
    if (out->caps && n != files->count) {
        /* slime trains without caps where their number does not fit; here --force has to say so */
        out->caps_left_out = force;
        out->caps = NULL;
        if (!force)
            ares_config_fault(cfg, caps,
                              "has %lld entries, and data.train_files %lld; give one for each, "
                              "null where there is no cap, or pass --force to train without caps",
                              (long long)n, (long long)files->count);
    }
    /* reports every fault, not only the first */
    static const char option[] = "curriculum.names";
    for (int64_t i = 0; i < out->n; i++) {
        const char *name = out->names[i];
        if (!*name || strlen(name) > NAME_BYTES || strpbrk(name, "/ \t\r\n"))
            ares_config_fault(cfg, option,
                              "'%s': the name of a data set is part of names of metrics; use 1 to "
                              "%d characters, neither '/' nor blanks",
                              name, NAME_BYTES);
        /* two equal names would share one metric, and one place in a saved state */
        for (int64_t k = 0; k < i; k++)
            if (strcmp(name, out->names[k]) == 0)
                ares_config_fault(cfg, option,
                                  "'%s' is the name of two data sets; give each its own", name);
    }
    check_steps(cfg, out, steps);
}

int ares_curriculum_caps(const ares_curriculum *c, int64_t step, double *caps)
{
    for (int64_t i = 0; i < c->n; i++) {
        /* NaN: no cap */
        caps[i] = NAN;
        int rc = c->caps ? ares_scheduled_at(c->caps[i], step, &caps[i]) : ARES_OK;
        if (rc != ARES_OK)
            return ares_fail_in(rc, "data: curriculum: reward cap of '%s'", c->names[i]);
        if (caps[i] < 0)
            return ares_fail(ARES_ECONFIG,
                             "data: curriculum: reward cap of '%s': %s: is %g at step %lld; caps "
                             "are 0 or more",
                             c->names[i], ares_scheduled_text(c->caps[i]), caps[i],
                             (long long)step);
    }
    return ARES_OK;
}

/*
 * Weighted data sets as a source (docs/curriculum.md). Each keeps its own place, epoch and order;
 * draw numbers run over all of them. After slime's MultipleWeightedRolloutDataSourceWithBuffer,
 * without what goes wrong there: a fetch may span any number of epochs, no count is negative, and
 * numbers of groups are unique.
 */

typedef struct part {
    int64_t first, rows;   /* rows [first, first + rows) of the data set */
    int64_t offset, epoch; /* the next prompt: its place in the order of this epoch */
    int64_t drawn;         /* fresh prompts so far */
    int64_t ahead;         /* of the last fetch: draw number less the number within the part */
    int64_t *order, order_rows, order_epoch; /* [order_rows] row ids; epoch -1: none made yet */
    bool warned;                             /* of a weight below 0 */
} part;
typedef struct mixture {
    ares_dataset *data;
    const ares_curriculum *curriculum;
    ares_order order;
    int n;
    part *parts;       /* [n] */
    int64_t *skipped;  /* [rows] the last epoch that a row is part of; LOADER_KEPT: all */
    int64_t n_skipped; /* rows */
    int64_t fetches, next_draw, training_step;
} mixture;

/* ---------------------------------------------------------------- shares and orders */
int mixture_distribute(const double *weights, int parts, int64_t n, int64_t *counts)
{
    double total = 0;
    int64_t left = n;
    for (int i = 0; i < parts; i++) total += fmax(weights[i], 0);
    if (!(total > 0))
        return ares_fail(ARES_ECONFIG, "no data set has a weight above 0; let one be positive");
    if (!isfinite(total))
        return ares_fail(ARES_ECONFIG, "the weights add up to infinity; make them smaller");
    for (int i = 0; i < parts - 1; i++) { /* nearbyint rounds half to even, as Python's round */
        counts[i] = (int64_t)nearbyint((double)n * (fmax(weights[i], 0) / total));
        left -= counts[i];
    }
    counts[parts - 1] = ARES_MAX(left, 0);
    /* shares that round up may be too much: 3 prompts by 1:1:0 are 2 + 2 + 0 */
    for (int i = parts - 2; i >= 0 && left < 0; i--) {
        int64_t taken = ARES_MIN(counts[i], -left);
        counts[i] -= taken;
        left += taken;
    }
    return ARES_OK;
}

void mixture_order(uint64_t seed, int64_t epoch, int64_t *order, int64_t n)
{
    ares_mt19937 stream;
    ares_py_seed(&stream, seed + (uint64_t)epoch);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    ares_py_shuffle(&stream, order, n);
}

/* The order of the part's present epoch, without skipped rows. */
static void make_order(const mixture *m, part *p)
{
    if (p->order_epoch == p->epoch) return;
    if (m->order.shuffle) mixture_order(m->order.seed, p->epoch, p->order, p->rows);
    else
        for (int64_t i = 0; i < p->rows; i++) p->order[i] = i;
    p->order_rows = 0;
    for (int64_t i = 0; i < p->rows; i++) {
        int64_t id = p->first + p->order[i];
        if (m->skipped[id] >= p->epoch) p->order[p->order_rows++] = id;
    }
    p->order_epoch = p->epoch;
}

static int n_parts(const void *state)
{
    return ((const mixture *)state)->n;
}

/* A fetch is counted only where it succeeds, so that it can be asked for again. */
static int share(void *state, int64_t n, int64_t *step, ares_share *out)
{
    mixture *m = state;
    const ares_curriculum *c = m->curriculum;
    /* curriculum.step_unit: a step may fetch several times, where groups are filtered */
    *step = c->by_rollout ? m->training_step : m->fetches;
    double *weights = ares_malloc((size_t)m->n * sizeof *weights);
    int64_t *counts = ares_malloc((size_t)m->n * sizeof *counts);
    int rc = ARES_OK;
    for (int i = 0; i < m->n && rc == ARES_OK; i++) {
        rc = curriculum_weight(c, i, *step, &weights[i]);
        if (rc != ARES_OK || weights[i] >= 0 || m->parts[i].warned) continue;
        m->parts[i].warned = true;
        ares_warn("data: curriculum: weight of '%s' is %g at step %lld; it counts as 0",
                  c->names[i], weights[i], (long long)*step);
    }
    if (rc == ARES_OK) rc = mixture_distribute(weights, m->n, n, counts);
    for (int i = 0; i < m->n && rc == ARES_OK; i++) out[i] = (ares_share){ counts[i], weights[i] };
    ares_free(counts);
    ares_free(weights);
    if (rc != ARES_OK) return ares_fail_in(rc, "data: curriculum: step %lld", (long long)*step);
    m->fetches++;
    return ARES_OK;
}

/* n fresh prompts of one part; a part that ends its epoch begins the next within the fetch. */
static int next_of(void *state, int which, int64_t n, ares_drawn *out)
{
    mixture *m = state;
    part *p = &m->parts[which];
    if (n) p->ahead = m->next_draw - p->drawn;
    for (int64_t i = 0; i < n; i++) {
        make_order(m, p);
        /* the epoch of this part is over; the other parts are in epochs of their own */
        if (p->offset >= p->order_rows) {
            p->epoch++;
            p->offset = 0;
            make_order(m, p);
        }
        if (!p->order_rows)
            return ares_fail(ARES_ESTATE,
                             "data: curriculum: all %lld rows of '%s' are skipped; end the run, "
                             "add rows, or give it the weight 0",
                             (long long)p->rows, m->curriculum->names[which]);
        out[i] = (ares_drawn){ .draw = m->next_draw++,
                               .id = p->order[p->offset++],
                               .local = p->drawn++ };
    }
    return ARES_OK;
}

static void begin_step(void *state, int64_t step)
{
    ((mixture *)state)->training_step = step;
}

/* ---------------------------------------------------------------- as one source */
static int64_t draw(const void *state)
{
    (void)state; /* any number of prompts can be drawn */
    return 1;
}

static const ares_row *row(const void *state, int64_t id)
{
    return ares_dataset_row(((const mixture *)state)->data, id);
}

static int64_t count(const void *state)
{
    return ares_dataset_count(((const mixture *)state)->data);
}

/* As many prompts as there are rows are an epoch of the whole. */
static int64_t epoch(const void *state)
{
    const mixture *m = state;
    int64_t drawn = 0;
    for (int i = 0; i < m->n; i++) drawn += m->parts[i].drawn;
    return drawn / count(state);
}

/* Draws of an epoch: the rows that are left by the prompts of a draw. */
static int64_t epoch_draws(const void *state)
{
    const mixture *m = state;
    return (count(state) - m->n_skipped) / m->order.draw;
}

static void skip(void *state, int64_t id)
{
    mixture *m = state;
    if (m->skipped[id] != LOADER_KEPT) return;
    /* out of the next epoch on, so that the order of this one stays */
    m->skipped[id] = m->parts[row(m, id)->part].epoch;
    m->n_skipped++;
}

static int64_t skipped(const void *state)
{
    return ((const mixture *)state)->n_skipped;
}

static void close_mixture(void *state)
{
    mixture *m = state;
    for (int i = 0; i < m->n; i++) ares_free(m->parts[i].order);
    ares_free(m->parts);
    ares_free(m->skipped);
    ares_dataset_free(m->data);
    ares_free(m);
}

/* ---------------------------------------------------------------- state */
#define PART_COUNTS(X) X(rows) X(offset) X(epoch) X(drawn) X(ahead)

static void save(const void *state, ares_str *json)
{
    const mixture *m = state;
    ares_json_write_i64(ares_json_key(json, "fetches"), m->fetches);
    ares_json_write_i64(ares_json_key(json, "next_draw"), m->next_draw);
    ares_json_begin(ares_json_key(json, "parts"), '[');
    for (int i = 0; i < m->n; i++) {
        const part *p = &m->parts[i];
        ares_json_begin(json, '{');
        ares_json_write_string(ares_json_key(json, "name"), ares_view_of(m->curriculum->names[i]));
#define WRITE(name) ares_json_write_i64(ares_json_key(json, #name), p->name);
        PART_COUNTS(WRITE)
#undef WRITE
        source_save_skipped(json, m->skipped + p->first, m->n_skipped ? p->rows : 0);
        ares_json_end(json, '}');
    }
    ares_json_end(json, ']');
}

/* Parts are told apart by name: with --force their files may be listed in another order. */
static ares_view name_of(const ares_json *saved)
{
    const ares_json *name = ares_json_get(saved, "name");
    return name && name->type == ARES_JSON_STRING ? name->text : (ares_view){ "", 0 };
}

static int find_part(const mixture *m, ares_view name)
{
    for (int i = 0; i < m->n; i++)
        if (ares_view_is(name, m->curriculum->names[i])) return i;
    return -1;
}

/* Fails, or warns with other_rows, where the state is of other data sets. */
static int check_list(const mixture *m, const ares_json *saved, bool other_rows)
{
    bool same = saved->count == m->n;
    for (int64_t i = 0; same && i < saved->count; i++)
        same = ares_view_is(name_of(&saved->items[i]), m->curriculum->names[i]);
    if (same) return ARES_OK;
    /* what becomes of each saved and of each present part */
    ares_str text = { 0 };
    int rc = ARES_OK;
    for (int64_t i = 0; i < saved->count; i++) {
        ares_view name = name_of(&saved->items[i]);
        ares_str_addf(&text, "%s'%.*s' %s", i ? ", " : "", (int)name.len, name.data,
                      find_part(m, name) < 0 ? "is gone" : "goes on where it was");
    }
    for (int i = 0; i < m->n; i++) {
        bool there = false;
        for (int64_t k = 0; k < saved->count; k++)
            there = there || ares_view_is(name_of(&saved->items[k]), m->curriculum->names[i]);
        if (!there) ares_str_addf(&text, ", '%s' begins anew", m->curriculum->names[i]);
    }
    if (other_rows) ares_warn("data: curriculum: other data sets than before: %s", text.data);
    else
        rc = ares_fail(ARES_ESTATE,
                       "the run drew from other data sets; of the state %s; restore "
                       "curriculum.names and data.train_files, or pass --force to go on so",
                       text.data);
    ares_str_fini(&text);
    return rc;
}

/* Reads a saved part, except for its order. skips [rows of the part]: the last epoch of each row */
static int read_part(const mixture *m, int i, const ares_json *json, bool other_rows, part *p,
                     int64_t *skips)
{
    const ares_json *list = ares_json_get(json, "skipped_rows");
    int64_t rows = p->rows;
#define READ(name) ARES_TRY(source_load_count(json, #name, &p->name));
    PART_COUNTS(READ)
#undef READ
    if (p->rows != rows && !other_rows)
        return ares_fail(ARES_ESTATE,
                         "'%s' had %lld rows and has %lld now; restore data.train_files, or pass "
                         "--force to go on nevertheless",
                         m->curriculum->names[i], (long long)p->rows, (long long)rows);
    bool good = list && list->type == ARES_JSON_ARRAY && p->offset <= p->rows;
    for (int64_t k = 0; good && k < list->count; k++) {
        const ares_json *pair = &list->items[k];
        good = pair->type == ARES_JSON_ARRAY && pair->count == 2 &&
               is_count(&pair->items[0], p->rows - 1) && is_count(&pair->items[1], p->epoch);
        if (good && pair->items[0].integer < rows)
            skips[pair->items[0].integer] = pair->items[1].integer;
    }
    /* with --force the files may have changed: the place stays as far as there are rows */
    p->rows = rows;
    p->offset = ARES_MIN(p->offset, rows);
    return good ? ARES_OK
                : ares_fail(ARES_EFORMAT,
                            "'%s': its place or its skipped rows are none of its "
                            "rows; the checkpoint is damaged",
                            m->curriculum->names[i]);
}

static int load(void *state, const ares_json *json, bool other_rows)
{
    mixture *m = state, loaded = *m;
    const ares_json *saved = ares_json_get(json, "parts");
    if (!saved || saved->type != ARES_JSON_ARRAY)
        return ares_fail(ARES_EFORMAT, "no list 'parts'; the checkpoint is damaged");
    ARES_TRY(source_load_count(json, "fetches", &loaded.fetches));
    ARES_TRY(source_load_count(json, "next_draw", &loaded.next_draw));
    ARES_TRY(check_list(m, saved, other_rows));
    int64_t rows = count(m), *skips = ares_malloc(((size_t)rows + 1) * sizeof *skips);
    /* everything is read beside the present state, which a failure leaves as it is */
    part *parts = ares_malloc((size_t)m->n * sizeof *parts);
    int rc = ARES_OK;
    for (int64_t i = 0; i < rows; i++) skips[i] = LOADER_KEPT;
    /* memory for orders is kept; the orders themselves are made again when they are needed */
    for (int i = 0; i < m->n; i++) { /* parts that the state does not have begin anew */
        const part *p = &m->parts[i];
        parts[i] = (part){ p->first, p->rows, .order = p->order, .order_epoch = -1 };
    }
    for (int64_t i = 0; i < saved->count && rc == ARES_OK; i++) {
        int k = find_part(m, name_of(&saved->items[i]));
        if (k >= 0) /* else the data set is gone */
            rc = read_part(m, k, &saved->items[i], other_rows, &parts[k], skips + parts[k].first);
    }
    if (rc == ARES_OK) {
        loaded.n_skipped = 0;
        for (int64_t i = 0; i < rows; i++) loaded.n_skipped += skips[i] != LOADER_KEPT;
        memcpy(m->parts, parts, (size_t)m->n * sizeof *parts);
        memcpy(m->skipped, skips, (size_t)rows * sizeof *skips);
        m->fetches = loaded.fetches;
        m->next_draw = loaded.next_draw;
        m->n_skipped = loaded.n_skipped;
    }
    ares_free(parts);
    ares_free(skips);
    return rc;
}

/* A saved id counts through the rows of the saved parts, in their order. */
/* For prompts that were given back, after the data sets have changed (--force). */
static int64_t moved(const void *state, const ares_json *json, int64_t id)
{
    const mixture *m = state;
    const ares_json *saved = ares_json_get(json, "parts");
    for (int64_t i = 0; saved && saved->type == ARES_JSON_ARRAY && i < saved->count; i++) {
        const ares_json *rows = ares_json_get(&saved->items[i], "rows");
        int k = find_part(m, name_of(&saved->items[i]));
        if (!is_count(rows, INT64_MAX / 2)) return ARES_ROW_NONE;
        if (id < rows->integer)
            return k >= 0 && id < m->parts[k].rows ? m->parts[k].first + id : ARES_ROW_GONE;
        id -= rows->integer;
    }
    return ARES_ROW_NONE;
}

static const ares_source_kind kind = { .name = "mixture",
                                       .draw = draw,
                                       .parts = n_parts,
                                       .share = share,
                                       .next_of = next_of,
                                       .begin_step = begin_step,
                                       .moved = moved,
                                       .row = row,
                                       .count = count,
                                       .epoch = epoch,
                                       .epoch_draws = epoch_draws,
                                       .skip = skip,
                                       .skipped = skipped,
                                       .save = save,
                                       .load = load,
                                       .close = close_mixture };

int ares_source_of_mixture(ares_dataset *d, const ares_curriculum *c, const ares_order *order,
                           ares_source *out)
{
    mixture *m = ares_calloc(1, sizeof *m);
    *m = (mixture){ .data = d, .curriculum = c, .order = *order, .n = (int)c->n };
    m->parts = ares_calloc((size_t)c->n, sizeof *m->parts);
    m->skipped = ares_malloc(((size_t)count(m) + 1) * sizeof *m->skipped);
    for (int64_t i = 0; i < count(m); i++) m->skipped[i] = LOADER_KEPT;
    int rc = ARES_OK;
    /* where each part lies: its rows are adjacent, because a file is read at once */
    for (int64_t i = 0; i < count(m); i++) {
        part *p = &m->parts[row(m, i)->part];
        ARES_ASSERT(row(m, i)->part < m->n);
        if (!p->rows++) p->first = i;
    }
    for (int i = 0; i < m->n && rc == ARES_OK; i++) {
        part *p = &m->parts[i];
        p->order_epoch = -1;
        if (p->rows) p->order = ares_malloc((size_t)p->rows * sizeof *p->order);
        else
            rc = ares_fail(ARES_ECONFIG,
                           "data: curriculum: '%s' has no row left: their prompts are longer "
                           "than data.max_prompt_length",
                           m->curriculum->names[i]);
    }
    if (rc != ARES_OK) {
        /* after a failure the data set stays with whoever gave it */
        m->data = NULL; /* the caller's */
        close_mixture(m);
        return rc;
    }
    *out = (ares_source){ .kind = &kind, .state = m };
    return ARES_OK;
}
