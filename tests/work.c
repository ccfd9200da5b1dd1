/* The counters behind work.h; the linker sends the C library's functions here (--wrap). */
#include "work.h"

#include <stddef.h>

static _Thread_local int64_t blocks, bytes, allocated;

int64_t work_done(void)
{
    return blocks + bytes / 16;
}
int64_t work_allocated(void)
{
    return allocated;
}

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    blocks++;
}

void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_mempcpy(void *to, const void *from, size_t n);
void *__real_memset(void *to, int byte, size_t n);
void *__real_memchr(const void *s, int byte, size_t n);
void *__real_memrchr(const void *s, int byte, size_t n);
void *__real_memmem(const void *s, size_t n, const void *part, size_t len);
size_t __real_strlen(const char *s);
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__wrap_mempcpy(void *to, const void *from, size_t n);
void *__wrap_memset(void *to, int byte, size_t n);
void *__wrap_memchr(const void *s, int byte, size_t n);
void *__wrap_memrchr(const void *s, int byte, size_t n);
void *__wrap_memmem(const void *s, size_t n, const void *part, size_t len);
int __wrap_memcmp(const void *a, const void *b, size_t n);
size_t __wrap_strlen(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    bytes += (int64_t)n;
    return __real_memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n)
{
    bytes += (int64_t)n;
    return __real_memmove(to, from, n);
}
void *__wrap_mempcpy(void *to, const void *from, size_t n)
{
    bytes += (int64_t)n;
    return __real_mempcpy(to, from, n);
}
void *__wrap_memset(void *to, int byte, size_t n)
{
    bytes += (int64_t)n;
    return __real_memset(to, byte, n);
}

/* A search costs the bytes before the place that it finds. */
void *__wrap_memchr(const void *s, int byte, size_t n)
{
    const char *at = __real_memchr(s, byte, n);
    bytes += at ? at - (const char *)s + 1 : (int64_t)n;
    return (void *)at;
}
void *__wrap_memrchr(const void *s, int byte, size_t n)
{
    const char *at = __real_memrchr(s, byte, n);
    bytes += at ? (const char *)s + n - at : (int64_t)n;
    return (void *)at;
}
void *__wrap_memmem(const void *s, size_t n, const void *part, size_t len)
{
    const char *at = __real_memmem(s, n, part, len);
    bytes += at ? at - (const char *)s + (int64_t)len : (int64_t)n;
    return (void *)at;
}
int __wrap_memcmp(const void *a, const void *b, size_t n)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < n; i++) {
        bytes++;
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}
size_t __wrap_strlen(const char *s)
{
    size_t n = __real_strlen(s);
    bytes += (int64_t)n + 1;
    return n;
}

void *__wrap_malloc(size_t n)
{
    allocated += (int64_t)n;
    return __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    allocated += (int64_t)(n * size);
    return __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    allocated += (int64_t)n;
    return __real_realloc(p, n);
}
