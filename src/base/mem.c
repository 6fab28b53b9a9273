#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

/* The handler for exhausted memory, set once before any thread starts. */
static void (*oom)(size_t bytes);

void mem_oom_handler(void (*handler)(size_t bytes)) { oom = handler; }

static void *checked(void *p, size_t bytes)
{
    if (p) return p;
    if (oom) oom(bytes);
    abort();
}

void *mem_alloc(size_t bytes) { return checked(calloc(1, bytes ? bytes : 1), bytes); }
void *mem_resize(void *p, size_t bytes) { return checked(realloc(p, bytes ? bytes : 1), bytes); }

void *mem_got(void *p) { return checked(p, 0); }

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(mem_alloc(n), s, n);
}

size_t size_mul(size_t a, size_t b)
{
    size_t r;
    return a == SIZE_MAX || b == SIZE_MAX || __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}

size_t size_add(size_t a, size_t b)
{
    size_t r;
    return a == SIZE_MAX || b == SIZE_MAX || __builtin_add_overflow(a, b, &r) ? SIZE_MAX : r;
}

/* ---- arena: a list of blocks, each twice the one before; large requests get their own --------------------------- */
enum { BLOCK_LEAST = 2 << 10, BLOCK_MOST = 64 << 10 };
struct arena_block { struct arena_block *next; };
struct arena { struct arena_block *blocks; char *at; size_t left, size; };

struct arena *arena_new(void) { return mem_alloc(sizeof(struct arena)); }

static char *block_add(struct arena *a, size_t bytes)
{
    struct arena_block *b = mem_alloc(size_add(bytes, 16));
    b->next = a->blocks;
    a->blocks = b;
    return (char *)b + 16;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t n = size_add(bytes, 15);
    if (n == SIZE_MAX) return checked(NULL, bytes);
    n &= ~(size_t)15;
    if (n > BLOCK_MOST / 4) return block_add(a, n);
    if (n > a->left) {
        a->size = a->size ? a->size < BLOCK_MOST ? 2 * a->size : BLOCK_MOST : BLOCK_LEAST;
        while (a->size < n) a->size *= 2;
        a->at = block_add(a, a->size);
        a->left = a->size;
    }
    void *p = a->at;
    a->at += n;
    a->left -= n;
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(arena_alloc(a, n), s, n);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *copy = arena_alloc(a, size_add(n, 1));
    if (n) memcpy(copy, s, n);
    return copy;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *s = arena_alloc(a, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(ap);
    va_end(again);
    return s;
}

void arena_free(struct arena *a)
{
    if (!a) return;
    for (struct arena_block *b = a->blocks, *next; b; b = next) { next = b->next; free(b); }
    free(a);
}

void vec_grow_(void **v, int n, int *cap, size_t size)
{
    if (n == *cap) {
        int more = *cap ? *cap * 2 : 8;
        *v = mem_resize(*v, size_mul((size_t)more, size));
        *cap = more;
    }
    memset((char *)*v + (size_t)n * size, 0, size);
}
