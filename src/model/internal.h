/*
 * Private to model: architectures, blocks and their buffers, config.json, parameters, regions,
 * the pieces of them that files hold, and the tower of a vision model.
 */
#ifndef ARES_MODEL_INTERNAL_H
#define ARES_MODEL_INTERNAL_H

#include <string.h>

#include "ares/model.h"

/*
 * What a block keeps for its backward, in device memory; void *: of the activations' type. Q =
 * heads x head_dim, K = kv_heads x head_dim, I = intermediate. What one product can compute lies in
 * one row: q, k and v; gate and up. rstd_: factors of a norm per row.
 */
typedef struct block_saved {
    void *x_in; /* [rows][hidden] */
    float *rstd_in;
    void *qkv; /* [rows][Q + 2 K], after norm and rotation */
    /*
     * where q and k have norms: both before them, [rows][Q + K], and the norms' factors per row, or
     * per row and head. NULL where there is no backward: then the norm is computed in place
     */
    void *qk_raw;
    float *q_rstd, *k_rstd;
    void *attn;   /* [rows][Q] */
    void *q_gate; /* attention_gate only: q, before its norm, and a gate by heads, [rows][2 Q] */
    float *lse;   /* [rows][heads] */
    /* where a norm follows: what o gives, [rows][hidden]; NULL without a backward, as qk_raw */
    void *o_out;
    float *rstd_o;
    /* the residual stream between attention and MLP; where there is no backward, x_in in place */
    void *x_mid;
    float *rstd_mid;
    void *gate_up; /* [rows][2 I]; of experts [rows][used][2 width], by slots */
    /*
     * of experts: the router's logits [rows][experts], and where rows go, as in ares_route_args, in
     * memory that the host reads
     */
    void *logits;
    int32_t *expert, *slot_of, *row_of, *first;
    float *weight;
    void *down_out; /* as o_out */
    float *rstd_down;
    /*
     * of a delta net: what the convolution reads [rows][W], z [rows][V], b and a side by side, what
     * the recurrence gives [rows][V], the factors of its norm per row and head, and states
     */
    void *mixed, *z, *ba;
    float *net_o, *net_rstd, *kept;
} block_saved;

/* Buffers that every block uses and none keeps; those named d_ are for backward. */
typedef struct block_scratch {
    /* [rows][hidden], [rows][I]; h is first what products read, then what o or down gives */
    void *h, *act;
    /*
     * of a slice: the attention or activation of all ranks, this rank's columns of the stream, and
     * q and then k where their norms need the columns of all ranks
     */
    void *all, *part, *qk;
    /* d_h is first the gradient of what o or down gives, where a norm follows */
    void *d_h, *d_act, *d_gate_up, *d_attn, *d_qkv;
    void *d_qk; /* where q and k have norms: of both after them, in rows as long as d_qkv's */
    /* of adapters: u of three layers one after the other, [3][rows][rank], and du [rows][rank] */
    void *u, *du;
    int32_t rank; /* the largest of all adapters */
    /*
     * of experts: rows by slots and what experts give them, [rows][used][hidden] each; for
     * backward, c [rows][used] and the gradient of the logits; and in host memory the products of
     * all experts, [2 experts] and twice [2 experts]. entropy: of the routers' choice, [rows]
     */
    void *packed, *out, *d_logits;
    float *c, *entropy;
    ares_linear_args *products;
    ares_linear_backward_args *gradients;
    ares_matrix *both;
    void *gated; /* what o reads where something gates it, [rows][Q or V] */
    void *d_q_gate;
    /* of a delta net: after the convolution and its norm; factors */
    float *conv, *normed, *gates, *norms;
    void *d_z, *d_ba;
    float *d_conv, *d_net_o;
} block_scratch;

/* The tokens of one pass: arrays in device memory. */
typedef struct block_pass {
    int32_t rows;
    ares_segments seg;
    const float *cos_sin[ARES_ROPES]; /* [rows][head_dim]; NULL: the model has no such rotation */
    const int32_t *slots;
    void *cache;                 /* this layer's; NULL: packed */
    float *states, *window;      /* of this layer's delta net; NULL: sequences begin */
    const int32_t *from, *to;    /* [seg.n], their slots */
    const int32_t *kept_at;      /* [seg.n], of a net's states; NULL: rows lie where they were */
    const ares_adapted *adapted; /* [n_adapted] */
    int32_t n_adapted;
    bool moved; /* rows have moved since the forward, and slots of experts are to be found anew */
} block_pass;

/*
 * Places of a block among ares_linear.number: q, k, v, none, o, gate, up, down, or of a delta net
 * qkv, z, b, a, out, gate, up, down.
 */
enum { LORA_OF_BLOCK = 8 };
/*
 * What an adapter adds beside a layer, by ares_linear.number; NULL: nothing. A scale of 0 adds
 * nothing and has no gradients, and never reaches the kernels, to which it would say "none".
 */
static inline const ares_adapter_module *adapter_module(const ares_adapter *a, int32_t number)
{
    const ares_adapter_module *x = a ? &a->module[number] : NULL;
    return x && x->a && x->scale != 0 ? x : NULL;
}

/*
 * The adapters of a pass, and memory for what they compute: u of up to three layers of the same x,
 * one after the other, [3][rows][rank], and for a backward du [rows][rank].
 */
typedef struct adapting {
    int32_t rows;
    const ares_adapted *runs; /* [n_runs], which may name more rows than there are */
    int32_t n_runs;
    void *u, *du;
    int32_t rank; /* the largest of all adapters */
} adapting;

/* x_out = the residual stream after the layer; it may be s->x_in. */
void block_forward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                   const block_scratch *t, void *x_out);
/* dx [rows][hidden]: d loss / d x_out on entry, d loss / d x_in on return. */
void block_backward(const ares_model *m, int layer, const block_pass *p, const block_saved *s,
                    const block_scratch *t, void *dx);

/* ---------------- experts.c: the MLP of a block as a mixture of experts */
/* x_out = s->x_mid + the experts' sum; h: what products read of the stream. */
void experts_forward(const ares_model *m, const ares_model_layer *l, int32_t rows,
                     const block_saved *s, const block_scratch *t, const void *h, void *x_out);
/* d_h = the gradient by h, or d_h += it; dx: that by what the experts' sum was added to. */
void experts_backward(const ares_model *m, const ares_model_layer *l, int32_t rows, bool moved,
                      const block_saved *s, const block_scratch *t, const void *h, const void *dx,
                      void *d_h, bool accumulate);

/* ---------------- net.c: a gated delta net in place of attention */
/* Up to s->net_o; h: what products read of the stream. */
void net_forward(const ares_model *m, const ares_net *net, const block_pass *p,
                 const block_saved *s, const block_scratch *t, const adapting *beside,
                 const void *h);
/* What o reads of it, in t->gated. */
const void *net_output(const ares_model *m, const ares_net *net, int32_t rows, const block_saved *s,
                       const block_scratch *t);
/* After net_output, from t->d_attn, the gradient of that: d_h, or d_h +=, and the parameters'. */
void net_backward(const ares_model *m, const ares_net *net, const block_pass *p,
                  const block_saved *s, const block_scratch *t, const adapting *beside,
                  const void *h, void *d_h, bool accumulate);

/* Buffers of a pass, cut from one allocation. */

/* Hands out consecutive pieces of one allocation; where base is NULL it only counts bytes. */
typedef struct carver {
    char *base;
    size_t at;
    ares_dtype act;
} carver;

static inline void *carve_bytes(carver *c, int64_t rows, int64_t width, size_t each)
{
    void *p = c->base ? c->base + c->at : NULL;
    c->at += ((size_t)(rows * width) * each + 63) / 64 * 64;
    return p;
}
static inline float *carve_floats(carver *c, int64_t rows, int64_t width)
{
    return carve_bytes(c, rows, width, sizeof(float));
}
static inline void *carve(carver *c, int64_t rows, int64_t width) /* activations */
{
    return carve_bytes(c, rows, width, ares_dtype_bytes(c->act));
}

/*
 * Writes config.json, with rope options in their older form, `rope_scaling`; transformers reads
 * both forms from 4.43 on.
 */
int model_config_save(const ares_model_config *c, const char *dir);
/* Writes it as it was read, of a model that has m->config_text. */
int model_config_keep(const ares_model *m, const char *dir);

/* Numbers of a file's type <-> f32, row-major, rounded to nearest even. */
static inline void model_widen(float *to, const void *from, ares_dtype dtype, int64_t n)
{
    ares_matrix w = { .dtype = ARES_F32, .layout = ARES_ROWS, .n = 1, .k = (int32_t)n, .data = to };
    ares_matrix_pack(&w, from, dtype);
}
static inline void model_narrow(void *to, ares_dtype dtype, const float *from, int64_t n)
{
    ares_matrix w = { .dtype = dtype, .layout = ARES_ROWS, .n = 1, .k = (int32_t)n, .data = to };
    ares_matrix_pack(&w, from, ARES_F32);
}

static inline bool model_name_ends(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Whether an expression (PCRE2) takes a name: all of it, its beginning, or a part of it. */
typedef enum { MODEL_MATCH_WHOLE, MODEL_MATCH_START, MODEL_MATCH_INSIDE } model_match;
/* where: what a message begins with */
int model_matches(const char *where, const char *expression, model_match how, const char *name,
                  bool *takes);

/* Sets text_names and vision_names by the names of the tensors of a model's files. */
void model_find_names(const ares_safetensors *s, ares_model_config *c);
/*
 * Makes what is written and then renamed to `path`: a file, open in *fd, or with fd NULL a folder.
 * *part: its name, path.part or the first of path.part1, path.part2 .. that nothing has. (gguf.c)
 */
int model_make_part(const char *verb, const char *path, int *fd, ares_str *part);
/* A head that the files have beside an embedding that config.json ties it to, with other numbers,
 * is its own: tied becomes false, with a warning. */
void model_untie(const ares_safetensors *s, const char *dir, ares_model_config *c);

/* Products of a layer and RMS norms, of the text part and of the tower. */

/* Columns of a delta net's convolution: q, k and v of all heads. */
static inline int32_t net_width(const ares_model_config *c)
{
    return 2 * c->net.k_heads * c->net.k_dim + c->net.v_heads * c->net.v_dim;
}
/* Whether a layer has a delta net. */
static inline bool model_has_net(const ares_model_config *c, int layer)
{
    return c->layer[layer] & ARES_LAYER_NET;
}
static inline const float *param_vector(const ares_param *p)
{
    return p ? p->weight.data : NULL;
}
static inline float *param_vector_grad(const ares_param *p)
{
    return p ? p->grad.data : NULL;
}
/* The address of activation number n of x. */
static inline void *acts_at(const ares_device *d, const void *x, int64_t n)
{
    return (char *)(uintptr_t)x + (size_t)n * ares_dtype_bytes(d->k->act);
}
static inline const void *linear_bias(const ares_linear *l)
{
    return l->bias ? l->bias->act : NULL;
}

/* y = l(x) + residual, which may be NULL; rows of x and of the residual have no gaps. */
ares_linear_args linear_args(int32_t rows, const ares_linear *l, const void *x,
                             const void *residual, void *y, int64_t ldy);
/* Gradients of y = l(x): of the weight unless x is NULL, and dx, that of x, unless it is NULL. */
void linear_backward(ares_device *d, const ares_linear *l, int32_t rows, const void *dy,
                     int64_t lddy, const void *x, void *dx, bool accumulate);
/* Whether b's weight, bias and gradients lie directly after a's, so that one product reads both. */
bool linears_adjacent(const ares_linear *a, const ares_linear *b);
/*
 * The gradients of products of the same x, whose results lie side by side in rows of dy: dx is
 * written, or with accumulate added to. Adjacent weights are one product, so that nothing rounds dx
 * on the way.
 */
void linears_backward(ares_device *d, const ares_linear *const *l, int n, int32_t rows,
                      const void *dy, int64_t lddy, const void *x, void *dx, bool accumulate);

/* y += u Bt for the n layers of the same x, after their products `base`. */
void linears_adapt(ares_device *d, const adapting *a, const ares_linear *const *l,
                   const ares_linear_args *base, int n);
/*
 * From dy and x of a layer, rows without gaps in x and dx: du, and dx += du A, unless dx is NULL;
 * the gradients of A and B, unless x is NULL. The latter alone reads du as it was left.
 */
void linear_adapt_backward(ares_device *d, const adapting *a, const ares_linear *l, const void *dy,
                           int64_t lddy, const void *x, void *dx);

/* dx += the gradient of x, of rows of k, and the weight's gradient; rstd is the forward's. */
void rms_norm_backward(ares_device *d, const ares_param *w, bool plus_one, int32_t rows, int32_t k,
                       const void *dy, const void *x, const float *rstd, void *dx);

/* Where and how the next parameters of a model are added. */
typedef struct listing {
    ares_model *m;
    const char *stem; /* first part of names */
    ares_dtype storage;
    ares_layout layout; /* of matrices */
    int region;         /* of the matrices that are added now */
    int vectors;        /* the region of norms and biases */
    int32_t parts;      /* ranks among which outputs are divided; 1: the model is whole */
} listing;
/* Appends a matrix [n][k], or a vector of n where k is 0. It gets memory when all are listed. */
ares_param *param_add(const listing *l, int32_t n, int32_t k, const char *format, int index);
/* format: without the ".weight" and ".bias" at the end of names */
ares_linear param_add_linear(const listing *l, int32_t n, int32_t k, bool bias, const char *format,
                             int index);
/* Marks a layer whose weight and bias lie directly after those of the layer added before it. */
ares_linear param_beside(ares_linear l);

/*
 * Makes a model with all its parameters, whose values the caller then writes. slice: cfg is that of
 * a slice, which gets its memory from ares_model_slice_take; NULL: the model is no slice.
 */
typedef struct model_slice {
    ares_group *tp; /* NULL: all outputs are its own */
} model_slice;
int model_allocate(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   const model_slice *slice, ares_model **out);
bool param_has_shape(const ares_param *p, const ares_tensor_info *t);
ares_param *model_param(const ares_model *m, const char *name); /* NULL when absent */

/* ---------------- weights.c: numbers of a model in this rank's memory and in files */

/*
 * Calls fn for the rectangles of tensors that hold elements [first, first + n) of a region, in the
 * order of files; together they hold each number once, and padding belongs to none. A rectangle's
 * elements lie side by side in the region from `at` on, as those of a matrix rows x columns would.
 * In PANEL32 first and n are multiples of 32, in PANEL32_PAIRS of 64. The first and the last
 * rectangle of a parameter may be parts of a row or panel; between them are whole ones.
 */
typedef void rectangle_fn(void *ctx, const ares_param *p, int64_t row, int64_t rows, int64_t column,
                          int64_t columns, int64_t at);
void pieces_of_region(const ares_params *ps, int r, int64_t first, int64_t n, rectangle_fn *fn,
                      void *ctx);

/* A rectangle of a parameter's tensor. */
typedef struct piece {
    const ares_param *p;
    int64_t row, rows, column, columns;
    int64_t at;         /* its first element in the region */
    ares_matrix memory; /* [rows][columns], in this rank's memory */
} piece;

/* ---------------- region.c */
int regions_count(const ares_params *ps); /* the frozen ones too */
/*
 * Gives every listed parameter its place, and allocates weights and, where the model is trainable,
 * gradients. What it has allocated when it fails is released by regions_release.
 */
int regions_allocate(ares_params *ps, bool trainable);
/*
 * To be called after weights were written by anything but AdamW: makes the copies of norms and
 * biases in the type of activations anew, and forgets weights that were brought to the device
 * ahead.
 */
int regions_refresh(ares_params *ps);
void regions_give_memory(ares_params *ps); /* ps->weights among regions and parameters */
void regions_release(ares_params *ps);     /* weights, gradients, optimizer states */

/* Begins to bring the weights of region r: call it before launching what comes before r. */
void region_prefetch(ares_params *ps, int r);
/* Whether its parameters have gradients. */
bool region_trained(const ares_params *ps, int r);
/* ares_region_load, region_prefetch and ares_region_unload of all that a block has. */
void block_load(ares_params *ps, const ares_block_regions *in);
void block_prefetch(ares_params *ps, const ares_block_regions *in);
void block_unload(ares_params *ps, const ares_block_regions *in);

/* A region's gradient of a pass is complete: where ranks share weights, it is sent to its owners.
 */
void gradients_leave(ares_params *ps, int region);
/* Around the backward of the embedding's look-up, which adds to m->embed_grad. */
void gradients_begin_look_up(ares_params *ps);
void gradients_end_look_up(ares_params *ps);

/* The names of a block's norms by place, as cfg.norm_names says. (param.c) */
const char *const *model_norm_names(const ares_model_config *c);

typedef struct ares_rope ares_rope;
ares_rope *rope_new(const ares_rope_config *c, int32_t head_dim, int32_t max_position);
void rope_free(ares_rope *r);
/*
 * The cosines, then the sines of one position: [head_dim] (rope.c). length: tokens of the whole
 * sequence; only dynamic scaling depends on it.
 */
void rope_row(ares_rope *r, int32_t position, int32_t length, float *cos_sin);
/* The same for a position in time, row and column, each of which turns its section of the angles.
 */
void rope_row_of_three(ares_rope *r, const int32_t position[3], int32_t length, float *cos_sin);

/*
 * Copies a parameter's tensor (weight, gradient or an optimizer state, all of one layout) from its
 * device to rows [n][k] of the given type in host memory.
 */
int model_get(const ares_params *ps, const ares_matrix *from, void *rows, ares_dtype dtype);

/* Copies to->n rows of `from`, from row `first` on, on the device. (rollout_weights.c) */
void matrix_copy_rows(ares_device *d, const ares_matrix *to, const ares_matrix *from,
                      int32_t first);
/* The reverse: rows in host memory -> the parameter's tensor. */
int model_put(const ares_params *ps, const ares_matrix *to, const void *rows, ares_dtype dtype);
/* into <- (1 - share) into + share from, in double, rounded once. [n] */
void model_mix(float *into, const float *from, int64_t n, double share);
/* The weight [hidden] of a critic's new head, as transformers draws it. */
void model_draw_value_head(uint64_t seed, int32_t hidden, float *out);
/* All weights as one file, with a note in its metadata. *sum (may be NULL): as ares_model_save. */
int params_save(const ares_params *ps, const char *path, const ares_writers *by, const char *note,
                const char *text, uint64_t *sum);

/* ---------------- vision/tower.c: passes over one picture or video (docs/vision.md#tower) */

/*
 * A picture or video as the tower reads it: the values of its patches, f32
 * [t h w][channels][temporal][patch][patch], blocks of merge x merge patches row by row. They are
 * never all there at once: `write` makes n rows of them, from row `first` on, on any thread.
 */
typedef struct tower_input {
    ares_grid grid;
    void (*write)(const void *of, int32_t first, int32_t n, float *values);
    const void *of;
} tower_input;

/* The features: f32 [t h w / merge^2][hidden], host. a: what adapts the tower; NULL: nothing */
int tower_features(ares_model *m, const ares_adapter *a, const tower_input *in, float *features);
/*
 * Adds to the gradients of the tower's parameters, or of the adapter's, some of which are trained.
 * d_features: the derivatives by the features, f32, host, in their order. The forward pass is made
 * again, and keeps the inputs of blocks or everything. Gradients of several pictures add up in the
 * order of calls.
 */
int tower_backward_of(ares_model *m, const ares_adapter *a, ares_keep keep, const tower_input *in,
                      const float *d_features);

/* Adds the tower's parameters after all others; its regions begin at l->region. */
void tower_list(listing *l);
void tower_close(ares_model *m); /* memory of its passes */
/*
 * Attention's windows in a grid: order[i] is the token, in the order of patches, that stands in
 * place i; window w has the places [start[w], start[w + 1]). Both arrays have room for tokens + 1
 * numbers. Returns the number of windows.
 */
int32_t tower_windows(const ares_vision_config *v, ares_grid grid, int32_t *order, int32_t *start);
/*
 * Cosines and sines of rows (or columns) 0 .. n - 1 for heads of `dim` numbers: [n][dim / 4]. Angle
 * j is the row times 10000^(-4 j / dim).
 */
void tower_angles(int32_t dim, int32_t n, float *cosine, float *sine);
/* The row and the column of each patch in the whole picture, in the order of patches. */
void tower_places(const ares_vision_config *v, ares_grid grid, int32_t *y, int32_t *x);

#endif
