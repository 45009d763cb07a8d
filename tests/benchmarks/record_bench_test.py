"""record_bench: its rows time recordings, and the same work by hand."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402


class RecordBenchTest(RowsTest, unittest.TestCase):
    GRAPHS = "graphs:32/kernels:300"
    EXPECTED = [f"BM_{calls}/{by}/kernels:{kernels}" for calls in ("TwoCalls", "SecondCall")
                for by in ("raw", "arena", "tensors") for kernels in (1, 30, 300)]
    EXPECTED += [f"BM_Capture/{GRAPHS}"]
    EXPECTED += [f"BM_Instantiate/graphs:32/kernels:300/others:{others}" for others in (0, 1, 2, 4)]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("record_bench", "--samples=8"))

    def test_every_row_has_times(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                self.assertGreater(row["min_us"], 0)
                self.assertLessEqual(row["min_us"], row["median_us"])


if __name__ == "__main__":
    unittest.main()
