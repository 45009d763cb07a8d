#!/usr/bin/env python3
"""Counts test cases in Bazel's test logs and prints `N passed, N failed[, N skipped]`.

usage: tools/count_tests.py [--status=N] LOGS

LOGS holds test.xml files, at any depth; bazel-testlogs after `bazel test`. A test without cases
counts as one case. --status is the exit status of `bazel test`: if it is not 0 and no case failed,
the failure (a build, a crash at exit) counts as one case. Exits 1 if anything failed.
"""

import argparse
import collections
import os
import pathlib
import sys
import xml.etree.ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def outcome(case):
    """Returns the outcome of a testcase element, or None if it did not run (disabled)."""
    if case.find("failure") is not None or case.find("error") is not None:
        return FAILED
    if case.find("skipped") is not None or case.get("result") == "skipped":
        return SKIPPED
    if case.get("status") == "notrun":
        return None
    return PASSED


def count_file(path):
    """Returns the outcomes in a test.xml, or one failure if it cannot be read: the test died."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except xml.etree.ElementTree.ParseError:
        return collections.Counter({FAILED: 1})
    counts = collections.Counter(outcome(case) for case in root.iter("testcase"))
    del counts[None]
    return counts


def count(logs, status=0):
    counts = collections.Counter()
    # bazel-testlogs is a symbolic link, which rglob would not enter.
    for path in sorted(pathlib.Path(os.path.realpath(logs)).rglob("test.xml")):
        counts += count_file(path)
    if status != 0 and not counts[FAILED]:
        counts[FAILED] = 1
    return counts


def summary(counts):
    text = f"{counts[PASSED]} passed, {counts[FAILED]} failed"
    return text + (f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--status", type=int, default=0, help="how `bazel test` ended")
    parser.add_argument("logs", help="a directory of test.xml files")
    arguments = parser.parse_args()
    # A failed build may have left no logs.
    if arguments.status == 0 and not pathlib.Path(arguments.logs).is_dir():
        parser.error(f"{arguments.logs} is no folder: name that of the logs, such as bazel-testlogs")
    counts = count(arguments.logs, arguments.status)
    print(summary(counts))
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
