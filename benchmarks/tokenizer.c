/*
 * Encoding and decoding speed on one thread, by CPU time, so that a busy machine counts little:
 * JSON lines with the median and the extremes of several passes over a text, for ids alone, ids
 * with offsets, and back from ids to text.
 *
 *   bench_tokenizer MODEL_DIR FILE.jsonl [PASSES]
 *
 * benchmarks/peers/tokenizer.py measures the same with the `tokenizers` library.
 *
 * Each line of the file is one text. `cold` is the first pass, which begins with an empty table of
 * words.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ares/text.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int run(const char *model, const char *path, int passes, bool offsets, bool decode)
{
    ares_tokenizer *t;
    ares_str text = { 0 };
    ares_ids ids = { .want_offsets = offsets };
    ares_str back = { 0 };
    double begin = cpu_s(), seconds[100], cold = 0;
    ARES_TRY(ares_tokenizer_load(model, &t));
    double load = cpu_s() - begin;
    ARES_TRY(ares_file_read(path, &text));
    int64_t tokens = 0;
    uint64_t sum = 0;
    for (int pass = 0; pass <= passes; pass++) {
        tokens = 0, sum = 0;
        double spent = 0;
        for (size_t at = 0; at < text.len;) {
            int64_t end = ares_view_find(ares_str_view(&text), ARES_VIEW("\n"), at);
            size_t stop = end < 0 ? text.len : (size_t)end;
            ares_ids_clear(&ids);
            ares_str_clear(&back);
            begin = cpu_s();
            ARES_TRY(
                ares_tokenizer_encode(t, (ares_view){ text.data + at, stop - at }, false, &ids));
            if (decode) {
                begin = cpu_s();
                ARES_TRY(ares_tokenizer_decode(t, ids.ids, ids.n, false, &back));
            }
            spent += cpu_s() - begin;
            tokens += ids.n;
            for (int64_t i = 0; i < ids.n; i++) sum = sum * 31 + (uint64_t)ids.ids[i];
            at = stop + 1;
        }
        if (pass == 0) cold = spent;
        else seconds[pass - 1] = spent;
    }
    qsort(seconds, (size_t)passes, sizeof *seconds, by_value);
    double mb = (double)text.len / 1e6;
    printf("{\"bench\":\"tokenizer\",\"side\":\"ares\",\"what\":\"%s\",\"offsets\":%s,\"tokens\":%"
           "lld,\"sum\":\"%"
           "016llx\",\"load_s\":%.3f,"
           "\"mb_per_s\":%.2f,\"min\":%.2f,\"max\":%.2f,\"cold\":%.2f}\n",
           decode ? "decode" : "encode", offsets ? "true" : "false", (long long)tokens,
           (unsigned long long)sum, load, mb / seconds[passes / 2], mb / seconds[passes - 1],
           mb / seconds[0], mb / cold);
    ares_ids_fini(&ids);
    ares_str_fini(&text);
    ares_str_fini(&back);
    ares_tokenizer_free(t);
    return ARES_OK;
}

int main(int argc, char **argv)
{
    int passes = argc > 3 ? atoi(argv[3]) : 7;
    if (argc < 3 || passes < 1 || passes > 100)
        return fprintf(stderr, "usage: bench_tokenizer MODEL_DIR FILE.jsonl [PASSES]\n"), 2;
    int rc = run(argv[1], argv[2], passes, false, false);
    if (rc == ARES_OK) rc = run(argv[1], argv[2], passes, true, false);
    if (rc == ARES_OK) rc = run(argv[1], argv[2], passes, false, true);
    if (rc != ARES_OK) fprintf(stderr, "%s\n", ares_error_message());
    return rc == ARES_OK ? 0 : 1;
}
