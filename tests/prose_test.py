"""The number of faults in the prose equals tools/prose_counts.json, so that it only falls."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()


def load():
    """Returns tools/check_prose as a module."""
    loader = importlib.machinery.SourceFileLoader("check_prose", str(ROOT / "tools/check_prose"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_prose", loader))
    loader.exec_module(module)
    return module


PROSE = load()


def pieces(path, text):
    """Returns (line, text) of each piece of a file, in the order of the lines."""
    read = PROSE.reader(pathlib.PurePath(path), text)
    return sorted((piece.line, piece.text) for piece in read(text))


def found(text, path="a.md"):
    """Returns (line, kind) of each finding in a file."""
    path = pathlib.PurePath(path)
    read = list(PROSE.reader(path, text)(text))
    return [(line, kind) for line, kind, _ in PROSE.findings(path, text, read)]


class TreeTest(unittest.TestCase):
    def test_the_counts_of_the_tree_are_those_written_down(self):
        written = json.loads((ROOT / PROSE.COUNTS).read_text(encoding="utf-8"))
        counts = PROSE.count(ROOT)
        if lines := PROSE.differences(counts, written):
            self.fail("\n" + "\n".join(lines))
        self.assertEqual(PROSE.lowered(counts, written), (ROOT / PROSE.COUNTS).read_text(encoding="utf-8"))

    def test_measures_are_printed_for_other_checkouts(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a.h").write_text("// Returns what is left. It has ended.\n", encoding="utf-8")
            pathlib.Path(folder, "docs").mkdir()
            pathlib.Path(folder, "docs/benchmarks.md").write_text("One, two.\n", encoding="utf-8")
            self.assertEqual(list(PROSE.measure(folder).values()),
                             ["7", "142.86", "50.00 %", "50.00 %", "3.5", "2", "2"])

    def test_list_names_the_line_and_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder, "tools")
            tools.mkdir()
            for name in ["check_prose", "source_tree.py"]:
                (tools / name).write_bytes((ROOT / "tools" / name).read_bytes())
            page, counts = pathlib.Path(folder, "a.md"), tools / "prose_counts.json"

            def run(*arguments):
                done = subprocess.run([sys.executable, "-B", tools / "check_prose", *arguments], cwd=folder, text=True,
                                      capture_output=True, check=False)
                return done.returncode, done.stdout

            page.write_text("A page.\n\nIt begins anew.\n", encoding="utf-8")
            self.assertEqual(run("--list"), (1, "a.md:3: turns: It begins anew.\n"))
            self.assertEqual(run("--list", "tools"), (0, ""))
            counts.write_text('{"a.md": {"turns": 2}}', encoding="utf-8")
            self.assertEqual(run()[0], 1)
            self.assertEqual(run("--update"), (0, ""))
            self.assertEqual(json.loads(counts.read_text(encoding="utf-8")), {"a.md": {"turns": 1}})
            page.write_text("Anew, and anew.\n", encoding="utf-8")
            self.assertEqual(run("--update")[0], 1)
            self.assertEqual(json.loads(counts.read_text(encoding="utf-8")), {"a.md": {"turns": 1}})

    def test_pages_have_counts_of_their_own_and_sources_and_decisions_share_those_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in ["docs/a.md", "docs/decisions/b.md", "docs/decisions/c.md", "base/log/deep/d.h", "e.h"]:
                target = pathlib.Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text("// It begins anew.\n", encoding="utf-8")
            self.assertEqual({name: kinds["turns"] for name, kinds in PROSE.count(folder).items()},
                             {"docs/a.md": 1, "docs/decisions": 2, "base/log": 1, ".": 1})


class RatchetTest(unittest.TestCase):
    WRITTEN = {"base": {"turns": 3, "what": 1}}

    def test_equal_counts_pass(self):
        self.assertEqual(PROSE.differences({"base": {"turns": 3, "what": 1}}, self.WRITTEN), [])

    def test_a_count_above_is_found_also_in_a_new_folder(self):
        lines = PROSE.differences({"base": {"turns": 4, "what": 1}, "new": {"cells": 1}}, self.WRITTEN)
        self.assertEqual([line.split(":")[:2] for line in lines],
                         [["base", " 4 turns, above 3"], ["new", " 1 cells, above 0"]])

    def test_a_count_below_asks_for_the_lower_number(self):
        lines = PROSE.differences({"base": {"turns": 3}}, self.WRITTEN)
        self.assertEqual(lines, ["base: 0 what, below 1: write down the lower number with --update"])

    def test_an_update_lowers_and_never_raises(self):
        counts = {"base": {"turns": 2, "what": 5}, "new": {"cells": 1}}
        self.assertEqual(json.loads(PROSE.lowered(counts, self.WRITTEN)), {"base": {"turns": 2, "what": 1}})
        self.assertEqual(json.loads(PROSE.lowered({}, self.WRITTEN)), {})


class ExtractionTest(unittest.TestCase):
    def test_comments_of_cxx_are_told_from_strings(self):
        text = ('// A file.\n// It goes on.\n//\n// More.\nconst char* a = "// no";  // behind\n'
                "char b = '\"';  // after a quote\nauto c = R\"x(// no \" )x\";\n"
                "int d = 1'000;  /* block\n  * goes on */\n"
                "}  // namespace cgtree\n// ---- Title ----\n")
        self.assertEqual(pieces("a.cu", text),
                         [(1, "A file.\nIt goes on."), (4, "More."), (5, "behind"), (6, "after a quote"),
                          (8, "block\ngoes on"), (11, "Title")])

    def test_a_comment_behind_code_goes_on_in_its_column(self):
        text = "int a;  // first\n        // second\n// Other.\nint b;  // third\nint c;  // fourth\n"
        self.assertEqual(pieces("a.h", text),
                         [(1, "first\nsecond"), (3, "Other."), (4, "third"), (5, "fourth")])

    def test_a_licence_is_left_out_to_its_end(self):
        self.assertEqual(pieces("a.h", "// Copyright of all.\n//\n// No warranty.\n\n// A file.\n"), [(5, "A file.")])

    def test_code_in_comments_is_left_out_and_lists_are_read(self):
        text = ("// For example:\n//   run();\n//   stop();\n//\n// 1. One\n//    more.\n// 2. Two.\n//\n"
                "// Rows:\n//   kOne  a row\n")
        self.assertEqual(pieces("a.h", text),
                         [(1, "For example:"), (5, "One\n   more."), (7, "Two."), (9, "Rows:"), (10, "  kOne  a row")])

    def test_docstrings_and_comments_of_python_and_bazel_are_read_and_strings_are_not(self):
        text = ('"""A module.\n\nMore.\n"""\na = "# no"  # behind\n\n'
                'def b():\n    """Returns.\n\n    Again.\n    """\n    "no"\n')
        for path in ["a.py", "a.bzl", "BUILD.bazel", "a.pyi"]:
            self.assertEqual(pieces(path, text),
                             [(1, "A module."), (3, "More."), (5, "behind"), (8, "Returns."), (10, "Again.")])

    def test_comments_of_shell_are_read_and_words_with_a_mark_are_not(self):
        text = "#!/bin/sh\n# A script.\necho \"# no\" a#b '# no'  # behind\n"
        for path in ["a.sh", "a"]:
            self.assertEqual(pieces(path, text), [(2, "A script."), (3, "behind")])

    def test_code_of_pages_is_left_out(self):
        text = ("# Title\n\nText of a\nparagraph, `code`.\n\n```cpp\n// What is it?\n```\n\n"
                "    what code\n\n<!-- what\n -->\n- item\n\n    of it\n\n"
                "| a | `b|c` and [d](what.md) |\n| --- | --- |\n")
        self.assertEqual(pieces("a.md", text),
                         [(1, "Title"), (3, "Text of a\nparagraph, CODE."), (14, "item"), (16, "    of it"),
                          (18, "CODE and [d]"), (18, "a")])

    def test_sentences_have_the_line_on_which_they_begin(self):
        piece = PROSE.Piece(5, "One,\ntwo. Three\nfour, e.g. Five!\nSix")
        self.assertEqual(list(piece.sentences()), [(5, "One, two."), (6, "Three four, e.g. Five!"), (8, "Six")])


class KindTest(unittest.TestCase):
    def test_sentences_that_begin_with_a_relative_word_are_found(self):
        for word in ["What", "Who", "Whose", "Where", "That", "Whether"]:
            for text in [f"{word} is left.", f"It ends.\n{word} is left.", f"- {word.lower()} is left",
                         f"**{word}** is left."]:
                with self.subTest(text=text):
                    self.assertEqual(found(text), [(text.count("\n") + 1, "starts")])
        for text in ["| What |", "It says that this is so.", "Whatever. Thatch.", "`What` is a word."]:
            self.assertEqual(found(text), [], text)

    def test_what_above_one_in_a_thousand_words_is_found(self):
        self.assertEqual(found("It is what it is."), [])
        self.assertEqual(found("// It is what it is.\n// So what.\n// And what?\n", "a.h"), [(2, "what"), (3, "what")])
        self.assertEqual(found("word " * 3000 + "what what what", "docs/decisions/a.md"), [])
        self.assertEqual(found("`what` error.what() what() whatever what_for what"), [])

    def test_long_lines_of_pages_are_found(self):
        self.assertEqual(found("a " * 59 + "abc"), [(1, "lines")])
        for text in ["a " * 60, "|" + " a |" * 40, "```\n" + "a " * 90 + "\n```", "[a](" + "b" * 120 + ")",
                     "<img " + "a " * 60 + ">"]:
            self.assertEqual(found(text.rstrip()), [])
        self.assertEqual(found("// " + "a " * 60, "a.h"), [])
        self.assertEqual(found("a " * 60 + "a", "docs/decisions/a.md"), [])

    def test_long_cells_are_found(self):
        self.assertEqual(found("| a |\n| --- |\n| " + "a " * 16 + "| b |"), [(3, "cells")])
        self.assertEqual(found("| " + "a " * 14 + "`b c d e` |"), [])
        self.assertEqual(found("a " * 16), [])

    def test_turns_are_found_also_across_lines(self):
        for text in ["all but for one", "begins anew", "in place\nof it", "of its own", "it is no input",
                     "they are no inputs"]:
            self.assertEqual(found(text), [(1, "turns")], text)
        for text in ["it is no longer so", "that is no more than one", "in its own place", "a place of it", "renewed"]:
            self.assertEqual([kind for _, kind in found(text) if kind == "turns"], [], text)


if __name__ == "__main__":
    unittest.main()
