/*
 * How much thoughts depend on prompts. Turns are drawn, and the thought of each is scored after the
 * prompts of all drawn turns. Every rank knows the numbers of all turns and draws the same ones;
 * ranks exchange the tokens of drawn turns, divide the prompts among them, and add up their scores.
 * Each score is computed by one rank, so the sums are exact.
 */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/algo.h"

/* A turn of any rank. */
typedef struct known_turn {
    int64_t group, episode;
    int32_t turn, x_len, z_len;
    int32_t rank;
    int64_t own; /* its number on that rank */
} known_turn;

/* A turn whose tokens are known. */
typedef struct drawn_turn {
    const known_turn *of;
    const int32_t *x, *z; /* [x_len], [z_len] */
} drawn_turn;

typedef struct collapse_pool {
    ares_trainer *t;
    const collapse_turn *mine;
    ares_arena arena;
    known_turn *turns; /* [n], by group, episode, turn */
    int64_t n;
} collapse_pool;

/* Drawn turns, by number in the pool; one may occur twice. */
typedef struct draws {
    int64_t n, *turn; /* [n] */
} draws;

bool report_collapse_due(const ares_trainer *t)
{
    int64_t freq = t->run.cfg->collapse.freq;
    return freq > 0 && (t->run.step == 0 || (t->run.step + 1) % freq == 0);
}

static int by_number(const void *a, const void *b)
{
    const known_turn *x = a, *y = b;
    if (x->group != y->group) return ARES_CMP(x->group, y->group);
    if (x->episode != y->episode) return ARES_CMP(x->episode, y->episode);
    return ARES_CMP(x->turn, y->turn);
}

/* All ranks learn the turns of all, without tokens. n: this rank's */
static int gather(collapse_pool *p, int64_t n)
{
    ares_world *world = p->t->run.world;
    int ranks = ares_world_size(world);
    ares_str all = { 0 };
    size_t *start = ares_arena_alloc(&p->arena, (size_t)(ranks + 1) * sizeof *start);
    known_turn *own = ares_arena_calloc(&p->arena, (size_t)n + 1, sizeof *own);
    for (int64_t i = 0; i < n; i++) {
        const collapse_turn *c = &p->mine[i];
        own[i] = (known_turn){ .group = c->group,
                               .episode = c->episode,
                               .turn = c->turn,
                               .x_len = c->x_len,
                               .z_len = c->z_len,
                               .rank = ares_world_rank(world),
                               .own = i };
    }
    int rc = ares_world_gather_all(world, own, (size_t)n * sizeof *own, &all, start);
    if (rc == ARES_OK) {
        p->n = (int64_t)(all.len / sizeof *own);
        p->turns = ares_arena_alloc(&p->arena, all.len + sizeof *own);
        if (all.len) memcpy(p->turns, all.data, all.len);
        if (p->n) qsort(p->turns, (size_t)p->n, sizeof *p->turns, by_number);
    }
    ares_str_fini(&all);
    return rc;
}

/* ---------------------------------------------------------------- drawing */
enum { FIRST_TURN, TRAJECTORY };

static ares_rng_key key_of(const ares_trainer *t, uint64_t kind)
{
    ares_rng_key root = ares_rng_root((uint64_t)t->run.cfg->rollout.seed, ARES_RNG_REPORT);
    return ares_rng_sub(root, (uint64_t)t->run.step, kind);
}

/* Draws first turns that have a thought, none twice. */
static void draw_first(collapse_pool *p, draws *d, ares_metrics *m)
{
    double total = 0;
    *d = (draws){ .turn = ares_arena_alloc(&p->arena, ((size_t)p->n + 1) * sizeof *d->turn) };
    for (int64_t i = 0; i < p->n; i++) {
        total += p->turns[i].turn == 0;
        if (p->turns[i].turn == 0 && p->turns[i].z_len > 0) d->turn[d->n++] = i;
    }
    ares_metrics_set(m, "collapse/first_turn_num_total", total);
    ares_metrics_set(m, "collapse/first_turn_num_valid", (double)d->n);
    if (total > 0) ares_metrics_set(m, "collapse/first_turn_valid_rate", (double)d->n / total);
    int64_t wanted = p->t->run.cfg->collapse.samples;
    if (d->n <= wanted) return;
    ares_rng_shuffle(key_of(p->t, FIRST_TURN), d->turn, d->n);
    d->n = wanted;
    ares_sort_i64(d->turn, d->n);
}

/*
 * Each draw takes an episode with a thought, then one of its turns with a thought. There are at
 * most as many draws as such turns.
 */
static void draw_turns(collapse_pool *p, draws *d)
{
    size_t size = ((size_t)p->n + 1) * sizeof *d->turn;
    int64_t *valid = ares_arena_alloc(&p->arena, size), *first = ares_arena_alloc(&p->arena, size),
            n = 0, episodes = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const known_turn *now = &p->turns[i], *before = n ? &p->turns[valid[n - 1]] : NULL;
        if (now->z_len == 0) continue;
        if (!before || before->group != now->group || before->episode != now->episode)
            first[episodes++] = n;
        valid[n++] = i;
    }
    first[episodes] = n;
    ares_rng_key key = key_of(p->t, TRAJECTORY);
    *d = (draws){ .n = ARES_MIN(p->t->run.cfg->collapse.samples, n) };
    d->turn = ares_arena_alloc(&p->arena, ((size_t)d->n + 1) * sizeof *d->turn);
    for (int64_t i = 0; i < d->n; i++) {
        uint64_t at = (uint64_t)i * 2;
        int64_t e = (int64_t)ares_rng_below(key, at, (uint64_t)episodes);
        d->turn[i] = valid[first[e] + (int64_t)ares_rng_below(key, at + 1,
                                                              (uint64_t)(first[e + 1] - first[e]))];
    }
}

/* Fetches the tokens of drawn turns, each once: out [*n], in the order of the pool, in the arena.
 */
static int fetch(collapse_pool *p, const draws *d, drawn_turn **out, int64_t *n)
{
    ares_world *world = p->t->run.world;
    ares_str mine = { 0 }, all = { 0 };
    size_t *at = ares_arena_alloc(&p->arena, (size_t)(ares_world_size(world) + 1) * sizeof *at);
    bool *wanted = ares_arena_calloc(&p->arena, (size_t)p->n + 1, sizeof *wanted);
    *out = ares_arena_alloc(&p->arena, ((size_t)d->n + 1) * sizeof **out);
    *n = 0;
    for (int64_t i = 0; i < d->n; i++) wanted[d->turn[i]] = true;
    for (int64_t i = 0; i < p->n; i++) {
        if (!wanted[i] || p->turns[i].rank != ares_world_rank(world)) continue;
        const collapse_turn *c = &p->mine[p->turns[i].own];
        ares_str_add(&mine, (const char *)c->x, (size_t)c->x_len * sizeof *c->x);
        ares_str_add(&mine, (const char *)c->z, (size_t)c->z_len * sizeof *c->z);
    }
    int rc = ares_world_gather_all(world, mine.data, mine.len, &all, at);
    char *tokens = ares_arena_alloc(&p->arena, all.len + sizeof(int32_t));
    if (rc == ARES_OK && all.len) memcpy(tokens, all.data, all.len);
    for (int64_t i = 0; i < p->n && rc == ARES_OK; i++) {
        const known_turn *k = &p->turns[i];
        if (!wanted[i]) continue;
        const int32_t *x = (const int32_t *)(void *)(tokens + at[k->rank]);
        (*out)[(*n)++] = (drawn_turn){ k, x, x + k->x_len };
        at[k->rank] += (size_t)(k->x_len + k->z_len) * sizeof *x;
    }
    ares_str_fini(&mine);
    ares_str_fini(&all);
    return rc;
}

/* ---------------------------------------------------------------- scoring */
/* Finds the distinct prompts of turns; text [n], written: the number of each turn's prompt. */
static int64_t tell_prompts_apart(const drawn_turn *turns, int64_t n, int64_t *text,
                                  const drawn_turn **prompt)
{
    int64_t prompts = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t bytes = (size_t)turns[i].of->x_len * sizeof *turns->x;
        for (text[i] = 0; text[i] < prompts; text[i]++) {
            const drawn_turn *other = prompt[text[i]];
            if (other->of->x_len == turns[i].of->x_len && memcmp(other->x, turns[i].x, bytes) == 0)
                break;
        }
        if (text[i] == prompts) prompt[prompts++] = &turns[i];
    }
    return prompts;
}

/* Scores this rank's share of the prompts: sum [n][prompts] of log-probs, 0 elsewhere. */
static int score_share(collapse_pool *p, const drawn_turn *turns, int64_t n,
                       const drawn_turn *const *prompt, int64_t prompts, double *sum)
{
    ares_trainer *t = p->t;
    learner_scoring scoring = learner_scoring_of(t->run.cfg);
    int64_t ranks = ares_world_size(t->run.world), row = 0;
    ares_batch b;
    scoring.share_prompts = true; /* changes no log-prob */
    ares_batch_init(&b);
    /*
     * Every thought after a prompt, as groups that share the prompt. A pass takes whole groups, so
     * a group has no more tokens than a pass may have, except for a single longer thought.
     */
    for (int64_t j = ares_world_rank(t->run.world); j < prompts; j += ranks) {
        const ares_sample of = { .prompt = prompt[j]->x, .prompt_len = prompt[j]->of->x_len };
        int64_t tokens = 0;
        for (int64_t i = 0; i < n; i++) {
            int32_t length = turns[i].of->z_len;
            if (i == 0 || tokens + length > scoring.max_token_len) {
                ares_batch_begin_group(&b);
                tokens = of.prompt_len;
            }
            tokens += length;
            ares_batch_add_row(&b, &of, length);
        }
    }
    ARES_PUT(&b, responses);
    float *log_probs = ares_arena_calloc(&b.arena, (size_t)b.tokens + 1, sizeof *log_probs);
    for (int64_t r = 0; r < b.rows; r++)
        memcpy(b.responses + b.row_start[r], turns[r % n].z,
               (size_t)turns[r % n].of->z_len * sizeof *b.responses);
    /* a rank without rows calls this, too: all ranks make the same passes */
    int rc = learner_log_probs(&t->actor.learner, &scoring, &b, 0, b.rows, log_probs, NULL);
    for (int64_t j = ares_world_rank(t->run.world); j < prompts; j += ranks)
        for (int64_t i = 0; i < n; i++, row++)
            for (int64_t k = b.row_start[row]; k < b.row_start[row + 1]; k++)
                sum[i * prompts + j] += (double)log_probs[k];
    ares_batch_fini(&b);
    return rc;
}

/* ---------------------------------------------------------------- metrics */
/* A comparison of drawn thoughts, and the prompts after which they are scored. */
typedef struct comparison {
    int64_t thoughts, prompts;
    const drawn_turn **thought; /* [thoughts] */
    int64_t *own, *text;        /* as in ares_collapse_scores */
} comparison;

static void put(ares_metrics *m, const char *kind, const char *name, double x)
{
    char key[96];
    (void)snprintf(key, sizeof key, "%s/%s", kind, name);
    if (isfinite(x)) ares_metrics_set(m, key, x);
}

static void put_means(ares_metrics *m, const char *kind, const ares_collapse *c)
{
    char name[48];
    put(m, kind, "mi_estimate", c->mi);
    put(m, kind, "mi_upper_bound", c->mi_bound);
    put(m, kind, "conditional_entropy_est", c->conditional_entropy);
    put(m, kind, "reasoning_entropy_est", c->entropy);
    put(m, kind, "marginal_std", c->marginal_std);
    put(m, kind, "mi_zscore", c->zscore);
    for (int k = 0; k < ARES_COLLAPSE_LOOKS; k++) {
        char at[16] = "";
        if (k) (void)snprintf(at, sizeof at, "@%d", ares_collapse_looks[k]);
        (void)snprintf(name, sizeof name, "retrieval_accuracy%s", at);
        put(m, kind, name, c->accuracy[k]);
        (void)snprintf(name, sizeof name, "retrieval_chance_level%s", at);
        put(m, kind, name, c->chance[k]);
    }
}

/*
 * Metrics from means over a thought's tokens and from sums. sum [turns][texts]: log-probs of the
 * turns' thoughts after each distinct prompt
 */
static void measure(collapse_pool *p, const comparison *c, const drawn_turn *turns,
                    const double *sum, int64_t texts, const char *kind, ares_metrics *m)
{
    size_t cells = (size_t)(c->thoughts * c->prompts);
    double *x = ares_arena_alloc(&p->arena, cells * sizeof *x),
           *of = ares_arena_alloc(&p->arena, (size_t)c->thoughts * 2 * sizeof *of);
    for (int means = 0; means < 2; means++) {
        ares_collapse out;
        for (int64_t i = 0; i < c->thoughts; i++)
            for (int64_t j = 0; j < c->prompts; j++)
                x[i * c->prompts + j] = sum[(c->thought[i] - turns) * texts + c->text[j]] /
                                        (means ? c->thought[i]->of->z_len : 1);
        ares_collapse_measure(
            &(ares_collapse_scores){ c->thoughts, c->prompts, x, c->own, c->text }, of,
            of + c->thoughts, &out);
        if (means) {
            put_means(m, kind, &out);
            continue;
        }
        put(m, kind, "mi_seq_estimate", out.mi);
        put(m, kind, "conditional_entropy_seq_est", out.conditional_entropy);
        put(m, kind, "reasoning_entropy_seq_est", out.entropy);
        put(m, kind, "marginal_std_seq", out.marginal_std);
        put(m, kind, "mi_zscore_seq", out.zscore);
    }
}

/*
 * The thoughts and prompts that are compared. The prompts: for first turns (by_group) one per
 * group, or more where members of a group read different ones; else the prompt of every draw.
 * turns [n]: those whose tokens were fetched; text [n]: the number of each one's prompt
 */
static comparison compare(collapse_pool *p, const draws *d, drawn_turn *turns, int64_t n,
                          const int64_t *text, bool by_group)
{
    size_t size = (size_t)d->n + 1;
    comparison c = { .thoughts = d->n,
                     .thought = ares_arena_alloc(&p->arena, size * sizeof *c.thought),
                     .own = ares_arena_alloc(&p->arena, size * sizeof *c.own),
                     .text = ares_arena_alloc(&p->arena, size * sizeof *c.text) };
    drawn_turn **at = ares_arena_calloc(&p->arena, (size_t)p->n + 1, sizeof *at);
    for (int64_t k = 0; k < n; k++) at[turns[k].of - p->turns] = &turns[k];
    for (int64_t i = 0; i < d->n; i++) c.thought[i] = at[d->turn[i]];
    int64_t group =
        0; /* by_group: thoughts are in order of groups; where this one's prompts begin */
    for (int64_t i = 0; i < c.thoughts; i++) {
        int64_t now = text[c.thought[i] - turns], j;
        if (!by_group || i == 0 || c.thought[i]->of->group != c.thought[i - 1]->of->group)
            group = c.prompts;
        for (j = group; j < c.prompts && c.text[j] != now;) j++;
        if (j == c.prompts) c.text[c.prompts++] = now;
        c.own[i] = j;
    }
    return c;
}

static int measure_draws(collapse_pool *p, const draws *d, bool by_group, const char *kind,
                         ares_metrics *m)
{
    drawn_turn *turns;
    int64_t n;
    ARES_TRY(fetch(p, d, &turns, &n));
    int64_t *text = ares_arena_alloc(&p->arena, ((size_t)n + 1) * sizeof *text);
    const drawn_turn **prompt = ares_arena_alloc(&p->arena, ((size_t)n + 1) * sizeof *prompt);
    int64_t texts = tell_prompts_apart(turns, n, text, prompt);
    comparison c = compare(p, d, turns, n, text, by_group);
    if (c.prompts < 2) return ARES_OK; /* nothing to compare with */
    double *sum = ares_arena_calloc(&p->arena, (size_t)(n * texts) + 1, sizeof *sum);
    ares_world *world = p->t->run.world;
    ARES_TRY(ares_world_share_error(world, score_share(p, turns, n, prompt, texts, sum)));
    ARES_TRY(ares_world_sum_f64(world, sum, n * texts));
    measure(p, &c, turns, sum, texts, kind, m);
    return ARES_OK;
}

static int measure_both(collapse_pool *p, ares_metrics *m)
{
    const ares_collapse_config *cfg = &p->t->run.cfg->collapse;
    double valid = 0;
    draws d;
    for (int64_t i = 0; i < p->n; i++) valid += p->turns[i].z_len > 0;
    if (p->n) ares_metrics_set(m, "collapse/valid_thinking_rate", valid / (double)p->n);
    if (cfg->multi_turn) {
        draw_turns(p, &d);
        ARES_TRY(measure_draws(p, &d, false, "collapse_trajectory_sample", m));
    }
    if (!cfg->first_turn) return ARES_OK;
    draw_first(p, &d, m);
    return measure_draws(p, &d, true, "collapse_first_turn_sample", m);
}

int report_collapse(ares_trainer *t, const collapse_turn *turns, int64_t n, ares_metrics *m)
{
    double started = ares_now_s();
    collapse_pool p = { .t = t, .mine = turns };
    if (!report_collapse_due(t)) return ARES_OK;
    int rc = gather(&p, n);
    if (rc == ARES_OK) rc = measure_both(&p, m);
    ares_arena_fini(&p.arena);
    ares_metrics_set(m, "timing_s/collapse", ares_now_s() - started);
    return rc == ARES_OK ? rc : ares_fail_in(rc, "collapse metrics");
}

/* The turns of an answer: of a conversation, or the answer itself as one. Returns their number. */
static int64_t add_turns(const ares_group *g, const ares_trajectory *y, collapse_turn *out)
{
    const ares_trajectory_row *row = &y->rows[0];
    const ares_thought whole = { row->prompt, row->responses, row->prompt_len, row->n_tokens },
                       *thoughts = y->thoughts ? y->thoughts : &whole;
    int32_t n = y->thoughts ? y->n_thoughts : 1;
    for (int32_t k = 0; k < n; k++)
        out[k] = (collapse_turn){ .x = thoughts[k].prompt,
                                  .x_len = thoughts[k].prompt_len,
                                  .z = thoughts[k].ids,
                                  .z_len = thoughts[k].n,
                                  .group = g->place,
                                  .episode = y->index,
                                  .turn = k };
    return n;
}

int report_collapse_groups(ares_trainer *t, const ares_group *groups, int64_t count,
                           ares_metrics *m)
{
    int64_t n = 0;
    if (!report_collapse_due(t)) return ARES_OK;
    for (int64_t g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].n; i++) n += ARES_MAX(1, groups[g].items[i].n_thoughts);
    collapse_turn *turns = ares_calloc((size_t)n + 1, sizeof *turns);
    n = 0;
    for (int64_t g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].n; i++)
            n += add_turns(&groups[g], &groups[g].items[i], turns + n);
    int rc = report_collapse(t, turns, n, m);
    ares_free(turns);
    return rc;
}
