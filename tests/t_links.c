/* Links between GPUs by NCCL: ranks that connect, ranks that share a GPU, and the network that a link uses. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "device_rig.h"
#include "transport/tp_nccl_env.h"
#include "sure.h"

/* ---- ranks that connect ---------------------------------------------------------------------- */

enum { TOO_MANY = 1 << 16 };

/* The last rank comes later. */
static void *meeting_main(void *p)
{
    struct member *m = p;
    check_cuda(cudaSetDevice(m->rank));
    m->stream = stream_new();
    if (m->rank == m->size - 1) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    if (m->tp->ops->attach(m->tp, m->stream, m->use, m->n_use, &m->e)) snprintf(m->text, sizeof m->text, "%s",
                                                                                m->e.text);
    return NULL;
}

/* A connection breaks at its first message, and then a third rank says what happened: that is the cause. */
static const char *third_fails(int unused)
{
    static const struct tp_use use[3][2] = {
        {{.peer = 1, .send = true, .posts = 2, .bytes = 64}},
        {{.peer = 0, .send = false, .posts = 2, .bytes = 64}, {.peer = 2, .send = true, .posts = 2, .bytes = 64}},
        {{.peer = 1, .send = false, .posts = TOO_MANY, .bytes = 64}},
    };
    struct tp *inner[3];
    struct member m[3];
    pthread_t thread[3];
    struct err e = {0};
    const char *wrong = NULL;
    (void)unused;
    setenv("DOUBLE_NCCL_CLOSE", "0", 1);
    ck_assert(!tp_local_open(3, inner, &e));
    for (int r = 0; r < 3; r++) {
        m[r] = (struct member){.use = use[r], .n_use = 1 + (r == 1), .rank = r, .size = 3};
        ck_assert(!device_open(NCCL, inner[r], &m[r].tp, &e));
    }
    for (int r = 0; r < 3; r++) pthread_create(&thread[r], NULL, meeting_main, &m[r]);
    for (int r = 0; r < 3; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 3 && !wrong; r++)
        wrong = wrong_if(strcmp(m[r].text, "rank 2: 65536 transfers on one link") != 0, "rank %d: %s", r, m[r].text);
    members_close(3, m);
    return wrong;
}
START_TEST(third_rank_fails) { twice(third_fails, 0); }
END_TEST

/* ---- who shares a GPU with whom ---------------------------------------------------------------------------------- */

/* What NCCL would read, of rank `me` of four: its host's name, the interface, and whether NVLink joins hosts. */
static void env_is(int me, const char *host, const char *interface, const char *joins)
{
    static const char *const name[] = {
        "NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_MNNVL_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_NET",    "NCCL_P2P_DISABLE",   "NCCL_SHM_DISABLE",  "NCCL_IB_DISABLE"};
    const char *want[] = {host, interface, joins, host ? "0" : NULL, NULL, NULL, NULL, NULL};
    struct tp_seats s = {.gpu = gpu_of, .host = host_of, .name = "here"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) unsetenv(name[i]);
    nccl_env_set(&s, me, 4);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const char *is = getenv(name[i]);
        bool right = want[i] ? is && !strcmp(is, want[i]) : !is;
        ck_assert_msg(right, "rank %d: %s is %s", me, name[i], is ? is : "not set");
    }
}

START_TEST(seats)
{
    for (int r = 0; r < 4; r++) env_is(r, NULL, NULL, NULL);
    memcpy(gpu_of, (int[]){0, 1, 0, 1}, sizeof gpu_of);   /* all on one host: the first ones, the second ones */
    for (int r = 0; r < 4; r++) env_is(r, r < 2 ? "here-0-0" : "here-0-1", "lo", "0");
    memcpy(gpu_of, (int[]){0, 0, 2, 3}, sizeof gpu_of);   /* the second host's ranks have a GPU each */
    memcpy(host_of, (int[]){0, 0, 2, 2}, sizeof host_of);
    env_is(0, "here-0-0", NULL, "0");
    env_is(1, "here-0-1", NULL, "0");
    env_is(2, NULL, NULL, "0");
    env_is(3, NULL, NULL, "0");
    setenv("NCCL_HOSTID", "mine", 1);                     /* the user's */
    nccl_env_set(&(struct tp_seats){.gpu = gpu_of, .host = host_of, .name = "here"}, 1, 4);
    ck_assert_str_eq(getenv("NCCL_HOSTID"), "mine");
}
END_TEST

static int nothing_run(struct member *m) { return settle(m); }

/* Of a pair that shares a GPU (odd), and of one that does not; the double's GPUs are always two. NCCL would make three
 * blocks of threads four, and five eight. */
START_TEST(pair_is_asked_for)
{
    static const struct { int most, apart, shared; } ctas[] = {{4, 4, 2}, {1, 1, 1}, {3, 2, 2}, {5, 4, 2}};
    struct member m[2];
    bool shared = _i % 2;
    gpu_of[1] = shared ? 0 : 1;
    max_ctas = ctas[_i / 2].most;
    /* before there are threads: then they change nothing of the environment */
    nccl_env_set(&(struct tp_seats){.gpu = gpu_of, .host = host_of, .name = "here"}, 0, 2);
    two(NCCL, nothing_run, m);
    for (int r = 0; r < 2; r++) ck_assert_msg(!m[r].text[0], "rank %d: %s", r, m[r].text);
    struct double_comm made = double_comm_made();
    members_close(2, m);
    ck_assert_int_eq(made.cluster, 1);
    ck_assert_int_eq(made.ctas, shared ? ctas[_i / 2].shared : ctas[_i / 2].apart);
    ck_assert_str_eq(made.net, shared ? "Socket" : "");
}
END_TEST

/* One GPU, and nobody divided the host: the double refuses, as NCCL does, and the error says what to try. */
static int same_gpu_attach(const char *advice)
{
    static const struct tp_use use[2] = {{.peer = 1, .send = true, .posts = 2, .bytes = 64},
                                         {.peer = 0, .send = false, .posts = 2, .bytes = 64}};
    struct tp *inner[2];
    struct member m[2];
    pthread_t thread[2];
    struct err e = {0};
    ck_assert(!tp_local_open(2, inner, &e));
    for (int r = 0; r < 2; r++) {
        m[r] = (struct member){.use = &use[r], .n_use = 1, .rank = 0, .size = 2};
        ck_assert(!device_open(NCCL, inner[r], &m[r].tp, &e));
    }
    for (int r = 0; r < 2; r++) pthread_create(&thread[r], NULL, meeting_main, &m[r]);
    for (int r = 0; r < 2; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 2; r++) {
        const char *at = strstr(m[r].text, "NCCL: invalid usage");
        ck_assert_msg(at && strcmp(at + strlen("NCCL: invalid usage"), advice) == 0, "rank %d: %s", r, m[r].text);
    }
    members_close(2, m);
    return 0;
}

START_TEST(advice)
{
    static const char *const want[] = {"; try again with NCCL_CUMEM_ENABLE=0 in the environment, or with "
                                       "NCCL_DEBUG=INFO, which says more",
                                       "; try again with NCCL_DEBUG=INFO, which says more", ""};
    if (_i > 0) setenv("NCCL_CUMEM_ENABLE", "0", 1);
    if (_i > 1) setenv("NCCL_DEBUG", "INFO", 1);
    same_gpu_attach(want[_i]);
}
END_TEST

/* Rank 1 is there, but its half of the link moves nothing. */
START_TEST(hangs_while_connecting)
{
    static const char want[] = " in 1 s; try again with NCCL_CUMEM_ENABLE=0 in the environment";
    struct member m[2];
    connect_ns = 1000000000;
    setenv("DOUBLE_NCCL_HANG", "0", 1);
    two(NCCL, nothing_run, m);                            /* one of them may only be stopped by the other */
    ck_assert_msg(m[0].text[0] && m[1].text[0] && (says(m[0].text, want) || says(m[1].text, want)), "%s; %s",
                  m[0].text, m[1].text);
    members_close(2, m);
}
END_TEST

/* ---- by which way a link goes ------------------------------------------------------------------------------------ */

START_TEST(ways)
{
    static const struct { const char *log, *via; } known[] = {
        {"", ""},
        {"h:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nh:1:2 [0] NCCL INFO Connected all rings\n", ""},
        {"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n", "P2P/CUMEM"},
        {"h:1:2 [0] NCCL INFO Channel 00/1 : 0[1c000] -> 1[1d000] via P2P/IPC/read", "P2P/IPC/read"},
        {"h:1:2 [0] NCCL INFO Channel 01/1 : 0[0] -> 1[1] via SHM/direct/direct comm 0x5581 nRanks 02\n",
         "SHM/direct/direct"},
        {"h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0\n"
         "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA(PCI)\n"
         "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/1\n", "NET/IB/0/GDRDMA(PCI)"},
        {"Channel 00 : 1[1] -> 0[0] via P2P/direct pointer  \n", "P2P/direct pointer"},
        {"sent via nothing that is known\nChannel 00 : 0 -> 1 [send] to nowhere\n via \n", ""},
        {"Channel 00 : 0[0] -> 1[1] via 0123456789012345678901234567890123456789012345678901234567890123456789\n",
         "01234567890123456789012345678901234567890123456"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char via[NCCL_VIA];
        nccl_via(known[i].log, via);
        ck_assert_str_eq(via, known[i].via);
    }
}
END_TEST

/* The user's settings stay, and nothing of ours is left behind. */
START_TEST(log_is_kept)
{
    struct nccl_log l;
    char via[NCCL_VIA];
    setenv("NCCL_DEBUG", "WARN", 1);
    nccl_log_begin(&l);
    ck_assert_int_eq(l.fd, -1);
    ck_assert_str_eq(getenv("NCCL_DEBUG"), "WARN");
    ck_assert_ptr_null(getenv("NCCL_DEBUG_FILE"));
    nccl_log_via(&l, via);
    ck_assert_str_eq(via, "");
    nccl_log_end(&l);
    unsetenv("NCCL_DEBUG");
    nccl_log_begin(&l);
    ck_assert_str_eq(getenv("NCCL_DEBUG"), "INFO");
    FILE *f = fopen(getenv("NCCL_DEBUG_FILE"), "w");
    ck_assert_ptr_nonnull(f);
    setbuf(f, NULL);
    fprintf(f, "Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM\n");
    nccl_log_via(&l, via);
    ck_assert_str_eq(via, "P2P/CUMEM");
    nccl_log_via(&l, via);                               /* nothing new */
    ck_assert_str_eq(via, "");
    for (int i = 0; i < 1000; i++) fprintf(f, "a line that says nothing\n");
    fprintf(f, "Channel 00/1 : 0[0] -> 1[1] [send] via NET/Socket/1\n");
    nccl_log_via(&l, via);
    ck_assert_str_eq(via, "NET/Socket/1");
    fclose(f);
    char text[NCCL_ADVICE];
    ck_assert_ptr_nonnull(strstr(nccl_env_advice(text), "NCCL_DEBUG=INFO"));   /* that one is ours */
    nccl_log_end(&l);
    ck_assert_ptr_null(getenv("NCCL_DEBUG"));
    ck_assert_ptr_null(getenv("NCCL_DEBUG_FILE"));
}
END_TEST

int main(void)
{
    TCase *t = suite_case("links", 120);
    tcase_add_test(t, third_rank_fails);
    tcase_add_test(t, seats);
    tcase_add_test(t, ways);
    tcase_add_test(t, log_is_kept);
    tcase_add_loop_test(t, pair_is_asked_for, 0, 8);
    tcase_add_loop_test(t, advice, 0, 3);
    tcase_add_test(t, hangs_while_connecting);
    return suite_run("links", CK_FORK, t);
}
