/*
 * model: Hugging Face decoders (docs/model.md) from config.json and safetensors, and their one
 * forward pass.
 *
 * Parameters lie in one arena per device. The optimizer writes them in place; rollout, log-prob
 * passes and training read the same memory. A block's forward and backward are written once, over
 * packed tokens, as calls through ares_kernels.
 */
#ifndef ARES_MODEL_H
#define ARES_MODEL_H

#include "ares/config.h"
#include "ares/core.h"
#include "ares/data.h"
#include "ares/dist.h"
#include "ares/io.h"
#include "ares/kernels.h"
#include "ares/media.h"

/* ------------------------------------------------------------------ config.json (config.c) */
typedef enum {
    ARES_ROPE_DEFAULT,
    ARES_ROPE_LINEAR,
    ARES_ROPE_DYNAMIC,
    ARES_ROPE_YARN,
    ARES_ROPE_LLAMA3
} ares_rope_kind;
typedef struct ares_rope_config {
    ares_rope_kind kind;
    double theta, factor, attention_factor; /* attention_factor < 0: derived from factor (yarn) */
    double low_freq_factor, high_freq_factor, beta_fast, beta_slow, mscale, mscale_all_dim;
    int32_t original_max_position; /* 0: max_position */
    /* how many of the angles turn by a token's time, its row and its column; 0 0 0: one position */
    int32_t section[3];
    bool truncate; /* yarn: round the correction bounds to integers */
} ares_rope_config;

/* The vision tower of Qwen2-VL and Qwen2.5-VL (docs/vision.md). */
typedef struct ares_vision_config {
    int32_t depth; /* blocks; 0: the model reads text alone */
    int32_t width, heads, intermediate;
    int32_t out; /* width of its features: the text part's hidden size */
    /* a patch: channels x temporal x patch x patch pixels; merge x merge patches make one token */
    int32_t channels, patch, merge, temporal;
    /* Qwen2.5-VL: RMS norms, silu(gate) * up; otherwise LayerNorm and the activation */
    bool gated;
    ares_activation activation;
    int32_t window; /* side of attention's windows in pixels; 0: every block sees the whole frame */
    uint64_t full_blocks;     /* bit i: block i sees the whole frame */
    double tokens_per_second; /* steps of position per second of a video; 0: one per frame pair */
    int32_t image_token, video_token, vision_start, vision_end; /* ids */
} ares_vision_config;

/* The rotations of a model: that of every layer, or of some; and that of layers of local rope. */
enum { ARES_ROPES = 2 };
/* Where a block may have a norm: of what attention and the MLP read, and of what they add. */
typedef enum {
    ARES_BEFORE_ATTENTION,
    ARES_AFTER_ATTENTION,
    ARES_BEFORE_MLP,
    ARES_AFTER_MLP,
    ARES_BLOCK_NORMS
} ares_block_norm;
/* The norms of q and k: none, one per head, or one over all heads of a row together. */
typedef enum { ARES_QK_NORM_NONE, ARES_QK_NORM_HEADS, ARES_QK_NORM_ROW } ares_qk_norm;
/* The kind of a layer: bits of ares_model_config.layer. */
enum {
    ARES_LAYER_WINDOW = 1,     /* attention sees the last `window` keys */
    ARES_LAYER_NO_ROPE = 2,    /* q and k are not rotated */
    ARES_LAYER_LOCAL_ROPE = 4, /* they are rotated by rope_local */
    ARES_LAYER_EXPERTS = 8,    /* its MLP is a mixture of experts */
    ARES_LAYER_NET = 16,       /* a gated delta net stands in place of attention */
};

enum { ARES_MAX_EOS = 16, ARES_MAX_LAYERS = 1 << 12 };
/* What config.json says, and what a block of its architecture is made of. All 0: Llama's block. */
typedef struct ares_model_config {
    char model_type[32]; /* "qwen2", "gemma3_text" ... (archs of config.c) */
    int32_t vocab, hidden, layers, heads, kv_heads, head_dim, intermediate, max_position;
    float rms_norm_eps;
    bool tied, qkv_bias, o_bias, mlp_bias;
    ares_qk_norm qk_norm;
    /*
     * [ARES_BLOCK_NORMS]: how the files call the norm of each place; NULL: there is none. NULL:
     * Llama's, before attention and before the MLP
     */
    const char *const *norm_names;
    bool norm_plus_one;             /* every norm multiplies by 1 + w (Gemma) */
    float attention_scale;          /* of scores; 0: 1 / sqrt(head_dim) */
    float embed_scale;              /* of the embedding's rows; 0: none */
    ares_activation mlp_activation; /* of gate */
    /* of layers with ARES_LAYER_EXPERTS: how many, how many a token has, and the width inside one
     */
    int32_t experts, experts_used, expert_width;
    bool experts_norm; /* a token's weights are divided by their sum */
    /* one number per token in place of the language model's head (ares_model_options) */
    bool value_head;
    bool no_value_head; /* transformers has no class of it with one */
    /* of layers with ARES_LAYER_NET, as in ares_delta_args and ares_conv_args; 0: there are none */
    struct {
        int32_t k_heads, v_heads, k_dim, v_dim, kernel;
    } net;
    bool attention_gate; /* q_proj gives each head q, then a gate of what attention gives it */
    int32_t turned;      /* numbers of a head that rope turns, the first ones; 0: all */
    /* the text's part stands in text_config, beside that of a tower that is not built */
    bool wrapped;
    int32_t window;                 /* of the layers that have ARES_LAYER_WINDOW; 0: none has */
    uint8_t layer[ARES_MAX_LAYERS]; /* [layers] */
    ares_rope_config rope, rope_local;
    ares_vision_config vision;
    const char *text_names;   /* first part of the names of the text's tensors; NULL: "model" */
    const char *vision_names; /* the same of the tower's tensors; NULL: "visual" */
    double initializer_range;
    ares_dtype file_dtype; /* of the tensors in the files; of a loaded model: as it is stored */
    bool says_dtype;       /* config.json names file_dtype */
    /*
     * bos, pad: -1 = none; eos: the ids of config.json and generation_config.json together, before
     * them that of the tokenizer once ares_model_add_eos has told it. eos[0] is the one to write.
     */
    int32_t bos, pad, n_eos, eos[ARES_MAX_EOS];
} ares_model_config;
int ares_model_config_load(const char *dir, ares_model_config *out);
/*
 * The id of the tokenizer's eos_token (-1: none), or of one that an option names, becomes eos[0].
 * dir: the model, for a warning where its files do not name the id; NULL: none.
 */
int ares_model_add_eos(ares_model_config *c, int32_t id, const char *dir);
/* A word of generation_config.json that has an option here, the option's name and its value. */
typedef struct ares_sampling_word {
    const char *word, *option;
    double value;
} ares_sampling_word;
/*
 * Logs one line with the words of generation_config.json that ask for another sampling than the
 * options own [n] do; the file is not followed. (config.c)
 */
int ares_model_tell_sampling(const char *dir, const ares_sampling_word *own, int n);
/* Whether the token ends a sequence, being one of eos. */
bool ares_model_ends(const ares_model_config *c, int32_t id);

/* ---------------- options of adapters (docs/adapters.md) */
#define ARES_LORA_OPTIONS(X)                                                                     \
    X(i64, rank, "rank", "0", "[0,)",                                                            \
      "rank of the adapters (LoRA) that are trained beside the frozen model; 0: no adapters, "   \
      "all weights are trained; with adapter_path: 0 is the rank of the file")                   \
    X(f64, alpha, "alpha", "64", "(0,)", "what an adapter adds is multiplied by alpha / rank")   \
    X(tree, target_modules, "target_modules", "all-linear", "text|list",                         \
      "the linear layers that get an adapter, as PEFT reads it: all-linear, a list of names or " \
      "of their ends, or a regular expression over whole names")                                 \
    X(tree, exclude_modules, "exclude_modules", "null", "text|list",                             \
      "layers that get none, in the same words")                                                 \
    X(flag, use_rslora, "use_rslora", "false", "", "multiply by alpha / sqrt(rank) instead")     \
    X(tree, rank_pattern, "rank_pattern", "{}", "map",                                           \
      "{expression: rank}: other ranks of single layers; the first that matches counts")         \
    X(tree, alpha_pattern, "alpha_pattern", "{}", "map", "the same for alpha")                   \
    X(tree, layers_to_transform, "layers_to_transform", "null", "number|list",                   \
      "numbers of the blocks whose layers get adapters; null: all; only with a list in "         \
      "target_modules")                                                                          \
    X(tree, layers_pattern, "layers_pattern", "null", "text|list",                               \
      "what stands before the number of a block in a layer's name; null: anything")              \
    X(choice, init, "init", "kaiming", "kaiming|gaussian",                                       \
      "how A starts: uniform within 1 / sqrt(inputs), or normal with deviation 1 / rank; B "     \
      "starts at 0")                                                                             \
    X(text, adapter_path, "adapter_path", "null", "nonempty",                                    \
      "the adapter to start from: a PEFT directory, checkpoint or run, which then gives rank, "  \
      "alpha and layers; null: a new one")                                                       \
    X(i64, seed, "seed", "null", "[0,)", "what A is drawn with; null: worker.rollout.seed")
ARES_OPTION_STRUCT(ares_lora_options, ARES_LORA_OPTIONS);
ares_option_table ares_lora_option_table;
/* Whether adapters are asked for. */
static inline bool ares_lora_wanted(const ares_lora_options *o)
{
    return o->rank > 0 || o->adapter_path;
}

/* Whose adapter it is, and what the user says of it. */
typedef struct ares_lora_side {
    bool critic;
    bool tower; /* a vision tower's layers are among those to choose from */
    /* beside adapter_path: whether these are given, be it as their defaults; then they must agree
     */
    bool says_alpha, says_targets;
} ares_lora_side;
/*
 * Chooses layers of a model, or reads the adapter of adapter_path, as opening it will: fails where
 * that would, and warns of ranks that exceed a side of their matrix and of what takes no layer.
 * dir: the model's
 */
int ares_lora_check(const ares_model_config *base, const ares_lora_options *o,
                    const ares_lora_side *of, const char *dir);

/* ---------------- parameters (param.c, weights.c) */
typedef struct ares_param {
    const char *name; /* as in Hugging Face's files */
    int rank;
    /* of the files; a matrix of more than two axes has rows of all but the first */
    int64_t shape[5];
    ares_matrix weight; /* matrices in the device's layout, vectors f32 ROWS */
    ares_matrix grad;   /* f32, the same layout; data NULL: frozen */
    /*
     * a vector in the type of activations, which is what products read of a bias: the weight itself
     * where that type is f32; NULL for matrices
     */
    const void *act;
    bool wide;        /* F32 in files, whatever type the others have there */
    int64_t elements; /* padding included */
    int region;       /* it lies in regions[region], from element `at` on */
    int64_t at;
    /*
     * directly after the parameter before it in the region, so that one product reads both: k and
     * v after q, up after gate, and their biases
     */
    bool adjacent;
} ares_param;

/*
 * Parameters that lie in one flat array (region.c). A model's regions are, in this order: the
 * embedding, each block, the head where it is not tied, the value head, and last the norms and
 * biases of the whole model, in f32. A region of matrices has them in the order of the parameters
 * (of a block: q, k, v, o, gate, up, down; or the router, and gate, up, down of each expert) and is
 * padded by zeros to a multiple of ARES_SUM_CHUNK times the ranks that share the model.
 *
 * The matrices of a vision tower are regions, too: its patches and merger, and each of its blocks.
 * Where the tower is trained they come after the last head, and its norms and biases are among the
 * model's. Where it is frozen they come after these n_regions, as n_frozen more regions, of which
 * the last holds its norms and biases; these have neither gradients nor states.
 *
 * A region is trained or frozen as a whole. Where ares_model_options.trained leaves out parameters,
 * a region has its trained ones alone, and is missing where it has none (that of norms and biases
 * is then empty); its others are one of the n_frozen regions, in the same order.
 *
 * A parameter begins on a multiple of 256 bytes unless it is adjacent. Gradients have the same
 * layout, optimizer states that of the region's own part.
 */
typedef struct ares_region {
    char name[32]; /* "block 3" */
    ares_dtype dtype;
    bool decay; /* of matrices; false for norms and biases */
    bool tower; /* of a vision tower alone */
    /*
     * each rank has only its own part of the weights and gradients (ARES_SHARE_ALL); never of a
     * tower, because ranks make different numbers of its passes: one per picture of their own
     */
    bool in_parts;
    int64_t elements; /* padding included, which is zero and stays zero */
    /*
     * what this rank's optimizer updates: elements [own_first, own_first + own), one of the equal
     * shards of the ranks; all of norms and biases, and all of the region where nothing is shared
     */
    int64_t own_first, own;
    /*
     * the whole region's, and those from own_first on. weights is NULL while a region that is on
     * the host, or shared, is not loaded; own_weights while one on the host is not
     */
    void *weights, *own_weights;
    /* its weights in host memory, this rank's part where in_parts; NULL: they are on the device */
    void *host;
    void *act; /* of norms and biases: the same in bf16, where activations are bf16; NULL: none */
    /*
     * the same of gradients; NULL: frozen. Where weights are shared, grad of matrices is there only
     * between ares_region_grad and ares_region_sum
     */
    float *grad, *own_grad;
    /*
     * where a mini-batch is several rounds and the gradient is whole in each: the sum over the
     * rounds so far of the slice that this rank adds up in its group; NULL: there is one round
     */
    float *round_sum;
    /*
     * the optimizer's [own], in host memory where share.states_on_host says so; NULL until
     * ares_params_optimizer_alloc, master also where weights are f32
     */
    ares_dtype states; /* of the three */
    void *master, *m, *v;
} ares_region;
int64_t ares_region_chunks(const ares_region *r); /* of ARES_SUM_CHUNK elements */

typedef struct ares_linear {
    ares_param *w, *bias; /* bias may be NULL */
    /*
     * which module of an adapter is beside it: 7 i + 0 .. 6 for q, k, v, o, gate, up, down of block
     * i; after the blocks and the head those of a tower: of each block qkv, proj, gate, up where it
     * is gated, down, and then the merger's two. -1: none may be (routers, experts)
     */
    int32_t number;
} ares_linear;

/* Where the matrices of a block lie: those that are trained, and those that are frozen. */
typedef struct ares_block_regions {
    int trained, frozen; /* -1: it has none */
} ares_block_regions;

/* The parameters of a gated delta net but for its last product, which is the layer's o. */
typedef struct ares_net {
    ares_linear qkv, z, b, a; /* qkv.w NULL: the layer has attention */
    ares_param *conv, *a_log, *dt_bias, *norm;
} ares_net;

typedef struct ares_model_layer {
    int first;                          /* of its parameters, which follow each other in the list */
    ares_param *norm[ARES_BLOCK_NORMS]; /* by place; NULL: there is none */
    ares_param *q_norm, *k_norm;
    ares_linear q, k, v, o;     /* q, k, v: w NULL where there is a net */
    ares_linear gate, up, down; /* w NULL: the MLP is a mixture of experts */
    ares_linear router;
    struct ares_expert *expert; /* [experts]; NULL: the MLP is one */
    ares_net net;
    ares_block_regions in;
} ares_model_layer;

/* An expert of a layer: down(f(gate) * up). */
typedef struct ares_expert {
    ares_linear gate, up, down;
} ares_expert;

/*
 * What the ranks of a group do not all keep: nothing is shared, or each keeps the optimizer states
 * of its own part of every region, or also the weights and gradients of that part alone. No choice
 * changes a bit of a result (docs/ranks.md#sharing).
 */
typedef enum { ARES_SHARE_NONE, ARES_SHARE_STATES, ARES_SHARE_ALL } ares_sharing;
typedef struct ares_model_share {
    ares_group *group; /* the ranks that cut this model into parts; NULL: this process alone */
    /*
     * one rank of each such group, all with the same part: gradients are summed in the group, then
     * among them. NULL: the group is all ranks that train the model
     */
    ares_group *replicas;
    /*
     * a mini-batch is several rounds, each summed over the group by itself (ares_params_end_round);
     * false: it is one, summed when it is done
     */
    bool by_round;
    ares_sharing how;
    bool weights_on_host, states_on_host; /* in host memory, pinned beside a card */
} ares_model_share;

/* The tower: norms have a bias in Qwen2-VL; gate is the only product into the MLP there. */
typedef struct ares_tower_layer {
    ares_param *norm1, *norm1_bias, *norm2, *norm2_bias;
    ares_linear qkv, proj, gate, up, down;
    ares_block_regions in;
} ares_tower_layer;
typedef struct ares_tower {
    ares_param *patches, *norm, *norm_bias;
    ares_linear merge, out;
    ares_block_regions in;             /* of patches and merger */
    bool trained;                      /* some of it */
    ares_tower_layer *layer;           /* [depth] */
    ares_held of_forward, of_training; /* buffers of its passes */
} ares_tower;

/*
 * What one optimizer trains, and files hold: parameters, where they lie, their gradients and
 * states. A model has one, and each adapter beside it (ares_adapter).
 */
typedef struct ares_params {
    ares_device *device; /* borrowed */
    ares_model_share share;
    ares_param *list; /* [n], in the order of files */
    int n;
    ares_map *names; /* of a model: the place in the list by name */
    ares_region *regions;
    int n_regions, n_frozen;
    ares_dtype file_dtype; /* of the tensors in the files of a checkpoint */
    /* the matrix whose rows a pass looks up; NULL: none. tied: it is the head's weight, too */
    const ares_param *embed;
    bool tied;
    /* the look-up's gradient; of tied models apart, and added to the head's once per step */
    ares_matrix embed_grad;
    /* of a slice: its weights lie in memory of rollout's phase (ares_model_slice_take) */
    bool slice;
    ares_held of_rollout;
    bool trainable;        /* gradients are computed, and get memory in ares_params_zero_grad */
    ares_held of_training; /* memory of training's phase, in which the gradients lie */
    void *weights, *grads, *states; /* the arenas: region after region */
    size_t weights_bytes, grads_bytes, states_bytes;
    void *host_weights; /* the arena of regions whose weights lie on the host */
    size_t host_weights_bytes;
    /* places on the device for what is there only while in use. Of weights; NULL: all stay */
    struct ares_slots *slots;
    struct ares_windows *windows;       /* of optimizer states in host memory; NULL: none are */
    struct ares_grad_slots *grad_slots; /* of whole gradients, in grads; NULL: all stay */
    /*
     * device, [n_squares]: where the squares of gradients are summed, chunk by chunk; the chunks of
     * rank after rank where the ranks have parts of their own, norms and biases last
     */
    double *grad_squares;
    int64_t n_squares;
} ares_params;

typedef struct ares_model {
    ares_model_config cfg;
    ares_device *device; /* borrowed */
    ares_params params;
    char *config_text; /* config.json as it was read, to be written again; NULL: made from cfg */
    /* lm_head == embed when tied, and where there is a value head */
    ares_param *embed, *final_norm, *lm_head;
    /* value head: [1][hidden] and [1], as in Hugging Face's token classification; otherwise NULL */
    ares_param *value, *value_bias;
    ares_model_layer *layer;
    ares_tower tower;                   /* where cfg.vision.depth is not 0 */
    struct ares_rope *rope[ARES_ROPES]; /* of cfg.rope and, where a layer has it, cfg.rope_local */
    /* ARES_BF16: weights are ARES_PANEL32_PAIRS, and the KV cache is in bf16 (ares_model_options)
     */
    ares_dtype arithmetic;
    /*
     * where it is trainable: a backward computes the blocks from this one on, the first that has
     * anything to train, or 0 where derivatives go on to the embedding or a tower; the number of
     * blocks: none
     */
    int32_t lowest;
    /* of a slice (rollout_weights.c): the ranks among which the model is divided, borrowed; NULL:
     * the model is whole, as a slice for a group of one is */
    ares_group *tp;
    ares_matrix head; /* this rank's rows of the head, where tp is set */
    bool filled;      /* of a slice: its weights are there since the last fill */
    /* tensors of its files that are not read and are written again as they were; NULL: none */
    struct ares_safetensors *unread;
} ares_model;

/*
 * Weights that are whole on the device only while in use (region.c): a region's weights come to one
 * of a few slots of device memory, from the host or from the ranks that share them. In the latter
 * case all ranks must make the same passes, and a failure to gather is kept for ares_group_sync.
 * Where all weights stay on the device, these functions do nothing.
 */
bool ares_params_by_region(const ares_params *ps); /* whether some come and go */
/* regions[r].weights and its parameters' weight.data are whole until ares_region_unload. Nests. */
void ares_region_load(ares_params *ps, int r);
/* The same where only own_weights are read or written: nothing is gathered. */
void ares_region_load_own(ares_params *ps, int r);
/* Sets the pointers to NULL again, so that a later read faults at once. */
void ares_region_unload(ares_params *ps, int r);
/*
 * To be called after the loaded weights of a region were written: those of the host are copied
 * back, where the host finds them after a sync; a copy that was gathered ahead is dropped as out of
 * date.
 */
void ares_region_store(ares_params *ps, int r);

typedef struct ares_model_options {
    ares_dtype storage; /* of matrices: ARES_F32 or ARES_BF16 */
    /*
     * of products and the KV cache where the device lays weights out in panels: ARES_F32, or
     * ARES_BF16 with a storage of it. Elsewhere the table's own type decides, and this is not read
     */
    ares_dtype arithmetic;
    bool trainable;     /* gradients are computed */
    bool freeze_vision; /* but none of a vision tower, whose weights stay as they are */
    /*
     * expressions (PCRE2) that are searched in transformers' names of parameters: those with a
     * match are trained, the others keep their weights. items NULL: all are trained
     */
    ares_texts trained;
    /* not trainable, with regions laid out as in a model whose tower is trained, and as `trained`
     * says: for ares_model_interpolate */
    bool like_trained;
    /*
     * score.weight and score.bias in place of the language model's head; where the files lack them,
     * the weight is normal(0, 0.02), keyed by value_seed, and the bias 0
     */
    bool value_head;
    uint64_t value_seed;
    const ares_model_share *share; /* NULL: this process alone */
} ares_model_options;
/* dir: a model directory, a checkpoint or a run directory (ares_model_find). */
int ares_model_load(const char *dir, ares_device *device, const ares_model_options *opt,
                    ares_model **out);
/* New weights: normal(0, initializer_range) keyed by (seed, parameter name), norms 1, biases 0. */
int ares_model_new(const ares_model_config *cfg, ares_device *device, const ares_model_options *opt,
                   uint64_t seed, ares_model **out);
/*
 * Ranks that write files together, each what it holds; the files are those that one rank would
 * write (docs/ranks.md#checkpoints). Saving is then a collective.
 */
typedef struct ares_writers {
    ares_world *world;
    bool same_files; /* every rank sees the files of rank 0, and need not send it what it holds */
    /*
     * where ranks send nothing: gets copies of what is to be written, and writes them once it is
     * begun; NULL: everything is written before the call returns
     */
    ares_write_queue *behind;
} ares_writers;
/*
 * Writes config.json and model.safetensors (several files above 5 GB): row-major tensors of
 * cfg.file_dtype under Hugging Face's names. by: NULL: this process alone. *sum, unless NULL: the
 * fingerprint of what was written (ares_params_sum).
 */
int ares_model_save(const ares_model *m, const char *dir, const ares_writers *by, uint64_t *sum);
/*
 * Makes the generation_config.json that was copied beside a saved model name all ids of cfg.eos.
 * Without such a file, one is written where the kept config.json of a vision model lacks the ids.
 */
int ares_model_save_eos(const ares_model *m, const char *dir);
/*
 * Bytes of weights, and of optimizer states where asked, that rank 0 of `ranks` writes; no rank
 * writes more. *largest (may be NULL): bytes of the largest part of a tensor that is copied to be
 * written
 */
int64_t ares_params_save_bytes(const ares_params *ps, bool states, int ranks, int64_t *largest);
/*
 * Fingerprints of the weights and of the optimizer's states, as the files of a checkpoint hold
 * them: sums over all numbers, the same for every number of ranks and every sharing. A collective.
 */
int ares_params_sum(const ares_params *ps, ares_world *world, uint64_t *weights, uint64_t *states);
/*
 * into = share x from + (1 - share) x into, of two models with the same parameters; rounded to the
 * type of into's files, so that saving and loading changes nothing. A collective where ranks share
 * from's weights.
 */
int ares_model_interpolate(ares_model *into, ares_model *from, double share);
void ares_model_free(ares_model *m);
/* A hash of the tensors of a model directory, of some bytes of each; it tells two models apart. */
int ares_model_fingerprint(const char *dir, uint64_t *out);
/*
 * The model directory that `path` means: itself, the model/ of a checkpoint, or that of a run's
 * latest checkpoint; where these have an adapter/ instead, the adapter's base. The error names what
 * was looked for.
 */
int ares_model_find(const char *path, ares_str *dir);
/* The same of its tokenizer, which an adapter/ has where the run had another than the base's. */
int ares_model_find_tokenizer(const char *path, ares_str *dir);
/* Whether `path` is a checkpoint or run with such an adapter, which ares_adapter_load finds, too.
 */
bool ares_model_adapted(const char *path);
/*
 * The adapter that goes with `model`: `adapter`, as --adapter names it, or else model itself where
 * it is such a checkpoint or run, which refuses another one; *out NULL: none.
 */
int ares_model_adapter(const char *model, const char *adapter, const char **out);
/* What merging did to the numbers of adapted matrices, as the type of the file rounds them. */
typedef struct ares_merge_report {
    int32_t modules;
    double largest;         /* change of a number */
    int64_t numbers, moved; /* of adapted matrices: all, and those that differ from the base's */
} ares_merge_report;
/*
 * Writes base + adapter (of ares_model_adapter) as a model directory: W + scale (B A), each sum in
 * f32 in the order of rank, rounded once to `dtype` ("fp32", "bf16", "f16"; NULL: the type of the
 * base's tensor). Other tensors and files are copied; an adapted head of a tied base is written as
 * lm_head.weight. config.json says the type that `dtype` names, and that such a head is not tied.
 * out must not exist.
 */
int ares_adapter_merge(const char *model, const char *adapter, const char *out, const char *dtype,
                       ares_merge_report *report);
/*
 * Writes a model directory (as ares_model_find takes it) as one GGUF file, tokenizer and chat
 * template included (gguf.c; docs/export.md), with the adapter of ares_model_adapter added as
 * ares_adapter_merge adds it. type: "f32", "f16", "bf16" or "q8_0", of matrices; norms and biases
 * are f32. Llama, Qwen 2 and Qwen 3; others are refused by name.
 */
int ares_gguf_export(const char *model, const char *adapter, const char *type, const char *path);
/* Into how many parts, one for each rank of a group, the matrices of a region are cut; 1: none. */
int ares_params_shards(const ares_params *ps);
int ares_params_ranks(const ares_params *ps); /* how many train it together */
/* Waits for the work of the model's groups; returns the first failure since the last call. */
int ares_params_sync(const ares_params *ps);
int64_t ares_params_count(const ares_params *ps); /* numbers in all parameters, without padding */
/* The same for a model that is not loaded. */
int64_t ares_model_config_count(const ares_model_config *cfg);
/* And of those that a token meets: with experts, the ones that it is given to. */
int64_t ares_model_config_active(const ares_model_config *cfg);
/* The numbers that a token has inside an MLP, or inside its experts: the mean over layers. */
double ares_model_config_mlp_width(const ares_model_config *cfg);
/* And in those that opt->trained names; fails where ares_model_load would refuse an expression. */
int ares_model_config_trained(const ares_model_config *cfg, const ares_model_options *opt,
                              int64_t *count);
/*
 * Before the passes of an optimizer step. Gradients have memory of the device's training phase from
 * here until the phase ends; those of parameters point nowhere before.
 */
int ares_params_zero_grad(ares_params *ps);
/*
 * To be called before a gradient of the region is written: where weights are shared, gives the
 * whole gradient a place, all zeros, unless it has one. A backward calls it for its blocks and for
 * the embedding; for the head, the caller that computes its derivatives does.
 */
void ares_region_grad(ares_params *ps, int region);
/*
 * After the last backward of a round, where share.by_round says so: the gradients of matrices, over
 * all ranks of the group, are added to those of earlier rounds, and begin at 0 again. Norms and
 * biases go on, and are summed with the mini-batch; so do all gradients of a group of one rank. A
 * failure is kept for ares_params_sync.
 */
void ares_params_end_round(ares_params *ps);
/* Tied models: lm_head.grad += embed_grad, unless the backward did so. Once per optimizer step. */
void ares_params_join_embed_grad(ares_params *ps);
/*
 * To be called when all ranks have completed a region's gradients: own_grad (grad where nothing is
 * shared) becomes their sum, added from rank 0 up. Where weights are shared, the backward has
 * summed matrices into own_grad already, and grad is NULL again. A failure is kept for
 * ares_group_sync.
 */
void ares_region_sum(ares_params *ps, int region);
/*
 * Memory for AdamW's states, with m = v = 0. of_short: their type for weights stored in bf16. f32:
 * the master starts as the weight; bf16: all three have 16 bits, and the master, which starts at 0,
 * holds what rounding the weight leaves out
 */
int ares_params_optimizer_alloc(ares_params *ps, ares_dtype of_short);
/* States of elements [first, first + n) of a region's own part, on the device. */
typedef struct ares_states {
    int64_t first, n;
    void *master, *m, *v; /* master may be NULL */
} ares_states;
/*
 * The states of a region, stretch after stretch; *s is all 0 before the first. States in host
 * memory come to the device, while the next stretch (also the first of the following region) is on
 * its way, and go back at the next call. false: there are no more. To be called until then, for one
 * region after the other.
 */
bool ares_states_next(ares_params *ps, int region, ares_states *s);
/* Optimizer states as row-major f32 tensors <parameter>.m, .v, .master (weights.c). */
int ares_params_optimizer_save(const ares_params *ps, const char *path, const ares_writers *by,
                               uint64_t *sum);
int ares_params_optimizer_load(ares_params *ps, const char *path);

/* ---------------- adapters beside a frozen model (lora.c; docs/adapters.md)
 * LoRA (Hu et al., arXiv 2106.09685): y = x Wt + bias, then y += (scale (x At)) Bt. Several
 * adapters live on one model at once; a pass names its adapter by rows (ares_adapted). Rows without
 * one have the bits of the model alone, and so have those of an adapter whose B is 0.
 */
typedef struct ares_adapter_module {
    ares_param *a, *b; /* [rank][in], [out][rank]; NULL: the layer has no adapter */
    int32_t rank;
    float scale; /* 0: the layer is the model's own, and A and B have gradients of 0 */
    double alpha;
} ares_adapter_module;
typedef struct ares_adapter {
    ares_params params; /* A and B of all modules in one region; a critic's head in others */
    ares_adapter_module *module; /* [n_modules] by ares_linear.number */
    int32_t n_modules;
    int32_t head; /* the number of the vocabulary head: after those of all blocks */
    int32_t rank; /* the largest of all modules */
    /*
     * the first block that a backward reaches: that has a module, or 0 where derivatives go on to
     * the tower; the number of blocks: the head alone
     */
    int32_t lowest;
    bool tower;              /* some modules are of the vision tower */
    int32_t lowest_of_tower; /* its first block that has one; its depth: the merger alone */
    /* of a critic: [1][hidden] and [1], trained in full; otherwise NULL */
    ares_param *value, *value_bias;
    /* which numbers these are: `id` is never used again in a process (0 is the model itself), and
     * `version` counts the changes */
    uint64_t id, version;
    /* private: as adapter_config.json says it, and the base: saving reads no file of it again */
    struct lora_config *config;
    ares_model_config base;
    const char *base_dir;
    char base_print[17];
    ares_arena arena;
} ares_adapter;
/* Rows of a pass up to `end` (at most all), after those of the run before. */
typedef struct ares_adapted {
    const ares_adapter *adapter; /* NULL: none */
    int32_t end;
} ares_adapted;

typedef struct ares_adapter_options {
    const ares_lora_options *lora;
    /* a run's own adapter, to go on with: it must have what lora asks for. NULL: a new run's */
    const char *checkpoint;
    uint64_t seed;                 /* where lora.seed is null */
    bool trainable;                /* gradients are computed */
    bool tower;                    /* a vision tower's layers are among those to choose from */
    bool value_head;               /* a critic's */
    uint64_t value_seed;           /* as ares_model_options.value_seed */
    const ares_model_share *share; /* of gradients and states; NULL: this process alone */
} ares_adapter_options;
/*
 * A new adapter for the model, or that of the checkpoint or of lora.adapter_path: B is 0, A is
 * drawn by (seed, the module's name), so that a number depends neither on other modules nor on the
 * rank. base_dir: the model's directory, with which stored heads are compared.
 */
int ares_adapter_new(const ares_model *m, const char *base_dir, const ares_adapter_options *opt,
                     ares_adapter **out);
/* The directory that has adapter_config.json: path, its adapter/, or that of a run's last. */
int ares_adapter_find(const char *path, ares_str *dir);
/*
 * The adapter at `path`, a PEFT directory, checkpoint or run, as it is, for passes without a
 * backward. A base_fingerprint that is not of base_dir is a warning.
 */
int ares_adapter_load(const ares_model *m, const char *base_dir, const char *path,
                      ares_adapter **out);
/*
 * Beside a slice of the model among ranks: A whole, and this rank's rows of B. Its numbers are
 * those of ares_adapter_slice_fill, to be called after the whole one has changed.
 */
int ares_adapter_slice(const ares_adapter *whole, const ares_model *slice, ares_adapter **out);
int ares_adapter_slice_fill(ares_adapter *slice, const ares_adapter *whole, const ares_model *of);
/* A copy for passes without a backward, which later changes of `a` do not reach; it can be saved.
 */
int ares_adapter_copy(const ares_adapter *a, const ares_model *m, ares_adapter **out);
void ares_adapter_free(ares_adapter *a);
/*
 * Writes adapter_config.json and adapter_model.safetensors as PEFT does, f32; *sum as
 * ares_model_save. A collective of by's ranks.
 */
int ares_adapter_save(const ares_adapter *a, const char *dir, const ares_writers *by,
                      uint64_t *sum);
/* sqrt of the sum over modules of |scale B A|^2, the Frobenius norm of what it adds to weights. */
int ares_adapter_norm(const ares_adapter *a, double *norm);

/* ---------------- the forward pass over packed tokens (forward.c, block.c) */
/* Buffers of passes, kept from pass to pass; they grow to the largest. */
typedef struct ares_workspace ares_workspace;
/* What a forward keeps for its backward: nothing, the inputs of blocks (recompute), everything. */
typedef enum { ARES_KEEP_NOTHING, ARES_KEEP_INPUTS, ARES_KEEP_ALL } ares_keep;
int ares_workspace_new(ares_model *m, ares_keep keep, ares_workspace **out);
void ares_workspace_free(ares_workspace *w);
/*
 * Passes to come may name adapters of up to this rank. True where the next one therefore takes its
 * buffers anew: addresses of those of passes before are stale.
 */
bool ares_workspace_adapt(ares_workspace *w, int32_t rank);
/*
 * Memory for a round of n micro-batches, each of so many rows and outputs; a pass takes it itself
 * where it is missing. keep: for a backward
 */
int ares_workspace_reserve(ares_workspace *w, int32_t rows, int32_t n_out, int n, bool keep);
size_t ares_workspace_bytes(const ares_workspace *w); /* its memory for activations */
/*
 * Announces such a round without taking memory: the first pass takes each buffer as large as the
 * largest announced round needs it. Returns the bytes of training's phase that all buffers take.
 */
size_t ares_workspace_expect(ares_workspace *w, int32_t rows, int32_t n_out, int n, bool keep);
void ares_workspace_forget(ares_workspace *w); /* forgets what was announced */

/*
 * *hidden: activations [n_out][hidden], after the final norm; device memory of the workspace, valid
 * until its next pass. It does not wait: a kernel's failure shows at the next sync.
 */
int ares_model_forward(ares_model *m, ares_workspace *w, const ares_packed *p, void **hidden);
/*
 * The same for a step of decoding whose arrays, and the angles of each rotation [rows][head_dim],
 * lie on the device already: nothing is copied, and nothing waits.
 */
int ares_model_launch(ares_model *m, ares_workspace *w, const ares_packed *p,
                      const float *const cos_sin[ARES_ROPES], void **hidden);
/* Layers that keep keys and values in a paged cache, one after the other in ares_packed.cache. */
int32_t ares_model_config_caches(const ares_model_config *cfg);
/* Numbers that a sequence carries from token to token in a layer's delta net. */
static inline int64_t ares_net_state(const ares_model_config *c)
{
    return (int64_t)c->net.v_heads * c->net.k_dim * c->net.v_dim;
}
/* The same of its convolution: the last rows of its input. */
static inline int64_t ares_net_window(const ares_model_config *c)
{
    int64_t width =
        2 * (int64_t)c->net.k_heads * c->net.k_dim + (int64_t)c->net.v_heads * c->net.v_dim;
    return (c->net.kernel - 1) * width;
}
/* How many rotations the model has: the first so many of ARES_ROPES. */
int ares_model_ropes(const ares_model *m);
/* angles [n][head_dim] of one: cosines, then sines of the positions from 0, in host memory. */
void ares_model_angles(const ares_model *m, int rope, int32_t n, float *angles);
/* Fails where a sequence of that length cannot be continued from a cache. */
int ares_model_check_length(const ares_model *m, int32_t length);
/*
 * ares_model_forward over the n micro-batches of a round, in the order block after block, and
 * within a block one micro-batch after the other, so that weights that come and go come to the
 * device once. The bits are those of n separate passes. keep: for a backward; the inputs of blocks
 * are kept for all micro-batches, and with more than one of them blocks are computed again even
 * under ARES_KEEP_ALL. hidden [n]; n may be 0.
 */
int ares_model_forward_round(ares_model *m, ares_workspace *w, const ares_packed *p, int n,
                             bool keep, void **hidden);
/*
 * After a forward of the same p with keep, in a workspace with ARES_KEEP_INPUTS or ARES_KEEP_ALL.
 * d_hidden [n]: activations [n_out][hidden], device memory. Adds to the grad of every parameter
 * that is trained.
 */
int ares_model_backward_round(ares_model *m, ares_workspace *w, const ares_packed *p, int n,
                              const void *const *d_hidden);
/*
 * Whether backward passes leave out rows that no derivative reaches
 * (docs/update.md#zero-gradients), where the kernels' table has rows_move; at first they do not.
 */
void ares_workspace_skip_zero(ares_workspace *w, bool skip);
/* Rows of backward passes, and those that a derivative reaches: both 0 without rows_move. */
typedef struct ares_backward_rows {
    int64_t all, active;
} ares_backward_rows;
ares_backward_rows ares_workspace_rows(ares_workspace *w); /* since the last call */
/*
 * What routers have chosen in passes for a backward, since the last call. of_expert
 * [layers][experts] gets how many rows each expert was given; NULL: not wanted.
 */
typedef struct ares_routing {
    int64_t rows;    /* of all layers with experts together */
    int64_t entropy; /* the sum over rows of the entropy of all experts' probabilities, in 2^-32 */
} ares_routing;
ares_routing ares_workspace_routing(ares_workspace *w, int64_t *of_expert);
/* The region of the vocabulary or value head, to be loaded by who computes with the head. */
int ares_model_head_region(const ares_model *m);
/* The weight of the vocabulary head, and its gradient (NULL: frozen). */
const ares_matrix *ares_model_head(const ares_model *m);
const ares_matrix *ares_model_head_grad(const ares_model *m);
/* How the rows of that weight are cut where the model is a slice. */
ares_vocab_parts ares_model_head_parts(const ares_model *m);
/*
 * What an adapter adds to the head over `rows` rows of what a forward in w has given as hidden, in
 * w's memory; false: it has no part in the head. Until w's next forward.
 */
bool ares_model_adapt_head(ares_workspace *w, const ares_adapter *a, const void *hidden,
                           int32_t rows, ares_head_adapter *out);
/* After the head's backward: adds the adapter's part to d_hidden, and its gradient of A. */
void ares_model_adapt_head_backward(ares_workspace *w, const ares_adapter *a,
                                    const ares_head_adapter *h, const void *hidden, int32_t rows,
                                    void *d_hidden);
/*
 * Fails unless every id lies in [0, vocab), and every id that stands for an image or a video lies
 * in one of the places of row_media (NULL: the sequence is text).
 */
int ares_model_check_ids(const ares_model *m, const int32_t *ids, int64_t n,
                         const ares_row_media *row_media);

/* ---------------- vision (vision/; docs/vision.md) */
/* Whether gradients go back through the tower, to its weights or to those of the adapter. */
static inline bool ares_model_trains_tower(const ares_model *m, const ares_adapter *a)
{
    return m->tower.trained || (a && a->tower && a->params.trainable);
}
/*
 * Takes the tower's memory for pictures and videos of up to so many patches. a: the adapter of the
 * passes, or NULL
 */
int ares_model_features_reserve(ares_model *m, const ares_adapter *a, int32_t patches,
                                ares_keep keep);
/* Bytes of that memory. */
size_t ares_model_features_bytes(ares_model *m, const ares_adapter *a, int32_t patches,
                                 ares_keep keep);

/* ---------------- tensor parallelism (rollout_weights.c)
 * A model of this rank's outputs among the ranks of a group, for passes without backward: its share
 * of heads, kv heads and the intermediate width, which its cfg says, of the rows of o and down, and
 * of the vocabulary chunks of the head; the embedding and the norms whole. Activations are gathered
 * four times per block, so every output is one chain on one rank, and a slice computes the bits of
 * the whole model. All ranks of the group make the same passes.
 */
/*
 * A slice has weights of its own: ares_model_slice_take gives them memory, ares_model_slice_fill
 * copies them from the whole model. tp and the model's device are borrowed. tp NULL: this rank
 * alone, whose slice is the whole model; for rollout of a model whose weights come and go.
 */
int ares_model_slice(const ares_model *whole, ares_group *tp, ares_model **out);
/*
 * Takes memory of the device's rollout phase, unless the slice has it already; where it is new,
 * m->filled becomes false. Does nothing for a model that is no slice.
 */
int ares_model_slice_take(ares_model *m);
/* Bytes that ares_model_slice_take would ask for. */
size_t ares_model_slice_wants(const ares_model *m);
/* Copies the weights of the whole model after they have changed. A collective of ranks that share
 * them. */
int ares_model_slice_fill(ares_model *slice, ares_model *whole);

/* ---------------- what a vision model makes of pictures and videos (vision/; docs/vision.md) */
/*
 * How the model in `dir` turns pictures to tokens: by its config.json, which has been read into
 * cfg, and by the files of its processor, which must agree with it.
 */
int ares_media_rules_load(const ares_model_config *cfg, const char *dir, ares_media_rules *out);

/* ---------------- features of pictures, computed once and stored (vision/features.c)
 * A picture's features depend on its pixels, the tower's weights and the adapter beside them alone,
 * so whoever asks again is given the stored ones. They lie in host memory and stay where they are
 * until the next trim, forget, or other version of the weights. Two pictures of the same pixels are
 * one. Pictures are known by their address, which must stay theirs while the store lives. Only the
 * thread that made the store calls these functions.
 */
typedef struct ares_features ares_features;
typedef struct ares_seen {
    const float *features; /* [tokens][hidden] */
    int32_t number;        /* equal for equal pixels */
} ares_seen;
/* a: what adapts the tower in all passes, or NULL; keep_bytes: how much ares_features_trim leaves
 */
int ares_features_new(ares_model *m, const ares_adapter *a, const ares_processor *p,
                      size_t keep_bytes, ares_features **out);
void ares_features_free(ares_features *f);
/* Begins to decode the pictures that are not stored, on the pool of the model's device. */
void ares_features_ahead(ares_features *f, const ares_row_media *s);
/* Whether features of all pictures can be had without waiting for a decoder. */
bool ares_features_ready(ares_features *f, const ares_row_media *s);
/* The features of x: stored ones, or computed now. */
int ares_features_get(ares_features *f, const ares_medium *x, ares_seen *out);
/*
 * Writes the features that packed tokens show to in [p->n_features][hidden], to which p->features
 * then points.
 */
int ares_features_show(ares_features *f, ares_packed *p, float *in);
/*
 * The weights, or the adapter's, have had `version` updates: where the tower is trained, forgets
 * features that another version of them made.
 */
void ares_features_at(ares_features *f, int64_t version);
/*
 * ares_features_show for a tower that is trained: always computes, with the present weights. *off
 * is raised to the largest difference from a stored feature.
 */
int ares_features_show_fresh(ares_features *f, ares_packed *p, float *in, double *off);
/*
 * The backward through the tower, which adds to the gradients of its parameters. d: derivatives by
 * the features, [p->n_features][hidden]; keep: what the forward, which is made again, keeps
 */
int ares_features_backward(ares_features *f, ares_keep keep, const ares_packed *p, const float *d);
/* Drops decoded pixels, and of the features those least recently used, down to keep_bytes. */
void ares_features_trim(ares_features *f);
/* Drops all features: the weights have changed. */
void ares_features_forget(ares_features *f);
bool ares_features_trained(const ares_features *f); /* ares_model_trains_tower */
/* Seconds spent in the tower and in waiting for decoders since the last call. */
double ares_features_seconds(ares_features *f);
#endif
