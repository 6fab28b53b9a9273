/* CIFAR's files: what is accepted are whole records with labels in range, each of which can be read. The input is
 * repeated to about some records; its first byte says how many and of which kind, what is too much or too little. */
#include "memory_file.h"
#include "base/mem.h"
#include "data/ds_int.h"

static struct memory_file records_make(const uint8_t *data, size_t size)
{
    const size_t first = size ? data[0] : 0, record = first & 1 ? 3073 : 3074, odd = first >> 6;
    const size_t n = record * (first >> 1 & 3) + (odd == 3 ? 1 : odd == 2 ? record - 1 : 0);
    uint8_t *all = mem_alloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        all[i] = size > 1 ? data[1 + i % (size - 1)] : 7;
        if (i % record < 2) all[i] %= 128;               /* or nearly all were refused for their labels */
    }
    struct memory_file f = memory_file_make(all, n);
    free(all);
    return f;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float x[3 * 8 * 8];
    struct memory_file m = records_make(data, size);
    struct err e = {0};
    struct ds *d = NULL;
    char text[200];
    snprintf(text, sizeof text, "data { source = cifar  train_images = \"%s\" }\n", m.path);
    struct conf *c = conf_parse("c", text, strlen(text), &e);
    must(c != NULL);
    const struct ds_want want = {.n = 2, .field = {{"x", ROLE_SAMPLE, F32, {3, {3, 8, 8}}, 0},
                                                   {"t", ROLE_TARGET, I64, {0}, 100}}};
    if (ds_cifar.open(c, DS_TRAIN, &want, &d, &e)) refusal_check(&e, &m);
    else {
        uint64_t n = ds_cifar.count(d);
        must(n >= 1 && n <= 3 && (d->n_classes == 10 || d->n_classes == 100));
        for (uint64_t i = 0; i < n; i++) {
            int64_t label;
            must(!ds_cifar.read(d, i, 0, PAIR_INPUT, x, &e) && !ds_cifar.read(d, i, 0, PAIR_TARGET, &label, &e));
            must(label >= 0 && label < d->n_classes);
            for (size_t k = 0; k < sizeof x / sizeof *x; k++) must(x[k] >= 0 && x[k] <= 1);
        }
        ds_close(d);
    }
    conf_free(c);
    close(m.fd);
    return 0;
}
