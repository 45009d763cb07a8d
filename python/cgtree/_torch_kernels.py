"""Back ends of Dynamo: graphs that PyTorch's compilers make, with recordings of cgtree.

kernels="eager"     the operators of PyTorch itself, so that results equal eager ones bit for bit
                    where these are deterministic, and compiling takes seconds
kernels="inductor"  the kernels that Inductor generates, and its partition of graphs
"""

import functools
import threading
import warnings
import weakref
from copy import deepcopy

import torch

from cgtree import _torch_versions as versions
from cgtree._errors import InvalidArgument
from cgtree._torch_partition import (
    as_list, attempt, decisions, devices_of, give_back_inputs, partition, prepare, refuse, values_of)
from cgtree._torch_scopes import with_scopes
from cgtree._torch_seam import COUNTS, Graph, check_options, cudagraphify
from cgtree._torch_state import python_operators

KERNELS = ("inductor", "eager")
_RESULTS = (torch.Tensor, type(None))


_known = set()  # names of back ends
_one_at_a_time = threading.Lock()


def _known_name(kernels):
    """Returns the name of a back end that is registered with Dynamo. Only for registered back ends does it drop its
    weak references to parameters after a compilation, with which torch.utils.swap_tensors() refuses them."""
    def backend(model, inputs, **_):
        return Backend(kernels, "torch.compile", None, None)(model, inputs)

    name = f"cgtree-{kernels}"
    with _one_at_a_time:  # Dynamo refuses a name twice
        if name not in _known:
            versions.register_backend(name, backend)
            _known.add(name)
    return name


class Backend:
    """A back end of Dynamo. `eager`: the reasons why some graphs run eagerly; `cuts`: the operators
    at which some are cut."""

    def __init__(self, kernels, name, options, recording):
        if kernels not in KERNELS:
            raise InvalidArgument(f"kernels is {kernels!r}: expected one of {', '.join(KERNELS)}")
        self.kernels, self.name = kernels, name
        self.options, self.recording = dict(options or {}), dict(recording or {})
        check_options(self.recording)
        self._operators = ()
        self._graphs, self.eager = [], []  # weak references, because this may outlive PyTorch's compiled code
        self.cuts = []
        self.compilations, self.codes = 0, ()  # the codes for which PyTorch compiled graphs
        self.ended = dict.fromkeys(COUNTS, 0)  # the counts of graphs that PyTorch dropped
        self.__name__ = _known_name(kernels)  # the name in PyTorch's logs

    @property
    def graphs(self):
        """The graphs that it made and PyTorch still has."""
        found = [reference() for reference in self._graphs]
        return [graph for graph in found if graph is not None]

    def __call__(self, model, inputs, **_):
        self.compilations += 1
        versions.guard_hooks()
        why = ("forward-mode derivatives are being computed" if versions.guard_forward_mode()
               else "hooks of all modules are registered" if versions.has_hooks_of_all() else None)
        if why is not None:
            self._runs_eagerly("graph", why)
            return versions.plain(model)
        before = self.graphs
        compiled = self._compile(model, inputs)
        made = [graph for graph in self.graphs if graph not in before]
        if len(made) == 1 and made[0].role == "inference" and made[0].needs_no_wrapper:
            if made[0].is_whole:  # otherwise code beside the graph runs at each call, such as checks of values
                return _direct(compiled, made[0])
        return compiled

    def _compile(self, model, inputs):
        if self.kernels == "inductor":
            return versions.inductor(model, inputs, self._cudagraphify, self.options, self._prepare)
        compilers = {f"{name}_compiler": functools.partial(self._eager, role)
                     for name, role in (("fw", "forward"), ("bw", "backward"),
                                        ("inference", "inference"))}
        return versions.aot_autograd(**compilers)(model, inputs)

    def _prepare(self, graph):
        self._operators = python_operators(graph)  # of the recordings that Inductor makes next from it
        if any(device.type == "cuda" for device in devices_of(graph)):  # other devices have no partitions
            self._note_cuts(graph)
        return prepare(graph)

    def _note_cuts(self, graph):
        self.cuts = list(dict.fromkeys([*self.cuts, *decisions(graph)]))

    def _cudagraphify(self, model, static_input_idxs=(), **known):
        graph = cudagraphify(model, static_input_idxs, name=self.name, options=self.recording,
                             **known)
        return self._add(graph, self._operators)

    def _add(self, graph, operators):
        graph.needs_no_wrapper = versions.needs_no_wrapper()
        graph.set_operators(operators)
        graph.ended = self.ended
        self._graphs.append(weakref.ref(graph, self._graphs.remove))
        return graph

    def _eager(self, role, graph, example_inputs):
        if role == "forward":
            versions.keep_saved_tensors()
        if not any(node.op == "call_function" for node in graph.graph.nodes):
            return versions.boxed(graph)
        if role == "backward":
            versions.drop_unused_draws(graph)
        static = set(versions.static_inputs(graph, role == "backward"))
        names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
        static = {name for i, name in enumerate(names) if i in static}
        self._note_cuts(graph)
        devices = devices_of(graph)
        kinds = [device for device in devices if device.type == "cuda"] or devices
        made = None
        if len(kinds) == 1 and kinds[0].type in ("cpu", "cuda"):
            record = functools.partial(self._record, role, kinds[0], static)
            made, failed = attempt(graph, lambda graph: partition(graph, kinds[0], record))
            reason = f"it could not be cut: {failed}" if failed else "nothing of it can be recorded"
        else:
            reason = f"it works on {' and '.join(map(str, kinds)) or 'no device'}"
        if made is None:
            self._runs_eagerly(role, reason)
            return versions.boxed(graph)
        if isinstance(made, Graph):
            made.is_whole = True
        return made

    def _runs_eagerly(self, role, reason):
        self.eager.append(reason)
        warnings.warn(f"cgtree.torch: '{self.name} {role}' runs eagerly, because {reason}",
                      RuntimeWarning, stacklevel=3)

    def _record(self, role, device, static, graph, names):
        """Returns the Graph of a graph, or of a piece of one, whose inputs have these names."""
        positions = [i for i, name in enumerate(names) if name in static]
        mutated = versions.mutated_inputs(graph)
        values, operands, uses = values_of(graph)
        model = as_list(versions.boxed(with_scopes(graph)))
        made = Graph(model, device, role, positions, mutated, f"{self.name} {role}", self.recording, values=values,
                     operands=operands)
        made.uses_of_numbers = uses
        made.cut = functools.partial(self._cut, role, device, positions, graph)
        return self._add(made, python_operators(graph))

    def _cut(self, role, device, static, graph, _, operator):
        """Returns the pieces of a graph whose capture failed in this operator, or None."""
        if not refuse(graph.graph, operator):
            return None
        graph = torch.fx.GraphModule(graph, deepcopy(graph.graph))  # the calls that stay whole run the original
        give_back_inputs(graph.graph)
        graph.graph.set_codegen(torch.fx.graph.CodeGen())
        names = [node.name for node in graph.graph.find_nodes(op="placeholder")]
        record = functools.partial(self._record, role, device, {names[i] for i in static})
        return attempt(graph, lambda graph: partition(graph, device, record))[0]


def _direct(compiled, graph):
    """Returns a function that calls the graph itself, and `compiled`, which calls it through AOTAutograd's wrapper
    unless the wrapper does nothing but pass inputs and results on."""
    def call(*args):
        graph.last_seen = None
        results = compiled(*args)
        if graph.last_seen is not None:
            graph.recent.set_path(call, _path(graph, args, results))
        return results

    graph.recent.set_path(call, None)
    return graph.recent.call_with_arguments


def _path(graph, args, results):
    """Returns which arguments are the inputs of the graph, and which of its results are those of the call, as
    RecentCalls.set_path() takes them, or None if other objects are among them."""
    given, made = graph.last_seen
    ids = tuple(map(id, args))
    results_ids = tuple(map(id, results))
    if given == ids and made == results_ids:
        return (len(args), (), ())
    # The order may be found only if each is a different tensor. Arguments that the graph does not
    # read are left over.
    position = {id(arg): i for i, arg in enumerate(args) if isinstance(arg, torch.Tensor)}
    if (len(position) < sum(isinstance(arg, torch.Tensor) for arg in args)
            or not all(item in position for item in given)):
        return None
    places = {id(None): -1, **{result: j for j, result in enumerate(made)}}
    if not results_ids or not all(id(result) in places and isinstance(result, _RESULTS)
                                  for result in results):
        return None
    return (len(args), [position[item] for item in given], [places[item] for item in results_ids])
