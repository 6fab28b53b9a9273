# MPS_MPI: MPICC= MPIRUN= MPI_CFLAGS= MPI_LIBS=
#
# Takes Open MPI from pkg-config, or else MPICH. MPICC names another library's compiler, whose options are taken; the
# mpirun of that name then starts ranks: mpicc.mpich and mpirun.mpich. Sets MPI_CFLAGS MPI_LIBS MPIRUN, and mpi_says
# for the summary.
AC_DEFUN([MPS_MPI], [
  AC_ARG_VAR([MPICC], [MPI compiler whose library is used, such as mpicc.mpich; default: Open MPI, or else MPICH])
  AC_ARG_VAR([MPIRUN], [program that starts ranks in tests and services; default: the library's])
  mpi_run=mpirun
  AS_IF([test -n "$MPICC"], [
    mpi_run=`AS_ECHO(["$MPICC"]) | $SED "s,.*/,,; s/mpicc/mpirun/"`
    mpi_first=yes
    for mpi_word in `$MPICC -show 2>&AS_MESSAGE_LOG_FD`; do
      AS_CASE([$mpi_first$mpi_word], [yes*], [mpi_first=], [-I* | -D*], [MPI_CFLAGS="$MPI_CFLAGS $mpi_word"],
        [MPI_LIBS="$MPI_LIBS $mpi_word"])
    done
    AS_IF([test -z "$MPI_LIBS"], [AC_MSG_ERROR([$MPICC -show names no library])])
  ], [
    PKG_CHECK_EXISTS([ompi-c], [mpi_module="ompi-c >= 4.1"], [mpi_module="mpich >= 4.0"])
    PKG_CHECK_MODULES([MPI], [$mpi_module], [], [MPS_LACKS([Open MPI or MPICH], [libopenmpi-dev openmpi-bin])])])
  AC_PATH_PROG([MPIRUN], [$mpi_run], [$mpi_run], [`AS_DIRNAME(["$MPICC"])`$PATH_SEPARATOR$PATH])
  mps_save_CPPFLAGS=$CPPFLAGS; CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
  AS_IF([test -n "$MPI_LIBS"], [AC_CHECK_DECL([OPEN_MPI], [mpi_says="Open MPI"],
    [AC_CHECK_DECL([MPICH_VERSION], [mpi_says="MPICH or a library of its ABI"
      AC_DEFINE([WITH_MPICH], [1], [The MPI library is MPICH or has its ABI, otherwise Open MPI])],
      [AC_MSG_ERROR([neither Open MPI nor MPICH: $MPI_CFLAGS])], [@%:@include <mpi.h>])], [@%:@include <mpi.h>])])
  CPPFLAGS=$mps_save_CPPFLAGS])
