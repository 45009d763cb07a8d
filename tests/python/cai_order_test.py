"""T-CAI 17-36: stream order, captures and lifetimes of arrays, from Python on the host device."""

import gc
import os
import sys
import threading
import unittest
import weakref

import numpy

sys.path.insert(0, "tests/python")

from support import Foreign, cgtree, floats, from_cai, setUpModule, tensor, values_of  # noqa: E402,F401


def dead_stream():
    """Returns the number of a destroyed stream, which gives an error when it is used."""
    stream = cgtree.Stream("host")
    number = stream.ptr
    stream.close()
    return number


class CaiOrderPythonTest(unittest.TestCase):
    # Acceptance: cai 17.
    def test_17_the_consumer_waits_for_the_producers_stream(self):
        made = tensor(floats(4))
        ours = cgtree.Stream("host")  # one made later would have the handle of the dead one
        with self.assertRaises(cgtree.DeviceError):
            from_cai(Foreign(made, stream=dead_stream()), stream=ours)
        producer = cgtree.Stream("host")
        values = floats(4)
        with producer:
            made.copy_from(values)
        taken = from_cai(Foreign(made, stream=producer.ptr), stream=ours)
        numpy.testing.assert_array_equal(values_of(taken), values)

    # Acceptance: cai 18.
    def test_18_synchronize(self):
        made = tensor(floats(4))
        producer = cgtree.Stream("host")
        from_cai(Foreign(made, stream=producer.ptr), sync="synchronize")
        with self.assertRaises(cgtree.DeviceError):
            from_cai(Foreign(made, stream=dead_stream()), sync="synchronize")

    # Acceptance: cai 19.
    def test_19_ignore_touches_no_stream(self):
        made = tensor(floats(4))
        from_cai(Foreign(made, stream=dead_stream()), sync="ignore")
        from_cai(Foreign(made, stream=dead_stream()), sync=False)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "'wait'"):
            from_cai(Foreign(made), sync="perhaps")

    # Acceptance: cai 20.
    def test_20_two_inputs_with_two_streams(self):
        producers = [cgtree.Stream("host") for _ in range(2)]
        with cgtree.Context("host") as context:
            step = context.compile(lambda x, y: x - y, framework="numpy")
            for _ in range(5):
                context.mark_step()
                values = floats(4), floats(4)
                inputs = [from_cai(Foreign(tensor(value), stream=producer.ptr))
                          for value, producer in zip(values, producers)]
                numpy.testing.assert_array_equal(values_of(step(*inputs)), values[0] - values[1])
            self.assertEqual(step.stats()["replays"], 3)

    # Acceptance: cai 21.
    def test_21_the_same_stream_twice(self):
        producer = cgtree.Stream("host")
        with cgtree.Context("host") as context:
            step = context.compile(lambda x, y: x - y, framework="numpy")
            made = from_cai(Foreign(tensor(floats(4)), stream=producer.ptr))
            for _ in range(4):
                context.mark_step()
                numpy.testing.assert_array_equal(values_of(step(made, made)), numpy.zeros(4))

    # Acceptance: cai 22.
    def test_22_the_producer_may_write_again_after_the_last_handle(self):
        producer, ours = cgtree.Stream("host"), cgtree.Stream("host")
        before, made = floats(4), cgtree.empty((4,), device="host")
        made.copy_from(before)
        out = cgtree.empty((4,), device="host")
        taken = from_cai(Foreign(made, stream=producer.ptr), stream=ours)
        with ours:
            out.copy_from(taken)
        del taken
        with producer:
            made.copy_from(floats(4))
        numpy.testing.assert_array_equal(values_of(out), before)

    # Acceptance: cai 23.
    def test_23_an_export_joins_all_streams(self):
        made = tensor(floats(4))
        streams = [cgtree.Stream("host") for _ in range(3)]
        array = made.cuda_array_interface(pending=streams)
        self.assertEqual(array["stream"], 1)  # of memory straight from the device: legacy
        streams[1].close()
        with self.assertRaisesRegex(cgtree.InvalidArgument, "closed"):
            made.cuda_array_interface(pending=streams)
        with self.assertRaises(cgtree.DeviceError):
            made.cuda_array_interface(pending=[dead_stream()])

    # Acceptance: cai 24.
    def test_24_nothing_pending(self):
        self.assertIsNone(tensor(floats(4)).cuda_array_interface(idle=True)["stream"])

    # Acceptance: cai 25.
    def test_25_the_exported_stream_outlives_its_object(self):
        stream = cgtree.Stream("host")
        made = tensor(floats(4)).on_stream(stream)
        number = stream.ptr
        stream.close()
        del stream
        gc.collect()
        self.assertEqual(made.cuda_array_interface()["stream"], number)
        from_cai(Foreign(made, stream=number))  # it is alive, so that it can be waited for

    # Acceptance: cai 26.
    def test_26_the_environment_turns_both_sides_off(self):
        made = tensor(floats(4))
        names = ("CGTREE_CUDA_ARRAY_INTERFACE_SYNC", "CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION")
        os.environ.update(dict(zip(names, "02")))
        try:
            from_cai(Foreign(made, stream=dead_stream()))
            self.assertNotIn("stream", made.cuda_array_interface())
        finally:
            for name in names:
                del os.environ[name]
        with self.assertRaises(cgtree.DeviceError):
            from_cai(Foreign(made, stream=dead_stream()))

    # Acceptance: cai 27.
    def test_27_legacy_and_per_thread(self):
        made = tensor(floats(4))
        for number in (1, 2):
            stream = cgtree.Stream("host", external=number)
            taken = from_cai(Foreign(made, stream=number), sync="enqueue")
            self.assertEqual(taken.cuda_array_interface()["stream"], number)
            self.assertEqual(stream.ptr, number)


class CaiCapturePythonTest(unittest.TestCase):
    def record(self, body, *inputs):
        """Calls a step with `body` in it until it was recorded and replayed; its outputs."""
        context = cgtree.Context("host")
        self.addCleanup(context.close)

        def step(x):
            body(x)
            y = cgtree.empty(x.shape, x.dtype)
            y.copy_from(x)
            return y

        compiled = context.compile(step)
        for _ in range(4):
            context.mark_step()
            values = floats(4)
            numpy.testing.assert_array_equal(values_of(compiled(tensor(values))), values)
        self.assertEqual(compiled.stats()["replays"], 2)
        return compiled

    # Acceptance: cai 28.
    def test_28_the_capturing_stream_may_be_the_producers(self):
        def body(x):
            from_cai(Foreign(x, stream=cgtree.current_stream().ptr))

        self.record(body)

    # Acceptance: cai 29.
    def test_29_a_producer_in_the_same_capture(self):
        def body(x):
            side = cgtree.Stream("host")
            side.wait_for(cgtree.current_stream())
            from_cai(Foreign(x, stream=side.ptr))

        self.record(body)

    # Acceptance: cai 30.
    def test_30_a_foreign_producer_is_refused_and_the_capture_lives(self):
        foreign = cgtree.Stream("host")
        refused = []

        def body(x):
            try:
                from_cai(Foreign(x, stream=foreign.ptr))
            except cgtree.CaptureError as error:
                refused.append(error.code)  # its traceback would keep x

        self.record(body)
        self.assertEqual(refused, [905])  # the recording; a warm-up may wait

    # Acceptance: cai 31.
    def test_31_inside_a_capture_no_stream_is_exported(self):
        exported = []
        self.record(lambda x: exported.append(x.cuda_array_interface()["stream"]))
        self.assertEqual([stream is None for stream in exported], [False, True])

    # Acceptance: cai 32.
    def test_32_waiting_for_a_foreign_stream_would_have_failed_the_capture(self):
        foreign = cgtree.Stream("host")
        context = cgtree.Context("host")
        self.addCleanup(context.close)

        def step(x):
            cgtree.current_stream().wait_for(foreign)
            y = cgtree.empty(x.shape, x.dtype)
            y.copy_from(x)
            return y

        cgtree.set_log_level("off")
        self.addCleanup(cgtree.set_log_level, "warn")
        compiled = context.compile(step)
        values = floats(4)
        for _ in range(4):
            numpy.testing.assert_array_equal(values_of(compiled(tensor(values))), values)
        self.assertEqual(compiled.stats()["replays"], 0)
        self.assertIn("capture_failed", compiled.stats()["skips"])


class CaiLifePythonTest(unittest.TestCase):
    # Acceptance: cai 33.
    def test_33_the_owner_stays_as_long_as_any_handle(self):
        owner = Foreign(tensor(floats(4)))
        seen = weakref.ref(owner)
        taken = cgtree.as_tensor(owner, device="host")
        part = taken[1:]
        del owner, taken
        self.assertIsNotNone(seen())
        del part
        self.assertIsNone(seen())

    # Acceptance: cai 33.
    def test_33_a_refused_import_drops_the_owner(self):
        owner = Foreign(tensor(floats(4)), stream=0)
        seen = weakref.ref(owner)
        with self.assertRaises(ValueError):
            from_cai(owner)
        del owner
        gc.collect()
        self.assertIsNone(seen())

    # Acceptance: cai 34.
    def test_34_without_an_owner_nothing_is_kept(self):
        owner = Foreign(tensor(floats(4)))
        seen = weakref.ref(owner)
        taken = cgtree.from_cuda_array_interface(owner, device="host")
        del owner
        self.assertIsNone(seen())
        del taken

    # Acceptance: cai 35.
    def test_35_a_static_input_that_comes_back_elsewhere_is_not_replayed(self):
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy", static=["x"])
            kept = []
            for _ in range(3):
                values = floats(4)
                kept.append(tensor(values))
                for _ in range(3):
                    context.mark_step()
                    found = values_of(step(from_cai(Foreign(kept[-1]))))
                    numpy.testing.assert_array_equal(found, values * 2)
            self.assertEqual(step.stats()["recordings"], 3)

    # Acceptance: cai 36.
    def test_36_threads_import_and_export_side_by_side(self):
        made = tensor(floats(64))
        expected = values_of(made)
        wrong = []

        def work():
            for _ in range(200):
                if not numpy.array_equal(values_of(from_cai(Foreign(made))), expected):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
