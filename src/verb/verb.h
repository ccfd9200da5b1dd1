/*
 * The verbs of ares-train. argv[0] is the verb's own name. Each returns ARES_OK or a failure that
 * main prints and turns into an exit code; what it makes goes to stdout.
 */
#ifndef ARES_VERB_VERB_H
#define ARES_VERB_VERB_H

#include "ares/core.h"

/* name, what it does in a line */
#define VERB_LIST(X)                                                           \
    X(train, "reinforcement learning from a configuration (the default verb)") \
    X(sft, "supervised warm start on {prompt, response} or {messages}")        \
    X(eval, "validation only")                                                 \
    X(init, "a fresh random model directory")                                  \
    X(generate, "try a model")                                                 \
    X(score, "log-prob and entropy of every token of given sequences")         \
    X(tokenize, "JSON strings, one a line -> {\"ids\":[..]}")                  \
    X(detokenize, "{\"ids\":[..]} -> {\"text\":\"..\"}")                       \
    X(render, "messages -> text, through the chat template")                   \
    X(grade, "run a verifier on {response, ground_truth, ..}")                 \
    X(compare, "runs of a study side by side: a table, and a figure of a metric")

#define VERB_DECLARE_(name, doc) int ares_verb_##name(int argc, char **argv);
VERB_LIST(VERB_DECLARE_)
#undef VERB_DECLARE_

/* ---------------- options of a verb (options.c)
 * A verb lists its options; `--name value`, `--name=value` and bare flags are read into the
 * targets.
 */
/* bool, const char *, int64_t, double */
typedef enum { VERB_FLAG, VERB_TEXT, VERB_I64, VERB_F64 } verb_option_type;
typedef struct verb_option {
    const char *name;
    verb_option_type type;
    void *into;
} verb_option;
/*
 * *helped: --help was asked for and printed. Words that are no option go to extra (NULL: they are
 * errors), NULL-terminated.
 */
int verb_read_options(const char *verb, const char *help, int argc, char **argv,
                      const verb_option *options, int n, const char **extra, bool *helped);

/*
 * Lines in, lines out, in order (lines.c). `each` appends the answer to a line of JSON to `out`,
 * without a newline; when it fails, {"error":"<message>"} stands in that place, the rest goes on,
 * and the failure that counts them comes back at the end. Lines end at \n only. input: a path, or
 * "-" for stdin.
 */
typedef int verb_line_fn(void *ctx, const ares_json *line, ares_str *out);
int verb_each_line(const char *verb, const char *input, verb_line_fn *each, void *ctx);

/* "[1,2]" of floats or ids, appended. */
void verb_write_floats(ares_str *out, const float *x, int64_t n);
void verb_write_ids(ares_str *out, const int32_t *ids, int64_t n);

#endif
