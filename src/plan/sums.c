/* Blocks: a batch's micro-batches are cut into train.gradient_groups neighbouring blocks. Gradients are added one after
 * the other within a block, and blocks two by two, neighbours first, as a binary tree. So the sum depends on the number
 * of blocks and on nothing else. */
#include "plan/plan_int.h"

/* The first of n micro-batches that belongs to block b of `blocks`: as even as can be, and cut in two halves of blocks
 * they are as even again. */
static int block_first(int n, int blocks, int b) { return (int)(((int64_t)b * n + blocks - 1) / blocks); }

int plan_levels(int groups)
{
    int levels = 1;
    for (; groups > 1; groups /= 2) levels++;
    return levels;
}

void batch_split(struct arena *mem, const struct plan_request *r, struct batch *b)
{
    int n = (r->batch - 1) / r->split + 1;
    *b = (struct batch){.n_micro = n, .groups = r->groups > 1 ? r->groups : 1,
                        .bundle = r->bundle < 1 ? 1 : r->bundle > n ? n : r->bundle};
    b->micro_n = arena_alloc(mem, (size_t)n * sizeof *b->micro_n);
    b->micro_block = arena_alloc(mem, (size_t)n * sizeof *b->micro_block);
    b->mb_n = arena_alloc(mem, (size_t)n * sizeof *b->mb_n);
    b->mb_first = arena_alloc(mem, (size_t)n * sizeof *b->mb_first);
    b->mb_micro = arena_alloc(mem, (size_t)(n + 1) * sizeof *b->mb_micro);
    for (int i = 0; i < n; i++) b->micro_n[i] = r->batch - i * r->split < r->split ? r->batch - i * r->split : r->split;
    for (int k = 0; k < b->groups; k++) {
        int end = block_first(n, b->groups, k + 1);
        for (int i = block_first(n, b->groups, k), next; i < end; i = next) {
            next = i + b->bundle < end ? i + b->bundle : end;
            b->mb_micro[b->n_mb] = i;
            b->mb_first[b->n_mb] = i * r->split;
            for (int m = i; m < next; m++) {
                b->mb_n[b->n_mb] += b->micro_n[m];
                b->micro_block[m] = k;
            }
            if (next - i > b->max_parts) b->max_parts = next - i;
            if (b->mb_n[b->n_mb] > b->max_n) b->max_n = b->mb_n[b->n_mb];
            b->n_mb++;
        }
    }
    b->mb_micro[b->n_mb] = n;
}

/* The sum of blocks [first, end), a power of two of them, into the accumulators of a level; micro-batches of the last
 * block that has any end there. Returns whether it has any. */
static bool sum_make(struct sums *s, const struct batch *b, int first, int end, int level)
{
    int middle = first + (end - first) / 2, last = b->n_micro - 1;
    if (end - first > 1) {
        bool left = sum_make(s, b, first, middle, level), right = sum_make(s, b, middle, end, level + left);
        while (right && b->micro_block[last] >= end) last--;
        if (left && right) s->adds[s->n_adds++] = (struct sum_add){last, level};
        return left || right;
    }
    bool any = false;
    for (int i = 0; i <= last; i++) {
        if (b->micro_block[i] != first) continue;
        s->level[i] = level;
        any = true;
    }
    if (any && level >= s->n_levels) s->n_levels = level + 1;
    return any;
}

void sums_make(struct arena *mem, const struct batch *b, struct sums *s)
{
    *s = (struct sums){.level = arena_alloc(mem, (size_t)b->n_micro * sizeof *s->level),
                       .adds = arena_alloc(mem, (size_t)b->groups * sizeof *s->adds)};
    sum_make(s, b, 0, b->groups, 0);
}
