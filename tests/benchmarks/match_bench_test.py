"""match_bench: its rows, that its counters are in order, and that depth costs nothing."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = "benchmarks/match_bench"
COUNTS = {"inputs": (1, 4, 16, 64, 256, 1024), "depth": (1, 4, 16, 64), "siblings": (2, 4, 16, 64),
          "followers": (1, 4, 16, 64), "live": (0, 16, 64, 256, 1024)}
ROWS = [f"{name}/{what}:{count}" for name in ("BM_Predict", "BM_Decide")
        for what, counts in COUNTS.items() for count in counts]


class MatchBenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.json")
            result = subprocess.run([PROGRAM, "--device=host", "--samples=32", f"--json={path}"],
                                    text=True, capture_output=True, check=False)
            if result.returncode != 0:
                raise AssertionError(result.stdout + result.stderr)
            results = json.loads(path.read_text(encoding="utf-8"))
        # google/benchmark adds how it ran: "/iterations:4/manual_time".
        cls.rows = {re.sub(r"/iterations:.*", "", row["name"]): row
                    for row in results["benchmarks"]}

    def test_every_row_is_there_and_found_the_recording_that_fits(self):
        self.assertEqual(sorted(self.rows), sorted(ROWS))
        failed = {name: row["error_message"] for name, row in self.rows.items()
                  if row.get("error_occurred")}
        self.assertEqual(failed, {})

    def test_the_counters_are_in_order(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                self.assertGreater(row["min_ns"], 0)
                self.assertLessEqual(row["min_ns"], row["median_ns"])
                self.assertLessEqual(row["median_ns"], row["p99_ns"])

    def test_depth_costs_nothing(self):
        for name in ("BM_Predict", "BM_Decide"):
            with self.subTest(row=name):
                # The least of 32 samples; twice leaves room for a busy machine.
                self.assertLess(self.rows[f"{name}/depth:64"]["min_ns"],
                                2 * self.rows[f"{name}/depth:1"]["min_ns"])


if __name__ == "__main__":
    unittest.main()
