/* Replays inputs through a fuzz target, so that `make check` needs no fuzzer.
 *
 *   fuzz_NAME [-t SECONDS [-s SEED]] [FILE|DIR]...     without files: $srcdir/tests/fuzz/corpus/NAME
 *
 * Each input is tried unchanged, then cut at up to 64 places, then with single bytes changed at up to 256 places.
 * Inputs are in blocks of exactly their size, so that a sanitizer finds every read beyond. A target reports an error by
 * abort(). With -t the inputs are then changed at random for that time; the last one is in fuzz_NAME.input. With clang,
 * its engine replaces this file (long.sh). */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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

static struct { uint8_t *data; size_t size; } seeds[256];
static int n_seeds;

static int replay_file(const char *path)
{
    size_t size;
    uint8_t *data = file_read(path, &size);
    if (!data) { fprintf(stderr, "%s: cannot be read\n", path); exit(1); }
    fprintf(stderr, "%s\n", path);                       /* the last line of the log names the culprit */
    try_variants(data, size);
    if (n_seeds == 256) free(data);
    else {
        seeds[n_seeds].data = data;
        seeds[n_seeds++].size = size;
    }
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

/* ---- changes at random ------------------------------------------------------------------------------------------- */

enum { LONGEST = 1 << 16 };
static uint64_t state = 1;

static size_t pick(size_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return n ? (size_t)((state >> 33) % n) : 0;
}

/* Makes room for n bytes at `at`. Returns the new size. */
static size_t gap(uint8_t *data, size_t size, size_t at, size_t n)
{
    if (size + n > LONGEST) return size;
    memmove(data + at + n, data + at, size - at);
    return size + n;
}

static size_t change(uint8_t *data, size_t size)
{
    static const char *const word[] = {"0", "-1", "1e999", "18446744073709551616", "9223372036854775807", "2147483648",
                                       "\"\"", "null", "[]", "{}", "\n", "\\u0000", "\xff\xff\xff\xff", "\xef\xbb\xbf"};
    size_t at = pick(size + 1), n = pick(size - at < 32 ? size - at + 1 : 32), other = (size_t)pick((size_t)n_seeds);
    size_t from = pick(seeds[other].size);
    switch (pick(7)) {
    case 0: if (at < size) data[at] ^= (uint8_t)(1 << pick(8)); return size;
    case 1: if (at < size) data[at] = (uint8_t)pick(256); return size;
    case 2: memmove(data + at, data + at + n, size - at - n); return size - n;              /* less */
    case 3: return gap(data, size, at, n);                                                  /* once more */
    case 4: {
        const char *w = word[pick(sizeof word / sizeof *word)];
        size_t more = gap(data, size, at, strlen(w));
        if (more > size) memcpy(data + at, w, strlen(w));
        return more;
    }
    case 5: n = pick(seeds[other].size - from + 1);                                         /* of another */
        if (gap(data, size, at, n) == size) return size;
        memcpy(data + at, seeds[other].data + from, n);
        return size + n;
    default: if (at < size) data[at] = (uint8_t)"0123456789{}[]\",:.-= \n"[pick(22)]; return size;
    }
}

static unsigned long changes(const char *name, int seconds)
{
    char path[4096];
    unsigned long n = 0;
    snprintf(path, sizeof path, "%.4000s.input", name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, LONGEST)) abort();
    uint8_t *data = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED || !n_seeds) abort();
    for (time_t end = time(NULL) + seconds; time(NULL) < end; n++) {
        int which = (int)pick((size_t)n_seeds);
        size_t size = seeds[which].size < LONGEST ? seeds[which].size : LONGEST;
        memcpy(data, seeds[which].data, size);
        for (size_t k = 1 + pick(4); k; k--) size = change(data, size);
        try_copy(data, size);
    }
    munmap(data, LONGEST);
    close(fd);
    unlink(path);
    return n;
}

int main(int argc, char **argv)
{
    char own[4096];
    const char *srcdir = getenv("srcdir"), *name = strstr(argv[0], "fuzz_");
    int n = 0, seconds = 0, option;
    while ((option = getopt(argc, argv, "t:s:")) != -1) {
        if (option == 't') seconds = atoi(optarg);
        else if (option == 's') state = strtoull(optarg, NULL, 10);
        else return 64;
    }
    for (int i = optind; i < argc; i++) n += replay(argv[i]);
    if (argc == optind && name) {
        snprintf(own, sizeof own, "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name + strlen("fuzz_"));
        n = replay(own);
    }
    printf("%d inputs\n", n);
    if (n && seconds) printf("%lu executions\n", changes(name, seconds));
    for (int i = 0; i < n_seeds; i++) free(seeds[i].data);
    return n ? 0 : 1;
}
