/* ONNX files and inputs for tests of their reader.
 *
 *   onnx_tool make FILE.txt OUT.onnx [OUT.data]    the file that the text describes; weights in a file of external data
 *   onnx_tool data OUT.npy SHAPE [CLASSES]         random numbers of a normal kind, or integers below CLASSES
 *   onnx_tool check EXPECTED NAME FILE.npy         the lines NAME of EXPECTED: numbers; prints the largest difference
 *
 * A text has lines "opset N", "input NAME 1x3x8x8 [I64]" (a letter: an open dimension), "weight NAME 4x3" (random),
 * "ones NAME 4", "zeros NAME 4", "const NAME 4 1 2 3 4" (integers), "real NAME 2 0.5 1", "output NAME", and
 * "NAME[, NAME] = OPERATOR(NAME, ...) attribute=value ...", where 3 is an integer, [3,4] integers, 0.5 a number, and
 * anything else a word. "(" after a space is none; an empty name between commas is an input that is left out. */
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/onnx/file.h"

enum { MOST = 4096, LINE = 4096 };
static Onnx__Model model = ONNX__MODEL__INIT;
static Onnx__Graph graph = ONNX__GRAPH__INIT;
static Onnx__Node *node[MOST];
static Onnx__Tensor *tensor[MOST];
static Onnx__Value *input[MOST], *output[MOST];
static Onnx__OperatorSet set = ONNX__OPERATOR_SET__INIT, *sets[] = {&set};

static void die(const char *what, const char *where)
{
    fprintf(stderr, "onnx_tool: %s: %s\n", what, where);
    exit(1);
}

/* Uniform in 0 to 1, the same numbers everywhere. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24);
}

static float normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += uniform(state);
    return (float)(sum - 6);
}

static int dims_parse(const char *s, int64_t d[8], char *name[8])
{
    int n = 0;
    for (char *end; *s && n < 8; s = *end ? end + 1 : end, n++) {
        end = (char *)s + strcspn(s, "x");
        name[n] = isalpha((unsigned char)*s) ? strndup(s, (size_t)(end - s)) : NULL;
        d[n] = name[n] ? -1 : strtoll(s, NULL, 10);
    }
    return n;
}

/* Without a shape ("scalar"): a number. */
static Onnx__Tensor *tensor_new(const char *name, const char *shape, int type, size_t width)
{
    Onnx__Tensor *t = calloc(1, sizeof *t);
    char *open[8];
    onnx__tensor__init(t);
    t->dims = calloc(8, sizeof *t->dims);
    t->n_dims = strcmp(shape, "scalar") ? (size_t)dims_parse(shape, t->dims, open) : 0;
    t->name = strdup(name);
    t->data_type = type, t->has_data_type = 1;
    t->raw_data.len = (size_t)onnx_count(t) * width;
    t->raw_data.data = calloc(1, t->raw_data.len + 1);
    t->has_raw_data = 1;
    return t;
}

static void value_line(char **word, int n)
{
    const bool whole = !strcmp(word[0], "const");
    Onnx__Tensor *t = tensor_new(word[1], word[2], whole ? ONNX_I64 : ONNX_F32, whole ? 8 : 4);
    uint64_t state = 1;
    for (const char *c = word[1]; *c; c++) state = state * 31 + (unsigned char)*c;
    const int64_t count = onnx_count(t);
    const double scale = t->n_dims > 1 ? 1 / sqrt((double)count / (double)t->dims[0]) : 0.3;
    for (int64_t i = 0; i < count; i++) {
        float *x = (float *)(void *)t->raw_data.data + i;
        if (whole) ((int64_t *)(void *)t->raw_data.data)[i] = strtoll(word[3 + i < n ? 3 + i : n - 1], NULL, 10);
        else if (!strcmp(word[0], "real")) *x = strtof(word[3 + i < n ? 3 + i : n - 1], NULL);
        else if (!strcmp(word[0], "weight")) *x = normal(&state) * (float)scale;
        else *x = !strcmp(word[0], "ones");
        if (!strcmp(word[0], "weight") && strstr(word[1], "var")) *x = 1 + fabsf(*x);
    }
    tensor[graph.n_initializer++] = t;
}

static Onnx__Value *value_new(const char *name, const char *shape, int type)
{
    Onnx__Value *v = calloc(1, sizeof *v);
    onnx__value__init(v);
    v->name = strdup(name);
    if (!shape) return v;
    int64_t d[8];
    char *open[8];
    v->type = calloc(1, sizeof *v->type);
    onnx__type__init(v->type);
    Onnx__TensorType *t = v->type->tensor_type = calloc(1, sizeof *t);
    onnx__tensor_type__init(t);
    t->elem_type = type, t->has_elem_type = 1;
    t->shape = calloc(1, sizeof *t->shape);
    onnx__shape__init(t->shape);
    t->shape->n_dim = (size_t)dims_parse(shape, d, open);
    t->shape->dim = calloc(8, sizeof *t->shape->dim);
    for (size_t i = 0; i < t->shape->n_dim; i++) {
        Onnx__Dimension *x = t->shape->dim[i] = calloc(1, sizeof *x);
        onnx__dimension__init(x);
        x->value_case = open[i] ? ONNX__DIMENSION__VALUE_DIM_PARAM : ONNX__DIMENSION__VALUE_DIM_VALUE;
        if (open[i]) x->dim_param = open[i];
        else x->dim_value = d[i];
    }
    return v;
}

static void attribute_parse(Onnx__Node *n, char *word)
{
    char *is = strchr(word, '='), *end;
    if (!is) die("no attribute", word);
    *is++ = 0;
    Onnx__Attribute *a = calloc(1, sizeof *a);
    onnx__attribute__init(a);
    a->name = strdup(word);
    a->has_type = 1;
    const double x = strtod(is, &end);
    if (*is == '[') {
        a->type = 7;
        a->ints = calloc(16, sizeof *a->ints);
        for (char *at = is + 1; *at && *at != ']'; at += strcspn(at, ",]"), at += *at == ',')
            a->ints[a->n_ints++] = strtoll(at, NULL, 10);
    } else if (*end) {
        a->type = 3, a->has_s = 1;
        a->s = (ProtobufCBinaryData){strlen(is), (uint8_t *)strdup(is)};
    } else if (strchr(is, '.') || strchr(is, 'e')) a->type = 1, a->has_f = 1, a->f = (float)x;
    else a->type = 2, a->has_i = 1, a->i = (int64_t)x;
    n->attribute = realloc(n->attribute, (n->n_attribute + 1) * sizeof *n->attribute);
    n->attribute[n->n_attribute++] = a;
}

/* Names between commas, without spaces. */
static size_t names_parse(char *s, char ***out)
{
    size_t n = 0;
    *out = calloc(64, sizeof **out);
    for (char *at = s; s && n < 64; n++) {
        char *end = at + strcspn(at, ",");
        const bool last = !*end;
        *end = 0;
        while (*at == ' ') at++;
        for (char *c = at + strlen(at); c > at && c[-1] == ' ';) *--c = 0;
        (*out)[n] = strdup(at);
        at = end + 1;
        if (last) return n + 1;
    }
    return n;
}

static void node_line(char *line)
{
    char *is = strstr(line, " = "), *open = strchr(line, '('), *close = open ? strchr(open, ')') : NULL, *save = NULL;
    if (!is || !close) die("no statement", line);
    Onnx__Node *n = calloc(1, sizeof *n);
    onnx__node__init(n);
    *is = *open = *close = 0;
    n->op_type = strdup(is + 3);
    char *domain = strchr(n->op_type, ':');              /* DOMAIN:OPERATOR */
    if (domain) *domain = 0, n->domain = n->op_type, n->op_type = domain + 1;
    n->n_output = names_parse(line, &n->output);
    n->n_input = open[1] ? names_parse(open + 1, &n->input) : 0;
    n->name = strdup(n->output[0]);
    for (char *w = strtok_r(close + 1, " ", &save); w; w = strtok_r(NULL, " ", &save)) attribute_parse(n, w);
    node[graph.n_node++] = n;
}

static void line_parse(char *line)
{
    char *word[LINE / 2], *copy = strdup(line), *save = NULL;
    int n = 0;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) word[n++] = w;
    if (!n || *word[0] == '#') return;
    if (strstr(line, " = ")) node_line(line);
    else if (!strcmp(word[0], "opset") && n == 2) set.version = strtoll(word[1], NULL, 10);
    else if (!strcmp(word[0], "input") && n >= 3)
        input[graph.n_input++] = value_new(word[1], word[2], n > 3 ? ONNX_I64 : ONNX_F32);
    else if (!strcmp(word[0], "output") && n == 2) output[graph.n_output++] = value_new(word[1], NULL, 0);
    else if (n >= 3) value_line(word, n);
    else die("no statement", line);
}

static void external(const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!f) die("cannot write", path);
    uint64_t at = 0;
    for (size_t i = 0; i < graph.n_initializer; i++) {
        Onnx__Tensor *t = tensor[i];
        if (t->data_type != ONNX_F32) continue;
        const char *key[] = {"location", "offset", "length"}, *slash = strrchr(path, '/');
        t->external_data = calloc(3, sizeof *t->external_data);
        for (int k = 0; k < 3; k++) {
            char number[32];
            snprintf(number, sizeof number, "%llu", (unsigned long long)(k == 1 ? at : t->raw_data.len));
            Onnx__Entry *x = t->external_data[t->n_external_data++] = calloc(1, sizeof *x);
            onnx__entry__init(x);
            x->key = (char *)key[k];
            x->value = strdup(k ? number : slash ? slash + 1 : path);
        }
        t->data_location = 1, t->has_data_location = 1, t->has_raw_data = 0;
        fwrite(t->raw_data.data, 1, t->raw_data.len, f);
        at += t->raw_data.len;
        t->raw_data.len = 0;
    }
    fclose(f);
}

static void make(const char *text, const char *to, const char *data)
{
    char line[LINE];
    FILE *f = fopen(text, "r"), *out;
    if (!f) die("cannot read", text);
    set.version = 17, set.has_version = 1;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        line_parse(line);
    }
    fclose(f);
    if (data) external(data);
    graph.node = node, graph.initializer = tensor, graph.input = input, graph.output = output;
    graph.name = (char *)"net";
    model.ir_version = 8, model.has_ir_version = 1, model.graph = &graph;
    model.n_opset_import = 1, model.opset_import = sets;
    const size_t n = onnx__model__get_packed_size(&model);
    uint8_t *bytes = malloc(n);
    onnx__model__pack(&model, bytes);
    if (!(out = fopen(to, "wb")) || fwrite(bytes, 1, n, out) != n || fclose(out)) die("cannot write", to);
}

static void npy(const char *path, const char *shape, const char *classes)
{
    int64_t d[8], count = 1;
    char *open[8], head[128], dims[80] = "";
    const int n = dims_parse(shape, d, open);
    for (int i = 0; i < n; i++)
        count *= d[i], snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%lld, ", (long long)d[i]);
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int m = snprintf(head + 10, 117, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                           classes ? "<i8" : "<f4", dims);
    head[10 + m] = ' ';
    head[127] = '\n';
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(head, 1, 128, f) != 128) die("cannot write", path);
    uint64_t state = 7;
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = classes ? (int64_t)(uniform(&state) * (double)strtoll(classes, NULL, 10)) : 0;
        const float x = classes ? 0 : normal(&state);
        fwrite(classes ? (const void *)&c : &x, classes ? 8 : 4, 1, f);
    }
    if (fclose(f)) die("cannot write", path);
}

/* The largest difference, as a part of the largest number. */
static void check(const char *expected, const char *name, const char *path)
{
    char *line = NULL, *end;
    size_t space = 0;
    double far = 0, most = 0;
    long i = 0;
    FILE *f = fopen(expected, "r"), *p = fopen(path, "rb");
    if (!f || !p || fseek(p, 128, SEEK_SET)) die("cannot read", f ? path : expected);
    while (getline(&line, &space, f) > 0) {
        const size_t n = strlen(name);
        if (strncmp(line, name, n) || line[n] != ' ') continue;
        char *at = line + n;
        float x;
        for (double want; want = strtod(at, &end), end != at; at = end, i++) {
            if (fread(&x, 4, 1, p) != 1) die("it has fewer numbers", path);
            far = fmax(far, fabs(want - (double)x)), most = fmax(most, fabs(want));
        }
    }
    if (!i) die("is not there", name);
    if (getc(p) != EOF) die("it has more numbers", path);
    printf("%.3g\n", far / most);
}

int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], "make")) make(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
    else if (argc > 3 && !strcmp(argv[1], "data")) npy(argv[2], argv[3], argc > 4 ? argv[4] : NULL);
    else if (argc > 4 && !strcmp(argv[1], "check")) check(argv[2], argv[3], argv[4]);
    else die("usage", "make | data | check");
    return 0;
}
