/* NUMA nodes of devices and cores. */
#include "config.h"
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "cluster/numa.h"

enum { NODES = 1024, MAX_FILE = 1 << 16 };

/* Reads the file `name` below sys. False: it cannot be read or is empty. */
static bool file_get(struct text *t, const char *sys, const char *name)
{
    char path[400];
    struct err none = {0};
    t->n = 0;
    snprintf(path, sizeof path, "%s/%s", sys, name);
    return !text_read_file(t, path, MAX_FILE, &none) && t->n;
}

/* Whether one of the processors of a list such as "0-3,8" is in `mine`. */
static bool list_meets(const char *list, const cpu_set_t *mine)
{
    for (const char *s = list; *s; s += strspn(s, ", \n")) {
        char *end;
        long first = strtol(s, &end, 10), last = first;
        if (end == s) return false;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long i = first; i >= 0 && i <= last && i < CPU_SETSIZE; i++) if (CPU_ISSET(i, mine)) return true;
        s = end;
    }
    return false;
}

static bool node_has(struct text *t, const char *sys, int node, const cpu_set_t *mine)
{
    char name[80];
    snprintf(name, sizeof name, "devices/system/node/node%d/cpulist", node);
    return file_get(t, sys, name) && list_meets(t->s, mine);
}

/* Linux names devices with lower-case hexadecimal digits, four of them for the domain. */
static int device_node(struct text *t, const char *sys, const char *bus)
{
    unsigned domain, number, device, function;
    char name[120];
    if (sscanf(bus, "%x:%x:%x.%x", &domain, &number, &device, &function) != 4) return -1;
    snprintf(name, sizeof name, "bus/pci/devices/%04x:%02x:%02x.%x/numa_node", domain, number, device, function);
    if (!file_get(t, sys, name)) return -1;
    char *end;
    long node = strtol(t->s, &end, 10);
    return end > t->s && node >= 0 && node < NODES ? (int)node : -1;
}

/* False for a machine with one node ("0"), where all memory is local. */
static bool many_nodes(struct text *t, const char *sys)
{
    return file_get(t, sys, "devices/system/node/online") && strpbrk(t->s, "-,");
}

void numa_read(const char *sys, const char *bus, const cpu_set_t *mine, struct numa_info *w)
{
    struct text t = {0};
    *w = (struct numa_info){.gpu = -1, .cores = -1};
    if (many_nodes(&t, sys)) w->gpu = device_node(&t, sys, bus);
    if (w->gpu >= 0 && node_has(&t, sys, w->gpu, mine)) w->cores = w->gpu;
    for (int i = 0; i < NODES && w->gpu >= 0 && w->cores < 0; i++) if (node_has(&t, sys, i, mine)) w->cores = i;
    text_free(&t);
}

int numa_prefer(int node)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NODES / BITS] = {0};
    if (node < 0 || node >= NODES) return EINVAL;
    mask[node / BITS] = 1ul << node % BITS;
    return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask, (unsigned long)NODES) ? errno : 0;
}

static bool is_far(const struct numa_info *w) { return w->gpu >= 0 && w->cores >= 0 && w->gpu != w->cores; }

static void more_text(struct text *out, int n)
{
    if (n > 1) text_add(out, " and %d more", n - 1);
}

void numa_report(const struct numa_info *w, int n, struct text *out)
{
    int far = -1, n_far = 0, refused = -1, n_refused = 0;
    for (int r = n - 1; r >= 0; r--) {
        if (is_far(&w[r])) far = r, n_far++;
        if (w[r].refused) refused = r, n_refused++;
    }
    if (far >= 0) {
        text_add(out, "note: rank %d", far);
        more_text(out, n_far);
        text_add(out, " may use no core near %s GPU (cores of NUMA node %d, GPU at node %d): bind ranks to cores near "
                 "their GPUs, or use mpirun --bind-to none\n", n_far > 1 ? "their" : "its", w[far].cores, w[far].gpu);
    }
    if (refused < 0) return;
    text_add(out, "note: rank %d", refused);
    more_text(out, n_refused);
    text_add(out, " cannot ask for memory near %s GPU: %s\n", n_refused > 1 ? "their" : "its",
             strerror(w[refused].refused));
}
