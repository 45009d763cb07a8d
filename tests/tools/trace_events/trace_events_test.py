"""trace_events: the trace agrees with the counters of the contexts; bad input is reported."""

import collections
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/tools/trace_events")

import trace_format  # noqa: E402

PROGRAM = pathlib.Path("tools/trace_events/trace_events").resolve()
EVENTS = pathlib.Path("tests/tools/trace_events/events").resolve()


class TraceEventsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        seed = random.SystemRandom().randrange(1 << 30)
        print(f"seed {seed}")
        made = tempfile.TemporaryDirectory()
        cls.addClassCleanup(made.cleanup)
        done = subprocess.run([EVENTS, made.name, str(seed)], stdout=subprocess.PIPE, check=True)
        cls.counted = [json.loads(line) for line in done.stdout.splitlines()]
        cls.files = {path.name: path.read_bytes() for path in pathlib.Path(made.name).iterdir()}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, data in self.files.items():
            (self.folder / name).write_bytes(data)

    def events(self, name):
        return [json.loads(line) for line in self.files[name].splitlines()]

    def write(self, name, events):
        (self.folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))

    def write_second_rank(self, ahead=0):
        """Replaces rank 1, which is a thread of the same process, by another process with the events of rank 0."""
        events = self.events("rank0.jsonl")
        for event in events:
            event["process"] += 1
            event["time_us"] += ahead
            if "rank" in event:
                event["rank"] = 1
        self.write("rank1.jsonl", events)

    def run_tool(self, *arguments):
        environment = dict(os.environ, BUILD_WORKING_DIRECTORY=str(self.folder))
        done = subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True,
                              encoding="utf-8", check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def convert(self, *files, status=0, says=()):
        done = self.run_tool(*files, "--out=trace.json")
        self.assertEqual(done.returncode, status, done.stderr)
        for text in says:
            self.assertIn(text, done.stderr)
        if not says:
            self.assertEqual(done.stderr, "")
        return trace_format.Trace((self.folder / "trace.json").read_text(encoding="utf-8"))


class ContentsTest(TraceEventsTest):

    def test_every_call_is_a_slice_of_its_context(self):
        trace = self.convert("calls.jsonl")
        self.assertEqual(len(trace.processes), 1)
        self.assertEqual(set(trace.threads.values()),
                         {"first (host:0)", "second \"quoted\" \ufffd (host:0)"})
        found = collections.Counter(
            (event["cat"], trace.threads[event["pid"], event["tid"]].split()[0])
            for event in trace.events if "cat" in event)
        for counted in self.counted:
            for kind in ("warm_up", "record", "replay", "skip", "evict", "failure"):
                self.assertEqual(found[kind, counted["context"]], counted[kind], (kind, counted))

    def test_a_slice_is_named_for_what_it_did_and_has_the_fields_of_its_event(self):
        trace = self.convert("calls.jsonl")
        slices = {event["name"]: event for event in trace.of("X")}
        for name in ("warm_up padded", "record padded", "replay padded", "record evicts",
                     "skip padded: above_largest_bucket"):
            self.assertIn(name, slices)
        record = next(event for event in self.events("calls.jsonl") if event["event"] == "record")
        shown = next(event for event in trace.of("X") if event["cat"] == "record")
        for key in ("node", "parent", "inputs", "graph_nodes", "bytes", "cause"):
            self.assertEqual(shown["args"][key], record[key])
        self.assertAlmostEqual(shown["ts"] + shown["dur"] + trace.origin, record["time_us"],
                               places=3)
        self.assertAlmostEqual(shown["dur"], record["us"], delta=2)

    def test_counters_end_where_the_context_did(self):
        trace = self.convert("calls.jsonl")
        for counted, name in zip(self.counted, ("first", "second \"quoted\" \ufffd")):
            last = lambda what: trace.counter(f"{name}: {what}")[-1]  # noqa: E731
            self.assertEqual(last("recordings"), {"recordings": counted["recordings"]})
            self.assertEqual(sum(last("pool bytes").values()), counted["pool_bytes"])
            self.assertEqual(set(last("pool bytes")), {"output", "scratch", "eager"})
            self.assertGreaterEqual(last("live outputs")["outputs"], counted["live_outputs"])

    def test_the_padded_share_is_that_of_each_call(self):
        trace = self.convert("calls.jsonl")
        expected = [100 * (1 - event["axes"]["n"]["actual"] / event["axes"]["n"]["padded"])
                    for event in self.events("calls.jsonl") if event.get("axes")]
        found = [values["percent"] for values in trace.counter("first: padding of padded")]
        self.assertEqual(len(found), len(expected))
        self.assertGreater(max(found), 0)
        for one, other in zip(found, expected):
            self.assertAlmostEqual(one, other, places=2)

    def test_replays_that_were_timed_are_slices_of_a_track_of_the_device(self):
        at = 1_700_000_000_000_000
        common = {"context": "c", "process": 1}
        timed = {"event": "device_time", **common, "function": "f", "node": 3, "host_us": 1.5,
                 "found_idle": True}
        self.write("timed.jsonl", [
            {"event": "open", "time_us": at, **common, "device": "cuda:0", "has_replays": True},
            {"event": "replay", "time_us": at + 100, **common, "function": "f", "us": 10},
            {**timed, "time_us": at + 900, "began_us": at + 95, "us": 40.25},
            {**timed, "time_us": at + 900, "began_us": at + 130, "us": 20}])  # they do not overlap
        trace = self.convert("timed.jsonl")
        self.assertEqual(sorted(trace.threads.values()), ["c (cuda:0)", "c (cuda:0): on the device"])
        slices = [event for event in trace.of("X") if event["cat"] == "device_time"]
        self.assertEqual([(one["name"], one["ts"], one["dur"]) for one in slices],
                         [("f", 95, 40.25), ("f", 135.25, 14.75)])
        self.assertEqual(slices[0]["args"]["node"], 3)
        self.assertEqual({one["tid"] for one in trace.of("X") if one["cat"] == "replay"}
                         & {one["tid"] for one in slices}, set())

    def test_ranks_are_processes_in_their_order_whatever_the_order_of_the_files(self):
        self.write_second_rank()
        trace = self.convert("rank1.jsonl", "rank0.jsonl")
        self.assertEqual([name.split(",")[0] for _, name in sorted(trace.processes.items())],
                         ["rank 0 of 2", "rank 1 of 2"])

    def test_files_of_one_process_are_one_process(self):
        trace = self.convert("calls.jsonl", "rank0.jsonl")
        self.assertEqual(len(trace.processes), 1)
        self.assertEqual(len(trace.threads), 3)

    def test_ranks_of_one_process_are_contexts_of_it(self):
        trace = self.convert("rank1.jsonl", "rank0.jsonl")
        self.assertEqual(len(trace.processes), 1)
        self.assertEqual([name for _, name in sorted(trace.threads.items())],
                         ["decode of rank 0 (host:0, rank 0 of 2)",
                          "decode of rank 1 (host:0, rank 1 of 2)"])


class ClockTest(TraceEventsTest):

    def times(self, trace, pid):
        return [event["ts"] + event["dur"] for event in trace.of("X")
                if event["pid"] == pid and event["cat"] in ("warm_up", "record")]

    def test_a_clock_that_is_ahead_is_said_and_taken_off_on_request(self):
        for offset, said in [(250_000, "250.0 ms ahead"), (-3_000_000, "3000.0 ms behind")]:
            with self.subTest(offset=offset):
                self.write_second_rank(ahead=offset)
                files = ("rank0.jsonl", "rank1.jsonl")
                done = self.run_tool(*files, "--out=trace.json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, rf"the clock of rank 1 of 2, .* is {said} "
                                              r"\(median of 6 calls")
                done = self.run_tool(*files, "--out=trace.json", "--align")
                self.assertEqual(done.returncode, 0, done.stderr)
                trace = trace_format.Trace((self.folder / "trace.json").read_text())
                self.assertEqual(self.times(trace, 1), self.times(trace, 2))

    def test_a_clock_that_is_less_than_a_millisecond_ahead_is_not_said(self):
        self.write_second_rank(ahead=900)
        self.convert("rank0.jsonl", "rank1.jsonl")

    def test_a_clock_that_was_set_back_is_said_and_calls_still_follow_one_another(self):
        events = self.events("calls.jsonl")
        for event in events[len(events) // 2:]:
            event["time_us"] -= 5_000_000
        self.write("calls.jsonl", events)
        trace = self.convert("calls.jsonl", status=1, says=["the clock was set back by "])
        self.assertEqual(len(trace.of("X")),
                         sum(event["event"] in ("warm_up", "record", "replay", "skip")
                             for event in events))


class BadInputTest(TraceEventsTest):

    def test_a_file_that_ends_in_the_middle_loses_one_line(self):
        data = self.files["calls.jsonl"]
        whole = len(self.convert("calls.jsonl").events)
        (self.folder / "calls.jsonl").write_bytes(data[:-7])
        lines = data.count(b"\n")
        trace = self.convert("calls.jsonl", status=1, says=[f"ends in the middle of line {lines}"])
        self.assertLess(len(trace.events), whole)
        self.assertGreater(len(trace.events), whole - 10)

    def test_wherever_it_is_cut_the_rest_is_shown(self):
        data = self.files["rank0.jsonl"]
        first = data.index(b"\n") + 1
        second = data.index(b"\n", first)
        # Just before and just after the end of a line every event is complete.
        for cut in [second, second + 1, *random.sample(range(first, len(data) - 1), 8)]:
            with self.subTest(cut=cut):
                (self.folder / "rank0.jsonl").write_bytes(data[:cut])
                whole = b"\n" in data[cut - 1:cut + 1]
                self.convert("rank0.jsonl", status=0 if whole else 1,
                             says=() if whole else ["ends in the middle of line"])

    def test_foreign_lines_are_counted_and_left_out(self):
        whole = self.convert("calls.jsonl").events
        first, *rest = self.files["calls.jsonl"].splitlines(keepends=True)
        foreign = [b"a log line\n", b"[1, 2]\n", b"{}\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n",
                   b'{"event": "skip", "time_us": NaN, "context": "a", "process": 1}\n',
                   b'{"event": "skip", "time_us": 1e999, "context": "a", "process": 1}\n',
                   b'{"event": "skip", "time_us": 4, "context": "a", "process": 1, "x": NaN}\n',
                   b'{"event": "skip", "time_us": 4, "context": "a", "process": 1, "x": 1e999}\n',
                   b'{"event": "skip", "time_us": -4, "context": "a", "process": 1}\n',
                   b'{"event": "skip", "time_us": 4, "context": "a", "process": 1, "us": "x"}\n',
                   b'{"event": "skip", "time_us": 1' + b"0" * 400 + b', "context": "a", "process": 1}\n']
        (self.folder / "calls.jsonl").write_bytes(first + b"".join(foreign) + b"\n" + b"".join(rest))
        trace = self.convert("calls.jsonl", status=1,
                             says=[f"{len(foreign)} of {len(foreign) + len(rest) + 2} lines are no events",
                                   "line 2, 3, 4, 5, 6"])
        self.assertEqual(trace.events, whole)

    def test_fields_of_other_types_do_not_break_the_trace(self):
        events = self.events("calls.jsonl")
        for event in events:
            if event["event"] == "replay":
                event.update(live_outputs="many", axes=[1])
            if event["event"] == "record":
                event.update(axes={"n": {"actual": "4", "padded": None}})
            if event["event"] == "counters":
                event.update(pool_bytes={"output": "x"}, recordings=None, graph_bytes=True)
        self.write("calls.jsonl", events)
        self.convert("calls.jsonl")

    def test_a_call_that_claims_to_have_begun_before_the_last_one_ended_does_not_overlap(self):
        events = self.events("calls.jsonl")
        for event in events:
            if event["event"] == "replay":
                event["us"] += 2000.5
        self.write("calls.jsonl", events)
        self.assertTrue(self.convert("calls.jsonl").of("X"))

    def test_an_older_file_without_durations_has_calls_of_no_length(self):
        events = self.events("rank0.jsonl")
        for event in events:
            event.pop("us", None)
        self.write("rank0.jsonl", events)
        self.assertEqual({event["dur"] for event in self.convert("rank0.jsonl").of("X")}, {0})

    def test_two_files_of_one_rank_are_both_shown_and_said(self):
        events = self.events("rank0.jsonl")
        for event in events:
            event["process"] += 7
        self.write("again.jsonl", events)
        trace = self.convert("rank0.jsonl", "again.jsonl", status=1,
                             says=["rank 0 of 2", "at the same time; both are shown"])
        self.assertEqual(len(trace.processes), 2)

    def test_a_rank_that_was_started_again_is_no_mistake(self):
        events = self.events("rank0.jsonl")
        span = events[-1]["time_us"] - events[0]["time_us"] + 1
        for event in events:
            event["process"] += 7
            event["time_us"] += span
        (self.folder / "rank0.jsonl").write_bytes(
            self.files["rank0.jsonl"] + "".join(json.dumps(one) + "\n" for one in events).encode())
        done = self.run_tool("rank0.jsonl", "--out=trace.json", "--align")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_same_events_twice_are_shown_once(self):
        whole = self.convert("rank0.jsonl").events
        (self.folder / "copy.jsonl").write_bytes(self.files["rank0.jsonl"])
        trace = self.convert("rank0.jsonl", "copy.jsonl", status=1, says=["left out here"])
        self.assertEqual(trace.events, whole)

    def test_without_a_file_or_an_event_nothing_is_written(self):
        (self.folder / "empty.jsonl").write_bytes(b"")
        for name, says in [("none.jsonl", "No such file"), ("empty.jsonl", "has no events"),
                           (".", "Is a directory")]:
            with self.subTest(name=name):
                done = self.run_tool(name, "--out=trace.json")
                self.assertEqual(done.returncode, 2)
                self.assertIn(says, done.stderr)
                self.assertFalse((self.folder / "trace.json").exists())

    def test_one_file_that_is_missing_does_not_hide_the_others(self):
        trace = self.convert("none.jsonl", "rank0.jsonl", status=1, says=["No such file"])
        self.assertTrue(trace.of("X"))

    def test_files_that_cannot_be_written_are_named(self):
        before = sorted(self.folder.iterdir())
        for out, says in [("/dev/full", "not a regular file"), ("no/a.json", "No such file"),
                          (".", "it is a folder"), ("calls.jsonl", "it is also")]:
            with self.subTest(out=out):
                done = self.run_tool("calls.jsonl", f"--out={out}")
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"cannot write '{self.folder / out}'", done.stderr)
                self.assertIn(says, done.stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertEqual((self.folder / "calls.jsonl").read_bytes(), self.files["calls.jsonl"])

    def test_bad_usage_and_help(self):
        self.assertEqual(self.run_tool("calls.jsonl").returncode, 2)
        self.assertEqual(self.run_tool("--out=a.json").returncode, 2)
        self.assertIn("Exit status: 0 done, 1", self.run_tool("--help").stdout)


class ReaderTest(unittest.TestCase):
    """The reader of traces refuses violations of the format."""

    GOOD = [{"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "args": {"name": "p"}},
            {"ph": "M", "name": "thread_name", "ts": 0, "pid": 1, "tid": 2, "args": {"name": "t"}},
            {"ph": "X", "name": "a", "ts": 1, "dur": 4, "pid": 1, "tid": 2},
            {"ph": "X", "name": "b", "ts": 2, "dur": 3, "pid": 1, "tid": 2},
            {"ph": "C", "name": "c", "ts": 5, "pid": 1, "args": {"n": 1}}]

    def read(self, events):
        return trace_format.Trace(json.dumps({"otherData": {"origin_us": 0}, "traceEvents": events}))

    def test_it_tells_good_from_bad(self):
        self.read(self.GOOD)
        for index, change in [(3, {"dur": 4}), (3, {"tid": 3}), (1, {"tid": 1}), (2, {"dur": -1}), (2, {"ph": "Q"}),
                              (4, {"ts": 1}), (4, {"args": {"n": "1"}}), (4, {"pid": 2}),
                              (4, {"args": {"n": float("nan")}})]:
            events = copy.deepcopy(self.GOOD)
            events[index].update(change)
            with self.subTest(index=index, change=change), self.assertRaises(trace_format.BadTrace):
                self.read(events)


if __name__ == "__main__":
    unittest.main()
