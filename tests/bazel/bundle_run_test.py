"""A bundle's run.sh: passing and failing tests, and the place of the results."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SKIPS = "echo '[  SKIPPED ] Suite.Case (0 ms)'\necho '[  SKIPPED ] Suite.Case'\n"


class BundleRunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copy(os.path.realpath("bazel/bundle/run.sh"), self.root / "run.sh")

    def add_program(self, path, script):
        program = self.root / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        program.chmod(0o755)

    def add_test(self, path, script, arguments=""):
        self.add_program(path, script)
        with open(self.root / "TESTS", "a", encoding="utf-8") as tests:
            tests.write(f"{path} {arguments}\n")

    def run_bundle(self, *arguments, require_gpu="0", **environment):
        environment = {**os.environ, "CGTREE_REQUIRE_GPU": require_gpu, **environment}
        if "OUT" not in environment or environment["OUT"] == "":
            environment.pop("OUT", None)
        return subprocess.run([str(self.root / "run.sh"), *arguments], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def last_line(self, result):
        return result.stdout.splitlines()[-1]

    def test_it_counts_programs_and_fails_if_one_fails(self):
        self.add_test("tests/good_test", "exit 0")
        self.add_test("tests/bad_test", "echo because; exit 3")
        result = self.run_bundle(OUT="")
        self.assertEqual(self.last_line(result), "1 passed, 1 failed")
        self.assertEqual(result.returncode, 1)
        self.assertIn("because", result.stdout)

    def test_a_skip_passes_without_a_gpu(self):
        self.add_test("tests/gpu_test", SKIPS)
        result = self.run_bundle(OUT="")
        self.assertEqual(self.last_line(result), "1 passed, 0 failed")
        self.assertIn("1 skipped", result.stdout)

    def test_a_skip_is_a_failure_where_a_gpu_is_required(self):
        self.add_test("tests/gpu_test", SKIPS)
        result = self.run_bundle(require_gpu="1", OUT="")
        self.assertEqual(self.last_line(result), "0 passed, 1 failed")
        self.assertEqual(result.returncode, 1)

    def test_an_empty_bundle_fails(self):
        (self.root / "TESTS").touch()
        self.assertEqual(self.run_bundle(OUT="").returncode, 1)

    def test_arguments_and_gtest_flags_reach_the_test(self):
        self.add_test("tests/a_test", '[[ "$*" == "--fast --gtest_filter=A.*" ]]', "--fast")
        self.assertEqual(self.run_bundle("--gtest_filter=A.*", OUT="").returncode, 0)

    def test_logs_go_to_results_or_to_out(self):
        self.add_test("tests/a_test", "echo said")
        self.run_bundle(OUT="")
        self.assertIn("said", (self.root / "results/tests_a_test.log").read_text())
        self.run_bundle(OUT=str(self.root / "elsewhere"))
        self.assertIn("said", (self.root / "elsewhere/tests_a_test.log").read_text())

    def test_a_named_program_runs_alone_with_its_flags(self):
        self.add_test("tests/a_test", "echo not me")
        self.add_program("benchmarks/x", 'echo "flags: $*"; exit 7')
        result = self.run_bundle("benchmarks/x", "--a", "b", OUT="")
        self.assertEqual((result.stdout, result.returncode), ("flags: --a b\n", 7))

    def test_under_a_sanitizer_each_test_runs_in_it(self):
        self.add_program("bin/compute-sanitizer", 'echo "sanitizer $*"; exit 99')
        self.add_test("tests/a_test", "exit 0")
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        result = self.run_bundle("--sanitizer=memcheck", PATH=path, OUT="")
        self.assertEqual(self.last_line(result), "0 passed, 1 failed")
        self.assertIn("sanitizer --tool memcheck --error-exitcode 99 --report-api-errors no --leak-check no ./tests/a_test",
                      result.stdout)

    def test_under_a_sanitizer_a_program_without_cuda_runs_by_itself(self):
        self.add_program("bin/compute-sanitizer",
                         "echo 'Target application terminated before first instrumented API call'\n"
                         "exit 255")
        self.add_test("tests/good_test", "exit 0")
        self.add_test("tests/bad_test", "exit 3")
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        result = self.run_bundle("--sanitizer=memcheck", PATH=path, OUT="")
        self.assertEqual(self.last_line(result), "1 passed, 1 failed")
        self.assertIn("bad_test (exit status 3)", result.stdout)

    def test_a_failed_case_fails_whatever_the_exit_status(self):
        self.add_test("tests/a_test", "echo '[  FAILED  ] Suite.Case (0 ms)'; exit 0")
        self.assertEqual(self.last_line(self.run_bundle(OUT="")), "0 passed, 1 failed")

    def test_libraries_of_python_packages_are_found(self):
        library = self.root / "site/nvidia/cublas/lib"
        library.mkdir(parents=True)
        self.add_test("tests/a_test", 'echo "$LD_LIBRARY_PATH"; exit 1')
        result = self.run_bundle(PYTHONPATH=str(self.root / "site"), OUT="")
        self.assertIn(str(library), result.stdout)

    def test_an_unknown_option_is_refused(self):
        result = self.run_bundle("--sanitiser=memcheck", OUT="")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--help", result.stdout)
