# Sourced on the GPU machine: MPSTAGED_PACK=FILE-OR-FOLDER, then `. tests/gpu/env.sh`. Unpacks what tests/gpu/pack made
# (into MPSTAGED_UNPACKED, without it into a new folder under TMPDIR), and sets PATH, LD_LIBRARY_PATH and Open MPI's
# variables so that `mpirun -np 2 "$MPSTAGED_GPU/build/mpstaged"` runs. Sets MPSTAGED_GPU (the folder) and
# MPSTAGED_OUTER_LD (LD_LIBRARY_PATH as it was: python3 and other programs of the machine want that one).
case ${MPSTAGED_PACK:?is the file that tests/gpu/pack made, or the folder that it was unpacked into} in
    *.tar.gz)
        MPSTAGED_GPU=${MPSTAGED_UNPACKED:-$(mktemp -d)} && mkdir -p "$MPSTAGED_GPU" &&
            tar xzf "$MPSTAGED_PACK" --strip-components=1 -C "$MPSTAGED_GPU" || return 1 ;;
    *) MPSTAGED_GPU=$(CDPATH='' cd -- "$MPSTAGED_PACK" && pwd) || return 1 ;;
esac
export MPSTAGED_GPU
export MPSTAGED_OUTER_LD="${MPSTAGED_OUTER_LD-${LD_LIBRARY_PATH:-}}"

# Open MPI where it was not installed: one host, shared memory, nothing asked of the network.
export OPAL_PREFIX="$MPSTAGED_GPU/mpi" OPAL_BINDIR="$MPSTAGED_GPU/mpi/bin" OPAL_LIBDIR="$MPSTAGED_GPU/lib" \
    OPAL_PKGLIBDIR="$MPSTAGED_GPU/mpi/plugins"
export OPAL_DATADIR="$MPSTAGED_GPU/mpi" OPAL_PKGDATADIR="$MPSTAGED_GPU/mpi/share" \
    OPAL_SYSCONFDIR="$MPSTAGED_GPU/mpi/etc"
export PMIX_MCA_mca_base_component_path="$MPSTAGED_GPU/mpi/pmix/lib/pmix" PMIX_MCA_pcompress_base_silence_warning=1
export PMIX_SYSCONFDIR="$MPSTAGED_GPU/mpi/pmix/share" PMIX_PKGDATADIR="$MPSTAGED_GPU/mpi/pmix/share/pmix"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo OMPI_MCA_reachable=weighted \
    OMPI_MCA_orte_tmpdir_base="${TMPDIR:-/tmp}"
export HWLOC_COMPONENTS="${HWLOC_COMPONENTS--gl}"
export PATH="$MPSTAGED_GPU/mpi/bin:$PATH"
# Open MPI talks to its ranks over the loopback interface, which a bare virtual machine may have down.
if [ "$(cat /sys/class/net/lo/operstate 2>/dev/null)" = down ]; then ip link set lo up 2>/dev/null ||
    python3 - <<'UP' || true
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))    # SIOCSIFFLAGS: IFF_UP
UP
fi

# CUDA, cuDNN and NCCL: the pip wheels that python3 sees, so that a PyTorch there and we use the same; then a toolkit.
mpstaged_cuda=$(python3 - 2>/dev/null <<'FIND'
import glob, os, sys, sysconfig
roots = [p for p in sys.path if p.endswith("-packages")] + [sysconfig.get_paths()["purelib"]]
print(":".join(dict.fromkeys(d for r in roots for d in sorted(glob.glob(os.path.join(r, "nvidia", "*", "lib"))))))
FIND
) || mpstaged_cuda=
for d in "${CUDA_HOME:-/usr/local/cuda}/lib64" "${CUDA_HOME:-/usr/local/cuda}/lib"; do
    [ ! -d "$d" ] || mpstaged_cuda=$mpstaged_cuda${mpstaged_cuda:+:}$d
done
# libgomp, libstdc++ and libgcc_s of the machine where it has them, which are as new as CUDA's libraries need;
# ours otherwise.
mpstaged_compiler=
for d in libstdc++.so.6 libgcc_s.so.1 libgomp.so.1; do
    if ! { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q "$d "; then
        mkdir -p "$MPSTAGED_GPU/lib/needed" && cp "$MPSTAGED_GPU/lib/compiler/$d" "$MPSTAGED_GPU/lib/needed/" &&
            mpstaged_compiler=:$MPSTAGED_GPU/lib/needed
    fi
done
LD_LIBRARY_PATH="$MPSTAGED_GPU/lib$mpstaged_compiler${mpstaged_cuda:+:$mpstaged_cuda}"
export LD_LIBRARY_PATH="$LD_LIBRARY_PATH${MPSTAGED_OUTER_LD:+:$MPSTAGED_OUTER_LD}"
