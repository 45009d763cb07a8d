"""cgtree for Spack 1.0 and later, from a checkout: a repository of packages has this file in packages/cgtree/."""

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Cgtree(CMakePackage, CudaPackage):
    """CUDA graphs for step functions, without their sharp edges."""

    license("Apache-2.0")

    # No archive exists to fetch yet: `spack dev-build cgtree@0.2.0` builds the checkout in which it is called.
    version("0.2.0")

    variant("shared", default=False, description="Build the library in C++ as a shared one")

    depends_on("cxx", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("fmt", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("spdlog", type="build")
    depends_on("cuda@12:", when="+cuda")
    conflicts("%gcc@:10", msg="cgtree is written in C++20")

    def cmake_args(self):
        arguments = [self.define_from_variant("BUILD_SHARED_LIBS", "shared"), self.define_from_variant("CGTREE_CUDA", "cuda")]
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):  # without CUDA there is no cuda_arch
            arguments.append(self.define("CGTREE_CUDA_ARCHS", list(self.spec.variants["cuda_arch"].value)))
        else:
            arguments.append(self.define("CGTREE_CUDA_ARCHS", "all"))
        return arguments
