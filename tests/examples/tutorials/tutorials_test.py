"""The programs of the tutorials print the output on their pages, and each block of each page is tested."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/examples/tutorials")

from support import PAGES, PROGRAMS, expect_page, tutorial  # noqa: E402

BLOCK = "```{}\n{}\n```\n"


class TutorialsTest(unittest.TestCase):
    def test_programs_print_what_their_pages_say(self):
        pages = {name: page for name, page in PAGES.items() if page.language == "cpp"}
        self.assertGreaterEqual(len(pages), 5)
        for name, page in pages.items():
            with self.subTest(page=name):
                expect_page(self, page,
                            lambda number: [PROGRAMS / (f"{name}_{number}" if number else name)])

    def test_reports_are_of_what_programs_have_written(self):
        reports = [(name, *report) for name, page in PAGES.items() for report in page.reports]
        self.assertTrue(reports)
        for name, path, printed in reports:
            with self.subTest(page=name), tempfile.TemporaryDirectory() as folder:
                subprocess.run([PROGRAMS / name], env={**os.environ, "TMPDIR": folder}, check=True,
                               stdout=subprocess.DEVNULL)
                report = subprocess.run(["tools/report/report", path.replace("/tmp", folder)], check=True,
                                        stdout=subprocess.PIPE, encoding="utf-8").stdout
                self.assertRegex(report, f"^{tutorial.pattern_of(printed)}$")

    def test_a_page_has_a_program_output_and_a_change(self):
        for name, page in PAGES.items():
            with self.subTest(page=name):
                self.assertTrue(page.program and page.printed and page.changes)

    def test_commands_are_those_that_run_the_page(self):
        for name, page in PAGES.items():
            run = [f"tools/setup && bazel run //examples/tutorials:{name}"]
            if page.language == "python":
                run = ["pip install .",
                       f"examples/tutorials/tutorial.py docs/tutorials/{name}.md > {name}.py"
                       f" && python3 {name}.py"]
            with self.subTest(page=name):
                self.assertEqual(page.commands, run)

    def test_the_index_lists_each_page_once(self):
        text = pathlib.Path("docs/tutorials/README.md").read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"\((\w+)\.md\)", text)), sorted(PAGES))


class TutorialTest(unittest.TestCase):
    """The functions that read pages."""

    def test_a_block_that_would_not_be_tested_is_refused(self):
        code = BLOCK.format("cpp", "int main() {}")
        for text in (BLOCK.format("json", "{}"), BLOCK.format("text", "out"),
                     BLOCK.format("sh", "ls") + BLOCK.format("text", "out"),
                     code + BLOCK.format("python", "pass"), code + "- ```cpp\n", code + "```cpp\nint i;\n",
                     code + BLOCK.format("diff", "-int main() {}"),
                     code + BLOCK.format("", "out")):
            with self.subTest(text=text), self.assertRaises(tutorial.PageError):
                tutorial.Tutorial(text)

    def test_a_change_is_of_lines_that_stand_in_the_program_once(self):
        def page(diff):
            return tutorial.Tutorial(BLOCK.format("cpp", "a;\nb;\na;\nc;") + BLOCK.format("diff", diff)
                                     + BLOCK.format("text", "out"))
        self.assertEqual(page(" b;\n-a;\n+d;\n+e;").program_with(1), "a;\nb;\nd;\ne;\nc;\n")
        self.assertEqual(page("-a;\n b;").program_with(1), "b;\na;\nc;\n")
        self.assertEqual(page("-b;\n@@\n-c;\n+d;").program_with(1), "a;\na;\nd;\n")
        for diff in ("-a;\n+b;", "-x;", "-;", "-b;\n@@\n-x;"):
            with self.subTest(diff=diff), self.assertRaises(tutorial.PageError):
                page(diff)

    def test_blocks_are_joined_by_an_empty_line(self):
        page = tutorial.Tutorial(BLOCK.format("cpp", "a;") + BLOCK.format("text", "1") + "prose\n"
                                 + BLOCK.format("cpp", "b;") + BLOCK.format("text", "2"))
        self.assertEqual((page.program, page.printed), ("a;\n\nb;\n", "1\n2\n"))

    def test_an_ellipsis_matches_within_its_line(self):
        pattern = tutorial.pattern_of("at …, 2 (x)\n")
        self.assertRegex("at 0x7f, 2 (x)\n", pattern)
        self.assertNotRegex("at 0x\n7f, 2 (x)\n", pattern)
        self.assertNotRegex("at 0x7f, 2 x\n", pattern)


if __name__ == "__main__":
    unittest.main()
