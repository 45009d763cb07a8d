"""Steps, step blocks, breaks and groups from Python: their promises and their refusals."""

import struct
import sys
import threading
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import (  # noqa: E402,F401
    affine, cgtree, floats, on_threads, setUpModule, tensor, values_of)


def view_at(address, like):
    """The memory at an address, as a NumPy array with the shape of `like`."""
    interface = {"data": (address, False), "shape": like.shape, "typestr": "<f4", "version": 3}
    return numpy.asarray(type("Memory", (), {"__array_interface__": interface})())


def add_at(step, i, j, like):
    """Enqueues: binding j += binding i."""
    a, b = step.address(i), step.address(j)
    cgtree.launch(lambda: view_at(b, like).__iadd__(view_at(a, like)))


class StepsPythonTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host")
        self.addCleanup(self.context.close)
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")

    def test_work_is_replayed_with_the_values_of_the_call(self):
        steps = cgtree.Steps(self.context, "decode", bindings=["tokens", "cache"],
                             copied=["tokens"], mutated=["cache"])
        cache, want, runs = tensor(numpy.zeros(8, "float32")), numpy.zeros(8, "float32"), []
        for call in range(20):
            tokens = floats(8)
            want += tokens
            given = tensor(tokens)
            for step in steps(given if call % 2 else (given.data_ptr, given.nbytes), cache):
                runs.append(step.is_captured())
                add_at(step, 0, 1, tokens)
            self.context.synchronize()
            numpy.testing.assert_allclose(values_of(cache), want, rtol=1e-5)
        self.assertEqual(runs, [False, True])
        self.assertEqual(steps.stats()["replays"], 18)
        self.assertEqual(steps.last_outcome(), ("replay", ""))
        self.assertEqual(steps.invalidate(cache.data_ptr, 4), 1)

    def test_a_binding_per_session_has_one_recording_for_all_sessions(self):
        steps = cgtree.Steps(self.context, bindings=["tokens", "cache"], mutated=["cache"], per_session=["cache"])
        tokens, runs, caches = tensor(floats(8)), [], []
        for session in range(4):
            caches.append(tensor(numpy.zeros(8, "float32")))
            for _ in range(2):
                for _ in steps(tokens, caches[-1]):
                    runs.append(session)
                    caches[-1].copy_from(tokens)
            self.context.synchronize()
            numpy.testing.assert_array_equal(values_of(caches[-1]), values_of(tokens))
        self.assertEqual(runs, [0, 0, 1])
        self.assertEqual(steps.stats()["recordings"], 1)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "per_session: there is no binding 'keys'"):
            cgtree.Steps(self.context, bindings=["cache"], per_session=["keys"])
        with self.assertRaisesRegex(cgtree.InvalidArgument, "has per_session, and may lie anywhere"):
            cgtree.Steps(self.context, bindings=["cache"], copied=["cache"], per_session=["cache"])

    def test_a_recording_is_inspected_and_compared_with_a_new_capture(self):
        steps = cgtree.Steps(self.context, bindings=["tokens", "cache", "n"], mutated=["cache"], copied=["tokens"],
                             blocks={"n": 8})
        cache, tokens, block = tensor(numpy.zeros(8, "float32")), floats(8), bytes(8)
        self.assertIn("no recording", steps.inspect(tensor(tokens), cache, block)["why_not"])
        for _ in range(2):
            for step in steps(tensor(tokens), cache, block):
                add_at(step, 0, 1, tokens)
        report = steps.inspect(tensor(tokens), cache, block)
        self.assertEqual((report["why_not"], report["failed"], report["suspects"]), ("", None, []))
        self.assertEqual(report["runs"], report["nodes"])
        numpy.testing.assert_allclose(values_of(cache), 3 * tokens, rtol=1e-5)

        def work(addresses):
            self.assertEqual(addresses[1], cache.data_ptr)
            cgtree.launch(lambda: None)

        same = steps.compare_captures(work, tensor(tokens), cache, block)
        self.assertEqual((same["why_not"], same["difference"], same["recorded"]), ("", "", None))
        other = steps.compare_captures(lambda addresses: None, tensor(tokens), cache, block)
        self.assertIn("a new capture 0", other["difference"])
        self.assertIn(other["difference"], other["text"])
        failed = steps.compare_captures(lambda addresses: 1 // 0, tensor(tokens), cache, block, stream=self.context.stream)
        self.assertIn("ZeroDivisionError", failed["why_not"])
        for step in steps(tensor(tokens), cache, block, key={"n": 1}):
            with self.assertRaisesRegex(cgtree.InvalidArgument, "is open"):
                steps.inspect(tensor(tokens), cache, block)

    def test_a_decision_of_the_host_is_asked_before_each_replay(self):
        scale, fails = [2], []

        def choose():
            if fails:
                raise KeyError("no plan")
            return scale[0]

        def scaled(x, ask=choose):
            factor, y = cgtree.decide("scale", ask), cgtree.empty(x.shape, x.dtype)
            cgtree.numpy.launch(lambda a, out: numpy.multiply(a, numpy.float32(factor), out=out), x, y)
            return y

        function = self.context.compile(scaled, name="f")
        for call in range(20):
            scale[0] = 2 + call % 2
            x = floats(4)
            numpy.testing.assert_array_equal(values_of(function(tensor(x))), scale[0] * x)
        self.assertEqual(function.stats()["recordings"], 2)
        self.assertEqual(function.stats()["replays"], 16)
        scale[0] = 9
        self.assertIn("guard 'scale' [", str(function.explain(tensor(floats(4)))))
        fails.append(True)
        with self.assertRaisesRegex(KeyError, "no plan"):
            function(tensor(floats(4)))
        fails.clear()
        scale[0] = 3
        function(tensor(floats(4)))
        self.assertEqual(function.last_outcome(), ("replay", ""))
        wrong = self.context.compile(lambda x: scaled(x, lambda: "two"), name="g")
        with self.assertRaisesRegex(Exception, "the answer of a guard"):
            wrong(tensor(floats(4)))

    def test_step_blocks_and_keys_are_those_of_the_call(self):
        steps = cgtree.Steps(self.context, bindings=["lengths", "cache"], blocks={"lengths": 8},
                             mutated=["cache"])
        cache, like = tensor(numpy.zeros(2, "float32")), numpy.zeros(2, "float32")
        for call in range(12):
            block = struct.pack("ff", call, call + 1)
            for step in steps(block, cache, key={"draft": call % 2}):
                self.assertEqual(cgtree.current_key(), {"draft": call % 2})
                add_at(step, 0, 1, like)
            self.context.synchronize()
        numpy.testing.assert_array_equal(values_of(cache), [sum(range(12)), sum(range(13))])
        self.assertEqual(steps.stats()["recordings"], 2)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "8"):
            list(steps(b"too long for it", cache, key={"draft": 0}))

    def test_a_body_that_raises_or_leaves_the_loop_leaves_the_call(self):
        steps = cgtree.Steps(self.context, bindings=["cache"], mutated=["cache"])
        cache = tensor(numpy.zeros(4, "float32"))
        for leave in ("raise", "break"):
            try:
                for _ in steps(cache):
                    if leave == "break":
                        break
                    raise KeyError
            except KeyError:
                pass
            self.assertEqual(steps.last_outcome(), ("throw", ""))
            with self.assertRaisesRegex(cgtree.InvalidArgument, "no step"):
                steps.address(0)
        for _ in range(3):
            self.assertLessEqual(len([step.address(0) for step in steps(cache)]), 1)
        self.assertEqual(steps.stats()["replays"], 1)

    def test_an_open_step_belongs_to_its_thread(self):
        steps = cgtree.Steps(self.context, bindings=["cache"])
        cache, seen = tensor(numpy.zeros(4, "float32")), []

        def other():
            for use in (steps.end, steps.leave, lambda: list(steps(cache))):
                try:
                    use()
                except cgtree.Error as error:
                    seen.append(type(error).__name__)

        for _ in steps(cache):
            with self.assertRaisesRegex(cgtree.InvalidArgument, "is open"):
                steps.begin((cache,), None, None)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        self.assertEqual(seen, ["InvalidArgument"] * 3)
        self.assertEqual(steps.stats()["warm_ups"], 1)

    def test_wrong_arguments_are_named(self):
        cache = tensor(numpy.zeros((4, 4), "float32"))
        for options, what in (({"copied": ["no"]}, "no binding 'no'"), ({"no": 1}, "no option 'no'"),
                              ({"capture_mode": "none"}, "capture_mode is 'none'"),
                              ({"mutated": ["cache"], "blocks": {"cache": 4}}, "step block"),
                              ({"on_static_change": "demote"}, "on_static_change=.demote")):
            with self.assertRaisesRegex(cgtree.InvalidArgument, what):
                cgtree.Steps(self.context, bindings=["cache"], **options)
        steps = cgtree.Steps(self.context, bindings=["cache"])
        gaps = cgtree.view(cache, cache.data_ptr, (4, 2), (16, 4), "float32")
        for wrong in ((0, 4), gaps):
            with self.assertRaises(cgtree.InvalidArgument):
                list(steps(wrong))
        with self.assertRaises(TypeError):
            list(steps(object()))
        with self.assertRaisesRegex(TypeError, "Context"):
            cgtree.Steps(None)
        self.context.close()
        with self.assertRaisesRegex(cgtree.InvalidArgument, "closed"):
            list(steps(cache))


class BreaksPythonTest(unittest.TestCase):
    def setUp(self):
        self.context = cgtree.Context("host")
        self.addCleanup(self.context.close)

    def test_a_step_that_refuses_its_capture_runs_without_a_graph_and_says_why(self):
        def step(x):
            cgtree.refuse_capture("the engine has grown its workspace")
            return affine(x, x)

        step = self.context.compile(step)
        for _ in range(4):
            x = floats(6)
            numpy.testing.assert_allclose(values_of(step(x)), x * 3, rtol=1e-6)
        self.assertEqual(step.stats()["recordings"], 0)
        self.assertIn("has grown its workspace", str(step.explain(floats(6))))
        with self.assertRaises(TypeError):
            cgtree.refuse_capture(3)

    def test_the_function_of_a_break_runs_once_in_each_call_between_the_graphs(self):
        seen = []

        def step(x, block):
            y = affine(x, x)
            cgtree.eager_break(lambda value: seen.append(struct.unpack("i", value(1))[0]))
            return affine(y, y)

        step = self.context.compile(step)
        for call in range(8):
            x = floats(6)
            y = step(x, cgtree.step_block(struct.pack("i", call)))
            numpy.testing.assert_allclose(values_of(y), x * 9, rtol=1e-6)
            self.assertEqual(seen, list(range(call + 1)))
            del y
        self.assertEqual(step.stats()["replays"], 6)

    def test_exceptions_of_breaks_reach_the_caller_and_values_end_with_them(self):
        kept, fails = [], []

        def in_break(value):
            kept.append(value)
            with self.assertRaisesRegex(cgtree.InvalidArgument, "by value"):
                value(0)
            if fails:
                raise KeyError("mine")

        def step(x, block):
            cgtree.eager_break(in_break)
            return affine(x, x)

        step = self.context.compile(step)
        for call in range(6):
            fails[:] = [1] if call in (1, 4) else []
            x = floats(3)
            if not fails:
                numpy.testing.assert_allclose(values_of(step(x, cgtree.step_block(b"ab"))), x * 3)
                continue
            with self.assertRaisesRegex(KeyError, "mine"):
                step(x, cgtree.step_block(b"ab"))
        with self.assertRaisesRegex(cgtree.InvalidArgument, "while the function"):
            kept[-1](1)
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.eager_break(print)
        with self.assertRaisesRegex(TypeError, "function is of type int: expected a function"):
            cgtree.eager_break(3)


class GroupsPythonTest(unittest.TestCase):
    def on_ranks(self, groups, body):
        failures = []

        def run(rank):
            try:
                body(rank, groups[rank])
            except Exception as error:  # pylint: disable=broad-except
                failures.append((rank, error))

        on_threads(len(groups), run)
        return sorted(failures, key=lambda failure: failure[0])

    def groups_of(self, kind, size):
        """Ranks that are threads: in the library's group, or in a Python group over a barrier."""
        if kind == "threads":
            return cgtree.thread_groups(size, time_limit=20)
        barrier, given = threading.Barrier(size, timeout=20), [None] * size

        def minimum_of(rank):
            def minimum(words):
                given[rank] = words
                barrier.wait()
                least = [min(column) for column in zip(*given)]
                barrier.wait()
                return least
            return minimum

        return [cgtree.Group(rank, size, minimum_of(rank)) for rank in range(size)]

    def test_ranks_decide_alike(self):
        for kind in ("threads", "functions"):
            counts = [None] * 3

            def body(rank, group, counts=counts):
                self.assertEqual((group.rank(), group.size()), (rank, 3))
                with cgtree.Context("host", group=group, verify_first=2) as context:
                    step = context.compile(affine)
                    for _ in range(8):
                        x = floats(4)
                        numpy.testing.assert_allclose(values_of(step(x, tensor(x))), x * 3,
                                                      rtol=1e-6)
                    counts[rank] = (step.stats()["replays"], step.stats()["verified"])

            self.assertEqual(self.on_ranks(self.groups_of(kind, 3), body), [])
            self.assertEqual(counts, [(6, 2)] * 3)

    def test_ranks_with_other_options_or_calls_are_refused_on_all(self):
        for kind in ("threads", "functions"):
            def other_options(rank, group):
                cgtree.Context("host", group=group, verify_first=rank + 1)

            def other_calls(rank, group):
                with cgtree.Context("host", group=group) as context:
                    context.compile(affine)(floats(3 + rank), tensor(floats(3 + rank)))

            for body in (other_options, other_calls):
                failures = self.on_ranks(self.groups_of(kind, 2), body)
                self.assertEqual([(rank, type(error)) for rank, error in failures],
                                 [(0, cgtree.GroupError), (1, cgtree.GroupError)])

    def test_a_connection_that_fails_is_a_group_error(self):
        def fails(words):
            raise OSError("no route")

        for minimum, what in ((fails, "OSError.*no route"), (lambda words: words[1:], "words"),
                              (lambda words: ["a"] * len(words), "raised TypeError"),
                              (lambda words: [-1] * len(words), "raised")):
            with self.assertRaisesRegex(cgtree.GroupError, what):
                cgtree.Context("host", group=cgtree.Group(0, 2, minimum))
        for rank, size in ((2, 2), (-1, 2), (0, 0)):
            with self.assertRaisesRegex(cgtree.InvalidArgument, "no rank"):
                cgtree.Group(rank, size, fails)
        with self.assertRaisesRegex(TypeError, "Group"):
            cgtree.Context("host", group=3)


if __name__ == "__main__":
    unittest.main()
