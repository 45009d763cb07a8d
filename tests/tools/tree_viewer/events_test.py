"""Event files that are cut or damaged; without a browser."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files", "tests/tools/tree_viewer"]

import events  # noqa: E402
import units  # noqa: E402


EVENT = {"event": "skip", "time_us": 1, "context": "a", "process": 7}
GOOD = json.dumps(EVENT)


class EventsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "events.jsonl")

    def read(self, text):
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return events.read(self.path)

    def test_wherever_a_file_is_cut_all_whole_lines_are_read_and_the_cut_is_said(self):
        lines = [json.dumps(EVENT | {"time_us": i, "function": "caf\xe9"}) + "\n"
                 for i in range(5)]
        whole = "".join(lines).encode()
        for cut in range(len(lines[0].encode()), len(whole) + 1):
            found = self.read(whole[:cut])
            left = whole[:cut].count(b"\n")
            rest = whole[:cut].split(b"\n")[-1]
            is_line = rest.endswith(b"}")
            self.assertEqual(len(found.events), left + is_line)
            self.assertEqual(len(found.problems), int(rest != b"" and not is_line))
            if found.problems:
                self.assertIn(f"ends in the middle of line {left + 1}", found.problems[0])

    def test_lines_that_are_no_events_are_counted_and_named(self):
        wrong = [{"event": 3}, {"event": None}, {"context": None}, {"process": "7"}, {"time_us": None},
                 {"time_us": -1}, {"time_us": True}, {"us": "x"}, {"function": 3}]
        bad = ["3", "[]", "null", "{", *(json.dumps(EVENT | other) for other in wrong),
               GOOD.replace("1", "1e400"), GOOD.replace("1", "NaN"), "[" * 100_000]
        found = self.read("\n".join([GOOD, *bad, GOOD]) + "\n")
        self.assertEqual(len(found.events), 2)
        self.assertIn(f"{len(bad)} of {len(bad) + 2} lines are no events and are left out: line 2, 3, 4, 5, 6 …",
                      found.problems[0])

    def test_a_time_may_have_a_fraction(self):
        found = self.read(json.dumps(EVENT | {"time_us": 2_001_500.5})).events[0]["time_us"]
        self.assertEqual(units.moment(found), "1970-01-01 00:00:02.001 UTC")

    def test_empty_lines_are_no_damage(self):
        found = self.read(f"\n{GOOD}\n \n{GOOD}\n")
        self.assertEqual((len(found.events), found.problems), (2, []))

    def test_a_file_without_events_is_no_event_file_unless_it_is_empty(self):
        for text in ("hello\n", "{\n", b"\xff\xfe\n", "half"):
            with self.assertRaises(events.BadEvents):
                self.read(text)
        self.assertEqual(self.read("").events, [])


if __name__ == "__main__":
    unittest.main()
