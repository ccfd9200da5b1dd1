/*
 * The tags of RAGEN's config/envs.yaml whose types are built in. The instructions are data: their
 * wording, blanks at line ends and "(5, 5)" on a map of 4 x 4 are RAGEN's.
 */
#include "tags.h"

#include "ares/core.h"

#define SOKOBAN_INSTRUCTION                                                                       \
    "You are solving the Sokoban puzzle. \nYou are the player and you need to push all boxes to " \
    "targets. \nWhen you are right next to a box, you can push it by moving in the same "         \
    "direction. \nYou cannot push a box through a wall, and you cannot pull a box. \nThe answer " \
    "should be a sequence of actions, like <answer>Right || Right || Up</answer>\n"

const env_tag env_tags[] = {
    { "SimpleSokoban", "sokoban", SOKOBAN_INSTRUCTION, 10, 100,
      "{\"dim_x\":6,\"dim_y\":6,\"num_boxes\":1,\"max_steps\":100}" },
    { "LargerSokoban", "sokoban", SOKOBAN_INSTRUCTION, 10, 100,
      "{\"dim_x\":8,\"dim_y\":8,\"num_boxes\":2,\"max_steps\":100,\"search_depth\":10}" },
    { "SokobanDifferentGridVocab", "sokoban", SOKOBAN_INSTRUCTION, 10, 100,
      "{\"dim_x\":6,\"dim_y\":6,\"num_boxes\":1,\"max_steps\":100,\"search_depth\":30,"
      "\"symbols\":[\"W\",\".\",\"G\",\"C\",\"B\",\"A\",\"@\"]}" },
    { "CoordSokoban", "sokoban",
      "You are solving the Sokoban puzzle. You are the player and you need to push all boxes to "
      "targets.\nYou are provided with a symbol grid and the zero-indexed coordinates of the "
      "player, each box, and each target. \nCoordinates range from the top-left corner (0, 0) to "
      "the bottom-right corner (5, 5). \nWhen you are exactly next to a box, you can push it by "
      "moving in the same direction. \nYou cannot push a box through a wall, and you cannot pull a "
      "box.\nThe answer should be a sequence of actions, like <answer>Right || Right || "
      "Up</answer>.\n",
      10, 120,
      "{\"dim_x\":6,\"dim_y\":6,\"num_boxes\":1,\"max_steps\":100,"
      "\"observation_format\":\"grid_coord\"}" },
    { "FrozenLake", "frozen_lake",
      "You are solving the FrozenLake puzzle. Forbid the whole and go to the target. You may move "
      "to the unintended direction due to the slippery ice. Example answer format: <think>To "
      "forbid the hole and go to the target, I should go left then go up.</think><answer>Left || "
      "Up</answer>",
      10, 100, "{\"success_rate\":0.8}" },
    { "CoordFrozenLake", "frozen_lake",
      "You are solving the FrozenLake puzzle. The observation includes both a symbol grid and "
      "zero-indexed coordinates for the start, goal, player, and any holes.\nCoordinates range "
      "from the top-left corner (0, 0) to the bottom-right corner (5, 5).\nBeware that the ice is "
      "slippery, so the agent might slide and end up in an unintended tile.\nRespond with a "
      "sequence of actions such as <answer>Left || Up || Up</answer>.\n",
      10, 120, "{\"observation_format\":\"grid_coord\",\"success_rate\":0.8}" },
    { "Countdown", "countdown",
      "You are solving the Countdown puzzle. You should use the num list to create an equation "
      "that equals the target. Example answer format: <think> To find an equation using [3, 5, 2] "
      "to get 4. Let's check 2 + 5 = 7, 7 - 3 = 4. So the answer is 2 + 5 - 3 = 4. "
      "</think><answer>2 + 5 - 3</answer>",
      1, 100, "{}" },
    { "Bandit", "bandit", "", 1, 100, "{\"split\":\"train\"}" },
    { "BanditTest", "bandit", "", 1, 100, "{\"split\":\"test\"}" },
    { "MetamathQA", "metamathqa", "You are solving Math problems. ", 1, 100, "{}" },
};
const int env_tag_count = ARES_COUNT(env_tags);
