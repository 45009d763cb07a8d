"""The command line of trace_replay: exit status, messages, and files that it leaves."""

import gzip
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path("tools/trace_replay/trace_replay").resolve()
HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
GOOD = HEADER + "1,0,allocate,0x1,1000,0\n1,0,allocate,0x2,512,0\n1,0,free,0x1,1000,0\n"


class TraceReplayTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return pathlib.Path(self.folder.name, name)

    def run_on(self, text, *arguments):
        self.path("trace.csv").write_text(text)
        return self.run_file("trace.csv", *arguments)

    def run_file(self, name, *arguments):
        environment = dict(os.environ, BUILD_WORKING_DIRECTORY=self.folder.name)
        return subprocess.run(
            [PROGRAM, f"--trace={name}", "--json=out.json", "--rounds=1", *arguments],
            env=environment, capture_output=True, text=True, check=False)

    def result(self):
        return json.loads(self.path("out.json").read_text())

    def test_relative_paths_are_those_of_the_user(self):
        self.assertEqual(self.run_on(GOOD).returncode, 0)
        result = self.result()
        self.assertEqual(result["operations"], 3)
        self.assertEqual(result["peak_live_bytes"], 1512)
        self.assertGreater(result["ns_per_pair"], 0)

    def test_utilization_is_live_over_reserved(self):
        self.run_on(GOOD)
        result = self.result()
        self.assertAlmostEqual(result["utilization"],
                               result["peak_live_bytes"] / result["peak_reserved_bytes"])

    def test_replays_on_a_device(self):
        self.assertEqual(self.run_on(GOOD, "--device=host").returncode, 0)
        self.assertEqual(self.result()["device"], "host")

    def test_an_empty_log_is_no_error(self):
        self.assertEqual(self.run_on(HEADER).returncode, 0)
        self.assertEqual(self.result()["operations"], 0)

    def test_a_broken_log_leaves_no_json(self):
        done = self.run_on(GOOD + "1,0,free,0x1,1000,0\n")
        self.assertEqual(done.returncode, 2)
        self.assertIn("trace.csv, line 5: 0x1 is freed but not live", done.stderr)
        self.assertFalse(self.path("out.json").exists())

    def test_truncated_gzip_leaves_no_json(self):
        rows = "".join(f"1,0,allocate,{i * 7919:#x},512,0\n" for i in range(1, 5000))
        whole = gzip.compress((HEADER + rows).encode())
        self.path("cut.csv.gz").write_bytes(whole[:len(whole) // 2])
        done = self.run_file("cut.csv.gz")
        self.assertEqual(done.returncode, 2)
        self.assertFalse(self.path("out.json").exists())

    def test_no_room_is_another_status(self):
        done = self.run_on(HEADER + f"1,0,allocate,0x1,{1 << 60},0\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no room", done.stderr)
        self.assertFalse(self.path("out.json").exists())

    def test_unknown_flags_and_devices_are_bad_usage(self):
        self.assertEqual(self.run_on(GOOD, "--speed=9").returncode, 2)
        self.assertEqual(self.run_on(GOOD, "--device=tape").returncode, 2)

    def test_help_names_the_columns(self):
        done = self.run_on(GOOD, "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Thread,Time,Action,Pointer,Size,Stream", done.stdout)


if __name__ == "__main__":
    unittest.main()
