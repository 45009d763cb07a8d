"""The tests that count_tests counts in test logs, and its exit status."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5" failures="1" disabled="1" errors="0">
  <testsuite name="ErrorTest">
    <testcase name="A" status="run" result="completed" classname="ErrorTest" />
    <testcase name="B" status="run" result="completed" classname="ErrorTest" />
    <testcase name="C" status="run" result="completed"><failure message="2 != 3"/></testcase>
    <testcase name="D" status="run" result="skipped"><skipped message="no GPU"/></testcase>
    <testcase name="DISABLED_E" status="notrun" result="suppressed" classname="ErrorTest" />
  </testsuite>
</testsuites>
"""
# The XML that Bazel writes for a test that writes none.
PLAIN_PASS = """<testsuites><testsuite name="x" tests="1" failures="0" errors="0">
<testcase name="x" status="run" duration="0" time="0"></testcase></testsuite></testsuites>"""
PLAIN_FAIL = PLAIN_PASS.replace("></testcase>", "><error message='exited with 1'/></testcase>")


class CountTestsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.logs = self.root / "logs"
        self.logs.mkdir()

    def add_log(self, path, text):
        target = self.logs / path / "test.xml"
        target.parent.mkdir(parents=True)
        target.write_text(text, encoding="utf-8")

    def count(self, *arguments):
        result = subprocess.run([sys.executable, "tools/count_tests.py", *arguments],
                                stdout=subprocess.PIPE, text=True, check=False)
        return result.stdout, result.returncode

    def test_cases_are_counted_by_outcome_and_disabled_ones_not_at_all(self):
        self.add_log("tests/base/error_test", GTEST)
        self.assertEqual(self.count(str(self.logs)), ("2 passed, 1 failed, 1 skipped\n", 1))

    def test_a_test_without_cases_counts_as_one(self):
        self.add_log("tests/a", PLAIN_PASS)
        self.assertEqual(self.count(str(self.logs)), ("1 passed, 0 failed\n", 0))
        self.add_log("tests/b", PLAIN_FAIL)
        self.assertEqual(self.count(str(self.logs)), ("1 passed, 1 failed\n", 1))

    def test_logs_behind_a_symbolic_link_are_found(self):
        self.add_log("tests/a/shard_1_of_2", PLAIN_PASS)
        self.add_log("tests/a/shard_2_of_2", PLAIN_PASS)
        link = self.root / "bazel-testlogs"
        link.symlink_to(self.logs)
        self.assertEqual(self.count(str(link)), ("2 passed, 0 failed\n", 0))

    def test_a_failed_build_is_a_failure(self):
        self.add_log("tests/a", PLAIN_PASS)
        self.assertEqual(self.count("--status=1", str(self.logs)), ("1 passed, 1 failed\n", 1))

    def test_no_logs_at_all_is_a_failure_if_the_build_failed(self):
        self.assertEqual(self.count("--status=1", str(self.root / "none")),
                         ("0 passed, 1 failed\n", 1))

    def test_a_half_written_log_is_a_failure(self):
        self.add_log("tests/a", GTEST[:100])
        self.assertEqual(self.count(str(self.logs)), ("0 passed, 1 failed\n", 1))
