/* The interface of an augmentation: one file aug_NAME.c with one `const struct aug_kind aug_NAME`. For these files, and
 * for the code that reads and runs the list. Its functions are pure; its texts begin with a small letter. */
#ifndef DATA_AUGMENT_INT_H
#define DATA_AUGMENT_INT_H
#include "data/augment.h"
#include "data/random_variates.h"

enum { AUG_PARAMS = 5, AUG_VALUES = 2, AUG_DRAWN = 24 };

/* "name=1" or "name=1,2": between least and most numbers, each from lo to hi. def: the default as text; NULL: no
 * default, n is 0. ascends: the first number is not above the second. */
struct aug_param {
    const char *name, *def;
    int least, most;
    double lo, hi;
    bool whole, ascends;
    const char *text;
};

/* In the order of a list. WHOLE takes the picture as stored, PICTURE the picture made from it, NUMBERS the normalised
 * values. MIX takes the values of two samples, and their labels. */
enum aug_stage { AUG_WHOLE, AUG_PICTURE, AUG_NUMBERS, AUG_MIX };

/* An entry. at: its place in the list. height, width: of its output; the model's, unless fit sets others. */
struct aug {
    const struct aug_kind *kind;
    int at, height, width;
    struct { int n; double v[AUG_VALUES]; } of[AUG_PARAMS];
};

/* Size of the pictures that reach an entry. least: either dimension may be larger. */
struct aug_size { int height, width; bool least; };

struct aug_kind {
    const char *name, *text;
    enum aug_stage stage;
    bool pixels;                                         /* takes only pictures of 8 bits */
    bool any;                                            /* also takes numbers that are not pictures */
    bool cuts;                                           /* PICTURE: see draw */
    const struct aug_param *param;                       /* ends with name NULL; NULL: no parameters */
    /* Changes s from the entry's input size to its output size. -1 if its numbers do not fit, with the reason. NULL:
     * the size stays. */
    int (*fit)(struct aug *a, struct aug_size *s, struct err *e);
    /* Fills in v, which has AUG_DRAWN elements, for a picture of this size. NULL: nothing is random. WHOLE: top, left,
     * height and width of a part, and the height and width to scale it to. cuts: top and left of the entry's output,
     * which may lie outside. MIX: first the fraction that a sample keeps of its own values and labels. */
    void (*draw)(const struct aug *a, struct draws *r, int height, int width, double *v);
    /* Other PICTURE entries, and NUMBERS, which keep the size. r continues after the draws of draw. */
    void (*apply)(const struct aug *a, const double *v, struct draws *r, struct canvas *c);
    /* MIX: c holds floats, and other has as many. */
    void (*mix)(const double *v, struct canvas *c, const float *other);
};
#define AUGMENTATION(name) extern const struct aug_kind aug_##name;
#include "registry.inc"
extern const struct aug_kind *const aug_list[];          /* NULL-terminated, order of AUGMENTATIONS and MIXES */

struct augment {
    int n;
    struct aug entry[CONF_LIST];
    uint64_t seed;
    struct augment_want want;
};
/* Reads names and numbers of the list, without checking pictures. 78. */
int augment_read(const struct conf *c, struct augment *a, struct err *e);
/* The random numbers of an entry for a sample. */
struct draws aug_draws(const struct augment *a, int at, struct augment_key k);
/* size=N or size=HEIGHT,WIDTH: the size of an entry's output. */
#define AUG_SIZE {"size", NULL, 1, 2, 1, 65500, true, false, "height and width, or one number for both; " \
                  "the default is what the model takes"}
void aug_size_take(struct aug *a, int param);
/* Parameters of entries that mix: alpha of Beta(alpha, alpha), from which the fraction is drawn, and their
 * probability. */
enum { MIX_ALPHA, MIX_P };
#define MIX_PARAMS(alpha) \
    {"alpha", alpha, 1, 1, 0.001, 1000, .text = "the share that a sample keeps is drawn from " \
     "Beta(alpha, alpha)"}, \
    {"p", "1", 1, 1, 0, 1, .text = "probability; of several such entries at most one mixes a sample"}

#endif
