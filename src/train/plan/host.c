/*
 * Memory of a process on the CPU that the device does not hand out: scratch of the kernels, rows of
 * a step on their way from the engine to the update, tokenizer and data, and the program itself
 * (docs/ranks.md#what-a-run-needs).
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/core.h"
#include "plan/plan.h"
#include "trainer.h"

/*
 * Bytes of the program: its pages and its libraries' that a run touches, options and other small
 * parts of the heap; bytes that MPI adds; stack and heap of a thread. Measured on x86-64 with
 * glibc.
 */
static const double PROGRAM = 11.5e6, MPI = 10.5e6, THREAD = 0.1e6;

/* ---------------- kernels */
/*
 * Blocks of 32 keys that attention lays out in a pass over a micro-batch. n: rows of a group that
 * share their prompt; 1: none do
 */
static int64_t blocks(const peak_micro *m, int64_t n)
{
    int64_t shared = m->prompt / 32, all = (m->prompt + m->response - 1 + 31) / 32,
            tokens = ARES_MAX(m->tokens, m->groups * m->group);
    int64_t of_group = n > 1 ? shared + n * (all - shared) : all;
    return tokens / ARES_MAX(1, m->group) * of_group + (tokens % ARES_MAX(1, m->group) + 31) / 32;
}

enum { MOST_PACKED = 2048 }; /* rows of an operand that a product packs at once */

/* Scratch of the kernels, for the larger of the two kinds of micro-batches. */
static double scratch(const ares_trainer *t, const plan_where *where, const plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const ares_model_config *model = &t->run.model->cfg;
    const peak_micro *micro[] = { &p->micro, &p->pairs };
    size_t most = 0;
    for (int i = 0; i < ARES_COUNT(micro); i++) {
        const peak_micro *m = micro[i];
        ares_scratch_args a = { .vocab = model->vocab,
                                .hidden = model->hidden,
                                .n_heads = model->heads,
                                .n_kv_heads = model->kv_heads,
                                .head_dim = model->head_dim,
                                .widest = ARES_MAX(ARES_MAX(model->vocab, model->intermediate),
                                                   model->expert_width),
                                .threads = where->threads,
                                .k_dim = model->net.k_dim,
                                .v_dim = model->net.v_dim,
                                .v_per_key = model->net.v_heads / ARES_MAX(1, model->net.k_heads),
                                .trained = !c->trainer.val_only };
        if (t->run.model->arithmetic == ARES_BF16) { /* operands of the largest pass, packed */
            int64_t fed = c->rollout.max_num_batched_tokens;
            a.pair_words = t->run.device.k->pair_words;
            a.packed_width = ARES_MAX(
                ARES_MAX(ARES_MAX(model->intermediate, model->expert_width), model->hidden),
                ARES_MAX(model->heads * model->head_dim, model->net.v_heads * model->net.v_dim));
            a.packed_rows = ARES_MAX(m->tokens, m->groups * m->group);
            if (where->reinforcement)
                a.packed_rows = ARES_MAX(a.packed_rows, fed == ARES_NULL_I64 ? MOST_PACKED : fed);
        }
        if (i && !m->tokens) continue;
        if (a.trained) {
            bool beside = where->reinforcement && actor_beside(&t->actor),
                 exact = beside && !t->actor.kl->value && !t->teacher;
            bool share = where->reinforcement && c->actor.share_prompts;
            a.shares = share || (where->reinforcement && c->critic.share_prompts);
            a.rows = m->out;
            a.blocks = blocks(m, share ? (i ? 2 : c->rollout.n) : 1);
            a.longest = share ? ARES_MAX(m->prompt, m->response) : m->prompt + m->response;
            a.fused = !exact && !(t->actor.loss && !(t->actor.loss->flags & ARES_LOSS_LOCAL));
            a.ref = exact;
            a.diverges = beside && !exact;
        }
        if (where->reinforcement) {
            a.sampled = ARES_MIN(c->rollout.max_num_seqs, p->answered);
            a.filters = c->rollout.top_p < 1 || c->rollout.top_k > 0;
            if (strcmp(c->rollout.entropy_mode, "topk_tail") == 0)
                a.n_likely = (int32_t)c->rollout.entropy_topk;
        }
        most = ARES_MAX(most, ares_kernels_scratch_bytes(&a));
    }
    return (double)most;
}

/* ---------------- rows */
/* Bytes of a token's numbers in the columns of a list. */
#define COLUMN(type, name, owner, doc) +sizeof(ares_column_##type)
enum { RECORDED = 0 ARES_BATCH_RECORDED(COLUMN), MARKED = sizeof(uint8_t) + sizeof(float) };
#undef COLUMN

/*
 * Bytes that the engine holds of an answer. Its columns double as it grows, and the arena keeps the
 * shorter ones.
 */
static double in_engine(const ares_train_config *c, int64_t tokens)
{
    int64_t numbers = 0;
    struct {
        bool most_likely;
    } options = { c->rollout.trigger_match && strcmp(c->rollout.trigger_match, "argmax") == 0 },
      *o = &options;
#define COUNT(type, name, recorded, text) numbers += recorded;
    ARES_ROLLOUT_COLUMNS(COUNT)
#undef COUNT
    int64_t all = 0;
    for (int64_t cap = 64; cap < tokens; cap *= 2) all += cap;
    return (double)((all + tokens) * numbers * 4);
}

/* Rows of a step: in the engine, then in the batch, with what estimators and update compute. */
static double rows_of_a_step(const ares_trainer *t, const plan *p)
{
    const ares_train_config *c = t->run.cfg;
    double tokens = (double)(p->answered * p->micro.response);
    /* bytes of a token of the batch */
    size_t f = sizeof(float), bytes = RECORDED + (t->agents ? MARKED : 0);
    bool exact = actor_beside(&t->actor) != NULL, diverges = exact && t->teacher;
    bytes += 5 * f;                      /* scores, rewards, old, advantages, returns */
    bytes += (t->ref ? 2 : 0) * f;       /* log-probs, kl */
    bytes += 2 * sizeof(double) + 6 * f; /* of the estimator; of the update */
    bytes += exact ? 3 * f : 0;
    bytes += t->teacher ? 7 * f : 0; /* what it found of a token, for metrics */
    bytes += diverges ? sizeof(ares_divergence_row) + 2 * f : 0; /* with the teacher's own batch */
    bytes += t->adv->needs & ARES_NEEDS_SUM_PI_SQUARED ? sizeof(double) + f : 0;
    bytes += t->critic ? sizeof(double) + 2 * f : 0;
    bytes += strcmp(c->loss.rollout_is, "none") != 0 ? f : 0;
    bytes += ares_rollout_corrects(&c->loss) ? 3 * sizeof(double) + 3 : 0; /* ratios; two masks */
    return (double)p->answered *
               (in_engine(c, p->micro.response) + 2 * (double)sizeof(ares_sample)) +
           tokens * (RECORDED + (double)bytes);
}

/* ---------------- files */
/*
 * Measured. OF_TOKENIZER: bytes of memory per byte of tokenizer.json; OF_ROW: of a row beside its
 * text; OF_TEXT: per byte of a row's text, without its tokens; PACKED: bytes of text per byte of a
 * packed file.
 */
static const double OF_TOKENIZER = 11, OF_ROW = 550, OF_TEXT = 4, PACKED = 4;
enum { LOOKED_AT = 1 << 16, LONG_ROW = 1000 }; /* bytes of a file; of a row of a packed one */

static double file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (double)st.st_size : 0;
}

/* Bytes of memory of a file's rows. of_text: per byte of their text, tokens included */
static double rows_of_file(const char *path, double of_text)
{
    char start[LOOKED_AT];
    const char *end = strrchr(path, '.'), *why;
    bool packed = !end || strncmp(end, ".json", 5) != 0;
    double text = file_bytes(path) * (packed ? PACKED : 1), rows = text / LONG_ROW;
    if (!packed) { /* a line is a row: as many per byte as in the beginning of the file */
        int fd = ares_file_open(path, &why);
        ssize_t n = fd >= 0 ? read(fd, start, sizeof start) : 0;
        int64_t lines = 0;
        if (fd >= 0) (void)close(fd);
        for (ssize_t i = 0; i < n; i++) lines += start[i] == '\n';
        if (lines) rows = text * (double)lines / (double)n;
    }
    return rows * OF_ROW + text * of_text;
}

double plan_texts(const ares_train_config *c)
{
    const ares_texts *files[] = { &c->data.train_files, &c->data.val_files };
    const char *dir = c->actor.tokenizer_path ? c->actor.tokenizer_path : c->actor.model_path;
    ares_str path = { 0 };
    double tokenizer = dir ? file_bytes(ares_path_join(&path, dir, "tokenizer.json")) : 0,
           bytes = OF_TOKENIZER * tokenizer;
    double of_text = OF_TEXT + (tokenizer > 1e5 ? 1 : sizeof(int32_t)); /* a token is a letter */
    ares_str_fini(&path);
    for (int i = 0; i < ARES_COUNT(files); i++)
        for (int64_t f = 0; f < files[i]->count; f++)
            bytes += rows_of_file(files[i]->items[f], of_text);
    return bytes;
}

void plan_count_host(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const ares_params *ps = t->run.adapter ? &t->run.adapter->params : &t->run.model->params;
    double bytes[PLAN_OWNERS_N] = { 0 };
    /* the largest part of a gradient that ranks bring together */
    int64_t summed = 0, ranks = ares_group_size(ps->share.group);
    for (int i = 0; i < ps->n_regions; i++) {
        int64_t slice = (ps->regions[i].elements + ranks - 1) / ranks;
        summed = ARES_MAX(summed, ares_group_sum_bytes(ps->share.group, slice));
        summed = ARES_MAX(summed, ares_group_sum_bytes(ps->share.replicas, ps->regions[i].own));
    }
    bytes[PLAN_KERNELS] = scratch(t, where, p);
    bytes[PLAN_ROWS] = where->reinforcement && !c->trainer.val_only ? rows_of_a_step(t, p) : 0;
    bytes[PLAN_SUMS] = c->trainer.val_only ? 0 : (double)summed;
    bytes[PLAN_TEXTS] = where->texts;
    bytes[PLAN_BASE] = PROGRAM + (where->ranks > 1 ? MPI : 0) + where->threads * THREAD;
    for (int i = 0; i < PLAN_OWNERS_N; i++)
        for (int phase = 0; phase < PLAN_PHASES; phase++) p->bytes[i][phase] += bytes[i];
}
