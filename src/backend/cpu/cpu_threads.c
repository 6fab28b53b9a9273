/* Loops over the OpenMP threads that oneDNN has, too. Through the library's own call, so that any compiler may build
 * this. */
#include <omp.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/cpu_threads.h"

void GOMP_parallel(void (*run)(void *), void *data, unsigned threads, unsigned flags);

struct each { int64_t n; cpu_part *run; const void *data; };

static void part_run(void *data)
{
    const struct each *e = data;
    const int64_t i = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t from = e->n * i / threads, to = e->n * (i + 1) / threads;
    if (from < to) e->run(e->data, (int)i, from, to);
}

void cpu_each(int threads, int64_t n, cpu_part *run, const void *data)
{
    struct each e = {n, run, data};
    if (n <= 1 || threads == 1) { if (n) run(data, 0, 0, n); return; }
    GOMP_parallel(part_run, &e, (unsigned)(threads < n ? threads : n), 0);
}

struct addition { const struct vec_ops *vec; float *y; const float *x; size_t n; };
enum { ADDED = 4096 };                                   /* at a time */

static void some_add(const void *data, int thread, int64_t from, int64_t to)
{
    const struct addition *a = data;
    const size_t first = (size_t)from * ADDED, end = (size_t)to * ADDED < a->n ? (size_t)to * ADDED : a->n;
    a->vec->add(a->y + first, a->x + first, end - first);
}

void cpu_add(const struct be *b, float *y, const float *x, size_t n)
{
    cpu_each(b->s->dev.threads, (int64_t)((n + ADDED - 1) / ADDED), some_add, &(struct addition){b->vec, y, x, n});
}

struct additions { const struct vec_ops *vec; float *y; const float *x; int64_t rows, columns; bool acc; };
enum { COLUMNS = 64 };                                   /* that a thread takes of all rows */

static void some_columns_add(const void *data, int thread, int64_t from, int64_t to)
{
    const struct additions *a = data;
    const int64_t first = from * COLUMNS, end = to * COLUMNS < a->columns ? to * COLUMNS : a->columns;
    const size_t n = (size_t)(end - first);
    if (!a->acc) memset(a->y + first, 0, n * sizeof *a->y);
    for (int64_t r = 0; r < a->rows; r++) a->vec->add(a->y + first, a->x + r * a->columns + first, n);
}

void cpu_add_rows(const struct be *b, float *y, const float *x, int64_t rows, int64_t columns, bool acc)
{
    cpu_each(b->s->dev.threads, (columns + COLUMNS - 1) / COLUMNS, some_columns_add,
             &(struct additions){b->vec, y, x, rows, columns, acc});
}

struct half_sums { const struct vec_ops *vec; const uint16_t *x; int64_t rows, columns; float *sums; bool acc; };

static void some_columns_sum(const void *data, int thread, int64_t from, int64_t to)
{
    const struct half_sums *h = data;
    const int64_t first = from * COLUMNS, end = to * COLUMNS < h->columns ? to * COLUMNS : h->columns;
    h->vec->sum_rows(h->x + first, h->columns, h->rows, end - first, h->sums + first, h->acc);
}

void cpu_sum_rows(const struct be *b, const uint16_t *x, int64_t rows, int64_t columns, float *sums, bool acc)
{
    cpu_each(b->s->dev.threads, (columns + COLUMNS - 1) / COLUMNS, some_columns_sum,
             &(struct half_sums){b->vec, x, rows, columns, sums, acc});
}
