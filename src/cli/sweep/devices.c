/* Which cards a sweep uses, and what they are called in its results. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sweep.h"

static const char *const driver = "/proc/driver/nvidia/gpus";

static int is_entry(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* The cards' folders, by bus address, which is the order of their numbers. */
static int list_cards(struct dirent ***entries)
{
    int n = scandir(driver, entries, is_entry, alphasort);
    return n > 0 ? n : 0;
}

static void free_list(struct dirent **entries, int n)
{
    for (int i = 0; i < n; i++) free(entries[i]);
    if (n) free(entries);
}

static ares_texts numbered(ares_arena *arena, int n)
{
    const char **items = ares_arena_alloc(arena, (size_t)n * sizeof *items);
    for (int i = 0; i < n; i++) items[i] = ares_arena_printf(arena, "%d", i);
    return (ares_texts){ items, n };
}

int sweep_check_cards(const ares_texts *cards, int n)
{
    for (int64_t i = 0; n && i < cards->count; i++) {
        int64_t index;
        if (ares_parse_i64(ares_view_of(cards->items[i]), &index) && (index < 0 || index >= n))
            return ares_fail(ARES_EUSE,
                             "sweep: --gpus: card %lld: this machine has %d, of numbers 0 to %d; "
                             "name these",
                             (long long)index, n, n - 1);
    }
    return ARES_OK;
}

int sweep_cards(sweep *s, ares_texts *out)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct dirent **entries;
    int n = list_cards(&entries);
    free_list(entries, n);
    if (s->o.gpus.count) {
        *out = s->o.gpus;
        return sweep_check_cards(out, n);
    }
    if (visible && *visible) {
        const char **items = ares_arena_alloc(&s->arena, (strlen(visible) + 1) * sizeof *items);
        *out = (ares_texts){ items, 0 };
        char *rest = ares_arena_copy(&s->arena, visible, strlen(visible)), *save = NULL;
        for (char *w = strtok_r(rest, ", ", &save); w; w = strtok_r(NULL, ", ", &save))
            items[out->count++] = w;
        return ARES_OK;
    }
    *out = numbered(&s->arena, n);
    return n ? ARES_OK
             : ares_fail(ARES_EUSE, "sweep: this machine shows no card; name those to use, as in "
                                    "--gpus 0,1, or set trainer.device=cpu");
}

/* ---------------------------------------------------------------- names of cards */
/* The length of "H100", "A6000"'s "A600", "V100" ... at this place; 0: no such name begins here. */
static size_t model_length(const char *at)
{
    static const char *const others[] = { "V100", "T4", "P100", "K80" };
    if (*at && strchr("BHAL", *at)) {
        size_t digits = strspn(at + 1, "0123456789");
        if (digits >= 2) return 1 + ARES_MIN(digits, (size_t)3);
    }
    for (int i = 0; i < ARES_COUNT(others); i++)
        if (strncmp(at, others[i], strlen(others[i])) == 0) return strlen(others[i]);
    return 0;
}

/* RAGEN's rule: makers and families are left out, then a known model's name, else the first word.
 */
void sweep_short_card_name(const char *name, ares_str *out)
{
    static const char *const before[] = { "NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "RTX " };
    for (int i = 0; i < ARES_COUNT(before); i++)
        if (strncmp(name, before[i], strlen(before[i])) == 0) name += strlen(before[i]);
    for (const char *at = name; *at; at++) {
        size_t length = model_length(at);
        if (!length) continue;
        ares_str_add(out, at, length);
        return;
    }
    ares_str_add(out, name, strcspn(name, " "));
}

/* The name of card number `index`, from the driver; false where it says none. */
static bool card_name(int64_t index, ares_str *out)
{
    struct dirent **entries;
    int n = list_cards(&entries);
    ares_str path = { 0 }, text = { 0 };
    bool found = false;
    if (index >= 0 && index < n) {
        ares_str_addf(&path, "%s/%s/information", driver, entries[index]->d_name);
        if (ares_file_read(path.data, &text) == ARES_OK) {
            const char *model = text.data ? strstr(text.data, "Model:") : NULL;
            for (model = model ? model + 6 : ""; isblank((unsigned char)*model);) model++;
            ares_str_add(out, model, strcspn(model, "\n"));
            found = out->len > 0;
        }
    }
    free_list(entries, n);
    ares_str_fini(&path);
    ares_str_fini(&text);
    return found;
}

const char *sweep_card_label(ares_arena *arena, const char *cards, int64_t ranks)
{
    if (!cards) return ares_arena_printf(arena, "%lldxCPU", (long long)ranks);
    ares_str first = { 0 }, name = { 0 }, model = { 0 };
    char *rest = ares_arena_copy(arena, cards, strlen(cards)), *save = NULL;
    int n = 0;
    for (char *w = strtok_r(rest, ",", &save); w; w = strtok_r(NULL, ",", &save), n++) {
        int64_t index;
        ares_str_clear(&name);
        ares_str_clear(&model);
        if (ares_parse_i64(ares_view_of(w), &index) && card_name(index, &name))
            sweep_short_card_name(name.data, &model);
        else ares_str_addf(&model, "GPU%s", w);
        if (!n) ares_str_add_view(&first, ares_str_view(&model));
        else if (!ares_view_eq(ares_str_view(&first), ares_str_view(&model))) {
            ares_str_clear(&first);
            ares_str_add_z(&first, "mixed");
        }
    }
    const char *label = ares_arena_printf(arena, "%dx%s", n, first.data ? first.data : "GPU");
    ares_str_fini(&first);
    ares_str_fini(&name);
    ares_str_fini(&model);
    return label;
}
