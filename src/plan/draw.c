/* The simulated step for terminals and as JSON, and the code that all pictures share. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/markup.h"
#include "base/mem.h"
#include "plan/cost.h"
#include "plan/draw_int.h"
#include "plan/render.h"
#include "plan/sim.h"

static const struct draw_kind kinds[ACT_COUNT] = {
    [ACT_L] = {"loading", "#a3a3a3", 47},
    [ACT_F] = {"forward", "#3b76af", 44},
    [ACT_B] = {"input gradient", "#d9730d", 43},
    [ACT_W] = {"weight gradient", "#3d8f4d", 42},
    [ACT_D] = {"backward (both gradients)", "#c8453f", 41},
    [ACT_R] = {"recomputation", "#8e5ea2", 45},
    [ACT_A] = {"sum of blocks", "#2a9d8f", 46},
    [ACT_G] = {"sum of replicas", "#1b6f66", 46},
    [ACT_N] = {"gradient norm", "#8c6d31", 106},
    [ACT_O] = {"optimizer", "#5b5b6b", 100},
};

const struct draw_kind *draw_kind_of(int op) { return kinds[op].name ? &kinds[op] : NULL; }

struct draw_unit draw_unit_of(double wall_ns)
{
    if (wall_ns >= 2e9) return (struct draw_unit){"s", 1e9};
    if (wall_ns >= 2e6) return (struct draw_unit){"ms", 1e6};
    return (struct draw_unit){"µs", 1e3};
}

void draw_title(const struct plan *p, struct text *out)
{
    text_add(out, "%s, %d stage%s, ", p->req.schedule, p->n_stages, p->n_stages == 1 ? "" : "s");
    plan_batch_text(p, out);
}

void draw_summary(const struct sim *s, const struct cost *k, struct text *out)
{
    struct draw_unit u = draw_unit_of(s->wall_ns);
    text_add(out, "predicted with %s costs: %.4g %s a step, bubble %.1f %% of wall time (%.1f %% of ideal time)",
             k->origin, s->wall_ns / u.ns, u.name, 100 * s->bubble_of_wall, 100 * s->bubble_of_ideal);
}

/* ---- terminal ---------------------------------------------------------------------------------------------------- */

enum { LEFT = 9, CELL = 8, MOST_COLUMNS = 2000, LEAST_COLUMNS = 20 };

/* Actions that take columns on the terminal: programs and the optimizer. A dot is waiting time, or an action too short
 * to show. */
static bool on_terminal(int op) { return act_info[op].kind == KIND_PROGRAM || op == ACT_O; }

/* Every action has CELL columns on average, so that its name fits. */
static int columns_natural(const struct plan *p)
{
    int most = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        int n = 0;
        for (int i = 0; i < p->row_n[r]; i++) n += act_info[p->row[r][i].op].kind == KIND_PROGRAM;
        if (n > most) most = n;
    }
    return most * CELL < MOST_COLUMNS ? most * CELL : MOST_COLUMNS;
}

/* "1F3"; "3" if that does not fit into width columns; or "". */
static const char *label_of(const struct plan *p, const struct act *a, int width, char full[32])
{
    char small[16];
    act_text(p, a, full);
    act_mb_text(a, small);
    if ((int)strlen(full) > width) snprintf(full, 32, "%s", (int)strlen(small) <= width ? small : "");
    return full;
}

/* The columns from x to `to` of a row: "1F3-----|". A label that the fold would cut comes after the fold. */
static void cell_plain(const struct plan *p, const struct act *a, int x, int to, int fold, char *row)
{
    char full[32];
    int n = (int)strlen(label_of(p, a, to - x - 1, full)), next = (x / fold + 1) * fold;
    memset(row + x, '-', (size_t)(to - x));
    if (to - x > 1) row[to - 1] = '|';
    if (x + n > next) x = next;
    if (n && x + n < to) memcpy(row + x, full, (size_t)n);
}

static void cell_colour(const struct plan *p, const struct act *a, int width, struct text *out)
{
    char full[32];
    text_add(out, "\033[%d;97m%-*s\033[0m", draw_kind_of(a->op)->sgr, width, label_of(p, a, width, full));
}

/* Destination of a row of `width` columns: `out`, with colours; or `plain`, characters that are later cut into lines of
 * `fold` columns. */
struct drawn_row { int width, fold; struct text *out; char *plain; };

static void row_text(const struct plan *p, const struct sim *s, int rank, const struct drawn_row *to)
{
    int x = 0, width = to->width;
    if (to->plain) memset(to->plain, '.', (size_t)width);
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        int from = (int)(s->start[rank][i] / s->wall_ns * width), end = (int)(s->end[rank][i] / s->wall_ns * width);
        if (!on_terminal(a->op) || end <= x) continue;
        if (from < x) from = x;
        if (to->plain) cell_plain(p, a, from, end, to->fold, to->plain);
        else {
            text_add(to->out, "%*s", from - x, "");
            cell_colour(p, a, end - from, to->out);
        }
        x = end;
    }
    if (to->out) text_add(to->out, "%*s", width - x, "");
}

/* The part of an axis of `all` columns between columns `from` and `to`. */
static void axis_text(double wall_ns, int all, int from, int to, struct text *out)
{
    struct draw_unit u = draw_unit_of(wall_ns);
    double span = wall_ns / u.ns, tick = markup_tick(span, all / 12 + 1);
    char label[32];
    text_add(out, "%*s", LEFT, "");
    for (int i = 0, x = from; i * tick <= span; i++) {
        int at = (int)(i * tick / span * all), n;
        n = snprintf(label, sizeof label, "%g%s%s", i * tick, i ? "" : " ", i ? "" : u.name);
        if (at < x || at + n > to + 1) continue;
        text_add(out, "%*s%s", at - x, "", label);
        x = at + n - (i ? 0 : (int)strlen(u.name) - 2);
    }
    text_add(out, "\n");
}

/* As wide as the texts need, scaled to a whole number of folds. */
static void plain_text(const struct plan *p, const struct sim *s, int columns, struct text *out)
{
    int natural = columns_natural(p), fold = columns ? columns - LEFT - 1 : natural;
    if (fold < LEAST_COLUMNS) fold = LEAST_COLUMNS;
    int n = (natural + fold / 2) / fold, width = (n ? n : 1) * fold;
    char *rows = mem_alloc((size_t)p->n_ranks * (size_t)width);
    for (int r = 0; r < p->n_ranks; r++) row_text(p, s, r, &(struct drawn_row){width, fold, NULL, rows + r * width});
    for (int from = 0; from < width; from += fold) {
        for (int r = 0; r < p->n_ranks; r++) text_add(out, "rank %-3d|%.*s|\n", r, fold, rows + r * width + from);
        axis_text(s->wall_ns, width, from, from + fold, out);
    }
    free(rows);
}

static void colour_text(const struct plan *p, const struct sim *s, int columns, struct text *out)
{
    int width = columns - LEFT - 1 < LEAST_COLUMNS ? LEAST_COLUMNS : columns - LEFT - 1;
    for (int r = 0; r < p->n_ranks; r++) {
        text_add(out, "rank %-3d|", r);
        row_text(p, s, r, &(struct drawn_row){width, width, out});
        text_add(out, "|\n");
    }
    axis_text(s->wall_ns, width, 0, width, out);
}

static bool op_used(const struct plan *p, int op)
{
    for (int r = 0; r < p->n_ranks; r++)
        for (int i = 0; i < p->row_n[r]; i++) if (p->row[r][i].op == op) return true;
    return false;
}

/* columns: the width of a line. */
static void legend_text(const struct plan *p, int columns, bool colour, struct text *out)
{
    int x = LEFT;
    text_add(out, "%*s", LEFT, "");
    for (int op = 0; op < ACT_COUNT; op++) {
        if (!on_terminal(op) || !op_used(p, op)) continue;
        int n = (int)strlen(kinds[op].name) + 3 + colour;
        bool first = x == LEFT, wrap = !first && x + 2 + n > columns;
        if (!first) text_add(out, wrap ? "\n%*s" : "%*s", wrap ? LEFT : 2, "");
        x = wrap ? LEFT : first ? x : x + 2;
        if (colour) text_add(out, "\033[%d;97m %s \033[0m %s", kinds[op].sgr, act_info[op].text, kinds[op].name);
        else text_add(out, "%s: %s", act_info[op].text, kinds[op].name);
        x += n;
    }
    text_add(out, "\n");
}

static void verdict_text(const struct sim *s, const struct cost *k, int columns, struct text *out)
{
    struct text t = {0};
    draw_summary(s, k, &t);
    char *bubble = strstr(t.s, ", bubble");
    if (bubble && (int)t.n > columns) bubble[1] = '\n';
    text_add(out, "%s\n", t.s);
    text_free(&t);
}

void plan_draw_text(const struct plan *p, const struct cost *k, int columns, bool colour, struct text *out)
{
    struct sim *s = plan_simulate(p, k, NULL);
    if (!s) return;
    draw_title(p, out);
    text_add(out, "\n");
    if (colour) colour_text(p, s, columns, out);
    else plain_text(p, s, columns, out);
    legend_text(p, columns, colour, out);
    verdict_text(s, k, columns, out);
    sim_free(s);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *action_json(const struct plan *p, const struct sim *s, int rank, int i)
{
    const struct act *a = &p->row[rank][i];
    const struct draw_kind *k = draw_kind_of(a->op);
    char name[32];
    json_t *o = json_pack("{s:s,s:i,s:i,s:s}", "action", act_text(p, a, name), "rank", rank, "stage", a->stage, "kind",
                          k ? k->name : act_info[a->op].help);
    if (act_info[a->op].has_mb) json_object_set_new(o, "micro_batch", json_integer(a->mb));
    if (a->n_mb > 1) json_object_set_new(o, "micro_batch_count", json_integer(a->n_mb));
    json_object_set_new(o, "start_seconds", json_real(s->start[rank][i] * 1e-9));
    json_object_set_new(o, "end_seconds", json_real(s->end[rank][i] * 1e-9));
    return o;
}

static json_t *transfer_json(const struct plan *p, const struct sim_wire *w)
{
    const struct channel *c = &p->chan[w->chan];
    json_t *o = json_pack("{s:i,s:i,s:i}", "channel", w->chan, "from_rank", c->from.at[AXIS_PP], "to_rank",
                          c->to.at[AXIS_PP]);
    if (c->axis == AXIS_DP) {
        json_object_set_new(o, "from_replica", json_integer(c->from.at[AXIS_DP]));
        json_object_set_new(o, "to_replica", json_integer(c->to.at[AXIS_DP]));
    }
    if (c->kind == CHAN_ACT || c->kind == CHAN_GRAD) json_object_set_new(o, "micro_batch", json_integer(w->mb));
    json_object_set_new(o, "start_seconds", json_real(w->start * 1e-9));
    json_object_set_new(o, "end_seconds", json_real(w->end * 1e-9));
    return o;
}

char *plan_draw_json(const struct plan *p, const struct cost *k)
{
    struct sim *s = plan_simulate(p, k, NULL);
    if (!s) return NULL;
    json_t *o =
        json_pack("{s:s,s:i,s:i,s:i,s:i,s:s,s:f,s:f,s:f}", "schedule", p->req.schedule, "ranks", p->n_ranks, "stages",
                  p->n_stages, "batch", p->req.batch, "micro_batches", plan_micro_batches(p), "costs", k->origin,
                  "step_seconds", s->wall_ns * 1e-9, "bubble", s->bubble_of_wall, "bubble_of_ideal",
                  s->bubble_of_ideal);
    json_t *actions = json_array(), *transfers = json_array();
    for (int r = 0; r < p->n_ranks; r++)
        for (int i = 0; i < p->row_n[r]; i++) json_array_append_new(actions, action_json(p, s, r, i));
    for (int i = 0; i < s->n_wires; i++) json_array_append_new(transfers, transfer_json(p, &s->wire[i]));
    json_object_set_new(o, "replicas", json_integer(p->pl->mesh.size[AXIS_DP]));
    json_object_set_new(o, "actions", actions);
    json_object_set_new(o, "transfers", transfers);
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(o);
    sim_free(s);
    return text;
}
