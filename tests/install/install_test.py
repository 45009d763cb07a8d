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
# What is installed below the prefix, beside the headers.
FILES = {
    "bin/cgtree_report", "lib/libcgtree.so", "lib/libcgtree.so.2", "lib/libcgtree.so.2.0.1.0", "lib/libcgtree_cpp.a",
    "lib/cmake/cgtree/cgtreeConfig.cmake", "lib/cmake/cgtree/cgtreeConfigVersion.cmake",
    "lib/cmake/cgtree/cgtree-c.cmake", "lib/cmake/cgtree/cgtree-c-noconfig.cmake",
    "lib/cmake/cgtree/cgtree-cgtree.cmake", "lib/cmake/cgtree/cgtree-cgtree-noconfig.cmake",
    "lib/pkgconfig/cgtree.pc", "lib/pkgconfig/cgtree_cpp.pc", "share/licenses/cgtree/LICENSE",
}


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
        # The library is built once, for all tests.
        must_run("cmake", "-S", cls.work, "-B", cls.root / "embedded", f"-DCGTREE_SOURCE={HERE}",
                 "-DCGTREE_CUDA=OFF")
        must_run("cmake", "--build", cls.root / "embedded", "--parallel", 2)
        cls.prefix = cls.root / "a prefix"
        must_run("cmake", "--install", cls.root / "embedded", "--prefix", cls.root / "first")
        (cls.root / "first").rename(cls.prefix)

    def expect_to_run(self, folder, names):
        for name in names:
            result = run(folder / name)
            self.assertEqual((result.stdout, result.returncode), (PROGRAMS[name], 0), result.stderr)

    def find(self, name, *arguments, ask="cgtree 0.1 REQUIRED"):
        """Configures a project that finds the installed package."""
        work = self.root / f"{name} source"
        shutil.copytree(CONSUMER, work)
        lists = work / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("cgtree 0.1 REQUIRED", ask))
        return run("cmake", "-S", work, "-B", self.root / name, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   *arguments)

    def test_programs_that_build_it_as_a_part_run(self):
        self.expect_to_run(self.root / "embedded", PROGRAMS)

    def test_programs_that_find_it_installed_with_cmake_run(self):
        result = self.find("found")
        self.assertEqual(result.returncode, 0, result.stderr)
        must_run("cmake", "--build", self.root / "found", "--parallel", 2)
        self.expect_to_run(self.root / "found", PROGRAMS)

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
        self.assertEqual(found - headers, FILES)
        self.assertLessEqual({f"include/cgtree/cgtree/{name}" for name in
                              ["cgtree.h", "cgtree.hpp", "c_api.h"]}, headers)
        for place in [self.root, HERE]:
            result = run("grep", "-rlF", place, self.prefix)
            self.assertEqual(result.returncode, 1, result.stdout)

    def test_each_header_that_a_page_includes_compiles(self):
        named = source_tree.documented_headers(HERE)
        self.assertLessEqual({"cgtree/cgtree.h", "cgtree/watch/report.h", "interop/tensor/copy.h"}, named)
        source = self.root / "header.cc"
        for name in sorted(named - OF_TORCH):
            source.write_text(f'#include "{name}"\n')
            result = run("c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", "-I",
                         self.prefix / "include/cgtree", source)
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")

    def test_the_report_is_installed(self):
        result = run(self.prefix / "bin/cgtree_report", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("usage: report FILE", result.stdout)

    def test_the_shared_library_needs_only_what_every_system_has(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]",
                            must_run("readelf", "-d", self.prefix / "lib/libcgtree.so"))
        for name in needed:
            self.assertRegex(name, r"^(libstdc\+\+|libm|libgcc_s|libc|ld-linux.*)\.so")

    def test_the_c_abi_alone_needs_no_package(self):
        missing = "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON"
        result = self.find("c_alone", missing, ask="cgtree 0.1 REQUIRED COMPONENTS c")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = self.find("all", missing)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("fmt", result.stderr)

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
