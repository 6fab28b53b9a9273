/* Places a rank: its device among those of its host, and the transport. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "train/setup.h"
#include "cluster/hosts.h"
#include "cluster/numa.h"
#include "cluster/heartbeat.h"
#include "cluster/shutdown.h"
#include "train/gpu_headroom.h"

static const char *host_transport(const struct setup *b) { return b->world->one_process ? "local" : "mpi"; }

int assign_check(const struct setup *b, struct err *e)
{
    const struct conf *c = b->conf;
    const char *want = conf_word(c, "run.transport");
    const struct tp_ops *tp = tp_find(want);
    bool gpu = b->job.be->stream, device = !tp || tp->over; /* only transports for GPUs can be missing from a build */
    if (c->run.transport == TRANSPORT_auto) return 0;
    if (device && !gpu)
        return conf_error(c, "run.transport", e, "transport \"%s\" is for GPUs, and this run computes on the CPU",
                          want);
    if (!device && strcmp(want, host_transport(b)) != 0)
        return conf_error(c, "run.transport", e, "transport \"%s\" cannot connect %s", want,
                          b->world->one_process ? "threads of one process" : "processes");
    if (!device && gpu)
        return conf_error(c, "run.transport", e,
                          "transport \"%s\" cannot reach the memory of GPUs; staged and nccl can", want);
    return 0;
}

/* ---- which device ---------------------------------------------------------------------------- */

/* What a rank reports about its place. id is empty if its host has only one device. */
struct seat { int bad, unit, host; struct numa_info near; char backend[16], id[BE_ID], no_gpu[200], numbers[200]; };

/* With run.device = auto each rank chooses for itself. All must choose the same, because the collective calls that
 * follow depend on it. */
static int seats_match(const struct setup *b, const struct seat *seat, struct err *e)
{
    const struct seat *mine = &seat[b->world->rank];
    if (strcmp(mine->numbers, seat->numbers) != 0 && strcmp(mine->backend, seat->backend) == 0)
        return err_set(e, E_CONF, "rank %d would compute other numbers than rank 0: \"%s\" and \"%s\"", b->world->rank,
                       mine->numbers, seat->numbers);
    if (strcmp(mine->backend, seat->backend) == 0) return 0;
    return conf_error(b->conf, "run.device", e, "rank %d would compute with %s, rank 0 with %s: %s; set the device",
                      b->world->rank, mine->backend, seat->backend, *mine->no_gpu ? mine->no_gpu : seat->no_gpu);
}

/* Sets b->shared, b->gpu, b->host and b->ids. */
static int seats_share(struct setup *b, const struct seat *seat, struct err *e)
{
    int bad = 0, n = b->world->size;
    b->gpu = mem_alloc((size_t)n * sizeof *b->gpu);
    b->host = mem_alloc((size_t)n * sizeof *b->host);
    b->ids = mem_alloc((size_t)n * sizeof *b->ids);
    for (int r = 0; r < n; r++) {
        b->gpu[r] = r;
        b->host[r] = seat[r].host;
        for (int other = 0; other < r; other++) {
            if (seat[r].bad || seat[other].bad || !*seat[r].id || strcmp(seat[r].id, seat[other].id) != 0) continue;
            b->shared = true;
            b->gpu[r] = b->gpu[other];
            if (!b->conf->run.allow_shared_gpu)
                bad = err_set(e, E_DEVICE,
                              "ranks %d and %d would share GPU %d (%s): start fewer ranks on a host, or allow it with "
                              "--allow-shared-gpu",
                              other, r, seat[r].unit, seat[r].id);
        }
        if (*seat[r].id && b->gpu[r] == r && seat[r].host == seat->host)
            memcpy(b->ids[b->n_ids++], seat[r].id, sizeof *b->ids);
    }
    return bad;
}

/* Sets the node for memory before any memory is pinned: pinned memory is for transfers with the GPU. */
static void seat_near(const struct be_ops *be, struct seat *mine)
{
    char bus[BE_BUS];
    cpu_set_t cores;
    mine->near = (struct numa_info){.gpu = -1, .cores = -1};
    if (!be->bus || mine->bad || sched_getaffinity(0, sizeof cores, &cores)) return;
    be->bus(mine->unit, bus);
    numa_read("/sys", bus, &cores, &mine->near);
    if (mine->near.gpu >= 0) mine->near.refused = numa_prefer(mine->near.gpu);
}

static void seats_report(struct setup *b, const struct seat *seat)
{
    struct numa_info *near = mem_alloc((size_t)b->world->size * sizeof *near);
    for (int r = 0; r < b->world->size; r++) near[r] = seat[r].near;
    numa_report(near, b->world->size, &b->notes);
    free(near);
}

/* Every rank takes part, even one without a device, because the others wait for it. */
int assign_unit(struct setup *b, struct err *e)
{
    struct world *w = b->world;
    const struct be_ops *be = b->job.be;
    struct seat *seat = mem_alloc((size_t)w->size * sizeof *seat), *mine = &seat[w->rank];
    mine->host = w->host;
    snprintf(mine->backend, sizeof mine->backend, "%s", be->name);
    snprintf(mine->no_gpu, sizeof mine->no_gpu, "%.199s", b->job.no_gpu.text);
    if (be->unit) mine->bad = be->unit(w->rank_here, &mine->unit, mine->id, e) || job_unit(&b->job, mine->unit, e);
    if (be->unit) seat_near(be, mine);
    b->unit = mine->unit;
    memcpy(b->device, mine->id, sizeof b->device);
    snprintf(mine->numbers, sizeof mine->numbers, "%.80s, %.100s", b->job.dev.isa, b->job.dev.library);
    w->allgather(w, seat, sizeof *seat);
    if (be->unit && w->rank == 0) seats_report(b, seat);
    int bad = mine->bad || seats_match(b, seat, e) || seats_share(b, seat, e) ? -1 : 0;
    free(seat);
    return bad;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What a rank needs: the plan's bytes, and what libraries take besides. */
struct claim { size_t bytes, beside; char device[BE_ID]; };

static size_t bytes_headroom(const struct setup *b)
{
    struct plan *const *plan = b->n_sized ? b->sized : job_plans(&b->job, b->world->rank);
    bool profiles = opts_measures(b->opts);
    struct reserve_request q = {.plan = plan, .n_plans = b->n_sized ? b->n_sized : b->job.n_plans,
                                .rank = b->world->rank, .n_ranks = b->world->size, .links = b->nccl,
                                .neighbours = profiles, .graphs = !profiles && b->conf->run.graphs};
    struct reserve r;
    gpu_headroom_count(&q, &r);
    return gpu_headroom_bytes(&r, (int)b->conf->run.nccl_max_ctas);
}

static int memory_fail(const struct setup *b, const struct claim *need, size_t all, size_t free_bytes, struct err *e)
{
    int me = b->world->rank, others = 0;
    char t[4][32];
    struct text line = {0};
    text_add(&line, "rank %d: the plan needs %zu bytes (%s)", me, need[me].bytes, text_bytes(need[me].bytes, t[0]));
    text_add(&line, ", libraries an estimated %zu (%s)", need[me].beside, text_bytes(need[me].beside, t[3]));
    for (int r = 0; r < b->world->size; r++)
        if (r != me && strcmp(need[r].device, b->device) == 0)
            text_add(&line, "%s rank %d", others++ ? "," : ", together with", r);
    if (others) text_add(&line, " on the same GPU %zu bytes (%s)", all, text_bytes(all, t[1]));
    err_set(e, E_DEVICE,
            "%s, the device has %zu (%s) free; use more stages, a smaller split size or pipeline.recompute",
            line.s, free_bytes, text_bytes(free_bytes, t[2]));
    text_free(&line);
    return -1;
}

/* A rank takes part even if its device does not answer, because the others wait for it. */
int assign_memory(struct setup *b, struct err *e)
{
    struct world *w = b->world;
    size_t free_bytes, all = 0;
    if (!b->job.be->free_memory) return 0;
    struct claim *need = mem_alloc((size_t)w->size * sizeof *need), *mine = &need[w->rank];
    int bad = exec_free_memory(b->exec, &free_bytes, e);
    mine->bytes = exec_bytes(b->exec) + (b->interim ? exec_bytes(interim_exec(b->interim)) : 0);
    mine->beside = bytes_headroom(b);
    memcpy(mine->device, b->device, sizeof mine->device);
    w->allgather(w, need, sizeof *need);
    for (int r = 0; r < w->size; r++) if (strcmp(need[r].device, b->device) == 0) all += need[r].bytes + need[r].beside;
    if (!bad && all > free_bytes) bad = memory_fail(b, need, all, free_bytes, e);
    free(need);
    return bad;
}

/* ---- the transport --------------------------------------------------------------------------- */

static int device_over(struct setup *b, const struct tp_ops *tp, struct err *e)
{
    int64_t patience_s = hosts_patience_s(b->conf->run.transfer_timeout, b->conf->run.hang_timeout, b->host,
                                          b->world->size);
    struct tp_request q = {.seats = {.gpu = b->gpu, .host = b->host},
                           .patience_ns = (uint64_t)patience_s * 1000000000u,
                           .max_ctas = (int)b->conf->run.nccl_max_ctas, .alone = !b->world->one_process};
    gethostname(q.seats.name, sizeof q.seats.name - 1);
    if (tp == tp_find("nccl")) heartbeat_device(q.patience_ns);
    return tp->over(b->tp, &q, &b->tp, e);
}

static void library_report(const struct tp_ops *tp, struct text *notes)
{
    struct text name = {0}, wrong = {0};
    if (tp->library) tp->library(&name, &wrong);
    if (wrong.n) text_add(notes, "warning: %s\n", wrong.s);
    text_free(&name);
    text_free(&wrong);
}

/* Wraps the transport for devices: NCCL, unless ranks share a GPU. */
static int device_wrap(struct setup *b, struct err *e)
{
    enum transport_word want = b->conf->run.transport;
    bool sums = b->job.mesh.size[AXIS_DP] > 1 && b->conf->pipeline.reduce == REDUCE_NCCL;
    if (want == TRANSPORT_auto)
        want = sums || (!b->shared && b->world->size > 1) ? TRANSPORT_nccl : TRANSPORT_staged;
    b->nccl = want == TRANSPORT_nccl;
    if (b->shared && b->world->one_process && b->nccl)   /* NCCL identifies ranks by properties of their process */
        return conf_error(b->conf, "run.transport", e,
                          "threads of one process cannot share a GPU by nccl; staged can, or use mpirun");
    const struct tp_ops *tp = tp_find(b->nccl ? "nccl" : "staged");
    if (tp && b->world->rank == 0) library_report(tp, &b->notes);
    return tp ? device_over(b, tp, e) : err_set(e, E_INTERNAL, "a device without a transport");
}

int assign_connect(struct setup *b, struct err *e)
{
    if (b->world->open(b->world, &b->tp, e)) return -1;
    return b->job.be->stream ? device_wrap(b, e) : 0;
}

static void links_fill(struct setup *b, struct hosts_links *mine)
{
    const char *via;
    for (int to; mine->n < HOSTS_LINKS && b->tp->ops->via(b->tp, mine->n, &to, &via); mine->n++) {
        mine->link[mine->n].to = to;
        snprintf(mine->link[mine->n].via, sizeof mine->link->via, "%s", via);
    }
}

int assign_links(struct setup *b, struct err *e)
{
    (void)e;
    if (!b->tp->ops->via) return 0;
    struct hosts_links *all = mem_alloc((size_t)b->world->size * sizeof *all);
    links_fill(b, &all[b->world->rank]);
    b->world->allgather(b->world, all, sizeof *all);
    if (b->world->rank == 0) hosts_links_text(all, b->world->size, &b->notes);
    free(all);
    return 0;
}

int assign_folder(struct setup *b, struct err *e)
{
    struct world *w = b->world;
    (void)e;
    if (w->one_process) return 0;
    if (w->rank != 0) shutdown_run(b->conf->run.directory);
    if (b->conf->run.evaluate) return 0;
    int missing = w->rank && w->host != 0 && access(b->conf->run.directory, F_OK) ? w->rank : w->size;
    int lowest = w->min(w, missing);
    if (w->rank == 0 && lowest < w->size)
        text_add(&b->notes, "note: %s does not have %s; checkpoints, which all ranks write, need it on all hosts, as "
                 "one shared folder\n", heartbeat_host(lowest), b->conf->run.directory);
    return 0;
}
