/*
 * Adapters of ares-golden: each passes the inputs of a case to the product and compares its
 * results; an adapter computes nothing itself.
 *
 *   GOLDEN(aepo, kl_penalty) { ... golden_numbers(g, "value", value, n, golden_want(g, "value")); }
 *
 * is the adapter of every case of function `kl_penalty` in files named aepo.json. Checks that fail
 * are printed with the case's name. An adapter returns golden_unknown for a variant that the
 * product does not have yet.
 */
#ifndef ARES_GOLDEN_H
#define ARES_GOLDEN_H

#include "ares/core.h"

typedef struct golden {
    const char *file, *function,
        *name; /* base name without .json; name: the case's key, or its place in the list */
    const char *folder; /* of the file: names of other files in it are relative to this */
    const ares_json *root, *inputs, *expected;
    ares_arena *arena;              /* of the case */
    double absolute, relative;      /* equal: within absolute or relative * |expected| */
    double single, single_absolute; /* relative and absolute of f32 arithmetic */
    bool failed, unknown;
    int checks;
} golden;

typedef struct golden_adapter {
    const char *file, *function;
    void (*run)(golden *g);
    struct golden_adapter *next;
} golden_adapter;
void golden_register(golden_adapter *a);

#define GOLDEN(file_, function_)                                                                  \
    static void golden_run_##file_##_##function_(golden *g);                                      \
    __attribute__((constructor)) static void golden_add_##file_##_##function_(void)               \
    {                                                                                             \
        static golden_adapter a = { #file_, #function_, golden_run_##file_##_##function_, NULL }; \
        golden_register(&a);                                                                      \
    }                                                                                             \
    static void golden_run_##file_##_##function_(golden *g)

/* The same adapter for a function of another file. */
#define GOLDEN_ALSO(file_, function_, of_file, of_function) \
    GOLDEN(file_, function_)                                \
    {                                                       \
        golden_run_##of_file##_##of_function(g);            \
    }

/* ---------------------------------------------------------------- inputs */
/* inputs.key; an absent key is a failure and gives null, so that a misread case cannot pass */
const ares_json *golden_in(golden *g, const char *key);
const ares_json *golden_want(golden *g, const char *key); /* expected.key, likewise */
double golden_number(golden *g, const char *key);         /* of an input */
double golden_number_or(golden *g, const char *key, double absent);
ares_view golden_string(golden *g, const char *key);
const char *golden_z(golden *g, const char *key); /* the same with a NUL at its end */
/* a number; "nan", "inf", "-inf" and true and false too */
double golden_value(const ares_json *v);
/* All numbers of a list, of lists in lists row by row; *n of them. From the case's arena. */
double *golden_flat(golden *g, const ares_json *v, int64_t *n);

/* ---------------------------------------------------------------- results: true when equal */
/* the product computes this in f32, or passes it through f32 arrays */
void golden_in_single(golden *g);
/* Where null is expected, NaN is right. */
bool golden_near(golden *g, const char *what, double got, const ares_json *want);
bool golden_numbers(golden *g, const char *what, const double *got, int64_t n,
                    const ares_json *want);
bool golden_equal(golden *g, const char *what, long long got,
                  const ares_json *want); /* integers and booleans, exactly */
/* data NULL: null */
bool golden_text(golden *g, const char *what, ares_view got, const ares_json *want);
bool golden_ok(golden *g, int rc);
bool golden_fail(golden *g, const char *format, ...) ARES_PRINTF(2, 3);
void golden_unknown(golden *g);

#endif
