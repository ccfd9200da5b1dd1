#include "vision_runs.h"

#include <stdarg.h>
#include <stdio.h>

#include "../media/pictures.h"
#include "ares/io.h"

const char *vision_model(void)
{
    const char *dir = test_file("sees");
    if (!ares_dir_exists(dir))
        CHECK_EQ(e2e_program(NULL,
                             "init --arch qwen2_5_vl --hidden 64 --layers 2 --vision-layers 2 "
                             "--vision-width 32 --vision-patch 6 --initializer-range 0.09 --seed 3 "
                             "--out '%s'",
                             dir),
                 0);
    return dir;
}

const char *vision_noise(const char *name, int w, int h, uint32_t seed)
{
    ares_arena arena = { 0 };
    const uint8_t *rgb = picture_bytes(&arena, "noise", seed, (int64_t)w * h * 3);
    ares_view png = picture_png(&arena, rgb, w, h);
    const char *path = test_file(name);
    CHECK_OK(ares_file_write(path, png.data, png.len));
    ares_arena_fini(&arena);
    return path;
}

const char *vision_rows(void)
{
    static const char rows[] =
        "{\"prompt\":\"<image>How many?\",\"images\":[\"a.png\"],\"answer\":\"1\"}\n"
        "{\"prompt\":\"Look: <image> Which?\",\"images\":[\"b.png\"],\"answer\":\"2\"}\n"
        "{\"prompt\":\"<image> or <image>?\",\"images\":[\"a.png\",\"c.png\"],\"answer\":\"3\"}\n"
        "{\"prompt\":\"<image>What?\",\"images\":[\"d.png\"],\"answer\":\"4\"}\n"
        "{\"prompt\":\"Without a picture\",\"images\":[],\"answer\":\"5\"}\n"
        "{\"prompt\":\"<image>How much?\",\"images\":[\"c.png\"],\"answer\":\"6\"}\n"
        "{\"prompt\":\"Look: <image> Which?\",\"images\":[\"e.png\"],\"answer\":\"7\"}\n"
        "{\"prompt\":\"<image>Why?\",\"images\":[\"b.png\"],\"answer\":\"8\"}\n";
    static const struct {
        const char *name;
        int w, h;
    } files[] = { { "a.png", 24, 24 },
                  { "b.png", 48, 24 },
                  { "c.png", 20, 40 },
                  { "d.png", 60, 60 },
                  { "e.png", 48, 24 } };
    for (int i = 0; i < ARES_COUNT(files); i++)
        vision_noise(files[i].name, files[i].w, files[i].h, (uint32_t)i + 1);
    return e2e_write("pictures.jsonl", rows);
}

static const char *config(const char *kind, const char *run, const char *data, const char *rest)
{
    char text[2000], file[64];
    snprintf(text, sizeof text,
             "trainer: {run_dir: '%s', max_steps: 2, logger: [console]}\n"
             "data: {train_files: '%s', image_dir: '%s', min_pixels: null, max_pixels: null, "
             "max_prompt_length: 80, max_response_length: 12, rollout_batch_size: 4}\n%s",
             test_file(run), data, test_dir(), rest);
    snprintf(file, sizeof file, "%s_%s.yaml", kind, run);
    return e2e_write(file, text);
}

const char *vision_words(const char *run)
{
    char rest[1000];
    snprintf(rest, sizeof rest,
             "algorithm: {adv_estimator: grpo, disable_kl: true}\n"
             "worker:\n"
             "  actor: {model: {model_path: '%s'}, global_batch_size: 4, optim: {lr: 1.0e-3, "
             "weight_decay: 0.0}}\n"
             "  rollout: {n: 4}\n"
             "  reward: {rewards: [{name: format, pattern: '.*[0-9].*', finished: false}]}\n",
             vision_model());
    return config("pictures", run, vision_rows(), rest);
}

const char *vision_sft_words(const char *run, const char *rows)
{
    char rest[1000];
    snprintf(rest, sizeof rest,
             "sft: {batch_size: 4, max_length: 256}\n"
             "worker: {actor: {model: {model_path: '%s'}, optim: {lr: 1.0e-3}}}\n",
             vision_model());
    return config("sft_pictures", run, rows, rest);
}

bool vision_trains(const char *run, const char *format, ...)
{
    char words[4000];
    ares_str out = { 0 };
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    int rc = e2e_program(&out, "--config '%s' %s", vision_words(run), words);
    bool good = CHECK_MSG(rc == 0, "%s: %s", run, out.data ? out.data : "");
    ares_str_fini(&out);
    return good;
}

void vision_refused(int status, const char *says, const char *format, ...)
{
    char words[4000];
    ares_str out = { 0 };
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    CHECK_EQ(test_shell(NULL, "rm -rf '%s'", test_file("refused")), 0);
    int rc = e2e_program(&out, "--config '%s' %s", vision_words("refused"), words);
    CHECK_MSG(rc == status, "%d: %s", rc, out.data ? out.data : "");
    CHECK_CONTAINS(out.data ? out.data : "", says);
    ares_str_fini(&out);
}

int64_t vision_changed(const char *a, const char *b, const char *part, int64_t *tensors)
{
    ares_safetensors *x = NULL, *y = NULL;
    int64_t changed = 0;
    *tensors = 0;
    if (!CHECK_OK(ares_safetensors_open(a, &x)) || !CHECK_OK(ares_safetensors_open(b, &y)))
        return 0;
    for (int64_t i = 0; i < ares_safetensors_count(x); i++) {
        const ares_tensor_info *t = ares_safetensors_at(x, i),
                               *u = ares_safetensors_find(y, t->name);
        if (!strstr(t->name, part)) continue;
        ++*tensors;
        changed += !CHECK(u && u->count == t->count) ||
                   memcmp(t->data, u->data, (size_t)t->count * sizeof(float)) != 0;
    }
    ares_safetensors_close(x);
    ares_safetensors_close(y);
    return changed;
}
