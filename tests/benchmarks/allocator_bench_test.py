"""allocator_bench: its rows, that its counters are in order, and that hits take no host memory."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = "benchmarks/allocator_bench"
WORKLOADS = ["one_size:4096/live:500",
             *(f"random_sizes/live:{live}" for live in (64, 1024, 8192))]
ROWS = [
    *(f"BM_Pair/pool/{workload}/threads:{threads}"
      for workload in WORKLOADS for threads in (1, 2, 4, 8, 16)),
    "BM_Checkpoint/pool/blocks:100/eager:10000",
    "BM_Restore/pool/blocks:100/eager:10000",
    "BM_Trace/pool/small",
    *(f"BM_SinglePair/pool/other_thread_captures:{captures}" for captures in (0, 1)),
]
TRACE = """Thread,Time,Action,Pointer,Size,Stream
1,00:00:00:000001,allocate,0x1000,4096,0
1,00:00:00:000002,allocate,0x3000,512,0
1,00:00:00:000003,free,0x1000,4096,0
"""


class AllocatorBenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.json")
            trace = pathlib.Path(folder, "small.rmm.csv")
            trace.write_text(TRACE, encoding="utf-8")
            result = subprocess.run(
                [PROGRAM, "--device=host", "--samples=2", f"--json={path}", f"--trace={trace}"],
                text=True, capture_output=True, check=False)
            if result.returncode != 0:
                raise AssertionError(result.stdout + result.stderr)
            results = json.loads(path.read_text(encoding="utf-8"))
        # google/benchmark adds how it ran: "/iterations:4/manual_time".
        cls.rows = {re.sub(r"/iterations:\d+/manual_time", "", row["name"]): row
                    for row in results["benchmarks"]}

    def test_every_row_is_there(self):
        self.assertEqual(sorted(self.rows), sorted(ROWS))

    def test_the_counters_are_in_order(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                self.assertGreater(row["min_ns"], 0)
                self.assertLessEqual(row["min_ns"], row["median_ns"])
                self.assertLessEqual(row["median_ns"], row["p99_ns"])

    def test_hits_take_no_memory_from_the_heap(self):
        for threads in (1, 2, 4, 8, 16):
            row = self.rows[f"BM_Pair/pool/{WORKLOADS[0]}/threads:{threads}"]
            self.assertEqual(row["allocations"], 0)


if __name__ == "__main__":
    unittest.main()
