/* What a section of VAPOR may say: each key alone, on both sides of its bound. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "ares/algo_loss.h"
#include "test.h"

/* The option that was complained of; ctx: of the severity that is asked for. */
typedef struct complaint {
    char severity;
    const char *option;
    int n;
} complaint;

static void note_complaint(void *ctx, char severity, const char *option, const char *message)
{
    complaint *h = ctx;
    (void)message;
    h->severity = severity;
    h->option = option;
    h->n++;
}

/* want: "e option" of a refusal, "w option" of a warning, "" where nothing is said. */
static void check_complaint(const complaint *h, const char *want, double value)
{
    char said[64] = "";
    if (h->n) (void)snprintf(said, sizeof said, "%c %s", h->severity, h->option);
    CHECK_MSG(h->n <= 1 && strcmp(said, want) == 0, "%g: said '%s' (%d times), expected '%s'",
              value, said, h->n, want);
}

TEST(every_number_of_a_vapor_section_has_its_bounds)
{
    static const char *const tags[2] = { "<A>", "</A>" };
    static const ares_vapor_config fine = {
        .beta = 0.1, .epsilon_low = 0.2, .epsilon_high = 0.2, .kl_coef = 0.04, .log_ratio_clamp = 20
    };
    static const struct {
        size_t at;
        double value;
        const char *want;
    } cases[] = {
        { offsetof(ares_vapor_config, beta), 0, "" },
        { offsetof(ares_vapor_config, beta), -1, "e beta" },
        { offsetof(ares_vapor_config, kl_coef), 0, "" },
        { offsetof(ares_vapor_config, kl_coef), -1, "e kl_coef" },
        { offsetof(ares_vapor_config, epsilon_low), 0, "" },
        { offsetof(ares_vapor_config, epsilon_low), 1, "e epsilon_low" },
        { offsetof(ares_vapor_config, epsilon_low), -0.1, "e epsilon_low" },
        { offsetof(ares_vapor_config, epsilon_high), 0, "" },
        { offsetof(ares_vapor_config, epsilon_high), -0.1, "e epsilon_high" },
        { offsetof(ares_vapor_config, log_ratio_clamp), 0.1, "" },
        { offsetof(ares_vapor_config, log_ratio_clamp), 0, "e log_ratio_clamp" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        ares_vapor_config c = fine;
        complaint h = { 0 };
        memcpy((char *)&c + cases[i].at, &cases[i].value, sizeof cases[i].value);
        ares_vapor_check(&c, 8, tags, tags, note_complaint, &h);
        check_complaint(&h, cases[i].want, cases[i].value);
    }
    static const struct {
        int64_t n;
        const char *want;
    } numbers[] = { { 2, "" }, { 1, "w num_generations" }, { 0, "e num_generations" } };
    for (int i = 0; i < ARES_COUNT(numbers); i++) {
        complaint h = { 0 };
        ares_vapor_check(&fine, numbers[i].n, tags, tags, note_complaint, &h);
        check_complaint(&h, numbers[i].want, (double)numbers[i].n);
    }
    static const struct {
        const char *tags[2];
        char severity;
    } splits[] = { { { "<A>", "<A>" }, 'w' }, { { "<B>", "<A>" }, 0 }, { { "<A>", "<B>" }, 0 },
                   { { "", "</A>" }, 'e' },   { { "<A>", "" }, 'e' },  { { "", "" }, 'e' } };
    for (int i = 0; i < ARES_COUNT(splits); i++)
        for (int which = 0; which < 2; which++) {
            complaint h = { 0 };
            char want[64] = "";
            if (splits[i].severity)
                (void)snprintf(want, sizeof want, "%c %s_term_split", splits[i].severity,
                               which ? "preference" : "verifiable");
            ares_vapor_check(&fine, 8, which ? tags : splits[i].tags, which ? splits[i].tags : tags,
                             note_complaint, &h);
            check_complaint(&h, want, i);
        }
}
