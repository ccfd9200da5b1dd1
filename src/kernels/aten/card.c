/*
 * What a card takes from libtorch: products and their gradients, on tensor cores by cuBLAS and
 * cuBLASLt, and attention of packed segments, by FlashAttention-2. They run on the device's stream,
 * between our kernels. Memory, the paged cache and all other entries are those of libares_cuda.so,
 * and so are these where libtorch does not serve: weights of another type than the activations, f32
 * attention, heads whose size is not a multiple of 8 or above 256.
 *
 * A kernel's failure shows when the stream is next waited for, which the table under this one does;
 * what libtorch itself refuses is kept until sync.
 *
 * Each side keeps memory that the other may lack. Where we lack some, libtorch frees its cache
 * (ares_cuda_trim_by); where libtorch does, we free what was released (aten_enter). Both try once
 * more.
 */
#include "aten.h"

#include <stddef.h>

/* ------------------------------------------------------------------ products */

static bool alike(const ares_device *d, const ares_matrix *w)
{
    return w->dtype == d->k->act;
}

/* What is kept as a graph may allocate nothing, which our own products promise. */
static void linear(ares_device *d, const ares_linear_args *args, int n)
{
    bool all = !*aten_keeping(d);
    for (int i = 0; i < n; i++) all = all && alike(d, args[i].w);
    (all ? aten_linear : aten_under(d)->linear)(d, args, n);
}

static void linear_backward(ares_device *d, const ares_linear_backward_args *a)
{
    (alike(d, a->w) ? aten_linear_backward : aten_under(d)->linear_backward)(d, a);
}

/* ------------------------------------------------------------------ attention */

static bool served(const ares_device *d, const ares_attention_args *a)
{
    return !a->cache && d->k->act == ARES_BF16 && a->head_dim % 8 == 0 && a->head_dim <= 256;
}

static void attention(ares_device *d, const ares_attention_args *a)
{
    (served(d, a) ? aten_attention : aten_under(d)->attention)(d, a);
}
static void attention_backward(ares_device *d, const ares_attention_args *a)
{
    (served(d, a) ? aten_attention_backward : aten_under(d)->attention_backward)(d, a);
}

/* ------------------------------------------------------------------ the table */

static bool graph_begin(ares_device *d)
{
    return *aten_keeping(d) = aten_under(d)->graph_begin(d);
}
static void *graph_end(ares_device *d)
{
    *aten_keeping(d) = false;
    return aten_under(d)->graph_end(d);
}
static int fetched(ares_device *d, int slot, const void **host)
{
    return aten_report(d, aten_under(d)->fetched(d, slot, host));
}

int ares_aten_check(void);
int ares_aten_take(ares_device *d, void (**trim)(void));

/* Whether libtorch has what the entries above call. */
int ares_aten_check(void)
{
    static const char *const called[] = {
        "aten::mm.out",          "aten::addmm.out",
        "aten::addmm.dtype_out", "aten::sum.IntList_out",
        "aten::add_.Tensor",     "aten::index_select",
        "aten::index_add_",      "aten::_flash_attention_forward",
        "aten::zero_",           "aten::_flash_attention_backward"
    };
    const char *lacks = at_cuda_lacks(called, ARES_COUNT(called));
    return lacks ? ares_fail(ARES_EUNSUPPORTED, "torch: device = 'cuda': libtorch has no %s there",
                             lacks)
                 : ARES_OK;
}

/*
 * Puts these entries on an open CUDA device; after a failure it stays as it was. *trim frees what
 * libtorch keeps of the card.
 */
int ares_aten_take(ares_device *d, void (**trim)(void))
{
    ARES_TRY(at_cuda_open());
    ARES_TRY(ares_aten_check());
    *trim = at_cuda_trim;
    ares_kernels *k = aten_put_on(d);
    k->linear = linear;
    k->linear_backward = linear_backward;
    k->lists_keys = d->k->act == ARES_BF16; /* where it is `served` */
    k->attention = attention;
    k->attention_backward = attention_backward;
    k->fetched = fetched;
    k->graph_begin = graph_begin;
    k->graph_end = graph_end;
    return ARES_OK;
}
