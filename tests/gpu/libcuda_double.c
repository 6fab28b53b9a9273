/* A driver for planning without a GPU: replaces libcuda.so.1 while cuDNN makes plans for a described device.
 *
 * cuDNN's run-time compiled engines load the kernels that NVRTC made and ask how many blocks fit; nothing is ever
 * launched. This file answers loads and queries, reports no device, and returns "not supported" for everything else.
 * Only tests/gpu/plans.sh uses it, through LD_LIBRARY_PATH, and only if no real driver is installed. Plain C without a
 * CUDA header, so that the names are the library's own whatever macros define. */
#include <stddef.h>

enum { SUCCESS = 0, NO_DEVICE = 100, NOT_SUPPORTED = 801 };

/* Handles are asked for and handed back, never looked into. */
static int handle;

#define GIVES_HANDLE(name) int name(void **out); int name(void **out) { *out = &handle; return SUCCESS; }
#define GIVES(name, type, value) int name(type *out); int name(type *out) { *out = value; return SUCCESS; }
#define DONE(name) int name(void); int name(void) { return SUCCESS; }
#define REFUSED(name) int name(void); int name(void) { return NOT_SUPPORTED; }

GIVES(cuDriverGetVersion, int, 13000)
GIVES_HANDLE(cuLibraryLoadData)
GIVES_HANDLE(cuLibraryGetKernel)
GIVES_HANDLE(cuLibraryGetModule)
GIVES_HANDLE(cuKernelGetFunction)
GIVES_HANDLE(cuModuleLoadData)
GIVES_HANDLE(cuModuleLoadDataEx)
GIVES_HANDLE(cuModuleGetFunction)
GIVES(cuKernelGetAttribute, int, 0)
GIVES(cuFuncGetAttribute, int, 0)
GIVES(cuOccupancyMaxActiveBlocksPerMultiprocessor, int, 1)
GIVES(cuOccupancyMaxActiveClusters, int, 66)
DONE(cuLibraryUnload)
DONE(cuModuleUnload)
DONE(cuKernelSetAttribute)
DONE(cuFuncSetAttribute)

int cuGetErrorName(int code, const char **out);
int cuGetErrorName(int code, const char **out) { *out = code == SUCCESS ? "CUDA_SUCCESS"
                                                : "CUDA_ERROR"; return SUCCESS; }
int cuGetErrorString(int code, const char **out);
int cuGetErrorString(int code, const char **out) { *out = code == SUCCESS ? "no error"
                                                  : "no device: a double for planning"; return SUCCESS; }

int cuInit(unsigned flags);
int cuInit(unsigned flags) { (void)flags; return NO_DEVICE; }
int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n) { *n = 0; return NO_DEVICE; }

REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetDevice)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetAttribute)
REFUSED(cuDevicePrimaryCtxRelease)
REFUSED(cuDevicePrimaryCtxReset)
REFUSED(cuDevicePrimaryCtxRetain)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuLinkAddData)
REFUSED(cuLinkAddData_v2)
REFUSED(cuLinkAddFile_v2)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkCreate_v2)
REFUSED(cuLinkDestroy)
REFUSED(cuMemcpyDtoH_v2)
REFUSED(cuModuleGetGlobal_v2)
REFUSED(cuModuleLoadFatBinary)
REFUSED(cuOccupancyMaxPotentialClusterSize)
REFUSED(cuStreamGetCtx)
REFUSED(cuStreamSynchronize)
REFUSED(cuTensorMapEncodeTiled)
