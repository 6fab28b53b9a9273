/* The index of a folder of safetensors files, with two shards: an accepted index names each tensor of the shards that
 * it names, and nothing else; a refusal is one line that begins with the folder's name. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt/st.h"

static char dir[64];
static int index_fd;                                      /* stays open, and the file is written anew */

static void must(bool right) { if (!right) abort(); }

static void file_write(const char *name, const void *p, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    must(fd >= 0 && (!n || write(fd, p, n) == (ssize_t)n));
    close(fd);
}

/* A shard with one tensor of one number. */
static void shard_write(const char *file, const char *tensor)
{
    char header[96], all[128] = {0};
    static const char form[] = "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    int n = snprintf(header, sizeof header, form, tensor);
    all[0] = (char)n;
    memcpy(all + 8, header, (size_t)n);
    file_write(file, all, 8 + (size_t)n + 4);
}

static void leave(void)
{
    static const char *const name[] = {"a", "b", "model.safetensors.index.json"};
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void enter(void)
{
    snprintf(dir, sizeof dir, "%s/mpstaged-fuzz.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    must(mkdtemp(dir));
    atexit(leave);
    shard_write("a", "x");
    shard_write("b", "y");
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    index_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    must(index_fd >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct st **all;
    int n;
    if (!*dir) enter();
    must(!ftruncate(index_fd, (off_t)size) && (!size || pwrite(index_fd, data, size, 0) == (ssize_t)size));
    if (st_open_all(dir, &all, &n, &e)) {
        must(!all && !n && (e.code == E_DATA || e.code == E_NOINPUT) && !strncmp(e.text, dir, strlen(dir)));
        for (const char *s = e.text; *s; s++) must((unsigned char)*s >= 0x20);
        return 0;
    }
    must(n == 1 || n == 2);
    for (int i = 0; i < n; i++) {
        must(all[i]->n == 1);
        st_close(all[i]);
    }
    free(all);
    return 0;
}
