/*
 * The verbs of ares-train. argv[0] is the verb's own name. Each returns ARES_OK or a failure that main prints and turns
 * into an exit code; what it makes goes to stdout.
 */
#ifndef VERB_VERB_H
#define VERB_VERB_H

#include "ares/core.h"

int ares_verb_tokenize(int argc, char **argv);   /* JSON strings, one a line -> {"ids":[..]} */
int ares_verb_detokenize(int argc, char **argv); /* {"ids":[..], "skip_special_tokens":bool} -> {"text":".."} */
int ares_verb_render(int argc, char **argv);     /* {"messages":[..], ..} or {"content":".."} -> {"text":".."} */

/*
 * Lines in, lines out, in order (lines.c). `each` appends the answer to a line of JSON to `out`, without a newline; when
 * it fails, {"error":"<message>"} stands in that place, the rest goes on, and the failure that counts them comes back at
 * the end. Lines end at \n only. input: a path, or "-" for stdin.
 */
typedef int verb_line_fn(void *ctx, const ares_json *line, ares_str *out);
int verb_each_line(const char *verb, const char *input, verb_line_fn *each, void *ctx);

#endif
