/* What the options of VAPOR are warned of. */
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

TEST(a_section_of_vapor_warns_of_what_cannot_be_meant)
{
    static const char *const apart[] = { "<A>", "</A>" }, *const same[] = { "<A>", "<A>" };
    static const struct {
        int64_t n;
        bool verifiable, preference; /* the two tags are the same */
        double dpo;
        bool moves;
        const char *want;
    } cases[] = { { 2, false, false, 0, true, "" },
                  { 1, false, false, 0, false, "w worker.rollout.n" },
                  { 2, true, false, 0, false, "w vapor.verifiable_term_split" },
                  { 2, false, true, 0, false, "w vapor.preference_term_split" },
                  { 2, false, false, 0.5, false, "" },
                  { 2, false, false, 0.5, true, "w vapor.dpo_coef" } };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        const ares_vapor_config c = {
            .verifiable_term_split = { cases[i].verifiable ? same : apart, 2 },
            .preference_term_split = { cases[i].preference ? same : apart, 2 },
            .dpo_coef = cases[i].dpo,
            .sync_ref_model = cases[i].moves,
        };
        complaint h = { 0 };
        ares_vapor_check(&c, cases[i].n, note_complaint, &h);
        check_complaint(&h, cases[i].want, i);
    }
}
