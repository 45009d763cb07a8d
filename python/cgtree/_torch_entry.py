"""One way of calling a compiled PyTorch function: its arguments but for the values of tensors, the
modes of PyTorch, and what it uses beside its arguments. All calls of an Entry share recordings.

The first call runs as if nothing had been compiled, and is observed: which arguments are written,
what is returned, whether random numbers are drawn. So the graph copies back what is written, and
what a replay could not repeat runs eagerly, with a warning that says why.
"""

import collections
import random
import sys
import threading
import warnings
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cgtree import _cgtree
from cgtree import _torch_draws as draws
from cgtree._errors import InvalidArgument, NotSupported
from cgtree._torch_memory import as_tensor, output_of, step
from cgtree._torch_results import Results
from cgtree._torch_tree import odd_tensor, unflatten

COUNTS = ("calls", "replays", "recordings", "warm_ups")
MAX_COMPARED = 64 << 20  # bytes
_one_companion = threading.Lock()  # PyTorch's generators support one capture at a time


class UndeclaredWrite(Exception):
    """A function wrote an argument that it did not write when it was observed."""


def normal(tensor):
    """Returns the tensor, or one of the same memory that counts its versions."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(False):
        return torch.from_dlpack(tensor)


def _on_host(tensor):
    """Returns a torch.Tensor of the same memory, in a node, which must not wait for others."""
    import numpy  # needed here alone

    return torch.from_numpy(numpy.asarray(tensor))


def _first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _contents(tensor):
    """Returns a copy of a tensor that a kernel may write without PyTorch knowing; None of a large
    one, for which there may be no room."""
    return None if tensor.nbytes > MAX_COMPARED or not tensor.nbytes else tensor.detach().clone()


def _are_bytes_equal(tensor, contents):
    if contents is None:
        return True
    return torch.equal(tensor.detach().contiguous().view(-1).view(torch.uint8),
                       contents.contiguous().view(-1).view(torch.uint8))


def _host_states(generators):
    """Returns the states of PyTorch's generators of the host, and those of Python's and NumPy's."""
    states = [torch.get_rng_state(), *[generator.get_state() for generator in generators]]
    numpy = sys.modules.get("numpy.random")
    others = [] if numpy is None else [repr(numpy.get_state(legacy=False))]
    return [state.tolist() for state in states], [random.getstate(), *others]


class _SeesDraws(TorchDispatchMode):
    """Tells whether operators of PyTorch drew random numbers on this thread."""

    has_drawn = False

    @classmethod
    def ignore_compile_internals(cls):
        return True  # else Dynamo would leave what runs here uncompiled for good

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.has_drawn |= torch.Tag.nondeterministic_seeded in operator.tags
        return operator(*args, **(kwargs or {}))


class Observation:
    """What the first call did; `value` is what it returned."""

    def __init__(self, function, shape, leaves, watch, device, generators,
                 compares):
        seen = [normal(leaf) for leaf in leaves]
        versions = [tensor._version for tensor in seen]
        contents = [_contents(tensor) if compares else None for tensor in seen]
        on_host = [given for given in watch.generators if given.device.type == "cpu"]
        (of_torch, others), offsets = _host_states(on_host), draws.offsets(generators)
        args, kwargs = unflatten(shape, iter(seen))
        may_draw = True
        if threading.active_count() > 1:  # others may draw from the same generators meanwhile
            with _SeesDraws() as mode:
                value = function(*args, **kwargs)
            may_draw = mode.has_drawn
        else:
            value = function(*args, **kwargs)
        self.draws = may_draw and draws.offsets(generators) != offsets
        now = _host_states(on_host)
        self.draws_on_host = (may_draw and now[0] != of_torch) or now[1] != others
        self.written = {i for i, tensor in enumerate(seen) if tensor._version != versions[i]
                        or not _are_bytes_equal(tensor, contents[i])}
        self.results = Results(value, seen, watch.tensors)
        self.made = [(tuple(tensor.shape), tensor.dtype) for tensor in self.results.made]
        self.reason = self._reason(device)
        self.value = self.results.value(self.results.made, leaves)
        self.results.made = None

    def _reason(self, device):
        made = self.results.made
        elsewhere = [tensor.device for tensor in made if tensor.device != device]
        if any(tensor.requires_grad for tensor in made):
            return ("what it returns requires gradients: call it under torch.no_grad() or "
                    "torch.inference_mode(), or compute the gradients inside of it")
        if odd := odd_tensor(self.results.shape):
            return f"it returns {odd}"
        if elsewhere:
            return f"it returns a tensor on {elsewhere[0]}, and works on {device}"
        for tensor in made:
            try:
                _cgtree.empty((1,), str(tensor.dtype).rpartition(".")[2], "host")
            except InvalidArgument as error:
                return f"it returns a tensor of another type: {_first_line(error)}"
        return None


def needs_gradients(leaves):
    """Returns whether PyTorch would compute gradients of an argument."""
    return torch.is_grad_enabled() and any([leaf.requires_grad for leaf in leaves])


def refused(shape, leaves, device):
    """Returns why such a call cannot be recorded, or None."""
    if odd := odd_tensor(shape):
        return f"an argument is {odd}"
    if needs_gradients(leaves):
        return "an argument requires gradients: pass it detached, or call under torch.no_grad()"
    elsewhere = [leaf.device for leaf in leaves if leaf.device != device]
    if elsewhere:
        return f"an argument lies on {elsewhere[0]}, and others on {device}"
    return None


def counts(entry):
    """Returns what an entry has counted, in a form that can be added."""
    return collections.Counter(entry.stats())


class Entry:
    """Calls of one kind, in one context. `reason`: why they run eagerly, or None."""

    def __init__(self, owner, watch, context, device, shape, leaves, static, observed, generators):
        self._owner = owner
        self._watch = watch
        self._context = context
        self._device = device
        self._shape = shape
        self._count = len(leaves)
        self._static = {i for i, leaf in enumerate(leaves)
                        if i in static or isinstance(leaf, torch.nn.Parameter)}
        self._written = observed.written
        self._results = observed.results
        self._made = observed.made
        self._generators = generators if observed.draws else ()
        self._companion = self._new_companion = None
        self._offsets = None
        self._ran = None  # the results of the run that this call has made, if it was no replay
        self._unlike = None  # on the CPU: what it made, if it is of other sizes than recorded
        self._failure = None  # what the function raised while this call was captured
        self._has_stale_core = False  # its recordings would lose a write
        self._past = collections.Counter()  # the counts of cores that were replaced
        self.reason = None
        self._core = None
        if self._generators:
            draws.anchor(device, self._generators)
        self._make_core()

    def _make_core(self):
        inputs = [{"name": f"argument {i}", "static": i in self._static,
                   "mutated": i in self._written} for i in range(self._count)]
        options = {"inputs": inputs, "outputs": [], "axes": [], "keys": [],
                   "at_limit": "evict", **self._owner.options}
        if self._core is not None:
            self._past = counts(self)
            self._owner.expect_nothing()
        run = self._run if self._device.type == "cuda" else self._run_on_host
        self._core = _cgtree.compile(self._context, self._owner.name, run, options)
        self._has_stale_core = False

    def stats(self):
        now = self._core.stats()
        return {name: now[name] + self._past[name] for name in COUNTS}

    def last_outcome(self):
        return ("run_eagerly", self.reason) if self.reason else self._core.last_outcome()

    # ---- Calls ----

    def call(self, leaves, args, kwargs):
        """Makes one call. Raises what the function raises when it runs eagerly."""
        if self.reason:
            return self._owner.function(*args, **kwargs)
        if self._generators:
            self._draw()
        try:
            outputs = self._core._call_exchanged(torch.Tensor, leaves)
        except BaseException as error:  # pylint: disable=broad-except
            return self.recover(error, args, kwargs)
        return self._finish(outputs, leaves)

    def warm_call(self, leaves, modes, layouts):
        """Returns what makes calls like this one, which was a replay, in one function; None if
        such calls take the long way."""
        form = 0
        if self._device.type == "cuda" and not self._written:  # on the CPU every call is settled
            form = self._results.form()
        try:
            return _cgtree.WarmCall(
                self._core, torch.Tensor, self._shape, tuple(map(type, leaves)), modes,
                self._watch.watched, self._draw if self._generators else None, self._finish, form,
                torch.is_grad_enabled(), layouts).call
        except InvalidArgument:
            return None

    def is_replaying(self):
        return not self.reason and self._core.last_outcome() == ("replay", "")

    def _draw(self):
        """Moves the generators as a replay does."""
        self._offsets = draws.offsets(self._generators)
        if self._companion is not None:
            self._companion.replay()

    def recover(self, error, args, kwargs):
        """Runs eagerly what could not be called because of `error`, or raises it."""
        ran, self._ran, self._failure = self._ran, None, None
        self._give_back_draws()
        if not isinstance(error, (InvalidArgument, NotSupported)):
            raise error
        if ran is None and isinstance(error, InvalidArgument):
            raise error
        self.run_eagerly(_first_line(error))
        return self._owner.function(*args, **kwargs)

    def _finish(self, outputs, leaves):
        """Returns what the function returns."""
        for i in self._written:
            torch.autograd.graph.increment_version(leaves[i])
        if self._ran is None:
            return self._results.value(outputs, leaves)
        if self._unlike is not None:
            outputs, self._unlike = self._unlike, None
            self.run_eagerly("the sizes of what it returns depend on values")
        value = self._ran.value(outputs, leaves)
        self._settle_run()
        return value

    def _settle_run(self):
        """Draws the conclusions from a call that was no replay."""
        ran, self._ran = self._ran, None
        if self._new_companion is not None:
            self._companion, self._new_companion = self._new_companion, None
        # Replays return what the function returned at first; so it must return that always.
        if self.reason:
            pass
        elif ran != self._results and not self._owner.tell_sizes_apart():
            self.run_eagerly("it returns something else for arguments of the same kind")
        elif self._failure is not None and not isinstance(self._failure, UndeclaredWrite):
            self.run_eagerly(f"it cannot be captured: {_first_line(self._failure)}")
        elif self._has_stale_core:
            self._make_core()
        elif self._core.last_outcome() == ("run_eagerly", "capture_failed"):
            self.run_eagerly("it cannot be captured: the log says why")
        self._failure = None

    def _give_back_draws(self):
        if self._generators:
            draws.set_offsets(self._generators, self._offsets)

    def run_eagerly(self, reason):
        self.reason = reason
        self._owner.expect_nothing()
        warnings.warn(f"cgtree.torch: '{self._owner.name}' runs eagerly, because {reason}",
                      RuntimeWarning, stacklevel=4)

    # ---- Runs of the function that the core asks for ----

    def _run(self, *tensors):
        is_capturing = _cgtree.current_stream().is_capturing
        self._give_back_draws()
        self._look_again()
        try:
            with torch.inference_mode(False):
                inputs = [as_tensor(tensor) for tensor in tensors]
            if not is_capturing or not self._generators:
                with self._owner.inside(), step(self._device):
                    return self._outputs(tensors, inputs, is_capturing)
            with _one_companion:
                companion = draws.Companion(self._device, self._generators)
                with self._owner.inside(), step(self._device), companion:
                    outputs = self._outputs(tensors, inputs, is_capturing)
                companion.replay()  # for the launch of the recording, which follows
            self._new_companion = companion
            return outputs
        except Exception as error:
            if is_capturing:  # the core runs the function once more, without a capture
                self._failure = error
            raise

    def _look_again(self):
        """A WarmCall compares with what it has seen, and other calls may have seen changes since."""
        if not self._watch.holds():
            self._watch.refresh()

    def _outputs(self, tensors, inputs, is_capturing):
        """Runs the function, and returns what it made as tensors of cgtree."""
        args, kwargs = unflatten(self._shape, iter(inputs))
        versions = [tensor._version for tensor in inputs]
        value = self._owner.function(*args, **kwargs)
        written = {i for i, tensor in enumerate(inputs) if tensor._version != versions[i]}
        if not written <= self._written:
            self._written |= written
            self._has_stale_core = True
            if is_capturing:  # the graph would write a copy; a run writes the caller's own memory
                raise UndeclaredWrite("it writes an argument that it did not write before")
        self._ran = Results(value, inputs, self._watch.tensors)
        convert = output_of(tensors)
        outputs = tuple([convert(tensor) for tensor in self._ran.made])
        self._ran.made = None
        return outputs

    def _run_on_host(self, *tensors):
        """PyTorch works at once on the CPU; its work is one node of the graph."""
        self._look_again()
        outputs = [_cgtree.empty(shape, str(dtype).rpartition(".")[2])
                   for shape, dtype in self._made]
        count, shape, function, made = len(tensors), self._shape, self._owner.function, self._made
        watched, inside = self._watch.tensors, self._owner.inside
        entry = weakref.ref(self)  # whose recording keeps the node
        is_grad_enabled, is_inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        def node(*given):
            with torch.inference_mode(is_inference), torch.set_grad_enabled(is_grad_enabled):
                inputs = list(map(_on_host, given[:count]))
                args, kwargs = unflatten(shape, iter(inputs))
                with inside():
                    value = function(*args, **kwargs)
                ran = Results(value, inputs, watched)
                if [(tuple(tensor.shape), tensor.dtype) for tensor in ran.made] != made:
                    entry()._unlike = ran.made
                else:
                    for place, tensor in zip(given[count:], ran.made):
                        _on_host(place).copy_(tensor.detach())
                ran.made = None
                entry()._ran = ran

        _cgtree.launch(node, *tensors, *outputs)
        return tuple(outputs)
