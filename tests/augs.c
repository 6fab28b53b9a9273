/* augs SEED VISITS HEIGHT WIDTH TO_HEIGHT TO_WIDTH ENTRY...: applies a list of data.augment to a picture for VISITS
 * epochs. Standard input: height x width bytes of red, then green, then blue. Output for each epoch: a line with the
 * random numbers of the first entry, then the values, floats of 0 to 255, not normalised, in the same order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/augment_int.h"
#include "data/ds_int.h"

static uint8_t *input;
static int height, width;
static float level[3 * 256];

static void picture_give(struct canvas *c)
{
    size_t n = (size_t)height * (size_t)width;
    canvas_begin(c, true, 1, height, width);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 3; k++) ((uint8_t *)c->at)[4 * i + k] = input[k * n + i];
}

static void visit(struct augment *a, uint64_t epoch, float *x)
{
    const struct aug *first = &a->entry[0];
    struct augment_key k = {0, epoch};
    struct draws r = aug_draws(a, 0, k);
    struct ds_norm norm = {.channels = 3};
    struct augment_values values = {&norm, level, 3, false};
    double v[AUG_DRAWN] = {0};
    if (first->kind->draw) first->kind->draw(first, &r, height, width, v);
    for (int i = 0; i < AUG_DRAWN; i++) printf("%.17g%s", v[i], i < AUG_DRAWN - 1 ? " " : "\n");
    struct canvas c = {0};
    picture_give(&c);
    augment_values(a, k, &values, &c, x);
    fwrite(x, sizeof *x, 3 * (size_t)c.height * (size_t)c.width, stdout);
    canvas_free(&c);
}

static int run(struct conf *c, const struct augment_want *w, int visits, struct err *e)
{
    struct augment *a;
    if (augment_open(c, DS_TRAIN, w, &a, e)) return -1;
    float *x = mem_alloc(3 * (size_t)w->height * (size_t)w->width * sizeof *x);
    for (int i = 0; a && i < visits; i++) visit(a, (uint64_t)i, x);
    free(x);
    augment_free(a);
    return 0;
}

int main(int argc, char **argv)
{
    struct text t = {0};
    struct err e = {0};
    if (argc < 8) return E_USAGE;
    for (int i = 0; i < 3 * 256; i++) level[i] = (float)(i % 256);
    height = atoi(argv[3]);
    width = atoi(argv[4]);
    size_t n = 3 * (size_t)height * (size_t)width;
    input = mem_alloc(n);
    if (fread(input, 1, n, stdin) != n) return E_DATA;
    text_add(&t, "run { seed = %s }\ndata { source = idx  augment = {", argv[1]);
    for (int i = 7; i < argc; i++) text_add(&t, "%s\"%s\"", i > 7 ? ", " : "", argv[i]);
    text_add(&t, "} }\n");
    struct conf *c = conf_parse("augs", t.s, t.n, &e);
    const struct augment_want w = {"stdin", 3, atoi(argv[5]), atoi(argv[6]), true, false};
    if (c) run(c, &w, atoi(argv[2]), &e);
    conf_free(c);
    text_free(&t);
    free(input);
    if (e.code) fprintf(stderr, "%s\n", e.text);
    return e.code;
}
