/* The table of architectures; the defaults are those of transformers' configuration classes. */
#include "arch.h"

#include <string.h>

static const model_arch archs[] = {
    { .name = "qwen2",
      .class_name = "Qwen2ForCausalLM",
      .vocab = 151936,
      .hidden = 4096,
      .intermediate = 22016,
      .layers = 32,
      .heads = 32,
      .kv_heads = 32,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .qkv_bias = true,
      .window_layers = 28 },
    { .name = "qwen3",
      .class_name = "Qwen3ForCausalLM",
      .vocab = 151936,
      .hidden = 4096,
      .intermediate = 22016,
      .layers = 32,
      .heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .attention_bias_key = true,
      .qk_norm = true,
      .window_layers = 28 },
    { .name = "llama",
      .class_name = "LlamaForCausalLM",
      .vocab = 32000,
      .hidden = 4096,
      .intermediate = 11008,
      .layers = 32,
      .heads = 32,
      .max_position = 2048,
      .bos = 1,
      .eos = 2,
      .attention_bias_key = true,
      .mlp_bias_key = true },
    { .name = "qwen2_vl",
      .class_name = "Qwen2VLForConditionalGeneration",
      .vocab = 152064,
      .hidden = 8192,
      .intermediate = 29568,
      .layers = 80,
      .heads = 64,
      .kv_heads = 8,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .qkv_bias = true,
      .vision = true,
      .rope_theta = 1e6,
      .rms_norm_eps = 1e-5,
      .window_layers = 80 },
    { .name = "qwen2_5_vl",
      .class_name = "Qwen2_5_VLForConditionalGeneration",
      .vocab = 152064,
      .hidden = 8192,
      .intermediate = 29568,
      .layers = 80,
      .heads = 64,
      .kv_heads = 8,
      .max_position = 32768,
      .bos = -1,
      .eos = -1,
      .qkv_bias = true,
      .vision = true,
      .gated_tower = true,
      .rope_theta = 1e6,
      .rms_norm_eps = 1e-5,
      .window_layers = 80 },
};

/* Another architecture is never a misspelling of this one: no nearest name is offered. */
const model_arch *model_arch_find(const char *model_type)
{
    ares_str names = { 0 };
    for (int i = 0; i < ARES_COUNT(archs); i++) {
        if (strcmp(archs[i].name, model_type) == 0) {
            ares_str_fini(&names);
            return &archs[i];
        }
        ares_str_addf(&names, "%s%s", i ? ", " : "", archs[i].name);
    }
    ares_fail(ARES_EUNSUPPORTED,
              "model_type = '%s': this architecture is not built; take a model of one that is (%s)",
              model_type, names.data);
    ares_str_fini(&names);
    return NULL;
}
