/*
 * What images cost beside the tokens that they become. Rows of full length are full of them: of as
 * many of the largest as data.max_pixels and worker.rollout.limit_images let into a prompt.
 */
#include "plan/plan.h"
#include "trainer.h"

/* Tokens of the largest image, and of all in a row. */
static int measure_images(const ares_trainer *t, const plan_where *where, const largest_micro *m,
                          plan_pictures *s, int64_t *row)
{
    int64_t limit = t->run.cfg->rollout.limit_images;
    s->room = where->reinforcement ? m->prompt : m->prompt + m->response;
    ARES_TRY(largest_image(t, s->room, &s->tokens));
    *row = limit ? ARES_MIN(s->room, limit * s->tokens) : s->room;
    return ARES_OK;
}

/* Of the host, where pixels are bytes and one picture at a time is what the tower reads. */
static void count_host(const ares_trainer *t, const ares_vision_config *v, plan_pictures *s)
{
    const ares_train_config *c = t->run.cfg;
    bool trained = !c->actor.freeze_vision && !c->trainer.val_only;
    double bytes = (double)v->channels * v->patch * v->patch * v->merge * v->merge,
           features = (double)v->out * sizeof(float), step = (double)s->step;
    s->values = bytes * v->temporal * sizeof(float);
    s->pixels = step * bytes + (double)s->tokens * s->values;
    /* a frozen tower's are the reference's, too */
    s->features = step * features * (trained && t->ref ? 2 : 1);
    s->stored = trained && !t->ref ? 0 : c->data.vision_cache_gb * 1e9;
}

/* Rows of a validation or evaluation whose pictures are there together, where that is known. */
static int64_t validated_together(const ares_train_config *c, const plan_where *where)
{
    return where->val_longest ? ARES_MAX(0, c->data.val_batch_size) : 0;
}

int plan_count_pictures(ares_trainer *t, const plan_where *where, plan *p)
{
    const ares_train_config *c = t->run.cfg;
    ares_model *m = t->run.model;
    plan_pictures *s = &p->pictures;
    double before = (double)t->run.device.allocated;
    int64_t row, rows = where->reinforcement ? c->data.rollout_batch_size : c->sft.batch_size;
    if (!m->cfg.vision.depth) return ARES_OK;
    ARES_TRY(ares_model_find(c->actor.model_path, &t->run.model_dir));
    ARES_TRY(ares_sight_rules_load(&m->cfg, t->run.model_dir.data, &t->run.sight));
    ARES_TRY(measure_images(t, where, &p->micro, s, &row));
    rows = ARES_MAX(rows, validated_together(c, where));
    s->step = (rows + where->ranks - 1) / where->ranks * row;
    count_host(t, &m->cfg.vision, s);
    ARES_TRY(ares_model_features_reserve(m, largest_patches(m, s->tokens), ARES_KEEP_NOTHING));
    if (t->ref && !c->actor.freeze_vision)
        ARES_TRY(ares_model_features_reserve(t->ref->learner.model,
                                             largest_patches(t->ref->learner.model, s->tokens),
                                             ARES_KEEP_NOTHING));
    for (int phase = 0; phase < PLAN_PHASES; phase++) {
        p->bytes[PLAN_TOWER][phase] += (double)t->run.device.allocated - before;
        if (!p->card) p->bytes[PLAN_PICTURES][phase] += s->pixels + s->features + s->stored;
    }
    return ARES_OK;
}

/* The tower takes memory in proportion to the tokens of what it reads. */
double plan_longest_video(const plan *p)
{
    const plan_pictures *s = &p->pictures;
    const double *tower = p->bytes[PLAN_TOWER];
    if (s->room <= s->tokens) return 0;
    double more = (double)(s->room - s->tokens),
           of_tower = ARES_MAX(tower[PLAN_ROLLOUT], tower[PLAN_TRAINING]) / (double)s->tokens;
    return more * (of_tower + (p->card ? 0 : s->values));
}

int plan_count_tower_backward(ares_trainer *t, const plan *p, double *bytes)
{
    ares_model *m = t->run.model;
    *bytes = 0;
    if (!m->cfg.vision.depth || t->run.cfg->actor.freeze_vision) return ARES_OK;
    ARES_TRY(ares_model_features_reserve(m, largest_patches(m, p->pictures.tokens),
                                         t->actor.learner.tower_keep));
    *bytes = (double)m->tower.of_training.bytes;
    return ARES_OK;
}
