/* ares-train show on invented rollouts, so that every line it prints is known. */
#include <stdio.h>
#include <string.h>

#include "test.h"

/* Two episodes of a step, out of order. The first has three turns, of which one has left. */
static const char played[] =
    "{\"step\":2,\"draw\":5,\"sample\":1,\"data_source\":\"Ice\",\"seed\":20000005,\"id\":21,"
    "\"token_exact\":true,\"prompt\":\"sys<answer>\",\"response\":\"L\xc3\xa9<end> user "
    "<answer>R<end>"
    "\",\"turns\":[{\"state\":\"board 1\",\"response\":\"<answer>gone\",\"actions\":[],"
    "\"executed\":0,\"reward\":0.0,\"penalty\":-0.1,\"n_tokens\":4},{\"state\":\"board 2\","
    "\"response\":\"<answer>L\",\"actions\":[\"L\",\"\\u001b[2Jx\\ny\"],\"executed\":1,\"reward\":"
    "-0.25,\"penalty\":0.0,\"n_tokens\":3,\"info\":{\"moved\":1}},{\"state\":\"board 3\","
    "\"response\":\"<answer>R\",\"actions\":[\"R\"],\"executed\":1,\"reward\":1,\"penalty\":0.0,"
    "\"n_tokens\":2,\"end\":\"won\"}],\"trained\":[[0,3],[9,2]],\"trained_text\":[[0,7],[21,6]],"
    "\"turn_ends\":[7,27],\"score\":0.65,\"rewards\":{},\"accuracy\":1.0,\"advantage\":2,"
    "\"n_tokens\":11,\"finished\":true}\n"
    "{\"step\":2,\"draw\":5,\"sample\":0,\"data_source\":\"Ice\",\"seed\":20000005,\"id\":20,"
    "\"token_exact\":true,\"prompt\":\"p\",\"response\":\"\",\"turns\":[{\"state\":\"s\","
    "\"response\":"
    "\"<answer>\",\"actions\":[],\"executed\":0,\"reward\":0,\"penalty\":0,\"n_tokens\":0},"
    "{\"failure\":\"the process\\nhas ended\",\"replayable\":true}],\"trained\":[],"
    "\"trained_text\":[],\"turn_ends\":[],\"score\":null,\"rewards\":{},\"accuracy\":0.0,"
    "\"advantage\":0,\"n_tokens\":0,\"finished\":true}\n";

static const char answers[] =
    "{\"step\":1,\"draw\":0,\"sample\":0,\"row\":7,\"data_source\":\"sums\",\"prompt\":\"1+1=\","
    "\"response\":\"2\",\"ground_truth\":\"2\",\"score\":0.9,\"rewards\":{\"exact\":1},"
    "\"accuracy\":1.0,\"advantage\":0.5,\"n_tokens\":1,\"finished\":true}\n"
    "{\"step\":1,\"draw\":0,\"sample\":1,\"row\":7,\"data_source\":\"sums\",\"prompt\":\"1+1=\","
    "\"response\":\"3\\u009b1m\",\"ground_truth\":\"2\",\"score\":-0.5,\"rewards\":{\"exact\":0},"
    "\"accuracy\":0.0,\"advantage\":0,\"n_tokens\":1,\"finished\":false,\"discarded\":true}\n";

static void write_step(const char *run, int step, const char *text, size_t len)
{
    char path[64];
    snprintf(path, sizeof path, "%s/rollouts", run);
    CHECK_OK(ares_dir_make(test_file(path)));
    snprintf(path, sizeof path, "%s/rollouts/step_%06d.jsonl", run, step);
    CHECK_OK(ares_file_write(test_file(path), text, len));
}

static int show(ares_str *out, const char *words)
{
    ares_str_clear(out);
    return test_shell(out, "cd '%s' && '%s' show %s 2>&1", test_dir(), test_program(), words);
}

static bool has_program(void)
{
    return ares_file_exists(test_program());
}

TEST(show_lists_the_episodes_of_the_last_step)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_step("run", 1, answers, sizeof answers - 1);
    write_step("run", 2, played, sizeof played - 1);
    CHECK_EQ(show(&out, "run"), 0);
    CHECK_STR(out.data, "step 2 of run\n"
                        "episode  tag  seed      turns  score  success  end\n"
                        "1        Ice  20000005  1      -      no       failed: the process has "
                        "ended\n"
                        "2        Ice  20000005  3      0.65   yes      won\n");
    CHECK_EQ(show(&out, "run --step 1"), 0);
    CHECK_STR(out.data, "step 1 of run\n"
                        "episode  source  row  sample  score  accuracy  end\n"
                        "1        sums    7    0       0.9    1         stopped\n"
                        "2        sums    7    1       -0.5   0         cut by the limit of "
                        "length, discarded\n");
    /* one answer each time that the same row was drawn */
    static const char single[] = "{\"draw\":3,\"sample\":0,\"row\":1,\"data_source\":\"sums\","
                                 "\"prompt\":\"a\",\"response\":\"b\",\"finished\":true}\n"
                                 "{\"draw\":4,\"sample\":0,\"row\":1,\"data_source\":\"sums\","
                                 "\"prompt\":\"c\",\"response\":\"d\",\"finished\":true}\n";
    write_step("single", 1, single, sizeof single - 1);
    CHECK_EQ(show(&out, "single"), 0);
    CHECK_CONTAINS(out.data, "\n1        sums    1    0 ");
    CHECK_CONTAINS(out.data, "\n2        sums    1    0 ");
    ares_str_fini(&out);
}

/* Turns that left the context come first; control characters never reach the terminal. */
TEST(show_prints_an_episode_turn_by_turn)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_step("run", 2, played, sizeof played - 1);
    CHECK_EQ(show(&out, "run --episode 2"), 0);
    CHECK_STR(out.data,
              "step 2, episode 2 of 2: Ice, seed 20000005, id 21\n"
              "score 0.65 (reward 0.75, penalty -0.1), success 1, advantage 2; won; 3 turns, 2 "
              "actions\n"
              "1 row of 11 tokens, 5 of them trained; trained text stands between {+ and +}\n\n"
              "--- turn 1 is not trained: it is in no row of the batch\nboard 1\n<answer>gone\n"
              "[turn 1: no action; 0 executed; reward 0, penalty -0.1; 4 tokens]\n"
              "sys<answer>{+L\xc3\xa9<end>+}\n"
              "[turn 2: L || \\x1b[2Jx y; 1 executed; reward -0.25; 3 tokens; moved 1]\n"
              " user <answer>{+R<end>+}\n"
              "[turn 3: R; 1 executed; reward 1; 2 tokens]\n");
    CHECK_EQ(show(&out, "run --episode 2 --color always"), 0);
    CHECK_CONTAINS(out.data, "sys<answer>\033[32mL\xc3\xa9<end>\033[0m\n\033[2m[turn 2:");
    CHECK(!strstr(out.data, "\033[2J"));
    CHECK_EQ(show(&out, "run --episode=1"), 0);
    CHECK_CONTAINS(out.data, "score - (reward 0, penalty 0)");
    CHECK_CONTAINS(out.data, "; failed: the process has ended; 1 turns, 0 actions\n");
    ares_str_fini(&out);
}

TEST(show_prints_plain_answers)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_step("run", 1, answers, sizeof answers - 1);
    CHECK_EQ(show(&out, "run --episode 1 --color never"), 0);
    CHECK_STR(out.data, "step 1, episode 1 of 2: sums, row 7, sample 0\n"
                        "score 0.9, exact 1, accuracy 1, advantage 0.5; stopped\n"
                        "1 row of 1 tokens; trained text stands between {+ and +}\n\n"
                        "1+1={+2+}\n[ground truth: 2]\n");
    CHECK_EQ(show(&out, "run --episode 2"), 0);
    CHECK_CONTAINS(out.data, "\n\n1+1=3\\u009b1m\n"); /* discarded: nothing of it is trained */
    ares_str_fini(&out);
}

TEST(show_prints_the_logged_tokens_of_an_answer)
{
    static const char rows[] =
        "{\"step\":1,\"draw\":0,\"sample\":0,\"row\":7,\"data_source\":\"sums\",\"prompt\":\"1\","
        "\"response\":\"2\",\"score\":1,\"rewards\":{},\"accuracy\":1,\"advantage\":1,"
        "\"n_tokens\":3,\"finished\":true,\"prompt_ids\":[4],\"token_ids\":[5,70,2],\"pieces\":"
        "[\"2\\u001b[2J\\n\",\"\",\"\xc3\xa9<|end|>\"],\"entropies\":[0.5,1.25,null],\"logprobs\":"
        "[-0.1234,-2,null],\"kl\":[1],\"ratio\":[1.25,1,null],\"clipped\":[[0,1]],\"trained\":"
        "[[0,2]]}\n"
        "{\"step\":1,\"draw\":0,\"sample\":1,\"row\":7,\"data_source\":\"sums\",\"prompt\":\"1\","
        "\"response\":\"2\",\"score\":1,\"rewards\":{},\"n_tokens\":1}\n";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_step("run", 1, rows, sizeof rows - 1);
    CHECK_EQ(show(&out, "run --episode 1 --tokens"), 0);
    CHECK_CONTAINS(out.data,
                   "1 row of 3 tokens\n\n"
                   " token      id   log-prob    entropy      ratio      text\n"
                   "     0       5    -0.1234        0.5       1.25 c   \"2\\u001b[2J\\n\"\n"
                   "     1      70         -2       1.25          1     \"\"\n"
                   "     2       2          -          -          -   u \"\xc3\xa9<|end|>\"\n"
                   "c: clipped, h: high window entropy, u: not trained\n");
    CHECK_EQ(show(&out, "run --episode 2 --tokens"), 0);
    CHECK_CONTAINS(out.data, "no columns of tokens: trainer.rollout_log");
    CHECK_EQ(show(&out, "run --tokens"), 2);
    CHECK_CONTAINS(out.data, "show: --tokens: of which answer? add --episode K");
    CHECK_EQ(show(&out, "run --tokens --validation --episode 1"), 2);
    CHECK_CONTAINS(out.data, "validations log no tokens");
    write_step("run", 1,
               "{\"draw\":0,\"sample\":0,\"data_source\":\"\",\"prompt\":\"\",\"response\":"
               "\"\",\"clipped\":[[3,9223372036854775807]]}\n",
               101);
    CHECK_EQ(show(&out, "run --episode 1 --tokens"), 1);
    CHECK_CONTAINS(out.data, "'clipped': not a list of runs");
    ares_str_fini(&out);
}

/* Several rows of an episode, the same row twice, and a turn whose row was deleted. */
TEST(show_puts_the_rows_of_an_episode_together)
{
    static const char row[] =
        "{\"draw\":0,\"sample\":0,\"turn\":%d,\"data_source\":\"T\",\"token_exact\":false,"
        "\"prompt\":\"P%d \",\"response\":\"kept\",\"turns\":[{\"response\":\"a\",\"actions\":[]},"
        "{\"state\":\"S\",\"response\":\"b\",\"actions\":[]},{\"response\":\"kept\",\"actions\":[]}"
        "]"
        ",\"trained\":[[0,%d]],\"n_tokens\":%d,\"trained_text\":[[0,4]],\"turn_ends\":[4]}\n";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str text = { 0 }, out = { 0 };
    static const int turns[] = { 2, 0, 0 };
    for (int i = 0; i < 3; i++)
        ares_str_addf(&text, row, turns[i], turns[i], turns[i] + 2, turns[i] + 4);
    write_step("rows", 1, text.data, text.len);
    CHECK_EQ(show(&out, "rows --episode 1"), 0);
    CHECK_CONTAINS(out.data, "2 rows of 10 tokens, 6 of them trained, and 1 copies;");
    CHECK_CONTAINS(out.data, "\n\n--- turn 1\nP0 {+kept+}\n[turn 1: no action; 0 executed; reward "
                             "-; 0 tokens]\n[it wrote: a]\n"
                             "--- turn 2 is not trained: it is in no row of the batch\nS\nb\n");
    CHECK_CONTAINS(out.data, "--- turn 3\nP2 {+kept+}\n[turn 3: ");
    ares_str_fini(&text);
    ares_str_fini(&out);
}

/* Of five turns the first has left the row, one wrote nothing, and the last did not fit. */
TEST(show_tells_turns_without_tokens_from_those_that_left_and_one_that_did_not_fit)
{
    static const char row[] =
        "{\"draw\":0,\"sample\":0,\"data_source\":\"T\",\"seed\":3,\"id\":4,\"token_exact\":true,"
        "\"prompt\":\"P:\",\"response\":\"bb;dd\",\"turns\":["
        "{\"state\":\"S1\",\"response\":\"aa\",\"actions\":[],\"n_tokens\":4},"
        "{\"state\":\"S2\",\"response\":\"bb\",\"actions\":[\"b\"],\"n_tokens\":3},"
        "{\"state\":\"S3\",\"response\":\"\",\"actions\":[],\"n_tokens\":0},"
        "{\"state\":\"S4\",\"response\":\"dd\",\"actions\":[\"d\"],\"n_tokens\":2},"
        "{\"state\":\"S5\",\"response\":\"\",\"actions\":[],\"n_tokens\":0,\"end\":\"context "
        "full\"}],\"trained\":[[0,3],[4,2]],\"n_tokens\":9,\"trained_text\":[[0,2],[3,2]],"
        "\"turn_ends\":[2,5],\"score\":1,\"rewards\":{},\"accuracy\":1,\"finished\":false}\n";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_step("full", 1, row, sizeof row - 1);
    CHECK_EQ(show(&out, "full"), 0);
    CHECK_CONTAINS(out.data, "\n1        T    3     4      1      yes ");
    CHECK_EQ(show(&out, "full --episode 1"), 0);
    CHECK_CONTAINS(out.data, "4 turns, 0 actions\n");
    CHECK_CONTAINS(out.data, "--- turn 1 is not trained: it is in no row of the batch\nS1\naa\n"
                             "[turn 1:");
    CHECK_CONTAINS(out.data, "\nP:{+bb+}\n[turn 2: b; 0 executed; reward -; 3 tokens]\n;{+dd+}\n"
                             "[turn 3: no action; 0 executed; reward -; 0 tokens]\n[turn 4: d;");
    CHECK_CONTAINS(out.data, "--- turn 5 is not trained: it is in no row of the batch\nS5\n");
    CHECK(!strstr(out.data, "S2") && !strstr(out.data, "S3") && !strstr(out.data, "S4"));
    ares_str_fini(&out);
}

TEST(show_prints_rows_that_do_not_say_what_was_trained)
{
    static const char row[] =
        "{\"draw\":0,\"sample\":0,\"data_source\":\"T\",\"prompt\":\"P \",\"response\":\"R\","
        "\"turns\":[{\"response\":\"a\",\"actions\":[\"b\"]},{\"response\":\"c\",\"actions\":[]}],"
        "\"accuracy\":0,\"finished\":false}\n";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    write_step("old", 1, row, sizeof row - 1);
    CHECK_EQ(show(&out, "old --episode 1 --color always"), 0);
    CHECK_CONTAINS(out.data, "T, seed -, id -\n");
    CHECK_CONTAINS(out.data, "success 0, advantage -; no turns left; 2 turns, 0 actions\n");
    CHECK_CONTAINS(out.data, "; the file does not say which text was trained\n\nP R\n");
    CHECK_CONTAINS(out.data, "[turn 1: b; 0 executed; reward -; 0 tokens]");
    CHECK_CONTAINS(out.data, "[turn 2: no action;");
    ares_str_fini(&out);
}

TEST(show_says_what_there_is)
{
    static const struct {
        const char *words, *message;
    } cases[] = {
        { "", "show: no run directory is named" },
        { "run other", "show: more than one word is given" },
        { "nowhere", "show: 'nowhere': no such directory" },
        { "run/rollouts",
          "show: 'run/rollouts': no folder rollouts there; name the directory of a run" },
        { "empty", "show: 'empty': rollouts has no step yet" },
        { "run --step 4", "show: --step = 4: 'run' has no such step; there are 1 to 2, 7\n" },
        { "run --step 0", "show: --step = 0: 'run' has no such step; there are 1 to 2, 7" },
        { "run --step -1", "show: --step = -1: out of range; set 0 or more" },
        { "run --step 1 --episode 3",
          "show: --episode = 3: step 1 has no such one; there are 1 to 2" },
        { "run --episode x", "show: --episode = 'x': not a whole number" },
        { "run --color green", "(choices: auto, always, never)" },
        { "run --colour", "did you mean '--color'?" },
    };
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    for (int i = 1; i <= 7; i += i == 2 ? 5 : 1) write_step("run", i, answers, sizeof answers - 1);
    CHECK_OK(ares_dir_make(test_file("empty/rollouts")));
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        CHECK_EQ(show(&out, cases[i].words), 2);
        CHECK_CONTAINS(out.data, cases[i].message);
    }
    ares_str_fini(&out);
}

TEST(show_reads_half_written_files_and_refuses_foreign_ones)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "", "not one whole line\n" },
        { "{\"draw\":0", "not one whole line; the run is writing it, or was killed" },
        { "{\"draw\":0\n", "step_000001.jsonl:1:" },
        { "[1]\n", "step_000001.jsonl:1: not an object" },
        { "{\"step\":1,\"loss\":2}\n", "jsonl:1: 'draw': no such whole number; this is no row" },
        { "{\"draw\":0,\"sample\":0,\"data_source\":\"a\",\"prompt\":3,\"response\":\"\"}\n",
          "jsonl:1: 'prompt': no such text" },
    };
    static const char *const damaged[] = {
        "\"turns\":3",
        "\"turns\":[7]",
        "\"turns\":[{\"failure\":\"\"}]",
        "\"turns\":[{\"response\":\"\",\"actions\":[1]}]",
        "\"trained_text\":[[0,5]]",
        "\"trained_text\":[[1,2],[2,1]]",
        "\"trained_text\":[[0,-1]]",
        "\"trained_text\":[[0,9223372036854775807]]",
        "\"trained\":[[0]]",
        "\"turn_ends\":[5]",
        "\"turn_ends\":[3,2]",
        "\"turn_ends\":{}",
        "\"turn_ends\":[-1]",
        "\"turn_ends\":[1.0]",
        "\"turn_ends\":[2,18446744073709551616]",
        "\"trained\":7",
        "\"trained\":[[0,1],4]",
        "\"trained\":[{\"first\":0,\"count\":1}]",
        "\"trained\":[[0,1,2]]",
        "\"trained\":[[0.0,1]]",
        "\"trained\":[[0,18446744073709551616]]",
        "\"trained\":[[0,1],[-1,2]]",
        "\"trained_text\":[[5,0]]",
        "\"trained_text\":[[0,2],[3,2]]",
        "\"turns\":[{\"actions\":[]}]",
        "\"turns\":[{\"response\":\"\"}]",
        "\"turns\":[{\"response\":\"\",\"actions\":{}}]",
        "\"turns\":[{\"response\":\"\",\"actions\":[\"a\",null]}]",
    };
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 }, text = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        write_step("bad", 1, cases[i].text, strlen(cases[i].text));
        CHECK_EQ(show(&out, "bad --episode 1"), 1);
        CHECK_CONTAINS(out.data, cases[i].message);
    }
    for (int i = 0; i < ARES_COUNT(damaged); i++) {
        ares_str_clear(&text);
        ares_str_addf(&text,
                      "{\"draw\":0,\"sample\":0,\"data_source\":\"a\",\"prompt\":\"\",\"response\":"
                      "\"four\",%s}\n",
                      damaged[i]);
        write_step("bad", 1, text.data, text.len);
        CHECK_EQ(show(&out, "bad --episode 1"), 1);
        CHECK_CONTAINS(out.data, "this is no row of a rollout, or a damaged one");
    }
    write_step("half", 3, played, sizeof played - 20);
    CHECK_EQ(show(&out, "half"), 0);
    CHECK_CONTAINS(out.data, "1        Ice  20000005  3      0.65   yes      won\n");
    CHECK_CONTAINS(out.data, "its last line is half written and was left out");
    ares_str_fini(&out);
    ares_str_fini(&text);
}

TEST(show_prints_validations)
{
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    static const char rows[] =
        "{\"step\":0,\"data_set\":\"hard\",\"row\":0,\"sample\":0,\"question\":\"q\",\"prompt\":"
        "\"q\","
        "\"response\":\"r\",\"ground_truth\":\"t\",\"score\":0.5,\"rewards\":{},\"accuracy\":null,"
        "\"n_tokens\":3,\"finished\":false}\n"
        "{\"step\":0,\"row\":1,\"sample\":0,\"question\":\"1+1\",\"prompt\":\"<1+1>\",\"response\":"
        "\"2\","
        "\"ground_truth\":\"2\",\"score\":1,\"rewards\":{\"exact\":1},\"accuracy\":1,\"n_tokens\":"
        "1,"
        "\"finished\":true}\n"
        "{\"step\":0,\"row\":0,\"sample\":1,\"question\":\"1+2\",\"prompt\":\"<1+2>\",\"response\":"
        "\"9\","
        "\"ground_truth\":\"3\",\"score\":0,\"rewards\":{\"exact\":0},\"accuracy\":0,\"n_tokens\":"
        "1,"
        "\"finished\":true}\n";
    write_step("run", 1, answers, sizeof answers - 1);
    CHECK_EQ(show(&out, "run --validation"), 2);
    CHECK_CONTAINS(out.data, "no folder validation there; the run has validated nothing");
    CHECK_OK(ares_dir_make(test_file("run/validation")));
    CHECK_OK(ares_file_write(test_file("run/validation/step_000000.jsonl"), rows, sizeof rows - 1));
    CHECK_EQ(show(&out, "run --validation"), 0);
    CHECK_STR(out.data,
              "validation of step 0 of run\n"
              "episode  source  row  sample  score  accuracy  end\n"
              "1                0    1       0      0         stopped\n"
              "2                1    0       1      1         stopped\n"
              "3        hard    0    0       0.5    -         cut by the limit of length\n");
    CHECK_EQ(show(&out, "run --validation --step 0 --episode 2"), 0);
    CHECK_STR(out.data, "validation of step 0, episode 2 of 3: row 1, sample 0\n"
                        "score 1, exact 1, accuracy 1; stopped\n1 row of 1 tokens\n\n"
                        "<1+1>2\n[ground truth: 2]\n");
    ares_str_fini(&out);
}

/* Validations of conversations and of two data sets that have the same rows. */
TEST(show_tells_data_sets_and_conversations_of_a_validation_apart)
{
    static const char row[] =
        "{\"step\":3,%s\"row\":%d,\"sample\":%d,\"question\":\"q\","
        "\"prompt\":\"p\",\"response\":\"r%s\",\"score\":1,\"rewards\":{},\"accuracy\":0,"
        "\"advantage\":9,\"n_tokens\":2,\"finished\":true%s}\n";
    static const char turns[] = ",\"turns\":[{\"response\":\"r\",\"actions\":[]}]";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str text = { 0 }, out = { 0 };
    ares_str_addf(&text, row, "\"data_set\":\"b\",", 0, 0, "1", "");
    ares_str_addf(&text, row, "\"data_set\":\"a\",", 0, 0, "2", "");
    ares_str_addf(&text, row, "\"data_set\":\"a\",", 0, 0, "2", ""); /* the same row twice */
    ares_str_addf(&text, row, "\"data_set\":\"a\",\"data_source\":\"s\",", 4, 0, "", turns);
    CHECK_OK(ares_dir_make(test_file("sets/validation")));
    CHECK_OK(ares_file_write(test_file("sets/validation/step_000003.jsonl"), text.data, text.len));
    CHECK_EQ(show(&out, "sets --validation"), 0);
    CHECK_CONTAINS(out.data, "\n1        a       0    0 ");
    CHECK_CONTAINS(out.data, "\n2        a       4    1 ");
    CHECK_CONTAINS(out.data, "\n3        b       0    0 ");
    CHECK_EQ(show(&out, "sets --validation --episode 1"), 0);
    CHECK_CONTAINS(out.data, "validation of step 3, episode 1 of 3: a, row 0, sample 0\n");
    CHECK_CONTAINS(out.data, "\n1 row of 2 tokens\n\npr2\n"); /* copies are not told */
    CHECK_EQ(show(&out, "sets --validation --episode 2"), 0);
    CHECK_STR(out.data, "validation of step 3, episode 2 of 3: a, row 4, sample 0\n"
                        "score 1 (reward 0, penalty 0), success 0; over; 1 turns, 0 actions\n"
                        "1 row of 2 tokens\n\npr\n"
                        "[turn 1: no action; 0 executed; reward -; 0 tokens]\n");
    ares_str_fini(&text);
    ares_str_fini(&out);
}

/* What rewards told, several numbers in a line, texts of several lines, an answer without truth. */
TEST(show_prints_details_and_keeps_colours_within_lines)
{
    static const char row[] =
        "{\"step\":1,\"draw\":0,\"sample\":0,\"row\":7,\"data_source\":\"s\\tt\\nu\",\"prompt\":"
        "\"P\\n\",\"response\":\"a\\n\\nb\\n\",\"score\":0.1234567,\"rewards\":{\"x\\ty\":1,"
        "\"z\":0.5},\"accuracy\":0.25,\"advantage\":null,\"details\":{\"said\\u001b\":\"it\\nis\","
        "\"list\":[1,{\"k\":null}]},\"n_tokens\":4,\"finished\":true%s}\n";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str text = { 0 }, out = { 0 };
    ares_str_addf(&text, row, "");
    write_step("told", 1, text.data, text.len);
    CHECK_EQ(show(&out, "told --episode 1 --color always"), 0);
    CHECK_STR(out.data, "step 1, episode 1 of 1: s t u, row 7, sample 0\n"
                        "score 0.123457, x y 1, z 0.5, accuracy 0.25, advantage -; stopped\n"
                        "said\\x1b: \"it\\nis\"\nlist: [1,{\"k\":null}]\n"
                        "1 row of 4 tokens; trained text is green\n\n"
                        "P\n\033[32ma\033[0m\n\n\033[32mb\033[0m\n");
    ares_str_clear(&text);
    ares_str_addf(&text, row, ",\"discarded\":true,\"ground_truth\":\"l1\\nl2\"");
    write_step("told", 1, text.data, text.len);
    CHECK_EQ(show(&out, "told --episode 1 --color always"), 0);
    CHECK_CONTAINS(out.data, "advantage -; stopped, discarded\n");
    const char *text_of_it = strstr(out.data, "\n\nP\n");
    CHECK_STR(text_of_it, "\n\nP\na\n\nb\n\033[2m[ground truth: l1 l2]\033[0m\n");
    ares_str_fini(&text);
    ares_str_fini(&out);
}

/* Turns' numbers and ends: two of everything a note has, a row whose turn is beyond the list. */
TEST(show_prints_every_number_of_a_turn)
{
    static const char row[] =
        "{\"draw\":0,\"sample\":0,%s\"data_source\":\"T\",\"seed\":1,\"id\":2,\"prompt\":\"P\","
        "\"response\":\"ab\\n\",\"turns\":[{\"response\":\"ab\",\"actions\":[\"u\",\"v\"],"
        "\"executed\":2,\"reward\":0.5,\"penalty\":-0.25,\"n_tokens\":2,\"info\":{\"m\":1,\"n\":"
        "2.5}}%s],\"trained_text\":[[0,3]],\"turn_ends\":[3],\"accuracy\":0.5,\"finished\":true}\n";
    if (!has_program()) SKIP("ares-train is not built");
    ares_str text = { 0 }, out = { 0 };
    ares_str_addf(&text, row, "", "");
    write_step("turn", 1, text.data, text.len);
    CHECK_EQ(show(&out, "turn"), 0);
    CHECK_CONTAINS(out.data, "\n1        T    1     1      -      no       over\n");
    CHECK_EQ(show(&out, "turn --episode 1"), 0);
    CHECK_CONTAINS(out.data, "score - (reward 0.5, penalty -0.25), success 0.5, advantage -; over; "
                             "1 turns, 2 actions\n");
    CHECK_CONTAINS(out.data, "P{+ab\n+}\n[turn 1: u || v; 2 executed; reward 0.5, penalty -0.25; "
                             "2 tokens; m 1, n 2.5]\n");
    ares_str_clear(&text);
    ares_str_addf(&text, row, "\"turn\":9,", ",{\"response\":\"c\",\"actions\":[]}");
    write_step("turn", 1, text.data, text.len);
    CHECK_EQ(show(&out, "turn --episode 1"), 0);
    CHECK_CONTAINS(out.data, "--- turn 1 is not trained: it is in no row of the batch\nab\n");
    CHECK_CONTAINS(out.data, "--- turn 2\nP{+ab\n+}\n[turn 2: no action;");
    /* a failure ends the list of turns; anywhere else it is none */
    ares_str_clear(&text);
    ares_str_addf(&text, row, "", ",{\"failure\":\"lost\"},{\"failure\":\"gone\\tby\"}");
    write_step("turn", 1, text.data, text.len);
    CHECK_EQ(show(&out, "turn --episode 1"), 1);
    CHECK_CONTAINS(out.data, "'response': a turn has no such text");
    ares_str_clear(&text);
    ares_str_addf(&text, row, "", ",{\"failure\":\"gone\\tby\"}");
    write_step("turn", 1, text.data, text.len);
    CHECK_EQ(show(&out, "turn --episode 1"), 0);
    CHECK_CONTAINS(out.data, "; failed: gone by; 1 turns, 2 actions\n");
    ares_str_fini(&text);
    ares_str_fini(&out);
}

/* Seventy steps beside files that are none. */
TEST(show_finds_the_steps_among_other_files)
{
    static const char *const others[] = { "step_000099.jsonl.tmp", "step_.jsonl", "notes.txt",
                                          "stop_000098.jsonl", "step_99999999999999999999.jsonl" };
    if (!has_program()) SKIP("ares-train is not built");
    ares_str out = { 0 };
    char path[100];
    for (int i = 1; i <= 70; i++)
        write_step("long", i + (i > 68), answers, sizeof answers - 1); /* no 69 */
    for (int i = 0; i < ARES_COUNT(others); i++) {
        snprintf(path, sizeof path, "long/rollouts/%s", others[i]);
        CHECK_OK(ares_file_write(test_file(path), answers, sizeof answers - 1));
    }
    CHECK_EQ(show(&out, "long"), 0);
    CHECK_CONTAINS(out.data, "step 71 of long\n");
    CHECK_EQ(show(&out, "long --step 80"), 2);
    CHECK_CONTAINS(out.data, "there are 1 to 68, 70 to 71\n");
    CHECK_EQ(show(&out, "--step 2 long --color=never"), 0);
    CHECK_CONTAINS(out.data, "step 2 of long\n");
    ares_str_fini(&out);
}

/* What rows hold of turns: texts in other words, more ends than turns, ends that are not told. */
TEST(show_finds_the_turns_of_a_row)
{
    static const char head[] = "{\"draw\":0,\"sample\":0,\"data_source\":\"T\",\"prompt\":\"P:\",";
    static const char turns[] =
        "\"turns\":[{\"response\":\"aa\",\"actions\":[]},{\"response\":\" cc \",\"actions\":[]},"
        "{\"response\":\"d\",\"actions\":[]}]";
    static const struct {
        const char *members, *text;
    } cases[] = {
        /* without ids every turn has an end; what was written is told where the row has it not */
        { "\"token_exact\":false,\"response\":\"aab;d\",\"trained_text\":[[0,3],[4,1]],"
          "\"turn_ends\":[2,3,5]",
          "\n\nP:{+aa+}\n[turn 1: no action; 0 executed; reward -; 0 tokens]\n"
          "{+b+}\n[turn 2: no action; 0 executed; reward -; 0 tokens]\n[it wrote: cc]\n"
          ";{+d+}\n[turn 3: no action; 0 executed; reward -; 0 tokens]\n" },
        /* the last end is the last turn's; nothing but space after it is left out */
        { "\"token_exact\":false,\"response\":\"d \",\"trained_text\":[[0,1]],\"turn_ends\":[1]",
          "[turn 2: no action; 0 executed; reward -; 0 tokens]\n"
          "P:{+d+}\n[turn 3: no action; 0 executed; reward -; 0 tokens]\n" },
        { "\"turn\":1,\"response\":\"cc\",\"trained_text\":[[0,2]]",
          "--- turn 2\nP:{+cc+}\n[turn 2: no action; 0 executed; reward -; 0 tokens]\n"
          "--- turn 3 is not trained" },
        { "\"turn\":0,\"response\":\"aa bb\",\"trained_text\":[],\"turn_ends\":[2,3,5]",
          "--- turn 1\nP:aa\n[turn 1: no action; 0 executed; reward -; 0 tokens]\n bb\n"
          "--- turn 2 is not trained" },
    };
    if (!has_program()) SKIP("ares-train is not built");
    ares_str text = { 0 }, out = { 0 };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_str_clear(&text);
        ares_str_addf(&text, "%s%s,%s}\n", head, cases[i].members, turns);
        write_step("found", 1, text.data, text.len);
        CHECK_EQ(show(&out, "found --episode 1"), 0);
        CHECK_CONTAINS(out.data, cases[i].text);
        if (i < 2) CHECK(out.data[out.len - 2] == ']'); /* a note of a turn is the last line */
        CHECK(!strstr(out.data, "it wrote: aa") && !strstr(out.data, "it wrote: d"));
    }
    /* an answer without a word */
    static const char empty[] = "{\"draw\":0,\"sample\":0,\"data_source\":\"T\",\"prompt\":\"P\","
                                "\"response\":\"\"}\n";
    write_step("found", 1, empty, sizeof empty - 1);
    CHECK_EQ(show(&out, "found --episode 1"), 0);
    CHECK_STR(strstr(out.data, "\n\n"), "\n\nP\n");
    ares_str_fini(&text);
    ares_str_fini(&out);
}
