"""Blocks: finds the tensor of cgtree that holds the address of another library's array."""

import weakref

from cgtree._errors import InvalidArgument


class Blocks:
    """The tensors whose memory another library uses, as long as it uses them."""

    def __init__(self):
        self._tensors = weakref.WeakValueDictionary()

    def add(self, tensor):
        known = self._tensors.get(tensor.data_ptr)
        if known is None or known.nbytes <= tensor.nbytes:  # a view may begin where its base does
            self._tensors[tensor.data_ptr] = tensor

    def find(self, address):
        """Returns the tensor whose memory holds `address`, or None."""
        for begin, tensor in list(self._tensors.items()):
            if begin <= address < begin + max(tensor.nbytes, 1):
                return tensor
        return None


def results(returned, to_tensor):
    """Returns the result of a step function with `to_tensor` applied to each array."""
    if returned is None:
        return None
    if isinstance(returned, (tuple, list)):
        return type(returned)(to_tensor(array) for array in returned)
    return to_tensor(returned)


def expect_gpu(tensor, framework):
    """Raises InvalidArgument for memory of the host, which the framework would use as a GPU's."""
    if tensor.device.startswith("host"):
        raise InvalidArgument(f"{tensor!r} cannot be {framework}'s: it lies on the host; copy it "
                              "to the GPU first, with empty(..., device='cuda') and copy_from()")
