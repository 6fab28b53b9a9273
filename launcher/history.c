/* Reads metrics.jsonl. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/text.h"
#include "history.h"

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Takes all whole lines of a piece, and keeps the rest. */
static void piece_take(struct text *t, lines_take *take, void *to)
{
    char *at = t->s, *end;
    while ((end = memchr(at, '\n', (size_t)(t->s + t->n - at)))) {
        take(to, at, (size_t)(end - at));
        at = end + 1;
    }
    t->n = (size_t)(t->s + t->n - at);
    memmove(t->s, at, t->n + 1);
}

int lines_read(const char *path, lines_take *take, lines_take *rest, void *to, double *mtime, struct err *e)
{
    enum { PIECE = 1 << 20 };
    struct stat st;
    struct text t = {0};
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), bad = 0;
    if (fd < 0 || fstat(fd, &st)) bad = err_set(e, E_NOINPUT, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) bad = err_set(e, E_DATA, "%s: is no file", path);
    char *piece = bad ? NULL : mem_alloc(PIECE);
    while (piece && (n = read(fd, piece, PIECE)) > 0) {
        text_add_bytes(&t, piece, (size_t)n);
        piece_take(&t, take, to);
    }
    if (piece && n < 0) bad = err_set(e, E_IO, "%s: %s", path, strerror(errno));
    if (!bad && t.n) rest(to, t.s, t.n);
    if (!bad && mtime) *mtime = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
    if (fd >= 0) close(fd);
    free(piece);
    text_free(&t);
    return bad;
}

/* ---- numbers of a line ------------------------------------------------------------------------------------------- */

/* A line before it counts: it may turn out to be damaged. */
struct step_line {
    struct history *h;
    struct history_step s;
    double epoch, step;
    VEC(struct history_rank) ranks;
};

/* Numbers of steps and evaluations that are no scores. */
static const char *const others[] = {
    "epoch", "samples", "tokens", "targets", "skipped", "flops_per_second", "evaluation_seconds",
};

static bool named(const char *key, size_t n, const char *name)
{
    return *key == *name && !strncmp(key, name, n) && !name[n];      /* a line of eight ranks asks a thousand times */
}

static void score_take(struct step_line *l, const char *key, size_t n, double value)
{
    struct history *h = l->h;
    int i = 0;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) if (named(key, n, others[k])) return;
    while (i < h->n_scores && !named(key, n, h->score[i])) i++;
    l->h->crowded |= i == HISTORY_SCORES;
    if (i == HISTORY_SCORES) return;
    if (i == h->n_scores) {
        struct text t = {0};
        text_add(&t, "%.*s", (int)n, key);
        h->score[h->n_scores++] = t.s;
    }
    l->s.score[i] = value;
}

static void stage_take(struct step_line *l, int i, const char *key, size_t n, double value)
{
    while (l->ranks.n <= i) *vec_push(&l->ranks) = (struct history_rank){.stage = l->ranks.n};
    struct history_rank *r = &l->ranks.v[i];
    for (int p = 0; p < CTL_PARTS; p++)
        for (int k = 0; k < 2 && ctl_parts[p].keys[k]; k++)
            if (named(key, n, ctl_parts[p].keys[k])) { r->part[p] += value; return; }
    if (named(key, n, "peak_bytes")) r->peak = value;
    else if (named(key, n, "stage") && value >= 0 && value < 1e6) r->stage = (int)value;
}

static void number_take(void *to, int element, const char *key, size_t n, double value)
{
    struct step_line *l = to;
    const struct { const char *key; double *at; } known[] = {
        {"step", &l->step}, {"lr", &l->s.lr}, {"step_seconds", &l->s.seconds}, {"grad_norm", &l->s.norm},
        {"mfu", &l->s.mfu}, {"samples_per_second", &l->s.rate}, {"tokens_per_second", &l->s.rate},
    };
    if (element >= 0) { stage_take(l, element, key, n, value); return; }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (named(key, n, known[i].key)) {
            *known[i].at = value;
            l->h->tokens |= *key == 't';
            return;
        }
    score_take(l, key, n, value);
}

static bool line_scan(struct step_line *l, const char *line, size_t n)
{
    const double MOST = 1e15;
    l->s = (struct history_step){.rate = NAN, .lr = NAN, .norm = NAN};
    for (int i = 0; i < HISTORY_SCORES; i++) l->s.score[i] = NAN;
    l->step = -1;
    l->ranks.n = 0;
    if (!json_scan(line, n, number_take, l) || !(l->step >= 0 && l->step < MOST)) return false;
    l->s.step = (long long)l->step;
    return true;
}

/* ---- the history ------------------------------------------------------------------------------------------------- */

/* The steps after that one run again or never. */
static void history_go(struct history *h, long long to)
{
    if (to < 0) to = 0;                                  /* a damaged line */
    while (h->steps.n && h->steps.v[h->steps.n - 1].step > to) {
        struct history_step *s = &h->steps.v[h->steps.n - 1];
        long long lost = s->step - to < s->n ? s->step - to : s->n;
        h->lost += lost;
        h->lost_seconds += (double)lost * s->seconds;
        s->step -= lost;
        s->n -= lost;
        if (!s->n) h->steps.n--;
    }
    while (h->tests.n && h->tests.v[h->tests.n - 1].step > to) h->tests.n--;
    h->at = to;
}

/* Seconds since 1970; 0: it is no time. */
static double time_of(const json_t *o)
{
    struct tm t = {0};
    const char *fraction = strptime(ctl_text_of(o, "time"), "%Y-%m-%dT%H:%M:%S", &t);
    return fraction ? (double)timegm(&t) + strtod(fraction, NULL) : 0;
}

static void start_take(struct history *h, const json_t *o)
{
    if (!h->starts++) h->began = time_of(o);
    h->start = o;
    h->fresh = true;
    history_go(h, ctl_integer_of(o, "step"));             /* of a first start: 0 */
}

static void account_add(struct step_line *l)
{
    struct history_account *a = &l->h->account;
    bool other = a->ranks.n != l->ranks.n;
    for (int i = 0; i < l->ranks.n && !other; i++) other = a->ranks.v[i].stage != l->ranks.v[i].stage;
    if (other) {
        a->steps = 0, a->seconds = 0, a->ranks.n = 0;
        for (int i = 0; i < l->ranks.n; i++) *vec_push(&a->ranks) = (struct history_rank){l->ranks.v[i].stage, {0}, 0};
    }
    a->steps++;
    a->seconds += l->s.seconds;
    for (int i = 0; i < l->ranks.n; i++) {
        struct history_rank *to = &a->ranks.v[i];
        for (int p = 0; p < CTL_PARTS; p++) to->part[p] += l->ranks.v[i].part[p];
        to->peak = fmax(to->peak, l->ranks.v[i].peak);
    }
}

static void step_take(struct step_line *l)
{
    struct history *h = l->h;
    l->s.n = l->s.step > h->at ? l->s.step - h->at : 1;
    if (l->ranks.n && !h->fresh && l->s.seconds > 0) account_add(l);
    h->fresh = false;
    *vec_push(&h->steps) = l->s;
    h->at = l->s.step;
}

static void test_take(struct step_line *l)
{
    struct history_test *t = vec_push(&l->h->tests);
    t->step = l->s.step;
    memcpy(t->score, l->s.score, sizeof t->score);
}

/* Takes an event that is no step; false: it is damaged. */
static bool event_take(struct step_line *l, const char *line, size_t n)
{
    struct history *h = l->h;
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *event = ctl_text_of(o, "event");
    const bool starts = !strcmp(event, "start") || !strcmp(event, "resume"), fails = !strcmp(event, "failed");
    const bool ends = !strcmp(event, "done");
    bool good = json_string_value(json_object_get(o, "event"));
    const bool asked = fails && ctl_integer_of(o, "code") == E_STOPPED;
    h->failures += (fails && !asked) || (starts && h->runs);
    h->runs = starts || (h->runs && !fails && !ends);
    if (starts) start_take(h, o);
    else if (ends && h->start) h->ended = time_of(h->start) + ctl_number_of(o, "total_seconds");
    else if (!strcmp(event, "rollback")) {
        h->rollbacks++;
        history_go(h, ctl_integer_of(o, "to"));
    } else if (!strcmp(event, "step") || !strcmp(event, "evaluation")) {
        if (!(good = line_scan(l, line, n))) ;
        else if (*event == 's') step_take(l);
        else test_take(l);
        json_decref(o);
        return good;
    }
    if (good) *vec_push(&h->events) = o;
    else json_decref(o);
    return good;
}

static void line_take(void *to, const char *line, size_t n)
{
    static const char usual[] = "{\"event\":\"step\",";
    struct step_line *l = to;
    l->h->lines++;
    if (n < sizeof usual || memcmp(line, usual, sizeof usual - 1) != 0) l->h->damaged += !event_take(l, line, n);
    else if (line_scan(l, line, n)) step_take(l);
    else l->h->damaged++;
}

static void cut_take(void *to, const char *line, size_t n)
{
    struct step_line *l = to;
    (void)line, (void)n;
    l->h->lines++;
    l->h->damaged++;
}

int history_read(const char *dir, struct history *h, struct err *e)
{
    struct step_line l = {.h = h};
    struct text path = {0};
    double mtime = 0;
    *h = (struct history){.n_scores = 1};
    h->score[0] = mem_strdup("loss");
    text_add(&path, "%s/metrics.jsonl", dir);
    int bad = lines_read(path.s, line_take, cut_take, &l, &mtime, e);
    if (!bad && !h->start && !h->steps.n) bad = err_set(e, E_DATA, "%s: no start of a run", path.s);
    if (h->runs || h->ended <= h->began) h->ended = mtime;
    vec_free(&l.ranks);
    text_free(&path);
    return bad;
}

void history_free(struct history *h)
{
    for (int i = 0; i < h->events.n; i++) json_decref(h->events.v[i]);
    for (int i = 0; i < h->n_scores; i++) free(h->score[i]);
    vec_free(&h->events);
    vec_free(&h->steps);
    vec_free(&h->tests);
    vec_free(&h->account.ranks);
}

bool history_rises(const char *score)
{
    return !strcmp(score, "accuracy") || !strcmp(score, "top5") || strstr(score, "dice") || !strncmp(score, "iou", 3);
}

int history_best(const struct history *h, int score)
{
    int best = -1;
    for (int i = 0; i < h->tests.n; i++) {
        double y = h->tests.v[i].score[score], b = best >= 0 ? h->tests.v[best].score[score] : NAN;
        if (isfinite(y) && (best < 0 || (history_rises(h->score[score]) ? y > b : y < b))) best = i;
    }
    return best;
}
