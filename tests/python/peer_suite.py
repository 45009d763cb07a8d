"""What the suites of the peers share: arrays on the GPU, and skipping where there is no peer."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import peers  # noqa: E402
from peers import cgtree  # noqa: E402

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


class PeerSuite(unittest.TestCase):
    peer_name = ""

    @classmethod
    def setUpClass(cls):
        if cgtree.best_device().startswith("host"):
            raise unittest.SkipTest("no GPU")
        cls.peer, why = peers.load(cls.peer_name)
        if cls.peer is None:
            raise unittest.SkipTest(f"{cls.peer_name}: {why}")

    def assertSame(self, tensor, array, values):
        self.assertEqual(self.peer.pointer(array), tensor.data_ptr)
        numpy.testing.assert_array_equal(self.peer.read(array), values)
