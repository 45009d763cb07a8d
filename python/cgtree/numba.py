"""Numba as a framework. Its kernels take a stream at each launch: give them stream()."""

import functools

import numpy
from numba import cuda

from cgtree import _cgtree
from cgtree._blocks import Blocks, expect_gpu, results

_blocks = Blocks()


class _Interface:
    """The interface of a tensor without a stream: we answer for the order, so nobody waits."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.__cuda_array_interface__ = tensor.cuda_array_interface(idle=True)


def as_array(tensor):
    """A device array of the same memory, which it keeps. Work on it belongs on stream()."""
    expect_gpu(tensor, "Numba")
    _blocks.add(tensor)
    return cuda.as_cuda_array(_Interface(tensor), sync=False)


def from_array(array):
    """A tensor of the same memory: of the pool, where the array came from empty()."""
    interface = array.__cuda_array_interface__
    address = interface["data"][0]
    owner = _blocks.find(address)
    if owner is None:
        return _cgtree.as_tensor(array)
    dtype = numpy.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is None:
        strides = [dtype.itemsize] * len(interface["shape"])
        for axis in range(len(strides) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * interface["shape"][axis + 1]
    return _cgtree.view(owner, address, interface["shape"], strides, dtype)


def empty(shape, dtype="float32"):
    """cgtree.empty() as a device array: in a step function, memory of the pool."""
    return as_array(_cgtree.empty(shape, dtype))


def stream():
    """current_stream() for kernel[blocks, threads, cgtree.numba.stream()](...)."""
    return cuda.external_stream(_cgtree.current_stream().ptr)


def step_function(function):
    """A step function of tensors from a function of device arrays."""
    @functools.wraps(function)
    def run(*tensors):
        return results(function(*map(as_array, tensors)), from_array)

    return run
