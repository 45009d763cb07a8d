"""Reports of snapshots, of event files and of watches: their text, its conditions, and refused files."""

import contextlib
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append("python/cgtree")

import _report  # noqa: E402

REPORT = "tools/report/report"
SEED = int(os.environ.get("CGTREE_SEED", random.randrange(2**32)))
NOTHING = "advice: nothing to change was found"
SNAPSHOT = {"schema": "cgtree.snapshot", "version": 1, "context": "decode", "device": "host:0",
            "functions": [{"id": 1, "name": "step", "calls": 12, "recordings": 1, "replays": 10}],
            "nodes": [{"function_id": 1, "replays": 10, "audit": {"foreign": [
                {"what": "parameter 1 of 'axpy' is 0x1000"}]}}]}
EVENTS = [{"event": "open", "context": "decode", "process": 1, "device": "host:0"},
          {"event": "warm_up", "context": "decode", "process": 1, "function": "step"},
          {"event": "open", "context": "prefill", "process": 1, "device": "host:0"}]


def setUpModule():
    print(f"seed {SEED}", file=sys.stderr)


def progress_of(rank, layers):
    """Rank 0 hangs in its last collective, and the others have ended."""
    marks = [{"scope": layer, "kernels": ["collective"], "collective": True,
              "reached": rank > 0 or layer != layers[-1]} for layer in layers]
    replay = {"function": "step", "node": 2, "number": 5, "age_ms": 1500, "begun": True,
              "ended": rank > 0, "marks": marks, "why_unmarked": ""}
    return {"schema": "cgtree.progress", "version": 1, "contexts": [
        {"context": f"c{rank}", "device": "host:0", "rank": rank, "ranks": 2, "unwatched": 0,
         "replays": [replay]}]}


def report_of(value):
    return _report.report_of(json.dumps(value))


def report_of_events(*events):
    return _report.report_of("\n".join(json.dumps({"context": "c", "process": 1, **event}) for event in events))


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
        self.assertLess(result.stdout.index(f"{one}:\ncontext 'a'"), result.stdout.index(f"\n{two}:\ncontext 'b'"))
        result = self.run_tool(one, self.file("neither", "c"))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("c: a report is made of snapshot_json()", result.stderr)

    def test_fields_of_other_types_and_snapshots_that_are_cut_are_refused_and_not_read_as_0(self):
        for field, value in [("functions", "none"), ("generation", "3"), ("live_outputs", -1), ("nodes", 7)]:
            result = self.run_tool(self.file(json.dumps({**SNAPSHOT, field: value})))
            self.assertEqual((result.returncode, result.stdout), (2, ""), field)
            self.assertIn(f'"{field}" is {json.dumps(value)}, and ', result.stderr)
        result = self.run_tool(self.file(json.dumps(SNAPSHOT)[:-20]))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("the text is cut", result.stderr)

    def test_other_files_are_refused_by_name(self):
        for path in [self.file("neither"), self.folder, os.path.join(self.folder, "missing")]:
            result = self.run_tool(path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(path, result.stderr)
        result = self.run_tool()
        self.assertEqual(result.returncode, 2)
        self.assertIn("usage: report FILE", result.stderr)
        self.assertIn("event_file", self.run_tool("--help").stdout)

    def test_files_are_found_from_the_folder_of_the_caller(self):
        self.file(json.dumps(SNAPSHOT), "now.json")
        result = self.run_tool("now.json", env={**os.environ, "BUILD_WORKING_DIRECTORY": self.folder})
        self.assertIn("context 'decode'", result.stdout)

    def test_a_file_that_ends_in_half_of_a_character_loses_one_line(self):
        path = os.path.join(self.folder, "cut")
        with open(path, "wb") as file:
            file.write(json.dumps({**EVENTS[1], "function": "größe"}, ensure_ascii=False).encode())
            file.write(b'\r\n{"a":"\xc3')
        result = self.run_tool(path)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("1 lines are no events", result.stdout)
        self.assertIn("'größe' 1", result.stdout)


class WordsTest(unittest.TestCase):
    """The report uses the words that the library uses for calls, in the log and in metrics."""

    LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')

    def rows(self, path, begin):
        """Returns the texts of each row of a table in C++."""
        source = pathlib.Path(path).read_text(encoding="utf-8")
        table = source[source.index(begin):]
        table = table[table.index("{") + 1:table.index("};")]
        joined = re.sub(r'"\s*\n\s*"', "", table)
        return [self.LITERAL.findall(row) for row in re.split(r"\}\s*,", joined) if '"' in row]

    def test_reasons_are_those_of_the_library(self):
        names = self.rows("cgtree/values/explanation.cc", "kReasonNames[] =")
        rows = self.rows("cgtree/values/explanation.cc", "kReasons[] =")
        self.assertEqual([[name, *row] for name, row in zip(sum(names, []), rows)],
                         [[name, *row] for name, row in _report.SKIP_REASONS.items()])
        self.assertEqual(len(rows), len(_report.SKIP_REASONS))

    def test_the_page_has_each_reason(self):
        table = pathlib.Path("docs/report.md").read_text(encoding="utf-8").split("## Reasons for eager runs")[1]
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE), list(_report.SKIP_REASONS))

    def test_causes_are_those_of_the_library(self):
        self.assertEqual(self.rows("extensions/watch/call_causes.cc", "kCauseTexts[] ="),
                         [list(row) for row in _report.CAUSES.items()])

    def sentences(self, path, *functions):
        """Returns the literal parts of sentences in C++ functions, between the inserted values."""
        source = re.sub(r'"\s*\n\s*"', "", pathlib.Path(path).read_text(encoding="utf-8"))
        for function in functions:
            self.assertIn(function, source)
            body = source[source.index(function):]
            for text in self.LITERAL.findall(body[:body.index("\n}\n")]):
                yield from (piece for piece in re.split(r"\{[^}]*\}|\\n", text) if len(piece) > 6)

    def test_sentences_are_those_of_the_library(self):
        ours = pathlib.Path("python/cgtree/_report.py").read_text(encoding="utf-8")
        ours = re.sub(r'"\s*\n\s*f?"', "", ours)
        pieces = list(self.sentences("cgtree/values/explanation.cc", "std::string advice_on_type(",
                                     "std::string advice_on_change(", "std::string advice(const Mismatch&"))
        pieces += self.sentences("extensions/progress/progress_text.cc", "std::string place_of(",
                                 "std::string kernels_of(", "std::string name_of(", "std::string marks_text(",
                                 "std::string context_text(", "std::string difference_of(", "std::string where_is(",
                                 "std::string ranks_text(")
        self.assertGreater(len(pieces), 40)
        for piece in pieces:
            self.assertIn(piece, ours)

    def test_options_have_the_names_of_python_where_it_is_asked(self):
        for text, spelled in [
                ("raise CompileOptions::max_recordings, or let AtLimit::kEvict drop old ones",
                 'raise max_recordings of the function, or let at_limit="evict" drop old ones'),
                ("choose OnStaticChange::kRecord or kDemote",
                 'choose on_static_change="record" or on_static_change="demote"'),
                ("compile it with CompileOptions::enabled = true", "compile it with enabled = true"),
                ("declare axis 0 in InputOptions::dynamic and OutputOptions::dynamic {{0}}",
                 "declare axis 0 in the option dynamic and the option outputs_dynamic {{0}}"),
                ("or AxisPolicy::kPowersOfTwo of AxisOptions::policy, with the option `keys`",
                 'or policy="powers_of_two" of policy of the axis, with the option keys'),
                ("'kCache' or kCache, my::CompileOptions::x, AtLimits::kEvict",
                 "'kCache' or kCache, my::CompileOptions::x, AtLimits::kEvict")]:
            self.assertEqual(_report.spelled(text), spelled)
            self.assertEqual(_report.spelled(spelled), spelled)
        for reason, texts in _report.SKIP_REASONS.items():
            for text in texts:
                self.assertNotIn("::", _report.spelled(text), reason)


def busy_facts():
    """Facts that a test could not produce in time."""
    facts = _report.Facts("a\nb", "host:0", generations=7)
    for i in range(40):
        skips = dict.fromkeys(_report.SKIP_REASONS, 1 + i)
        facts.functions.append(_report.Function(f"a function with quite a long name, number {i}",
                                                calls=sum(skips.values()), skips=skips))
        facts.recordings.append(_report.Recording(i, us=1000 * i))
    return facts


class ReportTextTest(unittest.TestCase):
    def test_it_fits_on_a_screen_whatever_there_is(self):
        text = _report.report_text(busy_facts())
        lines = text.splitlines()
        self.assertLessEqual(len(lines), _report.MOST_LINES)
        self.assertGreaterEqual(len(lines), _report.MOST_LINES - 4, "is everything there?")
        self.assertLessEqual(max(map(len, lines)), 163)
        self.assertIn("context 'a b' on", text)

    def test_the_costliest_and_the_most_frequent_come_first(self):
        text = _report.report_text(busy_facts())
        self.assertLess(text.index("a function with quite..."), text.index("advice"))
        self.assertIn("1        39.0", text)
        self.assertNotIn("         1.0", text)
        weights = [advice.weight for advice in _report.advise(busy_facts())]
        self.assertEqual(weights, sorted(weights, reverse=True))
        self.assertIn("number 39", _report.advise(busy_facts())[0].text)

    def test_names_are_cut_between_characters(self):
        for length, cut in [(23, "a" * 21 + "..."), (20, "a" * 20 + "g...")]:
            facts = _report.Facts("a" * length + "größe größe", "host:0")
            self.assertIn(f"'{cut}'", _report.report_text(facts))
        self.assertIn("'größe'", _report.report_text(_report.Facts("größe", "host:0")))

    def test_columns_are_straight_whatever_names_have(self):
        facts = _report.Facts(functions=list(map(_report.Function, ("f", "größe", "日本"))),
                              recordings=[_report.Recording(i, us=1000) for i in range(3)])
        rows = [line for line in _report.report_text(facts).splitlines() if "MiB  " in line]
        self.assertEqual([row.index("1") for row in rows], [37, 37, 35])

    def test_the_page_shows_what_a_report_is(self):
        facts = _report.Facts(
            "decode", "cuda:0", live_outputs=7, live_bytes=420_000, pool_bytes=538_000_000, graph_bytes=1_400_000,
            functions=[_report.Function(
                "decode", 1038, 961, 8, 8, skips={"above_largest_bucket": 61},
                causes={"first": 8}, axes=[_report.Axis("batch", 100, 100, [16, 32], {40: 61, 3: 9})]),
                _report.Function("sample", 5, 0, 4, 1, causes={"first": 1, "output_held": 3})],
            recordings=[_report.Recording(0, 310_400, 402 << 20, replays=961)] + [_report.Recording(0)] * 7
            + [_report.Recording(1, 700, 50_000, cause=_report.Change("footprint"))] * 3
            + [_report.Recording(1, 700, 50_000)],
            held={"sample": 4, "decode": 3})
        shown = pathlib.Path("docs/report.md").read_text(encoding="utf-8").split("```")[1].lstrip("\n")
        self.assertEqual(_report.report_text(facts), shown)


class AdviceTest(unittest.TestCase):
    """Each advice appears where it helps, and only there. tests/python/report_test.py has the advice about contexts."""

    def test_functions_that_are_bound_by_the_host_are_named(self):
        facts = _report.Facts(functions=[_report.Function(name) for name in ("host", "device", "seldom")])
        facts.times = {"host": _report.Times(10, host=300_000, device=200_000),
                       "device": _report.Times(10, host=200_000, device=300_000),
                       "seldom": _report.Times(9, host=270_000, device=180_000)}
        self.assertEqual([(advice.text, advice.numbers) for advice in _report.advise(facts)], [
            ("'host': it is bound by the host: put more work into one call",
             "a replay takes 30.0 us on the host and 20.0 us on the device, in the mean of 10 replays")])

    def test_what_graphs_have_saved_of_the_host_is_said(self):
        names = ("decode", "sample", "slow", "not timed")
        facts = _report.Facts(functions=[_report.Function(name, replays=1000) for name in names],
                              recordings=[_report.Recording(i) for i in range(4)])
        facts.times = {"decode": _report.Times(10, device=900_000, host=80_000),
                       "sample": _report.Times(10, device=900_000, host=100_000),
                       "slow": _report.Times(10, device=900_000, host=500_000)}
        self.assertNotIn("have saved", _report.report_text(facts))  # nothing to compare with
        for name, us in [("decode", 1208), ("sample", 110), ("slow", 40)]:  # the last one has saved nothing
            facts.times[name].eager = 1000 * us
        self.assertIn("graphs have saved 1300.0 ms of the host: 1200.0 ms in 'decode', whose replays take 8.0 us and "
                      "not 1208.0\n", _report.report_text(facts))
        facts.functions[0].replays = 10_000
        self.assertIn("graphs have saved 12 s of the host: 12 s in", _report.report_text(facts))

    def test_an_advice_on_types_names_what_differs(self):
        def advice(recorded, given, name="x"):
            change = _report.Change("signature", 1, name, recorded, given)
            return _report.advice_on(change)

        first = "float32 {4, 2} on cuda:0"
        self.assertEqual(advice(first, "int32 {4, 2} on cuda:0"), "pass 'x' as float32, as it was recorded; calls with "
                         "elements of int32 have recordings of their own")
        self.assertEqual(advice(first, "float32 {4, 2} on cuda:1", ""), "pass input 1 on cuda:0, as it was recorded")
        self.assertIn("with the strides that were recorded", advice(first, "float32 {4, 2} strides {1, 4} on cuda:0"))
        self.assertIn("the axis that varies, axis 1, in", advice(first, "float32 {4, 3} on cuda:0"))
        for several in ("float32 {5, 3} on cuda:0", "float32 {4} on cuda:0", "float32 {} on cuda:0"):
            self.assertIn("the axis that varies in InputOptions", advice(first, several))

    def test_each_kind_of_difference_has_an_advice_and_a_cause(self):
        for kind in _report._CAUSE_OF:
            recordings = [_report.Recording(0, cause=_report.Change(kind, text="both sides"))] * 9
            facts = _report.Facts(functions=[_report.Function("f", recordings=9)], recordings=recordings, generations=1)
            text = _report.report_text(facts)
            self.assertIn("9 recordings took 0.0 ms: both sides", text, kind)
            self.assertIn(f"recorded: {_report.CAUSES[_report._CAUSE_OF[kind]]:<28}      9  'f' 9", text)

    def test_what_the_caller_asked_for_is_told_and_not_advised_on(self):
        skips = dict.fromkeys(("disabled", "no_graph_scope", "nested_call", "foreign_capture"), 9)
        text = _report.report_text(_report.Facts(functions=[_report.Function("f", 36, skips=skips)]))
        self.assertIn("ran eagerly: foreign_capture                9  'f' 9", text)
        self.assertIn(NOTHING, text)

    def test_keys_that_come_again_are_no_matter(self):
        for replays, is_advised in [(0, True), (1, False)]:
            recordings = [_report.Recording(0, replays=replays, cause=_report.Change("key"))] * 12
            facts = _report.Facts(functions=[_report.Function("f", recordings=12)], recordings=recordings)
            self.assertEqual("leave out of the key" in _report.report_text(facts), is_advised)


class FactsTest(unittest.TestCase):
    def test_lines_that_are_no_events_are_counted_and_left_out(self):
        good = '{"event":"warm_up","time_us":1,"context":"a","process":1,"function":"f","us":3}'
        text = f'{good}\n# a comment\n[1]\n{good}\n{{"event":"warm_up","time'
        facts = _report.read_facts(text)
        self.assertEqual([(one.left_out, one.functions[0].warm_ups) for one in facts], [(3, 2)])
        self.assertIn("3 lines are no events", _report.report_of(text))
        self.assertEqual(_report.read_facts(good + "\n")[0].left_out, 0)
        for no_json in ('{"event":"skip","context":"a","us":NaN}', '{"event":"skip","context":"\\ud800"}',
                        '{"event":"skip","context":"a","us":1e999}', "[" * 100_000):
            self.assertEqual(_report.read_facts(f"{good}\n{no_json}\n")[0].left_out, 1)

    def test_each_context_of_a_file_has_a_report(self):
        text = "\n".join(json.dumps({"event": "skip", "context": name, "process": 1, "function": "f"})
                         for name in ("a", "b", "a"))
        self.assertEqual(len(_report.read_facts(text)), 2)
        self.assertIn("\n\ncontext 'b'", _report.report_of(text))

    def test_another_text_is_refused(self):
        for text in ("", "\n\n", "hello", "[]", "3", '{"schema":"other"}', "\ufffd\ufffd"):
            with self.assertRaisesRegex(_report.NoReport, "a report is made of"):
                _report.report_of(text)
        with self.assertRaisesRegex(_report.NoReport, "version 2 is there"):
            report_of({"schema": "cgtree.snapshot", "version": 2})

    def test_times_are_read_from_events(self):
        text = "\n".join(json.dumps({"context": "c", "process": 1, **event}) for event in [
            {"event": "open", "device": "host:0"},
            {"event": "device_time", "function": "f", "us": 2.5, "host_us": 4, "found_idle": True},
            {"event": "warm_up", "function": "f", "us": 70},
            {"event": "skip", "function": "f", "reason": "disabled", "us": 30},
            {"event": "skip", "function": "f", "reason": "disabled", "us": 50},
            {"event": "warm_up", "function": "not timed", "us": 30},
            {"event": "device_time", "function": "f", "us": 1.5, "host_us": 6, "found_idle": False}])
        (facts,) = _report.read_facts(text)
        self.assertEqual(facts.times, {"f": _report.Times(2, 1, device=4000, host=10_000, eager=30_000)})

    def test_an_event_file_knows_what_an_evicted_recording_was_worth(self):
        record = {"event": "record", "function": "f", "us": 1000}
        text = report_of_events({"event": "open", "has_replays": True}, {**record, "node": 1},
                                *[{"event": "replay", "function": "f", "node": 1}] * 3,
                                {"event": "evict", "function": "f", "node": 1, "replays": 3}, {**record, "node": 2})
        self.assertRegex(text, "\n  f  +2 .* +3\n")
        self.assertNotIn("not in this file", text)
        self.assertIn("0 replayed (not in this file", report_of_events({"event": "open"}))

    def test_foreign_memory_is_advised_on(self):
        text = report_of_events({"event": "record", "function": "f", "node": 2},
                                *[{"event": "foreign_pointer", "function": "f", "node": 2, "what": what}
                                  for what in ("parameter 1 of 'axpy' is 0x1000", "another")])
        self.assertIn("1. 'f': pass or bind, or declare(), the memory that its kernels use and that nothing keeps; "
                      "when it goes, replays are wrong\n"
                      "   2 pointers in 1 recording: parameter 1 of 'axpy' is 0x1000\n", text)

    def test_what_an_earlier_library_has_written_tells_causes_of_recordings_that_are_kept(self):
        text = report_of({
            **SNAPSHOT, "functions": [{"id": 1, "name": "f", "calls": 3, "recordings": 3}],
            "nodes": [{"function_id": 1}, {"function_id": 1, "cause": {"changes": [{"kind": "static_address"}]}}]})
        for row in ("recorded: its first                         1  'f' 1",
                    "recorded: a static input moved              1  'f' 1",
                    "recorded                                    1  'f' 1"):
            self.assertIn(row, text)

    def test_a_field_of_another_type_is_named(self):
        for value, field, snapshot in [
                ("3", "disabled", {"functions": [{"skips": {"disabled": "3"}}]}),
                (True, "calls", {"functions": [{"calls": True}]}),
                (2.5, "generation", {"generation": 2.5}),
                ([-3], "buckets", {"functions": [{"axes": [{"buckets": [-3]}]}]}),
                ([[3]], "sizes", {"functions": [{"axes": [{"sizes": [[3]]}]}]}),
                ([7], "functions", {"functions": [7]}),
                (None, "audit", {"functions": [{"id": 1}], "nodes": [{"function_id": 1, "audit": None}]}),
                ({"a": 1}, "context", {"context": {"a": 1}})]:
            with self.assertRaises(_report.NoReport) as raised:
                report_of({**SNAPSHOT, **snapshot})
            said = json.dumps(value, separators=(",", ":"))
            self.assertIn(f'a report cannot be made of this: "{field}" is {said}, and ', str(raised.exception))
        for field, event in [("event", {"event": 3}), ("context", {"event": "skip", "context": 3}),
                             ("process", {"event": "skip", "process": "1"}),
                             ("has_replays", {"event": "open", "has_replays": 1}),
                             ("us", {"event": "device_time", "function": "f", "us": "3"}),
                             ("output", {"event": "counters", "pool_bytes": {"output": -3}}),
                             ("n", {"event": "skip", "function": "f", "axes": {"n": 3}}),
                             ("actual", {"event": "skip", "function": "f", "axes": {"n": {"actual": []}}})]:
            with self.assertRaisesRegex(_report.NoReport, f'"{field}" is '):
                report_of_events(event)

    def test_fields_of_other_types_are_no_crash(self):
        """Any file has a report, or raises NoReport."""
        drawn = random.Random(SEED)
        values = [None, True, -3, 3.5, "text", [1, "x"], {"a": 1}, 1 << 63]
        event = {"event": "record", "context": "a", "process": 1, "function": "f", "node": 3, "us": 5,
                 "cause": {"nearest": 1, "changes": [{"kind": "key"}]}, "axes": {"n": {"actual": 3, "padded": 4}},
                 "pool_bytes": {"output": 1}, "reason": "disabled"}
        snapshot = {"schema": "cgtree.snapshot", "version": 1, "context": "c", "functions": [
            {"id": 0, "name": "f", "skips": {"disabled": 2}, "axes": [
                {"axis": "n", "actual": 1, "padded": 9, "buckets": [4], "sizes": [[1, 2]]}]}],
            "nodes": [{"function_id": 0, "inputs": [{"treatment": "copied", "bytes": 3}],
                       "outputs": [{"holds": {"function": "f"}, "slot": 1}]}]}

        def places(value):
            """Yields (container, key) of each value inside."""
            keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            for key in keys:
                yield value, key
                yield from places(value[key])

        for number in range(3000):
            text = json.loads(json.dumps(event if number % 2 == 0 else snapshot))
            container, key = drawn.choice(list(places(text)))
            container[key] = drawn.choice(values)
            with contextlib.suppress(_report.NoReport):
                self.assertTrue(report_of(text))


class ProgressTest(unittest.TestCase):
    """tests/python/progress_test.py compares the text with that of the library."""

    def test_files_come_together_in_the_order_of_ranks(self):
        texts = [json.dumps(progress_of(rank, ["a", "b"])) for rank in (1, 0)]
        contexts = sum(map(_report.read_progress, texts), [])
        text = _report.progress_text(contexts)
        self.assertLess(text.index("rank 0 of 2"), text.index("rank 1 of 2"))
        self.assertIn("rank 0 waits in collective 2, 'b': rank 1 has ended replay 5 of 'step' (recording 2)\n", text)

    def test_another_text_is_refused_with_the_field(self):
        for text in ("", "{", "[]", "{}", '{"schema": "cgtree.progress", "version": 2}',
                     '{"schema": 3, "version": 1, "contexts": []}'):
            with self.assertRaisesRegex(_report.NoReport, "or of another version: expected progress_json"):
                _report.read_progress(text)
        with self.assertRaisesRegex(_report.NoReport, '"contexts" is missing'):
            _report.read_progress('{"schema": "cgtree.progress", "version": 1}')
        whole = progress_of(0, ["a"])
        (context,) = whole["contexts"]
        (replay,) = context["replays"]
        (mark,) = replay["marks"]
        for of in (context, replay, mark):
            for field, value in list(of.items()):
                if field == "unwatched":
                    continue
                del of[field]
                with self.assertRaisesRegex(_report.NoReport, f'no report of a ProgressWatch: "{field}" is missing'):
                    _report.read_progress(json.dumps(whole))
                of[field] = None
                with self.assertRaisesRegex(_report.NoReport, f'no report of a ProgressWatch: "{field}" is null, and '):
                    _report.read_progress(json.dumps(whole))
                of[field] = value
        self.assertEqual(len(_report.read_progress(json.dumps(whole))), 1)

    def test_it_is_told_from_other_texts(self):
        self.assertTrue(_report.is_progress(json.dumps(progress_of(0, ["a"]))))
        self.assertFalse(_report.is_progress(json.dumps({**SNAPSHOT, "context": "cgtree.progress" * 9})))


class CommandLineTest(unittest.TestCase):
    def test_options_have_the_names_of_the_program(self):
        text = json.dumps({**SNAPSHOT, "functions": [
            {"id": 1, "name": "f", "calls": 9, "skips": {"function_limit": 9}}]})
        for spell, said in [({}, "raise CompileOptions::max_recordings"),
                            ({"spell": _report.spelled}, "raise max_recordings of the function")]:
            with tempfile.NamedTemporaryFile("w+") as file:
                file.write(text)
                file.flush()
                out = io.TextIOWrapper(io.BytesIO())
                with contextlib.redirect_stdout(out):
                    self.assertEqual(_report.print_report([file.name], "program", **spell), 0)
                self.assertIn(said, out.buffer.getvalue().decode())


if __name__ == "__main__":
    unittest.main()
