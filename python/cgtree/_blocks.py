"""Code that the frameworks share."""

from cgtree._errors import InvalidArgument


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
