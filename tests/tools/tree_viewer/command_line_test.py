"""The command line of tree_viewer: exit status, messages, and files that it leaves."""

import json
import os
import re
import resource
import sys
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files", "tests/tools/tree_viewer"]

import snapshot as checker  # noqa: E402
from viewed_command import CommandLineTest, snapshot_of  # noqa: E402

# Fields that earlier versions of the library did not write.
LATER = {"advice", "audit", "audit_us", "axes", "changed", "context", "evictions", "footprint", "frozen",
         "kept_recordings", "last_failure", "padded", "reason", "reason_text", "recorded_at_us", "recording_causes",
         "recording_us", "segments", "blocks", "slots", "time_us", "unverified_replays", "verified_replays",
         "verify_every", "warm_up_causes", "why"}


class WritingTest(CommandLineTest):

    def test_relative_paths_are_those_of_the_user_and_nothing_else_is_written(self):
        done = self.view("--snapshot=tree.json", "--html=a.html", "--dot=b.dot")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["a.html", "b.dot", "tree.json"])

    def test_help_says_what_the_exit_status_means(self):
        done = self.view("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Exit status: 0 done, 2", done.stdout)

    def test_without_anything_to_write_it_is_bad_usage(self):
        self.assert_refused("nothing to write", "--snapshot=tree.json")

    def test_unknown_and_empty_arguments_are_bad_usage(self):
        self.assert_refused("--svg", "--snapshot=tree.json", "--html=a.html", "--svg=a.svg")
        self.assert_refused("it names no file", "--snapshot=tree.json", "--html=")

    def test_why_calls_did_not_replay_comes_first_and_functions_without_recordings_at_its_top(self):
        def change(tree):
            tree["functions"] += [
                {"id": 900, "name": "busy", "calls": 9, "warm_ups": 9, "recordings": 0, "replays": 0, "failures": 0,
                 "skips": {}, "why": [{"reason": "shape", "text": "another shape: {1} and {2}", "calls": 9,
                                       "advice": "give axis 0 buckets"}]}]
            tree["functions"][0].update(calls=5000, why=[{"reason": "frozen", "text": "it is frozen", "calls": 4000,
                                                          "advice": "unfreeze() it"}])
        self.write("why.json", self.changed(change))
        done = self.view("--snapshot=why.json", "--html=why.html")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = (self.folder / "why.html").read_text()
        body = page[page.index("<main"):]
        places = [body.index(words) for words in ("Why calls did not replay", "busy", "another shape: {1} and {2}",
                                                  "give axis 0 buckets", "it is frozen", 'id="recordings"')]
        self.assertEqual(places, sorted(places))

    def test_a_folder_as_target_is_refused_and_the_other_file_is_not_written(self):
        (self.folder / "there").mkdir()
        self.assert_refused("cannot write", "--snapshot=tree.json", "--dot=a.dot", "--html=there")
        self.assert_refused("it is a folder", "--snapshot=tree.json", "--html=there")

    def test_a_folder_that_does_not_exist_is_refused(self):
        self.assert_refused("No such file or directory", "--snapshot=tree.json", "--html=no/a.html")

    def test_a_pipe_or_a_device_is_refused(self):
        os.mkfifo(self.folder / "pipe")
        self.assert_refused("not a regular file", "--snapshot=tree.json", "--html=pipe")

    def test_a_full_disk_leaves_the_old_file_as_it_was(self):
        self.write("a.html", "old")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # noqa: E731
        self.assert_refused("cannot write", "--snapshot=tree.json", "--html=a.html",
                            preexec_fn=limit)
        self.assertEqual((self.folder / "a.html").read_text(), "old")

    def test_names_with_halves_of_pairs_are_written(self):
        self.write("tree.json", self.changed(lambda tree: tree["functions"][0].update(name="half \ud800")))
        done = self.view("--snapshot=tree.json", "--html=a.html", "--dot=b.dot")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("half ?", (self.folder / "a.html").read_text(encoding="utf-8"))

    def test_the_snapshot_is_not_overwritten(self):
        self.assert_refused("it is also", "--snapshot=tree.json", "--html=tree.json")
        self.assert_refused("it is also", "--snapshot=tree.json", "--html=a", "--dot=./a")

    def test_a_link_stays_a_link(self):
        self.write("real.html", "old")
        (self.folder / "link.html").symlink_to("real.html")
        self.assertEqual(self.view("--snapshot=tree.json", "--html=link.html").returncode, 0)
        self.assertTrue((self.folder / "link.html").is_symlink())
        self.assertIn("<!doctype html>", (self.folder / "real.html").read_text(encoding="utf-8"))


class BadSnapshotTest(CommandLineTest):

    def test_files_that_cannot_be_read(self):
        self.assert_refused("No such file", "--snapshot=none.json", "--html=a.html")
        self.assert_refused("Is a directory", "--snapshot=.", "--html=a.html")

    def test_text_that_is_not_json_is_named_with_its_place(self):
        self.assert_bad_snapshot('{\n  "schema": oops}', "bad.json:2:13: not JSON")
        self.assert_bad_snapshot("", "bad.json:1:1: not JSON")
        self.assert_bad_snapshot(b"\xff\xfe", "not text in UTF-8")
        self.assert_bad_snapshot("[" * 100_000, "nested too deep")

    def test_other_json_is_no_snapshot(self):
        for text in ("[]", "{}", "3", '{"schema": "other"}'):
            self.assert_bad_snapshot(text, "this is no snapshot")

    def test_another_version_says_which_is_read(self):
        self.assert_bad_snapshot(self.changed(lambda tree: tree.update(version=2)),
                                 "version 2 is there, this reads 1")

    def test_wrong_values_are_named_with_their_place(self):
        node = lambda tree: tree["nodes"][1]  # noqa: E731
        for message, change in [
                ("nodes[1].id: a number that is not negative is expected, -1 is there",
                 lambda tree: node(tree).update(id=-1)),
                ("nodes[1].inputs[0].shape[0]: a number that is not negative is expected, \"x\"",
                 lambda tree: node(tree)["inputs"][0].update(shape=["x"])),
                ("nodes[1].inputs[0].treatment: 'moved' is none of buffer, copied, copied_back, "
                 "managed, no_buffer, rebound, static, value",
                 lambda tree: node(tree)["inputs"][0].update(treatment="moved")),
                ("functions[0].name: a string is expected, null is there",
                 lambda tree: tree["functions"][0].update(name=None)),
                ("pools.eager: an object is expected",
                 lambda tree: tree["pools"].update(eager=True))]:
            with self.subTest(message=message):
                self.assert_bad_snapshot(self.changed(change), message)

    def test_nodes_that_make_no_tree_are_refused(self):
        def parent(node, other):
            return lambda tree: tree["nodes"][node].update(parent=other)
        self.assert_bad_snapshot(self.changed(parent(0, 2)), "has no path to the root")
        self.assert_bad_snapshot(self.changed(parent(0, 1)), "has no path to the root")
        self.assert_bad_snapshot(self.changed(parent(1, 77)), "nodes[1]: there is no node 77")
        self.assert_bad_snapshot(self.changed(lambda tree: tree["nodes"][1].update(id=1)),
                                 "two have the same id")

    def test_every_field_that_is_missing_is_named(self):
        """Leaves out each field of each object once; few fields may be absent."""
        absent = set()
        for path in places(json.loads(self.small)):
            if path[0] in ("schema", "version"):
                continue
            tree = json.loads(self.small)
            owner = tree
            for step in path[:-1]:
                owner = owner[step]
            del owner[path[-1]]
            try:
                checker.check(tree)
                absent.add(path[-1])
            except checker.BadSnapshot as error:
                self.assertIn(f"{path[-1]} is missing", str(error))
        self.assertLessEqual(absent, {"first", "index", "address", "bytes", "live", "holds", "slot", "input",
                                      "name", "capture_failure", "capture_failed", "eager", "output",
                                      "scratch", "kept", "number"} | LATER)


def places(value, path=()):
    """Paths of the fields of one object of each kind: the last item represents a list."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield (*path, name)
            if path[:1] != ("pools",):
                yield from places(item, (*path, name))
    elif isinstance(value, list) and value:
        yield from places(value[-1], (*path, len(value) - 1))


class DotTest(CommandLineTest):

    def dot(self, text):
        self.write("tree.json", text)
        self.assertEqual(self.view("--snapshot=tree.json", "--dot=a.dot").returncode, 0)
        return (self.folder / "a.dot").read_text(encoding="utf-8")

    def test_every_node_and_edge_is_there_with_the_siblings_reason(self):
        tree, text = json.loads(self.small), self.dot(self.small)
        for node in tree["nodes"]:
            self.assertIn(f"  n{node['id']} [label=", text)
            self.assertIn(f"  n{node['parent']} -> n{node['id']}", text)
        self.assertIn('n1 -> n3 [label="static input 1: 0x', text)

    def test_what_followed_but_was_recorded_elsewhere_is_dashed(self):
        def share(tree):
            tree["nodes"][2]["followed_by"] = [4]
        self.assertIn("n3 -> n4 [style=dashed", self.dot(self.changed(share)))

    def test_no_name_breaks_out_of_its_string(self):
        text = self.dot(snapshot_of("hostile"))
        without_strings = re.sub(r'"(\\.|[^"\\])*"', '""', text, flags=re.DOTALL)
        self.assertNotIn('"', without_strings.replace('""', ""))
        self.assertNotIn("script", without_strings)
        self.assertIn(r"back\\slash \\N \"quoted\" &amp;lt;", text)


if __name__ == "__main__":
    unittest.main()
