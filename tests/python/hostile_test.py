"""The fields of a hostile array, one at a time; boundary_fuzz.py combines them."""

import ctypes
import itertools
import sys
import unittest

import numpy

sys.path.insert(0, "tests/python")

from support import (  # noqa: E402,F401
    Exchange, Foreign, HandMade, cgtree, floats, from_cai, new_capsule, setUpModule, tensor)

TABLE = b"dlpack_exchange_api"  # a capsule keeps only the address of its name


class Index:
    """An integer with a side effect when it is read."""

    def __init__(self, deed, value=2):
        self.deed, self.value = deed, value

    def __index__(self):
        self.deed()
        return self.value


class Endless(list):
    def __iter__(self):
        return itertools.repeat(1)


class HostilePythonTest(unittest.TestCase):
    def test_lists_that_hold_one_another_are_refused(self):
        wide, itself = [], []
        for _ in range(12):
            wide = [wide] * 60
        itself.extend([itself, itself])
        made = tensor(floats(4))
        for value in (wide, itself):
            for key in ("shape", "data", "mask"):
                with self.subTest(key=key), self.assertRaises(cgtree.BoundaryError):
                    from_cai(Foreign(made, **{key: value}))
        with self.assertRaises(cgtree.InvalidArgument):
            cgtree.empty((1,), wide, "host")

    def test_a_list_is_what_it_holds_whatever_its_class_says(self):
        made = tensor(floats(2, 2))
        self.assertEqual(from_cai(Foreign(made, shape=Endless([2, 2]))).shape, (2, 2))
        self.assertEqual(made.reshape(Endless([4])).shape, (4,))

    def test_a_dict_that_changes_while_it_is_read(self):
        made = tensor(floats(2, 2))
        array = Foreign(made)
        entries = array.__cuda_array_interface__
        entries["shape"] = [Index(entries.clear), 2]
        with self.assertRaisesRegex(cgtree.MissingField, "missing"):
            from_cai(array)
        entries = Foreign(made).__cuda_array_interface__
        entries["version"] = Index(lambda: entries.pop("version"), 3)
        entries["strides"] = [Index(lambda: entries["strides"].clear(), 8), 4]
        self.assertEqual(cgtree.from_cuda_array_interface(entries, device="host").shape, (2, 2))

    def test_text_that_is_none_is_shown(self):
        with self.assertRaisesRegex(cgtree.BoundaryError, "udc80"):
            from_cai(Foreign(tensor(floats(4)), typestr="<f\udc80"))
        with self.assertRaisesRegex(cgtree.InvalidArgument, "udc80"):
            cgtree.empty((1,), "f\udc80", "host")

    def test_integers_of_more_than_64_bits_are_refused(self):
        made = tensor(floats(4))
        for use in (lambda: cgtree.empty((1 << 64,), device="host"), lambda: made[1 << 70],
                    lambda: cgtree.Stream("host", external=-1),
                    lambda: cgtree.Stream("host", external=1 << 64),
                    lambda: cgtree.Context("host", max_bytes=10 ** 5000),
                    lambda: cgtree.Context((1 + (1 << 32), 0)), lambda: cgtree.Context((1, -1))):
            with self.assertRaises(cgtree.InvalidArgument):
                use()

        class Producer:
            device = None

            def __dlpack__(self, **_):
                raise AssertionError("its device is none")

            def __dlpack_device__(self):
                return self.device

        for device in ((1, 1 << 32), (1 << 70, 0), (1,), (1, 0, 0), None, 1, (1.0, 0), {1: 0}):
            Producer.device = device
            with self.subTest(device=device), self.assertRaises(cgtree.WrongType):
                cgtree.from_dlpack(Producer())

    def test_strides_that_are_never_taken_may_be_anything(self):
        made = tensor(floats(4))
        for shape in ((1, 1 << 62), (0, 1 << 62)):
            taken = from_cai(Foreign(made, typestr="|u1", shape=shape, strides=(0, 0)))
            self.assertEqual(taken.shape, shape)
            taken = from_cai(Foreign(made, shape=shape, strides=(1 << 62, 0)))
            self.assertEqual((len(taken.strides), taken.cuda_array_interface()["shape"]),
                             (2, shape))
        self.assertEqual(made[::1 << 62].shape, (1,))
        with self.assertRaises(cgtree.InvalidArgument):
            made.reshape(-1, 1 << 62, 4)

    def test_a_table_without_functions_is_none(self):
        table = Exchange(1, 3)

        class Array(Foreign):
            __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(table), TABLE, None)

        class Bare:
            __dlpack_c_exchange_api__ = Array.__dlpack_c_exchange_api__

        made = tensor(floats(4))
        self.assertEqual(cgtree.as_tensor(Array(made), device="host").data_ptr, made.data_ptr)
        with self.assertRaises(cgtree.WrongType):
            cgtree.as_tensor(Bare())

    def test_an_offset_beyond_all_memory_is_refused(self):
        made = HandMade(byte_offset=1 << 63)
        with self.assertRaisesRegex(cgtree.WrongValue, "beyond"):
            made.take()
        self.assertEqual(made.deleted, 1)

    def test_views_stay_in_the_memory_of_their_owner(self):
        made = tensor(floats(4))
        address = made.data_ptr
        for begin, shape, strides in ((address, (5,), (4,)), (address - 4, (1,), (4,)),
                                      (address, (1 << 61, 2), (4, 1 << 62)),
                                      ((1 << 64) - 4, (4,), (4,)), (address + 16, (1,), (4,))):
            with self.subTest(shape=shape), self.assertRaises(cgtree.InvalidArgument):
                cgtree.view(made, begin, shape, strides, "float32")
        numpy.testing.assert_array_equal(
            numpy.asarray(cgtree.view(made, address + 4, (3,), (4,), "float32")),
            numpy.asarray(made)[1:])

    def test_types_that_are_none_are_named_by_their_kind_alone(self):
        class Endlessly:
            def __str__(self):
                raise AssertionError("not to be shown")

        with self.assertRaisesRegex(cgtree.InvalidArgument, "of type Endlessly"):
            cgtree.empty((1,), Endlessly(), "host")
        with self.assertRaisesRegex(TypeError, "Endlessly'> is no stream"):
            cgtree.Stream("host", external=Endlessly())


if __name__ == "__main__":
    unittest.main()
