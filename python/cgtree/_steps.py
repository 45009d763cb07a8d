"""Steps: work of an engine that is not a step function."""

from cgtree import _cgtree
from cgtree._context import _axis_options
from cgtree._errors import InvalidArgument

_OPTIONS = ("max_waste", "enabled", "require_graph", "on_static_change",
            "max_switch_nodes", "keeps_allocations", "max_recordings", "at_limit")


class Steps(_cgtree.Steps):
    """Work between two points of a program, recorded and replayed where it stands.

    Steps(context, name, *, bindings=(), copied=(), mutated=(), blocks=None, uncompared=(), per_session=(),
          keys=(), capture_mode="thread_local", **options)

    A call is a loop, whose body enqueues the work on current_stream(): it runs once, twice if the work could not be
    captured, and not at all if a recording is replayed. step.address(i) is the address of binding i for the work.

    bindings: names of the ranges of memory that the work uses, in the order of a call, which passes
        an array of any library, or (address, nbytes). An address is checked: another address gets
        another recording.
    copied, mutated: names of the bindings whose address may change because the graph copies them,
        and of those that the work writes.
    blocks: {name: nbytes}, step blocks: bytes of the host that the work reads on the device, such as lengths and block
        tables; each replay sees the bytes of its call.
    uncompared: names of mutated bindings that a verified replay does not compare.
    per_session: names of the bindings that belong to a session, such as a KV cache: one recording serves all sessions
        (docs/rebinding.md).
    keys: as those of compile(); a call has key={name: int or str}.
    capture_mode: "global", "thread_local" or "relaxed".
    options: max_waste, enabled, require_graph, on_static_change,
        max_switch_nodes, keeps_allocations, max_recordings and at_limit, as those of compile().

    A body that raises, or leaves the loop, cancels the call: it has no effect. Raises
    InvalidArgument, OutOfMemory, CaptureError, DeviceError.

    >>> context = cgtree.Context("host")
    >>> steps = cgtree.Steps(context, "decode", bindings=["cache"], mutated=["cache"])
    >>> cache, runs = cgtree.empty((4,), device="host"), []
    >>> for _ in range(5):
    ...     for step in steps(cache):
    ...         runs.append(step.address(0) == cache.data_ptr)
    >>> runs
    [True, True]
    """

    def __new__(cls, context, name="steps", *, bindings=(), copied=(), mutated=(), blocks=None,
                uncompared=(), per_session=(), keys=(), capture_mode="thread_local", **options):
        names, blocks = list(bindings), blocks or {}
        for what, given in (("copied", copied), ("mutated", mutated), ("blocks", blocks),
                            ("uncompared", uncompared), ("per_session", per_session)):
            for item in given:
                if item not in names:
                    raise InvalidArgument(f"{what}: there is no binding '{item}', only {names}")
        for option in options:
            if option not in _OPTIONS:
                raise InvalidArgument(f"Steps() has no option '{option}': expected one of "
                                      f"{', '.join(_OPTIONS)}")
        options["keys"] = [_axis_options(key) for key in keys]
        made = [(item, item in copied, item in mutated, blocks.get(item, 0),
                 item not in uncompared, item in per_session) for item in names]
        return super().__new__(cls, context, name, made, options, capture_mode)

    def __call__(self, *bindings, key=None, stream=None):
        """Returns the loop of one call. stream: the stream of its work; by default
        current_stream(), or the context's."""
        must_run = self.begin(bindings, key, stream)
        try:
            while must_run:
                yield self
                must_run = self.end()
        finally:
            self.leave()

    def inspect(self, *bindings, key=None, stream=None):
        """As that of a CompiledFunction, of the recording that this call would replay."""
        return super().inspect(bindings, key, stream)

    def compare_captures(self, work, *bindings, key=None, stream=None):
        """As that of a CompiledFunction. work(addresses) enqueues the work of the loop's body;
        binding i is at addresses[i]."""
        return super().compare_captures(work, bindings, key, stream)
