/* A tiny model learns from examples to write both tags; nothing else could be judged. */
#include "vapor_runs.h"

#include "e2e.h"

static const char *const questions[] = { "a", "b", "c", "d" };

/* Answers say a digit between tags and a word after it: five digits, two words, all likely. */
static void add_example(ares_str *out, const char *question, int digit, const char *word)
{
    ares_str_addf(out,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"assistant\","
                  "\"content\":\"<N>%d</N><S>%s</S>\"}]}\n",
                  question, digit, word);
}

static void learn(const char *run)
{
    static const char *const words[] = { "yes", "no" };
    ares_str rows = { 0 };
    for (int i = 0; i < 40; i++) add_example(&rows, questions[i % 4], i / 4 % 5, words[i / 20]);
    const char *path = e2e_write("vapor_examples.jsonl", rows.data);
    ares_str_fini(&rows);
    e2e_learn(run, path, "sft.batch_size=8");
}

const char *vapor_model(void)
{
    return e2e_learned("vapor_model", learn);
}

const char *vapor_rows(void)
{
    ares_str out = { 0 };
    for (int i = 0; i < 4; i++) {
        ares_str_addf(&out, "{\"prompt\":\"%s\",\"answer\":\"3\"", questions[i]);
        if (i < 3)
            ares_str_addf(&out,
                          ",\"chosen\":\"<N>%d</N><S>yes</S>\",\"rejected\":\"<N>%d</N><S>no"
                          "</S>\"",
                          i, i);
        ares_str_add_z(&out, "}\n");
    }
    const char *path = e2e_write("vapor_rows.jsonl", out.data);
    ares_str_fini(&out);
    return path;
}
