/*
 * core: what the C library lacks. Errors, logs, strings, arenas, maps, JSON, keyed randomness, the
 * one thread pool, metrics, schedules. Nothing here is about learning.
 */
#ifndef ARES_CORE_H
#define ARES_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ARES_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define ARES_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define ARES_MIN(a, b) ((a) < (b) ? (a) : (b))
#define ARES_MAX(a, b) ((a) > (b) ? (a) : (b))
/* -1, 0 or 1, as qsort wants it: a before b; ARES_CMP(b, a) for descending order */
#define ARES_CMP(a, b) (((a) > (b)) - ((a) < (b)))

/* How a number of a tensor is stored, in files and in devices' memory. */
typedef enum { ARES_F32, ARES_BF16, ARES_F16 } ares_dtype;
static inline size_t ares_dtype_bytes(ares_dtype t)
{
    return t == ARES_F32 ? 4 : 2;
}

/* ---------------- errors (log.c)
 * A function that can fail returns ARES_OK or one of these codes. The message is written once,
 * where the cause is known, into a buffer of the calling thread; callers return the code with
 * ARES_TRY, or put a place before the message with ares_fail_in.
 */
enum {
    ARES_OK = 0,
    ARES_EUSE = -1,         /* wrong command line                                         exit 2 */
    ARES_ECONFIG = -2,      /* wrong configuration                                        exit 2 */
    ARES_EIO = -3,          /* the system refused a file, pipe or socket                  exit 1 */
    ARES_EFORMAT = -4,      /* a file or row from outside is malformed                    exit 1 */
    ARES_EUNSUPPORTED = -5, /* understood, but not offered                                exit 1 */
    ARES_ELIMIT = -6,       /* memory, cache, length or work budget too small             exit 1 */
    ARES_EDEVICE = -7,      /* no such device, or it failed                               exit 1 */
    ARES_ENUMERIC = -8,     /* NaN or infinity where none may be                          exit 3 */
    ARES_ECHILD = -9,       /* a user's process failed                                    exit 1 */
    ARES_EDIST = -10,       /* another rank, or MPI, failed                               exit 1 */
    ARES_ESTATE = -11,      /* the run directory or a stage is not in the state needed    exit 1 */
    ARES_EINTERRUPTED = -12 /* SIGINT or SIGTERM; everything is saved         exit 130 or 143 */
};

/* replaces the message; returns code */
int ares_fail(int code, const char *format, ...) ARES_PRINTF(2, 3);
/* puts "<place>: " before the message; returns code */
int ares_fail_in(int code, const char *format, ...) ARES_PRINTF(2, 3);
/* the message of this thread, "" when there is none; valid until the thread's next ares_fail */
const char *ares_error_message(void);
void ares_error_clear(void);
int ares_error_exit_code(int code);
void ares_abort(const char *file, int line, const char *what) __attribute__((noreturn));

#define ARES_TRY(expr)                            \
    do {                                          \
        int ares_rc_ = (expr);                    \
        if (ares_rc_ != ARES_OK) return ares_rc_; \
    } while (0)

/* For mistakes of this program, never of its user: aborts with file and line, in every build. */
#define ARES_ASSERT(cond)                                   \
    do {                                                    \
        if (!(cond)) ares_abort(__FILE__, __LINE__, #cond); \
    } while (0)

/*
 * Host memory. Out of memory aborts, with a message that names the rank, the bytes and what to do.
 * ares_calloc zeroes. Release with ares_free.
 */
void *ares_malloc(size_t bytes);
void *ares_calloc(size_t count, size_t size);
void *ares_realloc(void *p, size_t bytes);
void ares_free(void *p);
char *ares_strdup(const char *s);
/*
 * Page-aligned zeroed memory straight from the system, for arenas that live as long as the run
 * (page faults are expensive: reuse the memory).
 */
void *ares_pages_new(size_t bytes);
void *ares_pages_try(size_t bytes); /* NULL when out of memory */
void ares_pages_free(void *p, size_t bytes);

/* ---------------- log (log.c): to stderr, one line per message */
typedef enum { ARES_LOG_DEBUG, ARES_LOG_INFO, ARES_LOG_WARN, ARES_LOG_ERROR } ares_log_level;
/* ranks other than 0 print only warnings and errors, with their rank */
void ares_log_set(ares_log_level least, int rank);
void ares_log(ares_log_level level, const char *format, ...) ARES_PRINTF(2, 3);
#define ares_info(...) ares_log(ARES_LOG_INFO, __VA_ARGS__)
#define ares_warn(...) ares_log(ARES_LOG_WARN, __VA_ARGS__)

/* ------------------------------------------------------------------ strings (str.c)
 * Bytes with a length: they may hold NUL, and data[len] of an ares_str with memory is always NUL. A
 * view borrows its bytes.
 */
typedef struct ares_view {
    const char *data;
    size_t len;
} ares_view;
typedef struct ares_str {
    char *data;
    size_t len, cap;
} ares_str; /* {0} is an empty string */

#define ARES_VIEW(literal) ((ares_view){ (literal), sizeof(literal) - 1 })
/*
 * FNV-1a, 64 bits, for hashes that are kept in files. h is ARES_FNV1A, or the hash of the bytes
 * before these.
 */
#define ARES_FNV1A 14695981039346656037u
uint64_t ares_fnv1a(uint64_t h, const void *data, size_t len);
/* SHA-256 (FIPS 180-4) of the bytes given to _add, in pieces of any size. */
typedef struct ares_sha256 {
    uint32_t h[8];
    unsigned char block[64];
    uint64_t len;
} ares_sha256;
void ares_sha256_init(ares_sha256 *s);
void ares_sha256_add(ares_sha256 *s, const void *data, size_t len);
void ares_sha256_end(ares_sha256 *s, unsigned char out[32]);
ares_view ares_view_of(const char *s); /* NULL gives an empty view */
ares_view ares_str_view(const ares_str *s);
bool ares_view_eq(ares_view a, ares_view b);
bool ares_view_is(ares_view a, const char *s);
bool ares_view_starts(ares_view a, ares_view prefix);
/* ASCII alone, whatever the locale says */
static inline bool ares_is_digit(char c)
{
    return c >= '0' && c <= '9';
}
/* whether a name ends in `end` and has something before it */
static inline bool ares_ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}
/* what follows the last c; the whole text where there is none */
static inline const char *ares_after_last(const char *text, char c)
{
    const char *last = strrchr(text, c);
    return last ? last + 1 : text;
}
/*
 * One step through UTF-8, strict: no overlong forms, no surrogates, nothing beyond U+10FFFF.
 * Returns the length, 1 to 4, of the character at p (p < end); *c is the character. Or minus the
 * length of the broken piece there, which a reader replaces by one U+FFFD: the longest start of a
 * valid character, as in the Unicode standard (section 3.9) and in Python; *c is the piece's first
 * byte.
 */
static inline int ares_utf8_next(const char *p, const char *end, uint32_t *c)
{
    const unsigned char *s = (const unsigned char *)p;
    unsigned char lead = s[0], low = 0x80, high = 0xBF;
    *c = lead;
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return -1;
    int len = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF4) high = 0x8F;
    uint32_t code = lead & (0xFFu >> (len + 1));
    for (int i = 1; i < len; i++, low = 0x80, high = 0xBF) {
        if (p + i == end || s[i] < low || s[i] > high) return -i;
        code = code << 6 | (s[i] & 0x3Fu);
    }
    *c = code;
    return len;
}
bool ares_view_is_utf8(ares_view a);
int64_t ares_view_find(ares_view a, ares_view needle, size_t from); /* -1 when absent */
ares_view ares_view_trim(ares_view a);                              /* ASCII white space */
void ares_str_fini(ares_str *s);
void ares_str_clear(ares_str *s); /* keeps the memory */
void ares_str_reserve(ares_str *s, size_t cap);
void ares_str_add(ares_str *s, const char *data, size_t len);
void ares_str_add_view(ares_str *s, ares_view v);
void ares_str_add_z(ares_str *s, const char *z);
void ares_str_add_char(ares_str *s, char c);
void ares_str_addf(ares_str *s, const char *format, ...) ARES_PRINTF(2, 3);
/* gives the bytes to the caller (release with ares_free) and leaves s empty */
char *ares_str_take(ares_str *s);
/*
 * The shortest decimal text that reads back as the same number, in the form of Python's repr: 0.1,
 * 1.0, 1e-06, 1e+16, nan, inf, -inf. For JSON, which lacks the last three, see
 * ares_json_write_double.
 */
void ares_str_add_double(ares_str *s, double x);
void ares_str_add_float(ares_str *s, float x);
/*
 * Strict decimal numbers, independent of the locale. The whole text must be a number: false for
 * white space around it, hexadecimal, nan, inf, and values out of range.
 */
bool ares_parse_double(ares_view text, double *out);
bool ares_parse_i64(ares_view text, int64_t *out);
/* Reads a whole file; a pipe, device or folder in its place is an error. */
int ares_file_read(const char *path, ares_str *out);
/*
 * What follows ": " in the first line that begins so (of /proc/cpuinfo ..), trimmed, replaces out;
 * false: there is no such line or file.
 */
bool ares_file_line(const char *path, const char *begins, ares_str *out);
int ares_file_write(const char *path, const void *data, size_t len); /* not atomic */
/* writes a temporary file, fsyncs it, renames it, fsyncs the folder */
int ares_file_write_atomic(const char *path, const void *data, size_t len);
bool ares_file_exists(const char *path);
bool ares_dir_exists(const char *path);
int ares_dir_make(const char *path); /* with parents */
/* the same, and synced, so that it survives a power cut */
int ares_dir_make_durable(const char *path);
/* fsyncs the folder that holds path, so that the name is on the disk */
int ares_path_sync(const char *path);
int ares_dir_remove(const char *path); /* with contents; fine when absent */
/* "a/b" from "a" and "b", or b alone when it is absolute. Replaces out; returns out->data. */
const char *ares_path_join(ares_str *out, const char *a, const char *b);
/*
 * A file that comes with the program: what the environment variable says (NULL: none does), else
 * the file of that name where `cmake --install` puts it (../lib/ares-train or ../share/ares-train),
 * else beside the program.
 */
void ares_path_of_program(const char *variable, const char *name, char *path, size_t size);

/* ---------------- arena (memory.c): bump allocation, freed as a whole */
typedef struct ares_arena {
    struct ares_arena_chunk *head, *spare;
    size_t used, chunk_bytes;
} ares_arena;                                        /* {0} is ready for use */
void *ares_arena_alloc(ares_arena *a, size_t bytes); /* 16-byte aligned, not zeroed */
void *ares_arena_calloc(ares_arena *a, size_t count, size_t size);
char *ares_arena_copy(ares_arena *a, const char *data, size_t len); /* adds a NUL */
char *ares_arena_printf(ares_arena *a, const char *format, ...) ARES_PRINTF(2, 3);
/* ends the life of everything in it, keeps the memory */
void ares_arena_reset(ares_arena *a);
void ares_arena_fini(ares_arena *a);

/* ---------------- map (map.c): bytes -> int64; copies keys, keeps the order of insertion */
typedef struct ares_map ares_map;
ares_map *ares_map_new(void);
void ares_map_free(ares_map *m);
void ares_map_put(ares_map *m, ares_view key, int64_t value);        /* replaces */
bool ares_map_get(const ares_map *m, ares_view key, int64_t *value); /* value may be NULL */
int64_t ares_map_count(const ares_map *m);
ares_view ares_map_key(const ares_map *m, int64_t index); /* index-th inserted */
int64_t ares_map_value(const ares_map *m, int64_t index);

/* ---------------- JSON (json.c)
 * A strict RFC 8259 reader: strings may hold NUL, 1 and 1.0 differ, integers beyond 2^53 keep their
 * text, of duplicate keys the last value counts, objects keep their order, nesting ends at 512
 * levels. Lone surrogates become U+FFFD. Invalid UTF-8 in strings is an error. A document lives in
 * an arena; everything in it is const.
 *
 * Which reader reads which file: cJSON reads files whose every number and word this repository
 * chose: a checkpoint's state.json, and at build time src/reward/ifeval/tables.json. This
 * reader reads everything else: what comes from outside (data rows, tokenizer.json, a model's
 * config.json, headers of safetensors, lines of a user's process), and what this program writes
 * with texts of the user's or with numbers that must come back bit for bit (metrics.jsonl,
 * controls.json, source.json). YAML of the configuration is read by libyaml.
 */
typedef enum {
    ARES_JSON_NULL,
    ARES_JSON_BOOL,
    ARES_JSON_INT,
    ARES_JSON_FLOAT,
    ARES_JSON_STRING,
    ARES_JSON_ARRAY,
    ARES_JSON_OBJECT
} ares_json_type;
typedef struct ares_json ares_json;
typedef struct ares_json_member {
    ares_view key;
    const ares_json *value;
} ares_json_member;
struct ares_json {
    ares_json_type type;
    bool boolean;
    /* INT beyond 64 bits: integer is clamped; number and text hold the value */
    bool big;
    int64_t integer;                 /* INT; for FLOAT the truncated value where it fits */
    double number;                   /* INT and FLOAT */
    ares_view text;                  /* STRING: the bytes, then a NUL; INT and FLOAT: as written */
    int64_t count;                   /* ARRAY and OBJECT */
    const ares_json *items;          /* ARRAY [count] */
    const ares_json_member *members; /* OBJECT [count] */
};
/* a failure begins with "<name>:<line>:<column>: " */
int ares_json_parse(ares_arena *arena, ares_view text, const char *name, const ares_json **out);
/* the same for line number `line` of a file of such lines */
int ares_json_parse_line(ares_arena *arena, ares_view text, const char *name, int64_t line,
                         const ares_json **out);
/* NULL when the key is absent, or `object` is NULL or no object */
const ares_json *ares_json_get(const ares_json *object, const char *key);
const ares_json *ares_json_find(const ares_json *object, ares_view key);
/*
 * Typed lookups with a default for an absent key or null. A wrong type is a failure that names the
 * key. 2.0 counts as an integer.
 */
int ares_json_get_i64(const ares_json *o, const char *key, int64_t absent, int64_t *out);
int ares_json_get_double(const ares_json *o, const char *key, double absent, double *out);
int ares_json_get_bool(const ares_json *o, const char *key, bool absent, bool *out);
int ares_json_get_string(const ares_json *o, const char *key, const char *absent, ares_view *out);
/*
 * The writer: compact text ("," and ":") that grows in an ares_str. A comma is put before a key or
 * a value wherever a value precedes it, so callers never write one:
 *
 *     ares_json_begin(&line, '{');
 *     ares_json_write_i64(ares_json_key(&line, "step"), step);
 *     ares_json_begin(ares_json_key(&line, "ids"), '[');
 *     for (int i = 0; i < n; i++) ares_json_write_i64(&line, ids[i]);
 *     ares_json_end(&line, ']');
 *     ares_json_end(&line, '}');
 *
 * Strings escape only what JSON needs; non-ASCII stays UTF-8, invalid UTF-8 becomes U+FFFD. Numbers
 * that are not finite become null. A big integer is written digit by digit as it was read.
 */
void ares_json_begin(ares_str *out, char bracket);       /* '{' or '[' */
void ares_json_end(ares_str *out, char bracket);         /* '}' or ']' */
ares_str *ares_json_key(ares_str *out, const char *key); /* returns out, for the value's call */
ares_str *ares_json_key_view(ares_str *out, ares_view key);
void ares_json_write(ares_str *out, const ares_json *value);
void ares_json_write_null(ares_str *out);
void ares_json_write_bool(ares_str *out, bool x);
void ares_json_write_i64(ares_str *out, int64_t x);
void ares_json_write_double(ares_str *out, double x); /* reads back as the same bits */
void ares_json_write_float(ares_str *out, float x);
/* as printf's %.<digits>g, for numbers that people read */
void ares_json_write_rounded(ares_str *out, double x, int digits);
void ares_json_write_string(ares_str *out, ares_view s);
/* values or members written elsewhere, separated by commas; nothing when empty */
void ares_json_splice(ares_str *out, ares_view json);
/*
 * The compact text `json` laid out for people: the outermost `levels` levels of objects and arrays
 * have a line per item, indented by two spaces each; deeper ones stand in one line, as in
 * {"a": [1, 2]}.
 */
void ares_json_indent(ares_str *out, ares_view json, int levels);

/* ---------------- keyed randomness (rng.c)
 * Philox4x32-10 (Salmon et al. 2011). A random number is a function of its key alone, never of the
 * order of calls, the thread or the rank.
 */
enum {
    ARES_RNG_SAMPLE = 1,
    ARES_RNG_SHUFFLE = 2,
    ARES_RNG_INIT = 3,
    ARES_RNG_DROPOUT = 4,
    ARES_RNG_SOURCE = 5,
    ARES_RNG_ENV = 6,
    ARES_RNG_USER = 7,
    ARES_RNG_LOSS = 8,
    ARES_RNG_ORDER = 9,
    ARES_RNG_ADJUST = 10,
    ARES_RNG_REPORT = 11,
    ARES_RNG_LORA = 12,
    ARES_RNG_STORED = 13,
    ARES_RNG_TEST = 100
};
typedef struct ares_rng_key {
    uint32_t k[2];
} ares_rng_key;
void ares_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/*
 * The key of (seed, purpose); ares_rng_sub adds two coordinates at a time (step, row, token ...).
 */
ares_rng_key ares_rng_root(uint64_t seed, uint32_t purpose);
ares_rng_key ares_rng_sub(ares_rng_key key, uint64_t a, uint64_t b);
uint64_t ares_rng_u64(ares_rng_key key, uint64_t index);
uint64_t ares_rng_below(ares_rng_key key, uint64_t index, uint64_t n); /* unbiased, in [0, n) */
double ares_rng_uniform(ares_rng_key key, uint64_t index);             /* (0, 1), 53 bits */
double ares_rng_normal(ares_rng_key key, uint64_t index);           /* same bits on every machine */
void ares_rng_shuffle(ares_rng_key key, int64_t *items, int64_t n); /* Fisher-Yates */

/* ---------------- thread pool (pool.c): the only threads that compute
 * ares_pool_run gives the tasks 0..n-1 to whichever thread is free and returns when all are done;
 * the calling thread works too. Idle threads spin briefly, then sleep on a futex. Results must not
 * depend on which thread takes which task. A run inside a task is serial. ares_pool_post queues a
 * background job, done by threads that would otherwise wait and by ares_pool_drain.
 */
typedef struct ares_pool ares_pool;
typedef void ares_task_fn(void *ctx, int64_t task, int worker); /* worker in [0, threads) */
ares_pool *ares_pool_new(int threads);                          /* <= 0: ares_cpu_count() */
void ares_pool_free(ares_pool *p);
int ares_pool_threads(const ares_pool *p); /* NULL pool: 1 */
void ares_pool_run(ares_pool *p, int64_t tasks, ares_task_fn *fn,
                   void *ctx); /* NULL pool: serial */
void ares_pool_post(ares_pool *p, void (*fn)(void *ctx), void *ctx);
void ares_pool_drain(ares_pool *p);
/* CPUs that the affinity mask and the cgroup quota allow, at least 1 (pool.c) */
int ares_cpu_count(void);

double ares_now_s(void);              /* monotonic (pool.c) */
int64_t ares_peak_memory_bytes(void); /* peak resident memory of this process (pool.c) */
/* main memory of this machine, or the part that the process's control groups allow (pool.c) */
double ares_memory_bytes(void);
/* what of it could be taken now, idle pages of files included (pool.c) */
double ares_memory_free_bytes(void);

/* ---------------- metrics (metrics.c): name -> scalar, in order of first mention
 * White space in a name becomes _.
 */
typedef struct ares_metrics ares_metrics;
ares_metrics *ares_metrics_new(void);
void ares_metrics_free(ares_metrics *m);
void ares_metrics_clear(ares_metrics *m);
void ares_metrics_set(ares_metrics *m, const char *name, double value); /* replaces */
void ares_metrics_add(ares_metrics *m, const char *name, double value); /* sums */
bool ares_metrics_get(const ares_metrics *m, const char *name, double *value);
int ares_metrics_count(const ares_metrics *m);
const char *ares_metrics_name(const ares_metrics *m, int i);
double ares_metrics_value(const ares_metrics *m, int i);

/* ---------------- ascending order (map.c) */
void ares_sort_f64(double *x, int64_t n); /* no NaN among them */
void ares_sort_i64(int64_t *x, int64_t n);
/* Structs of `size` bytes that begin with two int64_t: by the first, then by the second. */
void ares_sort_records(void *records, int64_t n, size_t size);

/* ---------------- lookup (map.c): "did you mean" */
/* the name most like the word; NULL when none is like it */
const char *ares_nearest(const char *word, const char *const *names, int n);
/*
 * Index of name among names, or a failure: "<subject> = 'name': unknown; did you mean 'x'?
 * (choices: a, b, c)". subject NULL leaves the part before "unknown" to the caller, as for
 * ares_config_fault, which names option and value itself.
 */
int ares_lookup(int code, const char *subject, const char *name, const char *const *names, int n,
                int *index);

/* ---------------- schedules (schedule.c): f(step)
 * value(step) = base x step / warmup_steps during the warm-up (0 at step 0), then base x
 * shape(progress), where progress goes from 0 to 1 between warmup_steps and total_steps and stays
 * at 1. With warmup_steps 0, step 0 has the full value.
 *   linear       1 - (1 - min_ratio) progress
 *   cosine       max(min_ratio, (1 - min_ratio) cos(2 pi cycles progress) / 2
 *                               + (1 + min_ratio) / 2), as in verl
 *   exponential  min_ratio ^ progress
 *   level        `cycles` equal steps down from 1 to min_ratio
 * With min_ratio above 1, linear, exponential and level rise. The same bits on every machine.
 */
typedef struct ares_schedule {
    const char *name;                 /* constant, linear, cosine, exponential, level */
    double base, min_ratio;           /* the final value is base x min_ratio, but for constant */
    double warmup_steps, total_steps; /* in steps */
    double cycles;                    /* cosine: waves, 0.5 is half a wave; level: levels */
} ares_schedule;
/* ARES_ECONFIG for an unknown name and for impossible numbers */
int ares_schedule_check(const ares_schedule *s);
double ares_schedule_at(const ares_schedule *s, int64_t step); /* step counts from 0 */

/* ---------------- progress (log.c)
 * What a run tells people on stdout: a line per step, and between steps what is being done. On a
 * terminal that is one line that moves; elsewhere it is a line of the log, at most every 30 s.
 */
typedef struct ares_progress ares_progress;
/* mode: "auto"; "line": as where there is no terminal; "none": the steps alone */
ares_progress *ares_progress_new(const char *what, const char *mode);
void ares_progress_begin(ares_progress *p, int64_t done, int64_t total); /* steps begin now */
/* prints "<what> 3/12 | <text> | 4.2 s | eta 0:38" */
void ares_progress_step(ares_progress *p, int64_t done, const char *text);
/* shows this text in the line that moves, in place of the counts of work */
void ares_progress_tell(ares_progress *p, const char *text);
void ares_progress_free(ares_progress *p);
/* Prints to stdout, above the line that moves. */
void ares_say(const char *format, ...) ARES_PRINTF(1, 2);
/*
 * What this process is doing and how much of it is done, for that line. Any thread may count, also
 * where no line is shown; no result depends on the counts. A stage begins with all counts 0.
 */
#define ARES_WORK_LIST(X)   \
    X(ANSWERS, "answers")   \
    X(EPISODES, "episodes") \
    X(ROWS, "rows")         \
    X(JUDGED, "judged")     \
    X(SAMPLED, "tokens/s")  \
    X(MICRO_BATCHES, "micro-batch")
#define ARES_WORK(id, name) ARES_WORK_##id,
typedef enum { ARES_WORK_LIST(ARES_WORK) ARES_WORK_COUNT } ares_work;
#undef ARES_WORK
void ares_work_begin(const char *stage);          /* a literal */
const char *ares_work_stage(void);                /* what began last; "start" before the first */
void ares_work_expect(ares_work what, int64_t n); /* so many more are to come */
void ares_work_done(ares_work what, int64_t n);
/*
 * Ranks of one machine count in memory that all of them see, [ares_work_bytes(ranks)] zeros, so
 * that the line of one tells the sum of those that are in its stage. seen: how many count there;
 * where that is fewer than all, the line says so. memory NULL: this process counts by itself. To be
 * called while nothing is counted.
 */
size_t ares_work_bytes(int ranks);
void ares_work_share(void *memory, int ranks, int rank, int seen);

#ifdef __cplusplus
}
#endif

/*
 * Opening files for reading, done here alone, so that nothing waits for a pipe that nobody writes
 * to (src/core/file.c).
 */

/*
 * Opens a regular file. A pipe, device or folder in its place is a failure at once. -1: *why says
 * the reason; otherwise *why is NULL.
 */
int ares_file_open(const char *path, const char **why);
/* Adds the bytes of such a file to a hash (ares_fnv1a), a piece at a time. */
int ares_file_hash(const char *path, uint64_t *h);
/*
 * Opens what a command line names as input: pipes (/dev/stdin, <(command) of a shell) and
 * terminals are opened, too, and waited for.
 */
int ares_input_open(const char *path, const char **why);
/* Reads such an input to its end; path "-" is stdin. */
int ares_input_read(const char *path, ares_str *out);

/*
 * Warnings and errors of the log are also appended to this file from now on, with the time (log.c);
 * the first of them makes it. NULL: no longer.
 */
void ares_log_keep(const char *path);
/* A line for that file alone, where there is one. */
void ares_log_note(const char *line);

/*
 * core: a user's program in a process of its own, spoken to over its standard input and output
 * (child.c). What it writes to stderr is passed on to ours, and the last bytes of it are kept. It
 * is started with posix_spawn in a process group of its own, under a limit of address space;
 * stopping it kills the group. When this process ends, the child and all processes that it has
 * started are killed, also those that left the group; only one that dropped our environment
 * escapes. Nothing here waits: the caller polls `to` and `from` with its own deadline.
 */

typedef struct ares_child {
    int pid;       /* 0: not running; its process group has the same number */
    int to, from;  /* its input and output, not blocking; -1: closed */
    int err;       /* its stderr: whoever polls calls ares_child_listen */
    ares_str said; /* the last bytes of its stderr */
} ares_child;

#define ARES_CHILD_NONE ((ares_child){ .pid = 0, .to = -1, .from = -1, .err = -1 })

/*
 * argv ends with NULL; argv[0] is looked up in PATH. memory_bytes: of address space, 0: no limit.
 * The child has this process's environment and folder. ARES_ECHILD: "<argv[0]>: why".
 * From the first start on this process ignores SIGPIPE.
 */
int ares_child_start(ares_child *c, char *const *argv, int64_t memory_bytes);
/* The same with the variables `more` ("NAME=value", NULL at the end) in place of those so named. */
int ares_child_start_with(ares_child *c, char *const *argv, const char *const *more,
                          int64_t memory_bytes);
/* Kills the process group; fine when nothing runs. */
void ares_child_stop(ares_child *c);
/* Bytes that the pipe took. `to` is closed when the child has closed its input. */
size_t ares_child_send(ares_child *c, const char *data, size_t n);
/* Appends what there is. The bytes; 0: nothing yet; -1: the child has closed its output. */
int64_t ares_child_receive(ares_child *c, ares_str *out);
/* Passes on what there is of its stderr. */
void ares_child_listen(ares_child *c);
/*
 * "ended with exit code 3", "ended by signal 9 (Killed)", "closed its output", and after ": " the
 * last line of its stderr, if it has written any.
 */
void ares_child_describe_end(ares_child *c, char *why, size_t size);

/*
 * Makes room for n more file descriptors, by raising this process's limit where that is allowed.
 * Returns whether they fit, with some spare ones for files that are open only briefly. *needed: the
 * limit that this requires; *limit: the one there is.
 */
bool ares_descriptors_reserve(int64_t n, int64_t *needed, int64_t *limit);

/*
 * The random streams of CPython's `random` and of numpy, number for number, for data and
 * environments that were defined with them. Everything new uses ares_rng_* of core.h.
 *
 *   py      random.seed(n), random(), getrandbits, randint, choice, shuffle     (MT19937)
 *   np      numpy.random.seed(n), randint: the legacy generator                 (MT19937)
 *   pcg64   numpy.random.default_rng(n), as gymnasium uses it                   (PCG64)
 *
 * MT19937: Matsumoto and Nishimura 1998. PCG64: O'Neill 2014 (XSL-RR 128/64). A stream is plain
 * memory: a copy goes on from the same place.
 */

enum { ARES_MT19937_WORDS = 624 };
typedef struct ares_mt19937 {
    uint32_t word[ARES_MT19937_WORDS];
    int next; /* the word that comes next; ARES_MT19937_WORDS: none is left */
} ares_mt19937;

/* ---------------- CPython's random */
void ares_py_seed(ares_mt19937 *s, uint64_t seed);
double ares_py_random(ares_mt19937 *s);              /* [0, 1), 53 bits */
uint64_t ares_py_bits(ares_mt19937 *s, int bits);    /* getrandbits, 1 to 64 */
uint64_t ares_py_below(ares_mt19937 *s, uint64_t n); /* [0, n), n >= 1: the index of choice */
int64_t ares_py_randint(ares_mt19937 *s, int64_t least, int64_t most); /* ends included */
void ares_py_shuffle(ares_mt19937 *s, int64_t *items, int64_t n);

/* ---------------- numpy's legacy generator */
void ares_np_seed(ares_mt19937 *s, uint32_t seed);
uint32_t ares_np_below(ares_mt19937 *s, uint32_t n); /* randint(n), n >= 1 */

/* ---------------- numpy's default_rng */
__extension__ typedef unsigned __int128 ares_u128;
typedef struct ares_pcg64 {
    ares_u128 state, increment;
    uint32_t half; /* the upper 32 bits of a draw whose lower 32 integers() has given */
    int has_half;  /* 1: integers() gives `half` next; doubles leave it alone */
} ares_pcg64;
/* SeedSequence: makes its pool from 32-bit words of entropy, and n words of state from the pool */
void ares_seed_sequence_pool(const uint32_t *entropy, int n, uint32_t pool[4]);
void ares_seed_sequence_state(const uint32_t pool[4], uint64_t *state, int n);
void ares_pcg64_seed(ares_pcg64 *s, uint64_t seed);
/* default_rng([a, b]) */
void ares_pcg64_seed_pair(ares_pcg64 *s, uint64_t a, uint64_t b);
double ares_pcg64_random(ares_pcg64 *s);              /* [0, 1), 53 bits */
uint32_t ares_pcg64_below(ares_pcg64 *s, uint32_t n); /* integers(n), n >= 1 */
#endif
