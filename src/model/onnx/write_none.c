/* Replaces what writes ONNX files if configure did not find protobuf-c. */
#include "model/onnx/write.h"

int onnx_write(const struct graph *g, const struct onnx_output *o, struct onnx_written *w, struct err *e)
{
    return err_set(e, E_CONF, "%s: this mpstaged was built without protobuf-c (libprotobuf-c-dev)", o->path);
}
