/* Opening and closing what training in environments needs. */
#include "agents/agents.h"

#include <string.h>

#include "ares/core_child.h"

bool agents_wanted(const ares_train_config *c)
{
    return c->agents_train.tags.count || c->agents_val.tags.count;
}

/* ---------------- definitions */
static int define(ares_config *cfg, const ares_agent_side_config *c, const char *path,
                  agents_side *s)
{
    int64_t n = c->tags.count;
    *s = (agents_side){ .cfg = c, .path = path };
    s->definitions = ares_calloc((size_t)n + 1, sizeof *s->definitions);
    s->groups = ares_calloc((size_t)n + 1, sizeof *s->groups);
    for (int64_t k = 0; k < n; k++) {
        s->groups[k] = c->n_groups.count == n ? c->n_groups.items[k] : c->groups / n;
        ARES_TRY(ares_env_define(cfg, c->tags.items[k], &s->definitions[k]));
    }
    return ARES_OK;
}

int agents_define(ares_config *cfg, const ares_train_config *c, agents **out)
{
    agents *a = *out = ares_calloc(1, sizeof *a);
    a->cfg = c;
    ARES_TRY(define(cfg, &c->agents_train, "env.train", &a->train));
    return define(cfg, &c->agents_val, "env.val", &a->val);
}

static int open_side(agents_side *s)
{
    for (int64_t k = 0; k < s->cfg->tags.count; k++)
        ARES_TRY(ares_env_definition_open(&s->definitions[k]));
    return ARES_OK;
}

static void close_side(agents_side *s)
{
    for (int64_t k = 0; s->definitions && k < s->cfg->tags.count; k++)
        ares_env_definition_close(&s->definitions[k]);
    ares_free(s->definitions);
    ares_free(s->groups);
}

/* ---------------- style */
/*
 * Special tokens: no text of a conversation may hold them, and with token_exact a turn ends with
 * the first one that is sampled, so that no answer can end a turn early or speak for another role.
 * Nor may a text hold the mark that stands for answers.
 */
static void open_specials(agents *a, const ares_tokenizer *tok)
{
    const ares_i64s *more = &a->cfg->rollout.stop_token_ids;
    int64_t vocab = ares_tokenizer_vocab_size(tok), n = 0;
    for (int64_t id = 0; id < vocab; id++) n += ares_tokenizer_is_special(tok, (int32_t)id);
    a->specials = ares_calloc((size_t)n + 2, sizeof *a->specials); /* the mark, and a NULL */
    a->stop_ids = ares_calloc((size_t)(n + more->count) + 1, sizeof *a->stop_ids);
    n = 0;
    for (int64_t id = 0; id < vocab; id++) {
        if (!ares_tokenizer_is_special(tok, (int32_t)id)) continue;
        ares_view text = ares_tokenizer_token_bytes(tok, (int32_t)id);
        if (!text.len) continue;
        char *copy = ares_calloc(text.len + 1, 1);
        memcpy(copy, text.data, text.len);
        if (strcmp(copy, "<|im_start|>") == 0) a->style.start_id = (int32_t)id;
        a->stop_ids[n] = (int32_t)id;
        a->specials[n++] = copy;
    }
    a->specials[n] = ares_strdup(CONVERSATION_MARK);
    a->style.format.specials = a->specials;
    a->style.format.n_specials = (int)n + 1;
    if (!a->style.token_exact) n = 0; /* the text is written anew: only the model's own end it */
    for (int64_t i = 0; i < more->count; i++) a->stop_ids[n++] = (int32_t)more->items[i];
    a->stops = (ares_sampling){ .n_stop_ids = (int32_t)n, .stop_ids = a->stop_ids };
}

static int open_style(agents *a, const ares_prompt_encoder *encoder, const ares_tokenizer *tok,
                      int64_t limit)
{
    const ares_agents_config *c = &a->cfg->agents;
    a->style = (conversation_style){
        .format = { .think = c->enable_think,
                    .separator = c->action_separator,
                    .max_actions_per_turn = c->max_actions_per_turn },
        .format_penalty = c->format_penalty,
        .chat = ares_prompt_encoder_chat(encoder),
        .tokenizer = tok,
        .context = strcmp(c->context_window_mode, "full") == 0          ? CONTEXT_FULL
                   : strcmp(c->context_window_mode, "single_turn") == 0 ? CONTEXT_SINGLE
                                                                        : CONTEXT_LIMITED,
        .window = c->max_context_window,
        .limit = limit,
        .token_exact = c->token_exact,
        .warn_in_training = c->train_text_include_warning,
        .mask_prompts = c->enable_response_mask,
        .mask_template = c->mask_template_tokens,
        .turn_scores = c->use_turn_scores,
        .start_id = -1,
    };
    open_specials(a, tok);
    if (a->style.token_exact || a->style.start_id >= 0) return ARES_OK;
    return ares_fail(ARES_ECONFIG,
                     "env: env.token_exact = false: the masks of rewritten text are made from the "
                     "token <|im_start|>, which the tokenizer does not have; set it to true");
}

/* Descriptors of a side's environments that are open at once, on one of `ranks`. */
static int64_t descriptors_of(const agents_side *s, int64_t draw, int64_t ranks)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < s->cfg->tags.count; k++) {
        const ares_env_definition *d = &s->definitions[k];
        int64_t rounds = (draw + s->cfg->groups - 1) / s->cfg->groups, all = s->groups[k] * rounds,
                /* a rank takes every ranks-th group; a draw may begin within a tag */
            share = ranks == 1 ? all : ARES_MIN(all, all / ranks + 2);
        if (d->type->descriptors)
            sum += d->type->descriptors(d->options, share * s->cfg->group_size);
    }
    return sum;
}

/* Programs and sessions stay open until the run ends: their descriptors are counted before. */
static int reserve_descriptors(const agents *a, int64_t ranks)
{
    const ares_data_config *c = &a->cfg->data;
    int64_t needed, limit,
        draw = ARES_MAX(a->train.cfg->groups,
                        ARES_MAX(c->rollout_batch_size, c->mini_rollout_batch_size)),
        n = descriptors_of(&a->train, draw, ranks) +
            descriptors_of(&a->val, a->val.cfg->groups, ranks);
    if (n == 0 || ares_descriptors_reserve(n, &needed, &limit)) return ARES_OK;
    return ares_fail(ARES_EIO,
                     "env: the environments hold %lld file descriptors at once, so that a process "
                     "needs %lld, and may have %lld; raise the limit (ulimit -n %lld), lower "
                     "env.train.groups or env.val.groups, or let a process serve more of them "
                     "(environments_per_process)",
                     (long long)n, (long long)needed, (long long)limit, (long long)needed);
}

int agents_open(agents *a, const ares_prompt_encoder *encoder, const ares_tokenizer *tokenizer,
                int64_t limit, int64_t ranks)
{
    ARES_TRY(open_style(a, encoder, tokenizer, limit));
    ARES_TRY(reserve_descriptors(a, ranks));
    ARES_TRY(open_side(&a->train));
    ARES_TRY(open_side(&a->val));
    if (!a->style.token_exact)
        ares_log(ARES_LOG_WARN,
                 "env: env.token_exact = false: answers are written anew and encoded again, as the "
                 "published code does, so what is trained is not exactly what was sampled");
    return ARES_OK;
}

/* ---------------- environments */
int agents_take_place(agents *a, const ares_env_definition *d, agents_place **out)
{
    for (int64_t i = 0; i < a->n_places; i++) {
        agents_place *p = a->places[i];
        if (p->used || p->env.definition != d) continue;
        p->used = true;
        *out = p;
        return ARES_OK;
    }
    a->places = ares_realloc(a->places, (size_t)(a->n_places + 1) * sizeof *a->places);
    agents_place *p = a->places[a->n_places++] = ares_calloc(1, sizeof *p);
    p->used = true;
    *out = p;
    return ares_env_init(&p->env, d);
}

void agents_close(agents *a)
{
    if (!a) return;
    for (int64_t i = 0; i < a->n_places; i++) {
        ares_env_fini(&a->places[i]->env);
        ares_free(a->places[i]);
    }
    ares_free(a->places);
    close_side(&a->train);
    close_side(&a->val);
    for (int i = 0; a->specials && a->specials[i]; i++)
        ares_free((void *)(uintptr_t)a->specials[i]);
    ares_free(a->specials);
    ares_free(a->stop_ids);
    measures_fini(&a->measures);
    ares_free(a);
}
