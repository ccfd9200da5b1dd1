/*
 * The endpoint as its clients see it: `ares-train serve` as a process, asked over sockets, beside
 * what generate and score say of the same questions.
 */
#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "e2e.h"
#include "served.h"
#include "vision_runs.h"

enum { MOST_WORDS = 24, CLIENTS = 24 };

/* Starts `ares-train serve` on a free port; words: further options, ended by NULL. */
static bool start_with(served *s, const char *model, const char *const *words)
{
    const char *argv[MOST_WORDS] = {
        test_program(),        "serve", "--model", model, "--port", "0", "--max-num-seqs", "8",
        "--served-model-name", "tiny"
    };
    int n = 10;
    while (words && *words) argv[n++] = *words++;
    if (!served_start(s, argv)) return false;
    return CHECK(s->port > 0);
}

static bool start(served *s, const char *const *words)
{
    return start_with(s, e2e_model(), words);
}

/* Ends it as a user does; its exit code. */
static int stop(served *s)
{
    int status = 0;
    kill(s->child.pid, SIGTERM);
    waitpid(s->child.pid, &status, 0);
    s->child.pid = 0;
    served_stop(s);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int connect_to(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

static bool send_request(int fd, const char *path, const char *body)
{
    ares_str all = { 0 };
    ares_str_addf(&all, "%s %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n", body ? "POST" : "GET",
                  path);
    if (body) ares_str_addf(&all, "content-length: %zu\r\n", strlen(body));
    ares_str_addf(&all, "\r\n%s", body ? body : "");
    bool good = send(fd, all.data, all.len, MSG_NOSIGNAL) == (ssize_t)all.len;
    ares_str_fini(&all);
    return good;
}

/* The body of an answer whose pieces are counted. */
static void unchunk(ares_str *text)
{
    ares_str out = { 0 };
    const char *at = text->data;
    for (long n; at && (n = strtol(at, NULL, 16)) > 0;) {
        at = strstr(at, "\r\n") + 2;
        ares_str_add(&out, at, (size_t)n);
        at += n + 2;
    }
    ares_str_fini(text);
    *text = out;
}

/* Asks and waits; status, with the body in out. body NULL: GET. */
static int ask(int port, const char *path, const char *body, ares_str *out)
{
    char buffer[4096];
    ares_str all = { 0 };
    int fd = connect_to(port), status = 0;
    if (fd < 0 || !send_request(fd, path, body)) return -1;
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
        ares_str_add(&all, buffer, (size_t)n);
    close(fd);
    int64_t end = ares_view_find(ares_str_view(&all), ARES_VIEW("\r\n\r\n"), 0);
    if (end > 0 && sscanf(all.data, "HTTP/1.1 %d", &status) == 1) {
        ares_str_clear(out);
        ares_str_add(out, all.data + end + 4, all.len - (size_t)end - 4);
        all.data[end] = 0;
        if (strstr(all.data, "chunked")) unchunk(out);
    }
    ares_str_fini(&all);
    return status;
}

static const ares_json *parse(ares_arena *a, const ares_str *text)
{
    const ares_json *v = NULL;
    CHECK_OK(ares_json_parse(a, ares_str_view(text), "answer", &v));
    return v;
}

/* The value at a path of keys and numbers, "choices.0.token_ids"; NULL: there is none. */
static const ares_json *at(const ares_json *v, const char *path)
{
    while (v && *path) {
        size_t n = strcspn(path, ".");
        if (v->type == ARES_JSON_ARRAY) {
            int64_t i = atoi(path);
            v = i < v->count ? &v->items[i] : NULL;
        } else v = ares_json_find(v, (ares_view){ path, n });
        path += n + (path[n] == '.');
    }
    return v;
}

static bool same(const ares_json *a, const ares_json *b)
{
    ares_str x = { 0 }, y = { 0 };
    if (a) ares_json_write(&x, a);
    if (b) ares_json_write(&y, b);
    bool equal = x.len && ares_view_eq(ares_str_view(&x), ares_str_view(&y));
    if (!equal) printf("  %s\n  %s\n", x.data ? x.data : "(absent)", y.data ? y.data : "(absent)");
    ares_str_fini(&x);
    ares_str_fini(&y);
    return equal;
}

/* What a program prints for a line of input. */
static const ares_json *told(ares_arena *a, const char *verb, const char *line, const char *words)
{
    ares_str out = { 0 };
    const char *input = e2e_write("line.jsonl", line);
    CHECK_EQ(e2e_program(&out, "%s --model '%s' --input '%s' %s", verb, e2e_model(), input, words),
             0);
    const ares_json *v = parse(a, &out);
    ares_str_fini(&out);
    return v;
}

#define QUESTION "{\"messages\":[{\"role\":\"user\",\"content\":\"1 + 2 = ?\"}]"

/* ---------------- company */
typedef struct client {
    pthread_t thread;
    int port, kind;
    ares_str got;
    int status;
} client;

/* Kind 0 asks the question; others come and go, and ask for something else. */
static void *be(void *ctx)
{
    client *c = ctx;
    char body[400];
    if (c->kind == 0) {
        c->status = ask(c->port, "/v1/chat/completions",
                        QUESTION ",\"seed\":7,\"n\":2,\"max_tokens\":24,\"return_token_ids\":true}",
                        &c->got);
        return NULL;
    }
    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"noise %d\"}],\"max_tokens\":%d,"
             "\"stream\":%s}",
             c->kind, 5 + 9 * (c->kind % 7), c->kind % 2 ? "true" : "false");
    int fd = connect_to(c->port);
    if (fd >= 0) {
        send_request(fd, "/v1/chat/completions", body);
        if (c->kind % 3) recv(fd, body, sizeof body, 0);
        close(fd); /* before the answer is whole */
    }
    return NULL;
}

TEST(an_answer_is_that_of_generate_whoever_else_is_served)
{
    served s;
    ares_arena a = { 0 };
    client clients[CLIENTS];
    if (!start(&s, NULL)) return;
    const ares_json *want =
        told(&a, "generate", QUESTION "}\n", "--seed 7 --n 2 --max-new-tokens 24");
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (client){ .port = s.port, .kind = i % 3 ? i : 0 };
        pthread_create(&clients[i].thread, NULL, be, &clients[i]);
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i += 3) {
        const ares_json *v = CHECK_EQ(clients[i].status, 200) ? parse(&a, &clients[i].got) : NULL;
        CHECK(same(at(v, "choices.0.token_ids"), at(want, "samples.0.output_ids")));
        CHECK(same(at(v, "choices.1.token_ids"), at(want, "samples.1.output_ids")));
        ares_str_fini(&clients[i].got);
    }
    CHECK_EQ(stop(&s), 0);
    ares_arena_fini(&a);
}

/* Several tokens of a step: a stop string within them ends the answer where it would otherwise. */
TEST(an_answer_is_the_same_with_and_without_speculation)
{
    static const char *const ways[][3] = { { "--speculation", "none" },
                                           { "--speculation", "auto" } };
    ares_str got[2] = { 0 };
    ares_arena a = { 0 };
    served s[2];
    char body[500];
    long long accepted[2] = { -1, -1 };
    for (int w = 0; w < 2; w++)
        if (!start(&s[w], ways[w])) return;
    for (int i = 0; i < 8; i++) {
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"%d + 2 = ? %d + 2 = ?\"}],"
                 "\"temperature\":%s,\"seed\":7,\"max_tokens\":%d,\"stop\":[\"%c\"],"
                 "\"logprobs\":true,\"top_logprobs\":2,\"return_token_ids\":true}",
                 i, i, i % 3 ? "0" : "0.2", 40 + i, "~eaotnrsi"[i]);
        for (int w = 0; w < 2; w++)
            CHECK_EQ(ask(s[w].port, "/v1/chat/completions", body, &got[w]), 200);
        const ares_json *x = parse(&a, &got[0]), *y = parse(&a, &got[1]);
        CHECK(same(at(x, "choices"), at(y, "choices")));
        CHECK(same(at(x, "usage"), at(y, "usage")));
    }
    for (int w = 0; w < 2; w++) {
        static const char name[] = "\nares:spec_decode_num_accepted_tokens_total ";
        CHECK_EQ(ask(s[w].port, "/metrics", NULL, &got[w]), 200);
        const char *line = strstr(got[w].data, name);
        if (CHECK(line)) accepted[w] = atoll(line + strlen(name));
        CHECK_EQ(stop(&s[w]), 0);
        ares_str_fini(&got[w]);
    }
    CHECK_EQ(accepted[0], 0);
    CHECK_MSG(accepted[1] > 20, "%lld drafted tokens were drawn", accepted[1]);
    ares_arena_fini(&a);
}

/* Token ids, so that a turn is exactly what the turns before said, and 6 ids more. */
TEST(a_conversation_with_delta_nets_goes_on_from_its_last_answer)
{
    enum { TURNS = 5, SAID = 6, ANSWER = 21 };
    static const char *const ways[][5] = { { "--speculation", "none" },
                                           { "--speculation", "none", "--state-snapshots", "0" } };
    const char *model = test_file("hybrid");
    ares_arena a = { 0 };
    ares_str ids = { 0 }, got[2] = { 0 };
    served s[2];
    int64_t n = 0;
    CHECK_EQ(e2e_program(NULL,
                         "init --arch qwen3_5_text --layers 4 --hidden 32 --heads 4 --kv-heads 2 "
                         "--vocab 288 --initializer-range 0.2 --seed 5 --out '%s'",
                         model),
             0);
    for (int w = 0; w < 2; w++)
        if (!start_with(&s[w], model, ways[w])) return;
    for (int turn = 0; turn < TURNS; turn++) {
        ares_str body = { 0 };
        for (int i = 0; i < SAID; i++, n++)
            ares_str_addf(&ids, "%s%d", n ? "," : "", 30 + 7 * turn + i);
        ares_str_addf(&body,
                      "{\"prompt\":[%s],\"max_tokens\":%d,\"seed\":4,\"ignore_eos\":true,"
                      "\"return_token_ids\":true}",
                      ids.data, ANSWER);
        for (int w = 0; w < 2; w++) {
            CHECK_EQ(ask(s[w].port, "/v1/completions", body.data, &got[w]), 200);
            const ares_json *v =
                at(parse(&a, &got[w]), "usage.prompt_tokens_details.cached_tokens");
            int64_t cached = v ? v->integer : -1;
            CHECK_EQ(cached, w || !turn ? 0 : n - SAID - 1);
        }
        const ares_json *x = at(parse(&a, &got[0]), "choices.0.token_ids");
        if (!CHECK(same(x, at(parse(&a, &got[1]), "choices.0.token_ids")))) break;
        for (int64_t i = 0; i < x->count; i++, n++)
            ares_str_addf(&ids, ",%lld", (long long)x->items[i].integer);
        ares_str_fini(&body);
    }
    for (int w = 0; w < 2; w++) {
        CHECK_EQ(stop(&s[w]), 0);
        ares_str_fini(&got[w]);
    }
    ares_str_fini(&ids);
    ares_arena_fini(&a);
}

TEST(a_stream_joined_is_the_whole_answer)
{
    static const char *const asked[] = {
        ",\"seed\":3,\"max_tokens\":40,\"temperature\":1.3,\"logprobs\":true,\"top_logprobs\":2,"
        "\"return_token_ids\":true",
        ",\"seed\":4,\"max_tokens\":60,\"stop\":[\"1\",\" 2\"],\"logprobs\":true,"
        "\"return_token_ids\":true"
    };
    served s;
    ares_arena a = { 0 };
    if (!start(&s, NULL)) return;
    for (int k = 0; k < ARES_COUNT(asked); k++) {
        ares_str body = { 0 }, whole = { 0 }, stream = { 0 }, text = { 0 }, ids = { 0 },
                 log_probs = { 0 };
        ares_str_addf(&body, QUESTION "%s}", asked[k]);
        CHECK_EQ(ask(s.port, "/v1/chat/completions", body.data, &whole), 200);
        body.len--;
        ares_str_add_z(&body, ",\"stream\":true}");
        CHECK_EQ(ask(s.port, "/v1/chat/completions", body.data, &stream), 200);
        const ares_json *want = parse(&a, &whole), *finish = NULL;
        ares_json_begin(&ids, '[');
        ares_json_begin(&log_probs, '[');
        CHECK_CONTAINS(stream.data, "data: [DONE]\n\n");
        for (const char *at_line = stream.data, *end; (end = strstr(at_line, "\n\n"));
             at_line = end + 2) {
            const ares_json *v;
            ares_view line = { at_line + 6, (size_t)(end - at_line) - 6 };
            if (line.len && *line.data == '[') break;
            if (!CHECK_OK(ares_json_parse(&a, line, "event", &v))) break;
            const ares_json *piece = at(v, "choices.0.delta.content"),
                            *of = at(v, "choices.0.token_ids"),
                            *entries = at(v, "choices.0.logprobs.content"),
                            *reason = at(v, "choices.0.finish_reason");
            if (piece) ares_str_add_view(&text, piece->text);
            for (int64_t i = 0; of && i < of->count; i++) ares_json_write(&ids, &of->items[i]);
            for (int64_t i = 0; entries && i < entries->count; i++)
                ares_json_write(&log_probs, &entries->items[i]);
            if (reason && reason->type == ARES_JSON_STRING) finish = reason;
        }
        ares_json_end(&ids, ']');
        ares_json_end(&log_probs, ']');
        CHECK(ares_view_eq(ares_str_view(&text), at(want, "choices.0.message.content")->text));
        CHECK(same(finish, at(want, "choices.0.finish_reason")));
        CHECK(same(parse(&a, &ids), at(want, "choices.0.token_ids")));
        CHECK(same(parse(&a, &log_probs), at(want, "choices.0.logprobs.content")));
        ares_str *all[] = { &body, &whole, &stream, &text, &ids, &log_probs };
        for (int i = 0; i < ARES_COUNT(all); i++) ares_str_fini(all[i]);
    }
    CHECK_EQ(stop(&s), 0);
    ares_arena_fini(&a);
}

TEST(an_echoed_prompt_has_the_log_probs_of_score)
{
    served s;
    ares_arena a = { 0 };
    ares_str out = { 0 };
    if (!start(&s, NULL)) return;
    const ares_json *want = told(&a, "score", "{\"input_ids\":[5,6,7,8,9,10,11]}\n", "");
    CHECK_EQ(ask(s.port, "/v1/completions",
                 "{\"prompt\":[5,6,7,8,9,10,11],\"echo\":true,\"logprobs\":1,\"max_tokens\":0}",
                 &out),
             200);
    const ares_json *got = at(parse(&a, &out), "choices.0.logprobs.token_logprobs");
    if (CHECK(got && got->count == 7)) {
        CHECK_EQ(got->items[0].type, ARES_JSON_NULL);
        for (int64_t t = 0; t < 6; t++)
            CHECK((float)got->items[t + 1].number == (float)at(want, "log_probs")->items[t].number);
    }
    CHECK_EQ(stop(&s), 0);
    ares_str_fini(&out);
    ares_arena_fini(&a);
}

TEST(log_probs_of_an_answer_are_those_of_score_whatever_it_was_drawn_with)
{
    /* seen to fail: with the log-probs at the sampling temperature */
    served s;
    ares_arena a = { 0 };
    ares_str out = { 0 }, line = { 0 };
    if (!start(&s, NULL)) return;
    CHECK_EQ(ask(s.port, "/v1/chat/completions",
                 QUESTION ",\"seed\":3,\"max_tokens\":20,\"temperature\":1.7,\"top_k\":40,"
                          "\"logprobs\":true,\"return_token_ids\":true}",
                 &out),
             200);
    const ares_json *v = parse(&a, &out), *prompt = at(v, "prompt_token_ids"),
                    *ids = at(v, "choices.0.token_ids"),
                    *entries = at(v, "choices.0.logprobs.content");
    if (!CHECK(prompt && ids && entries && ids->count == 20 && entries->count == 20)) return;
    ares_json_begin(&line, '{');
    ares_json_begin(ares_json_key(&line, "input_ids"), '[');
    for (int64_t i = 0; i < prompt->count; i++) ares_json_write(&line, &prompt->items[i]);
    for (int64_t i = 0; i < ids->count; i++) ares_json_write(&line, &ids->items[i]);
    ares_json_end(&line, ']');
    ares_json_end(&line, '}');
    ares_str_add_char(&line, '\n');
    const ares_json *want = at(told(&a, "score", line.data, ""), "log_probs");
    if (CHECK(want && want->count == prompt->count + 19))
        for (int64_t i = 0; i < 20; i++)
            CHECK((float)at(&entries->items[i], "logprob")->number ==
                  (float)want->items[prompt->count - 1 + i].number);
    CHECK_EQ(stop(&s), 0);
    ares_str_fini(&out);
    ares_str_fini(&line);
    ares_arena_fini(&a);
}

TEST(a_session_goes_on_with_the_ids_that_were_sampled)
{
    served s;
    ares_arena a = { 0 };
    ares_str out = { 0 }, second = { 0 };
    if (!start(&s, NULL)) return;
    CHECK_EQ(ask(s.port, "/v1/chat/completions",
                 QUESTION ",\"seed\":5,\"max_tokens\":20,\"session_id\":\"s\","
                          "\"return_token_ids\":true}",
                 &out),
             200);
    const ares_json *first = parse(&a, &out);
    ares_str_addf(&second, "{\"messages\":[{\"role\":\"user\",\"content\":\"1 + 2 = ?\"},"
                           "{\"role\":\"assistant\",\"content\":");
    ares_json_write_string(&second, at(first, "choices.0.message.content")->text);
    ares_str_add_z(&second, "},{\"role\":\"user\",\"content\":\"and 3?\"}],\"max_tokens\":4,"
                            "\"return_token_ids\":true,\"session_id\":\"s\"}");
    CHECK_EQ(ask(s.port, "/v1/chat/completions", second.data, &out), 200);
    const ares_json *prompt = at(parse(&a, &out), "prompt_token_ids"),
                    *had = at(first, "prompt_token_ids"),
                    *sampled = at(first, "choices.0.token_ids");
    if (CHECK(prompt && had && sampled && prompt->count > had->count + sampled->count))
        for (int64_t i = 0; i < had->count + sampled->count; i++)
            CHECK_EQ(prompt->items[i].integer, i < had->count
                                                   ? had->items[i].integer
                                                   : sampled->items[i - had->count].integer);
    CHECK_EQ(stop(&s), 0);
    ares_str_fini(&out);
    ares_str_fini(&second);
    ares_arena_fini(&a);
}

TEST(an_adapter_answers_to_its_name)
{
    served s;
    ares_arena a = { 0 };
    ares_str out = { 0 };
    char word[700], tuned[600];
    if (!CHECK_EQ(e2e_program(NULL,
                              "--config '%s' trainer.max_steps=2 trainer.save_freq=2 "
                              "worker.actor.model.lora.rank=4 worker.actor.optim.lr=1e-1",
                              e2e_train_words("tuned")),
                  0))
        return;
    snprintf(tuned, sizeof tuned, "%s", test_file("tuned"));
    snprintf(word, sizeof word, "mine=%s", tuned);
    const char *const words[] = { "--adapter", word, NULL };
    if (!start(&s, words)) return;
    char adapted[800];
    snprintf(adapted, sizeof adapted, "--adapter '%s' --seed 7 --max-new-tokens 24", tuned);
    const ares_json *want[] = { told(&a, "generate", QUESTION "}\n",
                                     "--seed 7 --max-new-tokens 24"),
                                told(&a, "generate", QUESTION "}\n", adapted) };
    static const char *const names[] = { "tiny", "mine" };
    CHECK(!same(at(want[0], "output_ids"), at(want[1], "output_ids")));
    for (int i = 0; i < 2; i++) {
        ares_str body = { 0 };
        ares_str_addf(&body,
                      QUESTION ",\"seed\":7,\"max_tokens\":24,\"return_token_ids\":true,"
                               "\"model\":\"%s\"}",
                      names[i]);
        CHECK_EQ(ask(s.port, "/v1/chat/completions", body.data, &out), 200);
        CHECK(same(at(parse(&a, &out), "choices.0.token_ids"), at(want[i], "output_ids")));
        ares_str_fini(&body);
    }
    CHECK_EQ(ask(s.port, "/v1/chat/completions", QUESTION ",\"model\":\"yours\"}", &out), 404);
    CHECK_CONTAINS(out.data, "mine");
    CHECK_EQ(ask(s.port, "/v1/models", NULL, &out), 200);
    CHECK_CONTAINS(out.data, "\"parent\":\"tiny\"");
    CHECK_EQ(stop(&s), 0);
    /* as the model itself: there is no base that could be trained */
    if (start_with(&s, tuned, NULL)) {
        CHECK_EQ(ask(s.port, "/api/v1/healthz", NULL, &out), 404);
        CHECK_CONTAINS(out.data, "serve the base model with --device cpu");
        CHECK_EQ(stop(&s), 0);
    }
    ares_str_fini(&out);
    ares_arena_fini(&a);
}

TEST(what_is_refused_says_what_to_do)
{
    served s;
    ares_str out = { 0 };
    if (!start(&s, NULL)) return;
    const struct {
        const char *path, *body;
        int status;
        const char *says;
    } asked[] = {
        { "/v1/chat/completions", "{", 400, "invalid_json" },
        { "/v1/chat/completions", QUESTION ",\"temprature\":1}", 400, "temperature" },
        { "/v1/chat/completions", QUESTION ",\"max_tokens\":100000}", 400,
          "maximum context length is" },
        { "/v1/chat/completions", QUESTION ",\"presence_penalty\":1}", 400,
          "unsupported_parameter" },
        { "/v1/chat/completions", NULL, 405, "use POST" },
        { "/chat/completions", QUESTION "}", 404, "base_url must end in /v1" },
        { "/v1/embeddings", "{}", 404, "not_found" },
        { "/api/v1/auth/token", "{}", 404, "takes the API key as it is" },
    };
    for (int i = 0; i < ARES_COUNT(asked); i++) {
        CHECK_EQ(ask(s.port, asked[i].path, asked[i].body, &out), asked[i].status);
        CHECK_CONTAINS(out.data, asked[i].says);
    }
    CHECK_EQ(stop(&s), 0);
    ares_str_fini(&out);
}

/* What follows n copies of `part` in a request whose answer is not waited for; its socket. */
static int send_large(int port, const char *path, const char *first, const char *part, int64_t n,
                      const char *last)
{
    ares_str body = { 0 };
    ares_str_add_z(&body, first);
    for (int64_t i = 0; i < n; i++) ares_str_add_z(&body, part);
    ares_str_add_z(&body, last);
    int fd = connect_to(port);
    CHECK(fd >= 0 && send_request(fd, path, body.data));
    ares_str_fini(&body);
    return fd;
}

static bool is_answered(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* The rest of what comes; closes the socket. */
static void read_all(int fd, ares_str *out)
{
    char buffer[4096];
    ares_str_clear(out);
    for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
        ares_str_add(out, buffer, (size_t)n);
    close(fd);
}

TEST(a_large_body_holds_up_nobody)
{
    static const struct {
        const char *path, *first, *part, *last, *says;
        int64_t n;
    } large[] = {
        { "/v1/chat/completions", "{\"metadata\":[", "1,", "1],\"wrong\":1}", "unknown_parameter",
          3000000 },
        { "/v1/completions", "{\"prompt\":\"", "ab c", "\"}", "maximum context length is",
          4000000 },
        { "/v1/completions", "{\"session_id\":\"s\",\"prompt\":\"", "ab c", "\"}",
          "maximum context length is", 4000000 },
        { "/tokenize", "{\"prompt\":\"", "ab c", "\"}", "\"count\":16000000", 4000000 },
    };
    served s;
    ares_str out = { 0 };
    if (!start(&s, NULL)) return;
    for (int i = 0; i < ARES_COUNT(large); i++) {
        int fd = send_large(s.port, large[i].path, large[i].first, large[i].part, large[i].n,
                            large[i].last);
        CHECK_EQ(ask(s.port, "/v1/chat/completions", QUESTION ",\"max_tokens\":1}", &out), 200);
        CHECK_EQ(ask(s.port, "/health", NULL, &out), 200);
        CHECK(!is_answered(fd));
        read_all(fd, &out);
        CHECK_CONTAINS(out.data, large[i].says);
    }
    CHECK_EQ(stop(&s), 0);
    ares_str_fini(&out);
}

TEST(a_body_of_too_many_values_is_refused_before_it_is_read)
{
    served s;
    ares_str out = { 0 };
    if (!start(&s, NULL)) return;
    read_all(send_large(s.port, "/v1/completions", "{\"prompt\":[", "1,", 5000000, "1]}"), &out);
    CHECK_CONTAINS(out.data, " 400 ");
    CHECK_CONTAINS(out.data, "\"code\":\"invalid_json\"");
    read_all(send_large(s.port, "/api/v1/asample", "{\"stop\":[", "1,", 5000000, "1]}"), &out);
    CHECK_CONTAINS(out.data, "{\"detail\":\"the body holds more than 4 million values");
    /* brackets within a text are none */
    read_all(send_large(s.port, "/tokenize", "{\"prompt\":\"", "\\\"[,", 1500000, "\"}"), &out);
    CHECK_CONTAINS(out.data, " 200 ");
    CHECK_EQ(stop(&s), 0);
    ares_str_fini(&out);
}

TEST(a_signal_that_comes_with_the_first_line_ends_it_like_any_other)
{
    for (int i = 0; i < 12; i++) {
        served s;
        if (!start(&s, NULL)) return;
        CHECK_EQ(stop(&s), 0);
    }
}

TEST(a_server_that_cannot_start_says_why)
{
    served s;
    ares_str out = { 0 };
    if (!start(&s, NULL)) return;
    char port[64];
    snprintf(port, sizeof port, "--port %d", s.port);
    const struct {
        const char *words, *says;
    } wrong[] = {
        { "--port 0 --host 0.0.0.0", "--api-key" },
        { "--port 0 --adapter nothing", "--adapter NAME=DIR" },
        { "--port 0 --allow-origin '*'", "--api-key" },
        { "--port 0 --max-model-len 1000000", "positions" },
        { port, "in use" },
    };
    for (int i = 0; i < ARES_COUNT(wrong); i++) {
        CHECK_EQ(e2e_program(&out, "serve --model '%s' %s", e2e_model(), wrong[i].words), 2);
        CHECK_CONTAINS(out.data, wrong[i].says);
        ares_str_clear(&out);
    }
    CHECK_EQ(stop(&s), 0);
    ares_str_fini(&out);
}

/* A picture as clients send it. */
static void add_base64(ares_str *out, const ares_str *bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes->len; i += 3) {
        uint32_t three = 0;
        size_t n = ARES_MIN(bytes->len - i, 3);
        for (size_t k = 0; k < 3; k++)
            three = three << 8 | (k < n ? (unsigned char)bytes->data[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            ares_str_add_char(out, k <= n ? digits[three >> (18 - 6 * k) & 63] : '=');
    }
}

TEST(a_picture_within_the_request_is_seen_as_that_of_a_file)
{
    served s;
    ares_arena a = { 0 };
    ares_str png = { 0 }, body = { 0 }, line = { 0 }, out = { 0 }, told_ids = { 0 };
    const char *files[] = { vision_noise("x.png", 56, 84, 3), vision_noise("y.png", 84, 56, 4) };
    if (!start_with(&s, vision_model(), NULL)) return;
    for (int i = 0; i < 4; i++) { /* twice each: pictures are let go in between */
        ares_str *all[] = { &png, &body, &line, &out, &told_ids };
        for (int k = 0; k < ARES_COUNT(all); k++) ares_str_clear(all[k]);
        CHECK_OK(ares_file_read(files[i % 2], &png));
        ares_str_addf(&line,
                      "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"},"
                      "{\"type\":\"text\",\"text\":\"What?\"}]}],\"images\":[\"%s\"]}\n",
                      files[i % 2]);
        ares_str_add_z(&body, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                              "\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
        add_base64(&body, &png);
        ares_str_add_z(&body, "\"}},{\"type\":\"text\",\"text\":\"What?\"}]}],\"seed\":2,"
                              "\"max_tokens\":10,\"return_token_ids\":true}");
        CHECK_EQ(e2e_program(&told_ids,
                             "generate --model '%s' --input '%s' --seed 2 --max-new-tokens 10",
                             vision_model(), e2e_write("line.jsonl", line.data)),
                 0);
        CHECK_EQ(ask(s.port, "/v1/chat/completions", body.data, &out), 200);
        CHECK(same(at(parse(&a, &out), "choices.0.token_ids"),
                   at(parse(&a, &told_ids), "output_ids")));
    }
    CHECK_EQ(ask(s.port, "/v1/chat/completions",
                 "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                 "\"image_url\":{\"url\":\"file:///etc/passwd\"}}]}]}",
                 &out),
             400);
    CHECK_CONTAINS(out.data, "unsupported_content");
    CHECK_EQ(stop(&s), 0);
    ares_str *all[] = { &png, &body, &line, &out, &told_ids };
    for (int k = 0; k < ARES_COUNT(all); k++) ares_str_fini(all[k]);
    ares_arena_fini(&a);
}
