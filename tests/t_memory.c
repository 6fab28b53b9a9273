/* Memory of hosts: what is read from trees of files like Linux's; which ranks share it; plans that must fit. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "train/ckpt_writer.h"
#include "train/memory.h"
#include "files.h"
#include "sure.h"

enum { MIB = 1 << 20 };

static void folders(const char *path)
{
    char s[300];
    for (size_t i = 1; i <= strlen(path); i++)
        if (path[i] == '/' || !path[i]) {
            snprintf(s, sizeof s, "%.*s", (int)i, path);
            mkdir(s, 0777);
        }
}

static void put_in(const char *dir, const char *name, const char *text)
{
    char path[300];
    folders(dir);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    put_text(path, text);
}

static void mib_in(const char *dir, const char *name, int mib)
{
    char s[40];
    snprintf(s, sizeof s, "%lld\n", (long long)mib * MIB);
    put_in(dir, name, s);
}

static void proc(const char *cgroup, const char *mountinfo)
{
    put_in("t/proc", "meminfo", "MemTotal:  9999999 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\nBuffers: 3 kB\n");
    put_in("t/proc/self", "cgroup", cgroup);
    put_in("t/proc/self", "mountinfo", mountinfo);
    put_in("t/proc/self", "status", "VmSize:\t  1024 kB\nVmData:\t 512 kB\n");
}

static const struct memory_pool *named(const struct memory_info *w, const char *part)
{
    for (int i = 0; i < w->n; i++) if (strstr(w->pool[i].name, part)) return &w->pool[i];
    return NULL;
}

START_TEST(what_a_host_has_free)
{
    struct memory_info w;
    proc("", "");
    memory_read("t", 1, &w);
    ck_assert_int_eq(w.n, 1);
    ck_assert(w.pool[0].bytes == 2 * MIB && !w.pool[0].id && !w.pool[0].own && !w.pool[0].soft);
    put_in("t/proc", "meminfo", "MemTotal: 12 kB\n");     /* kernels before 3.14 */
    memory_read("t", 1, &w);
    ck_assert_int_eq(w.n, 0);
    memory_read("nowhere", 1, &w);
    ck_assert_int_eq(w.n, 0);
}
END_TEST

#define V2 "30 23 0:26 / /cg\\0402 rw - cgroup2 cgroup2 rw,nsdelegate\n"

/* All levels count, less what they use, but for pages of files. */
START_TEST(version_2)
{
    struct memory_info w;
    proc("0::/a/b/c\n", "1 0 8:1 / / rw - ext4 /dev/a rw\n" V2);
    put_in("t/cg 2/a/b/c", "memory.max", "max\n");
    put_in("t/cg 2/a/b/c", "memory.high", "max\n");
    mib_in("t/cg 2/a/b", "memory.max", 100);
    mib_in("t/cg 2/a/b", "memory.high", 90);
    mib_in("t/cg 2/a/b", "memory.current", 50);
    put_in("t/cg 2/a/b", "memory.stat",
           "anon 7\ninactive_file 10485760\nactive_file 20971520\nslab_reclaimable 1048576\n"
           "workingset_inactive_file 99999999\n");
    mib_in("t/cg 2/a", "memory.max", 70);
    mib_in("t/cg 2/a", "memory.current", 80);
    mib_in("t/cg 2", "memory.max", 1000);                 /* as in a container */
    memory_read("t", 1, &w);
    ck_assert_int_eq(w.n, 5);
    const struct memory_pool *b = named(&w, "memory.max (/cg 2/a/b)"), *high = named(&w, "memory.high (/cg 2/a/b)"),
                             *a = named(&w, "memory.max (/cg 2/a)"), *top = named(&w, "memory.max (/cg 2)");
    ck_assert(b && b->bytes == (100 - 50 + 31) * MIB && !b->soft);
    ck_assert(high && high->bytes == (90 - 50 + 31) * MIB && high->soft && high->id != b->id);
    ck_assert(a && a->bytes == 0 && a->id != b->id);
    ck_assert(top && top->bytes == (uint64_t)1000 * MIB);
}
END_TEST

/* A mount of a container's own group: the path begins there, and another's path says nothing of it. */
START_TEST(containers)
{
    struct memory_info w;
    proc("0::/docker/x/y\n", "30 23 0:26 /docker/x /cg rw shared:4 - cgroup2 cgroup2 rw\n");
    mib_in("t/cg/y", "memory.max", 64);
    mib_in("t/cg", "memory.max", 128);
    memory_read("t", 1, &w);
    ck_assert_int_eq(w.n, 3);
    ck_assert(named(&w, "(/cg/y)") && named(&w, "(/cg)"));
    proc("0::/../other\n", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    memory_read("t", 1, &w);
    ck_assert_int_eq(w.n, 2);
    ck_assert(named(&w, "(/cg)"));
}
END_TEST

#define V1 "31 23 0:27 / /cg/mem rw - cgroup cgroup rw,memory\n32 23 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu\n" \
           "33 23 0:29 / /cg/unified rw - cgroup2 cgroup2 rw\n"

START_TEST(version_1)
{
    struct memory_info w;
    proc("4:cpu:/z\n9:hugetlb,memory:/job/step\n0::/\n", V1);
    put_in("t/cg/mem", "memory.limit_in_bytes", "9223372036854771712\n");
    put_in("t/cg/mem", "memory.use_hierarchy", "1\n");
    mib_in("t/cg/mem/job", "memory.limit_in_bytes", 200);
    mib_in("t/cg/mem/job", "memory.usage_in_bytes", 20);
    put_in("t/cg/mem/job", "memory.use_hierarchy", "1\n");
    put_in("t/cg/mem/job", "memory.stat", "inactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 1048576\n");
    mib_in("t/cg/mem/job/step", "memory.limit_in_bytes", 300);
    memory_read("t", 1, &w);
    ck_assert_int_eq(w.n, 3);
    const struct memory_pool *job = named(&w, "memory.limit_in_bytes (/cg/mem/job)");
    ck_assert(job && job->bytes == 182 * MIB && named(&w, "(/cg/mem/job/step)")->bytes == 300 * MIB);
    put_in("t/cg/mem/job", "memory.use_hierarchy", "0\n");    /* then the job's limit is not that of its steps */
    memory_read("t", 1, &w);
    ck_assert_int_eq(w.n, 2);
    ck_assert(!named(&w, "(/cg/mem/job)"));
}
END_TEST

START_TEST(limits_of_the_process)
{
    struct memory_info w;
    struct rlimit keep, r;
    proc("", "");
    ck_assert(!getrlimit(RLIMIT_DATA, &keep));
    r = keep;
    r.rlim_cur = (rlim_t)4096 * MIB;
    ck_assert(!setrlimit(RLIMIT_DATA, &r));
    memory_read("t", 1, &w);
    const struct memory_pool *one = named(&w, "ulimit -d");
    ck_assert(one && one->own && one->bytes < r.rlim_cur - 512 * 1024);
    uint64_t before = one->bytes;
    memory_read("t", 3, &w);                              /* two stacks more */
    ck_assert(named(&w, "ulimit -d")->bytes < before);
    ck_assert(!setrlimit(RLIMIT_DATA, &keep));
}
END_TEST

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static struct memory_info word_of(int host, uint64_t free, uint64_t group_id, uint64_t group)
{
    struct memory_info w = {.host = host, .n = 3};
    w.pool[0] = (struct memory_pool){.bytes = free, .name = "host"};
    w.pool[1] = (struct memory_pool){.id = group_id, .bytes = group, .name = "group"};
    w.pool[2] = (struct memory_pool){.bytes = 7, .own = true, .name = "own"};
    return w;
}

/* Ranks share what has one number on one host; the lowest of their figures counts. */
START_TEST(pools_are_shared_by_host)
{
    struct memory m;
    struct memory_info *w = mem_alloc(3 * sizeof *w);
    w[0] = word_of(0, 100, 5, 50);
    w[1] = word_of(0, 90, 5, 60);
    w[2] = word_of(2, 80, 5, 40);
    memory_make(w, 3, false, &m);
    int hosts = 0, groups = 0, own = 0;
    for (int i = 0; i < m.host.n; i++) {
        const struct fit_pool *p = &m.host.pool[i];
        int n = p->of[0] + p->of[1] + p->of[2];
        ck_assert(!p->of[2] || n == 1);
        bool host = !strcmp(p->name, "host"), group = !strcmp(p->name, "group");
        ck_assert(!host || p->bytes == (p->of[2] ? 80 : 90));
        ck_assert(!group || p->bytes == (p->of[2] ? 40 : 50));
        ck_assert(host || group || n == 1);
        hosts += host, groups += group, own += !host && !group;
    }
    ck_assert(hosts == 2 && groups == 2 && own == 3);
    memory_free(&m);
}
END_TEST

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static int planned(struct job *j, const char *pipeline, int n_ranks, const struct fit_host *h, struct err *e)
{
    char text[500];
    snprintf(text, sizeof text, "run { device = reference }\nmodel { network = resnet18 input = {3, 96, 96} }\n"
             "data { source = synthetic }\n"
             "train { steps = 1 batch_size = 32 split_size = 8 gradient_groups = 2 }\npipeline { %s }\n",
             pipeline);
    struct conf *c = conf_parse("c.conf", text, strlen(text), e);
    *j = (struct job){.conf = c, .host = h};
    ck_assert_msg(c && !conf_finish(c, e) && !job_device(j, e) && !job_model(j, e), "%s", e->text);
    return job_plan(j, n_ranks, e);
}

static void job_done(struct job *j)
{
    struct conf *c = (struct conf *)(uintptr_t)j->conf;
    job_free(j);
    conf_free(c);
}

static uint64_t bytes_of(const char *pipeline, int n_ranks, int replicas, char hash[33])
{
    struct job j;
    struct err e = {0};
    uint64_t sum = 0;
    ck_assert_msg(!planned(&j, pipeline, n_ranks, NULL, &e), "%s", e.text);
    for (int r = 0; r < j.mesh.size[AXIS_PP]; r++) sum += (uint64_t)replicas * limit_bytes(&j, r);
    plan_hash(j.plan[0], hash);
    job_done(&j);
    return sum;
}

static const char *const ways[] = {"stages = 2 partition = auto schedule = gpipe",
                                   "stages = 2 partition = auto schedule = gpipe recompute = auto",
                                   "stages = 2 partition = uniform schedule = gpipe recompute = auto"};

/* Where there is enough the plan is the one without a limit, to the last byte; where there is too little for it, what
 * is left to the planner makes it fit; or 69. recompute = auto needs no pipeline.max_memory then. */
START_TEST(plans_fit_the_host)
{
    char free_hash[33], hash[33];
    struct job j;
    struct err e = {0};
    uint64_t need = bytes_of(_i ? "stages = 2 partition = uniform schedule = gpipe" : ways[0], 2, 1, free_hash), is;
    if (_i == 1) need = bytes_of(ways[0], 2, 1, free_hash);
    struct fit_pool p = {.bytes = need, .name = "free memory"};
    struct fit_host h = {.pool = &p, .n = 1};
    ck_assert_msg(!planned(&j, ways[_i], 2, &h, &e), "%s", e.text);
    plan_hash(j.plan[0], hash);
    ck_assert(!j.free_bytes);
    ck_assert_str_eq(hash, free_hash);
    job_done(&j);
    p.bytes = need - need / 20;
    int bad = planned(&j, ways[_i], 2, &h, &e);
    ck_assert(j.free_bytes);
    if (_i) ck_assert_msg(!bad && !limit_pool_short(&j, false, &is), "%s", e.text);
    job_done(&j);
    p.bytes = need / 100;
    e = (struct err){0};
    ck_assert(planned(&j, ways[_i], 2, &h, &e));
    ck_assert_msg(e.code == E_DEVICE && says(e.text, "2 ranks on one host need ") && says(e.text, "of free memory"),
                  "%d \"%s\"", e.code, e.text);
    job_done(&j);
}
END_TEST

/* What a rank takes besides counts; replicas count each; limits that somebody has set stay; soft ones refuse nothing;
 * and each process of its own has a limit for itself. */
static uint64_t beside(const struct job *j, int rank) { (void)j; return (uint64_t)(rank ? 3 : 5) * MIB; }

START_TEST(what_counts)
{
    char hash[33];
    uint64_t need = bytes_of("stages = 2", 2, 2, hash), short_of, share[2];
    const bool of[4] = {true, false, false, true};
    struct fit_pool p[2] = {{.bytes = need + 14 * MIB, .name = "a"}, {.bytes = 1, .name = "slow", .soft = true}};
    struct fit_host h = {.pool = p, .n = 2, .beside = beside};
    struct job j;
    struct err e = {0};
    const char *two = "stages = 2 replicas = 2 shard_optimizer = no";
    ck_assert_msg(!planned(&j, two, 4, &h, &e), "%s", e.text);
    ck_assert(limit_pool_short(&j, true, &short_of) == &p[1]);
    limit_share(&j, true, share);
    ck_assert(share[0] == p[0].bytes / 4 - 5 * MIB && share[1] == p[0].bytes / 4 - 3 * MIB);
    limit_share(&j, false, share);
    ck_assert(share[0] >= limit_bytes(&j, 0) && share[0] + share[1] < need / 2 + 2 * MIB);
    p[0].bytes = need / 2 + need / 4;                     /* too little for four, but only two of them are there */
    p[0].of = of;
    p[0].n_of = 4;
    ck_assert(!limit_pool_short(&j, false, &short_of) || short_of < need);
    p[0] = (struct fit_pool){.bytes = need, .name = "a", .each = true};
    ck_assert(!limit_pool_short(&j, false, &short_of));
    job_done(&j);
    p[0] = (struct fit_pool){.bytes = need, .name = "a"};
    ck_assert(planned(&j, two, 4, &h, &e) && e.code == E_DEVICE);
    job_done(&j);
    e = (struct err){0};
    ck_assert(planned(&j, "stages = 2 replicas = 2 shard_optimizer = no max_memory = 4GiB", 4, &h, &e));
    ck_assert(e.code == E_DEVICE && !j.free_bytes);             /* nobody moves a limit that was said */
    job_done(&j);
    e = (struct err){0};
    h.advisory = true;
    ck_assert(!planned(&j, "stages = 2 replicas = 2 shard_optimizer = no max_memory = 4GiB", 4, &h, &e));
    job_done(&j);
}
END_TEST

static void *a_stream(struct be *b) { return b; }

/* Whether the run writes checkpoints by itself or is asked for one: a copy of what is small or on a device. */
START_TEST(copies_are_of_small_or_far_states)
{
    static const struct be_ops far = {.name = "far", .stream = a_stream};
    struct state_row row[2] = {{.shape = {1, {1000}}, .file = {F32, LAYOUT_PLAIN, 1}, .owner = 0},
                               {.shape = {1, {100 << 20}}, .file = {F32, LAYOUT_PLAIN, 1}, .owner = 1}};
    struct placement pl = {.state = row, .n_state = 2};
    struct conf conf = {.checkpoint.every_steps = 0};
    struct job j = {.conf = &conf, .pl = &pl, .mesh = {{2, 1}}};
    ck_assert_uint_eq(save_staging_bytes(&j, 0), 4000);
    ck_assert_uint_eq(save_staging_bytes(&j, 1), 0);
    j.be = &far;
    ck_assert_uint_eq(save_staging_bytes(&j, 1), (uint64_t)400 << 20);
}
END_TEST

int main(void)
{
    TCase *dir = suite_case("directory", 60), *pure = suite_case("pure", 60);
    tcase_add_checked_fixture(dir, scratch_enter, scratch_leave);
    tcase_add_test(dir, what_a_host_has_free);
    tcase_add_test(dir, version_2);
    tcase_add_test(dir, containers);
    tcase_add_test(dir, version_1);
    tcase_add_test(dir, limits_of_the_process);
    tcase_add_test(pure, pools_are_shared_by_host);
    tcase_add_loop_test(pure, plans_fit_the_host, 0, N_OF(ways));
    tcase_add_test(pure, what_counts);
    tcase_add_test(pure, copies_are_of_small_or_far_states);
    return suite_run("memory", CK_FORK, dir, pure);
}
