/* Blocks: a batch's micro-batches are cut into train.gradient_groups neighbouring blocks. Gradients are added one after
 * the other within a block. Blocks are added as a binary tree, neighbours first. So the sum depends only on the number
 * of blocks. A pipeline has neighbouring blocks, hence whole subtrees. */
#include "plan/plan_int.h"

/* The first of n micro-batches that belongs to block b of `blocks`. Blocks are as even as possible, and so are both
 * halves of the blocks. */
static int block_first(int n, int blocks, int b) { return (int)(((int64_t)b * n + blocks - 1) / blocks); }

/* Another pipeline's share is at level 1 until this one adds it. */
int plan_levels(int groups, const struct mesh *m, struct sharing s)
{
    int n = m->size[AXIS_DP] > 1 ? m->size[AXIS_DP] : 1, levels = n > 1 && !s.by_transport ? 2 : 1, own = 1;
    for (int blocks = groups / n; blocks > 1; blocks /= 2) own++;
    return own > levels ? own : levels;
}

void batch_split(struct arena *mem, const struct plan_request *r, int n_dp, int dp, struct portion *b)
{
    int n = (r->batch - 1) / r->split + 1, blocks = r->groups / n_dp;
    *b = (struct portion){.first_block = dp * blocks, .end_block = (dp + 1) * blocks, .shared = n_dp > 1};
    b->first_micro = block_first(n, r->groups, b->first_block);
    b->n_mb = block_first(n, r->groups, b->end_block) - b->first_micro;
    int **list[] = {&b->mb_n, &b->mb_first, &b->mb_block};
    for (int i = 0; i < 3; i++) *list[i] = arena_alloc(mem, (size_t)(b->n_mb + 1) * sizeof **list[i]);
    for (int i = 0, block = b->first_block; i < b->n_mb; i++) {
        b->mb_first[i] = (b->first_micro + i) * r->split;
        b->mb_n[i] = r->batch - b->mb_first[i] < r->split ? r->batch - b->mb_first[i] : r->split;
        while (block_first(n, r->groups, block + 1) <= b->first_micro + i) block++;
        b->mb_block[i] = block;
    }
}

/* Adds blocks [first, end), a power of two of them, into the accumulators of a level; the last micro-batch of the last
 * block that has any completes the sum. Returns whether any block has micro-batches. */
static bool sum_make(struct block_sums *s, const struct portion *b, int first, int end, int level)
{
    int middle = first + (end - first) / 2, last = b->n_mb - 1;
    if (end - first > 1) {
        bool left = sum_make(s, b, first, middle, level), right = sum_make(s, b, middle, end, level + left);
        while (right && b->mb_block[last] >= end) last--;
        if (left && right) s->adds[s->n_adds++] = (struct sum_add){last, level};
        return left || right;
    }
    bool any = false;
    for (int i = 0; i <= last; i++) {
        if (b->mb_block[i] != first) continue;
        s->level[i] = level;
        any = true;
    }
    if (any && level >= s->n_levels) s->n_levels = level + 1;
    return any;
}

void reduction_tree_make(struct arena *mem, const struct portion *b, struct block_sums *s)
{
    *s = (struct block_sums){.level = arena_alloc(mem, (size_t)(b->n_mb + 1) * sizeof *s->level),
                             .adds = arena_alloc(mem, (size_t)(b->end_block - b->first_block) * sizeof *s->adds)};
    sum_make(s, b, b->first_block, b->end_block, 0);
    if (!s->n_levels) s->n_levels = 1;
}
