/* Steps allocate nothing: runs of 3 and of 9 steps make the same number of allocations in this project's code, on every
 * backend, schedule and rank. oneDNN's dnnl_primitive_execute builds its argument map at every call; allocations of
 * libraries for themselves do not count. */
#include "config.h"
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rig.h"
#include "sure.h"

#ifndef SANITIZED
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void *memalign(size_t align, size_t n);
static atomic_long count;
/* where our code lies: the executable, with all of our layers in it */
static uintptr_t own_from, own_to;

static int own_find(struct dl_phdr_info *info, size_t size, void *data)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X)) continue;
        own_from = info->dlpi_addr + h->p_vaddr;
        own_to = own_from + h->p_memsz;
    }
    return 1;                                            /* the executable comes first */
}

static void note(const void *caller)
{
    if ((uintptr_t)caller >= own_from && (uintptr_t)caller < own_to) atomic_fetch_add(&count, 1);
}

void *malloc(size_t n) { note(__builtin_return_address(0)); return __libc_malloc(n); }
void *calloc(size_t n, size_t size) { note(__builtin_return_address(0)); return __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { note(__builtin_return_address(0)); return __libc_realloc(p, n); }
void *memalign(size_t align, size_t n) { note(__builtin_return_address(0)); return __libc_memalign(align, n); }
void *aligned_alloc(size_t align, size_t n) { note(__builtin_return_address(0)); return __libc_memalign(align, n); }
int posix_memalign(void **p, size_t align, size_t n)
{
    note(__builtin_return_address(0));
    *p = __libc_memalign(align, n);
    return *p ? 0 : 12;
}

static long allocations(const char *backend, const char *schedule, int n_stages, int steps)
{
    /* with all that an optimizer may keep */
    static const char conf[] = "run { name = \"t\" }\nmodel { input = {3, 8, 8} classes = 5 }\ndata { source = "
                               "\"synthetic\" labels = \"class\" samples = 40 }\n"
                               "train { batch_size = 7 split_size = 3 steps = 3 loss = \"cross_entropy\" learning_rate "
                               "= 0.05 clip_norm = 1 ";
    char text[sizeof conf + 32];
    snprintf(text, sizeof text, "%s%s }\n", conf, n_stages % 2 ? "momentum = 0.9" : "optimizer = adamw");
    struct rig q = {.conf = text, .graph = rig_small_resnet, .backend = backend, .n_stages = n_stages,
                    .schedule = schedule, .steps = steps};
    struct rig_result r;
    long before = atomic_load(&count);
    ck_assert_msg(!rig_run(&q, &r), "%s", r.e.text);
    return atomic_load(&count) - before;
}

START_TEST(no_allocation_in_steps)
{
    static const char *const backend[] = {"reference", "onednn"};
    static const char *const schedule[] = {"gpipe", "1f1b"};
    const char *b = backend[_i % 2], *s = schedule[_i / 2 % 2];
    int stages = 1 + _i / 4;
    long few = allocations(b, s, stages, 3), many = allocations(b, s, stages, 9);
    ck_assert_msg(few == many, "%s, %s, %d stages: %ld allocations in 3 steps, %ld in 9", b, s, stages, few, many);
    ck_assert(few > 0);
}
END_TEST
#endif

int main(void)
{
    TCase *t = suite_case("steps", 60);
#ifndef SANITIZED
    dl_iterate_phdr(own_find, NULL);
    tcase_add_loop_test(t, no_allocation_in_steps, 0, 8);
#endif
    return suite_run("alloc", CK_NOFORK, t);
}
