/* cuBLASLt, loaded when the first device or described device is opened. Linked like the other libraries, it would add
 * 150 ms to the start of every program: its 410,000 relocations are done at load time. */
#ifndef BACKEND_CUDA_CUDA_BLASLT_H
#define BACKEND_CUDA_CUDA_BLASLT_H
#include <cublasLt.h>
#include "base/err.h"

#define BLASLT_FUNCTIONS(X) \
    X(GetVersion) X(GetStatusName) X(Create) X(Destroy) X(Matmul) X(MatmulDescCreate) X(MatmulDescDestroy) \
    X(MatmulDescSetAttribute) X(MatrixLayoutCreate) X(MatrixLayoutDestroy) X(MatmulPreferenceCreate) \
    X(MatmulPreferenceDestroy) X(MatmulPreferenceSetAttribute) X(MatmulAlgoGetHeuristic) \
    X(MatmulAlgoConfigGetAttribute)

#define BLASLT_MEMBER(name) __typeof__(&cublasLt##name) name;
struct blaslt { BLASLT_FUNCTIONS(BLASLT_MEMBER) };
/* The library's functions, without their prefix; valid after blaslt_load. */
extern struct blaslt blaslt;
/* Loads the library; the second and later calls do nothing. Any thread. -1: e (E_DEVICE), it is not installed. */
int blaslt_load(struct err *e);
#endif
