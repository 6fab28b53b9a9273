/* Changes one number of a run that has ended, for tests/compare.sh:
 *
 *   plant FILE.safetensors TENSOR ELEMENT       the lowest bit of that element
 *   plant RUN/checkpoints STEP TENSOR ELEMENT   the same, with the hashes that belong to it
 *   plant RUN/checkpoints STEP                  prints a tensor a line: its name, and how many elements it has
 *
 * Prints what is wrong. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "ckpt/st.h"

/* 1: done; 0: the file has no such tensor. */
static int flip(const char *path, const char *tensor, uint64_t element, struct err *e)
{
    struct st *s = st_open(path, e);
    const int i = s ? st_find(s, tensor) : -1;
    unsigned char byte;
    int done = s ? 0 : -1;
    if (i >= 0) {
        const struct st_tensor *t = &s->t[i];
        const uint64_t size = (t->end - t->begin) / (uint64_t)shape_count(&t->shape), at = t->begin + element * size;
        int fd = open(path, O_RDWR);
        done = at < t->end && pread(fd, &byte, 1, (off_t)at) == 1;
        byte ^= 1;
        done = done && pwrite(fd, &byte, 1, (off_t)at) == 1 ? 1 : err_set(e, E_IO, "%s: no such element", tensor);
        close(fd);
    }
    st_close(s);
    return done;
}

static void names_print(const char *path, struct err *e)
{
    struct st *s = st_open(path, e);
    for (int i = 0; s && i < s->n; i++)
        printf("%s %lld\n", s->t[i].name, (long long)shape_count(&s->t[i].shape));
    st_close(s);
}

static int file_plant(struct ckpt_file *f, const char *path, const char *tensor, uint64_t element, struct err *e)
{
    struct text t = {0};
    const int done = flip(path, tensor, element, e);
    if (done <= 0) return done;
    if (text_read_bytes(&t, path, 1 << 30, e)) return -1;
    text_hash(t.s, t.n, f->hash);
    text_free(&t);
    return 1;
}

static int manifest_put(const char *folder, const struct ckpt *c, struct err *e)
{
    struct text path = {0}, t = {0};
    text_add(&path, "%s/" CKPT_MANIFEST, folder);
    ckpt_print(c, &t);
    FILE *f = fopen(path.s, "wb");
    int bad = !f || fwrite(t.s, 1, t.n, f) != t.n || fclose(f) ? err_set(e, E_IO, "%s: cannot write", path.s) : 0;
    text_free(&path);
    text_free(&t);
    return bad;
}

/* tensor NULL: only prints names. */
static int checkpoint_plant(const char *all, uint64_t step, const char *tensor, uint64_t element, struct err *e)
{
    struct text folder = {0};
    struct ckpt c = {0};
    char name[CKPT_NAME];
    int dir = open(all, O_RDONLY | O_DIRECTORY), done = ckpt_read(dir, all, step, &c, e);
    text_add(&folder, "%s/%s", all, ckpt_name(step, name));
    for (int i = 0; i < c.n_files && !done; i++) {
        struct text path = {0};
        if (!text_ends(c.file[i].name, ".safetensors")) continue;
        text_add(&path, "%s/%s", folder.s, c.file[i].name);
        if (tensor) done = file_plant(&c.file[i], path.s, tensor, element, e);
        else names_print(path.s, e);
        text_free(&path);
    }
    if (done > 0) done = manifest_put(folder.s, &c, e) ? -1 : 1;
    close(dir);
    text_free(&folder);
    ckpt_free(&c);
    return done;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    int done = 0;
    if (argc == 4) done = flip(argv[1], argv[2], strtoull(argv[3], NULL, 10), &e);
    else if (argc == 5 || argc == 3)
        done = checkpoint_plant(argv[1], strtoull(argv[2], NULL, 10), argc == 5 ? argv[3] : NULL,
                                argc == 5 ? strtoull(argv[4], NULL, 10) : 0, &e);
    if (argc != 3 && done <= 0) fprintf(stderr, "plant: %s\n", e.code ? e.text : "there is no such tensor");
    return done > 0 || (argc == 3 && !e.code) ? 0 : 1;
}
