"""copy_bench: its rows time replays, and replays do not allocate."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402

NAMES = [*(f"copied:{inputs}" for inputs in (0, 1, 4, 16, 64, 256)),
         "copied_back:16", "strided:16", "padded:16", "copied_mib:1"]


class CopyBenchTest(RowsTest, unittest.TestCase):
    EXPECTED = [f"BM_{side}/{name}" for side in ("Device", "Host") for name in NAMES]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("copy_bench", "--samples=2"))

    def test_a_replay_does_not_allocate(self):
        for name in NAMES:
            with self.subTest(row=name):
                self.assertEqual(self.rows[f"BM_Host/{name}"]["allocations"], 0)


if __name__ == "__main__":
    unittest.main()
