/* Kernel rows: which kernel each group of every network gets, on devices that need not be here, and how selection
 * chooses among rows. MPSTAGED_GOLDEN=write makes tests/golden/kernels.txt anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/zoo.h"
#include "backend/be.h"
#include "base/file.h"
#include "devices.h"
#include "sure.h"

/* ---- networks of the zoo ----------------------------------------------------------------------------------------- */

static struct graph *network(const struct zoo_kind *z)
{
    const bool map = z->any_input && strcmp(z->name, "mlp"), volume = z->input_n == 4;
    const char *input = volume                                              ? "input = {1, 32, 32, 32}"
                        : z->input_n == 3 && !map && z->input[1] == 224 ? "input = {3, 224, 224}"
                                                                            : "";
    char text[400];
    struct err e = {0};
    snprintf(text, sizeof text,
             "run { name = \"c\" }\nmodel { network = \"%s\" %s }\ndata { source = \"synthetic\" labels = \"%s\" }\n"
             "train { steps = 1 batch_size = 8 split_size = 4 loss = \"%s\" }\n",
             z->name, input, map ? "map" : "class", volume ? "dice" : "cross_entropy");
    struct conf *c = conf_parse("rows", text, strlen(text), &e);
    ck_assert_msg(c && !conf_finish(c, &e), "%s", e.text);
    struct graph *g = model_build(c, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    conf_free(c);
    return g;
}

/* How many groups have this operator or chain and these kernels. */
struct kind { char text[160]; int n; };
static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct kind *)a)->text, ((const struct kind *)b)->text);
}

static void kind_count(struct kind *list, int *n, const struct selection *s, const struct group *k)
{
    char text[sizeof list->text];
    int at = snprintf(text, sizeof text, "%s:", k->pattern ? k->pattern->text : s->g->node[k->node[0]].op->name);
    for (int ph = 0; ph < PH_COUNT; ph++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s %s", ph ? "," : "",
                       k->row[ph] ? k->row[ph]->name : "-");
    for (int i = 0; i < *n; i++) if (!strcmp(list[i].text, text)) { list[i].n++; return; }
    snprintf(list[*n].text, sizeof list->text, "%s", text);
    list[(*n)++].n = 1;
}

static void selection_write(const char *name, const char *device, const struct selection *s, struct text *out)
{
    struct kind *list = calloc((size_t)s->n_groups, sizeof *list);
    struct text all = {0};
    char hash[33];
    int n = 0;
    for (int i = 0; i < s->n_groups; i++) kind_count(list, &n, s, &s->group[i]);
    qsort(list, (size_t)n, sizeof *list, by_text);
    select_print(s, &all);
    text_hash(all.s, all.n, hash);
    text_add(out, "%s on %s, groups %.8s\n", name, device, hash);
    for (int i = 0; i < n; i++) text_add(out, "  %d %s\n", list[i].n, list[i].text);
    text_free(&all);
    free(list);
}

/* Rules that never ask a library: its rows stand for it. */
static void network_write(const struct zoo_kind *z, struct text *out)
{
    struct select_rules rules = onednn_rules;
    struct device d[4] = {rig_blocked, rig_blocked, rig_blocked};
    const char *const name[] = {"avx512", "avx2", "amx in bf16", "gpu"};
    enum { AMX = 2, GPU };
    struct graph *g = network(z);
    rules.ask = NULL;
    d[0].rules = d[1].rules = d[AMX].rules = &rules;
    d[1].features = ISA_AVX2;
    d[1].block = 8;
    d[AMX].precision = BFLOAT16;
    d[AMX].bf16 = "amx_bf16";
    for (int i = 0; i <= GPU; i++) {
        struct err e = {0};
        if (i == GPU && !be_find("cuda")) break;
        if (i == GPU) be_find("cuda")->suppose(&d[i]);
        struct selection *s = select_make(g, &d[i], 4, &e);
        ck_assert_msg(s != NULL, "%s on %s: %s", z->name, name[i], e.text);
        selection_write(z->name, name[i], s, out);
        select_free(s);
    }
    graph_free(g);
}

/* Lines of the golden text that this build can make. */
static void lines_here(const struct text *from, struct text *out)
{
    bool take = true;
    for (const char *at = from->s, *end; at && *at; at = end) {
        end = strchr(at, '\n') + 1;
        if (*at != ' ') take = be_find("cuda") || !memmem(at, (size_t)(end - at), " on gpu,", 8);
        if (take) text_add(out, "%.*s", (int)(end - at), at);
    }
}

START_TEST(golden_kernels)
{
    const char *dir = getenv("srcdir");
    char path[512];
    struct text now = {0}, was = {0}, want = {0};
    struct err e = {0};
    for (int f = 0; zoo_list[f]; f++) for (const struct zoo_kind *z = zoo_list[f]; z->name; z++) network_write(z, &now);
    snprintf(path, sizeof path, "%s/tests/golden/kernels.txt", dir ? dir : ".");
    if (getenv("MPSTAGED_GOLDEN")) {
        FILE *f = fopen(path, "w");
        ck_assert(f && fwrite(now.s, 1, now.n, f) == now.n && !fclose(f));
    }
    ck_assert_msg(!text_read_file(&was, path, 1 << 22, &e), "%s", e.text);
    lines_here(&was, &want);
    for (size_t i = 0, line = 1; i < now.n || i < want.n; line += now.s[i++] == '\n')
        ck_assert_msg(now.s[i] == want.s[i], "%s: line %zu of what is selected differs: %.200s", path, line, now.s + i);
    text_free(&now); text_free(&was); text_free(&want);
}
END_TEST

/* ---- made-up rows ------------------------------------------------------------------------------------------------ */

static const char *odd_phase(const struct selection *s, const struct group *k, enum phase ph)
{
    return ph == PH_BWD_DATA ? "goes forward only" : NULL;
}
static const char *all_refused(const struct selection *s, const struct group *k, enum phase ph) { return "never"; }
static const char *another(const struct selection *s, const struct group *k, enum phase ph) { return ""; }
static enum layout last(const struct selection *s, const struct node *n) { return LAYOUT_LAST; }

static const struct kernel_row made_up[] = {
    {.name = "dear", .pattern = PATTERN_OP("relu"), .cost = 3, .fallback = "a dear one", .slow = true},
    {.name = "forward", .pattern = PATTERN_OP("relu"), .refuses = odd_phase},
    {.name = "foreign", .pattern = PATTERN_OP("relu"), .isa = ISA_AVX512, .cost = 0.1},
    {.name = "rounded", .pattern = PATTERN_OP("relu"), .types = TAKES(BF16), .cost = 0.2},
    {.name = "refusing", .pattern = PATTERN_OP("relu"), .refuses = all_refused, .cost = 0.3},
    {.name = "another's", .pattern = PATTERN_OP("relu"), .refuses = another, .cost = 2},
    {.name = "matrix", .pattern = PATTERN_CATEGORY(OP_MATRIX), .layout = last},
    {.name = "same", .pattern = PATTERN_OP("mse"), .same_layout = true},
    {.name = "any", .pattern = PATTERN_ANY, .cost = 9},
    {0}};
static const struct kernel_row few[] = {{.name = "refusing", .pattern = PATTERN_OP("relu"), .refuses = all_refused},
                                        {.name = "matrix", .pattern = PATTERN_OP("linear")},
                                        {0}};
static const char net[] = "input x 6\nlabels t class\na = linear(x) features=5\nb = relu(a)\nl = mse(b, t)\n";

static struct selection *made_up_select(struct graph *g, const struct kernel_row *rows, struct err *e)
{
    static const struct kernel_row *table[2];
    static struct select_rules rules;
    struct device d = rig_plain;
    table[0] = rows;
    rules = host_rules;
    rules.rows = table;
    d.rules = &rules;
    d.features = ISA_AVX2;
    return select_make(g, &d, 2, e);
}

START_TEST(cheapest_row_that_takes_it)
{
    struct err e = {0};
    struct graph *g = graph_parse("net", net, strlen(net), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    struct selection *s = made_up_select(g, made_up, &e);
    const struct group *relu = &s->group[1], *mse = &s->group[2];
    ck_assert_str_eq(relu->row[PH_FWD]->name, "forward");
    ck_assert_str_eq(relu->row[PH_BWD_DATA]->name, "dear");
    ck_assert_ptr_null(relu->row[PH_BWD_WEIGHTS]);
    ck_assert_str_eq(relu->fallback, "a dear one (input gradient): goes forward only");
    ck_assert(relu->slow && !mse->slow && !mse->fallback);
    ck_assert(s->tensor[g->node[0].out].layout == LAYOUT_LAST && s->tensor[relu->out].layout == LAYOUT_PLAIN);
    ck_assert_str_eq(mse->row[PH_FWD]->name, "same");
    ck_assert_str_eq(select_row(s, mse, PH_FWD, mse->row[PH_FWD], NULL)->name, "any");
    ck_assert_ptr_null(select_row(s, mse, PH_FWD, &made_up[8], NULL));
    select_free(s);
    graph_free(g);
}
END_TEST

START_TEST(no_row_is_refused)
{
    struct err e = {0};
    struct graph *g = graph_parse("net", net, strlen(net), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_ptr_null(made_up_select(g, few, &e));
    ck_assert_int_eq(e.code, E_CONF);
    ck_assert_str_eq(e.text, "b: the reference backend has no operator relu: never");
    graph_free(g);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("kernel rows", 120);
    tcase_add_test(t, golden_kernels);
    tcase_add_test(t, cheapest_row_that_takes_it);
    tcase_add_test(t, no_row_is_refused);
    return suite_run("kernel_rows", CK_FORK, t);
}
