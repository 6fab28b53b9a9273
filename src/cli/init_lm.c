/* See init.h. The sizes are those of conf/novels.conf and of nanoGPT's small network, by the length of the text. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/out.h"
#include "cli/init.h"
#include "model/decoder.h"

enum { SMALL_TEXT = 1 << 20, LARGE_TEXT = 20 << 20, BYTES = 256, BATCH = 16, PASSES = 4, FEWEST_STEPS = 200,
       MOST_STEPS = 5000, LONGEST = 1024 };
static const double HELD_OUT = 0.05;

/* What was found: a folder of Hugging Face, or texts. */
struct found_text { bool model, tokenizer; struct decoder d; VEC(char *) file; uint64_t bytes; };

static bool is_text_name(const char *s)
{
    const size_t n = strlen(s);
    return *s != '.' && n > 4 && !strcmp(s + n - 4, ".txt");
}

static int by_path(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int text_take(struct found_text *f, const char *path, struct err *e)
{
    uint64_t size;
    const int fd = file_open(path, &size, e);
    if (fd < 0) return -1;
    close(fd);
    f->bytes += size;
    *vec_push(&f->file) = mem_strdup(path);
    return 0;
}

static int folder_take(struct found_text *f, const char *dir, struct err *e)
{
    DIR *d = opendir(dir);
    int bad = 0;
    if (!d) return file_missing(dir, e);
    for (const struct dirent *x; !bad && (x = readdir(d)) != NULL;) {
        if (!is_text_name(x->d_name)) continue;
        struct text path = {0};
        text_add(&path, "%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", x->d_name);
        bad = text_take(f, path.s, e);
        text_free(&path);
    }
    closedir(d);
    if (f->file.n) qsort(f->file.v, (size_t)f->file.n, sizeof *f->file.v, by_path);
    if (bad || f->file.n) return bad;
    return err_set(e, E_DATA, "%s: has neither a config.json nor files *.txt", dir);
}

static int look(const char *path, struct found_text *f, struct err *e)
{
    struct stat st;
    struct text config = {0};
    if (stat(path, &st)) return file_missing(path, e);
    if (!S_ISDIR(st.st_mode)) return text_take(f, path, e);
    text_add(&config, "%s/config.json", path);
    f->model = !access(config.s, F_OK);
    config.n = 0;
    text_add(&config, "%s/tokenizer.json", path);
    f->tokenizer = !access(config.s, F_OK);
    text_free(&config);
    return f->model ? decoder_read(path, 1, &f->d, e) : folder_take(f, path, e);
}

static void texts_add(const struct found_text *f, struct text *t)
{
    for (int i = 0; i < f->file.n; i++) {
        text_add(t, "%s", i ? ",\n                  " : f->file.n > 1 ? "{" : "");
        init_path_add(t, f->file.v[i]);
    }
    text_add(t, "%s", f->file.n > 1 ? "}" : "");
}

static void next_add(struct text *t)
{
    text_add(t, "#   mpstaged -c FILE --check-config            checks everything\n"
                "#   mpirun -np 2 mpstaged -c FILE              trains in two processes\n"
                "#   mpstaged -c FILE --generate - --prompt \"Once\"   continues a text\n"
                "# mpstaged.conf(5) has all settings.\n");
}

/* no_decay: patterns of norms and biases, which do not decay. */
static void training_add(struct text *t, int batch, int split, long long steps, const char *rate, const char *no_decay)
{
    text_add(t, "train {\n    # A batch goes through the stages in micro-batches of split_size sequences.\n"
                "    batch_size = %d  split_size = %d\n    steps = %lld  evaluate_every = %lld\n"
                "    optimizer = \"adamw\"  beta2 = 0.95  weight_decay = 0.1  clip_norm = 1\n"
                "    # norms and biases do not decay\n"
                "    weight_decay_factors = {%s}\n"
                "    # warms up, then falls to a tenth along a cosine\n"
                "    learning_rate = %s  learning_rate_end = %s  schedule = \"cosine\"\n    warmup_steps = %lld\n}\n",
             batch, split, steps, steps / 4, no_decay, rate, *rate == '1' ? "1e-4" : "2e-6", steps / 20);
    text_add(t, "# One stage per process, partitioned so that all take the same time.\n"
                "pipeline { schedule = \"1f1b\"  partition = \"auto\"  stages = 2 }\n"
                "checkpoint { every_seconds = 600 }\n");
}

static void held_out_add(struct text *t)
{
    text_add(t, "    # test_text = FILE: a text to test with; without it this share of the\n"
                "    # sequences is held out\n    validation = %g\n}\n", HELD_OUT);
}

static void scratch_add(const struct found_text *f, const char *name, struct text *t)
{
    char bytes[32];
    const int wide = f->bytes < SMALL_TEXT ? 128 : f->bytes < LARGE_TEXT ? 192 : 384,
              layers = f->bytes < LARGE_TEXT ? 4 : 6;
    long long steps = (long long)(PASSES * f->bytes / (BATCH * BYTES));
    steps = steps < FEWEST_STEPS ? FEWEST_STEPS : steps > MOST_STEPS ? MOST_STEPS : steps;
    text_add(t, "# Learns %s of text in %d file%s, byte by byte.\n", text_bytes(f->bytes, bytes), f->file.n,
             f->file.n == 1 ? "" : "s");
    next_add(t);
    text_add(t, "run { name = \"%s\" }\nmodel {\n"
                "    # also mistral, qwen2, qwen3, gpt2; input: the length of a sequence\n"
                "    network = \"llama\"  input = {256}\n"
                "    # 256: bytes. For longer tokens set data.tokenizer to a tokenizer.json, and\n"
                "    # this to at least its size.\n    vocab_size = %d\n"
                "    hidden_size = %d  intermediate_size = %d\n    num_hidden_layers = %d  num_attention_heads = 6\n"
                "    tie_word_embeddings = yes\n}\n", name, BYTES, wide == 128 ? 192 : wide,
             wide == 128 ? 384 : wide * 8 / 3, layers);
    text_add(t, "data {\n    source = \"text\"\n    train_text = ");
    texts_add(f, t);
    text_add(t, "\n");
    held_out_add(t);
    training_add(t, BATCH, BATCH / 4, steps, "1e-3", "\"*norm*=0\"");
}

static void folder_add(const struct found_text *f, const char *folder, const char *name, struct text *t)
{
    const long long points = f->d.context < LONGEST ? f->d.context : LONGEST;
    text_add(t, "# Fine-tunes %s: %lld layers of %lld channels, a vocabulary of %lld, a context of %lld.\n", name,
             (long long)f->d.layers, (long long)f->d.hidden_size, (long long)f->d.vocab_size, (long long)f->d.context);
    next_add(t);
    text_add(t, "run { name = \"%s\" }\nmodel {\n    # network, weights and tokenizer\n    folder = ", name);
    init_path_add(t, folder);
    text_add(t, "\n    # the length of a sequence, at most the context\n    input = {%lld}\n"
                "    # of the weights that RUN/model gets: as in the folder, or fp32, bf16, fp16\n"
                "    save_dtype = \"auto\"\n}\n", points);
    text_add(t, "data {\n    source = \"text\"\n    # YOUR TEXT: a file, or {\"one.txt\", \"another.txt\"}\n"
                "    train_text = \"train.txt\"\n");
    if (!f->tokenizer && f->d.vocab_size == BYTES) text_add(t, "    tokenizer = \"bytes\"\n");
    else if (!f->tokenizer) text_add(t, "    # the folder has none: a tokenizer.json, or a folder that has one\n"
                                        "    tokenizer = \"tokenizer.json\"\n");
    held_out_add(t);
    training_add(t, BATCH, 1, FEWEST_STEPS, "2e-5",
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
        name = init_name(path, ".txt", "text");
        text_add(&own, "%s.conf", name);
        if (!file) file = own.s;
        if (f.model) folder_add(&f, path, name, &conf);
        else scratch_add(&f, name, &conf);
        bad = init_file(file, &conf, e);
    }
    if (!bad && f.model) text_add(out, "%s: a %s; next: set data.train_text in it\n", file, f.d.family->name);
    if (!bad && !f.model)
        text_add(out, "%s: %d text%s, a twentieth to test with; next: mpstaged -c %s --check-config\n", file, f.file.n,
                 f.file.n == 1 ? "" : "s", file);
    for (int i = 0; i < f.file.n; i++) free(f.file.v[i]);
    vec_free(&f.file);
    free(name);
    text_free(&conf);
    text_free(&own);
    return bad ? -1 : 0;
}
