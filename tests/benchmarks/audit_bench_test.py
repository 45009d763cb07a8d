"""audit_bench: its rows time recordings, with and without the audit."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import TimesTest, results_of, rows_of  # noqa: E402


class AuditBenchTest(TimesTest, unittest.TestCase):
    EXPECTED = [f"BM_{part}/kernels:{kernels}" for kernels in (1, 30, 300)
                for part in ("Raw", "Read", "Audited", "Context")]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("audit_bench", "--samples=8"))


if __name__ == "__main__":
    unittest.main()
