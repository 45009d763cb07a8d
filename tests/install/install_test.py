"""An engine builds cgtree as a part of itself and installs it; others find that with CMake and pkg-config."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

HERE = pathlib.Path.cwd()
CONSUMER = HERE / "tests/install/consumer"
# What each program of the consumers prints.
PROGRAMS = {
    "c99": "10 5 10 15 after 2 runs\n0 handles left\n",
    "cxx17": "0 handles left\n",
    "cxx20": "3 replays of steps, 3 of the function\n",
}
# What is installed below the prefix, beside the headers: the library in C++ is static, or shared.
FILES = {
    "bin/cgtree_report", "lib/libcgtree.so", "lib/libcgtree.so.2", "lib/libcgtree.so.2.0.1.0",
    "lib/cmake/cgtree/cgtreeConfig.cmake", "lib/cmake/cgtree/cgtreeConfigVersion.cmake",
    "lib/cmake/cgtree/cgtree-c.cmake", "lib/cmake/cgtree/cgtree-c-noconfig.cmake",
    "lib/cmake/cgtree/cgtree-cgtree.cmake", "lib/cmake/cgtree/cgtree-cgtree-noconfig.cmake",
    "lib/pkgconfig/cgtree.pc", "lib/pkgconfig/cgtree_cpp.pc", "share/licenses/cgtree/LICENSE",
}
STATIC = {"lib/libcgtree_cpp.a"}
SHARED = {"lib/libcgtree_cpp.so", "lib/libcgtree_cpp.so.0.1", "lib/libcgtree_cpp.so.0.1.0"}
# What cgtree is compiled with; no program that uses it is.
PACKAGES = ("fmt", "nlohmann_json", "spdlog")
WITHOUT_PACKAGES = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in PACKAGES]


# They are compiled where PyTorch's headers are.
OF_TORCH = {"cgtree/torch.h"}


def run(*command, cwd=None, **environment):
    # stderr is the log of cgtree for programs, and part of what CMake says.
    return subprocess.run([str(word) for word in command], cwd=cwd, text=True, check=False,
                          env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)


def must_run(*command, **arguments):
    result = run(*command, **arguments)
    if result.returncode != 0:
        raise AssertionError(f"{command}:\n{result.stdout}{result.stderr}")
    return result.stdout


@unittest.skipUnless(shutil.which("cmake") and shutil.which("make"), "no cmake or no make here")
class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.work = cls.root / "work"
        shutil.copytree(CONSUMER, cls.work)
        # The library is compiled once, for all tests, and linked in both ways.
        cls.prefix, cls.embedded = cls.root / "a prefix", {}
        for shared, prefix in ("ON", cls.root / "shared prefix"), ("OFF", cls.prefix):
            must_run("cmake", "-S", cls.work, "-B", cls.root / "embedded", f"-DCGTREE_SOURCE={HERE}",
                     "-DCGTREE_CUDA=OFF", f"-DBUILD_SHARED_LIBS={shared}")
            must_run("cmake", "--build", cls.root / "embedded", "--parallel", 2)
            must_run("cmake", "--install", cls.root / "embedded", "--prefix", cls.root / "first")
            (cls.root / "first").rename(prefix)
            cls.embedded[shared] = [run(cls.root / "embedded" / name) for name in PROGRAMS]

    def expect_to_run(self, folder, names):
        for name in names:
            result = run(folder / name)
            self.assertEqual((result.stdout, result.returncode), (PROGRAMS[name], 0), result.stderr)

    def find(self, name, *arguments, ask="cgtree 0.1 REQUIRED", prefix=None):
        """Configures a project that finds the installed package."""
        work = self.root / f"{name} source"
        shutil.copytree(CONSUMER, work)
        lists = work / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("cgtree 0.1 REQUIRED", ask))
        return run("cmake", "-S", work, "-B", self.root / name, f"-DCMAKE_PREFIX_PATH={prefix or self.prefix}",
                   *WITHOUT_PACKAGES, *arguments)

    def test_programs_that_build_it_as_a_part_run(self):
        for shared, results in self.embedded.items():
            for name, result in zip(PROGRAMS, results, strict=True):
                with self.subTest(name=name, shared=shared):
                    self.assertEqual((result.stdout, result.returncode), (PROGRAMS[name], 0), result.stderr)

    def test_programs_that_find_it_installed_with_cmake_run_without_the_packages_of_its_sources(self):
        for name, prefix in ("found", self.prefix), ("found shared", self.root / "shared prefix"):
            with self.subTest(prefix=prefix):
                result = self.find(name, prefix=prefix)
                self.assertEqual(result.returncode, 0, result.stderr)
                must_run("cmake", "--build", self.root / name, "--parallel", 2)
                self.expect_to_run(self.root / name, PROGRAMS)

    def test_two_copies_of_the_c_abi_in_a_process_share_nothing(self):
        copies = [self.root / f"lib{name}.so" for name in ("one", "two")]
        for copy in copies:
            shutil.copy(self.prefix / "lib/libcgtree.so.2", copy)
        for visibility in "local", "global":
            with self.subTest(visibility=visibility):
                result = run(self.root / "embedded/twice", *copies, visibility)
                self.assertEqual(result.stdout, "5 and 5, 0 and 0 handles left\n", result.stderr)

    @unittest.skipUnless(shutil.which("nm"), "no nm here")
    def test_the_libraries_in_cpp_show_names_of_namespace_cgtree_alone(self):
        shared = must_run("nm", "-D", "--defined-only", self.root / "shared prefix/lib/libcgtree_cpp.so")
        names = [line.split()[-1] for line in shared.splitlines() if " A " not in line]
        self.assertGreater(len(names), 1000)
        for name in names:
            self.assertRegex(name, r"^_Z[A-Zhnv0-9_]*N[KRO]*6cgtree.*@CGTREE_CPP_0\.1$")
        # A program may be linked with another version of each.
        static = must_run("nm", "--defined-only", self.prefix / "lib/libcgtree_cpp.a")
        self.assertIn("13cgtree_spdlog", static)
        for package in ("3fmt", "8nlohmann", "6spdlog"):
            self.assertNotRegex(static, rf"(?<![0-9]){package}[0-9]")

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config here")
    def test_programs_that_find_it_installed_with_pkg_config_run(self):
        plain = self.root / "plain"  # make cannot do with blanks
        plain.symlink_to(self.prefix)
        must_run("make", cwd=self.work, PKG_CONFIG_PATH=str(plain / "lib/pkgconfig"))
        self.expect_to_run(self.work, ["c99", "cxx20"])

    def test_it_installs_these_files_and_nothing_of_where_it_was_built(self):
        found = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")
                 if not path.is_dir()}
        headers = {path for path in found if path.startswith("include/cgtree/")}
        self.assertEqual(found - headers, FILES | STATIC)
        shared = {str(path.relative_to(self.root / "shared prefix")) for path in
                  (self.root / "shared prefix/lib").glob("libcgtree_cpp*")}
        self.assertEqual(shared, SHARED)
        self.assertLessEqual({f"include/cgtree/cgtree/{name}" for name in
                              ["cgtree.h", "cgtree.hpp", "c_api.h"]}, headers)
        for place in [self.root, HERE]:
            result = run("grep", "-rlF", place, self.prefix)
            self.assertEqual(result.returncode, 1, result.stdout)

    def test_each_header_that_a_page_includes_compiles_with_the_standard_library_alone(self):
        named = source_tree.documented_headers(HERE)
        self.assertLessEqual({"cgtree/cgtree.h", "cgtree/watch/report.h", "interop/tensor/copy.h"}, named)
        source = self.root / "header.cc"
        for name in sorted(named - OF_TORCH):
            source.write_text(f'#include "{name}"\n')
            read = self.root / "header.d"
            result = run("c++", "-std=c++20", "-fsyntax-only", "-MD", "-MF", read, "-Wall", "-Werror", "-I",
                         self.prefix / "include/cgtree", source)
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
            self.assertNotRegex(read.read_text(), r"/(fmt|nlohmann|spdlog)/", name)

    def test_the_report_is_installed(self):
        result = run(self.prefix / "bin/cgtree_report", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("usage: report FILE", result.stdout)

    def test_the_shared_library_needs_only_what_every_system_has(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]",
                            must_run("readelf", "-d", self.prefix / "lib/libcgtree.so"))
        for name in needed:
            self.assertRegex(name, r"^(libstdc\+\+|libm|libgcc_s|libc|ld-linux.*)\.so")

    def test_another_version_is_refused(self):
        for asked in ["0.2", "1.0", "0.1.1"]:
            result = self.find(asked, ask=f"cgtree {asked} REQUIRED")
            self.assertNotEqual(result.returncode, 0, asked)

    def test_a_missing_package_is_named_with_its_debian_package(self):
        for package, debian in [("fmt", "libfmt-dev"), ("nlohmann_json", "nlohmann-json3-dev")]:
            result = run("cmake", "-S", HERE, "-B", self.root / package, "-DCGTREE_CUDA=OFF",
                         f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(debian, result.stderr)


@unittest.skipUnless(shutil.which("cmake"), "no cmake here")
class ConfigureTest(unittest.TestCase):
    """What cannot build cgtree is refused when it is configured, with both sides."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def expect_refusal(self, *arguments):
        """Returns what is said, in one line."""
        result = run("cmake", "-S", HERE, "-B", self.root / "build", *arguments)
        self.assertNotEqual(result.returncode, 0)
        return " ".join(result.stderr.split())

    def script(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def test_a_toolkit_that_is_too_old_is_named_with_its_version(self):
        self.script("cuda/bin/nvcc", '''echo "#\\$ TOP=$(dirname "$0")/.." >&2
echo "Cuda compilation tools, release 11.8, V11.8.89"''')
        for place, text in [("version.json", '{"cuda": {"name": "CUDA SDK", "version": "11.8.0"}}'),
                            ("include/cuda_runtime.h", "#define CUDART_VERSION 11080"),
                            ("lib64/libcudart.so", "")]:
            path = self.root / "cuda" / place
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for asked in "AUTO", "ON":
            with self.subTest(CGTREE_CUDA=asked):
                said = self.expect_refusal(f"-DCGTREE_CUDA={asked}", f"-DCUDAToolkit_ROOT={self.root}/cuda")
                self.assertRegex(said, "needs CUDA 12.0 or later.*/cuda/bin is CUDA 11.8")
                self.assertIn("-DCGTREE_CUDA=OFF", said)

    def test_a_compiler_without_cpp20_is_named(self):
        compiler = self.script("old-compiler", 'exec c++ "$@" -std=c++17')
        said = self.expect_refusal("-DCGTREE_CUDA=OFF", f"-DCMAKE_CXX_COMPILER={compiler}")
        self.assertRegex(said, rf"needs C\+\+20, which {compiler} \(.*\) does not compile: name another one, GCC 12")


class VersionTest(unittest.TestCase):
    def test_it_is_the_same_in_the_header_and_in_both_builds(self):
        number = int(re.search(r"#define CGT_VERSION (\d+)",
                               (HERE / "cgtree/c_api.h").read_text()).group(1))
        version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        self.assertIn(f'version = "{version}"', (HERE / "MODULE.bazel").read_text())
        self.assertIn(f"project(cgtree VERSION {version} ", (HERE / "CMakeLists.txt").read_text())

    def test_the_soname_has_the_number_of_the_abi(self):
        abi = re.search(r"#define CGT_ABI_VERSION (\d+)",
                        (HERE / "cgtree/c_api.h").read_text()).group(1)
        self.assertIn(f"SOVERSION {abi} VERSION {abi}.", (HERE / "CMakeLists.txt").read_text())


if __name__ == "__main__":
    unittest.main()
