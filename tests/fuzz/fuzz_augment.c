/* Lists of data.augment: the first two bytes are a picture's height and width, the rest the entries, a line each. An
 * accepted list makes a sample of the model's size; a refusal has a text of one line. */
#include "refusal.h"
#include "depth.h"
#include "conf/conf.h"
#include "data/augment_int.h"
#include "data/ds_int.h"

enum { SIDE = 11, PIXELS_MOST = 1 << 16 };

static bool quick(const struct augment *a)
{
    for (int i = 0; i < a->n; i++)
        if ((int64_t)a->entry[i].height * a->entry[i].width > PIXELS_MOST) return false;
    return true;
}

static void sample_make(struct augment *a, int height, int width, uint64_t visit)
{
    static float x[3 * SIDE * SIDE], level[3 * 256];
    const struct ds_norm norm = {.channels = 3};
    const struct augment_values values = {&norm, level, 3, false};
    struct augment_key k = {visit * 3, visit};
    struct canvas c = {0};
    for (int i = 0; i < 3 * 256; i++) level[i] = (float)(i % 256);
    bool whole = augment_whole(a);
    canvas_begin(&c, true, 1, whole ? height : SIDE, whole ? width : SIDE);
    for (int i = 0; i < c.height * c.width; i++) c.at[i] = (uint32_t)i * 2654435761U;
    augment_values(a, k, &values, &c, x);
    must(c.height == SIDE && c.width == SIDE);
    for (int i = 0; i < 3 * SIDE * SIDE; i++) must(x[i] == x[i]);
    canvas_free(&c);
}

/* One without a list, made once. */
static struct conf *conf_plain(void)
{
    static const char plain[] = "run { seed = 3 }\ndata { source = idx }\n";
    static struct conf *c;
    struct err e = {0};
    if (!c) c = conf_parse("f.conf", plain, sizeof plain - 1, &e);
    must(c != NULL);
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct augment *a = NULL;
    if (size < 2) return 0;
    struct conf *c = conf_plain();
    char *text = strndup((const char *)data + 2, size - 2);
    must(text != NULL);
    c->data.augment.n = 0;
    for (char *save, *s = strtok_r(text, "\n", &save); s && c->data.augment.n < CONF_LIST;
         s = strtok_r(NULL, "\n", &save))
        c->data.augment.v[c->data.augment.n++] = s;
    const struct augment_want w = {"f", 3, SIDE, SIDE, true, false};
    if (augment_open(c, DS_TRAIN, &w, &a, &e)) must(e.code == E_CONF && !strncmp(e.text, "f.conf: data.augment: ", 22));
    for (const char *s = e.text; *s; s++) must((unsigned char)*s >= 0x20);
    for (uint64_t visit = 0; a && goes_deep() && quick(a) && visit < 4; visit++)
        sample_make(a, 1 + data[0] % 64, 1 + data[1] % 64, visit);
    augment_free(a);
    free(text);
    return 0;
}
