/* samples FILE.conf [OPTION=VALUE]...: prints a network's input: each training sample in order, its class as a float,
 * then its values; floats on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include "data/ds_int.h"
#include "model/zoo.h"

static int samples_write(const struct conf *c, struct err *e)
{
    struct ds *d;
    struct graph *g = model_build(c, e);
    if (!g || ds_open(c, DS_TRAIN, g, &d, e)) return -1;
    size_t n = (size_t)shape_count(&d->field[PAIR_INPUT].shape);
    float *x = mem_alloc((n + 1) * sizeof *x);
    int bad = 0;
    for (uint64_t i = 0; i < d->kind->count(d) && !bad; i++) {
        int64_t label;
        bad = d->kind->read(d, i, 0, PAIR_TARGET, &label, e) || d->kind->read(d, i, 0, PAIR_INPUT, x + 1, e);
        x[0] = (float)label;
        if (!bad) fwrite(x, sizeof *x, n + 1, stdout);
    }
    free(x);
    ds_close(d);
    graph_free(g);
    return bad;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct conf *c = argc > 1 ? conf_load(argv[1], &e) : NULL;
    for (int i = 2; c && i < argc; i++) conf_set(c, argv[i], argv[i], &e);
    if (c && !e.code && !conf_finish(c, &e)) samples_write(c, &e);
    conf_free(c);
    if (e.code) fprintf(stderr, "%s\n", e.text);
    return e.code;
}
