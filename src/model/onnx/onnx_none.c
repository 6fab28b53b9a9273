/* Replaces what reads ONNX files if configure did not find protobuf-c. */
#include "model/onnx/onnx.h"

bool onnx_is(const char *path) { return text_ends(path, ".onnx"); }

static int without(const char *path, struct err *e)
{
    return err_set(e, E_CONF, "%s: this mpstaged was built without protobuf-c (libprotobuf-c-dev)", path);
}

int onnx_build(struct graph_builder *b, const char *path, const struct onnx_ask *ask, struct onnx_net *net,
               struct err *e)
{
    (void)b, (void)ask, (void)net;
    return without(path, e);
}

int onnx_weights_open(const char *path, struct onnx_weights *w, struct err *e)
{
    *w = (struct onnx_weights){0};
    return without(path, e);
}

void onnx_weights_close(struct onnx_weights *w) { (void)w; }
