/*
 * HTTP over time and among many: clients that vanish, do not read, are slow or too many; timers;
 * the end of a server. Limits are short here, so that a test takes a second.
 */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "call.h"
#include "echo.h"

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int vanished(server *s)
{
    pthread_mutex_lock(&s->lock);
    int n = s->vanished;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---------------- clients that vanish */
typedef struct crowd {
    server *s;
    int number; /* of this client */
    bool right;
} crowd;

/* Leaves in one of six ways, two of three times with a reset. */
static void *vanish(void *x)
{
    crowd *me = x;
    client c = dial(me->s->port);
    int way = me->number % 6;
    ares_str r = { 0 };
    char byte[100];
    post(&r, "/v1/chat/completions", "", me->number % 2 ? stream : whole);
    if (way == 0) say_bytes(&c, r.data, 30);             /* in the head */
    else if (way == 1) say_bytes(&c, r.data, r.len - 5); /* in the body */
    else say_bytes(&c, r.data, r.len);                   /* at once */
    if (way == 3) recv(c.fd, byte, 1, 0);                /* in the answer */
    if (way == 4) sleep_s(0.02);
    if (way == 5) { /* half closed */
        recv(c.fd, byte, sizeof byte, 0);
        shutdown(c.fd, SHUT_WR);
        sleep_s(0.05);
    }
    if (me->number % 3)
        setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
                   sizeof(struct linger));
    hang_up(&c);
    ares_str_fini(&r);
    return NULL;
}

static void *ask_in_turn(void *x)
{
    crowd *me = x;
    client c;
    ares_str r = { 0 };
    bool streamed = me->number % 2;
    int status = ask(me->s, &c, post(&r, "/v1/chat/completions", "", streamed ? stream : whole));
    me->right = is_right(&c, status, streamed);
    hang_up(&c);
    ares_str_fini(&r);
    return NULL;
}

/* So many threads at once; how many were right. */
static int together(server *s, int n, void *(*run)(void *))
{
    pthread_t *threads = ares_calloc((size_t)n, sizeof *threads);
    crowd *all = ares_calloc((size_t)n, sizeof *all);
    int right = 0;
    for (int i = 0; i < n; i++) {
        all[i] = (crowd){ .s = s, .number = i };
        CHECK(pthread_create(&threads[i], NULL, run, &all[i]) == 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        right += all[i].right;
    }
    ares_free(threads);
    ares_free(all);
    return right;
}

static void *vanish_all(void *x)
{
    together(x, 240, vanish);
    return NULL;
}

TEST(others_are_served_while_240_clients_vanish)
{
    START(s, usual);
    pthread_t vanishing;
    pthread_create(&vanishing, NULL, vanish_all, s);
    for (int i = 0; i < 5; i++) {
        crowd me = { .s = s, .number = 1 };
        ask_in_turn(&me);
        CHECK(me.right);
    }
    pthread_join(vanishing, NULL);
    CHECK_EQ(wait_for(running, s, 0), 0);
    CHECK_EQ(wait_for(connections, s, 0), 0);
    stop(s);
}

TEST(two_hundred_connections_are_served_beside_twenty_that_do_not_read)
{
    START(s, usual);
    client slow[20];
    ares_str r = { 0 };
    for (int i = 0; i < 20; i++) {
        slow[i] = dial_slow(s->port, 2048);
        say(&slow[i], post(&r, "/v1/chat/completions", "", stream));
    }
    CHECK_EQ(together(s, 200, ask_in_turn), 200);
    for (int i = 0; i < 20; i++) {
        if (i < 10) CHECK(is_right(&slow[i], hear(&slow[i]), true)); /* whole in the end */
        hang_up(&slow[i]);
    }
    CHECK_EQ(wait_for(connections, s, 0), 0);
    ares_str_fini(&r);
    stop(s);
}

/* The client of a request that waits for its answer goes away, or sends more. */
TEST(a_client_that_leaves_is_noticed_at_once_whatever_it_asked)
{
    static const char *const requests[] = {
        "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        "POST /hold HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "GET /silent HTTP/1.1\r\nHost: x\r\n\r\n",
    };
    START(s, usual);
    int gone = 0;
    for (int i = 0; i < ARES_COUNT(requests); i++)
        for (int way = 0; way < 3; way++) {
            client c = dial(s->port);
            say(&c, requests[i]);
            CHECK_EQ(wait_for(running, s, 1), 1);
            if (way == 0) shutdown(c.fd, SHUT_WR); /* counts as gone */
            if (way == 1)
                setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
                           sizeof(struct linger));
            if (way == 1) hang_up(&c);
            if (way == 2) say(&c, "GET /another HTTP/1.1\r\n");
            gone++;
            if (way == 2) { /* the second request is not read as one, and costs nothing */
                double before = cpu_s();
                sleep_s(0.3);
                CHECK_MSG(cpu_s() - before < 0.2, "%g s of a CPU", cpu_s() - before);
                CHECK_EQ(running(s), 1);
                hang_up(&c);
            }
            CHECK_EQ(wait_for(vanished, s, gone), gone);
            if (way == 0) hang_up(&c);
        }
    stop(s);
}

TEST(a_client_that_lets_too_much_wait_is_dropped)
{
    serve_http_options o = usual;
    o.most_waiting_bytes = 4 << 20;
    START(s, o);
    client c = dial_slow(s->port, 4096);
    say(&c, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(wait_for(vanished, s, 1), 1);
    CHECK_EQ(wait_for(connections, s, 0), 0);
    CHECK_EQ(hear(&c), BROKEN);
    hang_up(&c);
    CHECK_EQ(ask(s, &c, "GET /large?20000000 HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    CHECK_EQ(c.body.len, 20000000); /* a whole answer may wait */
    hang_up(&c);
    stop(s);
}

TEST(a_slow_reader_gets_all_of_a_large_answer)
{
    START(s, usual);
    client c = dial_slow(s->port, 4096);
    say(&c, "GET /large?30000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    sleep_s(0.2);
    CHECK_EQ(hear(&c), 200);
    CHECK_EQ(c.body.len, 30000000);
    CHECK_EQ(strspn(c.body.data, "x"), 30000000);
    hang_up(&c);
    stop(s);
}

/* ---------------- limits of number and time */
TEST(a_connection_beyond_the_limit_is_closed_at_once)
{
    serve_http_options o = usual;
    o.max_connections = 10;
    START(s, o);
    client all[10], more;
    for (int i = 0; i < 10; i++) {
        all[i] = dial(s->port);
        say(&all[i], "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK_EQ(hear(&all[i]), 200);
    }
    CHECK_EQ(connections(s), 10);
    for (int i = 0; i < 5; i++) {
        int status = ask(s, &more, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK(status == CLOSED || status == RESET); /* the request was never read */
        hang_up(&more);
    }
    for (int i = 0; i < 2000; i++) { /* requests of one connection do not add up */
        say(&all[0], "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        if (!CHECK_EQ(hear(&all[0]), 200)) break;
    }
    hang_up(&all[9]);
    CHECK_EQ(wait_for(connections, s, 9), 9);
    CHECK_EQ(ask(s, &all[9], "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    for (int i = 0; i < 10; i++) hang_up(&all[i]);
    CHECK_EQ(wait_for(connections, s, 0), 0);
    stop(s);
}

TEST(a_lack_of_descriptors_turns_clients_away_and_costs_nothing)
{
    START(s, usual);
    struct rlimit files, fewer;
    client c[3];
    for (int i = 0; i < 3; i++) {
        c[i] = (client){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
        be_patient(&c[i], 10);
    }
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)s->port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    getrlimit(RLIMIT_NOFILE, &files);
    fewer = files;
    fewer.rlim_cur = (rlim_t)c[2].fd + 1; /* the next one would be above it */
    setrlimit(RLIMIT_NOFILE, &fewer);
    double before = cpu_s();
    for (int i = 0; i < 3; i++) {
        CHECK(connect(c[i].fd, (struct sockaddr *)(void *)&to, sizeof to) == 0);
        CHECK_EQ(hear(&c[i]), CLOSED);
    }
    sleep_s(0.3);
    CHECK_MSG(cpu_s() - before < 0.2, "%g s of a CPU", cpu_s() - before);
    setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < 3; i++) hang_up(&c[i]);
    CHECK_EQ(ask(s, &c[0], "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    hang_up(&c[0]);
    stop(s);
}

/* In a process of its own, because a hard limit does not rise again. */
TEST(fewer_connections_are_taken_where_fewer_files_are_allowed)
{
    START(whole_limit, usual);
    CHECK_EQ(whole_limit->http->options.max_connections, 4096);
    stop(whole_limit);
    for (int allowed = 60; allowed <= 1000; allowed += 940) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            struct rlimit files = { .rlim_cur = 50, .rlim_max = (rlim_t)allowed };
            setrlimit(RLIMIT_NOFILE, &files);
            ares_log_set(ARES_LOG_ERROR, 0);
            server *s = start(usual);
            if (!s) _exit(2);
            int most = s->http->options.max_connections;
            client c;
            bool right = allowed == 60 ? most == 1 : most > 800 && most < 1000 - 64;
            right &= ask(s, &c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n") == 200;
            getrlimit(RLIMIT_NOFILE, &files);
            _exit(right && files.rlim_cur == (rlim_t)allowed ? 0 : 1);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQ(status, 0);
    }
}

TEST(what_takes_too_long_is_ended)
{
    serve_http_options o = usual;
    o.head_timeout_s = o.body_timeout_s = 0.8;
    o.idle_timeout_s = 1.6;
    START(s, o);
    client nothing = dial(s->port), head = dial(s->port), body = dial(s->port),
           chunks = dial(s->port), idle = dial(s->port), held = dial(s->port);
    double start_s = ares_now_s();
    say(&held, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"); /* may take as long as it takes */
    say(&idle, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&idle), 200);
    for (int i = 0; i < 3; i++) { /* a byte now and then: enough for a body, not for a head */
        say(&head, "G");
        say(&body, i ? "{" : "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
        say(&chunks, i ? "1" : "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        sleep_s(0.25);
    }
    CHECK_EQ(hear(&head), 408);
    CHECK_CONTAINS(head.body.data, "\"code\":\"request_timeout\"");
    CHECK_MSG(ares_now_s() - start_s < 1.25, "%g s", ares_now_s() - start_s);
    CHECK_EQ(hear(&nothing), CLOSED);
    CHECK_EQ(hear(&body), 408);
    CHECK_EQ(hear(&chunks), 408);
    CHECK_MSG(ares_now_s() - start_s >= 1.3, "%g s", ares_now_s() - start_s);
    CHECK_EQ(hear(&body), CLOSED);
    CHECK_EQ(hear(&idle), CLOSED);
    CHECK_MSG(ares_now_s() - start_s >= 1.6, "%g s", ares_now_s() - start_s);
    CHECK_EQ(running(s), 1);
    hang_up(&nothing), hang_up(&head), hang_up(&body), hang_up(&chunks), hang_up(&idle);
    hang_up(&held);
    stop(s);
}

TEST(a_reader_that_takes_nothing_is_dropped)
{
    serve_http_options o = usual;
    o.stall_timeout_s = 0.3;
    START(s, o);
    client c = dial_slow(s->port, 4096), other = dial(s->port);
    say(&other, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"); /* nothing waits for it */
    say(&c, "GET /large?50000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    ares_str line = { 0 };
    CHECK_EQ(until(&c, "\r\n", &line), 1); /* its answer has begun */
    CHECK_EQ(wait_for(running, s, 1), 1);
    CHECK_EQ(wait_for(connections, s, 1), 1);
    CHECK_EQ(running(s), 1);
    ares_str_fini(&line);
    hang_up(&c), hang_up(&other);
    stop(s);
}

TEST(a_silent_stream_gets_comments)
{
    serve_http_options o = usual;
    o.silence_s = 0.1;
    START(s, o);
    client c = dial(s->port);
    ares_str seen = { 0 };
    say(&c, "GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 3; i++) CHECK_EQ(until(&c, "b\r\n: waiting\n\n\r\n", &seen), 1);
    CHECK_CONTAINS(seen.data, "text/event-stream");
    CHECK(seen.len < 400); /* the head, and nothing between them */
    hang_up(&c);
    ares_str_fini(&seen);
    stop(s);
}

/* ---------------- timers of calls */
TEST(a_poll_is_answered_when_its_time_has_come)
{
    START(s, usual);
    client c = dial(s->port), soon = dial(s->port);
    double before = ares_now_s();
    say(&c, "GET /poll?1.2 HTTP/1.1\r\nHost: x\r\n\r\n");
    say(&soon, "GET /poll?0.2 HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&soon), 408);
    double after = ares_now_s() - before;
    CHECK_MSG(after >= 0.2 && after < 1.1, "%g s", after);
    CHECK_EQ(hear(&c), 408);
    after = ares_now_s() - before;
    CHECK_MSG(after >= 1.2 && after < 3, "%g s", after);
    CHECK_EQ(timers(s), 2); /* those of 100 s were replaced */
    for (int again = 0; again < 2; again++) {
        say(&c, again ? "GET /answered?again HTTP/1.1\r\nHost: x\r\n\r\n"
                      : "GET /answered HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK_EQ(hear(&c), 200);
        CHECK_STR(c.body.data, "first");
    }
    sleep_s(0.15);
    CHECK_EQ(timers(s), 2); /* its own did not fire, though its handler holds it */
    say(&c, "GET /poll?0.1 HTTP/1.1\r\nHost: x\r\n\r\n");
    hang_up(&c); /* the handler is told all the same, and can forget the call */
    CHECK_EQ(wait_for(timers, s, 3), 3);
    sleep_s(0.15);
    CHECK_EQ(timers(s), 3);
    hang_up(&soon);
    stop(s);
}

/* The soft limit of descriptors holds both ends of each connection here. */
TEST_SLOW(four_thousand_polls_wait_side_by_side)
{
    enum { POLLS = 4000 };
    int64_t needed, limit;
    if (!ares_descriptors_reserve(2 * POLLS + 200, &needed, &limit))
        SKIP("too few open files are allowed");
    START(s, usual);
    client *c = ares_calloc(POLLS, sizeof *c), other;
    for (int i = 0; i < POLLS; i++) {
        c[i] = dial(s->port);
        say(&c[i], "GET /poll?4 HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    CHECK_EQ(wait_for(connections, s, POLLS), POLLS);
    double before = ares_now_s();
    CHECK_EQ(ask(s, &other, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    CHECK_MSG(ares_now_s() - before < 1, "%g s for another request", ares_now_s() - before);
    hang_up(&other);
    int answered = 0;
    for (int i = 0; i < POLLS; i++) answered += hear(&c[i]) == 408;
    CHECK_EQ(answered, POLLS);
    for (int i = 0; i < POLLS; i++) hang_up(&c[i]);
    CHECK_EQ(wait_for(connections, s, 0), 0);
    ares_free(c);
    stop(s);
}

/* ---------------- the end */
TEST(a_server_that_stops_takes_no_more_and_finishes_what_it_began)
{
    START(s, usual);
    client idle = dial(s->port), busy = dial(s->port), half = dial(s->port), late;
    client poll = dial(s->port);
    ares_str r = { 0 };
    say(&idle, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&idle), 200);
    say(&half, "GET /heal");
    say(&busy, post(&r, "/v1/chat/completions", "", stream));
    CHECK_EQ(until(&busy, "\r\n\r\n", &busy.head), 1); /* the stream has begun */
    say(&poll, "GET /poll?1 HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(wait_for(connections, s, 4), 4);
    sleep_s(0.3); /* they are read */
    serve_http_stop(s->http);
    serve_http_stop(s->http);
    CHECK_EQ(hear(&idle), CLOSED);
    say(&half, "th HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&half), 503);
    CHECK_CONTAINS(half.body.data, "\"code\":\"shutting_down\",\"path\":\"/health\"");
    CHECK_EQ(hear(&half), CLOSED);
    late = (client){ .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)s->port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    CHECK(connect(late.fd, (struct sockaddr *)(void *)&to, sizeof to) != 0);
    CHECK_EQ(hear(&poll), 408); /* handlers answer what they hold */
    CHECK_STR(header(&poll, "connection"), "close");
    double before = ares_now_s();
    serve_http_close(s->http, 20);
    CHECK_MSG(ares_now_s() - before < 10, "%g s", ares_now_s() - before);
    ares_str_clear(&r);
    CHECK_EQ(until(&busy, "data: [DONE]\n\n\r\n0\r\n\r\n", &r), 1);
    CHECK_EQ(fill(&busy), CLOSED);
    hang_up(&idle), hang_up(&busy), hang_up(&half), hang_up(&late), hang_up(&poll);
    ares_str_fini(&r);
    stop_worker(s);
    pthread_mutex_destroy(&s->lock);
    ares_free(s);
}

TEST(a_server_ends_in_time_amid_thirty_streams_and_held_calls)
{
    START(s, usual);
    client streams[30], polls[30];
    ares_str r = { 0 };
    for (int i = 0; i < 30; i++) {
        streams[i] = dial(s->port);
        polls[i] = dial(s->port);
        say(&streams[i], "GET /silent HTTP/1.1\r\nHost: x\r\n\r\n");
        say(&polls[i], "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
        CHECK_EQ(until(&streams[i], "\r\n\r\n", &r), 1);
    }
    CHECK_EQ(wait_for(running, s, 60), 60);
    double before = ares_now_s();
    serve_http_close(s->http, 0.2);
    double took = ares_now_s() - before;
    CHECK_MSG(took >= 0.2 && took < 5, "%g s", took);
    for (int i = 0; i < 30; i++) {
        CHECK_EQ(fill(&streams[i]), CLOSED); /* without an end: a client knows */
        CHECK_EQ(hear(&polls[i]), CLOSED);
        hang_up(&streams[i]), hang_up(&polls[i]);
    }
    stop_worker(s); /* its calls were valid until now, and had no client */
    CHECK_EQ(vanished(s), 60);
    ares_str_fini(&r);
    pthread_mutex_destroy(&s->lock);
    ares_free(s);
}

TEST(servers_come_and_go_side_by_side)
{
    for (int i = 0; i < 20; i++) {
        START(a, usual);
        START(b, usual);
        client c;
        CHECK(a->port != b->port);
        CHECK_EQ(ask(b, &c, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
        hang_up(&c);
        stop(a);
        CHECK_EQ(ask(b, &c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
        hang_up(&c);
        stop(b);
    }
}

TEST(programs_that_are_started_inherit_no_socket)
{
    START(s, usual);
    client c = dial(s->port);
    say(&c, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK_EQ(hear(&c), 200);
    DIR *dir = opendir("/proc/self/fd");
    REQUIRE(dir);
    int sockets = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        int fd = atoi(e->d_name);
        if (fd < 3 || fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode)) continue;
        sockets++;
        CHECK_MSG(fcntl(fd, F_GETFD) & FD_CLOEXEC, "descriptor %d", fd);
    }
    closedir(dir);
    CHECK(sockets >= 3); /* listening, the connection's two ends */
    hang_up(&c);
    stop(s);
}
