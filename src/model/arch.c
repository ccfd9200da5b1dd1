/* The table of architectures; the defaults are those of transformers' configuration classes. */
#include "arch.h"

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
      .window_keys = true },
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
      .window_keys = true },
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
};

const model_arch *model_arch_find(const char *model_type)
{
    const char *names[ARES_COUNT(archs)];
    for (int i = 0; i < ARES_COUNT(archs); i++) names[i] = archs[i].name;
    int i;
    return ares_lookup(ARES_EUNSUPPORTED, "model: model_type", model_type, names, ARES_COUNT(archs),
                       &i) == ARES_OK
               ? &archs[i]
               : NULL;
}
