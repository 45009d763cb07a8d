"""control_flow_bench: its rows time rounds of a loop and choices, each in all its ways."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402


class ControlFlowBenchTest(RowsTest, unittest.TestCase):
    EXPECTED = [f"BM_{name}/{how}/kernels:{kernels}"
                for kernels in (1, 10, 100)
                for name, ways in (("Rounds", ("loop", "queued", "read")),
                                   ("Choice", ("branch", "read", "both", "one")))
                for how in ways]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("control_flow_bench", "--samples=2",
                                      "--benchmark_min_time=0.01"))


if __name__ == "__main__":
    unittest.main()
