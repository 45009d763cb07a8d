"""What the suites of the frameworks share: arrays on the GPU, and when a suite is skipped."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import frameworks  # noqa: E402
from frameworks import cgtree  # noqa: E402

GPU = "cuda:0"


class Foreign:
    """An object that has nothing but the interface, with fields changed."""

    def __init__(self, inner, **changes):
        self.inner = inner
        entries = dict(getattr(inner, "__cuda_array_interface__"))
        entries.update(changes)
        self.__cuda_array_interface__ = entries


def filled(values, device=GPU):
    tensor = cgtree.empty(values.shape, values.dtype, device)
    tensor.copy_from(values)
    return tensor


class FrameworkSuite(unittest.TestCase):
    framework_name = ""

    @classmethod
    def setUpClass(cls):
        if cgtree.best_device().startswith("host"):
            raise unittest.SkipTest("no GPU")
        cls.framework, why = frameworks.load(cls.framework_name)
        if cls.framework is None:
            raise unittest.SkipTest(f"{cls.framework_name}: {why}")

    def assertSame(self, tensor, array, values):
        self.assertEqual(self.framework.pointer(array), tensor.data_ptr)
        numpy.testing.assert_array_equal(self.framework.read(array), values)
