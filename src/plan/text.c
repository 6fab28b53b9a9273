/* The plan as text: rows with their parser, the whole plan for golden tests and the hash. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/plan.h"
#include "plan/sched.h"

char *act_mb_text(const struct act *a, char buf[16])
{
    if (a->n_mb > 1) snprintf(buf, 16, "%d-%d", a->mb, a->mb + a->n_mb - 1);
    else snprintf(buf, 16, "%d", a->mb);
    return buf;
}

char *act_text(const struct plan *p, const struct act *a, char buf[32])
{
    const struct act_info *i = &act_info[a->op < ACT_COUNT ? a->op : 0];
    char mb[16];
    int n = snprintf(buf, 32, "%d%s%s", a->stage, i->text, i->has_mb ? act_mb_text(a, mb) : "");
    int same = 0;
    for (int c = 0; a->chan >= 0 && c < p->n_chan; c++)   /* the channel is named where the border has several */
        same += p->chan[c].kind == p->chan[a->chan].kind &&
                (i->kind == KIND_SEND ? p->chan[c].from_stage : p->chan[c].to_stage) == a->stage;
    if (same > 1) snprintf(buf + n, (size_t)(32 - n), ".c%d", a->chan);
    if (a->piece) snprintf(buf + n, (size_t)(32 - n), "/%d", a->piece);
    return buf;
}

void plan_print_rows(const struct plan *p, struct text *out)
{
    char s[32];
    for (int r = 0; r < p->n_ranks; r++) {
        text_add(out, "rank %d:", r);
        for (int i = 0; i < p->row_n[r]; i++) text_add(out, " %s", act_text(p, &p->row[r][i], s));
        text_add(out, "\n");
    }
}

static void place_print(const char *name, const struct place *p, struct text *out)
{
    static const char *const space[] = {"none", "slot", "tmp", "param", "grad", "derived"};
    if (p->space != SP_NONE) text_add(out, " %s %s/%d+%zu:%zu", name, space[p->space], p->cls, p->off, p->bytes);
}

static void prog_print(const char *name, const struct prog *g, struct text *out)
{
    static const char *const phase[] = {"fwd", "data", "weights"};
    if (!g->n) return;
    text_add(out, "  program %s tmp %zu work %zu\n", name, g->tmp_bytes, g->work_bytes);
    for (int i = 0; i < g->n; i++) {
        const struct kop *k = &g->k[i];
        text_add(out, "    %s %d", phase[k->phase], k->group);
        for (int j = 0; j < MAX_IN; j++) place_print("in", &k->in[j], out);
        for (int j = 0; j < MAX_OUT; j++) place_print("out", &k->outs[j], out);
        place_print("extra", &k->saved, out);
        for (int j = 0; j < MAX_OUT; j++) place_print("gout", &k->gouts[j], out);
        for (int j = 0; j < MAX_IN; j++) place_print(k->gin_acc >> j & 1 ? "gin+" : "gin", &k->gin[j], out);
        for (int j = 0; j < MAX_PARAM; j++) {
            place_print("p", &k->param[j], out);
            place_print("g", &k->pgrad[j], out);
        }
        place_print("derived", &k->packed, out);
        text_add(out, "\n");
    }
}

void plan_stage_ends(const struct plan *p, int s, const char **first, const char **last)
{
    const struct stage_plan *st = &p->stage[s];
    *first = *last = "-";
    if (!st->n_groups) return;
    const struct group *a = &p->sel->group[st->first_group], *b = a + st->n_groups - 1;
    *first = p->sel->g->node[a->node[0]].name;
    *last = p->sel->g->node[b->node[b->n_nodes - 1]].name;
}

static void stages_print(const struct plan *p, bool programs, struct text *out)
{
    static const char *const prog[PROG_COUNT] = {"f", "b", "w", "d", "r"};
    for (int s = 0; s < p->n_stages; s++) {
        const struct stage_plan *st = &p->stage[s];
        const char *first, *last;
        if (!st->n_groups) {
            text_add(out, "stage %d rank %d has no layers\n", s, st->rank);
            continue;
        }
        plan_stage_ends(p, s, &first, &last);
        text_add(out, "stage %d rank %d groups %d..%d %s..%s %s in flight %d", s, st->rank, st->first_group,
                 st->first_group + st->n_groups - 1, first, last, st->joined ? "joined" : "split", st->in_flight);
        for (int i = 0; i < st->n_pieces; i++) text_add(out, "%s %d", i ? "" : ", pieces from", st->piece[i]);
        text_add(out, "\n");
        if (p->pl->slot_of[s] >= 0)
            text_add(out, "stage %d weights in a file: %zu bytes, slot %d, gradients %zu\n", s, p->pl->slot_used[s],
                     p->pl->slot_of[s], p->pl->slot_grads[s]);
        if (!programs) continue;
        for (int i = 0; i < PROG_COUNT; i++) prog_print(prog[i], &st->prog[i], out);
    }
}

/* The requested outputs; scores are always there and not printed. */
static void outputs_print(const struct plan *p, struct text *out)
{
    struct scores scores;
    graph_scores(p->sel->g, &scores);
    for (int i = 0; i < p->n_outputs; i++) {
        const struct output *o = &p->output[i];
        bool asked = true;
        for (int k = 0; k < scores.n; k++) asked &= scores.of[k].tensor != o->tensor;
        if (!asked) continue;
        text_add(out, "output %s rank %d", p->sel->g->tensor[o->tensor].name, o->rank);
        place_print("at", &o->at, out);
        text_add(out, "\n");
    }
}

static void body_print(const struct plan *p, bool programs, struct text *out)
{
    static const char *const writer[] = {"load", "receive-f", "f", "receive-b", "b", "r"}, *const last[] = {
                                                                                               "f", "send-f", "r",
                                                                                               "b", "send-b", "w",
                                                                                               "o"};
    static const char *const kind[] = {
        "", "activation", "gradient", "weight-gradient", "weight", "share", "sum", "kept", "updated", "total"};
    text_add(out, "plan %s %s batch %d split %d micro-batches %d", p->req.mode == PLAN_TRAIN ? "train" : "evaluate",
             p->req.schedule, p->req.batch, p->req.split, p->n_mb);
    if (p->req.groups > 1) text_add(out, " in %d blocks", p->req.groups);
    if (p->pl->mesh.size[AXIS_DP] > 1)
        text_add(out, ", of %d on %s %d of %d", plan_micro_batches(p), axis_word[AXIS_DP], p->req.dp,
                 p->pl->mesh.size[AXIS_DP]);
    text_add(out, "\n");
    stages_print(p, programs, out);
    for (int c = 0; c < p->n_cls; c++) {
        const struct slot_class *k = &p->cls[c];
        text_add(out, "slots %d stage %d from %s to %s", c, k->stage, writer[k->writer], last[k->last]);
        for (int i = 0; i < k->n_users; i++) text_add(out, ", stage %d to %s", k->user[i].stage, last[k->user[i].last]);
        text_add(out, ": %d x %zu bytes at %zu\n", k->n_slots, k->bytes, k->base);
    }
    outputs_print(p, out);
    for (int c = 0; c < p->n_chan; c++) {
        const struct channel *h = &p->chan[c];
        if (h->axis == AXIS_DP) {
            text_add(out, "channel %d %s rank %d of ", c, kind[h->kind], h->from.at[AXIS_PP]);
            if (h->kind == CHAN_ALL) text_add(out, "all %ss", axis_word[h->axis]);
            else text_add(out, "%s %d to %d", axis_word[h->axis], h->from.at[h->axis], h->to.at[h->axis]);
            text_add(out, ", %zu bytes at %zu", h->bytes_per_sample, h->off);
            if (h->bucket) text_add(out, ", bucket %d%s", h->bucket, h->late ? " at the end" : "");
            text_add(out, "\n");
            continue;
        }
        text_add(out, "channel %d %s %s stage %d to %d, %zu bytes\n", c, kind[h->kind],
                 h->param >= 0 ? p->sel->g->param[h->param].name : p->sel->g->tensor[h->tensor].name, h->from_stage,
                 h->to_stage, h->bytes_per_sample);
    }
    plan_print_rows(p, out);
    for (int r = 0; r < p->n_ranks; r++) {
        text_add(out,
                 "bytes rank %d: parameters %zu gradients %zu optimizer %zu derived %zu slots %zu temporary %zu "
                 "workspace %zu",
                 r, p->pl->param_bytes[r], p->pl->grad_bytes[r], p->pl->state_bytes[r], p->pl->packed_bytes[r],
                 p->slot_bytes[r], p->tmp_bytes[r], p->work_bytes[r]);
        if (p->load_bytes[r]) text_add(out, " loads %zu", p->load_bytes[r]);
        text_add(out, "\n");
        const struct state_file *f = &p->pl->state_file[r];
        if (f->n)
            text_add(out, "optimizer of rank %d in a file: %llu bytes, %d chunks, %d places of %zu\n", r,
                     (unsigned long long)f->all, f->n_chunks, f->n, f->place);
    }
}

void plan_print(const struct plan *p, struct text *out)
{
    text_add(out, "device %s %s %s\n", p->sel->dev.backend, p->sel->dev.isa, p->sel->dev.library);
    select_print(p->sel, out);
    body_print(p, false, out);
}

void plan_hash(const struct plan *p, char out[33])
{
    struct text t = {0};
    text_add(&t, "device %s %s %s\n", p->sel->dev.backend, p->sel->dev.isa, p->sel->dev.library);
    select_print(p->sel, &t);
    body_print(p, true, &t);
    for (int i = 0; i < p->n_opnd; i++) text_add(&t, "%d/%d/%d ", p->opnd[i].cls, p->opnd[i].slot, p->opnd[i].mode);
    text_hash(t.s, t.n, out);
    text_free(&t);
}

/* ---- schedule files -------------------------------------------------------------------------- */

static int word_parse(const char *w, size_t n, struct sched_act *a)
{
    char buf[24], *end;
    if (n < 3 || n >= sizeof buf) return -1;
    memcpy(buf, w, n);
    buf[n] = 0;
    if (!isdigit((unsigned char)buf[0])) return -1;
    long stage = strtol(buf, &end, 10);
    char op = *end;
    if (!op || !isdigit((unsigned char)end[1])) return -1;
    long mb = strtol(end + 1, &end, 10);
    if (*end || stage > 65535 || mb > 65535) return -1;
    int i = ACT_F;
    while (i <= ACT_W && *act_info[i].text != op) i++;
    *a = (struct sched_act){.op = (uint8_t)i, .stage = (uint16_t)stage, .mb = (uint16_t)mb, .n_mb = 1};
    return i <= ACT_W ? 0 : -1;
}

/* State of reading a file line by line. seen: which ranks have their row. */
struct text_rows { const char *file; int line; struct sched *out; bool *seen; };

static int line_parse(struct text_rows *f, const char *s, size_t n, struct err *e)
{
    const char *file = f->file;
    size_t i = 0, used = 0;
    int rank = -1, line = f->line;
    for (size_t k = 0; k < n; k++) if (s[k] == '#') n = k;
    for (;; i = used) {
        while (i < n && isspace((unsigned char)s[i])) i++;
        for (used = i; used < n && !isspace((unsigned char)s[used]); used++) ;
        if (used == i) break;
        struct sched_act a;
        if (rank < 0) {
            char head[40];
            snprintf(head, sizeof head, "%.*s", (int)(n - i < 39 ? n - i : 39), s + i);
            int colon = 0;
            if (sscanf(head, "rank %d:%n", &rank, &colon) != 1 || !colon)
                return err_set(e, E_DATA, "%s:%d: expected \"rank N: 0F0 0B0 0W0 ...\"", file, line);
            if (rank < 0 || rank >= f->out->n_ranks)
                return err_set(e, E_DATA, "%s:%d: rank %d is not one of %d rank%s", file, line, rank, f->out->n_ranks,
                               f->out->n_ranks == 1 ? "" : "s");
            if (f->seen[rank]) return err_set(e, E_DATA, "%s:%d: rank %d has a row already", file, line, rank);
            f->seen[rank] = true;
            used = i + (size_t)colon;
            continue;
        }
        if (word_parse(s + i, used - i, &a))
            return err_set(e, E_DATA, "%s:%d: \"%.*s\" is not an F, B or W action such as 0F3", file, line,
                           (int)(used - i < 40 ? used - i : 40), s + i);
        a.line = line;
        *vec_push(&f->out->row[rank]) = a;
    }
    return 0;
}

int sched_parse(const char *file, const char *s, size_t n, struct sched *out, struct err *e)
{
    struct text_rows f = {.file = file, .line = 1, .out = out, .seen = mem_alloc((size_t)out->n_ranks + 1)};
    int bad = memchr(s, 0, n) ? err_set(e, E_DATA, "%s: this is not text: it has a NUL byte", file) : 0;
    for (size_t at = 0; at < n && !bad; f.line++) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - s) - at : n - at;
        bad = line_parse(&f, s + at, len, e);
        at += len + 1;
    }
    for (int r = 0; r < out->n_ranks && !bad; r++)
        if (!f.seen[r]) bad = err_set(e, E_DATA, "%s: rank %d has no row", file, r);
    free(f.seen);
    return bad;
}
