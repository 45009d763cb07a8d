#!/usr/bin/env python3
"""Reads the program of a tutorial out of its page.

usage: tutorial.py PAGE [--change=N]

Prints the program of a page of docs/tutorials: its blocks of code, joined in order. With --change, prints the program
with the N-th change that the page proposes, from 1 on.

Every fenced block of a page has one of these kinds, so that everything it shows is tested:

* `cpp` or `python`: the next lines of the program;
* - `text` after these: the output of these lines in the whole program;
* `diff`: a change. Its lines that begin with a blank or with `-` are consecutive and unique in the program; those that
  begin with `-` are replaced by those that begin with `+`. A line `@@` separates two places;
* - `text` after a `diff`: the output of the changed program, or consecutive lines of it;
* `sh`: a command;
* - `text` after a report of a file, `bazel run //tools:report -- FILE`: the report, once the program has written the
  file.

In outputs, `…` represents any characters of a line: an address, a time.
"""

import argparse
import pathlib
import re
import sys

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = {"cpp", "python"}
REPORT = "bazel run //tools:report -- "


class PageError(Exception):
    """A block of a page has none of the kinds above, or a wrong place."""


class Change:
    """A change of the program that the page proposes, and the output of the changed program."""

    def __init__(self, text):
        self.hunks = [self._sides(hunk) for hunk in re.split(r"^@@\n", text, flags=re.MULTILINE)]
        self.printed = None

    @staticmethod
    def _sides(hunk):
        lines = [(line[:1] or " ", line[1:] + "\n") for line in hunk.splitlines()]
        return ["".join(line for mark, line in lines if mark != other) for other in "+-"]

    def applied(self, program):
        program = "\n" + program
        for before, after in self.hunks:
            if program.count("\n" + before) != 1:
                raise PageError(f"these lines do not stand in the program once:\n{before}")
            program = program.replace("\n" + before, "\n" + after)
        return program[1:]


class Tutorial:
    """The blocks of one page."""

    def __init__(self, text):
        self.program, self.printed, self.changes, self.commands = "", "", [], []
        self.reports = []  # the report of each file
        self.language = None
        last = None
        for language, block in FENCE.findall(text):
            if language in CODE and self.language in (None, language):
                self.language = language
                self.program += ("\n" if self.program else "") + block
            elif language == "text" and last in CODE:
                self.printed += block
            elif language == "diff":
                self.changes.append(Change(block))
            elif language == "text" and last == "diff":
                self.changes[-1].printed = block
            elif language == "text" and last == "sh" and self.commands[-1].startswith(REPORT):
                self.reports.append((self.commands.pop()[len(REPORT):], block))
            elif language == "sh":
                self.commands += block.splitlines()
            else:
                raise PageError(f"a block of '{language}' after one of '{last}':\n{block}")
            last = language
        if text.count("```") != 2 * len(FENCE.findall(text)) or "~~~" in text:
            raise PageError("a fence is not closed, is indented, or is of another kind")
        for change in self.changes:
            if change.printed is None:
                raise PageError(f"the page does not say what a change prints:\n{change.hunks[0][1]}")
            change.applied(self.program)

    def program_with(self, change):
        """Returns the program with the change of this number, or without any for 0."""
        return self.changes[change - 1].applied(self.program) if change else self.program


def blocks_of(page, *languages):
    """Returns the blocks of a page that has one after the other of these languages, and no other block."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    if [language for language, _ in found] != list(languages):
        raise PageError(f"{page} has blocks of {[language for language, _ in found]}, not of {list(languages)}")
    return [block for _, block in found]


def pattern_of(printed):
    """Returns the expression that matches the output shown in a page."""
    return re.escape(printed).replace("…", ".*")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--change", type=int, default=0)
    options = parser.parse_args()
    try:
        page = Tutorial(options.page.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PageError) as error:
        parser.error(f"{options.page}: {getattr(error, 'strerror', None) or error}")
    if not 0 <= options.change <= len(page.changes):
        parser.error(f"--change={options.change}: {options.page} has {len(page.changes)} changes, from 1 on")
    sys.stdout.write(page.program_with(options.change))


if __name__ == "__main__":
    main()
