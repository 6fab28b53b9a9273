/* Reads /sys/class/powercap/intel-rapl:N, which processors of AMD have, too, and libnvidia-ml.so.1. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "cluster/log.h"
#include "report/energy.h"
#include "report/reporter.h"

/* A counter of 2^32 units of 61 microjoules wraps after four minutes at 1 kW. */
static const uint64_t READ_EVERY_NS = 10000000000;

static bool number_read(const char *folder, const char *name, uint64_t *out, struct err *e)
{
    char path[320], *end;
    struct text t = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int bad = text_read_file(&t, path, 1 << 16, e);
    if (!bad) *out = strtoull(t.s, &end, 10);
    if (!bad && (end == t.s || *end != '\n')) bad = err_set(e, E_DATA, "%s: expected a number", path);
    text_free(&t);
    return !bad;
}

/* False: there is no such zone. Others than packages are parts of one, or of the whole machine, and left out. */
static bool zone_read(struct energy *g, const char *root, int zone, struct err *why)
{
    struct energy_domain *d = &g->domain[g->n];
    struct err none = {0};
    struct text name = {0};
    char path[320];
    snprintf(d->path, sizeof d->path, "%s/intel-rapl:%d", root, zone);
    snprintf(path, sizeof path, "%s/name", d->path);
    bool found = !text_read_file(&name, path, 1 << 16, &none);
    if (found && !strncmp(name.s, "package", strlen("package"))) {
        snprintf(d->name, sizeof d->name, "%.*s", (int)strcspn(name.s, "\n"), name.s);
        g->n += number_read(d->path, "max_energy_range_uj", &d->range, why) &&
            number_read(d->path, "energy_uj", &d->last, why);
    }
    text_free(&name);
    return found;
}

/* The sum is of all packages, or there is none. */
static void packages_open(struct energy *g, struct err *why)
{
    const char *other = getenv("MPSTAGED_POWERCAP"), *root = other ? other : "/sys/class/powercap";
    for (int i = 0; g->n < ENERGY_DOMAINS && !why->code && zone_read(g, root, i, why); i++) { }
    if (!g->n && !why->code) err_set(why, E_NOINPUT, "%s has no processor package", root);
    if (why->code) g->n = 0;
}

double energy_joules(struct energy *g)
{
    uint64_t sum = 0;
    for (int i = 0; g && i < g->n; i++) {
        struct energy_domain *d = &g->domain[i];
        struct err none = {0};
        uint64_t now = d->last;
        number_read(d->path, "energy_uj", &now, &none);
        d->uj += now >= d->last ? now - d->last : now + d->range - d->last;
        d->last = now;
        sum += d->uj;
    }
    return sum ? (double)sum * 1e-6 : -1;
}

/* ---- GPUs -------------------------------------------------------------------------------------------------------- */

/* A part of nvml.h, whose functions return 0 or a code. */
struct energy_nvml {
    void *library;
    int (*begin)(void), (*end)(void), (*find)(const char *uuid, void **device);
    int (*read)(void *device, unsigned long long *millijoules);
    const char *(*text)(int code);
};

static bool nvml_take(struct energy_nvml *v, struct err *why)
{
    static const char library[] = "libnvidia-ml.so.1";
    static const char *const name[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByUUID",
                                       "nvmlDeviceGetTotalEnergyConsumption", "nvmlErrorString"};
    void *found[5];
    v->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!v->library) return err_set(why, E_DEVICE, "%s", dlerror()), false;
    for (int i = 0; i < 5; i++)
        if (!(found[i] = dlsym(v->library, name[i])))
            return err_set(why, E_DEVICE, "%s lacks %s", library, name[i]), false;
    memcpy(&v->begin, &found[0], sizeof v->begin);
    memcpy(&v->end, &found[1], sizeof v->end);
    memcpy(&v->find, &found[2], sizeof v->find);
    memcpy(&v->read, &found[3], sizeof v->read);
    memcpy(&v->text, &found[4], sizeof v->text);
    int code = v->begin();
    if (code) v->end = NULL;
    return !code || (err_set(why, E_DEVICE, "%s: %s", library, v->text(code)), false);
}

static void nvml_leave(struct energy *g)
{
    if (g->nvml && g->nvml->end) g->nvml->end();
    if (g->nvml && g->nvml->library) dlclose(g->nvml->library);
    free(g->nvml);
    g->nvml = NULL;
    g->n_gpus = 0;
}

/* The sum is of all GPUs of the run on this host, or there is none. */
static void gpus_open(struct energy *g, const struct report_run *q, struct err *why)
{
    if (!q->n_gpus) return;
    g->nvml = mem_alloc(sizeof *g->nvml);
    bool good = nvml_take(g->nvml, why);
    for (int i = 0; good && i < q->n_gpus && i < ENERGY_DOMAINS; i++) {
        struct energy_gpu *d = &g->gpu[g->n_gpus++];
        unsigned long long now = 0;
        snprintf(d->uuid, sizeof d->uuid, "GPU-%s", q->gpu[i]);
        int code = g->nvml->find(d->uuid, &d->device);
        if (!code) code = g->nvml->read(d->device, &now);
        d->last = now;
        good = !code || (err_set(why, E_DEVICE, "%s: %s", d->uuid, g->nvml->text(code)), false);
    }
    if (!good) nvml_leave(g);
}

double energy_gpu_joules(struct energy *g)
{
    uint64_t sum = 0;
    bool all = true;
    for (int i = 0; g && i < g->n_gpus; i++) {
        struct energy_gpu *d = &g->gpu[i];
        unsigned long long now;
        if (g->nvml->read(d->device, &now)) { all = false; continue; }
        d->mj += now >= d->last ? now - d->last : now;    /* it begins again with the driver */
        d->last = now;
        sum += d->mj;
    }
    return all && sum ? (double)sum * 1e-3 : -1;
}

/* ---- the reporter ------------------------------------------------------------------------------------------------ */

static int energy_open(const struct report_run *q, void **self, struct err *e)
{
    const enum log_level level = q->job->conf->service.metrics ? LEVEL_INFO : LEVEL_DEBUG;
    struct energy *g = *self = mem_alloc(sizeof *g);
    struct err why = {0}, why_gpus = {0};
    (void)e;
    g->read = clock_ns();
    packages_open(g, &why);
    gpus_open(g, q, &why_gpus);
    if (why.code) log_at(level, "energy: not available: %s", why.text);
    if (why_gpus.code) log_at(level, "energy of GPUs: not available: %s", why_gpus.text);
    if (g->n || g->n_gpus) return 0;
    free(g);
    *self = NULL;
    return 0;
}

static void energy_close(void *self)
{
    nvml_leave(self);
    free(self);
}

static int energy_on(void *self, const struct event *ev, struct err *e)
{
    struct energy *g = self;
    const uint64_t now = ev->kind == EVENT_TICK ? clock_ns() : 0;
    (void)e;
    if (now > g->read + READ_EVERY_NS) {
        energy_joules(g);
        g->read = now;
    }
    return 0;
}

const struct reporter reporter_energy = {.name = "energy", .open = energy_open, .on = energy_on, .close = energy_close};
