"""The two files of tools/amalgamate: they compile alone, do what their header promises, and export no other symbols."""

import ctypes
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

ROOT = source_tree.real_root()
sys.path[:0] = [str(ROOT / "integrations/common"), str(ROOT / "tools"), str(ROOT / "examples/tutorials")]

import check_cuda_versions  # noqa: E402
import insertions  # noqa: E402
import tutorial  # noqa: E402

TESTS = ROOT / "tests/small_door/cgtree_steps_tests.cu"
FIRST_HOUR = ROOT / "docs/first_hour/two_files.md"
FLAGS_OF_GGML = ("-Wmissing-declarations", "-Wmissing-noreturn", "-Wcast-qual", "-Wextra-semi")
OLDEST_GCC = shutil.which("g++-11") or "g++"
MOST_LINES = 34_000
MOST_CODE = 2 << 20  # bytes, including the kernels for a GPU
# Mangled names that belong to these files. Templates of the standard library are weak and visible; nvcc names instances
# for types of this file by a hash of the file.
OURS = re.compile(r"^cgs_|^_Z(?!Z*N?[KRO]*(St|Sa|9__gnu_cxx)).*(cgtree|cgs_|_GLOBAL__N)")
NVCC = shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")

if "TEST_TMPDIR" in os.environ:
    tempfile.tempdir = os.environ["TEST_TMPDIR"]


def must_run(*command, cwd):
    result = subprocess.run([str(word) for word in command], cwd=cwd, text=True, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode != 0:
        raise AssertionError(f"{command}:\n{result.stdout[-6000:]}")
    return result.stdout


class SmallDoorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        for device in ("host", "cuda"):
            must_run(ROOT / "tools/amalgamate", cls.root, f"--device={device}", cwd=ROOT)
        cls.library = cls.root / "libone.so"
        cls.warnings = must_run(OLDEST_GCC, "-std=c++20", "-Wall", "-Wextra", *FLAGS_OF_GGML, "-fPIC", "-shared",
                                "cgtree_steps.cc", "-o", cls.library, cwd=cls.root)

    def declared(self):
        text = (self.root / "cgtree_steps.h").read_text()
        return set(re.findall(r"^(?:int|void\*|void|const char\*) (cgs_\w+)\(", text, re.MULTILINE))

    def test_it_compiles_without_a_warning(self):
        self.assertEqual(self.warnings, "")

    def test_its_functions_do_what_the_header_says(self):
        must_run("g++", "-std=c++20", "-x", "c++", "-I.", TESTS, "-o", "tests", "-lgtest", "-lgtest_main", "-lpthread",
                 cwd=self.root)
        self.assertIn("[  PASSED  ]", must_run(self.root / "tests", cwd=self.root))

    def test_the_program_of_the_first_hour_prints_what_its_page_says(self):
        program, _, printed = tutorial.blocks_of(FIRST_HOUR, "cpp", "sh", "text")
        (self.root / "first_hour.cu").write_text(program)
        must_run("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-I", ROOT / "tests/small_door/fake", "-I.",
                 "-include", "cgtree_steps.cc", "first_hour.cu", "-o", "first_hour", cwd=self.root)
        self.assertEqual(must_run(self.root / "first_hour", cwd=self.root), printed)

    def test_nothing_but_its_functions_can_be_seen(self):
        names = {line.split()[-1] for line in
                 must_run("nm", "-D", "--defined-only", self.library, cwd=self.root).splitlines()}
        self.assertEqual({name for name in names if OURS.search(name)}, self.declared())

    def test_two_copies_in_a_process_do_not_meet(self):
        other = self.root / "libother.so"
        shutil.copy(self.library, other)
        copies = [ctypes.CDLL(str(path), mode=os.RTLD_LOCAL) for path in (self.library, other)]
        opened = []
        for library in copies:
            library.cgs_why.restype = ctypes.c_char_p
            steps = ctypes.c_void_p()
            self.assertEqual(library.cgs_open(ctypes.byref(steps), b"decode", 0, None, 0, None), 0)
            self.assertLess(library.cgs_open(ctypes.byref(ctypes.c_void_p()), b"", 0, None, 0, None), 0)
            opened.append(steps)
        self.assertEqual(copies[1].cgs_open(ctypes.byref(ctypes.c_void_p()), b"g", 0, None, 0, None), 0)
        self.assertIn(b"name", copies[0].cgs_why(None))  # the error of the first copy, not the success of the second
        self.assertEqual(copies[1].cgs_why(None), b"")
        for library, steps in zip(copies, opened, strict=True):
            library.cgs_close(steps)

    def test_the_header_is_c99(self):
        (self.root / "program.c").write_text('#include "cgtree_steps.h"\nint main(void) { return CGS_DONE; }\n')
        must_run("gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "program.c", "-o", "program", cwd=self.root)

    def test_the_ports_of_ggml_add_them_to_a_build_of_cpp17(self):
        made = insertions.sources()
        self.assertEqual(made["cgtree_steps.h"], (self.root / "cgtree_steps.h").read_text())
        self.assertIn((self.root / "cgtree_steps.cu").read_text(), made["cgtree_steps.cu"])
        for name in ("cgtree_ggml.h", "cgtree_ggml.cu"):
            (self.root / name).write_text(made[name])
        compile_it = ("g++", "-std=c++17", "-x", "c++", "-Wall", "-Wextra", "-Wmissing-declarations", "-Werror",
                      "-I", ROOT / "tests/integrations/fake", "cgtree_ggml.cu")
        must_run(*compile_it, "-DGGML_CUDA_CGTREE", "-fsyntax-only", cwd=self.root)
        # Another build, such as for HIP, compiles all files of the folder.
        seen = must_run(*compile_it, "-E", "-P", cwd=self.root)
        self.assertEqual(seen.strip(), "")

    @unittest.skipUnless(shutil.which("clang++-14"), "no Clang 14 here")
    def test_clang_14_compiles_it(self):
        must_run("clang++-14", "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", "cgtree_steps.cc", cwd=self.root)

    @unittest.skipUnless(shutil.which("clang++-16") and shutil.which("g++-11"), "no Clang 16 or no g++-11 here")
    def test_its_kernels_compile_with_the_oldest_toolkit(self):
        folder = self.root / "oldest"
        folder.mkdir()
        check_cuda_versions.compile_two_files(self.root / "cgtree_steps.cu", folder)

    @unittest.skipUnless(shutil.which("make") and NVCC, "no make or no nvcc here")
    def test_a_makefile_of_an_engine_builds_it_for_a_gpu(self):
        for name in ("Makefile", "engine.cu"):
            shutil.copy(ROOT / "tests/small_door/engine" / name, self.root)
        must_run("make", "engine", f"NVCC={NVCC}", "NVCCFLAGS=-O1 -arch=sm_90 -I.", cwd=self.root)
        size = must_run("size", "cgtree_steps.o", cwd=self.root).splitlines()[1].split()
        self.assertLess(int(size[0]), MOST_CODE)
        program, commands, _ = tutorial.blocks_of(FIRST_HOUR, "cpp", "sh", "text")
        (self.root / "engine.cu").write_text(program)
        build = commands.splitlines()[0].replace("cgtree_steps.cu", "cgtree_steps.o").split()
        self.assertEqual(build[0], "nvcc")
        must_run(NVCC, *build[1:], cwd=self.root)
        symbols = must_run("readelf", "-sW", "cgtree_steps.o", cwd=self.root)
        seen = re.findall(r" (?:GLOBAL|WEAK) +DEFAULT +\d+ (\S+)", symbols)
        self.assertEqual({name for name in seen if OURS.search(name)}, self.declared())

    def test_its_lines_are_counted(self):
        self.assertLess(len((self.root / "cgtree_steps.cu").read_text().splitlines()), MOST_LINES)


if __name__ == "__main__":
    unittest.main()
