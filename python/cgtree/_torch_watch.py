"""What a function of a PyTorch program uses beside its arguments, and whether it is still the same.

A recording holds the addresses of parameters, buffers and tensors of the closure, and what Python
made of numbers there. A Watch finds them once, from the function and the objects that are passed to
it, and tells at each call whether a name now stands for another object, or a tensor has moved.

    modules         their parameters, buffers, submodules, whether they are in training mode, and plain
                    values of those whose class is not PyTorch's
    functions       tensors, modules and plain values of the closure, of globals, of defaults, and of
                    other functions of the same package that are named
    other objects   the same, of their attributes, down to DEPTH objects
"""

import dis
import inspect
import types

import torch

from cgtree import _cgtree
from cgtree._torch_tree import Same, odd

PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
DEPTH = 2
MODULE = frozenset(vars(torch.nn.Module()))  # what each has


def _names(code):
    """Returns the globals that a function's code reads, those of the functions in it included."""
    names = {line.argval for line in dis.get_instructions(code) if line.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _is_of_torch(kind):
    return kind.__module__.partition(".")[0] == "torch"


def _package(function):
    return (getattr(function, "__module__", None) or "").partition(".")[0]


class Walk:
    """The search for all that a Watch compares."""

    def __init__(self, has_gradients):
        self._has_gradients = has_gradients
        self.dicts, self.places, self.cells = [], [], []
        self.tensors, self.generators = [], []
        self.state = []  # what decides which recordings may be replayed
        self._seen = set()

    def place(self, mapping, name, value, depth):
        """Notes that `mapping` has this value under this name."""
        self.places.append((mapping, name, value))
        self.value(value, depth)

    def value(self, value, depth):
        if isinstance(value, PLAIN):
            self.state.append((type(value), value))
        elif isinstance(value, torch.Tensor):
            self.tensor(value)
        elif isinstance(value, torch.Generator):
            self.generators.append(value)
        elif id(value) in self._seen:
            return
        elif isinstance(value, torch.nn.Module):
            self._seen.add(id(value))
            self.module(value)
        elif isinstance(value, (types.FunctionType, types.MethodType)):
            self._seen.add(id(value))
            self.function(value, depth)
        elif isinstance(value, (list, tuple, dict)):
            self._seen.add(id(value))
            for name, item in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(item, (torch.Tensor, torch.nn.Module, *PLAIN)):
                    self.place(value, name, item, depth)
        elif depth < DEPTH and isinstance(getattr(value, "__dict__", None), dict):
            self._seen.add(id(value))
            if not isinstance(value, (type, types.ModuleType)):
                self.attributes(vars(value), depth + 1)

    def tensor(self, tensor):
        if odd(tensor):
            self.state.append(Same(tensor))
            return
        self.tensors.append(tensor)
        self.state.append((tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype,
                           tensor.device, self._has_gradients and tensor.requires_grad))

    def module(self, module):
        attributes = vars(module)
        if "training" in attributes:  # compiled modules have that of another one
            self.place(attributes, "training", attributes["training"], 0)
        if not _is_of_torch(type(module)):
            for name, item in list(attributes.items()):
                if isinstance(item, PLAIN) and name not in MODULE:
                    self.place(attributes, name, item, 0)
        for mapping in (module._parameters, module._buffers, module._modules):
            self.dicts.append(mapping)
            self.state.append(tuple(mapping))
            for item in list(mapping.values()):
                self.value(item, 0)

    def attributes(self, mapping, depth):
        for name, item in list(mapping.items()):
            if isinstance(item, (torch.Tensor, torch.nn.Module, list, tuple, dict, *PLAIN)):
                self.place(mapping, name, item, depth)
            else:
                self.value(item, depth)

    def function(self, function, depth):
        if isinstance(function, types.MethodType):
            self.value(function.__self__, depth)
            return self.value(function.__func__, depth)
        function = inspect.unwrap(function)
        if not isinstance(function, types.FunctionType) or _package(function) == "torch":
            return None
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not set yet
                continue
            if not isinstance(value, (types.FunctionType, types.MethodType)):
                self.cells.append((cell, value))
            self.value(value, depth)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(value, depth)
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[name]
            if isinstance(value, (torch.Tensor, torch.nn.Module, *PLAIN)):
                self.place(function.__globals__, name, value, depth)
            elif not isinstance(value, types.FunctionType) or (
                    _package(value) == _package(function)):
                self.value(value, depth)
        return None


class Watch:
    """Compares what a function uses beside its arguments with what it was when last looked at.

    `owner`: a weak reference to one more object, or None. `has_gradients`: whether it matters if a
    tensor requires them. `state`: a number that is the same whenever
    all is the same. `tensors`, `generators`: those that it found. `watched`: what holds() asks.
    """

    def __init__(self, roots, owner=None, has_gradients=False):
        self._roots, self._owner, self._has_gradients = roots, owner, has_gradients
        self._states = {}
        self.refresh()

    def holds(self):
        """Returns whether nothing has changed since the last refresh()."""
        return self.watched.holds()

    def refresh(self):
        """Looks for everything anew."""
        walk = Walk(self._has_gradients)
        for root in self._roots:
            walk.value(root, 0)
        if self._owner is not None:
            walk.value(self._owner(), 0)
        self.tensors, self.generators = walk.tensors, walk.generators
        self.watched = _cgtree.Watched(walk.dicts, walk.places, walk.cells, walk.tensors,
                                       self._has_gradients)
        self.state = self._states.setdefault(tuple(walk.state), len(self._states))
