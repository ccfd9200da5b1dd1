/*
 * Templates against jinja2: the goldens of scripts/golden/chat.py, errors and their places, and the
 * bounds of a render.
 */
#include <stdio.h>
#include <time.h>

#include "ares/text.h"
#include "jinja/jinja.h"
#include "test.h"

typedef struct golden {
    ares_str text;
    ares_arena arena;
    const ares_json *cases;
    struct tm now;
} golden;

static bool golden_open(golden *g, const char *name)
{
    char path[200];
    const ares_json *root;
    int y, mo, d, h, mi, s;
    *g = (golden){ 0 };
    snprintf(path, sizeof path, "tests/golden/chat/%s.json", name);
    if (!CHECK_OK(ares_file_read(test_source(path), &g->text))) return false;
    if (!CHECK_OK(ares_json_parse(&g->arena, ares_str_view(&g->text), name, &root))) return false;
    g->cases = ares_json_get(root, "cases");
    ares_view now;
    CHECK_OK(ares_json_get_string(root, "now", "", &now));
    if (!CHECK_EQ(sscanf(now.data, "%d-%d-%dT%d:%d:%d", &y, &mo, &d, &h, &mi, &s), 6)) return false;
    g->now = (struct tm){ .tm_year = y - 1900,
                          .tm_mon = mo - 1,
                          .tm_mday = d,
                          .tm_hour = h,
                          .tm_min = mi,
                          .tm_sec = s,
                          .tm_isdst = -1 };
    timegm(&g->now); /* fills in the day of the week and of the year */
    return CHECK(g->cases && g->cases->count > 0);
}

static void golden_close(golden *g)
{
    ares_str_fini(&g->text);
    ares_arena_fini(&g->arena);
}

static bool spans_equal(const ares_text_spans *spans, const ares_json *expected)
{
    if (!expected) return true;
    bool same = spans->n == expected->count;
    for (int64_t i = 0; same && i < spans->n; i++)
        same = spans->items[i].char_start == expected->items[i].items[0].integer &&
               spans->items[i].char_end == expected->items[i].items[1].integer;
    return same;
}

/* What jinja2 can render and we do not: integers beyond 64 bits, blocks, autoescape. */
static bool is_refused(ares_view source)
{
    static const char *const refused[] = {
        "{{ wide + 1 }}",
        "{{ 2 ** 64 }}",
        "{{ 2 ** 100 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 3000000000 * 4000000000 }}",
        "round(-2)",
        "self",
        "{% autoescape",
        "{% block",
        "append(",
    };
    for (int i = 0; i < ARES_COUNT(refused); i++)
        if (ares_view_find(source, ares_view_of(refused[i]), 0) >= 0) return true;
    return false;
}

/*
 * An error must be an error, on the line that jinja2 names for a syntax error; a text must be that
 * text.
 */
static bool agrees(const ares_json *c, int rc, const ares_str *out, const ares_text_spans *spans,
                   ares_view label)
{
    const ares_json *text = ares_json_get(c, "text");
    const char *said = rc == ARES_OK ? "" : ares_error_message();
    int shown = (int)ARES_MIN(label.len, 200);
    if (!text)
        return CHECK_MSG(rc != ARES_OK, "%.*s: rendered '%s' where jinja2 fails", shown, label.data,
                         out->data ? out->data : "");
    return CHECK_MSG(rc == ARES_OK, "%.*s: %s", shown, label.data, said) &&
           CHECK_MSG(ares_view_eq(ares_str_view(out), text->text),
                     "%.*s: got '%s', jinja2 gives '%s'", shown, label.data,
                     out->data ? out->data : "", text->text.data) &&
           CHECK_MSG(spans_equal(spans, ares_json_get(c, "spans")), "%.*s: other spans", shown,
                     label.data);
}

static void run_small(const char *name, template_dialect dialect)
{
    golden g;
    int64_t refusals = 0;
    if (!golden_open(&g, name)) return;
    for (int64_t i = 0; i < g.cases->count; i++) {
        const ares_json *c = &g.cases->items[i], *source = ares_json_get(c, "template");
        ares_template *t;
        ares_str out = { 0 };
        ares_text_spans spans = { 0 };
        int rc = template_parse("golden", source->text, dialect, &t);
        if (rc == ARES_OK)
            rc = ares_template_render(t, ares_json_get(c, "context"), &g.now, NULL, &out,
                                      ares_json_get(c, "spans") ? &spans : NULL);
        bool refused = rc != ARES_OK && is_refused(source->text) && ares_json_get(c, "text");
        refusals += refused;
        if (!refused) agrees(c, rc, &out, &spans, source->text);
        ares_template_free(t);
        ares_str_fini(&out);
        ares_text_spans_fini(&spans);
    }
    CHECK_MSG(refusals * 12 < g.cases->count, "%lld of %lld refused", (long long)refusals,
              (long long)g.cases->count);
    golden_close(&g);
}

TEST(expressions_and_statements_mean_what_jinja2_makes_of_them)
{
    run_small("expressions", TEMPLATE_CHAT);
}
TEST(format_prompts_render_as_jinja2_renders_them)
{
    run_small("plain", TEMPLATE_PLAIN);
}

static void run_templates(const char *name)
{
    golden g;
    if (!golden_open(&g, name)) return;
    for (int64_t i = 0; i < g.cases->count; i++) {
        const ares_json *c = &g.cases->items[i], *spans_expected = ares_json_get(c, "spans");
        char path[300];
        ares_view file = ares_json_get(c, "file")->text;
        snprintf(path, sizeof path, "tests/golden/chat/templates/%.*s", (int)file.len, file.data);
        ares_chat *chat;
        ares_str out = { 0 };
        ares_text_spans spans = { 0 };
        if (!CHECK_OK(ares_chat_load(test_source(path), NULL, &chat))) break;
        int rc = spans_expected ? ares_chat_assistant_spans(chat, ares_json_get(c, "context"),
                                                            &g.now, &out, &spans)
                                : ares_chat_render(chat, ares_json_get(c, "context"), &g.now, &out);
        agrees(c, rc, &out, &spans, ares_json_get(c, "name")->text);
        ares_chat_free(chat);
        ares_str_fini(&out);
        ares_text_spans_fini(&spans);
    }
    golden_close(&g);
}

TEST(published_chat_templates_render_as_transformers_renders_them)
{
    run_templates("templates");
}
TEST(a_final_message_is_continued_as_transformers_continues_it)
{
    run_templates("continue");
}

static int render_with(const char *source, const ares_template_limits *limits, ares_str *out)
{
    ares_template *t;
    ares_str_clear(out);
    ARES_TRY(template_parse("t", ares_view_of(source), TEMPLATE_CHAT, &t));
    int rc = ares_template_render(t, NULL, NULL, limits, out, NULL);
    ares_template_free(t);
    return rc;
}

TEST(an_error_names_its_line_and_column)
{
    ares_str out = { 0 };
    CHECK_FAIL(render_with("a\nb {{ (1 }}", NULL, &out), ARES_EFORMAT, "t:2:");
    CHECK_FAIL(render_with("a\n  é {{ x.y.z }}", NULL, &out), ARES_EFORMAT,
               "t:2:9: 'x' is undefined");
    CHECK_FAIL(render_with("{% for x in y %}", NULL, &out), ARES_EFORMAT, "opened at 1:4");
    CHECK_FAIL(render_with("\n\n{{ raise_exception('no ' ~ 'way') }}", NULL, &out), ARES_EFORMAT,
               "t:3:19: no way");
    CHECK_FAIL(render_with("{{ 1 | nofilter }}", NULL, &out), ARES_EFORMAT,
               "t:1:8: No filter named 'nofilter'");
    CHECK_FAIL(render_with("{% set x = [] %}\r\n{{ x.append(1) }}", NULL, &out), ARES_EFORMAT,
               "t:2:12: access to this attribute");
    CHECK_EQ(out.len, 0);
    ares_str_fini(&out);
}

TEST(a_look_ahead_changes_nothing_of_what_is_counted)
{
    ares_str out = { 0 };
    CHECK_OK(
        render_with("{% for x in [1,2,3] | select %}{{ loop.last }}{{ loop.length }} {% endfor %}",
                    NULL, &out));
    CHECK_VIEW(ares_str_view(&out), "False3 False3 True3 "); /* of jinja2 3.1.6 */
    ares_str_fini(&out);
}

TEST(what_is_not_supported_is_refused_by_name)
{
    static const struct {
        const char *source, *part;
    } cases[] = {
        { "{% include 'x' %}", "'include' is not supported" },
        { "{% block a %}{% endblock %}", "'block' is not supported" },
        { "{{ 10 ** 30 }}", "beyond 64-bit" },
        { "{{ 'a'.upper }}", "prints its address" },
        { "{{ '%d' % 1 }}", "t:1:9: '%' of a str" },
        { "{{ '7'.zfill(3) }}", "t:1:7: 'zfill' of str is not supported" },
        { "{{ '{}'.format(1) }}", "'format' of str is not supported" },
        { "{{ 'a\\ud800' }}", "surrogate" },
        { "{{ 'a b'.encode() }}", "'encode' of str is not supported" },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        CHECK_FAIL(render_with(cases[i].source, NULL, &out), ARES_EUNSUPPORTED, cases[i].part);
    static const char *const unknown[][2] = {
        { "{{ [1] | groupby('a') }}", "t:1:10: No filter named 'groupby'" },
        { "{{ ['a'] | map('center') | list }}", "No filter named 'center'" },
        { "{{ 'a' is upper }}", "t:1:8: No test named 'upper'" },
        { "{{ cycler(1, 2) }}", "'cycler' is undefined" },
        { "{{ é }}", "t:1:4: unexpected char 'é'" },
    };
    for (int i = 0; i < ARES_COUNT(unknown); i++)
        CHECK_FAIL(render_with(unknown[i][0], NULL, &out), ARES_EFORMAT, unknown[i][1]);
    ares_str_fini(&out);
}

TEST(a_hostile_template_meets_a_bound)
{
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 999999999999 }}",
        "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s "
        "%}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l }}",
        "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
        "{{ [[0] * 9999] * 9999 }}",
        "{{ 'x' | indent(999999999, true) }}",
        "{% set l = range(99999)|list %}{% for i in l %}{% if 100000 in l %}{% endif %}{% endfor "
        "%}",
    };
    ares_template_limits limits = { .steps = 3000000,
                                    .memory_bytes = (size_t)64 << 20,
                                    .output_bytes = (size_t)8 << 20 };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(sources); i++)
        CHECK_FAIL(render_with(sources[i], &limits, &out), ARES_ELIMIT, "t:1:");
    ares_str deep = { 0 };
    for (int i = 0; i < 100000; i++) ares_str_add_z(&deep, i % 2 ? "(" : "[");
    ares_str text = { 0 };
    ares_str_addf(&text, "{{ %s", deep.data);
    CHECK_FAIL(render_with(text.data, NULL, &out), ARES_ELIMIT, "inside each other");
    ares_str_clear(&text);
    ares_str_add_z(&text, "{{ 1");
    for (int i = 0; i < 100000; i++) ares_str_add_z(&text, "+1");
    ares_str_add_z(&text, " }}");
    CHECK_FAIL(render_with(text.data, NULL, &out), ARES_ELIMIT, "too deep");
    ares_str_fini(&deep);
    ares_str_fini(&text);
    ares_str_fini(&out);
}

TEST(one_template_serves_renders_with_other_variables)
{
    ares_template *t;
    ares_arena arena = { 0 };
    ares_str out = { 0 };
    const ares_json *a, *b;
    REQUIRE_OK(template_parse("t", ARES_VIEW("{{ x }},{{ x|tojson }};"), TEMPLATE_CHAT, &t));
    REQUIRE_OK(ares_json_parse(&arena, ARES_VIEW("{\"x\":1.0}"), "a", &a));
    REQUIRE_OK(ares_json_parse(
        &arena, ARES_VIEW("{\"x\":[123456789012345678901234567890,\"a\\u0000\\u00e9\"]}"), "b",
        &b));
    CHECK_OK(ares_template_render(t, a, NULL, NULL, &out, NULL));
    CHECK_OK(ares_template_render(t, b, NULL, NULL, &out, NULL));
    CHECK_VIEW(ares_str_view(&out), "1.0,1.0;[123456789012345678901234567890, "
                                    "'a\\x00é'],[123456789012345678901234567890, \"a\\u0000é\"];");
    ares_template_free(t);
    ares_str_fini(&out);
    ares_arena_fini(&arena);
}
