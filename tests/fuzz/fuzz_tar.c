/* Archives: each member lies within the file, behind the one before, and has a name; so do pictures of a set of
 * archives, which have classes in the range that is said. */
#include "memory_file.h"
#include "base/text.h"
#include "data/image_list_int.h"
#include "data/tar.h"

struct seen { uint64_t end, size; };

static int look(void *ctx, const struct tar_member *m, struct err *e)
{
    struct seen *s = ctx;
    must(*m->name && m->name[strlen(m->name) - 1] != '/' && strncmp(m->name, "./", 2));
    must(m->at >= s->end + 512 && m->at % 512 == 0 && m->size <= s->size && m->at <= s->size - m->size);
    s->end = m->at + m->size;
    return m->size == 77 ? err_set(e, E_DATA, "%s", "/proc/self/fd/ is no error of an archive") : 0;
}

static void pictures(const struct memory_file *m, size_t size, bool labels)
{
    struct image_list l;
    struct err e = {0};
    words shard = {0};
    *vec_push(&shard) = m->path;
    image_list_begin(&l, m->path, false);
    if (image_shards_read(&l, &shard, labels, NULL, &e)) refusal_check(&e, m);
    else {
        must(l.image.n >= 1 && l.place.n == l.image.n);
        for (int i = 0; i < l.image.n; i++) {
            int64_t k = l.image.v[i].class;
            must(k < l.n_classes && k >= (labels ? 0 : -1));
            must(l.place.v[i].size <= size && l.place.v[i].at <= size - l.place.v[i].size);
        }
        for (int64_t k = 1; l.class_name && k < l.n_classes; k++)
            must(strcmp(l.class_name[k - 1], l.class_name[k]) < 0);
    }
    vec_free(&shard);
    image_list_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct memory_file m = memory_file_make(data, size);
    struct err e = {0};
    struct seen s = {.size = size};
    if (tar_read(m.path, look, &s, &e) && !strstr(e.text, "is no error")) refusal_check(&e, &m);
    for (int labels = 0; labels < 2; labels++) pictures(&m, size, labels);
    close(m.fd);
    return 0;
}
