/* v16 as an array: the reference, and what runs where there is neither AVX2 nor NEON. Read vec.h.
 */
#include <math.h>

#ifndef V16_LANES
#define V16_LANES 16 /* tests set 1: then only what works lane by lane is defined */
#endif

typedef struct v16 {
    float l[V16_LANES];
} v16;
typedef struct v16i {
    uint32_t l[V16_LANES];
} v16i;
typedef uint32_t v16m;

#define V16_EACH for (int i = 0; i < V16_LANES; i++)
#define V16_BINARY(name, expr)        \
    V16_INLINE v16 name(v16 a, v16 b) \
    {                                 \
        V16_EACH a.l[i] = expr;       \
        return a;                     \
    }
#define V16_UNARY(name, expr)   \
    V16_INLINE v16 name(v16 a)  \
    {                           \
        V16_EACH a.l[i] = expr; \
        return a;               \
    }
#define V16I_BINARY(name, expr)          \
    V16_INLINE v16i name(v16i a, v16i b) \
    {                                    \
        V16_EACH a.l[i] = expr;          \
        return a;                        \
    }
#define V16I_SHIFT(name, expr)          \
    V16_INLINE v16i name(v16i a, int n) \
    {                                   \
        V16_EACH a.l[i] = expr;         \
        return a;                       \
    }
#define V16_COMPARE(name, expr)          \
    V16_INLINE v16m name(v16 a, v16 b)   \
    {                                    \
        v16m m = 0;                      \
        V16_EACH m |= (v16m)(expr) << i; \
        return m;                        \
    }

V16_OP(v16m, v16m_first, (int n), n >= 16 ? 0xffffu : (1u << n) - 1u)
V16_OP(v16m, v16m_of, (uint32_t bits), bits & 0xffffu)
V16_OP(uint32_t, v16m_bits, (v16m m), m)
V16_OP(v16m, v16m_not, (v16m a), ~a & 0xffffu)

V16_INLINE v16 v16_set1(float x)
{
    v16 v;
    V16_EACH v.l[i] = x;
    return v;
}
V16_OP(v16, v16_zero, (void), v16_set1(0.0f))
V16_INLINE v16 v16_load(const float *p)
{
    v16 v;
    memcpy(v.l, p, sizeof v.l);
    return v;
}
V16_INLINE void v16_store(float *p, v16 v)
{
    memcpy(p, v.l, sizeof v.l);
}
V16_INLINE v16 v16_load_first(const float *p, int n)
{
    v16 v = v16_zero();
    memcpy(v.l, p, (size_t)n * 4);
    return v;
}
V16_INLINE void v16_store_first(float *p, v16 v, int n)
{
    memcpy(p, v.l, (size_t)n * 4);
}

V16_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    V16_EACH c.l[i] = fmaf(a.l[i], b.l[i], c.l[i]);
    return c;
}
V16_INLINE v16 v16_fnma(v16 a, v16 b, v16 c)
{
    V16_EACH c.l[i] = fmaf(-a.l[i], b.l[i], c.l[i]);
    return c;
}
V16_BINARY(v16_add, a.l[i] + b.l[i])
V16_BINARY(v16_sub, a.l[i] - b.l[i])
V16_BINARY(v16_mul, a.l[i] * b.l[i])
V16_BINARY(v16_div, a.l[i] / b.l[i])
V16_BINARY(v16_min, a.l[i] < b.l[i] ? a.l[i] : b.l[i])
V16_BINARY(v16_max, a.l[i] > b.l[i] ? a.l[i] : b.l[i])
V16_UNARY(v16_sqrt, sqrtf(a.l[i]))
V16_UNARY(v16_neg, -a.l[i])
V16_COMPARE(v16_lt, a.l[i] < b.l[i])
V16_COMPARE(v16_gt, a.l[i] > b.l[i])
V16_COMPARE(v16_ge, a.l[i] >= b.l[i])
V16_COMPARE(v16_eq, a.l[i] == b.l[i])
V16_INLINE v16 v16_select(v16m m, v16 a, v16 b)
{
    V16_EACH b.l[i] = m >> i & 1 ? a.l[i] : b.l[i];
    return b;
}

V16_INLINE v16i v16_bits(v16 v)
{
    v16i r;
    memcpy(r.l, v.l, sizeof r.l);
    return r;
}
V16_INLINE v16 v16_from_bits(v16i v)
{
    v16 r;
    memcpy(r.l, v.l, sizeof r.l);
    return r;
}
V16_INLINE v16 v16_from_int(v16i v)
{
    v16 r;
    V16_EACH r.l[i] = (float)(int32_t)v.l[i];
    return r;
}
V16_INLINE v16i v16_trunc(v16 v)
{
    v16i r;
    V16_EACH r.l[i] = (uint32_t)(int32_t)v.l[i];
    return r;
}

V16_INLINE v16i v16i_set1(uint32_t x)
{
    v16i v;
    V16_EACH v.l[i] = x;
    return v;
}
V16_INLINE v16i v16i_iota(void)
{
    v16i v;
    V16_EACH v.l[i] = (uint32_t)i;
    return v;
}
V16_INLINE v16i v16i_load(const void *p)
{
    v16i v;
    memcpy(v.l, p, sizeof v.l);
    return v;
}
V16_INLINE void v16i_store(void *p, v16i v)
{
    memcpy(p, v.l, sizeof v.l);
}
V16I_BINARY(v16i_add, a.l[i] + b.l[i])
V16I_BINARY(v16i_sub, a.l[i] - b.l[i])
V16I_BINARY(v16i_and, a.l[i] & b.l[i])
V16I_BINARY(v16i_xor, a.l[i] ^ b.l[i])
V16I_SHIFT(v16i_shl, a.l[i] << n)
V16I_SHIFT(v16i_shr, a.l[i] >> n)
V16I_SHIFT(v16i_sar, (uint32_t)((int32_t)a.l[i] >> n))
V16_INLINE void v16i_mul_wide(v16i a, v16i b, v16i *hi, v16i *lo)
{
    V16_EACH
    {
        uint64_t p = (uint64_t)a.l[i] * b.l[i];
        hi->l[i] = (uint32_t)(p >> 32);
        lo->l[i] = (uint32_t)p;
    }
}

V16_INLINE v16 v16_load_bf16_first(const uint16_t *p, int n)
{
    v16i v = v16i_set1(0);
    for (int i = 0; i < n; i++) v.l[i] = (uint32_t)p[i] << 16;
    return v16_from_bits(v);
}
V16_OP(v16, v16_load_bf16, (const uint16_t *p), v16_load_bf16_first(p, V16_LANES))
V16_INLINE void v16_store_bf16_first(uint16_t *p, v16 v, int n)
{
    v16i u = v16_bits(v);
    for (int i = 0; i < n; i++) {
        uint32_t nearest = u.l[i] + 0x7fff + (u.l[i] >> 16 & 1), quiet = u.l[i] | 0x400000;
        p[i] = (uint16_t)((v.l[i] == v.l[i] ? nearest : quiet) >> 16);
    }
}
V16_INLINE void v16_store_bf16(uint16_t *p, v16 v)
{
    v16_store_bf16_first(p, v, V16_LANES);
}

/* Whether a lane is at most 2^-126 in size, but not 0. */
V16_INLINE bool v16_any_tiny(v16 v)
{
    uint32_t any = 0;
    v16i u = v16_bits(v);
    V16_EACH any |= (u.l[i] << 1) - 1 < 0x1000000u;
    return any;
}

#if V16_LANES == 16
V16_INLINE float v16_sum(v16 v)
{
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) v.l[i] = v.l[i] + v.l[i + half];
    return v.l[0];
}
V16_INLINE float v16_max_lane(v16 v)
{
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) v.l[i] = v.l[i] > v.l[i + half] ? v.l[i] : v.l[i + half];
    return v.l[0];
}
/* dst[j * ld_dst + i] = src[i * ld_src + j], 16 by 16 */
V16_INLINE void v16_transpose(const float *src, int64_t ld_src, float *dst, int64_t ld_dst)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) dst[j * ld_dst + i] = src[i * ld_src + j];
}
V16_INLINE void v16_store_zip(float *p, v16 a, v16 b)
{
    for (int i = 0; i < 16; i++) {
        p[2 * i] = a.l[i];
        p[2 * i + 1] = b.l[i];
    }
}
V16_INLINE v16 v16_swap(v16 v)
{
    v16 r;
    V16_EACH r.l[i] = v.l[i ^ 1];
    return r;
}
V16_INLINE v16 v16_set1_two(const float *p)
{
    v16 r;
    V16_EACH r.l[i] = p[i & 1];
    return r;
}
#endif
