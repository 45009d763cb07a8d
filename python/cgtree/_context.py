"""The parts of Context, compile() and Axis that are written in Python."""

import importlib
import threading

from cgtree import _cgtree
from cgtree._errors import InvalidArgument

FRAMEWORKS = ("cupy", "numba", "numpy", "torch")
VERIFY_FIRST = 4


class Axis:
    """The treatment of one dynamic axis's sizes, for compile(..., axes=[...]).

    In compile(..., keys=[...]) it is an integer of the key, whose values are its sizes.

    policy: one of
        "exact" (default): each size has its own recordings, for up to max_sizes sizes. A call
            with another size does at_max_sizes: "run_eagerly" (default), "next_larger" (pad to
            the next larger recorded size) or "evict" (evict the size used longest ago).
        "allow_list": as "exact" for `sizes`; calls with other sizes run eagerly.
        "skip": calls run eagerly as soon as a second size was seen.
        "buckets": inputs are padded to the next of `sizes`, and outputs are sliced. A call above
            the largest does above_largest: "run_eagerly" (default) or "throw" (InvalidArgument).
        "multiples": as "buckets", with the multiples of multiple_of, up to `largest` if given.
        "powers_of_two": as "buckets", with 1, 2, 4, ..., up to `largest` if given.
    sizes: in elements, positive (of a key: or 0) and ascending. compile() raises InvalidArgument
        for others.

    >>> axis = cgtree.Axis("batch", "powers_of_two", largest=64)
    >>> f = cgtree.Context("host").compile(lambda x: x, dynamic={"x": {0: "batch"}}, axes=[axis],
    ...                                    outputs_dynamic=[{0: "batch"}])
    >>> f(cgtree.empty((5,), device="host")).shape
    (5,)
    """

    # A dataclass would import a module that takes most of the time of `import cgtree`.
    __slots__ = ("name", "policy", "sizes", "max_sizes", "at_max_sizes", "above_largest",
                 "multiple_of", "largest")

    def __init__(self, name, policy="exact", sizes=(), max_sizes=None, at_max_sizes=None,
                 above_largest=None, multiple_of=None, largest=None):
        values = (name, policy, sizes, max_sizes, at_max_sizes, above_largest, multiple_of, largest)
        for field, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, field, value)

    def __setattr__(self, field, _):
        raise AttributeError(f"cannot assign {field}: an Axis does not change, make another one")

    def _values(self):
        return tuple(getattr(self, field) for field in self.__slots__)

    def __eq__(self, other):
        return self._values() == other._values() if type(other) is Axis else NotImplemented

    def __hash__(self):
        return hash(self._values())

    def __repr__(self):
        fields = zip(self.__slots__, self._values(), strict=True)
        return f"Axis({', '.join(f'{field}={value!r}' for field, value in fields)})"

    def __reduce__(self):
        return Axis, self._values()

    def options(self):
        """Returns the dict that the extension reads."""
        return dict(zip(self.__slots__, self._values(), strict=True)) | {"sizes": list(self.sizes)}


class _Eager:
    """Returned by Context.eager(); `with` enters and leaves it."""

    def __init__(self, context):
        self._context = context

    def __enter__(self):
        self._context._enter_eager()
        return self._context

    def __exit__(self, *_):
        self._context._leave_eager()


class Context(_cgtree.Context):
    """Calls on one device that share a tree of recordings, pools of memory and a stream.

    Context(device="auto", *, stream=None, max_bytes=None, pools_grow_in_place=None,
            outputs_lie_apart=None, max_recordings=None, max_graph_bytes=None, max_recording_time=None,
            at_limit=None, event_file=None, event_file_has_replays=None, checked=None,
            on_foreign_pointer=None, verify_every=None, verify_first=None,
            time_every_nth_replay=None, group=None, name=None)

    device: "auto" (the first GPU, or the host device), "cuda:1" or "host".
    stream: the stream on which calls launch their work. By default the context makes a blocking
        stream, which is ordered with the legacy stream.
    max_bytes: the bytes of device memory that its pools may hold.
    pools_grow_in_place: maps memory at the end of one range of addresses for each pool, so that
        less memory stays unused. Requires a device that maps memory.
    outputs_lie_apart: where an earlier recording cannot be replayed because an output is held or lies elsewhere, the
        next recording has its outputs apart from those of all others: loops settle.
    max_recordings, max_graph_bytes: the number of recordings, and the bytes of their graphs.
    max_recording_time: the seconds that warming up and recording may take in all.
    at_limit: the action at a limit: "run_eagerly", "evict" or "throw" (CaptureError).
    event_file, event_file_has_replays: a file for events as lines of JSON, and whether replays are
        among them.
    checked: makes work of step functions on the legacy stream an error. Otherwise that work is
        silently missing from the recording.
    on_foreign_pointer: the action when a recording refers to memory that nothing declares to live
        as long: "record" (snapshots show it), "warn" or "throw" (CaptureError).
    verify_every: n to verify every n-th replay of each recording against an eager run, which
        raises VerifyError if they differ. By default CGTREE_VERIFY in the environment says n.
    verify_first: n to verify n of the first replays of each recording, too: the 1st, 2nd, 4th, 8th
        and so on.
    time_every_nth_replay: n to measure the time that every n-th replay of each recording takes on the
        device; metrics_text() and snapshot_json() have the times.
    group: the Group of ranks that decide together with this context; each rank makes a context with
        the same options, and the same calls.
    name: the context's name in metrics and profilers; by default that of the device.

    One thread at a time may use a context; a second thread gets ConcurrentUse. Raises
    InvalidArgument for a device that does not exist.

    >>> context = cgtree.Context("host", max_recordings=16)
    >>> f = context.compile(lambda x: x)
    >>> f(cgtree.empty((3,), device="host")).shape
    (3,)
    """

    def compile(self, function=None, **options):
        """Calls compile() for this context."""
        return compile(function, context=self, **options)

    def eager(self):
        """Runs work that is part of no graph between calls, in order with them.

        In the block current_stream() is the context's, and empty() allocates from its pool.
        """
        return _Eager(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"cgtree.Context({'closed' if self.closed else self.device})"


_default = threading.local()


def default_context():
    """Returns the calling thread's context on the best device; the first call makes it.

    >>> cgtree.default_context() is cgtree.default_context()
    True
    """
    context = getattr(_default, "context", None)
    if context is None or context.closed:
        context = _default.context = Context()
    return context


def mark_step():
    """Calls Context.mark_step() of the thread's default context.

    >>> cgtree.mark_step()
    """
    default_context().mark_step()


def stats():
    """Returns Context.stats() of the thread's default context.

    >>> calls = cgtree.stats()["calls"]
    """
    return default_context().stats()


def metrics_text(*contexts):
    """Returns the metrics of these contexts for Prometheus, as one page; any thread may call it.

    Without arguments: of the thread's default context. Raises InvalidArgument if two contexts have
    the same name.

    >>> decode = cgtree.Context("host", name="decode")
    >>> cgtree.metrics_text(decode).startswith("# HELP cgtree_")
    True
    """
    return _cgtree._metrics_text_of(contexts or (default_context(),))


def report(context=None):
    """Returns the reasons why calls did not replay, the costs of recordings, and advice, on one
    screen.

    Without an argument: of the thread's default context. Any thread may call it while calls go on.
    `python -m cgtree report FILE` does the same for a snapshot or an event file.

    >>> decode = cgtree.Context("host", name="decode")
    >>> cgtree.report(decode).splitlines()[0]
    "context 'decode' on host:0: 0 calls, 0 replayed"
    """
    from cgtree import _report  # its import takes as long as all the rest

    return _report.spelled(_report.report_of((context or default_context()).snapshot_json()))


def dump_events_on_signal(path, signals=()):
    """Writes the last events of all contexts of the process to a file at a signal.

    `signals`: such as [signal.SIGUSR1], whose default action is then not taken; by default those of a crash, which
    still ends the process (docs/events.md). A handler that Python sets later for the same signal replaces this one.
    Raises InvalidArgument for a number that is not a signal's.

    >>> import os, signal, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "events.jsonl")
    >>> cgtree.dump_events_on_signal(path, [signal.SIGUSR1])
    >>> signal.raise_signal(signal.SIGUSR1)
    >>> os.path.exists(path)
    True
    """
    _cgtree._dump_events_on_signal(str(path), [int(number) for number in signals])


class Scope:
    """Names the work that is recorded in a `with` block, in the path of the scopes that are open.

    Snapshots have the path of each node of a recording, and tools/scope_times adds up a profiler's
    times by path (docs/scopes.md). It costs nothing in a replay.

    >>> def step(x):
    ...     with cgtree.Scope("attention"):
    ...         return x
    >>> y = cgtree.Context("host").compile(step)(cgtree.empty((2,), device="host"))
    """

    __slots__ = ("_name", "_open")

    def __init__(self, name):
        self._name, self._open = name, {}  # by thread

    def __enter__(self):
        self._open.setdefault(threading.get_ident(), []).append(_cgtree._open_scope(self._name))
        return self

    def __exit__(self, *error):
        if of_thread := self._open.get(threading.get_ident()):  # none: it was entered on another thread
            _cgtree._close_scope(of_thread.pop())


def synchronize():
    """Calls Context.synchronize() of the thread's default context.

    >>> cgtree.synchronize()
    """
    default_context().synchronize()


def _input_names(function):
    import inspect  # not above: this import takes longer than the rest of `import cgtree`

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _position(key, names, what):
    """Returns the position of the input with this position or name."""
    if isinstance(key, str):
        if key not in names:
            raise InvalidArgument(f"{what}: the step function has no input '{key}', only {names}")
        return names.index(key)
    if key < 0 or (names and key >= len(names)):
        raise InvalidArgument(f"{what}: there is no input {key}; the inputs are {names}")
    return key


def _dynamic(given):
    """Returns [(axis, name)] of a dict {axis: name} or of such a list."""
    return sorted(given.items()) if isinstance(given, dict) else list(given)


def _input_options(function, flags, values):
    """Returns the options of each input. flags: inputs by option; values: {input: value} by option."""
    names = _input_names(function)
    inputs = [{"name": name} for name in names]

    def at(key, what):
        position = _position(key, names, what)
        inputs.extend({} for _ in range(position + 1 - len(inputs)))
        return inputs[position]

    for what, given in flags.items():
        for key in (given,) if isinstance(given, (str, int)) else given:
            at(key, what)[what] = True
    for what, given in values.items():
        for key, value in (given or {}).items():
            at(key, what)[what] = _dynamic(value) if what == "dynamic" else value
    return inputs


def _output_options(values):
    outputs = [{} for _ in range(max(map(len, values.values())))]
    for what, given in values.items():
        for output, value in zip(outputs, given):
            output[what] = _dynamic(value) if what == "dynamic" else value
    return outputs


def _axis_options(axis):
    if isinstance(axis, Axis):
        return axis.options()
    raise InvalidArgument(f"axes, keys: {axis!r} is no cgtree.Axis")


def _for_framework(function, framework):
    if framework is None:
        return function
    if framework not in FRAMEWORKS:
        raise InvalidArgument(f"framework is {framework!r}: expected one of "
                              f"{', '.join(FRAMEWORKS)}")
    return importlib.import_module(f"cgtree.{framework}").step_function(function)


def compile(function=None, *, context=None, name=None, framework=None, static=(), mutated=(),
            contiguous=(), dynamic=None, buckets=None, axes=(), keys=(), outputs_dynamic=(),
            padding=None, alignment=None, tolerance=None, outputs_tolerance=(), rebind=None,
            outputs_rebind=(), **options):
    """Wraps a step function so that calls replay a recorded graph whenever one fits.

    The step function takes tensors, launches its work on current_stream(), allocates with empty()
    and returns None, a tensor, or a tuple or list of tensors. With `framework` ("cupy", "numba",
    "torch", "numpy") it takes and returns arrays of that library, works on its current stream, and
    allocates from the context's pool (with Numba through cgtree.numba.empty()).

    context: by default, at each call, the default_context() of the calling thread. No device is
        touched before the first call, so that modules may compile functions when they are imported,
        also in a process that forks later.
    static, mutated: names or positions of the inputs whose address stays the same (weights), and
        of the inputs that the function writes into.
    contiguous: names or positions of the inputs that must have no gaps between their elements: a
        call with such gaps raises InvalidArgument.
    dynamic: {input: {axis: name}}, the axes whose size varies.
    buckets: {name: ascending sizes}, the sizes to which axes are padded.
    axes: an Axis for each axis with another policy. An axis without buckets or an Axis gets
        recordings for each size.
    keys: an Axis for each integer of the key that is rounded or limited. Each call passes it. A
        policy that pads rounds it up: the work sees the rounded value in current_key(), and calls
        with the same rounded value share recordings.
    outputs_dynamic: one {axis: name} per output.
    padding: {input: "zeros", "last", "anything" or a number}. Without it zeros, with one exception:
        an input of integers or bools is not padded if the function writes another input, because a
        zero may be an index; these calls run eagerly.
    alignment: {input: bytes}, of addresses that are used in place; 16 by default.
    tolerance, outputs_tolerance: {input: number} for inputs that are written, and one number per
        output: by how much a verified replay may differ from an eager run, in floating types:
        |replayed - eager| <= number * max(1, |eager|). 0, the default: bit for bit.
    rebind: {input: "never", "auto" or "always"}: the graph uses the input at its address, which is patched at each
        replay, instead of a copy. "auto" decides by the estimated costs. Inputs for which this proves impossible are
        copied.
    outputs_rebind: the same, one per output, for outputs that are written into a buffer.
    options: enabled, require_graph, max_recordings, max_static_changes
        (bools and counts); verify_first (as of Context(), counts where it is larger; 4 by
        default with framework="torch", whose step functions read Python's state; 0 for none);
        max_switch_nodes (recordings share an executable graph where a replay of one after another
        has to patch at most this many nodes, each for about half a microsecond; 0 for none);
        keeps_allocations (the step may leave stream-ordered memory allocated, which is the
        recording's: valid until that is replayed again or dropped);
        max_waste (how many times the work, the product of all sizes
        and keys, may grow by padding; else the call runs eagerly); at_limit ("run_eagerly",
        "evict", "throw"),
        on_static_change ("record", "demote", "throw"), while_missing ("record", or, to record only
        in precapture(), "next_larger" or "run_eagerly").

    Returns a CompiledFunction; without a function, a decorator. Raises InvalidArgument.

    >>> @cgtree.compile(context=cgtree.Context("host"))
    ... def step(x):
    ...     y = cgtree.empty(x.shape)
    ...     cgtree.launch(lambda x, y: None, x, y)  # on a GPU, a kernel on current_stream()
    ...     return y
    >>> step(cgtree.empty((2, 3), device="host"))
    cgtree.Tensor(float32 {2, 3} on host:0)
    """
    if function is None:
        given = {**locals(), **options}
        del given["function"], given["options"]
        return lambda function: compile(function, **given)
    options["inputs"] = _input_options(
        function, {"static": static, "mutated": mutated, "contiguous": contiguous},
        {"dynamic": dynamic, "padding": padding, "alignment": alignment, "tolerance": tolerance,
         "rebind": rebind})
    options["outputs"] = _output_options({"dynamic": list(outputs_dynamic),
                                          "tolerance": list(outputs_tolerance),
                                          "rebind": list(outputs_rebind)})
    options["axes"] = [_axis_options(axis) for axis in axes]
    options["keys"] = [_axis_options(key) for key in keys]
    if buckets is not None:
        options["buckets"] = buckets
    if framework == "torch":
        options.setdefault("verify_first", VERIFY_FIRST)
    title = name or getattr(function, "__name__", "step")
    wrapped = _for_framework(function, framework)
    return _cgtree.compile(context, title, wrapped, options)
