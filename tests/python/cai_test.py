"""T-CAI 1-16: the CUDA array interface from Python, on the host device, with NumPy."""

import gc
import sys
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import Foreign, cgtree, floats, from_cai, setUpModule, tensor, values_of  # noqa: E402,F401

TYPES = {"bool": "|b1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
         "uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "float16": "<f2",
         "float32": "<f4", "float64": "<f8", "bfloat16": "<V2", "float8_e4m3fn": "|V1",
         "float8_e4m3fnuz": "|V1", "float8_e5m2": "|V1", "float8_e5m2fnuz": "|V1",
         "float8_e8m0fnu": "|V1", "complex64": "<c8", "complex128": "<c16"}


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

    # Acceptance: cai 3.
    def test_03_strides_are_none_or_bytes(self):
        base = tensor(numpy.zeros((10, 20)))
        self.assertIsNone(base.cuda_array_interface()["strides"])
        part = base[::2, ::5]
        self.assertEqual(part.shape, (5, 4))
        self.assertEqual(part.cuda_array_interface()["strides"], (320, 40))
        for strides in (None, Foreign.MISSING, (160, 8)):
            self.assertTrue(from_cai(Foreign(base, strides=strides)).is_contiguous)

    # Acceptance: cai 4.
    def test_04_layouts(self):
        values = floats(3, 4)
        made = tensor(values)
        numpy.testing.assert_array_equal(values_of(from_cai(Foreign(made.transpose()))), values.T)
        repeated = from_cai(Foreign(made[:1].broadcast_to(5, 4)))
        numpy.testing.assert_array_equal(values_of(repeated), numpy.repeat(values[:1], 5, axis=0))
        for strides in ((-16, 4), (16, 3), (16,)):
            with self.assertRaises(cgtree.BoundaryError):
                from_cai(Foreign(made, strides=strides))

    # Acceptance: cai 5.
    def test_05_zero_size(self):
        for made in (cgtree.empty((0, 3), device="host"), tensor(floats(4, 3))[2:2]):
            array = made.cuda_array_interface()
            self.assertEqual(array["data"][0], 0)
            self.assertEqual(from_cai(Foreign(made)).shape, (0, 3))
        self.assertEqual(from_cai(Foreign(made, data=(64, False))).data_ptr, 0)
        with cgtree.Context("host") as context:
            step = context.compile(lambda x: x * 2, framework="numpy")
            for _ in range(4):
                self.assertEqual(step(made).shape, (0, 3))

    # Acceptance: cai 6.
    def test_06_no_dimensions(self):
        made = tensor(numpy.float32(7))
        self.assertEqual(made.cuda_array_interface()["shape"], ())
        self.assertEqual(values_of(from_cai(Foreign(made))), 7)

    # Acceptance: cai 7.
    def test_07_pointer_of_a_slice(self):
        made = tensor(floats(5, 6))
        part = made[2, 3:]
        self.assertEqual(part.cuda_array_interface()["data"][0], made.data_ptr + (2 * 6 + 3) * 4)

    # Acceptance: cai 8.
    def test_08_swapped_bytes(self):
        array = Foreign(tensor(floats(4)), typestr=">f4")
        self.assertRefused(BufferError, "'>f4'", from_cai, array)

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
    def test_10_types(self):
        for name, text in TYPES.items():
            made = cgtree.empty((3,), name, "host")
            self.assertEqual(made.cuda_array_interface()["typestr"], text)
            wanted = name if "V" in text else None
            self.assertEqual(from_cai(Foreign(made), dtype=wanted).dtype, name)
        eight = tensor(numpy.zeros(3))
        for text in ("<f16", "|S8", "|V8", "<U2", "<m8[ns]"):
            self.assertRefused(BufferError, text, from_cai, Foreign(eight, typestr=text))
        self.assertEqual(from_cai(Foreign(eight, typestr="<M8[ns]"), dtype="int64").dtype, "int64")
        for array in (floats(3), Foreign(tensor(floats(3)))):
            self.assertRefused(ValueError, "is float32, but int32 was asked for",
                               cgtree.as_tensor, array, dtype="int32")

    # Acceptance: cai 11.
    def test_11_mask(self):
        made = tensor(floats(4))
        array = Foreign(made, mask=Foreign(made))
        self.assertRefused(NotImplementedError, "masked arrays", from_cai, array)

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

    # Acceptance: cai 15.
    def test_15_memory_out_of_reach(self):
        values = floats(4)
        array = Foreign(tensor(values), data=(values.ctypes.data, False))
        self.assertRefused(ValueError, "ordinary memory", from_cai, array)
        freed = tensor(floats(4))
        entries = freed.cuda_array_interface(idle=True)
        del freed
        gc.collect()
        self.assertRefused(ValueError, "freed", cgtree.from_cuda_array_interface, entries,
                           device="host")
        other = cgtree.empty((4,), device="host:1")
        self.assertRefused(ValueError, "host:1", from_cai, Foreign(other), device="host:0")
        self.assertRefused(ValueError, "null", from_cai, Foreign(other, data=(0, False)))

    # Acceptance: cai 16.
    def test_16_more_than_four_gigabytes(self):
        made = from_cai(Foreign(tensor(numpy.zeros(8)), shape=(1 << 30, 8), strides=(0, 8)))
        self.assertEqual(made.nbytes, 64 << 30)
        self.assertEqual(made.cuda_array_interface()["shape"], (1 << 30, 8))
        self.assertEqual(made[(1 << 30) - 1].data_ptr, made.data_ptr)


class NoDict:
    __cuda_array_interface__ = ("shape", (1,))


if __name__ == "__main__":
    unittest.main()
