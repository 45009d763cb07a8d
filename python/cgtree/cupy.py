"""CuPy as a framework: it works on current_stream() and allocates from the pool."""

import contextlib
import functools

import cupy

from cgtree import _cgtree
from cgtree._blocks import expect_gpu, results


def _device_id(tensor):
    return int(tensor.device.rpartition(":")[2])


def as_array(tensor):
    """Returns a cupy.ndarray of the same memory, which it keeps alive. It does not wait.

    Work on the array must run on current_stream(), or on a stream that is ordered with the
    tensor's. Raises StaleTensor, and TypeError for bfloat16.
    """
    expect_gpu(tensor, "CuPy")
    memory = cupy.cuda.UnownedMemory(tensor.data_ptr, tensor.nbytes or 1, _cgtree.lend(tensor),
                                     _device_id(tensor))
    return cupy.ndarray(tensor.shape, dtype=tensor.dtype,
                        memptr=cupy.cuda.MemoryPointer(memory, 0), strides=tensor.strides)


def from_array(array):
    """Returns a tensor of the same memory, which is the pool's if it came from allocator()."""
    address = array.data.ptr
    owner = _cgtree.lent(address)
    if owner is None:
        return _cgtree.as_tensor(array)
    return _cgtree.view(owner, address, array.shape, array.strides, array.dtype)


def allocator(nbytes):
    """For cupy.cuda.set_allocator(): inside a step function it allocates from the pool."""
    device = cupy.cuda.Device().id
    if nbytes == 0:
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, device), 0)
    where = None if _cgtree.is_in_step() else f"cuda:{device}"
    tensor = _cgtree.empty((nbytes,), "uint8", where)
    memory = cupy.cuda.UnownedMemory(tensor.data_ptr, nbytes, _cgtree.lend(tensor), device)
    return cupy.cuda.MemoryPointer(memory, 0)


@contextlib.contextmanager
def step():
    """In the block CuPy's stream is current_stream(), and its allocator is allocator()."""
    stream = cupy.cuda.ExternalStream(_cgtree.current_stream().ptr)
    with stream, cupy.cuda.using_allocator(allocator):
        yield stream


def step_function(function):
    """Makes a step function of tensors from a function of cupy.ndarrays."""
    @functools.wraps(function)
    def run(*tensors):
        with step():
            return results(function(*map(as_array, tensors)), from_array)

    return run
