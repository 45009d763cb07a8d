"""The report of a snapshot and of an event file, for programs without Python."""

import json
import os
import subprocess
import tempfile
import unittest

REPORT = "tools/report/report"
SNAPSHOT = {"schema": "cgtree.snapshot", "version": 1, "context": "decode", "device": "host:0",
            "functions": [{"id": 1, "name": "step", "calls": 12, "recordings": 1, "replays": 10}],
            "nodes": [{"function_id": 1, "replays": 10, "audit": {"foreign": [
                {"what": "parameter 1 of 'axpy' is 0x1000"}]}}]}
EVENTS = [{"event": "open", "context": "decode", "process": 1, "device": "host:0"},
          {"event": "warm_up", "context": "decode", "process": 1, "function": "step"},
          {"event": "open", "context": "prefill", "process": 1, "device": "host:0"}]


class ReportToolTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_tool(self, *arguments, **options):
        return subprocess.run([REPORT, *arguments], encoding="utf-8", check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def file(self, text):
        path = os.path.join(self.folder, "file")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_a_snapshot_and_an_event_file_are_reported(self):
        for result in [self.run_tool(self.file(json.dumps(SNAPSHOT))),
                       self.run_tool("-", input=json.dumps(SNAPSHOT))]:
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("context 'decode' on host:0: 12 calls, 10 replayed", result.stdout)
            self.assertIn("'step': pass or bind, or declare()", result.stdout)
            self.assertIn("parameter 1 of 'axpy' is 0x1000", result.stdout)
        result = self.run_tool(self.file("\n".join(map(json.dumps, EVENTS))))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("context 'decode'", result.stdout)
        self.assertIn("context 'prefill'", result.stdout)

    def test_what_is_no_report_is_refused_with_the_name_of_the_file(self):
        for path in [self.file("neither"), self.folder, os.path.join(self.folder, "missing")]:
            result = self.run_tool(path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(path, result.stderr)
        for arguments in [(), ("a", "b")]:
            result = self.run_tool(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn("usage: report FILE", result.stderr)
        self.assertIn("event_file", self.run_tool("--help").stdout)


if __name__ == "__main__":
    unittest.main()
