/* The streams of CPython and numpy against the real ones; agentic.json holds a few of each. */
#include <stdio.h>

#include "ares/core.h"
#include "test.h"

enum { NO_NUMPY = 77 };

static const uint32_t limits[] = { 1,     2,     3,           4,           5,
                                   10,    16,    17,          100,         1000,
                                   65536, 65537, 2147483648u, 2147483649u, 4294967295u };

/* One of the streams. */
typedef struct stream {
    const char *kind;
    ares_mt19937 mt;
    ares_pcg64 pcg;
} stream;

static bool is(const stream *s, const char *kind)
{
    return strcmp(s->kind, kind) == 0;
}

static void seed(stream *s, uint64_t n)
{
    if (is(s, "py")) ares_py_seed(&s->mt, n);
    else if (is(s, "np")) ares_np_seed(&s->mt, (uint32_t)n);
    else if (is(s, "pair")) ares_pcg64_seed_pair(&s->pcg, n, 7);
    else ares_pcg64_seed(&s->pcg, n);
}

static bool has_doubles(const stream *s)
{
    return !is(s, "np");
}

static double draw(stream *s)
{
    return is(s, "py") ? ares_py_random(&s->mt) : ares_pcg64_random(&s->pcg);
}

static int64_t below(stream *s, uint32_t n)
{
    if (is(s, "py")) return ares_py_randint(&s->mt, 0, (int64_t)n - 1);
    return is(s, "np") ? ares_np_below(&s->mt, n) : ares_pcg64_below(&s->pcg, n);
}

/* A double as Python's float.hex prints it. */
static void add_hex(ares_str *out, double x)
{
    char text[48];
    if (x == 0) snprintf(text, sizeof text, "0x0.0p+0");
    else snprintf(text, sizeof text, "%.13a", x);
    ares_str_addf(out, "%s ", text);
}

static void add_line(ares_str *out, stream *s, uint64_t n)
{
    int64_t items[20];
    seed(s, n);
    for (int i = 0; i < ARES_COUNT(limits); i++) {
        ares_str_addf(out, "%lld ", (long long)below(s, limits[i]));
        if (has_doubles(s)) add_hex(out, draw(s));
    }
    for (int i = 0; i < ARES_COUNT(items); i++) items[i] = i;
    if (is(s, "py")) ares_py_shuffle(&s->mt, items, ARES_COUNT(items));
    for (int i = 0; i < ARES_COUNT(items) && is(s, "py"); i++)
        ares_str_addf(out, "%lld ", (long long)items[i]);
    for (int i = 0; i < 400; i++) {
        if (has_doubles(s)) add_hex(out, draw(s));
        else ares_str_addf(out, "%lld ", (long long)below(s, 1000));
    }
    for (int i = 0; i < 3 && is(s, "py"); i++) {
        static const int bits[] = { 1, 33, 64 };
        ares_str_addf(out, "%llu ", (unsigned long long)ares_py_bits(&s->mt, bits[i]));
    }
    if (is(s, "py"))
        ares_str_addf(out, "%lld ", (long long)ares_py_randint(&s->mt, -5, 1000000000000));
    out->data[out->len - 1] = '\n';
}

static void check_stream(const char *kind)
{
    static const uint64_t wide[] = { 623,
                                     624,
                                     10000,
                                     13199,
                                     2147483648u,
                                     4294967295u,
                                     4294967296u,
                                     4294967297u,
                                     9007199254740993u,
                                     9223372036854775808u,
                                     18446744073709551615u };
    ares_str want = { 0 }, got = { 0 };
    stream s = { .kind = kind };
    int rc = test_shell(&want, "${ARES_TEST_PYTHON:-python3} '%s' %s",
                        test_source("tests/core/streams.py"), kind);
    if (rc == NO_NUMPY || rc == 127) {
        ares_str_fini(&want);
        SKIP(rc == 127 ? "there is no python3"
                       : "there is no numpy; ARES_TEST_PYTHON names a "
                         "Python that has it");
    }
    CHECK_EQ(rc, 0);
    for (uint64_t n = 0; n < 200; n++) add_line(&got, &s, n);
    for (int i = 0; i < (is(&s, "np") ? 6 : ARES_COUNT(wide)); i++) add_line(&got, &s, wide[i]);
    const char *a = got.data, *b = want.data ? want.data : "";
    for (int line = 0; *a || *b; line++) {
        size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
        if (!CHECK_MSG(na == nb && memcmp(a, b, na) == 0, "%s: line %d differs:\n%.200s\n%.200s",
                       kind, line, a, b))
            break;
        a += na + (a[na] != 0);
        b += nb + (b[nb] != 0);
    }
    ares_str_fini(&want);
    ares_str_fini(&got);
}

TEST(the_py_stream_is_cpythons)
{
    check_stream("py");
}

TEST(the_np_stream_is_numpys_legacy_generator)
{
    check_stream("np");
}

TEST(the_pcg64_stream_is_numpys_default_rng)
{
    check_stream("pcg64");
}

TEST(a_pair_of_seeds_is_numpys_list_of_two)
{
    check_stream("pair");
}
