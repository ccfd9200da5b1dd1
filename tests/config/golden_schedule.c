/* Schedules and expressions of curriculum.json: named schedules, lambda texts, kinds of values. */
#include "golden.h"

#include "../../src/config/internal.h"

#include <math.h>
#include <string.h>

static ares_schedule_list list_of(const char *path)
{
    return strstr(path, "cap") ? ARES_SCHEDULE_CAP : ARES_SCHEDULE_WEIGHT;
}

static bool wants(golden *g, const char *word)
{
    return g->expected->type == ARES_JSON_STRING &&
           ares_view_eq(g->expected->text, ares_view_of(word));
}

static void check_value(golden *g, int rc, double value)
{
    if (wants(g, "error:eval")) {
        golden_text(g, "outcome", ares_view_of(rc == ARES_OK ? "a value" : "error:eval"),
                    g->expected);
    } else if (rc != ARES_OK) {
        golden_fail(g, "%s", ares_error_message());
    } else {
        golden_near(g, "value", value, g->expected);
    }
}

GOLDEN(curriculum, scheduler)
{
    scheduled s;
    double value = NAN;
    ares_json path = *golden_in(g, "path");
    int rc = scheduled_parse(g->arena, &path, list_of(golden_z(g, "path")), &s);
    if (rc == ARES_OK) rc = scheduled_at(&s, (int64_t)golden_number(g, "step"), &value);
    check_value(g, rc, value);
}

GOLDEN(curriculum, expr_eval)
{
    const expression *e;
    double value = NAN;
    int rc = expression_parse(g->arena, golden_string(g, "text"), true, &e);
    if (wants(g, "error:parse")) {
        golden_text(g, "outcome", ares_view_of(rc == ARES_OK ? "read" : "error:parse"),
                    g->expected);
        return;
    }
    if (rc == ARES_OK) rc = expression_at(e, (int64_t)golden_number(g, "step"), &value);
    check_value(g, rc, value);
}

static void classify(golden *g, ares_schedule_list list)
{
    static const char *const kinds[] = { "none", "constant", "named", "expression" };
    scheduled s;
    int rc = scheduled_parse(g->arena, golden_in(g, "config"), list, &s);
    golden_text(g, "kind", ares_view_of(rc == ARES_OK ? kinds[s.kind] : "error"), g->expected);
}

GOLDEN(curriculum, classify_weight)
{
    classify(g, ARES_SCHEDULE_WEIGHT);
}

GOLDEN(curriculum, classify_cap)
{
    classify(g, ARES_SCHEDULE_CAP);
}
