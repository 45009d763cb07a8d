"""The last events of a context, and scopes, from Python."""

import json
import os
import signal
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, "tests/python")

from support import cgtree, floats, setUpModule  # noqa: E402,F401

class RecentEventsPythonTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "events.jsonl")
        self.context = cgtree.Context("host", name="decode")
        self.addCleanup(self.context.close)

    def read(self):
        with open(self.path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_they_are_what_the_context_did_and_a_file_has_the_same(self):
        step = self.context.compile(lambda x: x * 2, name="step", framework="numpy")
        for _ in range(5):
            step(floats(3))
        events = [json.loads(line) for line in self.context.recent_events().splitlines()]
        self.assertEqual([event["event"] for event in events], ["open", "warm_up", "record"])
        self.assertEqual({event["context"] for event in events}, {"decode"})
        self.context.dump_events(self.path)
        self.assertEqual(self.read(), events)

    def test_a_file_that_cannot_be_written_raises_with_the_reason(self):
        with self.assertRaisesRegex(cgtree.InvalidArgument, "No such file"):
            self.context.dump_events("/no/such/folder/file")
        with self.assertRaisesRegex(cgtree.InvalidArgument, "No space left"):
            self.context.dump_events("/dev/full")
        for wrong in ([0], [-1], [9], [1 << 40]):
            with self.assertRaises(cgtree.InvalidArgument):
                cgtree.dump_events_on_signal(self.path, wrong)

    def test_a_signal_writes_them_and_the_process_goes_on(self):
        cgtree.dump_events_on_signal(self.path, [signal.SIGUSR1])
        step = self.context.compile(lambda x: x * 2, name="step", framework="numpy")
        step(floats(3))
        signal.raise_signal(signal.SIGUSR1)
        events = [event for event in self.read() if event["context"] == "decode"]
        self.assertEqual([event["event"] for event in events], ["open", "warm_up"])
        self.assertEqual(events[0]["signal"], signal.SIGUSR1)


class ScopePythonTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host")
        self.addCleanup(self.context.close)

    def paths(self, step):
        """Returns the paths of the nodes that `step` launches, in the order of the nodes."""
        function = self.context.compile(step)
        for _ in range(3):
            function(cgtree.empty((2,), device="host"))
        scopes = json.loads(self.context.snapshot_json())["nodes"][-1]["scopes"]
        return [scopes["paths"][index] for index, kind in zip(scopes["node_paths"], scopes["node_types"])
                if kind == "host"]

    def test_nodes_have_the_path_of_the_scopes_that_were_open(self):
        def work(tensor):
            pass

        def step(x):
            cgtree.launch(work, x)
            with cgtree.Scope("layer 0"):
                cgtree.launch(work, x)
                scope = cgtree.Scope("inner")
                with scope, cgtree.Scope("innermost"):
                    cgtree.launch(work, x)
                with scope:  # the same scope may be opened again
                    cgtree.launch(work, x)
            return x
        self.assertEqual(self.paths(step), ["", "layer 0", "layer 0/inner/innermost", "layer 0/inner"])

    def test_a_scope_ends_when_its_block_raises(self):
        with self.assertRaises(ZeroDivisionError), cgtree.Scope("outer"):
            raise ZeroDivisionError

        def step(x):
            with cgtree.Scope("only"):
                cgtree.launch(lambda tensor: None, x)
            return x
        self.assertEqual(self.paths(step), ["only"])

    def test_threads_may_share_a_scope(self):
        shared, is_in, is_out = cgtree.Scope("shared"), threading.Event(), threading.Event()

        def other():
            with shared:
                is_in.set()
                is_out.wait(60)

        def step(x):
            with cgtree.Scope("only"):
                cgtree.launch(lambda tensor: None, x)
            return x
        thread = threading.Thread(target=other)
        with shared:
            thread.start()
            is_in.wait(60)
        try:
            self.assertEqual(self.paths(step), ["only"])
        finally:
            is_out.set()
            thread.join()

    def test_a_name_is_a_string(self):
        for wrong in (None, 3):
            with self.assertRaises(TypeError), cgtree.Scope(wrong):
                pass


if __name__ == "__main__":
    unittest.main()
