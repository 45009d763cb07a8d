"""match_bench: its rows, and the order of its counters."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import CountersTest, results_of, rows_of  # noqa: E402

COUNTS = {"inputs": (1, 4, 16, 64, 256, 1024), "siblings": (2, 4, 16, 64),
          "followers": (1, 4, 16, 64), "live": (0, 16, 64, 256, 1024)}
ROWS = [f"{name}/{what}:{count}" for name in ("BM_Predict", "BM_Decide")
        for what, counts in COUNTS.items() for count in counts]


class MatchBenchTest(CountersTest, unittest.TestCase):
    EXPECTED = ROWS
    UNIT = "ns"

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("match_bench", "--samples=32"))


if __name__ == "__main__":
    unittest.main()
