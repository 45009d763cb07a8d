"""What Numba's own tests of the CUDA array interface ask: tests/cudapy/test_cuda_array_interface.py."""

import gc
import os
import sys
import weakref

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
from framework_suite import GPU, Foreign, FrameworkSuite, filled  # noqa: E402
from frameworks import cgtree  # noqa: E402


class NumbaSuiteTest(FrameworkSuite):
    framework_name = "numba"

    @property
    def cuda(self):
        return self.framework.library

    def values(self, *shape):
        return numpy.arange(numpy.prod(shape), dtype="float64").reshape(shape)

    def as_array(self, tensor, **options):
        return self.cuda.as_cuda_array(tensor, **options)

    def test_as_cuda_array(self):
        values = self.values(10)
        tensor = filled(values)
        self.assertTrue(self.cuda.is_cuda_array(tensor))
        self.assertSame(tensor, self.as_array(tensor), values)

    def test_ownership(self):
        tensor = filled(self.values(10))
        seen = weakref.ref(tensor)
        array = self.as_array(tensor)
        del tensor
        self.assertIsNotNone(seen())
        self.assertEqual(self.framework.read(array)[3], 3)
        del array
        gc.collect()
        self.assertIsNone(seen())

    def test_kernel_arg(self):
        @self.cuda.jit
        def add_one(x):
            i = self_grid(1)
            if i < x.size:
                x[i] += 1

        self_grid = self.cuda.grid
        values = self.values(10)
        tensor = filled(values)
        add_one[1, 32](tensor)
        self.cuda.synchronize()
        numpy.testing.assert_array_equal(cgtree.numpy.copy(tensor), values + 1)

    def test_fortran_contiguous(self):
        values = self.values(4, 5)
        made = filled(numpy.ascontiguousarray(values.T))
        tensor = cgtree.view(made, made.data_ptr, values.shape, made.strides[::-1], made.dtype)
        array = self.as_array(tensor)
        self.assertTrue(array.is_f_contiguous())
        self.assertSame(tensor, array, values)

    def test_ufunc_arg(self):
        import numba

        @numba.vectorize(["f8(f8, f8)"], target="cuda")
        def add(a, b):
            return a + b

        values = self.values(10)
        tensor, out = filled(values), filled(numpy.zeros(10))
        numpy.testing.assert_array_equal(add(tensor, 1.0).copy_to_host(), values + 1)
        returned = add(tensor, 2.0, out=out)
        self.cuda.synchronize()
        self.assertEqual(self.framework.pointer(returned), out.data_ptr)
        numpy.testing.assert_array_equal(cgtree.numpy.copy(out), values + 2)

    def test_array_views(self):
        values = self.values(10, 20)
        tensor = filled(values)
        for key in (slice(3, 7), (slice(None), slice(None, None, 2)), (2, slice(1, 9, 3))):
            ours, theirs = self.as_array(tensor[key]), self.as_array(tensor)[key]
            self.assertEqual((ours.shape, ours.strides, ours.dtype.itemsize),
                             (theirs.shape, theirs.strides, theirs.dtype.itemsize))
            numpy.testing.assert_array_equal(self.framework.read(ours), values[key])
        self.as_array(tensor)[3] = 42.0
        self.cuda.synchronize()
        numpy.testing.assert_array_equal(cgtree.numpy.copy(tensor)[3], numpy.full(20, 42.0))

    def test_negative_strided_issue(self):
        tensor = filled(self.values(10))
        array = Foreign(tensor, strides=(-8,), data=(tensor.data_ptr + 72, False))
        with self.assertRaisesRegex(BufferError, "negative"):
            cgtree.from_cuda_array_interface(array, owner=array)

    def test_masked_array(self):
        array = self.cuda.to_device(self.values(10))
        with self.assertRaisesRegex(NotImplementedError, "masked arrays"):
            cgtree.from_cuda_array_interface(Foreign(array, mask=array))

    def test_zero_size_array(self):
        tensor = cgtree.empty((0,), "float64", GPU)

        @self.cuda.jit
        def add_one(x):
            if x.size > 0:
                x[0] += 1

        add_one[1, 32](tensor)
        self.cuda.synchronize()
        self.assertEqual(self.as_array(tensor).shape, (0,))

    def test_strides(self):
        tensor = filled(self.values(10, 20))
        self.assertIsNone(tensor.__cuda_array_interface__["strides"])
        self.assertIsNotNone(tensor[:, ::2].__cuda_array_interface__["strides"])

    def test_consuming_strides(self):
        values = self.values(10, 20)
        array = self.cuda.to_device(values)
        for strides in (None, (160, 8)):
            taken = cgtree.as_tensor(Foreign(array, strides=strides))
            self.assertSame(taken, array, values)

    def test_produce_stream(self):
        stream = cgtree.Stream(GPU)
        tensor = filled(self.values(10)).on_stream(stream)
        self.assertEqual(tensor.__cuda_array_interface__["stream"], stream.ptr)
        array = self.as_array(tensor)
        handle = array.stream.handle
        self.assertEqual(int(getattr(handle, "value", handle)), stream.ptr)

    def test_produce_no_stream(self):
        tensor = filled(self.values(10))
        self.assertIsNone(tensor.cuda_array_interface(idle=True)["stream"])

    def test_consume_sync_disabled(self):
        values = self.values(10)
        array = self.cuda.to_device(values)
        for sync in ("wait", "synchronize", "ignore"):
            self.assertSame(cgtree.from_cuda_array_interface(array, owner=array, sync=sync), array,
                            values)

    def test_launch_sync_two_streams(self):
        context = cgtree.Context(GPU)

        def step(x, y):
            out = cgtree.empty((2,) + x.shape, x.dtype)
            out[0].copy_from(x)
            out[1].copy_from(y)
            return out

        compiled = context.compile(step)
        streams = self.cuda.stream(), self.cuda.stream()
        for call in range(5):
            context.mark_step()
            values = self.values(10) + call, self.values(10) * call
            arrays = [self.cuda.to_device(value, stream=stream)
                      for value, stream in zip(values, streams)]
            numpy.testing.assert_array_equal(cgtree.numpy.copy(compiled(*arrays)),
                                             numpy.stack(values))
        self.assertEqual(compiled.stats()["replays"], 3)
