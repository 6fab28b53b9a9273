/* Reference loops of convolutions. */
#include "model/ops/conv.h"

void conv_forward(const struct conv *k, const float *x, const float *weight, const float *bias, float *y)
{
    const int64_t cg = k->c / k->groups, og = k->o / k->groups, is = window_in_size(&k->w), os = window_out_size(&k->w),
                  ks = window_k_size(&k->w);
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t o = 0; o < k->o; o++)
            for (int64_t s = 0; s < os; s++) {
                const float *from = x + (n * k->c + o / og * cg) * is, *w = weight + o * cg * ks;
                double sum = bias ? bias[o] : 0;
                for (int64_t q = 0; q < ks; q++) {
                    int64_t at = window_at(&k->w, s, q);
                    if (at >= 0) for (int64_t i = 0; i < cg; i++) sum += (double)from[i * is + at] * w[i * ks + q];
                }
                y[(n * k->o + o) * os + s] = (float)sum;
            }
}

/* One element of the input's gradient of a sample. */
static double data_at(const struct conv *k, const float *gy, const float *weight, int64_t i, int64_t at)
{
    const int64_t cg = k->c / k->groups, og = k->o / k->groups, os = window_out_size(&k->w), ks = window_k_size(&k->w);
    const int64_t group = i / cg, ig = i % cg;
    double sum = 0;
    for (int64_t q = 0; q < ks; q++) {
        int64_t s = window_from(&k->w, at, q);
        for (int64_t o = group * og; s >= 0 && o < (group + 1) * og; o++)
            sum += (double)gy[o * os + s] * weight[(o * cg + ig) * ks + q];
    }
    return sum;
}

void conv_data(const struct conv *k, const float *gy, const float *weight, const float *bias, float *gx)
{
    const int64_t is = window_in_size(&k->w), os = window_out_size(&k->w);
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t i = 0; i < k->c; i++)
            for (int64_t at = 0; at < is; at++)
                gx[(n * k->c + i) * is + at] =
                    (float)(data_at(k, gy + n * k->o * os, weight, i, at) + (bias ? bias[i] : 0));
}

void conv_weights(const struct conv *k, const float *x, const float *gy, float *gw)
{
    const int64_t cg = k->c / k->groups, og = k->o / k->groups, is = window_in_size(&k->w), os = window_out_size(&k->w),
                  ks = window_k_size(&k->w);
    for (int64_t o = 0; o < k->o; o++)
        for (int64_t i = 0; i < cg; i++)
            for (int64_t q = 0; q < ks; q++) {
                double sum = 0;
                for (int64_t n = 0; n < k->n; n++) {
                    const float *from = x + (n * k->c + o / og * cg + i) * is, *g = gy + (n * k->o + o) * os;
                    for (int64_t s = 0; s < os; s++) {
                        int64_t at = window_at(&k->w, s, q);
                        if (at >= 0) sum += (double)from[at] * g[s];
                    }
                }
                gw[(o * cg + i) * ks + q] = (float)sum;
            }
}

void conv_bias(int64_t n, int64_t channels, int64_t points, const float *g, float *gb)
{
    for (int64_t c = 0; c < channels; c++) {
        const struct extent d = {n, channels, points};
        double sum = 0;
        CHANNEL_EACH(d, c, at) sum += g[at];
        gb[c] = (float)sum;
    }
}
