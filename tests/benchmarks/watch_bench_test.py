"""watch_bench: its rows time replays with and without a watch."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402


class WatchBenchTest(RowsTest, unittest.TestCase):
    EXPECTED = ([f"BM_Call/{what}" for what in ("not_watched", "timed:1000", "timed:1", "marked", "by_scopes")] +
                [f"BM_Device/scopes:{scopes}/{kind}" for scopes in (4, 32, 128)
                 for kind in ("plain", "marked")])

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("watch_bench", "--samples=8", "--benchmark_min_time=0.01"))


if __name__ == "__main__":
    unittest.main()
