"""scope_times: adds up the times of a profile by the scopes of a snapshot."""

import gzip
import json
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import xml.etree.ElementTree

PROGRAM = pathlib.Path("tools/scope_times/scope_times").resolve()
sys.path.append(str(PROGRAM.parent))

import cupti_trace  # noqa: E402


def snapshot(nodes):
    """Returns a snapshot with one recording; nodes: [(path, number, number of the clone)]."""
    paths = list(dict.fromkeys(["", *(path for path, _, _ in nodes)]))
    return {"schema": "cgtree.snapshot", "version": 1, "nodes": [{"scopes": {
        "paths": paths, "kernels": [""], "node_types": ["kernel"] * len(nodes),
        "node_kernels": [0] * len(nodes), "node_paths": [paths.index(path) for path, _, _ in nodes],
        "node_ids": [number for _, number, _ in nodes],
        "exec_node_ids": [clone for _, _, clone in nodes]}}]}


class ScopeTimesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.seed = random.SystemRandom().randrange(1 << 30)
        self.random = random.Random(self.seed)
        print(f"seed {self.seed}")

    def run_tool(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, encoding="utf-8", check=False)
        return done.returncode, done.stdout, done.stderr

    def write_snapshot(self, nodes, name="now.json"):
        path = self.folder / name
        path.write_text(json.dumps(snapshot(nodes)))
        return path

    def write_sqlite(self, kernels, clones=(), copies=(), columns="start INT, end INT, graphNodeId INT"):
        path = self.folder / "profile.sqlite"
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as database:
            database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
            width = columns.count(",") + 1
            database.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * width)})",
                                 [kernel[:width] for kernel in kernels])
            if copies:
                database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, graphNodeId INT)")
                database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?)", copies)
            if clones:
                database.execute("CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INT, graphNodeId INT, "
                                 "originalGraphNodeId INT)")
                database.executemany("INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (0, ?, ?)", clones)
        database.close()
        return path

    @staticmethod
    def rows(output):
        """Returns {scope: (launches, ms without inner scopes, ms with them)} of a table."""
        rows = {}
        for line in output.splitlines()[1:]:
            name, *cells = line.rsplit(maxsplit=4)
            rows[name.strip()] = int(cells[0].replace(",", "")), float(cells[1]), float(cells[2])
        return rows

    def test_random_profiles_add_up_as_a_model_does(self):
        names = ["", "layer 0", "layer 0/attention", "layer 0/mlp", "layer 1", "layer 1/mlp", "head"]
        for _ in range(10):
            first = 1 << 33
            nodes = [(self.random.choice(names), first + i, (7 << 32) + i) for i in range(50)]
            own, inner, launches = {}, {}, {}
            kernels, copies, clones = [], [], []
            for i in range(400):
                path, number, clone = self.random.choice(nodes)
                ns = self.random.randrange(1, 100) * 1000
                form = self.random.randrange(3)
                if form == 1:
                    number = clone
                elif form == 2:  # a clone of a clone, known only to the profile
                    clones += [((9 << 32) + i, (8 << 32) + i), ((8 << 32) + i, number)]
                    number = (9 << 32) + i
                (copies if i % 5 == 0 else kernels).append((1000, 1000 + ns, number))
                path = path or "(in no scope)"
                launches[path] = launches.get(path, 0) + 1
                own[path] = own.get(path, 0) + ns
                while "/" in path:
                    path = path.rpartition("/")[0]
                    inner[path] = inner.get(path, 0) + ns
            kernels.append((0, 5000, None))
            launches["(in no scope)"] = launches.get("(in no scope)", 0) + 1
            own["(in no scope)"] = own.get("(in no scope)", 0) + 5000
            status, output, errors = self.run_tool(self.write_sqlite(kernels, clones, copies), "--snapshot",
                                                   self.write_snapshot(nodes))
            self.assertEqual((status, errors), (0, ""))
            rows = self.rows(output)
            self.assertEqual(set(rows), set(own) | set(inner))
            for name, (count, own_ms, all_ms) in rows.items():
                self.assertEqual(count, launches.get(name, 0), name)
                self.assertAlmostEqual(own_ms, own.get(name, 0) / 1e6, 3)
                self.assertAlmostEqual(all_ms, (own.get(name, 0) + inner.get(name, 0)) / 1e6, 3)

    def test_an_outer_scope_comes_before_those_inside_and_the_longest_first(self):
        nodes = [("b", 1, 0), ("a/x", 2, 0), ("a", 3, 0), ("a/y", 4, 0)]
        profile = self.write_sqlite([(0, 10, 1), (0, 20, 2), (0, 5, 3), (0, 30, 4)])
        _, output, _ = self.run_tool(profile, "--snapshot", self.write_snapshot(nodes))
        self.assertEqual(list(self.rows(output)), ["a", "a/y", "a/x", "b", "(in no scope)"])

    def test_a_picture_has_each_scope_as_wide_as_its_time(self):
        nodes = [("a<&\u0001", 1, 0), ("a<&\u0001/inner", 2, 0), ("/slash", 3, 0), ("tiny", 4, 0)]
        profile = self.write_sqlite([(0, 300_000, 1), (0, 300_000, 2), (0, 299_999, 3), (0, 1, 4), (0, 100_000, 9)])
        picture = self.folder / "picture.svg"
        status, output, errors = self.run_tool(profile, "--snapshot", self.write_snapshot(nodes), f"--svg={picture}")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("/slash", self.rows(output))
        self.assertNotIn("", self.rows(output))
        root = xml.etree.ElementTree.parse(picture).getroot()
        name = "{http://www.w3.org/2000/svg}"
        boxes = {}
        for group in root.iter(f"{name}g"):
            box = group.find(f"{name}rect").attrib
            boxes[group.find(f"{name}title").text.rpartition(": ")[0]] = [
                float(box[key]) for key in ("x", "y", "width")]
        self.assertEqual(boxes, {"a<&\ufffd": [0, 0, 576], "inner": [0, 22, 288], "/slash": [576, 0, 288],
                                 "(in no scope)": [864, 0, 96]})

    def test_a_picture_that_cannot_be_written_is_said(self):
        profile, good = self.write_sqlite([(0, 1000, 1)]), self.write_snapshot([("a", 1, 0)])
        for target in (profile, self.folder, self.folder / "missing" / "picture.svg"):
            status, output, errors = self.run_tool(profile, "--snapshot", good, "--svg", target)
            self.assertEqual((status, output), (2, ""))
            self.assertIn("cannot write", errors)

    def test_traces_of_pytorch_are_read_packed_or_not(self):
        nodes = [("attention", 5, (3 << 32) + 5), ("mlp", (1 << 32) + 6, 0)]
        trace = {"traceEvents": [
            {"ph": "X", "cat": "kernel", "dur": 12, "args": {"graph node id": 5, "graph id": 3}},
            {"ph": "X", "cat": "gpu_memcpy", "dur": 7, "args": {"graph node id": (1 << 32) + 6, "graph id": 9}},
            {"ph": "X", "cat": "kernel", "dur": 3, "args": {"graph node id": 0}},
            {"ph": "X", "cat": "cpu_op", "dur": 100, "args": {}}, {"ph": "i", "cat": "kernel"}]}
        for name, data in (("trace.json", json.dumps(trace).encode()),
                           ("trace.json.gz", gzip.compress(json.dumps(trace).encode()))):
            (self.folder / name).write_bytes(data)
            status, output, _ = self.run_tool(self.folder / name, "--snapshot", self.write_snapshot(nodes))
            self.assertEqual(status, 0)
            self.assertEqual(self.rows(output), {"attention": (1, 0.012, 0.012),
                                                 "mlp": (1, 0.007, 0.007), "(in no scope)": (1, 0.003, 0.003)})

    def test_what_cupti_sees_is_read(self):
        records = [types.SimpleNamespace(kind=3, name="gemm", start=1000, end=13000, graph_id=3, graph_node_id=5),
                   types.SimpleNamespace(kind=1, start=0, end=7000, graph_id=0, graph_node_id=(1 << 32) + 6),
                   types.SimpleNamespace(kind=9)]  # of a kind that was not requested
        asked, callbacks = [], []
        cupti = types.SimpleNamespace(
            ActivityKind=types.SimpleNamespace(CONCURRENT_KERNEL=3, MEMCPY=1, MEMSET=2),
            activity_register_callbacks=lambda *given: callbacks.extend(given),
            activity_enable=asked.append, activity_disable=asked.remove,
            activity_flush_all=lambda flag: callbacks[1](records))
        path = self.folder / "trace.json"
        with unittest.mock.patch.dict(sys.modules, {"cupti": types.SimpleNamespace(cupti=cupti)}):
            with cupti_trace.cupti_trace(path):
                self.assertEqual(asked, [3, 1, 2])
                self.assertGreater(callbacks[0]()[0], 0)
        self.assertEqual(asked, [])
        nodes = [("attention", 5, (3 << 32) + 5), ("mlp", (1 << 32) + 6, 0)]
        status, output, _ = self.run_tool(path, "--snapshot", self.write_snapshot(nodes))
        self.assertEqual(status, 0)
        self.assertEqual(self.rows(output), {"attention": (1, 0.012, 0.012), "mlp": (1, 0.007, 0.007),
                                             "(in no scope)": (0, 0.0, 0.0)})

    def test_a_number_of_two_scopes_counts_for_neither(self):
        one = self.write_snapshot([("a", 1, 0)], "one.json")
        two = self.write_snapshot([("b", 1, 0), ("c", 2, 0)], "two.json")
        _, output, _ = self.run_tool(self.write_sqlite([(0, 1000, 1), (0, 2000, 2)]), "--snapshot", one,
                                     "--snapshot", two)
        self.assertEqual(self.rows(output), {"c": (1, 0.002, 0.002), "(in no scope)": (1, 0.001, 0.001)})

    def test_it_says_why_nothing_is_in_a_scope(self):
        profile = self.write_sqlite([(0, 1000, 1)])
        plain = self.folder / "plain.json"
        plain.write_text(json.dumps({"schema": "cgtree.snapshot", "nodes": [{}]}))
        for expected, profile_of, snapshot_of in (
                ("open cgtree::Scope", lambda: profile, lambda: plain),
                ("CUPTI", lambda: profile, lambda: self.write_snapshot([("a", 0, 0)])),
                ("--cuda-graph-trace=node", lambda: self.write_sqlite([(0, 1000)], columns="start INT, end INT"),
                 lambda: self.write_snapshot([("a", 1, 0)])),
                ("no number of the profile", lambda: self.write_sqlite([(0, 1000, 2)]),
                 lambda: self.write_snapshot([("a", 1, 0)]))):
            status, output, errors = self.run_tool(profile_of(), "--snapshot", snapshot_of())
            self.assertEqual((status, output), (1, ""))
            self.assertIn(expected, errors)

    def test_names_of_any_characters_are_a_line_each(self):
        nodes = [("half \ud800", 1, 0), ("two\nlines", 2, 0), ("\x1b[31mred", 3, 0), ("\u00e9", 4, 0)]
        profile = self.write_sqlite([(0, 1000, 1), (0, 2000, 2), (0, 3000, 3), (0, 4000, 4)])
        status, output, errors = self.run_tool(profile, "--snapshot", self.write_snapshot(nodes))
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(set(self.rows(output)), {"half \ufffd", "two\ufffdlines", "\ufffd[31mred", "\u00e9",
                                                  "(in no scope)"})

    def test_a_launch_that_ends_before_it_begins_takes_no_time(self):
        good = self.write_snapshot([("a", 1, 0), ("b", 2, 0)])
        trace = self.folder / "trace.json"
        trace.write_text(json.dumps([
            {"ph": "X", "cat": "kernel", "dur": dur, "args": {"graph node id": node} if node else None}
            for dur, node in ((-9, 1), (2, 2), (-7, 0))]))
        for profile in (self.write_sqlite([(9000, 0, 1), (1000, 3000, 2), (7000, 0, None)]), trace):
            status, output, _ = self.run_tool(profile, "--snapshot", good)
            self.assertEqual(status, 0)
            self.assertEqual(self.rows(output), {"a": (1, 0.0, 0.0), "b": (1, 0.002, 0.002),
                                                 "(in no scope)": (1, 0.0, 0.0)})

    def test_files_that_are_something_else_are_named(self):
        good = self.write_snapshot([("a", 1, 0)])
        profile = self.write_sqlite([(0, 1000, 1)])
        bad = self.folder / "bad"
        broken = bytearray(gzip.compress(b"[]" * 1000))
        broken[10] = 0xff  # the type of the first block
        numbered = json.dumps(snapshot([("a", 1, 0)])).replace('"a"', "5").encode()
        for data in (bytes(broken), numbered, b"", b"{}", b"[1]", b"{\"traceEvents\": [3]}", b"\x1f\x8bcut",
                     b"SQLite format 3\0cut", b"{\"schema\": \"cgtree.snapshot\"}", b"[" * 100000):
            bad.write_bytes(data)
            for arguments in ((bad, "--snapshot", good), (profile, "--snapshot", bad)):
                status, _, errors = self.run_tool(*arguments)
                self.assertEqual(status, 2, data)
                self.assertIn("bad'", errors)
                self.assertNotIn("Traceback", errors)
        status, _, errors = self.run_tool(self.folder / "missing", "--snapshot", good)
        self.assertEqual(status, 2)
        self.assertIn("No such file", errors)


if __name__ == "__main__":
    unittest.main()
