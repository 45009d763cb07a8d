"""NumPy as a framework, on the host device, for tests and for trying a step function without a GPU.

NumPy computes at once, so its work is not recorded by itself. launch() makes a graph node of it.
"""

import functools

import numpy

from cgtree import _cgtree
from cgtree._blocks import results
from cgtree._errors import InvalidArgument


def as_array(tensor):
    """Returns a numpy.ndarray of the same memory. Raises InvalidArgument for memory of a GPU."""
    if not tensor.device.startswith("host"):
        raise InvalidArgument(f"{tensor!r}: NumPy works on the host's memory; use copy()")
    return numpy.asarray(tensor)


def copy(tensor):
    """Copies a tensor of any device into a numpy.ndarray, and waits for the copy."""
    if tensor.dtype.startswith(("bfloat", "float8")):
        raise TypeError(f"NumPy has no {tensor.dtype}: use Tensor.tobytes()")
    return numpy.frombuffer(bytearray(tensor.tobytes()), tensor.dtype).reshape(tensor.shape)


def empty(shape, dtype="float32"):
    """Returns cgtree.empty() on the host device as an array."""
    return as_array(_cgtree.empty(shape, dtype, None if _cgtree.is_in_step() else "host"))


def launch(function, *tensors):
    """Calls cgtree.launch() with a function of arrays."""
    _cgtree.launch(lambda *given: function(*map(as_array, given)), *tensors)


def step_function(function):
    """Makes a step function of tensors from a function that maps arrays to new arrays.

    The function becomes one graph node. The shapes of its results must follow from those of its
    arguments alone; it is called once with arrays of ones to learn them.
    """
    @functools.wraps(function)
    def step(*tensors):
        like = function(*[numpy.ones(tensor.shape, tensor.dtype) for tensor in tensors])
        count = len(tensors)  # the node must not keep the tensors
        outputs = []

        def output(array):
            array = numpy.asarray(array)
            outputs.append(_cgtree.empty(array.shape, array.dtype))
            return outputs[-1]

        returned = results(like, output)

        def node(*arrays):
            given, places = arrays[:count], arrays[count:]
            values = function(*given)
            if values is None:
                return
            if not isinstance(values, (tuple, list)):
                values = [values]
            for place, value in zip(places, values):
                place[...] = value

        launch(node, *tensors, *outputs)
        return returned

    return step
