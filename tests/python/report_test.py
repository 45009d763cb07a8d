"""Reports from Python: of a context, of a snapshot and of an event file."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/python")

from support import cgtree, floats, setUpModule  # noqa: E402,F401


class ReportPythonTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.events = os.path.join(folder.name, "events.jsonl")
        self.context = cgtree.Context("host", name="decode", event_file=self.events,
                                      event_file_has_replays=True)
        self.addCleanup(self.context.close)
        self.step = self.context.compile(lambda x: x * 2, name="step", framework="numpy",
                                         max_recordings=1)

    def call(self):
        for size in (3, 3, 3, 4, 4, 4):
            self.step(floats(size))

    def main(self, *arguments, **options):
        return subprocess.run([sys.executable, "-m", "cgtree", *arguments], encoding="utf-8",
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
                              stdout=options.get("stdout", subprocess.PIPE),
                              stderr=subprocess.PIPE, check=False)

    def write(self, text):
        path = os.path.join(os.path.dirname(self.events), "file")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_a_report_says_what_the_context_counted_and_what_to_change(self):
        self.call()
        report = cgtree.report(self.context)
        stats = self.context.stats()
        self.assertIn(f"context 'decode' on host:0: {stats['calls']} calls, {stats['replays']} replayed",
                      report)
        self.assertIn("'step': raise max_recordings of the function", report)
        self.assertLessEqual(len(report.splitlines()), 40)

    def test_without_an_argument_it_is_of_the_default_context(self):
        self.assertEqual(cgtree.report().split("'")[1], cgtree.default_context().device)

    def test_the_command_reports_on_a_snapshot_and_on_an_event_file(self):
        self.call()
        done = self.main("report", self.write(self.context.snapshot_json()))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, cgtree.report(self.context))
        done = self.main("report", self.events)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("'step': raise max_recordings of the function", done.stdout)
        self.assertEqual(done.stdout.splitlines()[0], cgtree.report(self.context).splitlines()[0])

    def test_an_event_file_that_is_cut_loses_one_line(self):
        self.call()
        with open(self.events, encoding="utf-8") as file:
            text = file.read()
        done = self.main("report", self.write(text[:-9]))
        self.assertEqual(done.returncode, 0)
        self.assertIn("1 lines are no events", done.stdout)

    def test_what_cannot_be_read_or_written_is_said(self):
        for path, said in [(self.write("hello"), "neither"), ("/no/such/file", "No such file"),
                           (self.write("\0"), "neither"),
                           (os.path.dirname(self.events), "Is a directory")]:
            done = self.main("report", path)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.main("report", self.events, stdout=full)
        self.assertEqual(done.returncode, 2)
        self.assertIn("No space left", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_closed_contexts_and_other_things_are_refused(self):
        self.context.close()
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.report(self.context)
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.Context._report_of(["{}"])
        with self.assertRaises(TypeError):
            cgtree.Context._report_of([3])


class ExplainPythonTest(unittest.TestCase):
    def test_both_lines_are_there_on_their_own(self):
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy")
            for _ in range(2):
                step(floats(3))
            why = step.explain(floats(5))
            self.assertEqual(why["outcome"], "warm_up")
            self.assertIn("float32 {3}", why["difference"])
            self.assertIn("float32 {5}", why["difference"])
            self.assertIn("declare the axis that varies", why["advice"])
            self.assertEqual(why["text"],
                             f"warm_up: {why['difference']}\n  to replay: {why['advice']}")
            self.assertIn("declare the axis that varies, axis 0, in the option dynamic", why["advice"])
            same = step.explain(floats(3))
            self.assertEqual((same["difference"], same["advice"]), ("", ""))

    def test_another_shape_at_each_call_and_a_step_that_throws_are_named_in_words_of_python(self):
        def fail(x):
            raise KeyError("no page")

        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy", name="step")
            broken = context.compile(fail, framework="numpy", name="broken")
            for size in range(1, 21):
                step(floats(size))
                with self.assertRaises(KeyError):
                    broken(floats(2))
            why = step.explain(floats(30))
            self.assertIn("float32 {20} in the last, float32 {30} given", why["difference"])
            self.assertIn("declare axis 0 of 'x' in the option dynamic", why["advice"])
            self.assertIn("no page", broken.explain(floats(2))["difference"])
            self.assertIn("no page", broken.stats()["last_failure"])
            report = cgtree.report(context)
            self.assertIn("'step': declare axis 0 of 'x' in the option dynamic", report)
            self.assertIn("20 of 20 calls threw, the last: KeyError", report)
            self.assertNotIn("::", report)


if __name__ == "__main__":
    unittest.main()
