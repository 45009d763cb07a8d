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


def progress_of(rank, layers):
    """Rank 0 hangs in its last collective, and the others have ended."""
    marks = [{"scope": layer, "kernels": ["collective"], "collective": True,
              "reached": rank > 0 or layer != layers[-1]} for layer in layers]
    replay = {"function": "step", "node": 2, "number": 5, "age_ms": 1500, "begun": True,
              "ended": rank > 0, "marks": marks, "why_unmarked": ""}
    return {"schema": "cgtree.progress", "version": 1, "contexts": [
        {"context": f"c{rank}", "device": "host:0", "rank": rank, "ranks": 2, "unwatched": 0,
         "replays": [replay]}]}


class ReportToolTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_tool(self, *arguments, **options):
        return subprocess.run([REPORT, *arguments], encoding="utf-8", check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def file(self, text, name="file"):
        path = os.path.join(self.folder, name)
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

    def test_reports_of_ranks_that_are_processes_come_together(self):
        ranks = [self.file(json.dumps(progress_of(rank, layers)), f"rank{rank}")
                 for rank, layers in enumerate([["a", "b", "c"], ["a", "c"]])]
        result = self.run_tool(*reversed(ranks))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertLess(result.stdout.index("rank 0 of 2"), result.stdout.index("rank 1 of 2"))
        self.assertIn("rank 0 waits in collective 3, 'c': rank 1 has ended replay 5 of 'step' "
                      "(recording 2); its recording has 2 collectives where this one has 3, and "
                      "collective 2 is 'c' where here it is 'b'", result.stdout)
        self.assertIn("rank 0 of 2", self.run_tool(ranks[0]).stdout)
        for other in (json.dumps(SNAPSHOT), "{", json.dumps({"schema": "cgtree.progress"})):
            result = self.run_tool(ranks[0], self.file(other))
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("file: no report of a ProgressWatch", result.stderr)

    def test_several_files_have_a_report_each_under_their_names(self):
        one, two = (self.file(json.dumps({**SNAPSHOT, "context": name}), name) for name in ("a", "b"))
        result = self.run_tool(one, two)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertLess(result.stdout.index(f"{one}:\ncontext 'a'"), result.stdout.index(f"{two}:\ncontext 'b'"))
        result = self.run_tool(one, self.file("neither", "c"))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("c: a report is made of Context::snapshot_json()", result.stderr)

    def test_fields_of_other_types_and_snapshots_that_are_cut_are_refused_and_not_read_as_0(self):
        for field, value in [("functions", "none"), ("generation", "3"), ("live_outputs", -1), ("nodes", 7)]:
            result = self.run_tool(self.file(json.dumps({**SNAPSHOT, field: value})))
            self.assertEqual((result.returncode, result.stdout), (2, ""), field)
            self.assertIn(f'"{field}" is {json.dumps(value)}, and ', result.stderr)
        result = self.run_tool(self.file(json.dumps(SNAPSHOT)[:-20]))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("the text is cut", result.stderr)

    def test_what_is_no_report_is_refused_with_the_name_of_the_file(self):
        for path in [self.file("neither"), self.folder, os.path.join(self.folder, "missing")]:
            result = self.run_tool(path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(path, result.stderr)
        result = self.run_tool()
        self.assertEqual(result.returncode, 2)
        self.assertIn("usage: report FILE", result.stderr)
        self.assertIn("event_file", self.run_tool("--help").stdout)


if __name__ == "__main__":
    unittest.main()
