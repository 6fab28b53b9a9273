/* The simulated step as SVG: a row a rank, time to the right, boxes for actions, arrows for transfers. */
#include <stdio.h>
#include <string.h>
#include "base/markup.h"
#include "plan/cost.h"
#include "plan/draw_int.h"
#include "plan/render.h"
#include "plan/sim.h"

/* pixels */
enum { WIDTH = 1280, LEFT = 215, RIGHT = 30, TOP = 92, ROW = 46, GAP = 34, AXIS = 46, LEGEND = 44, DIGIT = 7 };
#define SEEN 0.2                                          /* in pixels; narrower boxes are left out */

struct svg_picture { const struct plan *p; const struct sim *s; const struct cost *k; struct text *out; };

static double x_of(const struct svg_picture *c, double ns)
{
    return LEFT + ns / c->s->wall_ns * (WIDTH - LEFT - RIGHT);
}
static int y_of(int rank) { return TOP + rank * (ROW + GAP); }
static int bottom_of(const struct svg_picture *c) { return y_of(c->p->n_ranks - 1) + ROW; }

/* Adds the last `most` bytes of s, from the beginning of a character on. */
static void add_end(struct text *out, const char *s, size_t most)
{
    size_t n = strlen(s), from = n > most ? n - most : 0;
    while (from && ((unsigned char)s[from] & 0xc0) == 0x80) from++;
    if (from) text_add(out, "…");
    markup_text(out, s + from);
}

static void add_layers(const struct svg_picture *c, int stage, struct text *out)
{
    const struct selection *sel = c->p->sel;
    const struct stage_plan *st = &c->p->stage[stage];
    if (!st->n_groups) { text_add(out, "no layers"); return; }
    const struct group *first = &sel->group[st->first_group], *last = &sel->group[st->first_group + st->n_groups - 1];
    add_end(out, sel->g->node[first->node[0]].name, 16);
    text_add(out, " – ");
    add_end(out, sel->g->node[last->node[last->n_nodes - 1]].name, 16);
}

static void head(const struct svg_picture *c)
{
    int height = bottom_of(c) + AXIS + LEGEND;
    text_add(c->out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
             "font-family=\"DejaVu Sans, Verdana, Helvetica, sans-serif\" font-size=\"11\">\n",
             WIDTH, height, WIDTH, height);
    text_add(c->out,
             "<defs><marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" markerHeight=\"6\" "
             "orient=\"auto\"><path d=\"M0,0 L6,3 L0,6 z\" fill=\"#333\"/></marker></defs>\n"
             "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
             WIDTH, height);
    text_add(c->out, "<text x=\"%d\" y=\"30\" font-size=\"18\" font-weight=\"bold\" fill=\"#222\">", 20);
    add_end(c->out, c->p->sel->g->name, 60);
    text_add(c->out, ": ");
    draw_title(c->p, c->out);
    text_add(c->out, "</text>\n<text x=\"20\" y=\"54\" font-size=\"13\" fill=\"#444\">");
    struct text summary = {0};
    draw_summary(c->s, c->k, &summary);
    markup_text(c->out, summary.s);
    text_free(&summary);
    text_add(c->out, "</text>\n");
}

static void axis(const struct svg_picture *c)
{
    struct draw_unit u = draw_unit_of(c->s->wall_ns);
    double span = c->s->wall_ns / u.ns, tick = markup_tick(span, 10);
    int y = bottom_of(c) + 10;
    for (int i = 0; i * tick <= span * 1.0001; i++) {
        double x = x_of(c, i * tick * u.ns);
        text_add(c->out,
                 "<path d=\"M%.1f,%d V%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" "
                 "fill=\"#444\">%g</text>\n",
                 x, TOP - 10, y, x, y + 15, i * tick);
    }
    text_add(c->out,
             "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#444\">time since the step began, %s</text>\n",
             (LEFT + WIDTH - RIGHT) / 2, y + 32, u.name);
}

static void row_head(const struct svg_picture *c, int rank)
{
    int y = y_of(rank), stage = 0;
    while (stage < c->p->n_stages - 1 && c->p->stage[stage].rank != rank) stage++;
    text_add(c->out, "<text x=\"20\" y=\"%d\" font-size=\"13\" font-weight=\"bold\" fill=\"#222\">stage %d</text>\n",
             y + 13, stage);
    text_add(c->out, "<text x=\"20\" y=\"%d\" font-size=\"10\" fill=\"#444\">", y + 28);
    add_layers(c, stage, c->out);
    text_add(c->out, "</text>\n<text x=\"20\" y=\"%d\" font-size=\"10\" fill=\"#444\">busy %.1f %%</text>\n", y + 42,
             100 * sim_busy(&c->s->rank[rank]) / c->s->wall_ns);
    text_add(c->out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f0f0f0\"/>\n", LEFT, y,
             WIDTH - LEFT - RIGHT, ROW);
}

static void box(const struct svg_picture *c, int rank, int i)
{
    const struct act *a = &c->p->row[rank][i];
    const struct draw_kind *k = draw_kind_of(a->op);
    double from = x_of(c, c->s->start[rank][i]), to = x_of(c, c->s->end[rank][i]);
    struct draw_unit u = draw_unit_of(c->s->wall_ns);
    char name[32], number[16];
    if (!k || to - from < SEEN) return;
    int y = y_of(rank), digits = (int)strlen(act_mb_text(a, number));
    text_add(c->out,
             "<g><title>%s: %s, %.4g to %.4g %s</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
             "fill=\"%s\"%s/>",
             act_text(c->p, a, name), k->name, c->s->start[rank][i] / u.ns, c->s->end[rank][i] / u.ns, u.name, from, y,
             to - from, ROW, k->fill, to - from > 3 ? " stroke=\"#fff\" stroke-width=\"0.8\"" : "");
    int size = to - from >= digits * DIGIT + 4 ? 11 : to - from >= digits * DIGIT - 2 ? 8 : 0;
    if (act_info[a->op].has_mb && size)
        text_add(c->out, "<text x=\"%.2f\" y=\"%d\" font-size=\"%d\" text-anchor=\"middle\" fill=\"#fff\">%s</text>",
                 (from + to) / 2, y + ROW / 2 + 4, size, number);
    text_add(c->out, "</g>\n");
}

static void arrow(const struct svg_picture *c, const struct sim_wire *w)
{
    const struct channel *h = &c->p->chan[w->chan];
    if (h->axis == AXIS_DP) return;                    /* the other end is in no row of this picture */
    bool down = h->to.at[AXIS_PP] > h->from.at[AXIS_PP];
    text_add(c->out,
             "<path d=\"M%.2f,%d L%.2f,%d\" stroke=\"#333\" stroke-width=\"0.9\" fill=\"none\"%s "
             "marker-end=\"url(#tip)\"/>\n",
             x_of(c, w->start), y_of(h->from.at[AXIS_PP]) + (down ? ROW : 0), x_of(c, w->end),
             y_of(h->to.at[AXIS_PP]) + (down ? 0 : ROW),
             h->kind == CHAN_ACT || h->kind == CHAN_PARAM ? "" : " stroke-dasharray=\"3,2\"");
}

static int legend_item(const struct svg_picture *c, int x, const char *swatch, const char *name)
{
    int y = bottom_of(c) + AXIS + 22;
    text_add(c->out, "%s<text x=\"%d\" y=\"%d\" fill=\"#222\">%s</text>\n", swatch, x + 24, y, name);
    return x + 24 + (int)strlen(name) * DIGIT + 18;
}

static bool op_seen(const struct svg_picture *c, int op)
{
    for (int r = 0; r < c->p->n_ranks; r++)
        for (int i = 0; i < c->p->row_n[r]; i++)
            if (c->p->row[r][i].op == op && x_of(c, c->s->end[r][i]) - x_of(c, c->s->start[r][i]) >= SEEN)
                return true;
    return false;
}

static void legend(const struct svg_picture *c)
{
    static const char *const lines[] = {"activation sent", "gradient sent"};
    int x = 20, y = bottom_of(c) + AXIS + 13;
    char swatch[160];
    for (int op = 0; op < ACT_COUNT; op++) {
        const struct draw_kind *k = draw_kind_of(op);
        if (!k || !op_seen(c, op)) continue;
        snprintf(swatch, sizeof swatch, "<rect x=\"%d\" y=\"%d\" width=\"18\" height=\"11\" fill=\"%s\"/>", x, y - 1,
                 k->fill);
        x = legend_item(c, x, swatch, k->name);
    }
    snprintf(swatch, sizeof swatch,
             "<rect x=\"%d\" y=\"%d\" width=\"18\" height=\"11\" fill=\"#f0f0f0\" stroke=\"#ccc\"/>", x, y - 1);
    x = legend_item(c, x, swatch, "waiting");
    for (int i = 0; i < 2 && c->p->n_ranks > 1; i++) {
        snprintf(swatch, sizeof swatch, "<path d=\"M%d,%d h18\" stroke=\"#333\"%s marker-end=\"url(#tip)\"/>", x, y + 5,
                 i ? " stroke-dasharray=\"3,2\"" : "");
        x = legend_item(c, x, swatch, lines[i]);
    }
    text_add(c->out, "<text x=\"20\" y=\"%d\" fill=\"#444\">numbers in boxes: micro-batches</text>\n", y - 14);
}

void plan_draw_svg(const struct plan *p, const struct cost *k, struct text *out)
{
    struct sim *s = plan_simulate(p, k, NULL);
    if (!s) return;
    struct svg_picture c = {p, s, k, out};
    head(&c);
    axis(&c);
    for (int r = 0; r < p->n_ranks; r++) {
        row_head(&c, r);
        for (int i = 0; i < p->row_n[r]; i++) box(&c, r, i);
    }
    for (int i = 0; i < s->n_wires; i++) arrow(&c, &s->wire[i]);
    legend(&c);
    text_add(out, "</svg>\n");
    sim_free(s);
}
