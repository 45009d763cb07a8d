"""Test of the package for `conan create`: the programs of tests/install/consumer find it, and run."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, os.pardir))


class CgtreeTestConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self, build_folder=os.path.join(ROOT, "build", "conan"))

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.path.join(ROOT, "tests", "install", "consumer"))
        cmake.build()

    def test(self):
        if can_run(self):
            for program in ("c99", "cxx17", "cxx20"):
                self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
