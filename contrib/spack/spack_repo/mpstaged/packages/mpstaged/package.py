# spack repo add contrib/spack/spack_repo/mpstaged
# spack install mpstaged                    in the folder of mpstaged-0.2.0.tar.gz, with Spack 1.0 or newer
# spack dev-build mpstaged@main             in the source tree
import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Mpstaged(AutotoolsPackage):
    """Trains a neural network as a pipeline of processes, with the same bits for every cut, schedule and number of
    ranks."""

    manual_download = True
    url = "file://{0}/mpstaged-0.2.0.tar.gz".format(os.getcwd())

    license("BSD-3-Clause")

    version("main")
    # The checksum of the tarball is filled in at the release; until then: spack install --no-checksum
    version("0.2.0")

    variant("prometheus", default=True, description="Serve figures to Prometheus")
    variant("onnx", default=True, description="Read and write ONNX files")
    variant("cuda", default=False, description="GPUs of NVIDIA, by cuDNN and NCCL")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    with when("@main"):
        depends_on("autoconf@2.69:", type="build")
        depends_on("automake@1.16:", type="build")
        depends_on("libtool", type="build")
    depends_on("openmpi@4.1:")
    depends_on("libuv@1.40:")
    depends_on("onednn@2.5: cpu_runtime=omp")
    depends_on("jansson@2.13:")
    depends_on("zlib-api")
    depends_on("xxhash@0.8:")
    depends_on("random123@1.13:")
    depends_on("utf8proc@2.5:")
    depends_on("pcre2@10.36:")
    depends_on("libjpeg-turbo@2:")
    depends_on("libpng@1.6.32:")
    depends_on("libmicrohttpd@0.9.71:", when="+prometheus")
    depends_on("protobuf-c@1.3:", when="+onnx")
    with when("+cuda"):
        depends_on("cuda@13:")
        depends_on("cudnn@9:")
        depends_on("nccl@2.28.9:")

    requires("%c=gcc", msg="oneDNN and mpstaged must use one OpenMP library, GCC's")

    def configure_args(self):
        args = ["--with-systemdsystemunitdir=no", "--with-cuda=no"]
        args += self.with_or_without("microhttpd", variant="prometheus")
        args += self.with_or_without("onnx")
        if self.spec.satisfies("+cuda"):
            args[1] = "--with-cuda=" + self.spec["cuda"].prefix
            args += [f"--with-{name}={self.spec[name].prefix}" for name in ("cudnn", "nccl")]
        return args
