/* An ONNX file that is read: its messages, and the values of its tensors. For this folder only. */
#ifndef MODEL_ONNX_FILE_H
#define MODEL_ONNX_FILE_H
#include "model/graph_int.h"
#include "model/onnx/onnx.h"
#include "model/onnx/onnx.pb-c.h"

#define ELEMENTS_MOST (INT64_C(1) << 40)                /* of a tensor */

/* Types of elements, of the standard. */
enum onnx_type { ONNX_F32 = 1, ONNX_U8, ONNX_I8, ONNX_I32 = 6, ONNX_I64, ONNX_BOOL = 9, ONNX_F16, ONNX_F64,
                 ONNX_BF16 = 16 };

struct onnx_file { const char *path; struct arena *mem; Onnx__Model *model; };
/* 65 also for a file without a graph or with dimensions that do not fit. The caller closes it. */
struct onnx_file *onnx_file_open(const char *path, struct err *e);
void onnx_file_close(struct onnx_file *f);

/* Whether it is a vector of one number again and again, as weights of norms begin with; of one element: 0 or 1.
 * Exporters write those of several layers once; each layer has its own nevertheless. */
bool onnx_is_plain(const struct onnx_file *f, const Onnx__Tensor *t);
/* The name of a parameter or a node: characters that names in our graphs cannot have become _. In the file's arena. */
const char *onnx_name(const struct onnx_file *f, const char *name);
bool onnx_floats(const Onnx__Tensor *t);
int64_t onnx_count(const Onnx__Tensor *t);              /* of elements; checked when the file was opened */
/* Where a tensor's bytes are, as stored. 65: they do not have the size that its dimensions ask for. */
int onnx_place(const struct onnx_file *f, const Onnx__Tensor *t, struct onnx_weight *w, struct err *e);
/* All values as doubles. out: onnx_count of them. 65: a type that is not read. */
int onnx_values(const struct onnx_file *f, const Onnx__Tensor *t, double *out, struct err *e);

#endif
