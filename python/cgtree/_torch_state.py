"""The Python state that custom operators of a graph read when they run; replays do not read it.

A call depends on the values of the globals and closure variables that their code names: each value has its own
recordings. Other state that the code reads (attributes of modules, files, the clock) is not followed.
"""

import types

import torch

from cgtree import _torch_versions as versions

MAX_ITEMS = 64  # of all containers together
_PLAIN = (bool, int, str, bytes, complex, type(None))
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


def python_operators(graph):
    """Returns the custom operators of a graph whose kernels are Python code, and of the graphs that it calls."""
    found = [node.target for part in [graph, *_inner(graph)] for node in part.graph.nodes
             if isinstance(node.target, torch._ops.OpOverload) and versions.is_python(node.target)]
    return list(dict.fromkeys(found))


def _inner(graph):
    return [part for name, part in graph.named_modules() if name and isinstance(part, torch.fx.GraphModule)]


def state_of(operators):
    """Returns a function that returns the state which these operators read now, as a value that can be compared, or
    None if they read none."""
    places = {}
    seen = set()
    for operator in operators:
        for function in versions.functions_of(operator.name()):
            _find_places(function, places, seen)
    if not places:
        return None
    readers = tuple(places.values())

    def state():
        room = [MAX_ITEMS]
        return tuple([_snapshot(read(), room) for read in readers])

    return state


def _find_places(function, places, seen):
    """Adds a reader for each global and each closure variable that the code of a function names, and that may hold
    state."""
    if function.__code__ in seen or versions.is_own(function):
        return
    seen.add(function.__code__)
    names = {name for code in versions.codes_of(function.__code__) for name in code.co_names}
    for name in sorted(names & function.__globals__.keys()):
        _add(function.__globals__[name], (id(function.__globals__), name),
             lambda given=function.__globals__, name=name: given.get(name), places, seen)
    for cell in function.__closure__ or ():
        try:
            _add(cell.cell_contents, id(cell), lambda cell=cell: cell.cell_contents, places, seen)
        except ValueError:  # an empty cell
            pass


def _add(value, key, read, places, seen):
    if isinstance(value, types.FunctionType):
        _find_places(value, places, seen)
    elif not isinstance(value, _CODE):
        places[key] = read


def _snapshot(value, room, depth=0):
    """Returns a value that stays equal as long as nothing in `value` changes."""
    if isinstance(value, float):
        return (float, value.hex())  # -0.0 is not 0.0, and NaN equals itself
    if isinstance(value, _PLAIN):
        return (type(value), value)
    room[0] -= 1
    if room[0] < 0 or depth > 3:
        return id(value)
    if isinstance(value, (list, tuple)):
        return (type(value), len(value), *[_snapshot(item, room, depth + 1) for item in value[:room[0] + 1]])
    if isinstance(value, dict):
        items = list(value.items())
        return (type(value), len(items), *[(_snapshot(name, room, depth + 1), _snapshot(item, room, depth + 1))
                                           for name, item in items[:room[0] + 1]])
    held = getattr(value, "__dict__", None)
    if type(held) is not dict or isinstance(value, (torch.Tensor, *_CODE)):
        return id(value)
    plain = {name: item for name, item in held.items() if isinstance(item, (float, *_PLAIN))}
    return (id(value), _snapshot(plain, room, depth + 1))
