/* mpstage-tokens: texts to files of token ids, and back. See mpstage-tokens(1). One thread. */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/out.h"
#include "base/text.h"
#include "cli.h"
#include "conf/opts.h"
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

/* line: of a file of records; 0: the document is the whole file. */
static int document_write(struct tokens_job *j, const char *file, long line, const char *s, size_t n, struct err *e)
{
    struct err own = {0};
    char where[24] = "";
    j->ids.n = 0;
    if (tokenizer_encode(j->t, s, n, true, &j->ids, &own)) {
        if (line) snprintf(where, sizeof where, ":%ld", line);
        return err_set(e, own.code, "%s%s: %s", file, where, own.text);
    }
    if (j->end >= 0) *vec_push(&j->ids) = (uint32_t)j->end;
    j->documents++;
    j->text_bytes += n;
    return ids_write(j, e);
}

static int text_write(struct tokens_job *j, const char *file, struct err *e)
{
    struct text t = {0};
    int bad = (strcmp(file, "-") ? text_read_file(&t, file, MAX_TEXT, e)
                                 : text_read_any(&t, "/dev/stdin", MAX_TEXT, e)) ||
              document_write(j, file, 0, t.s ? t.s : "", t.n, e);
    text_free(&t);
    return bad ? -1 : 0;
}

static int record_write(struct tokens_job *j, const char *file, long line, const char *s, size_t n, struct err *e)
{
    json_error_t why;
    json_t *o = json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    const json_t *text = json_object_get(o, "text");
    int bad = json_is_string(text)
                  ? document_write(j, file, line, json_string_value(text), json_string_length(text), e)
                  : err_set(e, E_DATA, "%s:%ld: expected {\"text\": \"..\"}", file, line);
    json_decref(o);
    return bad;
}

/* A file of records is read line by line, so it may be larger than memory. */
static int records_write(struct tokens_job *j, const char *file, struct err *e)
{
    uint64_t size;
    const int fd = file_open(file, &size, e);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = 0;
    int bad = 0;
    if (fd < 0) return -1;
    if (!f) return close(fd), err_set(e, E_INTERNAL, "%s: %m", file);
    for (long i = 1; !bad && (n = getline(&line, &cap, f)) > 0; i++) {
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n) bad = record_write(j, file, i, line, (size_t)n, e);
    }
    if (!bad && ferror(f)) bad = err_set(e, E_IO, "%s: %m", file);
    free(line);
    fclose(f);
    return bad;
}

static int encode(struct tokens_job *j, char **in, int n, const char *path, struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    if (out_place(path, &at, e)) return -1;
    int bad = out_begin(&j->out, &at, NULL, e);
    if (!bad) {
        for (int i = 0; i < n && !bad; i++)
            bad = opts_ends(in[i], ".jsonl") ? records_write(j, in[i], e) : text_write(j, in[i], e);
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
    if (!bad) bad = tokenizer_decode(j->t, j->ids.v, (size_t)j->ids.n, &t, e);
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
