"""The lines that count_lines counts as the product and as the core; the core must not grow."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")
import count_lines  # noqa: E402
import source_tree  # noqa: E402

# docs/decisions/0043-walls-are-folders.md defines the core. Its lines may only fall; the limit of a room is in its file
# ROOM.
MOST_CORE_LINES = 35_841


def rows_of(files):
    """Counts a tree of these files (path -> number of lines), with rooms of the core, around it and outside."""
    with tempfile.TemporaryDirectory() as root:
        for path, part in {"base": "core", "cgtree": "core", "cgtree/tree": "core", "simulator": "around",
                           "python": "program", "tests": "program"}.items():
            pathlib.Path(root, path).mkdir(parents=True, exist_ok=True)
            pathlib.Path(root, path, "ROOM").write_text(f"A room.\npart: {part}\n", encoding="utf-8")
        for path, lines in ({"cgtree/cgtree.h": 1, "README.md": 1} | files).items():
            target = pathlib.Path(root, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("// A line.\n" * lines, encoding="utf-8")
        return count_lines.count(root)


class CountLinesTest(unittest.TestCase):
    def test_the_core_is_counted_and_the_rooms_around_it_are_not(self):
        rows = rows_of({"cgtree/tree/a.cc": 10, "cgtree/tree/cuda/b.cc": 20, "simulator/c.h": 40,
                        "tests/cgtree/d_test.cc": 80, "python/extension/e.cc": 160})
        self.assertEqual(rows["core"], 31)
        self.assertEqual(rows["library"], 71)
        self.assertEqual(rows["folder cgtree/tree"], 10)
        self.assertEqual(rows["folder cgtree/tree/cuda"], 20)
        self.assertEqual(rows["folder simulator"], 40)
        self.assertEqual(rows["folder python"], 160)

    def test_long_files_are_counted(self):
        most = count_lines.MOST_LINES
        rows = rows_of({"base/a.cc": most, "base/b.cc": most + 1})
        self.assertEqual(rows[f"library, files over {most} lines"], 1)

    def test_a_table_has_a_column_for_each_tree(self):
        lines = count_lines.table([("before", {"folder base": 1000, "core": 7}), ("after", {"folder base": 20, "core": 8})])
        self.assertEqual([line.split() for line in lines],
                         [["before", "after"], ["base", "1,000", "20"], ["core", "7", "8"]])

    def test_the_core_has_no_more_lines_than_were_agreed_on(self):
        lines = count_lines.count(source_tree.real_root())["core"]
        self.assertGreater(lines, MOST_CORE_LINES * 3 / 4, "is anything counted?")
        self.assertLessEqual(lines, MOST_CORE_LINES)


if __name__ == "__main__":
    unittest.main()
