"""T-CAI 1-36: the CUDA array interface from Python, on the host device, with NumPy as the peer."""

import gc
import os
import sys
import threading
import unittest
import weakref

import numpy

sys.path.insert(0, "tests/python")

from support import Foreign, cgtree, floats, from_cai, setUpModule, tensor, values_of  # noqa: E402,F401

TYPES = {"bool": "|b1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
         "uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "float16": "<f2",
         "float32": "<f4", "float64": "<f8", "bfloat16": "<V2"}


class CaiPythonTest(unittest.TestCase):
    def assertRefused(self, kind, text, call, *arguments, **options):
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        self.assertIsInstance(caught.exception, cgtree.BoundaryError)
        self.assertIn(text, str(caught.exception))

    def test_01_keys_and_types(self):
        array = tensor(floats(2, 3)).cuda_array_interface()
        self.assertIs(type(array), dict)
        self.assertEqual(set(array), {"shape", "typestr", "data", "strides", "version", "stream"})
        self.assertIs(type(array["shape"]), tuple)
        self.assertIs(type(array["typestr"]), str)
        self.assertEqual([type(item) for item in array["data"]], [int, bool])
        self.assertEqual(array["version"], 3)
        self.assertIsNone(array["strides"])
        self.assertIs(type(array["stream"]), int)

    def test_02_each_mandatory_key_is_missed(self):
        for key in ("shape", "typestr", "data", "version"):
            with self.subTest(key=key):
                array = Foreign(tensor(floats(4)), **{key: Foreign.MISSING})
                self.assertRefused(KeyError, f"'{key}' is missing", from_cai, array)

    def test_03_strides_are_none_or_bytes(self):
        base = tensor(numpy.zeros((10, 20)))
        self.assertIsNone(base.cuda_array_interface()["strides"])
        part = base[::2, ::5]
        self.assertEqual(part.shape, (5, 4))
        self.assertEqual(part.cuda_array_interface()["strides"], (320, 40))
        for strides in (None, Foreign.MISSING, (160, 8)):
            self.assertTrue(from_cai(Foreign(base, strides=strides)).is_contiguous)

    def test_04_layouts(self):
        values = floats(3, 4)
        made = tensor(values)
        numpy.testing.assert_array_equal(values_of(from_cai(Foreign(made.transpose()))), values.T)
        repeated = from_cai(Foreign(made[:1].broadcast_to(5, 4)))
        numpy.testing.assert_array_equal(values_of(repeated), numpy.repeat(values[:1], 5, axis=0))
        for strides in ((-16, 4), (16, 3), (16,)):
            with self.assertRaises(cgtree.BoundaryError):
                from_cai(Foreign(made, strides=strides))

    def test_05_zero_size(self):
        for made in (cgtree.empty((0, 3), device="host"), tensor(floats(4, 3))[2:2]):
            array = made.cuda_array_interface()
            self.assertEqual(array["data"][0], 0)
            self.assertEqual(from_cai(Foreign(made)).shape, (0, 3))
        self.assertEqual(from_cai(Foreign(made, data=(64, False))).data_ptr, 0)
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, peer="numpy")
            for _ in range(4):
                self.assertEqual(step(made).shape, (0, 3))

    def test_06_no_dimensions(self):
        made = tensor(numpy.float32(7))
        self.assertEqual(made.cuda_array_interface()["shape"], ())
        self.assertEqual(values_of(from_cai(Foreign(made))), 7)

    def test_07_pointer_of_a_slice(self):
        made = tensor(floats(5, 6))
        part = made[2, 3:]
        self.assertEqual(part.cuda_array_interface()["data"][0], made.data_ptr + (2 * 6 + 3) * 4)

    def test_08_swapped_bytes(self):
        array = Foreign(tensor(floats(4)), typestr=">f4")
        self.assertRefused(BufferError, "'>f4'", from_cai, array)

    def test_09_read_only(self):
        made = tensor(floats(4))
        array = from_cai(Foreign(made, data=(made.data_ptr, True)))
        self.assertTrue(array.read_only)
        self.assertEqual(array.cuda_array_interface()["data"], (made.data_ptr, True))
        with self.assertRaisesRegex(cgtree.InvalidArgument, "read-only"):
            array.copy_from(floats(4))
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: None, mutated=["x"])
            with self.assertRaisesRegex(cgtree.InvalidArgument, "read-only"):
                step(array)

    def test_10_types(self):
        for name, text in TYPES.items():
            made = cgtree.empty((3,), name, "host")
            self.assertEqual(made.cuda_array_interface()["typestr"], text)
            wanted = "bfloat16" if name == "bfloat16" else None
            self.assertEqual(from_cai(Foreign(made), dtype=wanted).dtype, name)
        eight = tensor(numpy.zeros(3))
        for text in ("<c8", "|S8", "|V8", "<U2", "<m8[ns]"):
            self.assertRefused(BufferError, text, from_cai, Foreign(eight, typestr=text))
        self.assertEqual(from_cai(Foreign(eight, typestr="<M8[ns]"), dtype="int64").dtype, "int64")

    def test_11_mask(self):
        made = tensor(floats(4))
        array = Foreign(made, mask=Foreign(made))
        self.assertRefused(NotImplementedError, "masked arrays", from_cai, array)

    def test_12_stream_values(self):
        made = tensor(floats(4))
        with cgtree.Stream("host") as stream:
            for value in (None, Foreign.MISSING, 1, 2, stream.ptr):
                from_cai(Foreign(made, stream=value))
        self.assertRefused(ValueError, "'stream' is 0", from_cai, Foreign(made, stream=0))
        for value in (True, 1.5, "1"):
            self.assertRefused(TypeError, "'stream'", from_cai, Foreign(made, stream=value))
        for value in (-1, 1 << 70):
            with self.assertRaises(cgtree.BoundaryError):
                from_cai(Foreign(made, stream=value))

    def test_13_versions(self):
        made = tensor(floats(4))
        for version in (0, 1, 2, 3, 4):
            from_cai(Foreign(made, version=version))
        self.assertRefused(ValueError, "version", from_cai, Foreign(made, version=-1))
        self.assertRefused(TypeError, "version", from_cai, Foreign(made, version="3"))
        for version in (0, 1, 2):
            self.assertNotIn("stream", made.cuda_array_interface(version=version))
        with self.assertRaises(cgtree.InvalidArgument):
            made.cuda_array_interface(version=4)

    def test_14_lists_and_numpy_integers(self):
        made = tensor(floats(2, 3))
        array = Foreign(made, shape=[numpy.int64(2), numpy.int32(3)],
                        data=[numpy.uint64(made.data_ptr), False], strides=[12, numpy.int8(4)],
                        version=numpy.int64(3))
        numpy.testing.assert_array_equal(values_of(from_cai(array)), values_of(made))
        for shape in ((2.0, 3), (True, 3), 6, "23", None):
            self.assertRefused(TypeError, "'shape'", from_cai, Foreign(made, shape=shape))
        self.assertRefused(TypeError, "dict", from_cai, Foreign.__new__(NoDict))

    def test_15_memory_out_of_reach(self):
        values = floats(4)
        array = Foreign(tensor(values), data=(values.ctypes.data, False))
        self.assertRefused(ValueError, "pageable", from_cai, array)
        freed = tensor(floats(4))
        entries = freed.cuda_array_interface(idle=True)
        del freed
        gc.collect()
        self.assertRefused(ValueError, "freed", cgtree.from_cuda_array_interface, entries,
                           device="host")
        other = cgtree.empty((4,), device="host:1")
        self.assertRefused(ValueError, "host:1", from_cai, Foreign(other), device="host:0")
        self.assertRefused(ValueError, "null", from_cai, Foreign(other, data=(0, False)))

    def test_16_more_than_four_gigabytes(self):
        made = from_cai(Foreign(tensor(numpy.zeros(8)), shape=(1 << 30, 8), strides=(0, 8)))
        self.assertEqual(made.nbytes, 64 << 30)
        self.assertEqual(made.cuda_array_interface()["shape"], (1 << 30, 8))
        self.assertEqual(made[(1 << 30) - 1].data_ptr, made.data_ptr)


class NoDict:
    __cuda_array_interface__ = ("shape", (1,))


def dead_stream():
    """The number of a stream that is no more: whoever touches it gets an error."""
    stream = cgtree.Stream("host")
    number = stream.ptr
    stream.close()
    return number


class CaiOrderPythonTest(unittest.TestCase):
    def test_17_the_consumer_waits_for_the_producers_stream(self):
        made = tensor(floats(4))
        with self.assertRaises(cgtree.DeviceError):
            from_cai(Foreign(made, stream=dead_stream()), stream=cgtree.Stream("host"))
        producer, ours = cgtree.Stream("host"), cgtree.Stream("host")
        values = floats(4)
        with producer:
            made.copy_from(values)
        taken = from_cai(Foreign(made, stream=producer.ptr), stream=ours)
        numpy.testing.assert_array_equal(values_of(taken), values)

    def test_18_synchronize(self):
        made = tensor(floats(4))
        producer = cgtree.Stream("host")
        from_cai(Foreign(made, stream=producer.ptr), sync="synchronize")
        with self.assertRaises(cgtree.DeviceError):
            from_cai(Foreign(made, stream=dead_stream()), sync="synchronize")

    def test_19_ignore_touches_no_stream(self):
        made = tensor(floats(4))
        from_cai(Foreign(made, stream=dead_stream()), sync="ignore")
        from_cai(Foreign(made, stream=dead_stream()), sync=False)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "'wait'"):
            from_cai(Foreign(made), sync="perhaps")

    def test_20_two_inputs_with_two_streams(self):
        producers = [cgtree.Stream("host") for _ in range(2)]
        with cgtree.Context("host") as context:
            step = context.compile(lambda x, y: x - y, peer="numpy")
            for _ in range(5):
                context.mark_step()
                values = floats(4), floats(4)
                inputs = [from_cai(Foreign(tensor(value), stream=producer.ptr))
                          for value, producer in zip(values, producers)]
                numpy.testing.assert_array_equal(values_of(step(*inputs)), values[0] - values[1])
            self.assertEqual(step.stats()["replays"], 3)

    def test_21_the_same_stream_twice(self):
        producer = cgtree.Stream("host")
        with cgtree.Context("host") as context:
            step = context.compile(lambda x, y: x - y, peer="numpy")
            made = from_cai(Foreign(tensor(floats(4)), stream=producer.ptr))
            for _ in range(4):
                context.mark_step()
                numpy.testing.assert_array_equal(values_of(step(made, made)), numpy.zeros(4))

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

    def test_24_nothing_pending(self):
        self.assertIsNone(tensor(floats(4)).cuda_array_interface(idle=True)["stream"])

    def test_25_the_exported_stream_outlives_its_object(self):
        stream = cgtree.Stream("host")
        made = tensor(floats(4)).on_stream(stream)
        number = stream.ptr
        stream.close()
        del stream
        gc.collect()
        self.assertEqual(made.cuda_array_interface()["stream"], number)
        from_cai(Foreign(made, stream=number))  # it is alive, so that it can be waited for

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

    def test_28_the_capturing_stream_may_be_the_producers(self):
        def body(x):
            from_cai(Foreign(x, stream=cgtree.current_stream().ptr))

        self.record(body)

    def test_29_a_producer_in_the_same_capture(self):
        def body(x):
            side = cgtree.Stream("host")
            side.wait_for(cgtree.current_stream())
            from_cai(Foreign(x, stream=side.ptr))

        self.record(body)

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

    def test_31_inside_a_capture_no_stream_is_exported(self):
        exported = []
        self.record(lambda x: exported.append(x.cuda_array_interface()["stream"]))
        self.assertEqual([stream is None for stream in exported], [False, True])

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
    def test_33_the_owner_stays_as_long_as_any_handle(self):
        owner = Foreign(tensor(floats(4)))
        seen = weakref.ref(owner)
        taken = cgtree.as_tensor(owner, device="host")
        part = taken[1:]
        del owner, taken
        self.assertIsNotNone(seen())
        del part
        self.assertIsNone(seen())

    def test_33_a_refused_import_drops_the_owner(self):
        owner = Foreign(tensor(floats(4)), stream=0)
        seen = weakref.ref(owner)
        with self.assertRaises(ValueError):
            from_cai(owner)
        del owner
        gc.collect()
        self.assertIsNone(seen())

    def test_34_without_an_owner_nothing_is_kept(self):
        owner = Foreign(tensor(floats(4)))
        seen = weakref.ref(owner)
        taken = cgtree.from_cuda_array_interface(owner, device="host")
        del owner
        self.assertIsNone(seen())
        del taken

    def test_35_a_static_input_that_comes_back_elsewhere_is_not_replayed(self):
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, peer="numpy", static=["x"])
            kept = []
            for _ in range(3):
                values = floats(4)
                kept.append(tensor(values))
                for _ in range(3):
                    context.mark_step()
                    found = values_of(step(from_cai(Foreign(kept[-1]))))
                    numpy.testing.assert_array_equal(found, values * 2)
            self.assertEqual(step.stats()["recordings"], 3)

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
