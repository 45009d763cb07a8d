"""interop_bench: its rows, the order of its counters, and calls without allocations."""

import sys
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import CountersTest, results_of, rows_of  # noqa: E402

ROWS = ([f"BM_CaiImport/api:{api}/stream:{stream}" for api in ["cpp", "c"]
         for stream in ["none", "same", "other"]]
        + ["BM_CaiExport/api:cpp/stream:none", "BM_CaiExport/api:cpp/stream:own",
           "BM_CaiExport/api:c/stream:none", "BM_DlpackExport/api:cpp",
           "BM_DlpackRoundTrip/api:cpp", "BM_DlpackRoundTrip/api:c"]
        + [f"BM_Call/api:{api}/inputs:{inputs}" for api in ["cpp", "c"]
           for inputs in [1, 16, 300]])


class InteropBenchTest(CountersTest, unittest.TestCase):
    EXPECTED = ROWS

    @classmethod
    def setUpClass(cls):
        cls.rows = rows_of(results_of("interop_bench", "--samples=16"))

    def test_no_call_allocates(self):
        for name, row in self.rows.items():
            if name.startswith("BM_Call/"):
                with self.subTest(row=name):
                    self.assertEqual(row["allocations"], 0)

    def test_an_import_takes_a_shape_and_a_storage_from_the_heap(self):
        self.assertEqual(self.rows["BM_CaiImport/api:cpp/stream:none"]["allocations"], 2)


if __name__ == "__main__":
    unittest.main()
