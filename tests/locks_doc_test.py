"""docs/locks.md lists every lock of base/mutex.h, in the same order and with the same description.
"""

import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()
RANK = re.compile(r"X\((k\w+), (kBrief|kLong|kSeveral)\)")


class LocksDocTest(unittest.TestCase):
    def test_the_table_is_the_list(self):
        declared = RANK.findall((ROOT / "base/mutex.h").read_text(encoding="utf-8"))
        self.assertGreater(len(declared), 20)
        text = (ROOT / "docs/locks.md").read_text(encoding="utf-8")
        rows = [line.split("|") for line in text.splitlines() if line.startswith("| `k")]
        told = [(rank, "kLong" if row[-2].strip() == "long" else "")
                for row in rows for rank in re.findall(r"`(k\w+)`", row[1])]
        self.assertEqual(told, [(rank, held if held == "kLong" else "") for rank, held in declared])


if __name__ == "__main__":
    unittest.main()
