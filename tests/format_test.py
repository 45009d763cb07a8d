"""The tree is formatted, and the check would find an unformatted file."""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, "tools")

import check_format  # noqa: E402
import source_tree  # noqa: E402


class FormatTest(unittest.TestCase):
    def test_the_tree_is_formatted(self):
        said = check_format.check(source_tree.real_root())
        if said:
            self.fail(f"run tools/check_format.py --fix\n{said}")

    def test_an_unformatted_file_is_found(self):
        for name in ["a.h", "a.cc", "a.cu", "a.cuh"]:
            with self.subTest(name=name), tempfile.TemporaryDirectory() as root:
                shutil.copy(source_tree.real_root() / ".clang-format", root)
                pathlib.Path(root, name).write_text("int  main( ){return 0;}\n", encoding="utf-8")
                self.assertIn(f"{name}:1:", check_format.check(root))

    def test_without_clang_format_it_says_how_to_get_it(self):
        with mock.patch.dict(os.environ, PATH="/nonexistent"):
            self.assertIn("tools/setup", check_format.check("."))
