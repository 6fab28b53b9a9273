/* NumPy files: an accepted file has exactly its announced size, can be read to the last element, and comes back from
 * our writer. */
#include "memory_only.h"
#include "base/mem.h"
#include "data/npy.h"

static void again(const struct npy *f, const void *data, size_t bytes)
{
    struct err e = {0};
    struct npy g;
    struct text file = {0};
    npy_add(&file, f->type, &f->shape, data);
    struct memory_file m = memory_file_make((const uint8_t *)file.s, file.n);
    must(!npy_open(m.path, &g, &e));
    must(g.type == f->type && shape_equal(&g.shape, &f->shape));
    char *b = mem_alloc(bytes);
    must(!npy_read(&g, 0, (uint64_t)shape_count(&g.shape), b, &e));
    must(!memcmp(b, data, bytes));
    free(b);
    npy_close(&g);
    memory_file_end(&m);
    text_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file m = memory_file_make(data, size);
    struct err e = {0};
    struct npy f;
    if (npy_open(m.path, &f, &e)) {
        refusal_check(&e, &m);
        must(f.fd < 0);
    } else {
        uint64_t n = (uint64_t)shape_count(&f.shape);
        size_t bytes = n * npy_type_bytes(f.type);
        must(f.begin + bytes == size);
        char *all = mem_alloc(bytes);
        float *x = mem_alloc(n * sizeof *x);
        must(!npy_read(&f, 0, n, all, &e) && !npy_read_float(&f, 0, n, x, &e));
        must(!memcmp(all, data + f.begin, bytes));
        must(npy_read(&f, n, 1, x, &e) && e.code == E_DATA);
        again(&f, all, bytes);
        free(all);
        free(x);
        npy_close(&f);
    }
    memory_file_end(&m);
    return 0;
}
