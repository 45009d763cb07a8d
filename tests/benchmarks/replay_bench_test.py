"""replay_bench: its rows, the facts about the run in its JSON, and replays without allocations."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/benchmarks")

from bench_rows import CountersTest, results_of, rows_of, run  # noqa: E402

ROWS = [
    *(f"BM_BareLaunch/nodes:{nodes}" for nodes in (1, 128, 512, 2048)),
    "BM_Call/copied:0/moved:0",
    *(f"BM_Call/copied:{copied}/moved:{moved}"
      for copied in (1, 4, 16, 64, 256) for moved in (0, 1)),
    *(f"BM_Call/static:{inputs}" for inputs in (16, 300)),
    "BM_Call/callers_stream",
    "BM_Call/mutated_static:64/copied:16",
    "BM_Call/mispredicted/static:300",
    *(f"BM_Call/imported:{inputs}" for inputs in (1, 16, 300)),
    "BM_Call/copied_back:16",
    "BM_Call/outputs:64",
    *(f"BM_Call/kept:{outputs}" for outputs in (1, 16)),
    "BM_BareCompare/inputs:300",
    "BM_BareReleases/outputs:64",
    "BM_BareLaunch/ordered",
    *(f"BM_BareLaunch/patched:{words}" for words in (1, 4, 16, 64, 256)),
    "BM_Call/generators:1",
    *(f"BM_EagerCall/inputs:{inputs}" for inputs in (1, 16)),
    "BM_Chain/functions:16",
    *(f"BM_Call/guards:{guards}" for guards in (0, 1, 4)),
    *(f"BM_ByHand/copied:{copied}" for copied in (1, 16)),
]


class ReplayBenchTest(CountersTest, unittest.TestCase):
    EXPECTED = ROWS

    @classmethod
    def setUpClass(cls):
        cls.results = results_of("replay_bench", "--samples=4", "--commit=0123abc")
        cls.rows = rows_of(cls.results)

    def test_a_replay_does_not_allocate(self):
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
        result = run("replay_bench", "--device=quantum")
        self.assertEqual(result.returncode, 1)
        self.assertIn("quantum", result.stderr)

    def test_an_unknown_flag_is_refused(self):
        self.assertEqual(run("replay_bench", "--device=host", "--bogus").returncode, 2)

    def test_a_relative_file_lies_where_the_user_is(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "BUILD_WORKING_DIRECTORY": folder}
            subprocess.run(["benchmarks/replay_bench", "--device=host", "--samples=1",
                            "--json=results.json", "--benchmark_filter=BareLaunch/nodes:1/"],
                           env=environment, capture_output=True, check=True)
            self.assertTrue(pathlib.Path(folder, "results.json").is_file())
