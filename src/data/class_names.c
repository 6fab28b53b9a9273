#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/mem.h"
#include "data/class_names.h"

/* ---- parts of a data set ----------------------------------------------------------------------------------------- */

static const struct { const char *word; enum split split; } words[] = {
    {"train", SPLIT_TRAIN}, {"training", SPLIT_TRAIN}, {"trn", SPLIT_TRAIN}, {"tr", SPLIT_TRAIN},
    {"val", SPLIT_VALIDATION}, {"valid", SPLIT_VALIDATION}, {"validation", SPLIT_VALIDATION},
    {"validate", SPLIT_VALIDATION}, {"dev", SPLIT_VALIDATION}, {"devel", SPLIT_VALIDATION},
    {"development", SPLIT_VALIDATION}, {"eval", SPLIT_VALIDATION}, {"evaluation", SPLIT_VALIDATION},
    {"test", SPLIT_TEST}, {"testing", SPLIT_TEST}, {"tests", SPLIT_TEST}, {"tst", SPLIT_TEST},
    {"holdout", SPLIT_TEST},
    {"images", SPLIT_NONE}, {"image", SPLIT_NONE}, {"imgs", SPLIT_NONE}, {"img", SPLIT_NONE},
    {"pictures", SPLIT_NONE}, {"photos", SPLIT_NONE}, {"data", SPLIT_NONE}, {"dataset", SPLIT_NONE},
    {"datasets", SPLIT_NONE}, {"set", SPLIT_NONE}, {"split", SPLIT_NONE}, {"folder", SPLIT_NONE}, {"dir", SPLIT_NONE},
    {"samples", SPLIT_NONE}, {"files", SPLIT_NONE}, {"sets", SPLIT_NONE},
};
enum { WORDS = sizeof words / sizeof *words };

/* The index of a word of n letters; WORDS: unknown. */
static int word_of(const char *s, size_t n)
{
    int k = 0;
    while (k < WORDS && (strlen(words[k].word) != n || memcmp(words[k].word, s, n))) k++;
    return k;
}

/* Whether n letters are one word, or two joined ones, such as trainset. */
static bool font5x7_draw(const char *s, size_t n, enum split *found)
{
    for (size_t first = n; first > 0; first--) {
        const int a = word_of(s, first), b = first < n ? word_of(s + first, n - first) : a;
        if (a == WORDS || b == WORDS) continue;
        const enum split of[2] = {words[a].split, first < n ? words[b].split : SPLIT_NONE};
        for (int i = 0; i < 2; i++) {
            if (of[i] && *found && *found != of[i]) return false;
            if (of[i]) *found = of[i];
        }
        return true;
    }
    return false;
}

enum split split_of(const char *name)
{
    enum { MOST = 40 };
    char s[MOST];
    enum split found = SPLIT_NONE;
    size_t n = strlen(name);
    if (n >= MOST) return SPLIT_NONE;
    for (size_t i = 0; i <= n; i++) s[i] = (char)tolower((unsigned char)name[i]);
    for (const char *at = s; *at;) {
        const size_t skip = strspn(at, "_-. 0123456789()"), letters = strspn(at + skip, "abcdefghijklmnopqrstuvwxyz");
        if (!skip && !letters) return SPLIT_NONE;
        if (letters && !font5x7_draw(at + skip, letters, &found)) return SPLIT_NONE;
        at += skip + letters;
    }
    return found;
}

/* ---- forms of Unicode -------------------------------------------------------------------------------------------- */

/* The composed form, or NULL for invalid UTF-8; free() it. */
static char *composed(const char *s) { return (char *)utf8proc_NFC((const utf8proc_uint8_t *)s); }

bool class_names_forms(const char *a, const char *b)
{
    char *x = composed(a), *y = composed(b);
    const bool same = x && y && !strcmp(x, y) && strcmp(a, b);
    free(x);
    free(y);
    return same;
}

struct name_form { const char *name; char *composed; };

static int form_order(const void *a, const void *b)
{
    const struct name_form *x = a, *y = b;
    const int by_form = strcmp(x->composed, y->composed);
    return by_form ? by_form : strcmp(x->name, y->name);
}

static void forms_doubt(const char *const *name, int64_t n, const char *of, struct text *t)
{
    struct name_form *f = mem_alloc((size_t)(n + 1) * sizeof *f);
    size_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if ((f[count].composed = composed(name[i])) != NULL) f[count++].name = name[i];
    if (count) qsort(f, count, sizeof *f, form_order);
    for (size_t i = 1; i < count; i++) {
        char shown[200];
        if (strcmp(f[i - 1].composed, f[i].composed)) continue;
        text_add(t, "%s%s: two classes are called %s: their names differ only in the form of Unicode (NFC, NFD)",
                 t->n ? "\n" : "", of, text_printable(f[i].name, shown, sizeof shown));
        break;
    }
    for (size_t i = 0; i < count; i++) free(f[i].composed);
    free(f);
}

void class_names_doubt(const char *const *name, int64_t n, const char *of, struct text *t)
{
    const char *train = NULL, *other = NULL;
    for (int64_t i = 0; i < n; i++) {
        const enum split split = split_of(name[i]);
        if (split == SPLIT_TRAIN && !train) train = name[i];
        if (split > SPLIT_TRAIN && !other) other = name[i];
    }
    if (train && other)
        text_add(t, "%s%s: %s and %s are taken for classes, though they look like parts to train and to test with: "
                 "set data.train and data.test instead", t->n ? "\n" : "", of, train, other);
    forms_doubt(name, n, of, t);
}
