/* What becomes of a model after training: merged with an adapter, and as a GGUF file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ares/io.h"
#include "e2e.h"

static const char *golden(const char *name)
{
    static char path[4][600];
    static int turn;
    char relative[200];
    snprintf(relative, sizeof relative, "tests/golden/%s", name);
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s", test_source(relative));
    return path[turn];
}

/* Runs the program, which fails with that exit code and a message that has the text. */
static void refused(int code, const char *text, const char *words)
{
    ares_str out = { 0 };
    CHECK_EQ(e2e_program(&out, "%s", words), code);
    CHECK_CONTAINS(out.data ? out.data : "", text);
    ares_str_fini(&out);
}

/* The log-probs that PEFT computes with the adapter beside the base, from the merged model. */
TEST(a_merged_model_scores_as_base_and_adapter_do_in_peft)
{
    ares_arena arena = { 0 };
    ares_str text = { 0 }, out = { 0 }, lines = { 0 };
    const ares_json *root;
    int merged = 0;
    REQUIRE_OK(ares_file_read(golden("lora.json"), &text));
    REQUIRE_OK(ares_json_parse(&arena, ares_str_view(&text), "lora.json", &root));
    const ares_json *cases = ares_json_get(root, "cases");
    for (int64_t i = 0; i < cases->count; i++) {
        const ares_json *c = &cases->items[i], *in = ares_json_get(c, "inputs"),
                        *ids = ares_json_get(in, "input_ids"),
                        *want = ares_json_get(ares_json_get(c, "expected"), "log_probs");
        if (!ares_view_is(ares_json_get(c, "function")->text, "lora_merge")) continue;
        char dir[600], name[64];
        snprintf(name, sizeof name, "merged_%d", merged++);
        snprintf(dir, sizeof dir, "%s", test_file(name));
        ares_str_clear(&out);
        int rc = e2e_program(&out, "merge --model '%s' --adapter '%s' --out '%s' --dtype fp32",
                             golden(ares_json_get(in, "model")->text.data),
                             golden(ares_json_get(in, "adapter")->text.data), dir);
        CHECK_MSG(rc == 0, "%s", out.data);
        CHECK_CONTAINS(out.data, "largest change");
        ares_str_clear(&lines);
        for (int64_t k = 0; k < ids->count; k++) {
            ares_json_begin(&lines, '{');
            ares_json_write(ares_json_key(&lines, "input_ids"), &ids->items[k]);
            ares_json_end(&lines, '}');
            ares_str_add_char(&lines, '\n');
        }
        const char *input = e2e_write("sequences.jsonl", lines.data);
        ares_str_clear(&out);
        rc = e2e_program(&out, "score --model '%s' --input '%s' > '%s'", dir, input,
                         test_file("scores.jsonl"));
        if (!CHECK_MSG(rc == 0, "%s", out.data)) continue;
        int64_t n;
        double within = ares_json_get(c, "tolerance_log_probs")->number;
        const ares_json **rows = e2e_rows(&arena, ".", "scores.jsonl", &n);
        CHECK_EQ(n, ids->count);
        for (int64_t k = 0; k < n; k++) {
            const ares_json *got = ares_json_get(rows[k], "log_probs"), *x = &want->items[k];
            int64_t skip = got->count - x->count; /* the first token has none */
            for (int64_t t = 0; t < x->count; t++)
                CHECK_MSG(fabs(got->items[t + skip].number - x->items[t].number) <= within,
                          "%s, sequence %lld, token %lld: %.9g, not %.9g", name, (long long)k,
                          (long long)t, got->items[t + skip].number, x->items[t].number);
        }
    }
    CHECK_EQ(merged, 7);
    ares_arena_fini(&arena);
    ares_str_fini(&text);
    ares_str_fini(&out);
    ares_str_fini(&lines);
}

TEST(merge_refuses_what_is_no_adapter_and_no_base_and_keeps_what_is_there)
{
    char words[1800];
    const char *base = golden("lora/base_qwen2_gqa"), *adapter = golden("lora/qwen2_r8"),
               *out = test_file("out");
    static const char form[] = "merge --model '%s' --adapter '%s' --out '%s'";
    snprintf(words, sizeof words, form, base, base, out);
    refused(2, "it belongs to --model", words);
    snprintf(words, sizeof words, form, adapter, adapter, out);
    refused(1, "an adapter, not a model", words);
    snprintf(words, sizeof words, form, golden("lora/base_qwen2_odd"), adapter, out);
    refused(1, "an adapter of another base", words);
    snprintf(words, sizeof words, form, base, test_file("nowhere"), out);
    refused(1, "no adapter_config.json", words);
    snprintf(words, sizeof words, form, base, adapter, test_file(""));
    refused(2, "is there; name another directory", words);
    CHECK(!ares_dir_exists(out));
    refused(2, "--dtype", "merge --model a --adapter b --out c --dtype f64");
}

/*
 * A copy of a base of golden/lora with a tokenizer, and a checkpoint of an adapter beside it: base/
 * and point/ in a new folder of the test.
 */
static const char *adapted(const char *folder, const char *base, const char *adapter)
{
    static char at[500];
    snprintf(at, sizeof at, "%s", test_file(folder));
    CHECK_EQ(test_shell(NULL,
                        "mkdir -p '%s/point' && cp -r '%s' '%s/base' && cp '%s'/* '%s/base/' && "
                        "cp -r '%s' '%s/point/adapter' && "
                        "sed -i 's|\"base_model_name_or_path\": .*\"|\"base_model_name_or_path\": "
                        "\"%s/base\"|' "
                        "'%s/point/adapter/adapter_config.json'",
                        at, golden(base), at, golden("tokenizer/qwen2"), at, golden(adapter), at,
                        at, at),
             0);
    return at;
}

static bool same_files(const char *folder, const char *a, const char *b)
{
    ares_str path = { 0 }, x = { 0 }, y = { 0 };
    CHECK_OK(ares_file_read(ares_path_join(&path, folder, a), &x));
    CHECK_OK(ares_file_read(ares_path_join(&path, folder, b), &y));
    bool same = x.len && x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    ares_str_fini(&path);
    ares_str_fini(&x);
    ares_str_fini(&y);
    return same;
}

TEST(a_gguf_file_of_an_adapters_run_is_that_of_the_merged_model)
{
    /* seen to fail: with the base alone; with rows of q in the order of the file */
    static const char *const cases[][2] = {
        { "lora/base_qwen2_gqa", "lora/qwen2_r8" },
        { "lora/base_qwen2_gqa", "lora/qwen2_tied_head" },
        { "lora/base_llama_untied", "lora/llama_patterns" },
        { "lora/base_llama_untied", "lora/llama_head" },
    };
    char words[1800];
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char folder[16];
        snprintf(folder, sizeof folder, "case%d", i);
        const char *at = adapted(folder, cases[i][0], cases[i][1]);
        CHECK_EQ(e2e_program(NULL, "export --model '%s/point' --gguf '%s/run'", at, at), 0);
        CHECK_EQ(e2e_program(NULL, "export --model '%s/base' --adapter '%s' --gguf '%s/both'", at,
                             golden(cases[i][1]), at),
                 0);
        CHECK_EQ(e2e_program(NULL, "export --model '%s/base' --gguf '%s/alone'", at, at), 0);
        CHECK_EQ(e2e_program(NULL,
                             "merge --model '%s/base' --adapter '%s' --dtype fp32 --out "
                             "'%s/merged/base'",
                             at, golden(cases[i][1]), at),
                 0);
        CHECK_EQ(
            e2e_program(NULL, "export --model '%s/merged/base' --gguf '%s/merged.gguf'", at, at),
            0);
        CHECK_MSG(same_files(at, "run", "both"), "%s", cases[i][1]);
        CHECK_MSG(same_files(at, "run", "merged.gguf"), "%s", cases[i][1]);
        CHECK_MSG(!same_files(at, "run", "alone"), "%s", cases[i][1]);
        snprintf(words, sizeof words, "export --model '%s/point' --adapter '%s' --gguf '%s/two'",
                 at, golden(cases[i][1]), at);
        refused(2, "is of an adapter already", words);
    }
}

TEST(merge_takes_the_adapter_of_a_checkpoint_and_no_other_one_beside_it)
{
    /* seen to fail: with the base alone of a checkpoint, and --adapter in place of its own */
    char words[1800];
    const char *at = adapted("one", "lora/base_qwen2_gqa", "lora/qwen2_r8"),
               *other = golden("lora/qwen2_zero_b");
    CHECK_EQ(e2e_program(NULL, "merge --model '%s/point' --out '%s/own'", at, at), 0);
    CHECK_EQ(e2e_program(NULL, "merge --model '%s/base' --adapter '%s/point' --out '%s/both'", at,
                         at, at),
             0);
    CHECK(same_files(at, "own/model.safetensors", "both/model.safetensors"));
    snprintf(words, sizeof words, "merge --model '%s/point' --adapter '%s' --out '%s/two'", at,
             other, at);
    refused(2, "is of an adapter already; leave --adapter out", words);
    snprintf(words, sizeof words, "merge --model '%s/base' --out '%s/two'", at, at);
    refused(2, "--adapter is missing", words);
    CHECK(!ares_dir_exists(test_file("one/two")));
    /* a whole model that has a folder of that name is no checkpoint of an adapter */
    CHECK_EQ(test_shell(NULL, "cp -r '%s/point/adapter' '%s/base/'", at, at), 0);
    refused(2, "--adapter is missing", words);
}

/* Whether config.json of a model in the folder says `text` in a line of its own. */
static bool says(const char *folder, const char *model, const char *text)
{
    return test_shell(NULL, "grep -q '^ *%s,\\?$' '%s/%s/config.json'", text, folder, model) == 0;
}

TEST(a_merged_model_names_the_type_that_it_is_stored_in)
{
    /* seen to fail: with the base's config.json copied */
    static const struct {
        const char *edit, *dtype, *line;
    } cases[] = {
        { "", "bf16", "\"dtype\": \"bfloat16\"" },
        { "s/\"dtype\": \"float32\"/\"torch_dtype\": \"float32\"/", "f16",
          "\"torch_dtype\": \"float16\"" },
        { "/\"dtype\"/d", "bf16", "\"torch_dtype\": \"bfloat16\"" },
        { "s/\"float32\"/\"bfloat16\"/", "fp32", "\"dtype\": \"float32\"" },
    };
    const char *input = e2e_write("lines.jsonl", "{\"input_ids\": [1, 5, 9]}\n");
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        char folder[16];
        ares_str out = { 0 };
        snprintf(folder, sizeof folder, "type%d", i);
        const char *at = adapted(folder, "lora/base_qwen2_gqa", "lora/qwen2_r8");
        CHECK_EQ(test_shell(NULL, "sed -i '%s' '%s/base/config.json'", cases[i].edit, at), 0);
        CHECK_EQ(e2e_program(NULL,
                             "merge --model '%s/base' --adapter '%s/point' --dtype %s --out "
                             "'%s/merged'",
                             at, at, cases[i].dtype, at),
                 0);
        CHECK_MSG(says(at, "merged", cases[i].line), "%s", cases[i].line);
        CHECK_EQ(e2e_program(&out, "score --model '%s/merged' --input '%s'", at, input), 0);
        CHECK_MSG(!strstr(out.data, "warning"), "%s", out.data);
        ares_str_fini(&out);
    }
}

/* A copy of a model whose files have its embedding as lm_head.weight, too. */
static void store_head(const char *model)
{
    ares_safetensors *s;
    ares_safetensors_writer *w;
    ares_str path = { 0 };
    REQUIRE_OK(ares_safetensors_open(model, &s));
    REQUIRE_OK(ares_safetensors_create(ares_path_join(&path, model, "with_head"), &w));
    const ares_tensor_info *head = ares_safetensors_find(s, "model.embed_tokens.weight");
    int64_t n = ares_safetensors_count(s);
    for (int64_t i = 0; i <= n; i++) {
        const ares_tensor_info *t = i < n ? ares_safetensors_at(s, i) : head;
        ares_safetensors_declare(w, i < n ? t->name : "lm_head.weight", t->dtype, t->rank,
                                 t->shape);
    }
    for (int64_t i = 0; i <= n; i++) {
        const ares_tensor_info *t = i < n ? ares_safetensors_at(s, i) : head;
        CHECK_OK(ares_safetensors_write(w, t->data, (size_t)t->bytes));
    }
    CHECK_OK(ares_safetensors_finish(w));
    ares_safetensors_close(s);
    CHECK_EQ(test_shell(NULL, "cd '%s' && mv with_head model.safetensors", model), 0);
    ares_str_fini(&path);
}

TEST(a_head_that_merging_has_changed_is_tied_no_longer_wherever_it_was_stored)
{
    /* seen to fail: with config.json kept where the files have a head */
    const char *at = adapted("tied", "lora/base_qwen2_gqa", "lora/qwen2_tied_head");
    CHECK_EQ(e2e_program(NULL, "merge --model '%s/point' --out '%s/plain/m'", at, at), 0);
    store_head(test_file("tied/base"));
    CHECK_EQ(e2e_program(NULL, "merge --model '%s/point' --out '%s/stored/m'", at, at), 0);
    CHECK(says(at, "base", "\"tie_word_embeddings\": true"));
    CHECK(says(at, "plain/m", "\"tie_word_embeddings\": false"));
    CHECK(says(at, "stored/m", "\"tie_word_embeddings\": false"));
    CHECK(same_files(at, "plain/m/model.safetensors", "stored/m/model.safetensors"));
    CHECK_EQ(e2e_program(NULL, "merge --model '%s/base' --adapter '%s' --out '%s/other'", at,
                         golden("lora/qwen2_r8"), at),
             0);
    CHECK(says(at, "other", "\"tie_word_embeddings\": true"));
    /* a file that says otherwise does not take the head from a GGUF file */
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && mkdir said && cp -r stored/m said/m && sed -i "
                        "'s/\"tie_word_embeddings\": false/\"tie_word_embeddings\": true/' "
                        "said/m/config.json",
                        at),
             0);
    CHECK_EQ(e2e_program(NULL, "export --model '%s/stored/m' --gguf '%s/a'", at, at), 0);
    CHECK_EQ(e2e_program(NULL, "export --model '%s/said/m' --gguf '%s/b'", at, at), 0);
    CHECK_EQ(test_shell(NULL, "cd '%s' && mkdir n && cp -r base n/m", at), 0);
    CHECK_EQ(
        e2e_program(NULL, "export --model '%s/n/m' --adapter '%s/point' --gguf '%s/c'", at, at, at),
        0);
    CHECK(same_files(at, "a", "b"));
    CHECK(same_files(at, "a", "c"));
}

TEST(merge_and_export_leave_what_they_have_not_made)
{
    /* seen to fail: with OUT.part removed before it is made, and with the slash left on OUT */
    char words[1800];
    ares_str out = { 0 };
    const char *at = adapted("kept", "lora/base_qwen2_gqa", "lora/qwen2_r8");
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && mkdir out.part && echo mine > out.part/file && "
                        "echo mine > out.gguf.part && ln -s nowhere link",
                        at),
             0);
    CHECK_EQ(e2e_program(NULL, "merge --model '%s/point' --out '%s/out'", at, at), 0);
    CHECK_EQ(e2e_program(NULL, "export --model '%s/point' --gguf '%s/out.gguf'", at, at), 0);
    CHECK_EQ(e2e_program(NULL, "merge --model '%s/point' --out '%s/a/b//'", at, at), 0);
    CHECK_EQ(test_shell(NULL,
                        "cd '%s' && grep -q mine out.part/file && grep -q mine out.gguf.part && "
                        "test -f out/config.json && test -f a/b/config.json && "
                        "! ls -A out a/b a . | grep -q part1",
                        at),
             0);
    static const struct {
        const char *words, *message;
    } cases[] = {
        { "merge --model '%s/point' --out '%s/a/b/'", "is there; name another directory" },
        { "merge --model '%s/point' --out '%s/link'", "is there; name another directory" },
        { "merge --model '%s/point' --adapter '%s'", "merge: --out is missing" },
        { "merge --model '%s/point' --adapter '%s' --out ''", "merge: --out is missing" },
        { "export --model '%s/point' --type f32 --adapter '%s'", "export: --gguf is missing" },
        { "export --model '%s/point' --gguf '%s/a' --force", "a folder; name a file" },
        { "export --model '%s/point' --gguf '%s/new/'", "a folder; name a file" },
    };
    for (int i = 0; i < ARES_COUNT(cases); i++) {
        snprintf(words, sizeof words, cases[i].words, at, at);
        refused(2, cases[i].message, words);
    }
    CHECK_EQ(e2e_program(&out, "merge --help && '%s' export --help", test_program()), 0);
    CHECK(!strstr(out.data, "(default )"));
    ares_str_fini(&out);
}

/* The number of 32 bits that stands `skip` bytes after the text in the test's file; -1: no text. */
static int64_t after(const char *name, const char *text, size_t skip)
{
    ares_str file = { 0 };
    uint32_t x = 0;
    CHECK_OK(ares_file_read(test_file(name), &file));
    int64_t at = ares_view_find(ares_str_view(&file), ares_view_of(text), 0);
    size_t from = (size_t)at + strlen(text) + skip;
    if (at >= 0 && from + sizeof x <= file.len) memcpy(&x, file.data + from, sizeof x);
    ares_str_fini(&file);
    return at < 0 ? -1 : (int64_t)x;
}

TEST(a_gguf_file_names_its_type_and_has_all_merges_of_a_text_file)
{
    /* seen to fail: with ggml's number of bf16, and without merges whose line begins with # */
    static const struct {
        const char *type;
        int number; /* llama.cpp's LLAMA_FTYPE */
    } types[] = { { "f32", 0 }, { "f16", 1 }, { "bf16", 32 }, { "q8_0", 7 } };
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 32 --layers 1 --heads 2 --kv-heads 1 "
                         "--tokenizer '%s' --out '%s'",
                         golden("tokenizer/qwen2_files"), test_file("model")),
             0);
    for (int i = 0; i < ARES_COUNT(types); i++) {
        CHECK_EQ(e2e_program(NULL, "export --model '%s' --gguf '%s' --type %s", test_file("model"),
                             test_file(types[i].type), types[i].type),
                 0);
        CHECK_EQ(after(types[i].type, "general.file_type", 4), types[i].number);
        /* after the key: of an array, of texts; 445 lines, the first tells a version */
        CHECK_EQ(after(types[i].type, "tokenizer.ggml.merges", 8), 444);
    }
}

TEST(a_gguf_file_is_made_of_a_run_and_replaced_only_by_force)
{
    char words[1600];
    ares_str file = { 0 }, again = { 0 };
    const char *model = test_file("model");
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 32 --layers 2 --heads 2 --kv-heads 1 "
                         "--tokenizer '%s' --out '%s'",
                         golden("tokenizer/qwen2"), model),
             0);
    snprintf(words, sizeof words, "export --model '%s' --gguf '%s' --type q8_0", model,
             test_file("model.gguf"));
    CHECK_EQ(e2e_program(NULL, "%s", words), 0);
    CHECK_OK(ares_file_read(test_file("model.gguf"), &file));
    CHECK(file.len > 4 && memcmp(file.data, "GGUF", 4) == 0);
    refused(2, "add --force", words);
    CHECK_EQ(e2e_program(NULL, "%s --force", words), 0);
    CHECK_OK(ares_file_read(test_file("model.gguf"), &again));
    CHECK(file.len == again.len && memcmp(file.data, again.data, file.len) == 0);
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen2 --hidden 32 --layers 1 --heads 2 --kv-heads 1 "
                         "--tokenizer '%s' --out '%s'",
                         golden("tokenizer/gpt2"), test_file("gpt2")),
             0);
    snprintf(words, sizeof words, "export --model '%s' --gguf '%s'", test_file("gpt2"),
             test_file("gpt2.gguf"));
    refused(1, "its pre_tokenizer is none that llama.cpp is known to have", words);
    CHECK_EQ(e2e_program(NULL,
                         "init --arch llama --hidden 32 --layers 1 --heads 2 --kv-heads 1 "
                         "--tokenizer '%s' --out '%s'",
                         golden("tokenizer/gemma_small"), test_file("gemma")),
             0);
    snprintf(words, sizeof words, "export --model '%s' --gguf '%s'", test_file("gemma"),
             test_file("gemma.gguf"));
    refused(1, "is not yet written as GGUF", words);
    CHECK_EQ(e2e_program(NULL,
                         "init --arch llama --hidden 32 --layers 1 --heads 2 --kv-heads 1 "
                         "--tokenizer '%s' --out '%s'",
                         golden("tokenizer/gpt2_files"), test_file("files")),
             0);
    snprintf(words, sizeof words, "export --model '%s' --gguf '%s'", test_file("files"),
             test_file("gpt2.gguf"));
    refused(1, "only Qwen2's way of splitting texts is known", words);
    snprintf(words, sizeof words, "export --model '%s' --gguf '%s'", golden("models/qwen2_vl_flat"),
             test_file("sees.gguf"));
    refused(1, "not yet offered as GGUF", words);
    snprintf(words, sizeof words, "export --model '%s' --gguf '%s/no/such/folder.gguf'", model,
             test_file("."));
    refused(1, "cannot be made", words);
    CHECK(!ares_file_exists(test_file("gpt2.gguf")) && !ares_file_exists(test_file("sees.gguf")));
    ares_str_fini(&file);
    ares_str_fini(&again);
}
