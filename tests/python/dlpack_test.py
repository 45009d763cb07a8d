"""T-DL: DLPack from Python, on the host device: capsules, arguments, errors and the exchange table."""

import ctypes
import gc
import subprocess
import sys
import threading
import types
import unittest
import unittest.mock
import weakref

import numpy

sys.path.insert(0, "tests/python")

from support import (  # noqa: E402,F401
    DELETER, KEPT, DLTensor, Exchange, Foreign, HandMade, Versioned, capsule_name, cgtree, exported, floats, from_cai,
    setUpModule, tensor, values_of)


class DlpackPythonTest(unittest.TestCase):
    def assertRefused(self, kind, text, call, *arguments, **options):
        with self.assertRaises(kind) as caught:
            call(*arguments, **options)
        self.assertIsInstance(caught.exception, cgtree.BoundaryError)
        self.assertIn(text, str(caught.exception))

    # Acceptance: dlpack 1.
    def test_01_max_version(self):
        made = tensor(floats(4))
        for version, name in ((None, "dltensor"), ((0, 8), "dltensor"),
                              ((1, 0), "dltensor_versioned"), ((10, 10), "dltensor_versioned")):
            self.assertEqual(capsule_name(made.__dlpack__(max_version=version)), name)
        for wrong in ((1,), (1, 2, 3), (-1, 0)):
            with self.assertRaises(cgtree.InvalidArgument):
                made.__dlpack__(max_version=wrong)
        for wrong in ("1.0", 1.5):
            with self.assertRaises(TypeError):
                made.__dlpack__(max_version=wrong)

    # Acceptance: dlpack 4.
    def test_04_consumed_once_or_never(self):
        made = HandMade()
        capsule = made.capsule()
        taken = cgtree.from_dlpack(capsule)
        self.assertEqual(capsule_name(capsule), "used_dltensor_versioned")
        self.assertRefused(ValueError, "consumed before", cgtree.from_dlpack, capsule)
        del capsule
        self.assertEqual(made.deleted, 0)
        del taken
        self.assertEqual(made.deleted, 1)

        inner = Foreign(tensor(floats(4)))
        seen = weakref.ref(inner)
        capsule = from_cai(inner).__dlpack__()
        del inner
        self.assertIsNotNone(seen())
        del capsule
        self.assertIsNone(seen())

    # Acceptance: dlpack 6.
    def test_06_the_last_handle_goes_on_another_thread(self):
        made = HandMade()
        handles = [made.take()]
        thread = threading.Thread(target=handles.clear)
        thread.start()
        thread.join()
        self.assertEqual(made.deleted, 1)

    # Acceptance: dlpack 6.
    def test_06_what_outlives_the_interpreter_is_leaked(self):
        program = ("import sys; sys.path.insert(0, 'python'); import cgtree, numpy\n"
                   "held = cgtree.as_tensor(numpy.zeros(4)); kept = numpy.from_dlpack(held)\n"
                   "sys.held = held; sys.capsule = held.__dlpack__()\n"
                   "context = cgtree.Context('host'); sys.f = context.compile(lambda x: x)\n"
                   "sys.f(held); print('end')\n")
        result = subprocess.run([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, check=False, timeout=60)
        self.assertEqual((result.returncode, result.stdout), (0, "end\n"))

    # Acceptance: dlpack 7.
    def test_07_read_only_both_ways(self):
        made = HandMade(flags=1).take()
        self.assertTrue(made.read_only)
        self.assertEqual(exported(made.__dlpack__(max_version=(1, 0))).flags & 1, 1)
        self.assertRefused(BufferError, "read-only", made.__dlpack__)
        self.assertFalse(HandMade().take().read_only)

    # Acceptance: dlpack 13.
    def test_13_the_hosts_memory_has_no_streams(self):
        made = tensor(floats(4))
        for stream in (-1, 0, 1, 2, 12345):
            self.assertRefused(ValueError, "stream", made.__dlpack__, stream=stream)
        for stream in (True, 1.0, "1"):
            with self.assertRaises(TypeError):
                made.__dlpack__(stream=stream)
        with self.assertRaises(TypeError):
            made.__dlpack__(streams=1)
        with self.assertRaises(TypeError):
            made.__dlpack__(None)

    # Acceptance: dlpack 14.
    def test_14_copy_and_device(self):
        made = tensor(floats(4))
        for copy, device in ((True, None), (True, (1, 0))):
            copied = exported(made.__dlpack__(copy=copy, dl_device=device, max_version=(1, 0)))
            self.assertEqual(copied.flags & 2, 2)
            self.assertNotEqual(copied.tensor.data, made.data_ptr)
        for copy in (None, False):
            same = exported(made.__dlpack__(copy=copy, dl_device=(1, 0), max_version=(1, 0)))
            self.assertEqual((same.flags, same.tensor.data), (0, made.data_ptr))
        self.assertRefused(BufferError, "asked for on", made.__dlpack__, dl_device=(2, 0))

    # Acceptance: dlpack 16.
    def test_16_during_a_capture(self):
        outcomes = []

        def step(x):
            for options in ({}, {"copy": True}):
                try:
                    outcomes.append(capsule_name(x.__dlpack__(**options)))
                except cgtree.CaptureError:
                    outcomes.append("refused")
            y = cgtree.empty(x.shape, x.dtype)
            y.copy_from(x)
            return y

        with cgtree.Context("host") as context:
            compiled = context.compile(step)
            for _ in range(4):
                context.mark_step()
                compiled(tensor(floats(4)))
            self.assertEqual(compiled.stats()["replays"], 2)
        self.assertEqual(outcomes, ["dltensor", "dltensor", "dltensor", "refused"])


    # Acceptance: dlpack 2, 8, 10, 12, 20.
    def test_20_what_the_library_refuses_has_a_class_of_pythons_and_is_deleted_once(self):
        self.assertEqual(tensor(floats(4)).__dlpack_device__(), (1, 0))
        self.assertEqual(HandMade(device_type=3).take().device, "host:0")
        for kind, text, made in (
                (BufferError, "DLPack 2.0", HandMade(major=2)), (BufferError, "lanes", HandMade(lanes=2)),
                (BufferError, "Hexagon", HandMade(device_type=16)), (BufferError, "has 9 dimensions", HandMade(ndim=9)),
                (ValueError, "ndim", HandMade(ndim=-1)), (ValueError, "null", HandMade(data=None)),
                (KeyError, "strides are null", HandMade(has_strides=False, minor=2))):
            with self.subTest(text):
                self.assertRefused(kind, text, made.take)
                self.assertEqual(made.deleted, 1)
        for thing in (1, None, "capsule", object()):
            self.assertRaises((TypeError, AttributeError), cgtree.from_dlpack, thing)


def exchange():
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    pointer = get(cgtree.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return ctypes.cast(pointer, ctypes.POINTER(Exchange)).contents


FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
TO_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))


class ExchangePythonTest(unittest.TestCase):
    # Acceptance: dlpack 17.
    def test_17_the_table(self):
        table = exchange()
        self.assertEqual((table.major, table.minor, table.previous), (1, 3, None))
        for name in ("allocate", "from_object", "to_object", "view_of_object", "current_stream"):
            self.assertTrue(getattr(table, name))

    # Acceptance: dlpack 17.
    def test_17_objects_there_and_back(self):
        table, made = exchange(), tensor(floats(3, 4))
        managed, back = ctypes.c_void_p(), ctypes.py_object()
        self.assertEqual(FROM_OBJECT(table.from_object)(made, ctypes.byref(managed)), 0)
        self.assertEqual(TO_OBJECT(table.to_object)(managed, ctypes.byref(back)), 0)
        self.assertEqual(back.value.data_ptr, made.data_ptr)
        numpy.testing.assert_array_equal(values_of(back.value), values_of(made))

    def test_17_memory_of_our_allocator_comes_back_as_the_pools(self):
        # As a library that allocates its outputs through the table, and wraps them in its own type.
        allocate = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p,
                                     ctypes.POINTER(ctypes.POINTER(Versioned)), ctypes.c_void_p,
                                     ctypes.c_void_p)(exchange().allocate)
        to_object, wrapped = TO_OBJECT(exchange().to_object), []

        def library_empty(like):
            shape = (ctypes.c_int64 * 1)(*like.shape)
            prototype = DLTensor(None, 1, 0, 1, 2, 32, 1, shape, None, 0)
            made, back = ctypes.POINTER(Versioned)(), ctypes.py_object()
            self.assertEqual(allocate(ctypes.addressof(prototype), ctypes.byref(made), None, None),
                             0)
            own = Versioned(1, 3, None, None, 0, made.contents.tensor)

            def delete(_):
                DELETER(made.contents.deleter)(made)

            callback = DELETER(delete)
            own.deleter = ctypes.cast(callback, ctypes.c_void_p)
            wrapped.append((own, callback, shape))
            self.assertEqual(to_object(ctypes.addressof(own), ctypes.byref(back)), 0)
            value = back.value
            ctypes.pythonapi.Py_DecRef(back)  # to_object() has returned a new reference
            return value

        def step(x):
            y = library_empty(x)
            cgtree.numpy.launch(lambda a, out: numpy.multiply(a, 2, out=out), x, y)
            return y, y[1:]

        with cgtree.Context("host") as context:
            compiled, held = context.compile(step), []
            for _ in range(6):
                x = floats(5)
                held.append((x, *compiled(tensor(x))))
                for values, y, tail in held:
                    numpy.testing.assert_array_equal(values_of(y), values * 2)
                    numpy.testing.assert_array_equal(values_of(tail), values[1:] * 2)
            del values, y, tail
            held.clear()
            for _ in range(4):
                x = floats(5)
                numpy.testing.assert_array_equal(values_of(compiled(tensor(x))[0]), x * 2)
            self.assertGreaterEqual(compiled.stats()["replays"], 4)

    def test_17_an_input_that_comes_back_is_the_input(self):
        def step(x):
            back = HandMade(numpy.from_dlpack(x)).take()
            KEPT.pop()  # it would keep x
            gc.collect()
            return back

        with cgtree.Context("host") as context:
            compiled = context.compile(step)
            for _ in range(5):
                context.mark_step()
                x = floats(5)
                numpy.testing.assert_array_equal(values_of(compiled(tensor(x))), x)

    def test_17_what_the_table_would_drop_is_refused(self):
        class Array:
            __dlpack_c_exchange_api__ = cgtree.Tensor.__dlpack_c_exchange_api__
            requires_grad = False

            def is_neg(self):
                return False

            def is_conj(self):
                return False

        torch = types.ModuleType("torch")
        for change, text in (({"requires_grad": True}, "detach"),
                             ({"is_neg": lambda _: True}, "resolve_neg"),
                             ({"is_conj": lambda _: True}, "resolve_conj")):
            with self.subTest(change=text):
                with self.assertRaisesRegex(cgtree.NotSupported, text):
                    cgtree.as_tensor(type("Array", (Array,), change)())
        with unittest.mock.patch.dict(sys.modules, torch=torch):
            for enabled, kind in ((True, cgtree.NotSupported), (False, TypeError)):
                torch.is_grad_enabled = lambda: enabled  # pylint: disable=cell-var-from-loop
                with self.assertRaises(kind):
                    cgtree.as_tensor(type("Array", (Array,), {"requires_grad": True})())

    # Acceptance: dlpack 17.
    def test_17_an_error_is_pythons(self):
        managed = ctypes.c_void_p()
        with self.assertRaises(TypeError):
            FROM_OBJECT(exchange().from_object)("no tensor", ctypes.byref(managed))

    # Acceptance: dlpack 17.
    def test_17_another_librarys_type_is_converted_through_its_table(self):
        class Array:
            """Has the table of Tensor, which refuses other objects."""
            __dlpack_c_exchange_api__ = cgtree.Tensor.__dlpack_c_exchange_api__

        with self.assertRaisesRegex(TypeError, "expected a cgtree.Tensor"):
            cgtree.as_tensor(Array())


if __name__ == "__main__":
    unittest.main()
