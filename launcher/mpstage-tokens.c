/* mpstage-tokens: texts to files of token ids, and back. See mpstage-tokens(1). One thread. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/mem.h"
#include "base/out.h"
#include "base/text.h"
#include "cli.h"
#include "data/documents.h"
#include "data/token_file.h"

enum { MAX_TEXT = 1 << 30, PIECE = 1 << 16 };

/* A parsed command line, and what it writes. end: the token behind each document; -1: none. bytes: of a number. */
struct tokens_job {
    const char *tokenizer, *end_text, *type;
    bool decode;
    struct tokenizer *t;
    int64_t end;
    int bytes;
    struct out out;
    struct token_ids ids;                                 /* of one document */
    uint64_t documents, tokens, text_bytes;
};

/* ---- the command line ------------------------------------------------------------------------ */

static void option_take(struct tokens_job *j, int c, const char *arg)
{
    switch (c) {
    case TOKENS_TOKENIZER: j->tokenizer = arg; break;
    case TOKENS_END: j->end_text = arg; break;
    case TOKENS_TYPE: j->type = arg; break;
    default: j->decode = true;
    }
}

/* 0: continue; 1: finished, as after --help; -1: *e. */
static int parse(struct tokens_job *j, int argc, char **argv, struct err *e)
{
    int c;
    while ((c = cli_next(&cli_tokens, argc, argv, e)) >= 0) option_take(j, c, optarg);
    if (c != CLI_END) return c == CLI_FINISHED ? 1 : -1;
    if (!j->tokenizer) return err_set(e, E_USAGE, "no tokenizer: use -t FILE (see mpstage-tokens --help)");
    if (argc - optind < 2) return err_set(e, E_USAGE, "expected IN and OUT (see mpstage-tokens --help)");
    if (j->decode && (argc - optind > 2 || j->end_text))
        return err_set(e, E_USAGE, "--decode takes one file, and no --end");
    return 0;
}

/* The token that --end names. */
static int end_find(struct tokens_job *j, struct err *e)
{
    struct token_ids ids = {0};
    j->end = -1;
    if (!j->end_text) return 0;
    int bad = tokenizer_encode(j->t, j->end_text, strlen(j->end_text), false, &ids, e);
    if (!bad && ids.n != 1)
        bad = err_set(e, E_DATA, "--end: \"%s\" is %d tokens of this tokenizer, expected 1", j->end_text, ids.n);
    if (!bad) j->end = ids.v[0];
    vec_free(&ids);
    return bad;
}

static int type_find(struct tokens_job *j, struct err *e)
{
    static const char *const name[] = {"u8", "u16", "u32"};
    const int64_t size = tokenizer_size(j->t);
    j->bytes = j->decode ? 0 : size <= 1 << 16 ? 2 : 4;
    if (!j->type) return 0;
    for (int i = 0; i < 3; i++) if (!strcmp(j->type, name[i])) j->bytes = 1 << i;
    if (strcmp(j->type, name[j->bytes == 4 ? 2 : j->bytes / 2]))
        return err_set(e, E_USAGE, "--type: \"%s\" is not u8, u16 or u32", j->type);
    if (j->bytes == 4 || size <= (int64_t)1 << 8 * j->bytes) return 0;
    return err_set(e, E_USAGE, "--type: %s is too small: the tokenizer has %lld tokens", j->type, (long long)size);
}

/* ---- texts to tokens ------------------------------------------------------------------------- */

static int ids_write(struct tokens_job *j, struct err *e)
{
    uint8_t piece[PIECE];
    for (int i = 0; i < j->ids.n;) {
        size_t n = 0;
        for (; i < j->ids.n && n + 4 <= sizeof piece; i++)
            for (int b = 0; b < j->bytes; b++) piece[n++] = (uint8_t)(j->ids.v[i] >> 8 * b);
        if (out_write(&j->out, piece, n, e)) return -1;
    }
    j->tokens += (uint64_t)j->ids.n;
    return 0;
}

static int document_write(void *ctx, const struct document *d, struct err *e)
{
    struct tokens_job *j = ctx;
    struct err own = {0};
    j->ids.n = 0;
    if (tokenizer_encode(j->t, d->s, d->n, true, &j->ids, &own)) return document_fail(d, own.text, e);
    if (j->end >= 0) *vec_push(&j->ids) = (uint32_t)j->end;
    j->documents++;
    j->text_bytes += d->n;
    return ids_write(j, e);
}

static int input_write(struct tokens_job *j, struct err *e)
{
    struct text t = {0};
    int bad = text_read_any(&t, "/dev/stdin", MAX_TEXT, e) ||
              document_write(j, &(struct document){"/dev/stdin", 0, t.s ? t.s : "", t.n}, e);
    text_free(&t);
    return bad ? -1 : 0;
}

/* A list of texts without an OUT would replace the last text. */
static int out_check(char **in, int n, const char *path, struct err *e)
{
    struct stat a, b;
    if (!strcmp(path, "-")) return err_set(e, E_USAGE, "OUT: tokens go to a file, not to standard output");
    if (text_ends(path, ".txt") || text_ends(path, ".jsonl"))
        return err_set(e, E_USAGE, "OUT: %.300s has the name of a text", path);
    for (int i = 0; i < n; i++)
        if (!stat(in[i], &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return err_set(e, E_USAGE, "OUT: %.300s is an IN, too", path);
    return 0;
}

static int encode(struct tokens_job *j, char **in, int n, const char *path, struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    if (out_check(in, n, path, e) || out_place(path, &at, e)) return -1;
    int bad = out_begin(&j->out, &at, NULL, e);
    if (!bad) {
        for (int i = 0; i < n && !bad; i++)
            bad = strcmp(in[i], "-") ? documents_read(in[i], document_write, j, e) : input_write(j, e);
        if (!bad && !j->tokens) bad = err_set(e, E_DATA, "%s: a text without tokens", in[0]);
        if (bad) out_drop(&j->out);
        else bad = out_commit(&j->out, false, e);
    }
    out_place_free(&at);
    if (!bad)
        fprintf(stderr, "mpstage-tokens: %s: %llu tokens of u%d, %llu document%s, %.3f bytes a token\n", path,
                (unsigned long long)j->tokens, 8 * j->bytes, (unsigned long long)j->documents,
                j->documents == 1 ? "" : "s", (double)j->text_bytes / (double)j->tokens);
    return bad;
}

/* ---- and back -------------------------------------------------------------------------------- */

static int decode(struct tokens_job *j, const char *in, const char *path, struct err *e)
{
    struct token_file f;
    struct text t = {0};
    int64_t id[PIECE / 8];
    const int64_t size = tokenizer_size(j->t);
    if (token_file_open(in, j->bytes, size, &f, e)) return -1;
    int bad = f.n > MAX_TEXT ? err_set(e, E_DATA, "%s: %llu tokens; at most %d are decoded", in,
                                       (unsigned long long)f.n, MAX_TEXT) : 0;
    for (uint64_t i = 0, n; i < f.n && !bad; i += n) {
        n = f.n - i < PIECE / 8 ? f.n - i : PIECE / 8;
        bad = token_file_read(&f, i, n, size, id, e);
        for (uint64_t k = 0; k < n && !bad; k++) *vec_push(&j->ids) = (uint32_t)id[k];
    }
    token_file_close(&f);
    if (!bad) tokenizer_decode(j->t, j->ids.v, (size_t)j->ids.n, &t);
    if (!bad && !strcmp(path, "-")) {
        fwrite(t.s ? t.s : "", 1, t.n, stdout);
        bad = text_output_end(e);
    } else if (!bad) bad = out_file_named(path, &t, false, e);
    text_free(&t);
    return bad;
}

int main(int argc, char **argv)
{
    struct tokens_job j = {.end = -1};
    struct err e = {0};
    char clean[2400];
    int done = parse(&j, argc, argv, &e);
    if (!done) {
        char **in = argv + optind;
        const char *out = argv[argc - 1];
        done = tokenizer_open(j.tokenizer, &j.t, &e) || end_find(&j, &e) || type_find(&j, &e) ||
               (j.decode ? decode(&j, in[0], out, &e) : encode(&j, in, argc - 1 - optind, out, &e)) ? -1 : 0;
    }
    vec_free(&j.ids);
    tokenizer_close(j.t);
    if (done < 0) fprintf(stderr, "mpstage-tokens: %s\n", text_printable(e.text, clean, sizeof clean));
    return done < 0 ? e.code : 0;
}
