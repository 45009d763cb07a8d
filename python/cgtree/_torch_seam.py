"""Recordings of the graphs that PyTorch's compilers make: cgtree's replacement of PyTorch's graph trees, below Dynamo,
AOTAutograd and Inductor.

cudagraphify() takes the facts about a graph that Inductor and AOTAutograd know: its inputs with stable addresses, the
inputs that it writes, and its role: forward pass, backward pass or neither. They handle guards, side effects, aliasing
and autograd. A Graph then replays recordings of it:

    static      parameters, buffers, and other inputs that PyTorch says stay in place: checked, not copied
    managed     an output of an earlier recording, saved by a forward pass for its backward pass, for example
    copied      all other tensors
    mutated     inputs that the graph writes; a copied one is copied back

All threads share one context for each device, so that the backward pass, which runs on another thread, finds the
outputs of the forward pass. Held tensors are never overwritten, with or without
torch.compiler.cudagraph_mark_step_begin(), for which no counterpart is needed.
"""

import contextlib
import functools
import os
import sys
import threading
import traceback
import warnings
import weakref

import torch

from cgtree import _cgtree
from cgtree import _torch_draws as draws
from cgtree import _torch_versions as versions
from cgtree._context import Context
from cgtree._errors import ConcurrentUse, InvalidArgument, NotSupported, OutOfMemory, VerifyError, WrongValue
from cgtree._torch_host import Unlike, run_on_host
from cgtree._torch_memory import (
    OtherPool, as_tensor, blocks_of_steps, clear_workspaces, obey_record_stream, step)
from cgtree._torch_outputs import (
    Recipe, dtype_name, end_of, is_empty, is_on_host, may_be_seed, outputs_of, shared_elements, why_not)
from cgtree._torch_partition import refuse_always
from cgtree._torch_state import state_of

COUNTS = ("calls", "replays", "recordings", "warm_ups")
MAX_KINDS = 256  # of calls of a graph, such as one for each position at which a cache is written
MAX_MOVES = 64  # of a static input: layers that share a graph each have their own weights
VERIFY_FIRST = 4  # replays of graphs whose operators run Python
MAX_SEEDS = 1024  # noted seeds, before dropped ones are removed
_one_companion = threading.Lock()  # PyTorch's generators support one capture at a time


class _Shared:
    """State that the graphs of the process share."""

    def __init__(self):
        self.lock = threading.Lock()
        self.contexts = {}
        self.static = {}  # by device: addresses of static inputs of forward passes
        self.seeds = set()  # addresses, see _note_seeds()


_shared = _Shared()
_all = weakref.WeakSet()
_ended = dict.fromkeys(COUNTS, 0)  # the counts of graphs that are gone
_before_fork = []  # keeps objects of the parent process, whose threads do not exist here


def _forget():
    """After a fork the child has neither the contexts nor the recordings of its parent."""
    global _shared  # pylint: disable=global-statement
    _before_fork.append(_shared)
    _shared = _Shared()
    for graph in _all:
        _before_fork.append(list(graph._kinds.values()))
        graph._lock = threading.Lock()  # another thread may have held it
        graph.reset()


os.register_at_fork(after_in_child=_forget)


class _SharedContext(Context):
    """A context whose outputs are tensors of PyTorch, which cannot throw StaleTensor."""

    def mark_step(self):
        raise NotSupported(f"mark_step(): the context of PyTorch's graphs on {self.device} has no "
                           "generations, which would overwrite tensors, such as those that a backward "
                           "pass waits for: give step functions that need them a context of their own")


def context(device=None):
    """Returns the context in which the graphs of PyTorch run on this device. All threads share it."""
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    name = "host"
    if device.type == "cuda":
        name = f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"
        obey_record_stream()
    with _shared.lock:
        if name not in _shared.contexts or _shared.contexts[name].closed:
            _shared.contexts[name] = _SharedContext(name, name=f"torch-{name.replace(':', '-')}",
                                                    outputs_lie_apart=True)
        return _shared.contexts[name]


_DEFAULTS = {"outputs": [], "axes": [], "keys": [], "at_limit": "evict", "on_static_change": "demote",
             "max_static_changes": MAX_MOVES}


def check_options(options):
    """Raises InvalidArgument for options that cgtree.compile() would refuse."""
    _cgtree.compile(None, "recording", _note_seeds, {"inputs": [], **_DEFAULTS, **options})


def graphs():
    """Returns all graphs of the process."""
    return list(_all)


def ended():
    """Returns the counts of all graphs that are gone."""
    return dict(_ended)


def add_counts(total, counts):
    for name, count in counts.items():
        total[name] += count


def _first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _layout(tensor):
    return (tensor.dim(), *[number for pair in zip(tensor.shape, tensor.stride())
                            for number in pair])


def _key(inputs, values):
    """Returns a value that is equal for two calls that may share recordings. `values`: the positions of integers that
    recordings take by value."""
    return tuple([(_layout(given), given.dtype, given.is_cpu) if isinstance(given, torch.Tensor)
                  and given.layout is torch.strided else int if i in values and type(given) is int
                  else _value(given) for i, given in enumerate(inputs)])


def _form(tensor):
    """Returns the facts about a parameter or buffer that Inductor's kernels are compiled for: the order of its axes,
    its type, and its bits."""
    if tensor.layout is not torch.strided:
        return tensor.layout
    return (tuple(tensor.stride()), tensor.dtype, tensor.is_conj(), tensor.is_neg(), tuple(tensor.shape))


def _named(form):
    if not isinstance(form, tuple):
        return str(form)
    strides, dtype, is_conj, is_neg, shape = form
    bits = " with the conjugate bit" * is_conj + " with the negative bit" * is_neg
    return f"{dtype} {shape} with strides {strides}{bits}"


def _value(given):
    if isinstance(given, float):
        return (float, given.hex())  # -0.0 is not 0.0, and NaN equals itself
    return (type(given), given if isinstance(given, (int, str, type(None))) else id(given))


def _note_seeds(addresses):
    """Notes where recordings put results that lie on the CPU outside of a capture. They may outlive the
    recording, and its graph."""
    with _shared.lock:
        _shared.seeds.update(addresses)
        if len(_shared.seeds) > MAX_SEEDS:
            _shared.seeds = set(filter(_is_seed, _shared.seeds))


def _is_seed(address):
    """Returns whether such a result lies at the address, and is held."""
    return address in _shared.seeds and _cgtree.lent(address) is not None


def _is_capturing():
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _with_tensors(model, values, operands, device):
    """Returns the function of a graph as a function that takes integers where the graph takes tensors. `operands`:
    integers that may have 64 bits without a sign, as PyTorch's operators take them."""
    def call(inputs):
        for i, dtype in values.items():
            if not isinstance(inputs[i], torch.Tensor):
                is_unsigned = i in operands and 2**63 <= inputs[i] < 2**64
                inputs[i] = torch.full((), inputs[i], dtype=torch.uint64 if is_unsigned else dtype, device=device)
        return model(inputs)

    return call


class Graph:
    """A graph of PyTorch's as a boxed function: it takes a list of inputs, clears it, and returns the
    list of results."""

    def __init__(self, model, device, role, static, mutated, name="graph", options=None,
                 reuses_inputs=False, values=None, operands=()):
        self.device, self.role, self.name = device, role, name
        self.values = dict(values or {})  # by input: the type of an integer that recordings take by value
        self.uses_of_numbers = ()  # operators that need other inputs as numbers
        self.model = model = _with_tensors(model, self.values, operands, device) if values else model
        self.seeds = set()  # inputs that a run outside of a capture expects on the CPU
        if role == "backward" and device.type == "cuda":
            self.model = lambda inputs: model(self._with_seeds_on_host(inputs))
        self.static, self.mutated = frozenset(static), frozenset(mutated)
        self.reuses_inputs = reuses_inputs  # may return an input that it wrote as a result
        self.options = options or {}
        self._boxed_call = True  # AOTAutograd looks for this, also in wrappers, which copy attributes
        self.ended = None  # gets the counts when the graph is dropped: a dict of the back end
        self.is_whole = False  # true if no other code runs between the results of AOTAutograd and the graph
        self.state, self.operators = None, ()  # see set_operators()
        self._compiled_for = None  # static inputs of the first call, as _form() returns them, if kernels depend on them
        self.code = None  # the code for which PyTorch compiled the graph
        self.recent = _cgtree.RecentCalls()
        self.last_seen = None  # the ids of inputs and results of the last call that was not a replay
        self._lock = threading.Lock()
        self._past = dict.fromkeys(COUNTS, 0)  # the counts of kinds that were dropped
        self._round, self._rounds = [], 0  # the new kinds of the present round, and its number
        self._returned = False  # true if one of the last new kinds was seen again
        self._rest, self._next_rest = None, MAX_KINDS  # number of calls of new kinds that still run eagerly
        self._has_warned = False
        # cut(graph, operator) returns the function that runs the graph after its capture failed in this operator, or
        # None
        self.cut = self._pieces = self.why_cut = None
        # The kinds, and the calls that are compared first. This dict and the list of the last new kinds are never
        # replaced: wrappers copy attributes, and dropped kinds must not live on in a copy.
        self._kinds, self._expected = {}, []
        _all.add(self)

    def set_operators(self, operators):
        """Sets the operators of the graph whose kernels are Python code. A call depends on the state that they read,
        and their first replays are verified, because they may read more."""
        self.operators, self.state = tuple(operators), state_of(operators)

    def _with_seeds_on_host(self, inputs):
        """Returns the list of inputs in the form that PyTorch's kernels read: outside of a capture some kernels read a
        seed on the CPU. Another tensor may have the address by now, so the tensor must also look like a seed."""
        if not torch.cuda.is_current_stream_capturing():
            for i, given in enumerate(inputs):
                if isinstance(given, torch.Tensor) and given.device.type == "cuda" and (
                        may_be_seed(given)) and (i in self.seeds or _is_seed(given.data_ptr())):
                    inputs[i] = given.cpu()
        return inputs

    def __del__(self):
        if sys.is_finalizing() or "_kinds" not in self.__dict__:
            return
        counts = self.stats()
        add_counts(_ended, counts)
        if self.ended is not None:
            add_counts(self.ended, counts)

    def reset(self):
        """Drops all recordings."""
        with self._lock:
            for kind in list(self._kinds.values()):
                self._add_past(kind)
            self._kinds.clear()
            self._begin_round()
            self._expected = []
            self.recent.set_calls(self._expected)

    def _add_past(self, kind):
        add_counts(self._past, kind.stats())

    def __call__(self, inputs):
        results = self.recent.call(inputs)
        return self._call_other(inputs) if results is NotImplemented else results

    def _call_other(self, inputs):
        """Makes a call that none of the last FlatCalls fits."""
        if _cgtree.context_of_step() or _is_capturing():
            return self.model(inputs)
        if self._pieces is not None:
            return self._pieces(inputs)
        state = (versions.settings().read(), self.state and self.state())
        key = (state, *_key(inputs, self.values))
        kind = self._kinds.get(key)
        if kind is None:
            self._expect_form(inputs)
            return self._first_call(key, inputs) if self._admits() else self.model(inputs)
        self._returned = self._returned or kind.round == self._rounds
        if kind.reason is not None:
            kind.eager_calls += 1
            return self.model(inputs)
        results = kind.flat.call(inputs)
        if results is NotImplemented:
            kind.eager_calls += 1
            kind.exception = kind.exception or (
                "an input is of another class, has the conjugate or the negative bit, or is too large an integer")
            self._expect_form(inputs)
            return self.model(inputs)
        if self._kinds.get(key) is kind:  # and no reset() came in between
            self._expect(kind)
        return results

    def _expect(self, kind):
        """Compares calls with this kind first from now on."""
        if kind.reason is None:
            self._expected = [kind.flat, *[flat for flat in self._expected
                                           if flat is not kind.flat][:3]]
            self.recent.set_calls(self._expected)

    def forget(self, kind):
        """Stops comparing calls with this kind: it runs eagerly."""
        self._expected = [flat for flat in self._expected if flat is not kind.flat]
        self.recent.set_calls(self._expected)

    def cut_at(self, operator):
        """Runs in pieces from now on, if possible. Returns whether it does."""
        if self._pieces is None and operator is not None and self.cut is not None:
            self._pieces = self.cut(self, operator)
            if self._pieces is not None:
                self.reset()
        return self._pieces is not None

    def _expect_form(self, inputs):
        """Raises WrongValue for static inputs that the kernels of Inductor were not compiled for: Dynamo leaves out the
        guards that would notice, and Inductor its own checks where it makes partitions."""
        if not self.reuses_inputs or self.role == "backward":
            return
        forms = {i: _form(inputs[i]) for i in self.static if isinstance(inputs[i], torch.Tensor)}
        if self._compiled_for is None:
            self._compiled_for = forms
        changed = [i for i, form in forms.items() if form != self._compiled_for.get(i, form)]
        if changed:
            if self.code is not None:
                versions.forget(self.code)
            i = changed[0]
            raise WrongValue(f"input {i} of '{self.name}', a parameter or buffer, is {_named(forms[i])} now, and was "
                             f"{_named(self._compiled_for[i])} when PyTorch compiled the kernels: call it again, for which PyTorch "
                             "compiles it anew, or use kernels='eager', which need not be")

    def _first_call(self, key, inputs):
        if any(map(versions.is_wrapped, inputs)):
            self._past["calls"] += 1
            return self.model(inputs)
        kind = Kind(self, inputs, key[0][1])
        given = tuple(map(id, inputs))
        results = kind.observe(inputs)
        self.last_seen = (given, tuple(map(id, results)))
        with self._lock:
            self._kinds[key] = kind
            self._round.append(kind)
            kind.round = self._rounds
        self._expect(kind)
        return results

    def _admits(self):
        """Returns whether a new kind of calls gets recordings.

        There is a rest, in which no new kind gets recordings, when all places are taken, and when half as many new
        kinds were made and none came back, as with numbers that count steps. It lasts until one of these kinds comes
        back, or for as many calls as there are places, and twice as many each time that none comes back. Kinds that
        were not called during the rest then make room.
        """
        with self._lock:
            if self._rest == 0:
                self._end_rest()
            is_full = len(self._kinds) >= MAX_KINDS
            if not is_full and (len(self._round) < MAX_KINDS // 2 or self._has_returned()):
                self._rest = None
                return True
            if self._rest is None:
                self._rest = self._next_rest
                for kind in self._kinds.values():
                    kind.calls_before = kind.stats()["calls"]
                if is_full and not self._has_warned:
                    self._has_warned = True
                    warnings.warn(f"cgtree.torch: some calls of '{self.name}' run eagerly, because it has "
                                  f"more than {MAX_KINDS} kinds of calls", RuntimeWarning, stacklevel=5)
            self._rest -= 1
            self._past["calls"] += 1
            return False

    def _has_returned(self):
        """Returns whether one of the last new kinds came back; if so, the next one begins a round."""
        if not self._returned and (self._rest is not None and self._rest > 0 or not any(
                kind.stats()["calls"] > 1 for kind in self._round)):
            return False
        self._returned, self._next_rest = False, MAX_KINDS
        self._begin_round()
        return True

    def _begin_round(self):
        self._round.clear()
        self._rounds += 1

    def _end_rest(self):
        if self._round and not self._has_returned():
            self._next_rest *= 2
        for key, kind in list(self._kinds.items()):
            if kind.stats()["calls"] == kind.calls_before:
                self.forget(kind)
                self._add_past(self._kinds.pop(key))
        self._rest = None
        self._begin_round()

    def kinds(self):
        """Returns one dict for each kind of calls: its counts, the reason why it runs eagerly, or None, the reason why
        some of its calls run eagerly, and their number."""
        return [{**kind.stats(), "reason": kind.reason, "exception": kind.exception, "eager_calls": kind.eager_calls}
                for kind in list(self._kinds.values())]

    def stats(self):
        """Returns the counts of all calls."""
        kinds = self.kinds()
        return {name: sum(kind[name] for kind in kinds) + self._past[name] for name in COUNTS}


class Kind:
    """Calls of a graph whose inputs differ only in the values and addresses of tensors. `reason`: why they run eagerly,
    or None. `eager_calls`: how many did."""

    def __init__(self, graph, inputs, state=None):
        self.graph = graph
        self._state = state  # of Python, read by its operators
        self.mutated = graph.mutated
        self.reason = None
        self.exception = None  # why some of the calls run eagerly while others replay
        self.eager_calls = 1
        self.calls_before = 0  # when the last rest began
        self.round = None  # of kinds of the graph
        self.is_unsettled = False  # since the step function ran
        self._has_trimmed = False  # for an earlier call that ran out of memory
        self._may_keep = False  # true if the graph may have kept memory beside its results
        self._has_run = False  # the step function ran
        self._was_captured = False  # in the last run of the step function
        self.flat = self._core = None
        self._given = list(inputs)
        self._tensors = [i for i, given in enumerate(inputs) if isinstance(given, torch.Tensor)]
        self._taken = sorted({*self._tensors, *graph.values})
        if graph.role == "backward":
            graph.seeds.update(i for i in self._tensors if is_on_host(inputs[i], graph.device))
        self._recipe = self._ran = self._failure = self._failed_at = None
        self._companion = self._new_companion = self._offsets = None
        self._generators = ()

    # ---- The first call, which runs as if there were no recordings ----

    def observe(self, inputs):
        """Runs the graph, and returns its results."""
        given, device = self._given, self.graph.device
        generators = self._generators_of(given)
        before = draws.offsets(generators)
        clear_workspaces(device)  # of the last pass, perhaps on another thread
        results = list(self.graph.model(inputs))
        if draws.offsets(generators) != before:
            self._generators = generators
            if device.type == "cuda":
                draws.anchor(device, generators)
        self.reason = self._refused(given, results, device)
        if self.reason is None:
            self._recipe = Recipe(results, given, device)
            self._recipe.drop()
            self._recipe.become_general()
            if self.graph.reuses_inputs:
                returned = {item[1] for item in self._recipe.items if item[0] in ("given", "view")}
                self.mutated |= returned - self.graph.static
            self._compile(given)
        elif self.graph.role != "backward" or not any(
                is_on_host(given[i], device) for i in self._tensors):
            self._warn()  # later calls of a backward pass have their seeds on the device
        self._given = None
        return results

    def _generators_of(self, given):
        device = self.graph.device
        found = [item for item in given if isinstance(item, torch.Generator)]
        return tuple(dict.fromkeys([draws.default_generator(device), *found]))

    def _refused(self, given, results, device):
        for i in self._tensors:
            reason = why_not(given[i], device)
            if reason is None and given[i].dim() > 8:
                reason = f"a tensor with {given[i].dim()} dimensions, more than 8"
            if reason is None and dtype_name(given[i].dtype) is None:
                reason = f"a tensor of {given[i].dtype}"
            if reason is not None:
                return f"input {i} is {reason}"
        inputs = set(map(id, given))
        for j, result in enumerate(results):
            if isinstance(result, torch.Tensor) and id(result) not in inputs:
                reason = (None if is_empty(result) or is_on_host(result, device)
                          else why_not(result, device))
                if reason is not None:
                    return f"result {j} is {reason}"
        return None

    def _compile(self, given):
        graph = self.graph
        static = self._static(given)
        inputs, expected = [], []
        for i, item in enumerate(given):
            if i not in self._taken:
                expected.append((item, None))
                continue
            expected.append((item, graph.values.get(i, i in static)))
            inputs.append({"name": f"input {i}", "static": i in static,
                           "mutated": i in self.mutated})
        options = {"inputs": inputs, **_DEFAULTS, **graph.options}
        if graph.operators and not self.mutated:  # the writes of a replay could not be undone
            options.setdefault("verify_first", VERIFY_FIRST)
        run = self._run if graph.device.type == "cuda" else self._run_on_host
        self._core = _cgtree.compile(context(graph.device), graph.name, run, options)
        self.flat = _cgtree.FlatCall(self._core, torch.Tensor, torch.nn.Parameter, torch.as_strided,
                                     tuple(expected), self._apart(given, static), self._finish,
                                     self.recover, versions.place_reader(), versions.settings())
        if graph.state is not None:
            self.flat.set_state(graph.state, self._state)
        self.flat.set_results(self._recipe.codes())
        if self._generators:
            self.flat.set_before(self._draw)
        self._values = [None if i in self._taken else item for i, item in enumerate(given)]

    def _apart(self, given, static):
        """Returns the pairs of a written tensor and another tensor that share no memory now, and never may: the graph
        is right only for these, and Dynamo assumes that parameters and buffers are not arguments. Each pair has the
        distance between the two, if one lies within the other's range."""
        order = {i: number for number, i in enumerate(self._taken)}
        places = {i: (given[i].data_ptr(), given[i].data_ptr() + end_of(given[i])) for i in self._tensors}
        self._pairs, apart = [], []
        for i in self._tensors:
            for j in self._tensors if i in self.mutated else ():
                if i == j or i in static and j in static:
                    continue
                (begin, end), (other, other_end) = places[i], places[j]
                count = None if end <= other or other_end <= begin else shared_elements(given[i], given[j])
                if not count:
                    self._pairs.append((i, j))
                    apart.append((order[i], order[j], 0 if count is None else other - begin))
        return tuple(apart)

    def _static(self, given):
        """Returns the static inputs. Of the tensors saved by a forward pass these are the forward pass's own static
        inputs: its other inputs may lie elsewhere next time, and its outputs are managed."""
        graph = self.graph
        known = _shared.static.setdefault(graph.device, set())
        static = {i for i in graph.static if i in self._tensors and given[i].numel()}
        if graph.reuses_inputs:  # Inductor's kernels take copies of these, as the root node's copies are
            static -= {i for i in static if given[i].data_ptr() % versions.ALIGNMENT}
        if graph.role == "backward":
            return {i for i in static if given[i].data_ptr() in known}
        known.update(given[i].data_ptr() for i in static)
        return static

    # ---- Runs of the step function that the core asks for ----

    def _inputs(self, tensors):
        inputs = list(self._values)
        for i, tensor in zip(self._taken, tensors):
            inputs[i] = tensor
        return inputs

    def _run(self, *tensors):
        is_capturing = self._was_captured = _cgtree.current_stream().is_capturing
        self.is_unsettled = True
        self._give_back_draws()
        device = self.graph.device
        if not self._has_run:  # as torch.cuda.graph() does: the recording needs the memory
            self._has_run = True
            torch.cuda.empty_cache()
        with torch.inference_mode(False):
            inputs = self._inputs(map(as_tensor, tensors))
        try:
            if not is_capturing or not self._generators:
                return self._outputs_in_step(inputs)
            with _one_companion:
                companion = draws.Companion(device, self._generators)
                outputs = self._outputs_in_step(inputs, companion)
                companion.replay()  # for the launch of the recording that follows
            self._new_companion = companion
            return outputs
        except Exception as error:
            why = _cgtree.torch_ran_out()
            if why is not None:  # PyTorch made a RuntimeError of it
                raise OutOfMemory(why) from error
            if is_capturing:  # the core runs the function once more, without a capture
                self._failure = error
            raise

    def _outputs_in_step(self, inputs, companion=contextlib.nullcontext()):
        before = blocks_of_steps()
        with step(self.graph.device, self._may_keep), companion:
            outputs = self._outputs(inputs)
        # Memory that an operator keeps may lie in the segment of a result; then no replay may write
        # the segment.
        if self._was_captured and blocks_of_steps() > before and not versions.pools_in_use(
                self.graph.device):
            self._may_keep = True
        return outputs

    def _outputs(self, inputs):
        """Runs the graph, and returns its results as tensors of cgtree."""
        try:
            with versions.as_in_wrapper():
                results = self.graph.model(list(inputs))
                self._ran = Recipe(results, inputs, self.graph.device)
                outputs = outputs_of(self._ran.made, self._ran.sources)
                self._ran.drop()
            return outputs
        except Exception as error:
            results = None
            self._failed_at = versions.operator_of(error)
            traceback.clear_frames(error.__traceback__)  # the frames would keep memory of the pool
            raise

    def _run_on_host(self, *tensors):
        self.is_unsettled = True
        self._give_back_draws()
        self._ran = self._recipe
        try:
            return run_on_host(self, tensors)
        except Exception as error:
            self._failed_at = versions.operator_of(error)
            if _cgtree.current_stream().is_capturing:
                self._failure = error
            raise

    def _draw(self):
        """Advances the generators as a replay does."""
        self._offsets = draws.offsets(self._generators)
        if self._companion is not None:
            self._companion.replay()

    def _give_back_draws(self):
        if self._generators:
            draws.set_offsets(self._generators, self._offsets)

    def _finish(self, outputs, given):
        """Returns the results of a run, and of a replay whose results FlatCall cannot make."""
        results = (self._ran or self._recipe).results(outputs, given)
        if self._was_captured:
            _note_seeds(results[j].data_ptr() for j in self._recipe.on_host())
        if self.is_unsettled:
            self.settle()
        return results

    def recover(self, error, inputs):
        """Runs a call eagerly that failed because of `error`, or raises the error."""
        if not isinstance(error, Exception):
            raise error
        ran, self._ran, self._failure, self.is_unsettled = self._ran, None, None, False
        self._new_companion = None
        if isinstance(error, Unlike):
            self.run_eagerly(str(error))
            return error.results
        are_apart = isinstance(error, WrongValue) and self._are_apart(error, inputs)
        if not are_apart:  # checked before numbers are drawn
            self._give_back_draws()
        if are_apart or isinstance(error, OtherPool):
            self.eager_calls += 1
            self.exception = self.exception or are_apart or str(error)
            with versions.as_in_wrapper():
                return self.graph.model(inputs)
        if self._was_captured and not self._may_keep and "of the tensors it allocated" in str(error):
            self._may_keep = True  # an operator keeps a workspace, for example
            return self.graph(inputs)
        if isinstance(error, OutOfMemory):
            if self._has_trimmed or (ran and self.mutated) or not self._make_room():
                raise torch.OutOfMemoryError(str(error)) from error
            self._has_trimmed = True
            try:
                return self.graph(inputs)
            finally:
                self._has_trimmed = False
        if isinstance(error, VerifyError) and not self.mutated and "verify_first" not in self.graph.options:
            self._end_recordings_at_operators(error)
            with versions.as_in_wrapper():
                return self.graph.model(inputs)
        if not isinstance(error, (InvalidArgument, NotSupported)) or (ran and self.mutated):
            raise error
        if isinstance(error, WrongValue):
            raise error
        self.run_eagerly(_first_line(error))
        with versions.as_in_wrapper():
            return self.graph.model(inputs)

    def _end_recordings_at_operators(self, error):
        """A replay differs from an eager run: the graph's operators depend on more than the known state."""
        names = ", ".join(operator.name() for operator in self.graph.operators)
        why = (f"a replay differs from an eager run ({_first_line(error)}): the Python code of {names} reads what changes, or "
               "its results are not the same bit for bit, which recording={'verify_first': 0} allows; from now on it "
               "ends one recording and begins the next where that can be")
        first, *others = self.graph.operators
        refuse_always(others)
        if self.graph.cut_at(first):
            self.graph.why_cut = why
        self.run_eagerly(why)

    def _are_apart(self, error, inputs):
        """Returns, as a text, which inputs lie within one another without sharing an element, such as columns of one
        tensor, or None. Raises WrongValue if they share elements: the graph was not made for such inputs."""
        found = [(i, j, shared_elements(inputs[i], inputs[j])) for i, j in self._pairs]
        for i, j, count in found:
            if count:
                raise WrongValue(
                    f"input {i} of '{self.graph.name}' is written and shares {count} of its "
                    f"{inputs[i].numel()} elements with input {j}, as it did not when PyTorch compiled the graph, "
                    "whose guards assume that parameters and buffers are no arguments: set torch._dynamo."
                    "config.skip_no_tensor_aliasing_guards_on_parameters = False before the first call, or "
                    "pass a copy") from error
        return next((f"input {i} is written and lies between the elements of input {j}, as it did not in the first call"
                     for i, j, count in found if count is not None), None)

    def _make_room(self, to_device=True):
        """Gives back memory that neither a recording nor a tensor uses. Returns whether there was any."""
        try:
            return context(self.graph.device).trim(to_device=to_device) > 0
        except ConcurrentUse:
            return False

    def settle(self):
        """Updates the kind after a call that was not a replay."""
        self.is_unsettled = False
        ran, self._ran = self._ran, None
        failure, self._failure = self._failure, None
        failed_at, self._failed_at = self._failed_at, None
        if self._new_companion is not None:
            self._companion, self._new_companion = self._new_companion, None
        outcome = self._core.last_outcome()
        if ran is not None and ran != self._recipe:
            self.run_eagerly("its results share memory in another way than before")
        elif failure is not None and self.graph.cut_at(failed_at):
            self.reason = f"it runs in pieces, because of {failed_at}"
        elif failure is not None:
            self.run_eagerly(f"it cannot be captured: {_first_line(failure)}")
        elif outcome in (("run_eagerly", "capture_failed"), ("run_eagerly", "keeps_tensor")):
            self.run_eagerly("it cannot be captured: the log says why")
        # Memory that only the warm-up needed goes back to the device, for recordings. A verified
        # replay needs it again.
        self._make_room(to_device=outcome is not None and outcome[0] in ("warm_up", "record"))

    def run_eagerly(self, reason):
        self.reason = reason
        self.graph.forget(self)
        self._warn()

    def _warn(self):
        warnings.warn(f"cgtree.torch: '{self.graph.name}' runs eagerly, because {self.reason}",
                      RuntimeWarning, stacklevel=5)

    def stats(self):
        now = self._core.stats() if self._core is not None else dict.fromkeys(COUNTS, 0)
        return {name: now[name] + (self.eager_calls if name == "calls" else 0) for name in COUNTS}


def cudagraphify(model, static_input_idxs=(), *, device_index, is_backward=False,
                 is_inference=False, constants=(), placeholders=(), mutated_input_idxs=(),
                 stack_traces=(), name="graph", options=None):
    """Returns a boxed function that replays recordings of a boxed function of PyTorch's compilers.

    The arguments are those of PyTorch's function of this name; `device_index`: None for the CPU, on
    which the function is one node of a graph of the host device, for tests. `constants`,
    `placeholders` and `stack_traces` are not needed: the function keeps its constants.
    """
    device = torch.device("cpu") if device_index is None else torch.device("cuda", device_index)
    role = "backward" if is_backward else "inference" if is_inference else "forward"
    # Inductor writes results into inputs that it made itself, such as copies of tensors of the CPU before a partition,
    # and does not call these inputs mutated.
    graph = Graph(model, device, role, static_input_idxs, mutated_input_idxs, f"{name} {role}",
                  options, reuses_inputs=True)
    graph.code = versions.code_in_compilation()
    graph.cut = functools.partial(_compile_anew, graph.code)
    return graph


def _compile_anew(code, graph, operator):
    """Has PyTorch compile the code again at its next call, with partitions that end at this operator. Until then its
    graph runs eagerly."""
    if code is None or not versions.partition_at(operator):
        return None
    versions.forget(code)
    return graph.model
