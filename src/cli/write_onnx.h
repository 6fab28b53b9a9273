/* --write-onnx FILE.onnx: the network of a run with its weights, for other programs. Main thread. */
#ifndef CLI_WRITE_ONNX_H
#define CLI_WRITE_ONNX_H
#include "base/text.h"
#include "conf/conf.h"

/* Takes the weights that a prediction takes (run.exports is set), with adapters their sums. Adds lines about them to
 * out. Needs neither data nor a GPU. Errors of the configuration, weights_init and onnx_write. */
int write_onnx(const struct conf *c, const char *file, struct text *out, struct err *e);

#endif
