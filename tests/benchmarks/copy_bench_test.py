"""copy_bench: its rows time replays, and replays do not allocate."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402

NAMES = [*(f"copied:{inputs}" for inputs in (0, 1, 4, 16, 64, 256)),
         "copied_back:16", "strided:16", "padded:16", "copied_mib:1"]

WAYS = ["stays", "copied", "rebound", "chosen"]


class CopyBenchTest(RowsTest, unittest.TestCase):
    EXPECTED = [*(f"BM_{side}/{name}" for side in ("Device", "Host") for name in NAMES),
                *(f"BM_{side}/{way}/kib:{kib}/consumers:{consumers}"
                  for side in ("Alone", "Row") for way in WAYS
                  for kib in (4, 64, 1024) for consumers in (1, 4, 16))]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("copy_bench", "--samples=2"))

    def test_a_replay_does_not_allocate(self):
        for name in NAMES:
            with self.subTest(row=name):
                self.assertEqual(self.rows[f"BM_Host/{name}"]["allocations"], 0)

    def test_an_input_is_rebound_where_it_is_told_to_be(self):
        for side in ("Alone", "Row"):
            self.assertEqual(self.rows[f"BM_{side}/rebound/kib:64/consumers:4"]["rebound"], 1)
            self.assertEqual(self.rows[f"BM_{side}/copied/kib:64/consumers:4"]["rebound"], 0)


if __name__ == "__main__":
    unittest.main()
