/* Archives: each member lies within the file, after the previous one, and has a name. So do pictures of a set of
 * archives, which have classes in the given range. An input of an odd size has one byte too many, and gets the correct
 * checksums in its blocks: otherwise hardly any changed header would be read. */
#include "memory_only.h"
#include "base/text.h"
#include "data/image_list_int.h"
#include "data/tar.h"

struct seen { uint64_t end, size; int members; };

static int look(void *ctx, const struct tar_member *m, struct err *e)
{
    struct seen *s = ctx;
    must(*m->name && m->name[strlen(m->name) - 1] != '/' && strncmp(m->name, "./", 2));
    must(m->at >= s->end + 512 && m->at % 512 == 0 && m->size <= s->size && m->at <= s->size - m->size);
    s->end = m->at + m->size;
    s->members++;
    return m->size == 77 ? err_set(e, E_DATA, "this is no error of an archive") : 0;
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

static void archive(const uint8_t *data, size_t size)
{
    struct memory_file m = memory_file_make(data, size);
    struct err e = {0};
    struct seen s = {.size = size};
    if (tar_read(m.path, look, &s, &e) && strcmp(e.text, "this is no error of an archive")) refusal_check(&e, &m);
    for (int labels = 0; labels < (s.members ? 2 : 1); labels++) pictures(&m, size, labels);
    memory_file_end(&m);
}

/* As tar writes it: six digits, a NUL, a blank. A block of zeros stays the end of the archive. */
static void checksum_write(uint8_t *block)
{
    enum { AT = 148, BYTES = 8, BLOCK = 512 };
    unsigned sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += block[i];
    if (!sum) return;
    for (int i = AT; i < AT + BYTES; i++) sum += ' ' - block[i];
    for (int i = AT + BYTES - 3; i >= AT; i--, sum /= 8) block[i] = (uint8_t)('0' + sum % 8);
    block[AT + BYTES - 2] = 0;
    block[AT + BYTES - 1] = ' ';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size % 2 == 0) {
        archive(data, size);
        return 0;
    }
    uint8_t *copy = malloc(size);
    must(copy != NULL);
    memcpy(copy, data, size - 1);
    for (size_t at = 0; at + 512 < size; at += 512) checksum_write(copy + at);
    archive(copy, size - 1);
    free(copy);
    return 0;
}
