"""cgtree.torch.compile(): replays recordings of PyTorch functions and modules."""

import collections
import contextlib
import functools
import inspect
import os
import threading
import warnings
import weakref

import torch

from cgtree import _cgtree
from cgtree import _torch_draws as draws
from cgtree._context import Context
from cgtree._errors import InvalidArgument, NotSupported
from cgtree._torch_entry import COUNTS, Entry, Observation, counts, needs_gradients, refused
from cgtree._torch_tree import flatten, objects, odd
from cgtree._torch_watch import Watch

MAX_WARM = 4  # calls that a call is compared with before its arguments are flattened


class _Thread(threading.local):
    """What belongs to a thread."""

    is_inside = False  # of a compiled function, whose parts are those that it calls


class _Calls(threading.local):
    """What a thread knows of the calls of one function."""

    warm = ()  # of (call, entry): see WarmCall

    def __init__(self):
        super().__init__()
        self.entries, self.watches = {}, {}
        self.past = collections.Counter()  # the counts of entries that were dropped

    def drop(self, keys):
        """Drops the entries of these keys, but not their counts."""
        for key in keys:
            self.past += counts(self.entries.pop(key))
        self.warm = ()


_thread = _Thread()
_all = weakref.WeakSet()
_before_fork = []  # keeps what belongs to the other process, whose threads are not here


def _forget():
    """After a fork the child has neither the contexts nor the recordings of its parent."""
    global _thread  # pylint: disable=global-statement
    _before_fork.append(_thread)
    _thread = _Thread()
    for compiled in _all:
        _before_fork.append(compiled._local)
        compiled.__dict__["_local"] = _Calls()


os.register_at_fork(after_in_child=_forget)


def context(device=None):
    """Returns the context in which compiled functions of the calling thread run on this device."""
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    name = "host"
    if device.type == "cuda":
        name = f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"
    contexts = _thread.__dict__.setdefault("contexts", {})
    if name not in contexts or contexts[name].closed:
        contexts[name] = Context(name)
    return contexts[name]


@contextlib.contextmanager
def _inside():
    """In the block compiled functions run as a part of the one that calls them."""
    before, _thread.is_inside = _thread.is_inside, True
    try:
        yield
    finally:
        _thread.is_inside = before


def _is_capturing():
    """Returns whether PyTorch captures a graph here, which then holds the work of the call."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _default_device():
    """Returns what torch.device(), as a context, and other modes say of functions of PyTorch."""
    return torch.get_default_device() if torch._C._len_torch_function_stack() else None


def _current_device():
    return torch.cuda.current_device() if torch.cuda.is_initialized() else None


# What PyTorch computes depends on these beside the arguments.
MODES = (torch.is_grad_enabled, torch.is_inference_mode_enabled,
         functools.partial(torch.is_autocast_enabled, "cuda"),
         functools.partial(torch.get_autocast_dtype, "cuda"),
         functools.partial(torch.is_autocast_enabled, "cpu"),
         functools.partial(torch.get_autocast_dtype, "cpu"),
         torch.are_deterministic_algorithms_enabled,
         torch.is_deterministic_algorithms_warn_only_enabled,
         torch.get_default_dtype, torch.get_float32_matmul_precision, _default_device,
         _current_device)


def _modes():
    return tuple([mode() for mode in MODES])


def _quick_modes():
    """Returns pairs of a function and what it returns, which hold as long as _modes() does."""
    guard = getattr(torch._C._dynamo.guards, "GlobalStateGuard", None)
    if guard is None:
        return tuple([(mode, mode()) for mode in MODES])
    functions = [torch.is_inference_mode_enabled, torch._C._len_torch_function_stack]
    if torch.cuda.is_initialized():
        functions.append(torch._C._cuda_getDevice)
    return ((guard().check, True), *[(function, function()) for function in functions])


def _sizes(leaves):
    return tuple([None if odd(leaf) else (leaf.shape, leaf.stride(), leaf.dtype)
                  for leaf in leaves])


def _devices(leaves):
    return tuple(dict.fromkeys([leaf.device for leaf in leaves]))


class Compiled:
    """A function or module whose calls replay recordings. See compile()."""

    inside = staticmethod(_inside)

    def __init__(self, function, name, static, mutated, max_kinds, generators, options):
        self.__dict__.update(
            function=function, name=name, options=options, _static=static, _mutated=mutated,
            _max_kinds=max_kinds,
            _generators=tuple(generators), _tells_sizes_apart=False, _compares=True,
            _local=_Calls(), _methods={}, _is_module=isinstance(function, torch.nn.Module))
        _all.add(self)
        if not self._is_module:
            functools.update_wrapper(self, function)

    # ---- As the function or module that it stands for ----

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        known = self._methods.get(id(instance))
        if known is None or known[0]() is not instance:
            known = self._methods[id(instance)] = self._bind(instance)
        return known[1]

    def _bind(self, instance):
        key, methods = id(instance), self._methods
        reference = weakref.ref(instance, lambda _: methods.pop(key, None))
        function = self.function

        @functools.wraps(function)
        def method(*args, **kwargs):
            return function(reference(), *args, **kwargs)

        bound = Compiled(method, self.name, self._static, self._mutated, self._max_kinds,
                         self._generators, self.options)
        bound.__dict__["_owner"] = reference
        return reference, bound

    def __getattr__(self, name):
        if self.__dict__.get("_is_module"):
            return getattr(self.function, name)
        raise AttributeError(name)

    def __setattr__(self, name, value):
        if self.__dict__.get("_is_module"):
            setattr(self.function, name, value)
        else:
            object.__setattr__(self, name, value)

    def __repr__(self):
        return f"cgtree.torch.compile({self.function!r})"

    # ---- Calls ----

    def __call__(self, *args, **kwargs):
        if torch.compiler.is_dynamo_compiling():
            return self.function(*args, **kwargs)
        if not _thread.is_inside:
            for call, entry in self._local.warm:
                try:
                    result = call((args, kwargs))
                except (InvalidArgument, NotSupported) as error:
                    return entry.recover(error, args, kwargs)
                if result is not NotImplemented:
                    return result
        return self._call(args, kwargs)

    def _call(self, args, kwargs):
        """Makes a call that is like none of the last ones."""
        is_inside = _thread.is_inside or _cgtree.context_of_step()
        if (is_inside or torch.compiler.is_compiling() or _is_capturing()
                or torch._C._len_torch_dispatch_stack()):
            return self.function(*args, **kwargs)
        leaves = []
        try:
            shape = flatten((args, kwargs), leaves)
            watch = self._watch(shape)
        except InvalidArgument as error:
            return self._run_eagerly(str(error), args, kwargs)
        entries = self._local.entries
        modes = _modes()
        sizes = _sizes(leaves) if self._tells_sizes_apart else None
        key = (shape, watch.state, modes, needs_gradients(leaves), _devices(leaves), sizes)
        entry = entries.get(key)
        if entry is None:
            return self._first_call(entries, key, watch, leaves, args, kwargs)
        result = entry.call(leaves, args, kwargs)
        if entry.is_replaying():
            self._expect(entry, leaves, sizes)
        return result

    def _expect(self, entry, leaves, sizes):
        """Calls like this one, which was a replay, are compared with it first from now on."""
        local = self._local
        layouts = None
        if sizes is not None:
            layouts = [number for leaf in leaves
                       for number in (leaf.dim(), *[n for pair in zip(leaf.shape, leaf.stride())
                                                    for n in pair])]
        call = entry.warm_call(leaves, _quick_modes(), layouts)
        if call is not None:
            local.warm = ((call, entry), *local.warm[:MAX_WARM - 1])

    def expect_nothing(self):
        """The recordings of an entry are gone, or are not to be replayed any more."""
        self._local.warm = ()

    def _watch(self, shape):
        """Returns what is used beside the tensors of the arguments, as it is now."""
        watches, has_gradients = self._local.watches, torch.is_grad_enabled()
        watch = watches.get((shape, has_gradients))  # also by shape, which is quicker
        if watch is None:
            passed = objects(shape)
            key = (tuple(map(id, passed)), has_gradients)
            if len(watches) >= 4 * self._max_kinds:
                watches.clear()
            watch = watches.get(key)
            if watch is None:
                watch = Watch([self.function, *passed], self.__dict__.get("_owner"), has_gradients)
            watches[key] = watches[shape, has_gradients] = watch
        if not watch.holds():
            watch.refresh()
            self._local.warm = ()  # they keep what they have seen
        return watch

    def _run_eagerly(self, reason, args, kwargs):
        warnings.warn(f"cgtree.torch: '{self.name}' runs eagerly, because {reason}",
                      RuntimeWarning, stacklevel=3)
        return self.function(*args, **kwargs)

    def _first_call(self, entries, key, watch, leaves, args, kwargs):
        if len(entries) >= self._max_kinds:
            self._local.drop([old for old in entries if old[1] != watch.state])
        if len(entries) >= self._max_kinds:
            return self._run_eagerly(
                f"it was called in {self._max_kinds} ways that cannot share recordings: pass "
                "numbers that change as tensors, or raise max_kinds", args, kwargs)
        device = self._device(leaves, watch)
        reason = refused(key[0], leaves, device)
        if reason is not None:
            return self._note_eager(entries, key, reason, args, kwargs)
        generators = self._generators_of(device, watch)
        with _inside():
            observed = Observation(self.function, key[0], leaves, watch, device, generators,
                                   self._compares)
        if observed.reason is None and observed.draws_on_host and device.type == "cuda":
            observed.reason = "it draws random numbers on the host, which a replay would repeat"
        observed.written |= self._named_leaves(self._mutated, leaves, args, kwargs)
        if observed.reason is not None:
            self._note_eager(entries, key, observed.reason)
            return observed.value
        if device.type == "cpu" or observed.draws:
            self._tells_sizes_apart_from_now()
            key = (*key[:-1], _sizes(leaves))
        entries[key] = Entry(self, watch, context(device), device, key[0], leaves,
                             self._named_leaves(self._static, leaves, args, kwargs), observed,
                             generators)
        return observed.value

    def _note_eager(self, entries, key, reason, *call):
        entries[key] = Eager(self.function, reason)
        warnings.warn(f"cgtree.torch: '{self.name}' runs eagerly, because {reason}",
                      RuntimeWarning, stacklevel=4)
        if call:
            args, kwargs = call
            return self.function(*args, **kwargs)
        return None

    def knows_writes(self):
        """Says that mutated= names all arguments that are written, so that none is compared."""
        self.__dict__["_compares"] = False

    def _tells_sizes_apart_from_now(self):
        self.__dict__["_tells_sizes_apart"] = True

    def tell_sizes_apart(self):
        """What is returned depends on the sizes of tensors: calls with other sizes are of another
        kind from now on. Returns False if they were before."""
        if self._tells_sizes_apart:
            return False
        self._tells_sizes_apart_from_now()
        self._local.drop(list(self._local.entries))
        return True

    @staticmethod
    def _device(leaves, watch):
        """Returns where the function works: on a GPU, if anything of it lies there."""
        devices = [tensor.device for tensor in (*leaves, *watch.tensors)]
        for device in devices:
            if device.type == "cuda":
                return device
        if not devices and torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def _generators_of(self, device, watch):
        if device.type != "cuda":
            return ()
        found = [draws.default_generator(device), *self._generators, *watch.generators]
        return tuple(dict.fromkeys(given for given in found if given.device == device))

    def _named_leaves(self, names, leaves, args, kwargs):
        """Returns the positions of the tensors in the arguments with these names. Raises
        InvalidArgument if there is no such argument."""
        if not names:
            return set()
        function = self.function.forward if self._is_module else self.function
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        found = []
        for name in names:
            if name not in given:
                raise InvalidArgument(f"'{self.name}' has no argument '{name}', only {[*given]}")
            flatten(given[name], found)
        named = set(map(id, found))
        return {i for i, leaf in enumerate(leaves) if id(leaf) in named}

    # ---- What it did ----

    def kinds(self):
        """Returns one dict for each way of calling it that the calling thread has used: its counts,
        what its last call did, and why it runs eagerly."""
        return [{**entry.stats(), "last_outcome": entry.last_outcome(), "reason": entry.reason}
                for entry in self._local.entries.values()]

    def stats(self):
        """Returns the calls, replays, recordings and warm-ups of the calling thread."""
        kinds = self.kinds()
        total = {name: sum(kind[name] for kind in kinds) + self._local.past[name]
                 for name in COUNTS}
        return {**total, "eager": [kind["reason"] for kind in kinds if kind["reason"]]}

    def reset(self):
        """Forgets all recordings of the calling thread, for example after a change that is neither
        an argument nor found by itself."""
        self._local.drop(list(self._local.entries))


class Eager:
    """A kind of calls that run eagerly, and were not tried."""

    def __init__(self, function, reason):
        self._function, self.reason, self._calls = function, reason, 1

    def call(self, _leaves, args, kwargs):
        self._calls += 1
        return self._function(*args, **kwargs)

    def stats(self):
        return {"calls": self._calls, "replays": 0, "recordings": 0, "warm_ups": 0}

    def last_outcome(self):
        return ("run_eagerly", self.reason)

    def is_replaying(self):
        return False


def compile(function=None, *, name=None, static=(), mutated=(), max_kinds=64, generators=(),
            **options):
    """Wraps a function, method or module of PyTorch so that calls replay recorded CUDA graphs.

    It takes and returns torch.Tensors in any nesting of lists, tuples, dicts, dataclasses and
    whatever PyTorch's pytrees know. Everything else in the arguments is compared: calls with other
    numbers or strings have recordings of their own, and so have calls in other modes (gradients,
    autocast, training, deterministic algorithms). Parameters, buffers and tensors of the closure are
    used where they lie; if they move, the call is recorded anew. Arguments that the function writes
    are written. Outputs are the caller's until they are released. Random numbers are drawn as
    without recordings.

    The first call of a kind runs as if not compiled; so does what cannot be recorded, with a
    RuntimeWarning that says why. On the CPU the function is one node of a graph of the host device,
    for tests.

    static: names of arguments whose tensors stay at their addresses, so that they are not copied.
        nn.Parameters always are.
    mutated: names of arguments that kernels write of which PyTorch does not know, for example those
        of Triton. Most are found: the first call compares arguments of up to 64 MiB before and after.
    max_kinds: how many kinds of calls have recordings.
    generators: torch.Generators that it draws from, if they are neither default ones nor found in
        arguments, in the closure or in modules.
    options: max_recordings, max_static_changes, on_static_change, at_limit and others of
        cgtree.compile().

    Returns a callable with stats(), kinds() and reset(); a class of modules itself, with its
    forward() wrapped; without a function, a decorator.
    """
    if function is None:
        return lambda given: compile(given, name=name, static=static, mutated=mutated,
                                     max_kinds=max_kinds, generators=generators, **options)
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        function.forward = compile(function.forward, name=name or function.__name__, static=static,
                                   mutated=mutated, max_kinds=max_kinds, generators=generators,
                                   **options)
        return function
    if not callable(function):
        raise InvalidArgument(f"compile(): {function!r} is neither a function nor a module")
    title = name or getattr(function, "__name__", type(function).__name__)
    static, mutated = [(names,) if isinstance(names, str) else tuple(names)
                       for names in (static, mutated)]
    return Compiled(function, title, static, mutated, max_kinds, generators, options)
