/* The loops of cpu_product.h. The includer has included cpu_panel_impl.h. It defines SQUARE_TURN(from, line, to), which
 * turns BLOCK rows of BLOCK floats. */
#include "backend/cpu/cpu_product.h"

static void product_panels(const float *b, int64_t line, int64_t n, int64_t k, float *to, int64_t apart)
{
    for (int64_t at = 0; at < n; at += BLOCK, to += apart) {
        const int64_t some = n - at < BLOCK ? n - at : BLOCK;
        for (int64_t i = 0; i < k; i++) {
            float *row = to + i * BLOCK;
            if (some == BLOCK) { VEC_STORE(row, VEC_LOAD(b + i * line + at)); continue; }
            for (int64_t j = 0; j < BLOCK; j++) row[j] = j < some ? b[i * line + at + j] : 0;
        }
    }
}

static void product_panels_turned(const float *b, int64_t line, int64_t n, int64_t k, float *to, int64_t apart)
{
    for (int64_t at = 0; at < n; at += BLOCK, to += apart) {
        const int64_t some = n - at < BLOCK ? n - at : BLOCK;
        int64_t i = 0;
        for (; some == BLOCK && i + BLOCK <= k; i += BLOCK) SQUARE_TURN(b + at * line + i, line, to + i * BLOCK);
        for (; i < k; i++)
            for (int64_t j = 0; j < BLOCK; j++) to[i * BLOCK + j] = j < some ? b[(at + j) * line + i] : 0;
    }
}

static struct panel_out product_out(const struct product_rows *p, int64_t n)
{
    return (struct panel_out){p->c + n, p->c_line, BLOCK, p->bias ? p->bias + n : NULL, p->add};
}

static void product_rows(const struct product_rows *p, const float *panels, int64_t apart)
{
    for (int64_t n = 0; n < p->n; n += 2 * BLOCK) {
        const struct panel s = {&p->a, 1, p->k, p->a_line, panels + n / BLOCK * apart, 0, apart};
        panel_run(&s, p->m, product_out(p, n), p->n - n > BLOCK ? 2 : 1);
    }
}

static void product_outer(const struct product_rows *p, const float *b, int64_t b_line)
{
    for (int64_t n = 0; n < p->n; n += 2 * BLOCK) {
        const float *at = b + n;
        const struct outer s = {&p->a, &at, 1, p->k, p->a_line, b_line, BLOCK};
        outer_run(&s, p->m, product_out(p, n), p->n - n > BLOCK ? 2 : 1);
    }
}

#define PRODUCT_OPS {BLOCK, product_panels, product_panels_turned, product_rows, product_outer}
