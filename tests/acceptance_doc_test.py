"""tests/acceptance.md fits the comments above tests, and the tool refuses wrong comments."""

import pathlib
import sys
import unittest

sys.path[:0] = ["tools", "tests"]

import acceptance  # noqa: E402
import source_tree  # noqa: E402

ROWS = """\
# Acceptance

## trees: Trees

| key | row | remark, or reason |
| --- | --- | --- |
| 1 | 1 simple ×2 | under a policy |
| b | another | |
| 3 | 3 missing | not yet: there is none |
"""
CXX = """\
// Acceptance: trees 1.
TEST_P(ATest, First) {}

// A comment.
// Acceptance: trees 1, b.
TEST(ATest,
     Second) {}
"""
SAID = "# Acceptance"  # not at the beginning of a line in this file
PYTHON = f"""\
class ATest(unittest.TestCase):
    {SAID}: trees b.
    @unittest.skip("")
    def test_b(self):
        pass
"""


class AcceptanceDocTest(unittest.TestCase):
    def test_the_page_is_made_from_the_comments_and_every_row_has_a_test_or_a_reason(self):
        root = source_tree.real_root()
        text, rows = acceptance.make(root)
        self.assertGreater(len(rows), 200)
        self.assertGreater(sum(bool(row.tests) for row in rows.values()), 200)
        self.assertEqual(text, (root / acceptance.PAGE).read_text(encoding="utf-8"),
                         "run tests/acceptance.py")


class AcceptanceToolTest(unittest.TestCase):
    def added(self, text, file="tests/a_test.cc", source=ROWS):
        rows = acceptance.read_rows(source)
        acceptance.add_tests(pathlib.Path(file), text, rows)
        return rows

    def test_tests_are_added_to_the_rows_that_they_name(self):
        rows = self.added(CXX)
        acceptance.add_tests(pathlib.Path("tests/a_test.py"), PYTHON, rows)
        self.assertEqual(acceptance.page(ROWS, rows).splitlines()[2:], [
            "## Trees",
            "",
            "| row | test or reason |",
            "| --- | --- |",
            "| 1 simple ×2 | `ATest.First`, `ATest.Second`; under a policy |",
            "| another | `ATest.Second`, `ATest.test_b` |",
            "| 3 missing | not yet: there is none |"])

    def test_a_comment_that_is_wrong_is_refused_with_its_place(self):
        for text, expected in (("// Acceptance: trees 7.\nTEST(A, B) {}", "no row trees 7"),
                               ("// Acceptance: trees 1\nTEST(A, B) {}", "no list of rows"),
                               ("// Acceptance: 1.\nTEST(A, B) {}", "no list of rows"),
                               ("// Acceptance: trees 1.\n\nTEST(A, B) {}", "no test below"),
                               ("// Acceptance: trees 1.\n// Why.\nTEST(A, B) {}", "no test below")):
            with self.subTest(text=text), self.assertRaisesRegex(acceptance.Wrong, expected):
                self.added(text)

    def test_rows_that_are_wrong_are_refused(self):
        for row, expected in (("| 1 | twice | |", "two rows have the key trees 1"),
                              ("| 4 | without a remark |", "no row")):
            with self.subTest(row=row), self.assertRaisesRegex(acceptance.Wrong, expected):
                acceptance.read_rows(ROWS + row + "\n")


if __name__ == "__main__":
    unittest.main()
