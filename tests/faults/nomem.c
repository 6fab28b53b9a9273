/* Memory that runs out, for LD_PRELOAD: the program is run again and again, by fork before main, and in run N the N-th
 * allocation gives NULL.
 *
 *   MPSTAGED_NOMEM=STEP          N is 1, 1 + STEP, 1 + 2 STEP ... up to as many as the undisturbed run makes
 *   MPSTAGED_NOMEM_REPORT=FILE   gets a line for each run: N, exit status (128 + the signal of a crash), lines on
 *                                standard error, blocks that were not freed, and the first of these lines; N = 0
 *                                is the undisturbed run, and the last line is "allocations M"
 *
 * Allocations count that the program itself makes from main on, or that the C library, jansson, zlib, libuv, xxHash
 * make for it; not those of MPI, oneDNN and what these bring. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

enum { RANGES = 64, SECONDS = 60 };
static struct { uintptr_t from, to; } range[RANGES];
static int n_ranges;
static bool on;                                          /* this process runs main */
static struct shared { atomic_long calls, blocks; } *shared;
static long fail_at;

static bool of_ours(const void *caller)
{
    for (int i = 0; i < n_ranges; i++)
        if ((uintptr_t)caller >= range[i].from && (uintptr_t)caller < range[i].to) return true;
    return false;
}

/* Counts an allocation; whether it fails. */
static bool fails(const void *caller)
{
    if (!on || !of_ours(caller)) return false;
    return atomic_fetch_add(&shared->calls, 1) + 1 == fail_at;
}

static void *counted(void *p)
{
    if (on && p) atomic_fetch_add(&shared->blocks, 1);
    else if (!p) errno = ENOMEM;
    return p;
}

void *malloc(size_t n) { return counted(fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n)); }
void *calloc(size_t n, size_t size)
{
    return counted(fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size));
}
void *realloc(void *p, size_t n)
{
    void *q = fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
    if (!p) return counted(q);
    if (!q) errno = ENOMEM;
    return q;
}
void free(void *p)
{
    if (on && p) atomic_fetch_sub(&shared->blocks, 1);
    __libc_free(p);
}

static int range_add(struct dl_phdr_info *d, size_t size, void *first)
{
    static const char *const of[] = {"libc.so", "libjansson", "libz.so", "libuv", "libxxhash"};
    bool ours = !*d->dlpi_name;                          /* the program itself, and the kernel's own page */
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) ours |= strstr(d->dlpi_name, of[i]) != NULL;
    for (int i = 0; ours && i < d->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &d->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X) || n_ranges == RANGES) continue;
        range[n_ranges].from = d->dlpi_addr + h->p_vaddr;
        range[n_ranges].to = range[n_ranges].from + h->p_memsz;
        n_ranges++;
    }
    return 0;
}

static int (*real_main)(int, char **, char **);
static const char *report;

/* The child: main, with what it says in a file without a name. */
static pid_t start(int said, int argc, char **argv, char **env)
{
    pid_t pid = fork();
    if (pid) return pid;
    int none = open("/dev/null", O_RDWR);
    dup2(none, 0);
    dup2(none, 1);
    dup2(said, 2);
    alarm(SECONDS);
    on = true;
    exit(real_main(argc, argv, env));
}

static int line_count(int said, char *first, size_t size)
{
    ssize_t n = pread(said, first, size - 1, 0);
    int lines = 0;
    first[n < 0 ? 0 : n] = '\0';
    for (const char *s = first; *s; s++) lines += *s == '\n';
    first[strcspn(first, "\n")] = '\0';
    return lines;
}

static void one(FILE *to, long n, int argc, char **argv, char **env)
{
    char text[2000];
    int status, said = memfd_create("said", MFD_CLOEXEC);
    atomic_store(&shared->calls, 0);
    atomic_store(&shared->blocks, 0);
    fail_at = n;
    pid_t pid = said < 0 ? -1 : start(said, argc, argv, env);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) abort();
    int lines = line_count(said, text, sizeof text);
    fprintf(to, "%ld %d %d %ld %s\n", n, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), lines,
            atomic_load(&shared->blocks), text);
    fflush(to);
    close(said);
}

static int main_again(int argc, char **argv, char **env)
{
    long step = strtol(getenv("MPSTAGED_NOMEM"), NULL, 10);
    FILE *to = fopen(report, "w");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!to || step < 1 || shared == MAP_FAILED) abort();
    dl_iterate_phdr(range_add, NULL);
    one(to, 0, argc, argv, env);
    long all = atomic_load(&shared->calls);
    for (long n = 1; n <= all; n += step) one(to, n, argc, argv, env);
    fprintf(to, "allocations %ld\n", all);
    fclose(to);
    _exit(0);
}

int __libc_start_main(int (*own)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*own)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    union { void *p; int (*f)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                              void (*)(void), void *); } real = {dlsym(RTLD_NEXT, "__libc_start_main")};
    real_main = own;
    report = getenv("MPSTAGED_NOMEM") ? getenv("MPSTAGED_NOMEM_REPORT") : NULL;
    return real.f(report ? main_again : own, argc, argv, init, fini, rtld_fini, stack_end);
}
