/* The verifier `json`: what is JSON, every keyword of a schema on both sides, and hostile texts. */
#include "test.h"
#include "work.h"

#include <math.h>

#include "ares/grade.h"

/* Judges a response with option=value words up to a NULL; the caller's details get the details. */
static double judge(ares_view response, const char *const *words, ares_str *details,
                    bool *exhausted)
{
    ares_judge *j;
    void *options;
    ares_verify_in in = { .response = response, .response_tokens = -1 };
    ares_verify_out out = { .accuracy = NAN };
    if (!CHECK_OK(ares_judge_new("json", &j))) return NAN;
    ares_config *cfg = ares_config_new();
    ares_option_table *table = ares_judge_options(j, &options);
    ares_config_add_options(cfg, "", table, options);
    for (; words && *words; words++) ares_config_override(cfg, *words);
    ares_config_resolve(cfg);
    if (ares_config_fault_count(cfg) == 0) ares_judge_check(j, cfg, "");
    int rc = ares_config_finish(cfg);
    if (rc == ARES_OK) rc = ares_judge_run(j, &in, &out);
    if (rc == ARES_OK) CHECK_NEAR(out.accuracy, out.score, 0);
    if (details) ares_str_add_view(details, ares_str_view(&out.details));
    if (exhausted) *exhausted = out.exhausted;
    ares_str_fini(&out.details);
    ares_judge_free(j);
    ares_config_free(cfg);
    return rc == ARES_OK ? out.score : NAN;
}

/* NaN: the schema was refused, and the error message says why. */
static double fit(const char *schema, ares_view response, ares_str *details, bool *exhausted)
{
    ares_str path = { 0 }, word = { 0 };
    ares_str_addf(&path, "%s/schema.json", test_dir());
    CHECK_OK(ares_file_write(path.data, schema, strlen(schema)));
    ares_str_addf(&word, "schema=%s", path.data);
    double score = judge(response, (const char *const[]){ word.data, NULL }, details, exhausted);
    ares_str_fini(&path);
    ares_str_fini(&word);
    return score;
}

static double plain(const char *response)
{
    return judge(ares_view_of(response), NULL, NULL, NULL);
}

/* n times `open`, then the middle, then n times `close`. */
static ares_str nested(int n, const char *open, const char *middle, const char *close)
{
    ares_str s = { 0 };
    for (int i = 0; i < n; i++) ares_str_add_z(&s, open);
    ares_str_add_z(&s, middle);
    for (int i = 0; i < n; i++) ares_str_add_z(&s, close);
    return s;
}

TEST(a_response_is_one_json_text_or_none)
{
    static const char *const valid[] = {
        "{}",
        " [1, 2]\n",
        "\"a\"",
        "null",
        "-0",
        "1e308",
        "{\"a\": 1, \"a\": 2}",
        "\"\\ud800\"",
        "123456789012345678901234567890",
    };
    static const char *const wrong[] = {
        "",        "{} {}",   "NaN",    "[Infinity]", "{'a': 1}",       "[1,]",  "01",    "1.",
        "+1",      "{\"a\"}", "\"a",    "\"\t\"",     "\"\xff\"",       "tru",   "1e999", "answer",
        "// c\n1", "[1] x",   "{a: 1}", "\"\\x41\"",  "\xef\xbb\xbf{}", "[1 2]",
    };
    for (int i = 0; i < ARES_COUNT(valid); i++)
        CHECK_MSG(plain(valid[i]) == 1, "'%s' is JSON", valid[i]);
    for (int i = 0; i < ARES_COUNT(wrong); i++)
        CHECK_MSG(plain(wrong[i]) == 0, "'%s' is not JSON", wrong[i]);
    CHECK(judge(ARES_VIEW("1\0"), NULL, NULL, NULL) == 0);
    ares_str details = { 0 };
    judge(ARES_VIEW("[1,\n 2,]"), NULL, &details, NULL);
    CHECK_CONTAINS(details.data, "response:2:4: not JSON: ");
    CHECK_STR(ares_error_message(), "");
    ares_str_fini(&details);
}

TEST(the_last_closed_json_fence_can_be_judged)
{
    static const struct {
        const char *text;
        double score;
    } cases[] = {
        { "Here:\n```json\n{\"a\": 1}\n```\nDone.", 1 },
        { "```json\n{}\n```\n```json\n{\n```", 0 },
        { "```json\n{\n```\n```json\n{}\n```", 1 },
        { "```json\n{}\n```\n```c\n{\n```", 1 },
        { "```json\n{}", 0 },
        { "```json\n```", 0 },
        { "```json", 0 },
        { "```c\n```json\n{}\n```", 0 },
        { "{}", 0 },
        { "", 0 },
    };
    const char *const words[] = { "fenced=true", NULL };
    for (int i = 0; i < ARES_COUNT(cases); i++)
        CHECK_MSG(judge(ares_view_of(cases[i].text), words, NULL, NULL) == cases[i].score,
                  "'%s' should score %g", cases[i].text, cases[i].score);
    CHECK(plain("```json\n{}\n```") == 0);
}

TEST(every_keyword_of_a_schema_lets_in_what_fits_and_nothing_else)
{
    /* places: JSON pointer and keyword of what does not fit, NULL where all fits */
    static const struct {
        const char *schema, *response, *at, *keyword;
    } cases[] = {
        { "true", "1", NULL, NULL },
        { "false", "1", "", "false" },
        { "{}", "[{}]", NULL, NULL },
        { "{'type': 'null'}", "null", NULL, NULL },
        { "{'type': 'null'}", "0", "", "type" },
        { "{'type': 'boolean'}", "false", NULL, NULL },
        { "{'type': 'boolean'}", "0", "", "type" },
        { "{'type': 'integer'}", "1.0", NULL, NULL },
        { "{'type': 'integer'}", "1e400", "", NULL },
        { "{'type': 'integer'}", "99999999999999999999999", NULL, NULL },
        { "{'type': 'integer'}", "1.5", "", "type" },
        { "{'type': 'number'}", "1", NULL, NULL },
        { "{'type': 'number'}", "'1'", "", "type" },
        { "{'type': 'string'}", "'1'", NULL, NULL },
        { "{'type': 'array'}", "{}", "", "type" },
        { "{'type': 'object'}", "{}", NULL, NULL },
        { "{'type': ['string', 'null']}", "null", NULL, NULL },
        { "{'type': ['string', 'null']}", "[]", "", "type" },
        { "{'enum': [1, 'a', {'x': 1, 'y': [2]}]}", "{'y': [2.0], 'x': 1}", NULL, NULL },
        { "{'enum': [1, 'a', {'x': 1, 'y': [2]}]}", "{'y': [2], 'z': 1}", "", "enum" },
        { "{'enum': []}", "1", "", "enum" },
        { "{'const': 1}", "1.0", NULL, NULL },
        { "{'const': 9007199254740993}", "9007199254740992.0", "", "const" },
        { "{'const': 100000000000000000000}", "1e20", NULL, NULL },
        { "{'const': 100000000000000000001}", "1e20", "", "const" },
        { "{'const': true}", "1", "", "const" },
        { "{'const': null}", "null", NULL, NULL },
        { "{'const': [1, 2]}", "[2, 1]", "", "const" },
        { "{'properties': {'a': {'type': 'string'}}}", "{'b': 1}", NULL, NULL },
        { "{'properties': {'a': {'type': 'string'}}}", "[]", NULL, NULL },
        { "{'properties': {'a': {'type': 'string'}}}", "{'a': 1}", "/a", "type" },
        { "{'properties': {'a/b~': false}}", "{'a/b~': 1}", "/a~1b~0", "properties" },
        { "{'required': ['a', 'b']}", "{'b': 1, 'a': null}", NULL, NULL },
        { "{'required': ['a', 'b']}", "{'b': 1}", "", "required" },
        { "{'required': ['a']}", "[]", NULL, NULL },
        { "{'properties': {'a': {}}, 'additionalProperties': false}", "{'a': 1}", NULL, NULL },
        { "{'additionalProperties': false, 'properties': {'a': {}}}", "{'a': 1, 'b': 2}", "/b",
          "additionalProperties" },
        { "{'additionalProperties': {'type': 'null'}}", "{'a': null}", NULL, NULL },
        { "{'additionalProperties': {'type': 'null'}}", "{'a': 1}", "/a", "type" },
        { "{'items': {'type': 'number'}}", "[1, 2]", NULL, NULL },
        { "{'items': {'type': 'number'}}", "[1, '2']", "/1", "type" },
        { "{'items': false, 'prefixItems': [{}, {}]}", "[1, 2]", NULL, NULL },
        { "{'items': false, 'prefixItems': [{}, {}]}", "[1, 2, 3]", "/2", "items" },
        { "{'prefixItems': [{'const': 1}, {'const': 2}]}", "[1]", NULL, NULL },
        { "{'prefixItems': [{'const': 1}, {'const': 2}]}", "[1, 3]", "/1", "const" },
        { "{'minItems': 2}", "[1, 2]", NULL, NULL },
        { "{'minItems': 2.0}", "[1]", "", "minItems" },
        { "{'maxItems': 1}", "'many'", NULL, NULL },
        { "{'maxItems': 1}", "[1, 2]", "", "maxItems" },
        { "{'uniqueItems': true}", "[1, true, '1', [1]]", NULL, NULL },
        { "{'uniqueItems': true}", "[1, 2, 1.0]", "", "uniqueItems" },
        { "{'uniqueItems': false}", "[1, 1]", NULL, NULL },
        { "{'minimum': 0.5}", "0.5", NULL, NULL },
        { "{'minimum': 0.5}", "0", "", "minimum" },
        { "{'maximum': 9007199254740992}", "9007199254740992.0", NULL, NULL },
        { "{'maximum': 9007199254740992.0}", "9007199254740993", "", "maximum" },
        { "{'maximum': 99999999999999999999}", "100000000000000000000", "", "maximum" },
        { "{'minimum': -1e300}", "-99999999999999999999", NULL, NULL },
        { "{'minimum': -2}", "-99999999999999999999", "", "minimum" },
        { "{'exclusiveMinimum': 0}", "1e-300", NULL, NULL },
        { "{'exclusiveMinimum': 0}", "-0.0", "", "exclusiveMinimum" },
        { "{'exclusiveMaximum': 1}", "0.999", NULL, NULL },
        { "{'exclusiveMaximum': 1}", "1", "", "exclusiveMaximum" },
        { "{'multipleOf': 0.1}", "0.3", NULL, NULL },
        { "{'multipleOf': 0.01}", "19.99", NULL, NULL },
        { "{'multipleOf': 0.01}", "19.999", "", "multipleOf" },
        { "{'multipleOf': 3}", "1e300", "", "multipleOf" },
        { "{'multipleOf': 3}", "-3e300", NULL, NULL },
        { "{'multipleOf': 7}", "700000000000000000000000", NULL, NULL },
        { "{'multipleOf': 7}", "700000000000000000000001", "", "multipleOf" },
        { "{'multipleOf': 20}", "30", "", "multipleOf" },
        { "{'multipleOf': 20}", "0.0", NULL, NULL },
        { "{'minLength': 2}", "'\xc3\xa9\xf0\x9f\x98\x80'", NULL, NULL },
        { "{'minLength': 2}", "'\\ud83d\\ude00'", "", "minLength" },
        { "{'maxLength': 1}", "'\xf0\x9f\x98\x80'", NULL, NULL },
        { "{'maxLength': 1}", "'ab'", "", "maxLength" },
        { "{'pattern': 'b+'}", "'abc'", NULL, NULL },
        { "{'pattern': '^b+$'}", "'abc'", "", "pattern" },
        { "{'pattern': '^b+$'}", "1", NULL, NULL },
        { "{'anyOf': [{'type': 'null'}, {'minimum': 5}]}", "7", NULL, NULL },
        { "{'anyOf': [{'type': 'null'}, {'minimum': 5}]}", "4", "", "anyOf" },
        { "{'allOf': [{'type': 'number'}, {'minimum': 5}]}", "7", NULL, NULL },
        { "{'allOf': [{'type': 'number'}, {'minimum': 5}]}", "4", "", "minimum" },
        { "{'oneOf': [{'multipleOf': 2}, {'multipleOf': 3}]}", "9", NULL, NULL },
        { "{'oneOf': [{'multipleOf': 2}, {'multipleOf': 3}]}", "6", "", "oneOf" },
        { "{'oneOf': [{'multipleOf': 2}, {'multipleOf': 3}]}", "5", "", "oneOf" },
        { "{'not': {'type': 'null'}}", "1", NULL, NULL },
        { "{'not': {'type': 'null'}}", "null", "", "not" },
        { "{'$ref': '#/$defs/a~1b', '$defs': {'a/b': {'const': 1}}}", "1", NULL, NULL },
        { "{'$ref': '#/$defs/a~1b', '$defs': {'a/b': {'const': 1}}}", "2", "", "const" },
        { "{'$ref': '#/$defs/no', '$defs': {'no': false}}", "2", "", "$ref" },
        { "{'properties': {'next': {'$ref': '#'}, 'v': {'type': 'number'}}}",
          "{'v': 1, 'next': {'next': {'v': 'x'}}}", "/next/next/v", "type" },
        { "{'$schema': 's', '$id': 'i', '$comment': 'c', 'title': 't', 'description': 'd', "
          "'default': 0, 'examples': [], 'format': 'date'}",
          "'no date'", NULL, NULL },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str schema = { 0 }, text = { 0 }, details = { 0 }, expected = { 0 };
        ares_str_add_z(&schema, cases[i].schema);
        ares_str_add_z(&text, cases[i].response);
        for (size_t k = 0; k < schema.len; k++)
            if (schema.data[k] == '\'') schema.data[k] = '"';
        for (size_t k = 0; k < text.len; k++)
            if (text.data[k] == '\'') text.data[k] = '"';
        double score = fit(schema.data, ares_str_view(&text), &details, NULL);
        CHECK_MSG(score == (cases[i].at ? 0 : 1), "%s of %s scores %g %s", text.data, schema.data,
                  score, isnan(score) ? ares_error_message() : "");
        if (cases[i].keyword) {
            ares_str_addf(&expected, "\"at\":\"%s\",\"keyword\":\"%s\"", cases[i].at,
                          cases[i].keyword);
            CHECK_CONTAINS(details.data ? details.data : "", expected.data);
        }
        ares_str_fini(&schema);
        ares_str_fini(&text);
        ares_str_fini(&details);
        ares_str_fini(&expected);
    }
}

TEST(a_schema_that_cannot_be_applied_is_refused_with_its_place)
{
    static const struct {
        const char *schema, *says;
    } cases[] = {
        { "[", "schema.json:1:2: not JSON" },
        { "3", "#: a schema must be an object" },
        { "{\"items\": {\"contains\": {}}}", "#/items/contains: no keyword" },
        { "{\"items\": [{}]}", "#/items: a schema must be" },
        { "{\"properties\": {\"a\": {\"type\": \"text\"}}}", "#/properties/a/type: no such type" },
        { "{\"type\": []}", "#/type: must name a type" },
        { "{\"type\": [1]}", "#/type: no such type" },
        { "{\"enum\": 1}", "#/enum: must be a list" },
        { "{\"properties\": []}", "#/properties: must be an object" },
        { "{\"required\": [1]}", "#/required: must be a list of strings" },
        { "{\"additionalProperties\": 0}", "#/additionalProperties: a schema" },
        { "{\"prefixItems\": []}", "#/prefixItems: must be a list of at least one" },
        { "{\"minItems\": -1}", "#/minItems: must be an integer" },
        { "{\"maxItems\": 1.5}", "#/maxItems: must be an integer" },
        { "{\"maxLength\": 1e300}", "#/maxLength: must be an integer" },
        { "{\"uniqueItems\": 1}", "#/uniqueItems: must be true or false" },
        { "{\"exclusiveMinimum\": true}", "#/exclusiveMinimum: must be a number" },
        { "{\"multipleOf\": 0}", "#/multipleOf: must be a number above 0" },
        { "{\"multipleOf\": 0.1234567891}", "#/multipleOf: must have at most 9 digits" },
        { "{\"pattern\": \"(\"}", "#/pattern: " },
        { "{\"pattern\": \"a\\u0000\"}", "#/pattern: must be a string without NUL" },
        { "{\"anyOf\": [{}, {\"not\": 1}]}", "#/anyOf/1/not: a schema" },
        { "{\"not\": {\"$id\": \"x\"}}", "#/not/$id: is only known at the root" },
        { "{\"$ref\": \"#/$defs/a\"}", "#/$ref: leads nowhere" },
        { "{\"$ref\": \"https://a.b/c\"}", "#/$ref: leads nowhere" },
        { "{\"$ref\": \"#/$defs/a/b\", \"$defs\": {\"a\": {}}}", "#/$ref: leads nowhere" },
        { "{\"$ref\": \"#\"}", "#: $ref leads in a circle" },
        { "{\"$defs\": {\"a\": {\"$ref\": \"#/$defs/b\"}, "
          "\"b\": {\"anyOf\": [{\"$ref\": \"#/$defs/a\"}]}}}",
          "#/$defs/a: $ref leads in a circle" },
        { "{\"$defs\": {\"a\": {\"not\": {\"$ref\": \"#/$defs/a\"}}}}", "$ref leads in a circle" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_MSG(isnan(fit(cases[i].schema, ARES_VIEW("1"), NULL, NULL)), "%s should be refused",
                  cases[i].schema);
        CHECK_CONTAINS(ares_error_message(), "schema.json");
        CHECK_CONTAINS(ares_error_message(), cases[i].says);
    }
    CHECK(isnan(
        judge(ARES_VIEW("1"), (const char *const[]){ "schema=/no/such.json", NULL }, NULL, NULL)));
    CHECK_CONTAINS(ares_error_message(), "/no/such.json");
}

TEST(auto_reads_the_schema_for_json_and_for_boxed_json)
{
    const char *schema = "{\"minimum\": 5}";
    ares_str path = { 0 }, word = { 0 };
    ares_str_addf(&path, "%s/schema.json", test_dir());
    CHECK_OK(ares_file_write(path.data, schema, strlen(schema)));
    ares_str_addf(&word, "types={json: {schema: '%s'}}", path.data);
    static const struct {
        const char *type, *response;
        double score;
    } cases[] = { { "rm_type=json", "7", 1 },
                  { "rm_type=json", "3", 0 },
                  { "rm_type=boxed_json", "so \\boxed{7}", 1 },
                  { "rm_type=boxed_json", "so \\boxed{3}", 0 } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_judge *j;
        void *options;
        ares_verify_in in = { .response = ares_view_of(cases[i].response) };
        ares_verify_out out = { 0 };
        REQUIRE_OK(ares_judge_new("auto", &j));
        ares_config *cfg = ares_config_new();
        ares_option_table *table = ares_judge_options(j, &options);
        ares_config_add_options(cfg, "", table, options);
        ares_config_override(cfg, word.data);
        ares_config_override(cfg, cases[i].type);
        ares_config_resolve(cfg);
        ares_judge_check(j, cfg, "");
        CHECK_OK(ares_config_finish(cfg));
        CHECK_OK(ares_judge_run(j, &in, &out));
        CHECK_NEAR(out.score, cases[i].score, 0);
        ares_str_fini(&out.details);
        ares_judge_free(j);
        ares_config_free(cfg);
    }
    ares_str_fini(&path);
    ares_str_fini(&word);
}

TEST(hostile_texts_end_within_the_work_limits)
{
    bool exhausted;
    ares_str deep = nested(512, "[", "", "]"), too_deep = nested(513, "[", "", "]"),
             open = nested(1000000, "[", "", ""), tree = nested(500, "{\"a\":", "{\"b\":1}", "}"),
             many = { 0 }, wide = { 0 };
    CHECK(plain(deep.data) == 1 && plain(too_deep.data) == 0 && plain(open.data) == 0);
    CHECK(fit("{\"items\": {\"$ref\": \"#\"}, \"type\": \"array\"}", ares_str_view(&deep), NULL,
              &exhausted) == 1 &&
          !exhausted);
    /* each level is judged twice by the two alternatives below it: 2^500 without a limit */
    int64_t before = work_done();
    CHECK(fit("{\"$defs\": {\"n\": {\"anyOf\": ["
              "{\"properties\": {\"a\": {\"$ref\": \"#/$defs/n\"}}, \"required\": [\"c\"]},"
              "{\"properties\": {\"a\": {\"$ref\": \"#/$defs/n\"}}, \"required\": [\"d\"]}]}},"
              "\"$ref\": \"#/$defs/n\"}",
              ares_str_view(&tree), NULL, &exhausted) == 0 &&
          exhausted);
    ares_str_add_z(&many, "[0");
    for (int i = 1; i < 20000; i++) ares_str_addf(&many, ",%d", i);
    ares_str_add_z(&many, "]");
    CHECK(fit("{\"uniqueItems\": true}", ares_str_view(&many), NULL, &exhausted) == 0 && exhausted);
    CHECK(fit("{\"not\": {\"not\": {\"uniqueItems\": true}}}", ares_str_view(&many), NULL,
              &exhausted) == 0 &&
          exhausted);
    CHECK(fit("{\"not\": {\"pattern\": \"^(a+)+$\"}}",
              ARES_VIEW("\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\""), NULL,
              &exhausted) == 0 &&
          exhausted);
    ares_str_clear(&many);
    ares_str_add_z(&many, "{\"a\":0");
    for (int i = 0; i < 100000; i++) ares_str_addf(&many, ",\"k%d\":0", i);
    ares_str_add_z(&many, "}");
    ares_str_add_z(&wide, "{\"properties\": {\"a\": {}");
    for (int i = 0; i < 1000; i++) ares_str_addf(&wide, ", \"m%d\": {}", i);
    ares_str_add_z(&wide, "}}");
    CHECK(fit(wide.data, ares_str_view(&many), NULL, &exhausted) == 0 && exhausted);
    int64_t work = work_done() - before;
    CHECK_MSG(work < 400000000, "%lld steps", (long long)work);
    ares_str_fini(&deep);
    ares_str_fini(&too_deep);
    ares_str_fini(&open);
    ares_str_fini(&tree);
    ares_str_fini(&many);
    ares_str_fini(&wide);
}

TEST(a_long_chain_of_references_is_refused_and_a_deep_descent_is_cut)
{
    ares_str chain = { 0 }, array = nested(510, "[", "", "]"),
             deep = nested(40, "{\"allOf\": [", "{\"items\": {\"$ref\": \"#\"}}", "]}");
    bool exhausted;
    ares_str_add_z(&chain, "{\"$defs\": {\"d400\": {}");
    for (int i = 399; i >= 0; i--)
        ares_str_addf(&chain, ", \"d%d\": {\"$ref\": \"#/$defs/d%d\"}", i, i + 1);
    ares_str_add_z(&chain, "}}");
    /* each is checked after the one it leads to, so no chain is long */
    CHECK(fit(chain.data, ARES_VIEW("1"), NULL, &exhausted) == 1);
    ares_str_clear(&chain);
    ares_str_add_z(&chain, "{\"$defs\": {");
    for (int i = 0; i < 400; i++)
        ares_str_addf(&chain, "\"d%d\": {\"$ref\": \"#/$defs/d%d\"}, ", i, i + 1);
    ares_str_add_z(&chain, "\"d400\": {}}}");
    CHECK(isnan(fit(chain.data, ARES_VIEW("1"), NULL, NULL)));
    CHECK_CONTAINS(ares_error_message(), "#/$defs/d0: more than 256 schemas");
    CHECK(fit(deep.data, ares_str_view(&array), NULL, &exhausted) == 0 && exhausted);
    ares_str_fini(&chain);
    ares_str_fini(&array);
    ares_str_fini(&deep);
}
