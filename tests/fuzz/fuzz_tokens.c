/* Files of tokens: raw numbers and llm.c's with a header; the index of Megatron's beside 64 bytes of numbers, for
 * inputs of even length. Of a file that is taken all tokens can be read, or one is too large. */
#include <fcntl.h>
#include "kept_file.h"
#include "base/mem.h"
#include "data/token_file.h"

enum { VOCABULARY = 1000, NUMBERS = 64 };
static char dir[64], path_idx[80], path_bin[80];
static int fd_idx;

static void leave(void)
{
    unlink(path_idx);
    unlink(path_bin);
    rmdir(dir);
}

static void enter(void)
{
    const uint8_t numbers[NUMBERS] = {1, 0, 0, 0, 2, 0, 3};
    snprintf(dir, sizeof dir, "%s/mpstaged-fuzz.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    must(mkdtemp(dir) != NULL);
    atexit(leave);
    snprintf(path_idx, sizeof path_idx, "%s/a.idx", dir);
    snprintf(path_bin, sizeof path_bin, "%s/a.bin", dir);
    const int fd = open(path_bin, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    must(fd >= 0 && write(fd, numbers, NUMBERS) == NUMBERS && !close(fd));
    fd_idx = open(path_idx, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    must(fd_idx >= 0);
}

static void read_all(const char *path, const char *named)
{
    struct token_file f;
    struct err e = {0};
    if (token_file_open(path, 0, VOCABULARY, &f, &e)) {
        must(e.code == E_DATA && !strncmp(e.text, named, strlen(named)));
        return;
    }
    int64_t *id = mem_alloc((f.n + 1) * sizeof *id);
    for (uint64_t i = 0; i < f.n_ends; i++) must(f.end[i] <= f.n && (!i || f.end[i] > f.end[i - 1]));
    if (token_file_read(&f, 0, f.n, VOCABULARY, id, &e)) must(e.code == E_DATA && strstr(e.text, "token "));
    else for (uint64_t i = 0; i < f.n; i++) must(id[i] >= 0 && id[i] < VOCABULARY);
    free(id);
    token_file_close(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!*dir) enter();
    if (size % 2) {
        const char *path = kept_file(data, size - 1);
        read_all(path, path);
        return 0;
    }
    must(!ftruncate(fd_idx, (off_t)size) && (!size || pwrite(fd_idx, data, size, 0) == (ssize_t)size));
    read_all(path_bin, dir);
    return 0;
}
