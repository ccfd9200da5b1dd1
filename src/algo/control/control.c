/*
 * What controls share: the samples of all ranks in one order, reading saved state; and their
 * table.
 */
#include "control.h"
#include "aepo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ares/algo_control.h"
#include "ares/algo_loss.h"

/* What a rank sends of a group: this header, its gid, its samples. */
typedef struct group_header {
    int64_t draw, count, gid_len;
} group_header;

/* Draw numbers are the same for any number of ranks; turns of one draw stay in their order. */
static int by_draw(const void *a, const void *b)
{
    const control_group *x = a, *y = b;
    if (x->draw != y->draw) return ARES_CMP(x->draw, y->draw);
    return ARES_CMP(x->first, y->first);
}

static int by_index(const void *a, const void *b)
{
    const control_sample *x = a, *y = b;
    return ARES_CMP(x->index, y->index);
}

/* Whether a row is gathered: it is not left out and not a discarded answer. */
static bool gathers(const ares_batch *b, const control_sample *local, int64_t r)
{
    return !local[r].left_out && ares_batch_row_counts(b, r);
}

/*
 * Reads what the ranks sent, in their order: with groups NULL only n_groups and n_samples are
 * counted, else groups and samples are filled, too.
 */
static void read_groups(const ares_str *bytes, control_gathered *out, control_group *groups,
                        control_sample *samples)
{
    out->n_groups = out->n_samples = 0;
    for (size_t at = 0; at < bytes->len;) {
        group_header h;
        memcpy(&h, bytes->data + at, sizeof h);
        at += sizeof h;
        if (groups) {
            groups[out->n_groups] = (control_group){
                .draw = h.draw,
                .first = out->n_samples,
                .count = h.count,
                .gid = { ares_arena_copy(&out->arena, bytes->data + at, (size_t)h.gid_len),
                         (size_t)h.gid_len }
            };
            memcpy(samples + out->n_samples, bytes->data + at + h.gid_len,
                   (size_t)h.count * sizeof *samples);
        }
        at += (size_t)h.gid_len + (size_t)h.count * sizeof *samples;
        out->n_groups++;
        out->n_samples += h.count;
    }
}

int control_gather(ares_world *world, const ares_batch *b, const control_sample *local,
                   control_gathered *out)
{
    *out = (control_gathered){ 0 };
    ares_str mine = { 0 }, all = { 0 };
    for (int64_t g = 0; g < b->groups; g++) {
        int64_t first = b->group_start[g], end = b->group_start[g + 1], count = 0;
        for (int64_t r = first; r < end; r++) count += gathers(b, local, r);
        /* a group without a sample that counts says nothing */
        if (!count) continue;
        const ares_sample *s = &b->samples[first];
        const char *gid = s->row && s->row->gid ? s->row->gid : "";
        group_header h = { .draw = s->draw, .count = count, .gid_len = (int64_t)strlen(gid) };
        ares_str_add(&mine, (const char *)&h, sizeof h);
        ares_str_add(&mine, gid, (size_t)h.gid_len);
        for (int64_t r = first; r < end; r++)
            if (gathers(b, local, r)) ares_str_add(&mine, (const char *)&local[r], sizeof *local);
    }
    int rc = ares_world_gather_all(world, mine.data, mine.len, &all, NULL);
    if (rc == ARES_OK) {
        /* once to count and once to fill */
        read_groups(&all, out, NULL, NULL);
        control_sample *samples =
            ares_arena_alloc(&out->arena, (size_t)(out->n_samples + 1) * sizeof *samples);
        out->groups =
            ares_arena_alloc(&out->arena, (size_t)(out->n_groups + 1) * sizeof *out->groups);
        out->samples =
            ares_arena_alloc(&out->arena, (size_t)(out->n_samples + 1) * sizeof *samples);
        read_groups(&all, out, out->groups, samples);
        qsort(out->groups, (size_t)out->n_groups, sizeof *out->groups, by_draw);
        /* samples follow their groups' new order, each group's by the number of the answer */
        int64_t at = 0;
        for (int64_t g = 0; g < out->n_groups; g++) {
            control_group *group = &out->groups[g];
            memcpy(out->samples + at, samples + group->first,
                   (size_t)group->count * sizeof *samples);
            qsort(out->samples + at, (size_t)group->count, sizeof *samples, by_index);
            group->first = at;
            at += group->count;
        }
    }
    ares_str_fini(&mine);
    ares_str_fini(&all);
    return rc;
}

void control_gathered_fini(control_gathered *g)
{
    ares_arena_fini(&g->arena);
    *g = (control_gathered){ 0 };
}

int control_row_kl(const ares_batch *b, const ares_algorithm_config *algorithm, const char *who,
                   double *kl)
{
    const ares_kl *estimator = NULL;
    if (!b->kl) {
        if (!(estimator = ares_kl_find(algorithm->kl_penalty))) return ARES_ECONFIG;
        if (!b->old_log_probs || !b->ref_log_probs || !estimator->value)
            return ARES_NEED(b, who, kl); /* the exact KL is no function of log-probs */
    }
    ARES_TRY(ARES_NEED(b, who, response_mask));
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t at = b->row_start[r], end = b->row_start[r + 1];
        /* a mean over the policy's own tokens; a row without any has KL 0 */
        double sum = 0, count = 0;
        for (int64_t i = at; i < end && estimator; i++) {
            if (!b->response_mask[i]) continue;
            sum += estimator->value((double)b->old_log_probs[i] - (double)b->ref_log_probs[i]);
            count++;
        }
        kl[r] = estimator ? (count > 0 ? sum / count : 0)
                          : kl_row_mean(b->kl + at, b->response_mask + at, end - at);
        if (!isfinite(kl[r]))
            return ares_fail(ARES_ENUMERIC, "%s: kl of row %lld is %g", who, (long long)r, kl[r]);
    }
    return ARES_OK;
}

int control_member(const ares_json *o, const char *who, const char *key, const ares_json **out)
{
    *out = ares_json_get(o, key);
    return *out ? ARES_OK : ares_fail(ARES_EFORMAT, "%s: saved state: no member '%s'", who, key);
}

int control_number(const ares_json *o, const char *who, const char *key, double *out)
{
    const ares_json *v;
    ARES_TRY(control_member(o, who, key, &v));
    if ((v->type != ARES_JSON_INT && v->type != ARES_JSON_FLOAT) || !isfinite(v->number))
        return ares_fail(ARES_EFORMAT, "%s: saved state: '%s' is no number", who, key);
    *out = v->number;
    return ARES_OK;
}

/* `big`: a number that does not fit int64. */
int control_integer(const ares_json *o, const char *who, const char *key, int64_t *out)
{
    const ares_json *v;
    ARES_TRY(control_member(o, who, key, &v));
    if (v->type != ARES_JSON_INT || v->big)
        return ares_fail(ARES_EFORMAT, "%s: saved state: '%s' is no integer", who, key);
    *out = v->integer;
    return ARES_OK;
}

/*
 * The table of controls. To add one: a file in control/ and a word here. The order is that of
 * observe and adapt.
 */

#define CONTROL_LIST(X) \
    X(adaptive_kl) X(aepo) X(early_stop) X(low_success) X(empty_filter) X(collapse)

#define DECLARE(name) extern const ares_control ares_control_##name;
#define ENTRY(name) &ares_control_##name,
CONTROL_LIST(DECLARE)
static const ares_control *const table[] = { CONTROL_LIST(ENTRY) };

const ares_control *const *ares_control_list(int *n)
{
    *n = ARES_COUNT(table);
    return table;
}
