/*
 * Runs that train a part of the policy: the rest keeps its bits, the part moves as it does when all
 * is trained, and options that cannot be meant are refused.
 */
#include <stdio.h>
#include <string.h>

#include "ares/kernels.h"
#include "tiny_trainer.h"

#define RANDOM "worker.reward.rewards=[{name: random}]", "worker.reward.accuracy=random"

/* Steps of a run; norm: the largest that is not scaled down. */
static void take_steps(opened *o, const char *trainable, const char *norm, int steps)
{
    const char *const words[] = { trainable, RANDOM, norm, "worker.actor.optim.lr=1e-2" };
    REQUIRE_OK(open_trainer_of(o, words, ARES_COUNT(words)));
    for (int i = 0; i < steps; i++, o->t.run.step++) REQUIRE_OK(ares_train_step(&o->t, o->m));
}

static bool same_weights(const ares_param *a, const ares_param *b)
{
    return memcmp(a->weight.data, b->weight.data, (size_t)a->elements * sizeof(float)) == 0;
}

TEST(a_step_moves_a_part_by_the_bits_of_full_training_and_leaves_the_rest)
{
    static const char norm[] = "worker.actor.max_grad_norm=1e9";
    opened before, all, some;
    int moved = 0, rested = 0;
    take_steps(&before, "worker.actor.model.trainable=null", norm, 0);
    take_steps(&all, "worker.actor.model.trainable=null", norm, 1);
    take_steps(&some, "worker.actor.model.trainable=[q_proj, layers.1.mlp.up, norm]", norm, 1);
    const ares_params *ps = &some.t.run.model->params;
    for (int i = 0; i < ps->n; i++) {
        const ares_param *p = &ps->list[i], *whole = &all.t.run.model->params.list[i],
                         *start = &before.t.run.model->params.list[i];
        bool trained = p->region < ps->n_regions;
        CHECK_MSG(same_weights(p, trained ? whole : start), "%s", p->name);
        CHECK_MSG(!same_weights(whole, start), "%s rests when all is trained", p->name);
        moved += trained;
        rested += !trained;
    }
    CHECK(moved >= 8 && rested >= 8);
    close_trainer(&before);
    close_trainer(&all);
    close_trainer(&some);
}

TEST(naming_all_parameters_trains_the_bits_of_naming_none)
{
    static const char norm[] = "worker.actor.max_grad_norm=1";
    opened a, b;
    take_steps(&a, "worker.actor.model.trainable=null", norm, 3);
    take_steps(&b, "worker.actor.model.trainable=['.*']", norm, 3);
    const ares_params *x = &a.t.run.model->params, *y = &b.t.run.model->params;
    CHECK_EQ((int64_t)y->states_bytes, (int64_t)x->states_bytes);
    CHECK_EQ((int64_t)y->weights_bytes, (int64_t)x->weights_bytes);
    CHECK_MEM(y->weights, x->weights, x->weights_bytes);
    CHECK_MEM(y->states, x->states, x->states_bytes);
    close_trainer(&a);
    close_trainer(&b);
}

TEST(over_steps_the_rest_keeps_its_bits)
{
    opened before, o;
    take_steps(&before, "worker.actor.model.trainable=null", "worker.actor.max_grad_norm=1", 0);
    take_steps(&o, "worker.actor.model.trainable=[layers.1.self_attn]",
               "worker.actor.max_grad_norm=1", 4);
    const ares_params *ps = &o.t.run.model->params;
    for (int i = 0; i < ps->n; i++)
        CHECK_MSG(same_weights(&ps->list[i], &before.t.run.model->params.list[i]) ==
                      (strstr(ps->list[i].name, "layers.1.self_attn") == NULL),
                  "%s", ps->list[i].name);
    close_trainer(&before);
    close_trainer(&o);
}

TEST(a_list_that_cannot_be_meant_is_refused_before_anything_is_loaded)
{
    static const struct {
        const char *words[2], *says;
    } cases[] = {
        { { "worker.actor.model.trainable=[]" }, "nothing would be trained" },
        { { "worker.actor.model.trainable=[norm, q_porj]" },
          "'q_porj' matches no parameter; did you mean 'q_proj'?" },
        { { "worker.actor.model.trainable=[lm_head]" },
          "the name of both is model.embed_tokens.weight" },
        { { "worker.actor.model.trainable=['(']" }, "the expression '(' cannot be used" },
        { { "worker.actor.model.trainable=[norm]", "worker.actor.model.lora.rank=4" },
          "worker.actor.model.lora.rank asks for an adapter" },
        { { "worker.actor.model.trainable=[norm]", "worker.actor.model.lora.adapter_path=a" },
          "worker.actor.model.lora.adapter_path asks for an adapter" },
        { { "worker.critic.model.trainable=[lm_head]", "algorithm.adv_estimator=gae" },
          "score.weight and score.bias" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        opened o;
        int n = cases[i].words[1] ? 2 : 1;
        CHECK_FAIL(open_trainer_of(&o, cases[i].words, n), ARES_ECONFIG, cases[i].says);
        close_trainer(&o);
    }
}
