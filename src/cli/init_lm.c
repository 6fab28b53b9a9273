/* See init.h. The sizes are those of conf/novels.conf and of nanoGPT's small network, by the length of the text. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/file_kind.h"
#include "base/out.h"
#include "cli/init.h"
#include "data/documents.h"
#include "model/decoder.h"

enum { SMALL_TEXT = 1 << 20, LARGE_TEXT = 20 << 20, BYTES = 256, POINTS = 256, BATCH = 16, PASSES = 4,
       FEWEST_STEPS = 200, MOST_STEPS = 5000, LONGEST = 1024 };
static const double HELD_OUT = 0.05;

/* What was found: a folder of Hugging Face, records, or texts. */
struct found_text { bool model, tokenizer, records; struct decoder d; int n_files; uint64_t bytes; };

static int texts_take(struct found_text *f, const char *path, struct err *e)
{
    struct document_files texts;
    int bad = document_files_find(path, &texts, e);
    for (int i = 0; i < texts.of.n && !bad; i++) {
        uint64_t size;
        const int fd = file_open(texts.of.v[i], &size, e);
        char first[FILE_KIND_BYTES];
        const size_t n = size < sizeof first ? (size_t)size : sizeof first;
        if (fd < 0) { bad = -1; break; }
        bad = file_read_at(fd, texts.of.v[i], 0, first, n, e) || file_kind_text(texts.of.v[i], first, n, e);
        close(fd);
        f->bytes += size;
    }
    f->n_files = texts.of.n;
    document_files_free(&texts);
    if (!bad && f->bytes <= 2 * POINTS)
        bad = err_set(e, E_DATA, "%s: %llu bytes of text, too few to learn from", path, (unsigned long long)f->bytes);
    return bad;
}

/* Of the first line: is it a record that is no text? Ends the reading. */
static int record_look(void *ctx, const struct document *line, struct err *e)
{
    static const char *const keys[] = {"messages", "completion", "input_ids", "conversations"};
    struct found_text *f = ctx;
    json_t *o = json_loadb(line->s, line->n, JSON_ALLOW_NUL, NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) f->records |= json_object_get(o, keys[i]) != NULL;
    json_decref(o);
    return -1;
}

static int look(const char *path, struct found_text *f, struct err *e)
{
    struct stat st;
    struct text config = {0};
    if (stat(path, &st)) return file_missing(path, e);
    if (text_ends(path, ".jsonl")) document_lines_read(path, record_look, f, NULL);
    if (!S_ISDIR(st.st_mode)) return texts_take(f, path, e);
    text_add(&config, "%s/config.json", path);
    f->model = !access(config.s, F_OK);
    config.n = 0;
    text_add(&config, "%s/tokenizer.json", path);
    f->tokenizer = !access(config.s, F_OK);
    text_free(&config);
    return f->model ? decoder_read(path, 1, &f->d, e) : texts_take(f, path, e);
}

static void next_add(struct text *t)
{
    text_add(t, "#   mpstaged -c FILE --check-config            checks everything\n"
                "#   mpirun -np 2 mpstaged -c FILE              trains in two processes\n"
                "#   mpstaged -c FILE --generate - --prompt \"Once\"   continues a text\n"
                "# mpstaged.conf(5) has all settings.\n");
}

/* no_decay: patterns of norms and biases, which do not decay. */
static void training_add(struct text *t, int split, long long steps, double rate, const char *no_decay)
{
    text_add(t, "train {\n    # A batch goes through the stages in micro-batches of split_size sequences.\n"
                "    batch_size = %d  split_size = %d\n    steps = %lld  evaluate_every = %lld\n"
                "    optimizer = \"adamw\"  beta2 = 0.95  weight_decay = 0.1  clip_norm = 1\n"
                "    # norms and biases do not decay\n"
                "    weight_decay_factors = {%s}\n"
                "    # warms up, then falls to a tenth along a cosine\n"
                "    learning_rate = %g  learning_rate_end = %g  schedule = \"cosine\"\n    warmup_steps = %lld\n}\n",
             BATCH, split, steps, steps / 4, no_decay, rate, rate / 10, steps / 20);
    text_add(t, "# One stage per process, partitioned so that all take the same time.\n"
                "pipeline { schedule = \"1f1b\"  partition = \"auto\"  stages = 2 }\n"
                "checkpoint { every_seconds = 600 }\n");
}

static void held_out_add(struct text *t, bool records)
{
    text_add(t, "    # this share of the %s is held out for tests; or remove it, and set\n"
                "    # test_%s\n    validation = %g\n}\n", records ? "records" : "sequences",
             records ? "jsonl to another file" : "text to another text", HELD_OUT);
}

static void scratch_add(const struct found_text *f, const char *path, const char *name, struct text *t)
{
    char bytes[32];
    const struct form { int wide, inner, layers; } *m = &(const struct form[]){{192, 384, 4}, {192, 512, 4},
        {384, 1024, 6}}[(f->bytes >= SMALL_TEXT) + (f->bytes >= LARGE_TEXT)];
    long long steps = (long long)(PASSES * f->bytes / (BATCH * BYTES));
    steps = steps < FEWEST_STEPS ? FEWEST_STEPS : steps > MOST_STEPS ? MOST_STEPS : steps;
    text_add(t, "# Learns %s of %s in %d file%s, byte by byte.\n", text_bytes(f->bytes, bytes),
             f->records ? "records" : "text", f->n_files, f->n_files == 1 ? "" : "s");
    next_add(t);
    text_add(t, "run { name = \"%s\" }\nmodel {\n"
                "    # also mistral, qwen2, qwen3, gpt2; input: the length of a sequence\n"
                "    network = \"llama\"  input = {%d}\n"
                "    # 256: bytes. For longer tokens set data.tokenizer to a tokenizer.json, and\n"
                "    # this to at least its size.\n    vocab_size = %d\n"
                "    hidden_size = %d  intermediate_size = %d\n    num_hidden_layers = %d  num_attention_heads = 6\n"
                "    tie_word_embeddings = yes\n}\n", name, POINTS,
             BYTES + f->records, m->wide, m->inner, m->layers);
    text_add(t, "data {\n    source = \"%s\"\n    train_%s = ", f->records ? "jsonl" : "text",
             f->records ? "jsonl" : "text");
    init_path_add(t, path);
    text_add(t, "\n%s", !f->records ? "" :
             "    # bytes, and a token that ends answers and texts\n    tokenizer = \"bytes\"  end_token = 256\n"
             "    # what stands around messages: also chatml, llama3, llama2, zephyr, or a file\n    chat = \"plain\"\n"
             "    # several records in a sample; of longer ones the beginning\n"
             "    packing = \"first_fit\"  too_long = \"cut\"\n");
    held_out_add(t, f->records);
    training_add(t, BATCH / 4, steps, 1e-3, "\"*norm*=0\"");
}

static void folder_add(const struct found_text *f, const char *folder, const char *name, struct text *t)
{
    long long points = f->d.context < LONGEST ? f->d.context : LONGEST;
    struct decoder d;
    for (struct err e = {0}; points > 1 && decoder_read(folder, points, &d, &e); e = (struct err){0}) points /= 2;
    text_add(t, "# Fine-tunes %s: %lld layers of %lld channels, a vocabulary of %lld, a context of %lld.\n", name,
             (long long)f->d.layers, (long long)f->d.hidden_size, (long long)f->d.vocab_size, (long long)f->d.context);
    next_add(t);
    text_add(t, "run { name = \"%s\" }\nmodel {\n    # network, weights and tokenizer\n    folder = ", name);
    init_path_add(t, folder);
    text_add(t, "\n    # the length of a sequence, at most the context\n    input = {%lld}\n"
                "    # of the weights that RUN/model gets: as in the folder, or fp32, bf16, fp16\n"
                "    save_dtype = \"auto\"\n}\n"
                "# Adapters alone take a fraction of the memory, and ten times the learning rate.\n"
                "# lora { rank = 16  alpha = 32 }\n", points);
    text_add(t, "data {\n    source = \"text\"\n    # YOUR TEXT: a file, or {\"one.txt\", \"another.txt\"}\n"
                "    train_text = \"train.txt\"\n"
                "    # or chats and other records, a JSON object in each line, in place of both lines above:\n"
                "    # source = \"jsonl\"  train_jsonl = \"chats.jsonl\"  chat = \"chatml\"\n"
                "    # packing = \"first_fit\"  too_long = \"cut\"\n");
    if (!f->tokenizer && f->d.vocab_size == BYTES) text_add(t, "    tokenizer = \"bytes\"\n");
    else if (!f->tokenizer) text_add(t, "    # the folder has none: a tokenizer.json, or a folder that has one\n"
                                        "    tokenizer = \"tokenizer.json\"\n");
    held_out_add(t, false);
    training_add(t, 1, FEWEST_STEPS, 2e-5,
                 f->d.family->gpt2 ? "\"*ln_*=0\", \"*.bias=0\""
                 : f->d.qkv_bias || f->d.o_bias || f->d.mlp_bias ? "\"*norm*=0\", \"*.bias=0\"" : "\"*norm*=0\"");
}

int init_lm_write(const char *path, const char *file, struct text *out, struct err *e)
{
    struct found_text f = {0};
    struct text conf = {0}, own = {0};
    char *name = NULL;
    int bad = look(path, &f, e);
    if (!bad) {
        name = init_name(path, text_ends(path, ".jsonl") ? ".jsonl" : ".txt", "text");
        text_add(&own, "%s.conf", name);
        if (!file) file = own.s;
        if (f.model) folder_add(&f, path, name, &conf);
        else scratch_add(&f, path, name, &conf);
        bad = init_file(file, &conf, e);
    }
    if (!bad && f.model) text_add(out, "%s: a %s; next: set data.train_text in it\n", file, f.d.family->name);
    if (!bad && !f.model)
        text_add(out, "%s: %d %s%s, a twentieth to test with; next: mpstaged -c %s --check-config\n", file, f.n_files,
                 f.records ? "file of records" : "text", f.n_files == 1 ? "" : "s", file);
    free(name);
    text_free(&conf);
    text_free(&own);
    return bad ? -1 : 0;
}
