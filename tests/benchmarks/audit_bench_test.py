"""audit_bench: its rows time recordings, with and without the audit."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402


class AuditBenchTest(RowsTest, unittest.TestCase):
    EXPECTED = [f"BM_{part}/kernels:{kernels}" for kernels in (1, 30, 300)
                for part in ("Raw", "Read", "Audited", "Context")]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("audit_bench", "--samples=8"))

    def test_every_row_has_times(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                self.assertGreater(row["min_us"], 0)
                self.assertLessEqual(row["min_us"], row["median_us"])


if __name__ == "__main__":
    unittest.main()
