"""process_bench: its rows are processes that it starts."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import RowsTest, results_of, rows_of  # noqa: E402


class ProcessBenchTest(RowsTest, unittest.TestCase):
    EXPECTED = ["BM_FirstCall/raw", "BM_FirstCall/cgtree"]
    EXPECTED += [f"BM_GraphMemory/kernel/nodes:{nodes}"
                 for nodes in (1, 2, 4, 10, 30, 100, 300, 1000)]
    EXPECTED += [f"BM_GraphMemory/{kind}/nodes:{nodes}" for nodes in (1, 10, 100, 1000)
                 for kind in ("branches", "kernel_256", "kernel_1024", "kernel_4000", "memcpy",
                              "memset", "host")]
    EXPECTED += [f"BM_SharedGraphs/{kind}/differing:{nodes}" for nodes in (1, 10, 100, 300)
                 for kind in ("own", "shared")]

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("process_bench", "--samples=40"))

    def test_the_parts_of_a_first_call_follow_each_other(self):
        for name in ("BM_FirstCall/raw", "BM_FirstCall/cgtree"):
            with self.subTest(row=name):
                parts = [self.rows[name][f"{part}_us"]
                         for part in ("context", "input", "enqueued", "done")]
                self.assertGreater(parts[0], 0)
                self.assertEqual(parts, sorted(parts))

    def test_the_estimate_is_that_of_recordings(self):
        for row, bytes_ in (("kernel/nodes:30", 114688 + 30 * 2304),
                            ("branches/nodes:100", 4 * 114688 + 100 * 2304),
                            ("kernel_4000/nodes:10", 114688 + 10 * 8704),
                            ("memset/nodes:1000", 114688)):
            with self.subTest(row=row):
                self.assertEqual(self.rows[f"BM_GraphMemory/{row}"]["estimated_per_graph"], bytes_)

    def test_recordings_that_share_have_one_graph(self):
        for nodes in (1, 300):
            own, shared = (self.rows[f"BM_SharedGraphs/{kind}/differing:{nodes}"]["estimated_bytes"]
                           for kind in ("own", "shared"))
            self.assertEqual(shared, 114688 + 300 * 2304)
            self.assertEqual(own, 128 * shared)


if __name__ == "__main__":
    unittest.main()
