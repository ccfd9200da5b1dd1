/* v16 as four registers of Advanced SIMD (aarch64), lanes 0 to 3, 4 to 7 and so on. Read vec.h. */
#include <arm_neon.h>

typedef struct v16 {
    float32x4_t q[4];
} v16;
typedef struct v16i {
    uint32x4_t q[4];
} v16i;
typedef v16i v16m; /* all bits of a true lane are set */

/* Each register's result, with i for its number. */
#define V16_EACH(expr)                                                          \
    {                                                                           \
        {                                                                       \
            V16_AT(expr, 0), V16_AT(expr, 1), V16_AT(expr, 2), V16_AT(expr, 3), \
        }                                                                       \
    }
#define V16_AT(expr, number) \
    __extension__({          \
        enum { i = number }; \
        expr;                \
    })
#define V16_OF(type, name, parameters, expr) V16_OP(type, name, parameters, (type)V16_EACH(expr))

V16_INLINE v16i v16i_iota(void)
{
    static const uint32_t first[4] = { 0, 1, 2, 3 };
    uint32x4_t at = vld1q_u32(first);
    return (v16i)V16_EACH(vaddq_u32(at, vdupq_n_u32(4 * i)));
}
V16_OF(v16i, v16i_set1, (uint32_t x), vdupq_n_u32(x))
V16_OF(v16i, v16i_add, (v16i a, v16i b), vaddq_u32(a.q[i], b.q[i]))
V16_OF(v16i, v16i_sub, (v16i a, v16i b), vsubq_u32(a.q[i], b.q[i]))
V16_OF(v16i, v16i_and, (v16i a, v16i b), vandq_u32(a.q[i], b.q[i]))
V16_OF(v16i, v16i_xor, (v16i a, v16i b), veorq_u32(a.q[i], b.q[i]))

V16_INLINE v16m v16m_first(int n)
{
    uint32x4_t end = vdupq_n_u32((uint32_t)(n > 0 ? n : 0));
    v16i at = v16i_iota();
    return (v16m)V16_EACH(vcltq_u32(at.q[i], end));
}
V16_INLINE v16i v16m_lane_bits(void) /* the bit of each lane in v16m_of and v16m_bits */
{
    static const uint32_t bits[16] = { 1,   2,   4,    8,    16,   32,   64,    128,
                                       256, 512, 1024, 2048, 4096, 8192, 16384, 32768 };
    return (v16i)V16_EACH(vld1q_u32(bits + 4 * i));
}
V16_INLINE v16m v16m_of(uint32_t bits)
{
    v16i lane = v16m_lane_bits();
    return (v16m)V16_EACH(vtstq_u32(vdupq_n_u32(bits), lane.q[i]));
}
V16_INLINE uint32_t v16m_bits(v16m m)
{
    v16i lane = v16m_lane_bits(), set = v16i_and(m, lane);
    return vaddvq_u32(vorrq_u32(vorrq_u32(set.q[0], set.q[1]), vorrq_u32(set.q[2], set.q[3])));
}
V16_OF(v16m, v16m_not, (v16m a), vmvnq_u32(a.q[i]))

V16_OF(v16, v16_zero, (void), vdupq_n_f32(0.0f))
V16_OF(v16, v16_set1, (float x), vdupq_n_f32(x))
V16_OF(v16, v16_load, (const float *p), vld1q_f32(p + 4 * i))
V16_INLINE void v16_store(float *p, v16 v)
{
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, v.q[i]);
}
V16_INLINE v16 v16_load_first(const float *p, int n)
{
    if (n >= 16) return v16_load(p);
    float t[16] = { 0 };
    memcpy(t, p, (size_t)n * 4);
    return v16_load(t);
}
V16_INLINE void v16_store_first(float *p, v16 v, int n)
{
    if (n >= 16) {
        v16_store(p, v);
        return;
    }
    float t[16];
    v16_store(t, v);
    memcpy(p, t, (size_t)n * 4);
}

/* c comes first in these two: c + a b, c - a b */
V16_OF(v16, v16_fma, (v16 a, v16 b, v16 c), vfmaq_f32(c.q[i], a.q[i], b.q[i]))
V16_OF(v16, v16_fnma, (v16 a, v16 b, v16 c), vfmsq_f32(c.q[i], a.q[i], b.q[i]))
V16_OF(v16, v16_add, (v16 a, v16 b), vaddq_f32(a.q[i], b.q[i]))
V16_OF(v16, v16_sub, (v16 a, v16 b), vsubq_f32(a.q[i], b.q[i]))
V16_OF(v16, v16_mul, (v16 a, v16 b), vmulq_f32(a.q[i], b.q[i]))
V16_OF(v16, v16_div, (v16 a, v16 b), vdivq_f32(a.q[i], b.q[i]))
V16_OF(v16, v16_sqrt, (v16 a), vsqrtq_f32(a.q[i]))
V16_OF(v16, v16_neg, (v16 a), vnegq_f32(a.q[i]))
V16_OF(v16m, v16_lt, (v16 a, v16 b), vcltq_f32(a.q[i], b.q[i]))
V16_OF(v16m, v16_gt, (v16 a, v16 b), vcgtq_f32(a.q[i], b.q[i]))
V16_OF(v16m, v16_ge, (v16 a, v16 b), vcgeq_f32(a.q[i], b.q[i]))
V16_OF(v16m, v16_eq, (v16 a, v16 b), vceqq_f32(a.q[i], b.q[i]))
V16_OF(v16, v16_select, (v16m m, v16 a, v16 b), vbslq_f32(m.q[i], a.q[i], b.q[i]))
/* not vminq and vmaxq, which give NaN where either is */
V16_OP(v16, v16_min, (v16 a, v16 b), v16_select(v16_lt(a, b), a, b))
V16_OP(v16, v16_max, (v16 a, v16 b), v16_select(v16_gt(a, b), a, b))

V16_OF(v16i, v16_bits, (v16 v), vreinterpretq_u32_f32(v.q[i]))
V16_OF(v16, v16_from_bits, (v16i v), vreinterpretq_f32_u32(v.q[i]))
V16_OF(v16, v16_from_int, (v16i v), vcvtq_f32_s32(vreinterpretq_s32_u32(v.q[i])))
V16_OF(v16i, v16_trunc, (v16 v), vreinterpretq_u32_s32(vcvtq_s32_f32(v.q[i])))

V16_OF(v16i, v16i_load, (const void *p), vld1q_u32((const uint32_t *)p + 4 * i))
V16_INLINE void v16i_store(void *p, v16i v)
{
    for (int i = 0; i < 4; i++) vst1q_u32((uint32_t *)p + 4 * i, v.q[i]);
}
/* a shift by a negative number goes to the right */
V16_OF(v16i, v16i_shl, (v16i v, int n), vshlq_u32(v.q[i], vdupq_n_s32(n)))
V16_OF(v16i, v16i_shr, (v16i v, int n), vshlq_u32(v.q[i], vdupq_n_s32(-n)))
V16_OF(v16i, v16i_sar, (v16i v, int n),
       vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(v.q[i]), vdupq_n_s32(-n))))
V16_INLINE void v16i_mul_wide(v16i a, v16i b, v16i *hi, v16i *lo)
{
    v16i h, l;
    for (int i = 0; i < 4; i++) {
        uint32x4_t first =
                       vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a.q[i]), vget_low_u32(b.q[i]))),
                   last = vreinterpretq_u32_u64(vmull_high_u32(a.q[i], b.q[i]));
        l.q[i] = vuzp1q_u32(first, last);
        h.q[i] = vuzp2q_u32(first, last);
    }
    *hi = h;
    *lo = l;
}

V16_OF(v16, v16_load_bf16, (const uint16_t *p),
       vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)))
V16_INLINE v16 v16_load_bf16_first(const uint16_t *p, int n)
{
    uint16_t t[16] = { 0 };
    memcpy(t, p, (size_t)n * 2);
    return v16_load_bf16(t);
}
V16_INLINE void v16_store_bf16(uint16_t *p, v16 v)
{
    for (int i = 0; i < 4; i++) {
        uint32x4_t u = vreinterpretq_u32_f32(v.q[i]);
        uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
        uint32x4_t nearest = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
        uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
        uint32x4_t number = vceqq_f32(v.q[i], v.q[i]);
        vst1_u16(p + 4 * i, vshrn_n_u32(vbslq_u32(number, nearest, quiet), 16));
    }
}
V16_INLINE void v16_store_bf16_first(uint16_t *p, v16 v, int n)
{
    uint16_t t[16];
    v16_store_bf16(t, v);
    memcpy(p, t, (size_t)n * 2);
}

/* Lanes 8 apart, then 4, 2 and 1. */
V16_INLINE float v16_sum(v16 v)
{
    float32x4_t a = vaddq_f32(vaddq_f32(v.q[0], v.q[2]), vaddq_f32(v.q[1], v.q[3]));
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
V16_INLINE float32x4_t v16_max_q(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
V16_INLINE float v16_max_lane(v16 v)
{
    float32x4_t a = v16_max_q(v16_max_q(v.q[0], v.q[2]), v16_max_q(v.q[1], v.q[3]));
    a = v16_max_q(a, vextq_f32(a, a, 2));
    a = v16_max_q(a, vextq_f32(a, a, 1));
    return vgetq_lane_f32(a, 0);
}

/* dst[j * ld_dst + i] = src[i * ld_src + j], 16 by 16 */
V16_INLINE void v16_transpose(const float *src, int64_t ld_src, float *dst, int64_t ld_dst)
{
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 16; j += 4) {
            const float *from = src + i * ld_src + j;
            float *to = dst + j * ld_dst + i;
            float32x4_t r0 = vld1q_f32(from), r1 = vld1q_f32(from + ld_src),
                        r2 = vld1q_f32(from + 2 * ld_src), r3 = vld1q_f32(from + 3 * ld_src);
            float64x2_t even01 = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1)), /* columns 0 and 2 */
                odd01 = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1)),          /* 1 and 3 */
                even23 = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3)),
                        odd23 = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
            vst1q_f32(to, vreinterpretq_f32_f64(vzip1q_f64(even01, even23)));
            vst1q_f32(to + ld_dst, vreinterpretq_f32_f64(vzip1q_f64(odd01, odd23)));
            vst1q_f32(to + 2 * ld_dst, vreinterpretq_f32_f64(vzip2q_f64(even01, even23)));
            vst1q_f32(to + 3 * ld_dst, vreinterpretq_f32_f64(vzip2q_f64(odd01, odd23)));
        }
}

V16_INLINE void v16_store_zip(float *p, v16 a, v16 b)
{
    for (int i = 0; i < 4; i++) {
        vst1q_f32(p + 8 * i, vzip1q_f32(a.q[i], b.q[i]));
        vst1q_f32(p + 8 * i + 4, vzip2q_f32(a.q[i], b.q[i]));
    }
}
V16_OF(v16, v16_swap, (v16 v), vrev64q_f32(v.q[i]))
V16_INLINE v16 v16_set1_two(const float *p)
{
    float32x2_t two = vld1_f32(p);
    float32x4_t v = vcombine_f32(two, two);
    return (v16){ { v, v, v, v } };
}
/* Whether a lane is at most 2^-126 in size, but not 0. */
V16_INLINE bool v16_any_tiny(v16 v)
{
    uint32x4_t any = vdupq_n_u32(0), one = vdupq_n_u32(1), end = vdupq_n_u32(0x1000000);
    for (int i = 0; i < 4; i++) {
        uint32x4_t size = vshlq_n_u32(vreinterpretq_u32_f32(v.q[i]), 1);
        any = vorrq_u32(any, vcltq_u32(vsubq_u32(size, one), end));
    }
    return vmaxvq_u32(any) != 0;
}
