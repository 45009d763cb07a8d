"""record_bench: its rows time recordings, and the same work by hand."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import TimesTest, results_of, rows_of  # noqa: E402


class RecordBenchTest(TimesTest, unittest.TestCase):
    EXPECTED = [f"BM_{calls}/{by}/kernels:{kernels}" for calls in ("TwoCalls", "SecondCall")
                for by in ("raw", "arena", "tensors") for kernels in (1, 30, 300)]
    EXPECTED += ["BM_Capture/graphs:32/kernels:300"]
    EXPECTED += [f"BM_Instantiate/graphs:32/kernels:300/others:{others}" for others in (0, 1, 2, 4)]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("record_bench", "--samples=8"))


if __name__ == "__main__":
    unittest.main()
