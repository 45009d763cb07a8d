"""cmake/sources.cmake lists each source of the library once, and the headers that users include."""

import collections
import pathlib
import re
import sys
import unittest

sys.path.insert(0, "tools")
import source_tree  # noqa: E402

# What stands where neighbours of the core are missing, when it is built alone.
CORE_ALONE = {"allocator/bare_caches.cc", "cgtree/bare_pools.cc", "cgtree/bare_surroundings.cc"}
ROOMS = ("base", "interop", "allocator", "cgtree")
LISTED = re.compile(r"^  ([\w/]+\.(?:cc|cu|h|hpp))\)?$", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def listed(text):
    return collections.Counter(LISTED.findall(text))


def sources(files):
    """Returns the sources of the library among the files of the repository."""
    return {str(path) for path in files
            if path.parts[0] in ROOMS and path.suffix in (".cc", ".cu")
            and str(path.with_suffix("")) not in source_tree.FOR_TESTS}


def included(root, header, found):
    """Adds a header and what it includes to `found`."""
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
                         dict.fromkeys(sources(source_tree.files(self.root)) - CORE_ALONE, 1))

    def test_the_headers_are_those_that_pages_name_and_those_that_they_include(self):
        public = set()
        for name in {"cgtree/cgtree.h", "cgtree/torch.h", "cgtree/cgtree.hpp",
                     *source_tree.documented_headers(self.root)}:
            included(self.root, name, public)
        in_lists = {name: count for name, count in self.found.items() if name.endswith((".h", ".hpp"))}
        self.assertEqual(in_lists, dict.fromkeys(public, 1))

    def test_no_file_is_hidden_from_this_test(self):
        for name in re.findall(r"[\w/]+\.(?:cc|cu|hpp|h)\b", re.sub(r"#.*", "", self.lists)):
            self.assertIn(name, self.found)

    def test_a_source_that_is_missing_or_listed_twice_is_found(self):
        files = [pathlib.Path(name) for name in ["base/a.cc", "tests/b.cc", "base/c.h", "cgtree/d.cu"]]
        self.assertEqual(sources(files), {"base/a.cc", "cgtree/d.cu"})
        self.assertEqual(listed("set(X\n  base/a.cc\n  base/a.cc)\n")["base/a.cc"], 2)


if __name__ == "__main__":
    unittest.main()
