/* CIFAR's files: an accepted file consists of whole records with labels in range, each of which can be read. The input
 * is repeated to make some records. Its first byte chooses their number and kind, and bytes too many or too few. */
#include "memory_only.h"
#include "data/ds_int.h"

enum { LONGEST = 3074, RECORDS = 4 };

static struct memory_file records_make(const uint8_t *data, size_t size)
{
    static uint8_t all[RECORDS * LONGEST];
    const size_t first = size ? data[0] : 0, record = first & 1 ? 3073 : LONGEST, odd = first >> 6;
    const size_t n = record * (first >> 1 & 3) + (odd == 3 ? 1 : odd == 2 ? record - 1 : 0);
    size_t done = size > 1 ? size - 1 < n ? size - 1 : n : n;
    if (size > 1) memcpy(all, data + 1, done);
    else memset(all, 7, done);
    for (size_t more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        memcpy(all + done, all, more);
    }
    for (size_t i = 0; i < n; i += record)               /* or nearly all were refused for their labels */
        for (size_t k = i; k < i + 2 && k < n; k++) all[k] %= 128;
    return memory_file_make(all, n);
}

/* The part of the configuration that a set of this kind reads; its file is always called the same. */
static const struct conf *conf_of(const char *path)
{
    static struct conf *c;
    char text[200];
    struct err e = {0};
    if (c) return c;
    snprintf(text, sizeof text, "data { source = cifar  train = \"%s\" }\n", path);
    c = conf_parse("c", text, strlen(text), &e);
    must(c != NULL);
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float x[3 * 8 * 8];
    struct memory_file m = records_make(data, size);
    struct err e = {0};
    struct ds *d = NULL;
    const struct ds_want want = {.n = 2, .field = {{"x", ROLE_SAMPLE, F32, {3, {3, 8, 8}}, 0},
                                                   {"t", ROLE_TARGET, I64, {0}, 100}}};
    if (ds_cifar.open(conf_of(m.path), DS_TRAIN, &want, &d, &e)) refusal_check(&e, &m);
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
    memory_file_end(&m);
    return 0;
}
