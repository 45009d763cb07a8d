"""Cuts a graph of PyTorch's operators at what cannot be recorded, so that the rest of it is.

    folded     what is made of constants alone, such as the copy of a small tensor of the CPU to the GPU:
               made once, at the first call
    outside    operators that read or make tensors of the CPU, and those that read a value back: they run
               eagerly between recordings, and as early as they can
    inside     all others: one recording for each run of them
"""

import functools

import torch
from torch.fx.passes.split_module import split_module

from cgtree import _torch_versions as versions

# These wait for a value, or choose a size by it.
READS_BACK = ("_local_scalar_dense", "nonzero", "unique", "_unique2", "unique_dim",
              "unique_consecutive", "masked_select", "repeat_interleave", "bincount", "equal")


def _tensors(value):
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


def _values(node):
    return _tensors(node.meta.get("val"))


def _is_random(node):
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_outside(node, device):
    """Returns whether an operator cannot be a part of a recording on this device."""
    if node.op != "call_function":
        return False
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    if name in READS_BACK and not (name == "repeat_interleave" and "output_size" in node.kwargs):
        return True
    arguments = node.all_input_nodes
    if torch.Tag.pointwise in getattr(node.target, "tags", ()):
        # Such a number is an argument of the kernel, as that of any Python number.
        numbers = [given for given in arguments if _is_constant_number(given)]
        arguments = [given for given in arguments if given not in numbers]
        if numbers and not arguments:
            return True
    given = [value for argument in arguments for value in _values(argument)]
    return any(value.device != device for value in (*given, *_values(node)))


def _is_constant_number(node):
    return node.op == "get_attr" and all(value.dim() == 0 and value.device.type == "cpu"
                                         for value in _values(node)) and bool(_values(node))


class Piece:
    """Part of a graph: `call` takes a list of `inputs`, by name, and returns what `outputs` names: a dict
    from positions to names, or one name for what it returns as it is. `dead`: names that nothing after it uses."""

    def __init__(self, call, inputs, outputs, dead):
        self.call, self.inputs, self.outputs, self.dead = call, inputs, outputs, dead


def as_list(model):
    """Returns a boxed function that returns a list, where a piece with one result returns it alone."""
    def run(inputs):
        results = model(inputs)
        if isinstance(results, (list, tuple)):
            return list(results)
        return [] if results is None else [results]

    return run


def fold(graph, outside):
    """Replaces what is made of constants alone, and begins outside, by constants that are made once."""
    folded = []
    for node in graph.graph.nodes:
        if node.op == "get_attr" and isinstance(_attribute(graph, node.target), torch.Tensor):
            folded.append(node)
        elif (node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
              and not node.target._schema.is_mutable and not _is_random(node)
              and all(given in folded for given in node.all_input_nodes)
              and (node.all_input_nodes or outside(node)) and not _has_symbols(node)):
            folded.append(node)
    made = {}

    def make(node):
        if node.op == "get_attr":
            return _attribute(graph, node.target)
        if node not in made:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), make)
            made[node] = node.target(*args, **kwargs)
        return made[node]

    with torch.no_grad(), versions.without_modes():
        for node in folded:
            if outside(node) or any(given in made for given in node.all_input_nodes):
                make(node)  # others can be recorded as they are
    for number, (node, value) in enumerate(made.items()):
        if not isinstance(value, torch.Tensor):
            continue
        used = [user for user in node.users if user not in made]
        if used:
            name = f"_folded_{number}"
            graph.register_buffer(name, value, persistent=False)
            with graph.graph.inserting_before(node):
                constant = graph.graph.get_attr(name)
            constant.meta = dict(node.meta)
            node.replace_all_uses_with(constant, delete_user_cb=lambda user: user in used)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _attribute(graph, name):
    return functools.reduce(getattr, name.split("."), graph)


def _has_symbols(node):
    found = []
    torch.fx.node.map_aggregate((node.args, node.kwargs), lambda given: found.append(
        isinstance(given, (torch.SymInt, torch.SymFloat, torch.SymBool))) or given)
    return any(found)


def _order(graph, outside):
    """Returns the number of its piece for each node, and moves what is outside and can be early to the
    front. Numbers of pieces that are recorded are odd."""
    numbers, early = {}, set()
    first = next(node for node in graph.graph.nodes if node.op not in ("placeholder", "get_attr"))
    for node in list(graph.graph.nodes):
        if outside(node) and not _is_random(node) and not getattr(
                node.target._schema, "is_mutable", True) and all(
                given in early or given.op in ("placeholder", "get_attr")
                for given in node.all_input_nodes):
            early.add(node)
            if node is not first:
                first.prepend(node)
            else:
                first = node.next
    number = 0
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        is_recorded = not outside(node)
        if is_recorded != bool(number % 2):
            number += 1
        numbers[node] = number
    return numbers


def partition(graph, outside, make):
    """Returns a boxed function that runs the pieces of a graph, or None if nothing of it can be recorded.

    outside(node): whether a node is no part of a recording. make(piece graph, names of its inputs):
    returns a boxed function that records the piece.
    """
    fold(graph, outside)
    if not any(outside(node) for node in graph.graph.nodes):
        return make(graph, [node.name for node in graph.graph.find_nodes(op="placeholder")])
    numbers = _order(graph, outside)
    if not any(number % 2 for number in numbers.values()):
        return None
    whole = split_module(graph, None, lambda node: numbers.get(node, 0), keep_original_order=True)
    return Pieces(whole, make)


def _outputs(node, part, is_recorded):
    """Returns what Piece.outputs is to be for a call of the piece."""
    if isinstance(part.graph.output_node().args[0], (list, tuple)):
        return {user.args[1]: user.name for user in node.users}
    if not node.users:
        return {}
    return {0: node.name} if is_recorded else node.name


class Pieces:
    """Runs pieces one after the other, and releases each value after its last use."""

    def __init__(self, whole, make):
        self._boxed_call = True
        self._names = [node.name for node in whole.graph.find_nodes(op="placeholder")]
        self._results = whole.graph.output_node().args[0]
        self._is_single = isinstance(self._results, torch.fx.Node)
        last = {}
        for node in whole.graph.nodes:
            for given in node.all_input_nodes:
                last[given.name] = node
        self._constants = {node.name: _attribute(whole, node.target)
                           for node in whole.graph.find_nodes(op="get_attr")}
        self._pieces = []
        for node in whole.graph.nodes:
            dead = [name for name, user in last.items() if user is node]
            if node.op == "call_module":
                part = getattr(whole, node.target)
                names = [given.name for given in node.args]
                is_recorded = int(node.target.rpartition("_")[2]) % 2
                call = make(part, names) if is_recorded else versions.boxed(part, ())
                self._pieces.append(Piece(call, names, _outputs(node, part, is_recorded), dead))
            elif node.op == "call_function" and self._pieces:
                self._pieces[-1].dead.extend(dead)

    def __call__(self, inputs):
        values = dict(zip(self._names, inputs))
        values.update(self._constants)
        inputs.clear()
        for piece in self._pieces:
            given = [values[name] for name in piece.inputs]
            for name in piece.dead:
                values.pop(name, None)
            made = piece.call(given)
            if isinstance(piece.outputs, dict):
                for position, name in piece.outputs.items():
                    values[name] = made[position]
            else:
                values[piece.outputs] = made
            del made, given
        if self._is_single:
            return [values[self._results.name]]
        return [values[item.name] if isinstance(item, torch.fx.Node) else item
                for item in self._results]
