/* Reads ONNX files. */
#include "model/onnx/onnx.h"
#include "model/onnx/onnx.pb-c.h"

int onnx_open(const char *path, struct onnx_model *m, struct err *e)
{
    return err_set(e, E_CONF, "%s: this mpstaged was built without protobuf-c (libprotobuf-c-dev)", path);
}

void onnx_close(struct onnx_model *m) { (void)m; }
