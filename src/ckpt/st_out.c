/* Writes safetensors files with size and hash. */
#include <stdio.h>
#include <xxhash.h>
#include "base/mem.h"
#include "ckpt/st_out.h"

static int grow(void *ctx, const void *p, size_t n, struct err *e)
{
    struct st_out *f = ctx;
    XXH3_128bits_update(f->hash, p, n);
    f->bytes += n;
    return out_write(&f->out, p, n, e);
}

int st_out_write(struct st_out *f, const struct out_place *at, const atomic_int *stop, const struct st_body *b,
                 struct err *e)
{
    struct st_sink to = {grow, f};
    *f = (struct st_out){.hash = mem_got(XXH3_createState())};
    XXH3_128bits_reset(f->hash);
    int bad = out_begin(&f->out, at, stop, e);
    f->open = !bad;
    if (!bad) bad = out_reserve(&f->out, st_size(b), e);
    if (!bad) bad = st_write(&to, b, e);
    if (bad) st_out_drop(f);
    return bad ? -1 : 0;
}

int st_out_commit(struct st_out *f, char hash[33], struct err *e)
{
    XXH128_hash_t h = XXH3_128bits_digest(f->hash);
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    int bad = out_commit(&f->out, false, e);
    f->open = false;
    st_out_drop(f);
    return bad;
}

void st_out_drop(struct st_out *f)
{
    if (f->open) out_drop(&f->out);
    XXH3_freeState(f->hash);
    f->hash = NULL;
    f->open = false;
}
