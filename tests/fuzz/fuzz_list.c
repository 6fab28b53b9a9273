/* List files of pictures: an accepted list has a path for each picture, and classes in the given range. */
#include "refusal.h"
#include "data/image_list.h"

static void accepted(const struct image_list *l, bool labels, size_t size)
{
    struct text path = {0};
    must(l->image.n >= 1 && (size_t)l->image.n <= size && l->n_classes <= INT64_C(1) << 31);
    for (int i = 0; i < l->image.n; i++) {
        int64_t k = l->image.v[i].class;
        must(k < l->n_classes && k >= (labels ? 0 : -1));
        image_list_path(l, (uint64_t)i, &path);
        must(path.n >= 1 && strlen(path.s) == path.n && !strchr(path.s, '\n'));
        must(*path.s == '/' || !strncmp(path.s, "dir/", 4));
    }
    for (int64_t k = 1; l->class_name && k < l->n_classes; k++)
        must(strcmp(l->class_name[k - 1], l->class_name[k]) < 0);
    text_free(&path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int labels = 0; labels < 2; labels++) {
        struct image_list l;
        struct err e = {0};
        if (!image_list_parse("dir/list", (const char *)data, size, labels, &l, &e)) accepted(&l, labels, size);
        else must(e.code == E_DATA && !strncmp(e.text, "dir/list:", 9));
        for (const char *s = e.text; *s; s++) must((unsigned char)*s >= 0x20);
        image_list_free(&l);
    }
    return 0;
}
