"""device_bench: its rows, that its counters are in order, and that launching allocates nothing."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import CountersTest, results_of, rows_of  # noqa: E402

ROWS = ["BM_VirtualCall", "BM_QueryStream", "BM_EmptyLaunch", "BM_TrivialLaunch",
        "BM_GraphLaunch/nodes:1", "BM_GraphLaunch/nodes:128"]


class DeviceBenchTest(CountersTest, unittest.TestCase):
    EXPECTED = ROWS

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("device_bench", "--samples=16"))

    def test_no_call_allocates(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                self.assertEqual(row["allocations"], 0)


if __name__ == "__main__":
    unittest.main()
