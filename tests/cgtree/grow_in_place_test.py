"""The tests of the tree, on pools that grow in place: each run picks a random sixth of each program."""

import os
import pathlib
import random
import subprocess
import unittest

SHARDS = 6


class GrowInPlaceTest(unittest.TestCase):
    # Acceptance: random expandable_segments.
    def test_everything_holds_on_such_pools(self):
        programs = sorted(path for path in pathlib.Path("tests/cgtree").glob("*_test")
                          if path.is_file())
        self.assertGreater(len(programs), 5)
        shard = int(os.environ.get("CGTREE_SHARD", random.randrange(SHARDS)))
        print(f"CGTREE_SHARD={shard}")
        environment = os.environ | {"CGTREE_POOLS_GROW_IN_PLACE": "1", "GTEST_TOTAL_SHARDS": str(SHARDS),
                                    "GTEST_SHARD_INDEX": str(shard)}
        for program in programs:
            with self.subTest(program.name):
                result = subprocess.run([program], text=True, errors="replace",
                                        capture_output=True, check=False, env=environment)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
