/*
 * The limit that limit.h measures.
 *
 *   bench_limit [threads=0] [repeat=5]
 */
#include <stdio.h>
#include <string.h>

#include "limit.h"

int main(int argc, char **argv)
{
    int64_t threads = 0, repeat = 5;
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        int64_t *into = strncmp(argv[i], "threads=", 8) == 0  ? &threads
                        : strncmp(argv[i], "repeat=", 7) == 0 ? &repeat
                                                              : NULL;
        if (into && ares_parse_i64(ares_view_of(equals + 1), into)) continue;
        fprintf(stderr, "bench_limit: '%s': no such option (choices: threads=N, repeat=N)\n",
                argv[i]);
        return 2;
    }
    ares_pool *pool = ares_pool_new((int)threads);
    bench_limit(pool, repeat);
    ares_pool_free(pool);
    return 0;
}
