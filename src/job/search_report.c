/* The search's results, for people and for programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job/search_int.h"
#include "plan/cost.h"
#include "plan/render.h"

static const char *stage_first(const struct found *x, size_t stage)
{
    return json_string_value(json_object_get(json_array_get(x->stages, stage), "first"));
}

void search_cut(const struct found *x, struct text *out)
{
    text_add(out, "%s", "");
    for (size_t i = 1; i < json_array_size(x->stages); i++) text_add(out, "%s%s", i > 1 ? " " : "", stage_first(x, i));
}

/* A name as one word for a shell: in quotes unless all its characters are plain for every shell. */
static void word_add(const char *name, struct text *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    bool bare = *name && !name[strspn(name, plain)];
    for (const char *c = name; bare && *c; c++) text_add(out, "%c", *c);
    if (bare) return;
    text_add(out, "'");
    for (const char *c = name; *c; c++) text_add(out, *c == '\'' ? "'\\''" : "%c", *c);
    text_add(out, "'");
}

/* A rank with several threads needs as many cores, but a launcher binds it to one. */
void search_command(const struct search *s, const struct found *x, struct text *out)
{
    text_add(out, "mpirun -np %d%s mpstaged -c ", run_layout_ranks(x->at),
             x->at.threads > 1 && !search_gpus(s) ? " --bind-to none" : "");
    word_add(s->q->file ? s->q->file : "FILE", out);
}

/* ---- for comparison -------------------------------------------------------------------------- */

static void layout_name(const struct search *s, struct run_layout l, struct text *out)
{
    char each[40] = "";
    if (l.threads > 1 && !search_gpus(s)) snprintf(each, sizeof each, " x %d threads", l.threads);
    if (run_layout_equal(l, search_alone(s))) text_add(out, "one device");
    else if (run_layout_ranks(l) == 1) text_add(out, "one rank of %d thread%s", l.threads, l.threads == 1 ? "" : "s");
    else if (l.ranks == 1) text_add(out, "data parallelism on %d devices%s", l.dp, each);
    else if (l.dp == 1) text_add(out, "a pipeline of %d ranks%s", l.ranks, each);
    else text_add(out, "%d replicas of %d ranks%s", l.dp, l.ranks, each);
}

/* Several layouts that do not fit share one line. */
static void unfit_report(const struct search *s, int n, struct text *out)
{
    int nearest = -1;
    char b[32];
    struct text name = {0};
    for (int i = 0; i < s->n_layouts; i++)
        if (s->of[i].seconds <= 0 && s->missing[i] && (nearest < 0 || s->missing[i] < s->missing[nearest])) nearest = i;
    text_add(out, "%d others do not fit", n);
    if (nearest >= 0) {
        layout_name(s, s->layout[nearest], &name);
        text_add(out, "; %s comes nearest, %s above a limit", name.s, text_bytes(s->missing[nearest], b));
    }
    text_add(out, "\n");
    text_free(&name);
}

static void layouts_table(const struct search *s, struct text *out)
{
    char b[2][32];
    int unfit = 0;
    for (int i = 0; i < s->n_layouts; i++) unfit += s->of[i].seconds <= 0;
    text_add(out, "%-46s %5s %10s %11s\n", "for comparison", "split", "step", "peak");
    for (int i = 0; i < s->n_layouts; i++) {
        const struct found *x = &s->of[i];
        struct text name = {0};
        if (x->seconds <= 0 && unfit > 1) continue;
        layout_name(s, s->layout[i], &name);
        text_add(out, "%-46s ", name.s);
        text_free(&name);
        if (x->seconds <= 0) { text_add(out, "does not fit\n"); continue; }
        text_add(out, "%5d", x->split);
        text_right(out, 11, text_seconds(x->seconds, b[0]));
        text_add(out, " %11s\n", text_bytes(x->peak, b[1]));
    }
    if (unfit > 1) unfit_report(s, unfit, out);
    int n = s->ranks;
    if (n < 2 || s->j->conf->pipeline.max_memory.n > 1 || s->j->conf->pipeline.speed.n > 1) return;
    if (n & (n - 1)) text_add(out, "data parallelism on %d devices: not a power of two\n", n);
    else if (n > MAX_DP)
        text_add(out, "data parallelism on %d devices: replicas are %d at most\n", n, MAX_DP);
}

/* ---- the best -------------------------------------------------------------------------------- */

/* Which columns the table has. Cuts are at the ends of lines if all fit there, otherwise below. Recomputation, stages
 * and layout are shown only where they differ from the default. Samples/s, which follows from the step, is dropped
 * last. */
struct shown { bool recompute, chunks, layout, speed, beside, cuts; };

static struct shown shown_of(const struct search *s, int columns)
{
    const char heading[] = "cut before";
    size_t longest = sizeof heading - 1, before = 64;
    struct shown l = {0};
    for (int i = 0; i < s->n; i++) {
        struct text cut = {0};
        search_cut(&s->best[i], &cut);
        if (cut.n > longest) longest = cut.n;
        l.cuts |= cut.n > 0;
        text_free(&cut);
        l.recompute |= s->best[i].recompute != RECOMPUTE_NONE;
        l.chunks |= s->best[i].chunks > 1;
        l.layout |= !run_layout_equal(s->best[i].at, (struct run_layout){1, s->ranks, (int)s->j->conf->run.threads});
    }
    if (l.layout) before += 9;
    if (l.recompute) before += 10;
    if (l.chunks) before += 7;
    l.speed = before <= 82;                                /* the two spaces between columns are not counted */
    if (!l.speed) before -= 10;
    l.beside = l.cuts && before + longest <= (size_t)columns;
    return l;
}

static void heading_report(struct shown l, struct text *out)
{
    text_add(out, "%3s  ", "");
    if (l.layout) text_add(out, "%-8s ", "layout");
    text_add(out, "%-11s %5s ", "schedule", "split");
    if (l.chunks) text_add(out, "%6s ", "stages");
    if (l.recompute) text_add(out, "%-9s ", "recompute");
    text_add(out, "%9s ", "step");
    if (l.speed) text_add(out, "%9s ", "samples/s");
    text_add(out, "%7s %11s%s\n", "bubble", "peak", l.beside ? "  cut before" : "");
}

static void found_report(const struct search *s, int i, struct shown l, struct text *out)
{
    const struct found *x = &s->best[i];
    char b[40];
    text_add(out, "%3d  ", i + 1);
    if (search_gpus(s)) snprintf(b, sizeof b, "%dx%d", x->at.dp, x->at.ranks);
    else snprintf(b, sizeof b, "%dx%dx%d", x->at.dp, x->at.ranks, x->at.threads);
    if (l.layout) text_add(out, "%-8s ", b);
    text_add(out, "%-11s %5d ", x->schedule, x->split);
    if (l.chunks) text_add(out, "%6d ", x->at.ranks * x->chunks);
    if (l.recompute) text_add(out, "%-9s ", search_recompute(x));
    text_right(out, 9, text_seconds(x->seconds, b));
    if (l.speed) text_add(out, " %9s", text_number((double)s->j->conf->train.batch_size / x->seconds, b));
    text_add(out, " %5.1f %% %11s", 100 * x->bubble, text_bytes(x->peak, b));
    if (l.beside) text_add(out, "  ");
    if (l.beside) search_cut(x, out);
    text_add(out, "\n");
}

static void cuts_report(const struct search *s, struct text *out)
{
    text_add(out, "\n%3s  cut before\n", "");
    for (int i = 0; i < s->n; i++) {
        if (json_array_size(s->best[i].stages) < 2) continue;
        text_add(out, "%3d  ", i + 1);
        search_cut(&s->best[i], out);
        text_add(out, "\n");
    }
}

/* The settings of the best that change bits. */
static bool bits_text(const struct search *s, struct text *out)
{
    const struct conf *c = s->j->conf;
    const struct found *x = &s->best[0];
    int groups = search_groups(c, x->at.dp), n = 0;
    text_add(out, "%s", "");
    if (x->split != c->train.split_size) text_add(out, "%ssplit_size %d", n++ ? ", " : "", x->split);
    if (x->at.threads != c->run.threads) text_add(out, "%sthreads %d", n++ ? ", " : "", x->at.threads);
    if (groups != c->train.gradient_groups) text_add(out, "%sgradient_groups %d", n++ ? ", " : "", groups);
    return n > 0;
}

static void advise(const struct search *s, struct text *out)
{
    struct text name = {0};
    layout_name(s, s->best[0].at, &name);
    text_add(out, "%s is the fastest of these", name.s);
    text_free(&name);
}

static void advice_text(const struct search *s, struct text *out)
{
    struct text bits = {0};
    const char *profile = s->j->conf->pipeline.profile;
    bool gpus = search_gpus(s);
    advise(s, out);
    text_add(out, ":\n  ");
    search_command(s, &s->best[0], out);
    text_add(out, "\n%s\n", s->q->file ? "" : "where --write-config FILE has written FILE\n");
    for (int i = 0; i < s->n_unmeasured; i++)
        text_add(out, "Not compared, because %s has no good costs for it: %d thread%s a rank.\n", profile,
                 s->unmeasured[i], s->unmeasured[i] == 1 ? "" : "s");
    if (!profile)
        text_add(out, "Estimated costs do not know that small micro-batches take longer a sample%s\n"
                      "%smeasure them (--profile) before choosing.\n", gpus ? ":" : ", and",
                 gpus ? "" : "guess the gain of threads: ");
    text_add(out, "bubble: idle / wall. Another split size%s\n"
                  "gradient_groups changes rounding, hence results: weights in their last bits,\n"
                  "with batch norm in more.\n", gpus ? " or number of" : ", number of threads or of");
    if (bits_text(s, &bits)) text_add(out, "The fastest differs by %s.\n", bits.s);
    text_free(&bits);
}

void search_table(const struct search *s, const char *origin, int columns, struct text *out)
{
    enum { INDENT = 5 };
    struct text t = {0};
    double spread = 0;
    struct shown l = shown_of(s, columns);
    for (int i = 0; i < s->n; i++) if (s->best[i].spread > spread) spread = s->best[i].spread;
    cost_doubt(spread, origin, &t);
    text_add(&t, "%d %s%s, batch %lld, %s costs:\n", s->cores, search_gpus(s) ? "GPU" : "core",
             s->cores == 1 ? "" : "s", (long long)s->j->conf->train.batch_size, origin);
    text_add(&t, "%d combination%s of replicas, ranks, %sschedule, stages and split size,\n"
                 "each with its best cut; %d %s not fit or %s refused\n", s->tried, s->tried == 1 ? "" : "s",
             search_gpus(s) ? "" : "threads, ", s->unfit, s->unfit == 1 ? "does" : "do",
             s->unfit == 1 ? "is" : "are");
    if (l.layout)
        text_add(&t, "layout: replicas x ranks of each%s\n", search_gpus(s) ? "" : " x threads of a rank");
    text_add(&t, "\n");
    heading_report(l, &t);
    for (int i = 0; i < s->n; i++) found_report(s, i, l, &t);
    if (l.cuts && !l.beside) cuts_report(s, &t);
    text_add(&t, "\n");
    layouts_table(s, &t);
    text_add(&t, "\n");
    advice_text(s, &t);
    text_fold(t.s, columns, INDENT, out);
    text_free(&t);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *cut_json(const struct found *x)
{
    json_t *names = json_array();
    for (size_t i = 1; i < json_array_size(x->stages); i++)
        json_array_append_new(names, json_string(stage_first(x, i)));
    return names;
}

static json_t *found_json(const struct search *s, struct run_layout at, const struct found *x)
{
    json_t *o = json_pack("{s:o,s:s,s:s,s:i,s:f,s:f,s:I,s:o,s:b}", "cut", cut_json(x), "schedule",
                          x->schedule ? x->schedule : "", "recompute", search_recompute(x), "split_size",
                          x->split, "step_seconds", x->seconds, "bubble", x->bubble, "peak_bytes",
                          (json_int_t)x->peak, "stages", x->stages ? json_incref(x->stages) : json_array(), "fits",
                          x->seconds > 0);
    json_t *how = json_pack("{s:i,s:i,s:i,s:i}", "replicas", at.dp, "ranks", at.ranks, "threads", at.threads,
                            "gradient_groups", search_groups(s->j->conf, at.dp));
    json_object_update(o, how);
    json_decref(how);
    return o;
}

/* The best of a layout, which may not have been tried. */
static json_t *layout_json(const struct search *s, struct run_layout at)
{
    static const struct found none;
    for (int i = 0; i < s->n_layouts; i++)
        if (run_layout_equal(s->layout[i], at)) return found_json(s, at, &s->of[i]);
    return found_json(s, at, &none);
}

/* A file name may be no UTF-8, which JSON needs: invalid bytes become \xff. */
static json_t *named_json(const char *s)
{
    const size_t size = 8 * strlen(s) + 1;
    char *clean = mem_alloc(size);
    json_t *o = json_string(s);
    if (!o) o = json_string(text_printable(s, clean, size));
    free(clean);
    return o;
}

void search_json(const struct search *s, const char *origin, struct text *out)
{
    json_t *best = json_array(), *layouts = json_array(), *unmeasured = json_array();
    struct text advice = {0}, command = {0};
    int threads = (int)s->j->conf->run.threads;
    advise(s, &advice);
    search_command(s, &s->best[0], &command);
    for (int i = 0; i < s->n; i++) json_array_append_new(best, found_json(s, s->best[i].at, &s->best[i]));
    for (int i = 0; i < s->n_layouts; i++) json_array_append_new(layouts, found_json(s, s->layout[i], &s->of[i]));
    for (int i = 0; i < s->n_unmeasured; i++) json_array_append_new(unmeasured, json_integer(s->unmeasured[i]));
    json_t *all = json_pack("{s:i,s:i,s:I,s:o,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:s,s:o}", "ranks", s->ranks, "cores",
                            s->cores, "batch_size", (json_int_t)s->j->conf->train.batch_size, "costs",
                            named_json(origin), "tried", s->tried, "unfit", s->unfit, "best", best, "one_device",
                            layout_json(s, search_alone(s)), "data_parallel",
                            layout_json(s, (struct run_layout){s->ranks, 1, threads}), "layouts", layouts,
                            "unmeasured_threads", unmeasured, "advice", advice.s, "command", named_json(command.s));
    char *text = json_dumps(all, JSON_INDENT(2));
    text_add(out, "%s\n", text);
    free(text);
    json_decref(all);
    text_free(&advice);
    text_free(&command);
}
