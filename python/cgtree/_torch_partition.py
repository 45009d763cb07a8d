"""Cuts a graph of PyTorch's operators at those that cannot be recorded, so that the rest is
recorded.

    INSIDE     recorded: one recording for each run of such operators
    ONCE       made of constants alone, such as the copy of a small tensor of the CPU: made when the
               graph is compiled, and kept
    READ       the copy of a tensor of the CPU that may differ at each call: made before each replay, without a wait for
               the device
    OUTSIDE    operators that work on the CPU, and those that read a value back, torch.cond() and torch.while_loop()
               among them: they run eagerly between recordings, as early as they can
"""

import functools
import operator
from copy import deepcopy

import torch
from torch.fx.passes.split_module import split_module

from cgtree import _torch_versions as versions
from cgtree._errors import Error

INSIDE, ONCE, READ, OUTSIDE = "inside", "once", "read", "outside"

# Operators that copy their operands on the CPU to the device themselves, and wait for that.
_INDEX = ("index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put")
_MOVE = (*_INDEX, "where")
# Operators that compute the same bits from a number as a kernel argument and from a number on the
# device.
_SAME = ("add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.prims.device_put.default)  # eager, Inductor's
_CPU = torch.device("cpu")

_refused = set()  # operators that failed in a capture


def _tensors(value):
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


def _values(node):
    if node.op == "get_attr" and "val" not in node.meta:
        return _tensors(_attribute(node.graph.owning_module, node.target))
    return _tensors(node.meta.get("val"))


def _lies_on(node, device):
    return bool(_values(node)) and all(value.device == device for value in _values(node))


def _name(node):
    return getattr(getattr(node.target, "overloadpacket", None), "__name__", "")


def _is_number(node):
    return _lies_on(node, _CPU) and all(value.dim() == 0 for value in _values(node))


def refuse(graph, failed):
    """Excludes an operator that failed in a capture from recordings: in this graph; and in all graphs unless it is
    PyTorch's own, which may have failed because of earlier work. Returns whether the graph has the operator."""
    found = [node for node in graph.nodes if node.target is failed]
    for node in found:
        node.meta["refused"] = True
    if failed.namespace not in ("aten", "prims"):
        _refused.add(failed)
    return bool(found)


def refuse_always(operators):
    """Excludes these custom operators from recordings, in all graphs that are compiled from now on."""
    _refused.update(operators)
    for operator in operators:
        versions.partition_at(operator)


# Operators that call graphs, and read on the host which graph to call, or whether to call it once
# more.
_FLOW = {"cond": "torch.cond()", "while_loop": "torch.while_loop()",
         "while_loop_stack_output": "torch.while_loop()"}


def decides(node):
    """Returns the name of PyTorch's function by which a node, or a graph that it calls, decides which work follows, or
    None."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    if node.target.name() in _FLOW:
        return _FLOW[node.target.name()]
    parts = [_attribute(given.graph.owning_module, given.target)
             for given in node.all_input_nodes if given.op == "get_attr"]
    return next(filter(None, [decides(inner) for part in parts if isinstance(part, torch.fx.GraphModule)
                              for inner in part.graph.nodes]), None)


def decisions(graph):
    """Returns the names of the functions by which a graph decides which work follows."""
    return list(dict.fromkeys(filter(None, map(decides, graph.graph.nodes))))


def _reads_back(node):
    """Returns whether an operator waits for a value, or chooses a size by it."""
    tags = getattr(node.target, "tags", ())
    if decides(node):
        return True
    if "refused" in node.meta or node.target in _refused or versions.is_unsafe(node.target):
        return True
    if _name(node).lstrip("_").removeprefix("unsafe_").startswith("index"):
        return any(value.dtype in (torch.bool, torch.uint8) for indices in node.args[1:2]
                   if isinstance(indices, (list, tuple)) for given in indices
                   if given is not None for value in _values(given))
    if torch.Tag.dynamic_output_shape in tags:
        return node.kwargs.get("output_size") is None
    return torch.Tag.data_dependent_output in tags


# Operators that read a number of a tensor that is known without its values.
_SIZES = ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset")


def _computes_number(node):
    """Returns whether an operator computes with numbers that were read back, and uses no tensors, except one of a
    number on the device."""
    if _is_tensor_of_number(node) or "is_computed" in node.meta:
        return True
    if _name(node) in _SIZES:
        return versions.is_read_back(node.meta.get("val"))
    return (any(versions.is_read_back(given.meta.get("val")) for given in node.all_input_nodes)
            and not any(_values(given) for given in (*node.all_input_nodes, node)))


def _is_pure(node):
    target = node.target
    return (isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable
            and torch.Tag.nondeterministic_seeded not in target.tags)


def place_of(node, device, places):
    """Returns where a node of a graph for this device runs. `places`: those of the nodes before it."""
    if node.op == "get_attr":
        return ONCE if _values(node) else INSIDE
    if node.op != "call_function":
        return INSIDE
    arguments = node.all_input_nodes
    if node.target is operator.getitem:  # for an operator with several results
        return places.get(arguments[0], INSIDE)
    if _computes_number(node):
        of_places = {places.get(given) for given in arguments if given.op != "placeholder"}
        if of_places == {OUTSIDE} or _is_tensor_of_number(node) or "is_computed" in node.meta:
            return OUTSIDE
    if torch.Tag.pointwise in getattr(node.target, "tags", ()) and _name(node) not in _MOVE:
        # A number is an argument of the kernel, as any Python number is.
        numbers = [given for given in arguments if places.get(given) == ONCE and _is_number(given)]
        if len(numbers) < len(arguments):
            arguments = [given for given in arguments if given not in numbers]
    elsewhere = [value for given in (*arguments, node) for value in _values(given)
                 if value.device != device]
    is_outside = bool(elsewhere) or _reads_back(node)
    if (_is_pure(node) and (node.all_input_nodes or is_outside) and not _has_symbols(node)
            and all(places.get(given) == ONCE for given in node.all_input_nodes)):
        return ONCE
    if (node.target in _COPIES and device != _CPU
            and _lies_on(node, device) and _lies_on(node.args[0], _CPU)):
        return READ
    return OUTSIDE if is_outside else INSIDE


def places_of(graph, device):
    """Returns where each node of a graph runs."""
    places = {}
    for node in graph.nodes:
        places[node] = place_of(node, device, places)
    return places


def choose_by_masks(graph):
    """Replaces writes of one number under a mask by a choice: PyTorch would look up the positions, and wait for
    them."""
    for node in list(graph.nodes):
        if _name(node) != "index_put" or len(node.args) != 3 or len(node.args[1]) != 1:
            continue
        given, (mask,), number = node.args
        values = [value for item in (given, mask, number) if isinstance(item, torch.fx.Node)
                  for value in _values(item)]
        if len(values) != 3 or any(isinstance(size, torch.SymInt) for value in values
                                   for size in value.shape):
            continue
        x, chosen, written = values
        if (chosen.dtype is torch.bool and chosen.shape == x.shape and written.dim() == 0
                and written.dtype == x.dtype and x.is_contiguous() and chosen.is_contiguous()):
            node.target, node.args = torch.ops.aten.where.self, (mask, number, given)


def _copy_to(graph, given, device):
    return graph.call_function(torch.ops.aten._to_copy.default, (given,), {"device": device})


def _put_on(graph, given, device):
    return graph.call_function(torch.ops.prims.device_put.default, (given, device))


# By kind of number: its type as a tensor, and types of tensors with which tensor and number make the same bits, of the
# same type.
_NUMBERS = {torch.SymFloat: (torch.float64, (torch.float32, torch.float64)),
            torch.SymInt: (torch.int64, (torch.float32, torch.float64, torch.int64)),
            torch.SymBool: (torch.bool, (torch.float32, torch.float64, torch.int64, torch.bool))}
# The same for integers beside tensors with axes, which give the result its type.
_NARROW = (torch.int8, torch.int16, torch.int32, torch.uint8)
_WIDENED = (torch.float32, torch.float64, torch.bfloat16, torch.bool)  # they hold each integer, rounded
_FILLS = {"full": 1, "fill": 1, "scalar_tensor": 0}  # the argument that fills a tensor
_SLICES = {"slice": 2, "slice_scatter": 3}  # the argument at which the slice begins


def by_value(number, _):
    """Represents an integer as a tensor of a type in a graph: the recording takes it by value."""
    return number


def _is_tensor_of_number(node):
    return node.target in (by_value, torch.ops.cgtree.number.default)


def _is_symbol(value):
    return isinstance(value, tuple(_NUMBERS))


class _Numbers:
    """Gives operators of a graph numbers as tensors on the device: as plain numbers each value would need another
    recording. `same`: operators that make the same bits of both; `kinds`: of numbers; `copy_to`: copies a number to the
    device; takes_values: recordings take integers by value."""

    def __init__(self, graph, device, same, kinds, copy_to, takes_values):
        self._graph, self._device, self._same, self._kinds = graph, device, same, kinds
        self._copy_to, self._takes_values = copy_to, takes_values
        self._made = {}

    def take(self):
        """Changes the graph."""
        changing = set().union(*map(self._changing, self._graph.find_nodes(op="placeholder")))
        for node in changing:
            if node.op != "placeholder":
                node.meta["is_computed"] = True
        for node in list(self._graph.nodes):
            number = self._number_of(node)
            if number is not None and (number in changing or versions.is_read_back(number.meta["val"])):
                self._change(node, number)

    def _changing(self, given):
        """Returns an integer input, with the numbers computed from it, if all operators that use it can take tensors
        instead. Otherwise an operator, such as one with sizes, needs the number itself, and a recording for each
        value."""
        if not isinstance(given.meta.get("val"), torch.SymInt):
            return set()
        numbers, waiting, is_used, needed_by = {given}, [given], False, []
        while waiting:
            number = waiting.pop()
            for user in number.users:
                if user.op == "output" or user in numbers:
                    continue
                if _is_symbol(user.meta.get("val")):
                    numbers.add(user)
                    waiting.append(user)
                elif self._takes(user, number):
                    is_used = True
                elif not self._lies_elsewhere(user):
                    needed_by.append(str(user.target))
        given.meta["needed_by"] = needed_by
        return numbers if is_used and not needed_by else set()

    def _takes(self, node, number):
        if _name(node) in _SLICES and node.args[-1] is number:  # the end of the slice
            return self._number_of(node) is not None
        # An integer may be too large for float16, depending on the number of elements.
        return self._number_of(node) is number and (
            _name(node) not in _FILLS or _values(node)[0].dtype in (torch.int64, *_NARROW, *_WIDENED))

    def _lies_elsewhere(self, node):
        """Returns whether an operator is left out of recordings, because it works on the CPU."""
        return self._device != _CPU and _lies_on(node, _CPU)

    def _number_of(self, node):
        """Returns the number that the operator would take as a tensor, or None."""
        if node.op != "call_function" or not _lies_on(node, self._device):
            return None
        name = _name(node)
        place = _FILLS.get(name, _SLICES.get(name, 1))
        number = node.args[place] if len(node.args) > place else None
        value = number.meta.get("val") if isinstance(number, torch.fx.Node) else None
        if not isinstance(value, self._kinds) or list(_arguments(node)).count(number) != 1:
            return None
        takes = (len(node.args) == place + 1 if name in _FILLS else self._begins(node, number) if name in _SLICES
                 else self._makes_same_bits(node, value))
        return number if takes else None

    def _makes_same_bits(self, node, number):
        overload = getattr(node.target, "_overloadname", "")
        name, x = _name(node), node.args[0]
        if (name not in self._same and (name != "rsub" or "sub" not in self._same)
                or overload not in ("Tensor", "Scalar") or overload == "Scalar" and node.kwargs
                or len(node.args) != 2 or not isinstance(x, torch.fx.Node) or not _lies_on(x, self._device)):
            return False
        [value] = _values(x)
        is_narrow = isinstance(number, torch.SymInt) and value.dtype in _NARROW and value.dim()
        return value.dtype in _NUMBERS[type(number)][1] or is_narrow

    def _begins(self, node, number):
        """Returns whether a slice of one constant length begins at a number, and lies in its tensor for all values."""
        end = node.args[-1]
        if len(node.args) != _SLICES[_name(node)] + 2 or not isinstance(end, torch.fx.Node) or _is_returned(node):
            return False
        x, axis, length = self._slice(node)
        first, last, size = number.meta["val"], end.meta["val"], x.shape[axis]
        return (isinstance(first, torch.SymInt) and isinstance(length, int) and length > 0 and isinstance(size, int)
                and x.is_contiguous() and versions.is_always(0 <= first)
                and versions.is_always(first + length == last) and versions.is_always(last <= size))

    def _slice(self, node):
        """Returns the tensor that a slice is taken from, its axis and its length."""
        [x] = _values(node.args[0])
        [part] = _values(node.args[1] if _name(node) == "slice_scatter" else node)
        axis = node.args[_SLICES[_name(node)] - 1] % x.dim()
        return x, axis, part.shape[axis]

    def _change(self, node, number):
        name, value = _name(node), _values(node)[0]
        if name in _FILLS:
            tensor = self._tensor_of(node, number, value.dtype)
            tensor.meta["fills"] = True
            if name == "fill":
                node.target, node.args = torch.ops.aten.fill.Tensor, (node.args[0], tensor)
                return
            with self._graph.inserting_before(node):
                wide = self._graph.call_function(torch.ops.aten.expand.default, (
                    tensor, node.args[0] if name == "full" else ()))
            wide.meta["val"] = value
            node.target, node.args = torch.ops.aten.clone.default, (wide,)
            node.kwargs = {"memory_format": torch.contiguous_format}
        elif name in _SLICES:
            self._change_slice(node, number)
        else:
            [x] = _values(node.args[0])
            dtype = _NUMBERS[type(number.meta["val"])][0]
            if dtype == torch.float64 and x.dim() == 0:  # beside a tensor without axes the number would have the wider
                                                         # type
                dtype = x.dtype
            operands = node.args[0], self._tensor_of(node, number, dtype)
            node.target = torch.ops.aten.sub.Tensor if name == "rsub" else node.target.overloadpacket.Tensor
            node.args = operands[::-1] if name == "rsub" else operands

    def _change_slice(self, node, number):
        """Replaces a slice by chosen rows: the recording would fix the slice's position."""
        _, axis, length = self._slice(node)
        first = self._tensor_of(node, number, torch.int64)
        with self._graph.inserting_before(node):
            rows = self._graph.call_function(torch.ops.prims.iota.default, (length,), {
                "start": 0, "step": 1, "dtype": torch.int64, "device": self._device, "requires_grad": False})
            place = self._graph.call_function(torch.ops.aten.add.Tensor, (rows, first))
        rows.meta["val"] = place.meta["val"] = _values(first)[0].new_empty((length,))
        is_written, indices = _name(node) == "slice_scatter", [*[None] * axis, place]
        node.target = torch.ops.aten.index_put.default if is_written else torch.ops.aten.index.Tensor
        node.args = (node.args[0], indices, *node.args[1:2] * is_written)

    def _tensor_of(self, node, number, dtype):
        if (number, dtype) not in self._made:
            self._made[number, dtype] = self._make(node, number, dtype)
        return self._made[number, dtype]

    def _make(self, node, number, dtype):
        like, graph = _values(node)[0], self._graph
        takes_value = self._takes_values and isinstance(number.meta["val"], torch.SymInt)
        if takes_value and dtype in _WIDENED:
            whole = self._tensor_of(node, number, torch.int64)
            with graph.inserting_before(node):
                tensor = graph.call_function(torch.ops.aten._to_copy.default, (whole,), {"dtype": dtype})
            tensor.meta["val"] = like.new_empty((), dtype=dtype)
            return tensor
        with graph.inserting_before(node):
            if takes_value and dtype in (torch.int64, *_NARROW):
                tensor = graph.call_function(by_value, (number, dtype))
                tensor.meta.update(val=like.new_empty((), dtype=dtype), by_value=dtype)
                return tensor
            tensor = graph.call_function(torch.ops.cgtree.number.default, (number, dtype))
            tensor.meta["val"] = like.new_empty((), dtype=dtype, device=_CPU)
            if self._device != _CPU:
                tensor = self._copy_to(graph, tensor, self._device)
                tensor.meta["val"] = like.new_empty((), dtype=dtype)
        return tensor


def _is_returned(node):
    """Returns whether a node, or a view of it, whose strides are its own, is a result of the graph."""
    return any(user.op == "output" or getattr(user.target, "is_view", False) and _is_returned(user)
               for user in node.users)


def _arguments(node):
    found = []
    torch.fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


def take_numbers_as_tensors(graph, device, same=_SAME, kinds=tuple(_NUMBERS), copy_to=_copy_to, takes_values=False):
    """Gives operators the numbers that were read back, and integer inputs, as tensors on the device: otherwise each
    value would need another recording."""
    _Numbers(graph, device, same, kinds, copy_to, takes_values).take()


def move_operands(graph, device, moving=_MOVE, same=_SAME, copy_to=_copy_to):
    """Inserts copies to the device for operands on the CPU that operators would copy themselves, and for numbers that
    may differ at each call, where that does not change results."""
    if device == _CPU:
        return
    places, copies = {}, {}
    for node in list(graph.nodes):
        places[node] = place_of(node, device, places)
        if node.op != "call_function" or not _lies_on(node, device) or _reads_back(node):
            continue
        others = {value.dtype for given in node.all_input_nodes if not _lies_on(given, _CPU)
                  for value in _values(given)}
        for given in node.all_input_nodes:
            moves = _name(node) in moving or (
                _name(node) in same and places.get(given) != ONCE and _is_number(given)
                and others == {_values(given)[0].dtype})
            if not moves or not _lies_on(given, _CPU):
                continue
            if given not in copies:
                value = _values(given)[0]
                with graph.inserting_before(node):
                    copy = copy_to(graph, given, device)
                copy.meta["val"] = versions.fake_on(value, device, graph)
                places[copy] = place_of(copy, device, places)
                copies[given] = copy
            node.replace_input_with(given, copies[given])
        places[node] = place_of(node, device, places)


def read(source, **options):
    """Copies a tensor of the CPU. Pageable memory was read when this returns, and there is no wait for the device."""
    return torch.ops.aten._to_copy.default(
        source, **{**options, "non_blocking": not source.is_pinned()})


@torch.library.custom_op("cgtree::read", mutates_args=())
def _read(source: torch.Tensor, device: torch.device) -> torch.Tensor:
    return source.to(device, non_blocking=not source.is_pinned(), copy=True)


@_read.register_fake
def _(source, device):
    return source.to(device)


@torch.library.custom_op("cgtree::number", mutates_args=())
def _number(value: torch.types.Number, dtype: torch.dtype) -> torch.Tensor:
    # torch.tensor() rounds an integer twice, and accepts an integer that is too large for the type.
    return torch.full((), value, dtype=dtype) if isinstance(value, int) else torch.tensor(value, dtype=dtype)


@_number.register_fake
def _(value, dtype):
    return torch.empty((), dtype=dtype)


def keep_on_cpu(graph, device):
    """Lets a graph return the CPU numbers that it gets as inputs: Inductor moves those whose users allow it to the
    device, also in the results, where a backward pass expects them on the CPU."""
    results = graph.output_node()
    for given in results.all_input_nodes:
        if given.op != "placeholder" or not _is_number(given):
            continue
        users = [user for user in given.users if _lies_on(user, device)]
        place = device if users else _CPU
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            copy = graph.call_function(torch.ops.cgtree.read.default, (given, place))
        copy.meta["val"] = versions.fake_on(_values(given)[0], place, graph)
        for user in users or [results]:
            user.replace_input_with(given, copy)


def attempt(graph, change):
    """Returns (the result of change(graph), None), or (None, a description of the failure). After a failure the graph
    is as before: it can be compiled without the change. Errors of cgtree, which tell the user what to do, are
    raised."""
    before, buffers = deepcopy(graph.graph), set(graph._buffers)
    try:
        return change(graph), None
    except Error:
        raise
    except Exception as error:  # pylint: disable=broad-except
        graph.graph = before
        for name in set(graph._buffers) - buffers:
            delattr(graph, name)
        return None, f"{type(error).__name__}: {(str(error).strip() or 'without a text').splitlines()[0]}"


def prepare(graph):
    """Prepares a graph for Inductor, whose partitions end at copies of tensors of the CPU and at operators that work
    there, but not at operators of the device with operands of the CPU: such operands are copied before, and constants
    once. Returns why this failed, or None."""
    devices = [device for device in devices_of(graph) if device.type == "cuda"]
    return attempt(graph, functools.partial(_prepare, devices[0]))[1] if len(devices) == 1 else None


def _prepare(device, graph):
    keep_on_cpu(graph.graph, device)
    # Inductor has no by-value form of a truth value.
    take_numbers_as_tensors(graph.graph, device, (*_SAME, "div"), (torch.SymFloat, torch.SymInt), _put_on,
                            takes_values=False)
    move_operands(graph.graph, device, _INDEX, (), _put_on)
    fold(graph, device, with_sizes=False)
    put = torch.ops.prims.device_put.default
    for node, place in places_of(graph.graph, device).items():
        if place == READ and node.target is put and node.args[2:] != (True,):  # put waits for the device
            is_fresh = node.args[0].target is torch.ops.cgtree.number.default
            node.target = put if is_fresh else torch.ops.cgtree.read.default
            node.args = (*node.args[:2], True) if is_fresh else node.args[:2]
        elif (place == OUTSIDE and _lies_on(node, device) and isinstance(node.target, torch._ops.OpOverload)
              and node.target.namespace not in ("aten", "prims")):
            versions.partition_at(node.target)
    graph.recompile()


def devices_of(graph):
    """Returns the devices of the tensors in a graph."""
    values = []
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        values.extend(value if isinstance(value, (list, tuple)) else (value,))
    return list(dict.fromkeys(value.device for value in values if isinstance(value, torch.Tensor)))


class Piece:
    """Part of a graph: `call` takes a list of `inputs`, by name, and returns the results that `outputs` names: a dict
    from positions to names, or the name of a single result. `dead`: names that nothing after it uses."""

    def __init__(self, call, inputs, outputs, dead):
        self.call, self.inputs, self.outputs, self.dead = call, inputs, outputs, dead


def as_list(model):
    """Returns a boxed function that returns a list also for a piece that returns its one result alone."""
    def run(inputs):
        results = model(inputs)
        if isinstance(results, (list, tuple)):
            return list(results)
        return [] if results is None else [results]

    return run


def fold(graph, device, with_sizes=True):
    """Replaces values that are made once by constants. with_sizes: also values made from sizes alone, as by
    arange()."""
    places = places_of(graph.graph, device)
    results = graph.graph.output_node()
    callers = {results}  # nodes that hand memory to the caller, who may write into it: results, and views that are
                         # results
    for node in reversed(graph.graph.nodes):
        if (places[node] == ONCE and getattr(node.target, "is_view", False) and with_sizes
                and not callers.isdisjoint(node.users)):
            callers.add(node)
            places[node] = INSIDE
    once = [node for node, place in places.items() if place == ONCE]
    made, kept = {}, set()

    def value_of(node):
        if node not in made:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value_of)
            made[node] = (_attribute(graph, node.target) if node.op == "get_attr"
                          else node.target(*args, **kwargs))
        return made[node]

    for number, node in enumerate(once):
        if with_sizes or node.op == "get_attr" or not kept.isdisjoint(node.all_input_nodes):
            kept.add(node)
        used = [user for user in node.users if places[user] != ONCE and (with_sizes or user is not results)]
        if node not in kept or not used:
            continue
        with torch.no_grad(), versions.without_modes():
            value = value_of(node)
        if not isinstance(value, torch.Tensor):
            continue
        name = f"_folded_{number}"
        graph.register_buffer(name, value, persistent=False)
        with graph.graph.inserting_before(node):
            constant = graph.graph.get_attr(name)
            if not with_sizes:  # Inductor takes constants of graphs only in this form
                constant = graph.graph.call_function(torch.ops.aten.lift_fresh_copy.default, (constant,))
        constant.meta = dict(node.meta)
        places[constant] = ONCE
        node.replace_all_uses_with(constant, delete_user_cb=lambda user: user in used)
        if not callers.isdisjoint(used):
            with graph.graph.inserting_before(node):
                copy = graph.graph.call_function(torch.ops.aten.clone.default, (constant,))
            copy.meta = dict(node.meta)
            constant.replace_all_uses_with(copy, delete_user_cb=lambda user: user in callers)
    for node in reversed(once):
        if not node.users:
            graph.graph.erase_node(node)
    graph.recompile()


def _attribute(graph, name):
    return functools.reduce(getattr, name.split("."), graph)


def _has_symbols(node):
    found = []
    torch.fx.node.map_aggregate((node.args, node.kwargs), lambda given: found.append(
        isinstance(given, (torch.SymInt, torch.SymFloat, torch.SymBool))) or given)
    return any(found)


def _order(graph, outside):
    """Returns the number of the piece of each node, and moves early nodes that are not recorded to the front. Recorded
    pieces have odd numbers."""
    numbers, early = {}, set()
    for node in [node for node in graph.nodes if node.target is operator.getitem]:
        node.args[0].append(node)  # pieces pass only tensors on
    first = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    for node in list(graph.nodes):
        if node not in outside or not (_is_pure(node) or _computes_number(node)
                                       or node.target is operator.getitem):
            continue
        waits_for = [given for given in node.all_input_nodes if given.op not in ("placeholder", "get_attr")]
        if early.issuperset(waits_for):
            early.add(node)
            if node is not first:
                first.prepend(node)
            else:
                first = node.next
        elif outside.issuperset(waits_for):  # in the same piece as the last of its inputs
            max(waits_for).append(node)
    number = 0
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        is_recorded = node not in outside
        if is_recorded != bool(number % 2):
            number += 1
        numbers[node] = number
    return numbers


def _take_from_inputs(graph, outside):
    """Has the graph itself take integer inputs by value that are used in no other way. Returns whether all nodes
    outside of the graph could be removed in this way."""
    if any(node.target is not by_value or node.args[0].op != "placeholder" or len(node.args[0].users) > 1
           for node in outside):
        return False
    for node in outside:
        given, dtype = node.args
        node.replace_all_uses_with(given)
        graph.graph.erase_node(node)
        given.meta = {**given.meta, "val": node.meta["val"], "by_value": dtype, "number": given.meta["val"],
                      "fills": node.meta.get("fills")}
    graph.recompile()
    return True


def give_back_inputs(graph):
    """Undoes _take_from_inputs()."""
    for given in graph.find_nodes(op="placeholder"):
        if "by_value" not in given.meta:
            continue
        dtype = given.meta.pop("by_value")
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            node = graph.call_function(by_value, (given, dtype))
        node.meta.update(val=given.meta["val"], by_value=dtype, fills=given.meta.pop("fills"))
        given.meta["val"] = given.meta.pop("number")
        given.replace_all_uses_with(node, delete_user_cb=lambda user, node=node: user is not node)


def _make_for_outside(graph, outside, device):
    """Makes tensors from integers for operators that run between recordings."""
    for node in [node for node in outside if node.target is by_value]:
        users = [user for user in node.users if user in outside]
        if not users:
            continue
        number, dtype = node.args
        with graph.inserting_after(node):
            made = graph.call_function(torch.ops.aten.full.default, ((), number), {"dtype": dtype, "device": device})
        made.meta["val"] = node.meta["val"]
        outside.add(made)
        for user in users:
            user.replace_input_with(node, made)


def values_of(graph):
    """Returns the positions of the inputs that a recording of a graph takes by value, with their types; the positions
    of those that never fill a tensor of int64, whose range they must not exceed; and the names of operators that need
    other inputs as numbers, each value of which needs a recording."""
    given = graph.graph.find_nodes(op="placeholder")
    values = {i: node.meta["by_value"] for i, node in enumerate(given) if "by_value" in node.meta}
    operands = {i for i, dtype in values.items() if dtype is torch.int64 and not given[i].meta.get("fills")}
    return values, operands, list(dict.fromkeys(name for node in given for name in node.meta.get("needed_by", ())))


def partition(graph, device, make):
    """Returns a boxed function that runs the pieces of a graph, or None if nothing of it can be recorded.

    make(piece graph, names of its inputs): returns a boxed function that records the piece.
    """
    choose_by_masks(graph.graph)
    take_numbers_as_tensors(graph.graph, device, takes_values=True)
    move_operands(graph.graph, device)
    fold(graph, device)
    places = places_of(graph.graph, device)
    reads = [node for node, place in places.items() if place == READ]
    outside = {node for node, place in places.items() if place in (READ, OUTSIDE)
               or (node.op == "call_function" and place == ONCE and not _lies_on(node, device))}
    if not outside:
        return make(graph, [node.name for node in graph.graph.find_nodes(op="placeholder")])
    if _take_from_inputs(graph, outside):
        return make(graph, [node.name for node in graph.graph.find_nodes(op="placeholder")])
    _make_for_outside(graph.graph, outside, device)
    numbers = _order(graph.graph, outside)
    if not any(number % 2 for number in numbers.values()):
        return None
    for node in reads:
        node.target = read
    whole = split_module(graph, None, lambda node: numbers.get(node, 0), keep_original_order=True)
    return Pieces(whole, make)


def _outputs(node, part, is_recorded):
    """Returns Piece.outputs for a call of the piece."""
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
                call = make(part, names) if is_recorded else versions.boxed(part)
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
