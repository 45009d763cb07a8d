"""cgtree for Conan 2: `conan create packaging/conan` in the repository.

The packages that it is compiled with come from Conan, or from the system: -o "cgtree/*:system_packages=True".
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt, Dnf

ROOT = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir)
SOURCES = ("CMakeLists.txt", "LICENSE", "THIRD_PARTY_LICENSES.md", "cmake/*", "base/*", "interop/*", "allocator/*",
           "cgtree/*", "extensions/*", "simulator/*", "targets/*", "caching/*", "bindings/*",
           "python/cgtree/_report.py")


class CgtreeConan(ConanFile):
    name = "cgtree"
    description = "CUDA graphs for step functions, without their sharp edges"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "cuda": ["AUTO", "ON", "OFF"], "system_packages": [True, False]}
    default_options = {"shared": False, "cuda": "AUTO", "system_packages": False}

    def set_version(self):
        self.version = re.search(r"project\(cgtree VERSION (\S+) ", load(self, os.path.join(ROOT, "CMakeLists.txt"))).group(1)

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, ROOT, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        if not self.options.system_packages:
            # Only headers: programs do not need them.
            for package in ("fmt/11.2.0", "spdlog/1.15.3", "nlohmann_json/3.11.3"):
                self.requires(package, visible=False, libs=False, options={"header_only": True} if "json" not in package else {})

    def system_requirements(self):
        if self.options.system_packages:
            Apt(self).check(["libfmt-dev", "libspdlog-dev", "nlohmann-json3-dev"])
            Dnf(self).check(["fmt-devel", "spdlog-devel", "json-devel"])

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["CGTREE_CUDA"] = str(self.options.cuda)
        toolchain.cache_variables["CGTREE_CUDA_ARCHS"] = "all"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # cgtree's own CMake package is right for both kinds of libraries and has the requirements
        # of CUDA.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/cgtree"]
        self.cpp_info.includedirs = ["include/cgtree"]
        self.cpp_info.libs = ["cgtree_cpp", "cgtree"]
