/* The rows of the registry, before they have places. */
#include <assert.h>
#include "plan/state.h"

static_assert((int)STATE_WEIGHT == PARAM_WEIGHT && (int)STATE_STATISTIC == PARAM_STAT &&
              (int)STATE_COUNTER == PARAM_COUNTER && (int)STATE_CACHE == PARAM_CACHE,
              "kinds of parameters are kinds of state");

static struct state_row row_of(const struct selection *s, int param)
{
    const struct param *p = &s->g->param[param];
    return (struct state_row){
        .name = p->name, .kind = (enum state_kind)p->kind, .param = param,
        .shape = p->shape, .file = format_plain(p->type), .turned = p->turned,
        .stored = s->param[param], .region = IN_PARAM,
        .bytes = select_param_bytes(s, param), .owner = -1, .tied = p->n_uses > 1,
        .base = p->base, .trained = p->kind == PARAM_WEIGHT && !p->frozen,
        .lr_factor = p->lr_factor, .decay_factor = p->decay_factor,
    };
}

/* A row kept besides a weight, with the weight's shape. */
static struct state_row beside(struct arena *mem, const struct state_row *weight, enum state_kind kind,
                               const char *name)
{
    struct state_row r = *weight;
    r.name = arena_printf(mem, "%s.%s", weight->name, name);
    r.kind = kind;
    r.stored.type = F32;
    r.bytes = size_align64(format_bytes(&r.stored, &r.shape));
    r.region = IN_STATE;
    return r;
}

struct shape state_file_shape(const struct state_row *r)
{
    struct shape s = r->shape;
    if (r->turned) s.d[0] = r->shape.d[1], s.d[1] = r->shape.d[0];
    return s;
}

int state_rows_make(struct arena *mem, const struct selection *s, const struct state_buffers *b,
                    struct state_row **out)
{
    int n = s->g->n_params, n_params = n;
    struct state_row *row = arena_alloc(mem, (size_t)(n * (2 + b->n) + 1) * sizeof *row);
    for (int i = 0; i < n_params; i++) {
        row[i] = row_of(s, i);
        row[i].trained &= !b->fixed;
    }
    for (int i = 0; i < n_params; i++)
        for (int k = 0; row[i].trained && k < b->n; k++, n++) {
            row[n] = beside(mem, &row[i], STATE_OPTIMIZER, b->name[k]);
            row[n].buffer = k;
            row[n].home = b->in_file ? HOME_FILE : HOME_DEVICE;
        }
    for (int i = 0; i < n_params && b->average; i++)
        if (row[i].trained) row[n++] = beside(mem, &row[i], STATE_AVERAGE, "ema");
    *out = row;
    return n;
}

uint64_t state_bytes(const struct state_row *row, int n, enum state_kind kind, bool trained)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++)
        if (row[i].kind == kind && (row[i].trained || !trained))
            sum += format_bytes(&row[i].stored, &row[i].shape);
    return sum;
}
