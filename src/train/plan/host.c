/*
 * What a process on the CPU holds beside what the device hands out: scratch of the kernels, rows of
 * a step on their way from the engine to the update, tokenizer and data, a part of a checkpoint
 * while it is written, and the program itself (docs/ranks.md#what-a-run-needs).
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ares/core.h"
#include "plan/plan.h"
#include "trainer.h"

/*
 * Pages of the program and its libraries that a run touches, the options and other small things of
 * the heap; what MPI has beside; stack and heap of a thread. Measured on x86-64 with glibc.
 */
static const double PROGRAM = 11.5e6, MPI = 10.5e6, THREAD = 0.1e6;

/* ---------------- kernels */
static bool filters(const ares_train_config *c)
{
    return c->rollout.top_p < 1 || c->rollout.top_k > 0;
}

/* Blocks of 32 keys that attention lays out in a pass over so many groups of n rows, or rows. */
static int64_t blocks(const peak_micro *m, int64_t n)
{
    int64_t shared = m->prompt / 32, all = (m->prompt + m->response - 1 + 31) / 32,
            tokens = ARES_MAX(m->tokens, m->groups * m->group);
    int64_t of_group = n > 1 ? shared + n * (all - shared) : all;
    return tokens / ARES_MAX(1, m->group) * of_group + (tokens % ARES_MAX(1, m->group) + 31) / 32;
}

static ares_scratch_args of_model(const ares_model_config *m)
{
    return (ares_scratch_args){ .vocab = m->vocab,
                                .n_heads = m->heads,
                                .n_kv_heads = m->kv_heads,
                                .head_dim = m->head_dim,
                                .widest = ARES_MAX(m->vocab, m->intermediate) };
}

static double scratch(const ares_trainer *t, const plan_where *where, const plan *p)
{
    const ares_train_config *c = t->run.cfg;
    const peak_micro *micro[] = { &p->micro, &p->pairs };
    size_t most = 0;
    for (int i = 0; i < ARES_COUNT(micro); i++) {
        const peak_micro *m = micro[i];
        ares_scratch_args a = of_model(&t->run.model->cfg);
        if (i && !m->tokens) continue;
        a.threads = where->threads;
        a.trained = !c->trainer.val_only;
        if (a.trained) {
            bool exact = where->reinforcement && actor_exact_kl_reference(&t->actor);
            bool share = where->reinforcement && c->actor.share_prompts;
            a.rows = m->out;
            a.blocks = blocks(m, share ? (i ? 2 : c->rollout.n) : 1);
            a.longest = share ? ARES_MAX(m->prompt, m->response) : m->prompt + m->response;
            a.fused = !exact && !(t->actor.loss && !(t->actor.loss->flags & ARES_LOSS_LOCAL));
            a.ref = exact;
        }
        if (where->reinforcement) {
            a.sampled = ARES_MIN(c->rollout.max_num_seqs, p->answered);
            a.filters = filters(c);
            if (strcmp(c->rollout.entropy_mode, "topk_tail") == 0)
                a.n_likely = (int32_t)c->rollout.entropy_topk;
        }
        most = ARES_MAX(most, ares_kernels_scratch_bytes(&a));
    }
    return (double)most;
}

/* The largest part of a gradient that ranks bring together. */
static double sums(const ares_model *m)
{
    int64_t most = 0;
    for (int i = 0; i < m->n_regions; i++) {
        int64_t n = m->regions[i].elements, ranks = ares_group_size(m->share.group);
        most = ARES_MAX(most, ares_group_sum_bytes(m->share.group, (n + ranks - 1) / ranks));
        most = ARES_MAX(most, ares_group_sum_bytes(m->share.replicas, m->regions[i].own));
    }
    return (double)most;
}

/* ---------------- rows */
/* Bytes of a token's numbers in the columns of a list. */
#define COLUMN(type, name, owner, doc) +sizeof(ares_column_##type)
enum { RECORDED = 0 ARES_BATCH_RECORDED(COLUMN), MARKED = sizeof(uint8_t) + sizeof(float) };
#undef COLUMN

/* What the engine has recorded of an answer: columns that double, and keep what they had. */
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

/* Of a token of the batch: its columns, and what estimators and the update compute with. */
static double in_batch(const ares_trainer *t)
{
    const ares_train_config *c = t->run.cfg;
    size_t f = sizeof(float), bytes = RECORDED + (t->agents ? MARKED : 0);
    bool exact = actor_exact_kl_reference(&t->actor) != NULL;
    bytes += 5 * f;                      /* scores, rewards, old, advantages, returns */
    bytes += (t->ref ? 2 : 0) * f;       /* log-probs, kl */
    bytes += 2 * sizeof(double) + 6 * f; /* of the estimator; of the update */
    bytes += exact ? 3 * f : 0;
    bytes += t->critic ? sizeof(double) + 2 * f : 0;
    bytes += strcmp(c->loss.rollout_is, "none") != 0 ? f : 0;
    return (double)bytes;
}

static double rows_of_a_step(const ares_trainer *t, const plan *p)
{
    double tokens = (double)(p->answered * p->micro.response);
    return (double)p->answered *
               (in_engine(t->run.cfg, p->micro.response) + 2 * (double)sizeof(ares_sample)) +
           tokens * (RECORDED + in_batch(t));
}

/* ---------------- files */
/*
 * Bytes that a byte of tokenizer.json becomes; that a row takes beside its text; that a byte of its
 * text becomes, and its tokens. A packed file has several bytes of text in one. All are measured.
 */
static const double OF_TOKENIZER = 11, OF_ROW = 550, OF_TEXT = 4, PACKED = 4;
enum { LOOKED_AT = 1 << 16, LONG_ROW = 1000 }; /* bytes of a file; of a row of a packed one */

static double file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (double)st.st_size : 0;
}

/* Lines in the beginning of a file; *n: its bytes. */
static int64_t lines(const char *path, ssize_t *n)
{
    char text[LOOKED_AT];
    const char *why;
    int fd = ares_file_open(path, &why);
    int64_t count = 0;
    *n = fd >= 0 ? read(fd, text, sizeof text) : 0;
    if (fd >= 0) (void)close(fd);
    for (ssize_t i = 0; i < *n; i++) count += text[i] == '\n';
    return count;
}

static double rows_of_file(const char *path, double of_text)
{
    const char *end = strrchr(path, '.');
    bool packed = !end || strncmp(end, ".json", 5) != 0;
    double text = file_bytes(path) * (packed ? PACKED : 1), rows = text / LONG_ROW;
    ssize_t n;
    int64_t count = packed ? 0 : lines(path, &n);
    if (count) rows = text * (double)count / (double)n;
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
    double bytes[PLAN_OWNERS_N] = { 0 };
    bytes[PLAN_KERNELS] = scratch(t, where, p);
    bytes[PLAN_ROWS] = where->reinforcement && !c->trainer.val_only ? rows_of_a_step(t, p) : 0;
    bytes[PLAN_SUMS] = c->trainer.val_only ? 0 : sums(t->run.model);
    bytes[PLAN_TEXTS] = where->texts;
    bytes[PLAN_BASE] = PROGRAM + (where->ranks > 1 ? MPI : 0) + where->threads * THREAD;
    for (int i = 0; i < PLAN_OWNERS_N; i++)
        for (int phase = 0; phase < PLAN_PHASES; phase++) p->bytes[i][phase] += bytes[i];
}
