"""Nested arguments and results of PyTorch programs, as a list of tensors and a shape.

flatten((x, {"scale": 2}), leaves) appends x to `leaves` and returns the shape of the value: nodes
(kind, what, children) that are equal for two values if these differ in their tensors alone.
unflatten(shape, iter(leaves)) is the inverse.

    kind          what                      of
    "tensor"      None                      torch.Tensor and torch.nn.Parameter
    "odd"         why                       tensors that cannot be inputs, see odd()
    "value"       (type, value)             None, numbers, strings, dtypes and the like
    "object"      Same(object)              what is compared by identity: modules, functions
    list, tuple   None                      those
    dict          its keys                  those
    "fields"      (type, names)             dataclasses
    "sequence"    type                      named tuples, torch.return_types
    "registered"  (type, Context(...))      what torch.utils._pytree knows, such as ModelOutput
"""

import dataclasses
import enum

import torch
from torch.utils import _pytree

from cgtree._errors import InvalidArgument

TENSOR = ("tensor", None, ())
PLAIN_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
VALUES = frozenset((type(None), bool, int, complex, str, bytes, type(...), torch.dtype,
                    torch.device, torch.layout, torch.memory_format, torch.Size))


class Same:
    """An object that equals itself alone, whatever its type says of equality."""

    __slots__ = ("object",)

    def __init__(self, given):
        self.object = given

    def __eq__(self, other):
        return type(other) is Same and self.object is other.object

    def __hash__(self):
        return id(self.object)


class Context:
    """What a registered container says of itself beside its children; it need not be hashable."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Context and self.value == other.value

    def __hash__(self):
        return 0


def odd(tensor):
    """Returns why a tensor is no input or output of a recording: its memory does not hold its values
    in rows. None of others."""
    if type(tensor) not in PLAIN_TENSORS:
        return f"a {type(tensor).__name__}, another class than torch.Tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor with the layout {tensor.layout}"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_conj() or tensor.is_neg():
        return "a tensor with the conjugate or the negative bit"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"a tensor on {tensor.device}"
    return None


def flatten(value, leaves):
    """Appends the tensors of `value` to `leaves`, and returns its shape.

    Raises InvalidArgument for a subclass of dict that is not registered.
    """
    kind = type(value)
    if kind in PLAIN_TENSORS:
        leaves.append(value)
        why = odd(value)
        return ("odd", why, ()) if why else TENSOR
    if kind in VALUES:
        return ("value", (kind, value), ())
    if kind is float:
        return ("value", (kind, value.hex()), ())  # -0.0 is not 0.0, and NaN equals itself
    if kind is tuple or kind is list:
        return (kind, None, tuple([flatten(item, leaves) for item in value]))
    if kind is dict:
        return (kind, tuple(value), tuple([flatten(item, leaves) for item in value.values()]))
    return _flatten_other(value, kind, leaves)


def _flatten_other(value, kind, leaves):
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return ("odd", odd(value), ())
    registered = _pytree.SUPPORTED_NODES.get(kind)
    if registered is not None:
        children, context = registered.flatten_fn(value)
        return ("registered", (kind, Context(context)),
                tuple([flatten(item, leaves) for item in children]))
    if isinstance(value, tuple):
        return ("sequence", kind, tuple([flatten(item, leaves) for item in value]))
    if isinstance(value, (torch.nn.Module, enum.Enum, type)):
        return ("object", Same(value), ())
    if dataclasses.is_dataclass(value):
        names = tuple([field.name for field in dataclasses.fields(value)
                       if hasattr(value, field.name)])
        return ("fields", (kind, names),
                tuple([flatten(getattr(value, name), leaves) for name in names]))
    if isinstance(value, dict):
        raise InvalidArgument(f"PyTorch does not know how to make a {kind.__name__} again: "
                              "register it with torch.utils._pytree.register_pytree_node()")
    return ("object", Same(value), ())


def unflatten(shape, leaves):
    """Returns a value of this shape with the tensors of the iterator `leaves`."""
    kind, what, children = shape
    if kind in ("tensor", "odd"):
        return next(leaves)
    if kind == "value":
        return float.fromhex(what[1]) if what[0] is float else what[1]
    if kind == "object":
        return what.object
    made = [unflatten(child, leaves) for child in children]
    if kind is list:
        return made
    if kind is tuple:
        return tuple(made)
    if kind is dict:
        return dict(zip(what, made))
    if kind == "registered":
        return _pytree.SUPPORTED_NODES[what[0]].unflatten_fn(made, what[1].value)
    if kind == "sequence":  # a named tuple takes one argument per item, torch.return_types one
        return what._make(made) if hasattr(what, "_make") else what(made)
    result = object.__new__(what[0])
    for name, item in zip(what[1], made):
        object.__setattr__(result, name, item)
    return result


def objects(shape):
    """Returns the objects that the shape compares by identity."""
    if shape[0] == "object":
        return [shape[1].object]
    return [found for child in shape[2] for found in objects(child)]


def odd_tensor(shape):
    """Returns what is odd about the first tensor that is, or None."""
    if shape[0] == "odd":
        return shape[1]
    return next(filter(None, map(odd_tensor, shape[2])), None)
