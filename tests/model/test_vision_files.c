/*
 * Files of vision models: whatever the layout of config.json and the names of the weights, what is
 * written is what was read, and the tower has no gradients. Seen to fail: with the patch matrix
 * declared with two axes, with one form of names written for the other, with a config.json made
 * from what was read of it.
 */
#include <stdio.h>
#include <string.h>

#include "ares/model.h"
#include "test.h"

static const char *const models[] = { "qwen2_vl_flat", "qwen2_vl_nested", "qwen2_5_vl_flat",
                                      "qwen2_5_vl_mid" };

static const char *path_of(char path[static 300], const char *model)
{
    (void)snprintf(path, 300, "%s/%s", test_source("tests/golden/models"), model);
    return path;
}

static void same_tensors(const char *one, const char *other)
{
    ares_safetensors *a, *b;
    REQUIRE_OK(ares_safetensors_open(one, &a));
    REQUIRE_OK(ares_safetensors_open(other, &b));
    CHECK_EQ(ares_safetensors_count(a), ares_safetensors_count(b));
    for (int64_t i = 0; i < ares_safetensors_count(a); i++) {
        const ares_tensor_info *x = ares_safetensors_at(a, i),
                               *y = ares_safetensors_find(b, x->name);
        if (!CHECK_MSG(y, "%s is missing", x->name)) continue;
        CHECK_EQ(x->rank, y->rank);
        for (int k = 0; k < x->rank; k++) CHECK_EQ(x->shape[k], y->shape[k]);
        CHECK_EQ(x->bytes, y->bytes);
        CHECK_MSG(memcmp(x->data, y->data, (size_t)x->bytes) == 0, "%s differs", x->name);
    }
    ares_safetensors_close(a);
    ares_safetensors_close(b);
}

static void same_config(const char *one, const char *other)
{
    ares_str path = { 0 }, a = { 0 }, b = { 0 };
    CHECK_OK(ares_file_read(ares_path_join(&path, one, "config.json"), &a));
    CHECK_OK(ares_file_read(ares_path_join(&path, other, "config.json"), &b));
    CHECK_STR(a.data, b.data);
    ares_str_fini(&path);
    ares_str_fini(&a);
    ares_str_fini(&b);
}

TEST(a_vision_model_is_saved_as_it_was_read)
{
    char path[300];
    for (int i = 0; i < ARES_COUNT(models); i++) {
        ares_device d;
        ares_model *m;
        ares_model_options opt = { .storage = ARES_F32, .trainable = true, .freeze_vision = true };
        CHECK_OK(ares_device_open_table("cpu", "native", ARES_F32, 1, &d));
        REQUIRE_OK(ares_model_load(path_of(path, models[i]), &d, &opt, &m));
        REQUIRE_OK(ares_params_optimizer_alloc(&m->params, ARES_F32));
        REQUIRE_OK(ares_params_zero_grad(&m->params));
        for (int k = 0; k < m->params.n; k++) {
            bool tower = strstr(m->params.list[k].name, "visual.") != NULL;
            CHECK_EQ(m->params.list[k].grad.data == NULL, tower);
            CHECK_EQ(m->params.regions[m->params.list[k].region].m == NULL, tower);
        }
        CHECK_OK(ares_model_save(m, test_dir(), NULL, NULL));
        same_config(path, test_dir());
        same_tensors(path, test_dir());
        int32_t pad = m->cfg.vision.video_token;
        CHECK_FAIL(ares_model_check_ids(m, &pad, 1, NULL), ARES_EFORMAT,
                   "stands for a video that is not given");
        ares_model_free(m);
        opt.value_head = true;
        CHECK_FAIL(ares_model_load(path, &d, &opt, &m), ARES_EUNSUPPORTED, "a critic");
        ares_device_close(&d);
    }
}
