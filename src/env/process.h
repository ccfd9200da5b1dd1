/*
 * A program that answers lines with lines, for one environment or for several at once. With
 * several, each line holds an "id", and answers may come in any order; the environments may be used
 * on different threads.
 */
#ifndef ARES_ENV_PROCESS_H
#define ARES_ENV_PROCESS_H

#include "ares/core.h"

typedef struct process_options {
    const char *const *argv; /* [words] */
    int64_t words;
    int64_t seats;          /* environments per process; above 1, lines hold an id */
    double timeout_s;       /* for one answer */
    double start_timeout_s; /* for the first answer of a process */
    int64_t memory_bytes;   /* of address space */
    size_t answer_bytes;    /* a longer line is a flood */
} process_options;

typedef struct processes processes; /* of one definition */
typedef struct seat seat;           /* an environment's place in one of them */

processes *processes_new(const process_options *o);
void processes_free(processes *all); /* after its seats */
/* File descriptors of n environments, `seats` to a process. */
int64_t processes_descriptors(int64_t seats, int64_t n);
/* Finds a place; a process is started by its first question. NULL, and an error: there is none. */
seat *seat_new(processes *all);
void seat_free(seat *s);
/* the id that its lines hold; -1: none */
int64_t seat_id(const seat *s);

typedef struct reply {
    ares_view line; /* lives until the seat's next question */
    bool failed;    /* there is no line, and the process no longer runs */
    bool by_clock;
    bool replayable; /* a second run would fail alike: no clock, and nobody else's lines */
    int64_t unasked; /* lines of the process that nobody had asked for, found with this question */
    char why[500];
} reply;
/*
 * Asks one question, a line without its newline, and waits for the answer. begins: of an episode;
 * starts the process where none runs. Another question fails when the process has been started
 * again since.
 */
void seat_ask(seat *s, ares_view question, bool begins, reply *r);
/* After an answer that makes no sense: ends the process where it is this seat's alone. */
void seat_give_up(seat *s);

#endif
