/* Replays inputs through a fuzz target, so that `make check` needs no fuzzer.
 *
 *   fuzz_NAME [FILE|DIR]...     without arguments: $srcdir/tests/fuzz/corpus/NAME
 *
 * Each input is tried as it is, then cut short at up to 64 places, then with single bytes changed at up to 256 places.
 * Inputs lie in blocks of exactly their size, so that a sanitizer sees every read beyond. A target says that something
 * is wrong by abort(). Real fuzzing: clang -fsanitize=fuzzer,address with fuzz_NAME.c in place of this file. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static void try_variants(uint8_t *data, size_t size)
{
    static const uint8_t change[] = {0x00, 0xff, '"', '{', '\n', '9', '-', 0x80};
    try_copy(data, size);
    for (size_t i = 0; i < 64 && i < size; i++) try_copy(data, size * i / (size < 64 ? size : 64));
    for (size_t i = 0; i < 256 && i < size; i++) {
        size_t at = size <= 256 ? i : size * i / 256;
        uint8_t old = data[at];
        data[at] = change[i % sizeof change];
        try_copy(data, size);
        data[at] = old;
    }
}

/* A regular file's bytes; NULL if it cannot be read. */
static uint8_t *file_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t n = 0, cap = 0, got;
    if (!f) return NULL;
    do {
        if (n == cap) data = realloc(data, cap = cap ? 2 * cap : 4096);
        if (!data) abort();
        got = fread(data + n, 1, cap - n, f);
        n += got;
    } while (got);
    fclose(f);
    *size = n;
    return data;
}

static int replay_file(const char *path)
{
    size_t size;
    uint8_t *data = file_read(path, &size);
    if (!data) { fprintf(stderr, "%s: cannot be read\n", path); exit(1); }
    fprintf(stderr, "%s\n", path);                       /* the last line of the log names the culprit */
    try_variants(data, size);
    free(data);
    return 1;
}

static int replay(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    if (!dir) return replay_file(path);
    for (struct dirent *d; (d = readdir(dir));) {
        char inner[4096];
        if (d->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, d->d_name);
        n += replay_file(inner);
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    char own[4096];
    const char *srcdir = getenv("srcdir"), *name = strstr(argv[0], "fuzz_");
    int n = 0;
    for (int i = 1; i < argc; i++) n += replay(argv[i]);
    if (argc == 1 && name) {
        snprintf(own, sizeof own, "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name + strlen("fuzz_"));
        n = replay(own);
    }
    printf("%d inputs\n", n);
    return n ? 0 : 1;
}
