/*
 * ares-train init: a fresh random model directory that transformers opens too. The options become a
 * config.json, which is then read and checked like anyone's, so that what an architecture means
 * stays in one place.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ares/train.h"
#include "verb.h"

static const char help[] =
    "usage: ares-train init --arch qwen2|qwen3|llama --out DIR [options]\n"
    "\n"
    "Writes a model directory with random weights: config.json, model.safetensors, tokenizer "
    "files.\n"
    "\n"
    "  --hidden N --layers N --heads N --kv-heads N       128, 4, 4, 2\n"
    "  --head-dim N --intermediate N                      hidden / heads, 3 x hidden\n"
    "  --vocab N --max-position N --rope-theta X          512 (or what the tokenizer needs), 2048, "
    "10000\n"
    "  --tied, --untied                                   one matrix for embedding and head (the "
    "default), or two\n"
    "  --dtype fp32|bf16 --seed N                         fp32, 1\n"
    "  --tokenizer DIR|chars                              files to copy, or (the default) one "
    "token a byte with\n"
    "                                                     <|endoftext|>, <|im_start|>, <|im_end|> "
    "and a ChatML template\n"
    "\n"
    "example:\n"
    "  ares-train init --arch qwen2 --out models/tiny --seed 1\n";

typedef struct job {
    const char *arch, *out, *dtype, *tokenizer;
    int64_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocab, max_position, seed;
    double rope_theta;
    bool tied, untied;
    ares_str dir;                  /* being written; takes the name of `out` when it is whole */
    int32_t bos, eos, pad, tokens; /* of the tokenizer: ids, -1 none; tokens: ids it may give */
} job;

/* ------------------------------------------------------------------ a token a byte */
enum { BYTES = 256, SPECIALS = 3 };
static const char *const specials[SPECIALS] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };

static const char chat_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* GPT-2's letter for a byte: itself where it prints, else the next free code point from 256 on. */
static void add_letter(ares_str *s, int byte)
{
    int code = byte, free_code = BYTES;
    for (int b = 0; b <= byte; b++) {
        bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte && !prints) code = free_code;
        free_code += !prints;
    }
    char utf8[3] = { (char)(code < 0x80 ? code : 0xc0 | code >> 6), (char)(0x80 | (code & 0x3f)),
                     0 };
    if (code < 0x80) utf8[1] = 0;
    ares_json_write_string(s, ares_view_of(utf8));
}

static void add_special(ares_str *s, int i, bool named)
{
    if (named) ares_str_addf(s, "\"%d\": {", BYTES + i);
    else ares_str_addf(s, "{\"id\": %d, ", BYTES + i);
    ares_str_addf(s,
                  "\"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
                  "false, \"normalized\": false, \"special\": true}",
                  specials[i]);
    if (i + 1 < SPECIALS) ares_str_add_z(s, ",\n    ");
}

static int write_file(const job *j, const char *name, const ares_str *text)
{
    ares_str path = { 0 };
    int rc = ares_file_write(ares_path_join(&path, j->dir.data, name), text->data, text->len);
    ares_str_fini(&path);
    return rc;
}

static int write_chars(const job *j)
{
    static const char level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": false}";
    ares_str s = { 0 };
    ares_str_add_z(&s, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": "
                       "null,\n  \"added_tokens\": [\n    ");
    for (int i = 0; i < SPECIALS; i++) add_special(&s, i, false);
    ares_str_addf(&s,
                  "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n  "
                  "\"post_processor\": null,\n  \"decoder\": %s,\n",
                  level, level);
    ares_str_add_z(&s, "  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": "
                       "null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
                       "    \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": "
                       "false,\n    \"vocab\": {");
    for (int b = 0; b < BYTES; b++) {
        ares_str_add_z(&s, b % 16 ? " " : "\n      ");
        add_letter(&s, b);
        ares_str_addf(&s, b + 1 < BYTES ? ": %d," : ": %d", b);
    }
    ares_str_add_z(&s, "\n    },\n    \"merges\": []\n  }\n}\n");
    int rc = write_file(j, "tokenizer.json", &s);

    ares_str_clear(&s);
    ares_str_add_z(&s, "{\n  \"added_tokens_decoder\": {\n    ");
    for (int i = 0; i < SPECIALS; i++) add_special(&s, i, true);
    ares_str_addf(&s,
                  "\n  },\n  \"add_prefix_space\": false,\n  \"bos_token\": null,\n  "
                  "\"eos_token\": \"%s\",\n  \"pad_token\": \"%s\",\n  \"unk_token\": null,\n",
                  specials[2], specials[0]);
    ares_str_addf(&s,
                  "  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %lld,\n  "
                  "\"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"chat_template\": ",
                  (long long)j->max_position);
    ares_json_write_string(&s, ares_view_of(chat_template));
    ares_str_add_z(&s, "\n}\n");
    if (rc == ARES_OK) rc = write_file(j, "tokenizer_config.json", &s);
    ares_str_fini(&s);
    return rc;
}

/* The tokenizer's files, and what config.json must know of them. */
static int put_tokenizer(job *j)
{
    ares_tokenizer *t;
    int rc;
    if (strcmp(j->tokenizer, "chars") == 0) rc = write_chars(j);
    else if (!ares_dir_exists(j->tokenizer))
        rc = ares_fail(
            ARES_EUSE,
            "init: --tokenizer = '%s': no such directory; name one with a tokenizer.json, or chars",
            j->tokenizer);
    else rc = ares_train_copy_tokenizer(j->tokenizer, j->dir.data);
    ARES_TRY(rc);
    ARES_TRY(ares_tokenizer_load(j->dir.data, &t));
    j->bos = ares_tokenizer_role_id(t, ARES_TOKEN_BOS);
    j->eos = ares_tokenizer_role_id(t, ARES_TOKEN_EOS);
    j->pad = ares_tokenizer_role_id(t, ARES_TOKEN_PAD);
    j->tokens = (int32_t)ares_tokenizer_vocab_size(t);
    ares_tokenizer_free(t);
    if (j->bos < 0) j->bos = j->pad; /* as Qwen's files name <|endoftext|> */
    if (j->vocab == 0) j->vocab = ARES_MAX(512, (j->tokens + 63) / 64 * 64);
    if (j->vocab < j->tokens)
        return ares_fail(ARES_EUSE,
                         "init: --vocab = %lld: the tokenizer has ids up to %d; set %d or more",
                         (long long)j->vocab, j->tokens - 1, j->tokens);
    return ARES_OK;
}

/* ------------------------------------------------------------------ the model */
static void add_token_ids(const job *j, ares_str *s, const char *before)
{
    const struct {
        const char *key;
        int32_t id;
    } ids[] = { { "bos_token_id", j->bos },
                { "eos_token_id", j->eos },
                { "pad_token_id", j->pad } };
    for (int i = 0; i < ARES_COUNT(ids); i++) {
        if (ids[i].id < 0) continue;
        ares_str_addf(s, "%s\"%s\": %d", before, ids[i].key, ids[i].id);
        before = ", ";
    }
}

static int put_configs(const job *j)
{
    ares_str s = { 0 }, path = { 0 };
    int64_t head_dim = j->head_dim ? j->head_dim : j->hidden / j->heads,
            intermediate = j->intermediate ? j->intermediate : 3 * j->hidden;
    ares_str_add_z(&s, "{\"model_type\": ");
    ares_json_write_string(&s, ares_view_of(j->arch));
    ares_str_addf(&s,
                  ", \"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %lld, "
                  "\"num_attention_heads\": %lld, \"num_key_value_heads\": %lld",
                  (long long)j->vocab, (long long)j->hidden, (long long)j->layers,
                  (long long)j->heads, (long long)j->kv_heads);
    ares_str_addf(&s,
                  ", \"head_dim\": %lld, \"intermediate_size\": %lld, \"max_position_embeddings\": "
                  "%lld, \"tie_word_embeddings\": %s, \"rope_theta\": ",
                  (long long)head_dim, (long long)intermediate, (long long)j->max_position,
                  j->untied ? "false" : "true");
    ares_json_write_double(&s, j->rope_theta);
    add_token_ids(j, &s, ", ");
    ares_str_add_z(&s, "}\n");
    int rc = write_file(j, "config.json", &s);
    if (rc == ARES_OK &&
        !ares_file_exists(ares_path_join(&path, j->dir.data, "generation_config.json"))) {
        ares_str_clear(&s);
        ares_str_add_char(&s, '{');
        add_token_ids(j, &s, "");
        ares_str_add_z(&s, "}\n");
        rc = write_file(j, "generation_config.json", &s);
    }
    ares_str_fini(&s);
    ares_str_fini(&path);
    return rc;
}

static int put_model(const job *j, int64_t *parameters)
{
    ares_model_config c;
    ares_device d;
    ares_model *m;
    ares_model_options opt = { .storage = strcmp(j->dtype, "bf16") == 0 ? ARES_BF16 : ARES_F32 };
    ARES_TRY(ares_model_config_load(j->dir.data, &c));
    ARES_TRY(ares_device_open("cpu", 0, &d));
    int rc = ares_model_new(&c, &d, &opt, (uint64_t)j->seed, &m);
    if (rc == ARES_OK) {
        rc = ares_model_save(m, j->dir.data);
        *parameters = ares_model_count(m);
        ares_model_free(m);
    }
    ares_device_close(&d);
    return rc;
}

static int check(const job *j)
{
    const struct {
        const char *name;
        int64_t value, least;
    } sizes[] = {
        { "--hidden", j->hidden, 1 },
        { "--layers", j->layers, 1 },
        { "--heads", j->heads, 1 },
        { "--kv-heads", j->kv_heads, 1 },
        { "--head-dim", j->head_dim, 0 },
        { "--intermediate", j->intermediate, 0 },
        { "--vocab", j->vocab, 0 },
        { "--seed", j->seed, 0 },
        { "--max-position", j->max_position, 1 },
    };
    if (!j->arch)
        return ares_fail(ARES_EUSE, "init: --arch is missing (choices: qwen2, qwen3, llama)");
    if (!j->out || !*j->out)
        return ares_fail(ARES_EUSE, "init: --out is missing: the directory to write");
    if (j->tied && j->untied)
        return ares_fail(ARES_EUSE, "init: --tied and --untied exclude each other");
    if (strcmp(j->dtype, "fp32") != 0 && strcmp(j->dtype, "bf16") != 0)
        return ares_fail(ARES_EUSE, "init: --dtype = '%s': unknown (choices: fp32, bf16)",
                         j->dtype);
    for (int i = 0; i < ARES_COUNT(sizes); i++)
        if (sizes[i].value < sizes[i].least ||
            (sizes[i].value > 1 << 24 && strcmp(sizes[i].name, "--seed") != 0))
            return ares_fail(ARES_EUSE, "init: %s = %lld: out of range; set %lld or more",
                             sizes[i].name, (long long)sizes[i].value,
                             (long long)ARES_MAX(sizes[i].least, 1));
    if (!(j->rope_theta > 0))
        return ares_fail(ARES_EUSE, "init: --rope-theta = %g: must be above 0", j->rope_theta);
    if (!j->head_dim && j->hidden % j->heads)
        return ares_fail(
            ARES_EUSE, "init: --hidden = %lld is no multiple of --heads = %lld; set --head-dim too",
            (long long)j->hidden, (long long)j->heads);
    if (j->heads % j->kv_heads)
        return ares_fail(ARES_EUSE, "init: --heads = %lld is no multiple of --kv-heads = %lld",
                         (long long)j->heads, (long long)j->kv_heads);
    if ((j->head_dim ? j->head_dim : j->hidden / j->heads) % 2)
        return ares_fail(ARES_EUSE, "init: --head-dim: must be even; rotary embeddings turn pairs");
    return ARES_OK;
}

/* An existing directory must be empty; nothing is ever written over. */
static int check_free(const char *out)
{
    DIR *d = opendir(out);
    if (!d)
        return errno == ENOENT ? ARES_OK
                               : ares_fail(ARES_EIO, "init: %s: %s", out, strerror(errno));
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n ? ares_fail(ARES_EUSE,
                         "init: %s: the directory is not empty; name another, or empty it", out)
             : ARES_OK;
}

int ares_verb_init(int argc, char **argv)
{
    job j = { .dtype = "fp32",
              .tokenizer = "chars",
              .hidden = 128,
              .layers = 4,
              .heads = 4,
              .kv_heads = 2,
              .max_position = 2048,
              .seed = 1,
              .rope_theta = 10000 };
    const verb_option options[] = {
        { "--arch", VERB_TEXT, &j.arch },
        { "--out", VERB_TEXT, &j.out },
        { "--hidden", VERB_I64, &j.hidden },
        { "--layers", VERB_I64, &j.layers },
        { "--heads", VERB_I64, &j.heads },
        { "--kv-heads", VERB_I64, &j.kv_heads },
        { "--head-dim", VERB_I64, &j.head_dim },
        { "--intermediate", VERB_I64, &j.intermediate },
        { "--vocab", VERB_I64, &j.vocab },
        { "--max-position", VERB_I64, &j.max_position },
        { "--rope-theta", VERB_F64, &j.rope_theta },
        { "--tied", VERB_FLAG, &j.tied },
        { "--untied", VERB_FLAG, &j.untied },
        { "--dtype", VERB_TEXT, &j.dtype },
        { "--seed", VERB_I64, &j.seed },
        { "--tokenizer", VERB_TEXT, &j.tokenizer },
    };
    bool helped;
    int64_t parameters = 0;
    ARES_TRY(
        verb_read_options("init", help, argc, argv, options, ARES_COUNT(options), NULL, &helped));
    if (helped) return ARES_OK;
    ARES_TRY(check(&j));
    ARES_TRY(check_free(j.out));
    ares_str_add_z(&j.dir, j.out);
    while (j.dir.len > 1 && j.dir.data[j.dir.len - 1] == '/') j.dir.data[--j.dir.len] = 0;
    ares_str_add_z(&j.dir, ".partial");
    int rc = ares_dir_remove(j.dir.data);
    if (rc == ARES_OK) rc = ares_dir_make(j.dir.data);
    if (rc == ARES_OK) rc = put_tokenizer(&j);
    if (rc == ARES_OK) rc = put_configs(&j);
    if (rc == ARES_OK) rc = put_model(&j, &parameters);
    if (rc == ARES_OK && rename(j.dir.data, j.out) != 0)
        rc = ares_fail(ARES_EIO, "init: %s: %s", j.out, strerror(errno));
    if (rc == ARES_OK)
        printf("%s: %s with %lld parameters, %lld tokens\n", j.out, j.arch, (long long)parameters,
               (long long)j.vocab);
    else ares_dir_remove(j.dir.data);
    ares_str_fini(&j.dir);
    return rc;
}
