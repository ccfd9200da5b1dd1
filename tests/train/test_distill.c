/*
 * What a teacher reads of a batch, which teachers fit, and the rules of distillation's options.
 * Numbers of the formulas: tests/golden/distill.json.
 */
#include "teacher_texts.h"
#include "test.h"
#include "tiny_trainer.h"

#include <string.h>

/* ---------------------------------------------------------------- what a teacher reads */

static const char rows[] =
    "{\"prompt\":\"one {prompt}\",\"answer\":\"1\",\"hint\":\"look {x} here\"}\n"
    "{\"prompt\":\"two\",\"answer\":\"2\",\"hint\":\" \\n\"}\n"
    "{\"prompt\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"three\"}"
    "],"
    "\"answer\":\"3\",\"hint\":{\"a\":[1,true]}}\n";
enum { PROMPTS = 3, ANSWERS = 3 };
static const char *const answers[ANSWERS] = { "wrong", "right", "<think>hm</think> also right" };

/* A trainer of these rows, and a batch of three answers to each, scored 0, 1, 1. */
static bool begin(opened *o)
{
    char file[300];
    CHECK_OK(ares_file_write(test_file("hints.jsonl"), rows, sizeof rows - 1));
    (void)snprintf(file, sizeof file, "data.train_files=%s", test_file("hints.jsonl"));
    const char *const more[] = { file, "data.shuffle=false", "data.rollout_batch_size=1",
                                 "worker.actor.global_batch_size=1" };
    if (!CHECK_OK(open_trainer_of(o, more, ARES_COUNT(more)))) return false;
    ares_batch *b = &o->t.batch;
    ares_ids ids[ANSWERS] = { 0 };
    for (int k = 0; k < ANSWERS; k++)
        CHECK_OK(
            ares_tokenizer_encode(o->t.run.tokenizer, ares_view_of(answers[k]), false, &ids[k]));
    for (int g = 0; g < PROMPTS; g++) {
        const ares_row *row = ares_source_row(&o->t.run.source, g);
        ares_batch_begin_group(b);
        for (int k = 0; k < ANSWERS; k++) {
            const ares_sample s = { .row = row,
                                    .prompt = row->prompt,
                                    .prompt_len = row->prompt_len,
                                    .index = k,
                                    .score = k > 0,
                                    .feedback = ares_view_of(k == 2 ? "no unit" : "") };
            ares_batch_add_row(b, &s, ids[k].n);
        }
    }
    ARES_PUT(b, responses);
    ARES_PUT(b, response_mask);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t t = b->row_start[r]; t < b->row_start[r + 1]; t++) {
            b->responses[t] = ids[r % ANSWERS].ids[t - b->row_start[r]];
            b->response_mask[t] = 1;
        }
    for (int k = 0; k < ANSWERS; k++) ares_ids_fini(&ids[k]);
    o->c.distillation.context_key = "hint";
    return true;
}

static void fill(opened *o, teacher_limits limits)
{
    teacher_texts *t = teacher_texts_new(&(teacher_texts_options){ .cfg = &o->c,
                                                                   .tokenizer = o->t.run.tokenizer,
                                                                   .encoder = o->t.run.encoder,
                                                                   .pool = o->t.run.device.pool,
                                                                   .limits = limits });
    CHECK_EQ(teacher_texts_fill(t, o->world, &o->t.batch, o->m), ARES_OK);
    teacher_texts_free(t);
}

static double metric(const opened *o, const char *name)
{
    double v = -1;
    CHECK_MSG(ares_metrics_get(o->m, name, &v), "%s is not there", name);
    return v;
}

/* Whether the ids that the teacher reads are those of its text, and the student's is unchanged. */
static void check_ids(const opened *o, const ares_sample *s)
{
    ares_ids ids = { 0 };
    CHECK_EQ(ares_tokenizer_encode(o->t.run.tokenizer, s->teacher_text, false, &ids), ARES_OK);
    CHECK(ids.n == s->teacher_prompt_len &&
          memcmp(ids.ids, s->teacher_prompt, (size_t)ids.n * sizeof *ids.ids) == 0);
    CHECK(s->prompt == s->row->prompt && s->prompt_len == s->row->prompt_len);
    ares_ids_fini(&ids);
}

/* The student's prompt with another text of the user. */
static void check_text(const ares_sample *s, const char *asked, const char *shown)
{
    ares_view text = s->row->prompt_text;
    ares_str want = { 0 };
    int64_t at = ares_view_find(text, ares_view_of(asked), 0);
    REQUIRE(at >= 0);
    size_t end = (size_t)at + strlen(asked);
    ares_str_add(&want, text.data, (size_t)at);
    ares_str_add_z(&want, shown);
    ares_str_add(&want, text.data + end, text.len - end);
    CHECK_MSG(ares_view_eq(ares_str_view(&want), s->teacher_text), "%.*s instead of %s",
              (int)s->teacher_text.len, s->teacher_text.data, want.data);
    ares_str_fini(&want);
}

TEST(a_teacher_reads_the_hint_of_its_row_in_place_of_the_users_text)
{
    opened o;
    if (begin(&o)) {
        const ares_sample *s = o.t.batch.samples;
        o.c.distillation.context = "row";
        fill(&o, (teacher_limits){ 1 << 30, 1 << 30 });
        check_text(&s[0], "one {prompt}", "one {prompt}\n\nlook {x} here");
        check_text(&s[2 * ANSWERS], "three", "three\n\n{\"a\":[1,true]}");
        CHECK(ares_view_find(s[2 * ANSWERS].teacher_text, ARES_VIEW("S"), 0) >= 0);
        for (int k = 0; k < ANSWERS; k++) {
            CHECK(s[k].distilled && s[k].teacher_prompt == s[0].teacher_prompt);
            CHECK(!s[ANSWERS + k].distilled && !s[ANSWERS + k].teacher_prompt &&
                  !s[ANSWERS + k].teacher_text.len);
        }
        check_ids(&o, &s[0]);
        check_ids(&o, &s[2 * ANSWERS]);
        CHECK_NEAR(metric(&o, "distillation/reprompt_sample_fraction"), 2.0 / 3, 1e-12);
        CHECK_NEAR(metric(&o, "distillation/overlong_frac"), 0, 0);
    }
    close_trainer(&o);
}

TEST(a_group_shows_its_first_right_answer_and_feedback_to_the_others)
{
    opened o;
    if (begin(&o)) {
        const ares_sample *s = &o.t.batch.samples[ANSWERS]; /* of "two", which has no hint */
        ares_distillation_config *c = &o.c.distillation;
        c->context = "group";
        c->reprompt_template = "{prompt}|{solution}|{feedback}";
        c->solution_template = "<{successful_previous_attempt}>";
        c->feedback_template = "!{feedback_raw}";
        c->include_feedback = c->remove_thinking = true;
        fill(&o, (teacher_limits){ 1 << 30, 1 << 30 });
        check_text(&s[0], "two", "two|<right>|");
        check_text(&s[1], "two", "two|<also right>|");
        check_text(&s[2], "two", "two|<right>|!no unit");
        for (int k = 0; k < ANSWERS; k++) check_ids(&o, &s[k]);
        /* a row's hint stands in for feedback that nobody gave */
        check_text(&s[1 - ANSWERS], "one {prompt}", "one {prompt}|<also right>|!look {x} here");
        CHECK_NEAR(metric(&o, "distillation/success_group_fraction"), 1, 0);
        CHECK_NEAR(metric(&o, "distillation/feedback_used_fraction"), 7.0 / 9, 1e-12);
        /* discarded: neither shown nor right */
        o.t.batch.samples[ANSWERS + 1].discarded = 1;
        fill(&o, (teacher_limits){ 1 << 30, 1 << 30 });
        check_text(&s[0], "two", "two|<also right>|");
        check_text(&s[2], "two", "two||!no unit"); /* the only right one: feedback alone */
        c->skip_own = c->remove_thinking = false;
        fill(&o, (teacher_limits){ 1 << 30, 1 << 30 });
        check_text(&s[2], "two", "two|<<think>hm</think> also right>|!no unit");
    }
    close_trainer(&o);
}

/* Never cut: a prompt that does not fit takes the row's teacher away, and no token changes. */
TEST(a_row_that_the_teacher_cannot_hold_or_read_has_none)
{
    opened o;
    if (begin(&o)) {
        const ares_sample *s = o.t.batch.samples;
        o.c.distillation.context = "row";
        fill(&o, (teacher_limits){ 1 << 30, 1 << 30 });
        int64_t length = s[0].teacher_prompt_len;
        int64_t answer = o.t.batch.row_start[1];
        o.c.distillation.max_reprompt_len = length;
        fill(&o, (teacher_limits){ 1 << 30, length + answer });
        CHECK(s[0].distilled && s[0].teacher_prompt_len == length);
        fill(&o, (teacher_limits){ 1 << 30, length + answer - 1 });
        CHECK(!s[0].distilled && s[0].teacher_prompt_len == length);
        CHECK(metric(&o, "distillation/overlong_frac") >= 1.0 / 9);
        o.c.distillation.max_reprompt_len = length - 1;
        fill(&o, (teacher_limits){ 1 << 30, 1 << 30 });
        CHECK(!s[0].distilled);
        o.c.distillation.context = "none"; /* then only ids count */
        int32_t most = 0;
        for (int64_t t = 0; t < o.t.batch.row_start[1]; t++)
            most = ARES_MAX(most, o.t.batch.responses[t]);
        for (int32_t i = 0; i < s[0].prompt_len; i++) most = ARES_MAX(most, s[0].prompt[i]);
        fill(&o, (teacher_limits){ most + 1, 1 << 30 });
        CHECK(s[0].distilled && !s[0].teacher_prompt && !s[0].teacher_text.len);
        fill(&o, (teacher_limits){ most, 1 << 30 });
        CHECK(!s[0].distilled);
        CHECK(metric(&o, "distillation/unreadable_frac") >= 1.0 / 9);
    }
    close_trainer(&o);
}

static void check_rows(const opened *o, const char *key, bool all, const char *part)
{
    ares_distillation_config c = o->c.distillation;
    c.context = "row";
    c.context_key = key;
    int rc = teacher_texts_check_rows(&c, &o->c.data, &o->t.run.source, all);
    if (!part) CHECK_EQ(rc, ARES_OK);
    else {
        CHECK(rc != ARES_OK);
        CHECK_CONTAINS(ares_error_message(), part);
    }
    ares_error_clear();
}

TEST(a_key_that_no_row_has_and_a_prompt_without_a_question_are_refused)
{
    opened o;
    ares_log_set(ARES_LOG_ERROR, 0);
    if (begin(&o)) {
        check_rows(&o, "hint", true, NULL);
        check_rows(&o, "hint.a", true, NULL); /* a path */
        check_rows(&o, "solution", true,
                   "hints.jsonl:1: no row has 'solution': row has no such key");
        check_rows(&o, "solution", false, NULL); /* there may be others */
    }
    close_trainer(&o);
    const char open[] = "{\"prompt\":\"a\",\"answer\":\"1\"}\n{\"prompt\":[{\"role\":\"user\","
                        "\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}],"
                        "\"answer\":\"1\",\"hint\":\"c\"}\n";
    char file[300];
    CHECK_OK(ares_file_write(test_file("open.jsonl"), open, sizeof open - 1));
    (void)snprintf(file, sizeof file, "data.train_files=%s", test_file("open.jsonl"));
    const char *const more[] = { file, "data.rollout_batch_size=1",
                                 "worker.actor.global_batch_size=1" };
    CHECK_OK(open_trainer_of(&o, more, ARES_COUNT(more)));
    check_rows(&o, "hint", true, "open.jsonl:2: the prompt's last message is not the user's");
    close_trainer(&o);
    ares_log_set(ARES_LOG_INFO, 0);
}

/* ---------------------------------------------------------------- which teachers fit */

static void check_teacher(opened *o, const char *dir, const char *part)
{
    teacher_limits limits = { 0 };
    ares_distillation_config c = o->c.distillation;
    c.teacher_path = dir;
    int rc = teacher_check(&c, o->t.run.tokenizer, &o->t.run.model->cfg, &limits);
    if (part) {
        CHECK(rc != ARES_OK);
        CHECK_CONTAINS(ares_error_message(), part);
        CHECK_CONTAINS(ares_error_message(), "distillation.teacher_model.model_path");
    } else {
        CHECK_MSG(rc == ARES_OK, "%s", ares_error_message());
        CHECK(limits.readable > 0 && limits.positions > 0);
    }
    ares_error_clear();
}

TEST(a_teacher_with_other_tokens_or_too_small_a_head_is_refused_by_id)
{
    opened o;
    ares_str cmd = { 0 };
    ares_log_set(ARES_LOG_ERROR, 0);
    if (begin(&o)) {
        const char *model = o.c.actor.model_path;
        /* a base token and an added token with another text; no tokenizer; a small head */
        ares_str_addf(&cmd,
                      "cd '%s' && for d in other added none small; do rm -rf $d; cp -r '%s' $d; "
                      "done && sed -i 's/\"!\"/\"?!?\"/' other/tokenizer.json && sed -i "
                      "'s/<|im_end|>/<|im_bye|>/g' added/tokenizer.json added/*.json && rm -f "
                      "none/tokenizer* none/vocab* none/special* && sed -i "
                      "'s/eos_token_id\": *258/eos_token_id\": 1/; s/vocab_size\": "
                      "*[0-9]*/vocab_size\": 258/' "
                      "small/config.json small/generation_config.json",
                      test_dir(), model);
        CHECK_EQ(test_shell(NULL, "%s", cmd.data), 0);
        check_teacher(&o, NULL, NULL);
        check_teacher(&o, model, NULL);
        check_teacher(&o, test_file("none"), NULL);
        check_teacher(&o, test_file("other"), "to the student and '?!?' to the teacher");
        check_teacher(&o, test_file("added"), "<|im_bye|>");
        check_teacher(&o, test_file("small"), "has no logit for id");
        check_teacher(&o, test_file("nowhere"), "nowhere");
    }
    ares_str_fini(&cmd);
    close_trainer(&o);
    ares_log_set(ARES_LOG_INFO, 0);
}

/* ---------------------------------------------------------------- options */

/* Checks words, or a YAML map of distillation's, on a valid configuration; the faults as text. */
static int check_words(const char *yaml, const char *words, ares_str *faults)
{
    static const char *const base[] = {
        "data.train_files=[t.jsonl]", "worker.actor.model.model_path=m",
        "worker.rollout.n=4",         "worker.reward.rewards=[{name: exact}]",
        "algorithm.disable_kl=true",  "trainer.max_steps=1"
    };
    ares_train_config *c = ares_calloc(1, sizeof *c);
    ares_config *cfg = ares_config_new();
    ares_train_config_declare(cfg, c);
    if (yaml) ares_config_load_text(cfg, "form", ares_view_of(yaml));
    ares_config_read_args(cfg, ARES_COUNT(base), base);
    char *list = ares_strdup(words), *rest = list;
    for (char *one; (one = strsep(&rest, " "));)
        if (*one) ares_config_override(cfg, one);
    ares_config_resolve(cfg);
    int rc = ares_train_config_check(cfg, c, 1), count = ares_config_fault_count(cfg);
    ares_str_clear(faults);
    if (rc != ARES_OK) ares_str_add_z(faults, ares_error_message());
    else ares_str_add_z(faults, "");
    ares_error_clear();
    ares_config_free(cfg);
    ares_free(list);
    ares_free(c);
    return count;
}

#define ON "distillation.enabled=true distillation.teacher_model.model_path=T "
#define SELF_ROW "distillation.enabled=true distillation.context=row "
#define GROUP "distillation.enabled=true distillation.context=group "
#define DL "distillation.distillation_loss."
#define DT "distillation.teacher_model."

TEST(what_distillation_does_not_go_with_is_refused_by_name)
{
    static const struct {
        const char *words, *option; /* NULL: none is refused */
    } cases[] = {
        { "distillation.context=row", "distillation.context" },
        { "distillation.distillation_loss.beta=0.5", DL "beta" },
        { "distillation.distillation_loss.beta=1.0 distillation.lmbda=1", NULL },
        { ON DT "update_rate=0.1", DT "update_rate" },
        { ON DT "sync_steps=2", DT "sync_steps" },
        { SELF_ROW DT "kind=ema " DT "sync_steps=2", NULL },
        { SELF_ROW DT "kind=ema " DT "fsdp.torch_dtype=null", DT "fsdp.torch_dtype" },
        { SELF_ROW DT "kind=ema worker.actor.model.lora.rank=4", DT "kind" },
        { SELF_ROW DT "kind=base worker.actor.model.lora.rank=4", NULL },
        { ON DL "loss_mode=abs", DL "loss_mode" },
        { ON DL "loss_mode=k1+", NULL },
        { ON DL "loss_mode=k3 " DL "beta=0.5", DL "beta" },
        { ON DL "loss_mode=k3 " DL "temperature=2", DL "temperature" },
        { ON DL "kl_discount_factor=0.5", DL "kl_discount_factor" },
        { ON DL "loss_mode=k1+ " DL "is_clip=2", DL "is_clip" },
        { ON DL "is_clip=2", NULL },
        { ON DL "is_clip=0", DL "is_clip" },
        { ON DL "distillation_loss_coef=min(1,step/10)", DL "distillation_loss_coef" },
        { ON DL "use_task_rewards=true " DL "distillation_loss_coef=min(1,step/10)", NULL },
        { ON "distillation.positive_advantage_only=true", "distillation.positive_advantage_only" },
        { ON DL "use_task_rewards=true distillation.positive_advantage_only=true", NULL },
        { GROUP "distillation.lmbda=0.5", "distillation.lmbda" },
        { ON "distillation.lmbda=0 algorithm.online_filtering=true", "distillation.lmbda" },
        { ON "distillation.lmbda=0.5 algorithm.aepo=true", "distillation.lmbda" },
        { ON DL "loss_mode=k1 " DL "use_policy_gradient=true algorithm.online_filtering=true",
          "algorithm.online_filtering" },
        { ON DL "loss_mode=k1 " DL "use_policy_gradient=true " DL "use_task_rewards=true "
                "algorithm.online_filtering=true",
          NULL },
        { GROUP "worker.rollout.n=1", "worker.rollout.n" },
        { GROUP "worker.rollout.n=1 distillation.include_environment_feedback=true", NULL },
        { ON "worker.rollout.n=1", NULL },
        { ON "algorithm.adv_estimator=gae trainer.critic_warmup=1", "trainer.critic_warmup" },
        { ON "algorithm.adv_estimator=gae trainer.critic_warmup=1 " DL "use_task_rewards=true",
          NULL },
        { GROUP "distillation.use_successful_as_teacher=false",
          "distillation.use_successful_as_teacher" },
        { SELF_ROW "distillation.teacher_prompt_template={prompt}{hint}",
          "distillation.teacher_prompt_template" },
        { SELF_ROW "distillation.teacher_prompt_template={prompt}{{hint}}\\boxed{}{0}", NULL },
        { GROUP "distillation.solution_template={prompt}", "distillation.solution_template" },
        { ON DL "topk=4", NULL },
        { "distillation.context=row " DL "topk=4", NULL }, /* verl's section, which is off */
        { ON "distillation_topk=20", "distillation_topk" },
        { ON "distillation_weight=0.5", "distillation_weight" },
        { ON "seq_kd=true", "seq_kd" },
    };
    ares_str faults = { 0 };
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        int n = check_words(NULL, cases[i].words, &faults);
        CHECK_MSG(cases[i].option ? n == 1 && strstr(faults.data, cases[i].option) : n == 0,
                  "%s: %d faults: %s", cases[i].words, n, faults.data);
    }
    ares_str_fini(&faults);
    ares_log_set(ARES_LOG_INFO, 0);
}

/* The lines of the table of docs/distillation.md, as they stand there. */
TEST(every_published_form_of_the_documents_passes_the_checks)
{
    ares_str page = { 0 }, faults = { 0 };
    int forms = 0;
    ares_log_set(ARES_LOG_ERROR, 0);
    CHECK_EQ(ares_file_read(test_source("docs/distillation.md"), &page), ARES_OK);
    char *from = strstr(page.data, "## The published forms"),
         *end = strstr(from, "\n## The teacher"), *rest = from;
    *end = 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *cell = strncmp(line, "| ", 2) == 0 ? strstr(line + 2, " | ") : NULL;
        ares_str yaml = { 0 };
        if (!cell || strncmp(line, "| method", 8) == 0) continue;
        ares_str_add_z(&yaml, "distillation: {enabled: true");
        char *parts = cell + 3;
        while (strsep(&parts, "`") && parts) { /* what stands between two of them */
            char *code = strsep(&parts, "`");
            ares_str_addf(&yaml, ", %s", code);
            if (!parts) break;
        }
        ares_str_add_z(&yaml, "}\n");
        int n = check_words(yaml.data, "", &faults);
        CHECK_MSG(n == 0, "%s: %s", yaml.data, faults.data);
        forms++;
        ares_str_fini(&yaml);
    }
    CHECK(forms >= 12);
    ares_str_fini(&page);
    ares_str_fini(&faults);
    ares_log_set(ARES_LOG_INFO, 0);
}
