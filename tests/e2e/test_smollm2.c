/*
 * The real model gives the numbers that transformers gives (tests/golden/smollm2.json, made by
 * scripts/golden/smollm2.py).
 */
#include "e2e.h"

#include <math.h>
#include <stdio.h>

enum { GREEDY = 24 };

/* The largest distance of a list of numbers from another of the same length. */
static double distance(const ares_json *have, const ares_json *want)
{
    double most = 0;
    if (!CHECK(have && want) || !CHECK_EQ(have->count, want->count)) return INFINITY;
    for (int64_t i = 0; i < have->count; i++)
        most = fmax(most, fabs(have->items[i].number - want->items[i].number));
    return most;
}

/* The lines with which a verb answers {"input_ids":..} of each case, and then one more line. */
static const ares_json **ask(ares_arena *arena, const ares_json *cases, const char *line,
                             const char *words)
{
    ares_str input = { 0 }, out = { 0 };
    const ares_json **answers =
        ares_arena_alloc(arena, (size_t)(cases->count + 1) * sizeof *answers);
    for (int64_t i = 0; i < cases->count; i++) {
        ares_str_add_z(&input, "{\"input_ids\":");
        ares_json_write(&input, ares_json_get(&cases->items[i], "input_ids"));
        ares_str_add_z(&input, "}\n");
    }
    ares_str_add_z(&input, line);
    e2e_write("input.jsonl", input.data);
    CHECK_EQ(e2e_program(&out, "%s --input '%s'", words, test_file("input.jsonl")), 0);
    const char *at = ares_arena_copy(arena, out.data, out.len), *end = at + out.len;
    for (int64_t i = 0; i <= cases->count && answers; i++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!CHECK(line_end != NULL) ||
            !CHECK_OK(ares_json_parse(arena, (ares_view){ at, (size_t)(line_end - at) }, "answer",
                                      &answers[i])))
            answers = NULL;
        else at = line_end + 1;
    }
    ares_str_fini(&input);
    ares_str_fini(&out);
    return answers;
}

/*
 * The tolerance is three times the float32 rounding of transformers itself, measured on one prompt;
 * the lead of the greedy tokens is far larger.
 */
TEST_SLOW(smollm2_scores_and_continues_as_transformers_does_and_names_the_capital_of_france)
{
    const char *model = test_smollm2();
    if (!model) return;
    ares_arena arena = { 0 };
    ares_str text = { 0 };
    char words[600];
    const ares_json *golden;
    REQUIRE_OK(ares_file_read(test_source("tests/golden/smollm2.json"), &text));
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&text), "smollm2.json", &golden));
    const ares_json *cases = ares_json_get(golden, "cases");
    double log_prob_dev = 0, entropy_dev = 0;
    for (int64_t i = 0; i < cases->count; i++) {
        const ares_json *d = ares_json_get(&cases->items[i], "f32_dev_log_probs"),
                        *e = ares_json_get(&cases->items[i], "f32_dev_entropies");
        if (d) log_prob_dev = fmax(log_prob_dev, d->number);
        if (e) entropy_dev = fmax(entropy_dev, e->number);
    }
    REQUIRE(log_prob_dev > 0 && entropy_dev > 0);
    snprintf(words, sizeof words, "score --model '%s'", model);
    const ares_json **scores = ask(&arena, cases, "{\"text\":\"Paris\"}\n", words);
    snprintf(words, sizeof words,
             "generate --model '%s' --temperature 0 --max-new-tokens %d --ignore-eos", model,
             GREEDY);
    const ares_json **answers =
        ask(&arena, cases, "{\"prompt\":\"What is the capital of France?\"}\n", words);
    for (int64_t i = 0; i < cases->count && scores && answers; i++) {
        const ares_json *c = &cases->items[i];
        double log_probs =
            distance(ares_json_get(scores[i], "log_probs"), ares_json_get(c, "log_probs"));
        double entropies =
            distance(ares_json_get(scores[i], "entropies"), ares_json_get(c, "entropies"));
        CHECK_MSG(log_probs <= 3 * log_prob_dev, "case %lld: log-probs differ by %g", (long long)i,
                  log_probs);
        CHECK_MSG(entropies <= 3 * entropy_dev, "case %lld: entropies differ by %g", (long long)i,
                  entropies);
        CHECK_NEAR(distance(ares_json_get(answers[i], "output_ids"), ares_json_get(c, "greedy")), 0,
                   0);
    }
    if (answers) {
        const ares_json *said = ares_json_get(answers[cases->count], "text");
        if (CHECK(said != NULL))
            CHECK_CONTAINS(ares_arena_copy(&arena, said->text.data, said->text.len), "Paris");
    }
    ares_str_fini(&text);
    ares_arena_fini(&arena);
}
