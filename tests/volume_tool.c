/* Our reader's results for a NIfTI file, for tests/volumes.py:
 *
 *   volume_tool values FILE OUT   prints the affine; OUT: all voxels, turned as nibabel's as_closest_canonical turns
 *   them, as floats, x slowest, one channel after the other
 *   volume_tool back FILE OUT SPACING SIZE   OUT: a NIfTI file of the voxels above 0, resampled to that spacing,
 *   cropped or padded to that size (0: none), and mapped back */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "data/volume.h"

static int write_out(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    return f && fwrite(p, 1, n, f) == n && !fclose(f) ? 0 : 1;
}

static int values(const char *path, const char *out, struct err *e)
{
    struct nifti f;
    struct volume_grid g;
    const struct volume_want want = {{0}, {0}, {0}};
    if (nifti_open(path, &f, e) || volume_grid_of(&f, &want, &g, e)) return -1;
    for (int i = 0; i < 12; i++) printf("%.17g%c", f.affine[i / 4][i % 4], i == 11 ? '\n' : ' ');
    const size_t n = nifti_voxels(&f), all = n * (size_t)f.dim[3];
    float *x = mem_alloc(all * sizeof *x), *y = mem_alloc(all * sizeof *y);
    int bad = nifti_values(&f, x, e);
    for (int64_t k = 0; k < f.dim[3] && !bad; k++) volume_scale(&g, x + (size_t)k * n, y + (size_t)k * n);
    if (!bad && write_out(out, y, all * sizeof *y)) bad = err_set(e, E_IO, "%s: cannot write", out);
    free(x);
    free(y);
    return bad;
}

static int back(char **arg, struct err *e)
{
    struct nifti f;
    struct volume_grid g;
    const struct nifti_map map = {.binary = true, .classes = 2};
    const double mm = strtod(arg[4], NULL);
    const int64_t size = strtol(arg[5], NULL, 10);
    const struct volume_want want = {{mm, mm, mm}, {size, size, size}, {0}};
    struct text t = {0};
    if (nifti_open(arg[2], &f, e) || volume_grid_of(&f, &want, &g, e)) return -1;
    uint8_t *y = mem_alloc(nifti_voxels(&f)), *scaled = mem_alloc(volume_count(g.scaled)),
            *fitted = mem_alloc(volume_count(g.size));
    int bad = nifti_labels(&f, &map, y, e);
    if (!bad) {
        volume_scale_labels(&g, y, scaled);
        volume_fit_labels(&g, scaled, fitted);
        volume_back(&g, fitted, y);
        nifti_add(&t, &f, y);
        if (write_out(arg[3], t.s, t.n)) bad = err_set(e, E_IO, "%s: cannot write", arg[3]);
    }
    text_free(&t);
    free(fitted);
    free(scaled);
    free(y);
    return bad;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    int bad = argc == 4 && !strcmp(argv[1], "values") ? values(argv[2], argv[3], &e)
            : argc == 6 && !strcmp(argv[1], "back") ? back(argv, &e) : err_set(&e, E_USAGE, "volume_tool: wrong usage");
    if (bad) fprintf(stderr, "%s\n", e.text);
    return e.code;
}
