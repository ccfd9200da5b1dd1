/* The list of losses, and the macros by which a loss's file makes its entry. */
#ifndef ARES_ALGO_LOSS_ENTRY_H
#define ARES_ALGO_LOSS_ENTRY_H

#include "formula.h"

/*
 * How a loss's file ends: in its entry, `const ares_loss ares_loss_NAME`, made by one of the macros
 * below from what the file has defined before it.
 *
 *   LOSS_OF_TOKENS(name, ...)        name_token: the term of a token, from that token alone
 *   LOSS_OF_CHOSEN(name, ...)        the same, after .choose has marked tokens of the mini-batch
 *   LOSS_OF_ROWS(name, share, ...)   name_gather, name_row, name_row_token: a row has one ratio.
 *                                    share: what becomes of the tokens' derivatives
 *   LOSS_OF_PAIRS(name, ...)         needs stored answers as well: no loss of a batch's tokens
 *
 * `...`: members of ares_loss: .words, .doc, .formula, .paper ("": none), .reads where it reads
 * options, and .clips where it reads clip_ratio_dual. formulas.h compiles the
 * same files for nvcc, where a macro makes the struct loss_of_NAME instead, from which
 * cuda/loss.cu makes its kernel.
 */

#if defined(__cplusplus) /* cuda/loss.cu */

struct loss_of_tokens {
};
struct loss_of_rows {
};
struct loss_of_pairs {
};
#define LOSS_OF_TOKENS(name, ...)                                                            \
    struct loss_of_##name : loss_of_tokens {                                                 \
        static __device__ ares_token_term token(const loss_token *x, const loss_settings *s) \
        {                                                                                    \
            return name##_token(x, s);                                                       \
        }                                                                                    \
    };
#define LOSS_OF_CHOSEN LOSS_OF_TOKENS
#define LOSS_OF_ROWS(name, share, ...)                                                          \
    struct loss_of_##name : loss_of_rows {                                                      \
        enum { SPREAD = (share) == LOSS_DERIVATIVE_SPREAD };                                    \
        static __device__ void gather(loss_row *r, const loss_token *x, const loss_settings *s) \
        {                                                                                       \
            name##_gather(r, x, s);                                                             \
        }                                                                                       \
        static __device__ void row(loss_row *r, const loss_settings *s)                         \
        {                                                                                       \
            name##_row(r, s);                                                                   \
        }                                                                                       \
        static __device__ loss_row_token token(const loss_row *r, const loss_token *x,          \
                                               const loss_settings *s)                          \
        {                                                                                       \
            return name##_row_token(r, x, s);                                                   \
        }                                                                                       \
    };
#define LOSS_OF_PAIRS(name, ...)            \
    struct loss_of_##name : loss_of_pairs { \
    };

#elif defined(LOSS_FORMULAS_ONLY) /* tests of the formulas */

#define LOSS_OF_TOKENS(name, ...)
#define LOSS_OF_CHOSEN(name, ...)
#define LOSS_OF_ROWS(name, share, ...)
#define LOSS_OF_PAIRS(name, ...)

#else

#include "loss.h"

#define LOSS_ENTRY(name_, flags_, ...)                                           \
    const ares_loss ares_loss_##name_ = {                                        \
        .name = #name_, .flags = flags_, .compute = name_##_compute, __VA_ARGS__ \
    };
#define LOSS_OF_TOKENS(name, ...)                                    \
    static int name##_compute(const ares_loss_args *a)               \
    {                                                                \
        return loss_over_tokens(a, &ares_loss_##name, name##_token); \
    }                                                                \
    LOSS_ENTRY(name, ARES_LOSS_LOCAL, __VA_ARGS__)
#define LOSS_OF_CHOSEN(name, ...)                                    \
    static int name##_compute(const ares_loss_args *a)               \
    {                                                                \
        return loss_over_chosen(a, &ares_loss_##name, name##_token); \
    }                                                                \
    LOSS_ENTRY(name, ARES_LOSS_BATCH, __VA_ARGS__)
#define LOSS_OF_ROWS(name, share, ...)                                                \
    static int name##_compute(const ares_loss_args *a)                                \
    {                                                                                 \
        return loss_over_rows(a, &ares_loss_##name, share, name##_gather, name##_row, \
                              name##_row_token);                                      \
    }                                                                                 \
    LOSS_ENTRY(name, ARES_LOSS_ROWS, __VA_ARGS__)
#define LOSS_OF_PAIRS(name, ...)                         \
    static int name##_compute(const ares_loss_args *a)   \
    {                                                    \
        return loss_without_pairs(a, &ares_loss_##name); \
    }                                                    \
    LOSS_ENTRY(name, ARES_LOSS_PAIRS, __VA_ARGS__)
#endif
#endif
