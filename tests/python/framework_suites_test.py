"""What Numba's and CuPy's own tests of the CUDA array interface ask, asked of cgtree's tensors.

Named after theirs: numba tests/cudapy/test_cuda_array_interface.py, and cupy
tests/cupy_tests/core_tests/test_ndarray_cuda_array_interface.py, core_tests/test_ndarray.py and
creation_tests/test_from_data.py. Where the framework or a GPU is not there they are skipped.

usage: framework_suites_test.py [--json=FILE] [unittest options]
"""

import json
import os
import sys
import traceback
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import frameworks  # noqa: E402
from numba_suite import NumbaSuiteTest  # noqa: E402,F401
from framework_suite import GPU, Foreign, FrameworkSuite, filled  # noqa: E402
from frameworks import cgtree  # noqa: E402


class CupySuiteTest(FrameworkSuite):
    framework_name = "cupy"

    @property
    def cupy(self):
        return self.framework.library

    def test_value_type(self):
        tensor = filled(numpy.zeros((3, 4), "float32"))
        array = tensor.__cuda_array_interface__
        for key, kind in (("shape", tuple), ("typestr", str), ("data", tuple), ("version", int)):
            self.assertIs(type(array[key]), kind)
        self.assertIsNone(array["strides"])
        self.assertIsNone(array.get("descr"))
        self.assertIn(type(array["stream"]), (int, type(None)))

    def test_ufunc_elementwise_and_reductions(self):
        values = numpy.random.default_rng(1).standard_normal((6, 5)).astype("float32")
        for made, expected in ((filled(values), values), (filled(values).transpose(), values.T)):
            array = self.cupy.asarray(made)
            numpy.testing.assert_allclose(self.cupy.asnumpy(self.cupy.add(array, 1)), expected + 1)
            numpy.testing.assert_allclose(self.cupy.asnumpy(self.cupy.sum(array, axis=0)),
                                          expected.sum(axis=0), rtol=1e-5)

    def test_slicing_memory_pointer(self):
        tensor = filled(numpy.zeros((10, 20)))
        part = tensor[2:, 5:]
        self.assertEqual(self.cupy.asarray(part).data.ptr, tensor.data_ptr + (2 * 20 + 5) * 8)

    def test_stream_export(self):
        tensor = filled(numpy.zeros(4))
        self.assertEqual(tensor.__cuda_array_interface__["stream"], 1)
        stream = cgtree.Stream(GPU)
        context = cgtree.Context(GPU, stream=stream)
        with context.eager():
            made = cgtree.empty((4,))
            self.assertEqual(made.__cuda_array_interface__["stream"], stream.ptr)
        self.assertEqual(tensor.__cuda_array_interface__["stream"], 1)

    def test_zero_size(self):
        for tensor in (cgtree.empty((0, 3), "float32", GPU), filled(numpy.zeros((4, 3)))[2:2]):
            self.assertEqual(tensor.__cuda_array_interface__["data"][0], 0)
            self.assertEqual(self.cupy.asarray(tensor).shape, (0, 3))
        empty = self.cupy.zeros((5, 3))[3:3]
        self.assertEqual(cgtree.from_cuda_array_interface(empty, owner=empty).shape, (0, 3))

    def test_export_version_2(self):
        array = filled(numpy.zeros(4)).cuda_array_interface(version=2)
        self.assertEqual(array["version"], 2)
        self.assertNotIn("stream", array)

    def test_from_data_versions_and_strides(self):
        values = numpy.arange(12, dtype="float32").reshape(3, 4)
        array = self.cupy.asarray(values)
        for version in range(4):
            for strides in (None, (16, 4)):
                taken = cgtree.as_tensor(Foreign(array, version=version, strides=strides))
                self.assertSame(taken, array, values)

    def test_not_copied_and_order(self):
        values = numpy.arange(12, dtype="float32").reshape(3, 4)
        for order in "CF":
            array = self.cupy.array(values, order=order)
            taken = cgtree.from_cuda_array_interface(array, owner=array)
            self.assertEqual(taken.strides, array.strides)
            self.assertSame(taken, array, values)
            array += 1
            self.cupy.cuda.Device().synchronize()
            numpy.testing.assert_array_equal(cgtree.numpy.copy(taken), values + 1)

    def test_big_endian(self):
        array = self.cupy.zeros(4, "float32")
        with self.assertRaises(ValueError):
            cgtree.from_cuda_array_interface(Foreign(array, typestr=">f4"))

    def test_masked_array(self):
        array = self.cupy.zeros(4, "float32")
        with self.assertRaises(ValueError):
            cgtree.from_cuda_array_interface(Foreign(array, mask=array))

    def test_datetime(self):
        array = self.cupy.zeros(4, "int64")
        taken = cgtree.from_cuda_array_interface(Foreign(array, typestr="<M8[ns]"), owner=array,
                                                 dtype="int64")
        self.assertEqual(taken.dtype, "int64")

    def test_structured(self):
        array = Foreign(self.cupy.zeros(4, "int64"), typestr="|V8",
                        descr=[("a", "<i4"), ("b", "<f4")])
        with self.assertRaises(BufferError):
            cgtree.from_cuda_array_interface(array)

    def test_host_and_freed_pointers_are_refused(self):
        values = numpy.zeros(1 << 20)
        array = Foreign(self.cupy.zeros(4), data=(values.ctypes.data, False))
        with self.assertRaises(ValueError):
            cgtree.from_cuda_array_interface(array)
        memory = self.cupy.cuda.memory.alloc(1 << 26)
        pointer = memory.ptr
        del memory
        self.cupy.get_default_memory_pool().free_all_blocks()
        array = Foreign(self.cupy.zeros(4), data=(pointer, False))
        with self.assertRaises(ValueError):
            cgtree.from_cuda_array_interface(array)

    def test_managed_and_pinned_memory(self):
        memory = self.cupy.cuda.malloc_managed(64)
        array = self.cupy.ndarray((16,), "float32", memory)
        array.fill(3)
        taken = cgtree.from_cuda_array_interface(array, owner=array)
        numpy.testing.assert_array_equal(cgtree.numpy.copy(taken), numpy.full(16, 3.0))


def exported_in_capture(framework, take):
    """A step that hands its input to a framework while it is recorded and counts its replays."""
    context = cgtree.Context(GPU)

    def step(x):
        take(x)
        y = cgtree.empty(x.shape, x.dtype)
        y.copy_from(x)
        return y

    compiled = context.compile(step)
    for call in range(5):
        context.mark_step()
        values = numpy.full(8, call, "float32")
        numpy.testing.assert_array_equal(cgtree.numpy.copy(compiled(filled(values))), values)
    framework.synchronize()
    return compiled.stats()["replays"]


class CaptureSuiteTest(unittest.TestCase):
    """T-CAI 31: what is exported inside a capture says stream=None, and frameworks take it."""

    def take_with(self, name, convert):
        if cgtree.best_device().startswith("host"):
            self.skipTest("no GPU")
        framework, why = frameworks.load(name)
        if framework is None:
            self.skipTest(f"{name}: {why}")
        self.assertEqual(exported_in_capture(framework, lambda x: convert(framework.library, x)), 3)

    # Acceptance: cai 31.
    def test_cupy_takes_it(self):
        self.take_with("cupy", lambda cupy, x: cupy.asarray(x))

    # Acceptance: cai 31.
    def test_numba_takes_it(self):
        self.take_with("numba", lambda cuda, x: cuda.as_cuda_array(x))

    # Acceptance: cai 31.
    def test_torch_takes_it(self):
        self.take_with("torch", lambda torch, x: torch.as_tensor(x, device="cuda"))

    def test_torch_takes_dlpack(self):
        def convert(torch, x):
            stream = torch.cuda.ExternalStream(cgtree.current_stream().ptr)
            with torch.cuda.stream(stream):
                torch.from_dlpack(x)

        self.take_with("torch", convert)


class JsonResult(unittest.TextTestResult):
    """Keeps a line per test."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.lines = {}

    def startTest(self, test):
        super().startTest(test)
        self.lines[test.id()] = {"outcome": "passed"}

    def _note(self, test, outcome, error):
        text = "".join(traceback.format_exception(*error)) if isinstance(error, tuple) else error
        self.lines[test.id()] = {"outcome": outcome, "why": text}

    def addError(self, test, err):
        super().addError(test, err)
        self._note(test, "error", err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note(test, "failed", err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)


def main():
    path = next((a.partition("=")[2] for a in sys.argv if a.startswith("--json=")), None)
    arguments = [a for a in sys.argv if not a.startswith("--json=")]
    runner = unittest.TextTestRunner(resultclass=JsonResult)
    program = unittest.main(argv=arguments, testRunner=runner, exit=False)
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"program": "framework_suites_test", "tests": program.result.lines}, file,
                      indent=1)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
