"""interop_bench: its rows, that its counters are in order, and that calls allocate nothing."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = "benchmarks/interop_bench"
ROWS = ([f"BM_CaiImport/api:{api}/stream:{stream}" for api in ["cpp", "c"]
         for stream in ["none", "same", "other"]]
        + ["BM_CaiExport/api:cpp/stream:none", "BM_CaiExport/api:cpp/stream:own",
           "BM_CaiExport/api:c/stream:none", "BM_DlpackExport/api:cpp",
           "BM_DlpackRoundTrip/api:cpp", "BM_DlpackRoundTrip/api:c"]
        + [f"BM_Call/api:{api}/inputs:{inputs}" for api in ["cpp", "c"]
           for inputs in [1, 16, 300]])


class InteropBenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.json")
            result = subprocess.run([PROGRAM, "--device=host", "--samples=16", f"--json={path}"],
                                    text=True, capture_output=True, check=False)
            if result.returncode != 0:
                raise AssertionError(result.stdout + result.stderr)
            results = json.loads(path.read_text(encoding="utf-8"))
        # google/benchmark adds how it ran: "/iterations:4/manual_time".
        cls.rows = {re.sub(r"/iterations:.*", "", row["name"]): row
                    for row in results["benchmarks"]}

    def test_every_row_is_there_and_ran(self):
        self.assertEqual(sorted(self.rows), sorted(ROWS))
        failed = {name: row["error_message"] for name, row in self.rows.items()
                  if row.get("error_occurred")}
        self.assertEqual(failed, {})

    def test_the_counters_are_in_order(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                self.assertGreater(row["min_us"], 0)
                self.assertLessEqual(row["min_us"], row["median_us"])
                self.assertLessEqual(row["median_us"], row["p99_us"])

    def test_no_call_allocates(self):
        for name, row in self.rows.items():
            if name.startswith("BM_Call/"):
                with self.subTest(row=name):
                    self.assertEqual(row["allocations"], 0)

    def test_an_import_takes_a_shape_and_a_storage_from_the_heap(self):
        self.assertEqual(self.rows["BM_CaiImport/api:cpp/stream:none"]["allocations"], 2)


if __name__ == "__main__":
    unittest.main()
