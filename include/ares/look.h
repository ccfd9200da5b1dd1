/*
 * look: a run as its directory tells it, and what is to be said of it. Read by the verbs that show
 * runs (report, runs, watch), by what a run writes at its end, and by trackers' alerts, so that all
 * of them say the same (docs/report.md). Nothing here needs the run's model, or writes into it.
 */
#ifndef ARES_LOOK_H
#define ARES_LOOK_H

#include "ares/core.h"

/* ---------------- a run directory (train/look/read.c) */

typedef enum {
    ARES_LOOK_RUNNING,  /* a living process holds the lock */
    ARES_LOOK_FINISHED, /* DONE */
    ARES_LOOK_STOPPED,  /* DONE names a control, or run.json a reason */
    ARES_LOOK_DIED      /* neither: its process is gone, and the same command goes on */
} ares_look_state;

typedef struct ares_look_series {
    ares_view name;      /* "reward/accuracy" */
    const double *value; /* [rows]; NAN where the step lacks it */
} ares_look_series;

typedef struct ares_look {
    const char *dir; /* as the caller named it */
    ares_look_state state;
    const char *stopped; /* why a run was stopped; NULL: it was not, or nobody wrote why */
    int64_t rows;        /* lines of metrics.jsonl, put together by step */
    const double *step;  /* [rows], rising; 0: before the first step */
    int64_t steps;       /* rows with step > 0 */
    int64_t last_step;   /* 0: none has ended */
    int64_t planned;     /* steps of the whole run; -1: not known */
    int64_t n_series;
    ares_look_series *series; /* [n_series], in the order in which they were first logged */
    const ares_json *config;  /* config.yaml as sections of sections; NULL: missing or unreadable */
    const ares_json *run;     /* run.json; NULL: missing (older runs) or unreadable */
    int64_t n_notes;
    const char *
        *notes; /* [n_notes] what was not read: "metrics.jsonl:812: ..., read up to there" */
} ares_look;

/*
 * Reads a run directory into the arena. Lines of metrics.jsonl about the same step are put
 * together; of a metric that stands in several, the last counts. A last line without an end is left
 * out, and a line that is no JSON ends the reading; a note says either. ends > 0: of metrics.jsonl
 * only so many bytes at its beginning and at its end, and of metrics and options those that
 * verdicts and ares-train runs ask for. ARES_EUSE: it is no run directory.
 */
int ares_look_read(ares_arena *arena, const char *dir, int64_t ends, ares_look *out);
/* The values [rows] of a metric; NULL: no step has it. */
const double *ares_look_values(const ares_look *l, const char *metric);
/* The last value of a metric; NAN: there is none. */
double ares_look_last(const ares_look *l, const char *metric);
/* "running", "finished", "stopped", "died" */
const char *ares_look_state_name(ares_look_state state);

#define ARES_LOOK_DISTINCT "report/distinct_answers_frac"

/* ---------------- before and after, question by question (train/look/read.c) */

/* Two validations of the same questions; accuracies are means over a question's samples. */
typedef struct ares_look_paired {
    int64_t n; /* questions with an accuracy in both; 0: there are no two validations */
    int64_t step[2];
    double accuracy[2];      /* mean over the questions */
    double mean, half_width; /* of the differences: mean and 1.96 s / sqrt(n), s with n - 1 */
} ares_look_paired;

/* ---------------- verdicts (train/look/judge.c) */

typedef enum {
    ARES_VERDICT_BAD,
    ARES_VERDICT_WARN,
    ARES_VERDICT_GOOD,
    ARES_VERDICT_OFF
} ares_look_level;
enum { ARES_LOOK_LEVELS = 4 };
extern const char *const ares_look_level_names[ARES_LOOK_LEVELS]; /* bad, warn, good, off */

typedef struct ares_look_verdict {
    const char *id; /* of its rule: "entropy" */
    ares_look_level level;
    const char *title, *why; /* "Entropy holds"; "0.133 → 0.105 nats a token (−21 %)" */
    const char *metric;      /* whose curve shows it; "": none */
    const char *rule;        /* "warns below half or above twice the start, bad below a tenth" */
} ares_look_verdict;

typedef struct ares_look_verdicts {
    ares_look_level level; /* of the headline */
    const char *headline;  /* a sentence: what was learnt */
    int n;
    ares_look_verdict
        *each; /* [n] bad, warn, good, off; in the order of the rules within a level */
    int count[ARES_LOOK_LEVELS];
} ares_look_verdicts;

/*
 * Applies the rules of docs/report.md#verdicts. "At first" and "at the end" are means over the
 * first and the last quarter of the steps that have the value, 1 to 20 of them, step 0 left out.
 * A rule whose metric is missing says nothing, or that it is not judged.
 */
void ares_look_judge(ares_arena *arena, const ares_look *l, const ares_look_paired *p,
                     ares_look_verdicts *out);

/* ---------------- the report (train/look/page.c) */

typedef struct ares_report_options {
    const char *out;  /* NULL: report.html in the first run's directory */
    double budget_mb; /* of the file, 10^6 bytes each; 0: 20 */
    /* Of a run that is about to end: its state, whatever its directory says; NULL: what it says */
    const ares_look_state *state;
    const char *stopped;
    /* Of the first run, bad ones first; NULL: not wanted. lines: gets a line per verdict; told: is
     * called with each, whose texts live until it returns, also where the page cannot be written */
    ares_str *lines;
    void (*told)(void *ctx, const ares_look_verdict *v);
    void *ctx;
    int *bad; /* how many of them are bad; NULL: not wanted */
} ares_report_options;
/*
 * Reads runs [n] and writes them as one HTML file that needs no other: verdicts, curves, answers
 * token by token, validation before and after, times, options (docs/report.md). Written to a
 * temporary name, then renamed. path gets its name; path NULL: no page, the lines alone.
 */
int ares_report_write(const char *const *dirs, int n, const ares_report_options *o, ares_str *path);
/* The verdicts of runs [n] as JSON, a line each: {"run":.., "headline":.., "verdicts":[..]}. */
int ares_report_json(const char *const *dirs, int n, ares_str *out);
#endif
