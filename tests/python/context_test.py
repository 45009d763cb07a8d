"""Contexts, streams, threads and tensors from Python: their promises and their refusals."""

import gc
import io
import os
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import (  # noqa: E402,F401
    RANDOM, Foreign, cgtree, floats, on_threads, setUpModule, tensor, transposed, values_of)


class ContextPythonTest(unittest.TestCase):
    def test_used_after_it_was_closed(self):
        context = cgtree.Context("host")
        step = context.compile(lambda x: x * 2, framework="numpy")
        values = floats(4)
        held = step(values)
        context.close()
        context.close()
        self.assertTrue(context.closed)
        for use in (lambda: step(values), lambda: step.stats(), lambda: step.explain(values),
                    context.mark_step, context.stats, context.synchronize, lambda: context.stream,
                    lambda: context.device, context.snapshot_json,
                    lambda: context.compile(lambda x: x)):
            with self.assertRaisesRegex(cgtree.InvalidArgument, "closed"):
                use()
        numpy.testing.assert_array_equal(values_of(held), values * 2)

    def test_the_first_replays_are_verified_where_the_context_or_the_function_says_so(self):
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")
        for of_context, of_function in (({"verify_first": 3}, {}), ({}, {"verify_first": 3})):
            with cgtree.Context("host", **of_context) as context:
                runs = []  # the result of the step depends on its length
                step = context.compile(lambda x: runs.append(1) or x * len(runs), framework="numpy", **of_function)
                for _ in range(2):
                    step(floats(4))
                with self.assertRaisesRegex(cgtree.VerifyError, "replayed .*, eager "):
                    step(floats(4))
                self.assertEqual(step.stats()["replays"], 0)
                self.assertIn("3 of the first replays", context.verification())

    def test_a_replay_that_differs_from_an_eager_run_is_found(self):
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")
        deviation = [1.0]  # the recording has its value
        generator = cgtree.Generator(42)
        with cgtree.Context("host", verify_every=1) as context:
            step = context.compile(lambda x: generator.normal(x.shape, deviation=deviation[0]),
                                   name="noise", outputs_tolerance=[0.5])
            values = numpy.zeros(64, "float32")
            for _ in range(4):
                self.assertLess(abs(values_of(step(values))).max(), 6)
            self.assertEqual(step.stats()["verified"], 2)
            self.assertIn("output 0: within 0.5", context.verification())
            deviation[0] = 9.0
            with self.assertRaisesRegex(cgtree.VerifyError, "'noise'.*output 0"):
                step(values)
            try:
                step(values)
            except cgtree.VerifyError as error:
                self.assertEqual(error.divergence["of"], "output")
                self.assertEqual(len(error.divergence["position"]), 1)
                self.assertGreater(error.divergence["differing"], 16)
                self.assertIsInstance(error.divergence["suspects"], list)
            self.assertEqual(step.stats()["differed"], 2)
            self.assertEqual(step.stats()["unverified"], {})

    def test_outputs_are_stale_after_mark_step(self):
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy", name="double")
            for _ in range(3):
                output = step(floats(4))
                context.mark_step()
            for use in (lambda: output.data_ptr, output.__dlpack__, output.cuda_array_interface,
                        lambda: output.__array_interface__, output.tobytes,
                        lambda: output.copy_from(floats(4)), lambda: step(output)):
                with self.assertRaisesRegex(cgtree.StaleTensor, "double"):
                    use()
            self.assertEqual(output.shape, (4,))

    def test_an_output_is_kept_across_mark_step(self):
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy")
            values = floats(4)
            kept, lost = step(values), step(values)
            context.keep(kept)
            context.mark_step()
            numpy.testing.assert_array_equal(values_of(kept), values * 2)
            with self.assertRaises(cgtree.StaleTensor):
                context.keep(lost)
            for wrong in (None, values, 1):
                with self.assertRaises((cgtree.InvalidArgument, TypeError)):
                    context.keep(wrong)

    def test_memory_is_released_and_the_next_call_records_at_once(self):
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy")
            values = floats(4)
            for _ in range(3):
                held = step(values)
            self.assertGreater(context.release_memory(), 0)
            numpy.testing.assert_array_equal(values_of(held), values * 2)
            numpy.testing.assert_array_equal(values_of(step(values)), values * 2)
            self.assertEqual(step.last_outcome(), ("record", ""))
            self.assertEqual(step.stats()["warm_ups"], 1)

    def test_memory_that_is_no_tensor_is_declared_by_name(self):
        with cgtree.Context(on_foreign_pointer="throw") as context:
            context.declare("table", 1 << 20, 64)
            with self.assertRaisesRegex(cgtree.InvalidArgument, "overlaps with 'table'"):
                context.declare("other", address=(1 << 20) + 63, nbytes=8)
            self.assertEqual(context.invalidate(1 << 20, nbytes=64), 0)
            context.undeclare("table")
            with self.assertRaisesRegex(cgtree.InvalidArgument, "'table'"):
                context.undeclare("table")
            with self.assertRaisesRegex(cgtree.InvalidArgument, "'nbytes' is missing"):
                context.declare("table", 1 << 20)

    def test_a_second_thread_is_refused(self):
        with cgtree.Context("host") as context:
            inside, go_on, refused = threading.Event(), threading.Event(), []

            def kernel(x, y):
                inside.set()
                go_on.wait(30)
                y[...] = x

            def step(x):
                y = cgtree.empty(x.shape, x.dtype)
                cgtree.numpy.launch(kernel, x, y)
                return y

            compiled = context.compile(step)
            worker = threading.Thread(target=lambda: compiled(tensor(floats(4))))
            worker.start()
            self.assertTrue(inside.wait(30))
            try:
                context.mark_step()
            except cgtree.ConcurrentUse as error:
                refused.append(str(error))
            go_on.set()
            worker.join()
            self.assertIn("busy", refused[0])

    def test_devices_and_options_that_are_not_there(self):
        for device in ("host:99", "nowhere", "cuda:99", (1,)):
            with self.subTest(device=device), self.assertRaises(cgtree.InvalidArgument):
                cgtree.Context(device)
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.Context("host", no_such_option=1)
        with self.assertRaises(TypeError):
            cgtree.Context("host", max_bytes="much")

    def test_limits_of_time_in_seconds(self):
        for seconds, recordings in ((0, 0), (float("inf"), 1), (1e300, 1), (3600, 1)):
            with cgtree.Context("host", max_recording_time=seconds) as context:
                step = context.compile(lambda x: x * 2, framework="numpy")
                for _ in range(3):
                    step(floats(4))
                self.assertEqual(step.stats()["recordings"], recordings)
        for wrong in (-1, float("nan"), -float("inf")):
            with self.assertRaisesRegex(cgtree.InvalidArgument, "max_recording_time"):
                cgtree.Context("host", max_recording_time=wrong)

    def test_memory_over_the_limit_names_the_pools(self):
        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")
        with cgtree.Context("host", max_bytes=1 << 20) as context:
            step = context.compile(lambda x: cgtree.empty((1 << 24,)))
            with self.assertRaises(cgtree.OutOfMemory) as caught:
                step(floats(4))
            self.assertIsInstance(caught.exception, MemoryError)
            self.assertGreaterEqual(caught.exception.report["requested"], 1 << 26)

    def test_events_and_snapshot(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events.json")
            with cgtree.Context("host", event_file=path) as context:
                step = context.compile(lambda x: x * 2, framework="numpy")
                for _ in range(3):
                    step(floats(4))
                self.assertIn("nodes", context.snapshot_json())
            with io.open(path, encoding="utf-8") as file:
                self.assertIn("warm_up", file.read())

    def test_to_compile_a_function_makes_no_context(self):
        # As modules do at import, also in a process that forks later.
        program = """
import os, sys; sys.path.insert(0, "python")
import cgtree
import cgtree._context

@cgtree.compile
def step(x):
    return x

assert not hasattr(cgtree._context._default, "context")
assert step.name == "step"
try:
    cgtree.compile(lambda x: x, buckets={"batch": [2, 1]}, dynamic={0: {0: "batch"}})
except cgtree.InvalidArgument:
    pass
else:
    raise SystemExit("wrong options were accepted")
child = os.fork()
if child == 0:
    if cgtree.best_device().startswith("host"):
        step(cgtree.empty((4,), "float32", "host"))
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        result = subprocess.run([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, check=False, timeout=60)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_a_function_without_a_context_uses_that_of_the_thread_that_calls(self):
        if not cgtree.best_device().startswith("host"):
            self.skipTest("the default context is a GPU's")

        @cgtree.compile(framework="numpy")
        def double(x):
            return x * 2

        both, found = threading.Barrier(2), []

        def work(_):
            for _ in range(5):
                both.wait(30)
                cgtree.mark_step()
                x = floats(4)
                numpy.testing.assert_array_equal(values_of(double(x)), x * 2)
            cgtree.synchronize()
            found.append((cgtree.stats()["calls"], double.stats()["replays"], cgtree.default_context()))

        on_threads(2, work)
        self.assertEqual([counts for *counts, _ in found], [[5, 3]] * 2)
        self.assertIsNot(found[0][2], found[1][2])

    def test_a_function_goes_on_after_its_threads_context_was_closed(self):
        if not cgtree.best_device().startswith("host"):
            self.skipTest("the default context is a GPU's")
        double = cgtree.compile(lambda x: x * 2, framework="numpy")
        for _ in range(3):
            for _ in range(3):
                x = floats(4)
                numpy.testing.assert_array_equal(values_of(double(x)), x * 2)
            cgtree.default_context().close()

    def test_eager_work_between_calls(self):
        with cgtree.Context("host") as context:
            with context.eager():
                self.assertTrue(cgtree.is_in_step())
                made = cgtree.empty((4,))
                made.copy_from(numpy.ones(4, "float32"))
            self.assertFalse(cgtree.is_in_step())
            numpy.testing.assert_array_equal(values_of(made), numpy.ones(4))

    def test_memory_is_given_back_and_uses_elsewhere_are_noted(self):
        with cgtree.Context("host") as context, cgtree.Stream("host") as stream:
            step = context.compile(lambda x: x * 2, framework="numpy")
            for _ in range(3):
                y = step(floats(4))
                y.note_use(stream)
            self.assertEqual(stream.capture_id, 0)
            self.assertEqual(context.release_captured(), 0)
            self.assertEqual(context.release_captured(capture=7), 0)
            self.assertIsInstance(context.trim(), int)
            for wrong in (None, "stream", -1):
                with self.assertRaises((cgtree.InvalidArgument, TypeError)):
                    y.note_use(wrong)
            with self.assertRaises((cgtree.InvalidArgument, TypeError, OverflowError)):
                context.release_captured(-1)


class StreamPythonTest(unittest.TestCase):
    def test_used_after_it_was_closed(self):
        stream = cgtree.Stream("host")
        stream.close()
        stream.close()
        for use in (stream.synchronize, stream.__cuda_stream__, lambda: stream.ptr,
                    lambda: stream.device, stream.__enter__, lambda: stream.is_capturing,
                    lambda: cgtree.Stream("host").wait_for(stream),
                    lambda: cgtree.Context("host", stream=stream)):
            with self.assertRaisesRegex(cgtree.InvalidArgument, "closed"):
                use()
        self.assertEqual(repr(stream), "cgtree.Stream(closed)")

    def test_the_protocol_of_streams(self):
        stream = cgtree.Stream("host")
        self.assertEqual(stream.__cuda_stream__(), (0, stream.ptr))

        class Other:
            def __cuda_stream__(self):
                return 0, stream.ptr

        class CupyLike:
            ptr = stream.ptr

        for other in (Other(), CupyLike(), stream.ptr, stream):
            self.assertEqual(cgtree.Stream("host", external=other).ptr, stream.ptr)
        for wrong in ("stream", 1.5, object()):
            with self.assertRaises(TypeError):
                cgtree.Stream("host", external=wrong)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "host:1"):
            stream.wait_for(cgtree.Stream("host:1"))

    def test_current_streams_nest(self):
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.current_stream()
        outer, inner = cgtree.Stream("host"), cgtree.Stream("host", blocking=True)
        with outer:
            with inner:
                self.assertEqual(cgtree.current_stream().ptr, inner.ptr)
                with self.assertRaisesRegex(cgtree.InvalidArgument, "current"):
                    inner.close()
            self.assertEqual(cgtree.current_stream().ptr, outer.ptr)

    def test_a_context_keeps_the_stream_it_was_given(self):
        stream = cgtree.Stream("host")
        number = stream.ptr
        with cgtree.Context("host", stream=stream) as context:
            stream.close()
            self.assertEqual(context.stream.ptr, number)
            step = context.compile(lambda x: x * 2, framework="numpy")
            for _ in range(3):
                context.mark_step()
                x = floats(4)
                numpy.testing.assert_array_equal(values_of(step(x)), x * 2)


class LeakPythonTest(unittest.TestCase):
    """Counts references around calls that fail and calls that succeed."""

    def references(self, use, *objects):
        def counts():
            gc.collect()
            return [sys.getrefcount(item) for item in objects]

        use()
        before = counts()
        for _ in range(50):
            use()
        return [now - then for now, then in zip(counts(), before)]

    def test_refused_arrays_are_let_go(self):
        made = tensor(floats(4))
        for changes in ({"stream": 0}, {"shape": "x"}, {"typestr": ">f4"}, {"version": -1},
                        {"mask": 1}, {"data": (0, False)}, {"strides": (1, 2)}):
            array = Foreign(made, **changes)
            entries = array.__cuda_array_interface__

            def use():
                with self.assertRaises(cgtree.BoundaryError):
                    cgtree.from_cuda_array_interface(array, owner=array, device="host")

            self.assertEqual(self.references(use, array, entries, made), [0, 0, 0], changes)

    def test_exports_imports_and_calls_leave_nothing(self):
        made, array, name = tensor(floats(4)), floats(4), "a name of its own"
        capsule = made.__dlpack__()
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy")

            def use():
                cgtree.as_tensor(array)
                numpy.from_dlpack(made)
                made.cuda_array_interface()
                context.mark_step()
                step(array)
                step(made)
                for wrong in (capsule.__class__, name, None):
                    with self.assertRaises((TypeError, AttributeError, cgtree.Error)):
                        step(wrong)

            cgtree.set_log_level("off")
            self.addCleanup(cgtree.set_log_level, "warn")
            self.assertEqual(self.references(use, made, array, name, cgtree.Tensor)[:3], [0, 0, 0])


class ThreadsPythonTest(unittest.TestCase):
    # Acceptance: cai 36.
    def test_other_threads_run_while_a_copy_does(self):
        big, small = cgtree.empty((1 << 24,), device="host"), [0]
        other = cgtree.empty((1 << 24,), device="host")
        stop = threading.Event()

        def count():
            while not stop.is_set():
                small[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        ran = 0
        for _ in range(20):  # a busy machine may delay the other thread
            before = small[0]
            big.copy_from(other)
            ran = max(ran, small[0] - before)
        stop.set()
        thread.join()
        self.assertGreater(ran, 100)


    def run_program(self, program):
        """Runs a program in another process, so that a hang or an abort is only a failure."""
        program = "import sys, threading, time; sys.path.insert(0, 'python')\n" + program
        try:
            result = subprocess.run([sys.executable, "-c", program], text=True, timeout=60,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except subprocess.TimeoutExpired:
            self.fail("the program hangs")
        self.assertEqual((result.returncode, result.stdout), (0, "end\n"))

    def test_a_thread_that_waits_for_upkeep_lets_python_run(self):
        # The end of a function releases the objects of its recordings, which takes Python's lock,
        # while another thread uses the context.
        self.run_program("""
import cgtree, numpy
cgtree.set_log_level("off")
context = cgtree.Context("host")
x = cgtree.as_tensor(numpy.ones(4, "float32"))

def step(x):
    return [cgtree.as_tensor(numpy.zeros(4)) for _ in range(50)]

uses = [context.mark_step, context.stats, context.snapshot_json,
        lambda: context.compile(lambda x: x)]
stop = False

def use():
    while not stop:
        for function in uses:
            try:
                function()
            except cgtree.ConcurrentUse:
                pass

other = threading.Thread(target=use)
other.start()
sys.setswitchinterval(1e-5)
for _ in range(100):
    while True:
        try:
            compiled = context.compile(step)
            for _ in range(3):
                compiled(x)
            break
        except cgtree.ConcurrentUse:
            pass
    del compiled
stop = True
other.join()
print("end")
""")

    def test_daemon_threads_inside_at_exit_do_not_abort_the_process(self):
        for inside in ("context.synchronize()", "cgtree.launch(lambda: time.sleep(0.001))"):
            with self.subTest(inside=inside):
                self.run_program(f"""
import cgtree
stream = cgtree.Stream("host")
context = cgtree.Context("host")

def work():
    with stream:
        while True:
            {inside}

for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
print("end", flush=True)
""")


class TensorPythonTest(unittest.TestCase):
    def test_views_are_numpys(self):
        values = RANDOM.standard_normal((4, 5, 6))
        made = tensor(values)
        for key in (1, -1, slice(1, 3), (slice(None), 2), (Ellipsis, 0), (0, slice(None, None, 2)),
                    (slice(3, 1),), (None, 1), (slice(-2, None), 0, slice(1, 100, 3))):
            with self.subTest(key=key):
                numpy.testing.assert_array_equal(values_of(made[key]), values[key])
        numpy.testing.assert_array_equal(values_of(transposed(made)), values.T)
        numpy.testing.assert_array_equal(values_of(made.reshape(-1, 10)), values.reshape(-1, 10))
        self.assertEqual((len(made), made.ndim, made.size, made.itemsize, made.nbytes),
                         (4, 3, 120, 8, 960))
        for key, kind in ((4, IndexError), ((0, 0, 0, 0), IndexError), ("x", TypeError),
                          (slice(None, None, -1), cgtree.InvalidArgument)):
            with self.assertRaises(kind):
                made[key]
        for use in (lambda: made.reshape(7), lambda: transposed(made).reshape(120)):
            with self.assertRaises(cgtree.InvalidArgument):
                use()

    def test_the_truth_value_is_refused(self):
        for made in (tensor(floats(0)), tensor(floats(4)), cgtree.scalar(True)):
            with self.assertRaisesRegex(TypeError, "is not None"):
                bool(made)

    def test_copies_of_any_layout(self):
        values = floats(4, 6)
        made = cgtree.empty((4, 6), device="host")
        transposed(made).copy_from(values.T)
        numpy.testing.assert_array_equal(values_of(made), values)
        made[::2, 1::2].copy_from(values[1::2, ::2])
        numpy.testing.assert_array_equal(values_of(made)[::2, 1::2], values[1::2, ::2])
        for wrong in (floats(4, 5), values.astype("float64"), 1, "text"):
            with self.assertRaises((cgtree.InvalidArgument, TypeError)):
                made.copy_from(wrong)

    def test_numpy_arrays_share_the_memory_and_keep_it(self):
        made = cgtree.empty((3,), device="host")
        array = numpy.asarray(made)
        array[...] = [1, 2, 3]
        numpy.testing.assert_array_equal(values_of(made), [1, 2, 3])
        del made
        gc.collect()
        numpy.testing.assert_array_equal(array, [1, 2, 3])
        self.assertFalse(hasattr(cgtree.empty((3,), device="host"), "__cuda_array_interface__"))

    def test_element_types_by_any_name(self):
        for name in ("float32", "f4", "<f4", numpy.float32, numpy.dtype("float32")):
            self.assertEqual(cgtree.empty((1,), name, "host").dtype, "float32")
        for name in ("complex128", "c16", "<c16", numpy.complex128):
            self.assertEqual(cgtree.empty((1,), name, "host").dtype, "complex128")
        for wrong in ("float", "complex256", "", ">f4", numpy.clongdouble, 3.5):
            with self.subTest(dtype=wrong), self.assertRaises(cgtree.InvalidArgument):
                cgtree.empty((1,), wrong, "host")
        for shape in ((-1,), (1 << 62, 1 << 62), (1,) * 9):
            with self.subTest(shape=shape), self.assertRaises((cgtree.Error, MemoryError)):
                cgtree.empty(shape, device="host")


if __name__ == "__main__":
    unittest.main()
