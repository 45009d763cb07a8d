"""Every test that docs/acceptance.md names is there, and every row has a test or a reason."""

import ast
import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()
TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\s*(\w+),\s*(\w+)")
NAMED = re.compile(r"`(\w+Test)\.(\w+)`")
REASON = re.compile(r"^(not applicable|not yet): \S")


def python_tests(text):
    """Returns (class, method) of each test case of a unittest file."""
    return [(node.name, item.name) for node in ast.parse(text).body
            if isinstance(node, ast.ClassDef) and node.name.endswith("Test")
            for item in node.body
            if isinstance(item, ast.FunctionDef) and item.name.startswith("test_")]


def rows(text):
    """Returns the cells of each row of each table, without the heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "row" and not row[0].startswith("---")]


class AcceptanceDocTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tests = set()
        for path in sorted((ROOT / "tests").rglob("*_test.cc")):
            cls.tests.update(TEST.findall(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / "tests").rglob("*_test.py")):
            cls.tests.update(python_tests(path.read_text(encoding="utf-8")))
        cls.rows = rows((ROOT / "docs/acceptance.md").read_text(encoding="utf-8"))

    def test_every_named_test_exists(self):
        self.assertGreater(len(self.rows), 150)
        for row in self.rows:
            with self.subTest(row=row[0]):
                for test in NAMED.findall(row[1]):
                    self.assertIn(test, self.tests)

    def test_every_row_names_a_test_or_a_reason(self):
        for row in self.rows:
            with self.subTest(row=row[0]):
                self.assertEqual(len(row), 2)
                self.assertTrue(NAMED.search(row[1]) or REASON.match(row[1]), row[1])


if __name__ == "__main__":
    unittest.main()
