# MPS_CUDA: --with-cuda[=DIR|no|auto] --with-cudnn=DIR --with-nccl=DIR NVCC= CUDA_GENCODE=
#
# Looks for the CUDA toolkit with cuBLASLt, cuDNN 9 and NCCL. auto: without one of them CUDA is off, and configure says
# what is missing; asked for, that is an error. Sets CUDA_CPPFLAGS CUDA_LDFLAGS CUDA_LIBS NVCC CUDA_GENCODE,
# conditional CUDA, HAVE_CUDA in config.h, and cuda_says for the summary.

# _MPS_CUDA_LIB(name, file, function): appends to CUDA_LIBS; libraries from pip have no libNAME.so,
# so the file's name is tried, too
AC_DEFUN([_MPS_CUDA_LIB], [
  AC_MSG_CHECKING([for $3 in -l$1])
  mps_save_LIBS=$LIBS; mps_found=no
  for mps_l in "-l$1" "-l:$2"; do
    LIBS="$mps_l $mps_save_LIBS"
    AC_LINK_IFELSE([AC_LANG_CALL([], [$3])], [mps_found=$mps_l; break])
  done
  LIBS=$mps_save_LIBS
  AC_MSG_RESULT([$mps_found])
  AS_IF([test "x$mps_found" != xno], [CUDA_LIBS="$mps_found $CUDA_LIBS"], [cuda_missing="$cuda_missing lib$1"])])

AC_DEFUN([_MPS_CUDA_GENCODE], [
  AC_MSG_CHECKING([which GPUs $NVCC knows])
  mps_last=
  for mps_arch in 80 90 100; do
    AS_IF([$NVCC --list-gpu-code 2>/dev/null | grep -qx "sm_$mps_arch"],
      [CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$mps_arch,code=sm_$mps_arch"; mps_last=$mps_arch])
  done
  AS_IF([test -n "$mps_last"], [CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$mps_last,code=compute_$mps_last"])
  AC_MSG_RESULT([$CUDA_GENCODE])])

AC_DEFUN([_MPS_CUDA_TRY], [
  mps_lib=
  for mps_d in lib64 lib lib/x86_64-linux-gnu; do
    AS_IF([test -d "$cuda_root/$mps_d"], [mps_lib=$cuda_root/$mps_d; break])
  done
  CUDA_CPPFLAGS="-isystem $cuda_root/include"
  CUDA_LDFLAGS="-L$mps_lib -Wl,-rpath,$mps_lib"
  for mps_d in $with_cudnn $with_nccl; do
    CUDA_CPPFLAGS="-isystem $mps_d/include $CUDA_CPPFLAGS"
    for mps_e in lib64 lib; do
      AS_IF([test -d "$mps_d/$mps_e"], [CUDA_LDFLAGS="-L$mps_d/$mps_e -Wl,-rpath,$mps_d/$mps_e $CUDA_LDFLAGS"])
    done
  done
  mps_save_CPPFLAGS=$CPPFLAGS; mps_save_LDFLAGS=$LDFLAGS
  CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"; LDFLAGS="$LDFLAGS $CUDA_LDFLAGS -Wl,--allow-shlib-undefined"
  AC_CHECK_HEADERS([cuda_runtime_api.h cublasLt.h cudnn.h nccl.h], [], [cuda_missing="$cuda_missing $ac_header"])
  AC_CHECK_DECL([CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR], [], [cuda_missing="$cuda_missing cuDNN>=9"],
    [@%:@include <cudnn.h>])
  AC_CHECK_MEMBER([ncclConfig_t.cgaClusterSize], [], [cuda_missing="$cuda_missing NCCL>=2.17"], [@%:@include <nccl.h>])
  _MPS_CUDA_LIB([cudart], [libcudart.so.13], [cudaGetDeviceCount])
  mps_linked=$CUDA_LIBS
  _MPS_CUDA_LIB([cublasLt], [libcublasLt.so.13], [cublasLtMatmul])
  CUDA_LIBS=$mps_linked   # cuBLASLt is loaded with the first device: cuda_blaslt.h
  _MPS_CUDA_LIB([cudnn], [libcudnn.so.9], [cudnnBackendExecute])
  _MPS_CUDA_LIB([nccl], [libnccl.so.2], [ncclSend])
  CPPFLAGS=$mps_save_CPPFLAGS; LDFLAGS=$mps_save_LDFLAGS
  AS_IF([test -z "$CUDA_GENCODE"], [_MPS_CUDA_GENCODE])
  AC_MSG_CHECKING([whether $NVCC compiles])
  echo 'extern "C" __global__ void k(int *x) { *x = 1; }' >conftest.cu
  AS_IF([$NVCC ${NVCC_CCBIN:+-ccbin "$NVCC_CCBIN"} -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no]); cuda_missing="$cuda_missing working-nvcc"])
  rm -f conftest.cu conftest.o])

AC_DEFUN([MPS_CUDA], [
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCC_CCBIN], [host compiler that nvcc calls])
  AC_ARG_VAR([CUDA_GENCODE], [-gencode options of nvcc])
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [GPUs: CUDA toolkit, no, or auto (the default)])],
    [], [with_cuda=auto])
  AC_ARG_WITH([cudnn], [AS_HELP_STRING([--with-cudnn=DIR], [cuDNN 9, where it is not in the toolkit])],
    [], [with_cudnn=])
  AC_ARG_WITH([nccl], [AS_HELP_STRING([--with-nccl=DIR], [NCCL 2, where it is not in the toolkit])], [], [with_nccl=])
  have_cuda=no; cuda_missing=; cuda_says="off (--with-cuda=no)"
  # Sanitizers watch host code; GPU builds are tested without them unless asked for.
  AS_IF([test "$with_cuda" = auto && test "$enable_sanitizer" != no && test -n "$enable_sanitizer"],
    [with_cuda=no; cuda_says="off (sanitizer build)"])
  AS_IF([test "$with_cuda" != no], [
    AS_CASE([$with_cuda], [auto|yes], [mps_try="$CUDA_HOME $CUDA_PATH /usr/local/cuda /opt/cuda /usr"],
      [mps_try=$with_cuda])
    cuda_root=
    for mps_d in $mps_try; do AS_IF([test -f "$mps_d/include/cuda_runtime_api.h"], [cuda_root=$mps_d; break]); done
    AS_IF([test -z "$cuda_root"], [cuda_missing=" cuda_runtime_api.h"], [
      AC_PATH_PROG([NVCC], [nvcc], [no], [$cuda_root/bin$PATH_SEPARATOR$PATH])
      AS_IF([test "$NVCC" = no], [cuda_missing=" nvcc"], [_MPS_CUDA_TRY])])
    AS_IF([test -z "$cuda_missing"], [have_cuda=yes; cuda_says="$cuda_root"],
      [test "$with_cuda" = auto], [cuda_says="off (missing:$cuda_missing)"],
      [AC_MSG_ERROR([CUDA was asked for, missing:$cuda_missing])])])
  AS_IF([test $have_cuda = yes], [AC_DEFINE([HAVE_CUDA], [1], [GPUs are built in])],
    [CUDA_CPPFLAGS= CUDA_LDFLAGS= CUDA_LIBS=])
  AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([CUDA_LDFLAGS]) AC_SUBST([CUDA_LIBS])
  AM_CONDITIONAL([CUDA], [test $have_cuda = yes])])
