/* See documents.h. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/file_kind.h"
#include "base/text.h"
#include "data/documents.h"

enum { MAX_DOCUMENT = 1 << 30 };

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int document_files_find(const char *path, struct document_files *out, struct err *e)
{
    struct stat st;
    *out = (struct document_files){0};
    if (stat(path, &st)) return file_missing(path, e);
    if (!S_ISDIR(st.st_mode)) {
        *vec_push(&out->of) = mem_strdup(path);
        return 0;
    }
    DIR *d = opendir(path);
    if (!d) return file_missing(path, e);
    for (const struct dirent *x; (x = readdir(d)) != NULL;) {
        struct text file = {0};
        if (*x->d_name == '.' || !(text_ends(x->d_name, ".txt") || text_ends(x->d_name, ".jsonl"))) continue;
        text_add(&file, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", x->d_name);
        *vec_push(&out->of) = file.s;
    }
    closedir(d);
    if (!out->of.n) return err_set(e, E_DATA, "%s: has no files *.txt or *.jsonl", path);
    qsort(out->of.v, (size_t)out->of.n, sizeof *out->of.v, by_path);
    return 0;
}

void document_files_free(struct document_files *f)
{
    for (int i = 0; i < f->of.n; i++) free(f->of.v[i]);
    vec_free(&f->of);
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

int document_fail(const struct document *d, const char *why, struct err *e)
{
    if (d->line) return err_set(e, E_DATA, "%s:%ld: %s", d->file, d->line, why);
    return err_set(e, E_DATA, "%s: %s", d->file, why);
}

struct text_taker { document_take take; void *ctx; };

static int record_read(void *ctx, const struct document *line, struct err *e)
{
    const struct text_taker *to = ctx;
    json_error_t why;
    json_t *o = json_loadb(line->s, line->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    const json_t *text = json_object_get(o, "text");
    const struct document d = {line->file, line->line, json_string_value(text), json_string_length(text)};
    int bad = !o ? document_fail(line, why.text, e)
            : d.s ? to->take(to->ctx, &d, e) : document_fail(line, "expected {\"text\": \"..\"}", e);
    json_decref(o);
    return bad;
}

int document_lines_read(const char *file, document_take take, void *ctx, struct err *e)
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
        if (i == 1) bad = file_kind_text(file, line, (size_t)n, e);
        if (i == 1 && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) memmove(line, line + 3, (size_t)(n -= 3));
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (!bad && strspn(line, " \t") < (size_t)n) bad = take(ctx, &(struct document){file, i, line, (size_t)n}, e);
    }
    if (!bad && ferror(f)) bad = err_set(e, E_IO, "%s: %m", file);
    free(line);
    fclose(f);
    return bad;
}

static int file_read(const char *file, document_take take, void *ctx, struct err *e)
{
    struct text t = {0};
    if (text_ends(file, ".jsonl"))
        return document_lines_read(file, record_read, &(struct text_taker){take, ctx}, e);
    int bad = text_read_file(&t, file, MAX_DOCUMENT, e) ||
              take(ctx, &(struct document){file, 0, t.s ? t.s : "", t.n}, e);
    text_free(&t);
    return bad ? -1 : 0;
}

int documents_read(const char *path, document_take take, void *ctx, struct err *e)
{
    struct document_files f;
    int bad = document_files_find(path, &f, e);
    for (int i = 0; i < f.of.n && !bad; i++) bad = file_read(f.of.v[i], take, ctx, e);
    document_files_free(&f);
    return bad ? -1 : 0;
}
