/* safetensors: the tensors of an accepted file tile its data, have the size of their shape, are found by name, and can
 * be read. */
#include "memory_only.h"
#include "base/mem.h"
#include "ckpt/st.h"

static void tensor_check(struct st *s, int i, const uint8_t *data)
{
    struct err e = {0};
    const struct st_tensor *t = &s->t[i];
    uint64_t bytes = t->end - t->begin, count = (uint64_t)shape_count(&t->shape);
    must(count ? bytes % count == 0 && bytes / count <= 8 : bytes == 0);
    must(st_find(s, t->name) == i);
    char *b = mem_alloc(bytes);
    must(!st_read(s, i, b, &e) && !memcmp(b, data + t->begin, bytes));
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file m = memory_file_make(data, size);
    struct err e = {0};
    struct st *s = st_open(m.path, &e);
    if (s) {
        for (int i = 0; i < s->n; i++) {
            if (i) must(s->t[i].begin == s->t[i - 1].end);
            tensor_check(s, i, data);
        }
        if (s->n) must(s->t[s->n - 1].end == size);
        st_close(s);
    } else {
        refusal_check(&e, &m);
    }
    memory_file_end(&m);
    return 0;
}
