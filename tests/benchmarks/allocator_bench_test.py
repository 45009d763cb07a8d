"""allocator_bench: its rows, the order of its counters, and hits without host allocations."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import CountersTest, results_of, rows_of  # noqa: E402

WORKLOADS = ["one_size:4096/live:500",
             *(f"random_sizes/live:{live}" for live in (64, 1024, 8192))]
ROWS = [
    *(f"BM_Pair/{memory}/{workload}/threads:{threads}"
      for memory in ("pool", "eager") for workload in WORKLOADS for threads in (1, 2, 4, 8, 16)),
    *(f"BM_Pair/{bins}/random_sizes/live:{live}/threads:1"
      for bins in ("bins", "locked_bins") for live in (64, 1024, 8192)),
    "BM_Checkpoint/pool/blocks:100/eager:10000",
    "BM_Restore/pool/blocks:100/eager:10000",
    *(f"BM_Trace/{memory}/small" for memory in ("pool", "eager")),
    *(f"BM_SinglePair/pool/other_thread_captures:{captures}" for captures in (0, 1)),
]
TRACE = """Thread,Time,Action,Pointer,Size,Stream
1,00:00:00:000001,allocate,0x1000,4096,0
1,00:00:00:000002,allocate,0x3000,512,0
1,00:00:00:000003,free,0x1000,4096,0
"""


class AllocatorBenchTest(CountersTest, unittest.TestCase):
    EXPECTED = ROWS
    UNIT = "ns"

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "small.rmm.csv")
            trace.write_text(TRACE, encoding="utf-8")
            cls.rows = rows_of(results_of("allocator_bench", "--samples=2", f"--trace={trace}"))

    def test_hits_do_not_allocate(self):
        for threads in (1, 2, 4, 8, 16):
            row = self.rows[f"BM_Pair/pool/{WORKLOADS[0]}/threads:{threads}"]
            self.assertEqual(row["allocations"], 0)


if __name__ == "__main__":
    unittest.main()
