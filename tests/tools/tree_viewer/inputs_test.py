"""Event files and earlier snapshots on tree_viewer's command line: read, refused, and never written."""

import json
import sys
import unittest

sys.path.insert(0, "tests/tools/tree_viewer")

from viewed_command import CommandLineTest  # noqa: E402

SKIP = ('{"event": "skip", "time_us": 5, "context": "a", "process": 7, "function": "f", "reason": "disabled"}'
        "\n")


class EventFilesTest(CommandLineTest):

    def page(self, *arguments):
        done = self.view("--snapshot=tree.json", "--html=a.html", *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return (self.folder / "a.html").read_text(encoding="utf-8")

    def test_files_of_one_time_after_another_are_one_timeline(self):
        self.write("a.jsonl", SKIP)
        self.write("b.jsonl", (SKIP + SKIP.replace("skip", "evict")).replace(": 5,", ": 6,"))
        for first, second in (("a", "b"), ("b", "a")):
            page = self.page(f"--events={first}.jsonl", f"--events={second}.jsonl")
            self.assertIn("b.jsonl (2 events)", page)
            self.assertIn("Timeline of 3 events of 1 function", page)

    def test_files_of_the_same_time_have_rows_of_their_own(self):
        self.write("rank0.jsonl", SKIP)
        self.write("rank1.jsonl", SKIP)
        page = self.page("--events=rank0.jsonl", "--events=rank1.jsonl")
        self.assertIn("Timeline of 2 events of 2 functions", page)
        self.assertIn("rank1.jsonl: f", page)

    def test_a_file_that_was_cut_is_shown_up_to_the_cut_and_the_page_says_so(self):
        self.write("a.jsonl", SKIP + SKIP[:30])
        page = self.page("--events=a.jsonl")
        self.assertIn("a.jsonl ends in the middle of line 2, which is left out.", page)
        self.assertIn("a.jsonl (1 event)", page)

    def test_a_file_with_no_event_yet_is_said_and_the_rest_is_shown(self):
        self.write("a.jsonl", "")
        self.assertIn("a.jsonl has no events.", self.page("--events=a.jsonl"))

    def test_files_that_are_no_event_files_are_refused(self):
        self.write("b.jsonl", "hello\n")
        for path, why in (("none.jsonl", "No such file"), (".", "Is a directory"),
                          ("b.jsonl", "this is no event file"), ("tree.json", "this is no event file")):
            self.assert_refused(why, "--snapshot=tree.json", "--html=a.html", f"--events={path}")

    def test_files_that_are_read_are_not_overwritten(self):
        self.write("a.jsonl", SKIP)
        self.write("b.json", self.small)
        for target in ("a.jsonl", "b.json", "tree.json"):
            self.assert_refused("it is also", "--snapshot=tree.json", "--events=a.jsonl", "--compare=b.json",
                                f"--html={target}")

    def test_options_of_the_page_need_a_page(self):
        self.write("a.jsonl", SKIP)
        for option in ("--events=a.jsonl", "--compare=tree.json"):
            self.assert_refused("give --html=FILE", "--snapshot=tree.json", "--dot=a.dot", option)


class CompareTest(CommandLineTest):

    def test_a_snapshot_has_not_changed_since_itself(self):
        done = self.view("--snapshot=tree.json", "--html=a.html", "--compare=tree.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = (self.folder / "a.html").read_text(encoding="utf-8")
        for nothing in ("Functions that changed", "Recordings that came", "Recordings that went"):
            self.assertIn(f"{nothing}: none.", page)

    def test_the_earlier_snapshot_is_checked_as_the_other_is(self):
        self.write("b.json", json.dumps({**json.loads(self.small), "version": 2}))
        self.assert_refused("b.json: version 2 is there", "--snapshot=tree.json", "--html=a.html",
                            "--compare=b.json")
        self.assert_refused("No such file", "--snapshot=tree.json", "--html=a.html", "--compare=none.json")

    def test_snapshots_of_other_layouts_can_be_compared(self):
        """Each has functions, regions and nodes that the other lacks."""
        self.write("b.json", self.changed(lambda tree: tree.update(
            functions=[], nodes=[], current=0, slots=[], pools={})))
        for first, second in (("tree", "b"), ("b", "tree")):
            done = self.view(f"--snapshot={first}.json", "--html=a.html", f"--compare={second}.json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
