"""Reports about contexts from Python: those of snapshots and of event files are equal."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/python")

from support import affine, cgtree, floats, setUpModule, tensor  # noqa: E402,F401
from cgtree import _report  # noqa: E402

MARK_STEP = "call mark_step() where a step begins"
NOTHING = "advice: nothing to change was found"


def double(x):
    y = cgtree.empty(x.shape, x.dtype)
    cgtree.numpy.launch(lambda a, out: out.__setitem__(..., a * 2), x, y)
    return y


class ReportTest(unittest.TestCase):
    """Each advice appears where it helps, with its numbers, and only there."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.events = os.path.join(folder.name, "events.jsonl")
        self.context = self.open()
        self.functions = []  # held, because a snapshot has only the functions that exist

    def open(self, **options):
        context = cgtree.Context("host", name="decode", **{"event_file": self.events, "event_file_has_replays": True,
                                                           **options})
        self.addCleanup(context.close)
        return context

    def compile(self, name="f", function=double, **options):
        self.functions.append(self.context.compile(function, name=name, **options))
        return self.functions[-1]

    def padded(self, buckets):
        return self.compile(dynamic={0: {0: "n"}}, buckets={"n": buckets}, outputs_dynamic=[{0: "n"}])

    def call(self, f, *sizes):
        for size in sizes:
            f(tensor(floats(size)))

    def report(self):
        return cgtree.report(self.context)

    def report_of_file(self):
        with open(self.events, encoding="utf-8") as file:
            return _report.spelled(_report.report_of(file.read()))

    def reports(self):
        return self.report(), self.report_of_file()

    def assert_advised(self, text, numbers):
        for report in self.reports():
            self.assertIn(text, report)
            self.assertIn(numbers, report)
            self.assertLess(report.index(text), report.index(numbers), report)

    def assert_not_advised(self, *texts):
        for report in self.reports():
            for text in texts:
                self.assertNotIn(text, report)

    def assert_nothing_advised(self):
        for report in self.reports():
            self.assertIn(NOTHING, report)

    def test_it_begins_with_what_the_context_counted(self):
        self.call(self.compile(), 2, 2, 2, 2, 3)
        self.call(self.compile("off", enabled=False), 2)
        pools = self.context.stats()["pool_reserved_bytes"] / (1 << 20)
        for report in self.reports():
            self.assertTrue(report.startswith(
                "context 'decode' on host:0: 6 calls, 2 replayed\n"
                f"1 recorded, 2 warmed up, 1 ran eagerly, 0 failed, 0 steps\npools {pools:.1f} MiB, "), report)
            self.assertIn("ran eagerly: disabled                       1  'off' 1", report)
            self.assertIn("warmed up                                   2  'f' 2", report)

    def test_a_steady_loop_is_advised_nothing(self):
        f = self.compile()
        for _ in range(20):
            self.context.mark_step()
            self.call(f, 4)
        self.assert_nothing_advised()

    def test_an_empty_context_has_a_report(self):
        self.assertIn("0 calls, 0 replayed", self.report())
        self.assertIn(NOTHING, self.report_of_file())

    def test_mark_step_is_missed_where_outputs_are_held_and_it_was_never_called(self):
        f = self.compile()
        held = [f(tensor(floats(2))) for _ in range(5)]
        self.assert_advised(MARK_STEP, "3 recordings took ")
        self.assertIn("5 are held now, at least 4 of them of 'f'", self.report())
        del held

    def test_mark_step_is_not_missed_where_it_is_called_or_nothing_is_held(self):
        f = self.compile()
        self.call(f, 2, 2, 2, 2, 2)
        self.assert_not_advised("mark_step()")
        held = []
        for _ in range(5):
            self.context.mark_step()
            held += [f(tensor(floats(2))) for _ in range(2)]
        self.assert_not_advised(MARK_STEP)

    def test_outputs_that_are_held_within_a_step_are_to_be_let_go(self):
        f = self.compile()
        self.context.mark_step()
        held = [f(tensor(floats(2))) for _ in range(5)]
        self.assert_advised("'f': let go of outputs before the next call", "3 recordings took ")
        del held

    def moves(self, calls):
        """Calls of a function with a static input, with weights of these numbers."""
        f = self.compile(function=affine, static=["w"])
        weights = [tensor(floats(2)) for _ in range(max(calls) + 1)]
        for number in calls:
            f(tensor(floats(2)), weights[number])

    def test_a_static_input_that_moves_is_to_stay_or_to_be_copied(self):
        self.moves([0, 0, 1, 1, 2, 2, 3, 3])
        self.assert_advised("'f': keep 'w' at one address", "3 recordings took ")
        report = self.report()
        self.assertIn("recorded: a static input moved              3  'f' 3", report)
        self.assertIn("recorded: its first                         1  'f' 1", report)
        self.assertIn("static input 1 'w': 0x", report)

    def test_a_static_input_that_moved_once_is_no_matter(self):
        self.moves([0, 0, 0, 0, 1, 1])
        self.assert_not_advised("at one address")

    def test_recordings_that_are_replayed_often_are_worth_it(self):
        self.moves([0, 1, 2] * 20)
        self.assert_not_advised("at one address")

    def test_a_large_input_that_never_moved_is_to_be_declared_static(self):
        f, x = self.compile(), tensor(floats(2000))
        for _ in range(14):
            f(x)
        self.assertIn("'f': declare input 0 static, if its address stays\n   8000 bytes are copied at each replay, and "
                      "it has not moved in 12 replays", self.report())

    def test_an_input_that_moves_or_is_small_or_replays_seldom_is_not_to_be_static(self):
        moves, is_small, is_new = map(self.compile, ("moves", "is_small", "is_new"))
        is_static = self.compile("is_static", static=[0])
        large, small = [tensor(floats(2000)) for _ in range(2)], tensor(floats(8))
        for i in range(14):
            moves(large[i % 2])
            is_small(small)
            is_static(large[0])
            if i < 8:
                is_new(large[0])
        self.assert_not_advised("declare input")

    def test_sizes_that_vary_are_to_have_buckets(self):
        self.call(self.compile(), 2, 2, 3, 3, 4, 4, 5, 5)
        self.assert_advised("'f': pass 'x' as it was recorded, or declare the axis that varies", "3 recordings took ")

    def test_sizes_that_fit_their_buckets_are_left_alone(self):
        self.call(self.padded([2, 4, 8, 16]), 4, 4, 3, 4, 7, 8, 8, 4, 8, 3, 4, 8, 16, 15, 16, 2, 2, 2)
        self.assertIn("recorded: another shape or type", self.report())
        self.assert_nothing_advised()

    def test_a_size_above_the_largest_bucket_is_to_get_one(self):
        self.call(self.padded([4, 8]), 8, 8, 7, 9, 12, 8)
        self.assert_advised("'f': add a bucket of 12 to axis 'n', whose largest is 8", "2 of 6 calls ran eagerly: ")

    def test_the_largest_of_many_sizes_is_known_however_rare_it_is(self):
        f = self.padded([4])
        self.call(f, *(size for size in range(5, 85) for _ in range(2)), 200)
        self.assertIn("'f': add a bucket of 200 to axis 'n', whose largest is 4", self.report())

    def test_much_padding_is_to_get_buckets_that_fit(self):
        self.call(self.padded([16]), 1, 1, 2, 2, 1, 1, 1, 16)
        self.assert_advised("'f': give axis 'n' buckets that fit its sizes, such as {1, 2, 16}",
                            "80 % of its padded size is padding: 25 became 128 in 8 calls")

    def test_padding_that_no_buckets_avoid_is_left_alone(self):
        f = self.compile(dynamic={0: {0: "n"}}, axes=[cgtree.Axis("n")], outputs_dynamic=[{0: "n"}])
        self.call(f, 1, 1, 1, 2, 2, 2)
        self.assert_not_advised("give axis")

    def test_calls_at_a_limit_are_to_be_allowed_more(self):
        self.call(self.compile(max_recordings=1), 2, 2, 3, 3, 3)
        self.assert_advised("'f': raise max_recordings of the function",
                            "2 of 5 calls ran eagerly: the function has as many recordings")

    def test_no_advice_about_switches_of_the_caller(self):
        self.call(self.compile(enabled=False), 2, 2, 2)
        self.assert_nothing_advised()

    def test_recordings_that_are_evicted_in_turn_need_a_higher_limit(self):
        self.call(self.compile(max_recordings=1, at_limit="evict"), *[2, 2, 3, 3] * 5)
        self.assert_advised("'f': raise the limit at which its recordings are evicted",
                            "4 of 5 recordings were evicted")  # the next one waits

    def test_a_few_evictions_are_no_matter(self):
        self.call(self.compile(max_recordings=1, at_limit="evict"), 2, 2, 3, 3, 2, 2)
        self.assert_not_advised("evicted")

    def test_costs_are_those_of_the_recordings(self):
        f, g = self.compile(), self.compile("g")
        self.call(f, 2, 2, 2, 2, 2)
        self.call(g, 3, 3)
        for report in self.reports():
            recordings, ms, replays = re.search(r"\n  f +(\d+) +([\d.]+) +[\d.]+ MiB +(\d+)\n", report).groups()
            self.assertEqual((recordings, replays), ("1", "3"))
            self.assertGreaterEqual(float(ms), 0)
            self.assertIn("\n  g  ", report)

    def test_an_event_file_knows_what_an_evicted_recording_was_worth(self):
        self.call(self.compile(max_recordings=1, at_limit="evict"), 2, 2, 2, 2, 2, 3, 3)
        self.assertRegex(self.report_of_file(), "\n  f  +2 .* +3\n")
        self.assertRegex(self.report(), "\n  f  +1 .* +0\n")

    def test_an_event_file_without_replays_says_so(self):
        self.events += "2"
        self.context = self.open(event_file_has_replays=False)
        self.call(self.compile(), 2, 2, 2, 2)
        self.assertIn("0 replayed (not in this file: event_file_has_replays is off)", self.report_of_file())

    def test_times_of_replays_are_shown_where_they_were_taken(self):
        self.call(self.compile(), 3, 3, 3, 3)
        self.assert_not_advised("device us")
        self.events += "2"
        self.context = self.open(time_every_nth_replay=1)
        f = self.compile()
        for _ in range(8):
            self.call(f, 3)
            self.context.synchronize()
        for report in self.reports():
            self.assertRegex(report, r"replays   device us   host us   idle\n  f .* \d+\.\d +\d+\.\d +\d+%\n")

    def test_many_keys_are_no_matter_where_each_is_of_use(self):
        f, x = self.compile(), tensor(floats(2))
        for _ in range(5):
            for n in range(12):
                f(x, key={"n": n})
        self.assert_not_advised("leave out of the key")

    def test_keys_that_are_never_used_again_are_advised_against(self):
        f, x = self.compile(), tensor(floats(2))
        for n in range(12):
            for _ in range(2):
                f(x, key={"n": n})
        self.assert_advised("'f': leave out of the key", "11 recordings took ")

    def test_the_last_events_have_a_report(self):
        self.call(self.compile(), 2, 2, 2)
        report = _report.report_of(self.context.recent_events())
        self.assertIn("context 'decode' on host:0: 2 calls, 0 replayed (not in this file", report)
        self.assertIn("recorded: its first                         1  'f' 1", report)


def synchronises(x):
    cgtree.synchronize()
    return double(x)


class DiagnosisTest(unittest.TestCase):
    """Other reasons to run eagerly are in the report, each with a remedy."""

    def assert_said(self, context, *words, but=()):
        report = cgtree.report(context)
        for word in words:
            self.assertIn(word, report)
        for word in ("footprint", "signature", "::", *but):
            self.assertNotIn(word, report)

    def test_reasons_for_running_eagerly_have_a_remedy(self):
        elsewhere = tensor(floats(2), "host:1")
        for reason, remedy, function, options, inputs in (
                ("capture_failed", "move what synchronises", synchronises, {}, ()),
                ("time_limit", "raise max_recording_time of the context", double, {"max_recording_time": 0}, ()),
                ("graph_bytes_limit", "raise max_graph_bytes of the context", double, {"max_graph_bytes": 1}, ()),
                ("frozen", "unfreeze() it", double, {}, ()),
                ("other_device", "copy the input to the context's device", affine, {}, (elsewhere,))):
            with self.subTest(reason), cgtree.Context("host", **options) as context:
                f = context.compile(function, name="f")
                if reason == "frozen":
                    f.freeze()
                for _ in range(6):
                    f(tensor(floats(2)), *inputs)
                self.assert_said(context, f"ran eagerly: {reason}", f"'f': {remedy}")

    def test_an_address_that_moves_at_each_call(self):
        with cgtree.Context("host") as context:
            f, x = context.compile(affine, name="f", static=["w"], max_recordings=16), tensor(floats(2))
            weights = []
            for _ in range(40):
                context.mark_step()
                weights.append(tensor(floats(2)))
                f(x, weights[-1])
            self.assert_said(context, "2. 'f': keep 'w' at one address", "ran eagerly: backs_off",
                             "recorded: a static input moved", but=["'f': raise"])

    def test_a_static_input_replaced_where_it_must_not_move(self):
        with cgtree.Context("host") as context:
            f = context.compile(affine, name="f", static=["w"], on_static_change="throw")
            x, weights, other = tensor(floats(2)), tensor(floats(2)), tensor(floats(2))
            for _ in range(3):
                f(x, weights)
            with self.assertRaises(cgtree.CaptureError):
                f(x, other)
            self.assert_said(context, "'f': mend what it throws", "1 of 4 calls threw, the last: ")


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

    def test_files_that_cannot_be_read_or_written_are_named(self):
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
        with self.assertRaises(AttributeError):
            cgtree.report(3)


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
