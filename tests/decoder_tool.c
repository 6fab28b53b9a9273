/* Tiny decoders, and what transformers and peft make of them, for tests/decoders.sh and tests/lora.sh:
 *
 *   decoder_tool folder MODELS NAME DIR    config.json and model.safetensors of a line of tests/lm/models
 *   decoder_tool adapter ADAPTERS NAME FOLDER DIR   adapter_config.json and adapter_model.safetensors of a line of
 *                                          tests/lm/adapters, for the model in FOLDER
 *   decoder_tool tensors FILE              its tensors, a line each: name and shape
 *   decoder_tool far A.npy B.npy           the largest difference of their values, by the largest value
 *   decoder_tool data DIR                  tokens.npy and labels.npy, some of which do not count
 *   decoder_tool prompt SAMPLE N           the first N tokens of a sample, and more of the same kind
 *   decoder_tool check EXPECTED NAME WHAT FILE   WHAT: gradient, FILE: what run.dump_gradients wrote; logits, FILE:
 *   what run.predict wrote. Prints a line for each tensor that is off. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/out.h"
#include "ckpt/st.h"
#include "data/npy.h"
#include "lm/values.h"

enum { V = 257, T = 32, N = 6, LINE = 1000 };

static void must(bool good, const char *what, const char *name)
{
    if (good) return;
    fprintf(stderr, "decoder_tool: %s: %s\n", name, what);
    exit(1);
}

static FILE *opened(const char *path, const char *mode)
{
    FILE *f = fopen(path, mode);
    must(f != NULL, "cannot open", path);
    return f;
}

/* ---- folders ------------------------------------------------------------------------------------- */

/* The next word of a model, from its line or from further ones, which begin with spaces; NULL: no more. */
static char *next_word(FILE *f, char line[LINE], char **save)
{
    char *word = strtok_r(NULL, " \n", save);
    if (word || !fgets(line, LINE, f) || *line != ' ') return word;
    return strtok_r(line, " \n", save);
}

/* The model's lines as config.json. */
static json_t *config_of(const char *models, const char *name)
{
    char line[LINE];
    FILE *f = opened(models, "r");
    json_t *o = NULL, *rope = json_object();
    while (!o && fgets(line, sizeof line, f)) {
        char *save, *word = strtok_r(line, " \n", &save);
        if (!word || strcmp(word, name)) continue;
        const char *family = strtok_r(NULL, " \n", &save);
        o = json_pack("{s:s,s:i}", "model_type", family, "vocab_size", V);
        family = json_string_value(json_object_get(o, "model_type"));   /* the line changes */
        json_object_set_new(rope, "rope_theta", json_real(10000));
        while ((word = next_word(f, line, &save))) {
            char *value = strchr(word, '=');
            *value++ = '\0';
            json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
            const bool turns = !strncmp(word, "rope_", 5) || strstr("factor low_freq_factor high_freq_factor "
                                                                    "original_max_position_embeddings", word);
            json_object_set_new(turns ? rope : o, word, v ? v : json_string(value));
        }
        json_object_set_new(o, strcmp(family, "gpt2") ? "max_position_embeddings" : "n_positions", json_integer(64));
        if (!strcmp(family, "mistral")) json_object_set_new(o, "sliding_window", json_null());
        if (strcmp(family, "gpt2")) json_object_set_new(o, "rope_parameters", json_incref(rope));
    }
    fclose(f);
    json_decref(rope);
    must(o != NULL, "no such model", name);
    return o;
}

static int weight_give(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    const struct st_entry *t = (const struct st_entry *)ctx + i;
    const uint64_t n = (uint64_t)shape_count(&t->shape), seed = value_seed(t->name), end = strlen(t->name);
    const float first = t->shape.n == 2 || (end > 5 && !strcmp(t->name + end - 5, ".bias")) ? 0 : 1;
    for (uint64_t k = 0; k < n; k++) ((float *)buf)[k] = value_at(seed, k) * 0.5f + first;
    return 0;
}

static int file_put(void *file, const void *p, size_t n, struct err *e)
{
    return fwrite(p, 1, n, file) == n ? 0 : err_set(e, E_IO, "cannot write");
}

static void json_write(const char *dir, const char *name, json_t *o)
{
    char path[600];
    mkdir(dir, 0755);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    must(!json_dump_file(o, path, JSON_INDENT(1)), "cannot write", path);
    json_decref(o);
}

/* The weights of a graph, or with adapters these alone. Names and shapes are the graph's. Comparison with transformers
 * and peft shows whether they are right. */
static void weights_write(const char *settings, const char *before, const char *path)
{
    struct err e = {0};
    int n = 0;
    struct conf *c = conf_parse("decoder_tool", settings, strlen(settings), &e);
    struct graph *g = c ? model_build(c, &e) : NULL;
    must(g != NULL, e.text, path);
    struct st_entry *t = calloc((size_t)g->n_params, sizeof *t);
    for (int i = 0; i < g->n_params; i++) {
        const struct param *p = &g->param[i];
        if (p->base) continue;
        t[n] = (struct st_entry){arena_printf(g->mem, "%s%s", before, p->name), F32, p->shape};
        if (p->turned) t[n].shape.d[0] = p->shape.d[1], t[n].shape.d[1] = p->shape.d[0];
        n++;
    }
    FILE *f = opened(path, "wb");
    const struct st_sink to = {file_put, f};
    must(!st_write(&to, &(struct st_body){n, t, weight_give, t, NULL}, &e) && !fclose(f), e.text, path);
    free(t);
    graph_free(g);
}

static void folder(const char *models, const char *name, const char *dir)
{
    char path[600], settings[700];
    json_write(dir, "config.json", config_of(models, name));
    snprintf(settings, sizeof settings, "model { folder = \"%s\" input = {%d} }\n", dir, T);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    weights_write(settings, "", path);
}

/* ---- adapters ------------------------------------------------------------------------------------ */

static json_t *list_of(char *words)
{
    char *save;
    json_t *list = json_array();
    for (char *w = strtok_r(words, ",", &save); w; w = strtok_r(NULL, ",", &save))
        json_array_append_new(list, json_string(w));
    return list;
}

/* The adapter's line as adapter_config.json. */
static json_t *adapter_config_of(const char *adapters, const char *name)
{
    char line[LINE];
    FILE *f = opened(adapters, "r");
    json_t *o = NULL;
    while (!o && fgets(line, sizeof line, f)) {
        char *save, *word = strtok_r(line, " \n", &save);
        if (!word || strcmp(word, name)) continue;
        o = json_pack("{s:s, s:s, s:s, s:f}", "peft_type", "LORA", "task_type", "CAUSAL_LM", "bias", "none",
                      "lora_dropout", 0.0);
        strtok_r(NULL, " \n", &save);                    /* the model */
        while ((word = strtok_r(NULL, " \n", &save))) {
            char *value = strchr(word, '=');
            *value++ = '\0';
            json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
            if (!v) v = strchr(value, ',') ? list_of(value) : json_string(value);
            json_object_set_new(o, word, v);
        }
    }
    fclose(f);
    must(o != NULL, "no such adapter", name);
    return o;
}

static void adapter(const char *adapters, const char *name, const char *model, const char *dir)
{
    char path[600], settings[1400];
    json_write(dir, "adapter_config.json", adapter_config_of(adapters, name));
    snprintf(settings, sizeof settings, "model { folder = \"%s\" input = {%d} }\nlora { init_from = \"%s\" }\n", model,
             T, dir);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    weights_write(settings, "base_model.model.", path);
}

static void tensors(const char *file)
{
    struct err e = {0};
    struct st *s = st_open(file, &e);
    must(s != NULL, e.text, file);
    for (int i = 0; i < s->n; i++) {
        printf("%s", s->t[i].name);
        for (int k = 0; k < s->t[i].shape.n; k++) printf(" %lld", (long long)s->t[i].shape.d[k]);
        printf("\n");
    }
    st_close(s);
}

/* ---- data ---------------------------------------------------------------------------------------- */

static void npy_file(const char *dir, const char *name, const int64_t *x)
{
    char path[600];
    struct text t = {0};
    const struct shape s = {2, {N, T}};
    npy_add(&t, NPY_I8, &s, x);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = opened(path, "wb");
    must(fwrite(t.s, 1, t.n, f) == t.n && !fclose(f), "cannot write", path);
    text_free(&t);
}

/* Of sample 1 no label counts, of sample 2 three, of sample 4 every second. */
static int64_t token(int sample, int at)
{
    return (int64_t)(value_word(value_seed("tokens"), (uint64_t)(sample * (T + 1) + at)) % V);
}

static void data(const char *dir)
{
    static int64_t x[N][T], y[N][T];
    for (int n = 0; n < N; n++)
        for (int i = 0; i < T; i++) {
            x[n][i] = token(n, i);
            y[n][i] = token(n, i + 1);
            if (n == 1 || (n == 2 && i >= 3) || (n == 4 && i % 2 == 0)) y[n][i] = -100;
        }
    x[0][0] = V - 1;
    npy_file(dir, "tokens.npy", &x[0][0]);
    npy_file(dir, "labels.npy", &y[0][0]);
}

/* ---- comparison ---------------------------------------------------------------------------------- */

/* Norm, and products with two vectors of known values. */
static void projections(const char *name, const float *x, uint64_t n, double p[3])
{
    p[0] = p[1] = p[2] = 0;
    for (uint64_t i = 0; i < n; i++) p[0] += (double)x[i] * x[i];
    p[0] = sqrt(p[0]);
    for (int k = 0; k < 2; k++) {
        char of[300];
        snprintf(of, sizeof of, "%s.%d", name, k);
        const uint64_t seed = value_seed(of);
        for (uint64_t i = 0; i < n; i++) p[1 + k] += (double)x[i] * value_at(seed, i);
    }
}

/* A gradient that is only rounding is small in both. */
static double limit = 1e-4;
static int compare(const char *name, const float *x, uint64_t n, const double want[3])
{
    double p[3];
    int bad = 0;
    projections(name, x, n, p);
    for (int k = 0; k < 3; k++)
        if (!(fabs(p[k] - want[k]) <= limit * fmax(want[0], 1e-2))) bad = 1;
    if (bad) printf("%s: %.6e %.6e %.6e, not %.6e %.6e %.6e\n", name, p[0], p[1], p[2], want[0], want[1], want[2]);
    return bad;
}

static int gradient_check(struct st *s, const char *name, const double want[3])
{
    struct err e = {0};
    const int i = st_find(s, name);
    if (i < 0) { printf("%s is missing\n", name); return 1; }
    const uint64_t n = (s->t[i].end - s->t[i].begin) / sizeof(float);
    float *x = malloc(n * sizeof *x);
    must(!st_read(s, i, x, &e), e.text, name);
    int bad = compare(name, x, n, want);
    free(x);
    return bad;
}

static float *npy_floats(const char *file, uint64_t *n)
{
    struct npy f;
    struct err e = {0};
    must(!npy_open(file, &f, &e), e.text, file);
    *n = (uint64_t)shape_count(&f.shape);
    float *x = malloc(*n * sizeof *x);
    must(!npy_read_float(&f, 0, *n, x, &e), e.text, file);
    npy_close(&f);
    return x;
}

static int logits_check(const char *file, const double want[3])
{
    uint64_t n;
    float *x = npy_floats(file, &n);
    int bad = compare("logits", x, n, want);
    free(x);
    return bad;
}

/* The logarithms of the probabilities of tokens at consecutive positions, from logits [1][V][T]. */
static void logprobs(const char *file, int first, int n, char **id)
{
    struct npy f;
    struct err e = {0};
    must(!npy_open(file, &f, &e), e.text, file);
    const int64_t v = f.shape.d[1], t = f.shape.d[2];
    float *x = malloc((size_t)(v * t) * sizeof *x);
    must(f.shape.n == 3 && first + n <= t, "not [1][V][T] with these positions", file);
    must(!npy_read_float(&f, 0, (uint64_t)(v * t), x, &e), e.text, file);
    for (int i = 0; i < n; i++) {
        const float *at = x + first + i;
        double all = 0;
        for (int64_t k = 0; k < v; k++) all += exp((double)at[k * t]);
        printf("%.9f\n", at[atoi(id[i]) * t] - log(all));
    }
    free(x);
    npy_close(&f);
}

static void far(const char *a, const char *b)
{
    uint64_t n, m;
    double most = 0, apart = 0;
    float *x = npy_floats(a, &n), *y = npy_floats(b, &m);
    must(n == m, "another number of values", b);
    for (uint64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)x[i]));
        if (!(fabs((double)x[i] - y[i]) <= apart)) apart = fabs((double)x[i] - y[i]);
    }
    printf("%g\n", apart / most);
    free(x);
    free(y);
}

static int check(const char *expected, const char *model, const char *what, const char *file)
{
    char line[LINE], of[100], kind[100], name[300];
    struct err e = {0};
    FILE *f = opened(expected, "r");
    const bool logits = !strcmp(what, "logits");
    struct st *s = logits ? NULL : st_open(file, &e);
    int bad = 0, seen = 0;
    must(logits || s, e.text, file);
    while (fgets(line, sizeof line, f)) {
        double want[3];
        int at = 0;
        if (sscanf(line, "%99s %99s %n", of, kind, &at) != 2 || strcmp(of, model) || strcmp(kind, what)) continue;
        if (!logits) must(sscanf(line + at, "%299s %n", name, &seen) == 1, "no name", line), at += seen;
        must(sscanf(line + at, "%lf %lf %lf", &want[0], &want[1], &want[2]) == 3, "three numbers expected", line);
        bad += logits ? logits_check(file, want) : gradient_check(s, name, want);
        seen = 1;
    }
    fclose(f);
    if (s) st_close(s);
    must(seen, "nothing expected of it", model);
    return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "folder")) folder(argv[2], argv[3], argv[4]);
    else if (argc == 6 && !strcmp(argv[1], "adapter")) adapter(argv[2], argv[3], argv[4], argv[5]);
    else if (argc == 3 && !strcmp(argv[1], "tensors")) tensors(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "far")) far(argv[2], argv[3]);
    else if (argc == 3 && !strcmp(argv[1], "data")) data(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "prompt"))
        for (int i = 0; i < atoi(argv[3]); i++) printf("%s%lld", i ? ", " : "", (long long)token(atoi(argv[2]), i));
    else if (argc > 4 && !strcmp(argv[1], "logprobs")) logprobs(argv[2], atoi(argv[3]), argc - 4, argv + 4);
    else if ((argc == 6 || argc == 7) && !strcmp(argv[1], "check")) {
        if (argc == 7) limit = atof(argv[6]);
        return check(argv[2], argv[3], argv[4], argv[5]);
    }
    else return fprintf(stderr, "usage: decoder_tool folder | data | prompt | check ...\n"), 64;
    return 0;
}
