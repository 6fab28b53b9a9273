#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "backend/cuda/cuda_blaslt.h"

struct blaslt blaslt;
static struct err failure;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void function_find(void *library, const char *name, void *to)
{
    void *found = dlsym(library, name);
    if (found) memcpy(to, &found, sizeof found);
    else err_set(&failure, E_DEVICE, "cuBLASLt has no %s", name);
}

static void load(void)
{
    char name[32];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        err_set(&failure, E_DEVICE, "cuBLASLt: %s", dlerror());
        return;
    }
#define BLASLT_FIND(f) function_find(library, "cublasLt" #f, &blaslt.f);
    BLASLT_FUNCTIONS(BLASLT_FIND)
}

int blaslt_load(struct err *e)
{
    pthread_once(&once, load);
    return failure.code ? err_set(e, failure.code, "%s", failure.text) : 0;
}
