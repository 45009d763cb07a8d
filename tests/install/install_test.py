"""An engine builds cgtree as a part of itself and installs it; other projects find it with CMake and pkg-config.

pip makes and installs the Python package.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path[:0] = ["tools", "examples/tutorials"]

import source_tree  # noqa: E402
import tutorial  # noqa: E402

HERE = pathlib.Path.cwd()
CONSUMER = HERE / "tests/install/consumer"
FIRST_HOUR = HERE / "docs/first_hour"
VERSION = re.search(r"project\(cgtree VERSION (\S+) ", (HERE / "CMakeLists.txt").read_text()).group(1)
MAJOR, MINOR, PATCH = map(int, VERSION.split("."))
# The output of each program of the consumers.
PROGRAMS = {
    "c99": "10 5 10 15 after 2 runs\n0 handles left\n",
    "cxx17": "0 handles left\n",
    "cxx20": "3 replays of steps, 3 of the function\n",
}
# Files below the prefix, except headers: the library in C++ is static or shared.
FILES = {
    "bin/cgtree_report", "lib/libcgtree.so", "lib/libcgtree.so.2", f"lib/libcgtree.so.2.{VERSION}",
    "lib/cmake/cgtree/cgtreeConfig.cmake", "lib/cmake/cgtree/cgtreeConfigVersion.cmake",
    "lib/cmake/cgtree/cgtree-c.cmake", "lib/cmake/cgtree/cgtree-c-noconfig.cmake",
    "lib/cmake/cgtree/cgtree-cgtree.cmake", "lib/cmake/cgtree/cgtree-cgtree-noconfig.cmake",
    "lib/pkgconfig/cgtree.pc", "lib/pkgconfig/cgtree_cpp.pc", "share/licenses/cgtree/LICENSE",
    "share/licenses/cgtree/THIRD_PARTY_LICENSES.md",
}
STATIC = {"lib/libcgtree_cpp.a"}
SHARED = {f"lib/libcgtree_cpp.so{end}" for end in ("", f".{MAJOR}.{MINOR}", f".{VERSION}")}
# Packages that cgtree is compiled with; programs that use cgtree are not.
PACKAGES = ("fmt", "nlohmann_json", "spdlog")
WITHOUT_PACKAGES = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in PACKAGES]


# Compiled only where PyTorch's headers are installed.
OF_TORCH = {"bindings/torch/torch.h"}

if "TEST_TMPDIR" in os.environ:
    tempfile.tempdir = os.environ["TEST_TMPDIR"]


def run(*command, cwd=None, **environment):
    # TMPDIR: nvcc names its temporary files by its process id, which repeats between sandboxes.
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir(), **environment}
    # stderr has the log of cgtree in programs, and a part of CMake's output.
    return subprocess.run([str(word) for word in command], cwd=cwd, text=True, check=False,
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


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

    def find(self, name, *arguments, ask=f"cgtree {MAJOR}.{MINOR} REQUIRED", prefix=None):
        """Configures a project that finds the installed package."""
        work = self.root / f"{name} source"
        shutil.copytree(CONSUMER, work)
        lists = work / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("cgtree REQUIRED", ask))
        return run("cmake", "-S", work, "-B", self.root / name, f"-DCMAKE_PREFIX_PATH={prefix or self.prefix}",
                   *WITHOUT_PACKAGES, *arguments)

    def oldest_cmake(self):
        """Returns the oldest CMake that builds the library, from PyPI, or the installed one."""
        folder = self.root / "oldest cmake"
        if run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
               f"--target={folder}", "cmake==3.20.5").returncode != 0:
            return "cmake"
        return folder / "cmake/data/bin/cmake"

    def test_the_core_is_built_alone_by_the_oldest_cmake_and_gcc_and_programs_find_it(self):
        cmake, gcc = self.oldest_cmake(), shutil.which("g++-11") or "g++"
        build, prefix = self.root / "core", self.root / "core prefix"
        # Not optimized, which halves the time.
        must_run(cmake, "-S", HERE, "-B", build, "-DCGTREE_EXTENSIONS=OFF", "-DCGTREE_CUDA=OFF", "-DCMAKE_BUILD_TYPE=None",
                 f"-DCMAKE_INSTALL_PREFIX={prefix}", f"-DCMAKE_CXX_COMPILER={gcc}", *WITHOUT_PACKAGES)
        must_run(cmake, "--build", build, "--parallel", 2)
        must_run(cmake, "--install", build)
        self.assertEqual(sorted(path.name for path in (prefix / "include/cgtree").iterdir()),
                         ["allocator", "base", "cgtree", "interop", "simulator"])
        work = self.root / "core source"
        work.mkdir()
        (work / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(alone LANGUAGES CXX)\n"
            "find_package(cgtree REQUIRED COMPONENTS cgtree)\nadd_executable(alone alone.cc)\n"
            "target_link_libraries(alone PRIVATE cgtree::cgtree)\n")
        shutil.copy(CONSUMER / "alone.cc", work)
        must_run(cmake, "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
                 f"-DCMAKE_CXX_COMPILER={gcc}", *WITHOUT_PACKAGES)
        must_run(cmake, "--build", work / "build")
        self.assertEqual(must_run(work / "build/alone"), "3 of 5 calls are replays; rebind is refused\n")

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
            self.assertRegex(name, rf"^_Z[A-Zhnv0-9_]*N[KRO]*6cgtree.*@CGTREE_CPP_{MAJOR}\.{MINOR}$")
        # A program may link other versions of these packages.
        static = must_run("nm", "--defined-only", self.prefix / "lib/libcgtree_cpp.a")
        self.assertIn("13cgtree_spdlog", static)
        for package in ("3fmt", "8nlohmann", "6spdlog"):
            self.assertNotRegex(static, rf"(?<![0-9]){package}[0-9]")

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config here")
    def test_programs_that_find_it_installed_with_pkg_config_run(self):
        plain = self.root / "plain"  # make does not support blanks in paths
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
        self.assertLessEqual({f"include/cgtree/{name}" for name in
                              ["cgtree/cgtree.h", "bindings/c/cgtree.hpp", "bindings/c/c_api.h"]}, headers)
        for place in [self.root, HERE]:
            result = run("grep", "-rlF", place, self.prefix)
            self.assertEqual(result.returncode, 1, result.stdout)

    def test_each_header_that_a_page_includes_compiles_with_the_standard_library_alone(self):
        named = source_tree.documented_headers(HERE)
        self.assertLessEqual({"cgtree/cgtree.h", "extensions/progress/progress_json.h", "interop/tensor/copy.h"}, named)
        source = self.root / "header.cc"
        for name in sorted(named - OF_TORCH):
            source.write_text(f'#include "{name}"\n')
            read = self.root / "header.d"
            result = run("c++", "-std=c++20", "-fsyntax-only", "-MD", "-MF", read, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I",
                         self.prefix / "include/cgtree", source)
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
            self.assertNotRegex(read.read_text(), r"/(fmt|nlohmann|spdlog)/", name)

    def test_unsuitable_step_functions_are_refused_with_the_remedy(self):
        source = self.root / "wrong.cc"
        for standard, step, remedy in [
                ("c++20", "[](cgtree::Tensor x) { return Two{x, x}; }", "return the tensors of a struct as a tuple"),
                ("c++20", "[](cgtree::Tensor x, float) { return x; }", "pass a number as cgtree::scalar(x)"),
                ("c++20", "[](auto x) { return x; }", "write cgtree::Tensor in place of auto"),
                ("c++17", "[](cgtree::Tensor x) { return x; }", "compile with -std=c++20, or include bindings/c/cgtree.hpp"),
                ("c++20", "[](cgtree::Tensor x) { return x; }", "")]:
            source.write_text(f"""#include "cgtree/cgtree.h"
struct Two {{ cgtree::Tensor a, b; }};
void f(cgtree::Context& context) {{ (void)cgtree::compile(context, "f", {step}); }}
""")
            result = run("c++", f"-std={standard}", "-fsyntax-only", "-I", self.prefix / "include/cgtree", source)
            with self.subTest(step=step, standard=standard):
                self.assertEqual(result.returncode == 0, remedy == "")
                self.assertIn(remedy, " ".join(result.stderr.split()))

    def test_the_report_is_installed(self):
        result = run(self.prefix / "bin/cgtree_report", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("usage: report FILE", result.stdout)

    def test_the_shared_library_needs_only_what_every_system_has(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]",
                            must_run("readelf", "-d", self.prefix / "lib/libcgtree.so"))
        for name in needed:
            self.assertRegex(name, r"^(libstdc\+\+|libm|libgcc_s|libc|ld-linux.*)\.so")

    def test_the_cmake_lists_of_the_page_are_whole(self):
        page = (HERE / "docs/adopting.md").read_text()
        lists = re.findall(r"```cmake\n(cmake_minimum_required.*?)```", page, re.DOTALL)
        self.assertEqual(len(lists), 2)
        for i, text in enumerate(lists):
            engine = self.root / f"engine {i}"
            (engine / "third_party").mkdir(parents=True)
            (engine / "third_party/cgtree").symlink_to(HERE)
            (engine / "CMakeLists.txt").write_text(text)
            shutil.copy(CONSUMER / "cxx20.cc", engine / "engine.cc")
            must_run("cmake", "-S", engine, "-B", engine / "build", "-DCGTREE_CUDA=OFF",
                     f"-DCMAKE_PREFIX_PATH={self.prefix}")
        must_run("cmake", "--build", self.root / "engine 1/build")  # the other project compiles the library, as above
        self.assertEqual(run(self.root / "engine 1/build/engine").stdout, PROGRAMS["cxx20"])

    def first_hour(self, name):
        folder = self.root / "first hour" / name
        folder.mkdir(parents=True)
        return folder

    def test_the_first_hour_with_cmake_prints_what_its_page_says(self):
        _, lists, program, commands, printed = tutorial.blocks_of(
            FIRST_HOUR / "cmake.md", "sh", "cmake", "cpp", "sh", "text")
        folder = self.first_hour("cmake")
        (folder / "CMakeLists.txt").write_text(lists)
        (folder / "engine.cc").write_text(program)
        home = self.root / "home"  # without blanks, as $HOME in the commands has no quotes
        home.mkdir()
        (home / "cgtree").symlink_to(self.prefix)
        self.assertTrue(must_run("bash", "-ec", commands, cwd=folder, HOME=str(home)).endswith(printed))

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config here")
    def test_the_first_hour_with_debian_prints_what_its_page_says(self):
        _, program, commands, printed = tutorial.blocks_of(FIRST_HOUR / "debian.md", "sh", "c", "sh", "text")
        folder = self.first_hour("debian")
        (folder / "engine.c").write_text(program)
        plain = self.root / "debian"  # the output of pkg-config in the commands has no quotes
        plain.symlink_to(self.prefix)
        self.assertEqual(must_run("bash", "-ec", commands, cwd=folder, LD_LIBRARY_PATH=str(plain / "lib"),
                                  PKG_CONFIG_PATH=str(plain / "lib/pkgconfig")), printed)

    def test_a_tutorial_is_built_with_cmake(self):
        must_run("cmake", "-S", HERE / "examples/tutorials", "-B", self.root / "tutorials",
                 f"-DCMAKE_PREFIX_PATH={self.prefix}")
        must_run("cmake", "--build", self.root / "tutorials", "--target", "wrap_a_function")
        self.assertIn("replay", run(self.root / "tutorials/wrap_a_function").stdout)

    def test_an_extension_is_built_outside_of_the_tree(self):
        outside = self.root / "extension source"
        shutil.copytree(HERE / "examples/extension", outside)
        must_run("cmake", "-S", outside, "-B", outside / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                 "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror", *WITHOUT_PACKAGES)
        must_run("cmake", "--build", outside / "build")
        self.assertRegex(must_run(outside / "build/extension", "host"), r"moving +float32 \{256\} +8 +8192\n")

    def test_another_version_is_refused(self):
        for asked in [f"{MAJOR}.{MINOR + 1}", f"{MAJOR}.{MINOR - 1}", f"{MAJOR + 1}.0", f"{MAJOR}.{MINOR}.{PATCH + 1}"]:
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
    """An unsupported environment is refused by the configuration, with both sides in the message."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def expect_refusal(self, *arguments):
        """Returns the error message, in one line."""
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

    def test_a_toolkit_is_looked_for_as_cmake_325_can_where_it_has_no_nvtoolsext(self):
        module = self.root / "modules/FindCUDAToolkit.cmake"
        module.parent.mkdir()
        # As CMake's own module does, for a target that may not exist.
        module.write_text("""if(CMAKE_MINIMUM_REQUIRED_VERSION VERSION_GREATER_EQUAL 3.25)
  set_property(TARGET CUDA::nvToolsExt PROPERTY DEPRECATION "as CMake 3.25 does")
endif()
""")
        said = run("cmake", "-S", HERE, "-B", self.root / "build", f"-DCMAKE_MODULE_PATH={module.parent}")
        self.assertIn("cgtree: CUDA OFF", said.stdout)
        self.assertNotIn("nvToolsExt", said.stderr)

    def test_kernels_are_for_all_gpus_or_for_those_of_a_list(self):
        # The test has no CUDA sources: the line is printed before CMake misses them.
        said = run("cmake", "-S", HERE, "-B", self.root / "build", "-DCGTREE_CUDA_ARCHS=all").stdout
        if "CUDA ON" not in said:
            self.skipTest("no CUDA toolkit here")
        self.assertRegex(said, "kernels for 75-virtual;75-real;80-real;.*90-real;.*virtual\n")
        for wrong in "", "80,90", "90;native", "OFF":
            with self.subTest(wrong=wrong):
                self.assertIn(f"CGTREE_CUDA_ARCHS is '{wrong}'", self.expect_refusal(f"-DCGTREE_CUDA_ARCHS={wrong}"))

    def test_kernels_are_for_the_gpus_of_this_machine_if_it_has_any_and_the_configuration_says_so(self):
        smi = self.script("bin/nvidia-smi", "printf '9.0\\n8.9\\n9.0\\n'")
        said = run("cmake", "-S", HERE, "-B", self.root / "build", PATH=f"{smi.parent}:{os.environ['PATH']}").stdout
        if "CUDA ON" not in said:
            self.skipTest("no CUDA toolkit here")
        self.assertIn("kernels for 89;90, the GPUs of this machine; for others, set CGTREE_CUDA_ARCHS=all", said)
        smi.write_text("#!/bin/sh\necho 'No devices were found'\n")
        said = run("cmake", "-S", HERE, "-B", self.root / "none", PATH=f"{smi.parent}:{os.environ['PATH']}").stdout
        self.assertRegex(said, "kernels for 75-virtual;75-real;.*virtual\n")

    @unittest.skipUnless(shutil.which("clang++-14"), "no Clang 14 here")
    def test_clang_14_which_has_no_source_location_is_named_when_it_is_configured(self):
        said = self.expect_refusal("-DCGTREE_CUDA=OFF", "-DCMAKE_CXX_COMPILER=clang++-14")
        self.assertRegex(said, r"needs C\+\+20, which \S*clang\+\+-14 .* name another one, GCC 11 or Clang 16")

    def test_a_shared_library_shows_its_names_also_where_an_engine_hides_its_own(self):
        for shared in "ON", "OFF":
            must_run("cmake", "-S", HERE, "-B", self.root / shared, "-DCGTREE_CUDA=OFF", f"-DBUILD_SHARED_LIBS={shared}",
                     "-DCMAKE_CXX_VISIBILITY_PRESET=hidden", "-DCMAKE_VISIBILITY_INLINES_HIDDEN=ON",
                     "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
            commands = (self.root / shared / "compile_commands.json").read_text()
            with self.subTest(shared=shared):
                self.assertEqual("-fvisibility=hidden" in commands, shared == "OFF")
                self.assertEqual("-fvisibility-inlines-hidden" in commands, shared == "OFF")

    def test_a_compiler_without_cpp20_is_named(self):
        compiler = self.script("old-compiler", 'exec c++ "$@" -std=c++17')
        said = self.expect_refusal("-DCGTREE_CUDA=OFF", f"-DCMAKE_CXX_COMPILER={compiler}")
        self.assertRegex(said, rf"needs C\+\+20, which {compiler} \(.*\) does not compile: name another one, GCC 11")


# Loads the C ABI beside the extension, with its symbols visible to libraries loaded later, and uses
# both.
BESIDE = """
import ctypes, sys, cgtree
library = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
tensor = ctypes.c_void_p()
shape, device = (ctypes.c_int64 * 1)(4), (ctypes.c_int32 * 2)(1, 0)
assert library.cgt_tensor_empty(4, 1, shape, device, ctypes.byref(tensor)) == 0
with cgtree.Context("host") as context:
    ours = cgtree.empty((4,), device="host")
    print(library.cgt_live_handles(), ours.shape, cgtree.__file__)
assert library.cgt_tensor_destroy(tensor) == 0 and library.cgt_live_handles() == 0
"""


@unittest.skipUnless(shutil.which("cmake"), "no cmake here")
class WheelTest(unittest.TestCase):
    """pip makes the source distribution, and from it the wheel, which is installed into a new environment."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.python = cls.root / "environment/bin/python"
        result = run(sys.executable, "-m", "venv", cls.root / "environment")
        if result.returncode == 0:
            result = run(cls.python, "-m", "pip", "install", "--quiet", "--no-cache-dir",
                         "--disable-pip-version-check", "scikit-build-core", "ninja")
        if result.returncode != 0:
            raise unittest.SkipTest(f"no scikit-build-core: {result.stdout}{result.stderr}")
        if not run(cls.python, "-c", "import os, sysconfig as s; os.stat(s.get_path('include') + '/Python.h')").returncode == 0:
            raise unittest.SkipTest("no headers of Python here")
        # Bazel's tree has links instead of files.
        source = cls.root / "source"
        shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("tests", "bazel-*", "build", ".git"))
        must_run(cls.python, "-c", "from scikit_build_core import build; build.build_sdist('..')", cwd=source)
        [cls.sdist] = cls.root.glob("cgtree-*.tar.gz")
        # Not optimized, which halves the time.
        must_run(cls.python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", cls.root,
                 "--config-settings=cmake.define.CGTREE_CUDA=OFF", "--config-settings=cmake.build-type=None", "--no-cache-dir",
                 cls.sdist, CMAKE_BUILD_PARALLEL_LEVEL="2")
        [cls.wheel] = cls.root.glob("cgtree-*.whl")
        must_run(cls.python, "-m", "pip", "install", "--no-deps", "--no-index", cls.wheel)

    def ask(self, option):
        return must_run(self.python, "-m", "cgtree", option, cwd=self.root).strip()

    def test_it_holds_the_package_and_the_c_abi_and_nothing_of_where_it_was_built(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = set(wheel.namelist())
            self.assertEqual([name for name in names if str(self.root).encode() in wheel.read(name)], [])
        self.assertRegex(self.wheel.name, rf"^cgtree-{re.escape(VERSION)}-cp311-abi3-linux_\w+\.whl$")
        package = {name.removeprefix("cgtree/") for name in names if name.startswith("cgtree/")}
        python = {path.name for path in (HERE / "python/cgtree").glob("*.*")
                  if path.suffix in (".py", ".pyi", ".typed") and path.name != "_options.pyi"}
        self.assertEqual(package - python, {
            "_cgtree.abi3.so", "_options.pyi", "py.typed", "lib/libcgtree.so.2", "include/cgtree/bindings/c/c_api.h",
            "include/cgtree/bindings/c/cgtree.hpp", "lib/cmake/cgtree/cgtreeConfig.cmake",
            "lib/cmake/cgtree/cgtreeConfigVersion.cmake", "lib/cmake/cgtree/cgtree-c.cmake",
            "lib/cmake/cgtree/cgtree-c-none.cmake"} - python)
        self.assertLessEqual({f"cgtree-{VERSION}.dist-info/{name}" for name in
                              ("METADATA", "entry_points.txt", "licenses/LICENSE", "licenses/THIRD_PARTY_LICENSES.md")}, names)

    def test_it_passes_its_own_test(self):
        self.assertIn("host: the embedded host device: passed", must_run(self.python, "-m", "cgtree", cwd=self.root))

    def test_the_first_hour_prints_what_its_page_says(self):
        commands, program, printed = tutorial.blocks_of(FIRST_HOUR / "wheel.md", "sh", "python", "text")
        (self.root / "step.py").write_text(program)
        said = must_run("bash", "-ec", commands, cwd=self.root, PIP_NO_INDEX="1",
                        PATH=f"{self.python.parent}:{os.environ['PATH']}")
        self.assertTrue(said.endswith(printed), said)

    def test_a_system_with_musl_is_refused_it(self):
        result = run(self.python, "-m", "pip", "install", "--no-deps", "--no-index", "--only-binary=:all:",
                     "--platform=musllinux_1_2_x86_64", f"--target={self.root}/musl", self.wheel)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("is not a supported wheel on this platform", result.stderr)

    def test_programs_find_the_c_abi_in_it_with_cmake(self):
        work = self.root / "consumer"
        shutil.copytree(CONSUMER, work)
        must_run("cmake", "-S", work, "-B", self.root / "found", f"-DCMAKE_PREFIX_PATH={self.ask('--cmake-dir')}")
        must_run("cmake", "--build", self.root / "found")
        for name in "c99", "cxx17":
            self.assertEqual(must_run(self.root / "found" / name), PROGRAMS[name])
        lists = work / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("cgtree REQUIRED", "cgtree REQUIRED COMPONENTS cgtree"))
        result = run("cmake", "-S", work, "-B", self.root / "no C++", f"-DCMAKE_PREFIX_PATH={self.ask('--cmake-dir')}")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("has the C ABI alone", " ".join(result.stderr.split()))

    def test_programs_find_the_c_abi_in_it_without_cmake(self):
        must_run("cc", "-std=c99", CONSUMER / "c99.c", "-I", self.ask("--include-dir"), self.ask("--library"),
                 "-o", self.root / "c99", f"-Wl,-rpath,{pathlib.Path(self.ask('--library')).parent}")
        self.assertEqual(must_run(self.root / "c99"), PROGRAMS["c99"])

    def test_the_extension_and_the_c_abi_in_a_process_share_nothing(self):
        said = must_run(self.python, "-c", BESIDE, self.ask("--library"), cwd=self.root)
        self.assertEqual(said.strip(), f"1 (4,) {self.root}/environment/lib/{self.python_folder()}/site-packages/cgtree/__init__.py")

    def python_folder(self):
        return "python%d.%d" % sys.version_info[:2]


class VersionTest(unittest.TestCase):
    def setUp(self):
        self.header = (HERE / "bindings/c/c_api.h").read_text()
        self.abi = re.search(r"#define CGT_ABI_VERSION (\d+)", self.header).group(1)

    def test_the_soname_and_the_symbols_have_the_number_of_the_abi(self):
        self.assertIn(f"SOVERSION {self.abi} VERSION {self.abi}.", (HERE / "CMakeLists.txt").read_text())
        self.assertIn(f"\nCGTREE_{self.abi} {{", (HERE / "bindings/c/exports.map").read_text())

    def test_debian_has_the_number_and_the_functions_of_the_abi(self):
        head, _, *lines = (HERE / f"packaging/debian/libcgtree{self.abi}.symbols").read_text().splitlines()
        self.assertEqual(head, f"libcgtree.so.{self.abi} libcgtree{self.abi} #MINVER#")
        functions = re.findall(r"^CGT_API\b[^;(]*?(\w+)\(", self.header, re.MULTILINE)
        self.assertEqual([line.split("@")[0] for line in lines],
                         [f" {name}" for name in sorted([f"CGTREE_{self.abi}", *functions])])


if __name__ == "__main__":
    unittest.main()
