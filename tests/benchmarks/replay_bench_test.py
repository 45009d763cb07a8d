"""replay_bench: its rows, what its JSON says of the run, and that replays take no memory."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = "benchmarks/replay_bench"
ROWS = [
    *(f"BM_BareLaunch/nodes:{nodes}" for nodes in (1, 128, 512, 2048)),
    "BM_Call/copied:0/moved:0",
    *(f"BM_Call/copied:{copied}/moved:{moved}"
      for copied in (1, 4, 16, 64, 256) for moved in (0, 1)),
    *(f"BM_Call/static:{inputs}" for inputs in (16, 300)),
    "BM_Call/generators:1",
    *(f"BM_EagerCall/inputs:{inputs}" for inputs in (1, 16)),
    "BM_Chain/functions:16",
    *(f"BM_ByHand/copied:{copied}" for copied in (1, 16)),
]


def run(*flags):
    return subprocess.run([PROGRAM, *flags], text=True, capture_output=True, check=False)


class ReplayBenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.json")
            result = run("--device=host", "--samples=4", "--commit=0123abc", f"--json={path}")
            if result.returncode != 0:
                raise AssertionError(result.stdout + result.stderr)
            cls.results = json.loads(path.read_text(encoding="utf-8"))
        # google/benchmark adds how it ran: "/iterations:4/manual_time".
        cls.rows = {re.sub(r"/iterations:.*", "", row["name"]): row
                    for row in cls.results["benchmarks"]}

    def test_every_row_is_there_and_timed_what_it_says(self):
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

    def test_a_replay_takes_no_memory_from_the_heap(self):
        for name in ["copied:0/moved:0", "copied:1/moved:0", "copied:1/moved:1",
                     "copied:16/moved:0", "copied:16/moved:1", "copied:256/moved:1",
                     "static:16", "static:300",
                     "generators:1"]:
            with self.subTest(row=name):
                self.assertEqual(self.rows[f"BM_Call/{name}"]["allocations"], 0)
        self.assertEqual(self.rows["BM_Chain/functions:16"]["allocations"], 0)

    def test_allocations_are_counted(self):
        self.assertGreater(self.rows["BM_EagerCall/inputs:1"]["allocations"], 0)

    def test_the_results_say_where_they_come_from(self):
        context = self.results["context"]
        self.assertEqual(context["commit"], "0123abc")
        self.assertEqual(context["device"], "host:0")
        self.assertIn("--samples=4", context["command"])
        for key in ["device_name", "driver", "driver_cuda", "cuda"]:
            with self.subTest(key=key):
                self.assertTrue(context[key])


class CommandLineTest(unittest.TestCase):
    def test_an_unknown_device_is_refused_with_its_name(self):
        result = run("--device=quantum")
        self.assertEqual(result.returncode, 1)
        self.assertIn("quantum", result.stderr)

    def test_a_flag_that_nobody_knows_is_refused(self):
        self.assertEqual(run("--device=host", "--bogus").returncode, 2)

    def test_a_relative_file_lies_where_the_user_is(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "BUILD_WORKING_DIRECTORY": folder}
            subprocess.run([PROGRAM, "--device=host", "--samples=1", "--json=results.json",
                            "--benchmark_filter=BareLaunch/nodes:1/"],
                           env=environment, capture_output=True, check=True)
            self.assertTrue(pathlib.Path(folder, "results.json").is_file())
