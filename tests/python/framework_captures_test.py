"""Arrays of cgtree and of a framework on a GPU: exports inside a capture with stream=None (T-CAI 31), and managed
memory. Each test is skipped without its framework or a GPU.

usage: framework_captures_test.py [--json=FILE] [unittest options]
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import frameworks  # noqa: E402
from frameworks import cgtree  # noqa: E402

GPU = "cuda:0"


def exported_in_capture(framework, take):
    """A step that exports its input to a framework during its capture, and counts its replays."""
    context = cgtree.Context(GPU)

    def step(x):
        take(x)
        y = cgtree.empty(x.shape, x.dtype)
        y.copy_from(x)
        return y

    compiled = context.compile(step)
    for call in range(5):
        context.mark_step()
        x, values = cgtree.empty((8,), "float32", GPU), numpy.full(8, call, "float32")
        x.copy_from(values)
        numpy.testing.assert_array_equal(cgtree.numpy.copy(compiled(x)), values)
    framework.synchronize()
    return compiled.stats()["replays"]


class FrameworkCapturesTest(unittest.TestCase):
    def load(self, name):
        if cgtree.best_device().startswith("host"):
            self.skipTest("no GPU")
        framework, why = frameworks.load(name)
        if framework is None:
            self.skipTest(f"{name}: {why}")
        return framework

    def take_with(self, name, convert):
        framework = self.load(name)
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

    def test_managed_memory_is_taken(self):
        cupy = self.load("cupy").library
        array = cupy.ndarray((16,), "float32", cupy.cuda.malloc_managed(64))
        array.fill(3)
        taken = cgtree.from_cuda_array_interface(array, owner=array)
        numpy.testing.assert_array_equal(cgtree.numpy.copy(taken), numpy.full(16, 3.0))


def main():
    path = next((a.partition("=")[2] for a in sys.argv if a.startswith("--json=")), None)
    result = unittest.main(argv=[a for a in sys.argv if not a.startswith("--json=")], exit=False).result
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"program": "framework_captures_test", "run": result.testsRun,
                       "wrong": {str(test): why for test, why in result.errors + result.failures},
                       "skipped": {str(test): why for test, why in result.skipped}}, file, indent=1)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
