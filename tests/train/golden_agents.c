/* Conversations of agentic.json. */
#include "golden.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/env/internal.h"
#include "../../src/train/agents/agents.h"

/* ChatML, as the published model's template writes messages that have a system message. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

static conversation_style style_of(golden *g, bool think)
{
    conversation_style s = {
        .format = ares_env_format_default(), .window = -1, .limit = INT64_MAX, .mask_prompts = true
    };
    ares_chat *chat;
    s.format.think = think;
    (void)golden_ok(g, ares_chat_new("chatml", ares_view_of(chatml), NULL, &chat));
    s.chat = chat;
    return s;
}

static void style_close(conversation_style *s)
{
    ares_chat_free((ares_chat *)(uintptr_t)s->chat);
}

/* ---------------- texts of an episode */
typedef struct place {
    ares_config *cfg;
    ares_env_definition d;
    ares_env env;
} place;

static void place_open(golden *g, place *p, const char *tag)
{
    *p = (place){ .cfg = ares_config_new() };
    ares_env_declare(p->cfg);
    ares_config_resolve(p->cfg);
    (void)golden_ok(g, ares_env_define(p->cfg, tag, &p->d));
    (void)golden_ok(g, ares_config_finish(p->cfg));
    (void)golden_ok(g, ares_env_definition_open(&p->d));
    (void)golden_ok(g, ares_env_init(&p->env, &p->d));
    (void)golden_ok(g, ares_env_reset(&p->env, &(ares_env_start){ .seed = 10000 }));
}

static void place_close(place *p)
{
    ares_env_fini(&p->env);
    ares_env_definition_close(&p->d);
    ares_config_free(p->cfg);
}

static uint8_t *cells_of(golden *g, const ares_json *rows)
{
    int64_t n;
    const double *x = golden_flat(g, rows, &n);
    uint8_t *cells = ares_arena_alloc(g->arena, (size_t)n);
    for (int64_t i = 0; i < n; i++) cells[i] = (uint8_t)x[i];
    return cells;
}

static ares_view kept(golden *g, ares_str *text)
{
    ares_view v = { ares_arena_copy(g->arena, text->data, text->len), text->len };
    ares_str_fini(text);
    *text = (ares_str){ 0 };
    return v;
}

static ares_view message(golden *g, const ares_env *e, const conversation_style *s, bool silent)
{
    ares_str text = { 0 };
    ares_env copy = *e;
    if (silent) copy.no_valid_action = false;
    ares_env_turn_message(&copy, &s->format, &text);
    return kept(g, &text);
}

static void check_training(golden *g, conversation *c, conversation_style *s, bool warn,
                           const char *key)
{
    ares_str text = { 0 };
    s->warn_in_training = warn;
    (void)golden_ok(g, conversation_training_text(c, c->n - 1, g->arena, &text));
    golden_text(g, key, ares_str_view(&text), golden_want(g, key));
    ares_str_fini(&text);
}

GOLDEN(agentic, build_episode_texts)
{
    place p;
    conversation_style s = style_of(g, true);
    conversation_turn turns[8] = { 0 };
    conversation c = { .style = &s, .turns = turns };
    const ares_json *written = golden_in(g, "generated_texts");
    ares_str text = { 0 };
    place_open(g, &p, golden_z(g, "env_tag"));
    sokoban_enter(p.env.state, cells_of(g, golden_in(g, "room_fixed")),
                  cells_of(g, golden_in(g, "room_state")));
    ares_env_system_message(&p.env, &s.format, &text);
    c.system = kept(g, &text);
    for (int64_t t = 0; t < written->count; t++) {
        conversation_turn *turn = &turns[c.n++];
        ares_env_answer answer;
        ares_env_turn did;
        turn->message = message(g, &p.env, &s, false);
        turn->silent = message(g, &p.env, &s, true);
        (void)golden_ok(g, conversation_prompt_text(&c, 0, g->arena, &text));
        golden_text(g, "prompt", kept(g, &text), &golden_want(g, "inference_prompts")->items[t]);
        ares_env_answer_parse(&s.format, written->items[t].text, g->arena, &answer);
        turn->text = answer.text;
        (void)golden_ok(g, ares_env_act(&p.env, answer.actions, answer.n_actions,
                                        golden_number(g, "format_penalty"), &did));
        turn->reward = did.outcome.reward;
        golden_near(g, "reward", did.outcome.reward.value,
                    &golden_want(g, "turn_rewards")->items[t]);
    }
    golden_near(g, "score", p.env.reward.value + p.env.penalty, golden_want(g, "episode_score"));
    golden_equal(g, "actions left", ares_env_actions_left(&p.env),
                 golden_want(g, "actions_left_after"));
    check_training(g, &c, &s, false, "training_text_upstream");
    check_training(g, &c, &s, true, "training_text_decided_with_warning");
    place_close(&p);
    style_close(&s);
}

/* A turn's message as an environment would write it, of its state and the actions that are left. */
static ares_view turn_message(golden *g, const ares_json *turn, int64_t number)
{
    const char *text = ares_arena_printf(
        g->arena,
        "\nTurn %lld:\nState:\n%s\nYou have %lld actions left. Always output: <think> [Your "
        "thoughts] </think> <answer> [your answer] </answer> with no extra text. Strictly follow "
        "this format. Max response length: %d words (tokens).\n",
        (long long)number, ares_json_get(turn, "state")->text.data,
        (long long)ares_json_get(turn, "actions_left")->integer,
        (int)golden_number(g, "max_tokens"));
    return ares_view_of(text);
}

GOLDEN(agentic, build_single_turn_user_content)
{
    conversation_style s = style_of(g, true);
    conversation_turn turns[8] = { 0 };
    conversation c = { .style = &s, .turns = turns };
    const ares_json *history = golden_in(g, "history"), *cases = golden_in(g, "cases");
    s.context = CONTEXT_SINGLE;
    for (int64_t t = 0; t < history->count; t++) {
        const ares_json *x = &history->items[t], *reward = ares_json_get(x, "reward"),
                        *text = ares_json_get(x, "llm_response");
        conversation_turn *turn = &turns[c.n++];
        turn->message = turn->silent = turn_message(g, x, t + 1);
        turn->state = ares_json_get(x, "state")->text;
        if (reward) turn->reward.value = golden_value(reward);
        if (text) turn->text = text->text;
    }
    for (int64_t k = 0; k < cases->count; k++) {
        ares_str text = { 0 };
        conversation_user(&c, (int32_t)ares_json_get(&cases->items[k], "history_start")->integer,
                          (int32_t)golden_number(g, "turn_idx"), false, &text);
        golden_text(g, "content", ares_str_view(&text), &g->expected->items[k]);
        ares_str_fini(&text);
    }
    style_close(&s);
}

/* ---------------- masks and scores of a text that was encoded as a whole */
/* A column of the batch at the entries of the case, which are about predicted tokens. */
static void check_column(golden *g, const char *what, const double *of_token, int64_t n,
                         const ares_json *want)
{
    int64_t padding = want->count - (n - 1);
    double *entries = ares_arena_calloc(g->arena, (size_t)want->count + 1, sizeof *entries);
    for (int64_t i = 1; i < n; i++) entries[padding + i - 1] = of_token[i];
    golden_numbers(g, what, entries, want->count, want);
}

static void check_row(golden *g, const conversation *c, const ares_json *given, int64_t row)
{
    int64_t n, from = 0;
    const double *all = golden_flat(g, given, &n);
    while (all[from] == golden_number(g, "pad_id")) from++;
    int32_t *ids = ares_arena_alloc(g->arena, (size_t)n * sizeof *ids);
    for (int64_t i = from; i < n; i++) ids[i - from] = (int32_t)all[i];
    n -= from;
    ares_trajectory_row x;
    conversation_text_row(c, c->n - 1, ids, (int32_t)n, g->arena, &x);
    ares_trajectory y = { .n_rows = 1, .rows = &x, .parts = &(float){ 0 } };
    ares_row data = { 0 };
    ares_group group = { .row = &data, .n = 1, .items = &y };
    ares_batch b;
    ares_batch_init(&b);
    ares_batch_fill(&b, &group, 1);
    double *mask = ares_arena_calloc(g->arena, (size_t)n, sizeof *mask),
           *scores = ares_arena_calloc(g->arena, (size_t)n, sizeof *scores), sum = 0;
    for (int32_t t = 0; t < c->n; t++) sum += c->turns[t].reward.value;
    for (int32_t i = 0; i < x.n_tokens; i++) {
        mask[x.prompt_len + i] = b.response_mask[i];
        if (b.turn_scores) scores[x.prompt_len + i] = (double)b.turn_scores[i];
    }
    if (!b.turn_scores) scores[x.prompt_len + ares_batch_last_token(&b, 0)] = sum;
    check_column(g, "mask", mask, n, &golden_want(g, "loss_mask")->items[row]);
    check_column(g, "scores", scores, n, &golden_want(g, "scores")->items[row]);
    ares_batch_fini(&b);
}

GOLDEN(agentic, build_mask_and_scores)
{
    conversation_style s = { .mask_template = true,
                             .mask_prompts = golden_number(g, "enable_response_mask") != 0,
                             .turn_scores = golden_number(g, "use_turn_scores") != 0,
                             .start_id = (int32_t)golden_number(g, "im_start_id") };
    const ares_json *rows = golden_in(g, "input_ids"), *rewards = golden_in(g, "turn_rewards");
    golden_in_single(g);
    for (int64_t r = 0; r < rows->count; r++) {
        int64_t n;
        const double *x = golden_flat(g, &rewards->items[r], &n);
        conversation_turn turns[8] = { 0 };
        conversation c = { .style = &s, .turns = turns, .n = (int32_t)n };
        for (int64_t t = 0; t < n; t++) turns[t].reward.value = x[t];
        check_row(g, &c, &rows->items[r], r);
    }
}

/* ---------------- a context that is full */
/* A tokenizer whose tokens are bytes, so that lengths are those of the text. */
static ares_tokenizer *open_bytes(golden *g)
{
    ares_str json = { 0 };
    char path[] = "/tmp/ares_golden_XXXXXX";
    int fd = mkstemp(path), other = 256;
    ares_tokenizer *tok = NULL;
    ares_str_add_z(&json, "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
                          "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                          "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
                          "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                          "\"merges\":[],\"vocab\":{");
    for (int b = 0; b < 256; b++) { /* the byte-level alphabet of GPT-2 */
        bool shown = (b > 32 && b < 127) || (b > 160 && b != 173);
        ares_str_addf(&json, "%s\"\\u%04x\":%d", b ? "," : "", shown ? b : other++, b);
    }
    ares_str_add_z(&json, "}}}");
    if (fd >= 0) close(fd);
    if (golden_ok(g, ares_file_write(path, json.data, json.len)))
        (void)golden_ok(g, ares_tokenizer_load(path, &tok));
    unlink(path);
    ares_str_fini(&json);
    return tok;
}

/* Fills turns from messages: what the message of a user begins with is the reward before. */
static void read_messages(const ares_json *messages, conversation *c)
{
    const ares_view reward = ARES_VIEW("Reward:\n");
    c->system = ares_json_get(&messages->items[0], "content")->text;
    for (int64_t i = 1; i < messages->count; i++) {
        ares_view text = ares_json_get(&messages->items[i], "content")->text;
        if (i % 2 == 0) {
            c->turns[c->n - 1].text = text;
            continue;
        }
        if (ares_view_starts(text, reward)) {
            size_t end = (size_t)ares_view_find(text, ARES_VIEW("\n"), reward.len);
            ares_view number = { text.data + reward.len, end - reward.len };
            (void)ares_parse_double(number, &c->turns[c->n - 1].reward.value);
            text = (ares_view){ text.data + end + 1, text.len - end - 1 };
        }
        c->turns[c->n].message = c->turns[c->n].silent = text;
        c->n++;
    }
}

static void check_messages(golden *g, const conversation *c, const ares_json *want)
{
    int64_t k = 1;
    golden_text(g, "system", c->system, ares_json_get(&want->items[0], "content"));
    for (int32_t t = c->first; t < c->n; t++) {
        ares_str text = { 0 };
        conversation_user(c, c->first, t, false, &text);
        if (k < want->count)
            golden_text(g, "user", ares_str_view(&text),
                        ares_json_get(&want->items[k++], "content"));
        ares_str_fini(&text);
        if (t + 1 < c->n && k < want->count)
            golden_text(g, "assistant", c->turns[t].text,
                        ares_json_get(&want->items[k++], "content"));
    }
    if (k != want->count)
        golden_fail(g, "%lld messages stay, not %lld", (long long)k, (long long)want->count);
}

GOLDEN(agentic, truncate_history)
{
    conversation_style s = style_of(g, true);
    ares_tokenizer *tok = open_bytes(g);
    const ares_json *limits = golden_in(g, "limits");
    s.tokenizer = tok;
    for (int64_t k = 0; tok && k < limits->count; k++) {
        conversation_turn turns[8] = { 0 };
        conversation c = { .style = &s, .turns = turns };
        ares_ids ids = { 0 };
        read_messages(golden_in(g, "messages"), &c);
        /* the case counts the text without the first tag of the answer */
        s.limit =
            limits->items[k].integer + (int64_t)strlen("<think>") + 1; /* a token of the answer */
        (void)golden_ok(g, conversation_prompt(&c, g->arena, &ids));
        check_messages(g, &c, &g->expected->items[k]);
        ares_ids_fini(&ids);
    }
    ares_tokenizer_free(tok);
    style_close(&s);
}
