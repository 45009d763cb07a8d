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

    def test_the_estimate_is_3_kib_for_each_node(self):
        for name, row in self.rows.items():
            if not name.startswith("BM_GraphMemory"):
                continue
            with self.subTest(row=name):
                self.assertEqual(row["estimated_per_graph"], 3072 * int(name.rpartition(":")[2]))


if __name__ == "__main__":
    unittest.main()
