/*
 * ares-train completion: a script for bash, zsh or fish. What it knows comes from the tables that
 * --help and the configuration read, so a new option needs no line here: first these tables are
 * read, then a script of each shell is written. Each has two parts: functions that tell words of a
 * verb, values of an option and keys of the configuration, generated from the tables, and one that
 * looks at the command line, written out below. Only built-ins of the shells are called (in zsh
 * also _files, of its own completion), so that a key press starts no process.
 *
 * A key is completed section by section (worker. worker.rollout. worker.rollout.n=), as paths are,
 * because all of them at once are some hundreds.
 */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/train.h"

/* ---------------- the tables */

/*
 * What may follow an option: NULL: nothing, it is a flag; "": what the user writes by hand; else
 * words separated by blanks, of which "/" stands for files.
 */
typedef const char *follows;

typedef struct option {
    const char *name, *doc;
    follows value;
} option;

typedef struct verb {
    const char *name, *doc;
    bool configured; /* further words are the configuration's */
    follows words;   /* what further words may be; NULL: there are none */
    option *options;
    int n;
} verb;

/* A key of the configuration. */
typedef struct key {
    const char *path;
    follows value;
    bool sft; /* of sft alone */
} key;

typedef struct tables {
    ares_arena arena;
    verb *verbs;
    int n_verbs;
    key *keys;
    int n_keys;
} tables;

/* The first clause of a text, at most as long as a line beside a name has room for. */
static const char *short_doc(ares_arena *arena, const char *doc)
{
    enum { MOST = 60 };
    size_t n = strcspn(doc, ";:(");
    if (n > MOST)
        for (n = MOST; n && doc[n] != ' ';) n--;
    while (n && (doc[n - 1] == ' ' || doc[n - 1] == ',')) n--;
    return ares_arena_copy(arena, doc, n);
}

static follows value_of(ares_arena *arena, const cli_option *o)
{
    ares_str words = { 0 };
    if (o->type == CLI_FLAG || !o->value) return NULL;
    bool text = o->type == CLI_TEXT || o->type == CLI_EACH || o->type == CLI_PASSED;
    for (int i = 0; o->choices && o->choices[i]; i++)
        ares_str_addf(&words, "%s%s", i ? " " : "", o->choices[i]);
    for (int i = 0; i < o->n_offered; i++)
        ares_str_addf(&words, "%s%s", words.len ? " " : "", o->offered[i]);
    /* what --help calls the value tells whether it is one: FILE, DIR, FILE:NAME, DIR|chars */
    if (text && !o->choices && (strstr(o->value, "FILE") || strstr(o->value, "DIR")))
        ares_str_addf(&words, "%s/", words.len ? " " : "");
    follows value = words.len ? ares_arena_copy(arena, words.data, words.len) : "";
    ares_str_fini(&words);
    return value;
}

static void see_verb(void *ctx, const cli_command *c)
{
    static const char *const docs[] = {
#define DOC(name, on_ranks, doc) doc,
        CLI_LIST(DOC)
#undef DOC
    };
    tables *t = ctx;
    verb *v = &t->verbs[t->n_verbs];
    *v = (verb){ .name = c->name,
                 .doc = docs[t->n_verbs++], /* verbs come in the order of the list */
                 .configured = c->words == CLI_OVERRIDES };
    v->options = ares_arena_alloc(&t->arena, (size_t)(c->n_options + 1) * sizeof *v->options);
    for (int i = 0; i < c->n_options; i++)
        if (c->options[i].name[0] == '-') /* not key=value */
            v->options[v->n++] = (option){ ares_arena_printf(&t->arena, "%s", c->options[i].name),
                                           short_doc(&t->arena, c->options[i].doc),
                                           value_of(&t->arena, &c->options[i]) };
    v->options[v->n++] = (option){ "--help", "what it does, with all options", NULL };
    if (c->words != CLI_WORDS) return;
    const cli_option first = { .type = CLI_TEXT, .value = "FILE", .choices = c->choices };
    v->words = value_of(&t->arena, &first);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const key *)a)->path, ((const key *)b)->path);
}

static void read_keys(tables *t)
{
    ares_config *cfg = ares_config_new();
    ares_train_config *c = ares_calloc(1, sizeof *c);
    ares_str values = { 0 };
    bool number;
    const char *path;
    int all = 0;
    ares_train_config_declare(cfg, c);
    while (ares_config_option(cfg, all, &values, &number)) all++;
    int of_training = all; /* what comes after them is of sft alone */
    ares_sft_declare(cfg, c);
    while (ares_config_option(cfg, all, &values, &number)) all++;
    t->keys = ares_arena_alloc(&t->arena, (size_t)all * sizeof *t->keys);
    for (int i = 0; (path = ares_config_option(cfg, i, &values, &number)); i++) {
        const char *words = values.len ? values.data : number ? "" : "/";
        if (*path)
            t->keys[t->n_keys++] =
                (key){ ares_arena_printf(&t->arena, "%s", path),
                       ares_arena_printf(&t->arena, "%s", words), i >= of_training };
    }
    qsort(t->keys, (size_t)t->n_keys, sizeof *t->keys, by_path);
    ares_str_fini(&values);
    ares_free(c);
    ares_config_free(cfg);
}

static int read_tables(tables *t)
{
    enum {
        VERBS = 0
#define ONE(name, on_ranks, doc) +1
        CLI_LIST(ONE)
#undef ONE
    };
    t->verbs = ares_arena_calloc(&t->arena, VERBS, sizeof *t->verbs);
    ARES_TRY(cli_each_command(see_verb, t));
    read_keys(t);
    return ARES_OK;
}

/* ---------------- what the shells have in common */

typedef enum { BASH, ZSH, FISH } shell;
static const char *const shells[] = { "bash", "zsh", "fish", NULL };

/* The text in single quotes. */
static void quote(ares_str *out, shell s, const char *text)
{
    ares_str_add_char(out, '\'');
    for (; *text; text++) {
        if (s == FISH && (*text == '\'' || *text == '\\')) ares_str_add_char(out, '\\');
        if (s != FISH && *text == '\'') ares_str_add_z(out, "'\\'");
        ares_str_add_char(out, *text);
    }
    ares_str_add_char(out, '\'');
}

/* Begins a case for several patterns, and ends it: what it says is `value`. */
static void add_case(ares_str *out, shell s, const ares_str *patterns, follows value)
{
    if (s == FISH) {
        ares_str_addf(out, "    case%s\n        echo ", patterns->data);
        quote(out, s, value);
        ares_str_add_char(out, '\n');
    } else {
        ares_str_addf(out, "    %s) REPLY=", patterns->data);
        quote(out, s, value);
        ares_str_add_z(out, " ;;\n");
    }
}

/* Adds a pattern of a case; bash and zsh have | between two, fish blanks before each. */
static void add_pattern(ares_str *patterns, shell s, const char *pattern)
{
    if (s == FISH) ares_str_add_char(patterns, ' ');
    else if (patterns->len) ares_str_add_z(patterns, " | ");
    quote(patterns, s, pattern);
}

/*
 * The function that tells what may follow: of a verb's option by "verb --option", of a verb's
 * further words by "verb", of a key by itself. It says nothing, and fails, for a flag.
 */
static void add_values(ares_str *out, shell s, const tables *t)
{
    ares_str patterns = { 0 }, text = { 0 };
    bool *told = ares_calloc((size_t)t->n_keys, sizeof *told);
    ares_str_add_z(out, s == FISH ? "function __ares_train_values\n    switch \"$argv\"\n"
                                  : "_ares_train_values() {\n    case \"$1\" in\n");
    for (int i = 0; i < t->n_verbs; i++) {
        const verb *v = &t->verbs[i];
        for (int k = 0; k < v->n; k++) {
            if (!v->options[k].value) continue;
            ares_str_clear(&patterns);
            ares_str_clear(&text);
            ares_str_addf(&text, "%s %s", v->name, v->options[k].name);
            add_pattern(&patterns, s, text.data);
            add_case(out, s, &patterns, v->options[k].value);
        }
        ares_str_clear(&patterns);
        add_pattern(&patterns, s, v->name);
        if (v->words) add_case(out, s, &patterns, v->words);
    }
    /* keys with the same values stand together */
    for (int i = 0; i < t->n_keys; i++) {
        if (told[i]) continue;
        ares_str_clear(&patterns);
        for (int k = i; k < t->n_keys; k++) {
            if (strcmp(t->keys[k].value, t->keys[i].value) != 0) continue;
            add_pattern(&patterns, s, t->keys[k].path);
            told[k] = true;
        }
        add_case(out, s, &patterns, t->keys[i].value);
    }
    ares_str_add_z(out, s == FISH ? "    case '*'\n        return 1\n    end\nend\n"
                                  : "    *) REPLY='' ; return 1 ;;\n    esac\n}\n");
    ares_str_fini(&patterns);
    ares_str_fini(&text);
    ares_free(told);
}

/* "name" or, for shells that show texts, "name<between>doc", a word each. */
static void add_named(ares_str *out, shell s, const char *name, const char *doc)
{
    ares_str text = { 0 };
    ares_str_add_z(&text, name);
    if (s == FISH) ares_str_addf(&text, "\t%s", doc);
    ares_str_add_char(out, ' ');
    quote(out, s, text.data);
    if (s == ZSH) {
        ares_str_add_char(out, ' ');
        quote(out, s, doc);
    }
    ares_str_fini(&text);
}

/* The verbs, and the options of each: in bash names, in zsh name and text, in fish both in one. */
static void add_words(ares_str *out, shell s, const tables *t)
{
    static const char *const set[] = { "    %s) named=(", "    %s) named=(",
                                       "    case %s\n        printf '%%s\\n'" };
    static const char *const end[] = { " ) ;;\n", " ) ;;\n", "\n" };
    ares_str_add_z(out, s == FISH ? "function __ares_train_words\n    switch \"$argv\"\n"
                                  : "_ares_train_words() {\n    named=()\n    case \"$1\" in\n");
    ares_str_addf(out, set[s], "verbs");
    for (int i = 0; i < t->n_verbs; i++) add_named(out, s, t->verbs[i].name, t->verbs[i].doc);
    ares_str_add_z(out, end[s]);
    for (int i = 0; i < t->n_verbs; i++) {
        const verb *v = &t->verbs[i];
        ares_str_addf(out, set[s], v->name);
        for (int k = 0; k < v->n; k++) add_named(out, s, v->options[k].name, v->options[k].doc);
        ares_str_add_z(out, end[s]);
    }
    ares_str_add_z(out, s == FISH ? "    case '*'\n        return 1\n    end\nend\n"
                                  : "    *) return 1 ;;\n    esac\n}\n");
}

/* The keys of a verb that reads a configuration; it fails for one that reads none. */
static void add_keys(ares_str *out, shell s, const tables *t)
{
    ares_str patterns = { 0 }, keys = { 0 };
    for (int i = 0; i < t->n_verbs; i++)
        if (t->verbs[i].configured && strcmp(t->verbs[i].name, "sft") != 0)
            add_pattern(&patterns, s, t->verbs[i].name);
    for (int sft = 1; sft >= 0; sft--) {
        ares_str_clear(&keys);
        for (int i = 0; i < t->n_keys; i++)
            if (sft || !t->keys[i].sft) ares_str_addf(&keys, " %s", t->keys[i].path);
        if (s == FISH)
            ares_str_addf(out, "%s    case%s\n        printf '%%s\\n'%s\n",
                          sft ? "function __ares_train_keys\n    switch \"$argv\"\n" : "",
                          sft ? " sft" : patterns.data, keys.data);
        else
            ares_str_addf(out, "%s    %s) keys=(%s ) ;;\n",
                          sft ? "_ares_train_keys() {\n    case \"$1\" in\n" : "",
                          sft ? "sft" : patterns.data, keys.data);
    }
    ares_str_add_z(out, s == FISH ? "    case '*'\n        return 1\n    end\nend\n"
                                  : "    *) keys=() ; return 1 ;;\n    esac\n}\n");
    ares_str_fini(&patterns);
    ares_str_fini(&keys);
}

/* ---------------- how each looks at the command line */

static const char bash_begin[] =
    "# completion of ares-train in bash. Made by: ares-train completion bash\n"
    "# Either: source <(ares-train completion bash)   (a line of ~/.bashrc)\n"
    "# or write it to ~/.local/share/bash-completion/completions/ares-train\n";

/*
 * Readline cuts words at =, so that "a=b" is three words, and replaces the last; a user who took =
 * out of COMP_WORDBREAKS has it in one.
 */
static const char bash_end[] =
    "_ares_train() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} before='' key='' verb=train word last=''\n"
    "    local -a keys named files\n"
    "    local REPLY\n"
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD > 1)) && _ares_train_words \"${COMP_WORDS[1]}\" &&\n"
    "        [[ ${COMP_WORDS[1]} != verbs ]]; then\n"
    "        verb=${COMP_WORDS[1]}\n"
    "    fi\n"
    "    if [[ $cur == = ]]; then\n"
    "        key=${COMP_WORDS[COMP_CWORD - 1]} cur=''\n"
    "    elif ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then\n"
    "        key=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    elif [[ $cur == *=* ]]; then\n"
    "        key=${cur%%=*} before=${cur%%=*}= cur=${cur#*=}\n"
    "    elif ((COMP_CWORD > 1)) && [[ ${COMP_WORDS[COMP_CWORD - 1]} == --* ]] &&\n"
    "        [[ ${COMP_WORDS[COMP_CWORD - 1]} != --help-config ]] &&\n"
    "        _ares_train_values \"$verb ${COMP_WORDS[COMP_CWORD - 1]}\"; then\n"
    "        key=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    fi\n"
    "    if [[ -n $key ]]; then # a value\n"
    "        _ares_train_values \"$verb $key\" || _ares_train_values \"${key#--}\"\n"
    "        _ares_train_offer \"$REPLY\"\n"
    "        return\n"
    "    fi\n"
    "    if [[ $cur == -* && $cur != --*.* ]]; then\n"
    "        _ares_train_words \"$verb\"\n"
    "        ((COMP_CWORD > 1)) || named+=(--version)\n"
    "        for word in \"${named[@]}\"; do\n"
    "            [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"$word\")\n"
    "        done\n"
    "        return\n"
    "    fi\n"
    "    if ((COMP_CWORD == 1)) && [[ $cur != *.* ]]; then\n"
    "        _ares_train_words verbs\n"
    "        for word in \"${named[@]}\"; do\n"
    "            [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"$word\")\n"
    "        done\n"
    "        ((${#COMPREPLY[@]})) && return\n"
    "    fi\n"
    "    if _ares_train_keys \"$verb\"; then\n"
    "        [[ $cur == --* ]] && before=-- cur=${cur#--}\n"
    "        for word in \"${keys[@]}\"; do\n"
    "            [[ $word == \"$cur\"* ]] || continue\n"
    "            case ${word#\"$cur\"} in\n"
    "            *.*) word=${word#\"$cur\"} word=$cur${word%%.*}. ;;\n"
    "            *) word+== ;;\n"
    "            esac\n"
    "            [[ $word == \"$last\" ]] || COMPREPLY+=(\"$before$word\")\n"
    "            last=$word\n"
    "        done\n"
    "        compopt -o nospace 2>/dev/null\n"
    "        return\n"
    "    fi\n"
    "    _ares_train_values \"$verb\" && _ares_train_offer \"$REPLY\"\n"
    "}\n"
    "# words that begin with $cur, and files where / is among them\n"
    "_ares_train_offer() {\n"
    "    local word IFS=$' \\n'\n"
    "    for word in $1; do\n"
    "        if [[ $word == / ]]; then\n"
    "            mapfile -t files < <(compgen -f -- \"$cur\")\n"
    "            for word in \"${files[@]}\"; do COMPREPLY+=(\"$before$word\"); done\n"
    "            compopt -o filenames 2>/dev/null\n"
    "        elif [[ $word == \"$cur\"* ]]; then\n"
    "            COMPREPLY+=(\"$before$word\")\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "complete -F _ares_train ares-train\n";

static const char zsh_begin[] =
    "#compdef ares-train\n"
    "# completion of ares-train in zsh. Made by: ares-train completion zsh\n"
    "# Either: source <(ares-train completion zsh)   (a line of ~/.zshrc, after compinit)\n"
    "# or write it to a file _ares-train in a folder of fpath\n";

static const char zsh_end[] =
    "_ares_train() {\n"
    "    local verb=train key='' before='' word cur=$PREFIX REPLY\n"
    "    local -a named keys found shown\n"
    "    if (( CURRENT > 2 )) && [[ $words[2] != verbs ]] && _ares_train_words $words[2]; then\n"
    "        verb=$words[2]\n"
    "    fi\n"
    "    if [[ $cur == *=* ]]; then\n"
    "        key=${cur%%=*}\n"
    "        compset -P \"$key=\"\n"
    "    elif (( CURRENT > 2 )) && [[ $words[CURRENT-1] == --* ]] &&\n"
    "        [[ $words[CURRENT-1] != --help-config ]] &&\n"
    "        _ares_train_values \"$verb $words[CURRENT-1]\"; then\n"
    "        key=$words[CURRENT-1]\n"
    "    fi\n"
    "    if [[ -n $key ]]; then # a value\n"
    "        _ares_train_values \"$verb $key\" || _ares_train_values \"${key#--}\"\n"
    "        _ares_train_offer \"$REPLY\"\n"
    "        return\n"
    "    fi\n"
    "    if [[ $cur == -* && $cur != --*.* ]]; then\n"
    "        _ares_train_words $verb\n"
    "        (( CURRENT > 2 )) || named+=(--version 'the version')\n"
    "        _ares_train_show\n"
    "        return\n"
    "    fi\n"
    "    if (( CURRENT == 2 )) && [[ $cur != *.* ]]; then\n"
    "        _ares_train_words verbs\n"
    "        _ares_train_show && return\n"
    "    fi\n"
    "    if _ares_train_keys $verb; then\n"
    "        [[ $cur == --* ]] && before=-- cur=${cur#--}\n"
    "        for word in $keys; do\n"
    "            [[ $word == \"$cur\"* ]] || continue\n"
    "            case ${word#\"$cur\"} in\n"
    "            *.*) word=${word#\"$cur\"} word=$cur${word%%.*}. ;;\n"
    "            *) word=\"$word=\" ;;\n"
    "            esac\n"
    "            [[ $word == \"$found[-1]\" ]] || found+=(\"$before$word\")\n"
    "        done\n"
    "        compadd -S '' -- ${(u)found}\n"
    "        return\n"
    "    fi\n"
    "    _ares_train_values $verb && _ares_train_offer \"$REPLY\"\n"
    "}\n"
    "# the words of $named, each followed by its text\n"
    "_ares_train_show() {\n"
    "    local name doc\n"
    "    found=() shown=()\n"
    "    for name doc in $named; do\n"
    "        [[ $name == \"$cur\"* ]] || continue\n"
    "        found+=(\"$name\") shown+=(\"${(r:18:)name} $doc\")\n"
    "    done\n"
    "    (( $#found )) && compadd -l -d shown -- $found\n"
    "}\n"
    "# words, and files where / is among them\n"
    "_ares_train_offer() {\n"
    "    local -a all\n"
    "    all=(${=1})\n"
    "    (( ${#${all:#/}} )) && compadd -- ${all:#/}\n"
    "    [[ -n ${all[(r)/]} ]] && _files\n"
    "    return 0\n"
    "}\n"
    "if [[ $funcstack[1] == _ares-train ]]; then # called as a file of fpath\n"
    "    _ares_train \"$@\"\n"
    "else\n"
    "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"
    "    compdef _ares_train ares-train\n"
    "fi\n";

static const char fish_begin[] =
    "# completion of ares-train in fish. Made by: ares-train completion fish\n"
    "# Either: ares-train completion fish | source   (a line of config.fish)\n"
    "# or write it to ~/.config/fish/completions/ares-train.fish\n";

/* __ares_train_what says "value WORDS", "options", "verbs", "keys" or "words", then the verb. */
static const char fish_end[] =
    "function __ares_train_what\n"
    "    set -l words (commandline -opc)\n"
    "    set -l cur (commandline -ct)\n"
    "    set -l verb train\n"
    "    set -l key ''\n"
    "    if set -q words[2]; and test \"$words[2]\" != verbs\n"
    "        and __ares_train_words $words[2] >/dev/null\n"
    "        set verb $words[2]\n"
    "    end\n"
    "    if string match -q -- '*=*' $cur\n"
    "        set key (string replace -r -- '=.*' '' $cur)\n"
    "    else if set -q words[2]; and string match -q -- '--*' $words[-1]\n"
    "        and test \"$words[-1]\" != --help-config\n"
    "        and __ares_train_values \"$verb $words[-1]\" >/dev/null\n"
    "        set key $words[-1]\n"
    "    end\n"
    "    if test -n \"$key\"\n"
    "        set -l values (__ares_train_values \"$verb $key\"\n"
    "            or __ares_train_values (string replace -r -- '^--' '' $key))\n"
    "        echo value\n"
    "        string match -q -- '*=*' $cur; and echo \"$key=\"; or echo ''\n"
    "        string split -n ' ' -- \"$values\"\n"
    "    else if string match -q -- '-*' $cur; and not string match -q -- '--*.*' $cur\n"
    "        echo options; echo $verb; count $words\n"
    "    else if not set -q words[2]; and not string match -q -- '*.*' $cur\n"
    "        and __ares_train_words verbs | string match -q -- \"$cur*\"\n"
    "        echo verbs\n"
    "    else if __ares_train_keys $verb >/dev/null\n"
    "        echo keys; echo $verb\n"
    "    else\n"
    "        echo value; echo ''\n"
    "        string split -n ' ' -- (__ares_train_values $verb)\n"
    "    end\n"
    "end\n"
    "function __ares_train_complete\n"
    "    set -l what (__ares_train_what)\n"
    "    switch $what[1]\n"
    "    case value\n"
    "        for word in $what[3..-1]\n"
    "            test \"$word\" = /; or echo \"$what[2]$word\"\n"
    "        end\n"
    "    case options\n"
    "        __ares_train_words $what[2]\n"
    "        test \"$what[3]\" -gt 1; or printf '%s\\n' --version\\t'the version'\n"
    "    case verbs\n"
    "        __ares_train_words verbs\n"
    "    case keys\n"
    "        set -l cur (commandline -ct)\n"
    "        set -l dashes (string match -r -- '^--' $cur)\n"
    "        set -l at (string escape --style=regex -- (string replace -r -- '^--' '' $cur))\n"
    "        set -l keys (__ares_train_keys $what[2])\n"
    "        string replace -rf -- '^('$at'[^.]*\\.).*' \"$dashes\\$1\" $keys\n"
    "        string replace -rf -- '^('$at'[^.]*)$' \"$dashes\\$1=\" $keys\n"
    "    end\n"
    "end\n"
    "function __ares_train_wants_files\n"
    "    contains -- / (__ares_train_what)[2..-1]\n"
    "end\n"
    "complete -c ares-train -f -k -a '(__ares_train_complete)'\n"
    "complete -c ares-train -n __ares_train_wants_files -F\n";

static void write_script(ares_str *out, shell s, const tables *t)
{
    static const char *const begin[] = { bash_begin, zsh_begin, fish_begin }, *const end[] = {
        bash_end, zsh_end, fish_end
    };
    ares_str_add_z(out, begin[s]);
    add_words(out, s, t);
    add_values(out, s, t);
    add_keys(out, s, t);
    ares_str_add_z(out, end[s]);
}

int ares_cli_completion(int argc, char **argv)
{
    bool helped;
    const cli_command command = {
        .name = "completion",
        .usage = "bash|zsh|fish",
        .about = "Prints a script that completes commands in this shell: verbs, their options and "
                 "values, the keys of a configuration section by section with the values of "
                 "choices, files elsewhere. The installed program brings all three along "
                 "(docs/runs.md#completion-in-a-shell).",
        .example = "source <(ares-train completion bash)\n"
                   "source <(ares-train completion zsh)\n"
                   "ares-train completion fish | source",
        .words = CLI_WORDS,
        .choices = shells,
    };
    int which;
    tables t = { 0 };
    ares_str out = { 0 };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    if (argc != 2)
        return ares_fail(ARES_EUSE, "completion: name one shell: bash, zsh or fish (see ares-train "
                                    "completion --help)");
    ARES_TRY(ares_lookup(ARES_EUSE, "completion: shell", argv[1], shells, ARES_COUNT(shells) - 1,
                         &which));
    int rc = read_tables(&t);
    if (rc == ARES_OK) {
        write_script(&out, (shell)which, &t);
        rc = cli_print("completion", &out);
    }
    ares_str_fini(&out);
    ares_arena_fini(&t.arena);
    return rc;
}
