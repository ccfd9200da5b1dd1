/*
 * ares-train doctor: what this machine has, what a run of a configuration would use of it, and what
 * is missing. A line says what was looked at just now: a library counts as there when it can be
 * opened, a model when its tensors are where its files say, rows when the first can be read.
 * Nothing is written, no weight is read, no device is opened, and nothing leaves the machine.
 */
#include "cli.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ares/dist.h"
#include "ares/io.h"
#include "ares/kernels.h"
#include "ares/model.h"
#include "ares/train.h"

/* ---------------- lines */

typedef enum {
    DOCTOR_OK,
    DOCTOR_WARN,    /* a run works, and may not do well */
    DOCTOR_MISSING, /* not there, and the run does not ask for it */
    DOCTOR_FAILS    /* the run would not work */
} doctor_state;
static const char *const state_names[] = { "ok", "warn", "missing", "fails" };

typedef struct doctor {
    const char *verb; /* of the configuration: train or sft; NULL: there is none */
    ares_config *cfg;
    ares_train_config c;
    bool json;
    int n[ARES_COUNT(state_names)]; /* lines of each state */
    ares_str out;                   /* the table; with json the members of "lines" */
} doctor;

/*
 * Adds a line. mend: a command, or what to set; NULL: there is nothing to mend. Texts may come from
 * files, so control characters are shown as such.
 */
ARES_PRINTF(5, 6)
static void say(doctor *d, doctor_state state, const char *name, const char *mend,
                const char *format, ...)
{
    va_list args;
    char text[8192];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->n[state]++;
    if (d->json) {
        ares_json_begin(&d->out, '{');
        ares_json_write_string(ares_json_key(&d->out, "name"), ares_view_of(name));
        ares_json_write_string(ares_json_key(&d->out, "state"), ares_view_of(state_names[state]));
        ares_json_write_string(ares_json_key(&d->out, "text"), ares_view_of(text));
        ares_json_key(&d->out, "mend");
        if (mend) ares_json_write_string(&d->out, ares_view_of(mend));
        else ares_json_write_null(&d->out);
        ares_json_end(&d->out, '}');
        return;
    }
    ares_str_addf(&d->out, "%-8s %-14s ", state_names[state], name);
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        if (at > text) ares_str_addf(&d->out, "%24s", "");
        cli_add_safe(&d->out, (ares_view){ at, (size_t)(end - at) });
        ares_str_add_char(&d->out, '\n');
    }
    if (!mend) return;
    ares_str_addf(&d->out, "%24s-> ", "");
    cli_add_safe(&d->out, ares_view_of(mend));
    ares_str_add_char(&d->out, '\n');
}

/* Takes the message of a failure, which says what is wrong and mostly what to do. */
static void say_error(doctor *d, const char *name, const char *mend)
{
    say(d, DOCTOR_FAILS, name, mend, "%s", ares_error_message());
    ares_error_clear();
}

/* "5.9 GB", "812 MB" */
typedef char amount[32];
static const char *bytes_as(double bytes, amount text)
{
    if (bytes >= 1e9) snprintf(text, sizeof(amount), "%.1f GB", bytes / 1e9);
    else snprintf(text, sizeof(amount), "%.0f MB", bytes / 1e6);
    return text;
}

/* ---------------- the machine */

static void look_at_cpu(doctor *d)
{
    static const char *const sets[] = { "sse4_2",   "avx",      "avx2",     "fma",
                                        "f16c",     "avx512f",  "avx512bw", "avx512vl",
                                        "avx512dq", "avx512cd", "asimd",    "sve" };
    ares_str text = { 0 }, line = { 0 };
    ares_device device;
    bool named = ares_file_line("/proc/cpuinfo", "model name", &line);
    ares_str_addf(&text, "%s; %d of %ld cores;", named ? line.data : "model not known",
                  ares_cpu_count(), sysconf(_SC_NPROCESSORS_ONLN));
    if (ares_file_line("/proc/cpuinfo", "flags", &line) ||
        ares_file_line("/proc/cpuinfo", "Features", &line))
        for (char *rest = line.data, *word; (word = strtok_r(rest, " ", &rest));)
            for (int i = 0; i < ARES_COUNT(sets); i++)
                if (strcmp(word, sets[i]) == 0) ares_str_addf(&text, " %s", word);
    if (ares_device_open("cpu", 1, &device) == ARES_OK) {
        const char *asked = getenv("ARES_ISA");
        say(d, DOCTOR_OK, "processor", NULL, "%s; kernels: %s%s", text.data, device.k->name,
            asked && *asked ? ", as ARES_ISA says" : "");
        ares_device_close(&device);
    } else say_error(d, "processor", "unset ARES_ISA");
    ares_str_fini(&text);
    ares_str_fini(&line);
}

static void look_at_memory(doctor *d)
{
    double all = ares_memory_bytes(), left = ares_memory_free_bytes(),
           machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    amount a, b, c;
    const char *limited = all < machine ? ", the limit of its control group" : "";
    bytes_as(all, a), bytes_as(left, b), bytes_as(machine, c);
    bool little = left < 5e8, by_limit = all < machine && all < 5e8;
    say(d, little ? DOCTOR_WARN : DOCTOR_OK, "memory",
        by_limit ? "give its control group (the container, the batch job) a higher limit"
        : little ? "end other programs: ps --sort=-rss -eo rss,comm | head"
                 : NULL,
        "%s for this process%s (the machine has %s); %s of it free now", a, limited, c, b);
}

/* Whether a program of this name is in PATH; *at: where. */
static bool in_path(const char *name, ares_str *at)
{
    const char *path = getenv("PATH");
    if (!path) return false;
    for (const char *folder = path, *end; folder; folder = *end ? end + 1 : NULL) {
        end = folder + strcspn(folder, ":");
        ares_str_clear(at);
        ares_str_addf(at, "%.*s/%s", (int)(end - folder), folder, name);
        if (access(at->data, X_OK) == 0 && ares_file_exists(at->data)) return true;
    }
    return false;
}

/* The cards of this machine by their names, as the driver lists them; returns how many. */
static int list_cards(ares_str *names)
{
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    ares_str path = { 0 }, model = { 0 };
    int n = 0;
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (*e->d_name == '.') continue;
        ares_path_join(&path, "/proc/driver/nvidia/gpus", e->d_name);
        ares_str_add_z(&path, "/information");
        bool named = ares_file_line(path.data, "Model", &model);
        ares_str_addf(names, "%s%s", n++ ? ", " : "", named ? model.data : "a card");
    }
    ares_str_fini(&model);
    if (folder) closedir(folder);
    ares_str_fini(&path);
    return n;
}

/* The driver, its cards, and the library that computes on them. */
static void look_at_cards(doctor *d)
{
    char path[PATH_MAX];
    bool asked = d->verb && d->c.trainer.device && strncmp(d->c.trainer.device, "cuda", 4) == 0;
    doctor_state none = asked ? DOCTOR_FAILS : DOCTOR_MISSING;
    if (!ares_cuda_expected()) {
        say(d, none, "card", asked ? "trainer.device=cpu" : NULL,
            "no driver of a CUDA card (/dev/nvidiactl); runs compute on the CPU");
        return;
    }
    ares_str cards = { 0 }, driver = { 0 };
    int n = list_cards(&cards);
    if (!ares_file_line("/proc/driver/nvidia/version", "NVRM version", &driver))
        ares_str_add_z(&driver, "a driver that does not tell its version");
    if (n) say(d, DOCTOR_OK, "card", NULL, "%d: %s; %s", n, cards.data, driver.data);
    else
        say(d, DOCTOR_WARN, "card", "nvidia-smi -L",
            "none is listed in /proc/driver/nvidia/gpus; %s", driver.data);
    ares_str_fini(&cards);
    ares_str_fini(&driver);
    ares_path_of_program("ARES_CUDA_LIB", "libares_cuda.so", path, sizeof path);
    if (access(path, R_OK) != 0) {
        say(d, none, "libares_cuda",
            "scripts/setup.sh && cmake --preset release -DARES_CUDA=ON && cmake --build build",
            "no %s: this build computes on the CPU alone", path);
        return;
    }
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    ares_cuda_dist_ops_fn *ops = NULL;
    if (library) *(void **)&ops = dlsym(library, "ares_cuda_dist_ops");
    if (!library || !ops) {
        say(d, none, "libares_cuda", "cmake --build build", "%s",
            library ? "it is of another version" : dlerror());
        return;
    }
    int version;
    say(d, DOCTOR_OK, "libares_cuda", NULL, "%s", path);
    if (ops()->find(&version) == ARES_OK)
        say(d, DOCTOR_OK, "NCCL", NULL, "%d.%d.%d", version / 10000, version / 100 % 100,
            version % 100);
    else {
        say(d, DOCTOR_MISSING, "NCCL", "scripts/setup.sh",
            "%s; several cards would exchange over host memory", ares_error_message());
        ares_error_clear();
    }
}

/* A library that the program opens where a run needs it. */
typedef struct part {
    const char *name, *file, *variable, *use, *mend;
} part;
static const part libtorch = { "libtorch", "libares_torch.so", "ARES_TORCH_LIB",
                               "trainer.kernels=aten, and bf16 on a card",
                               "scripts/setup.sh && cmake --preset release && cmake --build "
                               "build" };
static const part parquet = { "pyarrow", "libares_parquet.so", "ARES_PARQUET_LIB", "Parquet files",
                              "scripts/setup.sh --parquet && cmake --preset release && cmake "
                              "--build build" };
static const part video = { "FFmpeg", "libares_video.so", "ARES_VIDEO_LIB", "files of videos",
                            "scripts/setup.sh && cmake --preset release && cmake --build build" };

/* needed: by the configuration */
static void look_at_part(doctor *d, const part *p, bool needed)
{
    char path[PATH_MAX];
    doctor_state none = needed ? DOCTOR_FAILS : DOCTOR_MISSING;
    ares_path_of_program(p->variable, p->file, path, sizeof path);
    if (access(path, R_OK) != 0)
        say(d, none, p->name, p->mend, "no %s: without it no %s", path, p->use);
    else if (dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE))
        say(d, DOCTOR_OK, p->name, NULL, "%s opens", path);
    else say(d, none, p->name, p->mend, "%s; without it no %s", dlerror(), p->use);
}

/* Whether a list of files has one that ends so. */
static bool names_a(const ares_texts *files, const char *end)
{
    for (int64_t i = 0; i < files->count; i++)
        if (strstr(files->items[i], end)) return true;
    return false;
}

/* What is compiled in, or not. */
static void look_at_build(doctor *d)
{
    static const char build_again[] =
        "scripts/setup.sh && cmake --preset release && cmake --build build";
    static const struct {
        const char *name, *use;
        bool built;
    } parts[] = {
#ifdef ARES_HAVE_WEBSOCKETS
        { "websockets", "serve, agents, and environments on OpenEnv servers", true },
#else
        { "websockets", "serve, agents, and environments on OpenEnv servers", false },
#endif
#ifdef ARES_HAVE_COMPRESSED
        { "zlib, zstd", "rows in .gz and .zst files", true },
#else
        { "zlib, zstd", "rows in .gz and .zst files", false },
#endif
#ifdef ARES_HAVE_SQLITE
        { "sqlite3", "trackio and mlflow as trackers", true },
#else
        { "sqlite3", "trackio and mlflow as trackers", false },
#endif
    };
    ares_str at = { 0 };
    bool several = d->verb && ares_train_named_ranks(&d->c) > 1;
#ifdef ARES_HAVE_MPI
    if (in_path("mpirun", &at)) say(d, DOCTOR_OK, "MPI", NULL, "built in; %s", at.data);
    else
        say(d, several ? DOCTOR_FAILS : DOCTOR_MISSING, "MPI", "apt-get install -y openmpi-bin",
            "built in, but no mpirun in PATH, which starts "
            "several processes");
#else
    say(d, several ? DOCTOR_FAILS : DOCTOR_MISSING, "MPI", build_again,
        "not built in: no run of several processes");
#endif
    for (int i = 0; i < ARES_COUNT(parts); i++)
        if (parts[i].built) say(d, DOCTOR_OK, parts[i].name, NULL, "built in: %s", parts[i].use);
        else
            say(d, DOCTOR_MISSING, parts[i].name, build_again, "not built in: no %s", parts[i].use);
    if (in_path("python3", &at))
        say(d, DOCTOR_OK, "python3", NULL, "%s, for rewards in Python", at.data);
    else
        say(d, DOCTOR_MISSING, "python3", "apt-get install -y python3",
            "not in PATH: no rewards in Python");
    ares_str_fini(&at);
}

static void look_at_locale(doctor *d)
{
    bool known = setlocale(LC_CTYPE, "") != NULL;
    const char *codes = nl_langinfo(CODESET);
    bool utf8 = known && strcmp(codes, "UTF-8") == 0;
    if (utf8) say(d, DOCTOR_OK, "locale", NULL, "%s", codes);
    else
        say(d, DOCTOR_WARN, "locale", "export LC_ALL=C.UTF-8",
            "%s: text beyond ASCII may look wrong in this terminal; files are UTF-8 in any case",
            known ? codes : "LANG or LC_ALL names one that is not installed");
    setlocale(LC_CTYPE, "C");
}

/* ---------------- the disk */

static double counted; /* bytes, by add_file: nftw hands nothing through */
static int add_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path, (void)at;
    if (type == FTW_F) counted += (double)st->st_size;
    return 0;
}

/* Checkpoints that lie on the disk at a time. steps 0: not known */
static double checkpoints_bytes(const ares_trainer_config *t, int64_t steps, double whole,
                                double model)
{
    double each = t->save_model_only ? model : whole;
    int64_t kept = 1; /* the last */
    if (t->save_freq > 0) {
        kept = steps ? (steps + t->save_freq - 1) / t->save_freq : 2;
        if (t->save_limit > 0) kept = ARES_MIN(kept, t->save_limit + 1); /* and the best */
    }
    bool rolls = !ares_is_null_f64(t->save_minutes);
    return (double)kept * each + (rolls ? whole : 0) + ARES_MAX(each, rolls ? whole : 0);
}

/* whole, model: bytes of a checkpoint with and without optimizer states; 0: not known */
static void look_at_disk(doctor *d, const char *dir, double whole, double model)
{
    struct statvfs at;
    ares_str folder = { 0 }, checkpoints = { 0 };
    amount a, b, e;
    ares_str_add_z(&folder, *dir ? dir : ".");
    /* the first folder above it that is there */
    while (!ares_dir_exists(folder.data)) {
        char *slash = strrchr(folder.data, '/');
        if (!slash) {
            ares_str_clear(&folder);
            ares_str_add_z(&folder, ".");
        } else if (slash == folder.data) ares_str_clear(&folder), ares_str_add_z(&folder, "/");
        else *slash = 0;
    }
    if (statvfs(folder.data, &at) != 0 || at.f_flag & ST_RDONLY ||
        access(folder.data, W_OK | X_OK) != 0) {
        say(d, DOCTOR_FAILS, "disk", "trainer.run_dir=DIR, of a folder that you may write to",
            "%s: %s; the run directory would be %s", folder.data,
            at.f_flag & ST_RDONLY ? "the file system is read-only" : strerror(errno), dir);
    } else {
        double left = (double)at.f_bavail * (double)at.f_frsize, needs = 1e8;
        const ares_trainer_config *t = &d->c.trainer;
        int64_t steps = d->verb && t->max_steps != ARES_NULL_I64 ? t->max_steps : 0;
        bytes_as(left, a);
        if (whole > 0) {
            counted = 0;
            ares_path_join(&checkpoints, dir, "checkpoints");
            (void)nftw(checkpoints.data, add_file, 16, FTW_PHYS); /* what is there already */
            needs = ARES_MAX(1e8, checkpoints_bytes(t, steps, whole, model) - counted);
        }
        bytes_as(needs, b), bytes_as(t->save_model_only ? model : whole, e);
        ares_trainer_config fewer = *t;
        fewer.save_limit = 1;
        bool mends = whole > 0 && t->save_freq > 0 && t->save_limit != 1 &&
                     checkpoints_bytes(&fewer, steps, whole, model) - counted <= left;
        if (whole > 0 && left >= needs)
            say(d, DOCTOR_OK, "disk", NULL, "%s free at %s; checkpoints take %s%s, each %s", a,
                folder.data,
                steps || t->save_freq < 1 || t->save_limit > 0 ? "up to " : "at least ", b, e);
        else if (whole > 0)
            say(d, DOCTOR_FAILS, "disk",
                mends ? "trainer.save_limit=1" : "trainer.run_dir=DIR, of a disk with more room",
                "%s free at %s; checkpoints take %s, each %s", a, folder.data, b, e);
        else if (left < needs)
            say(d, d->verb ? DOCTOR_FAILS : DOCTOR_WARN, "disk",
                "trainer.run_dir=DIR, of a disk with more room", "%s free at %s", a, folder.data);
        else say(d, DOCTOR_OK, "disk", NULL, "%s free at %s", a, folder.data);
    }
    ares_str_fini(&folder);
    ares_str_fini(&checkpoints);
}

/* ---------------- a configuration */

/* The directory of an option's model, with tensors where its files say. */
static void look_at_model(doctor *d, const char *option, const char *path)
{
    ares_str dir = { 0 }, mend = { 0 };
    ares_model_config m;
    ares_safetensors *file = NULL;
    bool smollm2 = strcmp(ares_after_last(path, '/'), "SmolLM2-135M-Instruct") == 0;
    if (smollm2 && !ares_dir_exists(path))
        ares_str_addf(&mend, "scripts/fetch_smollm2.sh %s", path);
    else if (ares_dir_exists(path)) ares_str_addf(&mend, "%s=DIR, of a whole model", option);
    else
        ares_str_addf(&mend,
                      "%s=DIR, of a model; a small one: ares-train init --arch qwen2 --out %s",
                      option, path);
    int rc = ares_model_find(path, &dir);
    if (rc == ARES_OK) rc = ares_model_config_load(dir.data, &m);
    if (rc == ARES_OK) rc = ares_safetensors_open(dir.data, &file);
    if (rc == ARES_OK)
        say(d, DOCTOR_OK, "model", NULL, "%s: %s, %.4g million parameters, %lld tensors", dir.data,
            option, (double)ares_model_config_count(&m) / 1e6,
            (long long)ares_safetensors_count(file));
    else say_error(d, "model", mend.data);
    ares_safetensors_close(file);
    ares_str_fini(&dir);
    ares_str_fini(&mend);
}

/* The first row of a file of rows. */
static void look_at_rows(doctor *d, const char *option, const char *path)
{
    const ares_row_file file = { .path = path, .limit = 1 };
    ares_dataset *rows = NULL;
    char mend[160];
    snprintf(mend, sizeof mend, "%s=FILE, of rows as docs/data.md describes them", option);
    if (ares_dataset_load_files(&file, 1, &d->c.data, false, &rows) == ARES_OK) {
        say(d, DOCTOR_OK, "rows", NULL, "%s: %s, its first row is read", path, option);
        ares_dataset_free(rows);
    } else say_error(d, "rows", mend);
}

/* Programs of rewards: the first word of `command`. */
static void look_at_programs(doctor *d)
{
    const ares_json *rewards = ares_config_get(d->cfg, "worker.reward.rewards");
    ares_str at = { 0 };
    for (int64_t i = 0; rewards && rewards->type == ARES_JSON_ARRAY && i < rewards->count; i++) {
        const ares_json *words = ares_json_get(&rewards->items[i], "command");
        if (!words || words->type != ARES_JSON_ARRAY || !words->count ||
            words->items[0].type != ARES_JSON_STRING)
            continue;
        const char *name = words->items[0].text.data;
        bool found = strchr(name, '/') ? access(name, X_OK) == 0 : in_path(name, &at);
        if (found)
            say(d, DOCTOR_OK, "reward", NULL, "%s is there", strchr(name, '/') ? name : at.data);
        else
            say(d, DOCTOR_FAILS, "reward", "name a program that is there in worker.reward.rewards",
                "command: %s: %s", name,
                strchr(name, '/') ? strerror(errno) : "no such program in PATH");
    }
    ares_str_fini(&at);
}

/* Whether the directory is free for this configuration. */
static void look_at_run(doctor *d, const char *dir)
{
    ares_run_state state;
    ares_str changed = { 0 };
    if (ares_run_inspect(d->cfg, &d->c, &state, &changed) != ARES_OK)
        say_error(d, "run directory", "trainer.experiment_name=NAME");
    else if (state == ARES_RUN_FINISHED)
        say(d, DOCTOR_FAILS, "run directory", "trainer.experiment_name=NAME, or more steps",
            "%s: this run is finished", dir);
    else if (state == ARES_RUN_CHANGED && !d->c.trainer.force)
        say(d, DOCTOR_FAILS, "run directory", "trainer.experiment_name=NAME",
            "%s holds a run with other options (%s)", dir, changed.data);
    else
        say(d, DOCTOR_OK, "run directory", NULL, "%s: %s", dir,
            state == ARES_RUN_NONE ? "a new run" : "the run there goes on");
    ares_str_fini(&changed);
}

/* Memory by the plan of the run, which also tells what a checkpoint takes. */
static void look_at_plan(doctor *d, double *whole, double *model)
{
    ares_plan_options o = { .json = true, .supervised = strcmp(d->verb, "sft") == 0 };
    ares_str text = { 0 };
    ares_arena arena = { 0 };
    const ares_json *plan;
    amount a, b, c;
    o.ranks = o.local_ranks = ares_train_named_ranks(&d->c);
    if (d->c.published.nnodes != ARES_NULL_I64)
        o.local_ranks = ARES_MAX(1, o.ranks / (int)d->c.published.nnodes);
    int rc = ares_train_plan(d->cfg, &d->c, &o, &text);
    /* the numbers are there even where the run does not fit */
    if (text.len && ares_json_parse(&arena, ares_str_view(&text), "plan", &plan) == ARES_OK) {
        double needs, there, left = ares_memory_free_bytes() / o.local_ranks;
        bool card = strncmp(d->c.trainer.device, "cuda", 4) == 0;
        (void)ares_json_get_double(plan, "needed_bytes", 0, &needs);
        (void)ares_json_get_double(plan, "memory_bytes", 0, &there);
        (void)ares_json_get_double(plan, "checkpoint_bytes", 0, whole);
        (void)ares_json_get_double(plan, "model_checkpoint_bytes", 0, model);
        bytes_as(needs, a), bytes_as(there, b), bytes_as(left, c);
        if (rc != ARES_OK) {
            static const char words[] = "it fits with ";
            const char *with = strstr(ares_error_message(), words);
            char *mend = with ? ares_strdup(with + sizeof words - 1) : NULL;
            say_error(d, "plan", mend);
            ares_free(mend);
        } else if (!card && needs > left)
            say(d, DOCTOR_WARN, "plan", "end other programs: ps --sort=-rss -eo rss,comm | head",
                "a process needs %s where rows have full length, of %s; only %s are free now", a, b,
                c);
        else
            say(d, DOCTOR_OK, "plan", NULL,
                "a process needs %s where rows have full length; there are %s", a, b);
    } else if (rc == ARES_EUSE) { /* a card that the driver does not describe */
        say(d, DOCTOR_WARN, "plan", "ares-train plan --config FILE --memory BYTES", "%s",
            ares_error_message());
        ares_error_clear();
    } else if (rc != ARES_OK) say_error(d, "plan", NULL);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
}

/* Whether an option of sft alone is set: the configuration is one of `ares-train sft`. */
static bool is_supervised(const ares_config *cfg, int first)
{
    ares_str values = { 0 };
    bool number, set = false;
    const char *path;
    for (int i = first; !set && (path = ares_config_option(cfg, i, &values, &number)); i++)
        set = *path && ares_config_is_set(cfg, path);
    ares_str_fini(&values);
    return set;
}

/* Reads the configuration of the words; it works where d->verb is set. */
static void read_configuration(doctor *d, int n, const char *const *words)
{
    ares_str values = { 0 };
    bool number;
    int of_training = 0;
    d->cfg = ares_config_new();
    ares_train_config_declare(d->cfg, &d->c);
    while (ares_config_option(d->cfg, of_training, &values, &number)) of_training++;
    ares_str_fini(&values);
    ares_sft_declare(d->cfg, &d->c);
    ares_config_read_args(d->cfg, n, words);
    bool unread = ares_config_fault_count(d->cfg) > 0;
    ares_config_resolve(d->cfg);
    bool supervised = is_supervised(d->cfg, of_training);
    int rc = unread       ? ares_config_finish(d->cfg)
             : supervised ? ares_sft_check(d->cfg, &d->c, ares_train_named_ranks(&d->c))
                          : ares_train_config_check(d->cfg, &d->c, ares_train_named_ranks(&d->c));
    if (rc != ARES_OK) {
        say_error(d, "configuration", "mend the lines above; ares-train --help-config WORD");
        return;
    }
    d->verb = supervised ? "sft" : "train";
    say(d, DOCTOR_OK, "configuration", NULL, "every option of it is one that %s can run with",
        d->verb);
}

/* What the configuration names. */
static void look_at_files(doctor *d, double *whole, double *model)
{
    const ares_train_config *c = &d->c;
    const struct {
        const char *option, *path;
    } models[] = { { "worker.actor.model.model_path", c->actor.model_path },
                   { "worker.critic.model.model_path", c->critic.model_path },
                   { "worker.ref.model.model_path", c->ref.model_path } };
    int before = d->n[DOCTOR_FAILS];
    for (int i = 0; i < ARES_COUNT(models); i++)
        if (models[i].path) look_at_model(d, models[i].option, models[i].path);
    for (int64_t i = 0; !c->trainer.val_only && i < c->data.train_files.count; i++)
        look_at_rows(d, "data.train_files", c->data.train_files.items[i]);
    for (int64_t i = 0; i < c->data.val_files.count; i++)
        look_at_rows(d, "data.val_files", c->data.val_files.items[i]);
    look_at_programs(d);
    if (d->n[DOCTOR_FAILS] > before) return;
    /* tokenizer, templates, more rows, adapters, a checkpoint to begin with: as --check does */
    int rc = strcmp(d->verb, "sft") == 0 ? ares_sft_check_files(d->cfg, c)
                                         : ares_train_check_files(d->cfg, c);
    if (rc != ARES_OK) say_error(d, "files", NULL);
    else
        say(d, DOCTOR_OK, "files", NULL,
            "tokenizer, templates and the first rows fit together; your own programs were not "
            "started (ares-train --check starts each once)");
    look_at_plan(d, whole, model);
}

int ares_cli_doctor(int argc, char **argv)
{
    doctor d = { 0 };
    bool helped;
    const cli_option options[] = {
        { .name = "--config",
          .type = CLI_PASSED,
          .value = "FILE",
          .doc = "YAML, of train or of sft; several are read from left to right" },
        { .name = "key=value", .type = CLI_PASSED, .doc = "overrides, as in training" },
        CLI_OPTION(FLAG, d.json, "--json", NULL, "print JSON instead of a table"),
    };
    const cli_command command = {
        .name = "doctor",
        .usage = "[--config FILE] [key=value ...] [--json]",
        .about = "Says what this machine has, and with a configuration what a run of it would use "
                 "and what is missing: a line each with ok, warn, missing (and not asked for) or "
                 "fails, and below it the command or option that mends it. Writes nothing, starts "
                 "no program, asks no network. Fails where the run, or without a configuration any "
                 "run on the CPU, would not work.",
        .example = "ares-train doctor\n"
                   "ares-train doctor --config examples/quickstart/config.yaml\n"
                   "ares-train doctor --config run.yaml worker.rollout.n=16 --json",
        .options = options,
        .n_options = ARES_COUNT(options),
        .words = CLI_OVERRIDES,
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    for (int i = 1; i < argc; i++) ARES_TRY(cli_check_typo(&command, argv[i]));
    double whole = 0, model = 0;
    ares_str dir = { 0 };
    if (d.json) ares_str_add_z(&d.out, "{\"lines\":[");
    if (argc > 1) read_configuration(&d, argc - 1, (const char *const *)argv + 1);
    look_at_cpu(&d);
    look_at_memory(&d);
    look_at_cards(&d);
    bool aten = d.verb && strcmp(d.c.trainer.kernels, "aten") == 0,
         card = d.verb && strncmp(d.c.trainer.device, "cuda", 4) == 0 && d.c.actor.dtype &&
                strcmp(d.c.actor.dtype, "bf16") == 0;
    const char *torch = getenv("ARES_TORCH_LIB");
    if (torch && strcmp(torch, "none") == 0 && !aten)
        say(&d, DOCTOR_MISSING, "libtorch", "unset ARES_TORCH_LIB",
            "left out (ARES_TORCH_LIB=none): attention on a card is many times slower");
    else look_at_part(&d, &libtorch, aten || card);
    look_at_part(&d, &parquet,
                 d.verb && (names_a(&d.c.data.train_files, ".parquet") ||
                            names_a(&d.c.data.val_files, ".parquet")));
    look_at_part(&d, &video, false);
    look_at_build(&d);
    look_at_locale(&d);
    if (d.verb) {
        look_at_files(&d, &whole, &model);
        if (!d.c.trainer.val_only) {
            ares_run_path(&d.c, &dir);
            look_at_run(&d, dir.data);
        }
    } else ares_str_add_z(&dir, "runs");
    if (!d.c.trainer.val_only) look_at_disk(&d, dir.data, whole, model);
    int fails = d.n[DOCTOR_FAILS];
    if (d.json) {
        ares_str_add_char(&d.out, ']');
        ares_json_write_bool(ares_json_key(&d.out, "ok"), fails == 0);
        ares_str_add_z(&d.out, "}\n");
    }
    int rc = cli_print("doctor", &d.out);
    if (rc == ARES_OK && fails)
        rc = ares_fail(ARES_ESTATE, "doctor: %d line%s say%s why %s would not work", fails,
                       fails == 1 ? "" : "s", fails == 1 ? "s" : "",
                       argc > 1 ? "this run" : "a run");
    ares_str_fini(&dir);
    ares_str_fini(&d.out);
    ares_config_free(d.cfg);
    return rc;
}
