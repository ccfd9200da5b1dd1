/*
 * libFuzzer entry for an adapter's directory: adapter_config.json, the byte 0xFE, and
 * adapter_model.safetensors, beside a model of two small blocks. Checks that what opens has all
 * numbers of the layers that it names, and that what does not says why.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/model/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = { "adapter_config.json", "adapter_model.safetensors" };

static void check(const peft_adapter *a)
{
    ARES_ASSERT(a->lora.n > 0);
    for (int32_t i = 0; i < a->lora.n; i++) {
        const lora_module *m = &a->lora.modules[i];
        ARES_ASSERT(m->rank > 0 && m->name && a->a[i] && a->b[i]);
        for (int64_t k = 0; k < (int64_t)m->rank * m->in; k++) ARES_ASSERT(isfinite(a->a[i][k]));
        for (int64_t k = 0; k < (int64_t)m->rank * m->out; k++) ARES_ASSERT(isfinite(a->b[i][k]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char dir[] = "/tmp/ares_fuzz_XXXXXX";
    static bool made;
    static const ares_model_config base = { .model_type = "llama",
                                            .vocab = 24,
                                            .hidden = 8,
                                            .layers = 2,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .head_dim = 4,
                                            .intermediate = 12,
                                            .tied = true };
    const uint8_t *cut = size ? memchr(data, 0xFE, size) : NULL;
    size_t first = cut ? (size_t)(cut - data) : size;
    ares_arena arena = { 0 };
    peft_adapter peft;
    ARES_ASSERT(made || mkdtemp(dir));
    made = true;
    ares_log_set(ARES_LOG_ERROR, 0);
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        const void *from = i ? (const void *)(cut ? cut + 1 : data) : data;
        ARES_ASSERT(ares_file_write(path, from, i ? (cut ? size - first - 1 : 0) : first) ==
                    ARES_OK);
    }
    if (peft_open(dir, dir, &base, true, &arena, &peft) == ARES_OK) check(&peft);
    else ARES_ASSERT(ares_error_message()[0]);
    ares_error_clear();
    ares_arena_fini(&arena);
    return 0;
}
