"""Every entry of docs/footguns.md names an existing test, and every such test has an entry."""

import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()
ENTRY = re.compile(r"^\*\*")
NAMED = re.compile(r"^Test: `FootgunsTest\.(\w+)`$")


def entries(text):
    """Returns the lines of each paragraph that begins in bold type."""
    paragraphs = [paragraph.splitlines() for paragraph in text.split("\n\n")]
    return [lines for lines in paragraphs if ENTRY.match(lines[0])]


class FootgunsDocTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        source = (ROOT / "tests/system/footguns_test.cc").read_text(encoding="utf-8")
        cls.tests = set(re.findall(r"TEST_P\(FootgunsTest, (\w+)\)", source))
        cls.entries = entries((ROOT / "docs/footguns.md").read_text(encoding="utf-8"))

    def test_every_entry_names_an_existing_test(self):
        self.assertGreater(len(self.entries), 15)
        for lines in self.entries:
            with self.subTest(entry=lines[0]):
                named = NAMED.match(lines[-1])
                self.assertTrue(named, "the last line must be: Test: `FootgunsTest.Name`")
                self.assertIn(named.group(1), self.tests)

    def test_every_test_has_one_entry(self):
        named = [NAMED.match(lines[-1]).group(1) for lines in self.entries
                 if NAMED.match(lines[-1])]
        self.assertEqual(sorted(named), sorted(self.tests))

    def test_every_entry_is_short(self):
        for lines in self.entries:
            with self.subTest(entry=lines[0]):
                self.assertLessEqual(len(lines), 4)


if __name__ == "__main__":
    unittest.main()
