/*
 * Private to cli. In order: the commands, their command lines, the loop over lines of JSON, the
 * rollouts of a run, figures, the metrics of runs.
 */
#ifndef ARES_CLI_CLI_H
#define ARES_CLI_CLI_H

#include "ares/core.h"
#include "ares/model.h"
#include "ares/text.h"

/*
 * The verbs of ares-train. argv[0] is the verb's own name. Each returns ARES_OK or a failure that
 * main prints and turns into an exit code; what it makes goes to stdout.
 */

/* name, whether it can run on several ranks (--ranks), what it does in a line */
#define CLI_LIST(X)                                                                      \
    X(train, true, "reinforcement learning from a configuration (the default verb)")     \
    X(sft, true, "supervised warm start on {prompt, response} or {messages}")            \
    X(eval, true, "validation only")                                                     \
    X(plan, false, "bytes of a run by owner, and what fits, before anything loads")      \
    X(init, false, "a fresh random model directory")                                     \
    X(generate, false, "try a model")                                                    \
    X(score, false, "log-prob and entropy of every token of given sequences")            \
    X(tokenize, false, "JSON strings, one per line -> {\"ids\":[..]}")                   \
    X(detokenize, false, "{\"ids\":[..]} -> {\"text\":\"..\"}")                          \
    X(render, false, "messages -> text, through the chat template")                      \
    X(grade, false, "run a verifier on {response, ground_truth, ..}")                    \
    X(merge, false, "a model with an adapter added to its weights")                      \
    X(export, false, "a model as one GGUF file, for llama.cpp")                          \
    X(export_tokens, false, "logged tokens of a run as prime-rl writes them")            \
    X(serve, false, "the model behind HTTP, for OpenAI's clients")                       \
    X(play, false, "act in an environment by hand, and read what a model reads")         \
    X(verify, true, "a step of a run, made again and compared to the last bit")          \
    X(show, false, "an episode or answer of a run, as the model read and wrote it")      \
    X(report, false, "runs as one HTML page: verdicts, curves, answers by token")        \
    X(sweep, false, "a run for every value of some options, and their figure")           \
    X(compare, false, "runs of a study side by side: a table, and a figure of a metric") \
    X(runs, false, "the runs below a folder: state, steps, scores, verdicts")            \
    X(watch, false, "curves of a run in the terminal, as it goes")                       \
    X(doctor, false, "what this machine has, what a run would use, and what is missing") \
    X(completion, false, "a script that completes commands in bash, zsh or fish")

#define CLI_DECLARE_(name, on_ranks, doc) int ares_cli_##name(int argc, char **argv);
CLI_LIST(CLI_DECLARE_)
#undef CLI_DECLARE_
/* The words that users write for them, in that order: - where a name in C has _. (cli.c) */
const char *const *cli_verbs(int *n);

/* ---------------- command lines (cli.c)
 * A verb describes its command line in one table, which the parser and --help both read. An option
 * is `--name value` or `--name=value`; a flag stands alone.
 */
typedef enum {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char * */
    CLI_OPTIONAL, /* const char *: "" where no value follows */
    CLI_I64,      /* int64_t */
    CLI_F64,      /* double */
    CLI_EACH,     /* cli_list: may stand several times */
    CLI_PASSED    /* shown by --help only: the verb reads it among its further words */
} cli_option_type;

/* The values of an option that may stand several times. */
enum { CLI_MAX_EACH = 64 };
typedef struct cli_list {
    const char *values[CLI_MAX_EACH];
    int n;
} cli_list;

typedef struct cli_option {
    const char *name; /* "--top-p" */
    cli_option_type type;
    void *into;        /* the default before reading; a verb fills it before it reads */
    const char *value; /* what --help calls the value: "FILE"; NULL: a flag */
    const char *doc;
    const char *const *choices; /* CLI_TEXT: the values allowed, then NULL; NULL: any */
    const char *const *offered; /* [n_offered] values that a shell's completion offers besides */
    int n_offered;
    int64_t least, most; /* CLI_I64: the range, ends included; both 0: any number */
    bool required;       /* CLI_TEXT */
    bool once;           /* CLI_TEXT, NULL by default: a second one is an error */
} cli_option;

/* An option of a table: type, variable, name, its value's name, doc, then .field = further ones. */
#define CLI_OPTION(kind, variable, option, shown, ...) \
    { .type = CLI_##kind, .into = &(variable), .name = option, .value = shown, .doc = __VA_ARGS__ }

typedef enum {
    CLI_NO_WORDS,  /* a word that is no option is an error */
    CLI_WORDS,     /* words that do not begin with "--" are the verb's */
    CLI_OVERRIDES, /* all further words are the configuration's */
} cli_words;

typedef struct cli_command {
    const char *name;
    const char *usage;   /* what follows "ares-train <name> "; several forms: a line each */
    const char *about;   /* what it reads and writes */
    const char *more;    /* a section of --help after the options; NULL: none */
    const char *example; /* commands, a line each */
    const cli_option *options;
    int n_options;
    cli_words words;
    const char *const *choices; /* CLI_WORDS: what the first word may be, then NULL; NULL: files */
} cli_command;

/*
 * Reads the options of argv into their variables. The words left over stay in argv from argv[1] on,
 * in order, and *argc counts them. *helped: --help was asked for and printed.
 */
int cli_read(const cli_command *command, int *argc, char **argv, bool *helped);
/*
 * Calls `see` with the table of every verb, in the order of CLI_LIST, through the verbs themselves:
 * each stops, as after --help, where it would have read its command line.
 */
typedef void cli_see(void *ctx, const cli_command *command);
int cli_each_command(cli_see *see, void *ctx);
/* Takes this one option out of argv, wherever it stands; other words stay as they are. */
int cli_take(const char *verb, const cli_option *option, int *argc, char **argv);
/* Fails where the word is no option but resembles the name of one. */
int cli_check_typo(const cli_command *command, const char *word);
/* Appends a text that a model or a program wrote: control characters are shown, not sent to the
 * terminal; lines and tabs stay. */
void cli_add_safe(ares_str *out, ares_view text);
/* The same with a blank in place of each line break and tab. */
void cli_add_line(ares_str *out, ares_view text);
/* Writes the text to stdout and flushes it. */
int cli_print(const char *verb, const ares_str *text);

/* Options that several commands have. */
#define CLI_RANKS(variable)                                                                 \
    CLI_OPTION(I64, variable, "--ranks", "N", "start N processes under mpirun", .least = 1, \
               .most = 4096)
#define CLI_RESTARTS(variable)                                                             \
    CLI_OPTION(I64, variable, "--restarts", "K",                                           \
               "start a run that has failed again, at most K times, where it has saved a " \
               "checkpoint since its last start (docs/ranks.md)",                          \
               .least = 0, .most = 1000)
#define CLI_INPUT(variable)                       \
    CLI_OPTION(TEXT, variable, "--input", "FILE", \
               "JSON lines, also packed ones, or Parquet; - (the default) is stdin")
#define CLI_DTYPE(variable)                                                               \
    CLI_OPTION(TEXT, variable, "--dtype", "fp32|bf16", "in which the weights are stored", \
               .choices = cli_dtypes)
/* Of a command that computes; cli_types_of reads them. types: a cli_types */
#define CLI_TYPES(types)                                                                       \
    CLI_OPTION(TEXT, (types).arithmetic, "--arithmetic", "fp32|bf16",                          \
               "in which products are computed, as worker.actor.arithmetic; bf16 also halves " \
               "weights and KV cache",                                                         \
               .choices = cli_dtypes),                                                         \
        CLI_OPTION(TEXT, (types).dtype, "--dtype", "fp32|bf16",                                \
                   "in which the weights are stored; without it as --arithmetic says, and "    \
                   "bf16 on a card",                                                           \
                   .choices = cli_dtypes)
typedef struct cli_types {
    const char *arithmetic, *dtype; /* NULL: not given */
} cli_types;
/* Storage and arithmetic of a model on the device; refuses what excludes each other by name. */
int cli_types_of(const char *verb, const cli_types *t, const char *device, ares_model_options *out);
#define CLI_SPECULATION(variable)                                                                \
    CLI_OPTION(TEXT, variable, "--speculation", "none|auto",                                     \
               "auto: on the CPU, where it pays, several tokens of an answer are computed at "   \
               "once, guessed from the prompt and from the other answers to it; changes speed, " \
               "no result",                                                                      \
               .choices = cli_speculations)
extern const char *const cli_dtypes[];       /* fp32, bf16, NULL */
extern const char *const cli_speculations[]; /* none, auto, NULL */
extern const char *const cli_devices[2];     /* cpu, cuda: what completion offers */

/* ---------------- --restarts (train.c)
 * The file that names the last checkpoint of the run that a verb of CLI_LIST with ranks would make
 * of these words (argv[0] is the verb). Words that make none, such as eval's, are refused.
 */
int cli_latest_checkpoint(const char *verb, int argc, char *const *argv, ares_str *path);

/* ---------------- lines of JSON (cli.c)
 * Lines in, lines out, in order. `each` appends the answer to a line of JSON to `out`, without a
 * newline; when it fails, {"error":"<message>"} stands in that place, the rest goes on, and the
 * failure that counts them comes back at the end. Lines end at \n only. input: a path, or "-" for
 * stdin.
 */
typedef int cli_line_fn(void *ctx, const ares_json *line, ares_str *out);
int cli_each_line(const char *verb, const char *input, cli_line_fn *each, void *ctx);
/* Returns the failure that counts the bad lines; first: number of the first one. */
int cli_bad_lines(const char *verb, const char *input, int64_t bad, int64_t lines, int64_t first);

/* Reads the list `key` of a line into out; anything but token ids fails, with its place. */
int cli_read_ids(const char *verb, const ares_json *line, const char *key, ares_ids *out);

/* The text of a member; NULL: there is none, or it is no string. */
const char *cli_text_of(const ares_json *o, const char *key);

/* Append {"error":"..."}, [0.5,1], [1,2], [begin,end]. */
void cli_write_error(ares_str *out, const char *message);
void cli_write_floats(ares_str *out, const float *x, int64_t n);
void cli_write_ids(ares_str *out, const int32_t *ids, int64_t n);

/* ---------------- rollouts of a run: the answers and episodes of a step (show.c) */

/* An answer or an episode: rows of the file, which the reader has checked. */
typedef struct rollouts_episode {
    int64_t n;
    const ares_json **rows; /* [n] in the order of their turns, none twice */
    int64_t copies;         /* rows of the file that say the same as another (batch_adjust_mode) */
    bool played;            /* false: a plain answer */
    int64_t n_turns;
    int64_t n_answered;     /* n_turns, or one less: the last one did not fit in the context */
    const ares_json *turns; /* [n_turns] */
    ares_view failure;      /* why a user's program failed it; empty: none did */
} rollouts_episode;

typedef struct rollouts_step {
    int64_t step, n;
    rollouts_episode *episodes; /* [n] by prompt drawn, then by sample */
    bool half_written;          /* the last line has no end, and was left out */
    const char *path;
} rollouts_step;

/*
 * The steps that rollouts/ or validation/ of a run directory has files of, ascending, in the arena;
 * ARES_EUSE where there is none.
 */
int rollouts_steps(ares_arena *arena, const char *verb, const char *dir, const char *folder,
                   int64_t **out, int64_t *n);
/*
 * Reads rollouts/step_<step>.jsonl of a run directory into the arena, or that file of validation/.
 * step -1: the last one there is. verb: for messages. ARES_EUSE: there is no such run or step, and
 * which there are.
 */
int rollouts_read(ares_arena *arena, const char *verb, const char *dir, bool validation,
                  int64_t step, rollouts_step *out);

/* ---------------- figures
 * Curves with bands as a picture (figure.c): an SVG of text and shapes without style sheets or
 * scripts, so that a browser, a README and a printer show it alike.
 */

typedef struct figure_curve {
    const char *name; /* in the legend */
    int64_t n;
    const double *x, *mid, *low, *high; /* [n]; x rises; low and high bound the band */
    const char *colour, *dash;          /* NULL: by the curve's place */
    bool thin;                          /* a run alone, outside the legend */
    bool dots, bars;                    /* a dot at each point; its band as a bar */
    int64_t n_crosses;
    const double *cross_x, *cross_y; /* [n_crosses] */
} figure_curve;
typedef struct figure {
    const char *title, *subtitle;  /* what is shown; how it was made */
    const char *x_label, *y_label; /* with units; y_label NULL: none */
    const figure_curve *curves;
    int n_curves;
    const char *const *x_names; /* [n_x_names] words at x = 0, 1, ..; NULL: numbers */
    int n_x_names;
    bool own_legend; /* of a panel: its curves are not those of the page's legend */
} figure;

/*
 * Appends the picture. Curves differ in colour (the eight of Okabe and Ito, which colour-blind
 * readers tell apart) and in dash.
 */
void figure_write_svg(const figure *f, ares_str *out);
/*
 * A colour for value i of n that have an order: from violet over green to ochre, none too light for
 * white paper. text has room for "#rrggbb".
 */
void figure_ordered_colour(int i, int n, char text[static 8]);

/*
 * The figure of a sweep (figure.c): what sweep.json names, as curves per value. Named after Figure
 * 3 of the intervention study whose sweeps it shows first (docs/sweeps.md#the-figure).
 */

typedef struct figure3_options {
    const char *dir;    /* that of sweep.json */
    const char *svg;    /* NULL: figure3.svg there */
    const char *title;  /* NULL: the sweep's name */
    const char *metric; /* the one that is shown; NULL: success and what explains it */
    int64_t smooth;     /* steps that a point of a training metric is the mean of */
} figure3_options;

/* Whether a run of the sweep has metrics; true as well where figure3_draw would say a fault. */
bool figure3_has_metrics(const char *dir);
/* Prints a table of best and last success, and writes the figure. */
int figure3_draw(const figure3_options *o);

/* ---------------- metrics of run directories by step, and how a run ended (compare.c) */

typedef struct runs_run {
    int64_t n;
    const ares_json **rows; /* [n] the lines of metrics.jsonl */
    int64_t last_step;
    bool done;
    const char *stopped; /* why a control ended it; NULL: none did */
    const char *dir;
} runs_run;
/* The values of a metric, by rising steps. */
typedef struct runs_series {
    int64_t n;
    double *step, *value; /* [n] */
} runs_series;

/* Reads a run directory into the arena. verb: for messages. */
int runs_read(ares_arena *arena, const char *verb, const char *dir, runs_run *out);
/* Reads a metric by step. Where several rows of one step have it, the last of them counts. */
runs_series runs_series_of(ares_arena *arena, const runs_run *r, const char *metric);
/* Fails: no run has the metric; the message suggests a similar name that runs [n] have logged. */
int runs_unknown_metric(ares_arena *arena, const char *metric, const runs_run *const *runs, int n);
/* Replaces each value by the mean of the last `window` values up to it. */
void runs_smooth(runs_series *p, int64_t window);
/* The unit of a metric, found by a part of its name; NULL: it has none, or none is known. */
const char *runs_unit_of(const char *metric);
#endif
