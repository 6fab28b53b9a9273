#include <string.h>
#include "data/image.h"

static void norm_set(const struct conf *c, struct image_form *f, int64_t channels)
{
    for (int64_t i = 0; i < channels && i < CONF_LIST; i++) {
        f->mean[i] = c->data.mean.n ? c->data.mean.v[c->data.mean.n == 1 ? 0 : i] : 0;
        f->std[i] = c->data.std.n ? c->data.std.v[c->data.std.n == 1 ? 0 : i] : 1;
    }
}

int image_form_make(const struct conf *c, const char *file, int64_t channels, int64_t height, int64_t width, const struct shape *input, struct image_form *f, struct err *e)
{
    char want[96];
    *f = (struct image_form){channels, height, width, c->data.channels ? c->data.channels : 1, height, width, {0}, {0}};
    if (f->repeat > 1 && channels != 1) return conf_error(c, "data.channels", e, "%s has %lld channels: only a single one can be repeated", file, (long long)channels);
    if (c->data.pad.n) { f->out_height = c->data.pad.v[0]; f->out_width = c->data.pad.v[1]; }
    if (f->out_height < height || f->out_width < width) return conf_error(c, "data.pad", e, "the images of %s are %lldx%lld: too large", file, (long long)height, (long long)width);
    int64_t out = channels * f->repeat;
    struct shape got = {3, {out, f->out_height, f->out_width}}, flat = {1, {out * f->out_height * f->out_width}};
    if (!shape_equal(&got, input) && !shape_equal(&flat, input)) {
        char is[96];
        return err_set(e, E_CONF, "%s: %s gives samples of %s, the network wants %s (see data.pad, data.channels, model.input)", c->file, file, shape_text(&got, is), shape_text(input, want));
    }
    if (out > CONF_LIST) return err_set(e, E_CONF, "%s: %s: more than %d channels", c->file, file, CONF_LIST);
    if (c->data.mean.n > 1 && c->data.mean.n != out) return conf_error(c, "data.mean", e, "%d values for %lld channels", c->data.mean.n, (long long)out);
    if (c->data.std.n > 1 && c->data.std.n != out) return conf_error(c, "data.std", e, "%d values for %lld channels", c->data.std.n, (long long)out);
    norm_set(c, f, out);
    return 0;
}

void image_convert(const struct image_form *f, const uint8_t *pixel, float *x)
{
    int64_t top = (f->out_height - f->height) / 2, left = (f->out_width - f->width) / 2, plane = f->out_height * f->out_width;
    for (int64_t ch = 0; ch < f->channels * f->repeat; ch++) {
        const uint8_t *from = pixel + (f->repeat > 1 ? 0 : ch) * f->height * f->width;
        float table[256], *to = x + ch * plane;
        for (int v = 0; v < 256; v++) table[v] = (float)((v / 255.0 - f->mean[ch]) / f->std[ch]);
        for (int64_t i = 0; i < plane; i++) to[i] = table[0];
        for (int64_t row = 0; row < f->height; row++)
            for (int64_t col = 0; col < f->width; col++) to[(row + top) * f->out_width + col + left] = table[from[row * f->width + col]];
    }
}

void target_write(int64_t cls, const struct shape *target, enum dtype type, void *y)
{
    if (type == I64) { *(int64_t *)y = cls; return; }
    memset(y, 0, (size_t)shape_count(target) * sizeof(float));
    ((float *)y)[cls] = 1;
}

int64_t target_classes(const struct conf *c, const struct shape *target, enum dtype type)
{
    if (type != I64) return shape_count(target);
    return c->model.classes ? c->model.classes : INT64_MAX;
}
