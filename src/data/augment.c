/* Reads, checks and runs the configuration's list. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "data/augment_int.h"
#include "data/ds_int.h"

const struct aug_kind *const aug_list[] = {
#define AUGMENTATION(name) &aug_##name,
#include "registry.inc"
    NULL
};
#define KEY "data.augment"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int kind_unknown(const char *name, size_t n, struct err *e)
{
    char hint[SUGGEST_TEXT];
    struct text all = {0};
    struct suggest near = suggest_begin(name, n);
    for (int i = 0; aug_list[i]; i++) {
        suggest_try(&near, aug_list[i]->name, strlen(aug_list[i]->name), 0);
        text_add(&all, "%s%s", i ? ", " : "", aug_list[i]->name);
    }
    err_set(e, E_CONF, "there is no augmentation \"%.*s\", only %s%s", n < 60 ? (int)n : 60, name, all.s,
            suggest_text(&near, "", hint));
    text_free(&all);
    return -1;
}

static int param_unknown(const struct aug_kind *k, const char *name, size_t n, struct err *e)
{
    struct text all = {0};
    for (const struct aug_param *p = k->param; p && p->name; p++) text_add(&all, "%s%s", all.n ? ", " : "", p->name);
    err_set(e, E_CONF, "there is no \"%.*s\"%s%s", n < 60 ? (int)n : 60, name,
            all.n ? ", only " : ": it takes no parameters", all.n ? all.s : "");
    text_free(&all);
    return -1;
}

/* Reads one number from n bytes at s. */
static int value_read(const struct aug_param *p, const char *s, size_t n, double *out, struct err *e)
{
    char text[40], *end;
    int cited = n < 30 ? (int)n : 30;
    snprintf(text, sizeof text, "%.*s", n < sizeof text ? (int)n : 0, s);
    double x = strtod(text, &end);
    if (!n || *end || end == text || text[strspn(text, p->whole ? "+-0123456789" : "+-.0123456789eE")] || !isfinite(x))
        return err_set(e, E_CONF, "%s: \"%.*s\" is not a %snumber", p->name, cited, s, p->whole ? "whole " : "");
    if (!(x >= p->lo && x <= p->hi))
        return err_set(e, E_CONF, "%s: %s is not in %.16g to %.16g", p->name, text, p->lo, p->hi);
    *out = x;
    return 0;
}

static int values_read(struct aug *a, int i, const char *s, size_t n, struct err *e)
{
    const struct aug_param *p = &a->kind->param[i];
    int k = 0;
    for (bool more = true; more; k++) {
        size_t one = strcspn(s, ",");
        if (one > n) one = n;
        if (k == p->most)
            return err_set(e, E_CONF, "%s: more than %d number%s", p->name, p->most, p->most > 1 ? "s" : "");
        if (value_read(p, s, one, &a->of[i].v[k], e)) return -1;
        more = one < n;
        s += one + more;
        n -= one + more;
    }
    if (k < p->least) return err_set(e, E_CONF, "%s: expected %d numbers, separated by a comma", p->name, p->least);
    if (p->ascends && k > 1 && a->of[i].v[1] < a->of[i].v[0])
        return err_set(e, E_CONF, "%s: %g is above %g", p->name, a->of[i].v[0], a->of[i].v[1]);
    a->of[i].n = k;
    return 0;
}

/* Reads NAME=VALUES. */
static int param_read(struct aug *a, const char *s, size_t n, uint32_t *given, struct err *e)
{
    const struct aug_param *param = a->kind->param;
    size_t name = strcspn(s, "= ");
    int i = 0;
    if (name > n) name = n;
    while (param && param[i].name && !(strlen(param[i].name) == name && !memcmp(param[i].name, s, name))) i++;
    if (!param || !param[i].name) return param_unknown(a->kind, s, name, e);
    if (*given & 1u << i) return err_set(e, E_CONF, "%s is given twice", param[i].name);
    *given |= 1u << i;
    if (name == n) return err_set(e, E_CONF, "%s: expected %s=VALUE, without spaces", param[i].name, param[i].name);
    return values_read(a, i, s + name + 1, n - name - 1, e);
}

static int entry_read(struct aug *a, const char *s, struct err *e)
{
    static const char space[] = " \t\n";
    uint32_t given = 0;
    s += strspn(s, space);
    size_t n = strcspn(s, space);
    int k = 0;
    while (aug_list[k] && !(strlen(aug_list[k]->name) == n && !memcmp(aug_list[k]->name, s, n))) k++;
    if (!aug_list[k]) return kind_unknown(s, n, e);
    a->kind = aug_list[k];
    for (int i = 0; a->kind->param && a->kind->param[i].name; i++) {
        const char *def = a->kind->param[i].def;
        if (def && values_read(a, i, def, strlen(def), e)) return -1;
    }
    for (s += n, s += strspn(s, space); *s; s += n, s += strspn(s, space)) {
        n = strcspn(s, space);
        if (param_read(a, s, n, &given, e)) return err_where(e, "%s", a->kind->name);
    }
    return 0;
}

int augment_read(const struct conf *c, struct augment *a, struct err *e)
{
    *a = (struct augment){.n = c->data.augment.n, .seed = (uint64_t)c->run.seed};
    for (int i = 0; i < a->n; i++) {
        struct err own = {0};
        a->entry[i].at = i;
        if (entry_read(&a->entry[i], c->data.augment.v[i], &own)) return conf_error(c, KEY, e, "%s", own.text);
    }
    return 0;
}

/* ---- checking ---------------------------------------------------------------------------------------------------- */

static int order_check(const struct aug *a, const struct aug *before, struct err *e)
{
    static const char *const does[] = {"takes whole pictures", "changes pictures", "changes what was normalised",
                                       "mixes samples"};
    const struct aug_kind *k = a->kind, *was = before ? before->kind : NULL;
    if (k->stage == AUG_WHOLE && was) return err_set(e, E_CONF, "%s takes whole pictures: put it first", k->name);
    if (!was || was->stage <= k->stage) return 0;
    return err_set(e, E_CONF, "%s %s: put it before %s", k->name, does[k->stage], was->name);
}

static int entry_fit(const struct augment *all, struct aug *a, struct aug_size *s, struct err *e)
{
    const struct augment_want *w = &all->want;
    a->height = (int)w->height;
    a->width = (int)w->width;
    if (w->row && !a->kind->any)
        return err_set(e, E_CONF, "%s is for pictures: channels, height and width, and %s has none", a->kind->name,
                       w->file);
    if (a->kind->pixels && !w->pixels)
        return err_set(e, E_CONF, "%s takes pictures of 8 bits with 1 or 3 channels, and %s has others", a->kind->name,
                       w->file);
    if (s->least && !a->kind->cuts)
        return err_set(e, E_CONF, "resize to a shorter side is followed by random_crop or center_crop");
    if (a->kind->fit) return a->kind->fit(a, s, e) ? err_where(e, "%s", a->kind->name) : 0;
    return 0;
}

static int list_fit(struct augment *all, struct err *e)
{
    const struct augment_want *w = &all->want;
    struct aug_size s = {(int)w->height, (int)w->width, false};
    for (int i = 0; i < all->n; i++) {
        if (order_check(&all->entry[i], i ? &all->entry[i - 1] : NULL, e) || entry_fit(all, &all->entry[i], &s, e))
            return -1;
        if ((int64_t)s.height * s.width > PICTURE_PIXELS)
            return err_set(e, E_CONF, "%s leaves pictures of %dx%d; up to %d pixels are possible",
                           all->entry[i].kind->name, s.height, s.width, PICTURE_PIXELS);
    }
    if (s.least) return err_set(e, E_CONF, "resize to a shorter side is followed by random_crop or center_crop");
    if (s.height == w->height && s.width == w->width) return 0;
    return err_set(e, E_CONF, "the list leaves pictures of %dx%d, the model takes %lldx%lld", s.height, s.width,
                   (long long)w->height, (long long)w->width);
}

void aug_size_take(struct aug *a, int param)
{
    if (!a->of[param].n) return;
    a->height = (int)a->of[param].v[0];
    a->width = (int)a->of[param].v[a->of[param].n - 1];
}

bool augment_begins_whole(const struct conf *c)
{
    struct augment a;
    struct err none = {0};
    return !augment_read(c, &a, &none) && a.n && a.entry[0].kind->stage == AUG_WHOLE;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

int augment_open(const struct conf *c, enum ds_part part, const struct augment_want *w, struct augment **out,
                 struct err *e)
{
    struct augment *a = mem_alloc(sizeof *a);
    struct err own = {0};
    *out = NULL;
    int bad = augment_read(c, a, e);
    a->want = *w;
    if (!bad && list_fit(a, &own)) bad = conf_error(c, KEY, e, "%s", own.text);
    if (bad || part != DS_TRAIN || !a->n) {
        free(a);
        return bad;
    }
    *out = a;
    return 0;
}

void augment_free(struct augment *a) { free(a); }

/* ---- running ----------------------------------------------------------------------------------------------------- */

struct draws aug_draws(const struct augment *a, int at, struct augment_key k)
{
    return (struct draws){.at = {a->seed, RNG_AUGMENT, (uint32_t)at | (uint32_t)(k.sample >> 32) << 8,
                                 (uint32_t)k.visit, (uint32_t)k.sample}};
}

bool augment_whole(const struct augment *a) { return a && a->entry[0].kind->stage == AUG_WHOLE; }

bool augment_pixels(const struct augment *a) { return a->want.pixels; }

/* A cut directly after a whole picture's scaling is combined with it: pixels that it drops are not scaled. */
static bool cut_follows(const struct augment *a) { return a->n > 1 && a->entry[1].kind->cuts; }

struct crop_place augment_place(const struct augment *a, struct augment_key k, int width, int height,
                                struct picture_turn turn)
{
    double v[AUG_DRAWN] = {0}, at[AUG_DRAWN] = {0};
    struct draws r = aug_draws(a, 0, k), next = aug_draws(a, 1, k);
    a->entry[0].kind->draw(&a->entry[0], &r, turn.swap ? width : height, turn.swap ? height : width, v);
    struct crop_cut cut = {.part = {(int)v[0], (int)v[1], (int)v[2], (int)v[3]}, .to_height = (int64_t)v[4],
                           .to_width = (int64_t)v[5], .height = (int)v[4], .width = (int)v[5]};
    if (cut_follows(a)) {
        a->entry[1].kind->draw(&a->entry[1], &next, (int)v[4], (int)v[5], at);
        cut.top = (int64_t)at[0];
        cut.left = (int64_t)at[1];
        cut.height = a->entry[1].height;
        cut.width = a->entry[1].width;
    }
    return crop_cut_place(&cut, width, height, turn);
}

static void entry_run(const struct augment *all, const struct aug *a, struct augment_key k, struct canvas *c)
{
    double v[AUG_DRAWN] = {0};
    struct draws r = aug_draws(all, a->at, k);
    if (a->kind->draw) a->kind->draw(a, &r, c->height, c->width, v);
    if (a->kind->cuts) canvas_crop(c, (int)v[0], (int)v[1], a->height, a->width);
    else a->kind->apply(a, v, &r, c);
}

static void stage_run(const struct augment *a, enum aug_stage stage, int first, struct augment_key k, struct canvas *c)
{
    for (int i = first; i < a->n; i++)
        if (a->entry[i].kind->stage == stage) entry_run(a, &a->entry[i], k, c);
}

static void pixels_values(const struct canvas *c, const struct augment_values *w, float *x)
{
    const uint8_t *pixel = (const uint8_t *)c->at;
    const float *level = w->level;
    size_t n = (size_t)c->height * (size_t)c->width;
    for (int64_t k = 0; k < w->channels; k++, pixel++, level += 256)
        for (size_t i = 0; i < n; i++) *x++ = level[pixel[i * PICTURE_BYTES]];
}

static void floats_values(const struct canvas *c, const struct augment_values *w, float *x)
{
    const float *v = (const float *)c->at;
    size_t n = (size_t)c->height * (size_t)c->width;
    for (int64_t k = 0; k < w->channels; k++)
        for (size_t i = 0; i < n; i++, v++) *x++ = w->norm->set ? (*v - w->norm->mean[k]) / w->norm->std[k] : *v;
}

void augment_values(const struct augment *a, struct augment_key k, const struct augment_values *w, struct canvas *c,
                    float *x)
{
    int first = augment_whole(a) ? 1 + cut_follows(a) : 0;
    if (augment_whole(a) && !w->scaled) {
        struct crop_place place = augment_place(a, k, c->width, c->height, (struct picture_turn){0});
        crop_scale(&place, c);
    }
    if (a) stage_run(a, AUG_PICTURE, first, k, c);
    (c->pixels ? pixels_values : floats_values)(c, w, x);
    if (!a) return;
    struct canvas values = {.planes = (int)w->channels, .height = c->height, .width = c->width, .at = (uint32_t *)x};
    stage_run(a, AUG_NUMBERS, first, k, &values);
}

/* ---- manual ------------------------------------------------------------------------------------------------------ */

static void param_manual(const struct aug_param *p, struct text *out)
{
    const char *what = p->least > 1 ? "Two numbers" : p->most > 1 ? "One or two numbers"
                     : p->whole ? "A whole number" : "A number";
    text_add(out, ".It Cm %s\n\\&%c%s.\n%s from %.10g to %.10g", p->name, *p->text - 32, p->text + 1, what, p->lo,
             p->hi);
    if (p->def) text_add(out, "; default %s", p->def);
    text_add(out, ".\n");
}

void augment_manual(struct text *out)
{
    for (int i = 0; aug_list[i]; i++) {
        const struct aug_kind *k = aug_list[i];
        text_add(out, ".It Sy %s\n\\&%c%s.\n", k->name, *k->text - 32, k->text + 1);
        if (!k->param || !k->param->name) continue;
        text_add(out, ".Bl -tag -width padding -compact\n");
        for (const struct aug_param *p = k->param; p->name; p++) param_manual(p, out);
        text_add(out, ".El\n");
    }
}
