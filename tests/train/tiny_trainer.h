/* A trainer of a tiny random model, opened as the program does it. */
#ifndef ARES_TEST_TRAINER_H
#define ARES_TEST_TRAINER_H

#include <stdio.h>
#include <stdlib.h>

#include "test.h"
#include "trainer.h"

typedef struct opened {
    ares_config *cfg;
    ares_train_config c;
    ares_world *world;
    ares_trainer t;
    ares_metrics *m;
} opened;

/*
 * A trainer of a tiny random model with n words of configuration more; what its check says. The
 * model of a test's ranks is their parent's, who names it in ARES_TEST_MODEL.
 */
static inline int open_trainer_of(opened *o, const char *const *more, int n)
{
    const char *dir = getenv("ARES_TEST_MODEL");
    if (!dir) dir = test_file("model");
    char text[3][700];
    if (!ares_dir_exists(dir))
        CHECK_EQ(test_shell(NULL,
                            "'%s' init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 1 "
                            "--seed 3 --out '%s'",
                            test_program(), dir),
                 0);
    snprintf(text[0], sizeof *text, "worker.actor.model.model_path=%s", dir);
    snprintf(text[1], sizeof *text, "data.train_files=%s",
             test_source("examples/data/sums/train.jsonl"));
    snprintf(text[2], sizeof *text, "trainer.run_dir=%s", test_file("run"));
    const char *argv[20] = { text[0],
                             text[1],
                             text[2],
                             "data.rollout_batch_size=4",
                             "worker.actor.global_batch_size=4",
                             "worker.rollout.n=4",
                             "data.max_response_length=24",
                             "algorithm.disable_kl=true",
                             "worker.rollout.temperature=0.8",
                             "worker.reward.rewards=[{name: exact}]",
                             "data.mini_rollout_batch_size=null" };
    enum { OWN = 11 };
    ARES_ASSERT(OWN + n <= ARES_COUNT(argv));
    for (int i = 0; i < n; i++) argv[OWN + i] = more[i];
    *o = (opened){ .cfg = ares_config_new(), .m = ares_metrics_new() };
    ares_batch_init(&o->t.batch);
    ares_train_config_declare(o->cfg, &o->c);
    ares_config_read_args(o->cfg, OWN + n, argv);
    ares_config_resolve(o->cfg);
    ares_world *world;
    ARES_TRY(ares_world_open(&world));
    int rc = ares_train_config_check(o->cfg, &o->c, ares_world_size(world));
    if (rc == ARES_OK) o->world = world;
    else ares_world_close(world);
    ARES_TRY(rc);
    return trainer_open(&o->t, o->cfg, &o->c, o->world, NULL);
}

static inline int open_trainer(opened *o, const char *first, const char *second)
{
    return open_trainer_of(o, (const char *const[]){ first, second }, 2);
}

static void close_trainer(opened *o)
{
    if (o->world) trainer_close(&o->t);
    else ares_batch_fini(&o->t.batch);
    ares_world_close(o->world);
    ares_metrics_free(o->m);
    ares_config_free(o->cfg);
}
#endif
