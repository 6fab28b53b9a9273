/* --compare: steps, evaluations and settings, from metrics.jsonl. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "cli/compare_int.h"

/* ---- which lines count ------------------------------------------------------------------------------------------- */

/* Is it not before the record of that step and kind? */
static bool follows(const struct run_record *k, uint64_t step, enum event_kind kind)
{
    return k->step > step || (k->step == step && k->kind >= kind);
}

/* Steps after that one run again, or never. */
static void records_drop(struct compared_run *r, uint64_t step)
{
    while (r->record.n && r->record.v[r->record.n - 1].step > step) r->record.n--;
}

/* Of lines about the same step the last one counts. */
static void record_add(struct compared_run *r, const struct run_record *k)
{
    while (r->record.n && follows(&r->record.v[r->record.n - 1], k->step, k->kind)) r->record.n--;
    *vec_push(&r->record) = *k;
}

static void part_add(struct compared_run *r, uint64_t step, json_t *settings)
{
    const char *key;
    json_t *value;
    while (r->part.n && r->part.v[r->part.n - 1].step >= step) ckpt_free(&r->part.v[--r->part.n].settings);
    struct run_part *p = vec_push(&r->part);
    p->step = step;
    json_object_foreach(settings, key, value) ckpt_setting_add(&p->settings, key, json_string_value(value));
}

static uint64_t step_of(const json_t *o, const char *key)
{
    const json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

static bool is_event(const json_t *o, enum event_kind kind)
{
    const char *name = json_string_value(json_object_get(o, "event"));
    return name && !strcmp(name, event_rows[kind].name);
}

/* The last step has a line before that of the end, also where only every Nth has. */
static void done_take(struct compared_run *r, const json_t *o)
{
    r->ended = true;
    r->done = json_object_get(o, "weights_hash") != NULL;
    json_decref(r->ranks);
    r->ranks = json_incref(json_object_get(o, "weights_ranks"));
}

static void event_take(struct compared_run *r, const json_t *o, uint64_t at, size_t bytes)
{
    const uint64_t step = step_of(o, "step");
    if (is_event(o, EVENT_START) || is_event(o, EVENT_RESUME)) {
        records_drop(r, step);                            /* of a start: 0 */
        part_add(r, step, json_object_get(o, "settings"));
        const json_t *service = json_object_get(json_object_get(o, "config"), "service");
        const json_int_t every = json_integer_value(json_object_get(service, "metrics_every"));
        r->every = every > 0 ? every : 1;
        r->ended = r->done = false;
    } else if (is_event(o, EVENT_ROLLBACK)) records_drop(r, step_of(o, "to"));
    else if (is_event(o, EVENT_STEP)) record_add(r, &(struct run_record){step, EVENT_STEP, at, bytes});
    else if (is_event(o, EVENT_EVALUATION)) record_add(r, &(struct run_record){step, EVENT_EVALUATION, at, bytes});
    else if (is_event(o, EVENT_FAILED)) r->ended = true;
    else if (is_event(o, EVENT_DONE)) done_take(r, o);
}

/* Takes all whole lines, and keeps the rest: a run may be writing it. at: where the text begins in the file. */
static int whole_lines_take(struct compared_run *r, struct text *t, uint64_t *at, int *line, struct err *e)
{
    enum { LONGEST = 1 << 26 };
    char *from = t->s, *end;
    for (; (end = memchr(from, '\n', (size_t)(t->s + t->n - from))); from = end + 1, ++*line) {
        json_t *o = json_loadb(from, (size_t)(end - from), 0, NULL);
        if (!json_is_object(o)) {
            json_decref(o);
            return err_set(e, E_DATA, "%s:%d: is not a line of metrics", r->path, *line);
        }
        event_take(r, o, *at + (uint64_t)(from - t->s), (size_t)(end - from));
        json_decref(o);
    }
    *at += (uint64_t)(from - t->s);
    t->n -= (size_t)(from - t->s);
    memmove(t->s, from, t->n + 1);
    return t->n < LONGEST ? 0 : err_set(e, E_DATA, "%s:%d: is longer than a line of metrics", r->path, *line);
}

static int records_find(struct compared_run *r, uint64_t size, struct err *e)
{
    enum { PIECE = 1 << 20 };
    struct text t = {0};
    char *piece = mem_alloc(PIECE);
    uint64_t at = 0;
    int line = 1, bad = 0;
    for (uint64_t done = 0, n; done < size && !bad; done += n) {
        n = size - done < PIECE ? size - done : PIECE;
        bad = file_read_at(r->fd, r->path, done, piece, (size_t)n, e);
        if (bad) break;
        text_add_bytes(&t, piece, (size_t)n);
        bad = whole_lines_take(r, &t, &at, &line, e);
    }
    free(piece);
    text_free(&t);
    return bad ? -1 : 0;
}

int compared_run_open(struct compared_run *r, const char *dir, struct err *e)
{
    struct text path = {0};
    uint64_t size;
    text_add(&path, "%s/metrics.jsonl", dir);
    *r = (struct compared_run){.dir = dir, .path = path.s, .every = 1};
    if ((r->fd = file_open(r->path, &size, e)) < 0 || records_find(r, size, e)) return -1;
    for (int i = 0; i < r->record.n; i++) if (r->record.v[i].kind == EVENT_STEP) r->last = r->record.v[i].step;
    return 0;
}

void compared_run_close(struct compared_run *r)
{
    if (r->path && r->fd >= 0) close(r->fd);
    for (int i = 0; i < r->part.n; i++) ckpt_free(&r->part.v[i].settings);
    vec_free(&r->part);
    vec_free(&r->record);
    json_decref(r->ranks);
    free(r->path);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

void number_texts(double a, double b, struct text value[2])
{
    char x[40], y[40];
    for (int digits = 5; digits <= 17; digits++) {
        snprintf(x, sizeof x, "%.*g", digits, isnan(a) ? fabs(a) : a);   /* a NaN is printed without a sign */
        snprintf(y, sizeof y, "%.*g", digits, isnan(b) ? fabs(b) : b);
        if (strcmp(x, y) != 0) break;
    }
    text_add(&value[0], "%s", x);
    text_add(&value[1], "%s", y);
}

static const struct event_field *field_of(enum event_kind kind, const char *key)
{
    const struct event_field *f = event_rows[kind].field;
    while (f->key && strcmp(f->key, key) != 0) f++;
    return f->key ? f : NULL;
}

/* A number that a line has with all digits, or with its bits beside it. What the table does not have is a score. */
static bool is_exact(const struct event_field *f)
{
    return !f || f->type == FIELD_EXACT || f->type == FIELD_SCORES || f->type == FIELD_WITHIN;
}

static double exact_value(const json_t *o, const char *key)
{
    char name[80];
    double x;
    snprintf(name, sizeof name, "%s_bits", key);
    const char *bits = json_string_value(json_object_get(o, name));
    const json_t *v = json_object_get(o, key);
    if (!bits) return json_is_number(v) ? json_number_value(v) : NAN;
    const uint64_t n = strtoull(bits, NULL, 16);
    memcpy(&x, &n, sizeof x);
    return x;
}

static bool same_number(double a, double b) { return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a); }

/* As lines had it before numbers had all their digits. */
static bool same_rounded(double a, double b)
{
    char x[40], y[40];
    snprintf(x, sizeof x, "%.9g", a);
    snprintf(y, sizeof y, "%.9g", b);
    return !strcmp(x, y);
}

static bool has_bits(json_t *const o[2], const char *key)
{
    char name[80];
    snprintf(name, sizeof name, "%s_bits", key);
    return json_object_get(o[0], name) && json_object_get(o[1], name);
}

static void json_text(const json_t *v, struct text *t)
{
    char *s = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);
    text_add(t, "%s", s ? s : json_is_string(v) ? json_string_value(v) : "unset");
    free(s);
}

/* Two lines; rounded: not both have numbers with all digits. */
struct two_lines { enum event_kind kind; json_t *o[2]; bool rounded; };

/* whole: of whole numbers, otherwise of all else but times. What only one line has may be of another version. */
static bool value_differs(const struct two_lines *l, bool whole, const char *key, struct text value[2])
{
    const struct event_field *f = field_of(l->kind, key);
    json_t *const *o = l->o;
    const json_t *a = json_object_get(o[0], key), *b = json_object_get(o[1], key);
    if (!a || !b || (f && f->type == FIELD_WHOLE) != whole) return false;
    if (is_exact(f)) {
        const double x = exact_value(o[0], key), y = exact_value(o[1], key);
        if (json_is_string(a) || same_number(x, y)) return false;        /* KEY_bits: told with KEY */
        if (l->rounded && !has_bits(o, key) && same_rounded(x, y)) return false;
        number_texts(x, y, value);
        return true;
    }
    if ((f->type != FIELD_WHOLE && f->type != FIELD_TEXT) || json_equal(a, b)) return false;
    json_text(a, &value[0]);
    json_text(b, &value[1]);
    return true;
}

/* Numbers of samples come first: a batch that is not the same explains all else. */
static bool record_differs(const struct two_lines *l, struct run_difference *d)
{
    json_t *const *o = l->o;
    const char *key;
    json_t *v;
    for (int whole = 1; whole >= 0; whole--)
        json_object_foreach(o[0], key, v) {
            if (!value_differs(l, whole, key, d->value)) continue;
            text_add(&d->what, "%s", key);
            return true;
        }
    const bool skipped[] = {json_object_get(o[0], "skipped"), json_object_get(o[1], "skipped")};
    if (skipped[0] == skipped[1]) return false;
    text_add(&d->what, "skipped");
    for (int i = 0; i < 2; i++) text_add(&d->value[i], "%s", skipped[i] ? "true" : "false");
    return true;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static const struct ckpt *settings_at(const struct compared_run *r, uint64_t step)
{
    int i = r->part.n - 1;
    while (i > 0 && r->part.v[i].step > step) i--;
    return i >= 0 && r->part.v[i].settings.n_settings ? &r->part.v[i].settings : NULL;
}

static json_t *record_read(const struct compared_run *r, const struct run_record *k, struct err *e)
{
    char *line = mem_alloc(k->bytes + 1);
    json_t *o = file_read_at(r->fd, r->path, k->at, line, k->bytes, e) ? NULL : json_loadb(line, k->bytes, 0, NULL);
    free(line);
    if (!o) err_set(e, E_DATA, "%s: has changed while it was read", r->path);
    return o;
}

static int both_compare(struct run_comparison *c, const struct run_record *a, const struct run_record *b, bool *same,
                        struct err *e)
{
    struct run_difference d = {.step = a->step, .in = event_rows[a->kind].name, .only = -1, .rank = {-1, -1}};
    const uint64_t before = a->step ? a->step - 1 : 0;
    const struct two_lines l = {a->kind, {record_read(&c->run[0], a, e), record_read(&c->run[1], b, e)},
                                !settings_at(&c->run[0], before) || !settings_at(&c->run[1], before)};
    const bool read = l.o[0] && l.o[1];
    *same = !read || !(d.found = record_differs(&l, &d));
    if (d.found && !c->metrics.found) c->metrics = d;
    else run_difference_free(&d);
    json_decref(l.o[0]);
    json_decref(l.o[1]);
    return read ? 0 : -1;
}

/* One run has more steps than the other, if that one would have a line of them. */
static void length_compare(struct run_comparison *c)
{
    const int longer = c->run[0].last < c->run[1].last;
    const struct compared_run *less = &c->run[!longer];
    const uint64_t every = (uint64_t)less->every, next = less->ended ? less->last + 1
                                                                     : (less->last / every + 1) * every;
    if (next > c->run[longer].last) return;
    c->metrics = (struct run_difference){.found = true, .step = next, .in = "step", .only = longer,
                                         .rank = {-1, -1}};
}

/* Up to the first step that differs. An evaluation changes none of the steps after it, so these still count. */
int records_compare(struct run_comparison *c, struct err *e)
{
    const struct compared_run *a = &c->run[0], *b = &c->run[1];
    bool steps = true, evaluations = true;
    for (int i = 0, k = 0; i < a->record.n && k < b->record.n && steps;) {
        const struct run_record *x = &a->record.v[i], *y = &b->record.v[k];
        const bool both = x->step == y->step && x->kind == y->kind;
        bool *same = x->kind == EVENT_STEP ? &steps : &evaluations;
        if (both && *same && both_compare(c, x, y, same, e)) return -1;
        if (both && *same) ++*(x->kind == EVENT_STEP ? &c->steps : &c->evaluations);
        i += both || !follows(x, y->step, y->kind);
        k += both || !follows(y, x->step, x->kind);
    }
    if (!c->metrics.found) length_compare(c);
    return 0;
}

void run_difference_free(struct run_difference *d)
{
    text_free(&d->what);
    for (int i = 0; i < 2; i++) text_free(&d->value[i]);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static bool is_told(const struct run_comparison *c, const char *key)
{
    for (int i = 0; i < c->setting.n; i++) if (!strcmp(c->setting.v[i].key, key)) return true;
    return false;
}

static void settings_compare_at(struct run_comparison *c, uint64_t step)
{
    const struct ckpt *a = settings_at(&c->run[0], step), *b = settings_at(&c->run[1], step);
    const struct ckpt_setting *s = NULL;
    for (const char *was; a && b && (s = ckpt_differs(a, b, conf_is_default, s, &was));)
        if (!is_told(c, s->key)) *vec_push(&c->setting) = (struct setting_difference){step, s->key, {was, s->value}};
}

void settings_compare(struct run_comparison *c)
{
    const struct compared_run *a = &c->run[0], *b = &c->run[1];
    for (int i = 0, k = 0; i < a->part.n || k < b->part.n;) {
        const uint64_t x = i < a->part.n ? a->part.v[i].step : UINT64_MAX,
                       y = k < b->part.n ? b->part.v[k].step : UINT64_MAX, step = x < y ? x : y;
        settings_compare_at(c, step);
        i += x == step;
        k += y == step;
    }
}
