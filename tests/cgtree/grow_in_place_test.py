"""The tree's tests once more, on pools that grow in place."""

import os
import pathlib
import subprocess
import unittest


class GrowInPlaceTest(unittest.TestCase):
    # Acceptance: random expandable_segments.
    def test_everything_holds_on_such_pools(self):
        programs = sorted(path for path in pathlib.Path("tests/cgtree").glob("*_test")
                          if path.is_file())
        self.assertGreater(len(programs), 5)
        for program in programs:
            with self.subTest(program.name):
                result = subprocess.run([program], text=True, errors="replace",
                                        capture_output=True, check=False,
                                        env=os.environ | {"CGTREE_POOLS_GROW_IN_PLACE": "1"})
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
