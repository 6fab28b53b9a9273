#include "config.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/documents.h"
#include "data/token_file.h"

/* Numbers of files are little-endian, as the machine's. */
enum { LLMC_HEADER = 1024, LLMC_16 = 20240520, LLMC_32 = 20240801, IDX_HEADER = 34, WIDE_FROM = 65536 };
static const char IDX_MAGIC[9] = "MMIDIDX\0";

static uint64_t number_at(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

/* llm.c: 256 numbers of 4 bytes: magic, version, count. */
static int llmc_open(struct token_file *f, uint64_t size, const uint8_t *head, struct err *e)
{
    const bool wide = number_at(head, 4) == LLMC_32;
    const uint64_t version = number_at(head + 4, 4), count = number_at(head + 8, 4);
    if (version != (wide ? 7 : 1))
        return err_set(e, E_DATA, "%s: offset 4: version %" PRIu64 " of llm.c's token files, expected %d", f->path,
                       version, wide ? 7 : 1);
    f->bytes = wide ? 4 : 2;
    f->begin = LLMC_HEADER;
    f->n = count;
    if (size == LLMC_HEADER + count * (uint64_t)f->bytes) return 0;
    return err_set(e, E_DATA, "%s: offset 8: %" PRIu64 " tokens need a file of %" PRIu64 " bytes, this one has %"
                   PRIu64, f->path, count, LLMC_HEADER + count * (uint64_t)f->bytes, size);
}

static int raw_open(struct token_file *f, uint64_t size, int64_t vocabulary, struct err *e)
{
    if (!f->bytes) f->bytes = vocabulary <= WIDE_FROM ? 2 : 4;
    f->begin = 0;
    f->n = size / (uint64_t)f->bytes;
    if (size % (uint64_t)f->bytes == 0) return 0;
    return err_set(e, E_DATA, "%s: %" PRIu64 " bytes are no whole number of tokens of %d bytes: see data.token_type",
                   f->path, size, f->bytes);
}

/* ---- Megatron ------------------------------------------------------------------------------------ */

/* Sequences must follow one another without gaps, as Megatron's own tools write them. */
static int sequences_check(const struct token_file *f, const char *idx, const uint8_t *lengths, const uint8_t *offsets,
                           uint64_t n, uint64_t *all, struct err *e)
{
    *all = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (number_at(offsets + 8 * i, 8) != *all * (uint64_t)f->bytes)
            return err_set(e, E_DATA, "%s: sequence %" PRIu64 " does not follow the one before it; this is unsupported",
                           idx, i);
        *all += number_at(lengths + 4 * i, 4);
    }
    return 0;
}

/* Documents are ranges of sequences. */
static int idx_documents(struct token_file *f, const char *idx, const uint8_t *lengths, const uint8_t *documents,
                         uint64_t sequences, uint64_t n, struct err *e)
{
    uint64_t at = 0, token = 0;
    f->end = mem_alloc(size_mul(n + 1, sizeof *f->end));
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t first = number_at(documents + 8 * i, 8);
        if (first < at || first > sequences)
            return err_set(e, E_DATA, "%s: document %" PRIu64 " begins with sequence %" PRIu64 " of %" PRIu64, idx, i,
                           first, sequences);
        for (; at < first; at++) token += number_at(lengths + 4 * at, 4);
        if (token && (!f->n_ends || f->end[f->n_ends - 1] != token)) f->end[f->n_ends++] = token;
    }
    return 0;
}

static int idx_read(struct token_file *f, const char *idx, const uint8_t *x, uint64_t size, uint64_t tokens_size,
                    struct err *e)
{
    static const int bytes_of[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};   /* type codes of Megatron's indexed data sets */
    const uint64_t version = number_at(x + 9, 8), sequences = number_at(x + 18, 8), documents = number_at(x + 26, 8);
    const unsigned type = x[17];
    uint64_t all;
    if (version != 1) return err_set(e, E_DATA, "%s: offset 9: version %" PRIu64 ", expected 1", idx, version);
    if (type != 1 && type != 4 && type != 8)
        return err_set(e, E_DATA, "%s: offset 17: numbers of type %u, expected 1 (u8), 4 (i32) or 8 (u16)", idx, type);
    f->bytes = bytes_of[type];
    const uint64_t need = size_add(size_add(IDX_HEADER, size_mul(sequences, 12)), size_mul(documents, 8));
    if (need != size)
        return err_set(e, E_DATA, "%s: offset 18: %" PRIu64 " sequences and %" PRIu64 " documents need %" PRIu64
                       " bytes, the file has %" PRIu64, idx, sequences, documents, need, size);
    const uint8_t *lengths = x + IDX_HEADER, *offsets = lengths + 4 * sequences, *docs = offsets + 8 * sequences;
    if (sequences_check(f, idx, lengths, offsets, sequences, &all, e) ||
        idx_documents(f, idx, lengths, docs, sequences, documents, e))
        return -1;
    f->n = all;
    if (tokens_size == size_mul(all, (uint64_t)f->bytes)) return 0;
    return err_set(e, E_DATA, "%s: %" PRIu64 " tokens of %d bytes, but %s has %" PRIu64 " bytes", idx, all, f->bytes,
                   f->path, tokens_size);
}

static int idx_open(struct token_file *f, const char *idx, uint64_t tokens_size, struct err *e)
{
    uint64_t size;
    int fd = file_open(idx, &size, e), bad = -1;
    if (fd < 0) return -1;
    uint8_t *x = NULL;
    if (size < IDX_HEADER) err_set(e, E_DATA, "%s: too short for an index", idx);
    else {
        x = mem_alloc(size);
        bad = file_read_at(fd, idx, 0, x, size, e);
        if (!bad && memcmp(x, IDX_MAGIC, 9)) bad = err_set(e, E_DATA, "%s: offset 0: not a Megatron index", idx);
        if (!bad) bad = idx_read(f, idx, x, size, tokens_size, e);
    }
    free(x);
    close(fd);
    return bad;
}

/* The other file of a pair: NAME.idx beside NAME.bin. */
static char *with_end(const char *path, const char *end)
{
    const size_t n = strlen(path) - 4;
    char *s = mem_alloc(n + 5);
    memcpy(s, path, n);
    memcpy(s + n, end, 5);
    return s;
}

/* ---- opening and reading ---------------------------------------------------------------------------- */

static int any_open(struct token_file *f, int64_t vocabulary, struct err *e)
{
    uint8_t head[12] = {0};
    uint64_t size;
    if ((f->fd = file_open(f->path, &size, e)) < 0) return -1;
    char *idx = text_ends(f->path, ".bin") ? with_end(f->path, ".idx") : NULL;
    const bool pair = idx && !access(idx, F_OK);
    int bad = pair ? idx_open(f, idx, size, e) : 0;
    free(idx);
    if (pair) return bad;
    if (size >= sizeof head && file_read_at(f->fd, f->path, 0, head, sizeof head, e)) return -1;
    if (!memcmp(head, IDX_MAGIC, 8)) return err_set(e, E_DATA, "%s: an index; name its .bin file", f->path);
    const uint64_t magic = number_at(head, 4);
    if (magic == LLMC_16 || magic == LLMC_32) return llmc_open(f, size, head, e);
    return raw_open(f, size, vocabulary, e);
}

int token_file_open(const char *path, int bytes, int64_t vocabulary, struct token_file *f, struct err *e)
{
    *f = (struct token_file){.path = path, .fd = -1, .bytes = bytes};
    if (text_ends(path, ".idx")) f->path = f->own = with_end(path, ".bin");
    if (!any_open(f, vocabulary, e)) return 0;
    token_file_close(f);
    return -1;
}

/* Texts that become tokens: all of them in one file in memory, fd. */
struct text_tokens { const struct tokenizer *t; int64_t end; int fd; struct token_ids ids; uint64_t n, bytes; };

static int document_add(void *ctx, const struct document *d, struct err *e)
{
    struct text_tokens *w = ctx;
    struct err own = {0};
    w->ids.n = 0;
    if (tokenizer_encode(w->t, d->s, d->n, true, &w->ids, &own)) return document_fail(d, own.text, e);
    if (w->end >= 0) *vec_push(&w->ids) = (uint32_t)w->end;
    w->n += (uint64_t)w->ids.n;
    w->bytes += d->n;
    for (size_t at = 0, n = (size_t)w->ids.n * sizeof *w->ids.v; at < n;) {
        const ssize_t k = write(w->fd, (const char *)w->ids.v + at, n - at);
        if (k > 0) at += (size_t)k;
        else if (errno != EINTR)
            return err_set(e, E_OS, "%s: no memory for its tokens: %s", d->file, strerror(errno));
    }
    return 0;
}

int token_file_text(const struct conf_texts *texts, const struct tokenizer *t, int64_t end, struct token_file *f,
                    uint64_t *bytes, struct err *e)
{
    struct text_tokens w = {.t = t, .end = end, .fd = memfd_create("tokens", MFD_CLOEXEC)};
    *f = (struct token_file){.path = texts->v[0], .fd = w.fd, .bytes = TOKEN_BYTES_MOST};
    int bad = w.fd < 0 ? err_set(e, E_OS, "%s: no memory for its tokens: %s", f->path, strerror(errno)) : 0;
    for (int i = 0; i < texts->n && !bad; i++) bad = documents_read(texts->v[i], document_add, &w, e);
    vec_free(&w.ids);
    f->n = w.n;
    *bytes = w.bytes;
    if (bad) token_file_close(f);
    return bad ? -1 : 0;
}

/* Ids of a piece of the file. */
enum { PROBE = 1 << 14, PROBES = 64 };
int token_file_probe(const struct token_file *f, int64_t vocabulary, struct err *e)
{
    const uint64_t step = f->n / PROBES > PROBE ? f->n / PROBES : PROBE;
    int64_t *id = mem_alloc(PROBE * sizeof *id);
    int bad = 0;
    for (uint64_t at = 0; at < f->n && !bad; at += step)
        bad = token_file_read(f, at, f->n - at < PROBE ? f->n - at : PROBE, vocabulary, id, e);
    free(id);
    return bad;
}

int token_file_read(const struct token_file *f, uint64_t first, uint64_t n, int64_t vocabulary, int64_t *out,
                    struct err *e)
{
    const size_t bytes = (size_t)f->bytes;
    uint8_t *raw = (uint8_t *)out + (8 - bytes) * n;      /* the numbers grow to the front */
    if (file_read_at(f->fd, f->path, f->begin + first * bytes, raw, n * bytes, e)) return -1;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = (int64_t)number_at(raw + i * bytes, f->bytes);
        if (out[i] >= vocabulary)
            return err_set(e, E_DATA, "%s: token %" PRId64 " at %" PRIu64 ", and the vocabulary has %" PRId64, f->path,
                           out[i], first + i, vocabulary);
    }
    return 0;
}

void token_file_close(struct token_file *f)
{
    if (f->fd >= 0) close(f->fd);
    free(f->end);
    free(f->own);
    *f = (struct token_file){.fd = -1};
}
