"""Names of modules as scopes: the operators of a graph, and the modules of a program that runs eagerly."""

import contextlib
import re
import threading
from copy import deepcopy

import torch

from cgtree import _cgtree

_ROOT = re.compile(r"^[A-Z]\['[^']*'\]")  # L['self'] or G['model'], Dynamo's names of traced objects
_ITEM = re.compile(r"\.?(?:_modules)?\['?([^'\]]*)'?\]")


def _path(node):
    """Returns "layers/3/attention" for an operator whose module PyTorch knows; else ""."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    name = str(list(stack.values())[-1][0])
    return _ITEM.sub(r".\1", _ROOT.sub("", name)).strip(".").replace(".", "/")


def _change(scope, path):
    """Closes a scope and opens the next one, which it returns; None means no scope."""
    if scope is not None:
        _cgtree._close_scope(scope)
    return _cgtree._open_scope(path) if path else None


def with_scopes(module):
    """Returns a graph that opens the scope of each operator's module before the operator; the graph itself if no module
    is known. The operators of a backward pass have the modules of their forward operators."""
    if not any(_path(node) for node in module.graph.nodes if node.op == "call_function"):
        return module
    named = torch.fx.GraphModule(module, deepcopy(module.graph))
    scope, path = None, ""
    for node in list(named.graph.nodes):
        next_path = _path(node) if node.op == "call_function" else "" if node.op == "output" else path
        if next_path == path:
            continue
        path = next_path
        with named.graph.inserting_before(node):
            scope = named.graph.call_function(_change, (scope, path))
    return named


@contextlib.contextmanager
def name_modules(model, name=""):
    """Has each module of a model open a scope while it runs in the block: "layers/3/attention" below `name`.

    Use it for step functions with framework="torch", and Steps, whose work is recorded as it runs.
    Graphs of cgtree.torch.compile(kernels="eager") have the names without it.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    >>> with cgtree.torch.name_modules(model, "model"):
    ...     y = model(torch.ones(1, 2))
    """
    open_scopes = {}  # by module and thread: those of calls that have not returned

    def enter(part):
        def hook(module, *_):
            if not torch.compiler.is_compiling():
                of_thread = open_scopes.setdefault((module, threading.get_ident()), [])
                of_thread.append(_cgtree._open_scope(part))
        return hook

    def leave(module, *_):
        if torch.compiler.is_compiling():
            return
        if of_thread := open_scopes.get((module, threading.get_ident())):
            _cgtree._close_scope(of_thread.pop())

    with contextlib.ExitStack() as hooks:
        for path, module in model.named_modules():
            parent = path.rpartition(".")[0]
            part = "/".join([*_containers(model, parent), path.rpartition(".")[2]]) if path else name
            if not part:
                continue
            hooks.callback(module.register_forward_pre_hook(enter(part)).remove)
            hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
        yield model


def _containers(model, path):
    """Returns the names of the modules at the end of a path that have no forward(), and therefore are never
    entered."""
    names = []
    while path:  # of a ModuleList, for instance
        module = model.get_submodule(path)
        if type(module).forward is not torch.nn.Module.forward:
            break
        path, _, last = path.rpartition(".")
        names.insert(0, last)
    return names
