"""device_bench: its rows, that its counters are in order, and that launching allocates nothing."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = "benchmarks/device_bench"
ROWS = ["BM_VirtualCall", "BM_QueryStream", "BM_EmptyLaunch", "BM_TrivialLaunch",
        "BM_LaunchVerb/nodes:1", "BM_LaunchVerb/nodes:128"]


class DeviceBenchTest(unittest.TestCase):
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
            with self.subTest(row=name):
                self.assertEqual(row["allocations"], 0)


if __name__ == "__main__":
    unittest.main()
