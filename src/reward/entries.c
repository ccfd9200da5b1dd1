/*
 * Opens the entries of worker.reward.rewards: built-in verifiers, users' processes, and the entries
 * that other options stand for (reward_function, safe_length).
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "manager.h"
#include "reward_function.h"

static ARES_OPTION_TABLE(entry_table, reward_entry_options, REWARD_ENTRY_OPTIONS);

int reward_open_judge(ares_config *cfg, const char *path, const char *name, ares_judge **out)
{
    int n, i;
    const char *const *names = ares_verifier_names(&n);
    size_t prefix = sizeof ARES_BOXED_PREFIX - 1;
    const char *plain = strncmp(name, ARES_BOXED_PREFIX, prefix) == 0 ? name + prefix : name;
    int rc = ares_lookup(ARES_ECONFIG, NULL, plain, names, n, &i);
    if (rc == ARES_OK) return ares_judge_new(name, out);
    ares_config_fault(cfg, path, "%s", ares_error_message()); /* names the option and its value */
    return rc;
}

static void open_verifier(ares_config *cfg, const char *path, reward_entry *e)
{
    void *options;
    if (!e->o.name) {
        ares_config_fault(cfg, path,
                          "an entry needs a name (a built-in verifier), a function or a command");
        return;
    }
    char name_path[80];
    snprintf(name_path, sizeof name_path, "%s.name", path);
    if (reward_open_judge(cfg, name_path, e->o.name, &e->judge) != ARES_OK) return;
    ares_option_table *table = ares_judge_options(e->judge, &options);
    if (table) ares_config_bind(cfg, path, table, options);
    ares_judge_check(e->judge, cfg, path);
}

/* The path of this program: a child would find itself under /proc/self. */
static char *own_program(void)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) return ares_strdup("/proc/self/exe");
    self[length] = 0;
    return ares_strdup(self);
}

/* function: FILE.so:SYMBOL as `ares-train __reward FILE.so SYMBOL`; returns the words written. */
static int add_function_words(ares_config *cfg, const char *path, const char *function, char **argv)
{
    const char *colon = strrchr(function, ':');
    char *file = ares_strdup(function);
    if (colon) file[colon - function] = 0;
    if (!colon || !colon[1])
        ares_config_fault(cfg, path, "function = '%s': write FILE.so:SYMBOL", function);
    else if (!ares_file_exists(file))
        ares_config_fault(cfg, path, "function = '%s': no such file", function);
    argv[0] = own_program();
    argv[1] = ares_strdup("__reward");
    argv[2] = file;
    argv[3] = ares_strdup(colon ? colon + 1 : "");
    return 4;
}

static reward_child *new_child(const reward_entry *e, char *const *argv, bool batch,
                               int64_t memory_mb)
{
    reward_child_options o = { .name = e->name,
                               .argv = argv,
                               .timeout_s = e->o.timeout_s,
                               .start_timeout_s = e->o.start_timeout_s,
                               .processes = e->o.processes,
                               .batch = batch,
                               .memory_bytes = ARES_MIN(memory_mb, INT64_MAX >> 20) << 20 };
    return reward_child_new(&o);
}

static void open_child(ares_config *cfg, const char *path, reward_entry *e)
{
    char **argv = ares_calloc((size_t)e->o.command.count + 5, sizeof *argv);
    int n = e->o.function ? add_function_words(cfg, path, e->o.function, argv) : 0;
    for (int64_t i = 0; i < e->o.command.count; i++) argv[n++] = ares_strdup(e->o.command.items[i]);
    if (e->o.function && e->o.command.count)
        ares_config_fault(cfg, path, "function and command exclude each other");
    if (e->o.function && e->o.batch)
        ares_config_fault(cfg, path, "a C function is asked one by one; leave batch out");
    e->child =
        new_child(e, argv, e->o.batch, e->o.memory_mb == ARES_NULL_I64 ? 4096 : e->o.memory_mb);
    for (int i = 0; i < n; i++) ares_free(argv[i]);
    ares_free(argv);
}

/* ---------------- Python functions
 * share/python_reward.py, a command that speaks batches, calls them in the forms of verl, EasyR1
 * and TRL.
 */
/* FILE.py or FILE.py:NAME */
static bool is_python(const char *function)
{
    const char *colon = strrchr(function, ':');
    size_t n = colon ? (size_t)(colon - function) : strlen(function);
    return n > 3 && memcmp(function + n - 3, ".py", 3) == 0;
}

/* Metrics reward/<name> of every run, which no entry can be called. */
static bool is_taken(const char *name)
{
    static const char *const taken[] = {
        "accuracy",  "overall", "batch_accuracy",    "accuracy_normalized", "empty_responses",
        "exhausted", "failed",  "extract_fail_rate", "inverted_frac",       "replayable"
    };
    bool found = false;
    for (int i = 0; i < ARES_COUNT(taken); i++) found = found || strcmp(name, taken[i]) == 0;
    return found;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "math" of "a/math.py:f" */
static char *stem_of(const char *function)
{
    const char *base = base_name(function);
    char *stem = ares_strdup(base), *end = strstr(stem, ".py");
    if (end && end != stem) *end = 0;
    return stem;
}

/* What a line NAME = "text" of a module says, as EasyR1's REWARD_NAME; NULL: there is none. */
static char *constant_of(ares_view source, const char *name)
{
    const char *end = source.data + source.len, *next;
    for (const char *p = source.data; p < end; p = next) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        next = stop + 1;
        size_t n = strlen(name);
        if ((size_t)(stop - p) < n || memcmp(p, name, n) != 0) continue;
        for (p += n; p < stop && *p == ' ';) p++;
        if (p == stop || *p++ != '=') continue;
        while (p < stop && *p == ' ') p++;
        const char *quote = p < stop && strchr("'\"", *p) ? p : NULL,
                   *close = quote ? memchr(quote + 1, *quote, (size_t)(stop - quote - 1)) : NULL;
        if (!close || close == quote + 1) continue;
        char *text = ares_calloc((size_t)(close - quote), 1);
        memcpy(text, quote + 1, (size_t)(close - quote - 1));
        return text;
    }
    return NULL;
}

/*
 * The name of a function of Python in metrics, where no option gives one: its module's REWARD_NAME,
 * else its own, else, of those that most files have, the file's.
 */
static char *python_name(const char *file, const char *function, ares_view source)
{
    char *said = constant_of(source, "REWARD_NAME");
    if (said && !strpbrk(said, "/ \t") && !is_taken(said)) return said;
    ares_free(said);
    bool usual = !*function || strcmp(function, "compute_score") == 0 ||
                 strcmp(function, "main") == 0 || is_taken(function);
    if (!usual) return ares_strdup(function);
    char *stem = stem_of(file);
    if (!is_taken(stem)) return stem;
    ares_free(stem);
    return ares_strdup(base_name(file));
}

/* What calls a function: FILE.py or MODULE, its NAME ("": the usual one), and how. */
typedef struct python_function {
    const char *file, *name, *form, *type;
    const ares_json *kwargs;
} python_function;

static void open_python(ares_config *cfg, const char *path, ares_reward *r,
                        const python_function *f, reward_entry *e)
{
    ares_str kwargs = { 0 }, source = { 0 };
    char adapter[4200];
    ares_path_of_program(NULL, "python_reward.py", adapter, sizeof adapter);
    if (!ares_file_exists(adapter))
        ares_config_fault(cfg, path,
                          "no %s, which calls Python functions; it is built beside the program and "
                          "installed with it (cmake --install)",
                          adapter);
    if (is_python(f->file) && ares_file_read(f->file, &source) != ARES_OK) {
        ares_config_fault(cfg, path, "'%s': %s", f->file, ares_error_message());
        ares_error_clear();
    }
    if (!e->name) e->name = python_name(f->file, f->name, ares_str_view(&source));
    if (f->kwargs) ares_json_write(&kwargs, f->kwargs);
    const char *words[] = { r->cfg.python,
                            adapter,
                            f->file,
                            f->name,
                            "--form",
                            f->form,
                            "--kwargs",
                            kwargs.len ? kwargs.data : "{}",
                            f->type ? "--type" : NULL,
                            f->type,
                            NULL };
    if (ares_file_exists(adapter))
        e->child = new_child(e, (char *const *)(uintptr_t)words, true,
                             e->o.memory_mb == ARES_NULL_I64 ? 0 : e->o.memory_mb);
    r->calls_python = true;
    /* ids are long, and few functions read them: the file says whether this one does */
    r->tells_ids = r->tells_ids || !is_python(f->file) ||
                   ares_view_find(ares_str_view(&source), ARES_VIEW("completion_ids"), 0) >= 0;
    ares_str_fini(&kwargs);
    ares_str_fini(&source);
}

/* FILE.py:NAME as its parts, in memory of *file; without a name: fallback. */
static const char *split_function(const char *function, const char *fallback, char **file)
{
    *file = ares_strdup(function);
    char *colon = strrchr(*file, ':');
    if (!colon) return fallback ? fallback : "";
    *colon = 0;
    return colon + 1;
}

static void open_python_entry(ares_config *cfg, const char *path, ares_reward *r, reward_entry *e)
{
    char *file;
    const char *name = split_function(e->o.function, NULL, &file);
    if (e->o.command.count) ares_config_fault(cfg, path, "function and command exclude each other");
    open_python(cfg, path, r, &(python_function){ file, name, e->o.form, NULL, e->o.kwargs }, e);
    ares_free(file);
}

/*
 * The name of a command in metrics: the script's where an interpreter runs one, as in `python3
 * my_reward.py` or `uv run python -m judges.math`, else the program's.
 */
static char *command_name(const ares_texts *words)
{
    static const char *const interpreters[] = { "python", "pypy", "uv",    "env",  "sh",     "bash",
                                                "dash",   "zsh",  "node",  "deno", "bun",    "perl",
                                                "ruby",   "lua",  "julia", "php",  "Rscript" };
    const char *name = base_name(words->items[0]);
    bool interpreted = false;
    for (int i = 0; i < ARES_COUNT(interpreters); i++)
        interpreted = interpreted || strncmp(name, interpreters[i], strlen(interpreters[i])) == 0;
    for (int64_t i = 1; i < words->count && interpreted; i++) {
        const char *word = words->items[i], *base = base_name(word), *dot = strrchr(base, '.');
        bool module = strcmp(words->items[i - 1], "-m") == 0;
        if (!*base || *word == '-' || strpbrk(word, " \t\n;|&$()<>") ||
            (!module && !(dot && dot != base && !isdigit((unsigned char)dot[1]))))
            continue;
        char *script = ares_strdup(base);
        if (!module) script[dot - base] = 0;
        return script;
    }
    return ares_strdup(name);
}

static bool wants_length(const ares_reward_config *rc)
{
    return rc->safe_length != ARES_NULL_I64 || !ares_is_null_f64(rc->len_reward_penalty);
}

/*
 * What metrics call the i-th of reward_funcs, which no map can name: `name`, or else the word that
 * gave it, "math.py.accuracy" of "a/math.py:accuracy".
 */
static char *function_name(ares_config *cfg, const char *path, const ares_reward *r, int i,
                           const char *name, const char *word)
{
    char *own = ares_strdup(name);
    for (int tries = 0;; tries++) {
        bool known = is_taken(own) || (wants_length(&r->cfg) && strcmp(own, "length") == 0);
        for (int k = 0; k < i; k++) known = known || strcmp(own, r->entries[k].name) == 0;
        if (!known) return own;
        if (tries) {
            ares_config_fault(cfg, path,
                              "'%s': another function is called '%s', too, and metrics are named "
                              "after functions; rename one of their files",
                              word, own);
            return own;
        }
        ares_free(own);
        own = ares_strdup(base_name(word));
        char *colon = strrchr(own, ':');
        if (colon) *colon = '.';
    }
}

/* A verifier has no use for a process's options; a printed configuration has their defaults. */
static void refuse_process_options(ares_config *cfg, const char *path,
                                   const reward_entry_options *o)
{
    reward_entry_options usual;
    ares_config *defaults = ares_config_new();
    ares_config_add_options(defaults, "", entry_table, &usual);
    ares_config_resolve(defaults);
    const char *option = o->timeout_s != usual.timeout_s               ? "timeout_s"
                         : o->start_timeout_s != usual.start_timeout_s ? "start_timeout_s"
                         : o->processes != usual.processes             ? "processes"
                         : o->batch != usual.batch                     ? "batch"
                         : o->memory_mb != usual.memory_mb             ? "memory_mb"
                                                                       : NULL;
    ares_config_free(defaults);
    if (option)
        ares_config_fault(cfg, path,
                          "%s: has no effect: a verifier runs in this process, and only function "
                          "and command start another; leave it out",
                          option);
}

static void open_entry(ares_config *cfg, const char *path, ares_reward *r, reward_entry *e)
{
    ares_config_bind(cfg, path, entry_table, &e->o);
    bool user = e->o.function || e->o.command.count,
         python = e->o.function && is_python(e->o.function);
    if (e->o.as || e->o.name || !user)
        e->name = ares_strdup(e->o.as ? e->o.as : e->o.name ? e->o.name : "unnamed");
    else if (python) e->name = NULL; /* the file says */
    else if (e->o.function) e->name = ares_strdup(base_name(e->o.function));
    else e->name = command_name(&e->o.command);
    if (python) open_python_entry(cfg, path, r, e);
    else if (user) open_child(cfg, path, e);
    else {
        open_verifier(cfg, path, e);
        refuse_process_options(cfg, path, &e->o);
    }
    if (!python && (e->o.kwargs->count || strcmp(e->o.form, "auto") != 0))
        ares_config_fault(cfg, path, "kwargs and form are of Python functions; leave them out");
    if (r->discards && !ares_is_null_f64(e->o.failure_score))
        ares_config_fault(cfg, path,
                          "failure_score = %g: a response that could not be judged is discarded; "
                          "set worker.reward.on_failure=score, or leave failure_score out",
                          e->o.failure_score);
}

/* An entry that no map describes: its numbers are the defaults. */
static void open_plain(char *name, reward_entry *e)
{
    ares_config *defaults = ares_config_new();
    ares_config_add_options(defaults, "", entry_table, &e->o);
    ares_config_resolve(defaults);
    e->o.form = NULL; /* texts, lists and maps end with the configuration */
    e->o.command = (ares_texts){ 0 };
    e->o.kwargs = NULL;
    ares_config_free(defaults);
    e->name = name;
}

/*
 * worker.reward.reward_function: a file of Python that is there is run; another published path, or
 * a name, is one entry whose options are reward_function_kwargs.
 */
static void open_reward_function(ares_config *cfg, ares_reward *r, reward_entry *e)
{
    static const char path[] = "worker.reward.reward_function";
    const ares_reward_config *rc = &r->cfg;
    void *options;
    char *file;
    const char *function = split_function(rc->reward_function, rc->reward_function_name, &file);
    if (is_python(rc->reward_function) && ares_file_exists(file)) {
        open_plain(NULL, e);
        open_python(cfg, path, r,
                    &(python_function){ file, function, "auto", rc->reward_type,
                                        rc->reward_function_kwargs },
                    e);
        ares_free(file);
        return;
    }
    ares_free(file);
    const char *name = reward_function_verifier(cfg, rc);
    *e = (reward_entry){ .o = { .weight = 1 }, .name = ares_strdup(name ? name : "unnamed") };
    if (!name) return;
    int opened = ares_judge_new(name, &e->judge);
    ARES_ASSERT(opened == ARES_OK);
    ares_option_table *table = ares_judge_options(e->judge, &options);
    if (table) ares_config_bind(cfg, "worker.reward.reward_function_kwargs", table, options);
    ares_judge_check(e->judge, cfg, "worker.reward.reward_function_kwargs");
}

static void open_with_defaults(reward_entry *e, const char *verifier)
{
    *e = (reward_entry){ .o = { .weight = 1 }, .name = ares_strdup(verifier) };
    int rc = ares_judge_new(e->name, &e->judge);
    ARES_ASSERT(rc == ARES_OK);
    ares_judge_use_defaults(e->judge);
}

/*
 * DAPO's options, as the entry {name: length, ...} that they stand for
 * (docs/dapo.md#penalty-of-length).
 */
static void open_length(ares_config *cfg, const ares_reward_config *rc, reward_entry *e)
{
    void *options;
    open_with_defaults(e, "length");
    (void)ares_judge_options(e->judge, &options);
    ares_length_options *o = options;
    if (rc->safe_length != ARES_NULL_I64) o->safe_length = rc->safe_length;
    if (rc->max_length != ARES_NULL_I64) o->max_length = rc->max_length;
    if (!ares_is_null_f64(rc->len_reward_penalty)) o->len_reward_penalty = rc->len_reward_penalty;
    if (o->safe_length < o->max_length) return;
    if (rc->safe_length != ARES_NULL_I64)
        ares_config_fault(cfg, "worker.reward.safe_length",
                          "not below max_length = %lld; between the two the penalty grows",
                          (long long)o->max_length);
    else if (o->len_reward_penalty > 0)
        ares_config_fault(cfg, "worker.reward.safe_length",
                          "is not set, and the %lld tokens that it then has are not below "
                          "max_length = %lld; set the tokens from which the penalty grows",
                          (long long)o->safe_length, (long long)o->max_length);
}

static bool penalises_length(const reward_entry *e)
{
    int64_t limit;
    double penalty;
    return e->judge && ares_judge_limit(e->judge, &limit, &penalty);
}

static const char *name_of(const reward_entry *e)
{
    return e->judge || e->child ? e->name : ""; /* another fault is known already */
}

/* Each of the first `listed` entries has metrics of its own. */
static void check_names(ares_config *cfg, const ares_reward *r, int listed)
{
    for (int i = 0; i < listed; i++) {
        const reward_entry *e = &r->entries[i];
        const char *name = name_of(e);
        char path[64];
        snprintf(path, sizeof path, "worker.reward.rewards.%d%s", i,
                 e->o.as     ? ".as"
                 : e->o.name ? ".name"
                             : "");
        if (is_taken(name))
            ares_config_fault(cfg, path,
                              "reward/%s is a metric of every run; give the entry another name in "
                              "metrics: as: my_%s",
                              name, name);
        for (int k = i + 1; *name && k < r->n; k++)
            if (strcmp(name, name_of(&r->entries[k])) == 0)
                ares_config_fault(cfg, path,
                                  "another entry is called '%s', too, and metrics are named after "
                                  "entries; give one of them another name in metrics: as: "
                                  "other_%s",
                                  name, name);
    }
}

static void open_listed(ares_config *cfg, ares_reward *r, const ares_json *list)
{
    if (r->n == 0)
        ares_config_fault(cfg, "worker.reward.rewards",
                          "no reward; name one, as in [{name: exact}]");
    for (int i = 0; i < r->n; i++) {
        char path[64];
        snprintf(path, sizeof path, "worker.reward.rewards.%d", i);
        if (list->items[i].type != ARES_JSON_OBJECT)
            ares_config_fault(cfg, path, "an entry is a map, as in {name: exact, weight: 1}");
        else open_entry(cfg, path, r, &r->entries[i]);
    }
}

/* TRL's: names of its own, modules and files; each with its weight. */
static void open_reward_funcs(ares_config *cfg, ares_reward *r)
{
    static const char path[] = "worker.reward.reward_funcs";
    static const struct {
        const char *name, *verifier;
    } own[] = { { "accuracy_reward", "math_verify" }, { "think_format_reward", "format_think" } };
    const ares_reward_config *rc = &r->cfg;
    if (rc->reward_weights.count && rc->reward_weights.count != r->n)
        ares_config_fault(cfg, "worker.reward.reward_weights", "%lld weights for %d functions",
                          (long long)rc->reward_weights.count, r->n);
    for (int i = 0; i < r->n; i++) {
        reward_entry *e = &r->entries[i];
        const char *named = rc->reward_funcs.items[i], *verifier = NULL;
        for (int k = 0; k < ARES_COUNT(own); k++)
            if (strcmp(named, own[k].name) == 0) verifier = own[k].verifier;
        if (verifier) {
            open_with_defaults(e, verifier);
            ares_free(e->name);
            e->name = ares_strdup(named);
        } else {
            char *module;
            const char *function = split_function(named, NULL, &module);
            char *dot = is_python(named) ? NULL : strrchr(module, '.');
            if (dot && !*function) { /* MODULE.NAME */
                *dot = 0;
                function = dot + 1;
            }
            open_plain(function_name(cfg, path, r, i, *function ? function : module, named), e);
            if (!*function)
                ares_config_fault(
                    cfg, path,
                    "'%s': neither accuracy_reward nor think_format_reward, which are "
                    "built in; write MODULE.NAME or FILE.py:NAME",
                    named);
            else
                open_python(cfg, path, r,
                            &(python_function){ .file = module, .name = function, .form = "trl" },
                            e);
            ares_free(module);
        }
        e->o.weight = i < rc->reward_weights.count ? rc->reward_weights.items[i] : 1;
    }
}

void reward_open_entries(ares_config *cfg, ares_reward *r)
{
    const ares_reward_config *rc = &r->cfg;
    bool listed = rc->rewards && rc->rewards->type != ARES_JSON_NULL, twice = false;
    r->n = listed                   ? (int)rc->rewards->count
           : rc->reward_funcs.count ? (int)rc->reward_funcs.count
                                    : 1;
    r->entries = ares_calloc((size_t)r->n + 2, sizeof *r->entries);
    if (listed + (rc->reward_function != NULL) + (rc->reward_funcs.count > 0) > 1)
        ares_config_fault(cfg, listed ? "worker.reward.rewards" : "worker.reward.reward_funcs",
                          "worker.reward.%s says what is rewarded; set one of them",
                          rc->reward_function ? "reward_function" : "reward_funcs");
    else if (rc->reward_function) open_reward_function(cfg, r, &r->entries[0]);
    else if (rc->reward_funcs.count) open_reward_funcs(cfg, r);
    else if (!listed) open_with_defaults(&r->entries[0], "exact");
    if (listed) open_listed(cfg, r, rc->rewards);
    int n = r->n;
    for (int i = 0; i < n; i++) r->users = r->users || r->entries[i].child;
    for (int i = 0; i < n; i++) twice = twice || penalises_length(&r->entries[i]);
    if (wants_length(rc)) open_length(cfg, rc, &r->entries[r->n++]);
    if (wants_length(rc) && twice)
        ares_config_fault(
            cfg, rc->reward_function ? "worker.reward.reward_function" : "worker.reward.rewards",
            "worker.reward.safe_length and len_reward_penalty add {name: length} themselves; "
            "leave the penalty of length here out, or them");
    else check_names(cfg, r, listed ? n : 0);
}

void reward_entry_fini(reward_entry *e)
{
    ares_judge_free(e->judge);
    ares_free(e->name);
    ares_map_free(e->fields);
    reward_child_free(e->child);
}
