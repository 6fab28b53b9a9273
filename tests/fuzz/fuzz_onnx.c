/* ONNX files: a refusal is one line that begins with the file. A network that is taken is one of graph text, too: it
 * prints as a text that is parsed to the same text. Its weights lie within the file. */
#include "kept_file.h"
#include "model/graph_int.h"
#include "model/onnx/onnx.h"
#include "round_trip.h"

static void build(const char *path, bool predicts)
{
    struct err e = {0}, other = {0};
    struct graph_builder *b = graph_begin("net", NULL);
    const struct onnx_ask ask = {{3, {3, 8, 8}}, predicts, 1 << 12};
    struct onnx_net net = {-1, -1};
    b->predicts = predicts;
    if (onnx_build(b, path, &ask, &net, &e)) {
        refused(&e, E_DATA, path);
        graph_fail(b, "%s", e.text);
    }
    struct graph *g = graph_finish(b, net.output, net.loss, &other);
    if (g && !predicts) round_trip(g);
    graph_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = kept_file(data, size);
    struct err e = {0};
    struct onnx_weights w;
    unsigned sum = 0;
    build(path, false);
    build(path, true);
    if (onnx_weights_open(path, &w, &e)) {
        refused(&e, E_DATA, path);
        return 0;
    }
    for (int i = 0; i < w.n; i++)
        for (uint64_t k = 0; w.of[i].values && k < w.of[i].bytes; k++) sum += ((const uint8_t *)w.of[i].values)[k];
    must(sum < UINT32_MAX);
    onnx_weights_close(&w);
    return 0;
}
