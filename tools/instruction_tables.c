/*
 * Build step: the word lists of the instruction-following checks
 * (src/reward/ifeval/tables.json) as C tables.
 *
 *   instruction_tables tables.json tables_data.h
 *
 * Runs on the machine that builds; a list that is missing or misspelt stops the build.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "words.h"

enum { MAX_WORDS = 8192 };
typedef struct list {
    ifeval_entry words[MAX_WORDS];
    uint32_t n;
} list;

static FILE *out;

static void stop(const char *what)
{
    fprintf(stderr, "instruction_tables: %s\n", what);
    exit(1);
}

static const cJSON *member(const cJSON *root, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(root, name);
    if (!value) stop(name);
    return value;
}

static const char *text_of(const cJSON *value)
{
    const char *text = cJSON_GetStringValue(value);
    if (!text || !*text) stop("an empty word");
    return text;
}

/* A word that is there already takes the value's bits as well. */
static void add(list *l, const char *text, size_t len, uint32_t value)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->words[i].len == len && memcmp(l->words[i].text, text, len) == 0) {
            l->words[i].value |= value;
            return;
        }
    if (l->n == MAX_WORDS) stop("too many words");
    l->words[l->n++] = (ifeval_entry){ text, value, (uint32_t)len };
}

static void add_all(list *l, const cJSON *items)
{
    const cJSON *item;
    l->n = 0;
    cJSON_ArrayForEach(item, items)
    {
        if (cJSON_IsNumber(item))
            add(l, item->string, strlen(item->string), (uint32_t)item->valuedouble);
        else add(l, text_of(item), strlen(text_of(item)), 1);
    }
}

static void write_set(const char *name, const list *l)
{
    uint32_t size = 4, longest = 0;
    while (size < 2 * l->n) size *= 2;
    uint16_t *slots = calloc(size, sizeof *slots);
    if (!slots || l->n == 0) stop(name);
    fprintf(out, "\nstatic const ifeval_entry %s_entries[] = {\n", name);
    for (uint32_t i = 0; i < l->n; i++) {
        const ifeval_entry *e = &l->words[i];
        uint32_t at = ifeval_hash(e->text, e->len) & (size - 1);
        while (slots[at]) at = (at + 1) & (size - 1);
        slots[at] = (uint16_t)(i + 1);
        if (e->len > longest) longest = e->len;
        fprintf(out, "    { \"");
        for (uint32_t k = 0; k < e->len; k++) {
            unsigned char c = (unsigned char)e->text[k];
            if (c >= 0x80 || c == '"' || c == '\\') fprintf(out, "\\%03o", c);
            else fputc(c, out);
        }
        fprintf(out, "\", %u, %u },\n", e->value, e->len);
    }
    fprintf(out, "};\nstatic const uint16_t %s_slots[] = {", name);
    for (uint32_t i = 0; i < size; i++) fprintf(out, "%s%u,", i % 20 ? " " : "\n    ", slots[i]);
    /* the others are words.c's own */
    const char *linkage = strncmp(name, "ifeval_", 7) == 0 ? "" : "static ";
    fprintf(out, "\n};\n%sconst ifeval_set %s = { %s_entries, %s_slots, %u, %u, %u };\n", linkage,
            name, name, name, size - 1, l->n, longest);
    free(slots);
}

static void write_languages(const cJSON *scripts)
{
    static list words, letters;
    static const char *const names[IFEVAL_LANGUAGE_SCRIPTS] = { "latin", "cyrillic", "arabic",
                                                                "devanagari" };
    ifeval_languages spans[IFEVAL_LANGUAGE_SCRIPTS];
    uint32_t n = 0;
    fprintf(out, "\nconst char *const ifeval_language_codes[] = {");
    for (int s = 0; s < IFEVAL_LANGUAGE_SCRIPTS; s++) {
        const cJSON *language;
        spans[s].first = n;
        cJSON_ArrayForEach(language, member(scripts, names[s]))
        {
            const char *p = cJSON_GetStringValue(cJSON_GetArrayItem(language, 1));
            if (!p || n == 32) stop("languages");
            fprintf(out, " \"%s\",", text_of(cJSON_GetArrayItem(language, 0)));
            for (size_t len = 1; *p; p += len, len = 1) {
                while ((p[len] & 0xc0) == 0x80) len++;
                add(&letters, p, len, 1u << n);
            }
            for (p = text_of(cJSON_GetArrayItem(language, 2)); *p; p += strspn(p, " ")) {
                size_t len = strcspn(p, " ");
                add(&words, p, len, 1u << n);
                p += len;
            }
            n++;
        }
        spans[s].count = n - spans[s].first;
    }
    fprintf(out, " };\nconst ifeval_languages ifeval_script_languages[] = {");
    for (int s = 0; s < IFEVAL_LANGUAGE_SCRIPTS; s++)
        fprintf(out, " { %u, %u },", spans[s].first, spans[s].count);
    fprintf(out, " };\n");
    write_set("ifeval_language_words", &words);
    write_set("ifeval_language_letters", &letters);
}

static void write_ranges(const cJSON *ranges)
{
    const cJSON *range;
    fprintf(out, "\nstatic const uint32_t emoji_ranges[][2] = {\n");
    cJSON_ArrayForEach(range, ranges)
    {
        const cJSON *first = cJSON_GetArrayItem(range, 0), *last = cJSON_GetArrayItem(range, 1);
        if (!cJSON_IsNumber(first) || !cJSON_IsNumber(last)) stop("emoji");
        fprintf(out, "    { 0x%x, 0x%x },\n", (unsigned)first->valuedouble,
                (unsigned)last->valuedouble);
    }
    fprintf(out, "};\n");
}

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "rb");
    enum { MOST = 1 << 20 };
    char *text = malloc(MOST);
    if (!f || !text) stop(path);
    size_t n = fread(text, 1, MOST - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    static const char *const sets[][2] = { /* name in the file, name in C */
                                           { "abbreviations", "ifeval_abbreviations" },
                                           { "collocations", "ifeval_collocations" },
                                           { "starters", "ifeval_starters" },
                                           { "orthography", "ifeval_orthography" },
                                           { "syllables", "ifeval_syllable_counts" },
                                           { "not_verbs", "ifeval_not_verbs" },
                                           { "stop_words", "stop_words" },
                                           { "pronouns", "pronouns" },
                                           { "conjunctions", "conjunctions" },
                                           { "person_names", "person_names" },
                                           { "capitals", "capitals" },
                                           { "verbs", "verbs" }
    };
    static list words;
    if (argc != 3) stop("instruction_tables tables.json tables_data.h");
    cJSON *root = cJSON_Parse(read_all(argv[1]));
    if (!root) stop("no JSON");
    out = fopen(argv[2], "wb");
    if (!out) stop(argv[2]);
    fprintf(out, "/* Made from src/reward/ifeval/tables.json by tools/instruction_tables.c. */\n");
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        add_all(&words, member(root, sets[i][0]));
        write_set(sets[i][1], &words);
    }
    write_languages(member(root, "languages"));
    write_ranges(member(root, "emoji"));
    if (fclose(out) != 0) stop(argv[2]);
    cJSON_Delete(root);
    return 0;
}
