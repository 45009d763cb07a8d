"""The place where a replay hangs, and the device times of replays, from Python."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/python")

from support import cgtree, floats, setUpModule  # noqa: E402,F401
from cgtree import _report  # noqa: E402


class ProgressPythonTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host", name="decode")
        self.addCleanup(self.context.close)

    def replay(self, context, calls=6):
        step = context.compile(lambda x: x * 2, name="step", framework="numpy")
        for _ in range(calls):
            step(floats(3))
        context.synchronize()

    def test_a_watch_says_what_its_contexts_have_replayed(self):
        watch = cgtree.ProgressWatch(time_limit=0)
        self.context.watch_progress(watch)
        self.assertIn("no replay was watched yet", watch.report())
        with cgtree.Context("host", name="prefill") as other:
            other.watch_progress(watch)
            self.replay(other)
            self.replay(self.context)
            text = watch.report()
            for name in ("decode", "prefill"):
                self.assertIn(f"context '{name}' on host:0", text)
            self.assertEqual(text.count("all replays have ended, the last was replay"), 2)
        self.assertNotIn("prefill", watch.report())
        self.context.watch_progress(None)
        self.assertEqual(watch.report(), "")

    def test_a_replay_that_exceeds_the_limit_is_told_of_while_it_hangs(self):
        told = []

        def step(x):
            # Runs at each launch on the host device. The third run is the first replay.
            def work(_):
                launches.append(0)
                while len(launches) == 3 and not told:
                    pass

            cgtree.launch(work, x)
            return x

        launches = []
        watch = cgtree.ProgressWatch(time_limit=0.05, on_timeout=lambda text: told.append((text, watch.report_json())))
        self.context.watch_progress(watch)
        compiled = self.context.compile(step, name="spins")
        x = cgtree.empty((2,), device="host")
        for _ in range(3):
            compiled(x)
        self.context.watch_progress(None)
        self.assertEqual(len(told), 1)
        text, written = told[0]
        self.assertIn("replay 1 of 'spins'", text)
        self.assertIn("has not ended", text)
        later = _report.progress_text(_report.read_progress(written))
        without_age = [re.sub(r"[\d.]+ s after", "", said) for said in (text, later)]
        self.assertEqual(*without_age)

    def test_reports_of_processes_come_together(self):
        paths = []
        for name in ("first", "second"):
            watch = cgtree.ProgressWatch(time_limit=0)
            with cgtree.Context("host", name=name) as context, tempfile.NamedTemporaryFile(
                    "w", suffix=".json", delete=False) as file:
                context.watch_progress(watch)
                self.replay(context)
                file.write(watch.report_json())
                text = watch.report()
            self.addCleanup(os.remove, file.name)
            paths.append((file.name, text))
        done = subprocess.run([sys.executable, "-m", "cgtree", "report", *(path for path, _ in paths)],
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
                              capture_output=True, encoding="utf-8", check=True)
        self.assertEqual(done.stdout, "".join(text for _, text in paths))

    def test_replays_that_leave_marks_are_timed_by_their_scopes(self):
        watch = cgtree.ProgressWatch(time_limit=0, times_scopes=True)
        self.context.watch_progress(watch)
        with cgtree.Scope("double"):
            self.replay(self.context, 2 + 4)
        self.context.watch_progress(None)
        self.assertIn('cgtree_scope_device_seconds_count'
                      '{context="decode",function="step",scope="double"} 4',
                      self.context.metrics_text())

    def test_objects_that_are_not_watches_are_refused(self):
        with self.assertRaises(TypeError):
            self.context.watch_progress("watch")
        with self.assertRaisesRegex(TypeError, "on_timeout is of type str: expected a function"):
            cgtree.ProgressWatch(on_timeout="print")

    def test_a_context_may_end_before_its_watch_and_behind_it(self):
        watch = cgtree.ProgressWatch()
        with cgtree.Context("host") as context:
            context.watch_progress(watch)
            del watch
            self.replay(context)
        watch = cgtree.ProgressWatch()
        with cgtree.Context("host") as context:
            context.watch_progress(watch)
            self.replay(context)
        self.assertEqual(watch.report(), "")

    def test_replays_that_were_timed_are_in_metrics_and_snapshots(self):
        with cgtree.Context("host", name="timed", time_every_nth_replay=2) as context:
            self.replay(context, 2 + 6)
            self.assertIn('cgtree_replay_device_seconds_count{context="timed",function="step"} 3',
                          context.metrics_text())
            times = json.loads(context.snapshot_json())["replay_times"]
        self.assertEqual([(one["function"], one["count"]) for one in times], [("step", 3)])


if __name__ == "__main__":
    unittest.main()
