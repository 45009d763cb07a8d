#!/usr/bin/env python3
"""Makes tests/acceptance.md: the list of behaviours, with the tests that check each of them.

usage: tests/acceptance.py [--check]

acceptance_rows.md has the rows, in parts: a key, the behaviour, and a remark, or the reason why it has no test. A test
names its rows in the last comment above it, by part and key:

    // Acceptance: trees 34, 39; torch 51.
    TEST_P(OutputsTest, AnOutputThatIsAStaticInputIsPassedThrough) {

The page lists for each row its tests, C++ before Python, in the order of their files. --check
writes nothing, and exits with 1 if the page is out of date. Exit status 2: a row or a comment is
wrong.
"""

import argparse
import ast
import dataclasses
import pathlib
import re
import sys

FOLDER = pathlib.Path("tests")
ROWS, PAGE = FOLDER / "acceptance_rows.md", FOLDER / "acceptance.md"
PART = re.compile(r"^(##+) (\w+): (.+)$")
ROW = re.compile(r"^\| ([\w]+) \| (.+?) \| (.*?)\s*\|$")
HEAD = "| key | row | remark, or reason |"
CXX_TEST = re.compile(
    r"^[ \t]*(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+),\s*(\w+)", re.MULTILINE)
SAID = {".cc": re.compile(r"^\s*// Acceptance: (.*)$"), ".py": re.compile(r"^\s*# Acceptance: (.*)$")}
REASON = re.compile(r"^(not applicable|not yet): \S")


class Wrong(Exception):
    """A row or a comment that cannot be read."""


@dataclasses.dataclass
class Row:
    """One behaviour, with the tests that check it."""
    text: str
    remark: str
    tests: list = dataclasses.field(default_factory=list)


def read_rows(text):
    """Returns the rows of the page's source by (part, key), in its order."""
    rows, part = {}, None
    for number, line in enumerate(text.splitlines(), start=1):
        if match := PART.match(line):
            part = match.group(2)
        elif line.startswith("|") and line != HEAD and not line.startswith("| ---"):
            match = ROW.match(line)
            if not match:
                raise Wrong(f"{ROWS}:{number}: no row: | key | row | remark, or reason |")
            key = part, match.group(1)
            if key in rows:
                raise Wrong(f"{ROWS}:{number}: two rows have the key {' '.join(key)}")
            rows[key] = Row(match.group(2), match.group(3))
    return rows


def cxx_tests(text):
    """Yields (line number, suite, name) of each test; lines are counted from 0."""
    for match in CXX_TEST.finditer(text):
        yield text.count("\n", 0, match.start()), match.group(1), match.group(2)


def python_tests(text):
    """Yields the same for each test case of a unittest file; the line is that of the first decorator."""
    for node in ast.parse(text).body:
        if not (isinstance(node, ast.ClassDef) and node.name.endswith("Test")):
            continue
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
                first = min([item.lineno, *(one.lineno for one in item.decorator_list)])
                yield first - 1, node.name, item.name


def named_rows(said, where):
    """Returns the (part, key) that "trees 34, 39; torch 51." names."""
    if not re.fullmatch(r"\w+ \w+(, \w+)*(; \w+ \w+(, \w+)*)*\.", said):
        raise Wrong(f"{where}: no list of rows: 'Acceptance: {said}'; write 'trees 34, 39; torch 51.'")
    parts = [group.split(" ", 1) for group in said.rstrip(".").split("; ")]
    return [(part, key) for part, keys in parts for key in keys.split(", ")]


def add_tests(path, text, rows):
    """Adds the tests of a file to the rows that the comments above them name."""
    lines = text.splitlines()
    said = {number: match.group(1) for number, line in enumerate(lines)
            if (match := SAID[path.suffix].match(line))}
    find = cxx_tests if path.suffix == ".cc" else python_tests
    for number, suite, name in find(text):
        where = f"{path}:{number}"
        for key in named_rows(said.pop(number - 1), where) if number - 1 in said else []:
            if key not in rows:
                raise Wrong(f"{where}: {ROWS} has no row {' '.join(key)}")
            rows[key].tests.append((suite, name))
    for number in said:
        raise Wrong(f"{path}:{number + 1}: no test below this comment: move it next to the test")


def page(source, rows):
    """Returns the page: the source with each key replaced by the tests of its row."""
    lines, part = [], None
    for line in source.splitlines():
        if match := PART.match(line):
            part = match.group(2)
            line = f"{match.group(1)} {match.group(3)}"
        elif line == HEAD:
            line = "| row | test or reason |"
        elif line.startswith("| ---"):
            line = "| --- | --- |"
        elif match := ROW.match(line):
            row = rows[part, match.group(1)]
            tests = ", ".join(f"`{suite}.{name}`" for suite, name in row.tests)
            line = f"| {row.text} | {'; '.join(filter(None, (tests, row.remark)))} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def make(root):
    """Returns (the page, its rows). Raises Wrong."""
    source = (root / ROWS).read_text(encoding="utf-8")
    rows = read_rows(source)
    for pattern in ("*_test.cc", "*_test.py"):
        for path in sorted((root / FOLDER).rglob(pattern)):
            add_tests(path.relative_to(root), path.read_text(encoding="utf-8"), rows)
    for key, row in rows.items():
        if not row.tests and not REASON.match(row.remark):
            raise Wrong(f"{ROWS}: no test says that it holds row {' '.join(key)} ('{row.text}'), and "
                        "no reason is given: not applicable: ..., or not yet: ...")
    return page(source, rows), rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[1]
    try:
        text, _ = make(root)
    except Wrong as wrong:
        print(f"acceptance.py: {wrong}", file=sys.stderr)
        return 2
    if not arguments.check:
        (root / PAGE).write_text(text, encoding="utf-8")
    elif text != (root / PAGE).read_text(encoding="utf-8"):
        print(f"{PAGE} is not what tests/acceptance.py makes: run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
