/* Replaces what reads and writes ONNX files if configure did not find protobuf-c. */
#include "model/onnx/onnx.h"

int onnx_open(const char *path, struct onnx_model *m, struct err *e)
{
    return err_set(e, E_CONF, "%s: this mpstaged was built without protobuf-c (libprotobuf-c-dev)", path);
}

void onnx_close(struct onnx_model *m) { (void)m; }
