/* All memory except tensors: an arena that is freed at once, growable arrays, zeroed allocations.
 *
 * None of these returns NULL. When memory runs out they call the handler (default: abort). The daemon's handler prints
 * a line and exits with 70. Tensors live in the regions of exec/bind.c. */
#ifndef BASE_MEM_H
#define BASE_MEM_H
#include <stddef.h>
#include <stdint.h>

void mem_oom_handler(void (*handler)(size_t bytes));
void *mem_alloc(size_t bytes);                        /* zeroed; release with free() */
void *mem_resize(void *p, size_t bytes);              /* like realloc, new bytes are not zeroed */
char *mem_strdup(const char *s);
void *mem_got(void *p);                               /* returns p, a library's allocation; NULL means out of memory */

/* Multiplies and adds sizes; on overflow returns SIZE_MAX, which no allocation or file size can reach. */
size_t size_mul(size_t a, size_t b);
size_t size_add(size_t a, size_t b);
static inline size_t size_align64(size_t n) { return (n + 63) / 64 * 64; }   /* rounded up to whole cache lines */

/* An arena: arena_free frees everything allocated from it. Not thread-safe. */
struct arena;
struct arena *arena_new(void);
void *arena_alloc(struct arena *a, size_t bytes);     /* zeroed, 16-byte aligned */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);   /* n bytes and a final NUL */
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(struct arena *a);

/* A growable array: VEC(int) v = {0}; *vec_push(&v) = 3; v.v[0]; v.n; free(v.v). */
#define VEC(type) struct { type *v; int n, cap; }
#define vec_push(x) (vec_grow_((void **)&(x)->v, (x)->n, &(x)->cap, sizeof *(x)->v), &(x)->v[(x)->n++])
#define vec_free(x) (free((x)->v), (x)->v = NULL, (x)->n = (x)->cap = 0)
void vec_grow_(void **v, int n, int *cap, size_t size); /* the new element is zeroed */

#endif
