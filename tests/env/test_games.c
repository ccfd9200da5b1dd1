/*
 * How games end and what they show then: a cube that runs out of steps or is solved, tiles at 2048,
 * a player in a hole, sums that are none, rows that hold no question.
 */
#include "place.h"

#include <math.h>

/* The state after the actions, one per turn. */
static const char *after(place *p, uint64_t seed, const char *const *actions, ares_env_turn *turn,
                         ares_str *out)
{
    CHECK_OK(place_reset(p, seed, 0));
    for (; *actions; actions++) CHECK_OK(place_act(p, *actions, turn));
    ares_str_clear(out);
    ares_env_render(&p->env, out);
    return out->data;
}

TEST(a_cube_ends_when_it_is_solved_or_its_steps_are_used_up)
{
    static const struct {
        const char *words, *actions[4], *shown;
        double reward;
        bool done, won;
    } cases[] = {
        { "options.scramble_depth=0 options.max_steps=3",
          { "U" },
          "\nWhat is your next move?",
          0,
          false,
          false },
        { "options.scramble_depth=0 options.max_steps=3",
          { "U", "U'" },
          "=== Game Over: Cube Solved! ===",
          1,
          true,
          true },
        { "options.scramble_depth=0 options.max_steps=3",
          { "U", "R", "F" },
          "=== Game Over: Max steps reached. ===",
          0,
          true,
          false },
        { "options.scramble_depth=0 options.max_steps=2",
          { "U", "U'" },
          "=== Game Over: Cube Solved! ===",
          1,
          true,
          true },
    };
    ares_str out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        place p;
        ares_env_turn turn = { 0 };
        REQUIRE_OK(place_open(&p, "rubikscube", cases[i].words));
        const char *state = after(&p, 1, cases[i].actions, &turn, &out);
        CHECK_CONTAINS(state, cases[i].shown);
        CHECK_EQ(strstr(state, "Available Actions") != NULL, !cases[i].done);
        CHECK_EQ(turn.outcome.reward.value, cases[i].reward);
        CHECK_EQ(ares_env_over(&p.env), cases[i].done);
        CHECK_EQ(ares_env_won(&p.env), cases[i].won);
        place_close(&p);
    }
    ares_str_fini(&out);
}

/* A full board without a move ends the game; the reward of a merge is its sum, or its logarithm. */
TEST(tiles_pay_what_they_make_until_none_can_move)
{
    for (int log = 0; log < 2; log++) {
        place p;
        ares_env_turn turn = { 0 };
        ares_str out = { 0 };
        int64_t score = 0;
        bool moved = false, stuck = false;
        REQUIRE_OK(place_open(&p, "game_2048",
                              log ? "max_actions=900 options.size=2 options.use_log_reward=true"
                                  : "max_actions=900 options.size=2 options.use_log_reward=false"));
        CHECK_OK(place_reset(&p, 3, 0));
        for (int i = 0; i < 800 && !ares_env_over(&p.env); i++) {
            static const char *const moves[] = { "Up", "Right", "Down", "Left" };
            char told[40];
            CHECK_OK(place_act(&p, moves[i % 4], &turn));
            ares_str_clear(&out);
            ares_env_render(&p.env, &out);
            const char *at = strstr(out.data, "Current Score: ");
            REQUIRE(at);
            int64_t made = strtoll(at + 15, NULL, 10) - score;
            double want = log ? (made > 0 ? 0.1 * log2((double)made + 1) : 0) : (double)made;
            score += made;
            if (turn.outcome.reward.value == -0.1) stuck = true; /* nothing moved */
            else CHECK_NEAR(turn.outcome.reward.value, want, 1e-12);
            moved = moved || made > 0;
            snprintf(told, sizeof told, "Valid Actions: None.");
            CHECK_EQ(strstr(out.data, told) != NULL, ares_env_over(&p.env));
        }
        CHECK(moved && ares_env_over(&p.env) && !ares_env_won(&p.env)); /* 4 cells hold no 2048 */
        CHECK_EQ(stuck, !log);
        place_close(&p);
        ares_str_fini(&out);
    }
}

/* As RAGEN tells it: the tile does not end the game, which is won or not when no move is left. */
TEST(a_tile_of_2048_wins_only_at_the_end_of_the_game)
{
    static const char *const moves[] = { "Left", "Down", "Right", "Down" };
    place p;
    ares_env_turn turn;
    ares_str out = { 0 };
    REQUIRE_OK(place_open(&p, "game_2048", "max_actions=9000 options.size=7"));
    CHECK_OK(place_reset(&p, 3, 0));
    bool there = false;
    for (int i = 0; i < 9000 && !there; i++) {
        CHECK_OK(place_act(&p, moves[i % 4], &turn));
        ares_str_clear(&out);
        ares_env_render(&p.env, &out);
        there =
            strstr(out.data, " 2048,") || strstr(out.data, "[2048,") || strstr(out.data, " 2048]");
        if (!CHECK(!ares_env_over(&p.env) && !ares_env_won(&p.env) && !turn.outcome.success)) break;
    }
    CHECK(there);
    place_close(&p);
    ares_str_fini(&out);
}

TEST(coordinates_say_what_the_player_stands_on)
{
    place p;
    ares_env_turn turn;
    ares_str out = { 0 };
    bool hole = false, goal = false, ice = false;
    REQUIRE_OK(place_open(&p, "CoordFrozenLake",
                          "max_actions=50 options.success_rate=1.0 options.is_slippery=false"));
    for (uint64_t seed = 1; seed < 30 && !(hole && goal); seed++)
        for (int way = 0; way < 4; way++) {
            CHECK_OK(place_reset(&p, seed, 0));
            for (int i = 0; i < 12 && !ares_env_over(&p.env); i++) {
                CHECK_OK(place_act(&p, (i >> (way / 2)) % 2 == way % 2 ? "Right" : "Down", &turn));
                ares_str_clear(&out);
                ares_env_render(&p.env, &out);
                bool on_goal = strstr(out.data, "Player on goal") != NULL,
                     in_hole = strstr(out.data, "Player in hole") != NULL;
                CHECK_EQ(on_goal, ares_env_won(&p.env));
                CHECK_EQ(in_hole, ares_env_over(&p.env) && !ares_env_won(&p.env));
                CHECK_EQ(strstr(out.data, "Player: ") != NULL, !on_goal && !in_hole);
                CHECK_EQ(turn.outcome.reward.value, on_goal);
                hole = hole || in_hole;
                goal = goal || on_goal;
                ice = ice || !ares_env_over(&p.env);
            }
        }
    CHECK(hole && goal && ice);
    place_close(&p);
    ares_str_fini(&out);
}

TEST(rows_that_hold_no_problem_are_named)
{
    static const struct {
        const char *tag, *rows, *why; /* NULL: it is read */
    } cases[] = {
        { "Countdown", "{\"nums\":[1,2],\"target\":3}\n", NULL },
        { "Countdown", "{\"target\":3}\n", "'nums' must be a list of 1 to" },
        { "Countdown", "{\"nums\":{},\"target\":3}\n", "'nums' must be a list of 1 to" },
        { "Countdown", "{\"nums\":[],\"target\":3}\n", "'nums' must be a list of 1 to" },
        { "Countdown", "{\"nums\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17],\"target\":3}\n",
          "'nums' must be a list of 1 to" },
        { "Countdown", "{\"nums\":[1,2.5],\"target\":3}\n", "'nums' must be whole numbers from 0" },
        { "Countdown", "{\"nums\":[1,-2],\"target\":3}\n", "'nums' must be whole numbers from 0" },
        { "Countdown", "{\"nums\":[1,4294967296],\"target\":3}\n", "'nums' must be whole numbers" },
        { "Countdown", "{\"nums\":[1,2]}\n", "the row has no 'target'" },
        { "Countdown", "{\"nums\":[1,2],\"target\":\"3\"}\n", "'target'" },
        { "Countdown", "{\"nums\":[1,2],\"target\":5}\n", "no row makes its target" },
        { "MetamathQA", "{\"query\":\"q\",\"response\":\"so The answer is: 5\"}\n", NULL },
        { "MetamathQA", "{\"query\":\"q\"}\n", "the row has no 'query' or no 'response'" },
        { "MetamathQA", "{\"response\":\"The answer is: 5\"}\n", "the row has no 'query' or no" },
        { "MetamathQA", "{\"query\":\"q\",\"response\":\"5\"}\n",
          "'response' has no 'The answer is: '" },
        { "MetamathQA", "{\"query\":7,\"response\":\"The answer is: 5\"}\n", "'query'" },
    };
    char words[400];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        place p;
        CHECK_OK(ares_file_write(test_file("rows.jsonl"), cases[i].rows, strlen(cases[i].rows)));
        snprintf(words, sizeof words, "options.path=%s", test_file("rows.jsonl"));
        int rc = place_open(&p, cases[i].tag, words);
        if (cases[i].why) CHECK_FAIL(rc, ARES_EFORMAT, cases[i].why);
        else CHECK_OK(rc);
        place_close(&p);
    }
}

/* An answer is right without regard to case and white space, whole, and not when it is empty. */
TEST(an_answer_of_a_question_is_the_whole_answer)
{
    static const struct {
        const char *gold, *given;
        bool right, valid;
    } cases[] = {
        { "x + 1", "X+1", true, true },     { "x + 1", " x  +  1\t", true, true },
        { "x + 1", "x + 12", false, true }, { "x + 12", "x + 1", false, true },
        { "", "", false, false },           { "5", "", false, false },
        { "5", "6", false, true },
    };
    char words[400], row[200];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        place p;
        ares_env_outcome out = { 0 };
        snprintf(row, sizeof row, "{\"query\":\"q\",\"response\":\"The answer is: %s\"}\n",
                 cases[i].gold);
        CHECK_OK(ares_file_write(test_file("rows.jsonl"), row, strlen(row)));
        snprintf(words, sizeof words, "options.path=%s", test_file("rows.jsonl"));
        REQUIRE_OK(place_open(&p, "MetamathQA", words));
        CHECK_OK(place_reset(&p, 1, 0));
        const ares_env_type *type = p.d.type;
        CHECK_OK(type->step(p.env.state, (ares_env_action){ .text = ares_view_of(cases[i].given) },
                            &out));
        CHECK_EQ(out.success, cases[i].right);
        CHECK_EQ(out.done, cases[i].right);
        CHECK_EQ(out.reward.value, cases[i].right);
        REQUIRE(out.n_info == 1);
        CHECK_STR(out.info[0].name, "action_is_valid");
        CHECK_EQ(out.info[0].value, cases[i].valid);
        place_close(&p);
    }
}
