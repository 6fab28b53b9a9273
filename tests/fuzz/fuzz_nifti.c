/* NIfTI files: an accepted file has the voxels that its header announces, turns, scales and maps back, gives the same
 * result when compressed, and can be written. */
#include <math.h>
#include <zlib.h>
#include "memory_only.h"
#include "depth.h"
#include "base/mem.h"
#include "data/volume.h"

enum { SMALL = 1 << 14 };

/* Labels of an accepted file of few voxels: all of one kind, so that every type can hold them. */
static void written(const struct nifti *f, const uint8_t *labels)
{
    struct text file = {0};
    struct err e = {0};
    struct nifti g;
    struct nifti_map map = {.classes = NIFTI_LABELS};
    for (int i = 0; i < NIFTI_MAPPED; i++) map.to[i] = (int16_t)(i < NIFTI_LABELS ? i : -1);
    nifti_add(&file, f, labels);
    struct memory_file m = memory_file_make((const uint8_t *)file.s, file.n);
    uint8_t *back = mem_alloc(nifti_voxels(f));
    must(!nifti_open(m.path, &g, &e) && !nifti_labels(&g, &map, back, &e));
    must(!memcmp(back, labels, nifti_voxels(f)) && !memcmp(g.affine, f->affine, sizeof g.affine));
    free(back);
    text_free(&file);
    memory_file_end(&m);
}

static void used(const struct nifti *f)
{
    const struct volume_want wants[] = {{.size = {0}}, {.spacing = {2, 3, 0.5}, .size = {5, 0, 7}, .least = {4, 4, 4}}};
    const uint64_t n = nifti_voxels(f);
    uint8_t *in = mem_alloc(n), *back = mem_alloc(n);
    for (uint64_t i = 0; i < n; i++) in[i] = (uint8_t)(i * 7 + 1);
    for (int k = 0; k < 2; k++) {
        struct volume_grid g;
        struct err e = {0};
        if (volume_grid_of(f, &wants[k], &g, &e)) {
            must(k == 1 && e.code == E_DATA);
            continue;
        }
        if (volume_count(g.scaled) > SMALL || volume_count(g.size) > SMALL) continue;
        uint8_t *scaled = mem_alloc(volume_count(g.scaled)), *fitted = mem_alloc(volume_count(g.size));
        volume_scale_labels(&g, in, scaled);
        volume_fit_labels(&g, scaled, fitted);
        volume_back(&g, fitted, back);
        must(k == 1 || !memcmp(in, back, n));
        free(scaled);
        free(fitted);
    }
    written(f, in);
    free(in);
    free(back);
}

/* Values are finite, between those that they lie between. */
static void values(const struct nifti *f, const struct memory_file *m)
{
    const uint64_t n = nifti_voxels(f) * (uint64_t)f->dim[3];
    float *x = mem_alloc(n * sizeof *x);
    uint8_t *y = mem_alloc(n);
    struct err e = {0}, label = {0};
    struct nifti_map map = {.binary = true, .classes = 2};
    if (nifti_values(f, x, &e)) refusal_check(&e, m);
    else {
        for (uint64_t i = 0; i < n; i++) must(isfinite(x[i]));
        volume_values(INTENSITY_PERCENTILE, x, n);
        volume_values(INTENSITY_MINMAX, x, n);
        for (uint64_t i = 0; i < n; i++) must(x[i] >= 0 && x[i] <= 1);
    }
    if (nifti_labels(f, &map, y, &label)) refusal_check(&label, m);
    else for (uint64_t i = 0; i < n; i++) must(y[i] <= 1);
    free(x);
    free(y);
}

/* The same file, packed. */
static void packed(const struct nifti *f, const uint8_t *data, size_t size)
{
    size_t room = compressBound(size) + 64;
    uint8_t *out = mem_alloc(room);
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)data, .avail_in = (unsigned)size, .next_out = out,
                  .avail_out = (unsigned)room};
    must(deflateInit2(&z, 1, Z_DEFLATED, 9 + 16, 1, Z_DEFAULT_STRATEGY) == Z_OK);   /* with the least memory */
    must(deflate(&z, Z_FINISH) == Z_STREAM_END);
    struct memory_file m = memory_file_make(out, z.total_out);
    deflateEnd(&z);
    struct nifti g;
    struct err e = {0};
    must(!nifti_open(m.path, &g, &e) && !memcmp(g.dim, f->dim, sizeof g.dim) && g.begin == f->begin);
    free(out);
    memory_file_end(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file m = memory_file_make(data, size);
    struct err e = {0};
    struct nifti f;
    if (nifti_open(m.path, &f, &e)) refusal_check(&e, &m);
    else {
        const uint64_t n = nifti_voxels(&f) * (uint64_t)f.dim[3];
        must(n >= 1 && n <= NIFTI_VOXELS && f.begin >= 352);
        must(f.begin + n <= (data[0] == 0x1f && data[1] == 0x8b ? 1032 : 1) * size);
        for (int i = 0; i < 12; i++) must(isfinite(f.affine[i / 4][i % 4]));
        if (n <= SMALL && goes_deep()) {
            values(&f, &m);
            used(&f);
            if (data[0] != 0x1f) packed(&f, data, size);
        }
    }
    memory_file_end(&m);
    return 0;
}
