/*
 * Numbers that follow from the options: steps of a run, sizes of a batch, floating-point operations
 * (docs/update.md#sizes-that-follow-from-the-options).
 */
#include <math.h>
#include <string.h>

#include "sizes.h"

int64_t train_total_steps(int64_t examples, int64_t drawn, int64_t batch, int64_t epochs,
                          int64_t max_steps)
{
    if (max_steps != ARES_NULL_I64) return max_steps;
    if (drawn == ARES_NULL_I64) drawn = batch;
    /* the remainder of an epoch that makes no draw is left out */
    return examples / drawn * drawn / batch * epochs;
}

bool train_is_due(int64_t step, int64_t total, int64_t every, int64_t epoch)
{
    return step >= total || (every > 0 && (step % every == 0 || (epoch > 0 && step % epoch == 0)));
}

train_sizes train_sizes_of(int64_t batch, int64_t mini_batch, int64_t n, int64_t world,
                           int64_t ulysses, int64_t micro)
{
    train_sizes s = { .global_samples = mini_batch * n, .updates = batch / mini_batch };
    s.per_device = s.global_samples * ulysses / world;
    s.accumulation = micro > 0 ? s.per_device / micro : 0;
    return s;
}

/*
 * Three passes (forward, and two products in backward) of two operations per weight and token, and
 * the products of attention over all pairs of tokens, as EasyR1 counts them.
 */
double train_tflops(const flops_config *c, double tokens, double squares, double seconds)
{
    double h = (double)c->hidden, a = (double)c->heads, k = (double)c->kv_heads,
           d = c->head_dim ? (double)c->head_dim : h / a;
    double layer = 3 * h * (double)c->intermediate + h * (a * d + 2 * k * d + a * d);
    double weights = (double)c->layers * layer + 2 * (double)c->vocab * h;
    return (6 * weights * tokens + 12 * d * a * (double)c->layers * squares) / seconds / 1e12;
}

int64_t train_work(const ares_model_config *m, int64_t tokens, int64_t squares)
{
    flops_config c = { m->hidden,   m->vocab,        m->layers,  m->heads,
                       m->kv_heads, m->intermediate, m->head_dim };
    /* pairs of tokens in attention that cost as much as one token elsewhere */
    double pairs = train_tflops(&c, 1, 0, 1) / train_tflops(&c, 0, 1, 1);
    return tokens * (int64_t)llround(pairs) + squares;
}

/*
 * TFLOP/s of dense bf16 products, and the memory of the largest variant. The first entry whose name
 * is part of the card's counts, so H200 stands before H20.
 */
static const struct card {
    const char *name;
    double tflops, gigabytes;
} cards[] = {
    { "H200", 989, 141 }, { "H100", 989, 96 }, { "H800", 989, 94 },
    { "A100", 312, 80 },  { "A800", 312, 80 }, { "L40", 181.05, 48 },
    { "L20", 119.5, 48 }, { "H20", 148, 141 }, { "910B", 354, 64 },
};

static const struct card *card_of(const char *name)
{
    for (int i = 0; name && i < ARES_COUNT(cards); i++)
        if (strstr(name, cards[i].name)) return &cards[i];
    return NULL;
}

double train_peak_tflops(const char *name)
{
    return card_of(name) ? card_of(name)->tflops : INFINITY;
}
double train_card_bytes(const char *name)
{
    return card_of(name) ? card_of(name)->gigabytes * 1e9 : INFINITY;
}
