/*
 * One episode: the turns of an environment and of the model, until one of them ends it. First the
 * sums for metrics whose names the environments choose.
 */
#include "agents.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/*
 * Sums for metrics. Ranks may meet different names: each sends its entries, and all merge them in
 * the order of ranks, so that the sums are the same on each.
 */

/* The entry of a name, which is made when it is new; per: as in measure */
static measure *entry(measures *t, const char *name, const char *per)
{
    int64_t i;
    if (!t->index) t->index = ares_map_new();
    if (ares_map_get(t->index, ares_view_of(name), &i)) return &t->items[i];
    ares_map_put(t->index, ares_view_of(name), t->n);
    t->items = ares_realloc(t->items, (size_t)(t->n + 1) * sizeof *t->items);
    t->items[t->n] = (measure){ .name = ares_strdup(name), .per = per ? ares_strdup(per) : NULL };
    return &t->items[t->n++];
}

static void add(measures *t, const char *name, const char *per, double sum, double count)
{
    measure *e = entry(t, name, per);
    e->sum += sum;
    e->count += count;
}

void measures_add(measures *t, const char *name, const char *per, double value)
{
    add(t, name, per, value, 1);
}

void measures_count(measures *t, const char *tag, const char *per, const char *key, double value)
{
    char name[256], of[192];
    snprintf(of, sizeof of, "%.120s/%s", tag, per);
    snprintf(name, sizeof name, "%.120s/%s", tag, key);
    measures_add(t, name, of, value);
    snprintf(name, sizeof name, "%.120s/non-zero/%s", tag, key);
    if (value != 0) measures_add(t, name, NULL, value);
}

int measures_report(measures *t, ares_world *w, const char *prefix, ares_metrics *m)
{
    ares_str mine = { 0 }, all = { 0 }, key = { 0 };
    measures whole = { 0 };
    /* an entry is sent as name and per, each with its NUL, then the bytes of two doubles */
    for (int64_t i = 0; i < t->n; i++) {
        const measure *e = &t->items[i];
        const double numbers[2] = { e->sum, e->count };
        ares_str_add(&mine, e->name, strlen(e->name) + 1);
        ares_str_add(&mine, e->per ? e->per : "", e->per ? strlen(e->per) + 1 : 1);
        ares_str_add(&mine, (const char *)numbers, sizeof numbers);
    }
    int rc = ares_world_gather_all(w, mine.data, mine.len, &all, NULL);
    for (size_t at = 0; rc == ARES_OK && at < all.len;) {
        double numbers[2];
        const char *name = all.data + at, *per = name + strlen(name) + 1;
        at += strlen(name) + strlen(per) + 2;
        memcpy(numbers, all.data + at, sizeof numbers);
        at += sizeof numbers;
        add(&whole, name, *per ? per : NULL, numbers[0], numbers[1]);
    }
    for (int64_t i = 0; i < whole.n; i++) {
        const char *per = whole.items[i].per;
        double count = per ? entry(&whole, per, NULL)->count : whole.items[i].count;
        const measure *e = &whole.items[i]; /* taken now: a new entry may have moved it */
        ares_str_clear(&key);
        ares_str_addf(&key, "%s%s", prefix, e->name);
        if (count > 0) ares_metrics_set(m, key.data, e->sum / count);
    }
    measures_fini(&whole);
    measures_fini(t);
    ares_str_fini(&mine);
    ares_str_fini(&all);
    ares_str_fini(&key);
    return rc;
}

void measures_fini(measures *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        ares_free(t->items[i].name);
        ares_free(t->items[i].per);
    }
    ares_free(t->items);
    ares_map_free(t->index);
    *t = (measures){ 0 };
}

/* One episode: turns of the environment and of the model, until one of them ends it. */

void episode_begin(episode *x, ares_trainer *t, int64_t draw, ares_arena *arena)
{
    const agents *a = t->agents;
    int64_t turns = t->run.cfg->agents.max_turns;
    x->talk.style = &a->style;
    x->talk.turns = ares_arena_calloc(arena, (size_t)turns, sizeof *x->talk.turns);
    x->talk.at = ares_arena_calloc(arena, (size_t)turns + 1, sizeof *x->talk.at);
    ares_json_begin(&x->turns, '[');
    x->start =
        (ares_env_start){ .seed = agents_seed(x->row, draw), .id = x->row->first_id + x->item };
}

int episode_reset(episode *x)
{
    return ares_env_reset(&x->place->env, &x->start);
}

bool episode_over(const episode *x, const ares_train_config *c)
{
    return ares_env_over(&x->place->env) || x->talk.n >= c->agents.max_turns;
}

/* The turn as rollouts/step_*.jsonl shows it. */
static void write_turn(episode *x)
{
    const ares_env *e = &x->place->env;
    const conversation_turn *turn = &x->talk.turns[x->talk.n - 1];
    const ares_env_answer *answer = &x->answer;
    const ares_env_turn *did = &x->did;
    ares_str *out = &x->turns;
    ares_json_begin(out, '{');
    ares_json_write_string(ares_json_key(out, "state"), turn->state);
    ares_json_write_string(ares_json_key(out, "response"), answer->raw);
    ares_json_begin(ares_json_key(out, "actions"), '[');
    for (int i = 0; i < answer->n_actions; i++) ares_json_write_string(out, answer->actions[i]);
    ares_json_end(out, ']');
    ares_json_write_i64(ares_json_key(out, "executed"), did->executed);
    ares_json_write_double(ares_json_key(out, "reward"), did->outcome.reward.value);
    ares_json_write_double(ares_json_key(out, "penalty"), did->penalty);
    ares_json_write_i64(ares_json_key(out, "prompt_tokens"), turn->prompt_len);
    ares_json_write_i64(ares_json_key(out, "n_tokens"), turn->n);
    ares_json_begin(ares_json_key(out, "info"), '{');
    for (int i = 0; i < did->outcome.n_info; i++)
        ares_json_write_double(ares_json_key(out, did->outcome.info[i].name),
                               did->outcome.info[i].value);
    ares_json_end(out, '}');
    /* why the episode is over after the turn; NULL: it goes on, or has no turns left */
    const char *end = e->failure         ? "failed"
                      : ares_env_won(e)  ? "won"
                      : ares_env_over(e) ? (did->outcome.done ? "lost" : "no actions left")
                      : x->full          ? "context full"
                                         : NULL;
    if (end) ares_json_write_string(ares_json_key(out, "end"), ares_view_of(end));
    ares_json_end(out, '}');
}

/* Copies text of an environment without texts of special tokens, which would act as these. */
static ares_view safe(const conversation *c, const ares_str *text, ares_arena *arena)
{
    ares_view copy = { ares_arena_copy(arena, text->data ? text->data : "", text->len), text->len };
    return ares_env_without_specials(&c->style->format, copy, arena);
}

int episode_begin_turn(episode *x, ares_arena *arena, ares_ids *ids)
{
    conversation *c = &x->talk;
    const ares_env *e = &x->place->env;
    conversation_turn *turn = &c->turns[c->n++];
    ares_env silent = *e; /* a copy whose message has no warning */
    ares_str text = { 0 };
    if (c->n == 1) { /* not before: a program tells its actions when it is reset */
        ares_env_system_message(e, &c->style->format, &text);
        c->system = safe(c, &text, arena);
        ares_str_clear(&text);
    }
    ares_env_turn_message(e, &c->style->format, &text);
    turn->message = turn->silent = safe(c, &text, arena);
    if (e->no_valid_action) {
        silent.no_valid_action = false;
        ares_str_clear(&text);
        ares_env_turn_message(&silent, &c->style->format, &text);
        turn->silent = safe(c, &text, arena);
    }
    ares_str_clear(&text);
    ares_env_render(e, &text);
    turn->state = safe(c, &text, arena);
    ares_str_fini(&text);
    ARES_TRY(conversation_prompt(c, arena, ids));
    if (turn->prompt_len < c->style->limit) return ARES_OK;
    /* the turn without an answer is shown in rollouts, then taken out of the conversation */
    x->full = true;
    x->answer = (ares_env_answer){ 0 };
    x->did = (ares_env_turn){ .outcome.reward.integer = true };
    write_turn(x);
    conversation_drop_turn(c);
    return ARES_OK;
}

/* ---------------- the answer */
/* A copy of n numbers of 4 bytes. */
static const void *kept(ares_arena *arena, const void *x, size_t n)
{
    return n ? ares_arena_copy(arena, x, n * 4) : NULL;
}

int episode_read(episode *x, const ares_completion *c, int32_t version, ares_arena *arena)
{
    const conversation_style *s = x->talk.style;
    conversation_turn *turn = &x->talk.turns[x->talk.n - 1];
    ares_str text = { 0 };
    size_t n = (size_t)c->n_tokens;
    turn->n = c->n_tokens;
    turn->ids = kept(arena, c->ids, n);
    turn->log_probs = kept(arena, c->log_probs, n);
    turn->entropies = kept(arena, c->entropies, n);
    turn->entropies_1 = kept(arena, c->entropies_1, n);
    turn->weight_version = version;
    x->cut += c->finish == ARES_FINISH_LENGTH;
    int rc = ares_tokenizer_decode(s->tokenizer, turn->ids, turn->n, true, &text);
    if (rc == ARES_OK) {
        ares_view written = { ares_arena_copy(arena, text.data ? text.data : "", text.len),
                              text.len };
        ares_env_answer_parse(&s->format, written, arena, &x->answer);
        turn->text = x->answer.text;
    }
    ares_str_fini(&text);
    return rc;
}

int episode_act(episode *x)
{
    ares_env *e = &x->place->env;
    x->did = (ares_env_turn){ .outcome.reward.integer = true };
    /* an environment that is over after its reset takes no step; the first answer has no effect */
    x->did.outcome.done = ares_env_over(e);
    if (x->did.outcome.done) return ARES_OK;
    return ares_env_act(e, x->answer.actions, x->answer.n_actions, x->talk.style->format_penalty,
                        &x->did);
}

void episode_note(episode *x, ares_arena *arena)
{
    const ares_env_outcome *o = &x->did.outcome;
    x->talk.turns[x->talk.n - 1].reward = o->reward;
    x->dropped += o->dropped;
    x->invalid += x->place->env.no_valid_action;
    for (int k = 0; k < o->n_info; k++) {
        const ares_env_info *info = &o->info[k];
        int i = 0; /* its place among the episode's */
        /* x->invalid counts it already */
        if (strcmp(info->name, ARES_ENV_INVALID) == 0 && x->place->env.no_valid_action) continue;
        while (i < x->n_info && strcmp(x->info[i].name, info->name) != 0) i++;
        if (i == EPISODE_INFO) {
            x->dropped++;
            continue;
        }
        if (i == x->n_info) x->info[x->n_info++].name = ares_arena_printf(arena, "%s", info->name);
        x->info[i].value += info->value;
    }
    write_turn(x);
}

/* ---------------- the end */
/*
 * For a teacher with a context (docs/distillation.md#environments): the message that its own takes
 * the place of, and what the environment said after the last action.
 */
static int tell_teacher(const episode *x, const ares_train_config *c, ares_arena *arena,
                        ares_trajectory *y)
{
    const ares_distillation_config *d = &c->distillation;
    const conversation *talk = &x->talk;
    const ares_env *e = &x->place->env;
    ares_str text = { 0 };
    if (!teacher_wanted(c) || strcmp(d->context, "none") == 0) return ARES_OK;
    conversation_user(talk, talk->first, talk->first, false, &text);
    y->question =
        (ares_view){ ares_arena_copy(arena, text.data ? text.data : "", text.len), text.len };
    ares_str_clear(&text);
    if (d->include_feedback && !e->failure) {
        ares_env_reward_message(talk->turns[talk->n - 1].reward, &text);
        ares_env_render(e, &text);
        y->feedback = safe(talk, &text, arena);
    }
    ares_str_fini(&text);
    return ARES_OK;
}

int episode_end(episode *x, ares_trainer *t, ares_arena *arena, ares_trajectory *y)
{
    const ares_env *e = &x->place->env;
    double failure_score = t->run.cfg->agents.failure_score;
    float score = (float)e->reward.value + (float)e->penalty; /* as RAGEN adds them */
    if (e->failure && !ares_is_null_f64(failure_score)) score = (float)failure_score;
    *y = (ares_trajectory){ .index = x->item,
                            .stopped = ares_env_over(e),
                            .turn_count = x->talk.n,
                            .turns_cut = x->cut,
                            .score = score,
                            .unshaped = score,
                            .failed = e->failure != NULL,
                            .accuracy = e->failure && answer_discards_failures(t)
                                            ? NAN
                                            : (float)ares_env_won(e),
                            .parts = ares_arena_calloc(arena, 1, sizeof *y->parts) };
    x->failed = e->failure != NULL;
    x->replayable = e->replayable;
    x->unasked = e->unasked;
    x->won = ares_env_won(e);
    x->num_actions = e->num_actions;
    if (e->failure) { /* as the last entry of the turns */
        ares_json_begin(&x->turns, '{');
        ares_json_write_string(ares_json_key(&x->turns, "failure"), ares_view_of(e->failure));
        ares_json_write_bool(ares_json_key(&x->turns, "replayable"), e->replayable);
        ares_json_end(&x->turns, '}');
    }
    ares_json_end(&x->turns, ']');
    y->turns = (ares_view){ ares_arena_copy(arena, x->turns.data, x->turns.len), x->turns.len };
    ares_str_fini(&x->turns);
    ARES_TRY(conversation_rows(&x->talk, arena, y));
    ARES_TRY(tell_teacher(x, t->run.cfg, arena, y));
    if (report_collapse_due(t)) conversation_thoughts(&x->talk, arena, y);
    x->rows = y->n_rows;
    for (int32_t r = 0; r < y->n_rows; r++)
        for (int32_t i = 0; i < y->rows[r].n_tokens; i++) x->trained += y->rows[r].response_mask[i];
    ares_str text = { 0 };
    int rc = ARES_OK;
    for (int32_t r = 0; r < y->n_rows && rc == ARES_OK; r++)
        rc = ares_tokenizer_decode(t->run.tokenizer, y->rows[r].responses, y->rows[r].n_tokens,
                                   false, &text);
    y->response =
        (ares_view){ ares_arena_copy(arena, text.data ? text.data : "", text.len), text.len };
    ares_str_fini(&text);
    return rc;
}

static void count(const episode *x, measures *m, const char *per, const char *key, double value)
{
    measures_count(m, x->row->definition->tag, per, key, value);
}

void episode_count(const episode *x, bool discards, measures *m)
{
    bool foreign = x->row->definition->type->waits; /* another program chooses the names */
    if (foreign) {
        count(x, m, "failed", "failed", x->failed);
        count(x, m, "failed", "unasked_lines", (double)x->unasked);
        measures_add(m, "replayable", NULL, x->replayable);
    }
    if (x->failed && discards) return;
    count(x, m, "success", "success", x->won);
    count(x, m, "success", "num_actions", (double)x->num_actions);
    count(x, m, "success", "context_full", x->full);
    bool grows = x->talk.style->context == CONTEXT_FULL; /* other contexts never show all turns */
    count(x, m, "success", "turns_left", grows ? x->talk.first : 0);
    if (x->invalid)
        count(x, m, "success", ARES_ENV_INVALID, (double)x->invalid / (double)x->talk.n);
    for (int i = 0; i < x->n_info; i++) {
        char name[96];
        if (strcmp(x->info[i].name, "success") == 0) continue;
        snprintf(name, sizeof name, "%s%s", foreign ? "info/" : "", x->info[i].name);
        count(x, m, "success", name, x->info[i].value / (double)x->talk.n);
    }
    if (foreign) count(x, m, "success", "dropped_info", (double)x->dropped);
    measures_add(m, "response_length", NULL, (double)x->trained / (double)x->rows);
}
