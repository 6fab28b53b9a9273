/* profile.json: an error is one line with the file's name; an accepted profile gives every group a finite time from 0
 * for every micro-batch, with each number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../devices.h"
#include "plan/cost.h"
#include "plan/plan.h"

static const char network[] =
    "graph two\ninput input 4\nlabels labels class\na = linear(input) features=4 layer=Linear\n"
    "b = relu(a) layer=ReLU\nloss = mse(b, labels)\nloss loss\noutput b\n";

static void must(bool right) { if (!right) abort(); }

static void times_check(const struct cost *k)
{
    for (int n = 1; n < 20; n++)
        for (int ph = 0; ph < PH_COUNT; ph++)
            for (int i = 0; i < k->n_groups; i++) {
                double ns = cost_ns(k, (enum phase)ph, i, n);
                must(isfinite(ns) && ns >= 0);
            }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct selection *s;                          /* the same for all inputs */
    struct err e = {0};
    if (!s) s = select_make(graph_parse("fuzz.graph", network, strlen(network), NULL), &rig_plain, 8, NULL);
    struct cost *k = cost_parse("profile", (const char *)data, size, s, &e);
    if (k) times_check(k);
    else {
        must(e.code == E_DATA && !strncmp(e.text, "profile:", 8));
        for (const char *t = e.text; *t; t++) must((unsigned char)*t >= 0x20);
    }
    cost_free(k);
    struct cost *all = cost_parse_all("profile", (const char *)data, size, s, &e);
    must(all || !k);
    for (k = all; k; k = k->other) times_check(k);
    cost_free(all);
    return 0;
}
