"""Numba as a framework. Each launch of a kernel names its stream, which must be stream()."""

import functools

import numpy
from numba import cuda

from cgtree import _cgtree
from cgtree._blocks import expect_gpu, results


class _Interface:
    """The interface of a tensor without a stream, so that Numba does not wait; we keep order."""

    def __init__(self, tensor):
        self.lease = _cgtree.lend(tensor)
        self.__cuda_array_interface__ = tensor.cuda_array_interface(idle=True)


def as_array(tensor):
    """Returns a device array of the same memory. Work on it must run on stream()."""
    expect_gpu(tensor, "Numba")
    return cuda.as_cuda_array(_Interface(tensor), sync=False)


def from_array(array):
    """Returns a tensor of the same memory, which is the pool's if the array came from empty()."""
    interface = array.__cuda_array_interface__
    address = interface["data"][0]
    owner = _cgtree.lent(address)
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
    """Returns cgtree.empty() as a device array; in a step function it allocates from the pool."""
    return as_array(_cgtree.empty(shape, dtype))


def stream():
    """Returns current_stream() for kernel[blocks, threads, cgtree.numba.stream()](...)."""
    return cuda.external_stream(_cgtree.current_stream().ptr)


def step_function(function):
    """Makes a step function of tensors from a function of device arrays."""
    @functools.wraps(function)
    def run(*tensors):
        return results(function(*map(as_array, tensors)), from_array)

    return run
