"""cgtree.torch.compile(): torch.compile() whose graphs replay recordings of cgtree."""

import copy
import functools
import inspect
import threading
import weakref

import torch

from cgtree import _torch_versions as versions
from cgtree._errors import InvalidArgument
from cgtree._torch_kernels import Backend
from cgtree._torch_partition import prepare
from cgtree._torch_seam import add_counts, cudagraphify, ended, graphs

_MODES = {
    "default": "leave it out",
    "reduce-overhead": "leave it out, because recordings are always replayed",
    "max-autotune": "kernels='inductor', options={'max_autotune': True}",
    "max-autotune-no-cudagraphs": "torch.compile(), because without recordings nothing of cgtree "
                                  "is left",
}
_REMOVED = {
    "static": "PyTorch knows which tensors stay where they are: parameters and buffers",
    "mutated": "PyTorch knows what is written: register kernels of your own with "
               "torch.library.custom_op(mutates_args=...)",
    "generators": "generators are found",
    "max_kinds": "the limit is torch._dynamo.config.recompile_limit",
}
_one_at_a_time = threading.RLock()  # guards the three dicts
_backends = weakref.WeakValueDictionary()
_compiled = weakref.WeakKeyDictionary()  # the back end of each compiled function
_classes = weakref.WeakKeyDictionary()  # the class of compiled modules of each class


def _refuse(mode, unknown):
    if mode is not None:
        if mode not in _MODES:
            raise InvalidArgument(f"mode is {mode!r}: expected one of {', '.join(_MODES)}")
        raise InvalidArgument(f"compile() has no mode; in place of mode={mode!r}: {_MODES[mode]}")
    for name in unknown:
        hint = _REMOVED.get(name, "expected kernels, dynamic, fullgraph, options, name, recording "
                                  "or disable")
        raise InvalidArgument(f"compile() has no option '{name}': {hint}")


def _identity(function):
    """Returns the code of a function, which functions have in common whose graphs PyTorch
    shares."""
    if isinstance(function, torch.nn.Module):
        return type(function)
    function = inspect.unwrap(function)
    return getattr(function, "__code__", function)


def _backend_for(function, kernels, name, options, recording):
    """Returns a back end. Functions that share graphs get the same one, because PyTorch compiles again for each other
    back end."""
    if kernels == "eager" and options:
        raise InvalidArgument("options are Inductor's: kernels='eager' has none; for those of "
                              "recordings pass recording={...}")
    key = (_identity(function), kernels, name, repr(sorted((options or {}).items())),
           repr(sorted((recording or {}).items())))
    with _one_at_a_time:
        backend = _backends.get(key)
        if backend is None:
            backend = _backends[key] = Backend(kernels, name, options, recording)
        return backend


def compile(model=None, *, kernels="inductor", fullgraph=False, dynamic=None, options=None,
            disable=False, name=None, recording=None, mode=None, **unknown):
    """Compiles a function, method or module of PyTorch so that calls replay recorded graphs.

    It replaces torch.compile(), whose arguments it takes: Dynamo decides on which values a call depends, AOTAutograd
    makes graphs of the forward pass and the backward pass, and cgtree records and replays them. Results are as
    PyTorch's, and keep their values as long as they are held. Work that cannot be recorded runs eagerly, with a
    RuntimeWarning that says why.

    kernels: "inductor", those that Inductor generates; or "eager", PyTorch's own, compiled within
        seconds; their results equal eager ones bit for bit where these are deterministic and
        AOTAutograd leaves operators whole (a batch norm may differ by 1e-7).
    fullgraph, dynamic, options, disable: as those of torch.compile(); options are Inductor's.
    name: the name in messages, metrics and profilers.
    recording: options of cgtree.compile() for recordings, such as {"max_recordings": 16}.
    mode: raises InvalidArgument, which names the equivalent.

    Returns a function with the signature of the given one. A compiled module is a module of the same class that shares
    parameters, buffers and attributes with the given one, also later changes in either; a copy of it is compiled too,
    and has no recordings at first. Without a function, returns a decorator. stats(), explain() and reset() report on it
    and reset it.
    """
    _refuse(mode, unknown)
    arguments = {"kernels": kernels, "fullgraph": fullgraph, "dynamic": dynamic,
                 "options": options, "disable": disable, "name": name, "recording": recording}
    if model is None:
        return functools.partial(compile, **arguments)
    if isinstance(model, type):
        raise InvalidArgument(f"compile(): {model.__name__} is a class: compile its objects, or its "
                              "forward()")
    if not callable(model):
        raise InvalidArgument(f"compile(): {model!r} is neither a function nor a module")
    title = name or getattr(model, "__name__", type(model).__name__)
    backend = _backend_for(model, kernels, title, options, recording)
    if disable:
        return model
    backend.codes = versions.codes_that_dynamo_sees(model)
    compile_like = functools.partial(torch.compile, backend=backend, fullgraph=fullgraph, dynamic=dynamic)
    compiled = compile_like(model)
    if isinstance(model, torch.nn.Module):
        compiled = _module(model, compiled, arguments, compile_like)
    with _one_at_a_time:
        _compiled[compiled] = backend
    return compiled


# ---- Modules ----


class _Parts:
    """The parts of a compiled module."""

    def __init__(self, plain, optimized, arguments, compile_like):
        self.plain, self.optimized, self.arguments = plain, optimized, arguments
        self.compile = compile_like  # compiles a function for the same back end
        self.call = optimized.forward  # without the wrapper's own hooks
        self.forward = None  # compiled when it is first called


def _module(plain, optimized, arguments, compile_like):
    """Returns a module of the class and with the attributes of `plain`, whose calls are compiled."""
    kind = type(plain)
    if not hasattr(plain, "__dict__") or isinstance(plain, torch.jit.ScriptModule):
        return optimized
    with _one_at_a_time:
        if kind not in _classes:
            _classes[kind] = _class(kind)
    made = object.__new__(_classes[kind])
    object.__setattr__(made, "__dict__", plain.__dict__)  # one dict, so that changes are seen in both
    object.__setattr__(made, "_cgtree_parts", _Parts(plain, optimized, arguments, compile_like))
    return made


def _class(kind):
    def call(self, *args, **kwargs):
        if torch.compiler.is_compiling():  # as a part of another compiled function
            return kind.__call__(self, *args, **kwargs)
        return self._cgtree_parts.call(*args, **kwargs)

    @functools.wraps(kind.forward)
    def forward(self, *args, **kwargs):
        if torch.compiler.is_compiling() or versions.is_traced():
            return kind.forward(self, *args, **kwargs)
        parts = self._cgtree_parts
        if parts.forward is None:
            parts.forward = parts.compile(parts.plain.forward)
        return parts.forward(*args, **kwargs)

    def reduce(self, _):
        parts = self._cgtree_parts
        return _again, (parts.plain, parts.arguments)

    def deepcopy(self, memo):
        parts = self._cgtree_parts
        return _again(copy.deepcopy(parts.plain, memo), parts.arguments)

    call.__name__ = "__call__"
    names = {"__slots__": ("_cgtree_parts",), "__call__": call, "forward": forward, "__reduce_ex__": reduce,
             "__deepcopy__": deepcopy, "__module__": kind.__module__, "__doc__": kind.__doc__,
             "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (kind,), names)


def _again(plain, arguments):
    return compile(plain, **arguments)


# ---- Statistics ----


def _backend_of(compiled):
    function = getattr(compiled, "__func__", compiled)  # for a method
    if function not in _compiled:
        raise InvalidArgument(f"{compiled!r} was not compiled by cgtree.torch.compile()")
    return _compiled[function]


def _graphs_of(compiled):
    return graphs() if compiled is None else list(_backend_of(compiled).graphs)


def stats(compiled=None):
    """Returns the calls, replays, recordings and warm-ups of the graphs of a compiled function, and of the functions
    with the same code and options; without an argument of all graphs. Graphs that PyTorch dropped count too, except in
    "graphs", the number of graphs. "eager": the reasons why graphs, or some of their calls, run eagerly.

    >>> import torch
    >>> double = cgtree.torch.compile(lambda x: x * 2, kernels="eager")
    >>> cgtree.torch.stats(double)["replays"]
    0
    """
    found = _graphs_of(compiled)
    total = dict(ended() if compiled is None else _backend_of(compiled).ended)
    for graph in found:
        add_counts(total, graph.stats())
    reasons = [why for graph in found for kind in graph.kinds() for why in (kind["reason"], kind["exception"]) if why]
    if compiled is not None:
        reasons += _backend_of(compiled).eager
    return {**total, "graphs": len(found), "eager": list(dict.fromkeys(reasons))}


def explain(compiled):
    """Returns a text with a line for each graph of a compiled function, and for each kind of its calls: a description,
    the numbers of calls and replays, and why it runs eagerly."""
    lines = []
    for graph in _graphs_of(compiled):
        counts = graph.stats()
        lines.append(f"{graph.name} on {graph.device}: {counts['calls']} calls, "
                     f"{counts['replays']} replayed, {counts['recordings']} recordings")
        if graph.why_cut:
            lines.append(f"    it runs in pieces, because {graph.why_cut}")
        if graph.uses_of_numbers and len(graph.kinds()) > 1:
            lines.append("    each value of an integer is a kind of calls, because it is no tensor in "
                         f"{', '.join(graph.uses_of_numbers)}")
        for kind in graph.kinds():
            state = (f"runs eagerly, because {kind['reason']}" if kind["reason"]
                     else "is recorded" if kind["recordings"]
                     else "has no recording yet: its first call is observed, the second warms up, the third records")
            if kind["exception"] and not kind["reason"]:
                # The first call was eager, too.
                state += f", and {kind['eager_calls'] - 1} calls of it run eagerly, because {kind['exception']}"
            lines.append(f"    a kind of {kind['calls']} call{'s' * (kind['calls'] != 1)} {state}")
    backend = _backend_of(compiled)
    lines += [f"a graph is cut at {what}, which reads on the host which way to go, and so runs between "
              "recordings" for what in backend.cuts]
    lines += [f"a graph runs eagerly, because {reason}" for reason in backend.eager]
    limit = versions.recompile_limit()
    if any(versions.compilations(code) >= limit for code in backend.codes) and backend.compilations >= limit:
        lines.append(f"PyTorch has compiled it {limit} times and compiles no further: other calls run eagerly "
                     "(TORCH_LOGS=recompiles logs what they differ in; torch._dynamo.config.recompile_limit is the limit)")
    if not lines and any(map(versions.was_seen, backend.codes)):
        return ("PyTorch has compiled no graph of it: there is nothing to compute with tensors, or it could not be "
                "compiled; fullgraph=True raises why, and TORCH_LOGS=graph_breaks logs it")
    return "\n".join(lines) or "no graph was compiled yet: call the function first"


def reset(compiled=None):
    """Drops the recordings of a compiled function, or of all. The code that PyTorch compiled stays:
    see torch.compiler.reset()."""
    for graph in _graphs_of(compiled):
        graph.reset()


# ---- Back end of torch.compile(), and replacement of PyTorch's own recordings ----


def backend(model, inputs, *, options=None, mode=None, **_):
    """The back end "cgtree" of torch.compile(). options: {"kernels": "eager"}, or Inductor's."""
    _refuse(mode, ())
    options = dict(options or {})
    kernels = options.pop("kernels", "inductor")
    made = _backend_for(backend, kernels, "torch.compile", options, None)
    _compiled[backend] = made  # so that stats(backend) and the like find it
    return made(model, inputs)


def register_backend():
    """Registers torch.compile(backend="cgtree") where no wheel is installed, whose entry point does it."""
    versions.register_backend("cgtree", backend)


def replace_graph_trees():
    """From now on each torch.compile(mode="reduce-overhead") of the process uses recordings of cgtree instead of
    PyTorch's graph trees. Functions that were compiled before keep their recordings. Returns a function that ends
    this."""
    def replacement(model, static_input_idxs=(), **known):
        return cudagraphify(model, static_input_idxs, name="torch.compile", **known)

    versions.replace_cudagraphify(replacement, prepare)
    return functools.partial(versions.replace_cudagraphify, None)
