"""cmake/sources.cmake lists each source of the library once, and the headers for users."""

import collections
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")
import check_layering  # noqa: E402
import source_tree  # noqa: E402

LISTED = re.compile(r"^  ([\w/]+\.(?:cc|cu|h|hpp))\)?$", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def listed(text):
    return collections.Counter(LISTED.findall(text))


def sources(house):
    """Returns the sources of the library."""
    return {str(path) for path in house.files
            if path.suffix in (".cc", ".cu") and house.is_library(path)}


def included(root, header, found):
    """Adds a header and the headers that it includes to `found`."""
    if header in found or not (root / header).exists():
        return found
    found.add(header)
    for name in INCLUDE.findall((root / header).read_text(encoding="utf-8")):
        included(root, name, found)
    return found


class CMakeListsTest(unittest.TestCase):
    def setUp(self):
        self.root = source_tree.real_root()
        self.lists = (self.root / "cmake/sources.cmake").read_text(encoding="utf-8")
        self.found = listed(self.lists)

    def test_each_source_is_in_one_list(self):
        in_lists = {name: count for name, count in self.found.items() if not name.endswith((".h", ".hpp"))}
        self.assertEqual(in_lists,
                         dict.fromkeys(sources(check_layering.House(self.root)), 1))

    def test_the_headers_are_those_that_pages_name_and_those_that_they_include(self):
        public = set()
        for name in {"cgtree/cgtree.h", "bindings/torch/torch.h", "bindings/c/cgtree.hpp",
                     *source_tree.documented_headers(self.root)}:
            included(self.root, name, public)
        in_lists = {name: count for name, count in self.found.items() if name.endswith((".h", ".hpp"))}
        self.assertEqual(in_lists, dict.fromkeys(public, 1))

    def test_no_file_is_hidden_from_this_test(self):
        for name in re.findall(r"[\w/]+\.(?:cc|cu|hpp|h)\b", re.sub(r"#.*", "", self.lists)):
            self.assertIn(name, self.found)

    def test_a_source_that_is_missing_or_listed_twice_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            for name, text in {"base/ROOM": "A room.\npart: core\n", "tests/ROOM": "A room.\npart: program\n",
                               "base/a.cc": "", "tests/b.cc": "", "base/c.h": "", "base/cuda/d.cu": ""}.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            self.assertEqual(sources(check_layering.House(root)), {"base/a.cc", "base/cuda/d.cu"})
        self.assertEqual(listed("set(X\n  base/a.cc\n  base/a.cc)\n")["base/a.cc"], 2)


if __name__ == "__main__":
    unittest.main()
