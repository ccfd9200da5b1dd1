/* Private to the rollout room: what its files share. */
#ifndef ARES_ROLLOUT_INTERNAL_H
#define ARES_ROLLOUT_INTERNAL_H

#include "ares/kernels.h"
#include "ares/rollout.h"

/*
 * ---------------- scheduler.c: the blocks of the paged cache, counted by reference, and their
 * index A full block that is kept (in the index) has a serial number, and is found again by its
 * tokens and the serial number of its parent, the block before it in the sequence (0: none). So an
 * equal number means an equal prefix, with no chance of a collision. A kept block without users is
 * idle: it can be found until its memory is needed, and the block that has been idle longest is
 * given away first. The last block of a finished sample is kept though it is not full. It has no
 * user then; the first request that takes it goes on filling it, and so takes it out of the index.
 */
typedef struct rollout_blocks {
    int32_t total, n_free, n_idle;
    int32_t *free_list; /* [total], a stack: the block freed last is still in the CPU's cache */
    int32_t *refs;      /* [total] users of each block */
    uint64_t *serial, *parent, last_serial; /* [total]; serial 0: not kept */
    int32_t *ids, *filled;                  /* [total][ARES_KV_BLOCK] of kept blocks, [total] */
    int32_t *bucket, *next;                 /* [buckets] first kept block, [total] the next; -1 */
    int32_t buckets;                        /* a power of two */
    int32_t *older, *newer, oldest, newest; /* [total], the idle blocks; -1: none */
} rollout_blocks;
void rollout_blocks_init(rollout_blocks *b, int32_t total);
void rollout_blocks_fini(rollout_blocks *b);
void rollout_blocks_reset(rollout_blocks *b);
int32_t rollout_blocks_available(const rollout_blocks *b); /* free or idle */
int32_t rollout_block_take(rollout_blocks *b);             /* -1 when none is available */
void rollout_block_ref(rollout_blocks *b, int32_t block);
void rollout_block_drop(rollout_blocks *b, int32_t block);
/* The kept block with this parent and these ids [ARES_KV_BLOCK]; -1: there is none. */
int32_t rollout_block_find(const rollout_blocks *b, uint64_t parent, const int32_t *ids);
/*
 * Keeps a computed block of ids [n], and gives its serial number; that of an equal full one where
 * there is one.
 */
uint64_t rollout_block_keep(rollout_blocks *b, int32_t block, uint64_t parent, const int32_t *ids,
                            int32_t n);
/*
 * Takes, of the kept blocks that are not full, the longest one whose tokens begin ids [n];
 * b->filled[block] is its length. The caller becomes its user. -1: there is none.
 */
int32_t rollout_block_take_part(rollout_blocks *b, uint64_t parent, const int32_t *ids, int32_t n);

/* ------------------------------------------------------------------ a prompt and its samples */
typedef struct block_list {
    int32_t *block; /* [cap] */
    int32_t n;
    int32_t n_kept; /* how many of the first are full and in the index */
    uint64_t kept;  /* serial number of the last of them; `root` where there is none */
    /* what stands for the parent of the first block: no other adapter's or version's is equal */
    uint64_t root;
} block_list;

/*
 * Of drafts by how they were found (drafts.c): tokens that were drafted up to the first wrong one,
 * how many were right, and drafts that were not made because they do not pay.
 */
enum { ROLLOUT_DRAFT = 8, DRAFT_CLASSES = 3 }; /* tokens of a draft at most */
typedef struct draft_counts {
    double tried, right;
    int32_t passed;
} draft_counts;

typedef struct request {
    int64_t id;  /* in the order of arrival, the same on all ranks of a group */
    int64_t own; /* the number that ares_rollout_add gave; -1: another rank asked for it */
    const int32_t *prompt;
    const int32_t *content; /* [prompt_len] the prompt, by which blocks are found: pictures' tokens
                             * are replaced by what they show */
    const ares_row_media *row_media; /* NULL: text alone */
    const ares_seen *seen;
    const ares_adapter *adapter; /* NULL: the model alone */
    int32_t prompt_len, response_len;
    int32_t n, first_index, waiting; /* waiting: samples without a cache of their own */
    int32_t parked;                  /* those in SEQ_PARKED */
    int64_t start;                   /* on the clock of ares_rollout_hold */
    ares_sampling sampling;
    block_list blocks;  /* the prompt's; held while samples wait */
    int32_t cached;     /* prompt tokens in the cache */
    int32_t slot;       /* of the delta nets' states after those tokens; -1: none */
    uint64_t end;       /* serial number of the block that got its snapshot; 0: there was none */
    bool sampled;       /* the first token of every sample is drawn */
    int32_t reused;     /* prompt tokens that were found in the cache */
    int32_t n_likely;   /* as ares_request.n_likely */
    int32_t handed_out; /* samples that ares_rollout_next gave */
    void (*look)(void *ctx, int32_t index, int32_t at, int32_t token, const float *logits);
    void *look_ctx;
    ares_prompt_scores_wanted scores;
    /* as ares_prompt_scores lays them out; NULL: not wanted */
    float *score_log_probs, *score_likely_log_probs;
    int32_t *score_ranks, *score_likely_tokens;
    draft_counts drafts[DRAFT_CLASSES];
    ares_arena *arena; /* where all of this lies: memory, or the engine's */
    ares_arena memory;
    struct sequence *samples; /* [n] */
    struct request *next;     /* in order of arrival */
} request;

/* SEQ_NEW: its first token is not drawn yet. SEQ_PARKED: held, with its blocks. */
typedef enum { SEQ_NEW, SEQ_WAITING, SEQ_RUNNING, SEQ_PARKED, SEQ_FINISHED } sequence_state;
typedef struct sequence {
    request *request;
    int32_t index;
    sequence_state state;
    int32_t n, cap; /* generated tokens; columns are [cap] */
    int32_t limit;  /* it ends with so many */
    /*
     * tokens that are launched and not yet read (none on the CPU); the last of them is number `out`
     * of its plan
     */
    int32_t under_way, out;
    bool cut; /* the limit is that of ares_rollout_cut */
#define COLUMN(type, name, recorded, text) type *name;
    ARES_ROLLOUT_COLUMNS(COLUMN)
#undef COLUMN
    int32_t *likely_tokens; /* [cap][request->n_likely] */
    float *likely_log_probs;
    ares_finish finish;
    block_list blocks;
    int32_t cached; /* tokens of prompt and response in the cache */
    int32_t slot;   /* as in request, after `stated` tokens; these are all that are cached, but for
                     * what a draft has to prove */
    int32_t stated;
    int32_t ahead; /* slot of the states after the tokens of its draft; -1: none */
    int32_t to;    /* while a forward is planned: as many as it will have; 0: as before */
    int32_t draft[ROLLOUT_DRAFT], n_draft, draft_class; /* while its forward is planned */
    ares_rng_key key;
    ares_decoder decoder; /* these two only with stop strings */
    ares_str tail;        /* the text so far */
} sequence;

/*
 * What the sampler reads and writes per token it draws: X(type, name, width). out_rows: the row of
 * the forward whose hidden state it is; out_seq: whose next token it is; out_draft: the token that
 * the plan's next row of that sample takes it to be, -1: there is no such row; the others as in
 * ares_sample_args.
 */
#define PLAN_OUT_COLUMNS(X)               \
    X(int32_t, out_rows, 1)               \
    X(sequence *, out_seq, 1)             \
    X(int32_t, out_draft, 1)              \
    X(float, temperature, 1)              \
    X(float, top_p, 1)                    \
    X(int32_t, top_k, 1)                  \
    X(ares_rng_key, key, 1)               \
    X(int32_t, token, 1)                  \
    X(float, log_prob, 1)                 \
    X(float, entropy, 1)                  \
    X(float, log_prob_1, 1)               \
    X(float, entropy_1, 1)                \
    X(int32_t, likely_token, r->n_likely) \
    X(float, likely_log_prob, r->n_likely)

/*
 * One forward's rows: who they belong to and where they go. At most max_rows rows, and as many
 * segments.
 */
typedef struct plan {
    int32_t rows, n_seg, n_out;
    int32_t *ids, *positions, *slots; /* [max_rows] */
    /* of a vision model, else NULL: [max_rows] */
    int32_t *positions_h, *positions_w, *feature_rows;
    float *features; /* [max_rows][hidden], of rows feature_rows [n_features] */
    int32_t n_features;
    /* [max_rows]: where the id is not known yet, which token of the plan before it is; else -1 */
    int32_t *from;
    int32_t *start, *prefix_len, *table; /* [max_rows + 1], [max_rows], [max_rows][stride] */
    int32_t *state_from, *state_to;      /* [max_rows], as in ares_packed */
    ares_adapted *adapted;               /* [max_rows] runs of rows, by their adapters */
    int32_t n_adapted;
    int32_t out_cap;
/* [out_cap][width] */
#define COLUMN(type, name, width) type *name;
    PLAN_OUT_COLUMNS(COLUMN)
#undef COLUMN
    bool want_1;      /* some temperature is neither 0 nor 1 */
    bool want_likely; /* some sample records likely tokens */
    /*
     * rows of prompts whose scores are wanted: they stand in out_rows after the n_out that draw
     */
    int32_t n_scores, scores_cap;
    struct score_row *scores; /* [n_scores] */
} plan;
/* One token of one row of a prompt: what becomes of the hidden state of row `row` of the forward */
typedef struct score_row {
    struct request *request;
    int32_t row, at, k; /* at, k: the row and the target of the request's scores */
} score_row;

/*
 * ---------------- states.c: what a sequence carries in the delta nets of a model (docs/model.md):
 * a slot in each of their layers, held as long as its blocks are. A snapshot is a slot that nobody
 * holds any more, with the state after the last token of a block in the index; it is found by that
 * block's serial number, and is void when the block is given away. Where slots run out, the
 * snapshot that has been unused longest goes; memory grows for samples that are parked alone
 */
typedef struct rollout_snapshot {
    uint64_t serial;
    int32_t block, slot;
    uint64_t used; /* when it was kept or found last */
} rollout_snapshot;
typedef struct rollout_states {
    ares_device *device;
    const ares_model_config *cfg; /* NULL: the model has no delta nets */
    const rollout_blocks *blocks;
    int32_t cap, n_free;
    int32_t *free_list;       /* [cap] */
    float **states, **window; /* [layers] of [cap] slots; NULL where a layer has attention */
    rollout_snapshot *snapshots;
    int32_t n_snapshots, most; /* most: snapshots at a time */
    uint64_t now;              /* counts uses */
} rollout_states;
/* slots: of samples and prompts; most: snapshots beside them */
int rollout_states_init(rollout_states *t, const ares_model *m, const rollout_blocks *blocks,
                        int32_t slots, int32_t most);
void rollout_states_fini(rollout_states *t);
size_t rollout_states_each(const rollout_states *t); /* bytes of a slot in all layers */
void rollout_states_reset(rollout_states *t); /* all slots are free, and no snapshot is left */
/* A slot for who has none yet (*slot -1); its numbers are whatever they were. */
void rollout_state_take(rollout_states *t, int32_t *slot);
void rollout_state_drop(rollout_states *t, int32_t *slot);
void rollout_state_copy(const rollout_states *t, int32_t to, int32_t from);
/* The slot becomes the snapshot of a block of the index, or is free where there is one already. */
void rollout_snapshot_keep(rollout_states *t, int32_t block, int32_t *slot);
/* The snapshot of the block with this serial number; NULL: there is none. */
rollout_snapshot *rollout_snapshot_find(const rollout_states *t, uint64_t serial);

typedef struct rollout_ahead rollout_ahead;
typedef struct rollout_peers rollout_peers;
struct ares_rollout {
    ares_model *model;
    const ares_tokenizer *tokenizer;
    ares_workspace *workspace;
    ares_rollout_options options;
    ares_vocab_parts head_parts; /* of a slice */
    int32_t max_seqs, max_rows, max_len, stride;
    int32_t n_likely; /* likely tokens the sampler lists: for entropies_1, most_likely, or both */
    rollout_blocks blocks;
    rollout_states states;
    char *cache;
    ares_held cache_memory;
    size_t cache_bytes, block_bytes; /* block_bytes: of a block in one layer */
    int64_t layer_bytes; /* of the cache: its blocks, and one for padding where steps have any */
    ares_arena arena;
    request *first, *last;
    int64_t n_requests, unfinished;
    int64_t n_added;      /* by this rank */
    request *dropped;     /* to be freed when no step under way names them */
    rollout_peers *peers; /* NULL: this rank decodes alone */
    int64_t until, held;  /* the clock; unfinished samples that it holds */
    sequence **running;   /* [max_seqs], in order of admission */
    int32_t n_running;
    /* [max_seqs]: blocks from which samples start, and theirs; not yet made */
    int32_t (*copies)[2];
    int32_t n_copies;
    sequence **finished; /* all that finished; those from next_finished on are not yet handed out */
    int64_t n_finished, next_finished, finished_cap;
    plan plans[2], *plan; /* plan: the one that is made, or was made last */
    const void *hidden;   /* of the plan's n_out, until the next forward; NULL: on a card */
    bool drafts_tokens;
    draft_counts drafts[DRAFT_CLASSES];
    plan *flying;         /* launched, its tokens not yet read; NULL: none */
    rollout_ahead *ahead; /* NULL: every step is read before the next one is made */
    ares_rollout_stats stats;
};

/* Whether positions have three axes. */
static inline bool rollout_sees(const ares_rollout *r)
{
    return r->model->cfg.rope.section[0] > 0;
}
static inline int32_t blocks_for(int32_t tokens)
{
    return (tokens + ARES_KV_BLOCK - 1) / ARES_KV_BLOCK;
}
/* Tokens of prompt and response, those under way included. */
static inline int32_t sequence_len(const sequence *s)
{
    return s->request->prompt_len + s->n + s->under_way;
}

/* Whether the clock of ares_rollout_hold lets it get no further token. */
static inline bool sequence_held(const ares_rollout *r, const sequence *s)
{
    return s->n >= r->until - s->request->start;
}
/* Whether the token under way is its last, or its last before the time of ares_rollout_hold. */
static inline bool sequence_full(const ares_rollout *r, const sequence *s)
{
    int64_t n = s->n + s->under_way;
    return s->under_way && (n >= s->limit || n >= r->until - s->request->start);
}

/* ---------------- engine.c: the arguments of model and sampler that are the same in every step */
ares_packed rollout_packed(const ares_rollout *r);
ares_sample_args rollout_sampler(const ares_rollout *r);
/*
 * Draws the next tokens of the plan's out_seq, whose arguments `a` has on the device, run by run
 * where adapters of theirs have parts in the head; `a` may have rows of padding after them
 */
void rollout_sample(ares_rollout *r, const plan *p, const ares_sample_args *a);

/* ---------------- pipelined.c: launches a step before the tokens of the step before are read */
/* *out: NULL where the device offers none of this, as the CPU, which computes at once. */
int rollout_ahead_new(ares_rollout *r, rollout_ahead **out);
void rollout_ahead_free(ares_rollout *r, rollout_ahead *a);
/* The next step takes its buffers anew: no graph of steps so far, and none before there is one. */
void rollout_ahead_forget(ares_rollout *r);
/* Launches the plan's forward and tokens, and waits for nothing. */
int rollout_ahead_launch(ares_rollout *r, const plan *p);
/* Waits for the plan's tokens, and fills its columns. */
int rollout_ahead_collect(ares_rollout *r, const plan *p);

/* ---------------- scores.c: scores of prompts */
bool rollout_scores_wanted(const request *q);
void rollout_scores_open(request *q);
void rollout_scores_plan(ares_rollout *r, request *q, int32_t from, int32_t to);
/* hidden: of the plan's forward, whose out_rows end with the rows of its scores */
void rollout_scores_compute(ares_rollout *r, const plan *p, const void *hidden);
/* Shows the logits of token i of the plan, which is the next of its sample, to those who look. */
void rollout_scores_look(ares_rollout *r, const plan *p, int32_t i);

/* ---------------- drafts.c: tokens that samples may draw next */
int32_t rollout_most_drafts(const ares_rollout *r); /* samples that have one at a time */
int32_t rollout_most_out(const ares_rollout *r);    /* tokens that a forward draws at most */
/* Fills the draft of a sample, one of so many in the forward, with at most `room` tokens. */
void rollout_draft(ares_rollout *r, sequence *s, int32_t running, int32_t room);
/* Of its draft the first `right` were drawn; wrong: then another one. */
void rollout_draft_read(ares_rollout *r, sequence *s, int32_t right, bool wrong);

/* ---------------- scheduler.c */
/* Room in the columns of the plan's n_out for so many. */
void rollout_plan_reserve(ares_rollout *r, plan *p, int32_t n);
/*
 * Fills r->plan with the rows of the next forward. It has none only where all remaining samples
 * wait for tokens that are under way.
 */
void rollout_schedule(ares_rollout *r);
/* After the forward: puts the full blocks that it completed into the index. */
void rollout_keep_blocks(ares_rollout *r);
/*
 * Puts the blocks of a sample that is about to end into the index; the last may not be full. Of a
 * model with delta nets: as far as its state has come, which becomes a snapshot.
 */
void rollout_keep_part(ares_rollout *r, sequence *s);
/* Running samples that the clock holds leave their places, and keep their blocks. */
void rollout_park(ares_rollout *r);
/* Gives back the blocks of a sample, and its place among the running ones. */
void rollout_release_sequence(ares_rollout *r, sequence *s);
/* Gives back the prompt's own blocks once no sample waits. */
void rollout_release_prompt(ares_rollout *r, request *q);
#endif
