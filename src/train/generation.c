/* See generation.h. */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "data/prompts.h"
#include "data/chat.h"
#include "job/generation_sizes.h"
#include "model/decoder.h"
#include "train/generation.h"

/* A prompt and its continuation. entered: how many of its tokens the network has seen. */
struct sequence {
    const struct prompt *prompt;
    int64_t index, entered;
    VEC(int64_t) id;
    VEC(double) logprob;                                  /* of each new token, with generate.logprobs */
};
struct ranked { float x; int64_t id; };
/* waits: its last batch has not come back */
struct slot_group { int first, n; bool waits; };

struct generation {
    pthread_mutex_t lock;
    const struct conf *conf;
    const struct prompts *prompts;
    struct tokenizer *tokenizer;                          /* NULL: there is none, so lines have no text */
    int64_t vocabulary, context, n_slots;
    int prefill_rows;
    int64_t *end; int n_ends;                             /* tokens that end a text */
    struct sequence *of;                                  /* [slot]; prompt NULL: free */
    struct slot_group *group; int n_groups, turn;
    int *sent, n_sent;                                    /* groups whose batch has not come back, oldest first */
    int next;                                             /* the first prompt without a slot */
    char **line; int n_lines, n_done;                     /* of each prompt; those written; those that have ended */
    struct ranked *rank; double *p;                       /* scratch for drawing */
    struct text text;
    struct out out;
    bool between;                                         /* of generate.every_steps */
    bool open, failed;                                    /* failed: the run ends, and nothing more is sent */
    struct generation_sums sums;
};

/* ---- which tokens next --------------------------------------------------------------------------------- */

static int64_t token_at(const struct sequence *s, int64_t position)
{
    const int64_t n = s->prompt->id.n;
    return position < n ? s->prompt->id.v[position] : s->id.v[position - n];
}

static void pad(const struct generation *g, int64_t *id, int from, int to)
{
    for (int i = from; i < to; i++) id[i] = prompt_sample_id((struct prompt_sample){0, 0, g->n_slots});
}

static int64_t enter(const struct generation *g, struct sequence *s)
{
    const int64_t at = s->entered++;
    return prompt_sample_id((struct prompt_sample){token_at(s, at), at, s - g->of});
}

/* All tokens of a prompt but the last one, whose logits are needed. */
static bool prefill(struct generation *g, const struct slot_group *k, int64_t *id)
{
    for (int i = k->first; i < k->first + k->n; i++) {
        struct sequence *s = &g->of[i];
        int rows = 0;
        while (s->prompt && rows < g->prefill_rows && s->entered < s->prompt->id.n - 1) id[rows++] = enter(g, s);
        pad(g, id, rows, g->prefill_rows);
        if (rows) return true;
    }
    return false;
}

static bool decode(struct generation *g, const struct slot_group *k, int rows, int64_t *id)
{
    bool any = false;
    for (int i = 0; i < k->n; i++) {
        struct sequence *s = &g->of[k->first + i];
        any |= s->prompt != NULL;
        if (s->prompt) id[i] = enter(g, s);
        else pad(g, id, i, i + 1);
    }
    pad(g, id, k->n, rows);
    return any;
}

static void slots_fill(struct generation *g, const struct slot_group *k)
{
    for (int i = k->first; i < k->first + k->n && g->next < g->prompts->of.n; i++)
        if (!g->of[i].prompt) {
            g->of[i].prompt = &g->prompts->of.v[g->next];
            g->of[i].index = g->next++;
            g->of[i].entered = g->of[i].id.n = g->of[i].logprob.n = 0;
        }
}

static enum generation_next batch_next(struct generation *g, int64_t *id)
{
    for (int i = 0; i < g->n_groups && !g->failed; i++) {
        const int at = (g->turn + i) % g->n_groups;
        struct slot_group *k = &g->group[at];
        if (k->waits) continue;
        slots_fill(g, k);
        const bool prefills = prefill(g, k, id);
        if (!prefills && !decode(g, k, g->group[0].n, id)) continue;
        g->turn = (at + 1) % g->n_groups;
        if (prefills) return GENERATION_PREFILLS;
        k->waits = true;
        g->sent[g->n_sent++] = at;
        return GENERATION_DECODES;
    }
    return g->n_sent || g->failed || (!g->open && g->text.n) ? GENERATION_WAITS : GENERATION_ENDS;
}

enum generation_next generation_next(struct generation *g, int64_t *id)
{
    pthread_mutex_lock(&g->lock);
    const enum generation_next next = batch_next(g, id);
    pthread_mutex_unlock(&g->lock);
    return next;
}

/* ---- drawing ------------------------------------------------------------------------------------------- */

static int rank_compare(const void *a, const void *b)
{
    const struct ranked *s = a, *t = b;
    return s->x != t->x ? (s->x < t->x) - (s->x > t->x) : (s->id > t->id) - (s->id < t->id);
}

/* A uniform number in [0, 1), a function of seed, prompt and position. */
static double uniform(const struct generation *g, int64_t prompt, int64_t position)
{
    uint32_t w[4];
    rng_words((struct rng_at){(uint64_t)g->conf->generate.seed, RNG_GENERATE, 0, (uint32_t)prompt,
                              (uint32_t)position}, 0, w);
    return ((double)(w[0] >> 5) * 67108864 + (w[1] >> 6)) / 9007199254740992;
}

/* top_k first, then top_p of the probabilities that it leaves, as transformers does. */
static int64_t draw(const struct generation *g, const float *x, int64_t most, double u)
{
    const struct conf *c = g->conf;
    const double t = c->generate.temperature;
    int64_t n = g->vocabulary, kept = n;
    double all = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) g->rank[i].x = x[i], g->rank[i].id = i;
    if (c->generate.top_k || c->generate.top_p < 1) qsort(g->rank, (size_t)n, sizeof *g->rank, rank_compare);
    if (c->generate.top_k && c->generate.top_k < n) kept = n = c->generate.top_k;
    for (int64_t i = 0; i < n; i++) all += g->p[i] = exp(((double)g->rank[i].x - x[most]) / t);
    for (int64_t i = 0; i < n && c->generate.top_p < 1; i++) {
        sum += g->p[i];
        if (sum < c->generate.top_p * all) continue;
        kept = i + 1;
        all = sum;
        break;
    }
    sum = 0;
    for (int64_t i = 0; i < kept; i++) {
        sum += g->p[i];
        if (u * all < sum) return g->rank[i].id;
    }
    return g->rank[kept - 1].id;
}

/* The logarithm of softmax(x)[id], whatever temperature the token was drawn with. */
static double logprob_of(const float *x, int64_t n, int64_t most, int64_t id)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++) all += exp((double)x[i] - x[most]);
    return (double)x[id] - x[most] - log(all);
}

/* -1: the logits have no largest number. */
static int64_t most_likely(const float *x, int64_t n)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) return -1;
        if (x[i] > x[most]) most = i;
    }
    return isinf(x[most]) ? -1 : most;
}

/* ---- the end of a text --------------------------------------------------------------------------------- */

static void text_of(const struct generation *g, const struct sequence *s, struct text *out)
{
    struct token_ids ids = {0};
    for (int i = 0; i < s->id.n; i++) *vec_push(&ids) = (uint32_t)s->id.v[i];
    tokenizer_decode(g->tokenizer, ids.v, (size_t)ids.n, out);
    vec_free(&ids);
}

static bool stopped(const struct generation *g, const struct sequence *s)
{
    const struct conf_texts *stop = &g->conf->generate.stop;
    struct text t = {0};
    bool found = false;
    if (!stop->n || !g->tokenizer) return false;
    text_of(g, s, &t);
    for (int i = 0; i < stop->n; i++) found |= t.n && memmem(t.s, t.n, stop->v[i], strlen(stop->v[i]));
    text_free(&t);
    return found;
}

/* NULL: it goes on. */
static const char *reason_of(const struct generation *g, const struct sequence *s)
{
    const int64_t last = s->id.v[s->id.n - 1];
    for (int i = 0; i < g->n_ends; i++) if (last == g->end[i]) return "eos";
    if (stopped(g, s)) return "stop";
    if (s->id.n >= g->conf->generate.max_tokens) return "length";
    return s->prompt->id.n + s->id.n >= g->context ? "context" : NULL;
}

static void line_make(struct generation *g, const struct sequence *s, const char *reason)
{
    json_t *ids = json_array();
    struct text t = {0};
    for (int i = 0; i < s->id.n; i++) json_array_append_new(ids, json_integer(s->id.v[i]));
    json_t *o = json_pack("{s:I,s:I,s:o}", "index", (json_int_t)s->index, "prompt_tokens",
                          (json_int_t)s->prompt->id.n, "ids", ids);
    if (g->tokenizer) text_of(g, s, &t);
    if (g->tokenizer) json_object_set_new(o, "text", json_stringn(t.n ? t.s : "", t.n));
    json_object_set_new(o, "reason", json_string(reason));
    json_t *logprobs = g->conf->generate.logprobs ? json_array() : NULL;
    for (int i = 0; i < s->logprob.n; i++) json_array_append_new(logprobs, json_real(s->logprob.v[i]));
    if (logprobs) json_object_set_new(o, "logprobs", logprobs);
    g->line[s->index] = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    text_free(&t);
}

static int lines_write(struct generation *g, struct err *e)
{
    for (; g->n_lines < g->prompts->of.n && g->line[g->n_lines]; g->n_lines++) {
        text_add(&g->text, "%s\n", g->line[g->n_lines]);
        free(g->line[g->n_lines]);
        g->line[g->n_lines] = NULL;
    }
    if (!g->open || !g->text.n) return 0;
    int bad = out_write(&g->out, g->text.s, g->text.n, e);
    g->text.n = 0;
    return bad;
}

static int sequence_end(struct generation *g, struct sequence *s, const char *reason, struct err *e)
{
    line_make(g, s, reason);
    s->prompt = NULL;
    g->n_done++;
    return lines_write(g, e);
}

/* Logits that are not finite end a run of run.generate. During training they end the text: train.nonfinite decides what
 * the next step does. */
static int row_take(struct generation *g, struct sequence *s, const float *x, struct err *e)
{
    const int64_t most = most_likely(x, g->vocabulary), position = s->prompt->id.n + s->id.n;
    if (most < 0 && g->between) return sequence_end(g, s, "nonfinite", e);
    if (most < 0)
        return err_set(e, E_NONFINITE, "generation: the logits of prompt %lld at position %lld are not finite",
                       (long long)s->index, (long long)position);
    const bool greedy = g->conf->generate.temperature <= 0;
    *vec_push(&s->id) = greedy ? most : draw(g, x, most, uniform(g, s->index, position));
    if (g->conf->generate.logprobs)
        *vec_push(&s->logprob) = logprob_of(x, g->vocabulary, most, s->id.v[s->id.n - 1]);
    g->sums.tokens++;
    const char *reason = reason_of(g, s);
    return reason ? sequence_end(g, s, reason, e) : 0;
}

int generation_rows(struct generation *g, const float *x, struct err *e)
{
    int bad = 0;
    pthread_mutex_lock(&g->lock);
    struct slot_group *k = &g->group[g->sent[0]];
    memmove(g->sent, g->sent + 1, (size_t)--g->n_sent * sizeof *g->sent);
    k->waits = false;
    for (int i = 0; i < k->n && !bad; i++)
        if (g->of[k->first + i].prompt) bad = row_take(g, &g->of[k->first + i], x + i * g->vocabulary, e);
    g->failed |= bad != 0;
    pthread_mutex_unlock(&g->lock);
    return bad;
}

static void lines_drop(struct generation *g)
{
    for (int i = 0; i < g->prompts->of.n; i++) {
        free(g->line[i]);
        g->line[i] = NULL;
    }
}

void generation_again(struct generation *g)
{
    pthread_mutex_lock(&g->lock);
    lines_drop(g);
    for (int i = 0; i < g->n_slots; i++) g->of[i].prompt = NULL;
    for (int i = 0; i < g->n_groups; i++) g->group[i].waits = false;
    g->turn = g->n_sent = g->next = g->n_lines = g->n_done = 0;
    g->text.n = 0;
    g->sums = (struct generation_sums){.prompts = g->prompts->of.n};
    pthread_mutex_unlock(&g->lock);
}

/* ---- the output, open and close ------------------------------------------------------------------------ */

void generation_take(struct generation *g, struct text *out)
{
    pthread_mutex_lock(&g->lock);
    if (!g->open && g->text.n) text_add_bytes(out, g->text.s, g->text.n);
    if (!g->open) g->text.n = 0;
    pthread_mutex_unlock(&g->lock);
}

void generation_time(struct generation *g, bool prefill, uint64_t ns)
{
    pthread_mutex_lock(&g->lock);
    *(prefill ? &g->sums.prefill_ns : &g->sums.decode_ns) += ns;
    pthread_mutex_unlock(&g->lock);
}

struct generation_sums generation_sums(struct generation *g)
{
    pthread_mutex_lock(&g->lock);
    const struct generation_sums s = g->sums;
    pthread_mutex_unlock(&g->lock);
    return s;
}

bool generation_complete(struct generation *g)
{
    pthread_mutex_lock(&g->lock);
    const bool all = g->n_done == g->prompts->of.n;
    pthread_mutex_unlock(&g->lock);
    return all;
}

int generation_commit(struct generation *g, struct err *e)
{
    if (!g->open) return 0;
    g->open = false;
    return out_commit(&g->out, false, e);
}

/* The tokens that end a text: of the folder, data.end_token, and the one that ends a template's answers. */
static int model_read(struct generation *g, struct err *e)
{
    const struct conf *c = g->conf;
    const char *folder = c->model.folder ? c->model.folder : c->model.config;
    if (folder && decoder_ends(folder, &g->end, &g->n_ends, e)) return -1;
    if ((tokenizer_known(c) || c->generate.stop.n) && tokenizer_of(c, &g->tokenizer, e)) return -1;
    const bool own = c->data.end_token >= 0;
    int64_t of_chat = -1;
    if (c->data.chat && g->tokenizer && chat_end_of(c->data.chat, g->tokenizer, &of_chat, e)) return -1;
    int64_t *end = mem_alloc((size_t)(g->n_ends + 2) * sizeof *end);
    for (int i = 0; i < g->n_ends; i++) end[i] = g->end[i];
    free(g->end);
    g->end = end;
    if (own) g->end[g->n_ends++] = c->data.end_token;
    if (of_chat >= 0) g->end[g->n_ends++] = of_chat;
    return 0;
}

int generation_open(const struct job *j, const struct out_place *at, const atomic_int *stop, struct generation **out,
                    struct err *e)
{
    const struct generation_sizes s = generation_sizes(j);
    struct generation *g = mem_alloc(sizeof *g);
    *g = (struct generation){.conf = j->conf, .prompts = j->prompts, .n_slots = s.slots, .n_groups = s.groups,
                             .prefill_rows = s.prefill_rows, .sums.prompts = j->prompts->of.n,
                             .between = j->cut_as != NULL,
                             .vocabulary = shape_count(&j->graph->tensor[j->output].shape),
                             .context = graph_input_range(j->graph, j->graph->input[1].tensor)};
    pthread_mutex_init(&g->lock, NULL);
    g->of = mem_alloc((size_t)s.slots * sizeof *g->of);
    g->group = mem_alloc((size_t)s.groups * sizeof *g->group);
    g->sent = mem_alloc((size_t)s.groups * sizeof *g->sent);
    g->line = mem_alloc((size_t)j->prompts->of.n * sizeof *g->line);
    g->rank = mem_alloc((size_t)g->vocabulary * sizeof *g->rank);
    g->p = mem_alloc((size_t)g->vocabulary * sizeof *g->p);
    for (int i = 0; i < s.groups; i++) {
        const int first = i * s.rows, left = s.slots - first;
        g->group[i] = (struct slot_group){.first = first, .n = left < s.rows ? left : s.rows};
    }
    *out = g;
    if (model_read(g, e) || (at && out_begin(&g->out, at, stop, e))) return -1;
    g->open = at != NULL;
    return 0;
}

void generation_free(struct generation *g)
{
    if (!g) return;
    if (g->open) out_drop(&g->out);
    tokenizer_close(g->tokenizer);
    for (int i = 0; i < g->n_slots; i++) vec_free(&g->of[i].id), vec_free(&g->of[i].logprob);
    lines_drop(g);
    pthread_mutex_destroy(&g->lock);
    free(g->end);
    free(g->of);
    free(g->group);
    free(g->sent);
    free(g->line);
    free(g->rank);
    free(g->p);
    text_free(&g->text);
    free(g);
}
