/* ares-train serve: a model behind HTTP (docs/serve.md). */
#include "ares/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ares/dist.h"
#include "ares/train.h"
#include "cli.h"

/* The options of the command, then what they open. */
typedef struct serve_job {
    ares_serve_options serve;
    const char *model, *device, *speculation;
    cli_types types;
    int64_t port, max_model_len, max_num_seqs, state_snapshots, seed, threads;
    cli_list names, origins, adapter_words;
    ares_str dir, tokenizer_dir;
    ares_device d;
    ares_model *m;
    ares_tokenizer *tokenizer;
    ares_serve_adapter adapters[CLI_MAX_EACH];
    int n_adapters;
    ares_adapter *own; /* of a checkpoint or run of an adapter */
    ares_tinker_learner learner;
    ares_str path; /* the model's directory, from the root */
    ares_arena arena;
} serve_job;

enum { MICRO_BATCH_TOKENS = 4096 }; /* of a training call: they change memory, no bit */

/* --adapter NAME=DIR */
static int open_adapter(serve_job *j, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals || equals == word || !equals[1])
        return ares_fail(ARES_EUSE,
                         "serve: --adapter = '%s': a name is missing, by which requests ask for "
                         "it; write --adapter NAME=DIR",
                         word);
    ares_serve_adapter *a = &j->adapters[j->n_adapters];
    a->name = ares_arena_copy(&j->arena, word, (size_t)(equals - word));
    for (int i = 0; i < j->n_adapters; i++)
        if (strcmp(j->adapters[i].name, a->name) == 0)
            return ares_fail(ARES_EUSE, "serve: --adapter: two have the name '%s'; rename one",
                             a->name);
    for (int i = 0; i < j->serve.n_names; i++)
        if (strcmp(j->serve.names[i], a->name) == 0)
            return ares_fail(ARES_EUSE,
                             "serve: --adapter: '%s' is the model's own name; choose another",
                             a->name);
    ARES_TRY(ares_adapter_load(j->m, j->dir.data, equals + 1, &a->adapter));
    j->n_adapters++;
    return ARES_OK;
}

static int open_all(serve_job *j)
{
    ares_serve_options *o = &j->serve;
    if (!o->api_key) o->api_key = getenv("ARES_API_KEY");
    if (o->api_key && !*o->api_key)
        return ares_fail(ARES_EUSE, "serve: the key is empty; give --api-key (or ARES_API_KEY) a "
                                    "value, or leave it out");
    ares_model_options opt;
    ARES_TRY(cli_types_of("serve", &j->types, j->device, &opt));
    ARES_TRY(ares_device_open_table(j->device, "native", opt.storage, (int)j->threads, &j->d));
    ARES_TRY(ares_model_find(j->model, &j->dir));
    ARES_TRY(ares_model_find_tokenizer(j->model, &j->tokenizer_dir));
    ARES_TRY(ares_model_load(j->dir.data, &j->d, &opt, &j->m));
    ARES_TRY(ares_tokenizer_load(j->tokenizer_dir.data, &j->tokenizer));
    ARES_TRY(ares_model_add_eos(&j->m->cfg, ares_tokenizer_role_id(j->tokenizer, ARES_TOKEN_EOS),
                                j->dir.data));
    if (!j->names.n) j->names.values[j->names.n++] = j->model;
    o->names = j->names.values;
    o->n_names = j->names.n;
    o->origins = j->origins.values;
    o->n_origins = j->origins.n;
    o->model_dir = j->dir.data;
    o->tokenizer_dir = j->tokenizer_dir.data;
    o->version = ARES_VERSION;
    o->port = (int)j->port;
    o->max_model_len = (int32_t)j->max_model_len;
    o->max_num_seqs = (int32_t)j->max_num_seqs;
    o->seed = (uint64_t)j->seed;
    o->drafts_tokens = strcmp(j->speculation, "auto") == 0;
    int64_t snapshots = j->state_snapshots;
    o->state_snapshots = snapshots < 0 ? 0 : snapshots ? (int32_t)snapshots : -1;
    for (int i = 0; i < j->adapter_words.n; i++)
        ARES_TRY(open_adapter(j, j->adapter_words.values[i]));
    if (ares_model_adapted(j->model))
        ARES_TRY(ares_adapter_load(j->m, j->dir.data, j->model, &j->own));
    o->adapter = j->own;
    /* clients of the Tinker API train adapters beside the bare model */
    if (!j->own && j->d.index < 0) {
        ARES_TRY(ares_train_tinker_open(j->m, j->dir.data, MICRO_BATCH_TOKENS, &j->learner));
        o->learner = &j->learner;
    }
    o->adapters = j->adapters;
    o->n_adapters = j->n_adapters;
    return ARES_OK;
}

int ares_cli_serve(int argc, char **argv)
{
    serve_job j = { .serve = { ARES_SERVE_DEFAULTS },
                    .device = "cpu",
                    .speculation = "auto",
                    .port = 8000,
                    .max_num_seqs = 64,
                    .state_snapshots = -1,
                    .seed = 1 };
    ares_serve_options *o = &j.serve;
    static const char *const parsers[] = { "auto", "hermes", "llama3_json", "none", NULL },
                             *const thoughts[] = { "none", "think", NULL };
    bool helped;
    const cli_option options[] = {
        CLI_OPTION(TEXT, j.model, "--model", "DIR", "a model, checkpoint or run directory",
                   .required = true),
        CLI_OPTION(EACH, j.adapter_words, "--adapter", "NAME=DIR",
                   "a further model name: the model with an adapter (LoRA); repeatable"),
        CLI_OPTION(EACH, j.names, "--served-model-name", "NAME",
                   "what requests call the model; default: DIR as typed; repeatable"),
        CLI_OPTION(TEXT, o->host, "--host", "ADDRESS",
                   "where to listen; an address that others reach needs --api-key"),
        CLI_OPTION(I64, j.port, "--port", "N", "0: any free one", .least = 0, .most = 65535),
        CLI_OPTION(TEXT, o->api_key, "--api-key", "KEY",
                   "every request must bring it; also from the environment's ARES_API_KEY",
                   .once = true),
        CLI_OPTION(EACH, j.origins, "--allow-origin", "ORIGIN",
                   "web pages of this origin may ask, such as http://localhost:3000; repeatable; "
                   "* needs --api-key"),
        CLI_OPTION(I64, j.max_model_len, "--max-model-len", "N",
                   "tokens of prompt and answer; 0: the model's", .most = INT32_MAX),
        CLI_OPTION(I64, j.max_num_seqs, "--max-num-seqs", "N",
                   "answers decoded at once; changes speed, no result", .least = 1,
                   .most = 1 << 16),
        CLI_OPTION(
            I64, o->cache_tokens, "--cache-tokens", "N",
            "size of the KV cache; changes speed, no result; 0: what full answers need, at most "
            "6 GiB",
            .most = INT64_MAX),
        CLI_OPTION(I64, j.state_snapshots, "--state-snapshots", "N",
                   "of a model with delta nets: states kept for conversations that go on; changes "
                   "speed, no result; -1: as many as --max-num-seqs",
                   .least = -1, .most = 1 << 16),
        CLI_SPECULATION(j.speculation),
        CLI_OPTION(I64, j.seed, "--seed", "N", "of requests that bring none"),
        CLI_OPTION(F64, o->request_timeout_s, "--request-timeout", "S",
                   "seconds after which a request is answered 408; 0: never"),
        CLI_OPTION(I64, o->max_queue, "--max-queue", "N",
                   "requests accepted and unfinished; more are answered 429", .least = 1,
                   .most = 1 << 20),
        CLI_OPTION(I64, o->max_body_mb, "--max-body-mb", "N", "larger bodies are answered 413",
                   .least = 1, .most = 1 << 14),
        CLI_OPTION(TEXT, o->tool_parser, "--tool-parser", "FORM",
                   "how the model writes calls of tools: auto (by its chat template), hermes, "
                   "llama3_json, or none",
                   .choices = parsers),
        CLI_OPTION(TEXT, o->reasoning, "--reasoning", "none|think",
                   "think: what stands before </think> is reasoning_content", .choices = thoughts),
        CLI_OPTION(TEXT, o->request_log, "--request-log", "FILE",
                   "a JSON line per request, without its text", .once = true),
        CLI_OPTION(
            TEXT, o->state_dir, "--state-dir", "DIR",
            "checkpoints of Tinker's clients, read again at the next start; default: ares-serve, "
            "made when the first of them comes"),
        CLI_OPTION(I64, o->max_lora_rank, "--max-lora-rank", "N", "largest rank of their adapters",
                   .least = 1, .most = 1 << 16),
        CLI_OPTION(I64, o->max_models, "--max-models", "N", "their training clients alive",
                   .least = 1, .most = 1 << 20),
        CLI_OPTION(F64, o->session_timeout_s, "--session-timeout", "S",
                   "seconds without a heartbeat after which their sessions end; 0: never"),
        CLI_OPTION(TEXT, j.device, "--device", "DEVICE", "cpu, cuda or cuda:1",
                   .offered = cli_devices, .n_offered = 2),
        CLI_OPTION(I64, j.threads, "--threads", "N", "CPU threads; 0: all CPUs at hand",
                   .most = 1 << 16),
        CLI_TYPES(j.types),
    };
    const cli_command command = {
        .name = "serve",
        .usage = "--model DIR [--adapter NAME=DIR] [options]",
        .about = "Answers OpenAI's chat and completions, and the Tinker training API, over HTTP "
                 "(docs/serve.md). Prints "
                 "'listening on http://HOST:PORT' when requests are answered; the first SIGINT or "
                 "SIGTERM ends it.",
        .example =
            "ares-train serve --model models/SmolLM2-135M-Instruct &\n"
            "curl -s http://127.0.0.1:8000/v1/chat/completions \\\n"
            "    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":20}'",
        .options = options,
        .n_options = ARES_COUNT(options),
    };
    ARES_TRY(cli_read(&command, &argc, argv, &helped));
    if (helped) return ARES_OK;
    ares_server *server = NULL;
    int rc = open_all(&j);
    if (rc == ARES_OK) rc = ares_server_open(o, j.m, j.tokenizer, &server);
    if (rc == ARES_OK) {
        ares_signal_install(ARES_SIGNAL_WAITS); /* before anybody can know whom to end */
        printf("listening on http://%s:%d\n", o->host, ares_server_port(server));
        rc = fflush(stdout) == 0 ? ares_server_run(server)
                                 : ares_fail(ARES_EIO, "serve: stdout cannot be written");
    }
    ares_server_close(server);
    for (int i = 0; i < j.n_adapters; i++) ares_adapter_free(j.adapters[i].adapter);
    if (o->learner) ares_train_tinker_close(&j.learner);
    ares_adapter_free(j.own);
    ares_tokenizer_free(j.tokenizer);
    if (j.m) ares_model_free(j.m);
    ares_device_close(&j.d);
    ares_str_fini(&j.dir);
    ares_str_fini(&j.tokenizer_dir);
    ares_arena_fini(&j.arena);
    return rc;
}
