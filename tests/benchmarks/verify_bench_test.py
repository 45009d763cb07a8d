"""verify_bench: its rows time the parts of verification, and replays with and without it."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402


class VerifyBenchTest(RowsTest, unittest.TestCase):
    EXPECTED = ([f"BM_{kernel}/mib:16" for kernel in ("Compare", "Exchange", "Copy")] +
                [f"BM_Replay/verify_every:{n}" for n in (0, 1000, 100, 10)])

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("verify_bench", "--samples=8",
                                      "--benchmark_min_time=0.01"))

    def test_rows_of_kernels_have_a_rate(self):
        for kernel in ("Compare", "Exchange", "Copy"):
            self.assertGreater(self.rows[f"BM_{kernel}/mib:16"]["bytes_per_second"], 0)


if __name__ == "__main__":
    unittest.main()
