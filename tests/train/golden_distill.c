/* Distillation's options, and the texts and tokens of teachers. */
#include "golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/train/teacher_texts.h"
#include "ares/train.h"

static const ares_json *absent(const ares_json *v)
{
    return v && v->type == ARES_JSON_NULL ? NULL : v;
}

/* Compares a prompt with the text or messages that are expected. */
static void check_prompt(golden *g, const ares_json *got, const ares_json *want)
{
    ares_str a = { 0 }, b = { 0 };
    if (got) ares_json_write(&a, got);
    else ares_str_add_z(&a, "null");
    ares_json_write(&b, want);
    if (!ares_view_eq(ares_str_view(&a), ares_str_view(&b)))
        golden_fail(g, "teacher: %s, expected %s", a.data, b.data);
    g->checks++;
    ares_str_fini(&a);
    ares_str_fini(&b);
}

/* What was refused, up to the remedy. */
static void check_refused(golden *g, ares_view got)
{
    golden_text(g, "refused", (ares_view){ got.data, got.data ? strcspn(got.data, ";") : 0 },
                golden_want(g, "refused"));
}

GOLDEN(distill, teacher_prompt)
{
    const ares_json *row = golden_in(g, "row"), *prompt = ares_json_get(row, "prompt"),
                    *teacher = NULL;
    const char *text = golden_z(g, "teacher_prompt_template");
    ares_str context = { 0 }, asked = { 0 }, filled = { 0 };
    ares_view unknown = { 0 }, refused = { 0 };
    char word[64];
    if (!teacher_fill(text, TEACHER_ROW, NULL, NULL, &unknown)) {
        (void)snprintf(word, sizeof word, "%.*s", (int)unknown.len, unknown.data);
        refused = ares_view_of(word);
    } else if (teacher_context(row, golden_z(g, "privileged_context_key"), &context)) {
        if (teacher_prompt_text(prompt, &asked) != ARES_OK)
            refused = ares_view_of(ares_error_message());
        else {
            const ares_view values[] = { ares_str_view(&asked), ares_str_view(&context) };
            teacher_fill(text, TEACHER_ROW, values, &filled, &unknown);
            teacher = teacher_prompt_with(prompt, ares_str_view(&filled), g->arena);
        }
    }
    golden_equal(g, "distilled", teacher != NULL, golden_want(g, "distilled"));
    check_prompt(g, teacher, golden_want(g, "teacher"));
    check_refused(g, refused);
    ares_error_clear();
    ares_str_fini(&context);
    ares_str_fini(&asked);
    ares_str_fini(&filled);
}

/* The options of a case: its own members, beside the defaults. */
static ares_config *options_of(golden *g, ares_distillation_config *c)
{
    ares_config *cfg = ares_config_new();
    ares_config_add_options(cfg, "distillation", ares_distillation_options, c);
    for (int64_t i = 0; i < g->inputs->count; i++) {
        const ares_json_member *m = &g->inputs->members[i];
        ares_str word = { 0 };
        if (ares_view_is(m->key, "groups")) continue;
        ares_str_addf(&word, "distillation.%.*s=", (int)m->key.len, m->key.data);
        ares_json_write(&word, m->value);
        ares_config_override(cfg, word.data);
        ares_str_fini(&word);
    }
    ares_config_resolve(cfg);
    golden_ok(g, ares_config_finish(cfg));
    return cfg;
}

GOLDEN(distill, sdpo_batch)
{
    const ares_json *groups = golden_in(g, "groups"), *want = golden_want(g, "rows");
    ares_distillation_config c;
    ares_config *cfg = options_of(g, &c);
    int64_t row = 0, successful = 0, shown = 0, available = 0, told = 0, taught = 0;
    for (int64_t i = 0; i < groups->count; i++) {
        const ares_json *prompt = ares_json_get(&groups->items[i], "prompt"),
                        *samples = ares_json_get(&groups->items[i], "samples");
        int64_t n = samples->count;
        bool any = false;
        teacher_answer *answers = ares_arena_calloc(g->arena, (size_t)n, sizeof *answers);
        for (int64_t k = 0; k < n; k++) {
            const ares_json *s = &samples->items[k], *f = absent(ares_json_get(s, "feedback")),
                            *masked = ares_json_get(s, "masked");
            answers[k] = (teacher_answer){ .score = (float)golden_value(ares_json_get(s, "score")),
                                           .usable = !masked || !masked->boolean,
                                           .feedback = f ? f->text : (ares_view){ 0 } };
        }
        teacher_choose(&c, answers, n);
        for (int64_t k = 0; k < n; k++, row++) {
            const teacher_answer *a = &answers[k];
            const ares_json *x = &want->items[row], *teacher = NULL,
                            *from = absent(ares_json_get(x, "solution_from"));
            bool taught_now = a->solution_from >= 0 || a->told;
            ares_str text = { 0 }, asked = { 0 }, filled = { 0 };
            any |= a->successful;
            shown += a->solution_from >= 0;
            available += a->available;
            told += a->told;
            taught += taught_now;
            if ((from ? (int32_t)golden_value(from) : -1) != a->solution_from)
                golden_fail(g, "row %lld is shown %d", (long long)row, a->solution_from);
            golden_equal(g, "feedback", a->told, ares_json_get(x, "feedback"));
            golden_equal(g, "distilled", taught_now, ares_json_get(x, "distilled"));
            if (taught_now && golden_ok(g, teacher_prompt_text(prompt, &asked))) {
                if (a->solution_from >= 0)
                    teacher_demonstration(
                        &c, ares_json_get(&samples->items[a->solution_from], "response")->text,
                        &text);
                ares_view demonstration = ares_str_view(&text);
                teacher_reprompt(&c, ares_str_view(&asked),
                                 a->solution_from >= 0 ? &demonstration : NULL,
                                 a->told ? &a->feedback : NULL, &filled);
                teacher = teacher_prompt_with(prompt, ares_str_view(&filled), g->arena);
            }
            check_prompt(g, teacher, ares_json_get(x, "teacher"));
            ares_str_fini(&text);
            ares_str_fini(&asked);
            ares_str_fini(&filled);
        }
        successful += any;
    }
    double rows = (double)row;
    golden_near(g, "success_group_fraction", (double)successful / (double)groups->count,
                golden_want(g, "success_group_fraction"));
    golden_near(g, "success_sample_fraction", (double)shown / rows,
                golden_want(g, "success_sample_fraction"));
    golden_near(g, "feedback_available_fraction", (double)available / rows,
                golden_want(g, "feedback_available_fraction"));
    golden_near(g, "feedback_used_fraction", (double)told / rows,
                golden_want(g, "feedback_used_fraction"));
    golden_near(g, "reprompt_sample_fraction", (double)taught / rows,
                golden_want(g, "reprompt_sample_fraction"));
    ares_config_free(cfg);
}

/* {"0": "a", ..} */
static token_table table_of(golden *g, const char *key)
{
    const ares_json *ids = golden_in(g, key);
    int64_t n = 0;
    for (int64_t i = 0; i < ids->count; i++)
        n = ARES_MAX(n, (int64_t)strtol(ids->members[i].key.data, NULL, 10) + 1);
    ares_view *text = ares_arena_calloc(g->arena, (size_t)n + 1, sizeof *text);
    for (int64_t i = 0; i < ids->count; i++)
        text[strtol(ids->members[i].key.data, NULL, 10)] = ids->members[i].value->text;
    return (token_table){ text, n };
}

GOLDEN(distill, same_tokens)
{
    const token_table student = table_of(g, "student"), teacher = table_of(g, "teacher");
    same_tokens same;
    same_tokens_compare(&student, &teacher, (int64_t)golden_number(g, "student_vocab"),
                        (int64_t)golden_number(g, "teacher_vocab"), &same);
    golden_equal(g, "ok", !same.refused, golden_want(g, "ok"));
    golden_text(g, "refused", same.refused ? ares_view_of(same.refused) : (ares_view){ 0 },
                golden_want(g, "refused"));
    if (same.refused) {
        golden_equal(g, "id", same.id, golden_want(g, "id"));
        return;
    }
    golden_equal(g, "common", same.readable, golden_want(g, "common"));
    golden_equal(g, "only_one", same.only_one, golden_want(g, "only_one"));
}

GOLDEN(distill, validate_config)
{
    static const char *const base[] = { "data.train_files=[train.jsonl]",
                                        "worker.actor.model.model_path=m", "worker.rollout.n=4",
                                        "worker.reward.rewards=[{name: exact}]",
                                        "trainer.max_steps=1" };
    ares_train_config c;
    ares_config *cfg = ares_config_new();
    const ares_json *options = golden_in(g, "options"), *option = golden_want(g, "option");
    ares_log_set(ARES_LOG_ERROR, 0);
    memset(&c, 0, sizeof c);
    ares_train_config_declare(cfg, &c);
    ares_config_read_args(cfg, ARES_COUNT(base), base);
    for (int64_t i = 0; i < options->count; i++) {
        const ares_json_member *m = &options->members[i];
        ares_str word = { 0 };
        ares_str_addf(&word, "%.*s=", (int)m->key.len, m->key.data);
        ares_json_write(&word, m->value);
        ares_config_override(cfg, word.data);
        ares_str_fini(&word);
    }
    ares_config_resolve(cfg);
    int rc = ares_train_config_check(cfg, &c, 1);
    golden_equal(g, "ok", rc == ARES_OK, golden_want(g, "ok"));
    /* the one fault names the option, as it was written */
    if (absent(option)) {
        ares_str start = { 0 };
        ares_str_addf(&start, "%.*s", (int)option->text.len, option->text.data);
        if (ares_config_fault_count(cfg) != 1 || !strstr(ares_error_message(), start.data))
            golden_fail(g, "%d faults: %s", ares_config_fault_count(cfg), ares_error_message());
        ares_str_fini(&start);
    } else if (rc != ARES_OK) golden_fail(g, "%s", ares_error_message());
    g->checks++;
    ares_error_clear();
    ares_log_set(ARES_LOG_INFO, 0);
    ares_config_free(cfg);
}
