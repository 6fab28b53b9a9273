#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "nifti_rig.h"

uint64_t bits_of(double x, int bytes)
{
    float f = (float)x;
    uint32_t half;
    uint64_t all;
    memcpy(&half, &f, sizeof half);
    memcpy(&all, &x, sizeof all);
    return bytes == 4 ? half : all;
}

static int type_bytes(int type)
{
    return type == 2 || type == 256 ? 1 : type == 4 || type == 512 ? 2 : type == 64 || type >= 1024 ? 8 : 4;
}

void nifti_poke(struct text *file, const struct nifti_made *m, size_t at, int bytes, uint64_t bits)
{
    for (int i = 0; i < bytes; i++) file->s[at + (size_t)(m->swapped ? bytes - 1 - i : i)] = (char)(bits >> 8 * i);
}

static uint64_t stored(int type, double v)
{
    if (type == 16) return bits_of(v, 4);
    if (type == 64) return bits_of(v, 8);
    return type == 1280 ? (uint64_t)v : (uint64_t)(int64_t)v;
}

void nifti_make(const struct nifti_made *m, const double *values, struct text *out)
{
    const bool one = m->version == 1;
    const int real = one ? 4 : 8, code = one ? 2 : 4, dim = one ? 2 : 8, each = type_bytes(m->type);
    const uint64_t first = m->offset ? m->offset : one ? 352 : 544;
    size_t n = 1;
    for (uint64_t i = 0; i < first; i++) text_add_bytes(out, "", 1);
#define AT(v1, v2) (size_t)(one ? v1 : v2)
    nifti_poke(out, m, 0, 4, one ? 348 : 540);
    memcpy(out->s + AT(344, 4), one ? "n+1\0" : "n+2\0\r\n\032\n", one ? 4 : 8);
    nifti_poke(out, m, AT(40, 16), dim, (uint64_t)m->n_dims);
    for (int i = 0; i < 7; i++) {
        nifti_poke(out, m, AT(40, 16) + (size_t)((i + 1) * dim), dim, i < m->n_dims ? (uint64_t)m->dim[i] : 1);
        if (i < m->n_dims) n *= (size_t)m->dim[i];
    }
    nifti_poke(out, m, AT(70, 12), 2, (uint64_t)m->type);
    nifti_poke(out, m, AT(72, 14), 2, (uint64_t)(8 * each));
    for (int i = 0; i < 4; i++) nifti_poke(out, m, AT(76, 104) + (size_t)(i * real), real, bits_of(m->pixdim[i], real));
    nifti_poke(out, m, AT(108, 168), real, one ? bits_of((double)first, 4) : first);
    nifti_poke(out, m, AT(112, 176), real, bits_of(m->slope, real));
    nifti_poke(out, m, AT(116, 184), real, bits_of(m->inter, real));
    nifti_poke(out, m, AT(252, 344), code, (uint64_t)m->qform);
    nifti_poke(out, m, AT(254, 348), code, (uint64_t)m->sform);
    for (int i = 0; i < 3; i++) {
        nifti_poke(out, m, AT(256, 352) + (size_t)(i * real), real, bits_of(m->quatern[i], real));
        nifti_poke(out, m, AT(268, 376) + (size_t)(i * real), real, bits_of(m->qoffset[i], real));
    }
    for (int i = 0; i < 12 && m->affine; i++)
        nifti_poke(out, m, AT(280, 400) + (size_t)(i * real), real, bits_of(m->affine[i / 4][i % 4], real));
    size_t at = out->n;
    for (size_t i = 0; i < n; i++) text_add_bytes(out, "\0\0\0\0\0\0\0", (size_t)each);
    for (size_t i = 0; i < n; i++, at += (size_t)each) nifti_poke(out, m, at, each, stored(m->type, values[i]));
#undef AT
}

void nifti_put(const char *path, const struct nifti_made *m, const double *values)
{
    struct text t = {0};
    size_t n = strlen(path);
    nifti_make(m, values, &t);
    if (n > 3 && !strcmp(path + n - 3, ".gz")) gzip_put(path, t.s, t.n);
    else put(path, t.s, t.n);
    text_free(&t);
}

void gzip_put(const char *path, const void *p, size_t n)
{
    gzFile f = gzopen(path, "wb9");
    ck_assert(f && gzwrite(f, p, (unsigned)n) == (int)n && gzclose(f) == Z_OK);
}
