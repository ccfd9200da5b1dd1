/* Environments: seeds, groups, turns. agentic.json holds rooms, maps, steps and texts. */
#include <math.h>

#include "internal.h"
#include "place.h"

static const char *const tags[] = { "SimpleSokoban", "LargerSokoban", "SokobanDifferentGridVocab",
                                    "CoordSokoban",  "FrozenLake",    "CoordFrozenLake",
                                    "Countdown",     "Bandit",        "BanditTest",
                                    "game_2048",     "rubikscube" };

/* What an episode shows: every state and reward of six turns, actions by number. */
static void add_turn(place *p, int turn, ares_str *out)
{
    int n;
    const char *const *names = ares_env_actions(&p->env, &n);
    ares_env_turn t;
    if (ares_env_over(&p->env)) return;
    if (!CHECK_OK(place_act(p, names ? names[(turn * 7 + 3) % n] : "1 + 2", &t))) return;
    ares_env_reward_write(out, t.outcome.reward);
    ares_str_add_char(out, '\n');
    ares_env_render(&p->env, out);
}

TEST(episodes_do_not_depend_on_the_environments_beside_them)
{
    enum { SIDE_BY_SIDE = 5, TURNS = 6 };
    for (int i = 0; i < ARES_COUNT(tags); i++) {
        place together[SIDE_BY_SIDE], alone;
        ares_str all[SIDE_BY_SIDE] = { 0 }, one = { 0 };
        for (int k = 0; k < SIDE_BY_SIDE; k++) {
            REQUIRE_OK(place_open(&together[k], tags[i], ""));
            CHECK_OK(place_reset(&together[k], (uint64_t)(10000 + k), k));
        }
        for (int turn = 0; turn < TURNS; turn++)
            for (int k = SIDE_BY_SIDE - 1; k >= 0; k--) add_turn(&together[k], turn, &all[k]);
        REQUIRE_OK(place_open(&alone, tags[i], "")); /* one after the other, in one environment */
        for (int k = 0; k < SIDE_BY_SIDE; k++) {
            ares_str_clear(&one);
            CHECK_OK(place_reset(&alone, (uint64_t)(10000 + k), k));
            for (int turn = 0; turn < TURNS; turn++) add_turn(&alone, turn, &one);
            CHECK_STR(one.data, all[k].data);
        }
        for (int k = 0; k < SIDE_BY_SIDE; k++) {
            place_close(&together[k]);
            ares_str_fini(&all[k]);
        }
        place_close(&alone);
        ares_str_fini(&one);
    }
}

/* ---------------- groups */
/* The states of a lake after 30 moves down and up, as one text. */
static void walk_on_ice(const char *words, int64_t id, ares_str *out)
{
    place p;
    ares_env_turn t;
    if (!CHECK_OK(place_open(&p, "FrozenLake", words))) return;
    CHECK_OK(place_reset(&p, 10000, id));
    ares_env_render(&p.env, out);
    for (int i = 0; i < 30 && !ares_env_over(&p.env); i++) {
        CHECK_OK(place_act(&p, i % 2 ? "Up" : "Down", &t));
        ares_env_render(&p.env, out);
    }
    place_close(&p);
}

TEST(a_group_slips_alike_unless_its_noise_is_its_own)
{
    ares_str a = { 0 }, b = { 0 }, again = { 0 };
    walk_on_ice("max_actions=50 options.success_rate=0.34 options.p=1", 0, &a);
    walk_on_ice("max_actions=50 options.success_rate=0.34 options.p=1", 9, &b);
    CHECK_STR(b.data, a.data);
    static const char own[] =
        "max_actions=50 options.success_rate=0.34 options.p=1 options.shared_noise=false";
    ares_str_clear(&a);
    ares_str_clear(&b);
    walk_on_ice(own, 0, &a);
    walk_on_ice(own, 9, &b);
    walk_on_ice(own, 9, &again);
    CHECK(strcmp(a.data, b.data) != 0);
    CHECK_STR(again.data, b.data);
    CHECK_MEM(a.data, b.data, 19); /* the map is the group's all the same */
    ares_str_fini(&a);
    ares_str_fini(&b);
    ares_str_fini(&again);
}

TEST(a_bandit_depends_on_its_number_and_not_on_how_many_there_were)
{
    place p;
    ares_str first = { 0 }, second = { 0 };
    REQUIRE_OK(place_open(&p, "Bandit", ""));
    CHECK_OK(place_reset(&p, 10000, 0));
    ares_env_render(&p.env, &first);
    CHECK_CONTAINS(first.data, "named Clerk and Freelancer\n");
    CHECK_OK(place_reset(&p, 10000, 1));
    ares_env_render(&p.env, &second);
    CHECK_CONTAINS(second.data, "named Artist and Planner\n");
    place_close(&p);
    REQUIRE_OK(place_open(&p, "Bandit", ""));
    CHECK_OK(place_reset(&p, 10000, 1));
    place_shows(&p, second.data);
    place_close(&p);
    ares_str_fini(&first);
    ares_str_fini(&second);
}

/* numpy: default_rng(10000).random() is 0.517, of 10005 0.211; below 0.5 the safe arm is first. */
TEST(a_bandit_with_names_is_the_same_for_a_group)
{
    place p;
    ares_str shown = { 0 };
    REQUIRE_OK(
        place_open(&p, "Bandit", "options.lo_arm_name=Engineer options.hi_arm_name=Teacher"));
    CHECK_OK(place_reset(&p, 10000, 0));
    ares_env_render(&p.env, &shown);
    CHECK_CONTAINS(shown.data, "named Teacher and Engineer\n");
    CHECK_OK(place_reset(&p, 10000, 7));
    place_shows(&p, shown.data);
    ares_str_clear(&shown);
    CHECK_OK(place_reset(&p, 10005, 0));
    ares_env_render(&p.env, &shown);
    CHECK_CONTAINS(shown.data, "named Engineer and Teacher\n");
    place_close(&p);
    REQUIRE_OK(place_open(&p, "BanditTest", "options.hi_arm_name=Teacher"));
    CHECK_OK(place_reset(&p, 10000, 0));
    ares_str_clear(&shown);
    ares_env_render(&p.env, &shown);
    CHECK_CONTAINS(shown.data, "phoenix");
    CHECK_CONTAINS(shown.data, "Teacher");
    place_close(&p);
    ares_str_fini(&shown);
}

TEST(the_risky_arm_wins_as_often_as_it_should)
{
    place p;
    ares_env_turn t;
    double wins = 0;
    REQUIRE_OK(place_open(&p, "BanditTest", "options.hi_arm_hiscore_prob=0.25"));
    for (int i = 0; i < 4000; i++) {
        int n;
        CHECK_OK(place_reset(&p, (uint64_t)i * 1000, 0));
        const char *const *arms = ares_env_actions(&p.env, &n);
        CHECK_OK(place_act(&p, arms[0], &t));
        if (t.outcome.success) wins += t.outcome.reward.value;
        else CHECK_NEAR(t.outcome.reward.value, 0.1, 0);
    }
    CHECK_NEAR(wins / 4000, 0.125, 0.02); /* four standard deviations */
    place_close(&p);
}

/* ---------------- turns */
TEST(a_turn_costs_its_penalty_once_and_the_budget_costs_nothing)
{
    place p;
    ares_env_turn t;
    REQUIRE_OK(place_open(&p, "CoordSokoban", "max_actions=3"));
    REQUIRE_OK(place_reset(&p, 10007, 0)); /* #O_XP#: two steps to the left win */
    CHECK_OK(place_act(&p, "jump || UP || fly", &t));
    CHECK_EQ(t.executed, 1);
    CHECK_NEAR(t.penalty, -0.1, 0);
    CHECK(!p.env.no_valid_action);
    CHECK_OK(place_act(&p, "", &t));
    CHECK(t.outcome.reward.integer && t.outcome.reward.value == 0);
    CHECK_NEAR(t.penalty, -0.1, 0);
    CHECK(p.env.no_valid_action);
    CHECK_NEAR(place_told(&t, "manager_invalid_action"), 1, 0);
    CHECK_OK(place_act(&p, "Down || Right || Left", &t)); /* the last one is cut */
    CHECK_EQ(t.executed, 2);
    CHECK_NEAR(t.penalty, 0, 0);
    CHECK(p.env.terminated && p.env.truncated && !ares_env_won(&p.env));
    CHECK_EQ(p.env.turns, 3);
    CHECK_EQ(p.env.num_actions, 3);
    CHECK_NEAR(p.env.penalty, -0.2, 1e-15);
    CHECK_NEAR(p.env.reward.value, -0.3, 1e-15);
    place_close(&p);
}

TEST(a_turn_ends_with_the_episode)
{
    place p;
    ares_env_turn t;
    REQUIRE_OK(place_open(&p, "SimpleSokoban", ""));
    REQUIRE_OK(place_reset(&p, 10007, 0));
    CHECK_OK(place_act(&p, "Left || Left || Up || nonsense", &t));
    CHECK_EQ(t.executed, 2);
    CHECK_NEAR(t.outcome.reward.value, 10.8, 1e-14);
    CHECK_NEAR(t.penalty, -0.1, 0); /* the unknown name was written all the same */
    CHECK(ares_env_won(&p.env) && t.outcome.done);
    place_shows(&p, "######\n#____#\n#√P__#\n##_#_#\n####_#\n######");
    REQUIRE_OK(place_reset(&p, 10007, 0)); /* everything of the episode begins again */
    CHECK(!ares_env_over(&p.env) && p.env.turns == 0 && p.env.penalty == 0);
    CHECK_EQ(ares_env_actions_left(&p.env), 10);
    place_close(&p);
}

TEST(a_hole_is_a_failure_and_the_goal_a_success)
{
    place p;
    ares_env_turn t;
    int won = 0, lost = 0, stopped = 0;
    REQUIRE_OK(place_open(&p, "FrozenLake", "options.is_slippery=false options.p=0.6"));
    for (uint64_t seed = 0; seed < 60; seed++) {
        static const char *const ways[] = { "Left", "Down", "Right", "Up" };
        REQUIRE_OK(place_reset(&p, seed, 0));
        for (int i = 0; !ares_env_over(&p.env); i++) {
            ares_str before = { 0 }, after = { 0 };
            ares_env_render(&p.env, &before);
            CHECK_OK(place_act(&p, ways[(seed + (uint64_t)i / 3) % 4], &t));
            ares_env_render(&p.env, &after);
            CHECK_EQ(place_told(&t, "action_is_effective"), strcmp(before.data, after.data) != 0);
            stopped += strcmp(before.data, after.data) == 0; /* at an edge */
            ares_str_fini(&before);
            ares_str_fini(&after);
        }
        CHECK_EQ(ares_env_won(&p.env), p.env.reward.value == 1);
        won += ares_env_won(&p.env);
        lost += t.outcome.done && !t.outcome.success;
    }
    CHECK(won > 3 && lost > 3 && stopped > 3);
    place_close(&p);
}

/* ---------------- rooms */
/* Whether a room with one box can be solved: breadth first over player and box. */
static bool solvable(const sokoban_size *z, const sokoban_room *room)
{
    enum { CELLS = 36 };
    static bool seen[CELLS][CELLS];
    int queue[CELLS * CELLS][2], n = 0, player = 0, box = 0;
    memset(seen, 0, sizeof seen);
    while (room->state[player] != SOKOBAN_PLAYER) player++;
    while (room->state[box] != SOKOBAN_BOX) box++;
    queue[n][0] = player;
    queue[n++][1] = box;
    seen[player][box] = true;
    for (int i = 0; i < n; i++) {
        if (room->fixed[queue[i][1]] == SOKOBAN_TARGET) return true;
        for (int d = 0; d < 4; d++) {
            int to = sokoban_beside(z->cols, queue[i][0], d), then = queue[i][1];
            if (to == then) then = sokoban_beside(z->cols, then, d);
            if (room->fixed[to] == SOKOBAN_WALL || room->fixed[then] == SOKOBAN_WALL) continue;
            if (seen[to][then]) continue;
            seen[to][then] = true;
            queue[n][0] = to;
            queue[n++][1] = then;
        }
    }
    return false;
}

TEST(every_room_can_be_solved)
{
    sokoban_size z = { 6, 6, 1, 300 };
    sokoban_room room;
    for (uint64_t seed = 10000; seed < 10500; seed++) {
        uint64_t found = seed;
        REQUIRE_OK(sokoban_room_find(&found, &z, &room));
        CHECK_MSG(solvable(&z, &room), "seed %llu", (unsigned long long)seed);
    }
}

TEST(rooms_that_cannot_be_are_refused)
{
    sokoban_size z = { 5, 5, 7, 300 };
    sokoban_room room;
    uint64_t seed = 1;
    CHECK_FAIL(sokoban_room_find(&seed, &z, &room), ARES_ELIMIT, "no room of 5 x 5 with 7 boxes");
    z = (sokoban_size){ 32, 32, 15, 60 }; /* the search is long, and ends */
    CHECK_FAIL(sokoban_room_find(&seed, &z, &room), ARES_ELIMIT, "no room of 32 x 32 with 15");
    place p;
    CHECK_FAIL(place_define(&p, NULL, "sokoban", "options.dim_x=3 options.dim_y=4"), ARES_ECONFIG,
               "a room of 3 x 4 has no space");
    place_close(&p);
    REQUIRE_OK(place_open(&p, "frozen_lake", "options.size=32 options.p=0"));
    CHECK_OK(place_reset(&p, 3, 0)); /* start and goal beside each other, somewhere */
    place_close(&p);
}

TEST(the_largest_rooms_are_made)
{
    sokoban_size z = { 32, 32, 3, 300 };
    sokoban_room room;
    uint64_t seed = 5;
    int boxes = 0, targets = 0;
    REQUIRE_OK(sokoban_room_find(&seed, &z, &room));
    CHECK(room.displacement > 0 && room.explored <= 300000);
    for (int i = 0; i < 32 * 32; i++) {
        boxes += room.state[i] == SOKOBAN_BOX;
        targets += room.fixed[i] == SOKOBAN_TARGET;
    }
    CHECK_EQ(boxes, 3);
    CHECK_EQ(targets, 3);
}

/* ---------------- the small ones, against the published rules run with numpy 2.4 */
TEST(tiles_slide_as_published)
{
    static const char *const ways[] = { "Left", "Down", "Right", "Down" };
    place p;
    ares_env_turn t;
    REQUIRE_OK(place_open(&p, "game_2048", "max_actions=100"));
    CHECK_OK(place_reset(&p, 3, 0));
    for (int i = 0; i < 48; i++) CHECK_OK(place_act(&p, ways[i % 4], &t));
    CHECK_NEAR(place_told(&t, "score"), 276, 0);
    CHECK_NEAR(p.env.reward.value, 9.675872130655456, 1e-12);
    ares_str text = { 0 };
    ares_env_render(&p.env, &text);
    CHECK_CONTAINS(
        text.data,
        "Row 1: [0, 0, 0, 0]\nRow 2: [0, 0, 4, 2]\nRow 3: [4, 2, 16, 4]\nRow 4: [2, 16, 32, 16]\n");
    ares_str_fini(&text);
    /* four moves in a turn: what is told is what the last of them leaves */
    CHECK_OK(place_reset(&p, 3, 0));
    for (int i = 0; i < 12; i++) CHECK_OK(place_act(&p, "Left || Down || Right || Down", &t));
    CHECK_NEAR(place_told(&t, "score"), 276, 0);
    place_close(&p);
}

TEST(a_cube_turns_as_published_and_back)
{
    static const char *const back[] = { "B", "L'", "D", "F'", "R", "U'" };
    place p;
    ares_env_turn t;
    ares_str before = { 0 }, after = { 0 };
    REQUIRE_OK(place_open(&p, "rubikscube", "max_actions=100 options.max_steps=100"));
    CHECK_OK(place_reset(&p, 7, 0));
    ares_env_render(&p.env, &before);
    CHECK_OK(place_act(&p, "U || R' || F || D' || L || B'", &t));
    ares_env_render(&p.env, &after);
    CHECK_CONTAINS(
        after.data,
        "Up (U):    [W, G]\n [Y, W]\nLeft (L):  [Y, G]\n [B, R]\nFront (F): [O, B]\n [G, G]\n"
        "Right (R): [O, W]\n [B, R]\nBack (B):  [O, R]\n [Y, O]\nDown (D):  [W, Y]\n [R, B]\n");
    for (int i = 0; i < ARES_COUNT(back); i++) CHECK_OK(place_act(&p, back[i], &t));
    ares_str_clear(&after);
    ares_env_render(&p.env, &after);
    CHECK_STR(strstr(after.data, "\n\n"), strstr(before.data, "\n\n"));
    place_close(&p);
    REQUIRE_OK(place_open(&p, "rubikscube", "options.scramble_depth=1"));
    int solved = 0;
    for (int i = 0; i < 12; i++) { /* a turn, or the opposite face's, undoes the first */
        int n;
        CHECK_OK(place_reset(&p, 3, 0));
        CHECK_OK(place_act(&p, ares_env_actions(&p.env, &n)[i], &t));
        solved += ares_env_won(&p.env) && t.outcome.reward.value == 1;
    }
    CHECK_EQ(solved, 2);
    place_close(&p);
    ares_str_fini(&before);
    ares_str_fini(&after);
}
