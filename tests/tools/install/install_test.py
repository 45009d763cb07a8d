"""tools/install: programs built with CMake and with make against what it installs, and its errors."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path.cwd()
CONSUMER = HERE / "tests/tools/install/consumer"
FILES = ["include/cgtree/c_api.h", "share/licenses/cgtree/LICENSE", "lib/libcgtree.so", "lib/libcgtree.so.1",
         "lib/libcgtree.so.1.0.1.0", "lib/pkgconfig/cgtree.pc",
         "lib/cmake/cgtree/cgtreeConfig.cmake", "lib/cmake/cgtree/cgtreeConfigVersion.cmake"]


def run(*command, cwd=None, **environment):
    return subprocess.run([str(word) for word in command], cwd=cwd, text=True, check=False,
                          env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


def install(*arguments, **environment):
    return run(sys.executable, HERE / "tools/install", *arguments, **environment)


class InstallTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.prefix = self.root / "a prefix"

    def installed(self, *arguments):
        result = install(f"--prefix={self.prefix}", f"--from={HERE}", *arguments)
        self.assertEqual(result.returncode, 0, result.stdout)

    def copy_of_the_consumer(self):
        # A link would lead CMake to the sources.
        work = self.root / "work"
        work.mkdir()
        for path in CONSUMER.iterdir():
            shutil.copyfile(path, work / path.name)
        return work

    def expect_to_run(self, program):
        result = run(program)
        self.assertEqual((result.stdout, result.returncode), ("0 handles left\n", 0))

    def test_it_installs_these_files_and_does_so_again(self):
        for _ in range(2):
            self.installed()
            found = [str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*")
                     if not path.is_dir()]
            self.assertEqual(sorted(found), sorted(FILES))

    def test_the_headers_version_is_the_projects(self):
        number = re.search(r"#define CGT_VERSION (\d+)", (HERE / "cgtree/c_api.h").read_text())
        version = re.search(r'version = "(\d+)\.(\d+)\.(\d+)"', (HERE / "MODULE.bazel").read_text())
        major, minor, patch = map(int, version.groups())
        self.assertEqual(int(number.group(1)), 10000 * major + 100 * minor + patch)

    def test_what_is_installed_may_be_moved(self):
        self.installed()
        moved = self.root / "moved"
        self.prefix.rename(moved)
        result = run("grep", "-r", "a prefix", moved)
        self.assertEqual(result.returncode, 1, result.stdout)

    @unittest.skipUnless(shutil.which("cmake"), "no cmake here")
    def test_a_program_finds_it_with_cmake(self):
        self.installed()
        work = self.copy_of_the_consumer()
        for command in [("cmake", "-S", work, "-B", work / "build",
                         f"-DCMAKE_PREFIX_PATH={self.prefix}"),
                        ("cmake", "--build", work / "build")]:
            result = run(*command)
            self.assertEqual(result.returncode, 0, result.stdout)
        self.expect_to_run(work / "build/consumer")

    @unittest.skipUnless(shutil.which("cmake"), "no cmake here")
    def test_cmake_is_refused_another_version(self):
        self.installed()
        work = self.copy_of_the_consumer()
        lists = work / "CMakeLists.txt"
        for asked in ["0.2", "1.0", "0.1.1"]:
            lists.write_text((CONSUMER / "CMakeLists.txt").read_text().replace(
                "cgtree 0.1 ", f"cgtree {asked} "))
            result = run("cmake", "-S", work, "-B", work / asked,
                         f"-DCMAKE_PREFIX_PATH={self.prefix}")
            self.assertNotEqual(result.returncode, 0, asked)

    @unittest.skipUnless(shutil.which("pkg-config") and shutil.which("make"),
                         "no pkg-config or no make here")
    def test_a_program_finds_it_with_pkg_config(self):
        self.prefix = self.root / "prefix"  # make cannot do with blanks
        self.installed("--libdir=lib64")
        work = self.copy_of_the_consumer()
        result = run("make", cwd=work, PKG_CONFIG_PATH=str(self.prefix / "lib64/pkgconfig"))
        self.assertEqual(result.returncode, 0, result.stdout)
        self.expect_to_run(work / "consumer")

    def test_a_destdir_goes_in_front(self):
        result = install("--prefix=/usr", f"--destdir={self.root}", f"--from={HERE}")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertTrue((self.root / "usr/lib/libcgtree.so").exists())

    def test_help_is_help(self):
        result = install("--help")
        self.assertEqual(result.returncode, 0)
        for word in ["--prefix", "--from", "--libdir", "exit codes"]:
            self.assertIn(word, result.stdout)

    def test_wrong_arguments_are_named(self):
        for arguments, says in [((), "--prefix"), (("--prefix=x", "--libdir=a/b"), "a/b"),
                                (("--prefix=x", "--fast"), "--fast")]:
            result = install(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn(says, result.stdout)

    def test_a_folder_without_a_build_is_named(self):
        result = install(f"--prefix={self.prefix}", f"--from={self.root}")
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"{self.root} has no cgtree/c_api/libcgtree.so", result.stdout)

    def test_a_missing_bazel_is_named(self):
        result = install(f"--prefix={self.prefix}", PATH=str(self.root))
        self.assertEqual(result.returncode, 1)
        self.assertIn("bazel is not there", result.stdout)
        self.assertFalse(self.prefix.exists())

    def test_a_prefix_that_cannot_be_written_is_named(self):
        (self.root / "file").touch()
        result = install(f"--prefix={self.root}/file", f"--from={HERE}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("Not a directory", result.stdout)
        self.assertNotIn("Traceback", result.stdout)

    def test_a_full_disk_is_named_and_leaves_no_half_file(self):
        # A limit on the size of files is a disk that is full, for one process.
        script = f"ulimit -f 100; exec {sys.executable} tools/install '--prefix={self.prefix}'"
        result = run("bash", "-c", f"trap '' XFSZ; {script} '--from={HERE}'", cwd=HERE)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("File too large", result.stdout)
        self.assertEqual(list((self.prefix / "lib").iterdir()), [])


if __name__ == "__main__":
    unittest.main()
