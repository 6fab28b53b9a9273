/* The daemon's notes about cores, hosts and NUMA nodes, from given data. */
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cluster/cores.h"
#include "cluster/hosts.h"
#include "cluster/numa.h"
#include "files.h"
#include "sure.h"

/* ---- cores ------------------------------------------------------------------------------------------------------- */

/* A machine of 8 processors: half a second in ticks, during which each was busy that much, in percent. */
static void machine(const int *busy, struct core_times *before, struct core_times *after)
{
    struct text a = {0}, b = {0};
    text_add(&a, "cpu  1 2 3 4 5 6 7 8 9 10\n");
    text_add(&b, "cpu  9 9 9 9 9 9 9 9 9 10\n");
    for (int i = 0; i < 8; i++) {
        text_add(&a, "cpu%d 1000 10 100 5000 50 1 2 30 0 0\n", i);
        int half = busy[i] / 4;
        text_add(&b, "cpu%d %d 10 %d %d 50 1 2 90 0 0\n", i, 1000 + half, 100 + half, 5050 - 2 * half);
    }
    text_add(&a, "intr 12345 0 9\nctxt 1\n");
    text_add(&b, "intr 12345 0 9\nctxt 1\n");
    core_times_parse(a.s, before);
    core_times_parse(b.s, after);
    text_free(&a);
    text_free(&b);
}

/* A rank on processors from..to of a machine; wide: the two halves of the machine are the threads of 4 cores. */
static struct core_info rank_on(const int *busy, int from, int to, double own, bool bound, bool wide)
{
    struct core_times before, after;
    struct core_info w = {.host = "here", .measured = true, .threads = 1, .own = own};
    cpu_set_t mine, all;
    static int first[CPU_SETSIZE];
    for (int i = 0; i < CPU_SETSIZE; i++) first[i] = wide && i < 8 ? i % 4 : i;
    CPU_ZERO(&mine);
    CPU_ZERO(&all);
    for (int i = 0; i < 8; i++) CPU_SET(i, &all);
    for (int i = from; i <= to; i++) CPU_SET(i, &mine);
    if (wide) for (int i = from; i <= to; i++) CPU_SET((i + 4) % 8, &mine);
    machine(busy, &before, &after);
    core_info_fill(&before, &after, &mine, bound ? &all : &mine, first, &w);
    return w;
}

static char *judged(struct core_info *w, int n)
{
    static char line[400];
    struct text t = {0};
    cores_report(w, n, &t);
    snprintf(line, sizeof line, "%s", t.n ? t.s : "");
    text_free(&t);
    return line;
}

START_TEST(cores_of_another_job_are_named)
{
    const int taken[8] = {100, 100, 0, 4, 0, 8, 0, 0}, alone[8] = {4, 100, 0, 4, 0, 8, 0, 0};
    struct core_info w[2] = {rank_on(taken, 0, 0, 0.5, true, false), rank_on(taken, 1, 1, 0.5, true, false)};
    ck_assert_int_eq(w[0].allowed, 8);
    ck_assert_int_eq(CPU_COUNT(&w[0].idle), 6);
    ck_assert_str_eq(judged(w, 2),
                     "note: rank 0 and 1 more are bound to cores where other programs run (50 % of core 0), while 6 "
                     "of 8 cores are idle: use mpirun --bind-to none\n");
    w[0].own = 1;
    ck_assert_str_eq(judged(w, 2),
                     "note: rank 1 is bound to cores where other programs run (50 % of core 1), while 6 of 8 cores "
                     "are idle: use mpirun --bind-to none\n");
    w[1] = rank_on(alone, 1, 1, 0.95, true, false);
    ck_assert_str_eq(judged(w, 2), "");                  /* what runs there is their own */
    w[1].measured = false;
    w[1].own = 0;
    ck_assert_str_eq(judged(w, 2), "");                  /* and nobody looked */
}
END_TEST

/* ---- hosts and NUMA nodes ---------------------------------------------------------------------------------------- */

static const char *replicas_said(const int *host, int n, int of, int n_stages)
{
    static char line[200];
    int rank_of[16];
    struct text t = {0};
    for (int s = 0; s < n_stages; s++) rank_of[s] = s % of;
    hosts_report(host, n, of, rank_of, n_stages, &t);
    snprintf(line, sizeof line, "%s", t.n ? t.s : "");
    text_free(&t);
    return line;
}

static const char *hosts_said(const int *host, int n, int n_stages) { return replicas_said(host, n, n, n_stages); }

START_TEST(borders_between_hosts_are_counted)
{
    ck_assert_str_eq(hosts_said((int[]){0, 1, 0, 1}, 4, 4),
                     "note: 3 of 3 borders between stages lie between hosts, 1 would be enough: start ranks host by "
                     "host (mpirun --map-by slot)\n");
    ck_assert_str_eq(hosts_said((int[]){0, 1, 2, 0}, 4, 4),
                     "note: 3 of 3 borders between stages lie between hosts, 2 would be enough: start ranks host by "
                     "host (mpirun --map-by slot)\n");
    ck_assert_str_eq(hosts_said((int[]){0, 0, 2, 2}, 4, 4), "");
    ck_assert_str_eq(hosts_said((int[]){3, 2, 1, 0}, 4, 4), "");   /* a host each */
    ck_assert_str_eq(hosts_said((int[]){0, 0, 0, 0}, 4, 4), "");
    ck_assert_str_eq(hosts_said((int[]){0, 1}, 2, 1), "");
    ck_assert_str_eq(hosts_said((int[]){0, 0, 1, 1}, 4, 8), "");   /* two rounds: back to the first host once */
    ck_assert_int_eq(atoi(hosts_said((int[]){0, 1, 1, 0}, 4, 8) + 6), 4);
    /* replicas have no border between them */
    ck_assert_str_eq(replicas_said((int[]){0, 1, 0, 1}, 4, 2, 2),
                     "note: 2 of 2 borders between stages lie between hosts, 0 would be enough: start ranks host by "
                     "host (mpirun --map-by slot)\n");
    ck_assert_str_eq(replicas_said((int[]){0, 0, 2, 2}, 4, 2, 2), "");
    ck_assert_str_eq(replicas_said((int[]){0, 1, 0, 1}, 4, 1, 1), "");
}
END_TEST

START_TEST(patience_is_longer_than_a_networks)
{
    const int one[] = {0, 0, 0}, two[] = {0, 0, 2};
    ck_assert_int_eq(hosts_patience_s(0, 10, one, 3), 15);
    ck_assert_int_eq(hosts_patience_s(0, 0, one, 3), 8);
    ck_assert_int_eq(hosts_patience_s(0, 10, two, 3), 60);
    ck_assert_int_eq(hosts_patience_s(5, 10, two, 3), 5);
    ck_assert_int_eq(hosts_patience_s(90, 10, one, 3), 90);
}
END_TEST

START_TEST(ways_are_told)
{
    struct hosts_links all[3] = {{1, {{1, "P2P/CUMEM"}}}, {2, {{2, "P2P/CUMEM"}, {0, "P2P/CUMEM"}}},
                                 {1, {{1, "P2P/CUMEM"}}}};
    struct text t = {0};
    hosts_links_text(all, 3, &t);
    ck_assert_str_eq(t.s, "all 4 links: via P2P/CUMEM\n");
    t.n = 0;
    strcpy(all[1].link[0].via, "NET/IB/0");
    strcpy(all[2].link[0].via, "NET/IB/0");
    hosts_links_text(all, 3, &t);
    ck_assert_str_eq(t.s, "links 0 to 1, 1 to 0: via P2P/CUMEM\nlinks 1 to 2, 2 to 1: via NET/IB/0\n");
    t.n = 0;
    *all[2].link[0].via = 0;
    hosts_links_text(all, 3, &t);
    ck_assert_str_eq(t.s, "links 0 to 1, 1 to 0: via P2P/CUMEM\nlink 1 to 2: via NET/IB/0\n"
                     "link 2 to 1: NCCL does not report how\n");
    t.n = 0;
    hosts_links_text(all, 1, &t);
    ck_assert_str_eq(t.s, "link 0 to 1: via P2P/CUMEM\n");
    text_free(&t);
    for (int r = 0; r < 3; r++) for (int i = 0; i < all[r].n; i++) *all[r].link[i].via = 0;
    hosts_links_text(all, 3, &t);
    ck_assert_int_eq((int)t.n, 0);                       /* the user has the log */
    text_free(&t);
}
END_TEST

static void sys_file(const char *name, const char *text)
{
    char command[300];
    snprintf(command, sizeof command, "mkdir -p $(dirname %s)", name);
    ck_assert_int_eq(system(command), 0);
    put_text(name, text);
}

static struct numa_info numa_of(const char *bus, int core)
{
    struct numa_info w;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET(core, &mine);
    numa_read("sys", bus, &mine, &w);
    return w;
}

START_TEST(numa_nodes_are_read)
{
    struct numa_info w = numa_of("0000:3B:00.0", 0);
    ck_assert_int_eq(w.gpu, -1);                         /* there is nothing to read */
    sys_file("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    sys_file("sys/bus/pci/devices/0000:5e:00.0/numa_node", "-1\n");
    sys_file("sys/devices/system/node/online", "0\n");
    ck_assert_int_eq(numa_of("0000:3B:00.0", 0).gpu, -1); /* one node */
    sys_file("sys/devices/system/node/online", "0-1\n");
    sys_file("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    sys_file("sys/devices/system/node/node1/cpulist", "4-7,12\n");
    w = numa_of("00000000:3B:00.0", 9);
    ck_assert_int_eq(w.gpu, 1);
    ck_assert_int_eq(w.cores, 0);
    ck_assert_int_eq(numa_of("0000:3B:00.0", 12).cores, 1);
    ck_assert_int_eq(numa_of("0000:3B:00.0", 20).cores, -1);
    ck_assert_int_eq(numa_of("0000:5E:00.0", 0).gpu, -1);
    ck_assert_int_eq(numa_of("0000:99:00.0", 0).gpu, -1);
    ck_assert_int_eq(numa_of("", 0).gpu, -1);
    sys_file("sys/devices/system/node/node1/cpulist", "nonsense");
    static const char *const odd[] = {"", "\n", "nonsense", "-", "1024\n", "4294967296\n", "99999999999999999999\n"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        sys_file("sys/bus/pci/devices/0000:77:00.0/numa_node", odd[i]);
        ck_assert_int_eq(numa_of("0000:77:00.0", 0).gpu, -1);
    }
    ck_assert_int_eq(numa_of("0000:3B:00.0", 12).cores, -1);
}
END_TEST

static const char *numa_said(const struct numa_info *w, int n)
{
    static char lines[400];
    struct text t = {0};
    numa_report(w, n, &t);
    snprintf(lines, sizeof lines, "%s", t.n ? t.s : "");
    text_free(&t);
    return lines;
}

START_TEST(cores_far_from_a_gpu_are_named)
{
    const struct numa_info near[] = {{0, 0, 0}, {1, 1, 0}, {-1, -1, 0}}, far[] = {{0, 0, 0}, {1, 0, 0}},
        more[] = {{1, 0, EPERM}, {0, 0, 0}, {1, 0, EPERM}};
    ck_assert_str_eq(numa_said(near, 3), "");
    ck_assert_str_eq(numa_said(far, 2),
                     "note: rank 1 may use no core near its GPU (cores of NUMA node 0, GPU at node 1): bind ranks to "
                     "cores near their GPUs, or use mpirun --bind-to none\n");
    ck_assert_str_eq(numa_said(more, 3),
                     "note: rank 0 and 1 more may use no core near their GPU (cores of NUMA node 0, GPU at node 1): "
                     "bind ranks to cores near their GPUs, or use mpirun --bind-to none\n"
                     "note: rank 0 and 1 more cannot ask for memory near their GPU: Operation not permitted\n");
}
END_TEST

/* Memory comes from node 0, which every machine has, as asked; a container may forbid to ask. */
START_TEST(memory_is_asked_for)
{
    int refused = numa_prefer(0);
    ck_assert_int_eq(numa_prefer(-1), EINVAL);
    ck_assert_int_eq(numa_prefer(1 << 20), EINVAL);
    if (refused == EPERM || refused == ENOSYS) return;
    ck_assert_int_eq(refused, 0);
    int mode = -1;
    unsigned long nodes[16] = {0};
    ck_assert_int_eq(syscall(SYS_get_mempolicy, &mode, nodes, 1024ul, NULL, 0ul), 0);
    ck_assert_int_eq(mode, MPOL_PREFERRED);
    ck_assert_int_eq((int)nodes[0], 1);
}
END_TEST

START_TEST(busy_machines_are_told_from_bound_ranks)
{
    const int full[8] = {100, 100, 96, 100, 100, 92, 100, 100}, ours[8] = {100, 100}, none[8] = {0};
    struct core_info w[2] = {rank_on(full, 0, 0, 0.4, true, false), rank_on(full, 1, 1, 1, true, false)};
    ck_assert_str_eq(judged(w, 2),
                     "note: this machine is busy: other programs take 60 % of core 0, and no core is idle; steps "
                     "take longer, and their times vary\n");
    w[0] = rank_on(full, 0, 7, 0.5, false, false), w[1] = rank_on(full, 0, 7, 0.5, false, false);
    ck_assert_str_eq(judged(w, 2),
                     "note: this machine is busy: other programs take 86 % of 8 cores, and no core is idle; steps "
                     "take longer, and their times vary\n");
    w[0] = rank_on(ours, 0, 7, 1, false, false), w[1] = rank_on(ours, 0, 7, 1, false, false);
    ck_assert_str_eq(judged(w, 2), "");
    w[0] = rank_on(none, 0, 7, 0, false, false), w[1] = rank_on(none, 0, 7, 0, false, false);
    ck_assert_str_eq(judged(w, 2), "");
    /* half of the machine is another job's: an unbound rank takes the other half, and one bound to 4 cores of which 2
     * are free, too */
    const int half[8] = {100, 100, 0, 0, 100, 100, 0, 0};
    w[0] = rank_on(half, 0, 7, 0, false, false), w[1] = rank_on(half, 0, 3, 0, true, false);
    ck_assert_str_eq(judged(w, 2), "");
}
END_TEST

/* mpirun binds to both hardware threads of a core: somebody else on one of them takes half of it. */
START_TEST(hardware_threads_share_a_core)
{
    const int beside[8] = {100, 100, 0, 0, 100, 100, 0, 0}, little[8] = {100, 100, 0, 0, 20, 20, 0, 0};
    struct core_info w[2] = {rank_on(beside, 0, 0, 1, true, true), rank_on(beside, 1, 1, 1, true, true)};
    ck_assert_int_eq(w[0].processors, 2);
    ck_assert_int_eq(CPU_COUNT(&w[0].cores), 1);
    ck_assert_str_eq(judged(w, 2),
                     "note: rank 0 and 1 more are bound to cores where other programs run (50 % of core 0), while 2 "
                     "of 4 cores are idle: use mpirun --bind-to none\n");
    w[0] = rank_on(little, 0, 0, 1, true, true), w[1] = rank_on(little, 1, 1, 1, true, true);
    ck_assert_str_eq(judged(w, 2), "");
}
END_TEST

START_TEST(narrow_ranks_are_named)
{
    const int none[8] = {0};
    struct core_info w[3] = {rank_on(none, 0, 0, 0, true, false), rank_on(none, 1, 1, 0, true, false),
                             rank_on(none, 1, 1, 0, true, false)};
    ck_assert_str_eq(judged(w, 3),
                     "note: rank 1 and 1 more are bound to the same 1 core: use mpirun --bind-to none\n");
    snprintf(w[2].host, sizeof w[2].host, "there");
    ck_assert_str_eq(judged(w, 3), "");
    w[2].threads = 4;
    ck_assert_str_eq(judged(w, 3),
                     "note: rank 2 computes with 4 threads, but may use 1 core: use mpirun --bind-to none\n");
    w[0].threads = 2, w[0].bound = false;
    ck_assert_str_eq(judged(w, 1),
                     "note: 2 threads compute on 1 core\n");
    for (int i = 0; i < 3; i++) w[i] = rank_on(none, 0, 1, 0, false, false);
    ck_assert_str_eq(judged(w, 3), "note: 3 ranks of here, with 1 thread each, share 2 cores: they take turns\n");
    ck_assert_str_eq(judged(w, 2), "");
}
END_TEST

/* Two ranks on one host, one on another: what mpirun leaves there. */
START_TEST(spare_cores_are_nobodys)
{
    const int none[8] = {0};
    cpu_set_t spare;
    struct core_info w[3] = {rank_on(none, 0, 1, 0, true, false), rank_on(none, 2, 2, 0, true, false),
                             rank_on(none, 5, 5, 0, true, false)};
    snprintf(w[2].host, sizeof w[2].host, "there");
    cores_spare(w, 3, 1, &spare);
    ck_assert_int_eq(CPU_COUNT(&spare), 5);
    for (int i = 3; i < 8; i++) ck_assert(CPU_ISSET(i, &spare));
    cores_spare(w, 3, 2, &spare);
    ck_assert_int_eq(CPU_COUNT(&spare), 7);
    ck_assert(!CPU_ISSET(5, &spare));
    w[0] = rank_on(none, 0, 0, 0, true, true);           /* hardware threads: one of each core */
    cores_spare(w, 1, 0, &spare);
    ck_assert_int_eq(CPU_COUNT(&spare), 3);
    ck_assert(!CPU_ISSET(0, &spare) && CPU_ISSET(3, &spare));
    w[0] = rank_on(none, 0, 7, 0, false, false);
    cores_spare(w, 1, 0, &spare);
    ck_assert_int_eq(CPU_COUNT(&spare), 0);
}
END_TEST

int main(void)
{
    TCase *pure = tcase_create("pure"), *dir = tcase_create("directory");
    tcase_add_test(pure, cores_of_another_job_are_named);
    tcase_add_test(pure, borders_between_hosts_are_counted);
    tcase_add_test(pure, patience_is_longer_than_a_networks);
    tcase_add_test(pure, ways_are_told);
    tcase_add_test(pure, cores_far_from_a_gpu_are_named);
    tcase_add_test(pure, memory_is_asked_for);
    tcase_add_test(pure, busy_machines_are_told_from_bound_ranks);
    tcase_add_test(pure, hardware_threads_share_a_core);
    tcase_add_test(pure, narrow_ranks_are_named);
    tcase_add_test(pure, spare_cores_are_nobodys);
    tcase_add_checked_fixture(dir, scratch_enter, scratch_leave);
    tcase_add_test(dir, numa_nodes_are_read);
    return suite_run("cores", CK_FORK, pure, dir);
}
