"""T-CAI: the CUDA array interface from Python, on the host device: its dict, errors, options and owners."""

import gc
import os
import sys
import unittest
import unittest.mock
import weakref

import numpy

sys.path.insert(0, "tests/python")

from support import Foreign, cgtree, floats, from_cai, on_threads, setUpModule, tensor, values_of  # noqa: E402,F401

class CaiPythonTest(unittest.TestCase):
    def assertRefused(self, kind, text, call, *arguments, **options):
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        self.assertIsInstance(caught.exception, cgtree.BoundaryError)
        self.assertIn(text, str(caught.exception))

    # Acceptance: cai 1.
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
        part = tensor(numpy.zeros((10, 20)))[::2, ::5].cuda_array_interface()
        self.assertEqual((part["shape"], part["strides"]), ((5, 4), (320, 40)))

    # Acceptance: cai 1.
    def test_01_an_entry_of_the_wrong_type_is_named_with_what_it_is(self):
        made = tensor(floats(4))
        for key, value, text in (("shape", 6, "'shape' is 6: expected a tuple"),
                                 ("shape", (2, 1.5), "'shape' is (2, 1.5)"),
                                 ("shape", (2, True), "'shape' is (2, True)"),
                                 ("shape", [[2]], "'shape' is (an object of type 'list',)"),
                                 ("typestr", 4, "'typestr' is 4: expected a string"),
                                 ("data", 64, "'data' is 64: expected a pair"),
                                 ("data", (64,), "'data' is (64,)"),
                                 ("data", (64, 0), "'data' is (64, 0)"),
                                 ("data", (True, False), "'data' is (True, False)"),
                                 ("version", "3", "'version' is '3': expected an integer"),
                                 ("strides", "8", "'strides' is '8'"),
                                 ("stream", 1.0, "'stream' is 1.0"),
                                 ("stream", made, "'stream' is an object of type 'Tensor'")):
            with self.subTest(key=key, value=value):
                self.assertRefused(TypeError, text, from_cai, Foreign(made, **{key: value}))
        for value in ((-8, False), (1 << 64, False)):
            self.assertRefused(ValueError, "'data' is (", from_cai, Foreign(made, data=value))

    def test_long_values_are_cut_short_in_messages(self):
        made = tensor(floats(4))
        for value, text in (("x" * 10000, "..."), (["x"] * 1001, "1001 in all"),
                            (10 ** 5000, "'int'")):
            with self.assertRaises(cgtree.BoundaryError) as caught:
                from_cai(Foreign(made, shape=value))
            self.assertIn(text, str(caught.exception))
            self.assertLess(len(str(caught.exception)), 250)

    # Acceptance: cai 2.
    def test_02_each_mandatory_key_is_missed(self):
        for key in ("shape", "typestr", "data", "version"):
            with self.subTest(key=key):
                array = Foreign(tensor(floats(4)), **{key: Foreign.MISSING})
                self.assertRefused(KeyError, f"'{key}' is missing", from_cai, array)

    # Acceptance: cai 9.
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

    # Acceptance: cai 10.
    def test_10_a_type_may_be_asked_for(self):
        opaque = Foreign(cgtree.empty((3,), "bfloat16", "host"))
        self.assertEqual(opaque.__cuda_array_interface__["typestr"], "<V2")
        self.assertEqual(from_cai(opaque, dtype="bfloat16").dtype, "bfloat16")
        for array in (floats(3), Foreign(tensor(floats(3)))):
            self.assertRefused(ValueError, "is float32, but int32 was asked for",
                               cgtree.as_tensor, array, dtype="int32")

    # Acceptance: cai 4, 8, 10, 11, 15.
    def test_refusals_of_the_library_have_classes_of_python(self):
        made, values, other = tensor(floats(4)), floats(4), cgtree.empty((4,), device="host:1")
        for kind, text, array in (
                (BufferError, "'>f4'", Foreign(made, typestr=">f4")),
                (BufferError, "<f16", Foreign(made, typestr="<f16")),
                (BufferError, "no multiple", Foreign(made, strides=(3,))),
                (NotImplementedError, "masked arrays", Foreign(made, mask=Foreign(made))),
                (ValueError, "'strides'", Foreign(made, strides=(16, 4))),
                (ValueError, "ordinary memory", Foreign(made, data=(values.ctypes.data, False))),
                (ValueError, "null", Foreign(made, data=(0, False))),
                (ValueError, "host:1", Foreign(other))):
            with self.subTest(text):
                self.assertRefused(kind, text, from_cai, array, device="host:0")

    # Acceptance: cai 12.
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

    # Acceptance: cai 13.
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

    # Acceptance: cai 14.
    def test_14_lists_and_numpy_integers(self):
        made = tensor(floats(2, 3))
        array = Foreign(made, shape=[numpy.int64(2), numpy.int32(3)],
                        data=[numpy.uint64(made.data_ptr), False], strides=[12, numpy.int8(4)],
                        version=numpy.int64(3))
        numpy.testing.assert_array_equal(values_of(from_cai(array)), values_of(made))
        for shape in ((2.0, 3), (True, 3), 6, "23", None):
            self.assertRefused(TypeError, "'shape'", from_cai, Foreign(made, shape=shape))
        self.assertRefused(TypeError, "dict", from_cai, Foreign.__new__(NoDict))


    # Acceptance: cai 17, 18, 19.
    def test_17_the_policy_says_who_waits_for_the_producers_stream(self):
        made = tensor(floats(4))
        ours = cgtree.Stream("host")  # a later one could get the dead one's handle
        for sync in ("wait", "synchronize"):
            with self.assertRaises(cgtree.DeviceError):
                from_cai(Foreign(made, stream=dead_stream()), stream=ours, sync=sync)
        for sync in ("ignore", False):
            from_cai(Foreign(made, stream=dead_stream()), stream=ours, sync=sync)
        producer = cgtree.Stream("host")
        taken = from_cai(Foreign(made, stream=producer.ptr), sync="enqueue")
        self.assertEqual(taken.cuda_array_interface()["stream"], producer.ptr)
        with self.assertRaisesRegex(cgtree.InvalidArgument, "'wait'"):
            from_cai(Foreign(made), sync="perhaps")

    # Acceptance: cai 23, 24, 25.
    def test_23_an_export_names_the_stream_to_wait_for(self):
        made = tensor(floats(4))
        streams = [cgtree.Stream("host") for _ in range(3)]
        self.assertEqual(made.cuda_array_interface(pending=streams)["stream"], 1)
        streams[1].close()
        with self.assertRaisesRegex(cgtree.InvalidArgument, "closed"):
            made.cuda_array_interface(pending=streams)
        with self.assertRaises(cgtree.DeviceError):
            made.cuda_array_interface(pending=[dead_stream()])
        self.assertIsNone(made.cuda_array_interface(idle=True)["stream"])
        stream = cgtree.Stream("host")
        made, number = tensor(floats(4)).on_stream(stream), stream.ptr
        stream.close()
        self.assertEqual(made.cuda_array_interface()["stream"], number)

    # Acceptance: cai 26.
    def test_26_the_environment_turns_both_sides_off(self):
        made = tensor(floats(4))
        names = ("CGTREE_CUDA_ARRAY_INTERFACE_SYNC", "CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION")
        with unittest.mock.patch.dict(os.environ, dict(zip(names, "02"))):
            from_cai(Foreign(made, stream=dead_stream()))
            self.assertNotIn("stream", made.cuda_array_interface())

    # Acceptance: cai 30, 31.
    def test_30_in_a_capture_a_foreign_producer_is_refused_and_no_stream_exported(self):
        foreign, refused, exported = cgtree.Stream("host"), [], []

        def step(x):
            exported.append(x.cuda_array_interface()["stream"] is None)
            try:
                from_cai(Foreign(x, stream=foreign.ptr))
            except cgtree.CaptureError as error:
                refused.append(error.code)  # its traceback would keep x alive
            y = cgtree.empty(x.shape, x.dtype)
            y.copy_from(x)
            return y

        with cgtree.Context("host") as context:
            compiled = context.compile(step)
            for _ in range(4):
                compiled(tensor(floats(4)))
            self.assertEqual(compiled.stats()["replays"], 2)
        self.assertEqual((exported, refused), ([False, True], [905]))

    # Acceptance: cai 33, 34.
    def test_33_the_owner_stays_as_long_as_any_handle(self):
        for sort, make in (("as_tensor", lambda owner: cgtree.as_tensor(owner, device="host")),
                           ("owner", from_cai),
                           ("none", lambda owner: cgtree.from_cuda_array_interface(owner, device="host"))):
            with self.subTest(sort):
                owner = Foreign(tensor(floats(4)))
                seen = weakref.ref(owner)
                taken = make(owner)
                part = taken[1:]
                del owner, taken
                self.assertEqual(seen() is None, sort == "none")
                del part
                self.assertIsNone(seen())
        owner = Foreign(tensor(floats(4)), stream=0)
        seen = weakref.ref(owner)
        with self.assertRaises(ValueError):
            from_cai(owner)
        del owner
        gc.collect()
        self.assertIsNone(seen())

    # Acceptance: cai 36.
    def test_36_threads_import_and_export_side_by_side(self):
        made = tensor(floats(64))
        expected = values_of(made)

        def work(_):
            for _ in range(200):
                numpy.testing.assert_array_equal(values_of(from_cai(Foreign(made))), expected)

        on_threads(4, work)


def dead_stream():
    """Returns the handle of a destroyed stream, whose use is an error."""
    stream = cgtree.Stream("host")
    number = stream.ptr
    stream.close()
    return number


class NoDict:
    __cuda_array_interface__ = ("shape", (1,))


if __name__ == "__main__":
    unittest.main()
