"""For the tests of the tutorials: the pages, and programs whose output is compared with them."""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, "examples/tutorials")

import tutorial  # noqa: E402,F401

PROGRAMS = pathlib.Path("examples/tutorials")
PAGES = {path.stem: tutorial.Tutorial(path.read_text(encoding="utf-8"))
         for path in sorted(pathlib.Path("docs/tutorials").glob("*.md")) if path.stem != "README"}


def run(command):
    """Returns the standard output, the standard error and the exit status of a program."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240,
                          check=False)
    return done.stdout, done.stderr, done.returncode


def expect_page(test, page, command_of):
    """Runs the program of a page and its changed versions; command_of(number) is the command of each."""
    printed, said, status = run(command_of(0))
    test.assertEqual(status, 0, said)
    test.assertRegex(printed, rf"\A{tutorial.pattern_of(page.printed)}\Z",
                     f"the page says:\n{page.printed}\nthe program prints:\n{printed}")
    for number, change in enumerate(page.changes, 1):
        with test.subTest(change=number):
            printed, said, _ = run(command_of(number))
            test.assertRegex(printed + said, re.compile("^" + tutorial.pattern_of(change.printed), re.M),
                             f"the page says:\n{change.printed}\nthe program prints:\n{printed}{said}")
