/* The replay of an update, by hand where one transfer decides and pinned for two known models; and
 * texts. */
#include <math.h>
#include <stdio.h>

#include "plan/plan.h"
#include "test.h"

/* A block of BLOCK weights beside EDGE of the embedding, and as many of the head. */
#define BLOCK (512.0 * 512 * 4 + 3 * 512.0 * 683)
#define EDGE 1024.0
static ares_model_config small(int layers)
{
    return (ares_model_config){ .vocab = 2,
                                .hidden = 512,
                                .layers = layers,
                                .heads = 8,
                                .kv_heads = 8,
                                .head_dim = 64,
                                .intermediate = 683 };
}

TEST(without_a_second_rank_nothing_waits)
{
    ares_model_config m = small(4);
    replay r;
    for (int how = ARES_SHARE_NONE; how <= ARES_SHARE_ALL; how++) {
        plan_replay(&(replay_args){ .model = &m,
                                    .ranks = 1,
                                    .how = (ares_sharing)how,
                                    .tokens = 1000,
                                    .length = 100,
                                    .micro_batches = 2,
                                    .flops = 1e12,
                                    .link = 1e9 },
                    &r);
        CHECK_EQ(r.sent, 0);
        CHECK(r.exposed <= 1e-12 * r.total && r.total > 0);
    }
}

/*
 * Two ranks, and computing takes no time: what is sent decides. Per rank half of: none: the sum and
 * its result, 8 bytes a weight; states: 4 for the sum, and the weights, 4 or 2; all: the weights
 * twice, the embedding's and the head's once, and 4 for the sum. Three rounds send sums, and of all
 * the weights, three times; three replicas of the pair send a sum of half the weights once more.
 */
TEST(what_is_sent_follows_from_the_regions)
{
    ares_model_config m = small(3);
    double all = 3 * BLOCK + 2 * EDGE;
    const double want[2][3] = { { 4 * all, 4 * all, 4 * (all - EDGE) + 2 * all },
                                { 4 * all, 3 * all, 2 * (all - EDGE) + 2 * all } },
                 in_rounds[2][3] = { { 8 * all, 8 * all, 3 * want[0][2] },
                                     { 8 * all, 7 * all, 3 * want[1][2] } };
    for (int narrow = 0; narrow < 2; narrow++)
        for (int how = ARES_SHARE_NONE; how <= ARES_SHARE_ALL; how++) {
            replay r, rounds, across;
            replay_args a = { .model = &m,
                              .storage = narrow ? ARES_BF16 : ARES_F32,
                              .ranks = 2,
                              .how = (ares_sharing)how,
                              .tokens = 1,
                              .length = 1,
                              .micro_batches = 1,
                              .flops = 1e30,
                              .link = 1e6 };
            plan_replay(&a, &r);
            CHECK_NEAR(r.sent, want[narrow][how], 0.5);
            CHECK_NEAR(r.total, r.sent / 1e6, 1e-9 * r.total);
            a.rounds = 3;
            plan_replay(&a, &rounds);
            CHECK_NEAR(rounds.sent, in_rounds[narrow][how], 0.5);
            a.replicas = 3;
            plan_replay(&a, &across);
            CHECK_NEAR(across.sent - rounds.sent, 2.0 / 3 * 4 * all, 0.5);
        }
}

/*
 * A block computes for longer than its transfers take: they hide behind the next block, except
 * where there is none. states: the sums of block 0 and the embedding, then all gathers. all: the
 * gathers before block 0, that of block 2 for its way back, and the last two sums. 1 %: embedding
 * and head are small beside a block, and here they count as nothing.
 */
TEST(transfers_hide_behind_the_next_block)
{
    ares_model_config m = small(3);
    double half = BLOCK / 2; /* elements that a rank sends of a block */
    const double want[] = { 0, 4 * half + 3 * 4 * half, 4 * half + 4 * half + 4 * half };
    for (int how = ARES_SHARE_STATES; how <= ARES_SHARE_ALL; how++) {
        replay r;
        plan_replay(&(replay_args){ .model = &m,
                                    .ranks = 2,
                                    .how = (ares_sharing)how,
                                    .early = true,
                                    .tokens = 1000,
                                    .length = 1,
                                    .micro_batches = 1,
                                    .flops = 2 * BLOCK * 1000, /* a block forward: a second */
                                    .link = 16 * half },       /* a gather: a quarter of one */
                    &r);
        CHECK_NEAR(r.exposed, want[how] / (16 * half), 0.01 * r.exposed);
    }
}

/* 8 cards, a mini-batch of 65,536 tokens a rank in rows of 4,096, as in docs/ranks.md. */
TEST(the_replay_of_two_known_models_stays)
{
    static const struct {
        const char *name;
        double link, sent[3], exposed[3], late; /* late: states, not early */
    } models[] = {
        { "qwen2_7b", 370e9, { 53.31, 39.98, 51.40 }, { 0.144, 0.043, 0.011 }, 0.108 },
        { "qwen2_7b", 50e9, { 53.31, 39.98, 51.40 }, { 1.066, 0.321, 0.082 }, 0.800 },
        { "qwen2_32b", 370e9, { 229.34, 172.00, 226.61 }, { 0.620, 0.167, 0.018 }, 0.465 },
        { "qwen2_32b", 50e9, { 229.34, 172.00, 226.61 }, { 4.587, 1.235, 0.133 }, 3.440 },
    };
    for (int i = 0; i < ARES_COUNT(models); i++)
        for (int how = ARES_SHARE_NONE; how <= ARES_SHARE_ALL; how++) {
            ares_model_config m;
            char dir[100];
            replay r;
            snprintf(dir, sizeof dir, "tests/golden/plan/%s", models[i].name);
            CHECK_OK(ares_model_config_load(test_source(dir), &m));
            replay_args a = { .model = &m,
                              .storage = ARES_BF16,
                              .ranks = 8,
                              .how = (ares_sharing)how,
                              .early = true,
                              .tokens = 65536,
                              .length = 4096,
                              .micro_batches = 4,
                              .recompute = i >= 2,
                              .flops = 600e12,
                              .link = models[i].link };
            plan_replay(&a, &r);
            CHECK_NEAR(r.sent / 1e9, models[i].sent[how], 0.006); /* as printed */
            CHECK_NEAR(r.exposed, models[i].exposed[how], 0.0006);
            a.early = false;
            plan_replay(&a, &r);
            if (how == ARES_SHARE_STATES) CHECK_NEAR(r.exposed, models[i].late, 0.0006);
        }
}

/* Bytes of the texts of train and val files, either of which may be NULL. */
static double texts(const char *train, const char *val)
{
    const char *files[] = { train, val };
    ares_train_config c = { 0 };
    c.data.train_files = (ares_texts){ &files[0], train != NULL };
    c.data.val_files = (ares_texts){ &files[1], val != NULL };
    return plan_texts(&c);
}

TEST(texts_are_those_of_training_and_validation)
{
    const char *few = test_file("few.jsonl"), *many = test_file("many.jsonl");
    static const char row[] = "{\"prompt\": \"1 + 1 = ?\", \"answer\": \"2\"}\n";
    ares_str text = { 0 };
    for (int i = 0; i < 10; i++) ares_str_add_z(&text, row);
    CHECK_OK(ares_file_write(few, text.data, text.len));
    for (int i = 0; i < 20; i++) ares_str_add_z(&text, row);
    CHECK_OK(ares_file_write(many, text.data, text.len));
    double one = texts(few, NULL), three = texts(many, NULL);
    CHECK(one > 10 * sizeof row);
    CHECK_NEAR(three, 3 * one, 1e-9 * three);
    CHECK_NEAR(texts(NULL, many), three, 0);
    CHECK_NEAR(texts(few, many), one + three, 1e-9 * three);
    CHECK_NEAR(texts(many, few), one + three, 1e-9 * three);
    ares_str_fini(&text);
}
