/* dataset.json of the Medical Segmentation Decathlon: an accepted file names files in its folder, and classes that have
 * names. */
#include "refusal.h"
#include "data/volume_list.h"

static void inside(const char *path)
{
    must(!strncmp(path, "dir/", 4) && path[4] && path[4] != '/');
    for (const char *s = path; (s = strstr(s, "..")) != NULL; s++)
        must(s[-1] != '/' || (s[2] && s[2] != '/'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool json = true;                                    /* what is none, is none for the other parts, too */
    for (enum volume_part part = VOLUMES_LABELLED; part <= VOLUMES_TESTS && json; part++) {
        struct volume_list l;
        struct err e = {0};
        if (volume_list_json("dir/dataset.json", (const char *)data, size, part, &l, &e)) {
            must(e.code == E_DATA && !strncmp(e.text, "dir/dataset.json:", 17));
            json = strncmp(e.text + 17, " line ", 6) != 0;
        } else {
            must(l.file.n >= 1 && (size_t)l.file.n <= size);
            for (int i = 0; i < l.file.n; i++) {
                inside(l.file.v[i].image);
                must((l.file.v[i].label != NULL) == (part == VOLUMES_LABELLED));
                if (l.file.v[i].label) inside(l.file.v[i].label);
            }
            for (int64_t i = 0; i < l.n_classes; i++) must(l.class_name[i] != NULL);
            const int n = l.file.n;
            volume_list_fold(&l, 3, 1, false);
            must(l.file.n == n - (n + 1) / 3);
        }
        for (const char *s = e.text; *s; s++) must((unsigned char)*s >= 0x20);
        volume_list_free(&l);
    }
    return 0;
}
