/* IDX files, plain and gzip: an accepted file has as many bytes as its dimensions require, and all can be read. */
#include "memory_only.h"
#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file m = memory_file_make(data, size);
    struct err e = {0};
    struct idx_file f;
    if (idx_file_load(m.path, 1, IDX_RANK, &f, &e)) {
        refusal_check(&e, &m);
        must(!f.data);
    } else {
        uint64_t n = 1;
        unsigned sum = 0;
        for (int i = 0; i < f.rank; i++) n *= f.dim[i];
        must(n == f.bytes && f.rank >= 1);
        for (uint64_t i = 0; i < n; i++) sum += f.data[i];
        must(sum <= 255 * n);
        if (size && data[0] == 0) must(n + idx_offset(&f) == size);
        free(f.data);
    }
    memory_file_end(&m);
    return 0;
}
